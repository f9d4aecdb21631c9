"""Access predicates: the choice of the index entry that the fewest notifications reach.

Every notification that a filter matches must reach the filter's place. Places are, from the most to
the least selective in general: one value (or each of a few); a text's beginning, end, or some bytes
of it; nodes of a tree of ranges; the presence of an attribute; everywhere. If all of them are poor,
a filter of many ranges has a bit in a pool instead. The hashed places are those of *index keys*:
every value of a set has one of its keys. A value with the key need not be in the set, since the
filter is checked afterwards.

The share of notifications that reach a place is estimated: from statistics of past ones, once there
are enough, and else from the number of different constants that all filters have for the attribute.
To count only filters assigned to the attribute would assign all filters to the first one.
"""

from array import array
from typing import Any, Final, NamedTuple

from contrada.matching.filter_compiler import CompiledConstraint, number_key
from contrada.matching.index_arrays import Arrays, Cheapest
from contrada.matching.kernels import schema
from contrada.matching.kernels.bucket_lookup import (
    GRAM_BYTES_MAX,
    LENGTHS_MAX,
    POINTS_EXPECTED,
    count,
    presence_of,
    share,
)
from contrada.matching.kernels.scratch import (
    KIND_GRAM,
    KIND_PREFIX,
    KIND_SUFFIX,
    KIND_TEXT,
    KIND_TEXT_NOCASE,
    MASK,
    hash_of_part,
    hash_of_text,
    mixed,
    place_hash,
    point_hash,
)
from contrada.matching.kernels.update import put_pool_bit
from contrada.model import Filter, ValueSet
from contrada.model.algebra.value_set import EVERYTHING
from contrada.model.domains import line
from contrada.model.domains.values import NAN, NUMBER, TEXT, Key
from contrada.model.languages.atoms import implied_atom
from contrada.model.languages.casefold import fold
from contrada.model.languages.language import Every, Language, Literal, Pieces, Some

PLACES_MAX: Final = 64
"""Places of a filter, for alternatives. Beyond it: it is put at a range, presence or everywhere."""


class AccessPredicate(NamedTuple):
    """One hashed place: its hash, and its data for kernels.

    The place of a single value has that value (a text also its reference), and whether it is the
    whole constraint; the place of a part of texts has the column of `parts` and the length of the
    look-up; that of a substring its bytes, too.
    """

    hash: int
    column: int = 0
    length: int = 0
    domain: int = 0
    value: int | bytes = 0
    decides: bool = True

    @property
    def is_value(self) -> bool:
        """Whether a single value leads to it: then no other value does."""
        return self.domain != 0


class AccessChoice(NamedTuple):
    """A filter's places by one attribute, and the share of notifications that reach them."""

    cost: float
    attr: int
    places: tuple[AccessPredicate, ...]
    bins: tuple[int, int] | None = None  # of the tree of ranges


def best_choice(
    number: int,
    of: Filter,
    constraints: list[CompiledConstraint],
    cheapest: Cheapest,
    arrays: Arrays,
    statistics: Arrays,
) -> AccessChoice | None:
    """Returns the cheapest choice for a filter; None if it must be assigned everywhere.

    The caller has found the `cheapest` of its values. `statistics` may be the arrays of an index
    with the same attributes. Trees are considered only if no hashed place is more selective than a
    single bin could be.
    """
    word, h, cost, is_settled = cheapest
    best: AccessChoice | None = None
    if word >= 0:
        attr, domain, operand = arrays.constraint_at(number, word)
        best = AccessChoice(cost, attr, (AccessPredicate(h, domain=domain, value=operand),))
    return best if is_settled else _best_other(best, of, constraints, arrays, statistics)


