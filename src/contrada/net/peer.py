"""A client as its broker sees it: one connection, its subscriptions, its publications.

Each subscription has a queue of its own (see `runtime.outlet`). What leaves it is limited by
the credit that the client grants as its subscriber reads, so a client always reads its socket,
holds a bounded amount, and a subscription that nobody reads holds up no other one. What one
publisher asks for is worked off in order; it is answered when all of it is in the queues.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Generator, Sequence
from itertools import accumulate, takewhile
from typing import Final, Protocol

from msgspec import Raw

from contrada.delivery.backlog import Entry
from contrada.errors import (
    ContradaError,
    FrameError,
    LimitError,
    UnsatisfiableFilterError,
    shortened,
)
from contrada.model import Notification
from contrada.model.encoding import to_msgpack
from contrada.model.languages.work import Work
from contrada.net.accepted import FEWER, Accepted, Doubtful, Working
from contrada.net.connection import CLIENT, Phase
from contrada.net.frames import (
    Credit,
    Delivery,
    Failure,
    Frame,
    Goodbye,
    Hello,
    PackedSubscribe,
    Reply,
    Request,
    StatisticsReply,
    StatisticsRequest,
    unpacked,
)
from contrada.net.turns import TURN_S, Turns
from contrada.net.wire import Wire
from contrada.routing.messages import Publish, Unsubscribe
from contrada.runtime.budget import Budget
from contrada.runtime.exchange import Exchange, Route
from contrada.runtime.outlet import Outlet

SUBSCRIPTIONS_PER_CLIENT_MAX: Final = 10_000
"""Subscriptions of a connection. Beyond it: it is refused, the connection stays."""

CLIENT_BYTES_MAX: Final = 256 * 2**20
"""Bytes that wait for one client, in the queues of all its subscriptions together. Beyond it: the
publisher waits, then the newest of the lowest priority is dropped, counted."""

DELIVER_NOTIFICATIONS_MAX: Final = 512
"""Notifications in a Delivery. Beyond it: the next takes the rest."""

DELIVER_BYTES_MAX: Final = 256 * 1024
"""Bytes of notifications after which a Delivery takes no more. Beyond it: the next
takes the rest."""

WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""Bytes written to a client that it has not taken. Beyond it: the connection is neither written to
nor read from until it takes them."""

REQUEST_WORK_MAX: Final = 100_000
"""Steps to read a request, or one of its filters, and to carry it out, of about a microsecond each
(see `model.languages.work`). Beyond it: it is refused, the connection stays."""

FILTERS_PER_TURN: Final = 64
"""Filters of a subscription that are entered in one go. Beyond it: the other connections get a
turn."""

FILTER_BYTES_PER_TURN: Final = 8 * 1024
"""Bytes of such filters, after which no more are entered in one go. Beyond it: the other
connections get a turn."""

CREDIT_MAX: Final = 2**40
"""Bytes of credit of a subscription. Beyond it: it is cut to this."""

_LOG: Final = logging.getLogger(__name__)


class Host(Working, Protocol):
    """What a connection needs of its broker."""

    exchange: Exchange
    hello: Hello
    refused: Counter[str]
    """Faults of peers and requests that were refused, by name."""
    dropped: Counter[str]
    """Notifications that were lost, by reason."""

    def admit(self, peer: "Peer") -> bool:
        """A connection was made; False when there are too many."""
        ...

    def forget(self, peer: "Peer") -> None:
        """A connection has ended."""

    def counts(self) -> dict[str, int | dict[str, int]]:
        """What the broker did so far: its statistics by name."""
        ...


