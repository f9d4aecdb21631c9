"""`Timekeeper`: passes the time to a dispatcher while patterns wait for it.

Otherwise the last notification of a match would wait until another one is published. `ReaderWaits`
bounds how long matches, and publishers, wait for the readers of full queues.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from contrada.service.dispatch_routes import Pending, Turn
from contrada.service.dispatcher import Dispatcher

WAIT_SHARE: Final = 0.25
"""Share of the time that a publisher waits for slow readers for long. Beyond it: a reader that
keeps its queue full is behind, and its oldest notifications are dropped, counted."""


class ReaderWaits:
    """The waits of one publisher. Used on one loop.

    A leaky bucket of seconds, over all readers and publications: `wait_s` at once, and `WAIT_SHARE`
    of the time for long. What a reader takes meanwhile gives no seconds back.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._waited_s = self._ended_s = 0.0

    async def wait(self, unfinished: Sequence[Pending[Any] | Turn], wait_s: float) -> int:
        """Delivers what is left; returns the number of lost entries."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        self._waited_s -= min((began_s - self._ended_s) * WAIT_SHARE, self._waited_s)
        until_s = began_s + max(0.0, wait_s - self._waited_s)
        lost, is_held_up = await self._dispatcher.wait(unfinished, wait_s, until_s)
        self._ended_s = clock()
        if is_held_up:  # Readers are not at fault while this server is too busy to write.
            self._waited_s += self._ended_s - began_s
        return lost


class Timekeeper:
    """The clock of one dispatcher; it runs only while patterns wait."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        now_us: Callable[[], int],
        wait_s: float,
        waits: ReaderWaits | None = None,
    ) -> None:
        """`now_us` is monotonic; `wait_s` bounds the wait of a match for a full queue.

        `waits` bounds those of all matches together.
        """
        self._dispatcher = dispatcher
        self._now_us, self._wait_s = now_us, wait_s
        self._waits = waits or dispatcher
        self._task: asyncio.Task[None] | None = None
        self._until_us = 0
        self._is_due_before = asyncio.Event()

    def wake(self, due_us: int) -> None:
        """Has this time passed to the dispatcher, as soon as it is over."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._tell_time())
        elif due_us < self._until_us:
            self._is_due_before.set()

    def cancel(self) -> None:
        """Stops."""
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Returns once its task has ended."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _tell_time(self) -> None:
        dispatcher = self._dispatcher
        try:
            while (due_us := dispatcher.due_us) is not None:
                self._until_us = due_us
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0, due_us + 1 - self._now_us()) / 1e6):
                        await self._is_due_before.wait()
                self._is_due_before.clear()
                pending = dispatcher.pass_time(self._now_us())
                if pending:
                    await self._waits.wait(pending, self._wait_s)
        finally:
            self._task = None
