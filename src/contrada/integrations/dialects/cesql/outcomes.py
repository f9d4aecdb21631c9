"""AND, OR and XOR of CESQL on truths, and limits of bounds.

Unlike in Kleene's logic an operand counts only if its predecessors do not decide. So an error of an
early operand can be the result.

Source: CloudEvents, CESQL 1.0.0 §3.3 and §3.4.2 (AND and OR stop at a deciding operand).
"""

from collections.abc import Sequence
from typing import Final

from contrada.integrations.dialects.cesql.cesql_casts import TruthSets
from contrada.integrations.dialects.kleene import (
    ALWAYS,
    Bound,
    Truth,
    all_of,
    any_of,
    filters_of,
    member,
)

CESQL_PARTS_MAX: Final = 10_000
"""Value sets, and operators on text in them, of one exact bound. Beyond it: it becomes loose,
and the residue decides."""

CESQL_FILTERS_MAX: Final = 1_000
"""Filters of one bound, and of a whole rule. Beyond it: it becomes loose, and the residue
decides."""

CESQL_MERGED_MAX: Final = 1_000_000
"""Sets in the filters of a rule, times its attributes, up to which they are merged. Beyond it:
they stay separate."""

CESQL_XOR_OPERANDS_MAX: Final = 10
"""Operands of an XOR with exact bounds. Each operand doubles the bounds. Beyond it: they become
loose, and the residue decides."""


def of_attribute(name: str, sets: TruthSets) -> Truth:
    """Returns the truth of a condition on one attribute."""
    return Truth(
        member(name, sets.true, sets.exact),
        member(name, sets.false, sets.exact),
        member(name, sets.defined),
    )


def within(bound: Bound) -> Truth:
    """Returns the truth of a condition with only one bound, for true and false."""
    return Truth(bound.loose(), bound.loose(), bound.loose())


def conjunction(truths: Sequence[Truth]) -> Truth:
    """Returns the truth of AND: false if one operand is and all before it are true, or already
    false.

    A bound that is too large is replaced by the bound of the first operand.
    """
    first = truths[0]
    defined = [each.defined for each in truths]
    falses = [each.false for each in truths]
    true = _first_small(all_of([each.true for each in truths]), first.true.loose())
    false = _first_small(_first_of(falses, defined), any_of(falses).loose(), first.defined.loose())
    either = _first_small(any_of([false, all_of(defined)]), first.defined.loose())
    return Truth(true, false, either)


def disjunction(truths: Sequence[Truth]) -> Truth:
    """Returns the truth of OR, which is NOT of the AND of the opposites, errors included."""
    return conjunction([each.inverse() for each in truths]).inverse()


def exclusive(truths: Sequence[Truth]) -> Truth:
    """Returns the truth of XOR, which evaluates all operands."""
    defined = _first_small(all_of([each.defined for each in truths]), truths[0].defined.loose())
    if len(truths) > CESQL_XOR_OPERANDS_MAX:
        return within(defined)
    true, false = truths[0].true, truths[0].false
    for each in truths[1:]:
        true, false = (
            any_of([all_of([true, each.false]), all_of([false, each.true])]),
            any_of([all_of([true, each.true]), all_of([false, each.false])]),
        )
        if not is_small(true):
            return within(defined)
    return Truth(true, _first_small(false, defined.loose()), defined)


def _first_small(*bounds: Bound) -> Bound:
    """Returns the first bound that is not too large, else the last."""
    return next(filter(is_small, bounds), bounds[-1])


def is_small(bound: Bound) -> bool:
    """Whether a bound is within the limits."""
    return bound.size <= CESQL_PARTS_MAX and filters_of(bound.condition) <= CESQL_FILTERS_MAX


def _first_of(bounds: Sequence[Bound], defined: Sequence[Bound]) -> Bound:
    """Returns the events for which one of the bounds holds and all before it are defined.

    A result that is too large is not completed, as it will not be used.
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
