"""Plain filters, read without the parser: comparisons with literals, joined by `and`.

By far the most subscriptions are of this form, and the parser takes ten times as long. The grammar
(`text.lark`) is the meaning: what is read here gives the filter that the parser would give, and
what is not of this form, or in any way wrong, is left to it.
"""

import re
from functools import lru_cache
from typing import Final

from contrada.errors import ContradaError
from contrada.model.algebra import Filter, ValueSet, sets
from contrada.model.domains.values import NAME_BYTES_MAX, Value
from contrada.model.languages.atoms import KEYWORDS

PLAIN_SETS_KEPT: Final = 1_024
"""Sets of comparisons that are kept, so that filters share equal ones. Beyond it: the one that was
not asked for the longest is made anew."""

PLAIN_CHARACTERS_MAX: Final = 4_096
"""Characters of a text that is read without the parser. Beyond it: the parser reads it."""

# Names and numbers are taken whole or not at all, as a lexer takes them.
_COMPARISON: Final = re.compile(
    r"""\s*+(?>(@?[A-Za-z_](?:[\w.\-/:@$#]*[\w$#])?))
        \s*+([!<>]?=|[<>]|prefix\b)
        \s*+([+-]?\d{1,18}+(?:\.\d{0,18}+)?+|"[^"\\\n]*+"|'[^'\\\n]*+'|true\b|false\b|null\b)
        \s*+(and(?=\s)|\Z)""".replace(r"\s", r"[ \t\r\n]"),
    re.ASCII | re.VERBOSE,
)
_WORDS: Final[dict[str, Value]] = {"true": True, "false": False, "null": None}


def plain_filter(text: str) -> Filter | None:
    """The filter that a text says, or None where the parser has to see it."""
    if len(text) > PLAIN_CHARACTERS_MAX:
        return None
    found: dict[str, ValueSet] = {}
    position, joint = 0, "and"
    try:
        while joint:
            comparison = _COMPARISON.match(text, position)
            if comparison is None:
                return None
            name, operator, literal, joint = comparison.groups()
            if name in KEYWORDS or len(name) > NAME_BYTES_MAX:
                return None
            value_set = _set_of(operator, literal)
            known = found.get(name)
            found[name] = value_set if known is None else known & value_set
            position = comparison.end()
    except ContradaError:
        return None
    return Filter.of_sets(found)


@lru_cache(maxsize=PLAIN_SETS_KEPT)
def _set_of(operator: str, literal: str) -> ValueSet:
    value: Value
    if literal[0] in "\"'":
        value = literal[1:-1]
    elif literal in _WORDS:
        value = _WORDS[literal]
    else:
        value = float(literal) if "." in literal else int(literal)
    return sets.OPERATORS[operator](value)
