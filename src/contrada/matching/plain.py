"""The plain engine: dictionaries, sorted lists, and `Filter.matches`.

Each filter is filed under one of the attributes that it needs, under the *places* by one of which
every value of its set comes: the value itself, a part of a text, a cell of a grid of numbers.
Intervals that are open at one end stand in the order of the other. What has no place is filed under
the attribute's presence, and what needs no attribute is checked always. The filters that a
notification comes by are checked one by one, so that places may be wide, but never too narrow.

An index begins with this engine: it is filled ten times faster than the arrays, needs neither numpy
nor Numba, and matches as fast as compiled kernels while filters are few.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar
from zlib import crc32

from contrada.errors import InvalidValueError, UnknownOperatorError
from contrada.matching.spans import Given, decoded, exactly
from contrada.model import Envelope, Filter, Notification, ValueSet
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.algebra.product import ENVELOPE_SETS
from contrada.model.domains import line
from contrada.model.domains.values import NUMBER, TEXT, TIME, Key, key_of
from contrada.model.languages.atoms import implied_by, registry
from contrada.model.languages.casefold import fold
from contrada.model.languages.language import Every, Language, Literal, Pieces, Some, contains

K = TypeVar("K", bound=Hashable)

PLAIN_PLACES_MAX: Final = 16
"""Places under which the plain engine files a filter. Beyond it: it is filed by presence."""

PART_BYTES_MAX: Final = 64
"""Bytes of the beginning or end of a text by which the plain engine looks it up. Beyond it: the
filters found are told apart when they are checked."""

SUBSTRING_BYTES: Final = 4
"""Bytes of a substring by which it is looked up."""

CELL_BITS: Final = (-40, 60)
"""Cells of numbers have widths from two to the first of these up to two to the second."""

_ORDERED_COST: Final = 8
"""An open interval is taken to cost as much as a place where so many filters are."""

_PRESENT_COST: Final = 32
"""And presence as one where so many are."""

_WORK: Final = 4
"""What a notification counts for, where a filter that is checked counts for one."""

_CELL, _WHOLE, _PREFIX, _SUFFIX, _SUBSTRING = "cell", "whole", "prefix", "suffix", "substring"
_PARTS: Final = {"=": _WHOLE, "prefix": _PREFIX, "suffix": _SUFFIX, "contains": _SUBSTRING}

Shape: TypeAlias = tuple[str, Any, Any]
"""What of a value leads to a place: a cell of a domain and width; or a part of a text, whether it
is folded, and its length."""

Place: TypeAlias = tuple[Any, Any]
"""A key; or a shape and what of a value has it."""

Where: TypeAlias = tuple[Place, ...] | tuple[bool, line.Cut] | str
"""Places; or whether an interval begins at a cut or ends there; or the attribute's presence."""

_PRESENT: Final = "present"


class _Entry(Generic[K]):
    """A filter of a key, and where it is filed."""

    __slots__ = ("file", "filter", "key", "sets", "where")

    def __init__(self, key: K, of: Filter) -> None:
        self.key = key
        self.filter = of
        self.sets = of.sides
        self.file: _EntryFile | None = None
        self.where: Where = ()


_Held: TypeAlias = _Entry[Any] | dict[_Entry[Any], None]
"""The only entry of a place, or all."""


class _Ordered:
    """Entries in the order of a cut."""

    __slots__ = ("cuts", "entries")

    def __init__(self) -> None:
        self.cuts: list[line.Cut] = []
        self.entries: list[_Entry[Any]] = []

    def put(self, cut: line.Cut, entry: _Entry[Any]) -> None:
        at = bisect_right(self.cuts, cut)
        self.cuts.insert(at, cut)
        self.entries.insert(at, entry)

    def drop(self, cut: line.Cut, entry: _Entry[Any]) -> None:
        at = self.entries.index(entry, bisect_left(self.cuts, cut))
        del self.cuts[at], self.entries[at]


