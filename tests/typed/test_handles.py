"""Handles: their ends, by any caller, and their statistics afterwards."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

import contrada as ct
from contrada.delivery.memory_store import MemoryStore
from contrada.errors import CannotSubscribeError, CannotUnsubscribeError, ServiceError, StoreError
from contrada.service.callbacks import HANDLERS_MAX
from contrada.service.durable_reader import DurableReader
from contrada.service.embedded_service import EmbeddedService
from contrada.typed import handles
from contrada.typed.handles import Handle, ThreadPolicy
from tests.asynchronous import on_loop, until


@dataclass
class Call(ct.Obvent, name="handles.Call"):
    number: int = 0


@dataclass
class Ring(Call, name="handles.Ring"):
    """Another class of calls."""


@dataclass
class Kept(Call, ct.Certified, name="handles.Kept"):
    """A certified call."""


def on_threads(ring: list[Handle[Call]]) -> list[Callable[[Call], None]]:
    """Handlers that each deactivate the next one's handle, all at a time, on threads."""
    together = threading.Barrier(len(ring))

    def handler(after: int) -> Callable[[Call], None]:
        def handle(_: Call) -> None:
            together.wait(20)
            ring[after % len(ring)].deactivate()

        return handle

    return [handler(number + 1) for number in range(len(ring))]


def on_the_loop(ring: list[Handle[Call]]) -> list[Callable[[Call], Awaitable[None]]]:
    """The same, awaited."""
    begun: list[int] = []

    def handler(after: int) -> Callable[[Call], Awaitable[None]]:
        async def handle(_: Call) -> None:
            begun.append(after)
            await until(lambda: len(begun) == len(ring))
            await ring[after % len(ring)].deactivate()

        return handle

    return [handler(number + 1) for number in range(len(ring))]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("way", [on_threads, on_the_loop])
@on_loop
async def test_handlers_that_deactivate_each_others_handles_end(way: Any, count: int) -> None:
    """Each would wait for the other, and none of them end."""
    async with EmbeddedService() as service:
        ring: list[Handle[Call]] = [None] * count  # type: ignore[list-item]
        ring[:] = [Handle(service, Call, each) for each in way(ring)]
        for handle in ring:
            await handle.activate()
        await service.publish(Call())
        async with asyncio.timeout(30):
            await until(lambda: service.statistics().subscriptions == 0)
        assert not any(handle.is_active for handle in ring)
        assert handles._waits == []


@pytest.mark.parametrize("within", ["nothing", "a handler", "a thread"])
@on_loop
async def test_deactivate_waits_for_running_calls(within: str) -> None:
    """Resources of a running handler would be closed, also by another handler."""
    ended: list[str] = []
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(_: Call) -> None:
        begun.set()
        await release.wait()
        ended.append("call")

    async with EmbeddedService() as service:
        handle = Handle(service, Call, slow)

        async def stop(_: Ring) -> None:
            await begun.wait()
            if within == "a thread":
                ending = asyncio.ensure_future(asyncio.to_thread(handle.deactivate))
                await until(lambda: not handle.is_active)
                release.set()
                await ending
            else:
                asyncio.get_running_loop().call_soon(release.set)
                await handle.deactivate()
            ended.append("deactivated")

        await handle.activate()
        if within == "a handler":
            async with Handle(service, Ring, stop):
                await service.publish(Ring())
                await until(lambda: len(ended) == 2)
        else:
            await service.publish(Call())
            await stop(Ring())
    assert ended == ["call", "deactivated"]


@on_loop
async def test_deactivation_drops_queued_calls() -> None:
    """A handler would be called after its handle was deactivated."""
    got: list[int] = []
    release = asyncio.Event()

    async def handler(call: Call) -> None:
        got.append(call.number)
        await release.wait()

    async with EmbeddedService() as service:
        handle = Handle(service, Call, handler, threads=ThreadPolicy.one_per_class())
        await handle.activate()
        for number in range(5):
            await service.publish(Call(number))
        await until(lambda: got == [0] and handle.statistics().delivered == 5)
        ending = handle.deactivate()
        release.set()
        await ending
    assert got == [0]


