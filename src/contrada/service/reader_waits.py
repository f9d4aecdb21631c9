"""`ReaderWaits`: how long one publisher waits for the readers of full queues.

A leaky bucket of seconds, over all readers and publications: `wait_s` at once, and `WAIT_SHARE` of
the time for long. What a reader takes meanwhile gives no seconds back.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from contrada.service.dispatch_routes import Pending
from contrada.service.dispatcher import Dispatcher, Turn

WAIT_SHARE: Final = 0.25
"""Share of the time that a publisher waits for slow readers for long. Beyond it: a reader that
keeps its queue full is behind, and its oldest notifications are dropped, counted."""


class ReaderWaits:
    """The waits of one publisher. Used on one loop."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._waited_s = self._ended_s = 0.0

    async def wait(self, unfinished: Sequence[Pending[Any] | Turn], wait_s: float) -> int:
        """Delivers what is left; returns the number of lost entries, as `Dispatcher.wait`."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        self._waited_s -= min((began_s - self._ended_s) * WAIT_SHARE, self._waited_s)
        until_s = began_s + max(0.0, wait_s - self._waited_s)
        # While this server itself is too busy to write, its readers are not at fault.
        is_held_up = any(
            isinstance(each, Pending) and each.route.queue.is_held_up for each in unfinished
        )
        try:
            return await self._dispatcher.wait(unfinished, wait_s, until_s)
        finally:
            self._ended_s = clock()
            if is_held_up:
                self._waited_s += self._ended_s - began_s
