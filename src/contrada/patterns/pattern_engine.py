"""`PatternEngine`: many patterns fed from one buffer.

    notification, with the     ──► reorder buffer ──► runs of the patterns ──► matches
    numbers of its filters         (watermark)        (per pattern and group)

A pure state machine: time is given by the envelopes of notifications and by `advance`. The caller
matches notifications against the distinct filters of all patterns and passes those that match one;
a router does so with its index of all subscriptions.

A notification costs, when the watermark has passed it, the runs that it moves or opens. A pattern
costs nothing if no filter of it matches, or none that a run of the notification's group waits for.

Definitions (for each group, the notifications with given values of `by`):
- Notifications are ordered by (timestamp, publisher, sequence number), strictly. If these are the
  same, by id and then by content, byte for byte: this order has no meaning in time, but it is the
  same on every server and for every order of arrival.
- A run begins with the first notification that matches the first filter; each further filter takes
  the first notification after the one before. One run at a time; after a match the next run begins
  with the next notification.
- A run is dropped if its last notification would be more than `within` after its first; matching
  resumes at the notification after its first.
- With `every`, each notification that matches the first filter begins a run of its own.

Decisions of this project:
- A notification is *late* below the watermark, which its owner keeps a slack below the largest
  timestamp seen. At the watermark it is in time, so notifications there wait.
- Two notifications of the same place in order, content included, are the same: a pattern takes it
  once; the other is counted, if any pattern has asked for it.
- A pattern matches only the notifications that are pushed after it was added, also if others wait
  with them for the watermark.
- With `every`, the notification that completes a match may also begin a run; without, it may not.
- A run that nothing completes by the end of the stream is no match and blocks later ones; these
  could not be complete either (see `contrada.patterns.runs`).
- Several attributes in `by` with several values: a notification takes part in each combination. A
  match in several groups is reported for each, with the group's values.
- Values of `by` are equal as in the model: 1 and 1.0, text and its UTF-8 bytes; NaN equals NaN,
  null equals null. A field of the envelope may be in `by`.
- A full table of starts loses its oldest also without `every`: the current run, so that the match
  may begin or end later than it should. This is counted.
- Matches are ordered by their last notifications; those of one notification by the order in which
  the patterns were added, then by group in the order of values, then oldest start first.

Timestamps are trusted. One far in the future makes all others late, so the access point that stamps
them must bound them.

Source: PODC 2000 §2, figure 4.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Final, TypeAlias

from contrada.errors import InvalidFilterError, UnknownOperatorError
from contrada.model import Filter, Notification, Pattern
from contrada.model.domains.values import value_of
from contrada.patterns.reorder_buffer import Order, ReorderBuffer, order_of
from contrada.patterns.runs import By, Group, Match, RunBudget, Runs, SharedFilter, groups_of

PATTERNS_MAX: Final = 100_000
"""Patterns of a server. Beyond it: LimitError; a neighbour's is handed back."""

LATE: Final = "late"
"""The reason that a notification takes no part: the watermark has passed it."""

DUPLICATE: Final = "duplicate"
"""The reason that a notification takes no part: it is a duplicate."""

_Waiting: TypeAlias = tuple[Notification, list[SharedFilter], int]
"""A notification, its matching filters, and the first number of a pattern added after it."""


def check_pattern(pattern: Pattern) -> None:
    """Raises InvalidFilterError for an invalid pattern, UnknownOperatorError."""
    if not isinstance(pattern, Pattern):
        raise InvalidFilterError("->", (pattern,), "expected a Pattern")
    for operator in itertools.chain.from_iterable(part.unknown() for part in pattern.filters):
        raise UnknownOperatorError(operator)


class SharedFilters:
    """The distinct filters of all patterns, each under a number."""

    def __init__(self) -> None:
        self._by_filter: dict[Filter, SharedFilter] = {}
        self._by_number: dict[int, SharedFilter] = {}
        self._numbers = itertools.count()

    def use(self, part: Filter) -> SharedFilter:
        """Counts one more use of a filter; at the first, `uses` is 1 and the number is new."""
        shared = self._by_filter.get(part)
        if shared is None:
            shared = SharedFilter(part, next(self._numbers))
            self._by_filter[part] = self._by_number[shared.number] = shared
        shared.uses += 1
        return shared

    def leave(self, shared: SharedFilter) -> bool:
        """Counts one use less; returns whether it was the last, which removes the filter."""
        shared.uses -= 1
        if shared.uses:
            return False
        del self._by_filter[shared.filter], self._by_number[shared.number]
        return True

    def of(self, numbers: Iterable[int]) -> list[SharedFilter]:
        """Returns the filters of these numbers."""
        by_number = self._by_number
        return [by_number[number] for number in numbers]

    def __iter__(self) -> Iterator[SharedFilter]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def validate(self) -> None:
        """Checks the invariants. Cost: all filters."""
        assert {each.number: each for each in self._by_filter.values()} == self._by_number
        assert all(each.uses > 0 for each in self), "a filter is held that nobody uses"


