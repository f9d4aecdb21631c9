"""Notifications as bytes: the span of one, and a `Bundle` of several.

A span is a map of checked attributes, encoded as a notification's are, type marks among them; the
envelope is no part of it. A match takes a notification, a mapping with the attributes of an
unstamped one, or a span and an envelope.

Notifications that arrive together are forwarded as bytes, in a `Bundle`: one call of a kernel
checks all of them, and a notification is decoded at its first access.
"""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias, final, overload

import msgspec

from contrada.errors import ContradaError, EncodingError, InvalidValueError
from contrada.matching.kernels import jit
from contrada.model import Envelope, Notification, Value
from contrada.model.algebra.attributes import check_span
from contrada.model.algebra.nested_objects import flatten_mapping
from contrada.model.algebra.notification import UNSTAMPED, from_parts
from contrada.model.codec import notification_from_msgpack
from contrada.model.domains.values import Key, datetime_of, is_system_name, key_of

Attributes: TypeAlias = Mapping[str, Any]

Given: TypeAlias = Notification | Attributes
"""The argument of a match: a notification, or the attributes of an unstamped one."""

EMPTY_SPAN: Final = b"\x80"
"""A map of no attributes."""

encode: Final = msgspec.msgpack.Encoder().encode

_ENVELOPE: Final[dict[str, Callable[[Envelope], Value]]] = {
    "@id": lambda envelope: envelope.id,
    "@publisher": lambda envelope: envelope.publisher,
    "@time": lambda envelope: datetime_of(envelope.at_us),
}


def decode_span(span: bytes) -> dict[str, Any]:
    """Returns the attributes in a span, checked. Raises EncodingError, InvalidNotificationError."""
    try:
        return check_span(span)
    except ContradaError:
        raise
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise EncodingError("a span of msgpack", str(error)) from None


def to_notification(
    given: Given | bytes, envelope: Envelope, asked: Container[str]
) -> Notification:
    """Returns the notification, of a mapping with only the attributes that are asked for.

    Raises EncodingError, InvalidNotificationError.
    """
    if isinstance(given, Notification):
        return given
    if isinstance(given, bytes):
        decode_span(given)
        return from_parts(given, b"", "", envelope)
    return Notification(select_attributes(given, asked))


def to_whole_notification(given: Given | bytes, envelope: Envelope = UNSTAMPED) -> Notification:
    """Returns the notification with all its attributes.

    Raises InvalidNotificationError for an invalid attribute of a mapping.
    """
    if isinstance(given, Notification):
        return given
    if isinstance(given, bytes):
        return from_parts(given, b"", "", envelope)
    return Notification({name: each for name, each in given.items() if not is_system_name(name)})


def reencode(notification: Notification) -> Notification:
    """Returns the notification with its span as this package encodes it.

    msgpack has more encodings of a value than kernels read: numbers of 32 bits with a point, times
    with a longer header.
    """
    return Notification.from_attributes(dict(notification), b"", "", notification.envelope)


def select_attributes(attributes: Attributes, asked: Container[str]) -> dict[str, Any]:
    """Returns those attributes of a mapping that are asked for, without the system's."""
    flat, _ = flatten_mapping(attributes)
    return {n: each for n, each in flat.items() if n in asked and not is_system_name(n)}


def select_keys(
    given: Given | bytes, envelope: Envelope, asked: Collection[str], of_envelope: tuple[str, ...]
) -> dict[str, tuple[Key, ...]]:
    """Returns the keys of present attributes that are asked for, and these of the envelope."""
    if isinstance(given, Notification):
        known = given.keys_among(asked)
    else:
        is_span = isinstance(given, bytes)
        attributes = decode_span(given) if isinstance(given, bytes) else flatten_mapping(given)[0]
        try:
            known = {
                name: (key_of(value),)
                for name, value in attributes.items()
                if name in asked and (name[0] != "@" or is_span or not is_system_name(name))
            }
        except InvalidValueError:  # several values, or a refusal with a reason
            return select_keys(
                to_notification(given, envelope, asked), envelope, asked, of_envelope
            )
    if of_envelope:
        if not isinstance(given, Notification):
            given = Notification({}, envelope=envelope)
        known |= {name: given.keys_of(name) for name in of_envelope}
    return known


