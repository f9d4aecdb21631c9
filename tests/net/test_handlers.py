"""Handler functions of subscriptions: the same for every service."""

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Any

import pytest

import contrada as ct
from contrada.connections import connect, connect_sync
from contrada.errors import ServiceError
from contrada.service.callbacks import HANDLERS_MAX
from tests.asynchronous import on_loop, until


@on_loop
async def test_a_function_is_called_with_each_in_order(address: str | None) -> None:
    """Each subscriber would have to write the loop, and keep its errors out of it."""
    async with connect(address) as service, service.subscribe("n any") as events:
        plain: list[object] = []
        handling = asyncio.create_task(events.handle(lambda found: plain.append(found["n"])))
        await service.publish_batch({"n": n} for n in range(300))
        await until(lambda: len(plain) == 300)
        assert plain == list(range(300))
        await events.unsubscribe()
        await handling
    async with connect(address) as service, service.subscribe("n any") as events:
        awaited: list[object] = []

        async def handle(found: ct.Notification) -> None:
            await asyncio.sleep(0)
            awaited.append(found["n"])

        await service.publish_batch({"n": n} for n in range(300))
        await until(lambda: events.statistics().queued == 300)
        await service.aclose()
        await events.handle(handle)
        assert awaited == list(range(300)), "what is held when the service closes is handled"


@on_loop
async def test_so_many_are_called_at_a_time(address: str | None) -> None:
    """A slow handler would hold up the rest, or a burst would begin everything at once."""
    async with connect(address) as service, service.subscribe("n any") as events:
        most = under_way = 0
        gate = asyncio.Event()

        async def handle(found: ct.Notification) -> None:
            nonlocal most, under_way
            under_way += 1
            most = max(most, under_way)
            await gate.wait()
            under_way -= 1

        handling = asyncio.create_task(events.handle(handle, concurrency=3))
        await service.publish_batch({"n": n} for n in range(10))
        await until(lambda: under_way == 3 and events.statistics().queued == 7)
        gate.set()
        await until(lambda: events.statistics().delivered == 10)
        await events.unsubscribe()
        await handling
        assert (most, under_way) == (3, 0)


@on_loop
async def test_an_exception_of_a_handler_ends_nothing(
    address: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """One notification that a handler cannot take would end all handling, or vanish."""
    async with connect(address) as service, AsyncExitStack() as stack:
        events = await stack.enter_async_context(service.subscribe("n any"))
        others = await stack.enter_async_context(service.subscribe("n any"))
        done: list[object] = []
        failures: list[tuple[str, object]] = []

        async def on_error(error: Exception, found: ct.Notification) -> None:
            await asyncio.sleep(0)
            failures.append((repr(error), found["n"]))
            raise ValueError("further")

        def handle(found: ct.Notification) -> None:
            done.append(1 / found["n"])  # type: ignore[operator]

        async def handle_too(found: ct.Notification) -> None:
            if not found["n"]:
                raise asyncio.CancelledError
            handle(found)

        handling = [
            asyncio.create_task(events.handle(handle, on_error=on_error)),
            asyncio.create_task(others.handle(handle_too, concurrency=2)),
        ]
        await service.publish_batch({"n": n} for n in (0, 1, 0, 2))
        await until(lambda: len(done) == 4)
        assert failures == [("ZeroDivisionError('division by zero')", 0)] * 2
        assert events.statistics().failed == 2
        assert events.statistics().delivered == 4
        assert others.statistics().delivered == 4
        await service.aclose()
        await asyncio.gather(*handling)
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert sum("a handler of n any raised: ZeroDivisionError" in each for each in said) == 1
    assert any(
        "on_error of a handler of n any raised: ValueError('further')" in each for each in said
    )


@on_loop
async def test_cancelling_the_handling_cancels_the_calls(address: str | None) -> None:
    """Handlers would run on in a program that has cancelled them."""
    async with connect(address) as service, service.subscribe("n any") as events:
        ended: list[object] = []
        begun = asyncio.Event()

        async def handle(found: ct.Notification) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(found["n"])

        handling = asyncio.create_task(events.handle(handle))
        await service.publish_batch([{"n": 1}, {"n": 2}])
        await begun.wait()
        handling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handling
        assert ended == [1]
        assert (await events.next(20))["n"] == 2, "what was not begun is not lost"


@on_loop
async def test_an_invalid_number_of_calls_is_refused(address: str | None) -> None:
    """Nothing would ever be handled, or everything at once."""
    async with connect(address) as service, service.subscribe("n any") as events:
        wrong: Any
        for wrong in (0, -1, HANDLERS_MAX + 1, 1.5, None, True):
            with pytest.raises(ServiceError, match="concurrency"):
                await events.handle(print, concurrency=wrong)
        with pytest.raises(ServiceError, match="async with"):
            await service.subscribe("n any").handle(print)


def test_handlers_of_blocking_code_may_wait_and_publish(address: str | None) -> None:
    """A plain handler would hold up the service's own thread, or could not publish."""
    with connect_sync(address) as service, service.subscribe("n any") as events:
        gate = threading.Barrier(3)
        threads: set[str] = set()
        failures: list[object] = []

        def handle(found: ct.Notification) -> None:
            threads.add(threading.current_thread().name)
            gate.wait(20)  # Three are called at a time, or it breaks.
            service.publish({"done": found["n"]})
            if found["n"] == 5:
                raise KeyError("own")

        def on_error(error: Exception, found: ct.Notification) -> None:
            failures.append((repr(error), service.statistics().published > 0))

        with service.subscribe("done any") as done:
            handling = threading.Thread(
                target=lambda: events.handle(handle, concurrency=3, on_error=on_error)
            )
            handling.start()
            service.publish_batch({"n": n} for n in range(6))
            assert sorted(done.next(20)["done"] for _ in range(6)) == list(range(6))  # type: ignore[type-var]
            while not failures:
                pass
            events.unsubscribe()
            handling.join(20)
        assert not handling.is_alive()
        assert failures == [("KeyError('own')", True)]
        assert events.statistics().failed == 1
        assert len(threads) == 3
        assert threading.current_thread().name not in threads


def test_blocking_code_may_handle_by_async_functions(address: str | None) -> None:
    """Code for an event loop would have to be written twice."""
    done: list[object] = []

    async def handle(found: ct.Notification) -> None:
        await asyncio.sleep(0)
        done.append((found["n"], threading.current_thread().name))
        if found["n"] == 2:
            ended.set()

    ended = threading.Event()
    with connect_sync(address) as service, service.subscribe("n any") as events:
        with pytest.raises(ServiceError, match="inside its own `with`"):
            service.subscribe("n any").handle(print)
        handling = threading.Thread(target=lambda: events.handle(handle))
        handling.start()
        service.publish_batch({"n": n} for n in range(3))
        assert ended.wait(20)
        service.close()
        handling.join(20)
        assert not handling.is_alive()
    assert done == [(n, "contrada-service") for n in range(3)]
