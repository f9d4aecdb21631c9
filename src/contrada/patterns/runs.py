"""`Runs`: the runs of one pattern, the notifications that have filled its first places.

A run is the tuple of the notifications that fill the first places of a match. Runs are kept by
group (the values of `by`), and in a group by *stage*, the number of filled places:

    groups, the one that opened a run longest ago first
      by-values ──► { 3: [run],  1: [run, run, run] }      oldest run first, highest stage first
                                                newest ┘

The input is *chains*: notifications that fill consecutive places. A single notification is a chain
of one. A server that assembles a part of the pattern reports longer ones: the first notification is
a start of this part, the others are its earliest completion. Chains are added in the order of their
last notifications:

    places      0      1      2      3          a run (a1 b2) has filled 0 and 1, and waits at 2
    single      a
    single             b                        it takes the first chain (c d) with a c after b2
    reported                  c      d

A chain that begins at place k moves the runs of stage k in its group. If a notification matches
several filters, higher stages move first, so that it fills one place of a run.

Proof of the definition. Let a *start* be a notification that matches the first filter, and the
*completion* of a start the end of the sequence in which each further filter takes the first
notification after the one before. No match from this start ends earlier. A later start is never at
a higher stage than an earlier one (by induction over the stages: the notification that moves the
later one to stage k is after its arrival at stage k - 1, hence after that of the earlier one), so:

- the stages of a group, highest first, hold its starts oldest first;
- the completion of a later start is the same or later.

`every` asks for each start with a completion within the span: every run in the table. Otherwise
there is one current run, the oldest start; when it outlives the span, matching resumes after it,
which means to read the stream again: the next run is the next start, and its stage is the one that
reading again would give. So all starts within the span are kept in the table with their stages, and
nothing is read twice. None of the later starts can have been complete before: it would have
completed at or after the oldest, hence the oldest within its span. At a completion the oldest
remaining start is the match, and the group begins anew after it, since each other start in the
table is before. Without `within` a run is never outlived, and its group needs no other start.

Proof for longer chains. Each start of the part is reported with its earliest completion, and a
later start is never complete before an earlier one. A run that waits for the part would take the
first notification after its last one that matches the part's first filter, hence the first start
after it, and then the completion in the report. So it moves by the first chain that begins after
its last notification. Chains are in the order of their starts, and an earlier suitable one would
have moved the run. On one stage a later start never has an earlier last notification (by the same
induction), so a chain moves the oldest runs.

A run may be given only the notifications that some run needs: the first match among all is the
first among these. So runs are handed over as single notifications for one place and group, and are
built again from these in order (`roll_back`).

Without `every`, starts up to the end of a match are void. Reports may bring such a start later, so
the end is remembered there, by group.

Invariants: no group and no stage is empty; on one stage the last notifications are in order. If one
buffer feeds all patterns (`filters` are given), the newest starts of groups are in the order of the
groups, and a filter knows the group of a pattern exactly while a run of this group waits for it.

Source: PODC 2000 §2, figure 4; §4 (sequences are assembled from small subsequences).
"""

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice, product
from math import prod
from typing import Final, Generic, TypeAlias, TypeVar

from contrada.errors import InvalidValueError
from contrada.model import Envelope, Filter, Notification, Pattern, Value
from contrada.model.domains.values import ABSENT_KEY, Key
from contrada.patterns.reorder_buffer import Order, order_of

Run: TypeAlias = tuple[Notification, ...]
Stages: TypeAlias = dict[int, list[Run]]
By: TypeAlias = tuple[str, ...]
Group: TypeAlias = tuple[Key, ...]
"""The keys of the values of `by`, in its order."""

K = TypeVar("K", bound=Hashable)

# The reasons of losses; `PatternLimits` has the limits.
GROUP_FULL: Final = "runs of a group"
PATTERN_FULL: Final = "groups of a pattern"
TABLE_FULL: Final = "runs"
TOO_LARGE: Final = "too large for patterns"
COMBINATIONS: Final = "combinations of by"  # Once for all patterns with this `by` of one buffer.
REFUSED: Final = "starts of a delegate"  # A table of a delegate is full: it hands its pattern back.
ENDS_FULL: Final = "ends of matches"  # A start that may lie before the forgotten end of a match.


