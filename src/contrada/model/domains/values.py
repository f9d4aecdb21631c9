"""Values, their domains, and the one line on which all of them lie.

Every value has a *key*, a pair (domain, comparable). All keys are totally ordered, so that a set of
values of any domains is a set of pieces of one line (docs/architecture.md). A float that equals a
64-bit integer is held as that integer, so that -0.0, 0.0 and 0 are one value. Text is bytes: a str
is its UTF-8, and byte order is code point order. Time is UTC microseconds.

Source: PODC 2000 §2 (types and values of attributes); CU-CS-946-03 §2 (byte strings).
"""

import math
import numbers
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias, TypeGuard
from uuid import UUID

from contrada.errors import InvalidNameError, InvalidValueError

Value: TypeAlias = bool | int | float | str | bytes | datetime | None
"""A value of one attribute, as users write it and as they get it back."""

Key: TypeAlias = tuple[int, bool | int | float | bytes]
"""A value's place on the line: its domain and a comparable within the domain."""

ABSENT: Final = 0
NULL: Final = 1
BOOL: Final = 2
NAN: Final = 3
NUMBER: Final = 4
TIME: Final = 5
TEXT: Final = 6

DOMAIN_NAMES: Final = ("absent", "null", "bool", "nan", "number", "time", "text")

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
NAME_BYTES_MAX: Final = 255
"""Bytes of an attribute's name in UTF-8. Beyond it: InvalidNameError."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ENVELOPE_NAMES: Final = ("@id", "@publisher", "@time")
"""The envelope's fields in filters, which with names of `MARK_PREFIX` the system reserves."""

MARK_PREFIX: Final = "@is."  # The prefix of type marks

RESERVED: Final = f"{' '.join(ENVELOPE_NAMES)} and {MARK_PREFIX}… are reserved"
"""The reason that refuses such a name to a user."""

_MICROSECOND: Final = timedelta(microseconds=1)
_HOUR_24: Final = re.compile(r"\d{4}-?(?:\d\d-?\d\d|W\d\d(?:-?\d)?).24", re.DOTALL)
TIME_MIN_US: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
TIME_MAX_US: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND

