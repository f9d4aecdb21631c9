"""Wildcards against a definition by trying every split."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contrada.errors import InvalidFilterError
from contrada.model import ValueSet
from contrada.model.algebra import sets
from contrada.model.languages import casefold, language
from contrada.model.languages.wildcard import Wildcard

SECONDS_MAX = 20.0
tokens = st.sampled_from(["a", "b", "*", "*", "?", r"\*", r"\?", r"\\", "é", "K"])
constants = st.lists(tokens, max_size=8).map("".join)
values = st.text("abkKé*?\\\u212a", max_size=8)


def split(constant: str) -> list[str]:
    found, at = [], 0
    while at < len(constant):
        size = 2 if constant[at] == "\\" else 1
        found.append(constant[at : at + size])
        at += size
    return found


def has_shape(shape: list[str], characters: list[str]) -> bool:
    """By the definition: a star takes none or one more, nothing is clever."""
    if not shape:
        return not characters
    if shape[0] == "*":
        more = bool(characters) and has_shape(shape, characters[1:])
        return has_shape(shape[1:], characters) or more
    fits = bool(characters) and shape[0] in ("?", characters[0], "\\" + characters[0])
    return fits and has_shape(shape[1:], characters[1:])


@given(constants, values)
@example("a*b?*", "aabbb")
@example("a*a", "a")
@example("ab*ba", "aba")
@example("a*b*b", "ab")
@example("?*", "é")
def test_a_wildcard_has_its_shape(constant: str, value: str) -> None:
    """A text would match a wildcard without its shape, or the other way round."""
    held = sets.wildcard(constant)
    assert held.contains(value) is has_shape(split(constant), [*value])
    assert sets.eq(value).issubset(held) is held.contains(value)
    assert ValueSet.parse(str(held)) == held


def has_shape_in_bytes(shape: list[str], value: bytes) -> bool:
    """As `has_shape`: a star takes bytes, all else takes the bytes of a character."""
    if not shape:
        return not value
    if shape[0] == "*":
        return has_shape_in_bytes(shape[1:], value) or (
            bool(value) and has_shape_in_bytes(shape, value[1:])
        )
    for size in range(1, 5):
        try:
            character = value[:size].decode()
        except UnicodeDecodeError:
            continue
        if shape[0] in ("?", character, "\\" + character):
            return bool(character) and has_shape_in_bytes(shape[1:], value[size:])
    return False


@given(constants, st.lists(st.sampled_from([b"a", b"\xc3", b"\xa9", b"\xff"]), max_size=6))
@example("a*?", [b"a", b"\xff", b"a"])
@example("?*", [b"\xff", b"a"])
@example("*?*", [b"\xff", b"a", b"\xff"])
def test_a_wildcard_has_its_shape_in_bytes(constant: str, parts: list[bytes]) -> None:
    """Bytes that are no UTF-8 would be taken for a character, or not be taken by a star."""
    value = b"".join(parts)
    held = sets.wildcard(constant)
    assert held.contains(value) is has_shape_in_bytes(split(constant), value)
    assert sets.eq(value).issubset(held) is held.contains(value)


@given(constants, values)
@example("?k*", "ak")
def test_without_case_both_are_folded(constant: str, value: str) -> None:
    """A wildcard without case would compare otherwise than `nocase` does."""
    held = sets.wildcard(constant, nocase=True)
    folded = casefold.fold(value.encode()).decode()
    shape = split(casefold.fold(constant.encode()).decode())
    assert held.contains(value) is has_shape(shape, [*folded])
    assert sets.eq(value).issubset(held) is held.contains(value)
    assert ValueSet.parse(str(held)) == held


@given(constants, values)
@example(r"a*\*b?", "ax*bc")
def test_matches_contain_the_implied_text(constant: str, value: str) -> None:
    """An index would miss a text that has the shape."""
    for operator in (Wildcard("wildcard"), Wildcard("wildcard nocase", nocase=True)):
        held = casefold.fold(constant.encode()) if operator.nocase else constant.encode()
        implied = operator.implied(held)
        if implied is not None and operator.apply(value.encode(), held):
            assert language.applies(implied, value.encode())


@given(constants, st.binary(max_size=5))
@example("*?*", b"\xff")
@example("*a*", b"\xffa\xfe")
def test_stars_take_any_bytes_and_questions_characters(constant: str, value: bytes) -> None:
    """The quick way and the automaton would differ on bytes that are no UTF-8."""
    for nocase in (False, True):
        held = sets.wildcard(constant, nocase=nocase)
        assert sets.eq(value).issubset(held) is held.contains(value)


@pytest.mark.parametrize(
    ("constant", "plain"),
    [
        ("abc", "= 'abc'"),
        ("abc*", "prefix 'abc'"),
        ("*abc", "suffix 'abc'"),
        ("**abc*", "contains 'abc'"),
        ("*", ">= ''"),
        ("", "= ''"),
        (r"a\*\?\\*", r"prefix 'a*?\\'"),
    ],
)
def test_plain_expressions_get_plain_forms(constant: str, plain: str) -> None:
    """An index could not find a filter by a prefix that was written as a wildcard."""
    held, expected = sets.wildcard(constant), ValueSet.parse(plain)
    assert (held.line, held.text) == (expected.line, expected.text)


@pytest.mark.parametrize("constant", ["a\\", r"\a", b"\xff*", 5])
def test_invalid_wildcards_are_refused(constant: str) -> None:
    """A backslash would mean something by accident."""
    with pytest.raises(InvalidFilterError):
        sets.wildcard(constant)


@pytest.mark.quick_first
@pytest.mark.parametrize("constant", ["*a" * 9_000, "*a*?" * 200, "?" * 300, "*a" * 40 + "b"])
def test_no_wildcard_explodes(constant: str) -> None:
    """A wildcard of many stars would take time without bound."""
    start = time.perf_counter()
    for nocase in (False, True):
        held = sets.wildcard(constant, nocase=nocase)
        held.contains("a" * 100_000)
        held.meets(sets.suffix("b"))
    assert time.perf_counter() - start < SECONDS_MAX
