"""Traits: what every value of a set has one of, so that filters can be found by it.

A trait is a single value; or that a text begins, ends, contains or is something, with or without
case. Both engines file filters by traits of one of their sets. A value with the trait need not be
in the set: that is checked when the filter is.
"""

from typing import Any, Final, NamedTuple

from contrada.model import ValueSet
from contrada.model.domains import line
from contrada.model.domains.values import NUMBER, TEXT
from contrada.model.languages.atoms import implied_by
from contrada.model.languages.language import Every, Language, Literal, Pieces, Some

_LARGE: Final = 2**63
"""Above a smaller number there are more than anybody would count, and below it."""

KINDS: Final = ("=", "prefix", "suffix", "contains")


class Trait(NamedTuple):
    """One trait: `is` a value, with its key; or one of KINDS, with a text, folded for `nocase`."""

    kind: str
    nocase: bool
    of: Any


def traits_of(of: ValueSet, most: int) -> tuple[Trait, ...] | None:
    """The traits of a set. None if some values have no trait, or the set has more than `most`."""
    found = _of_cuts(of.line, most)
    if found is not None and of.text is not None:
        within = _of_language(of.text, most)
        found = None if within is None else found + within
    return None if found is None or len(found) > most else found


def prefix_of(start: line.Cut, end: line.Cut | None) -> bytes | None:
    """The prefix whose texts an interval holds, or None."""
    if len(start) == 1 or start[0] != TEXT:
        return None
    prefix: bytes = start[1]  # type: ignore[assignment]
    expected = (start,) if end is None else (start, end)
    return prefix if line.starting_with(prefix) == expected else None


def _of_cuts(cuts: line.Cuts, most: int) -> tuple[Trait, ...] | None:
    """Single values, and prefixes."""
    if not cuts:  # the usual case of a set that has a language, for speed
        return ()
    if len(cuts) > 2 * most:
        return None
    if len(cuts) == 2:  # mostly one text, or numbers from a bound on, for speed
        low, high = cuts
        if low[0] == TEXT and len(low) == 2 and high == line.cut_after(low):
            return (Trait("is", False, low),)
        if low[0] == NUMBER and len(low) + len(high) == 3:
            bound: Any = low[1] if len(low) == 2 else high[-1]
            if abs(bound) < _LARGE:
                return None
    found: list[Trait] = []
    for start, end in line.pieces(cuts):
        prefix = prefix_of(start, end)
        if prefix is not None:
            found.append(Trait("prefix", False, prefix))
            continue
        while start != end:
            if end is None or len(found) >= most:
                return None
            key = line.first_key(start)
            start = line.cut_after(key)
            if start > end or (start != end and key[0] in (NUMBER, TEXT)):
                return None  # it has more values than anybody would count
            found.append(Trait("is", False, key))
    return tuple(found)


def _of_language(of: Language, most: int) -> tuple[Trait, ...] | None:
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
    return tuple(dict.fromkeys(trait for part in known for trait in part))


def _of_literal(of: Literal) -> tuple[Trait, ...] | None:
    operator, constant = of.atom
    if not of.positive or not constant:
        return None
    kind = operator.removesuffix(" nocase")
    if kind not in KINDS:
        implied = implied_by(of.atom)
        if implied is None or implied.operator.removesuffix(" nocase") not in KINDS:
            return None
        return _of_literal(Literal(implied, True))
    return (Trait(kind, operator != kind, constant),)


def _commonness(of: tuple[Trait, ...]) -> float:
    """How many texts have one of these traits, about: a long part of a text is rare."""
    return sum(0.01 if each.kind in ("is", "=") else 1 / (2 + 8 * _length(each)) for each in of)


def _length(of: Trait) -> int:
    """The bytes by which a part of a text is looked up at most, as the engines do about."""
    return min(len(of.of), 4 if of.kind == "contains" else 24)
