"""`RumourBuffers`: the events of a participant by level; `Announcements`: announced events.

Source: EPFL 2503 figure 6.6 (gossips[1..l]), §6.3.4.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from contrada.gossip.gossip_limits import GossipLimits
from contrada.gossip.gossip_messages import EventId, event_id
from contrada.model import Notification

KEPT_ROUNDS: Final = 8
"""Rounds that an event is kept for requests after its gossip has ended."""


class HeldRumour:
    """An event in the buffer of a level; `is_own` if it was published here."""

    __slots__ = ("event", "has_sent_digest", "is_own", "level", "prob", "round")

    def __init__(
        self, event: Notification, prob: float, round_: int, level: int, *, is_own: bool = False
    ) -> None:
        self.event = event
        self.prob = prob
        self.round = round_
        self.level = level
        self.is_own = is_own
        self.has_sent_digest = False


class RumourBuffers:
    """The buffers of events in transit by level, and for some rounds the events after that."""

    def __init__(self, levels: int, limits: GossipLimits = GossipLimits()) -> None:
        self._limits = limits
        self._by_level: list[dict[EventId, HeldRumour]] = [{} for _ in range(levels)]
        self._kept: dict[EventId, tuple[int, HeldRumour]] = {}
        self._bytes = 0

    def has_room(self, event: Notification) -> bool:
        """Returns whether an event may be added."""
        return len(self) < self._limits.rumours_max and self._has_bytes(size_of(event))

    def _has_bytes(self, size: int) -> bool:
        return self._bytes + size <= self._limits.buffered_bytes_max

    def add(self, rumour: HeldRumour) -> bool:
        """Adds an event to the buffer of its level. Returns whether there was room."""
        if not self.has_room(rumour.event):
            return False
        self._bytes += size_of(rumour.event)
        self._by_level[rumour.level - 1][event_id(rumour.event)] = rumour
        return True

    def at(self, level: int) -> list[HeldRumour]:
        """Returns the events at a level."""
        return list(self._by_level[level - 1].values())

    def end(self, rumour: HeldRumour) -> None:
        """Removes an event after its rounds at its level."""
        if self._by_level[rumour.level - 1].pop(event_id(rumour.event), None) is not None:
            self._bytes -= size_of(rumour.event)

    def keep(self, rumour: HeldRumour, round_: int) -> None:
        """Keeps an event for requests."""
        identity, size = event_id(rumour.event), size_of(rumour.event)
        fits = len(self._kept) < self._limits.rumours_max and self._has_bytes(size)
        if fits and identity not in self._kept:
            self._bytes += size
            self._kept[identity] = round_ + KEPT_ROUNDS, rumour

    def forget(self, round_: int) -> None:
        """Drops kept events after `KEPT_ROUNDS`."""
        for identity, (until, held) in list(self._kept.items()):
            if until > round_:
                break
            self._bytes -= size_of(held.event)
            del self._kept[identity]

    def find(self, identity: EventId) -> HeldRumour | None:
        """Returns an event in transit, or kept."""
        for level in self._by_level:
            if identity in level:
                return level[identity]
        kept = self._kept.get(identity)
        return None if kept is None else kept[1]

    def clear(self) -> None:
        """Drops everything."""
        for level in self._by_level:
            level.clear()
        self._kept.clear()
        self._bytes = 0

    def validate(self) -> None:
        """Raises AssertionError where an event is at two levels, or at another than its own."""
        identities = list(chain.from_iterable(self._by_level))
        assert len(identities) == len(set(identities)), "an event is at one level"
        kept = (held for _, held in self._kept.values())
        total = sum(size_of(each.event) for each in chain(self, kept))
        assert self._bytes == total <= self._limits.buffered_bytes_max, "so many bytes are held"
        for number, level in enumerate(self._by_level, start=1):
            assert all(held.level == number for held in level.values()), "in its level's buffer"

    def __iter__(self) -> Iterator[HeldRumour]:
        return chain.from_iterable(level.values() for level in self._by_level)

    def __len__(self) -> int:
        return sum(map(len, self._by_level))


def size_of(event: Notification) -> int:
    """Returns the bytes of an event that its publisher chose."""
    return len(event.span) + len(event.body)


class Announcements:
    """Announced events that were not received, and the round of their last request."""

    def __init__(self, limits: GossipLimits = GossipLimits()) -> None:
        self._limits = limits
        self._asked: dict[EventId, int] = {}

    def is_due(self, identity: EventId, round_: int) -> bool:
        """Returns whether an event is to be requested, at most once in a round; notes the
        request.
        """
        if self._asked.get(identity) == round_:
            return False
        if identity not in self._asked and len(self._asked) >= self._limits.announced_max:
            del self._asked[next(iter(self._asked))]
        self._asked[identity] = round_
        return True

    def remove(self, identity: EventId) -> None:
        """Removes a received event."""
        self._asked.pop(identity, None)
