"""The text of sets taken apart."""

import pytest
from hypothesis import given

from contrada.integrations.dialects.text_parts import NoPartsError, TextPart, text_parts
from contrada.model import ValueSet
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import union
from tests import strategies


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ("= 5", []),
        ("in ('a', 'a\\u0000', 'b')", [("=", "a"), ("=", "a\0"), ("=", "b")]),
        ("prefix 'a' | prefix 'b'", [("prefix", "a"), ("prefix", "b")]),
        (">= ''", [("prefix", "")]),
        (
            "suffix 'a' | contains 'b' | = 'c' | = 5",
            [("=", "c"), ("contains", "b"), ("suffix", "a")],
        ),
        ("suffix 'a' & in ('xa', 'b')", [("=", "xa")]),
    ],
)
def test_sets_are_taken_apart(values: str, parts: list[tuple[str, str]]) -> None:
    """A dialect would write a set in an unexpected way, or not at all."""
    assert sorted(text_parts(ValueSet.parse(values))) == sorted(TextPart(*each) for each in parts)


@pytest.mark.parametrize(
    "values", ["< 'm'", "= x'ff'", "not suffix 'a'", "prefix 'a' & suffix 'b'"]
)
def test_sets_without_parts_are_refused(values: str) -> None:
    """A dialect would write another set."""
    with pytest.raises(NoPartsError):
        text_parts(ValueSet.parse(values))


@given(strategies.value_sets())
def test_the_parts_are_the_text(values: ValueSet) -> None:
    """A dialect would write another set."""
    text = values & sets.prefix("")
    try:
        parts = text_parts(text)
    except NoPartsError:
        return
    assert union(sets.of_operator(operator, (constant,)) for operator, constant in parts) == text