UNITS_US: Final = {
    "us": 1,
    "ms": 1_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""Units of time in the text syntax, in microseconds, the smallest first; the last of equal ones
is written."""

ABSENT_KEY: Final[Key] = (ABSENT, 0)
NULL_KEY: Final[Key] = (NULL, 0)
NAN_KEY: Final[Key] = (NAN, 0)
_PLAIN: Final = frozenset((str, int, float, bool, type(None), bytes))


def key_of(value: Value) -> Key:
    """Returns the key of a value.

    Cost: constant but for the UTF-8 of a str. Raises InvalidValueError for an integer outside
    64 bits, a lone surrogate, a datetime without a zone, or a type that is no value.
    """
    kind = type(value)
    if kind is str:
        try:
            return (TEXT, value.encode())  # type: ignore[union-attr]
        except UnicodeEncodeError:
            raise InvalidValueError(value, "a lone surrogate is not text") from None
    if kind is int:
        if INT_MIN <= value <= INT_MAX:  # type: ignore[operator]
            return (NUMBER, value)  # type: ignore[return-value]
        raise InvalidValueError(value, "an integer must fit into 64 bits")
    if kind is float:
        return _float_key(value)  # type: ignore[arg-type]
    if kind is bool:
        return (BOOL, value)  # type: ignore[return-value]
    if value is None:
        return NULL_KEY
    if kind is bytes:
        return (TEXT, value)  # type: ignore[return-value]
    return _unusual_key(value)


def value_of(key: Key) -> Value:
    """Returns the value at a key: text as str where it is UTF-8, else bytes; time as UTC datetime.

    `absent` is not a value; asking for it is a fault of the caller.
    """
    domain, comparable = key
    if domain == TEXT:
        assert isinstance(comparable, bytes)
        try:
            return comparable.decode()
        except UnicodeDecodeError:
            return comparable
    if domain == TIME:
        assert isinstance(comparable, int)
        return datetime_of(comparable)
    if domain == NULL:
        return None
    if domain == NAN:
        return math.nan
    assert domain in (BOOL, NUMBER), "absent has no value"
    return comparable


def normal(value: Value) -> Value:
    """Returns the value itself if its type is one of the seven, else the plain value of it.

    A member of an enumeration gives its value, a UUID its text, a number of NumPy the equal int,
    float or bool, a bytearray and a memoryview their bytes, a Decimal the int or float with the
    same digits. Raises InvalidValueError as `key_of`, also for a loss: digits of a Decimal,
    nanoseconds of a time.
    """
    if type(value) in _PLAIN:
        key_of(value)
        return value
    return value_of(_unusual_key(value))


def time_us_of(value: datetime) -> int:
    """Returns UTC microseconds since 1970 of a datetime with a zone, in range in UTC."""
    if type(value) is not datetime:
        if value != value:
            raise InvalidValueError(value, "this is no time; leave the attribute out, or give None")
        if getattr(value, "nanosecond", 0):
            raise InvalidValueError(value, "a time has microseconds; round it to these")
    if value.utcoffset() is None:
        raise InvalidValueError(value, "a time needs a zone, for example tzinfo=datetime.UTC")
    time_us = (value - EPOCH) // _MICROSECOND
    if not TIME_MIN_US <= time_us <= TIME_MAX_US:
        raise InvalidValueError(value, "a time must lie in the years 1 to 9999 of UTC")
    return time_us


def iso_time(text: str) -> datetime:
    """Returns a time in ISO 8601, with a zone or without. Raises ValueError."""
    if _HOUR_24.match(text):  # Python 3.14 reads it, as the next day; earlier versions refuse it.
        raise ValueError(f"Invalid isoformat string: {text!r}")
    return datetime.fromisoformat(text)


def datetime_of(time_us: int) -> datetime:
    """Returns the UTC datetime of microseconds since 1970, exact."""
    return EPOCH + timedelta(microseconds=time_us)


def successor(number: int | float) -> int | float | None:
    """Returns the smallest number of int64 ∪ double above this one; None above +infinity."""
    if number == math.inf:
        return None
    floor = math.floor(number) if number != -math.inf else None
    above = float(number)
    if not above > number:
        above = math.nextafter(above, math.inf)
    if floor is not None and INT_MIN <= floor + 1 <= INT_MAX and floor + 1 <= above:
        return floor + 1
    return plain_number(above)


def predecessor(number: int | float) -> int | float | None:
    """Returns the largest number of int64 ∪ double below this one; None below -infinity."""
    above = successor(-number)
    if above is None:
        return None
    is_whole = type(above) is int and above != INT_MIN  # Its negative is no integer of 64 bits.
    return -above if is_whole else plain_number(-float(above))


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is an int or a float, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def plain_number(number: float) -> int | float:
    """Returns a double as the 64-bit integer that it equals, or itself."""
    if number.is_integer() and INT_MIN <= number <= INT_MAX:
        return int(number)
    return number


def check_name(name: object) -> str:
    """Returns the name itself, when it is 1 to 255 bytes of UTF-8 without control characters."""
    if type(name) is not str:
        raise InvalidNameError(name, "a name is a str")
    if name.isascii() and name.isprintable():
        size = len(name)
    else:
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise InvalidNameError(name, "a lone surrogate is not text") from None
        if any(ord(c) < 0x20 or 0x7F <= ord(c) <= 0x9F for c in name):
            raise InvalidNameError(name, "control characters are not allowed")
    if not 1 <= size <= NAME_BYTES_MAX:
        raise InvalidNameError(name, f"a name has 1 to {NAME_BYTES_MAX} bytes, this one {size}")
    return name


def check_user_name(name: object) -> str:
    """As `check_name`; refuses the system's names too."""
    checked = check_name(name)
    if checked[0] == "@" and is_system_name(checked):
        raise InvalidNameError(name, RESERVED)
    return checked


def is_system_name(name: str) -> bool:
    """Whether an attribute of this name is the envelope's, or a type mark."""
    return name.startswith(MARK_PREFIX) or name in ENVELOPE_NAMES


def _float_key(value: float) -> Key:
    if value != value:
        return NAN_KEY
    return (NUMBER, plain_number(value))


def _unusual_key(value: object) -> Key:
    """Returns the keys of times, of subclasses and of substitutes for values; see `normal`."""
    if isinstance(value, datetime):
        return (TIME, time_us_of(value))
    if isinstance(value, Enum):
        return key_of(value.value)
    if isinstance(value, str):
        return key_of(str.__str__(value))
    if isinstance(value, UUID):
        return key_of(str(value))
    if isinstance(value, Decimal):
        return _decimal_key(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return (TEXT, bytes(value))
    if type(value).__name__ in ("bool", "bool_"):
        return (BOOL, bool(value))
    if isinstance(value, numbers.Integral) and hasattr(value, "__index__"):  # No span of NumPy.
        return key_of(int(value))
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational):
        return _real_key(value)
    if isinstance(value, date):
        reason = "a date is no moment; give a datetime with a zone, or the text of isoformat()"
        raise InvalidValueError(value, reason)
    raise InvalidValueError(
        value,
        f"type {type(value).__name__} is no value; values are None, bool, int, float, str, "
        "bytes and datetime",
    )


def _real_key(value: Any) -> Key:
    held = float(value)
    if held != value and value == value:
        raise InvalidValueError(value, "no double equals it; give float(…) of it to round it")
    return _float_key(held)


def _decimal_key(value: Decimal) -> Key:
    """Returns the key of the number with the same digits: an integer, else the nearest double."""
    if value.is_nan():
        return NAN_KEY
    if value.is_finite() and INT_MIN <= value <= INT_MAX and value == int(value):
        return (NUMBER, int(value))
    held = float(value)
    if Decimal(repr(held)) != value:
        reason = "a number has the digits of a double; give float(…) of it to round it"
        raise InvalidValueError(value, reason)
    return _float_key(held)
