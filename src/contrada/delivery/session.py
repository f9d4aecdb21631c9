"""`Outgoing` and `Incoming`: what one end of a session sends, and what the other takes.

A session outlives its connections. What is sent is numbered, and kept until the other end says that
it has taken it. When a connection breaks, nothing is lost: over the next one each end says up to
which number it has taken, and what lies behind is sent again.

    Outgoing                                          Incoming
    send       -- from 1: a b c ------------------>   take: a b c
               <------------------- taken: 3 ------
    send       -- from 4: d e --x  the connection breaks
               -- from 5: e --x
    resume     <------------------- taken: 3 ------
               -- from 4: d e --------------------->  take: d e

A session that cannot be resumed, since the other end lost it or gave it up, has a successor: what
was not taken is sent anew in that one (`rest`). Some of it may have been taken; whoever must not do
a thing twice tells it by the identity of the notification.

Invariant: what was handed to `send` is taken once, in order, or it is in `rest`.

Source: EPFL 2503 §5.2.2 (reliable obvents).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from contrada.errors import ProtocolError

HELD_MAX: Final = 100_000
"""Items that a session keeps until they are taken. Beyond it: `has_room` is no, and whoever sends
is to wait, or to give the session up."""

HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of these items. Beyond it: the same."""

T = TypeVar("T")


class Numbered(NamedTuple, Generic[T]):
    """Items in order, and the number of the first."""

    first: int
    items: Sequence[T]


class _Batch(NamedTuple, Generic[T]):
    """What was sent together: the number of its first item, the items, and their bytes."""

    first: int
    items: Sequence[T]
    size: int


class Outgoing(Generic[T]):
    """What one end sends. Numbers begin at 1."""

    def __init__(self) -> None:
        self.next = 1
        self.taken = 0
        self.held_bytes = 0
        self.resent = 0
        self._batches: deque[_Batch[T]] = deque()

    @property
    def held(self) -> int:
        """Items that were sent and not taken, as far as known."""
        return self.next - 1 - self.taken

    def has_room(self) -> bool:
        """Whether more may be sent. One batch may go beyond the limits."""
        return self.held < HELD_MAX and self.held_bytes < HELD_BYTES_MAX

    def send(self, items: Sequence[T], size: int) -> Numbered[T]:
        """Numbers items, which have so many bytes, and keeps them; to be sent in this order."""
        first = self.next
        self._batches.append(_Batch(first, items, size))
        self.next += len(items)
        self.held_bytes += size
        return Numbered(first, items)

    def acknowledge(self, taken: int) -> None:
        """The other end has taken all up to this number. Raises ProtocolError: it cannot have.

        Cost: the batches that are done with. The bytes of a batch are free when all of it is taken.
        """
        self._check(taken)
        self.taken = max(self.taken, taken)
        while self._batches and self._batches[0].first + len(self._batches[0].items) <= taken + 1:
            self.held_bytes -= self._batches.popleft().size

    def resume(self, taken: int) -> Iterator[Numbered[T]]:
        """What is to be sent again over a new connection, since the other end has taken up to this.

        Raises ProtocolError where it says less than before: it has lost the session, which needs a
        successor.
        """
        if taken < self.taken:
            raise ProtocolError(f"the session had {self.taken} items taken, and now {taken}")
        self.acknowledge(taken)
        self.resent += self.held
        for batch in self._batches:
            done = max(0, taken + 1 - batch.first)
            yield Numbered(batch.first + done, batch.items[done:])

    def rest(self) -> Iterator[T]:
        """What was not taken, in order: for a successor, or for another way."""
        for batch in self._batches:
            yield from batch.items[max(0, self.taken + 1 - batch.first) :]

    def _check(self, taken: int) -> None:
        if not 0 <= taken < self.next:
            raise ProtocolError(f"{taken} items were taken of {self.next - 1} that were sent")


class Incoming(Generic[T]):
    """What the other end takes: each item once, in order."""

    def __init__(self, taken: int = 0) -> None:
        """`taken` is what a session had taken before it was put away."""
        self.taken = taken
        self.repeated = 0

    def take(self, numbered: Numbered[T]) -> Sequence[T]:
        """The items that are new. Raises ProtocolError where some before them are missing."""
        first, items = numbered
        due = self.taken + 1
        if first > due:
            raise ProtocolError(f"item {first} came where {due} was due")
        known = due - first
        if known == 0:  # by far the most
            self.taken += len(items)
            return items
        self.repeated += min(known, len(items))
        new = items[known:]
        self.taken += len(new)
        return new
