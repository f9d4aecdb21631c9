"""The blocking service has the methods and results of the asynchronous one."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import contrada as ct
from contrada.connections import connect_sync
from contrada.errors import (
    ConnectionFailedError,
    InvalidNotificationError,
    ParseError,
    ServiceClosedError,
    ServiceError,
)
from contrada.service import ServiceStatistics
from contrada.service.embedded_service import EmbeddedService
from contrada.service.service_limits import CoreLimits, ServiceLimits
from contrada.service.sync import SyncService
from contrada.service.sync_base import BATCH_READ
from tests import sync_code
from tests.asynchronous import TEST_S_MAX, on_loop


def test_it_publishes_and_subscribes() -> None:
    """Code that does not await could not use the service."""
    with SyncService(EmbeddedService()) as service:
        with service.subscribe("price < 100", timeout_s=0.05) as events:
            envelope = service.publish({"price": 5})
            assert service.publish_batch([{"price": 6}, {"price": 600}]) == 2
            assert [n["price"] for n in events] == [5, 6]
            assert envelope.sequence == 1
            assert events.statistics().delivered == 2
        assert service.statistics().published == 3
        assert service.statistics().subscriptions == 0


def test_waiting_ends_in_time() -> None:
    """A caller would hang when nothing arrives."""
    with SyncService(EmbeddedService()) as service, service.subscribe("price < 100") as events:
        with pytest.raises(TimeoutError):
            events.next(timeout_s=0.01)
        service.publish({"price": 5})
        assert events.next(timeout_s=5)["price"] == 5


def test_errors_come_through() -> None:
    """Errors of the service would stay on its thread."""
    with SyncService(EmbeddedService()) as service, pytest.raises(ParseError):
        service.subscribe("price <")


def test_closing_ends_iterations_of_other_threads() -> None:
    """A thread that iterates would hang when the service is closed elsewhere."""
    got: list[object] = []
    service = SyncService(EmbeddedService())
    with service:
        events = service.subscribe("price < 100").__enter__()
        reader = threading.Thread(target=lambda: got.extend(n["price"] for n in events))
        reader.start()
        service.publish({"price": 5})
        while events.statistics().delivered < 1:
            pass
        service.close()
        reader.join(10)
        assert not reader.is_alive()
    assert got == [5]
    with pytest.raises(ServiceClosedError):
        service.publish({"price": 5})


def test_items_of_a_batch_may_come_from_the_service() -> None:
    """The service would wait for itself, and its caller for ever."""
    with (
        SyncService(EmbeddedService()) as service,
        service.subscribe("a = 1", timeout_s=0.05) as events,
        service.subscribe("b = 1") as others,
    ):
        service.publish({"a": 1})
        assert service.publish_batch({"b": event["a"]} for event in events) == 1
        assert others.next(5)["b"] == 1


def test_a_batch_that_waits_for_items_holds_up_nobody() -> None:
    """A waiting generator would block all other threads."""
    with SyncService(EmbeddedService()) as service:
        asked, answered = threading.Event(), threading.Event()

        def items() -> Iterator[dict[str, int]]:
            yield {"a": 1}
            asked.set()
            assert answered.wait(10)
            yield {"a": 2}

        counts: list[int] = []
        publisher = threading.Thread(target=lambda: counts.append(service.publish_batch(items())))
        publisher.start()
        assert asked.wait(10)
        service.publish({"b": 1})
        answered.set()
        publisher.join(10)
        assert counts == [2]


def test_a_batch_that_fails_says_how_many_were_taken() -> None:
    """A publisher of the rest would publish some twice, or lose some."""

    def items(last: object) -> Iterator[Mapping[str, object]]:
        yield from ({"a": n} for n in range(BATCH_READ + 5))
        if last is None:
            raise KeyError("own")
        yield {"a": last}

    for last in (None, object()):
        with SyncService(EmbeddedService()) as service:
            with pytest.raises((KeyError, InvalidNotificationError)) as failed:
                service.publish_batch(items(last))
            assert getattr(failed.value, "published", None) == BATCH_READ + 5
            [note] = failed.value.__notes__
            assert note.startswith(f"{BATCH_READ + 5} notifications")
            assert service.statistics().published == BATCH_READ + 5


@pytest.mark.parametrize("timeout_s", [float("nan"), -1.0])
def test_what_is_no_timeout_is_refused(timeout_s: float) -> None:
    """A thread would wait for ever, or never."""
    with SyncService(EmbeddedService()) as service:
        with pytest.raises(ServiceError, match="timeout_s"):
            service.subscribe("a = 1", timeout_s=timeout_s)
        with service.subscribe("a = 1") as events, pytest.raises(ServiceError, match="timeout_s"):
            events.next(timeout_s)


def test_the_blocking_methods_are_generated_from_the_interface() -> None:
    """A new method of a service would have no blocking twin: run `make sync`."""
    assert sync_code.TARGET.read_text("utf-8") == sync_code.generate()


def test_a_service_opens_at_first_use() -> None:
    """A notebook, or a module's global, would need a `with` around all that uses it."""
    before = threading.active_count()
    service = connect_sync()
    assert threading.active_count() == before
    service.publish({"a": 1})
    events = service.subscribe("a > 0").open()
    service.publish({"a": 2})
    assert events.next(5)["a"] == 2
    events.close()
    events.close()
    assert service.open() is service
    service.close()
    assert threading.active_count() == before


