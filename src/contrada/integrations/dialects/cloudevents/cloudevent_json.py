"""CloudEvents 1.0 in their JSON format to notifications, and back.

A context attribute becomes an attribute of the same name, the data becomes the body (see
docs/dialects.md). A null attribute is not set. JSON data also becomes attributes named `data` and,
below objects, `data.…` with dots. Content that no attribute can hold (arrays of objects, arrays in
arrays, names and integers that are too long) is only in the body.

In the reverse direction JSON data becomes `data`, so does text of a text type, and all else becomes
`data_base64`. White space and the spelling of numbers in JSON data are lost, and so are null
attributes.

Source: CloudEvents 1.0.2 §3 (context attributes), JSON Event Format 1.0.2 §2 and §3.
"""

import base64
import json
import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from contrada import errors
from contrada.errors import ContradaError, EncodingError, InvalidNotificationError, LimitError
from contrada.integrations.dialects.cesql.cesql_values import INTEGER_FIRST, INTEGER_LAST
from contrada.integrations.dialects.json_text import check_depth, decode_json
from contrada.model.algebra.attributes import ATTRIBUTES_MAX, Values
from contrada.model.algebra.notification import Notification
from contrada.model.domains.values import NAME_BYTES_MAX, Value, check_name, is_system_name, key_of

SPEC_VERSION: Final = "1.0"
REQUIRED: Final = ("id", "source", "specversion", "type")
TEXTS: Final = (*REQUIRED, "datacontenttype", "dataschema", "subject", "time")
"""The attributes of the specification: text, and not empty."""

NAME: Final = re.compile(r"[a-z0-9]+", re.ASCII)
"""Valid names of attributes."""

DATA: Final = "data"
"""The name of JSON data; no attribute has this name."""

JSON_TYPE: Final = "application/json"
BINARY_TYPE: Final = "application/octet-stream"

_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)"
    r"(?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_BELOW: Final = f"{DATA}."
_DATA: Final = (DATA, "data_base64")
_JSON: Final = re.compile(r"[^;/\s]+/(?:[^;/\s]+\+)?json", re.IGNORECASE)
_TEXT: Final = re.compile(r"text/[^;]+|[^;/\s]+/(?:[^;/\s]+\+)?xml", re.IGNORECASE)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_CHARSET: Final = re.compile(r';\s*charset\s*=\s*"?([^";\s]+)', re.IGNORECASE)
_CHARSETS: Final = frozenset(
    ("utf-8", "us-ascii", "iso-8859-1", "windows-1252", "utf-16", "utf-16le", "utf-16be")
)
"""The accepted charsets of text data."""


def notification(event: str | bytes | Mapping[str, Any]) -> Notification:
    """Returns the notification of an event, given as JSON text or as a decoded object.

    Cost: linear. Raises EncodingError, InvalidNotificationError with the attribute, LimitError.
    """
    content = event if isinstance(event, Mapping) else decode_json(event)
    if not isinstance(content, Mapping):
        raise EncodingError("CloudEvent", f"expected an object, found {type(content).__name__}")
    given = {n: v for n, v in content.items() if n not in _DATA and v is not None}
    attributes = {name: _check(name, value) for name, value in given.items()}
    for name in REQUIRED:
        if name not in attributes:
            raise InvalidNotificationError(name, None, "a CloudEvent needs this attribute")
    declared = attributes.get("datacontenttype")
    body, content_type, data = _data(content, declared if isinstance(declared, str) else None)
    return Notification({**attributes, **data}, body=body, content_type=content_type)


def with_data(event: Notification, data: bytes, content_type: str) -> Notification:
    """Adds data to an event without data. Raises InvalidNotificationError and LimitError."""
    found = _json_of(data) if is_json(content_type) else []
    attributes = {**event.attributes, **_flatten(found)}
    return Notification(attributes, body=data, content_type=content_type)


def event_of(notification: Notification) -> dict[str, Any]:
    """Returns the event of a notification, in its JSON format.

    Raises EncodingError for a missing attribute, or one that is invalid in a CloudEvent.
    """
    event: dict[str, Any] = {}
    named: dict[str, Values] = {}
    for name, value in notification.attributes.items():
        if name == DATA or name.startswith(_BELOW):
            named[name] = value
        elif not is_system_name(name):
            try:
                event[name] = _check(name, value)
            except ContradaError as error:
                raise _unwritable(str(error)) from None
    for name in REQUIRED:
        if name not in event:
            raise _unwritable(f"the notification has no attribute {name!r}")
    member, data = _member(notification, event.get("datacontenttype"))
    if named and not _are_data(named, data):
        raise _unwritable("its attributes below 'data' are not those of its body")
    return event | member


def _unwritable(reason: str) -> EncodingError:
    return EncodingError("CloudEvent", reason, writing=True)


def _check(name: str, value: Values) -> Value:
    """Returns the value if the attribute of a CloudEvent can have it."""
    if not NAME.fullmatch(name):
        reason = "an attribute's name is lower-case letters and digits"
        raise InvalidNotificationError(name, value, reason)
    if name in TEXTS:
        if not isinstance(value, str) or not value:
            raise InvalidNotificationError(name, value, "this attribute is text, and not empty")
        if name == "specversion" and value != SPEC_VERSION:
            raise InvalidNotificationError(name, value, f"expected {SPEC_VERSION!r}")
        if name == "time" and not is_time(value):
            raise InvalidNotificationError(name, value, "expected a time as in RFC 3339")
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int) and INTEGER_FIRST <= value <= INTEGER_LAST:
        return value
    reason = "an attribute is text, a bool or an integer of 32 bits"
    raise InvalidNotificationError(name, value, reason)


