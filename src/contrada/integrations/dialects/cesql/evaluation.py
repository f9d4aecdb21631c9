"""`evaluate`: the value of a CESQL expression for an event and, possibly, an error.

Evaluation fails fast, as the specification advises for filters: the first error ends it, and the
value is then the zero of the whole expression's type. If the whole expression is a function, the
value is the function's own. As a filter an expression passes events for which it is true without an
error.

Choices that the specification leaves open: a sum, difference, product, quotient or negation beyond
32 bits is a MathError; IN evaluates its elements from left to right and stops at the first equal
one.

Source: CloudEvents, CESQL 1.0.0 §3.3, §3.4, §3.6, §4.1.
"""

from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Final, NamedTuple

from contrada.errors import LimitError
from contrada.integrations.dialects.cesql import cesql_values as values
from contrada.integrations.dialects.cesql import expression_tree as tree
from contrada.integrations.dialects.cesql import functions
from contrada.integrations.dialects.cesql.like_patterns import is_like
from contrada.model.algebra.notification import Notification
from contrada.model.domains.values import ABSENT_KEY

CESQL_CHOICES_MAX: Final = 10_000
"""Choices of one value per attribute that CESQL tries if attributes have several. Beyond it:
LimitError."""


class Evaluation(NamedTuple):
    """The value of an expression, and the error that ended its evaluation."""

    value: tree.CesqlValue
    error: values.Fault | None = None


def evaluate(expression: tree.Expression, notification: Notification) -> Evaluation:
    """Returns the value of an expression for an event; errors are part of the result.

    Cost: proportional to the expression, and linear in the texts.
    """
    return evaluate_keys(expression, notification.keys_of)


def holds(expression: tree.Expression, notification: Notification) -> bool:
    """Whether an event passes the expression as a filter: it is true, without an error.

    If attributes have several values, which no CloudEvent has, one choice of values must pass.
    Raises LimitError if CESQL_CHOICES_MAX choices do not decide.
    """
    return any(holds_for(expression, event) for event in choices(expression, notification))


def evaluate_keys(expression: tree.Expression, event: values.EventKeys) -> Evaluation:
    """As `evaluate`, for an event given by its keys."""
    try:
        return Evaluation(_value(expression, event))
    except values.Interruption as interruption:
        value = interruption.value if isinstance(expression, tree.Call) else None
        return Evaluation(
            values.ZERO[returns(expression)] if value is None else value, interruption.fault
        )


def holds_for(expression: tree.Expression, event: values.EventKeys) -> bool:
    """As `holds`, for an event given by its keys, one per attribute."""
    try:
        return _value(expression, event) is True
    except values.Interruption:
        return False


def choices(expression: tree.Expression, notification: Notification) -> Iterator[values.EventKeys]:
    """Yields the event itself, or each choice of one value per attribute in the expression."""
    keys = {name: notification.keys_of(name) for name in tree.names_in(expression)}
    if all(len(each) == 1 for each in keys.values()):
        yield keys.__getitem__
        return
    chosen = product(*keys.values())
    for choice in islice(chosen, CESQL_CHOICES_MAX):
        yield {name: (key,) for name, key in zip(keys, choice, strict=True)}.__getitem__
    if next(chosen, None) is not None:
        raise LimitError("CESQL_CHOICES_MAX", CESQL_CHOICES_MAX)


def returns(expression: tree.Expression) -> values.Type:
    """Returns the type of an expression's value if its form determines it; else Boolean."""
    match expression:
        case tree.Constant(value):
            return values.type_of(value)
        case tree.Negative() | tree.Arithmetic():
            return values.Type.INTEGER
        case tree.Call(name, arguments):
            function = functions.find(name, len(arguments))
            return values.Type.BOOLEAN if function is None else function.returns
        case _:
            return values.Type.BOOLEAN


