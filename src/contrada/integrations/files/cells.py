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
from decimal import Decimal
from functools import cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from contrada.errors import ContradaError, InputError, InvalidValueError
from contrada.model import Value
from contrada.model.domains.values import INT_MAX, INT_MIN, datetime_of

Converter = Callable[[Any], Value]

_LITERAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ODD_NUMBER: Final = re.compile(r"[+-]?0[0-9]|\+[0-9]")
_BEGINS_LITERAL: Final = frozenset("-0123456789")
_INTEGER_CHARS_MAX: Final = len(str(INT_MIN))
_SPECIAL_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)", re.ASCII
)
_LOCAL_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


TIME_WITH_ZONE: Final = "a time with a zone, like 2013-01-01T05:00:00Z"


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
        hint = " without `+` or leading zeros" if _ODD_NUMBER.match(text) else ""
        raise InvalidValueError(text, f"expected a number of 64 bits{hint}")
    return number


def bool_value(text: str) -> Value:
    """Declared `bool`: exactly `true` or `false`."""
    if text not in ("true", "false"):
        raise InvalidValueError(text, "expected true or false")
    return text == "true"


def time_value(text: str, *, zone: str | None = None) -> Value:
    """Declared `time`: ISO 8601 with a zone; a date alone is its midnight in UTC.

    Where a zone is given, dates and times without one are in that. A local time that comes twice
    there means the first; one that the zone skips is refused.
    """
    try:
        if _DATE.fullmatch(text):
            midnight = datetime.combine(date.fromisoformat(text), time())
            return midnight.replace(tzinfo=UTC) if zone is None else in_zone(midnight, zone, text)
        if _TIME.fullmatch(text):
            return datetime.fromisoformat(text).astimezone(UTC)
        if zone is not None and _LOCAL_TIME.fullmatch(text):
            return in_zone(datetime.fromisoformat(text), zone, text)
    except (ValueError, OverflowError):
        pass  # a 30th of February: the same answer as below
    raise InvalidValueError(text, f"expected {TIME_WITH_ZONE if zone is None else 'a time'}")


@cache
def zone_of(name: str) -> ZoneInfo:
    """The time zone of a name. Raises InputError for one that is none."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise InputError("zone", f"found {name!r}, expected a zone as Europe/Rome or UTC") from None


def in_zone(local: datetime, zone: str, text: str) -> datetime:
    """The time in UTC of a local one. InvalidValueError, with its text, where there is no such."""
    found = local.replace(tzinfo=zone_of(zone)).astimezone(UTC)
    if found.astimezone(zone_of(zone)).replace(tzinfo=None) != local:
        raise InvalidValueError(text, f"there is no such time in {zone}")
    return found


def _since_1970(unit_us: int) -> Converter:
    def epoch_value(given: str | int | float) -> Value:
        """Declared `epoch…`: a number, to whole microseconds."""
        number = _number(given) if isinstance(given, str) else given
        try:
            if number is None:
                raise ValueError
            # The digits that were written, not the double's.
            exact = Decimal(given if isinstance(given, str) else repr(given)) * unit_us
            return datetime_of(int(exact.to_integral_value()))
        except (ValueError, ArithmeticError, ContradaError):
            reason = "expected a number of seconds, or of parts of them, since 1970"
            raise InvalidValueError(given, reason) from None

    return epoch_value


EPOCHS: Final[Mapping[str, Converter]] = {
    "epoch": _since_1970(10**6),
    "epoch_ms": _since_1970(10**3),
    "epoch_us": _since_1970(1),
}
"""Times as numbers: seconds, milliseconds or microseconds since 1970 in UTC."""

CONVERTERS: Final[Mapping[str, Converter]] = {
    "text": str,  # as it stands, so that a tail number `1E5` stays a name
    "number": number_value,
    "bool": bool_value,
    "time": time_value,
    **EPOCHS,
}
"""The types that can be declared, by name."""


def schema_value(kind: str, text: str, zone: str | None) -> Value:
    """The value of a text whose type an XML Schema says: as the schema spells it, else the text."""
    if kind == "bool":
        return {"1": True, "true": True, "0": False, "false": False}.get(text, text)
    if kind == "number":
        if text in _SCHEMA_NUMBERS:
            return _SCHEMA_NUMBERS[text]
        number = _number(_PLUS_AND_ZEROS.sub(r"\1", text))
        return text if number is None else number
    if kind == "time":
        try:
            return time_value(text, zone=zone)
        except ContradaError:
            return text
    return text


_SCHEMA_NUMBERS: Final = {"NaN": math.nan, "INF": math.inf, "-INF": -math.inf}
_PLUS_AND_ZEROS: Final = re.compile(r"^\+?(-?)0*(?=[0-9])")


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
