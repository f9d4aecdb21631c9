"""MQTT messages as notifications, and notifications as MQTT messages."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from contrada.errors import AddressError, InvalidValueError
from contrada.integrations.bridges.bridge_peer import PeerAddress
from contrada.integrations.bridges.mqtt_peer import (
    MQTT_ADDRESS,
    TopicTemplate,
    check_topics,
    properties_of,
    record_of,
    size_of,
)
from contrada.integrations.bridges.record_translation import PeerRecord, RecordTranslation
from contrada.model import Notification
from contrada.model.algebra.notification import Envelope

JSON = "application/json"
ORIGIN = {"topic": "t", "contrada.origin": "mqtt", "mqtt.qos": 1, "mqtt.retain": False}


def to(topic: str) -> RecordTranslation:
    """Returns the translation with a template of topics."""
    return RecordTranslation("mqtt", "mqtt", TopicTemplate(topic))


PLAIN = to("{topic}")


def received(topic: str, payload: bytes = b"", *, qos: int = 1, **given: Any) -> Notification:
    """Returns the notification of a message with these properties."""
    packet = MQTTMessage(topic=topic.encode())
    packet.payload, packet.qos, packet.retain = payload, qos, given.pop("retain", False)
    packet.properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in given.items():
        setattr(packet.properties, name, value)
    return PLAIN.notification_of(record_of(packet, None))


def sent(of: Notification, translation: RecordTranslation, now_us: int = 0) -> tuple[Any, Any]:
    """Returns the record and the properties of the message of a notification."""
    record = translation.record_of(of)
    return record, properties_of(record, now_us)


@pytest.mark.parametrize(
    ("payload", "kind", "attributes", "body", "content_type"),
    [
        (b'{"a": {"b": 1}, "c": [1, 2]}', "", {"a.b": 1, "c": (1, 2)}, b"", ""),
        (b' {"a": 1}', "application/json; charset=utf-8", {"a": 1}, b"", ""),
        (b'{"a": 1, "l": [{}]}', "", {"a": 1}, b'{"a": 1, "l": [{}]}', JSON),
        (b'{"a": 1}', "text/plain", {}, b'{"a": 1}', "text/plain"),
        (b'{"a": 1, "topic": "x"}', "", {"a": 1}, b'{"a": 1, "topic": "x"}', JSON),
        (b'{"a": 1, "mqtt": {"qos": 0}}', "", {"a": 1}, b'{"a": 1, "mqtt": {"qos": 0}}', JSON),
        (
            b'{"a": 1, "contrada.origin": "x"}',
            "",
            {"a": 1},
            b'{"a": 1, "contrada.origin": "x"}',
            JSON,
        ),
        (b'{"@id": "x", "a": 1}', "", {}, b'{"@id": "x", "a": 1}', ""),
        (b'{"a": 1', "", {}, b'{"a": 1', ""),
        (b'{"a": 99999999999999999999}', "", {}, b'{"a": 99999999999999999999}', ""),
        (b"{\xff", "", {}, b"{\xff", ""),
        (b"21.5", "", {"mqtt.payload": 21.5}, b"21.5", ""),
        (b" true", JSON, {"mqtt.payload": True}, b" true", JSON),
        (b'"on"', "", {"mqtt.payload": "on"}, b'"on"', ""),
        (b"null", "", {"mqtt.payload": None}, b"null", ""),
        (b"[1, 2]", JSON, {"mqtt.payload": (1, 2)}, b"[1, 2]", JSON),
        (b"[1, {}]", JSON, {}, b"[1, {}]", JSON),
        (b"21.5", "text/plain", {}, b"21.5", "text/plain"),
        (b"on", "", {}, b"on", ""),
        (b"1e400", "", {}, b"1e400", ""),
        (b"NaN", "", {}, b"NaN", ""),
        (b"", "", {}, b"", ""),
    ],
)
def test_a_payload_becomes_attributes_or_stays_whole(
    payload: bytes, kind: str, attributes: dict[str, Any], body: bytes, content_type: str
) -> None:
    """A part of a message would be lost, or a payload could forge its topic."""
    kinds: dict[str, Any] = {"ContentType": kind} if kind else {}
    found = received("t", payload, **kinds)
    assert dict(found) == ORIGIN | attributes
    assert (found.body, found.content_type) == (body, content_type)


def test_properties_become_attributes() -> None:
    """Filters could not use them; or a sender could forge the origin of a message."""
    said = [
        ("unit", "C"),
        ("unit", "K"),
        ("topic", "x"),
        ("mqtt.qos", "0"),
        ("contrada.origin", "other"),
        ("", "y"),
        ("@id", "z"),
    ]
    expiry: dict[str, Any] = {"MessageExpiryInterval": 5, "UserProperty": said}
    found = received("a/b", b'{"unit": "F"}', qos=0, retain=True, **expiry)
    assert dict(found) == {
        "topic": "a/b",
        "contrada.origin": "mqtt",
        "mqtt.qos": 0,
        "mqtt.retain": True,
        "unit": ("C", "F", "K"),
    }
    assert found.envelope == Envelope(ttl_us=5_000_000)
    assert received("t").envelope.delivery == "certified"


def test_a_response_is_asked_for_and_given() -> None:
    """A request of MQTT 5 could not be answered from here, nor an answer be assigned."""
    found = received("a", ResponseTopic="r/1", CorrelationData=b"\x11\xff")
    expected = {"mqtt.response_topic": "r/1", "mqtt.correlation": b"\x11\xff"}
    assert dict(found) == ORIGIN | {"topic": "a"} | expected
    of = Notification({"topic": "r/1", "mqtt.correlation": b"\x11\xff", "n": 1}, envelope=STAMPED)
    record, properties = sent(of, PLAIN)
    assert properties.CorrelationData == b"\x11\xff"
    assert not hasattr(properties, "ResponseTopic")
    assert json.loads(record.payload) == {"n": 1}
    of = Notification({"mqtt.response_topic": "r/2", "mqtt.correlation": 7}, envelope=STAMPED)
    _, properties = sent(of, to("t"))
    assert (properties.ResponseTopic, properties.CorrelationData) == ("r/2", b"7")
    for wrong in (
        {"mqtt.response_topic": "r/#"},
        {"mqtt.correlation": ["a", "b"]},
        {"mqtt.correlation": b"x" * 65_536},
    ):
        with pytest.raises(InvalidValueError):
            sent(Notification(wrong), to("t"))


STAMPED = Envelope("i", "p", time_us=1_000_000, ttl_us=2_500_000)


def test_attributes_go_out_as_json() -> None:
    """MQTT clients could not read the attributes."""
    of = Notification({"topic": "a", "n": 1, "l": [1, 2], "s": "x"}, envelope=STAMPED)
    record, properties = sent(of, PLAIN, 1_500_000)
    assert json.loads(record.payload) == {"n": 1, "l": [1, 2], "s": "x"}
    assert (record.topic, properties.ContentType) == ("a", JSON)
    assert properties.UserProperty == [("contrada.id", "i"), ("contrada.publisher", "p")]
    assert properties.MessageExpiryInterval == 2
    late, properties = sent(of, to("x/{n}/{s}"), 9_000_000)
    assert (late.topic, properties.MessageExpiryInterval) == ("x/1/x", 0)
    assert json.loads(late.payload)["topic"] == "a"


def test_a_long_time_to_live_is_the_longest_of_mqtt() -> None:
    """Its number has 32 bits: one notification would end the bridge, at each attempt."""
    of = Notification({"topic": "a"}, envelope=Envelope("i", "p", time_us=0, ttl_us=2**62))
    assert sent(of, PLAIN)[1].MessageExpiryInterval == 2**32 - 1


def test_the_size_of_a_message_is_bounded() -> None:
    """The MQTT broker would end the connection for a message beyond its limit."""
    record = PeerRecord(topic="t", payload=b"x" * 100, headers=(("n", "v" * 50),))
    assert 160 < size_of("t", record.payload, properties_of(record, 0)) < 200


def test_a_body_is_sent_unchanged() -> None:
    """A picture would become a text about it."""
    at = datetime(2026, 11, 20, tzinfo=UTC)
    of = Notification(
        {"topic": "a", "at": at, "n": [1, 2], "s": "x"}, body=b"\xff", content_type="i/p"
    )
    record, properties = sent(of, PLAIN)
    assert (record.payload, properties.ContentType) == (b"\xff", "i/p")
    assert not hasattr(properties, "MessageExpiryInterval")
    assert sorted(properties.UserProperty[2:]) == [
        ("at", '{"$time":"2026-11-20T00:00:00Z"}'),
        ("n", "1"),
        ("n", "2"),
        ("s", "x"),
    ]


@pytest.mark.parametrize("text", ["", "a/{", "a/}", "{}", "a/+", "#", "$SYS/a", "a\0"])
def test_malformed_templates_are_refused(text: str) -> None:
    """The MQTT broker would refuse every notification, and end the connection each time."""
    with pytest.raises(InvalidValueError, match="expected a topic"):
        TopicTemplate(text)


@pytest.mark.parametrize(
    "attributes",
    [{"b": 1}, {"a": ["x", "y"]}, {"a": "x/#"}, {"a": "+"}, {"a": "\0"}, {"a": "x" * 65_536}],
    ids=["absent", "several", "hash", "plus", "nul", "long"],
)
def test_notifications_without_a_topic_are_refused(attributes: dict[str, Any]) -> None:
    """The MQTT broker would end the connection again and again."""
    with pytest.raises(InvalidValueError):
        sent(Notification(attributes), to("t/{a}"))
    for text in ("$SYS/x", ""):
        with pytest.raises(InvalidValueError):
            sent(Notification({"a": text}), to("{a}"))


def test_texts_that_mqtt_forbids_are_refused() -> None:
    """The MQTT broker would end the connection at each attempt, and the bridge would relay
    nothing.
    """
    topic = to("t")
    for text in ("a\nb", "\0", "\x85", "\ufdd0", "\uffff", "\U0010fffe", "x" * 65_536):
        for of in (
            Notification({"a": text}, body=b"!"),
            Notification({"a": 1}, body=b"!", content_type=text[:200] + "\n"),
            Notification({"a": 1}, envelope=Envelope("i", text[:200] + "\n")),
        ):
            with pytest.raises(InvalidValueError, match="MQTT has"):
                sent(of, topic)
        shown, _ = sent(Notification({"a": text}), topic)
        assert json.loads(shown.payload) == {"a": text}  # In a payload it is a text as any.


@pytest.mark.parametrize(
    "text", ["a", "a/b", "/", "+", "#", "+/a/#", "a//b", "$share/g/a/#", "$SYS/#"]
)
def test_topic_filters_are_accepted(text: str) -> None:
    """A bridge could not subscribe to messages of sensors."""
    check_topics(text)


@pytest.mark.parametrize(
    "text", ["", "a/#/b", "#/a", "a+", "a/b+/c", "a/#b", "+#", "$share/g", "$share//a", "a\0"]
)
def test_malformed_topic_filters_are_refused(text: str) -> None:
    """The library would end its thread, and the bridge would wait for an answer."""
    with pytest.raises(InvalidValueError):
        check_topics(text)


@given(
    st.binary(max_size=50)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
    st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3),
)
def test_no_message_can_forge_its_origin(payload: bytes, properties: list[tuple[str, str]]) -> None:
    """A message would loop, or look like one of another topic."""
    try:
        for pair in properties:
            "".join(pair).encode()
    except UnicodeEncodeError:
        return
    given: dict[str, Any] = {"UserProperty": properties} if properties else {}
    found = received("t", payload, **given)
    assert {name: found[name] for name in ORIGIN} == ORIGIN
    own = {name for name in found if name.startswith("mqtt.")}
    assert own - {"mqtt.payload"} == {"mqtt.qos", "mqtt.retain"}
    assert "mqtt.payload" not in own or not payload.lstrip().startswith(b"{")
    if found.body:
        assert found.body == payload


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mqtt://a", PeerAddress("mqtt", (("a", 1883),))),
        ("mqtts://me@[::1]:1/", PeerAddress("mqtts", (("::1", 1),), is_tls=True, user="me")),
    ],
)
def test_mqtt_addresses_are_parsed(text: str, place: PeerAddress) -> None:
    """A bridge would connect to another host."""
    assert MQTT_ADDRESS.parse(text) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "http://a",
        "mqtt://",
        "mqtt://a/b",
        "mqtt://a:0",
        "mqtt://a:x",
        "mqtt://a\n",
        "mqtt://a?b",
    ],
)
def test_malformed_mqtt_addresses_are_refused(text: str) -> None:
    """A typing error would end in a confusing network error."""
    with pytest.raises(AddressError, match="expected mqtt://"):
        MQTT_ADDRESS.parse(text)


@pytest.mark.parametrize("password", ["secret", "s/secret", "s@secret"])
def test_a_password_in_an_address_is_refused_and_not_shown(password: str) -> None:
    """Every user of the machine could read it in the process list, and later in the log."""
    with pytest.raises(AddressError, match="without a password") as caught:
        MQTT_ADDRESS.parse(f"mqtt://me:{password}@a")
    assert "secret" not in str(caught.value)
