"""The runs of one pattern: which notifications have filled its first places.

A run is the tuple of the notifications that fill the first places of a match. Runs are kept by
group (the values of `by`), and in a group by *stage*, the number of filled places:

    groups, the one that opened a run longest ago first
      by-values ──► { 3: [run],  1: [run, run, run] }      oldest run first, highest stage first
                                                newest ┘

A notification that matches filter k moves all runs of stage k in its group to stage k + 1.
Higher stages move first, so that it fills one place of a run.

Why this is the definition. Let a *start* be a notification that matches the first filter, and
the *completion* of a start the place where it ends when each further filter takes the first
notification after the one before. No match from this start ends earlier. A later start is never
at a higher stage than an earlier one (by induction over the stages: what moves the later one to
stage k comes after it was at stage k - 1, hence after the earlier one was there or beyond), so:

- the stages of a group, highest first, hold its starts oldest first;
- the completion of a later start is the same or later.

`every` asks for each start whose completion comes within the span: every run in the table.
Otherwise one run goes on at a time. It is the oldest start; when it outlives the span, matching
resumes after it, which means to read what followed again: the next run is the next start, and
its stage is where reading again would bring it. So all starts within the span are kept in the
table with their stages, and nothing is read twice. None of the later starts can have been
complete before: it would have completed at or after the oldest, hence the oldest within its
span. At a completion the oldest start that is left is the match, and the group begins anew
after it, since each other start in the table lies before. Without `within` a run is never
outlived, and its group needs no other start.

Invariants: no group is empty; the newest starts of groups are in the order of the groups; a
filter knows the group of a pattern exactly while a run of this group waits for it.

Source: PODC 2000 §2, figure 4.
"""

from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import islice, product
from math import prod
from typing import Final, TypeAlias

from contrada.errors import InvalidValueError
from contrada.model import Filter, Notification, Pattern
from contrada.model.domains.values import ABSENT_KEY, Key
from contrada.patterns.reordering import PENDING_MAX, order_of

Run: TypeAlias = tuple[Notification, ...]
Stages: TypeAlias = dict[int, list[Run]]
By: TypeAlias = tuple[str, ...]
Group: TypeAlias = tuple[Key, ...]
"""The keys of the values of `by`, in its order."""

RUNS_PER_GROUP_MAX: Final = 1_024
"""Runs of one group of a pattern. Beyond it: the oldest is dropped, counted; a delegate opens
none, counted, and hands the pattern back."""

GROUPS_PER_PATTERN_MAX: Final = 100_000
"""Groups of a pattern; in a network also groups of which the end of the last match is kept. Beyond
it: the group that opened a run longest ago is dropped, counted, or the pattern handed back; what
may lie before a forgotten end opens no run, counted."""

RUNS_MAX: Final = 1_000_000
"""Runs of all patterns. Beyond it: the pattern's oldest is dropped, or none opened, counted, or
the pattern handed back."""

COMBINATIONS_MAX: Final = 4_096
"""Groups that one notification takes part in, by several values of the attributes of `by`. Beyond
it: the first in the order of values are taken, the others counted."""

GROUP_FULL: Final = "runs of a group"
"""Why a run is dropped: RUNS_PER_GROUP_MAX."""

PATTERN_FULL: Final = "groups of a pattern"
"""Why runs are dropped: GROUPS_PER_PATTERN_MAX."""

TABLE_FULL: Final = "runs"
"""Why a run is dropped or not opened: RUNS_MAX."""

COMBINATIONS: Final = "combinations of by"
"""Why a notification takes no part in a group: COMBINATIONS_MAX. Counted once for all patterns
with the same `by`."""


@dataclass(frozen=True, slots=True)
class PatternLimits:
    """The limits of a pattern matcher; what happens at each is said at its default."""

    pending_max: int = PENDING_MAX
    runs_per_group_max: int = RUNS_PER_GROUP_MAX
    groups_per_pattern_max: int = GROUPS_PER_PATTERN_MAX
    runs_max: int = RUNS_MAX
    combinations_max: int = COMBINATIONS_MAX

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if type(value) is not int or value < 1:
                raise InvalidValueError(value, f"{limit.name}: expected an int from 1")


@dataclass(slots=True)
class RunBudget:
    """What all patterns of a matcher share: the number of runs held, and what was dropped."""

    limits: PatternLimits
    held: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


