"""A bridge between a service and a group: each event once, under its identity, and never back."""

import asyncio
from contextlib import AsyncExitStack

import pytest

import contrada as ct
from contrada.errors import ServiceError, StoreFullError
from contrada.gossip.udp.group_bridge import TO_GROUP, TO_SERVICE, GroupBridge
from contrada.net.broker.broker import Broker
from tests.asynchronous import on_loop, until
from tests.gossip.udp.groups import group_of


@on_loop
async def test_events_go_over_once_and_never_back() -> None:
    """An event would loop, be lost, or change its identity."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        broker = await enter(Broker("127.0.0.1", 0))
        at_broker = await enter(ct.connect(str(broker.address)))
        outside = await enter(ct.connect(str(broker.address)))
        one, two = await enter(group_of([(0, 0), (0, 1)]))
        bridge = GroupBridge(at_broker, one, to_group="a any", to_service="a any or b any")
        opened = asyncio.Event()
        carrying = asyncio.ensure_future(bridge.run(opened.set))
        await opened.wait()
        in_group = await enter(two.subscribe("a any"))
        at_service = await enter(outside.subscribe("a any or b any"))
        table = two.participant.membership.view.table(1)
        await until(lambda: any(held.filters.matches({"b": 1}) for held in table.live()))

        sent = await outside.publish({"a": 1}, body=b"whole")
        assert (await at_service.next(20)).envelope == sent
        found = await in_group.next(20)
        assert (found.envelope.id, found.envelope.publisher) == (sent.id, sent.publisher)
        assert found.body == b"whole"

        sent = await two.publish({"a": 2})
        assert (await in_group.next(20)).envelope.id == sent.id
        assert (await at_service.next(20)).envelope.id == sent.id
        await two.publish({"b": 3})
        assert (await at_service.next(20))["b"] == 3
        await until(lambda: bridge.counts["went over already"] >= 2)
        await two.spread()
        assert (len(in_group.queue), at_service.statistics().queued) == (0, 0)
        assert (bridge.counts[TO_GROUP], bridge.counts[TO_SERVICE]) == (1, 2)
        carrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await carrying


@on_loop
async def test_a_bridge_without_a_way_is_refused() -> None:
    """It would run and forward nothing."""
    async with ct.connect() as service, group_of([(0, 0)]) as (one,):
        with pytest.raises(ServiceError, match="needs to_group or to_service"):
            GroupBridge(service, one)


@on_loop
async def test_a_bridge_survives_a_full_store() -> None:
    """One reliable event of a participant would end it for all others."""
    async with ct.connect() as service, group_of([(0, 0)]) as (one,):

        async def publish(event: ct.Notification) -> ct.Envelope:
            if event["a"] == 1:
                raise StoreFullError("the disk is full")
            return event.envelope

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service, "publish", publish)
            bridge = GroupBridge(service, one, to_service="a any")
        opened = asyncio.Event()
        carrying = asyncio.ensure_future(bridge.run(opened.set))
        await opened.wait()
        for number in (1, 2):
            await one.publish({"a": number})
        await until(lambda: bridge.counts[TO_SERVICE] == 1 or carrying.done())
        assert bridge.counts == {f"{TO_SERVICE}, refused": 1, TO_SERVICE: 1}
        carrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await carrying


@on_loop
async def test_a_bridge_survives_refusals_and_ends_with_its_service() -> None:
    """One event that is too large would end it; or it would run on without one side."""
    async with group_of([(0, 0)]) as (one,):
        service = ct.connect()
        async with service:
            bridge = GroupBridge(service, one, to_group="a any")
            opened = asyncio.Event()
            carrying = asyncio.ensure_future(bridge.run(opened.set))
            await opened.wait()
            await service.publish({"a": 1}, body=bytes(600_000))
            await service.publish({"a": 2})
            await until(lambda: bridge.counts[TO_GROUP] == 1)
            assert bridge.counts[f"{TO_GROUP}, refused"] == 1
        await carrying
