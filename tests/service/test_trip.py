"""How far it is from `publish` to a reader, in one process: through few modules, by few calls."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import contrada as ct
from contrada.model.codec import pack_plain
from contrada.net.broker.broker import Broker
from tests.asynchronous import on_loop

MODULES_MAX: Final = 16 if pack_plain is None else 12
CALLS_MAX: Final = 42 if pack_plain is None else 27
"""Without and with the compiled codec, as those of the broker."""

QUERY_MODULES_MAX: Final = 23
QUERY_CALLS_MAX: Final = 208

BROKER_MODULES_MAX: Final = 35 if pack_plain is None else 29
BROKER_CALLS_MAX: Final = 185 if pack_plain is None else 109

WARM: Final = 40
"""Publications after which what is made at first use is there."""

TRIPS: Final = 5

PACKAGE: Final = f"{Path(ct.__file__).parent}/"

EVENT: Final = {
    "symbol": "DIS",
    "price": 99.5,
    "volume": 100,
    "venue": "NYSE",
    "n": 1,
    "open": True,
}


@contextmanager
def noting(calls: list[str]) -> Iterator[None]:
    """Notes the file of each function of the project that is called."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        # Compiled kernels report their calls, too; they are no Python to pass through.
        if event == "call" and file.startswith(PACKAGE) and "/kernels/" not in file:
            calls.append(file.removeprefix(PACKAGE))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("reads", ["by a loop", "by a handler"])
@on_loop
async def test_a_trip_to_a_reader_passes_few_modules(reads: str) -> None:
    """One more room on the way would slow each publication, and hide where things are decided."""
    async with (
        ct.connect() as service,
        service.subscribe("price > 10 and symbol = 'DIS'") as events,
    ):
        came = asyncio.Event()
        handling: asyncio.Task[None] | None = None
        read: Callable[[], Awaitable[Any]]
        if reads == "by a handler":

            def handler(it: ct.Notification) -> None:
                sys.setprofile(None)  # Here the trip ends.
                assert it["price"] == 99.5
                came.set()

            read = came.wait
            handling = asyncio.create_task(events.handle(handler))
        else:
            read = aiter(events).__anext__
        for _ in range(WARM):
            came.clear()
            await service.publish(EVENT)
            await read()
        trips: list[list[str]] = []
        for _ in range(TRIPS):
            came.clear()
            trips.append([])
            with noting(trips[-1]):
                await service.publish(EVENT)
                await read()
        if handling is not None:
            handling.cancel()
            await asyncio.gather(handling, return_exceptions=True)
    calls = min(trips, key=len)  # Now and then one of them looks after the index, too.
    passed = list(dict.fromkeys(calls))
    assert {
        "service/embedded_service.py",
        "routing/notification_forwarder.py",
        "service/subscription_queue.py",
    } <= set(passed)
    assert len(passed) <= MODULES_MAX, "\n".join(passed)
    assert len(calls) <= CALLS_MAX


@on_loop
async def test_a_query_passes_few_modules() -> None:
    """A longer path would slow each query and hide where sources and answers are decided."""
    source = ct.RecordSource([{"price": float(number)} for number in range(5)])
    async with ct.connect() as service, service.offer("price any", source):
        trips: list[list[str]] = []
        for _ in range(TRIPS):
            trips.append([])
            with noting(trips[-1]):
                found = [each["price"] async for each in service.query("price < 3", timeout_s=5)]
            assert found == [0.0, 1.0, 2.0]
    calls = min(trips, key=len)
    passed = list(dict.fromkeys(calls))
    assert {"routing/query_router.py", "service/query/query_responder.py"} <= set(passed)
    assert len(passed) <= QUERY_MODULES_MAX, "\n".join(passed)
    assert len(calls) <= QUERY_CALLS_MAX


@on_loop
async def test_a_trip_over_a_broker_passes_few_modules() -> None:
    """A longer path would slow each publication that a broker forwards."""
    async with (
        Broker(port=0) as broker,
        ct.connect(str(broker.address)) as publisher,
        ct.connect(str(broker.address)) as subscriber,
        subscriber.subscribe("price > 10 and symbol = 'DIS'") as events,
    ):
        read = aiter(events).__anext__
        trips: list[list[str]] = []
        for number in range(WARM + TRIPS):
            calls: list[str] = []
            with noting(calls) if number >= WARM else nullcontext():
                await publisher.publish(EVENT)
                await read()
            if calls:
                trips.append(calls)
    calls = min(trips, key=len)
    passed = list(dict.fromkeys(calls))
    assert {"net/client/tcp_service.py", "net/broker/client_session.py"} <= set(passed)
    assert len(passed) <= BROKER_MODULES_MAX, "\n".join(passed)
    assert len(calls) <= BROKER_CALLS_MAX
