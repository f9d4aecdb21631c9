"""Splitting patterns, and hand-shakes between servers at limits and with invalid messages."""

from collections.abc import Iterable
from typing import TypeVar

import pytest
from msgspec.structs import replace

from contrada.model import Advertisement, Envelope, Filter, Notification, Pattern
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains.values import TIME_MIN_US
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from contrada.patterns import Match
from contrada.patterns.pattern_assembly import GATHERED_FULL, Piece
from contrada.patterns.pattern_engine import LATE
from contrada.patterns.runs import REFUSED, PatternLimits, RunBudget
from contrada.routing.assembly import assembler
from contrada.routing.assembly.held_patterns import AHEAD, CLOCK_AHEAD_MAX_US
from contrada.routing.assembly.split_pattern import Span, SplitPattern, spans_of
from contrada.routing.delegation import (
    AcceptPattern,
    AskWatermark,
    DelegationPhase,
    HandBack,
    HandOver,
    PatternMessage,
    RecallPattern,
    ReportMatches,
    ReturnPattern,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    Advertise,
    Client,
    ClientGone,
    DeliverMatch,
    Effect,
    LinkUp,
    Neighbour,
    Publish,
    Reason,
    Received,
    Refused,
    Role,
    Send,
    TimePassed,
    Unadvertise,
)
from contrada.routing.tables.next_hop_cache import ITSELF
from tests.routing.assembly_worlds import Network

N, M = Neighbour("n"), Neighbour("m")

Said = TypeVar("Said", bound=PatternMessage)


class Line(Network):
    """Servers 0 to 2 in a line of peers; kinds are advertised by a publisher of each."""

    def __init__(self, kinds: Iterable[str], limits: PatternLimits | None = None) -> None:
        super().__init__(
            3, {(0, 1): 5, (1, 2): 5}, slack_us=20, limits=limits or PatternLimits(), validate=True
        )
        self.link([(0, 1, False), (1, 2, False)])
        self.numbered = 0
        for server, kind in enumerate(kinds):
            if kind:
                self.advertise(server, kind)
        self.settle()

    def advertise(self, server: int, kinds: str) -> None:
        names = ", ".join(f"'{kind}'" for kind in kinds)
        offer = Advertisement(f"kind in ({names}) and n any")
        self.say(server, f"p{server}", Advertise(kinds, offer))

    def publish(self, server: int, text: str) -> None:
        """Publishes notifications of kinds, such as "a b", one after another."""
        for kind in text.split():
            self.numbered += 1
            envelope = Envelope(
                id=f"{kind}{self.numbered}",
                publisher=f"p{server}",
                sequence=self.numbered,
                time_us=1_000 + self.numbered,
            )
            self.say(
                server, f"p{server}", Publish((Notification({"kind": kind}, envelope=envelope),))
            )
            self.settle()

    def subscribe(self, server: int, kinds: str, *, every: bool = False) -> None:
        parts = [Filter(f"kind = '{kind}'") for kind in kinds]
        self.say(server, "c", SubscribePattern("it", Pattern(parts, every=every)))
        self.settle()

    def found(self, server: int = 0) -> list[str]:
        """Returns the client's matches once its server has learned later times."""
        self.servers[server].tell(TimePassed(10_000))
        self.settle()
        given, self.given["c"] = self.given["c"], []
        return [" ".join(each.envelope.id for each in match.notifications) for match in given]

    def spans(self, server: int = 0) -> list[tuple[int, int, str]]:
        spans = self.servers[server].delegated("c")
        return [(first, end, neighbour.name) for first, end, neighbour in spans]


@pytest.mark.parametrize(
    ("sources", "spans"),
    [
        ([], []),
        ([{N}], []),
        ([{N}, {N}], [Span(0, 2, N)]),
        ([{N}, {M}, {M}, {N}], [Span(1, 3, M)]),
        ([{N}, {N}, {M}, {M}, {M}], [Span(0, 2, N), Span(2, 5, M)]),
        ([{N}, {N, M}, {N}, {N}], [Span(2, 4, N)]),
        ([{N}, {N, None}, {None}, {None}], []),
        ([set(), {N}, {N}, set()], [Span(1, 3, N)]),
    ],
)
def test_maximal_runs_of_parts_are_delegated(
    sources: list[set[Neighbour | None]], spans: list[Span]
) -> None:
    """A part with one source would be assembled here, or one with several delegated."""
    assert spans_of(map(frozenset, sources)) == spans


