"""The index's arrays: how they grow, and how kernels are called on them."""

from bisect import bisect_right
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import numpy as np

from contrada.matching import jit, kernels, reading, seeking, updating, values
from contrada.matching.tables import (
    ATTR_MASK,
    BEGIN,
    CHANCE,
    COUNT_PARTS,
    COUNTED,
    COUNTERS,
    DOMAIN_SHIFT,
    EPOCH,
    GRAM_BITS_BYTES,
    HASH,
    HIGHEST_RANK,
    HITS,
    LENGTH,
    MATCHED,
    NEED_OUT,
    OK,
    PENDING,
    PIVOTS,
    ROOMS,
    SEEN,
    SEEN_ALL,
    SHAPES,
    SKETCH,
    SKETCH_REGISTERS,
    STAMP,
    Scratch,
    Store,
    grown,
    new_array,
)

EPOCHS_MAX: Final = 2**30
"""Notifications until the stamps of an index, which have 32 bits, are cleared. Beyond it: they
are, and counts of visits are halved."""

_TOUCHING_AT_ONCE: Final = 4096

_PLACES: Final = {name: place for place, name in enumerate(SHAPES)}
"""Where an array's address stands in the table."""
_HASH_TABLES: Final = ("names", "slots", "equal")
_FIRST: Final = {
    "counters": COUNTERS,
    "stack": 64,
    "rooms": ROOMS,
    "pending": PENDING,
    "out": 2 * PENDING,
}
"""The rows of arrays that begin with more than a few."""


