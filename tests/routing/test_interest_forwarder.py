"""`InterestForwarder` in a single router: its messages, their order, and its refusals."""

from contextlib import suppress
from typing import Any, Final

import pytest

from contrada.errors import InvalidValueError, LimitError
from contrada.model import Advertisement, Filter, FilterSet, Notification, Pattern, Product
from contrada.model.algebra.product import product_meets
from contrada.model.languages.work_budget import Work
from contrada.routing import interest_forwarder
from contrada.routing.delegation import SubscribePattern
from contrada.routing.links.topology import Topology
from contrada.routing.router import Router, Strategy
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    Advertise,
    Client,
    ClientGone,
    Deliver,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Message,
    Neighbour,
    Publish,
    Reason,
    Received,
    Refused,
    Role,
    Send,
    Subscribe,
    TurnPassed,
    Unadvertise,
    Unsubscribe,
)
from contrada.routing.tables import poset
from contrada.routing.tables.next_hop_cache import ITSELF

ANN, BOB = Client("ann"), Client("bob")
L, M, N, P = (Neighbour(name) for name in "LMNP")
WIDE, NARROW = Filter("a > 0"), Filter("a > 5")


def router_with(
    *roles: tuple[Neighbour, Role],
    strategy: Strategy = Strategy.SUBSCRIPTIONS,
    limits: RouterLimits = RouterLimits(),
) -> Router:
    """Returns a router with these links."""
    router = Router(strategy, limits=limits)
    for neighbour, role in roles:
        router.handle(LinkUp(neighbour, role), 0)
    return router


def effects_of(router: Router, origin: Client | Neighbour, message: Message) -> list[Effect]:
    """Returns the effects of a message, with checked invariants."""
    effects = router.handle(Received(origin, message), 0)
    router.validate()
    return effects


PEERS: Final = ((L, Role.PEER), (M, Role.PEER), (N, Role.PEER))


def test_each_link_gets_one_copy() -> None:
    """A notification would be sent once per subscription, or back to its sender."""
    router = router_with(*PEERS)
    for identity, text in enumerate(("a > 0", "a > 1", "a = 7")):
        effects_of(router, M, Subscribe(f"{identity}", Filter(text)))
        effects_of(router, ANN, Subscribe(f"{identity}", Filter(text)))
    effects_of(router, L, Subscribe("1", Filter("a > 0")))
    seven = Notification({"a": 7})
    assert effects_of(router, L, Publish((seven,), hops=3)) == [
        Deliver(ANN, ("0", "1", "2"), (seven,)),
        Send(M, Publish((seven,), hops=4)),
    ]


def test_uncovered_filters_precede_the_withdrawal() -> None:
    """A neighbour would miss an existing subscription for a moment."""
    router = router_with((L, Role.PEER))
    (first,) = effects_of(router, ANN, Subscribe("w", WIDE))
    assert effects_of(router, BOB, Subscribe("n", NARROW)) == []
    assert isinstance(first, Send)
    assert isinstance(first.message, Subscribe)
    sent, withdrawn = effects_of(router, ANN, Unsubscribe("w"))
    assert isinstance(sent, Send)
    assert isinstance(sent.message, Subscribe)
    assert sent.message.filters == NARROW
    assert withdrawn == Send(L, Unsubscribe(first.message.identity))


def test_a_wider_filter_replaces_covered_ones() -> None:
    """Neighbours would keep every narrow filter ever sent."""
    router = router_with((L, Role.PEER))
    (first,) = effects_of(router, ANN, Subscribe("n", NARROW))
    assert isinstance(first, Send)
    assert isinstance(first.message, Subscribe)
    sent, withdrawn = effects_of(router, BOB, Subscribe("w", WIDE))
    assert isinstance(sent, Send)
    assert isinstance(sent.message, Subscribe)
    assert sent.message.filters == WIDE
    assert withdrawn == Send(L, Unsubscribe(first.message.identity))


