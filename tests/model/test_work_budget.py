"""The cost of a decision or a request, and the answer beyond its budget."""

import gc
import time
from collections.abc import Callable
from contextvars import copy_context

import pytest

from contrada import covers, meets, simplify, witness
from contrada.errors import LimitError
from contrada.model import Filter, FilterSet, ValueSet
from contrada.model.algebra import filter as filter_module
from contrada.model.algebra import relations
from contrada.model.algebra.sets import between, contains, in_, matches, suffix
from contrada.model.algebra.value_set import union
from contrada.model.languages import decision
from contrada.model.languages.work_budget import Exhausted, Uncollected, Work, spend

TURN_S = 0.25
"""As long as a request may take in the loop of a server."""

REQUEST = 100_000
"""As many steps as it may take there."""


def test_an_inner_budget_ends_with_its_own_limit() -> None:
    """Else a question that is too hard would end the request that asks it."""
    with Work("OUTER", 100) as outer:
        with pytest.raises(LimitError, match="INNER = 10"), Work("INNER", 10):
            spend(11)
        spend(outer.left)


def test_an_outer_budget_ends_past_the_inner_one() -> None:
    """Else an answer that only this request could not pay would be kept as the question's."""
    with pytest.raises(LimitError, match="OUTER = 5"), Work("OUTER", 5), Work("INNER", 5):
        spend(6)


def test_exhaustion_is_no_error_of_extensions() -> None:
    """Else it would be counted as a failure of an operator, and kept."""
    assert not issubclass(Exhausted, Exception)


def test_later_callbacks_are_not_bounded_by_a_budget() -> None:
    """A callback that a request left behind would be refused its own work."""
    with Work("OUTER", 1), Work("INNER", 1):
        later = copy_context()
    later.run(spend, 10_000)
    with pytest.raises(LimitError, match="NEXT"):
        later.run(_spend_in, Work("NEXT", 10), 11)


def _spend_in(work: Work, steps: int) -> None:
    with work:
        spend(steps)


def test_without_a_budget_nothing_is_counted() -> None:
    """Else a program that only calculates would have to set a budget."""
    spend(10**12)


_HARD: dict[str, Callable[[], tuple[ValueSet, ValueSet]]] = {
    "points without case": lambda: (_points(0), _points(20_000)),
    "a few points and many without case": lambda: (in_("a0", "b"), _points(20_000)),
    "points and suffixes": lambda: (in_(*map(str, range(9_999))) | suffix("y"), suffix("xy")),
    "long texts": lambda: (contains(b"\x01" * 9_000), contains(b"\x02" * 9_000)),
    "expressions": lambda: (matches("(a|b)*a(a|b){11}c$"), matches("(a|b)*b(a|b){11}c{2}$")),
    "a union of many": lambda: (
        union(contains(f"k{n}") for n in range(3_200)),
        union(suffix(f"{n}k") for n in range(3_200)),
    ),
}


def _points(first: int) -> ValueSet:
    return in_(*map(str, range(first, first + 10_000)), nocase=True)


@pytest.mark.usefixtures("without_old_objects")
@pytest.mark.parametrize("case", _HARD)
def test_hard_questions_get_safe_answers_within_a_request(case: str) -> None:
    """Else one client's sets would stop a server for a minute."""
    a, b = _HARD[case]()
    decision.find.cache_clear()
    asks: list[Callable[[], bool]] = [lambda: a.meets(b), lambda: a == b, lambda: a.is_empty]
    for ask in asks:
        began_s = time.thread_time()
        with Work("REQUEST", REQUEST):
            ask()
        assert time.thread_time() - began_s < TURN_S, "it took too long"


@pytest.mark.slow
@pytest.mark.parametrize("case", ["points without case", "expressions"])
def test_hard_questions_end_without_a_request_too(case: str) -> None:
    """Else a decision about a stranger's sets would not end."""
    a, b = _HARD[case]()
    began_s = time.thread_time()
    a.meets(b)
    assert a != b
    assert time.thread_time() - began_s < 10


