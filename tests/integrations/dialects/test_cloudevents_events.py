"""CloudEvents as notifications."""

import base64
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import EncodingError, InvalidNotificationError, LimitError
from contrada.integrations.dialects import cloudevents
from contrada.model import Notification

LEAST = {"specversion": "1.0", "id": "1", "source": "/here", "type": "made"}

DEEP = 50_000 if sys.version_info < (3, 14) else 5_000_000
"""A nesting that the stack of Python's reader has no room for."""

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
ATTRIBUTES = st.fixed_dictionaries(
    {name: st.text(min_size=1, max_size=5) for name in ("id", "source", "type")},
    optional={
        "subject": st.text(min_size=1, max_size=5),
        "time": st.just("2026-01-02T03:04:05.123456789Z"),
        "ext1": st.text(max_size=5) | st.booleans() | st.integers(-(2**31), 2**31 - 1),
        "0": st.booleans(),
    },
).map(lambda attributes: {"specversion": "1.0", **attributes})
BYTES = st.binary(max_size=8).map(lambda data: base64.b64encode(data).decode())
DATA: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.builds(lambda data: {"data": data}, JSON),
    st.builds(
        lambda kind, data: {"datacontenttype": kind, "data": data},
        st.sampled_from(("application/json", "text/json; charset=utf-8", "a/b+JSON")),
        JSON,
    ),
    st.builds(
        lambda kind, data: {"datacontenttype": kind, "data": data},
        st.sampled_from(("text/plain", "application/xml", "a/b+xml", "text/html; charset=UTF-16")),
        st.text(max_size=5),
    ),
    st.builds(lambda data: {"data_base64": data}, BYTES),
    st.builds(lambda data: {"datacontenttype": "image/png", "data_base64": data}, BYTES),
    st.builds(
        lambda kind: {"datacontenttype": kind, "data_base64": "/w=="},
        st.sampled_from(("application/json", "text/plain")),
    ),
)


@given(ATTRIBUTES, DATA)
def test_events_survive_a_round_trip(attributes: dict[str, Any], data: dict[str, Any]) -> None:
    """An event would change on its path through the service."""
    event = {**attributes, **data}
    for given_event in (event, json.dumps(event), json.dumps(event).encode()):
        read = cloudevents.notification(given_event)
        assert cloudevents.event_of(read) == event
        assert {name: read[name] for name in attributes} == attributes


@pytest.mark.parametrize(
    ("data", "attributes"),
    [
        ({"a": 1, "b": {"c": [True, None]}}, {"data.a": 1, "data.b.c": (None, True)}),
        ({"a.b": 1, "a": {"b": 2}}, {"data.a.b": (1, 2)}),
        ("x", {"data": "x"}),
        (None, {"data": None}),
        ([1, 2], {"data": (1, 2)}),
        ([], {}),
        ({"a": [{"b": 1}], "c": [[1]], "\n": 1, "d": 2**70, "e": [1, 2**70]}, {"data.e": 1}),
    ],
)
def test_json_data_are_attributes(data: Any, attributes: dict[str, Any]) -> None:
    """No filter could use the content of an event."""
    for event in (
        {**LEAST, "data": data},
        {
            **LEAST,
            "datacontenttype": "text/json",
            "data_base64": base64.b64encode(json.dumps(data).encode()).decode(),
        },
    ):
        read = cloudevents.notification(event)
        found = {name: value for name, value in read.attributes.items() if name[:4] == "data"}
        found.pop("datacontenttype", None)
        assert found == attributes
        assert json.loads(read.body) == data


@pytest.mark.parametrize(
    ("member", "body", "content_type"),
    [
        ({}, b"", ""),
        ({"data": None}, b"null", "application/json"),
        ({"data": "x"}, b'"x"', "application/json"),
        ({"datacontenttype": "text/plain", "data": ""}, b"", "text/plain"),
        ({"datacontenttype": "a/b", "data": "é"}, "é".encode(), "a/b"),
        (
            {"datacontenttype": "text/a; charset=iso-8859-1", "data": "é"},
            b"\xe9",
            "text/a; charset=iso-8859-1",
        ),
        ({"data_base64": "/w=="}, b"\xff", "application/octet-stream"),
        ({"datacontenttype": "a/b", "data_base64": "/w=="}, b"\xff", "a/b"),
    ],
)
def test_data_are_the_body(member: dict[str, Any], body: bytes, content_type: str) -> None:
    """Readers without CloudEvents could not read the data by their type."""
    read = cloudevents.notification({**LEAST, **member})
    assert (read.body, read.content_type) == (body, content_type)


