"""The values of CESQL, their three types, casts between them, and errors.

Attributes of a CloudEvent in a notification: String, URI and URI-reference are text, Timestamp is
its RFC 3339 text (or a time, with its RFC 3339 text in UTC), Binary is its Base64 text, Integer a
number, Boolean a bool.

A notification can also hold values that no CloudEvent has. A number with a fraction or beyond 32
bits is still an Integer: it compares and casts by its exact value. Only arithmetic and functions,
which need 32 bits, give a CastError for it. A byte that is not UTF-8 counts as a character, but `_`
in a pattern does not match it, as in the operator `wildcard`. A null is the text `null`, a NaN the
text `nan`. Several values at once are a GenericError.

Source: CloudEvents, CESQL 1.0.0 §3.1 to §3.3 and §3.7; CloudEvents 1.0.2 (the type system).
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from contrada.integrations.dialects.cesql.expression_tree import CesqlValue
from contrada.model.domains import values as domains
from contrada.model.domains.values import Key

INTEGER_FIRST: Final = -(2**31)
INTEGER_LAST: Final = 2**31 - 1

_INTEGER_TEXT: Final = re.compile(r"[+-]?0*([0-9]{1,10})", re.ASCII)


class Type(StrEnum):
    """The three types."""

    BOOLEAN = "Boolean"
    INTEGER = "Integer"
    STRING = "String"


ZERO: Final[dict[Type, CesqlValue]] = {Type.BOOLEAN: False, Type.INTEGER: 0, Type.STRING: ""}
"""The value of an expression of each type after an error."""


class ErrorKind(StrEnum):
    """The kinds of errors of an evaluation, by the names of the conformance kit."""

    MATH = "math"
    CAST = "cast"
    MISSING_ATTRIBUTE = "missingAttribute"
    MISSING_FUNCTION = "missingFunction"
    FUNCTION_EVALUATION = "functionEvaluation"
    GENERIC = "generic"


class Fault(NamedTuple):
    """An error of an evaluation: its kind, and the reason."""

    kind: ErrorKind
    reason: str


class Interruption(Exception):  # noqa: N818  it ends an evaluation, and never leaves the package
    """Ends an evaluation with a fault. `value` is a function's result beside its fault."""

    def __init__(self, kind: ErrorKind, reason: str, value: CesqlValue | None = None) -> None:
        super().__init__(reason)
        self.fault = Fault(kind, reason)
        self.value = value


def type_of(value: CesqlValue) -> Type:
    """Returns the type of a value."""
    if isinstance(value, bool):
        return Type.BOOLEAN
    return Type.STRING if isinstance(value, str) else Type.INTEGER


def cast_to(target: Type, value: CesqlValue) -> CesqlValue:
    """Returns the value cast to another type. Raises Interruption with a CastError."""
    if target is Type.STRING:
        return as_string(value)
    return as_integer(value) if target is Type.INTEGER else as_boolean(value)


def as_string(value: CesqlValue) -> str:
    """Returns the value as a String; always possible."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def as_integer(value: CesqlValue) -> int | float:
    """Returns the value as an Integer: text must be an optional sign and digits, within 32 bits."""
    if not isinstance(value, str):
        return int(value) if isinstance(value, bool) else value
    if (digits := _INTEGER_TEXT.fullmatch(value)) is not None:
        number = -int(digits[1]) if value[0] == "-" else int(digits[1])
        if INTEGER_FIRST <= number <= INTEGER_LAST:
            return number
    raise Interruption(ErrorKind.CAST, f"{value[:40]!r} is no Integer")


def as_boolean(value: CesqlValue) -> bool:
    """Returns the value as a Boolean: text must be true or false, in any case."""
    if not isinstance(value, str):
        return bool(value)
    if (lowered := value.lower()) in ("true", "false"):
        return lowered == "true"
    raise Interruption(ErrorKind.CAST, f"{value[:40]!r} is no Boolean")


def as_whole(value: CesqlValue) -> int:
    """Returns the value as an Integer of 32 bits, for arithmetic and functions."""
    number = as_integer(value)
    if isinstance(number, int) and INTEGER_FIRST <= number <= INTEGER_LAST:
        return number
    raise Interruption(ErrorKind.CAST, f"{number!r} is no Integer of 32 bits")


EventKeys: TypeAlias = Callable[[str], tuple[Key, ...]]
"""Gives the keys of an event's values of an attribute; absent is a key."""


def value_in(event: EventKeys, name: str) -> CesqlValue:
    """Returns an attribute's value. Raises Interruption if it is missing, or one of several."""
    keys = event(name)
    if len(keys) > 1:
        raise Interruption(ErrorKind.GENERIC, f"attribute {name} has {len(keys)} values")
    domain, comparable = keys[0]
    if domain == domains.TEXT:
        assert isinstance(comparable, bytes)
        return comparable.decode(errors="surrogateescape")
    if domain in (domains.NUMBER, domains.BOOL):
        assert not isinstance(comparable, bytes)
        return comparable
    if domain == domains.TIME:
        assert isinstance(comparable, int)
        return time_text(comparable)
    if domain == domains.ABSENT:
        raise Interruption(ErrorKind.MISSING_ATTRIBUTE, f"the event has no attribute {name}")
    return domains.DOMAIN_NAMES[domain]


def time_text(time_us: int) -> str:
    """Returns a time as RFC 3339 in UTC, with microseconds unless they are 0."""
    return domains.datetime_of(time_us).isoformat().removesuffix("+00:00") + "Z"
