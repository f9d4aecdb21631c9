"""`SubscriptionQueue`: the bounded queue between publishers and the reader of one subscription.

    publishers --offer_all/put--> [ oldest … newest ] --take--> reader

Entries of default priority without a time to live, by far the most, are held in a plain deque. With
the first other entry the deque becomes a `Backlog`, until the queue is empty.

Invariants:
- at most `notifications_max` entries and `bytes_max` bytes are held. A single larger entry passes
  through an empty queue, but no entry beyond the `budget`;
- entries leave by priority, then in the order of arrival. A publisher that arrives while others
  wait gets in line behind them;
- no entry leaves after its time to live, and expired entries take no room from new ones. An expired
  entry is dropped when the queue is read or needs room;
- a publisher waits a bounded time for room. When nothing was read in that time, the queue is
  *stalled*: no publisher waits until there is ample room. Then the newest entry of the lowest
  priority is dropped, queued or new, never for one of equal priority. So a dead reader delays
  publishers once. In one process a slow reader that keeps reading loses nothing;
- at a broker a publisher has a deadline, too (`ReaderWaits`). The queue of a reader that is held up
  then is stalled whatever it takes, and drops its oldest entries until there is ample room;
- with another `when_full`, no publisher waits: the oldest or newest entry is dropped at once, or
  the reader is cut off.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from contrada.delivery.backlog import Backlog, QueueEntry, transmission_of
from contrada.matching.packed import Bundle
from contrada.model import Notification
from contrada.model.algebra.notification import PRIORITY_DEFAULT
from contrada.routing.router_messages import Notifications
from contrada.service.clock import wall_clock_us
from contrada.service.service_limits import ServiceLimits
from contrada.service.subjects import WhenFull

P = TypeVar("P")

BLOCK: Final = "block"
DROP_OLDEST: Final = "drop-oldest"
DISCONNECT: Final = "disconnect"

ENTRY_BYTES: Final = 512
"""Bytes that an entry costs beside its own, so that many tiny ones are bounded, too."""

PUBLISH_WAIT_S: Final = 5.0
"""How long a publisher waits for a full queue by default, at a broker for all of them together.
Beyond it: the newest of the lowest priority is dropped, at a broker the oldest; counted."""

PUBLISH_WAIT_S_MAX: Final = 60.0
"""The longest such wait. Beyond it: ServiceError; a broker shortens it."""

QUEUE_FULL: Final = "queue full"
"""Reason of a drop: the subscriber stopped reading."""

_LOOK_AGAIN_S: Final = 0.1
"""Seconds until a full queue whose reader was not held up at a deadline is looked at again."""

EXPIRED: Final = "expired"
"""Reason of a drop: the time to live was over before the subscriber read it."""


def size_of(notification: Notification) -> int:
    """The bytes of a notification in a queue."""
    held = len(notification.packed) or len(notification.span) + len(notification.body)
    return ENTRY_BYTES + held


def entry_of(notification: Notification) -> QueueEntry[Notification]:
    """A notification as an entry of a queue."""
    envelope = notification.envelope
    if envelope.ttl_us is None and envelope.priority == PRIORITY_DEFAULT:
        held = len(notification.packed) or len(notification.span) + len(notification.body)
        return notification, ENTRY_BYTES + held, None
    return notification, size_of(notification), transmission_of(envelope)


def size_of_all(notifications: Notifications) -> int:
    """The bytes of several notifications in a queue."""
    if type(notifications) is Bundle:
        return ENTRY_BYTES * len(notifications) + notifications.encoded_bytes
    return sum(map(size_of, notifications))


Passed: TypeAlias = Notification | bytes
"""An entry of a broker's queue: a notification, or the encoding of one that was never decoded."""


def entries_of(notifications: Notifications) -> Sequence[QueueEntry[Passed]]:
    """Notifications as entries of a queue; those of a bundle are encodings."""
    if type(notifications) is Bundle:
        return [(each, ENTRY_BYTES + len(each), None) for each in notifications.encodings]
    if len(notifications) == 1:
        return [entry_of(notifications[0])]
    return [*map(entry_of, notifications)]


