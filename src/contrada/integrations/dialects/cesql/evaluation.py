"""What an expression of CESQL is worth for an event: a value and, maybe, an error.

The evaluation fails fast, as the specification advises for filters: the first error ends it, and
the value is then the zero of the whole expression's type; a function that is the whole
expression returns what it says it does. As a filter an expression holds where it is true and has
no error.

Where the specification is silent: a sum, difference, product, quotient or negative beyond 32 bits
is a MathError; IN tries its elements from left to right and stops at the first that is equal, so
that the others are not evaluated.

Source: CloudEvents, CESQL 1.0.0 §3.3, §3.4, §3.6, §4.1.
"""

from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Final, NamedTuple

from contrada.errors import LimitError
from contrada.integrations.dialects.cesql import cesql_values, expression_tree, functions
from contrada.integrations.dialects.cesql.like_patterns import is_like
from contrada.model.algebra.notification import Notification
from contrada.model.domains.values import ABSENT_KEY

CESQL_CHOICES_MAX: Final = 10_000
"""Choices of one value per attribute that CESQL tries where attributes have several. Beyond it:
LimitError."""


class Evaluation(NamedTuple):
    """The value of an expression, and the error that ended its evaluation."""

    value: expression_tree.CesqlValue
    error: cesql_values.Fault | None = None


def evaluate(expression: expression_tree.Expression, notification: Notification) -> Evaluation:
    """The value of an expression for an event.

    Total: what goes wrong is in the answer. Cost: as the expression, and linear in the texts.
    """
    return evaluated(expression, notification.keys_of)


def holds(expression: expression_tree.Expression, notification: Notification) -> bool:
    """Whether an event passes the expression as a filter: it is true, without an error.

    Where attributes have several values, which no CloudEvent has: whether it passes with one value
    each. Raises LimitError where CESQL_CHOICES_MAX choices do not tell.
    """
    return any(holds_for(expression, event) for event in choices(expression, notification))


def evaluated(expression: expression_tree.Expression, event: cesql_values.EventKeys) -> Evaluation:
    """As `evaluate`, for an event given by its keys."""
    try:
        return Evaluation(_value(expression, event))
    except cesql_values.Interruption as interruption:
        value = interruption.value if isinstance(expression, expression_tree.Call) else None
        return Evaluation(
            cesql_values.ZERO[returns(expression)] if value is None else value, interruption.fault
        )


def holds_for(expression: expression_tree.Expression, event: cesql_values.EventKeys) -> bool:
    """As `holds`, for an event given by its keys, one per attribute."""
    try:
        return _value(expression, event) is True
    except cesql_values.Interruption:
        return False


def choices(
    expression: expression_tree.Expression, notification: Notification
) -> Iterator[cesql_values.EventKeys]:
    """The event itself, or each choice of one value per attribute that the expression names."""
    keys = {name: notification.keys_of(name) for name in expression_tree.names_in(expression)}
    if all(len(each) == 1 for each in keys.values()):
        yield keys.__getitem__
        return
    chosen = product(*keys.values())
    for choice in islice(chosen, CESQL_CHOICES_MAX):
        yield {name: (key,) for name, key in zip(keys, choice, strict=True)}.__getitem__
    if next(chosen, None) is not None:
        raise LimitError("CESQL_CHOICES_MAX", CESQL_CHOICES_MAX)


def returns(expression: expression_tree.Expression) -> cesql_values.Type:
    """The type of an expression's value, as far as its form tells; else Boolean."""
    match expression:
        case expression_tree.Constant(value):
            return cesql_values.type_of(value)
        case expression_tree.Negative() | expression_tree.Arithmetic():
            return cesql_values.Type.INTEGER
        case expression_tree.Call(name, arguments):
            function = functions.find(name, len(arguments))
            return cesql_values.Type.BOOLEAN if function is None else function.returns
        case _:
            return cesql_values.Type.BOOLEAN


