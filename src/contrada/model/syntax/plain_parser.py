"""`plain_statement`: a quick parser for names with sets of literals, joined by `and` and `or`.

Most subscriptions have this form, and lark takes ten times as long. This parser gives the same
filters as the grammar (`text.lark`), and leaves other and invalid texts to lark.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from contrada.errors import ContradaError
from contrada.model.algebra import sets
from contrada.model.algebra.filter import Filter, FilterSet
from contrada.model.algebra.value_set import NOTHING, ValueSet, intersection, union
from contrada.model.domains.values import NAME_BYTES_MAX, Value
from contrada.model.languages.atoms import KEYWORDS

PLAIN_SETS_KEPT: Final = 4_096
"""Sets cached by their text. Beyond it: the least recently used is made anew."""

PLAIN_SET_CHARACTERS_MAX: Final = 1_024
"""Characters of a set that is cached by its text. Beyond it: it is made anew each time."""

PLAIN_DEPTH_MAX: Final = 6
"""Nested parentheses of a set that is parsed here. Beyond it: lark parses the text."""

# Names, numbers and words are taken whole or not at all, as a lexer takes them.
_BLANKS: Final = r"[ \t\r\n]*+"
_NAME: Final = r"(?>@?[A-Za-z_](?:[\w.\-/:@$#]*[\w$#])?)"
_STRING: Final = r"""(?:"(?:[^"\\\n]++|\\[nrt\\"'])*+"|'(?:[^'\\\n]++|\\[nrt\\"'])*+')"""
_BYTES: Final = r"""x"(?:[0-9a-fA-F]{2})*+"|x'(?:[0-9a-fA-F]{2})*+'"""
_REGEX: Final = r"/(?:[^/\\\n]|\\.)*+/[a-zA-Z]*+"
_NUMBER: Final = r"[+-]?\d{1,18}+(?:\.\d{0,18}+)?+"
_LITERAL: Final = rf"(?:{_NUMBER}|(?:true|false|null)\b|{_STRING}|{_BYTES})"
_PHRASE: Final = (
    rf"(?:(not\b{_BLANKS})?+"
    r"(!?=|[<>]=?|(?:prefix|suffix|contains|wildcard|cidr|matches|in|any but|none of)\b)"
    rf"({_BLANKS}nocase\b)?+{_BLANKS}"
    rf"(?:({_LITERAL})|({_REGEX})"
    rf"|\({_BLANKS}((?:{_LITERAL}{_BLANKS},{_BLANKS})*+{_LITERAL}){_BLANKS}\))"
    r"|(any|exists|absent|nothing)\b)"
)
_find_literals: Final = re.compile(_LITERAL, re.ASCII).findall

_SHORT: Final = 250
"""Characters of a text that is too short for a search of parts that its members share."""

_NEGATED: Final = {"prefix", "suffix", "contains", "wildcard", "cidr", "matches", "in"}
_NOCASE: Final = {"=", "!=", "in", "prefix", "suffix", "contains", "wildcard"}
_SEVERAL: Final = {"in", "any but", "none of"}
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final[dict[str, Value]] = {"true": True, "false": False, "null": None}


def _group() -> str:
    """Returns a regular expression of a parenthesized part."""
    inside = rf"(?:[^\"'`/()]++|{_STRING}|{_REGEX})*+"
    for _ in range(PLAIN_DEPTH_MAX):
        inside = rf"(?:[^\"'`/()]++|{_STRING}|{_REGEX}|\({inside}\))*+"
    return rf"\({inside}\)"


def _matcher(pattern: str) -> Callable[..., "re.Match[str] | None"]:
    return re.compile(pattern, re.ASCII).match


_match_constraint: Final = _matcher(
    rf"{_BLANKS}(?P<name>{_NAME}){_BLANKS}(?P<set>{_PHRASE}|{_group()})"
    rf"{_BLANKS}(?:\b(?P<joint>and|or)(?=[ \t\r\n])|\Z)"
)
_match_phrase: Final = _matcher(_BLANKS + _PHRASE)
_match_sign: Final = _matcher(rf"{_BLANKS}([()|&~])")


class _NeedsParserError(Exception):
    """lark has to parse the text."""


def plain_statement(text: str) -> Filter | FilterSet | None:
    """Parses a filter or filter set, or returns None if lark has to parse it."""
    try:
        members = (len(text) > _SHORT and _split(text)) or _scan(text)
    except (ContradaError, _NeedsParserError):
        return None
    return members[0] if len(members) == 1 else FilterSet(members)


def _scan(text: str) -> list[Filter]:
    members: list[Filter] = []
    texts: dict[str, list[str]] = {}  # of the sets of the filter that is being read, by name
    position, joint = 0, "and"
    while joint:
        constraint = _match_constraint(text, position)
        if constraint is None:
            raise _NeedsParserError
        name, set_text, joint = constraint.group("name", "set", "joint")
        if name in KEYWORDS or len(name) > NAME_BYTES_MAX:
            raise _NeedsParserError
        texts.setdefault(name, []).append(set_text)
        position = constraint.end()
        if joint != "and":
            named = {each: _set_of(tuple(parts)) for each, parts in texts.items()}
            members.append(Filter.of_sets(named))
            texts = {}
    return members


def _split(text: str) -> list[Filter]:
    """The same, with each constraint and each set parsed once: members have most of them in common.

    It gives none if the text between the words is not always a constraint: literals may contain the
    words, and other blanks surround these. A constraint that is whole by itself is one here too,
    since it ends with its last literal or parenthesis.
    """
    constraints: dict[str, tuple[str, str]] = {}
    sets: dict[tuple[str, ...], ValueSet] = {}
    members: list[Filter] = []
    for member in text.split(" or "):
        texts: dict[str, list[str]] = {}
        for each in member.split(" and "):
            if each not in constraints:
                constraint = _match_constraint(each)
                if constraint is None or constraint["joint"]:
                    return []
                name, set_text = constraint.group("name", "set")
                if name in KEYWORDS or len(name) > NAME_BYTES_MAX:
                    return []
                constraints[each] = name, set_text
            name, set_text = constraints[each]
            texts.setdefault(name, []).append(set_text)
        named: dict[str, ValueSet] = {}
        for name, several in texts.items():
            parts = tuple(several)
            if parts not in sets:
                sets[parts] = _set_of(parts)
            named[name] = sets[parts]
        members.append(Filter.of_sets(named))
    return members


def _set_of(parts: tuple[str, ...]) -> ValueSet:
    if sum(map(len, parts)) > PLAIN_SET_CHARACTERS_MAX:
        return intersection(map(_new_set, parts))
    return _kept_set(parts[0]) if len(parts) == 1 else _kept_intersection(parts)


def _new_set(text: str) -> ValueSet:
    phrase = _match_phrase(text)
    if phrase is not None and phrase.end() == len(text):  # the usual case, for speed
        return _phrase(*phrase.groups())
    reader = _SetReader(text)
    value_set = reader.set()
    if reader.position < len(text):
        raise _NeedsParserError
    return value_set


@lru_cache(maxsize=PLAIN_SETS_KEPT)
def _kept_intersection(parts: tuple[str, ...]) -> ValueSet:
    return intersection(map(_kept_set, parts))


_kept_set: Final = lru_cache(maxsize=PLAIN_SETS_KEPT)(_new_set)


class _SetReader:
    """A parser for the rule `set` of the grammar; a `~` behind another is left to lark."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0

    def set(self) -> ValueSet:
        phrase = _match_phrase(self._text, self.position)
        if phrase is not None:
            self.position = phrase.end()
            return _phrase(*phrase.groups())
        self._take("(")
        value_set = self._union()
        self._take(")")
        return value_set

    def _union(self) -> ValueSet:
        parts = [self._intersection()]
        while self._has("|"):
            parts.append(self._intersection())
        return union(parts)

    def _intersection(self) -> ValueSet:
        parts = [self._inverse()]
        while self._has("&"):
            parts.append(self._inverse())
        return intersection(parts)

    def _inverse(self) -> ValueSet:
        return ~self.set() if self._has("~") else self.set()

    def _has(self, sign: str) -> bool:
        found = _match_sign(self._text, self.position)
        if found is None or found[1] != sign:
            return False
        self.position = found.end()
        return True

    def _take(self, sign: str) -> None:
        if not self._has(sign):
            raise _NeedsParserError


def _phrase(
    negation: str | None,
    operator: str | None,
    nocase: str | None,
    one: str | None,
    regex: str | None,
    several: str | None,
    word: str | None,
) -> ValueSet:
    """Returns the set of a phrase; its missing parts are None."""
    if operator is None:
        assert word is not None
        return NOTHING if word == "nothing" else sets.OPERATORS[sets.SYNONYMS.get(word, word)]()
    is_one_too_many = (
        (negation and operator not in _NEGATED)
        or (nocase and operator not in _NOCASE)
        or (regex and operator != "matches")
        or bool(several) != (operator in _SEVERAL)
    )
    if is_one_too_many:
        raise _NeedsParserError
    options: dict[str, Any] = {"nocase": True} if nocase else {}
    if several and negation:
        return sets.not_in(*map(_value, _find_literals(several)), **options)
    if several:
        values: list[Value] = list(map(_value, _find_literals(several)))
    elif regex:
        expression, _, flags = regex[1:].rpartition("/")
        values = [expression, flags]
    else:
        assert one is not None
        values = [_value(one)]
    value_set = sets.OPERATORS[operator](*values, **options)
    return sets.text_not(value_set) if negation else value_set


def _value(literal: str) -> Value:
    if literal[0] in "\"'":
        body = literal[1:-1]
        return _ESCAPE.sub(_unescaped, body) if "\\" in body else body
    if literal in _WORDS:
        return _WORDS[literal]
    if literal[0] == "x":
        return bytes.fromhex(literal[2:-1])
    return float(literal) if "." in literal else int(literal)


def _unescaped(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[1])
