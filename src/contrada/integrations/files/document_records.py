"""Records of XML documents.

`contrada.integrations.documents.element_tree` gives the names and parts of a document,
`contrada.integrations.files.read_options` the values of its texts. A document that is not well
formed is a bad record. With `entries` each broken entry is a bad record. All other entries are
still read if the document around them is readable or only truncated.

Source: Erenkrantz 2001 §5 (parsing), §8.2 (one event per story).
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from lxml import etree

from contrada.errors import ContradaError, InvalidNotificationError, LimitError, ParseError
from contrada.integrations.documents.damaged_document import DamagedPiece, without_damage
from contrada.integrations.documents.element_tree import (
    Element,
    Texts,
    named_texts,
    parsed,
    tree_of,
)
from contrada.integrations.files.lines import DataFile, FileLimits, unpacked
from contrada.integrations.files.read_options import ReadOptions
from contrada.integrations.files.record import (
    BAD_TEXT_CHARS_MAX,
    BadRecord,
    Record,
    bad_record,
    beginning,
)
from contrada.model import Value

T = TypeVar("T")


def open_document(path: DataFile, limits: FileLimits = FileLimits()) -> bytes:
    """Returns the unpacked bytes of a document. Raises InputError and LimitError."""
    with unpacked(path) as stream:
        data: bytes = stream.read(limits.document_bytes_max + 1)
    if len(data) > limits.document_bytes_max:
        raise LimitError("document_bytes_max", limits.document_bytes_max)
    return data


def read_flat(
    data: bytes, source: str, options: ReadOptions, see: Callable[[Element], None] | None = None
) -> Iterator[Record | BadRecord]:
    """Yields the records of a document, with several values for repeated elements. Entries are
    numbered from 1 on, below differently named parents parent by parent. `see` receives the tree.
    """
    for each in entries_of_document(data, source, options, see):
        yield each if isinstance(each, BadRecord) else record_of_entry(source, *each, options)


def entries_of_document(
    data: bytes, source: str, options: ReadOptions, see: Callable[[Element], None] | None = None
) -> Iterator[tuple[int, Texts] | BadRecord]:
    """Yields numbered entries of a document, and its unreadable pieces as bad records."""
    try:
        tree, bad = intact_part(data, source, options.entries, tree_of)
    except ContradaError as error:
        tree, bad = None, [bad_record(source, error, None, beginning(data))]
    yield from bad
    if tree is not None:
        if see is not None:
            see(tree)
        try:
            texts = named_texts(tree, options.entries, len(data), options.document_limits)
            yield from enumerate(texts, start=1)
        except ContradaError as error:
            yield bad_record(source, error, None)


def intact_part(
    data: bytes,
    source: str,
    entries: str | None,
    make: Callable[[etree._Element], T],
    *,
    instructions: bool = False,
) -> tuple[T | None, list[BadRecord]]:
    """Returns what `make` makes of a document, or of its part around damaged entries, and the bad
    records. `instructions` keeps processing instructions. Raises LimitError.
    """
    faults: list[DamagedPiece] = []
    root: etree._Element | None = None
    try:
        return make(parsed(data, instructions=instructions)), []
    except ParseError as error:
        if entries:
            faults, root = without_damage(data, entries, instructions=instructions)
        if not faults or root is None:
            faults = [(error, data)]
    bad = [bad_record(source, fault, None, beginning(piece)) for fault, piece in faults]
    return None if root is None else make(root), bad


def record_of_entry(
    source: str, number: int, texts: Texts, options: ReadOptions
) -> Record | BadRecord:
    """Returns the record of an entry."""
    try:
        found: dict[str, Value | list[Value]] = {}
        for name, pieces in named_as_read(texts, options).items():
            convert = options.converter(name)
            try:
                values = [convert(text) for text in pieces if not options.is_absent(text)]
            except ContradaError as error:
                raise InvalidNotificationError(name, pieces, str(error)) from None
            if values:
                found[name] = values[0] if len(values) == 1 else values
        return Record(source, number, options.notification(found))
    except ContradaError as error:
        shown = "; ".join(f"{name}: {text}" for name, found in texts.items() for text in found)
        return bad_entry(source, options.entries, number, error, shown)


def bad_entry(
    source: str, entries: str | None, number: int, error: ContradaError, shown: str
) -> BadRecord:
    """Returns the bad record for an entry, or for a document without entries."""
    entry = f"{entries} {number}: " if entries else ""
    return BadRecord(source, f"{entry}{error}", None, None, shown[:BAD_TEXT_CHARS_MAX])


def named_as_read(texts: Texts, options: ReadOptions) -> Texts:
    """Returns the texts by attribute; texts of the same attribute are joined."""
    if not options.is_renaming:
        return texts
    named: dict[str, list[str]] = {}
    for part, pieces in texts.items():
        name = options.attribute(part)
        if name is not None:
            named.setdefault(name, []).extend(pieces)
    return named