def test_a_pattern_is_assembled_at_its_sources() -> None:
    """Single notifications would travel instead of matches."""
    network = Line(["", "", "ab"])
    network.subscribe(0, "ab")
    assert network.spans() == [(0, 2, "1")]
    network.sent.clear()
    network.publish(2, "a a a b")
    assert network.found() == ["a1 b4"]
    assert network.sent["Publish"] == 0
    assert network.servers[2].assembler.statistics().reported == 3, "each start is reported"
    assert network.servers[0].assembler.statistics().matched == 1, "one run at a time here"


def test_parts_of_several_neighbours_are_joined() -> None:
    """A sub-pattern and single notifications would not be ordered."""
    network = Line(["x", "", "ab"])
    network.subscribe(0, "xabx")
    assert network.spans() == [(1, 3, "1")]
    network.publish(0, "x")
    network.publish(2, "a b")
    network.publish(0, "x")
    assert network.found() == ["x1 a2 b3 x4"]


def test_a_quiet_delegate_holds_nothing_up() -> None:
    """A match would wait for the delegate's own clients."""
    network = Line(["xy", "", "ab"])
    network.subscribe(0, "xyab")
    network.publish(0, "x y")
    network.publish(2, "a b")
    assert network.given["c"] == []
    network.publish(0, 30 * "x ")
    assert [match.notifications[-1].envelope.id for match in network.given["c"]] == ["b4"]


def test_runs_go_on_when_the_split_changes() -> None:
    """Pieces from before a change of advertisements would be lost."""
    network = Line(["", "", "abc"])
    network.subscribe(0, "abc")
    network.publish(2, "a")
    network.advertise(0, "c")
    network.settle()
    assert network.spans() == [(0, 2, "1")]
    network.publish(2, "b")
    network.say(0, "p0", Unadvertise("c"))
    network.settle()
    assert network.spans() == [(0, 3, "1")]
    network.advertise(0, "b")
    network.settle()
    assert network.spans() == []
    network.publish(2, "c")
    assert network.found() == ["a1 b2 c3"]


def test_a_full_delegate_hands_back() -> None:
    """A delegate would fill its memory, lose pieces, or refuse without a count."""
    network = Line(["", "", "ab"], PatternLimits(runs_max=3))
    network.subscribe(0, "ab", every=True)
    network.publish(2, "a a a a")
    network.servers[2].tell(TimePassed(5_000))
    network.settle()
    patterns = [each.assembler.statistics() for each in network.servers]
    assert [each.patterns for each in patterns] == [1, 1, 0], "it is assembled upstream"
    dropped = [each.assembler.statistics().dropped for each in network.servers]
    assert dropped == [{}, {}, {REFUSED: 1}]
    envelope = Envelope(id="b", publisher="p2", sequence=9, time_us=6_000)
    network.say(2, "p2", Publish((Notification({"kind": "b"}, envelope=envelope),)))
    network.settle()
    assert network.found() == ["a1 b", "a2 b", "a3 b"], "what it had taken is not lost"
    network.cut(1, 2)
    network.link([(1, 2, False)])
    network.settle()
    assert network.servers[2].assembler.statistics().patterns == 1, "it is asked again"


def test_a_delegate_is_asked_again_after_a_new_link() -> None:
    """A delegate that was full once would never be used again."""
    network = Line(["", "", "ab"], PatternLimits(runs_max=3))
    network.subscribe(1, "ab", every=True)
    assert network.spans(1) == [(0, 2, "2")]
    network.publish(2, "a a a a")
    network.servers[2].tell(TimePassed(5_000))
    network.settle()
    assert network.spans(1) == [], "it has handed back"
    network.cut(1, 2)
    network.link([(1, 2, False)])
    network.settle()
    assert network.spans(1) == [(0, 2, "2")]


