"""Pools: filters of many wide ranges, matched by bitmaps.

Where no constraint of a filter is selective, checking candidates one by one costs more than
asking all of them at once. A pool has one bit per filter. For each of its attributes there is
a row of bits per bin, with the filters whose range touches the bin, and a row for an absent
attribute, with the filters that do not name it. A notification's candidates are the
conjunction of one row per attribute; each is then checked exactly.

         filters  0 1 2 3 ...
    alive         1 1 0 1
    x, bin 0      1 0 1 1      a filter without x has its bit in every row of x
    x, bin 1      1 1 1 0
      ...
    x absent      0 0 1 0
    y, bin 0      ...

Invariants: a bit is missing in a row only where the filter cannot match what leads to the row;
a filter's bits are all clear in `alive` once it is gone. Words have 63 bits, so that they are
never negative.
"""

from typing import Any, Final

from contrada.matching.arrays import Arrays
from contrada.matching.compiling import CompiledConstraint
from contrada.matching.tables import (
    OP_RANGE,
    PIVOTS,
    POOL_ALIVE,
    POOL_ATTR,
    POOL_ATTRS,
    POOL_COUNT,
    POOL_FILTERS,
    POOL_USED,
    POOL_WORDS,
    POOLS,
    WORD_BITS,
)

POOLS_MAX: Final = 16
"""Pools of an index. Beyond it: the filter hangs elsewhere."""

RANGES_MIN: Final = 4
"""A filter is pooled only with at least so many ranges."""

COST_MIN: Final = 0.04
"""A filter is pooled only where its best place is visited by a larger share of notifications."""

ROWS: Final = PIVOTS + 2
"""Rows of bits per attribute: one per bin, and one for its absence."""

WORDS_FIRST: Final = 4


