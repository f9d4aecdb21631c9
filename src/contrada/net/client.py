"""A service at the other end of a TCP connection, with the interface of the embedded one.

A lost connection ends every subscription, after what it still holds, and every publication that
is unanswered, with ConnectionFailedError. Nothing is connected anew by itself.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from contrada.delivery.backlog import transmission_of
from contrada.errors import (
    ConnectionFailedError,
    ContradaError,
    FrameError,
    ProtocolError,
    ServiceClosedError,
    ServiceError,
)
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.model.algebra.notification import Body
from contrada.model.encoding import notification_from_msgpack
from contrada.model.languages.atoms import failures
from contrada.model.languages.decision import safe_answers
from contrada.net.address import parse_address
from contrada.net.connection import CLIENT
from contrada.net.frames import (
    CONTENT_BYTES_MAX,
    Credit,
    Delivery,
    Frame,
    Hello,
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
from contrada.net.wire import ClientWire
from contrada.routing.messages import Subscribe, Unsubscribe
from contrada.runtime.calling import batches_of, check_loop, checked_wait, tell_published
from contrada.runtime.outlet import ENTRY_BYTES, PUBLISH_WAIT_S, QUEUE_FULL, Outlet
from contrada.runtime.stamping import Stamp
from contrada.runtime.subscription import UNREADABLE, UNSUBSCRIBED, QueuedSubscription
from contrada.service import (
    Advertisements,
    Item,
    Offered,
    Offering,
    Service,
    ServiceStatistics,
    Subject,
    filters_of,
    is_promised,
    notification_of,
    promised,
    reader_of,
    residue_of,
    transmitted,
)

CONNECT_WAIT_S: Final = 10.0
"""How long connecting, hello included, may take. Beyond it: ConnectionFailedError."""

CREDIT_BYTES: Final = 4 * 2**20
"""Bytes delivered for one subscription that its subscriber has not read yet. Beyond it: the broker
keeps the rest."""

_NO_ADVERTISEMENTS: Final = (
    "a broker over TCP does not offer advertisements, only the embedded service does"
)

_NO_PROMISES: Final = (
    "a broker over TCP delivers at best effort, only the embedded service promises more; "
    "delivery='best-effort' publishes it so"
)

_NO_STANDING: Final = (
    "a broker over TCP keeps no standing subscriptions, only the embedded service does"
)

_CREDIT_STEP: Final = CREDIT_BYTES // 8


class TcpService(Service):
    """An access point to a broker."""

    def __init__(
        self,
        address: str,
        *,
        publisher: str | None = None,
        publish_wait_s: float = PUBLISH_WAIT_S,
    ) -> None:
        """`publish_wait_s` bounds the broker's wait for a full queue; 0 drops at once.

        Raises AddressError.
        """
        self._address = parse_address(address)
        self._stamp = Stamp(publisher)
        self.now_us = self._stamp.now_us
        self._wait_ms = round(checked_wait(publish_wait_s) * 1000)
        self._wire: ClientWire | None = None
        self._trying: ClientWire | None = None
        self._publishing: Publishing | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._failure: ConnectionFailedError | None = None
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._subscriptions: dict[str, TcpSubscription] = {}
        self._numbers = 0
        self._published = 0
        self._dropped: Counter[str] = Counter()

    async def open(self) -> None:
        """Connect. Raises ConnectionFailedError when no broker answers there."""
        if self._closed:
            raise ServiceClosedError("this service is closed; connect anew")
        if self._wire is not None:
            check_loop(self._loop)
            return
        self._failure = None
        address = self._address
        loop = self._loop = asyncio.get_running_loop()
        wire = ClientWire(
            Hello(CLIENT, "contrada"), self._received, lambda why: self._lost(wire, why)
        )
        self._trying = wire
        try:
            async with asyncio.timeout(CONNECT_WAIT_S):
                await loop.create_connection(lambda: wire, address.host, address.port)
                await wire.greeted
        except TimeoutError:
            wire.abort()
            reason = f"no answer from a broker within {CONNECT_WAIT_S:g} s"
            raise ConnectionFailedError(str(address), reason) from None
        except OSError as error:
            raise ConnectionFailedError(str(address), _why(error)) from None
        except ProtocolError as error:
            raise ConnectionFailedError(str(address), str(error)) from None
        except BaseException:
            wire.abort()
            raise
        self._wire = wire
        self._publishing = Publishing(wire.send, self._wait_ms)

    async def aclose(self) -> None:
        """Say goodbye and close; iterations of its subscriptions end after what they hold."""
        if self._wire is not None:
            check_loop(self._loop)
        self._closed = True
        for subscription in list(self._subscriptions.values()):
            subscription.end()
        self._subscriptions.clear()
        if self._wire is not None:
            await self._wire.close()

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
        """Publish one notification, at best effort; see `Service.publish`."""
        notification = notification_of(item, body, content_type)
        if ttl_s is not None or priority is not None:
            notification = transmitted(notification, ttl_s, priority)
        if delivery is not None:
            notification = promised(notification, delivery)
        ((envelope, batch),) = self._send((notification,))
        await self._settled(batch, 1)
        return envelope

    async def publish_batch(
        self, items: Iterable[Item] | AsyncIterable[Item], *, delivery: str | None = None
    ) -> int:
        """Publish many, in order, at best effort; see `Service.publish_batch`."""
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
            tell_published(error, taken)
            raise
        return taken

    def subscribe(self, subject: Any = None, where: Subject | None = None, **standing: Any) -> Any:
        """A subscription, in force inside `async with`; see `Service.subscribe`.

        Raises ServiceError for a standing one: brokers keep none yet.
        """
        if standing:
            raise ServiceError(_NO_STANDING)
        filters, residue = filters_of(subject, where), residue_of(subject, where)
        return TcpSubscription(self, filters, reader_of(subject), residue)

    async def unsubscribe(self, durable: str) -> None:
        """Refused: brokers keep no durable subscriptions yet. Raises ServiceError."""
        raise ServiceError(_NO_STANDING)

    def advertise(self, offered: Offered) -> Offering:
        """Refused: brokers do not speak of advertisements yet. Raises ServiceError."""
        raise ServiceError(_NO_ADVERTISEMENTS)

    def advertisements(self) -> Advertisements:
        """Refused: brokers do not speak of advertisements yet. Raises ServiceError."""
        raise ServiceError(_NO_ADVERTISEMENTS)

    def statistics(self) -> ServiceStatistics:
        """What this access point published, and what was lost of it at the broker."""
        return ServiceStatistics(
            self._published,
            len(self._subscriptions),
            None,
            dict(self._dropped),
            dict(safe_answers),
            dict(failures),
        )

    # ----------------------------------------------------------------- used by subscriptions

    async def enter(self, subscription: "TcpSubscription", credit: int) -> str:
        """Put a subscription in force at the broker; returns its identity there."""
        self._require_open()
        self._numbers += 1
        identity = str(self._numbers)
        message = packed(Subscribe(identity, subscription.filters))
        self._subscriptions[identity] = subscription
        try:
            await self._request(message, credit)
        except BaseException as error:
            self._subscriptions.pop(identity, None)
            if isinstance(error, asyncio.CancelledError) and self._wire is not None:
                # It may be in force; nobody waits.
                self._wire.send(Request(0, packed(Unsubscribe(identity))))
            raise
        return identity

    async def leave(self, identity: str) -> tuple[int, int]:
        """Take a subscription out at the broker; returns how many found no room or time there."""
        if identity not in self._subscriptions or self._failure is not None:
            return 0, 0
        try:
            reply = await self._request(packed(Unsubscribe(identity)))
            return reply.dropped, reply.expired
        except (ConnectionFailedError, ServiceClosedError):
            return 0, 0  # It ended with the connection.
        finally:
            self._subscriptions.pop(identity, None)

    def grant(self, identity: str, credit: int) -> None:
        """Let the broker deliver more for a subscription."""
        if self._wire is not None:
            self._wire.send(Credit(identity, credit))

    # ---------------------------------------------------------------------------- the wire

    def _require_open(self) -> Publishing:
        if self._closed:
            raise ServiceClosedError("the service is closed")
        if self._failure is not None:
            raise self._failure
        if self._publishing is None:
            raise ServiceError("use the service inside `async with`")
        if asyncio.get_running_loop() is not self._loop:
            check_loop(self._loop)
        return self._publishing

    def _send(self, notifications: Sequence[Notification]) -> list[tuple[Envelope, Batch]]:
        """Stamps notifications and appends them to what is sent."""
        publishing = self._require_open()
        if is_promised(notifications):
            raise ServiceError(_NO_PROMISES)
        stamped = self._stamp.stamped(notifications, self._stamp.now_us())
        return [(each.envelope, publishing.add(each)) for each in stamped]

    async def _settled(self, batch: Batch, count: int) -> None:
        # Shielded: the answer is shared by all who published in this frame.
        await asyncio.shield(batch.answer)
        self._published += count

    async def broker_statistics(self) -> dict[str, Any]:
        """What the broker did so far: the fields of its `BrokerStatistics` by name."""
        self._require_open()
        counts: dict[str, Any] = await self._answered(StatisticsRequest)
        return counts

    async def _request(self, message: msgspec.Raw, credit: int = 0) -> Reply:
        made: Reply = await self._answered(lambda number: Request(number, message, credit))
        return made

    async def _answered(self, asking: Callable[[int], Frame]) -> Any:
        """What a frame with a number of its own is answered."""
        assert self._wire is not None
        self._numbers += 1
        number = 2 * self._numbers
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests[number] = answer
        self._wire.send(asking(number))
        try:
            return await answer
        finally:
            self._requests.pop(number, None)

    def _received(self, frame: Frame) -> None:
        match frame:
            case Delivery():
                subscription = self._subscriptions.get(frame.subscription)
                if subscription is not None:
                    subscription.arrived(frame)
            case Reply():
                self._replied(frame)
            case StatisticsReply():
                answer = self._requests.get(frame.number)
                if answer is not None and not answer.done():
                    answer.set_result(frame.statistics)

    def _replied(self, frame: Reply) -> None:
        error = ServiceError(f"{self._address} refused: {frame.reason}") if frame.code else None
        if self._publishing is not None and self._publishing.answered(
            frame.number, frame.dropped, error
        ):
            if frame.dropped:
                self._dropped[QUEUE_FULL] += frame.dropped
            return
        answer = self._requests.get(frame.number)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(frame)
        else:
            answer.set_exception(error)

    def _lost(self, wire: ClientWire, reason: str) -> None:
        """A connection has ended, by us or not; one that was given up already does not count."""
        if wire is not self._trying:
            return
        failure: ServiceError = ServiceClosedError("the service is closed")
        if not self._closed:
            failure = self._failure = ConnectionFailedError(str(self._address), reason)
        for subscription in list(self._subscriptions.values()):
            subscription.end(failure)
        if self._publishing is not None:
            self._publishing.fail(failure)
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(failure)


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


def _why(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: no broker listens there (start one with `contrada serve`)"
    return error.strerror or str(error) or type(error).__name__
