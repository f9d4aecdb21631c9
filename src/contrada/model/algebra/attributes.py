"""The attributes of a notification as bytes: one map of msgpack, its *span*.

A span is checked once, when a notification is made or received, and decoded at the first access.
Valid attribute names are remembered, so that one set operation checks most notifications.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from contrada.errors import (
    EncodingError,
    InvalidNameError,
    InvalidNotificationError,
    InvalidValueError,
    LimitError,
)
from contrada.model.domains.values import (
    INT_MAX,
    MARK_PREFIX,
    Value,
    check_name,
    check_user_name,
    key_of,
    normal,
)
from contrada.model.languages.work_budget import spend

Values: TypeAlias = Value | tuple[Value, ...]
"""One value, or several: distinct, in the order of the line."""

ATTRIBUTES_MAX: Final = 4_096
"""Attributes of a notification. Beyond it: LimitError."""

VALUES_MAX: Final = 4_096
"""Values of one attribute. Beyond it: InvalidNotificationError."""

ATTRIBUTES_KEPT_MAX: Final = 16
"""Attributes of a notification that keeps its values. Beyond it: they are decoded on access."""

NAMES_KNOWN_MAX: Final = 65_536
"""Names of attributes that are known to be good. Beyond it: all are forgotten, and checked anew."""

_encode: Final = msgspec.msgpack.Encoder().encode
decode_map: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode
_decode_apart: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_decode_items: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode

SHORT_SPAN_BYTES: Final = 2_048  # Bytes of a span that is decoded without a look at its parts

_STR: Final = frozenset((str,))
_PLAIN: Final = frozenset((str, int, float, bool, bytes, type(None)))
_IN_SPANS: Final = _PLAIN | {datetime}
LARGE: Final = 0xCF
"""The first byte of an integer beyond 63 bits in msgpack; other values contain it too."""

good_names: Final[set[str]] = set()
"""Names that a user may give. Asking a set for all of them at once is ten times as fast."""

good_names_and_marks: Final[set[str]] = set()


def span_of(attributes: Mapping[str, Any]) -> bytes:
    """Returns the attributes as one map of msgpack, checked; type marks are allowed.

    Raises InvalidNotificationError with the name and the value, LimitError beyond ATTRIBUTES_MAX.
    Cost: about a microsecond, where all values are plain and the names were seen before.
    """
    span = plain_span(attributes, good_names_and_marks)
    return span_of_any(attributes, system=True) if span is None else span


def plain_span(attributes: Mapping[str, Any], good: set[str]) -> bytes | None:
    """As `span_of`, where all values are plain and the names were seen before; else None."""
    # The caller falls back to `span_of_any`, whose errors give the name and the value.
    return plain_values_span(attributes) if is_plain(attributes, good) else None


def plain_values_span(attributes: Mapping[str, Any]) -> bytes | None:
    """As `plain_span`, for names and types that were checked."""
    try:
        span = _encode(attributes)
    except (OverflowError, UnicodeEncodeError):
        return None
    return span if span.find(LARGE) < 0 or not has_large(attributes) else None


def is_plain(attributes: Mapping[str, Any], good: set[str]) -> bool:
    """Whether all values are plain and the names were seen before; integers may be too large."""
    return (
        type(attributes) is dict
        and len(attributes) <= ATTRIBUTES_MAX
        and good.issuperset(attributes)
        and _PLAIN.issuperset(map(type, attributes.values()))
        and _STR.issuperset(map(type, attributes))  # Of an enumeration a member equals its text.
    )


def span_of_any(attributes: Mapping[str, Any], *, system: bool) -> bytes:
    """As `span_of`, with the attributes looked at one by one."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise LimitError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(attributes))
    return _encode(_check_values(attributes, system=system))


def _check_values(attributes: Mapping[str, Any], *, system: bool) -> dict[str, Values]:
    checked: dict[str, Values] = {}
    for name, value in attributes.items():
        check_attribute_name(name, value, system=system)
        held = normalize_values(name, value)
        if held != ():
            checked[name] = held
    return checked


def check_span(span: bytes) -> dict[str, Values]:
    """Decodes a received span and checks its values. Raises as `span_of`, and EncodingError."""
    try:
        if len(span) > SHORT_SPAN_BYTES:
            _check_long(span)
        values = decode_map(span)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EncodingError("msgpack", str(error)) from None
    except RecursionError:
        raise EncodingError("msgpack", "nested too deeply") from None
    if len(values) > ATTRIBUTES_MAX:
        raise LimitError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, len(values))
    if len(values) != count_in(span):
        raise EncodingError("msgpack", "two attributes of one name")
    return values if are_plain(values, span.count(LARGE)) else _check_values(values, system=True)


