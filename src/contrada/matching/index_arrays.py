"""`Arrays`: the index's arrays, their growth, and the kernels that update them."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from contrada.matching.kernels import batch_match, bucket_lookup, match, schema, text_store, update
from contrada.matching.kernels.box_overlap import touching
from contrada.matching.kernels.column_visits import LOOK_UPS
from contrada.matching.kernels.evaluate import constraint_words, operand
from contrada.matching.kernels.memory import Rows, numbers
from contrada.matching.kernels.scratch import empty_hulls, gram_bit
from contrada.matching.table_growth import TableGrowth, empty_table
from contrada.model.languages.work_budget import Uncollected, Work, budget
from contrada.model.native import NATIVE

COPIED_BYTES_MAX: Final = 2**21
"""Bytes of an array of an index. Beyond it: its growth reserves 64 times the room, if the system
allows it, and hardly ever copies it again."""

BYTES_PER_STEP: Final = 400
"""Bytes that a kernel compares in a step of work, with badly predicted branches."""

_ROOM: Final = 64
_UNBOUNDED: Final = 2**62
_TOUCHING_AT_ONCE: Final = 4096

_PLACES: Final = {name: 2 * place for place, name in enumerate(schema.ARRAYS)}
"""The position of an array's address in the table; its length is next."""
_PER_ROW: Final = {
    "parts": schema.PART_COLUMNS,
    "hulls": 2,
    "pivots": schema.PIVOTS,
    "levels": schema.PIVOTS + 1,
    "pool_attrs": schema.POOL_ATTRS,
    "registers": schema.SKETCH_REGISTERS,
}
"""Arrays with several rows for each of another's."""
_WITH: Final = {
    "attrs": ("parts", "state", "hulls", "present"),
    "trees": ("pivots", "levels"),
    "pools": ("pool_attrs",),
    "sketches": ("registers",),
    "buckets": ("bucket_list", "bucket_visits"),
    "sets_by_row": ("set_seen",),
    "owned": ("owned_links", "key_seen"),
    "outcomes": ("block_keys", "undecided"),
}
"""Arrays with as many rows as another one."""
_HASH_TABLES: Final = ("names", "slots", "equal", "text_slots")
_FIRST: Final = {
    **dict.fromkeys(_HASH_TABLES, 16),
    "counters": 1,
    "seed": 1,
    "stack": 64,
    "rooms": schema.ROOMS,
    "trees": 1,
    "pivots": 1,
    "levels": 1,
    "pools": 1,
    "pool_attrs": 1,
    "pending": schema.PENDING,
    "out": 256,
    "visits": 2 * LOOK_UPS,
    "outcomes": 2 * schema.LANES,
    "block_keys": 2 * schema.LANES,
    "undecided": 2 * schema.LANES,
    "lane_rows": schema.LANES,
}
"""The first capacity of arrays that do not begin with eight rows."""

_NEEDED: Final = {
    schema.NEED_TEXT: "text",
    schema.NEED_VALUES: "values",
    schema.NEED_OUT: "out",
    schema.NEED_VISITS: "visits",
    schema.NEED_OUTCOMES: "outcomes",
}
"""The array that a kernel asks to be larger, by its answer."""

_SEED: Final = hash("the seed of hashes") & ((1 << schema.HASH_SEED_BITS) - 1)
"""A secret of each process, from Python's hash of a text."""

Cheapest: TypeAlias = tuple[int, int, float, int]
"""The answer of `update.cheapest_value`."""


