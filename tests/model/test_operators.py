"""All operators behind the paper's interface."""

from typing import Any

import pytest

from contrada.errors import InvalidFilterError, UnknownOperatorError
from contrada.model.algebra import sets
from contrada.model.algebra.operators import Constraint, operator, operators
from contrada.model.languages.atoms import INDEX_FIRST, registry


def test_every_operator_has_its_name_and_index() -> None:
    """An operator would be missing, or two share an index."""
    found = operators()
    names = [view.name for view in found]
    assert set(names) == {*sets.OPERATORS, *registry.names()}
    assert len(set(names)) == len(names)
    assert [view.index for view in found] == list(range(len(found)))
    assert all(operator(view.name) == operator(view.index) == view for view in found)


def test_indices_agree_with_the_registry() -> None:
    """An operator would show another index than it was given when it was registered."""
    assert sum(registry.find(name) is None for name in sets.OPERATORS) == INDEX_FIRST
    for name in registry.names():
        assert operator(name).index == registry.get(name).index


@pytest.mark.parametrize("flags", [{"a": 3}, None, b"i"])
def test_flags_that_are_no_text_hint_at_the_relation(flags: Any) -> None:
    """A program that tests if a filter matches would read about flags that it never gave."""
    with pytest.raises(InvalidFilterError, match=r"ct\.matches\(filter, notification\)"):
        sets.matches("a < 5", flags)


@pytest.mark.parametrize(("symbol", "name"), sets.SYNONYMS.items())
def test_the_symbols_are_names_too(symbol: str, name: str) -> None:
    """The papers' symbols would be unknown."""
    assert operator(symbol) == operator(name)


def test_operators_take_none_one_or_several_constants() -> None:
    """Only operators with one constant would have the interface."""
    assert operator("any").apply(5)
    assert operator("between").apply(5, (3, 7))
    assert operator("in").covers((1, 2, 3), "in", (1, 3))
    assert operator("any").intersects((), "=", None)
    assert operator("<").covers(5, "between", (1, 4))
    assert not operator("<").intersects(5, ">", 7)
    assert operator("contains nocase").covers("AB", "contains", "aB")


@pytest.mark.parametrize("wanted", ["nosuch", "", -1, 1_000])
def test_an_unknown_operator_is_refused(wanted: str | int) -> None:
    """An index or name from elsewhere would lead to some other operator."""
    with pytest.raises(UnknownOperatorError):
        operator(wanted)


def test_constants_that_do_not_fit_are_refused() -> None:
    """A missing constant would be read as another question."""
    with pytest.raises(InvalidFilterError):
        operator("<").apply(5)
    with pytest.raises(InvalidFilterError):
        operator("suffix").apply("a", ("a", "b"))


def test_constraints_are_related_on_one_attribute() -> None:
    """A constraint would cover, or exclude, one on another attribute."""
    low, lower = Constraint("a", "<", 5), Constraint("a", "<", 3)
    high, other = Constraint("a", ">", 7), Constraint("b", "<", 5)
    assert low.matches("a", 4)
    assert not low.matches("a", 5)
    assert not low.matches("b", 4)
    with pytest.raises(InvalidFilterError, match="a"):
        low.matches("a", object())  # type: ignore[arg-type]
    assert low.covers(lower)
    assert not lower.covers(low)
    assert not low.covers(other)
    assert low.intersects(lower)
    assert not low.intersects(high)
    assert high.intersects(other)
