"""The pattern matcher: which sequences of notifications match which patterns.

    notification ──► index of all filters ──► reorder buffer ──► runs of the patterns ──► matches
                     (equal ones shared)      (watermark)        (per pattern and group)

A pure state machine: time is what the notifications' envelopes say, and what `advance` says.
A notification costs its matches in the index when it comes, and, when the watermark has passed
it, the runs that it moves or opens. A pattern costs nothing where no filter of it matches, or
none that a run of the notification's group waits for.

Meanings (each for itself in every group, the notifications with given values of `by`):
- Notifications are ordered by (timestamp, publisher, sequence number), strictly.
- A run begins with the first notification that matches the first filter; each further filter
  takes the first notification after the one before. One run at a time; after a match the next
  run begins with the next notification.
- A run whose last notification would come more than `within` after its first is dropped, and
  matching resumes at the notification after its first.
- With `every`, each notification that matches the first filter begins a run of its own.

Decisions, where that leaves room:
- *Late* is what lies below the watermark: with a slack of s, what comes after a timestamp more
  than s above its own. At the watermark it is in time, so what lies there waits.
- Two notifications of the same place in order are the same one, since publishers number what
  they publish: a pattern takes the first to come; the other is counted, where any pattern has
  asked for it.
- A pattern sees the notifications that are pushed after it was added, and no others, also
  where they wait together for the watermark. A key that is added again begins anew.
- With `every`, the notification that completes a match may also begin a run; without, it may not.
- A run that nothing completes by the end of the stream is no match and keeps later ones back;
  these could not be complete either (see `contrada.patterns.runs`).
- Several attributes in `by` with several values: a notification takes part in each combination.
  A match that lies in several groups is reported for each, with the group's values.
- Values of `by` are the same when the model holds them for the same: 1 and 1.0, text and its
  UTF-8 bytes; NaN is the same as NaN, null as null. An envelope's name may stand in `by`.
- A full table of starts loses its oldest also without `every`: the run that goes on, so that the
  match may begin later, or come later, than it should. This is counted.
- `flush` puts what waits in order at once. Runs go on after it; what comes after it with a
  timestamp that is not larger than all seen before is late.
- Matches come in the order of their last notifications; those of one notification in the order
  in which the patterns were added, then by group in the order of values, then oldest start first.

What the caller holds: timestamps are believed. One far in the future makes all others late, so
whoever stamps must bound them.

Source: PODC 2000 §2, figure 4.
"""

import heapq
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, Generic, TypeAlias, TypeVar

from contrada.errors import ContradaError, InvalidFilterError, LimitError, UnknownOperatorError
from contrada.matching.index import Index
from contrada.model import Envelope, Filter, Notification, Pattern, Value
from contrada.model.domains.values import value_of
from contrada.patterns.reordering import Order, ReorderBuffer
from contrada.patterns.runs import (
    By,
    Group,
    PatternLimits,
    PatternRuns,
    RunBudget,
    SharedFilter,
    groups_of,
)

K = TypeVar("K", bound=Hashable)

PATTERNS_MAX: Final = 100_000
"""Patterns of a matcher, or of a server. Beyond it: LimitError; a neighbour's is handed back."""

DEFAULT_LIMITS: Final = PatternLimits()

LATE: Final = "late"
"""Why a notification takes no part: the watermark has passed it."""

DUPLICATE: Final = "duplicate"
"""Why a notification takes no part: one of the same place in order did."""

_Waiting: TypeAlias = tuple[list[SharedFilter], int]
"""The filters that match a notification, and the first number of a pattern it came before."""


@dataclass(frozen=True, slots=True)
class Match(Generic[K]):
    """One match of a pattern: its notifications, one for each filter, in order.

    `by` are the values of the pattern's `by`, as they stand in the model. The match is stamped
    as its last notification.

    Source: PODC 2000 §2, figure 4.
    """

    key: K
    by: tuple[Value, ...]
    notifications: tuple[Notification, ...]

    @property
    def envelope(self) -> Envelope:
        """The envelope of the last notification: when the match was complete."""
        return self.notifications[-1].envelope


@dataclass(frozen=True, slots=True)
class PatternStatistics:
    """What a matcher holds, and what it did so far.

    `runs` in `groups` and `pending` notifications are held now, below `watermark_us` all is
    handled. `pushed` counts notifications, `matched` matches, `forced` how often the watermark
    was forced since too many notifications waited, `dropped` what was lost by reason: late and
    duplicate notifications, runs and places in groups (`contrada.patterns.runs`).
    """

    patterns: int
    filters: int
    groups: int
    runs: int
    pending: int
    watermark_us: int
    pushed: int
    matched: int
    forced: int
    dropped: Mapping[str, int]


