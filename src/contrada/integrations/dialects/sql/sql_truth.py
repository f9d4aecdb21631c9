"""What comparisons of SQL say, in Kleene's logic: where they are true, false, and else unknown.

A column is an attribute. It is NULL where the attribute is absent, null
or NaN; then every comparison with it is unknown, and so it is where the value is of another
domain than the constant, as both never are equal, or in an order, or compared by SQL at all.

Source: ISO/IEC 9075-2, 6.39 (boolean value expression), 8.2 (comparison predicate).
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from contrada.integrations.dialects.kleene import Truth, constant, member
from contrada.model.algebra import sets
from contrada.model.algebra.expression import MIRRORED
from contrada.model.algebra.value_set import ABSENT, NOTHING, ValueSet
from contrada.model.domains import line
from contrada.model.domains.values import BOOL, NUMBER, TEXT, TIME, Value, key_of


class ColumnReference(NamedTuple):
    """The attribute of this name."""

    name: str


class SqlLiteral(NamedTuple):
    """A value; None is NULL."""

    value: Value


Operand = ColumnReference | SqlLiteral

NULLS: Final = ABSENT | sets.eq(None) | sets.eq(math.nan)
"""The values, and the absence, that are NULL."""

UNKNOWN: Final = constant(None)

_DOMAINS: Final = {
    tag: ValueSet(line.domain(tag)) - sets.eq(math.nan) for tag in (BOOL, NUMBER, TIME, TEXT)
}


def lies_in(operand: Operand, true: ValueSet, false: ValueSet) -> Truth:
    """True where the operand's value is in the one set, false where it is in the other."""
    if isinstance(operand, ColumnReference):
        sides = [member(operand.name, each) for each in (true, false, true | false)]
        return Truth(*sides)
    is_known = (true | false).contains(operand.value)
    return constant(true.contains(operand.value) if is_known else None)


def is_null(operand: Operand) -> Truth:
    """`IS NULL`, which is never unknown."""
    return lies_in(operand, NULLS, ~NULLS)


def compared(first: Operand, how: str, second: Operand) -> Truth | None:
    """Two operands compared by `=`, `<`, `<=`, `>` or `>=`; None where both are columns."""
    if isinstance(second, ColumnReference):
        if isinstance(first, ColumnReference):
            return None
        return compared(second, MIRRORED[how], first)
    if second.value is None:
        return UNKNOWN
    accepted = sets.OPERATORS[how](second.value)
    return lies_in(first, accepted, domain_of(second.value) - accepted)


def among(operand: Operand, constants: Iterable[SqlLiteral]) -> Truth:
    """`IN`: false only where the operand differs from every constant, and none is NULL."""
    values = [each.value for each in constants]
    known = [value for value in values if value is not None]
    accepted = sets.in_(*known) if known else NOTHING
    domains = {key_of(value)[0] for value in known}
    if len(known) < len(values) or len(domains) > 1:
        return lies_in(operand, accepted, NOTHING)
    return lies_in(operand, accepted, domain_of(known[0]) - accepted)


def domain_of(value: Value) -> ValueSet:
    """All values of the same domain, which can be compared with a value."""
    return _DOMAINS[key_of(value)[0]]
