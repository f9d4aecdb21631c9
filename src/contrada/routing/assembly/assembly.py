"""`Assembly`: one pattern at one server: how it is split, what waits, and its runs.

    pattern     f1     f2     f3     f4     f5      f2 and f3 can come over the link to N only:
    segments    .      [ delegate N ]       .       they are delegated, the rest is subscribed to
                |           |        |      |
                `- singles -- chains -------´---> in order, up to the watermark ---> runs

The watermark is the smallest of what the server itself has learned less the slack, and what each
delegate has promised; it never falls. A segment changes by itself, in a hand-shake that loses
nothing (`contrada.routing.assembly.delegation`):

    single ---> offered --- accepted: hand over ---> delegated --- recall ---> returning ---> single

What is single, offered or returning is subscribed to; of these all singles count, but not those
that come from a delegate before it returns what it has, since that holds them.

Source: PODC 2000 §4 (servers assemble sequences from small subsequences or single notifications).
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from contrada.model import Notification, Pattern
from contrada.model.domains.values import TIME_MIN_US, key_of, value_of
from contrada.patterns import Match
from contrada.patterns.reordering import Order, order_of
from contrada.patterns.runs import Group, Run, RunBudget, groups_of
from contrada.routing.assembly.chains import Chains
from contrada.routing.assembly.delegation import Piece
from contrada.routing.messages import Neighbour, Origin

SEGMENT_PARTS_MIN: Final = 2
"""Parts of what is delegated; a single one is subscribed to."""


GATHERED_FULL: Final = "gathered by a delegate"
"""Why a notification takes no part: `pending_max`, where the watermark cannot be forced."""


class State(Enum):
    """How far a segment is delegated."""

    OFFERED = auto()
    DELEGATED = auto()
    RETURNING = auto()


class Span(NamedTuple):
    """Consecutive places that come from one neighbour only."""

    first: int
    end: int
    neighbour: Neighbour


@dataclass(slots=True, eq=False)
class Segment:
    """A part of the pattern that a neighbour assembles, or will, or did.

    `watermark_us` is what the delegate promised; `asked_us` the watermark that it was asked for;
    `waits_us` the time of something that it holds until it learns of a later one.
    """

    identity: str
    span: Span
    state: State = State.OFFERED
    watermark_us: int = TIME_MIN_US
    asked_us: int = TIME_MIN_US
    waits_us: int | None = None

    @property
    def is_away(self) -> bool:
        """Whether the delegate holds what was gathered."""
        return self.state is not State.OFFERED

    def __contains__(self, place: int) -> bool:
        return self.span.first <= place < self.span.end


class _Waiting(NamedTuple):
    """A chain that waits for the watermark; of equal last notifications the later place first."""

    order: Order
    place_down: int
    arrival: int
    group: Group | None
    chain: Run

    @property
    def place(self) -> int:
        return -self.place_down


class Assembly:
    """A pattern that a client or a neighbour (`is_delegate`) asked for.

    It is frozen before a delegate is handed what there is, and after it is recalled: then it only
    gathers. Beyond `pending_max` chains the watermark is forced, as in `matching.reordering`.

    Invariants: segments do not overlap; the watermark never falls and is not above that of any
    segment that is away, unless it was forced; what waits in time lies at or above it.
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
        self.number = number
        self.requester = requester
        self.identity = identity
        self.pattern = pattern
        self.hops = hops
        self.is_delegate = isinstance(requester, Neighbour)
        self.frozen = self.is_delegate
        self.recalled = False
        self.handed_back = False
        self.segments: dict[str, Segment] = {}
        self.refused_by: set[Neighbour] = set()
        self.watermark_us = TIME_MIN_US
        self.asked_us = TIME_MIN_US
        self.forced = 0
        self.has_said_that_it_waits = False
        self.scheduled_us: int | None = None
        """When the owner looks at what waits, whatever the delegates say."""
        self._budget = budget
        self._chains = Chains(pattern, budget, refuses=self.is_delegate)
        self._heap: list[_Waiting] = []
        self._arrivals = 0

    # --- the split ----------------------------------------------------------------------------

    def segment_at(self, place: int) -> Segment | None:
        """The segment in which a place lies."""
        return next((each for each in self.segments.values() if place in each), None)

    def accepts(self, place: int, origin: Origin) -> bool:
        """Whether a single notification from there counts at a place."""
        segment = self.segment_at(place)
        if segment is None or not segment.is_away:
            return True
        return segment.state is State.RETURNING and origin != segment.span.neighbour

    def is_free(self, span: Span) -> bool:
        """Whether no segment overlaps with a span."""
        return all(self.segment_at(place) is None for place in range(span.first, span.end))

    def part(self, span: Span) -> Pattern:
        """The sub-pattern of a span: every start, and the span in time as an upper bound.

        One run at a time would lose matches: which run goes on is known only where all parts are.
        """
        filters = self.pattern.filters[span.first : span.end]
        by, within_us = self.pattern.by, self.pattern.within_us
        return Pattern(filters, by=by, within_us=within_us, every=True)

    # --- taking in ----------------------------------------------------------------------------

    def is_late(self, time_us: int) -> bool:
        """Whether the watermark has passed a time."""
        return time_us < self.watermark_us

    def watermark_at(self, own_us: int) -> int:
        """The watermark, as far as this server's own and the delegates' allow."""
        away = (each.watermark_us for each in self.segments.values() if each.is_away)
        return max(self.watermark_us, min((own_us, *away)))

    def hold(self, place: int, chain: Run, group: Group | None = None) -> None:
        """Takes a chain that fills the places from `place` on. Cost: O(log waiting)."""
        self._arrivals += 1
        order = order_of(chain[-1])
        heapq.heappush(self._heap, _Waiting(order, -place, self._arrivals, group, chain))
        if len(self._heap) > self._budget.limits.pending_max:
            self._force()

    def _force(self) -> None:
        """Makes room: goes on without those that are silent; frozen, loses the newest."""
        self.forced += 1
        if self.frozen or self.recalled:
            self._heap.remove(max(self._heap))
            heapq.heapify(self._heap)
            self._budget.dropped[GATHERED_FULL] += 1
        else:
            self.watermark_us = max(self.watermark_us, self._heap[0].order[0] + 1)

    def hold_pieces(self, first: int, pieces: Iterable[Piece]) -> None:
        """Takes what another server held of places from `first` on, also below the watermark."""
        for piece in pieces:
            group = None if piece.by is None else tuple(map(key_of, piece.by))
            self.hold(first + piece.place, (piece.notification,), group)

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
    def head_us(self) -> int | None:
        """The earliest time of what waits."""
        return self._heap[0].order[0] if self._heap else None

    @property
    def waits_us(self) -> int | None:
        """The earliest time of what waits here or at a delegate."""
        times = [each.waits_us for each in self.segments.values()]
        return min((each for each in (self.head_us, *times) if each is not None), default=None)

    # --- going on -----------------------------------------------------------------------------

    def advance(self, own_us: int) -> list[Match[str]]:
        """Goes on as far as this server's own watermark and the delegates' allow; the matches."""
        self.watermark_us = self.watermark_at(own_us)
        matches: list[Match[str]] = []
        while self._heap and self.is_late(self._heap[0].order[0]):
            waiting = heapq.heappop(self._heap)
            for group in self._groups(waiting):
                by = tuple(map(value_of, group))
                runs = self._chains.take(group, waiting.place, waiting.chain)
                matches += (Match(self.identity, by, run) for run in runs)
        opening = self.segment_at(0)
        own_starts = opening is None or not opening.is_away
        self._chains.free(
            self.watermark_us, starts_from_us=self.watermark_us if own_starts else None
        )
        return matches

    def _groups(self, waiting: _Waiting) -> Iterable[Group]:
        if waiting.group is not None:
            return (waiting.group,)
        return groups_of(waiting.chain[0], self.pattern.by, self._budget)

    @property
    def is_full(self) -> bool:
        """Whether a table of a delegate was full."""
        return self._chains.full

    # --- handing from server to server --------------------------------------------------------

    def hand_over(self, segment: Segment) -> tuple[Piece, ...]:
        """Takes out all that was gathered for a segment: its delegate will have it."""
        first, end, _ = segment.span
        held = list(self._chains.roll_back(first, end))
        kept: list[_Waiting] = []
        for waiting in sorted(self._heap):
            if waiting.place in segment:
                held += _singles(waiting, waiting.place - first)
            else:
                kept.append(waiting)
        self._heap = kept  # In order, hence a heap.
        pieces: dict[tuple[int, Group | None, Order], Piece] = {}
        for place, group, notification in held:
            by = None if group is None else tuple(map(value_of, group))
            pieces[place, group, order_of(notification)] = Piece(place, by, notification)
        return tuple(pieces.values())

    def begin(self, watermark_us: int, pieces: Iterable[Piece]) -> None:
        """Begins to assemble with what another has gathered, which is all below its watermark."""
        self._heap = [each for each in self._heap if each.order[0] >= watermark_us]
        heapq.heapify(self._heap)
        self.watermark_us = watermark_us
        self.frozen = False
        self.hold_pieces(0, pieces)

    def end(self, segment: Segment) -> None:
        """Takes a segment back: of its reports only the single notifications are left."""
        del self.segments[segment.identity]
        waiting, self._heap = sorted(self._heap), []
        for each in waiting:
            if each.place not in segment:
                heapq.heappush(self._heap, each)
                continue
            for place, group, notification in _singles(each, each.place):
                self.hold(place, (notification,), group)

    def all_pieces(self) -> tuple[Piece, ...]:
        """Takes out all that was gathered."""
        whole = Segment("", Span(0, len(self.pattern.filters), Neighbour("")))
        # The first places of a run are pieces too.
        return self.hand_over(whole)

    def clear(self) -> None:
        """Drops all that is held."""
        self._chains.clear()
        self._heap.clear()

    # --- what others may see ------------------------------------------------------------------

    def __len__(self) -> int:
        """How many chains wait."""
        return len(self._heap)

    def validate(self) -> int:
        """Checks the invariants; the number of runs. Cost: all that is held."""
        taken = [place for each in self.segments.values() for place in range(*each.span[:2])]
        assert len(taken) == len(set(taken)), "segments overlap"
        assert self._heap == sorted(self._heap) or self._heap[0] == min(self._heap)
        assert len(self._heap) <= self._budget.limits.pending_max
        if not self.forced:
            for each in self.segments.values():
                assert not each.is_away or self.watermark_us <= each.watermark_us
        return self._chains.validate()


def _singles(waiting: _Waiting, place: int) -> Iterator[tuple[int, Group | None, Notification]]:
    """The notifications of a chain, each for its place."""
    for offset, notification in enumerate(waiting.chain):
        yield place + offset, waiting.group, notification


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
