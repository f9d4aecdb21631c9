"""CloudEvents as notifications, and notifications as CloudEvents."""

import base64
import json
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_binary_event,
    from_structured_event,
    to_binary_event,
    to_structured_event,
)
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from contrada.errors import EncodingError, InvalidNotificationError, RefusedRequestError
from contrada.integrations.dialects import cloudevents
from contrada.integrations.http import event_translation
from contrada.integrations.http.event_ingest import binary_headers, notifications_in
from contrada.model import Notification
from contrada.model.algebra.notification import Envelope
from contrada.model.codec import notification_from_msgpack, to_msgpack

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
NAMES = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(
    lambda name: name not in ("data", "specversion", "time", "datacontenttype", "dataschema")
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
DATA = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"data": st.dictionaries(TEXT, SCALARS, max_size=4)}),
    st.fixed_dictionaries({"data": JSON}),
    st.fixed_dictionaries({"data": JSON, "datacontenttype": st.just("application/x+json")}),
    st.fixed_dictionaries({"data": TEXT, "datacontenttype": st.just("text/plain")}),
    st.fixed_dictionaries(
        {
            "data_base64": st.binary(max_size=9).map(lambda b: base64.b64encode(b).decode()),
            "datacontenttype": st.just("image/png"),
        }
    ),
)


@st.composite
def cloud_events(draw: st.DrawFn) -> dict[str, Any]:
    """Events in the JSON format."""
    own = draw(st.dictionaries(NAMES, st.one_of(TEXT, st.booleans(), st.integers(-9, 9))))
    required = {name: draw(TEXT) for name in ("id", "source", "type")}
    if draw(st.booleans()):
        own["time"] = "2026-11-24T02:10:03.5+01:00"
    if not isinstance(own.get("subject", ""), str):
        del own["subject"]
    return {"specversion": "1.0", **own, **required, **draw(DATA)}


@given(cloud_events())
def test_an_event_round_trips(event: dict[str, Any]) -> None:
    """An event would change on its way, or mean something else to filters."""
    made = event_translation.notification_of(json.loads(json.dumps(event)))
    assert json.loads(event_translation.event_json(made)) == event
    again = cloudevents.notification(event)
    assert dict(made) == dict(again)
    assert made.content_type == again.content_type


@given(cloud_events().filter(lambda event: "\x7f" not in json.dumps(event)))
def test_an_event_round_trips_in_binary_mode(event: dict[str, Any]) -> None:
    """A sink would receive another event than was published."""
    made = event_translation.notification_of(event)
    attributes, body = event_translation.binary_event_of(made)
    headers = Headers(dict(binary_headers(attributes)))
    (found,) = notifications_in(headers, body)
    texts = {
        name: value if isinstance(value, str) else str(value).lower()
        for name, value in event.items()
        if name not in ("data", "data_base64")
    }
    said = {name: found[name] for name in texts}
    assert said == texts
    assert found.body == made.body
    if made.body:
        data = [name for name in made if name.startswith("data") and name != "datacontenttype"]
        assert {name: found[name] for name in data} == {name: made[name] for name in data}


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": "yesterday"},
        {"subject": ""},
        {"specversion": "1.1"},
        {"subject": 7},
        {"data": {"n": 1}, "data_base64": "eA=="},
        {"Subject": "x"},
    ],
)
def test_malformed_events_are_refused_after_good_ones(wrong: dict[str, Any]) -> None:
    """Names that are known to be valid would let malformed values pass."""
    right = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": 1}}
    right |= {"time": "2026-11-24T02:10:03Z", "subject": "x"}
    for _ in range(2):
        assert event_translation.notification_of(right) == cloudevents.notification(right)
        with pytest.raises(InvalidNotificationError):
            event_translation.notification_of({**right, **wrong})


@given(st.binary(max_size=40))
def test_binary_data_keep_their_bytes(data: bytes) -> None:
    """A signature over the data would become invalid."""
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    given_ = Headers({**headers, "content-type": "application/json"})
    (made,) = notifications_in(given_, data)
    attributes, body = event_translation.binary_event_of(made)
    assert body == data
    assert attributes["datacontenttype"] == "application/json"


def test_a_plain_notification_is_an_event() -> None:
    """HTTP clients could not see notifications of other clients."""
    envelope = Envelope("an id", "desk/7 ü", 1, 1_700_000_000_123_456)
    for attributes in ({"a": 1, "b": [1, 2]}, {"id": "x", "specversion": "1.0", "A": 1.5}):
        made = Notification(attributes, envelope=envelope)
        found = json.loads(event_translation.event_json(made))
        assert found["source"] == "/publishers/desk%2F7%20%C3%BC"
        assert found["time"] == "2023-11-14T22:13:20.123456Z"
        assert found["data"] == attributes
        assert event_translation.binary_event_of(made)[0]["id"] == "an id"
        cloudevents.notification(found)


