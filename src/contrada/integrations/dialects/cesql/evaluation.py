"""`evaluate`: the value of a CESQL expression for an event and, possibly, an error.

Evaluation fails fast, as the specification advises for filters: the first error ends it, and the
value is then the zero of the whole expression's type. If the whole expression is a function, the
value is the function's own. As a filter an expression passes events for which it is true without an
error.

Choices that the specification leaves open: a result of arithmetic beyond 32 bits is a MathError; IN
evaluates its elements from left to right and stops at the first equal one.

Source: CloudEvents, CESQL 1.0.0 §3.3, §3.4, §3.6, §4.1.
"""

from collections.abc import Iterator
from itertools import islice, product
from typing import Final, NamedTuple

from contrada.errors import LimitError
from contrada.integrations.dialects.cesql import cesql_values as values
from contrada.integrations.dialects.cesql import expression_tree as tree
from contrada.integrations.dialects.cesql import functions
from contrada.integrations.dialects.cesql.cesql_casts import is_like
from contrada.model.algebra.notification import Notification
from contrada.model.domains.values import ABSENT_KEY

CESQL_CHOICES_MAX: Final = 10_000
"""Choices of values that CESQL tries if attributes have several. Beyond it: LimitError."""


class Evaluation(NamedTuple):
    """The value of an expression, and the error that ended its evaluation."""

    value: tree.CesqlValue
    error: values.Fault | None = None


def evaluate(expression: tree.Expression, notification: Notification) -> Evaluation:
    """Returns the value of an expression for an event, or its error. Cost: linear."""
    return evaluate_keys(expression, notification.keys_of)


def holds(expression: tree.Expression, notification: Notification) -> bool:
    """Whether an event passes the expression as a filter: it is true, without an error.

    Of several values of attributes, one choice must pass. Raises LimitError if too many are tried.
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
            held = (values.as_boolean(_value(each, event)) for each in operands)
            if operator == "XOR":
                return sum(held) % 2 == 1
            return all(held) if operator == "AND" else any(held)
        case tree.Equal(left, right):
            a, b = _value(left, event), _value(right, event)
            return values.cast_to(values.type_of(b), a) == b
        case tree.Like(operand, pattern):
            return is_like(values.as_string(_value(operand, event)), str(pattern.value))
        case tree.In(operand, elements):
            a = _value(operand, event)
            kind = values.type_of(a)
            return any(values.cast_to(kind, _value(each, event)) == a for each in elements)
        case tree.Exists(name):
            return event(name) != (ABSENT_KEY,)
        case tree.Not(operand):
            return not values.as_boolean(_value(operand, event))
        case tree.Ordered(operator, left, right):
            a, b = _value(left, event), _value(right, event)
            low, high = values.as_integer(a), values.as_integer(b)
            if operator[0] == ">":
                low, high = high, low
            return low < high or (operator[1:] == "=" and low == high)
        case tree.Call(name, arguments):
            return _call(name, arguments, event)
        case tree.Arithmetic(operator, left, right):
            a, b = _value(left, event), _value(right, event)
            return _calculate(operator, values.as_whole(a), values.as_whole(b))
        case _:
            assert isinstance(expression, tree.Negative), "nothing else is left"
            return _calculate("-", 0, values.as_whole(_value(expression.operand, event)))


def _call(
    name: str, arguments: tuple[tree.Expression, ...], event: values.EventKeys
) -> tree.CesqlValue:
    function = functions.find(name, len(arguments))
    if function is None:
        reason = f"there is no {name} of {len(arguments)} arguments"
        raise values.Interruption(values.ErrorKind.MISSING_FUNCTION, reason)
    given: list[tree.CesqlValue] = []
    try:
        for number, each in enumerate(arguments):
            value, kind = _value(each, event), function.parameter(number)
            if kind is values.Type.INTEGER:
                value = values.as_whole(value)
            given.append(value if kind is None else values.cast_to(kind, value))
    except values.Interruption as interruption:
        interruption.value = None  # the value that a nested function returns is not this one's
        raise
    return function.run(*given)


def _calculate(operator: str, a: int, b: int) -> int:
    """Returns the result of arithmetic. Raises Interruption beyond 32 bits, and for division by 0.

    Division truncates towards 0, and a remainder has the sign of the dividend.
    """
    if operator in ("/", "%"):
        if b == 0:
            raise values.Interruption(values.ErrorKind.MATH, f"{a} divided by 0")
        quotient = abs(a) // abs(b) * (1 if (a < 0) is (b < 0) else -1)
        result = quotient if operator == "/" else a - quotient * b
    else:
        result = {"+": a + b, "-": a - b, "*": a * b}[operator]
    if values.INTEGER_FIRST <= result <= values.INTEGER_LAST:
        return result
    reason = f"the result of {operator} is beyond 32 bits: {result}"
    raise values.Interruption(values.ErrorKind.MATH, reason)
