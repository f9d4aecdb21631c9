"""Where notifications meet subscriptions: a router, its clients, and an outlet per subscription.

The embedded service and the TCP broker both stand on an exchange: one server of the network that
has clients and no links. What clients ask for becomes events of the `Router`, and what it delivers
goes into outlets. The exchange does not know what an outlet carries: the embedded service puts the
notification itself there, a broker the bytes that the publisher sent.

Invariant: the router holds of all clients exactly the subscriptions that have a route here.

Source: PODC 2000 §2 (clients and their access point).
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from contrada.errors import ContradaError, LimitError, ServiceError, UnknownOperatorError
from contrada.matching import Index
from contrada.model import Filter, FilterSet, Notification, Pattern
from contrada.patterns import Match
from contrada.routing.assembly.delegation import SubscribePattern, UnsubscribePattern
from contrada.routing.messages import (
    Advertise,
    Client,
    Deliver,
    DeliverMatch,
    Message,
    Offer,
    Publish,
    Received,
    Refused,
    Subscribe,
    TimePassed,
    Unadvertise,
    Unsubscribe,
)
from contrada.routing.router import Router
from contrada.runtime.kernels import load_beside
from contrada.runtime.outlet import ENTRY_BYTES, Outlet

P = TypeVar("P")
R = TypeVar("R")

SUBSCRIPTIONS_MAX: Final = 1_000_000
"""Subscriptions of an exchange. Beyond it: LimitError."""

UPKEEP_UNITS: Final = 8
"""Units of the router's upkeep that are done with each subscription that ends."""

UPKEEP_UNITS_OF_NOTIFICATION: Final = 2
"""And with each notification, so that places follow what is published."""

NOTIFICATIONS_PER_UPKEEP: Final = 16
"""Notifications after which theirs is done together: asking for it costs more than a unit."""

QUEUE_FULL: Final = "queue full"
"""Why the newest is dropped: its subscriber stopped reading."""

_UNTIMED_US: Final = 0
"""What the clock says at requests, which tell the router no time."""


@dataclass(frozen=True, slots=True)
class ExchangeStatistics:
    """Counts of notifications published, of their pairs with subscriptions, and of losses."""

    published: int
    matched: int
    subscriptions: int
    dropped: dict[str, int]


@dataclass(slots=True)
class Route(Generic[P]):
    """One subscription of an exchange, its client and outlet, and how many it lost here."""

    client: Client
    identity: str
    outlet: Outlet[P]
    is_pattern: bool
    dropped: int = 0


class Pending(NamedTuple, Generic[P]):
    """An entry that found no room at the end of its route, and its size."""

    route: Route[P]
    item: P
    size: int


