"""`record_of` and `properties_of`: MQTT messages as records of a bridge, and back.

topic                         <-> `topic`
QoS, retain                    -> `mqtt.qos`, `mqtt.retain`
response topic, correlation   <-> `mqtt.response_topic`, `mqtt.correlation` (bytes)
user properties               <-> headers
message expiry                <-> time to live
"""

import math
import re
from typing import Any, Final

from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from contrada.errors import InvalidValueError
from contrada.integrations.bridges.record_translation import PeerRecord, TextTemplate, text_of
from contrada.model import Value
from contrada.model.algebra.attributes import Values

MQTT_TEXT_BYTES_MAX: Final = 65_535
"""Bytes of a topic or user property in MQTT. Beyond it: the notification is refused, counted."""

_HEADER_BYTES: Final = 16
"""Upper bound of the fixed header, the length of the topic and the packet identifier."""

_EXPIRY_S_MAX: Final = 2**32 - 1

_ENDS_OF_PLANES: Final = "".join(
    chr(plane + last) for plane in range(0, 0x110000, 0x10000) for last in (0xFFFE, 0xFFFF)
)
_NO_TEXT: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{_ENDS_OF_PLANES}]")
"""Characters for which an MQTT broker may end the connection."""


class TopicTemplate(TextTemplate):
    """The topic of outgoing messages; `{name}` is replaced by the value of the attribute."""

    def __post_init__(self) -> None:
        if set(self.fixed) & set("{}+#\0") or self.text.startswith("$") or not self.text:
            reason = "expected a topic, such as alerts/{severity}/{name}, without + and #"
            raise InvalidValueError(self.text, reason)


def size_of(topic: str, payload: bytes | bytearray, properties: Properties | None) -> int:
    """Returns an upper bound of the encoded bytes of a message."""
    packed = b"" if properties is None else properties.pack()  # type: ignore[no-untyped-call]
    return _HEADER_BYTES + len(topic.encode()) + len(payload) + len(packed)


def record_of(packet: MQTTMessage, token: Any) -> PeerRecord:
    """Returns the record of a received message; certified if QoS is 1."""
    properties = packet.properties
    facts: dict[str, Any] = {"qos": packet.qos, "retain": packet.retain}
    for name, at in (("response_topic", "ResponseTopic"), ("correlation", "CorrelationData")):
        if found := getattr(properties, at, None):
            facts[name] = found
    return PeerRecord(
        topic=packet.topic,
        payload=bytes(packet.payload),
        content_type=getattr(properties, "ContentType", ""),
        headers=tuple(getattr(properties, "UserProperty", ())),
        facts=facts,
        is_certified=packet.qos > 0,
        expires_s=getattr(properties, "MessageExpiryInterval", None),
        token=token,
    )


def properties_of(record: PeerRecord, now_us: int) -> Properties:
    """Returns the properties of a message. Raises InvalidValueError for values that MQTT cannot
    hold, and without a valid topic.
    """
    topic = _checked(record.topic)
    if set(topic) & set("+#") or topic.startswith("$") or not topic:
        raise InvalidValueError(topic, "no topic: expected no + and #, and no $ in front")
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    response_topic = _checked(text_of(_single(record.facts.get("response_topic", ""))))
    if set(response_topic) & set("+#"):
        raise InvalidValueError(response_topic, "no response topic: expected no + and #")
    correlation = _single(record.facts.get("correlation", b""))
    if not isinstance(correlation, bytes):
        correlation = text_of(correlation).encode()
    if len(correlation) > MQTT_TEXT_BYTES_MAX:
        reason = f"MQTT has at most {MQTT_TEXT_BYTES_MAX} bytes of correlation data"
        raise InvalidValueError("mqtt.correlation", reason)
    if record.content_type:
        properties.ContentType = _checked(record.content_type)
    if response_topic:
        properties.ResponseTopic = response_topic
    if correlation:
        properties.CorrelationData = correlation
    if record.expires_at_us is not None:
        left_s = math.ceil((record.expires_at_us - now_us) / 1e6)
        properties.MessageExpiryInterval = min(max(left_s, 0), _EXPIRY_S_MAX)
    if record.headers:
        properties.UserProperty = [
            (_checked(name), _checked(text_of(value))) for name, value in record.headers
        ]
    return properties


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
