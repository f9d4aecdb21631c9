"""A service at the other end of a TCP connection, with the interface of the embedded one.

A lost connection is made anew (`net/reconnecting.py`), and every subscription is taken up on it
under the identity that it had. What was published and is unanswered fails with
ConnectionFailedError: it is never sent twice. Who publishes or subscribes meanwhile waits.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from contrada.delivery.backlog import Entry, transmission_of
from contrada.errors import ConnectionFailedError, ContradaError, FrameError, ServiceError
from contrada.model import Envelope, Filter, FilterSet, Notification, Pattern
from contrada.model.algebra.notification import Body
from contrada.model.encoding import notification_to_read
from contrada.model.languages.atoms import failures
from contrada.model.languages.decision import safe_answers
from contrada.net.address import parse_addresses
from contrada.net.content import CONTENT_BYTES_MAX, match_from, packed_content
from contrada.net.frames import (
    Credit,
    Delivery,
    Frame,
    InspectReply,
    InspectRequest,
    MatchDelivery,
    Offers,
    Reply,
    Request,
    StatisticsReply,
    StatisticsRequest,
    packed,
)
from contrada.net.inspection import Inspection
from contrada.net.offering import RemoteMarket
from contrada.net.publishing import (
    PUBLISH_FRAMES_MAX,
    PUBLISH_NOTIFICATIONS_MAX,
    Batch,
    Publishing,
)
from contrada.net.reconnecting import Reconnecting
from contrada.net.wire import GOODBYE_WAIT_S
from contrada.patterns import Match
from contrada.routing.delegation import SubscribePattern
from contrada.routing.messages import Subscribe, Unsubscribe
from contrada.runtime.calling import batches_of, checked_timeout, checked_wait, tell_published
from contrada.runtime.offering import FollowedOffers, HeldOffering
from contrada.runtime.outlet import ENTRY_BYTES, EXPIRED, PUBLISH_WAIT_S, QUEUE_FULL, Outlet
from contrada.runtime.stamping import Stamp
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
    notification_of,
    offer_of,
    pattern_of,
    promised,
    publication_of,
    reader_of,
    residue_of,
)

CREDIT_BYTES: Final = 4 * 2**20
"""Bytes delivered for one subscription that its subscriber has not read yet. Beyond it: the broker
keeps the rest."""

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
        address: str | Sequence[str],
        *,
        publisher: str | None = None,
        publish_wait_s: float = PUBLISH_WAIT_S,
        reconnect: bool = True,
        reconnect_wait_s: float | None = None,
        on_connection: Callable[[ConnectionState], object] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`publish_wait_s` bounds the broker's wait for a full queue; 0 drops at once.

        Raises AddressError, ServiceError.
        """
        self._states = ConnectionStates(on_connection)
        give_up_after_s = checked_timeout(reconnect_wait_s, "reconnect_wait_s") if reconnect else 0
        self._reconnecting = Reconnecting(
            parse_addresses(address), self, self._states, give_up_after_s, tls
        )
        self._stamp = Stamp(publisher)
        self.now_us = self._stamp.now_us
        self._wait_ms = round(checked_wait(publish_wait_s) * 1000)
        self._publishing: Publishing | None = None
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._subscriptions: dict[str, TcpSubscription] = {}
        self._market = RemoteMarket(self)
        self._numbers = 0
        self._published = 0
        self._dropped: Counter[str] = Counter()

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
        self._market.end()
        await self._reconnecting.aclose()

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
        """Publish one notification, at best effort; see `Service.publish`."""
        notification = publication_of(item, body, content_type, ttl_s, priority, delivery)
        if not self._reconnecting.is_up:
            await self._reconnecting.ready()
        (stamped,) = self._stamp.stamped((notification,), self._stamp.now_us())
        placed: dict[Batch, int] = {}
        self._send((stamped,), placed)
        (batch,) = placed
        await self._settled(batch, 1)
        return stamped.envelope

    async def publish_batch(
        self, items: Iterable[Item] | AsyncIterable[Item], *, delivery: str | None = None
    ) -> int:
        """Publish many, in order, at best effort; see `Service.publish_batch`."""
        taken = 0
        unsettled: dict[Batch, int] = {}
        make = self._stamp.packed
        if delivery is not None:

            def make(item: Item) -> bytes | Notification:
                return self._stamp.packed(promised(notification_of(item), delivery))

        async def settle(batch: Batch) -> int:
            size = unsettled.pop(batch)
            await self._settled(batch, size)
            return size

        try:
            try:
                async for made in batches_of(items, PUBLISH_NOTIFICATIONS_MAX, make):
                    if not self._reconnecting.is_up:
                        await self._reconnecting.ready()
                    self._send(made, unsettled)
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
        if isinstance(subject, Pattern):
            pattern = pattern_of(subject, where)
            return TcpSubscription(
                self,
                FilterSet(pattern.filters),
                lambda match: Match(pattern, match.by, match.notifications),
                pattern=pattern,
            )
        filters, residue = filters_of(subject, where), residue_of(subject, where)
        return TcpSubscription(self, filters, reader_of(subject), residue)

    async def unsubscribe(self, durable: str) -> None:
        """Refused: brokers keep no durable subscriptions yet. Raises ServiceError."""
        raise ServiceError(_NO_STANDING)

    def advertise(self, offered: Offered) -> Offering:
        """An advertisement, in force inside `async with`; see `Service.advertise`."""
        return HeldOffering(self._market, offer_of(offered))

    def advertisements(self) -> Advertisements:
        """What is on offer at the broker, as it changes."""
        return FollowedOffers(self._market)

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

    async def enter(self, subscription: "TcpSubscription", credit: int) -> None:
        """Put a subscription in force at the broker, under an identity of its own."""
        await self.ready()
        self._numbers += 1
        subscription.identity = identity = str(self._numbers)
        message = subscription.message()
        self._subscriptions[identity] = subscription
        try:
            await self.request(message, credit)
        except BaseException as error:
            self._subscriptions.pop(identity, None)
            if isinstance(error, asyncio.CancelledError):
                self.demand(packed(Unsubscribe(identity)))  # It may be in force; nobody waits.
            raise

    async def renew(self, subscription: "TcpSubscription") -> None:
        """Have the broker take what a subscription asks for now for what it asked for before.

        If the connection is lost meanwhile, that is taken up on the next one.
        """
        wanted, message = subscription.wanted, subscription.message()
        while True:
            await self.ready()
            if subscription.refusal is not None:
                raise subscription.refusal
            if subscription.taken_up is wanted:
                return
            try:
                await self.request(message)
            except ConnectionFailedError:
                continue
            return

    async def leave(self, identity: str) -> tuple[int, int]:
        """Take a subscription out at the broker; returns how many found no room or time there."""
        if identity not in self._subscriptions:
            return 0, 0
        try:
            if not self.is_there:
                return 0, 0
            async with asyncio.timeout(GOODBYE_WAIT_S):
                reply = await self.request(packed(Unsubscribe(identity)))
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

    @property
    def is_there(self) -> bool:
        """Whether what is asked goes to a broker."""
        return self._reconnecting.is_there

    async def ready(self) -> None:
        """Return when a connection is up. Raises ConnectionFailedError, ServiceClosedError."""
        await self._reconnecting.ready()

    def request(self, message: msgspec.Raw, credit: int = 0) -> asyncio.Future[Reply]:
        """Ask the broker for something, now."""
        return self._answered(lambda number: Request(number, message, credit))

    def demand(self, message: msgspec.Raw) -> None:
        """The same, where nobody waits for the answer."""
        self._reconnecting.send(Request(0, message))

    def _send(self, made: Sequence[bytes | Notification], placed: dict[Batch, int]) -> None:
        """Appends what is stamped to what is sent; counts how much of it is in which batch."""
        self._reconnecting.check()
        assert self._publishing is not None, "it was opened"
        if is_promised([each for each in made if isinstance(each, Notification)]):
            raise ServiceError(_NO_PROMISES)
        self._publishing.add(
            (each if isinstance(each, bytes) else packed_content(each) for each in made), placed
        )

    async def _settled(self, batch: Batch, count: int) -> None:
        # Shielded: the answer is shared by all who published in this frame.
        await asyncio.shield(batch.answer)
        self._published += count

    async def broker_statistics(self) -> dict[str, Any]:
        """What the broker did so far: the fields of its `BrokerStatistics` by name."""
        await self.ready()
        return (await self._answered(StatisticsRequest)).statistics  # type: ignore[no-any-return]

    async def inspection(self, notification: bytes = b"") -> Inspection:
        """What the broker holds, and where this notification would go. Raises ServiceError."""
        await self.ready()
        answer = self._answered(lambda number: InspectRequest(number, notification))
        return (await answer).held  # type: ignore[no-any-return]

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
            case Delivery() | MatchDelivery():
                subscription = self._subscriptions.get(frame.subscription)
                if subscription is not None:
                    subscription.arrived(frame)
            case Reply():
                self._replied(frame)
            case Offers():
                self._market.received(frame)
            case StatisticsReply() | InspectReply():
                answer = self._requests.pop(frame.number, None)
                if answer is not None and not answer.done():
                    answer.set_result(frame)

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

    async def take_up(self) -> None:
        """Put all that is asked for in force at the broker that is there now."""
        asked = [  # All at once, so that no unsubscribe comes between.
            (each, *self._taking_up(each, each.begin_anew(CREDIT_BYTES)))
            for each in self._subscriptions.values()
        ]
        await self._market.take_up()
        for subscription, wanted, credit, answer in asked:
            while subscription.identity in self._subscriptions:
                try:
                    await answer
                except ConnectionFailedError:
                    raise
                except ServiceError as error:  # This broker does not take it; the others go on.
                    if not subscription.refused(wanted, error):
                        self._subscriptions.pop(subscription.identity, None)
                        subscription.end(error)
                        break
                else:
                    subscription.taken_up, credit = wanted, 0
                if subscription.wanted is wanted:
                    break
                wanted, credit, answer = self._taking_up(subscription, credit)

    def _taking_up(
        self, subscription: "TcpSubscription", credit: int
    ) -> tuple[Filter | FilterSet, int, asyncio.Future[Reply]]:
        """What is asked for anew, with so much credit, and the answer to that."""
        return subscription.wanted, credit, self.request(subscription.message(), credit)

    def given_up(self, failure: ServiceError) -> None:
        """There will be no connection any more: iterations end after what they hold."""
        for subscription in list(self._subscriptions.values()):
            subscription.end(failure)
        self._market.end(failure)


