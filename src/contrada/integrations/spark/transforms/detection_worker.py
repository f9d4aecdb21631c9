"""`FindSteps`, `FollowSteps` and `FollowShares`: the work of `detect` in a worker.

    batches ─► `FindSteps` ─► (part, time, group, steps, notification) ─► `FollowSteps` ─► matches
            matched by the index, late ones out    shuffled by part      `ArrayRuns`

Rows of plain columns are matched, split and encoded in columns; other rows one by one, as
notifications, with the same results. After its rows each task sends a *mark* to every part, with
its largest time: so all parts know the watermark of the batch before they start.

The steps of a stream are shuffled as *shares*: all steps of a task for a part, as one binary value
(`ShareSteps`, `FollowShares`), which is a single row for Spark.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from contrada.errors import ContradaError, EncodingError
from contrada.integrations.files.packed_records import binary_of
from contrada.integrations.spark.transforms import frames
from contrada.integrations.spark.transforms.state_files import States
from contrada.matching.arrow_pack import Blobs, blobs_in, pack_rows, pieces_of, write_maps
from contrada.model import Envelope, Notification, Pattern
from contrada.model.algebra.nested_objects import json_values
from contrada.model.codec import from_msgpack, notification_from_msgpack
from contrada.model.domains.values import ENVELOPE_NAMES, TIME_MAX_US, TIME_MIN_US
from contrada.patterns.array_runs import (
    NO_ROWS,
    ArrayRuns,
    FoundRuns,
    StepIndex,
    StepRows,
    join_rows,
    packed_order,
)
from contrada.patterns.pattern_engine import LATE
from contrada.patterns.runs import PatternLimits, RunBudget

STEPS_SCHEMA: Final = "part int, time_us bigint, group binary, steps binary, packed binary"

SHARES_SCHEMA: Final = "part int, steps binary"

MATCHES_SCHEMA: Final = (
    "pattern string, by string, time timestamp, notifications array<binary>, "
    "times array<timestamp>, batch bigint"
)

_STEPS, _SHARES, _MATCHES = map(frames.arrow_schema, (STEPS_SCHEMA, SHARES_SCHEMA, MATCHES_SCHEMA))

BAD: Final = "no notification"
"""The reason of a row that is NULL, or cannot be a notification."""

ROWS_FOLLOWED_AT_ONCE: Final = 262_144
"""Rows of a non-streaming frame that are followed at once. Beyond it: the next portion."""

SHARE_ROWS: Final = 1_024
"""Rows for each part in a task before it sends shares. Beyond it: the next shares. A small number
stays in the caches of a core while it is copied."""

SHARE_BYTES: Final = 32 * 2**20
"""Bytes of notifications in a task before it sends shares. Beyond it: the next shares."""

MATCHES_AT_ONCE: Final = 10_000
"""Matches in an Arrow batch. Beyond it: the next batch has the rest."""

INDEXES_KEPT: Final = 4
"""Cached indexes of patterns in a worker. Beyond it: the least recently used one is dropped."""

_log: Final = logging.getLogger("contrada.integrations.spark")


@dataclass(frozen=True, slots=True)
class Patterns:
    """Pickled patterns: their names and encodings."""

    names: tuple[str, ...]
    packed: tuple[bytes, ...]

    def patterns(self) -> list[Pattern]:
        """Decodes the patterns."""
        return [each for each in map(from_msgpack, self.packed) if isinstance(each, Pattern)]

    def runs(self, limits: PatternLimits) -> ArrayRuns:
        """Returns new runs of the patterns."""
        return ArrayRuns(self.patterns(), packed_order, limits)

    def matches(self, found: FoundRuns, batch: int = 0) -> Iterator[Any]:
        """Yields matches in Arrow batches."""
        texts = pa.array(list(map(_group_json, found.group_names.each())), pa.string())
        names = pa.array(self.names, pa.string())
        packed = binary_of(found.packed)
        times = pa.array(found.times, pa.timestamp("us", "UTC"))
        for begin in range(0, len(found.patterns), MATCHES_AT_ONCE):
            some = slice(begin, begin + MATCHES_AT_ONCE)
            starts = found.begins[begin : begin + MATCHES_AT_ONCE + 1]
            rows = pa.array(found.rows[starts[0] : starts[-1]])
            offsets = pa.array((starts - starts[0]).astype(np.int32))
            columns = [
                names.take(pa.array(found.patterns[some])),
                texts.take(pa.array(found.groups[some])),
                times.take(pa.array(found.rows[starts[1:] - 1])),
                pa.ListArray.from_arrays(offsets, packed.take(rows)),
                pa.ListArray.from_arrays(offsets, times.take(rows)),
                pa.repeat(pa.scalar(batch, pa.int64()), len(starts) - 1),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_MATCHES)


@lru_cache(INDEXES_KEPT)
def _index_of(patterns: Patterns) -> StepIndex:
    return StepIndex(patterns.patterns())


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """The attributes of columns, as in `frames`, and the position of the time. Without names, the
    first column has packed notifications. With `tells_seen`, a row with a time in the second column
    is no notification, but a time that was read elsewhere.
    """

    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    zone: str | None = None
    time_at: int = 0
    tells_seen: bool = False


@dataclass(frozen=True, slots=True)
class FindSteps:
    """Finds the steps of patterns that rows match, and the part that follows them."""

    patterns: Patterns
    parts: int
    columns: FrameColumns
    limits: PatternLimits
    watermark_us: int = TIME_MIN_US

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields the steps, and a mark for each part."""
        seen = _Seen()
        for rows in self.rows(batches, seen):
            yield _steps_batch(rows.groups.parts(self.parts), rows)
        yield _marks(self.parts, seen)

    def rows(self, batches: Iterable[Any], seen: "_Seen") -> Iterator[StepRows]:
        """Yields the steps; `seen` collects the times and dropped rows."""
        index, budget = _index_of(self.patterns), RunBudget(self.limits, dropped=seen.dropped)
        for batch in batches:
            if not batch.num_rows:
                continue
            if self.columns.names:
                found, last_us = self._rows(index, batch, budget)
            else:
                if self.columns.tells_seen:
                    batch = _without_times(batch, seen)
                found, last_us = self._whole(index, batch.column(0).to_pylist(), budget)
            seen.latest_us = max(seen.latest_us, last_us)
            yield from (rows for rows in found if len(rows.times))

    def _whole(
        self, index: StepIndex, packed: list[bytes | None], budget: RunBudget
    ) -> tuple[list[StepRows], int]:
        notifications = _decode(packed, budget)
        last_us = max((each.envelope.at_us for each in notifications), default=TIME_MIN_US)
        timely = [each for each in notifications if each.envelope.at_us >= self.watermark_us]
        if len(timely) < len(notifications):
            budget.dropped[LATE] += len(notifications) - len(timely)
        return index.rows_of(timely, budget), last_us

    def _rows(self, index: StepIndex, batch: Any, budget: RunBudget) -> tuple[list[StepRows], int]:
        """Returns the steps of attribute columns, and the largest time."""
        column = batch.column(self.columns.time_at).cast("int64").fill_null(0)
        times = column.to_numpy(zero_copy_only=False)
        good = (times >= TIME_MIN_US) & (times <= TIME_MAX_US)
        timely = good & (times >= self.watermark_us)
        last_us = int(times.max(where=good, initial=TIME_MIN_US))
        names = list(self.columns.names)
        batch = pa.RecordBatch.from_arrays(batch.columns[: len(names)], names)
        if not timely.all():
            # Adding counters, unlike updating, leaves out zero counts.
            budget.dropped += Counter({BAD: int((~good).sum()), LATE: int((good & ~timely).sum())})
            rows = np.flatnonzero(timely)
            batch, times = batch.take(pa.array(rows)), times[rows]
        if not len(times):
            return [], last_us
        found = self._in_columns(index, batch, times, budget)
        if found is None:
            found = index.rows_of(self._build(index, batch, times, budget), budget)
        return found, last_us

    def _build(
        self, index: StepIndex, batch: Any, times: Any, budget: RunBudget
    ) -> list[Notification]:
        """Returns notifications of the rows that may match a filter; bad rows are counted."""
        rows = frames.WideRows(
            batch.schema.names, self.columns.kinds, batch.columns, self.columns.zone
        )
        asked = np.ones(len(times), dtype=bool)
        if not index.index.asks_for_envelopes:
            asked = (np.diff(rows.matched(index.index)[0]) > 0) | rows.odd
        found = []
        for row in np.flatnonzero(asked & ~rows.bad).tolist():
            try:
                attributes = rows.notification(row)
                if attributes is not None:
                    envelope = Envelope(time_us=int(times[row]))
                    found.append(Notification(attributes, envelope=envelope))
            except ContradaError:
                rows.bad[row] = True
        if rows.bad.any():
            budget.dropped[BAD] += int(rows.bad.sum())
        return found

    def _in_columns(
        self, index: StepIndex, batch: Any, times: Any, budget: RunBudget
    ) -> list[StepRows] | None:
        """Returns the steps without a notification for each row; None if rows must be read one by
        one: columns that are not plain, filters or `by` on the envelope, bad or large values.
        """
        is_stamped = index.index.asks_for_envelopes or index.asked & set(ENVELOPE_NAMES)
        is_large = batch.nbytes > budget.limits.notification_bytes_max // 2
        is_plain = {frames.CONVERTED, frames.SEVERAL}.isdisjoint(self.columns.kinds)
        if is_stamped or is_large or not is_plain or not _are_values(batch):
            return None
        found = []
        offsets, filters = index.index.match_batch(pa.Table.from_batches([batch]))
        for by, (rows, begins, steps) in zip(index.by, index.steps(offsets, filters), strict=True):
            if not len(rows) or not set(by) <= set(batch.schema.names):
                continue
            some = batch.take(pa.array(rows))
            names = pieces_of(by, [some.column(name) for name in by], plain=True)
            groups = write_maps(len(rows), names)
            lacks = np.zeros(len(rows), dtype=bool)
            for piece in names:
                lacks |= ~piece.is_there
            pieces = pieces_of(some.schema.names, some.columns)
            packed = pack_rows(len(rows), pieces, times[rows])
            of = StepRows(times[rows], groups, begins, steps, packed)
            found.append(of.select(np.flatnonzero(~lacks)) if lacks.any() else of)
        return found


