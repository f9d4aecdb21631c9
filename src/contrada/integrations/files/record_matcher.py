"""Which subscriptions the records of a source match: what `contrada match` and the pipeline do.

What the records of a source have in common (constants that are added, type marks, an empty
envelope) is decided once: each filter is left with what can differ between two records. Lines are
then read many at once where there is much to read and pyarrow is there
(`contrada.integrations.files.csv_batch`, `contrada.integrations.files.json_batch`); only what is
doubtful and what matches is read by the functions of one line. The answers are the same, and in the
order of the file.
"""

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from contrada.errors import ContradaError, ParseError
from contrada.integrations.documents.name_patterns import PATTERN, by_names
from contrada.integrations.documents.text_names import Texts
from contrada.integrations.files.csv_rows import CsvRows, is_blank, is_blank_row, is_header
from contrada.integrations.files.document_records import (
    entries_of_document,
    named_as_read,
    open_document,
    record_of_entry,
)
from contrada.integrations.files.json_objects import (
    notification_of_object,
    read_array,
    records_of_line,
)
from contrada.integrations.files.lines import WHOLE, Block, DataFile, Part, open_blocks
from contrada.integrations.files.read_options import AllowedNames, ReadOptions, plain_format
from contrada.integrations.files.record import BadRecord, Record, bad_record, record_of
from contrada.integrations.files.renderer import Renderer, is_large
from contrada.integrations.files.row_joiner import joined_blocks
from contrada.matching import Index
from contrada.matching.arrow_pack import Blobs, blobs_of, joined
from contrada.matching.index import Residues
from contrada.matching.packed import Given
from contrada.model import Filter, FilterSet, Notification, Value
from contrada.model.algebra.attributes import VALUES_MAX
from contrada.model.algebra.value_set import EVERYTHING
from contrada.model.domains.values import is_system_name
from contrada.model.rule import Rule

BULK_AFTER_BYTES: Final = 2**19
"""Bytes that are read line by line before pyarrow is imported, which takes as long. Beyond it:
lines are read many at once."""

TOLD_AT_ONCE: Final = 4_096
"""Lines that matched and are told of together in columns. Beyond it: the next ones are told of by
themselves."""

TOLD_BYTES: Final = 4 * 2**20
"""Bytes of lines that matched and are told of together in columns. Beyond it: the next ones are
told of by themselves."""

_TIME: Final = "@time"


class MatchesRows(Protocol):
    """What tells the keys of notifications: an index, or several that together are one."""

    def match(self, notification: Given) -> list[int]:
        """As `Index.match`."""

    def match_batch(self, notifications: Any) -> tuple[Any, Any]:
        """As `Index.match_batch`."""


Wish: TypeAlias = Filter | FilterSet | Rule
"""What is asked of records."""


