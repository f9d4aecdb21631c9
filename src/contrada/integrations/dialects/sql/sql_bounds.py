"""The ends of intervals as SQL comparisons.

Ends of intervals of text are bytes, and SQL text is UTF-8. If an end is not UTF-8, the first text
behind it takes its place.
"""

from bisect import bisect_left
from contextlib import suppress
from typing import Final, TypeAlias

from contrada.model.domains import values
from contrada.model.domains.line import Cut
from contrada.model.domains.values import TIME

SqlBound: TypeAlias = tuple[str, int | float | str]
"""A SQL operator and the value on its right side."""

NOWHERE: Final[SqlBound] = ("", "")
"""Beyond all text."""

_CODES: Final = 0x110000


def lower(start: Cut) -> SqlBound | None:
    """Returns `>= v` or `> u`, the shorter; None at the beginning of a domain."""
    return _bound(start, ">=", ">")


def upper(end: Cut | None) -> SqlBound | None:
    """Returns `< v` or `<= u`, the shorter; None at the end of a domain."""
    return _bound(end, "<", "<=")


def _bound(cut: Cut | None, from_here: str, from_before: str) -> SqlBound | None:
    """Returns the comparison with the value at a cut, or with the one just before it."""
    if cut is None or len(cut) == 1:
        return None
    tag, at = cut
    if not isinstance(at, bytes):
        before = at - 1 if tag == TIME else values.predecessor(at)
        if before is None or len(repr(before)) >= len(repr(at)):
            return from_here, at
        return from_before, before
    if at.endswith(b"\0"):
        with suppress(UnicodeDecodeError):
            return from_before, at[:-1].decode()
    text = _text_from(at)
    return NOWHERE if text is None else (from_here, text)


def _text_from(bound: bytes) -> str | None:
    """Returns the first UTF-8 text that is not below some bytes; None if all are below."""
    try:
        return bound.decode()
    except UnicodeDecodeError as error:
        good, rest = bound[: error.start].decode(), bound[error.start :]
    # A surrogate becomes the bytes between its neighbours.
    first = bisect_left(
        range(_CODES), rest, key=lambda code: chr(code).encode(errors="surrogatepass")
    )
    while first == _CODES:
        if not good:
            return None
        good, first = good[:-1], ord(good[-1]) + 1
    return good + chr(0xE000 if 0xD800 <= first <= 0xDFFF else first)
