"""The pattern matcher: which sequences of notifications match which patterns.

    notification ──► index of all filters ──► engine ──► matches
                     (equal ones once)

A pure state machine: time is what the notifications' envelopes say, and what `advance` says.
The matcher is the engine (`contrada.patterns.engine`) with an index of its own. A router has an
index already and holds an engine beside it.

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

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from contrada.errors import ContradaError, LimitError
from contrada.matching.index import Index
from contrada.model import Envelope, Notification, Pattern, Value
from contrada.patterns.engine import (
    PATTERNS_MAX,
    FoundMatch,
    PatternEngine,
    SharedFilters,
    check_pattern,
)
from contrada.patterns.runs import DEFAULT_LIMITS, PatternLimits, RunBudget

K = TypeVar("K", bound=Hashable)


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
        self._filters = SharedFilters()
        self._budget = RunBudget(limits)
        self._engine = PatternEngine(self._filters, self._budget, slack_us)
        self._numbers: dict[K, int] = {}
        self._keys: dict[int, K] = {}
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
        check_pattern(pattern)
        if key not in self._numbers and len(self._numbers) >= PATTERNS_MAX:
            raise LimitError("PATTERNS_MAX", PATTERNS_MAX)
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
        """Removes a pattern and its runs; a key that is not there is no error.

        Nothing is matched for the key afterwards. Cost: its runs, and its filters in the index.
        """
        number = self._numbers.pop(key, None)
        if number is not None:
            del self._keys[number]
            for gone in self._engine.remove(number):
                self._index.remove(gone)

    def push(self, notification: Notification) -> list[Match[K]]:
        """Takes in a notification; the matches that are known now, in order.

        Cost: matching in the index, then for each notification that the watermark passes the
        groups it touches and the runs that move, and O(log n) of the notifications that wait.
        """
        self._pushed += 1
        time_us = notification.envelope.at_us
        if self._engine.is_late(time_us):
            return []
        numbers = self._index.match(notification)
        if numbers:
            self._engine.hold(notification, self._filters.of(numbers))
        return self._matches(self._engine.see(time_us))

    def advance(self, watermark_us: int) -> list[Match[K]]:
        """Learns that nothing below this time will come; the matches that are known now."""
        return self._matches(self._engine.advance(watermark_us))

    def flush(self) -> list[Match[K]]:
        """Learns that nothing up to the largest timestamp seen will come, as at a stream's end."""
        return self._matches(self._engine.flush())

    def _matches(self, found: Sequence[FoundMatch]) -> list[Match[K]]:
        if not found:
            return []
        matches = [Match(self._keys[number], by, run) for number, by, run in found]
        self._matched += len(matches)
        return matches

    def statistics(self) -> PatternStatistics:
        """What is held and was done so far. Cost: the number of patterns."""
        engine, budget = self._engine, self._budget
        return PatternStatistics(
            patterns=len(engine),
            filters=len(self._filters),
            groups=engine.groups,
            runs=budget.held,
            pending=len(engine.waiting),
            watermark_us=engine.waiting.watermark_us,
            pushed=self._pushed,
            matched=self._matched,
            forced=engine.waiting.forced,
            dropped=dict(budget.dropped),
        )

    def validate(self) -> None:
        """Checks the invariants. Cost: everything that is held, with its filters."""
        self._filters.validate()
        assert self._engine.validate() == self._budget.held <= self._budget.limits.runs_max
        assert {number: key for key, number in self._numbers.items()} == self._keys
        assert len(self._keys) == len(self._engine), "a pattern is without a key"
        assert len(self._index) == len(self._filters), "the index holds other filters"
        assert all(each.number in self._index for each in self._filters), "a filter is not found"
