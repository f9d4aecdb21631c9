"""Types of obvents in every service: predicates, delivery semantics, and handles."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

import contrada as ct
from contrada.errors import (
    CannotSubscribeError,
    CannotUnsubscribeError,
    InvalidObventError,
    ServiceError,
)
from contrada.model import Notification
from contrada.net.broker.broker import Broker
from contrada.net.client.tcp_service import TcpService
from contrada.service import Service
from contrada.service.base_service import BaseService
from contrada.service.embedded_service import EmbeddedService
from contrada.service.service_limits import ServiceLimits
from contrada.typed.handles import Handle, ThreadPolicy
from tests.asynchronous import on_loop, until
from tests.service.ways import known_durable, service_of


@dataclass
class Stock(ct.Obvent, name="types.Stock"):
    company: str
    price: float = 0.0


@dataclass
class Quote(Stock, name="types.Quote"):
    amount: int = 0
    tags: list[str] = field(default_factory=list)


@dataclass
class Trade(Stock, ct.FIFOOrder, name="types.Trade"):
    """Reliable and ordered."""


@dataclass
class Order(Stock, ct.Certified, name="types.Order"):
    """Durable."""


class Named(Protocol):
    company: str

    def to_notification(self) -> Notification: ...


@ct.obvent(name="types.Tick")
class Tick(msgspec.Struct):
    price: float


@dataclass
class Undecorated:
    price: float


@asynccontextmanager
async def keeping(name: str, path: Path) -> AsyncIterator[Service]:
    """A service with a store: embedded, or at a broker."""
    if name == "embedded":
        async with EmbeddedService(store=path) as service:
            yield service
    else:
        async with Broker(port=0, store=path) as broker, TcpService(broker.address) as it:
            yield it


def _has_ended(handle: Handle[Any], got: list[float]) -> bool:
    return bool(got) and not handle.is_active


def _reached(most: Counter[str], wanted: int) -> bool:
    return most["all"] == wanted


def priced(*prices: float) -> list[Quote]:
    return [Quote("Telco", price, tags=["a"]) for price in prices]


async def publish_all(service: Service, items: list[Any]) -> None:
    for each in items:
        await service.publish(each)


@on_loop
async def test_a_predicate_narrows_a_type(name: str) -> None:
    """Filters would be texts that no checker of types reads."""
    limit = 100
    async with (
        service_of(name) as service,
        service.subscribe(Quote, lambda q: 80 < q.price < limit and "Tel" in q.company) as exact,
        service.subscribe(Quote, lambda q: q.price < limit and len(q.tags) == 1) as asked,
        service.subscribe(Tick, lambda tick: tick.price == 5) as ticks,
    ):
        await publish_all(service, [*priced(80, 90, 100), Quote("x", 85), Tick(4.0), Tick(5.0)])
        assert await exact.next(5) == priced(90)[0]
        assert [(await asked.next(5)).price for _ in range(2)] == [80, 90]
        assert await ticks.next(5) == Tick(5.0)
        await service.publish(Quote("Telco", 82))
        assert (await exact.next(5)).price == 82


@on_loop
async def test_the_root_of_all_types_is_subscribed(name: str, tmp_path: Path) -> None:
    """A program for objects of all classes would have to list them."""
    later = Notification.with_marks({"price": 3.0}, marks=["types.Later"])
    async with (
        keeping(name, tmp_path / "store.db") as service,
        service.subscribe(ct.Obvent) as obvents,
        service.subscribe(ct.Obvent, durable="all") as durable,
        service.subscribe(ct.Obvent, lambda it: isinstance(it, Stock)) as stocks,
    ):
        await publish_all(service, [{"price": 1.0}, Tick(1.0), *priced(2), later])
        received = [await obvents.next(5) for _ in range(3)]
        assert received[:2] == [Tick(1.0), *priced(2)]
        assert received[2].to_notification() == later
        assert await stocks.next(5) == priced(2)[0]
        assert [(await durable.next(5)).item for _ in range(2)] == received[:2]
        with pytest.raises(InvalidObventError, match="root of all obvents"):
            await service.publish(ct.Obvent())
        with pytest.raises(InvalidObventError, match="which is no field; expected none"):
            service.subscribe(ct.Obvent, "price < 3")
    with pytest.raises(InvalidObventError, match="not of this type"):
        ct.Obvent.from_notification(Notification({"price": 1.0}))


def test_the_root_reads_objects_of_a_class_that_was_defined_later() -> None:
    """They would be read as unknown from their first message on."""
    given = Notification.with_marks({"price": 3.0}, marks=["types.AfterTheFirst"])
    assert not isinstance(ct.Obvent.from_notification(given), msgspec.Struct)
    made = ct.obvent(name="types.AfterTheFirst")(msgspec.defstruct("After", [("price", float)]))
    assert isinstance(ct.Obvent.from_notification(given), made)


@on_loop
async def test_an_undecorated_object_is_published_by_its_fields(name: str) -> None:
    """It would be refused at run time, where type checkers accept it."""
    async with service_of(name) as service, service.subscribe("price < 3") as cheap:
        await publish_all(service, [Undecorated(5.0), Undecorated(2.0)])
        await service.publish_batch([Undecorated(1.0), {"price": 0.5}])
        assert [(await cheap.next(5))["price"] for _ in range(3)] == [2.0, 1.0, 0.5]


@on_loop
async def test_a_predicate_replaces_a_predicate(name: str) -> None:
    """A program with another filter would have to subscribe again, with a gap."""
    async with (
        service_of(name) as service,
        service.subscribe(Quote, lambda q: q.price < 10) as quotes,
    ):
        await publish_all(service, priced(1, 20))
        await quotes.update(lambda q: q.price >= 10)
        await publish_all(service, priced(2, 30))
        assert (await quotes.next(5)).price == 30
        with pytest.raises(ServiceError, match="not for other objects"):
            await quotes.update(Trade)


@on_loop
async def test_a_predicate_that_raises_says_no_and_is_counted(name: str) -> None:
    """One object would end a subscription, or be delivered without a yes."""

    def careless(quote: Quote) -> bool:
        return quote.tags[0] == "b"

    async with service_of(name) as service, service.subscribe(Quote, careless) as quotes:
        before = service.statistics().operator_failures
        await publish_all(service, [Quote("none"), Quote("one", tags=["b"])])
        assert (await quotes.next(5)).company == "one"
        counted = Counter(service.statistics().operator_failures) - Counter(before)
        assert list(counted.values()) == [1]
        assert "careless" in next(iter(counted))


@on_loop
async def test_what_a_predicate_cannot_be_asked_about_is_counted(name: str) -> None:
    """A foreign notification would end the loop of a subscriber with a residue."""
    strange = Notification.with_marks({"company": 5}, marks=["types.Stock", "types.Quote"])
    asked = ct.Structural[Named]()
    async with (
        service_of(name) as service,
        service.subscribe(Quote, lambda q: len(q.tags) == 1) as quotes,
        service.subscribe(asked, lambda it: len(it.company) == 5) as named,
    ):
        await publish_all(service, [strange, {"company": "Disco"}, *priced(1)])
        assert await quotes.next(5) == priced(1)[0]
        assert await named.next(5) == priced(1)[0]
        assert quotes.statistics().dropped == {"unreadable": 1}
        assert named.statistics().dropped == {"unreadable": 1}, "it has no such method"


def strange(company: str) -> Notification:
    """A class claims an order that cannot hold for it."""
    marks = ["types.Order", "types.Stock", "Certified", "Reliable"]
    return Notification.with_marks({"company": company, "price": "dear"}, marks)


async def read_to(orders: Any, dropped: int) -> None:
    """Reads until so many records were unreadable."""
    reading = asyncio.ensure_future(anext(orders))
    await until(lambda: orders.statistics().dropped.get("unreadable") == dropped)
    reading.cancel()
    await asyncio.wait([reading])


@pytest.mark.parametrize("name", ["embedded", "broker"])
@on_loop
async def test_a_durable_subscription_goes_past_what_it_cannot_read(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A few records would end their reader, or be delivered at each restart, and block all behind
    them.
    """
    async with keeping(name, tmp_path / "kept.db") as service:
        kept = service.subscribe(Order, lambda o: len(o.company) == 1, durable="orders")
        async with kept as orders:
            for item in (strange("x"), Order("a"), strange("y"), Order("b")):
                await service.publish(item, delivery="certified")
            assert [(await orders.next(5)).item.company for _ in range(2)] == ["a", "b"]
            assert orders.statistics().dropped == {"unreadable": 2}
        said = [each for each in caplog.records if "is unreadable" in each.getMessage()]
        assert len(said) == 1
        async with service.subscribe(durable="orders") as again:
            await service.publish(Order("c"))
            assert (await again.next(5)).item["company"] == "c", "the others are done with"