class Budget:
    """A bound of the bytes in all queues of one owner; not for several threads.

    A queue without room here waits as for room of its own. When there is ample room again, all
    waiting queues are woken. Invariant: `held_bytes` is the sum over the queues.
    """

    def __init__(self, bytes_max: int, on_change: Callable[[int], None] | None = None) -> None:
        """`on_change` is called with each change of the held bytes."""
        self.held_bytes = 0
        self._bytes_max, self._on_change = bytes_max, on_change
        self._hindered: dict[Hashable, Callable[[], None]] = {}

    def admits(self, size: int, queue: Hashable, relieve: Callable[[], None]) -> bool:
        """Whether there is room now; if not, `relieve` is called once there is ample room."""
        if self.held_bytes + size <= self._bytes_max:
            return True
        self._hindered[queue] = relieve
        return False

    def change(self, size: int) -> None:
        """Adds bytes to the sum, or subtracts them if negative."""
        self.held_bytes += size
        if self._on_change is not None:
            self._on_change(size)
        # As in a queue: publishers wake for an eighth of the room, not for each single entry.
        if size < 0 and self._hindered and self.held_bytes * 8 <= self._bytes_max * 7:
            hindered, self._hindered = self._hindered, {}
            for relieve in hindered.values():
                relieve()


class Keeper(Protocol):
    """The owner of a queue, which counts its drops."""

    def note_lost(self, reason: str, entries: Sequence[QueueEntry[Any]]) -> None:
        """Counts entries that the queue dropped."""


class _Bounds(NamedTuple):
    """The bounds of a queue, and the clock by which entries expire."""

    notifications: int
    bytes_: int
    clock: Callable[[], int]


_LIMITS: Final = ServiceLimits()

