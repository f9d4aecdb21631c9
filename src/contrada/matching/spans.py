"""Spans of msgpack: a notification's attributes as bytes.

A span is a map of checked attributes, encoded as a notification's are, type marks among them; the
envelope is no part of it. What matches is given as a notification, as a mapping of the attributes
of one that is not stamped, or as a span and an envelope.
"""

from collections.abc import Callable, Container, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from contrada.errors import ContradaError, EncodingError
from contrada.model import Envelope, Notification, Value
from contrada.model.algebra.attributes import check_span
from contrada.model.algebra.nesting import flattened
from contrada.model.algebra.notification import of_parts
from contrada.model.domains.values import datetime_of, is_system_name

Attributes: TypeAlias = Mapping[str, Any]

Given: TypeAlias = Notification | Attributes
"""What is matched: a notification, or the attributes of one that is not stamped."""

EMPTY_SPAN: Final = b"\x80"
"""A map of no attributes."""

encode: Final = msgspec.msgpack.Encoder().encode

_ENVELOPE: Final[dict[str, Callable[[Envelope], Value]]] = {
    "@id": lambda envelope: envelope.id,
    "@publisher": lambda envelope: envelope.publisher,
    "@time": lambda envelope: datetime_of(envelope.at_us),
}


def decoded(span: bytes) -> dict[str, Any]:
    """The attributes in a span, checked. Raises EncodingError, InvalidNotificationError."""
    try:
        return check_span(span)
    except ContradaError:
        raise
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise EncodingError("a span of msgpack", str(error)) from None


def exactly(given: Given | bytes, envelope: Envelope, asked: Container[str]) -> Notification:
    """The notification that is given, of a mapping with those attributes that are asked for.

    Raises EncodingError, InvalidNotificationError.
    """
    if isinstance(given, Notification):
        return given
    if isinstance(given, bytes):
        decoded(given)
        return of_parts(given, b"", "", envelope)
    return Notification(asked_for(given, asked))


def rewritten_of(notification: Notification) -> Notification:
    """The notification with its span as this package writes it.

    msgpack has more ways to write a value than kernels read: numbers of 32 bits with a point, times
    with a longer header.
    """
    return Notification.restored(dict(notification), b"", "", notification.envelope)


def asked_for(attributes: Attributes, asked: Container[str]) -> dict[str, Any]:
    """Those attributes of a mapping that are asked for and that a mapping may have, all levels."""
    flat, _ = flattened(attributes)
    return {n: each for n, each in flat.items() if n in asked and not is_system_name(n)}


def with_envelope(span: bytes, envelope: Envelope, names: tuple[str, ...]) -> bytes:
    """The span with these attributes of the envelope behind its own."""
    lead = span[0] if span else 0
    if 0x80 <= lead <= 0x8F:
        count, begin = lead & 0xF, 1
    elif lead in (0xDE, 0xDF):
        begin = 3 if lead == 0xDE else 5
        count = int.from_bytes(span[1:begin], "big")
    else:
        return span  # no map: whoever reads it will say so
    more = encode({name: _ENVELOPE[name](envelope) for name in names})
    head = b"\xdf" + (count + len(names)).to_bytes(4, "big")
    return head + span[begin:] + more[1:]