def test_data_with_lone_surrogates_keep_their_bytes() -> None:
    """One such event would end all streams that it matches."""
    least = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    headers = {f"ce-{name}": value for name, value in least.items()}
    data = rb'{"a": "\ud800"}'
    (made,) = notifications_in(Headers({**headers, "content-type": "application/json"}), data)
    found = json.loads(event_translation.event_json(made))
    assert base64.b64decode(found["data_base64"]) == data
    assert "data.a" not in made
    (made,) = notifications_in(
        Headers({**headers, "content-type": "application/json"}), rb'"\ud83d\uDE00 \\ud800"'
    )
    assert made["data"] == "\N{GRINNING FACE} \\ud800"
    assert json.loads(event_translation.event_json(made))["data"] == made["data"]


def test_a_data_header_is_refused() -> None:
    """An event would have data in addition to its body."""
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    with pytest.raises(RefusedRequestError, match="no attribute has this name"):
        list(notifications_in(Headers({**headers, "ce-data": "z"}), b""))


def test_attributes_outside_the_data_are_shown() -> None:
    """An event from another client than HTTP would lose them silently."""
    least = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    found = json.loads(event_translation.event_json(Notification({**least, "data.price": 5})))
    assert found["type"] == event_translation.NOTIFICATION_TYPE
    assert found["data"] == {**least, "data.price": 5}


def _message(event: dict[str, Any]) -> HTTPMessage:
    return HTTPMessage({"content-type": "application/cloudevents+json"}, json.dumps(event).encode())


def test_the_cloudevents_sdk_interoperates() -> None:
    """Programs with the SDK could not exchange events with this port."""
    event = {
        "specversion": "1.0",
        "id": "ü 1",
        "source": "/shop?x=1",
        "type": "t",
        "subject": "with space %20",
        "datacontenttype": "application/json",
        "data": {"n": 1, "text": "ä"},
    }
    theirs = from_structured_event(_message(event))
    for message in (to_structured_event(theirs), to_binary_event(theirs)):
        (made,) = notifications_in(Headers(dict(message.headers)), bytes(message.body))
        shown = json.loads(event_translation.event_json(made))
        assert {**shown, "time": None} == {**event, "time": None}
        attributes, body = event_translation.binary_event_of(made)
        again = from_binary_event(HTTPMessage(dict(binary_headers(attributes)), body))
        assert again.get_subject() == event["subject"]
        assert again.get_id() == event["id"]
        assert again.get_data() == event["data"]
        whole = from_structured_event(
            HTTPMessage(
                {"content-type": "application/cloudevents+json"}, event_translation.event_json(made)
            )
        )
        assert whole.get_data() == event["data"]


def received(of: Notification) -> Notification:
    """Returns a notification as a connection gives it."""
    return notification_from_msgpack(to_msgpack(of))


def written(of: Notification) -> bytes:
    """Returns the event by the plain way; nothing for a notification that no event can be."""
    try:
        return msgspec.json.encode(cloudevents.event_of(of)) if "specversion" in of else b""
    except EncodingError:
        return b""


def written_fast(of: Notification) -> bytes:
    """Returns the event by the fast way, if it can make it; the second time it knows all names."""
    event_translation._own_event_of(received(of))
    event = event_translation._own_event_of(received(of))
    return b"" if event is None else msgspec.json.encode(event)


@given(cloud_events())
def test_a_received_event_is_written_as_by_the_plain_way(event: dict[str, Any]) -> None:
    """Streams would have another event than its publisher sent."""
    of = cloudevents.notification(event)
    assert written_fast(of) == written(of) != b""


