"""`DueNodes`: what links change is routed in turns, and acknowledged when all of it is sent."""

from unittest.mock import Mock

import pytest

from contrada.errors import LimitError
from contrada.matching.index import Index
from contrada.model import Advertisement, Envelope, Filter, FilterSet, Notification
from contrada.routing.router import Router, Strategy
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    AckLinks,
    Adjacency,
    Advertise,
    AnnounceLinks,
    Client,
    Effect,
    LinkDown,
    LinkState,
    LinkUp,
    Message,
    Neighbour,
    Publish,
    Received,
    Refused,
    Role,
    Send,
    Subscribe,
    TurnPassed,
    Unadvertise,
    Unsubscribe,
)

ANN, BOB = Client("ann"), Client("bob")
L, M = Neighbour("L"), Neighbour("M")
ALL = {Filter({"a": number}) for number in range(5)}


def announced(neighbour: Neighbour, number: int = 1, *, is_used: bool = True) -> Received:
    """The link states that put the link of router `me` to a neighbour in use, or out of use."""
    links = (Adjacency("me", Role.PEER),) if is_used else ()
    return Received(neighbour, AnnounceLinks((LinkState(neighbour.name, number, links),)))


def crowded(strategy: Strategy = Strategy.SUBSCRIPTIONS) -> Router:
    """A router with five subscriptions, of which it routes two in a turn."""
    router = Router(strategy, name="me", limits=RouterLimits(rerouted_per_turn=2))
    for number in range(5):
        router.handle(Received(ANN, Subscribe(str(number), Filter({"a": number}))), 0)
    return router


def said(effects: list[Effect], to: Neighbour = L) -> list[Message]:
    """The messages to a neighbour but link states."""
    sent = [each for each in effects if isinstance(each, Send) and each.to == to]
    return [each.message for each in sent if not isinstance(each.message, AnnounceLinks)]


def filters(messages: list[Message]) -> set[Filter]:
    found = [each.filters for each in messages if isinstance(each, Subscribe)]
    assert all(isinstance(each, Filter) for each in found)
    return {*found}  # type: ignore[arg-type]


def rest(router: Router) -> list[Effect]:
    """The effects of turns until nothing is due, with checked invariants."""
    effects: list[Effect] = []
    while router.is_rerouting:
        router.validate()
        effects += router.handle(TurnPassed(), 0)
    router.validate()
    return effects


def test_some_are_sent_in_each_turn_and_acknowledged_at_last() -> None:
    """A new link would hold a server, or be thought complete by the neighbour too early."""
    router = crowded()
    assert said(router.handle(LinkUp(L, Role.PEER), 0)) == []
    turns = [said(router.handle(announced(L), 0))]
    while router.is_rerouting:
        router.validate()
        turns.append(said(router.handle(TurnPassed(), 0)))
    assert [len(each) for each in turns] == [2, 2, 2]
    assert turns[-1][-1] == AckLinks()
    assert filters([each for turn in turns for each in turn]) == ALL
    assert router.handle(TurnPassed(), 0) == []


def test_a_link_that_returns_gets_everything() -> None:
    """What was forwarded over the former link would count as known at the new one."""
    router = crowded()
    router.handle(LinkUp(L, Role.PEER), 0)
    router.handle(announced(L), 0)
    rest(router)
    assert said(router.handle(LinkDown(L), 0)) == []
    assert router.is_withdrawing(L)
    assert not router.is_withdrawing(M)
    effects = router.handle(LinkUp(L, Role.PEER), 0)
    assert not router.is_withdrawing(L)
    effects += router.handle(announced(L, 2), 0) + rest(router)
    assert filters(said(effects)) == ALL
    assert said(effects)[-1] == AckLinks()


def test_another_link_is_no_reason_to_wait() -> None:
    """Links that come together would hold a server as long as all at once."""
    router = crowded()
    for each in (L, M):
        router.handle(LinkUp(each, Role.PEER), 0)
        assert not router.is_rerouting
    effects = router.handle(announced(L), 0) + router.handle(announced(M), 0)
    assert len(said(effects) + said(effects, M)) < 10
    effects += rest(router)
    for each in (L, M):
        assert filters(said(effects, each)) == ALL
        assert said(effects, each).count(AckLinks()) == 1


def test_changes_meanwhile_are_kept() -> None:
    """A subscription that ends would be sent, one that begins be lost, or the turn fail."""
    router = crowded()
    router.handle(LinkUp(L, Role.PEER), 0)
    effects = router.handle(announced(L), 0)
    (sent,) = (each for each in said(effects) if each.filters == Filter({"a": 0}))  # type: ignore[union-attr]
    for number in (0, 4):
        effects += router.handle(Received(ANN, Unsubscribe(str(number))), 0)
    for client in (ANN, BOB):  # The node ends, and a new one of this filter begins.
        effects += router.handle(Received(client, Subscribe("3", Filter({"a": 3}))), 0)
        effects += router.handle(Received(client, Unsubscribe("3")), 0)
    effects += router.handle(Received(BOB, Subscribe("5", Filter({"a": 5}))), 0)
    effects += rest(router)
    known = {each.identity: each.filters for each in said(effects) if isinstance(each, Subscribe)}
    for each in said(effects):
        if isinstance(each, Unsubscribe):
            del known[each.identity]
    assert sent.identity not in known  # type: ignore[union-attr]
    assert {*known.values()} == {Filter({"a": number}) for number in (1, 2, 5)}


