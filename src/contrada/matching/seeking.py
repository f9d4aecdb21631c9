"""Which buckets the notification in the scratch comes by.

Buckets of its values, of parts of its texts, of the nodes above its bins, and of the presence of
its attributes. Memory begins to bring what hangs there. See `kernels` for how these functions are
written and run.
"""

from typing import Any

from contrada.matching.jit import kernel, part, prefetch
from contrada.matching.tables import (
    ASKED,
    BUCKETS,
    COUNT,
    EPOCH,
    FIRST,
    GRAMS,
    HASH,
    LENGTH,
    NOCASE,
    OF_ATTR,
    OF_DOMAIN,
    OF_HIGH,
    OF_LOW,
    PENDING,
    PIVOTS,
    PREFIXES,
    PRESENCE,
    PRESENT,
    SEEN,
    STAMP,
    START,
    SUFFIXES,
    TREE,
    V_ATTR,
    V_DOMAIN,
    V_FOLDED,
    V_FOLDED_LENGTH,
    V_HIGH,
    V_LENGTH,
    V_LOW,
    V_START,
)

reading = part("reading")
holding = part("holding")
gram_bit = reading.gram_bit
mixed = reading.mixed
place_hash = reading.place_hash
point_hash = reading.point_hash
text_hash = reading.text_hash
same_text = holding.same_text
MASK = reading.MASK
PRIME = reading.PRIME
SEED = reading.SEED
KIND_TEXT = reading.KIND_TEXT
KIND_PREFIX = reading.KIND_PREFIX
KIND_SUFFIX = reading.KIND_SUFFIX
KIND_GRAM = reading.KIND_GRAM
KIND_TEXT_NOCASE = reading.KIND_TEXT_NOCASE
TEXT = reading.TEXT
PREFETCHED_ENTRIES = 32
"""Entries of a bucket that are asked for ahead, two a line of memory; then the processor knows."""
LENGTHS_MAX = 24
"""Prefixes and suffixes are looked up by at most so many bytes; the check sees all of them."""
GRAM_BYTES_MAX = 4
"""A substring is looked up by at most so many of its bytes."""
GRAMS_AT_ONCE = 256
"""Runs of bytes of a text that are asked for at a time."""
ASKED_BY_VALUE = 4 * LENGTHS_MAX + 8
"""Places that one value asks for at most, those of its substrings aside."""


@kernel
def find_bucket(store: Any, h: Any) -> Any:
    """The bucket of a place by its hash, or -1."""
    mask = len(store.slots) - 1
    slot = h & mask
    while True:
        bucket = store.slots[slot] - 1
        if bucket < 0:
            return -1
        if store.buckets[bucket, HASH] == h:
            return bucket
        slot = (slot + 1) & mask


@kernel
def note(bucket: Any, by_value: Any, store: Any, scratch: Any) -> Any:
    """Puts a bucket on the list of those to look through, once."""
    counters = scratch.counters
    if store.buckets[bucket, STAMP] != counters[EPOCH]:
        store.buckets[bucket, STAMP] = counters[EPOCH]
        start = store.buckets[bucket, START]
        for i in range(start, start + min(store.buckets[bucket, LENGTH], PREFETCHED_ENTRIES), 2):
            prefetch(store.entries, i)
        scratch.bucket_list[counters[BUCKETS]] = 2 * bucket + by_value
        counters[BUCKETS] += 1


@kernel
def ask(h: Any, row: Any, store: Any, scratch: Any) -> Any:
    """Writes down the hash of a place, to be looked up later, when memory has brought its slot.

    `row` is that of the value which alone leads to this place; -1 for a part of a text.
    """
    counters = scratch.counters
    scratch.pending[counters[ASKED]] = (h << 32) + row + 1
    counters[ASKED] += 1
    prefetch(store.slots, h & (len(store.slots) - 1))


