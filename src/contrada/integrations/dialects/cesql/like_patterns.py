r"""Patterns of LIKE as sets of text.

`%` stands for any text, `_` for one character, `\%` and `\_` for themselves, and everything else,
a backslash too, for itself. They are the shapes of the operator `wildcard`, so that an expression
and its filters ask one and the same set.

Source: CloudEvents, CESQL 1.0.0 §3.4.3.
"""

import re
from functools import lru_cache
from typing import Final

from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains.values import TEXT

CESQL_PATTERNS_CACHED_MAX: Final = 1_024
"""Patterns of LIKE kept as sets. Beyond it: the least recently used is read again."""

_TOKEN: Final = re.compile(r"\\[%_]|.", re.DOTALL)
_SHAPES: Final = {"%": "*", "_": "?", "\\%": "%", "\\_": "_", "*": r"\*", "?": r"\?", "\\": r"\\"}


@lru_cache(maxsize=CESQL_PATTERNS_CACHED_MAX)
def texts_like(pattern: str) -> ValueSet:
    """The texts that are like a pattern.

    Raises InvalidFilterError where the pattern is too long for the operator `wildcard`.
    """
    tokens = _TOKEN.findall(pattern)
    return sets.wildcard("".join(_SHAPES.get(token, token) for token in tokens))


def is_like(text: str, pattern: str) -> bool:
    """Whether a text is like a pattern. Cost: linear in the text, and in the pattern once."""
    if len(text) < _length_min(pattern):
        return False
    return texts_like(pattern).holds((TEXT, text.encode(errors="surrogateescape")))


def characters_of(pattern: str) -> set[str]:
    """The characters that every text like the pattern has."""
    return {token[-1] for token in _TOKEN.findall(pattern) if token not in ("%", "_")}


@lru_cache(maxsize=CESQL_PATTERNS_CACHED_MAX)
def _length_min(pattern: str) -> int:
    return len(shortest_like(pattern))


def shortest_like(pattern: str) -> str:
    """One of the shortest texts that are like a pattern; it has a 0 for each `_`."""
    parts = {"%": "", "_": "0"}
    return "".join(parts.get(token, token[-1]) for token in _TOKEN.findall(pattern))


def literal_of(pattern: str) -> str | None:
    """The only text that is like a pattern, where it has neither `%` nor `_`."""
    tokens = _TOKEN.findall(pattern)
    if "%" in tokens or "_" in tokens:
        return None
    return "".join(token[-1] for token in tokens)
