"""The content of messages: notifications, filters, advertisements, patterns and matches as
bytes.

They are those of `model.codec`, so a broker forwards the bytes of the publisher unchanged. A
`WireForm` is the form of a message class in which content is bytes.
"""

from collections.abc import Callable, Generator, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, Union

import msgspec

from contrada.errors import EncodingError, FrameError, LimitError
from contrada.matching.packed import Bundle
from contrada.model import Advertisement, Filter, Notification, Value
from contrada.model.codec import from_msgpack, notification_from_msgpack, to_msgpack
from contrada.model.languages.work_budget import Work, spend
from contrada.patterns import Match
from contrada.routing.delegation import RouterMessage
from contrada.routing.router_messages import Notifications, Offer
from contrada.service.subscription_queue import Passed

CONTENT_BYTES_MAX: Final = 8 * 2**20
"""Bytes of one notification, or of the filters of one subscription. Beyond it: LimitError; the
request is refused."""

DECODED_BYTES_PER_TURN: Final = 64 * 1024
"""Bytes of notifications that a broker decodes at once. Beyond it: other connections get a turn."""

_NOTIFICATION_WORK: Final = 6
"""Steps of work to read a notification; one more for each `_BYTES_PER_STEP` bytes."""

_BYTES_PER_STEP: Final = 2_000

B = TypeVar("B", bytes, msgspec.Raw)
C = TypeVar("C")

PackedMatch: TypeAlias = tuple[bytes, list[bytes]]
"""A match on the wire: the values of `by`, and its notifications."""


def encode_content(content: Any) -> bytes:
    """Returns the bytes of content. Raises LimitError where they do not fit into a frame."""
    data = check_content(to_msgpack(content))
    # An undecided notification is plain bytes here.
    return data if type(data) is bytes else bytes(data)


def check_content(data: bytes) -> bytes:
    """Returns the bytes. Raises LimitError where they are too many."""
    if len(data) > CONTENT_BYTES_MAX:
        raise LimitError("CONTENT_BYTES_MAX", CONTENT_BYTES_MAX, len(data))
    return data


def notifications_from(each: Sequence[bytes]) -> tuple[Notification, ...]:
    """Returns checked notifications. Raises EncodingError, LimitError."""
    _spend_on(each)
    return tuple(map(notification_from_msgpack, each))


def published_from(each: list[bytes]) -> Notifications:
    """Returns notifications as `notifications_from`, as a bundle where they need no single
    check.
    """
    _spend_on(each)
    return Bundle.of(each) or tuple(map(notification_from_msgpack, each))


