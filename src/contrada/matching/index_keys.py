"""`IndexKey`: properties of which every value of a set has one, so that filters can be found.

An index key is a single value; or that a text begins with, ends with, contains or is something,
with or without case. Filters are found by the keys of one of their sets. A value with the key need
not be in the set: the filter is checked afterwards.
"""

from typing import Any, Final, NamedTuple

from contrada.model import ValueSet
from contrada.model.domains import line
from contrada.model.domains.values import NUMBER, TEXT
from contrada.model.languages.atoms import implied_atom
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
    """Returns about the bytes by which the index looks up a part of a text."""
    return min(len(of.of), 4 if of.kind == "contains" else 24)
