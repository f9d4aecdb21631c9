"""Automata against the plain meaning of their expressions."""

from itertools import product
from unittest import mock

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from contrada.model.algebra import sets
from contrada.model.domains import line
from contrada.model.domains.line import Cuts
from contrada.model.languages import automaton as automata
from contrada.model.languages import casefold, language
from contrada.model.languages.automaton import (
    Automaton,
    determinise,
    intervals_of,
    minimise,
    of_intervals,
    search_automaton,
)
from contrada.model.languages.decision import automaton_for, guess
from contrada.model.languages.language import Language, Pieces
from contrada.model.languages.work_budget import Work
from tests import strategies as some

LETTERS = b"ab\xff"
WORDS = [bytes(word) for size in range(6) for word in product(LETTERS, repeat=size)]
words = st.lists(st.sampled_from(LETTERS), max_size=4).map(bytes)
cased_words = st.text("aAkK\u212aſ", max_size=3)

atoms: st.SearchStrategy[Language] = st.one_of(
    words.map(sets.suffix),
    words.map(sets.contains),
    words.map(sets.prefix),
    words.map(sets.gt),
    words.map(sets.eq),
).map(lambda held: held.parts()[1])
languages = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(language.every),
        st.lists(inner, min_size=1, max_size=3).map(language.some),
        inner.map(language.negation),
    ),
    max_leaves=5,
)


def assert_minimal(automaton: Automaton) -> None:
    """Making it minimal once more changes nothing, not even the numbers of its states."""
    again = minimise(automaton.rows, automaton.accepting)
    assert again.accepting == automaton.accepting
    assert [list(row) for row in again.rows] == [list(row) for row in automaton.rows]
    pairs = {
        (accepts, *row)
        for accepts, row in zip(automaton.accepting, map(tuple, automaton.rows), strict=True)
    }
    assert len(pairs) == len(automaton.rows)


@given(languages)
def test_an_automaton_accepts_what_the_expression_holds(of: Language) -> None:
    """Decisions would speak of other texts than membership does."""
    automaton = automaton_for(of)
    assert [automaton.accepts(w) for w in WORDS] == [language.contains(of, w) for w in WORDS]
    assert_minimal(automaton)


@given(words, st.booleans())
@example(b"", True)
@example(b"", False)
def test_a_search_finds_its_constant(constant: bytes, anything_after: bool) -> None:
    """Suffix and substring constraints would be decided wrongly."""
    automaton = search_automaton(constant, anything_after=anything_after)
    for word in WORDS:
        expected = constant in word if anything_after else word.endswith(constant)
        assert automaton.accepts(word) is expected
    assert_minimal(automaton)


@given(cased_words, st.lists(st.text("aAkK\u212asSſ", max_size=4), max_size=20))
def test_automata_without_case(constant: str, texts: list[str]) -> None:
    """Decisions without case would speak of other texts than membership does."""
    for build in (sets.eq, sets.prefix, sets.suffix, sets.contains):
        of = build(constant, nocase=True).parts()[1]
        automaton = automaton_for(of)
        for text in [*texts, constant, constant.swapcase()]:
            for word in (text.encode(), text.encode()[:-1], text.encode() + b"\xe2\x84"):
                assert automaton.accepts(word) is language.contains(of, word)
        assert_minimal(automaton)


def sorted_cuts(ends: list[bytes]) -> Cuts:
    """The cuts of text at these ends, in order."""
    return tuple(line.cut_before((6, end)) for end in sorted(set(ends)))


byte_words = st.one_of(words, st.binary(max_size=3))


@given(st.lists(byte_words, max_size=6).map(sorted_cuts), st.lists(byte_words, max_size=10))
@example(sorted_cuts([b"", b"\xff", b"\xff\xff"]), [])
def test_intervals_become_automata_and_intervals_again(cuts: Cuts, tried: list[bytes]) -> None:
    """An interval would be decided as another one, or lose its canonical form."""
    automaton = of_intervals(cuts)
    for word in [*tried, *(cut[1] for cut in cuts if len(cut) == 2), *WORDS[:100]]:
        assert isinstance(word, bytes)
        for near in (word, word + b"\0", word[:-1]):
            assert automaton.accepts(near) is line.holds(cuts, (6, near))
    assert intervals_of(automaton) == cuts
    assert_minimal(automaton)


