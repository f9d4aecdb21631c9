"""`TcpSubscription`: a subscription at a broker, on the subscriber's side."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from contrada.delivery.backlog import QueueEntry, transmission_of
from contrada.errors import (
    ConnectionFailedError,
    ContradaError,
    FrameError,
    ServiceError,
    TooSlowError,
)
from contrada.model import Filter, FilterSet, Notification, Pattern
from contrada.model.codec import notification_to_read
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.remote_offers import BrokerRequests
from contrada.net.wire.frames import CutOff, Delivery, MatchDelivery, Reply
from contrada.net.wire.message_codec import encode_message
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX, decode_match
from contrada.routing.delegation import SubscribePattern
from contrada.routing.router_messages import Subscribe
from contrada.service import WhenFull, reading_of
from contrada.service.queued_subscription import UNREADABLE, UNSUBSCRIBED, QueuedSubscription
from contrada.service.subscription_queue import (
    ENTRY_BYTES,
    EXPIRED,
    QUEUE_FULL,
    USUAL_QUEUE,
    QueueSettings,
    SubscriptionQueue,
)

_CREDIT_STEPS: Final = 8
"""Parts in which credit is granted again."""


class SubscriptionHost(BrokerRequests, Protocol):
    """The access point of a subscription."""

    now_us: Callable[[], int]

    async def enter(self, subscription: "TcpSubscription", credit: int) -> None:
        """Adds the subscription at the broker."""

    async def replace(self, subscription: "TcpSubscription") -> None:
        """Replaces its filters."""

    async def leave(self, identity: str) -> tuple[int, int]:
        """Withdraws it. Returns its notifications dropped and expired at the broker."""
        ...

    def grant(self, identity: str, credit: int) -> None:
        """Grants credit."""


class TcpSubscription(QueuedSubscription[Any]):
    """A subscription at a broker; its queue is bounded by the credit that it grants."""

    def __init__(
        self,
        service: SubscriptionHost,
        filters: Filter | FilterSet,
        reader: Callable[[Any], Any] | None,
        residue: Callable[[Notification], bool] | None = None,
        pattern: Pattern | None = None,
        *,
        settings: QueueSettings = USUAL_QUEUE,
    ) -> None:
        self.credit_bytes = _credit_of(settings, service.limits)
        # The credit is the bound: the broker sends one notification past it at most.
        queue: SubscriptionQueue[Any] = SubscriptionQueue(
            notifications_max=self.credit_bytes // ENTRY_BYTES + 1,
            bytes_max=self.credit_bytes + CONTENT_BYTES_MAX + ENTRY_BYTES,
            clock=service.now_us,
        )
        queue.keeper = self
        super().__init__(filters, queue, reader, residue)
        self._service = service
        self.when_full: WhenFull = settings.when_full
        self._pattern = pattern
        self.identity = ""
        self.confirmed: Filter | FilterSet | None = None
        """The filters that the broker of a later connection has confirmed."""
        self.refusal: ServiceError | None = None
        """The refusal of its last update."""
        self._read_bytes = 0
        self._lost_at_broker = 0, 0

    @property
    def wanted(self) -> Filter | FilterSet:
        """The filters to be sent: those of a running update, or the present ones."""
        return self._filters if self._next is None else self._next

    def refused(self, wanted: Filter | FilterSet, error: ServiceError) -> bool:
        """Handles a refusal. Returns whether there are other filters to be tried."""
        if self._next is wanted:
            self.refusal, self._next = error, None
        return self.wanted is not wanted

    def message(self) -> msgspec.Raw:
        """Returns the message that subscribes."""
        if self._pattern is not None:
            return encode_message(SubscribePattern(self.identity, self._pattern))
        return encode_message(Subscribe(self.identity, self.wanted))

    def on_delivery(self, frame: Delivery | MatchDelivery) -> None:
        """Queues a delivery. Raises FrameError when the broker ignores the credit."""
        self._lost_at_broker = frame.dropped, frame.expired
        is_matches = isinstance(frame, MatchDelivery)
        if is_matches != (self._pattern is not None):
            raise FrameError("protocol", "the broker delivered something else than was asked for")
        if self.queue.finished:  # It was sent before our unsubscribe arrived.
            came = frame.matches if isinstance(frame, MatchDelivery) else frame.notifications
            self.count_dropped(UNSUBSCRIBED, len(came))
            return
        entries = (
            self._match_entries(frame)
            if isinstance(frame, MatchDelivery)
            else self._entries_of(frame)
        )
        if self.queue.offer_all(entries) < len(entries):
            raise FrameError("protocol", "the broker delivered more than it was granted")

    def _match_entries(self, frame: MatchDelivery) -> list[QueueEntry[Any]]:
        pattern = self._pattern
        entries: list[QueueEntry[Any]] = []
        assert pattern is not None, "it was checked"
        for each in frame.matches:
            size = sum(ENTRY_BYTES + len(data) for data in each[1])
            try:
                found = decode_match(self.identity, each)
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

    def _entries_of(self, frame: Delivery) -> list[QueueEntry[Any]]:
        entries: list[QueueEntry[Any]] = []
        for data in frame.notifications:
            try:
                found, is_plain = notification_to_read(data)
                if frame.is_undecided and not self.is_asked(found):
                    self._taken(ENTRY_BYTES + len(data))
                else:
                    waits = None if is_plain else transmission_of(found.envelope)
                    entries.append((found, ENTRY_BYTES + len(data), waits))
            except ContradaError:
                self.count_dropped(UNREADABLE, 1)
                self._taken(ENTRY_BYTES + len(data))
        return entries

    def on_cut_off(self, frame: CutOff) -> None:
        """Ends the subscription: its queue at the broker was full."""
        self._lost_at_broker = frame.dropped, frame.expired
        self.end(TooSlowError())

    def reset(self) -> int:
        """Resets the counts for a broker that does not know the subscription.

        Returns its credit, without the bytes that are still in the queue.
        """
        self._reconnects += 1
        full, expired = self._lost_at_broker
        self.count_dropped(QUEUE_FULL, full)
        self.count_dropped(EXPIRED, expired)
        self._lost_at_broker = 0, 0
        left = self.credit_bytes - self.queue.held_bytes
        self._read_bytes = min(left, 0)  # Bytes held beyond the credit are not granted again.
        return max(left, 0)

    async def _enter(self) -> None:
        await self._service.enter(self, self.credit_bytes)

    async def _replace(self) -> None:
        self.refusal = self.confirmed = None
        await self._service.replace(self)

    async def _leave(self) -> None:
        self._lost_at_broker = max(self._lost_at_broker, await self._service.leave(self.identity))

    def count_lost(self, reason: str, count: int, size: int) -> None:
        """Counts notifications that were dropped in the queue, and grants their credit again."""
        self.count_dropped(reason, count)
        self._taken(size)

    def _taken(self, size: int) -> None:
        self._read_bytes += size
        if self._read_bytes * _CREDIT_STEPS >= self.credit_bytes:
            self._service.grant(self.identity, self._read_bytes)
            self._read_bytes = 0

    def _lost_before(self) -> tuple[int, int]:
        return self._lost_at_broker


def new_subscription(
    service: SubscriptionHost, subject: Any, where: Any, settings: QueueSettings
) -> TcpSubscription:
    """Returns the subscription of `Service.subscribe`; raises as it does."""
    return TcpSubscription(service, *reading_of(subject, where), settings=settings)


def _credit_of(settings: QueueSettings, limits: ClientLimits) -> int:
    """The credit of a subscription in bytes; a notification uses ENTRY_BYTES and its own."""
    credit = settings.queue_bytes or limits.credit_bytes
    return credit if settings.queue_max is None else min(credit, settings.queue_max * ENTRY_BYTES)


ResumeRequest: TypeAlias = tuple[TcpSubscription, Filter | FilterSet, int, "asyncio.Future[Reply]"]
"""A restored subscription: its filters, its credit, and the answer."""


def request_again(
    host: SubscriptionHost, subscription: TcpSubscription, credit: int
) -> ResumeRequest:
    """Sends a subscription to the broker of the new connection."""
    answer = host.request(subscription.message(), credit, subscription.when_full)
    return subscription, subscription.wanted, credit, answer


async def await_resumed(
    host: SubscriptionHost, in_force: dict[str, TcpSubscription], asked: Iterable[ResumeRequest]
) -> None:
    """Waits until subscriptions are confirmed, each with its present filters.

    Refused ones end, the others continue. Raises ConnectionFailedError.
    """
    for subscription, wanted, credit, answer in asked:
        while subscription.identity in in_force:
            try:
                await answer
            except ConnectionFailedError:
                raise
            except ServiceError as error:
                if not subscription.refused(wanted, error):
                    in_force.pop(subscription.identity, None)
                    subscription.end(error)
                    break
            else:
                subscription.confirmed, credit = wanted, 0
            if subscription.wanted is wanted:
                break
            _, wanted, credit, answer = request_again(host, subscription, credit)
