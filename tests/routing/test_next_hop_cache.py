"""`NextHopCache`: each recipient once, in order, and current."""

import itertools

from contrada.model import Advertisement, Filter, FilterSet, Notification, Pattern
from contrada.routing.delegation import SubscribePattern
from contrada.routing.router import Router, Strategy
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    Advertise,
    Client,
    Deliver,
    Effect,
    Message,
    Publish,
    Received,
    Subscribe,
    Unsubscribe,
)

ANN, BOB = Client("ann"), Client("bob")
SEVEN = Notification({"a": 7})


def effects_of(router: Router, client: Client, message: Message) -> list[Effect]:
    """Returns the effects of a message, with checked invariants."""
    effects = router.handle(Received(client, message), 0)
    router.validate()
    return effects


def test_the_cache_is_cleared_with_each_change() -> None:
    """A client would receive nothing yet, or still something."""
    router = Router()
    effects_of(router, BOB, Subscribe("1", Filter("a > 0")))
    assert effects_of(router, ANN, Publish((SEVEN,))) == [Deliver(BOB, ("1",), (SEVEN,))]
    effects_of(router, ANN, Subscribe("2", Filter("a > 0")))
    assert effects_of(router, ANN, Publish((SEVEN,))) == [
        Deliver(ANN, ("2",), (SEVEN,)),
        Deliver(BOB, ("1",), (SEVEN,)),
    ]
    effects_of(router, BOB, Unsubscribe("1"))
    assert effects_of(router, ANN, Publish((SEVEN,))) == [Deliver(ANN, ("2",), (SEVEN,))]


def test_a_subscription_of_several_filters_is_named_once() -> None:
    """A subscriber would get one notification several times."""
    router = Router()
    effects_of(router, ANN, Subscribe("2", FilterSet([Filter("a > 0"), Filter("a = 7")])))
    effects_of(router, ANN, Subscribe("1", Filter("a > 1")))
    assert effects_of(router, BOB, Publish((SEVEN,))) == [Deliver(ANN, ("1", "2"), (SEVEN,))]


def test_the_cache_is_bounded() -> None:
    """Notifications with different matches would fill the memory."""
    router = Router(limits=RouterLimits(cached_next_hops_max=2, cached_filters_max=6))
    for number in range(6):
        effects_of(router, ANN, Subscribe(f"{number}", Filter({"a": number})))
        effects_of(router, BOB, Subscribe(f"{number}", Filter({"b": 1})))
    for number in range(6):
        (delivered,) = effects_of(router, BOB, Publish((Notification({"a": number}),)))
        assert delivered == Deliver(ANN, (f"{number}",), (Notification({"a": number}),))
        assert len(router._next_hops._cached) <= 2
    kept = {*router._next_hops._cached}
    effects_of(router, ANN, Publish((Notification({"b": 1}),)))
    assert {*router._next_hops._cached} == kept, "a long answer is kept"


def test_parts_of_patterns_have_one_order() -> None:
    """The order would differ between processes, by the salt of text hashes."""
    router = Router(Strategy.ADVERTISEMENTS)
    effects_of(router, ANN, Advertise("offer", Advertisement("a any")))
    effects_of(
        router, BOB, SubscribePattern("pattern", Pattern("a > 0 -> a > 1 -> a > 2 -> a > 3"))
    )
    numbers = router._subscriptions.index.match(SEVEN)
    found = [router._next_hops.find([*each]).parts for each in itertools.permutations(numbers)]
    assert len(numbers) == 4
    assert found == [(0, 1, 2, 3)] * len(found)
