"""Where an expression is true, where it is false, and where it is either: three conditions.

An error is neither true nor false, so none of the conditions is the opposite of another. Each is
a bound: the expression is so there at most, and, where the bound is exact, everywhere there. Bounds
are joined by *and* and *or* alone, never complemented, so that a join of bounds is a bound, and of
exact ones an exact one.

Source: CloudEvents, CESQL 1.0.0 §3.3 and §3.4.2 (AND and OR stop at what decides them).
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Final, NamedTuple

from contrada.dialects.cesql.casts import Truth
from contrada.dialects.expression import FALSE, TRUE, Condition, Every, Member, Some
from contrada.model.algebra.valueset import EVERYTHING, NOTHING, ValueSet, intersection, union
from contrada.model.languages.language import atoms_of

CESQL_PARTS_MAX: Final = 10_000
"""Value sets, and operators on text in them, of one exact bound. Beyond it: it is made loose, the
residue decides."""

CESQL_FILTERS_MAX: Final = 1_000
"""Filters that one bound, and all of a rule, become. Beyond it: it is made loose, the residue
decides."""

CESQL_MERGED_MAX: Final = 1_000_000
"""Sets in the filters of a rule, times its attributes, up to which these are joined again. Beyond
it: they stay apart."""

CESQL_XOR_OPERANDS_MAX: Final = 10
"""Operands of an XOR with exact bounds. Each operand doubles the bounds. Beyond it: they are made
loose, the residue decides."""


class Bound(NamedTuple):
    """Something is so where the condition holds at most; and just there, where it is exact."""

    condition: Condition
    exact: bool = True
    size: int = 0
    """The value sets in the condition, and the operators on text in them."""

    def loose(self) -> "Bound":
        """The same as a bound of something that is so in fewer places."""
        return self if _is_false(self.condition) else self._replace(exact=False)


ALWAYS: Final = Bound(TRUE)
NEVER: Final = Bound(FALSE)


class Outcome(NamedTuple):
    """The bounds of where an expression is true, false, and either of the two."""

    true: Bound
    false: Bound
    defined: Bound

    def when(self, wanted: bool) -> Bound:
        """Where it is what is wanted."""
        return self.true if wanted else self.false

    def inverse(self) -> "Outcome":
        """The outcome of NOT."""
        return Outcome(self.false, self.true, self.defined)


def constant(value: bool | None) -> Outcome:
    """The outcome of a constant; None is an error."""
    if value is None:
        return Outcome(NEVER, NEVER, NEVER)
    outcome = Outcome(ALWAYS, NEVER, ALWAYS)
    return outcome if value else outcome.inverse()


def of_attribute(name: str, truth: Truth) -> Outcome:
    """The outcome of what depends on one attribute."""
    return Outcome(
        member(name, truth.true, truth.exact),
        member(name, truth.false, truth.exact),
        member(name, truth.defined),
    )


def member(name: str, values: ValueSet, exact: bool = True) -> Bound:
    """Where the attribute's value is in a set."""
    return all_of([Bound(Member(name, values), exact, size_of(values))])


def within(bound: Bound) -> Outcome:
    """The outcome of what is known only to be true or false within a bound."""
    return Outcome(bound.loose(), bound.loose(), bound.loose())


