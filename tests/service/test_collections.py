"""Collections in every service: push, pull, removal, subjects, and combined collections."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.errors import ServiceError
from contrada.net.broker.broker import Broker
from contrada.typed.collections import (
    Arrival,
    CausalSet,
    Collection,
    Consumer,
    FIFOBag,
    PersistentBag,
    PersistentSet,
    SortedSet,
    StrongBag,
    StrongSet,
    Subject,
    Together,
    WeakBag,
    WeakSet,
)
from contrada.typed.handles import ThreadPolicy
from tests.asynchronous import on_loop, until
from tests.homes import Serve, serve
from tests.service.ways import known_durable, service_of


@dataclass
class Offer(ct.Obvent, name="collections.Offer"):
    company: str
    price: float = 0.0


@dataclass
class Bid(Offer, ct.CausalOrder, name="collections.Bid"):
    """Causally ordered."""


@dataclass
class Rank(Bid, ct.TotalOrder, name="collections.Rank"):
    """In every order."""


@dataclass
class Deal(Offer, ct.Certified, name="collections.Deal"):
    """Durable."""


def offers(*prices: float) -> list[Offer]:
    return [Offer("Telco", price) for price in prices]


async def add_each(collection: Collection[Any], items: list[Any]) -> None:
    for each in items:
        await collection.add(each)


__all__ = ["serve"]


class Recorder:
    """A consumer object."""

    def __init__(self) -> None:
        self.got: list[float] = []

    async def notify(self, offer: Offer) -> None:
        self.got.append(offer.price)


@on_loop
async def test_all_subscribers_are_called(name: str) -> None:
    """An element would be given to one of several consumers, or their conditions be mixed up."""
    low, high, recorder = [], [], Recorder()
    async with service_of(name) as service:
        of = WeakSet(service, Offer)
        async with (
            of.contains(
                lambda it: low.append(it.price),
                lambda it: it.price < 3,
                threads=ThreadPolicy.single(),
            ),
            of.contains(
                lambda it: high.append(it.price), "price >= 3", threads=ThreadPolicy.single()
            ),
            of.contains(recorder),
        ):
            await add_each(of, offers(1, 2, 3, 4))
            await until(lambda: len(low) == len(high) == 2 and len(recorder.got) == 4)
        assert (low, high) == ([1, 2], [3, 4])


@on_loop
async def test_all_consumers_pull_all(name: str) -> None:
    """A late or slow consumer would miss elements."""
    async with service_of(name) as service:
        of = StrongBag(service, Bid)
        async with of.get() as one, of.get(lambda it: it.price > 1) as two:
            await known_durable(service, 2)
            await add_each(of, [Bid("x", price) for price in (1, 2, 3)])
            assert [(await one.get(5)).price for _ in range(3)] == [1, 2, 3]
            assert [(await two.get(5)).price for _ in range(2)] == [2, 3]
            assert await one.poll() is None
            with pytest.raises(TimeoutError):
                await two.get(0)


@on_loop
async def test_it_holds_what_came(name: str) -> None:
    """`in` would query a server, or have no result."""
    async with service_of(name) as service:
        of = WeakSet(service, Offer, holds=3)
        with pytest.raises(ServiceError, match="inside its own"):
            of.contains(Offer("x"))
        async with of:
            await add_each(of, offers(1, 2, 3, 4))
            await until(lambda: Offer("Telco", 4) in of)
            assert of.contains_all(offers(2, 3, 4))
            assert not of.contains(Offer("Telco", 1))
            assert of.held == tuple(offers(2, 3, 4))
            assert of.statistics().forgotten == 1
            assert "Telco" not in of
            await of.clear()
            assert of.held == ()
            await of.add(Offer("after"))
            await until(lambda: Offer("after") in of)


@on_loop
async def test_it_is_iterated(name: str) -> None:
    """A reader of all elements would need a consumer."""
    async with service_of(name) as service:
        of = FIFOBag(service, Bid)
        got: list[float] = []
        iterator = of.__aiter__()
        first = asyncio.ensure_future(anext(iterator))
        await asyncio.sleep(0)
        while not first.done():
            await of.add(Bid("x", 1))
            await asyncio.wait([first], timeout=0.01)
        got.append((await first).price)
        assert got == [1]
        await iterator.aclose()  # type: ignore[attr-defined]


@on_loop
async def test_orders_hold(serve: Serve) -> None:
    """A sorted set would behave like a bag."""
    async with serve() as service:
        causal, total = CausalSet(service, Rank), SortedSet(service, Rank)
        assert causal.delivery == "reliable causal total:collections.Rank"
        async with causal.get() as one, total.get() as two:
            await add_each(total, [Rank("x", price) for price in range(30)])
            for consumer in (one, two):
                assert [(await consumer.get(5)).price for _ in range(30)] == list(range(30))
        with pytest.raises(ServiceError, match="no last_first"):
            total.get(last_first=True)


@on_loop
async def test_the_last_can_be_pulled_first(name: str) -> None:
    """A stack would have to be built on top."""
    async with service_of(name) as service:
        for of in (WeakBag(service, Bid), StrongSet(service, Bid)):
            async with of.get(last_first=True) as stack, of:
                await known_durable(service, 2 * isinstance(of, StrongSet))
                await add_each(of, [Bid("x", price) for price in (1, 2, 3)])
                await until(partial(_holds, of, 3))
                got = [(await stack.get(5)).price]
                while len(got) < 3:
                    got.append((await stack.get(5)).price)
                assert sorted(got) == [1, 2, 3]
                assert stack.statistics().delivered == 3
                await of.add(Bid("x", 4))
                assert (await stack.get(5)).price == 4


def _holds(of: Collection[Any], count: int) -> bool:
    return len(of.held) == count


@on_loop
async def test_subjects_part_spaces(name: str) -> None:
    """Messages of one room would reach all rooms."""
    async with service_of(name) as service:
        insomnia = WeakSet(service, Offer, subject="/Chat/Insomnia")
        chat = WeakSet(service, Offer, subject="/Chat")
        wild = WeakSet(service, Offer, subject="/*/Insomnia")
        other = WeakSet(service, Offer, subject="/Trade")
        every = WeakSet(service, Offer)
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            of = (insomnia, chat, wild, other, every)
            consumers = [await enter(each.get()) for each in of]
            plain = await enter(service.subscribe('@subject prefix "/Chat/"'))
            await add_each(every, offers(0))
            await add_each(other, offers(1))
            await add_each(chat, offers(2))
            await add_each(insomnia, offers(3))
            wanted = [[3], [2, 3], [3], [1], [0, 1, 2, 3]]
            for consumer, prices, collection in zip(consumers, wanted, of, strict=True):
                got = [await consumer.get(5) for _ in prices]
                assert [it.price for it in got] == prices
                assert all(type(it) is Offer for it in got)
                assert await consumer.poll() is None
                arrival = collection.arrival_of(got[-1])
                assert isinstance(arrival, Arrival)
                assert arrival.subject == ("/Trade" if collection is other else "/Chat/Insomnia")
            assert (await plain.next(5))["@subject"] == "/Chat/"
        with pytest.raises(ct.errors.InvalidValueError, match="more than one"):
            await wild.add(Offer("x"))


@on_loop
async def test_subjects_alone_need_no_type(name: str) -> None:
    """Events without a class could not be selected by subject."""
    async with service_of(name) as service:
        chat = StrongSet(service, Subject("/Chat"))
        insomnia = StrongSet(service, Subject("/Chat/Insomnia"))
        async with chat.get() as consumer, chat.get("text = 'b'") as some:
            await known_durable(service, 2)
            await insomnia.add(ct.Notification({"text": "a"}))
            await chat.add(ct.Notification({"text": "b"}))
            got = [await consumer.get(5) for _ in range(2)]
            assert [(it["text"], it["@subject"]) for it in got] == [
                ("a", "/Chat/Insomnia/"),
                ("b", "/Chat/"),
            ]
            assert {it.envelope.delivery for it in got} == {"reliable"}
            assert (await some.get(5))["text"] == "b"


@on_loop
async def test_what_is_added_together_comes_together(name: str) -> None:
    """A reader would see half of a combined element; or one filter would decide for all parts."""
    async with service_of(name) as service:
        of = WeakSet(service, Offer)
        rooms = WeakSet(service, Offer, subject="/Trade")
        async with (
            of.get() as all_,
            of.get(lambda it: it.price > 1) as some,
            of.get("price > 9") as none,
            rooms.get() as room,
            service.subscribe(Together) as whole,
            of,
        ):
            await of.add_all(offers(1, 2, 3))
            assert [(await all_.get(5)).price for _ in range(3)] == [1, 2, 3]
            last = [await some.get(5) for _ in range(2)][-1]
            arrival = of.arrival_of(last)
            assert arrival is not None
            assert (arrival.part, arrival.parts, last.price) == (1, 2, 3)
            await until(lambda: len(of.held) > 0)
            assert of.contains_all(offers(1, 2, 3))
            assert len((await whole.next(5)).parts) == 3
            await rooms.add_all(offers(10, 11))
            assert (await room.get(5)).price == 10
            assert (await none.get(5)).price == 10, "no part of the first was for it"
            assert await all_.get(5) == Offer("Telco", 10)


@on_loop
async def test_a_producer_is_pulled(name: str) -> None:
    """A producer would have to run by itself."""
    given = iter([Offer("a", 1), None, Offer("b", 2)])

    async def ticks() -> AsyncIterator[int]:
        for number in range(2):
            yield number

    async with service_of(name) as service:
        of = WeakSet(service, Offer)
        async with of.get() as consumer, of.supply(lambda: next(given)) as supply:
            stamped = await supply.pull()
            await supply.run(ticks())
            assert [(await consumer.get(5)).company for _ in range(2)] == ["a", "b"]
            assert stamped is not None
            assert stamped.publisher


@on_loop
async def test_the_sender_is_known(name: str) -> None:
    """A program would have to put a sender's name into each class."""
    async with service_of(name, publisher="market") as service:
        of = WeakSet(service, Offer)
        async with of.get("@publisher = 'market'") as mine, of.get("@publisher = 'x'") as none:
            await of.add(Offer("a"))
            got = await mine.get(5)
            arrival = of.arrival_of(got)
            assert arrival is not None
            assert arrival.publisher == "market"
            assert of.arrival_of(Offer("a")) is None
            assert await none.poll() is None


