"""The messages of durable traffic: requests, results, records, and messages between brokers.

Requests are in a `LogRequest`, results in a `LogReply`, records in a `LogDelivery`, messages
between brokers in a `LogHop`. Notifications and filters are the bytes of `model.codec` in all of
them. An error is encoded as the name of its class, its message, and its plain attributes.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from contrada import errors
from contrada.delivery import delivery_messages
from contrada.delivery.queue_messages import QueueRequest
from contrada.errors import ContradaError, EncodingError, InvalidValueError, ServiceError, shortened
from contrada.model import FilterSet, Notification, from_msgpack
from contrada.model.codec import notification_from_msgpack, notification_to_read
from contrada.net.wire.frames import LogReply
from contrada.net.wire.message_codec import HOP_NOTIFICATIONS_MAX
from contrada.net.wire.payload_codec import check_content, decode_with, encode_content
from contrada.routing.router_messages import Label

PAST_SERVERS_MAX: Final = 1_000
"""Former servers in a `PublisherHello`. Beyond it: the request is malformed."""


class Publications(msgspec.Struct, frozen=True, array_like=True, tag="publish"):
    """Notifications of one delivery class and publisher."""

    notifications: Annotated[list[bytes], msgspec.Meta(max_length=HOP_NOTIFICATIONS_MAX)]


class PublisherHello(msgspec.Struct, frozen=True, array_like=True, tag="arrive"):
    """Announces a publisher, its client, and its former servers with their incarnations."""

    publisher: Label
    instance: Label
    past: Annotated[dict[Label, int], msgspec.Meta(max_length=PAST_SERVERS_MAX)] = {}


class PublisherState(msgspec.Struct, frozen=True, array_like=True):
    """A publisher at a server: its incarnation, and the highest number of the publisher."""

    server: str
    incarnation: int
    sequence: int


class ReaderState(msgspec.Struct, frozen=True, array_like=True):
    """The filters of a durable subscription; owner and number identify it."""

    filters: FilterSet
    owner: str
    number: int


class AskLog(msgspec.Struct, frozen=True, array_like=True, tag="ask log"):
    """Asks for the state of a log, and for the position of a time."""

    name: str
    time_us: int | None = None


class LogState(msgspec.Struct, frozen=True, array_like=True):
    """The filters of a durable subscription, and the positions of its log.

    The log is kept from `first` on; `undone` is the first unacknowledged position, `next` that of
    the next record, `at` that of the requested time. Owner and number identify the subscription.
    """

    filters: FilterSet
    owner: str
    number: int
    first: int
    undone: int
    next: int
    at: int = 0


class AskRecordBatch(msgspec.Struct, frozen=True, array_like=True, tag="ask stretch"):
    """Asks for records from `first` to before `end`, with `is_again` acknowledged ones too."""

    name: str
    number: int
    first: int
    end: int
    is_again: bool = False


class RecordBatch(msgspec.Struct, frozen=True, array_like=True):
    """Records in columns, up to before position `next`.

    Positions and times are 64-bit integers, lengths of notifications 32-bit ones, little-endian;
    `data` has the notifications in a row. `damaged` has positions with reasons.
    """

    next: int
    positions: bytes
    times_us: bytes
    lengths: bytes
    data: bytes
    damaged: tuple[tuple[int, str], ...] = ()


class Acknowledge(msgspec.Struct, frozen=True, array_like=True, tag="acknowledge"):
    """Acknowledges all records before a position."""

    name: str
    number: int
    before: int


LogRequested: TypeAlias = (
    Publications
    | PublisherHello
    | delivery_messages.ReadLog
    | delivery_messages.Grant
    | delivery_messages.Ack
    | delivery_messages.Nack
    | delivery_messages.Extend
    | delivery_messages.CloseLog
    | AskLog
    | AskRecordBatch
    | Acknowledge
    | QueueRequest
)
"""The durable requests of a client."""


def encode_durable(message: Any) -> msgspec.Raw:
    """Encodes a message. Raises LimitError for its content, InvalidValueError for no text."""
    try:
        return msgspec.Raw(_ENCODER.encode(message))
    except UnicodeEncodeError as error:
        raise InvalidValueError(error.object, "a lone surrogate is not text") from None


def _thing_of(expected: type, data: Any) -> Any:
    if not isinstance(data, bytes):
        raise EncodingError("a message", f"expected bytes of a {expected.__name__.lower()}")
    check_content(data)
    if expected is Notification:
        return notification_from_msgpack(data)
    thing = from_msgpack(data)
    if not isinstance(thing, expected):
        found = type(thing).__name__.lower()
        raise EncodingError("a message", f"expected a {expected.__name__.lower()}, found {found}")
    return thing


def _read_of(expected: type, data: Any) -> Any:
    """Decodes content for a reader, with its values read at once."""
    if expected is Notification and isinstance(data, bytes):
        return notification_to_read(data)
    return _thing_of(expected, data)


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=encode_content)

decode_log_request: Callable[[msgspec.Raw], LogRequested] = partial(
    decode_with, msgspec.msgpack.Decoder(LogRequested, dec_hook=_thing_of)
)
"""Returns a durable request. Raises EncodingError, LimitError and errors of its content."""

decode_delivery: Callable[[msgspec.Raw], delivery_messages.ForReader] = partial(
    decode_with, msgspec.msgpack.Decoder(delivery_messages.ForReader, dec_hook=_read_of)
)
"""Returns a message for a reader. Raises EncodingError."""

decode_log_hop: Callable[[msgspec.Raw], delivery_messages.DeliveryMessage] = partial(
    decode_with, msgspec.msgpack.Decoder(delivery_messages.DeliveryMessage, dec_hook=_thing_of)
)
"""Returns a message of another broker. Raises EncodingError, LimitError."""


def decode_result(reply: LogReply, expected: type[Any]) -> Any:
    """Returns the result of a request. Raises EncodingError."""
    decoder = msgspec.msgpack.Decoder(expected, dec_hook=_thing_of)
    return decode_with(decoder, reply.result)


# --- errors -----------------------------------------------------------------------------------


def refusal(number: int, error: ContradaError) -> LogReply:
    """Returns the reply that carries an error."""
    plain = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= _TEXT_MAX)
    }
    return LogReply(number, code=type(error).__name__, reason=shortened(str(error)), about=plain)


_TEXT_MAX: Final = 1_000


def error_of(reply: LogReply, address: str) -> ContradaError:
    """Returns the error of a reply; an unknown class becomes a ServiceError."""
    reason = f"{address} refused: {reply.reason}"
    kind = getattr(errors, reply.code, None)
    if not (isinstance(kind, type) and issubclass(kind, ContradaError)):
        return ServiceError(reason)
    error = kind.__new__(kind, reason)
    error.__dict__ |= reply.about
    return error