class Arrays:
    """All arrays by name, with how many rows are used, and the kernels bound to them.

    Invariants: an array has at least as many rows as are used; a hash table's size is a power
    of two and more than twice what it holds; the views and the table of addresses are those of
    the arrays. A view is a memory view: to read or write one number it is twice as fast.
    """

    def __init__(self) -> None:
        self.of: dict[str, Any] = {}
        self.views: dict[str, Any] = {}
        self.used: dict[str, int] = dict.fromkeys(SHAPES, 0)
        self.used["rooms"] = ROOMS
        self.part_sketches: dict[tuple[int, int, int], int] = {}
        self._pivots: dict[int, list[tuple[int, int]]] = {}  # of trees, as `trees` has them
        self._table = np.zeros(2 * len(SHAPES), dtype=np.int64)
        self._rows: dict[str, int] = dict.fromkeys(SHAPES, 0)
        self._native: ModuleType | None = None
        self._store: Store | None = None
        self._scratch: Scratch | None = None
        for name in SHAPES:
            rows = 16 if name in _HASH_TABLES else _FIRST.get(name, 8)
            self.put(name, new_array(name, rows))

    def put(self, name: str, array: Any, rows: int | None = None) -> None:
        """Takes an array in place of the one of this name, with so many rows asked for, or all."""
        i = _PLACES[name]
        self._rows[name] = len(array) if rows is None else rows
        self.of[name] = array
        self.views[name] = array.data
        self._table[2 * i] = array.ctypes.data
        self._table[2 * i + 1] = len(array)
        self._store = None

    def reserve(self, name: str, rows: int) -> Any:
        """The array, with room for so many rows."""
        array = self.of[name]
        if rows > self._rows[name]:
            self._rows[name] = rows
            if rows > len(array):
                array = grown(array, rows)
                self.put(name, array, rows)
        return array

    def take(self, name: str, rows: int = 1) -> int:
        """The first of so many fresh rows."""
        first = self.used[name]
        self.reserve(name, first + rows)
        self.used[name] = first + rows
        return first

    def use_compiled(self) -> None:
        """Calls compiled kernels from now on, where they are to be had."""
        self._native = jit.compiled()

    @property
    def is_compiled(self) -> bool:
        """Whether compiled kernels are called."""
        return self._native is not None

    def store(self) -> Store:
        """Memory views of the store, for kernels that are not compiled."""
        return self._views()[0]

    def _views(self) -> tuple[Store, Scratch]:
        """Memory views of the arrays, for kernels that are not compiled."""
        if self._store is None:
            self._store = Store(*(self.views[name] for name in Store._fields))
            self._scratch = Scratch(*(self.views[name] for name in Scratch._fields))
        assert self._scratch is not None
        return self._store, self._scratch

    def match(self, msg: bytes) -> int:
        """`kernels.match`; clears the stamps when their numbers run out."""
        if self.views["counters"][EPOCH] >= EPOCHS_MAX:
            self.clear_stamps()
        if self._native is not None:
            return self._native.match(msg, self._table)  # type: ignore[no-any-return]
        return kernels.match(msg, *self._views())  # type: ignore[no-any-return]

    def match_rows(self, rows: Any, row: int, offsets: Any, found: Any) -> tuple[int, int]:
        """`native.match_rows` of columns or spans (see `batches`); only of compiled kernels."""
        assert self._native is not None
        if self.of["counters"][EPOCH] + len(offsets) >= EPOCHS_MAX:
            self.clear_stamps()
        of = rows.described, rows.address, rows.starts
        status, row = self._native.match_rows(*of, row, offsets, found, self._table)
        return int(status), int(row)

    def clear_stamps(self) -> None:
        """Starts the numbers of notifications anew."""
        self.of["counters"][EPOCH] = 0
        for name in ("state", "key_seen", "set_seen"):
            self.of[name][: self._rows[name]] = 0
        self.of["buckets"][: self.used["buckets"], STAMP] = 0
        self.fade()

    def fade(self) -> None:
        """Halves what was seen, so that what is seen from now on counts more."""
        self.of["counters"][SEEN_ALL] //= 2
        self.of["attrs"][: self.used["attrs"], SEEN] //= 2
        self.of["buckets"][: self.used["buckets"], HITS] //= 2

    def seen_again(self) -> None:
        """To be called before a notification is matched once more."""
        self.of["counters"][[SEEN_ALL, MATCHED]] -= 1

    def enter(
        self, words: Any, count: int, number: int = -1, begin: int = 0, *, is_wider: bool = False
    ) -> int:
        """`updating.enter`."""
        if self._native is not None:
            table = self._table
            return self._native.enter(words, count, number, begin, is_wider, table)  # type: ignore[no-any-return]
        store, _ = self._views()
        return updating.enter(words.data, count, number, begin, is_wider, store)  # type: ignore[no-any-return]

    def cheapest_value(self, number: int, statistics: "Arrays") -> tuple[int, int, float, bool]:
        """`values.cheapest_value`; the statistics may be other arrays with the same attributes."""
        seen = self.views["counters"][SEEN_ALL]
        if self._native is not None:
            return self._native.cheapest_value(number, seen, self._table, statistics._table)  # type: ignore[no-any-return]
        return values.cheapest_value(number, seen, self.store(), statistics.store())  # type: ignore[no-any-return]

    def share(self, h: int, attr: int, unseen: float) -> float:
        """`values.share`."""
        if self._native is not None:
            return self._native.share(h, attr, unseen, self._table)  # type: ignore[no-any-return]
        return values.share(h, attr, unseen, self.store())  # type: ignore[no-any-return]

    def new_sketch(self) -> int:
        """A sketch that has counted nothing."""
        row = self.take("sketches")
        self.views["sketches"][row, CHANCE] = SKETCH_REGISTERS << HIGHEST_RANK
        return row

    def sketch_of(self, attr: int, column: int, length: int) -> int:
        """The sketch of an attribute's values; or of parts of texts, of a column and a length."""
        if not column:
            return self.views["attrs"][attr, SKETCH]  # type: ignore[no-any-return]
        part = attr, column, length
        row = self.part_sketches.get(part)
        if row is None:
            row = self.part_sketches[part] = self.new_sketch()
        return row

    def count(self, row: int, h: int) -> None:
        """`values.count`."""
        if self._native is not None:
            self._native.count(row, h, self._table)
        else:
            values.count(row, h, self.store())

    def counted(self, row: int) -> float:
        """How many distinct constants a sketch counted, about."""
        return self.views["sketches"][row, COUNTED] / COUNT_PARTS  # type: ignore[no-any-return]

    def constraint_at(self, number: int, word: int) -> tuple[int, int, int]:
        """(attribute, domain, first operand) of the constraint that begins at a filter's word."""
        program = self.views["program"]
        at = self.views["filters"][number, BEGIN] + 1 + word
        head = program[at]
        return head & ATTR_MASK, head >> DOMAIN_SHIFT, program[at + 1]

    def fit_scratch(self) -> None:
        """To be called when the store was replaced: makes room in the scratch for it."""
        rows = {"state": "attrs", "present": "attrs", "set_seen": "sets_by_row"}
        rows["bucket_list"] = "buckets"
        for scratch, store in rows.items():
            self.reserve(scratch, self.used[store] + 1)
        self.reserve("stack", self.used["sets"] + 1)

    def rebuild_equal(self, count: int) -> None:
        """Fills the table of equal filters anew, with room for so many."""
        self.put("equal", np.zeros(self._size_for(count), dtype=np.int32))
        self._rehash("equal", self.used["filters"])

    def find_bucket(self, h: int) -> int:
        """`seeking.find_bucket`."""
        if self._native is not None:
            return self._native.find_bucket(h, self._table)  # type: ignore[no-any-return]
        return seeking.find_bucket(self.store(), h)  # type: ignore[no-any-return]

    def place_bucket(
        self,
        h: int,
        attr: int,
        unseen: float,
        domain: int,
        operand: int,
        statistics: "Arrays",
    ) -> int:
        """`updating.place_bucket`."""
        used = self.used["buckets"]
        self.reserve("buckets", used + 1)
        self.reserve("bucket_list", used + 1)
        self._room("slots", used + 1)
        place = h, attr, unseen, domain, operand
        if self._native is not None:
            found = self._native.place_bucket(*place, self._table, statistics._table, used)
        else:
            found = updating.place_bucket(*place, self.store(), statistics.store(), used)
        if found >> 2 == used:
            self.used["buckets"] += 1
        return found  # type: ignore[no-any-return]

    def enter_gram(self, attr: int, gram: int) -> None:
        """Sets the bit of some bytes of a substring."""
        if self.used["gram_bits"] == 0:
            self.take("gram_bits", GRAM_BITS_BYTES)
        bits = self.views["gram_bits"]
        bit = reading.gram_bit(attr, gram, 8 * len(bits))
        bits[bit >> 3] |= 1 << (bit & 7)

    def nameless_buckets(self, count: int) -> int:
        """The first of so many fresh buckets that no hash leads to."""
        first = self.take("buckets", count)
        self.reserve("bucket_list", first + count)
        self.of["buckets"][first : first + count, HASH] = -1
        return first

    def hang(self, bucket: int, number: int, hung: int, *, by_value: bool, alone: bool) -> int:
        """`updating.hang`; which entry of the bucket it is."""
        used = self.used["entries"]
        length: int = self.views["buckets"][bucket, LENGTH]
        self.reserve("entries", used + 2 * length + 1)
        flags = by_value * updating.BY_VALUE + alone * updating.ALONE
        if self._native is not None:
            used = self._native.hang(bucket, number, hung, flags, self._table, used)
        else:
            used = updating.hang(bucket, number, hung, flags, self.store(), used)
        self.used["entries"] = used
        return length

    def hang_at_value(self, number: int, statistics: "Arrays") -> bool:
        """`updating.hang_at_value`; whether the filter hangs now."""
        seen, used = self.views["counters"][SEEN_ALL], self.used
        before = used["entries"], used["buckets"]
        self.reserve("bucket_list", before[1] + 1)
        if self._native is not None:
            tables = self._table, statistics._table
            entries, buckets = self._native.hang_at_value(number, seen, *tables, *before)
        else:
            stores = self.store(), statistics.store()
            entries, buckets = updating.hang_at_value(number, seen, *stores, *before)
        if entries < 0:
            return False
        used["entries"], used["buckets"] = entries, buckets
        return True

    def unhang(self, bucket: int, number: int, at: int) -> None:
        """`updating.unhang`; the entry must be there."""
        if self._native is not None:
            found = self._native.unhang(bucket, number, at, self._table)
        else:
            found = updating.unhang(bucket, number, at, self.store())
        assert found, f"filter {number} does not hang in bucket {bucket}"

    def new_tree(self, bounds: list[tuple[int, int]]) -> int:
        """A tree whose pivots are spread over the (domain, key) of ends of ranges."""
        tree = self.take("trees")
        self.set_pivots(tree, bounds)
        return tree

    def set_pivots(self, tree: int, bounds: list[tuple[int, int]]) -> None:
        """Chooses the pivots of a tree."""
        ordered = sorted(set(bounds))
        step = max(1, -(-len(ordered) // PIVOTS))
        pivots = ordered[::step][:PIVOTS]
        self._pivots[tree] = pivots
        row = self.of["trees"][tree]
        row[0] = len(pivots)
        for i, (domain, key) in enumerate(pivots):
            row[2 + 2 * i], row[3 + 2 * i] = domain, key

    def bin_at(self, tree: int, key: tuple[int, int]) -> int:
        """The bin of a place among the pivots, as `seeking.bin_of`."""
        pivots = self._pivots.get(tree)
        if pivots is None:
            row: list[int] = self.of["trees"][tree].tolist()
            end = 2 + 2 * row[0]
            pivots = self._pivots[tree] = [*zip(row[2:end:2], row[3:end:2], strict=True)]
        return bisect_right(pivots, key)

    def touching(self, box: Any, closed: bool, inside: bool) -> Iterator[int]:
        """`updating.touching`, for all filters."""
        found = np.zeros(_TOUCHING_AT_ONCE + 1, dtype=np.int64)
        first, used, rows = 0, self.used["filters"], len(box) // 4
        while first < used:
            asked = (rows, int(closed), int(inside), first)
            if self._native is not None:
                count = self._native.touching(box, *asked, found, used, self._table)
            else:
                store = self.store()
                count = updating.touching(box.data, *asked, found.data, used, store)
            first = int(found[-1])
            yield from found[:count].tolist()

    def name_added(self, row: int, names: int) -> None:
        """Enters an attribute's name into the hash table, which then has so many."""
        if 2 * names > len(self.of["names"]):
            self.put("names", np.zeros(self._size_for(names), dtype=np.int32))
            self._rehash("names", self.used["attrs"])
        elif self._native is not None:
            self._native.enter_name(row, self._table)
        else:
            updating.enter_name(row, self.store())

    def _room(self, name: str, count: int) -> None:
        """Makes a hash table large enough."""
        if 2 * count > len(self.of[name]):
            self.put(name, np.zeros(self._size_for(count), dtype=np.int32))
            self._rehash(name, self.used["buckets"])

    @staticmethod
    def _size_for(count: int) -> int:
        return 1 << max(4, (2 * count).bit_length())

    def _rehash(self, name: str, used: int) -> None:
        kernel = {"slots": "rehash_buckets", "equal": "rehash_filters", "names": "rehash_names"}
        if self._native is not None:
            getattr(self._native, kernel[name])(self._table, used)
        else:
            getattr(updating, kernel[name])(self.store(), used)

    def dissolve(self) -> bool:
        """Frees one array; whether more are there. Nothing else may be asked any more."""
        self._store = self._scratch = None
        for name in (*self.of, *self.views):
            self.views.pop(name, None)
            return self.of.pop(name, None) is not None
        return False

    def bytes_used(self) -> int:
        """Bytes of all arrays together, as far as they were asked for."""
        return sum(
            self._rows[name] * array[:1].nbytes for name, array in self.of.items() if len(array)
        )


def grow_for(arrays: Arrays, status: int) -> None:
    """Doubles what a kernel said it needs more of."""
    name = {-1: "text", -2: "values", -3: "out"}[status]
    assert status != OK
    if status == NEED_OUT:
        arrays.seen_again()
    arrays.reserve(name, 2 * len(arrays.of[name]))
