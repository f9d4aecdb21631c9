"""Unions and intersections of many sets."""

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from contrada.model import ValueSet
from contrada.model.algebra import intersection, union
from tests.strategies import constraints, value_sets


@given(st.lists(constraints | value_sets(3), min_size=1, max_size=7))
def test_many_at_once_have_the_form_of_one_by_one(sets: list[ValueSet]) -> None:
    """What is read, built and sent of one meaning would have several forms."""
    one_by_one = reduce(ValueSet.__or__, sets), reduce(ValueSet.__and__, sets)
    for found, expected in zip((union(sets), intersection(sets)), one_by_one, strict=True):
        assert (found.line, found.text) == (expected.line, expected.text)