def test_a_looping_delegation_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers with different link states would delegate a pattern to one another forever."""
    monkeypatch.setattr(assembler, "DELEGATIONS_MAX", 1)
    network = Line(["", "", "ab"])
    network.subscribe(0, "ab")
    assert network.spans() == [(0, 2, "1")]
    assert not network.servers[2].assembler.statistics().patterns
    network.publish(2, "a b")
    assert network.found() == ["a1 b2"]
    assert not network.refused, "who handed back at once is not told of an end"


def test_a_pattern_with_an_unknown_operator_is_assembled_elsewhere() -> None:
    """A neighbour's pattern would end the link, or wait for ever; a client's be an error here."""
    strange = ValueSet((), Literal(Atom("nobody's", b"x"), positive=True))
    message = SubscribePattern("1", Pattern([Filter.of_sets({"a": strange})] * 2))
    router = Router()
    router.handle(LinkUp(N, Role.PEER), 0)
    assert router.handle(Received(N, message), 0) == [Send(N, HandBack("1"))]
    event = Received(Client("c"), message)
    assert router.handle(event, 0) == [Refused(event, Reason.UNKNOWN_OPERATOR)]
    assert not router.knows(Client("c"))


def test_a_restored_link_serves_again() -> None:
    """After a failure a pattern would wait for a delegate without its pieces."""
    network = Line(["", "", "ab"])
    network.subscribe(0, "ab")
    network.publish(2, "a")
    network.cut(0, 1)
    network.settle()
    assert network.spans() == []
    assert network.servers[0].assembler.statistics().dropped == {assembler.LOST: 1}
    assert [each.assembler.statistics().patterns for each in network.servers] == [1, 0, 0]
    network.link([(0, 1, False)])
    network.settle()
    assert network.spans() == [(0, 2, "1")]
    network.publish(2, "a b")
    assert network.found() == ["a2 b3"]


def test_a_disconnected_client_leaves_nothing() -> None:
    """Patterns of disconnected clients would still be assembled."""
    network = Line(["x", "", "ab"])
    network.subscribe(0, "xab")
    network.servers[0].tell(ClientGone(Client("c")))
    network.settle()
    for each in network.servers:
        assert not each.assembler.statistics().patterns
        assert not each.router.filters_of(ITSELF).filters
    assert not network.refused


def test_subscription_forwarding_assembles_at_the_access_point() -> None:
    """With unknown sources, a pattern would be assembled away from some of them."""
    network = Network(2, {(0, 1): 5}, strategy=Strategy.SUBSCRIPTIONS, slack_us=20)
    network.link([(0, 1, False)])
    network.say(0, "c", SubscribePattern("it", Pattern("kind = 'a' -> kind = 'b'")))
    network.settle()
    assert not network.servers[0].delegated("c")
    assert len(network.servers[1].router.filters_of(Neighbour("0")).filters) == 2


def router_with_pattern() -> Router:
    """A router with one neighbour that has advertised a and b."""
    router = Router(Strategy.ADVERTISEMENTS, slack_us=10)
    router.handle(LinkUp(N, Role.PEER), 0)
    router.handle(Received(N, Advertise("0", Advertisement("kind in ('a', 'b')"))), 0)
    return router


AB = Pattern("kind = 'a' -> kind = 'b'")
A = Notification({"kind": "a"}, envelope=Envelope(id="a", publisher="p", time_us=50))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (HandOver("x", 0, ()), Reason.WRONG_PATTERN),
        (AskWatermark("x", 0), Reason.WRONG_PATTERN),
        (RecallPattern("x"), Reason.WRONG_PATTERN),
        (UnsubscribePattern("x"), Reason.WRONG_PATTERN),
        (SubscribePattern("known", AB), Reason.WRONG_PATTERN),
        (AskWatermark("known", 0), Reason.WRONG_PATTERN),
        (RecallPattern("known"), Reason.WRONG_PATTERN),
        (HandOver("known", 0, (Piece(2, None, A),)), Reason.WRONG_PATTERN),
        (AcceptPattern("own"), Reason.WRONG_PATTERN),
        (ReturnPattern("own", 0, ()), Reason.WRONG_PATTERN),
        (ReportMatches("own", (Match("own", (), (A,)),), 0), Reason.WRONG_PATTERN),
        (SubscribePattern("x", AB, version=2), Reason.VERSION),
        (HandBack(256 * "x"), Reason.TOO_LONG),
    ],
)
def test_unfitting_messages_are_refused(said: PatternMessage, reason: Reason) -> None:
    """A faulty neighbour would change tables, or stop the server."""
    router = router_with_pattern()
    router.handle(Received(N, SubscribePattern("known", AB)), 0)
    effects = router.handle(Received(Client("c"), SubscribePattern("it", AB)), 0)
    [own] = [
        each.message.identity
        for each in effects
        if isinstance(each, Send) and isinstance(each.message, SubscribePattern)
    ]
    router.handle(Received(N, AcceptPattern(own)), 0)
    before = router.statistics()
    event = Received(N, replace(said, identity=own) if said.identity == "own" else said)
    assert router.handle(event, 0) == [Refused(event, reason)]
    router.validate()
    assert router.statistics().patterns == before.patterns


def test_answers_for_withdrawn_patterns_change_nothing() -> None:
    """An answer that crosses a withdrawal would be an error, or affect another pattern."""
    router = router_with_pattern()
    router.handle(Received(Client("c"), SubscribePattern("it", AB)), 0)
    router.handle(Received(Client("c"), UnsubscribePattern("it")), 0)
    for answer in (AcceptPattern("1"), ReportMatches("1", (), 5), ReturnPattern("1", 5, ())):
        assert router.handle(Received(N, answer), 0) == []
    statistics = router.statistics().patterns
    assert (statistics.stale, statistics.patterns) == (3, 0)
    assert statistics.learned_us == TIME_MIN_US


def test_clients_that_err_are_refused() -> None:
    """A client could take another's identity, or act as a server."""
    router = router_with_pattern()
    client = Client("c")
    router.handle(Received(client, SubscribePattern("it", AB)), 0)
    assert router.handle(Received(client, SubscribePattern("it", AB)), 0) == []
    other = Pattern("kind = 'b' -> kind = 'a'")
    refusals: list[tuple[PatternMessage, Reason]] = [
        (SubscribePattern("it", other), Reason.IDENTITY_IN_USE),
        (UnsubscribePattern("other"), Reason.UNKNOWN_SUBSCRIPTION),
        (RecallPattern("it"), Reason.WRONG_PATTERN),
        (SubscribePattern("no", Pattern("a < 1 and a > 2 -> b = 1")), Reason.UNSATISFIABLE),
    ]
    for message, reason in refusals:
        event = Received(client, message)
        assert router.handle(event, 0) == [Refused(event, reason)]
    event = Received(ITSELF, SubscribePattern("it", AB))
    assert router.handle(event, 0) == [Refused(event, Reason.UNKNOWN_CLIENT)]
    assert router.statistics().patterns.patterns == 1