class _EntryFile:
    """The entries that are filed under one attribute."""

    __slots__ = ("asked", "beginning", "by_place", "ending", "met", "present", "shapes")

    def __init__(self) -> None:
        self.asked = 0  # filters that name the attribute, wherever they are filed
        self.met = 0  # notifications that had it
        self.by_place: dict[Place, _Held] = {}
        self.shapes: dict[Shape, int] = {}  # and how many places have each
        self.beginning = _Ordered()
        self.ending = _Ordered()
        self.present: dict[_Entry[Any], None] = {}

    def cost(self, where: Where) -> int:
        """How often, about, what is filed there would be checked.

        Where filters crowd, notifications do, too; and they come only if they have the attribute.
        """
        if isinstance(where, str):
            cost = _PRESENT_COST + len(self.present)
        elif where and isinstance(where[0], bool):
            cost = _ORDERED_COST + len((self.beginning if where[0] else self.ending).cuts) // 2
        else:
            cost = sum([1 + len(_listed(self.by_place.get(place))) for place in where])
        return cost * (1 + self.met)

    def put(self, entry: _Entry[Any]) -> None:
        """Files an entry where it says."""
        where: Any = entry.where
        if where == _PRESENT:
            self.present[entry] = None
        elif where and isinstance(where[0], bool):
            (self.beginning if where[0] else self.ending).put(where[1], entry)
        else:
            for place in where:
                self._put_at(place, entry)

    def _put_at(self, place: Place, entry: _Entry[Any]) -> None:
        held = self.by_place.get(place)
        if held is None:
            self.by_place[place] = entry
            if isinstance(place[0], tuple):
                self.shapes[place[0]] = self.shapes.get(place[0], 0) + 1
        elif isinstance(held, dict):
            held[entry] = None
        else:
            self.by_place[place] = {held: None, entry: None}

    def drop(self, entry: _Entry[Any]) -> None:
        """Takes out an entry."""
        where: Any = entry.where
        if where == _PRESENT:
            del self.present[entry]
        elif where and isinstance(where[0], bool):
            (self.beginning if where[0] else self.ending).drop(where[1], entry)
        else:
            for place in where:
                self._drop_at(place, entry)

    def _drop_at(self, place: Place, entry: _Entry[Any]) -> None:
        held = self.by_place[place]
        if isinstance(held, dict):
            del held[entry]
            if held:
                return
        del self.by_place[place]
        if isinstance(place[0], tuple):
            self.shapes[place[0]] -= 1
            if not self.shapes[place[0]]:
                del self.shapes[place[0]]

    def find(self, keys: tuple[Key, ...], found: list[_Entry[Any]]) -> None:
        """Adds the entries that the values come by, some perhaps more than once."""
        found += self.present
        for key in keys:
            self._add(key, found)
            for shape in self.shapes:
                for part in _parts(shape, key):
                    self._add((shape, part), found)
            if self.beginning.cuts:
                found += self.beginning.entries[: bisect_right(self.beginning.cuts, key)]
            if self.ending.cuts:
                found += self.ending.entries[bisect_right(self.ending.cuts, key) :]

    def _add(self, place: Place, found: list[_Entry[Any]]) -> None:
        held = self.by_place.get(place)
        if held is not None:
            if isinstance(held, dict):
                found += held
            else:
                found.append(held)


