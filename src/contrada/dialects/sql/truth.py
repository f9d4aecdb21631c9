"""SQL's logic of three values, as two conditions: where something is true, and where it is false.

It is unknown elsewhere. A column is an attribute. It is NULL where the attribute is absent, null
or NaN; then every comparison with it is unknown, and so it is where the value is of another
domain than the constant, as both never are equal, or in an order, or compared by SQL at all.

Source: ISO/IEC 9075-2, 6.39 (boolean value expression), 8.2 (comparison predicate).
"""

import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from contrada.dialects.expression import FALSE, TRUE, Condition, Every, Member, Some, negation
from contrada.model.algebra import sets
from contrada.model.algebra.valueset import ABSENT, NOTHING, ValueSet
from contrada.model.domains import line
from contrada.model.domains.values import BOOL, NUMBER, TEXT, TIME, Value, key_of


class Column(NamedTuple):
    """The attribute of this name."""

    name: str


class Constant(NamedTuple):
    """A value; None is NULL."""

    value: Value


class Truth(NamedTuple):
    """Where something is true, and where it is false."""

    true: Condition
    false: Condition


Operand = Column | Constant

NULLS: Final = ABSENT | sets.eq(None) | sets.eq(math.nan)
"""The values, and the absence, that are NULL."""

UNKNOWN: Final = Truth(FALSE, FALSE)

_DOMAINS: Final = {
    tag: ValueSet(line.domain(tag)) - sets.eq(math.nan) for tag in (BOOL, NUMBER, TIME, TEXT)
}

_COMPARISONS: Final[dict[str, Callable[[Value], ValueSet]]] = {
    "=": sets.eq,
    "<": sets.lt,
    "<=": sets.le,
    ">": sets.gt,
    ">=": sets.ge,
}
_MIRRORED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def all_of(parts: Iterable[Truth]) -> Truth:
    """`AND`."""
    held = tuple(parts)
    return Truth(_every([part.true for part in held]), _some([part.false for part in held]))


def _every(conditions: list[Condition]) -> Condition:
    """All of them; what is plainly true or false is left out or decides."""
    if any(isinstance(each, Some) and not each.parts for each in conditions):
        return FALSE
    return Every(tuple(each for each in conditions if not isinstance(each, Every) or each.parts))


def _some(conditions: list[Condition]) -> Condition:
    if any(isinstance(each, Every) and not each.parts for each in conditions):
        return TRUE
    return Some(tuple(each for each in conditions if not isinstance(each, Some) or each.parts))


def any_of(parts: Iterable[Truth]) -> Truth:
    """`OR`."""
    return inverse(all_of(map(inverse, parts)))


def inverse(of: Truth) -> Truth:
    """`NOT`."""
    return Truth(of.false, of.true)


def certain(condition: Condition) -> Truth:
    """True where the condition holds, and false elsewhere."""
    return Truth(condition, negation(condition))


def lies_in(operand: Operand, true: ValueSet, false: ValueSet) -> Truth:
    """True where the operand's value is in the one set, false where it is in the other."""
    if isinstance(operand, Column):
        return Truth(Member(operand.name, true), Member(operand.name, false))
    held = [TRUE if each.contains(operand.value) else FALSE for each in (true, false)]
    return Truth(*held)


def is_null(operand: Operand) -> Truth:
    """`IS NULL`, which is never unknown."""
    return lies_in(operand, NULLS, ~NULLS)


def compared(first: Operand, how: str, second: Operand) -> Truth | None:
    """Two operands compared by `=`, `<`, `<=`, `>` or `>=`; None where both are columns."""
    if isinstance(second, Column):
        if isinstance(first, Column):
            return None
        return compared(second, _MIRRORED[how], first)
    if second.value is None:
        return UNKNOWN
    accepted = _COMPARISONS[how](second.value)
    return lies_in(first, accepted, domain_of(second.value) - accepted)


def among(operand: Operand, constants: Iterable[Constant]) -> Truth:
    """`IN`: false only where the operand differs from every constant, and none is NULL."""
    values = [each.value for each in constants]
    known = [value for value in values if value is not None]
    accepted = sets.in_(*known) if known else NOTHING
    domains = {key_of(value)[0] for value in known}
    if len(known) < len(values) or len(domains) > 1:
        return lies_in(operand, accepted, NOTHING)
    return lies_in(operand, accepted, domain_of(known[0]) - accepted)


def domain_of(value: Value) -> ValueSet:
    """All values that can be compared with this one."""
    return _DOMAINS[key_of(value)[0]]
