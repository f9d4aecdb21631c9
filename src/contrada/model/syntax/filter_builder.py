"""The builder of values from lark's parse of a text, by the grammar `text.lark`.

Loaded with the first text that `plain_parser` cannot read, because lark and its tables load longer
than the rest of the model. Errors carry the place in the text.
"""

import math
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from functools import cache, partial
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, v_args
from lark.exceptions import UnexpectedEOF, UnexpectedToken
from lark.lark import PostLex

from contrada.errors import (
    InvalidFilterError,
    InvalidNameError,
    LimitError,
    ParseError,
    UnknownOperatorError,
)
from contrada.model.algebra import sets
from contrada.model.algebra.expression import And, Formula, Member, Or, negation
from contrada.model.algebra.filter import Filter, FilterSet, filter_set
from contrada.model.algebra.pattern import Pattern
from contrada.model.algebra.value_set import ABSENT, NOTHING, PRESENT, ValueSet, intersection, union
from contrada.model.domains.values import INT_MAX, INT_MIN, UNITS_US, Value, check_name, iso_time
from contrada.model.syntax.hints import NEGATED, TIME, hint_for, hint_for_operator

CONDITIONS_NESTED_MAX: Final = 100
"""Nesting of parentheses, `not` and `~` in a text. Beyond it: LimitError."""

_BINDING: Final = "\0"
"""The first character of names for attributes that are bound to variables; no attribute has it."""

_LONG_NAMES: Final = {"any": "any but", "none": "none of"}
"""Operators of two words, by the first."""

_NAMED: Final = {"any": PRESENT, "exists": PRESENT, "absent": ABSENT, "nothing": NOTHING}
_WORDS: Final[dict[str, Value]] = {
    "null": None,
    "true": True,
    "false": False,
    "inf": float("inf"),
    "nan": float("nan"),
}
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}

_EXACT: Final = {"EQUALITY", "NOT", "IN", "PRESENT", "NONE"}
"""The words of the operators whose values a text equals, or does not equal: `=` and lists."""

_EXPECTED: Final = {
    **dict.fromkeys(("NUMBER", "STRING", "BYTES", "TIME", "WORD"), "a value"),
    **dict.fromkeys(("EQUALITY", "ORDER", "TEXTUAL", "MATCHES", "OPERATOR", "IN"), "an operator"),
    **dict.fromkeys(("NOT", "BETWEEN", "PRESENT", "ABSENT", "NO_VALUE", "NONE"), "an operator"),
    "TILDE": "an operator",
    "NAME": "a name",
    "QUOTED": "a name in backticks",
    "REGEX": "a regular expression",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "COMMA": "`,`",
    "VBAR": "`|`",
    "AMPERSAND": "`&`",
    "UNIT": "a unit of time",
    "VARIABLE": "a variable",
    "__ANON_0": "`->`",
    "$END": "the end",
}
"""Terminals in our words; the others are words of the language."""


def build(text: str, start: str, *, as_tree: bool = False) -> Any:
    """Parses a text, beginning with a rule of the grammar. Raises ParseError."""
    try:
        return _lark(of_questions=start == "question", as_tree=as_tree).parse(text, start=start)
    except UnexpectedInput as error:
        raise _to_parse_error(text, error) from None


def exact_values(text: str) -> Iterator[Token]:
    """Yields the values behind `=`, `!=` and in lists, none behind `nocase`. Raises ParseError."""
    for compared in build(text, "statement", as_tree=True).find_data("compare"):
        *words, values = compared.children
        if _EXACT.issuperset(word.type for word in words):
            yield from values.children


@cache
def _lark(*, of_questions: bool, as_tree: bool) -> Lark:
    """Returns a parser; that of questions has a second file of grammar."""
    files = ("text.lark", "question.lark") if of_questions else ("text.lark",)
    grammar = b"\n".join(pkgutil.get_data(__name__, each) or b"" for each in files).decode()
    starts = ["question"] if of_questions else ["statement", "union", "advertisement"]
    builder = None if as_tree else _FilterBuilder()
    return Lark(grammar, start=starts, parser="lalr", transformer=builder, postlex=_Nesting())


class _Nesting(PostLex):
    """Stops the parser at a limit of nesting: it would keep all open parts first."""

    always_accept = ()

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        levels, prefixes = 0, 0
        opened: list[int] = []  # Of each parenthesis the levels that end with it.
        for token in stream:
            if token.type in ("LPAR", "NOT", "TILDE"):
                levels, prefixes = levels + 1, prefixes + 1
                if levels > CONDITIONS_NESTED_MAX:
                    raise LimitError("CONDITIONS_NESTED_MAX", CONDITIONS_NESTED_MAX)
                if token.type == "LPAR":
                    opened.append(prefixes)
                    prefixes = 0
            elif prefixes or token.type == "RPAR":
                levels, prefixes = levels - prefixes, 0
                if token.type == "RPAR" and opened:
                    levels -= opened.pop()
            yield token


