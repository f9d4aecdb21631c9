"""`IndexKey`: properties of which every value of a set has one, so that filters can be found.

An index key is a single value; or that a text begins with, ends with, contains or is something,
with or without case. Both engines index filters by the keys of one of their sets. A value with the
key need not be in the set: the filter is checked afterwards.

The plain engine uses *places*, one of which every value of a set reaches: by its key, by a cell of
a grid of numbers, by the end of an open interval, or by presence. So places may be wide, but never
too narrow.
"""

import math
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

from contrada.model import ValueSet
from contrada.model.domains import line
from contrada.model.domains.values import NUMBER, TEXT, TIME
from contrada.model.languages.atoms import implied_atom
from contrada.model.languages.casefold import fold
from contrada.model.languages.language import Every, Language, Literal, Pieces, Some

_LARGE: Final = 2**63
"""Half-open intervals that begin between minus this number and it hold too many values."""

KINDS: Final = ("=", "prefix", "suffix", "contains")


class IndexKey(NamedTuple):
    """One key: `is` a value, or one of KINDS, with a text, folded for `nocase`."""

    kind: str
    nocase: bool
    of: Any


def traits_of(of: ValueSet, most: int) -> tuple[IndexKey, ...] | None:
    """Returns the keys of a set; None if some values have none, or for more than `most`."""
    found = _of_cuts(of.line, most)
    if found is not None and of.text is not None:
        within = _of_language(of.text, most)
        found = None if within is None else found + within
    return None if found is None or len(found) > most else found


def prefix_of(start: line.Cut, end: line.Cut | None) -> bytes | None:
    """Returns the prefix of all texts of an interval, or None."""
    if len(start) == 1 or start[0] != TEXT:
        return None
    prefix: bytes = start[1]  # type: ignore[assignment]
    expected = (start,) if end is None else (start, end)
    return prefix if line.starting_with(prefix) == expected else None


def _of_cuts(cuts: line.Cuts, most: int) -> tuple[IndexKey, ...] | None:
    """Returns single values, and prefixes."""
    if not cuts:  # the usual case of a set that has a language, for speed
        return ()
    if len(cuts) > 2 * most:
        return None
    if len(cuts) == 2:  # mostly one text, or numbers from a bound on, for speed
        low, high = cuts
        if low[0] == TEXT and len(low) == 2 and high == line.cut_after(low):
            return (IndexKey("is", False, low),)
        if low[0] == NUMBER and len(low) + len(high) == 3:
            bound: Any = low[1] if len(low) == 2 else high[-1]
            if abs(bound) < _LARGE:
                return None
    found: list[IndexKey] = []
    for start, end in line.pieces(cuts):
        prefix = prefix_of(start, end)
        if prefix is not None:
            found.append(IndexKey("prefix", False, prefix))
            continue
        while start != end:
            if end is None or len(found) >= most:
                return None
            key = line.first_key(start)
            start = line.cut_after(key)
            if start > end or (start != end and key[0] in (NUMBER, TEXT)):
                return None  # it has more values than anybody would count
            found.append(IndexKey("is", False, key))
    return tuple(found)


def _of_language(of: Language, most: int) -> tuple[IndexKey, ...] | None:
    if isinstance(of, Pieces):
        return _of_cuts(of.cuts, most)
    if isinstance(of, Literal):
        return _of_literal(of)
    parts = [_of_language(part, most) for part in of.parts]
    known = [part for part in parts if part is not None]
    if isinstance(of, Every):
        return min(known, key=_commonness, default=None)
    assert isinstance(of, Some)
    if len(known) < len(parts):
        return None
    return tuple(dict.fromkeys(index_key for part in known for index_key in part))


def _of_literal(of: Literal) -> tuple[IndexKey, ...] | None:
    operator, constant = of.atom
    if not of.positive or not constant:
        return None
    kind = operator.removesuffix(" nocase")
    if kind not in KINDS:
        implied = implied_atom(of.atom)
        if implied is None or implied.operator.removesuffix(" nocase") not in KINDS:
            return None
        return _of_literal(Literal(implied, True))
    return (IndexKey(kind, operator != kind, constant),)


