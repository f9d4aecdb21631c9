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
from contrada.matching.kernels.schema import OP_RANGE, PIVOTS, POOL_ATTRS, WORD_BITS

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
        word, mask = bit // WORD_BITS, 1 << bit % WORD_BITS
        for i, attr in enumerate(self._attrs[pool]):
            rows = self._rows(pool, i)
            if attr in ranges:
                tree = self._arrays.pool_attrs.tree[POOL_ATTRS * pool + i]
                first, last = self._bins(tree, ranges[attr])
                rows[:, word] &= ~mask
                rows[first : last + 1, word] |= mask
            else:
                rows[:, word] |= mask
        bits, pools = self._arrays.bits, self._arrays.pools
        bits[pools.filters[pool] + bit] = number
        bits[pools.alive[pool] + word] |= mask
        return pool, bit

    def remove(self, pool: int, bit: int) -> None:
        """Takes a filter out of its pool."""
        word, mask = divmod(bit, WORD_BITS)
        self._arrays.bits[self._arrays.pools.alive[pool] + word] &= ~(1 << mask)
        self._free[pool].append(bit)

    def state(self) -> list[Any]:
        """What is not in the arrays, for `saving`."""
        return [self._attrs, self._free]

    def restore(self, state: list[Any]) -> None:
        """Becomes the pools that were saved; the arrays are those of then."""
        self._attrs, self._free = ([list(each) for each in part] for part in state)
        self._arrays.counters.pools[0] = len(self._attrs)
        words = self._arrays.of["pools"]["words"][: len(self._attrs)]
        self._reserve(int(words.max(initial=1)))

    def filters(self) -> list[tuple[int, int, int]]:
        """(filter, pool, bit) of every filter that is pooled."""
        bits, pools = self._arrays.bits, self._arrays.pools
        found = []
        for pool in range(len(self._attrs)):
            for bit in range(pools.used[pool]):
                word, mask = divmod(bit, WORD_BITS)
                if bits[pools.alive[pool] + word] >> mask & 1:
                    found.append((bits[pools.filters[pool] + bit], pool, bit))
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
        self._arrays.counters.pools[0] = pool + 1
        self._lay_out(pool, WORDS_FIRST)
        return pool

    def _add_attr(self, pool: int, attr: int, bounds: list[tuple[int, int]]) -> None:
        """Gives a pool one more attribute, which no filter in it names yet."""
        arrays, i = self._arrays, len(self._attrs[pool])
        tree = arrays.take("trees")
        arrays.set_pivots(tree, bounds)
        self._attrs[pool].append(attr)
        size = ROWS * arrays.pools.words[pool]
        begin = arrays.take("bits", size)
        arrays.pools.attrs[pool] = i + 1
        arrays.of["pool_attrs"][POOL_ATTRS * pool + i] = (attr, tree, begin)
        arrays.of["bits"][begin : begin + size] = (1 << WORD_BITS) - 1

    def _bit(self, pool: int) -> int:
        """A bit that no filter of the pool has."""
        if self._free[pool]:
            return self._free[pool].pop()
        pools = self._arrays.pools
        bit: int = pools.used[pool]
        if bit == pools.words[pool] * WORD_BITS:
            self._lay_out(pool, 2 * pools.words[pool])
        pools.used[pool] = bit + 1
        return bit

    def _rows(self, pool: int, i: int) -> Any:
        """The rows of bits of a pool's attribute, as a table."""
        begin = self._arrays.pool_attrs.begin[POOL_ATTRS * pool + i]
        words = self._arrays.pools.words[pool]
        return self._arrays.of["bits"][begin : begin + ROWS * words].reshape(ROWS, words)

    def _lay_out(self, pool: int, words: int) -> None:
        """Moves a pool to rows of more words. What it leaves behind is not used again."""
        arrays = self._arrays
        was = arrays.of["pools"][pool].copy()
        before, used = int(was["words"]), int(was["used"])
        old_rows = [self._rows(pool, i).copy() for i in range(len(self._attrs[pool]))]
        alive = arrays.take("bits", words)
        filters = arrays.take("bits", words * WORD_BITS)
        begins = [arrays.take("bits", ROWS * words) for _ in old_rows]
        self._reserve(words)
        bits, pools = arrays.of["bits"], arrays.pools
        bits[alive : alive + words] = 0
        bits[alive : alive + before] = bits[was["alive"] : was["alive"] + before]
        bits[filters : filters + used] = bits[was["filters"] : was["filters"] + used]
        pools.words[pool], pools.alive[pool], pools.filters[pool] = words, alive, filters
        for i, (begin, rows) in enumerate(zip(begins, old_rows, strict=True)):
            arrays.pool_attrs.begin[POOL_ATTRS * pool + i] = begin
            fresh = self._rows(pool, i)
            fresh[:, :before], fresh[:, before:] = rows, 0

    def _reserve(self, words: int) -> None:
        """Makes room in the scratch for the bits of so many words."""
        self._arrays.reserve("conjunction", words)
        self._arrays.reserve("pending", 2 * words * WORD_BITS)

    def _bins(self, tree: int, of: CompiledConstraint) -> tuple[int, int]:
        """The first and the last bin that a range touches."""
        low, high = of.operands
        return (
            self._arrays.bin_at(tree, (of.domain, low)),
            self._arrays.bin_at(tree, (of.domain, high)),
        )
