"""Questions reach all whose advertisements they meet, and nobody else."""

from collections import Counter
from typing import Final

import pytest

from contrada.errors import LimitError, UnsatisfiableFilterError
from contrada.model import Advertisement, Envelope, Filter, Notification, Query
from contrada.model.algebra.product import product_meets
from contrada.routing.messages import (
    VERSION,
    Advertise,
    Ask,
    Client,
    DeliverQuestion,
    LinkUp,
    Neighbour,
    Publish,
    Reason,
    Received,
    Refused,
    Role,
    Send,
    Unadvertise,
)
from contrada.routing.router import Router, Strategy
from tests.routing.network import LOOPED, MESHES, TRANSIENT, TREES
from tests.routing.test_general import Changing
from tests.routing.test_poset import random_filter

ANN, BOB = Client("ann"), Client("bob")
WARM: Final = Query("temperature > 20")
SENSOR: Final = Advertisement("temperature > 0 and room any")


@pytest.mark.parametrize("covering", [True, False])
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("shape", [*TREES, *MESHES, *LOOPED])
@pytest.mark.parametrize("seed", range(2))
def test_whoever_advertised_what_it_meets_is_asked_once(
    seed: int, shape: str, strategy: Strategy, covering: bool
) -> None:
    """A source would never be asked, be asked twice, or be asked for what it does not have."""
    world = Changing(seed, shape, strategy, covering=covering)
    for number in range(12):
        for _ in range(world.chance.randint(1, 4)):
            world.change()
        if world.named and number % 3 == 2:
            world.fail()
        world.network.settle(TRANSIENT)
        world.network.taken()
        if not world.up:
            continue
        for turn in range(3):
            query = Query(random_filter(world.chance).sides)
            if query.is_empty:
                continue
            at = world.chance.choice(sorted(world.up))
            asked = Ask(query, asker=f"{at}p", identity=f"q{number}.{turn}")
            world.network.say(at, f"{at}p", asked)
            world.network.settle(TRANSIENT)
            reached = world.joined(at)
            assert world.network.taken() == Counter(
                (client, identity, asked.identity)
                for (broker, client, identity), offer in world.offers.items()
                if broker in reached and product_meets(offer, query)
            )


def test_a_question_goes_only_where_something_meets_it() -> None:
    """Every source would see every question, which is what advertisements are for."""
    router = Router(Strategy.ADVERTISEMENTS)
    for name in "nm":
        router.handle(LinkUp(Neighbour(name), Role.PEER), 0)
    router.handle(Received(Neighbour("n"), Advertise("1", SENSOR)), 0)
    router.handle(Received(Neighbour("m"), Advertise("1", Advertisement("temperature < 0"))), 0)
    router.handle(Received(ANN, Advertise("1", SENSOR)), 0)
    router.handle(Received(ANN, Advertise("2", Advertisement("temperature any"))), 0)
    router.handle(Received(BOB, Advertise("1", Advertisement("humidity any"))), 0)
    question = Ask(WARM, "bob", "7")
    assert router.handle(Received(BOB, question), 0) == [
        DeliverQuestion(ANN, ("1", "2"), question),
        Send(Neighbour("n"), Ask(WARM, "bob", "7", hops=1)),
    ]
    router.handle(Received(Neighbour("n"), Unadvertise("1")), 0)
    router.handle(Received(ANN, Unadvertise("1")), 0)
    assert router.handle(Received(BOB, question), 0) == [DeliverQuestion(ANN, ("2",), question)]
    assert router.statistics().received["Ask"] == 2


def test_what_is_not_advertised_is_not_there() -> None:
    """A source would be asked for attributes that it does not have; an open one may have them."""
    router = Router()
    router.handle(Received(ANN, Advertise("1", SENSOR)), 0)
    router.handle(Received(BOB, Advertise("1", Filter("temperature > 0"))), 0)
    question = Ask(Query("temperature > 20 and height = 3"), "bob", "7")
    assert router.handle(Received(BOB, question), 0) == [DeliverQuestion(BOB, ("1",), question)]


@pytest.mark.parametrize(
    ("origin", "question", "reason"),
    [
        (ANN, Ask(WARM, "ann", "1", version=VERSION + 1), Reason.VERSION),
        (ANN, Ask(WARM, "ann", "1", hops=-1), Reason.TOO_MANY_HOPS),
        (ANN, Ask(WARM, "ann", "1", hops=255), Reason.TOO_MANY_HOPS),
        (ANN, Ask(WARM, "ann", "1", source="s"), Reason.WRONG_HOME),
        (ANN, Ask(WARM, "ann", ""), Reason.NO_IDENTITY),
        (ANN, Ask(WARM, "ann", "known"), Reason.DUPLICATE),
        (Neighbour("x"), Ask(WARM, "ann", "1"), Reason.UNKNOWN_NEIGHBOUR),
        (Client("@patterns"), Ask(WARM, "ann", "1"), Reason.UNKNOWN_CLIENT),
    ],
)
def test_what_makes_no_sense_is_refused(
    origin: Client | Neighbour, question: Ask, reason: Reason
) -> None:
    """A question would go round, be answered twice, or come from nobody."""
    router = Router(name="s")
    router.handle(Received(ANN, Ask(WARM, "ann", "known")), 0)
    event = Received(origin, question)
    assert router.handle(event, 0) == [Refused(event, reason)]
    assert router.statistics().refused == {reason: 1}
    router.validate()


def test_a_question_and_a_notification_may_have_one_identity() -> None:
    """One of them would be lost as if it had come already."""
    router = Router(name="s")
    notification = Notification({"a": 1}, envelope=Envelope(id="1", publisher="ann"))
    for message in (Publish((notification,)), Ask(WARM, "ann", "1")):
        assert router.handle(Received(ANN, message), 0) == []


def test_a_refusal_says_what_is_wrong_with_a_question() -> None:
    """Who asked would have to guess."""
    router = Router()
    nothing = Query("temperature > 20 and temperature < 10")
    (refused,) = router.handle(Received(ANN, Ask(nothing, "ann", "1")), 0)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, UnsatisfiableFilterError)
    for asker, identity in (("a" * 256, "1"), ("ann", "1" * 256)):
        (refused,) = router.handle(Received(ANN, Ask(WARM, asker, identity)), 0)
        assert isinstance(refused, Refused)
        assert isinstance(refused.error, LimitError)
        assert refused.error.size == 256
