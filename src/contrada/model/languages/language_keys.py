"""Keys of languages: equal languages have equal keys, and few keys need an automaton.

A key is made from the language or its complement, the one without the empty text: its texts,
folded, if they are few, else its first text, the shortest and of these the lowest. Both can mostly
be read from the form of the language. Different languages may have the same key.
"""

from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from contrada.errors import LimitError
from contrada.model.domains import line
from contrada.model.domains.line import HalfOpen
from contrada.model.languages import automaton, decision
from contrada.model.languages.atoms import Operator, PlainOperator, registry
from contrada.model.languages.automaton import AUTOMATA_CACHED_MAX
from contrada.model.languages.casefold import fold
from contrada.model.languages.language import (
    Every,
    Language,
    Literal,
    Pieces,
    Some,
    atoms_of,
    contains,
    negation,
    size_of,
)
from contrada.model.languages.work_budget import Work, spend

KEY_WORK_MAX: Final = 1_000_000
"""Steps to make a key. Beyond it: it is not known."""

KEY_TEXTS_MAX: Final = 65_536
"""Texts of a finite set in its key, if from an automaton. Beyond it: the key holds the first."""

TextKey: TypeAlias = tuple[bool, frozenset[bytes] | bytes] | None
"""Whether it is of the complement, and the texts or the first of them; None if not known."""

_FILLER: Final = b"\xff"
"""Not a character: no operator requires it, so it may be repeated forever."""


class _Start(NamedTuple):
    """The first text of a language without the empty one, and all of them if they are few."""

    first: bytes
    folded: frozenset[bytes] | None = None

    def order(self) -> tuple[int, bytes]:
        return len(self.first), self.first


_NONE: Final = _Start(b"", frozenset())
"""The start of the empty language."""


def key(language: Language) -> TextKey:
    """Returns the key of a language; None with opaque operators, and beyond the limits."""
    return _key(language) if isinstance(language, Pieces) else _known_key(language)


@lru_cache(maxsize=AUTOMATA_CACHED_MAX)
def _known_key(language: Language) -> TextKey:
    try:
        with Work("KEY_WORK_MAX", KEY_WORK_MAX):
            return _key(language)
    except LimitError:
        return None


def _key(language: Language) -> TextKey:
    inverted = contains(language, b"")
    start = _of_language(negation(language) if inverted else language)
    if start is None:
        start = _of_automaton(language, inverted)
    if start is None:
        return None
    return inverted, start.first if start.folded is None else start.folded


def _of_language(language: Language) -> _Start | None:
    """Returns the start of a language without the empty text, by its form."""
    if isinstance(language, Pieces):
        return _join([_of_piece(piece) for piece in line.pieces(language.cuts)])
    if isinstance(language, Literal):
        return _of_literal(language)
    if isinstance(language, Some):
        return _join([_of_language(part) for part in language.parts])
    spend(size_of(language) * len(language.parts))
    starts = [(p, None if contains(p, b"") else _of_language(p)) for p in language.parts]
    for part, start in sorted(starts, key=lambda each: each[1] is None or each[1].folded is None):
        rest = [other for other in language.parts if other is not part]
        if start is not None and start.folded is not None:
            return _intersect(part, rest)
        if start is not None and all(contains(other, start.first) for other in rest):
            return start if _is_infinite(language) else None
    return None


def _intersect(few: Language, rest: list[Language]) -> _Start | None:
    """Returns the start of those of a few texts that are in all other languages."""
    if isinstance(few, Some):
        return _join([_intersect(part, rest) for part in few.parts])
    if isinstance(few, Pieces):
        texts = [text for piece in line.pieces(few.cuts) for text in _texts(piece) or ()]
        spend(len(texts) * sum(map(size_of, rest)))
        kept = [text for text in texts if all(contains(other, text) for other in rest)]
        return _join([_Start(text, frozenset((fold(text),))) for text in kept])
    start = _of_language(few)
    spend(sum(map(size_of, rest)))
    if start is None or start.folded is None or len(start.folded) != 1:
        return None
    return start if all(contains(other, start.first) for other in rest) else None


def _join(starts: list[_Start | None]) -> _Start | None:
    known = [start for start in starts if start is not None]
    if len(known) < len(starts):
        return None
    some = [start for start in known if start != _NONE]
    if not some:
        return _NONE
    first = min(some, key=_Start.order).first
    folded = [start.folded for start in some if start.folded is not None]
    return _Start(first, frozenset().union(*folded) if len(folded) == len(some) else None)


def _of_literal(literal: Literal) -> _Start | None:
    operator, constant = registry.find(literal.atom.operator), literal.atom.constant
    if not literal.positive or operator is None or not constant:
        return None
    first = operator.first(constant)
    if first is None:
        return None
    is_one = isinstance(operator, PlainOperator) and operator.begins and operator.ends
    return _Start(first, frozenset((fold(constant),)) if is_one else None)


def _of_piece(piece: HalfOpen) -> _Start:
    texts = _texts(piece)
    if texts is not None:
        return _Start(texts[0], frozenset(map(fold, texts)))
    start, end = piece
    lowest: bytes = line.first_key(start)[1]  # type: ignore[assignment]
    for length in range(1, len(lowest)):
        stem = lowest[:length].rstrip(_FILLER)
        if stem:
            above = (stem[:-1] + bytes((stem[-1] + 1,))).ljust(length, b"\0")
            if end is None or above < end[1]:  # type: ignore[operator,misc]
                return _Start(above)
    return _Start(lowest or b"\0")


def _texts(piece: HalfOpen) -> list[bytes] | None:
    """Returns the texts of an interval if they are finitely many, else None."""
    start, end = piece
    first: bytes = line.first_key(start)[1]  # type: ignore[assignment]
    if end is None or first + b"\0" * (len(end[1]) - len(first)) != end[1]:  # type: ignore[arg-type,misc]
        return None
    return [first + b"\0" * count for count in range(len(end[1]) - len(first))]  # type: ignore[arg-type,misc]


def _is_infinite(language: Every) -> bool:
    """Whether a text with many fillers shows that there are texts of any length."""
    operators = {registry.find(atom.operator) for atom in atoms_of(language)}
    if any(type(each).first is Operator.first for each in operators if each is not None):
        return False
    size = len(repr(language))  # no constant is longer
    begins, inner, ends = decision.guess(language)
    return contains(language, begins + inner + _FILLER * size + ends)


def _of_automaton(language: Language, inverted: bool) -> _Start | None:
    try:
        machine = decision.automaton_for(negation(language) if inverted else language)
    except (LimitError, ValueError):
        return None
    texts = automaton.texts_of(machine, KEY_TEXTS_MAX)
    if texts is None:
        return _Start(automaton.first_of(machine))
    return _join([_Start(text, frozenset((fold(text),))) for text in texts])
