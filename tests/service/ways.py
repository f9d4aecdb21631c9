"""The ways to have a service: in this process, at a broker, and in a network of brokers.

There as a client of two of them, or in one place as a server of its own.
"""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from contrada.net.broker.broker import Broker
from contrada.net.broker.embedded_broker import EmbeddedBroker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.client.remote_offers import RemoteOfferBoard
from contrada.net.client.tcp_service import TcpService
from contrada.net.client.tcp_subscription import TcpSubscription
from contrada.net.wire.address import parse_address
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Offer
from contrada.service import Advertisements, Service, SourceOffer
from contrada.service.embedded_service import EmbeddedService, EmbeddedSubscription
from contrada.service.offers import LocalOfferBoard
from contrada.service.queues import Queues
from tests.asynchronous import until
from tests.net.networks import FIVE, Network, network

NAMES: Final = ("embedded", "broker", "network", "from a server", "to a server")
"""Which ways there are."""

_NUMBERS: Final = itertools.count()

SLACK_US: Final = 300_000
"""How long brokers wait for late notifications of patterns."""

Connect: TypeAlias = Callable[..., Service]
"""Makes an access point, with options of `connect`. All of one way are the same service."""


@dataclass(frozen=True)
class Way:
    """One way to have a service."""

    name: str
    connect: Connect


class InformedMarket(RemoteOfferBoard):
    """It waits until its advertisements are known everywhere."""

    def __init__(self, client: TcpService, brokers: Network) -> None:
        super().__init__(client.reconnection)
        self._brokers = brokers

    async def advertise(self, offer: Offer) -> str:
        identity = await super().advertise(offer)
        await until(lambda: self._brokers.is_at_rest)
        return identity


def known_everywhere(kind: type[Any]) -> type[Any]:
    """A kind of subscription that waits until all brokers know it."""

    class KnownSubscription(kind):  # type: ignore[misc]
        async def _enter(self) -> None:
            await super()._enter()
            await until(lambda: self._service.brokers.is_at_rest)

        async def _replace(self) -> None:
            await super()._replace()
            await until(lambda: self._service.brokers.is_at_rest)

    return KnownSubscription


InformedSubscription: Final = known_everywhere(TcpSubscription)
JoinedSubscription: Final = known_everywhere(EmbeddedSubscription)


class Informed(TcpService):
    """A client of a network that waits until its subscriptions are known everywhere."""

    def __init__(self, brokers: Network, number: int, **options: Any) -> None:
        super().__init__(brokers[number].address, **options)
        self.brokers = brokers
        self._offers = InformedMarket(self, brokers)

    def _new_subscription(self, *arguments: Any) -> TcpSubscription:
        found = super()._new_subscription(*arguments)
        found.__class__ = InformedSubscription
        return found


class JoinedMarket(LocalOfferBoard):
    """It waits until its advertisements are known everywhere."""

    def __init__(self, service: "Joined") -> None:
        super().__init__(service.dispatcher, service.client, service.require_open)
        self._brokers = service.brokers

    async def advertise(self, offer: Offer) -> str:
        identity = await super().advertise(offer)
        await until(lambda: self._brokers.is_at_rest)
        return identity


class Joined(EmbeddedBroker):
    """An embedded broker that is known everywhere once it is open, with its subscriptions."""

    def __init__(self, brokers: Network, number: int, **options: Any) -> None:
        wanted = (WantedLink(parse_address(brokers[number].address)),)
        self.brokers = brokers
        name = f"s{next(_NUMBERS)}"
        super().__init__(
            replace(brokers[number].neighbours.network, name=name, neighbours=wanted), **options
        )
        brokers.watch(self.dispatcher)
        self._offers = JoinedMarket(self)

    async def open(self) -> None:
        await super().open()
        await until(lambda: self.brokers.is_at_rest)

    def subscribe(self, *arguments: Any, **options: Any) -> Any:
        found = super().subscribe(*arguments, **options)
        if isinstance(found, EmbeddedSubscription):
            found.__class__ = JoinedSubscription
        return found


class Apart(Service):
    """One service in two places far from one another: it publishes here and subscribes there."""

    far: Service

    async def open(self) -> None:
        await self.far.open()
        await super().open()  # type: ignore[safe-super]

    async def aclose(self) -> None:
        await self.far.aclose()
        await super().aclose()  # type: ignore[safe-super]

    def subscribe(self, *arguments: Any, **options: Any) -> Any:
        return self.far.subscribe(*arguments, **options)

    @property
    def queues(self) -> Queues:
        return self.far.queues

    def advertisements(self) -> Advertisements:
        return self.far.advertisements()

    def offer(self, *arguments: Any, **options: Any) -> SourceOffer:
        return self.far.offer(*arguments, **options)


class AtBrokers(Apart, Informed):
    """At two brokers."""

    def __init__(self, brokers: Network, **options: Any) -> None:
        super().__init__(brokers, 0, **options)
        self.far = Informed(brokers, 3)


class FromServer(Apart, Joined):
    """It publishes as a server of its own, and subscribes at a broker."""

    def __init__(self, brokers: Network, **options: Any) -> None:
        super().__init__(brokers, 0, **options)
        self.far = Informed(brokers, 3)


class ToServer(Apart, Informed):
    """It publishes at a broker, and subscribes as a server of its own."""

    def __init__(self, brokers: Network, **options: Any) -> None:
        super().__init__(brokers, 0, **options)
        self.far = Joined(brokers, 3)


async def known(service: Service) -> None:
    """Returns when the subscriptions and offers of a service are known everywhere."""
    brokers: Network | None = getattr(service, "brokers", None)
    if brokers is not None:
        await until(lambda: brokers.is_at_rest)


async def known_durable(service: Service, count: int) -> None:
    """Returns when the publisher knows so many durable subscriptions, where these are apart."""
    if not isinstance(service, Apart) or not count:
        return
    assert isinstance(service, Joined | Informed)
    logs = service._server.logs if isinstance(service, Joined) else service.brokers[0].logs
    await until(lambda: logs.used_host is not None and _durable_count(logs.used_host) == count)


def _durable_count(host: Any) -> int:
    count: int = host.server.statistics().standing
    return count


_NETWORKS: Final[dict[str, Callable[..., Service]]] = {
    "network": AtBrokers,
    "from a server": FromServer,
    "to a server": ToServer,
}


@asynccontextmanager
async def way_of(name: str, **options: Any) -> AsyncIterator[Way]:
    """The way of this name; the options are those of a `Membership`."""
    if name in _NETWORKS:
        async with network(5, FIVE, **options) as brokers:
            yield Way(name, lambda **of: _NETWORKS[name](brokers, **of))
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