@dataclass(slots=True)
class _Seen:
    """The largest time of a task's rows, and its dropped rows by reason."""

    latest_us: int = TIME_MIN_US
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class ShareSteps:
    """Packs matching steps into shares: a row for each part with steps, and its mark."""

    find: FindSteps

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields the shares; the last ones have the marks."""
        seen, held = _Seen(), [NO_ROWS]
        count = size = 0
        for rows in self.find.rows(batches, seen):
            held.append(rows)
            count, size = count + len(rows.times), size + len(rows.packed.data)
            if size >= SHARE_BYTES or count >= SHARE_ROWS * self.find.parts:
                yield _shares(*self._sorted_by_part(held))
                held, count, size = [NO_ROWS], 0, 0
        yield _shares(*self._sorted_by_part(held))
        marks = _marks(self.find.parts, seen)
        yield _shares(marks, range(self.find.parts + 1))  # one mark for each part, in order

    def _sorted_by_part(self, held: list[StepRows]) -> tuple[Any, Any]:
        rows = join_rows(held[1:] or held)
        parts = rows.groups.parts(self.find.parts)
        order = np.argsort(parts, kind="stable")
        bounds = np.searchsorted(parts[order], np.arange(self.find.parts + 1))
        return _steps_batch(parts[order], rows.select(order)), bounds


@dataclass(frozen=True, slots=True)
class FollowShares:
    """Follows patterns through the shares of a micro-batch, from the state of the last one."""

    patterns: Patterns
    limits: PatternLimits
    slack_us: int
    batch: int
    states: States

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields the matches."""
        by_part: dict[int, list[Any]] = {}
        for each in batches:
            # Python bytes are aligned for reading in place; values of the column are not.
            for part, share in zip(*(column.to_pylist() for column in each.columns), strict=True):
                steps = pa.ipc.read_record_batch(pa.py_buffer(share), _STEPS)
                by_part.setdefault(part, []).append(steps)
        for part, own in by_part.items():
            yield from self.part(part, own)

    def part(self, part: int, shares: list[Any]) -> Iterator[Any]:
        """Yields the matches of a part, after writing its state; shares may be absent."""
        runs = self.patterns.runs(self.limits)
        if self.batch:
            runs.restore(self.states.read(self.batch - 1, part))
        rows, latest_us = [NO_ROWS], TIME_MIN_US
        for each in shares:
            steps, marks = _read_steps(each)
            rows.append(steps)
            for last_us, dropped in marks:
                latest_us = max(latest_us, last_us)
                runs.dropped.update(dropped)
        found = runs.advance(join_rows(rows), max(TIME_MIN_US, latest_us - self.slack_us))
        # Before the first match: a consumed batch must have written its state.
        self.states.write(self.batch, part, runs.save(), runs.counts())
        yield from self.patterns.matches(found, self.batch)


