"""The engine: filters shared by patterns, and one buffer that feeds them all."""

import random

import pytest

from contrada.errors import InvalidFilterError, UnknownOperatorError
from contrada.model import Filter, Notification, Pattern
from contrada.model.algebra.value_set import ValueSet
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from contrada.patterns import pattern_engine as module
from contrada.patterns.pattern_engine import PatternEngine, SharedFilters, check_pattern
from contrada.patterns.runs import PatternLimits, RunBudget
from tests.patterns.streams import pattern, stream, text_of
from tests.patterns.test_runs import defined, stream_of

AB = Pattern("kind = 'a' -> kind = 'b'")
A, B = AB.filters


def engine() -> PatternEngine:
    """An engine with filters and a budget of its own."""
    return PatternEngine(SharedFilters(), RunBudget(PatternLimits()))


def hold(to: PatternEngine, notification: Notification) -> None:
    """Pushes a notification with the filters that match it."""
    to.hold(notification, [each for each in to._filters if each.filter.matches(notification)])


@pytest.mark.parametrize("work_max", [1, 7, 2**48])
def test_many_patterns_are_as_one_each(work_max: int) -> None:
    """Patterns would disturb one another, or remove shared filters."""
    count = 0
    for seed in range(100):
        chance = random.Random(seed)
        it = engine()
        patterns = [pattern(chance) for _ in range(chance.randint(2, 6))]
        gone = {it.add(each)[0] for each in patterns[:1]}
        numbers = {it.add(each)[0]: each for each in patterns[1:]}
        notifications = stream(chance, 30)
        found = []
        for place, notification in enumerate(notifications):
            hold(it, notification)
            if place == 10:
                for number in gone:
                    it.remove(number)
            found += it.advance(notification.envelope.at_us, work_max)
            it.validate()
        found += it.advance(1_000, work_max)
        while it.is_behind:
            found += it.advance(1_000, work_max)
        it.validate()
        for number, each in numbers.items():
            runs = sorted(text_of(each.notifications) for each in found if each.key == number)
            should = sorted(run for _, run in defined(each, notifications))
            assert runs == should, f"seed {seed}: {each}"
            count += len(should)
        last = [each.envelope.sequence for each in found]
        assert last == sorted(last), "matches come in another order than their ends"
    assert count > 200, "the streams must hold matches"


def test_equal_filters_are_one_until_nobody_uses_them() -> None:
    """The index would hold a filter twice, or lose it while a pattern needs it."""
    it = engine()
    one, new = it.add(AB)
    assert [each.filter for each in new] == [A, B]
    two, new = it.add(Pattern([B, B, Filter("kind = 'c'")]))
    assert [each.filter for each in new] == [Filter("kind = 'c'")]
    it._filters.validate()
    assert len(it.remove(one)) == 1
    assert len(it.remove(two)) == 2
    assert (len(it._filters), len(it)) == (0, 0)


def test_a_filter_twice_in_one_pattern_is_new_once() -> None:
    """It would be entered twice, which the index refuses."""
    it = engine()
    _, new = it.add(Pattern([A, A]))
    assert [each.filter for each in new] == [A]
    assert [each.uses for each in it._filters.of([each.number for each in new])] == [2]


def test_the_buffer_is_cleared_with_the_last_pattern() -> None:
    """A server would wait for a time for nobody's sake."""
    it = engine()
    number, _ = it.add(AB)
    a0, b1 = stream_of("ab")
    hold(it, b1)
    hold(it, a0)
    assert it.waiting.head_us == a0.envelope.at_us
    it.remove(number)
    assert list(it.waiting) == []


def test_late_is_counted_and_nothing_else_is() -> None:
    """Losses would not be counted, or be counted without a loss."""
    it = engine()
    it.advance(7)
    assert it.waiting.watermark_us == 7
    assert (it.is_late(7), it._budget.dropped) == (False, {})
    assert (it.is_late(6), it._budget.dropped) == (True, {module.LATE: 1})


def test_one_of_the_same_place_in_order_is_a_duplicate() -> None:
    """A duplicate would fill two places of a match."""
    it = engine()
    it.add(Pattern([A, A]))
    [a0] = stream_of("a")
    hold(it, a0)
    later, _ = it.add(Pattern([A, A]))
    hold(it, a0)
    assert it.advance(100) == []
    assert it._budget.dropped == {module.DUPLICATE: 1}
    assert it._budget.held == 2, "the pattern added since sees the second, and only that"
    assert it._patterns[later].validate() == 1


def test_the_work_of_a_watermark_is_cut_into_turns() -> None:
    """The runs of many patterns would hold the loop of a server for seconds."""
    it = engine()
    every = Pattern("every kind = 'a' -> kind = 'b'")
    numbers = [it.add(every)[0] for _ in range(20)]
    notifications = stream_of("a" * 50 + "b")
    for each in notifications:
        hold(it, each)
    one = 1 + (1 + module._MATCH_WORK) * 50
    found, turns = len(it.advance(1_000, 100)), 1
    while it.is_behind:
        before = it.work
        found += len(it.advance(1_000, 100))
        assert it.work - before < 100 + one, "at most the runs of one pattern and group beyond"
        turns += 1
    assert found == 20 * 50
    assert turns > it.work / (100 + one)
    assert set(it.charges) == set(numbers)
    assert len(set(it.charges.values())) <= 2, "equal patterns are charged alike"


def test_a_pattern_that_is_removed_leaves_no_work() -> None:
    """A removed pattern would open runs that nobody frees."""
    it = engine()
    every = Pattern("every kind = 'a' -> kind = 'b'")
    numbers = [it.add(every)[0] for _ in range(3)]
    for each in stream_of("ab"):
        hold(it, each)
    it.advance(1_000, 1)
    it.remove(numbers[2])
    found = it.advance(1_000)
    assert not it.is_behind
    assert {each.key for each in found} == set(numbers[:2])
    it.advance(1_000)
    for number in numbers[:2]:
        it.remove(number)
    assert it._budget.held == 0
    assert it.charges.keys() <= set()


def test_only_patterns_without_unknown_operators_are_taken() -> None:
    """An unknown operator would be assembled, and never match."""
    check_pattern(AB)
    strange = ValueSet((), Literal(Atom("nobody's", b"x"), positive=True))
    with pytest.raises(InvalidFilterError):
        check_pattern(A)  # type: ignore[arg-type]
    with pytest.raises(UnknownOperatorError):
        check_pattern(Pattern([A, Filter.of_sets({"a": strange})]))
