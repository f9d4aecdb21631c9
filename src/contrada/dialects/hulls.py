"""Which value sets of one attribute may have a value in common, told by how their texts end.

Most sets in rules are a few values, prefixes or suffixes, and hundreds of them are on the same
attribute. How their texts begin and end is looked up, so that only the few sets that may have
something in common are asked about one another.

Invariant: a set and a set that is not near it have no value in common.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from contrada.dialects.inclusion import Spend, is_utf8
from contrada.model.algebra.valueset import ValueSet
from contrada.model.domains import line
from contrada.model.domains.values import TEXT, Key
from contrada.model.languages.atoms import Atom
from contrada.model.languages.casefold import fold
from contrada.model.languages.language import Every, Language, Literal, Pieces

HULL_BYTES_MAX: Final = 64
"""Bytes of the beginning and the end of a text by which sets are told apart. Beyond it: longer
ones are compared."""


class _Point(NamedTuple):
    """One value; of text, all that fold to it."""

    key: Key


class _Begun(NamedTuple):
    """Text of which is known how it begins, folded."""

    text: bytes


class _Ended(NamedTuple):
    """Text of which is known how it ends, folded and backwards."""

    text: bytes


_Part: TypeAlias = _Point | _Begun | _Ended
Hull: TypeAlias = tuple[_Part, ...]
"""Parts that hold all values of a set together."""


class Hulls:
    """Sets of one attribute by number. Sets of sets are held as bits of an integer."""

    def __init__(self, hulls: Sequence[Hull | None], spend: Spend) -> None:
        """`None` is a set of which nothing is known. `spend` is told of each set looked at."""
        self._hulls = hulls
        self._spend = spend
        self._points: dict[Key, int] = {}
        self._begun = _Texts()
        self._ended = _Texts()
        self._near: dict[int, int] = {}
        self.known = 0
        """The sets that have a hull."""
        for number, hull in enumerate(hulls):
            if hull is not None:
                self.known |= 1 << number
                self._add(hull, number)
        self._unknown = ((1 << len(hulls)) - 1) & ~self.known

    def near(self, number: int) -> int:
        """The sets that may have a value in common with this one, itself among them."""
        hull = self._hulls[number]
        if hull is None:
            return self.known | self._unknown
        found = self._near.get(number)
        if found is None:
            found = self._unknown
            for part in hull:
                found |= self._near_part(part)
            self._near[number] = found
        return found

    def _add(self, hull: Hull, number: int) -> None:
        for part in hull:
            if isinstance(part, _Begun):
                self._begun.add(part.text, number, is_open=True)
            elif isinstance(part, _Ended):
                self._ended.add(part.text, number, is_open=True)
            else:
                self._points[part.key] = self._points.get(part.key, 0) | 1 << number
                for texts, text in zip((self._begun, self._ended), _ends(part.key), strict=False):
                    texts.add(text, number, is_open=False)

    def _near_part(self, part: _Part) -> int:
        self._spend(1)
        if isinstance(part, _Begun):
            return self._begun.near(part.text, self._spend) | self._ended.open_ones
        if isinstance(part, _Ended):
            return self._ended.near(part.text, self._spend) | self._begun.open_ones
        found = self._points[part.key]
        for texts, text in zip((self._begun, self._ended), _ends(part.key), strict=False):
            found |= texts.beginning(text)
        return found


class _Texts:
    """How the texts of sets begin, or end when they are read backwards."""

    def __init__(self) -> None:
        self.open_ones = 0
        """The sets with a text that goes on after what is known of it."""
        self._open: dict[bytes, int] = {}
        self._lengths: set[int] = set()
        self._sorted: list[tuple[bytes, int]] = []
        self._is_sorted = True

    def add(self, text: bytes, number: int, *, is_open: bool) -> None:
        """One more text of a set."""
        if is_open:
            self._open[text] = self._open.get(text, 0) | 1 << number
            self._lengths.add(len(text))
            self.open_ones |= 1 << number
        self._sorted.append((text, number))
        self._is_sorted = False

    def beginning(self, text: bytes) -> int:
        """The sets with an open text that the text begins with."""
        found = 0
        for length in self._lengths:
            found |= self._open.get(text[:length], 0)
        return found

    def near(self, text: bytes, spend: Spend) -> int:
        """The sets with a text that may begin as this open one."""
        if not self._is_sorted:
            self._sorted.sort()
            self._is_sorted = True
        found = self.beginning(text)
        for other, number in islice(self._sorted, bisect_left(self._sorted, (text,)), None):
            if not other.startswith(text):
                break
            spend(1)
            found |= 1 << number
        return found


def hull_of(values: ValueSet) -> Hull | None:
    """The hull of a set, None where nothing is known of some of its values. Cost: linear."""
    cuts, text = values.parts()
    points = [
        None if end is None else line.single((start, end)) for start, end in line.pieces(cuts)
    ]
    of_text = _of_language(text)
    if of_text is None or None in points:
        return None
    return (*(_Point(key) for key in points if key is not None), *of_text)


def _of_language(language: Language) -> Hull | None:
    if isinstance(language, Pieces):
        return _joined(_of_interval(piece) for piece in line.pieces(language.cuts))
    if isinstance(language, Literal):
        return _of_atom(language.atom) if language.positive else None
    hulls = (_of_language(part) for part in language.parts)
    if isinstance(language, Every):
        known = [hull for hull in hulls if hull is not None]
        return min(known, key=len) if known else None
    return _joined(hulls)


def _joined(hulls: Iterator[Hull | None]) -> Hull | None:
    parts: list[_Part] = []
    for hull in hulls:
        if hull is None:
            return None
        parts += hull
    return tuple(parts)


def _of_interval(piece: line.Piece) -> Hull | None:
    start, end = piece
    text = line.first_key(start)[1]
    assert isinstance(text, bytes), "intervals of text have ends of text"
    if end is not None and line.single((start, end)) is not None:
        return (_Point((TEXT, fold(text))),)
    whole = line.starting_with(text)
    if text and is_utf8(text) and whole == (start, end):
        return (_Begun(fold(text)[:HULL_BYTES_MAX]),)
    return None


def _of_atom(atom: Atom) -> Hull | None:
    operator, text = atom
    if operator == "= nocase":
        return (_Point((TEXT, fold(text))),)
    if operator == "prefix nocase":
        return (_Begun(fold(text)[:HULL_BYTES_MAX]),)
    if operator == "suffix nocase" or (operator == "suffix" and is_utf8(text)):
        return (_Ended(fold(text)[: -HULL_BYTES_MAX - 1 : -1]),)
    return None


def _ends(key: Key) -> tuple[bytes, ...]:
    """How a text begins, and how it ends backwards; nothing of other values."""
    text = key[1]
    if not isinstance(text, bytes):
        return ()
    return text[:HULL_BYTES_MAX], text[: -HULL_BYTES_MAX - 1 : -1]
