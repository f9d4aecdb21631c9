"""A subscription that asks for something else: no gap, nothing twice, nothing of before."""

import asyncio
from dataclasses import dataclass

import pytest

from contrada.errors import LimitError, ServiceClosedError, ServiceError, UnsatisfiableFilterError
from contrada.integrations.dialects import cesql
from contrada.model import Filter, FilterSet, Notification, Pattern
from contrada.net.broker import fair_scheduler
from contrada.routing.router_messages import Reason, RefusedError
from contrada.routing.tables import interest_table
from contrada.service import Service, Subscription
from contrada.service.sync import SyncService
from contrada.typed import Obvent
from tests.asynchronous import on_loop, until
from tests.service.ways import service_of, way_of

OLD, BOTH, NEW = range(3)


@dataclass
class Quote(Obvent):
    price: float


def wide(text: str) -> FilterSet:
    """So many filters more that a broker takes them in several parts."""
    others = [Filter({"z": f"{text} {n}"}) for n in range(300)]
    return FilterSet([*FilterSet(text).filters, *others])


async def everything(events: Subscription[Notification], into: list[tuple[object, object]]) -> None:
    """Reads until the notification that is marked as the last one."""
    async for each in events:
        into.append((each["k"], each["n"]))
        if each.get("last"):
            return


