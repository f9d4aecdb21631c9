"""The plain engine: dictionaries, sorted lists, and `Filter.matches`.

Each filter is filed under one of the attributes that it needs, at the *places* by one of which
every value of its set comes: the value itself, a part of a text, a cell of a grid of numbers, or
where an open interval begins or ends. What has none of these is filed under the attribute's
presence, and what needs no attribute is checked always. The filters that a notification comes by
are checked one by one, so that places may be wide, but never too narrow.

An index begins with this engine: it is filled ten times faster than the arrays, needs neither numpy
nor Numba, and matches as fast as compiled kernels while filters are few.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar
from zlib import crc32

from contrada.errors import InvalidValueError
from contrada.matching.spans import Given, decoded, exactly
from contrada.matching.traits import Trait, traits_of
from contrada.model import Envelope, Filter, Notification, ValueSet
from contrada.model.algebra.nesting import flattened
from contrada.model.algebra.notification import UNSTAMPED, keys_in
from contrada.model.algebra.product import ENVELOPE_SETS
from contrada.model.domains import line
from contrada.model.domains.values import NUMBER, TEXT, TIME, Key, is_system_name, key_of
from contrada.model.languages.casefold import fold

K = TypeVar("K", bound=Hashable)

PLAIN_PLACES_MAX: Final = 16
"""Places under which the plain engine files a filter. Beyond it: it is filed by presence."""

PART_BYTES_MAX: Final = 64
"""Bytes of the beginning or end of a text by which the plain engine looks it up. Beyond it: the
filters found are told apart when they are checked."""

SUBSTRING_BYTES: Final = 4
"""Bytes of a substring by which it is looked up."""

PARTS_LOOKED_UP_MAX: Final = 524_288
"""Parts of a notification's texts, of each length that is asked for, that are looked up. Beyond it:
every filter of the attribute that asks for one of such a length is checked."""

CELL_BITS: Final = (-40, 60)
"""Cells of numbers have widths from two to the first of these up to two to the second."""

_WORK: Final = 4
"""What a notification counts for, where a filter that is checked counts for one."""

_FEW: Final = 64
"""Filters that count for no more. Where more are checked, two of their attributes count for one."""

_PARTS_PER_STEP: Final = 8
"""Parts of texts that are looked up, and count for one."""

_CELL, _PRESENT, _FROM, _UNTIL = "cell", "present", "from", "until"

Place: TypeAlias = tuple[Any, Any]
"""What of a value leads here, its *shape*, and that part. The shape of a whole value is its domain,
so that the place is its key. Others are a cell of a domain and width, a part of a text, whether
folded, and its length, and presence. Or where an interval is open, and its cut."""

_ANYWHERE: Final[Place] = (_PRESENT, None, 0), None
_OPEN: Final = (_FROM, _UNTIL)

_COSTS: Final = {_FROM: 8, _UNTIL: 8, _ANYWHERE[0]: 32}
"""As many filters at a single value cost about as much as one place of these shapes."""


class _Entry(Generic[K]):
    """A filter of a key, and where it is filed."""

    __slots__ = ("file", "filter", "key", "places", "sets")

    def __init__(self, key: K, of: Filter) -> None:
        self.key = key
        self.filter = of
        self.sets = of.sides
        self.file: _File | None = None
        self.places: tuple[Place, ...] = ()


class _File:
    """The entries that are filed under one attribute.

    `tables` has one for each shape: by part an entry, or a dict of all; or, where intervals are
    open, their cuts in order and beside them the entries.
    """

    __slots__ = ("asked", "met", "tables")

    def __init__(self) -> None:
        self.asked = 0  # filters that name the attribute, wherever they are filed
        self.met = 0  # notifications that had it
        self.tables: dict[Any, Any] = {}

    def cost(self, places: tuple[Place, ...]) -> int:
        """How often, about, what is filed there would be checked.

        Where filters crowd, notifications do, too; and they come only if they have the attribute.
        """
        cost = 0
        for shape, part in places:
            cost += _COSTS.get(shape, 1)
            table = self.tables.get(shape)
            if shape in _OPEN:
                cost += len(table[0]) // 2 if table else 0
            elif table is not None:
                held = table.get(part, ())
                cost += 1 if isinstance(held, _Entry) else len(held)
        return cost * (1 + self.met)

    def put(self, entry: _Entry[Any]) -> None:
        """Files an entry where it says."""
        for shape, part in entry.places:
            if shape in _OPEN:
                cuts, entries = self.tables.setdefault(shape, ([], []))
                at = bisect_right(cuts, part)
                cuts.insert(at, part)
                entries.insert(at, entry)
                continue
            table = self.tables.setdefault(shape, {})
            held = table.setdefault(part, entry)
            if held is entry:
                continue
            first = held if isinstance(held, _Entry) else next(iter(held))
            if first.places == entry.places:  # Many filters name one value: they share that.
                entry.places = first.places
            if held is first:
                held = table[part] = {first: None}
            held[entry] = None

    def drop(self, entry: _Entry[Any]) -> None:
        """Takes out an entry."""
        for shape, part in entry.places:
            table = self.tables[shape]
            if shape in _OPEN:
                cuts, entries = table
                at = entries.index(entry, bisect_left(cuts, part))
                del cuts[at], entries[at]
            elif table[part] is entry or len(table[part]) == 1:
                del table[part]
            else:
                del table[part][entry]
            if not (table[0] if shape in _OPEN else table):
                del self.tables[shape]

    def find(self, keys: tuple[Any, ...], found: list[_Entry[Any]], room: int) -> int:
        """Adds the entries that the values, in order, come by, some perhaps more than once.

        `room` is how many parts of texts may be looked up; what is left is returned.
        Many values look at each place once.
        """
        for shape, table in self.tables.items():
            if type(shape) is int:  # for speed, not by `_parts`
                for domain, value in keys:
                    if domain == shape and (held := table.get(value)) is not None:
                        found += held if isinstance(held, dict) else (held,)
                continue
            if shape == _FROM:
                found += table[1][: bisect_right(table[0], keys[-1])]
                continue
            if shape == _UNTIL:
                found += table[1][bisect_right(table[0], keys[0]) :]
                continue
            if shape[0] == "contains":
                size = sum([len(text) for domain, text in keys if domain == TEXT])
                if size > room:
                    for held in table.values():
                        found += _listed(held)
                    continue
                room -= size
            parts = _parts(shape, keys[0])
            if len(keys) > 1:
                parts = {part for key in keys for part in _parts(shape, key)}
            for part in parts:
                held = table.get(part)
                if held is not None:
                    found += held if isinstance(held, dict) else (held,)
        return room


class PlainEngine(Generic[K]):
    """Keys with their filters, as objects. `work` counts what was done in matching."""

    is_compiled = False

    def __init__(self) -> None:
        self.work = 0
        self.notifications = 0
        self.envelope: tuple[str, ...] = ()
        self._are_int = True  # all keys are integers of 64 bits, which batches put out in one array
        self._candidates = 0
        self._several = 0
        self._entries: dict[K, _Entry[K] | tuple[_Entry[K], ...]] = {}
        self._files: dict[str, _File] = {}
        self._always: dict[_Entry[K], None] = {}

    # --- keys ---------------------------------------------------------------------------------

    def add(self, key: K, members: tuple[Filter, ...]) -> None:
        """Gives a key its filters, instead of those it had."""
        self.remove(key)
        places: dict[int, tuple[Place, ...]] = {}  # of sets that members share, by identity
        entries = tuple([self._filed(key, member, places) for member in members])
        self._entries[key] = entries[0] if len(entries) == 1 else entries
        self._several += len(entries) > 1
        if type(key) is not int or not -(2**63) <= key < 2**63:  # type: ignore[operator]
            self._are_int = False

    def _filed(self, key: K, member: Filter, known: dict[int, tuple[Place, ...]]) -> _Entry[K]:
        entry, best = _Entry(key, member), math.inf
        for name, value_set in member.sides.items():
            file = self._files.get(name)
            if file is None:
                file = self._files[name] = _File()
                self._find_envelope()
            file.asked += 1
            if value_set.line[:1] == line.EVERYTHING:  # it may be absent
                continue
            places = known.get(id(value_set))
            if places is None:
                places = known[id(value_set)] = places_of(value_set)
            cost = file.cost(places)
            if cost < best:
                best, entry.file, entry.places = cost, file, places
        if entry.file is None:
            self._always[entry] = None
        else:
            entry.file.put(entry)
        return entry

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
        self.work += len(self._entries)  # Whoever asks looks at each by the algebra.
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
        room = PARTS_LOOKED_UP_MAX
        for name, keys in known.items():
            file = files[name]
            file.met += 1
            room = file.find(keys, found, room)
        self.notifications += 1
        self._candidates = len(found)
        self.work += _WORK + len(found) + (PARTS_LOOKED_UP_MAX - room) // _PARTS_PER_STEP
        if len(found) > _FEW:
            self.work += sum([len(entry.sets) for entry in found]) // 2
        several = set(found) if len(found) > 1 else found
        matching = [entry.key for entry in several if _holds(entry.sets, known)]
        return list(dict.fromkeys(matching)) if self._several else matching

    def _known(self, given: Given | bytes, envelope: Envelope) -> dict[str, tuple[Key, ...]]:
        """The keys of those attributes that filters ask for and that are not absent."""
        asked = self._files
        if isinstance(given, Notification):
            held = given.attributes
            names = asked if len(asked) <= len(held) else held
            # Not by `keys_of`, which keeps the keys: mostly nobody asks for them again.
            known = {name: keys_in(held[name]) for name in names if name in held and name in asked}
        else:
            is_span = isinstance(given, bytes)
            attributes = decoded(given) if isinstance(given, bytes) else flattened(given)[0]
            try:
                known = {
                    name: (key_of(value),)
                    for name, value in attributes.items()
                    if name in asked and (name[0] != "@" or is_span or not is_system_name(name))
                }
            except InvalidValueError:  # several values, or what is refused with a reason
                return self._known(exactly(given, envelope, asked), envelope)
        if self.envelope:
            if not isinstance(given, Notification):
                given = Notification({}, envelope=envelope)
            known |= {name: given.keys_of(name) for name in self.envelope}
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
            "buckets": sum(
                len(table)
                for file in self._files.values()
                for shape, table in file.tables.items()
                if shape not in _COSTS
            ),
            "everywhere": len(self._always),
            "pooled": 0,
            "bytes": 0,
            "notifications": self.notifications,
            "candidates": self._candidates,
        }

    def validate(self) -> None:
        """Checks that every filter is found where it is filed, and none else. Cost: all filters."""
        entries = [entry for each in self._entries.values() for entry in _listed(each)]
        filed = Counter[tuple[Any, Any]]((each, None) for each in self._always)
        for file in self._files.values():
            for shape, table in file.tables.items():
                assert shape not in _OPEN or table[0] == sorted(table[0]), "cuts are out of order"
                for held in table[1:] if shape in _OPEN else table.values():
                    filed.update((each, file) for each in _listed(held))
        places = ((each, each.file, len(each.places) if each.file else 1) for each in entries)
        expected = Counter({(each, file): count for each, file, count in places})
        wrong = {each.key for each, _ in (expected - filed) + (filed - expected)}
        assert not wrong, f"filters are misfiled, of {wrong}"
        named = Counter(name for each in entries for name in each.sets)
        asked = {name: file.asked for name, file in self._files.items()}
        assert asked == named, "names are asked for by no filter"


def _listed(of: Any) -> Any:
    """What is held as the only one, or as several, or not at all."""
    return (of,) if isinstance(of, _Entry) else of or ()


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
        elif not of.may_hold(keys):
            return False
    return True


# --- places -------------------------------------------------------------------------------------


def places_of(of: ValueSet) -> tuple[Place, ...]:
    """Where a filter can be filed by a set without *absent*."""
    traits = traits_of(of, PLAIN_PLACES_MAX)
    if traits is not None:
        return tuple(dict.fromkeys(map(_place, traits)) if len(traits) > 1 else map(_place, traits))
    if of.text is None and len(of.line) <= 2:
        return _interval_places(of.line[0], of.line[1] if len(of.line) == 2 else ())
    return (_ANYWHERE,)


def _interval_places(start: Any, end: Any) -> tuple[Place, ...]:
    """The two or three cells, as wide as an interval, that it touches; else where it is open."""
    bounded = len(start) == len(end) == 2 and start[0] == end[0] and start[0] in (NUMBER, TIME)
    width = float(end[1]) - float(start[1]) if bounded else math.inf
    finest, widest = CELL_BITS
    if math.isfinite(width) and (bits := max(finest, math.frexp(width)[1])) <= widest:
        # Cells in which all numbers of a cell have one number: dividing by a power of two keeps
        # order.
        scale = 2.0**bits
        first, last = start[1] // scale, end[1] // scale
        if last - first <= 2:
            shape = _CELL, start[0], scale
            return tuple([(shape, first + i) for i in range(int(last - first) + 1)])
    if len(start) == 2:
        return ((_FROM, start),)
    return ((_UNTIL, end),) if len(end) == 2 else (_ANYWHERE,)


def _place(of: Trait) -> Place:
    """Where values with a trait come by."""
    kind, nocase, text = of
    if kind == "is":
        return text  # type: ignore[no-any-return]
    if kind == "contains":
        size = min(len(text), SUBSTRING_BYTES)
        text = min((text[i : i + size] for i in range(len(text) - size + 1)), key=crc32)
    elif kind != "=":
        text = text[:PART_BYTES_MAX] if kind == "prefix" else text[-PART_BYTES_MAX:]
    return (kind, nocase, 0 if kind == "=" else len(text)), text


def _parts(shape: Any, key: Any) -> Any:
    """What of a value has a shape."""
    kind, of, size = shape
    domain, value = key
    if kind == _CELL:
        return (value // size,) if domain == of else ()
    if kind == _PRESENT:
        return (None,)
    if domain != TEXT:
        return ()
    text = fold(value) if of else value
    if kind == "contains":
        return {text[i : i + size] for i in range(len(text) - size + 1)}
    return (text if kind == "=" else text[:size] if kind == "prefix" else text[-size:],)