@pytest.mark.parametrize("name", ["embedded", "broker"])
@on_loop
async def test_a_handle_goes_past_what_it_cannot_read(name: str, tmp_path: Path) -> None:
    """No reader could acknowledge a record: its log would grow until publications are refused."""
    got: list[str] = []
    async with keeping(name, tmp_path / "kept.db") as service:
        handle = Handle(service, Order, lambda order: got.append(order.company))
        await handle.activate("orders")
        for item in (strange("x"), Order("a")):
            await service.publish(item, delivery="certified")
        await until(lambda: got == ["a"])
        await handle.deactivate()
        async with service.subscribe(durable="orders") as again:
            await service.publish(Order("b"))
            assert (await again.next(5)).item["company"] == "b"


@pytest.mark.parametrize("name", ["embedded", "broker"])
@on_loop
async def test_who_can_read_nothing_takes_nothing(name: str, tmp_path: Path) -> None:
    """A subscriber with the wrong class would empty its log at its start."""
    async with keeping(name, tmp_path / "kept.db") as service:
        await (await service.subscribe(Order, durable="orders")).aclose()
        for company in "abc":
            await service.publish(strange(company), delivery="certified")
        async with service.subscribe(Order, durable="orders") as orders:
            await read_to(orders, 3)
        async with service.subscribe(Order, durable="orders") as orders:
            await read_to(orders, 3)
        assert isinstance(service, BaseService)
        service.service_limits = ServiceLimits(unreadable_max=2)
        async with service.subscribe(Order, durable="orders") as orders:
            await read_to(orders, 3)
        async with service.subscribe(durable="orders") as again:
            found = [await again.next(5) for _ in range(2)]
            assert [each.item["company"] for each in found] == ["b", "c"], "it keeps so many"