@dataclass(frozen=True, slots=True)
class MatchedRecord:
    """A record and the positions, in order, of the subscriptions that it matches."""

    record: Record
    positions: list[int]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of some records: how many could be read, and which are to be told of."""

    source: str
    read: int
    told: Sequence[MatchedRecord | BadRecord]
    packed: "PackedRecords | None" = None


class PackedRecords(NamedTuple):
    """Records that matched, as columns: their numbers, the positions of their subscriptions, and
    the packed records.
    """

    numbers: list[int]
    positions: list[list[int]]
    rows: Any
    """As `contrada.integrations.files.packed_records.WrittenRows`."""


class Matcher:
    """Matches the records of files that are read in one way. `wanted` are told by position."""

    def __init__(
        self,
        wanted: Iterable[Wish],
        options: ReadOptions,
        bulk_after_bytes: int = BULK_AFTER_BYTES,
        residues: Residues[int] | None = None,
    ) -> None:
        """`residues`: what rules leave open, where they are not among the wanted.

        With the strategy `pattern` names in filters are patterns of names.
        """
        index: Index[int] = Index()
        asked: set[str] = set()
        residues = Residues() if residues is None else residues
        for position, wish in enumerate(wanted):
            if options.strategy == PATTERN:
                wish = by_names(wish)
            if isinstance(wish, Rule):
                residues.put(position, wish.residue_holds)
                wish = wish.filters
            left = differing(wish, options)
            if left.filters:
                index.add(position, left)
                asked.update(*(member.sides for member in left.filters))
        self._take(index, asked, residues, options, bulk_after_bytes)

    @classmethod
    def over(
        cls, index: MatchesRows, asked: set[str], residues: Residues[int], options: ReadOptions
    ) -> "Matcher":
        """A matcher by an index that is there, of filters that ask for these attributes.

        None of these is the same for all records of the source. Lines are read many at once from
        the first one on.
        """
        matcher = cls.__new__(cls)
        matcher._take(index, asked, residues, options, 0)
        return matcher

    def _take(
        self,
        index: MatchesRows,
        asked: set[str],
        residues: Residues[int],
        options: ReadOptions,
        bulk_after_bytes: int,
    ) -> None:
        self.packs = False
        """Whether records that match are told in columns where they can be, and not one by one."""
        self._options = options
        self._index = index
        self._asked = asked
        self._names = AllowedNames(options)
        self._bulk_after = bulk_after_bytes
        self._residues = residues
        self._in_common = any(is_system_name(name) or name in options.add for name in self._asked)
        self._can_bulk = not self._in_common and _has_arrow()
        self.unmet = options.names_expected()
        """The attributes that the options speak of, and that no record has had so far."""
        self._looked_at = self._asked | options.names_checked()
        self.latest_us: int | None = None
        """The largest time of all records that could be read so far, 0 for one without any."""

    def file(
        self,
        path: DataFile,
        format_name: str,
        source: str,
        part: Part = WHOLE,
        header: str | None = None,
    ) -> Iterator[Outcomes]:
        """What becomes of the records of a file, which outcomes call `source`.

        Of a part of a CSV file that does not begin with the header this must be given.
        """
        format_name, options = plain_format(format_name, self._options)
        if format_name == "xml":
            yield from self._document(path, source)
            return
        if format_name == "json" and options.entries:
            yield from self._array(path, source)
            return
        if format_name == "json" and not options.is_multi:
            yield from self._by_strategy(path, source, part)
            return
        lines = self._objects(source) if format_name == "json" else None
        rows: CsvRows | None = None
        waiting = _WaitingLines() if self.packs else None
        blocks = open_blocks(path, part)
        if lines is None:
            blocks = joined_blocks(
                blocks,
                options.quote,
                lambda text: is_header(text, options) if rows is None else rows.is_row(text),
            )
        try:
            if lines is None and header is not None:
                rows = CsvRows(header, options)
                lines = self._rows(rows, source, options)
            for block in blocks:
                if lines is None:
                    rows = CsvRows(block.line(0), options)
                    lines = self._rows(rows, source, options)
                    block = block.behind_first()
                yield self._outcomes(block, lines, waiting)
                if waiting is not None and waiting.is_enough:
                    yield from self._packed(waiting, lines)
            if lines is None:
                raise ParseError(1, 1, "an empty file", "a line that names the columns")
        except ContradaError as error:
            if waiting is not None and lines is not None:
                yield from self._packed(waiting, lines)
            bad = bad_record(source, error, 1 if lines is None else None)
            yield Outcomes(source, 0, [bad])
        else:
            if waiting is not None and lines is not None:
                yield from self._packed(waiting, lines)

    def _array(self, path: DataFile, source: str) -> Iterator[Outcomes]:
        """What becomes of the elements of an array in a JSON document."""
        try:
            data = open_document(path)
        except ContradaError as error:
            yield Outcomes(source, 0, [bad_record(source, error, None)])
            return
        for found in read_array(data, source, self._options):
            yield self._outcome(source, found)

    def _by_strategy(self, path: DataFile, source: str, part: Part) -> Iterator[Outcomes]:
        """What becomes of lines of JSON that are named, or split, by another strategy."""
        try:
            for block in open_blocks(path, part):
                for at in range(len(block)):
                    number = block.number(at)
                    for found in records_of_line(block.line(at), source, number, self._options):
                        yield self._outcome(source, found)
        except ContradaError as error:
            yield Outcomes(source, 0, [bad_record(source, error, None)])

    def _outcome(self, source: str, found: Record | BadRecord) -> Outcomes:
        if isinstance(found, BadRecord):
            return Outcomes(source, 0, [found])
        positions = self.match(found.notification)
        self._see(found.notification.envelope.at_us)
        if self.unmet:
            self.unmet.difference_update(found.notification.attributes)
        return Outcomes(source, 1, [MatchedRecord(found, positions)] if positions else ())

    def _document(self, path: DataFile, source: str) -> Iterator[Outcomes]:
        """What becomes of the entries of a document."""
        try:
            if not self._options.is_flat or (self._options.entries and is_large(path)):
                for each in self._renderer.render_file(path, source):
                    yield self._outcome(source, each)
                return
            data = open_document(path)
        except ContradaError as error:
            yield Outcomes(source, 0, [bad_record(source, error, None)])
            return
        for entry in entries_of_document(data, source, self._options):
            found: Record | BadRecord
            if self.unmet and not isinstance(entry, BadRecord):
                self.unmet.difference_update(named_as_read(entry[1], self._options))
            if isinstance(entry, BadRecord):
                found = entry
            elif self._is_idle(named_as_read(entry[1], self._options)):
                self._see(self._common_us)
                yield Outcomes(source, 1, ())
                continue
            else:
                found = record_of_entry(source, *entry, self._options)
            yield self._outcome(source, found)

    def _is_idle(self, texts: Texts) -> bool:
        """Whether an entry is plainly a record that nothing matches: told by what is asked for."""
        options = self._options
        if self._in_common or options.stamp or not self._names.allow(texts, len(texts)):
            return False
        held: dict[str, list[Value]] = {}
        try:
            for name in self._looked_at & texts.keys():
                convert = options.converter(name)
                found = [convert(text) for text in texts[name] if not options.is_absent(text)]
                if found:
                    held[name] = found
        except ContradaError:
            return False
        most = max(map(len, texts.values()), default=0)
        return most <= VALUES_MAX and not self._index.match(held)

    @cached_property
    def _renderer(self) -> Renderer:
        return Renderer(self._options)

    def _see(self, time_us: int | None) -> None:
        if time_us is not None and (self.latest_us is None or time_us > self.latest_us):
            self.latest_us = time_us

    @cached_property
    def _common_us(self) -> int | None:
        """The time that all records of the source have, None where each has its own."""
        return None if self._options.stamp else self._options.notification({}).envelope.at_us

    def match(self, notification: Notification) -> list[int]:
        """The positions, in order, of the subscriptions that match."""
        return self._decided(sorted(self._index.match(notification)), notification)

    def _decided(self, positions: list[int], notification: Notification) -> list[int]:
        """Those that match whole records: rules ask also for what their filters do not name."""
        return self._residues.decided(positions, notification) if self._residues.of else positions

    def _rows(self, rows: CsvRows, source: str, options: ReadOptions) -> "_LineReader":
        @cache
        def bulk() -> Any:
            from contrada.integrations.files.csv_batch import CsvBatchReader

            return CsvBatchReader(rows.columns, self._asked, options)

        self.unmet.difference_update(rows.columns)

        @cache
        def bulk_all() -> Any:
            from contrada.integrations.files.csv_batch import CsvBatchReader

            return CsvBatchReader(rows.columns, filter(None, rows.columns), options)

        return _LineReader(
            source, rows.notification, bulk, bulk_all, lambda line: is_blank_row(line, options)
        )

    def _objects(self, source: str) -> "_LineReader":
        @cache
        def bulk() -> Any:
            from contrada.integrations.files.json_batch import JsonBatchReader

            return JsonBatchReader(self._asked, self._options, self.unmet)

        return _LineReader(
            source, lambda line: notification_of_object(line, self._options), bulk, bulk, is_blank
        )

    def _outcomes(
        self, block: Block, lines: "_LineReader", waiting: "_WaitingLines | None" = None
    ) -> Outcomes:
        """What becomes of a block of lines; what can wait to be told of is taken to `waiting`."""
        fallback: Iterable[int] = range(len(block))
        matched: dict[int, list[int]] = {}
        read = 0
        self._bulk_after -= len(block.data)
        if len(block) and self._can_bulk and self._bulk_after < 0:
            batch = lines.bulk().read(block)
            matched = batch.matches(self._index)
            fallback = batch.is_doubtful.nonzero()[0].tolist()
            read = int(batch.is_read.sum())
            if read:
                self._see(batch.latest_us if self._options.stamp else self._common_us)
        # Notifications decide residues, and rows of several lines are few.
        if waiting is not None and not self._residues.of and block.starts is None:
            waiting.take(block, matched)
            matched = {}
        told: list[MatchedRecord | BadRecord] = []
        for position in sorted({*fallback, *matched}) if matched else fallback:
            line = block.line(position)
            if lines.is_blank(line):
                continue
            record = record_of(lines.make, lines.source, block.number(position), line)
            if isinstance(record, BadRecord):
                told.append(record)
                continue
            self._see(record.notification.envelope.at_us)
            if self.unmet:
                self.unmet.difference_update(record.notification.attributes)
            positions = matched.get(position)
            if positions is None:
                read += 1
                positions = self.match(record.notification)
            else:
                positions = self._decided(positions, record.notification)
            if positions:
                told.append(MatchedRecord(record, positions))
        return Outcomes(lines.source, read, told)

    def _packed(self, waiting: "_WaitingLines", lines: "_LineReader") -> Iterator[Outcomes]:
        """All that waits to be told of."""
        for some in waiting.cut():
            yield self._packed_at_once(some, lines)

    def _packed_at_once(self, some: "_MatchedLines", lines: "_LineReader") -> Outcomes:
        """What is told of together: in columns, and one by one what does not fit these."""
        numbers, positions, block = some
        rows = lines.bulk_all().written(block)
        told: list[MatchedRecord | BadRecord] = []
        alone: Iterable[int] = range(len(numbers))
        if rows is not None:
            alone = rows.is_odd.nonzero()[0].tolist()
        for at in alone:
            record = record_of(lines.make, lines.source, numbers[at], block.line(at))
            if isinstance(record, BadRecord):
                told.append(record)
            else:
                told.append(MatchedRecord(record, positions[at]))
        packed = None
        if rows is not None:
            kept = (~rows.is_odd).nonzero()[0]
            if len(kept) < len(numbers):
                rows = rows.taken(kept)
                numbers, positions = [numbers[at] for at in kept], [positions[at] for at in kept]
            packed = PackedRecords(numbers, positions, rows)
        return Outcomes(lines.source, 0, told, packed)


class _MatchedLines(NamedTuple):
    """Lines that matched: their numbers, what they match, and themselves, one behind another."""

    numbers: list[int]
    positions: list[list[int]]
    block: Block


class _WaitingLines:
    """Lines that matched, and wait until there are enough to be told of in columns."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._numbers: list[int] = []
        self._positions: list[list[int]] = []
        self._lines: list[Blobs] = []
        self._bytes = 0

    @property
    def is_enough(self) -> bool:
        """Whether there are as many as are told of together."""
        return len(self._numbers) >= TOLD_AT_ONCE or self._bytes >= TOLD_BYTES

    def take(self, block: Block, matched: dict[int, list[int]]) -> None:
        """Takes the lines of a block that matched."""
        if matched:
            rows = np.array(sorted(matched))
            every = Blobs(np.append(0, block.ends + 1), np.frombuffer(block.data, np.uint8))
            lines = every.taken(rows)
            self._numbers += (block.first + rows).tolist()
            self._positions += map(matched.__getitem__, rows.tolist())
            self._lines.append(lines)
            self._bytes += len(lines.data)

    def cut(self) -> Iterator[_MatchedLines]:
        """As many of them as are told of together, until none waits."""
        numbers, positions, some = self._numbers, self._positions, self._lines
        self._forget()
        starts, data = joined(some) if some else blobs_of([])
        begin = 0
        while begin < len(numbers):
            full = int(np.searchsorted(starts, starts[begin] + TOLD_BYTES))
            end = min(begin + TOLD_AT_ONCE, full, len(numbers))
            held = data[starts[begin] : starts[end]].tobytes()
            block = Block(1, held, starts[begin + 1 : end + 1] - starts[begin] - 1)
            yield _MatchedLines(numbers[begin:end], positions[begin:end], block)
            begin = end


