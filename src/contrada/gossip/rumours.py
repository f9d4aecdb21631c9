"""What a participant holds of events: buffers by level, and what was only announced.

Source: EPFL 2503 figure 6.6 (gossips[1..l]), §6.3.4.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from contrada.gossip.messages import EventId, event_id
from contrada.model import Notification

RUMOURS_MAX: Final = 10_000
"""Events in the buffers of a participant. Beyond it: one that comes is handed over, where it is
wanted, and not gossiped; counted."""

KEPT_ROUNDS: Final = 8
"""Rounds that an event is kept for who asks for it, when it is no longer gossiped."""

ANNOUNCED_MAX: Final = 10_000
"""Events that were announced and have not come. Beyond it: the earliest is forgotten."""


class HeldRumour:
    """An event in the buffer of a level. `is_own`: it was published here."""

    __slots__ = ("event", "has_told", "is_own", "level", "prob", "round")

    def __init__(
        self, event: Notification, prob: float, round_: int, level: int, *, is_own: bool = False
    ) -> None:
        self.event = event
        self.prob = prob
        self.round = round_
        self.level = level
        self.is_own = is_own
        self.has_told = False


class RumourBuffers:
    """The events under way, each in the buffer of one level; and, for a while, those that were."""

    def __init__(self, levels: int) -> None:
        self._by_level: list[dict[EventId, HeldRumour]] = [{} for _ in range(levels)]
        self._kept: dict[EventId, tuple[int, HeldRumour]] = {}

    def add(self, rumour: HeldRumour) -> bool:
        """Puts an event into the buffer of its level. Whether there was room."""
        if len(self) >= RUMOURS_MAX:
            return False
        self._by_level[rumour.level - 1][event_id(rumour.event)] = rumour
        return True

    def at(self, level: int) -> list[HeldRumour]:
        """The events at a level."""
        return list(self._by_level[level - 1].values())

    def end(self, rumour: HeldRumour) -> None:
        """An event has had its rounds at its level."""
        self._by_level[rumour.level - 1].pop(event_id(rumour.event), None)

    def keep(self, rumour: HeldRumour, round_: int) -> None:
        """Keeps an event for those who ask for it."""
        if len(self._kept) < RUMOURS_MAX:
            self._kept[event_id(rumour.event)] = round_ + KEPT_ROUNDS, rumour

    def forget(self, round_: int) -> None:
        """Drops what was kept for long enough."""
        for identity, (until, _) in list(self._kept.items()):
            if until > round_:
                break
            del self._kept[identity]

    def find(self, identity: EventId) -> HeldRumour | None:
        """An event that is under way, or kept."""
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

    def validate(self) -> None:
        """Raises AssertionError where an event is at two levels, or at another than its own."""
        identities = list(chain.from_iterable(self._by_level))
        assert len(identities) == len(set(identities)), "an event is at one level"
        for number, level in enumerate(self._by_level, start=1):
            assert all(held.level == number for held in level.values()), "in its level's buffer"

    def __iter__(self) -> Iterator[HeldRumour]:
        return chain.from_iterable(level.values() for level in self._by_level)

    def __len__(self) -> int:
        return sum(map(len, self._by_level))


class Announcements:
    """Events that were announced here and have not come; when they were asked for."""

    def __init__(self) -> None:
        self._asked: dict[EventId, int] = {}

    def is_due(self, identity: EventId, round_: int) -> bool:
        """Whether an event is to be asked for: once in a round. From now on it was."""
        if self._asked.get(identity) == round_:
            return False
        if identity not in self._asked and len(self._asked) >= ANNOUNCED_MAX:
            del self._asked[next(iter(self._asked))]
        self._asked[identity] = round_
        return True

    def came(self, identity: EventId) -> None:
        """An event has come."""
        self._asked.pop(identity, None)
