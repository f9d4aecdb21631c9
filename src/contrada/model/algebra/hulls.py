"""Hulls: plain intervals around value sets, for a quick test that sets are disjoint.

Invariant: each value of a set, its text folded, is in the set's hull; so operators without case are
points and intervals too. A hull may hold texts backwards, so that suffixes are intervals.
"""

from collections.abc import Sequence

from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains import line
from contrada.model.domains.line import ALL_TEXT, Cut, Cuts, HalfOpen
from contrada.model.domains.values import TEXT, Key
from contrada.model.languages.atoms import PlainOperator, registry
from contrada.model.languages.casefold import fold
from contrada.model.languages.language import Every, Language, Literal, Pieces


def hull(values: ValueSet, *, backwards: bool = False) -> Cuts:
    """Returns the hull of a set, as cuts. Cost: linear in the set, times a logarithm."""
    cuts, text = values.parts()
    return line.union(cuts, _of_text(text, backwards))


def folded_place(key: Key) -> Key:
    """Returns the place of a value in a hull that is not backwards."""
    return (TEXT, fold(key[1])) if isinstance(key[1], bytes) else key


def components(hulls: Sequence[Cuts]) -> list[list[int]]:
    """Groups the numbers of hulls that overlap, also through others. Cost: a sort."""
    pieces = sorted(
        (start, number, end)
        for number, cuts in enumerate(hulls)
        for start, end in line.pieces(cuts)
    )
    found = list(range(len(hulls)))
    reach: Cut | None = line.START
    last = 0
    for start, number, end in pieces:
        if reach is None or start < reach:
            found[_root(found, number)] = _root(found, last)
            reach = None if end is None or reach is None else max(reach, end)
        else:
            reach = end
        last = number
    groups: dict[int, list[int]] = {}
    for number in range(len(hulls)):
        groups.setdefault(_root(found, number), []).append(number)
    return list(groups.values())


def _root(found: list[int], number: int) -> int:
    while found[number] != number:
        found[number] = number = found[found[number]]
    return number


def _of_text(language: Language, backwards: bool) -> Cuts:
    if isinstance(language, Pieces):
        return _join([_of_piece(piece, backwards) for piece in line.pieces(language.cuts)])
    if isinstance(language, Literal):
        operator = registry.find(language.atom.operator)
        if not language.positive or not isinstance(operator, PlainOperator):
            return ALL_TEXT
        return _of_operator(language.atom.constant, operator.begins, operator.ends, backwards)
    hulls = [_of_text(part, backwards) for part in language.parts]
    if isinstance(language, Every):
        return min(hulls, key=lambda cuts: (cuts == ALL_TEXT, len(cuts)))
    return _join(hulls)


def _of_piece(piece: HalfOpen, backwards: bool) -> Cuts:
    start, end = piece
    text = line.first_key(start)[1]
    assert isinstance(text, bytes), "intervals of text have ends of text"
    if end is not None and line.single((start, end)) is not None:
        return _of_operator(text, True, True, backwards)
    is_prefix = line.starting_with(text) == (start, end)
    return _of_operator(text, is_prefix, False, backwards)


def _of_operator(text: bytes, begins: bool, ends: bool, backwards: bool) -> Cuts:
    shown = fold(text)[::-1] if backwards else fold(text)
    if begins and ends:
        return line.point((TEXT, shown))
    if ends if backwards else begins:
        try:
            text.decode()
        except UnicodeDecodeError:
            return ALL_TEXT  # it may end, or begin, within a character that folds as one
        return line.starting_with(shown)
    return ALL_TEXT


def _join(hulls: list[Cuts]) -> Cuts:
    cuts: list[Cut] = []
    for start, end in sorted(
        (piece for each in hulls for piece in line.pieces(each)), key=lambda piece: piece[0]
    ):
        if len(cuts) & 1:
            break
        if cuts and start <= cuts[-1]:
            if end is None or end > cuts[-1]:
                cuts[-1:] = [] if end is None else [end]
        else:
            cuts += [start] if end is None else [start, end]
    return tuple(cuts)
