"""`EmbeddedService`: the service inside this process, without a server or a wire.

A publication is matched once, and the notification itself is put into the queue of each
subscription. A publisher waits for full queues, see `SubscriptionQueue`. It gives the event loop a
turn regularly, so that subscribers in the same loop read while it publishes. Above best effort, a
`DeliveryHost`, made at first use, delivers to durable subscriptions.
"""

import asyncio
import itertools
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from contrada.delivery.delivery_class import BEST_EFFORT, delivery_class
from contrada.delivery.store import Store
from contrada.errors import ServiceClosedError, ServiceError, TooSlowError
from contrada.model import Envelope, Filter, FilterSet, Notification, Pattern
from contrada.model.algebra.notification import OWN
from contrada.model.domains.values import TIME_MAX_US
from contrada.routing.delegation import SubscribePattern
from contrada.routing.router_messages import Publish, Subscribe
from contrada.service.base_service import BaseService, BatchSorter
from contrada.service.connection_states import ConnectionStates
from contrada.service.dispatch_routes import Pending, Route
from contrada.service.dispatcher import Dispatcher, new_router
from contrada.service.envelope_factory import EnvelopeFactory, of_one, runs_of, with_identity
from contrada.service.interface import ConnectionState, ServiceStatistics
from contrada.service.loop_guards import (
    batches_of,
    check_loop,
    checked_wait,
    off_loop,
    tell_published,
)
from contrada.service.offers import LocalOfferBoard
from contrada.service.queued_subscription import QueuedSubscription
from contrada.service.requests import (
    dissemination_of,
    is_above_best_effort,
    publication_of,
    reading_of,
    with_delivery,
)
from contrada.service.service_limits import CoreLimits, ServiceLimits
from contrada.service.story import Story, story_of
from contrada.service.subjects import Item, PublishOptions
from contrada.service.subscription_queue import (
    PUBLISH_WAIT_S,
    USUAL_QUEUE,
    QueueSettings,
    SubscriptionQueue,
)
from contrada.service.timekeeper import Timekeeper

if TYPE_CHECKING:  # Loaded when something is with_delivery, or asked.
    from contrada.service.delivery_host import DeliveryHost
    from contrada.service.query.query_client import QueryClient
    from contrada.service.security.signatures import Signer

T = TypeVar("T")
P = TypeVar("P")

PUBLISHES_PER_TURN: Final = 128
"""Notifications that a publisher delivers in one go. Beyond it: the event loop gets a turn."""


SERVER: Final = "embedded"
"""The name of the server in its store."""

_END_OF_TIME_US: Final = TIME_MAX_US + 1
"""A time after all publications."""


