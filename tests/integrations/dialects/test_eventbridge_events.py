"""Events as sets of notifications."""

import json
import math
from typing import Any

import pytest
from hypothesis import given

from contrada.errors import EncodingError, InvalidNotificationError, LimitError
from contrada.integrations.dialects import eventbridge
from contrada.integrations.dialects.eventbridge.eventbridge_events import EVENT_NOTIFICATIONS_MAX
from tests.integrations.dialects.eventbridge_strategies import EVENTS


def attributes(event: dict[str, Any] | str, names: set[str] | None = None) -> list[dict[str, Any]]:
    return [dict(each.attributes) for each in eventbridge.notifications(event, names)]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({}, [{}]),
        ({"a": {"b": {"c": 1}}, "d": []}, [{"a.b.c": 1}]),
        ({"a": ["x", "y", "x"], "a.b": 1}, [{"a": ("x", "y"), "a.b": 1}]),
        ({"a": {"b": 1}, "a.b": 2}, [{"a.b": (1, 2)}]),
        ({"a": [[1, [2]], [3]]}, [{"a": (1, 2, 3)}]),
        ({"a": [{"b": 1}], "a.b": 2}, [{"a.b": (1, 2)}]),
        ({"a": [{"b": 1}, {"b": 2}]}, [{"a.b": 1}, {"a.b": 2}]),
        ({"a": [{"b": 1}, {"b": 1}]}, [{"a.b": 1}]),
        ({"a": [{"b": 1}, {}]}, [{"a.b": 1}, {}]),
        ({"a": [5, {"b": 1}, {"b": 2}]}, [{"a": 5, "a.b": 1}, {"a": 5, "a.b": 2}]),
        ({"a": [[5], {"b": 1}]}, [{"a": 5}, {"a": 5, "a.b": 1}]),
        ({"a": [{"b": [{"c": 1}, {"c": 2}]}, {"d": 3}]}, [{"a.b.c": 1}, {"a.b.c": 2}, {"a.d": 3}]),
        ({"a": 10**20, "b": 10**20 // 7 * 7.0}, [{"a": 1e20, "b": float(10**20 // 7 * 7)}]),
    ],
)
def test_events_are_notifications(event: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    """Fields of different elements would be combined, or a field be lost."""
    found = attributes(event)
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_several_arrays_give_every_choice() -> None:
    """Fields of two arrays, which may be combined, would not be."""
    found = attributes({"a": [{"b": 1}, {"b": 2}], "c": [{"d": 1}, {"d": 2}]})
    assert found == [{"a.b": b, "c.d": d} for b in (1, 2) for d in (1, 2)]


def test_unused_attributes_are_left_out() -> None:
    """Arrays that no pattern asks for would multiply the notifications."""
    event = {"a": [{"b": n, "c": 0} for n in range(500)], "d": [{"e": n} for n in range(500)]}
    assert len(attributes(event, {"d.e"})) == 500
    assert attributes(event, {"a.c"}) == [{"a.c": 0}]
    assert attributes({"a": 1, "\n": 2}, {"a"}) == [{"a": 1}]


def test_events_of_too_many_notifications_are_refused() -> None:
    """An event of some kilobytes could fill the memory."""
    arrays = {f"a{n}": [{"b": 1}, {"b": 2}] for n in range(11)}
    with pytest.raises(LimitError) as refused:
        eventbridge.notifications(arrays)
    assert refused.value.limit == "EVENT_NOTIFICATIONS_MAX"
    assert len(eventbridge.notifications({"a": arrays["a0"] * 500})) == 2
    elements = [{"b": n} for n in range(EVENT_NOTIFICATIONS_MAX)]
    assert len(eventbridge.notifications({"a": elements})) == EVENT_NOTIFICATIONS_MAX
    with pytest.raises(LimitError) as refused:
        eventbridge.notifications({"a": elements, "c": list(range(1_000))})
    assert refused.value.limit == "EVENT_VALUES_MAX"


def test_very_many_arrays_are_refused_at_once() -> None:
    """An event could fill the memory by the product of its arrays, or by reporting its size."""
    arrays = {f"a{n}": [{"b": 1}, {"b": 2}] for n in range(20_000)}
    with pytest.raises(LimitError) as refused:
        eventbridge.notifications(arrays)
    assert refused.value.limit == "EVENT_NOTIFICATIONS_MAX"
    assert refused.value.size == 2 * EVENT_NOTIFICATIONS_MAX


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("[1]", EncodingError),
        ("{", EncodingError),
        ('{"a": 1, "a": 2}', EncodingError),
        ({"a": {1, 2}}, InvalidNotificationError),
        ({"a": float("nan")}, EncodingError),
        ({"a": "\ud800"}, EncodingError),
        ('{"a": "\\ud800"}', InvalidNotificationError),
        ({"@id": 1}, InvalidNotificationError),
        ({"": 1}, InvalidNotificationError),
        ("[" * 100_000, LimitError),
        ('{"a":' * 200 + "1" + "}" * 200, LimitError),
    ],
)
def test_other_content_is_refused(event: dict[str, Any] | str, error: type[Exception]) -> None:
    """Something else than the event would be published, or the process end."""
    with pytest.raises(error):
        eventbridge.notifications(event)


@pytest.mark.parametrize("number", ["18446744073709551617", "0.10000000000000000001", "1e400"])
def test_a_number_that_cannot_be_held_is_no_number(number: str) -> None:
    """One field would refuse the event, or be another number than was sent."""
    [found] = attributes(f'{{"a": {number}, "b": 1}}')
    assert isinstance(found["a"], float)
    assert math.isnan(found["a"])
    assert found["b"] == 1


@given(EVENTS)
def test_events_survive_a_round_trip(event: dict[str, Any]) -> None:
    """An event would change on its path through a notification."""
    text = json.dumps(event)
    for given_event in (event, text, text.encode()):
        for each in eventbridge.notifications(given_event):
            assert eventbridge.event_of(each) == event
            assert each.content_type == "application/json"


def test_other_notifications_are_no_events() -> None:
    """Any body would be taken for an event."""
    [first] = eventbridge.notifications({"a": 1})
    for body, content_type in ((b"[1]", "application/json"), (b"{}", "text/plain"), (b"", "")):
        other = type(first)({"a": 1}, body=body, content_type=content_type)
        with pytest.raises(EncodingError):
            eventbridge.event_of(other)
