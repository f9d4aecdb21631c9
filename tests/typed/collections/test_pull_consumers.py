"""`Consumer`: duplicates, acknowledgements, redelivery, and last first."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.delivery.retention import Retention
from contrada.errors import CannotSubscribeError, ServiceClosedError, ServiceError
from contrada.service import Service
from contrada.service.embedded_service import EmbeddedService
from contrada.service.sync import SyncService
from contrada.typed.collections import (
    Collection,
    CollectionLimits,
    CollectionStatistics,
    Consumer,
    FIFOSet,
    StrongBag,
    StrongSet,
    Subject,
    WeakBag,
    WeakSet,
    element_reader,
)
from contrada.typed.handles import ThreadPolicy
from tests.asynchronous import on_loop, until


@dataclass
class Item(ct.Obvent, name="consumers.Item"):
    number: int = 0


@dataclass
class Sure(Item, ct.Reliable, name="consumers.Sure"):
    """A reliable one."""


def again(cls: type[Item], number: int, identity: str) -> ct.Notification:
    """One publication under an identity, as a restarted broker may publish it twice."""
    made = cls(number).to_notification()
    return made.with_envelope(ct.Envelope(id=identity, delivery=made.envelope.delivery))


async def numbers(consumer: Consumer[Any]) -> list[int]:
    """All waiting elements."""
    found = []
    while (it := await consumer.poll()) is not None:
        found.append(it.number)
    return found


@asynccontextmanager
async def stored(path: Path) -> AsyncIterator[Service]:
    async with EmbeddedService(store=path / "kept.db") as service:
        yield service


@pytest.mark.parametrize(
    ("kind", "cls", "wanted"),
    [
        (WeakBag, Item, [1, 1, 2, 2]),
        (WeakSet, Item, [1, 2, 2]),
        (StrongBag, Sure, [1, 1, 2, 2]),
        (StrongSet, Sure, [1, 2, 2]),
    ],
)
@on_loop
async def test_sets_skip_duplicates(kind: Any, cls: type[Item], wanted: list[int]) -> None:
    """A bag and a set would be the same, or equal elements be taken for duplicates."""
    async with EmbeddedService() as service:
        of: Collection[Item] = kind(service, cls)
        pushed: list[int] = []
        async with (
            of.get() as one,
            of.get() as two,
            of.get(last_first=True) as stack,
            of.contains(lambda it: pushed.append(it.number), threads=ThreadPolicy.single()),
        ):
            for number, identity in ((1, "a"), (1, "a"), (2, "b"), (2, "c")):
                await service.publish(again(cls, number, identity))
            assert await numbers(one) == await numbers(two) == wanted
            assert sorted(await numbers(stack)) == wanted
            await until(lambda: pushed == wanted)
            assert one.statistics().dropped.get(element_reader.DUPLICATE, 0) == 4 - len(wanted)


@on_loop
async def test_a_set_tells_publishers_apart() -> None:
    """A publisher that guesses the next identity of another would keep its element from all."""
    async with EmbeddedService() as service:
        of = WeakSet(service, Item)
        async with of.get() as consumer:
            for number, publisher in enumerate(("one", "two", "one")):
                made = Item(number).to_notification()
                await service.publish(made.with_envelope(ct.Envelope(publisher=publisher, id="a")))
            assert await numbers(consumer) == [0, 1]


@on_loop
async def test_a_duplicate_is_acknowledged(tmp_path: Path) -> None:
    """It would be redelivered to each consumer, and never leave the queue."""
    async with stored(tmp_path) as service:
        of, pushed = StrongSet(service, Sure), list[int]()
        handle = of.remove(lambda it: pushed.append(it.number), threads=ThreadPolicy.single())
        async with handle:
            for number, identity in ((1, "a"), (1, "a"), (2, "b")):
                await service.publish(again(Sure, number, identity))
            await until(lambda: pushed == [1, 2])
        await of.clear(handle)
        async with of.remove(last_first=True) as stack:
            for number, identity in ((3, "c"), (3, "c")):
                await service.publish(again(Sure, number, identity))
            assert (await numbers(stack)) == [3]
        await of.add(Sure(4))
        async with of.remove() as consumer:
            assert (await consumer.get(5)).number == 4


class Timed(WeakSet[Item]):
    """Its queue gives an element to a consumer again after its time-out."""

    retention = Retention(acknowledge_s=0.05)


@on_loop
async def test_an_element_in_process_is_not_acknowledged_as_its_own_duplicate(
    tmp_path: Path,
) -> None:
    """A consumer that crashes after the time-out would lose it."""
    async with stored(tmp_path) as service:
        of, may_end = Timed(service, Item), asyncio.Event()

        async def work(_: Item) -> None:
            await may_end.wait()

        async with of.remove(work) as handle:
            await of.add(Item(1))
            await until(lambda: element_reader.DUPLICATE in handle.statistics().dropped)
            left = await waiting(service)
            may_end.set()
            while await waiting(service):
                await asyncio.sleep(0)
            assert left == 1


async def waiting(service: Service) -> int:
    """The unacknowledged elements of all queues."""
    return sum(each.unread + each.handed for each in (await service.queues.states()).queues)


@on_loop
async def test_a_queue_outlives_its_consumers(tmp_path: Path) -> None:
    """Elements added without a consumer would be lost."""
    async with stored(tmp_path) as service:
        of = WeakBag(service, Item)
        for number in range(2):
            async with of.remove() as consumer:
                await of.add(Item(number))
                await of.clear(consumer)
        async with of.remove() as consumer:
            assert [(await consumer.get(5)).number for _ in range(2)] == [0, 1]
        await service.unsubscribe(consumer.durable)


@on_loop
async def test_a_handle_takes_an_identifier(tmp_path: Path) -> None:
    """A weak collection's subscriber could not outlive its process, unlike other handles."""
    got: list[int] = []
    async with stored(tmp_path) as service:
        of = WeakBag(service, Item)
        handle = of.contains(lambda it: got.append(it.number), threads=ThreadPolicy.single())
        for number in (1, 2):
            await handle.activate("mine")
            await of.add(Item(number))
            await until(lambda: got[-1:] == [number])  # noqa: B023
            await handle.deactivate()
            await of.add(Item(number))
        await handle.activate()
        assert got == [1, 1, 2], "without the identifier it begins anew"
        await handle.deactivate()
        await service.unsubscribe("mine")


