"""Services that keep promises, embedded and at a broker over TCP, and what is read of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.delivery.server import DeliveryStatistics
from contrada.net import Broker, connect
from contrada.runtime.hosting import DeliveryHost
from contrada.service import Kept, Service, StandingSubscription

CERTIFIED = "certified"
MARKER = -1

Serve = Callable[..., AbstractAsyncContextManager[Service]]
"""Opens a service with a store at a place, or in memory; closing it ends all of it."""

_BROKERS: dict[Service, Broker] = {}


@asynccontextmanager
async def serving(kind: str, store: Path | str | None = None, **options: Any) -> AsyncIterator[Any]:
    """A service of a kind."""
    if kind == "embedded":
        async with ct.connect(store=store, **options) as service:
            yield service
        return
    async with Broker(port=0, store=store) as broker, connect(broker.address, **options) as service:
        _BROKERS[service] = broker
        try:
            yield service
        finally:
            del _BROKERS[service]


@pytest.fixture(params=["embedded", "broker"])
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


async def records(events: StandingSubscription[Any], count: int) -> list[Kept[Any]]:
    """The next so many."""
    return [await events.next(20) for _ in range(count)]


async def numbers(events: StandingSubscription[Any], count: int) -> list[int]:
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
