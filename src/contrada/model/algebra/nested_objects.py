"""Nested objects as attributes, and the JSON of values that JSON does not have.

A nested mapping gives names joined by dots, a list gives its attribute several values. No attribute
can hold a list of objects or of lists: then the whole mapping is kept in the body, as JSON.

JSON has no times, bytes or infinite numbers. An object with one member represents them, in Python
dicts too: `{"$time": "2026-11-20T09:30:00Z"}`, `{"$bytes": "0aff"}`, `{"$number": "NaN"}`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, ValuesView
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from contrada.errors import InvalidNotificationError, InvalidValueError, LimitError
from contrada.model.domains.values import NAME_BYTES_MAX, Value, iso_time, normal, time_us_of

OBJECT_DEPTH_MAX: Final = 64
"""Nesting depth of objects of a notification. Beyond it: LimitError; a line is a bad record."""

JSON_TYPE: Final = "application/json"  # The content type of a body in JSON

_SEVERAL: Final = (list, tuple, set, frozenset)

_WITHIN_NOTHING: Final = frozenset((str, int, float, bool, type(None), bytes, datetime))

_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def flatten(
    content: Mapping[str, Any],
    put: Callable[[str, Iterable[Any]], None],
    prefix: str = "",
    depth: int = 1,
) -> bool:
    """Passes the values of each attribute to `put`; returns whether all parts fitted.

    Raises InvalidNotificationError with the name and the value, LimitError beyond OBJECT_DEPTH_MAX.
    Cost: proportional to the content.
    """
    if depth > OBJECT_DEPTH_MAX:
        raise LimitError("OBJECT_DEPTH_MAX", OBJECT_DEPTH_MAX)
    is_whole = True
    for key, member in content.items():
        if type(key) is not str:
            raise InvalidNotificationError(key, member, "a name is a str")
        name = prefix + key
        if isinstance(member, dict | Mapping):
            if is_typed(member):
                put(name, (_typed(name, member),))
            else:
                if len(name) > NAME_BYTES_MAX and member:  # Each name below would copy it.
                    reason = f"a name has 1 to {NAME_BYTES_MAX} bytes"
                    raise InvalidNotificationError(name, member, reason)
                is_whole &= flatten(member, put, f"{name}.", depth + 1)
        elif not isinstance(member, _SEVERAL):
            put(name, (member,))
        else:
            items = [
                _typed(name, each) if isinstance(each, dict | Mapping) and is_typed(each) else each
                for each in member
            ]
            if any(isinstance(each, (dict, Mapping, *_SEVERAL)) for each in items):
                is_whole = False
            else:
                put(name, items)
    return is_whole


def flatten_mapping(content: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Returns the attributes by dotted names, and whether all fitted. Raises as `flatten`."""
    values = values_of(content)
    if _WITHIN_NOTHING.issuperset(map(type, values)) or not any(map(_may_hold_more, values)):
        return content, True
    found: dict[str, list[Any]] = {}
    is_whole = flatten(content, lambda name, values: found.setdefault(name, []).extend(values))
    return found, is_whole


MAPPING: Final = "expected a mapping of attribute names to values"
"""Reason of an error: something else was given."""


def values_of(content: Mapping[str, Any]) -> ValuesView[Any]:
    """Returns the values of a mapping. Raises InvalidNotificationError for anything else."""
    try:
        return content.values()
    except AttributeError:
        raise InvalidNotificationError(None, content, MAPPING) from None


def _may_hold_more(member: Any) -> bool:
    """Whether a value may be an object, or a list of other parts than values."""
    if type(member) in _WITHIN_NOTHING:
        return False
    if isinstance(member, _SEVERAL):
        return not _WITHIN_NOTHING.issuperset(map(type, member))
    return isinstance(member, dict | Mapping)


def as_json(content: Mapping[str, Any]) -> bytes:
    """Encodes a mapping as JSON, in its order. Raises InvalidNotificationError, LimitError."""
    try:
        return msgspec.json.encode(_plain("", content, 0))
    except UnicodeEncodeError:
        reason = "a lone surrogate is not text"
        raise InvalidNotificationError("@body", content, reason) from None


def _plain(name: str, content: Any, depth: int) -> Any:
    if depth > OBJECT_DEPTH_MAX:
        raise LimitError("OBJECT_DEPTH_MAX", OBJECT_DEPTH_MAX)
    if isinstance(content, dict | Mapping):
        if not all(type(key) is str for key in content):
            raise InvalidNotificationError(name, content, "a name is a str")
        return {key: _plain(key, each, depth + 1) for key, each in content.items()}
    if isinstance(content, _SEVERAL):
        return [_plain(name, each, depth + 1) for each in content]
    try:
        return json_value(normal(content))
    except InvalidValueError as error:
        raise InvalidNotificationError(name, content, error.reason) from None


def json_value(value: Value) -> Any:
    """Returns a value in JSON, or the object that represents it."""
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, datetime):
        return {"$time": time_text(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}
    return value


def json_values(values: Value | tuple[Value, ...]) -> Any:
    """Returns the value, or the list of values, of an attribute; each as `json_value`."""
    if isinstance(values, tuple):
        return [json_value(each) for each in values]
    return json_value(values)


def time_text(time: datetime) -> str:
    """Returns a time in UTC, in the form of ISO 8601."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def value_of_json(shown: Any) -> Any:
    """Inverts `json_value`. Raises ValueError."""
    if not isinstance(shown, dict | Mapping):
        return shown
    ((kind, text),) = shown.items()
    if not isinstance(text, str) or kind not in _READERS:
        raise ValueError("a text")
    read, expected = _READERS[kind]
    try:
        return read(text)
    except (KeyError, ValueError, InvalidValueError):
        raise ValueError(expected) from None


def is_typed(member: Mapping[str, Any]) -> bool:
    """Whether an object is a value that JSON does not have."""
    return len(member) == 1 and next(iter(member)) in _READERS


def _typed(name: str, member: Mapping[str, Any]) -> Value:
    try:
        value: Value = value_of_json(member)
    except ValueError as error:
        raise InvalidNotificationError(name, dict(member), f"expected {error}") from None
    return value


def _time(text: str) -> datetime:
    time = iso_time(text)
    time_us_of(time)
    return time


_READERS: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "$time": (_time, "a time as 2026-11-20T09:30:00Z"),
    "$bytes": (bytes.fromhex, "bytes as hexadecimal digits"),
    "$number": (_NUMBERS.__getitem__, "one of " + " ".join(_NUMBERS)),
}
"""The parser of the text, and what it expects, by the only member of an object."""