@on_loop
async def test_the_memory_of_a_set_is_bounded() -> None:
    """Its memory would grow with each notification."""
    async with EmbeddedService() as service:
        of = WeakSet(service, Item, limits=CollectionLimits(recent_max=2))
        async with of.get() as consumer:
            for identity in "abcba":
                await service.publish(again(Item, ord(identity), identity))
            assert "".join(map(chr, await numbers(consumer))) == "abca"


@on_loop
async def test_acknowledged_elements_are_not_redelivered(tmp_path: Path) -> None:
    """A consumer that ends well would work twice; a failed one would lose its elements."""
    async with stored(tmp_path) as service:
        of = WeakBag(service, Item)
        async with of.remove() as consumer:
            for number in range(4):
                await of.add(Item(number))
            assert (await consumer.get(5)).number == 0
            assert (await consumer.get(5)).number == 1
        with contextlib.suppress(ZeroDivisionError):
            async with of.remove() as consumer:
                assert (await consumer.get(5)).number == 2
                raise ZeroDivisionError
        async with of.remove() as consumer:
            assert (await consumer.get(5)).number == 2
            await consumer.acknowledge()
            await consumer.aclose()
        async with of.remove() as consumer:
            assert (await consumer.get(5)).number == 3


@pytest.mark.parametrize("last_first", [False, True])
@on_loop
async def test_parts_are_acknowledged_together(tmp_path: Path, last_first: bool) -> None:
    """Half of a joint notification would be lost with a consumer."""
    async with stored(tmp_path) as service:
        of = StrongSet(service, Sure)
        async with of.remove(last_first=last_first) as consumer:
            await of.add_all([Sure(1), Sure(2)])
            assert (await consumer.get(5)).number in (1, 2)
        async with of.remove(last_first=last_first) as consumer:
            await consumer.get(5)
            await consumer.get(5)
            await consumer.nack()
            assert sorted([(await consumer.get(5)).number for _ in range(2)]) == [1, 2]
        await of.add(Sure(3))
        async with of.remove() as consumer:
            assert (await consumer.get(5)).number == 3, "it is done with the others"


