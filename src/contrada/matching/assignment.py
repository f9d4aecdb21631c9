"""`Assignment`: the filters of a segment at their places; `Drift`: their moves to better ones.

The possible places, and the choice of the best, are in `access_predicates`.
"""

from collections import Counter
from typing import Final

from contrada.matching.access_predicates import (
    AccessChoice,
    AccessPredicate,
    Pools,
    best_choice,
    nodes_between,
    range_ends,
    unseen,
)
from contrada.matching.filter_compiler import CompiledConstraint, Compiler, constraints_of
from contrada.matching.index_arrays import EMPTY, Arrays, Chains, grown
from contrada.matching.index_limits import IndexLimits
from contrada.matching.kernels import filter_reader, schema
from contrada.matching.kernels.bucket_lookup import keep_range, note_ranges
from contrada.matching.kernels.memory import Rows
from contrada.matching.kernels.update import cheapest_value
from contrada.model import Filter

CUT_AT: Final = (64, 512)
"""Ranges of an attribute at which it gets bins, and better ones. A renewed segment begins with the
bins of the former one. Bins are judged after as many more ranges, or half as many as there are."""

CROWDED_SHARE: Final = 1 / 8
"""The share of the ends of ranges in one bin beyond which bins are cut anew."""

CROWDED_STEP: Final = 4
"""The judgement uses one of this many remembered ends of ranges."""

_NODES: Final = 2 * (schema.PIVOTS + 1)
"""Nodes of a tree, from 1 on; each has a bucket."""

_FILTERS: Final = schema.Layout("i")
"""The number of filters of each bucket."""

End = tuple[int, int]
"""A domain and a key, as of `access_predicates.tree_key`."""

WORTH: Final = 1.5
"""A filter is reassigned only if the new place is reached by this many times fewer
notifications,"""

WORTH_MOVING: Final = 1 / 128
"""and only if this share of all notifications no longer checks it: less is never worth the move."""

REASSIGNED_AT_ONCE: Final = 2
"""Filters considered by one match: some tens of microseconds each."""

FADED_EACH: Final = 8
"""Buckets that are halved per notification between, at most."""