@pytest.mark.quick_first
@on_loop
async def test_no_gap_and_nothing_twice_while_others_publish(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber that moves its window would miss notifications of both, or get them twice."""
    monkeypatch.setattr(fair_scheduler, "TURN_S", 0)  # Others have their turn after each part.
    got: list[tuple[object, object]] = []
    async with service_of(name) as service, service.subscribe(wide("k < 2")) as events:
        reading = asyncio.create_task(everything(events, got))
        published: list[tuple[int, int]] = []
        going_on = True

        async def publish() -> None:
            while going_on:
                n = len(published)
                published.append((n % 3, n))
                await service.publish({"k": n % 3, "n": n})
                await asyncio.sleep(0.0005)  # Not so fast that nothing else is done.

        publishing = asyncio.create_task(publish())
        in_force: list[int] = []
        for filters in (wide("k > 0"), FilterSet("k < 2 and n >= 0 or k = 1"), wide("k > 0")):
            await until(lambda: len(published) > 50 + (in_force[-1] if in_force else 0))
            before, sent_before = len(got), len(published)
            await events.update(filters)
            in_force.append(len(published))
            assert sent_before < in_force[-1] or name == "embedded"
            assert before <= len(got)
        delivered_then = len(got)
        await until(lambda: len(published) > in_force[-1] + 50)
        going_on = False
        await publishing
        await service.publish({"k": BOTH, "n": len(published), "last": True})
        await reading
        published.append((BOTH, len(published)))
        assert [each for each in got if each[0] == BOTH] == [
            each for each in published if each[0] == BOTH
        ]
        assert [n for _, n in got] == sorted(n for _, n in got)  # type: ignore[type-var]
        assert [each for each in got if each[0] == NEW and each[1] >= in_force[-1]] == [  # type: ignore[operator]
            each for each in published if each[0] == NEW and each[1] >= in_force[-1]
        ]
        assert all(kind != OLD for kind, _ in got[delivered_then:])
        assert events.filters == wide("k > 0")
        assert events.statistics().dropped == {}


@on_loop
async def test_what_waits_of_before_is_passed_over(name: str) -> None:
    """A subscriber would get notifications of its old filters after the update."""
    async with service_of(name) as service, service.subscribe("k < 2") as events:
        await service.publish_batch({"k": n % 3, "n": n} for n in range(9))
        await until(lambda: events.statistics().queued == 6)
        waiting = asyncio.create_task(anext(events))
        await events.update("k > 0")
        first = await waiting
        await service.publish({"k": NEW, "n": 9})
        got = [first["n"]] + [(await events.next(10))["n"] for _ in range(4 - (first["n"] == 1))]
        assert got in ([0, 1, 4, 7, 9], [1, 4, 7, 9])


@on_loop
async def test_a_refusal_leaves_what_was_in_force(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber with a refused update would be left without filters."""
    async with service_of(name) as service, service.subscribe("k < 2") as events:
        with pytest.raises(UnsatisfiableFilterError):
            await events.update(Filter("k > 1 and k < 1"))

        def refuse(_: object) -> None:
            raise RefusedError(Reason.FULL, LimitError("registrations_max", 0))

        with monkeypatch.context() as patch:
            patch.setattr(interest_table.Registrations, "check_room", refuse)
            with pytest.raises((LimitError, ServiceError), match="registrations_max"):
                await events.update("k > 0")
        await service.publish_batch({"k": n % 3, "n": n} for n in range(3))
        assert [(await events.next(10))["n"] for _ in range(2)] == [0, 1]
        assert str(events.filters) == str(Filter("k < 2"))
        await events.update("k > 0")
        await service.publish_batch({"k": n % 3, "n": n} for n in range(3, 6))
        assert [(await events.next(10))["n"] for _ in range(2)] == [4, 5]


@on_loop
async def test_what_is_given_stays_of_one_type(name: str) -> None:
    """A loop over obvents would suddenly get something else."""
    async with service_of(name) as service, service.subscribe(Quote, "price < 5") as quotes:
        for subject in ("price > 5", Filter("price > 5"), Pattern("price > 5 -> price < 5")):
            with pytest.raises(ServiceError, match="other objects"):
                await quotes.update(subject)  # type: ignore[arg-type]
        await quotes.update(Quote, "price > 5")
        await service.publish(Quote(1.0))
        await service.publish(Quote(9.0))
        assert await quotes.next(10) == Quote(9.0)


@on_loop
async def test_rules_are_decided_before_and_after(name: str) -> None:
    """A subscriber would get notifications that only the filters of a rule match."""
    async with service_of(name) as service, service.subscribe(cesql.read("a = b")) as found:
        await service.publish_batch({"a": n % 3, "b": n // 3} for n in range(9))
        assert [(await found.next(10))["a"] for _ in range(3)] == [0, 1, 2]
        await found.update(cesql.read("a + b > 2"))
        await service.publish_batch({"a": n % 3, "b": n // 3} for n in range(9))
        assert [(each["a"], each["b"]) for each in [await found.next(10) for _ in range(3)]] == [
            (2, 1),
            (1, 2),
            (2, 2),
        ]


@on_loop
async def test_what_is_not_in_force_is_only_noted_and_what_has_ended_stays_so(name: str) -> None:
    """An update would open a subscription, or wait for ever."""
    async with service_of(name) as service:
        events = service.subscribe("k = 0")
        await events.update("k = 1")
        async with events:
            await service.publish_batch([{"k": 0}, {"k": 1}])
            assert (await events.next(10))["k"] == 1
        with pytest.raises(ServiceClosedError):
            await events.update("k = 2")


@on_loop
async def test_many_updates_at_once_come_one_after_the_other(name: str) -> None:
    """Two tasks that change one subscription would leave a mixture in force."""
    async with service_of(name) as service, service.subscribe("k = 0") as events:
        await asyncio.gather(*(events.update(f"k = {n} or k = 99") for n in range(20)))
        await service.publish_batch({"k": n} for n in (*range(20), 99))
        assert [(await events.next(10))["k"] for _ in range(2)] == [19, 99]


@on_loop
async def test_whoever_is_cancelled_leaves_one_of_both(name: str) -> None:
    """A subscription would be left asking for nothing, or for both."""
    async with service_of(name) as service, service.subscribe("k = 0") as events:
        update = asyncio.create_task(events.update("k = 1"))
        await asyncio.sleep(0)
        update.cancel()
        with pytest.raises(asyncio.CancelledError):
            await update
        await events.update("k = 1 or k = 2")
        await service.publish_batch({"k": n} for n in range(3))
        assert [(await events.next(10))["k"] for _ in range(2)] == [1, 2]


def test_code_that_does_not_await_can_update(name: str) -> None:
    """The blocking face would lack a part of the service."""

    async def run() -> None:
        async with way_of(name) as way:
            await asyncio.to_thread(blocking, way.connect())

    def blocking(service: Service) -> None:
        with SyncService(service) as blocked, blocked.subscribe("k = 0") as events:
            events.update("k = 1")
            blocked.publish_batch([{"k": 0}, {"k": 1}])
            assert events.next(10)["k"] == 1

    asyncio.run(run())