@dataclass(frozen=True, slots=True)
class FollowSteps:
    """Follows patterns through the steps of a whole frame, sorted by part and time."""

    patterns: Patterns
    limits: PatternLimits

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields the matches, some rows at a time."""
        runs, part = self.patterns.runs(self.limits), -1
        for each, part_of in _join_parts(each for each in batches if each.num_rows):
            if part_of != part:
                yield from self._end(runs, part)
                runs, part = self.patterns.runs(self.limits), part_of
            rows, marks = _read_steps(each)
            for _, dropped in marks:
                runs.dropped.update(dropped)
            if len(rows.times):
                # Rows are sorted by time: no earlier one is left.
                yield from self.patterns.matches(runs.advance(rows, int(rows.times[-1])))
        yield from self._end(runs, part)

    def _end(self, runs: ArrayRuns, part: int) -> Iterator[Any]:
        found = runs.advance(NO_ROWS, TIME_MAX_US + 1)
        if runs.dropped:
            _log.warning(
                "part %(part)d: took no part or was dropped: %(reason)s",
                {"part": part, "reason": dict(runs.dropped)},
            )
        yield from self.patterns.matches(found)


# --- rows as notifications ----------------------------------------------------------------------


def _without_times(batch: Any, seen: _Seen) -> Any:
    """Returns the notifications of a batch, and records the times of the other rows."""
    times = batch.column(1)
    seen.latest_us = max(seen.latest_us, *times.drop_null().to_pylist(), TIME_MIN_US)
    return batch.filter(times.is_null())


def _decode(packed: list[bytes | None], budget: RunBudget) -> list[Notification]:
    found = []
    for each in packed:
        try:
            if each is None:
                raise EncodingError("msgpack", "NULL")
            found.append(notification_from_msgpack(each))
        except EncodingError:
            budget.dropped[BAD] += 1
    return found


def _are_values(batch: Any) -> bool:
    """Whether all texts are UTF-8, and all times in range, which Spark does not guarantee."""
    for column in batch.columns:
        kind = str(column.type)
        if kind in ("string", "large_string") and not frames.is_utf8(column):
            return False
        if kind.startswith("timestamp") and frames.outside_times(column) is not None:
            return False
    return True


def _group_json(name: bytes) -> str:
    values = msgspec.msgpack.decode(name)
    shown = {key: json_values(value) for key, value in values.items()}
    return msgspec.json.encode(shown).decode()


# --- steps in Arrow -----------------------------------------------------------------------------


def _steps_batch(parts: Any, rows: StepRows) -> Any:
    steps = Blobs(rows.begins * 16, np.ascontiguousarray(rows.steps).view(np.uint8).reshape(-1))
    packed = map(binary_of, (rows.groups, steps, rows.packed))
    return pa.RecordBatch.from_arrays([parts.astype(np.int32), rows.times, *packed], schema=_STEPS)


def _marks(parts: int, seen: _Seen) -> Any:
    """Returns a mark for each part: the largest time, and in the first row the counts."""
    # Every part needs the time; one part has the counts, since parts are summed.
    encoded = [msgspec.json.encode(seen.dropped), *([b"{}"] * (parts - 1))]
    nothing = [None] * parts
    columns = [range(parts), [seen.latest_us] * parts, encoded, nothing, nothing]
    return pa.RecordBatch.from_arrays(columns, schema=_STEPS)


def _shares(batch: Any, bounds: Any) -> Any:
    """Packs steps or marks, which are sorted by part, as a row for each part."""
    begins = [(begin, end) for begin, end in pairwise(bounds) if begin < end]
    parts = batch.column("part").take(pa.array([begin for begin, _ in begins], pa.int64()))
    shares = [batch.slice(begin, end - begin).serialize().to_pybytes() for begin, end in begins]
    return pa.RecordBatch.from_arrays([parts, pa.array(shares, pa.binary())], schema=_SHARES)


def _read_steps(batch: Any) -> tuple[StepRows, list[tuple[int, dict[str, int]]]]:
    """Returns the steps in an Arrow batch, and its marks: the time and the dropped rows of each."""
    steps, marks = batch.column("steps"), []
    if steps.null_count:
        columns = batch.filter(steps.is_null()).select(["time_us", "group"]).columns
        times, counts = (column.to_pylist() for column in columns)
        marks = list(zip(times, map(msgspec.json.decode, counts), strict=True))
        batch = batch.filter(steps.is_valid())
    starts, data = blobs_in(batch.column("steps"))
    words = data[starts[0] : starts[-1]].copy().view(np.int64).reshape(-1, 2)
    groups, packed = blobs_in(batch.column("group")), blobs_in(batch.column("packed"))
    times = batch.column("time_us").to_numpy()
    return StepRows(times, groups, (starts - starts[0]) // 16, words, packed), marks


def _join_parts(batches: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Joins batches that are sorted by part, as far as they belong to one part."""
    held: list[Any] = []
    of = -1
    for each in batches:
        parts = each.column("part").to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
        for begin, end in pairwise(bounds):
            part = int(parts[begin])
            rows = sum(one.num_rows for one in held)
            if held and (part != of or rows >= ROWS_FOLLOWED_AT_ONCE):
                yield _concatenate(held), of
                held = []
            held, of = [*held, each.slice(begin, end - begin)], part
    if held:
        yield _concatenate(held), of


def _concatenate(batches: list[Any]) -> Any:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
