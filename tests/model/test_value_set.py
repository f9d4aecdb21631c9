"""Unions and intersections of many sets, and sets asked of several values."""

from collections import Counter
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
from contrada.model.domains.values import NUMBER, Value, key_of, plain_number
from contrada.model.languages.atoms import Atom
from contrada.model.languages.decision import safe_answers
from contrada.model.languages.language import Literal, every, negation, some
from contrada.model.languages.work_budget import Work
from tests.strategies import constraints, pooled_values, value_sets


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


@given(
    cuts=st.lists(st.integers(0, 9), unique=True, max_size=5).map(sorted),
    held=st.lists(st.integers(0, 9), unique=True, max_size=3).map(sorted),
)
def test_several_values_are_held_against_intervals_at_once(
    cuts: list[int], held: list[int]
) -> None:
    """A notification would match, or not, by values that it does not have."""
    of, keys = of_cuts(tuple((NUMBER, cut) for cut in cuts)), tuple((NUMBER, n) for n in held)
    assert of.may_hold(keys) == any(map(of.holds, keys))


@given(of=value_sets(3), held=st.lists(pooled_values, min_size=1, max_size=4))
def test_may_hold_accepts_all_members(of: ValueSet, held: list[Value]) -> None:
    """A set with an expression would be asked of one of several values only."""
    keys = tuple(sorted(map(key_of, held)))
    assert of.may_hold(keys) == any(map(of.holds, keys))


def test_many_values_are_work_where_an_expression_is_asked() -> None:
    """A notification of many texts would be free, or lost where a request has no work left."""
    of, keys = ct.ops.suffix("z"), tuple(key_of(f"{n:02}") for n in range(12))
    counted = Counter(safe_answers)
    with Work("LEFT", 11) as work:
        assert not of.may_hold(keys)
        assert work.left == 0
    with Work("LEFT", 10):
        assert of.may_hold(keys)
    assert Counter(safe_answers) - counted == Counter({"holds: LEFT": 1})


def test_an_operator_nobody_registered_accepts_every_text_and_nothing_else() -> None:
    """A forwarded filter would be dropped, or match against its other constraints."""
    frob = Literal(Atom("frob", b"x"), True)
    ends = Literal(Atom("suffix", b"z"), True)
    text, other, number = key_of("fizz"), key_of("fuss"), key_of(7)
    for unknown in (frob, negation(frob)):
        assert of_cuts((), unknown).may_hold((text,))
        assert not of_cuts((), unknown).may_hold((number,))
        both, one = of_cuts((), every((unknown, ends))), of_cuts((), some((unknown, ends)))
        assert [both.may_hold((key,)) for key in (text, other)] == [True, False]
        assert [one.may_hold((key,)) for key in (text, other)] == [True, True]
        assert both.may_hold((number, other, text))
        with pytest.raises(UnknownOperatorError):
            both.holds(text)
