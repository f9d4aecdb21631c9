"""SQL conditions to filter sets.

The syntax: `= <> != < <= > >=`, `BETWEEN`, `IN`, `LIKE` and `ILIKE` with `ESCAPE`, `IS [NOT] NULL`,
`TRUE`, `FALSE`, `UNKNOWN` and `DISTINCT FROM`, `AND`, `OR`, `NOT`, and columns of truth values,
between columns and constants. A name with dots is one name, and a name in double quotes may be any.
A time without a zone is UTC. docs/dialects.md describes the meaning: NULL, order, case and escapes.

This is no general SQL parser: other syntax must be refused, with its place. So are columns compared
with each other, arithmetic, functions, subqueries, parameters, casts and collations.

Source: ISO/IEC 9075-2, 6.39 (boolean value expression), 8.2 (comparison predicate).
"""

import math
import re
from collections.abc import Iterator
from datetime import UTC
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

from lark import Lark, Token, Transformer, UnexpectedInput, v_args

from contrada import errors
from contrada.errors import InvalidFilterError, InvalidNameError, LimitError, RefusedRuleError
from contrada.integrations.dialects import dialect_grammar, kleene
from contrada.integrations.dialects.json_text import exact_number
from contrada.integrations.dialects.kleene import Truth
from contrada.model.algebra import sets
from contrada.model.algebra.expression import MIRRORED
from contrada.model.algebra.filter import FilterSet, filter_set
from contrada.model.algebra.value_set import ABSENT, NOTHING, ValueSet
from contrada.model.domains import line, values
from contrada.model.domains.values import Value, check_name, iso_time, key_of
from contrada.model.rule import RefusedRule, Rule, read_or_refuse, require_text

DIALECT: Final = "sql"

