"""`MergedSubscription`: a subscription at a service and at the disseminations of that service.

Obvents of a class with a dissemination are published there alone. So a subscription that may
match such obvents is entered there, too, with filters narrowed to them, and the notifications of
all ways are merged.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from contrada.delivery.backlog import QueueEntry
from contrada.errors import ContradaError
from contrada.model import Filter, FilterSet, Notification
from contrada.model.algebra.sets import eq
from contrada.routing.duplicates import Duplicates
from contrada.service.interface import Disseminates, Subscription, SubscriptionStatistics
from contrada.service.queued_subscription import QueuedSubscription
from contrada.service.requests import filters_of, narrowing_of, reader_of, residue_of
from contrada.service.subscription_queue import QueueSettings, SubscriptionQueue, entry_of

_DISSEMINATED: Final = Filter({"@is.Disseminated": eq(True)})
"""The notifications of the class `Disseminated`: obvents with a dissemination."""

MERGED_WAITING_MAX: Final = 256
"""Notifications of all ways that wait for one reader. Beyond it: they wait on their ways, where
`when_full` decides."""


class MergedSubscription(QueuedSubscription[Any]):
    """The notifications of a service and of its disseminations, each once."""

    def __init__(
        self,
        own: Subscription[Notification],
        carried: Sequence[Subscription[Notification]],
        filters: Filter | FilterSet,
        reader: Callable[[Any], Any] | None,
        residue: Callable[[Notification], bool] | None,
    ) -> None:
        queue: SubscriptionQueue[Any] = SubscriptionQueue(
            notifications_max=MERGED_WAITING_MAX, bytes_max=2**62
        )
        queue.keeper = self
        super().__init__(filters, queue, reader, residue)
        self._report_bytes = 0
        self._own, self._carried = own, carried
        self._came = Duplicates()
        self._room = asyncio.Semaphore(MERGED_WAITING_MAX)
        self._works: list[asyncio.Task[None]] = []

    def statistics(self) -> SubscriptionStatistics:
        merged = super().statistics()
        ways = [each.statistics() for each in (self._own, *self._carried)]
        dropped = sum((Counter(each.dropped) for each in ways), Counter(merged.dropped))
        queued = merged.queued + sum(each.queued for each in ways)
        return SubscriptionStatistics(
            merged.delivered, queued, dict(dropped), merged.failed, ways[0].reconnects
        )

    def note_lost(self, reason: str, entries: Sequence[QueueEntry[Any]]) -> None:
        """Counts notifications that were dropped in the queue."""
        self.count_dropped(reason, len(entries))
        for _ in entries:
            self._room.release()

    async def _enter(self) -> None:
        opened = []
        try:
            for each in (self._own, *self._carried):
                await each.open()
                opened.append(each)
        except BaseException:
            for each in opened:
                await each.unsubscribe()
            raise
        self._works = [asyncio.ensure_future(self._take_from(each)) for each in opened]

    async def _take_from(self, way: Subscription[Notification]) -> None:
        """Merges the notifications of one subscription; when the service's own ends, all end."""
        failure: ContradaError | None = None
        try:
            async for each in way:
                if self._came.is_new(each.envelope.publisher, each.envelope.id):
                    await self._room.acquire()
                    self.queue.offer_all([entry_of(each)])
        except ContradaError as error:
            failure = error
        if way is self._own:
            for _ in range(1 + sum(each.statistics().queued for each in self._carried)):
                async with self._room:  # Their queued notifications first, as there is room.
                    await asyncio.sleep(0)
        if failure is not None or way is self._own:
            self.end(failure)

    async def _replace(self) -> None:
        assert self._next is not None, "it is updated"
        await self._own.update(self._next)
        for each in self._carried:
            await each.update(self._next & _DISSEMINATED)

    async def _leave(self) -> None:
        for work in self._works:
            work.cancel()
        async with AsyncExitStack() as left:  # All of them, also if one fails.
            for each in (self._own, *self._carried):
                left.push_async_callback(each.unsubscribe)

    def _report(self, count: int) -> None:
        for _ in range(count):
            self._room.release()


def merged_subscription(
    disseminations: Iterable[Disseminates],
    subject: Any,
    where: Any,
    queue: QueueSettings,
    subscribe: Callable[[Any, Any, QueueSettings], Subscription[Any]],
) -> MergedSubscription:
    """A subscription at a service and at each dissemination. Raises as `Service.subscribe`.

    `subscribe` makes the part at the service.
    """
    where = narrowing_of(subject, where)
    filters = filters_of(subject, where)
    elsewhere = filters & _DISSEMINATED
    when_full = "drop-newest" if queue.when_full == "block" else queue.when_full
    ways = () if elsewhere.is_empty else disseminations
    carried = [each.subscribe(elsewhere, when_full=when_full) for each in ways]
    own = subscribe(filters, None, queue)
    return MergedSubscription(own, carried, filters, reader_of(subject), residue_of(subject, where))
