"""What travels so that delivery can be promised: requests, answers, records, and what brokers say.

Requests stand in a `LogRequest`, and what they are answered in a `LogReply`: of a publication how
many pairs were dropped, of an `PublisherHello` an `PublisherState`, of a `ReadLog` a `ReaderState`.
Records come in a `LogDelivery`, and what brokers say to one another goes in a `LogHop`.
Notifications and filters are the bytes of `model.codec` in all of them.

An error travels as the name of its class, its words and those of its attributes that are plain.
"""

from typing import Annotated, Any, Final, TypeAlias

import msgspec

from contrada import errors
from contrada.delivery.delivery_messages import (
    Ack,
    AnnounceOwner,
    Closed,
    CloseLog,
    DeliveryMessage,
    Grant,
    Nack,
    ReadLog,
    Records,
    Sequenced,
    StreamAck,
    Transfer,
)
from contrada.errors import (
    ContradaError,
    EncodingError,
    InvalidValueError,
    LimitError,
    ServiceError,
    shortened,
)
from contrada.model import FilterSet, Notification, from_msgpack, to_msgpack
from contrada.model.codec import notification_from_msgpack, notification_to_read
from contrada.net.wire.frames import LogReply
from contrada.net.wire.message_codec import HOP_NOTIFICATIONS_MAX
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX, decoded, notifications_from
from contrada.routing.router_messages import Label

PAST_SERVERS_MAX: Final = 1_000
"""Former servers that a publisher names. Beyond it: its request is malformed."""


class Publications(msgspec.Struct, frozen=True, array_like=True, tag="publish"):
    """What a client publishes with a promise, all of one class and publisher."""

    notifications: Annotated[list[bytes], msgspec.Meta(max_length=HOP_NOTIFICATIONS_MAX)]


class PublisherHello(msgspec.Struct, frozen=True, array_like=True, tag="arrive"):
    """A publisher will publish here. `instance` tells it from other clients that use its name.

    `past`: the servers at which it was since one of its publications was confirmed, with their
    lives.
    """

    publisher: Label
    instance: Label
    past: Annotated[dict[Label, int], msgspec.Meta(max_length=PAST_SERVERS_MAX)] = {}


class PublisherState(msgspec.Struct, frozen=True, array_like=True):
    """Where a publisher is, in which life of that server, and its highest number there."""

    server: str
    incarnation: int
    sequence: int


class ReaderState(msgspec.Struct, frozen=True, array_like=True):
    """The filters of a standing subscription that is read; home and number identify it."""

    filters: FilterSet
    owner: str
    number: int


class AskLog(msgspec.Struct, frozen=True, array_like=True, tag="ask log"):
    """What does a log have? `time_us` asks for the position of a time."""

    name: str
    time_us: int | None = None


class LogState(msgspec.Struct, frozen=True, array_like=True):
    """What a subscription stands for, and the positions of its log: kept from `first` on.

    `undone` is the first that is not acknowledged, `next` the one to be given to what comes next,
    `at` that of the time that was asked for. Home and number tell it from others of its name.
    """

    filters: FilterSet
    owner: str
    number: int
    first: int
    undone: int
    next: int
    at: int = 0


class AskRecordBatch(msgspec.Struct, frozen=True, array_like=True, tag="ask stretch"):
    """The records from one position to before another, of the subscription with this number.

    Without those that are acknowledged; with them where `is_again`.
    """

    name: str
    number: int
    first: int
    end: int
    is_again: bool = False


class RecordBatch(msgspec.Struct, frozen=True, array_like=True):
    """Records in columns: what was asked for, from its first position to before `next`.

    Of each its position and time as integers of 64 bits, and the bytes of its notification as an
    integer of 32 bits, lesser bytes first; `data` has the notifications in a row. Of what was
    damaged the positions, and why.
    """

    next: int
    positions: bytes
    times_us: bytes
    lengths: bytes
    data: bytes
    damaged: tuple[tuple[int, str], ...] = ()


class Acknowledge(msgspec.Struct, frozen=True, array_like=True, tag="acknowledge"):
    """All before a position is done with, of the subscription with this number."""

    name: str
    number: int
    before: int