TOKENS: Final = re.compile(
    r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)|[();]""", re.DOTALL
)
"""Whole strings, quoted names and comments, and the characters of the structure around them."""

CONDITION_CHARACTERS_MAX: Final = 500_000
"""Characters of a SQL condition. Beyond it: the rule is refused."""

CONDITION_NESTING_MAX: Final = 50
"""Levels of parentheses in a SQL condition. Beyond it: the rule is refused."""

NOT_A_CONDITION: Final = "not a condition"
TWO_COLUMNS: Final = "a comparison of two columns"
NO_VALUE: Final = "a condition in the place of a value"
NO_TRUTH: Final = "a value in the place of a condition"
NUMBER: Final = "a number that neither 64 bits nor a double hold as it is written"
TIME: Final = "a time that cannot be read"
BYTES: Final = "bytes that are not hexadecimal"
PATTERN: Final = "a pattern that is no constant text"
LARGE_PATTERN: Final = "a pattern that is too large"
ESCAPE: Final = "an escape that is not one character, or precedes another character than it may"
NAME: Final = "a column that no attribute can be called"
TEXT: Final = "a string that is no text"
SYNTAX: Final = "syntax of SQL that the dialect has not"

refusal: Final = partial(RefusedRuleError, DIALECT)
"""The error that refuses a condition."""


class ColumnReference(NamedTuple):
    """The attribute of this name."""

    name: str


class SqlLiteral(NamedTuple):
    """A value; None is NULL."""

    value: Value


Operand: TypeAlias = ColumnReference | SqlLiteral

_NULL: Final = SqlLiteral(None)
_UNKNOWN: Final = kleene.constant(None)
DOMAINS: Final = {
    tag: ValueSet(line.domain(tag)) - sets.eq(math.nan)
    for tag in (values.BOOL, values.NUMBER, values.TIME, values.TEXT)
}


def filters(text: str, first_line: int = 1) -> FilterSet:
    """Returns the filters that match if a condition, with or without WHERE, is true.

    `first_line` is its number in a file, for places. Cost: linear, plus the filters. Raises
    RefusedRuleError with one of the reasons above, and LimitError.
    """
    return parse_filters(text, first_line, TruthReader)


def parse_filters(text: str, first_line: int, reader: type["TruthReader"]) -> FilterSet:
    """Returns the filters of a condition, built by a reader; see `filters`."""
    if len(require_text(DIALECT, text)) > CONDITION_CHARACTERS_MAX:
        raise LimitError("CONDITION_CHARACTERS_MAX", CONDITION_CHARACTERS_MAX, len(text))
    tokens = (match[0] for match in TOKENS.finditer(text))
    dialect_grammar.check_nesting(tokens, "CONDITION_NESTING_MAX", CONDITION_NESTING_MAX)
    try:
        read = dialect_grammar.parse_text(_parser(reader), text)
    except UnexpectedInput as error:
        raise _unreadable(text, first_line, dialect_grammar.end_of(text, error)) from None
    return filter_set(_truth(read).true.condition)


def parse_as(dialect: str, text: str, first_line: int, reader: type["TruthReader"]) -> FilterSet:
    """Returns the filters of a condition of a dialect, in whose name it is refused. Only SQL itself
    has comments: elsewhere `5--3` is arithmetic.
    """
    try:
        found = parse_filters(text, first_line, reader)
        comments = (m[0] for m in TOKENS.finditer(text) if m[0].startswith(("--", "/*")))
        if dialect != DIALECT and (comment := next(comments, None)) is not None:
            raise refusal(SYNTAX, comment)
        return found
    except RefusedRuleError as error:
        place = error.place or f"line {first_line}"
        raise RefusedRuleError(dialect, error.reason, error.found, place) from None


@cache
def _parser(reader: type["TruthReader"]) -> Lark:
    return dialect_grammar.parser_of(__file__, "where.lark", reader(), maybe_placeholders=True)


@v_args(inline=True)
class TruthReader(Transformer[Token, Any]):
    """Builds truths, bottom up, while lark parses. Dialects with other tests override them."""

    nulls = ABSENT | sets.eq(None) | sets.eq(math.nan)
    """The values, and the absence, that are NULL."""

    def others(self, accepted: ValueSet, domain: ValueSet) -> ValueSet:
        """Returns the values for which a test is false and not unknown."""
        return domain - accepted

    def any_of(self, *parts: Any) -> Truth:
        """Returns the truth of OR."""
        return kleene.disjunction(map(_truth, parts))

    def all_of(self, *parts: Any) -> Truth:
        """Returns the truth of AND."""
        return kleene.conjunction(map(_truth, parts))

    def inverse(self, read: Any) -> Truth:
        """Returns the truth of NOT."""
        return _truth(read).inverse()

    def compared(self, first: Any, how: Token, second: Any) -> Truth:
        """Returns the truth of a comparison by any operator."""
        if how in ("<>", "!="):
            return self.compare(first, "=", second).inverse()
        return self.compare(first, how, second)

    def between(self, value: Any, low: Any, high: Any) -> Truth:
        """Returns the truth of BETWEEN."""
        return kleene.conjunction((self.compare(value, ">=", low), self.compare(value, "<=", high)))

    def not_between(self, value: Any, low: Any, high: Any) -> Truth:
        """Returns the truth of NOT BETWEEN."""
        return self.between(value, low, high).inverse()

    def among(self, value: Any, *others: Any) -> Truth:
        """Returns the truth of IN."""
        if isinstance(value, Truth | ColumnReference) and all(
            isinstance(each, SqlLiteral) for each in others
        ):
            return self._among(operand_of(value), [each.value for each in others])
        return kleene.disjunction(self.compare(value, "=", each) for each in others)

    def like(self, value: Any, how: Token, pattern: Any, escape: Any) -> Truth:
        """Returns the truth of LIKE or ILIKE."""
        operand, shape = operand_of(value), operand_of(pattern)
        if _NULL in (shape, escape):
            return _UNKNOWN
        try:
            accepted = sets.wildcard(_shape(shape, escape), nocase=len(how) > len("like"))
        except InvalidFilterError as error:
            raise refusal(LARGE_PATTERN, shape[0], error.reason) from None
        return lies_in(operand, accepted, self.others(accepted, sets.ALL_TEXT))

    def state(self, read: Any, state: Token) -> Truth:
        """Returns the truth of IS NULL, TRUE, FALSE or UNKNOWN."""
        word = state.lower()
        if word == "null" and not isinstance(read, Truth):
            return lies_in(read, self.nulls, ~self.nulls)
        held = _truth(read)
        if word in ("null", "unknown"):
            return kleene.certain(held.defined).inverse()
        return kleene.certain(held.when(word == "true"))

    def not_distinct(self, first: Any, second: Any) -> Truth:
        """Equal, or both NULL; never unknown."""
        a, b = operand_of(first), operand_of(second)
        if _NULL in (a, b):
            return lies_in(b if a == _NULL else a, self.nulls, ~self.nulls)
        return kleene.certain(self.compare(a, "=", b).true)

    def exists(self, column: ColumnReference) -> Truth:
        """Refuses EXISTS; dialects have it for a column."""
        raise refusal(_SUBQUERY, column.name)

    def compare(self, first: Any, how: str, second: Any) -> Truth:
        """Compares two operands by `=`, `<`, `<=`, `>` or `>=`."""
        a, b = operand_of(first), operand_of(second)
        if isinstance(b, ColumnReference):
            if isinstance(a, ColumnReference):
                raise refusal(TWO_COLUMNS, f"{a.name} {how} {b.name}")
            return self.compare(b, MIRRORED[how], a)
        if b.value is None:
            return _UNKNOWN
        accepted = sets.OPERATORS[how](b.value)
        return lies_in(a, accepted, self.others(accepted, DOMAINS[key_of(b.value)[0]]))

    def _among(self, operand: Operand, constants: list[Value]) -> Truth:
        """`IN`: false only if the operand differs from every constant, and none is NULL."""
        known = [value for value in constants if value is not None]
        accepted = sets.in_(*known) if known else NOTHING
        domains = {key_of(value)[0] for value in known}
        if len(known) < len(constants) or len(domains) > 1:
            return lies_in(operand, accepted, NOTHING)
        return lies_in(operand, accepted, self.others(accepted, DOMAINS[domains.pop()]))

    def column(self, token: Token) -> ColumnReference:
        """Returns the column of a name."""
        parts = _PART.findall(token)
        name = ".".join(plain or quoted.replace('""', '"') for plain, quoted in parts)
        try:
            return ColumnReference(check_name(name))
        except InvalidNameError:
            raise refusal(NAME, name) from None

    def number(self, token: Token) -> SqlLiteral:
        """Returns an exact number."""
        text = "".join(token.split())
        exact = exact_number(text)
        if exact is None or (text.lstrip("+-").isdecimal() and not isinstance(exact, int)):
            raise refusal(NUMBER, token.strip())
        return SqlLiteral(exact)

    def string(self, token: Token) -> SqlLiteral:
        """Returns a text."""
        return SqlLiteral(_string(token))

    def bytes(self, token: Token) -> SqlLiteral:
        """Returns bytes in hexadecimal."""
        try:
            return SqlLiteral(bytes.fromhex(token[2:-1]))
        except ValueError:
            raise refusal(BYTES, str(token)) from None

    def time(self, kind: Token, token: Token) -> SqlLiteral:
        """Returns a time."""
        text = _string(token).strip()
        try:
            # More of a second than microseconds would be cut off.
            if _FINER.search(text) or (kind.lower() == "date" and not _DATE.fullmatch(text)):
                raise refusal(TIME, str(token))
            time = iso_time(text)
            zoned = time.tzinfo is not None and "without" not in kind.lower()
            zoned_time = time if zoned else time.replace(tzinfo=UTC)
            key_of(zoned_time)
            return SqlLiteral(zoned_time)
        except (ValueError, OverflowError, errors.InvalidValueError):
            raise refusal(TIME, str(token)) from None

    def word(self, token: Token) -> SqlLiteral:
        """Returns NULL, TRUE or FALSE."""
        return SqlLiteral({"null": None, "true": True, "false": False}[token.lower()])


@v_args(inline=True)
class MessageFilterReader(TruthReader):
    """Builds the truth of filters of messages, which have fewer tests and constants than SQL."""

    def like(self, value: Any, how: Token, pattern: Any, escape: Any) -> Truth:
        if how.lower() != "like":
            raise refusal(SYNTAX, str(how))
        return super().like(value, how, pattern, escape)

    def state(self, read: Any, state: Token) -> Truth:
        if state.lower() != "null" or not isinstance(read, ColumnReference):
            raise refusal(SYNTAX, f"IS {state}")
        return super().state(read, state)

    def not_distinct(self, *found: Any) -> Truth:
        raise refusal(SYNTAX, "IS DISTINCT FROM")

    def bytes(self, token: Token) -> SqlLiteral:
        raise refusal(SYNTAX, str(token))

    def time(self, kind: Token, token: Token) -> SqlLiteral:
        raise refusal(SYNTAX, str(kind))


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
    return lies_in(read, sets.eq(True), sets.eq(False))


def operand_of(read: Any) -> Operand:
    """Returns a column or a constant. Raises RefusedRuleError for a condition."""
    if isinstance(read, Truth):
        raise refusal(NO_VALUE)
    return cast(Operand, read)


def lies_in(operand: Operand, true: ValueSet, false: ValueSet) -> Truth:
    """True if the operand's value is in the first set, false if it is in the second."""
    if isinstance(operand, ColumnReference):
        return Truth(*(kleene.member(operand.name, each) for each in (true, false, true | false)))
    is_known = (true | false).contains(operand.value)
    return kleene.constant(true.contains(operand.value) if is_known else None)