def messages_of(effects: Iterable[Effect], kind: type[Said]) -> list[Said]:
    """Returns the sent messages of a kind."""
    sent = [each.message for each in effects if isinstance(each, Send)]
    return [each for each in sent if isinstance(each, kind)]


def of_kind(kind: str, time_us: int) -> Notification:
    """A notification of a client here."""
    envelope = Envelope(id=f"{kind}{time_us}", publisher="p", time_us=time_us)
    return Notification({"kind": kind}, envelope=envelope)


def delegate() -> Router:
    """Returns a router with a delegated pattern a -> b of n, and a client that publishes both."""
    router = Router(Strategy.ADVERTISEMENTS, slack_us=10)
    router.handle(LinkUp(N, Role.PEER), 0)
    router.handle(Received(Client("p"), Advertise("p", Advertisement("kind any"))), 0)
    every = Pattern(AB.filters, every=True)
    assert messages_of(router.handle(Received(N, SubscribePattern("it", every)), 0), AcceptPattern)
    return router


def publish(router: Router, kind: str, time_us: int) -> list[Effect]:
    return router.handle(Received(Client("p"), Publish((of_kind(kind, time_us),))), 0)


def test_pieces_of_the_asker_are_not_taken_twice() -> None:
    """A match would be found twice: by the asker, before the hand-over, and by its delegate."""
    router = delegate()
    for time_us in (50, 70):
        publish(router, "a", time_us)
    early = Piece(0, None, of_kind("a", 30))
    router.handle(Received(N, HandOver("it", 60, (early,))), 0)
    publish(router, "b", 80)
    effects = router.handle(TimePassed(200), 0)
    [report] = messages_of(effects, ReportMatches)
    starts = [match.notifications[0].envelope.id for match in report.matches]
    assert starts == ["a30", "a70"]


def test_pieces_below_the_askers_watermark_are_late() -> None:
    """A delegate would report matches that its asker must drop."""
    assembly = SplitPattern(0, N, "it", AB, RunBudget(PatternLimits()))
    assert not assembly.is_late(59)
    assembly.begin(60, ())
    assert (assembly.is_late(59), assembly.is_late(60)) == (True, False)


