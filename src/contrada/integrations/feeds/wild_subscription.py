"""`WildSubscription`: a subscription with patterns of names, which follows the known names.

The network receives filters over the known names, so routers need no patterns; the subscriber
decides each notification by the patterns again. The filters are updated when new names are
announced, without a gap. A notification with an unknown name is received only after its name is
known here.

Source: Erenkrantz 2001 §6.4 (wildcards, without their burden on servers).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

from contrada.errors import ContradaError, NotPermittedError, ServiceClosedError, ServiceError
from contrada.integrations.documents.name_patterns import WildFilters
from contrada.integrations.documents.naming_table import NamingRecord
from contrada.integrations.feeds.feed_limits import FeedLimits
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.feeds.naming_service import RECORDS_ASKED
from contrada.model import Filter, FilterSet, Notification
from contrada.model.rule import Rule
from contrada.service import Service, Subscription, SubscriptionStatistics, WhenFull
from contrada.service.async_resource import AsyncResource
from contrada.service.connection_states import reconnections
from contrada.service.loop_guards import next_of, stop_tasks

FollowedSubject: TypeAlias = WildFilters | Filter | FilterSet | str | Mapping[str, Any]


class WildSubscription(AsyncResource, AsyncIterator[Notification]):
    """A subscription with patterns of names; iterate it inside its own `async with`."""

    def __init__(
        self,
        service: Service,
        asked: FollowedSubject,
        known: Iterable[str] = (),
        *,
        names: Names | None = None,
        when_full: WhenFull = "block",
        limits: FeedLimits = FeedLimits(),
    ) -> None:
        """`known` adds to those of `names`. Raises as `WildFilters` and `Service.subscribe`."""
        self._service = service
        self._names = names
        self._limits = limits
        self._wild = _to_wild(asked)
        self._known: set[str] = set(known)
        self._is_wide = False
        self._subscription: Subscription[Notification] = service.subscribe(
            self._rule(), when_full=when_full
        )
        self._running = AsyncExitStack()
        self._heard = asyncio.Event()
        self._updating = asyncio.Lock()
        self._failed: Exception | None = None

    @property
    def known(self) -> frozenset[str]:
        """The known names."""
        return frozenset(self._known)

    @property
    def filters(self) -> Filter | FilterSet:
        """The filters that the network receives."""
        return self._subscription.filters

    async def open(self) -> None:
        """Subscribes. Raises as `Subscription.open`, and if no naming service answers."""
        async with AsyncExitStack() as opened:
            if self._names is not None:
                # Heard of first, and asked for then: no name falls between the two.
                records = await opened.enter_async_context(self._service.subscribe(RECORDS_ASKED))
                self._learn(record.generated for record in await self._names.all())
                works = [self._hear(records), self._follow(), self._ask_again(self._names)]
                tasks = [asyncio.create_task(self._guarded(work)) for work in works]
                opened.push_async_callback(stop_tasks, tasks)
                await self._refresh()
            await opened.enter_async_context(self._subscription)
            self._running = opened.pop_all()

    async def learn(self, names: Iterable[str]) -> None:
        """Adds names; returns when their filters are subscribed. Raises as `update`."""
        self._learn(names)
        await self._refresh()

    async def update(self, asked: FollowedSubject) -> None:
        """Changes the filter, without a gap. Raises as `Subscription.update`."""
        new = _to_wild(asked)
        async with self._updating:
            before, self._wild = self._wild, new
            try:
                await self._subscription.update(self._rule())
            except BaseException:
                self._wild = before
                raise

    async def unsubscribe(self) -> None:
        """Unsubscribes. Nothing is delivered afterwards."""
        async with self._running:  # It ends the tasks also if the broker is away.
            await self._subscription.unsubscribe()

    def statistics(self) -> SubscriptionStatistics:
        """Returns counts of delivered and dropped notifications."""
        return self._subscription.statistics()

    async def __anext__(self) -> Notification:
        """Returns the next notification; also raises an error that ended the following of names."""
        try:
            return await anext(self._subscription)
        except StopAsyncIteration:
            if self._failed is not None:
                raise self._failed from None
            raise

    async def next(self, timeout_s: float | None = None) -> Notification:
        """Returns the next notification, within so many seconds; see `Subscription.next`."""
        return await next_of(self, timeout_s)

    async def aclose(self) -> None:
        """Ends it, as `unsubscribe`."""
        await self.unsubscribe()

    def _learn(self, names: Iterable[str]) -> None:
        if self._is_wide:
            return
        self._known.update(names)
        if len(self._known) > self._limits.names_followed_max:
            self._is_wide = True
            self._known.clear()

    def _rule(self) -> Rule:
        if self._is_wide:
            return self._wild.rule()
        filters = self._wild.cover(self._known)
        # If no name is known: no attribute has the pattern itself as its name.
        asked = filters if filters.filters else FilterSet(self._wild.filters)
        return self._wild.rule(filters=asked)

    async def _refresh(self) -> None:
        async with self._updating:
            await self._subscription.update(self._rule())

    async def _hear(self, records: Subscription[Notification]) -> None:
        async for each in records:
            try:
                name = NamingRecord.from_notification(each).generated
            except ContradaError:
                continue  # Naming services count and log these.
            if name not in self._known and not self._is_wide:
                self._learn((name,))
                self._heard.set()

    async def _follow(self) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            await self._refresh()

    async def _ask_again(self, names: Names) -> None:
        """Asks for all names after a lost connection: some may have been announced meanwhile."""
        async for _ in reconnections(self._service.connection_states()):
            while True:
                try:
                    self._learn(record.generated for record in await names.all())
                    break
                except (ServiceClosedError, NotPermittedError):
                    raise
                except ServiceError:  # Naming services may be away, too.
                    await asyncio.sleep(self._limits.names_query_again_s)
            self._heard.set()

    async def _guarded(self, work: Any) -> None:
        """Runs a task; its error ends the subscription, which would lose notifications silently."""
        try:
            await work
        except ContradaError as error:
            self._failed = error
            await self._subscription.unsubscribe()


def _to_wild(asked: FollowedSubject) -> WildFilters:
    return asked if isinstance(asked, WildFilters) else WildFilters(asked)
