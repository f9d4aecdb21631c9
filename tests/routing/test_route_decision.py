"""`decide_route`: a decision without a notification, compared with that about a real one."""

from hypothesis import given
from hypothesis import strategies as st

from contrada.model import Envelope, Filter, Notification
from contrada.routing.route_decision import ARRIVED_THERE, NO_INTEREST, RouteDecision
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    Advertise,
    Client,
    LinkUp,
    Neighbour,
    Publish,
    Reason,
    Received,
    Role,
)
from tests.routing.test_notification_forwarder import LINKS, PUBLISHER, received_by, router_with


def onward(decision: RouteDecision) -> list[Neighbour]:
    """Returns the neighbours that would get the notification."""
    return [each.neighbour for each in decision.links if not each.reason]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=8), st.integers(0, 5))
def test_a_decision_names_the_real_recipients(
    subscriptions: list[tuple[int, int]], value: int
) -> None:
    """An inspection would name other recipients than the delivery."""
    router = router_with(subscriptions)
    notification = Notification({"a": value}, envelope=Envelope(id="n", publisher="p"))
    decision = router.decide_route(notification)
    matching, neighbours = decision.matching, onward(decision)
    assert router.statistics().received.get("Publish", 0) == 0
    got = received_by(router.handle(Received(PUBLISHER, Publish((notification,))), 0))
    assert neighbours == sorted(each for each in got if isinstance(each, Neighbour))
    asking = {it for node in matching for it in node.subscribers if isinstance(it, Client)}
    assert asking == {each[0] for each in got if isinstance(each, tuple)}
    assert {str(each.product) for each in matching} == {
        f"a <= {n}" for _, n in subscriptions if value <= n
    }


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=8), st.integers(0, 5))
def test_an_arrival_is_decided_like_a_real_one(
    subscriptions: list[tuple[int, int]], value: int
) -> None:
    """A notification that is followed from broker to broker would return where it came from."""
    router = router_with(subscriptions)
    notification = Notification({"a": value}, envelope=Envelope(id="n", publisher="p"))
    decision = router.decide_route(notification, LINKS[0])
    got = received_by(router.handle(Received(LINKS[0], Publish((notification,))), 0))
    assert onward(decision) == sorted(each for each in got if isinstance(each, Neighbour))
    reasons = {each.neighbour: each.reason for each in decision.links}
    assert reasons[LINKS[0]] == ARRIVED_THERE
    assert reasons[LINKS[1]] in ("", NO_INTEREST)


def test_a_refusal_has_the_reason_of_a_real_one() -> None:
    """An operator would follow a notification that the broker refuses."""
    here, it = router_with([], "here"), Notification({"a": 1})
    assert here.decide_route(it, LINKS[0]).refusal is Reason.UNCONFIRMED
    assert here.decide_route(it, Neighbour("strange")).refusal is Reason.UNKNOWN_NEIGHBOUR
    assert here.decide_route(it).refusal is None
    careful = Router(Strategy.ADVERTISEMENTS)
    careful.handle(LinkUp(LINKS[0], Role.PEER), 0)
    offer = Filter("a any")
    careful.handle(Received(LINKS[0], Advertise("1", offer)), 0)
    assert careful.decide_route(it).refusal is Reason.NOT_ADVERTISED
    assert careful.decide_route(it, LINKS[0]).refusal is None
    careful.handle(Received(Client("c"), Advertise("1", offer)), 0)
    assert careful.decide_route(it).refusal is None
    assert careful.decide_route(Notification({"b": 1})).refusal is Reason.NOT_ADVERTISED
