"""`Outgoing` and `Incoming`: a stream of items from one server to another.

Each item is taken once, in order. A stream outlives connections, routes, and crashes after which
its ends restart from their disks. Items are numbered, and kept until the other end acknowledges
them. An item that is not acknowledged in time is sent again, perhaps on another route.

    Outgoing                                          Incoming
    send       -- a1 b2 c3 ----------------------->   take: a b c
               <------------------- taken: 3 ------
    send       -- d4 e5 --x  lost
    send       -- f6 ---------------------------->    nothing: 4 is missing
               <------------------- taken: 3 ------
    again      -- d4 e5 f6 ---------------------->    take: d e f

Each run of items names the number of the item before it. A crash loses items that need not survive.
Afterwards numbers continue above all that were assigned, so that a new item is never mistaken for
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
    """Items in order, the number of the first, and that of the item sent before it."""

    before: int
    first: int
    items: Sequence[T]


class _SizedRun(NamedTuple, Generic[T]):
    run: NumberedRun[T]
    size: int


class Outgoing(Generic[T]):
    """The sending end. Numbers begin at 1, or at `first` after a crash. `taken` is acknowledged."""

    def __init__(
        self, first: int = 1, taken: int = 0, limits: DeliveryLimits = DeliveryLimits()
    ) -> None:
        self._limits = limits
        self.next = first
        self.last = 0  # items from before a crash may be lost
        self.taken = taken
        self.held = 0
        self.held_bytes = 0
        self.resent = 0
        self._runs: deque[_SizedRun[T]] = deque()

    def has_room(self) -> bool:
        """Whether more may be sent. One run may exceed the limits."""
        return self.held < self._limits.held_max and self.held_bytes < self._limits.held_bytes_max

    def send(self, items: Sequence[T], size: int) -> NumberedRun[T]:
        """Numbers and holds items of `size` bytes. Returns the run to send."""
        run = NumberedRun(self.last, self.next, items)
        if items:  # Otherwise the next item would name a predecessor that never existed.
            self._keep(run, size)
        return run

    def restore(self, number: int, item: T, size: int) -> None:
        """Holds an item under its number from before a crash, in increasing order."""
        after = self.next
        self._keep(NumberedRun(self.last, number, (item,)), size)
        self.next = max(after, self.next)

    def _keep(self, run: NumberedRun[T], size: int) -> None:
        self._runs.append(_SizedRun(run, size))
        self.next = run.first + len(run.items)
        self.last = self.next - 1
        self.held += len(run.items)
        self.held_bytes += size

    def reopen(self) -> None:
        """Lets the other end take the held items without the items before them."""
        if not self._runs:
            self.last = 0
            return
        run, size = self._runs[0]
        done = max(0, self.taken + 1 - run.first)
        self._runs[0] = _SizedRun(NumberedRun(0, run.first + done, run.items[done:]), size)

    def acknowledge(self, taken: int) -> Sequence[T]:
        """Releases all items up to a number, and returns them.

        Raises ProtocolError for an impossible number. Cost: these items. The bytes of a run are
        released with its last item.
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
        """Yields the first unacknowledged items, at most `count`, to be sent again."""
        for run in self.untaken():
            items = run.items[:count]
            if not items:
                break
            count -= len(items)
            self.resent += len(items)
            yield NumberedRun(run.before, run.first, items)

    def rest(self) -> Iterator[T]:
        """Yields all unacknowledged items, in order."""
        for run in self.untaken():
            yield from run.items

    def untaken(self) -> Iterator[NumberedRun[T]]:
        """Yields the unacknowledged runs."""
        for run, _ in self._runs:
            done = max(0, self.taken + 1 - run.first)
            if done < len(run.items):
                before = run.first + done - 1 if done else run.before
                yield NumberedRun(before, run.first + done, run.items[done:])


class Incoming(Generic[T]):
    """The receiving end: it takes each item once, in order."""

    def __init__(self, taken: int = 0) -> None:
        """`taken` was taken before a crash."""
        self.taken = taken
        self.repeated = 0

    def take(self, run: NumberedRun[T]) -> Sequence[T]:
        """Returns the new items; none if earlier ones are missing."""
        before, first, items = run
        if before == self.taken:  # the usual case
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
