"""Hints for habits of other languages, added to parse errors that are raised anyway."""

import re
from collections.abc import Collection
from typing import Final

from contrada.model.algebra.expression import MIRRORED
from contrada.model.languages.atoms import KEYWORDS

_WORD: Final = re.compile(r"[^\W\d]\w*")
_WORD_BEFORE: Final = re.compile(r"([^\W\d]\w*)\s*$")
_QUOTED: Final = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
_LITERAL: Final = r"""([+-]?[\d.]+|'[^']*'|"[^"]*")"""
_COMPARISON_AFTER: Final = re.compile(
    rf"{_LITERAL}\s*([<>]=?|!?=)(?:\s*([^\W\d][\w.]*)\s*([<>]=?\s*{_LITERAL}))?"
)

_OPERATORS: Final = {
    "like": "`prefix`, `suffix`, `contains`, or `wildcard 'a*b?'` replace `like`",
    "ilike": "`contains nocase 'a'`, or `wildcard nocase 'a*b?'` replace `ilike`",
    "startswith": "write `prefix`",
    "endswith": "write `suffix`",
    "regexp": "write `matches /…/`",
    "rlike": "write `matches /…/`",
    **dict.fromkeys(("eq", "equals"), "write `=`"),
    **dict.fromkeys(("ne", "neq"), "write `!=`"),
    **dict.fromkeys(("le", "lte"), "write `<=`"),
    **dict.fromkeys(("ge", "gte"), "write `>=`"),
    "lt": "write `<`",
    "gt": "write `>`",
    "is": "write `= null` for the value null, `absent` where there is none, or `exists`",
}

_SIGNS: Final = (
    ("==", 1, "equality is one `=`"),
    ("<>", 1, "write `!=`"),
    ("=<", 1, "write `<=`"),
    ("=>", 1, "write `>=`"),
    ("=~", 1, "write `matches /…/`"),
    ("≤", 0, "write `<=`"),
    ("≥", 0, "write `>=`"),
    ("≠", 0, "write `!=`"),
    *((sign, 0, "write `->`") for sign in "→⇒"),
    ("&&", 0, "write `and`"),
    ("||", 0, "write `or`"),
    ("!", 0, "write `not (…)`"),
    (";", 0, "one filter has no end sign"),
    *((sign, 0, "a comment begins with `#`") for sign in ("--", "//", "/*")),
    *((sign, 0, "a text is written in ' or \"") for sign in "“”„‘’«"),
)
"""Signs, the number of their characters before the fault, and their replacements."""

NEGATED: Final = {
    "between": "`not (a between 1 and 2)`",
    "exists": "`a absent`",
    "any": "`a absent`",
    "absent": "`a exists`",
    "null": "`a != null` or `a exists`",
}
"""Words that cannot follow `not`, and their replacements."""

TIME: Final = "a time of day and a zone, as @2026-11-20T09:30:00Z"

_NO_KEYWORD: Final = rf"\b(?!(?:{'|'.join(sorted(KEYWORDS))})\b)[^\W\d]\w*"
_CALLED: Final = rf"{_NO_KEYWORD}\("
_QUOTE_IN_TEXT: Final = "a quote in a text needs a backslash before it, or the other quotes around"
_NO_FUNCTIONS: Final = "there are no functions; `nocase` disregards case, as in `a = nocase 'x'`"
_PLAIN_NUMBER: Final = "a number is written plainly, as 1000 or 1e3; a text is written in quotes"

_NAME_FIRST: Final = "the attribute is written first, as in"
_TEXTUAL: Final = "`a contains 'x'`; one of several is `a = 'x'`"

_WHOLE: Final = (
    (re.compile(r"\s*([*>#1]|true)\s*", re.IGNORECASE), "`everything` matches all"),
    (
        re.compile(r"(?=.*[*?+>#])([\w*?-]+|\+)([./]([\w*?-]+|\+))*([./][>#])?"),
        "a topic is an attribute, as in `topic prefix 'a/'`",
    ),
)
"""Texts of other systems that mean a filter, and the hint."""