class TcpSubscription(QueuedSubscription[Any]):
    """A subscription at a broker; its queue here is bounded by the credit it grants."""

    __slots__ = (
        "_lost_there",
        "_pattern",
        "_read_bytes",
        "_service",
        "identity",
        "refusal",
        "taken_up",
    )

    def __init__(
        self,
        service: TcpService,
        filters: Filter | FilterSet,
        reader: Callable[[Any], Any] | None,
        residue: Callable[[Notification], bool] | None = None,
        *,
        pattern: Pattern | None = None,
    ) -> None:
        # The credit is the bound: the broker sends one notification past it at most.
        outlet: Outlet[Any] = Outlet(
            notifications_max=CREDIT_BYTES // ENTRY_BYTES + 1,
            bytes_max=CREDIT_BYTES + CONTENT_BYTES_MAX + ENTRY_BYTES,
            clock=service.now_us,
        )
        outlet.keeper = self
        super().__init__(filters, outlet, reader, residue)
        self._service = service
        self._pattern = pattern
        self.identity = ""
        self.taken_up: Filter | FilterSet | None = None
        """What was taken up on the last connection, where there was another one before."""
        self.refusal: ServiceError | None = None
        """Why what it is updated to was not."""
        self._read_bytes = 0
        self._lost_there = 0, 0

    @property
    def wanted(self) -> Filter | FilterSet:
        """What the broker is to take: where it is being updated, what follows."""
        return self._filters if self._next is None else self._next

    def refused(self, wanted: Filter | FilterSet, error: ServiceError) -> bool:
        """A broker does not take up what is wanted; whether there is something else to be asked."""
        if self._next is wanted:
            self.refusal, self._next = error, None
        return self.wanted is not wanted

    def message(self) -> msgspec.Raw:
        """What asks for it."""
        if self._pattern is not None:
            return packed(SubscribePattern(self.identity, self._pattern))
        return packed(Subscribe(self.identity, self.wanted))

    def arrived(self, frame: Delivery | MatchDelivery) -> None:
        """The broker has delivered. Raises FrameError when it ignores the credit."""
        self._lost_there = frame.dropped, frame.expired
        is_matches = isinstance(frame, MatchDelivery)
        if is_matches != (self._pattern is not None):
            raise FrameError("protocol", "the broker delivered something else than was asked for")
        if self.outlet.finished:  # It was sent before our unsubscribe came.
            came = frame.matches if isinstance(frame, MatchDelivery) else frame.notifications
            self.count_dropped(UNSUBSCRIBED, len(came))
            return
        entries = (
            self._matched(frame) if isinstance(frame, MatchDelivery) else self._delivered_by(frame)
        )
        if self.outlet.offer_all(entries) < len(entries):
            raise FrameError("protocol", "the broker delivered more than it was granted")

    def _matched(self, frame: MatchDelivery) -> list[Entry[Any]]:
        pattern = self._pattern
        entries: list[Entry[Any]] = []
        assert pattern is not None, "it was checked"
        for each in frame.matches:
            size = sum(ENTRY_BYTES + len(data) for data in each[1])
            try:
                found = match_from(self.identity, each)
                if len(found.notifications) != len(pattern.filters):
                    raise FrameError("protocol", "the broker delivered no match of the pattern")
                if frame.is_undecided and not all(
                    map(Filter.matches, pattern.filters, found.notifications)
                ):
                    self._taken(size)
                else:
                    entries.append((found, size, None))
            except FrameError:
                raise
            except ContradaError:
                self.count_dropped(UNREADABLE, 1)
                self._taken(size)
        return entries

    def _delivered_by(self, frame: Delivery) -> list[Entry[Any]]:
        entries: list[Entry[Any]] = []
        for data in frame.notifications:
            try:
                found, is_plain = notification_to_read(data)
                if frame.is_undecided and not self._is_asked(found):
                    self._taken(ENTRY_BYTES + len(data))
                else:
                    waits = None if is_plain else transmission_of(found.envelope)
                    entries.append((found, ENTRY_BYTES + len(data), waits))
            except ContradaError:
                self.count_dropped(UNREADABLE, 1)
                self._taken(ENTRY_BYTES + len(data))
        return entries

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

    def _is_asked(self, found: Notification) -> bool:
        """Whether a filter matches what the broker did not decide."""
        return self._filters.matches(found) or (
            self._next is not None and self._next.matches(found)
        )

    async def _enter(self) -> None:
        await self._service.enter(self, CREDIT_BYTES)

    async def _replace(self) -> None:
        self.refusal = self.taken_up = None
        await self._service.renew(self)

    async def _leave(self) -> None:
        self._lost_there = max(self._lost_there, await self._service.leave(self.identity))

    def count_lost(self, reason: str, count: int, size: int) -> None:
        """So many were dropped in the outlet: the broker may send as much again."""
        self.count_dropped(reason, count)
        self._taken(size)

    def _taken(self, size: int) -> None:
        self._read_bytes += size
        if self._read_bytes >= _CREDIT_STEP:
            self._service.grant(self.identity, self._read_bytes)
            self._read_bytes = 0

    def _lost_before(self) -> tuple[int, int]:
        return self._lost_there