def published_bundle(message: msgspec.Raw) -> Bundle | None:
    """Returns the notifications of a message that publishes them, as a bundle of its bytes.

    None where they need a single check, and for another message. Raises LimitError.
    """
    data = bytes(message)
    bundle = Bundle.of_message(data) if len(data) <= CONTENT_BYTES_MAX else None
    if bundle is not None:
        spend(_NOTIFICATION_WORK * len(bundle) + len(data) // _BYTES_PER_STEP)
    return bundle


def published_in_parts(
    each: list[bytes], work: Callable[[], Work]
) -> Generator[None, None, Notifications]:
    """Returns notifications as `published_from`; others may have a turn at each `yield`.

    `work` makes the budget of a part, and of the whole with a step for each `_BYTES_PER_STEP`.
    """
    with work():
        _spend_on(each)
        bundle = Bundle.of(each)
    return bundle or (yield from decode_in_parts(each, work))


def decode_in_parts(
    each: list[bytes], work: Callable[[], Work]
) -> Generator[None, None, tuple[Notification, ...]]:
    """Returns checked notifications as `notifications_from`; yields between parts of them."""
    found: list[Notification] = []
    while len(found) < len(each):
        if found:
            yield
        with work():
            found += notifications_from(first_bytes(DECODED_BYTES_PER_TURN, each[len(found) :]))
    return tuple(found)


def first_bytes(bytes_max: int, items: list[B]) -> list[B]:
    """Returns the first items, up to the one that reaches a number of bytes."""
    sizes = accumulate(map(len, items))
    return items[: 1 + len(list(takewhile(bytes_max.__gt__, sizes)))]


def _spend_on(each: Sequence[bytes]) -> None:
    spend(_NOTIFICATION_WORK * len(each) + sum(map(len, each)) // _BYTES_PER_STEP)
    check_content(max(each, key=len, default=b""))


def as_notification(passed: Passed) -> Notification:
    """Returns an entry of a queue as a notification."""
    return notification_from_msgpack(passed) if type(passed) is bytes else passed  # type: ignore[return-value]


def encoding_of(notification: Passed) -> bytes:
    """Returns the bytes of an entry of a queue."""
    return notification if type(notification) is bytes else to_msgpack(notification)  # type: ignore[arg-type]


def decode_with(decoder: "msgspec.msgpack.Decoder[Any]", data: msgspec.Raw) -> Any:
    """Returns the decoded value. Raises EncodingError."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EncodingError("a message", str(error)) from None
    except RecursionError:
        raise EncodingError("a message", "nested too deeply") from None


def decoder_of(*kinds: Any) -> "msgspec.msgpack.Decoder[Any]":
    """Returns a decoder of several message classes, which differ in their tags."""
    return msgspec.msgpack.Decoder(Union[kinds])  # noqa: UP007 - the classes are made at run time


class ContentField(NamedTuple):
    """A field with content: its wire type, and the conversions to and from it.

    Without `to_wire` the hook of the encoder converts it. `from_wire` gets the whole message, too.
    """

    wire: Any
    to_wire: Callable[[Any], Any] | None
    from_wire: Callable[[Any, Any], Any]


class WireForm:
    """The wire form of a message class: a struct with its tag and fields, content as bytes.

    It is made from the fields of the class, so both cannot differ. A field is given as a
    `ContentField`, or as a narrower type that bounds it.
    """

    def __init__(self, kind: type[msgspec.Struct], **fields: Any) -> None:
        self.kind = kind
        self._content = {k: each for k, each in fields.items() if isinstance(each, ContentField)}
        types = {k: each.wire if k in self._content else each for k, each in fields.items()}
        self.struct: Any = msgspec.defstruct(
            f"Wire{kind.__name__}",
            [
                (each.name, types.get(each.name, each.type))
                if each.required
                else (each.name, types.get(each.name, each.type), each.default)
                for each in msgspec.structs.fields(kind)
            ],
            bases=(RouterMessage,),
            frozen=True,
            tag=kind.__struct_config__.tag,
        )

    def to_wire(self, message: Any) -> msgspec.Struct:
        """Returns the wire form of a message. Raises LimitError for content that is too large."""
        fields = msgspec.structs.asdict(message)
        for name, content in self._content.items():
            assert content.to_wire is not None
            fields[name] = content.to_wire(fields[name])
        return self.struct(**fields)  # type: ignore[no-any-return]

    def to_message(self, wire: Any) -> Any:
        """Returns the message of a wire form. Raises the errors of its content."""
        fields = msgspec.structs.asdict(wire)
        for name, content in self._content.items():
            fields[name] = content.from_wire(fields[name], wire)
        return self.kind(**fields)


def content_from(data: bytes, *kinds: type[C]) -> C:
    """Returns content of one of these classes. Raises EncodingError, LimitError, FrameError."""
    found = from_msgpack(check_content(data))
    if not isinstance(found, kinds):
        expected, kind = kinds[0].__name__.lower(), type(found).__name__.lower()
        raise FrameError("unsupported", f"expected content of type {expected}, found {kind}")
    return found


def offer_from(data: bytes) -> Offer:
    """Returns an advertisement. Raises as `content_from`."""
    return content_from(data, Advertisement, Filter)  # type: ignore[return-value]


def encode_values(values: Sequence[Value]) -> bytes:
    """Returns the values of `by` as the bytes of a notification, named by their places."""
    if not values:
        return b""
    return to_msgpack(Notification({str(place): each for place, each in enumerate(values)}))


def decode_values(data: bytes) -> tuple[Value, ...]:
    """Returns the values of `by`. Raises EncodingError."""
    if not data:
        return ()
    held = notification_from_msgpack(data).attributes
    values = [held.get(str(place), ()) for place in range(len(held))]
    if any(isinstance(each, tuple) for each in values):
        raise EncodingError("msgpack", "not one value for each name of `by`")
    return tuple(values)  # type: ignore[arg-type]


def encode_match(match: Match[Any]) -> PackedMatch:
    """Returns a match on the wire."""
    return encode_values(match.by), [bytes(to_msgpack(each)) for each in match.notifications]


def decode_match(key: str, packed: PackedMatch) -> Match[str]:
    """Returns a match. Raises EncodingError, LimitError."""
    return Match(key, decode_values(packed[0]), notifications_from(packed[1]))
