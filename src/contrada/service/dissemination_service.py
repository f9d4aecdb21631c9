"""How a service uses the disseminations that are registered with it.

Obvents whose class chose a dissemination are published there alone. A subscription that such
obvents may match is entered there, too, narrowed to them. `MergedSubscription` merges what comes
from there and from the service.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from contrada.errors import ContradaError, ServiceError
from contrada.model import Envelope, Filter, FilterSet, Notification, Pattern
from contrada.model.algebra.sets import eq
from contrada.routing.duplicates import Duplicates
from contrada.service.dissemination import dissemination_of, not_registered
from contrada.service.interface import Disseminates, Subscription, SubscriptionStatistics, WhenFull
from contrada.service.loop_guards import checked_when_full
from contrada.service.query.querying_service import QueryingService
from contrada.service.queued_subscription import QueuedSubscription
from contrada.service.requests import (
    filters_of,
    narrowing_of,
    notification_of,
    reader_of,
    residue_of,
)
from contrada.service.subjects import Item
from contrada.service.subscription_queue import SubscriptionQueue, entry_of

DISSEMINATIONS_MAX: Final = 64
"""Disseminations that are registered with a service. Beyond it: ServiceError."""

_DISSEMINATED: Final = Filter({"@is.Disseminated": eq(True)})
"""The notifications of the class `Disseminated`."""

MERGED_WAITING_MAX: Final = 256
"""Notifications that wait where several ways are merged. Beyond it: the others wait on their ways,
where what is dropped is decided as `when_full` says."""


class DisseminatingService(QueryingService):
    """A service with which disseminations can be registered."""

    _disseminations: dict[str, Disseminates] | None = None

    def register_dissemination(self, name: str, dissemination: Disseminates) -> None:
        """What a class chooses by a name; see `Service.register_dissemination`."""
        if not name:
            raise ServiceError(f"name = {name!r}: expected the name of a dissemination")
        held = {} if self._disseminations is None else self._disseminations
        if name in held:
            raise ServiceError(f"the dissemination {name!r} is registered already")
        if len(held) >= DISSEMINATIONS_MAX:
            raise ServiceError(f"{len(held)} disseminations are registered, and no more can be")
        self._disseminations = {**held, name: dissemination}

    def _dissemination(self, name: str) -> Disseminates:
        found = (self._disseminations or {}).get(name)
        if found is None:
            raise not_registered(name)
        return found

    async def _publish_elsewhere(
        self, name: str, notification: Notification, delivery: str | None
    ) -> Envelope:
        """Publishes on a dissemination. Raises ServiceError, also for a class above best effort."""
        if delivery is not None:
            reason = f"what goes by the dissemination {name!r} is published at best effort"
            raise ServiceError(f"delivery = {delivery!r}: {reason}")
        return await self._dissemination(name).publish(notification)

    def _merged(
        self,
        subject: Any,
        where: Any,
        when_full: WhenFull,
        subscribe: Callable[[Filter | FilterSet, None, WhenFull], Subscription[Notification]],
    ) -> Any:
        """A subscription that is entered at disseminations, too.

        None where no dissemination is registered, or the subject is a pattern. `subscribe` enters a
        subscription at the service alone. Raises ServiceError where a class chose a dissemination
        that is not registered.
        """
        name = _asked(subject)
        if name is not None:
            self._dissemination(name)
        if not self._disseminations or isinstance(subject, Pattern):
            return None
        checked_when_full(when_full)
        where = narrowing_of(subject, where)
        filters = filters_of(subject, where)
        elsewhere = _narrowed(filters)
        carried = [
            each.subscribe(
                elsewhere, when_full="drop-newest" if when_full == "block" else when_full
            )
            for each in self._disseminations.values()
            if not elsewhere.is_empty
        ]
        own = subscribe(filters, None, when_full)
        return MergedSubscription(
            own, carried, filters, reader_of(subject), residue_of(subject, where)
        )


def check_standing(subject: Any) -> None:
    """Raises ServiceError for a class whose obvents cannot be kept for a durable subscription."""
    name = _asked(subject)
    if name is not None:
        reason = f"goes by the dissemination {name!r}, which keeps nothing for who is away"
        raise ServiceError(f"{subject.__qualname__} {reason}: subscribe without options")


class BatchSorter:
    """Makes notifications of the items of a batch; publishes obvents with a dissemination there.

    All other items keep their order.
    """

    def __init__(
        self,
        publish: Callable[[str, Notification, str | None], Any],
        make: Callable[[Item], Any] = notification_of,
    ) -> None:
        self._publish = publish
        self._make = make
        self._elsewhere: dict[int, str] = {}

    def made(self, item: Item) -> Any:
        """What is made of an item. Raises as `notification_of`."""
        name = None if type(item) is dict else dissemination_of(item)  # A dict as mostly.
        if name is None:
            return self._make(item)
        notification = notification_of(item)
        self._elsewhere[id(notification)] = name
        return notification

    async def own(self, batch: Sequence[Any], delivery: str | None) -> Sequence[Any]:
        """Those of a batch that are the service's own; the others are published."""
        if not self._elsewhere:
            return batch
        rest = []
        for each in batch:
            name = self._elsewhere.pop(id(each), None)
            if name is None:
                rest.append(each)
            else:
                await self._publish(name, each, delivery)
        return rest


class MergedSubscription(QueuedSubscription[Any]):
    """What comes at a service and by disseminations, each notification once."""

    __slots__ = ("_came", "_carried", "_own", "_room", "_works")

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
        self._own = own
        self._carried = carried
        self._came = Duplicates()
        self._room = asyncio.Semaphore(MERGED_WAITING_MAX)
        self._works: list[asyncio.Task[None]] = []

    def statistics(self) -> SubscriptionStatistics:
        """What was delivered and dropped so far, on all ways."""
        merged = super().statistics()
        ways = [each.statistics() for each in (self._own, *self._carried)]
        dropped = sum((Counter(each.dropped) for each in ways), Counter(merged.dropped))
        queued = merged.queued + sum(each.queued for each in ways)
        return SubscriptionStatistics(
            merged.delivered, queued, dict(dropped), merged.failed, ways[0].reconnects
        )

    def count_lost(self, reason: str, count: int, size: int) -> None:
        """So many were dropped in the outlet."""
        self.count_dropped(reason, count)
        for _ in range(count):
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
                async with self._room:  # What the others hold comes before, as there is room.
                    await asyncio.sleep(0)
        if failure is not None or way is self._own:
            self.end(failure)

    async def _replace(self) -> None:
        assert self._next is not None, "it is updated"
        await self._own.update(self._next)
        for each in self._carried:
            await each.update(_narrowed(self._next))

    async def _leave(self) -> None:
        for work in self._works:
            work.cancel()
        for each in (self._own, *self._carried):
            await each.unsubscribe()

    def _taken(self, size: int) -> None:
        self._room.release()

    def _lost_before(self) -> tuple[int, int]:
        return 0, 0


def _asked(subject: Any) -> str | None:
    """The dissemination that a class chose which is subscribed."""
    if not isinstance(subject, type) or not hasattr(subject, "chosen_dissemination"):
        return None
    return getattr(subject, "dissemination", None)


def _narrowed(filters: Filter | FilterSet) -> Filter | FilterSet:
    """Filters narrowed to the obvents whose class chose a dissemination."""
    return filters & _DISSEMINATED
