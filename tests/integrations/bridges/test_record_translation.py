"""Records of other systems as notifications, and notifications as records."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidValueError
from contrada.integrations.bridges.record_translation import (
    PeerRecord,
    RecordTranslation,
    TextTemplate,
)
from contrada.model import Notification
from contrada.model.algebra.notification import Envelope
from contrada.model.syntax import parse_filter

JSON = "application/json"
OWN = {"topic": "t", "contrada.origin": "here"}
TRANSLATION = RecordTranslation("nats", "here", TextTemplate("{topic}"))
STAMPED = Envelope("i", "p", time_us=1_000_000)


@pytest.mark.parametrize(
    ("payload", "kind", "attributes", "body", "content_type"),
    [
        (b'{"a": {"b": 1}, "c": [1, 2]}', "", {"a.b": 1, "c": (1, 2)}, b"", ""),
        (b'{"a": 1, "l": [{}]}', "", {"a": 1}, b'{"a": 1, "l": [{}]}', JSON),
        (b'{"a": 1}', "text/plain", {}, b'{"a": 1}', "text/plain"),
        (b'{"a": 1, "topic": "x"}', "", {"a": 1}, b'{"a": 1, "topic": "x"}', JSON),
        (b'{"contrada": {"origin": ""}}', "", {}, b'{"contrada": {"origin": ""}}', ""),
        (b'{"nats": {"x": 0}}', JSON, {}, b'{"nats": {"x": 0}}', JSON),
        (b"21.5", "", {"nats.payload": 21.5}, b"21.5", ""),
        (b'{"a": 1', "", {}, b'{"a": 1', ""),
        (b"\xff", "", {}, b"\xff", ""),
        (b"", "", {}, b"", ""),
    ],
)
def test_a_payload_becomes_attributes_or_stays_whole(
    payload: bytes, kind: str, attributes: dict[str, Any], body: bytes, content_type: str
) -> None:
    """A part of a record would be lost, or a payload could forge its origin."""
    found = TRANSLATION.notification_of(PeerRecord(topic="t", payload=payload, content_type=kind))
    assert dict(found) == OWN | attributes
    assert (found.body, found.content_type) == (body, content_type)


def test_headers_and_facts_become_attributes() -> None:
    """Filters could not use them; or a sender could forge the place of a record."""
    headers = (("unit", "C"), ("unit", 2), ("topic", "x"), ("nats.x", "0"), ("@id", "z"))
    record = PeerRecord(topic="t", headers=headers, facts={"sequence": 7}, is_certified=False)
    found = TRANSLATION.notification_of(record)
    assert dict(found) == OWN | {"nats.sequence": 7, "unit": (2, "C")}
    assert found.envelope.delivery == "best-effort"
    assert TRANSLATION.notification_of(PeerRecord(topic="t")).envelope.delivery == "certified"


def test_attributes_go_out_as_json_and_a_body_unchanged() -> None:
    """The other system could not read the attributes; or a picture would become a text about it."""
    of = Notification({"topic": "a", "n": 1, "l": [1, 2], "nats.reply": "r"}, envelope=STAMPED)
    found = TRANSLATION.record_of(of)
    assert (found.topic, found.content_type, found.facts) == ("a", JSON, {"reply": "r"})
    assert json.loads(found.payload) == {"n": 1, "l": [1, 2]}
    assert found.headers == (("contrada.id", "i"), ("contrada.publisher", "p"))
    assert found.is_ours
    at = datetime(2026, 11, 20, tzinfo=UTC)
    of = Notification({"topic": "a", "at": at, "n": [1, 2]}, body=b"\xff", content_type="i/p")
    found = TRANSLATION.record_of(of)
    assert (found.payload, found.content_type) == (b"\xff", "i/p")
    assert sorted(found.headers[2:]) == [
        ("at", '{"$time":"2026-11-20T00:00:00Z"}'),
        ("n", "1"),
        ("n", "2"),
    ]


def test_attributes_go_out_as_fields() -> None:
    """A system of fields would get one field with all of them."""
    translation = RecordTranslation("redis", "here", TextTemplate("x.{s}"), has_fields=True)
    found = translation.record_of(Notification({"s": "a", "n": 1}, envelope=STAMPED))
    assert (found.topic, found.payload) == ("x.a", b"")
    assert found.headers[2:] == (("s", "a"), ("n", "1"))


def test_notifications_of_the_system_do_not_go_out() -> None:
    """Each record would return to the system that it is from."""
    out = TRANSLATION.outgoing(parse_filter("n any"))
    assert out.matches(Notification({"n": 1}))
    assert out.matches(Notification({"n": 1, "contrada.origin": "elsewhere"}))
    assert not out.matches(Notification({"n": 1, "contrada.origin": "here"}))


@pytest.mark.parametrize("text", ["", "a.{", "a.}", "{}", "a\0"])
def test_malformed_templates_are_refused(text: str) -> None:
    """The other system would get a topic that nobody meant."""
    with pytest.raises(InvalidValueError, match="expected a text"):
        TextTemplate(text)


@pytest.mark.parametrize("attributes", [{"b": 1}, {"a": ["x", "y"]}], ids=["absent", "several"])
def test_notifications_without_a_topic_are_refused(attributes: dict[str, Any]) -> None:
    """A record would have a topic that nobody meant."""
    with pytest.raises(InvalidValueError, match="needs one value"):
        TextTemplate("t.{a}").of(Notification(attributes))


def test_names_of_systems_are_plain() -> None:
    """A name with a quotation mark would change the filter of the bridge."""
    with pytest.raises(InvalidValueError, match="expected a name"):
        RecordTranslation("nats", "a'b", TextTemplate("t"))


@given(
    st.binary(max_size=50)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_no_payload_can_forge_its_origin(payload: bytes) -> None:
    """A record would loop, or look like one of another topic."""
    found = TRANSLATION.notification_of(PeerRecord(topic="t", payload=payload))
    assert {name: found[name] for name in OWN} == OWN
    assert {name for name in found if name.startswith("nats.")} <= {"nats.payload"}
    assert found.body in (b"", payload)