@on_loop
async def test_queued_calls_are_bounded() -> None:
    """All obvents of a busy class would be in memory."""
    threads = ThreadPolicy.one_per_class(waiting_max=3)
    got: list[int] = []
    release = asyncio.Event()

    async def handler(call: Call) -> None:
        await release.wait()
        got.append(call.number)

    async with (
        EmbeddedService() as service,
        Handle(service, Call, handler, threads=threads) as handle,
    ):
        for number in range(9):
            await service.publish(Call(number))
        await until(lambda: handle.statistics().delivered == 4)
        await asyncio.sleep(0)
        assert handle.statistics().queued == 5, "one is handled, and three wait"
        release.set()
        await until(lambda: got == list(range(9)))


@on_loop
async def test_a_handle_that_ends_at_once_leaves_nothing_behind() -> None:
    """Its subscription would last as long as the service, and fill."""
    async with EmbeddedService() as service:
        handle = Handle(service, Call, print)
        for _ in range(3):
            await handle.activate()
            await handle.deactivate()
        assert service.statistics().subscriptions == 0
        activating = asyncio.ensure_future(handle.activate())
        while service.statistics().subscriptions == 0:
            await asyncio.sleep(0)
        with pytest.raises(CannotSubscribeError, match="active already"):
            await handle.activate()
        activating.cancel()
        await asyncio.wait([activating])
        assert not handle.is_active
        await until(lambda: service.statistics().subscriptions == 0)
        with pytest.raises(CannotUnsubscribeError):
            handle.deactivate()


@on_loop
async def test_statistics_outlive_the_subscription() -> None:
    """A look after the end would show other figures than a moment before."""

    def handler(call: Call) -> None:
        if call.number == 1:
            raise ValueError

    async with EmbeddedService() as service:
        handle = Handle(service, Call, handler, threads=ThreadPolicy.single())
        assert handle.statistics().delivered == 0
        for times in (1, 2):
            async with handle:
                for number in range(3):
                    await service.publish(Call(number))
                await until(lambda: handle.statistics().delivered == 3)
            assert handle.statistics().delivered == 3, "since it was activated last"
            assert handle.statistics().failed == times


@pytest.mark.parametrize("threads", [ThreadPolicy.single(), ThreadPolicy.one_per_class()])
@on_loop
async def test_a_temporary_disk_failure_ends_no_handle(
    threads: ThreadPolicy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unacknowledged obvent would block its class."""
    got: list[int] = []
    acknowledge = DurableReader.acknowledge

    async def handler(kept: Kept) -> None:
        got.append(kept.number)

    async def fails(held: Any, *positions: int) -> None:
        await acknowledge(held, *positions)
        if positions == (1,):
            raise StoreError("the disk is gone")

    monkeypatch.setattr(DurableReader, "acknowledge", fails)
    async with EmbeddedService(store=MemoryStore()) as service:
        handle = Handle(service, Kept, handler, threads=threads)
        await handle.activate("kept")
        await service.publish_batch(map(Kept, range(3)))
        await until(lambda: got == [0, 1, 2])
        await handle.deactivate()
        async with service.subscribe(durable="kept") as rest:
            await service.publish(Kept(3))
            assert (await rest.next(5)).item["number"] == 3, "the others are acknowledged"
    assert "the disk is gone" in caplog.text


@on_loop
async def test_a_failing_handler_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log would be full of one fault; `failed` counts it."""

    def handler(_: Call) -> None:
        raise ValueError("always")

    async with EmbeddedService() as service, Handle(service, Call, handler) as handle:
        for number in range(3):
            await service.publish(Call(number))
        await until(lambda: handle.statistics().failed == 3)
    assert len([it for it in caplog.records if it.levelname == "WARNING"]) == 1


@pytest.mark.parametrize("wrong", [0, HANDLERS_MAX + 1, True, 1.5])
def test_policies_are_bounded(wrong: Any) -> None:
    """A handle would have no thread, or too many."""
    with pytest.raises(ServiceError, match=f"expected 1 to {HANDLERS_MAX}"):
        ThreadPolicy.multi(wrong)
