"""Kernels that evaluate a filter's constraints, against the filters themselves."""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contrada as ct
from contrada.matching.filter_compiler import ATOM_KINDS
from contrada.matching.kernels.schema import OK, VERIFY
from contrada.model.domains.values import key_of
from contrada.model.languages.atoms import Atom
from contrada.model.languages.casefold import fold
from contrada.model.languages.language import Literal
from tests import strategies
from tests.matching.engines import (
    COMPILED,
    COMPILED_INNER,
    generation_of,
    inner,
    loaded,
    module,
    table,
)

encode = msgspec.msgpack.Encoder().encode
MAYBE = 2
TEXTS = [b"", b"a", b"b", b"A", b"ab", b"aB", b"ba", b"aab", b"\xff", "ſ".encode(), "ßa".encode()]

MEANINGS: dict[str, Callable[[bytes, bytes], bool]] = {
    "suffix": bytes.endswith,
    "contains": bytes.__contains__,
    "= nocase": lambda text, of: fold(text) == of,
    "prefix nocase": lambda text, of: fold(text).startswith(of),
    "suffix nocase": lambda text, of: fold(text).endswith(of),
    "contains nocase": lambda text, of: of in fold(text),
}


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@pytest.mark.parametrize("operator", ATOM_KINDS)
def test_each_operator_on_text_has_its_meaning(operator: str, compiled: Any) -> None:
    """A text would be compared from its wrong end, with or without case where it is not to be."""
    for constant in {fold(text) if "nocase" in operator else text for text in TEXTS}:
        value_set = ct.ValueSet((), Literal(Atom(operator, constant), True))
        segment = generation_of([ct.Filter({"x": value_set})], compiled)
        for text in TEXTS:
            assert loaded(segment, ct.Notification({"x": text}).span, compiled) == OK
            found = inner(compiled).set_holds(0, segment.arrays.memory)
            assert found == MEANINGS[operator](text, constant), (text, constant)


def of_three(values: tuple[int, ...], *, every: bool) -> int:
    """A conjunction or disjunction where MAYBE is either."""
    join = all if every else any
    possible = [[0, 1] if value == MAYBE else [value] for value in values]
    found = {join(each) for each in itertools.product(*possible)}
    return MAYBE if len(found) == 2 else int(found.pop())


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("every", [False, True])
def test_undecided_values_are_joined_with_the_rest(every: bool, compiled: Any) -> None:
    """MAYBE would count as true or as false; or the values below it would be lost."""
    joined = module("kernels.evaluate", compiled).joined
    for count in range(4):
        for values in itertools.product((0, 1, MAYBE), repeat=count):
            stack = np.array([7, *values, 0], dtype=np.int64)
            assert joined(every, count, stack, 1 + count) == 2
            assert stack[:2].tolist() == [7, of_three(values, every=every)], values


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(of=strategies.value_sets(), values=st.lists(strategies.values(), min_size=1, max_size=4))
def test_a_set_holds_the_members_of_the_model(of: Any, values: Any, compiled: Any) -> None:
    """A constraint would let other values pass than the filter does."""
    segment = generation_of([ct.Filter({"x": of})], compiled)
    arrays = segment.arrays
    assert loaded(segment, encode({"x": values}), compiled) == OK
    if segment.compiler.set_values:
        start = arrays.sets_by_row.start[0]
        is_opaque, is_wide = bool(segment.opaque), bool(segment.compiler._wide_sets)
        for row, key in enumerate(map(key_of, values)):
            found = inner(compiled).set_holds_value(start, row, arrays.memory)
            assert found != MAYBE or is_opaque
            is_exact = arrays.values.low[row] == arrays.values.high[row] and not is_wide
            if found != MAYBE and (is_exact or key[0] == 6 or found == 0):
                assert found == of.holds(key), key


@pytest.mark.parametrize("compiled", COMPILED_INNER)
@given(
    filters=st.lists(strategies.filters(strategies.value_sets(2)), max_size=5),
    notification=strategies.notifications(),
)
def test_a_program_holds_where_its_filter_matches(
    filters: Any, notification: Any, compiled: Any
) -> None:
    """A filter would match too much, or be missed although integers can decide it."""
    segment = generation_of(filters, compiled)
    arrays = segment.arrays
    assert loaded(segment, notification.span, compiled) == OK
    for slot, each in enumerate(filters):
        (number,) = segment.numbers(slot)
        begin = arrays.filters.begin[number]
        holds = bool(inner(compiled).holds(begin, arrays.memory))
        if arrays.program[begin] & VERIFY or arrays.counters.inexact[0]:
            assert holds >= each.matches(notification)
        else:
            assert holds is each.matches(notification)


@pytest.mark.parametrize("compiled", COMPILED_INNER)
def test_a_set_is_computed_once_for_a_notification(compiled: Any) -> None:
    """A set that many filters share would be computed for each, or be taken from the last time."""
    segment = generation_of([ct.Filter("x (contains 'a' | = 5)")], compiled)
    arrays, set_holds = segment.arrays, inner(compiled).set_holds
    words = table(arrays, "sets").copy()
    for text, expected in (("bab", 1), ("bbb", 0), ("a", 1)):
        loaded(segment, ct.Notification({"x": text}).span, compiled)
        assert set_holds(0, arrays.memory) == expected
        assert arrays.set_seen[0] == arrays.counters.epoch[0] * 4 + expected
        table(arrays, "sets")[:] = 0  # the result of a second evaluation
        assert set_holds(0, arrays.memory) == expected
        table(arrays, "sets")[:] = words
