"""Conditions against a plain evaluation of them."""

import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.dialects import expression
from contrada.dialects.expression import Condition, Every, Member, Some
from contrada.errors import LimitError

SECONDS_MAX = 60.0
"""Far more than any of these needs on a busy machine."""

VALUES = (None, 1, 2, "a", "b")
MEMBERS = st.builds(
    Member,
    st.sampled_from("xyz"),
    st.one_of(
        st.sampled_from(VALUES).map(ct.eq),
        st.sampled_from(VALUES).map(lambda value: ct.eq(value) | ct.absent()),
        st.sampled_from(("a", "b")).map(ct.contains),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(lambda some: ct.in_(*some)),
        st.just(ct.exists()),
    ),
)
CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    MEMBERS,
    lambda parts: st.builds(
        lambda made, each: made(tuple(each)),
        st.sampled_from((Every, Some)),
        st.lists(parts, max_size=3),
    ),
    max_leaves=8,
)
NOTIFICATIONS = st.dictionaries(st.sampled_from("xyz"), st.sampled_from(VALUES)).map(
    ct.Notification
)

EVERY_NOTIFICATION = [
    ct.Notification({name: value for name, value in zip("xyz", values, strict=True) if value != 0})
    for values in product((0, *VALUES), repeat=3)  # 0 stands for absent
]


def holds(condition: Condition, notification: ct.Notification) -> bool:
    """The definition."""
    if isinstance(condition, Member):
        return ct.Filter({condition.name: condition.values}).matches(notification)
    every = isinstance(condition, Every)
    return (all if every else any)(holds(part, notification) for part in condition.parts)


@given(CONDITIONS, NOTIFICATIONS)
def test_a_filter_set_is_its_condition(condition: Condition, notification: ct.Notification) -> None:
    """If it failed, translated rules would match other notifications than the rules."""
    assert expression.filter_set(condition).matches(notification) is holds(condition, notification)


@given(st.lists(st.lists(MEMBERS, min_size=2, max_size=3), min_size=2, max_size=6), st.booleans())
def test_a_filter_set_that_overlaps_less_is_its_condition(
    alternatives: list[list[Member]], negated: bool
) -> None:
    """If it failed, rules with many exceptions would match other notifications than they say."""
    condition: Condition = Every(tuple(Some(tuple(each)) for each in alternatives))
    if negated:
        exceptions = Some(tuple(Every(tuple(each)) for each in alternatives))
        condition = expression.negation(exceptions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expression, "CHOICES_TRIED_MAX", 0)
        found = expression.filter_set(condition)
    for notification in EVERY_NOTIFICATION:
        assert found.matches(notification) is holds(condition, notification)


@given(CONDITIONS, NOTIFICATIONS)
def test_negation_is_the_complement(condition: Condition, notification: ct.Notification) -> None:
    """If it failed, `not` in a rule would mean something else than the opposite."""
    opposite = expression.filter_set(expression.negation(condition))
    assert opposite.matches(notification) is not holds(condition, notification)


def test_alternatives_of_one_attribute_are_one_filter() -> None:
    """If it failed, long lists of values would become as many filters."""
    many = Some(tuple(Member("x", ct.eq(n)) for n in range(1_000)))
    other = Some(tuple(Member("y", ct.eq(n)) for n in range(1_000)))
    assert len(expression.filter_set(Every((many, other)))) == 1


EXCEPTIONS = 30


def test_many_exceptions_become_few_filters() -> None:
    """If it failed, rules with some dozen exceptions would be refused, or fill the memory."""
    exceptions = [
        Every((Member("image", ct.eq(f"{n}.exe", nocase=True)), Member("path", ct.prefix(f"{n}/"))))
        for n in range(EXCEPTIONS)
    ]
    asked = (Member("user", ct.contains("x")), *map(expression.negation, exceptions))
    assert len(expression.filter_set(Every(asked))) == EXCEPTIONS + 1
    nested = Every((asked[0], Every(asked[1:])))
    assert len(expression.filter_set(nested)) == EXCEPTIONS + 1


def test_too_many_filters_are_refused() -> None:
    """If it failed, a small hostile rule could fill the memory."""
    pairs = [Some((Member(f"a{n}", ct.eq(1)), Member(f"b{n}", ct.eq(1)))) for n in range(60)]
    with pytest.raises(LimitError) as refused:
        expression.filter_set(Every(tuple(pairs)))
    assert refused.value.limit == "CONJUNCTIONS_MAX"


@pytest.mark.parametrize("exceptions", [200, 1_000])
def test_very_many_exceptions_are_read_or_refused_soon(exceptions: int) -> None:
    """If it failed, a rule of 40 KB could keep a reader of rules busy for minutes."""
    pairs = [
        Every((Member("a", ct.eq(f"x{n}", nocase=True)), Member("b", ct.contains(f"y{n}"))))
        for n in range(exceptions)
    ]
    start = time.perf_counter()
    if exceptions == 200:
        found = expression.filter_set(expression.negation(Some(tuple(pairs))))
        assert len(found) == exceptions + 1
    else:
        with pytest.raises(LimitError) as refused:
            expression.filter_set(expression.negation(Some(tuple(pairs))))
        assert refused.value.limit == "RELATIONS_ASKED_MAX"
    assert time.perf_counter() - start < SECONDS_MAX
