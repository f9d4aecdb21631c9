"""Which single value of a filter the fewest notifications come by, and how many these are.

See `placing` for what is chosen from, and `kernels` for how these functions are run; besides
integers they use floats here, for shares.
"""

from typing import Any

from contrada.matching.jit import kernel, part
from contrada.matching.tables import (
    ATTR_MASK,
    BEGIN,
    CHANCE,
    COUNT_PARTS,
    COUNTED,
    CUTS,
    DOMAIN_SHIFT,
    HIGHEST_RANK,
    HITS,
    OP_POINT,
    OP_RANGE,
    OP_SHIFT,
    OP_TEXT,
    OP_TEXT_RANGE,
    REGISTERS,
    SEEN,
    SKETCH,
    SKETCH_REGISTERS,
    TEXT_SHIFT,
    WORDS_MASK,
)

reading = part("reading")
seeking = part("seeking")
KIND_TEXT = reading.KIND_TEXT
place_hash = reading.place_hash
point_hash = reading.point_hash
text_hash = reading.text_hash
bin_of = seeking.bin_of
find_bucket = seeking.find_bucket

NOTIFICATIONS_MIN = 256
"""Notifications that must be seen before they count."""
POINTS_EXPECTED = 10
"""Values that an attribute is thought to have besides those that filters ask for."""


@kernel
def presence_of(attr: Any, seen: Any, store: Any) -> Any:
    """The share of so many notifications that have an attribute."""
    if seen < NOTIFICATIONS_MIN:
        return 0.5
    return (store.attrs[attr, SEEN] + 1) / (seen + 1)


@kernel
def count(row: Any, h: Any, store: Any) -> Any:
    """Counts a constant by the hash of its place, each once, in the memory of a sketch.

    A register keeps the most zeros that a hash which fell to it ended with. The likelier the next
    new hash raises a register, the fewer there were: so each that does counts for one over that
    chance. One that was counted before can raise nothing.

    Source: E. Cohen, All-distances sketches, revisited (2015): historic inverse probability.
    """
    sketches = store.sketches
    rest, rank = h // SKETCH_REGISTERS, 1
    while rank < HIGHEST_RANK and rest & 1 == 0:
        rest >>= 1
        rank += 1
    register = h % SKETCH_REGISTERS
    word, shift = REGISTERS + register // 8, 8 * (register % 8)
    before = (sketches[row, word] >> shift) & 0xFF
    if rank > before:
        chance = max(sketches[row, CHANCE], 1)
        sketches[row, COUNTED] += (COUNT_PARTS * SKETCH_REGISTERS << HIGHEST_RANK) // chance
        less = (1 << (HIGHEST_RANK - before)) - (1 << (HIGHEST_RANK - rank))
        sketches[row, CHANCE] = chance - less
        sketches[row, word] += (rank - before) << shift


@kernel
def unseen_value(attr: Any, store: Any) -> Any:
    """The share of the notifications with an attribute that have a value nobody has looked at."""
    counted = store.sketches[store.attrs[attr, SKETCH], COUNTED]
    return 1.0 / (counted / COUNT_PARTS + POINTS_EXPECTED)


@kernel
def share(h: Any, attr: Any, unseen: Any, store: Any) -> Any:
    """The share of the notifications with an attribute that come by the place of a hash.

    Where they were not looked at, it is `unseen`.
    """
    seen = store.attrs[attr, SEEN]
    if seen >= NOTIFICATIONS_MIN:
        bucket = find_bucket(store, h)
        if bucket >= 0:
            return (store.buckets[bucket, HITS] + 1) / (seen + 1)
    return unseen


@kernel
def range_share(attr: Any, domain: Any, low: Any, high: Any, store: Any) -> Any:
    """The share of an attribute's bins that a range lies in; all where it has none."""
    tree = store.attrs[attr, CUTS]
    if tree < 0:
        return 1.0
    bins = bin_of(tree, domain, high, store) - bin_of(tree, domain, low, store) + 1
    return bins / (store.trees[tree, 0] + 1)


@kernel
def cheapest_value(number: Any, seen: Any, store: Any, statistics: Any) -> Any:
    """(word, hash, cost, settled) of the value that the fewest notifications come by.

    All its values are counted. The word is where its constraint begins behind the header, -1 where
    no constraint asks for a single value. The cost is the share of all notifications that come by.
    It is settled where no other constraint costs less: all are ranges, and their bins are visited
    more.
    """
    program = store.program
    begin = store.filters[number, BEGIN] + 1
    end = begin + (program[begin - 1] & WORDS_MASK)
    found, its_hash, lowest = -1, 0, 2.0
    least = 2.0
    only_ranges = True
    word = begin
    while word < end:
        head = program[word]
        attr, op = head & ATTR_MASK, (head >> OP_SHIFT) & 0xFF
        if op == OP_POINT or op == OP_TEXT:
            operand = program[word + 1]
            if op == OP_POINT:
                h = point_hash(attr, head >> DOMAIN_SHIFT, operand)
            else:
                length = operand & ((1 << TEXT_SHIFT) - 1)
                h = place_hash(
                    attr, KIND_TEXT, text_hash(store.texts, operand >> TEXT_SHIFT, length)
                )
            count(store.attrs[attr, SKETCH], h, store)
            its_share = share(h, attr, unseen_value(attr, statistics), statistics)
            cost = presence_of(attr, seen, store) * min(its_share, 1.0)
            if found < 0 or cost < lowest:
                found, its_hash, lowest = word - begin, h, cost
        elif op == OP_RANGE:
            low, high = program[word + 1], program[word + 2]
            bins = range_share(attr, head >> DOMAIN_SHIFT, low, high, store)
            least = min(least, presence_of(attr, seen, store) * bins)
        else:
            only_ranges = False
        word += 3 if op == OP_RANGE or op == OP_TEXT_RANGE else 2
    settled = only_ranges and found >= 0 and lowest <= least
    return found, its_hash, lowest, settled
