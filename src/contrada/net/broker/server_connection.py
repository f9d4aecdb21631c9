"""`ServerConnection`: one connection of a broker: input in turns, output in fair shares.

The hello of the other side selects the `ConnectionHandler`: a `ClientSession` for a client, a
`Link` for another broker.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from contrada.errors import ContradaError, FrameError, shortened
from contrada.net.broker.audit_log import AuditLog, credential_of
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.delivery_rounds import DeliveryRounds
from contrada.net.broker.fair_scheduler import TURN_S, FairScheduler
from contrada.net.broker.ingress_queue import internal_failure
from contrada.net.broker.user_usage import UserUsage
from contrada.net.wire.address import Address
from contrada.net.wire.connection import BROKER, CLIENT, NEIGHBOUR, PUBLISHER, SINKS, USER
from contrada.net.wire.endpoint import OF_CONNECTION, Wire
from contrada.net.wire.frames import Failure, Frame, Goodbye, Hello
from contrada.service.dispatcher import Dispatcher
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.security.permits import Permit, PublishFilters
from contrada.service.security.principals import ANYBODY, NOT_PERMITTED, Principal, owns
from contrada.service.subscription_queue import Budget

WRITTEN_TOGETHER_BYTES: Final = 64 * 2**10
"""Bytes of frames that are written together. Beyond it: those of other queues are written next."""

_LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")
F = TypeVar("F", bound=Frame)


class ConnectionHandler(Protocol):
    """The handler of the frames of a connection."""

    @property
    def held_bytes(self) -> int:
        """Bytes that are not processed yet."""
        ...

    def handle(self, frame: Frame) -> Generator[None] | None:
        """Handles a frame; returns the remaining steps, if any. Raises FrameError to end it."""
        ...

    def withdraw_all(self) -> None:
        """Drops the queues of the other side at once, and withdraws its requests in turns."""

    def forget(self) -> None:
        """Drops the input that is not processed."""


class ConnectionHost(ABC):
    """The state of a server that its connections share."""

    hello: Hello

    def __init__(self, dispatcher: Dispatcher, logs: BrokerLogs, limits: BrokerLimits) -> None:
        self.dispatcher, self.logs, self.limits = dispatcher, logs, limits
        self.instance = EnvelopeFactory(None).publisher
        """A name of this run of the server."""
        self.is_stopping = False
        """Whether publications are no longer accepted."""
        self.audit: AuditLog | None = None
        self.is_open = True
        """Whether the server has no users."""
        self.rounds = DeliveryRounds()
        self.publish_filters = PublishFilters()
        self.dropped: Counter[str] = Counter()
        """Lost notifications, by reason."""
        self.refused: Counter[str] = Counter()
        """Faults of peers and refused requests, by name."""
        self._held_bytes = 0
        self._relief_due = False
        self._connections: set[ServerConnection] = set()
        self._work: set[asyncio.Task[Any]] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def admit(self, connection: "ServerConnection") -> bool:
        """Registers a connection; False where there are too many."""
        self._connections.add(connection)
        self._empty.clear()
        return True

    def identify(
        self, connection: "ServerConnection", hello: Hello
    ) -> Principal | Awaitable[Principal]:
        """Returns the principal of a connection. Raises FrameError, also from an awaitable."""
        return ANYBODY

    @abstractmethod
    def handler_for(self, connection: "ServerConnection", hello: Hello) -> ConnectionHandler:
        """Returns the handler of a connection. Raises FrameError where it is refused."""

    def forget(self, connection: "ServerConnection") -> None:
        """Removes a connection that has ended."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def usage_of(self, principal: Principal) -> UserUsage | None:
        """Returns the usage of a user; None at a server without users."""
        return None

    def start_work(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Starts a task for a client; it survives the connection, and ends with the server."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def hold(self, size: int) -> None:
        """Adds held bytes, or removes them if negative."""
        self._held_bytes += size
        if self._held_bytes > self.limits.broker_bytes_max and not self._relief_due:
            self._relief_due = True
            asyncio.get_running_loop().call_soon(self._relieve)

    def _relieve(self) -> None:
        self._relief_due = False
        for connection in sorted(self._connections, key=lambda each: each.held_bytes, reverse=True):
            if self._held_bytes <= self.limits.broker_bytes_max or not connection.held_bytes:
                return
            connection.evict()


class Feed(Protocol):
    """A queue of outgoing frames."""

    def next_frame(self) -> Frame | None:
        """Returns the next frame; None where nothing may be sent now."""
        ...

    def __len__(self) -> int: ...


class ServerConnection(Wire):
    """The broker's end of one connection."""

    def __init__(self, broker: ConnectionHost, *, hello: Hello | None = None) -> None:
        """`hello` is sent first, to another broker; without it this side waits for one."""
        asks = (BROKER,) if hello else (CLIENT, NEIGHBOUR)
        super().__init__(hello or broker.hello, asks, broker.limits.liveness)
        self.broker = broker
        self.who = NEIGHBOUR if hello else CLIENT
        self.name = ""
        """The name of the other end in logs."""
        self.budget = Budget(broker.limits.client_bytes_max, broker.hold)
        self.clock = self._loop.time
        self.soon = self._loop.call_soon
        self._greets = hello is not None
        self.failure = ""
        """The reason of the end, where one side gave it."""
        self.is_refused_briefly = False
        """Whether the other side is busy, and will take a new connection."""
        self._handler: ConnectionHandler | None = None
        self.principal: Principal | None = None
        """The user of the connection; None until it is identified, and for outgoing links."""
        self.permit: Permit | None = None
        """The user's rights; None for all rights."""
        self.claimed = ""
        """The user that a refused token names."""
        self.usage: UserUsage | None = None
        """The user's quotas and their use; None where there are none."""
        self._is_unknown = False
        self._connection.greets_at_once = broker.is_open
        self.send = self._connection.send
        """Appends a frame to the output of the current turn."""
        self._ready: dict[Feed, None] = {}
        self._flush_due = False
        self.is_write_paused = False
        """Whether the other side does not read its socket."""
        self._read_paused = False
        self._in_turn = False
        self._scheduler = FairScheduler(self._loop.time())
        self._turn_due = False
        self._steps: Generator[None] | None = None
        self._unread_bytes = 0
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection has ended."""

    @property
    def user(self) -> str:
        """The name of the user; empty where it is not known."""
        return "" if self.principal is None else self.principal.name

    # ---------------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the connection. The side that made it says hello first."""
        super().connection_made(transport)
        if self._greets:
            self._connection.greet()
            self._write_outgoing()
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high=self.broker.limits.write_buffer_bytes)
        self.name = self.name or _place_of(self._transport.get_extra_info("peername"))
        _LOG.info("%(who)s %(peer)s connected", {"who": self.who, "peer": self.name})
        if not self.broker.admit(self):
            self.end(FrameError("full", "this broker has as many connections as it may"))
        elif self.broker.is_stopping:  # It was accepted after the others were closed.
            self.close("the broker stops")

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the connection. Its publications are still processed."""
        self.failure = self.failure or self._why_lost(error)
        self._transport = None
        self._account_unread()
        fields = {"who": self.who, "peer": self.name, "reason": error or "in order"}
        _LOG.info("%(who)s %(peer)s has left: %(reason)s", fields)
        self._withdraw_all()
        self.broker.forget(self)
        if not self.ended.done():
            self.ended.set_result(None)

    def pause_writing(self) -> None:
        """Stops writing to a client that does not read, and reading its requests."""
        self.is_write_paused = True
        self._regulate_reading()

    def resume_writing(self) -> None:
        """Writes again, in a round."""
        self.is_write_paused = False
        self._regulate_reading()
        if self._transport is not None and not self._transport.is_closing():
            self._flush_soon()  # The event loop would log a fault here, and go on.

    def _regulate_reading(self) -> None:
        """Pauses reading while input waits for its turn, or the client does not read."""
        if self._transport is None or self._transport.is_closing():
            return
        # Both ends of a link are alike: if each waited for the other to read, none ever would.
        is_held = self._turn_due or self._is_unknown
        is_paused = is_held or (self.is_write_paused and self.who == CLIENT)
        if is_paused != self._read_paused:
            self._read_paused = is_paused
            if is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # --------------------------------------------------------------------- called by the broker

    @property
    def held_bytes(self) -> int:
        """Bytes that the broker holds for this connection."""
        handler_bytes = self._handler.held_bytes if self._handler is not None else 0
        return self.budget.held_bytes + handler_bytes + self._unread_bytes

    def close(self, reason: str) -> None:
        """Closes with a Goodbye."""
        self._connection.close(reason)
        self._close_transport()

    def evict(self) -> None:
        """Ends a connection that holds too many bytes, and drops them at once."""
        reason = f"this broker holds too much; {self.held_bytes} bytes of it for you"
        self.end(FrameError("overloaded", reason))
        self._withdraw_all()
        if self._handler is not None:
            self._handler.forget()

    # ---------------------------------------------------------------------- called by the handler

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self._transport is None

    @property
    def is_closed(self) -> bool:
        """Whether nothing is sent any more."""
        return self._connection.is_closed

    @property
    def unwritten_bytes(self) -> int:
        """Bytes written that the other side has not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def next_of(
        self, frame_type: type[F], is_wanted: Callable[[F], bool] | None = None
    ) -> F | None:
        """Returns the next frame if it was received, is of the last one's class, and wanted."""
        return self._connection.reader.next_of(frame_type, is_wanted)

    def write(self) -> None:
        """Writes the output at the end of the current turn, or with queues that are due."""
        if not self._in_turn and not self._flush_due:
            self._write_outgoing()

    def fail(self, error: FrameError) -> None:
        """Sends the other side its fault; nothing is sent afterwards."""
        self._connection.fail(error)

    def count_refused(self, code: str, error: ContradaError) -> str:
        """Counts and logs a refused request. Returns the reason."""
        self.broker.refused[code] += 1
        reason = shortened(str(error))
        self.audit("refused", code, reason)
        _LOG.info(
            "client %(peer)s of %(user)s is refused a request: %(reason)s",
            {"peer": self.name, "user": self.user, "code": code, "reason": reason},
        )
        return reason

    def audit(self, action: str, code: str, reason: str) -> None:
        """Records an event in the audit log, if there is one."""
        if self.broker.audit is not None:
            said = self.user, self.name, code, reason
            self.broker.audit.record(action, *said, claimed=self.claimed)

    def forget_feed(self, feed: Feed) -> None:
        """Removes a queue."""
        self._ready.pop(feed, None)

    def pass_on(self, frame: Frame) -> bool:
        """Writes a frame at once, if nothing is before it in this turn; else returns False."""
        rounds = self.broker.rounds
        if not rounds.passes_on or self._ready or self.is_write_paused:
            return False
        rounds.passes_on = False
        try:
            self._connection.send(frame)
            if not self._in_turn:
                self._write_outgoing()
        except Exception as fault:  # noqa: BLE001 - it ends this peer, not the publisher
            self.end(internal_failure(fault))
        return True

    def mark_ready(self, feed: Feed) -> None:
        """Schedules a queue; its frames are written in this turn of the loop."""
        self._ready[feed] = None
        if not self._flush_due:
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Has the queues written in the next round, with those of other connections."""
        if self._ready and not self._flush_due and not self.is_write_paused:
            self._flush_due = True
            self.broker.rounds.add(self)

    # ------------------------------------------------------------------------------- requests

    def _process(self, now_s: float) -> None:
        """Processes the input in turns, between those of other connections."""
        self._in_turn, is_all_read = True, False
        rounds, connection = self.broker.rounds, self._connection
        rounds.begin_turn()
        try:
            while not (self._turn_due or connection.is_closed or self._is_unknown):
                if self._steps is not None:
                    try:
                        next(self._steps)
                    except StopIteration:
                        self._steps = None
                elif (frame := connection.next()) is None:
                    break
                elif self._handler is not None and type(frame) not in OF_CONNECTION:
                    self._steps = self._handler.handle(frame)
                else:
                    self._handle(frame)
                rest_s = self._scheduler.rest_s(now_s, self._loop.time())
                if rest_s is not None:
                    self._turn_due = True
                    self.broker.start_work(self._resume_later(rest_s))
                elif self._steps is None and connection.reader.is_empty:
                    is_all_read = True  # The usual case: one frame.
                    break
        except FrameError as error:
            self.end(error)
        finally:
            self._in_turn = False
            rounds.end_turn()
        if self._unread_bytes or not is_all_read:
            self._account_unread()
        if self._read_paused or self._turn_due or self._is_unknown or self.is_write_paused:
            self._regulate_reading()
        self._write_outgoing()

    async def _resume_later(self, rest_s: float) -> None:
        try:
            await asyncio.sleep(rest_s)
        except asyncio.CancelledError:  # The broker stops; the unread input is dropped.
            self._turn_due = False
            self._account_unread()
            raise
        self._turn_due = False
        self._process(self._loop.time())

    def _account_unread(self) -> None:
        """Reports the unprocessed bytes of this connection to the broker.

        Frees those of an ended connection after its last turn: half a frame would be kept until
        the cycles of this object are collected.
        """
        if self._transport is None and not self._turn_due:
            self._connection.drop_unread()
        reader = self._connection.reader
        size = len(reader) + (reader.given_bytes if self._steps else 0)
        if size != self._unread_bytes:
            self.broker.hold(size - self._unread_bytes)
            self._unread_bytes = size

    def _handle(self, frame: Frame) -> None:
        match frame:
            case Hello():
                self.who = NEIGHBOUR if frame.role == BROKER else frame.role
                self._identify(frame)
            case Failure():
                self.failure = frame.reason
                self.is_refused_briefly = frame.code == "busy"
                self.broker.refused["client failure"] += 1
                self._close_transport()
            case Goodbye():
                self.failure = frame.reason
                self._close_transport()

    def _identify(self, hello: Hello) -> None:
        if self._greets:
            self._handler = self.broker.handler_for(self, hello)
            return
        found = self.broker.identify(self, hello)
        if isinstance(found, Principal):
            self._welcome(found, hello)
        else:
            self._is_unknown = True
            self.broker.start_work(self._finish_identification(found, hello))

    async def _finish_identification(self, finding: Awaitable[Principal], hello: Hello) -> None:
        try:
            found = await finding
            self._is_unknown = False
            if not (self.is_gone or self.is_closed):
                self._welcome(found, hello)
        except FrameError as error:
            self.end(error)
        except Exception as fault:  # noqa: BLE001 - else it would wait for its hello for ever
            self.end(internal_failure(fault))
        finally:
            self._is_unknown = False
        self._process(self._loop.time())

    def _welcome(self, principal: Principal, hello: Hello) -> None:
        """Answers the hello of an identified user. Raises FrameError."""
        self._authorize(principal)
        if hello.role != CLIENT:
            _check_neighbour(principal, hello.capabilities.get("name"))
        more: dict[str, str | bool] = {}
        if hello.role == CLIENT:
            self.usage = self.broker.usage_of(principal)
            if self.usage is not None:
                self.usage.check_connection()
            more = {USER: principal.name, SINKS: principal.may_push}
            more |= {PUBLISHER: principal.speaks_as} if principal.speaks_as else {}
        self._connection.welcome(more)
        self._handler = self.broker.handler_for(self, hello)
        self.audit("let in", self.who, credential_of(principal))

    def change_to(self, principal: Principal) -> bool:
        """Changes the rights. Returns False where the client has to connect again."""
        assert self.principal is not None
        if principal == self.principal:
            return True
        has_less = self.who == NEIGHBOUR or not principal.covers(self.principal)
        if has_less or principal.may_push != self.principal.may_push:  # The hello announced it.
            return False
        if self.permit is not None and self.permit.has_narrowed:
            return False
        self._authorize(principal)
        return True

    def _authorize(self, principal: Principal) -> None:
        self.principal = principal
        self.permit = None if principal.is_free else Permit(principal, self.broker.publish_filters)
        self._connection.reader.reads_few = self.permit is None and self.who != NEIGHBOUR

    def _withdraw_all(self) -> None:
        """Drops the queues of the other side at once, and withdraws its subscriptions."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        self._ready.clear()
        self._account_unread()
        if self._handler is not None:
            self._handler.withdraw_all()

    # -------------------------------------------------------------------------------- sending

    def flush(self) -> None:
        """Writes the queues, within credit, the write buffer and one turn."""
        self._flush_due = False
        until_s, unwritten_bytes = 0.0, 0
        while self._ready and not self.is_write_paused:
            if not until_s:
                until_s = self._loop.time() + TURN_S
            elif self._loop.time() > until_s:
                self._flush_soon()
                break
            feed = next(iter(self._ready))
            del self._ready[feed]
            frame = feed.next_frame()
            if frame is None:
                continue  # Without credit the queue is scheduled again by the next grant.
            if feed:
                self._ready[feed] = None  # Behind the other queues, so that all have a turn.
            unwritten_bytes += self._connection.send(frame)
            # A write for each of thousands of queues took nearly half of the time of a broker.
            if unwritten_bytes >= WRITTEN_TOGETHER_BYTES:
                self._write_outgoing()
                unwritten_bytes = 0
        self._write_outgoing()

    def _close_transport(self) -> None:
        super()._close_transport()
        self._account_unread()

    def end(self, error: FrameError) -> None:
        self.failure = str(error)
        self.broker.refused[error.code] += 1
        self.audit("ended" if self._handler else "refused", error.code, error.reason)
        _LOG.info(
            "%(who)s %(peer)s is ended: %(reason)s",
            {"who": self.who, "peer": self.name, "code": error.code, "reason": error},
        )
        super().end(error)


def _check_neighbour(principal: Principal, name: object) -> None:
    """Raises FrameError for a user that may not be a neighbour, or not under this name."""
    if not principal.may_link:
        reason = f"{principal.name!r} may not be a neighbour of this broker"
        raise FrameError(NOT_PERMITTED, reason)
    if principal is not ANYBODY and not owns((principal.name,), str(name)):
        reason = f"{principal.name!r} may not be the broker {name!r}, but {principal.name!r}"
        raise FrameError(NOT_PERMITTED, reason)


def _place_of(peername: object) -> str:
    if isinstance(peername, tuple) and len(peername) >= 2:
        return Address(str(peername[0]), peername[1]).place
    return str(peername or "")
