"""Delivery guarantees of the embedded service: reliable, certified, durable subscriptions."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.delivery.memory_store import MemoryStore
from contrada.errors import (
    CannotPublishError,
    DeliveryError,
    ServiceClosedError,
    ServiceError,
    StoreError,
    StoreFullError,
    UnknownOperatorError,
)
from tests.asynchronous import TEST_S_MAX, on_loop
from tests.homes import CERTIFIED, numbers, of, rest
from tests.operators import register_failing
from tests.places import Place, place

__all__ = ["place"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@on_loop
async def test_who_opens_while_it_closes_is_told(path: Path) -> None:
    """A reader would ask a machine that is no more, or wait in a loop that never begins."""
    async with ct.connect(store=path) as service:
        events = service.subscribe("n any", durable="s")
        opening = asyncio.create_task(events.open())
        await asyncio.sleep(0)
        await service.aclose()
        with pytest.raises(ServiceClosedError, match="closed while it was opened"):
            await opening


@on_loop
async def test_many_publishers_share_a_group(path: Path) -> None:
    """Each would wait for an fsync of its own."""
    async with ct.connect(store=path) as service:
        await (await service.subscribe("n any", durable="s")).aclose()
        groups = 0
        store = service._host.store  # type: ignore[attr-defined]
        seal = store.seal

        def counted() -> Any:
            nonlocal groups
            groups += 1
            return seal()

        store.seal = counted
        await asyncio.gather(*(service.publish({"n": n}, delivery=CERTIFIED) for n in range(100)))
        assert groups <= 2
        assert await rest(service, "s") == list(range(100))


# --- without a store ------------------------------------------------------------------------------


@on_loop
async def test_without_a_store_reliable_works_and_certified_says_what_it_needs() -> None:
    """A log in memory would be taken for a stable one; or no guarantee be given at all."""
    async with ct.connect() as service:
        assert service.statistics().delivery is None
        async with service.subscribe("n any", reliable=True) as events:
            for n in range(3):
                await service.publish({"n": n}, delivery="reliable fifo")
            await service.publish({"n": 3})
            assert await numbers(events, 4) == [0, 1, 2, 3]
            assert of(service).logs[events.name].acknowledged == 3
        assert of(service).standing == 0
        with pytest.raises(CannotPublishError, match="'certified': this service has no store"):
            await service.publish({"n": 1}, delivery=CERTIFIED)
        with pytest.raises(DeliveryError, match=r"'s': this service has no store: connect\(store="):
            await service.subscribe("n any", durable="s")


@on_loop
async def test_publishing_in_memory_gives_others_their_turn() -> None:
    """A reader in the same loop would get nothing while it is published."""
    async with ct.connect() as service, service.subscribe("n any", reliable=True) as events:
        publishing = asyncio.create_task(
            service.publish_batch(({"n": n} for n in range(1_000)), delivery="reliable")
        )
        assert await numbers(events, 1) == [0]
        assert not publishing.done()
        assert await publishing == 1_000
        assert await numbers(events, 999) == list(range(1, 1_000))


# --- the store ------------------------------------------------------------------------------------


@on_loop
async def test_a_store_that_cannot_be_used_says_why(path: Path) -> None:
    """A service would run, and keep nothing."""
    async with ct.connect(store=path) as service:
        with pytest.raises(StoreError, match="it is in use"):
            await ct.connect(store=path)
        await service.subscribe("n any", durable="s")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE logs SET head = x'00' WHERE name = 's'")
    with pytest.raises(StoreError, match="damaged: 's': the log's head"):
        await ct.connect(store=path)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="not a database"):
        await ct.connect(store=path)
    with pytest.raises(ServiceError, match="belongs to an embedded service"):
        ct.connect("contrada://127.0.0.1:1", store=path)
    with pytest.raises(ServiceError, match="store = 3: expected the path of a file"):
        ct.connect(store=3)  # type: ignore[arg-type]


@on_loop
async def test_an_operator_that_is_not_there_any_more_is_said(path: Path) -> None:
    """A subscription would log nothing; or a failed one be left over."""
    with pytest.MonkeyPatch.context() as patch:
        register_failing(patch)
        async with ct.connect(store=path) as service:
            await service.subscribe("a any", durable="first")
            await service.subscribe("a fails 'x'", durable="s")
    service = ct.connect(store=path)
    for _ in range(2):
        with pytest.raises(UnknownOperatorError, match="fails"):
            await service.open()
    assert service.statistics().subscriptions == 0


@on_loop
async def test_closing_over_a_full_disk_ends_and_says_so(path: Path) -> None:
    """A service would never end; or the loss of its last notifications would be hidden."""
    service = await ct.connect(store=path)
    await service.subscribe("n any", durable="s")
    service._host.store._db.execute("PRAGMA max_page_count = 20")  # type: ignore[attr-defined]
    await service.publish(ct.Notification({"n": 1}, body=bytes(200_000)))
    begun = asyncio.get_running_loop().time()
    with pytest.raises(StoreFullError, match="no room is left"):
        await service.aclose()
    assert asyncio.get_running_loop().time() - begun < TEST_S_MAX / 2
    async with ct.connect(store=path):
        pass


@on_loop
async def test_whoever_closes_returns_when_it_is_closed(path: Path) -> None:
    """The next process would find the store in use."""
    service = await ct.connect(store=path)
    await service.publish({"n": 1}, delivery=CERTIFIED)
    closing = asyncio.create_task(service.aclose())
    await asyncio.sleep(0)
    await service.aclose()
    await (await ct.connect(store=path)).aclose()
    await closing


@on_loop
async def test_a_store_of_its_owner_stays_open() -> None:
    """The owner of a store would find it closed."""
    store = MemoryStore()
    async with ct.connect(store=store) as service:
        await service.subscribe("n any", durable="s")
        await service.publish({"n": 1}, delivery=CERTIFIED)
    store.crash()
    async with ct.connect(store=store) as service:
        assert await rest(service, "s") == [1]


# --- a kill ---------------------------------------------------------------------------------------

PUBLISHER = """
import asyncio, sys
import contrada as ct

