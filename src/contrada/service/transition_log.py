"""`TransitionLog`: the recent events of one server with their effects, for stories.

    time, origin, message, effects  ==> `record` ==> a bounded ring of facts
    the facts, an identity          ==> `StoryReader` ==> the transitions that concern it

The ring holds what the router and the delivery server decided as it was, so recording costs little
more than a reference. Transitions are derived only when a story is read.

The model is the transition log of dask's scheduler, and its `story(key)`.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from contrada.delivery.backlog import QueueEntry
from contrada.delivery.delivery_messages import Notice, Records, Returned, ToSequence, Transfer
from contrada.matching.packed import Bundle
from contrada.model import Filter, Notification
from contrada.routing import router_messages as messages
from contrada.routing.router import Router
from contrada.routing.router_messages import Deliver, Origin, Publish, Subscribe
from contrada.service.clock import wall_clock_us
from contrada.service.subscription_queue import size_of, size_of_all

_FACT_BYTES: Final = 300
"""Bytes that are counted for a fact, and for each of its effects."""

_FILTER_BYTES: Final = 1_000
"""Bytes that are counted for a filter of a subscription."""

_PAIR_BYTES: Final = 8
"""Bytes that are counted for a notification and a matching subscription."""

_LINK_EVENTS: Final = (messages.LinkUp, messages.LinkDown)

Fact: TypeAlias = tuple[int, Origin | None, Any, Sequence[Any], int]
"""The time, origin and message of an event, its effects, and the counted bytes."""


class Entered(NamedTuple):
    """A part of a client's subscription enters the router under a name of its own."""

    client: str
    identity: str
    part: str


class Covered(NamedTuple):
    """The effect that a filter is not sent to a neighbour, since a sent one covers it."""

    neighbour: str
    product: Filter


class Dropped(NamedTuple):
    """Entries that were lost at the queue `to` or before it; without it, refused at once."""

    reason: str
    to: str
    entries: Sequence[QueueEntry[Any]]


class Accepting(NamedTuple):
    """A publication above best effort begins, under a token."""

    token: int
    notifications: Sequence[Notification]


class TransitionLog:
    """A ring of facts, bounded in number and bytes. Beyond: the oldest are overwritten."""

    def __init__(self, facts_max: int, bytes_max: int) -> None:
        self.overwritten = 0
        self._facts_max, self._bytes_max = facts_max, bytes_max
        self._facts: deque[Fact] = deque()
        self._held_bytes = 0

    def record(
        self, time_us: int, origin: Origin | None, message: Any, effects: Sequence[Any] = ()
    ) -> None:
        """Records an event with its effects. Cost: some hundred nanoseconds for a publication."""
        size = _FACT_BYTES + _FACT_BYTES * len(effects)
        if type(message) is Publish:
            whole = message.notifications
            # Twice the joined bytes, which are also the encodings.
            size += 2 * whole.joined_bytes if type(whole) is Bundle else size_of_all(whole)
            for each in effects:
                if type(each) is Deliver:
                    size += _PAIR_BYTES * len(each.subscriptions)
        else:
            size += _size_of(message)
            size += sum([_size_of(getattr(each, "message", None)) for each in effects])
        facts = self._facts
        facts.append((time_us, origin, message, effects, size))
        self._held_bytes += size
        while len(facts) > self._facts_max or self._held_bytes > self._bytes_max:
            self._held_bytes -= facts.popleft()[4]
            self.overwritten += 1

    def record_event(
        self, time_us: int, event: messages.Event, effects: Sequence[Any], router: Router
    ) -> None:
        """Records an event of a router other than a publication, with the covered filters."""
        if not isinstance(event, messages.Received):
            neighbour = event.neighbour if isinstance(event, _LINK_EVENTS) else None
            self.record(time_us, neighbour, event, effects)
        elif not isinstance(event.message, messages.QuestionMessage):  # It has another clock.
            covered = covered_filters(router, event)
            self.record(time_us, event.origin, event.message, [*effects, *covered])

    def refuse(self, origin: Origin, reason: str, notifications: Iterable[Notification]) -> None:
        """Records notifications that are refused before they are routed."""
        entries = [(each, size_of(each), None) for each in notifications]
        self.record(wall_clock_us(), origin, Dropped(reason, "", entries))

    def note(self, message: Any) -> None:
        """Records an event of now without an origin."""
        self.record(wall_clock_us(), None, message)

    def facts(self) -> list[Fact]:
        """Returns the facts, oldest first; the first one has the number `overwritten`."""
        return [*self._facts]


class WatchedRouter:
    """The events of a router, recorded with their effects."""

    def __init__(self, router: Router, transitions: TransitionLog) -> None:
        self._router, self._transitions = router, transitions

    def handle(self, event: messages.Event, now_us: int) -> list[messages.Effect]:
        """As `Router.handle`."""
        effects = self._router.handle(event, now_us)
        self._transitions.record_event(now_us, event, effects, self._router)
        return effects

    def publish(self, origin: Origin, message: Publish, now_us: int) -> list[messages.Effect]:
        """As `Router.publish`."""
        effects = self._router.publish(origin, message, now_us)
        self._transitions.record(now_us, origin, message, effects)
        return effects


def covered_filters(router: Router, event: messages.Event) -> Iterator[Covered]:
    """Yields the filters of a subscription that an event has made, and that others cover."""
    if isinstance(event, messages.Received) and isinstance(event.message, messages.Subscribe):
        origin, message = event.origin, event.message
        party: messages.Party = (
            origin
            if isinstance(origin, messages.Client)
            else messages.NextHop(origin, message.owner)
        )
        found = router.forwarding.covering(party, message.identity)
        covered = [Covered(next_hop.neighbour.name, product) for next_hop, product in found]
        # In an order that is the same in each process.
        yield from sorted(covered, key=lambda each: (each.neighbour, str(each.product)))


def _size_of(message: Any) -> int:
    match message:
        case Subscribe():
            return _FILTER_BYTES * len(message.filters.filters)
        case Accepting():
            return sum(map(size_of, message.notifications))
        case Dropped():
            return sum(size for _, size, _ in message.entries)
        case Transfer():
            return sum(_FACT_BYTES + _size_of(each.body) for each in message.shipments)
        case Records():
            found = (each.notification for each in message.records)
            return sum(_FACT_BYTES + (0 if each is None else size_of(each)) for each in found)
        case Notice() | ToSequence() | Returned():
            return size_of(message.notification)
    return len(getattr(message, "record", b""))  # Of an `AppendedRecord`.
