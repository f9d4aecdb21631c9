"""Which single value of a filter the fewest notifications come by, and how many these are.

See `placing` for what is chosen from, and `kernels` for how these functions are run; besides
integers they use floats here, for shares.
"""

from typing import Any

from contrada.matching.jit import kernel, part
from contrada.matching.tables import (
    ATTR_MASK,
    BEGIN,
    DOMAIN_SHIFT,
    HITS,
    OP_POINT,
    OP_RANGE,
    OP_SHIFT,
    OP_TEXT,
    OP_TEXT_RANGE,
    POINTS,
    SEEN,
    TEXT_SHIFT,
    TREE,
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
"""Values that an attribute is thought to have besides those that filters hang on."""


@kernel
def presence_of(attr: Any, seen: Any, store: Any) -> Any:
    """The share of so many notifications that have an attribute."""
    if seen < NOTIFICATIONS_MIN:
        return 0.5
    return (store.attrs[attr, SEEN] + 1) / (seen + 1)


@kernel
def unseen_share(column: Any, length: Any, points: Any) -> Any:
    """The share of the notifications with an attribute that come by a place nobody has looked at.

    Of a part of a text, of which `column` is not 0, it goes by the length; of a value by how many
    there are.
    """
    if column != 0:
        return 1.0 / (2 + 8 * length)
    return 1.0 / (points + POINTS_EXPECTED)


@kernel
def share(h: Any, attr: Any, column: Any, length: Any, store: Any) -> Any:
    """The share of the notifications with an attribute that come by the place of a hash."""
    seen = store.attrs[attr, SEEN]
    if seen >= NOTIFICATIONS_MIN:
        bucket = find_bucket(store, h)
        if bucket >= 0:
            return (store.buckets[bucket, HITS] + 1) / (seen + 1)
    return unseen_share(column, length, store.attrs[attr, POINTS])


@kernel
def range_share(attr: Any, domain: Any, low: Any, high: Any, store: Any) -> Any:
    """The share of the bins of an attribute's tree that a range lies in; all without a tree."""
    tree = store.attrs[attr, TREE]
    if tree < 0:
        return 1.0
    bins = bin_of(tree, domain, high, store) - bin_of(tree, domain, low, store) + 1
    return bins / (store.trees[tree, 0] + 1)


@kernel
def cheapest_value(number: Any, seen: Any, store: Any, statistics: Any) -> Any:
    """(word, hash, cost, settled) of the value that the fewest notifications come by.

    The word is where its constraint begins behind the header, -1 where no constraint asks for a
    single value. The cost is the share of all notifications that come by. It is settled where no
    other constraint costs less: all are ranges, and their bins are visited more.
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
            cost = presence_of(attr, seen, store) * min(share(h, attr, 0, 0, statistics), 1.0)
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