@on_loop
async def test_a_predicate_sees_who_published(name: str) -> None:
    """Only untyped subscribers could select a publisher."""
    async with service_of(name) as service:
        own = (await service.publish(Quote("who am I?"))).publisher
        async with (
            service.subscribe(Quote, lambda q, e: e.publisher == own and q.price > 1) as mine,
            service.subscribe(Quote, lambda q, e: e.publisher != own) as others,
            service.subscribe(Quote, lambda q, e: len(q.tags) > 0 and e.sequence > 0) as asked,
        ):
            await publish_all(service, priced(1, 2))
            assert (await mine.next(5)).price == 2
            assert (await asked.next(5)).price == 1
            with pytest.raises(TimeoutError):
                await others.next(0.01)


class House:
    """A publisher that is no obvent."""

    async def publish(self, service: Service, *items: Any) -> None:
        for each in items:
            await service.publish(ct.Published(each, by=self))


class Exchange(House):
    """A kind of house."""


@on_loop
async def test_a_type_of_publishers_narrows_a_type(name: str) -> None:
    """A subscriber that trusts a kind of publishers would have to know all their names."""
    async with (
        service_of(name) as service,
        service.subscribe(Quote, ct.published_by(House)) as of_houses,
        service.subscribe(Quote, ct.published_by(Exchange) & "price < 100") as cheap,
        service.subscribe(Quote) as quotes,
        service.subscribe(ct.published_by(Exchange)) as untyped,
        service.subscribe(ct.Structural[Named]()) as named,
    ):
        await publish_all(service, priced(1))
        await House().publish(service, *priced(2))
        await Exchange().publish(service, *priced(200, 3), {"plain": True})
        assert [(await of_houses.next(5)).price for _ in range(3)] == [2, 200, 3]
        assert (await cheap.next(5)).price == 3
        found = [await quotes.next(5) for _ in range(4)]
        assert found == priced(1, 2, 200, 3)
        assert {type(each) for each in found} == {Quote}, "who published says nothing of the type"
        assert [await named.next(5) for _ in range(4)] == found
        assert not any("@is.by" in each for it in found for each in it.to_notification())
        assert [(await untyped.next(5)).get("price") for _ in range(3)] == [200, 3, None]


@on_loop
async def test_a_predicate_needs_a_type(name: str) -> None:
    """A handler would be called with an unexpected object."""
    async with service_of(name) as service:
        with pytest.raises(ServiceError, match="narrows a type of obvents"):
            service.subscribe("price < 3", lambda quote: True)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["embedded", "broker"])
