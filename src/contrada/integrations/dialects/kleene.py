"""Logic of three values: where something is true, and where it is false, as two conditions.

Elsewhere it is neither: unknown in SQL, an error in CESQL. So none of the conditions is the
opposite of another. Each is a bound: the thing is so there at most, and, where the bound is exact,
everywhere there. Bounds are joined by *and* and *or* alone, never complemented, so that a join of
bounds is a bound, and of exact ones an exact one.

Source: Kleene, Introduction to Metamathematics, 1952, §64 (the strong connectives).
"""

from collections.abc import Callable, Iterable
from math import prod
from typing import Final, NamedTuple

from contrada.model.algebra.expression import FALSE, TRUE, And, Formula, Member, Or, negation
from contrada.model.algebra.value_set import EVERYTHING, NOTHING, ValueSet, intersection, union
from contrada.model.languages.language import atoms_of


class Bound(NamedTuple):
    """Something is so where the condition holds at most; and just there, where it is exact."""

    condition: Formula
    exact: bool = True
    size: int = 0
    """The value sets in the condition, and the operators on text in them."""

    def loose(self) -> "Bound":
        """The same as a bound of something that is so in fewer places."""
        return self if self.condition == FALSE else self._replace(exact=False)


ALWAYS: Final = Bound(TRUE)
NEVER: Final = Bound(FALSE)


class Truth(NamedTuple):
    """The bounds of where an expression is true, false, and either of the two."""

    true: Bound
    false: Bound
    defined: Bound

    def when(self, wanted: bool) -> Bound:
        """Where it is what is wanted."""
        return self.true if wanted else self.false

    def inverse(self) -> "Truth":
        """The truth of NOT."""
        return Truth(self.false, self.true, self.defined)


def constant(value: bool | None) -> Truth:
    """The truth of a constant; None is neither true nor false."""
    if value is None:
        return Truth(NEVER, NEVER, NEVER)
    held = Truth(ALWAYS, NEVER, ALWAYS)
    return held if value else held.inverse()


def conjunction(truths: Iterable[Truth]) -> Truth:
    """The truth of AND where each part is asked: false where one part is."""
    parts = list(truths)
    true = all_of([each.true for each in parts])
    false = any_of([each.false for each in parts])
    # Said so, and not as true or false, it shows where nothing is ever unknown.
    return Truth(true, false, any_of([all_of([each.defined for each in parts]), false]))


def disjunction(truths: Iterable[Truth]) -> Truth:
    """The truth of OR, which is NOT of the AND of the opposites."""
    return conjunction([each.inverse() for each in truths]).inverse()


def certain(bound: Bound) -> Truth:
    """What is true where an exact bound holds, and false elsewhere."""
    opposite = Bound(negation(bound.condition), size=bound.size)
    return Truth(bound, opposite, ALWAYS)


def member(name: str, values: ValueSet, exact: bool = True) -> Bound:
    """Where the attribute's value is in a set."""
    return all_of([Bound(Member(name, values), exact, size_of(values))])


def all_of(bounds: Iterable[Bound]) -> Bound:
    """Where all bounds hold. The sets of one attribute become one."""
    return _joined(bounds, And, intersection, NOTHING, EVERYTHING)


def any_of(bounds: Iterable[Bound]) -> Bound:
    """Where one of the bounds holds. The sets of one attribute become one."""
    return _joined(bounds, Or, union, EVERYTHING, NOTHING)


def _joined(
    bounds: Iterable[Bound],
    node: type[And] | type[Or],
    join: Callable[[Iterable[ValueSet]], ValueSet],
    decisive: ValueSet,
    idle: ValueSet,
) -> Bound:
    """The join of bounds, but for sets that say nothing in it; one that decides is the whole."""
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
    """One, and the number of operators on text in a set."""
    return 1 if values.text is None else 1 + sum(1 for _ in atoms_of(values.text))


def filters_of(condition: Formula) -> int:
    """The number of filters that a condition becomes at most."""
    if isinstance(condition, Member):
        return 1
    join = prod if isinstance(condition, And) else sum
    return join(filters_of(part) for part in condition.parts)


def _is(values: ValueSet, other: ValueSet) -> bool:
    """Whether a set is another one and shows it. No decision is made: it could cost much."""
    return values.text is None and values.line == other.line