def test_a_watermark_tells_of_a_time() -> None:
    """A match would wait here for a time that a neighbour has reported."""
    router = router_with_pattern()
    effects = router.handle(Received(Client("c"), SubscribePattern("it", AB)), 0)
    [asked] = messages_of(effects, SubscribePattern)
    router.handle(Received(N, AcceptPattern(asked.identity)), 0)
    router.handle(Received(N, ReportMatches(asked.identity, (), 500)), 0)
    assert router.statistics().patterns.learned_us == 500 + 10


def test_a_recalled_pattern_reports_no_more() -> None:
    """Matches would be reported in addition to the returned notifications."""
    router = delegate()
    router.handle(Received(Client("p"), Unadvertise("p")), 0)
    router.handle(LinkUp(M, Role.PEER), 0)
    router.handle(Received(M, Advertise("0", Advertisement("kind in ('a', 'b')"))), 0)
    effects = router.handle(Received(N, HandOver("it", 0, ())), 0)
    [asked] = messages_of(effects, SubscribePattern)
    router.handle(Received(M, AcceptPattern(asked.identity)), 0)
    [recalled] = messages_of(router.handle(Received(N, RecallPattern("it")), 0), RecallPattern)
    router.handle(Received(Client("p"), Advertise("p", Advertisement("kind any"))), 0)
    effects = [*publish(router, "a", 50), *publish(router, "b", 51)]
    effects += router.handle(TimePassed(1_000), 0)
    assert messages_of(effects, ReportMatches) == []
    effects = router.handle(Received(M, ReturnPattern(recalled.identity, 0, ())), 0)
    [returned] = messages_of(effects, ReturnPattern)
    assert [piece.notification.envelope.id for piece in returned.pieces] == ["a50", "b51"]
    router.validate()


def test_a_split_follows_links_and_clients() -> None:
    """A part would be collected here although it has one source left, or delegated with several.

    Nothing is advertised at these moments.
    """
    network = Line(["a", "", "ab"])
    network.subscribe(1, "ab")
    assert network.spans(1) == []
    network.cut(0, 1)
    network.settle()
    assert network.spans(1) == [(0, 2, "2")]
    network = Line(["a", "", "ab"])
    network.subscribe(0, "ab")
    assert network.spans() == []
    network.servers[0].tell(ClientGone(Client("p0")))
    network.settle()
    assert network.spans() == [(0, 2, "1")]
    tree = Network(2, {(0, 1): 5}, strategy=Strategy.ADVERTISEMENTS)
    tree.say(1, "c", SubscribePattern("it", AB))
    tree.link([(0, 1, True)])
    tree.settle()
    assert tree.servers[1].delegated("c") == [Span(0, 2, Neighbour("0"))]


def test_unmatched_notifications_advance_the_time() -> None:
    """A match would wait despite later publications at its client's server."""
    network = Line(["z", "", "ab"])
    network.subscribe(0, "ab")
    network.publish(2, "a b")
    assert network.given["c"] == []
    network.publish(0, 30 * "z ")
    assert len(network.given["c"]) == 1


def test_a_time_far_ahead_of_the_clock_is_not_believed() -> None:
    """One wrong clock would make all later notifications late, at every server."""
    router = Router()
    router.handle(Received(Client("c"), SubscribePattern("it", AB)), 0)
    publish(router, "z", CLOCK_AHEAD_MAX_US + 1)
    publish(router, "a", CLOCK_AHEAD_MAX_US + 1)
    counted = router.pattern_statistics()
    assert (counted.learned_us, counted.waiting) == (TIME_MIN_US, 0)
    publish(router, "a", 10)
    publish(router, "b", CLOCK_AHEAD_MAX_US)
    effects = router.handle(TimePassed(CLOCK_AHEAD_MAX_US + 1), 1)
    [match] = [each.match for each in effects if isinstance(each, DeliverMatch)]
    assert match.notifications[0].envelope.id == "a10"
    assert router.pattern_statistics().dropped == {AHEAD: 2}
    envelope = Envelope(id="after", publisher="p", time_us=CLOCK_AHEAD_MAX_US)
    it = Notification({"kind": "a"}, envelope=envelope)
    router.handle(Received(Client("p"), Publish((it,))), -1)  # The clock was put back.
    assert router.pattern_statistics().dropped == {AHEAD: 3}


def test_time_is_learned_where_no_pattern_is_asked_for() -> None:
    """A later pattern would accept late notifications, or find all late by a wrong clock."""
    router = Router()
    publish(router, "z", 50)
    publish(router, "z", CLOCK_AHEAD_MAX_US + 1)
    publish(router, "z", 20)
    counted = router.pattern_statistics()
    assert (counted.learned_us, counted.dropped) == (50, {AHEAD: 1})


