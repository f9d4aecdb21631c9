"""The values of CESQL, their three types, casts between them, and errors.

How a CloudEvent's attributes sit in a notification: String, URI and URI-reference as text,
Timestamp as its RFC 3339 text (or as a time, whose text is RFC 3339 in UTC), Binary as its
Base64 text, Integer as a number, Boolean as a bool.

A notification can also hold what no CloudEvent has. A number with a fraction or beyond 32 bits is
an Integer all the same: it compares and casts by its exact value, and only arithmetic and
functions, which need 32 bits, answer it with a CastError. A byte that is not UTF-8 counts as a
character, but `_` in a pattern stands for none, as in the operator `wildcard`. A null is the text
`null`, a NaN the text `nan`. Several values at once are a GenericError.

Source: CloudEvents, CESQL 1.0.0 §3.1 to §3.3 and §3.7; CloudEvents 1.0.2 (the type system).
"""

import operator as operators
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from contrada.integrations.dialects.cesql.expression_tree import CesqlValue
from contrada.model.domains.values import (
    ABSENT,
    BOOL,
    DOMAIN_NAMES,
    NUMBER,
    TEXT,
    TIME,
    Key,
    datetime_of,
)

INTEGER_FIRST: Final = -(2**31)
INTEGER_LAST: Final = 2**31 - 1

_INTEGER_TEXT: Final = re.compile(r"[+-]?0*([0-9]{1,10})", re.ASCII)


class Type(StrEnum):
    """The three types."""

    BOOLEAN = "Boolean"
    INTEGER = "Integer"
    STRING = "String"


ZERO: Final[dict[Type, CesqlValue]] = {Type.BOOLEAN: False, Type.INTEGER: 0, Type.STRING: ""}
"""What an expression of each type is worth where it has an error."""


ORDERS: Final[dict[str, Callable[[int | float, int | float], bool]]] = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
}
"""The orders of Integers."""


class ErrorKind(StrEnum):
    """The kinds of errors that an evaluation can have, by the names of the conformance kit."""

    MATH = "math"
    CAST = "cast"
    MISSING_ATTRIBUTE = "missingAttribute"
    MISSING_FUNCTION = "missingFunction"
    FUNCTION_EVALUATION = "functionEvaluation"
    GENERIC = "generic"


class Fault(NamedTuple):
    """An error of an evaluation: its kind, and what was found."""

    kind: ErrorKind
    reason: str


class Interruption(Exception):  # noqa: N818  it ends an evaluation, and never leaves the package
    """An evaluation ends with a fault. `value` is what a function returns beside its fault."""

    def __init__(self, kind: ErrorKind, reason: str, value: CesqlValue | None = None) -> None:
        super().__init__(reason)
        self.fault = Fault(kind, reason)
        self.value = value


def type_of(value: CesqlValue) -> Type:
    """The type of a value."""
    if isinstance(value, bool):
        return Type.BOOLEAN
    return Type.STRING if isinstance(value, str) else Type.INTEGER


def cast_to(target: Type, value: CesqlValue) -> CesqlValue:
    """The value as one of another type. Raises Interruption with a CastError."""
    if target is Type.STRING:
        return as_string(value)
    return as_integer(value) if target is Type.INTEGER else as_boolean(value)


def as_string(value: CesqlValue) -> str:
    """The value as a String; always possible."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def as_integer(value: CesqlValue) -> int | float:
    """The value as an Integer: text must be a sign or none, and digits, within 32 bits."""
    if not isinstance(value, str):
        return int(value) if isinstance(value, bool) else value
    if (digits := _INTEGER_TEXT.fullmatch(value)) is not None:
        number = -int(digits[1]) if value[0] == "-" else int(digits[1])
        if INTEGER_FIRST <= number <= INTEGER_LAST:
            return number
    raise Interruption(ErrorKind.CAST, f"{value[:40]!r} is no Integer")


def as_boolean(value: CesqlValue) -> bool:
    """The value as a Boolean: text must be true or false, in capitals or not."""
    if not isinstance(value, str):
        return bool(value)
    if (lowered := value.lower()) in ("true", "false"):
        return lowered == "true"
    raise Interruption(ErrorKind.CAST, f"{value[:40]!r} is no Boolean")


def as_whole(value: CesqlValue) -> int:
    """The value as an Integer of 32 bits, for arithmetic and functions."""
    number = as_integer(value)
    if isinstance(number, int) and INTEGER_FIRST <= number <= INTEGER_LAST:
        return number
    raise Interruption(ErrorKind.CAST, f"{number!r} is no Integer of 32 bits")


EventKeys: TypeAlias = Callable[[str], tuple[Key, ...]]
"""The keys of an event's values of an attribute; absent is a key."""


def value_in(event: EventKeys, name: str) -> CesqlValue:
    """An attribute's value. Raises Interruption with a MissingAttributeError or GenericError."""
    keys = event(name)
    if len(keys) > 1:
        raise Interruption(ErrorKind.GENERIC, f"attribute {name} has {len(keys)} values")
    domain, comparable = keys[0]
    if domain == TEXT:
        assert isinstance(comparable, bytes)
        return comparable.decode(errors="surrogateescape")
    if domain in (NUMBER, BOOL):
        assert not isinstance(comparable, bytes)
        return comparable
    if domain == TIME:
        assert isinstance(comparable, int)
        return time_text(comparable)
    if domain == ABSENT:
        raise Interruption(ErrorKind.MISSING_ATTRIBUTE, f"the event has no attribute {name}")
    return DOMAIN_NAMES[domain]


def time_text(time_us: int) -> str:
    """A time as RFC 3339 in UTC, with microseconds where it has some."""
    return datetime_of(time_us).isoformat().removesuffix("+00:00") + "Z"
