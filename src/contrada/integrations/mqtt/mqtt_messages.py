"""What a message of MQTT is as a notification, and a notification as a message.

    topic                         -> `topic`
    QoS, retain                   -> `mqtt.qos`, `mqtt.retain`
    user properties               -> attributes of their names, texts
    payload, a JSON object        -> attributes, as everywhere; what fits none: the body, whole
    another payload, content type -> the body, and its content type
    message expiry                -> time to live

`topic` and names that begin with `mqtt.` say where a message came from, so no payload and no
user property gives them: a payload that would stays in the body, such a property is left out.
So only what came from MQTT has `mqtt.qos`, and only what came from here `contrada.id`: by these
two nothing goes in a circle, however many bridges there are.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from contrada.errors import ContradaError, InvalidNameError, InvalidValueError
from contrada.integrations.files.json_objects import decoded
from contrada.model import Notification, Value
from contrada.model.algebra.nested_objects import JSON_TYPE, flatten, json_value, json_values
from contrada.model.algebra.notification import BEST_EFFORT, Envelope
from contrada.model.domains.values import check_user_name

TOPIC: Final = "topic"
QOS: Final = "mqtt.qos"
RETAIN: Final = "mqtt.retain"
OWN_PREFIX: Final = "mqtt."
IDENTITY: Final = "contrada.id"
"""The user property of all that went out from here: the identity of the notification."""

PUBLISHER: Final = "contrada.publisher"

MQTT_TEXT_BYTES_MAX: Final = 65_535
"""Bytes of a topic, and of a user property, as MQTT has them. Beyond it: a notification is refused,
counted."""

_PACKET_BYTES: Final = 128
"""More than what a message takes beside its texts and payload."""

_NO_TEXT: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(
        f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000)
    )
    + "]"
)
"""Characters for which an MQTT broker may end the connection."""

CERTIFIED: Final = "certified"
"""How what has QoS 1 is published: it is acknowledged when it is on stable storage."""

_PLACE: Final = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class MqttMessage:
    """An MQTT message, in either direction.

    `expires_s` is None for a message that does not expire.
    """

    topic: str
    payload: bytes = b""
    content_type: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    qos: int = 1
    retain: bool = False
    expires_s: int | None = None

    @property
    def size(self) -> int:
        """No fewer than the bytes that it takes on its way."""
        texts = (self.topic, self.content_type, *chain.from_iterable(self.properties))
        return _PACKET_BYTES + len(self.payload) + sum(len(each.encode()) + 5 for each in texts)

    @property
    def is_ours(self) -> bool:
        """Whether it is a notification that went out."""
        return any(name == IDENTITY for name, _ in self.properties)


def notification_of(message: MqttMessage) -> Notification:
    """The notification that a message is, unstamped; certified where the message has QoS 1.

    Cost: proportional to the message. Raises InvalidNotificationError, for a content type of more
    than 255 bytes.
    """
    attributes, is_whole = _attributes_of(message)
    body, content_type = message.payload, message.content_type
    if is_whole:
        body, content_type = b"", ""
    elif attributes and not content_type:
        content_type = JSON_TYPE
    for name, value in message.properties:
        if _may_say(name):
            attributes.setdefault(name, []).append(value)
    said = {TOPIC: message.topic, QOS: message.qos, RETAIN: message.retain}
    ttl_us = None if message.expires_s is None else message.expires_s * 1_000_000
    delivery = CERTIFIED if message.qos else BEST_EFFORT
    envelope = Envelope(ttl_us=ttl_us, delivery=delivery)
    return Notification(said | attributes, body=body, content_type=content_type, envelope=envelope)


def _attributes_of(message: MqttMessage) -> tuple[dict[str, list[Any]], bool]:
    """The attributes of a payload, and whether they hold all of it."""
    is_json = message.content_type.partition(";")[0].strip().lower() in ("", JSON_TYPE)
    if not is_json or not message.payload.lstrip().startswith(b"{"):
        return {}, False
    found: dict[str, list[Any]] = {}
    try:
        content = decoded(message.payload.decode())
        is_whole = flatten(content, lambda name, each: found.setdefault(name, []).extend(each))
        Notification(found)  # Here, so that what no attribute can have is no attribute.
    except (ContradaError, UnicodeDecodeError):
        return {}, False
    kept = {name: each for name, each in found.items() if _may_say(name)}
    return kept, is_whole and len(kept) == len(found)


def _may_say(name: str) -> bool:
    if name == TOPIC or name.startswith(OWN_PREFIX):
        return False
    try:
        check_user_name(name)
    except InvalidNameError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """The topic of what goes out: a text in which `{name}` stands for the attribute's value."""

    text: str

    def __post_init__(self) -> None:
        rest = _PLACE.sub("", self.text)
        if not self.text or set(rest) & set("{}+#\0") or self.text.startswith("$"):
            raise InvalidValueError(
                self.text, "expected a topic, such as alerts/{severity}/{name}, without + and #"
            )

    @property
    def names(self) -> list[str]:
        """The attributes that it asks for."""
        return _PLACE.findall(self.text)

    def of(self, notification: Notification) -> str:
        """The topic of a notification. Raises InvalidValueError where it has none."""
        topic = _PLACE.sub(lambda found: _level(notification, found[1]), self.text)
        if set(topic) & set("+#") or topic.startswith("$") or not topic:
            raise InvalidValueError(topic, "no topic: expected no + and #, and no $ in front")
        return _checked(topic)


