"""Classes of obvents that travel by a dissemination, embedded and at a broker alike."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

import pytest

import contrada as ct
from contrada.errors import InvalidObventError, ServiceClosedError, ServiceError
from contrada.gossip.udp import GossipNode
from contrada.net.broker.broker import Broker
from tests.asynchronous import on_loop, until
from tests.gossip.udp.groups import group_of


@dataclass(frozen=True)
class Tick(ct.Obvent, name="dissemination.Tick"):
    price: float


@dataclass(frozen=True)
class GossipedTick(ct.Disseminated, Tick, name="dissemination.GossipedTick"):
    dissemination: ClassVar[str] = "hpmcast"


@dataclass(frozen=True)
class Nameless(ct.Disseminated, name="dissemination.Nameless"):
    a: int


@dataclass(frozen=True)
class Sure(ct.Disseminated, ct.Reliable, name="dissemination.Sure"):
    a: int
    dissemination: ClassVar[str] = "hpmcast"


@asynccontextmanager
async def two_services(
    kind: str, nodes: list[GossipNode]
) -> AsyncIterator[tuple[ct.Service, ct.Service]]:
    """Two that know the group, each by a participant of its own; embedded they share nothing."""
    async with AsyncExitStack() as stack:
        address = None
        if kind == "tcp":
            address = str((await stack.enter_async_context(Broker("127.0.0.1", 0))).address)
        made = [await stack.enter_async_context(ct.connect(address)) for _ in nodes]
        for service, node in zip(made, nodes, strict=True):
            service.register_dissemination("hpmcast", node)
        yield made[0], made[1]


async def learned(node: GossipNode, price: float) -> None:
    """Waits until a participant knows that another wants what has this price."""
    notification = GossipedTick(price).to_notification()
    own = node.statistics().address[-1]
    table = node.participant.membership.view.table(1)
    await until(
        lambda: any(
            held.filters.matches(notification) for held in table.live() if held.line.digit != own
        )
    )


@pytest.mark.parametrize("kind", ["embedded", "tcp"])
@on_loop
async def test_a_class_travels_as_it_chose(kind: str) -> None:
    """Obvents of the class would use the service, or miss subscribers of a supertype."""
    async with (
        group_of([(0, 0), (0, 1)]) as nodes,
        two_services(kind, [*nodes]) as (here, there),
        there.subscribe(Tick, lambda tick: tick.price < 100) as low,
        there.subscribe("price < 100") as plain,
        here.subscribe(GossipedTick) as own,
    ):
        await learned(nodes[0], 60.0)
        lines = nodes[0].participant.membership.view.table(1).live()
        assert not any(held.filters.matches({"price": 60}) for held in lines)  # Only sent ones.
        await here.publish(GossipedTick(500.0))
        await here.publish(ct.Published(GossipedTick(60.0), by=here))
        assert await here.publish_batch([Tick(70.0), GossipedTick(80.0), {"price": 90}]) == 3
        assert await own.next(20) == GossipedTick(500.0)
        assert {(await own.next(20)).price for _ in range(2)} == {60.0, 80.0}
        expected = {GossipedTick(60.0), GossipedTick(80.0)}
        further = 1 if kind == "tcp" else 0
        found = {await low.next(20) for _ in range(2 + further)}
        assert found == expected | ({Tick(70.0)} if further else set())
        prices = {(await plain.next(20))["price"] for _ in range(2 + 2 * further)}
        assert prices == {60.0, 80.0} | ({70.0, 90} if further else set())
        assert nodes[0].statistics().published == 3
        assert here.statistics().published == 2  # The others.
        assert low.statistics().delivered == 2 + further


@pytest.mark.parametrize("kind", ["embedded", "tcp"])
@on_loop
async def test_subscriptions_end_and_change_on_all_ways(kind: str) -> None:
    """Something would be delivered that is not asked for any longer, or a way be left open."""
    async with group_of([(0, 0), (0, 1)]) as nodes, two_services(kind, [*nodes]) as (here, there):
        async with there.subscribe(GossipedTick) as ticks:
            await ticks.update(lambda tick: tick.price > 50)
            await learned(nodes[0], 60.0)
            await here.publish(GossipedTick(40.0))
            await here.publish(GossipedTick(60.0))
            assert await ticks.next(20) == GossipedTick(60.0)
            handled: list[float] = []
            await there.publish(GossipedTick(70.0))
            await until(lambda: ticks.statistics().queued > 0)
            await ticks.unsubscribe()
            with pytest.raises(ServiceClosedError):
                await ticks.next(1)
            assert not nodes[1]._subscriptions
        last = there.subscribe(GossipedTick)
        await last.open()
        await there.publish(GossipedTick(1.0))
        await until(lambda: last.statistics().queued > 0)
        await there.aclose()
        await last.handle(lambda tick: handled.append(tick.price))
        assert handled == [1.0]


@on_loop
async def test_an_unregistered_dissemination_is_reported() -> None:
    """A class that travels elsewhere would be published where nobody listens, in silence."""
    async with ct.connect() as service:
        with pytest.raises(ServiceError, match="'hpmcast' is not registered"):
            await service.publish(GossipedTick(1.0))
        with pytest.raises(ServiceError, match="'hpmcast' is not registered"):
            await service.publish_batch([{"a": 1}, GossipedTick(1.0)])
        with pytest.raises(ServiceError, match="'hpmcast' is not registered"):
            service.subscribe(GossipedTick)
        with pytest.raises(ServiceError, match="keeps no log"):
            service.subscribe(GossipedTick, reliable=True)
        with pytest.raises(InvalidObventError, match="dissemination = None"):
            await service.publish(Nameless(1))
        with pytest.raises(InvalidObventError, match="choose one"):
            await service.publish(Sure(1))
        async with service.subscribe(Tick) as ticks:  # A supertype asks for nothing that is not.
            await service.publish(Tick(1.0))
            assert await ticks.next(1) == Tick(1.0)
        async with group_of([(0, 0)]) as (node,):
            service.register_dissemination("hpmcast", node)
            with pytest.raises(ServiceError, match="registered already"):
                service.register_dissemination("hpmcast", node)
            with pytest.raises(ServiceError, match="best effort"):
                await service.publish(GossipedTick(1.0), delivery="certified")
            for bad in ("", None):
                with pytest.raises(ServiceError, match="name"):
                    service.register_dissemination(bad, node)  # type: ignore[arg-type]