def _group(members: Iterable[Member]) -> dict[str, list[ValueSet]]:
    grouped: dict[str, list[ValueSet]] = {}
    for member in members:
        grouped.setdefault(member.name, []).append(member.values)
    return grouped


def _filters(terms: tuple[Formula, ...]) -> tuple[Filter, ...]:
    """Returns the filters of which one matches if all terms hold; one for constraints alone."""
    members = [term for term in terms if isinstance(term, Member)]
    if len(members) < len(terms):
        return filter_set(And(terms)).filters
    sets = {name: intersection(parts) for name, parts in _group(members).items()}
    return (Filter.of_sets(sets),)


@v_args(inline=True)
class _FilterBuilder(Transformer[Token, Any]):
    """Makes values of the model, bottom up, while lark parses."""

    def filter_set(self, *conjunctions: tuple[Formula, ...]) -> FilterSet:
        return FilterSet(each for terms in conjunctions for each in _filters(terms))

    def pattern(self, every: Token | None, *rest: Any) -> Pattern:
        *parts, by, within_us = rest
        filters: list[Filter] = []
        for found in map(_filters, parts):
            if len(found) != 1:
                reason = "each part of a pattern is one filter"
                raise InvalidFilterError("->", (str(FilterSet(found)),), reason)
            filters += found
        return Pattern(filters, by=by or (), within_us=within_us, every=every is not None)

    def by(self, *names: Token) -> tuple[str, ...]:
        return tuple(map(_name, names))

    def within(self, number: Any, unit: Token) -> int:
        scale = UNITS_US.get(unit)
        if scale is None:
            raise _at(unit, f"unit {str(unit)!r}", "one of " + " ".join(UNITS_US))
        value = Decimal(number)
        # Compared first: a larger number could overflow in the product, or take long.
        span_us = value * scale if 0 <= value <= INT_MAX else None
        if span_us is None or span_us > INT_MAX or span_us != span_us.to_integral_value():
            raise _at(number, str(number), "a time in whole microseconds")
        return int(span_us)

    def conjunction(self, *terms: Formula) -> tuple[Formula, ...]:
        return terms

    def group(self, *conjunctions: tuple[Formula, ...]) -> Formula:
        return Or(tuple(map(And, conjunctions)))

    def negated(self, word: Token, term: Formula) -> Formula:
        if _has_variable(term):
            raise _at(word, "a variable in a `not`", "conditions without variables")
        return negation(term)

    def bound(self, name: Token, operator: Token, variable: Token) -> Formula:
        if operator != "=":
            raise _at(operator, f"`{operator} {variable}`", "`=` before a variable")
        return Member(binding(variable, _name(name)), PRESENT)

    def advertisement(self, *members: Member) -> dict[str, list[ValueSet]]:
        return _group(members)

    def constraint(self, name: Token, value_set: ValueSet) -> Member:
        return Member(_name(name), value_set)

    def union(self, *parts: ValueSet) -> ValueSet:
        return union(parts)

    def intersection(self, *parts: ValueSet) -> ValueSet:
        return intersection(parts)

    def complement(self, value_set: ValueSet) -> ValueSet:
        return ~value_set

    def values(self, *constants: Token) -> tuple[Token, ...]:
        return constants

    def compare(self, *parts: Any) -> ValueSet:
        *words, constants = parts
        by_type = {word.type: word for word in words}
        negation, nocase = by_type.pop("NOT", None), by_type.pop("NOCASE", None)
        (operator,) = by_type.values()
        if negation and operator in NEGATED:
            expected = f"an operator; write {NEGATED[operator]}"
            raise _at(operator, repr(f"not {operator}"), expected)
        name = _LONG_NAMES.get(operator) or sets.SYNONYMS.get(operator, str(operator))
        if negation and name == "in":
            name, negation = "not in", None
        build = sets.OPERATORS.get(name) or partial(sets.extension, name)
        found = _build_set(operator, build, *constants, nocase=nocase)
        return sets.text_not(found) if negation else found

    def named(self, word: Token) -> ValueSet:
        return _NAMED[word]


def binding(variable: str, name: str) -> str:
    """Returns the name for an attribute that is bound to a variable."""
    return f"{_BINDING}{variable}{_BINDING}{name}"


def bound_by(name: str) -> tuple[str, str] | None:
    """Returns the variable and the attribute of such a name; None for another name."""
    if not name.startswith(_BINDING):
        return None
    _, variable, attribute = name.split(_BINDING)
    return variable, attribute


