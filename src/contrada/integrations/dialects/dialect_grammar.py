"""Helpers for dialects with a lark grammar: loading, parsing, and reasons for refusals."""

import re
from collections.abc import Iterable
from typing import Any

from lark import Lark, Transformer, UnexpectedInput
from lark.exceptions import VisitError

from contrada.errors import LimitError


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
