"""The steps of work that small questions count for, exactly.

Beyond a budget answers are safe ones, so with other steps costly questions have other answers.
"""

import sys
from collections.abc import Callable

import pytest

from contrada import covers, meets, simplify, witness
from contrada.model import Filter, FilterSet, ValueSet
from contrada.model.algebra.sets import contains, gt, matches, suffix
from contrada.model.languages import automaton
from contrada.model.languages.automaton import Automaton, difference, search_automaton
from contrada.model.languages.decision import automaton_for
from contrada.model.languages.work_budget import Work

PERIODIC = b"abcabd" * 17


@pytest.fixture(autouse=True)
def _forgetful() -> None:
    """Answers that are known already take no steps."""
    for name, module in [*sys.modules.items()]:
        if name.startswith("contrada.model"):
            for each in vars(module).values():
                getattr(each, "cache_clear", int)()


def steps_of(ask: Callable[[], object]) -> int:
    """Returns the steps of a question."""
    with Work("STEPS", 10**9) as work:
        ask()
        return work.maximum - work.left


def machine(of: ValueSet) -> Automaton:
    """Returns the automaton of a set of texts."""
    return automaton_for(of.parts()[1])


AUTOMATA: dict[str, tuple[Callable[[], Automaton], int]] = {
    "search": (lambda: search_automaton(PERIODIC, anything_after=True), 1_020),
    "suffix": (lambda: machine(suffix("abcabd")), 730),
    "without case": (lambda: machine(contains("kas", nocase=True)), 1_911),
    "expression": (lambda: machine(matches("(a|b)*a(a|b){3}c$")), 3_177),
    "interval": (lambda: machine(gt("abc" * 50)), 38_401),
    "difference": (lambda: difference(machine(contains("abc")), machine(suffix("bcd"))), 1_684),
}


@pytest.mark.parametrize("case", AUTOMATA)
def test_an_automaton_takes_these_steps(case: str) -> None:
    """A set would be decided exactly in one release, and by a safe answer in the next."""
    build, steps = AUTOMATA[case]
    assert steps_of(build) == steps


def test_states_of_a_search_are_told_apart_by_their_distances() -> None:
    """Each state of a long constant would take one more pass over all of them."""
    found = search_automaton(PERIODIC, anything_after=True)
    steps = steps_of(lambda: automaton.minimise(found.rows, found.accepting))
    assert steps == 200 + 40 * len(found.rows)


@pytest.mark.parametrize(
    ("leaves", "turns", "steps"), [(1, 1, 3), (1, 8, 6), (2, 2, 4), (2, 8, 7), (12, 256, 265)]
)
def test_the_steps_to_the_next_states_grow_with_both(leaves: int, turns: int, steps: int) -> None:
    """A product of many automata would count as one of two, and hold a server's loop."""
    assert automaton.step_work(leaves, turns) == steps


QUESTIONS: dict[str, tuple[Callable[[], object], int]] = {
    "a prefix in a part": (
        lambda: covers(Filter("a contains 'ab'"), Filter("a prefix 'cab'")),
        541,
    ),
    "a part in a suffix": (
        lambda: covers(Filter("a suffix 'ab'"), Filter("a contains 'cab'")),
        413,
    ),
    "numbers and texts": (
        lambda: meets(Filter("a suffix 'ab' and b > 3"), Filter("a contains 'cab' and b < 5")),
        6,
    ),
    "an interval in two": (lambda: covers(FilterSet("a < 3 or a > 2"), Filter("a < 9")), 28),
    "a box in three": (
        lambda: covers(
            FilterSet("a < 3 and b < 3 or a > 2 and b < 4 or b > 2"), Filter("a < 9 and b any")
        ),
        167,
    ),
    "a simpler union": (
        lambda: simplify(FilterSet("a < 3 and b = 1 or a >= 3 and b = 1 or a > 4 and b = 2")),
        67,
    ),
    "a witness": (lambda: witness(Filter("a suffix 'ab' and a contains 'cd'")), 53),
    "a search in a long text": (lambda: matches("(a|b)*a(a|b){3}c$").contains("ab" * 500), 202),
}


@pytest.mark.parametrize("case", QUESTIONS)
def test_a_question_takes_these_steps(case: str) -> None:
    """A request would be answered in one release, and exceed its budget in the next."""
    ask, steps = QUESTIONS[case]
    assert steps_of(ask) == steps
