"""`ArrayRuns`: the runs of many patterns over batches of rows, in arrays.

    batch ──► rows (time, group, steps, notification) ──► waiting ──► runs ──► matches
                 `StepIndex`: places of patterns           (watermark)  (kernels)

The results are those of `contrada.patterns.pattern_engine`, by the same rules, with arrays in place
of objects. All state is arrays, too: `save` encodes it, and a restored copy continues identically.
A notification in several groups has a row for each.

Several workers may share a batch: each has the groups assigned to it, and all get one watermark.
Then each applies the limits to its own groups. Limits of runs in a group apply at each
notification; those of groups, of all runs and of waiting rows at the end of a batch, so they do not
bound the batch itself. A duplicate is counted in each group.

Source: PODC 2000 §2, figure 4.
"""

import io
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from contrada.errors import EncodingError
from contrada.matching.arrow_pack import Blobs, blobs_of, join_blobs, starts_of
from contrada.matching.index import Index
from contrada.matching.kernels import pattern_runs as kernels
from contrada.model import Filter, Notification, Pattern
from contrada.model.codec import notification_from_msgpack, to_msgpack
from contrada.model.domains.values import TIME_MIN_US, value_of
from contrada.patterns.pattern_engine import DUPLICATE, LATE, check_pattern
from contrada.patterns.reorder_buffer import order_of
from contrada.patterns.runs import (
    DEFAULT_LIMITS,
    GROUP_FULL,
    PATTERN_FULL,
    TABLE_FULL,
    By,
    Group,
    PatternLimits,
    RunBudget,
    groups_of,
)

FORCED: Final = "forced"
"""The counter of notifications that waited for the watermark beyond `pending_max`."""

_SPAN_MAX_US: Final = 2**60
"""Longer than the time between any two notifications."""


class StepRows(NamedTuple):
    """Notifications, each in one group: its time, the group, and the places that it matches.

    The steps of row i are `steps[begins[i] : begins[i + 1]]`, pairs of a pattern's number and a set
    of places, a bit for each. `packed` are the notifications.
    """

    times: Any
    groups: Blobs
    begins: Any
    steps: Any
    packed: Blobs

    def select(self, rows: Any) -> "StepRows":
        """Returns some of the rows."""
        begins, places = expand_items(self.begins, rows)
        steps, groups = self.steps[places], self.groups.select(rows)
        return StepRows(self.times[rows], groups, begins, steps, self.packed.select(rows))


def join_rows(some: Sequence[StepRows]) -> StepRows:
    """Returns all of the rows. Cost: a copy."""
    if len(some) == 1:
        return some[0]
    times = np.concatenate([each.times for each in some])
    begins = starts_of(np.concatenate([np.diff(each.begins) for each in some]))
    steps = np.concatenate([each.steps for each in some])
    groups, packed = ([each[field] for each in some] for field in (1, 4))
    return StepRows(times, join_blobs(groups), begins, steps, join_blobs(packed))


NO_ROWS: Final = StepRows(
    np.zeros(0, dtype=np.int64),
    blobs_of([]),
    np.zeros(1, dtype=np.int64),
    np.zeros((0, 2), dtype=np.int64),
    blobs_of([]),
)


class FoundRuns(NamedTuple):
    """Matches: match i has the notifications `rows[begins[i] : begins[i + 1]]`."""

    patterns: Any
    groups: Any
    begins: Any
    rows: Any
    group_names: Blobs
    packed: Blobs
    times: Any