def _best_other(
    best: AccessChoice | None,
    of: Filter,
    constraints: list[CompiledConstraint],
    arrays: Arrays,
    statistics: Arrays,
) -> AccessChoice | None:
    """Returns the cheapest of this choice and those of constraints without a single value."""
    others: list[tuple[float, int, ValueSet]] = []
    for constraint, value_set in zip(constraints, of.sets.values(), strict=True):
        attr, op, _, _ = constraint
        if op in (schema.OP_POINT, schema.OP_TEXT) or (
            op == schema.OP_SET and value_set.line[:1] == line.EVERYTHING
        ):
            continue
        presence = presence_of(attr, arrays.memory)
        places = None if op == schema.OP_RANGE else places_of(arrays.seed[0], attr, value_set)
        if places is None:
            others.append((presence, attr, value_set))
            continue
        for place in places:
            count(arrays.sketch_of(attr, place.column, place.length), place.hash, arrays.memory)
        seen_in = statistics.memory
        shares = (share(it.hash, attr, unseen(attr, it, statistics), seen_in) for it in places)
        cost = presence * min(sum(shares), 1.0)
        if best is None or cost < best.cost:
            best = AccessChoice(cost, attr, places)
    for presence, attr, value_set in others:
        if best is None or best.cost * (schema.PIVOTS + 1) > presence:
            choice = _ranged(presence, attr, value_set, arrays)
            if best is None or choice.cost < best.cost:
                best = choice
    return best


def _ranged(presence: float, attr: int, value_set: ValueSet, arrays: Arrays) -> AccessChoice:
    """Returns the choice of the attribute's tree, if it can have one, else of its presence."""
    bins = _bins(attr, value_set, arrays)
    if bins is None:
        return AccessChoice(presence, attr, ())
    bins_share = (bins[1] - bins[0] + 1) / (arrays.trees.count[_cuts(attr, arrays)] + 1)
    return AccessChoice(presence * bins_share, attr, (), bins)


def unseen(attr: int, place: AccessPredicate, arrays: Arrays) -> float:
    """Returns the share of a place without statistics. A long part of a text is rare."""
    counted = arrays.distinct_count(arrays.sketch_of(attr, place.column, place.length))
    by_count = 1.0 / (counted + POINTS_EXPECTED)
    return min(by_count, 1.0 / (2 + 8 * place.length)) if place.length else by_count


# --- index keys ---------------------------------------------------------------------------------


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
        return min(known, key=_expected_share, default=None)
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
    nocase = operator != kind
    return (IndexKey(kind, nocase, fold(constant) if nocase else constant),)


def _expected_share(of: tuple[IndexKey, ...]) -> float:
    """Returns about the share of texts with one of these keys: a long part of a text is rare."""
    return sum(0.01 if each.kind in ("is", "=") else 1 / (2 + 8 * _length(each)) for each in of)


def _length(of: IndexKey) -> int:
    """Returns about the bytes by which the index looks up a part of a text."""
    return min(len(of.of), 4 if of.kind == "contains" else 24)


# --- hashed places ------------------------------------------------------------------------------


def places_of(seed: int, attr: int, value_set: ValueSet) -> tuple[AccessPredicate, ...] | None:
    """Returns hashed places of which every value of the set reaches one; None if there are none.

    A place for a part of the constraint may not decide it.
    """
    index_keys = traits_of(value_set, PLACES_MAX)
    if index_keys is None:
        return None
    decides = value_set.text is None
    return tuple([_place(seed, attr, each, decides) for each in index_keys])


def _place(seed: int, attr: int, index_key: IndexKey, decides: bool) -> AccessPredicate:
    kind, nocase, of = index_key
    case = int(nocase)
    if kind == "is":
        return _point_place(seed, attr, of, decides)
    if kind == "=":
        return AccessPredicate(place_hash(seed, attr, KIND_TEXT_NOCASE, hash_of_text(seed, of)))
    if kind == "contains":
        return _gram_place(seed, attr, of, case)
    if kind == "prefix":
        part, column, at = of[:LENGTHS_MAX], schema.PREFIXES + case, KIND_PREFIX + case
    else:
        part, column, at = of[::-1][:LENGTHS_MAX], schema.SUFFIXES + case, KIND_SUFFIX + case
    return AccessPredicate(place_hash(seed, attr, at, hash_of_part(seed, part)), column, len(part))


