"""Questions over links: to those whose advertisements they meet, once, and to nobody else."""

from collections.abc import Callable

import pytest

from contrada.model import Query
from contrada.net import connect
from contrada.routing.messages import Ask, DeliverQuestion
from contrada.routing.router import Strategy
from tests.asynchronous import on_loop, until
from tests.net.networks import FIVE, Network, network

RING = [*FIVE, (3, 4)]


@pytest.mark.parametrize("strategy", [Strategy.ADVERTISEMENTS, Strategy.SUBSCRIPTIONS])
@pytest.mark.parametrize("general", [False, True])
@on_loop
async def test_a_question_goes_to_those_who_may_know(strategy: Strategy, general: bool) -> None:
    """It would stay at the broker of who asks, come twice round a ring, or bother all others."""
    async with (
        network(5, RING if general else FIVE, strategy=strategy, general=general) as brokers,
        connect(brokers[3].address) as far,
        connect(brokers[4].address) as other,
        far.advertise("author = 'Steinbeck' and edition any"),
        other.advertise("author = 'Joyce'"),
    ):
        await until(lambda: brokers.is_at_rest)
        asked: list[tuple[int, DeliverQuestion]] = []
        for number, broker in enumerate(brokers):
            broker.exchange.on_question = note(asked, number)
        asker = brokers[0].exchange.client()
        for number, text in enumerate(("author = 'Steinbeck'", "author = 'Joyce'")):
            brokers[0].exchange.ask(asker, Ask(Query(text), "desk", str(number)))
        await until(lambda: len(asked) == 2)
        await seen_everywhere(brokers)
        assert {at: each.question.query for at, each in asked} == {
            3: Query("author = 'Steinbeck'"),
            4: Query("author = 'Joyce'"),
        }
        assert len(asked) == 2


def note(
    asked: list[tuple[int, DeliverQuestion]], number: int
) -> Callable[[DeliverQuestion], None]:
    """Notes what is asked at a broker."""
    return lambda question: asked.append((number, question))


async def seen_everywhere(brokers: Network) -> None:
    """Something said behind it has come to all: over a link nothing overtakes."""
    async with connect(brokers[0].address) as service, service.advertise("last = 1"):
        await until(lambda: brokers.is_at_rest)
