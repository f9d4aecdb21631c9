"""Where notifications meet subscriptions: an index of filters and an outlet for each.

The embedded service and the TCP broker both stand on an exchange. It does not know what an
outlet carries: the embedded service puts the notification itself there, a broker the bytes that
the publisher sent.
"""

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from contrada.errors import LimitError, UnknownOperatorError
from contrada.matching import Index
from contrada.model import Filter, FilterSet, Notification
from contrada.runtime.kernels import load_beside
from contrada.runtime.outlet import Outlet

P = TypeVar("P")

SUBSCRIPTIONS_MAX: Final = 1_000_000
"""Subscriptions of one exchange; more are refused."""

UPKEEP_UNITS: Final = 8
"""Units of the index's upkeep that are done with each subscription that ends."""

UPKEEP_UNITS_OF_NOTIFICATION: Final = 2
"""And with each notification, so that places follow what is published."""

QUEUE_FULL: Final = "queue full"
"""Why the newest is dropped: its subscriber stopped reading."""


@dataclass(frozen=True, slots=True)
class ExchangeStatistics:
    """Counts of notifications published, of their pairs with subscriptions, and of losses."""

    published: int
    matched: int
    subscriptions: int
    dropped: dict[str, int]


@dataclass(slots=True)
class Route(Generic[P]):
    """One subscription of an exchange, its outlet, and how many it lost here."""

    key: int
    outlet: Outlet[P]
    dropped: int = 0


class Exchange(Generic[P]):
    """Matches each notification once and puts it into the outlets that asked for it."""

    def __init__(self) -> None:
        self._index: Index[int] = Index(load=load_beside)
        self._routes: dict[int, Route[P]] = {}
        self._keys = itertools.count(1)
        self._published = 0
        self._matched = 0
        self._dropped: Counter[str] = Counter()

    def add(self, filters: Filter | FilterSet, outlet: Outlet[P]) -> Route[P]:
        """Put a subscription in force. Raises LimitError, UnknownOperatorError."""
        for operator in filters.unknown():
            raise UnknownOperatorError(operator)
        if len(self._routes) >= SUBSCRIPTIONS_MAX:
            raise LimitError("SUBSCRIPTIONS_MAX", SUBSCRIPTIONS_MAX)
        route = Route(next(self._keys), outlet)
        self._index.add(route.key, filters)
        self._routes[route.key] = route
        return route

    def remove(self, route: Route[P]) -> None:
        """Take a subscription out; twice is once. Publishers that wait for it go on."""
        if self._routes.pop(route.key, None) is not None:
            self._index.remove(route.key)
            # What the removed leave behind is cleared in pieces, as they go.
            self._index.maintain(UPKEEP_UNITS)
        route.outlet.finish()

    def offer(self, notification: Notification, item: P, size: int) -> list[Route[P]]:
        """Match and hand over at once; the routes that had no room are returned."""
        self._published += 1
        keys = self._index.match(notification)
        self._index.maintain(UPKEEP_UNITS_OF_NOTIFICATION)
        self._matched += len(keys)
        routes = self._routes
        return [route for key in keys if not (route := routes[key]).outlet.offer(item, size)]

    async def wait(self, routes: list[Route[P]], item: P, size: int, wait_s: float) -> int:
        """Hand over to routes that had no room, waiting for it; returns how many lost it.

        All are waited for at the same time, so that many dead readers delay no more than one.
        """
        waits = [route.outlet.put(item, size, wait_s) for route in routes]
        # One alone needs no task of its own.
        taken = [await waits[0]] if len(waits) == 1 else await asyncio.gather(*waits)
        lost = 0
        for route, was_taken in zip(routes, taken, strict=True):
            if was_taken or route.key not in self._routes:
                continue
            route.dropped += 1
            lost += 1
        if lost:
            self._dropped[QUEUE_FULL] += lost
        return lost

    def statistics(self) -> ExchangeStatistics:
        """The counts so far."""
        return ExchangeStatistics(
            self._published, self._matched, len(self._routes), dict(self._dropped)
        )
