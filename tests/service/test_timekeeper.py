"""The wait of a publisher for slow readers is bounded over all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from contrada.model import Filter, FilterSet, Notification
from contrada.routing.router_messages import Publish, Subscribe
from contrada.service.dispatcher import Dispatcher
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.service_limits import ServiceLimits
from contrada.service.subscription_queue import SubscriptionQueue
from contrada.service.timekeeper import WAIT_SHARE, ReaderWaits
from tests.asynchronous import on_jumping_loop

WAIT_S = 5.0


class Trickle(SubscriptionQueue[Notification]):
    """The queue of a reader that takes a notification a second, with room for eight."""

    def __init__(self, *, is_held_up: bool) -> None:
        super().__init__(notifications_max=8)
        self.is_at_fault = is_held_up

    @property
    def is_held_up(self) -> bool:
        return self.is_at_fault


class Publisher:
    """A publisher with several subscriptions of others."""

    def __init__(
        self, *queues: SubscriptionQueue[Notification], limits: ServiceLimits = ServiceLimits()
    ) -> None:
        self.dispatcher = Dispatcher(limits=limits)
        self._stamp = EnvelopeFactory("p")
        self._client = self.dispatcher.client()
        for queue in queues:
            request = Subscribe("1", FilterSet([Filter("n >= 0")]))
            self.dispatcher.subscribe(self.dispatcher.client(), request, queue)
        self.waits = ReaderWaits(self.dispatcher)

    def pending(self, count: int) -> list[Any]:
        """Publishes; returns the entries without room, and the later turns."""
        items = self._stamp.stamped([Notification({"n": n}) for n in range(count)], 1)
        later: list[Any] = []
        return self.dispatcher.take(self._client, Publish(tuple(items)), 1, later)[0] + later

    async def publish(self, count: int, wait_s: float = WAIT_S) -> tuple[int, float]:
        """Returns the number of lost entries, and the seconds that it waited."""
        pending = self.pending(count)
        clock = asyncio.get_running_loop().time
        began_s = clock()
        lost = await self.waits.wait(pending, wait_s) if pending else 0
        return lost, clock() - began_s


async def take_slowly(queue: SubscriptionQueue[Notification]) -> None:
    """Takes a notification a second."""
    while True:
        await asyncio.sleep(1.0)
        queue.take()


async def beside_readers(queues: list[Trickle], act: Callable[[], Awaitable[None]]) -> None:
    """Acts while readers take from these queues."""
    readers = [asyncio.create_task(take_slowly(each)) for each in queues]
    try:
        await act()
    finally:
        for each in readers:
            each.cancel()


@pytest.mark.parametrize("limits", [ServiceLimits(), ServiceLimits(deliveries_per_turn=1)])
@on_jumping_loop
async def test_a_reader_that_takes_something_does_not_restart_the_wait(
    limits: ServiceLimits,
) -> None:
    """Its publishers would be as slow as it is, for ever; or where it is in a later turn."""
    queues = [Trickle(is_held_up=True) for _ in range(3)]
    publisher = Publisher(*queues, limits=limits)

    async def publish() -> None:
        lost, took_s = await publisher.publish(1_000)
        assert lost > 0
        assert took_s == WAIT_S
        assert (await publisher.publish(1_000))[1] < 0.01, "no second is given back at once"

    await beside_readers(queues, publish)


@on_jumping_loop
async def test_a_server_that_is_busy_is_not_the_fault_of_its_readers() -> None:
    """Healthy readers of a busy broker would lose notifications."""
    queue = Trickle(is_held_up=False)
    publisher = Publisher(queue)

    async def publish() -> None:
        lost, took_s = await publisher.publish(108)
        assert lost == 0
        assert took_s > 10 * WAIT_S
        queue.is_at_fault = True
        lost, took_s = await publisher.publish(108)
        assert lost > 0
        assert took_s == WAIT_S

    await beside_readers([queue], publish)


@on_jumping_loop
async def test_seconds_come_back_with_time() -> None:
    """A publisher would never again wait for a reader that is slow for a moment."""
    queue = Trickle(is_held_up=True)
    publisher = Publisher(queue)
    assert (await publisher.publish(20))[1] == WAIT_S
    await asyncio.sleep(WAIT_S / 2 / WAIT_SHARE)
    assert queue.take_batch(8, 2**20)[0]
    assert (await publisher.publish(20))[1] == WAIT_S / 2


@on_jumping_loop
async def test_a_publisher_in_line_waits_no_longer_than_it_would_alone() -> None:
    """A publisher with a long wait would hold up all others behind it."""
    queue = Trickle(is_held_up=True)
    patient = Publisher(queue)
    other = ReaderWaits(patient.dispatcher)
    waiting = asyncio.create_task(patient.publish(20, wait_s=60.0))
    await asyncio.sleep(1.0)
    pending: list[Any] = patient.pending(20)
    assert await other.wait(pending, WAIT_S) > 0
    assert asyncio.get_running_loop().time() == 1.0 + WAIT_S
    assert (await waiting)[0] > 0