_USUAL: Final = _Bounds(_LIMITS.queue_notifications_max, _LIMITS.queue_bytes_max, wall_clock_us)
"""Shared by nearly all queues."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """`QueueOptions` as they were given; None: the default."""

    when_full: WhenFull = BLOCK
    queue_max: int | None = None
    queue_bytes: int | None = None


USUAL_QUEUE: Final = QueueSettings()


class _PublisherLine:
    """The publishers that wait for room, in line, the first at most until `until_s`.

    `stalled`: a wait was in vain.
    """

    __slots__ = ("room", "stalled", "timer", "turn", "until_s", "waiting")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting = 0
        self.room: asyncio.Future[None] | None = None
        self.stalled = False
        self.until_s = inf
        self.timer: asyncio.TimerHandle | None = None


class SubscriptionQueue(Generic[P]):
    """A bounded queue with back-pressure; not for several threads.

    Objects for waiting are created at the first wait: most queues are empty, and stay small.
    """

    __slots__ = (
        "_arrived",
        "_bounds",
        "_budget",
        "_entries",
        "_line",
        "finished",
        "held_bytes",
        "keeper",
        "when_full",
    )

    def __init__(
        self,
        *,
        notifications_max: int = _LIMITS.queue_notifications_max,
        bytes_max: int = _LIMITS.queue_bytes_max,
        budget: Budget | None = None,
        clock: Callable[[], int] = wall_clock_us,
        when_full: WhenFull = BLOCK,
    ) -> None:
        """A `budget` bounds several queues; `clock` is read for entries with a time to live."""
        self.when_full: WhenFull = when_full
        self._entries: deque[QueueEntry[P]] | Backlog[P] | None = None
        self.held_bytes = 0
        """The bytes of all entries."""
        bounds = notifications_max, bytes_max, clock
        self._bounds = _USUAL if bounds == _USUAL else _Bounds(*bounds)
        self._budget = budget
        self._arrived: asyncio.Event | None = None
        self._line: _PublisherLine | None = None
        self.finished = False
        """Whether it accepts no more entries."""
        self.keeper: Keeper | None = None
        """Counts each entry that was dropped, for want of room or time."""

    def __len__(self) -> int:
        return len(self._entries) if self._entries else 0

    def offer_all(self, entries: Sequence[QueueEntry[P]]) -> int:
        """Adds the first of these entries, as many as have room; returns their count.

        None has while publishers wait in line before them. Unless publishers wait for room
        (`when_full`), that is the count of all entries: those without room displace others or are
        dropped here.
        """
        line = self._line
        if self.finished or (line and line.waiting):
            return 0
        held = self._entries
        if len(entries) == 1:  # As of most that is published singly, at a fourth of the cost.
            ((_, size, transmission),) = entries
            is_plain = transmission is None
        else:
            _, sizes, transmissions = zip(*entries, strict=True) if entries else ((), (), ())
            size, is_plain = sum(sizes), not any(transmissions)
        bounds, budget = self._bounds, self._budget
        if (
            (len(held) if held else 0) + len(entries) <= bounds.notifications
            and self.held_bytes + size <= bounds.bytes_
            and (budget is None or budget.admits(size, self, self._relieve))
        ):
            self._append(entries, size, is_plain)
            return len(entries)
        for count, entry in enumerate(entries):
            if self._fits(entry[1]):
                self._append([entry], entry[1], is_plain=entry[2] is None)
                continue
            if self.when_full == BLOCK:
                return count
            self._overflow(entries[count:])
            break
        return len(entries)

    def take_whole(self, notifications: Notifications) -> bool:
        """Takes notifications as they are, without entries, if this queue can; else False."""
        return False

    @property
    def is_held_up(self) -> bool:
        """Whether its reader keeps it full, not the server that empties it."""
        return True

    async def put(self, entry: QueueEntry[P], wait_s: float, until_s: float = inf) -> bool:
        """Adds an entry, waiting for room at most `wait_s`; returns whether it was added.

        At `until_s` of the loop's clock the queue falls behind, if its reader is held up. An entry
        that expires meanwhile is dropped as expired.
        """
        line = self._line = self._line or _PublisherLine()
        line.waiting += 1
        if until_s < line.until_s:
            self._end_waits_at(until_s, line)
        size = entry[1]
        try:
            async with line.turn:
                left_s = self._left_s(entry)
                if not self._fits(size) and not line.stalled and wait_s > 0 < left_s:
                    await self._room_for(size, min(wait_s, left_s), line)
                    # The loop's clock may be a little ahead of the one that is compared with.
                    left_s = self._left_s(entry) if left_s > wait_s or self._fits(size) else 0
                if left_s <= 0 and not self.finished:
                    self._count_lost(EXPIRED, [entry])
                    return True
                if self.finished or not (self._fits(size) or self._displace(entry)):
                    self.fall_behind()
                    return False
                self._append([entry], size, is_plain=entry[2] is None)
                return True
        finally:
            line.waiting -= 1
            if not line.waiting and line.timer is not None:
                line.timer.cancel()
                line.timer, line.until_s = None, inf

    def take(self) -> tuple[P, int] | None:
        """Removes the first entry; returns it and its size, or None."""
        entries = self._entries
        if not entries:
            return None
        if type(entries) is Backlog:
            self._expire()
            if not entries:
                return None
        item, size, _ = entries.popleft()
        if self._budget is None and self._line is None:  # As mostly, without a call.
            self.held_bytes -= size
        else:
            self._taken(size)
        return item, size

    def take_batch(self, count_max: int, bytes_max: int) -> tuple[list[P], int]:
        """Removes and returns the first entries, up to one that reaches a limit, and their size."""
        if type(self._entries) is Backlog:
            self._expire()
        entries = self._entries
        batch: list[P] = []
        size = 0
        if type(entries) is deque and len(entries) == 1 and bytes_max > 0 < count_max:
            ((item, size, _),) = entries
            batch.append(item)
            entries.clear()
        elif type(entries) is deque and len(entries) <= count_max and self.held_bytes <= bytes_max:
            batch, size = [item for item, _, _ in entries], self.held_bytes
            entries.clear()
        while entries and len(batch) < count_max and size < bytes_max:
            item, bytes_, _ = entries.popleft()
            batch.append(item)
            size += bytes_
        if batch:
            self._taken(size)
        return batch, size

    async def arrival(self) -> None:
        """Waits until there is an entry, or none will be added."""
        while not self._entries and not self.finished:
            if self._arrived is None:
                self._arrived = asyncio.Event()
            self._arrived.clear()
            await self._arrived.wait()

    def finish(self) -> None:
        """Accepts no more entries; those in the queue can still be read."""
        self.finished = True
        if self._arrived is not None:
            self._arrived.set()
        self._release()

    def discard(self) -> Sequence[QueueEntry[P]]:
        """Finishes and empties the queue; returns its entries."""
        held = [*self._entries] if self._entries else []
        self._entries = None
        self._taken(self.held_bytes)
        self.finish()
        return held

    def _append(self, entries: Sequence[QueueEntry[P]], size: int, is_plain: bool) -> None:
        held = self._entries
        if not is_plain:
            held = self._ranked(held or ())
        elif held is None or not (held or type(held) is deque):
            held = self._entries = deque()
        held.extend(entries)
        self.held_bytes += size
        if self._budget is not None:
            self._budget.change(size)
        if not is_plain:
            self._expire()
        if self._arrived is not None:
            self._arrived.set()

    def _fits(self, size: int) -> bool:
        return self._has_room(size) or (self._expire() and self._has_room(size))

    def _has_room(self, size: int) -> bool:
        entries = len(self)
        if entries == 0:  # One entry that alone is too large passes through an empty queue.
            return self._budget is None or self._budget.admits(size, self, self._relieve)
        return entries < self._bounds.notifications and self._has_bytes(size)

    def _has_bytes(self, size: int) -> bool:
        if self.held_bytes + size > self._bounds.bytes_:
            return False
        return self._budget is None or self._budget.admits(size, self, self._relieve)

    def _taken(self, size: int) -> None:
        self.held_bytes -= size
        if self._budget is not None:
            self._budget.change(-size)
        if self._line is not None:
            self._relieve_if_ample()

    def _relieve_if_ample(self) -> None:
        # A waiting publisher wakes for an eighth of the queue, not for each single entry.
        most = self._bounds
        if len(self) * 8 <= most.notifications * 7 and self.held_bytes * 8 <= most.bytes_ * 7:
            self._relieve()

    # --- dropped entries ----------------------------------------------------------------------

    def _expire(self) -> bool:
        """Drops expired entries; returns whether there were any."""
        if type(self._entries) is not Backlog:
            return False
        late = self._entries.expire(self._bounds.clock())
        self._drop(EXPIRED, late)
        if late and self._line is not None:
            self._relieve_if_ample()
        return bool(late)

    def _overflow(self, entries: Sequence[QueueEntry[P]]) -> None:
        """Decides which entries are dropped when not all have room and no publisher waits."""
        if self.when_full == DISCONNECT:
            self._count_lost(QUEUE_FULL, entries)
            self.cut_off()
            return
        if self._displace_oldest(entries):
            return
        for entry in entries:
            if self._fits(entry[1]) or self._displace(entry):
                self._append([entry], entry[1], is_plain=entry[2] is None)
            else:
                self._count_lost(QUEUE_FULL, [entry])

    def _displace_oldest(self, entries: Sequence[QueueEntry[P]]) -> bool:
        """Adds plain entries in place of the oldest, at once; returns whether it did.

        One by one this costs ten times as much, with each publication for a reader that is behind.
        """
        held, size = self._entries, sum([size for _, size, _ in entries])
        room = self._bounds.notifications - len(entries)
        if (
            self.when_full != DROP_OLDEST
            or type(held) is not deque
            or room < 0
            or any(transmission for _, _, transmission in entries)
            or not self._has_bytes(size - self.held_bytes)
        ):
            return False
        dropped: list[QueueEntry[P]] = []
        freed = 0
        while len(held) > room or not self._has_bytes(size - freed):
            dropped.append(held.popleft())
            freed += dropped[-1][1]
        self._drop(QUEUE_FULL, dropped)
        self._append(entries, size, is_plain=True)
        return True

    def cut_off(self) -> None:
        """Cuts off a reader that is too slow. The entries can still be read."""
        self.finish()

    def _displace(self, entry: QueueEntry[P]) -> bool:
        """Drops the newest of the lowest priorities if that makes room for a higher one.

        With `drop-oldest` also for an equal one.
        """
        _, size, transmission = entry
        priority = PRIORITY_DEFAULT if transmission is None else transmission.priority
        is_oldest = self.when_full == DROP_OLDEST
        above = priority + is_oldest
        held = self._entries
        if not held or (above <= PRIORITY_DEFAULT and not isinstance(held, Backlog)):
            return False
        if is_oldest and priority == PRIORITY_DEFAULT and isinstance(held, deque):  # All are alike.
            below, pop = self.held_bytes, held.popleft
        else:
            backlog = self._ranked(held)
            below, pop = backlog.size_below(above), backlog.pop_oldest if is_oldest else backlog.pop
        if not below or not self._has_bytes(size - below):
            return False
        while not self._has_room(size):
            self._drop(QUEUE_FULL, [pop()])
        return True

    def _drop(self, reason: str, entries: Sequence[QueueEntry[P]]) -> None:
        if entries:
            self._count_lost(reason, entries)
            # Not by `_taken`: a queue that only its budget fills would no longer be behind, though
            # the room is for the next entry.
            size = sum([size for _, size, _ in entries])
            self.held_bytes -= size
            if self._budget is not None:
                self._budget.change(-size)

    def _count_lost(self, reason: str, entries: Sequence[QueueEntry[P]]) -> None:
        if self.keeper is not None:
            self.keeper.note_lost(reason, entries)

    def _left_s(self, entry: QueueEntry[P]) -> float:
        transmission = entry[2]
        if transmission is None or transmission.expires_us is None:
            return inf
        return (transmission.expires_us - self._bounds.clock()) / 1e6

    # --- waiting for room ---------------------------------------------------------------------

    async def _room_for(self, size: int, wait_s: float, line: _PublisherLine) -> None:
        """Waits until an entry of this size may fit; the caller checks whether it does."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(wait_s):
                # Others that share the budget may take the room first.
                while not (self.finished or line.stalled or self._fits(size)):
                    line.room = loop.create_future()
                    await line.room
        except TimeoutError:
            return
        finally:
            line.room = None

    def _end_waits_at(self, until_s: float, line: _PublisherLine) -> None:
        if line.timer is not None:
            line.timer.cancel()
        line.until_s = until_s
        line.timer = asyncio.get_running_loop().call_at(until_s, self._end_waits)

    def _end_waits(self) -> None:
        line = self._line
        assert line is not None
        if self.is_held_up:
            self.fall_behind()
            self._release()
        else:
            self._end_waits_at(asyncio.get_running_loop().time() + _LOOK_AGAIN_S, line)

    def fall_behind(self) -> None:
        """Has no publisher wait until there is ample room."""
        if self._line is not None:
            self._line.stalled = True

    def _ranked(self, held: Iterable[QueueEntry[P]] | Backlog[P]) -> Backlog[P]:
        """The entries, ordered by priority from now on."""
        if not isinstance(held, Backlog):
            held = self._entries = Backlog(held)
        return held

    def _relieve(self) -> None:
        """Wakes the publishers that wait for room, since there is ample."""
        if self._line is not None:
            self._line.stalled = False
        self._release()

    def _release(self) -> None:
        line = self._line
        if line is not None and line.room is not None and not line.room.done():
            line.room.set_result(None)