def with_envelope(span: bytes, envelope: Envelope, names: tuple[str, ...]) -> bytes:
    """Returns the span with these attributes of the envelope behind its own."""
    lead = span[0] if span else 0
    if 0x80 <= lead <= 0x8F:
        count, begin = lead & 0xF, 1
    elif lead in (0xDE, 0xDF):
        begin = 3 if lead == 0xDE else 5
        count = int.from_bytes(span[1:begin], "big")
    else:
        return span  # no map: its reader will raise
    more = encode({name: _ENVELOPE[name](envelope) for name in names})
    head = b"\xdf" + (count + len(names)).to_bytes(4, "big")
    return head + span[begin:] + more[1:]


# --- several together ---------------------------------------------------------------------------


BUNDLE_MIN: Final = 4
"""Notifications of a bundle, at least: for fewer a call costs more than it saves."""

_PADDING: Final = bytes(16)


@final
class Bundle(Sequence[Notification]):
    """Several notifications as their encodings.

    Each is stamped, best effort, of the default priority and without a lifetime, as most are; else
    there is no bundle. It has no subclasses, so `type(x) is Bundle` tests for it, once for each
    publication: for an abstract class `isinstance` takes five times as long.
    """

    __slots__ = ("_is_of_one", "_joined", "_parts", "_spans", "_starts", "encodings")

    def __init__(
        self, encodings: Sequence[bytes], joined: Any, starts: Any, parts: Any, is_of_one: bool
    ) -> None:
        self.encodings = encodings
        self._is_of_one = is_of_one
        self._joined, self._starts, self._parts = joined, starts, parts
        self._spans: tuple[int, Any, Any] | None = None

    @classmethod
    def of(cls, encodings: list[bytes]) -> "Bundle | None":
        """Returns a bundle of these; None if one of them is unusual, or without kernels."""
        if len(encodings) < BUNDLE_MIN or not jit.loaded():
            return None
        import numpy as np  # The requirements of kernels are loaded with them.

        from contrada.matching.kernels import batch_validate

        joined = np.frombuffer(b"".join((*encodings, _PADDING)), dtype=np.uint8)
        count = len(encodings)
        starts = np.fromiter(accumulate(map(len, encodings), initial=0), np.int64, count + 1)
        parts = np.zeros((count, batch_validate.PARTS), dtype=np.int64)
        found = batch_validate.are_plain(joined.ctypes.data, starts, parts.reshape(-1))
        return (
            cls(encodings, joined, starts, parts, found == batch_validate.SAME) if found else None
        )

    def __len__(self) -> int:
        return len(self.encodings)

    @overload
    def __getitem__(self, at: int) -> Notification: ...

    @overload
    def __getitem__(self, at: slice) -> "Bundle": ...

    def __getitem__(self, at: int | slice) -> "Notification | Bundle":
        if isinstance(at, int):
            return notification_from_msgpack(self.encodings[at])
        begin, end, step = at.indices(len(self))
        if step != 1:
            raise ValueError("notifications of a bundle are taken in a row")
        if end - begin == len(self):
            return self
        starts = self._starts[begin : end + 1]
        parts = self._parts[begin:end]
        return Bundle(self.encodings[begin:end], self._joined, starts, parts, self._is_of_one)

    def __iter__(self) -> Iterator[Notification]:
        return map(notification_from_msgpack, self.encodings)

    @property
    def joined_bytes(self) -> int:
        """The bytes of its memory beside the encodings, also for a slice."""
        return len(self._joined)

    def spans(self) -> tuple[int, Any, Any]:
        """Returns their attributes as the data of a `PackedBatch`; behind each is its envelope."""
        if self._spans is None:  # They are matched twice if permissions to publish are checked.
            starts = self._starts.copy()
            starts[:-1] = self._parts[:, 0]
            self._spans = self._joined.ctypes.data, starts, self._joined
        return self._spans

    @property
    def times_us(self) -> list[int]:
        """The times of publication."""
        return self._parts[:, 1].tolist()  # type: ignore[no-any-return]

    def publishers(self) -> set[str]:
        """Returns the publishers: mostly one, as the check has found."""
        if not self._is_of_one:
            return {publisher for publisher, _ in self.identities()}
        begin, length = self._parts[0, 4:].tolist()
        return {self._joined[begin : begin + length].tobytes().decode()}

    def identities(self) -> Iterator[tuple[str, str]]:
        """Yields the publisher and the id of each."""
        data = self._joined
        for _, _, at, length, publisher_at, publisher_length in self._parts.tolist():
            publisher = data[publisher_at : publisher_at + publisher_length]
            yield publisher.tobytes().decode(), data[at : at + length].tobytes().decode()
