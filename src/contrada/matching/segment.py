"""`IndexSegment`: distinct filters in arrays, each assigned to its places.

A segment has slots of keys, not keys. Equal filters are stored once, with the slots of all their
keys. A removal leaves unused words, texts, sets and places behind; the words are counted, and in
time a new segment is filled, in parts (see `array_engine`).

Invariants, checked by `validate`: exactly the live filters are assigned (see `assignment`); the
equal-filter table leads to every live filter. Tests against plain evaluation check that every
notification that a filter matches reaches its place.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from contrada.matching.assignment import Assignment
from contrada.matching.filter_compiler import (
    ATOM_KINDS,
    Compiler,
    Program,
    high_key,
    low_key,
    pop_entries,
)
from contrada.matching.index_arrays import Arrays, Chains
from contrada.matching.kernels.filter_reader import (
    ATTR,
    BYTES_MAX,
    CONSTRAINTS_MAX,
    EQUAL,
    NEED_ROOM,
    UNUSED_BYTES,
    WORDS_MAX,
    read_filters,
)
from contrada.matching.kernels.memory import Rows
from contrada.matching.kernels.schema import (
    EPOCHS_MAX,
    GONE,
    REPEATS,
    USES_BYTES,
    VERIFY,
    WIDER,
    WORDS_MASK,
)
from contrada.matching.kernels.update import enter, put_program, show_key
from contrada.matching.packed import PackedBatch
from contrada.model import Filter, Product, ValueSet
from contrada.model.algebra.product import ENVELOPE_SETS
from contrada.model.algebra.value_set import EVERYTHING
from contrada.model.domains import line
from contrada.model.domains.values import TEXT
from contrada.model.languages.language import Every, Literal, Some

NO_KEY: Final = -1
_READ: Final = ("filters", "program", "texts", "text_slots", "equal", "links")
"""The arrays that `filter_reader.read_filters` fills, in the order of its `used`;"""
_ROOM: Final = (1, WORDS_MAX, BYTES_MAX + USES_BYTES * CONSTRAINTS_MAX, 0, 0, 2)
"""and the rows that a filter may need of each: hash tables grow in other ways."""
UNUSED_BYTES_MIN: Final = 2**19
"""A segment is worn if at least as many of its bytes, and half of them, are unused."""


class IndexSegment:
    """Filters by number, their keys' slots, and their places."""

    def __init__(self, statistics: "IndexSegment | None" = None) -> None:
        self.arrays = Arrays()
        before: Compiler | None = None if statistics is None else statistics.compiler
        self.compiler: Compiler = Compiler(self.arrays, before)
        self.arrays.take_buckets(1)
        self._free: list[int] = []
        self._chains = Chains(self.arrays)
        self._several: dict[int, tuple[tuple[int, int], ...]] = {}
        self.exact: dict[int, Filter] = {}
        self.assignment = Assignment(self.arrays, self.compiler, self._chains, self.exact)
        self.opaque: dict[int, list[int]] = {}
        self.fallback: set[int] = set()
        self.words_unused = 0
        if statistics is not None:
            self.assignment.statistics = statistics.arrays
            self.arrays.seed[0] = statistics.arrays.seed[0]  # it is asked by hash
            if statistics.notifications >= EPOCHS_MAX // 2:  # this one begins to count stamps anew
                statistics.arrays.fade()
            self.arrays.counters.seen[0] = statistics.notifications

    def forget_statistics(self) -> None:
        """Forgets the segment of the inherited statistics."""
        statistics = self.assignment.statistics
        assert statistics is not None
        self.arrays.counters.matched[0] = statistics.counters.matched[0]
        self.assignment.statistics = None
        self.compiler.forget_before()

    # --- filters ----------------------------------------------------------------------------

    def add(self, slot: int, members: Iterable[Filter], programs: Iterable[Program]) -> None:
        """Gives a key's slot its filters with these programs; equal ones once."""
        self.reserve_slots(slot + 1)
        taken: dict[int, int] = {}
        for member, program in zip(members, programs, strict=True):
            number, is_new = self._entered(program.words, is_wider=program.is_inexact)
            if number not in taken:
                taken[number] = self._link(number, slot)
            if is_new:
                self._assign(number, member, program)
        if len(taken) == 1:
            ((number, self.arrays.owned_links[slot]),) = taken.items()
            self.arrays.owned[slot] = number + 1
        else:
            self.arrays.counters.several[0] = REPEATS
            self._several[slot] = tuple(taken.items())

    def remove(self, slot: int) -> None:
        """Removes the filters of a key's slot; a filter without any key is removed."""
        if not self.knows(slot):
            return
        for number, row in self._links_of(slot):
            self._release(number, slot, row)
        self.arrays.owned[slot] = 0
        self._several.pop(slot, None)

    def knows(self, slot: int) -> bool:
        """Whether a slot has its filters, even if none."""
        is_used = slot < self.arrays.used["owned"]
        return is_used and (self.arrays.owned[slot] > 0 or slot in self._several)

    def filters_of(self, slot: int) -> list[Filter]:
        """Returns the filters of a slot."""
        return [self.filter(number) for number in self.numbers(slot)]

    def name_keys(self, keys: Any) -> None:
        """Passes the integer keys by their slots to kernels."""
        are_int = isinstance(keys, Rows)
        self.arrays.counters.int_keys[0] = int(are_int)
        if are_int and self.arrays.of["keys"] is not keys:
            self.arrays.put("keys", keys)

    def numbers(self, slot: int) -> tuple[int, ...]:
        """Returns the numbers of a slot's filters."""
        return tuple(number for number, _ in self._links_of(slot))

    def _links_of(self, slot: int) -> tuple[tuple[int, int], ...]:
        """Returns the filters of a slot, each with the row in `links` that leads back."""
        number = self.arrays.owned[slot] - 1
        if number >= 0:
            return ((number, self.arrays.owned_links[slot]),)
        return self._several.get(slot, ())

    def reserve_slots(self, slots: int) -> None:
        """Makes room for this many slots of keys."""
        if slots > self.arrays.used["owned"]:
            self.arrays.take("owned", slots - self.arrays.used["owned"])

    def _assign(self, number: int, of: Filter, program: Program) -> None:
        verify = bool(program.opaque) or program.is_inexact
        if verify:
            marks = VERIFY | WIDER if program.is_inexact else VERIFY
            self.arrays.program[self.arrays.filters.begin[number]] |= marks
            self.exact[number] = of
            if not program.is_inexact:
                self.opaque[number] = program.opaque
        if program.has_sets:
            self._note_sets(number, of)
        constraints = self.assignment.note_ranges(number, of, program.words)
        self.compiler.use(number, constraints or ())
        self.assignment.assign(number, of, constraints)

    def _link(self, number: int, slot: int) -> int:
        """Gives a filter one more key's slot; returns the row in `links` that leads back."""
        filters = self.arrays.filters
        before = filters.key[number]
        filters.key[number], row = self._chains.put(slot, before)
        if before >= 0:  # that slot was alone and had no row
            self._set_row(before, number, self.arrays.links.next[row])
        if row >= 0:
            show_key(number, self.arrays.memory)
        return row

    def _set_row(self, slot: int, number: int, row: int) -> None:
        if self.arrays.owned[slot] == number + 1:
            self.arrays.owned_links[slot] = row
        else:
            links = self._several[slot]
            self._several[slot] = tuple((n, row if n == number else other) for n, other in links)

    def _release(self, number: int, slot: int, row: int) -> None:
        """Removes a key's slot from a filter, which is removed without any."""
        filters = self.arrays.filters
        filters.key[number] = self._chains.take(slot, row, filters.key[number])
        if filters.key[number] != NO_KEY:
            show_key(number, self.arrays.memory)
            return
        self.assignment.unassign(number)
        begin = self.arrays.filters.begin[number]
        program = self.arrays.program
        self.words_unused += 1 + (program[begin] & WORDS_MASK)
        self.compiler.disuse(number)
        program[begin] |= GONE
        self.exact.pop(number, None)
        self.opaque.pop(number, None)
        self.fallback.discard(number)
        self._free.append(number)

    def filter(self, number: int) -> Filter:
        """Returns the filter of a number."""
        return self.assignment.filter(number)

    def touching(self, product: Product, *, inside: bool) -> list[int]:
        """Returns the filters that may meet a product, or lie in it. Cost: all filters."""
        attrs = self.compiler.attrs
        rows: list[int] = []
        closed = not product.default.meets(_PRESENT)
        asked = product.sides
        if closed and not inside:  # All but the envelope's attributes.
            asked = {**ENVELOPE_SETS, **asked}
        for name, value_set in asked.items():
            if inside and value_set.canonical().line == EVERYTHING.line:
                continue  # it may be anything, although its form does not show it
            attr = attrs.get(name)
            if attr is not None:
                rows += (attr, *_hull(value_set, self.compiler))
            elif inside:
                return []
        return list(self.arrays.touching(array("q", rows), closed, inside))

    def empty(self) -> set[int]:
        """Returns the filters that match nothing, or for which that is undecided.

        A satisfiable one is decided once, unless its operator may be registered later.
        """
        used = self.arrays.used["filters"]
        places = self.arrays.filters.place[:used]
        nowhere = [number for number, place in enumerate(places) if place == NO_KEY]
        empty = {number for number in self.fallback if self.filter(number).is_empty}
        self.fallback = {n for n in self.fallback if n in empty or self.filter(n).unknown()}
        return empty.union(nowhere).difference(self._free) if nowhere else empty

    def slots_within(self, numbers: set[int]) -> set[int]:
        """Returns the slots with filters only among these; also those without any."""
        slots = self.slots_of(numbers)
        found = {slot for slot in slots if numbers.issuperset(self.numbers(slot))}
        return found.union(slot for slot, links in self._several.items() if not links)

    def slots_of(self, numbers: Iterable[int]) -> set[int]:
        """Returns the slots of the keys of filters; most have one key, which needs no chain."""
        heads = map(self.arrays.filters.key.__getitem__, numbers)
        chain = self._chains.values
        return {slot for head in heads for slot in ((head,) if head >= 0 else chain(head))}

    def slots(self, number: int) -> Iterator[int]:
        """Yields the slots of a filter's keys."""
        yield from self._chains.values(self.arrays.filters.key[number])

    def _entered(self, words: list[int], *, is_wider: bool) -> tuple[int, bool]:
        """Returns the filter with these words, and whether it is new; a wider one always is."""
        arrays = self.arrays
        arrays.reserve_equal(len(self._free))
        used, begin = arrays.used["filters"], arrays.used["program"]
        fresh = self._free[-1] if self._free else used
        arrays.reserve("filters", used + 1)
        arrays.reserve("program", begin + 2 * len(words) + 1)
        count = put_program(array("q", words), begin, arrays.memory)
        number: int = enter(begin, count, fresh, is_wider, arrays.memory)
        if number != fresh:
            return number, False
        if self._free:
            self._free.pop()
            if not is_wider:
                arrays.enter_again(number)
        else:
            arrays.used["filters"] = used + 1
        arrays.used["program"] = begin + count + 1
        arrays.used["equal"] += not is_wider
        return number, True

    def _note_sets(self, number: int, of: Filter) -> None:
        """Stores a filter's requirements of its attributes, and whether it may be empty."""
        for attr in self.compiler.marks_nocase(of):
            self.arrays.attrs.nocase[attr] = 1
        if any(map(_may_be_empty, of.sets.values())):
            self.fallback.add(number)

    def read(self, rows: PackedBatch, slots: "array[int]", row: int) -> int:
        """Adds encoded filters, from a row on, to slots without filters; `assign_since` assigns.

        Returns the first row that is left to the codec, or the number of all.
        """
        arrays, used = self.arrays, self.arrays.used
        self.reserve_slots(max(slots) + 1)
        status, state = NEED_ROOM, array("q", [*map(used.__getitem__, _READ), 0, -1])
        while status == NEED_ROOM:
            for name, count, room in zip(_READ, state, _ROOM, strict=False):
                if room:
                    arrays.reserve(name, count + room)
            arrays.finish_texts(CONSTRAINTS_MAX)
            arrays.reserve_equal(len(self._free))
            if state[ATTR] >= 0:
                arrays.give_room(state[ATTR])
            state[EQUAL] = used["equal"]
            status, row = read_filters(rows.address, rows.starts, slots, row, state, arrays.memory)
            used.update(zip(_READ, state, strict=False))
        self.compiler.bytes_unused += state[UNUSED_BYTES]
        return row

    # --- statistics ------------------------------------------------------------------------------

    @property
    def notifications(self) -> int:
        """The number of matched notifications, halved at each `fade`."""
        return int(self.arrays.counters.seen[0])

    @property
    def is_worn(self) -> bool:
        """Whether half of it is left behind by removed filters, or a pool is crowded."""
        unused = 4 * self.words_unused + self.compiler.bytes_unused
        if self.assignment.has_crowded_pool or unused < UNUSED_BYTES_MIN:
            return self.assignment.has_crowded_pool
        used = self.arrays.used
        held = 4 * used["program"] + 8 * used["sets"] + used["texts"]
        return 2 * unused >= held

    # --- saving -------------------------------------------------------------------------------

    def state(self, packed: Callable[[Any], bytes]) -> dict[str, Any]:
        """Returns the state outside the arrays, for `index_file`."""
        return {
            "free": self._free,
            "free_links": self._chains.free_rows,
            "several": list(self._several.items()),
            "has_several": self.arrays.counters.several[0],
            "seen": self.arrays.counters.seen[0],
            "matched": self.arrays.counters.matched[0],
            "epoch": self.arrays.counters.epoch[0],
            "part_sketches": list(self.arrays.part_sketches.items()),
            "words_unused": self.words_unused,
            "doubtful": sorted(self.fallback),
            "exact": [(number, packed(each)) for number, each in self.exact.items()],
            "opaque": list(self.opaque.items()),
            "compiler": self.compiler.state(packed),
            "pools": self.assignment.pools.state(),
            "moving": list(self.assignment.moving.items()),
        }

    def restore(
        self,
        arrays: dict[str, Any],
        used: dict[str, int],
        state: dict[str, Any],
        unpacked: Callable[[bytes], Any],
    ) -> None:
        """Restores a saved segment."""
        self.arrays.restore(arrays, used)
        self._free = list(state["free"])
        self._chains.free_rows = list(state["free_links"])
        self.arrays.counters.several[0] = state["has_several"]
        self.arrays.counters.seen[0] = state["seen"]
        self.arrays.counters.matched[0] = state["matched"]
        self.arrays.counters.epoch[0] = state["epoch"]
        self._several = {
            slot: tuple((number, row) for number, row in each) for slot, each in state["several"]
        }
        self.arrays.part_sketches = {tuple(part): row for part, row in state["part_sketches"]}
        self.words_unused = state["words_unused"]
        self.fallback = set(state["doubtful"])
        self.exact |= {number: unpacked(each) for number, each in state["exact"]}
        self.opaque = {number: list(sets) for number, sets in state["opaque"]}
        self.compiler.restore(state["compiler"], unpacked)
        self.assignment.pools.restore(state["pools"])
        self.assignment.moving = dict(state["moving"])

    # --- the end ------------------------------------------------------------------------------

    def dissolve(self, units: int) -> bool:
        """Frees up to `units` entries of its tables, or one array; returns whether more are left.

        To free a large segment at once would delay an update.
        """
        held = (self.exact, self.opaque, self._several, self._free, self._chains.free_rows)
        if any(pop_entries(each, units) for each in held) or self.compiler.dissolve(units):
            return True
        return self.arrays.dissolve()

    # --- checks -------------------------------------------------------------------------------

    def live(self) -> list[int]:
        """Returns the numbers of the live filters."""
        gone = set(self._free)
        return [n for n in range(self.arrays.used["filters"]) if n not in gone]

    def validate(self, slots: list[int]) -> None:
        """Checks the invariants for these slots of keys; AssertionError names the broken one."""
        for slot in slots:
            assert self.knows(slot), f"slot {slot} has no filters"
            for number in self.numbers(slot):
                assert slot in set(self.slots(number)), f"slot {slot} lost filter {number}"
        live = self.live()
        self.assignment.validate(live)
        for number in live:
            begin = self.arrays.filters.begin[number]
            header = self.arrays.program[begin]
            if not header & WIDER:
                found = enter(begin, header & WORDS_MASK, -1, False, self.arrays.memory)
                assert found == number, "lost filter"
            slots = list(self.slots(number))
            assert slots, f"filter {number} has no key"
            for slot in slots:
                assert number in self.numbers(slot), f"filter {number} has a key that has it not"

    def sizes(self) -> dict[str, Any]:
        """Returns figures for `statistics`."""
        return {
            "filters": self.arrays.used["filters"] - len(self._free),
            "attributes": len(self.compiler.attrs),
            "buckets": self.arrays.used["buckets"],
            "pooled": len(self.assignment.pools.filters()),
            "everywhere": self.arrays.buckets.length[0],
            "bytes": self.arrays.bytes_used(),
        }


