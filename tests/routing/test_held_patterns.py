"""`HeldPatterns`: the progress of patterns, alone and with delegates."""

from collections.abc import Collection, Sequence

import pytest

from contrada.model import Envelope, Filter, Notification, Pattern
from contrada.model.domains.values import TIME_MIN_US
from contrada.patterns.pattern_engine import LATE
from contrada.patterns.runs import PatternLimits
from contrada.routing.assembly.assembler import Assembler
from contrada.routing.assembly.held_patterns import AHEAD, CLOCK_AHEAD_MAX_US, SourceMap
from contrada.routing.assembly.split_pattern import Action, SubscribeSegment, UnsubscribeSegment
from contrada.routing.delegation import AcceptPattern, HandBack, HandOver, ReportMatches
from contrada.routing.links.topology import Topology
from contrada.routing.router_messages import (
    Client,
    DeliverMatch,
    Neighbour,
    Origin,
    PatternEnded,
    Send,
)

C, N = Client("c"), Neighbour("n")
AB = Pattern("kind = 'a' -> kind = 'b'")


class FixedSources(SourceMap):
    """A source map with given sources."""

    def __init__(self, *, is_known: bool, sources: Collection[Neighbour] = ()) -> None:
        super().__init__(Topology(), () if is_known else None)
        self._sources = frozenset(sources)

    def sources(self, part: Filter, requester: Origin) -> frozenset[Neighbour | None]:
        """Returns the same for each part."""
        return frozenset(self._sources)

    def counts(self, origin: Origin, requester: Origin) -> bool:
        """Excludes the requester's own notifications."""
        return origin != requester


def assembler(*, is_known: bool, slack_us: int = 10) -> Assembler:
    """Returns an assembler without patterns."""
    return Assembler(FixedSources(is_known=is_known), slack_us=slack_us)


def of_kind(kind: str, time_us: int) -> Notification:
    """A notification of a kind."""
    return Notification({"kind": kind}, envelope=Envelope(publisher="p", time_us=time_us))


def push(it: Assembler, kind: str, time_us: int, origin: Origin = Client("p")) -> list[Action]:  # noqa: B008
    """Pushes a notification, with the numbers of its filters."""
    notification = of_kind(kind, time_us)
    numbers = [each.number for each in it._filters if each.filter.matches(notification)]
    actions = it.push(notification, origin, numbers)
    it.validate()
    return actions


def matches_of(actions: Sequence[Action]) -> list[str]:
    """Returns the delivered matches, as kinds and times."""
    return [
        " ".join(f"{each['kind']}{each.envelope.at_us}" for each in action.match.notifications)
        for action in actions
        if isinstance(action, DeliverMatch)
    ]


@pytest.mark.parametrize("is_known", [False, True], ids=["all in one buffer", "each by itself"])
def test_known_sources_change_no_match(is_known: bool) -> None:
    """A match would depend on the strategy of the network."""
    it = assembler(is_known=is_known)
    wants = it.subscribe(C, "it", AB)
    assert {each.filter for each in wants if isinstance(each, SubscribeSegment)} == set(AB.filters)
    assert push(it, "b", 30) == []
    assert push(it, "a", 20) == []
    assert it.due_us == 20
    assert it.learn(40) == [], "what lies at the watermark may have others before it"
    assert matches_of(it.learn(41)) == ["a20 b30"]
    assert assembler(is_known=is_known).due_us is None
    assert push(it, "a", 30) == []
    assert it.statistics().dropped == {LATE: 1}
    gone = it.unsubscribe(C, "it")
    assert {type(each) for each in gone} == {UnsubscribeSegment}
    it.validate()
    statistics = it.statistics()
    assert (statistics.patterns, statistics.filters, statistics.runs, statistics.waiting) == (
        0,
    ) * 4
    assert statistics.matched == 1