@pytest.mark.parametrize("merging", [False, True])
def test_a_wide_filter_is_replaced_in_parts(merging: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a filter that covers many would hold a server, or lose one of these."""
    monkeypatch.setattr(poset, "COVERING_WORK_MAX", 100)
    router = Router(merging=merging)
    for each in (L, M):
        router.handle(LinkUp(each, Role.PEER), 0)
    effects_of(router, ANN, Subscribe("w", Filter("a any")))
    for number in range(30):
        assert effects_of(router, BOB, Subscribe(str(number), Filter({"a": number}))) == []
    leaving, wide = router.forwarding.subscriptions.poset.leaving, Notification({"a": -1})
    for event in (None, Received(ANN, Subscribe("w", Filter("a any"))), LinkDown(L)):
        if event is not None:
            router.handle(event, 0)
            router.validate()
        if not isinstance(event, LinkDown):
            effects_of(router, ANN, Unsubscribe("w"))
        assert leaving
        assert effects_of(router, M, Publish((wide,))) == []
    for effect in router.handle(LinkUp(L, Role.PEER), 0):  # A new link knows nothing to withdraw.
        assert isinstance(effect, Send)
        assert effect.to == M or isinstance(effect.message, Subscribe)
    router.validate()
    effects_of(router, BOB, Subscribe("b", Filter("b any")))
    effects_of(router, BOB, Unsubscribe("b"))
    turns = 0
    while router.is_rerouting:
        router.handle(TurnPassed(), 0)
        router.validate()
        turns += 1
    assert turns > 1  # How many depends on the order of next hops, which differs between processes.
    assert not leaving
    assert [each for each, _ in router.subscriptions()] == [
        *map(Filter, ({"a": n} for n in range(30)))
    ]
    assert not merging or router.statistics().merging.roots == 60
    assert router.statistics().filters.forwarded == 30


def test_a_refused_filter_loses_no_replaced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that a withdrawn one covered would be taken for sent when another one is refused."""
    monkeypatch.setattr(poset, "COVERING_WORK_MAX", 100)
    router = router_with((L, Role.PEER))
    effects_of(router, ANN, Subscribe("w", Filter("a any")))
    for number in range(9):
        effects_of(router, BOB, Subscribe(str(number), Filter({"a": number})))
    effects = effects_of(router, ANN, Unsubscribe("w"))

    def refuse(*_: object) -> None:
        raise LimitError("filters", 1)

    with monkeypatch.context() as patch:
        patch.setattr(router.forwarding.subscriptions.index, "add", refuse)
        assert isinstance(effects_of(router, BOB, Subscribe("b", Filter("b any")))[0], Refused)
    for _ in range(3):
        effects += effects_of(router, BOB, Subscribe("b", Filter("b any")))
        effects += effects_of(router, BOB, Unsubscribe("b"))
    sent = [each.message for each in effects if isinstance(each, Send)]
    filters = {str(each.filters) for each in sent if isinstance(each, Subscribe)}
    assert filters == {str(Filter({"a": number})) for number in range(9)} | {"b any"}


def test_a_neighbours_filter_does_not_hide_a_clients_from_it() -> None:
    """A neighbour's wide filter would hide a client's narrow one from that neighbour itself."""
    router = router_with(*PEERS[:2])
    effects_of(router, L, Subscribe("1", WIDE))
    (sent,) = effects_of(router, ANN, Subscribe("n", NARROW))
    assert isinstance(sent, Send)
    assert sent.to == L


def test_a_parent_gets_every_notification_and_a_child_its_matches() -> None:
    """A hierarchy would lose notifications above a parent, or flood its children."""
    router = router_with((P, Role.PARENT), (L, Role.CHILD), (M, Role.CHILD))
    (up,) = effects_of(router, L, Subscribe("1", WIDE))
    assert isinstance(up, Send)
    assert up.to == P
    one, minus = Notification({"a": 1}), Notification({"a": -1})
    assert effects_of(router, M, Publish((one,))) == [
        Send(L, Publish((one,), 1)),
        Send(P, Publish((one,), 1)),
    ]
    assert effects_of(router, P, Publish((one,))) == [Send(L, Publish((one,), 1))]
    assert effects_of(router, L, Publish((minus,))) == [Send(P, Publish((minus,), 1))]


def test_subscriptions_follow_advertisements() -> None:
    """Subscriptions would be sent to servers without matching publishers."""
    router = router_with(*PEERS, strategy=Strategy.ADVERTISEMENTS)
    assert effects_of(router, ANN, Subscribe("w", WIDE)) == []
    onward = effects_of(router, L, Advertise("1", Advertisement("a < 9")))
    assert [(each.to, type(each.message)) for each in onward if isinstance(each, Send)] == [
        (M, Advertise),
        (N, Advertise),
        (L, Subscribe),
    ]
    covered = Advertisement("a < 0")
    (sent,) = effects_of(router, M, Advertise("1", covered))
    assert isinstance(sent, Send)
    assert (sent.to, type(sent.message)) == (L, Advertise)
    *_, withdrawn = effects_of(router, L, Unadvertise("1"))
    assert isinstance(withdrawn, Send)
    assert (withdrawn.to, type(withdrawn.message)) == (L, Unsubscribe)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Product]:
    """The filters and advertisements that are compared by the algebra, in pairs."""
    listed: list[Product] = []

    def listing(p: Product, q: Product) -> bool:
        listed.extend((p, q))
        return product_meets(p, q)

    monkeypatch.setattr(interest_forwarder, "product_meets", listing)
    return listed