@kernel
def look_up(store: Any, scratch: Any) -> Any:
    """Notes the buckets of the places that were asked for.

    First memory begins to bring all of them, so that the processor waits for many at once.
    """
    counters, pending, slots, buckets = (
        scratch.counters, scratch.pending, store.slots, store.buckets
    )  # fmt: skip
    mask = len(slots) - 1
    for n in range(counters[ASKED]):
        prefetch(buckets, max(slots[(pending[n] >> 32) & mask] - 1, 0))
    for n in range(counters[ASKED]):
        bucket = find_bucket(store, pending[n] >> 32)
        if bucket >= 0:
            row = (pending[n] & MASK) - 1
            if buckets[bucket, OF_DOMAIN] == 0:
                note(bucket, 0, store, scratch)
            elif row >= 0 and is_led_to(bucket, row, store, scratch):
                note(bucket, 1, store, scratch)
    counters[ASKED] = 0


@kernel
def is_led_to(bucket: Any, row: Any, store: Any, scratch: Any) -> Any:
    """Whether a bucket of one value alone is this value's, and not another's with the same hash."""
    buckets, values = store.buckets, scratch.values
    domain = values[row, V_DOMAIN]
    if buckets[bucket, OF_ATTR] != values[row, V_ATTR] or buckets[bucket, OF_DOMAIN] != domain:
        return False
    low, high = buckets[bucket, OF_LOW] + 0, buckets[bucket, OF_HIGH] + 0
    of = (high << 32) | (low & MASK)
    if domain == TEXT:
        return same_text(store, of, scratch.text, values[row, V_START], values[row, V_LENGTH])
    return values[row, V_LOW] <= of and of <= values[row, V_HIGH]


@kernel
def ask_by_text(attr: Any, case: Any, start: Any, length: Any, store: Any, scratch: Any) -> Any:
    """Asks for prefixes, suffixes and substrings of one text. `case` is 0, or 1 without case."""
    text, attrs = scratch.text, store.attrs
    prefixes = attrs[attr, PREFIXES + case]
    suffixes = attrs[attr, SUFFIXES + case]
    grams = attrs[attr, GRAMS + case]
    if prefixes != 0:
        h = SEED
        for i in range(min(length, LENGTHS_MAX)):
            h = ((h ^ text[start + i]) * PRIME) & MASK
            if (prefixes >> (i + 1)) & 1:
                ask(place_hash(attr, KIND_PREFIX + case, h), -1, store, scratch)
    if suffixes != 0:
        h = SEED
        for i in range(min(length, LENGTHS_MAX)):
            h = ((h ^ text[start + length - 1 - i]) * PRIME) & MASK
            if (suffixes >> (i + 1)) & 1:
                ask(place_hash(attr, KIND_SUFFIX + case, h), -1, store, scratch)
    if grams != 0:
        ask_by_grams(attr, case, grams, start, length, store, scratch)


@kernel
def ask_by_grams(
    attr: Any, case: Any, grams: Any, start: Any, length: Any, store: Any, scratch: Any
) -> Any:
    """Asks for the runs of as many bytes as filters name, of a long text some at a time.

    Most have no bit, and those that have one are written down first: without branches.
    """
    text, bits, counters, pending = (
        scratch.text, store.gram_bits, scratch.counters, scratch.pending
    )  # fmt: skip
    count = 8 * len(bits)
    for size in range(1, GRAM_BYTES_MAX + 1):
        if (grams >> size) & 1 == 0:
            continue
        keep = MASK >> (32 - 8 * size)
        for first in range(size - 1, length, GRAMS_AT_ONCE):
            if counters[ASKED] > PENDING - GRAMS_AT_ONCE:
                look_up(store, scratch)
            gram = 0
            for i in range(first - size + 1, first):
                gram = (gram << 8) | text[start + i]
            found = counters[ASKED]
            for i in range(first, min(length, first + GRAMS_AT_ONCE)):
                gram = ((gram << 8) | text[start + i]) & keep
                pending[found] = gram
                bit = gram_bit(attr, gram, count)
                found += (bits[bit >> 3] >> (bit & 7)) & 1
            for n in range(counters[ASKED], found):
                h = mixed(mixed(SEED, pending[n]), size)
                ask(place_hash(attr, KIND_GRAM + case, h), -1, store, scratch)