class EmbeddedService(BaseService):
    """A whole publish/subscribe service in this process and this event loop."""

    _offers: LocalOfferBoard

    def __init__(
        self,
        *,
        publisher: "str | Signer | None" = None,
        publish_wait_s: float = PUBLISH_WAIT_S,
        store: str | Path | Store | None = None,
        on_connection: Callable[[ConnectionState], object] | None = None,
        dispatcher: Dispatcher | None = None,
        limits: CoreLimits | None = None,
    ) -> None:
        """`publish_wait_s` bounds the wait for a full queue; 0 drops at once.

        `store` is a file or the URL of a database, opened and closed with the service, or a store
        that its owner closes. `dispatcher` is that of its server in a network.
        """
        self._limits = limits or CoreLimits()
        super().__init__(self._limits.service)
        self._states = ConnectionStates(on_connection)
        self._publish_wait_s = checked_wait(publish_wait_s)
        self._stamp = EnvelopeFactory(publisher)
        self._stamped = self._stamp.stamped
        self.now_us = self._stamp.now_us
        if dispatcher is None:
            own, patterns = self._limits, self._limits.patterns
            options = {} if patterns is None else {"pattern_limits": patterns}
            dispatcher = Dispatcher(new_router(limits=own.router, **options), own.service)
        self.dispatcher = dispatcher
        self.client = self.dispatcher.client()
        self._offers = LocalOfferBoard(self.dispatcher, self.client, self.require_open)
        self.subscriptions: set[EmbeddedSubscription[Any]] = set()
        self._identities = itertools.count(1)
        self._timekeeper = Timekeeper(self.dispatcher, self.now_us, self._publish_wait_s)
        self.dispatcher.on_due = self._keep_time
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = "new"
        self._closes = asyncio.Lock()
        self._since_turn = 0
        if store is not None:
            from contrada.service.stores.store_location import check_store

            check_store(store)
        self._store = store
        self._host: DeliveryHost | None = None
        self._queries: QueryClient | None = None

    async def open(self) -> None:
        """Starts it. A closed service stays closed. Raises StoreError for an unusable store."""
        if self._state == "closed":
            raise ServiceClosedError("this service is closed; connect anew")
        if self._state == "new":
            if self._store is not None:
                self._make_host()
            self._loop = asyncio.get_running_loop()
            self._state = "open"
            self._begin()
        check_loop(self._loop)

    def _begin(self) -> None:
        self._states.change(ConnectionState("connected"))

    def _make_host(self) -> "DeliveryHost":
        store = self._store
        if isinstance(store, str | Path):
            from contrada.service.stores.store_location import open_sound

            self._host = open_sound(store, self._new_host)
        else:
            self._host = self._new_host(store)
        return self._host

    def _new_host(self, store: Store | None) -> "DeliveryHost":
        from contrada.service.delivery_host import DeliveryHost

        parts = SERVER, store, self._stamp.now_us, self.dispatcher, self.client
        return DeliveryHost(*parts, limits=self._limits.delivery)

    def _opened_host(self) -> "DeliveryHost | None":
        return self._host

    def delivery(self) -> "DeliveryHost":
        self.require_open()
        return self._opened_host() or self._make_host()

    async def aclose(self) -> None:
        async with self._closes:  # A second call returns when it is closed, too.
            is_open = self._state == "open"
            if is_open:
                check_loop(self._loop)
            self._state = "closed"
            try:
                if is_open:
                    await self._end_all()
            finally:  # Also when the caller is cancelled.
                self._states.change(ConnectionState("closed"))

    async def _end_all(self) -> None:
        # The last notification was published, so patterns wait for no earlier one.
        pending = self.dispatcher.pass_time(_END_OF_TIME_US)
        self._timekeeper.cancel()
        for subscription in list(self.subscriptions):
            subscription.end()
        self._offers.end()
        try:
            if self._queries is not None:
                await self._queries.aclose()
            if pending:
                await self.dispatcher.wait(pending, 0)  # These queues are full: it is counted.
            await self._timekeeper.ended()  # Its matches are counted, too.
        finally:  # Also when the caller is cancelled: the store would stay locked.
            if self._host is not None:
                try:
                    await self._host.aclose()
                finally:
                    if isinstance(self._store, str | Path):
                        await off_loop(self._host.store.close)  # type: ignore[union-attr]

    async def publish(self, item: Item, **options: Unpack[PublishOptions]) -> Envelope:
        if not options:  # As mostly.
            made = of_one(item, self._stamp.stamp_dicts)
            if made:
                self._check_open()
                envelope = made[0].envelope
                rest = self._deliver(made, envelope.time_us)  # type: ignore[arg-type]
                if rest is not None:
                    await rest
                return envelope
        notification = publication_of(item, options)
        if (elsewhere := dissemination_of(item)) is not None:
            return await self._publish_elsewhere(elsewhere, notification, options.get("delivery"))
        if notification.envelope is not OWN and notification.envelope.delivery != BEST_EFFORT:
            stamped = await self._publish_promised([with_identity(notification)])
        else:
            stamped, rest = self._hand_over([notification])
            if rest is not None:
                await rest
        return stamped[0].envelope

    async def publish_batch(
        self, items: Iterable[Item] | AsyncIterable[Item], *, delivery: str | None = None
    ) -> int:
        count = 0
        sorting = BatchSorter(self._publish_elsewhere)
        try:
            make = self._stamp.stamp_dicts if delivery is None else None
            async for every in batches_of(items, PUBLISHES_PER_TURN, sorting.made, make):
                batch = await sorting.own(every, delivery)
                count += len(every) - len(batch)
                if delivery is not None:
                    batch = [with_delivery(each, delivery) for each in batch]
                if is_above_best_effort(batch):
                    for run in runs_of(batch):
                        await self._publish_promised(run)
                        count += len(run)
                    continue
                _, rest = self._hand_over(batch)
                count += len(batch)
                if rest is not None:
                    await rest
        except Exception as error:
            tell_published(error, count)
            raise
        return count

    async def _publish_promised(self, run: Sequence[Notification]) -> Sequence[Notification]:
        """Publishes notifications of one delivery class, until they are accepted.

        Returns them as stamped.
        """
        if not delivery_class(run[0].envelope.delivery).is_reliable:
            stamped, rest = self._hand_over(run)
            if rest is not None:
                await rest
            return stamped
        host = self.delivery()
        await host.wait_for_network()
        # Before a restart, or by a caller with numbers of its own, more numbers may be in use.
        self._stamp.go_on_after(host.server.sequence_of(self._stamp.publisher))
        now_us = self._stamp.now_us()
        stamped = self._stamped(run, now_us)
        (outcome,) = host.publish([stamped])
        fresh = tuple(await outcome)
        pending = self.dispatcher.publish(self.client, Publish(fresh), now_us) if fresh else []
        self._since_turn += len(stamped)
        await self._settle(pending)
        await host.committed()
        return stamped

    def _new_subscription(
        self, subject: Any, where: Any, queue: QueueSettings
    ) -> "EmbeddedSubscription[Any]":
        return EmbeddedSubscription(self, *reading_of(subject, where), settings=queue)

    async def unsubscribe(self, durable: str) -> None:
        host = self.delivery()
        await host.wait_for_network()
        host.end(durable)
        await host.committed()

    def _query_client(self) -> "QueryClient":
        if self._queries is None:
            from contrada.service.query.query_client import LocalQueryClient

            self._queries = LocalQueryClient(
                *(self.dispatcher, self.client, self._stamp, self.require_open), self.service_limits
            )
        return self._queries

    def statistics(self) -> ServiceStatistics:
        found = self.dispatcher.statistics()
        host = self._opened_host()
        return found if host is None else replace(found, delivery=host.server.statistics())

    async def story(self, identity: str) -> Story:
        from contrada.service.story_reader import read_story

        self.require_open()
        # A bare `yield` in an awaited generator gives the event loop a turn.
        found = await coroutine(read_story)(self.dispatcher, [identity])
        return story_of(identity, {self.dispatcher.router.name: found}, {})

    def _hand_over(
        self, notifications: Sequence[Notification]
    ) -> tuple[Sequence[Notification], Coroutine[Any, Any, None] | None]:
        """Publishes to all queues with room; returns the stamped notifications, and the wait.

        The wait, if any, is a coroutine: awaiting each notification would cost more than its match.
        """
        self._check_open()
        now_us = self._stamp.now_us()
        stamped = self._stamped(notifications, now_us)
        return stamped, self._deliver(stamped, now_us)

    def _deliver(
        self, stamped: Sequence[Notification], now_us: int
    ) -> Coroutine[Any, Any, None] | None:
        """Publishes as `_hand_over`, what is stamped already; returns the wait."""
        pending, error = self.dispatcher.take(self.client, Publish(tuple(stamped)), now_us)
        if error is not None:
            raise error
        self._since_turn += len(stamped)
        if pending or self._since_turn >= PUBLISHES_PER_TURN:
            return self._settle(pending)
        return None

    def _check_open(self) -> None:
        """As `require_open`, at less cost."""
        try:
            if asyncio.get_running_loop() is self._loop and self._state == "open":
                return
        except RuntimeError:  # In a process forked from the one where the loop ran.
            pass
        self.require_open()

    def _keep_time(self, due_us: int) -> None:
        """Starts the timekeeper while patterns wait, if notifications are stamped by the clock."""
        if self._stamp.has_told_time:
            self._timekeeper.wake(due_us)

    async def _settle(self, pending: list[Pending[Any]]) -> None:
        """Waits for room, and gives the event loop a turn when it is due."""
        if pending:
            await self.dispatcher.wait(pending, self._publish_wait_s)
        if self._since_turn >= PUBLISHES_PER_TURN:
            self._since_turn = 0
            await asyncio.sleep(0)

    def require_open(self) -> None:
        """Raises unless the service is open."""
        if self._state == "closed":
            raise ServiceClosedError("the service is closed")
        if self._state == "new":
            raise ServiceError("use the service inside `async with`")
        check_loop(self._loop)

    def queue_of(
        self, subscription: "EmbeddedSubscription[Any]", settings: QueueSettings
    ) -> SubscriptionQueue[Any]:
        """A new queue for a subscription."""
        return LocalQueue(self.now_us, settings, subscription.cut_off, self.service_limits)

    def name_of_request(self) -> str:
        return str(next(self._identities))