def _level(notification: Notification, name: str) -> str:
    value = notification.attributes.get(name)
    if value is None or isinstance(value, tuple):
        found = "none" if value is None else f"{len(value)}"
        raise InvalidValueError(name, f"the topic asks for one value of it, found {found}")
    return _text(value)


def message_of(
    notification: Notification, template: TopicTemplate, *, retain: bool, now_us: int
) -> MqttMessage:
    """The message that a notification goes out as.

    The payload is its body, with the attributes as user properties; or else a JSON object of the
    attributes. What the topic takes alone is not said again. Raises InvalidValueError where it
    can be none.
    """
    attributes = {name: notification[name] for name in notification}
    if template.text == f"{{{TOPIC}}}":
        attributes.pop(TOPIC, None)
    envelope = notification.envelope
    properties = [(IDENTITY, _checked(envelope.id)), (PUBLISHER, _checked(envelope.publisher))]
    if notification.body or notification.content_type:
        payload, content_type = notification.body, _checked(notification.content_type)
        properties += _pairs(attributes)
    else:
        shown = {name: json_values(value) for name, value in attributes.items()}
        payload, content_type = msgspec.json.encode(shown), JSON_TYPE
    expires_us = envelope.expires_us
    return MqttMessage(
        template.of(notification),
        payload,
        content_type,
        tuple(properties),
        retain=retain,
        expires_s=None if expires_us is None else max(math.ceil((expires_us - now_us) / 1e6), 0),
    )


def _pairs(attributes: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, held in attributes.items():
        for value in held if isinstance(held, tuple) else (held,):
            yield _checked(name), _checked(_text(value))


def _checked(text: str) -> str:
    """A text that MQTT takes. Raises InvalidValueError."""
    if _NO_TEXT.search(text):
        raise InvalidValueError(text, "MQTT has no control characters in topics and properties")
    if len(text.encode()) > MQTT_TEXT_BYTES_MAX:
        raise InvalidValueError(text, f"MQTT has at most {MQTT_TEXT_BYTES_MAX} bytes of a text")
    return text


def check_topics(text: str) -> None:
    """Refuse what is no filter of MQTT, such as sensors/+/temperature or sensors/#.

    Raises InvalidValueError.
    """
    *levels, last = text.split("/")
    is_shared = levels[:1] == ["$share"]
    if (
        any("#" in each or ("+" in each and each != "+") for each in levels)
        or (last not in ("+", "#") and set(last) & set("+#"))
        or not text
        or (is_shared and (len(levels) < 2 or levels[1] in ("", "+")))
    ):
        raise InvalidValueError(
            text, "expected topics of MQTT: + stands for a level, # for all levels at the end"
        )
    _checked(text)


def _text(value: Value) -> str:
    """A value as a text: a text as it is, another as JSON has it."""
    return value if isinstance(value, str) else msgspec.json.encode(json_value(value)).decode()
