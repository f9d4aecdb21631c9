"""Unions and intersections of many sets, and sets asked of several values."""

from functools import reduce
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.errors import UnknownOperatorError
from contrada.model import ValueSet
from contrada.model.algebra import boxes
from contrada.model.algebra.value_set import intersection, of_cuts, union
from contrada.model.domains.values import NUMBER, key_of, plain_number
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal, every, negation, some
from tests.strategies import constraints, value_sets


@given(st.lists(constraints | value_sets(3), min_size=1, max_size=7))
def test_many_at_once_have_the_form_of_one_by_one(sets: list[ValueSet]) -> None:
    """Sets of one meaning would have several forms."""
    one_by_one = reduce(ValueSet.__or__, sets), reduce(ValueSet.__and__, sets)
    for found, expected in zip((union(sets), intersection(sets)), one_by_one, strict=True):
        assert (found.line, found.text) == (expected.line, expected.text)


def test_numbers_of_one_hash_make_sets_of_many() -> None:
    """Tables of strangers' constants would compare each of their filters with all others.

    Python hashes numbers alike in each process: 1 and 2.0**61 have one hash.
    """
    of_one_hash = [plain_number(2.0 ** (61 * n)) for n in range(-6, 7)]
    assert len({hash((NUMBER, each)) for each in of_one_hash}) == 1
    held = [of_cuts(tuple((NUMBER, n) for n in each)) for each in combinations(of_one_hash, 4)]
    texts = [each & ct.ops.none_of(1) | ct.ops.suffix("x") for each in held]
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


def test_an_operator_that_nobody_registered_has_no_members() -> None:
    """A local use of a misspelled operator would match nothing, without an error."""
    frob, ends = Literal(Atom("frob", b"x"), True), Literal(Atom("suffix", b"z"), True)
    fizz, fuss = key_of("fizz"), key_of("fuss")
    both, one = every((frob, ends)), some((frob, ends))
    for unknown, text in ((frob, fizz), (negation(frob), fizz), (both, fizz), (one, fuss)):
        with pytest.raises(UnknownOperatorError):
            of_cuts((), unknown).holds(text)