def conjunction(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of AND: false where one is and all before it are true, or false already.

    Where a bound is too large, it is that of what is evaluated in any case.
    """
    first = outcomes[0]
    defined = [each.defined for each in outcomes]
    falses = [each.false for each in outcomes]
    true = _fitting(all_of([each.true for each in outcomes]), first.true.loose())
    false = _fitting(_first_of(falses, defined), any_of(falses).loose(), first.defined.loose())
    either = _fitting(any_of([false, all_of(defined)]), first.defined.loose())
    return Outcome(true, false, either)


def disjunction(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of OR, which is NOT of the AND of the opposites, errors included."""
    return conjunction([each.inverse() for each in outcomes]).inverse()


def exclusive(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of XOR, of which all operands are evaluated."""
    defined = _fitting(all_of([each.defined for each in outcomes]), outcomes[0].defined.loose())
    if len(outcomes) > CESQL_XOR_OPERANDS_MAX:
        return within(defined)
    true, false = outcomes[0].true, outcomes[0].false
    for each in outcomes[1:]:
        true, false = (
            any_of([all_of([true, each.false]), all_of([false, each.true])]),
            any_of([all_of([true, each.true]), all_of([false, each.false])]),
        )
        if not is_small(true):
            return within(defined)
    return Outcome(true, _fitting(false, defined.loose()), defined)


def _fitting(*bounds: Bound) -> Bound:
    """The first bound that is not too large; the last one never is."""
    return next(filter(is_small, bounds), bounds[-1])


def is_small(bound: Bound) -> bool:
    """Whether a bound is within the limits."""
    return bound.size <= CESQL_PARTS_MAX and filters_of(bound.condition) <= CESQL_FILTERS_MAX


def _first_of(bounds: Sequence[Bound], defined: Sequence[Bound]) -> Bound:
    """Where one of the bounds holds and all that stand before it are defined.

    Too large, it is not made to the end: it is not used then.
    """
    found: list[Bound] = []
    before, size = ALWAYS, 0
    for bound, either in zip(bounds, defined, strict=True):
        found.append(all_of([before, bound]))
        size += found[-1].size
        if size > CESQL_PARTS_MAX:
            return found[-1]._replace(size=size)
        before = all_of([before, either])
    return any_of(found)


def all_of(bounds: Iterable[Bound]) -> Bound:
    """Where all bounds hold. The sets of one attribute become one."""
    gathered = _Gathered(bounds, Every)
    members = [Member(name, intersection(each)) for name, each in gathered.sets()]
    if any(map(_is_false, gathered.rest)) or any(_is(each.values, NOTHING) for each in members):
        return NEVER
    members = [each for each in members if not _is(each.values, EVERYTHING)]
    return gathered.joined(members)


def any_of(bounds: Iterable[Bound]) -> Bound:
    """Where one of the bounds holds. The sets of one attribute become one."""
    gathered = _Gathered(bounds, Some)
    members = [Member(name, union(each)) for name, each in gathered.sets()]
    if any(map(_is_true, gathered.rest)) or any(_is(each.values, EVERYTHING) for each in members):
        return Bound(TRUE, gathered.exact)
    members = [each for each in members if not _is(each.values, NOTHING)]
    return gathered.joined(members)


class _Gathered:
    """The parts of bounds that are joined: the different sets of each attribute, and the rest."""

    def __init__(self, bounds: Iterable[Bound], node: type[Every] | type[Some]) -> None:
        self.node = node
        self.rest: list[Condition] = []
        self.exact = True
        self._rest_size = 0
        self._sets: dict[str, dict[object, ValueSet]] = {}
        for bound in bounds:
            self.exact = self.exact and bound.exact
            self._rest_size += bound.size
            condition = bound.condition
            for part in condition.parts if isinstance(condition, node) else (condition,):
                self._take(part)

    def _take(self, part: Condition) -> None:
        if isinstance(part, Member):
            form = (part.values.line, part.values.text)
            self._sets.setdefault(part.name, {})[form] = part.values
            self._rest_size -= size_of(part.values)
        else:
            self.rest.append(part)

    def sets(self) -> Iterator[tuple[str, list[ValueSet]]]:
        """The attributes, each with its sets."""
        return ((name, list(each.values())) for name, each in self._sets.items())

    def joined(self, members: list[Member]) -> Bound:
        """The join of the rest and of these members, made of the sets."""
        parts = (*members, *self.rest)
        size = self._rest_size + sum(size_of(each.values) for each in members)
        return Bound(parts[0] if len(parts) == 1 else self.node(parts), self.exact, size)


def size_of(values: ValueSet) -> int:
    """One, and the number of operators on text in a set."""
    return 1 if values.text is None else 1 + sum(1 for _ in atoms_of(values.text))


def filters_of(condition: Condition) -> int:
    """The number of filters that a condition becomes at most."""
    if isinstance(condition, Member):
        return 1
    join = prod if isinstance(condition, Every) else sum
    return join(filters_of(part) for part in condition.parts)


def _is_true(condition: Condition) -> bool:
    return isinstance(condition, Every) and not condition.parts


def _is_false(condition: Condition) -> bool:
    return isinstance(condition, Some) and not condition.parts


def _is(values: ValueSet, other: ValueSet) -> bool:
    """Whether a set is another one and shows it. No decision is made: it could cost much."""
    return values.text is None and values.line == other.line