def _has_variable(condition: Formula) -> bool:
    if isinstance(condition, Member):
        return bound_by(condition.name) is not None
    return any(map(_has_variable, condition.parts))


def _name(token: Token) -> str:
    text = token[1:-1].replace("``", "`") if token.type == "QUOTED" else str(token)
    try:
        return check_name(text)
    except InvalidNameError as error:
        raise _at(token, repr(text), f"a name ({error.reason})") from None


def _build_set(
    operator: Token, build: Callable[..., ValueSet], *constants: Token, nocase: Token | None = None
) -> ValueSet:
    values: list[Value] = []
    for constant in constants:
        if constant.type == "REGEX":  # `/…/i`: the expression and its flags
            expression, _, flags = constant[1:].rpartition("/")
            values += [expression, flags]
        else:
            values.append(_value(constant))
    try:
        return build(*values, nocase=True) if nocase else build(*values)
    except InvalidFilterError as error:
        place = f"line {operator.line}, column {operator.column}: {error.reason}"
        raise InvalidFilterError(error.operator, error.constants, place) from None
    except UnknownOperatorError as error:
        known = " ".join(dict.fromkeys((*sets.OPERATORS, *error.known)))
        known = _with_hint(known, hint_for_operator(operator))
        raise _at(operator, f"unknown operator {str(operator)!r}", known) from error


def _value(token: Token) -> Value:
    kind = token.type
    if kind == "NUMBER":
        return _number(token)
    if kind == "STRING":
        return _unescaped(token)
    if kind == "WORD":
        return _WORDS[token]
    if kind == "TIME":
        return _time(token)
    try:
        return bytes.fromhex(token[2:-1])
    except ValueError:
        raise _at(token, str(token), 'hexadecimal digits, as in x"0aff"') from None


def _number(token: Token) -> int | float:
    if not token.lstrip("+-").isdecimal():
        value = float(token)
        if math.isfinite(value) or token.endswith("inf"):
            return value
        raise _at(token, str(token)[:40], "a number within the doubles, or inf")
    number = int(token) if len(token) <= 20 else INT_MAX + 1
    if INT_MIN <= number <= INT_MAX:
        return number
    raise _at(token, str(token)[:40], "an integer of 64 bits")


def _time(token: Token) -> datetime:
    try:
        time = iso_time(token[1:])
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise _at(token, str(token), f"a time with {TIME}")
    return time


def _unescaped(token: Token) -> str:
    text = _ESCAPE.sub(lambda match: _character(token, match), token[1:-1])
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _at(token, "a lone surrogate", "text") from None
    return text


def _character(token: Token, match: re.Match[str]) -> str:
    short, long, letter = match.groups()
    if letter is None:
        code = int(short or long, 16)
        if code <= 0x10FFFF:
            return chr(code)
    elif letter in _ESCAPED:
        return _ESCAPED[letter]
    expected = r"\n \r \t \\ \" \' \uXXXX or \UXXXXXXXX"
    raise _at(token, f"the escape {match[0]}", expected)


def _at(token: Token, found: str, expected: str) -> ParseError:
    return ParseError(token.line or 1, token.column or 1, found, expected)


def _to_parse_error(text: str, error: UnexpectedInput) -> ParseError:
    if isinstance(error, UnexpectedToken | UnexpectedEOF):
        wanted = error.accepts if isinstance(error, UnexpectedToken) else set(error.expected)
        wanted = wanted or set(error.expected)
        token = getattr(error, "token", None)
        at_end = token is None or token.type == "$END"
        found = "the end of the text" if at_end else repr(str(token))
        position = len(text) if token is None or at_end else token.start_pos
        line, column = error.line, error.column
        if at_end:
            line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    else:
        assert isinstance(error, UnexpectedCharacters)
        wanted = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
        line, column, position = error.line, error.column, error.pos_in_stream
        rest = text[error.pos_in_stream :]
        found = f"unterminated text: {rest[:30]}" if rest[0] in "\"'`" else repr(rest[0])
    # lark drops those that begin with `_`.
    wanted = {name if name in _EXPECTED else name.removeprefix("_") for name in wanted}
    known = {**_EXPECTED, "NOT": "`not`"} if "NAME" in wanted else _EXPECTED
    words = [*dict.fromkeys(known.get(name, f"`{name.lower()}`") for name in sorted(wanted))]
    *most, last = words or ["something else"]
    expected = f"{', '.join(most)} or {last}" if most else last
    hint = hint_for(text, position, wanted)
    return ParseError(line, column, found, _with_hint(expected, hint))


def _with_hint(expected: str, hint: str) -> str:
    return f"{expected}; {hint}" if hint else expected
