"""`DeliveryHost`: a `DeliveryServer` on an event loop, with its clock, its timer and its store.

A `GroupCommitter` brings its work to the disk. Best-effort notifications come from `DurableRoutes`,
at the pace of the disk, those above from the delivery server alone.

Invariant: work that precedes a call of `committed` is on stable storage when that returns.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Final, Protocol

from contrada.delivery import delivery_messages as messages
from contrada.delivery.access_point import Failed
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_class import delivery_class
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_server import DeliveryEffect, DeliveryServer
from contrada.delivery.durable_state import DurableState
from contrada.delivery.owned_queues import (
    local_number,
    peek,
    purge,
    queue_page,
    redrive,
    release,
    state_of,
)
from contrada.delivery.queue_messages import (
    AskQueue,
    AskQueues,
    PeekQueue,
    PurgeQueue,
    QueueRequest,
    RedriveQueue,
    ReleaseQueue,
)
from contrada.delivery.retention import Retention
from contrada.delivery.store import Store
from contrada.delivery.transit import SendMessage
from contrada.errors import (
    CannotPublishError,
    ContradaError,
    DeliveryError,
    ServiceClosedError,
    StoreDamagedError,
    StoreError,
)
from contrada.model import FilterSet, Notification, Selection
from contrada.model.languages.work_budget import Unbounded
from contrada.routing.router_messages import Client, Neighbour
from contrada.service.clock import Deadlines
from contrada.service.dispatcher import Dispatcher
from contrada.service.durable_routes import DurableRoutes
from contrada.service.group_committer import RETRY_S, GroupCommitter, VisibleEffect
from contrada.service.transition_log import Accepting, TransitionLog

_LOG: Final = logging.getLogger(__name__)

_CHANGES: Final[Mapping[type, Callable[..., Any]]] = {
    PurgeQueue: purge,
    RedriveQueue: redrive,
    ReleaseQueue: release,
}

NO_STORE: Final = "this service has no store: connect(store='events.db') gives it one"


class RecordReceiver(Protocol):
    """A reader of a durable subscription, as the server of its log knows it."""

    def receive(self, said: messages.ForReader) -> None:
        """Receives records, or loses prefetched ones, or learns the end of the subscription."""

    def end(self, failure: ContradaError | None = None) -> None:
        """Ends the reader with the service, after its last acknowledgements."""


class LogReader(RecordReceiver, Protocol):
    """A reader of a durable subscription that survives a lost connection to its broker."""

    @property
    def newest(self) -> int:
        """The highest position that was read, or 0."""
        ...

    @property
    def holds(self) -> tuple[int, ...]:
        """The positions that its caller has and did not acknowledge or return."""
        ...

    def forget_prefetched(self) -> None:
        """Drops the records that its caller was not given; the connection is lost."""

    def restart(self) -> None:
        """Expects its prefetched records again; the credit that it granted is void."""


class LogHost(Protocol):
    """The owner of durable logs for readers: the server in this process, or a broker."""

    async def read(self, reader: LogReader, said: messages.ReadLog) -> FilterSet:
        """Gives a reader records, within its credit, until it leaves; returns the filters.

        Raises DeliveryError where the subscription has other filters, or does not exist, there is
        no store, or it cannot be read from that position; LimitError, InvalidValueError,
        UnknownOperatorError, StoreError.
        """
        ...

    def consume(self, client: str, said: messages.Consuming) -> None:
        """Handles a message of a reader."""

    def leave(self, said: messages.CloseLog) -> None:
        """Ends a reader, twice without effect. `ends` ends its subscription in memory, too."""

    async def ask(self, request: QueueRequest) -> Any:
        """Answers a request about the queues here.

        Raises DeliveryError for a name that this server does not own, CannotPublishError,
        LimitError, StoreError.
        """

    async def committed(self, client: str) -> None:
        """Returns when all messages of a reader are on stable storage. Raises StoreError."""

    async def closed(self, client: str) -> None:
        """As `committed`, for a reader that ends. Returns at once without a connection."""


class DeliveryHost:
    """Owns the delivery server while its service is open; for one event loop."""

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
        tell: Callable[[Neighbour, messages.DeliveryMessage], None] | None = None,
        wait_for_network: Callable[[], Awaitable[None]] | None = None,
        limits: DeliveryLimits = DeliveryLimits(),
        routes: DurableRoutes | None = None,
    ) -> None:
        """`client` is the dispatcher's client that owns the durable subscriptions.

        `tell` sends a message to a neighbour, `wait_for_network` returns when the subscriptions of
        other servers are known, `no_store` explains in errors how to have a store. `routes` are
        those of a standby that has followed the store. Raises StoreError for an unreadable store.
        """
        state = DurableState(name, store, limits) if routes is None else routes.state
        self.server = DeliveryServer(
            name, incarnation=now_us(), store=store, sequencer=sequencer, limits=limits, state=state
        )
        # An operator of a filter may not be registered this time.
        self._routes = routes or DurableRoutes(state, dispatcher, client)
        self._routes.log = self._log_best_effort
        self.readers: dict[str, RecordReceiver] = {}
        self.store, self._now_us = store, now_us
        self._dispatcher, self._transitions = dispatcher, dispatcher.transitions
        if self._transitions is not None:
            self.server.logs.appended = []
        self._tokens = itertools.count(1)
        self._no_store, self._tell, self._wait_for_network = no_store, tell, wait_for_network
        self._publishing: dict[int, asyncio.Future[Sequence[Notification]]] = {}
        self._ways: Mapping[str, str] = {}
        self._stuck: set[str] = set()
        self._namesakes: set[str] = set()  # those that were logged
        self.groups = GroupCommitter(store, self._show, self._close_consumers)
        self._deadlines = Deadlines(
            lambda: self.server.due_us, lambda: self._take(self.server.tick(now_us())), now_us
        )

    # --- requests -----------------------------------------------------------------------------

    def publish(
        self, publications: Sequence[Sequence[Notification]]
    ) -> list[asyncio.Future[Sequence[Notification]]]:
        """Publishes publications, each of one publisher and class; results have the fresh ones.

        They are accepted when a later `committed` returns. Each fails alone, with
        CannotPublishError, LimitError, InvalidValueError, without an effect.
        """
        create_future = asyncio.get_running_loop().create_future
        outcomes, requests = [], []
        for notifications in publications:
            outcome = create_future()
            outcomes.append(outcome)
            envelope = notifications[0].envelope
            if self.store is None and delivery_class(envelope.delivery).is_certified:
                reason = f"{envelope.delivery!r}: {self._no_store}"
                outcome.set_exception(CannotPublishError("", reason=reason))
                continue
            token = next(self._tokens)
            self._publishing[token] = outcome
            if self._transitions is not None:
                accepting = Accepting(token, notifications)
                self._transitions.record(self._now_us(), Client(envelope.publisher), accepting)
            requests.append((token, envelope.publisher, notifications))
        if requests:
            with Unbounded():  # Half of a step is worse than one that takes long.
                self._take(self.server.publish_all(requests, self._now_us()))
        return outcomes

    def consume(self, client: str, said: messages.Consuming) -> None:
        """Handles a message of a reader."""
        with Unbounded():
            self._take(self.server.consume(client, said, self._now_us()), None, said)

    def arrive(self, publisher: str, past: Mapping[str, int]) -> None:
        """Adds a publisher that was at other servers, in these epochs. Raises LimitError."""
        if past:
            self._take(self.server.connect_publisher(publisher, past, self._now_us()))

    async def wait_for_network(self) -> None:
        """Returns when the subscriptions of the network are known.

        Raises ServiceClosedError when it was closed meanwhile.
        """
        if self._wait_for_network is not None:
            await self._wait_for_network()
            if self.groups.is_closing:
                raise ServiceClosedError("the service is closed")

    async def read(self, reader: RecordReceiver, said: messages.ReadLog) -> FilterSet:
        """Adds a reader, and its subscription if there is none; see `LogHost`."""
        await self.wait_for_network()
        filters = self.begin(reader, said)
        await self.committed()
        return filters

    def begin(self, reader: RecordReceiver, said: messages.ReadLog) -> FilterSet:
        """As `read`, in force once `committed` returns."""
        filters = self._find_or_create(said)
        self.readers[said.consumer] = reader
        begin = said.position, said.time_us, said.holds
        opening = messages.OpenLog(said.name, said.consumer, *begin, renews=True)
        self.consume(said.consumer, opening)
        return filters

    def leave(self, said: messages.CloseLog) -> None:
        """Ends a reader; see `LogHost`."""
        if self.readers.pop(said.consumer, None) is None:
            return
        if not said.ends:
            self.consume(said.consumer, said)
        elif self.server.find(said.name) is not None:
            self.end(said.name)

    def _find_or_create(self, said: messages.ReadLog) -> FilterSet:
        """Creates a subscription, or checks that it has the requested filters; returns them."""
        name, terms = said.name, self.server.logs.terms(said.name)
        known = self.server.find(name)
        if known is not None and known[0] != self.server.name:
            standing = FilterSet(known[2].filters)
            _check_filters(said, standing)
            if said.retention is not None:
                home = f"known at its home alone, server {known[0]!r}"
                raise DeliveryError(f"the retention of {name!r} is {home}; say none")
            return standing
        if terms is None or terms.is_durable != said.is_durable:
            if said.filters is None:
                missing = f"there is no durable subscription {name!r}"
                raise DeliveryError(f"{missing}; give its filters to create it")
            if said.position not in (None, 1):
                began = "it begins only now, with position 1"
                raise DeliveryError(f"{name!r}: {said.position}: {began}")
            retention = said.retention or Retention()
            self.create(name, said.filters, retention, is_durable=said.is_durable)
            return FilterSet(said.filters.filters)
        standing = FilterSet(terms.filters.filters)
        _check_filters(said, standing)
        if said.retention is not None and said.retention != terms.retention:
            raise DeliveryError(
                f"the durable subscription {name!r} has another retention, "
                f"{terms.retention}; end it first, or take another name"
            )
        return standing

    def create(
        self, name: str, filters: Selection, retention: Retention, *, is_durable: bool
    ) -> None:
        """Creates a durable subscription.

        Raises DeliveryError, LimitError, InvalidValueError, UnknownOperatorError, StoreError.
        """
        if self.store is None and is_durable:
            raise DeliveryError(f"{name!r}: {self._no_store}")
        route = self._routes.subscribe(name, filters)
        try:
            wanted, now_us = FilterSet(filters.filters), self._now_us()
            with Unbounded():  # Its cost was asked for, and paid, just before.
                effects = self.server.create_subscription(
                    name, wanted, now_us, retention, is_durable=is_durable
                )
        except ContradaError:
            with Unbounded():
                self._dispatcher.unsubscribe(route)
            raise
        self._routes.keep(name, filters, route)
        self._take(effects)

    def end(self, name: str) -> None:
        """Ends a durable subscription and its log. Raises DeliveryError if there is none."""
        if self.server.find(name) is None:
            raise DeliveryError(f"there is no durable subscription {name!r}")
        self._routes.forget(name)
        self.consume("", messages.CloseLog(name, "", ends=True))

    async def ask(self, request: QueueRequest) -> Any:
        """Answers a request about queues; see `QueueHost`."""
        await self.wait_for_network()
        turns = self.answer(request)
        while True:
            try:
                next(turns)
            except StopIteration as end:
                await self.committed()
                return end.value
            await asyncio.sleep(0)

    def answer(
        self, request: QueueRequest, sees: Callable[[str], bool] = lambda _: True
    ) -> Generator[None, None, Any]:
        """Answers a request in turns, valid once `committed` returns. Raises as `LogHost.ask`.

        A list has the names that `sees` allows.
        """
        server = self.server
        match request:
            case AskQueues():
                return (yield from queue_page(server.logs, request.after, sees))
            case AskQueue():
                local_number(server, request.name)
                return state_of(server.logs, request.name)
            case PeekQueue():
                return (yield from peek(server, request))
        with Unbounded():
            step, effects = _CHANGES[type(request)](server, request, self._now_us())
            self._take(effects)
        return step

    def acknowledge(self, name: str, before: int) -> None:
        """Acknowledges all records of a log before a position. Raises DeliveryError and others."""
        with Unbounded():
            self._take(self.server.acknowledge(name, before, self._now_us()))

    # --- neighbours ---------------------------------------------------------------------------

    def link_up(self, neighbour: Neighbour) -> None:
        """Adds a link; call it before `change_routes` routes over it."""
        self._take(self.server.link_up(neighbour, self._now_us()))

    def link_down(self, neighbour: Neighbour) -> None:
        """Removes a link."""
        self._take(self.server.link_down(neighbour, self._now_us()))

    def change_routes(self, ways: Mapping[str, str]) -> None:
        """Replaces the next hops to all servers; the same object means no change."""
        if ways is not self._ways:
            self._ways = ways
            self._take(self.server.change_routes(ways, self._now_us()))

    def receive(self, neighbour: Neighbour, message: messages.DeliveryMessage) -> None:
        """Handles a message of a neighbour."""
        self._take(self.server.receive(neighbour, message, self._now_us()), neighbour, message)
        if isinstance(message, messages.AnnounceOwner):
            self._log_namesakes({each.name for _, each in message.changes if each is not None})

    # --- best effort --------------------------------------------------------------------------

    async def _log_best_effort(self, name: str, notifications: Sequence[Notification]) -> None:
        """Returns when they are on stable storage, or the service is closed."""
        self._take(self.server.append(name, notifications, self._now_us()))
        while True:
            try:
                await self.committed()
                break
            except StoreError:  # Logged where it was found; the group is tried again.
                if self.groups.is_closing:
                    break
                await asyncio.sleep(RETRY_S)

    # --- the disk -----------------------------------------------------------------------------

    async def committed(self, client: str = "") -> None:
        """Returns when all work so far is on stable storage, of any reader.

        Raises StoreError when that failed; it is tried again.
        """
        await self.groups.committed()

    async def closed(self, client: str) -> None:
        """See `LogHost`; it is always connected."""
        await self.committed()

    def _take(
        self, effects: list[DeliveryEffect], origin: Neighbour | None = None, message: Any = None
    ) -> None:
        """Has work committed; readers and neighbours see its effects afterwards."""
        if self._transitions is not None:
            self._record(self._transitions, effects, origin, message)
        visible: list[VisibleEffect] = []
        for each in effects:
            if isinstance(each, HandRecords | SendMessage):
                visible.append(each)
                continue
            waiting = self._publishing.pop(each.token)
            if waiting.done():  # The publisher's call was cancelled.
                continue
            if isinstance(each, Failed):
                waiting.set_exception(each.error)
            else:
                waiting.set_result(each.fresh)
        ended, self.server.logs.ended = self.server.logs.ended, []
        for name in ended:
            self._namesakes.discard(name)
            if self.server.logs.terms(name) is None:  # Otherwise the name is in use again.
                self._routes.forget(name)
        self.groups.add(visible)
        self._deadlines.look()
        if self._stuck != self.server.logs.stuck.keys():
            self._log_stuck(self.server.logs.stuck)

    def _record(
        self,
        transitions: TransitionLog,
        effects: list[DeliveryEffect],
        origin: Neighbour | None,
        message: Any,
    ) -> None:
        now_us = self._now_us()
        appended, self.server.logs.appended = self.server.logs.appended, []
        if message is not None:
            transitions.record(now_us, origin, message)
        for each in appended or ():
            transitions.record(now_us, None, each)
        if effects:
            transitions.record(now_us, None, None, effects)

    def _log_stuck(self, stuck: Mapping[str, str]) -> None:
        """Logs which logs can be read no longer, and which again."""
        for name in stuck.keys() - self._stuck:
            said = {"subscription": name, "reason": stuck[name]}
            _LOG.error("%(subscription)s cannot be read, and its readers wait: %(reason)s", said)
        for name in self._stuck - stuck.keys():
            _LOG.warning("%(subscription)s is read again", {"subscription": name})
        self._stuck = set(stuck)

    def _log_namesakes(self, announced: set[str]) -> None:
        """Logs once which durable subscriptions here exist elsewhere, too."""
        for name in announced - self._namesakes:
            owners = self.server.owners_of(name)
            if len(owners) > 1 and self.server.name in owners:
                self._namesakes.add(name)
                said = {"subscription": name, "servers": ", ".join(owners), "first": owners[0]}
                _LOG.warning(
                    "%(subscription)s was created at %(servers)s before they knew of each other: "
                    "each has all notifications, and new readers read that of %(first)s; "
                    "unsubscribe it, which ends all, and create it again",
                    said,
                )

    def _show(self, effects: Sequence[VisibleEffect]) -> None:
        for each in effects:
            if isinstance(each, HandRecords):
                reader = self.readers.get(each.client)
                if reader is not None:
                    reader.receive(each.message)
            elif self._tell is not None:
                self._tell(each.to, each.message)

    def _close_consumers(self, damage: StoreDamagedError) -> None:
        """Ends the readers with the reason: no group will be written that hands them records."""
        reason = f"its store is damaged, and takes no acknowledgements: {damage.reason}"
        self._show(self.server.consumers.close_all(reason, self._now_us()))

    # --- the end ------------------------------------------------------------------------------

    def end_readers(self) -> None:
        """Ends all readers here; other readers are given their unacknowledged records."""
        for reader in list(self.readers.values()):
            reader.end()

    async def aclose(self) -> None:
        """Ends the readers, and commits the rest. Raises StoreError."""
        self.groups.is_closing = True
        self.end_readers()
        try:
            await self._routes.finish()
            self._deadlines.cancel()
            await self.committed()
        finally:  # Also when it is cancelled.
            self._deadlines.cancel()
            self.groups.close()


def _check_filters(said: messages.ReadLog, standing: FilterSet) -> None:
    if said.filters is not None and FilterSet(said.filters.filters) != standing:
        raise DeliveryError(
            f"the durable subscription {said.name!r} has other filters, "
            f"{standing}; end it first, or take another name"
        )
