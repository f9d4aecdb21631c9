"""Guards: the constraints that an entry carries with it, asked before the filter's program.

An entry has two, of the filter's constraints besides the one that the filter hangs on. Most
candidates end at a guard, and where bucket and guards are the whole filter, most matches are
decided there, without a look at the filter itself, which lies elsewhere in memory.

A guard never says no to what its constraint would let pass. It says that the constraint holds only
where 32 bits are enough to know.
"""

from typing import Final

from contrada.matching import reading
from contrada.matching.compiling import Compiler, Constraint, other_than
from contrada.matching.hashing import text_hash
from contrada.matching.tables import (
    DECIDED_ALONE,
    DECIDED_HERE,
    GUARD_DOMAIN_SHIFT,
    GUARD_HASH,
    GUARD_KIND_SHIFT,
    GUARD_NONE,
    GUARD_OTHER,
    GUARD_OTHER_TEXT,
    GUARD_SET,
    KEY_HERE,
    OP_POINT,
    OP_RANGE,
    OP_SET,
    OP_TEXT,
    OP_TEXT_RANGE,
    Guard,
)

NO_DOMAIN: Final = 7
"""In a guard that only asks for the attribute to be there."""

NO_GUARD: Final[Guard] = (GUARD_NONE << GUARD_KIND_SHIFT, 0, 0)

_RANKS: Final = {OP_POINT: 0, OP_TEXT: 1, OP_RANGE: 2, OP_SET: 3, OP_TEXT_RANGE: 4}
"""The operators, the most selective first."""


def guards_for(
    constraints: list[Constraint],
    hung: int | None,
    compiler: Compiler,
    *,
    by_value: bool,
    alone: bool,
) -> tuple[Guard, Guard]:
    """The guards of an entry; the first says whether both of them decide.

    `hung` is the attribute that the filter hangs on; `by_value` says that its bucket's value
    is all that the constraint on it asks for; `alone` that the filter has no other entry.
    """
    others = [each for each in constraints if each.attr != hung]
    if len(others) > 1:
        others.sort(key=_rank)
    if not by_value and len(others) < len(constraints):
        others += [each for each in constraints if each.attr == hung]
    first = _guard(others[0], compiler) if others else NO_GUARD
    second = _guard(others[1], compiler) if len(others) > 1 else NO_GUARD
    if len(others) > 2:
        return first, second
    decided = DECIDED_HERE if by_value else DECIDED_ALONE
    asked, low, high = first
    if alone and _is_clear(asked) and _is_clear(second[0]):
        decided |= KEY_HERE
    return (asked | decided, low, high), second


def _is_clear(asked: int) -> bool:
    """Whether a guard mostly decides by itself."""
    return asked >> GUARD_KIND_SHIFT & 7 not in (GUARD_HASH, GUARD_SET)


def _rank(of: Constraint) -> int:
    return _RANKS[of.op]


def undecided(guard: Guard) -> Guard:
    """The guard of a filter whose matches must be verified."""
    asked, low, high = guard
    return asked & ~(DECIDED_HERE | DECIDED_ALONE | KEY_HERE), low, high


def _guard(of: Constraint, compiler: Compiler) -> Guard:
    attr, op, domain, operands = of
    if op == OP_SET:
        return _set_guard(attr, operands[0], compiler)
    asked = attr | domain << GUARD_DOMAIN_SHIFT
    if op in (OP_POINT, OP_RANGE):
        return asked, operands[0] >> 32, operands[-1] >> 32
    if op == OP_TEXT:
        h = _hash(compiler.text_at(operands[0]))
        return asked | GUARD_HASH << GUARD_KIND_SHIFT, h, h
    return attr | NO_DOMAIN << GUARD_DOMAIN_SHIFT, -(2**31), 2**31 - 1


def _set_guard(attr: int, number: int, compiler: Compiler) -> Guard:
    """The guard of a set: of `!=` what is excluded, else the set by its number."""
    excluded = other_than(compiler.set_values[number])
    if excluded is None:
        return GUARD_SET << GUARD_KIND_SHIFT, number, 0
    domain, value = excluded
    if isinstance(value, bytes):
        kind, low = GUARD_OTHER_TEXT, _hash(value)
    else:
        kind, low = GUARD_OTHER, value >> 32
    return attr | domain << GUARD_DOMAIN_SHIFT | kind << GUARD_KIND_SHIFT, low, low


def _hash(text: bytes) -> int:
    """As a text's hash stands in the scratch."""
    return int(reading.finished(text_hash(text)))
