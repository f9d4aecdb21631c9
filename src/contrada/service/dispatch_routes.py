"""`Route` and `LinkRoute`: the ends of a dispatcher, with queues, losses and turns."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from contrada.delivery.backlog import QueueEntry
from contrada.routing.router_messages import (
    Client,
    Deliver,
    Effect,
    Message,
    Neighbour,
    Notifications,
    Refused,
)
from contrada.service.subscription_queue import EXPIRED, QUEUE_FULL, Passed, SubscriptionQueue
from contrada.service.transition_log import Dropped, TransitionLog

P = TypeVar("P")

LINK_FULL: Final = "link full"
"""Reason of a drop: the queue of the link is full."""

LINK_DOWN: Final = "link down"
"""Reason of a drop: the link of the notification is gone."""

TOO_COSTLY: Final = "the subscription has ended: its pattern costs too much; narrow its filters"
"""Why a pattern is ended that holds up others."""

SLOW_LOGGED_MAX: Final = 1_000
"""Clients whose first loss was logged. Beyond it: the longest known one is logged again."""

_LOG: Final = logging.getLogger("contrada.service.dispatcher")


@dataclass(slots=True, eq=False)
class Route(Generic[P]):
    """One subscription: its client, its queue, and its losses here.

    `lost` counts for the whole dispatcher, by reason; `slow` has its clients that were logged last;
    `_names` is a single name without a tuple.
    """

    client: Client
    identity: str
    queue: SubscriptionQueue[P]
    is_pattern: bool
    lost: Counter[str]
    slow: dict[Client, None]
    transitions: TransitionLog | None = None
    is_in_force: bool = False
    dropped: int = 0
    expired: int = 0
    ended: str = ""
    """Why it was cut off, unless it did not keep up."""
    _names: str | tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its parts in the router."""
        return (self._names,) if isinstance(self._names, str) else self._names

    @names.setter
    def names(self, names: tuple[str, ...]) -> None:
        self._names = names[0] if len(names) == 1 else names

    def draft(self) -> "Route[P]":
        """Returns a draft of the parts that are to replace those of this route."""
        return replace(self, _names=(), is_in_force=False)

    def end_pattern(self) -> None:
        """Cuts off the subscription of a pattern that costs too much."""
        if not self.queue.finished:
            self.ended = TOO_COSTLY
            self.queue.cut_off()

    def note_lost(self, reason: str, entries: Sequence[QueueEntry[P]]) -> None:
        """Counts notifications that were lost in the queue or before it."""
        count = self.note_dropped(reason, entries)
        if reason == EXPIRED:
            self.expired += count
        else:
            if not self.dropped and self.client not in self.slow:
                if len(self.slow) >= SLOW_LOGGED_MAX:
                    del self.slow[next(iter(self.slow))]
                self.slow[self.client] = None
                told = "subscription %(subscription)s of client %(client)s does not keep up: "
                fields = {"subscription": self.identity, "client": self.client.name}
                _LOG.warning(told + "further notifications are dropped", fields)
            self.dropped += count
        self.lost[reason] += count

    def note_dropped(self, reason: str, entries: Sequence[QueueEntry[Any]]) -> int:
        """Records notifications for stories that are counted elsewhere; returns their number."""
        if self.transitions is not None and entries:
            self.transitions.note(Dropped(reason, f"{self.client.name}/{self.identity}", entries))
        return len(entries)


class Carried(NamedTuple):
    """A notification for a neighbour, with its hop count and source."""

    notification: Passed
    hops: int
    source: str


@dataclass(slots=True, eq=False)
class LinkRoute:
    """A neighbour and its queue of notifications to forward.

    `say` sends any other message, `refuse` is called with each refusal of the neighbour's messages.
    """

    neighbour: Neighbour
    queue: SubscriptionQueue[Carried]
    say: Callable[[Message], None]
    refuse: Callable[[Refused], None]
    lost: Counter[str]
    transitions: TransitionLog | None = None
    is_in_force: bool = True

    def note_lost(self, reason: str, entries: Sequence[QueueEntry[Carried]]) -> None:
        """Counts notifications that were not forwarded."""
        if reason == QUEUE_FULL:
            reason = LINK_DOWN if self.queue.finished else LINK_FULL
        self.note_dropped(reason, entries)
        self.count_lost(reason, len(entries))

    def note_dropped(self, reason: str, entries: Sequence[QueueEntry[Any]]) -> None:
        """Records notifications for stories that are counted elsewhere."""
        if self.transitions is not None and entries:
            self.transitions.note(Dropped(reason, self.neighbour.name, entries))

    def count_lost(self, reason: str, count: int) -> None:
        """Counts notifications that were not forwarded, and are not at hand."""
        self.lost[reason] += count

    def close(self) -> None:
        """Drops the queue, counted."""
        self.note_lost(LINK_DOWN, self.queue.discard())


class Pending(NamedTuple, Generic[P]):
    """Entries without room at the end of their route, oldest first."""

    route: Route[P] | LinkRoute
    entries: Sequence[QueueEntry[P]]


class Waited(NamedTuple):
    """The result of a wait for room."""

    lost: int
    """Entries for which there was none in time."""
    is_held_up: bool
    """Whether a reader kept its queue full, not only this server."""


Turn: TypeAlias = list[tuple[list[Route[Any]], Notifications]]
"""Deliveries that are left for a later turn: notifications, each once for all these routes."""


def first_turn(
    effects: Iterable[Effect],
    later: list[Turn],
    routes: Mapping[str, Mapping[str, Route[Any]]],
    deliveries_max: int,
) -> list[Effect]:
    """Returns the effects of one turn; adds the deliveries of others, in order.

    `routes` are those in force, by client and name.
    """
    first: list[Effect] = []
    left = deliveries_max
    for effect in effects:
        if not isinstance(effect, Deliver):
            first.append(effect)
            continue
        count, names = len(effect.notifications), effect.subscriptions
        if not later and count * len(names) <= left:  # As mostly.
            left -= count * len(names)
            first.append(effect)
            continue
        # Found now: parts of one route could have several turns, or be replaced before them.
        found = map(routes.get(effect.client.name, {}).get, names)
        left_out, batch, at = [*dict.fromkeys(filter(None, found))], effect.notifications, 0
        while at < len(left_out):
            if not later or count > left:
                later.append([])
                left = deliveries_max
            if not later[-1] or later[-1][-1][1] is not batch:  # Mostly all clients get one.
                later[-1].append(([], batch))
            some = left_out[at : at + max(1, left // count)]
            later[-1][-1][0].extend(some)
            left -= count * len(some)
            at += len(some)
    return first
