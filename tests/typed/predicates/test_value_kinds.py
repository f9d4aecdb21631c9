"""Each kind of field against each constant, and arithmetic, as in plain Python."""

import itertools
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.model import Notification
from contrada.model.domains import line
from contrada.model.domains.values import key_of
from contrada.typed.predicates import lift
from contrada.typed.predicates.comparison_bounds import ORDERS, number_cuts, sides_of, stepped_cuts
from contrada.typed.shapes import shape_of
from tests.typed.predicates.predicates import (
    BYTES,
    CONSTANTS,
    DECIMALS,
    DOUBLES,
    INTEGERS,
    NUMBERS,
    SPANS,
    TEXTS,
    TIMES,
    Level,
    Mood,
    Side,
    wire,
)

_NEAR: Final = [
    near
    for it in (*NUMBERS, *DECIMALS)
    if it == it and abs(it) < 2**80
    for near in (
        math.nextafter(float(it), -math.inf),
        float(it),
        math.nextafter(float(it), math.inf),
    )
]
_TIMES: Final = [
    moved
    for it in TIMES
    if it.tzinfo is not None and 1 < it.year < 9999
    for moved in (it.astimezone(UTC), it.astimezone(UTC) + timedelta(microseconds=1))
]
VALUES: Final[dict[type, Iterable[Any]]] = {
    # Another NaN than the constants': `in` would find the same object.
    float: [*_NEAR, -math.nan, math.inf, -math.inf, 1.7976931348623157e308],
    int: [n for it in _NEAR for n in (int(it) - 1, int(it), int(it) + 1) if -(2**63) <= n < 2**63],
    str: [*TEXTS, "\ud7ff", "\ue000"],
    bytes: [*BYTES, *(each.encode() for each in TEXTS)],
    datetime: [*_TIMES, datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
    date: [date(2020, 1, 1), date(2020, 1, 2), date.min, date.max],
    Decimal: [each for each in DECIMALS if not each.is_nan()],
    timedelta: [*SPANS[:3], timedelta(microseconds=1)],
    Side: list(Side),
    Level: list(Level),
    Mood: list(Mood),
    bool: [True, False],
}
TESTS: Final[dict[str, Callable[[Any], Callable[[Any], Any]]]] = {
    "<": lambda c: lambda q: q.x < c,
    "<=": lambda c: lambda q: q.x <= c,
    ">": lambda c: lambda q: c < q.x,
    ">=": lambda c: lambda q: q.x >= c,
    "==": lambda c: lambda q: c == q.x,
    "!=": lambda c: lambda q: q.x != c,
    "in": lambda c: lambda q: q.x in (c, None),
    "part": lambda c: lambda q: c in q.x,
    "begin": lambda c: lambda q: q.x.startswith(c),
    "end": lambda c: lambda q: q.x.endswith((c,)),
    "truth": lambda c: lambda q: q.x,
}


def holds(predicate: Callable[[Any], Any], given: object) -> bool:
    """The answer of plain Python; False if it raises."""
    try:
        return bool(predicate(given))
    except Exception:  # noqa: BLE001
        return False


@pytest.mark.quick_every(12)
@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("test", TESTS)
@pytest.mark.filterwarnings("ignore::BytesWarning")
def test_constants_compare_as_in_python(cls: type, test: str) -> None:
    """A comparison would be lifted to other values."""
    made = make_dataclass("One", [("x", cls)])
    shape = shape_of(made)
    exact = 0
    for constant in CONSTANTS:
        predicate = TESTS[test](constant)
        lifted = lift(shape, predicate)
        exact += lifted.is_exact
        for value in VALUES[cls]:
            wanted = holds(predicate, made(x=value))
            found = lifted.filters.matches(Notification({"x": wire(value)}))
            assert found == wanted or (found and not lifted.is_exact), (constant, value)
    assert exact >= (0.9 * len(CONSTANTS) if test in ORDERS and cls is not Decimal else 0)


@given(
    st.sampled_from(list(ORDERS)),
    st.sampled_from([it for it in CONSTANTS if isinstance(it, int | float | Decimal)])
    | st.floats()
    | st.decimals(allow_nan=False),
    INTEGERS | DOUBLES,
)
def test_number_cuts_agree_with_python(order: str, constant: Any, number: Any) -> None:
    """A bound would be beside its constant."""
    if isinstance(constant, Decimal) and constant.is_nan():
        return
    if order == "!=":
        return
    cuts = number_cuts(order, constant)
    line.check(cuts)
    try:
        expected = ORDERS[order](number, constant)
    except InvalidOperation:  # Python raises for an order of NaN and a Decimal: no match.
        expected = False
    assert line.holds(cuts, key_of(number)) == expected


def _turned(operation: Callable[[Any, Any], Any], right: Any, left: Any) -> Any:
    return operation(left, right)


FINITE: Final = st.sampled_from((1, -1, 2, -3, 10, 0.1, -0.1, 1e300, -1e-300, 2**53, 7.5, 1e16))


@st.composite
def steps(draw: st.DrawFn, *, is_int: bool) -> tuple[tuple[Callable[[Any], Any], bool], ...]:
    """One to three monotone operations."""
    made = []
    for _ in range(draw(st.integers(1, 3))):
        number = draw(FINITE)
        is_int = is_int and isinstance(number, int)
        divide = operator.floordiv if is_int else operator.truediv
        choices: list[tuple[Callable[[Any], Any], bool]] = [
            (partial(operator.add, number), True),
            (partial(operator.sub, number), False),
            (partial(operator.mul, number), number > 0),
            (partial(_turned, divide, number), number > 0),
            (operator.neg, False),
        ]
        made.append(draw(st.sampled_from(choices)))
    return tuple(made)


@given(st.booleans(), st.data())
def test_bounds_agree_with_the_arithmetic(is_int: bool, data: st.DataObject) -> None:
    """A filter would differ from the predicate by the last bit, or by a whole side."""
    taken = data.draw(steps(is_int=is_int))
    order = data.draw(st.sampled_from(("<", "<=", ">", ">=", "==")))
    numbers = INTEGERS if is_int else DOUBLES

    def after(number: Any) -> Any:
        for operation, _ in taken:
            number = operation(number)
        return number

    start = data.draw(numbers)
    constant = data.draw(st.sampled_from((after(start), 0, 1, 1e308, 100)))
    cuts = stepped_cuts(order, constant, taken, is_int=is_int)
    assert cuts is not None
    near = (
        [start + 1, start - 1]
        if is_int
        else [math.nextafter(start, i) for i in (-math.inf, math.inf)]
    )
    for number in (start, *near, data.draw(numbers)):
        if is_int and not -(2**63) <= number < 2**63:
            continue
        assert line.holds(cuts, key_of(number)) == ORDERS[order](after(number), constant)


def test_arithmetic_that_fails_somewhere_has_no_bound() -> None:
    """Bisection would raise, or find a place among numbers that raise."""
    assert (
        stepped_cuts(
            "<", 1, ((lambda it: it * 10**400, True), (lambda it: it / 3, True)), is_int=True
        )
        is None
    )


def test_a_decimal_is_within_its_hull() -> None:
    """Decimals close to a constant would be missed."""
    texts = (
        "0 1.5 0.1 0.30000000000000001 9007199254740993 9007199254740993.5 18014398509481987 1e400"
    )
    decimals = [*map(Decimal, texts.split()), Decimal(2**54) + Decimal("2.5"), *DECIMALS]
    decimals = [it for it in decimals if not it.is_nan()]
    for one, other in itertools.product(decimals, decimals):
        low, high = sides_of(other)
        if one <= other:
            assert Fraction(wire(one)) <= Fraction(high) if _are_finite(one, high) else True
        if one >= other:
            assert Fraction(wire(one)) >= Fraction(low) if _are_finite(one, low) else True


def _are_finite(*numbers: Any) -> bool:
    return all(math.isfinite(wire(it)) for it in numbers)


def test_nan_has_no_order_with_a_decimal() -> None:
    """Python raises there, so the predicate would not match what its filters do."""
    cls = make_dataclass("Priced", [("price", float), ("amount", int)])
    lifted = lift(shape_of(cls), lambda q: q.price < Decimal("0.1") or q.amount > 1)
    assert lifted.is_exact
    for price, is_met in ((math.nan, False), (0.0, True), (1.0, True), (-math.inf, True)):
        assert lifted.filters.matches(Notification({"price": price, "amount": 2})) is is_met
