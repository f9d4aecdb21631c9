"""Documents to notifications.

Which names and parts a document has is said in `contrada.xml.names`; which values its texts
are, in `contrada.records.cells`. A document that is not well formed is a bad record. With
`entries` the broken entries are bad records of their own, and all other entries are still
read, where the document around them can be read or merely ends too early.

Source: Erenkrantz 2001 §5 (parsing), §8.2 (one event per story).
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from contrada.errors import (
    ContradaError,
    InvalidNotificationError,
    LimitError,
    ParseError,
)
from contrada.model import Notification, Value
from contrada.records.lines import readable
from contrada.records.reading import Reading
from contrada.records.record import BAD_TEXT_CHARS_MAX, BadRecord, Record, bad_record
from contrada.xml.damage import without_damage
from contrada.xml.names import Texts, named_texts
from contrada.xml.tree import Element, parse_document

DOCUMENT_BYTES_MAX: Final = 64 * 2**20
"""Bytes of a document, unpacked. Beyond it: the document is a bad record."""


def open_document(path: Path) -> bytes:
    """The bytes of a document; `.gz` is unpacked.

    Raises InputError where it cannot be read and LimitError beyond DOCUMENT_BYTES_MAX.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with readable(path), opener(path, "rb") as stream:
        data: bytes = stream.read(DOCUMENT_BYTES_MAX + 1)
    if len(data) > DOCUMENT_BYTES_MAX:
        raise LimitError("DOCUMENT_BYTES_MAX", DOCUMENT_BYTES_MAX)
    return data


def read_document(data: bytes, source: str, reading: Reading) -> Iterator[Record | BadRecord]:
    """The records of a document, its entries numbered from 1 in the order of the document.

    (Entries below differently named parents are numbered parent by parent.)
    Cost: proportional to the document.
    """
    try:
        root = parse_document(data)
    except ParseError as error:
        yield from _read_damaged(data, source, reading, error)
    except ContradaError as error:
        yield bad_record(source, error, None, _beginning(data))
    else:
        yield from records_of_tree(root, source, reading)


def records_of_tree(root: Element, source: str, reading: Reading) -> Iterator[Record | BadRecord]:
    """The records of a tree, whoever has parsed it."""
    try:
        for number, texts in enumerate(named_texts(root, reading.entries), start=1):
            yield _record(source, number, texts, reading)
    except ContradaError as error:
        yield bad_record(source, error, None)


def _record(source: str, number: int, texts: Texts, reading: Reading) -> Record | BadRecord:
    try:
        return Record(source, number, _notification(texts, reading))
    except ContradaError as error:
        shown = "; ".join(f"{name}: {text}" for name, found in texts.items() for text in found)
        entry = f"{reading.entries} {number}: " if reading.entries else ""
        return BadRecord(source, f"{entry}{error}", None, None, shown[:BAD_TEXT_CHARS_MAX])


def _notification(texts: Texts, reading: Reading) -> Notification:
    found: dict[str, Value | list[Value]] = {}
    for name, pieces in texts.items():
        convert = reading.converter(name)
        try:
            values = [convert(text) for text in pieces if not reading.is_absent(text)]
        except ContradaError as error:
            raise InvalidNotificationError(name, pieces, str(error)) from None
        if values:
            found[name] = values[0] if len(values) == 1 else values
    return reading.notification(found)


def _read_damaged(
    data: bytes, source: str, reading: Reading, error: ParseError
) -> Iterator[Record | BadRecord]:
    """What can be read of a document that is not well formed, and what is wrong with it."""
    faults, root = without_damage(data, reading.entries) if reading.entries else ([], None)
    if not faults or root is None:
        faults = [(error, data)]
    for fault, piece in faults:
        yield bad_record(source, fault, None, _beginning(piece))
    if root is not None:
        yield from records_of_tree(root, source, reading)


def _beginning(data: bytes) -> str:
    return data[:BAD_TEXT_CHARS_MAX].decode("utf-8", "replace")
