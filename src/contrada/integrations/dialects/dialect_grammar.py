"""What dialects with a grammar share: how it is loaded and used, and why a text is refused."""

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from lark import Lark, Transformer, UnexpectedInput
from lark.exceptions import VisitError

from contrada.errors import LimitError

Reasons: TypeAlias = Iterable[tuple[re.Pattern[str], str]]
"""What may stand where reading ends, and the reason that it tells, the first that fits."""


def parser_of(module: str, file: str, reader: Transformer[Any, Any], **options: Any) -> Lark:
    """The parser of a grammar in a file beside a module, which makes what `reader` does.

    Cost: tens of milliseconds, so keep it.
    """
    return Lark.open(file, rel_to=module, parser="lalr", transformer=reader, **options)


def parsed(parser: Lark, text: str) -> Any:
    """What the parser makes of a text. Raises UnexpectedInput, and what its transformer raises."""
    try:
        return parser.parse(text)
    except VisitError as error:
        raise error.orig_exc from None


def end_of(text: str, error: UnexpectedInput) -> int:
    """The place in a text where reading it ended."""
    token = getattr(error, "token", None)
    at_end = token is not None and token.type == "$END"
    return len(text) if at_end else getattr(error, "pos_in_stream", None) or 0


def reason_for(rest: str, reasons: Reasons, other: str) -> str:
    """Why a text cannot be read, told by what stands where reading ended."""
    return next((reason for sign, reason in reasons if sign.match(rest)), other)


def check_nesting(tokens: Iterable[str], limit: str, maximum: int) -> None:
    """Raises LimitError where more parentheses than the maximum stand in one another."""
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if depth > maximum:
            raise LimitError(limit, maximum)