@on_loop
async def test_each_removed_element_goes_to_one(serve: Serve, tmp_path: Path) -> None:
    """Two workers would do the same work, or none."""
    async with serve(tmp_path / "kept.db") as service:
        of = WeakBag(service, Offer)
        pushed: list[float] = []
        async with of.remove() as one, of.remove() as two, of.get() as all_:
            await add_each(of, offers(*range(6)))
            got: list[float] = []

            async def pull(consumer: Consumer[Offer]) -> None:
                while True:
                    got.append((await consumer.get()).price)

            # Their shares are unspecified.
            pulling = [asyncio.create_task(pull(each)) for each in (one, two)]
            await until(lambda: len(got) == 6)
            for each in pulling:
                each.cancel()
            assert sorted(got) == [0, 1, 2, 3, 4, 5]
            assert [(await all_.get(5)).price for _ in range(6)] == [0, 1, 2, 3, 4, 5]
        await add_each(of, offers(7, 8))
        async with of.remove(lambda it: pushed.append(it.price), threads=ThreadPolicy.single()):
            await until(lambda: pushed == [7, 8])
        with pytest.raises(ServiceError, match="give queue="):
            of.remove(where="price > 3")
        async with of.remove(where="price > 3", queue="dear") as dear:
            await add_each(of, offers(1, 4))
            assert (await dear.get(5)).price == 4


