"""`SourceQuery`: the query of a text, a filter or a class, and the items that answer it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given

import contrada as ct
from contrada.errors import (
    InvalidNotificationError,
    InvalidObventError,
    LimitError,
    ParseError,
    ServiceError,
    UnsatisfiableFilterError,
)
from contrada.integrations.dialects.cesql import read as read_cesql
from contrada.model import Filter, FilterSet, Notification
from contrada.model.algebra.relations import meets
from contrada.service.query import source_query as module
from contrada.service.query.source_query import SourceQuery
from tests.strategies import filter_sets, notifications


@given(filter_sets(max_size=3), notifications())
def test_a_filter_set_is_a_question(filters: FilterSet, item: Notification) -> None:
    """The answers would differ from the notifications of the same subscription."""
    if filters.is_empty:
        with pytest.raises(UnsatisfiableFilterError):
            SourceQuery(filters)
        return
    for asked in (
        SourceQuery(filters),
        SourceQuery(str(filters)),
        SourceQuery(str(SourceQuery(filters))),
    ):
        assert asked.answers(item) == filters.matches(item)
        assert asked.filters == filters


TEXTS: dict[str, Callable[[dict[str, int]], bool]] = {
    "a = $x and b = $x": lambda n: "a" in n and n.get("a") == n.get("b"),
    "(a = $x and b = $x) or (a = $x and c = $x)": lambda n: (
        "a" in n and (n["a"] == n.get("b") or n["a"] == n.get("c"))
    ),
    "a = $x and (b = $x or c = $x)": lambda n: (
        "a" in n and (n["a"] == n.get("b") or n["a"] == n.get("c"))
    ),
    "a = $x and (b = $x or c = 1) and (b = 2 or c = $x)": lambda n: (
        "a" in n
        and (n["a"] == n.get("b") or n.get("c") == 1)
        and (n.get("b") == 2 or n["a"] == n.get("c"))
    ),
    "a = $x and (b = $x or c = 1 or c = 2) and (b = 2 or c = $x or a = 1) and (a = 0 or b = $x)": (
        lambda n: (
            "a" in n
            and (n["a"] == n.get("b") or n.get("c") in (1, 2))
            and (n.get("b") == 2 or n["a"] == n.get("c") or n["a"] == 1)
            and (n["a"] == 0 or n["a"] == n.get("b"))
        )
    ),
    "a = $x and b = $y and a = $y and c = $x": lambda n: (
        "a" in n and n["a"] == n.get("b") == n.get("c")
    ),
    "a = $x": lambda n: "a" in n,
    "a = $x and a > 1": lambda n: n.get("a", 0) > 1,
    "a = $x or c = 2": lambda n: "a" in n or n.get("c") == 2,
    "not (a = 1) and b = $x and c = $x": lambda n: (
        n.get("a") != 1 and "b" in n and n["b"] == n.get("c")
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_variables(text: str) -> None:
    """A variable would mean something else than that values are equal, somewhere in a text."""
    asked = SourceQuery(text)
    values = (None, 0, 1, 2)
    for a in values:
        for b in values:
            for c in values:
                item = {n: v for n, v in zip("abc", (a, b, c), strict=True) if v is not None}
                assert asked.answers(item) == TEXTS[text](item), item
                assert SourceQuery(str(asked)).answers(item) == asked.answers(item)
                if asked.answers(item):
                    assert asked.filters.matches(item)


def test_routing_sees_what_both_may_be() -> None:
    """A query would reach sources where the values cannot be equal."""
    asked = SourceQuery("origin = $x and dest = $x and origin in ('JFK', 'LGA') and dest >= 'K'")
    (one,) = asked.alternatives
    assert one.same == (("dest", "origin"),)
    assert meets(one.query, Filter("dest = 'LGA'"))
    assert not meets(one.query, Filter("origin = 'JFK'"))
    with pytest.raises(UnsatisfiableFilterError):
        SourceQuery("origin = $x and dest = $x and origin = 'JFK' and dest = 'LGA'")


def test_a_sign_in_a_text_is_no_variable() -> None:
    """A text, a name, an expression or a comment with `$x` in it would be changed."""
    item = {"a": "= $x", "b$x": 1, "c $x": "it's $x", "d": 2}
    for text in (
        "a = '= $x'",
        'a = "= $x" and d = $y',
        "`c $x` matches /it's \\$x/ and d = $y",
        "b$x = 1 and d = $x",
        "d = $x # and a = $x",
    ):
        assert SourceQuery(text).answers(item), text
    assert not SourceQuery("a = $x and d = $x").answers(item)


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("not (a = $x)", 1),
        ("b = 1 and not (a = 1 or a = $x)", 11),
        ("a != $x", 3),
        ("a < $x", 5),
        ("a in ($x)", 7),
        ("a = $1", 5),
        ("a = $x -> b = 1", 8),
        ("a = 1 -> b = 1", 1),
        ("a = $x and", 11),
    ],
)
def test_errors_say_the_place(text: str, column: int) -> None:
    """The user would not find the mistake."""
    with pytest.raises(ParseError) as caught:
        SourceQuery(text)
    assert (caught.value.line, caught.value.column) == (1, column)


def test_values_are_equal_as_in_the_model() -> None:
    """Equality would be Python's."""
    asked = SourceQuery("a = $x and b = $x")
    assert asked.answers({"a": 5, "b": 5.0})
    assert asked.answers({"a": math.nan, "b": math.nan})
    assert not asked.answers({"a": 1, "b": True})
    assert asked.answers({"a": [1, 2], "b": [2, 3]})