def test_a_neighbour_that_is_gone_gets_no_answer() -> None:
    """A message to no link would end the broker's turn; its filters would match for ever."""
    router = crowded()
    for each in (L, M):
        router.handle(LinkUp(each, Role.PEER), 0)
        router.handle(announced(each), 0)
        rest(router)
    for number in range(5):
        router.handle(Received(L, Subscribe(str(number), Filter({"b": number}))), 0)
        router.handle(Received(L, Subscribe(f"{number}c", Filter({"a": number}))), 0)
    effects = router.handle(announced(L, 2), 0)
    effects += router.handle(LinkDown(L), 0)
    late = Notification({"b": 1}).with_envelope(Envelope(publisher="p", id="1"))
    assert router.handle(Received(M, Publish((late,))), 0) == []
    effects += rest(router)
    assert said(effects) == [AckLinks()]
    assert len([each for each in said(effects, M) if isinstance(each, Unsubscribe)]) == 5
    assert len(router.filters_of(ANN).filters) == 5
    assert router.statistics().filters.nodes == 5


def test_a_neighbour_that_is_gone_at_once_gets_no_answer() -> None:
    """The acknowledgement that waits would go to no link."""
    router = crowded()
    router.handle(LinkUp(L, Role.PEER), 0)
    assert AckLinks() not in said(router.handle(announced(L), 0))
    assert said(router.handle(LinkDown(L), 0) + rest(router)) == []


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("has_more", [True, False])
def test_advertisements_of_meanwhile_decide(is_first: bool, has_more: bool) -> None:
    """A filter would be kept from those that publish for it."""
    router = crowded(Strategy.ADVERTISEMENTS)
    router.handle(LinkUp(L, Role.PEER), 0)
    router.handle(LinkUp(M, Role.PEER), 0)
    offer = Received(L, Advertise("1", Advertisement("a any")))
    effects = router.handle(offer, 0) if is_first else []
    effects += router.handle(announced(L), 0)
    effects += router.handle(announced(M), 0) if has_more else []  # Another change.
    effects += [] if is_first else router.handle(offer, 0)
    effects += rest(router)
    assert filters(said(effects)) == ALL
    assert filters(said(effects, M)) == set()


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("change", [None, Advertise("2", Advertisement("a any")), Unadvertise("1")])
def test_a_link_that_is_used_again_has_the_filters_that_meet(
    change: Message | None, turns: int
) -> None:
    """Filters that its other state has taken from it, or kept from it, would stay so."""
    router = crowded(Strategy.ADVERTISEMENTS)
    router.handle(LinkUp(L, Role.PEER), 0)
    if not isinstance(change, Advertise):
        router.handle(Received(L, Advertise("1", Advertisement("a any"))), 0)
    effects = router.handle(announced(L), 0) + rest(router)
    effects += router.handle(announced(L, 2, is_used=False), 0)
    for _ in range(turns):
        effects += router.handle(TurnPassed(), 0)
    effects += [] if change is None else router.handle(Received(L, change), 0)
    effects += router.handle(announced(L, 3), 0) + rest(router)
    known: set[str] = set()
    for each in said(effects):
        if isinstance(each, Subscribe | Unsubscribe):
            known ^= {each.identity}
    assert len(known) == (0 if isinstance(change, Unadvertise) else 5)


def test_a_refused_subscription_leaves_due_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that its only party has lost would count as forwarded for ever."""
    router = crowded()
    for each in (L, M):
        router.handle(LinkUp(each, Role.PEER), 0)
        router.handle(announced(each), 0)
        rest(router)
    lost = [Filter({"b": number}) for number in range(5)]
    for number, product in enumerate(lost):
        router.handle(Received(M, Subscribe(str(number), product)), 0)
    effects = router.handle(LinkDown(M), 0)
    with monkeypatch.context() as context:
        context.setattr(Index, "add", Mock(side_effect=LimitError("ATTRS_MAX", 0)))
        # The nodes of the last filters are due, those of the first are removed.
        (refused,) = router.handle(Received(BOB, Subscribe("1", FilterSet(lost[::-1]))), 0)
    assert isinstance(refused, Refused)
    router.validate()
    effects += rest(router)
    assert len([each for each in said(effects) if isinstance(each, Unsubscribe)]) == 5
    assert router.statistics().filters.nodes == 5


def test_advertisements_and_subscriptions_share_a_turn() -> None:
    """A turn of each table would be three turns in one."""
    router = crowded(Strategy.ADVERTISEMENTS)
    for number in range(3):
        router.handle(Received(ANN, Advertise(f"{number}o", Advertisement({"b": number}))), 0)
    router.handle(LinkUp(L, Role.PEER), 0)
    router.handle(Received(L, Advertise("1", Advertisement("a any"))), 0)
    turns = [said(router.handle(announced(L), 0))]
    while router.is_rerouting:
        turns.append(said(router.handle(TurnPassed(), 0)))
    assert [len(each) for each in turns] == [2, 1, 2, 2, 2]  # One is that of L itself.
    kinds = [type(each) for turn in turns for each in turn]
    assert kinds == [Advertise] * 3 + [Subscribe] * 5 + [AckLinks]
