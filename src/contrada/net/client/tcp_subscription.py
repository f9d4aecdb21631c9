"""`TcpSubscription`: a subscription at a broker, on the subscriber's side."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
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
from contrada.model.codec import entries_to_read, notification_from_msgpack
from contrada.net.client.reconnection import Reconnection
from contrada.net.wire.frames import Credit, CutOff, Delivery, MatchDelivery, Reply
from contrada.net.wire.message_codec import encode_message
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX, decode_match
from contrada.routing.delegation import SubscribePattern
from contrada.routing.router_messages import Subscribe, Unsubscribe
from contrada.service import WhenFull, subscription_queue
from contrada.service.queued_subscription import UNREADABLE, UNSUBSCRIBED, QueuedSubscription
from contrada.service.subscription_queue import ENTRY_BYTES, EXPIRED, QUEUE_FULL, SubscriptionQueue

_CREDIT_STEPS: Final = 8
"""Parts in which credit is granted again."""

_UNDECIDED: Final[tuple[ServiceError | None, Filter | FilterSet | None]] = (None, None)
"""Neither refused nor confirmed; typed, since mypy takes a plain None as lasting over an await."""


class SubscriptionHost(Protocol):
    """The access point of a subscription."""

    reconnection: Reconnection
    now_us: Callable[[], int]
    in_force: "dict[str, TcpSubscription]"
    """The subscriptions by identity."""
    numbers: Iterator[int]


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
        settings: subscription_queue.QueueSettings = subscription_queue.USUAL_QUEUE,
    ) -> None:
        # A notification uses ENTRY_BYTES and its own.
        self.credit_bytes = settings.queue_bytes or service.reconnection.limits.credit_bytes
        if settings.queue_max is not None:
            self.credit_bytes = min(self.credit_bytes, settings.queue_max * ENTRY_BYTES)
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
        self._report_bytes = -(-self.credit_bytes // _CREDIT_STEPS)
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
        is_matches = not isinstance(frame, Delivery)
        if is_matches != (self._pattern is not None):
            raise FrameError("protocol", "the broker delivered something else than was asked for")
        if self.queue.finished:  # It was sent before our unsubscribe arrived.
            came = frame.notifications if isinstance(frame, Delivery) else frame.matches
            self.count_dropped(UNSUBSCRIBED, len(came))
            return
        if isinstance(frame, Delivery):
            entries = self._entries_of(frame)
        else:
            entries = self._match_entries(frame)
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
        encodings = frame.notifications
        entries: list[QueueEntry[Any]] = []
        at = 0
        while at < len(encodings):
            if not frame.is_undecided:
                plain = entries_to_read(encodings, at, ENTRY_BYTES)
                entries += plain
                at += len(plain)
            for data in encodings[at : at + 1]:
                at += 1
                size = ENTRY_BYTES + len(data)
                try:
                    found = notification_from_msgpack(data)
                    if frame.is_undecided and not self.is_asked(found):
                        self._taken(size)
                    else:
                        entries.append((found, size, transmission_of(found.envelope)))
                except ContradaError:
                    self.count_dropped(UNREADABLE, 1)
                    self._taken(size)
        return entries

    def on_cut_off(self, frame: CutOff) -> None:
        """Ends the subscription: its queue at the broker was full, or as the reason says."""
        self._lost_at_broker = frame.dropped, frame.expired
        self.end(ServiceError(frame.reason) if frame.reason else TooSlowError())

    def reset(self) -> int:
        """Resets the counts for a new broker. Returns the credit, less the bytes in the queue."""
        self._reconnects += 1
        full, expired = self._lost_at_broker
        self.count_dropped(QUEUE_FULL, full)
        self.count_dropped(EXPIRED, expired)
        self._lost_at_broker = 0, 0
        left = self.credit_bytes - self.queue.held_bytes
        self._read_bytes = min(left, 0)  # Bytes held beyond the credit are not granted again.
        return max(left, 0)

    def request_again(self, credit: int) -> "ResumeRequest":
        """Sends it to the broker of the new connection."""
        requests = self._service.reconnection
        answer = requests.request(self.message(), credit, self.when_full)
        return self, self.wanted, credit, answer

    async def _enter(self) -> None:
        """Enters it at the broker, under an identity of its own."""
        requests, in_force = self._service.reconnection, self._service.in_force
        await requests.ready()
        self.identity = identity = str(next(self._service.numbers))
        in_force[identity] = self
        try:
            await requests.request(self.message(), self.credit_bytes, self.when_full)
        except BaseException as error:
            in_force.pop(identity, None)
            if isinstance(error, asyncio.CancelledError):
                # It may have been added; no caller waits.
                requests.request_unanswered(encode_message(Unsubscribe(identity)))
            raise

    async def _replace(self) -> None:
        """Replaces the filters at the broker; if the connection is lost, on the next one."""
        self.refusal, self.confirmed = _UNDECIDED
        requests, wanted, message = self._service.reconnection, self.wanted, self.message()
        while True:
            await requests.ready()
            if self.refusal is not None:
                raise self.refusal
            if self.confirmed is wanted:
                return
            try:
                with suppress(ConnectionFailedError):
                    await requests.request(message)
                    return
            finally:  # It was cut off meanwhile, so this is a new subscription.
                if self.identity not in self._service.in_force:
                    requests.request_unanswered(encode_message(Unsubscribe(self.identity)))

    async def _leave(self) -> None:
        in_force = self._service.in_force
        try:
            if self.identity in in_force:  # Else it was not restored yet.
                message = encode_message(Unsubscribe(self.identity))
                reply = await self._service.reconnection.request_in_time(message)
                if reply is not None:
                    lost = reply.dropped, reply.expired
                    self._lost_at_broker = max(self._lost_at_broker, lost)
        finally:
            in_force.pop(self.identity, None)

    def note_lost(self, reason: str, entries: Sequence[QueueEntry[Any]]) -> None:
        """Counts notifications that were dropped in the queue, and grants their credit again."""
        self.count_dropped(reason, len(entries))
        self._taken(sum([size for _, size, _ in entries]))

    def _report(self, count: int) -> None:
        self._service.reconnection.send(Credit(self.identity, self._read_bytes))
        self._read_bytes = 0

    def _lost_before(self) -> tuple[int, int]:
        return self._lost_at_broker


ResumeRequest: TypeAlias = tuple[TcpSubscription, Filter | FilterSet, int, "asyncio.Future[Reply]"]
"""A restored subscription: its filters, its credit, and the answer."""


async def await_resumed(
    in_force: dict[str, TcpSubscription], asked: Iterable[ResumeRequest]
) -> None:
    """Waits for the answers; refused subscriptions end. Raises ConnectionFailedError."""
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
            _, wanted, credit, answer = subscription.request_again(credit)