class _Feed(Outlet[Notification]):
    """The queue of one subscription of a client, and the credit that is left."""

    __slots__ = ("_peer", "credit", "route")

    route: Route[Notification]

    def __init__(self, peer: "Peer", credit: int) -> None:
        super().__init__(budget=peer.budget)
        self.credit = min(max(credit, 0), CREDIT_MAX)
        self._peer = peer

    def _append(self, entries: Sequence[Entry[Notification]], size: int, is_plain: bool) -> None:
        super()._append(entries, size, is_plain)
        self._peer.mark_ready(self)

    def next_delivery(self) -> Delivery | None:
        """As much as credit and the limits of a frame allow, or None."""
        most = min(self.credit, DELIVER_BYTES_MAX)
        batch, size = self.take_batch(DELIVER_NOTIFICATIONS_MAX, most)
        if not batch:
            return None
        self.credit -= size
        packed = list(map(to_msgpack, batch))
        is_undecided = Doubtful in map(type, packed)
        if is_undecided:
            packed = list(map(bytes, packed))
        route = self.route
        return Delivery(route.identity, route.dropped, packed, is_undecided, route.expired)


class Peer(Wire):
    """The broker's end of one connection."""

    def __init__(self, broker: Host) -> None:
        super().__init__(broker.hello, CLIENT)
        self._broker = broker
        self.exchange = broker.exchange
        self.client = broker.exchange.client()
        self._feeds: dict[str, _Feed] = {}
        self._ready: dict[_Feed, None] = {}
        self._flush_due = False
        self._write_paused = False
        self._name: object = None
        self.budget = Budget(CLIENT_BYTES_MAX, broker.hold)
        self._turns = Turns(self._loop.time())
        self._turn_due = False
        self._under_way: Generator[None] | None = None
        self._leaving: list[Route[Notification]] = []
        self._unread_bytes = 0
        self._has_left = False
        self._accepted = Accepted(
            self.exchange, self.client, broker, answer=self._answer, end=self._end
        )

    # ---------------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; it has to say hello first."""
        super().connection_made(transport)
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._name = self._transport.get_extra_info("peername")
        _LOG.info("client %s connected", self._name)
        if not self._broker.admit(self):
            self._end(FrameError("full", "this broker has as many connections as it may"))

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended, in order or not. What it has published is still handed over."""
        self._transport = None
        self._count_unread()
        _LOG.info("client %s is gone%s", self._name, f": {error}" if error else "")
        self._withdraw_all()
        self._broker.forget(self)

    def pause_writing(self) -> None:
        """The client does not read: write no more, and read nothing that asks for answers."""
        self._write_paused = True
        self._regulate_reading()

    def resume_writing(self) -> None:
        """The client has read."""
        self._write_paused = False
        self._regulate_reading()
        if self._transport is not None and not self._transport.is_closing():
            self._flush()

    def _regulate_reading(self) -> None:
        """Read nothing while what was read waits for its turn, or for the client to read."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._write_paused or self._turn_due:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --------------------------------------------------------------------- called by the broker

    @property
    def held_bytes(self) -> int:
        """What this connection makes the broker hold."""
        return self.budget.held_bytes + self._accepted.held_bytes + self._unread_bytes

    def tick(self) -> None:
        """Look whether the client is still alive."""
        if self._connection.state is Phase.CLOSED and self._transport is not None:
            self._transport.abort()  # It had its time to take what was written to it.
        super().tick()

    def close(self, reason: str) -> None:
        """Say goodbye and close."""
        self._connection.close(reason)
        self._close_transport()

    def evict(self) -> None:
        """End the connection because of what it holds, and forget that at once."""
        self._end(
            FrameError(
                "overloaded", f"this broker holds too much; {self.held_bytes} bytes of it for you"
            )
        )
        self._withdraw_all()
        self._accepted.forget()

    def mark_ready(self, feed: _Feed) -> None:
        """A subscription has something to deliver; it goes out in this turn of the loop."""
        self._ready[feed] = None
        if not self._flush_due and not self._write_paused:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    # ------------------------------------------------------------------------------- requests

    def _work_off(self) -> None:
        """As every `Wire`, but in turns: after a while the other connections get theirs."""
        self._turns.begin(self._loop.time())
        try:
            while not self._turn_due and self._go_on():
                rest_s = self._turns.rest_s(self._loop.time())
                if rest_s is not None:
                    self._turn_due = True
                    self._broker.start_work(self._take_turn(rest_s))
        except FrameError as error:
            self._end(error)
        self._count_unread()
        self._regulate_reading()
        self._write_outgoing()

    async def _take_turn(self, rest_s: float) -> None:
        try:
            await asyncio.sleep(rest_s)
        finally:  # Also when the broker stops: what is unread then is forgotten.
            self._turn_due = False
            self._count_unread()
        self._work_off()

    def _go_on(self) -> bool:
        """Does a part of what is under way, or takes the next frame; False where there is none."""
        if self._connection.state is Phase.CLOSED:
            return False
        if self._under_way is not None:
            try:
                next(self._under_way)
            except StopIteration:
                self._under_way = None
        else:
            frame = self._connection.next()
            if frame is None:
                return False
            self._handle(frame)
        return True

    def _count_unread(self) -> None:
        """Tells the broker what it holds of what this client sent."""
        connection, size = self._connection, 0
        if self._transport is not None or self._turn_due:
            size = connection.unread_bytes + (connection.given_bytes if self._under_way else 0)
        if size != self._unread_bytes:
            self._broker.hold(size - self._unread_bytes)
            self._unread_bytes = size

    def _handle(self, frame: Frame) -> None:
        match frame:
            case Request():
                self._under_way = self._asked(frame)
            case Credit():
                self._grant(frame)
            case StatisticsRequest():
                self._connection.send(StatisticsReply(frame.number, self._broker.counts()))
            case Failure():
                self._broker.refused["client failure"] += 1
                self._close_transport()
            case Goodbye():
                self._close_transport()

    def _asked(self, request: Request) -> Generator[None]:
        """Carries out a request; where it yields the others may have a turn."""
        try:
            with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
                message = unpacked(request.message)
            if isinstance(message, Publish):
                self._accept(request, message)
            elif isinstance(message, Unsubscribe):
                yield from self._unsubscribe(request, message.identity)
            elif self._transport is not None:  # Else it has ended while this waited for its turn.
                yield from self._subscribe(request, message)
        except ContradaError as error:
            if self._connection.state is Phase.CLOSED:
                raise  # It was the fault of the whole connection.
            self._refuse(request.number, error)

    def _subscribe(self, request: Request, message: PackedSubscribe) -> Generator[None]:
        if message.identity in self._feeds:
            raise FrameError("repeated", f"subscription {message.identity} is in force already")
        if len(self._feeds) >= SUBSCRIPTIONS_PER_CLIENT_MAX:
            raise LimitError("SUBSCRIPTIONS_PER_CLIENT_MAX", SUBSCRIPTIONS_PER_CLIENT_MAX)
        feed = _Feed(self, request.credit)
        feed.route = self.exchange.prepare(self.client, message.identity, feed)
        self._leaving.append(feed.route)  # All of it, should it not come to be in force.
        try:
            yield from self._enter(feed.route, message)
        except ContradaError:
            while self._withdraw_some():
                yield
            raise
        self._leaving.pop()
        self.exchange.begin(feed.route)
        self._feeds[message.identity] = feed
        self._connection.send(Reply(request.number))

    def _enter(self, route: Route[Notification], message: PackedSubscribe) -> Generator[None]:
        """Enters the filters of a subscription, in parts."""
        members = message.members()
        done, size = 0, FILTERS_PER_TURN
        nothing: UnsatisfiableFilterError | None = None
        while done < len(members):
            part = _up_to(FILTER_BYTES_PER_TURN, members[done : done + size])
            try:
                with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
                    asked = message.part(part)
                    self.exchange.enter(route, asked)
                _LOG.debug("client %s subscribed to %s", self._name, asked.filters)
            except UnsatisfiableFilterError as error:
                nothing = error  # Others may be satisfiable.
            except LimitError as error:
                if error.limit != "REQUEST_WORK_MAX" or len(part) == 1:
                    raise
                size = max(1, len(part) // FEWER)
                part = []
            done += len(part)
            if done < len(members):
                yield
        if nothing is not None and not route.names:
            raise nothing

    def _unsubscribe(self, request: Request, identity: str) -> Generator[None]:
        feed = self._feeds.pop(identity, None)
        if feed is None:
            raise FrameError("unknown", f"subscription {identity} is not in force")
        self._ready.pop(feed, None)
        self._end_feed(feed, "unsubscribed")
        while self._withdraw_some():
            yield
        route = feed.route
        self._connection.send(Reply(request.number, route.dropped, expired=route.expired))

    def _withdraw_all(self) -> None:
        """Forget at once what waits for the client, and take out its subscriptions in turns."""
        if self._under_way is not None:
            self._under_way.close()
            self._under_way = None
        self._ready.clear()
        for feed in self._feeds.values():
            self._end_feed(feed, "connection ended")
        self._feeds.clear()
        self._count_unread()
        self._withdraw_more()

    def _withdraw_more(self) -> None:
        until_s = self._loop.time() + TURN_S
        while self._withdraw_some() and self._loop.time() < until_s:
            pass
        if self._leaving:
            self._loop.call_soon(self._withdraw_more)
        elif self._transport is None and not self._has_left:
            self._has_left = True
            self.exchange.leave(self.client)

    def _end_feed(self, feed: _Feed, reason: str) -> None:
        """Deliver nothing more of a subscription; it is taken out by `_withdraw_some`."""
        self.exchange.end(feed.route)
        self._broker.dropped[reason] += feed.discard()
        self._leaving.append(feed.route)

    def _withdraw_some(self) -> bool:
        """Takes out a part of a subscription that leaves; whether there is more."""
        if self._leaving and not self.exchange.withdraw(self._leaving[-1]):
            self._leaving.pop()
        return bool(self._leaving)

    def _grant(self, frame: Credit) -> None:
        feed = self._feeds.get(frame.subscription)
        if feed is None:
            return  # It was sent before the client had the answer to its unsubscribe.
        feed.credit = min(feed.credit + max(frame.credit, 0), CREDIT_MAX)
        if feed:
            self.mark_ready(feed)

    def _accept(self, request: Request, message: Publish) -> None:
        try:
            self._accepted.add(request.number, request.wait_ms, message)
        except FrameError as error:
            self._connection.fail(error)
            raise

    def _answer(self, number: int, answer: int | ContradaError) -> None:
        """What is published was worked off: so many were dropped, or it was refused."""
        if isinstance(answer, ContradaError):
            self._refuse(number, answer)
        else:
            self._connection.send(Reply(number, answer))
        self._write_outgoing()

    # -------------------------------------------------------------------------------- sending

    def _flush(self) -> None:
        self._flush_due = False
        until_s = self._loop.time() + TURN_S
        while self._ready and not self._write_paused:
            if self._loop.time() > until_s:
                self._flush_due = True
                self._loop.call_soon(self._flush)
                break
            feed = next(iter(self._ready))
            del self._ready[feed]
            frame = feed.next_delivery()
            if frame is None:
                continue  # No credit: it comes back when the client grants some.
            if feed:
                self._ready[feed] = None  # At the end, so that all get their turn.
            self._connection.send(frame)
            self._write_outgoing()

    def _refuse(self, number: int, error: ContradaError) -> None:
        code = error.code if isinstance(error, FrameError) else type(error).__name__
        self._broker.refused[code] += 1
        reason = shortened(str(error))
        _LOG.info("client %s is refused a request: %s", self._name, reason)
        self._connection.send(Reply(number, code=code, reason=reason))

    def _close_transport(self) -> None:
        super()._close_transport()
        self._count_unread()

    def _end(self, error: FrameError) -> None:
        self._broker.refused[error.code] += 1
        _LOG.info("client %s is ended: %s", self._name, error)
        super()._end(error)


def _up_to(bytes_max: int, members: list[Raw]) -> list[Raw]:
    """The first of these, ended by one that reaches a limit."""
    sizes = accumulate(map(len, members))
    return members[: 1 + sum(1 for _ in takewhile(bytes_max.__gt__, sizes))]