def _point_place(seed: int, attr: int, key: Key, decides: bool) -> AccessPredicate:
    domain, comparable = key
    if domain == TEXT:
        assert isinstance(comparable, bytes)
        h = place_hash(seed, attr, KIND_TEXT, hash_of_text(seed, comparable))
        return AccessPredicate(h, domain=TEXT, value=comparable, decides=decides)
    assert not isinstance(comparable, bytes)
    number = number_key(comparable)[0] if domain == NUMBER else int(comparable)
    if domain == NAN:
        number = 0
    h = point_hash(seed, attr, domain, number)
    return AccessPredicate(h, domain=domain, value=number, decides=decides)


def _gram_place(seed: int, attr: int, text: bytes, case: int) -> AccessPredicate:
    """Returns the place of some bytes of a substring, by the text itself, rare letters first."""
    size = min(len(text), GRAM_BYTES_MAX)
    grams = {text[i : i + size] for i in range(len(text) - size + 1)}
    number = int.from_bytes(min(grams, key=_commonness), "big")
    h = mixed(seed, mixed(seed, seed & MASK, number), size)
    h = place_hash(seed, attr, KIND_GRAM + case, h)
    return AccessPredicate(h, schema.GRAMS + case, size, value=number)


_COMMON: Final = b" etaoinshrdlcumwfgypbvk0123456789\\/.:-_"


def _commonness(gram: bytes) -> tuple[int, bytes]:
    """Returns the weight of the letters: frequent ones count more."""
    return sum(max(0, 40 - _COMMON.find(b)) if b in _COMMON else 0 for b in gram.lower()), gram


# --- ranges -------------------------------------------------------------------------------------


def _cuts(attr: int, arrays: Arrays) -> int:
    return arrays.attrs.cuts[attr]  # type: ignore[no-any-return]


def _bins(attr: int, value_set: ValueSet, arrays: Arrays) -> tuple[int, int] | None:
    """Returns the first and the last bin of a set's hull, if the attribute has bins."""
    tree = _cuts(attr, arrays)
    if tree < 0 or value_set.text is not None or not value_set.line:
        return None
    low = tree_key(value_set.line[0])
    if len(value_set.line) & 1:
        return arrays.bin_at(tree, low), arrays.trees.count[tree]
    return arrays.bin_at(tree, low), arrays.bin_at(tree, tree_key(value_set.line[-1]))


def tree_key(cut: line.Cut) -> tuple[int, int]:
    """Returns the position of a cut among the pivots: (domain, key)."""
    if len(cut) == 1:
        return cut[0], -(2**63)
    domain, comparable = cut
    if domain == TEXT:
        assert isinstance(comparable, bytes)
        return domain, int.from_bytes(comparable[:7].ljust(7, b"\0"), "big")
    assert not isinstance(comparable, bytes)
    return domain, number_key(comparable)[0] if domain == NUMBER else int(comparable)


def nodes_between(first: int, last: int) -> list[int]:
    """Returns the fewest nodes of the tree of 64 leaves that have exactly these bins as leaves."""
    nodes: list[int] = []
    low, high = first + schema.PIVOTS + 1, last + schema.PIVOTS + 2
    while low < high:
        if low & 1:
            nodes.append(low)
            low += 1
        if high & 1:
            high -= 1
            nodes.append(high)
        low >>= 1
        high >>= 1
    return nodes


def range_ends(op: int, value_set: ValueSet) -> tuple[int, int, int, int] | None:
    """Returns the ends of a set that is looked up by its ends, other than an interval."""
    cuts = value_set.line
    if value_set.text is not None or cuts in ((), EVERYTHING.line):
        return None
    if op == schema.OP_TEXT_RANGE:  # as below, but without a hash
        is_place = prefix_of(cuts[0], cuts[1] if len(cuts) == 2 else None) is not None
    else:
        is_place = traits_of(value_set, PLACES_MAX) is not None
    return None if is_place else (*tree_key(cuts[0]), *tree_key(cuts[-1]))


# --- pools --------------------------------------------------------------------------------------


POOLS_MAX: Final = 16
"""Pools of an index. Beyond it: the filter is assigned elsewhere."""

RANGES_MIN: Final = 4
"""A filter is pooled only with at least this many ranges."""

COST_MIN: Final = 0.04
"""A filter is pooled only if a larger share of notifications reaches its best place."""

ATTR_COST: Final = 1.0
"""Visits of filters per notification, at least, that a pool replaces for each of its attributes:
each costs as much as a few visits, however few filters are in the pool."""

