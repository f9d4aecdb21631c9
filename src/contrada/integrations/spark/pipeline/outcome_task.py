"""`outcome_batches`: the work of a Spark task, from rows in Arrow batches to outcomes.

An outcome is a matched record, a bad record, or (last, one per task and source) the count of read
records. All code here runs in the workers; `contrada.integrations.files` decodes records, and the
index of a base matches them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from contrada.errors import ContradaError
from contrada.integrations.files import (
    WHOLE,
    BadRecord,
    Matcher,
    Outcomes,
    Part,
    ReadOptions,
    plain_attributes,
)
from contrada.integrations.files.record import bad_record
from contrada.integrations.files.record_matcher import PackedRecords
from contrada.integrations.spark.pipeline.worker_files import display_name, open_file
from contrada.integrations.spark.transforms.base_cover import Batches
from contrada.integrations.spark.transforms.filter_bases import OpenBase, SavedBase, open_base
from contrada.integrations.spark.transforms.frames import arrow_schema
from contrada.integrations.spark.transforms.notification_transform import BuiltRows, RowBuilder
from contrada.integrations.spark.transforms.packed_rows import (
    KEYS_AT_ONCE,
    PackedRows,
    matches_of,
    portions,
)
from contrada.matching.arrow_pack import blobs_in, starts_of
from contrada.model import FilterSet, Notification, to_msgpack
from contrada.model.codec import notification_from_msgpack
from contrada.model.domains.values import TIME_MIN_US, is_system_name

_AS_THEY_ARE: Final = frozenset((bool, int, float, str, datetime, type(None)))

_json: Final = msgspec.json.Encoder()
_name: Final = msgspec.msgpack.Encoder().encode


class _ReadStamp(msgspec.Struct, array_like=True, gc=False):
    """An envelope up to its time."""

    id: msgspec.Raw = msgspec.Raw(b"")
    publisher: msgspec.Raw = msgspec.Raw(b"")
    sequence: msgspec.Raw = msgspec.Raw(b"")
    time_us: int | None = None


class _ReadParts(msgspec.Struct, array_like=True, gc=False):
    attributes: dict[str, Any]
    envelope: _ReadStamp


class _ReadNotification(msgspec.Struct, array_like=True, gc=False):
    """A packed notification, decoded as far as outcomes show it."""

    version: msgspec.Raw
    kind: msgspec.Raw
    payload: _ReadParts


_reader: Final = msgspec.msgpack.Decoder(list[_ReadNotification])


def show_rows(packed: Any) -> tuple[Any, Any]:
    """Returns the times and attributes, as JSON, of packed notifications without NULL."""
    blobs = blobs_in(packed)
    data = blobs.data[blobs.starts[0] : blobs.starts[-1]]
    every = _reader.decode(b"".join((b"\xdd", blobs.size.to_bytes(4, "big"), data)))
    found = [each.payload for each in every]
    times = pa.array([each.envelope.time_us for each in found], pa.int64())
    values = [each.attributes for each in found]
    # Odd rows have a value that JSON cannot show directly: bytes, several values, NaN.
    lines = _json.encode_lines(values).split(b"\n")[:-1]  # JSON escapes line breaks.
    for row in _odd(values, lines):
        notification = notification_from_msgpack(blobs.at(row))
        lines[row] = _json.encode(plain_attributes(notification))
    return times, pa.array(lines, pa.binary()).cast(pa.string())


def _odd(values: list[dict[str, Any]], lines: list[bytes]) -> Iterator[int]:
    """Yields the rows that JSON cannot show directly."""
    kinds = set(map(type, chain.from_iterable(map(dict.values, values))))
    are_plain = kinds <= _AS_THEY_ARE
    for row, line in enumerate(lines):
        # A number that is not finite is encoded as null.
        if (b"null" in line and float in kinds and _has_infinite(values[row])) or not (
            are_plain or _AS_THEY_ARE.issuperset(map(type, values[row].values()))
        ):
            yield row


def _has_infinite(values: dict[str, Any]) -> bool:
    return any(type(each) is float and each - each != 0 for each in values.values())


def names_in(packed: Any, names: Iterable[str]) -> set[str]:
    """Returns the names, among some, of attributes in packed notifications without NULL. Cost: a
    search for each name among the bytes, and some microseconds.
    """
    found = set()
    for name in names:
        is_there = pc.match_substring(packed, _name(name))  # It may be a value.
        rows = is_there.to_numpy(zero_copy_only=False).nonzero()[0].tolist()
        if any(name in notification_from_msgpack(packed[row].as_py()) for row in rows):
            found.add(name)
    return found


OUTCOMES_MAX: Final = 2_000
"""Outcomes of an Arrow batch, and so of a task's buffer. Beyond it: the next batch."""