def test_a_clock_that_jumps_is_refused() -> None:
    """Waiting matches would be early, or later notifications late."""
    router = Router()
    assert router.handle(TimePassed(100), 100) == []
    for event, now_us in ((TimePassed(99), 99), (TimePassed(CLOCK_AHEAD_MAX_US + 201), 200)):
        assert router.handle(event, now_us) == [Refused(event, Reason.CLOCK_JUMPED)]
    assert router.pattern_statistics().learned_us == 100
    assert router.statistics().refused == {Reason.CLOCK_JUMPED: 2}
    assert router.handle(TimePassed(100), 0) == []


def test_late_notifications_are_counted() -> None:
    """A match would depend on unrelated deadlines, or be lost in silence."""
    router = Router(slack_us=10)
    router.handle(Received(Client("c"), SubscribePattern("it", AB)), 0)
    publish(router, "b", 200)
    assert publish(router, "a", 189) == []
    publish(router, "a", 190)
    publish(router, "b", 210)
    effects = router.handle(TimePassed(1_000), 0)
    [match] = [each.match for each in effects if isinstance(each, DeliverMatch)]
    assert match.notifications[0].envelope.id == "a190"
    assert router.pattern_statistics().dropped == {LATE: 1}


def test_a_delegate_reports_each_wait() -> None:
    """Its asker would not send the time again, and a match would wait forever."""
    router = delegate()
    router.handle(Received(N, HandOver("it", 0, ())), 0)
    waits = [messages_of(publish(router, "a", 50), ReportMatches)]
    waits.append(messages_of(publish(router, "b", 55), ReportMatches))
    waits.append(messages_of(router.handle(Received(N, AskWatermark("it", 100)), 0), ReportMatches))
    waits.append(messages_of(publish(router, "a", 120), ReportMatches))
    assert [[each.waits_us for each in reports] for reports in waits] == [[50], [], [None], [120]]


def test_a_delegate_is_asked_one_question_at_a_time() -> None:
    """Each later time would be sent to a delegate that has not answered yet."""
    router = router_with_pattern()
    abc = Pattern("kind = 'a' -> kind = 'b' -> kind = 'c'")
    router.handle(Received(Client("p"), Advertise("p", Advertisement("kind = 'c'"))), 0)
    effects = router.handle(Received(Client("c"), SubscribePattern("it", abc)), 0)
    [asked] = messages_of(effects, SubscribePattern)
    router.handle(Received(N, AcceptPattern(asked.identity)), 0)
    publish(router, "c", 50)
    assert len(messages_of(router.handle(TimePassed(100), 0), AskWatermark)) == 1
    publish(router, "c", 95)
    assert messages_of(router.handle(TimePassed(150), 0), AskWatermark) == []
    answer = ReportMatches(asked.identity, (), 90)
    assert len(messages_of(router.handle(Received(N, answer), 0), AskWatermark)) == 1


@pytest.mark.parametrize("recalled", [False, True])
def test_a_collecting_server_drops_the_newest(recalled: bool) -> None:
    """Memory would be unbounded during a hand-over, or too much be lost."""
    budget = RunBudget(PatternLimits(pending_max=2))
    assembly = SplitPattern(0, N, "it", AB, budget)
    if recalled:
        assembly.begin(0, ())
        assembly.enter(DelegationPhase.RETURNING)
    for time_us in (10, 30, 20):
        assembly.hold(0, (of_kind("a", time_us),))
    assert [
        each.notification.envelope.id
        for each in assembly.take_out(0, len(assembly.pattern.filters))
    ] == ["a10", "a20"]
    assert budget.dropped == {GATHERED_FULL: 1}


def test_an_assembler_continues_without_silent_delegates() -> None:
    """A silent neighbour would fill this server's memory, or stop it."""
    assembly = SplitPattern(0, Client("c"), "it", AB, RunBudget(PatternLimits(pending_max=2)))
    for place, kind, time_us in ((0, "a", 10), (1, "b", 20), (0, "a", 30)):
        assembly.hold(place, (of_kind(kind, time_us),))
    assert (assembly.is_late(10), assembly.is_late(11)) == (True, False)
    assert assembly.take_matches(TIME_MIN_US) == []
    assert len(assembly) == 2
    [match] = assembly.take_matches(21)
    assert [each.envelope.id for each in match.notifications] == ["a10", "b20"]
