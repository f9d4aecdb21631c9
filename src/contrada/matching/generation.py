"""One generation of an index: distinct filters in arrays, each hanging at its places.

A generation knows slots of keys, not keys. Equal filters are stored once, with the slots of all
their keys. Removing leaves unused words, texts, sets and places behind; the words are counted, and
in time a new generation is filled, piece by piece (see `index`).

Invariants, held by `validate`: a filter that is not gone hangs in the buckets that its PLACE
names, each of them once, or has a bit in a pool; a gone filter hangs nowhere; the equal-filter
table leads to every filter that is not gone. That every notification that a filter matches comes
by its place is held by the tests against plain evaluation.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np

from contrada.matching.arrays import EPOCHS_MAX, Arrays
from contrada.matching.chains import Chains
from contrada.matching.compiling import Compiler, Program, constraints_of, popped
from contrada.matching.placing import (
    Choice,
    Place,
    best_choice,
    nodes_between,
    places_of,
    tree_key,
    unseen,
)
from contrada.matching.pools import Pools
from contrada.matching.tables import (
    AT,
    ATTR_MASK,
    BEGIN,
    BUCKETS,
    CUTS,
    DOMAIN_SHIFT,
    EPOCH,
    FILTER,
    GONE,
    GRAMS,
    GUARD,
    HERE,
    HITS,
    INT_KEYS,
    KEY,
    KEY_HERE,
    LENGTH,
    MATCHED,
    NEXT,
    NOCASE,
    OP_RANGE,
    OP_SET,
    OP_SHIFT,
    OP_TEXT_RANGE,
    PIVOTS,
    PLACE,
    PRESENCE,
    SEEN_ALL,
    SEVERAL,
    START,
    TREE,
    VERIFY,
    WIDER,
    WORDS_MASK,
    grown,
)
from contrada.matching.values import NOTIFICATIONS_MIN
from contrada.model import Filter, ValueSet
from contrada.model.algebra.valueset import EVERYTHING
from contrada.model.languages.language import Every, Some

PIVOTS_AT: Final = (64, 512)
"""A tree of ranges gets pivots, and better ones, when an attribute has so many filters in it; they
are hung anew then, at once. A renewed generation begins with pivots from what it goes on from."""

BOUNDS_KEPT: Final = 1024
"""Ends of ranges remembered per attribute, to choose pivots from."""

CROWDED_FROM: Final = 1_024
"""Filters in a tree from which on its bins are judged, each time that they are twice as many."""

CROWDED_SHARE: Final = 1 / 8
"""Of the ends of ranges, the share in one bin beyond which the tree is worth renewing."""

CROWDED_STEP: Final = 4
"""One in so many of the ends of ranges that are remembered is looked at for that."""

WORTH: Final = 1.5
"""A filter is hung anew only where so many times fewer notifications come by,"""

WORTH_MOVING: Final = 1 / 128
"""and only if this share of all notifications is spared a look at it: else that never pays."""

NO_KEY: Final = -1
UNUSED_BYTES_MIN: Final = 2**19
"""A generation is worn when at least as many of its bytes, and half of them, are unused."""


class Generation:
    """Filters by number, their keys' slots, and where they hang."""

    def __init__(self, statistics: "Generation | None" = None) -> None:
        self.arrays = Arrays()
        before: Compiler | None = None if statistics is None else statistics.compiler
        self.compiler: Compiler = Compiler(self.arrays, before)
        self.arrays.nameless_buckets(1)
        self.pools = Pools(self.arrays)
        self._words = np.zeros(64, dtype=np.int64)
        self._free: list[int] = []
        self._equal_used = 0
        self._chains = Chains(self.arrays)
        self._slots = 0
        self._only: Any = np.zeros(8, dtype=np.int32)  # per slot its only filter's number, and 1
        self._links: Any = np.zeros(8, dtype=np.int32)  # and the row in links that leads back
        self._several: dict[int, tuple[tuple[int, int], ...]] = {}
        self._ranged: dict[int, int] = {}
        self.is_crowded = False
        self._bounds: dict[int, list[tuple[int, int]]] = {}
        self._bounds_before: dict[int, list[tuple[int, int]]] = {}
        self.exact: dict[int, Filter] = {}
        self.opaque: dict[int, list[int]] = {}
        self.doubtful: set[int] = set()
        self.words_unused = 0
        self._statistics: Arrays | None = None
        if statistics is not None:
            self._statistics = statistics.arrays
            self._bounds_before = statistics._bounds
            if statistics.notifications >= EPOCHS_MAX // 2:  # this one begins to count stamps anew
                statistics.arrays.fade()
            self.arrays.views["counters"][SEEN_ALL] = self._statistics.views["counters"][SEEN_ALL]

    def forget_statistics(self) -> None:
        """To be called when the generation that this one inherited from goes."""
        assert self._statistics is not None
        self.arrays.views["counters"][MATCHED] = self._statistics.views["counters"][MATCHED]
        self._statistics = None
        self._bounds_before = {}
        self.compiler.forget_before()

    # --- filters ----------------------------------------------------------------------------

    def add(self, slot: int, members: Iterable[Filter], programs: Iterable[Program]) -> None:
        """Gives a key's slot its filters, whose programs these are; equal ones once."""
        self._reserve_slots(slot + 1)
        taken: dict[int, int] = {}
        for member, program in zip(members, programs, strict=True):
            number, is_new = self._filter_number(member, program)
            if number not in taken:
                taken[number] = self._link(number, slot)
            if is_new:
                self._note_ranges(member, program.words)
                self._hang(number, member, program.words)
        if len(taken) == 1:
            ((number, self._links[slot]),) = taken.items()
            self._only[slot] = number + 1
        else:
            self.arrays.views["counters"][SEVERAL] = 1
            self._several[slot] = tuple(taken.items())

    def remove(self, slot: int) -> None:
        """Takes its filters from a key's slot; a filter without any key is gone."""
        if not self.knows(slot):
            return
        for number, row in self._links_of(slot):
            self._release(number, slot, row)
        self._only[slot] = 0
        self._several.pop(slot, None)

    def knows(self, slot: int) -> bool:
        """Whether a slot was given its filters, be they none."""
        return slot < self._slots and (self._only[slot] > 0 or slot in self._several)

    def filters_of(self, slot: int) -> list[Filter]:
        """The filters of a slot."""
        return [self.filter(number) for number in self.numbers(slot)]

    def name_keys(self, keys: Any, used: int) -> None:
        """Lets kernels put out keys by their slots, of which so many are used."""
        are_int = keys.dtype != object
        self.arrays.views["counters"][INT_KEYS] = int(are_int)
        if are_int and self.arrays.of["keys"] is not keys:
            self.arrays.put("keys", keys, used)

    def numbers(self, slot: int) -> tuple[int, ...]:
        """The numbers of a slot's filters."""
        return tuple(number for number, _ in self._links_of(slot))

    def _links_of(self, slot: int) -> tuple[tuple[int, int], ...]:
        """The filters of a slot, each with the row in `links` that leads back."""
        number = int(self._only[slot]) - 1
        if number >= 0:
            return ((number, int(self._links[slot])),)
        return self._several.get(slot, ())

    def _reserve_slots(self, slots: int) -> None:
        if slots <= self._slots:
            return
        self.arrays.reserve("key_seen", slots)
        self._only, self._links = grown(self._only, slots), grown(self._links, slots)
        self._slots = slots

    def _filter_number(self, of: Filter, program: Program) -> tuple[int, bool]:
        """The number of a filter, and whether it is new: then it is to be hung."""
        number, is_new = self._entered(program.words, is_wider=program.is_inexact)
        if not is_new:
            return number, False
        verify = bool(program.opaque) or program.is_inexact
        if verify:
            marks = VERIFY | WIDER if program.is_inexact else VERIFY
            self.arrays.of["program"][self.arrays.of["filters"][number, BEGIN]] |= marks
            self.exact[number] = of
            if not program.is_inexact:
                self.opaque[number] = program.opaque
        if program.has_sets:
            self._note_sets(number, of)
        if program.has_references:
            self.compiler.use(constraints_of(program.words))
        return number, True

    def _link(self, number: int, slot: int) -> int:
        """Gives a filter one more key's slot; the row in `links` that leads back."""
        filters = self.arrays.views["filters"]
        before = filters[number, KEY]
        filters[number, KEY], row = self._chains.put(slot, before)
        if before >= 0:  # that slot was alone and had no row
            self._set_row(before, number, self.arrays.views["links"][row, NEXT])
        if row >= 0:
            self._show_key(number)
        return row

    def _set_row(self, slot: int, number: int, row: int) -> None:
        """Writes down in which row of `links` a slot of a filter stands."""
        if self._only[slot] == number + 1:
            self._links[slot] = row
        else:
            links = self._several[slot]
            self._several[slot] = tuple((n, row if n == number else other) for n, other in links)

    def _show_key(self, number: int) -> None:
        """To be called when a filter that hangs gets other keys: its entry may show them."""
        key, place, at = (self.arrays.views["filters"][number, each] for each in (KEY, PLACE, AT))
        if place >= 0 and at >= 0:
            entry = self.arrays.views["buckets"][place, START] + at
            if self.arrays.views["entries"][entry, GUARD] & KEY_HERE:
                self.arrays.views["entries"][entry, HERE] = key

    def _release(self, number: int, slot: int, row: int) -> None:
        """Takes a key's slot from a filter; without any the filter is gone."""
        filters = self.arrays.views["filters"]
        filters[number, KEY] = self._chains.take(slot, row, filters[number, KEY])
        if filters[number, KEY] != NO_KEY:
            self._show_key(number)
            return
        self._unhang(number)
        begin = self.arrays.views["filters"][number, BEGIN]
        program = self.arrays.views["program"]
        self.words_unused += 1 + (program[begin] & WORDS_MASK)
        self.compiler.disuse(constraints_of(self.words(number)))
        program[begin] |= GONE
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
        used = self.arrays.used["filters"]
        nowhere = np.flatnonzero(self.arrays.of["filters"][:used, PLACE] == NO_KEY)
        empty = {number for number in self.doubtful if self.filter(number).is_empty}
        return empty.union(set(nowhere.tolist()).difference(self._free)) if len(nowhere) else empty

    def slots_within(self, numbers: set[int]) -> set[int]:
        """The slots all of whose filters are among these; also those that have none."""
        slots = {slot for number in numbers for slot in self.slots(number)}
        found = {slot for slot in slots if numbers.issuperset(self.numbers(slot))}
        return found.union(slot for slot, links in self._several.items() if not links)

    def words(self, number: int) -> list[int]:
        """The words of a filter's program."""
        begin = self.arrays.views["filters"][number, BEGIN]
        program = self.arrays.of["program"]
        end = begin + 1 + (int(program[begin]) & WORDS_MASK)
        words: list[int] = program[begin + 1 : end].tolist()
        return words

    def slots(self, number: int) -> Iterator[int]:
        """The slots of a filter's keys."""
        yield from self._chains.values(self.arrays.views["filters"][number, KEY])

    def _entered(self, words: list[int], *, is_wider: bool) -> tuple[int, bool]:
        """The filter with these words, and whether it is new; one that is wider always is."""
        arrays = self.arrays
        count = len(words)
        if count > len(self._words):
            self._words = np.zeros(2 * count, dtype=np.int64)
        view = self._words.data
        for i, word in enumerate(words):
            view[i] = word
        if 2 * (self._equal_used + 1) > len(arrays.of["equal"]):
            live = arrays.used["filters"] - len(self._free)
            arrays.rebuild_equal(live + 1)
            self._equal_used = live
        used, begin = arrays.used["filters"], arrays.used["program"]
        fresh = self._free[-1] if self._free else used
        arrays.reserve("filters", used + 1)
        arrays.reserve("program", begin + count + 1)
        number = arrays.enter(self._words, count, fresh, begin, is_wider=is_wider)
        if number != fresh:
            return number, False
        if self._free:
            self._free.pop()
        else:
            arrays.used["filters"] = used + 1
        arrays.used["program"] = begin + count + 1
        self._equal_used += not is_wider
        return number, True

    def _note_sets(self, number: int, of: Filter) -> None:
        """Writes down what a filter's sets ask of its attributes, and whether it may be empty."""
        for attr in self.compiler.marks_nocase(of):
            self.arrays.views["attrs"][attr, NOCASE] = 1
        if any(map(_is_conjunction, of.sets.values())):
            self.doubtful.add(number)

    # --- places -----------------------------------------------------------------------------

    def _hang(self, number: int, of: Filter, words: list[int]) -> None:
        """Hangs a filter at its best place."""
        statistics = self._statistics or self.arrays
        if self.arrays.hang_at_value(number, statistics):
            return
        choice = best_choice(number, of, words, self.arrays, statistics)
        if choice is not None and self._pooled(number, words, choice):
            return
        buckets = {0: False} if choice is None else self._buckets(choice)
        hung = -1 if choice is None else choice.attr
        alone = len(buckets) == 1
        places = [
            (bucket, self.arrays.hang(bucket, number, hung, by_value=by_value, alone=alone))
            for bucket, by_value in buckets.items()
        ]
        if choice is not None and len(places) > 1 and not all(p.is_value for p in choice.places):
            self.arrays.views["counters"][SEVERAL] = 1
        filters = self.arrays.views["filters"]
        filters[number, PLACE] = self._chains.of_places(places)
        filters[number, AT] = places[0][1] if places else 0

    def _pooled(self, number: int, words: list[int], choice: Choice) -> bool:
        """Puts a filter into a pool, where that is better than its best place."""
        if choice.places or choice.bins is None:
            return False
        constraints = constraints_of(words)
        if not self.pools.suits(constraints, choice.cost):
            return False
        place = self.pools.add(number, constraints, self._known_bounds)
        if place is None:
            return False
        pool, bit = place
        filters = self.arrays.views["filters"]
        filters[number, PLACE], filters[number, AT] = bit, -1 - pool
        return True

    def _known_bounds(self, attr: int) -> list[tuple[int, int]]:
        """Ends of ranges that filters have on an attribute, here or in what this goes on from."""
        return max(self._bounds_before.get(attr, []), self._bounds.get(attr, []), key=len)

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
        operand = self.compiler.text(value) if isinstance(value, bytes) else value
        statistics = self._statistics or self.arrays
        share = unseen(attr, place, statistics)
        found = self.arrays.place_bucket(place.hash, attr, share, place.domain, operand, statistics)
        if place.column:
            self.arrays.views["attrs"][attr, place.column] |= 1 << place.length
            if place.column >= GRAMS:
                self.arrays.enter_gram(attr, operand)
        if found & 2:
            self.arrays.views["counters"][SEVERAL] = 1
        return found >> 2, found & 1 == 1 and place.decides

    def _presence_bucket(self, attr: int) -> int:
        bucket = self.arrays.views["attrs"][attr, PRESENCE]
        if bucket < 0:
            bucket = self.arrays.nameless_buckets(1)
            self.arrays.views["attrs"][attr, PRESENCE] = bucket
        return bucket  # type: ignore[no-any-return]

    def _unhang(self, number: int) -> None:
        filters = self.arrays.views["filters"]
        place, at = filters[number, PLACE], filters[number, AT]
        if at < 0:
            self.pools.remove(-1 - at, place)
        else:
            for bucket, entry in self._chains.places(place, at):
                self.arrays.unhang(bucket, number, entry)
            self._chains.drop(place)
        filters[number, PLACE], filters[number, AT] = NO_KEY, 0

    # --- drift ----------------------------------------------------------------------------------

    @property
    def notifications(self) -> int:
        """How many were matched, those before the last `fade` counted by half, and so on."""
        return int(self.arrays.views["counters"][SEEN_ALL])

    def most_looked_through(self) -> int:
        """Of the buckets that the last notification came by, the one with the most filters.

        -1 where too few notifications come by it for its filters to be worth moving.
        """
        counters, buckets = self.arrays.views["counters"], self.arrays.views["buckets"]
        listed = (self.arrays.of["bucket_list"][: counters[BUCKETS]] >> 1).tolist()
        longest: int = max(listed, key=lambda bucket: buckets[bucket, LENGTH])
        seen = self.notifications
        if seen < NOTIFICATIONS_MIN or buckets[longest, HITS] < WORTH_MOVING * seen:
            return -1
        return longest

    def rehang(self, bucket: int, place: int) -> bool:
        """Hangs one of a bucket's filters where much fewer notifications come by, if it can.

        Which, a number says that may be any. Whether it hangs elsewhere now.
        """
        hanging = self._hanging_in(bucket)
        number = hanging[place % len(hanging)]
        filters, buckets = self.arrays.views["filters"], self.arrays.views["buckets"]
        seen, head = self.notifications, filters[number, PLACE]
        before = list(self._chains.values(head))
        now = sum(buckets[each, HITS] for each in before) / seen
        of, words = self.filter(number), self.words(number)
        choice = best_choice(number, of, words, self.arrays, self.arrays)
        if choice is None or now - choice.cost < WORTH_MOVING or now < WORTH * choice.cost:
            return False
        self._unhang(number)
        self._hang(number, of, words)
        filters = self.arrays.views["filters"]
        return filters[number, AT] < 0 or before != list(
            self._chains.values(filters[number, PLACE])
        )

    @property
    def is_worn(self) -> bool:
        """Whether half of what it holds is what gone filters left behind, or a tree is crowded."""
        unused = 8 * self.words_unused + self.compiler.bytes_unused
        if self.is_crowded or unused < UNUSED_BYTES_MIN:
            return self.is_crowded
        used = self.arrays.used
        held = 8 * (used["program"] + used["sets"]) + used["texts"] - self.compiler.name_bytes
        return 2 * unused >= held

    # --- trees of ranges ----------------------------------------------------------------------

    def _note_ranges(self, of: Filter, words: list[int]) -> None:
        """Counts the ranges that a filter asks for, wherever it will hang."""
        at = 0
        for value_set in of.sets.values():
            head = words[at]
            attr, op = head & ATTR_MASK, head >> OP_SHIFT & 0xFF
            if op == OP_RANGE:
                if self._is_telling(attr):
                    domain = head >> DOMAIN_SHIFT
                    self._note_range(attr, (domain, words[at + 1]), (domain, words[at + 2]))
            elif op in (OP_TEXT_RANGE, OP_SET) and value_set.text is None:
                cuts = value_set.line
                is_range = cuts and cuts != EVERYTHING.line and places_of(attr, value_set) is None
                if is_range and self._is_telling(attr):
                    self._note_range(attr, tree_key(cuts[0]), tree_key(cuts[-1]))
            at += 3 if op in (OP_RANGE, OP_TEXT_RANGE) else 2

    def _is_telling(self, attr: int) -> bool:
        """Counts a range of an attribute; whether this one is to be looked at.

        All of the first are, and then fewer and fewer, so that each is as likely to be remembered;
        and those at whose number bins are judged.
        """
        count = self._ranged[attr] = self._ranged.get(attr, 0) + 1
        return count < BOUNDS_KEPT or count % (2 * count // BOUNDS_KEPT) == 0 or _is_power(count)

    def _note_range(self, attr: int, low: tuple[int, int], high: tuple[int, int]) -> None:
        """Keeps a sample of the ends of ranges; cuts the attribute's bins when it is time."""
        count, bounds = self._ranged[attr], self._bounds.setdefault(attr, [])
        before = self._bounds_before.get(attr, [])
        if len(bounds) < BOUNDS_KEPT:
            bounds += (low, high)
        else:
            at = 2 * (_scattered(count) % (BOUNDS_KEPT // 2))
            bounds[at : at + 2] = (low, high)
        if count == 1 and len(before) > PIVOTS:
            self._new_pivots(attr, before)
        elif count in PIVOTS_AT and 2 * count > len(before):
            self._new_pivots(attr, bounds)
        elif count >= CROWDED_FROM and _is_power(count) and self._statistics is None:
            self.is_crowded = self.is_crowded or self._crowds(attr)

    def _crowds(self, attr: int) -> bool:
        """Whether filters hang in a tree, and too many of the ends of its ranges in one bin."""
        tree = self.arrays.views["attrs"][attr, TREE]
        if tree < 0:
            return False
        ends = sorted(set(self._bounds[attr]))[::CROWDED_STEP]
        bins = Counter(self.arrays.bin_at(tree, end) for end in ends)
        return len(ends) > PIVOTS and max(bins.values()) > CROWDED_SHARE * len(ends)

    def _new_pivots(self, attr: int, bounds: list[tuple[int, int]]) -> None:
        """Cuts the attribute's values where the ends of its ranges are, and hangs these anew."""
        hanging = self._ranged_filters(attr)
        for number in hanging:
            self._unhang(number)
        cuts = self.arrays.views["attrs"][attr, CUTS]
        if cuts < 0:
            cuts = self.arrays.views["attrs"][attr, CUTS] = self.arrays.take("trees")
        self.arrays.set_pivots(cuts, bounds)
        for number in hanging:
            self._hang(number, self.filter(number), self.words(number))

    def _tree_buckets(self, attr: int) -> int:
        """The first bucket of an attribute's tree, which has none before a filter hangs there."""
        tree = self.arrays.views["attrs"][attr, CUTS]
        if self.arrays.views["attrs"][attr, TREE] < 0:
            self.arrays.views["trees"][tree, 1] = self.arrays.nameless_buckets(2 * (PIVOTS + 1))
            self.arrays.views["attrs"][attr, TREE] = tree
        return self.arrays.views["trees"][tree, 1]  # type: ignore[no-any-return]

    def _ranged_filters(self, attr: int) -> list[int]:
        """The filters that hang in the attribute's tree or by its presence."""
        buckets = []
        presence, tree = (self.arrays.views["attrs"][attr, c] for c in (PRESENCE, TREE))
        if presence >= 0:
            buckets.append(presence)
        if tree >= 0:
            base = self.arrays.views["trees"][tree, 1]
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
            "free_links": self._chains.free_rows,
            "only": self._only[: self._slots].tobytes(),
            "links": self._links[: self._slots].tobytes(),
            "several": list(self._several.items()),
            "has_several": self.arrays.views["counters"][SEVERAL],
            "seen": self.arrays.views["counters"][SEEN_ALL],
            "matched": self.arrays.views["counters"][MATCHED],
            "epoch": self.arrays.views["counters"][EPOCH],
            "equal_used": self._equal_used,
            "ranged": list(self._ranged.items()),
            "bounds": list(self._bounds.items()),
            "part_sketches": list(self.arrays.part_sketches.items()),
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
        for name, array in arrays.items():
            self.arrays.put(name, array)
        self.arrays.used |= used
        self.arrays.fit_scratch()
        self._free = list(state["free"])
        self._chains.free_rows = list(state["free_links"])
        self.arrays.views["counters"][SEVERAL] = state["has_several"]
        self.arrays.views["counters"][SEEN_ALL] = state["seen"]
        self.arrays.views["counters"][MATCHED] = state["matched"]
        self.arrays.views["counters"][EPOCH] = state["epoch"]
        self._only = np.frombuffer(state["only"], dtype=np.int32).copy()
        self._links = np.frombuffer(state["links"], dtype=np.int32).copy()
        self._reserve_slots(len(self._only))
        self._several = {
            slot: tuple((number, row) for number, row in each) for slot, each in state["several"]
        }
        self._equal_used = state["equal_used"]
        self._ranged = dict(state["ranged"])
        self._bounds = {attr: [(d, key) for d, key in ends] for attr, ends in state["bounds"]}
        self.arrays.part_sketches = {tuple(part): row for part, row in state["part_sketches"]}
        self.words_unused = state["words_unused"]
        self.doubtful = set(state["doubtful"])
        self.exact = {number: unpacked(each) for number, each in state["exact"]}
        self.opaque = {number: list(sets) for number, sets in state["opaque"]}
        self.compiler.restore(state["compiler"], unpacked)
        self.pools.restore(state["pools"])

    # --- the end ------------------------------------------------------------------------------

    def dissolve(self, units: int) -> bool:
        """Frees so many entries of its tables, or one array; whether more is left.

        To free all of a large generation at once would hold up whoever waits for an update.
        """
        held = (self.exact, self.opaque, self._several, self._free, self._chains.free_rows)
        if any(popped(each, units) for each in held) or self.compiler.dissolve(units):
            return True
        return self.arrays.dissolve()

    # --- checks -------------------------------------------------------------------------------

    def live(self) -> list[int]:
        """The numbers of the filters that are not gone."""
        gone = set(self._free)
        return [n for n in range(self.arrays.used["filters"]) if n not in gone]

    def validate(self, slots: list[int]) -> None:
        """Checks the invariants for these slots of keys; AssertionError says which is broken.

        Cost: all filters.
        """
        for slot in slots:
            assert self.knows(slot), f"slot {slot} has no filters"
            for number in self.numbers(slot):
                assert slot in set(self.slots(number)), f"slot {slot} lost filter {number}"
        hanging: dict[int, list[int]] = {}
        for bucket in range(self.arrays.used["buckets"]):
            for number in self._hanging_in(bucket):
                hanging.setdefault(number, []).append(bucket)
        live = self.live()
        pooled = {number: (pool, bit) for number, pool, bit in self.pools.filters()}
        for number in live:
            place, at = self.arrays.of["filters"][number, PLACE:].tolist()
            if at < 0:
                assert pooled.pop(number) == (-1 - at, place), f"filter {number} lost its bit"
                continue
            for bucket, entry in self._chains.places(place, at):
                in_bucket = self._hanging_in(bucket)
                assert in_bucket[entry] == number, f"filter {number} is not at its entry"
            if place >= 0:
                self._validate_key_here(number, self.arrays.of["buckets"][place, START] + at)
            buckets = sorted(self._chains.values(self.arrays.views["filters"][number, PLACE]))
            assert sorted(hanging.pop(number, [])) == buckets, f"filter {number} hangs elsewhere"
            words = self.words(number)
            self._words[: len(words)] = words
            if (
                not self.arrays.views["program"][self.arrays.views["filters"][number, BEGIN]]
                & WIDER
            ):
                assert self.arrays.enter(self._words, len(words)) == number, "lost filter"
            slots = list(self.slots(number))
            assert slots, f"filter {number} has no key"
            for slot in slots:
                assert number in self.numbers(slot), f"filter {number} has a key that has it not"
        assert not hanging, f"gone filters hang: {sorted(hanging)}"
        assert not pooled, f"gone filters are pooled: {sorted(pooled)}"

    def _validate_key_here(self, number: int, entry: int) -> None:
        row, key = self.arrays.of["entries"][entry], self.arrays.of["filters"][number, KEY]
        if row[GUARD] & KEY_HERE:
            assert row[HERE] == key, f"the entry of filter {number} has another key"

    def sizes(self) -> dict[str, Any]:
        """Figures for `statistics`."""
        return {
            "filters": self.arrays.used["filters"] - len(self._free),
            "attributes": len(self.compiler.attrs),
            "buckets": self.arrays.used["buckets"],
            "pooled": len(self.pools.filters()),
            "everywhere": self.arrays.views["buckets"][0, LENGTH],
            "bytes": self.arrays.bytes_used() + 8 * self._slots,
        }


def _is_conjunction(value_set: ValueSet) -> bool:
    """Whether a set could turn out empty only by deciding about its text."""
    return not value_set.line and isinstance(value_set.text, Every | Some)


def _is_power(count: int) -> bool:
    """Whether a number is a power of two."""
    return count & (count - 1) == 0


def _scattered(number: int) -> int:
    """A number of 64 bits that looks like chance, but is the same each time (splitmix64)."""
    number = number * 0x9E3779B97F4A7C15 & _MASK
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31


_MASK: Final = 2**64 - 1