class ArrayRuns:
    """Runs of patterns, batch by batch; `key_of` sorts encodings of one time and group."""

    def __init__(
        self,
        patterns: Sequence[Pattern],
        key_of: Callable[[bytes], Any],
        limits: PatternLimits = DEFAULT_LIMITS,
    ) -> None:
        within = [each.within_us for each in patterns]
        spans = [-1 if each is None else min(each, _SPAN_MAX_US) for each in within]
        lengths = [len(each.filters) for each in patterns]
        self._count = len(patterns)
        table = lengths, spans, [each.every for each in patterns]
        self._patterns = kernels.PatternColumns(*(np.array(each, dtype=np.int64) for each in table))
        self._key_of = key_of
        self._limits = limits
        self.watermark_us = TIME_MIN_US
        self.dropped: Counter[str] = Counter()
        self.matched = 0
        none = np.zeros(0, dtype=np.int64)
        self._runs: tuple[Any, ...] = (none,) * 5
        """In the form of the kernels: automata, starts, stages, begins, rows."""
        self._groups = blobs_of([])
        """Each once; its place is its number."""
        self._held = _HeldRows(none, none, starts_of(none), none.reshape(0, 2), blobs_of([]))

    def advance(self, rows: StepRows, watermark_us: int) -> FoundRuns:
        """Adds a batch and moves the watermark. Raises EncodingError. Cost: a copy of all."""
        held = self._add_rows(rows)
        self.watermark_us = max(self.watermark_us, watermark_us)
        self._force(held)
        order = self._in_order(held, np.flatnonzero(held.waits & (held.times < self.watermark_us)))
        runs, matches = self._follow(held, order)
        waits = held.waits & (held.times >= self.watermark_us)
        found = self._found(held, matches)
        self.matched += len(found.patterns)
        spans = self._patterns[1][runs[0] % self._count]
        runs = _select_runs(runs, (spans < 0) | (runs[1] + spans >= self.watermark_us))
        self._runs = self._drop_oldest(self._drop_groups(runs))
        self._keep(held, waits)
        return found

    # --- taking in ----------------------------------------------------------------------------

    def _add_rows(self, rows: StepRows) -> "_HeldRows":
        """Returns the held rows and a batch after them, with the numbers of its groups."""
        late = rows.times < self.watermark_us
        if late.any():
            self.dropped[LATE] += int(late.sum())
            rows = rows.select(np.flatnonzero(~late))
        held, known = self._held, self._groups.size
        names = join_blobs([self._groups, rows.groups])
        # Numbers follow the order of first rows, and known groups are first: they keep theirs.
        codes, firsts = names.codes()
        self._groups = names.select(firsts) if len(firsts) < names.size else names
        return _HeldRows(
            np.concatenate([held.times, rows.times]),
            np.concatenate([held.groups, codes[known:]]),
            np.concatenate([held.begins, rows.begins[1:] + held.begins[-1]]),
            np.concatenate([held.steps, rows.steps]),
            join_blobs([held.packed, rows.packed]),
        )

    def _force(self, held: "_HeldRows") -> None:
        """Raises the watermark if more rows wait than the limit."""
        waiting = held.times[held.waits & (held.times >= self.watermark_us)]
        excess = len(waiting) - self._limits.pending_max
        if excess > 0:
            self.watermark_us = int(np.partition(waiting, excess - 1)[excess - 1]) + 1
            self.dropped[FORCED] += 1

    def _in_order(self, held: "_HeldRows", ready: Any) -> Any:
        # By time, and then by group without changing that order.
        by_time = ready[np.argsort(held.times[ready], kind="stable")]
        order = np.empty_like(by_time)
        places = starts_of(np.bincount(held.groups[ready], minlength=self._groups.size))
        kernels.regroup(by_time, held.groups, places, order)
        times, groups = held.times[order], held.groups[order]
        tied = (times[1:] == times[:-1]) & (groups[1:] == groups[:-1])
        if not tied.any():
            return order
        is_begin = np.flatnonzero(np.concatenate([[True], ~tied]))
        lengths = np.diff(np.append(is_begin, len(order)))
        keep = np.ones(len(order), dtype=bool)
        for begin, length in zip(is_begin.tolist(), lengths.tolist(), strict=True):
            if length > 1:
                self._sort_tied(held, order[begin : begin + length], keep[begin : begin + length])
        return order[keep]

    def _sort_tied(self, held: "_HeldRows", rows: Any, keep: Any) -> None:
        """Sorts rows of one group and time, and keeps one row of each set of duplicates."""
        packed = {row: held.packed.at(row) for row in rows.tolist()}
        keys = {row: self._key_of(each) for row, each in packed.items()}
        rows[:] = sorted(packed, key=lambda row: (keys[row], packed[row]))
        for place in range(1, len(rows)):
            if keys[int(rows[place])] == keys[int(rows[place - 1])]:
                keep[place] = False
                self.dropped[DUPLICATE] += 1

    # --- stepping the runs ----------------------------------------------------------------------

    def _follow(self, held: "_HeldRows", order: Any) -> tuple[Any, Any]:
        """Steps the runs through sorted rows; returns the open runs, and the matches."""
        begins, places = expand_items(held.begins, order)
        rows = np.repeat(order, np.diff(begins))
        patterns, steps = held.steps[places, 0], held.steps[places, 1].copy()
        automata = held.groups[rows] * self._count + patterns
        if self._count > 1:
            by_automaton = np.argsort(automata, kind="stable")
            automata, rows = automata[by_automaton], rows[by_automaton]
            steps, patterns = steps[by_automaton], patterns[by_automaton]
        # Each run is open already or opened by a start, and remains open or becomes a match. This
        # bounds each, with as many notifications as their patterns have filters.
        starts = np.bincount(patterns[(steps & 1) == 1], minlength=self._count)
        starts += np.bincount(self._runs[0] % self._count, minlength=self._count)
        room, refs = int(starts.sum()), int(starts @ self._patterns[0])
        sizes = (room, room, room, room, refs)
        opened, matches = (
            kernels.RunColumns(*(np.empty(size, dtype=np.int64) for size in sizes))
            for _ in range(2)
        )
        counts = np.zeros(kernels.COUNTS, dtype=np.int64)
        entries = kernels.EntryColumns(automata, held.times[rows], steps, rows)
        runs = kernels.RunColumns(*self._runs)
        capacity, longest = self._limits.runs_per_group_max, int(max(self._patterns.lengths))
        of_one = 2 * (min(capacity, len(automata)) + kernels.most_of_one(runs.automata) + 1)
        table = kernels.RunTable(
            np.empty(of_one, dtype=np.int64),
            np.empty((of_one, longest), dtype=np.int64),
            np.zeros(longest + 1, dtype=np.int64),
            np.zeros(2, dtype=np.int64),
        )
        kernels.follow(entries, runs, self._patterns, capacity, table, opened, matches, counts)
        if counts[kernels.DROPPED]:
            self.dropped[GROUP_FULL] += int(counts[kernels.DROPPED])
        ends = counts[: kernels.DROPPED]  # of the runs, their rows, the matches, and theirs
        return _used_part(opened, *ends[:2]), _used_part(matches, *ends[2:])

    def _drop_groups(self, runs: Any) -> Any:
        """Drops the groups of a pattern beyond the limit: those that opened a run longest ago."""
        automata, starts = runs[0], runs[1]
        # The runs of an automaton lie oldest first, so its last one is its newest.
        lasts = np.flatnonzero(np.append(automata[1:] != automata[:-1], True)[: len(automata)])
        patterns = automata[lasts] % self._count
        limit = self._limits.groups_per_pattern_max
        many = np.flatnonzero(np.bincount(patterns, minlength=self._count) > limit)
        if not len(many):
            return runs
        gone = []
        for pattern in many.tolist():
            own = lasts[patterns == pattern]
            newest = np.argsort(starts[own], kind="stable")
            gone.append(automata[own[newest[: len(own) - limit]]])
        keep = ~np.isin(automata, np.concatenate(gone))
        self.dropped[PATTERN_FULL] += int((~keep).sum())
        return _select_runs(runs, keep)

    def _drop_oldest(self, runs: Any) -> Any:
        excess = len(runs[0]) - self._limits.runs_max
        if excess <= 0:
            return runs
        keep = np.ones(len(runs[0]), dtype=bool)
        keep[np.argsort(runs[1], kind="stable")[:excess]] = False
        self.dropped[TABLE_FULL] += excess
        return _select_runs(runs, keep)

    def _found(self, held: "_HeldRows", matches: Any) -> FoundRuns:
        automata, _, lengths, _, rows = matches
        used, places = np.unique(rows, return_inverse=True)
        packed, times = held.packed.select(used), held.times[used]
        patterns, groups = automata % self._count, automata // self._count
        names, of = np.unique(groups, return_inverse=True)
        group_names = self._groups.select(names)
        return FoundRuns(patterns, of, starts_of(lengths), places, group_names, packed, times)

    def _keep(self, held: "_HeldRows", waits: Any) -> None:
        automata, starts, stages, begins, refs = self._runs
        needed = waits.copy()
        needed[refs] = True
        rows = np.flatnonzero(needed)
        new_row = np.cumsum(needed) - 1  # of each row that is kept, its place among these
        lengths = np.where(waits, np.diff(held.begins), 0)[rows]
        _, places = expand_items(held.begins, np.flatnonzero(waits))
        used = np.zeros(self._groups.size, dtype=bool)
        used[held.groups[rows]] = True
        new_group = np.cumsum(used) - 1
        self._groups = self._groups.select(np.flatnonzero(used))
        patterns = automata % self._count
        automata = new_group[automata // self._count] * self._count + patterns
        self._runs = automata, starts, stages, begins, new_row[refs]
        self._held = _HeldRows(
            held.times[rows],
            new_group[held.groups[rows]],
            starts_of(lengths),
            held.steps[places],
            held.packed.select(rows),
        )

    # --- state ----------------------------------------------------------------------------------

    def counts(self) -> dict[str, Any]:
        """Returns statistics under the names of `PatternMatcher.statistics`."""
        return {
            "groups": self._groups.size,
            "runs": len(self._runs[0]),
            "pending": int(self._held.waits.sum()),
            "watermark_us": self.watermark_us,
            "matched": self.matched,
            "dropped": dict(self.dropped),
        }

    def save(self) -> bytes:
        """Encodes the state for `restore`: equal states give equal bytes on any machine."""
        held = self._held
        arrays = {
            "patterns": np.stack(self._patterns),
            "watermark": np.array([self.watermark_us, self.matched]),
            "dropped": np.array(sorted(self.dropped.items()), dtype="U64,i8"),
            "groups": self._groups.data,
            "group_starts": self._groups.starts,
            **dict(zip(_RUN_NAMES, self._runs, strict=True)),
            **dict(zip(_HELD_NAMES, held[:4], strict=True)),
            "packed": held.packed.data,
            "packed_starts": held.packed.starts,
        }
        out = io.BytesIO()
        np.savez(out, **arrays)
        return out.getvalue()

    def restore(self, saved: bytes) -> None:
        """Restores a saved state. Raises EncodingError if it is of other patterns."""
        try:
            with np.load(io.BytesIO(saved)) as arrays:
                of = dict(arrays)
            if not np.array_equal(of["patterns"], np.stack(self._patterns)):
                raise EncodingError("patterns", "this was saved of other patterns")
            self.watermark_us, self.matched = of["watermark"].tolist()
            self.dropped = Counter({str(name): int(count) for name, count in of["dropped"]})
            self._groups = Blobs(of["group_starts"], of["groups"])
            self._runs = tuple(of[name] for name in _RUN_NAMES)
            packed = Blobs(of["packed_starts"], of["packed"])
            self._held = _HeldRows(of["times"], of["row_groups"], of["begins"], of["steps"], packed)
        except (KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise EncodingError("patterns", f"this is no saved state: {error}") from None


_RUN_NAMES: Final = ("automata", "run_times", "run_stages", "run_begins", "run_rows")
_HELD_NAMES: Final = ("times", "row_groups", "begins", "steps")


class _HeldRows(NamedTuple):
    """As `StepRows`, with the number of each row's group. Waiting rows have steps."""

    times: Any
    groups: Any
    begins: Any
    steps: Any
    packed: Blobs

    @property
    def waits(self) -> Any:
        """Marks rows that wait for the watermark, or have just been released."""
        return np.diff(self.begins) > 0


def expand_items(begins: Any, rows: Any) -> tuple[Any, Any]:
    """Returns the positions of the items of some rows in a sequence, and the items' indices."""
    lengths = (begins[1:] - begins[:-1])[rows]
    starts = starts_of(lengths)
    return starts, np.arange(starts[-1]) + np.repeat(begins[:-1][rows] - starts[:-1], lengths)


def _used_part(table: Any, rows: int, refs: int) -> tuple[Any, ...]:
    return (*(column[:rows] for column in table[:4]), table[4][:refs])


def _select_runs(runs: Any, keep: Any) -> Any:
    """Returns some of the runs, without rows that only others have."""
    if keep.all():
        return runs
    automata, starts, stages, begins, refs = runs
    rows = np.flatnonzero(keep)
    ends = np.append(begins, len(refs))
    new_begins, places = expand_items(ends, rows)
    return automata[rows], starts[rows], stages[rows], new_begins[:-1], refs[places]


_encode: Final = msgspec.msgpack.Encoder().encode


class StepIndex:
    """The filters of numbered patterns. Raises InvalidFilterError, UnknownOperatorError."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.by = tuple(dict.fromkeys(each.by for each in patterns))
        """The distinct `by` of all patterns."""
        self.index: Index[int] = Index()
        numbers: dict[Filter, int] = {}
        places: list[list[tuple[int, int]]] = []
        for number, pattern in enumerate(patterns):
            check_pattern(pattern)
            for place, part in enumerate(pattern.filters):
                if numbers.setdefault(part, len(places)) == len(places):
                    places.append([])
                    self.index.add(numbers[part], part)
                places[numbers[part]].append((number, place))
        self._filters = tuple(numbers)
        self._begins = starts_of([len(each) for each in places])
        self._places = np.array([pair for each in places for pair in each], dtype=np.int64)
        self._by = np.array([self.by.index(each.by) for each in patterns], dtype=np.int64)
        self._count = len(patterns)

    @property
    def asked(self) -> frozenset[str]:
        """The attributes that filters or `by` name, the envelope's among them."""
        filters = (name for part in self._filters for name in part.sets)
        return frozenset((*filters, *(name for by in self.by for name in by)))

    def rows_of(self, notifications: Sequence[Notification], budget: RunBudget) -> list[StepRows]:
        """Returns the rows for each of `by`. Cost: some microseconds for each that matches."""
        found = []
        each_by = self.steps(*self.index.match_batch(notifications))
        for by, (rows, begins, steps) in zip(self.by, each_by, strict=True):
            names: list[bytes] = []
            taken: list[int] = []
            for place, row in enumerate(rows.tolist()):
                if budget.admits(notifications[row]):
                    groups = groups_of(notifications[row], by, budget)
                    names += [group_name(by, group) for group in groups]
                    taken += [place] * len(groups)
            places = np.array(taken, dtype=np.int64)
            of = [notifications[row] for row in rows[places].tolist()]
            times = np.array([each.envelope.at_us for each in of], dtype=np.int64)
            starts, items = expand_items(begins, places)
            packed = blobs_of([to_msgpack(each) for each in of])
            found.append(StepRows(times, blobs_of(names), starts, steps[items], packed))
        return found

    def steps(self, offsets: Any, filters: Any) -> list[tuple[Any, Any, Any]]:
        """Returns for each of `by` the matching rows, the beginnings of their steps, and the steps.

        The result of the index is given: the filters of row i are `filters[offsets[i] : offsets[i +
        1]]`. Cost: some tens of nanoseconds for each matching place.
        """
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        begins, places = expand_items(self._begins, filters)
        rows = np.repeat(rows, np.diff(begins))
        patterns, bits = self._places[places, 0], np.left_shift(1, self._places[places, 1])
        both = rows * self._count + patterns
        if (both[1:] <= both[:-1]).any():
            order = np.argsort(both, kind="stable")
            both, bits = both[order], bits[order]
        firsts = np.flatnonzero(np.append(True, both[1:] != both[:-1])[: len(both)])
        if len(firsts):
            bits, both = np.bitwise_or.reduceat(bits, firsts), both[firsts]
        rows, patterns = both // self._count, both % self._count
        steps = np.stack([patterns, bits], axis=1)
        by = self._by[patterns]
        return [_of_rows(rows[by == number], steps[by == number]) for number in range(len(self.by))]


def _of_rows(rows: Any, steps: Any) -> tuple[Any, Any, Any]:
    firsts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1])[: len(rows)])
    return rows[firsts], np.append(firsts, len(rows)), steps


def group_name(by: By, group: Group) -> bytes:
    """Encodes a group: the values of `by` as one map of msgpack, the same for equal values."""
    return _encode(dict(zip(by, map(value_of, group), strict=True)))


def packed_order(packed: bytes) -> tuple[Any, ...]:
    """Returns the sort key of a notification among those of its time. Raises EncodingError."""
    return order_of(notification_from_msgpack(packed))[1:]
