"""`notification_of` and `message_of`: MQTT messages as notifications and notifications as messages.

topic                         <-> `topic`
QoS, retain                    -> `mqtt.qos`, `mqtt.retain`
response topic, correlation   <-> `mqtt.response_topic`, `mqtt.correlation` (bytes)
user properties               <-> text attributes of the same names
payload, content type         <-> as those of any record, see `record_translation`
message expiry                <-> time to live
"""

import math
import re
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from contrada.errors import InvalidValueError
from contrada.integrations.bridges.record_translation import (
    IDENTITY,
    PeerRecord,
    RecordTranslation,
    TextTemplate,
    text_of,
)
from contrada.model import Notification, Value
from contrada.model.algebra.attributes import Values

MQTT: Final = "mqtt"
"""The kind of these records."""

MQTT_TEXT_BYTES_MAX: Final = 65_535
"""Bytes of a topic or user property in MQTT. Beyond it: the notification is refused, counted."""

_PACKET_BYTES: Final = 128
"""Upper bound of a message without its texts and payload."""

_ENDS_OF_PLANES: Final = "".join(
    chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)
)
_NO_TEXT: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_ENDS_OF_PLANES}]")
"""Characters for which an MQTT broker may end the connection."""


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


class TopicTemplate(TextTemplate):
    """The topic of outgoing messages; `{name}` is replaced by the value of the attribute."""

    def __post_init__(self) -> None:
        if set(self.fixed) & set("{}+#\0") or self.text.startswith("$") or not self.text:
            reason = "expected a topic, such as alerts/{severity}/{name}, without + and #"
            raise InvalidValueError(self.text, reason)

    def of(self, notification: Notification) -> str:
        """Returns the topic of a notification. Raises InvalidValueError without a valid one."""
        topic = super().of(notification)
        if set(topic) & set("+#") or topic.startswith("$") or not topic:
            raise InvalidValueError(topic, "no topic: expected no + and #, and no $ in front")
        return _checked(topic)


def mqtt_translation(topic: str, origin: str = MQTT) -> RecordTranslation:
    """Returns the translation of an MQTT broker; `topic` is the template of outgoing messages.
    Raises InvalidValueError.
    """
    return RecordTranslation(MQTT, origin, TopicTemplate(topic))


def notification_of(message: MqttMessage, translation: RecordTranslation) -> Notification:
    """Returns the notification of a message, without id and time; certified if QoS is 1. Raises
    InvalidNotificationError, for a content type of more than 255 bytes.
    """
    facts: dict[str, Any] = {"qos": message.qos, "retain": message.retain}
    if message.response_topic:
        facts["response_topic"] = message.response_topic
    if message.correlation:
        facts["correlation"] = message.correlation
    record = PeerRecord(
        topic=message.topic,
        payload=message.payload,
        content_type=message.content_type,
        headers=message.properties,
        facts=facts,
        is_certified=message.qos > 0,
        expires_s=message.expires_s,
    )
    return translation.notification_of(record)


def message_of(
    notification: Notification, translation: RecordTranslation, *, retain: bool, now_us: int
) -> MqttMessage:
    """Returns the message of a notification, see `RecordTranslation.record_of`. Raises
    InvalidValueError for values that MQTT cannot hold.
    """
    record = translation.record_of(notification)
    response_topic = _checked(text_of(_single(record.facts.get("response_topic", ""))))
    if set(response_topic) & set("+#"):
        raise InvalidValueError(response_topic, "no response topic: expected no + and #")
    correlation = _single(record.facts.get("correlation", b""))
    if not isinstance(correlation, bytes):
        correlation = text_of(correlation).encode()
    expires_us = notification.envelope.expires_us
    return MqttMessage(
        record.topic,
        record.payload,
        _checked(record.content_type),
        tuple((_checked(name), _checked(text_of(value))) for name, value in record.headers),
        retain=retain,
        expires_s=None if expires_us is None else max(math.ceil((expires_us - now_us) / 1e6), 0),
        response_topic=response_topic,
        correlation=correlation,
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