@on_loop
async def test_handled_parts_are_acknowledged_together(tmp_path: Path) -> None:
    """A handler's first part would count for all."""
    pushed: list[int] = []
    async with stored(tmp_path) as service:
        of = StrongSet(service, Sure)

        async def stop(item: Sure) -> None:
            pushed.append(item.number)
            if item.number == 1:
                await handle.deactivate()

        handle = of.remove(stop, threads=ThreadPolicy.single())
        async with handle:
            await of.add_all([Sure(1), Sure(2)])
            await until(lambda: not handle.is_active)
        assert pushed == [1]
        async with of.remove() as consumer:
            assert [(await consumer.get(5)).number for _ in range(2)] == [1, 2]


@on_loop
async def test_last_first_is_a_stack() -> None:
    """The consumer would get the oldest element."""
    async with EmbeddedService() as service:
        of = WeakBag(service, Item)
        async with of.get(last_first=True) as stack:
            for number in range(3):
                await of.add(Item(number))
            assert (await stack.get()).number == 2
            await of.add(Item(3))
            assert await numbers(stack) == [3, 1, 0]


@on_loop
async def test_a_stack_is_bounded() -> None:
    """The whole queue would be in memory, or elements beyond the limit be lost."""
    async with EmbeddedService() as service:
        of = StrongBag(service, Sure, limits=CollectionLimits(stack_max=2))
        async with of.get(last_first=True) as stack:
            for number in range(4):
                await of.add(Sure(number))
            assert await numbers(stack) == [1, 2, 3, 0]


@on_loop
async def test_the_end_is_an_error() -> None:
    """A consumer would wait for ever."""
    async with EmbeddedService() as service:
        of = WeakBag(service, Item)
        consumer = of.get()
        with pytest.raises(ServiceError, match="async with"):
            await consumer.get()
        await consumer.open()
        await of.clear(consumer)
        with pytest.raises(ServiceClosedError):
            await consumer.get()
        assert [it async for it in consumer] == []
        with pytest.raises(ServiceError, match="another collection"):
            await WeakBag(service, Item).clear(consumer)


@on_loop
async def test_a_value_is_held_by_equality_or_encoding() -> None:
    """An object without `==` would never be held, or another one count as held."""

    class Bare(ct.Obvent, name="consumers.Bare"):
        number: int

        def __init__(self, number: int) -> None:
            self.number = number

    async with EmbeddedService() as service:
        of, chat = WeakBag(service, Bare, subject="/a"), WeakBag(service, Subject("/a"))
        async with of, chat:
            await of.add(Bare(1))
            await chat.add(ct.Notification({"text": "x"}))
            await until(lambda: bool(of.held) and len(chat.held) == 2)
            assert Bare(1) in of
            assert Bare(2) not in of
            assert {"text": "x"} in chat
            assert chat.contains_all([ct.Notification({"text": "x"}), Bare(1).to_notification()])
            assert 3 not in chat
            await chat.add(ct.Notification({"n": 1, "x": math.nan}))
            await until(lambda: len(chat.held) == 3)
            assert {"n": 1.0, "x": math.nan} in chat
            assert {"n": True, "x": math.nan} not in chat
            assert of.contains_all(of)
            assert not of.contains_all([Bare(1), Bare(2)])


@on_loop
async def test_a_failed_subscription_holds_nothing() -> None:
    """An old answer would count as a new one."""
    async with EmbeddedService() as service:
        of = WeakBag(service, Item)
        await of.open()
        await service.aclose()
        await until(lambda: not of._held._view.is_active)  # type: ignore[union-attr]
        with pytest.raises(ServiceError, match="has ended"):
            of.contains(Item(1))
        await of.aclose()


