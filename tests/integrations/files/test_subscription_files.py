"""Files of subscriptions."""

import pytest

from contrada.errors import InputError
from contrada.integrations.files.subscription_files import read_subscriptions
from contrada.model import Filter, parse


def test_names_and_filters_in_order() -> None:
    """Else a subscription would be reported under another's name."""
    text = (
        "\ufeff# desk\n\n late at JFK :  delay > 120 and origin = 'JFK'\r\n"
        "url: a = 'x:y'\nor: a = 1 or b = 2"
    )
    found = read_subscriptions(text, "f")
    assert list(found) == ["late at JFK", "url", "or"]
    assert found["late at JFK"] == Filter("delay > 120 and origin = 'JFK'")
    assert found["url"] == Filter("a = 'x:y'")
    assert found["or"] == parse("a = 1 or b = 2")


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ("a: x = 1\nb x = 1", 2, 1, "expected `name: filter`"),
        (": x = 1", 1, 1, "expected `name: filter`"),
        ("a: x = 1\n\na: y = 1", 3, 1, "found the name 'a' again"),
        ("a:", 1, 3, "expected a filter"),
        ("a:  x ? 1", 1, 7, "expected"),
        ("a: x = 1 and", 1, None, "expected"),
        ("a: x = 1 -> y = 2", 1, 3, "found a pattern"),
        ("a: x < 1 and x > 2", 1, 3, "nothing can match"),
        ("a: x < 1 and x > 2 or y in (1) and y = 2", 1, 3, "nothing can match"),
        ("x" * 300 + ": a = 1", 1, 1, "NAME_CHARS_MAX"),
        ("# nothing", None, None, "no subscription"),
    ],
)
def test_errors_name_their_place(
    text: str, line: int | None, column: int | None, reason: str
) -> None:
    """Else the user would search the file for the fault."""
    with pytest.raises(InputError) as caught:
        read_subscriptions(text, "f")
    assert caught.value.line == line
    assert reason in caught.value.reason
    if column is not None:
        assert caught.value.column == column