def _commonness(of: tuple[IndexKey, ...]) -> float:
    """Returns about the share of texts with one of these keys: a long part of a text is rare."""
    return sum(0.01 if each.kind in ("is", "=") else 1 / (2 + 8 * _length(each)) for each in of)


def _length(of: IndexKey) -> int:
    """Returns about the bytes by which the engines look up a part of a text."""
    return min(len(of.of), 4 if of.kind == "contains" else 24)


# --- places -------------------------------------------------------------------------------------


PLAIN_PLACES_MAX: Final = 16
"""Places of a filter in the plain engine. Beyond it: it is indexed by presence."""

PART_BYTES_MAX: Final = 64
"""Bytes of the beginning or end of a text by which the plain engine looks it up. Beyond it: the
filters found are distinguished when they are checked."""

SUBSTRING_BYTES: Final = 4
"""Bytes of a substring by which it is looked up."""

CELL_BITS: Final = (-40, 60)
"""Cells of numbers have widths from two to the first of these up to two to the second."""

ValuePlace: TypeAlias = tuple[Any, Any]
"""The *shape* of a place, and the part of the value there. The shape of a whole value is its
domain, so that the place is its key; that of an interval's open end is a text, beside its cut.
Others are a cell with its domain and width, a part of a text, folded or not, with its length, and
presence."""

FROM, UNTIL = "from", "until"
PRESENT: Final = ("present", None, 0)
_ANYWHERE: Final[ValuePlace] = PRESENT, None


def places_of(of: ValueSet) -> tuple[ValuePlace, ...]:
    """Returns the places of a filter by a set without *absent*."""
    index_keys = traits_of(of, PLAIN_PLACES_MAX)
    if index_keys is not None:
        return tuple(
            dict.fromkeys(map(_place, index_keys))
            if len(index_keys) > 1
            else map(_place, index_keys)
        )
    if of.text is not None or len(of.line) > 2:
        return (_ANYWHERE,)
    start, end = of.line if len(of.line) == 2 else (of.line[0], ())
    if len(start) == len(end) == 2 and start[0] == end[0] and start[0] in (NUMBER, TIME):
        cells = _cells(start[0], start[1], end[1])
        if cells:
            return cells
    if len(start) == 2:
        return ((FROM, start),)
    return ((UNTIL, end),) if len(end) == 2 else (_ANYWHERE,)


def _cells(domain: int, start: Any, end: Any) -> tuple[ValuePlace, ...]:
    """Returns the two or three cells, as wide as an interval, that it touches, if any."""
    width = float(end) - float(start)
    finest, widest = CELL_BITS
    if not math.isfinite(width) or (bits := max(finest, math.frexp(width)[1])) > widest:
        return ()
    # Division by a power of two keeps the order of numbers, so a value between two of a cell is in
    # the same cell.
    scale = 2.0**bits
    first, last = start // scale, end // scale
    if last - first > 2:
        return ()
    shape = "cell", domain, scale
    return tuple([(shape, first + i) for i in range(int(last - first) + 1)])


def _place(of: IndexKey) -> ValuePlace:
    """Returns the place of values with a key."""
    kind, nocase, text = of
    if kind == "is":
        return text  # type: ignore[no-any-return]
    if kind == "contains":
        # Any piece of it would do. By a hash, filters with words in common spread over their
        # pieces, which the first or the last ones would not.
        size = min(len(text), SUBSTRING_BYTES)
        text = min((text[i : i + size] for i in range(len(text) - size + 1)), key=crc32)
    elif kind != "=":
        text = text[:PART_BYTES_MAX] if kind == "prefix" else text[-PART_BYTES_MAX:]
    return (kind, nocase, 0 if kind == "=" else len(text)), text


def parts_of(shape: Any, key: Any) -> Any:
    """Returns the parts of a value of a shape that is neither a domain nor an open interval's."""
    kind, of, size = shape
    domain, value = key
    if kind == "cell":
        return (value // size,) if domain == of else ()
    if kind == "present":
        return (None,)
    if domain != TEXT:
        return ()
    text = fold(value) if of else value
    if kind == "contains":
        return {text[i : i + size] for i in range(len(text) - size + 1)}
    return (text if kind == "=" else text[:size] if kind == "prefix" else text[-size:],)
