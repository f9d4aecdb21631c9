"""`PatternMatcher`: many patterns without a service, with an engine, an index and a slack.

The index finds the matching filters, and the engine assembles the matches by its definitions.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from contrada.errors import ContradaError
from contrada.matching import Index
from contrada.model import Notification, Pattern
from contrada.model.domains.values import TIME_MIN_US
from contrada.patterns.pattern_engine import PatternEngine, SharedFilters, check_pattern
from contrada.patterns.reorder_buffer import check_slack
from contrada.patterns.runs import DEFAULT_LIMITS, Match, PatternLimits, RunBudget

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

    A matcher is used by one thread at a time. Source: PODC 2000 §2, figure 4; all definitions are
    in `contrada.patterns.pattern_engine`.
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