class PatternMatcher(Generic[K]):
    """Patterns under keys; `push` gives the matches that a notification allows to be known.

    `slack_us` is how much later than a larger timestamp a notification may come; with None only
    `advance` moves the watermark, as where several links each have their own. The limits and
    what happens at each are those of `PatternLimits`.

    Source: PODC 2000 §2, figure 4.
    """

    def __init__(self, *, slack_us: int | None = 0, limits: PatternLimits = DEFAULT_LIMITS) -> None:
        self._index: Index[int] = Index()
        self._shared: dict[Filter, SharedFilter] = {}
        self._filters: dict[int, SharedFilter] = {}
        self._numbers: dict[K, int] = {}
        self._patterns: dict[int, tuple[K, PatternRuns]] = {}
        self._next_pattern = 0
        self._filter_numbers = itertools.count()
        self._waiting: ReorderBuffer[_Waiting] = ReorderBuffer(slack_us, limits.pending_max)
        self._budget = RunBudget(limits)
        # When to free runs: (deadline, number of the pattern), at most one for each pattern.
        self._deadlines: list[tuple[int, int]] = []
        self._pushed = 0
        self._matched = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    def add(self, key: K, pattern: Pattern) -> None:
        """Adds a pattern; an earlier one of the key is removed with its runs.

        Cost: adding its filters, those that are new, to the index. Raises LimitError
        (PATTERNS_MAX), UnknownOperatorError; then nothing has changed.
        """
        if not isinstance(pattern, Pattern):
            raise InvalidFilterError("->", (pattern,), "expected a Pattern")
        for operator in itertools.chain.from_iterable(part.unknown() for part in pattern.filters):
            raise UnknownOperatorError(operator)
        if key not in self._numbers and len(self._numbers) >= PATTERNS_MAX:
            raise LimitError("PATTERNS_MAX", PATTERNS_MAX)
        filters = self._share(pattern.filters)
        self.remove(key)
        number = self._next_pattern
        self._next_pattern += 1
        self._numbers[key] = number
        self._patterns[number] = key, PatternRuns(pattern, number, filters, self._budget)

    def remove(self, key: K) -> None:
        """Removes a pattern and its runs; a key that is not there is no error.

        Nothing is matched for the key afterwards. Cost: its runs, and its filters in the index.
        """
        number = self._numbers.pop(key, None)
        if number is None:
            return
        _, runs = self._patterns.pop(number)
        runs.clear()
        self._unshare(runs.filters)
        if len(self._deadlines) > 2 * len(self._patterns) + 64:
            self._deadlines = [each for each in self._deadlines if each[1] in self._patterns]
            heapq.heapify(self._deadlines)

    def push(self, notification: Notification) -> list[Match[K]]:
        """Takes in a notification; the matches that are known now, in order.

        Cost: matching in the index, then for each notification that the watermark passes the
        groups it touches and the runs that move, and O(log n) of the notifications that wait.
        """
        self._pushed += 1
        time_us = notification.envelope.at_us
        if self._waiting.is_late(time_us):
            self._budget.dropped[LATE] += 1
            return []
        found = self._index.match(notification)
        if found:
            filters = [self._filters[number] for number in found]
            self._waiting.hold(notification, (filters, self._next_pattern))
        self._waiting.see(time_us)
        return self._handle()

    def advance(self, watermark_us: int) -> list[Match[K]]:
        """Learns that nothing below this time will come; the matches that are known now."""
        self._waiting.raise_watermark(watermark_us)
        return self._handle()

    def flush(self) -> list[Match[K]]:
        """Learns that nothing up to the largest timestamp seen will come, as at a stream's end."""
        self._waiting.close()
        return self._handle()

    def statistics(self) -> PatternStatistics:
        """What is held and was done so far. Cost: the number of patterns."""
        waiting, budget = self._waiting, self._budget
        return PatternStatistics(
            patterns=len(self._patterns),
            filters=len(self._filters),
            groups=sum(len(runs) for _, runs in self._patterns.values()),
            runs=budget.held,
            pending=len(waiting),
            watermark_us=waiting.watermark_us,
            pushed=self._pushed,
            matched=self._matched,
            forced=waiting.forced,
            dropped=dict(budget.dropped),
        )

    def validate(self) -> None:
        """Check the invariants. Cost: everything that is held, with its filters."""
        self._waiting.validate()
        assert sum(runs.validate() for _, runs in self._patterns.values()) == self._budget.held
        assert self._budget.held <= self._budget.limits.runs_max
        assert {number: key for number, (key, _) in self._patterns.items()} == {
            number: key for key, number in self._numbers.items()
        }
        assert {shared.number: shared for shared in self._shared.values()} == self._filters
        assert len(self._index) == len(self._filters)
        uses = sum(len(runs.pattern.filters) for _, runs in self._patterns.values())
        assert sum(shared.uses for shared in self._filters.values()) == uses
        due = dict.fromkeys(number for _, number in self._deadlines)
        assert len(due) == len(self._deadlines), "a pattern has two deadlines"
        deadlines = {number: deadline for deadline, number in self._deadlines}
        for number, (_, runs) in self._patterns.items():
            assert runs.scheduled == (number in due)
            if runs.deadline_us is not None:
                assert deadlines[number] <= runs.deadline_us, "runs would be freed too late"
                assert runs.deadline_us >= self._waiting.watermark_us, "runs were not freed"

    def _share(self, parts: Iterable[Filter]) -> list[SharedFilter]:
        """The filters of a pattern, those that are new put into the index; all or none."""
        filters: list[SharedFilter] = []
        try:
            for part in parts:
                shared = self._shared.get(part)
                if shared is None:
                    shared = SharedFilter(part, next(self._filter_numbers))
                    self._index.add(shared.number, part)
                    self._shared[part] = self._filters[shared.number] = shared
                shared.uses += 1
                filters.append(shared)
        except ContradaError:
            self._unshare(filters)
            raise
        return filters

    def _unshare(self, filters: Iterable[SharedFilter]) -> None:
        for shared in filters:
            shared.uses -= 1
            if not shared.uses:
                self._index.remove(shared.number)
                del self._shared[shared.filter], self._filters[shared.number]

    def _handle(self) -> list[Match[K]]:
        """Steps all runs through what the watermark has passed, and frees what it outlived."""
        matches: list[Match[K]] = []
        last: Order | None = None
        since = 0
        for order, notification, (filters, before) in self._waiting.release():
            self._expire(order[0])  # What is outlived must not cost others their place.
            if order == last:
                self._budget.dropped[DUPLICATE] += 1  # Only patterns added since then see it.
            else:
                last, since = order, 0
            for runs, group, places in self._touched(notification, filters, since, before):
                completed = runs.step(group, notification, places)
                if completed:
                    key, _ = self._patterns[runs.number]
                    by = tuple(map(value_of, group))
                    matches += [Match(key, by, run) for run in completed]
                if not runs.scheduled:
                    self._schedule(runs)
            since = before
        self._expire(self._waiting.watermark_us)
        self._matched += len(matches)
        return matches

    def _touched(
        self, notification: Notification, filters: Iterable[SharedFilter], since: int, before: int
    ) -> Iterator[tuple[PatternRuns, Group, list[int]]]:
        """The groups that a notification may open or whose runs wait for it, and at which places.

        In the order of the patterns' numbers, only from `since` and below `before`, then of the
        groups' values; highest place first.
        """
        groups: dict[By, list[Group]] = {}
        touched: list[tuple[int, Group, int, PatternRuns]] = []

        def groups_by(by: By) -> list[Group]:
            if by not in groups:
                groups[by] = groups_of(notification, by, self._budget)
            return groups[by]

        for shared in filters:
            for number, runs in shared.starts.items():
                touched += [(number, group, 0, runs) for group in groups_by(runs.pattern.by)]
            for by, waiting in shared.waiting.items():
                for group in groups_by(by):
                    for (number, place), runs in waiting.get(group, {}).items():
                        touched.append((number, group, place, runs))
        touched.sort()  # No two have number, group and place in common.
        for (number, group), places in itertools.groupby(touched, itemgetter(0, 1)):
            if since <= number < before:
                same = list(places)
                yield same[0][3], group, [-place for _, _, place, _ in same]

    def _schedule(self, runs: PatternRuns) -> None:
        deadline_us = runs.deadline_us
        runs.scheduled = deadline_us is not None
        if deadline_us is not None:
            heapq.heappush(self._deadlines, (deadline_us, runs.number))

    def _expire(self, time_us: int) -> None:
        """Frees what can have no match from this time on.

        Cost: O(log patterns) for each run that was opened, once.
        """
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] < time_us:
            _, number = heapq.heappop(deadlines)
            if number in self._patterns:
                _, runs = self._patterns[number]
                runs.expire(time_us)
                self._schedule(runs)
