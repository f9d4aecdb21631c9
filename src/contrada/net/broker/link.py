"""A neighbour as a broker sees it: router messages, and notifications within its credit.

Both ends of a link are alike. The routers' messages go at once, all those of a turn of the loop in
one frame. Notifications wait in an outlet, as they do for a subscription. They leave it within the
credit that the neighbour grants as it works off what it received. So a link is always read, and the
queues at both ends are bounded.

Source: PODC 2000 §4 (servers and the messages between them).
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec
from msgspec import structs

from contrada.delivery.backlog import QueueEntry
from contrada.errors import ContradaError, FrameError
from contrada.model import Filter, FilterSet
from contrada.model.languages.decision import safe_answers
from contrada.net.broker.ingress_queue import IngressQueue
from contrada.net.broker.link_permissions import LinkPermissions
from contrada.net.broker.reliable_link_channel import ReliableLinkChannel
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.frames import Frame, Hop, HopCredit, HopPart, LogHop
from contrada.net.wire.message_codec import (
    decode_hop,
    encode_message,
    encode_publish,
)
from contrada.net.wire.payload_codec import as_notification, encoding_of
from contrada.net.wire.query_codec import split_answer
from contrada.routing.router_messages import (
    AckLinks,
    Answer,
    LinkUp,
    Message,
    Publish,
    Reason,
    Refused,
    Subscribe,
)
from contrada.service import trace_spans
from contrada.service.dispatcher import LINK_DOWN, Carried
from contrada.service.security.permits import Permit
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.subscription_queue import (
    ENTRY_BYTES,
    SubscriptionQueue,
    size_of,
    size_of_all,
)

HOP_BYTES_MAX: Final = 256 * 1024
"""Bytes of notifications after which a frame to a neighbour takes no more. Beyond it: the next
takes the rest."""

ON_ITS_WAY: Final = "on its way when a link went down"
"""Why a notification may be lost: nobody knows whether the neighbour worked it off."""

_LOG: Final = logging.getLogger(__name__)


class _LinkQueue(SubscriptionQueue[Carried]):
    """What is to be sent on over a link, the credit that is left, and how many are on their way."""

    __slots__ = ("_connection", "_limits", "credit", "in_flight", "sent", "to")

    def __init__(self, connection: ServerConnection, to: str) -> None:
        super().__init__(budget=connection.budget)
        self._limits = connection.broker.limits
        self.credit = self._limits.link_credit_bytes
        self.in_flight = 0
        self.sent = 0
        self.to = to
        self._connection = connection

    def _append(self, entries: Sequence[QueueEntry[Carried]], size: int, is_plain: bool) -> None:
        super()._append(entries, size, is_plain)
        self._connection.mark_ready(self)

    def next_frame(self) -> Hop | None:
        """As much as credit and the limits of a frame allow, or None."""
        batch, size = self._take()
        if not batch:
            return None
        self.credit -= size
        self.in_flight += len(batch)
        self.sent += len(batch)
        if trace_spans.is_on:
            router = self._connection.broker.dispatcher.router
            encode_message = [bytes(encoding_of(each)) for each, _, _ in batch]
            trace_spans.passed("link", router.name, self.to, encode_message)
        return Hop(
            [
                encode_publish([bytes(encoding_of(each)) for each, _, _ in run], hops, source)
                for (hops, source), run in groupby(batch, itemgetter(1, 2))
            ]
        )

    def _take(self) -> tuple[Sequence[Carried], int]:
        """What goes into the next frame, and its size; nothing that the neighbour may not read."""
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
            size -= sum(size_of(items[at]) for at in unreadable)
            kept = [each for at, each in enumerate(batch) if at not in unreadable]
            if kept:
                return kept, size


class Link:
    """One neighbour. `on_end` is called once, when the link is down.

    `on_synchronized` is called whenever the neighbour has taken in link states, and has sent the
    subscriptions that follow from them.
    """

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
        self._on_synchronized, self._on_end = on_synchronized, on_end
        self.is_down = False
        self._outbox: list[msgspec.Raw] = []
        self._parts = bytearray()
        self._queue = _LinkQueue(connection, self.name)
        broker = connection.broker
        self._limits = broker.limits
        self._ingress = IngressQueue(
            broker.dispatcher,
            event.neighbour,
            broker,
            # The credit allows no more.
            frames_max=broker.limits.link_credit_bytes // ENTRY_BYTES + 1,
            answer=self._grant_credit,
            end=connection.end,
        )
        permit = connection.permit
        is_trusted = permit is None or permit.principal.is_free_to_route
        # What is said and heard is looked at where it may not do everything.
        self._permissions = None if permit is None or is_trusted else LinkPermissions(permit)
        self._route = broker.dispatcher.link_up(event, self._queue, self._send, self._refuse)
        # Only neighbours with all rights carry parcels: these are not checked.
        self._channel = (
            ReliableLinkChannel(connection, event.neighbour, broker.logs)
            if self._permissions is None
            else None
        )

    @property
    def held_bytes(self) -> int:
        """What came and waits to be worked off, or for the rest of its message."""
        return self._ingress.held_bytes + len(self._parts)

    @property
    def in_flight(self) -> int:
        """How many notifications were sent and are not worked off at the other end."""
        return self._queue.in_flight

    @property
    def sent(self) -> int:
        """How many notifications were sent so far."""
        return self._queue.sent

    @property
    def waiting(self) -> int:
        """How many notifications wait to be sent."""
        return len(self._queue)

    def handle(self, frame: Frame) -> Generator[None] | None:
        """Does what a frame asks for; what is given is still to be done, in turns."""
        queue = self._queue
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

    def _join_parts(self, disconnect_all: HopPart) -> Generator[None] | None:
        """Takes a part of a message; the message once all of it is here."""
        parts = self._parts
        parts += disconnect_all.data
        self.connection.broker.hold(len(disconnect_all.data))
        if len(parts) > (most := self._limits.link_message_bytes_max):
            limit = f"link_message_bytes_max = {most}"
            raise FrameError("oversized", f"a message of more than {limit}")
        if not disconnect_all.is_last:
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
            pending = broker.dispatcher.hear(self._route, message)
            if pending:
                waits = broker.dispatcher.wait(pending, self._limits.link_publish_wait_s)
                broker.start_work(_await_pending(waits))
            broker.logs.update_routes()
            yield
        if is_synchronized:
            self._on_synchronized(self)

    def _count_refused(self, error: ContradaError) -> None:
        self.connection.broker.refused[type(error).__name__] += 1
        said = {"neighbour": self.name, "reason": error}
        _LOG.info("neighbour %(neighbour)s is refused: %(reason)s", said)

    def _is_allowed(self, message: Message) -> bool:
        """Whether a message goes over the link at all, in either direction.

        What questions, patterns and delivery messages contain cannot be checked for a limited one.
        """
        if self._permissions is None or self._permissions.is_allowed(message):
            return True
        self.connection.broker.refused[NOT_PERMITTED] += 1
        return False

    def _keep_permitted(self, permit: Permit, message: Publish) -> Generator[None, None, Publish]:
        refused = set((yield from permit.unpublishable(message.notifications)))
        if not refused:
            return message
        self.connection.broker.dropped[NOT_PERMITTED] += len(refused)
        kept = (each for at, each in enumerate(message.notifications) if at not in refused)
        return structs.replace(message, notifications=tuple(kept))

    def _refuse(self, refused: Refused) -> None:
        self.connection.broker.refused[refused.reason] += 1
        if refused.reason is not Reason.DUPLICATE:  # That is usual while paths change.
            _LOG.info(
                "neighbour %(neighbour)s is refused: %(reason)s",
                {"neighbour": self.name, "reason": refused.reason},
            )

    def _grant_credit(self, credit: HopCredit, answer: int | ContradaError) -> None:
        """Received notifications are in the queues, or refused: grants credit for as many."""
        if isinstance(answer, ContradaError):
            self.connection.broker.refused[type(answer).__name__] += 1
        self.connection.send(credit)
        self._write()

    def _send(self, message: Message) -> None:
        """A message goes at the end of this turn of the loop, with all that is said in it."""
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
        said, self._outbox = self._outbox, []
        disconnect_all: list[msgspec.Raw] = []
        size = 0
        for each in said:
            if len(each) > self._limits.link_frame_bytes:
                if disconnect_all:
                    self.connection.send(Hop(disconnect_all))
                    disconnect_all, size = [], 0
                self._send_in_parts(bytes(each))
                continue
            disconnect_all.append(each)
            size += len(each)
            if size >= self._limits.link_frame_bytes:
                self.connection.send(Hop(disconnect_all))
                disconnect_all, size = [], 0
        if disconnect_all:
            self.connection.send(Hop(disconnect_all))
        self._write()

    def _send_in_parts(self, message: bytes) -> None:
        for begin in range(0, len(message), self._limits.link_frame_bytes):
            end = begin + self._limits.link_frame_bytes
            self.connection.send(HopPart(message[begin:end], end >= len(message)))

    def _write(self) -> None:
        """Writes what was sent; a neighbour that sends and does not read is ended."""
        self.connection.write()
        most = self._limits.link_unread_bytes_max
        if self.connection.unwritten_bytes > most and not self.connection.is_closed:
            limit = f"link_unread_bytes_max = {most}"
            self.connection.end(FrameError("overloaded", f"more than {limit} were not read"))

    def withdraw_all(self) -> None:
        """The link is down: what waits for the neighbour is lost, counted.

        What it has sent is still worked off; then what it asked for ends.
        """
        if not self.is_down:
            self.is_down = True
            self._drop_parts()
            self._route.close()
            self._route.count_lost(ON_ITS_WAY, self._queue.in_flight)
            self._ingress.when_idle(self._finish)

    def cut(self) -> None:
        """What the neighbour asked for ends at once, and what it has sent is not worked off."""
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
        """Forgets at once what has come and is not worked off; it is counted."""
        self._route.count_lost(LINK_DOWN, self._ingress.forget())


async def _await_pending(waits: Awaitable[int]) -> None:
    """Matches have their places, or are counted as lost."""
    await waits


def _without_unknown(asked: Subscribe) -> Subscribe:
    """A wider subscription, without constraints by operators that are unknown here.

    The subscriber's broker knows them, and delivers only notifications that match. Counted.
    """
    if not asked.filters.unknown():
        return asked
    safe_answers["subscribe: unknown operator"] += 1
    known = [
        Filter({name: side for name, side in each.sides.items() if not side.unknown()})
        for each in asked.filters.filters
    ]
    return structs.replace(asked, filters=FilterSet(known))
