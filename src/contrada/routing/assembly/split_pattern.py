"""`SplitPattern`: one pattern at one server, with its requester and delegated segments.

    pattern     f1     f2     f3     f4     f5      f2 and f3 arrive over the link to N only:
    segments    .      [ delegate N ]       .       they are delegated, the rest is subscribed
                |           |        |      |
                `- singles -- chains -------´---> in order, up to the watermark ---> runs

The watermark is the smallest of the server's own (the learned time less the slack) and each
delegate's; it never decreases. A segment changes by itself, in a hand-shake without loss
(`contrada.routing.delegation`):

    single ---> offered --- accepted: hand over ---> delegated --- recall ---> returning ---> single

The server subscribes to the filters of parts that are single, offered or returning. Each matching
notification counts as a single, with one exception. While a segment returns, notifications from its
delegate do not count: the delegate holds them and hands them back.

Source: PODC 2000 §4 (servers assemble sequences from small subsequences or single notifications).
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from contrada.model import Filter, Pattern
from contrada.model.domains.values import TIME_MIN_US, key_of
from contrada.patterns import Match
from contrada.patterns.pattern_assembly import Assembly
from contrada.patterns.runs import RunBudget, SharedFilter
from contrada.routing import delegation
from contrada.routing.delegation import GATHERING, DelegationPhase
from contrada.routing.router_messages import DeliverMatch, Neighbour, Origin, PatternEnded, Send

SEGMENT_PARTS_MIN: Final = 2
"""Parts of a delegated segment; a single one is subscribed."""


@dataclass(frozen=True, slots=True)
class SubscribeSegment:
    """Subscribe this server to a filter, under a number."""

    number: int
    filter: Filter


@dataclass(frozen=True, slots=True)
class UnsubscribeSegment:
    """Withdraw a `SubscribeSegment`."""

    number: int


Action: TypeAlias = SubscribeSegment | UnsubscribeSegment | Send | DeliverMatch | PatternEnded
"""An action of the router for patterns."""


class Span(NamedTuple):
    """Consecutive places with notifications from one neighbour only."""

    first: int
    end: int
    neighbour: Neighbour

    def places(self) -> range:
        """The places, from the first to before the end."""
        return range(self.first, self.end)


@dataclass(slots=True, eq=False)
class Segment:
    """A delegated part: the watermarks that its delegate has and was asked for, and its waits."""

    identity: str
    span: Span
    phase: DelegationPhase = DelegationPhase.OFFERED
    watermark_us: int = TIME_MIN_US
    asked_us: int = TIME_MIN_US
    waits_us: int | None = None

    @property
    def is_away(self) -> bool:
        """Whether the delegate holds the pieces."""
        return self.phase is not DelegationPhase.OFFERED


class SplitPattern(Assembly):
    """A requested pattern, assembled from segments and singles.

    A neighbour's pattern is only collected, not assembled, until the neighbour hands over its
    pieces, and again from its recall on.

    Invariants: segments do not overlap; the watermark is not above that of any segment that is
    away, unless it was forced.
    """

    def __init__(
        self,
        number: int,
        requester: Origin,
        identity: str,
        pattern: Pattern,
        budget: RunBudget,
        *,
        hops: int = 0,
    ) -> None:
        is_delegate = isinstance(requester, Neighbour)
        super().__init__(pattern, budget, refuses=is_delegate)
        self.number = number
        self.requester = requester
        self.identity = identity
        self.hops = hops
        self.segments: dict[str, Segment] = {}
        self.refused_by: set[Neighbour] = set()
        self.subscribed: dict[int, SharedFilter] = {}
        """The subscribed filters, by place."""
        self.asked_us = TIME_MIN_US
        """The watermark of which a report was requested."""
        self.reported_waits_us: int | None = None
        """The waiting time of the last report."""
        self.scheduled_us: int | None = None
        """The time of the owner's next check, apart from reports of delegates."""
        self.enter(DelegationPhase.OFFERED if is_delegate else DelegationPhase.DELEGATED)

    def enter(self, phase: DelegationPhase) -> None:
        """Enters a phase."""
        self.phase = phase
        self.gathers = phase in GATHERING

    def segment_at(self, place: int) -> Segment | None:
        """Returns the segment that contains a place, or None."""
        return next((each for each in self.segments.values() if place in each.span.places()), None)

    def needed_places(self) -> list[int]:
        """Returns the places with filters to subscribe: all but the delegated ones."""
        segments = map(self.segment_at, range(len(self.pattern.filters)))
        return [
            place
            for place, each in enumerate(segments)
            if each is None or each.phase is not DelegationPhase.DELEGATED
        ]

    def accepts(self, place: int, origin: Origin) -> bool:
        """Whether a single notification from there counts at a place."""
        segment = self.segment_at(place)
        if segment is None or not segment.is_away:
            return True
        return segment.phase is DelegationPhase.RETURNING and origin != segment.span.neighbour

    def is_free(self, span: Span) -> bool:
        """Whether no segment overlaps with a span."""
        return all(self.segment_at(place) is None for place in span.places())

    def part(self, span: Span) -> Pattern:
        """Returns the sub-pattern of a span with every start: only the whole decides."""
        filters = self.pattern.filters[span.first : span.end]
        by, within_us = self.pattern.by, self.pattern.within_us
        return Pattern(filters, by=by, within_us=within_us, every=True)

    def end_segment(self, segment: Segment) -> None:
        """Removes a segment: only the single notifications of its reports remain."""
        del self.segments[segment.identity]
        self.take_apart(segment.span.first, segment.span.end)

    def watermark_at(self, own_us: int) -> int:
        """The watermark that this server's own and the delegates' allow."""
        away = (each.watermark_us for each in self.segments.values() if each.is_away)
        return max(self.watermark_us, min((own_us, *away)))

    def hold_matches(self, segment: Segment, matches: Iterable[Match[str]]) -> int:
        """Takes a delegate's matches. Returns the number of late ones, which are lost."""
        late = 0
        for match in matches:
            if self.is_late(match.envelope.at_us):
                late += 1
            else:
                self.hold(segment.span.first, match.notifications, tuple(map(key_of, match.by)))
        return late

    @property
    def waits_us(self) -> int | None:
        """The earliest time of waiting pieces, here or at a delegate."""
        times = [self.waiting.head_us, *(each.waits_us for each in self.segments.values())]
        return min((each for each in times if each is not None), default=None)

    def take_matches(self, own_us: int) -> list[Match[str]]:
        """Advances to the common watermark. Returns the matches."""
        opening = self.segment_at(0)
        found = self.advance(
            self.watermark_at(own_us), has_all_starts=opening is None or not opening.is_away
        )
        return [Match(self.identity, by, run) for by, run in found]

    def validate(self) -> int:
        taken = [place for each in self.segments.values() for place in each.span.places()]
        assert len(taken) == len(set(taken)), "segments overlap"
        assert sorted(self.subscribed) == self.needed_places(), "other places are subscribed to"
        for place, shared in self.subscribed.items():
            assert shared.filter == self.pattern.filters[place], "another filter is wanted"
        if not self.waiting.forced:
            for each in self.segments.values():
                assert not each.is_away or self.watermark_us <= each.watermark_us
        return super().validate()


