"""Where the filters of a generation hang: how they come to their places, and to better ones.

Which places there are, and which is the best, is told in `placing`.
"""

from typing import Final

from contrada.matching.arrays import Arrays
from contrada.matching.bounds import Bounds, End
from contrada.matching.chains import EMPTY, Chains
from contrada.matching.compiling import Compiler, constraints_of
from contrada.matching.placing import Choice, Place, best_choice, nodes_between, unseen
from contrada.matching.pools import Pools
from contrada.matching.tables import (
    AT,
    BEGIN,
    BUCKETS,
    CUTS,
    FILTER,
    GRAMS,
    GUARD,
    HERE,
    HITS,
    KEY,
    KEY_HERE,
    LENGTH,
    PIVOTS,
    PLACE,
    PRESENCE,
    SEEN_ALL,
    SEVERAL,
    START,
    TREE,
    WORDS_MASK,
)
from contrada.model import Filter

WORTH: Final = 1.5
"""A filter is hung anew only where so many times fewer notifications come by,"""

WORTH_MOVING: Final = 1 / 128
"""and only if this share of all notifications is spared a look at it: else that never pays."""


class Hanging:
    """Filters, by their numbers, in buckets and pools.

    Invariant, held by `validate`: a filter that hangs is in the buckets that its PLACE names, each
    of them once, or has a bit in a pool.
    """

    def __init__(
        self,
        arrays: Arrays,
        compiler: Compiler,
        chains: Chains,
        bounds: Bounds,
        exact: dict[int, Filter],
    ) -> None:
        self._arrays = arrays
        self._compiler = compiler
        self._chains = chains
        self._exact = exact
        self.bounds = bounds
        self.pools = Pools(arrays)
        self.statistics: Arrays | None = None
        """What was seen, where that is another generation's."""
        self.is_crowded = False
        """Whether a tree is worth renewing."""

    def filter(self, number: int) -> Filter:
        """The filter of a number: its program says which, where it is not kept as it was given."""
        exact = self._exact.get(number)
        if exact is not None:
            return exact
        return self._compiler.filter_of(words_of(self._arrays, number))

    def hang(self, number: int, of: Filter, words: list[int]) -> None:
        """Hangs a filter at its best place."""
        statistics = self.statistics or self._arrays
        if self._arrays.hang_at_value(number, statistics):
            return
        choice = best_choice(number, of, words, self._arrays, statistics)
        if choice is not None and self._pooled(number, words, choice):
            return
        buckets = {0: False} if choice is None else self._buckets(choice)
        hung = -1 if choice is None else choice.attr
        alone = len(buckets) == 1
        places = [
            (bucket, self._arrays.hang(bucket, number, hung, by_value=by_value, alone=alone))
            for bucket, by_value in buckets.items()
        ]
        if choice is not None and len(places) > 1 and not all(p.is_value for p in choice.places):
            self._arrays.views["counters"][SEVERAL] = 1
        filters = self._arrays.views["filters"]
        filters[number, PLACE] = self._chains.of_places(places)
        filters[number, AT] = places[0][1] if places else 0

    def _pooled(self, number: int, words: list[int], choice: Choice) -> bool:
        """Puts a filter into a pool, where that is better than its best place."""
        if choice.places or choice.bins is None:
            return False
        constraints = constraints_of(words)
        if not self.pools.suits(constraints, choice.cost):
            return False
        place = self.pools.add(number, constraints, self.bounds.known)
        if place is None:
            return False
        pool, bit = place
        filters = self._arrays.views["filters"]
        filters[number, PLACE], filters[number, AT] = bit, -1 - pool
        return True

    def _buckets(self, choice: Choice) -> dict[int, bool]:
        """The buckets of a choice, and whether each is that of a value of the choice."""
        if choice.bins is not None:
            base = self._tree_buckets(choice.attr)
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
        value = place.value
        operand = self._compiler.text(value) if isinstance(value, bytes) else value
        statistics = self.statistics or self._arrays
        share = unseen(attr, place, statistics)
        found = self._arrays.place_bucket(
            place.hash, attr, share, place.domain, operand, statistics
        )
        if place.column:
            self._arrays.views["attrs"][attr, place.column] |= 1 << place.length
            if place.column >= GRAMS:
                self._arrays.enter_gram(attr, operand)
        if found & 2:
            self._arrays.views["counters"][SEVERAL] = 1
        return found >> 2, found & 1 == 1 and place.decides

    def _presence_bucket(self, attr: int) -> int:
        bucket = self._arrays.views["attrs"][attr, PRESENCE]
        if bucket < 0:
            bucket = self._arrays.nameless_buckets(1)
            self._arrays.views["attrs"][attr, PRESENCE] = bucket
        return bucket  # type: ignore[no-any-return]

    def unhang(self, number: int) -> None:
        """Takes a filter from its places."""
        filters = self._arrays.views["filters"]
        place, at = filters[number, PLACE], filters[number, AT]
        if at < 0:
            self.pools.remove(-1 - at, place)
        else:
            for bucket, entry in self._chains.places(place, at):
                self._arrays.unhang(bucket, number, entry)
            self._chains.drop(place)
        filters[number, PLACE], filters[number, AT] = EMPTY, 0

    def hanging_in(self, bucket: int) -> list[int]:
        """The filters in a bucket."""
        row = self._arrays.of["buckets"][bucket]
        start, length = int(row[START]), int(row[LENGTH])
        numbers: list[int] = self._arrays.of["entries"][start : start + length, FILTER].tolist()
        return numbers

    def show_key(self, number: int) -> None:
        """To be called when a filter that hangs gets other keys: its entry may show them."""
        key, place, at = (self._arrays.views["filters"][number, each] for each in (KEY, PLACE, AT))
        if place >= 0 and at >= 0:
            entry = self._arrays.views["buckets"][place, START] + at
            if self._arrays.views["entries"][entry, GUARD] & KEY_HERE:
                self._arrays.views["entries"][entry, HERE] = key

    # --- other places ---------------------------------------------------------------------------

    def most_looked_through(self) -> int:
        """Of the buckets that the last notification came by, the one with the most filters.

        -1 where too few notifications come by it for its filters to be worth moving.
        """
        counters, buckets = self._arrays.views["counters"], self._arrays.views["buckets"]
        listed = (self._arrays.of["bucket_list"][: counters[BUCKETS]] >> 1).tolist()
        longest: int = max(listed, key=lambda bucket: buckets[bucket, LENGTH])
        is_worth = buckets[longest, HITS] >= WORTH_MOVING * counters[SEEN_ALL]
        return longest if is_worth else -1

    def rehang(self, bucket: int, place: int) -> bool:
        """Hangs one of a bucket's filters where much fewer notifications come by, if it can.

        Which, a number says that may be any. Whether it hangs elsewhere now.
        """
        hanging = self.hanging_in(bucket)
        if not hanging:
            return False
        number = hanging[place % len(hanging)]
        filters, buckets = self._arrays.views["filters"], self._arrays.views["buckets"]
        seen, head = self._arrays.views["counters"][SEEN_ALL], filters[number, PLACE]
        before = list(self._chains.values(head))
        now = sum(buckets[each, HITS] for each in before) / seen
        of, words = self.filter(number), words_of(self._arrays, number)
        choice = best_choice(number, of, words, self._arrays, self._arrays)
        if choice is None or now - choice.cost < WORTH_MOVING or now < WORTH * choice.cost:
            return False
        self.unhang(number)
        self.hang(number, of, words)
        filters = self._arrays.views["filters"]
        return filters[number, AT] < 0 or before != list(
            self._chains.values(filters[number, PLACE])
        )

    # --- trees of ranges --------------------------------------------------------------------------

    def note_ranges(self, of: Filter, words: list[int]) -> None:
        """Counts the ranges that a filter asks for, wherever it will hang; cuts bins in time."""
        for attr in self.bounds.note(of, words):
            due = self.bounds.due(attr)
            if due is not None:
                self._new_pivots(attr, due)
            elif self.statistics is None and self.bounds.crowd(attr, self._arrays):
                self.is_crowded = True

    def _new_pivots(self, attr: int, bounds: list[End]) -> None:
        """Cuts the attribute's values where the ends of its ranges are, and hangs these anew."""
        hanging = self._ranged_filters(attr)
        for number in hanging:
            self.unhang(number)
        cuts = self._arrays.views["attrs"][attr, CUTS]
        if cuts < 0:
            cuts = self._arrays.views["attrs"][attr, CUTS] = self._arrays.take("trees")
        self._arrays.set_pivots(cuts, bounds)
        for number in hanging:
            self.hang(number, self.filter(number), words_of(self._arrays, number))

    def _tree_buckets(self, attr: int) -> int:
        """The first bucket of an attribute's tree, which has none before a filter hangs there."""
        tree = self._arrays.views["attrs"][attr, CUTS]
        if self._arrays.views["attrs"][attr, TREE] < 0:
            self._arrays.views["trees"][tree, 1] = self._arrays.nameless_buckets(2 * (PIVOTS + 1))
            self._arrays.views["attrs"][attr, TREE] = tree
        return self._arrays.views["trees"][tree, 1]  # type: ignore[no-any-return]

    def _ranged_filters(self, attr: int) -> list[int]:
        """The filters that hang in the attribute's tree or by its presence."""
        buckets = []
        presence, tree = (self._arrays.views["attrs"][attr, c] for c in (PRESENCE, TREE))
        if presence >= 0:
            buckets.append(presence)
        if tree >= 0:
            base = self._arrays.views["trees"][tree, 1]
            buckets += range(base, base + 2 * (PIVOTS + 1))
        found: dict[int, None] = {}
        for bucket in buckets:
            for number in self.hanging_in(bucket):
                found[number] = None
        return list(found)

    # --- checks -----------------------------------------------------------------------------------

    def validate(self, live: list[int]) -> None:
        """Checks that just these filters hang; AssertionError says which does not."""
        hanging: dict[int, list[int]] = {}
        for bucket in range(self._arrays.used["buckets"]):
            for number in self.hanging_in(bucket):
                hanging.setdefault(number, []).append(bucket)
        pooled = {number: (pool, bit) for number, pool, bit in self.pools.filters()}
        for number in live:
            place, at = self._arrays.of["filters"][number, PLACE:].tolist()
            if at < 0:
                assert pooled.pop(number) == (-1 - at, place), f"filter {number} lost its bit"
                continue
            for bucket, entry in self._chains.places(place, at):
                in_bucket = self.hanging_in(bucket)
                assert in_bucket[entry] == number, f"filter {number} is not at its entry"
            if place >= 0:
                self._validate_key_here(number, self._arrays.of["buckets"][place, START] + at)
            buckets = sorted(self._chains.values(place))
            assert sorted(hanging.pop(number, [])) == buckets, f"filter {number} hangs elsewhere"
        assert not hanging, f"gone filters hang: {sorted(hanging)}"
        assert not pooled, f"gone filters are pooled: {sorted(pooled)}"

    def _validate_key_here(self, number: int, entry: int) -> None:
        row, key = self._arrays.of["entries"][entry], self._arrays.of["filters"][number, KEY]
        if row[GUARD] & KEY_HERE:
            assert row[HERE] == key, f"the entry of filter {number} has another key"


def words_of(arrays: Arrays, number: int) -> list[int]:
    """The words of a filter's program."""
    begin = arrays.views["filters"][number, BEGIN]
    program = arrays.of["program"]
    end = begin + 1 + (int(program[begin]) & WORDS_MASK)
    words: list[int] = program[begin + 1 : end].tolist()
    return words