@given(st.lists(byte_words, max_size=6).map(sorted_cuts))
def test_cuts_are_counted_exactly(cuts: Cuts) -> None:
    """A language would be no union of intervals though it has few, or take more than the limit."""
    with mock.patch.object(automata, "CUTS_MAX", len(cuts)):
        assert intervals_of(of_intervals(cuts)) == cuts
    with mock.patch.object(automata, "CUTS_MAX", len(cuts) - 1):
        assert intervals_of(of_intervals(cuts)) is None


@given(languages)
def test_intervals_are_found_wherever_a_language_is_some(of: Language) -> None:
    """Equal sets would have different canonical forms."""
    cuts = intervals_of(automaton_for(of))
    assume(cuts is not None)
    assert cuts is not None
    assert [line.holds(cuts, (6, w)) for w in WORDS] == [language.contains(of, w) for w in WORDS]
    assert automaton_for(Pieces(cuts)).rows == automaton_for(of).rows


edges = st.lists(
    st.lists(st.tuples(st.sampled_from([97, 98]), st.integers(0, 4)), max_size=3),
    min_size=5,
    max_size=5,
)


@given(edges, st.frozensets(st.integers(0, 4)), st.frozensets(st.integers(0, 4)))
def test_determinising_keeps_the_language(
    drawn: list[list[tuple[int, int]]], starts: frozenset[int], accepting: frozenset[int]
) -> None:
    """A machine of an extension would be turned into one of another language."""
    machine = [[(frozenset((byte,)), to) for byte, to in each] for each in drawn]
    automaton = determinise(machine, starts, accepting)
    for word in (bytes(w) for size in range(6) for w in product(b"ab", repeat=size)):
        states = starts
        for byte in word:
            states = frozenset(to for s in states for on, to in machine[s] if byte in on)
        assert automaton.accepts(word) is not states.isdisjoint(accepting)
    assert_minimal(automaton)


def test_edges_for_many_bytes_are_counted_as_work() -> None:
    """A machine with wide edges would take longer than its budget of steps allows."""

    def steps(width: int) -> int:
        machine = [[(frozenset(range(width)), 1)], []]
        with Work("steps", 10_000) as work:
            determinise(machine, frozenset({0}), frozenset({1}))
            return work.maximum - work.left

    assert steps(200) - steps(20) >= (200 - 20) // 3


def test_large_automata_are_refused_by_a_named_limit() -> None:
    """A constant could take all memory before a limit is looked at."""
    assert len(search_automaton(b"a" * 9_999, anything_after=True).rows) == 10_000
    for size in (10_000, 10**6):
        assert not sets.contains("a" * size).issuperset(sets.suffix("b"))
        assert not sets.eq("a" * (size + 2)).issuperset(sets.suffix("b"))


def test_folding_is_the_unicode_of_the_table() -> None:
    """The table would fold other than the Unicode version that it names."""
    import unicodedata

    folded = casefold.TABLE
    assert all(folded.get(target, target) == target for target in folded.values())
    if unicodedata.unidata_version != casefold.UNICODE_VERSION:
        return
    for code in range(0x110000):
        if 0xD800 <= code <= 0xDFFF:
            continue
        character = chr(code)
        full, lower = character.casefold(), character.lower()
        expected = full if len(full) == 1 else lower if len(lower) == 1 else character
        assert chr(folded.get(code, code)) == expected


@given(some.unicode_texts, st.binary(max_size=4))
def test_folding_is_idempotent_and_keeps_other_bytes(text: str, noise: bytes) -> None:
    """Folding twice would differ from folding once, or bytes that are no text would change."""
    data = text.encode() + noise
    once = casefold.fold(data)
    assert casefold.fold(once) == once
    assert casefold.fold(b"\xff\xfe") == b"\xff\xfe"
    for character in text:
        spellings = casefold.spellings(character)
        assert character.encode() in spellings
        assert len({casefold.fold(each) for each in spellings}) == 1


@pytest.mark.parametrize("nocase", [False, True])
def test_a_guess_has_a_constant_at_its_place(nocase: bool) -> None:
    """Automata would be built for questions that a joined text answers."""
    for build, expected in (
        (sets.eq, (b"ab", b"", b"")),
        (sets.prefix, (b"ab", b"", b"")),
        (sets.contains, (b"", b"ab", b"")),
        (sets.suffix, (b"", b"", b"ab")),
    ):
        assert guess(build("ab", nocase=nocase).parts()[1]) == expected


def test_the_table_of_foldings_is_turned_round_once() -> None:
    """Each character of a constant without case would cost a pass over all foldings."""
    assert casefold.characters_by_fold() is casefold.characters_by_fold()
