"""`Renderer`: makes notifications of documents by any strategy, from a path, bytes or a stream.

It is the XML part of the paper's system. It knows no service, as no sender knows XML.

A document that is not well formed is a bad record. With `entries` each broken entry is a bad
record. All other entries are still read if the document around them is readable or only truncated.

Source: Erenkrantz 2001 §4.1.5 (SienaXMLRenderer), §5 (parsing), §6, §8.2 (one event per story).
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

from lxml import etree

from contrada.errors import ContradaError, InputError, LimitError, ParseError
from contrada.integrations.documents import document_shape as shapes
from contrada.integrations.documents.damaged_document import DamagedPiece, without_damage
from contrada.integrations.documents.document_schema import validate
from contrada.integrations.documents.document_slots import ElementPath, Walk, outermost_repeated
from contrada.integrations.documents.element_tree import element_name, parsed
from contrada.integrations.documents.entry_splitter import DocumentEntry, entries_in, entries_of
from contrada.integrations.documents.naming_strategies import (
    Named,
    Slot,
    base_of,
    is_escaping,
    named,
    noted,
)
from contrada.integrations.documents.stylesheet import transformed
from contrada.integrations.files.flat_entries import FlatEntries
from contrada.integrations.files.json_objects import DocumentReport, records_of_object
from contrada.integrations.files.lines import PACKED, DataFile, FileLimits, open_document, unpacked
from contrada.integrations.files.read_options import ReadOptions, SlotReader, plain_format
from contrada.integrations.files.record import BadRecord, Record, bad_record, beginning
from contrada.model import Notification

PIECE_BYTES: Final = 2**16
"""Bytes that are read from a stream at once. Beyond it: the next piece takes the rest."""


class Renderer:
    """Makes notifications of documents, and reports repeated names. `format_name` is `xml` or
    `json`. Raises InputError for a stylesheet or a schema for JSON.
    """

    def __init__(self, options: ReadOptions | None = None, format_name: str = "xml") -> None:
        self.options = ReadOptions() if options is None else options
        plain_format(format_name, self.options)
        if format_name not in ("xml", "json"):
            raise InputError("format", f"found {format_name!r}, expected xml or json")
        self._is_xml = format_name == "xml"
        self._values = SlotReader(self.options)
        self._keeps = is_escaping(self.options.strategy)
        self._report = DocumentReport()
        self.repeated = self._report.repeated
        """The largest number of same-named children of one parent, by the path to them; with
        `entries` only of those that an entry has, or gets from the elements around it."""
        self.lost = self._report.lost
        """The number of values that the strategy `last` omitted, by name."""
        self._walk = Walk(self._keeps, self._report.repeated, self.options.document_limits)
        self._flat: FlatEntries | None = None
        if self.options.is_flat and not self.options.marks:
            self._flat = FlatEntries(self.options, self._values, self._walk.note)

    def render(
        self, what: Path | bytes | BinaryIO, source: str | None = None
    ) -> Iterator[Record | BadRecord]:
        """Yields the records of a document, entries numbered from 1 in its order, and bad records.

        With `entries` a stream, and a path with more than `document_bytes_max`, is read in pieces:
        memory stays flat, and an entry does not include context behind it. If that would matter, a
        bad record at the end reports it. Cost: proportional to the document.
        """
        if isinstance(what, bytes):
            yield from self._render_whole(what, source or "document")
        elif isinstance(what, Path):
            yield from self.render_file(what, source or str(what))
        elif self._is_xml and self._can_split:
            yield from self._render_entries(_pieces(what), source or "stream")
        else:
            data = what.read(self.options.limits.document_bytes_max + 1)
            yield from self._render_whole(data, source or "stream")

    def render_file(self, path: DataFile, source: str) -> Iterator[Record | BadRecord]:
        """Yields records as `render` does, for a path or similar file."""
        try:
            if self._is_xml and self._can_split and is_large(path, self.options.limits):
                with unpacked(path) as stream:
                    yield from self._render_entries(_pieces(stream), source)
            else:
                yield from self._render_whole(open_document(path, self.options.limits), source)
        except ContradaError as error:
            yield bad_record(source, error, None)

    @property
    def _can_split(self) -> bool:
        options = self.options
        return bool(options.entries) and options.stylesheet is None and options.schema is None

    def _render_whole(self, data: bytes, source: str) -> Iterator[Record | BadRecord]:
        options, keeps = self.options, self._keeps
        if len(data) > (most := options.limits.document_bytes_max):
            error = LimitError("document_bytes_max", most)
            yield bad_record(source, error, None, beginning(data))
        elif not self._is_xml:
            yield from records_of_object(data, source, options, self._report)
        else:
            try:
                root, bad = _intact_part(data, source, options.entries, instructions=keeps)
                yield from bad
                if root is not None:
                    yield from self._render_root(root, source, len(data))
            except ContradaError as error:
                yield bad_record(source, error, None, beginning(data))

    def _render_root(
        self, root: etree._Element, source: str, size: int
    ) -> Iterator[Record | BadRecord]:
        options = self.options
        if options.schema is not None:
            validate(root, options.schema)
        if options.stylesheet is not None:
            root = transformed(root, options.stylesheet)
        entries = options.entries
        if entries is None and options.strategy == "split":
            entries = outermost_repeated(root)
        if entries is None:
            path = ElementPath.to_root(element_name(root), escape=self._keeps)
            yield self._record(source, 1, DocumentEntry(root, path, []), is_whole=True)
        else:
            yield from self._records(source, entries_of(root, entries, self._walk, size))

    def _render_entries(self, pieces: Iterable[bytes], source: str) -> Iterator[Record | BadRecord]:
        entries = self.options.entries or ""
        found = entries_in(pieces, entries, self._walk, exact=self._keeps)
        try:
            yield from self._records(source, found)
        except ContradaError as error:
            yield bad_record(source, error, None)

    def _records(
        self, source: str, entries: Iterable[DocumentEntry]
    ) -> Iterator[Record | BadRecord]:
        for number, entry in enumerate(entries, start=1):
            yield self._record(source, number, entry)

    def _record(
        self, source: str, number: int, entry: DocumentEntry, *, is_whole: bool = False
    ) -> Record | BadRecord:
        found = None if self._flat is None else self._flat.notification(entry)
        try:
            if found is None:
                found = self._notification(entry, is_whole=is_whole)
            return Record(source, number, found)
        except ContradaError as error:
            shown = etree.tostring(entry.node, encoding="unicode", with_tail=False)
            place = "" if is_whole else f"{element_name(entry.node)} {number}: "
            bad = bad_record(source, error, None, shown)
            return replace(bad, reason=f"{place}{bad.reason}")

    def _notification(self, entry: DocumentEntry, *, is_whole: bool) -> Notification:
        strategy = self.options.strategy
        slots = self._walk.slots(entry.node, entry.path)
        if not self._keeps:
            found = self._values.of(named(chain(entry.around, slots), strategy, self.lost))
            return self.options.notification(found)
        own: list[Slot] = []
        names: list[Named] = []
        all_names = named(chain(noted(slots, own), entry.around), strategy, self.lost)
        found = self._values.of(noted(all_names, names))
        held = self._values.final_attributes(found, names)
        kind = str(entry.node.getroottree().getroot().tag)
        path = None if is_whole else entry.path
        about = shapes.AboutDocument(kind, base_of(strategy), path, names[len(own) :])
        body = shapes.shape_of_element(entry.node, about, names[: len(own)], held)
        return self.options.notification(found, body=body, content_type=shapes.SHAPE_TYPE)


def read_document(data: bytes, source: str, options: ReadOptions) -> Iterator[Record | BadRecord]:
    """Yields the records of an XML document; see `Renderer.render`."""
    return Renderer(options).render(data, source)


def _intact_part(
    data: bytes, source: str, entries: str | None, *, instructions: bool
) -> tuple[etree._Element | None, list[BadRecord]]:
    """Returns the root of a document, or of its part around damaged entries, and the bad records.
    `instructions` keeps processing instructions. Raises LimitError.
    """
    faults: list[DamagedPiece] = []
    root: etree._Element | None = None
    try:
        return parsed(data, instructions=instructions), []
    except ParseError as error:
        if entries:
            faults, root = without_damage(data, entries, instructions=instructions)
        if not faults or root is None:
            faults = [(error, data)]
    return root, [bad_record(source, fault, None, beginning(piece)) for fault, piece in faults]


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece


def is_large(path: DataFile, limits: FileLimits) -> bool:
    """Whether a document has more than `document_bytes_max`, as far as known. Raises InputError."""
    with unpacked(path) as stream:
        if path.suffix not in PACKED:
            return bool(
                stream.seekable() and stream.seek(0, os.SEEK_END) > limits.document_bytes_max
            )
        size = 0
        for piece in _pieces(stream):
            size += len(piece)
            if size > limits.document_bytes_max:
                return True
        return False