class Exchange(Generic[P]):
    """Has a router match each notification once, and fills the outlets that asked for it."""

    def __init__(self) -> None:
        self._router = Router(index=_new_index)
        self._routes: dict[str, Route[Any]] = {}
        self._names = itertools.count(1)
        self._identities = itertools.count(1)
        self._published = 0
        self._since_upkeep = 0
        self._matched = 0
        self._dropped: Counter[str] = Counter()
        self.followers: dict[Callable[[Offer, bool], None], None] = {}
        """Called when something is on offer that was not, or the other way round."""

    def client(self) -> Client:
        """A client that nobody else is."""
        return Client(str(next(self._names)))

    def add(self, client: Client, filters: Filter | FilterSet, outlet: Outlet[P]) -> Route[P]:
        """Put a subscription in force.

        Raises LimitError, UnknownOperatorError, UnsatisfiableFilterError.
        """
        for operator in filters.unknown():
            raise UnknownOperatorError(operator)
        route = self._new_route(client, outlet, is_pattern=False)
        self._ask(client, Subscribe(route.identity, filters))
        self._routes[route.identity] = route
        return route

    def watch(
        self, client: Client, pattern: Pattern, outlet: Outlet[Match[str]]
    ) -> Route[Match[str]]:
        """Put a subscription to a pattern in force.

        Raises LimitError, UnknownOperatorError, UnsatisfiableFilterError.
        """
        route = self._new_route(client, outlet, is_pattern=True)
        self._ask(client, SubscribePattern(route.identity, pattern))
        self._routes[route.identity] = route
        return route

    def _new_route(self, client: Client, outlet: Outlet[R], *, is_pattern: bool) -> Route[R]:
        if len(self._routes) >= SUBSCRIPTIONS_MAX:
            raise LimitError("SUBSCRIPTIONS_MAX", SUBSCRIPTIONS_MAX)
        return Route(client, str(next(self._identities)), outlet, is_pattern)

    @property
    def due_us(self) -> int | None:
        """What patterns hold waits for a time later than this; None where nothing waits."""
        return self._router.due_us

    def pass_time(self, time_us: int) -> list[Pending[Any]]:
        """Nothing earlier is published from now on: what waited for that goes on."""
        pending: list[Pending[Any]] = []
        for effect in self._router.handle(TimePassed(time_us), time_us):
            if isinstance(effect, DeliverMatch):
                self._place_match(effect.match, pending)
        return pending

    def _place_match(self, match: Match[str], pending: list[Pending[Any]]) -> None:
        self._matched += 1
        route = self._routes[match.key]
        size = sum(ENTRY_BYTES + len(each.body) for each in match.notifications)
        if not route.outlet.offer(match, size):
            pending.append(Pending(route, match, size))

    def remove(self, route: Route[Any]) -> None:
        """Take a subscription out; twice is once. Publishers that wait for it go on."""
        if self._routes.pop(route.identity, None) is not None:
            withdrawal = UnsubscribePattern if route.is_pattern else Unsubscribe
            self._ask(route.client, withdrawal(route.identity))
            # What the removed leave behind is cleared in pieces, as they go.
            self._router.maintain(UPKEEP_UNITS)
        route.outlet.finish()

    def offer(
        self, client: Client, notification: Notification, item: P, size: int, now_us: int
    ) -> list[Pending[Any]]:
        """Match and hand over at once; what found no room is returned, matches of patterns too."""
        effects = self._router.handle(Received(client, Publish(notification)), now_us)
        self._published += 1
        self._since_upkeep += 1
        if self._since_upkeep >= NOTIFICATIONS_PER_UPKEEP:
            self._since_upkeep = 0
            self._router.maintain(NOTIFICATIONS_PER_UPKEEP * UPKEEP_UNITS_OF_NOTIFICATION)
        pending: list[Pending[Any]] = []
        routes = self._routes
        for effect in effects:
            if isinstance(effect, Deliver):
                self._matched += len(effect.subscriptions)
                for identity in effect.subscriptions:
                    route = routes[identity]
                    if not route.outlet.offer(item, size):
                        pending.append(Pending(route, item, size))
            elif isinstance(effect, DeliverMatch):
                self._place_match(effect.match, pending)
            elif isinstance(effect, Refused):
                raise _error_of(effect)
        return pending

    def advertise(self, client: Client, offer: Offer) -> str:
        """Put an advertisement in force; its identity.

        Raises LimitError, UnsatisfiableFilterError.
        """
        was_on_offer = self._router.is_on_offer(offer)
        identity = str(next(self._identities))
        self._ask(client, Advertise(identity, offer))
        if not was_on_offer:
            self._tell(offer, is_on_offer=True)
        return identity

    def unadvertise(self, client: Client, identity: str, offer: Offer) -> None:
        """Withdraw an advertisement that is in force."""
        self._ask(client, Unadvertise(identity))
        if not self._router.is_on_offer(offer):
            self._tell(offer, is_on_offer=False)

    def offers(self) -> tuple[Offer, ...]:
        """What is on offer now."""
        return tuple(self._router.offers())

    def _tell(self, offer: Offer, *, is_on_offer: bool) -> None:
        for follow in list(self.followers):
            follow(offer, is_on_offer)

    async def wait(self, pending: list[Pending[Any]], wait_s: float) -> int:
        """Hand over what had no room, waiting for it; returns how many were lost.

        All are waited for at the same time, so that many dead readers delay no more than one.
        """
        waits = [self._put(each, wait_s) for each in pending]
        # One alone needs no task of its own.
        return sum([await waits[0]] if len(waits) == 1 else await asyncio.gather(*waits))

    async def _put(self, entry: Pending[Any], wait_s: float) -> bool:
        """Hand over one, or count it as lost, also when its publisher waits no longer."""
        route, taken = entry.route, False
        try:
            taken = await route.outlet.put(entry.item, entry.size, wait_s)
        finally:
            lost = not taken and route.identity in self._routes
            if lost:
                route.dropped += 1
                self._dropped[QUEUE_FULL] += 1
        return lost

    def statistics(self) -> ExchangeStatistics:
        """The counts so far."""
        dropped = self._dropped + Counter(self._router.pattern_statistics().dropped)
        return ExchangeStatistics(self._published, self._matched, len(self._routes), dict(dropped))

    def _ask(self, client: Client, message: Message) -> None:
        """Hand a client's request to the router, which has no links to tell of it.

        Raises where it is refused.
        """
        for effect in self._router.handle(Received(client, message), _UNTIMED_US):
            if isinstance(effect, Refused):
                raise _error_of(effect)


def _new_index() -> "Index[int]":
    return Index(load=load_beside)


def _error_of(refused: Refused) -> ContradaError:
    """What a client is told of a refusal."""
    return refused.error or ServiceError(f"the router refused it: {refused.reason}")
