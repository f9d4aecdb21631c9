"""Unions and intersections of many sets."""

from functools import reduce
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.model import ValueSet
from contrada.model.algebra import boxes, intersection, union
from contrada.model.algebra.valueset import of_cuts
from contrada.model.domains.values import NUMBER, plain_number
from tests.strategies import constraints, value_sets


@given(st.lists(constraints | value_sets(3), min_size=1, max_size=7))
def test_many_at_once_have_the_form_of_one_by_one(sets: list[ValueSet]) -> None:
    """What is read, built and sent of one meaning would have several forms."""
    one_by_one = reduce(ValueSet.__or__, sets), reduce(ValueSet.__and__, sets)
    for found, expected in zip((union(sets), intersection(sets)), one_by_one, strict=True):
        assert (found.line, found.text) == (expected.line, expected.text)


def test_numbers_of_one_hash_make_sets_of_many() -> None:
    """Tables of what strangers ask for would compare each of their filters with all the others.

    Python hashes numbers alike in each process: 1 and 2.0**61 have one hash.
    """
    of_one_hash = [plain_number(2.0 ** (61 * n)) for n in range(-6, 7)]
    assert len({hash((NUMBER, each)) for each in of_one_hash}) == 1
    held = [of_cuts(tuple((NUMBER, n) for n in each)) for each in combinations(of_one_hash, 4)]
    texts = [each & ct.none_of(1) | ct.suffix("x") for each in held]
    filters = [ct.Filter.of_sets({"a": each}) for each in (*held, *texts)]
    values = [ct.Notification({"a": list(each)}) for each in combinations(of_one_hash, 4)]
    for different in (
        [each.form() for each in (*held, *texts)],
        held,
        texts,
        filters,
        [ct.Advertisement.of_sets(each.sets) for each in filters],
        [ct.Query.of_sets(each.sets) for each in filters],
        [boxes.form(each.sets) for each in filters],
        values,
    ):
        assert len(set(map(hash, different))) == len(different)


@given(value_sets(), value_sets())
def test_forms_are_equal_where_sets_are_written_alike(a: ValueSet, b: ValueSet) -> None:
    """Two filters would be one, or one would be held twice."""
    assert (a.form() == b.form()) == ((a.line, a.text) == (b.line, b.text))
    again = ValueSet(a.line, a.text)
    assert (again.form(), hash(again)) == (a.form(), hash(a))
