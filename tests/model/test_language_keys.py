"""Keys of languages, by their forms, against automata."""

from unittest.mock import patch

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import contrada as ct
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ValueSet
from contrada.model.languages import automaton, decision, language_keys
from contrada.model.languages.decision import safe_answers
from contrada.model.languages.language import contains, negation

TEXTS = st.text("aAbkK\u212aé\0", max_size=3)
ON_TEXT = st.one_of(
    st.builds(
        lambda build, text, nocase: build(text, nocase=nocase),
        st.sampled_from([sets.eq, sets.prefix, sets.suffix, sets.contains]),
        TEXTS,
        st.booleans(),
    ),
    st.builds(lambda a, b: sets.between(*sorted((a, b))), TEXTS, TEXTS),
    st.lists(TEXTS, min_size=1, max_size=3).map(lambda some: sets.in_(*some)),
    st.sampled_from(["a*b", "?a*", "a?", "a*b*c", "?*"]).map(sets.wildcard),
    st.sampled_from(["*aB*é", "k?*"]).map(lambda shape: sets.wildcard(shape, nocase=True)),
    st.sampled_from(
        [
            r"[\d\s]",
            r"[\d\s]+",
            "a+b",
            "^a+b",
            "a+$",
            "^[ab]{2}$",
            "a|^b.c",
            "(?i)k[a-c]+",
            "a?",
            "^",
        ]
    ).map(sets.matches),
    st.just(sets.cidr("1.2.3.4/31")),
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


@given(SETS)
def test_the_form_gives_the_key_of_the_automaton(of: ValueSet) -> None:
    """If it failed, equal sets would have different hashes."""
    language = of.parts()[1]
    inverted = contains(language, b"")
    told = language_keys._of_language(negation(language) if inverted else language)
    by_automaton = language_keys._of_automaton(language, inverted)
    assert None in (told, by_automaton) or told == by_automaton


@given(SETS, SETS)
def test_equal_sets_hash_alike(one: ValueSet, two: ValueSet) -> None:
    """If it failed, a filter would be entered twice, or not be found again."""
    before = safe_answers.total()
    again = (one & two) | (one - two)
    is_equal, is_same = again == one, one == two
    assume(safe_answers.total() == before)  # Beyond the limits equal sets may differ.
    assert is_equal
    known = [language_keys.key(each.parts()[1]) for each in (one, two, again)]
    assume(None not in known)  # Nor is a key known there.
    assert hash(again) == hash(one)
    assert hash(one.canonical()) == hash(one)
    if is_same:
        assert hash(one) == hash(two)


def test_expressions_that_say_the_same_hash_alike() -> None:
    """If it failed, a subscription could not be ended by a filter that equals its own."""
    one, two = ct.Filter(r"x matches /[\d\s]/"), ct.Filter(r"x matches /[\d\s]+/")
    assert one == two
    assert hash(one) == hash(two)


NO_AUTOMATON = [
    ct.ops.in_("Alpha.exe", "beta.dll", "gamma.sys", nocase=True),
    ct.ops.prefix("Alpha", nocase=True) - ct.ops.contains("x"),
    ct.ops.suffix(".exe") | ct.ops.contains("powershell", nocase=True) | ct.ops.eq("a"),
    ct.ops.not_in("Alpha.exe", nocase=True) | ct.ops.absent(),
    ct.ops.matches("a[0-9]+b") & ct.ops.prefix("ca0b"),
    ct.ops.wildcard("a*b?c"),
    ct.ops.in_("a.exe", "B.dll") & ct.ops.suffix(".EXE", nocase=True),
]


@pytest.mark.parametrize("of", NO_AUTOMATON, ids=str)
def test_usual_sets_hash_without_automata(of: ValueSet) -> None:
    """If it failed, subscribing would take milliseconds."""
    fresh = ValueSet(of.line, of.text)
    language_keys._known_key.cache_clear()
    with patch.object(decision, "automaton_for", side_effect=AssertionError):
        hash(fresh)


def test_other_sets_mostly_hash_otherwise() -> None:
    """If it failed, tables of filters would be lists."""
    many = [
        *(ct.ops.in_("aa", f"b{n}") for n in range(200)),
        *(ct.ops.in_("aa", f"b{n}", nocase=True) for n in range(200, 400)),
        *(ct.ops.suffix(f"b{n}", nocase=True) for n in range(200)),
        *(~ct.ops.contains(f"c{n}") for n in range(200)),
    ]
    assert len({hash(each) for each in many}) == len(many)


def test_the_texts_of_an_automaton_are_in_order() -> None:
    """If it failed, equal sets could hash differently."""
    machine = decision.automaton_for(sets.in_("b", "a", "aa", "").parts()[1])
    assert automaton.texts_of(machine, 9) == [b"", b"a", b"b", b"aa"]
    assert automaton.texts_of(machine, 3) is None
    machine = decision.automaton_for((sets.suffix("b") & sets.prefix("a")).parts()[1])
    assert automaton.texts_of(machine, 9) is None
    assert automaton.first_of(machine) == b"ab"


def test_finite_languages_hash_as_their_texts() -> None:
    """If it failed, a set would not be found by another form of it."""
    one = sets.prefix("a") & sets.wildcard("?")
    assert one == sets.eq("a")
    assert hash(one) == hash(sets.eq("a"))
