"""`PlainEngine`: dictionaries, sorted lists, and `Filter.matches`.

Each filter is indexed under one of the attributes that it needs, at *places* one of which every
value of its set reaches: the value itself, a part of a text, a cell of a grid of numbers, or the
end of an open interval. A filter without these is indexed under the attribute's presence, and one
that needs no attribute is always checked. A place may lead to too many filters, never to too few:
the filters that a notification reaches are checked one by one.

An index begins with this engine: it is filled ten times faster than the arrays, needs neither numpy
nor Numba, and matches as fast as compiled kernels while filters are few.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, Generic, TypeVar

from contrada.matching.index_keys import FROM, PRESENT, UNTIL, ValuePlace, parts_of, places_of
from contrada.matching.packed import Given, select_keys
from contrada.model import Envelope, Filter, Notification, ValueSet
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.algebra.product import ENVELOPE_SETS
from contrada.model.domains import line
from contrada.model.domains.values import TEXT, Key

K = TypeVar("K", bound=Hashable)

PARTS_LOOKED_UP_MAX: Final = 524_288
"""Parts of a notification's texts, of each length, that are looked up. Beyond it: every filter of
the attribute with a part of such a length is checked."""

_WORK: Final = 4
"""The work of a notification, relative to one checked filter."""

_FEW: Final = 64
"""Checked filters without further work. Beyond it: two of their attributes count as one unit."""

_PARTS_PER_STEP: Final = 8
"""Look-ups of parts of texts that count as one unit."""

_COSTS: Final = {FROM: 8, UNTIL: 8, PRESENT: 32}
"""The number of filters at a single value that cost about as much as one place of these shapes."""


class _Entry(Generic[K]):
    """A filter of a key, and its places."""

    __slots__ = ("file", "filter", "key", "places", "sets")

    def __init__(self, key: K, of: Filter) -> None:
        self.key = key
        self.filter = of
        self.sets = of.sides
        self.file: _File | None = None
        self.places: tuple[ValuePlace, ...] = ()


class _File:
    """The entries that are indexed under one attribute.

    `tables` has by shape and part an entry, or a dict of all; `open` the sorted cuts of open
    intervals, and beside them their entries.
    """

    __slots__ = ("asked", "met", "open", "tables")

    def __init__(self) -> None:
        self.asked = 0  # filters that name the attribute, wherever they are filed
        self.met = 0  # notifications that had it
        self.tables: dict[Any, dict[Any, Any]] = {}
        self.open: dict[str, tuple[list[Any], list[Any]]] = {}

    def cost(self, places: tuple[ValuePlace, ...]) -> int:
        """Returns about the frequency of checks of an entry at these places.

        Notifications are likely at values with many filters; and only those with the attribute
        count.
        """
        cost = 0
        for shape, part in places:
            cost += _COSTS.get(shape, 1)
            if shape in self.open:
                cost += len(self.open[shape][0]) // 2
            elif (table := self.tables.get(shape)) is not None:
                cost += len(_to_list(table.get(part)))
        return cost * (1 + self.met)

    def put(self, entry: _Entry[Any]) -> None:
        """Adds an entry at its places."""
        for shape, part in entry.places:
            if type(shape) is str:
                cuts, entries = self.open.setdefault(shape, ([], []))
                at = bisect_right(cuts, part)
                cuts.insert(at, part)
                entries.insert(at, entry)
                continue
            table = self.tables.setdefault(shape, {})
            held = table.setdefault(part, entry)
            if held is entry:
                continue
            if isinstance(held, _Entry):
                held = table[part] = {held: None}
            held[entry] = None
            first = next(iter(held))
            if first.places == entry.places:  # Many filters name one value: they share that.
                entry.places = first.places

    def drop(self, entry: _Entry[Any]) -> None:
        """Removes an entry."""
        for shape, part in entry.places:
            if type(shape) is str:
                cuts, entries = self.open[shape]
                at = entries.index(entry, bisect_left(cuts, part))
                del cuts[at], entries[at]
                continue
            table = self.tables[shape]
            if table[part] is not entry and len(table[part]) > 1:
                del table[part][entry]
                continue
            del table[part]
            if not table:
                del self.tables[shape]

    def find(self, keys: tuple[Any, ...], found: list[_Entry[Any]], room: int) -> int:
        """Adds the entries that sorted values reach, some perhaps more than once.

        `room` limits the look-ups of parts of texts; the rest of it is returned.
        """
        if self.open:  # for speed: most have none
            for shape, (cuts, entries) in self.open.items():
                if shape == FROM:
                    found += entries[: bisect_right(cuts, keys[-1])]
                else:
                    found += entries[bisect_right(cuts, keys[0]) :]
        parts: Any
        for shape, table in self.tables.items():
            if type(shape) is int:  # for speed, not by `parts_of`
                for domain, value in keys:
                    if domain == shape and (held := table.get(value)) is not None:
                        found += (held,) if isinstance(held, _Entry) else held
                continue
            size = 0
            if shape[0] == "contains":
                size = sum([len(text) for domain, text in keys if domain == TEXT])
            if size > room:
                parts, size = table, 0
            elif len(keys) == 1:
                parts = parts_of(shape, keys[0])
            else:  # each place is looked at once
                parts = {part for key in keys for part in parts_of(shape, key)}
            room -= size
            for part in parts:
                if (held := table.get(part)) is not None:
                    found += (held,) if isinstance(held, _Entry) else held
        return room


class PlainEngine(Generic[K]):
    """Keys with their filters, as objects. `work` counts the work of matching."""

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

    def add(self, key: K, members: tuple[Filter, ...]) -> None:
        """Gives a key its filters, in place of its former ones."""
        self.remove(key)
        places: dict[int, tuple[ValuePlace, ...]] = {}  # of sets that members share, by identity
        entries = tuple([self._filed(key, member, places) for member in members])
        self._entries[key] = entries[0] if len(entries) == 1 else entries
        self._several += len(entries) > 1
        if type(key) is not int or not -(2**63) <= key < 2**63:  # type: ignore[operator]
            self._are_int = False

    def _filed(self, key: K, member: Filter, known: dict[int, tuple[ValuePlace, ...]]) -> _Entry[K]:
        entry, best = _Entry(key, member), inf
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
        """Removes a key and its filters; an unknown key is no error."""
        entries = _to_list(self._entries.pop(key, None))
        self._several -= len(entries) > 1
        for entry in entries:
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
        """Returns the filters of a key. KeyError for an unknown one."""
        held = self._entries[key]
        return (
            (held.filter,) if isinstance(held, _Entry) else tuple([it.filter for it in held or ()])
        )

    def near(self, _product: object, *, inside: bool) -> list[K]:
        """Returns all keys: each may have a filter that meets a product, or lies inside it."""
        del inside
        self.work += len(self._entries)  # The caller tests each by the algebra.
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def match(self, given: Given | bytes, envelope: Envelope = UNSTAMPED) -> list[K]:
        """See `Index.match` and `Index.match_span`."""
        files, of_envelope = self._files, self.envelope
        if isinstance(given, Notification) and not of_envelope:  # As mostly.
            known = given.keys_among(files)
        else:
            known = select_keys(given, envelope, files, of_envelope)
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

    def match_spans(
        self, spans: Sequence[bytes] | Any, envelope_of: Callable[[int], Envelope]
    ) -> tuple[Any, Any]:
        """See `Index.match_spans`."""
        from contrada.matching import record_batches

        listed = record_batches.spans_in(spans) if hasattr(spans, "to_pylist") else spans
        of = envelope_of if self.envelope else lambda _: UNSTAMPED
        rows = (self.match(span, of(row)) for row, span in enumerate(listed))
        return record_batches.join_rows(rows, are_int=self._are_int)

    def match_batch(self, notifications: Iterable[Given | bytes]) -> tuple[Any, Any]:
        """See `Index.match_batch`."""
        from contrada.matching import record_batches

        return record_batches.join_rows(map(self.match, notifications), are_int=self._are_int)

    def match_table(self, table: Any) -> tuple[Any, Any]:
        """See `Index.match_batch`."""
        from contrada.matching import record_batches

        record_batches.check_columns(table)
        return self.match_batch(
            record_batches.rows_of(record_batches.select_columns(table, self._files))
        )

    def dissolve(self, units: int) -> bool:
        """Frees up to `units` filters; returns whether more are left. No other call may follow."""
        self._files.clear()
        for _ in range(min(units, len(self._entries))):
            self._entries.popitem()
        return bool(self._entries)

    def sizes(self) -> dict[str, int]:
        """Returns figures for `IndexStatistics`."""
        tables = [each for file in self._files.values() for each in file.tables.items()]
        return {
            "filters": sum(len(_to_list(each)) for each in self._entries.values()),
            "attributes": len(self._files),
            "buckets": sum(len(table) for shape, table in tables if shape not in _COSTS),
            "everywhere": len(self._always),
            "pooled": 0,
            "bytes": 0,
            "notifications": self.notifications,
            "candidates": self._candidates,
        }

    def validate(self) -> None:
        """Checks that exactly the indexed filters are found at their places. Cost: all filters."""
        entries = [entry for each in self._entries.values() for entry in _to_list(each)]
        filed = Counter[Any]((each, None) for each in self._always)
        for file in self._files.values():
            for shape, table in file.tables.items():
                for part, held in table.items():
                    filed.update((each, file, shape, part) for each in _to_list(held))
            for shape, (cuts, at) in file.open.items():
                assert cuts == sorted(cuts), "cuts are out of order"
                filed.update((e, file, shape, cut) for cut, e in zip(cuts, at, strict=True))
        expected = Counter[Any]((each, None) for each in entries if each.file is None)
        for each in entries:
            expected.update((each, each.file, *place) for place in each.places)
        wrong = {each.key for each, *_ in (expected - filed) + (filed - expected)}
        assert not wrong, f"filters are misfiled, of {wrong}"
        named = Counter(name for each in entries for name in each.sets)
        asked = {name: file.asked for name, file in self._files.items()}
        assert asked == named, "names are asked for by no filter"


def _to_list(of: Any) -> Any:
    """Returns the entries of one, of several, or of none."""
    return (of,) if isinstance(of, _Entry) else of or ()


def _holds(sets: Mapping[str, ValueSet], known: dict[str, tuple[Key, ...]]) -> bool:
    """As `Filter.matches`, on keys; an unregistered operator accepts every text."""
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
