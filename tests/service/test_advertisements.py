"""Advertisements at a service, and their changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import contrada as ct
from contrada.errors import LimitError, ServiceClosedError, ServiceError, UnsatisfiableFilterError
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Reason, RefusedError
from contrada.routing.tables import interest_table
from contrada.service import Advertisements, OfferChange, Service
from contrada.service.sync import SyncService
from tests.asynchronous import on_loop, until
from tests.service.ways import service_of, way_of

ALARMS = ct.Advertisement("what = 'alarm'")
LOGINS = ct.Advertisement("what = 'login' and user any")


@asynccontextmanager
async def market_of(name: str) -> AsyncIterator[Service]:
    """A service that forwards advertisements in its network, if it has one."""
    async with service_of(name, strategy=Strategy.ADVERTISEMENTS) as service:
        yield service


async def shows(offers: Advertisements, *offered: ct.Advertisement) -> None:
    """Returns when exactly this is on offer."""
    await until(lambda: set(offers.current) == set(offered))


@on_loop
async def test_what_is_on_offer_comes_first_then_what_changes(name: str) -> None:
    """A client could not know the publications of others, or would see them only once."""
    async with market_of(name) as service, service.advertise(ALARMS):
        async with service.advertisements() as offers:
            assert list(offers.current) == [ALARMS]
            assert await anext(offers) == OfferChange(ALARMS, is_on_offer=True)
            async with service.advertise("what = 'login' and user any"):
                assert await anext(offers) == OfferChange(LOGINS, is_on_offer=True)
                assert set(offers.current) == {ALARMS, LOGINS}
            waiting = asyncio.create_task(anext(offers))
            assert await waiting == OfferChange(LOGINS, is_on_offer=False)
        assert [change async for change in offers] == []
        with pytest.raises(ServiceClosedError):
            await offers.open()


@on_loop
async def test_a_thing_is_on_offer_while_somebody_offers_it(name: str) -> None:
    """The first of two publishers would withdraw the other's advertisement."""
    async with market_of(name) as service, service.advertisements() as offers:
        one, other = service.advertise(ALARMS), service.advertise(ALARMS)
        await asyncio.gather(one.open(), one.open())
        await other.open()
        assert await anext(offers) == OfferChange(ALARMS, is_on_offer=True)
        await asyncio.gather(one.unadvertise(), one.unadvertise())
        async with service.advertise(LOGINS):
            assert await anext(offers) == OfferChange(LOGINS, is_on_offer=True)
            assert set(offers.current) == {ALARMS, LOGINS}
            await other.unadvertise()
            assert await anext(offers) == OfferChange(ALARMS, is_on_offer=False)
            assert list(offers.current) == [LOGINS]
        with pytest.raises(ServiceClosedError):
            await one.open()


@on_loop
async def test_a_reader_that_does_not_read_holds_no_more_than_the_difference(name: str) -> None:
    """Changing advertisements would fill the memory of a slow reader."""
    async with market_of(name) as service, service.advertisements() as offers:
        for _ in range(100):
            async with service.advertise(ALARMS):
                pass
        async with service.advertise(LOGINS):
            await shows(offers, LOGINS)
            assert await anext(offers) == OfferChange(LOGINS, is_on_offer=True)
            await service.aclose()
            assert [change async for change in offers] == []


@on_loop
async def test_several_follow_at_once(name: str) -> None:
    """One follower would end the others, or begin at their position."""
    async with market_of(name) as service, service.advertise(ALARMS):
        async with service.advertisements() as one:
            assert await anext(one) == OfferChange(ALARMS, is_on_offer=True)
            async with service.advertisements() as other:
                assert await anext(other) == OfferChange(ALARMS, is_on_offer=True)
            async with service.advertise(LOGINS):
                assert await anext(one) == OfferChange(LOGINS, is_on_offer=True)
                assert [change async for change in other] == []
        async with service.advertisements() as again:
            assert await anext(again) == OfferChange(ALARMS, is_on_offer=True)


@on_loop
async def test_closing_the_service_ends_the_iteration_after_what_waits(name: str) -> None:
    """A follower would hang, or miss the last change."""
    async with market_of(name) as service:
        offers = service.advertisements()
        with pytest.raises(ServiceError, match="async with"):
            await anext(offers)
        await offers.open()
        await service.advertise(ALARMS).open()
        await shows(offers, ALARMS)
        await service.aclose()
        assert [change async for change in offers] == [OfferChange(ALARMS, is_on_offer=True)]
        with pytest.raises(ServiceClosedError):
            await service.advertise(ALARMS).open()


@on_loop
async def test_what_is_refused_says_why(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error would not explain the remedy."""
    async with market_of(name) as service:
        with pytest.raises(UnsatisfiableFilterError):
            service.advertise(ct.Filter("a > 1 and a < 1"))
        with pytest.raises(ServiceError, match="cannot advertise"):
            service.advertise(ct.FilterSet("a = 1 or b = 1"))  # type: ignore[arg-type]

        def refuse(_: object) -> None:
            raise RefusedError(Reason.FULL, LimitError("registrations_max", 0))

        with monkeypatch.context() as patch:
            patch.setattr(interest_table.Registrations, "check_room", refuse)
            async with service.advertisements() as offers:
                with pytest.raises((LimitError, ServiceError), match="registrations_max"):
                    await service.advertise(ALARMS).open()
                assert list(offers.current) == []


def test_code_that_does_not_await_can_advertise_and_follow(name: str) -> None:
    """The blocking service would lack a method."""

    def blocking(held: Service) -> None:
        with SyncService(held) as service, service.advertise(ALARMS) as mine:
            assert mine.offer == ALARMS
            with service.advertisements(timeout_s=0.01) as offers:
                assert list(offers.current) == [ALARMS]
                assert [change.offer for change in offers] == [ALARMS]
                mine.unadvertise()
                assert offers.next(5) == OfferChange(ALARMS, is_on_offer=False)
                with pytest.raises(TimeoutError):
                    offers.next(0.01)
            with pytest.raises(ServiceClosedError):
                offers.next(5)

    async def run() -> None:
        async with way_of(name, strategy=Strategy.ADVERTISEMENTS) as way:
            await asyncio.to_thread(blocking, way.connect())

    asyncio.run(run())


@on_loop
async def test_another_event_loop_is_told_so(name: str) -> None:
    """A follower on another loop would wait for ever."""
    async with market_of(name) as service, service.advertisements() as offers:

        async def elsewhere() -> None:
            with pytest.raises(ServiceError, match="event loop"):
                await anext(offers)
            with pytest.raises(ServiceError, match="event loop"):
                await service.advertise(ALARMS).open()

        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))


@on_loop
async def test_subscriptions_follow_what_is_advertised(name: str) -> None:
    """An advertised publication would reach nobody, or only later subscribers."""
    async with market_of(name) as service, service.subscribe("what any") as events:
        async with service.advertise(ALARMS):
            await service.publish({"what": "alarm"})
            assert (await events.next(10))["what"] == "alarm"
            if name not in ("embedded", "broker"):
                with pytest.raises(ServiceError, match="not advertised"):
                    await service.publish({"what": "login"})
        async with service.advertise(LOGINS):
            await service.publish({"what": "login", "user": 1})
            assert (await events.next(10))["what"] == "login"
