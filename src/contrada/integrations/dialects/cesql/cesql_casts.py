r"""Comparisons of an attribute with constants, casts included, as sets of values.

A comparison is true for some values and false for some; for all others, and if the attribute is
absent, it is an error. So `x = 5` is true for 5, "5" and "+005", false for 6, "6", and TRUE, which
casts to 1, and an error for "five".

LIKE needs the text of a number or a time. The numbers with a text like `12%` are no set of a few
intervals. Then both sets contain all numbers, and are not exact. In a pattern `%` matches any text,
`_` one character, `\%` and `\_` themselves, and everything else, including a backslash, itself. It
becomes one of the operator `wildcard`, so an expression and its filters use the same set.

Source: CloudEvents, CESQL 1.0.0 §3.4 and §3.7.
"""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import product
from typing import Final, NamedTuple

from contrada.errors import InvalidValueError
from contrada.integrations.dialects.cesql import cesql_values as cesql
from contrada.integrations.dialects.cesql.expression_tree import CesqlValue
from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ABSENT, EVERYTHING, NOTHING, PRESENT, ValueSet, union
from contrada.model.domains import line
from contrada.model.domains.values import (
    BOOL,
    NUMBER,
    TEXT,
    TIME,
    Value,
    key_of,
    time_us_of,
    value_of,
)

BOOLEANS: Final = ValueSet(line.domain(BOOL))
NUMBERS: Final = ValueSet(line.domain(NUMBER)) - sets.eq(math.nan)
TIMES: Final = ValueSet(line.domain(TIME))

CESQL_INTEGERS_CACHED_MAX: Final = 1_024
"""Ranges of integers cached as sets of texts. Beyond it: the least recently used is built again."""

CESQL_PATTERNS_CACHED_MAX: Final = 1_024
"""Patterns of LIKE cached as sets. Beyond it: the least recently used is built again."""


class TruthSets(NamedTuple):
    """The values for which a condition is true, and false; all others are errors.

    `defined` holds both. If not `exact`, the sets may hold too much.
    """

    true: ValueSet
    false: ValueSet
    defined: ValueSet
    exact: bool = True


NEVER: Final = TruthSets(NOTHING, NOTHING, NOTHING)
EXISTS: Final = TruthSets(PRESENT, ABSENT, EVERYTHING)


def _spell(word: str) -> list[str]:
    """Returns the word in every mixture of small and capital letters."""
    return ["".join(letters) for letters in product(*zip(word, word.upper(), strict=True))]


_TRUE: Final = sets.in_(True, *_spell("true")) | (NUMBERS - sets.eq(0))
_FALSE: Final = sets.in_(False, 0, *_spell("false"))
BOOLEAN: Final = TruthSets(_TRUE, _FALSE, _TRUE | _FALSE)
"""The attribute itself, cast to a Boolean."""


def compare(operator: str, constant: int) -> TruthSets:
    """Returns the truth of an attribute, cast to an Integer, compared with a constant."""
    low = {"=": constant, ">": constant + 1, ">=": constant}.get(operator, cesql.INTEGER_FIRST)
    high = {"=": constant, "<": constant - 1, "<=": constant}.get(operator, cesql.INTEGER_LAST)
    numbers = NUMBERS & sets.OPERATORS[operator](constant)
    booleans = (sets.eq(b) for b in (True, False) if low <= b <= high)
    true = union((numbers, *booleans, integer_texts(low, high)))
    return TruthSets(true, INTEGER - true, INTEGER)


def equal_to_text(text: str) -> TruthSets:
    """Returns the truth of an attribute, cast to a String, being equal to a text."""
    equal = _with_text(text)
    return TruthSets(equal, PRESENT - equal, PRESENT)


def one_of(elements: Sequence[CesqlValue | None]) -> TruthSets:
    """Returns the truth of an attribute being equal to one of some elements, each cast to its type.

    None is an error. Elements are evaluated in order, so an error counts only if no earlier element
    is equal.
    """
    true, false = NOTHING, NOTHING
    for kind, domain in _DOMAINS.items():
        values = _cast_all(kind, elements)
        equal = union(map(_with_text if kind is cesql.Type.STRING else sets.eq, values))
        true |= equal & domain
        if len(values) == len(elements):
            false |= domain - equal
    return TruthSets(true, false, true | false)


