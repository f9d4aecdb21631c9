"""The value of a cell: of a text that says nothing of its type.

This is the one rule for the cells of CSV files and for the texts and attributes of XML. It
looks at one cell at a time, so that a value never depends on the rows around it:

1. an empty cell, or one of the source's markers for "no value" (`NA`), is absent;
2. a declared type decides where there is one, and what cannot be read as it is an error;
3. an integer or decimal literal as JSON spells it (no leading zeros, no `+`) is a number, when
   it fits into 64 bits or is a finite double;
4. exactly `true` and `false` are truth values;
5. everything else is text, taken as it stands (blanks included).

Source: Erenkrantz 2001 §2.1, the types of attribute values.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from typing import Final

from contrada.errors import InvalidValueError
from contrada.model import Value
from contrada.model.domains.values import INT_MAX, INT_MIN

Converter = Callable[[str], Value]

_LITERAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BEGINS_LITERAL: Final = frozenset("-0123456789")
_INTEGER_CHARS_MAX: Final = len(str(INT_MIN))
_SPECIAL_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)", re.ASCII
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def untyped_value(text: str) -> Value:
    """The value of a cell that is not empty and has no declared type."""
    if text[0] in _BEGINS_LITERAL:
        number = _number(text)
        return text if number is None else number
    if text == "true":
        return True
    if text == "false":
        return False
    return text


def number_value(text: str) -> Value:
    """Declared `number`: a literal as JSON spells it, or `NaN`, `Infinity`, `-Infinity`."""
    if text in _SPECIAL_NUMBERS:
        return _SPECIAL_NUMBERS[text]
    number = _number(text)
    if number is None:
        raise InvalidValueError(text, "expected a number of 64 bits")
    return number


def bool_value(text: str) -> Value:
    """Declared `bool`: exactly `true` or `false`."""
    if text not in ("true", "false"):
        raise InvalidValueError(text, "expected true or false")
    return text == "true"


def time_value(text: str) -> Value:
    """Declared `time`: ISO 8601 with a zone; a date alone is its midnight in UTC."""
    try:
        if _DATE.fullmatch(text):
            return datetime.combine(date.fromisoformat(text), time(tzinfo=UTC))
        if _TIME.fullmatch(text):
            return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # a 30th of February: the same answer as below
    raise InvalidValueError(text, "expected a time with a zone, like 2013-01-01T05:00:00Z")


CONVERTERS: Final[Mapping[str, Converter]] = {
    "text": str,  # as it stands, so that a tail number `1E5` stays a name
    "number": number_value,
    "bool": bool_value,
    "time": time_value,
}
"""The types that can be declared, by name."""


def _number(text: str) -> int | float | None:
    """The number that a literal spells, None where it is no literal or does not fit."""
    literal = _LITERAL.fullmatch(text)
    if literal is None:
        return None
    if literal.group(1) is None and literal.group(2) is None:
        if len(text) > _INTEGER_CHARS_MAX:
            return None
        integer = int(text)
        return integer if INT_MIN <= integer <= INT_MAX else None
    number = float(text)
    return number if math.isfinite(number) else None
