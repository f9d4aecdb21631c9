"""`Link`: the link to one neighbour: router messages, and notifications within its credit.

Both ends of a link are alike. Router messages are sent at once, those of one turn of the loop in
one frame. Notifications wait in a queue, like those of a subscription, for the credit that the
neighbour grants as it processes them. So a link is always read, and the queues at both ends are
bounded.

Source: PODC 2000 §4 (servers and the messages between them).
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec
from msgspec import structs

from contrada.delivery.backlog import QueueEntry
from contrada.delivery.delivery_messages import AnnounceOwner, DeliveryMessage, StreamAck, Transfer
from contrada.errors import ContradaError, FrameError, LimitError, StoreError, shortened
from contrada.model import Filter, FilterSet
from contrada.model.algebra.product import HeldProduct, product_meets
from contrada.model.languages.decision import safe_answers
from contrada.model.languages.work_budget import Unbounded
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.ingress_queue import IngressQueue
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.durable_messages import decode_log_hop, encode_durable
from contrada.net.wire.frames import Frame, Hop, HopCredit, HopPart, LogHop
from contrada.net.wire.message_codec import decode_hop, encode_message, encode_publish
from contrada.net.wire.payload_codec import as_notification, encoding_of
from contrada.net.wire.query_codec import split_answer
from contrada.routing.router_messages import (
    AckLinks,
    Advertise,
    AnnounceLinks,
    Answer,
    LinkUp,
    Message,
    Neighbour,
    Publish,
    Reason,
    Refused,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from contrada.service import trace_spans
from contrada.service.dispatch_routes import LINK_DOWN, Carried, LinkRoute
from contrada.service.security.permits import Permit
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.subscription_queue import ENTRY_BYTES, SubscriptionQueue, size_of, size_of_all

HOP_BYTES_MAX: Final = 256 * 1024
"""Bytes of notifications after which a frame to a neighbour is full. Beyond it: the next has the
rest."""

ON_ITS_WAY: Final = "on its way when a link went down"
"""The reason of a possible loss: the neighbour may have processed the notification or not."""

_LOG: Final = logging.getLogger(__name__)


class _LinkQueue(SubscriptionQueue[Carried]):
    """The queue of notifications to a neighbour, with its credit and the number in flight."""

    __slots__ = ("_connection", "_limits", "credit", "in_flight", "sent", "to")

    def __init__(self, connection: ServerConnection, to: str) -> None:
        super().__init__(budget=connection.budget)
        self._limits = connection.broker.limits
        self.credit = self._limits.link_credit_bytes
        self.in_flight = 0  # sent, and not processed by the neighbour
        self.sent = 0
        self.to = to
        self._connection = connection

    @property
    def is_held_up(self) -> bool:
        """Whether the neighbour has granted no credit."""
        return self.credit <= 0

    def _append(self, entries: Sequence[QueueEntry[Carried]], size: int, is_plain: bool) -> None:
        super()._append(entries, size, is_plain)
        self._connection.mark_ready(self)

    def next_frame(self) -> Hop | None:
        """Returns the next frame, within the credit; None where there is nothing to send."""
        batch, size = self._take()
        if not batch:
            return None
        self.credit -= size
        self.in_flight += len(batch)
        self.sent += len(batch)
        if trace_spans.is_on:
            router = self._connection.broker.dispatcher.router
            encodings = [bytes(encoding_of(each)) for each, _, _ in batch]
            trace_spans.trace_departures("link", router.name, self.to, encodings)
        return Hop(
            [
                encode_publish([bytes(encoding_of(each)) for each, _, _ in run], hops, source)
                for (hops, source), run in groupby(batch, itemgetter(1, 2))
            ]
        )

    def _take(self) -> tuple[Sequence[Carried], int]:
        """Returns the next notifications that the neighbour may read, and their size."""
        while True:
            batch, size = self.take_batch(
                self._limits.link_notifications_max, min(self.credit, HOP_BYTES_MAX)
            )
            permit = self._connection.permit
            if permit is None or not batch:
                return batch, size
            items = [as_notification(each.notification) for each in batch]
            unreadable = permit.unreadable(items)
            if not unreadable:
                return batch, size
            self._connection.broker.dropped[NOT_PERMITTED] += len(unreadable)
            if isinstance(self.keeper, LinkRoute):
                entries = [(items[at], size_of(items[at]), None) for at in unreadable]
                self.keeper.note_dropped(NOT_PERMITTED, entries)
            size -= sum(size_of(items[at]) for at in unreadable)
            kept = [each for at, each in enumerate(batch) if at not in unreadable]
            if kept:
                return kept, size


_CHECKED: Final = (Publish, Subscribe, Unsubscribe, Advertise, Unadvertise, AnnounceLinks, AckLinks)
"""The messages that may cross such a link. The content of others cannot be checked here."""

_ForwardedKey: TypeAlias = tuple[bool, str, str]


class LinkPermissions:
    """Filters the router messages of a link to a neighbour with limited rights.

    from it        Advertise     narrowed to its publish rights, or refused
                   Subscribe     unchanged: each notification for it is checked on delivery
    to it          Subscribe     only filters that meet its publish rights
                   Advertise     only offers that meet its subscribe rights
    both ways      all other router messages; no queries, patterns or reliable delivery

    If a filter meets the publish rights, so do its coverers and merged filters. So the neighbour
    gets all subscriptions that it may publish for. A router gives an identity to one product, until
    it is withdrawn. New rights need a new link.
    """

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self._forwarded: set[_ForwardedKey] = set()

    def is_allowed(self, message: Message) -> bool:
        """Returns whether messages of this kind may cross the link."""
        return isinstance(message, _CHECKED)

    def incoming(self, message: Message) -> Message:
        """Returns a message within the rights of the neighbour. Raises NotPermittedError."""
        if not isinstance(message, Advertise):
            return message
        offer = self._permit.allow_offer(message.offer)
        return message if offer is message.offer else structs.replace(message, offer=offer)

    def outgoing(self, message: Message) -> Message | None:
        """Returns the part of a message for the neighbour; None where nothing is left."""
        principal = self._permit.principal
        if isinstance(message, Subscribe):
            # An error here would leave the router half way through a change.
            with Unbounded():
                kept = [it for it in message.filters.filters if _meets(principal.publish, it)]
            if not kept:
                return None
            self._forwarded.add((True, message.owner, message.identity))
            if len(kept) == len(message.filters.filters):
                return message
            return structs.replace(message, filters=FilterSet(kept))
        if isinstance(message, Advertise):
            with Unbounded():
                if not _meets(principal.subscribe, message.offer):
                    return None
            self._forwarded.add((False, message.owner, message.identity))
        elif isinstance(message, Unsubscribe | Unadvertise):
            key = isinstance(message, Unsubscribe), message.owner, message.identity
            if key not in self._forwarded:
                return None
            self._forwarded.remove(key)
        return message


def _meets(filters: FilterSet, product: HeldProduct) -> bool:
    return any(product_meets(each, product) for each in filters.filters)


class ReliableLinkChannel:
    """The delivery messages of one link, beside its router messages, in order.

    They are sent as fast as the neighbour reads. A shipment without room here is not lost: its
    server sends it again. But flooded messages are sent once, so the link to a neighbour that does
    not read them is ended.
    """

    def __init__(
        self, connection: ServerConnection, neighbour: Neighbour, logs: BrokerLogs
    ) -> None:
        self._connection, self._neighbour, self._logs = connection, neighbour, logs
        self._waiting: deque[msgspec.Raw] = deque()
        self._bytes = 0
        self._limits = connection.broker.limits
        logs.link_up(neighbour, self.send)

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, message: DeliveryMessage) -> None:
        """Sends a message soon."""
        is_sent_again = isinstance(message, Transfer | StreamAck)
        try:
            for each in _split(message, self._limits.transfer_bytes_max):
                if is_sent_again and self._bytes > self._limits.channel_bytes_max:
                    self._logs.held_back += 1
                    break
                self._waiting.append(each)
                self._hold(len(each))
        except LimitError as error:
            self._connection.end(FrameError("oversized", str(error)))
            return
        most = self._limits.channel_bytes_max
        if self._bytes > 2 * most and not self._connection.is_closed:
            limit = f"channel_bytes_max = {most}"
            self._connection.end(FrameError("overloaded", f"more than twice {limit} were not read"))
            return
        self._connection.mark_ready(self)

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._connection.broker.hold(size)

    def next_frame(self) -> LogHop | None:
        """Returns the next frame."""
        messages: list[msgspec.Raw] = []
        size, most = 0, self._limits.transfer_bytes_max
        while self._waiting and (not messages or size + len(self._waiting[0]) <= most):
            each = self._waiting.popleft()
            size += len(each)
            messages.append(each)
        self._hold(-size)
        return LogHop(messages) if messages else None

    def receive(self, frame: LogHop) -> Generator[None]:
        """Handles the messages of a frame, one for each turn."""
        is_synchronized = False
        for each in frame.messages:
            try:
                message = decode_log_hop(each)
            except ContradaError as error:
                self._connection.fail(failure := FrameError("malformed", f"a message: {error}"))
                raise failure from None
            try:
                self._logs.receive(self._neighbour, message)
            except StoreError as error:  # The message was the first use of the store.
                self._connection.fail(failure := FrameError("store", shortened(str(error))))
                raise failure from None
            is_synchronized = is_synchronized or (
                isinstance(message, AnnounceOwner)
                and message.is_whole
                and message.owner == self._neighbour.name
            )
            yield
        if is_synchronized:  # Announcements of other owners precede its own in the same frame.
            self._logs.synchronized(self._neighbour)

    def close(self) -> None:
        """Drops the queue of a lost link; it is sent again elsewhere. Twice is once."""
        self._connection.forget_feed(self)
        self._waiting.clear()
        self._hold(-self._bytes)
        self._logs.link_down(self._neighbour, self.send)


def _split(message: DeliveryMessage, bytes_max: int) -> Generator[msgspec.Raw]:
    """Yields the encoded message, in several parts where it carries many shipments."""
    whole = encode_durable(message)
    if len(whole) > bytes_max and isinstance(message, Transfer) and len(message.shipments) > 1:
        half = len(message.shipments) // 2
        for shipments in (message.shipments[:half], message.shipments[half:]):
            yield from _split(msgspec.structs.replace(message, shipments=shipments), bytes_max)
    else:
        yield whole


class Link:
    """The link to one neighbour. `on_synchronized` is called when its subscriptions are here."""

    def __init__(
        self,
        connection: ServerConnection,
        event: LinkUp,
        on_synchronized: Callable[["Link"], None],
        on_end: Callable[["Link"], None],
    ) -> None:
        """Raises ServiceError where the router refuses the link."""
        self.connection = connection
        self.name = event.neighbour.name
        self.address = ""
        """Where clients reach the neighbour; empty if that is not known."""
        self._on_synchronized, self._on_end = on_synchronized, on_end
        self.is_down = False
        self._outbox: list[msgspec.Raw] = []
        self._parts = bytearray()
        self.queue = _LinkQueue(connection, self.name)
        broker = connection.broker
        self._limits = broker.limits
        self._ingress = IngressQueue(
            event.neighbour,
            broker,
            # The credit allows no more.
            frames_max=broker.limits.link_credit_bytes // ENTRY_BYTES + 1,
            answer=self._grant_credit,
            end=connection.end,
        )
        permit = connection.permit
        is_trusted = permit is None or permit.principal.is_free_to_route
        # A neighbour with limited rights has its messages checked.
        self._permissions = None if permit is None or is_trusted else LinkPermissions(permit)
        self._route = broker.dispatcher.link_up(event, self.queue, self._send, self._refuse)
        # Shipments are not checked, so only a neighbour with all rights may send them.
        self._channel = (
            ReliableLinkChannel(connection, event.neighbour, broker.logs)
            if self._permissions is None
            else None
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of publications that are not processed, and of a message in parts."""
        return self._ingress.held_bytes + len(self._parts)

    def handle(self, frame: Frame) -> Generator[None] | None:
        """Handles a frame; a returned generator has the remaining steps, one for each turn."""
        queue = self.queue
        if isinstance(frame, HopCredit):
            queue.credit = min(queue.credit + max(frame.credit, 0), self._limits.link_credit_bytes)
            queue.in_flight = max(0, queue.in_flight - max(frame.count, 0))
            if queue:
                self.connection.mark_ready(queue)
        elif isinstance(frame, Hop):
            return self._receive(frame)
        elif isinstance(frame, HopPart):
            return self._join_parts(frame)
        elif isinstance(frame, LogHop) and self._channel is not None:
            return self._channel.receive(frame)
        return None

    def _join_parts(self, part: HopPart) -> Generator[None] | None:
        """Adds a part of a message; handles the message after its last part."""
        parts = self._parts
        parts += part.data
        self.connection.broker.hold(len(part.data))
        if len(parts) > (most := self._limits.link_message_bytes_max):
            limit = f"link_message_bytes_max = {most}"
            raise FrameError("oversized", f"a message of more than {limit}")
        if not part.is_last:
            return None
        whole = Hop([msgspec.Raw(bytes(parts))])
        self._drop_parts()
        return self._receive(whole)

    def _drop_parts(self) -> None:
        self.connection.broker.hold(-len(self._parts))
        self._parts.clear()

    def _receive(self, hop: Hop) -> Generator[None]:
        is_synchronized = False
        for each in hop.messages:
            if self.is_down:
                return
            try:
                message = decode_hop(each)
            except ContradaError as error:
                self.connection.fail(failure := FrameError("malformed", f"a message: {error}"))
                raise failure from None
            if not self._is_allowed(message):
                continue
            if self._permissions is not None:
                try:
                    message = self._permissions.incoming(message)
                except ContradaError as error:
                    self._count_refused(error)
                    continue
            permit = self.connection.permit
            if isinstance(message, Publish):
                credit = HopCredit(size_of_all(message.notifications), len(message.notifications))
                if permit is not None:
                    message = yield from self._keep_permitted(permit, message)
                self._ingress.add(credit, round(self._limits.link_publish_wait_s * 1000), message)
                continue
            is_synchronized = is_synchronized or isinstance(message, AckLinks)
            if isinstance(message, Subscribe):
                message = _without_unknown(message)
            broker = self.connection.broker
            pending = broker.dispatcher.receive(self._route, message)
            if pending:
                waits = self._ingress.waits.wait(pending, self._limits.link_publish_wait_s)
                broker.start_work(waits)
            broker.logs.update_routes()
            yield
        if is_synchronized:
            self._on_synchronized(self)

    def _count_refused(self, error: ContradaError) -> None:
        self.connection.broker.refused[type(error).__name__] += 1
        self.connection.audit("refused", type(error).__name__, str(error))
        fields = {"neighbour": self.name, "reason": error}
        _LOG.info("neighbour %(neighbour)s is refused: %(reason)s", fields)

    def _is_allowed(self, message: Message) -> bool:
        """Returns whether a message may cross: limited neighbours get none that is unchecked."""
        if self._permissions is None or self._permissions.is_allowed(message):
            return True
        self.connection.broker.refused[NOT_PERMITTED] += 1
        return False

    def _keep_permitted(self, permit: Permit, message: Publish) -> Generator[None, None, Publish]:
        refused = set((yield from permit.unpublishable(message.notifications)))
        if not refused:
            return message
        self.connection.broker.dropped[NOT_PERMITTED] += len(refused)
        if (transitions := self.connection.broker.dispatcher.transitions) is not None:
            forbidden = (message.notifications[at] for at in refused)
            transitions.refuse(self._route.neighbour, NOT_PERMITTED, forbidden)
        kept = (each for at, each in enumerate(message.notifications) if at not in refused)
        return structs.replace(message, notifications=tuple(kept))

    def _refuse(self, refused: Refused) -> None:
        self.connection.broker.refused[refused.reason] += 1
        if refused.reason is not Reason.DUPLICATE:  # Duplicates are usual while paths change.
            _LOG.info(
                "neighbour %(neighbour)s is refused: %(reason)s",
                {"neighbour": self.name, "reason": refused.reason},
            )

    def _grant_credit(self, credit: HopCredit, answer: int | ContradaError) -> None:
        """Grants credit for notifications that are in the queues, or were refused."""
        if isinstance(answer, ContradaError):
            self.connection.broker.refused[type(answer).__name__] += 1
        self.connection.send(credit)
        self._write()

    def _send(self, message: Message) -> None:
        """Sends a message at the end of this turn of the loop, together with others."""
        if not self._is_allowed(message):
            return
        if self._permissions is not None:
            found = self._permissions.outgoing(message)
            if found is None:
                return
            message = found
        if not self._outbox:
            self.connection.soon(self._send_outbox)
        if isinstance(message, Answer):
            self._outbox += map(encode_message, split_answer(message))
        else:
            self._outbox.append(encode_message(message))

    def _send_outbox(self) -> None:
        fields, self._outbox = self._outbox, []
        part: list[msgspec.Raw] = []
        size = 0
        for each in fields:
            if len(each) > self._limits.link_frame_bytes:
                if part:
                    self.connection.send(Hop(part))
                    part, size = [], 0
                self._send_in_parts(bytes(each))
                continue
            part.append(each)
            size += len(each)
            if size >= self._limits.link_frame_bytes:
                self.connection.send(Hop(part))
                part, size = [], 0
        if part:
            self.connection.send(Hop(part))
        self._write()

    def _send_in_parts(self, message: bytes) -> None:
        for begin in range(0, len(message), self._limits.link_frame_bytes):
            end = begin + self._limits.link_frame_bytes
            self.connection.send(HopPart(message[begin:end], end >= len(message)))

    def _write(self) -> None:
        """Writes the outgoing bytes; ends a neighbour that does not read them."""
        self.connection.write()
        most = self._limits.link_unread_bytes_max
        if self.connection.unwritten_bytes > most and not self.connection.is_closed:
            limit = f"link_unread_bytes_max = {most}"
            self.connection.end(FrameError("overloaded", f"more than {limit} were not read"))

    def withdraw_all(self) -> None:
        """Closes the link: the queue is lost, counted; received publications are processed."""
        if not self.is_down:
            self.is_down = True
            self._drop_parts()
            self._route.close()
            self._route.count_lost(ON_ITS_WAY, self.queue.in_flight)
            self._ingress.when_idle(self._finish)

    def cut(self) -> None:
        """Ends the neighbour's subscriptions at once, and drops its unprocessed publications."""
        self.withdraw_all()
        self.forget()
        self._finish()

    def _finish(self) -> None:
        if self._route.is_in_force:
            self.connection.broker.dispatcher.link_down(self._route)
            if self._channel is not None:
                self._channel.close()
            self._on_end(self)

    def forget(self) -> None:
        """Drops the unprocessed publications of the neighbour, counted."""
        self._route.count_lost(LINK_DOWN, self._ingress.forget())


def _without_unknown(asked: Subscribe) -> Subscribe:
    """Returns a wider subscription, counted: its own broker decides the unknown operators."""
    if not asked.filters.unknown():
        return asked
    safe_answers["subscribe: unknown operator"] += 1
    known = [
        Filter({name: side for name, side in each.sides.items() if not side.unknown()})
        for each in asked.filters.filters
    ]
    return structs.replace(asked, filters=FilterSet(known))
