"""The behaviour of full queues without waiting publishers."""

import asyncio
from typing import Any, TypeVar

import pytest

from contrada.connections import connect
from contrada.errors import ServiceError, TooSlowError
from contrada.model import Filter, Notification, Pattern
from contrada.net.broker.broker import Broker
from contrada.net.client.tcp_service import TcpService
from contrada.service import Service, Subscription
from contrada.service.embedded_service import EmbeddedService
from contrada.service.service_limits import ServiceLimits
from contrada.service.subscription_queue import PUBLISH_WAIT_S_MAX, QUEUE_FULL
from contrada.service.sync import SyncService
from tests.asynchronous import on_loop, until
from tests.service.ways import service_of

QUEUE_NOTIFICATIONS_MAX = ServiceLimits().queue_notifications_max

T = TypeVar("T")

TOTAL = 3 * QUEUE_NOTIFICATIONS_MAX
"""More notifications than all queues hold."""


async def publish_all(service: Service) -> None:
    """Publishes more than the queue of a sleeping reader holds; a waiting publisher would take too
    long.
    """
    await service.publish_batch({"n": n} for n in range(TOTAL))


async def read_all(events: Subscription[T], into: list[T]) -> None:
    """Reads to the end."""
    async for each in events:
        into.append(each)  # noqa: PERF401 - notifications before the end are kept


@pytest.mark.slow
@on_loop
async def test_what_has_waited_longest_makes_room(name: str) -> None:
    """A display of the newest values would show the oldest."""
    async with (
        service_of(name, publish_wait_s=PUBLISH_WAIT_S_MAX) as service,
        service.subscribe("n >= 0", when_full="drop-oldest") as events,
        service.subscribe(f"n = {TOTAL - 1}") as last,
    ):
        await publish_all(service)
        await last.next(20)
        found: list[Any] = []
        async for each in events:
            found.append(each["n"])
            if each["n"] == TOTAL - 1:
                break
        assert found == sorted(found)
        await events.unsubscribe()
        assert events.statistics().dropped == {QUEUE_FULL: TOTAL - len(found)}
        assert len(found) < TOTAL
        assert found[-QUEUE_NOTIFICATIONS_MAX:] == [*range(TOTAL - QUEUE_NOTIFICATIONS_MAX, TOTAL)]


@pytest.mark.quick_first
@on_loop
async def test_what_comes_finds_no_room(name: str) -> None:
    """A reader of the first values would lose them, or block the publisher."""
    async with (
        service_of(name, publish_wait_s=PUBLISH_WAIT_S_MAX) as service,
        service.subscribe("n >= 0", when_full="drop-newest") as events,
        service.subscribe(f"n = {TOTAL - 1}") as last,
    ):
        await publish_all(service)
        await anext(last)
        found = [(await anext(events))["n"] for _ in range(QUEUE_NOTIFICATIONS_MAX)]
        assert found == [*range(QUEUE_NOTIFICATIONS_MAX)]
        held = events.statistics().queued
        await events.unsubscribe()
        assert events.statistics().dropped[QUEUE_FULL] > 0
        assert held < TOTAL - QUEUE_NOTIFICATIONS_MAX


@pytest.mark.quick_first
@on_loop
async def test_a_subscription_that_does_not_keep_up_ends(name: str) -> None:
    """A sleeping reader would not learn of its losses, or its neighbours would end."""
    async with (
        service_of(name, publish_wait_s=PUBLISH_WAIT_S_MAX) as service,
        service.subscribe("n >= 0", when_full="disconnect") as events,
        service.subscribe("n >= 0", when_full="drop-oldest") as others,
        service.subscribe("end = 1") as last,
    ):
        await publish_all(service)
        await service.publish({"end": 1})
        await anext(last)
        found: list[Notification] = []
        with pytest.raises(TooSlowError, match="did not keep up"):
            await read_all(events, found)
        assert [each["n"] for each in found] == [*range(len(found))]
        assert 0 < len(found) < TOTAL
        assert events.statistics().dropped[QUEUE_FULL] > 0
        async for each in others:
            if each["n"] == TOTAL - 1:
                break
        await service.publish({"n": TOTAL})
        assert (await anext(others))["n"] == TOTAL
        with pytest.raises(ServiceError, match="has ended"):
            await events.open()


@pytest.mark.slow
@on_loop
async def test_a_watcher_that_does_not_keep_up_ends() -> None:
    """Unread matches would block the publishers of their notifications."""
    pattern = Pattern([Filter("a = 1"), Filter("b = 1")])
    async with (
        EmbeddedService(publish_wait_s=PUBLISH_WAIT_S_MAX) as service,
        service.subscribe(pattern, when_full="disconnect") as matches,
    ):
        for _ in range(QUEUE_NOTIFICATIONS_MAX + 1):
            await service.publish_batch([{"a": 1}, {"b": 1}])
        await service.publish({"c": 1})
        with pytest.raises(TooSlowError):
            await read_all(matches, [])


@pytest.mark.parametrize("when_full", ["drop", "", None, 3, ["block"]])
@on_loop
async def test_what_is_none_of_these_is_refused(name: str, when_full: Any) -> None:
    """A typing error would be taken for a valid option."""
    async with service_of(name) as service:
        with pytest.raises(ServiceError, match=r"when_full = .*'block', 'drop-oldest'"):
            service.subscribe("n = 1", when_full=when_full)


@on_loop
async def test_what_is_kept_in_a_log_is_not_dropped(name: str) -> None:
    """An option would break a guarantee."""
    async with service_of(name) as service:
        options: Any = {"durable": "d", "when_full": "drop-oldest"}
        with pytest.raises(ServiceError, match="leave out `when_full`"):
            service.subscribe("n = 1", **options)


@pytest.mark.slow
def test_it_is_an_option_of_blocking_subscriptions_too() -> None:
    """It would be taken for an option of durable subscriptions."""
    with (
        SyncService(EmbeddedService()) as service,
        service.subscribe("n >= 0", when_full="drop-oldest", timeout_s=0.1) as events,
    ):
        service.publish_batch({"n": n} for n in range(TOTAL))
        found = [each["n"] for each in events]
        assert found == [*range(TOTAL - QUEUE_NOTIFICATIONS_MAX, TOTAL)]


@pytest.mark.slow
@on_loop
async def test_an_update_begins_nothing_anew_where_its_subscription_was_cut_off() -> None:
    """A broker would misread it, and publishers would wait."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as subscriber,
        connect(broker.address) as publisher,
        subscriber.subscribe("n >= 0", when_full="disconnect") as events,
    ):
        assert isinstance(subscriber, TcpService)
        connection_here = subscriber.reconnection._wire
        assert connection_here is not None
        transport = connection_here._transport
        assert transport is not None
        transport.pause_reading()
        while any(broker.clients().values()):
            await publisher.publish_batch({"n": n} for n in range(QUEUE_NOTIFICATIONS_MAX))
        update = asyncio.create_task(events.update("n >= 1"))
        await until(lambda: any(broker.clients().values()))
        transport.resume_reading()
        await update
        await until(lambda: not any(broker.clients().values()))
        with pytest.raises(TooSlowError):
            async for _ in events:
                pass
