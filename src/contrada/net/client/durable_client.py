"""`DurableClient`: the durable traffic of a client, across connections.

Unanswered publications and acknowledgements are sent again on the next connection. A publication
keeps its publisher and number, so it is published once. Each reader continues in its log, and drops
records that it still holds.

    lost --> connected: hello, open readers --> unanswered requests, in order --> new requests
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import msgspec

from contrada.delivery.delivery_messages import (
    Ack,
    Closed,
    CloseLog,
    Consuming,
    Extend,
    Grant,
    Nack,
    ReadLog,
)
from contrada.delivery.durable_log import OUT_MAX
from contrada.delivery.queue_messages import ANSWERS, QueueRequest
from contrada.errors import (
    ConnectionFailedError,
    ContradaError,
    EncodingError,
    FrameError,
    NotPermittedError,
    ServiceError,
)
from contrada.model import FilterSet, Notification
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.reconnection import Reconnection
from contrada.net.wire.durable_messages import (
    Acknowledge,
    AskLog,
    AskRecordBatch,
    LogState,
    Publications,
    PublisherHello,
    PublisherState,
    ReaderState,
    RecordBatch,
    decode_delivery,
    decode_result,
    encode_durable,
    error_of,
)
from contrada.net.wire.frames import LogDelivery, LogReply, LogRequest
from contrada.net.wire.payload_codec import encode_content
from contrada.service.delivery_host import LogReader
from contrada.service.envelope_factory import EnvelopeFactory
from contrada.service.subscription_queue import size_of

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """A request and its answer; with `is_kept` it is sent again after a loss.

    `size` has the bytes of a publication, and is None for other requests.
    """

    frame: LogRequest
    answer: "asyncio.Future[LogReply]"
    is_kept: bool
    consumer: str
    size: int | None


@dataclass(slots=True, eq=False)
class _OpenReader:
    """A reader and its request; the subscription's owner and number once they are known.

    `returning` has the positions of nacks by the answer that they wait for.
    """

    reader: LogReader
    request: ReadLog
    where: tuple[str, int] | None = None
    done: "asyncio.Future[LogReply] | None" = None
    last: "asyncio.Future[LogReply] | None" = None  # the answer to its last request
    gathered: list[tuple[int, int]] = field(default_factory=list)
    returning: dict["asyncio.Future[LogReply]", tuple[int, ...]] = field(default_factory=dict)
    anew: "asyncio.Task[None] | None" = None  # opens it again; until then no credit is granted
    is_leaving: bool = False


class DurableClient:
    """The durable traffic of one client. A `LogHost` for its readers."""

    def __init__(
        self,
        reconnection: Reconnection,
        stamp: EnvelopeFactory,
        wait_ms: int,
        limits: ClientLimits = ClientLimits(),
    ) -> None:
        self._limits = limits
        self._reconnection, self._stamp, self._wait_ms = reconnection, stamp, wait_ms
        stamp.stays = True  # Records are known by the name under which they were published first.
        self._instance = secrets.token_hex(8)
        self._numbers = 0
        self._requests: dict[int, _PendingRequest] = {}
        self._readers: dict[str, _OpenReader] = {}
        self._is_up = True  # kept requests were repeated on the present connection
        self._hello: asyncio.Future[None] | None = None
        self._past_runs: dict[str, int] = {}
        self._server_run = ("", 0)
        self._busy = self._open = self._open_bytes = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._answered = asyncio.Event()
        self.published = self.dropped = 0

    def name_of_request(self) -> str:
        """Returns a name that is unique among all readers of all clients."""
        self._numbers += 1
        return f"{self._instance}-{self._numbers}"

    # --- publishing ---------------------------------------------------------------------------

    async def publish(self, run: Sequence[Notification]) -> list[Notification]:
        """Publishes a run of one class and publisher; returns it stamped. Raises as `publish`."""
        stamped: list[Notification] = []
        self._busy += 1
        self._idle.clear()
        try:
            while len(stamped) < len(run):
                stamped += await self._publish(run[len(stamped) :])
        except ContradaError as error:
            error.published = len(stamped) + (error.published or 0)
            raise
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()
        return stamped

    async def _publish(self, run: Sequence[Notification]) -> list[Notification]:
        """Publishes the first notifications, as many as one publication takes."""
        if not self._is_announced:  # Mostly it is, and needs no await.
            await self._retry(self._say_hello)
        count, size = 0, 0
        for more in map(size_of, run[: self._limits.publish_notifications_max]):
            if count and size + more > self._limits.publish_bytes_max:
                break
            count, size = count + 1, size + more
        while not self._has_room(size):
            self._answered.clear()
            await self._answered.wait()
            self._reconnection.check()  # It may have been closed meanwhile.
        # No await from here to the sending, so that numbers are sent in order.
        stamped = self._stamp.stamped(run[:count], self._stamp.now_us())
        for each in stamped:
            if each.envelope.publisher == self._stamp.publisher:
                self._stamp.go_on_after(each.envelope.sequence)
        message = encode_durable(Publications([encode_content(each) for each in stamped]))
        self._open += 1
        self._open_bytes += size
        reply = await self._ask(message, self._wait_ms, is_kept=True, size=size)
        self._past_runs = dict([self._server_run])
        self.dropped += decode_result(reply, int)
        self.published += count
        return stamped

    def _forget(self, number: int) -> _PendingRequest | None:
        """Removes an answered request, also one whose caller was cancelled; None for another."""
        asked = self._requests.pop(number, None)
        if asked is not None and asked.size is not None:
            self._open -= 1
            self._open_bytes -= asked.size
            self._answered.set()
        return asked

    def _has_room(self, size: int) -> bool:
        if not self._open:
            return True
        limits = self._limits
        has_bytes = self._open_bytes + size <= limits.durable_bytes_max
        return has_bytes and self._open < limits.durable_publications_max

    @property
    def _is_announced(self) -> bool:
        """Whether the broker of this connection has answered the hello."""
        hello = self._hello
        if hello is None or not hello.done() or not self._reconnection.is_up:
            return False
        return not hello.cancelled() and hello.exception() is None

    async def _say_hello(self) -> None:
        """Announces the publisher, once on each connection."""
        if self._hello is None:
            self._hello = asyncio.ensure_future(self._send_hello())
            self._hello.add_done_callback(_mark_retrieved)
        arriving = self._hello
        try:
            await asyncio.shield(arriving)
        except ContradaError:
            if self._hello is arriving:  # It may be the hello of a later connection.
                self._hello = None
            raise

    async def _send_hello(self) -> None:
        message = PublisherHello(self._stamp.publisher, self._instance, self._past_runs)
        found = await self._query(message, PublisherState)
        self._stamp.go_on_after(found.sequence)
        self._server_run = found.server, found.incarnation
        self._past_runs[found.server] = found.incarnation

    # --- reading ------------------------------------------------------------------------------

    async def read(self, reader: LogReader, message: ReadLog) -> FilterSet:
        of = _OpenReader(reader, message)
        try:
            return await self._retry(lambda: self._begin(of))
        except BaseException as error:
            self._readers.pop(message.consumer, None)
            if not isinstance(error, NotPermittedError):  # It may have been opened all the same.
                self._send_request(CloseLog(message.name, message.consumer, not message.is_durable))
            raise

    async def _begin(self, of: _OpenReader) -> FilterSet:
        self._readers[of.request.consumer] = of
        return await self._read(of, of.request)

    async def _read(self, of: _OpenReader, message: ReadLog) -> FilterSet:
        found = await self._query(message, ReaderState)
        where = found.owner, found.number
        if of.where not in (None, where):
            self._send_request(CloseLog(message.name, message.consumer))
            raise ServiceError("the subscription has ended, and another one has its name")
        of.where = where
        return found.filters

    def consume(self, client: str, message: Consuming) -> None:
        """See `LogHost`. Unanswered acknowledgements and nacks are sent again."""
        of = self._readers[client]
        if isinstance(message, Grant | Extend):
            if self._is_up and of.anew is None:
                self._reconnection.send(LogRequest(0, encode_durable(message)))
        elif isinstance(message, Ack):
            of.gathered += message.intervals
            if of.done is None:
                self._send_acknowledgements(of)
        else:
            of.last = self._ask(encode_durable(message), is_kept=True, consumer=client)
            if isinstance(message, Nack):
                of.returning[of.last] = message.positions
                of.last.add_done_callback(of.returning.pop)

    def _send_acknowledgements(self, of: _OpenReader) -> None:
        """Sends the acknowledgements that were gathered since the last answer."""
        of.done = None
        if of.gathered:
            message = Ack(of.request.name, of.request.consumer, tuple(of.gathered))
            of.gathered.clear()
            done = self._ask(encode_durable(message), is_kept=True, consumer=message.consumer)
            of.done = of.last = done
            done.add_done_callback(
                lambda _: self._send_acknowledgements(of) if of.done is done else None
            )

    def _send_request(self, message: Consuming) -> "asyncio.Future[LogReply] | None":
        """Sends a request that is not repeated: its reader ends with the connection."""
        if self._is_up and self._reconnection.is_there:
            return self._ask(encode_durable(message))
        return None

    def leave(self, message: CloseLog) -> None:
        of = self._readers.get(message.consumer)
        if of is None or of.is_leaving:
            return
        self._send_acknowledgements(of)
        if of.where is None:
            del self._readers[message.consumer]
            self._send_request(message)
            return
        of.is_leaving = True  # Its answer implies that of the acknowledgements before it.
        left = self._ask(encode_durable(message), is_kept=True, consumer=message.consumer)
        left.add_done_callback(lambda _: self._readers.pop(message.consumer, None))
        if self._is_up:
            of.last = left

    async def committed(self, client: str) -> None:
        """See `LogHost`. Waits for the answers to the reader's requests so far."""
        of = self._readers.get(client)
        if of is None:
            return
        if of.gathered and of.done is not None:
            await asyncio.shield(of.done)  # Then the gathered acknowledgements were sent.
        if of.last is not None:
            await asyncio.shield(of.last)

    async def closed(self, client: str) -> None:
        """See `LogHost`. Unanswered requests are sent again on the next connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.goodbye_wait_s):
                if self._reconnection.is_up:
                    await self.committed(client)

    async def unsubscribe(self, durable: str) -> None:
        """Ends a durable subscription; see `Service.unsubscribe`."""
        await self._reconnection.ready()
        await self._ask(encode_durable(CloseLog(durable, "", ends=True)))

    async def log(self, name: str, time_us: int | None = None) -> LogState:
        """Returns the state of a log. Raises DeliveryError, StoreError, ConnectionFailedError."""
        return await self._retry(partial(self._query, AskLog(name, time_us), LogState))

    async def record_batch(self, message: AskRecordBatch) -> RecordBatch:
        """Returns a batch of its records, see `net.broker.log_batches`. Raises as `log`."""
        return await self._retry(partial(self._query, message, RecordBatch))

    async def acknowledge(self, name: str, number: int, before: int) -> None:
        """Acknowledges all records before a position, on disk. Raises as `record_batch`."""
        message = encode_durable(Acknowledge(name, number, before))
        await self._retry(lambda: self._ask(message))

    async def ask(self, request: QueueRequest) -> Any:
        """Answers a request about queues; see `LogHost`. A step may be repeated, without harm."""
        return await self._retry(partial(self._query, request, ANSWERS[type(request)]))

    async def known_sequence(self) -> int:
        """Returns the highest number of this publisher at the broker. Raises DeliveryError."""
        await self._retry(self._say_hello)
        return self._stamp.sequence

    async def _query(self, message: Any, expected: type[T]) -> T:
        answer: T = decode_result(await self._ask(encode_durable(message)), expected)
        return answer

    async def _retry(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Calls until no loss interrupts it. Raises ConnectionFailedError, with nothing sent."""
        while True:
            await self._reconnection.ready()
            try:
                return await ask()
            except ConnectionFailedError:
                self._reconnection.check()

    # --- the connection -----------------------------------------------------------------------

    @property
    def needs_connection(self) -> bool:
        """Whether there are readers, or requests that are sent again."""
        return bool(self._readers or self._requests)

    def _ask(
        self,
        message: msgspec.Raw,
        wait_ms: int = 0,
        *,
        is_kept: bool = False,
        consumer: str = "",
        size: int | None = None,
    ) -> "asyncio.Future[LogReply]":
        """Sends a request. Raises ConnectionFailedError for one that is not kept."""
        self._numbers += 1
        frame = LogRequest(self._numbers, message, wait_ms)
        if not is_kept:
            self._reconnection.ask(frame)
        elif self._is_up:
            self._reconnection.send(frame)
        else:
            self._reconnection.hurry()
        answer = asyncio.get_running_loop().create_future()
        if size is None:  # The caller of a publication awaits its answer.
            answer.add_done_callback(_mark_retrieved)
        self._requests[self._numbers] = _PendingRequest(frame, answer, is_kept, consumer, size)
        return answer

    def on_reply(self, reply: LogReply) -> None:
        """Resolves the request of a reply."""
        asked = self._forget(reply.number)
        if asked is None or asked.answer.done():
            return
        if reply.code:
            asked.answer.set_exception(error_of(reply, str(self._reconnection.address)))
        else:
            asked.answer.set_result(reply)

    def on_delivery(self, frame: LogDelivery) -> None:
        """Passes records to their reader. Raises FrameError for a malformed message."""
        try:
            message = decode_delivery(frame.message)
        except EncodingError as error:
            raise FrameError("malformed", str(error)) from None
        of = self._readers.get(message.consumer)
        if of is None or of.is_leaving:  # The broker did not know that yet.
            return
        if isinstance(message, Closed) and message.again and of.where is not None:
            of.anew = asyncio.create_task(self._restart(of))
        else:
            of.reader.receive(message)

    async def _restart(self, of: _OpenReader) -> None:
        """Opens a reader again after a restart of the server that owns its log."""
        this = asyncio.current_task()
        if of.anew is not this:
            return  # The connection was lost before; `resume` opens it.
        with suppress(ConnectionFailedError):
            await self._reopen(of)
            if of.anew is this:
                of.anew = None
                if of.request.consumer in self._readers and not of.is_leaving:
                    of.reader.restart()

    def on_lost(self, unsent: ServiceError) -> None:
        """Fails the requests that are not kept."""
        self._is_up = False
        self._hello = None
        for of in self._readers.values():
            of.anew = None
            of.reader.forget_prefetched()
        self._fail(unsent, lambda each: not each.is_kept)

    async def resume(self) -> None:
        """Continues at the broker of the new connection. Raises ConnectionFailedError."""
        # Without readers that are being opened: their openers get the error of the lost connection.
        begun = [of for of in self._readers.values() if of.where is not None]
        await asyncio.gather(*map(self._reopen, begun))
        if any(asked.is_kept for asked in self._requests.values()):
            try:
                await self._say_hello()
            except ConnectionFailedError:
                raise
            except ContradaError as error:
                self._fail(error, lambda each: each.is_kept and not each.consumer)
        self._reconnection.check_there()  # It may be lost since the last answer.
        for of in self._readers.values():
            # With the kept requests: the broker must know them before it delivers again.
            self._send_acknowledgements(of)
        self._is_up = True
        for asked in list(self._requests.values()):
            if asked.is_kept:
                self._reconnection.send(asked.frame)
        for of in list(self._readers.values()):
            if of.anew is None and not of.is_leaving:
                of.reader.restart()

    async def _reopen(self, of: _OpenReader) -> None:
        message, position, time_us = of.request, of.request.position, of.request.time_us
        if (position or time_us is not None) and of.reader.newest:
            position, time_us = of.reader.newest + 1, None  # Continues behind the newest record.
        key = message.name, message.consumer
        # A restarted owner ignores a nack of records that the reader does not hold.
        holds = (*chain.from_iterable(of.returning.values()), *of.reader.holds)[:OUT_MAX]
        again = ReadLog(*key, None, None, message.is_durable, position, time_us, holds)
        try:
            await self._read(of, again)
        except ConnectionFailedError:
            raise
        except ContradaError as error:  # The other readers continue.
            self._readers.pop(of.request.consumer, None)
            of.reader.receive(Closed(of.request.name, of.request.consumer, str(error)))

    async def settle(self) -> None:
        """Waits for publications and the last requests of readers, within a bounded time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.goodbye_wait_s):
                if self._reconnection.is_up:
                    await self._idle.wait()
                    for each in list(self._readers):
                        with suppress(ContradaError):  # Nobody waits for a reader that has ended.
                            await self.committed(each)

    def end(self) -> None:
        """Ends the readers of a closed service."""
        for of in list(self._readers.values()):
            of.reader.end()

    def give_up(self, failure: ServiceError) -> None:
        """Fails all requests and ends all readers: there will be no connection."""
        self._fail(failure, lambda _: True)
        for of in list(self._readers.values()):
            of.reader.end(failure)
            self._readers.pop(of.request.consumer, None)

    def _fail(self, failure: ContradaError, is_meant: Callable[[_PendingRequest], bool]) -> None:
        for number, each in list(self._requests.items()):
            if is_meant(each):
                self._forget(number)
                if not each.answer.done():
                    each.answer.set_exception(failure.copy())


def _mark_retrieved(answer: "asyncio.Future[Any]") -> None:
    """Marks an exception as retrieved, also where no caller waits."""
    if not answer.cancelled():
        answer.exception()
