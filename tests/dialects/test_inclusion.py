"""What constants tell of sets of text, against decisions by automata."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.dialects.hulls import Hulls, hull_of
from contrada.dialects.inclusion import is_comparable, lies_in
from contrada.model.algebra import sets
from contrada.model.algebra.valueset import ValueSet

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


def told(inner: ValueSet, outer: ValueSet) -> bool:
    return lies_in(inner.parts()[1], outer.parts()[1], lambda steps: None)


def text_of(values: ValueSet) -> ValueSet:
    return values & sets.ALL_TEXT


@given(SETS, SETS)
def test_what_is_told_is_so(inner: ValueSet, outer: ValueSet) -> None:
    """If it failed, parts of translated rules would be left out that matter."""
    if told(inner, outer):
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
def test_what_constants_say_is_told(inner: ValueSet, outer: ValueSet) -> None:
    """If it failed, rules with a few exceptions would become thousands of filters."""
    assert told(inner, outer)
    assert not told(outer, inner) or inner == outer


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
def test_what_is_not_so_is_not_told(inner: ValueSet, outer: ValueSet) -> None:
    """If it failed, parts of translated rules would be left out that matter."""
    assert not text_of(inner).issubset(text_of(outer))
    assert not told(inner, outer)


def test_half_a_character_is_near_to_what_folds_to_it() -> None:
    """If it failed, exceptions of rules would be lost."""
    given_sets = [HALF, sets.eq("É", nocase=True), sets.suffix("É", nocase=True)]
    hulls = Hulls([hull_of(each) for each in given_sets], lambda steps: None)
    assert hulls.near(1) == 0b111


def test_sets_of_other_operators_only_are_not_compared() -> None:
    """If it failed, thousands of patterns would be compared in vain."""
    assert not is_comparable(sets.wildcard("a*b*c").parts()[1])
    assert is_comparable((sets.wildcard("a*b*c") | sets.suffix("x")).parts()[1])
    assert is_comparable(sets.eq(1).parts()[1])


@given(st.lists(SETS, min_size=2, max_size=5))
def test_sets_that_are_not_near_are_apart(given_sets: list[ValueSet]) -> None:
    """If it failed, exceptions of rules would be lost."""
    hulls = Hulls([hull_of(each) for each in given_sets], lambda steps: None)
    for number, one in enumerate(given_sets):
        for other, two in enumerate(given_sets):
            if other != number and not hulls.near(number) >> other & 1:
                assert not one.meets(two)


def test_what_ends_otherwise_is_not_near() -> None:
    """If it failed, each exception of a rule would be compared with all others."""
    ends = [
        *(sets.suffix(f"\\{n}.exe", nocase=True) for n in range(50)),
        *(sets.eq(f"c:\\{n}.EXE", nocase=True) for n in range(50)),
        *(sets.prefix(f"c:\\{n}.", nocase=True) for n in range(50)),
        *(sets.eq(n) for n in range(50)),
    ]
    hulls = Hulls([hull_of(each) for each in ends], lambda steps: None)
    assert hulls.known == (1 << 200) - 1
    assert hulls.near(7) == 1 << 7 | 1 << 57 | ((1 << 50) - 1) << 100
    assert hulls.near(57) == 1 << 7 | 1 << 57 | 1 << 107
    assert hulls.near(107) == (1 << 50) - 1 | 1 << 57 | 1 << 107
    assert hulls.near(157) == 1 << 157


def test_sets_of_which_nothing_is_known_are_near_to_all() -> None:
    """If it failed, exceptions of rules would be lost."""
    given_sets = [ct.contains("x"), ct.eq("a"), ct.eq("b")]
    hulls = Hulls([hull_of(each) for each in given_sets], lambda steps: None)
    assert hulls.near(0) == 0b111
    assert hulls.near(1) == 0b011
