"""Strict JSON for dialects: ambiguous input is refused.

Repeated names in an object, `NaN`, decimals outside the doubles and any other invalid JSON are
refused. Integers are exact. A decimal becomes the nearest double. With `exact`, a decimal that
differs from its double becomes Inexact.
"""

import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from contrada.errors import EncodingError, InvalidNameError, LimitError, RefusedRuleError
from contrada.model.domains.values import INT_MAX, INT_MIN

JSON_CHARACTERS_MAX: Final = 16_000_000
"""Characters, or bytes, of a JSON text of a dialect. Beyond it: the rule or event is refused."""

JSON_DEPTH_MAX: Final = 100
"""Levels of objects and arrays in such a text. Beyond it: the rule or event is refused."""

NOT_JSON: Final = "not JSON"
"""The reason that refuses a rule."""

_LINE_END: Final = re.compile(r"\r\n?|\n")

_INTEGER_CHARACTERS_MAX: Final = 400
"""int() is slow on very long texts; every double is shorter when it is written as an integer."""


@dataclass(frozen=True, slots=True)
class Inexact:
    """A JSON number that no double represents."""

    literal: str

    def __repr__(self) -> str:
        return self.literal


class LiteralError(Exception):
    """A refused literal. The decoder does not know its position."""

    def __init__(self, literal: str, found: str, expected: str) -> None:
        super().__init__(f"found {found}, expected {expected}")
        self.literal = literal
        self.found = found
        self.expected = expected


def decode_json(text: str | bytes, *, exact: bool = False) -> Any:
    """Returns the value of a JSON text, made of dict, list, str, int, float, bool, None.

    With `exact`, numbers that no double represents are Inexact, except integers of usual length.
    Cost: linear. Raises EncodingError and LimitError; callers check the depth (`check_depth`).
    """
    if len(text) > JSON_CHARACTERS_MAX:
        raise LimitError("JSON_CHARACTERS_MAX", JSON_CHARACTERS_MAX, len(text))
    try:
        decoded = text if isinstance(text, str) else text.decode()
        return (_EXACT if exact else _ROUNDING).decode(decoded)
    except UnicodeDecodeError as error:
        raise EncodingError("JSON", f"byte {error.start + 1} is not UTF-8") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise EncodingError("JSON", f"{place}: {error.msg}") from None
    except (LiteralError, InvalidNameError) as error:
        raise EncodingError("JSON", str(error)) from None
    except RecursionError:
        raise LimitError("JSON_DEPTH_MAX", JSON_DEPTH_MAX) from None


def decode_rule(dialect: str, given: object, *, exact: bool = True) -> Any:
    """Returns the value of a rule: of JSON text as `decode_json`, or one that is decoded already.

    Raises RefusedRuleError and LimitError.
    """
    if not isinstance(given, str | bytes):
        return given
    try:
        return decode_json(given, exact=exact)
    except EncodingError as error:
        raise RefusedRuleError(dialect, NOT_JSON, error.reason) from None


def numbered_lines(text: str) -> dict[int, str]:
    """Returns the lines that are not blank, by number. Unlike those of `splitlines`, they end at
    LF, CR LF or CR alone: a text in JSON may hold all other ends, such as U+2028.
    """
    lines = enumerate(_LINE_END.split(text), start=1)
    return {number: line for number, line in lines if line.strip()}


def json_lines(text: str) -> dict[int, str]:
    """Returns the `numbered_lines` of JSON lines; an empty dict for any other text.

    Their first or last line is JSON by itself; in JSON that spans several lines neither is.
    """
    found = numbered_lines(text)
    lines = [*found.values()]
    for line in (lines[0], lines[-1]) if len(lines) > 1 else ():
        with suppress(EncodingError, LimitError):
            decode_json(line)
            return found
    return {}


def check_depth(depth: int) -> None:
    """Raises LimitError for content that is nested too deep."""
    if depth > JSON_DEPTH_MAX:
        raise LimitError("JSON_DEPTH_MAX", JSON_DEPTH_MAX, depth)


def is_exact(number: int | float) -> bool:
    """Whether the shortest decimal of the nearest double equals the number."""
    try:
        nearest = float(number)
    except OverflowError:
        return False
    return Decimal(repr(nearest)) == number if isinstance(number, int) else math.isfinite(number)


def exact_number(literal: str) -> int | float | None:
    """Returns the 64-bit integer, or the shortest double, that a literal denotes; else None."""
    try:
        exact = Decimal(literal)
    except InvalidOperation:  # an exponent beyond any use
        return None
    if INT_MIN <= exact <= INT_MAX and exact == exact.to_integral_value():
        return int(exact)
    number = float(literal)
    return number if math.isfinite(number) and Decimal(repr(number)) == exact else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object; a repeated name is refused, since either value would be arbitrary."""
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidNameError(name, "found twice in an object, expected once")
            seen.add(name)
    return content


def _to_double(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        found = f"the number {literal[:40]}"
        raise LiteralError(literal, found, "a number that a double can hold")
    return number


def _to_exact(literal: str) -> float | Inexact:
    number = float(literal)
    try:
        exact = Decimal(repr(number)) == Decimal(literal)
    except InvalidOperation:  # an exponent beyond any use
        exact = False
    return number if exact else Inexact(literal)


def _to_integer(literal: str) -> int:
    return int(literal) if len(literal) <= _INTEGER_CHARACTERS_MAX else int(_to_double(literal))


def _to_exact_integer(literal: str) -> int | Inexact:
    return int(literal) if len(literal) <= _INTEGER_CHARACTERS_MAX else Inexact(literal)


def strict(
    parse_int: Callable[[str], Any],
    parse_float: Callable[[str], Any] = _to_double,
    no_number: str = "JSON, which has no such number",
) -> json.JSONDecoder:
    """Returns a JSON decoder that raises JSONDecodeError, LiteralError and InvalidNameError."""

    def constant(name: str) -> NoReturn:
        raise LiteralError(name, name, no_number)

    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_float=parse_float,
        parse_int=parse_int,
        parse_constant=constant,
    )


_ROUNDING: Final = strict(_to_integer)
_EXACT: Final = strict(_to_exact_integer, _to_exact)
