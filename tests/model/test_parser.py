"""Texts of the other kinds than filters: sets, advertisements, questions with variables."""

import pytest

from contrada.errors import LimitError, ParseError
from contrada.model import Filter, FilterSet, ValueSet
from contrada.model.syntax.parser import (
    TEXT_CHARACTERS_MAX,
    Binding,
    parse_advertisement,
    parse_filter_set,
    parse_pattern,
    parse_question,
    parse_set,
)


def test_a_question_is_about_single_items() -> None:
    """A pattern would be asked, which no source answers; or the error name another place."""
    with pytest.raises(ParseError, match=r"^line 1, column 1: found a pattern"):
        parse_question("a = 1 -> b = 2")
    with pytest.raises(ParseError, match=r"^line 1, column 11: found a variable in a `not`"):
        parse_question("c = 1 and not (a = $x)")


def test_a_question_has_the_attributes_of_its_variables() -> None:
    """An item with two unequal values of one variable would be an answer."""
    one = parse_set("= 1")
    assert parse_question("a = 1") == (Binding({"a": one}),)
    assert parse_question("a = 1 or b = 1") == (Binding({"a": one}), Binding({"b": one}))
    found = parse_question("a = 1 and b = $x and c = $x and d = $y")
    assert found == (Binding({"a": one}, (frozenset("bc"), frozenset("d"))),)
    assert parse_question("a = $x and a = 1 and a = 2") == parse_question(
        "a = 1 and a = 2 and b = $x"
    )


def test_a_single_filter_is_a_set_of_one() -> None:
    """A subscription by a set would refuse the text of a filter; or a filter be a pattern."""
    assert parse_filter_set("a = 1") == FilterSet((Filter("a = 1"),))
    with pytest.raises(ParseError, match="pattern"):
        parse_filter_set("a = 1 -> b = 2")
    with pytest.raises(ParseError, match="->"):
        parse_pattern("a = 1")


def test_constraints_of_an_advertisement_are_alternatives() -> None:
    """A publisher would advertise values that no notification has at once."""
    known = parse_advertisement("a = 1 and a = 2 and b any").sets
    assert known["a"].contains(1)
    assert known["a"].contains(2)
    assert not known["a"].contains(3)


def test_a_long_text_is_refused_unread() -> None:
    """A client could keep the broker at one text."""
    text = f"= '{'x' * (TEXT_CHARACTERS_MAX - 4)}'"
    assert parse_set(text) == ValueSet.parse(text)
    with pytest.raises(LimitError, match="TEXT_CHARACTERS_MAX"):
        parse_set(text + " ")
