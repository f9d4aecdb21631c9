"""Subscriptions of several ways: their room, and their ends."""

from typing import Any

import pytest

import contrada as ct
from contrada.errors import ServiceError
from contrada.model import Notification
from contrada.service.merged_subscription import MERGED_WAITING_MAX, MergedSubscription
from tests.asynchronous import on_loop, until


class Failing:
    """A subscription that cannot be ended, as over a lost connection."""

    def __init__(self, held: Any) -> None:
        self._held = held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._held, name)

    def __aiter__(self) -> Any:
        return self._held

    async def unsubscribe(self) -> None:
        """Fails."""
        raise ServiceError("away")


def merged(own: Any, carried: Any) -> MergedSubscription:
    """The subscription of two ways to all notifications."""
    return MergedSubscription(own, [carried], own.filters, None, None)


@on_loop
async def test_a_way_that_fails_leaves_no_other_open() -> None:
    """A dissemination would go on to receive for nobody."""
    async with ct.connect() as service, ct.connect() as other:
        events = merged(Failing(service.subscribe("n any")), other.subscribe("n any"))
        await events.open()
        assert other.statistics().subscriptions == 1
        with pytest.raises(ServiceError, match="away"):
            await events.unsubscribe()
        assert other.statistics().subscriptions == 0


@on_loop
async def test_batches_make_as_much_room_as_they_take() -> None:
    """A reader of batches would wait for ever once the room was used up."""
    async with (
        ct.connect() as service,
        ct.connect() as other,
        merged(service.subscribe("n any"), other.subscribe("n any")) as events,
    ):
        total, found = 3 * MERGED_WAITING_MAX, list[Notification]()
        await service.publish_batch([{"n": n} for n in range(total)])
        while len(found) < total:
            await until(lambda: events.queue.held_bytes > 0)
            found += events.take_queued(MERGED_WAITING_MAX)
        assert [each["n"] for each in found] == [*range(total)]
        assert events.take_queued(1) == []
        assert events._room._value == MERGED_WAITING_MAX