def _may_be_empty(value_set: ValueSet) -> bool:
    """Whether only a decision about its text can show a set to be empty."""
    text = value_set.text
    if isinstance(text, Literal):
        return not value_set.line and text.atom.operator not in ATOM_KINDS
    return not value_set.line and isinstance(text, Every | Some)


_ANY_DOMAIN: Final = 0
_PRESENT: Final = ValueSet(((1,),))


def _hull(value_set: ValueSet, compiler: Compiler) -> tuple[int, int, int, bool]:
    """Returns (domain, lowest, highest key, whether absence is in it) of a set, else any domain; of
    texts only of one.
    """
    cuts = value_set.line
    has_absence = cuts[:1] == line.EVERYTHING
    if has_absence:
        cuts = line.intersection(cuts, line.PRESENT)
    if value_set.text is None and cuts and not len(cuts) & 1:
        tag, end = cuts[0][0], cuts[-1]
        if tag < TEXT and (end[0] == tag or end == (tag + 1,)):
            return tag, low_key(cuts[0])[0], high_key(tag, end)[0], has_absence
        first = line.first_key(cuts[0])
        if tag == TEXT and end == line.cut_after(first) and isinstance(first[1], bytes):
            ref = compiler.known_text(first[1])
            return tag, ref, ref, has_absence
    return _ANY_DOMAIN, 0, 0, has_absence
