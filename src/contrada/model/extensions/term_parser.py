"""`parse_term`: terms, by the grammar `unify.lark`. Source: CU-CS-946-03 §7.2, figure 5."""

import pkgutil
import re
from functools import cache
from typing import Final

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from contrada.errors import LimitError, ParseError
from contrada.model.extensions.terms import Function, Number, String, Term, Variable

TERM_BYTES_MAX: Final = 16_384
"""Bytes of a term. Beyond it: a constant is refused, a value does not match."""

_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


def parse_term(text: str) -> Term:
    """Parses a term. Raises ParseError, and LimitError for its size or depth. Cost: linear."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ParseError(1, error.start + 1, "a lone surrogate", "a term") from None
    if size > TERM_BYTES_MAX:
        raise LimitError("TERM_BYTES_MAX", TERM_BYTES_MAX, size)
    try:
        return _parser().parse(text)  # type: ignore[return-value]
    except UnexpectedToken as error:
        at_end = error.token.type == "$END"
        found = "the end of the text" if at_end else repr(str(error.token))
        raise ParseError(max(error.line, 1), max(error.column, 1), found, "a term") from None
    except UnexpectedCharacters as error:
        found = repr(text[error.pos_in_stream :][:20])
        raise ParseError(error.line, error.column, found, "a term") from None


def decode(serialised: bytes) -> Term:
    """Decodes a term. Raises ParseError, LimitError as `parse_term`."""
    try:
        return parse_term(serialised.decode())
    except UnicodeDecodeError as error:
        raise ParseError(1, error.start + 1, "bytes that are not UTF-8", "a term") from None


@v_args(inline=True)
class _TermBuilder(Transformer[Token, Term]):
    """Makes terms, bottom up, while lark parses."""

    def unifyterm(self, name: Token, *arguments: Term | None) -> Term:
        return Function(str(name), tuple(term for term in arguments if term is not None))

    def number(self, token: Token) -> Term:
        digits = token.lstrip("+-").lstrip("0") or "0"
        return Number(f"-{digits}" if token[0] == "-" and digits != "0" else digits)

    def string(self, token: Token) -> Term:
        return String(_ESCAPE.sub(r"\1", token[1:-1]))

    def variable(self, token: Token) -> Term:
        return Variable(str(token[1:]))


@cache
def _parser() -> Lark:
    grammar = pkgutil.get_data(__name__, "unify.lark")
    assert grammar is not None
    return Lark(grammar.decode(), start="unifyexpr", parser="lalr", transformer=_TermBuilder())
