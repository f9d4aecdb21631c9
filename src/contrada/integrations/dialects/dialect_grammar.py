"""Helpers for dialects with a lark grammar: parsing, conditions, strings, reasons for refusals."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any, Final

from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError

from contrada.errors import LimitError, RefusedRuleError
from contrada.model.algebra.expression import And, Formula, Or, negation
from contrada.model.rule import RefusedRule, Rule, read_or_refuse, require_text

DIALECT_CHARACTERS_MAX: Final = 100_000
"""Characters of a filter of Pub/Sub or a condition of Falco. Beyond it: the rule is refused."""

DIALECT_NESTING_MAX: Final = 50
"""Levels of parentheses in such a filter or condition, and in its macros. Beyond it: the rule is
refused."""


@v_args(inline=True)
class FormulaReader(Transformer[Token, Any]):
    """Builds conditions, bottom up, while lark parses."""

    def any_of(self, *parts: Formula) -> Formula:
        """Returns the condition of OR."""
        return Or(parts)

    def all_of(self, *parts: Formula) -> Formula:
        """Returns the condition of AND."""
        return And(parts)

    def inverse(self, *parts: Any) -> Formula:
        """Negates once at most: a long chain of `not` before a long condition would be costly."""
        condition: Formula = parts[-1]
        return condition if len(parts) % 2 else negation(condition)


def parser_of(module: str, file: str, reader: Transformer[Any, Any], **options: Any) -> Lark:
    """Returns the parser of a grammar beside a module. Cost: tens of milliseconds, so keep it."""
    return Lark.open(file, rel_to=module, parser="lalr", transformer=reader, **options)


def parse_text(parser: Lark, text: str) -> Any:
    """Returns the parser's result. Raises UnexpectedInput, and errors of its transformer."""
    try:
        return parser.parse(text)
    except VisitError as error:
        raise error.orig_exc from None


def end_of(text: str, error: UnexpectedInput) -> int:
    """Returns the position of a syntax error."""
    token = getattr(error, "token", None)
    at_end = token is not None and token.type == "$END"
    return len(text) if at_end else getattr(error, "pos_in_stream", None) or 0


def reason_for(rest: str, reasons: Iterable[tuple[re.Pattern[str], str]], other: str) -> str:
    """Returns the reason of the first pattern for the text at a syntax error."""
    return next((reason for sign, reason in reasons if sign.match(rest)), other)


def check_nesting(tokens: Iterable[str], limit: str, maximum: int) -> None:
    """Raises LimitError for parentheses that are nested deeper than the maximum."""
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if depth > maximum:
            raise LimitError(limit, maximum)


_TOKENS: Final = re.compile(
    r"""\"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|[()]""", re.DOTALL
)
"""Whole strings, and the parentheses around them."""


def levels_in(text: str) -> int:
    """Returns the levels of parentheses outside strings."""
    steps = ((match[0] == "(") - (match[0] == ")") for match in _TOKENS.finditer(text))
    return max(accumulate(steps), default=0)


def parse_condition(
    dialect: str, parser: Lark, text: object, reason: str, first_line: int = 1
) -> Any:
    """Returns the parser's result for a condition within the limits above.

    `first_line` is its number in a file. Raises RefusedRuleError with the reason and the place for
    a syntax error, LimitError, and errors of the transformer.
    """
    content = require_text(dialect, text)
    if len(content) > DIALECT_CHARACTERS_MAX:
        raise LimitError("DIALECT_CHARACTERS_MAX", DIALECT_CHARACTERS_MAX, len(content))
    if levels_in(content) > DIALECT_NESTING_MAX:
        raise LimitError("DIALECT_NESTING_MAX", DIALECT_NESTING_MAX)
    try:
        return parse_text(parser, content)
    except UnexpectedInput as error:
        at = end_of(content, error)
        line = first_line + content.count("\n", 0, at)
        place = f"line {line}, column {at - content.rfind(chr(10), 0, at)}"
        raise RefusedRuleError(dialect, reason, content[at:] or content, place) from None


def read_lines(text: str, read: Callable[[str, str, int], Rule]) -> Iterator[Rule | RefusedRule]:
    """Yields the rules of a file: one a line, named by it; lines that begin with `#` are none."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name = f"line {number}"
            yield read_or_refuse(name, partial(read, line, name, number))


def unescape(body: str) -> str:
    """Returns the text of a string's content, with the escapes of Go. Raises ValueError."""
    body.encode()
    if "\\" not in body:
        return body
    return b"".join(map(_character, _ESCAPED.finditer(body))).decode()


_ESCAPED: Final = re.compile(
    r"\\(?:([abfnrtv\\'\"])|([0-7]{3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))"
    r"|(\\)|([^\\]+)"
)
_LETTERS: Final = dict(zip("abfnrtv", b"\a\b\f\n\r\t\v", strict=True))


def _character(match: re.Match[str]) -> bytes:
    letter, octal, byte, short, long, wrong, plain = match.groups()
    if plain is not None:
        return plain.encode()
    code = -1 if wrong else int(octal or byte or short or long or "0", 8 if octal else 16)
    if letter is not None:
        return bytes((_LETTERS.get(letter, ord(letter)),))
    if (octal or byte) and code <= 0xFF:
        return bytes((code,))
    if code < 0 or code > 0x10FFFF or 0xD800 <= code <= 0xDFFF or octal:
        raise ValueError(match.string)
    return chr(code).encode()