class Pools:
    """The pools of a generation."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._attrs: list[list[int]] = []
        self._free: list[list[int]] = []

    def suits(self, constraints: list[CompiledConstraint], cost: float) -> bool:
        """Whether a filter is better pooled than at a place that costs so much."""
        if cost < COST_MIN:
            return False
        ranges = sum(1 for each in constraints if each.op == OP_RANGE)
        return ranges >= RANGES_MIN

    def add(
        self, number: int, constraints: list[CompiledConstraint], bounds: Any
    ) -> tuple[int, int] | None:
        """The pool and the bit of a filter that was pooled; None where no pool has room.

        `bounds` gives ends of ranges of an attribute, to cut bins for one that is new.
        """
        ranges = {each.attr: each for each in constraints if each.op == OP_RANGE}
        pool = self._pool_for(ranges)
        if pool is None:
            return None
        for attr in ranges:
            if attr not in self._attrs[pool]:
                self._add_attr(pool, attr, bounds(attr))
        bit = self._bit(pool)
        row = self._arrays.of["pools"][pool]
        word, mask = divmod(bit, WORD_BITS)
        for i, attr in enumerate(self._attrs[pool]):
            rows = self._rows(pool, i)
            if attr in ranges:
                tree = int(row[POOL_ATTR + 3 * i + 1])
                first, last = self._bins(tree, ranges[attr])
                rows[:, word] &= ~(1 << mask)
                rows[first : last + 1, word] |= 1 << mask
            else:
                rows[:, word] |= 1 << mask
        bits = self._arrays.of["bits"]
        bits[int(row[POOL_FILTERS]) + bit] = number
        bits[int(row[POOL_ALIVE]) + word] |= 1 << mask
        return pool, bit

    def remove(self, pool: int, bit: int) -> None:
        """Takes a filter out of its pool."""
        word, mask = divmod(bit, WORD_BITS)
        alive = int(self._arrays.of["pools"][pool, POOL_ALIVE])
        self._arrays.of["bits"][alive + word] &= ~(1 << mask)
        self._free[pool].append(bit)

    def state(self) -> list[Any]:
        """What is not in the arrays, for `saving`."""
        return [self._attrs, self._free]

    def restore(self, state: list[Any]) -> None:
        """Becomes the pools that were saved; the arrays are those of then."""
        self._attrs, self._free = ([list(each) for each in part] for part in state)
        pools = self._arrays.of["pools"][: len(self._attrs)]
        self._arrays.of["counters"][POOLS] = len(self._attrs)
        words = int(pools[:, POOL_WORDS].max(initial=1))
        self._arrays.reserve("conjunction", words)
        self._arrays.reserve("pending", 2 * words * WORD_BITS)

    def filters(self) -> list[tuple[int, int, int]]:
        """(filter, pool, bit) of every filter that is pooled."""
        bits = self._arrays.of["bits"]
        found = []
        for pool, row in enumerate(self._arrays.of["pools"][: len(self._attrs)].tolist()):
            for bit in range(row[POOL_USED]):
                word, mask = divmod(bit, WORD_BITS)
                if int(bits[row[POOL_ALIVE] + word]) >> mask & 1:
                    found.append((int(bits[row[POOL_FILTERS] + bit]), pool, bit))
        return found

    def _pool_for(self, attrs: dict[int, CompiledConstraint]) -> int | None:
        """The first pool that has, or has room for, these attributes; else a new one."""
        for pool, known in enumerate(self._attrs):
            if len(known) + sum(attr not in known for attr in attrs) <= POOL_ATTRS:
                return pool
        if len(self._attrs) == POOLS_MAX or len(attrs) > POOL_ATTRS:
            return None
        pool = self._arrays.take("pools")
        self._attrs.append([])
        self._free.append([])
        self._arrays.of["counters"][POOLS] = pool + 1
        self._lay_out(pool, WORDS_FIRST)
        return pool

    def _add_attr(self, pool: int, attr: int, bounds: list[tuple[int, int]]) -> None:
        """Gives a pool one more attribute, which no filter in it names yet."""
        tree = self._arrays.new_tree(bounds)
        row = self._arrays.of["pools"][pool]
        i = len(self._attrs[pool])
        self._attrs[pool].append(attr)
        row[POOL_COUNT] = i + 1
        words = int(row[POOL_WORDS])
        begin = self._arrays.take("bits", ROWS * words)
        row = self._arrays.of["pools"][pool]
        row[POOL_ATTR + 3 * i : POOL_ATTR + 3 * i + 3] = (attr, tree, begin)
        self._arrays.of["bits"][begin : begin + ROWS * words] = (1 << WORD_BITS) - 1

    def _bit(self, pool: int) -> int:
        """A bit that no filter of the pool has."""
        if self._free[pool]:
            return self._free[pool].pop()
        row = self._arrays.of["pools"][pool]
        bit = int(row[POOL_USED])
        if bit == int(row[POOL_WORDS]) * WORD_BITS:
            self._lay_out(pool, 2 * int(row[POOL_WORDS]))
        self._arrays.of["pools"][pool, POOL_USED] = bit + 1
        return bit

    def _rows(self, pool: int, i: int) -> Any:
        """The rows of bits of a pool's attribute, as a table."""
        row = self._arrays.of["pools"][pool]
        begin, words = int(row[POOL_ATTR + 3 * i + 2]), int(row[POOL_WORDS])
        return self._arrays.of["bits"][begin : begin + ROWS * words].reshape(ROWS, words)

    def _lay_out(self, pool: int, words: int) -> None:
        """Moves a pool to rows of more words. What it leaves behind is not used again."""
        arrays = self._arrays
        old = arrays.of["pools"][pool].copy()
        before, used = int(old[POOL_WORDS]), int(old[POOL_USED])
        alive = arrays.take("bits", words)
        filters = arrays.take("bits", words * WORD_BITS)
        begins = [arrays.take("bits", ROWS * words) for _ in self._attrs[pool]]
        arrays.reserve("conjunction", words)
        arrays.reserve("pending", 2 * words * WORD_BITS)
        bits, row = arrays.of["bits"], arrays.of["pools"][pool]
        bits[alive : alive + words] = 0
        if before:
            old_alive, old_filters = int(old[POOL_ALIVE]), int(old[POOL_FILTERS])
            bits[alive : alive + before] = bits[old_alive : old_alive + before]
            bits[filters : filters + used] = bits[old_filters : old_filters + used]
        for i, begin in enumerate(begins):
            was = int(old[POOL_ATTR + 3 * i + 2])
            fresh = bits[begin : begin + ROWS * words].reshape(ROWS, words)
            fresh[:, :before] = bits[was : was + ROWS * before].reshape(ROWS, before)
            fresh[:, before:] = 0
            row[POOL_ATTR + 3 * i + 2] = begin
        row[POOL_WORDS], row[POOL_ALIVE], row[POOL_FILTERS] = words, alive, filters

    def _bins(self, tree: int, of: CompiledConstraint) -> tuple[int, int]:
        """The first and the last bin that a range touches."""
        low, high = of.operands
        return (
            self._arrays.bin_at(tree, (of.domain, low)),
            self._arrays.bin_at(tree, (of.domain, high)),
        )