class SharedFilter:
    """A filter of one or more patterns, and who waits for it now.

    `starts` are the patterns whose first filter it is, by number. `waiting` finds, by the names
    of `by` and the values of a group, the patterns with a run of this group that waits for the
    filter, under (number of the pattern, minus the place). `uses` counts places in patterns.
    """

    __slots__ = ("filter", "number", "starts", "uses", "waiting")

    def __init__(self, of: Filter, number: int) -> None:
        self.filter = of
        self.number = number
        self.uses = 0
        self.starts: dict[int, PatternRuns] = {}
        self.waiting: dict[By, dict[Group, dict[tuple[int, int], PatternRuns]]] = {}


class RunTable:
    """The runs of one pattern, by group and stage, within the limits."""

    __slots__ = ("_budget", "_groups", "_keeps_starts", "pattern")

    def __init__(self, pattern: Pattern, budget: RunBudget) -> None:
        self.pattern = pattern
        self._budget = budget
        self._groups: OrderedDict[Group, Stages] = OrderedDict()
        self._keeps_starts = pattern.every or pattern.within_us is not None

    def __len__(self) -> int:
        return len(self._groups)

    def _held_in(self, group: Group) -> int:
        """How many runs a group has."""
        return sum(map(len, self._groups.get(group, {}).values()))

    def _make_room(self, group: Group) -> bool:
        """Keeps the limits for one more run of the group; whether there is room."""
        budget, limits, groups = self._budget, self._budget.limits, self._groups
        if self._held_in(group) >= limits.runs_per_group_max:
            self._drop_oldest(group)
            budget.dropped[GROUP_FULL] += 1
        if group not in groups and len(groups) >= limits.groups_per_pattern_max:
            budget.dropped[PATTERN_FULL] += self._drop(next(iter(groups)))
        if budget.held < limits.runs_max:
            return True
        budget.dropped[TABLE_FULL] += 1
        if not groups:
            return False
        self._drop_oldest(next(iter(groups)))
        return True

    def _outlive(self, group: Group, stages: Stages, time_us: int) -> None:
        """Drops the runs of a group whose span ends before a time; the group stays."""
        if self.pattern.within_us is None:
            return
        first_us = time_us - self.pattern.within_us
        while stages:
            stage = max(stages)
            runs = stages[stage]
            outlived = bisect_left(runs, first_us, key=_start_us)
            self._budget.held -= outlived
            if outlived < len(runs):
                del runs[:outlived]
                return
            self._take(group, stages, stage)

    def expire(self, watermark_us: int) -> None:
        """Frees the groups whose newest run outlived the span: nothing comes below this time.

        Cost: the groups that are freed. Other outlived runs go when their group is touched.
        """
        within_us = self.pattern.within_us
        while within_us is not None and self._groups:
            group, stages = next(iter(self._groups.items()))
            if _newest_us(stages) + within_us >= watermark_us:
                return
            self._drop(group)

    def clear(self) -> None:
        """Drops all runs."""
        for group in list(self._groups):
            self._drop(group)

    def _take(self, group: Group, stages: Stages, stage: int) -> list[Run] | None:
        """Takes all runs out of a stage."""
        return stages.pop(stage, None)

    def _drop(self, group: Group) -> int:
        """Drops a group; how many runs it had."""
        stages = self._groups.pop(group)
        dropped = sum(len(self._take(group, stages, stage) or ()) for stage in list(stages))
        self._budget.held -= dropped
        return dropped

    def _drop_oldest(self, group: Group) -> None:
        """Drops the oldest run of a group, and the group when it was the only one."""
        stages = self._groups[group]
        stage = max(stages)
        if len(stages[stage]) > 1:
            del stages[stage][0]
        else:
            self._take(group, stages, stage)
        self._budget.held -= 1
        if not stages:
            del self._groups[group]


