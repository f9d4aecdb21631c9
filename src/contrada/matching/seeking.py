"""Which buckets the notification in the scratch comes by.

Buckets of its values, of parts of its texts, of the nodes above its bins, and of the presence of
its attributes. Memory begins to bring what hangs there. See `kernels` for how these functions are
written and run.
"""

from typing import Any

from contrada.matching.jit import kernel, part, prefetch
from contrada.matching.tables import (
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
HALF = 0x80000000
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
def probe(h: Any, store: Any, scratch: Any) -> Any:
    """Notes the bucket of a place, where there is one. A value's own bucket is none of these."""
    bucket = find_bucket(store, h)
    if bucket >= 0 and store.buckets[bucket, OF_DOMAIN] == 0:
        note(bucket, 0, store, scratch)


@kernel
def probe_text(attr: Any, case: Any, start: Any, length: Any, store: Any, scratch: Any) -> Any:
    """Probes prefixes, suffixes and substrings of one text. `case` is 0, or 1 without case."""
    text, attrs = scratch.text, store.attrs
    prefixes = attrs[attr, PREFIXES + case]
    suffixes = attrs[attr, SUFFIXES + case]
    grams = attrs[attr, GRAMS + case]
    if prefixes != 0:
        h = SEED
        for i in range(min(length, LENGTHS_MAX)):
            h = ((h ^ text[start + i]) * PRIME) & MASK
            if (prefixes >> (i + 1)) & 1:
                probe(place_hash(attr, KIND_PREFIX + case, h), store, scratch)
    if suffixes != 0:
        h = SEED
        for i in range(min(length, LENGTHS_MAX)):
            h = ((h ^ text[start + length - 1 - i]) * PRIME) & MASK
            if (suffixes >> (i + 1)) & 1:
                probe(place_hash(attr, KIND_SUFFIX + case, h), store, scratch)
    if grams != 0:
        probe_grams(attr, case, grams, start, length, store, scratch)


@kernel
def probe_grams(
    attr: Any, case: Any, grams: Any, start: Any, length: Any, store: Any, scratch: Any
) -> Any:
    """Probes every run of as many bytes as filters ask for; few have a bit, and are looked up."""
    text, bits = scratch.text, store.gram_bits
    count = 8 * len(bits)
    for size in range(1, 5):
        if (grams >> size) & 1:
            gram = 0
            keep = MASK >> (32 - 8 * size)
            for i in range(length):
                gram = ((gram << 8) | text[start + i]) & keep
                bit = gram_bit(attr, gram, count)
                if (bits[bit >> 3] >> (bit & 7)) & 1 and i + 1 >= size:
                    h = mixed(mixed(SEED, gram), size)
                    probe(place_hash(attr, KIND_GRAM + case, h), store, scratch)


@kernel
def is_of(bucket: Any, attr: Any, domain: Any, low: Any, high: Any, store: Any) -> Any:
    """Whether a bucket is that of a value alone, and not of another one with the same hash."""
    buckets = store.buckets
    return (
        buckets[bucket, OF_ATTR] == attr
        and buckets[bucket, OF_DOMAIN] == domain
        and buckets[bucket, OF_LOW] == low
        and buckets[bucket, OF_HIGH] == high
    )


@kernel
def probe_value(row: Any, key: Any, store: Any, scratch: Any) -> Any:
    """Notes the bucket of a value outside text."""
    attr, domain = scratch.values[row, V_ATTR], scratch.values[row, V_DOMAIN]
    bucket = find_bucket(store, point_hash(attr, domain, key))
    if bucket < 0:
        return
    if store.buckets[bucket, OF_DOMAIN] == 0:
        note(bucket, 0, store, scratch)
    elif is_of(bucket, attr, domain, (key & MASK) - ((key & HALF) << 1), key >> 32, store):
        note(bucket, 1, store, scratch)


@kernel
def probe_whole_text(row: Any, store: Any, scratch: Any) -> Any:
    """Notes the bucket of a whole text."""
    values = scratch.values
    attr = values[row, V_ATTR]
    bucket = find_bucket(store, place_hash(attr, KIND_TEXT, values[row, V_LOW]))
    if bucket < 0:
        return
    if store.buckets[bucket, OF_DOMAIN] == 0:
        note(bucket, 0, store, scratch)
    elif store.buckets[bucket, OF_DOMAIN] == TEXT and store.buckets[bucket, OF_ATTR] == attr:
        low, high = store.buckets[bucket, OF_LOW] + 0, store.buckets[bucket, OF_HIGH] + 0
        ref = (high << 32) | (low & MASK)
        if same_text(store, ref, scratch.text, values[row, V_START], values[row, V_LENGTH]):
            note(bucket, 1, store, scratch)


@kernel
def collect_by_value(row: Any, store: Any, scratch: Any) -> Any:
    """Notes the buckets that one value leads to."""
    values = scratch.values
    attr = values[row, V_ATTR]
    domain = values[row, V_DOMAIN]
    if domain != TEXT:
        for key in range(values[row, V_LOW], values[row, V_HIGH] + 1):
            probe_value(row, key, store, scratch)
        return
    probe_whole_text(row, store, scratch)
    probe_text(attr, 0, values[row, V_START], values[row, V_LENGTH], store, scratch)
    if store.attrs[attr, NOCASE] != 0:
        start, length = values[row, V_FOLDED], values[row, V_FOLDED_LENGTH]
        h = text_hash(scratch.text, start, length)
        probe(place_hash(attr, KIND_TEXT_NOCASE, h), store, scratch)
        probe_text(attr, 1, start, length, store, scratch)


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
            collect_by_value(row, store, scratch)
            if tree >= 0:
                collect_by_range(row, tree, store, scratch)
