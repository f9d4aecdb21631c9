"""`DelegatedSegments`: the delegated segments of a server, and its messages about them.

Invariant: a segment is filed under its delegate and its identity exactly while its pattern has it.

Source: PODC 2000 §4 (upstream evaluation of patterns).
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from contrada.model import Filter
from contrada.routing.assembly.delegation_phase import DelegationPhase
from contrada.routing.assembly.split_pattern import Segment, Span, SplitPattern
from contrada.routing.delegation import (
    AskWatermark,
    HandOver,
    RecallPattern,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.router_messages import DeliverMatch, Neighbour, Send


@dataclass(frozen=True, slots=True)
class SubscribeSegment:
    """Subscribe this server to a filter, under a number."""

    number: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class UnsubscribeSegment:
    """Withdraw a `SubscribeSegment`."""

    number: int


Action: TypeAlias = SubscribeSegment | UnsubscribeSegment | Send | DeliverMatch
"""An action of the router for patterns."""


class DelegatedSegments:
    """The segments of all patterns of a server, by neighbour and identity."""

    def __init__(self) -> None:
        self._segments: dict[tuple[Neighbour, str], tuple[SplitPattern, Segment]] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return (segment for _, segment in self._segments.values())

    def get(self, neighbour: Neighbour, identity: str) -> tuple[SplitPattern, Segment] | None:
        """Returns a segment of a neighbour with its pattern, or None."""
        return self._segments.get((neighbour, identity))

    def at(self, neighbour: Neighbour) -> list[tuple[SplitPattern, Segment]]:
        """Returns the segments of a neighbour. Cost: all segments."""
        return [known for (at, _), known in self._segments.items() if at == neighbour]

    def offer(self, pattern: SplitPattern, span: Span) -> list[Action]:
        """Asks a neighbour to collect a part."""
        segment = Segment(str(next(self._numbers)), span)
        pattern.segments[segment.identity] = segment
        self._segments[span.neighbour, segment.identity] = pattern, segment
        message = SubscribePattern(segment.identity, pattern.part(span), pattern.hops + 1)
        return [Send(span.neighbour, message)]

    def hand_over(self, pattern: SplitPattern, segment: Segment) -> list[Action]:
        """Hands the collected pieces to the delegate, which assembles from now on."""
        span = segment.span
        segment.watermark_us = pattern.watermark_us
        pieces = pattern.take_out(span.first, span.end)
        return [Send(span.neighbour, HandOver(segment.identity, pattern.watermark_us, pieces))]

    def ask_watermark(self, segment: Segment, own_us: int, learned_us: int) -> list[Action]:
        """Asks a delegate that is behind for its watermark, once."""
        is_asked = segment.asked_us > segment.watermark_us
        is_behind = segment.watermark_us < own_us
        if segment.phase is not DelegationPhase.DELEGATED or is_asked or not is_behind:
            return []
        segment.asked_us, segment.waits_us = own_us, None  # The report renews it.
        return [Send(segment.span.neighbour, AskWatermark(segment.identity, learned_us))]

    def withdraw(self, pattern: SplitPattern, segment: Segment) -> list[Action]:
        """Withdraws an offer: all pieces are still here."""
        self.end(pattern, segment)
        return [Send(segment.span.neighbour, UnsubscribePattern(segment.identity))]

    def recall(self, segment: Segment) -> list[Action]:
        """Asks the delegate for all pieces. The segment's filters are subscribed already."""
        segment.waits_us = None
        return [Send(segment.span.neighbour, RecallPattern(segment.identity))]

    def end(self, pattern: SplitPattern, segment: Segment) -> None:
        """Removes a segment: its pattern is assembled here again."""
        del self._segments[segment.span.neighbour, segment.identity]
        pattern.end_segment(segment)

    def forget(self, pattern: SplitPattern) -> list[Action]:
        """Removes the segments of a withdrawn pattern, here and at its delegates."""
        actions: list[Action] = []
        for segment in pattern.segments.values():
            del self._segments[segment.span.neighbour, segment.identity]
            if segment.phase is not DelegationPhase.RETURNING:
                message = UnsubscribePattern(segment.identity)
                actions.append(Send(segment.span.neighbour, message))
        return actions