@on_loop
async def test_classes_say_what_is_promised(name: str, tmp_path: Path) -> None:
    """Each publisher would have to configure it, and each differently."""
    async with keeping(name, tmp_path / "kept.db") as service:
        for item, delivery in (
            (Quote("x"), "best-effort"),
            (Trade("x"), "reliable fifo"),
            (Order("x"), "certified"),
        ):
            assert (await service.publish(item)).delivery == delivery


@pytest.mark.parametrize("name", ["embedded", "broker"])
@on_loop
async def test_a_durable_subscription_asks_a_predicate(name: str, tmp_path: Path) -> None:
    """Durable subscriptions could be narrowed by filters only."""
    async with keeping(name, tmp_path / "kept.db") as service:
        kept = service.subscribe(Order, lambda o: len(o.company) == 1, durable="orders")
        async with kept as orders:
            await publish_all(service, [Order("long"), Order("a"), Order("long"), Order("b")])
            assert [(await orders.next(5)).item.company for _ in range(2)] == ["a", "b"]
        async with service.subscribe(durable="orders") as again:
            await service.publish(Order("c"))
            assert (await again.next(5)).item["company"] == "c", "what it refused is done with"
        await service.unsubscribe("orders")


@on_loop
async def test_a_handle_is_activated_and_deactivated(name: str) -> None:
    """A subscription would end with the loop of its reader."""
    got: list[float] = []
    async with service_of(name) as service:
        handle: Handle[Quote] = Handle(
            service, Quote, lambda q: got.append(q.price), lambda q: q.price > 0
        )
        with pytest.raises(CannotUnsubscribeError):
            handle.deactivate()
        for price in (1, 2):
            await handle.activate()
            with pytest.raises(CannotSubscribeError, match="active already"):
                await handle.activate()
            await publish_all(service, priced(price, -1))
            await until(partial(got.__contains__, price))
            await handle.deactivate()
            assert not handle.is_active
            await publish_all(service, priced(99))
        assert got == [1, 2]
        with pytest.raises(CannotSubscribeError):
            await Handle(service, Quote, print, "price < 0 and price > 0").activate()


@on_loop
async def test_a_handler_deactivates_its_own_handle(name: str) -> None:
    """A handler would wait for itself."""
    got: list[float] = []
    held: list[Handle[Quote]] = []

    async def once(quote: Quote) -> None:
        got.append(quote.price)
        await held[-1].deactivate()

    def once_on_a_thread(quote: Quote) -> None:
        assert threading.current_thread() is not threading.main_thread()
        got.append(quote.price)
        held[-1].deactivate()

    for handler in (once, once_on_a_thread):
        # A service of its own: in a network, earlier publications may still be in flight.
        async with service_of(name) as service:
            got.clear()
            held.append(Handle(service, Quote, handler, threads=ThreadPolicy.single()))
            await held[-1].activate()
            await publish_all(service, priced(1, 2, 3))
            await until(partial(_has_ended, held[-1], got))
            assert got == [1]


@pytest.mark.parametrize("name", ["embedded", "broker"])
@on_loop
async def test_a_certified_handle_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    """Notifications would be lost while the process is down."""
    got: list[str] = []
    async with keeping(name, tmp_path / "kept.db") as service:
        handle: Handle[Order] = Handle(service, Order, lambda order: got.append(order.company))
        await handle.activate("book")
        await service.publish(Order("a"))
        await until(lambda: got == ["a"])
        await handle.deactivate()
        await publish_all(service, [Order("b"), Order("c")])
        await handle.activate("book")
        await until(lambda: got == ["a", "b", "c"])
        await handle.deactivate()
        await service.unsubscribe("book")


