"""References to services that ride along in obvents: calls and leases, in every service."""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

import contrada as ct
from contrada.errors import InvalidObventError, RemoteCallError, ServiceError
from contrada.service.embedded_service import EmbeddedService
from contrada.typed.references import Export, Proxy
from contrada.typed.remote_calls import Reference
from tests.asynchronous import on_loop, until
from tests.service.ways import service_of


@dataclass
class Receipt:
    company: str
    amounts: list[int]


class Market(Protocol):
    async def buy(self, company: str, price: float, amount: int = 1) -> Receipt: ...

    async def price(self, company: str) -> float: ...


@dataclass
class Offer(ct.Obvent, name="references.Offer"):
    company: str
    market: Reference[Market]


class Floor:
    """A market that is here."""

    def __init__(self) -> None:
        self.bought: list[str] = []

    async def buy(self, company: str, price: float, amount: int = 1) -> Receipt:
        self.bought.append(company)
        return Receipt(company, [amount, round(price)])

    def price(self, company: str) -> float:
        if company != "Telco":
            raise KeyError(company)
        return 80.0


@on_loop
async def test_who_gets_an_offer_buys_where_it_comes_from(name: str) -> None:
    """Events and calls would need two networks."""
    floor: Any = Floor()
    async with service_of(name) as service, service.subscribe(Offer) as offers:
        async with Export(service, floor, Market) as reference:
            await service.publish(Offer("Telco", reference))
            offer = await offers.next(5)
            assert offer.market == reference
            async with Proxy(service, offer.market, Market) as market:
                assert await market.price("Telco") == 80.0
                assert await market.buy("Telco", 80.0, amount=3) == Receipt("Telco", [3, 80])
                both: Any = await asyncio.gather(market.price("Telco"), market.buy("x", 1.0))
                assert list(both) == [80.0, Receipt("x", [1, 1])]
                with pytest.raises(RemoteCallError, match=r"Market.price: KeyError: 'none'"):
                    await market.price("none")
                untyped: Any = market
                with pytest.raises(InvalidObventError, match="price = 'dear'"):
                    await untyped.buy("Telco", "dear")
                with pytest.raises(TypeError):
                    await untyped.buy()
        assert floor.bought == ["Telco", "x"]


@on_loop
async def test_an_export_lasts_as_long_as_its_lease(name: str) -> None:
    """A crashed owner of a reference would keep an object for ever."""
    floor: Any = Floor()
    async with service_of(name) as service:
        held = await Export(service, floor, Market).open()
        renewals = 0

        def renewed() -> None:
            nonlocal renewals
            renewals += 1

        held.renew = renewed  # type: ignore[method-assign]
        async with Proxy(service, held.reference, Market, renew_s=0.001):
            await until(lambda: renewals >= 3)
        await held.aclose()
        assert not held.is_open

        export = await Export(service, floor, Market, lease_s=0.01).open()
        await asyncio.wait_for(export.expired(), 5)
        assert not export.is_open
        async with Proxy(service, export.reference, Market, wait_s=0.05) as market:
            with pytest.raises(RemoteCallError, match="no answer in 0"):
                await market.price("Telco")
        await export.aclose()


class Odd(Protocol):
    async def both(self, left: int, *, right: int) -> int: ...

    async def unsendable(self) -> Any: ...

    async def cancelled(self) -> None: ...


class OddOne:
    """Methods without a waiting caller."""

    async def both(self, left: int, *, right: int) -> int:
        return left - right

    async def unsendable(self) -> Any:
        return 2**70

    async def cancelled(self) -> None:
        raise asyncio.CancelledError


@on_loop
async def test_each_call_is_answered(name: str) -> None:
    """A caller would wait for the whole time-out, without a reason."""
    async with (
        service_of(name) as service,
        Export(service, OddOne(), Odd) as reference,
        Proxy(service, reference, Odd) as odd,
    ):
        assert await odd.both(5, right=3) == 2
        with pytest.raises(RemoteCallError, match="cannot be sent: InvalidObventError"):
            await odd.unsendable()
        with pytest.raises(RemoteCallError, match="CancelledError"):
            await odd.cancelled()
        assert await odd.both(1, right=3) == -2