def _shape(pattern: Operand, escape: Any) -> str:
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
_OPERATOR: Final = "an operator that is not read"
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
        (r"(?:regexp|rlike|glob|match|similar|overlaps|is|symmetric)\b|[~!]", _OPERATOR),
        (r"\(", "a function, or a row of values"),
    )
)


def _unreadable(text: str, first_line: int, at: int) -> RefusedRuleError:
    place = f"line {text.count(chr(10), 0, at) + first_line}"
    rest = text[at:]
    # Blanks for strings, quoted names and comments; structure stays.
    blanked = TOKENS.sub(lambda m: m[0] if m[0] in "();" else " " * len(m[0]), text[:at])
    if subquery := _BEFORE.search(blanked):
        return refusal(_SUBQUERY, text[subquery.start() :], place)
    reason = dialect_grammar.reason_for(rest, _REASONS, NOT_A_CONDITION)
    return refusal(reason, rest or text, place)


NO_CONDITIONS: Final = "no condition in the file"


def read_rules(text: str) -> Iterator[Rule | RefusedRule]:
    """Yields the conditions of a file, which end with a semicolon, or with the file.

    A comment before a condition can give its name, `-- name: cheap`; the default is its line.
    """
    is_empty = True
    at, counted, line_number = 0, 0, 1
    ends = [match.start() for match in TOKENS.finditer(text) if match[0] == ";"]
    for end in (*ends, len(text)):
        comments = _COMMENTS.match(text, at, end)
        assert comments is not None, "it matches the empty text"
        begin = comments.end()
        if begin < end:
            is_empty = False
            line_number += text.count("\n", counted, begin)
            counted = begin
            name = _name(comments[0]) or f"line {line_number}"
            yield read_or_refuse(name, partial(read, text[begin:end], name, line_number))
        at = end + 1
    if is_empty:
        yield RefusedRule("", RefusedRuleError(DIALECT, NO_CONDITIONS))


def read(condition: str, name: str = "", first_line: int = 1) -> Rule:
    """Returns the rule of a condition, with places as lines of the file. Raises as `filters`."""
    return Rule(name, parse_as(DIALECT, condition, first_line, TruthReader))


_COMMENTS: Final = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*+", re.DOTALL)


def _name(comments: str) -> str:
    """Returns the name in the last comment of the form `-- name: …`."""
    bodies = [each.strip()[2:].strip() for each in comments.split("\n") if "--" in each]
    names = [each[len("name:") :].strip() for each in bodies if each.startswith("name:")]
    return names[-1] if names else ""
