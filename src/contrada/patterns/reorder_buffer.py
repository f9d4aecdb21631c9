"""`ReorderBuffer`: notifications in the order of their timestamps, within a bounded delay.

The watermark is a guarantee: the owner adds nothing below it. It is mostly the largest timestamp
seen less the slack.

Invariants: the watermark never falls, and released items lie below it; without late items, the
released ones are in order over the whole life of the buffer; at most `pending_max` are held. Beyond
that the watermark is forced above the earliest timestamp held, and its notifications are released
early, so that later arrivals below are late. If nothing may be released, the newest is dropped
instead. Both are counted (`forced`).

Source: PODC 2000 §2 (timestamps account for latency within certain limits).
"""

import heapq
from collections.abc import Callable, Iterator
from typing import Generic, TypeAlias, TypeVar

from contrada.errors import InvalidValueError
from contrada.model import Notification
from contrada.model.domains.values import TIME_MIN_US

T = TypeVar("T")

Order: TypeAlias = tuple[int, str, int, str, bytes, bytes, str]
"""A notification's place in the one order of all: timestamp, publisher, its sequence number; then,
for unknown sources or ones without sequence numbers, id, attributes, body and its type."""


def order_of(notification: Notification) -> Order:
    """Returns the place of a notification in the one order; the same if equal in bytes."""
    envelope = notification.envelope
    return (
        envelope.at_us,
        envelope.publisher,
        envelope.sequence,
        envelope.id,
        notification.span,
        notification.body,
        notification.content_type,
    )


def check_slack(slack_us: int) -> int:
    """Returns a valid slack. Raises InvalidValueError for another."""
    if type(slack_us) is not int or slack_us < 0:
        raise InvalidValueError(slack_us, "slack_us: expected microseconds as an int from 0")
    return slack_us


class ReorderBuffer(Generic[T]):
    """Items in the order of their notifications, held until no earlier one can arrive."""

    def __init__(self, pending_max: int) -> None:
        self._pending_max = pending_max
        # The count of arrivals separates equal orders, so that items are never compared.
        self._heap: list[tuple[Order, int, int, T]] = []
        self._arrivals = 0
        self.watermark_us = TIME_MIN_US
        self.forced = 0
        """The number of items beyond `pending_max`."""

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[T]:
        """Iterates over the held items, unordered."""
        return (item for *_, item in self._heap)

    def is_late(self, time_us: int) -> bool:
        """Whether the watermark has passed this timestamp. At the watermark it has not."""
        return time_us < self.watermark_us

    @property
    def head_us(self) -> int | None:
        """The earliest timestamp held."""
        return self._heap[0][0][0] if self._heap else None

    def hold(self, order: Order, item: T, rank: int = 0, *, forces: bool = True) -> bool:
        """Adds an item; of equal orders the lower rank is released first, then the elder.

        Beyond `pending_max` the watermark is forced, or else the newest dropped: then it returns
        False. Cost: O(log held), and O(held) to drop.
        """
        self._arrivals += 1
        heapq.heappush(self._heap, (order, rank, self._arrivals, item))
        if len(self._heap) <= self._pending_max:
            return True
        self.forced += 1
        if forces:
            self.raise_watermark(self._heap[0][0][0] + 1)
        else:
            self._heap.remove(max(self._heap))
            heapq.heapify(self._heap)
        return forces

    def raise_watermark(self, watermark_us: int) -> None:
        """Raises the watermark; a lower one is ignored."""
        if watermark_us > self.watermark_us:
            self.watermark_us = watermark_us

    def release(self) -> Iterator[tuple[Order, T]]:
        """Removes and yields the items below the watermark, in order. Cost: O(log held) each."""
        while self._heap and self._heap[0][0][0] < self.watermark_us:
            order, _, _, item = heapq.heappop(self._heap)
            yield order, item

    def take_out(self, is_taken: Callable[[T], bool]) -> list[T]:
        """Removes and returns the items of a predicate, in order. Cost: O(held log held)."""
        entries = sorted(self._heap)
        self._heap = [entry for entry in entries if not is_taken(entry[3])]  # In order: a heap.
        return [entry[3] for entry in entries if is_taken(entry[3])]

    def clear(self) -> None:
        """Drops all items."""
        self._heap.clear()

    def validate(self) -> None:
        """Checks the invariants. Cost: O(held)."""
        # A forced watermark lets the owner release the surplus.
        late = sum(self.is_late(entry[0][0]) for entry in self._heap)
        assert len(self._heap) - late <= self._pending_max, "too many are held"
        assert not self._heap or self._heap[0] == min(self._heap), "the buffer is no heap"