class PlainEngine(Generic[K]):
    """Keys with their filters, as objects. `work` counts what was done in matching."""

    is_compiled = False

    def __init__(self) -> None:
        self.work = 0
        self.notifications = 0
        self.envelope: tuple[str, ...] = ()
        self._are_int = True
        self._candidates = 0
        self._several = 0
        self._entries: dict[K, _Entry[K] | tuple[_Entry[K], ...]] = {}
        self._files: dict[str, _EntryFile] = {}
        self._always: dict[_Entry[K], None] = {}

    # --- keys ---------------------------------------------------------------------------------

    def add(self, key: K, members: tuple[Filter, ...]) -> None:
        """Gives a key its filters, instead of those it had."""
        self.remove(key)
        entries = tuple([self._filed(key, member) for member in members])
        self._entries[key] = entries[0] if len(entries) == 1 else entries
        self._several += len(entries) > 1
        if self._are_int and not is_int(key):
            self._are_int = False

    def _filed(self, key: K, member: Filter) -> _Entry[K]:
        entry, best = _Entry(key, member), math.inf
        for name, value_set in member.sides.items():
            file = self._file_asked(name)
            if value_set.line[:1] == line.EVERYTHING:  # it may be absent
                continue
            where = where_of(value_set)
            cost = file.cost(where)
            if cost < best:
                best, entry.file, entry.where = cost, file, where
        if entry.file is None:
            self._always[entry] = None
        else:
            entry.file.put(entry)
        return entry

    def _file_asked(self, name: str) -> _EntryFile:
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = _EntryFile()
            self._find_envelope()
        file.asked += 1
        return file

    def _find_envelope(self) -> None:
        self.envelope = tuple(name for name in ENVELOPE_SETS if name in self._files)

    def remove(self, key: K) -> None:
        """Takes a key and its filters away; a key that is not there is no error."""
        entries = self._entries.pop(key, None)
        if isinstance(entries, tuple):
            self._several -= len(entries) > 1
        for entry in _listed(entries):
            if entry.file is None:
                del self._always[entry]
            else:
                entry.file.drop(entry)
            for name in entry.sets:
                self._files[name].asked -= 1
                if not self._files[name].asked:
                    del self._files[name]
                    self._find_envelope()

    def members(self, key: K) -> tuple[Filter, ...]:
        """The filters of a key. KeyError where there is none."""
        return tuple(entry.filter for entry in _listed(self._entries[key]))

    def near(self, _product: object, *, inside: bool) -> list[K]:
        """The keys with a filter that may meet a product, or lie inside it: all."""
        del inside
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    # --- matching -----------------------------------------------------------------------------

    def match(self, given: Given | bytes, envelope: Envelope = UNSTAMPED) -> list[K]:
        """See `Index.match` and `Index.match_span`."""
        known, files = self._known(given, envelope), self._files
        found: list[_Entry[K]] = list(self._always)
        for name, keys in known.items():
            file = files[name]
            file.met += 1
            file.find(keys, found)
        self.notifications += 1
        self._candidates = len(found)
        self.work += _WORK + len(found)
        several = set(found) if len(found) > 1 else found
        matching = [entry.key for entry in several if _holds(entry.sets, known)]
        return list(dict.fromkeys(matching)) if self._several else matching

    def _known(self, given: Given | bytes, envelope: Envelope) -> dict[str, tuple[Key, ...]]:
        """The keys of those attributes that filters ask for and that are not absent."""
        asked = self._files
        if isinstance(given, Notification):
            names = asked if len(asked) <= len(given) else given
            known = {name: given.keys_of(name) for name in names if name in given and name in asked}
        else:
            is_span = isinstance(given, bytes)
            attributes = decoded(given) if isinstance(given, bytes) else given
            try:
                known = {
                    name: (key_of(value),)  # type: ignore[arg-type]
                    for name, value in attributes.items()
                    if name in asked and (name[0] != "@" or (is_span and name not in ENVELOPE_SETS))
                }
            except InvalidValueError:  # several values, or what is refused with a reason
                return self._known(exactly(given, envelope, asked), envelope)
        if self.envelope:
            stamped = given
            if not isinstance(stamped, Notification):
                stamped = Notification({}, envelope=envelope)
            known |= {name: stamped.keys_of(name) for name in self.envelope}
        return known

    def match_spans(
        self, spans: Sequence[bytes] | Any, envelope_of: Callable[[int], Envelope]
    ) -> tuple[Any, Any]:
        """See `Index.match_spans`."""
        from contrada.matching import batches

        listed = batches.spans_in(spans) if hasattr(spans, "to_pylist") else spans
        of = envelope_of if self.envelope else lambda _: UNSTAMPED
        rows = (self.match(span, of(row)) for row, span in enumerate(listed))
        return batches.joined(rows, are_int=self._are_int)

    def match_batch(self, notifications: Iterable[Given | bytes]) -> tuple[Any, Any]:
        """See `Index.match_batch`."""
        from contrada.matching import batches

        return batches.joined(map(self.match, notifications), are_int=self._are_int)

    def match_table(self, table: Any) -> tuple[Any, Any]:
        """See `Index.match_batch`."""
        from contrada.matching import batches

        batches.check_columns(table)
        return self.match_batch(batches.rows_of(batches.asked_columns(table, self._files)))

    # --- upkeep -------------------------------------------------------------------------------

    def dissolve(self, units: int) -> bool:
        """Frees so many filters; whether more are left. Nothing else may be asked any more."""
        self._files.clear()
        for _ in range(min(units, len(self._entries))):
            self._entries.popitem()
        return bool(self._entries)

    def sizes(self) -> dict[str, int]:
        """Figures for `IndexStatistics`."""
        return {
            "filters": sum(len(_listed(each)) for each in self._entries.values()),
            "attributes": len(self._files),
            "buckets": sum(len(file.by_place) for file in self._files.values()),
            "everywhere": len(self._always),
            "pooled": 0,
            "bytes": 0,
            "notifications": self.notifications,
            "candidates": self._candidates,
        }

    def validate(self) -> None:
        """Checks that every filter is found where it is filed, and none else. Cost: all filters."""
        entries = [entry for each in self._entries.values() for entry in _listed(each)]
        named: dict[str, int] = {}
        filed: dict[_Entry[K], int] = dict.fromkeys(self._always, 1)
        for file in self._files.values():
            held = [each for of in file.by_place.values() for each in _listed(of)]
            for entry in (*file.present, *file.beginning.entries, *file.ending.entries, *held):
                assert entry.file is file, f"a filter of {entry.key!r} is in another file"
                filed[entry] = filed.get(entry, 0) + 1
            for order in (file.beginning, file.ending):
                assert order.cuts == sorted(order.cuts), "cuts are out of order"
        for entry in entries:
            places = entry.where if entry.file else "always"
            is_several = isinstance(places, tuple) and not (places and isinstance(places[0], bool))
            expected = len(places) if is_several else 1
            assert filed.pop(entry, 0) == expected, f"a filter of {entry.key!r} is misfiled"
            for name in entry.sets:
                named[name] = named.get(name, 0) + 1
        assert not filed, "gone filters are filed"
        asked = {name: file.asked for name, file in self._files.items()}
        assert asked == named, "names are asked for by no filter"


