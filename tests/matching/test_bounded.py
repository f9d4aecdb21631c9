"""The index within a budget: candidates that it cannot afford to check."""

from collections.abc import Callable
from typing import Any

import pytest

import contrada as ct
from contrada.errors import LimitError
from contrada.model import Filter, FilterSet, Notification
from contrada.model.algebra.sets import contains, eq, matches, prefix, suffix
from contrada.model.languages.decision import safe_answers
from contrada.model.languages.work_budget import Work
from tests.matching.engines import COMPILED, naive, needs_native, new_index

BUDGETS = [0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 400, 1_000, 2_000, 10_000, 10**6]
"""Steps, from none to enough."""

SUBSCRIPTIONS = {
    "nearly": Filter({"a": contains("a" * 300 + "b")}),
    "some": FilterSet([Filter({"a": contains("ba")}), Filter({"a": suffix("aab")})]),
    "beside": Filter({"a": contains("aab"), "n": eq(1)}),
    "expression": Filter({"a": matches("a(a|b){9}c$")}),
    "not": Filter({"a": ~contains("aab") & prefix("a")}),
    "cheap": Filter({"n": eq(2)}),
}

NOTIFICATIONS = [
    Notification({"a": "a" * length + end, "n": n})
    for n, (length, end) in enumerate([(10, ""), (400, "b"), (4_000, "c"), (4_000, "ba")])
]


def _index(compiled: Any) -> ct.Index[str]:
    index: ct.Index[str] = new_index(compiled)
    for key, filters in SUBSCRIPTIONS.items():
        index.add(key, filters)
    return index


def _alone(index: ct.Index[str]) -> list[list[str]]:
    return [sorted(index.match(each)) for each in NOTIFICATIONS]


def _together(index: ct.Index[str]) -> list[list[str]]:
    offsets, keys = index.match_batch(NOTIFICATIONS)
    return [sorted(keys[offsets[n] : offsets[n + 1]]) for n in range(len(NOTIFICATIONS))]


WAYS = [_alone, _together]
EXACT = [naive(SUBSCRIPTIONS, each) for each in NOTIFICATIONS]


@pytest.mark.quick_every(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("compiled", COMPILED)
def test_a_strict_budget_gives_the_exact_answer_or_none(
    compiled: Any, way: Callable[[Any], list[list[str]]]
) -> None:
    """A broker would deliver a notification that a kernel had not checked to its end, silently."""
    index = _index(compiled)
    answered = []
    for steps in BUDGETS:
        try:
            with Work("BUDGET", steps, is_strict=True):
                assert way(index) == EXACT
            answered.append(steps)
        except LimitError as error:
            if error.limit != "BUDGET":
                raise
    assert answered, "enough is enough"
    assert answered != BUDGETS, "none is too little"


@pytest.mark.quick_every(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("compiled", COMPILED)
def test_a_budget_adds_safe_answers_that_are_counted(
    compiled: Any, way: Callable[[Any], list[list[str]]]
) -> None:
    """A notification would be lost, or one too many would look as sure as the others."""
    index = _index(compiled)
    added = []
    for steps in BUDGETS:
        before = safe_answers.total()
        with Work("BUDGET", steps):
            found = way(index)
        for exact, got in zip(EXACT, found, strict=True):
            assert set(exact) <= set(got)
        if found != EXACT:
            assert safe_answers.total() > before
            added.append(steps)
    assert added, "none is too little"
    assert added != BUDGETS, "enough is enough"


@needs_native
def test_a_match_that_needs_the_model_is_counted_once() -> None:
    """A broker would refuse or delay publications for work that it did twice."""
    long, counted = Notification({"a": "ab" * 100_000, "n": 1}), []
    for compiled in (False, True):
        index: ct.Index[str] = new_index(compiled)
        index.add("kernel", Filter({"a": contains("b" * 20 + "a"), "n": eq(1)}))
        index.add("model", Filter({"a": matches("(?i)x.*y"), "n": eq(1)}))
        index.match(long)  # The arrays grow first.
        with Work("BUDGET", 10**6) as work:
            assert not index.match(long)
            counted.append(10**6 - work.left)
    assert counted[0] == counted[1] > 0