def test_unpaid_decisions_are_made_by_the_next_request() -> None:
    """Else the safe answer of a poor request would be kept for everybody."""
    one, two = matches("(a|b)*a(a|b){5}c$"), matches("(a|b)*d(a|b){5}e$")
    before = decision.safe_answers.total()
    with Work("POOR", 100):
        assert one.meets(two), "the safe answer is yes"
    assert decision.safe_answers.total() == before + 1
    assert decision.safe_answers["meets: POOR"]
    assert not one.meets(two)


def test_a_membership_that_is_too_much_is_a_yes() -> None:
    """Else one text would be matched for minutes against expressions, or nobody would get it."""
    hard = matches("(a|b)*a(a|b){12}c{9}d")
    text = "ab" * 50_000
    with Work("POOR", 1_000):
        assert hard.contains(text)
    assert decision.safe_answers["holds: POOR"]
    assert not hard.contains(text)


def test_a_witness_is_made_readable_as_far_as_that_is_cheap() -> None:
    """Else a long constant would be tried byte by byte, for seconds."""
    hard = Filter({"a": contains(b"\x01" * 15_000) & suffix("zz")})
    began_s = time.thread_time()
    found = witness(hard)
    assert found is not None
    assert hard.matches(found)
    assert time.thread_time() - began_s < TURN_S


def test_simplifying_ends_and_keeps_the_union(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else ten thousand boxes would be compared in pairs, for a minute."""
    monkeypatch.setattr("contrada.model.algebra.simplification.SIMPLIFY_WORK_MAX", 20)
    given = [Filter({"a": between(n, n + 2), "b": between(n, n + 3)}) for n in range(20)]
    before = decision.safe_answers["simplify: SIMPLIFY_WORK_MAX"]
    assert simplify([*given, given[0]]) == FilterSet(given)
    assert decision.safe_answers["simplify: SIMPLIFY_WORK_MAX"] > before


def _squares(count: int, width: int) -> FilterSet:
    return FilterSet(Filter({"x": between(n, n + width), "y": n}) for n in range(count))


def test_relations_of_unions_end_with_the_safe_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two unions of ten thousand filters would be compared for minutes."""
    wide, narrow = _squares(100, 2), _squares(100, 1)
    apart = FilterSet(Filter({"x": n, "y": -1 - n}) for n in range(100))
    assert covers(wide, narrow)
    assert not meets(wide, apart)
    before = decision.safe_answers.total()
    assert witness(wide, apart) is None
    assert decision.safe_answers.total() == before, "that there is none was decided"
    for module in (filter_module, relations):
        monkeypatch.setattr(module, "RELATION_WORK_MAX", 5_000)
    assert not covers(wide, narrow)
    assert meets(wide, apart)
    assert witness(wide, apart) is None
    assert wide != narrow
    assert decision.safe_answers["covers: RELATION_WORK_MAX"]
    assert decision.safe_answers["meets: RELATION_WORK_MAX"]
    assert decision.safe_answers.total() == before + 4


def test_members_written_alike_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unions that differ in their order would be compared member by member."""
    monkeypatch.setattr(filter_module, "RELATION_WORK_MAX", 0)
    some = _squares(100, 1)
    assert some == FilterSet(reversed(some.filters))
    assert some.covers(FilterSet(some.filters[:50]))


@pytest.mark.slow
def test_joining_large_unions_ends() -> None:
    """All pairs of a thousand alternatives each would be tried for a minute, and give nothing."""
    some, others = _squares(1_000, 0), FilterSet(Filter({"y": -n - 1, "z": n}) for n in range(1000))
    with pytest.raises(LimitError, match="FORMS_WORK_MAX"):
        some & others


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_runs_after_a_block_if_it_ran_before(was_enabled: bool) -> None:
    """The garbage of a process would be kept for good; or a block end the one around it."""
    try:
        (gc.enable if was_enabled else gc.disable)()
        with Uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()