def is_int(key: object) -> bool:
    """Whether a key is an integer of 64 bits, as batches put them out in one array."""
    return type(key) is int and -(2**63) <= key < 2**63


def _listed(of: Any) -> tuple[Any, ...]:
    if isinstance(of, _Entry):
        return (of,)
    return tuple(of or ())


# --- whether a filter matches -------------------------------------------------------------------


def _holds(sets: Mapping[str, ValueSet], known: dict[str, tuple[Key, ...]]) -> bool:
    """As `Filter.matches`, on keys; an operator that nobody registered accepts every text."""
    for name, of in sets.items():
        keys = known.get(name)
        if keys is None:
            if of.line[:1] != line.EVERYTHING:  # not absent, which it is
                return False
        elif of.text is None and len(keys) == 1:  # the usual case, for speed
            if not bisect_right(of.line, keys[0]) & 1:
                return False
        elif not any(_may_hold(of, key) for key in keys):
            return False
    return True


def _may_hold(of: ValueSet, key: Key) -> bool:
    try:
        return of.holds(key)
    except UnknownOperatorError:
        return _may_contain(of.text, key[-1])


def _may_contain(of: Any, text: Any) -> bool:
    if isinstance(of, Every):
        return all(_may_contain(part, text) for part in of.parts)
    if isinstance(of, Some):
        return any(_may_contain(part, text) for part in of.parts)
    if isinstance(of, Literal) and registry.find(of.atom.operator) is None:
        return True
    return contains(of, text)


# --- places -------------------------------------------------------------------------------------