class _LineReader(NamedTuple):
    """How the lines of one file are read: `make` is the meaning of one, `bulk` reads many.

    `bulk_all` gives what reads all attributes, and not only those that are asked for.
    """

    source: str
    make: Callable[[str], Notification]
    bulk: Callable[[], Any]
    bulk_all: Callable[[], Any]
    is_blank: Callable[[str], bool]


def differing(wish: Filter | FilterSet, options: ReadOptions) -> Filter | FilterSet:
    """What filters still ask of a record, where some is the same for all records of a source.

    A filter with an operator that nobody registered stays as it is.
    """
    if not any(_has_common(member, options) for member in wish.filters):
        return wish  # the usual case, for speed
    stamp = options.stamp
    common = replace(options, time=None if stamp else options.time).notification({})
    left = (
        _differing(member, options, common, stamp)
        if _has_common(member, options) and not member.unknown()
        else member
        for member in wish.filters
    )
    return FilterSet(member for member in left if member is not None)


def _has_common(member: Filter, options: ReadOptions) -> bool:
    """Whether a filter asks for something that may be the same for all records of a source."""
    return any(name[0] == "@" or name in options.add for name in member.sides)


def _differing(
    member: Filter, options: ReadOptions, common: Notification, stamp: str | None
) -> Filter | None:
    """A filter without what holds for all records of a source; None where it holds for none."""
    sets = dict(member.sets)
    for name, value_set in member.sets.items():
        if name == _TIME and stamp is not None:
            # The attribute has one value, the envelope's time.
            sets[stamp] = sets.get(stamp, EVERYTHING) & sets.pop(_TIME)
        elif is_system_name(name) or name in options.add:
            if not any(value_set.holds(key) for key in common.keys_of(name)):
                return None
            del sets[name]
    return Filter.of_sets(sets)


@cache
def _has_arrow() -> bool:
    try:
        return importlib.util.find_spec("pyarrow") is not None
    except ValueError:  # Somebody has put something else in its place.
        return False
