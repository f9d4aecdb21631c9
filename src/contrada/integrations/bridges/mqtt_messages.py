"""`notification_of` and `message_of`: MQTT messages as notifications and notifications as messages.

    topic                         -> `topic`
    QoS, retain                   -> `mqtt.qos`, `mqtt.retain`
    response topic, correlation   -> `mqtt.response_topic`, `mqtt.correlation` (bytes)
    user properties               -> text attributes of the same names
    payload, a JSON object        -> attributes; with an unfit member, also the body
    payload, another JSON value   -> `mqtt.payload`, and the body
    another payload, content type -> the body, and its content type
    message expiry                -> time to live

`topic` and names that begin with `mqtt.` describe the origin of a message, so neither payloads nor
user properties can set them: a payload with such a member stays in the body, such a property is
left out. Invariant: exactly the notifications from MQTT have `mqtt.qos`, and exactly the messages
from here have `contrada.id`. This prevents loops over any number of bridges.
"""

import math
import re
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from contrada.errors import ContradaError, InvalidNameError, InvalidValueError
from contrada.integrations.files.json_objects import decode_value
from contrada.model import Notification, Value
from contrada.model.algebra.attributes import Values
from contrada.model.algebra.nested_objects import JSON_TYPE, flatten, json_value, json_values
from contrada.model.algebra.notification import BEST_EFFORT, Envelope
from contrada.model.domains.values import check_user_name

TOPIC: Final = "topic"
QOS: Final = "mqtt.qos"
RETAIN: Final = "mqtt.retain"
PAYLOAD: Final = "mqtt.payload"
RESPONSE_TOPIC: Final = "mqtt.response_topic"
CORRELATION: Final = "mqtt.correlation"
OWN_PREFIX: Final = "mqtt."
IDENTITY: Final = "contrada.id"
"""The user property of all messages from here: the identity of the notification."""

PUBLISHER: Final = "contrada.publisher"

MQTT_TEXT_BYTES_MAX: Final = 65_535
"""Bytes of a topic or user property in MQTT. Beyond it: the notification is refused, counted."""

_PACKET_BYTES: Final = 128
"""Upper bound of a message without its texts and payload."""

_ENDS_OF_PLANES: Final = "".join(
    chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)
)
_NO_TEXT: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_ENDS_OF_PLANES}]")
"""Characters for which an MQTT broker may end the connection."""

CERTIFIED: Final = "certified"
"""The delivery of messages with QoS 1: they are acknowledged when on stable storage."""

_PLACE: Final = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class MqttMessage:
    """An MQTT message, in either direction; `expires_s` is None if it does not expire."""

    topic: str
    payload: bytes = b""
    content_type: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    qos: int = 1
    retain: bool = False
    expires_s: int | None = None
    response_topic: str = ""
    correlation: bytes = b""

    @property
    def size(self) -> int:
        """Upper bound of its encoded bytes."""
        named = (self.topic, self.content_type, self.response_topic)
        texts = (*named, *chain.from_iterable(self.properties))
        data = len(self.payload) + len(self.correlation)
        return _PACKET_BYTES + data + sum(len(each.encode()) + 5 for each in texts)

    @property
    def is_ours(self) -> bool:
        """Whether it is a notification from here."""
        return any(name == IDENTITY for name, _ in self.properties)


def notification_of(message: MqttMessage) -> Notification:
    """Returns the notification of a message, without id and time; certified if QoS is 1. Raises
    InvalidNotificationError, for a content type of more than 255 bytes.
    """
    attributes, is_whole = _attributes_of(message)
    body, content_type = message.payload, message.content_type
    if is_whole:
        body, content_type = b"", ""
    elif attributes and PAYLOAD not in attributes and not content_type:
        content_type = JSON_TYPE
    for name, value in message.properties:
        if _is_settable(name):
            attributes.setdefault(name, []).append(value)
    own: dict[str, Any] = {TOPIC: message.topic, QOS: message.qos, RETAIN: message.retain}
    if message.response_topic:
        own[RESPONSE_TOPIC] = message.response_topic
    if message.correlation:
        own[CORRELATION] = message.correlation
    ttl_us = None if message.expires_s is None else message.expires_s * 1_000_000
    delivery = CERTIFIED if message.qos else BEST_EFFORT
    envelope = Envelope(ttl_us=ttl_us, delivery=delivery)
    return Notification(own | attributes, body=body, content_type=content_type, envelope=envelope)


def _attributes_of(message: MqttMessage) -> tuple[dict[str, list[Any]], bool]:
    """Returns the attributes of a payload, and whether they hold all of it."""
    is_json = message.content_type.partition(";")[0].strip().lower() in ("", JSON_TYPE)
    if not is_json:
        return {}, False
    found: dict[str, list[Any]] = {}
    try:
        content = decode_value(message.payload.decode())
        is_object = isinstance(content, dict)
        content = content if is_object else {PAYLOAD: content}
        is_whole = flatten(content, lambda name, each: found.setdefault(name, []).extend(each))
        Notification(found)  # A value that no attribute can have raises here.
    except (ContradaError, UnicodeDecodeError):
        return {}, False
    if not is_object:
        return (found if is_whole else {}), False
    kept = {name: each for name, each in found.items() if _is_settable(name)}
    return kept, is_whole and len(kept) == len(found)


