"""`ct.explain(filter, notification)`: the constraints that hold, and the causes of failures."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

import contrada as ct
from contrada.errors import InvalidNotificationError
from contrada.model.algebra.match_explanation import similar_names
from tests.strategies import filter_sets, notifications


@given(filter_sets(), notifications())
def test_an_explanation_agrees_with_the_match(
    wanted: ct.FilterSet, notification: ct.Notification
) -> None:
    """An explanation would contradict the delivery, or leave a failure without its cause."""
    found = ct.explain(wanted, notification)
    assert found.matches is bool(found) is wanted.matches(notification)
    assert found.filter in wanted.filters or not wanted.filters
    assert found.matches is (found.filter is not None and all(e.holds for e in found.constraints))
    for each in found.constraints:
        assert bool(each.cause) is not each.holds
        assert each.holds or each.cause.startswith(f"`{each.constraint}`: ")
    assert str(found)


CAUSES: list[tuple[str, Any, str]] = [
    ("price < 100", "61.5", '"61.5" is a text, expected a number; 61.5 would match'),
    ("price < 5", "61.5", '"61.5" is a text, expected a number; 61.5 would not match either'),
    ("price < 5", "NA", '"NA" is a text, expected a number'),
    ("price = '5'", 5, '5 is a number, expected a text; "5" would match'),
    ("price < 100", 100, "100 is the bound itself, which is left out"),
    ("price < 100", 100.5, "100.5 is above the nearest bound 100"),
    ("price <= 100", 101, "101 is above the nearest bound 100"),
    ("price between 5 and 10", 4, "4 is below the nearest bound 5"),
    ("price (< 0 | > 100)", 90, "90 is below the nearest bound 100"),
    ("price != 5", 5, "5 is the bound itself, which is left out"),
    ("price > 1", None, "null, expected a number"),
    ("price > 1", float("nan"), "nan, expected a number"),
    ("price = true", False, "false is another value"),
    ("price = true", "True", '"True" is a text, expected a truth value; true would match'),
    ("price absent", 4, "4 is a number, expected no value"),
    ("price nothing", 4, "4 fails, as every value does"),
    ("price in ('alpha', 'beta')", "alhpa", '"alhpa" is outside; "alpha" would match'),
    ("price (= 'alpha' | prefix 'b')", "alhpa", '"alhpa" is outside; "alpha" would match'),
    ("price = 'DIS'", "dis", '"dis" is outside; "DIS" would match'),
    ("price prefix 'Q'", " Q1", '" Q1" is outside; "Q1" would match'),
    ("price contains 'Q'", b"\xff\xfe", 'x"fffe" is outside'),
    (
        "price <= @2026-01-01T00:00:00Z",
        datetime(2026, 1, 2, tzinfo=UTC),
        "@2026-01-02T00:00:00Z is above the nearest bound @2026-01-01T00:00:00Z",
    ),
    ("price > 7", [3, "x"], "3 is below the nearest bound 7; no other of its 2 values holds"),
    (
        "price > @2026-01-01T00:00:00Z",
        "2026-05-01T00:00:00Z",
        '"2026-05-01T00:00:00Z" is a text, expected a time; @2026-05-01T00:00:00Z would match',
    ),
]


@pytest.mark.parametrize(("wanted", "value", "cause"), CAUSES)
def test_the_nearest_cause_of_a_failure(wanted: str, value: Any, cause: str) -> None:
    """A user would look for the fault in another place."""
    found = ct.explain(wanted, {"price": value})
    (result,) = found.constraints
    assert not found
    assert result.cause == f"`{result.constraint}`: {cause}"


@pytest.mark.parametrize(
    ("names", "near"),
    [
        (["Price", "pride"], "'price' is absent, there is 'Price'"),
        (["prise"], "'price' is absent, there is 'prise'"),
        (["o.x.Price", "prise", "o.price"], "'price' is absent, there is 'o.price' or 'o.x.Price'"),
        (
            [f"o.{n}.price" for n in "4321"],
            "'price' is absent, there is 'o.1.price' or 'o.2.price' or 'o.3.price'",
        ),
        (["quantity"], "'price' is absent"),
        ([], "'price' is absent"),
    ],
)
def test_similar_names_of_an_absent_attribute(names: list[str], near: str) -> None:
    """A slip of the pen in a name would look like missing data."""
    (result,) = ct.explain("price < 5", dict.fromkeys(names, 1)).constraints
    assert result.cause == f"`price < 5`: {near}"


def test_no_name_ends_in_an_empty_one() -> None:
    """An empty text would be similar to each sentence that ends with a point."""
    assert similar_names("", ["a.", "."]) == []


def test_names_that_differ_by_case_come_alone() -> None:
    """The obvious cause would be one of several."""
    assert similar_names("Straße", ["STRASSE", "Strasse", "Strafe"]) == ["STRASSE", "Strasse"]


def test_a_union_is_explained_by_its_nearest_member() -> None:
    """A user would read the causes of a filter that was never meant."""
    found = ct.explain("a = 9 and b = 9 or a = 1 and b = 3 or c = 1 and d = 2", {"a": 1, "b": 2})
    assert str(found) == (
        "does not match: a = 1 and b = 3, the nearest of 3 filters\n"
        "  holds: a = 1\n"
        "  fails: `b = 3`: 2 is below the nearest bound 3"
    )
    empty = ct.explain(ct.FilterSet([]), {"a": 1})
    assert (str(empty), empty.filter) == ("does not match: nothing", None)


def test_a_long_value_is_cut() -> None:
    """A hostile value would fill the screen."""
    assert len(str(ct.explain("a = 'x'", {"a": "y" * 10_000}))) < 500


def test_only_so_many_names_and_short_texts_are_compared() -> None:
    """An explanation would take minutes for a wide notification, or for long texts."""
    wanted = " and ".join(f"aby{number} = 1" for number in range(200))
    for names, near in ((100, "there is 'abx1'"), (101, "absent")):
        result = ct.explain(wanted, {f"abx{number}": 1 for number in range(names)}).constraints[1]
        assert result.cause.endswith(near)
    for length, is_near in ((1_000, True), (1_001, False)):
        found = ct.explain({"a": "y" * (length - 1) + "z"}, {"a": "y" * (length - 2) + "zy"})
        assert ("would match" in str(found)) is is_near


def test_what_is_no_notification_is_refused() -> None:
    """A bare error of Python would be raised inside the library."""
    with pytest.raises(InvalidNotificationError):
        ct.explain("a = 1", 5)  # type: ignore[call-overload]
