"""`CorrelationMatcher`: rules over several notifications, fed with one stream."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from contrada.matching.index import Index
from contrada.model.algebra.notification import Notification
from contrada.model.domains.values import TIME_MIN_US
from contrada.model.rule import CorrelationRule
from contrada.patterns.pattern_engine import PatternMatcher
from contrada.patterns.runs import Match, Run


class CorrelationMatcher:
    """Finds the notifications that satisfy correlations; time is that of their envelopes.

    `dropped` counts notifications without effect, by reason; see `PatternMatcher`.
    """

    def __init__(self, rules: Mapping[str, CorrelationRule]) -> None:
        self._matcher: PatternMatcher[tuple[str, int]] = PatternMatcher(slack_us=None)
        self._alone: Index[str] = Index()
        self._latest_us = TIME_MIN_US
        for name, rule in rules.items():
            for number, pattern in enumerate(rule.patterns):
                self._matcher.add((name, number), pattern)
            if not rule.filters.is_empty:
                self._alone.add(name, rule.filters)

    @property
    def dropped(self) -> Mapping[str, int]:
        """The notifications and runs without effect, by reason."""
        return self._matcher.statistics().dropped

    def push(
        self, notification: Notification, arrived_us: int | None = None
    ) -> Iterator[tuple[str, Run]]:
        """Yields the names of satisfied rules with the notifications of each match: at the end, in
        the order of time. With the time of arrival the order is that of arrival, and a match is
        given at once. Then a later time is that of the arrival, so that no publisher can advance
        the time of all others; one that is not after the time before is a microsecond later.
        """
        for name in self._alone.match(notification):
            yield name, (notification,)
        if arrived_us is not None:
            time_us = max(min(notification.envelope.at_us, arrived_us), self._latest_us + 1)
            if time_us != notification.envelope.time_us:
                envelope = replace(notification.envelope, time_us=time_us)
                notification = notification.with_envelope(envelope)
            self._latest_us = time_us
        yield from map(_named, self._matcher.push(notification))
        if arrived_us is not None:
            yield from map(_named, self._matcher.advance(self._latest_us + 1))

    def end(self) -> Iterator[tuple[str, Run]]:
        """Yields the other matches, as `push`."""
        return map(_named, self._matcher.flush())


def _named(match: Match[tuple[str, int]]) -> tuple[str, Run]:
    return match.key[0], match.notifications
