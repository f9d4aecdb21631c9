"""CloudEvents as notifications, and notifications as CloudEvents."""

import base64
import json
from typing import Any

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

from contrada.errors import InvalidNotificationError, RefusedRequestError
from contrada.integrations.dialects import cloudevents
from contrada.integrations.http import event_translation
from contrada.integrations.http.event_ingest import binary_headers, notifications_in
from contrada.model import Notification
from contrada.model.algebra.notification import Envelope

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
