"""The relations of a machine as shifts and stars, against their pairs; its cost."""

import time
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.errors import InvalidFilterError, LimitError
from contrada.model.algebra import sets
from contrada.model.languages import regex_machine, regex_syntax
from contrada.model.languages.regex_machine import Closure, Machine, Relation

SECONDS_MAX = 10.0
"""Far more than any of these needs on a busy machine, far less than a step for each state."""

states = st.integers(0, 40)
pairs = st.lists(st.tuples(states, states), max_size=60)
runs = st.tuples(states, states, st.integers(1, 12)).map(
    lambda run: [(run[0] + n, run[1] + n) for n in range(run[2])]
)
shaped = st.lists(st.one_of(pairs, runs), max_size=4).map(lambda each: list(chain(*each)))


def bits(each: set[int]) -> int:
    return sum(1 << state for state in each)


@given(shaped, st.sets(states))
def test_a_relation_leads_where_its_pairs_lead(found: list[tuple[int, int]], at: set[int]) -> None:
    """A machine would reach other states than its expression defines."""
    expected = {second for first, second in found if first in at}
    assert Relation(found).of(bits(at)) == bits(expected)


@given(shaped, st.sets(states))
def test_a_closure_is_any_number_of_steps(found: list[tuple[int, int]], at: set[int]) -> None:
    """A machine would miss a way on which no character is read, or find one too many."""
    following: dict[int, tuple[int, ...]] = {}
    for first, second in found:
        following[first] = (*following.get(first, ()), second)
    expected, waiting = set(at), list(at)
    while waiting:
        for state in following.get(waiting.pop(), ()):
            if state not in expected:
                expected.add(state)
                waiting.append(state)
    assert Closure(following).of(bits(at)) == bits(expected)


def test_regular_expressions_take_few_operations() -> None:
    """A step of a long machine would cost as much as its states."""
    assert len(Relation((n, n + 3) for n in range(1_000))) == 1
    assert len(Relation((n, 0) for n in range(1_000))) == 1
    assert len(Relation((0, n) for n in range(1_000))) == 1
    assert len(Closure({n: (n + 1,) for n in range(1_000)})) == 10


def test_a_closure_of_too_many_pairs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expression could fill the memory before its machine is there."""
    monkeypatch.setattr(regex_machine, "CLOSURE_PAIRS_MAX", 100)
    with pytest.raises(LimitError):
        Closure({n: tuple(range(n)) for n in range(20)})


@pytest.mark.quick_every(12)
@pytest.mark.usefixtures("without_old_objects")
@pytest.mark.parametrize(
    "expression",
    [
        "a.{900}b$",
        "a(?:..?){400}c",
        r"(?:\ba|b\B|a.){300}c",
        "(?:a?(?:bc)?){900}c$",
        "a(?s:.{1,200}a){4}.{50}c",
        "a?" * 900 + "a" * 900 + "c",
    ],
)
@pytest.mark.parametrize("spread", [2, 300])
def test_no_pair_of_expression_and_text_takes_long(expression: str, spread: int) -> None:
    """One subscription and one event of 64 KiB would stall a broker."""
    number, text = 1, bytearray()
    for _ in range(2**16):
        number = number * 1_103_515_245 + 12_345 & 0x7FFFFFFF
        text.append(b"ab"[(number >> 16) % spread != 0])
    machine = Machine(regex_syntax.read(expression))
    start = time.process_time()
    machine.finds(bytes(text))
    assert time.process_time() - start < SECONDS_MAX


@pytest.mark.parametrize(
    ("expression", "limit"),
    [
        ("a" + "".join(f"(?:x{{{n}}}y)*" for n in range(1, 130)) + "c", "MACHINE_WORK_MAX"),
        ("(?:a?|b*|){900}c", "CLOSURE_PAIRS_MAX"),
    ],
)
def test_costly_expressions_are_refused(expression: str, limit: str) -> None:
    """An irregular expression of thousands of states would take milliseconds for each byte."""
    with pytest.raises(InvalidFilterError) as error:
        sets.matches(expression)
    assert limit in error.value.reason
