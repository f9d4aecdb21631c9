"""A client as its broker sees it: one connection, its subscriptions, its publications.

Each subscription has a queue of its own (see `runtime.outlet`). What leaves it is limited by
the credit that the client grants as its subscriber reads, so a client always reads its socket,
holds a bounded amount, and a subscription that nobody reads holds up no other one. Frames of
one publisher are worked off in order; each is answered when all of it is in the queues.
"""

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from contrada.errors import ContradaError, FrameError, LimitError
from contrada.model import Filter, FilterSet, Notification
from contrada.model.encoding import from_msgpack
from contrada.net.frames import (
    Credit,
    Deliver,
    Done,
    Failure,
    Frame,
    Goodbye,
    Publish,
    Refused,
    Subscribe,
    Unsubscribe,
    checked_content,
)
from contrada.net.link import CLIENT, Link, LinkState
from contrada.runtime.budget import Budget
from contrada.runtime.exchange import Route
from contrada.runtime.outlet import ENTRY_BYTES, PUBLISH_WAIT_S_MAX, Outlet

if TYPE_CHECKING:
    from contrada.net.broker import Broker

SUBSCRIPTIONS_PER_CLIENT_MAX: Final = 10_000
"""Subscriptions of a connection. Beyond it: it is refused, the connection stays."""

CLIENT_BYTES_MAX: Final = 256 * 2**20
"""Bytes that wait for one client, in the queues of all its subscriptions together. Beyond it: the
publisher waits, then the newest is dropped, counted."""

PUBLISHES_PENDING_MAX: Final = 16
"""Publish frames of a connection not yet worked off. Beyond it: the connection is told and
closed."""

PENDING_BYTES_MAX: Final = 64 * 2**20
"""Bytes of Publish frames of a connection not yet worked off. Beyond it: the connection is told
and closed."""

DELIVER_NOTIFICATIONS_MAX: Final = 512
"""Notifications in a Deliver frame. Beyond it: the next frame takes the rest."""

DELIVER_BYTES_MAX: Final = 256 * 1024
"""Bytes of notifications after which a Deliver frame takes no more. Beyond it: the next frame
takes the rest."""

WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""Bytes written to a client that it has not taken. Beyond it: the connection is neither written to
nor read from until it takes them."""

NOTIFICATIONS_PER_TURN: Final = 64
"""Published notifications that are worked off in one go. Beyond it: the other connections get a
turn."""

CREDIT_MAX: Final = 2**40
"""Bytes of credit of a subscription. Beyond it: it is cut to this."""

_LOG: Final = logging.getLogger(__name__)


class _Feed:
    """One subscription of a client: its queue and the credit that is left."""

    __slots__ = ("credit", "outlet", "route", "subscription")

    def __init__(self, peer: "Peer", subscription: int, credit: int) -> None:
        self.subscription = subscription
        self.credit = min(max(credit, 0), CREDIT_MAX)
        self.outlet: Outlet[bytes] = Outlet(lambda: peer.mark_ready(self), budget=peer.budget)
        self.route: Route[bytes] | None = None

    def next_frame(self) -> Deliver | None:
        """As much as credit and the limits of a frame allow, or None."""
        batch: list[bytes] = []
        batch_bytes = 0
        while self.outlet and self.credit > 0 and batch_bytes < DELIVER_BYTES_MAX:
            data, size = self.outlet.take()
            self.credit -= size
            batch.append(data)
            batch_bytes += len(data)
            if len(batch) >= DELIVER_NOTIFICATIONS_MAX:
                break
        if not batch or self.route is None:
            return None
        return Deliver(self.subscription, self.route.dropped, batch)


class Peer(asyncio.Protocol):
    """The broker's end of one connection."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._link = Link(broker.hello, CLIENT, self._loop.time())
        self._client = broker.exchange.client()
        self._feeds: dict[int, _Feed] = {}
        self._ready: dict[_Feed, None] = {}
        self._flush_due = False
        self._write_paused = False
        self.budget = Budget(CLIENT_BYTES_MAX, broker.hold)
        self._publishes: deque[Publish] = deque()
        self._pending_bytes = 0
        self._worker: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; it has to say hello first."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if not self._broker.admit(self):
            self._end(FrameError("full", "this broker has as many connections as it may"))

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended, in order or not. What it has published is still handed over."""
        self._transport = None
        self._withdraw_all()
        self._broker.forget(self)

    def pause_writing(self) -> None:
        """The client does not read: write no more, and read nothing that asks for answers."""
        self._write_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has read."""
        self._write_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._flush()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        try:
            for frame in self._link.receive(data, self._loop.time()):
                self._handle(frame)
        except FrameError as error:
            self._end(error)
        self._write_outgoing()

    # --------------------------------------------------------------------- called by the broker

    @property
    def held_bytes(self) -> int:
        """What this connection makes the broker hold."""
        return self.budget.held_bytes + self._pending_bytes

    def tick(self) -> None:
        """Look whether the client is still alive."""
        if self._link.state is LinkState.CLOSED and self._transport is not None:
            self._transport.abort()  # It had its time to take what was written to it.
        try:
            self._link.tick(self._loop.time())
        except FrameError as error:
            self._end(error)
        self._write_outgoing()

    def close(self, reason: str) -> None:
        """Say goodbye and close."""
        self._link.close(reason)
        self._write_outgoing()
        if self._transport is not None:
            self._transport.close()

    def evict(self) -> None:
        """End the connection because of what it holds, and forget that at once."""
        self._end(
            FrameError(
                "overloaded", f"this broker holds too much; {self.held_bytes} bytes of it for you"
            )
        )
        self._withdraw_all()
        while self._publishes:
            self._change_pending(-_size_of(self._publishes.popleft()))

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        if self._transport is not None:
            self._transport.abort()

    def mark_ready(self, feed: _Feed) -> None:
        """A subscription has something to deliver; it goes out in this turn of the loop."""
        self._ready[feed] = None
        if not self._flush_due and not self._write_paused:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    # ------------------------------------------------------------------------------- requests

    def _handle(self, frame: Frame) -> None:
        match frame:
            case Publish():
                self._accept(frame)
            case Credit():
                self._grant(frame)
            case Subscribe():
                self._subscribe(frame)
            case Unsubscribe():
                self._unsubscribe(frame)
            case Failure():
                self._broker.count_refusal("client failure")
                self._close_transport()
            case Goodbye():
                self._close_transport()

    def _subscribe(self, frame: Subscribe) -> None:
        try:
            filters = self._admitted(frame)
            feed = _Feed(self, frame.subscription, frame.credit)
            feed.route = self._broker.exchange.add(self._client, filters, feed.outlet)
        except ContradaError as error:
            self._refuse(frame.request, error)
            return
        self._feeds[frame.subscription] = feed
        self._link.send(Done(frame.request))

    def _admitted(self, frame: Subscribe) -> Filter | FilterSet:
        if frame.subscription in self._feeds:
            raise FrameError("repeated", f"subscription {frame.subscription} is in force already")
        if len(self._feeds) >= SUBSCRIPTIONS_PER_CLIENT_MAX:
            raise LimitError("SUBSCRIPTIONS_PER_CLIENT_MAX", SUBSCRIPTIONS_PER_CLIENT_MAX)
        filters = from_msgpack(checked_content(frame.filters))
        if not isinstance(filters, Filter | FilterSet):
            raise FrameError(
                "unsupported", f"expected a filter, found {type(filters).__name__.lower()}"
            )
        return filters

    def _unsubscribe(self, frame: Unsubscribe) -> None:
        feed = self._feeds.pop(frame.subscription, None)
        if feed is None or feed.route is None:
            self._refuse(
                frame.request,
                FrameError("unknown", f"subscription {frame.subscription} is not in force"),
            )
            return
        self._ready.pop(feed, None)
        self._withdraw(feed, "unsubscribed")
        self._link.send(Done(frame.request, feed.route.dropped))

    def _withdraw_all(self) -> None:
        for feed in self._feeds.values():
            self._withdraw(feed, "connection ended")
        self._feeds.clear()
        self._ready.clear()

    def _withdraw(self, feed: _Feed, reason: str) -> None:
        if feed.route is not None:
            self._broker.exchange.remove(feed.route)
        self._broker.count_dropped(reason, feed.outlet.discard())

    def _grant(self, frame: Credit) -> None:
        feed = self._feeds.get(frame.subscription)
        if feed is None:
            return  # It was sent before the client had the answer to its unsubscribe.
        feed.credit = min(feed.credit + max(frame.credit, 0), CREDIT_MAX)
        if feed.outlet:
            self.mark_ready(feed)

    def _accept(self, frame: Publish) -> None:
        if len(self._publishes) >= PUBLISHES_PENDING_MAX:
            raise self._fault(
                "too many publishes",
                f"more than PUBLISHES_PENDING_MAX = {PUBLISHES_PENDING_MAX} unanswered",
            )
        size = _size_of(frame)
        if self._pending_bytes + size > PENDING_BYTES_MAX:
            raise self._fault(
                "too many publishes",
                f"more than PENDING_BYTES_MAX = {PENDING_BYTES_MAX} bytes unanswered",
            )
        self._change_pending(size)
        self._publishes.append(frame)
        if self._worker is None:
            self._worker = self._broker.start_work(self._work())
            self._worker.add_done_callback(self._worked)

    def _change_pending(self, size: int) -> None:
        self._pending_bytes += size
        self._broker.hold(size)

    async def _work(self) -> None:
        while self._publishes:
            frame = self._publishes.popleft()
            try:
                notifications = [_notification(data) for data in frame.notifications]
            except ContradaError as error:
                self._refuse(frame.request, error)
            else:
                dropped = await self._publish(frame, notifications)
                self._link.send(Done(frame.request, dropped))
            self._change_pending(-_size_of(frame))
            self._write_outgoing()
        self._worker = None  # Here, not when the task is seen to be done: frames come between.

    async def _publish(self, frame: Publish, notifications: list[Notification]) -> int:
        exchange = self._broker.exchange
        wait_s = min(max(frame.wait_ms, 0) / 1000, PUBLISH_WAIT_S_MAX)
        now_us = time.time_ns() // 1000
        dropped = 0
        pairs = zip(notifications, frame.notifications, strict=True)
        for count, (notification, data) in enumerate(pairs, 1):
            size = ENTRY_BYTES + len(data)
            pending = exchange.offer(self._client, notification, data, size, now_us)
            if pending:
                dropped += await exchange.wait(pending, wait_s)
            if count % NOTIFICATIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        return dropped

    def _worked(self, task: asyncio.Task[None]) -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            _LOG.error("a fault of this broker while it worked for a client", exc_info=fault)
            self._end(FrameError("internal", f"a fault of this broker ({type(fault).__name__})"))
        if self._worker is task:  # It did not come to its end: neither will what waited for it.
            self._publishes.clear()
            self._change_pending(-self._pending_bytes)

    # -------------------------------------------------------------------------------- sending

    def _flush(self) -> None:
        self._flush_due = False
        while self._ready and not self._write_paused:
            feed = next(iter(self._ready))
            del self._ready[feed]
            frame = feed.next_frame()
            if frame is None:
                continue  # No credit: it comes back when the client grants some.
            if feed.outlet:
                self._ready[feed] = None  # At the end, so that all get their turn.
            self._link.send(frame)
            self._write_outgoing()

    def _refuse(self, request: int, error: ContradaError) -> None:
        code = error.code if isinstance(error, FrameError) else type(error).__name__
        self._broker.count_refusal(code)
        self._link.send(Refused(request, code, str(error)))

    def _fault(self, code: str, reason: str) -> FrameError:
        error = FrameError(code, reason)
        self._link.fail(error)
        return error

    def _end(self, error: FrameError) -> None:
        self._broker.count_refusal(error.code)
        if self._link.state is not LinkState.CLOSED:
            self._link.fail(error)
        self._close_transport()

    def _close_transport(self) -> None:
        self._write_outgoing()
        if self._transport is not None:
            self._transport.close()

    def _write_outgoing(self) -> None:
        data = self._link.outgoing()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _size_of(frame: Publish) -> int:
    return sum(ENTRY_BYTES + len(data) for data in frame.notifications)


def _notification(data: bytes) -> Notification:
    found = from_msgpack(checked_content(data))
    if not isinstance(found, Notification):
        raise FrameError("unsupported", f"expected a notification, found {type(found).__name__}")
    return found
