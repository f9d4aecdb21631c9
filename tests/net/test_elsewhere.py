"""Services where several threads, event loops or processes use them."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

import contrada as ct
from contrada.connections import connect_sync
from tests.asynchronous import TEST_S_MAX

THREADS = 8
EACH = 200

FORKED = """
import asyncio, os, sys
import contrada as ct

async def is_told(service, events):
    calls = (
        lambda: service.open(),
        lambda: service.publish({"a": 1}),
        lambda: service.publish_batch([{"a": 1}]),
        lambda: service.subscribe("a = 1").open(),
        lambda: events.next(1),
        lambda: anext(events),
        lambda: events.handle(print),
        lambda: events.unsubscribe(),
        lambda: service.aclose(),
    )
    for number, call in enumerate(calls):
        try:
            await call()
        except ct.errors.ServiceError as error:
            assert "connect anew" in str(error), error
        else:
            raise AssertionError(number)

async def main(address):
    async with ct.connect(address) as service, service.subscribe("a = 1") as events:
        for is_new_loop in (False, True):
            child = os.fork()
            if child == 0:
                try:
                    if is_new_loop:
                        asyncio.run(is_told(service, events))
                    else:
                        await is_told(service, events)
                except BaseException as error:
                    print(repr(error), file=sys.stderr, flush=True)
                    os._exit(1)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        await service.publish({"a": 1})
        assert (await events.next(20))["a"] == 1
        print("done")

asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
"""

FORKED_BLOCKING = """
import os, sys
import contrada as ct

with ct.connect_sync(*sys.argv[1:]) as service, service.subscribe("a = 1") as events:
    child = os.fork()
    if child == 0:
        for call in (
            lambda: service.publish({"a": 1}),
            lambda: service.publish_batch([{"a": 1}]),
            lambda: service.subscribe("a = 1").__enter__(),
            lambda: events.next(),
            lambda: events.handle(print),
            lambda: service.statistics(),
            lambda: next(service.connection_states()),
        ):
            try:
                call()
            except ct.errors.ServiceError as error:
                assert "forked" in str(error), error
            else:
                os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    service.publish({"a": 1})
    assert events.next(20)["a"] == 1
    print("done")
"""


@pytest.mark.slow
def test_a_forked_process_gets_an_error(address: str | None) -> None:
    """Two processes would write into one connection, or one would wait for ever."""
    for code in (FORKED, FORKED_BLOCKING):
        command = [sys.executable, "-W", "ignore", "-c", code, *([address] if address else [])]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TEST_S_MAX, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.quick_first
def test_many_threads_publish_by_one_service(address: str | None) -> None:
    """Threads would have to agree on a publisher, or lose notifications silently."""
    with connect_sync(address) as service, service.subscribe("thread any") as events:
        gate = threading.Barrier(THREADS)

        def publish(thread: int) -> list[int]:
            gate.wait(20)
            sequences = []
            for n in range(EACH):
                sequences.append(service.publish({"thread": thread, "n": n}).sequence or 0)
                if n == EACH // 2:
                    service.publish_batch([{"thread": thread, "n": -1}] * 3)
            return sequences

        with ThreadPoolExecutor(THREADS) as threads:
            numbers = list(threads.map(publish, range(THREADS)))
        got: dict[object, list[object]] = defaultdict(list)
        for _ in range(THREADS * (EACH + 3)):
            notification = events.next(20)
            got[notification["thread"]].append(notification["n"])
        half = EACH // 2 + 1
        each = [*range(half), -1, -1, -1, *range(half, EACH)]
        assert got == dict.fromkeys(range(THREADS), each)
        assert len({number for some in numbers for number in some}) == THREADS * EACH
        assert service.statistics().published == THREADS * (EACH + 3)


def test_it_works_beside_several_event_loops(address: str | None) -> None:
    """Blocking code could not run in a program with event loops of its own."""
    with connect_sync(address) as service, service.subscribe("loop any") as events:

        async def publish(loop: int) -> None:
            async with ct.connect(address) as own, own.subscribe("loop any") as own_events:
                await own.publish({"loop": -1})
                assert (await own_events.next(20))["loop"] in (-1, 0, 1, 2)
                await asyncio.to_thread(service.publish, {"loop": loop})
                service.publish({"loop": loop})  # It waits for another thread's loop, not this one.

        with ThreadPoolExecutor(3) as threads:
            list(threads.map(lambda loop: asyncio.run(publish(loop)), range(3)))
        got = [events.next(20)["loop"] for _ in range(6 if address is None else 9)]
        assert Counter(n for n in got if n != -1) == {0: 2, 1: 2, 2: 2}