def test_an_open_service_is_closed_at_exit() -> None:
    """The last publications of a script would be lost, or the interpreter hang at its end."""
    script = (
        "import contrada as ct\n"
        "service = ct.connect_sync(on_connection=lambda it: print(it.state))\n"
        "service.publish({'a': 1})\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TEST_S_MAX, check=False)
    assert (done.stdout.split(), done.stderr) == (["connected", "closed"], "")


def test_a_service_that_could_not_open_is_tried_again() -> None:
    """A global service would be useless for ever if its broker started a second later."""

    class Late(EmbeddedService):
        failures = 1

        async def open(self) -> None:
            if self.failures:
                self.failures -= 1
                raise ConnectionFailedError("contrada://a", "refused")
            await super().open()

    service = SyncService(Late())
    with pytest.raises(ConnectionFailedError):
        service.publish({"a": 1})
    service.publish({"a": 1})
    service.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_runs_in_the_background(is_async: bool) -> None:
    """A program would need a thread of its own to handle notifications, and a way to end it."""
    seen: list[object] = []
    failed = threading.Event()

    def handler(it: ct.Notification) -> None:
        seen.append(it["a"])
        if it["a"] == 2:
            raise ValueError("own")

    async def async_handler(it: ct.Notification) -> None:
        handler(it)

    with connect_sync() as service:
        events = service.subscribe("a > 0")
        running = events.handle_in_background(
            async_handler if is_async else handler, on_error=lambda *_: failed.set()
        )
        service.publish_batch([{"a": 1}, {"a": 2}])
        assert failed.wait(5)
        assert (seen, running.is_running) == ([1, 2], True)
        with pytest.raises(TimeoutError):
            running.join(0.01)
        running.stop()
        running.stop()
        assert not running.is_running
        service.publish({"a": 3})
        assert events.next(5)["a"] == 3
        with events.handle_in_background(handler) as again:
            events.unsubscribe()
            again.join(5)
        assert seen == [1, 2]


def test_a_closed_service_says_so() -> None:
    """One would look for a `with` that is there."""
    service = SyncService(EmbeddedService())
    with service:
        pass
    with pytest.raises(ServiceClosedError, match="closed"):
        service.publish({"a": 1})


FORKED = """
import os, sys, threading
from contrada.errors import ServiceError
from contrada.service.embedded_service import EmbeddedService
from contrada.service.sync import SyncService

with SyncService(EmbeddedService()) as service, service.subscribe("a = 1") as events:
    reader, writer = os.pipe()
    service._lock.acquire()  # As another thread may hold it at that moment.
    child = os.fork()
    service._lock.release() if child else None
    if child == 0:
        for call in (
            lambda: service.publish({"a": 1}),
            lambda: service.publish_batch([{"a": 1}]),
            lambda: events.next(),
            lambda: service.statistics(),
            lambda: service.subscribe("a = 1").__enter__(),
        ):
            try:
                call()
            except ServiceError as error:
                os.write(writer, b"x" if "forked" in str(error) else b"?")
    else:
        os.waitpid(child, 0)
        assert os.read(reader, 10) == b"xxxxx"
        service.publish({"a": 1})
        assert events.next(10)["a"] == 1
        print("done")
"""


@pytest.mark.slow
def test_a_forked_process_is_told_at_once() -> None:
    """A child would wait for ever for a thread that it does not have."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TEST_S_MAX, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


class Watched(EmbeddedService):
    """A service that notes on which threads it is asked for its counts."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_on: list[str] = []

    def statistics(self) -> ServiceStatistics:
        self.asked_on.append(threading.current_thread().name)
        return super().statistics()


def test_counts_are_taken_where_nothing_changes_them() -> None:
    """A caller's thread would read tables that the service's thread changes at that moment."""
    watched = Watched()
    with SyncService(watched) as service:
        service.publish({"a": 1})
        assert service.statistics().published == 1
        assert watched.asked_on == ["contrada-service"]
    assert service.statistics().published == 1


class Stubborn(EmbeddedService):
    """A service with a task that does not let itself be cancelled until it may."""

    def __init__(self) -> None:
        super().__init__(limits=CoreLimits(service=ServiceLimits(thread_wait_s=0.05)))
        self.may_end = threading.Event()

    async def open(self) -> None:
        await super().open()
        self._task = asyncio.create_task(self._go_on())

    async def _go_on(self) -> None:
        while not self.may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)