class Arrays:
    """All arrays by name, with the number of used rows, and the kernels bound to them.

    `arrays.buckets.length[row]` is a number. `of` has the arrays themselves, for access to many
    rows. `memory` is the argument of kernels.

    Invariants: an array has at least as many rows as are used; a hash table's size is a power of
    two, and at most three quarters of it are used; the views and the table of addresses are those
    of the arrays.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self) -> None:
        self.of: dict[str, Rows] = {}
        self.used: dict[str, int] = dict.fromkeys(schema.ARRAYS, 0)
        self.used |= {"rooms": schema.ROOMS, "seed": 1}
        self.part_sketches: dict[tuple[int, int, int], int] = {}
        self.block_rows_max = schema.BLOCK_ROWS
        self.batches = 0
        """How often the memory of blocks was prepared for a batch."""
        self.results = numbers(0)
        """Room for the results of a batch."""
        self._growth = {name: TableGrowth() for name in ("slots", "equal", "text_slots")}
        self._pivots: dict[int, list[tuple[int, int]]] = {}  # of trees, as `pivots` has them
        self._table = array("q", bytes(16 * len(schema.ARRAYS)))
        self.memory: Any = self if NATIVE is None else NATIVE.address_of(self._table)
        for name, layout in schema.ARRAYS.items():
            self.put(name, Rows.zeros(layout, _FIRST.get(name, 8) * _PER_ROW.get(name, 1)))
        self.seed[0] = _SEED
        self.counters.work[0] = _UNBOUNDED
        self.counters.block_shared_min[0] = schema.BLOCK_SHARED_MIN

    def put(self, name: str, rows: Rows) -> None:
        """Replaces the array of this name."""
        self.of[name] = rows
        setattr(self, name, rows if rows.layout.fields else rows.numbers)
        if NATIVE is not None:
            i = _PLACES[name]
            self._table[i], self._table[i + 1] = NATIVE.address_of(rows.numbers), len(rows)

    def reserve(self, name: str, rows: int) -> None:
        """Makes room for this many rows."""
        if rows > self.of[name].size:
            self.put(name, grown(self.of[name], rows))
            for other in _WITH.get(name, ()):
                self.reserve(other, len(self.of[name]) * _PER_ROW.get(other, 1))

    def take(self, name: str, rows: int = 1) -> int:
        """Returns the first of this many unused rows."""
        first = self.used[name]
        self.reserve(name, first + rows)
        self.used[name] = first + rows
        return first

    # --- matching -----------------------------------------------------------------------------

    def match_rows(self, rows: Any, row: int, offsets: Any, found: Any) -> tuple[int, int]:
        """`batch_match.match_rows` of columns or spans."""
        columns = rows.described if NATIVE is None else rows.described.numbers
        of = columns, rows.cells, rows.address, rows.starts
        status, row = self.bounded(budget(), batch_match.match_rows, *of, row, offsets, found)
        return status, row

    def all_hold(self, address: int, starts: Any, numbers: Any, steps_max: int) -> bool:
        """`match.all_hold`, in at most `steps_max` steps."""
        self.counters.work[0] = steps_max * BYTES_PER_STEP
        try:
            return bool(match.all_hold(address, starts, numbers, self.memory))
        finally:
            self.counters.work[0] = _UNBOUNDED

    def bounded(self, work: Work | None, kernel: Any, *arguments: Any) -> Any:
        """Runs a kernel within the work of this budget, the innermost one, and the outer ones."""
        if work is None:
            return kernel(*arguments, self.memory)
        left = self.lend(work)
        try:
            return kernel(*arguments, self.memory)
        finally:
            self.charge(work, left)

    def lend(self, work: Work) -> int:
        """Bounds the next kernel by a budget. Returns the steps that are left for `charge`."""
        left = work.steps_left()
        self.counters.work[0] = left * BYTES_PER_STEP
        return left

    def charge(self, work: Work, left: int) -> None:
        """Counts the steps of the kernel, no more than `left`: the verification ends the rest."""
        used = left - max(0, self.counters.work[0]) // BYTES_PER_STEP
        self.counters.work[0] = _UNBOUNDED
        if used > 0:  # Less after a match of a finalizer, which has removed the bound.
            work.spend(used)

    def grow_for(self, status: int) -> None:
        """Doubles the array that a kernel asked for; or clears the stamps."""
        with Uncollected():  # A finalizer may match: with arrays that do not fit together.
            self._grow_for(status)

    def _grow_for(self, status: int) -> None:
        if status == schema.NEED_STAMPS:
            used = self.used
            update.clear_stamps(
                used["attrs"], used["buckets"], used["owned"], used["sets_by_row"], self.memory
            )
            self.fade()
            return
        if status == schema.NEED_OUT:
            self.prepare_repeat()
        name, half = _NEEDED[status], self.counters.block_size[0] // 2
        if name not in ("outcomes", "visits"):
            self.reserve(name, 2 * len(self.of[name]))
        elif len(self.of[name]) >= schema.BLOCK_MATCHES and half >= batch_match.BLOCK_MIN:
            self.counters.block_max[0] = half
        else:  # The block begins again: nothing is copied, so it needs no reserve of 64 times.
            for each in (name, *_WITH.get(name, ())):
                self.put(each, Rows.zeros(schema.ARRAYS[each], 2 * len(self.of[each])))

    def fade(self) -> None:
        """Halves the statistics, so that later notifications count more."""
        update.fade(self.used["attrs"], self.used["buckets"], self.memory)

    def prepare_repeat(self) -> None:
        """Prepares the repeated match of a notification."""
        self.counters.seen[0] -= 1
        self.counters.matched[0] -= 1

    # --- filters ------------------------------------------------------------------------------

    def words_of(self, number: int) -> list[int]:
        """Returns the constraints of a filter, each a head and its operands."""
        begin = self.filters.begin[number]
        end = begin + 1 + (self.program[begin] & schema.WORDS_MASK)
        program: list[int] = self.program[begin + 1 : end].tolist()
        found: list[int] = []
        word = 0
        while word < len(program):
            after = word + constraint_words(program[word] >> schema.OP_SHIFT & schema.OP_MASK)
            found += (program[word], operand(program, word + 1))
            if after == word + 5:
                found.append(operand(program, word + 3))
            word = after
        return found

    def constraint_at(self, number: int, word: int) -> tuple[int, int, int]:
        """Returns (attribute, domain, first operand) of the constraint at a filter's word."""
        at = self.filters.begin[number] + 1 + word
        head = self.program[at]
        return head & schema.ATTR_MASK, head >> schema.DOMAIN_SHIFT, operand(self.program, at + 1)

    def touching(self, box: Any, closed: bool, inside: bool) -> Iterator[int]:
        """`box_overlap.touching`, for all filters."""
        found = array("q", bytes(8 * (_TOUCHING_AT_ONCE + 1)))
        first, used = 0, self.used["filters"]
        while first < used:
            count = touching(box, closed, inside, first, found, used, self.memory)
            first = found[-1]
            yield from found[:count]

    # --- constants ----------------------------------------------------------------------------

    def put_text(self, text: bytes) -> int:
        """`text_store.put_text`, with room for it."""
        used, count = self.used["texts"], self.used["text_slots"] + 1
        self.reserve("texts", used + schema.USES_BYTES + len(text))
        self.reserve_texts(count - 1)
        ref: int = text_store.put_text(text, 0, len(text), used, self.memory)
        if ref >> schema.TEXT_SHIFT == used + schema.USES_BYTES:
            self.used["texts"] = used + schema.USES_BYTES + len(text)
            self.used["text_slots"] = count
            if (larger := self._growth["text_slots"].larger) is not None:
                text_store.enter_text(ref, larger.numbers, self.memory)
        return ref

    def reserve_texts(self, count: int) -> None:
        """Makes room in the hash table for one more than this many texts."""
        self._grow_table("text_slots", count, count, len(self.text_slots), text_store.rehash_texts)

    def finish_texts(self, more: int) -> None:
        """Makes room for more texts, and completes a larger hash table."""
        while self._growth["text_slots"].larger is not None or (
            2 * (self.used["text_slots"] + more) > len(self.text_slots)
        ):
            self.reserve_texts(self.used["text_slots"] + more - 1)

    def new_sketch(self) -> int:
        """Returns an empty sketch."""
        row = self.take("sketches")
        self.sketches.chance[row] = schema.SKETCH_REGISTERS << schema.HIGHEST_RANK
        return row

    def sketch_of(self, attr: int, column: int, length: int) -> int:
        """Returns the sketch of an attribute's values, or of parts of its texts."""
        if not length:
            return self.attrs.sketch[attr]  # type: ignore[no-any-return]
        part = attr, column, length
        row = self.part_sketches.get(part)
        if row is None:
            row = self.part_sketches[part] = self.new_sketch()
        return row

    def distinct_count(self, row: int) -> float:
        """Returns the number of distinct constants of a sketch, about."""
        return self.sketches.counted[row] / schema.COUNT_PARTS  # type: ignore[no-any-return]

    # --- buckets ------------------------------------------------------------------------------

    def place_bucket(
        self, h: int, attr: int, unseen: float, domain: int, operand: int, statistics: "Arrays"
    ) -> int:
        """`update.place_bucket`."""
        used = self.used["buckets"]
        self.reserve("buckets", used + 1)
        self.reserve_slots()
        place = h, attr, unseen, domain, operand, used
        found: int = update.place_bucket(*place, self.memory, statistics.memory)
        self.used["buckets"] += found >> 2 == used
        return found

    def take_buckets(self, count: int) -> int:
        """Returns the first of this many unused buckets without a hash."""
        first = self.take("buckets", count)
        for bucket in range(first, first + count):
            self.buckets.hash[bucket] = -1
        return first

    def hang(self, bucket: int, number: int, hung: int, *, by_value: bool, alone: bool) -> int:
        """`update.hang`; returns its entry in the bucket."""
        used = self.used["entries"]
        length: int = self.buckets.length[bucket]
        self.reserve("entries", used + 2 * length + 1)
        self.used["entries"] = update.hang(bucket, number, hung, by_value, alone, used, self.memory)
        return length

    def hang_at_value(self, number: int, statistics: "Arrays") -> Cheapest | None:
        """`update.hang_at_value`; None if the filter is assigned now, else its cheapest value."""
        used = self.used
        self.reserve_slots()
        entries, buckets, cheapest = update.hang_at_value(
            number, used["entries"], used["buckets"], self.memory, statistics.memory
        )
        if entries < 0:
            return cheapest
        used["entries"], used["buckets"] = entries, buckets
        return None

    def reserve_slots(self) -> None:
        """Makes room in the hash table for one more bucket."""
        used = self.used["buckets"]
        self._grow_table("slots", used, used, used, update.rehash_buckets)

    def unhang(self, bucket: int, number: int, at: int) -> None:
        """`update.unhang`; the entry must exist."""
        found = update.unhang(bucket, number, at, self.memory)
        assert found, f"filter {number} is not in bucket {bucket}"

    def enter_gram(self, attr: int, gram: int) -> None:
        """Sets the bit of some bytes of a substring."""
        if self.used["gram_bits"] == 0:
            self.take("gram_bits", schema.GRAM_BITS_BYTES)
        bit = gram_bit(attr, gram, 8 * len(self.gram_bits))
        self.gram_bits[bit >> 3] |= 1 << (bit & 7)

    # --- trees of ranges ----------------------------------------------------------------------

    def set_pivots(self, tree: int, ends: list[tuple[int, int]]) -> None:
        """Chooses the pivots of a tree, spread over the (domain, key) of ends of ranges."""
        ordered = sorted(set(ends))
        step = max(1, -(-len(ordered) // schema.PIVOTS))
        pivots = self._pivots[tree] = ordered[::step][: schema.PIVOTS]
        self.trees.count[tree] = len(pivots)
        rows = self.pivots
        for row, (domain, key) in enumerate(pivots, schema.PIVOTS * tree):
            rows.domain[row], rows.key[row] = domain, key

    def enter_node(self, tree: int, node: int) -> None:
        """Notes for the bins below a node of a tree that filters hang at it."""
        level = schema.TREE_LEVELS - node.bit_length()
        first = (node << level) + (schema.PIVOTS + 1) * (tree - 1)
        bit = 1 << level
        if not self.levels[first] & bit:
            for leaf in range(first, first + bit):
                self.levels[leaf] |= bit

    def bin_at(self, tree: int, key: tuple[int, int]) -> int:
        """Returns the bin of a value among the pivots, as `bucket_lookup.bin_of`."""
        pivots = self._pivots.get(tree)
        if pivots is None:
            rows, first = self.pivots, schema.PIVOTS * tree
            part = slice(first, first + self.trees.count[tree])
            pivots = [*zip(rows.domain[part].tolist(), rows.key[part].tolist(), strict=True)]
            self._pivots[tree] = pivots
        return bisect_right(pivots, key)

    def give_room(self, attr: int) -> None:
        """Makes room for the ends of one more range of an attribute, if they are remembered."""
        count, room = self.attrs.kept[attr], self.attrs.room[attr]
        if count < room or room == schema.RANGES_KEPT:
            return
        room, before = max(4, 2 * room), self.attrs.ends[attr]
        begin = self.take("ends", room)
        ends = self.of["ends"]
        ends.part(begin, begin + count)[:] = ends.part(before, before + count)
        self.attrs.ends[attr], self.attrs.room[attr] = begin, room

    def ends_of(self, attr: int) -> list[tuple[int, int]]:
        """Returns the (domain, key) of the ends of an attribute's ranges, as far as remembered."""
        if attr >= self.used["attrs"]:
            return []
        bucket_lookup.forget_ranges(attr, self.memory)
        begin, ends = self.attrs.ends[attr], self.ends
        part = slice(begin, begin + self.attrs.kept[attr])
        pairs = (ends.domain, ends.low), (ends.end_domain, ends.high)
        return [
            end
            for tag, key in pairs
            for end in zip(tag[part].tolist(), key[part].tolist(), strict=True)
        ]

    # --- hash tables --------------------------------------------------------------------------

    def enter_name(self, row: int, names: int) -> None:
        """Enters an attribute's name into the hash table, which then has `names` names."""
        first, end = row, row + 1
        if 2 * names > len(self.names):
            self.put("names", empty_table(schema.ARRAYS["names"], names))
            first, end = 0, self.used["attrs"]
        update.enter_names(first, end, self.memory)
        empty_hulls(row, row + 1, self.memory)

    def reserve_equal(self, gone: int) -> None:
        """Makes room in the table of equal filters for one more; `gone` were removed."""
        rows = self.used["filters"]
        if self._grow_table("equal", self.used["equal"], rows - gone, rows, update.rehash_filters):
            self.used["equal"] = rows - gone

    def enter_again(self, number: int) -> None:
        """Enters a filter whose number was another's into a larger table of equal filters."""
        self._growth["equal"].put(number, partial(_filled, update.rehash_filters, self.memory))

    def _grow_table(self, name: str, entries: int, live: int, rows: int, kernel: Any) -> bool:
        """Makes room in a hash table for one more entry; returns whether a larger one took over."""
        table, growth = self.of[name], self._growth[name]
        if growth.larger is None and 2 * (entries + 1) <= table.size:
            return False  # as mostly
        larger = growth.grown(table, entries, live, rows, partial(_filled, kernel, self.memory))
        if larger is table:
            return False
        self.put(name, larger)
        return True

    # --- all of them --------------------------------------------------------------------------

    def used_rows(self, name: str) -> Any:
        """Returns the saved numbers of an array: a hash table whole, of others the used rows."""
        rows = self.of[name]
        if name in _HASH_TABLES:
            return rows.numbers
        owner = next((owner for owner, others in _WITH.items() if name in others), name)
        return rows.part(0, max(1, self.used[owner]) * _PER_ROW.get(name, 1))

    def restore(self, arrays: dict[str, Rows], used: dict[str, int]) -> None:
        """Restores saved arrays, and makes room in the scratch for them."""
        for name, rows in arrays.items():
            self.put(name, rows)
        self.used |= used
        for name, others in _WITH.items():
            for other in others:
                self.reserve(other, (len(self.of[name]) + 1) * _PER_ROW.get(other, 1))
        self.reserve("stack", self.used["sets"] + 1)
        empty_hulls(0, self.used["attrs"], self.memory)

    def dissolve(self) -> bool:
        """Frees one array; returns whether more are left. No other call may follow."""
        for name in self.of:
            delattr(self, name)
            del self.of[name]
            return True
        return False

    def bytes_used(self) -> int:
        """Returns the bytes of all arrays together: the system has not given unused rows yet."""
        owned = {other for others in _WITH.values() for other in others}
        return sum(
            self.used_rows(name).nbytes
            if name in schema.STORE or name in owned
            else rows.numbers.nbytes
            for name, rows in self.of.items()
        )


def _filled(kernel: Any, memory: Any, first: int, end: int, table: Any) -> None:
    kernel(first, end, table, memory)


EMPTY: Final = -1
NO_ROW: Final = -1


class Chains:
    """Chains of small numbers in `links`: the keys of a filter, or its places.

    A *head* is a whole chain: -1 is no number; a number from 0 on is itself, alone; below -1 it is
    -2 - row, the row of the first of several. Rows are linked both ways, so that one is removed
    without a search, and reused.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self.free_rows: list[int] = []

    def values(self, head: int) -> Iterator[int]:
        """Yields the numbers of a chain."""
        return (value for value, _ in self.places(head, NO_ROW))

    def of_places(self, places: list[tuple[int, int]]) -> int:
        """Returns the head of a chain of buckets; a row also has the entry of its bucket.

        The entry replaces the row before, which such a chain does not need: it is freed as a whole.
        """
        if len(places) == 1:
            return places[0][0]
        head = EMPTY
        for bucket, at in places:
            row = self._row()
            links = self._arrays.links
            links.value[row], links.before[row], links.next[row] = bucket, at, -2 - head
            head = -2 - row
        return head

    def places(self, head: int, at: int) -> Iterator[tuple[int, int]]:
        """Returns the buckets of a chain of places, each with its entry (`at` for a single one)."""
        if head >= 0:
            yield head, at
            return
        row = -2 - head
        links = self._arrays.links
        while row >= 0:
            yield links.value[row], links.before[row]
            row = links.next[row]

    def put(self, value: int, head: int) -> tuple[int, int]:
        """Returns the head of a chain with one more number, and its row; NO_ROW for a single one.

        The former single number gets a row, too: the one after.
        """
        if head == EMPTY:
            return value, NO_ROW
        if head >= 0:
            head = self._before(head, EMPTY)
        head = self._before(value, head)
        return head, -2 - head

    def take(self, value: int, row: int, head: int) -> int:
        """Returns the head of a chain without the number of this row."""
        if head >= 0:
            assert head == value, f"{value} is not in its chain"
            return EMPTY
        links = self._arrays.links
        assert links.value[row] == value, f"{value} is not in its row"
        after, before = links.next[row], links.before[row]
        self.free_rows.append(row)
        if after >= 0:
            links.before[after] = before
        if before < 0:
            return EMPTY if after < 0 else -2 - after
        links.next[before] = after
        return head

    def drop(self, head: int) -> None:
        """Frees a whole chain."""
        row = -2 - head
        while row >= 0:
            self.free_rows.append(row)
            row = self._arrays.links.next[row]

    def _before(self, value: int, head: int) -> int:
        row = self._row()
        links = self._arrays.links
        links.value[row], links.before[row] = value, NO_ROW
        links.next[row] = -2 - head if head < EMPTY else NO_ROW
        if head < EMPTY:
            links.before[-2 - head] = row
        return -2 - row

    def _row(self) -> int:
        return self.free_rows.pop() if self.free_rows else self._arrays.take("links")


def grown(rows: Rows, count: int) -> Rows:
    """Returns at least `count` rows that begin with these, more if they must be copied.

    Copying a large array would delay an update. So a large one gets room for many times its rows:
    the system only reserves memory that is never used. If the system does not allow that, it grows
    by half.
    """
    have = rows.size
    if count <= have:
        return rows
    bigger = None
    if rows.numbers.nbytes > COPIED_BYTES_MAX:
        with suppress(OSError, OverflowError):
            bigger = Rows.zeros(rows.layout, max(count, _ROOM * have))
    if bigger is None:
        bigger = Rows.zeros(rows.layout, max(count, have + have // 2 + 16))
    bigger.part(0, have)[:] = rows.numbers
    return bigger
