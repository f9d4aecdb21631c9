"""`Supply`: producers that are polled."""

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

import contrada as ct
from contrada.errors import InvalidObventError, ServiceError
from contrada.service.embedded_service import EmbeddedService
from contrada.typed.collections import WeakSet
from tests.asynchronous import on_loop


@dataclass
class Level(ct.Obvent, name="supplying.Level"):
    height: float = 0.0


async def ticks(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@on_loop
async def test_a_producer_is_polled_on_demand() -> None:
    """A producer would have to publish by itself, or None be published."""
    given = iter([Level(1), None])

    async def later() -> Level | None:
        return next(given)

    async with EmbeddedService() as service:
        of = WeakSet(service, Level)
        supply = of.supply(later)
        async with of.get() as consumer:
            assert (await supply.pull()) is not None
            assert (await supply.pull()) is None
            assert await consumer.get() == Level(1)
            assert await consumer.poll() is None


@on_loop
async def test_the_production_is_advertised() -> None:
    """Routers would not know the producer."""
    async with EmbeddedService() as service, service.advertisements() as offers:
        of = WeakSet(service, Level, subject="/River")
        async with of.supply(Level):
            (offer,) = offers.current
            assert ct.meets(offer, ct.Filter('@subject prefix "/River/Aare/"'))
        assert offers.current == ()


@on_loop
async def test_a_failed_producer_is_polled_again(caplog: pytest.LogCaptureFixture) -> None:
    """One fault of a sensor would end its readings."""
    polls: list[int] = []
    told: list[Exception] = []

    def careless() -> Level:
        polls.append(1)
        if len(polls) == 1:
            raise OSError("no sensor")
        return 3 if len(polls) == 2 else Level(3)  # type: ignore[return-value]

    async with EmbeddedService() as service:
        of = WeakSet(service, Level)
        supply = of.supply(careless)
        async with of.get() as consumer:
            await supply.run(ticks(3), told.append)
            assert [type(each) for each in told] == [OSError, InvalidObventError]
            assert supply.failed == 2
            assert await consumer.get() == Level(3)
            polls.clear()
            with caplog.at_level(logging.WARNING, "contrada.typed"):
                await supply.run(ticks(1))
            assert "no sensor" in caplog.text
            with pytest.raises(InvalidObventError):
                await supply.pull()


@on_loop
async def test_a_supply_that_could_not_be_opened_is_opened_again() -> None:
    """Its obvents would never be advertised, without an error."""
    service = EmbeddedService()
    supply = WeakSet(service, Level).supply(Level)
    with pytest.raises(ServiceError):
        await supply.open()
    async with service, service.advertisements() as offers:
        await supply.open()
        assert len(offers.current) == 1
        await supply.aclose()
        assert not offers.current