def test_equal_filters_of_all_patterns_are_wanted_once() -> None:
    """A server would subscribe to a filter repeatedly, or unsubscribe early."""
    it = assembler(is_known=False)
    assert len(it.subscribe(C, "1", AB)) == 2
    [want] = it.subscribe(C, "2", Pattern("kind = 'b' -> kind = 'c'"))
    assert isinstance(want, SubscribeSegment)
    assert want.filter == Filter("kind = 'c'")
    shared = it.subscribe(N, "3", AB)
    assert [type(each) for each in shared] == [Send], "a neighbour's has the same filters"
    it.validate()
    assert len(it.unsubscribe(C, "1")) == 0
    assert len(it.unsubscribe(N, "3")) == 1
    assert len(it.forget(C)) == 2
    assert len(it) == 0


def test_a_pattern_sees_later_notifications_only() -> None:
    """A new pattern would inherit the state of removed ones."""
    it = assembler(is_known=False)
    it.subscribe(C, "1", AB)
    push(it, "a", 50)
    it.unsubscribe(C, "1")
    it.learn(100)
    it.subscribe(C, "2", AB)
    assert push(it, "a", 89) == [], "it is late, also where nothing was wanted until now"
    assert push(it, "b", 95) == []
    assert it.statistics().dropped == {LATE: 1}
    assert it.learn(1_000) == []


def test_a_time_far_ahead_is_not_learned() -> None:
    """One wrong clock would make everything late."""
    it = assembler(is_known=False)
    it.clock_us = 5
    assert it.learn(CLOCK_AHEAD_MAX_US + 6) == []
    assert it.learned_us == TIME_MIN_US
    it.learn(CLOCK_AHEAD_MAX_US + 5)
    assert it.learned_us == CLOCK_AHEAD_MAX_US + 5
    assert it.statistics().dropped == {AHEAD: 1}


def test_a_delegate_gathers_then_reports() -> None:
    """A neighbour's pattern would be assembled before the hand-over, or never reported."""
    it = assembler(is_known=True)
    accepted = it.subscribe(N, "it", AB)
    assert [each.message for each in accepted if isinstance(each, Send)] == [AcceptPattern("it")]
    assert push(it, "a", 20) == []
    assert push(it, "b", 30, N) == [], "who asks has its own"
    assert it.receive(N, HandOver("it", 10, ())) is not None
    push(it, "b", 40)
    [report] = [each.message for each in it.learn(60) if isinstance(each, Send)]
    assert isinstance(report, ReportMatches)
    assert (len(report.matches), report.watermark_us, report.waits_us) == (1, 50, None)


@pytest.mark.parametrize("is_known", [False, True], ids=["all in one buffer", "each by itself"])
def test_a_publication_has_the_work_of_a_turn(is_known: bool) -> None:
    """Each match would wait for the clock of the server."""
    it = assembler(is_known=is_known)
    it.subscribe(C, "it", AB)
    found: list[Action] = []
    for kind, time_us in (("a", 20), ("b", 30), ("c", 60)):
        it.begin_turn(0)
        found += push(it, kind, time_us)
    assert matches_of(found) == ["a20 b30"]


def test_the_notification_of_a_requester_counts_for_others() -> None:
    """It would be missed by all patterns that are behind one of the requester."""
    it = assembler(is_known=True)
    it.subscribe(N, "it", AB)
    it.subscribe(C, "it", AB)
    push(it, "a", 20, N)
    push(it, "b", 30, N)
    assert matches_of(it.learn(60)) == ["a20 b30"]


def test_a_pattern_is_handed_back_once() -> None:
    """A neighbour would receive it repeatedly, or before its hand-over."""
    it = assembler(is_known=True)
    it.subscribe(N, "it", AB)
    assert it.hand_back(N, "it") == [], "there is nothing to hand back yet"
    it.receive(N, HandOver("it", 10, ()))
    assert it.hand_back(N, "it") == [Send(N, HandBack("it"))]
    assert it.hand_back(N, "it") == []
    assert it.hand_back(N, "unknown") == []


