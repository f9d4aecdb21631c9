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
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from contrada.model import Notification
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


def size_of(notification: Notification) -> int:
    """The bytes for which a notification counts in a queue."""
    held = len(notification.packed) or len(notification.span) + len(notification.body)
    return ENTRY_BYTES + held


class Outlet(Generic[P]):
    """A bounded queue with back-pressure; not for several threads.

    An entry is an item and its size in bytes. What waiting needs is made when somebody waits, so
    that a queue which is empty, as most are, is small.
    """

    __slots__ = (
        "_arrived",
        "_budget",
        "_bytes",
        "_bytes_max",
        "_entries",
        "_notifications_max",
        "_room",
        "_stalled",
        "_turn",
        "_waiting",
        "finished",
    )

    def __init__(
        self,
        *,
        notifications_max: int = QUEUE_NOTIFICATIONS_MAX,
        bytes_max: int = QUEUE_BYTES_MAX,
        budget: Budget | None = None,
    ) -> None:
        """A `budget` bounds several outlets."""
        self._entries: deque[tuple[P, int]] | None = None
        self._bytes = 0
        self._notifications_max = notifications_max
        self._bytes_max = bytes_max
        self._budget = budget
        self._arrived: asyncio.Event | None = None
        self._turn: asyncio.Lock | None = None
        self._waiting = 0
        self._room: asyncio.Future[None] | None = None
        self._stalled = False
        self.finished = False
        """No entry comes in any more."""

    def __len__(self) -> int:
        return len(self._entries) if self._entries else 0

    def offer(self, item: P, size: int) -> bool:
        """Take an entry in if there is room now and nobody is in line before it."""
        if self.finished or self._waiting or not self._fits(size):
            return False
        self._append([(item, size)], size)
        return True

    def offer_all(self, entries: Sequence[tuple[P, int]]) -> int:
        """Take in the first of these entries, as many as `offer` would; how many that were."""
        if self.finished or self._waiting:
            return 0
        size = sum([size for _, size in entries])
        if len(self) + len(entries) <= self._notifications_max and self._has_bytes(size):
            self._append(entries, size)
            return len(entries)
        for count, (item, size) in enumerate(entries):
            if not self.offer(item, size):
                return count
        return len(entries)

    async def put(self, item: P, size: int, wait_s: float) -> bool:
        """Take an entry in, waiting for room at most `wait_s`; False when it was dropped."""
        self._waiting += 1
        if self._turn is None:
            self._turn = asyncio.Lock()
        try:
            async with self._turn:
                if not self._fits(size) and not self._stalled and wait_s > 0:
                    await self._room_for(size, wait_s)
                if self.finished or not self._fits(size):
                    self._stalled = True
                    return False
                self._append([(item, size)], size)
                return True
        finally:
            self._waiting -= 1

    def take(self) -> tuple[P, int]:
        """The oldest entry and its size; IndexError when there is none."""
        if self._entries is None:
            raise IndexError("the queue is empty")
        entry = self._entries.popleft()
        self._taken(entry[1])
        return entry

    def take_batch(self, count_max: int, bytes_max: int) -> tuple[list[P], int]:
        """The oldest entries and their size together, ended by one that reaches a limit."""
        entries = self._entries
        batch: list[P] = []
        size = 0
        while entries and len(batch) < count_max and size < bytes_max:
            item, bytes_ = entries.popleft()
            batch.append(item)
            size += bytes_
        if batch:
            self._taken(size)
        return batch, size

    async def arrival(self) -> None:
        """Wait until there is an entry, or none will come any more."""
        while not self._entries and not self.finished:
            if self._arrived is None:
                self._arrived = asyncio.Event()
            self._arrived.clear()
            await self._arrived.wait()

    def finish(self) -> None:
        """Take nothing in any more; what is held can still be taken."""
        self.finished = True
        if self._arrived is not None:
            self._arrived.set()
        self._release()

    def discard(self) -> int:
        """Finish, and forget what is held; returns how many entries that were."""
        held = len(self)
        self._entries = None
        self._taken(self._bytes)
        self.finish()
        return held

    def _append(self, entries: Sequence[tuple[P, int]], size: int) -> None:
        if self._entries is None:
            self._entries = deque()
        self._entries.extend(entries)
        self._bytes += size
        if self._budget is not None:
            self._budget.change(size)
        if self._arrived is not None:
            self._arrived.set()

    def _fits(self, size: int) -> bool:
        entries = len(self)
        if entries == 0:  # One entry that alone is too large passes through an empty queue.
            return self._budget is None or self._budget.admits(size, self, self._relieve)
        return entries < self._notifications_max and self._has_bytes(size)

    def _has_bytes(self, size: int) -> bool:
        if self._bytes + size > self._bytes_max:
            return False
        return self._budget is None or self._budget.admits(size, self, self._relieve)

    def _taken(self, size: int) -> None:
        self._bytes -= size
        if self._budget is not None:
            self._budget.change(-size)
        if not self._stalled and self._room is None:
            return
        # A waiting publisher wakes for an eighth of the queue, not for each single entry.
        if len(self) * 8 <= self._notifications_max * 7 and self._bytes * 8 <= self._bytes_max * 7:
            self._relieve()

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
