"""`AmqpPeer`: queues and exchanges of AMQP 0.9.1, such as those of RabbitMQ.

A source is a queue, or `EXCHANGE/BINDING-KEY`: then the bridge declares a durable queue of its own
and binds it. Messages are acknowledged after their publication, so the server repeats the others.
Sent ones are persistent and mandatory, and confirmed by the server; it returns a message that no
queue takes, which has no place.

    routing key                        <-> `topic`
    headers, content type              <-> attributes, content type
    correlation id, reply to, type,
    content encoding                   <-> `amqp.correlation_id`, `amqp.reply_to`, …
    exchange, queue, message id, time   -> `amqp.exchange`, `amqp.queue`, …

Source: RabbitMQ documentation, AMQP 0-9-1, publisher confirms, consumer cancellation.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar

import aiormq
import msgspec
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelPreconditionFailed,
    InvalidFrameError,
    PublishError,
)
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from yarl import URL

from contrada.errors import (
    ConnectionFailedError,
    ContradaError,
    InvalidValueError,
    NoPlaceError,
    PeerLostError,
    ServiceError,
)
from contrada.integrations.bridges.bridge_peer import (
    AddressForm,
    BridgePeer,
    PeerSettings,
    reason_of,
)
from contrada.integrations.bridges.record_translation import PeerRecord, text_of
from contrada.model import Value

T = TypeVar("T")

AMQP_ADDRESS: Final = AddressForm(("amqp", "amqps"), (5672, 5671), has_path=True)

HEARTBEAT_S: Final = 10
"""Seconds between heartbeats. A server that is silent for three of them is lost."""

_USER: Final = "guest"
"""User and password of a new server."""

HEADER_NAME_BYTES_MAX: Final = 128
"""Bytes of the name of a header. Beyond it: the library cuts it, so the record is refused."""

_FRAME_BYTES: Final = 64
"""Bytes of a frame around its payload, rounded up."""

_PERSISTENT: Final = 2
_BOTH_WAYS: Final = {
    "correlation_id": "correlation_id",
    "reply_to": "reply_to",
    "type": "message_type",
    "content_encoding": "content_encoding",
}
_ONLY_IN: Final = {"message_id": "message_id", "time": "timestamp"}
"""Facts of a record, and the properties of its message."""

_REFUSING: Final = (ChannelAccessRefused, ChannelPreconditionFailed)
"""Errors of one message that close the channel, and so fail all messages of a batch."""

# The library reports a lost connection with a traceback; the bridge reports it in one line.
logging.getLogger("aiormq").addHandler(logging.NullHandler())


class AmqpPeer(BridgePeer):
    """Queues and one exchange of a server. Bridges of one name share the messages."""

    def __init__(self, settings: PeerSettings) -> None:
        super().__init__(settings)
        for source in settings.sources:
            if not source or source.startswith("/"):
                raise InvalidValueError(source, "expected QUEUE or EXCHANGE/BINDING-KEY")
        self._connection: AbstractConnection | None = None
        self._receiver: AbstractChannel
        self._sender: AbstractChannel
        self._received: asyncio.Queue[PeerRecord | None]
        """Received messages, as many as the server sends without acknowledgements; None at the
        end of the connection."""

    async def open(self) -> None:
        address, tls, limits = self.settings.address, self.settings.tls, self.settings.limits
        host, port = address.hosts[0]
        url = URL.build(
            scheme=address.scheme,
            host=host,
            port=port,
            user=address.user or _USER,
            password=address.password if address.user else _USER,
            path=f"/{(address.path or '/').replace('/', '%2F')}",
            query={"heartbeat": str(HEARTBEAT_S), "name": self.settings.name},
            encoded=False,
        )
        self._received = asyncio.Queue()
        try:
            self._connection = await self._unless_lost(
                aiormq.connect(url, context=None if tls is None else tls.client_context())
            )
            self._receiver = await self._open_channel()
            self._receiver.on_consumer_cancel_callbacks.add(self._end)
            self._receiver.closing.add_done_callback(self._end)
            self._sender = await self._open_channel()
            if self.settings.exchange:
                await self._check_exchange(self.settings.exchange)
            if sources := self.settings.sources:
                # The bound is that of each consumer.
                most = max(1, limits.bridge_queued_max // len(sources))
                await self._unless_lost(self._receiver.basic_qos(prefetch_count=most))
                for source in sources:
                    await self._consume(source)
        except PeerLostError as error:
            raise ConnectionFailedError(error.address, error.reason) from None

    async def _open_channel(self) -> AbstractChannel:
        assert self._connection is not None
        return await self._unless_lost(self._connection.channel(on_return_raises=True))

    async def _check_exchange(self, name: str) -> None:
        await self._unless_lost(self._sender.exchange_declare(name, passive=True))

    async def _consume(self, source: str) -> None:
        queue, channel = source, self._receiver
        exchange, has_exchange, key = source.partition("/")
        if has_exchange:
            queue = f"{self.settings.name}:{source}"
            await self._check_exchange(exchange)  # Else a queue without a binding would be left.
            await self._unless_lost(channel.queue_declare(queue, durable=True))
            await self._unless_lost(channel.queue_bind(queue, exchange, key))
        see = partial(self._see, queue)
        await self._unless_lost(channel.basic_consume(queue, see))

    async def _see(self, queue: str, message: DeliveredMessage) -> None:
        self._received.put_nowait(_record(queue, message))

    def _end(self, _: object) -> None:
        self._received.put_nowait(None)

    async def receive(self) -> Sequence[PeerRecord]:
        found = [await self._received.get()]
        while len(found) < self.settings.limits.bridge_batch_max and not self._received.empty():
            found.append(self._received.get_nowait())
        records = [each for each in found if each is not None]
        if len(records) < len(found):  # The others are repeated: no acknowledgement reaches it.
            raise self._loss(self._end_reason())
        return records

    def _end_reason(self) -> str:
        closing = self._receiver.closing
        if not closing.done():
            return "the server has ended the consumption, as it does when a queue is deleted"
        error = None if closing.cancelled() else closing.exception()
        return _reason(error or "the connection is lost")

    async def acknowledge(self, records: Sequence[PeerRecord]) -> None:
        # All earlier ones are acknowledged already, or with these.
        last = max(record.token for record in records)
        await self._unless_lost(self._receiver.basic_ack(last, multiple=True))

    async def send(self, records: Sequence[PeerRecord]) -> Sequence[ContradaError | None]:
        answers: list[Any] = [None] * len(records)
        works: dict[int, Awaitable[object]] = {}
        for place, record in enumerate(records):
            try:
                works[place] = self._publish(record)
            except InvalidValueError as error:
                answers[place] = error
        # The tasks begin in order, and each gets the lock of the channel in order.
        sending = asyncio.gather(*works.values(), return_exceptions=True)
        done = await self._unless_lost(sending, self._wait_s)
        refusal = next((each for each in done if isinstance(each, _REFUSING)), None)
        if refusal is not None:
            self._sender = await self._open_channel()
        for place, answer in zip(works, done, strict=True):
            if isinstance(answer, PublishError):
                key = records[place].topic
                answers[place] = NoPlaceError(f"no queue takes messages with the key {key!r}")
            elif not isinstance(answer, BaseException):
                continue
            elif refusal is None:
                raise self._loss(_reason(answer))
            elif len(works) == 1:
                is_denied = isinstance(refusal, ChannelAccessRefused)
                answers[place] = (NoPlaceError if is_denied else ServiceError)(_reason(refusal))
            else:  # One by one, so that the error belongs to one record.
                (answers[place],) = await self.send([records[place]])
        return answers

    def _publish(self, record: PeerRecord) -> Awaitable[object]:
        assert self._connection is not None
        size_max = self._connection.connection_tune.frame_max or 0
        properties = properties_of(record, size_max - _FRAME_BYTES)
        # A dead letter is for a queue, not for the exchange of notifications.
        exchange = self.settings.exchange if record.token is None else ""
        return self._sender.basic_publish(
            record.payload,
            exchange=exchange,
            routing_key=record.topic,
            properties=properties,
            mandatory=True,
        )

    async def aclose(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    # --- the connection -----------------------------------------------------------------------

    async def _unless_lost(self, work: Awaitable[T], wait_s: float | None = None) -> T:
        """Waits for work. Raises PeerLostError when it takes too long, or fails."""
        return await self._in_time(self._answer_of(work), wait_s)

    async def _answer_of(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except TimeoutError:
            raise  # As an OSError it would be named by its class.
        except (AMQPError, ChannelInvalidStateError, OSError) as error:
            raise self._loss(_reason(error)) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The library cancels its own tasks when the connection ends.
            raise self._loss("the connection is lost") from None


def _reason(error: object) -> str:
    if isinstance(error, OSError):
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if not isinstance(error, AMQPError) or cause is not error:
            return reason_of(cause)
    if isinstance(error, InvalidFrameError) and "Connection.OpenOk" in str(error):
        # The library does not keep the reason of the server.
        return "the server has no virtual host of this name, or not for this user"
    return str(error) or type(error).__name__


def _record(queue: str, message: DeliveredMessage) -> PeerRecord:
    delivery, properties = message.delivery, message.header.properties
    assert isinstance(delivery, Basic.Deliver)
    facts: dict[str, Any] = {"exchange": delivery.exchange, "queue": queue}
    for name, at in (_BOTH_WAYS | _ONLY_IN).items():
        if (value := getattr(properties, at)) is not None:
            facts[name] = value
    return PeerRecord(
        topic=delivery.routing_key or "",
        payload=message.body,
        content_type=properties.content_type or "",
        headers=tuple(_headers(properties.headers or {})),
        facts=facts,
        token=delivery.delivery_tag,
    )


def _headers(table: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """Returns the headers of a message; an array is several of one name."""
    for name, held in table.items():
        for each in held if isinstance(held, list) else [held]:
            yield name, _value(each)


def _value(value: Any) -> Value:
    if isinstance(value, (dict, list)):  # Such as `x-death`, the history of a dead letter.
        return msgspec.json.encode(value, enc_hook=str).decode()
    if isinstance(value, Decimal):
        return float(value)
    return bytes(value) if isinstance(value, bytearray) else value


def properties_of(record: PeerRecord, size_max: int) -> Basic.Properties:
    """Returns the properties of a message, in at most `size_max` bytes: AMQP has one frame for
    them, and a larger one ends the connection. Raises InvalidValueError, also for a routing key
    that AMQP cannot hold.
    """
    if len(record.topic.encode()) > 255:
        raise InvalidValueError(record.topic, "AMQP has routing keys of at most 255 bytes")
    table: dict[str, Any] = {}
    for name, value in record.headers:
        if len(name.encode()) > HEADER_NAME_BYTES_MAX:
            reason = f"AMQP has names of headers of at most {HEADER_NAME_BYTES_MAX} bytes"
            raise InvalidValueError(name, reason)
        text, first = text_of(value), table.get(name)
        held = first if isinstance(first, list) else [] if first is None else [first]
        table[name] = [*held, text] if held else text
    properties = Basic.Properties(
        content_type=record.content_type or None, delivery_mode=_PERSISTENT, headers=table
    )
    for name, at in _BOTH_WAYS.items():
        if (value := record.facts.get(name)) is not None:
            if isinstance(value, tuple):
                raise InvalidValueError(name, f"AMQP takes one value of it, found {len(value)}")
            setattr(properties, at, text_of(value))
    try:
        size = len(ContentHeader(properties=properties).marshal())
    except (TypeError, ValueError) as error:
        raise InvalidValueError(record.topic, f"AMQP cannot hold its properties: {error}") from None
    if size > size_max:
        raise InvalidValueError(
            record.topic, f"the server takes {size_max} bytes of headers, and these are {size}"
        )
    return properties
