"""Putting notifications into the order of their timestamps, with bounded patience.

    push ──► [ heap by (time, publisher, sequence) ] ──► released, in order
                          watermark

The watermark is a promise: nothing below it is taken in any more. It is the largest timestamp
seen less the slack, or what the owner was told.

Invariants:
- everything held has a timestamp at or above the watermark, everything released one below it,
  so what is released is in order over the whole life of the buffer;
- the watermark never falls;
- at most `pending_max` are held. When there is one more, the watermark is forced above the
  earliest timestamp held, whose notifications are released early; nothing that is held is lost,
  but what comes below the forced watermark is late. Each forcing is counted.

Source: PODC 2000 §2 (timestamps account for latency within certain limits).
"""

import heapq
from typing import Final, Generic, TypeAlias, TypeVar

from contrada.errors import InvalidValueError
from contrada.model import Notification
from contrada.model.domains.values import TIME_MIN_US

T = TypeVar("T")

Order: TypeAlias = tuple[int, str, int]
"""A notification's place in time: timestamp, publisher, its sequence number."""

PENDING_MAX: Final = 100_000
"""Notifications that wait for the watermark, in a network those of one pattern. Beyond it: the
watermark is forced, counted; while a pattern is handed over or recalled, the newest takes no part,
counted."""


def order_of(notification: Notification) -> Order:
    """The place of a notification in the one order of all notifications."""
    envelope = notification.envelope
    return envelope.at_us, envelope.publisher, envelope.sequence


class ReorderBuffer(Generic[T]):
    """Notifications, each with an item of the owner's, until no earlier one can come.

    `slack_us` is how much later than a larger timestamp a notification may come; with None only
    `raise_watermark` moves the watermark. Raises InvalidValueError for a negative slack.
    """

    def __init__(self, slack_us: int | None, pending_max: int = PENDING_MAX) -> None:
        if slack_us is not None and (type(slack_us) is not int or slack_us < 0):
            raise InvalidValueError(slack_us, "slack_us: expected microseconds as an int from 0")
        self._slack_us = slack_us
        self._pending_max = pending_max
        # The count of arrivals parts equal places, so that notifications are never compared.
        self._heap: list[tuple[Order, int, Notification, T]] = []
        self._arrivals = 0
        self._seen_us = self.watermark_us = TIME_MIN_US
        self.forced = 0
        """How often the watermark was forced because the buffer was full."""

    def __len__(self) -> int:
        return len(self._heap)

    def is_late(self, time_us: int) -> bool:
        """Whether the watermark has passed this timestamp. At the watermark it has not."""
        return time_us < self.watermark_us

    def hold(self, notification: Notification, item: T) -> None:
        """Take in a notification that is not late. Cost: O(log held)."""
        order = order_of(notification)
        assert not self.is_late(order[0]), "a late notification cannot be put in order"
        self._arrivals += 1
        heapq.heappush(self._heap, (order, self._arrivals, notification, item))
        if len(self._heap) > self._pending_max:
            self.forced += 1
            self.raise_watermark(self._heap[0][0][0] + 1)

    def see(self, time_us: int) -> None:
        """Learn of a timestamp: the watermark rises to the largest one less the slack."""
        if time_us > self._seen_us:
            self._seen_us = time_us
        if self._slack_us is not None:
            self.raise_watermark(self._seen_us - self._slack_us)

    def raise_watermark(self, watermark_us: int) -> None:
        """Learn that nothing below this will come; a lower watermark than before is no news."""
        if watermark_us > self.watermark_us:
            self.watermark_us = watermark_us

    def close(self) -> None:
        """Raise the watermark above every timestamp seen."""
        self.raise_watermark(self._seen_us + 1)

    def release(self) -> list[tuple[Order, Notification, T]]:
        """What the watermark has passed, in order; of equal places the first that came first.

        Cost: O(log held) for each.
        """
        heap, watermark_us = self._heap, self.watermark_us
        released: list[tuple[Order, Notification, T]] = []
        while heap and heap[0][0][0] < watermark_us:
            order, _, notification, item = heapq.heappop(heap)
            released.append((order, notification, item))
        return released

    def validate(self) -> None:
        """Check the invariants. Cost: O(held)."""
        assert len(self._heap) <= self._pending_max
        assert all(entry[0] == order_of(entry[2]) for entry in self._heap)
        assert all(not self.is_late(entry[0][0]) for entry in self._heap), "released too late"
