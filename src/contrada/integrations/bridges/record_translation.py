"""`RecordTranslation`: records of other messaging systems as notifications, and back.

    topic, subject, routing key, stream -> `topic`
    origin (the name of the system)     -> `contrada.origin`
    other facts of a record             -> `KIND.…`, such as `kafka.offset`
    headers                             -> attributes of the same names
    payload, a JSON object              -> attributes; with an unfit member, also the body
    payload, another JSON value         -> `KIND.payload`, and the body
    another payload, content type       -> the body, and its content type

`topic` and names that begin with `KIND.` or `contrada.` are set by the bridge alone: a payload with
such a member stays in the body, such a header is left out. Invariant: exactly the notifications
from a system have its `contrada.origin`, and exactly the records from here have the header
`contrada.id`. This prevents loops over any number of bridges.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from contrada.errors import ContradaError, InvalidNameError, InvalidValueError
from contrada.integrations.files.json_objects import decode_value
from contrada.model import Filter, FilterSet, Notification, Value
from contrada.model.algebra.attributes import Values
from contrada.model.algebra.nested_objects import JSON_TYPE, flatten, json_value, json_values
from contrada.model.algebra.notification import BEST_EFFORT, Envelope
from contrada.model.domains.values import check_user_name
from contrada.model.syntax import parse_filter

TOPIC: Final = "topic"
OWN_PREFIX: Final = "contrada."
ORIGIN: Final = "contrada.origin"
"""The attribute with the name of the system that a notification is from."""

IDENTITY: Final = "contrada.id"
"""The header of all records from here: the id of the notification."""

PUBLISHER: Final = "contrada.publisher"
REASON: Final = "contrada.reason"
"""The header of a dead letter: why it is no notification."""

CERTIFIED: Final = "certified"
"""The delivery of records that are acknowledged: when they are on stable storage."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PLACE: Final = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRecord:
    """A record of another system, in either direction.

    `facts` are named without their kind; `is_certified` tells whether the system waits for an
    acknowledgement, for which `token` is what its peer needs. A received record is worthless after
    `expires_s` seconds, an outgoing one at the time `expires_at_us`, if any.
    """

    topic: str
    payload: bytes = b""
    content_type: str = ""
    headers: tuple[tuple[str, Value], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    is_certified: bool = True
    expires_s: int | None = None
    expires_at_us: int | None = None
    token: Any = None

    @property
    def is_ours(self) -> bool:
        """Whether it is a notification, or a dead letter, from here."""
        return any(name in (IDENTITY, REASON) for name, _ in self.headers)


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """A text in which `{name}` is replaced by the value of the attribute."""

    text: str

    @property
    def fixed(self) -> str:
        """The text without its places."""
        return _PLACE.sub("", self.text)

    def __post_init__(self) -> None:
        if not self.text or set(self.fixed) & set("{}\0"):
            raise InvalidValueError(self.text, "expected a text such as alerts.{severity}.{name}")

    def of(self, notification: Notification) -> str:
        """Returns the text for a notification. Raises InvalidValueError without a value."""
        return _PLACE.sub(lambda found: _part(notification, found[1]), self.text)


def _part(notification: Notification, name: str) -> str:
    value = notification.attributes.get(name)
    if value is None or isinstance(value, tuple):
        found = "none" if value is None else f"{len(value)}"
        raise InvalidValueError(name, f"the template needs one value of it, found {found}")
    return text_of(value)


@dataclass(frozen=True, slots=True)
class RecordTranslation:
    """The translation for one kind of system, named `origin`.

    With `has_fields`, outgoing records have no payload of attributes: each is a header. `key` is
    that of outgoing records, for systems that have one.
    """

    kind: str
    origin: str
    topic: TextTemplate
    has_fields: bool = False
    key: TextTemplate | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.origin):
            raise InvalidValueError(self.origin, "expected a name of letters, digits, ., - and _")

    def outgoing(self, wanted: Filter | FilterSet) -> Filter | FilterSet:
        """Returns the part of a filter that is not from the system."""
        return wanted & parse_filter(f"{ORIGIN} none of ('{self.origin}')")

    def notification_of(self, record: PeerRecord) -> Notification:
        """Returns the notification of a record, without id and time. Raises
        InvalidNotificationError, InvalidValueError, LimitError.
        """
        attributes, is_whole = attributes_of(record.payload, record.content_type, self.kind)
        body, content_type = record.payload, record.content_type
        if is_whole:
            body, content_type = b"", ""
        elif attributes and f"{self.kind}.payload" not in attributes and not content_type:
            content_type = JSON_TYPE
        for name, value in record.headers:
            if is_settable(name, self.kind):
                attributes.setdefault(name, []).append(value)
        own: dict[str, Any] = {TOPIC: record.topic, ORIGIN: self.origin}
        own |= {f"{self.kind}.{name}": value for name, value in record.facts.items()}
        envelope = Envelope(
            ttl_us=None if record.expires_s is None else record.expires_s * 1_000_000,
            delivery=CERTIFIED if record.is_certified else BEST_EFFORT,
        )
        return Notification(
            own | attributes, body=body, content_type=content_type, envelope=envelope
        )

    def record_of(self, notification: Notification) -> PeerRecord:
        """Returns the record of a notification. The payload is the body, with the attributes as
        headers; without a body it is a JSON object of the attributes. `topic` is left out if it is
        the whole topic. Raises InvalidValueError without a topic.
        """
        attributes = {name: notification[name] for name in notification}
        if self.topic.text == f"{{{TOPIC}}}":
            attributes.pop(TOPIC, None)
        prefix = f"{self.kind}."
        facts = {
            name.removeprefix(prefix): attributes.pop(name)
            for name in list(attributes)
            if name.startswith(prefix)
        }
        if self.key is not None:
            facts["key"] = self.key.of(notification)
        envelope = notification.envelope
        headers = [(IDENTITY, envelope.id), (PUBLISHER, envelope.publisher)]
        payload, content_type = notification.body, notification.content_type
        if self.has_fields:
            headers += [(name, _field_of(held)) for name, held in attributes.items()]
        elif payload or content_type:
            headers += [
                (name, text_of(value))
                for name, held in attributes.items()
                for value in (held if isinstance(held, tuple) else (held,))
            ]
        else:
            members = {name: json_values(value) for name, value in attributes.items()}
            payload, content_type = msgspec.json.encode(members), JSON_TYPE
        return PeerRecord(
            topic=self.topic.of(notification),
            payload=payload,
            content_type=content_type,
            headers=tuple(headers),
            facts=facts,
            expires_at_us=envelope.expires_us,
        )


