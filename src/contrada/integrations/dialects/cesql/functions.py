"""The functions of CESQL.

A name and a number of arguments identify a function. Arguments are cast to the types of its
parameters. The result of a function beside a fault counts only if the function is the whole
expression; otherwise it is the zero of the expression's type. Characters are code points. Letters
change case as in the interpreter's version of Unicode.

Source: CloudEvents, CESQL 1.0.0 §3.5; INT, BOOL and STRING are those of its conformance kit, IS_INT
and IS_BOOL those of its software development kits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from contrada.integrations.dialects.cesql import cesql_values as values
from contrada.integrations.dialects.cesql.expression_tree import CesqlValue

CESQL_JOINED_MAX: Final = 10_000_000
"""Characters of a result of CONCAT and CONCAT_WS. Beyond it: a FunctionEvaluationError."""

# The characters of Unicode's property White_Space; str.strip takes away four more.
_WHITE_SPACE: Final = (
    "".join(map(chr, (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))))
    + "\u2028\u2029\u202f\u205f\u3000"
)


@dataclass(frozen=True, slots=True)
class CesqlFunction:
    """A function: the types of parameters (None: not cast), of further ones, and of its result."""

    parameters: tuple[values.Type | None, ...]
    returns: values.Type
    run: Callable[..., CesqlValue]
    more: values.Type | None = None

    def takes(self, arguments: int) -> bool:
        """Whether it accepts so many arguments."""
        fixed = len(self.parameters)
        return arguments == fixed or (self.more is not None and arguments > fixed)

    def parameter(self, number: int) -> values.Type | None:
        """Returns the type to which an argument is cast, by its position from 0."""
        return self.parameters[number] if number < len(self.parameters) else self.more


def find(name: str, arguments: int) -> CesqlFunction | None:
    """Returns the function of a name, in capitals, that accepts so many arguments."""
    return next((each for each in _FUNCTIONS.get(name, ()) if each.takes(arguments)), None)


def _casts(cast: Callable[[CesqlValue], CesqlValue]) -> Callable[[CesqlValue], bool]:
    def can(value: CesqlValue) -> bool:
        try:
            cast(value)
        except values.Interruption:
            return False
        return True

    return can


def _failure(reason: str, value: str | None) -> values.Interruption:
    return values.Interruption(values.ErrorKind.FUNCTION_EVALUATION, reason, value)


def _join(mark: str, texts: Sequence[str]) -> str:
    size = sum(map(len, texts)) + len(mark) * max(len(texts) - 1, 0)
    if size > CESQL_JOINED_MAX:
        limit = f"CESQL_JOINED_MAX = {CESQL_JOINED_MAX}"
        raise _failure(f"a text of {size} characters, more than {limit}", None)
    return mark.join(texts)


def _absolute(number: int) -> int:
    if number == values.INTEGER_FIRST:
        reason = f"ABS({number}) is beyond 32 bits"
        raise values.Interruption(values.ErrorKind.MATH, reason, values.INTEGER_LAST)
    return abs(number)


def _left(text: str, length: int) -> str:
    if length < 0:
        raise _failure(f"LEFT of {length} characters", text)
    return text[:length]


def _right(text: str, length: int) -> str:
    if length < 0:
        raise _failure(f"RIGHT of {length} characters", text)
    return text[max(len(text) - length, 0) :]


def _substring(text: str, position: int, length: int | None = None) -> str:
    if length is not None and length < 0:
        raise _failure(f"SUBSTRING of {length} characters", "")
    if not -len(text) <= position <= len(text):
        raise _failure(f"SUBSTRING from {position} of {len(text)} characters", "")
    if position == 0:
        return ""
    start = position - 1 if position > 0 else len(text) + position
    return text[start:] if length is None else text[start : start + length]


_TEXT: Final = values.Type.STRING
_INT: Final = values.Type.INTEGER
_BOOL: Final = values.Type.BOOLEAN

_FUNCTIONS: Final[dict[str, tuple[CesqlFunction, ...]]] = {
    "INT": (CesqlFunction((None,), _INT, values.as_integer),),
    "BOOL": (CesqlFunction((None,), _BOOL, values.as_boolean),),
    "STRING": (CesqlFunction((None,), _TEXT, values.as_string),),
    "IS_INT": (CesqlFunction((None,), _BOOL, _casts(values.as_integer)),),
    "IS_BOOL": (CesqlFunction((None,), _BOOL, _casts(values.as_boolean)),),
    "ABS": (CesqlFunction((_INT,), _INT, _absolute),),
    "LENGTH": (CesqlFunction((_TEXT,), _INT, len),),
    "CONCAT": (CesqlFunction((), _TEXT, lambda *all_: _join("", all_), _TEXT),),
    "CONCAT_WS": (CesqlFunction((_TEXT,), _TEXT, lambda mark, *all_: _join(mark, all_), _TEXT),),
    "LOWER": (CesqlFunction((_TEXT,), _TEXT, str.lower),),
    "UPPER": (CesqlFunction((_TEXT,), _TEXT, str.upper),),
    "TRIM": (CesqlFunction((_TEXT,), _TEXT, lambda text: text.strip(_WHITE_SPACE)),),
    "LEFT": (CesqlFunction((_TEXT, _INT), _TEXT, _left),),
    "RIGHT": (CesqlFunction((_TEXT, _INT), _TEXT, _right),),
    "SUBSTRING": (
        CesqlFunction((_TEXT, _INT), _TEXT, _substring),
        CesqlFunction((_TEXT, _INT, _INT), _TEXT, _substring),
    ),
}
