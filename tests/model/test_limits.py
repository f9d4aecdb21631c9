"""Beyond the named limits answers are safe, and counted; membership stays exact."""

import random
from collections.abc import Iterator

import pytest

import contrada.model.extensions  # noqa: F401  registers an opaque operator
from contrada.model import Filter, FilterSet
from contrada.model.algebra import relations, sets
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains import line
from contrada.model.languages import decision
from contrada.model.languages.atoms import Atom, Tally
from contrada.model.languages.automaton import STATES_MAX
from contrada.model.languages.language import Literal

LONG = "a" * STATES_MAX


@pytest.fixture
def counted() -> Iterator[Tally]:
    """The counts of this test."""
    decision.safe_answers.clear()
    yield decision.safe_answers
    decision.safe_answers.clear()


def test_beyond_the_states_answers_are_safe(counted: Tally) -> None:
    """A router would drop a wanted notification because a question was too large."""
    large = sets.contains(LONG) - sets.eq(LONG)
    begun = sets.prefix("a")
    assert large.meets(sets.text_not(begun))
    assert not begun.issuperset(large)
    assert not large.is_empty
    assert large != begun
    assert large.contains(LONG + "b")
    assert not large.contains(LONG)
    assert hash(large) == hash(sets.contains(LONG) - sets.eq(LONG))
    assert counted == {"meets": 1, "covers": 1, "empty": 1}


def test_a_set_is_itself_beyond_all_limits(counted: Tally) -> None:
    """A filter could not be found again because its constant is long."""
    f = Filter({"a": sets.contains(LONG)})
    assert f == Filter({"a": sets.contains(LONG)})
    assert relations.covers(f, f)
    assert Filter(str(f)) == f
    assert counted.total() == 0


def test_a_witness_beyond_the_limits_is_none(counted: Tally) -> None:
    """A notification would be named that nobody has checked."""
    f = Filter({"a": sets.contains(LONG) - sets.eq(LONG) - sets.prefix("a")})
    assert relations.witness(f) is None
    assert counted["witness"] == 1


def test_an_unknown_operator_meets_all_and_covers_nothing(counted: Tally) -> None:
    """A subscription with an operator of another version would not be forwarded."""
    unknown = ValueSet(line.EMPTY, Literal(Atom("frobs", b"x"), True))
    assert unknown.unknown() == ("frobs",)
    for other in (sets.eq("a"), sets.exists(), sets.contains("b"), unknown):
        assert unknown.meets(other)
        assert other.meets(unknown)
        assert not unknown.issuperset(other)
    assert not unknown.is_empty
    assert unknown == ValueSet(line.EMPTY, Literal(Atom("frobs", b"x"), True))
    assert counted["meets: unknown operator"] == 8
    assert counted["covers: unknown operator"] == 4


@pytest.mark.slow
def test_boxes_beyond_the_limit_are_not_covered(counted: Tally) -> None:
    """A union of many filters would keep a broker busy for hours."""
    chance = random.Random(1)
    names = [f"v{number:02}" for number in range(100)]
    parts = [
        Filter({name: chance.random() < 0.5 for name in chance.sample(names, 3)})
        for _ in range(450)
    ]
    whole = Filter({name: sets.in_(True, False) for name in names})
    assert not FilterSet(parts).covers(whole)
    assert counted["covers: BOX_WORK_MAX"] == 1


def test_a_set_with_an_opaque_operator_is_its_own_canonical_form() -> None:
    """Filters with an operator of a user would be no members of a set, but an error."""
    for held in (sets.extension("&&", "x < 1"), sets.prefix("y") & sets.extension("&&", "x < 1")):
        assert held.canonical() is held


def test_cases_of_opaque_operators_are_bounded(counted: Tally) -> None:
    """Opaque operators would double the work of a question each."""
    held = sets.prefix("y")
    for number in range(decision.OPAQUE_ATOMS_MAX + 1):
        held = held & sets.extension("&&", f"x < {number}")
    assert held.meets(sets.prefix("ya"))
    assert not sets.prefix("z").issuperset(held)
    assert counted == {"meets": 1, "covers": 1}
