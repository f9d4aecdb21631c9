"""`Matcher`: finds the subscriptions that match each record of a file.

`contrada match` and the pipeline use it. The attributes that all records of a source share (added
constants, type marks, an empty envelope) are evaluated once, so each filter keeps only conditions
on the rest. Large inputs are read in batches if pyarrow is installed
(`contrada.integrations.files.csv_batch`, `contrada.integrations.files.json_batch`). The plain
reader, which reads one line, defines the meaning. It reads the fallback rows of each batch and the
matched lines. Both give the same results, in the order of the file.
"""

import importlib.util
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from contrada.errors import ContradaError
from contrada.integrations.documents.name_patterns import PATTERN, by_names
from contrada.integrations.files.csv_rows import CsvRows, RowJoiner, is_blank
from contrada.integrations.files.event_logs import EVTX
from contrada.integrations.files.json_objects import notification_of_object
from contrada.integrations.files.lines import WHOLE, Block, DataFile, FileLimits, Part, open_blocks
from contrada.integrations.files.log_lines import LOG_FORMATS
from contrada.integrations.files.read_options import ReadOptions, plain_format
from contrada.integrations.files.record import BadRecord, Record, bad_record, record_of
from contrada.integrations.files.record_files import read_file
from contrada.matching.arrow_pack import Blobs, blobs_of, join_blobs
from contrada.matching.index import Index, Residues
from contrada.model import Filter, FilterSet, Notification
from contrada.model.algebra.value_set import EVERYTHING
from contrada.model.domains.values import is_system_name
from contrada.model.rule import Rule

_TIME: Final = "@time"


RecordFilter: TypeAlias = Filter | FilterSet | Rule
"""A condition on records."""