@on_loop
async def test_what_a_lost_consumer_had_goes_to_another(serve: Serve, tmp_path: Path) -> None:
    """Work would be lost with its worker."""
    async with serve(tmp_path / "kept.db") as service:
        of = StrongSet(service, Bid)
        first, second = of.remove(), of.remove()
        async with first:
            await of.add_all([Bid("x", 1), Bid("x", 2)])
            await of.add(Bid("x", 3))
            assert (await first.get(5)).price == 1
            await first.aclose()
        async with second:
            assert [(await second.get(5)).price for _ in range(3)] == [1, 2, 3]
            await second.nack()
            assert (await second.get(5)).price == 3
            await second.acknowledge()
        async with of.remove() as third:
            assert await third.poll() is None


KILLED = """
import asyncio, sys
from dataclasses import dataclass
import contrada as ct
from contrada.typed.collections import WeakBag

@dataclass
class Offer(ct.Obvent, name="collections.Offer"):
    company: str
    price: float = 0.0

async def main() -> None:
    async with ct.connect(sys.argv[1]) as service, WeakBag(service, Offer).remove() as consumer:
        print((await consumer.get()).price, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@on_loop
async def test_what_a_killed_process_had_goes_to_another(tmp_path: Path) -> None:
    """Work would be lost with its process, or wait for it."""
    async with (
        Broker(port=0, store=tmp_path / "kept.db") as broker,
        ct.connect(broker.address) as service,
    ):
        of = WeakBag(service, Offer)
        async with of.remove():
            await add_each(of, offers(1))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KILLED, broker.address, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"1.0\n"
        async with of.remove() as consumer:
            process.kill()
            assert (await consumer.get(30)).price == 1
        await process.wait()


@on_loop
async def test_a_persistent_collection_goes_on(serve: Serve, tmp_path: Path) -> None:
    """Elements would be lost while the process is down, with those in work."""
    path = tmp_path / "kept.db"
    async with serve(path) as service:
        of = PersistentSet(service, Deal, name="ledger")
        async with of, of.get(name="bank") as bank:
            await add_each(of, [Deal("a"), Deal("b")])
            assert (await bank.get(5)).company == "a"
            await until(lambda: Deal("b") in of)
        await of.add(Deal("c"))
    async with serve(path) as service:
        of = PersistentSet(service, Deal, name="ledger")
        async with of, of.get(name="bank") as bank:
            assert [(await bank.get(5)).company for _ in range(2)] == ["b", "c"]
            await until(lambda: len(of.held) == 3)
            assert of.contains_all([Deal("a"), Deal("b"), Deal("c")])
            await of.clear()
            await of.clear(bank)
            await of.add(Deal("d"))
            await until(lambda: of.held == (Deal("d"),))
        with pytest.raises(ct.errors.DeliveryError):
            await service.unsubscribe("ledger/bank")
        handle = of.contains(lambda it: None, name="push")
        async with handle:
            pass
        await of.clear(handle)
        with pytest.raises(ServiceError, match="needs a name"):
            of.get()
        with pytest.raises(ServiceError, match="needs a name"):
            PersistentBag(service, Deal)