def _is_settable(name: str) -> bool:
    if name == TOPIC or name.startswith(OWN_PREFIX):
        return False
    try:
        check_user_name(name)
    except InvalidNameError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """The topic of outgoing messages; `{name}` is replaced by the value of the attribute."""

    text: str

    def __post_init__(self) -> None:
        rest = _PLACE.sub("", self.text)
        if not self.text or set(rest) & set("{}+#\0") or self.text.startswith("$"):
            reason = "expected a topic, such as alerts/{severity}/{name}, without + and #"
            raise InvalidValueError(self.text, reason)

    @property
    def names(self) -> list[str]:
        """The attributes in the template."""
        return _PLACE.findall(self.text)

    def of(self, notification: Notification) -> str:
        """Returns the topic of a notification. Raises InvalidValueError without a valid one."""
        topic = _PLACE.sub(lambda found: _level(notification, found[1]), self.text)
        if set(topic) & set("+#") or topic.startswith("$") or not topic:
            raise InvalidValueError(topic, "no topic: expected no + and #, and no $ in front")
        return _checked(topic)


def _level(notification: Notification, name: str) -> str:
    value = notification.attributes.get(name)
    if value is None or isinstance(value, tuple):
        found = "none" if value is None else f"{len(value)}"
        raise InvalidValueError(name, f"the topic needs one value of it, found {found}")
    return _text(value)


def message_of(
    notification: Notification, template: TopicTemplate, *, retain: bool, now_us: int
) -> MqttMessage:
    """Returns the message of a notification. The payload is the body, with the attributes as user
    properties; without a body, it is a JSON object of the attributes. `topic` is left out if it is
    the whole topic. Raises InvalidValueError for values that MQTT cannot hold.
    """
    attributes = {name: notification[name] for name in notification}
    if template.text == f"{{{TOPIC}}}":
        attributes.pop(TOPIC, None)
    response_topic = _checked(_text(_single(attributes.pop(RESPONSE_TOPIC, ""))))
    if set(response_topic) & set("+#"):
        raise InvalidValueError(response_topic, "no response topic: expected no + and #")
    correlation = _single(attributes.pop(CORRELATION, b""))
    envelope = notification.envelope
    properties = [(IDENTITY, _checked(envelope.id)), (PUBLISHER, _checked(envelope.publisher))]
    if notification.body or notification.content_type:
        payload, content_type = notification.body, _checked(notification.content_type)
        properties += [
            (_checked(name), _checked(_text(value)))
            for name, held in attributes.items()
            for value in (held if isinstance(held, tuple) else (held,))
        ]
    else:
        members = {name: json_values(value) for name, value in attributes.items()}
        payload, content_type = msgspec.json.encode(members), JSON_TYPE
    expires_us = envelope.expires_us
    return MqttMessage(
        template.of(notification),
        payload,
        content_type,
        tuple(properties),
        retain=retain,
        expires_s=None if expires_us is None else max(math.ceil((expires_us - now_us) / 1e6), 0),
        response_topic=response_topic,
        correlation=correlation if isinstance(correlation, bytes) else _text(correlation).encode(),
    )


def _single(value: Values) -> Value:
    """Returns a value. Raises InvalidValueError for several."""
    if isinstance(value, tuple):
        raise InvalidValueError(value[0], f"MQTT takes one value of it, found {len(value)}")
    return value


def _checked(text: str) -> str:
    """Returns a text that MQTT allows. Raises InvalidValueError."""
    if _NO_TEXT.search(text):
        raise InvalidValueError(text, "MQTT has no control characters in topics and properties")
    if len(text.encode()) > MQTT_TEXT_BYTES_MAX:
        raise InvalidValueError(text, f"MQTT has at most {MQTT_TEXT_BYTES_MAX} bytes of a text")
    return text


def check_topics(text: str) -> None:
    """Checks a topic filter such as sensors/+/temperature. Raises InvalidValueError."""
    *levels, last = text.split("/")
    is_shared = levels[:1] == ["$share"]
    if (
        any("#" in each or ("+" in each and each != "+") for each in levels)
        or (last not in ("+", "#") and set(last) & set("+#"))
        or not text
        or (is_shared and (len(levels) < 2 or levels[1] in ("", "+")))
    ):
        reason = "expected topics of MQTT: + is one level, # all levels at the end"
        raise InvalidValueError(text, reason)
    _checked(text)


def _text(value: Value) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(json_value(value)).decode()