def like(pattern: str) -> TruthSets:
    """Returns the truth of an attribute, cast to a String, being like a pattern."""
    literal = literal_of(pattern)
    if literal is not None:
        return equal_to_text(literal)
    texts = texts_like(pattern)
    true = texts | union(sets.eq(value) for value in _ODD if is_like(_ODD[value], pattern))
    false = PRESENT - true
    exact = True
    for shape in _SHAPES:
        if shape.has_like(pattern, texts):
            every = shape.is_like(pattern, texts)
            true, false = true | shape.domain, false - shape.domain if every else false
            exact = exact and every
    return TruthSets(true, false, PRESENT, exact)


_NUMBER: Final = r"-?([0-9]+(\.[0-9]+)?(e[+-][0-9]+)?|inf)"
_TIME: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?Z"


class _DomainTexts(NamedTuple):
    """The texts of a domain's values. A look at a few examples decides most cases."""

    domain: ValueSet
    texts: ValueSet
    characters: frozenset[str]
    characters_max: float
    examples: tuple[str, ...]

    def has_like(self, pattern: str, like: ValueSet) -> bool:
        """Whether one of these texts matches the pattern, given with its set `like`."""
        shortest = shortest_like(pattern)
        needed = {token[-1] for token in _TOKEN.findall(pattern) if token not in ("%", "_")}
        if not needed <= self.characters or len(shortest) > self.characters_max:
            return False
        return self.texts.contains(shortest) or self.texts.meets(like)

    def is_like(self, pattern: str, like: ValueSet) -> bool:
        """Whether all of these texts match it."""
        are_examples = all(is_like(each, pattern) for each in self.examples)
        return are_examples and self.texts.issubset(like)


_TIMES_SHOWN: Final = ("2000-01-01T00:00:00Z", "1999-12-31T23:59:59.999999Z")
_NUMBER_TEXTS: Final = sets.matches(rf"\A({_NUMBER})\z")
_TIME_TEXTS: Final = sets.matches(rf"\A({_TIME})\z")
_IN_NUMBERS: Final = frozenset("0123456789+-.einf")
_IN_TIMES: Final = frozenset("0123456789-:.TZ")
_SHAPES: Final = (
    _DomainTexts(NUMBERS, _NUMBER_TEXTS, _IN_NUMBERS, math.inf, ("0", "-inf")),
    _DomainTexts(TIMES, _TIME_TEXTS, _IN_TIMES, len(_TIMES_SHOWN[1]), _TIMES_SHOWN),
)

NUMBER_CHARACTERS_MAX: Final = 40
"""Characters of a number's text. Beyond it: no number has it."""

_ODD: Final[dict[Value, str]] = {True: "true", False: "false", None: "null", math.nan: "nan"}
"""The few values outside of these domains, and their texts."""

_DOMAINS: Final = {
    cesql.Type.BOOLEAN: BOOLEANS,
    cesql.Type.INTEGER: NUMBERS,
    cesql.Type.STRING: PRESENT - BOOLEANS - NUMBERS,
}
"""The values of each type."""


def _cast_all(kind: cesql.Type, elements: Sequence[CesqlValue | None]) -> list[CesqlValue]:
    """Returns the elements cast to a type, up to the first error."""
    values: list[CesqlValue] = []
    for element in elements:
        try:
            if element is None:
                break
            values.append(cesql.cast_to(kind, element))
        except cesql.Interruption:
            break
    return values


def _with_text(value: CesqlValue) -> ValueSet:
    """Returns the values with this text as a String: itself, a Boolean, a number, a time."""
    text = cesql.as_string(value)
    found: list[Value] = [text, *(odd for odd in _ODD if _ODD[odd] == text)]
    if len(text) <= NUMBER_CHARACTERS_MAX and re.fullmatch(_NUMBER, text):
        with suppress(InvalidValueError):
            number = value_of(key_of(float(text) if set(text) & set(".ein") else int(text)))
            if isinstance(number, int | float) and cesql.as_string(number) == text:
                found.append(number)
    if re.fullmatch(_TIME, text):
        with suppress(ValueError):
            time = datetime.fromisoformat(text)
            if cesql.time_text(time_us_of(time)) == text:
                found.append(time)
    return sets.in_(*found)


