"""What AND, OR and XOR of CESQL make of truths, and how large bounds may become.

Other than in Kleene's logic an operand counts only where those before it leave it open, so that
what comes first may be an error that decides.

Source: CloudEvents, CESQL 1.0.0 §3.3 and §3.4.2 (AND and OR stop at what decides them).
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


def of_attribute(name: str, sets: TruthSets) -> Truth:
    """The truth of what depends on one attribute."""
    return Truth(
        member(name, sets.true, sets.exact),
        member(name, sets.false, sets.exact),
        member(name, sets.defined),
    )


def within(bound: Bound) -> Truth:
    """The truth of what is known only to be true or false within a bound."""
    return Truth(bound.loose(), bound.loose(), bound.loose())


def conjunction(truths: Sequence[Truth]) -> Truth:
    """The truth of AND: false where one is and all before it are true, or false already.

    Where a bound is too large, it is that of what is evaluated in any case.
    """
    first = truths[0]
    defined = [each.defined for each in truths]
    falses = [each.false for each in truths]
    true = _fitting(all_of([each.true for each in truths]), first.true.loose())
    false = _fitting(_first_of(falses, defined), any_of(falses).loose(), first.defined.loose())
    either = _fitting(any_of([false, all_of(defined)]), first.defined.loose())
    return Truth(true, false, either)


def disjunction(truths: Sequence[Truth]) -> Truth:
    """The truth of OR, which is NOT of the AND of the opposites, errors included."""
    return conjunction([each.inverse() for each in truths]).inverse()


def exclusive(truths: Sequence[Truth]) -> Truth:
    """The truth of XOR, of which all operands are evaluated."""
    defined = _fitting(all_of([each.defined for each in truths]), truths[0].defined.loose())
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
    return Truth(true, _fitting(false, defined.loose()), defined)


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