ROWS: Final = schema.PIVOTS + 2
"""Rows of bits per attribute: one per bin, and one for its absence."""

WORDS_FIRST: Final = 4


class Pools:
    """The pools of a segment: filters of many wide ranges, matched by bitmaps.

    If no constraint of a filter is selective, checking candidates one by one costs more than
    checking all of them at once. A pool has one bit per filter. For each of its attributes there is
    a row of bits per bin, with the filters of ranges that touch the bin, and a row for an absent
    attribute, with the filters that do not name it. A notification's candidates are the conjunction
    of one row per attribute; each is then checked exactly.

             filters  0 1 2 3 ...
        alive         1 1 0 1
        x, bin 0      1 0 1 1      a filter without x has its bit in every row of x
        x, bin 1      1 1 1 0
          ...
        x absent      0 0 1 0
        y, bin 0      ...

    Invariants: a bit is missing in a row only if the filter cannot match values of the row; the
    bits of a removed filter are clear in `alive`. Words have 63 bits, so that they are never
    negative.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._attrs: list[list[int]] = []
        self._free: list[list[int]] = []
        self._planned: list[tuple[set[int], float]] = []

    def admit(self, constraints: list[CompiledConstraint], cost: float) -> bool:
        """Counts a filter for a pool, if its place costs this; returns whether it is to be pooled.

        The first ones are not: they pay for the attributes of a pool, which is only planned until
        then.
        """
        if cost < COST_MIN:
            return False
        ranges = {each.attr for each in constraints if each.op == schema.OP_RANGE}
        if not RANGES_MIN <= len(ranges) <= schema.POOL_ATTRS:  # No pool takes more.
            return False
        for plan, (known, paid) in enumerate(self._planned):
            attrs = known | ranges
            if len(attrs) <= schema.POOL_ATTRS:
                self._planned[plan] = attrs, paid + cost
                return paid + cost >= ATTR_COST * len(attrs)
        if len(self._planned) < POOLS_MAX:
            self._planned.append((ranges, cost))
        return False

    def add(
        self, number: int, constraints: list[CompiledConstraint], bounds: Any
    ) -> tuple[int, int] | None:
        """Pools a filter; returns its pool and its bit, or None if no pool has room.

        `bounds` returns ends of ranges of an attribute, to cut bins for a new one.
        """
        ranges = {each.attr: each for each in constraints if each.op == schema.OP_RANGE}
        pool = self._pool_for(ranges)
        if pool is None:
            return None
        for attr in ranges:
            if attr not in self._attrs[pool]:
                self._add_attr(pool, attr, bounds(attr))
        bit = self._bit(pool)
        word, mask = bit // schema.WORD_BITS, 1 << bit % schema.WORD_BITS
        for i, attr in enumerate(self._attrs[pool]):
            first, last = 0, ROWS - 1
            if attr in ranges:
                tree = self._arrays.pool_attrs.tree[schema.POOL_ATTRS * pool + i]
                first, last = self._bins(tree, ranges[attr])
            put_pool_bit(pool, i, word, mask, first, last, self._arrays.memory)
        bits, pools = self._arrays.bits, self._arrays.pools
        bits[pools.filters[pool] + bit] = number
        bits[pools.alive[pool] + word] |= mask
        return pool, bit

    def remove(self, pool: int, bit: int) -> None:
        """Removes a filter from its pool."""
        word, mask = divmod(bit, schema.WORD_BITS)
        self._arrays.bits[self._arrays.pools.alive[pool] + word] &= ~(1 << mask)
        self._free[pool].append(bit)

    def state(self) -> list[Any]:
        """Returns the state outside the arrays, for `index_file`."""
        return [self._attrs, self._free]

    def restore(self, state: list[Any]) -> None:
        """Restores a saved state; the arrays are restored already."""
        self._attrs, self._free = ([list(each) for each in part] for part in state)
        self._arrays.counters.pools[0] = len(self._attrs)
        self._reserve(max(self._arrays.pools.words[: len(self._attrs)], default=1))

    def filters(self) -> list[tuple[int, int, int]]:
        """Returns (filter, pool, bit) of every pooled filter."""
        bits, pools = self._arrays.bits, self._arrays.pools
        found = []
        for pool in range(len(self._attrs)):
            for bit in range(pools.used[pool]):
                word, mask = divmod(bit, schema.WORD_BITS)
                if bits[pools.alive[pool] + word] >> mask & 1:
                    found.append((bits[pools.filters[pool] + bit], pool, bit))
        return found

    def trees_of(self, attr: int) -> list[int]:
        """Returns the trees with the bins of an attribute, of each pool that has it."""
        return [
            self._arrays.pool_attrs.tree[schema.POOL_ATTRS * pool + attrs.index(attr)]
            for pool, attrs in enumerate(self._attrs)
            if attr in attrs
        ]

    def _pool_for(self, attrs: dict[int, CompiledConstraint]) -> int | None:
        """Returns the first pool that has, or has room for, these attributes; else a new one."""
        for pool, known in enumerate(self._attrs):
            if len(known) + sum(attr not in known for attr in attrs) <= schema.POOL_ATTRS:
                return pool
        if len(self._attrs) == POOLS_MAX:
            return None
        pool = self._arrays.take("pools")
        self._attrs.append([])
        self._free.append([])
        self._arrays.counters.pools[0] = pool + 1
        self._lay_out(pool, WORDS_FIRST)
        return pool

    def _add_attr(self, pool: int, attr: int, bounds: list[tuple[int, int]]) -> None:
        """Adds an attribute to a pool, which no filter in it names yet."""
        arrays, i = self._arrays, len(self._attrs[pool])
        tree = arrays.take("trees")
        arrays.set_pivots(tree, bounds)
        self._attrs[pool].append(attr)
        size = ROWS * arrays.pools.words[pool]
        begin = arrays.take("bits", size)
        arrays.pools.attrs[pool] = i + 1
        row = schema.POOL_ATTRS * pool + i
        arrays.of["pool_attrs"].part(row, row + 1)[:] = array("q", (attr, tree, begin))
        arrays.bits[begin : begin + size] = array("q", [(1 << schema.WORD_BITS) - 1]) * size

    def _bit(self, pool: int) -> int:
        if self._free[pool]:
            return self._free[pool].pop()
        pools = self._arrays.pools
        bit: int = pools.used[pool]
        if bit == pools.words[pool] * schema.WORD_BITS:
            self._lay_out(pool, 2 * pools.words[pool])
        pools.used[pool] = bit + 1
        return bit

    def _lay_out(self, pool: int, words: int) -> None:
        """Moves a pool to rows of more words. The old rows are not used again."""
        arrays, pools = self._arrays, self._arrays.pools
        before, used = pools.words[pool], pools.used[pool]
        attrs = range(schema.POOL_ATTRS * pool, schema.POOL_ATTRS * pool + len(self._attrs[pool]))
        alive = arrays.take("bits", words)
        filters = arrays.take("bits", words * schema.WORD_BITS)
        begins = [arrays.take("bits", ROWS * words) for _ in attrs]
        self._reserve(words)
        bits, pools = arrays.bits, arrays.pools  # rows that were never used are zeros
        moved = [(pools.alive[pool], alive, before), (pools.filters[pool], filters, used)]
        for row, begin in zip(attrs, begins, strict=True):
            was = arrays.pool_attrs.begin[row]
            moved += [(was + n * before, begin + n * words, before) for n in range(ROWS)]
            arrays.pool_attrs.begin[row] = begin
        for old, new, size in moved:
            bits[new : new + size] = bits[old : old + size]
        pools.words[pool], pools.alive[pool], pools.filters[pool] = words, alive, filters

    def _reserve(self, words: int) -> None:
        """Makes room in the scratch for the bits of `words` words."""
        self._arrays.reserve("conjunction", words)
        self._arrays.reserve("pending", 2 * words * schema.WORD_BITS)

    def _bins(self, tree: int, of: CompiledConstraint) -> tuple[int, int]:
        """Returns the first and the last bin that a range touches."""
        low, high = of.operands
        return (
            self._arrays.bin_at(tree, (of.domain, low)),
            self._arrays.bin_at(tree, (of.domain, high)),
        )
