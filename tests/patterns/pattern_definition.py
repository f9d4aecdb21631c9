"""The definition of patterns, word for word, without regard to speed.

A script is a list of steps that drive a matcher. `expected` reads all of it, sorts the stream, and
for each pattern and each group tries runs from every start by reading the stream again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from contrada.model import Envelope, Notification, Pattern
from contrada.model.domains.values import ABSENT_KEY, TIME_MIN_US, Key, value_of
from contrada.patterns import Match


@dataclass(frozen=True, slots=True)
class Add:
    """Add a pattern."""

    key: str
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a pattern."""

    key: str


@dataclass(frozen=True, slots=True)
class Push:
    """A notification arrives."""

    notification: Notification


@dataclass(frozen=True, slots=True)
class Advance:
    """Nothing below this time will arrive."""

    watermark_us: int


@dataclass(frozen=True, slots=True)
class Flush:
    """The stream is closed."""


Step: TypeAlias = Add | Remove | Push | Advance | Flush
Script: TypeAlias = Sequence[Step]
Reported: TypeAlias = list[tuple[int, Match[str], list[Envelope]]]
"""Matches, each with the number of the step that reports it, and the envelopes of the match."""


def expected(script: Script, slack_us: int | None) -> Reported:
    """The expected reports of a matcher, in order, with their steps."""
    watermarks = watermarks_of(script, slack_us)
    found = []
    for number, (key, pattern, begin, end) in enumerate(lives_of(script)):
        handled_at = {}
        stream: list[Notification] = []
        for step in range(begin, end):
            each = script[step]
            if not isinstance(each, Push) or is_late(each.notification, watermarks, step):
                continue
            if any(order(each.notification) == order(other) for other in stream):
                continue  # the same notification again
            passed = [at for at in range(step, end) if watermarks[at] > time_us(each.notification)]
            if passed:
                stream.append(each.notification)
                handled_at[order(each.notification)] = passed[0]
        stream.sort(key=order)
        for group in sorted({group for n in stream for group in groups_of(n, pattern)}):
            members = [n for n in stream if group in groups_of(n, pattern)]
            for run in matches_of(members, pattern):
                by = tuple(value_of(each) for each in group)
                last = order(run[-1])
                place = (handled_at[last], last, number, group, order(run[0]))
                found.append((place, Match(key, by, run)))
    found.sort(key=lambda each: each[0])
    return [(place[0], match, envelopes_of(match)) for place, match in found]


def envelopes_of(match: Match[str]) -> list[Envelope]:
    """The envelopes of a match, which `==` of notifications does not compare."""
    return [each.envelope for each in match.notifications]


def watermarks_of(script: Script, slack_us: int | None) -> list[int]:
    """The watermark after each step: the largest timestamp seen less the slack, or as given."""
    watermark = largest = TIME_MIN_US
    after = []
    for step in script:
        match step:
            case Push(notification):
                largest = max(largest, time_us(notification))
                if slack_us is not None:
                    watermark = max(watermark, largest - slack_us)
            case Advance(told):
                watermark = max(watermark, told)
            case Flush():
                watermark = max(watermark, largest + 1)
        after.append(watermark)
    return after


def lives_of(script: Script) -> Iterator[tuple[str, Pattern, int, int]]:
    """Each pattern that was added, with the steps from which and before which it was there."""
    for begin, step in enumerate(script):
        if isinstance(step, Add):
            ends = (
                at
                for at, later in enumerate(script)
                if at > begin and isinstance(later, Add | Remove) and later.key == step.key
            )
            yield step.key, step.pattern, begin, next(ends, len(script))


def is_late(notification: Notification, watermarks: Sequence[int], step: int) -> bool:
    """Whether a notification arrives below the watermark."""
    return step > 0 and time_us(notification) < watermarks[step - 1]


def matches_of(stream: Sequence[Notification], pattern: Pattern) -> list[tuple[Notification, ...]]:
    """The matches in the notifications of one group, in order."""
    matches = []
    first = 0
    while first < len(stream):
        run, last = run_from(stream, first, pattern)
        if last is None:
            first += 1  # no run begins here, or it outlived its span: continue after its first
            continue
        if len(run) == len(pattern.filters):
            matches.append(run)
        if pattern.every:
            first += 1  # each first notification opens a run
        elif len(run) == len(pattern.filters):
            first = last + 1  # after a match from the next notification on
        else:
            break  # one run at a time, and this one continues
    return matches


def run_from(
    stream: Sequence[Notification], first: int, pattern: Pattern
) -> tuple[tuple[Notification, ...], int | None]:
    """The run that begins at a notification, and where it ends; None where there is none."""
    if not pattern.filters[0].matches(stream[first]):
        return (), None
    run = [stream[first]]
    for place in range(first + 1, len(stream)):
        span_us = time_us(stream[place]) - time_us(stream[first])
        if pattern.within_us is not None and span_us > pattern.within_us:
            return (), None
        if pattern.filters[len(run)].matches(stream[place]):
            run.append(stream[place])
            if len(run) == len(pattern.filters):
                return tuple(run), place
    return tuple(run), len(stream)


def groups_of(notification: Notification, pattern: Pattern) -> list[tuple[Key, ...]]:
    """Every combination of the notification's values of `by`; none where one is absent."""
    groups: list[tuple[Key, ...]] = [()]
    for name in pattern.by:
        keys = [key for key in notification.keys_of(name) if key != ABSENT_KEY]
        groups = [(*group, key) for group in groups for key in keys]
    return groups


def time_us(notification: Notification) -> int:
    """When it was published."""
    return notification.envelope.at_us


def order(notification: Notification) -> tuple[object, ...]:
    """Its place in the order of all notifications; two with one place are the same."""
    envelope = notification.envelope
    stamp = (envelope.at_us, envelope.publisher, envelope.sequence, envelope.id)
    return (*stamp, notification.span, notification.body, notification.content_type)
