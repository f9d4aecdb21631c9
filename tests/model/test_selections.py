"""Filters and filter sets as Python people use them: operators, mappings, texts, explanations."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import (
    ContradaError,
    InvalidFilterError,
    InvalidNotificationError,
    LimitError,
    ParseError,
)
from contrada.model.algebra.expression import CONJUNCTIONS_MAX
from tests import strategies as some

POINTS = [
    ct.Notification({name: value for name, value in zip("abc", values, strict=True) if value})
    for values in product((None, 1, 2, "x"), repeat=3)
]
SETS = [
    ct.ops.eq(1),
    ct.ops.lt(2),
    ct.ops.ne(1),
    ct.ops.absent(),
    ct.ops.exists(),
    ct.ops.contains("x"),
    ct.ops.none_of(1),
]
filters = st.dictionaries(st.sampled_from("abc"), st.sampled_from(SETS), max_size=3).map(ct.Filter)
selections = filters | st.lists(filters, max_size=3).map(ct.FilterSet)


@given(selections, selections)
def test_operators_are_those_of_sets(
    f: ct.Filter | ct.FilterSet, g: ct.Filter | ct.FilterSet
) -> None:
    """A union, an intersection or a complement would match other notifications."""
    both, either, less, other = f & g, f | g, f - g, ~f
    for each in POINTS:
        in_f, in_g = f.matches(each), g.matches(each)
        assert both.matches(each) is (in_f and in_g)
        assert either.matches(each) is (in_f or in_g)
        assert less.matches(each) is (in_f and not in_g)
        assert other.matches(each) is not in_f
    assert ct.covers(f, less)
    assert not ct.meets(less, g)
    assert ct.equal(~other, f)
    assert (both | less) == ct.FilterSet(f)


alternatives = st.dictionaries(st.sampled_from("abc"), st.sampled_from(SETS), max_size=1)
unions = st.lists(alternatives.map(ct.Filter), min_size=3, max_size=4).map(ct.FilterSet)


@given(unions, unions)
@example(ct.FilterSet(["a = 1", "b = 1", {}]), ct.FilterSet(["a = 2", "b = 2", "c = 2"]))
def test_unions_of_several_filters_are_joined_exactly(f: ct.FilterSet, g: ct.FilterSet) -> None:
    """Of two large unions, one of them with everything, notifications would be lost."""
    both, less = f & g, f - g
    for each in POINTS:
        in_f, in_g = f.matches(each), g.matches(each)
        assert both.matches(each) is (in_f and in_g)
        assert less.matches(each) is (in_f and not in_g)


@given(st.lists(some.notifications(), min_size=1, max_size=3), selections, selections)
def test_several_values_are_a_choice_of_one(
    notifications: list[ct.Notification], f: ct.Filter, g: ct.Filter
) -> None:
    """The answers of both for several values would depend on the computation."""
    for each in notifications:
        names = list(each)
        choices = product(*(v if isinstance(v, tuple) else (v,) for v in each.values()))
        points = [ct.Notification(dict(zip(names, values, strict=True))) for values in choices]
        for selection in (f & g, f - g, ~f):
            assert selection.matches(each) is any(map(selection.matches, points))


def test_a_filter_with_a_filter_is_one_filter() -> None:
    """A conjunction would lose methods that only a single filter has."""
    both = ct.Filter("a = 1") & ct.Filter("b = 2")
    assert isinstance(both, ct.Filter)
    assert isinstance(ct.Filter("a = 1") & {"b": 2}, ct.Filter)
    assert both == ct.Filter("a = 1") & "b = 2" == ct.Filter("a = 1") & {"b": 2}
    assert ct.Filter("a = 1") | "b = 2 or c = 3" == ct.FilterSet("a = 1 or b = 2 or c = 3")
    assert ct.FilterSet("a = 1 or b = 2") & "a = 3" == ct.FilterSet("a = 3 and b = 2")
    assert ~ct.Filter({}) == ct.FilterSet([])


def test_operators_are_bounded() -> None:
    """A few characters could ask for millions of filters."""
    count = round(CONJUNCTIONS_MAX**0.5) + 1
    many = ct.FilterSet({"a": n, "b": n} for n in range(count))
    with pytest.raises(LimitError, match="CONJUNCTIONS_MAX"):
        many & ct.FilterSet({"c": n, "d": n} for n in range(count))


def test_matches_is_a_relation_beside_covers_and_meets() -> None:
    """The relation would answer otherwise than the method, or be taken for the operator."""
    for f in ("a < 5", "a = 1 or b = 2", {"a": 1}, ct.Filter("a = 1"), ct.FilterSet("a < 2")):
        assert ct.matches(f, {"a": 1})
        assert not ct.matches(f, ct.Notification({"a": 7}))
    assert ct.matches(ct.Advertisement("a = 1"), {"a": 1})
    assert not ct.matches(ct.Advertisement("a = 1"), {"a": 1, "b": 2})
    for operator in (("^a",), ("^a", "i")):
        with pytest.raises(InvalidFilterError, match=r"ct\.ops\.matches"):
            ct.matches(*operator)


def test_mappings_and_texts_are_accepted_as_filters() -> None:
    """A newcomer would have to wrap everything."""
    f = ct.Filter("a < 5")
    assert f.matches({"a": 1})
    assert ct.FilterSet("a < 5 or b = 1").matches({"b": 1, "c": {"d": datetime.now(UTC)}})
    assert not f.matches({})
    sent = ct.Notification({}, envelope=ct.Envelope(publisher="p"))
    assert ct.FilterSet("@publisher = 'p'").matches(sent)
    assert f.covers("a = 1 or a = 2")
    assert ct.FilterSet(f).covers({"a": [1, 2]})
    assert ct.covers("a < 5", {"a": 1})
    assert ct.meets({"a": 1}, "a = 1 or b = 2")
    assert ct.equal("a in (1, 2)", {"a": [1, 2]})
    assert ct.merge("a = 1", "a = 2") == ct.Filter("a in (1, 2)")
    assert ct.meets(ct.Advertisement("a = 1"), f)
    assert ct.witness("a = 1", but_not="b exists") == ct.Notification({"a": 1})
    unnamed = ct.witness("a = 1", but_not=ct.Advertisement("a = 1"))
    assert unnamed is not None, "an advertisement excludes attributes that it does not name"
    assert len(unnamed) == 2
    assert ct.simplify("a = 1 or a = 2") == ct.simplify(["a = 1", {"a": 2}])
    assert ct.simplify(f) == ct.FilterSet(f)


def test_refusals_have_a_reason() -> None:
    """A bare error of Python would be raised inside the library."""
    f = ct.Filter("a < 5")
    wrong: list[tuple[Callable[[], Any], type[ContradaError]]] = [
        (lambda: ct.Filter(None), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.Filter(5), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.Filter([1]), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.FilterSet(None), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.FilterSet({"a": 1}), InvalidFilterError),
        (lambda: ct.FilterSet([5]), InvalidFilterError),  # type: ignore[list-item]
        (lambda: ct.Query(None), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.Advertisement(None), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.simplify("a <"), ParseError),
        (lambda: ct.simplify(None), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.covers(f, None), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.meets(3, f), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.merge(f, None), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.witness(None), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: ct.explain(ct.merge, f, f), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: f.covers(None), InvalidFilterError),  # type: ignore[arg-type]
        (lambda: f & 5, InvalidFilterError),  # type: ignore[operator]
        (lambda: f.matches("text"), InvalidNotificationError),  # type: ignore[arg-type]
        (lambda: f.matches(None), InvalidNotificationError),  # type: ignore[arg-type]
        (lambda: ct.Notification(None), InvalidNotificationError),  # type: ignore[arg-type]
        (lambda: ct.Notification([1]), InvalidNotificationError),  # type: ignore[arg-type]
    ]
    for call, kind in wrong:
        with pytest.raises(kind):
            call()


ANSWERS = [
    (ct.covers, "a < 5", "a = 1", True, None),
    (ct.covers, "a = 1", "a < 5", False, "a < 5"),
    (ct.meets, "a = 1", "a = 2", False, None),
    (ct.meets, "a = 1", "b = 2", True, "a = 1 and b = 2"),
    (ct.equal, "a = 1", "a in (1)", True, None),
    (ct.equal, "a = 1", "a < 5", False, "a < 5"),
    (ct.equal, "a < 5", "a = 1", False, "a < 5"),
]


@pytest.mark.parametrize(("relation", "f", "g", "answer", "shows"), ANSWERS)
def test_an_explanation_shows_a_proof(
    relation: Any, f: str, g: str, answer: bool, shows: str | None
) -> None:
    """A caller would take a guess for a proof, or a proof for a guess."""
    found = ct.explain(relation, f, g)
    assert (found.answer, found.proved, bool(found)) == (answer, True, answer)
    assert (found.witness is not None) is (shows is not None)
    assert found.witness is None or ct.Filter(shows or "").matches(found.witness)


def test_a_safe_answer_is_no_proof() -> None:
    """It would look like a decision."""
    hard = " and ".join(f"a contains '{'x' * n}y'" for n in range(1, 3))
    assert ct.explain(ct.equal, hard, hard).proved
    f = ct.Filter("a matches /^(a|b)*a(a|b){18}$/ and a matches /^(a|b)*b(a|b){17}c$/")
    for relation, answer in ((ct.meets, True), (ct.covers, False)):
        found = ct.explain(relation, f, "a contains 'q'" if answer else f"{f} and a prefix 'q'")
        assert (found.answer, found.proved, found.witness) in (
            (answer, False, None),
            (not answer, True, None),
        )


def test_a_notification_shows_all_of_itself() -> None:
    """A person would not see the publisher, or the body."""
    notification = ct.Notification(
        {"a": 1}, body=b"x", content_type="t", envelope=ct.Envelope(id="i", publisher="p")
    )
    assert repr(ct.Notification({"a": 1})) == "Notification({'a': 1})"
    shown = repr(notification)
    for part in ("{'a': 1}", "body=b'x'", "content_type='t'", "id='i'", "publisher='p'"):
        assert part in shown
    assert eval(shown, vars(ct)) == notification
    assert str(notification) == "Notification({'a': 1})"


def test_a_filter_is_no_truth_value() -> None:
    """`f and g` would be g alone, and `not f` False, without a word."""
    f, g = ct.Filter("a = 1"), ct.FilterSet("b = 2 or c = 3")
    for wrong in (lambda: f and g, lambda: g or f, lambda: not f):
        with pytest.raises(TypeError, match="joined by `&`"):
            wrong()


def test_a_text_or_a_mapping_may_be_on_the_left() -> None:
    """Python would refuse to join a text and a filter."""
    f = ct.Filter("a > 1")
    assert "b = 2" & f == ct.Filter("b = 2 and a > 1")
    assert {"b": 2} | f == ct.FilterSet("b = 2 or a > 1")
    assert "a > 0" - f == ct.FilterSet("a > 0 and a <= 1")
