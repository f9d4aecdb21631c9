"""`Outgoing` and `Incoming`: a stream of items from one server to another.

Each item is taken once, in order. A stream outlives connections, routes, and crashes after which
its ends come back with their disks. Items are numbered, and kept until the other end acknowledges
them. An item that is not acknowledged in time was lost on its way: it is sent again, maybe by
another route.

    Outgoing                                          Incoming
    send       -- a1 b2 c3 ----------------------->   take: a b c
               <------------------- taken: 3 ------
    send       -- d4 e5 --x  lost
    send       -- f6 ---------------------------->    nothing: 4 is missing
               <------------------- taken: 3 ------
    again      -- d4 e5 f6 ---------------------->    take: d e f

Each run of items says what number the item before it has. A crash takes items that need not
survive. After it numbers go on above all that were given out, so that a new item is never taken for
an old one.

Invariant: an item handed to `send` is taken once, in order, or it is still held.

Source: EPFL 2503 §5.2.2 (reliable obvents).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.errors import ProtocolError

T = TypeVar("T")


class NumberedRun(NamedTuple, Generic[T]):
    """Items in order, the number of the first, and of the item that was sent before it."""

    before: int
    first: int
    items: Sequence[T]


class _SentTogether(NamedTuple, Generic[T]):
    """What was sent together, and its bytes."""

    run: NumberedRun[T]
    size: int


class Outgoing(Generic[T]):
    """What one end sends. Numbers begin at 1, or at `first` after a crash.

    Up to `taken` nothing will be taken any more.
    """

    def __init__(
        self, first: int = 1, taken: int = 0, limits: DeliveryLimits = DeliveryLimits()
    ) -> None:
        self._limits = limits
        self.next = first
        self.last = 0  # what was sent before a crash is not waited for
        self.taken = taken
        self.held = 0
        self.held_bytes = 0
        self.resent = 0
        self._runs: deque[_SentTogether[T]] = deque()

    def has_room(self) -> bool:
        """Whether more may be sent. One run may go beyond the limits."""
        return self.held < self._limits.held_max and self.held_bytes < self._limits.held_bytes_max

    def send(self, items: Sequence[T], size: int) -> NumberedRun[T]:
        """Numbers items, which have so many bytes, and keeps them; to be sent in this order."""
        run = NumberedRun(self.last, self.next, items)
        if items:  # Else the next item would be sent as behind one that there never was.
            self._keep(run, size)
        return run

    def restore(self, number: int, item: T, size: int) -> None:
        """Keeps an item that had a number before a crash, higher than those that are kept."""
        after = self.next
        self._keep(NumberedRun(self.last, number, (item,)), size)
        self.next = max(after, self.next)

    def _keep(self, run: NumberedRun[T], size: int) -> None:
        self._runs.append(_SentTogether(run, size))
        self.next = run.first + len(run.items)
        self.last = self.next - 1
        self.held += len(run.items)
        self.held_bytes += size

    def reopen(self) -> None:
        """Lets the other end take what is held, or comes next, without what was taken before."""
        if not self._runs:
            self.last = 0
            return
        run, size = self._runs[0]
        done = max(0, self.taken + 1 - run.first)
        self._runs[0] = _SentTogether(NumberedRun(0, run.first + done, run.items[done:]), size)

    def acknowledge(self, taken: int) -> Sequence[T]:
        """The other end has taken all items up to this number; returns the items that are freed.

        Raises ProtocolError where that is impossible. Cost: these items. The bytes of a run are
        free when all of the run is taken.
        """
        if not 0 <= taken < self.next:
            raise ProtocolError(
                f"{taken} was taken of a stream that has sent up to {self.next - 1}"
            )
        freed: list[T] = []
        while self._runs and self._runs[0].run.first <= taken:
            run, size = self._runs[0]
            done = max(0, self.taken + 1 - run.first)
            freed += run.items[done : taken + 1 - run.first]
            if run.first + len(run.items) - 1 > taken:
                break
            self.held_bytes -= size
            self._runs.popleft()
        self.held -= len(freed)
        self.taken = max(self.taken, taken)
        return freed

    def again(self, count: int) -> Iterator[NumberedRun[T]]:
        """The first items that were not taken, so many at most, to be sent again."""
        for run in self.untaken():
            items = run.items[:count]
            if not items:
                break
            count -= len(items)
            self.resent += len(items)
            yield NumberedRun(run.before, run.first, items)

    def rest(self) -> Iterator[T]:
        """All that was not taken, in order."""
        for run in self.untaken():
            yield from run.items

    def untaken(self) -> Iterator[NumberedRun[T]]:
        """The runs of what was not taken."""
        for run, _ in self._runs:
            done = max(0, self.taken + 1 - run.first)
            if done < len(run.items):
                before = run.first + done - 1 if done else run.before
                yield NumberedRun(before, run.first + done, run.items[done:])


class Incoming(Generic[T]):
    """What the other end takes: each item once, in order."""

    def __init__(self, taken: int = 0) -> None:
        """`taken` is what had been taken before a crash."""
        self.taken = taken
        self.repeated = 0

    def take(self, run: NumberedRun[T]) -> Sequence[T]:
        """The items that are new; none where some before them are missing."""
        before, first, items = run
        if before == self.taken:  # by far the most
            self.taken = first + len(items) - 1
            return items
        if before > self.taken:
            return items[:0]
        known = max(0, min(self.taken + 1 - first, len(items)))
        self.repeated += known
        new = items[known:]
        if new:
            self.taken = first + len(items) - 1
        return new
