"""Advertisements of the embedded service: what is on offer, and how that changes."""

import asyncio

import pytest

import contrada as ct
from contrada.errors import LimitError, ServiceClosedError, ServiceError, UnsatisfiableFilterError
from contrada.routing.tables import ledger
from contrada.runtime import BlockingService, EmbeddedService
from contrada.service import OfferChange
from tests.asynchronous import on_loop

ALARMS = ct.Advertisement("what = 'alarm'")
LOGINS = ct.Advertisement("what = 'login' and user any")


@on_loop
async def test_what_is_on_offer_comes_first_then_what_changes() -> None:
    """A client could not know what others will publish, or would see it only once."""
    async with EmbeddedService() as service, service.advertise(ALARMS):
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
async def test_a_thing_is_on_offer_while_somebody_offers_it() -> None:
    """The first of two publishers that withdraws would take the other's offer away."""
    async with EmbeddedService() as service, service.advertisements() as offers:
        one, other = service.advertise(ALARMS), service.advertise(ALARMS)
        await one.open()
        await one.open()
        await other.open()
        assert await anext(offers) == OfferChange(ALARMS, is_on_offer=True)
        await one.unadvertise()
        await one.unadvertise()
        assert list(offers.current) == [ALARMS]
        await other.unadvertise()
        assert await anext(offers) == OfferChange(ALARMS, is_on_offer=False)
        assert list(offers.current) == []
        with pytest.raises(ServiceClosedError):
            await one.open()


@on_loop
async def test_a_reader_that_does_not_read_holds_no_more_than_the_difference() -> None:
    """Offers that come and go would fill the memory of who does not read them."""
    async with EmbeddedService() as service, service.advertisements() as offers:
        for _ in range(100):
            async with service.advertise(ALARMS):
                pass
        async with service.advertise(LOGINS):
            assert await anext(offers) == OfferChange(LOGINS, is_on_offer=True)
            await service.aclose()
            assert [change async for change in offers] == []


@on_loop
async def test_who_follows_no_longer_leaves_nothing_behind() -> None:
    """Each who ever followed would be told for ever, and get changes after the end."""
    async with EmbeddedService() as service, service.advertise(ALARMS):
        offers = service.advertisements()
        await offers.open()
        await offers.aclose()
        assert [change async for change in offers] == []
        assert not service.exchange.followers
        assert not service.following


@on_loop
async def test_closing_the_service_ends_the_iteration_after_what_waits() -> None:
    """A task that follows what is on offer would hang, or miss the last of it."""
    async with EmbeddedService() as service:
        offers = service.advertisements()
        with pytest.raises(ServiceError, match="async with"):
            await anext(offers)
        await offers.open()
        await service.advertise(ALARMS).open()
        await service.aclose()
        assert [change async for change in offers] == [OfferChange(ALARMS, is_on_offer=True)]
        with pytest.raises(ServiceClosedError):
            await service.advertise(ALARMS).open()


@on_loop
async def test_what_is_refused_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would not know what to change."""
    async with EmbeddedService() as service:
        with pytest.raises(UnsatisfiableFilterError):
            service.advertise(ct.Filter("a > 1 and a < 1"))
        with pytest.raises(ServiceError, match="cannot advertise"):
            service.advertise(ct.FilterSet("a = 1 or b = 1"))  # type: ignore[arg-type]
        monkeypatch.setattr(ledger, "LEDGER_ENTRIES_MAX", 0)
        async with service.advertisements() as offers:
            with pytest.raises(LimitError, match="LEDGER_ENTRIES_MAX"):
                await service.advertise(ALARMS).open()
            assert list(offers.current) == []


def test_code_that_does_not_await_can_advertise_and_follow() -> None:
    """The blocking face would lack a part of the service."""
    with BlockingService(EmbeddedService()) as service:
        with service.advertisements(timeout_s=0.01) as offers, service.advertise(ALARMS) as mine:
            assert mine.offer == ALARMS
            assert list(offers.current) == [ALARMS]
            assert [change.offer for change in offers] == [ALARMS]
            mine.unadvertise()
            assert offers.next(5) == OfferChange(ALARMS, is_on_offer=False)
            with pytest.raises(TimeoutError):
                offers.next(0.01)
        with pytest.raises(ServiceClosedError):
            offers.next(5)


@on_loop
async def test_another_event_loop_is_told_so() -> None:
    """A follower on another loop would wait for what never reaches it."""
    async with EmbeddedService() as service, service.advertisements() as offers:

        async def elsewhere() -> None:
            with pytest.raises(ServiceError, match="event loop"):
                await anext(offers)
            with pytest.raises(ServiceError, match="event loop"):
                await service.advertise(ALARMS).open()

        await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
