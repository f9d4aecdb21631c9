"""`PatternEngine`: many patterns fed from one buffer; `PatternMatcher` needs no service.

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
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from contrada.errors import ContradaError, InvalidFilterError, UnknownOperatorError
from contrada.matching.index import Index
from contrada.model import Filter, Notification, Pattern
from contrada.model.domains.values import TIME_MIN_US, value_of
from contrada.model.languages.work_budget import Unbounded
from contrada.patterns.reorder_buffer import Order, ReorderBuffer, check_slack, order_of
from contrada.patterns.runs import (
    DEFAULT_LIMITS,
    By,
    Group,
    Match,
    PatternLimits,
    Run,
    RunBudget,
    Runs,
    SharedFilter,
    groups_of,
)

_MATCH_WORK: Final = 4
"""Steps of work of a completed match, beside that of its last move, to deliver it."""

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
        with Unbounded():  # The budget of a request has paid for its hash before.
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
        self._rest: Iterator[tuple[Runs, Group, list[int], Run]] = iter(())
        """The steps of the notifications below the watermark that are not processed yet."""
        self.is_behind = False
        """Whether `advance` has left work."""
        self.work = 0
        """The work so far: runs that were opened, moved or completed, and the calls for them."""
        self.charges: Counter[int] = Counter()
        """The work of each pattern while the engine was behind, by number."""
        # When to free runs: (deadline, number of the pattern), at most one for each pattern.
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
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
        self.charges.pop(number, None)
        if not self._patterns:
            self.waiting.clear()  # Waiting notifications are for none of the later patterns.
            self._rest, self.is_behind = iter(()), False
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

    def advance(self, watermark_us: int, work_max: int = 2**48) -> list[Match[int]]:
        """Moves the watermark, in at most `work_max` steps; returns the matches in order."""
        self.waiting.raise_watermark(watermark_us)
        matches: list[Match[int]] = []
        until = self.work + work_max
        if not self.is_behind:
            self._rest = self._steps()
        for runs, group, places, chain in self._rest:
            before = runs.work
            completed = runs.take(group, places, chain)
            if completed:
                by = tuple(map(value_of, group))
                matches += [Match(runs.number, by, run) for run in completed]
            if not runs.scheduled:
                self._schedule(runs)
            took = runs.work - before + _MATCH_WORK * len(completed)
            self.work += took
            if self.is_behind:
                self.charges[runs.number] += took
            if self.work >= until:
                self.is_behind = True
                return matches
        self.is_behind = False
        self._expire(self.waiting.watermark_us)
        return matches

    def _steps(self) -> Iterator[tuple[Runs, Group, list[int], Run]]:
        """Yields the steps of the notifications below the watermark, in order."""
        last: Order | None = None
        since = 0
        for order, (notification, filters, before) in self.waiting.release():
            self._expire(order[0])  # Outlived runs must not take the place of others.
            if order == last:
                self._budget.dropped[DUPLICATE] += 1  # Only patterns added since then see it.
            else:
                last, since = order, 0
            for runs, group, places in self._touched(notification, filters, since, before):
                if runs.number in self._patterns:  # It may be removed since the last turn.
                    yield runs, group, places, (notification,)
            since = before

    def _touched(
        self, notification: Notification, filters: Iterable[SharedFilter], since: int, before: int
    ) -> Iterator[tuple[Runs, Group, list[int]]]:
        """Yields runs to open or move with group and places, by number, of `since` to `before`.

        Starts are expanded by pattern, since with many groups they are very many.
        """
        groups: dict[By, list[Group]] = {}
        touched: dict[int, tuple[Runs, list[tuple[Group, int]]]] = {}
        starts: set[int] = set()

        def groups_by(by: By) -> list[Group]:
            if by not in groups:
                groups[by] = groups_of(notification, by, self._budget)
            return groups[by]

        for shared in filters:
            starts.update(shared.starts)
            for number, runs in shared.starts.items():
                touched.setdefault(number, (runs, []))
            for by, waiting in shared.waiting.items():
                for group in groups_by(by):
                    for (number, place), runs in waiting.get(group, {}).items():
                        touched.setdefault(number, (runs, []))[1].append((group, place))
        for number in sorted(touched):
            # A pattern added later does not see it, and one added before `since` has seen its like.
            if not since <= number < before:
                continue
            runs, places = touched[number]
            if number in starts:
                places += [(group, 0) for group in groups_by(runs.pattern.by)]
            places.sort()  # No two have group and place in common.
            for group, same in itertools.groupby(places, itemgetter(0)):
                yield runs, group, [-place for _, place in same]

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
        is_behind = self.is_behind
        assert is_behind or not any(map(self.waiting.is_late, waiting)), "released too late"
        due = [number for _, number in self._deadlines]
        assert len(due) == len(set(due)), "a pattern has two deadlines"
        deadlines = {number: deadline for deadline, number in self._deadlines}
        for number, runs in self._patterns.items():
            assert runs.number == number, "a pattern is misplaced"
            assert runs.scheduled == (number in deadlines), "a deadline is lost"
            if runs.deadline_us is not None:
                assert deadlines[number] <= runs.deadline_us, "runs would be freed too late"
                is_due = runs.deadline_us < self.waiting.watermark_us
                assert is_behind or not is_due, "runs were not freed"
        return sum(runs.validate() for runs in self._patterns.values())


K = TypeVar("K", bound=Hashable)


class PatternStatistics(NamedTuple):
    """The state and the counters of a matcher.

    `filters` counts distinct ones, `groups` the groups of `by`, `runs` the open ones, `pending`
    notifications that wait for the watermark, in microseconds since 1970. `matched` counts matches,
    `forced` early releases for want of room, `dropped` other losses, by reason.
    """

    filters: int
    groups: int
    runs: int
    pending: int
    watermark_us: int
    matched: int
    forced: int
    dropped: Mapping[str, int]


class PatternMatcher(Generic[K]):
    """Patterns under keys; `push` returns the matches that a notification completes for certain.

    `PatternMatcher()`, `matcher.add("storm", "gust > 35 -> dep_delay > 120 within 2 h")`,
    `matcher.push(notification)`. Time is that of the envelopes: notifications without a time are
    all at the first moment of 1970, and none follows another. A notification may arrive up to
    `slack_us` microseconds after a later one; beyond that it is late and ignored. A match is
    certain once the time of its last notification has passed, less the slack; `flush` ends the
    stream. With a slack of None only `advance` moves the watermark.

    A matcher is used by one thread at a time. Source: PODC 2000 §2, figure 4; the module has all
    definitions.
    """

    def __init__(self, *, slack_us: int | None = 0, limits: PatternLimits = DEFAULT_LIMITS) -> None:
        """Raises InvalidValueError for an invalid slack."""
        self._slack_us = None if slack_us is None else check_slack(slack_us)
        self._index: Index[int] = Index()
        self._filters = SharedFilters()
        self._budget = RunBudget(limits)
        self._engine = PatternEngine(self._filters, self._budget)
        self._numbers: dict[K, int] = {}
        self._keys: dict[int, K] = {}
        self._seen_us = TIME_MIN_US
        self._matched = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    def add(self, key: K, pattern: Pattern | str) -> None:
        """Adds or replaces a pattern. Raises ParseError, UnknownOperatorError, LimitError."""
        if isinstance(pattern, str):
            pattern = Pattern(pattern)
        check_pattern(pattern)
        number, new = self._engine.add(pattern)
        entered: list[int] = []
        try:
            for shared in new:
                self._index.add(shared.number, shared.filter)
                entered.append(shared.number)
        except ContradaError:
            self._engine.remove(number)
            for each in entered:
                self._index.remove(each)
            raise
        self.remove(key)
        self._numbers[key], self._keys[number] = number, key

    def remove(self, key: K) -> None:
        """Removes a pattern and its runs; a key that is not there is no error."""
        number = self._numbers.pop(key, None)
        if number is not None:
            del self._keys[number]
            for gone in self._engine.remove(number):
                self._index.remove(gone)

    def push(self, notification: Notification | Mapping[str, Any]) -> list[Match[K]]:
        """Adds a notification; returns the matches that are certain now, in order."""
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        time_us = notification.envelope.at_us
        if self._engine.is_late(time_us):
            return []
        numbers = self._index.match(notification)
        if numbers and self._budget.admits(notification):
            self._engine.hold(notification, self._filters.of(numbers))
        self._seen_us = max(self._seen_us, time_us)
        return self.advance(
            TIME_MIN_US if self._slack_us is None else self._seen_us - self._slack_us
        )

    def advance(self, watermark_us: int) -> list[Match[K]]:
        """Moves the watermark to this time; returns the matches that are certain now."""
        found = self._engine.advance(watermark_us)
        self._matched += len(found)
        return [Match(self._keys[each.key], each.by, each.notifications) for each in found]

    def flush(self) -> list[Match[K]]:
        """Moves the watermark past the largest timestamp seen, as at a stream's end."""
        return self.advance(self._seen_us + 1)

    def statistics(self) -> PatternStatistics:
        """Returns the state and the counters."""
        engine, budget = self._engine, self._budget
        return PatternStatistics(
            filters=len(self._filters),
            groups=sum(map(len, engine._patterns.values())),
            runs=budget.held,
            pending=len(engine.waiting),
            watermark_us=engine.waiting.watermark_us,
            matched=self._matched,
            forced=engine.waiting.forced,
            dropped=dict(budget.dropped),
        )

    def validate(self) -> None:
        """Checks the invariants."""
        self._filters.validate()
        assert self._engine.validate() == self._budget.held <= self._budget.limits.runs_max
        assert {number: key for key, number in self._numbers.items()} == self._keys
        assert len(self._keys) == len(self._engine), "a pattern is without a key"
        assert len(self._index) == len(self._filters), "the index holds other filters"
        assert all(each.number in self._index for each in self._filters), "a filter is not found"