async def main():
    async with ct.connect(store=sys.argv[1]) as service:
        await service.subscribe("n any", durable="s")
        async def publish(first):
            for n in range(first + int(sys.argv[2]), 10**9, 20):
                await service.publish({"n": n}, delivery="certified")
                print(n, flush=True)
        await asyncio.gather(*map(publish, range(20)))

asyncio.run(main())
"""

READER = """
import asyncio, sys
import contrada as ct

async def main():
    async with ct.connect(store=sys.argv[1]) as service:
        async with service.subscribe(durable="s", auto_acknowledge=False) as events:
            async for each in events:
                await events.acknowledge(each.position)
                print(each.item["n"], flush=True)

asyncio.run(main())
"""


def killed(program: str, place: str, after: int, *words: str) -> list[int]:
    """The output of a program that is killed after so many lines."""
    command = [sys.executable, "-c", program, place, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        said = [int(next(running.stdout)) for _ in range(after)]
        running.send_signal(signal.SIGKILL)
        said += map(int, running.stdout)
    return said


@pytest.mark.slow
def test_a_kill_loses_nothing_accepted_and_doubles_nothing_acknowledged(place: Place) -> None:
    """Certified would be a word."""
    accepted = killed(PUBLISHER, place.name, 100, "0")
    accepted += killed(PUBLISHER, place.name, 50, "1000000")
    acknowledged = killed(READER, place.name, 60) + killed(READER, place.name, 30)

    async def what_is_left() -> list[int]:
        async with ct.connect(store=place.name) as service:
            return await rest(service, "s")

    found = acknowledged + asyncio.run(what_is_left())
    assert len(found) == len(set(found))
    # Killed between the disk and its word: one of each reader.
    assert len(set(accepted) - set(found)) <= 2


# --- restarts -------------------------------------------------------------------------------------

KILLED = """
import os, sys
import contrada as ct
with ct.connect_sync(store=sys.argv[1]) as service, service.subscribe(durable="s") as events:
    for record in events:
        print(record["n"], record.attempt, flush=True)
        if record["n"] == 1:
            os.kill(os.getpid(), 9)
"""


@pytest.mark.quick_first
def test_a_record_that_kills_the_owner_of_its_log_becomes_a_dead_letter(place: Place) -> None:
    """It would be given for ever, as a first attempt, and no record behind it ever."""
    keeps = ct.Retention(attempts_max=2, dead_letter="dead")
    with ct.connect_sync(store=place.name) as service:
        service.subscribe("n any", durable="s", retention=keeps).open().close()
        service.publish_batch([{"n": n} for n in range(4)], delivery=CERTIFIED)
    attempts: dict[str, list[int]] = {}
    for _ in range(6):
        command = [sys.executable, "-c", KILLED, place.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            for line in reader.stdout:
                number, attempt = line.split()
                attempts.setdefault(number, []).append(int(attempt))
                if number == "3":
                    reader.kill()
        if "3" in attempts:
            break
    assert attempts["1"] == sorted(attempts["1"]), "its attempts begin anew"
    assert max(attempts["1"]) == 2
    assert attempts["2"] == [1]
    with ct.connect_sync(store=place.name) as service, service.subscribe(durable="dead") as dead:
        assert dead.next(20)["n"] == 1


# --- without awaits -------------------------------------------------------------------------------


@pytest.mark.quick_first
def test_the_blocking_face_promises_the_same(place: Place) -> None:
    """A program without `await` would have no guarantees."""
    with ct.connect_sync(store=place.name) as service:
        reader = service.subscribe("n any", durable="s", auto_acknowledge=False)
        with reader as events:
            assert events.name == "s"
            assert str(events.filters) == "n any"
            service.publish({"n": 0}, delivery=CERTIFIED)
            service.publish_batch(({"n": n} for n in range(1, 5)), delivery=CERTIFIED)
            got = [events.next(20) for _ in range(5)]
            assert [each.item["n"] for each in got] == [0, 1, 2, 3, 4]
            events.acknowledge(got[0].position, got[2].position)
            with pytest.warns(DeprecationWarning, match="give_back is nack now"):
                events.give_back(got[1].position)  # type: ignore[attr-defined]
            assert events.next(20).attempt == 2
            events.nack(got[1].position, delay_s=0.01)
            assert events.next(20).attempt == 3
            events.extend()
            assert events.statistics().delivered == 7
    with ct.connect_sync(store=place.name) as service:
        with suppress(ZeroDivisionError), service.subscribe(durable="s") as again:
            for each in again:
                if each.item["n"] == 3:
                    raise ZeroDivisionError
        with service.subscribe(durable="s", timeout_s=0.5) as again:
            assert [each.item["n"] for each in again] == [3, 4]
        with service.subscribe(durable="s") as again:
            service.publish({"n": 5}, delivery=CERTIFIED)
            assert again.next(20).item["n"] == 5
            again.close()
        delivery = service.statistics().delivery
        assert delivery is not None
        assert delivery.logs["s"].acknowledged == 3
        with service.subscribe(durable="s") as again:
            service.unsubscribe("s")
            with pytest.raises(DeliveryError):
                service.unsubscribe("s")
            service.close()  # A reader of an ended subscription has nothing to keep.
            again.close()
    with ct.connect_sync() as service, service.subscribe("n any", reliable=True) as events:
        service.publish({"n": 1}, delivery="reliable")
        assert events.next(20).item["n"] == 1
