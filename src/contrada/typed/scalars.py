"""Scalar values of fields as values of attributes, and back.

The model does not distinguish int from float, nor str from bytes, when they are equal; decoding
restores the type of the field's annotation.
"""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar
from uuid import UUID

from contrada.model import ValueSet
from contrada.model.algebra.value_set import of_cuts, of_keys
from contrada.model.domains import line, values
from contrada.typed.shapes import FieldKind, TypeOption, enum_values

T = TypeVar("T")

MICROSECOND: Final = timedelta(microseconds=1)

ALL_TEXT: Final = of_cuts(line.domain(values.TEXT))
ALL_TIMES: Final = of_cuts(line.domain(values.TIME))
DOUBLES: Final = of_cuts(line.domain(values.NUMBER))
INTEGERS: Final = of_cuts(line.interval((values.NUMBER,), (values.TIME,)))
NULL_POINT: Final = of_keys((values.NULL_KEY,))


def values_of(alternative: TypeOption) -> ValueSet:
    """Returns the possible values of an attribute for an alternative of a field."""
    if alternative.kind is FieldKind.ENUM:
        return of_keys(tuple(sorted(map(values.key_of, enum_values(alternative.type)))))
    return _SCALARS[alternative.kind][0]


def type_test(alternative: TypeOption) -> Callable[[object], bool]:
    """Returns a test whether a value is of an alternative; a double includes ints."""
    kind, cls = alternative.kind, alternative.type
    if kind is FieldKind.NONE:
        return lambda value: value is None
    if kind is FieldKind.INT:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    if kind is FieldKind.FLOAT:
        return values.is_number
    if kind is FieldKind.DATE:
        return lambda value: isinstance(value, date) and not isinstance(value, datetime)
    return lambda value: isinstance(value, cls)


def writer(alternative: TypeOption) -> Callable[[Any], Any]:
    """Returns an encoder of an alternative; it raises ValueError, OverflowError."""
    kind, cls = alternative.kind, alternative.type
    if kind is FieldKind.ENUM:
        return dict(zip(cls, enum_values(cls), strict=True)).__getitem__
    return _SCALARS[kind][1]


def reader(alternative: TypeOption) -> Callable[[Any], Any]:
    """Returns a decoder of an alternative; it raises ValueError."""
    kind, cls = alternative.kind, alternative.type
    if kind is FieldKind.ENUM:
        members = dict(zip(enum_values(cls), cls, strict=True))

        def member(value: Any) -> Any:
            if type(value) is float and value.is_integer():
                value = int(value)
            if type(value) not in (str, int) or value not in members:
                raise ValueError
            return members[value]

        return member
    return _SCALARS[kind][2]


def _int64(value: Any) -> int:
    number = int(value)
    if not values.INT_MIN <= number <= values.INT_MAX:
        raise OverflowError("an integer has 64 bits")
    return number


def _double(value: Decimal) -> int | float:
    """Returns the nearest double, as numbers are written; an integer if it equals one."""
    if value.is_finite() and values.INT_MIN <= value <= values.INT_MAX and value == int(value):
        return int(value)
    return float(value)


def _exact_reader(kind: type[T]) -> Callable[[Any], T]:

    def read(value: Any) -> T:
        if type(value) is not kind:
            raise ValueError
        return value

    return read


_text: Final = _exact_reader(str)


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise ValueError


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise ValueError


def _duration(value: Any) -> timedelta:
    try:
        return timedelta(microseconds=_int(value))
    except OverflowError:
        raise ValueError from None


def _date(value: Any) -> date:
    """Returns the date of its ISO text; other texts of dates have another order than dates."""
    found = date.fromisoformat(_text(value))
    if found.isoformat() != value:
        raise ValueError
    return found


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    raise ValueError


def _decimal(value: Any) -> Decimal:
    """Returns the decimal of the digits in the body, or of a number published by other programs."""
    try:
        return Decimal(value) if type(value) is str else Decimal(repr(value))
    except InvalidOperation:
        raise ValueError from None


def _same(value: Any) -> Any:
    return value


_SCALARS: Final[dict[FieldKind, tuple[ValueSet, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    FieldKind.NONE: (NULL_POINT, _same, _exact_reader(type(None))),
    FieldKind.BOOL: (of_cuts(line.domain(values.BOOL)), _same, _exact_reader(bool)),
    FieldKind.INT: (INTEGERS, _int64, _int),
    FieldKind.FLOAT: (DOUBLES, float, _float),
    FieldKind.TEXT: (ALL_TEXT, lambda value: str.__str__(value), _text),
    FieldKind.BYTES: (ALL_TEXT, bytes, _bytes),
    FieldKind.TIME: (ALL_TIMES, _same, _exact_reader(datetime)),
    FieldKind.DATE: (ALL_TEXT, lambda value: value.isoformat(), _date),
    FieldKind.DURATION: (INTEGERS, lambda value: _int64(value // MICROSECOND), _duration),
    FieldKind.UUID: (ALL_TEXT, str, lambda value: UUID(_text(value))),
    FieldKind.DECIMAL: (DOUBLES, _double, _decimal),
}
"""The values of each kind in an attribute, their encoder and their decoder."""
