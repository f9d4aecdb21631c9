"""Hints for habits of other languages: what a person who wrote this may have meant.

A hint is added to an error that is raised anyway; it never changes what is read.
"""

import re
from collections.abc import Collection
from typing import Final

from contrada.model.algebra.expression import MIRRORED
from contrada.model.languages.atoms import KEYWORDS

_WORD: Final = re.compile(r"[^\W\d]\w*")
_WORD_BEFORE: Final = re.compile(r"([^\W\d]\w*)\s*$")
_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
_COMPARISON_AFTER: Final = re.compile(r"""([+-]?[\d.]+|'[^']*'|"[^"]*")\s*([<>]=?|!?=)""")

_OPERATORS: Final = {
    "like": "`prefix`, `suffix`, `contains`, or `wildcard 'a*b?'` say what `like` does",
    "ilike": "`contains nocase 'a'`, or `wildcard nocase 'a*b?'` say what `ilike` does",
    "startswith": "write `prefix`",
    "endswith": "write `suffix`",
    "regexp": "write `matches /…/`",
    "rlike": "write `matches /…/`",
    "is": "write `= null` for the value null, `absent` where there is none",
}

_SIGNS: Final = (
    ("==", 1, "equality is one `=`"),
    ("<>", 1, "write `!=`"),
    ("=<", 1, "write `<=`"),
    ("=>", 1, "write `>=`"),
    ("=~", 1, "write `matches /…/`"),
    ("&&", 0, "write `and`"),
    ("||", 0, "write `or`"),
    ("!", 0, "write `not (…)`"),
    (";", 0, "one filter has no end sign"),
)
"""Signs, how many of their characters were taken before the fault, and what is written instead."""

_VALUES: Final = {"true": "true", "false": "false", "null": "null", "none": "null", "nan": "nan"}


def hint_for(text: str, position: int, wanted: Collection[str]) -> str:
    """What may have been meant at a fault, where these terminals may stand; or nothing."""
    before = _WORD_BEFORE.search(text, 0, position)
    if before is not None and before[1].lower() in _OPERATORS:
        return _OPERATORS[before[1].lower()]
    for sign, taken, hint in _SIGNS:
        stands = position >= taken and text.startswith(sign, position - taken)
        if stands and (sign != "!" or "NAME" in wanted):
            return hint
    bare = _QUOTED.sub("", text[:position])
    large = [each for each in _WORD.findall(bare) if _is_large(each)]
    if large:
        return f"words are written small: `{large[-1].lower()}`"
    word = _WORD.match(text, position)
    if word is not None:
        return _hint_for_word(word[0], wanted)
    if "NAME" in wanted and (turned := _COMPARISON_AFTER.match(text, position)) is not None:
        return f"the attribute stands first, as in `a {MIRRORED[turned[2]]} {turned[1]}`"
    if "AND" in wanted and text[position : position + 1] in tuple("<>=!"):
        return "two comparisons are joined by `and`, or are `between … and …`"
    return ""


def _is_large(word: str) -> bool:
    return word.isupper() and word.lower() in KEYWORDS


def _hint_for_word(word: str, wanted: Collection[str]) -> str:
    small = word.lower()
    if "NUMBER" in wanted:
        value = _VALUES.get(small)
        return f"write `{value}`" if value else f"a text stands in quotes: '{word}'"
    if small in _OPERATORS:
        return _OPERATORS[small]
    if _is_large(word):
        return f"words are written small: `{small}`"
    return ""


def hint_for_operator(name: str) -> str:
    """What may have been meant by an operator that nobody registered; or nothing."""
    small = name.lower()
    if _is_large(name):
        return f"words are written small: `{small}`"
    return _OPERATORS.get(small, "")
