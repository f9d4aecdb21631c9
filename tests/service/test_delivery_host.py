"""The way of durable notifications to the disk: missing threads, failing stores."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.delivery.memory_store import MemoryStore
from contrada.errors import StoreError
from contrada.service import group_committer
from contrada.service.service_limits import ServiceLimits
from contrada.service.stores import table_store
from contrada.service.stores.sqlite_store import SqliteStore
from contrada.service.subscription_queue import PUBLISH_WAIT_S_MAX
from tests.asynchronous import TEST_S_MAX, on_loop, until
from tests.homes import CERTIFIED, numbers, of

QUEUE_NOTIFICATIONS_MAX = ServiceLimits().queue_notifications_max

AFTER_THE_MAIN_THREAD = """
import sys, threading
import contrada as ct

def work():
    threading.main_thread().join()
    with ct.connect_sync(store=sys.argv[1]) as service:
        with service.subscribe("n any", durable="s") as events:
            service.publish({"n": 1}, delivery="certified")
            print(events.next(20).item["n"])

threading.Thread(target=work).start()
"""

AT_EXIT = """
import atexit, sys
import contrada as ct

service = ct.connect_sync(store=sys.argv[1]).__enter__()
events = service.subscribe("n any", durable="s").__enter__()
atexit.register(service.close)
service.publish({"n": 1}, delivery="certified")
print(events.next(20).item["n"])
"""


class FailingStore(MemoryStore):
    """A caller's own store with an unexpected error."""

    fails = True
    groups = 0

    def seal(self) -> Callable[[], None]:
        """Brings nothing while it fails."""
        self.groups += 1
        bring = super().seal()

        def bringing() -> None:
            if self.fails:
                raise OSError("the wire to the disk is cut")
            bring()

        return bringing


