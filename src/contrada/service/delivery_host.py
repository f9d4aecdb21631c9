"""`DeliveryHost`: a `DeliveryServer` on an event loop, with its clock, its timer and its disk.

What the machine does waits in the store until a *group* of it is brought to the disk, in a thread,
with one fsync; meanwhile the next group gathers. So the loop never waits for the disk, and many who
publish at the same time share an fsync. What readers are given goes to them after its group: no
position is seen that a crash could give to something else.

    publish, keep, acknowledge, open      machine        group 3 gathers
                                          store.seal     group 2 is brought (thread)
    readers, `committed`         <======                 group 1 is on the disk

Standing subscriptions are subscriptions of the exchange as well: what came for them at best effort
is read from an outlet by a task and kept, at the pace of the disk. What is promised comes to them
by the machine alone.

Invariant: what was done when `committed` is called is on stable storage when it returns.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from contrada.delivery.access_point import Confirmed, Failed
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_class import BEST_EFFORT, delivery_class
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    Closed,
    CloseLog,
    Consuming,
    DeliveryMessage,
    OpenLog,
    ReadLog,
    Records,
)
from contrada.delivery.delivery_server import RETRY_US, DeliveryEffect, DeliveryServer
from contrada.delivery.durable_log import Retention
from contrada.delivery.store import Store
from contrada.delivery.transit import SendMessage
from contrada.errors import (
    CannotPublishError,
    ContradaError,
    DeliveryError,
    ServiceClosedError,
    StoreError,
)
from contrada.model import FilterSet, Notification, Selection
from contrada.model.codec import notification_from_msgpack
from contrada.model.languages.work_budget import Unbounded
from contrada.routing.router_messages import Client, Neighbour, Subscribe
from contrada.service.dispatcher import Dispatcher, Route
from contrada.service.loop_guards import off_loop
from contrada.service.subscription_queue import Passed, SubscriptionQueue

KEPT_AT_ONCE: Final = 1_000
"""Notifications of best effort that are kept for a subscription in one step. Beyond it: the next
step takes the rest, when these are on the disk."""

NO_STORE: Final = "this service has no store: connect(store='events.db') gives it one"
_LOG: Final = logging.getLogger(__name__)
_RETRY_S: Final = RETRY_US / 1e6


class LogReader(Protocol):
    """Who reads a standing subscription here."""

    def given(self, said: Records | Closed) -> None:
        """Gets records, or is told that it gets no more."""
        ...

    def end(self, failure: ContradaError | None = None) -> None:
        """The service ends: says what is to be said yet, and reads no longer."""
        ...

    @property
    def newest(self) -> int:
        """The highest position that was read, or 0."""
        ...

    def begun_anew(self) -> None:
        """Its prefetched records come again, and the credit that it granted is void."""
        ...


class LogHost(Protocol):
    """Where standing subscriptions are read: the machine in this process, or a broker."""

    async def read(self, reader: LogReader, said: ReadLog) -> FilterSet:
        """A reader gets records, within its credit, until it leaves.

        Returns the subscription's filters.

        Raises DeliveryError where the subscription has other filters, or does not exist, there is
        no store, or it cannot be read from that position; LimitError, InvalidValueError,
        UnknownOperatorError, StoreError.
        """
        ...

    def consume(self, client: str, said: Consuming) -> None:
        """A reader says something."""
        ...

    def leave(self, said: CloseLog) -> None:
        """A reader reads no longer; twice is once. `ends`: and it was one in memory."""
        ...

    async def committed(self, client: str) -> None:
        """Returns when all that a reader said is on stable storage. Raises StoreError."""
        ...

    async def parted(self, client: str) -> None:
        """As `committed`, for a reader that ends. Returns at once where the connection is gone."""
        ...


_HostedRoute: TypeAlias = Route[Passed]


class _Keeping(NamedTuple):
    """How best effort comes to a standing subscription."""

    route: _HostedRoute
    task: asyncio.Task[None]


class DeliveryHost:
    """Owns the machine while its service is open; for one event loop."""

    def __init__(
        self,
        name: str,
        store: Store | None,
        now_us: Callable[[], int],
        dispatcher: Dispatcher,
        client: Client,
        *,
        sequencer: str = "",
        no_store: str = NO_STORE,
        tell: Callable[[Neighbour, DeliveryMessage], None] | None = None,
        acquainted: Callable[[], Awaitable[None]] | None = None,
        limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        """`client` is that of the exchange for which standing subscriptions ask.

        `tell` sends something to a neighbour, `acquainted` returns when what stands elsewhere is
        known, `no_store` says how there would be a store. Raises StoreError where the store cannot
        be read.
        """
        self.server = DeliveryServer(
            name, incarnation=now_us(), store=store, sequencer=sequencer, limits=limits
        )
        self.readers: dict[str, LogReader] = {}
        self.store = store
        self._now_us = now_us
        self._exchange, self._client = dispatcher, client
        self._tokens = itertools.count(1)
        self._no_store, self._tell, self._acquainted = no_store, tell, acquainted
        self._keeping: dict[str, _Keeping] = {}
        self._publishing: dict[int, asyncio.Future[Sequence[Notification]]] = {}
        self._ways: Mapping[str, str] = {}
        self._shown: list[
            HandRecords | SendMessage
        ] = []  # what others see when the group is on the disk
        self._group: asyncio.Future[None] | None = None  # the group that gathers
        self._brought: asyncio.Future[None] | None = None  # the one before it
        self._committing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_us: int | None = None
        self._is_closing = self._is_failing = False
        try:
            for each in self.server.subscriptions():
                terms = self.server.logs.terms(each)
                # Else it is at home elsewhere, or has dead letters alone.
                if terms is not None and not FilterSet(terms.filters.filters).is_empty:
                    self._keep_for(each, *self._asked_for(each, terms.filters))
        except ContradaError:  # An operator of a filter may not be registered this time.
            for each in list(self._keeping):
                self._forget(each)
            raise

    # --- what is done -------------------------------------------------------------------------

    def publish(
        self, notifications: Sequence[Notification]
    ) -> asyncio.Future[Sequence[Notification]]:
        """Publishes what is promised, of one publisher and class; what of it is no duplicate.

        It is accepted when `committed` returns after that. It fails with CannotPublishError,
        LimitError, InvalidValueError: then nothing is published.
        """
        outcome = asyncio.get_running_loop().create_future()
        envelope = notifications[0].envelope
        if self.store is None and delivery_class(envelope.delivery).is_certified:
            reason = f"{envelope.delivery!r}: {self._no_store}"
            outcome.set_exception(CannotPublishError("", reason=reason))
            return outcome
        token = next(self._tokens)
        self._publishing[token] = outcome
        publisher = envelope.publisher
        with Unbounded():  # Half of a step is worse than one that takes long.
            self._take(self.server.publish(token, publisher, notifications, self._now_us()))
        return outcome

    def consume(self, client: str, said: Consuming) -> None:
        """A reader says something."""
        with Unbounded():
            self._take(self.server.consume(client, said, self._now_us()))

    def arrive(self, publisher: str, past: Mapping[str, int]) -> None:
        """A publisher comes that was at other servers, in these lives of theirs.

        Raises LimitError.
        """
        if past:
            self._take(self.server.connect_publisher(publisher, past, self._now_us()))

    async def acquainted(self) -> None:
        """Returns when what stands elsewhere is known, as far as there is a network.

        Raises ServiceClosedError where it was closed meanwhile.
        """
        if self._acquainted is not None:
            await self._acquainted()
            if self._is_closing:
                raise ServiceClosedError("the service is closed")

    async def read(self, reader: LogReader, said: ReadLog) -> FilterSet:
        """A reader of a subscription, which begins where it does not stand; see `LogHost`."""
        await self.acquainted()
        filters = self.begin(reader, said)
        await self.committed()
        return filters

    def begin(self, reader: LogReader, said: ReadLog) -> FilterSet:
        """The same, in force once `committed` returns."""
        filters = self._stand(said)
        self.readers[said.consumer] = reader
        self.consume(said.consumer, OpenLog(said.name, said.consumer, said.position, said.time_us))
        return filters

    def leave(self, said: CloseLog) -> None:
        """A reader reads no longer; see `LogHost`."""
        if self.readers.pop(said.consumer, None) is None:
            return
        if not said.ends:
            self.consume(said.consumer, said)
        elif self.server.find(said.name) is not None:
            self.end(said.name)

    def _stand(self, said: ReadLog) -> FilterSet:
        """Begins a subscription, or checks that it has the filters that are asked for.

        Returns its filters.
        """
        name, terms = said.name, self.server.logs.terms(said.name)
        known = self.server.find(name)
        if known is not None and known[0] != self.server.name:
            return _as_known(said, known[0], known[2])
        if terms is None or terms.is_durable != said.is_durable:
            if said.filters is None:
                raise DeliveryError(
                    f"there is no durable subscription {name!r}; say its filters to begin it"
                )
            if said.position not in (None, 1):
                raise DeliveryError(
                    f"{name!r}: {said.position}: it begins only now, with position 1"
                )
            retention = said.retention or Retention()
            self.stand(name, said.filters, retention, is_durable=said.is_durable)
            return FilterSet(said.filters.filters)
        standing = FilterSet(terms.filters.filters)
        _check_filters(said, standing)
        if said.retention is not None and said.retention != terms.retention:
            raise DeliveryError(
                f"the durable subscription {name!r} has another retention, "
                f"{terms.retention}; end it first, or take another name"
            )
        return standing

    def stand(
        self, name: str, filters: Selection, retention: Retention, *, is_durable: bool
    ) -> None:
        """A standing subscription begins.

        Raises DeliveryError, LimitError, InvalidValueError, UnknownOperatorError, StoreError.
        """
        if self.store is None and is_durable:
            raise DeliveryError(f"{name!r}: {self._no_store}")
        route, queue = self._asked_for(name, filters)
        try:
            with Unbounded():  # Its cost was asked for, and paid, just before.
                effects = self.server.create_subscription(
                    name,
                    FilterSet(filters.filters),
                    self._now_us(),
                    retention,
                    is_durable=is_durable,
                )
        except ContradaError:
            with Unbounded():
                self._exchange.unsubscribe(route)
            raise
        self._keep_for(name, route, queue)
        self._take(effects)

    def end(self, name: str) -> None:
        """A standing subscription ends, with its log. Raises DeliveryError: there is none."""
        if self.server.find(name) is None:
            raise DeliveryError(f"there is no durable subscription {name!r}")
        self._forget(name)
        self.consume("", CloseLog(name, "", ends=True))

    def acknowledge(self, name: str, before: int) -> None:
        """All of a log here before a position is done with. Raises DeliveryError and others."""
        with Unbounded():
            self._take(self.server.acknowledge(name, before, self._now_us()))

    # --- neighbours ---------------------------------------------------------------------------

    def link_up(self, neighbour: Neighbour) -> None:
        """There is a link; to be said before `change_ways` says what leads over it."""
        self._take(self.server.link_up(neighbour, self._now_us()))

    def link_down(self, neighbour: Neighbour) -> None:
        """A link is gone."""
        self._take(self.server.link_down(neighbour, self._now_us()))

    def change_ways(self, ways: Mapping[str, str]) -> None:
        """These are the next servers on the ways to all; the same object where nothing changed."""
        if ways is not self._ways:
            self._ways = ways
            self._take(self.server.change_routes(ways, self._now_us()))

    def receive(self, neighbour: Neighbour, message: DeliveryMessage) -> None:
        """A neighbour says something."""
        self._take(self.server.receive(neighbour, message, self._now_us()))

    # --- best effort --------------------------------------------------------------------------

    def _asked_for(
        self, name: str, filters: Selection
    ) -> tuple[_HostedRoute, SubscriptionQueue[Passed]]:
        """Has the exchange put what matches into an outlet."""
        limits = self._exchange.limits
        queue: SubscriptionQueue[Passed] = SubscriptionQueue(
            notifications_max=limits.queue_notifications_max, bytes_max=limits.queue_bytes_max
        )
        request = Subscribe(name, FilterSet(filters.filters))
        return self._exchange.subscribe(self._client, request, queue), queue

    def _keep_for(self, name: str, route: _HostedRoute, queue: SubscriptionQueue[Passed]) -> None:
        self._keeping[name] = _Keeping(route, asyncio.create_task(self._keep(name, queue)))

    def _forget(self, name: str) -> None:
        """Nothing more is asked for; what waits for an ended one is kept nowhere."""
        keeping = self._keeping.pop(name, None)
        if keeping is not None:
            with Unbounded():
                self._exchange.unsubscribe(keeping.route)
            keeping.task.cancel()

    async def _keep(self, name: str, queue: SubscriptionQueue[Passed]) -> None:
        """Keeps what comes at best effort until the outlet is finished."""
        while True:
            await queue.arrival()
            batch, _ = queue.take_batch(KEPT_AT_ONCE, self._exchange.limits.queue_bytes_max)
            if not batch:
                return
            looked_at = [
                notification_from_msgpack(each) if isinstance(each, bytes) else each
                for each in batch
            ]
            kept = [each for each in looked_at if each.envelope.delivery == BEST_EFFORT]
            if not kept:
                continue
            self._take(self.server.append(name, kept, self._now_us()))
            while not await self._is_committed() and not self._is_closing:
                await asyncio.sleep(_RETRY_S)

    async def _is_committed(self) -> bool:
        try:
            await self.committed()
        except StoreError:  # Logged where it was found; the group is tried again.
            return False
        return True

    # --- the disk -----------------------------------------------------------------------------

    async def committed(self, client: str = "") -> None:
        """Returns when all that was done is on stable storage, by whichever reader.

        Raises StoreError where it could not be brought there: it is tried again.
        """
        last = self._group or self._brought
        if last is not None:
            await asyncio.shield(last)

    async def parted(self, client: str) -> None:
        """See `LogHost`; it is always there."""
        await self.committed()

    def _take(self, effects: list[DeliveryEffect]) -> None:
        """Has what was done brought to the disk, and then shows it to readers and neighbours."""
        for each in effects:
            if isinstance(each, HandRecords | SendMessage):
                self._shown.append(each)
            else:
                self._answer(each)
        for name in self.server.take_ended():
            if self.server.logs.terms(name) is None:  # Else one of this name has begun since.
                self._forget(name)
        if self.store is None:
            shown, self._shown = self._shown, []
            self._show(shown)
        else:
            if self._group is None:
                self._group = asyncio.get_running_loop().create_future()
            self._begin()
        self._set_timer()

    def _answer(self, outcome: Confirmed | Failed) -> None:
        waiting = self._publishing.pop(outcome.token)
        if waiting.done():  # Who published it was cancelled.
            return
        if isinstance(outcome, Failed):
            waiting.set_exception(outcome.error)
        else:
            waiting.set_result(outcome.fresh)

    def _begin(self) -> None:
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit())

    async def _commit(self) -> None:
        """Brings one group after the other, as long as something gathers meanwhile."""
        store = self.store
        assert store is not None, "it has a disk"
        try:
            while self._group is not None:
                group, self._group = self._group, None
                self._brought = group
                shown, self._shown = self._shown, []
                try:
                    await off_loop(store.seal())
                except Exception as error:  # noqa: BLE001 - a store may be anybody's
                    self._failed(group, shown, error)
                    if not self._is_closing:
                        return
                    continue
                self._is_failing = False
                self._show(shown)
                group.set_result(None)
        finally:
            self._committing = self._brought = None

    def _failed(
        self, group: asyncio.Future[None], shown: list[HandRecords | SendMessage], error: Exception
    ) -> None:
        """The store keeps the group and tries it again with the next one, soon.

        A service that closes tries once more, with what has gathered meanwhile.
        """
        if not self._is_failing:
            _LOG.warning("what is promised cannot be written yet: %(reason)s", {"reason": error})
        self._is_failing = True
        self._shown[:0] = shown
        if not isinstance(error, StoreError):
            error = StoreError(f"the store failed: {error!r}")
        group.set_exception(error)
        group.exception()  # Seen, also where nobody waits for it.
        if self._is_closing:
            return
        loop = asyncio.get_running_loop()
        if self._group is None:
            self._group = loop.create_future()
        loop.call_later(_RETRY_S, self._begin_again)

    def _begin_again(self) -> None:
        if self._group is not None:
            self._begin()

    def _show(self, effects: Sequence[HandRecords | SendMessage]) -> None:
        for each in effects:
            if isinstance(each, HandRecords):
                reader = self.readers.get(each.client)
                if reader is not None:
                    reader.given(each.message)
            elif self._tell is not None:
                self._tell(each.to, each.message)

    # --- time ---------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        due_us = self.server.due_us
        if due_us == self._armed_us:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._armed_us = None, due_us
        if due_us is not None:
            wait_s = max(0, due_us - self._now_us()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._armed_us = None
        self._take(self.server.tick(self._now_us()))

    # --- the end ------------------------------------------------------------------------------

    def end_readers(self) -> None:
        """Nobody reads here any more: what was not acknowledged comes again to others."""
        for reader in list(self.readers.values()):
            reader.end()

    async def aclose(self) -> None:
        """Ends the readers, and brings to the disk what still waits. Raises StoreError."""
        self._is_closing = True
        self.end_readers()
        for keeping in self._keeping.values():
            keeping.route.queue.finish()
        tasks = [keeping.task for keeping in self._keeping.values()]
        if tasks:
            await asyncio.wait(tasks)
        self._keeping.clear()
        if self._timer is not None:
            self._timer.cancel()
        await self.committed()


def _as_known(said: ReadLog, owner: str, filters: Selection) -> FilterSet:
    """What a subscription stands for whose home is another server, as far as it is known here."""
    standing = FilterSet(filters.filters)
    _check_filters(said, standing)
    if said.retention is not None:
        raise DeliveryError(
            f"the retention of {said.name!r} is known at its home alone, server {owner!r}; say none"
        )
    return standing


def _check_filters(said: ReadLog, standing: FilterSet) -> None:
    if said.filters is not None and FilterSet(said.filters.filters) != standing:
        raise DeliveryError(
            f"the durable subscription {said.name!r} stands for other filters, "
            f"{standing}; end it first, or take another name"
        )