_HABITS: Final = tuple(
    (re.compile(sign), needed, hint)
    for sign, needed, hint in (
        (r"""'\0['\w]|"\0["\w]""", "AND", _QUOTE_IN_TEXT),
        (r"\w\0(and|or|by|within)\b(?!\()", "", "a blank is needed before a word"),
        (r"(?<![\w.])\d{4}\0[-/]\d", "AND", f"a time has {TIME}"),
        (r"(?<![\w.])\d[\d.]*\0([\w.:/%]|,\d{3}\b)", "AND", _PLAIN_NUMBER),
        (r"\S\0#", "", "a comment needs a blank before `#`"),
        (r"\bwithin\s+[\d.]+\s*\w+\s+\0by\b", "", "`by` is written before `within`"),
        *((rf"\bnot\s+{word}\s*\0", "NUMBER", f"write {put}") for word, put in NEGATED.items()),
        *(
            (rf"\b{word}[\s(]+[\w.]+\s*\0", "NUMBER", f"{_NAME_FIRST} `a {word}`")
            for word in ("exists", "absent")
        ),
        (rf"{_CALLED}([\w.]+\s*\0[),]|\0['\"\d)])|\0{_CALLED}", "", _NO_FUNCTIONS),
        (r"\(\s*\0\)", "NUMBER", "a list has at least one value"),
        (r"\b(in|of|but|nocase)\s*\0[^(]", "LPAR", "a list is written in ( )"),
        (r"\0[\[{]", "NUMBER", "one of several values is `in (…)`"),
        (r"""\0('[^']*'|"[^"]*")\s*in\b""", "NAME", f"{_NAME_FIRST} {_TEXTUAL}"),
        (r"\(\s*[\d.]+\0\.", "", "a range is `between 1 and 5`"),
        (r"\0:=?\s*\S", "", "equality is `=`"),
        (r"""\0~\s*['"]""", "", "write `matches /…/`"),
        (r"[^\W\d]\w*\s+\0[-+/%]\s*\w|\d\s*\0[-+*/%]\s*\w", "", "there is no arithmetic"),
    )
)
"""The text around a fault, with NUL at its place; a terminal that is possible there; and the
hint."""

_NAME_WITH_BLANKS: Final = re.compile(rf"({_NO_KEYWORD}\s+{_NO_KEYWORD})\s+$")

AROUND_CHARACTERS: Final = 80
"""Characters before and after a fault that a hint depends on."""

_VALUES: Final = {"true": "true", "false": "false", "null": "null", "none": "null", "nan": "nan"}


def hint_for(text: str, position: int, wanted: Collection[str]) -> str:
    """Returns the probable intention at a fault with these possible terminals; or nothing."""
    if len(text) <= AROUND_CHARACTERS:
        for whole, hint in _WHOLE:
            if whole.fullmatch(text):
                return hint
    start, end = max(0, position - AROUND_CHARACTERS), position + AROUND_CHARACTERS
    around = f"{text[start:position]}\0{text[position:end]}"
    before = _WORD_BEFORE.search(text, start, position)
    if before is not None and before[1].lower() in _OPERATORS:
        return _OPERATORS[before[1].lower()]
    for sign, taken, hint in _SIGNS:
        stands = position >= taken and text.startswith(sign, position - taken)
        if stands and (sign != "!" or "NAME" in wanted):
            return hint
    named = _NAME_WITH_BLANKS.search(text, start, position) if "NUMBER" in wanted else None
    if named is not None and text[position : position + 1] in tuple("=<>!"):
        return f"a name with blanks is written in backticks: `{named[1]}`"
    for habit, needed, hint in _HABITS:
        if (not needed or needed in wanted) and habit.search(around):
            return hint
    bare = _QUOTED.sub("", text[:position])
    large = [each for each in _WORD.findall(bare) if _is_large(each)]
    if large:
        return f"words are written small: `{large[-1].lower()}`"
    word = _WORD.match(text, position)
    if word is not None:
        return _hint_for_word(word[0], wanted)
    if "NAME" in wanted and (turned := _COMPARISON_AFTER.match(text, position)) is not None:
        first = f"{MIRRORED[turned[2]]} {turned[1]}"
        if turned[3]:
            return f"write `{turned[3]} {first} and {turned[3]} {turned[4]}`"
        return f"{_NAME_FIRST} `a {first}`"
    if "AND" in wanted and text[position : position + 1] in tuple("<>=!"):
        return "two comparisons are joined by `and`, or are `between … and …`"
    return ""


def _is_large(word: str) -> bool:
    return word.isupper() and word.lower() in KEYWORDS


def _hint_for_word(word: str, wanted: Collection[str]) -> str:
    if "NUMBER" not in wanted:
        return hint_for_operator(word)
    value = _VALUES.get(word.lower())
    return f"write `{value}`" if value else f"a text is written in quotes: '{word}'"


def hint_for_operator(name: str) -> str:
    """Returns the probable intention of an unregistered operator; or nothing."""
    small = name.lower()
    if _is_large(name):
        return f"words are written small: `{small}`"
    return _OPERATORS.get(small, "")
