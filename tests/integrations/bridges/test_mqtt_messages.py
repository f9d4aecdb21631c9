"""MQTT messages as notifications, and notifications as MQTT messages."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import AddressError, InvalidValueError
from contrada.integrations.bridges.mqtt_messages import (
    MqttMessage,
    TopicTemplate,
    check_topics,
    message_of,
    mqtt_translation,
    notification_of,
)
from contrada.integrations.bridges.mqtt_session import MqttAddress, parse_mqtt_address
from contrada.model import Notification
from contrada.model.algebra.notification import Envelope

JSON = "application/json"
ORIGIN = {"topic": "t", "contrada.origin": "mqtt", "mqtt.qos": 1, "mqtt.retain": False}
PLAIN = mqtt_translation("{topic}")


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
    found = notification_of(MqttMessage("t", payload, kind), PLAIN)
    assert dict(found) == ORIGIN | attributes
    assert (found.body, found.content_type) == (body, content_type)


def test_properties_become_attributes() -> None:
    """Filters could not use them; or a sender could forge the origin of a message."""
    said = (
        ("unit", "C"),
        ("unit", "K"),
        ("topic", "x"),
        ("mqtt.qos", "0"),
        ("contrada.origin", "other"),
        ("", "y"),
        ("@id", "z"),
    )
    message = MqttMessage("a/b", b'{"unit": "F"}', properties=said, qos=0, retain=True, expires_s=5)
    found = notification_of(message, PLAIN)
    assert dict(found) == {
        "topic": "a/b",
        "contrada.origin": "mqtt",
        "mqtt.qos": 0,
        "mqtt.retain": True,
        "unit": ("C", "F", "K"),
    }
    assert found.envelope == Envelope(ttl_us=5_000_000)
    assert notification_of(MqttMessage("t"), PLAIN).envelope.delivery == "certified"


def test_a_response_is_asked_for_and_given() -> None:
    """A request of MQTT 5 could not be answered from here, nor an answer be assigned."""
    asked = MqttMessage("a", response_topic="r/1", correlation=b"\x11\xff")
    found = notification_of(asked, PLAIN)
    expected = {"mqtt.response_topic": "r/1", "mqtt.correlation": b"\x11\xff"}
    assert dict(found) == ORIGIN | {"topic": "a"} | expected
    of = Notification({"topic": "r/1", "mqtt.correlation": b"\x11\xff", "n": 1}, envelope=STAMPED)
    answer = message_of(of, PLAIN, retain=False, now_us=0)
    assert (answer.correlation, answer.response_topic) == (b"\x11\xff", "")
    assert json.loads(answer.payload) == {"n": 1}
    of = Notification({"mqtt.response_topic": "r/2", "mqtt.correlation": 7}, envelope=STAMPED)
    found_out = message_of(of, mqtt_translation("t"), retain=False, now_us=0)
    assert (found_out.response_topic, found_out.correlation) == ("r/2", b"7")
    for wrong in ({"mqtt.response_topic": "r/#"}, {"mqtt.correlation": ["a", "b"]}):
        with pytest.raises(InvalidValueError):
            message_of(Notification(wrong), mqtt_translation("t"), retain=False, now_us=0)


STAMPED = Envelope("i", "p", time_us=1_000_000, ttl_us=2_500_000)


def test_attributes_go_out_as_json() -> None:
    """MQTT clients could not read the attributes."""
    of = Notification({"topic": "a", "n": 1, "l": [1, 2], "s": "x"}, envelope=STAMPED)
    found = message_of(of, PLAIN, retain=True, now_us=1_500_000)
    assert json.loads(found.payload) == {"n": 1, "l": [1, 2], "s": "x"}
    assert (found.topic, found.content_type) == ("a", JSON)
    assert found.properties == (("contrada.id", "i"), ("contrada.publisher", "p"))
    assert (found.qos, found.retain, found.expires_s) == (1, True, 2)
    assert found.is_ours
    late = message_of(of, mqtt_translation("x/{n}/{s}"), retain=False, now_us=9_000_000)
    assert (late.topic, late.expires_s) == ("x/1/x", 0)
    assert json.loads(late.payload)["topic"] == "a"


def test_a_body_is_sent_unchanged() -> None:
    """A picture would become a text about it."""
    at = datetime(2026, 11, 20, tzinfo=UTC)
    of = Notification(
        {"topic": "a", "at": at, "n": [1, 2], "s": "x"}, body=b"\xff", content_type="i/p"
    )
    found = message_of(of, PLAIN, retain=False, now_us=0)
    assert (found.payload, found.content_type, found.expires_s) == (b"\xff", "i/p", None)
    assert sorted(found.properties[2:]) == [
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
        TopicTemplate("t/{a}").of(Notification(attributes))
    for text in ("$SYS/x", ""):
        with pytest.raises(InvalidValueError):
            TopicTemplate("{a}").of(Notification({"a": text}))


def test_texts_that_mqtt_forbids_are_refused() -> None:
    """The MQTT broker would end the connection at each attempt, and the bridge would relay
    nothing.
    """
    topic = mqtt_translation("t")
    for text in ("a\nb", "\0", "\x85", "\ufdd0", "\uffff", "\U0010fffe", "x" * 65_536):
        for of in (
            Notification({"a": text}, body=b"!"),
            Notification({"a": 1}, body=b"!", content_type=text[:200] + "\n"),
            Notification({"a": 1}, envelope=Envelope("i", text[:200] + "\n")),
        ):
            with pytest.raises(InvalidValueError, match="MQTT has"):
                message_of(of, topic, retain=False, now_us=0)
        shown = message_of(Notification({"a": text}), topic, retain=False, now_us=0)
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
    found = notification_of(MqttMessage("t", payload, properties=tuple(properties)), PLAIN)
    assert {name: found[name] for name in ORIGIN} == ORIGIN
    own = {name for name in found if name.startswith("mqtt.")}
    assert own - {"mqtt.payload"} == {"mqtt.qos", "mqtt.retain"}
    assert "mqtt.payload" not in own or not payload.lstrip().startswith(b"{")
    if found.body:
        assert found.body == payload


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mqtt://a", MqttAddress("a", 1883)),
        ("mqtts://me@[::1]:1/", MqttAddress("::1", 1, is_tls=True, user="me")),
    ],
)
def test_mqtt_addresses_are_parsed(text: str, place: MqttAddress) -> None:
    """A bridge would connect to another host."""
    assert parse_mqtt_address(text) == place


@pytest.mark.parametrize(
    "text", ["", "a", "http://a", "mqtt://", "mqtt://a/b", "mqtt://a:0", "mqtt://a:x", "mqtt://a\n"]
)
def test_malformed_mqtt_addresses_are_refused(text: str) -> None:
    """A typing error would end in a confusing network error."""
    with pytest.raises(AddressError, match="expected mqtt://host"):
        parse_mqtt_address(text)


@pytest.mark.parametrize("password", ["secret", "s/secret", "s@secret"])
def test_a_password_in_an_address_is_refused_and_not_shown(password: str) -> None:
    """Every user of the machine could read it in the process list, and later in the log."""
    with pytest.raises(AddressError, match="without a password") as caught:
        parse_mqtt_address(f"mqtt://me:{password}@a")
    assert "secret" not in str(caught.value)
