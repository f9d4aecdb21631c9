"""Lines that show notifications, and the notifications that they show."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from contrada.errors import ContradaError
from contrada.integrations.files import notification_of_shown, shown_text
from contrada.model import Notification
from tests import strategies as some

AT = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
JSON = "application/json"


@given(some.notifications())
def test_output_is_valid_input(of: Notification) -> None:
    """`sub --json | pub --json` would lose or change something."""
    found = notification_of_shown(shown_text(of))
    assert found.with_envelope(of.envelope) == of
    assert list(found) == list(of)


SHOWN: list[tuple[Notification, str]] = [
    (Notification({"b": 1, "a": ["y", "x"]}), '{"b":1,"a":["x","y"]}'),
    (
        Notification({"t": AT, "n": math.nan}),
        '{"t":{"$time":"2026-11-20T09:30:00Z"},"n":{"$number":"NaN"}}',
    ),
    (Notification({"a": {"b": [{"c": 1}]}, "d": 2}), '{"a":{"b":[{"c":1}]},"d":2}'),
    (Notification.with_marks({"a": 1}, ["T"]), '{"a":1,"@is.T":true}'),
    (Notification({"a": 1}, body=b"hi"), '{"a":1,"$body":{"$text":"hi","$type":""}}'),
    (Notification({}, body=b"\xff", content_type="x"), '{"$body":{"$bytes":"ff","$type":"x"}}'),
    (
        Notification({"$body": 1}, body=b"hi", content_type=JSON),
        '{"$body":1,"$$body":{"$text":"hi","$type":"application/json"}}',
    ),
    (
        Notification({"a": [2, 1]}, body={"a": [2, 1]}),
        '{"a":[1,2],"$body":{"$text":"{\\"a\\":[2,1]}","$type":"application/json"}}',
    ),
    (
        Notification({"a": 1}, body=b'{"a":[{}],\n"b":1}', content_type=JSON),
        '{"a":1,"$body":{"$text":"{\\"a\\":[{}],\\n\\"b\\":1}","$type":"application/json"}}',
    ),
]


@pytest.mark.parametrize(("of", "line"), SHOWN)
def test_lines_are_easy_to_read(of: Notification, line: str) -> None:
    """The output would differ from the input, or be published differently."""
    assert shown_text(of) == line
    assert notification_of_shown(line) == of


def test_a_line_is_kept_when_asked() -> None:
    """The order of several values would be lost for ever."""
    line = '{"tags": ["b", "a", "b"]}'
    kept = notification_of_shown(line, keep=True)
    assert (kept.body, kept.content_type) == (line.encode(), JSON)
    assert notification_of_shown(line).body == b""
    shown = json.loads(shown_text(kept))
    assert shown["$body"]["$text"] == line
    assert notification_of_shown(shown_text(kept), keep=True) == kept


BAD: list[tuple[Any, str]] = [
    ({"x": {"$bytes": "", "$type": ""}, "y": {"$text": "", "$type": ""}}, "two bodies, 'x' and"),
    ({"$body": {"$bytes": "0g", "$type": ""}}, "hexadecimal"),
    ({"$body": {"$bytes": 5, "$type": ""}}, "a text"),
    ({"$body": {"$text": None, "$type": ""}}, "a text"),
    ({"$body": {"$text": "", "$type": 5}}, "must be a str"),
    ({"$body": {"$text": "", "$type": ""}, "a": [{}]}, "given already"),
    ({"@is.T": 1}, "reserved"),
    ({"@is.": True}, "reserved"),
    ({"@id": "x"}, "reserved"),
]


@pytest.mark.parametrize(("content", "reason"), BAD)
def test_lines_that_show_no_notification_are_refused(content: Any, reason: str) -> None:
    """A bare error would end the command."""
    with pytest.raises(ContradaError, match=reason):
        notification_of_shown(json.dumps(content))