def _value(
    expression: expression_tree.Expression, event: cesql_values.EventKeys
) -> expression_tree.CesqlValue:
    """The value. Raises Interruption at the first error."""
    match expression:
        case expression_tree.Constant(value):
            return value
        case expression_tree.Attribute(name):
            return cesql_values.value_in(event, name)
        case expression_tree.Logic(operator, operands):
            return _LOGIC[operator](operands, event)
        case expression_tree.Equal(left, right):
            a, b = _value(left, event), _value(right, event)
            return cesql_values.cast_to(cesql_values.type_of(b), a) == b
        case expression_tree.Like(operand, pattern):
            return is_like(cesql_values.as_string(_value(operand, event)), str(pattern.value))
        case expression_tree.In(operand, elements):
            return _is_in(_value(operand, event), elements, event)
        case expression_tree.Exists(name):
            return event(name) != (ABSENT_KEY,)
        case expression_tree.Not(operand):
            return not cesql_values.as_boolean(_value(operand, event))
        case expression_tree.Ordered(operator, left, right):
            a, b = _value(left, event), _value(right, event)
            return cesql_values.ORDERS[operator](
                cesql_values.as_integer(a), cesql_values.as_integer(b)
            )
        case expression_tree.Call(name, arguments):
            return _called(name, arguments, event)
        case expression_tree.Arithmetic(operator, left, right):
            a, b = _value(left, event), _value(right, event)
            return _ARITHMETIC[operator](cesql_values.as_whole(a), cesql_values.as_whole(b))
        case expression_tree.Negative(operand):
            return _within("-", -cesql_values.as_whole(_value(operand, event)))


def _and(operands: tuple[expression_tree.Expression, ...], event: cesql_values.EventKeys) -> bool:
    return all(cesql_values.as_boolean(_value(each, event)) for each in operands)


def _or(operands: tuple[expression_tree.Expression, ...], event: cesql_values.EventKeys) -> bool:
    return any(cesql_values.as_boolean(_value(each, event)) for each in operands)


def _xor(operands: tuple[expression_tree.Expression, ...], event: cesql_values.EventKeys) -> bool:
    return sum(cesql_values.as_boolean(_value(each, event)) for each in operands) % 2 == 1


_LOGIC: Final = {"AND": _and, "OR": _or, "XOR": _xor}


def _is_in(
    value: expression_tree.CesqlValue,
    elements: tuple[expression_tree.Expression, ...],
    event: cesql_values.EventKeys,
) -> bool:
    kind = cesql_values.type_of(value)
    return any(cesql_values.cast_to(kind, _value(each, event)) == value for each in elements)


def _called(
    name: str, arguments: tuple[expression_tree.Expression, ...], event: cesql_values.EventKeys
) -> expression_tree.CesqlValue:
    function = functions.find(name, len(arguments))
    if function is None:
        reason = f"there is no {name} of {len(arguments)} arguments"
        raise cesql_values.Interruption(cesql_values.ErrorKind.MISSING_FUNCTION, reason)
    try:
        given = [
            _argument(_value(each, event), function.parameter(number))
            for number, each in enumerate(arguments)
        ]
    except cesql_values.Interruption as interruption:
        interruption.value = None  # the value that a nested function returns is not this one's
        raise
    return function.run(*given)


def _argument(
    value: expression_tree.CesqlValue, kind: cesql_values.Type | None
) -> expression_tree.CesqlValue:
    if kind is None:
        return value
    return (
        cesql_values.as_whole(value)
        if kind is cesql_values.Type.INTEGER
        else cesql_values.cast_to(kind, value)
    )


def _within(operator: str, number: int) -> int:
    """The result of arithmetic. Raises Interruption where it is beyond 32 bits."""
    if cesql_values.INTEGER_FIRST <= number <= cesql_values.INTEGER_LAST:
        return number
    raise cesql_values.Interruption(
        cesql_values.ErrorKind.MATH, f"the result of {operator} is beyond 32 bits: {number}"
    )


def _quotient(a: int, b: int) -> int:
    _check_divisor(a, b)
    return _within("/", abs(a) // abs(b) * (1 if (a < 0) is (b < 0) else -1))


def _remainder(a: int, b: int) -> int:
    _check_divisor(a, b)
    return abs(a) % abs(b) * (-1 if a < 0 else 1)


def _check_divisor(a: int, b: int) -> None:
    if b == 0:
        raise cesql_values.Interruption(cesql_values.ErrorKind.MATH, f"{a} divided by 0")


_ARITHMETIC: Final[dict[str, Callable[[int, int], int]]] = {
    "+": lambda a, b: _within("+", a + b),
    "-": lambda a, b: _within("-", a - b),
    "*": lambda a, b: _within("*", a * b),
    "/": _quotient,
    "%": _remainder,
}