def test_comparisons_with_advertisements_are_bounded(compared: list[Product]) -> None:
    """Many subscriptions at a server that knows many advertisements would hold its loop."""
    router = router_with(*PEERS, strategy=Strategy.ADVERTISEMENTS)
    for number in range(100):
        effects_of(router, L, Advertise(str(number), Advertisement({"a": -number})))
    # An index knows two values only as any.
    filters = {str(number): Filter({"a": [number, f"{number}"]}) for number in range(1, 11)}
    with pytest.raises(LimitError), Work("REQUEST_WORK_MAX", 1_500):
        router.subscribe_each(ANN, filters)
    assert (compared, router.knows(ANN)) == ([], False), "each may be compared alone"
    with Work("REQUEST_WORK_MAX", 1_500):
        asked = Received(ANN, Subscribe("s", FilterSet(filters.values())))
        effects = router.handle(asked, 0)
    sent = [each.message for each in effects if isinstance(each, Send)]
    assert 500 <= len(compared) // 2 <= 750, "two steps for each, beside those of the entry"
    assert [each.filters for each in sent if isinstance(each, Subscribe)], "they may match"
    with Work("REQUEST_WORK_MAX", 15_000):
        assert router.subscribe_each(BOB, {"t": Filter("a = 11")}) == []
    router.validate()


def test_an_advertisement_of_a_neighbour_compares_few_filters(
    monkeypatch: pytest.MonkeyPatch, compared: list[Product]
) -> None:
    """An advertisement that many filters meet would hold a server that knows many others."""
    router = router_with(*PEERS, strategy=Strategy.ADVERTISEMENTS)
    for number in range(50):
        effects_of(router, ANN, Subscribe(str(number), Filter({"b": number})))
        effects_of(router, L, Advertise(str(number), Advertisement({"a": number})))
    monkeypatch.setattr(interest_forwarder, "REROUTING_WORK_MAX", 500)
    for message, kinds in (
        (Advertise("wide", Filter("b any")), {Advertise, Subscribe}),
        (Unadvertise("wide"), {Unadvertise, Unsubscribe}),
    ):
        compared.clear()
        effects = router.handle(Received(L, message), 0)
        assert len(compared) // 2 <= 300, "two steps for each, and all filters with this one"
        router.validate()
        sent = [each.message for each in effects if isinstance(each, Send)]
        assert {type(each) for each in sent} == kinds
        assert sum(isinstance(each, Subscribe) for each in sent) in (0, 50)


