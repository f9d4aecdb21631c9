"""A service at the other end of a TCP connection, with the interface of the embedded one.

A lost connection is made anew (`net/reconnecting.py`), and every subscription is taken up on it
under the identity that it had. What was published at best effort and is unanswered fails with
ConnectionFailedError: it is never sent twice. What is promised goes on (`net/standing.py`). Who
publishes or subscribes meanwhile waits.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from contrada.delivery.backlog import transmission_of
from contrada.delivery.classes import delivery_class
from contrada.errors import (
    ConnectionFailedError,
    ContradaError,
    FrameError,
    ServiceClosedError,
    ServiceError,
)
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.model.algebra.notification import Body
from contrada.model.encoding import notification_from_msgpack
from contrada.model.languages.atoms import failures
from contrada.model.languages.decision import safe_answers
from contrada.net.address import parse_addresses
from contrada.net.frames import (
    CONTENT_BYTES_MAX,
    Credit,
    Delivery,
    Frame,
    LogDelivery,
    LogReply,
    Reply,
    Request,
    StatisticsReply,
    StatisticsRequest,
    packed,
)
from contrada.net.publishing import (
    PUBLISH_FRAMES_MAX,
    PUBLISH_NOTIFICATIONS_MAX,
    Batch,
    Publishing,
)
from contrada.net.reconnecting import Reconnecting
from contrada.net.wire import GOODBYE_WAIT_S
from contrada.routing.messages import Subscribe, Unsubscribe
from contrada.runtime.calling import (
    batches_of,
    checked_timeout,
    checked_wait,
    tell_published,
)
from contrada.runtime.outlet import ENTRY_BYTES, EXPIRED, PUBLISH_WAIT_S, QUEUE_FULL, Outlet
from contrada.runtime.stamping import Stamp, identified, runs_of
from contrada.runtime.states import ConnectionStates
from contrada.runtime.subscription import UNREADABLE, UNSUBSCRIBED, QueuedSubscription
from contrada.service import (
    Advertisements,
    ConnectionState,
    Item,
    Offered,
    Offering,
    Service,
    ServiceStatistics,
    Subject,
    filters_of,
    is_promised,
    promised,
    publication_of,
    reader_of,
    residue_of,
)

if TYPE_CHECKING:  # Loaded when something is promised.
    from contrada.net.standing import TcpLogs

CREDIT_BYTES: Final = 4 * 2**20
"""Bytes delivered for one subscription that its subscriber has not read yet. Beyond it: the broker
keeps the rest."""

_NO_ADVERTISEMENTS: Final = (
    "a broker over TCP does not offer advertisements, only the embedded service does"
)

_CREDIT_STEP: Final = CREDIT_BYTES // 8


class TcpService(Service):
    """An access point to a broker."""

    def __init__(
        self,
        address: str | Sequence[str],
        *,
        publisher: str | None = None,
        publish_wait_s: float = PUBLISH_WAIT_S,
        reconnect: bool = True,
        reconnect_wait_s: float | None = None,
        on_connection: Callable[[ConnectionState], object] | None = None,
    ) -> None:
        """`publish_wait_s` bounds the broker's wait for a full queue; 0 drops at once.

        Raises AddressError, ServiceError.
        """
        self._states = ConnectionStates(on_connection)
        give_up_after_s = checked_timeout(reconnect_wait_s, "reconnect_wait_s") if reconnect else 0
        self._reconnecting = Reconnecting(
            parse_addresses(address), self, self._states, give_up_after_s
        )
        self._stamp = Stamp(publisher)
        self.now_us = self._stamp.now_us
        self._wait_ms = round(checked_wait(publish_wait_s) * 1000)
        self._publishing: Publishing | None = None
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._subscriptions: dict[str, TcpSubscription] = {}
        self._numbers = 0
        self._published = 0
        self._dropped: Counter[str] = Counter()
        self._logs: TcpLogs | None = None

    async def open(self) -> None:
        """Connect. Raises ConnectionFailedError when no broker answers there."""
        if self.connection.state == "new":
            self._publishing = Publishing(self._reconnecting.send, self._wait_ms)
        await self._reconnecting.open()

    async def aclose(self) -> None:
        """Say goodbye and close; iterations of its subscriptions end after what they hold."""
        self._reconnecting.check_loop()
        for subscription in list(self._subscriptions.values()):
            subscription.end()
        self._subscriptions.clear()
        if self._logs is not None:
            self._logs.end()
            await self._logs.settle()
        await self._reconnecting.aclose()
        if self._logs is not None:
            self._logs.give_up(ServiceClosedError("the service is closed"))

    @property
    def connection(self) -> ConnectionState:
        """How it is connected at this moment."""
        return self._states.current

    def connection_states(self) -> AsyncIterator[ConnectionState]:
        """How it is connected at this moment, then each change; ends after "closed"."""
        return self._states.follow()

    async def publish(
        self,
        item: Item,
        *,
        body: Body = b"",
        content_type: str = "",
        ttl_s: float | None = None,
        priority: int | None = None,
        delivery: str | None = None,
    ) -> Envelope:
        """Publish one notification; see `Service.publish`."""
        notification = publication_of(item, body, content_type, ttl_s, priority, delivery)
        if is_promised((notification,)) and _is_reliable(notification):
            (stamped,) = await self.delivery().publish([identified(notification)])
            return stamped.envelope
        if not self._reconnecting.is_up:
            await self._reconnecting.ready()
        ((envelope, batch),) = self._send((notification,))
        await self._settled(batch, 1)
        return envelope

    async def publish_batch(
        self, items: Iterable[Item] | AsyncIterable[Item], *, delivery: str | None = None
    ) -> int:
        """Publish many, in order; see `Service.publish_batch`."""
        taken = 0
        unsettled: dict[Batch, int] = {}

        async def settle(batch: Batch) -> int:
            size = unsettled.pop(batch)
            await self._settled(batch, size)
            return size

        try:
            try:
                async for notifications in batches_of(items, PUBLISH_NOTIFICATIONS_MAX):
                    if delivery is not None:
                        notifications = [promised(each, delivery) for each in notifications]
                    if is_promised(notifications):
                        while unsettled:  # So that each comes in its order.
                            taken += await settle(next(iter(unsettled)))
                        taken += await self._publish_runs(notifications)
                        continue
                    if not self._reconnecting.is_up:
                        await self._reconnecting.ready()
                    for _, batch in self._send(notifications):
                        unsettled[batch] = unsettled.get(batch, 0) + 1
                    while len(unsettled) > 2 * PUBLISH_FRAMES_MAX:
                        taken += await settle(next(iter(unsettled)))
            except asyncio.CancelledError:
                unsettled.clear()  # It is published, but nobody waits for it.
                raise
            finally:
                # Also when an item is invalid: those before it are published.
                for batch in list(unsettled):
                    taken += await settle(batch)
        except Exception as error:
            tell_published(error, taken + (getattr(error, "published", None) or 0))
            raise
        return taken

    async def _publish_runs(self, notifications: Sequence[Notification]) -> int:
        """Publishes runs of one class and publisher, one after the other; how many these are."""
        taken = 0
        for run in runs_of(notifications):
            try:
                if _is_reliable(run[0]):
                    await self.delivery().publish(run)
                else:
                    await self._reconnecting.ready()
                    counts = Counter(batch for _, batch in self._send(run))
                    for batch, count in counts.items():
                        await self._settled(batch, count)
            except ContradaError as error:
                error.published = taken + (error.published or 0)
                raise
            taken += len(run)
        return taken

    def subscribe(self, subject: Any = None, where: Subject | None = None, **standing: Any) -> Any:
        """A subscription, in force inside `async with`; see `Service.subscribe`."""
        if standing:
            from contrada.runtime.standing import standing_subscription

            return standing_subscription(self, subject, where, standing)
        filters, residue = filters_of(subject, where), residue_of(subject, where)
        return TcpSubscription(self, filters, reader_of(subject), residue)

    async def unsubscribe(self, durable: str) -> None:
        """End a durable subscription; see `Service.unsubscribe`."""
        await self.delivery().unsubscribe(durable)

    def delivery(self) -> "TcpLogs":
        """What is done so that delivery can be promised, from now on."""
        self._reconnecting.check()
        if self._logs is None:
            from contrada.net.standing import TcpLogs

            self._logs = TcpLogs(self._reconnecting, self._stamp, self._wait_ms)
        return self._logs

    def name_of_request(self) -> str:
        """A name that no other reader has, at whatever client."""
        return self.delivery().name_of_request()

    def advertise(self, offered: Offered) -> Offering:
        """Refused: brokers do not speak of advertisements yet. Raises ServiceError."""
        raise ServiceError(_NO_ADVERTISEMENTS)

    def advertisements(self) -> Advertisements:
        """Refused: brokers do not speak of advertisements yet. Raises ServiceError."""
        raise ServiceError(_NO_ADVERTISEMENTS)

    def statistics(self) -> ServiceStatistics:
        """What this access point published, and what was lost of it at the broker."""
        dropped = Counter(self._dropped)
        if self._logs is not None:
            dropped[QUEUE_FULL] += self._logs.dropped
        return ServiceStatistics(
            self._published + (self._logs.published if self._logs is not None else 0),
            len(self._subscriptions),
            None,
            dict(+dropped),
            dict(safe_answers),
            dict(failures),
        )

    # ----------------------------------------------------------------- used by subscriptions

    async def enter(self, subscription: "TcpSubscription", credit: int) -> str:
        """Put a subscription in force at the broker; returns its identity there."""
        await self._reconnecting.ready()
        self._numbers += 1
        identity = str(self._numbers)
        message = packed(Subscribe(identity, subscription.filters))
        self._subscriptions[identity] = subscription
        try:
            await self._request(message, credit)
        except BaseException as error:
            self._subscriptions.pop(identity, None)
            if isinstance(error, asyncio.CancelledError):
                # It may be in force; nobody waits.
                self._reconnecting.send(Request(0, packed(Unsubscribe(identity))))
            raise
        return identity

    async def leave(self, identity: str) -> tuple[int, int]:
        """Take a subscription out at the broker; returns how many found no room or time there."""
        if identity not in self._subscriptions:
            return 0, 0
        try:
            if not self._reconnecting.is_there:
                return 0, 0
            async with asyncio.timeout(GOODBYE_WAIT_S):
                reply = await self._request(packed(Unsubscribe(identity)))
            return reply.dropped, reply.expired
        except (ServiceError, TimeoutError):
            # It ended with the connection, this broker has not taken it up, or takes its time.
            return 0, 0
        finally:
            self._subscriptions.pop(identity, None)

    def grant(self, identity: str, credit: int) -> None:
        """Let the broker deliver more for a subscription."""
        self._reconnecting.send(Credit(identity, credit))

    # ------------------------------------------------------------------------ the connection

    def _send(self, notifications: Sequence[Notification]) -> list[tuple[Envelope, Batch]]:
        """Stamps notifications and appends them to what is sent."""
        self._reconnecting.check()
        publishing = self._publishing
        assert publishing is not None, "it was opened"
        stamped = self._stamp.stamped(notifications, self._stamp.now_us())
        return [(each.envelope, publishing.add(each)) for each in stamped]

    async def _settled(self, batch: Batch, count: int) -> None:
        # Shielded: the answer is shared by all who published in this frame.
        await asyncio.shield(batch.answer)
        self._published += count

    async def broker_statistics(self) -> dict[str, Any]:
        """What the broker did so far: the fields of its `BrokerStatistics` by name."""
        await self._reconnecting.ready()
        counts: dict[str, Any] = await self._answered(StatisticsRequest)
        return counts

    def _request(self, message: msgspec.Raw, credit: int = 0) -> asyncio.Future[Reply]:
        return self._answered(lambda number: Request(number, message, credit))

    def _answered(self, asking: Callable[[int], Frame]) -> asyncio.Future[Any]:
        """What a frame with a number of its own is answered; the frame is sent now."""
        self._numbers += 1
        number = 2 * self._numbers
        answer = self._requests[number] = asyncio.get_running_loop().create_future()
        self._reconnecting.send(asking(number))
        return answer

    def received(self, frame: Frame) -> None:
        """A frame has come."""
        match frame:
            case Delivery():
                subscription = self._subscriptions.get(frame.subscription)
                if subscription is not None:
                    subscription.arrived(frame)
            case Reply():
                self._replied(frame)
            case LogReply() if self._logs is not None:
                self._logs.replied(frame)
            case LogDelivery() if self._logs is not None:
                self._logs.delivered(frame)
            case StatisticsReply():
                answer = self._requests.pop(frame.number, None)
                if answer is not None and not answer.done():
                    answer.set_result(frame.statistics)

    def _replied(self, frame: Reply) -> None:
        refused = f"{self._reconnecting.address} refused: {frame.reason}"
        error = ServiceError(refused) if frame.code else None
        if self._publishing is not None and self._publishing.answered(
            frame.number, frame.dropped, error
        ):
            if frame.dropped:
                self._dropped[QUEUE_FULL] += frame.dropped
            return
        answer = self._requests.pop(frame.number, None)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(frame)
        else:
            answer.set_exception(error)

    def broken(self, unanswered: ServiceError, unsent: ServiceError) -> None:
        """The connection was lost, or is closed: nothing that was asked is answered any more."""
        if self._publishing is not None:
            self._publishing.fail(unanswered, unsent)
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(unsent)
                answer.exception()  # Seen: of many that are taken up the first one tells it.
        self._requests.clear()
        if self._logs is not None:
            self._logs.broken(unsent)

    async def take_up(self) -> None:
        """Put every subscription in force at the broker that is there now."""
        asked = [  # All at once, so that no unsubscribe comes between.
            (identity, self._request(message, each.begin_anew(CREDIT_BYTES)))
            for identity, each in self._subscriptions.items()
            for message in [packed(Subscribe(identity, each.filters))]
        ]
        for identity, answer in asked:
            try:
                await answer
            except ConnectionFailedError:
                raise
            except ServiceError as error:  # This broker does not take it; the others go on.
                subscription = self._subscriptions.pop(identity, None)
                if subscription is not None:
                    subscription.end(error)
        if self._logs is not None:
            await self._logs.take_up()

    def given_up(self, failure: ServiceError) -> None:
        """There will be no connection any more: iterations end after what they hold."""
        for subscription in list(self._subscriptions.values()):
            subscription.end(failure)
        if self._logs is not None:
            self._logs.give_up(failure)


class TcpSubscription(QueuedSubscription[Any]):
    """A subscription at a broker; its queue here is bounded by the credit it grants."""

    __slots__ = ("_identity", "_lost_there", "_read_bytes", "_service")

    def __init__(
        self,
        service: TcpService,
        filters: Filter | FilterSet,
        reader: Callable[[Notification], Any] | None,
        residue: Callable[[Notification], bool] | None,
    ) -> None:
        # The credit is the bound: the broker sends one notification past it at most.
        outlet: Outlet[Notification] = Outlet(
            notifications_max=CREDIT_BYTES // ENTRY_BYTES + 1,
            bytes_max=CREDIT_BYTES + CONTENT_BYTES_MAX + ENTRY_BYTES,
            clock=service.now_us,
        )
        outlet.keeper = self
        super().__init__(filters, outlet, reader, residue)
        self._service = service
        self._identity = ""
        self._read_bytes = 0
        self._lost_there = 0, 0

    def arrived(self, frame: Delivery) -> None:
        """The broker has delivered. Raises FrameError when it ignores the credit."""
        self._lost_there = frame.dropped, frame.expired
        if self.outlet.finished:  # It was sent before our unsubscribe came.
            self.count_dropped(UNSUBSCRIBED, len(frame.notifications))
            return
        entries = []
        for data in frame.notifications:
            try:
                found = notification_from_msgpack(data, to_be_read=True)
                if frame.is_undecided and not self.filters.matches(found):
                    self._taken(ENTRY_BYTES + len(data))
                else:
                    waits = transmission_of(found.envelope)
                    entries.append((found, ENTRY_BYTES + len(data), waits))
            except ContradaError:
                self.count_dropped(UNREADABLE, 1)
                self._taken(ENTRY_BYTES + len(data))
        if self.outlet.offer_all(entries) < len(entries):
            raise FrameError("protocol", "the broker delivered more than it was granted")

    def begin_anew(self, credit: int) -> int:
        """It is put in force at a broker that knows nothing of it; returns what may come at once.

        So much of the credit is left as what waits here does not take.
        """
        self._reconnects += 1
        full, expired = self._lost_there
        self.count_dropped(QUEUE_FULL, full)
        self.count_dropped(EXPIRED, expired)
        self._lost_there = 0, 0
        left = credit - self.outlet.held_bytes
        self._read_bytes = min(left, 0)  # What is held beyond the credit is not granted again.
        return max(left, 0)

    async def _enter(self) -> None:
        self._identity = await self._service.enter(self, CREDIT_BYTES)

    async def _leave(self) -> None:
        self._lost_there = max(self._lost_there, await self._service.leave(self._identity))

    def count_lost(self, reason: str, count: int, size: int) -> None:
        """So many were dropped in the outlet: the broker may send as much again."""
        self.count_dropped(reason, count)
        self._taken(size)

    def _taken(self, size: int) -> None:
        self._read_bytes += size
        if self._read_bytes >= _CREDIT_STEP:
            self._service.grant(self._identity, self._read_bytes)
            self._read_bytes = 0

    def _lost_before(self) -> tuple[int, int]:
        return self._lost_there


def _is_reliable(notification: Notification) -> bool:
    """Whether more is promised than best effort. Raises InvalidValueError."""
    return delivery_class(notification.envelope.delivery).is_reliable