def test_attributes_that_are_null_are_not_set() -> None:
    """An attribute would exist that is absent by the specification."""
    read = cloudevents.notification({**LEAST, "subject": None, "ext": None})
    assert set(read) == set(LEAST)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": None},
        {"id": ""},
        {"type": 5},
        {"specversion": "0.3"},
        {"Ext": "x"},
        {"an_ext": "x"},
        {"@time": "x"},
        {"ext": 2**31},
        {"ext": 1.5},
        {"ext": ["x"]},
        {"ext": {"a": 1}},
        {"ext": "\ud800"},
        {"time": "nonsense"},
        {"time": "2026-02-29T00:00:00Z"},
        {"time": "2026-01-02 03:04:05Z"},
        {"time": "2026-01-02T24:00:00Z"},
        {"time": "2026-01-02T03:04:05"},
        {"time": "2026-01-02T03:04:05+2400"},
        {"data": 1, "data_base64": ""},
        {"data_base64": "no base64"},
        {"data_base64": 5},
        {"data": {1, 2}},
        {"data": float("nan")},
        {"data": 5, "datacontenttype": "text/plain"},
        {"data": "é", "datacontenttype": "text/plain; charset=us-ascii"},
        {"data": "x", "datacontenttype": "text/plain; charset=rot13"},
    ],
)
def test_other_content_is_refused(wrong: dict[str, Any]) -> None:
    """Other content would pass as a CloudEvent."""
    with pytest.raises(InvalidNotificationError):
        cloudevents.notification({**LEAST, **wrong})


@pytest.mark.parametrize(
    "time",
    ["0000-02-29t23:59:60z", "2026-01-02T03:04:05.123456789-23:59", "9999-12-31T23:59:59+00:00"],
)
def test_times_are_those_of_their_standard(time: str) -> None:
    """An event that others accept would be refused for its time."""
    assert cloudevents.notification({**LEAST, "time": time})["time"] == time


def test_data_given_twice_are_shown() -> None:
    """The sender of both would not see the data beside data_base64."""
    with pytest.raises(InvalidNotificationError) as error:
        cloudevents.notification({**LEAST, "data": {"a": 1}, "data_base64": ""})
    assert error.value.value == {"a": 1}


def test_texts_that_are_no_events_are_refused() -> None:
    """A fault of a sender would end the receiver."""
    for text in ("", "[]", "5", '{"id": "1", "id": "2"}'):
        with pytest.raises(EncodingError):
            cloudevents.notification(text)
    deep = json.dumps(LEAST)[:-1] + ', "data": ' + "[" * DEEP + "]" * DEEP + "}"
    with pytest.raises(LimitError):
        cloudevents.notification(deep)


@pytest.mark.parametrize(
    "given_notification",
    [
        Notification({"id": "1", "source": "/", "type": "t"}),
        Notification({**LEAST, "Name": 1}),
        Notification({**LEAST, "ext": ("a", "b")}),
        Notification({**LEAST, "ext": b"\xff"}),
        Notification(LEAST, body=b"x"),
        Notification({**LEAST, "data.price": 5}),
        Notification({**LEAST, "data": 5}, body=b"6", content_type="application/json"),
        Notification(
            {**LEAST, "data.a": 1, "data.b": 2}, body=b'{"a": 1}', content_type="application/json"
        ),
        Notification(
            {**LEAST, "data.b": 2},
            body=b'{"a":' * 200 + b"1" + b"}" * 200,
            content_type="application/json",
        ),
    ],
)
def test_other_notifications_are_no_events(given_notification: Notification) -> None:
    """An event would be sent out that no other CloudEvents program accepts."""
    with pytest.raises(EncodingError):
        cloudevents.event_of(given_notification)
