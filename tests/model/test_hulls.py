"""Relations of value sets that need no automata, and their hulls, against automata."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.model.algebra import sets
from contrada.model.algebra.hulls import components, hull
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains import line
from contrada.model.domains.values import TEXT

TEXTS = st.one_of(
    st.text("aAbéÉ\u212a", max_size=3),
    st.sampled_from([b"\xa9", b"\x89", b"\xc3", b"a\xc3", b"\x89a", b"\xff"]),
)
UTF8 = st.text("aAbékK\u212a", max_size=3)
ON_TEXT = st.one_of(
    st.builds(
        lambda build, text: build(text),
        st.sampled_from([sets.eq, sets.prefix, sets.suffix, sets.contains]),
        TEXTS,
    ),
    st.builds(
        lambda build, text: build(text, nocase=True),
        st.sampled_from([sets.eq, sets.prefix, sets.suffix, sets.contains]),
        UTF8,
    ),
    st.builds(lambda a, b: sets.between(*sorted((a, b))), UTF8, UTF8),
    st.sampled_from([sets.wildcard("a*b*"), sets.matches("[ab]a"), sets.cidr("10.0.0.0/8")]),
    st.sampled_from([1, 2.5, True, None]).map(sets.eq),
    st.sampled_from([sets.lt(2), sets.absent(), sets.exists()]),
)
SETS = st.recursive(
    ON_TEXT,
    lambda inner: st.one_of(
        inner.map(lambda one: ~one),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
    ),
    max_leaves=4,
)


def text_of(values: ValueSet) -> ValueSet:
    return values & sets.ALL_TEXT


def shows_inside(inner: ValueSet, outer: ValueSet) -> bool:
    """Whether it shows, without automata, that text of one set is in the other."""
    return text_of(inner).shows_apart(~text_of(outer))


@given(SETS, SETS)
def test_proved_relations_hold(inner: ValueSet, outer: ValueSet) -> None:
    """If it failed, parts of translated rules would be left out that matter."""
    if shows_inside(inner, outer):
        assert text_of(inner).issubset(text_of(outer))


WHOLE = sets.eq("xab", nocase=True)
TOLD = [
    (WHOLE, sets.suffix("AB", nocase=True)),
    (WHOLE, sets.prefix("Xa", nocase=True)),
    (WHOLE, sets.contains("a", nocase=True)),
    (WHOLE, WHOLE | sets.eq("c", nocase=True)),
    (WHOLE, ~sets.eq("xac", nocase=True)),
    (WHOLE, ~sets.suffix("b\\ab", nocase=True)),
    (sets.eq("xab"), sets.eq("XAB", nocase=True)),
    (sets.eq("xab") | sets.eq("ab"), sets.suffix("ab")),
    (sets.suffix("xab"), sets.contains("AB", nocase=True)),
    (sets.suffix("xab", nocase=True), ~sets.suffix("yab", nocase=True)),
    (sets.suffix("xab"), ~sets.suffix("YAB", nocase=True)),
    (sets.prefix("xab", nocase=True), ~sets.prefix("xb", nocase=True)),
    (~sets.contains("a"), ~sets.contains("ab")),
    (~sets.suffix("b"), ~sets.eq("ab")),
    (sets.wildcard("a*b*c"), sets.wildcard("a*b*c") | sets.eq("x")),
]


@pytest.mark.parametrize(("inner", "outer"), TOLD, ids=str)
def test_constants_prove_relations(inner: ValueSet, outer: ValueSet) -> None:
    """If it failed, rules with a few exceptions would become thousands of filters."""
    assert shows_inside(inner, outer)
    assert not shows_inside(outer, inner) or inner == outer


HALF: Final = sets.suffix(b"\x89")
"""The second byte of É, as which no é ends."""

NOT_TOLD = [
    (~sets.suffix("ab"), sets.contains("b")),
    (~sets.prefix("a", nocase=True), sets.prefix("ab", nocase=True)),
    (HALF, ~sets.eq("É", nocase=True)),
    (HALF, ~sets.suffix("É", nocase=True)),
    (sets.suffix("b", nocase=True), sets.suffix("B")),
    (sets.contains("a", nocase=True), ~sets.contains("b", nocase=True)),
    (sets.prefix("a", nocase=True), ~sets.suffix("b", nocase=True)),
    (sets.wildcard("a*b*c"), sets.wildcard("a*b*d")),
]


@pytest.mark.parametrize(("inner", "outer"), NOT_TOLD, ids=str)
def test_false_relations_are_not_proved(inner: ValueSet, outer: ValueSet) -> None:
    """If it failed, parts of translated rules would be left out that matter."""
    assert not text_of(inner).issubset(text_of(outer))
    assert not shows_inside(inner, outer)


def apart(one: ValueSet, two: ValueSet) -> bool:
    """Whether a hull keeps two sets apart."""
    return any(
        not line.overlaps(hull(one, backwards=way), hull(two, backwards=way))
        for way in (False, True)
    )


def test_half_a_character_is_near_to_its_folded_forms() -> None:
    """If it failed, exceptions of rules would be lost."""
    assert not apart(HALF, sets.eq("É", nocase=True))
    assert not apart(HALF, sets.suffix("É", nocase=True))


def test_a_hull_holds_a_part_within_another_part() -> None:
    """The hull would end with the inner part, and exceptions behind it would be lost."""
    outer, inner = sets.prefix("a", nocase=True), sets.prefix("abc", nocase=True)
    for both in (outer | inner, inner | outer):
        assert hull(both) == hull(outer)


@given(SETS, SETS)
def test_sets_that_hulls_keep_apart_are_apart(one: ValueSet, two: ValueSet) -> None:
    """If it failed, exceptions of rules would be lost."""
    if apart(one, two):
        assert not one.meets(two)


@given(st.lists(SETS, min_size=2, max_size=6), st.booleans())
def test_components_have_nothing_in_common(given_sets: list[ValueSet], backwards: bool) -> None:
    """A union of filters would seem to cover too much."""
    found = components([hull(each, backwards=backwards) for each in given_sets])
    assert sorted(number for group in found for number in group) == [*range(len(given_sets))]
    for group in found:
        for one in group:
            for other in {*range(len(given_sets))} - {*group}:
                assert not given_sets[one].meets(given_sets[other])


def test_different_ends_exclude_each_other() -> None:
    """If it failed, each exception of a rule would be compared with all others."""
    by_end = [
        *(sets.suffix(f"\\{n}.exe", nocase=True) for n in range(50)),
        *(sets.in_(f"c:\\{n}.EXE", f"d:\\{n}.exe", nocase=True) for n in range(50)),
        *(sets.eq(n) for n in range(50)),
    ]
    found = components([hull(each, backwards=True) for each in by_end])
    assert sorted(found) == [*([n, 50 + n] for n in range(50)), *([100 + n] for n in range(50))]
    by_start = [
        *(sets.prefix(f"c:\\{n}.", nocase=True) for n in range(50)),
        *(sets.eq(f"c:\\{n}.EXE", nocase=True) for n in range(50)),
    ]
    found = components([hull(each) for each in by_start])
    assert sorted(found) == [[n, 50 + n] for n in range(50)]


def test_sets_of_which_nothing_is_known_are_near_to_all_text() -> None:
    """If it failed, exceptions of rules would be lost."""
    assert hull(ct.ops.contains("x")) == hull(~ct.ops.eq("x") & sets.ALL_TEXT) == line.ALL_TEXT
    assert hull(ct.ops.suffix("x")) == line.ALL_TEXT != hull(ct.ops.suffix("x"), backwards=True)
    assert hull(ct.ops.prefix("x"), backwards=True) == line.ALL_TEXT != hull(ct.ops.prefix("x"))


@pytest.mark.parametrize("nocase", [False, True])
def test_hulls_of_plain_operators_are_as_narrow_as_they(nocase: bool) -> None:
    """Sets of different constants would be compared by automata, pair by pair."""
    point, start = line.point((TEXT, b"abc")), line.starting_with(b"abc")
    back, end = line.point((TEXT, b"cba")), line.starting_with(b"cba")
    for build, forwards, backwards in (
        (sets.eq, point, back),
        (sets.prefix, start, line.ALL_TEXT),
        (sets.suffix, line.ALL_TEXT, end),
        (sets.contains, line.ALL_TEXT, line.ALL_TEXT),
    ):
        of = build("abc", nocase=nocase)
        assert (hull(of), hull(of, backwards=True)) == (forwards, backwards)