class DelegatedSegments:
    """The delegated segments of all patterns, each filed while its pattern has it."""

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
        message = delegation.SubscribePattern(
            segment.identity, pattern.part(span), pattern.hops + 1
        )
        return [Send(span.neighbour, message)]

    def hand_over(self, pattern: SplitPattern, segment: Segment) -> list[Action]:
        """Hands the collected pieces to the delegate, which assembles from now on."""
        span = segment.span
        segment.watermark_us = pattern.watermark_us
        pieces = pattern.take_out(span.first, span.end)
        return [
            Send(
                span.neighbour, delegation.HandOver(segment.identity, pattern.watermark_us, pieces)
            )
        ]

    def ask_watermark(self, segment: Segment, own_us: int, learned_us: int) -> list[Action]:
        """Asks a delegate that is behind for its watermark, once."""
        is_asked = segment.asked_us > segment.watermark_us
        is_behind = segment.watermark_us < own_us
        if segment.phase is not DelegationPhase.DELEGATED or is_asked or not is_behind:
            return []
        segment.asked_us, segment.waits_us = own_us, None  # The report renews it.
        return [Send(segment.span.neighbour, delegation.AskWatermark(segment.identity, learned_us))]

    def withdraw(self, pattern: SplitPattern, segment: Segment) -> list[Action]:
        """Withdraws an offer: all pieces are still here."""
        self.end(pattern, segment)
        return [Send(segment.span.neighbour, delegation.UnsubscribePattern(segment.identity))]

    def recall(self, segment: Segment) -> list[Action]:
        """Asks the delegate for all pieces. The segment's filters are subscribed already."""
        segment.waits_us = None
        return [Send(segment.span.neighbour, delegation.RecallPattern(segment.identity))]

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
                message = delegation.UnsubscribePattern(segment.identity)
                actions.append(Send(segment.span.neighbour, message))
        return actions


def spans_of(sources: Iterable[frozenset[Neighbour | None]]) -> list[Span]:
    """Returns the longest runs of two parts or more with one neighbour as their only source."""
    spans: list[Span] = []
    for place, origins in enumerate(sources):
        only = next(iter(origins)) if len(origins) == 1 else None
        if only is None:
            continue
        if spans and spans[-1].end == place and spans[-1].neighbour == only:
            spans[-1] = spans[-1]._replace(end=place + 1)
        else:
            spans.append(Span(place, place + 1, only))
    return [span for span in spans if span.end - span.first >= SEGMENT_PARTS_MIN]