class PatternRuns(RunTable):
    """The runs of one pattern. Notifications come in order (`step`), time by `expire`."""

    __slots__ = ("filters", "number", "scheduled")

    def __init__(
        self, pattern: Pattern, number: int, filters: Sequence[SharedFilter], budget: RunBudget
    ) -> None:
        super().__init__(pattern, budget)
        self.number = number
        self.filters = filters
        self.scheduled = False
        """Whether the owner has noted when to call `expire`."""
        filters[0].starts[number] = self

    def step(
        self, group: Group, notification: Notification, places: Sequence[int]
    ) -> Sequence[Run]:
        """Takes in the next notification of a group, which matches the filters at `places`.

        These are the first if it matches, and those where runs of the group wait, the highest
        first. Returns the matches that it completes, the older start first. Cost: the runs that
        move or are outlived.
        """
        matches: Sequence[Run] = ()
        stages = self._groups.get(group)
        if stages is not None:
            matches = self._move(group, stages, notification, places)
            if matches and not self.pattern.every:
                self._drop(group)
                return matches  # The next run begins with the next notification.
            if not stages:
                del self._groups[group]
        if places[-1] == 0:
            self._open(group, notification)
        return matches

    def _move(
        self, group: Group, stages: Stages, notification: Notification, places: Sequence[int]
    ) -> Sequence[Run]:
        """Moves the runs of a group; the matches. A run that is a match has left the stages."""
        self._outlive(group, stages, notification.envelope.at_us)
        matches: Sequence[Run] = ()
        for place in places:
            runs = self._take(group, stages, place) if place else None
            if not runs:
                continue
            moved = [(*run, notification) for run in runs]
            if place + 1 < len(self.filters):
                self._put(group, stages, place + 1, moved)
            else:
                self._budget.held -= len(moved)
                matches = moved if self.pattern.every else moved[:1]
        return matches

    def _open(self, group: Group, notification: Notification) -> None:
        """Begins a run, unless one goes on that cannot be outlived."""
        if not self._keeps_starts and group in self._groups:
            return
        if not self._make_room(group):
            return
        stages = self._groups.setdefault(group, {})
        self._groups.move_to_end(group)
        self._put(group, stages, 1, [(notification,)])
        self._budget.held += 1

    @property
    def deadline_us(self) -> int | None:
        """The last time at which nothing can be freed by `expire`; None when there is nothing."""
        if self.pattern.within_us is None or not self._groups:
            return None
        return _newest_us(next(iter(self._groups.values()))) + self.pattern.within_us

    def clear(self) -> None:
        """Drops all runs, and waits for nothing any more."""
        super().clear()
        del self.filters[0].starts[self.number]

    def _put(self, group: Group, stages: Stages, stage: int, runs: list[Run]) -> None:
        """Adds runs, newer than those there, to a stage."""
        if stage in stages:
            stages[stage] += runs
            return
        stages[stage] = runs
        groups = self.filters[stage].waiting.setdefault(self.pattern.by, {})
        groups.setdefault(group, {})[self.number, -stage] = self

    def _take(self, group: Group, stages: Stages, stage: int) -> list[Run] | None:
        """Takes all runs out of a stage, which wait for a filter no more."""
        runs = super()._take(group, stages, stage)
        if runs is not None:
            waiting, by = self.filters[stage].waiting, self.pattern.by
            del waiting[by][group][self.number, -stage]
            if not waiting[by][group]:
                del waiting[by][group]
                if not waiting[by]:
                    del waiting[by]
        return runs

    def validate(self) -> int:
        """Check the invariants; the number of runs. Cost: all runs, and their filters."""
        newest = [_newest_us(stages) for stages in self._groups.values()]
        assert newest == sorted(newest), "groups are out of order"
        assert len(newest) <= self._budget.limits.groups_per_pattern_max
        assert self.filters[0].starts[self.number] is self
        return sum(self._validate_group(*each) for each in self._groups.items())

    def _validate_group(self, group: Group, stages: Stages) -> int:
        oldest_first = [run for stage in sorted(stages, reverse=True) for run in stages[stage]]
        starts = [order_of(run[0]) for run in oldest_first]
        assert starts, "an empty group is held"
        assert starts == sorted(set(starts)), "starts are out of order"
        assert all(stage == len(run) for stage, runs in stages.items() for run in runs)
        assert len(starts) <= (self._budget.limits.runs_per_group_max if self._keeps_starts else 1)
        by = self.pattern.by
        for stage, shared in enumerate(self.filters):
            waiting = shared.waiting.get(by, {}).get(group, {}).get((self.number, -stage))
            assert waiting is (self if stage in stages else None)
        for run in oldest_first:
            orders = [order_of(notification) for notification in run]
            assert orders == sorted(set(orders)), "a run does not follow time"
            for notification, part in zip(run, self.pattern.filters, strict=False):
                assert part.matches(notification)
                assert all(
                    key in notification.keys_of(name) for name, key in zip(by, group, strict=True)
                )
        return len(starts)


def groups_of(notification: Notification, by: By, budget: RunBudget) -> list[Group]:
    """The groups in which a notification takes part, in the order of values.

    None where one of the attributes is absent; beyond COMBINATIONS_MAX the first ones, and the
    others are counted.
    """
    if not by:
        return [()]
    columns = [notification.keys_of(name) for name in by]
    if any(column[0] == ABSENT_KEY for column in columns):
        return []
    limit = budget.limits.combinations_max
    if (excess := prod(map(len, columns)) - limit) > 0:
        budget.dropped[COMBINATIONS] += excess
    return list(islice(product(*columns), limit))


def _start_us(run: Run) -> int:
    return run[0].envelope.at_us


def _newest_us(stages: Stages) -> int:
    """The timestamp of the newest start of a group."""
    return _start_us(stages[min(stages)][-1])