class Blocked(Stubborn):
    """A service that, when it is cancelled, blocks its whole event loop until it may end."""

    async def _go_on(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.may_end.wait()


@pytest.mark.parametrize(
    ("stubborn", "what"), [(Stubborn(), "event loop"), (Blocked(), "its thread")]
)
def test_what_does_not_end_in_time_is_told(stubborn: Stubborn, what: str) -> None:
    """Closing would end in a bare TimeoutError, or leave a thread behind without a word."""
    before = threading.active_count()
    service = SyncService(stubborn).__enter__()
    with pytest.raises(ServiceError, match=f"{what}.*thread_wait_s"):
        service.close()
    stubborn.may_end.set()
    while threading.active_count() > before:
        pass
    service.close()


def test_its_thread_ends() -> None:
    """Each use would leave a thread behind."""
    before = threading.active_count()
    with SyncService(EmbeddedService()):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_what_is_queued_when_the_service_closes_can_be_read() -> None:
    """Unread notifications in the queue would be lost."""
    with SyncService(EmbeddedService()) as service:
        kept, left = service.subscribe("a > 0"), service.subscribe("a > 0")
        with kept, left:
            service.publish_batch({"a": number} for number in range(1, 5))
            assert kept.next()["a"] == 1
            left.unsubscribe()
            service.close()
            assert kept.next()["a"] == 2
            assert [each["a"] for each in kept] == [3, 4]
            assert list(left) == []
            with pytest.raises(ServiceClosedError):
                kept.next()
        assert list(kept) == []


def test_what_expires_after_the_service_was_closed_is_not_read() -> None:
    """An expired notification would be read, because it had arrived in time."""
    inner = EmbeddedService()
    now_us = inner.now_us()
    inner.now_us = lambda: now_us
    with SyncService(inner) as service, service.subscribe("a > 0") as events:
        service.publish({"a": 1}, ttl_s=100)
        service.publish({"a": 2}, ttl_s=50, priority=0)
        service.publish({"a": 3}, priority=0)
        service.close()
        assert events.next()["a"] == 1
        now_us += 60_000_000
        assert [each["a"] for each in events] == [3]
        assert events.statistics().dropped == {"expired": 1}


def test_a_thread_that_reads_while_the_service_closes_misses_nothing() -> None:
    """A thread that is reading at the close would lose notifications to a later reader."""
    with SyncService(EmbeddedService()) as service:
        read: list[object] = []
        with service.subscribe("a >= 0") as events:
            reader = threading.Thread(target=lambda: read.extend(each["a"] for each in events))
            reader.start()
            service.publish_batch({"a": number} for number in range(1_000))
            service.close()
            reader.join(10)
        assert not reader.is_alive()
        assert read == list(range(1_000))


def test_what_was_not_entered_cannot_be_read() -> None:
    """A loop over it would end at once, as if nothing had arrived."""
    outside = connect_sync().subscribe("a = 1")
    with pytest.raises(ServiceError, match="inside its own `with`"):
        next(iter(outside))
    with connect_sync() as service:
        with pytest.raises(ServiceError, match="inside its own `with`"):
            service.subscribe("a = 1").next(1)
        with service.subscribe("a = 1") as events, pytest.raises(TimeoutError, match=r"0\.01 s"):
            events.next(0.01)


@pytest.mark.parametrize("items", [{"a": 1}, "a = 1", b"a", ct.Notification({"a": 1})])
def test_one_item_is_no_batch(items: Any) -> None:
    """Its names or letters would be taken for items, and the error be about these."""
    with SyncService(EmbeddedService()) as service:
        with pytest.raises(ServiceError, match="expected a list of items") as caught:
            service.publish_batch(items)
        assert caught.value.published == 0


@on_loop
async def test_one_item_is_no_batch_where_it_is_awaited() -> None:
    """The same, without threads."""
    async with EmbeddedService() as service:
        with pytest.raises(ServiceError, match="expected a list of items"):
            await service.publish_batch("a = 1")  # type: ignore[arg-type]
