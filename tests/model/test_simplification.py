"""Merging and simplifying by table, where random filters seldom have something to drop."""

from itertools import permutations

import pytest
from hypothesis import given

from contrada.model import Filter, FilterSet, Notification
from contrada.model.algebra import relations
from contrada.model.algebra.simplification import simplify
from tests import strategies as some

TABLE = [  # before, after in any order
    (["a < 5", "a < 3 and b = 1"], ["a < 5"]),
    (["a < 3 and b = 1", "a < 5"], ["a < 5"]),
    (["a < 5", "a between 5 and 7", "a = 9"], ["a (<= 7 | = 9)"]),
    (
        ["a = 1 and b = 1", "a = 2 and b = 1", "a in (1, 2) and b = 2"],
        ["a in (1, 2) and b in (1, 2)"],
    ),
    (["a = 1", "b = 1"], ["a = 1", "b = 1"]),
    (["a contains 'x'", "a contains 'xy'", "a = 'axb' and c = 1"], ["a contains 'x'"]),
    (["a prefix 'x'", "a prefix 'xy' and b any", "everything"], ["everything"]),
    (["a (= 1 | contains 'x')", "a = 'axb' and b = 1"], ["a (= 1 | contains 'x')"]),
    (["a < 1 and a > 2", "b = 1"], ["b = 1"]),
    (["a nothing"], []),
    ([], []),
    (["a = 1", "a = 1", "a = 1.0"], ["a = 1"]),
    (["a in (1, 2) and b = 1", "a = 1 and b in (1, 2)"],) * 2,
]


@pytest.mark.parametrize(("before", "after"), TABLE, ids=lambda texts: " or ".join(texts)[:40])
def test_simplify(before: list[str], after: list[str]) -> None:
    """A covered filter would stay, a covering one be dropped, or a merge be missed."""
    simple = simplify(Filter(text) for text in before)
    expected = [Filter(text) for text in after]
    assert len(simple) == len(expected)
    assert all(f in expected for f in simple)
    assert relations.equal(simple, FilterSet([Filter(text) for text in before]))


@given(some.filters(), some.filters(), some.filters())
def test_covered_filters_are_dropped(f: Filter, g: Filter, h: Filter) -> None:
    """Subscriptions that others cover would be forwarded."""
    members = [f & g, f, g & h, h, f & h]
    simple = simplify(members)
    assert relations.equal(simple, FilterSet(members))
    pairs = permutations(simple.filters, 2)
    assert not any(relations.covers(one, two) for one, two in pairs)


MERGES = [
    ("a = 1 and b = 1", "a = 2 and b = 1", "a in (1, 2) and b = 1"),
    ("a < 5", "a >= 5", "a <= inf"),
    ("a = 1", "a = 1 and b = 1", "a = 1"),
    ("a = 1 and b = 1", "a = 1", "a = 1"),
    ("a nothing", "b = 1", "b = 1"),
    ("a absent", "a any", "everything"),
    ("a = 1", "b = 1", None),
    ("a = 1 and b = 1", "a = 2 and b = 2", None),
]


@pytest.mark.parametrize(("f", "g", "merged"), MERGES)
def test_merge(f: str, g: str, merged: str | None) -> None:
    """Two filters would be merged into one that matches more, or not at all."""
    assert relations.merge(Filter(f), Filter(g)) == (None if merged is None else Filter(merged))
    assert relations.merge(Filter(g), Filter(f)) == (None if merged is None else Filter(merged))


def test_the_order_of_values_has_no_meaning() -> None:
    """One notification would be two, by the order in which its values were given."""
    n = Notification({"a": [9, 1, True, "x", 1.0], "b": {2}})
    assert n == Notification({"b": 2, "a": ("x", 1, True, 9)})
    assert hash(n) == hash(Notification({"b": 2, "a": ("x", 1, True, 9)}))
    assert n["a"] == (True, 1, 9, "x")
    assert n["b"] == 2
