"""SQL comparisons in Kleene's logic: true, false, or unknown.

A column is an attribute. It is NULL if the attribute is absent, null or NaN. Every comparison with
NULL is unknown. So is a comparison between values of different domains, which SQL would refuse.

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
"""The values that are NULL, and absence."""

UNKNOWN: Final = constant(None)

_DOMAINS: Final = {
    tag: ValueSet(line.domain(tag)) - sets.eq(math.nan) for tag in (BOOL, NUMBER, TIME, TEXT)
}


def lies_in(operand: Operand, true: ValueSet, false: ValueSet) -> Truth:
    """True if the operand's value is in the first set, false if it is in the second."""
    if isinstance(operand, ColumnReference):
        sides = [member(operand.name, each) for each in (true, false, true | false)]
        return Truth(*sides)
    is_known = (true | false).contains(operand.value)
    return constant(true.contains(operand.value) if is_known else None)


def is_null(operand: Operand) -> Truth:
    """`IS NULL`, which is never unknown."""
    return lies_in(operand, NULLS, ~NULLS)


def compare(first: Operand, how: str, second: Operand) -> Truth | None:
    """Compares two operands by `=`, `<`, `<=`, `>` or `>=`; None if both are columns."""
    if isinstance(second, ColumnReference):
        if isinstance(first, ColumnReference):
            return None
        return compare(second, MIRRORED[how], first)
    if second.value is None:
        return UNKNOWN
    accepted = sets.OPERATORS[how](second.value)
    return lies_in(first, accepted, domain_of(second.value) - accepted)


def among(operand: Operand, constants: Iterable[SqlLiteral]) -> Truth:
    """`IN`: false only if the operand differs from every constant, and none is NULL."""
    values = [each.value for each in constants]
    known = [value for value in values if value is not None]
    accepted = sets.in_(*known) if known else NOTHING
    domains = {key_of(value)[0] for value in known}
    if len(known) < len(values) or len(domains) > 1:
        return lies_in(operand, accepted, NOTHING)
    return lies_in(operand, accepted, domain_of(known[0]) - accepted)


def domain_of(value: Value) -> ValueSet:
    """Returns all values of the domain of a value."""
    return _DOMAINS[key_of(value)[0]]
