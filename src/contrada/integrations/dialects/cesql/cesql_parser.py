"""`parse`: CESQL text to expressions.

The grammar is `grammar.lark`. A syntax error raises ParseError with line, column, the input found
and the input expected. AND, OR and XOR have the same precedence and are read from left to right, as
in the specification's text. Its published grammar files read them from right to left, so texts that
mix them should have parentheses.

Source: CloudEvents, CESQL 1.0.0 §1 (no data), §2 (the syntax; names), §3.6 (precedence).
"""

from functools import cache
from typing import Any, Final, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, v_args
from lark.exceptions import UnexpectedToken

from contrada.errors import InvalidFilterError, LimitError, ParseError
from contrada.integrations.dialects.cesql import expression_tree as tree
from contrada.integrations.dialects.cesql.cesql_casts import texts_like
from contrada.integrations.dialects.cesql.cesql_values import INTEGER_FIRST, INTEGER_LAST
from contrada.integrations.dialects.cesql.expression_tree import Expression
from contrada.integrations.dialects.dialect_grammar import parser_of
from contrada.model.domains.values import NAME_BYTES_MAX

CESQL_CHARACTERS_MAX: Final = 100_000
"""Characters of a CESQL expression. Beyond it: LimitError."""

CESQL_DEPTH_MAX: Final = 100
"""Levels of CESQL expressions, not of parentheses or chains alone. Beyond it: LimitError."""

RESERVED: Final = "data"
"""The reserved name of the data, which is no attribute and invisible to CESQL."""


def parse(text: str) -> Expression:
    """Returns the expression of a text. Cost: linear. Raises ParseError and LimitError."""
    if len(text) > CESQL_CHARACTERS_MAX:
        raise LimitError("CESQL_CHARACTERS_MAX", CESQL_CHARACTERS_MAX, len(text))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line, column = _end_of(text[: error.start])
        found = repr(text[error.start])
        raise ParseError(line, column, found, "text; a lone surrogate is none") from None
    try:
        expression = cast(Expression, _parser().parse(text))
    except UnexpectedInput as error:
        raise _explain(text, error) from None
    # Levels are counted without recursion.
    level: list[Expression] = [expression]
    for _ in range(CESQL_DEPTH_MAX):
        level = [part for each in level for part in tree.parts_of(each)]
    if level:
        raise LimitError("CESQL_DEPTH_MAX", CESQL_DEPTH_MAX)
    return expression


@v_args(inline=True)
class _ExpressionBuilder(Transformer[Token, Any]):
    """Builds expressions, bottom up, while lark parses."""

    def logic(self, first: Expression, *rest: Any) -> Expression:
        left, run = "", [first]
        for operator, operand in zip(map(str.upper, rest[::2]), rest[1::2], strict=True):
            if operator != left and left:
                run = [tree.Logic(left, tuple(run))]
            left = operator
            run.append(operand)
        return tree.Logic(left, tuple(run))

    def compared(self, left: Expression, operator: Token, right: Expression) -> Expression:
        if operator == "=":
            return tree.Equal(left, right)
        if operator in ("!=", "<>"):
            return tree.Not(tree.Equal(left, right))
        return tree.Ordered(str(operator), left, right)

    def arithmetic(self, left: Expression, operator: Token, right: Expression) -> Expression:
        return tree.Arithmetic(str(operator), left, right)

    def like(self, operand: Expression, pattern: Token) -> Expression:
        constant = self.string(pattern)
        try:
            texts_like(str(constant.value))
        except InvalidFilterError as error:
            raise _at(pattern, f"a shorter pattern, this one has {error.reason}") from None
        return tree.Like(operand, constant)

    def among(self, operand: Expression, *elements: Expression) -> Expression:
        return tree.In(operand, elements)

    def negation(self, operand: Expression) -> Expression:
        return tree.Not(operand)

    def negative(self, _: Token, operand: Expression) -> Expression:
        return tree.Negative(operand)

    def call(self, name: Token, *arguments: Expression) -> Expression:
        return tree.Call(name.upper(), arguments)

    def exists(self, name: Token) -> Expression:
        return tree.Exists(_name(name))

    def attribute(self, name: Token) -> Expression:
        return tree.Attribute(_name(name))

    def integer(self, digits: Token) -> tree.Constant:
        # Digits are counted first: reading a very long number costs as its square.
        counting = digits.lstrip("+-0")
        if len(counting) <= len(str(INTEGER_LAST)):
            value = int(counting or "0") * (-1 if digits[0] == "-" else 1)
            if INTEGER_FIRST <= value <= INTEGER_LAST:
                return tree.Constant(value)
        raise _at(digits, f"an integer of 32 bits, {INTEGER_FIRST} to {INTEGER_LAST}")

    def string(self, token: Token) -> tree.Constant:
        quote = token[0]
        parts = token[1:-1].split("\\\\")
        text = "\\\\".join(part.replace("\\" + quote, quote) for part in parts)
        return tree.Constant(text, quote)

    def boolean(self, word: Token) -> tree.Constant:
        return tree.Constant(word.upper() == "TRUE")


@cache
def _parser() -> Lark:
    return parser_of(__file__, "grammar.lark", _ExpressionBuilder(), start="expression")


def _name(token: Token) -> str:
    if len(token) > NAME_BYTES_MAX:
        raise _at(token, f"a name of at most {NAME_BYTES_MAX} characters")
    if token.lower() == RESERVED:
        raise _at(token, "an attribute, which is never called data")
    return token.lower()


def _at(token: Token, expected: str) -> ParseError:
    return ParseError(token.line or 1, token.column or 1, repr(token[:40]), expected)


_EXPECTED: Final = {
    "_LIKE": "LIKE",
    "_IN": "IN",
    "STRING": "a text in quotes",
    "NAME": "an attribute",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "$END": "the end of the text",
}
_VALUE: Final = frozenset(
    ("_EXISTS", "_NOT", "FUNCTION", "LPAR", "MINUS", "NAME", "NUMBER", "STRING", "TRUTH")
)
_OPERATOR: Final = frozenset(("_IN", "_LIKE", "_NOT", "COMPARES", "LOGIC", "SIGN", "TIMES"))


def _explain(text: str, error: UnexpectedInput) -> ParseError:
    if isinstance(error, UnexpectedToken):
        wanted = set(error.accepts or error.expected)
        at_end = error.token.type == "$END"
        found = "the end of the text" if at_end else repr(str(error.token)[:40])
        line, column = _end_of(text) if at_end else (error.line, error.column)
    else:
        assert isinstance(error, UnexpectedCharacters)
        wanted = set(error.allowed or ())
        line, column = error.line, error.column
        rest = text[error.pos_in_stream :]
        found = f"an unfinished text: {rest[:30]}" if rest[0] in "\"'" else repr(rest[0])
    return ParseError(line, column, found, _words_for(wanted))


def _words_for(wanted: set[str]) -> str:
    """Returns words for the possible tokens; all values, and all operators, are one word."""
    words = []
    for whole, word in ((_VALUE, "a value"), (_OPERATOR, "an operator")):
        if whole <= wanted:
            words.append(word)
            wanted = wanted - whole
    words += (_EXPECTED.get(name, name) for name in sorted(wanted))
    return " or ".join(words) or "something else"


def _end_of(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - text.rfind("\n")