@on_loop
async def test_elements_during_clear_are_held() -> None:
    """They would be forgotten, too, or lost."""
    async with EmbeddedService() as service, WeakBag(service, Item) as of:
        await of.add(Item(1))
        await until(lambda: of.held == (Item(1),))
        await asyncio.gather(of.clear(), of.add(Item(2)))
        await until(lambda: of.held == (Item(2),))


@on_loop
async def test_statistics_account_for_all_elements() -> None:
    """A search for missing elements would have no trace."""
    async with EmbeddedService() as service, WeakSet(service, Item, holds=2) as of:
        assert of.statistics() == CollectionStatistics(0, 0, 0, {})
        for number, identity in ((1, "a"), (1, "a"), (2, "b")):
            await service.publish(again(Item, number, identity))
        await service.publish(ct.Notification.with_marks({"number": "x"}, ["consumers.Item"]))
        await of.add(Item(3))
        await of.add_all([Item(4), Item(5)])
        await until(lambda: of.held == (Item(4), Item(5)))
        dropped = {element_reader.DUPLICATE: 1, "unreadable": 1}
        assert of.statistics() == CollectionStatistics(3, 2, 3, dropped)


@on_loop
async def test_known_arrivals_are_bounded() -> None:
    """All received objects would be kept alive."""
    async with EmbeddedService() as service:
        of = WeakBag(service, Item, limits=CollectionLimits(arrivals_max=2))
        async with of.get() as consumer:
            for number in range(3):
                await of.add(Item(number))
            got = [await consumer.get() for _ in range(3)]
            assert [of.arrival_of(it) is not None for it in got] == [False, True, True]


@on_loop
async def test_invalid_subscribers_are_refused() -> None:
    """A mistake would be a subscription without a reader."""
    async with EmbeddedService() as service:
        of = WeakBag(service, Item)
        with pytest.raises(ServiceError, match="has no notify"):
            of.contains(3)  # type: ignore[call-overload]
        with pytest.raises(ServiceError, match="has no notify"):
            of.remove(Item(1))  # type: ignore[call-overload]
        with pytest.raises(ServiceError, match="for consumers that pull"):
            of.remove(print, last_first=True)  # type: ignore[call-overload]
        with pytest.raises(ct.errors.InvalidObventError, match="another type"):
            await of.add(3)  # type: ignore[arg-type]


@on_loop
async def test_ordered_notifications_are_handled_one_at_a_time() -> None:
    """Their order would end at the handler."""
    got: list[object] = []

    async def uneven(item: ct.Notification) -> None:
        for _ in range(5 * (item["n"] == 0)):
            await asyncio.sleep(0)
        got.append(item["n"])

    async with EmbeddedService() as service:
        of = FIFOSet(service, Subject("/a"))
        with pytest.raises(ServiceError, match="keeps their order"):
            of.contains(got.append, threads=ThreadPolicy.multi(2))
        async with of.contains(uneven):
            for number in range(20):
                await of.add(ct.Notification({"n": number}))
            await until(lambda: len(got) == 20)
        assert got == list(range(20))


@on_loop
async def test_the_condition_of_a_subscriber_is_fixed() -> None:
    """The collection would silently ignore an update."""
    async with EmbeddedService() as service:
        handle = WeakBag(service, Item).contains(print, "number > 1")
        for _ in range(2):
            with pytest.raises(CannotSubscribeError, match="ask for another one"):
                await handle.update("number > 2")
            await handle.activate()
            await handle.deactivate()


def test_a_handle_needs_an_asynchronous_service() -> None:
    """A handle of a blocking service would fail at activation, without a reason."""
    service: Any = SyncService(EmbeddedService())
    with pytest.raises(ServiceError, match="connect_sync"):
        ct.Handle(service, Item, print)


def test_asynchronous_predicates_are_refused() -> None:
    """A coroutine or a generator is true, so everything would match."""

    async def later(_: Item) -> bool:
        return False

    def several(_: Item) -> Any:
        yield False

    of = WeakBag(EmbeddedService(), Item)
    for predicate in (later, several):
        with pytest.raises(ServiceError, match="answers later"):
            of.get(predicate)
        with pytest.raises(ServiceError, match="answers later"):
            of.service.subscribe(Item, predicate)
