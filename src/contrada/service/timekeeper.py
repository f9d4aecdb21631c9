"""`Timekeeper`: passes the time to a dispatcher while patterns wait for it.

Otherwise the last notification of a match would wait until another one is published.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from contrada.service.dispatcher import Dispatcher
from contrada.service.reader_waits import ReaderWaits


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