@pytest.mark.parametrize("role", [Role.PEER, Role.CHILD, Role.PARENT])
def test_a_change_of_links_compares_no_known_advertisements(
    role: Role, compared: list[Product]
) -> None:
    """A link that is lost again and again would hold a server with many of both."""
    router = router_with(*PEERS[:2], strategy=Strategy.ADVERTISEMENTS)
    for number in range(40):
        # An index knows two values only as any.
        offer = Advertisement({"a": [number, f"{number}"]})
        effects_of(router, (L, M)[number % 2], Advertise(str(number), offer))
        filters = Filter({"a": [number, f"{number % 2}"]})
        effects_of(router, (ANN, L)[number % 3 == 0], Subscribe(str(number), filters))
    events: list[Event] = [LinkUp(N, role), LinkDown(N)]
    for event in 2 * events:
        compared.clear()
        router.handle(event, 0)
        assert len(compared) // 2 <= (50 if role is Role.PARENT else 0), "all with the parent's"
        router.validate()


def test_links_that_change_no_next_hop_ask_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of links far away would hold a server with many subscriptions."""
    router, asked = router_with(*PEERS, strategy=Strategy.ADVERTISEMENTS), list[Any]()
    effects_of(router, ANN, Subscribe("s", WIDE))
    monkeypatch.setattr(Topology, "next_hops", lambda _, parties: asked.append(parties))
    assert router._forwarding.reroute() == []
    assert asked == []


def test_a_subscription_of_a_neighbour_compares_few_advertisements(
    monkeypatch: pytest.MonkeyPatch, compared: list[Product]
) -> None:
    """A neighbour's subscription to many filters would hold a server with many advertisements."""
    router = router_with(*PEERS, strategy=Strategy.ADVERTISEMENTS)
    for number in range(100):
        effects_of(router, L, Advertise(str(number), Advertisement({"a": [-number, f"{number}"]})))
    monkeypatch.setattr(interest_forwarder, "REROUTING_WORK_MAX", 500)
    filters = FilterSet(Filter({"a": [number, f"x{number}"]}) for number in range(1, 51))
    compared.clear()
    effects = router.handle(Received(M, Subscribe("s", filters)), 0)
    assert len(compared) // 2 <= 250
    sent = [each.message for each in effects if isinstance(each, Send)]
    assert 40 < sum(isinstance(each, Subscribe) for each in sent) < 50, "all but the compared"
    router.validate()


