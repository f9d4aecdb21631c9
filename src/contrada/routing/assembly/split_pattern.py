"""`SplitPattern`: one pattern at one server, with its requester and the parts that others assemble.

    pattern     f1     f2     f3     f4     f5      f2 and f3 can come over the link to N only:
    segments    .      [ delegate N ]       .       they are delegated, the rest is subscribed to
                |           |        |      |
                `- singles -- chains -------´---> in order, up to the watermark ---> runs

The watermark is the smallest of what the server itself has learned less the slack, and what each
delegate has promised; it never falls. A segment changes by itself, in a hand-shake that loses
nothing (`contrada.routing.delegation`):

    single ---> offered --- accepted: hand over ---> delegated --- recall ---> returning ---> single

The server subscribes to the filters of parts that are single, offered or returning. Each
notification that matches them counts as a single, with one exception. While a segment returns,
notifications from its delegate do not count: the delegate holds them and hands them back.

Source: PODC 2000 §4 (servers assemble sequences from small subsequences or single notifications).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from contrada.model import Pattern
from contrada.model.domains.values import TIME_MIN_US, key_of
from contrada.patterns import Match
from contrada.patterns.pattern_assembly import Assembly, Piece
from contrada.patterns.runs import RunBudget, SharedFilter
from contrada.routing.assembly.delegation_phase import GATHERING, DelegationPhase
from contrada.routing.router_messages import Neighbour, Origin

SEGMENT_PARTS_MIN: Final = 2
"""Parts of what is delegated; a single one is subscribed to."""


class Span(NamedTuple):
    """Consecutive places that come from one neighbour only."""

    first: int
    end: int
    neighbour: Neighbour

    def places(self) -> range:
        """The places, from the first to before the end."""
        return range(self.first, self.end)


@dataclass(slots=True, eq=False)
class Segment:
    """A part of the pattern that a neighbour assembles, or will, or did.

    `watermark_us` is what the delegate promised; `asked_us` the watermark that it was asked for;
    `waits_us` the time of something that it holds until it learns of a later one.
    """

    identity: str
    span: Span
    phase: DelegationPhase = DelegationPhase.OFFERED
    watermark_us: int = TIME_MIN_US
    asked_us: int = TIME_MIN_US
    waits_us: int | None = None

    @property
    def is_away(self) -> bool:
        """Whether the delegate holds what was gathered."""
        return self.phase is not DelegationPhase.OFFERED


class SplitPattern(Assembly):
    """A pattern that a client or a neighbour asked for, assembled from segments and singles.

    A neighbour's pattern is only gathered, not assembled, until the neighbour hands over what it
    has, and again from its recall on.

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
        """The filters that are subscribed to, by place."""
        self.asked_us = TIME_MIN_US
        """The watermark of which a report was asked for."""
        self.reported_waits_us: int | None = None
        """What the last report said of what waits."""
        self.scheduled_us: int | None = None
        """When the owner looks at what waits, whatever the delegates say."""
        self.enter(DelegationPhase.OFFERED if is_delegate else DelegationPhase.DELEGATED)

    def enter(self, phase: DelegationPhase) -> None:
        """Goes over to a phase."""
        self.phase = phase
        self.gathers = phase in GATHERING

    # --- the split ----------------------------------------------------------------------------

    def segment_at(self, place: int) -> Segment | None:
        """The segment in which a place lies."""
        return next((each for each in self.segments.values() if place in each.span.places()), None)

    def needed_places(self) -> list[int]:
        """The places whose filters are to be subscribed to: all but what is delegated."""
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
        """The sub-pattern of a span: every start, and the span in time as an upper bound.

        One run at a time would lose matches: which run goes on is known only where all parts are.
        """
        filters = self.pattern.filters[span.first : span.end]
        by, within_us = self.pattern.by, self.pattern.within_us
        return Pattern(filters, by=by, within_us=within_us, every=True)

    def end_segment(self, segment: Segment) -> None:
        """Takes a segment back: of its reports only the single notifications are left."""
        del self.segments[segment.identity]
        self.take_apart(segment.span.first, segment.span.end)

    # --- going on -----------------------------------------------------------------------------

    def watermark_at(self, own_us: int) -> int:
        """The watermark, as far as this server's own and the delegates' allow."""
        away = (each.watermark_us for each in self.segments.values() if each.is_away)
        return max(self.watermark_us, min((own_us, *away)))

    def hold_matches(self, segment: Segment, matches: Iterable[Match[str]]) -> int:
        """Takes what a delegate reports; how many came below the watermark, and are lost."""
        late = 0
        for match in matches:
            if self.is_late(match.envelope.at_us):
                late += 1
            else:
                self.hold(segment.span.first, match.notifications, tuple(map(key_of, match.by)))
        return late

    @property
    def waits_us(self) -> int | None:
        """The earliest time of what waits here or at a delegate."""
        times = [self.waiting.head_us, *(each.waits_us for each in self.segments.values())]
        return min((each for each in times if each is not None), default=None)

    def take_matches(self, own_us: int) -> list[Match[str]]:
        """Goes on as far as this server's own watermark and the delegates' allow; the matches."""
        opening = self.segment_at(0)
        found = self.advance(
            self.watermark_at(own_us), has_all_starts=opening is None or not opening.is_away
        )
        return [Match(self.identity, by, run) for by, run in found]

    def take_all(self) -> tuple[Piece, ...]:
        """Takes out all that was gathered."""
        return self.take_out(0, len(self.pattern.filters))

    def validate(self) -> int:
        """Checks the invariants; the number of runs. Cost: all that is held."""
        taken = [place for each in self.segments.values() for place in each.span.places()]
        assert len(taken) == len(set(taken)), "segments overlap"
        assert sorted(self.subscribed) == self.needed_places(), "other places are subscribed to"
        for place, shared in self.subscribed.items():
            assert shared.filter == self.pattern.filters[place], "another filter is wanted"
        if not self.waiting.forced:
            for each in self.segments.values():
                assert not each.is_away or self.watermark_us <= each.watermark_us
        return super().validate()


def spans_of(sources: Iterable[frozenset[Neighbour | None]]) -> list[Span]:
    """The maximal runs of at least two parts that come from one and the same neighbour only.

    `sources` says for each part from where it can come; None stands for local publishers.
    Source: PODC 2000 §4 (sub-patterns are assembled according to the advertised paths).
    """
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