@on_loop
async def test_policies_say_how_many_calls_there_are(name: str) -> None:
    """Handlers would run concurrently, or wait for unrelated ones."""
    running: Counter[type] = Counter()
    most: Counter[str] = Counter()
    handled: list[Stock] = []
    release = asyncio.Event()

    async def slow(stock: Stock) -> None:
        running[type(stock)] += 1
        most["all"] = max(most["all"], running.total())
        most[type(stock).__name__] = max(most[type(stock).__name__], running[type(stock)])
        await release.wait()
        running[type(stock)] -= 1
        handled.append(stock)

    items = [*priced(1, 2, 3), Stock("x"), Stock("y")]
    async with service_of(name) as service:
        for policy, wanted in (
            (ThreadPolicy.single(), {"all": 1}),
            (ThreadPolicy.multi(4), {"all": 4}),
            (ThreadPolicy.one_per_class(), {"all": 2, "Quote": 1, "Stock": 1}),
        ):
            for each in (most, handled, release):
                each.clear()
            async with Handle(service, Stock, slow, threads=policy):
                await publish_all(service, items)
                await until(partial(_reached, most, wanted["all"]))
                release.set()
                await until(lambda: len(handled) == len(items))
            assert {key: most[key] for key in wanted} == wanted
            if policy != ThreadPolicy.multi(4):
                quotes = [it.price for it in handled if isinstance(it, Quote)]
                assert quotes == [1, 2, 3]


@on_loop
async def test_a_handler_that_waits_for_what_was_cancelled_is_called_again(name: str) -> None:
    """A class would lose its handler without an error."""
    got: list[float] = []
    told: list[BaseException] = []

    async def careless(quote: Quote) -> None:
        got.append(quote.price)
        if quote.price == 1:
            other = asyncio.ensure_future(asyncio.sleep(10))
            other.cancel()
            await other

    async with service_of(name) as service:
        handle = Handle(
            service,
            Quote,
            careless,
            threads=ThreadPolicy.one_per_class(),
            on_error=lambda error, _: told.append(error),
        )
        async with handle:
            await publish_all(service, priced(1, 2, 3))
            await until(lambda: len(got) == 3)
            assert handle.statistics().failed == len(told) == 1


@pytest.mark.parametrize("name", ["embedded", "broker"])
@on_loop
async def test_what_was_not_handled_to_its_end_comes_again(name: str, tmp_path: Path) -> None:
    """The end of an event loop would lose the objects of running handlers."""
    calls: list[asyncio.Task[Any] | None] = []
    got: list[str] = []

    async def handled(order: Order) -> None:
        got.append(order.company)
        if not calls:
            calls.append(asyncio.current_task())
            await asyncio.sleep(60)

    async with keeping(name, tmp_path / "kept.db") as service:
        handle = Handle(service, Order, handled)
        await handle.activate("orders")
        await service.publish(Order("a"))
        await until(lambda: bool(calls))
        assert calls[0] is not None
        calls[0].cancel()  # As the end of the loop does.
        await handle.deactivate()
        await handle.activate("orders")
        await until(lambda: got == ["a", "a"])
        await handle.deactivate()


@pytest.mark.parametrize("name", ["embedded", "broker"])
@on_loop
async def test_a_handle_that_is_ended_says_so_and_begins_anew(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler would not be called any more, without an error."""
    got: list[str] = []
    async with keeping(name, tmp_path / "kept.db") as service:
        handle = Handle(service, Order, lambda order: got.append(order.company))
        await handle.activate("orders")
        await service.unsubscribe("orders")
        await until(lambda: not handle.is_active)
        assert any("active no longer" in each.getMessage() for each in caplog.records)
        async with handle:
            await service.publish(Order("a"))
            await until(lambda: got == ["a"])


@on_loop
async def test_ordered_obvents_are_handled_one_at_a_time(name: str) -> None:
    """The order of notifications would end at the handler."""
    got: list[float] = []
    async with service_of(name) as service:
        with pytest.raises(ServiceError, match="keeps their order"):
            Handle(service, Trade, print, threads=ThreadPolicy.multi(2))
        async with Handle(service, Trade, lambda trade: got.append(trade.price)):
            await known_durable(service, 1)
            await publish_all(service, [Trade("x", price) for price in range(20)])
            await until(lambda: len(got) == 20)
        assert got == list(range(20))


@on_loop
async def test_errors_of_handlers_are_told_and_counted(name: str) -> None:
    """One object would end the handling of all later ones."""
    told: list[tuple[str, float]] = []

    def picky(quote: Quote) -> None:
        if quote.price == 1:
            raise ValueError("one")

    async with service_of(name) as service:
        handle = Handle(
            service,
            Quote,
            picky,
            on_error=lambda error, quote: told.append((str(error), quote.price)),
        )
        async with handle:
            await publish_all(service, priced(1, 2))
            await until(lambda: handle.statistics().delivered == 2 and told == [("one", 1.0)])
            assert handle.statistics().failed == 1