@dataclass(frozen=True, slots=True)
class MatchedRecord:
    """A record and the positions, in order, of the subscriptions that it matches."""

    record: Record
    positions: list[int]


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcome of some records: how many were read, and the matched and the bad ones."""

    source: str
    read: int
    records: Sequence[MatchedRecord | BadRecord]
    packed: "PackedRecords | None" = None


class PackedRecords(NamedTuple):
    """Matched records as columns: line numbers, positions of subscriptions, packed records."""

    numbers: list[int]
    positions: list[list[int]]
    rows: Any
    """A `contrada.integrations.files.packed_records.WrittenRows`."""


class Matcher:
    """Matches the records of files with the same options; names filters by position."""

    def __init__(
        self,
        filters: Iterable[RecordFilter],
        options: ReadOptions,
        bulk_after_bytes: int | None = None,
        residues: Residues[int] | None = None,
    ) -> None:
        """`residues` are those of rules that are not among the filters themselves. With the
        strategy `pattern` names are patterns of names. `bulk_after_bytes` replaces the limit.
        """
        self.packs = False
        """Whether matched records are given as columns if possible, and not one by one."""
        self.unmet = options.names_expected()
        """Names in the options that no record has had so far."""
        self.latest_us: int | None = None
        """The largest time of all records read so far, 0 for records without a time."""
        index: Index[int] = Index()
        names: set[str] = set()
        self._index = index
        self._asked = names
        # Matchers that read in turns would share the names that records have.
        self._options, self._stamp = replace(options, met=set()), options.stamp
        self._residues = Residues() if residues is None else residues
        for position, each in enumerate(filters):
            if options.strategy == PATTERN:
                each = by_names(each)
            if isinstance(each, Rule):
                self._residues.put(position, each.residue_holds)
                each = each.filters
            left = without_common(each, options)
            if left.filters:
                index.add(position, left)
                names.update(*(member.sides for member in left.filters))
        bulk_default = options.limits.bulk_after_bytes
        self._bulk_after = bulk_default if bulk_after_bytes is None else bulk_after_bytes
        in_common = any(is_system_name(name) or name in options.add for name in names)
        self._can_bulk = not in_common and _has_arrow()
        self._common_us = None if self._stamp else options.envelope(options.add).at_us
        """The time of all records of the source, None if each has its own."""

    @classmethod
    def over(
        cls, index: Index[int], names: set[str], residues: Residues[int], options: ReadOptions
    ) -> "Matcher":
        """Returns a matcher over an existing index of filters with these names. No such attribute
        may have the same value in all records of the source. Lines are read in batches.
        """
        matcher = cls((), options, 0, residues)
        matcher._index = index
        matcher._asked |= names
        return matcher

    def file(
        self,
        path: DataFile,
        format_name: str,
        source: str,
        part: Part = WHOLE,
        header: str | None = None,
    ) -> Iterator[Outcomes]:
        """Yields the outcomes of a file; `source` names it in them. `header` is needed for a part
        of a CSV file that begins below its header.
        """
        format_name, options = plain_format(format_name, self._options)
        options.met.clear()  # Sources of a pipeline with equal options share a matcher.
        is_whole = format_name == "json" and (options.entries or not options.is_multi)
        if is_whole or format_name in ("xml", EVTX, *LOG_FORMATS):
            for found in read_file(path, format_name, options, source, part):
                yield self._outcome(source, found)
            self.unmet -= options.met
            return
        lines = self._json_lines(source) if format_name == "json" else None
        matched = _MatchedLines(options.limits) if self.packs else None
        bad: BadRecord | None = None
        try:
            joiner = RowJoiner(options, header) if lines is None else None
            for block in chain(open_blocks(path, part, options.limits), (None,)):
                if joiner is not None:
                    block = joiner.join(block)
                    if lines is None and joiner.rows is not None:
                        lines = self._csv_lines(joiner.rows, source, options)
                if not block or lines is None:
                    continue
                self._bulk_after -= len(block.data)
                if self._can_bulk and self._bulk_after < 0:
                    yield from self._batch_outcomes(block, lines, matched)
                    continue
                asked: Sequence[int] = range(len(block))
                while asked:
                    outcomes, asked = self._outcomes(block, lines, asked, {})
                    yield outcomes
        except ContradaError as error:
            bad = bad_record(source, error, 1 if lines is None else None)
        if matched is not None and lines is not None:
            yield from self._packed(matched, lines)
        if bad is not None:
            yield Outcomes(source, 0, [bad])
        self.unmet -= options.met

    def _outcome(self, source: str, found: Record | BadRecord) -> Outcomes:
        if isinstance(found, BadRecord):
            return Outcomes(source, 0, [found])
        positions = self.match(found.notification)
        self._note_time(found.notification.envelope.at_us)
        if self.unmet:
            self.unmet.difference_update(found.notification.attributes)
        return Outcomes(source, 1, [MatchedRecord(found, positions)] if positions else ())

    def _note_time(self, time_us: int | None) -> None:
        if time_us is not None and (self.latest_us is None or time_us > self.latest_us):
            self.latest_us = time_us

    def match(self, notification: Notification) -> list[int]:
        """Returns the positions, in order, of the subscriptions that match."""
        found = sorted(self._index.match(notification))
        return self._residues.filter_keys(found, notification) if self._residues.of else found

    def _csv_lines(self, rows: CsvRows, source: str, options: ReadOptions) -> "_LineReader":
        @cache
        def batch_reader(names: frozenset[str | None]) -> Any:
            from contrada.integrations.files.csv_batch import CsvBatchReader

            return CsvBatchReader(rows.columns, filter(None, names), options)

        asked, every = frozenset(self._asked), frozenset(rows.columns)
        readers = (partial(batch_reader, asked), partial(batch_reader, every))
        return _LineReader(source, rows.notification, rows.is_blank, *readers)

    def _json_lines(self, source: str) -> "_LineReader":
        @cache
        def batch_reader() -> Any:
            from contrada.integrations.files.json_batch import JsonBatchReader

            return JsonBatchReader(self._asked, self._options, self.unmet)

        make = partial(notification_of_object, options=self._options)
        return _LineReader(source, make, is_blank, batch_reader, batch_reader)

    def _batch_outcomes(
        self, block: Block, lines: "_LineReader", waiting: "_MatchedLines | None"
    ) -> Iterator[Outcomes]:
        """Yields the outcomes of a block that is matched at once, or in portions of some
        `keys_at_once`; matched lines that can be packed go to `waiting`.
        """
        batch = lines.batch_reader().read(block)
        if read := int(batch.is_read.sum()):
            self._note_time(batch.latest_us if self._stamp else self._common_us)
        yield Outcomes(lines.source, read, ())
        fallback = batch.is_fallback.nonzero()[0].tolist()
        # Residues need whole notifications, and rows of several lines are few.
        is_packed = waiting is not None and not self._residues.of and block.starts is None
        begin = 0
        for end, matched in batch.matches(self._index, self._options.limits.keys_at_once):
            asked = fallback[bisect_left(fallback, begin) : bisect_left(fallback, end)]
            begin = end
            if waiting is not None and is_packed:
                waiting.put(block, matched)
                matched = {}
            asked = sorted({*asked, *matched})
            while asked:
                outcomes, asked = self._outcomes(block, lines, asked, matched)
                yield outcomes
            if waiting is not None and waiting.is_full:
                yield from self._packed(waiting, lines)

    def _outcomes(
        self,
        block: Block,
        lines: "_LineReader",
        asked: Sequence[int],
        matched: Mapping[int, list[int]],
    ) -> tuple[Outcomes, Sequence[int]]:
        """Returns the outcomes of some lines, read one by one, and the lines behind the first
        `keys_at_once` matches. `matched` has the matches of lines that are counted already.
        """
        options, stamp = self._options, self._stamp
        found: list[MatchedRecord | BadRecord] = []
        read = keys = 0
        done = len(asked)
        for place, position in enumerate(asked):
            if keys >= options.limits.keys_at_once:
                done = place
                break
            number, line = block.numbered(position)
            if lines.is_blank(line):
                continue
            record = record_of(lines.make, lines.source, number, line, options.limits)
            if isinstance(record, BadRecord):
                found.append(record)
                continue
            notification = record.notification
            if stamp:
                self._note_time(notification.envelope.at_us)
            if self.unmet:
                self.unmet.difference_update(notification.attributes)
            positions = matched.get(position)
            if positions is None:
                read += 1
                positions = sorted(self._index.match(notification))
            if positions and self._residues.of:
                positions = self._residues.filter_keys(positions, notification)
            if positions:
                found.append(MatchedRecord(record, positions))
                keys += len(positions)
        if read and not stamp:
            self._note_time(self._common_us)
        return Outcomes(lines.source, read, found), asked[done:]

    def _packed(self, waiting: "_MatchedLines", lines: "_LineReader") -> Iterator[Outcomes]:
        """Yields the matched lines that wait: as columns, and single those that do not fit."""
        for numbers, positions, block in waiting.cut():
            rows = lines.packing_reader().written(block)
            found: list[MatchedRecord | BadRecord] = []
            single = range(len(numbers)) if rows is None else rows.is_odd.nonzero()[0].tolist()
            for at in single:
                line, limits = block.text(at, at), self._options.limits
                record = record_of(lines.make, lines.source, numbers[at], line, limits)
                if isinstance(record, BadRecord):
                    found.append(record)
                else:
                    found.append(MatchedRecord(record, positions[at]))
            packed = None
            if rows is not None:
                kept = (~rows.is_odd).nonzero()[0]
                if len(kept) < len(numbers):
                    rows = rows.select(kept)
                    numbers = [numbers[at] for at in kept]
                    positions = [positions[at] for at in kept]
                packed = PackedRecords(numbers, positions, rows)
            yield Outcomes(lines.source, 0, found, packed)


class _MatchedLines:
    """Matched lines that wait until there are enough to pack together."""

    def __init__(self, limits: FileLimits) -> None:
        self._limits = limits
        self._forget()

    def _forget(self) -> None:
        self._numbers: list[int] = []
        self._positions: list[list[int]] = []
        self._lines: list[Blobs] = []
        self._bytes = self._keys = 0

    @property
    def is_full(self) -> bool:
        """Whether there are as many lines as are packed together."""
        limits = self._limits
        count = len(self._numbers)
        is_large = self._bytes >= limits.packed_bytes_max or self._keys >= limits.keys_at_once
        return is_large or count >= limits.packed_records_max

    def put(self, block: Block, matched: dict[int, list[int]]) -> None:
        """Adds the lines of a block that matched."""
        if matched:
            rows = np.array(sorted(matched))
            every = Blobs(np.append(0, block.ends + 1), np.frombuffer(block.data, np.uint8))
            lines = every.select(rows)
            self._numbers += (block.first + rows).tolist()
            self._positions += map(matched.__getitem__, rows.tolist())
            self._lines.append(lines)
            self._bytes += len(lines.data)
            self._keys += sum(map(len, matched.values()))

    def cut(self) -> Iterator[tuple[list[int], list[list[int]], Block]]:
        """Yields all lines, within the limits: numbers, positions of filters, and the lines."""
        numbers, positions, some = self._numbers, self._positions, self._lines
        self._forget()
        limits = self._limits
        starts, data = join_blobs(some) if some else blobs_of([])
        begin = 0
        while begin < len(numbers):
            full = int(np.searchsorted(starts, starts[begin] + limits.packed_bytes_max))
            end = min(begin + limits.packed_records_max, full, len(numbers))
            held = data[starts[begin] : starts[end]].tobytes()
            block = Block(1, held, starts[begin + 1 : end + 1] - starts[begin] - 1)
            yield numbers[begin:end], positions[begin:end], block
            begin = end


class _LineReader(NamedTuple):
    source: str
    make: Callable[[str], Notification]
    """The plain reader."""

    is_blank: Callable[[str], bool]
    batch_reader: Callable[[], Any]
    """Gives the batch reader of the attributes that filters name."""

    packing_reader: Callable[[], Any]
    """Gives the batch reader of all attributes."""


def without_common(filters: Filter | FilterSet, options: ReadOptions) -> Filter | FilterSet:
    """Returns the conditions of filters on attributes that differ between the records of a source.
    A filter with an unregistered operator stays unchanged.
    """
    names = (name for member in filters.filters for name in member.sides)
    if not any(name[0] == "@" or name in options.add for name in names):
        return filters  # the usual case, for speed
    common = replace(options, time=None if options.stamp else options.time).notification({})
    left = [_member_without_common(each, options, common) for each in filters.filters]
    return FilterSet(member for member in left if member is not None)


def _member_without_common(
    member: Filter, options: ReadOptions, common: Notification
) -> Filter | None:
    """Returns a filter without conditions that hold for all records; None if it never matches."""
    if member.unknown():
        return member
    sets, stamp = dict(member.sets), options.stamp
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
