"""JSON as the dialects read it: nothing is decided in silence.

A repeated name in an object, `NaN`, a decimal outside the doubles and everything else that is no
JSON are refused. Integers are exact. A decimal becomes the nearest double, or, where the caller
asks for exactness and the double is written otherwise, a value that says so.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from contrada.errors import EncodingError, InvalidNameError, LimitError
from contrada.model.domains.values import INT_MAX, INT_MIN

JSON_CHARACTERS_MAX: Final = 16_000_000
"""Characters, or bytes, of a JSON text of a dialect. Beyond it: the rule or event is refused."""

JSON_DEPTH_MAX: Final = 100
"""Objects and arrays in one another in such a text. Beyond it: the rule or event is refused."""

_INTEGER_CHARACTERS_MAX: Final = 400
"""int() is slow on very long texts; every double is shorter when it is written as an integer."""


@dataclass(frozen=True, slots=True)
class Inexact:
    """A number of JSON that no double stands for."""

    literal: str

    def __repr__(self) -> str:
        return self.literal


class LiteralError(Exception):
    """A literal that is refused. Where it stands the decoder does not say."""

    def __init__(self, literal: str, found: str, expected: str) -> None:
        super().__init__(f"found {found}, expected {expected}")
        self.literal = literal
        self.found = found
        self.expected = expected


def decoded(text: str | bytes, *, exact: bool = False) -> Any:
    """The value that a JSON text stands for, made of dict, list, str, int, float, bool, None.

    With `exact`, numbers that no double stands for are Inexact, but for integers of usual length.
    Cost: linear. Raises EncodingError and LimitError; the depth is left to who walks the value
    (`check_depth`).
    """
    if len(text) > JSON_CHARACTERS_MAX:
        raise LimitError("JSON_CHARACTERS_MAX", JSON_CHARACTERS_MAX, len(text))
    try:
        return (_EXACT if exact else _ROUNDING).decode(
            text if isinstance(text, str) else _str(text)
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise EncodingError("JSON", f"{place}: {error.msg}") from None
    except (LiteralError, InvalidNameError) as error:
        raise EncodingError("JSON", str(error)) from None
    except RecursionError:
        raise LimitError("JSON_DEPTH_MAX", JSON_DEPTH_MAX) from None


def json_lines(text: str) -> list[str]:
    """The lines of a text of JSON lines, without the blank ones; none where it is none.

    It is one when it has several lines and the first or the last alone is JSON: in JSON that was
    laid out over several lines neither is.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return lines if len(lines) > 1 and any(map(_is_json, (lines[0], lines[-1]))) else []


def _is_json(text: str) -> bool:
    try:
        decoded(text)
    except (EncodingError, LimitError):
        return False
    return True


def check_depth(depth: int) -> None:
    """Raises LimitError where something stands in too many objects and arrays."""
    if depth > JSON_DEPTH_MAX:
        raise LimitError("JSON_DEPTH_MAX", JSON_DEPTH_MAX, depth)


def is_exact(number: int | float) -> bool:
    """Whether a double stands for the number: the shortest decimal of the nearest double is it."""
    try:
        nearest = float(number)
    except OverflowError:
        return False
    return Decimal(repr(nearest)) == number if isinstance(number, int) else math.isfinite(number)


def exact_number(literal: str) -> int | float | None:
    """The integer of 64 bits, or the double, that a decimal literal is; None where it is none.

    A double is one where its shortest decimal is the literal's number. Cost: linear.
    """
    try:
        exact = Decimal(literal)
    except InvalidOperation:  # an exponent beyond any use
        return None
    if INT_MIN <= exact <= INT_MAX and exact == exact.to_integral_value():
        return int(exact)
    number = float(literal)
    return number if math.isfinite(number) and Decimal(repr(number)) == exact else None


def _str(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise EncodingError("JSON", f"byte {error.start + 1} is not UTF-8") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a repeated name is refused, since either answer would be arbitrary."""
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidNameError(name, "found twice in an object, expected once")
            seen.add(name)
    return content


def _rounded(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        found = f"the number {literal[:40]}"
        raise LiteralError(literal, found, "a number that a double can hold")
    return number


def _exact(literal: str) -> float | Inexact:
    number = float(literal)
    try:
        exact = Decimal(repr(number)) == Decimal(literal)
    except InvalidOperation:  # an exponent beyond any use
        exact = False
    return number if exact else Inexact(literal)


def _integer(literal: str) -> int:
    return int(literal) if len(literal) <= _INTEGER_CHARACTERS_MAX else int(_rounded(literal))


def _exact_integer(literal: str) -> int | Inexact:
    return Inexact(literal) if len(literal) > _INTEGER_CHARACTERS_MAX else int(literal)


def strict(
    parse_int: Callable[[str], Any],
    parse_float: Callable[[str], Any] = _rounded,
    no_number: str = "JSON, which has no such number",
) -> json.JSONDecoder:
    """A decoder of JSON that raises JSONDecodeError, LiteralError and InvalidNameError."""

    def constant(name: str) -> NoReturn:
        raise LiteralError(name, name, no_number)

    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_float=parse_float,
        parse_int=parse_int,
        parse_constant=constant,
    )


_ROUNDING: Final = strict(_integer)
_EXACT: Final = strict(_exact_integer, _exact)
