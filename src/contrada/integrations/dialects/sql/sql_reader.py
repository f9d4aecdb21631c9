"""SQL conditions to filter sets.

The syntax: `= <> != < <= > >=`, `BETWEEN`, `IN`, `LIKE` and `ILIKE` with `ESCAPE`, `IS [NOT] NULL`,
`TRUE`, `FALSE`, `UNKNOWN` and `DISTINCT FROM`, `AND`, `OR`, `NOT`, and columns of truth values,
between columns and constants. The filters match if the condition is true, and not if it is unknown
(see `sql_truth`). `LIKE` distinguishes case and has no escape unless one is named; `ILIKE` folds
like `nocase`. Text is ordered by code points.

A column is the attribute of its name, as written; a name with dots is one name, and a name in
double quotes may be any. A time without a zone is UTC.

This is no general SQL parser: other syntax must be refused, with its place. So are columns compared
with each other, arithmetic, functions, subqueries, parameters, casts and collations.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final, cast

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from contrada.errors import (
    InvalidFilterError,
    InvalidNameError,
    InvalidValueError,
    LimitError,
    RefusedRuleError,
)
from contrada.integrations.dialects import dialect_grammar, kleene
from contrada.integrations.dialects.json_text import exact_number
from contrada.integrations.dialects.kleene import Truth
from contrada.integrations.dialects.sql import sql_truth
from contrada.integrations.dialects.sql.sql_truth import ColumnReference, Operand, SqlLiteral
from contrada.model.algebra import sets
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.domains.values import check_name, key_of
from contrada.model.rule import RefusedRule, Rule, read_or_refuse, require_text

DIALECT: Final = "sql"

TOKENS: Final = re.compile(
    r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|[();]""", re.DOTALL
)
"""Whole strings, quoted names and comments; and the characters that structure the text around
them."""

CONDITION_CHARACTERS_MAX: Final = 500_000
"""Characters of a SQL condition. Beyond it: the rule is refused."""

CONDITION_NESTING_MAX: Final = 50
"""Levels of parentheses in a SQL condition. Beyond it: the rule is refused."""

NOT_A_CONDITION: Final = "not a condition"
TWO_COLUMNS: Final = "a comparison of two columns"
NO_VALUE: Final = "a condition where a value must stand"
NO_TRUTH: Final = "a value where a condition must stand"
NUMBER: Final = "a number that neither 64 bits nor a double hold as it is written"
TIME: Final = "a time that cannot be read"
BYTES: Final = "bytes that are not hexadecimal"
PATTERN: Final = "a pattern that is no constant text"
LARGE_PATTERN: Final = "a pattern that is too large"
ESCAPE: Final = "an escape that is not one character, or stands before another than it may"
NAME: Final = "a column that no attribute can be called"
TEXT: Final = "a string that is no text"

refusal: Final = partial(RefusedRuleError, DIALECT)
"""The error that refuses a condition."""


def filters(text: str, line: int = 1) -> FilterSet:
    """Returns the filters that match if a condition, with or without WHERE, is true.

    `line` is the number of the text's first line, for the places of refusals. Cost: linear, plus
    the filters (see `model.algebra.filter.filter_set`). Raises RefusedRuleError with one of the
    reasons above, and LimitError.
    """
    if len(require_text(DIALECT, text)) > CONDITION_CHARACTERS_MAX:
        raise LimitError("CONDITION_CHARACTERS_MAX", CONDITION_CHARACTERS_MAX, len(text))
    tokens = (match[0] for match in TOKENS.finditer(text))
    dialect_grammar.check_nesting(tokens, "CONDITION_NESTING_MAX", CONDITION_NESTING_MAX)
    try:
        read: Truth = dialect_grammar.parse_text(_reader(), text)
    except UnexpectedInput as error:
        raise _unreadable(text, line, dialect_grammar.end_of(text, error)) from None
    return filter_set(read.true.condition)


@cache
def _reader() -> Lark:
    return dialect_grammar.parser_of(
        __file__, "where.lark", _TruthReader(), maybe_placeholders=True
    )


