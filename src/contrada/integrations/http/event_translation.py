"""`notification_of` and `event_of`: the translation of CloudEvents to notifications and back.

An event is a notification as in `integrations.dialects.cloudevents`: context attributes are
attributes, the data is the body with its content type, and JSON data are attributes, too, below
`data`. So CESQL and subscription filters have the same meaning on the notification as on the event.
An event is delivered as it was published: binary data as the same bytes, JSON data as the same
JSON.

Any other notification becomes an event, too: its id and publisher are `id` and `source`, its type
is NOTIFICATION_TYPE, and its data is the output of `sub --json`.

Source: CloudEvents 1.0.2, JSON Event Format 1.0.2.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

import msgspec

from contrada.errors import ContradaError, EncodingError, InvalidNotificationError
from contrada.integrations.dialects import cloudevents
from contrada.integrations.dialects.cloudevents import cloudevent_json
from contrada.integrations.files.json_objects import attributes_json, shown_text
from contrada.model import Notification
from contrada.model.algebra.notification import ENVELOPE_FIELDS
from contrada.model.codec import parts_in
from contrada.model.domains.values import INT_MAX, INT_MIN

NOTIFICATION_TYPE: Final = "contrada.notification"
"""The type of the event for a notification that is no CloudEvent."""

EVENT_NAMES_KNOWN_MAX: Final = 4_096
"""Names of context attributes found valid. Beyond it: all are forgotten, and checked again."""

SOURCES_KNOWN_MAX: Final = 256
"""Names of publishers whose source is kept. Beyond it: made anew, the least recent first."""

_SOURCE: Final = "/publishers/"
_REQUIRED: Final = frozenset(cloudevent_json.REQUIRED)
_TEXT: Final = frozenset((str,))
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC, whose offset costs twice as much
_encode: Final = msgspec.json.Encoder().encode
_Integer: TypeAlias = Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)]
# A larger integer may equal a float, but no attribute has it.
_decode: Final = msgspec.json.Decoder(dict[str, str | _Integer | float | bool | None]).decode
_known: Final[set[str]] = set()


def notification_of(event: Mapping[str, Any]) -> Notification:
    """Returns the notification of an event in the JSON format. Equal to `cloudevents.notification`,
    but in some microseconds for the common event: attributes are texts, and data is an object of
    plain values. Raises InvalidNotificationError, EncodingError, LimitError.
    """
    plain = _plain(event)
    return cloudevents.notification(event) if plain is None else plain


def _plain(event: Mapping[str, Any]) -> Notification | None:
    """Returns the notification of a common event; None for other and malformed events."""
    attributes = dict(event)
    data = attributes.pop(cloudevent_json.DATA, None)
    if not _known.issuperset(attributes):
        _learn(attributes)
        return None
    if not _are_common(attributes):
        return None
    if type(data) is not dict or not _PLAIN.issuperset(map(type, data.values())):
        return None
    content_type = attributes.get("datacontenttype", cloudevent_json.JSON_TYPE)
    if content_type != cloudevent_json.JSON_TYPE and not cloudevent_json.is_json(content_type):
        return None
    try:
        body = _encode(data)
        for name, value in data.items():
            attributes[f"data.{name}"] = value
        return Notification(attributes, body=body, content_type=content_type)
    except (ContradaError, OverflowError, ValueError):
        return None  # The slow path keeps such data in the body alone.


def _are_common(attributes: Mapping[str, Any]) -> bool:
    """Whether context attributes of known names are valid texts; false if that is not obvious."""
    return (
        _REQUIRED.issubset(attributes)
        and _TEXT.issuperset(map(type, attributes.values()))
        and attributes["specversion"] == cloudevent_json.SPEC_VERSION
        and "" not in attributes.values()
        and ("time" not in attributes or cloudevent_json.is_time(attributes["time"]))
    )


def _learn(names: Collection[str]) -> None:
    """Remembers the valid names of context attributes among these."""
    if len(_known) + len(names) > EVENT_NAMES_KNOWN_MAX:
        _known.clear()
    _known.update(
        name
        for name in names
        if len(name) <= 64 and cloudevent_json.NAME.fullmatch(name) and name != cloudevent_json.DATA
    )


def notification_of_binary(attributes: Mapping[str, str], data: bytes) -> Notification:
    """Returns the notification of an event in binary mode. Raises InvalidNotificationError,
    LimitError.
    """
    if cloudevent_json.DATA in attributes:
        raise InvalidNotificationError(
            cloudevent_json.DATA, attributes[cloudevent_json.DATA], "no attribute has this name"
        )
    plain = cloudevents.notification(attributes)
    if not data:
        return plain
    content_type = attributes.get("datacontenttype", "")
    return cloudevents.with_data(plain, data, content_type or cloudevent_json.BINARY_TYPE)


def checked_event(found: Any) -> Mapping[str, Any]:
    """Returns an event that is a JSON object. Raises EncodingError."""
    if not isinstance(found, dict):
        raise EncodingError("CloudEvent", f"expected an object, found {type(found).__name__}")
    return found


def event_json(of: Notification) -> bytes:
    """Returns the event for a notification in the JSON format, on one line."""
    return _encode(event_of(of))


_ShownEnvelope: Any = msgspec.defstruct("_ShownEnvelope", ENVELOPE_FIELDS, omit_defaults=True)


class _ShownParts(msgspec.Struct, omit_defaults=True):
    attributes: Any
    envelope: Any
    body: str = ""
    content_type: str = ""


class _ShownNotification(msgspec.Struct, tag_field="contrada", tag=1):
    notification: _ShownParts


def notification_json(of: Notification) -> bytes:
    """Returns a notification as one line, which `Notification.from_json` reads: `to_json` without
    the members of the envelope that have their defaults, and attributes in their order.
    """
    if of.packed:
        attributes, envelope, body, content_type = parts_in(of.packed)
        if _PLAIN.issuperset(map(type, attributes.values())):
            parts = _ShownParts(attributes, _ShownEnvelope(*envelope), body.hex(), content_type)
            encoded = _encode(_ShownNotification(parts))
            if b"null" not in encoded:  # As which NaN and infinities are encoded.
                return encoded
    shown_envelope = _ShownEnvelope(*msgspec.structs.astuple(of.envelope))
    attributes_shown = msgspec.Raw(attributes_json(of))
    parts = _ShownParts(attributes_shown, shown_envelope, of.body.hex(), of.content_type)
    return _encode(_ShownNotification(parts))


def event_of(of: Notification) -> dict[str, Any]:
    """Returns the event for a notification, with values for `msgspec.json`."""
    if (event := _own_event_of(of)) is not None:
        return event
    return {**_envelope_of(of), cloudevent_json.DATA: msgspec.Raw(shown_text(of).encode())}


def _own_event_of(of: Notification) -> dict[str, Any] | None:
    """Returns the event that a notification is; None for one that no event can be."""
    try:
        return _plain_event_of(of) or (cloudevents.event_of(of) if "specversion" in of else None)
    except EncodingError:
        return None


def _plain_event_of(of: Notification) -> dict[str, Any] | None:
    """Returns the event that a received notification is, equal to that of `cloudevents.event_of`,
    in a tenth of the time for those of `_plain`. None for others.
    """
    if not of.packed:
        return None
    found, _, body, content_type = parts_in(of.packed)
    event = {name: value for name, value in found.items() if name in _known}
    if content_type != cloudevent_json.JSON_TYPE or not _are_common(event):
        if "specversion" in found:
            _learn(found)
        return None
    try:
        data = _decode(body)
    except ValueError:
        return None
    flat = {f"data.{name}": value for name, value in data.items()}
    if len(event) + len(flat) != len(found) or not flat.items() <= found.items():
        _learn(found)
        return None
    if _encode(data) != body:  # A repeated name, white space, or a number that is not exact.
        return None
    event[cloudevent_json.DATA] = msgspec.Raw(body)
    return event


def binary_event_of(of: Notification) -> tuple[dict[str, str], bytes]:
    """Returns the event in binary mode: context attributes as texts, and the data unchanged."""
    event = _own_event_of(of)
    if event is None:
        return _envelope_of(of), shown_text(of).encode()
    texts = {  # in the canonical texts of their types
        name: value if isinstance(value, str) else str(value).lower()
        for name, value in event.items()
        if name not in _DATA
    }
    if of.body and of.content_type != cloudevent_json.BINARY_TYPE:
        texts["datacontenttype"] = of.content_type
    return texts, of.body


_DATA: Final = frozenset((cloudevent_json.DATA, "data_base64"))


@lru_cache(maxsize=SOURCES_KNOWN_MAX)
def _source_of(publisher: str) -> str:
    return _SOURCE + quote(publisher, safe="")


def _envelope_of(of: Notification) -> dict[str, str]:
    """Returns the context attributes for a notification that is no CloudEvent."""
    envelope = of.envelope
    at = _EPOCH + timedelta(microseconds=envelope.at_us)
    return {
        "specversion": cloudevent_json.SPEC_VERSION,
        "id": envelope.id,
        "source": _source_of(envelope.publisher),
        "type": NOTIFICATION_TYPE,
        "time": at.isoformat() + "Z",
        "datacontenttype": cloudevent_json.JSON_TYPE,
    }
