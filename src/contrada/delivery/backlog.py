"""`Backlog`: the queue of one reader, by priority, with times to live.

    append --> [ 9: oldest … newest ] --popleft--> the oldest of the highest
               [ 4: oldest … newest ]
               [ 0: oldest … newest ] --pop-->     the newest of the lowest

Invariants: entries leave by priority, then in order of arrival; `expire` leaves no expired entry
behind. It reads no clock. Without times to live and priorities it behaves as a plain deque, so
either may be used.

Source: EPFL 2503 §5.2.2 (prioritary and timely obvents).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from contrada.delivery.delivery_class import BEST_EFFORT
from contrada.model import Envelope
from contrada.model.algebra.notification import PRIORITY_DEFAULT

P = TypeVar("P")


class Transmission(NamedTuple):
    """The priority of an entry, and its expiry, if any."""

    priority: int = PRIORITY_DEFAULT
    expires_us: int | None = None


QueueEntry: TypeAlias = tuple[P, int, Transmission | None]
"""A payload, its size in bytes, and its transmission: None is the default, without an expiry."""

_DEFAULT: Final = Transmission()
_STALE_MAX: Final = 64


def transmission_of(envelope: Envelope) -> Transmission | None:
    """Returns the transmission of a notification; None for the default, and above best effort."""
    priority = envelope.priority
    if (priority == PRIORITY_DEFAULT and envelope.ttl_us is None) or (
        envelope.delivery != BEST_EFFORT
    ):
        return None
    found = Transmission(priority, envelope.expires_us)
    return None if found == _DEFAULT else found


class _PriorityQueue(Generic[P]):
    """The entries of one priority, by number, oldest first, and their bytes."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: OrderedDict[int, QueueEntry[P]] = OrderedDict()
        self.size = 0


class Backlog(Generic[P]):
    """A queue. Cost of each step: the logarithm of the entries with a time to live."""

    def __init__(self, entries: Iterable[QueueEntry[P]] = ()) -> None:
        self._levels: dict[int, _PriorityQueue[P]] = {}  # none of them empty
        self._expiring: list[tuple[int, int, int]] = []  # a heap; may name entries that left
        self._numbered = 0
        self._count = 0
        self.extend(entries)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[QueueEntry[P]]:
        for priority in sorted(self._levels, reverse=True):
            yield from self._levels[priority].entries.values()

    def append(self, entry: QueueEntry[P]) -> None:
        """Adds an entry."""
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
        """Adds several entries in order."""
        for entry in entries:
            self.append(entry)

    def popleft(self) -> QueueEntry[P]:
        """Removes the oldest of the highest priority; IndexError if the backlog is empty."""
        return self._pop(max, iter)

    def pop(self) -> QueueEntry[P]:
        """Removes the newest of the lowest priority; IndexError if the backlog is empty."""
        return self._pop(min, reversed)

    def pop_oldest(self) -> QueueEntry[P]:
        """Removes the oldest of the lowest priority; IndexError if the backlog is empty."""
        return self._pop(min, iter)

    def expire(self, now_us: int) -> list[QueueEntry[P]]:
        """Removes and returns all expired entries."""
        late = []
        while self._expiring and self._expiring[0][0] <= now_us:
            due = heappop(self._expiring)
            if self._is_queued(due):
                late.append(self._remove(*due[1:]))
        return late

    def size_below(self, priority: int) -> int:
        """Returns the bytes of the entries with a lower priority."""
        return sum(level.size for each, level in self._levels.items() if each < priority)

    def _is_queued(self, expiring: tuple[int, int, int]) -> bool:
        _, priority, number = expiring
        return priority in self._levels and number in self._levels[priority].entries

    def _pop(
        self, level_of: Callable[..., int], order: Callable[..., Iterator[int]]
    ) -> QueueEntry[P]:
        if not self._count:
            raise IndexError("nothing waits")
        priority = level_of(self._levels)
        return self._remove(priority, next(order(self._levels[priority].entries)))

    def _remove(self, priority: int, number: int) -> QueueEntry[P]:
        level = self._levels[priority]
        entry = level.entries.pop(number)
        level.size -= entry[1]
        self._count -= 1
        if not level.entries:
            del self._levels[priority]
        return entry
