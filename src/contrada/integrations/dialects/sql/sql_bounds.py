"""The ends of intervals as comparisons of SQL.

Ends of intervals of text are bytes, and SQL's text is UTF-8: where an end is none, the first text
behind it stands for it.
"""

from bisect import bisect_left
from typing import Final, TypeAlias

from contrada.model.domains import values
from contrada.model.domains.line import Cut
from contrada.model.domains.values import TIME

SqlBound: TypeAlias = tuple[str, int | float | str]
"""An operator of SQL and what a column is compared with."""

NOWHERE: Final[SqlBound] = ("", "")
"""Beyond all text."""


def lower(start: Cut) -> SqlBound | None:
    """`>= v` or `> u`, the shorter; None where a domain begins."""
    return _bound(start, ">=", ">")


def upper(end: Cut | None) -> SqlBound | None:
    """`< v` or `<= u`, the shorter; None where a domain ends."""
    return _bound(end, "<", "<=")


def _bound(cut: Cut | None, from_here: str, from_before: str) -> SqlBound | None:
    """The comparison with what is at a cut, or with what is just before it."""
    if cut is None or len(cut) == 1:
        return None
    tag, at = cut
    if not isinstance(at, bytes):
        return _shorter((from_here, at), (from_before, _before(tag, at)))
    below = _text_before(at)
    if below is not None:
        return from_before, below
    text = _text_from(at)
    return NOWHERE if text is None else (from_here, text)


def _before(tag: int, at: int | float) -> int | float | None:
    """The time or number just before another."""
    return at - 1 if tag == TIME else values.predecessor(at)


def _shorter(first: SqlBound, second: tuple[str, int | float | None]) -> SqlBound:
    how, value = second
    if value is None or len(repr(value)) >= len(repr(first[1])):
        return first
    return how, value


def _text_before(text: bytes) -> str | None:
    """The text that a cut is just behind, or None."""
    try:
        return text[:-1].decode() if text.endswith(b"\0") else None
    except UnicodeDecodeError:
        return None


def _text_from(bound: bytes) -> str | None:
    """The first text in UTF-8 that is not below some bytes; None where all are below."""
    try:
        return bound.decode()
    except UnicodeDecodeError as error:
        good, rest = bound[: error.start].decode(), bound[error.start :]
    first = bisect_left(range(_CODES), rest, key=_utf8)
    while first == _CODES:
        if not good:
            return None
        good, first = good[:-1], ord(good[-1]) + 1
    return good + chr(0xE000 if 0xD800 <= first <= 0xDFFF else first)


_CODES: Final = 0x110000


def _utf8(code: int) -> bytes:
    """The character as UTF-8; a surrogate as what is between those around it."""
    return chr(code).encode(errors="surrogatepass")