def where_of(of: ValueSet) -> Where:
    """Where a filter can be filed by a set without *absent*."""
    places = _cut_places(of.line)
    if places is not None and of.text is not None:
        within = _text_places(of.text)
        places = None if within is None else places + within
    if places is not None and len(places) <= PLAIN_PLACES_MAX:
        return tuple(dict.fromkeys(places))
    cuts = of.line
    if of.text is None and len(cuts) <= 2:
        if len(cuts[0]) == 2:
            return True, cuts[0]
        if len(cuts) == 2 and len(cuts[1]) == 2:
            return False, cuts[1]
    return _PRESENT


def _cut_places(cuts: line.Cuts) -> tuple[Place, ...] | None:
    """Places of single values, prefixes and short intervals; None where there are others."""
    if len(cuts) > 2 * PLAIN_PLACES_MAX:
        return None
    places: list[Place] = []
    for start, end in line.pieces(cuts):
        found = _piece_places(start, end)
        if found is None:
            return None
        places += found
    return tuple(places)


def _piece_places(start: Any, end: Any) -> list[Place] | None:
    key = line.first_key(start)
    if line.cut_after(key) == end:
        return [key]
    if len(start) == 1:
        return None
    if start[0] == TEXT:
        prefix: Any = start[1]
        if line.starting_with(prefix) == ((start,) if end is None else (start, end)):
            return _part_place(_PREFIX, prefix, is_folded=False)
    elif start[0] in (NUMBER, TIME) and end is not None and end[0] == start[0]:
        return _cells(start[0], start[1], end[1])
    return None


def _cells(domain: int, low: Any, high: Any) -> list[Place] | None:
    """The two or three cells, as wide as an interval, that it touches; None where it is too wide.

    Cells in which all numbers of a cell have one number: dividing by a power of two keeps order.
    """
    width = float(high) - float(low)
    if not math.isfinite(width):
        return None
    finest, widest = CELL_BITS
    bits = max(finest, math.frexp(width)[1])
    if bits > widest:
        return None
    scale = 2.0**bits
    first, last = low // scale, high // scale
    if not last - first <= 2:
        return None
    shape = (_CELL, domain, scale)
    return [(shape, first + i) for i in range(int(last - first) + 1)]


def _text_places(of: Language) -> tuple[Place, ...] | None:
    if isinstance(of, Pieces):
        return _cut_places(of.cuts)
    if isinstance(of, Literal):
        return _literal_places(of)
    parts = [_text_places(part) for part in of.parts]
    known = [places for places in parts if places is not None]
    if isinstance(of, Every):
        return min(known, key=len, default=None)
    if len(known) < len(parts):
        return None
    return tuple(place for places in known for place in places)


def _literal_places(of: Literal) -> tuple[Place, ...] | None:
    operator, constant = of.atom
    if not of.positive or not constant:
        return None
    part = _PARTS.get(operator.removesuffix(" nocase"))
    if part is None:
        implied = implied_by(of.atom)
        if implied is None or implied.operator.removesuffix(" nocase") not in _PARTS:
            return None
        return _literal_places(Literal(implied, True))
    return tuple(_part_place(part, constant, is_folded=operator.endswith(" nocase")))


def _part_place(part: str, text: bytes, *, is_folded: bool) -> list[Place]:
    if part == _SUBSTRING:
        size = min(len(text), SUBSTRING_BYTES)
        text = min((text[i : i + size] for i in range(len(text) - size + 1)), key=crc32)
    elif part != _WHOLE:
        text = text[:PART_BYTES_MAX] if part == _PREFIX else text[-PART_BYTES_MAX:]
    return [((part, is_folded, 0 if part == _WHOLE else len(text)), text)]


def _parts(shape: Shape, key: Key) -> Any:
    """What of a value has a shape."""
    part, of, size = shape
    if part == _CELL:
        return (key[1] // size,) if key[0] == of else ()
    if key[0] != TEXT:
        return ()
    text: Any = fold(key[1]) if of else key[1]  # type: ignore[arg-type]
    if part == _SUBSTRING:
        return {text[i : i + size] for i in range(len(text) - size + 1)}
    return (text if part == _WHOLE else text[:size] if part == _PREFIX else text[-size:],)