@pytest.mark.quick_first
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(
            AFTER_THE_MAIN_THREAD,
            marks=pytest.mark.skipif(
                sys.version_info[:2] == (3, 12),
                reason="Python 3.12 starts no thread once the main one has ended",
            ),
        ),
        AT_EXIT,
    ],
)
def test_it_works_on_when_python_gives_no_threads_any_more(program: str, tmp_path: Path) -> None:
    """A publisher in a thread beyond the main one, or at exit, would wait for ever."""
    command = [sys.executable, "-c", program, str(tmp_path / "s.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TEST_S_MAX, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")


@on_loop
async def test_whatever_a_store_raises_is_told_and_tried_again() -> None:
    """A publisher would wait for ever for a group that is not written."""
    store = FailingStore()
    async with ct.connect(store=store) as service:
        with pytest.raises(StoreError, match="the wire to the disk is cut"):
            await service.publish({"n": 1}, delivery=CERTIFIED)
        store.fails = False
        await service.publish({"n": 2}, delivery=CERTIFIED)


@on_loop
async def test_a_service_that_is_closed_leaves_its_store_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failed group would be tried for ever, in a store with another owner by then."""
    monkeypatch.setattr(group_committer, "RETRY_S", 0)
    store = FailingStore()
    service = await ct.connect(store=store)
    with pytest.raises(StoreError):
        await service.publish({"n": 1}, delivery=CERTIFIED)
    with pytest.raises(StoreError):
        await service.aclose()
    groups = store.groups
    for _ in range(10):
        await asyncio.sleep(0)
    assert store.groups == groups


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The disk writes nothing while this is cleared; it is set at first."""
    goes_on, write = threading.Event(), SqliteStore._write
    goes_on.set()

    def held_up(self: SqliteStore, *of: Any) -> None:
        assert goes_on.wait(TEST_S_MAX)
        write(self, *of)

    monkeypatch.setattr(SqliteStore, "_write", held_up)
    return goes_on


@on_loop
async def test_nothing_is_said_before_it_is_on_the_disk(
    tmp_path: Path, disk: threading.Event
) -> None:
    """A reader would act on a record that a crash removes; or the event loop would wait for the
    disk.
    """
    async with ct.connect(store=tmp_path / "s.db") as service:
        reader = service.subscribe("n any", durable="s", auto_acknowledge=False)
        async with reader as events:
            await service.publish({"n": 0}, delivery=CERTIFIED)
            assert await numbers(events, 1) == [0]
            disk.clear()
            publishing = asyncio.create_task(service.publish({"n": 1}, delivery=CERTIFIED))
            try:
                with pytest.raises(TimeoutError):
                    await events.next(0.2)
                assert not publishing.done()
            finally:
                disk.set()
            assert await numbers(events, 1) == [1]
            await publishing


@pytest.mark.slow
@on_loop
async def test_a_fast_publisher_at_best_effort_waits_for_the_disk(
    tmp_path: Path, disk: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log would lose records beyond the speed of its disk, or the memory be filled."""
    monkeypatch.setattr(table_store, "WAITING_BYTES_MAX", 300_000)
    count = 2 * QUEUE_NOTIFICATIONS_MAX
    path = tmp_path / "s.db"
    async with ct.connect(store=path, publish_wait_s=PUBLISH_WAIT_S_MAX) as service:
        await service.subscribe("n any", durable="all")
        disk.clear()
        publishing = asyncio.create_task(service.publish_batch({"n": n} for n in range(count)))
        try:
            await until(lambda: service.statistics().published > QUEUE_NOTIFICATIONS_MAX)
        finally:
            disk.set()
        await publishing
    async with ct.connect(store=path) as service, service.subscribe(durable="all") as events:
        assert await numbers(events, count) == list(range(count))


@on_loop
async def test_what_found_no_room_is_taken_when_there_is(
    tmp_path: Path, disk: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reliable notification would wait for the next publication."""
    monkeypatch.setattr(table_store, "WAITING_BYTES_MAX", 1_000)
    async with ct.connect(store=tmp_path / "s.db") as service:
        await (await service.subscribe("n any", durable="s")).aclose()
        disk.clear()
        two = [ct.Notification({"n": n}, body=bytes(700)) for n in range(2)]
        publishing = [
            asyncio.create_task(service.publish(each, delivery="reliable")) for each in two
        ]
        await until(lambda: of(service).held == 1)
        disk.set()
        await asyncio.gather(*publishing)
        await until(lambda: of(service).held == 0)
        assert of(service).logs["s"].appended == 2


@on_loop
async def test_one_that_has_ended_by_its_policy_begins_anew(tmp_path: Path) -> None:
    """Records of the former subscription would be kept for the new one: all twice."""
    async with ct.connect(store=tmp_path / "s.db") as service:
        keeps = ct.Retention(records_max=1, on_full=ct.OnFull.END)
        await service.subscribe("n any", durable="s", retention=keeps)
        await service.publish_batch([{"n": 0}], delivery=CERTIFIED)
        await service.publish_batch([{"n": 1}], delivery=CERTIFIED)
        assert of(service).standing == 0
        events = await service.subscribe("n any", durable="s")
        await service.publish({"n": 2})
        assert await numbers(events, 1) == [2]
        await service.publish({"n": 3})
        assert await numbers(events, 1) == [3]


@pytest.mark.parametrize("turns", range(1, 14, 3))
@on_loop
async def test_a_cancelled_end_frees_the_store(turns: int, tmp_path: Path) -> None:
    """It would stay locked for this process, with a thread, and its readers would wait for ever."""
    asked = asyncio.Event()

    async def answer(_: object) -> AsyncIterator[dict[str, int]]:
        asked.set()
        try:
            await asyncio.Event().wait()
            yield {"n": 1}
        finally:
            for _ in range(4):  # It takes some turns to stop.
                await asyncio.sleep(0)

    before = {*threading.enumerate()}
    async with ct.connect(store=tmp_path / "s.db") as service:
        await service.offer("n any", answer)
        answers = await service.query("n any")  # Held: it would end with its last reference.
        await asked.wait()
        await service.subscribe("n any", durable="s")
        reading = asyncio.create_task(anext(await service.subscribe("m any", durable="r"), None))
        await service.publish({"n": 1})
        closing = asyncio.create_task(service.aclose())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await reading is None
        assert service.connection.state == "closed"
        await answers.aclose()
    for each in {*threading.enumerate()} - before:
        if each.name == "contrada-store":
            each.join(TEST_S_MAX)
            assert not each.is_alive()
    SqliteStore(tmp_path / "s.db").close()


@on_loop
async def test_a_reader_of_large_records_grants_its_void_credit_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would wait for ever, after the records of one step."""
    for module in ("store", "owned_logs"):
        monkeypatch.setattr(f"contrada.delivery.{module}.READ_BYTES_MAX", 1)
    async with (
        ct.connect(store=tmp_path / "s.db") as service,
        service.subscribe("n any", durable="s", prefetch=8) as events,
    ):
        await service.publish_batch([{"n": n} for n in range(20)], delivery=CERTIFIED)
        assert await numbers(events, 20) == [*range(20)]