def test_a_budget_ends_comparisons_in_the_same_order_in_each_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trace of the same messages would differ by the seed of hashes."""
    peers = [Neighbour(f"p{number}") for number in range(8)]
    links = [(each, Role.PEER) for each in peers]
    router = router_with(*links, strategy=Strategy.ADVERTISEMENTS)
    for number, each in enumerate(peers):
        effects_of(router, each, Advertise("a", Advertisement({"a": number + 1})))
    monkeypatch.setattr(interest_forwarder, "REROUTING_WORK_MAX", 7)
    effects = router.handle(Received(ANN, Subscribe("s", Filter("a = 0"))), 0)
    asked = [each.to for each in effects if isinstance(each, Send)]
    assert sorted(asked) == peers[3:], "the first three were compared, and do not meet it"


def test_a_comparison_that_a_budget_ends_is_no_broken_invariant() -> None:
    """A test would blame the router for a filter that is forwarded as if it met an offer."""
    for steps in (int(20 * 1.15**power) for power in range(40)):  # Up to 4,600.
        router = router_with(*PEERS, strategy=Strategy.ADVERTISEMENTS)
        effects_of(router, L, Advertise("l", Filter(f"a suffix 'x{steps}'")))
        asked = Subscribe("s", Filter(f"a matches '^[a-c]{{2,9}}{steps}(y|z)*$'"))
        with suppress(LimitError), Work("REQUEST_WORK_MAX", steps):
            router.handle(Received(ANN, asked), 0)
        router.validate()


def test_few_of_many_advertisements_are_compared_with_a_filter(compared: list[Product]) -> None:
    """A subscription, or an advertisement, would take as long as there are of the others."""
    router = router_with(*PEERS, strategy=Strategy.ADVERTISEMENTS)
    offers = [Advertisement({"a": f"value {n}", "b": n}) for n in range(200)]
    for number, offer in enumerate(offers):
        router.handle(Received(L if number % 2 else M, Advertise(str(number), offer)), 0)
    for number, to in ((7, L), (150, M), (199, L)):
        compared.clear()
        asked = Subscribe(str(number), Filter({"a": f"value {number}"}))
        effects = router.handle(Received(ANN, asked), 0)
        assert [each.to for each in effects if isinstance(each, Send)] == [to]
        assert len(compared) // 2 <= 2 * interest_forwarder._FEW_OFFERS + 1
    for number in range(200):
        router.handle(Received(BOB, Subscribe(str(number), Filter({"a": f"other {number}"}))), 0)
    compared.clear()
    router.handle(Received(N, Advertise("1", Advertisement({"a": "other 100"}))), 0)
    assert len(compared) // 2 <= 2 * interest_forwarder._FEW_OFFERS + 2
    router.validate()


@pytest.mark.parametrize("is_pattern", [False, True])
def test_a_spent_budget_stops_no_update_halfway(is_pattern: bool) -> None:
    """A subscription would be refused, and its filter stay in the tables for ever."""
    outcomes = set()
    for steps in (int(20 * 1.15**power) for power in range(60)):  # Up to 76,000.
        router = router_with(*PEERS)
        asked = Filter(f"@publisher prefix 'p' and b matches '^[a-c]{{2,9}}{steps}.*b(y|z)*'")
        message: Message = Subscribe("s", asked)
        if is_pattern:
            message = SubscribePattern("s", Pattern((WIDE, asked)))
        is_refused = False
        try:
            with Work("REQUEST_WORK_MAX", steps):
                router.handle(Received(ANN, message), 0)
        except LimitError:
            is_refused = True
        router.validate()
        assert router.knows(ANN) != is_refused
        outcomes.add(is_refused)
    assert outcomes == {False, True}


def test_a_repeated_message_changes_nothing() -> None:
    """A repeated message would be refused, or counted as two."""
    router = router_with((L, Role.PEER), strategy=Strategy.ADVERTISEMENTS)
    effects_of(router, L, Advertise("1", Advertisement("a any")))
    assert effects_of(router, L, Advertise("1", Advertisement("a any"))) == []
    effects_of(router, ANN, Subscribe("1", FilterSet([WIDE, Filter("b = 1")])))
    assert effects_of(router, ANN, Subscribe("1", FilterSet([Filter("b = 1"), WIDE]))) == []
    assert router.statistics().subscriptions.entries == 1


@pytest.mark.parametrize("is_pattern_first", [True, False])
def test_one_identity_is_not_for_a_filter_and_a_pattern(is_pattern_first: bool) -> None:
    """A client could not distinguish the deliveries of the two."""
    router = router_with((L, Role.PEER))
    pattern = SubscribePattern("1", Pattern("a > 0 -> a > 5"))
    first, second = (pattern, Subscribe("1", WIDE))[:: 1 if is_pattern_first else -1]
    effects_of(router, ANN, first)
    event = Received(ANN, second)
    assert router.handle(event, 0) == [Refused(event, Reason.IDENTITY_IN_USE)]
    assert not any(isinstance(each, Refused) for each in effects_of(router, BOB, second))


NOTHING: Final = Filter("a < 0 and a > 0")
IN_USE: Final = FilterSet([WIDE, Filter("b = 1")])


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Received(Neighbour("X"), Publish((Notification({}),))), Reason.UNKNOWN_NEIGHBOUR),
        (Received(Neighbour("X"), Subscribe("1", WIDE)), Reason.UNKNOWN_NEIGHBOUR),
        (Received(ANN, Subscribe("9", WIDE, version=2)), Reason.VERSION),
        (Received(L, Publish((Notification({}),), 0, version=0)), Reason.VERSION),
        (Received(ANN, Unsubscribe("9")), Reason.UNKNOWN_SUBSCRIPTION),
        (Received(BOB, Unsubscribe("1")), Reason.UNKNOWN_SUBSCRIPTION),
        (Received(L, Unadvertise("9")), Reason.UNKNOWN_ADVERTISEMENT),
        (Received(ANN, Subscribe("1", NARROW)), Reason.IDENTITY_IN_USE),
        (Received(ANN, Advertise("1", Advertisement("b any"))), Reason.IDENTITY_IN_USE),
        (Received(ANN, Subscribe("9", NOTHING)), Reason.UNSATISFIABLE),
        (Received(ANN, Subscribe("9", FilterSet([]))), Reason.UNSATISFIABLE),
        (Received(ANN, Advertise("9", NOTHING)), Reason.UNSATISFIABLE),
        (Received(ANN, Publish((Notification({"b": 1}),))), Reason.NOT_ADVERTISED),
        (Received(BOB, Publish((Notification({"a": 1}),))), Reason.NOT_ADVERTISED),
        (Received(P, Subscribe("9", WIDE)), Reason.NOT_DUE),
        (Received(P, Unsubscribe("")), Reason.NOT_DUE),
        (Received(L, Publish((Notification({}),), hops=255)), Reason.TOO_MANY_HOPS),
        (Received(L, Publish((Notification({}),), hops=-1)), Reason.TOO_MANY_HOPS),
        (Received(ANN, Publish((Notification({"a": 1}),), hops=255)), Reason.TOO_MANY_HOPS),
        (LinkUp(L, Role.PEER), Reason.KNOWN_NEIGHBOUR),
        (LinkUp(N, Role.PARENT), Reason.SECOND_PARENT),
        (LinkDown(N), Reason.UNKNOWN_NEIGHBOUR),
        (ClientGone(Client("nobody")), Reason.UNKNOWN_CLIENT),
    ],
)
def test_what_makes_no_sense_is_refused(event: Event, reason: Reason) -> None:
    """A stranger or a faulty client could damage tables unseen."""
    router = router_with((L, Role.PEER), (P, Role.PARENT), strategy=Strategy.ADVERTISEMENTS)
    effects_of(router, ANN, Subscribe("1", IN_USE))
    effects_of(router, ANN, Advertise("1", Advertisement("a any")))
    before = router.statistics()
    assert router.handle(event, 0) == [Refused(event, reason)]
    router.validate()
    after = router.statistics()
    assert after.refused == {reason: 1}
    assert (after.filters, after.offers, after.received) == (
        before.filters,
        before.offers,
        before.received,
    )


def test_a_disconnected_client_leaves_nothing() -> None:
    """The network would serve a disconnected client."""
    router = router_with((L, Role.PEER), strategy=Strategy.ADVERTISEMENTS)
    effects_of(router, L, Advertise("1", Advertisement("a any")))
    effects_of(router, ANN, Subscribe("1", WIDE))
    effects_of(router, ANN, Subscribe("2", NARROW))
    effects_of(router, ANN, Advertise("1", Advertisement("b any")))
    effects = router.handle(ClientGone(ANN), 0)
    router.validate()
    assert [type(each.message) for each in effects if isinstance(each, Send)] == [
        Unsubscribe,
        Unadvertise,
    ]
    assert router.statistics().subscriptions.entries == 0


def test_a_client_by_the_name_of_the_server_itself_is_unknown() -> None:
    """A client of this name could end all patterns, or use the server's own subscriptions."""
    router = router_with((L, Role.PEER))
    effects_of(router, ANN, SubscribePattern("1", Pattern("a > 0 -> a > 5")))
    before = router.statistics().subscriptions
    for event in (
        ClientGone(ITSELF),
        Received(ITSELF, Unsubscribe("0")),
        Received(ITSELF, Publish((Notification({"a": 1}),))),
    ):
        assert router.handle(event, 0) == [Refused(event, Reason.UNKNOWN_CLIENT)]
    assert router.statistics().subscriptions == before


def test_it_counts_its_work() -> None:
    """The load of a router, and the savings of covering, would be invisible."""
    router = router_with((L, Role.PEER))
    effects_of(router, ANN, Subscribe("1", WIDE))
    effects_of(router, BOB, Subscribe("1", NARROW))
    effects_of(router, L, Publish((Notification({"a": 9}),)))
    counted = router.statistics()
    assert counted.received == {"Subscribe": 2, "Publish": 1}
    assert counted.sent == {"Subscribe": 1}
    assert counted.delivered == 2
    assert not router.maintain()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"general": True}, "a server has one"),
        ({"covering": False, "merging": True}, "needs covering"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, Any], why: str) -> None:
    """Without a name a server would route wrongly; without covering it would merge covered
    filters.
    """
    with pytest.raises(InvalidValueError, match=why):
        Router(**options)
