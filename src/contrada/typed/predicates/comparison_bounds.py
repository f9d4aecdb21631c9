"""Cuts of the number line for comparisons, also after arithmetic.

Without arithmetic the constant is placed among the numbers of the model, exactly. With arithmetic
the bound is found by bisection, not computed: the steps run on doubles or integers as Python runs
them, and each step is monotone.

Monotone are `+ - * /` with a finite constant, `//` of integers and a sign: rounding keeps the
order, and overflow gives infinity. NaN results only from NaN, or from zero times infinity, which
the ends of the range show.
"""

import math
import operator
import struct
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from contrada.model.domains import line
from contrada.model.domains.line import Cut, Cuts
from contrada.model.domains.values import INT_MAX, INT_MIN, NUMBER, plain_number

ORDERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

FIRST: Final[Cut] = (NUMBER,)
LAST: Final[Cut] = (NUMBER + 1,)

Steps = tuple[tuple[Callable[[Any], Any], bool], ...]
"""Arithmetic on one number: each operation, and whether it keeps the order or reverses it."""


def number_cuts(order: str, constant: Any) -> Cuts:
    """Returns the numbers in an order (not `!=`) to a constant. NaN is in none."""
    if constant != constant:
        return line.EMPTY
    below, is_equal = _place(constant)
    after = line.cut_after((NUMBER, below))
    before = line.cut_before((NUMBER, below)) if is_equal else after
    return _between(order, before, after)


def stepped_cuts(order: str, constant: Any, steps: Steps, *, is_int: bool) -> Cuts | None:
    """Returns the numbers that after the steps are in an order (not `!=`) to a constant.

    None if the arithmetic raises for some numbers. Cost: twice 64 runs of the steps.
    """
    if constant != constant:
        return line.EMPTY
    numbers: Callable[[int], Any] = int if is_int else _double
    low, high = (INT_MIN, INT_MAX) if is_int else (-_INFINITY, _INFINITY)
    try:
        ends = [_after(steps, numbers(each)) for each in (low, high)]
    except (OverflowError, ValueError):
        return None
    if any(end != end for end in ends):
        return None
    keeps = sum(not keeps for _, keeps in steps) % 2 == 0
    cuts = []
    # Ranks are integers in the order of the numbers, so 64 halvings find where an order changes:
    # once before the numbers that equal the constant, and once after them.
    for compare in (operator.lt, operator.le) if keeps else (operator.gt, operator.ge):
        rank, end = low, high + 1
        while rank < end:
            middle = (rank + end) // 2
            if compare(_after(steps, numbers(middle)), constant):
                rank = middle + 1
            else:
                end = middle
        cuts.append(_cut(rank, low, high, numbers))
    return _between(order if keeps else _TURNED.get(order, order), cuts[0], cuts[1])


_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _between(order: str, before: Cut, after: Cut) -> Cuts:
    """Returns the numbers below, at or above a constant with cuts around its equals."""
    begin, end = {
        "<": (FIRST, before),
        "<=": (FIRST, after),
        ">": (after, LAST),
        ">=": (before, LAST),
        "==": (before, after),
    }[order]
    return line.interval(begin, end)


def _place(constant: Any) -> tuple[int | float, bool]:
    """Returns the largest number that is not above a constant, and whether it equals it."""
    if isinstance(constant, int) and INT_MIN <= constant <= INT_MAX:
        return int(constant), True
    if isinstance(constant, float):
        return plain_number(constant), True
    try:
        near = float(constant)
    except OverflowError:
        near = sys.float_info.max if constant > 0 else -math.inf
    if near > constant:
        near = math.nextafter(near, -math.inf)
    if INT_MIN <= constant <= INT_MAX:
        whole = math.floor(constant)
        if whole > near:
            return whole, whole == constant
    return plain_number(near), near == constant


def sides_of(constant: int | float | Decimal) -> tuple[int | float, int | float]:
    """Returns the smallest and the largest number that may represent a decimal near a constant.

    A decimal is represented by the nearest double, or by the integer that it equals.
    """
    try:
        near = float(constant)
    except OverflowError:
        near = math.inf if constant > 0 else -math.inf
    if math.isinf(near):
        return near, near
    ends = [near, math.floor(constant), math.ceil(constant)]
    ends = [each if INT_MIN <= each <= INT_MAX else near for each in ends]
    return min(near, ends[2]), max(near, ends[1])


def _after(steps: Steps, number: Any) -> Any:
    for operation, _ in steps:
        number = operation(number)
    return number


_INFINITY: Final = 0x7FF0_0000_0000_0000
"""The rank of infinity among the doubles that are not negative."""


def _double(rank: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<Q", abs(rank)))[0]
    return number if rank >= 0 else -number


def _cut(rank: int, low: int, high: int, numbers: Callable[[int], Any]) -> Cut:
    """Returns the cut between a number and the one before, at the one with the shorter text."""
    if rank > high:
        return LAST
    if rank == low:
        return FIRST
    pair = numbers(rank), numbers(rank - 1)
    here, before = (plain_number(it) if isinstance(it, float) else it for it in pair)
    if len(repr(before)) < len(repr(here)):
        return line.cut_after((NUMBER, before))
    return line.cut_before((NUMBER, here))