@lru_cache(maxsize=CESQL_INTEGERS_CACHED_MAX)
def integer_texts(low: int, high: int) -> ValueSet:
    """Returns the texts that cast to an Integer from `low` to `high`, both within 32 bits."""
    shapes = []
    if low < 0:
        shapes.append(f"-0*({_digits(max(1, -high), -low)})")
    if low <= 0 <= high:
        shapes.append("[+-]?0+")
    if high > 0:
        shapes.append(rf"\+?0*({_digits(max(1, low), high)})")
    return sets.matches(rf"\A({'|'.join(shapes)})\z") if low <= high else NOTHING


def _digits(low: int, high: int) -> str:
    """Returns a regular expression of the numbers in a range, without leading zeros."""
    sizes = range(len(str(low)), len(str(high)) + 1)
    return "|".join(
        _digits_of_length(str(max(low, 10 ** (size - 1))), str(min(high, 10**size - 1)))
        for size in sizes
    )


def _digits_of_length(low: str, high: str) -> str:
    """As `_digits`, for two numbers with the same number of digits."""
    if low == high:
        return low
    first, last, rest = int(low[0]), int(high[0]), len(low) - 1
    if first == last:
        return f"{first}({_digits_of_length(low[1:], high[1:])})"
    shapes = []
    if low[1:].strip("0"):
        shapes.append(f"{first}({_digits_of_length(low[1:], '9' * rest)})")
        first += 1
    if high[1:].strip("9"):
        shapes.append(f"{last}({_digits_of_length('0' * rest, high[1:])})")
        last -= 1
    if first <= last:
        shapes.append(f"[{first}-{last}][0-9]{{{rest}}}")
    return "|".join(shapes)


INTEGER: Final = union((BOOLEANS, NUMBERS, integer_texts(cesql.INTEGER_FIRST, cesql.INTEGER_LAST)))
"""The values that cast to an Integer."""

IS_INTEGER: Final = TruthSets(INTEGER, PRESENT - INTEGER, PRESENT)
IS_BOOLEAN: Final = TruthSets(BOOLEAN.defined, PRESENT - BOOLEAN.defined, PRESENT)
"""Whether the attribute casts to an Integer, and to a Boolean."""


# --- patterns of LIKE ---------------------------------------------------------------------------

_TOKEN: Final = re.compile(r"\\[%_]|.", re.DOTALL)
_WILD: Final = {"%": "*", "_": "?", "\\%": "%", "\\_": "_", "*": r"\*", "?": r"\?", "\\": r"\\"}


@lru_cache(maxsize=CESQL_PATTERNS_CACHED_MAX)
def texts_like(pattern: str) -> ValueSet:
    """Returns the texts that match a pattern. Raises InvalidFilterError if it is too long."""
    tokens = _TOKEN.findall(pattern)
    return sets.wildcard("".join(_WILD.get(token, token) for token in tokens))


def is_like(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern. Cost: linear in the text, and in the pattern once."""
    if len(text) < len(shortest_like(pattern)):
        return False
    return texts_like(pattern).holds((TEXT, text.encode(errors="surrogateescape")))


@lru_cache(maxsize=CESQL_PATTERNS_CACHED_MAX)
def shortest_like(pattern: str) -> str:
    """Returns one of the shortest matching texts, with a 0 for each `_`."""
    parts = {"%": "", "_": "0"}
    return "".join(parts.get(token, token[-1]) for token in _TOKEN.findall(pattern))


def literal_of(pattern: str) -> str | None:
    """Returns the only matching text of a pattern without `%` and `_`, else None."""
    tokens = _TOKEN.findall(pattern)
    if "%" in tokens or "_" in tokens:
        return None
    return "".join(token[-1] for token in tokens)
