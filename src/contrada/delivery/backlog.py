"""`Backlog`: the entries that wait for one reader, by priority, until their time is over.

    append --> [ 9: oldest … newest ] --popleft--> the oldest of the highest
               [ 4: oldest … newest ]
               [ 0: oldest … newest ] --pop-->     the newest of the lowest

Invariants: entries leave by priority, among equals in the order in which they came; `expire` leaves
no entry behind whose time is over. It reads no clock. Where no entry has a time to live or a
priority of its own, a plain deque behaves the same: code that takes entries from a backlog may take
them from a deque.

Source: EPFL 2503 §5.2.2 (prioritary and timely obvents).
"""

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from contrada.delivery.delivery_class import BEST_EFFORT
from contrada.model import Envelope
from contrada.model.algebra.notification import PRIORITY_DEFAULT

P = TypeVar("P")


class Transmission(NamedTuple):
    """How something waits: its priority, and the time from which it is too late, if any."""

    priority: int = PRIORITY_DEFAULT
    expires_us: int | None = None


QueueEntry: TypeAlias = tuple[P, int, Transmission | None]
"""What waits, its size in bytes, and how it waits: None is the default, without an end."""

_DEFAULT: Final = Transmission()
_STALE_MAX: Final = 64


def transmission_of(envelope: Envelope) -> Transmission | None:
    """How a notification waits. What is reliable has no priority of its own, and never expires."""
    priority = envelope.priority
    if (priority == PRIORITY_DEFAULT and envelope.ttl_us is None) or (
        envelope.delivery != BEST_EFFORT
    ):
        return None
    found = Transmission(priority, envelope.expires_us)
    return None if found == _DEFAULT else found


class _PriorityQueue(Generic[P]):
    """What waits with one priority, by number, oldest first, and its bytes together."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: OrderedDict[int, QueueEntry[P]] = OrderedDict()
        self.size = 0


class Backlog(Generic[P]):
    """Entries that wait. Cost of each step: the logarithm of how many have a time to live."""

    def __init__(self, entries: Iterable[QueueEntry[P]] = ()) -> None:
        self._levels: dict[int, _PriorityQueue[P]] = {}  # none of them empty
        self._expiring: list[tuple[int, int, int]] = []  # a heap; may name entries that left
        self._numbered = 0
        self._count = 0
        self.extend(entries)

    def __len__(self) -> int:
        return self._count

    def append(self, entry: QueueEntry[P]) -> None:
        """One more waits."""
        priority, expires_us = entry[2] or _DEFAULT
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _PriorityQueue()
        self._numbered += 1
        level.entries[self._numbered] = entry
        level.size += entry[1]
        self._count += 1
        if expires_us is not None:
            heappush(self._expiring, (expires_us, priority, self._numbered))
            if len(self._expiring) > 2 * self._count + _STALE_MAX:
                self._expiring = [each for each in self._expiring if self._is_queued(each)]
                heapify(self._expiring)

    def extend(self, entries: Iterable[QueueEntry[P]]) -> None:
        """Several more wait, in this order."""
        for entry in entries:
            self.append(entry)

    def popleft(self) -> QueueEntry[P]:
        """Takes the oldest of the highest priority; IndexError where nothing waits."""
        if not self._count:
            raise IndexError("nothing waits")
        priority = max(self._levels)
        return self._remove(priority, next(iter(self._levels[priority].entries)))

    def pop(self) -> QueueEntry[P]:
        """Takes the newest of the lowest priority; IndexError where nothing waits."""
        if not self._count:
            raise IndexError("nothing waits")
        priority = min(self._levels)
        return self._remove(priority, next(reversed(self._levels[priority].entries)))

    def pop_oldest(self) -> QueueEntry[P]:
        """Takes the oldest of the lowest priority; IndexError where nothing waits."""
        if not self._count:
            raise IndexError("nothing waits")
        priority = min(self._levels)
        return self._remove(priority, next(iter(self._levels[priority].entries)))

    def expire(self, now_us: int) -> list[QueueEntry[P]]:
        """Takes what it is too late for now: all whose end has come."""
        late = []
        while self._expiring and self._expiring[0][0] <= now_us:
            due = heappop(self._expiring)
            if self._is_queued(due):
                late.append(self._remove(*due[1:]))
        return late

    def size_below(self, priority: int) -> int:
        """The bytes of what waits with a lower priority."""
        return sum(level.size for each, level in self._levels.items() if each < priority)

    def _is_queued(self, expiring: tuple[int, int, int]) -> bool:
        _, priority, number = expiring
        return priority in self._levels and number in self._levels[priority].entries

    def _remove(self, priority: int, number: int) -> QueueEntry[P]:
        level = self._levels[priority]
        entry = level.entries.pop(number)
        level.size -= entry[1]
        self._count -= 1
        if not level.entries:
            del self._levels[priority]
        return entry
