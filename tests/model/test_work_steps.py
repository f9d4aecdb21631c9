"""The steps of work that small questions count for, exactly.

Beyond a budget answers are safe ones, so with other steps costly questions have other answers.
"""

import sys
from collections.abc import Callable

import pytest

from contrada import covers, meets, parse, simplify, witness
from contrada.model import Envelope, Filter, FilterSet, Notification, ValueSet
from contrada.model.algebra.sets import contains, gt, in_, matches, ne, of_operator, prefix, suffix
from contrada.model.codec import from_msgpack, notification_from_msgpack, to_msgpack
from contrada.model.languages import automaton, language_keys
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
    "repeated expression": (lambda: machine(matches("(x+y?){8}z")), 4_135),
    "nested expression": (lambda: machine(matches("((a?b?){6}c?){6}d")), 6_865),
    "expression of words": (lambda: machine(matches(r"\bab+c\b")), 2_640),
    "expression of optional parts": (lambda: machine(matches("(a?){20}b+")), 2_577),
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
    "a search that keeps rows": (lambda: matches("(a+b)?(a+c)?d").contains("ab" * 500), 507),
    "a part of letters beyond ASCII": (
        lambda: contains("kä", nocase=True).contains("xÄ" * 100 + "KÄ"),
        31,
    ),
    "an opaque operator": (
        lambda: meets(
            Filter("a && 'b = 1'"),
            Filter("a contains 'b =' and a contains '= 2' and a not contains 'b == 2'"),
        ),
        1_661,
    ),
    "values of an opaque operator": (
        lambda: meets(Filter("a && 'b = 1'"), Filter("a in ('b < 2', 'b > 2')")),
        213,
    ),
    "two filters as values": (lambda: of_operator("&&", ["b = 1 or c = 1"]).contains("b < 2"), 385),
    "two terms": (lambda: of_operator("unifies", ["leg(_X, rome)"]).contains("leg(bari, _Y)"), 494),
    "an operator of an extension": (lambda: of_operator("set>=", [b"\1\2"]).canonical(), 1_152),
    "four exceptions of two attributes": (
        lambda: parse(" and ".join(f"not (a = {n} and b contains 'x{n}')" for n in range(4))),
        249,
    ),
    "a list of values": (lambda: Notification({"a": [1, 2, 3], "b": 1}), 3),
    "the key of texts": (lambda: key(in_("ab", "cd", "abd") & contains("b") & suffix("d")), 18),
    "the key of a text": (lambda: key(prefix("a", nocase=True) & in_("ab") & ne("b")), 7),
    "the key of many": (lambda: key(matches("^[a-h]{1,4}$")), 49_673),
    "the key of one of two sets": (
        lambda: key(in_("ab") & contains("a") & (prefix("a") | suffix("b"))),
        22,
    ),
    "the key of a language": (lambda: key(suffix("ab") & prefix("a") & contains("bb")), 1_225),
}


def key(of: ValueSet) -> object:
    """Returns the key of a set of texts."""
    return language_keys.key(of.parts()[1])


@pytest.mark.parametrize("case", QUESTIONS)
def test_a_question_takes_these_steps(case: str) -> None:
    """A request would be answered in one release, and exceed its budget in the next."""
    ask, steps = QUESTIONS[case]
    assert steps_of(ask) == steps


@pytest.mark.parametrize(
    ("filters", "steps"),
    [("a > 5 and b = 'x'", 8), ("a > 5 and b contains 'x' or c not suffix 'y' and d != 7", 64)],
)
def test_reading_a_filter_takes_these_steps(filters: str, steps: int) -> None:
    """A small message with many filters would hold a server's loop."""
    encoded = to_msgpack(parse(filters))
    assert steps_of(lambda: from_msgpack(encoded)) == steps


def test_reading_lists_takes_a_step_for_each_value() -> None:
    """A message full of lists would hold a server's loop."""
    encoded = to_msgpack(
        Notification({"a": [1, 2, 3], "b": "x", "c": ["y", "z"]}, envelope=Envelope("p.1", "p", 1))
    )
    assert steps_of(lambda: dict(notification_from_msgpack(encoded))) == 10
