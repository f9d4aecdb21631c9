"""Conditions against a plain evaluation of them."""

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import LimitError
from contrada.model.algebra import expression
from contrada.model.algebra.expression import And, Formula, Member, Or
from contrada.model.algebra.filter import filter_set

SECONDS_MAX = 30.0
"""Far more than any of these needs on a busy machine."""

VALUES = (None, 1, 2, "a", "b", "Ab")
MEMBERS = st.builds(
    Member,
    st.sampled_from("xyz"),
    st.one_of(
        st.sampled_from(VALUES).map(ct.ops.eq),
        st.sampled_from(VALUES).map(lambda value: ct.ops.eq(value) | ct.ops.absent()),
        st.sampled_from(("a", "b")).map(ct.ops.contains),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(
            lambda some: ct.ops.in_(*some)
        ),
        st.just(ct.ops.exists()),
        st.builds(
            lambda build, text: build(text, nocase=True),
            st.sampled_from((ct.ops.eq, ct.ops.prefix, ct.ops.suffix, ct.ops.contains)),
            st.sampled_from(("a", "ab", "B")),
        ),
    ),
)
CONDITIONS: st.SearchStrategy[Formula] = st.recursive(
    MEMBERS,
    lambda parts: st.builds(
        lambda made, each: made(tuple(each)),
        st.sampled_from((And, Or)),
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


def holds(condition: Formula, notification: ct.Notification) -> bool:
    """The definition."""
    if isinstance(condition, Member):
        return ct.Filter({condition.name: condition.values}).matches(notification)
    every = isinstance(condition, And)
    return (all if every else any)(holds(part, notification) for part in condition.parts)


@given(CONDITIONS, NOTIFICATIONS)
def test_a_filter_set_is_its_condition(condition: Formula, notification: ct.Notification) -> None:
    """If it failed, translated rules would match other notifications than the rules."""
    assert filter_set(condition).matches(notification) is holds(condition, notification)


@given(st.lists(st.lists(MEMBERS, min_size=2, max_size=3), min_size=2, max_size=6), st.booleans())
def test_a_filter_set_that_overlaps_less_is_its_condition(
    alternatives: list[list[Member]], negated: bool
) -> None:
    """Rules with many exceptions would match other notifications than they define."""
    condition: Formula = And(tuple(Or(tuple(each)) for each in alternatives))
    if negated:
        exceptions = Or(tuple(And(tuple(each)) for each in alternatives))
        condition = expression.negation(exceptions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expression, "CHOICES_TRIED_MAX", 0)
        found = filter_set(condition)
    for notification in EVERY_NOTIFICATION:
        assert found.matches(notification) is holds(condition, notification)


@pytest.mark.parametrize("outer", [And, Or])
@pytest.mark.parametrize("inner", [And, Or])
def test_a_condition_of_one_part_is_that_part(outer: type[And | Or], inner: type[And | Or]) -> None:
    """If it failed, alternatives in a list of one would all have to hold."""
    parts = Member("x", ct.ops.eq(1)), Member("y", ct.ops.eq(1))
    for wrapped in (outer((Or((inner(parts),)),)), outer((And((inner(parts),)),))):
        for notification in EVERY_NOTIFICATION:
            found = filter_set(wrapped).matches(notification)
            assert found is holds(inner(parts), notification)


@given(CONDITIONS, NOTIFICATIONS)
def test_negation_is_the_complement(condition: Formula, notification: ct.Notification) -> None:
    """If it failed, `not` in a rule would mean something else than the opposite."""
    opposite = filter_set(expression.negation(condition))
    assert opposite.matches(notification) is not holds(condition, notification)


def test_alternatives_of_one_attribute_are_one_filter() -> None:
    """If it failed, long lists of values would become as many filters."""
    many = Or(tuple(Member("x", ct.ops.eq(n)) for n in range(1_000)))
    other = Or(tuple(Member("y", ct.ops.eq(n)) for n in range(1_000)))
    assert len(filter_set(And((many, other)))) == 1


EXCEPTIONS = 30


def test_many_exceptions_become_few_filters() -> None:
    """If it failed, rules with some dozen exceptions would be refused, or fill the memory."""
    exceptions = [
        And(
            (
                Member("image", ct.ops.eq(f"{n}.exe", nocase=True)),
                Member("path", ct.ops.prefix(f"{n}/")),
            )
        )
        for n in range(EXCEPTIONS)
    ]
    asked = (Member("user", ct.ops.contains("x")), *map(expression.negation, exceptions))
    assert len(filter_set(And(asked))) == EXCEPTIONS + 1
    nested = And((asked[0], And(asked[1:])))
    assert len(filter_set(nested)) == EXCEPTIONS + 1


@pytest.mark.slow
def test_too_many_filters_are_refused() -> None:
    """If it failed, a small hostile rule could fill the memory."""
    pairs = [Or((Member(f"a{n}", ct.ops.eq(1)), Member(f"b{n}", ct.ops.eq(1)))) for n in range(60)]
    with pytest.raises(LimitError) as refused:
        filter_set(And(tuple(pairs)))
    assert refused.value.limit == "CONJUNCTIONS_MAX"


KINDS: list[tuple[str, Callable[[int], ct.ValueSet], Callable[[int], ct.ValueSet]]] = [
    ("equal", lambda n: ct.ops.eq(f"x{n}", nocase=True), lambda n: ct.ops.contains(f"y{n}")),
    ("numbers", ct.ops.eq, lambda n: ct.ops.contains(f"y{n}")),
    (
        "suffix",
        lambda n: ct.ops.suffix(f"\\{n}.exe", nocase=True),
        lambda n: ct.ops.contains(f"y{n}"),
    ),
    (
        "prefix",
        lambda n: ct.ops.prefix(f"c:\\{n}\\", nocase=True),
        lambda n: ct.ops.matches(f"y{n}.*z"),
    ),
    ("last", lambda n: ct.ops.contains(f"y{n}"), lambda n: ct.ops.eq(f"x{n}", nocase=True)),
    (
        "lists",
        lambda n: ct.ops.in_(f"x{n}", f"z{n}", nocase=True),
        lambda n: ct.ops.contains(f"y{n}"),
    ),
]


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("first", "second"), [kind[1:] for kind in KINDS], ids=[k[0] for k in KINDS]
)
def test_thousands_of_exceptions_are_read_soon(
    first: Callable[[int], ct.ValueSet], second: Callable[[int], ct.ValueSet]
) -> None:
    """If it failed, rules with many exceptions would be refused, or keep a reader for minutes."""
    pairs = [And((Member("a", first(n)), Member("b", second(n)))) for n in range(2_000)]
    start = time.perf_counter()
    found = filter_set(expression.negation(Or(tuple(pairs))))
    assert len(found) == 2_001
    assert time.perf_counter() - start < SECONDS_MAX


def test_a_shared_exception_is_first() -> None:
    """If it failed, exceptions that differ in one attribute would become a filter each."""
    pairs = [
        And((Member("a", ct.ops.contains(f"x{n}x")), Member("b", ct.ops.contains("y"))))
        for n in range(99)
    ]
    assert len(filter_set(expression.negation(Or(tuple(pairs))))) == 2


def test_a_shared_attribute_is_first() -> None:
    """If it failed, exceptions of one attribute and one of many others would be refused."""
    pairs = [And((Member(f"a{n}", ct.ops.eq("x")), Member("b", ct.ops.eq(n)))) for n in range(500)]
    assert len(filter_set(expression.negation(Or(tuple(pairs))))) == 501


@pytest.mark.slow
def test_a_rule_is_read_where_its_sets_are_too_many_to_compare() -> None:
    """If it failed, exceptions from long lists would be refused."""
    certain = Member("a", ct.ValueSet.parse(" | ".join(f'contains "x{n}y"' for n in range(2_000))))
    pairs = [
        And((Member("a", ct.ops.contains(f"x{n}")), Member("b", ct.ops.eq(n)))) for n in range(999)
    ]
    asked = And((certain, *map(expression.negation, pairs)))
    assert len(filter_set(asked)) == 1_000


HOSTILE: list[tuple[str, Callable[[int], dict[str, ct.ValueSet]]]] = [
    ("one in another", lambda n: {"a": ct.ops.suffix("e" * n), "b": ct.ops.contains("y")}),
    ("texts within", lambda n: {"a": ct.ops.contains(f"x{n}"), "b": ct.ops.contains(f"y{n}")}),
    ("attributes", lambda n: {f"a{n}": ct.ops.eq(1), f"b{n}": ct.ops.eq(2)}),
    ("two kinds", lambda n: {f"a{n & 1}": ct.ops.eq(n), f"b{n & 1}": ct.ops.eq(n)}),
    (
        "lists",
        lambda n: {
            "a": ct.ops.in_(*(f"{n % 7} {k}" for k in range(n % 60 + 1)), nocase=True),
            "b": ct.ops.contains("y"),
        },
    ),
    (
        "patterns",
        lambda n: {
            "a": ct.ops.matches(f"x{n}.*[a-f]z$"),
            f"b{n % 20}": ct.ops.wildcard(f"a*{n}*b"),
        },
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("sets", [each[1] for each in HOSTILE], ids=[each[0] for each in HOSTILE])
def test_hostile_exceptions_are_read_or_refused_soon(
    sets: Callable[[int], dict[str, ct.ValueSet]],
) -> None:
    """If it failed, a rule of 100 KB could keep a reader of rules busy for minutes."""
    parts = [
        And(tuple(Member(name, values) for name, values in sets(n).items())) for n in range(2_000)
    ]
    start = time.perf_counter()
    with suppress(LimitError):
        filter_set(expression.negation(Or(tuple(parts))))
    assert time.perf_counter() - start < SECONDS_MAX


def test_repeated_conditions_are_converted_once() -> None:
    """If it failed, a short condition that repeats itself would take minutes."""
    pairs = tuple(
        And((Member("a", ct.ops.contains(f"x{n}")), Member("b", ct.ops.contains(f"y{n}"))))
        for n in range(500)
    )
    start = time.perf_counter()
    assert len(filter_set(And(tuple(Or(pairs) for _ in range(800))))) == 500
    assert len(filter_set(And(tuple(Or(pairs[n % 9 :]) for n in range(800))))) == 492
    assert time.perf_counter() - start < SECONDS_MAX


def test_the_sets_of_all_filters_together_are_bounded() -> None:
    """If it failed, a rule of many attributes could fill the memory by its exceptions."""
    many = [Member(f"c{n}", ct.ops.eq(1)) for n in range(1_000)]
    pairs = [Or((Member(f"a{n}", ct.ops.eq(1)), Member(f"b{n}", ct.ops.eq(1)))) for n in range(11)]
    with pytest.raises(LimitError) as refused:
        filter_set(And((*many, *pairs)))
    assert refused.value.limit == "MEMBERS_MAX"