@on_loop
async def test_a_proxy_keeps_to_the_lease_that_it_is_told(name: str) -> None:
    """A short lease would end while its reference is held."""
    floor: Any = Floor()
    renewals = 0
    async with service_of(name) as service:
        export = Export(service, floor, Market, lease_s=1.0)
        async with export as reference, Proxy(service, reference, Market):
            renew = export.renew

            def renewed() -> None:
                nonlocal renewals
                renewals += 1
                renew()

            export.renew = renewed  # type: ignore[method-assign]
            await until(lambda: renewals >= 4)
            assert export.is_open


class Slow(Protocol):
    async def sleep(self) -> None: ...


class Sleeper:
    """It answers nobody before it is woken."""

    def __init__(self) -> None:
        self.asked = 0
        self.woken = asyncio.Event()

    async def sleep(self) -> None:
        self.asked += 1
        await self.woken.wait()


@on_loop
async def test_who_waits_when_a_proxy_is_left_is_told_at_once(name: str) -> None:
    """A call would wait the whole time for an answer without a reader."""
    sleeper = Sleeper()
    async with service_of(name) as service, Export(service, sleeper, Slow) as reference:
        async with Proxy(service, reference, Slow, wait_s=1e6) as slow:
            waiting = [asyncio.ensure_future(slow.sleep()) for _ in range(2)]
            await until(lambda: sleeper.asked == 2)
        for each in waiting:
            with pytest.raises(RemoteCallError, match=r"Slow\.sleep: no more answers arrive"):
                await asyncio.wait_for(each, 20)
        with pytest.raises(RemoteCallError, match="inside the proxy's own"):
            await asyncio.wait_for(slow.sleep(), 20)
        assert sleeper.asked == 2


@on_loop
async def test_who_waits_when_its_service_is_closed_is_told_at_once() -> None:
    """A call would wait the whole time for an impossible answer."""
    sleeper = Sleeper()
    async with EmbeddedService() as service:
        export = await Export(service, sleeper, Slow).open()
        async with Proxy(service, export.reference, Slow, wait_s=1e6) as slow:
            waiting = asyncio.ensure_future(slow.sleep())
            await until(lambda: sleeper.asked == 1)
            await service.aclose()
            with pytest.raises(RemoteCallError, match="no more answers arrive"):
                await asyncio.wait_for(waiting, 20)
        await export.aclose()


@on_loop
async def test_nobody_renews_a_lease_at_a_service_that_is_closed() -> None:
    """A warning would be logged every few seconds while the proxy is held."""
    async with EmbeddedService() as service:
        export = await Export(service, Sleeper(), Slow).open()
        proxy = Proxy(service, export.reference, Slow, renew_s=0.01)
        async with proxy:
            await service.aclose()
            _, running = await asyncio.wait(proxy._tasks, timeout=10)
            assert not running
        await export.aclose()


@on_loop
async def test_what_is_left_at_once_leaves_nothing_behind() -> None:
    """Subscriptions to calls and answers would last as long as the service."""
    async with EmbeddedService() as service:
        async with Export(service, Sleeper(), Slow) as reference:
            pass
        async with Proxy(service, reference, Slow):
            pass
        assert service.statistics().subscriptions == 0


@on_loop
async def test_who_is_called_no_longer_asks_for_no_calls() -> None:
    """Queues of expired references would fill; or a renewed one would expire."""
    async with EmbeddedService() as service:
        export = await Export(service, Sleeper(), Slow).open()
        first = export._expiry
        export.renew()
        assert first is not None
        assert first.cancelled()
        await asyncio.sleep(0)
        export._end()  # As its timer does.
        assert not export.is_open
        await until(lambda: service.statistics().subscriptions == 0)


class Several(Protocol):
    async def take(self, *amounts: int) -> None: ...


class Open(Protocol):
    async def take(self, handler: asyncio.Task[None]) -> None: ...


def test_what_cannot_be_called_is_refused() -> None:
    """A call would fail only when it is made."""
    service: Any = None
    with pytest.raises(InvalidObventError, match=r"Open.take"):
        Proxy(service, Reference("x"), Open)
    with pytest.raises(InvalidObventError, match="name each argument"):
        Proxy(service, Reference("x"), Several)
    with pytest.raises(InvalidObventError, match="no methods"):
        Proxy(service, Reference("x"), Receipt)
    with pytest.raises(ServiceError, match="lease_s"):
        Export(service, Floor(), Floor, lease_s=0)
