"""`DelegatedSegments`: what a server has delegated, and what it says of that to neighbours.

Invariant: a segment is known under its identity where the answers to it come from, exactly while
its pattern has it.

Source: PODC 2000 §4 (upstream evaluation of patterns).
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from contrada.model import Filter
from contrada.patterns import Match
from contrada.routing.assembly.phases import DelegationPhase
from contrada.routing.assembly.split import Segment, Span, SplitPattern
from contrada.routing.delegation import (
    AskWatermark,
    HandOver,
    PatternMessage,
    RecallPattern,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.messages import Client, Neighbour


@dataclass(frozen=True, slots=True)
class Want:
    """Subscribe this server to a filter, under a number."""

    number: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class Unwant:
    """Withdraw that."""

    number: int


@dataclass(frozen=True, slots=True)
class Say:
    """Send a message about a pattern to a neighbour."""

    to: Neighbour
    message: PatternMessage


@dataclass(frozen=True, slots=True)
class Matched:
    """Hand a match to a client; its key is the identity of the subscription."""

    client: Client
    match: Match[str]


Action: TypeAlias = Want | Unwant | Say | Matched
"""What is to be done for patterns, by the router."""


class DelegatedSegments:
    """The segments of all patterns of a server, by neighbour and identity.

    `sent` counts all messages about patterns by kind.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self._known: dict[Neighbour, dict[str, tuple[SplitPattern, Segment]]] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def __iter__(self) -> Iterator[Segment]:
        return (segment for of in self._known.values() for _, segment in of.values())

    def get(self, neighbour: Neighbour, identity: str) -> tuple[SplitPattern, Segment] | None:
        """The segment of which a neighbour speaks, with its pattern; None where there is none."""
        return self._known.get(neighbour, {}).get(identity)

    def at(self, neighbour: Neighbour) -> list[tuple[SplitPattern, Segment]]:
        """What is delegated to a neighbour."""
        return list(self._known.get(neighbour, {}).values())

    def say(self, to: Neighbour, message: PatternMessage) -> list[Action]:
        """Sends a message, and counts it."""
        self.sent[type(message).__name__] += 1
        return [Say(to, message)]

    def offer(self, pattern: SplitPattern, span: Span) -> list[Action]:
        """Asks a neighbour to gather a part."""
        segment = Segment(str(next(self._numbers)), span)
        pattern.segments[segment.identity] = segment
        self._known.setdefault(span.neighbour, {})[segment.identity] = pattern, segment
        message = SubscribePattern(segment.identity, pattern.part(span), pattern.hops + 1)
        return self.say(span.neighbour, message)

    def hand_over(self, pattern: SplitPattern, segment: Segment) -> list[Action]:
        """Gives what was gathered to the delegate, which assembles it from now on."""
        span = segment.span
        segment.watermark_us = pattern.watermark_us
        pieces = pattern.take_out(span.first, span.end)
        message = HandOver(segment.identity, pattern.watermark_us, pieces)
        return self.say(span.neighbour, message)

    def ask(self, segment: Segment, own_us: int, learned_us: int) -> list[Action]:
        """Asks a delegate for its watermark, where it is behind and was not asked."""
        if (
            segment.phase is not DelegationPhase.DELEGATED
            or segment.asked_us > segment.watermark_us
        ):
            return []
        if segment.watermark_us >= own_us:
            return []
        segment.asked_us, segment.waits_us = own_us, None
        return self.say(segment.span.neighbour, AskWatermark(segment.identity, learned_us))

    def withdraw(self, pattern: SplitPattern, segment: Segment) -> list[Action]:
        """Takes back what was only offered: all of it is here still."""
        self.end(pattern, segment)
        return self.say(segment.span.neighbour, UnsubscribePattern(segment.identity))

    def recall(self, segment: Segment) -> list[Action]:
        """Asks for all that the delegate has. What the segment needs is subscribed to already."""
        segment.waits_us = None
        return self.say(segment.span.neighbour, RecallPattern(segment.identity))

    def end(self, pattern: SplitPattern, segment: Segment) -> None:
        """Forgets a segment: its pattern is assembled here again."""
        self._forget(segment)
        pattern.end(segment)

    def leave(self, pattern: SplitPattern) -> list[Action]:
        """Forgets the segments of a pattern that was withdrawn, here and at its delegates."""
        actions: list[Action] = []
        for segment in pattern.segments.values():
            self._forget(segment)
            if segment.phase is not DelegationPhase.RETURNING:
                message = UnsubscribePattern(segment.identity)
                actions += self.say(segment.span.neighbour, message)
        return actions

    def _forget(self, segment: Segment) -> None:
        of_neighbour = self._known[segment.span.neighbour]
        del of_neighbour[segment.identity]
        if not of_neighbour:
            del self._known[segment.span.neighbour]