def attributes_of(
    payload: bytes, content_type: str, kind: str
) -> tuple[dict[str, list[Any]], bool]:
    """Returns the attributes of a payload, and whether they hold all of it."""
    if content_type.partition(";")[0].strip().lower() not in ("", JSON_TYPE):
        return {}, False
    found: dict[str, list[Any]] = {}
    try:
        content = decode_value(payload.decode())
        is_object = isinstance(content, dict)
        content = content if is_object else {f"{kind}.payload": content}
        is_whole = flatten(content, lambda name, each: found.setdefault(name, []).extend(each))
        Notification(found)  # A value that no attribute can have raises here.
    except (ContradaError, UnicodeDecodeError):
        return {}, False
    if not is_object:
        return (found if is_whole else {}), False
    kept = {name: each for name, each in found.items() if is_settable(name, kind)}
    return kept, is_whole and len(kept) == len(found)


def is_settable(name: str, kind: str) -> bool:
    """Whether a sender may set the attribute of this name."""
    if name == TOPIC or name.startswith((OWN_PREFIX, f"{kind}.")):
        return False
    try:
        check_user_name(name)
    except InvalidNameError:
        return False
    return True


def _field_of(held: Values) -> str:
    if isinstance(held, tuple):
        return msgspec.json.encode(json_values(held)).decode()
    return text_of(held)


def text_of(value: Value) -> str:
    """Returns a text itself, and any other value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(json_value(value)).decode()
