"""`WildSubscription`: a subscription whose names are patterns, and follow the names that there are.

The network is asked for filters over the names that are known, so that routers know nothing of
patterns; here, at the edge, each notification is decided by the patterns again. While new names
are heard of the filters are updated, without a gap: what was asked for before is asked for all the
time. A notification with a name of which nobody has heard comes only once its name is known here.

Source: Erenkrantz 2001 §6.4 (wildcards, without their burden on servers).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias

from contrada.errors import ContradaError, ServiceError
from contrada.integrations.documents.name_patterns import WildFilters
from contrada.integrations.documents.naming_table import NamingRecord
from contrada.integrations.feeds.name_client import Names
from contrada.integrations.feeds.naming_service import RECORDS_ASKED
from contrada.model import Filter, FilterSet, Notification
from contrada.model.rule import Rule
from contrada.service import Service, Subscription, SubscriptionStatistics, WhenFull
from contrada.service.async_resource import AsyncResource
from contrada.service.loop_guards import next_of

NAMES_FOLLOWED_MAX: Final = 65_536
"""Names that a subscription with patterns knows. Beyond it: it asks the network for what its filter
says beside patterns alone, which is more traffic, and never less that comes."""

FollowedSubject: TypeAlias = WildFilters | Filter | FilterSet | str | Mapping[str, Any]


class WildSubscription(AsyncResource, AsyncIterator[Notification]):
    """A standing request with patterns of names; iterate it inside its own `async with`."""

    def __init__(
        self,
        service: Service,
        asked: FollowedSubject,
        known: Iterable[str] = (),
        *,
        names: Names | None = None,
        when_full: WhenFull = "block",
    ) -> None:
        """`known` are names that there are; with `names` also those that naming services know.

        Raises as `WildFilters` and `Service.subscribe`.
        """
        self._service = service
        self._names = names
        self._asked = _wild(asked)
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
        """The names that are known here."""
        return frozenset(self._known)

    @property
    def filters(self) -> Filter | FilterSet:
        """What the network is asked for."""
        return self._subscription.filters

    async def open(self) -> None:
        """Put it in force, with all names that naming services know.

        Raises as `Subscription.open`, and ServiceError where no naming service answers.
        """
        async with AsyncExitStack() as opened:
            if self._names is not None:
                # Heard of first, and asked for then: no name falls between the two.
                told = await opened.enter_async_context(self._service.subscribe(RECORDS_ASKED))
                self._learn(record.generated for record in await self._names.all())
                works = [self._hear(told), self._follow()]
                tasks = [asyncio.create_task(self._guarded(work)) for work in works]
                opened.push_async_callback(_stopped, tasks)
                await self._refresh()
            await opened.enter_async_context(self._subscription)
            self._running = opened.pop_all()

    async def learn(self, names: Iterable[str]) -> None:
        """Know more names; returns when the filters with them are subscribed.

        Raises as `update`.
        """
        self._learn(names)
        await self._refresh()

    async def update(self, asked: FollowedSubject) -> None:
        """Ask for something else, without a gap. Raises as `Subscription.update`."""
        new = _wild(asked)
        async with self._updating:
            before, self._asked = self._asked, new
            try:
                await self._subscription.update(self._rule())
            except BaseException:
                self._asked = before
                raise

    async def unsubscribe(self) -> None:
        """End it. Nothing is delivered afterwards."""
        await self._subscription.unsubscribe()
        await self._running.aclose()

    def statistics(self) -> SubscriptionStatistics:
        """What was delivered and dropped so far."""
        return self._subscription.statistics()

    async def __anext__(self) -> Notification:
        """The next one; raises also what kept it from following names."""
        try:
            return await anext(self._subscription)
        except StopAsyncIteration:
            if self._failed is not None:
                raise self._failed from None
            raise

    async def next(self, timeout_s: float | None = None) -> Notification:
        """The next one, within so many seconds; see `Subscription.next`."""
        return await next_of(self, timeout_s)

    async def _end(self) -> None:
        await self.unsubscribe()

    def _learn(self, names: Iterable[str]) -> None:
        if self._is_wide:
            return
        self._known.update(names)
        if len(self._known) > NAMES_FOLLOWED_MAX:
            self._is_wide = True
            self._known.clear()

    def _rule(self) -> Rule:
        if self._is_wide:
            return self._asked.rule()
        filters = self._asked.cover(self._known)
        if not filters.filters:  # Nothing is known: what has the very pattern as its name is none.
            filters = FilterSet(self._asked.asked)
        return self._asked.rule_over(filters)

    async def _refresh(self) -> None:
        """Ask for what matches by the names that are known now."""
        async with self._updating:
            await self._subscription.update(self._rule())

    async def _hear(self, told: Subscription[Notification]) -> None:
        async for each in told:
            try:
                name = NamingRecord.from_notification(each).generated
            except ContradaError:
                continue  # Naming services count and tell of these.
            if name not in self._known and not self._is_wide:
                self._learn((name,))
                self._heard.set()

    async def _follow(self) -> None:
        while True:
            await self._heard.wait()
            self._heard.clear()
            await self._refresh()

    async def _guarded(self, work: Any) -> None:
        """Without new names it would lose in silence: so it ends, and says why."""
        try:
            await work
        except ServiceError as error:
            self._failed = error
            await self._subscription.unsubscribe()


def _wild(asked: FollowedSubject) -> WildFilters:
    return asked if isinstance(asked, WildFilters) else WildFilters(asked)


async def _stopped(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