@v_args(inline=True)
class _TruthReader(Transformer[Token, Any]):
    """Builds truths, bottom up, while lark parses."""

    def start(self, read: Any) -> Truth:
        return _truth(read)

    def any_of(self, *parts: Any) -> Truth:
        return kleene.disjunction(map(_truth, parts))

    def all_of(self, *parts: Any) -> Truth:
        return kleene.conjunction(map(_truth, parts))

    def inverse(self, read: Any) -> Truth:
        return _truth(read).inverse()

    def compared(self, first: Any, how: Token, second: Any) -> Truth:
        if how in ("<>", "!="):
            return _compare(first, "=", second).inverse()
        return _compare(first, how, second)

    def between(self, value: Any, low: Any, high: Any) -> Truth:
        return kleene.conjunction((_compare(value, ">=", low), _compare(value, "<=", high)))

    def not_between(self, *parts: Any) -> Truth:
        return self.between(*parts).inverse()

    def among(self, value: Any, *others: Any) -> Truth:
        if isinstance(value, Truth | ColumnReference) and all(
            isinstance(e, SqlLiteral) for e in others
        ):
            return sql_truth.among(_operand(value), others)
        return kleene.disjunction(_compare(value, "=", each) for each in others)

    def not_among(self, *parts: Any) -> Truth:
        return self.among(*parts).inverse()

    def like(self, value: Any, how: Token, pattern: Any, escape: Any) -> Truth:
        operand, shape = _operand(value), _operand(pattern)
        if shape == SqlLiteral(None) or escape == SqlLiteral(None):
            return sql_truth.UNKNOWN
        try:
            accepted = sets.wildcard(_shape(shape, escape), nocase=len(how) > len("like"))
        except InvalidFilterError as error:
            raise refusal(LARGE_PATTERN, shape[0], error.reason) from None
        return sql_truth.lies_in(operand, accepted, sets.text_not(accepted))

    def not_like(self, *parts: Any) -> Truth:
        return self.like(*parts).inverse()

    def state(self, read: Any, state: Token) -> Truth:
        word = state.lower()
        if word == "null" and not isinstance(read, Truth):
            return sql_truth.is_null(read)
        held = _truth(read)
        if word in ("null", "unknown"):
            return kleene.certain(held.defined).inverse()
        return kleene.certain(held.when(word == "true"))

    def not_state(self, *parts: Any) -> Truth:
        return self.state(*parts).inverse()

    def not_distinct(self, first: Any, second: Any) -> Truth:
        """Equal, or both NULL; never unknown."""
        a, b = _operand(first), _operand(second)
        for one, other in ((a, b), (b, a)):
            if one == SqlLiteral(None):
                return sql_truth.is_null(other)
        return kleene.certain(_compare(a, "=", b).true)

    def distinct(self, first: Any, second: Any) -> Truth:
        return self.not_distinct(first, second).inverse()

    def column(self, token: Token) -> ColumnReference:
        parts = _PART.findall(token)
        name = ".".join(plain or quoted.replace('""', '"') for plain, quoted in parts)
        try:
            return ColumnReference(check_name(name))
        except InvalidNameError:
            raise refusal(NAME, name) from None

    def number(self, token: Token) -> SqlLiteral:
        text = "".join(token.split())
        exact = exact_number(text)
        if exact is None or (text.lstrip("+-").isdecimal() and not isinstance(exact, int)):
            raise refusal(NUMBER, token.strip())
        return SqlLiteral(exact)

    def string(self, token: Token) -> SqlLiteral:
        return SqlLiteral(_string(token))

    def bytes(self, token: Token) -> SqlLiteral:
        try:
            return SqlLiteral(bytes.fromhex(token[2:-1]))
        except ValueError:
            raise refusal(BYTES, str(token)) from None

    def time(self, kind: Token, token: Token) -> SqlLiteral:
        text = _string(token).strip()
        try:
            # More of a second than microseconds would be cut off.
            if _FINER.search(text) or (kind.lower() == "date" and not _DATE.fullmatch(text)):
                raise refusal(TIME, str(token))
            time = datetime.fromisoformat(text)
            zoned = time.tzinfo is not None and "without" not in kind.lower()
            zoned_time = time if zoned else time.replace(tzinfo=UTC)
            key_of(zoned_time)
            return SqlLiteral(zoned_time)
        except (ValueError, OverflowError, InvalidValueError):
            raise refusal(TIME, str(token)) from None

    def word(self, token: Token) -> SqlLiteral:
        return SqlLiteral({"null": None, "true": True, "false": False}[token.lower()])


_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_FINER: Final = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]", re.ASCII)
_PART: Final = re.compile(r'([^\W\d][\w$]*)|"((?:[^"]|"")+)"')


def _string(token: Token) -> str:
    text = token[1:-1].replace("''", "'")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise refusal(TEXT, text) from None
    return text


def _truth(read: Any) -> Truth:
    """Returns the truth of an operand; a column, or a constant, must be a truth value."""
    if isinstance(read, Truth):
        return read
    if isinstance(read, SqlLiteral) and not isinstance(read.value, bool | None):
        raise refusal(NO_TRUTH, read.value)
    return sql_truth.lies_in(read, sets.eq(True), sets.eq(False))


def _operand(read: Any) -> Operand:
    if isinstance(read, Truth):
        raise refusal(NO_VALUE)
    return cast(Operand, read)


