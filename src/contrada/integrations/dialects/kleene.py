"""Three-valued logic: the conditions under which an expression is true, and is false.

In all other cases it is neither: unknown in SQL, an error in CESQL. So the two conditions are not
complements. Each is an upper bound, and exact bounds are equal to it. Bounds are joined by *and*
and *or* only, never complemented, so a join of bounds is a bound, and a join of exact bounds is
exact.

Source: Kleene, Introduction to Metamathematics, 1952, §64 (the strong connectives).
"""

from collections.abc import Iterable
from math import prod
from typing import Final, NamedTuple

from contrada.model.algebra.expression import FALSE, TRUE, And, Formula, Member, Or, negation
from contrada.model.algebra.value_set import EVERYTHING, NOTHING, ValueSet, intersection, union
from contrada.model.languages.language import atoms_of


class Bound(NamedTuple):
    """An upper bound: the condition holds wherever the expression does, and only there if exact."""

    condition: Formula
    exact: bool = True
    size: int = 0
    """The number of value sets in the condition, and of operators on text in them."""

    def loose(self) -> "Bound":
        """Returns the same condition as a bound that is not exact."""
        return self if self.condition == FALSE else self._replace(exact=False)


ALWAYS: Final = Bound(TRUE)
NEVER: Final = Bound(FALSE)


class Truth(NamedTuple):
    """The bounds of an expression: where it is true, false, and either of the two."""

    true: Bound
    false: Bound
    defined: Bound

    def when(self, wanted: bool) -> Bound:
        """Returns the bound of being true, or of being false."""
        return self.true if wanted else self.false

    def inverse(self) -> "Truth":
        """Returns the truth of NOT."""
        return Truth(self.false, self.true, self.defined)


def constant(value: bool | None) -> Truth:
    """Returns the truth of a constant; None is neither true nor false."""
    if value is None:
        return Truth(NEVER, NEVER, NEVER)
    held = Truth(ALWAYS, NEVER, ALWAYS)
    return held if value else held.inverse()


def conjunction(truths: Iterable[Truth]) -> Truth:
    """Returns the truth of AND where all operands are evaluated: false if one of them is."""
    parts = list(truths)
    true = all_of([each.true for each in parts])
    false = any_of([each.false for each in parts])
    # In this form, unlike true or false, it is visibly ALWAYS if nothing is ever unknown.
    return Truth(true, false, any_of([all_of([each.defined for each in parts]), false]))


def disjunction(truths: Iterable[Truth]) -> Truth:
    """Returns the truth of OR, which is NOT of the AND of the opposites."""
    return conjunction([each.inverse() for each in truths]).inverse()


def certain(bound: Bound) -> Truth:
    """Returns the truth of an exact bound: false wherever it does not hold."""
    opposite = Bound(negation(bound.condition), size=bound.size)
    return Truth(bound, opposite, ALWAYS)


def member(name: str, values: ValueSet, exact: bool = True) -> Bound:
    """Returns the bound of an attribute's value being in a set."""
    return all_of([Bound(Member(name, values), exact, size_of(values))])


def all_of(bounds: Iterable[Bound]) -> Bound:
    """Returns the intersection of bounds. The sets of each attribute are joined."""
    return _join(bounds, And)


def any_of(bounds: Iterable[Bound]) -> Bound:
    """Returns the union of bounds. The sets of each attribute are joined."""
    return _join(bounds, Or)


def _join(bounds: Iterable[Bound], node: type[And] | type[Or]) -> Bound:
    """Joins bounds without neutral sets; a decisive set is the whole result."""
    decisive, idle = (NOTHING, EVERYTHING) if node is And else (EVERYTHING, NOTHING)
    join = intersection if node is And else union
    sets: dict[str, dict[object, ValueSet]] = {}
    rest: list[Formula] = []
    exact, size = True, 0
    for bound in bounds:
        exact = exact and bound.exact
        size += bound.size
        condition = bound.condition
        for part in condition.parts if isinstance(condition, node) else (condition,):
            if isinstance(part, Member):
                sets.setdefault(part.name, {})[part.values.line, part.values.text] = part.values
                size -= size_of(part.values)
            else:
                rest.append(part)
    members = [Member(name, join(each.values())) for name, each in sets.items()]
    decided = FALSE if node is And else TRUE
    if decided in rest or any(_is(each.values, decisive) for each in members):
        return Bound(decided, exact or node is And)
    members = [each for each in members if not _is(each.values, idle)]
    parts = (*members, *rest)
    size += sum(size_of(each.values) for each in members)
    return Bound(parts[0] if len(parts) == 1 else node(parts), exact, size)


def size_of(values: ValueSet) -> int:
    """Returns one, plus the number of operators on text in a set."""
    return 1 if values.text is None else 1 + sum(1 for _ in atoms_of(values.text))


def filters_of(condition: Formula) -> int:
    """Returns an upper limit of the number of filters for a condition."""
    if isinstance(condition, Member):
        return 1
    join = prod if isinstance(condition, And) else sum
    return join(filters_of(part) for part in condition.parts)


def _is(values: ValueSet, other: ValueSet) -> bool:
    """Whether a set is visibly another one. It makes no decision, which could be expensive."""
    return values.text is None and values.line == other.line
