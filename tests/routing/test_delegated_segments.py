"""`DelegatedSegments`: delegated segments, and the messages to delegates."""

from collections.abc import Sequence

from contrada.model import Envelope, Notification, Pattern
from contrada.patterns.runs import PatternLimits, RunBudget
from contrada.routing.assembly.split_pattern import (
    Action,
    DelegatedSegments,
    Segment,
    Span,
    SplitPattern,
)
from contrada.routing.delegation import (
    AskWatermark,
    DelegationPhase,
    HandOver,
    RecallPattern,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.router_messages import Client, Message, Neighbour, Send

N, M = Neighbour("n"), Neighbour("m")
ABCD = Pattern("kind = 'a' -> kind = 'b' -> kind = 'c' -> kind = 'd'")


def offer_spans(*spans: Span) -> tuple[DelegatedSegments, SplitPattern, list[Segment]]:
    """Returns a pattern with offers of these spans."""
    segments = DelegatedSegments()
    pattern = SplitPattern(0, Client("c"), "it", ABCD, RunBudget(PatternLimits()), hops=4)
    for span in spans:
        segments.offer(pattern, span)
    return segments, pattern, list(pattern.segments.values())


def messages_of(actions: Sequence[Action]) -> list[tuple[Neighbour, Message]]:
    """Returns the sent messages with their receivers."""
    return [(each.to, each.message) for each in actions if isinstance(each, Send)]


def test_an_offer_is_filed_under_its_answer() -> None:
    """An answer would be matched to another segment, or to none."""
    segments = DelegatedSegments()
    pattern = SplitPattern(0, Client("c"), "it", ABCD, RunBudget(PatternLimits()), hops=4)
    [(to, message)] = messages_of(segments.offer(pattern, Span(0, 2, N)))
    assert isinstance(message, SubscribePattern)
    assert to == N
    assert message.pattern == Pattern(ABCD.filters[:2], every=True)
    assert message.hops == 5, "a pattern that goes round would never be known to"
    [segment] = pattern.segments.values()
    assert segments.get(N, message.identity) == (pattern, segment)
    assert segments.get(M, message.identity) is None
    assert list(segments) == [segment]


def test_collected_pieces_go_to_the_delegate() -> None:
    """A delegate would begin without earlier pieces, or the asker keep them too."""
    segments, pattern, [segment] = offer_spans(Span(1, 3, N))
    note = Notification({"kind": "b"}, envelope=Envelope(id="b", time_us=50))
    pattern.hold(1, (note,))
    pattern.take_matches(40)
    [(to, message)] = messages_of(segments.hand_over(pattern, segment))
    assert to == N
    assert isinstance(message, HandOver)
    assert message.watermark_us == segment.watermark_us == 40
    assert [(each.place, each.notification) for each in message.pieces] == [(0, note)]
    assert len(pattern) == 0


def test_a_delegate_is_asked_only_where_its_answer_is_awaited() -> None:
    """Delegates would be asked repeatedly for known or impossible answers."""
    segments, _, [segment] = offer_spans(Span(1, 3, N))
    assert segments.ask_watermark(segment, 90, 100) == [], "it assembles nothing yet"
    segment.phase = DelegationPhase.DELEGATED
    segment.waits_us = waits_us = 20
    assert messages_of(segments.ask_watermark(segment, 90, 100)) == [
        (N, AskWatermark(segment.identity, 100))
    ]
    assert segment.waits_us != waits_us, "what it said before is answered by the next report"
    assert segments.ask_watermark(segment, 95, 105) == [], "it was asked already"
    segment.watermark_us = 90
    assert segments.ask_watermark(segment, 90, 100) == [], "it is as far"
    assert len(segments.ask_watermark(segment, 95, 105)) == 1


def test_a_segment_is_withdrawn_or_recalled() -> None:
    """A neighbour would collect in vain, or its pieces be lost."""
    segments, pattern, [one, other] = offer_spans(Span(0, 2, N), Span(2, 4, N))
    withdrawn = messages_of(segments.withdraw(pattern, one))
    assert withdrawn == [(N, UnsubscribePattern(one.identity))]
    assert [segment for _, segment in segments.at(N)] == [other]
    other.waits_us = waits_us = 5
    assert messages_of(segments.recall(other)) == [(N, RecallPattern(other.identity))]
    assert other.waits_us != waits_us
    assert len(segments) == 1, "it has still to be returned"
    segments.end(pattern, other)
    assert (len(segments), segments.at(N), pattern.segments) == (0, [], {})


def test_a_withdrawn_pattern_is_withdrawn_at_all_delegates() -> None:
    """Delegates would assemble in vain; or receive a second stop."""
    segments, pattern, [one, other] = offer_spans(Span(0, 2, N), Span(2, 4, M))
    other.phase = DelegationPhase.RETURNING
    assert messages_of(segments.forget(pattern)) == [(N, UnsubscribePattern(one.identity))]
    assert len(segments) == 0
    assert segments.get(M, other.identity) is None