@dataclass(frozen=True, slots=True)
class PatternLimits:
    """The limits of patterns that are matched together."""

    patterns_max: int = 100_000
    """Patterns of a server. Beyond it: LimitError; a neighbour's is handed back."""
    pending_max: int = 100_000
    """Notifications that wait for the watermark, in a network those of one pattern. Beyond it: the
    watermark is forced, counted; during a hand-over or recall of a pattern, the newest takes no
    part, counted."""
    runs_per_group_max: int = 1_024
    """Runs of one group of a pattern. Beyond it: the oldest is dropped, counted; a delegate opens
    none, counted, and hands the pattern back."""
    groups_per_pattern_max: int = 100_000
    """Groups of a pattern; in a network also those with a remembered end of the last match. Beyond
    it: the group that opened a run longest ago is dropped, counted, or the pattern handed back; a
    start that may precede a forgotten end opens no run, counted."""
    runs_max: int = 1_000_000
    """Runs of all patterns. Beyond it: the pattern's oldest is dropped, or none opened, counted, or
    the pattern handed back."""
    combinations_max: int = 4_096
    """Groups of one notification, by several values of the attributes of `by`. Beyond it: the first
    by value are used, the others counted."""
    notification_bytes_max: int = 16 * 2**20
    """Bytes of a notification for patterns. Beyond it: it takes part in none, counted."""
    turn_work_max: int = 2**48
    """Runs opened, moved or completed in one event of a server; a broker's default is 10,000, some
    tens of milliseconds. Beyond it: the rest waits for the next event."""
    client_work_max: int = 2**48
    """Such runs of one client's patterns while others wait, less `WORK_SHARE` for the time since; a
    broker's default is 1,000,000, some seconds. Beyond it: the costliest pattern ends."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if type(value) is not int or value < 1:
                raise InvalidValueError(value, f"{limit.name}: expected an int from 1")


DEFAULT_LIMITS: Final = PatternLimits()


@dataclass(frozen=True, slots=True)
class Match(Generic[K]):
    """One match of a pattern: a notification for each filter, in order. Source: PODC 2000 §2."""

    key: K
    by: tuple[Value, ...]
    notifications: Run

    @property
    def envelope(self) -> Envelope:
        """The envelope of the last notification, which completed the match."""
        return self.notifications[-1].envelope


@dataclass(slots=True)
class RunBudget:
    """The shared budget of patterns that are matched together: the held runs, and the losses."""

    limits: PatternLimits
    held: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def admits(self, notification: Notification) -> bool:
        """Whether a notification is small enough to be held; a larger one is counted."""
        size = len(notification.packed) or len(notification.span) + len(notification.body)
        if size > self.limits.notification_bytes_max:
            self.dropped[TOO_LARGE] += 1
            return False
        return True


class SharedFilter:
    """A filter of one or more patterns, and the runs that wait for it.

    `starts` are the patterns with it as first filter, by number. `waiting` finds, by the names of
    `by` and the values of a group, the patterns with a run of this group that waits for the filter,
    under (number of the pattern, minus the place). `uses` counts places in patterns.
    """

    __slots__ = ("filter", "number", "starts", "uses", "waiting")

    def __init__(self, of: Filter, number: int) -> None:
        self.filter = of
        self.number = number
        self.uses = 0
        self.starts: dict[int, Runs] = {}
        self.waiting: dict[By, dict[Group, dict[tuple[int, int], Runs]]] = {}


class Runs:
    """The runs of one pattern, by group and stage, within the limits.

    `filters` are given if one buffer feeds many patterns: then each notification is added once and
    in order, and the filters know the runs that wait for them. With `refuses`, a full table opens
    no new run, and is `full` from then on; otherwise the oldest run is dropped.
    """

    __slots__ = (
        "_budget",
        "_ends",
        "_forgotten",
        "_groups",
        "_keeps_starts",
        "_refuses",
        "filters",
        "full",
        "number",
        "pattern",
        "scheduled",
        "work",
    )

    def __init__(
        self,
        pattern: Pattern,
        budget: RunBudget,
        *,
        number: int = 0,
        filters: Sequence[SharedFilter] = (),
        refuses: bool = False,
    ) -> None:
        self.pattern = pattern
        self.number = number
        self.filters = filters
        self.full = False
        self.scheduled = False
        """Whether the owner has noted the time to call `expire`."""
        self.work = 0
        """The runs that were opened, moved or completed so far, and the calls of `take`."""
        self._budget = budget
        self._groups: OrderedDict[Group, Stages] = OrderedDict()
        self._keeps_starts = pattern.every or pattern.within_us is not None
        self._refuses = refuses
        self._ends: OrderedDict[Group, Order] = OrderedDict()
        self._forgotten: Order | None = None
        if filters:
            filters[0].starts[number] = self

    def __len__(self) -> int:
        return len(self._groups)

    # --- taking in ----------------------------------------------------------------------------

    def take(self, group: Group, places: Sequence[int], chain: Run) -> Sequence[Run]:
        """Adds the next chain of a group, which fills the places from each of `places` on.

        The places are sorted, highest first. Returns the matches that it completes, the older start
        first. Cost: the runs that move or are outlived.
        """
        matches: Sequence[Run] = ()
        self.work += 1
        stages = self._groups.get(group)
        if stages is not None:
            self._outlive(group, stages, chain[-1].envelope.at_us)
            for place in places:
                if place and place in stages:
                    matches = self._move(group, stages, place, chain) or matches
            if matches and not self.pattern.every:
                self._drop(group)  # The next run begins with the next notification.
                return self._end(group, matches[0])
            if not stages:
                del self._groups[group]
        if places[-1] == 0:
            return self._open(group, chain) or matches
        return matches

    def _move(self, group: Group, stages: Stages, place: int, chain: Run) -> Sequence[Run]:
        """Moves the runs of a stage that end before a chain; removes and returns the matches."""
        runs = stages[place]
        # Usually all of them: one buffer releases nothing twice.
        count = len(runs) if self.filters else bisect_left(runs, order_of(chain[0]), key=_end_of)
        if not count:
            return ()
        self.work += count
        moved = [run + chain for run in runs[:count]]
        if count < len(runs):
            del runs[:count]
        else:
            self._clear_stage(group, stages, place)
        if place + len(chain) < len(self.pattern.filters):
            self._put(group, stages, place + len(chain), moved)
            return ()
        self._budget.held -= count
        return moved

    def _open(self, group: Group, chain: Run) -> Sequence[Run]:
        """Begins a run, unless its start is void, there already, or not needed."""
        stages = self._groups.get(group)
        if stages and not self._keeps_starts:
            return ()
        if not self.filters:
            start = order_of(chain[0])
            if self._is_void(group, start) or (stages and start <= _newest(stages)):
                return ()
            if len(chain) == len(self.pattern.filters):
                within_us = self.pattern.within_us
                took_us = chain[-1].envelope.at_us - chain[0].envelope.at_us
                return self._end(group, chain) if within_us is None or took_us <= within_us else ()
        if self._make_room(group):
            stages = self._groups.setdefault(group, {})
            self._groups.move_to_end(group)
            self._put(group, stages, len(chain), [chain])
            self._budget.held += 1
        return ()

    def _is_void(self, group: Group, start: Order) -> bool:
        """Whether a start may lie before the end of a match of its group."""
        if group in self._ends:
            return start <= self._ends[group]
        if self._forgotten is not None and start <= self._forgotten:
            self._budget.dropped[ENDS_FULL] += 1
            return True
        return False

    def _end(self, group: Group, match: Run) -> Sequence[Run]:
        """Remembers the end of a match; no other may begin before it."""
        if not self.pattern.every and not self.filters:
            self._ends[group] = order_of(match[-1])
            self._ends.move_to_end(group)
            if len(self._ends) > self._budget.limits.groups_per_pattern_max:
                # A start up to there, in a group of which no end is known, may lie before this one.
                _, end = self._ends.popitem(last=False)
                self._forgotten = max(end, self._forgotten or end)
        return (match,)

    # --- limits -------------------------------------------------------------------------------

    def _make_room(self, group: Group) -> bool:
        """Keeps the limits for one more run of the group; returns whether there is room."""
        budget, limits, groups = self._budget, self._budget.limits, self._groups
        held = sum(map(len, groups.get(group, {}).values()))
        is_group_full = held >= limits.runs_per_group_max
        is_pattern_full = group not in groups and len(groups) >= limits.groups_per_pattern_max
        if self._refuses:
            if not (is_group_full or is_pattern_full or budget.held >= limits.runs_max):
                return True
            self.full = True
            budget.dropped[REFUSED] += 1
            return False
        if is_group_full:
            self._drop_oldest(group)
            budget.dropped[GROUP_FULL] += 1
        if is_pattern_full:
            budget.dropped[PATTERN_FULL] += self._drop(next(iter(groups)))
        if budget.held < limits.runs_max:
            return True
        budget.dropped[TABLE_FULL] += 1
        if not groups:
            return False
        self._drop_oldest(next(iter(groups)))
        return True

    def _drop(self, group: Group) -> int:
        stages = self._groups.pop(group)
        dropped = sum(len(self._clear_stage(group, stages, stage)) for stage in list(stages))
        self._budget.held -= dropped
        return dropped

    def _drop_oldest(self, group: Group) -> None:
        stages = self._groups[group]
        stage = max(stages)  # on which the oldest runs are
        if len(stages[stage]) > 1:
            del stages[stage][0]
        else:
            self._clear_stage(group, stages, stage)
        self._budget.held -= 1
        if not stages:
            del self._groups[group]

    def clear(self) -> None:
        """Drops all runs."""
        for group in list(self._groups):
            self._drop(group)
        if self.filters:
            del self.filters[0].starts[self.number]

    # --- time ---------------------------------------------------------------------------------

    def _outlive(self, group: Group, stages: Stages, time_us: int) -> None:
        """Drops the runs of a group with a span that ends before a time; the group remains."""
        if self.pattern.within_us is None:
            return
        first_us = time_us - self.pattern.within_us
        while stages:  # The highest stage has the oldest: where one run is left, all below are.
            stage = max(stages)
            runs = stages[stage]
            outlived = bisect_left(runs, first_us, key=lambda run: run[0].envelope.at_us)
            self._budget.held -= outlived
            if outlived < len(runs):
                del runs[:outlived]
                return
            self._clear_stage(group, stages, stage)

    def expire(self, watermark_us: int) -> None:
        """Frees the outlived groups, given that nothing arrives below this time."""
        within_us = self.pattern.within_us
        while within_us is not None and self._groups:
            group, stages = next(iter(self._groups.items()))
            if _newest(stages)[0] + within_us >= watermark_us:
                return
            self._drop(group)

    def forget_ends(self, starts_from_us: int) -> None:
        """Frees the ends of matches, given that all starts are from this time on."""
        while self._ends:
            group, end = next(iter(self._ends.items()))
            if end[0] >= starts_from_us:
                return
            del self._ends[group]

    @property
    def deadline_us(self) -> int | None:
        """The last time at which `expire` can free nothing; None without runs."""
        if self.pattern.within_us is None or not self._groups:
            return None
        return _newest(next(iter(self._groups.values())))[0] + self.pattern.within_us

    # --- handing over -------------------------------------------------------------------------

    def roll_back(self, first: int, end: int) -> Iterator[tuple[int, Group, Notification]]:
        """Removes and returns notifications of places, with place and group; runs wait again."""
        for group, stages in list(self._groups.items()):
            undone: list[Run] = []
            for stage in sorted(stages, reverse=True):
                if first < stage < end:
                    undone += self._clear_stage(group, stages, stage)
            for run in undone:
                for place, notification in enumerate(run[first:], start=first):
                    yield place, group, notification
            if undone and first:
                stages[first] = [run[:first] for run in undone] + stages.get(first, [])
            elif undone:
                self._budget.held -= len(undone)
            if not stages:
                del self._groups[group]

    # --- stages -------------------------------------------------------------------------------

    def _put(self, group: Group, stages: Stages, stage: int, runs: list[Run]) -> None:
        if stage in stages:
            stages[stage] += runs
            return
        stages[stage] = runs
        if self.filters:
            groups = self.filters[stage].waiting.setdefault(self.pattern.by, {})
            groups.setdefault(group, {})[self.number, -stage] = self

    def _clear_stage(self, group: Group, stages: Stages, stage: int) -> list[Run]:
        """Removes all runs of a stage, which no longer wait for a filter."""
        if self.filters:
            waiting, by = self.filters[stage].waiting, self.pattern.by
            groups = waiting[by]
            del groups[group][self.number, -stage]
            if not groups[group]:
                del groups[group]
                if not groups:
                    del waiting[by]
        return stages.pop(stage)

    # --- invariants -----------------------------------------------------------------------------

    def validate(self) -> int:
        """Checks the invariants; returns the number of runs. Cost: all runs, and their filters."""
        limits = self._budget.limits
        assert len(self._groups) <= limits.groups_per_pattern_max, "too many groups"
        assert len(self._ends) <= limits.groups_per_pattern_max, "too many ends"
        if self.filters:
            newest = [_newest(stages) for stages in self._groups.values()]
            assert newest == sorted(newest), "groups are out of order"
            assert self.filters[0].starts[self.number] is self, "its starts are not found"
        return sum(self._validate_group(*each) for each in self._groups.items())

    def _validate_group(self, group: Group, stages: Stages) -> int:
        oldest_first = [run for stage in sorted(stages, reverse=True) for run in stages[stage]]
        starts = [order_of(run[0]) for run in oldest_first]
        assert starts, "an empty group is held"
        assert starts == sorted(set(starts)), "starts are out of order"
        assert all(stage == len(run) for stage, runs in stages.items() for run in runs)
        assert len(starts) <= (self._budget.limits.runs_per_group_max if self._keeps_starts else 1)
        assert all(stages.values()), "an empty stage is held"
        for runs in stages.values():
            ends = [_end_of(run) for run in runs]
            assert ends == sorted(ends), "runs of one stage are out of order"
        for stage, shared in enumerate(self.filters):
            waiting = shared.waiting.get(self.pattern.by, {}).get(group, {})
            assert waiting.get((self.number, -stage)) is (self if stage in stages else None)
        for run in oldest_first:
            self._validate_run(group, run)
        return len(starts)

    def _validate_run(self, group: Group, run: Run) -> None:
        orders = [order_of(notification) for notification in run]
        assert orders == sorted(set(orders)), "a run does not follow time"
        for notification, part in zip(run, self.pattern.filters, strict=False):
            assert part.matches(notification), (
                "a run holds a notification that its filter does not match"
            )
            for name, key in zip(self.pattern.by, group, strict=True):
                assert key in notification.keys_of(name), "a run is in another group"


def groups_of(notification: Notification, by: By, budget: RunBudget) -> list[Group]:
    """Returns the groups of a notification, in order; none if an attribute is absent."""
    if not by:
        return [()]
    columns = [notification.keys_of(name) for name in by]
    if any(column[0] == ABSENT_KEY for column in columns):
        return []
    limit = budget.limits.combinations_max
    if (excess := prod(map(len, columns)) - limit) > 0:
        budget.dropped[COMBINATIONS] += excess
    return list(islice(product(*columns), limit))


def _end_of(run: Run) -> Order:
    return order_of(run[-1])


def _newest(stages: Stages) -> Order:
    return order_of(stages[min(stages)][-1][0])
