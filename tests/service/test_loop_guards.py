"""Works that run together on one event loop, or on threads beside it."""

import asyncio
import threading

import pytest

from contrada.service.loop_guards import first_of, in_daemon
from tests.asynchronous import on_jumping_loop


@on_jumping_loop
async def test_a_work_that_drops_its_cancellation_is_cancelled_again() -> None:
    """A bridge would never end, or never open another connection."""
    drops = [1, 2]

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if not drops:
                    raise
                drops.pop()

    await first_of(asyncio.sleep(0), stubborn())
    assert drops == []


@on_jumping_loop
async def test_work_without_a_free_thread_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would run on the loop: a source that hangs would hold the broker or the program."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await in_daemon(lambda: done.append(1))
    assert done == []