def are_plain(values: dict[str, Any], larges: int) -> bool:
    """Whether decoded values are valid as they are, so that none is checked by itself.

    `larges` is the number of bytes in the span that may begin an integer beyond 63 bits.
    """
    return (
        good_names_and_marks.issuperset(values)
        and _IN_SPANS.issuperset(map(type, values.values()))
        and not (larges and has_large(values))
    )


def has_large(values: Mapping[str, Any]) -> bool:
    """Whether one of the values is an integer beyond 63 bits, which msgpack can hold."""
    return any(type(each) is int and each > INT_MAX for each in values.values())


def count_in(packed: bytes, begin: int = 0) -> int:
    """Returns the number of entries that the header of a map or an array gives."""
    first = packed[begin]
    if first <= 0x9F:
        return first & 0x0F
    return int.from_bytes(packed[begin + 1 : begin + (3 if first in (0xDC, 0xDE) else 5)])


def _check_long(span: bytes) -> None:
    """Checks the parts of a long span before they are decoded.

    Decoding first would build millions of empty lists, or maps whose keys all have one hash, which
    takes quadratic time.
    """
    if _kind_of(span) == "map" and count_in(span) > ATTRIBUTES_MAX:
        raise LimitError("ATTRIBUTES_MAX", ATTRIBUTES_MAX, count_in(span))
    parts = _decode_apart(span)
    if len(parts) != count_in(span):  # A dictionary has one entry of two with one name.
        raise EncodingError("msgpack", "two attributes of one name")
    for name, raw in parts.items():
        packed = bytes(raw)
        kind = _kind_of(packed)
        if kind == "list":
            if count_in(packed) > VALUES_MAX:
                reason = f"{count_in(packed)} values, more than VALUES_MAX = {VALUES_MAX}"
                raise InvalidNotificationError(name, "a list", reason)
            spend(count_in(packed))
            items = map(bytes, _decode_items(packed))
            kind = next((found for each in items if (found := _kind_of(each))), "")
        if kind:
            raise InvalidNotificationError(name, f"a {kind}", f"a {kind} is no value")


def _kind_of(packed: bytes) -> str:
    first = packed[0]
    if 0x80 <= first <= 0x8F or first in (0xDE, 0xDF):
        return "map"
    return "list" if 0x90 <= first <= 0x9F or first in (0xDC, 0xDD) else ""


def values_in(span: bytes) -> dict[str, Values]:
    """Returns the values of a span that was checked."""
    values: dict[str, Any] = decode_map(span)
    for name in [name for name, value in values.items() if type(value) is list]:
        held = normalize_values(name, values[name])
        if held == ():
            del values[name]
        else:
            values[name] = held
    return values


def check_attribute_name(name: object, value: object, *, system: bool) -> None:
    """Raises InvalidNotificationError for an invalid attribute name; remembers a valid one."""
    is_mark = isinstance(name, str) and name.startswith(MARK_PREFIX) and name != MARK_PREFIX
    try:
        good = check_name(name) if system and is_mark else check_user_name(name)
    except InvalidNameError as error:
        raise InvalidNotificationError(name, value, error.reason) from None
    if len(good_names_and_marks) >= NAMES_KNOWN_MAX:
        good_names.clear()
        good_names_and_marks.clear()
    good_names_and_marks.add(good)
    if not is_mark:
        good_names.add(good)


def normalize_values(name: str, value: object) -> Values:
    """Returns the value, or several sorted as a tuple. Raises InvalidNotificationError."""
    try:
        if not isinstance(value, list | tuple | set | frozenset):
            return normal(value)  # type: ignore[arg-type]
        if len(value) > VALUES_MAX:
            reason = f"{len(value)} values, more than VALUES_MAX = {VALUES_MAX}"
            raise InvalidNotificationError(name, value, reason)
        spend(len(value))
        by_key = {key_of(each): each for each in map(normal, value)}
    except InvalidValueError as error:
        raise InvalidNotificationError(name, value, error.reason) from None
    if len(by_key) == 1:
        return next(iter(by_key.values()))
    return tuple(by_key[key] for key in sorted(by_key))
