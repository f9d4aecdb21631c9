"""Hooks of a collection class of one's own."""

import asyncio
from dataclasses import dataclass
from typing import TypeVar

import pytest

import contrada as ct
from contrada.errors import (
    CannotPublishError,
    CannotSubscribeError,
    InvalidObventError,
    ServiceError,
)
from contrada.service import DurableOptions, Interest, Subscription
from contrada.service.embedded_service import EmbeddedService
from contrada.service.service_limits import ServiceLimits
from contrada.typed.collections import Arrival, ElementRule, StrongBag, WeakBag
from tests.asynchronous import on_loop

QUEUE_NOTIFICATIONS_MAX = ServiceLimits().queue_notifications_max

T = TypeVar("T")


@dataclass
class Reading(ct.Obvent, name="collection.Reading"):
    value: float = 0.0


class Checked(WeakBag[Reading]):
    """Refuses invalid elements, and rounds the others."""

    def admit(self, obvent: Reading) -> Reading:
        if obvent.value < 0:
            raise InvalidObventError("collection.Reading", "below zero")
        return Reading(round(obvent.value, 1))


class Newest(WeakBag[T]):
    """Drops old elements for a slow consumer."""

    def subscribed(
        self, rule: ElementRule[T], options: DurableOptions
    ) -> Subscription[tuple[Arrival[T], ...]]:
        subject: Interest[tuple[Arrival[T], ...]] = rule
        return self.service.subscribe(subject, when_full="drop-oldest")


class Bounded(StrongBag[ct.Notification]):
    """Queues that refuse too many elements."""

    retention = ct.Retention(records_max=2)


@on_loop
async def test_admit_decides_on_added_objects() -> None:
    """Each publisher would have to check."""
    async with EmbeddedService() as service:
        of = Checked(service, Reading)
        async with of.get() as consumer:
            await of.add(Reading(1.26))
            await of.add_all([Reading(2.26), Reading(3.26)])
            assert [(await consumer.get()).value for _ in range(3)] == [1.3, 2.3, 3.3]
            for publish in (of.add(Reading(-1)), of.add_all([Reading(1), Reading(-1)])):
                with pytest.raises(InvalidObventError, match="below zero"):
                    await publish
            assert await consumer.poll() is None, "none of what is together is published"


@on_loop
async def test_a_collection_is_opened_once_and_can_be_closed_meanwhile() -> None:
    """It would hold each element twice, and one of its subscriptions would never end."""
    async with EmbeddedService() as service:
        of: WeakBag[Reading] = WeakBag(service, Reading)
        await asyncio.gather(of.open(), of.open())
        assert service.statistics().subscriptions == 1
        await asyncio.gather(of.aclose(), of.open(), of.aclose())
        assert service.statistics().subscriptions == 0
        with pytest.raises(ServiceError, match="inside its own `async with`"):
            _ = of.held


@on_loop
async def test_a_class_overrides_subscribed() -> None:
    """A slow consumer would block publishers in spite of its class."""
    async with EmbeddedService() as service:
        of = Newest(service, Reading)
        async with of.get() as consumer:
            for number in range(QUEUE_NOTIFICATIONS_MAX + 10):
                await of.add(Reading(number))
            assert (await consumer.get()).value == 10
            assert sum(consumer.statistics().dropped.values()) == 10


@on_loop
async def test_retention_bounds_queues(tmp_path: object) -> None:
    """A queue without readers would fill the disk."""
    async with EmbeddedService(store=f"{tmp_path}/kept.db") as service:
        from contrada.typed.collections import Subject

        of = Bounded(service, Subject("/a"))
        async with of.remove():
            for _ in range(2):
                await of.add(ct.Notification({"n": 1}))
            with pytest.raises(CannotPublishError):
                await of.add(ct.Notification({"n": 1}))
        with pytest.raises(CannotSubscribeError):
            await (
                StrongBag(service, Subject("/a"))
                .remove(print, where="n = 3", queue=f"queue of {of.space.name}")
                .activate()
            )
