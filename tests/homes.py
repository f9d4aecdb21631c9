"""Services that keep promises, embedded, at a broker and in a network, and what is read of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.connections import connect
from contrada.delivery.delivery_server import DeliveryStatistics
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.wire.address import parse_address
from contrada.service import DurableRecord, DurableSubscription, Service
from contrada.service.delivery_host import DeliveryHost
from tests.asynchronous import until

CERTIFIED = "certified"
MARKER = -1

Serve = Callable[..., AbstractAsyncContextManager[Service]]
"""Opens a service with a store at a place, or in memory; closing it ends all of it."""

NETWORK = 5
"""Servers of a network, in a line; the sequencer is the last. The client is at the first, or is an
embedded service itself."""

_BROKERS: dict[Service, Broker] = {}


@asynccontextmanager
async def serving(kind: str, store: Path | str | None = None, **options: Any) -> AsyncIterator[Any]:
    """A service of a kind."""
    if kind == "embedded":
        async with ct.connect(store=store, **options) as service:
            yield service
        return
    async with AsyncExitStack() as stack:
        count = {"broker": 1, "network": NETWORK, "server": NETWORK - 1}[kind]
        brokers: list[Broker] = []
        for number in range(count):
            links = [WantedLink(parse_address(each.address)) for each in brokers[-1:]]
            of = Membership(f"b{number}", neighbours=tuple(links), sequencer=f"b{count - 1}")
            at = None if store is None else f"{store}{number + (kind == 'server') or ''}"
            broker = Broker(port=0, network=of if count > 1 else None, store=at)
            brokers.append(await stack.enter_async_context(broker))
        if count > 1:
            await until(
                lambda: all(
                    each.dispatcher.router.statistics().servers == count for each in brokers
                )
            )
        if kind == "server":
            joined = connect(
                neighbours=[brokers[0].address],
                name="s",
                sequencer=brokers[-1].neighbours.network.name,
                store=store,
                **options,
            )
            yield await stack.enter_async_context(joined)
            return
        service = await stack.enter_async_context(connect(brokers[0].address, **options))
        _BROKERS[service] = brokers[0]
        stack.callback(_BROKERS.pop, service)
        yield service


@pytest.fixture(
    params=[
        *("embedded", "broker"),
        # Of these the tests of the ferry and of embedded servers are quick.
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("network", "server")),
    ]
)
def serve(request: pytest.FixtureRequest) -> Serve:
    """How to open a service of each kind."""
    return partial(serving, request.param)


def host_of(service: Service) -> DeliveryHost:
    """What keeps its promises."""
    broker = _BROKERS.get(service)
    return service.delivery() if broker is None else broker.logs.host  # type: ignore[attr-defined]


def of(service: Service) -> DeliveryStatistics:
    """The statistics of what is promised."""
    return host_of(service).server.statistics()


async def records(events: DurableSubscription[Any], count: int) -> list[DurableRecord[Any]]:
    """The next so many."""
    return [await events.next(20) for _ in range(count)]


async def numbers(events: DurableSubscription[Any], count: int) -> list[int]:
    """The numbers of the next so many."""
    return [each.item["n"] for each in await records(events, count)]


async def rest(service: Service, name: str) -> list[int]:
    """The numbers of all that a durable subscription has for a reader; it is read."""
    await service.publish({"n": MARKER}, delivery=CERTIFIED)
    found: list[int] = []
    async with service.subscribe(durable=name) as events:
        while MARKER not in found:
            found += await numbers(events, 1)
    found.remove(MARKER)
    return found
