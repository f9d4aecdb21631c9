"""Where an expression is true, where it is false, and where it is either: three conditions.

An error is neither true nor false, so none of the conditions is the opposite of another. Each is
a bound: the expression is so there at most, and, where the bound is exact, everywhere there. Bounds
are joined by *and* and *or* alone, never complemented, so that a join of bounds is a bound, and of
exact ones an exact one.

Source: CloudEvents, CESQL 1.0.0 §3.3 and §3.4.2 (AND and OR stop at what decides them).
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final, NamedTuple

from contrada.dialects.cesql.casts import Truth
from contrada.dialects.expression import FALSE, TRUE, Condition, Every, Member, Some
from contrada.model.language import atoms_of
from contrada.model.valueset import EVERYTHING, NOTHING, ValueSet, intersection, union

CESQL_PARTS_MAX: Final = 10_000
"""Value sets, and operators on text in them, of one exact bound; a larger one is made loose."""

CESQL_XOR_OPERANDS_MAX: Final = 10
"""Operands of one XOR with exact bounds, since each operand doubles them; else they are loose."""


class Bound(NamedTuple):
    """Something is so where the condition holds at most; and just there, where it is exact."""

    condition: Condition
    exact: bool = True


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
        all_of([Bound(Member(name, truth.true), truth.exact)]),
        all_of([Bound(Member(name, truth.false), truth.exact)]),
        all_of([Bound(Member(name, truth.defined))]),
    )


def within(bound: Bound) -> Outcome:
    """The outcome of what is known only to be true or false within a bound."""
    loose = Bound(bound.condition, _is_false(bound.condition))
    return Outcome(loose, loose, loose)


def conjunction(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of AND: false where one is and all before it are true, or false already."""
    false = _first_of([each.false for each in outcomes], [each.defined for each in outcomes])
    all_defined = all_of([each.defined for each in outcomes])
    return Outcome(all_of([each.true for each in outcomes]), false, any_of([false, all_defined]))


def disjunction(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of OR, which is NOT of the AND of the opposites, errors included."""
    return conjunction([each.inverse() for each in outcomes]).inverse()


def exclusive(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of XOR, of which all operands are evaluated."""
    defined = all_of([each.defined for each in outcomes])
    if len(outcomes) > CESQL_XOR_OPERANDS_MAX:
        return within(defined)
    true, false = outcomes[0].true, outcomes[0].false
    for each in outcomes[1:]:
        true, false = (
            any_of([all_of([true, each.false]), all_of([false, each.true])]),
            any_of([all_of([true, each.true]), all_of([false, each.false])]),
        )
        if size_of(true.condition) > CESQL_PARTS_MAX:
            return within(defined)
    return Outcome(true, false, defined)


def _first_of(bounds: Sequence[Bound], defined: Sequence[Bound]) -> Bound:
    """Where one of the bounds holds and all that stand before it are defined."""
    found: list[Bound] = []
    before, parts = ALWAYS, 0
    for bound, either in zip(bounds, defined, strict=True):
        found.append(all_of([before, bound]))
        parts += size_of(found[-1].condition)
        if parts > CESQL_PARTS_MAX:
            return Bound(any_of(bounds).condition, False)
        before = all_of([before, either])
    return any_of(found)


def all_of(bounds: Iterable[Bound]) -> Bound:
    """Where all bounds hold. The sets of one attribute become one."""
    sets, rest, exact = _gathered(bounds, Every)
    members = [Member(name, intersection(each)) for name, each in sets.items()]
    if any(map(_is_false, rest)) or any(_is(member.values, NOTHING) for member in members):
        return NEVER
    parts = [each for each in members if not _is(each.values, EVERYTHING)] + rest
    return Bound(parts[0] if len(parts) == 1 else Every(tuple(parts)), exact)


def any_of(bounds: Iterable[Bound]) -> Bound:
    """Where one of the bounds holds. The sets of one attribute become one."""
    sets, rest, exact = _gathered(bounds, Some)
    members = [Member(name, union(each)) for name, each in sets.items()]
    if any(map(_is_true, rest)) or any(_is(member.values, EVERYTHING) for member in members):
        return Bound(TRUE, exact)
    parts = [each for each in members if not _is(each.values, NOTHING)] + rest
    return Bound(parts[0] if len(parts) == 1 else Some(tuple(parts)), exact)


def size_of(condition: Condition) -> int:
    """The number of value sets in a condition, and of the operators on text in them."""
    if isinstance(condition, Member):
        text = condition.values.text
        return 1 if text is None else 1 + sum(1 for _ in atoms_of(text))
    return sum(size_of(part) for part in condition.parts)


def filters_of(condition: Condition) -> int:
    """The number of filters that a condition becomes at most."""
    if isinstance(condition, Member):
        return 1
    join = prod if isinstance(condition, Every) else sum
    return join(filters_of(part) for part in condition.parts)


def _gathered(
    bounds: Iterable[Bound], node: type[Every] | type[Some]
) -> tuple[dict[str, list[ValueSet]], list[Condition], bool]:
    """The different sets of each attribute, the other parts, and whether all bounds are exact."""
    sets: dict[str, dict[object, ValueSet]] = {}
    rest: list[Condition] = []
    exact = True
    for condition, is_exact in bounds:
        exact = exact and is_exact
        for part in condition.parts if isinstance(condition, node) else (condition,):
            if isinstance(part, Member):
                form = (part.values.line, part.values.text)
                sets.setdefault(part.name, {})[form] = part.values
            else:
                rest.append(part)
    return {name: list(each.values()) for name, each in sets.items()}, rest, exact


def _is_true(condition: Condition) -> bool:
    return isinstance(condition, Every) and not condition.parts


def _is_false(condition: Condition) -> bool:
    return isinstance(condition, Some) and not condition.parts


def _is(values: ValueSet, other: ValueSet) -> bool:
    """Whether a set is another one and shows it. No decision is made: it could cost much."""
    return values.text is None and values.line == other.line
