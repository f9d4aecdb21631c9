"""One generation of an index: distinct filters in arrays, each hanging at its places.

A generation knows slots of keys, not keys. Equal filters are stored once, with the slots of all
their keys. Removing leaves unused words, texts, sets and places behind; the words are counted, and
in time a new generation is filled, piece by piece (see `index`).

Invariants, held by `validate`: a filter that is not gone hangs in the buckets that its PLACE
names, each of them once, or has a bit in a pool; a gone filter hangs nowhere; the equal-filter
table leads to every filter that is not gone. That every notification that a filter matches comes
by its place is held by the tests against plain evaluation.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from contrada.matching.arrays import Arrays
from contrada.matching.compiling import Compiler, Constraint, constraints_of
from contrada.matching.placing import (
    Choice,
    Place,
    best_choice,
    guard_for,
    likelihood,
    nodes_between,
    tree_key,
    unseen_likelihood,
)
from contrada.matching.pools import Pools
from contrada.matching.tables import (
    BEGIN,
    BUCKET_COLUMNS,
    DECIDED_ALONE,
    DECIDED_HERE,
    ENTRIES,
    FILTER,
    GONE,
    HITS,
    KEY,
    LENGTH,
    NOCASE,
    OF_ATTR,
    OP_RANGE,
    PIVOTS,
    PLACE,
    POINTS,
    PRESENCE,
    SEEN,
    SEEN_ALL,
    SIMPLE,
    START,
    TREE,
    VERIFY,
    WORDS_MASK,
)
from contrada.model import Filter, ValueSet
from contrada.model.language import Every

PIVOTS_AT: Final = (64, 1024, 16384, 262144)
"""A tree of ranges gets its pivots anew when an attribute has so many filters in it."""

BOUNDS_KEPT: Final = 2048
"""Ends of ranges remembered per attribute, to choose pivots from."""

NO_KEY: Final = -1


class Generation:
    """Filters by number, their keys' slots, and where they hang."""

    def __init__(self, statistics: "Generation | None" = None) -> None:
        self.arrays = Arrays()
        self.compiler = Compiler(self.arrays)
        self.arrays.nameless_buckets(1)
        self.pools = Pools(self.arrays)
        self._words = np.zeros(64, dtype=np.int64)
        self._free: list[int] = []
        self._equal_used = 0
        self._ranged: dict[int, int] = {}
        self._bounds: dict[int, list[tuple[int, int]]] = {}
        self.exact: dict[int, Filter] = {}
        self.opaque: dict[int, list[int]] = {}
        self.doubtful: set[int] = set()
        self.words_unused = 0
        self.keys: Any = np.empty(8, dtype=object)
        self.arrays.of["counters"][SIMPLE] = 1
        self._statistics = None if statistics is None else statistics.arrays
        if statistics is not None:
            self._inherit(statistics)

    def forget_statistics(self) -> None:
        """To be called when the generation that this one inherited from goes."""
        self._statistics = None

    def _inherit(self, other: "Generation") -> None:
        """Takes over the attributes, in the same rows, with what was seen of them."""
        for name in other.compiler.names:
            row = self.compiler.attr(name)
            self.arrays.of["attrs"][row, SEEN] = other.arrays.of["attrs"][row, SEEN]
        self.arrays.of["counters"][SEEN_ALL] = other.arrays.of["counters"][SEEN_ALL]

    # --- filters ----------------------------------------------------------------------------

    def add(self, of: Filter, slot: int, key: object) -> int:
        """The number of a filter, which gets one more key's slot."""
        program = self.compiler.program(of)
        words = program.words()
        number = self._number(words)
        if number < 0:
            number = self._installed(of, words, -1 - number)
            verify = bool(program.opaque) or program.is_inexact
            if verify:
                self.arrays.of["program"][self.arrays.of["filters"][number, BEGIN]] |= VERIFY
                self.exact[number] = of
                if not program.is_inexact:
                    self.opaque[number] = program.opaque
            if any(map(_is_conjunction, of.sets.values())):
                self.doubtful.add(number)
            self._hang(number, of, program.constraints)
        self._link(number, slot)
        if number >= len(self.keys):
            more = np.empty(2 * number + 8, dtype=object)
            more[: len(self.keys)] = self.keys
            self.keys = more
        self.keys[number] = key
        return number

    def no_longer_simple(self) -> None:
        """To be called when a key has several filters; kernels then put out keys' slots."""
        self.arrays.of["counters"][SIMPLE] = 0

    def remove(self, number: int, slot: int) -> None:
        """Takes a key's slot from a filter; without any the filter is gone."""
        self._unlink(number, slot)
        if int(self.arrays.of["filters"][number, KEY]) != NO_KEY:
            return
        self._unhang(number)
        begin = int(self.arrays.of["filters"][number, BEGIN])
        program = self.arrays.of["program"]
        self.words_unused += int(program[begin]) & WORDS_MASK
        program[begin] |= GONE
        self.keys[number] = None
        self.exact.pop(number, None)
        self.opaque.pop(number, None)
        self.doubtful.discard(number)
        self._free.append(number)

    def filter(self, number: int) -> Filter:
        """The filter of a number."""
        exact = self.exact.get(number)
        return exact if exact is not None else self.compiler.filter_of(self.words(number))

    def empty(self) -> set[int]:
        """The filters that can match nothing: no set of theirs, or none that can be decided."""
        return {
            number
            for number in self.live()
            if int(self.arrays.of["filters"][number, PLACE]) == NO_KEY
            or (number in self.doubtful and self.filter(number).is_empty)
        }

    def words(self, number: int) -> list[int]:
        """The words of a filter's program."""
        begin = int(self.arrays.of["filters"][number, BEGIN])
        program = self.arrays.of["program"]
        end = begin + 1 + (int(program[begin]) & WORDS_MASK)
        words: list[int] = program[begin + 1 : end].tolist()
        return words

    def slots(self, number: int) -> Iterator[int]:
        """The slots of a filter's keys."""
        yield from self._chain(int(self.arrays.of["filters"][number, KEY]))

    def _number(self, words: list[int]) -> int:
        """The filter with these words, or -1 - a free place of the equal-filter table."""
        if len(words) > len(self._words):
            self._words = np.zeros(2 * len(words), dtype=np.int64)
        self._words[: len(words)] = words
        if 2 * (self._equal_used + 1) > len(self.arrays.of["equal"]):
            live = self.arrays.used["filters"] - len(self._free)
            self.arrays.rebuild_equal(live + 1)
            self._equal_used = live
        return self.arrays.find_equal(self._words, len(words))

    def _installed(self, of: Filter, words: list[int], place: int) -> int:
        arrays = self.arrays
        number = self._free.pop() if self._free else arrays.take("filters")
        begin = arrays.take("program", len(words) + 1)
        program = arrays.of["program"]
        program[begin] = len(words)
        program[begin + 1 : begin + 1 + len(words)] = self._words[: len(words)]
        arrays.of["filters"][number] = (begin, NO_KEY, NO_KEY, 0)
        arrays.of["equal"][place] = number + 1
        self._equal_used += 1
        for attr in self.compiler.marks_nocase(of):
            arrays.of["attrs"][attr, NOCASE] = 1
        return number

    # --- chains of (value, next) in `links` --------------------------------------------------

    def _chain(self, head: int) -> Iterator[int]:
        """The values of a chain: none at -1, one at 0 and above, else a row of links."""
        if head >= 0:
            yield head
        elif head < -1:
            row = -2 - head
            links = self.arrays.of["links"]
            while row >= 0:
                yield int(links[row, 0])
                row = int(links[row, 1])

    def _chained(self, values: list[int]) -> int:
        """The head of a chain of values."""
        if len(values) <= 1:
            return values[0] if values else NO_KEY
        first = self.arrays.take("links", len(values))
        links = self.arrays.of["links"]
        for i, value in enumerate(values):
            links[first + i] = (value, first + i + 1)
        links[first + len(values) - 1, 1] = -1
        return -2 - first

    def _link(self, number: int, slot: int) -> None:
        filters = self.arrays.of["filters"]
        head = int(filters[number, KEY])
        if head == NO_KEY:
            filters[number, KEY] = slot
            return
        self.no_longer_simple()
        row = self.arrays.take("links", 1 if head < -1 else 2)
        links = self.arrays.of["links"]
        if head >= 0:
            links[row + 1] = (head, -1)
            head = -2 - (row + 1)
        links[row] = (slot, -2 - head)
        filters[number, KEY] = -2 - row

    def _unlink(self, number: int, slot: int) -> None:
        filters, links = self.arrays.of["filters"], self.arrays.of["links"]
        head = int(filters[number, KEY])
        if head >= 0:
            assert head == slot
            filters[number, KEY] = NO_KEY
            return
        row, before = -2 - head, -1
        while int(links[row, 0]) != slot:
            before, row = row, int(links[row, 1])
        after = int(links[row, 1])
        self.words_unused += 1
        if before >= 0:
            links[before, 1] = after
        else:
            filters[number, KEY] = NO_KEY if after < 0 else -2 - after

    # --- places -----------------------------------------------------------------------------

    def _hang(
        self, number: int, of: Filter, constraints: list[Constraint], *, count: bool = True
    ) -> None:
        """Hangs a filter at its best place."""
        choice = best_choice(of, constraints, self.arrays, self._statistics or self.arrays)
        if choice is not None and self._pooled(number, constraints, choice):
            return
        buckets = {0: False} if choice is None else self._buckets(choice)
        attr = None if choice is None else choice.attr
        for bucket, by_value in buckets.items():
            guard = guard_for(constraints, attr, by_value, self.arrays)
            if number in self.exact:
                guard = guard._replace(guard=guard.guard & ~(DECIDED_HERE | DECIDED_ALONE))
            self.arrays.hang(bucket, number, guard)
        row = self.arrays.of["filters"][number]
        row[PLACE] = self._chained(list(buckets))
        self.arrays.of["filters"][number, ENTRIES] = len(buckets)
        if count and choice is not None and not choice.places:
            self._ranged_one_more(choice.attr, of)

    def _pooled(self, number: int, constraints: list[Constraint], choice: Choice) -> bool:
        """Puts a filter into a pool, where that is better than its best place."""
        if choice.places or choice.bins is None:
            return False
        if not self.pools.suits(constraints, choice.cost):
            return False
        place = self.pools.add(number, constraints, self._bounds_of)
        if place is None:
            return False
        pool, bit = place
        self.arrays.of["filters"][number, PLACE] = bit
        self.arrays.of["filters"][number, ENTRIES] = -1 - pool
        return True

    def _bounds_of(self, attr: int) -> list[tuple[int, int]]:
        """Ends of ranges that filters have on an attribute."""
        known = self._bounds.get(attr, [])
        if len(known) >= PIVOTS:
            return known
        found: list[tuple[int, int]] = list(known)
        for number in self.live()[-4 * PIVOTS :]:
            for each in constraints_of(self.words(number)):
                if each.attr == attr and each.op == OP_RANGE:
                    found += ((each.domain, key) for key in each.operands)
        return found

    def _buckets(self, choice: Choice) -> dict[int, bool]:
        """The buckets of a choice, and whether each is that of a value of the choice."""
        if choice.bins is not None:
            tree = int(self.arrays.of["attrs"][choice.attr, TREE])
            base = int(self.arrays.of["trees"][tree, 1])
            return {base + node: False for node in nodes_between(*choice.bins)}
        if not choice.places and choice.cost > 0:
            return {self._presence_bucket(choice.attr): False}
        buckets: dict[int, bool] = {}
        for place in choice.places:
            bucket, by_value = self._hashed_bucket(choice.attr, place)
            buckets[bucket] = by_value and buckets.get(bucket, True)
        return buckets

    def _hashed_bucket(self, attr: int, place: Place) -> tuple[int, bool]:
        """The bucket of a place, and whether it is that of the place's value."""
        before = self.arrays.used["buckets"]
        bucket = self.arrays.bucket_for(place.hash)
        if bucket == before:
            # As if it had been there all the time: what is new must not look unvisited.
            row = self.arrays.of["attrs"][attr]
            expected = unseen_likelihood(place, int(row[POINTS]))
            if self._statistics is not None:
                expected = likelihood(attr, place, self._statistics)
            self.arrays.of["buckets"][bucket, HITS] = int(int(row[SEEN]) * expected)
        if place.column:
            self.arrays.of["attrs"][attr, place.column] |= 1 << place.length
            return bucket, False
        value = self.compiler.text(place.value) if isinstance(place.value, bytes) else place.value
        low = (value & 0xFFFFFFFF) - ((value & 0x80000000) << 1)
        of = (attr, place.domain, low, value >> 32)
        row = self.arrays.of["buckets"][bucket]
        if bucket == before:
            self.arrays.of["attrs"][attr, POINTS] += 1
            row[OF_ATTR:BUCKET_COLUMNS] = of
        return bucket, bool(place.domain) and tuple(row[OF_ATTR:BUCKET_COLUMNS].tolist()) == of

    def _presence_bucket(self, attr: int) -> int:
        bucket = int(self.arrays.of["attrs"][attr, PRESENCE])
        if bucket < 0:
            bucket = self.arrays.nameless_buckets(1)
            self.arrays.of["attrs"][attr, PRESENCE] = bucket
        return bucket

    def _unhang(self, number: int) -> None:
        place, pool = (int(self.arrays.of["filters"][number, c]) for c in (PLACE, ENTRIES))
        if pool < 0:
            self.pools.remove(-1 - pool, place)
            self.arrays.of["filters"][number] = (
                *self.arrays.of["filters"][number, :PLACE],
                NO_KEY,
                0,
            )
            return
        for bucket in self._chain(int(self.arrays.of["filters"][number, PLACE])):
            self.arrays.unhang(bucket, number)
        self.arrays.of["filters"][number, PLACE] = NO_KEY
        self.arrays.of["filters"][number, ENTRIES] = 0

    # --- trees of ranges ----------------------------------------------------------------------

    def _ranged_one_more(self, attr: int, of: Filter) -> None:
        """Remembers the ends of a range; gives the attribute new pivots when it is time."""
        bounds = self._bounds.setdefault(attr, [])
        count = self._ranged[attr] = self._ranged.get(attr, 0) + 1
        cuts = of.sets[self.compiler.names[attr]].line
        for cut in (*cuts[:1], *cuts[-1:]):
            if len(bounds) < BOUNDS_KEPT:
                bounds.append(tree_key(cut))
            else:
                bounds[count * 7919 % BOUNDS_KEPT] = tree_key(cut)
        if count in PIVOTS_AT:
            self._new_pivots(attr)

    def _new_pivots(self, attr: int) -> None:
        """Cuts the attribute's values where the ends of its ranges are, and hangs these anew."""
        hanging = self._ranged_filters(attr)
        for number in hanging:
            self._unhang(number)
        tree = int(self.arrays.of["attrs"][attr, TREE])
        if tree < 0:
            tree = self.arrays.take("trees")
            base = self.arrays.nameless_buckets(2 * (PIVOTS + 1))
            self.arrays.of["trees"][tree, 1] = base
            self.arrays.of["attrs"][attr, TREE] = tree
        self.arrays.set_pivots(tree, self._bounds[attr])
        for number in hanging:
            self._hang(number, self.filter(number), constraints_of(self.words(number)), count=False)

    def _ranged_filters(self, attr: int) -> list[int]:
        """The filters that hang in the attribute's tree or by its presence."""
        buckets = []
        presence, tree = (int(self.arrays.of["attrs"][attr, c]) for c in (PRESENCE, TREE))
        if presence >= 0:
            buckets.append(presence)
        if tree >= 0:
            base = int(self.arrays.of["trees"][tree, 1])
            buckets += range(base, base + 2 * (PIVOTS + 1))
        found: dict[int, None] = {}
        for bucket in buckets:
            for number in self._hanging_in(bucket):
                found[number] = None
        return list(found)

    def _hanging_in(self, bucket: int) -> list[int]:
        row = self.arrays.of["buckets"][bucket]
        start, length = int(row[START]), int(row[LENGTH])
        numbers: list[int] = self.arrays.of["entries"][start : start + length, FILTER].tolist()
        return numbers

    # --- saving -------------------------------------------------------------------------------

    def state(self, packed: Callable[[Any], bytes]) -> dict[str, Any]:
        """What is not in the arrays, for `saving`."""
        return {
            "free": self._free,
            "equal_used": self._equal_used,
            "ranged": list(self._ranged.items()),
            "words_unused": self.words_unused,
            "doubtful": sorted(self.doubtful),
            "exact": [(number, packed(each)) for number, each in self.exact.items()],
            "opaque": list(self.opaque.items()),
            "compiler": self.compiler.state(packed),
            "pools": self.pools.state(),
        }

    def restore(
        self,
        arrays: dict[str, Any],
        used: dict[str, int],
        state: dict[str, Any],
        unpacked: Callable[[bytes], Any],
    ) -> None:
        """Becomes the generation that was saved."""
        self.arrays.of |= arrays
        self.arrays.used |= used
        self.arrays.fit_scratch()
        self._free = list(state["free"])
        self._equal_used = state["equal_used"]
        self._ranged = dict(state["ranged"])
        self.words_unused = state["words_unused"]
        self.doubtful = set(state["doubtful"])
        self.exact = {number: unpacked(each) for number, each in state["exact"]}
        self.opaque = {number: list(sets) for number, sets in state["opaque"]}
        self.compiler.restore(state["compiler"], unpacked)
        self.pools.restore(state["pools"])
        self.keys = np.empty(used["filters"] + 8, dtype=object)

    # --- checks -------------------------------------------------------------------------------

    def live(self) -> list[int]:
        """The numbers of the filters that are not gone."""
        gone = set(self._free)
        return [n for n in range(self.arrays.used["filters"]) if n not in gone]

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all filters."""
        hanging: dict[int, list[int]] = {}
        for bucket in range(self.arrays.used["buckets"]):
            for number in self._hanging_in(bucket):
                hanging.setdefault(number, []).append(bucket)
        live = self.live()
        pooled = {number: (pool, bit) for number, pool, bit in self.pools.filters()}
        for number in live:
            place, pool = (int(self.arrays.of["filters"][number, c]) for c in (PLACE, ENTRIES))
            if pool < 0:
                assert pooled.pop(number) == (-1 - pool, place), f"filter {number} lost its bit"
                continue
            buckets = sorted(self._chain(int(self.arrays.of["filters"][number, PLACE])))
            assert sorted(hanging.pop(number, [])) == buckets, f"filter {number} hangs elsewhere"
            words = self.words(number)
            self._words[: len(words)] = words
            assert self.arrays.find_equal(self._words, len(words)) == number, "lost filter"
            assert list(self.slots(number)), f"filter {number} has no key"
        assert not hanging, f"gone filters hang: {sorted(hanging)}"
        assert not pooled, f"gone filters are pooled: {sorted(pooled)}"

    def sizes(self) -> dict[str, Any]:
        """Figures for `statistics`."""
        return {
            "filters": self.arrays.used["filters"] - len(self._free),
            "attributes": len(self.compiler.names),
            "buckets": self.arrays.used["buckets"],
            "pooled": len(self.pools.filters()),
            "everywhere": int(self.arrays.of["buckets"][0, LENGTH]),
            "bytes": self.arrays.bytes_used(),
        }


def _is_conjunction(value_set: ValueSet) -> bool:
    """Whether a set could turn out empty only by deciding about its text."""
    return not value_set.line and isinstance(value_set.text, Every)
