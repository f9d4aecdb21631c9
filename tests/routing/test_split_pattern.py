"""`SplitPattern`: delegated segments, local pieces, and the watermark."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.model import Envelope, Notification, Pattern
from contrada.model.domains.values import TIME_MIN_US
from contrada.patterns import Match
from contrada.patterns.runs import PatternLimits, RunBudget
from contrada.routing.assembly.split_pattern import (
    SEGMENT_PARTS_MIN,
    Segment,
    Span,
    SplitPattern,
    spans_of,
)
from contrada.routing.delegation import DelegationPhase
from contrada.routing.router_messages import Client, Neighbour, Origin

C, N, M = Client("c"), Neighbour("n"), Neighbour("m")
ABCD = Pattern("kind = 'a' -> kind = 'b' -> kind = 'c' -> kind = 'd' within 1 min")


def split(requester: Origin = C) -> SplitPattern:
    """A pattern of four parts."""
    return SplitPattern(0, requester, "it", ABCD, RunBudget(PatternLimits()))


def with_segment(
    phase: DelegationPhase, watermark_us: int = TIME_MIN_US
) -> tuple[SplitPattern, Segment]:
    """Returns the same pattern with the two middle parts delegated to N, or offered."""
    pattern, segment = split(), Segment("1", Span(1, 3, N), phase, watermark_us)
    pattern.segments["1"] = segment
    return pattern, segment


def of_kind(kind: str, time_us: int) -> Notification:
    """A notification of a kind."""
    return Notification({"kind": kind}, envelope=Envelope(publisher="p", time_us=time_us))


@given(st.lists(st.frozensets(st.sampled_from([N, M, None]), max_size=2), max_size=12))
def test_spans_are_the_longest_runs_of_one_source(
    sources: list[frozenset[Neighbour | None]],
) -> None:
    """A part with one source would be collected here, or one with several delegated."""
    spans = spans_of(sources)
    for first, end, neighbour in spans:
        assert all(each == {neighbour} for each in sources[first:end])
        assert sources[first - 1 : first] != [{neighbour}], "it begins earlier"
        assert sources[end : end + 1] != [{neighbour}], "it goes on"
    assert all(one.end <= other.first for one, other in pairwise(spans))
    inside = {place for span in spans for place in span.places()}
    for place, (one, other) in enumerate(pairwise(sources)):
        if one == other and len(one) == 1 and None not in one:
            assert {place, place + 1} <= inside
    assert all(len(span.places()) >= SEGMENT_PARTS_MIN for span in spans)


@pytest.mark.parametrize(
    ("phase", "needed", "from_n", "from_m"),
    [
        (DelegationPhase.OFFERED, [0, 1, 2, 3], True, True),
        (DelegationPhase.DELEGATED, [0, 3], False, False),
        (DelegationPhase.RETURNING, [0, 1, 2, 3], False, True),
    ],
)
def test_a_notification_counts_at_one_of_two_servers(
    phase: DelegationPhase, needed: list[int], from_n: bool, from_m: bool
) -> None:
    """It would be missed, or taken without its predecessors, during a hand-over."""
    pattern, _ = with_segment(phase)
    assert pattern.needed_places() == needed
    assert (pattern.accepts(1, N), pattern.accepts(2, M)) == (from_n, from_m)
    assert pattern.accepts(0, N)
    assert pattern.accepts(3, N)


@pytest.mark.parametrize(
    ("phase", "watermark_us"),
    [
        (DelegationPhase.OFFERED, 90),
        (DelegationPhase.DELEGATED, 40),
        (DelegationPhase.RETURNING, 40),
    ],
)
def test_the_watermark_is_the_least_of_all_holders(
    phase: DelegationPhase, watermark_us: int
) -> None:
    """A run would advance before a delegate's report, or wait for one without pieces."""
    pattern, _ = with_segment(phase, 40)
    assert pattern.watermark_at(90) == watermark_us
    pattern.take_matches(90)
    assert pattern.watermark_at(20) == watermark_us, "it never falls"


def test_reports_of_a_delegate_are_merged_in_order() -> None:
    """A match of parts from several servers would be missed."""
    pattern, segment = with_segment(DelegationPhase.DELEGATED)
    a, b, c, d = (of_kind(kind, time_us) for time_us, kind in enumerate("abcd", start=10))
    pattern.hold(3, (d,))
    assert pattern.hold_matches(segment, [Match("1", (), (b, c))]) == 0
    pattern.hold(0, (a,))
    segment.watermark_us = 13
    assert pattern.take_matches(90) == [], "it may still report something before d"
    segment.watermark_us = 14
    assert pattern.take_matches(90) == [Match("it", (), (a, b, c, d))]
    assert pattern.hold_matches(segment, [Match("1", (), (b, c))]) == 1, "it comes too late"


def test_a_wait_of_a_delegate_is_reported() -> None:
    """The asker would not send the time that a further delegate waits for."""
    pattern, segment = with_segment(DelegationPhase.DELEGATED)
    pattern.hold(0, (of_kind("a", 50),))
    assert pattern.waits_us == 50
    segment.waits_us = 30
    assert pattern.waits_us == 30
    assert split().waits_us is None


def test_the_end_of_a_segment_leaves_its_notifications() -> None:
    """A lost delegate's reports would be lost, or found by no other run."""
    pattern, segment = with_segment(DelegationPhase.DELEGATED)
    pattern.hold_matches(segment, [Match("1", (), (of_kind("b", 20), of_kind("c", 30)))])
    pattern.end_segment(segment)
    assert not pattern.segments
    assert len(pattern) == 2
    assert [piece.place for piece in pattern.take_out(0, len(pattern.pattern.filters))] == [1, 2]


def test_a_part_reports_every_start() -> None:
    """Only the whole pattern decides which run continues: matches would be lost."""
    part = split().part(Span(1, 3, N))
    assert part == Pattern(ABCD.filters[1:3], within_us=60_000_000, every=True)


def test_the_requester_decides_the_first_phase() -> None:
    """A delegate would assemble before its hand-over; or a client wait forever."""
    client, delegate = split(), split(N)
    assert (client.phase, client.gathers) == (DelegationPhase.DELEGATED, False)
    assert (delegate.phase, delegate.gathers) == (DelegationPhase.OFFERED, True)
    delegate.enter(DelegationPhase.HANDED_BACK)
    assert not delegate.gathers
    delegate.enter(DelegationPhase.RETURNING)
    assert delegate.gathers


def test_spans_that_overlap_a_segment_wait() -> None:
    """Two neighbours would assemble the same part."""
    pattern, _ = with_segment(DelegationPhase.RETURNING)
    assert not pattern.is_free(Span(2, 4, M))
    assert pattern.is_free(Span(3, 4, M))
    pattern.segments["2"] = Segment("2", Span(2, 4, M))
    with pytest.raises(AssertionError, match="overlap"):
        pattern.validate()