@kernel
def ask_by_value(row: Any, store: Any, scratch: Any) -> Any:
    """Asks for the places that one value leads to."""
    values = scratch.values
    attr = values[row, V_ATTR]
    domain = values[row, V_DOMAIN]
    if domain != TEXT:
        for key in range(values[row, V_LOW], values[row, V_HIGH] + 1):
            ask(point_hash(attr, domain, key), row, store, scratch)
        return
    ask(place_hash(attr, KIND_TEXT, values[row, V_LOW]), row, store, scratch)
    ask_by_text(attr, 0, values[row, V_START], values[row, V_LENGTH], store, scratch)
    if store.attrs[attr, NOCASE] != 0:
        start, length = values[row, V_FOLDED], values[row, V_FOLDED_LENGTH]
        h = text_hash(scratch.text, start, length)
        ask(place_hash(attr, KIND_TEXT_NOCASE, h), -1, store, scratch)
        ask_by_text(attr, 1, start, length, store, scratch)


@kernel
def tree_key(domain: Any, low: Any, text: Any, start: Any, length: Any) -> Any:
    """Where a value stands among the pivots: text by its first seven bytes."""
    if domain != TEXT:
        return low
    key = 0
    for i in range(7):
        key = key * 256 + (text[start + i] if i < length else 0)
    return key


@kernel
def bin_of(tree: Any, domain: Any, key: Any, store: Any) -> Any:
    """The bin of a value: how many pivots are not above it."""
    trees = store.trees
    low, high = 0, trees[tree, 0]
    while low < high:
        middle = (low + high) >> 1
        pivot_domain = trees[tree, 2 + 2 * middle]
        if pivot_domain < domain or (pivot_domain == domain and trees[tree, 3 + 2 * middle] <= key):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def collect_by_range(row: Any, tree: Any, store: Any, scratch: Any) -> Any:
    """Notes the nodes above the bins of a value, or of the two doubles around it."""
    values = scratch.values
    domain = values[row, V_DOMAIN]
    start, length = values[row, V_START], values[row, V_LENGTH]
    key = tree_key(domain, values[row, V_LOW], scratch.text, start, length)
    first = bin_of(tree, domain, key, store)
    last = first
    if domain != TEXT and values[row, V_HIGH] != values[row, V_LOW]:
        last = bin_of(tree, domain, values[row, V_HIGH], store)
    for leaf in range(first, last + 1):
        node = PIVOTS + 1 + leaf
        while node > 0:
            bucket = store.trees[tree, 1] + node
            if store.buckets[bucket, LENGTH] > 0:
                note(bucket, 0, store, scratch)
            node >>= 1


@kernel
def collect(store: Any, scratch: Any) -> Any:
    """Lists every bucket that the notification comes by."""
    counters = scratch.counters
    counters[BUCKETS] = 0
    counters[ASKED] = 0
    note(0, 0, store, scratch)
    for i in range(counters[PRESENT]):
        attr = scratch.present[i]
        store.attrs[attr, SEEN] += 1
        bucket = store.attrs[attr, PRESENCE]
        if bucket >= 0:
            note(bucket, 0, store, scratch)
        tree = store.attrs[attr, TREE]
        first = scratch.state[attr, FIRST]
        for row in range(first, first + scratch.state[attr, COUNT]):
            if counters[ASKED] > PENDING - ASKED_BY_VALUE:
                look_up(store, scratch)
            ask_by_value(row, store, scratch)
            if tree >= 0:
                collect_by_range(row, tree, store, scratch)
    look_up(store, scratch)