class LocalQueue(SubscriptionQueue[Any]):
    """The queue of a subscription, which may end the subscription when it is full."""

    __slots__ = ("_cut_off",)

    def __init__(
        self,
        clock: Callable[[], int],
        settings: QueueSettings,
        cut_off: Callable[[], None],
        limits: ServiceLimits = ServiceLimits(),
    ) -> None:
        super().__init__(
            notifications_max=settings.queue_max or limits.queue_notifications_max,
            bytes_max=settings.queue_bytes or limits.queue_bytes_max,
            clock=clock,
            when_full=settings.when_full,
        )
        self._cut_off = cut_off

    def cut_off(self) -> None:
        """Ends the subscription of the full queue."""
        self._cut_off()


class EmbeddedSubscription(QueuedSubscription[T]):
    """A subscription of the embedded service, to filters or to a pattern."""

    def __init__(
        self,
        service: EmbeddedService,
        filters: Filter | FilterSet,
        reader: Callable[[Any], T] | None,
        residue: Callable[[Notification], bool] | None = None,
        pattern: Pattern | None = None,
        settings: QueueSettings = USUAL_QUEUE,
    ) -> None:
        queue = service.queue_of(self, settings)
        super().__init__(filters, queue, reader, residue)
        self.pattern, self._service = pattern, service
        self._route: Route[Any] | None = None

    async def _enter(self) -> None:
        service, pattern = self._service, self.pattern
        service.require_open()
        identity = service.name_of_request()
        request: Subscribe | SubscribePattern = Subscribe(identity, self.filters)
        if pattern is not None:
            request = SubscribePattern(identity, pattern)
        self._route = service.dispatcher.subscribe(service.client, request, self.queue)
        service.subscriptions.add(self)

    async def _replace(self) -> None:
        assert self._route is not None, "it was put in force"
        assert self._next is not None, "it is updated"
        self._service.require_open()
        dispatcher, draft = self._service.dispatcher, self._route.draft()
        dispatcher.enter(draft, Subscribe("", self._next))
        dispatcher.replace(self._route, draft)
        while dispatcher.withdraw(draft):
            pass

    def cut_off(self) -> None:
        """Ends the subscription, whose queue is full."""
        self.end(TooSlowError())
        self._withdraw()

    async def _leave(self) -> None:
        self._withdraw()

    def _withdraw(self) -> None:
        assert self._route is not None, "it was put in force"
        self._service.dispatcher.unsubscribe(self._route)
        self._service.subscriptions.discard(self)

    def _lost_before(self) -> tuple[int, int]:
        route = self._route
        return (route.dropped, route.expired) if route else (0, 0)