class Assignment:
    """Filters, by their numbers, in buckets and pools.

    Invariant, checked by `validate`: an assigned filter is in the buckets of its PLACE, each of
    them once, or has a bit in a pool.
    """

    def __init__(
        self, arrays: Arrays, compiler: Compiler, chains: Chains, exact: dict[int, Filter]
    ) -> None:
        self.arrays = arrays
        self._compiler = compiler
        self._chains = chains
        self._exact = exact
        self.pools = Pools(arrays)
        self.statistics: Arrays | None = None
        """The arrays with the statistics, if they are another segment's."""
        self.has_crowded_pool = False
        """Whether the bins of a pool are crowded, which only a new segment gets anew."""
        self.moving: dict[int, int] = {}
        """Attributes with new bins, to which `move` moves filters: from the former tree, and from
        the presence, where so many are left to be considered."""

    def filter(self, number: int) -> Filter:
        """Returns the filter of a number, decoded from its program unless it is kept."""
        exact = self._exact.get(number)
        if exact is not None:
            return exact
        return self._compiler.filter_of(self.arrays.words_of(number))

    def assign(
        self, number: int, of: Filter, constraints: list[CompiledConstraint] | None = None
    ) -> None:
        """Assigns a filter to its best place; `constraints` are decoded if not given."""
        statistics = self.statistics or self.arrays
        cheapest = self.arrays.hang_at_value(number, statistics)
        if cheapest is None:  # It has a single value, the usual case, in one compiled call.
            return
        constraints = constraints or constraints_of(self.arrays.words_of(number))
        choice = best_choice(number, of, constraints, cheapest, self.arrays, statistics)
        if choice is not None and self._pool(number, constraints, choice):
            return
        buckets = {0: False} if choice is None else self._buckets(choice)
        hung = -1 if choice is None else choice.attr
        alone = len(buckets) == 1
        places = [
            (bucket, self.arrays.hang(bucket, number, hung, by_value=by_value, alone=alone))
            for bucket, by_value in buckets.items()
        ]
        if choice is not None and choice.places and len(places) > 1:
            # One text may have two parts: from now on matches drop repeated filters, which costs
            # some time.
            are_values = all(each.is_value for each in choice.places)
            repeats = schema.SEVERAL_PLACES if are_values else schema.REPEATS
            self.arrays.counters.several[0] |= repeats
        filters = self.arrays.filters
        filters.place[number] = self._chains.of_places(places)
        filters.at[number] = places[0][1] if places else 0

    def assign_since(self, first: int) -> None:
        """Assigns filters from a number on that have no place yet."""
        arrays, memory = self.arrays, self.arrays.memory
        attrs, count = arrays.attrs, arrays.used["attrs"]
        ranges, due = attrs.ranges[:count].tolist(), attrs.due[:count].tolist()
        for attr in range(count):
            if max(1, due[attr]) <= ranges[attr]:
                self._look_at_bins(attr)
        self._assign_at_values(first)
        end = arrays.used["filters"]
        while (first := filter_reader.next_unassigned(first, end, memory)) < end:
            self.assign(first, self.filter(first))
            first += 1

    def _assign_at_values(self, number: int) -> None:
        arrays, used, memory = self.arrays, self.arrays.used, self.arrays.memory
        first, end, more = number, used["filters"], Rows.zeros(_FILTERS, used["buckets"] + 1)
        filter_reader.count_constants(first, end, memory)
        while number < end:
            arrays.reserve("buckets", used["buckets"] + 1)
            arrays.reserve_slots()
            more = grown(more, used["buckets"] + 1)
            number, used["buckets"] = filter_reader.choose_values(
                number, end, used["buckets"], more.numbers, memory
            )
        needed = filter_reader.entries_needed(more.numbers, used["buckets"], memory)
        arrays.reserve("entries", used["entries"] + needed)
        used["entries"] = filter_reader.assign_chosen(
            first, end, more.numbers, used["buckets"], used["entries"], memory
        )

    def _pool(
        self, number: int, constraints: list[CompiledConstraint], choice: AccessChoice
    ) -> bool:
        if choice.places or choice.bins is None:
            return False
        if not self.pools.admit(constraints, choice.cost):
            return False
        place = self.pools.add(number, constraints, self._known_ends)
        if place is None:
            return False
        pool, bit = place
        filters = self.arrays.filters
        filters.place[number], filters.at[number] = bit, -1 - pool
        return True

    def _buckets(self, choice: AccessChoice) -> dict[int, bool]:
        """Returns the buckets of a choice, and whether each is that of a value of the choice."""
        if choice.bins is not None:
            tree = self.arrays.attrs.cuts[choice.attr]
            base = self._tree_buckets(choice.attr, tree)
            nodes = nodes_between(*choice.bins)
            for node in nodes:
                self.arrays.enter_node(tree, node)
            return {base + node: False for node in nodes}
        if not choice.places and choice.cost > 0:
            return {self._presence_bucket(choice.attr): False}
        buckets: dict[int, bool] = {}
        for place in choice.places:
            bucket, by_value = self._hashed_bucket(choice.attr, place)
            buckets[bucket] = by_value and buckets.get(bucket, True)
        return buckets

    def _hashed_bucket(self, attr: int, place: AccessPredicate) -> tuple[int, bool]:
        """Returns the bucket of a place, and whether it is that of the place's value."""
        value = place.value
        operand = self._compiler.text(value) if isinstance(value, bytes) else value
        statistics = self.statistics or self.arrays
        share = unseen(attr, place, statistics)
        found = self.arrays.place_bucket(place.hash, attr, share, place.domain, operand, statistics)
        if place.length:
            # Matches look up parts of these lengths only, so every length must be noted.
            self.arrays.parts[schema.PART_COLUMNS * attr + place.column] |= 1 << place.length
            if place.column >= schema.GRAMS:
                self.arrays.enter_gram(attr, operand)
        if found & 2:  # Two places share a hash, and a value of one may lead to a filter twice.
            self.arrays.counters.several[0] |= schema.SHARED_HASH
        return found >> 2, found & 1 == 1 and place.decides

    def _presence_bucket(self, attr: int) -> int:
        bucket = self.arrays.attrs.presence[attr]
        if bucket < 0:
            bucket = self.arrays.take_buckets(1)
            self.arrays.attrs.presence[attr] = bucket
        return bucket  # type: ignore[no-any-return]

    def unassign(self, number: int) -> None:
        """Removes a filter from its places."""
        filters = self.arrays.filters
        place, at = filters.place[number], filters.at[number]
        if at < 0:
            self.pools.remove(-1 - at, place)
        else:
            for bucket, entry in self._chains.places(place, at):
                self.arrays.unhang(bucket, number, entry)
            self._chains.drop(place)
        filters.place[number], filters.at[number] = EMPTY, 0

    def filters_in(self, bucket: int) -> list[int]:
        """Returns the filters in a bucket."""
        buckets = self.arrays.buckets
        start, length = buckets.start[bucket], buckets.length[bucket]
        return self.arrays.entries.filter[start : start + length].tolist()  # type: ignore[no-any-return]

    # --- other places ---------------------------------------------------------------------------

    def busiest_bucket(self) -> int:
        """Returns the bucket with the most filters among those that the last notification reached.

        -1 if too few notifications reach it for a move to be worth it.
        """
        counters, buckets = self.arrays.counters, self.arrays.buckets
        listed = [each >> 1 for each in self.arrays.bucket_list[: counters.buckets[0]]]
        longest: int = max(listed, key=lambda bucket: buckets.length[bucket])
        is_worth = buckets.hits[longest] >= WORTH_MOVING * counters.seen[0]
        return longest if is_worth else -1

    def reassign(self, bucket: int, place: int) -> bool:
        """Moves one of a bucket's filters to a much rarer place; returns whether there is one.

        Any number may choose the filter.
        """
        assigned = self.filters_in(bucket)
        if not assigned:
            return False
        number = assigned[place % len(assigned)]
        filters, buckets = self.arrays.filters, self.arrays.buckets
        seen, head = self.arrays.counters.seen[0], filters.place[number]
        before = list(self._chains.values(head))
        now = sum(buckets.hits[each] for each in before) / seen
        of, constraints = self.filter(number), constraints_of(self.arrays.words_of(number))
        # Its constants are counted once more, which changes nothing in a sketch.
        cheapest = cheapest_value(number, self.arrays.memory, self.arrays.memory)
        choice = best_choice(number, of, constraints, cheapest, self.arrays, self.arrays)
        if choice is None or now - choice.cost < WORTH_MOVING or now < WORTH * choice.cost:
            return False
        self.unassign(number)
        self.assign(number, of, constraints)
        filters = self.arrays.filters
        return filters.at[number] < 0 or before != list(self._chains.values(filters.place[number]))

    # --- trees of ranges --------------------------------------------------------------------------

    def note_ranges(
        self, number: int, of: Filter, words: list[int]
    ) -> list[CompiledConstraint] | None:
        """Counts the ranges of a filter, wherever it will be assigned; cuts bins in time.

        All count: if only those of filters assigned to ranges did, none would become the first.
        Returns the constraints of its words if they were decoded, as always for sets.
        """
        arrays = self.arrays
        answer = note_ranges(number, arrays.memory)
        while answer >= 0:
            arrays.give_room(answer)
            answer = note_ranges(number, arrays.memory)
        if answer == -1:
            return None
        constraints, begin = constraints_of(words), arrays.filters.begin[number]
        for constraint, value_set in zip(constraints, of.sets.values(), strict=True):
            attr, op, _, _ = constraint
            if op in (schema.OP_TEXT_RANGE, schema.OP_SET):
                ends = range_ends(op, value_set)
                if ends is not None:
                    arrays.give_room(attr)
                    keep_range(attr, *ends, begin, arrays.memory)
            self._look_at_bins(attr)
        return constraints

    def _look_at_bins(self, attr: int) -> None:
        """Cuts an attribute's bins if they are due, and better ones are known.

        Bins from which filters are moved are looked at afterwards, by `move`.
        """
        arrays, attrs = self.arrays, self.arrays.attrs
        due = attrs.due[attr]
        if attrs.ranges[attr] < max(1, due) or attr in self.moving:
            return
        # A segment that replaces another knows the other's ends from the beginning, and has no
        # better ones until it has half as many of its own. It is not judged by the first of them.
        before = self.statistics.ends_of(attr) if self.statistics else []
        ends, count = arrays.ends_of(attr), attrs.ranges[attr]
        more = next((at - count for at in CUT_AT if at > count), CUT_AT[-1])
        attrs.due[attr] = count + max(more, count // 2)
        if due == 0 and len(before) > schema.PIVOTS:
            self._cut(attr, before)
        elif count >= CUT_AT[0 if attrs.cuts[attr] < 0 else -1] and due <= CUT_AT[-1]:
            if 2 * count > len(before):
                self._cut(attr, ends)
        elif not self.statistics:
            if self._crowds(attrs.tree[attr], ends):
                self._cut(attr, ends)
            pooled = self.pools.trees_of(attr)
            self.has_crowded_pool |= any(self._crowds(tree, ends) for tree in pooled)

    def _crowds(self, tree: int, ends: list[End]) -> bool:
        """Whether there is a tree with too many of the ends of ranges in one bin."""
        some = sorted(set(ends))[::CROWDED_STEP]
        if tree < 0 or len(some) <= schema.PIVOTS:
            return False
        bins = Counter(self.arrays.bin_at(tree, end) for end in some)
        return max(bins.values()) > CROWDED_SHARE * len(some)

    def _known_ends(self, attr: int) -> list[End]:
        """Returns the known ends of an attribute's ranges, in this or the former segment."""
        before = self.statistics.ends_of(attr) if self.statistics else []
        return max(before, self.arrays.ends_of(attr), key=len)

    def _cut(self, attr: int, ends: list[End]) -> None:
        """Cuts an attribute's values into bins at the ends of its ranges; `move` moves filters.

        A filter of the former bins stays in their tree until then, since a node has other values in
        the new one.
        """
        arrays, attrs = self.arrays, self.arrays.attrs
        tree, cuts, presence = attrs.tree[attr], attrs.cuts[attr], attrs.presence[attr]
        if cuts < 0:  # Filters are at presence only because there were no bins.
            self.moving[attr] = arrays.buckets.length[presence] if presence >= 0 else 0
        else:
            self.moving.setdefault(attr, 0)
        if tree == cuts:
            cuts = attrs.cuts[attr] = arrays.take("trees")
        arrays.set_pivots(cuts, ends)

    def move(self, units: int) -> bool:
        """Moves up to `units` filters to new bins; returns whether more are left."""
        while units and self.moving:
            self._move_one(*next(iter(self.moving.items())))
            units -= 1
        return bool(self.moving)

    def _move_one(self, attr: int, left: int) -> None:
        """Moves a filter to an attribute's new bins; ends that, and judges them, if all are there.

        `left` filters at presence are to be considered.
        """
        number = self._next_moved(attr, left)
        if number >= 0:
            self.unassign(number)
            self.assign(number, self.filter(number))
            return
        attrs = self.arrays.attrs
        if attrs.tree[attr] >= 0:
            cuts = attrs.cuts[attr]
            attrs.tree[attr] = cuts if self.arrays.trees.first_bucket[cuts] else -1
        del self.moving[attr]
        self._look_at_bins(attr)

    def _next_moved(self, attr: int, left: int) -> int:
        """Returns a filter at an attribute's presence, or in its former tree; -1 without one."""
        attrs, buckets = self.arrays.attrs, self.arrays.buckets
        bucket, length = attrs.presence[attr], left
        if left:  # From the last one on: those that return to presence are behind it.
            length = min(left, buckets.length[bucket])
            self.moving[attr] = max(0, length - 1)
        if length == 0:
            tree = attrs.tree[attr]
            if tree < 0 or tree == attrs.cuts[attr]:
                return -1
            first = self.arrays.trees.first_bucket[tree]
            lengths = buckets.length[first : first + _NODES].tolist()
            length = max(lengths)
            bucket = first + lengths.index(length)
        entry = buckets.start[bucket] + length - 1
        return self.arrays.entries.filter[entry] if length else -1

    def _tree_buckets(self, attr: int, tree: int) -> int:
        """Returns the first bucket of the nodes of an attribute's newest tree."""
        trees, attrs = self.arrays.trees, self.arrays.attrs
        if trees.first_bucket[tree] == 0:  # Bucket 0 is that of filters everywhere.
            trees.first_bucket[tree] = self.arrays.take_buckets(_NODES)
            if attrs.tree[attr] < 0:
                attrs.tree[attr] = tree
        return trees.first_bucket[tree]  # type: ignore[no-any-return]

    # --- checks -----------------------------------------------------------------------------------

    def validate(self, live: list[int]) -> None:
        """Checks that exactly these filters are assigned; AssertionError names another."""
        assigned: dict[int, list[int]] = {}
        for bucket in range(self.arrays.used["buckets"]):
            for number in self.filters_in(bucket):
                assigned.setdefault(number, []).append(bucket)
        pooled = {number: (pool, bit) for number, pool, bit in self.pools.filters()}
        for number in live:
            place, at = self.arrays.filters.place[number], self.arrays.filters.at[number]
            if at < 0:
                assert pooled.pop(number) == (-1 - at, place), f"filter {number} lost its bit"
                continue
            assert place != EMPTY or self.filter(number).is_empty, f"filter {number} has no place"
            for bucket, entry in self._chains.places(place, at):
                in_bucket = self.filters_in(bucket)
                assert in_bucket[entry] == number, f"filter {number} is not at its entry"
            if place >= 0:
                self._validate_key_here(number, self.arrays.buckets.start[place] + at)
            buckets = sorted(self._chains.values(place))
            assert sorted(assigned.pop(number, [])) == buckets, f"filter {number} is elsewhere"
        assert not assigned, f"removed filters are assigned: {sorted(assigned)}"
        assert not pooled, f"removed filters are pooled: {sorted(pooled)}"
        attrs, count = self.arrays.attrs, self.arrays.used["attrs"]
        for attr, tree in enumerate(attrs.tree[:count].tolist()):
            is_newest = tree < 0 or tree == attrs.cuts[attr]
            assert is_newest or attr in self.moving, f"attribute {attr} keeps its former tree"

    def _validate_key_here(self, number: int, entry: int) -> None:
        its, key = self.arrays.entries[entry], self.arrays.filters.key[number]
        if its.guard & schema.KEY_HERE:
            assert its.here == key, f"the entry of filter {number} has another key"


class Drift:
    """Moves filters from places that many notifications reach, a few at a time.

    A filter's place is chosen when it is added, by the statistics of that time; and the stream
    changes. So a match that checked many filters pays for reassigning some of them, from its
    slowest bucket. Attempts are spaced so that they take a small part of the time of matching, each
    after the match that is `due`; after a failure twice as many matches pass each time. The
    statistics are halved now and then, so that old notifications count less and less.

    Invariant: matching is exact all the time, and a match pays for `REASSIGNED_AT_ONCE` filters at
    most.
    """

    def __init__(self, limits: IndexLimits = IndexLimits()) -> None:
        self._limits = limits
        self._patience = 1
        self._cursor = 0

    def improve(self, assignment: Assignment) -> None:
        """Reassigns some filters if the match that was due checked many."""
        arrays = assignment.arrays
        counters, limits = arrays.counters, self._limits
        if assignment.moving:  # So the next match is due, too.
            assignment.move(REASSIGNED_AT_ONCE)
            return
        if counters.looked[0] < limits.looked_min or counters.seen[0] < limits.seen_min:
            counters.due[0] = counters.matched[0] + limits.matches_between
            return
        if counters.seen[0] > max(2 * limits.fading_after, arrays.used["buckets"] // FADED_EACH):
            arrays.fade()
        moved = self._reassign(assignment)
        self._patience = 1 if moved else min(2 * self._patience, limits.patience_max)
        wait = max(self._patience, limits.looked_between // counters.looked[0])
        counters.due[0] = counters.matched[0] + wait

    def _reassign(self, assignment: Assignment) -> int:
        bucket = assignment.busiest_bucket()
        if bucket < 0:
            return 0
        moved = 0
        for _ in range(REASSIGNED_AT_ONCE):
            moved += assignment.reassign(bucket, self._cursor)
            self._cursor += 1
        return moved
