r"""Patterns of LIKE as sets of text.

`%` matches any text, `_` one character, `\%` and `\_` themselves, and everything else, including a
backslash, itself. They become patterns of the operator `wildcard`, so an expression and its filters
use the same set.

Source: CloudEvents, CESQL 1.0.0 §3.4.3.
"""

import re
from functools import lru_cache
from typing import Final

from contrada.model.algebra import sets
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains.values import TEXT

CESQL_PATTERNS_CACHED_MAX: Final = 1_024
"""Patterns of LIKE cached as sets. Beyond it: the least recently used is built again."""

_TOKEN: Final = re.compile(r"\\[%_]|.", re.DOTALL)
_SHAPES: Final = {"%": "*", "_": "?", "\\%": "%", "\\_": "_", "*": r"\*", "?": r"\?", "\\": r"\\"}


@lru_cache(maxsize=CESQL_PATTERNS_CACHED_MAX)
def texts_like(pattern: str) -> ValueSet:
    """Returns the texts that match a pattern. Raises InvalidFilterError if it is too long."""
    tokens = _TOKEN.findall(pattern)
    return sets.wildcard("".join(_SHAPES.get(token, token) for token in tokens))


def is_like(text: str, pattern: str) -> bool:
    """Whether a text matches a pattern. Cost: linear in the text, and in the pattern once."""
    if len(text) < len(shortest_like(pattern)):
        return False
    return texts_like(pattern).holds((TEXT, text.encode(errors="surrogateescape")))


def characters_of(pattern: str) -> set[str]:
    """Returns the characters that every matching text contains."""
    return {token[-1] for token in _TOKEN.findall(pattern) if token not in ("%", "_")}


@lru_cache(maxsize=CESQL_PATTERNS_CACHED_MAX)
def shortest_like(pattern: str) -> str:
    """Returns one of the shortest matching texts, with a 0 for each `_`."""
    parts = {"%": "", "_": "0"}
    return "".join(parts.get(token, token[-1]) for token in _TOKEN.findall(pattern))


def literal_of(pattern: str) -> str | None:
    """Returns the only matching text of a pattern without `%` and `_`, else None."""
    tokens = _TOKEN.findall(pattern)
    if "%" in tokens or "_" in tokens:
        return None
    return "".join(token[-1] for token in tokens)