def is_time(text: str) -> bool:
    """Whether a text is a time of RFC 3339 with an existing day; leap seconds are valid."""
    if (match := _TIME.fullmatch(text)) is None:
        return False
    year, month, day = map(int, match.groups())  # the year 0 has a leap day, as 2000
    if not (1 <= month <= 12 and day >= 1):
        return False
    return day <= 28 or day <= monthrange(year or 2000, month)[1]


def is_json(content_type: str) -> bool:
    """Whether data of this type is JSON."""
    return _JSON.fullmatch(content_type.partition(";")[0].strip()) is not None


def _data(
    content: Mapping[str, Any], declared: str | None
) -> tuple[bytes, str, dict[str, list[Value]]]:
    """Returns the body, its type, and the attributes of the data."""
    if content.get("data_base64") is not None:
        if "data" in content:
            raise InvalidNotificationError("data", content["data"], "beside data_base64")
        try:
            body = base64.b64decode(content["data_base64"].encode(), validate=True)
        except (AttributeError, ValueError):
            given = content["data_base64"]
            raise InvalidNotificationError("data_base64", given, "not Base64") from None
        data = _json_of(body) if declared is not None and is_json(declared) else []
        return body, declared or BINARY_TYPE, _flatten(data)
    if "data" not in content:
        return b"", "", {}
    data = content["data"]
    if declared is None or is_json(declared):
        try:
            dumped = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return dumped.encode(), declared or JSON_TYPE, _flatten(data)
        except UnicodeEncodeError:
            raise InvalidNotificationError("data", data, "a lone surrogate is not text") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidNotificationError("data", data, f"no JSON: {error}") from None
    if not isinstance(data, str):
        raise InvalidNotificationError("data", data, f"data of type {declared} are text")
    try:
        return data.encode(_charset(declared)), declared, {}
    except UnicodeEncodeError as error:
        reason = f"no text of type {declared}: {error.reason}"
        raise InvalidNotificationError("data", data, reason) from None


def _member(notification: Notification, declared: str | None) -> tuple[dict[str, Any], object]:
    """Returns the data as a member of the event, if any, and the data that has attributes."""
    body, content_type = notification.body, notification.content_type
    if not content_type:
        if body:
            raise _unwritable("the body has no content type")
        return {}, []
    try:
        if is_json(content_type):
            data = _json_in(body)
            return {DATA: data}, data
        if declared is not None and _TEXT.match(content_type):
            return {DATA: body.decode(_charset(content_type))}, []
    except (ContradaError, UnicodeDecodeError):
        pass  # content of another type than declared is binary
    return {"data_base64": base64.b64encode(body).decode()}, []


def _are_data(named: Mapping[str, Values], data: object) -> bool:
    """Whether attributes below `data` are those of the data: otherwise they would be lost."""
    try:
        flat = _flatten(data)
    except LimitError:  # No event has such data.
        return False
    return all(
        set(value if isinstance(value, tuple) else (value,)) == set(flat.get(name, ()))
        for name, value in named.items()
    )


def _json_of(body: bytes) -> object:
    """Returns the JSON of binary data of a JSON type; an empty list for invalid JSON."""
    try:
        return _json_in(body)
    except EncodingError:
        return []


def _json_in(body: bytes) -> object:
    """Returns decoded JSON. Raises as `decode_json`, also for text that cannot be encoded."""
    data = decode_json(body)
    if _SURROGATE.search(body):  # It may be half of a pair, which cannot be encoded.
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise EncodingError("JSON", "half of a pair of surrogates is no character") from None
    return data


def _charset(content_type: str) -> str:
    """Returns the charset of a text type. Raises InvalidNotificationError for unknown ones."""
    given = _CHARSET.search(content_type)
    charset = given[1].lower() if given else "utf-8"
    if charset not in _CHARSETS:
        raise InvalidNotificationError("datacontenttype", content_type, "an unknown charset")
    return charset


def _flatten(data: object) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for name, values in _walk("data", data, 1):
        if len(found) > ATTRIBUTES_MAX:  # It is refused, before more is made of it.
            raise LimitError("ATTRIBUTES_MAX", ATTRIBUTES_MAX)
        if values := [value for value in values if _fits(name, value)]:
            found.setdefault(name, []).extend(values)
    return found


def _walk(name: str, data: object, depth: int) -> Iterator[tuple[str, Iterable[Value]]]:
    check_depth(depth)
    if isinstance(data, dict):
        for step, inner in data.items():
            # Cut at the limit: otherwise all names below would copy the long prefix.
            yield from _walk(f"{name}.{step}"[: NAME_BYTES_MAX + 1], inner, depth + 1)
    elif not isinstance(data, list):
        yield name, (data,)  # type: ignore[misc]
    elif not any(isinstance(each, dict | list) for each in data):
        yield name, data


def _fits(name: str, value: Value) -> bool:
    try:
        check_name(name)
        key_of(value)
    except (errors.InvalidNameError, errors.InvalidValueError):
        return False
    return True