def _compare(first: Any, how: str, second: Any) -> Truth:
    a, b = _operand(first), _operand(second)
    found = sql_truth.compare(a, how, b)
    if found is None:
        raise refusal(
            TWO_COLUMNS, f"{cast(ColumnReference, a).name} {how} {cast(ColumnReference, b).name}"
        )
    return found


def _shape(pattern: Operand, escape: Any) -> str:
    """Returns a LIKE pattern as a wildcard."""
    character = "" if escape is None else getattr(escape, "value", None)
    if not isinstance(pattern, SqlLiteral) or not isinstance(pattern.value, str):
        raise refusal(PATTERN, pattern[0])
    if not isinstance(character, str) or (escape is not None and len(character) != 1):
        raise refusal(ESCAPE, character)
    found: list[str] = []
    rest = iter(pattern.value)
    for each in rest:
        if each == character:
            each = next(rest, "")
            if each not in ("%", "_", character):
                raise refusal(ESCAPE, pattern.value)
            found.append(_PLAIN.get(each, each))
        else:
            found.append(_WILD.get(each) or _PLAIN.get(each, each))
    return "".join(found)


_WILD: Final = {"%": "*", "_": "?"}
_PLAIN: Final = {"*": r"\*", "?": r"\?", "\\": r"\\"}


# --- refusals -----------------------------------------------------------------------------------

_SUBQUERY: Final = "a subquery"
_BEFORE: Final = re.compile(
    r"\(\s*(?:select|with|values)\b|\b(?:exists|any|all)\s*\Z", re.IGNORECASE
)
_REASONS: Final = tuple(
    (re.compile(rf"\s*(?:{sign})", re.IGNORECASE), reason)
    for sign, reason in (
        (r"[-+*/%^&|#~]", "arithmetic, or an operator that is not read"),
        (r"\?|:\w|\$\d|@", "a parameter"),
        (r"::|cast\b|collate\b", "a cast or a collation"),
        (r"select\b", _SUBQUERY),
        (r"(?:case|when|array|row|interval)\b", "an expression that is not read"),
        (
            r"(?:regexp|rlike|glob|match|similar|overlaps|is|symmetric)\b",
            "an operator that is not read",
        ),
        (r"[~!]", "an operator that is not read"),
        (r"\(", "a function, or a row of values"),
    )
)


def _unreadable(text: str, line: int, at: int) -> RefusedRuleError:
    """Returns the refusal for a syntax error at a character."""
    place = f"line {text.count(chr(10), 0, at) + line}"
    rest = text[at:]
    subquery = _BEFORE.search(TOKENS.sub(_blank, text[:at]))
    if subquery:
        return refusal(_SUBQUERY, text[subquery.start() :], place)
    reason = dialect_grammar.reason_for(rest, _REASONS, NOT_A_CONDITION)
    return refusal(reason, rest or text, place)


def _blank(token: re.Match[str]) -> str:
    """Returns blanks for a string, a quoted name or a comment; structure stays."""
    return token[0] if token[0] in "();" else " " * len(token[0])


NO_CONDITIONS: Final = "no condition in the file"


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the conditions of a file, which end with a semicolon, or with the file.

    A comment before a condition can give its name, `-- name: cheap`; the default is its line.
    """
    found, line, at = 0, 1, 0
    for begin, end in _statements(text):
        line += text.count("\n", at, begin)
        name = _name(text[at:begin].removeprefix(";")) or f"line {line}"
        if begin < end:
            found += 1
            yield read_or_refuse(name, partial(read, text[begin:end], name, line))
        line += text.count("\n", begin, end)
        at = end
    if not found:
        yield RefusedRule("", RefusedRuleError(DIALECT, NO_CONDITIONS))


def read(condition: str, name: str = "", line: int = 1) -> Rule:
    """Returns the rule of a condition that begins on a line. Places of refusals are lines of the
    file.

    Cost and errors: as `filters`.
    """
    try:
        return Rule(name, filters(condition, line))
    except RefusedRuleError as error:
        place = error.place or f"line {line}"
        raise RefusedRuleError(DIALECT, error.reason, error.found, place) from None


_COMMENTS: Final = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*+", re.DOTALL)


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Yields the begin of each condition, behind comments, and its end; it may be empty."""
    at = 0
    ends = [match.start() for match in TOKENS.finditer(text) if match[0] == ";"]
    for end in (*ends, len(text)):
        comments = _COMMENTS.match(text, at, end)
        assert comments is not None, "it matches the empty text"
        yield comments.end(), end
        at = end + 1


def _name(comments: str) -> str:
    """Returns the name in the last comment of the form `-- name: …`."""
    bodies = [each.strip()[2:].strip() for each in comments.split("\n") if "--" in each]
    names = [each[len("name:") :].strip() for each in bodies if each.startswith("name:")]
    return names[-1] if names else ""
