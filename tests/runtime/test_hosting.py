"""How what is promised comes to the disk: threads that are not to be had, stores that fail."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import contrada as ct
from contrada.delivery.memory import MemoryStore
from contrada.errors import StoreError
from contrada.runtime import hosting
from tests.asynchronous import TEST_S_MAX, on_loop

CERTIFIED = "certified"

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
    """A store of a caller's own, which fails in a way that no store is said to fail."""

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


@pytest.mark.parametrize("program", [AFTER_THE_MAIN_THREAD, AT_EXIT])
def test_it_works_on_when_python_gives_no_threads_any_more(program: str, tmp_path: Path) -> None:
    """Who publishes from a thread that outlives the main one, or closes at exit, waits for ever."""
    command = [sys.executable, "-c", program, str(tmp_path / "s.db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TEST_S_MAX, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")


@on_loop
async def test_whatever_a_store_raises_is_told_and_tried_again() -> None:
    """A publisher would wait for ever for a group that nobody brings any more."""
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
    """What could not be written would be tried for ever, in a store that is another's by then."""
    monkeypatch.setattr(hosting, "_RETRY_S", 0)
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