COMMON = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}
WRITTEN: list[tuple[dict[str, Any], bytes]] = [
    ({"data.a": 1}, b'{"a":1}'),
    ({"data.a": 1, "time": "2026-02-28T00:00:00Z", "extension": "x"}, b'{"a":1}'),
    ({"data.a": 1, "data.b.c": 2}, b'{"a":1,"b.c":2}'),
    ({"data.a": None, "data.b": True}, b'{"a":null,"b":true}'),
    ({}, b"{}"),
    ({"data.a": 1}, b'{"a": 1}'),
    ({"data.a": "\n"}, b'{"a":"\n"}'),
    ({"data.a": 2}, b'{"a":1,"a":2}'),
    ({"data.a": 1.0}, b'{"a":1}'),
    ({"data.a": True}, b'{"a":1}'),
    ({"data.a": 1}, b'{"a":1.0}'),
    ({"data.a": 1}, b'{"a":1e0}'),
    ({"data.a": 1}, b'{"a":2}'),
    ({}, b'{"a":1}'),
    ({"data.b": 1}, b'{"a":1}'),
    ({"data.a": 1, "data.b": 1}, b'{"a":1}'),
    ({"data.a": [1, 2]}, b'{"a":[1,2]}'),
    ({"data.a": 1}, b"[1]"),
    ({"data": 1}, b"1"),
    ({"data": "x"}, b"{}"),
    ({"data": "x", "data.a": 1}, b'{"a":1}'),
    ({}, b'{"a":9999999999999999999999}'),
    ({"data.a": 2.0**63}, b'{"a":9223372036854775808}'),
    ({"data.a": 2.0**64}, b'{"a":18446744073709551616}'),
    ({"data.a": -(2**63)}, b'{"a":-9223372036854775808}'),
    ({"data.a": 2.0**64}, b'{"a":1.8446744073709552e19}'),
    ({}, b'{"a":NaN}'),
    ({}, b'{"a":1e999}'),
    ({}, b"\xff"),
    ({}, b"["),
    ({}, b"[" * 100_000),
    ({}, b'{"a":' * 100_000),
    ({}, b'{"a":"\\ud800"}'),
    ({"data.a": 1, "Extension": "x"}, b'{"a":1}'),
    ({"data.a": 1, "data_base64": "x"}, b'{"a":1}'),
    ({"data.a": 1, "extension": 7}, b'{"a":1}'),
    ({"data.a": 1, "extension": 2**40}, b'{"a":1}'),
    ({"data.a": 1, "extension": ""}, b'{"a":1}'),
    ({"data.a": 1, "subject": ""}, b'{"a":1}'),
    ({"data.a": 1, "specversion": "1.1"}, b'{"a":1}'),
    ({"data.a": 1, "id": 1}, b'{"a":1}'),
    ({"data.a": 1, "id": ["1", "2"]}, b'{"a":1}'),
    ({"data.a": 1, "time": "2026-02-29T00:00:00Z"}, b'{"a":1}'),
    ({"data.a": 1, "time": "2024-02-29T00:00:00Z"}, b'{"a":1}'),
    ({"data.a": 1, "time": "2024-00-09T00:00:00Z"}, b'{"a":1}'),
]


@pytest.mark.parametrize("content_type", ["application/json", "application/x+json", "text/plain"])
@pytest.mark.parametrize(("given", "body"), WRITTEN, ids=range(len(WRITTEN)))
def test_odd_events_are_written_as_by_the_plain_way(
    given: dict[str, Any], body: bytes, content_type: str
) -> None:
    """A body that is another JSON than its attributes would be shown as an event's data; or a body
    with a line break would end the line of a stream.
    """
    of = Notification({**COMMON, **given}, body=body, content_type=content_type)
    assert written_fast(of) == written(of)


def test_a_type_mark_is_no_attribute_of_an_event() -> None:
    """Subscribers would get a name that no event has."""
    of = Notification.with_marks(
        {**COMMON, "data.a": 1}, ["T"], body=b'{"a":1}', content_type="application/json"
    )
    assert written_fast(of) == written(of) != b""


def test_the_common_event_is_written_by_the_fast_way() -> None:
    """A stream would take ten times as long for each event."""
    of = cloudevents.notification({**COMMON, "data": {"a": 1, "b": "x"}})
    written_fast(of)
    assert event_translation._plain_event_of(received(of)) is not None


def test_extensions_of_received_events_alone_are_learned() -> None:
    """Where no event is posted, those with an extension would always take ten times as long."""
    event_translation._known.clear()
    for extension in ({}, {"first": "x"}, {"first": "x", "second": "y"}):
        of = cloudevents.notification({**COMMON, **extension, "data": {"a": 1}})
        written_fast(of)
        assert event_translation._plain_event_of(received(of)) is not None


def test_a_shown_notification_has_every_field_of_its_envelope() -> None:
    """A subscriber would read a default instead of a member that its publisher gave."""
    envelope = Envelope("an id", "a desk", 2, 1_700_000_000_123_456, 5, 9, "durable")
    made = Notification({"a": 1}, envelope=envelope)
    for each in (made, notification_from_msgpack(to_msgpack(made))):
        shown = Notification.from_json(event_translation.notification_json(each).decode())
        assert shown.envelope == envelope