class PatternEngine:
    """Patterns by number. All users of filters on a server share `filters` and `budget`."""

    def __init__(self, filters: SharedFilters, budget: RunBudget) -> None:
        self._filters = filters
        self._budget = budget
        self._patterns: dict[int, Runs] = {}
        self._next_pattern = 0
        self.waiting: ReorderBuffer[_Waiting] = ReorderBuffer(budget.limits.pending_max)
        # When to free runs: (deadline, number of the pattern), at most one for each pattern.
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """The number of patterns."""
        return len(self._patterns)

    def add(self, pattern: Pattern) -> tuple[int, list[SharedFilter]]:
        """Adds a checked pattern for later notifications; returns its number and new filters."""
        number, self._next_pattern = self._next_pattern, self._next_pattern + 1
        filters = [self._filters.use(part) for part in pattern.filters]
        self._patterns[number] = Runs(pattern, self._budget, number=number, filters=filters)
        new = {each.number: each for each in filters if each.uses == filters.count(each)}
        return number, list(new.values())

    def remove(self, number: int) -> list[int]:
        """Removes a pattern and its runs; returns the numbers of its removed filters."""
        runs = self._patterns.pop(number)
        runs.clear()
        if not self._patterns:
            self.waiting.clear()  # Waiting notifications are for none of the later patterns.
        if len(self._deadlines) > 2 * len(self._patterns) + 64:
            self._deadlines = [each for each in self._deadlines if each[1] in self._patterns]
            heapq.heapify(self._deadlines)
        return [shared.number for shared in runs.filters if self._filters.leave(shared)]

    def is_late(self, time_us: int) -> bool:
        """Whether the watermark has passed a time, which is then counted."""
        if time_us >= self.waiting.watermark_us:
            return False
        self._budget.dropped[LATE] += 1
        return True

    def hold(self, notification: Notification, filters: list[SharedFilter]) -> None:
        """Adds a notification that is not late, with its matching filters."""
        entry = notification, filters, self._next_pattern
        self.waiting.hold(order_of(notification), entry)

    def advance(self, watermark_us: int) -> list[Match[int]]:
        """Moves the watermark; returns the matches, by number, in order. Frees outlived runs."""
        self.waiting.raise_watermark(watermark_us)
        matches: list[Match[int]] = []
        last: Order | None = None
        since = 0
        for order, (notification, filters, before) in self.waiting.release():
            self._expire(order[0])  # Outlived runs must not take the place of others.
            if order == last:
                self._budget.dropped[DUPLICATE] += 1  # Only patterns added since then see it.
            else:
                last, since = order, 0
            chain = (notification,)
            for runs, group, places in self._touched(notification, filters, since, before):
                completed = runs.take(group, places, chain)
                if completed:
                    by = tuple(map(value_of, group))
                    matches += [Match(runs.number, by, run) for run in completed]
                if not runs.scheduled:
                    self._schedule(runs)
            since = before
        self._expire(self.waiting.watermark_us)
        return matches

    def _touched(
        self, notification: Notification, filters: Iterable[SharedFilter], since: int, before: int
    ) -> Iterator[tuple[Runs, Group, list[int]]]:
        """Returns the groups with a run to open or to move, each with the places.

        Sorted by the patterns' numbers, only from `since` and below `before`, then by the groups'
        values; highest place first.
        """
        groups: dict[By, list[Group]] = {}
        touched: list[tuple[int, Group, int, Runs]] = []

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
            # A pattern added later does not see it, and one added before `since` has seen its like.
            if since <= number < before:
                same = list(places)
                yield same[0][3], group, [-place for _, _, place, _ in same]

    def _schedule(self, runs: Runs) -> None:
        deadline_us = runs.deadline_us
        runs.scheduled = deadline_us is not None
        if deadline_us is not None:
            heapq.heappush(self._deadlines, (deadline_us, runs.number))

    def _expire(self, time_us: int) -> None:
        """Frees state without a later match. Cost: O(log patterns) for each opened run, once."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] < time_us:
            _, number = heapq.heappop(deadlines)
            runs = self._patterns.get(number)
            if runs is not None:
                runs.expire(time_us)
                self._schedule(runs)

    def validate(self) -> int:
        """Checks the invariants; returns the number of runs. Cost: the whole state."""
        self.waiting.validate()
        waiting = [each.envelope.at_us for each, *_ in self.waiting]
        assert not any(map(self.waiting.is_late, waiting)), "released too late"
        due = [number for _, number in self._deadlines]
        assert len(due) == len(set(due)), "a pattern has two deadlines"
        deadlines = {number: deadline for deadline, number in self._deadlines}
        for number, runs in self._patterns.items():
            assert runs.number == number, "a pattern is misplaced"
            assert runs.scheduled == (number in deadlines), "a deadline is lost"
            if runs.deadline_us is not None:
                assert deadlines[number] <= runs.deadline_us, "runs would be freed too late"
                assert runs.deadline_us >= self.waiting.watermark_us, "runs were not freed"
        return sum(runs.validate() for runs in self._patterns.values())
