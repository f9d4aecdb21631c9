"""The bounded queue between publishers and the reader of one subscription.

    publishers --offer/put--> [ oldest … newest ] --take--> reader

Invariants:
- at most `notifications_max` entries and `bytes_max` bytes are held; one entry that alone is
  larger than that passes through an empty queue; what a `budget` has no room for never does;
- entries leave in the order in which they came, also those of publishers that had to wait:
  who comes while others wait gets in line behind them;
- a publisher waits a bounded time for room. When the reader took nothing in that time, the
  queue is *stalled*: the newest is dropped, and nobody waits again until there is room. So a
  slow reader that keeps reading loses nothing, and a dead one delays publishers once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from contrada.runtime.budget import Budget

P = TypeVar("P")

QUEUE_NOTIFICATIONS_MAX: Final = 10_000
"""Entries of an outlet: what waits for one subscription at one place. Beyond it: the publisher
waits, then the newest is dropped, counted."""

QUEUE_BYTES_MAX: Final = 64 * 2**20
"""Bytes of an outlet. Beyond it: the publisher waits, then the newest is dropped, counted."""

ENTRY_BYTES: Final = 512
"""What an entry costs beside its own bytes, so that many tiny ones are bounded too."""

PUBLISH_WAIT_S: Final = 5.0
"""How long a publisher waits for a reader that takes nothing, unless it asks otherwise. Beyond it:
the newest is dropped, counted."""

PUBLISH_WAIT_S_MAX: Final = 60.0
"""The longest such wait that a publisher can ask for. Beyond it: ServiceError; a broker cuts
it."""


class Outlet(Generic[P]):
    """A bounded queue with back-pressure; not for several threads."""

    def __init__(
        self,
        on_ready: Callable[[], None] | None = None,
        *,
        notifications_max: int = QUEUE_NOTIFICATIONS_MAX,
        bytes_max: int = QUEUE_BYTES_MAX,
        budget: Budget | None = None,
    ) -> None:
        """`on_ready` is called after each entry that came in; a `budget` bounds several outlets."""
        self._entries: deque[tuple[P, int]] = deque()
        self._bytes = 0
        self._notifications_max = notifications_max
        self._bytes_max = bytes_max
        self._budget = budget
        self._on_ready = on_ready
        self._arrived = asyncio.Event()
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._room: asyncio.Future[None] | None = None
        self._stalled = False
        self.finished = False
        """No entry comes in any more."""

    def __len__(self) -> int:
        return len(self._entries)

    def offer(self, item: P, size: int) -> bool:
        """Take an entry in if there is room now and nobody is in line before it."""
        if self.finished or self._waiting or not self._fits(size):
            return False
        self._append(item, size)
        return True

    async def put(self, item: P, size: int, wait_s: float) -> bool:
        """Take an entry in, waiting for room at most `wait_s`; False when it was dropped."""
        self._waiting += 1
        try:
            async with self._turn:
                if not self._fits(size) and not self._stalled and wait_s > 0:
                    await self._room_for(size, wait_s)
                if self.finished or not self._fits(size):
                    self._stalled = True
                    return False
                self._append(item, size)
                return True
        finally:
            self._waiting -= 1

    def take(self) -> tuple[P, int]:
        """The oldest entry and its size; IndexError when there is none."""
        entry = self._entries.popleft()
        self._change(-entry[1])
        if self._has_ample_room():
            self._relieve()
        return entry

    async def arrival(self) -> None:
        """Wait until there is an entry, or none will come any more."""
        while not self._entries and not self.finished:
            self._arrived.clear()
            await self._arrived.wait()

    def finish(self) -> None:
        """Take nothing in any more; what is held can still be taken."""
        self.finished = True
        self._arrived.set()
        self._release()

    def discard(self) -> int:
        """Finish, and forget what is held; returns how many entries that were."""
        held = len(self._entries)
        self._entries.clear()
        self._change(-self._bytes)
        self.finish()
        return held

    def _append(self, item: P, size: int) -> None:
        self._entries.append((item, size))
        self._change(size)
        self._arrived.set()
        if self._on_ready is not None:
            self._on_ready()

    def _change(self, size: int) -> None:
        self._bytes += size
        if self._budget is not None:
            self._budget.change(size)

    def _fits(self, size: int) -> bool:
        if self._budget is not None and not self._budget.admits(size, self, self._relieve):
            return False
        entries = len(self._entries)
        return not entries or (
            entries < self._notifications_max and self._bytes + size <= self._bytes_max
        )

    def _has_ample_room(self) -> bool:
        # A waiting publisher wakes for an eighth of the queue, not for each single entry.
        return (
            len(self._entries) * 8 <= self._notifications_max * 7
            and self._bytes * 8 <= self._bytes_max * 7
        )

    async def _room_for(self, size: int, wait_s: float) -> None:
        """Wait until an entry of this size fits; the caller looks whether it does."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(wait_s):
                # Others that share the budget may take the room first.
                while not self.finished and not self._fits(size):
                    self._room = loop.create_future()
                    await self._room
        except TimeoutError:
            return
        finally:
            self._room = None

    def _relieve(self) -> None:
        """There is ample room again: whoever waits for it goes on."""
        self._stalled = False
        self._release()

    def _release(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
