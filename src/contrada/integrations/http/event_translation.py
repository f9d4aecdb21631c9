"""CloudEvents as notifications and back: the only module that decides the translation.

An event is a notification as `integrations.dialects.cloudevents` says: context attributes are
attributes, the data is the body with its content type, and JSON data are attributes too, below
`data`. So filters of CESQL and of subscriptions mean on the notification what they mean on the
event, and the event that goes out is the one that came in: its data as the bytes that came, where
they came as bytes, and else the same JSON.

A notification that is no CloudEvent is translated to one all the same: its id and publisher are
`id` and `source`, its type is NOTIFICATION_TYPE, and its data is what `sub --json` prints.

Source: CloudEvents 1.0.2, JSON Event Format 1.0.2.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import msgspec

from contrada.errors import ContradaError, EncodingError, InvalidNotificationError
from contrada.integrations.dialects import cloudevents
from contrada.integrations.dialects.cloudevents.cloudevent_json import (
    BINARY_TYPE,
    DATA,
    JSON_TYPE,
    NAME,
    REQUIRED,
    SPEC_VERSION,
    is_json,
    is_time,
)
from contrada.integrations.dialects.json_text import decoded
from contrada.integrations.files.json_output import shown_text
from contrada.model import Notification

NOTIFICATION_TYPE: Final = "contrada.notification"
"""The type of the event that a plain notification goes out as."""

EVENT_NAMES_KNOWN_MAX: Final = 4_096
"""Names of events' attributes that are known to be good. Beyond it: all are forgotten, and checked
anew."""

_SOURCE: Final = "/publishers/"
_REQUIRED: Final = frozenset(REQUIRED)
_TEXT: Final = frozenset((str,))
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_encode: Final = msgspec.json.Encoder().encode
_known: Final[set[str]] = set()


def notification_of(event: Mapping[str, Any]) -> Notification:
    """The notification of an event in its JSON format, as `integrations.dialects.cloudevents` gives
    it.

    Cost: some microseconds where its attributes are texts and its data an object of plain values,
    as most are. Raises InvalidNotificationError, EncodingError, LimitError.
    """
    plain = _plain(event)
    return cloudevents.notification(event) if plain is None else plain


def _plain(event: Mapping[str, Any]) -> Notification | None:
    """The notification of a usual event; None for other events, and for malformed ones."""
    attributes = dict(event)
    data = attributes.pop(DATA, None)
    if (
        not _known.issuperset(attributes)
        or not _REQUIRED.issubset(attributes)
        or not _TEXT.issuperset(map(type, attributes.values()))
        or attributes["specversion"] != SPEC_VERSION
        or "" in attributes.values()
    ):
        _learn(attributes)
        return None
    if type(data) is not dict or not _PLAIN.issuperset(map(type, data.values())):
        return None
    content_type = attributes.get("datacontenttype", JSON_TYPE)
    if content_type != JSON_TYPE and not is_json(content_type):
        return None
    if "time" in attributes and not is_time(attributes["time"]):
        return None
    try:
        body = _encode(data)
        for name, value in data.items():
            attributes[f"data.{name}"] = value
        return Notification(attributes, body=body, content_type=content_type)
    except (ContradaError, OverflowError, ValueError):
        return None  # What no attribute can hold is in the body alone.


def _learn(names: Mapping[str, Any]) -> None:
    """Remembers which of these names an attribute of an event may have."""
    if len(_known) + len(names) > EVENT_NAMES_KNOWN_MAX:
        _known.clear()
    _known.update(name for name in names if len(name) <= 64 and NAME.fullmatch(name))


def notification_of_binary(attributes: Mapping[str, str], data: bytes) -> Notification:
    """The notification of an event whose data came as bytes: they are the body.

    Raises InvalidNotificationError, LimitError.
    """
    if DATA in attributes:
        raise InvalidNotificationError(DATA, attributes[DATA], "no attribute has this name")
    told = cloudevents.notification(attributes)
    if not data:
        return told
    content_type = attributes.get("datacontenttype", "")
    return cloudevents.with_data(told, data, content_type or BINARY_TYPE)


def events_in(text: bytes) -> Sequence[Any]:
    """The events of a batch in its JSON format, not looked into.

    Raises EncodingError, LimitError.
    """
    found = decoded(text)
    if not isinstance(found, list):
        raise EncodingError("CloudEvents", f"expected an array, found {type(found).__name__}")
    return found


def event_in(text: bytes) -> Mapping[str, Any]:
    """The event of a text in its JSON format. Raises EncodingError, LimitError."""
    return checked_event(decoded(text))


def checked_event(found: Any) -> Mapping[str, Any]:
    """What was found, where it may be an event. Raises EncodingError."""
    if not isinstance(found, dict):
        raise EncodingError("CloudEvent", f"expected an object, found {type(found).__name__}")
    return found


def event_json(of: Notification) -> bytes:
    """The event that a notification is, or goes out as, in its JSON format on one line."""
    return _encode(event_of(of))


def event_of(of: Notification) -> dict[str, Any]:
    """The event that a notification is, or goes out as; what it holds is for `msgspec.json`."""
    if "specversion" in of:
        try:
            return cloudevents.event_of(of)
        except EncodingError:
            pass  # It has attributes that no event has.
    return {**_envelope_of(of), DATA: msgspec.Raw(shown_text(of).encode())}


def binary_event_of(of: Notification) -> tuple[dict[str, str], bytes]:
    """The event in binary mode: its context attributes as texts, and its data unchanged."""
    if "specversion" in of:
        try:
            event = cloudevents.event_of(of)
        except EncodingError:
            pass
        else:
            texts = {name: _text(value) for name, value in event.items() if name not in _DATA}
            if of.body and of.content_type != BINARY_TYPE:
                texts["datacontenttype"] = of.content_type
            return texts, of.body
    return _envelope_of(of), shown_text(of).encode()


_DATA: Final = frozenset((DATA, "data_base64"))


def _text(value: str | int | bool) -> str:
    """A value in the canonical text of its type."""
    return value if isinstance(value, str) else str(value).lower()


def _envelope_of(of: Notification) -> dict[str, str]:
    """The context attributes of a notification that is no event."""
    envelope = of.envelope
    at = _EPOCH + timedelta(microseconds=envelope.at_us)
    return {
        "specversion": SPEC_VERSION,
        "id": envelope.id,
        "source": _SOURCE + quote(envelope.publisher, safe=""),
        "type": NOTIFICATION_TYPE,
        "time": at.isoformat().replace("+00:00", "Z"),
        "datacontenttype": JSON_TYPE,
    }