def test_work_is_done_in_turns_of_the_clock_and_charged() -> None:
    """Costly patterns would slow all publishers, or cost their subscriber nothing."""
    limits = PatternLimits(turn_work_max=10, client_work_max=500)
    it = Assembler(FixedSources(is_known=False), slack_us=10, limits=limits)
    every = Pattern("every kind = 'a' -> kind = 'b'")
    costly, modest = Client("costly"), Client("modest")
    it.subscribe(modest, "ab", AB)
    for number in range(20):
        it.subscribe(costly, str(number), every)
    it.begin_turn(0)
    for time_us in range(50):
        push(it, "a", time_us)
    push(it, "b", 60)
    found: list[Action] = []
    for time_us in range(100, 110):  # Publications do none of the work that is left.
        it.begin_turn(time_us)
        before = it._engine.work
        found += push(it, "c", time_us)
        assert it._engine.work - before <= 10 + 5 * 50 + 1
        assert not it._engine.is_behind or it._engine.work - before < 10 or time_us == 100
    assert it.due_us == TIME_MIN_US, "the rest is due at once"
    ended: list[PatternEnded] = []
    while it._engine.is_behind:
        it.begin_turn(110)
        before = it._engine.work
        found += it.pass_time(110)
        assert it._engine.work - before <= 10 + 5 * 50 + 1
        ended = [each for each in found if isinstance(each, PatternEnded)]
        for each in ended:
            if it.knows(each.client, each.subscription):
                found += it.unsubscribe(each.client, each.subscription)
    it.validate()
    assert ended
    assert {each.client for each in ended} == {costly}
    got = [each for each in found if isinstance(each, DeliverMatch)]
    assert sum(each.client == modest for each in got) == 1
    assert 0 < sum(each.client == costly for each in got) < 20 * 50


def test_split_patterns_are_advanced_in_turns_and_charged() -> None:
    """Costly patterns of a network would slow all publishers, or cost their subscriber nothing."""
    limits = PatternLimits(turn_work_max=10, client_work_max=500)
    it = Assembler(FixedSources(is_known=True), slack_us=10, limits=limits)
    costly, modest = Client("costly"), Client("modest")
    it.subscribe(modest, "ab", AB)
    for number in range(20):
        it.subscribe(costly, str(number), Pattern("every kind = 'a' -> kind = 'b'"))
    assert len(it._split) == 21
    one = 4 * 50 + 10  # The work of one pattern, which is not cut.
    found: list[Action] = []
    it.begin_turn(0)
    for time_us in range(50):
        found += push(it, "a", time_us)
    found += push(it, "b", 60)
    turns = 0
    while it.due_us is not None and it.due_us < 100:
        before = sum(each.runs.work for each in it._split.values())
        it.begin_turn(110)
        found += push(it, "c", 100)
        assert sum(each.runs.work for each in it._split.values()) - before <= 10 + one
        before = sum(each.runs.work for each in it._split.values())
        found += it.pass_time(110)
        assert sum(each.runs.work for each in it._split.values()) - before <= 10 + one
        turns += 1
        for each in [each for each in found if isinstance(each, PatternEnded)]:
            if it.knows(each.client, each.subscription):
                it.unsubscribe(each.client, each.subscription)
    it.validate()
    assert turns > 2
    ended = [each for each in found if isinstance(each, PatternEnded)]
    assert {each.client for each in ended} == {costly}
    got = [each for each in found if isinstance(each, DeliverMatch)]
    assert sum(each.client == modest for each in got) == 1
    assert sum(each.client == costly for each in got) == 20 * 50, "they ended afterwards"


def test_a_charge_is_forgotten_with_time() -> None:
    """A subscriber that is costly for a moment, now and then, would be ended in the end."""
    limits = PatternLimits(turn_work_max=10, client_work_max=500)
    it = Assembler(FixedSources(is_known=False), limits=limits)
    it.subscribe(C, "0", Pattern("every kind = 'a' -> kind = 'b'"))
    for round_ in range(1, 20):
        start_us = round_ * 1_000_000
        for number in range(50):
            it.begin_turn(start_us)
            push(it, "a", start_us + number)
        push(it, "b", start_us + 60)
        it.begin_turn(start_us)
        actions = it.pass_time(start_us + 100)
        while it._engine.is_behind:
            it.begin_turn(start_us)
            actions += it.pass_time(start_us + 100)
        assert not [each for each in actions if isinstance(each, PatternEnded)]
