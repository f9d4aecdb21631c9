"""A subscription that reads from an outlet, whoever fills it.

The embedded service fills the outlet from its exchange, the TCP client from what its broker
delivers. How it is put in force and taken out differs; what the subscriber sees does not.
"""

import asyncio
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

from contrada.errors import ContradaError, ServiceClosedError, ServiceError
from contrada.model import Filter, FilterSet, Notification
from contrada.runtime.outlet import Outlet
from contrada.service import Subscription, SubscriptionStatistics

T = TypeVar("T")
P = TypeVar("P")

UNREADABLE: Final = "unreadable"
"""Why a notification is dropped: the subscriber's own type cannot hold it."""

UNSUBSCRIBED: Final = "unsubscribed"
"""Why a notification is dropped: it still waited when its subscription ended."""


class QueuedSubscription(Subscription[T], Generic[T, P]):
    """Reads entries of kind P from its outlet and gives objects of type T."""

    def __init__(
        self,
        filters: Filter | FilterSet,
        outlet: Outlet[P],
        reader: Callable[[Notification], T] | None,
    ) -> None:
        self._filters = filters
        self._outlet = outlet
        self._reader = reader
        self._opened = False
        self._changing = asyncio.Lock()
        self._failure: ContradaError | None = None
        self._delivered = 0
        self._dropped: Counter[str] = Counter()

    @property
    def filters(self) -> Filter | FilterSet:
        """What is asked for."""
        return self._filters

    async def open(self) -> None:
        """Put it in force; returns when the service has acknowledged. Twice is once."""
        async with self._changing:
            if self._outlet.finished:
                raise ServiceClosedError("this subscription has ended; subscribe anew")
            if not self._opened:
                await self._enter()
                self._opened = True

    async def unsubscribe(self) -> None:
        """End it. Nothing is delivered afterwards; what still waited is dropped and counted."""
        held = self._outlet.discard()
        if held:
            self._dropped[UNSUBSCRIBED] += held
        async with self._changing:  # What is just being put in force is taken out then.
            if self._opened:
                self._opened = False
                await self._leave()

    def statistics(self) -> SubscriptionStatistics:
        """What was delivered and dropped so far."""
        return SubscriptionStatistics(
            self._delivered, len(self._outlet), dict(self._dropped + self._dropped_elsewhere())
        )

    def end(self, failure: ContradaError | None = None) -> None:
        """The service has ended: iteration ends after what is held, with the failure if any."""
        if not self._outlet.finished:
            self._failure = failure
            self._outlet.finish()

    async def __anext__(self) -> T:
        outlet = self._outlet
        while True:
            while outlet:
                item, size = outlet.take()
                self._taken(size)
                try:
                    found = self._content(item)
                    read = self._reader(found) if self._reader else cast(T, found)
                except ContradaError:
                    self._dropped[UNREADABLE] += 1
                    continue
                self._delivered += 1
                return read
            if outlet.finished:
                if self._failure is not None:
                    raise self._failure
                raise StopAsyncIteration
            if not self._opened:
                raise ServiceError("iterate a subscription inside its own `async with`")
            await outlet.arrival()

    @abstractmethod
    async def _enter(self) -> None:
        """Put it in force at the service."""

    @abstractmethod
    async def _leave(self) -> None:
        """Take it out at the service."""

    @abstractmethod
    def _content(self, item: P) -> Any:
        """The notification of an entry, or its match of a pattern."""

    def _taken(self, size: int) -> None:
        """An entry of this size has left the outlet."""

    def _dropped_elsewhere(self) -> "Counter[str]":
        """What was dropped before it came into the outlet, by reason."""
        return Counter()
