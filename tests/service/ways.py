"""The three ways to have a service: in this process, at a broker, and in a network of brokers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from contrada.net import Broker
from contrada.net.client import TcpService
from contrada.net.neighbours import Membership
from contrada.net.offering import RemoteMarket
from contrada.routing.messages import Offer
from contrada.routing.router import Strategy
from contrada.runtime import EmbeddedService
from contrada.service import Advertisements, Service
from tests.asynchronous import until
from tests.net.networks import FIVE, Network, network

NAMES: Final = ("embedded", "broker", "network")
"""Which ways there are."""

SLACK_US: Final = 300_000
"""How long brokers wait for what may come late, where patterns do."""

Connect: TypeAlias = Callable[..., Service]
"""Makes an access point, with options of `connect`. All of one way are the same service."""


@dataclass(frozen=True)
class Way:
    """One way to have a service."""

    name: str
    connect: Connect


class InformedMarket(RemoteMarket):
    """It waits until what is advertised is known everywhere."""

    def __init__(self, client: TcpService, brokers: Network) -> None:
        super().__init__(client)
        self._brokers = brokers

    async def advertise(self, offer: Offer) -> str:
        identity = await super().advertise(offer)
        await until(lambda: self._brokers.is_at_rest)
        return identity


class Informed(TcpService):
    """An access point to a network that waits until what it asks for is known everywhere."""

    def __init__(self, brokers: Network, number: int, **options: Any) -> None:
        super().__init__(brokers[number].address, **options)
        self._brokers = brokers
        self._market = InformedMarket(self, brokers)

    async def enter(self, *arguments: Any) -> None:
        await super().enter(*arguments)
        await until(lambda: self._brokers.is_at_rest)

    async def renew(self, *arguments: Any) -> None:
        await super().renew(*arguments)
        await until(lambda: self._brokers.is_at_rest)


class Apart(Informed):
    """One service at two brokers far from one another: it publishes here and subscribes there."""

    def __init__(self, brokers: Network, **options: Any) -> None:
        super().__init__(brokers, 0, **options)
        self.far = Informed(brokers, 3)

    async def open(self) -> None:
        await self.far.open()
        await super().open()

    async def aclose(self) -> None:
        await self.far.aclose()
        await super().aclose()

    def subscribe(self, *arguments: Any, **options: Any) -> Any:
        return self.far.subscribe(*arguments, **options)

    def advertisements(self) -> Advertisements:
        return self.far.advertisements()


@asynccontextmanager
async def way_of(name: str, **options: Any) -> AsyncIterator[Way]:
    """The way of this name; the options are those of a `Membership`."""
    if name == "network":
        async with network(5, FIVE, **options) as brokers:
            yield Way(name, lambda **of: Apart(brokers, **of))
    elif name == "broker":
        async with Broker(port=0, network=Membership(**options)) as broker:
            yield Way(name, lambda **of: TcpService(broker.address, **of))
    else:
        yield Way(name, EmbeddedService)


@asynccontextmanager
async def service_of(
    name: str,
    *,
    strategy: Strategy = Strategy.SUBSCRIPTIONS,
    slack_us: int = SLACK_US,
    **options: Any,
) -> AsyncIterator[Service]:
    """One access point, open, and all that is behind it; the options are those of `connect`."""
    way = way_of(name, strategy=strategy, slack_us=slack_us)
    async with way as each, each.connect(**options) as service:
        yield service