@dataclass
@ct.obvent
class Fare(ct.Obvent):
    """An obvent of these tests."""

    origin: str
    dest: str
    price: float


def test_classes_and_predicates() -> None:
    """A class, a filter or a predicate would ask for something else than when subscribed."""
    fares = [Fare("A", "A", 1.0), Fare("A", "B", 5.0), Fare("B", "B", 9.0)]
    assert [n["price"] for n in SourceQuery(Fare).select(fares)] == [1.0, 5.0, 9.0]
    assert [n["price"] for n in SourceQuery(Fare, "price > 2").select(fares)] == [5.0, 9.0]
    same = "origin = $x and dest = $x"
    assert [n["price"] for n in SourceQuery(Fare, same).select(fares)] == [1.0, 9.0]
    lifted = SourceQuery(Fare, lambda fare: fare.price > 2)
    assert lifted.residue is None
    assert [n["price"] for n in lifted.select(fares)] == [5.0, 9.0]
    left = SourceQuery(Fare, lambda fare: fare.price > 2 and hash(fare.origin) == hash("B"))
    assert [n["price"] for n in left.select(fares)] == [9.0]
    assert not SourceQuery(Fare).answers({"origin": "A", "dest": "A", "price": 1.0})
    with pytest.raises(InvalidObventError):
        SourceQuery(Fare, "color = 'red'")


def test_rules_have_a_residue() -> None:
    """The residue of a rule would be forgotten."""
    rule = read_cesql("LENGTH(a) = 2 AND b = 1")
    asked = SourceQuery(rule)
    assert asked.residue is not None
    assert asked.answers({"a": "xx", "b": 1})
    assert not asked.answers({"a": "xxx", "b": 1})


def test_a_question_as_it_came() -> None:
    """A source would decide about another query."""
    asked = SourceQuery("(a = $x and b = $x and c < 3) or d = 1")
    assert SourceQuery.of(asked.alternatives) == asked
    assert hash(SourceQuery.of(asked.alternatives)) == hash(asked)
    assert SourceQuery("a = 1") != asked


def test_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid query would be sent."""
    for wrong in (3, ["a = 1"], Notification({})):
        with pytest.raises(ServiceError):
            SourceQuery(wrong)  # type: ignore[arg-type]
    for text in ("nothing", "a = 1 and a = 2"):
        with pytest.raises(UnsatisfiableFilterError):
            SourceQuery(text)
    with pytest.raises(UnsatisfiableFilterError):
        SourceQuery.of([])
    asked = SourceQuery("a = 1")
    with pytest.raises(AttributeError):
        asked.residue = None  # type: ignore[misc]
    with pytest.raises(InvalidNotificationError):
        asked.answers({"a": object()})
    monkeypatch.setattr(module, "ALTERNATIVES_MAX", 3)
    assert len(SourceQuery("a = 1 or b = 1 or c = 1").alternatives) == 3
    with pytest.raises(LimitError, match="ALTERNATIVES_MAX"):
        SourceQuery("a = 1 or b = 1 or c = 1 or d = 1")
    with pytest.raises(LimitError, match="ALTERNATIVES_MAX"):
        SourceQuery(Filter("a = 1") | Filter("b = 1"), Filter("c = 1") | Filter("d = 1"))


def test_terms_are_values() -> None:
    """A term with variables would not be asked for, or routing be narrower than the source."""
    asked = SourceQuery("route unifies 'leg(_X, rome)' and a = $x and b = $x")
    items = [
        {"route": "leg(paris, rome)", "a": 1, "b": 1},
        {"route": "leg(_Y, rome)", "a": 1, "b": 1},
        {"route": "leg(_Y, _Y)", "a": 1, "b": 1},
        {"route": "leg(paris, oslo)", "a": 1, "b": 1},
        {"route": "leg(paris, rome)", "a": 1, "b": 2},
        {"route": "no term(", "a": 1, "b": 1},
    ]
    assert [asked.answers(each) for each in items] == [True, True, True, False, False, False]
    (one,) = asked.alternatives
    assert meets(one.query, Filter("route unifies 'leg(paris, _Y)'"))
    assert not meets(one.query, Filter("route = 'leg(paris, oslo)'"))