LogRequested: TypeAlias = (
    Publications
    | PublisherHello
    | ReadLog
    | Grant
    | Ack
    | Nack
    | CloseLog
    | AskLog
    | AskRecordBatch
    | Acknowledge
)
"""What a client asks so that delivery can be promised."""

T = Any


def encode_durable(message: Any) -> msgspec.Raw:
    """A message as it stands in a frame.

    Raises LimitError for content that is too large, InvalidValueError for a name that is no text.
    """
    try:
        return msgspec.Raw(_ENCODER.encode(message))
    except UnicodeEncodeError as error:
        raise InvalidValueError(error.object, "a lone surrogate is not text") from None


def _bytes_of(thing: Any) -> bytes:
    data = to_msgpack(thing)
    if len(data) > CONTENT_BYTES_MAX:
        raise LimitError("CONTENT_BYTES_MAX", CONTENT_BYTES_MAX, len(data))
    return data if type(data) is bytes else bytes(data)  # What is doubtful here is not elsewhere.


def _thing_of(expected: type, data: Any) -> Any:
    if not isinstance(data, bytes):
        raise EncodingError("a message", f"expected bytes of a {expected.__name__.lower()}")
    if len(data) > CONTENT_BYTES_MAX:
        raise LimitError("CONTENT_BYTES_MAX", CONTENT_BYTES_MAX, len(data))
    if expected is Notification:
        return notification_from_msgpack(data)
    thing = from_msgpack(data)
    if not isinstance(thing, expected):
        found = type(thing).__name__.lower()
        raise EncodingError("a message", f"expected a {expected.__name__.lower()}, found {found}")
    return thing


def _read_of(expected: type, data: Any) -> Any:
    """The same of what a reader gets, whose values will be asked for."""
    if expected is Notification and isinstance(data, bytes):
        return notification_to_read(data)[0]
    return _thing_of(expected, data)


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_bytes_of)
_REQUESTS: Final = msgspec.msgpack.Decoder(LogRequested, dec_hook=_thing_of)
_DELIVERIES: Final = msgspec.msgpack.Decoder(Records | Closed, dec_hook=_read_of)
_LINK_MESSAGES: Final = msgspec.msgpack.Decoder(
    AnnounceOwner | Sequenced | Transfer | StreamAck, dec_hook=_thing_of
)


def decode_log_request(data: msgspec.Raw) -> LogRequested:
    """What a client asks. Raises EncodingError, LimitError and what else its content may raise."""
    return decoded(_REQUESTS, data)  # type: ignore[no-any-return]


def decode_publications(message: Publications) -> tuple[Notification, ...]:
    """What is to be published, checked. Raises EncodingError, LimitError."""
    return notifications_from(message.notifications)


def decode_delivery(data: msgspec.Raw) -> Records | Closed:
    """What a reader gets. Raises EncodingError."""
    return decoded(_DELIVERIES, data)  # type: ignore[no-any-return]


def decode_log_hop(data: msgspec.Raw) -> DeliveryMessage:
    """What a broker says to another one. Raises EncodingError, LimitError."""
    return decoded(_LINK_MESSAGES, data)  # type: ignore[no-any-return]


def decode_result(reply: LogReply, expected: type[T]) -> T:
    """What a request was answered. Raises EncodingError."""
    decoder = msgspec.msgpack.Decoder(expected, dec_hook=_thing_of)
    return decoded(decoder, reply.result)


# --- errors -----------------------------------------------------------------------------------


def refusal(number: int, error: ContradaError) -> LogReply:
    """The answer that carries an error."""
    plain = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= _TEXT_MAX)
    }
    return LogReply(number, code=type(error).__name__, reason=shortened(str(error)), about=plain)


_TEXT_MAX: Final = 1_000


def error_of(reply: LogReply, address: str) -> ContradaError:
    """The error that an answer carries; one that is not known here becomes a ServiceError."""
    reason = f"{address} refused: {reply.reason}"
    kind = getattr(errors, reply.code, None)
    if not (isinstance(kind, type) and issubclass(kind, ContradaError)):
        return ServiceError(reason)
    error = kind.__new__(kind, reason)
    error.__dict__ |= reply.about
    return error
