"""The store of a broker as its clients see it: files, errors, and kills."""

import asyncio
import contextlib
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.delivery.retention import Retention
from contrada.errors import CannotPublishError, DeliveryError, StoreDamagedError, StoreError
from contrada.net.broker.broker import Broker
from contrada.service import DurableRecord, DurableSubscription, Service
from tests.asynchronous import on_loop, until
from tests.homes import CERTIFIED, rest
from tests.net.processes import contrada, serving
from tests.net.soon import connect
from tests.net.test_neighbours import free_ports
from tests.service.stores.test_sqlite_store import overwrite_page

KILLS = 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker.db"


@on_loop
async def test_a_file_is_created_with_the_first_durable_publication(path: Path) -> None:
    """A first try of a broker would leave files that the user did not ask for."""
    async with Broker(port=0, store=path) as broker, connect(broker.address) as service:
        await service.publish({"n": 1})
        assert not path.exists()
        await service.publish({"n": 1}, delivery=CERTIFIED)
        assert path.exists()


@on_loop
async def test_errors_of_a_store_are_reported(path: Path) -> None:
    """A broker would run, and keep nothing."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        with pytest.raises(CannotPublishError, match="this broker has no store: contrada serve --"):
            await service.publish({"n": 1}, delivery=CERTIFIED)
        with pytest.raises(DeliveryError, match="'s': this broker has no store"):
            await service.subscribe("n any", durable="s")
        await service.publish({"n": 1}, delivery="reliable")
    async with Broker(port=0, store=path) as first, Broker(port=0, store=path) as second:
        async with connect(first.address) as one, connect(second.address) as other:
            await one.subscribe("n any", durable="s")
            for _ in range(2):
                with pytest.raises(StoreError, match="it is in use"):
                    await other.publish({"n": 1}, delivery=CERTIFIED)
            await other.publish({"n": 1})
        with pytest.raises(StoreError, match="it is in use"):
            await Broker(port=0, store=path).start()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE logs SET head = x'00' WHERE name = 's'")
    with pytest.raises(StoreError, match="damaged: 's': the log's head"):
        await Broker(port=0, store=path).start()


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("options", "file"),
    [
        ((), "contrada.db"),
        (("--name", "north/1"), "contrada-north%2F1.db"),
        (("--store", "other.db"), "other.db"),
        (("--store", "memory:"), None),
    ],
)
def test_the_command_names_its_store(
    options: tuple[str, ...], file: str | None, tmp_path: Path
) -> None:
    """A user would not find the store, or have unwanted files."""
    with (
        serving("--port", "0", *options, folder=tmp_path) as (_, address),
        ct.connect_sync(address) as service,
    ):
        assert not list(tmp_path.iterdir())
        if file is None:
            with pytest.raises(CannotPublishError, match="no store"):
                service.publish({"n": 1}, delivery=CERTIFIED)
            service.publish({"n": 1}, delivery="reliable")
            assert not list(tmp_path.iterdir())
        else:
            with service.subscribe("n any", durable="s") as events:
                service.publish({"n": 1}, delivery=CERTIFIED)
                assert events.next(20).item["n"] == 1
            assert (tmp_path / file).exists()


@pytest.mark.slow
def test_a_store_that_cannot_be_used_ends_the_command(tmp_path: Path) -> None:
    """It would run, and refuse everything."""
    (tmp_path / "contrada.db").write_bytes(b"no database at all" * 100)
    store = str(tmp_path / "contrada.db")
    for place, said in (
        (store, "not a database"),
        ("mysql://x", "store = 'mysql://…': expected the path of a file"),
    ):
        result = contrada("serve", "--port", "0", "--store", place)
        assert result.returncode == 2
        assert said in result.stderr
        assert "Traceback" not in result.stderr


async def publish_all(service: Service, accepted: list[int], stop: asyncio.Event) -> None:
    """Publishes numbers in concurrent batches until a stop; notes the accepted ones."""

    async def publish(first: int) -> None:
        for n in range(first, 10**9, 8):
            if stop.is_set():
                return
            await service.publish({"n": n}, delivery="certified fifo")
            accepted.append(n)

    await asyncio.gather(*map(publish, range(8)))


async def read_all(events: DurableSubscription[Any], done: list[int]) -> None:
    """Reads until cancelled; notes the acknowledged ones."""
    async for each in events:
        await events.acknowledge(each.position)
        done.append(each.item["n"])


@pytest.mark.slow
@on_loop
async def test_a_killed_broker_serves_acknowledged_publications(path: Path) -> None:
    """Certified would be a word."""
    options = ("--port", str(*free_ports(1)), "--store", str(path))
    accepted, done = list[int](), list[int]()
    stop = asyncio.Event()
    with contextlib.ExitStack() as stack:
        process, address = stack.enter_context(serving(*options))
        async with connect(address) as service:
            async with service.subscribe("n any", durable="s", auto_acknowledge=False) as events:
                publishing = asyncio.create_task(publish_all(service, accepted, stop))
                reading = asyncio.create_task(read_all(events, done))
                for _ in range(KILLS):
                    goal = len(accepted) + 100, len(done) + 50
                    await until(lambda: len(accepted) >= goal[0] and len(done) >= goal[1])  # noqa: B023
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    process, _ = stack.enter_context(serving(*options))
                stop.set()
                await publishing
                await until(lambda: len(done) >= len(accepted))
                reading.cancel()
                assert sorted(done) == sorted(accepted)
            assert await rest(service, "s") == []


@pytest.mark.slow
@pytest.mark.parametrize("way", ["awaited", "cancelled", "handler"])
@on_loop
async def test_a_nack_outlives_a_killed_broker(way: str, path: Path) -> None:
    """A restarted broker would hand out the record at once, as a first attempt."""
    options = ("--port", str(*free_ports(1)), "--store", str(path))
    retention = Retention(backoff_s=600, attempts_max=9)
    with contextlib.ExitStack() as stack:
        process, address = stack.enter_context(serving(*options))

        async def fail(record: DurableRecord[Any]) -> None:
            process.send_signal(signal.SIGSTOP)
            raise ValueError(record.position)

        async with connect(address) as service:
            events = service.subscribe(
                "n any", durable="s", auto_acknowledge=False, retention=retention
            )
            async with events:
                await service.publish({"n": 1}, delivery=CERTIFIED)
                if way == "handler":
                    work = asyncio.create_task(events.handle(fail))
                    await until(lambda: events.statistics().failed == 1)
                else:
                    record = await events.next(20)
                    process.send_signal(signal.SIGSTOP)
                    work = asyncio.create_task(events.nack(record.position, delay_s=600))
                    await asyncio.sleep(0)
                if way == "cancelled":
                    work.cancel()
                process.kill()
                process.wait()
                stack.enter_context(serving(*options))
                if way == "awaited":
                    await work
                await until(lambda: events.statistics().reconnects == 1)
                while not (state := await service.queues.state("s")).delayed:
                    pass  # The nack is repeated, maybe behind the first request for the state.
                assert (state.delayed, state.attempts) == (1, 1)
                work.cancel()


@pytest.mark.slow
def test_a_store_that_is_damaged_where_it_is_written_ends_its_readers(path: Path) -> None:
    """Readers would wait for ever, silently; and the operator for a mend that never happens."""
    options = ("--port", "0", "--store", str(path))
    text = "x" * 200
    with serving(*options) as (process, address), ct.connect_sync(address) as service:
        for name in ("s", "other"):
            with service.subscribe(f"{name} any", durable=name):
                pass
        batch = [{"s": n, "text": f"{n:04}{text}"} for n in range(400)]
        service.publish_batch(batch, delivery=CERTIFIED)
        process.terminate()
        assert process.wait() == 0
    overwrite_page(path, b"0399xxx")
    checked = contrada("store", "check", str(path))
    assert checked.returncode == 1
    assert re.search(r"^damaged: s, 3\d\d: \d+ records cannot be read$", checked.stdout, re.M)
    with (
        serving(*options) as (process, address),
        ct.connect_sync(address) as publisher,
        ct.connect_sync(address) as reader,
    ):
        readers = [reader.subscribe(durable=name) for name in ("s", "other")]
        for each in readers:
            each.open()
        assert readers[0].next(20).item["s"] == 0
        for name in ("s", "other"):
            with pytest.raises(StoreDamagedError, match="malformed"):
                publisher.publish({name: 400}, delivery=CERTIFIED)
        for each in readers:
            with pytest.raises(DeliveryError, match="its store is damaged"):
                list(each)
        found = contrada("doctor", address).stdout
        assert "its store cannot be written" in found
        assert "mend that" not in found
        assert "contrada store check, then restore a backup" in found
        process.terminate()
        assert process.wait() == 2
