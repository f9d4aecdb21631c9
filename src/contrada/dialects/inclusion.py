"""Whether one set of text is known to lie in another, told by constants alone.

Operators of the two sets are looked at in pairs. Those that say how a text begins, how it ends or
what is in it are told by their constants. No automaton is built, since one can take seconds: of
other operators only what is the same is told. A no may thus be wrong, and callers must be right
with it too.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from contrada.model.domains import line
from contrada.model.languages.atoms import Atom
from contrada.model.languages.casefold import fold
from contrada.model.languages.language import (
    Every,
    Language,
    Literal,
    Pieces,
    Some,
    atoms_of,
    negation,
)

Spend: TypeAlias = Callable[[int], None]
"""Is told of the steps that something takes."""

BYTES_A_STEP: Final = 1_000
"""Bytes of constants that are compared in the time of one step."""

PLAIN_CACHED_MAX: Final = 4_096
"""Operators kept as they are compared. Beyond it: the least recently used is read again."""


def lies_in(inner: Language, outer: Language, spend: Spend) -> bool:
    """Whether every text of the one is known to be in the other.

    Cost: about a step for each pair of operators.
    """
    if isinstance(inner, Some):
        return all(lies_in(part, outer, spend) for part in inner.parts)
    if isinstance(outer, Every):
        return all(lies_in(inner, part, spend) for part in outer.parts)
    if isinstance(inner, Every):
        return any(lies_in(part, outer, spend) for part in inner.parts)
    if isinstance(outer, Some):
        return any(lies_in(inner, part, spend) for part in outer.parts)
    if isinstance(inner, Pieces) and isinstance(outer, Pieces):
        spend(1 + len(inner.cuts))
        return line.includes(outer.cuts, inner.cuts)
    if isinstance(outer, Pieces):
        inner, outer = negation(outer), negation(inner)
    assert isinstance(outer, Literal), "pieces come first"
    if isinstance(inner, Literal):
        return _operator_lies_in(inner, outer, spend)
    assert isinstance(inner, Pieces), "nothing else is left"
    return all(_interval_lies_in(piece, outer, spend) for piece in line.pieces(inner.cuts))


def is_comparable(language: Language) -> bool:
    """Whether anything can be told of the text: not if all its operators are other ones."""
    atoms = list(atoms_of(language))
    return not atoms or any(atom.operator in _PLAIN for atom in atoms)


class _Plain(NamedTuple):
    """An operator: whether a text begins, and ends, where the constant that is in it does."""

    constant: bytes
    begins: bool
    ends: bool
    nocase: bool

    @property
    def is_whole(self) -> bool:
        """Whether the text is the constant."""
        return self.begins and self.ends

    def fits(self, text: bytes) -> bool:
        """Whether the operator holds for a text, folded where it compares folded text."""
        if self.begins:
            return text == self.constant if self.ends else text.startswith(self.constant)
        return text.endswith(self.constant) if self.ends else self.constant in text


_PLAIN: Final = {
    "= nocase": (True, True, True),
    "prefix nocase": (True, False, True),
    "suffix nocase": (False, True, True),
    "contains nocase": (False, False, True),
    "suffix": (False, True, False),
    "contains": (False, False, False),
}


@lru_cache(maxsize=PLAIN_CACHED_MAX)
def _plain(atom: Atom) -> _Plain | None:
    form = _PLAIN.get(atom.operator)
    if form is None:
        return None
    return _Plain(fold(atom.constant) if form[-1] else atom.constant, *form)


def _interval_lies_in(piece: line.Piece, outer: Literal, spend: Spend) -> bool:
    start, end = piece
    key = None if end is None else line.single((start, end))
    other = _plain(outer.atom)
    if key is None or other is None:
        spend(1)
        return False
    assert isinstance(key[1], bytes), "intervals of text have ends of text"
    point = _Plain(key[1], begins=True, ends=True, nocase=False)
    spend(1 + (len(point.constant) + len(other.constant)) // BYTES_A_STEP)
    return _implies(point, other) if outer.positive else _excludes(point, other)


def _operator_lies_in(inner: Literal, outer: Literal, spend: Spend) -> bool:
    spend(1 + (len(inner.atom.constant) + len(outer.atom.constant)) // BYTES_A_STEP)
    if inner.positive < outer.positive:  # together they would have to hold every text
        return False
    if inner.atom == outer.atom:
        return inner.positive == outer.positive
    one, two = _plain(inner.atom), _plain(outer.atom)
    if one is None or two is None:
        return False
    if not outer.positive:
        return _excludes(one, two) if inner.positive else _implies(two, one)
    return _implies(one, two)


def _implies(one: _Plain, two: _Plain) -> bool:
    """Whether the other operator holds for each text for which the one does."""
    if one.begins < two.begins or one.ends < two.ends or one.nocase > two.nocase:
        return False
    return two.fits(fold(one.constant) if two.nocase else one.constant)


def _excludes(one: _Plain, two: _Plain) -> bool:
    """Whether there is no text for which both hold."""
    if one.nocase != two.nocase:
        return _excludes_folded(one, two)
    if one.is_whole:
        return not two.fits(one.constant)
    if two.is_whole:
        return not one.fits(two.constant)
    a, b = one.constant, two.constant
    begin_apart = one.begins and two.begins and not (a.startswith(b) or b.startswith(a))
    end_apart = one.ends and two.ends and not (a.endswith(b) or b.endswith(a))
    return begin_apart or end_apart


def _excludes_folded(one: _Plain, two: _Plain) -> bool:
    """The same, told of what both ask of the folded text."""
    folded = []
    for each in (one, two):
        if not each.nocase and not each.is_whole and not is_utf8(each.constant):
            return False  # its first bytes may end a character, which folds as one
        folded.append(each._replace(constant=fold(each.constant), nocase=True))
    return _excludes(*folded)


def is_utf8(text: bytes) -> bool:
    """Whether folding the text is folding part of any text that it is part of."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
