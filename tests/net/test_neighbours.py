"""Brokers that are neighbours: a network of them delivers as one does, whatever links do."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from contrada import Notification
from contrada.net import Broker, connect
from contrada.net.address import parse_address
from contrada.net.frames import Hello
from contrada.net.neighbours import Network, Wanted
from contrada.routing.messages import Role
from contrada.routing.router import Strategy
from tests.asynchronous import on_loop, until

Links = Sequence[tuple[int, int]]


@asynccontextmanager
async def network(count: int, links: Links, **options: Any) -> AsyncIterator[list[Broker]]:
    """Brokers with links; of each pair the second makes the link. All links are up."""
    async with AsyncExitStack() as stack:
        brokers: list[Broker] = []
        for number in range(count):
            wanted = tuple(
                Wanted(parse_address(brokers[a].address)) for a, b in links if b == number
            )
            of = Network(name=f"b{number}", neighbours=wanted, **options)
            brokers.append(await stack.enter_async_context(Broker(port=0, network=of)))
        await until(lambda: sum(len(each.neighbours) for each in brokers) == 2 * len(links))
        yield brokers


def know(brokers: Sequence[Broker], count: int) -> bool:
    """Whether each broker holds so many filters."""
    return all(each.exchange.routing().filters.nodes == count for each in brokers)


@on_loop
@pytest.mark.parametrize(
    ("links", "options"),
    [
        ([(0, 1), (1, 2)], {}),
        ([(0, 1), (1, 2), (0, 2)], {"general": True, "trees": 1}),
        ([(0, 1), (1, 2), (0, 2)], {"general": True}),
    ],
)
async def test_what_is_published_at_one_is_delivered_at_another(
    links: Links, options: dict[str, Any]
) -> None:
    """A network would be as many brokers that know nothing of one another."""
    async with network(3, links, **options) as brokers:
        async with (
            connect(brokers[0].address) as publisher,
            connect(brokers[2].address) as subscriber,
            subscriber.subscribe("a > 1") as events,
        ):
            await until(lambda: know(brokers, 1))
            for each in range(4):
                await publisher.publish({"a": each})
            found = [(await anext(events))["a"] for _ in range(2)]
            assert found == [2, 3]
            assert brokers[1].statistics().subscriptions == 0
        await until(lambda: know(brokers, 0))