OUTCOME_DDL: Final = (
    "source string, file string, record bigint, column bigint, reason string, text string, "
    "time_us bigint, attributes string, notification binary, subscriptions array<int>, "
    "read bigint, bad bigint, unmet array<string>, files array<string>"
)
OUTCOME: Final = arrow_schema(OUTCOME_DDL)

MATCHERS_KEPT_MAX: Final = 8
"""Cached matchers of a worker. Beyond it: the oldest is dropped."""


class FilePart(NamedTuple):
    """A part of a file, and the header of its CSV file if the part is not the first."""

    path: str
    part: Part = WHOLE
    header: str | None = None


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Files of a text format; rows select `parts`, or name files, shown relative to `beside`."""

    name: str
    format: str
    reading: ReadOptions
    beside: str | None
    parts: tuple[tuple[FilePart, ...], ...] = ()

    def display_name(self, address: str) -> str:
        """Returns the name of a file in results."""
        return display_name(address, self.beside)


@dataclass(frozen=True, slots=True)
class SparkRows:
    """Rows of a Spark format, and their conversion to notifications."""

    name: str
    builder: RowBuilder


@dataclass(frozen=True, slots=True)
class OutcomeTask:
    """The sources and the base of tasks; it is pickled and sent to the workers. A row has the
    position of its source, and a struct for each source, only one of which is filled.
    """

    sources: tuple[TextFiles | SparkRows, ...]
    base: SavedBase | None = None


def outcome_batches(task: OutcomeTask, batches: Iterable[Any]) -> Batches:
    """Yields the outcomes of the rows of a task, and finally the counts, a row for each source."""
    assert task.base is not None
    made: Any = {TextFiles: TextFileReader, SparkRows: SparkRowReader}
    readers = [made[type(each)](each, task.base) for each in task.sources]
    for batch in batches:
        of = batch.column(0).to_numpy()
        for place in np.unique(of).tolist():
            rows = batch.column(1 + place)
            if len(readers) > 1:
                rows = rows.filter(pa.array(of == place))
            yield from readers[place].outcomes(pa.RecordBatch.from_struct_array(rows))
    for reader in readers:
        yield from reader.finish()


class _SourceOutcomes:
    """The outcomes of a source: buffered ones, and those in columns already."""

    def __init__(self, source: str, names_expected: set[str]) -> None:
        self._source = source
        self._rows: list[dict[str, Any]] = []
        self._keys = 0
        self.unmet = names_expected
        """The attributes in options that no record had so far."""
        self.files: list[str] = []
        """The files that a stream gave to the task."""
        self.read = self.bad = 0
        self.latest_us: int | None = None
        """The largest time of all read records, matched or not; None before the first."""

    def add(self, **outcome: Any) -> None:
        """Buffers an outcome of these columns; the others are NULL."""
        self._rows.append({"source": self._source, **outcome})
        self._keys += len(outcome.get("subscriptions", ()))

    def packed_batch(self, file: str, records: PackedRecords) -> pa.RecordBatch:
        """Returns matched records that are in columns already."""
        rows, count = records.rows, len(records.numbers)
        known = {
            "source": pa.repeat(self._source, count),
            "file": pa.repeat(file, count),
            "record": pa.array(records.numbers, pa.int64()),
            "attributes": rows.attributes,
            "notification": rows.notifications,
            "subscriptions": pa.array(records.positions, pa.list_(pa.int32())),
        }
        if rows.times_us is not None:
            known["time_us"] = pa.array(rows.times_us)
        return _batch_of(known, count)

    def row_batch(
        self, made: BuiltRows, rows: Any, is_bad: Any, matched: tuple[Any, Any]
    ) -> pa.RecordBatch:
        """Returns matched and bad rows of Spark in order; `matched` has bounds and positions."""
        order = pa.array(rows)
        notifications = made.notifications.take(order)
        times, shown = show_rows(notifications.drop_null())
        # Bad rows have no shown values.
        places = pa.array(np.cumsum(~is_bad) - 1, mask=is_bad)
        offsets, positions = (pa.array(each.astype(np.int32)) for each in matched)
        lists = pa.ListArray.from_arrays(offsets, positions, mask=pa.array(is_bad))
        known = {
            "source": pa.repeat(self._source, len(rows)),
            "reason": made.reasons.take(order),
            "text": made.texts.take(order),
            "time_us": times.take(places),
            "attributes": shown.take(places),
            "notification": notifications,
            "subscriptions": lists,
        }
        return _batch_of(known, len(rows))

    def add_bad(self, file: str | None, bad: BadRecord) -> None:
        self.bad += 1
        self.add(file=file, record=bad.line, column=bad.column, reason=bad.reason, text=bad.text)

    def finish(self) -> Batches:
        """Yields the buffered outcomes, and the counts behind them."""
        counts = {"read": self.read, "bad": self.bad, "unmet": sorted(self.unmet)}
        self.add(time_us=self.latest_us, files=self.files, **counts)
        yield self._batch()

    def full_batches(self) -> Batches:
        if len(self._rows) >= OUTCOMES_MAX or self._keys >= KEYS_AT_ONCE:
            yield self._batch()

    def _batch(self) -> pa.RecordBatch:
        rows, self._rows, self._keys = self._rows, [], 0
        return pa.RecordBatch.from_pylist(rows, OUTCOME)


def _batch_of(known: dict[str, Any], count: int) -> pa.RecordBatch:
    arrays = [known.get(each.name, pa.nulls(count, each.type)) for each in OUTCOME]
    return pa.RecordBatch.from_arrays(arrays, schema=OUTCOME)


def outcome_of(notification: Notification) -> dict[str, Any]:
    """Returns the columns of a notification: time, attributes as JSON, packed bytes."""
    return {
        "time_us": notification.envelope.time_us,
        "attributes": msgspec.json.encode(plain_attributes(notification)).decode(),
        "notification": to_msgpack(notification),
    }


# --- text formats ---------------------------------------------------------------------------------


class TextFileReader:
    """Converts the rows of text files to outcomes."""

    def __init__(self, files: TextFiles, base: SavedBase) -> None:
        self._files = files
        self._held = _SourceOutcomes(files.name, files.reading.names_expected())
        self._matcher = matcher_of(base, files.reading)

    def outcomes(self, rows: pa.RecordBatch) -> Batches:
        """Yields the outcomes of some rows."""
        for part, content in self._parts(rows):
            for outcomes in self._of_part(part, content):
                self._held.read += outcomes.read
                if outcomes.packed is not None:
                    yield self._held.packed_batch(outcomes.source, outcomes.packed)
                for each in outcomes.records:
                    if isinstance(each, BadRecord):
                        self._held.add_bad(each.source, each)
                    else:
                        record = each.record
                        known = {"file": record.source, "record": record.number}
                        known |= outcome_of(record.notification)
                        self._held.add(subscriptions=each.positions, **known)
                    yield from self._held.full_batches()

    def finish(self) -> Batches:
        """Yields the remaining outcomes, and the counts of all."""
        return self._held.finish()

    def _parts(self, rows: pa.RecordBatch) -> Iterator[tuple[FilePart, bytes | None]]:
        if rows.schema.names == ["place"]:
            for place in rows.column(0).to_pylist():
                for part in self._files.parts[place]:
                    yield part, None
            return
        for row in range(rows.num_rows):  # One by one: each content is a whole file.
            content = rows.column(1)[row].as_py() if rows.num_columns > 1 else None
            address = rows.column(0)[row].as_py()
            self._held.files.append(self._files.display_name(address))
            yield FilePart(address), content

    def _of_part(self, part: FilePart, content: bytes | None) -> Iterator[Outcomes]:
        files, matcher = self._files, self._matcher
        shown = files.display_name(part.path)
        held = self._held  # Sources may share a matcher.
        matcher.unmet, matcher.latest_us = held.unmet, held.latest_us
        try:
            file = open_file(part.path, content)
        except ContradaError as error:
            yield Outcomes(shown, 0, [bad_record(shown, error, None)])
            return
        yield from matcher.file(file, files.format, shown, part.part, part.header)
        held.latest_us = matcher.latest_us


_matchers: Final[dict[str, list[tuple[ReadOptions, Matcher]]]] = {}


def matcher_of(base: SavedBase, reading: ReadOptions) -> Matcher:
    """Returns the matcher of a source; each worker builds it once and caches the last ones."""
    if base.digest not in _matchers:
        _matchers.clear()
    kept = _matchers.setdefault(base.digest, [])
    for of, matcher in kept:
        if of == reading and repr(of.add) == repr(reading.add):  # 1 equals True, and 1.0.
            return matcher
    matcher = _matcher(open_base(base), reading)
    matcher.packs = True
    kept[:] = [*kept, (reading, matcher)][-MATCHERS_KEPT_MAX:]
    return matcher


def _matcher(base: OpenBase, reading: ReadOptions) -> Matcher:
    names = base.saved.names
    if not any(is_system_name(name) or name in reading.add for name in names):
        return Matcher.over(base.index, set(names), base.residues, reading)
    # Constants of the source are decided once, which needs each filter.
    wanted: list[Any] = [FilterSet(())] * base.saved.keys
    for position, filters in base.index.items():
        wanted[position] = filters
    return Matcher(wanted, reading, 0, base.residues)


# --- rows that Spark has read ---------------------------------------------------------------------


class SparkRowReader:
    """Converts rows of Spark to outcomes."""

    def __init__(self, rows: SparkRows, base: SavedBase) -> None:
        self._builder = rows.builder
        self._base = open_base(base)
        reading = rows.builder.reading
        known = {reading.rename.get(name, name) for name in rows.builder.names}
        self._held = _SourceOutcomes(rows.name, reading.names_expected() - known - reading.drop)

    def outcomes(self, rows: pa.RecordBatch) -> Batches:
        """Yields the outcomes of some rows."""
        names = rows.schema.names

        def built(columns: Sequence[Any]) -> BuiltRows:
            return self._builder.build(pa.RecordBatch.from_arrays(columns, names))

        for some in portions(
            self._base, rows.columns, lambda columns: PackedRows(built(columns).notifications)
        ):
            yield from self._outcomes(built(some))

    def _outcomes(self, made: BuiltRows) -> Batches:
        packed = made.notifications
        is_bad = made.reasons.is_valid().to_numpy(zero_copy_only=False)
        bad, held = int(is_bad.sum()), self._held
        held.read += len(packed) - bad
        held.bad += bad
        good = packed.drop_null()  # A NULL would force a row-by-row reading of all.
        held.unmet -= names_in(good, held.unmet)
        notifications = PackedRows(good)
        counts = np.zeros(len(packed), dtype=np.int64)
        counts[~is_bad], positions = matches_of(self._base, notifications)
        held.latest_us = max(notifications.latest_us, held.latest_us or TIME_MIN_US)
        reported = np.flatnonzero(is_bad | (counts > 0))
        bounds = starts_of(counts[reported])
        for first in range(0, len(reported), OUTCOMES_MAX):
            some = reported[first : first + OUTCOMES_MAX]
            ends = bounds[first : first + len(some) + 1]
            keys = positions[ends[0] : ends[-1]]
            yield held.row_batch(made, some, is_bad[some], (ends - ends[0], keys))

    def finish(self) -> Batches:
        """Yields the remaining outcomes, and the counts of all."""
        return self._held.finish()