def _value(expression: tree.Expression, event: values.EventKeys) -> tree.CesqlValue:
    """Returns the value. Raises Interruption at the first error."""
    match expression:
        case tree.Constant(value):
            return value
        case tree.Attribute(name):
            return values.value_in(event, name)
        case tree.Logic(operator, operands):
            return _LOGIC[operator](operands, event)
        case tree.Equal(left, right):
            a, b = _value(left, event), _value(right, event)
            return values.cast_to(values.type_of(b), a) == b
        case tree.Like(operand, pattern):
            return is_like(values.as_string(_value(operand, event)), str(pattern.value))
        case tree.In(operand, elements):
            return _is_in(_value(operand, event), elements, event)
        case tree.Exists(name):
            return event(name) != (ABSENT_KEY,)
        case tree.Not(operand):
            return not values.as_boolean(_value(operand, event))
        case tree.Ordered(operator, left, right):
            a, b = _value(left, event), _value(right, event)
            return values.ORDERS[operator](values.as_integer(a), values.as_integer(b))
        case tree.Call(name, arguments):
            return _call(name, arguments, event)
        case tree.Arithmetic(operator, left, right):
            a, b = _value(left, event), _value(right, event)
            return _ARITHMETIC[operator](values.as_whole(a), values.as_whole(b))
        case tree.Negative(operand):
            return _within("-", -values.as_whole(_value(operand, event)))


def _and(operands: tuple[tree.Expression, ...], event: values.EventKeys) -> bool:
    return all(values.as_boolean(_value(each, event)) for each in operands)


def _or(operands: tuple[tree.Expression, ...], event: values.EventKeys) -> bool:
    return any(values.as_boolean(_value(each, event)) for each in operands)


def _xor(operands: tuple[tree.Expression, ...], event: values.EventKeys) -> bool:
    return sum(values.as_boolean(_value(each, event)) for each in operands) % 2 == 1


_LOGIC: Final = {"AND": _and, "OR": _or, "XOR": _xor}


def _is_in(
    value: tree.CesqlValue, elements: tuple[tree.Expression, ...], event: values.EventKeys
) -> bool:
    kind = values.type_of(value)
    return any(values.cast_to(kind, _value(each, event)) == value for each in elements)


def _call(
    name: str, arguments: tuple[tree.Expression, ...], event: values.EventKeys
) -> tree.CesqlValue:
    function = functions.find(name, len(arguments))
    if function is None:
        reason = f"there is no {name} of {len(arguments)} arguments"
        raise values.Interruption(values.ErrorKind.MISSING_FUNCTION, reason)
    try:
        given = [
            _argument(_value(each, event), function.parameter(number))
            for number, each in enumerate(arguments)
        ]
    except values.Interruption as interruption:
        interruption.value = None  # the value that a nested function returns is not this one's
        raise
    return function.run(*given)


def _argument(value: tree.CesqlValue, kind: values.Type | None) -> tree.CesqlValue:
    if kind is None:
        return value
    return values.as_whole(value) if kind is values.Type.INTEGER else values.cast_to(kind, value)


def _within(operator: str, number: int) -> int:
    """Returns the result of arithmetic. Raises Interruption beyond 32 bits."""
    if values.INTEGER_FIRST <= number <= values.INTEGER_LAST:
        return number
    raise values.Interruption(
        values.ErrorKind.MATH, f"the result of {operator} is beyond 32 bits: {number}"
    )


def _quotient(a: int, b: int) -> int:
    _check_divisor(a, b)
    return _within("/", abs(a) // abs(b) * (1 if (a < 0) is (b < 0) else -1))


def _remainder(a: int, b: int) -> int:
    _check_divisor(a, b)
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _check_divisor(a: int, b: int) -> None:
    if b == 0:
        raise values.Interruption(values.ErrorKind.MATH, f"{a} divided by 0")


_ARITHMETIC: Final[dict[str, Callable[[int, int], int]]] = {
    "+": lambda a, b: _within("+", a + b),
    "-": lambda a, b: _within("-", a - b),
    "*": lambda a, b: _within("*", a * b),
    "/": _quotient,
    "%": _remainder,
}
