"""Kernels that find the buckets of the notification in the scratch, and their frequencies.

They are the buckets of its values, of parts of its texts, of the nodes above its bins, and of the
presence of its attributes. The entries are prefetched.

Frequencies are shares of all notifications, as floats.
"""

from contrada.matching.kernels import schema, scratch
from contrada.matching.kernels.evaluate import constraint_words, operand, same_text
from contrada.matching.kernels.memory import entry, kernel, prefetch
from contrada.matching.kernels.schema import Bytes, Memory

NOTIFICATIONS_MIN = 256
"""Notifications from which on the statistics count."""
POINTS_EXPECTED = 10
"""Values that an attribute is expected to have besides those in filters."""

LENGTHS_MAX = 24
"""Bytes of a prefix or suffix that are looked up; the check compares all of them."""
GRAM_BYTES_MAX = 4
"""A substring is looked up by at most this many of its bytes."""
GRAMS_AT_ONCE = 256
"""Runs of bytes of a text that are looked up together."""
ASKED_BY_VALUE = 4 * LENGTHS_MAX + 8
"""Places of one value at most, without those of its substrings."""


@kernel
def find_bucket(m: Memory, h: int) -> int:
    """Returns the bucket of a place by its hash, or -1."""
    mask = len(m.slots) - 1
    slot = h & mask
    while True:
        bucket = m.slots[slot] - 1
        if bucket < 0:
            return -1
        if m.buckets[bucket].hash == h:
            return bucket
        slot = (slot + 1) & mask


@kernel
def put_bucket(bucket: int, m: Memory) -> None:
    """Adds a bucket to the list, which does not have it yet, without a wait for its row."""
    counters = m.counters[0]
    prefetch(m.buckets, bucket)
    m.bucket_list[counters.buckets] = 2 * bucket
    counters.buckets += 1


@kernel
def note(bucket: int, by_value: int, m: Memory) -> None:
    """Adds a bucket to the list of buckets to check, once."""
    counters = m.counters[0]
    if m.buckets[bucket].stamp != counters.epoch:
        m.buckets[bucket].stamp = counters.epoch
        m.bucket_list[counters.buckets] = 2 * bucket + by_value
        counters.buckets += 1


@kernel
def ask(h: int, row: int, m: Memory) -> None:
    """Stores the hash of a place, to be looked up when its slot is in the cache.

    `row` is that of the value that alone leads to this place; -1 for a part of a text.
    """
    counters = m.counters[0]
    m.pending[counters.asked] = (h << 32) + row + 1
    counters.asked += 1
    prefetch(m.slots, h & (len(m.slots) - 1))


@kernel
def look_up(m: Memory) -> None:
    """Adds the buckets of the stored places.

    All are prefetched first, so that the processor waits for many at once.
    """
    counters, pending, slots, buckets = m.counters[0], m.pending, m.slots, m.buckets
    mask = len(slots) - 1
    for n in range(counters.asked):
        # The first slot mostly has it; a free one has row -1, and row 0 can be read without harm.
        prefetch(buckets, max(slots[(pending[n] >> 32) & mask] - 1, 0))
    for n in range(counters.asked):
        bucket = find_bucket(m, pending[n] >> 32)
        if bucket >= 0:
            row = (pending[n] & scratch.MASK) - 1
            if buckets[bucket].of_domain == 0:
                note(bucket, 0, m)
            elif row >= 0 and is_led_to(bucket, row, m):
                note(bucket, 1, m)
    counters.asked = 0


@kernel
def is_led_to(bucket: int, row: int, m: Memory) -> int:
    """Whether a bucket of one value is this value's, and not another's with the same hash."""
    buckets, values = m.buckets, m.values
    domain = values[row].domain
    if buckets[bucket].of_attr != values[row].attr or buckets[bucket].of_domain != domain:
        return False
    low, high = buckets[bucket].of_low + 0, buckets[bucket].of_high + 0
    of = (high << 32) | (low & scratch.MASK)
    if domain == scratch.TEXT:
        return same_text(m, of, m.text, values[row].start, values[row].length)
    return values[row].low <= of and of <= values[row].high


@kernel
def ask_by_text(attr: int, case: int, start: int, length: int, m: Memory) -> None:
    """Stores prefixes, suffixes and substrings of one text. `case` is 0, or 1 without case."""
    text, parts, seed = m.text, m.parts, m.seed[0]
    prefixes = parts[schema.PART_COLUMNS * attr + schema.PREFIXES + case]
    suffixes = parts[schema.PART_COLUMNS * attr + schema.SUFFIXES + case]
    grams = parts[schema.PART_COLUMNS * attr + schema.GRAMS + case]
    if prefixes != 0:
        h = seed & scratch.MASK
        for i in range(min(length, LENGTHS_MAX)):
            if prefixes >> (i + 1) == 0:
                break
            h = scratch.mixed(seed, h, text[start + i])
            if (prefixes >> (i + 1)) & 1:
                ask(scratch.place_hash(seed, attr, scratch.KIND_PREFIX + case, h), -1, m)
    if suffixes != 0:
        h = seed & scratch.MASK
        for i in range(min(length, LENGTHS_MAX)):
            if suffixes >> (i + 1) == 0:
                break
            h = scratch.mixed(seed, h, text[start + length - 1 - i])
            if (suffixes >> (i + 1)) & 1:
                ask(scratch.place_hash(seed, attr, scratch.KIND_SUFFIX + case, h), -1, m)
    if grams != 0:
        ask_by_grams(attr, case, grams, start, length, m)


@kernel
def ask_by_grams(attr: int, case: int, grams: int, start: int, length: int, m: Memory) -> None:
    """Stores the runs of bytes that filters may name, of a long text some at a time.

    Most have no bit, and those with one are stored first: without branches.
    """
    text, bits, counters, pending = m.text, m.gram_bits, m.counters[0], m.pending
    count, seed = 8 * len(bits), m.seed[0]
    for size in range(1, GRAM_BYTES_MAX + 1):
        if (grams >> size) & 1 == 0:
            continue
        keep = scratch.MASK >> (32 - 8 * size)
        for first in range(size - 1, length, GRAMS_AT_ONCE):
            if counters.asked > schema.PENDING - GRAMS_AT_ONCE:
                look_up(m)
            gram = 0
            for i in range(first - size + 1, first):
                gram = (gram << 8) | text[start + i]
            found = counters.asked
            for i in range(first, min(length, first + GRAMS_AT_ONCE)):
                gram = ((gram << 8) | text[start + i]) & keep
                pending[found] = gram
                bit = scratch.gram_bit(attr, gram, count)
                found += (bits[bit >> 3] >> (bit & 7)) & 1
            for n in range(counters.asked, found):
                # `ask` writes to `pending` at `asked`, which is never past the position read here.
                h = scratch.mixed(seed, scratch.mixed(seed, seed & scratch.MASK, pending[n]), size)
                ask(scratch.place_hash(seed, attr, scratch.KIND_GRAM + case, h), -1, m)


@kernel
def ask_by_value(row: int, m: Memory) -> None:
    """Stores the places of one value."""
    values, seed = m.values, m.seed[0]
    attr = values[row].attr
    domain = values[row].domain
    by_value = m.attrs[attr].by_value
    if domain != scratch.TEXT:
        if by_value:
            for key in range(values[row].low, values[row].high + 1):
                ask(scratch.point_hash(seed, attr, domain, key), row, m)
        return
    if by_value:
        ask(scratch.place_hash(seed, attr, scratch.KIND_TEXT, values[row].low), row, m)
    ask_by_text(attr, 0, values[row].start, values[row].length, m)
    if m.attrs[attr].nocase != 0:
        start, length = values[row].folded, values[row].folded_length
        h = scratch.text_hash(seed, m.text, start, length)
        ask(scratch.place_hash(seed, attr, scratch.KIND_TEXT_NOCASE, h), -1, m)
        ask_by_text(attr, 1, start, length, m)


@kernel
def tree_key(domain: int, low: int, text: Bytes, start: int, length: int) -> int:
    """Returns the position of a value among the pivots: text by its first seven bytes."""
    if domain != scratch.TEXT:
        return low
    key = 0
    for i in range(7):
        key = key * 256 + (text[start + i] if i < length else 0)
    return key


@kernel
def bin_of(tree: int, domain: int, key: int, m: Memory) -> int:
    """Returns the bin of a value: the number of pivots that are not above it."""
    first, left, low = schema.PIVOTS * tree - 1, m.trees[tree].count + 0, 0
    while left > 0:
        half = (left + 1) >> 1
        pivot = m.pivots[first + low + half]
        # Without a branch, since the processor would mispredict every second one.
        is_same = (pivot.domain == domain) & (pivot.key <= key)
        low += half * ((pivot.domain < domain) | is_same)
        left -= half
    return low


@kernel
def collect_by_range(row: int, tree: int, m: Memory) -> None:
    """Adds the nodes above the bins of a value, or of the two doubles around it."""
    values = m.values
    domain = values[row].domain
    start, length = values[row].start, values[row].length
    key = tree_key(domain, values[row].low, m.text, start, length)
    first = bin_of(tree, domain, key, m)
    last = first
    if domain != scratch.TEXT and values[row].high != values[row].low:
        last = bin_of(tree, domain, values[row].high, m)
    # Only another value, or another bin of this one, leads to the same nodes.
    is_only = (first == last) & (m.state[values[row].attr].count == 1)
    for leaf in range(first, last + 1):
        # As in a heap: 1 is the root, 2n and 2n + 1 are below n, and the leaves are last.
        node = schema.PIVOTS + 1 + leaf
        levels = m.levels[(schema.PIVOTS + 1) * tree + leaf] + 0
        while levels != 0:
            if levels & 1:
                bucket = m.trees[tree].first_bucket + node
                if is_only:
                    put_bucket(bucket, m)
                else:
                    note(bucket, 0, m)
            levels >>= 1
            node >>= 1


@kernel
def collect_attr(attr: int, m: Memory) -> None:
    """Lists the buckets of an attribute, or stores their places."""
    counters = m.counters[0]
    bucket, tree, cuts = m.attrs[attr].presence, m.attrs[attr].tree, m.attrs[attr].cuts
    if bucket >= 0:
        put_bucket(bucket, m)
    first = m.state[attr].first
    for row in range(first, first + m.state[attr].count):
        # There must be room for all that it may ask for.
        if counters.asked > schema.PENDING - ASKED_BY_VALUE:
            look_up(m)
        ask_by_value(row, m)
        if tree >= 0:
            collect_by_range(row, tree, m)
            if cuts != tree:  # Some filters are moved already.
                collect_by_range(row, cuts, m)


@kernel
def collect(m: Memory) -> None:
    """Lists every bucket of the notification."""
    counters = m.counters[0]
    counters.buckets = 0
    counters.asked = 0
    note(0, 0, m)
    for i in range(counters.present):
        m.attrs[m.present[i]].seen += 1
        collect_attr(m.present[i], m)
    look_up(m)


# --- how often ----------------------------------------------------------------------------------


@entry
def presence_of(attr: int, m: Memory) -> float:
    """Returns the share of notifications that have an attribute."""
    seen = m.counters[0].seen
    if seen < NOTIFICATIONS_MIN:
        return 0.5
    return (m.attrs[attr].seen + 1) / (seen + 1)


@entry
def count(row: int, h: int, m: Memory) -> None:
    """Counts a constant by the hash of its place, each once, in the memory of a sketch.

    A register keeps the largest number of trailing zeros of its hashes. The likelier a new hash is
    to raise a register, the fewer there were: so each that does counts for one over that
    probability. A repeated one can raise nothing.

    Source: E. Cohen, All-distances sketches, revisited (2015): historic inverse probability.
    """
    sketch, rest, rank = m.sketches[row], h // schema.SKETCH_REGISTERS, 1
    while rank < schema.HIGHEST_RANK and rest & 1 == 0:
        rest >>= 1
        rank += 1
    register = schema.SKETCH_REGISTERS * row + h % schema.SKETCH_REGISTERS
    before = m.registers[register] + 0
    if rank > before:
        chance = max(sketch.chance, 1)
        sketch.counted += (
            schema.COUNT_PARTS * schema.SKETCH_REGISTERS << schema.HIGHEST_RANK
        ) // chance
        sketch.chance = (
            chance - (1 << (schema.HIGHEST_RANK - before)) + (1 << (schema.HIGHEST_RANK - rank))
        )
        m.registers[register] = rank


@kernel
def unseen_value(attr: int, m: Memory) -> float:
    """The share of the notifications with an attribute that have a value without statistics."""
    counted = m.sketches[m.attrs[attr].sketch].counted
    return 1.0 / (counted / schema.COUNT_PARTS + POINTS_EXPECTED)


@entry
def share(h: int, attr: int, unseen: float, m: Memory) -> float:
    """Returns the share of an attribute's notifications that reach a hash; else `unseen`."""
    seen = m.attrs[attr].seen
    if seen >= NOTIFICATIONS_MIN:
        bucket = find_bucket(m, h)
        if bucket >= 0:
            return (m.buckets[bucket].hits + 1) / (seen + 1)
    return unseen


@entry
def keep_range(
    attr: int, domain: int, low: int, end_domain: int, high: int, begin: int, m: Memory
) -> bool:
    """Counts a range, and remembers its ends; whether the bins of the attribute are due.

    All of the first are remembered, and then fewer and fewer, so that each is equally likely. There
    must be room for it. The filter's program is at `begin`.
    """
    its = m.attrs[attr]
    its.ranges += 1
    count, at = its.ranges + 0, its.kept + 0
    # Of the next RANGES_KEPT after k times as many, one in k: about the share that is due.
    if count <= schema.RANGES_KEPT or count % (count // schema.RANGES_KEPT) == 0:
        if at < schema.RANGES_KEPT:
            its.kept += 1
        else:
            at = scratch.finished(scratch.mixed(scratch.FIXED_SEED, 0, count)) % schema.RANGES_KEPT
        kept = m.ends[its.ends + at]
        kept.domain, kept.low, kept.end_domain, kept.high = domain, low, end_domain, high
        kept.begin = begin
    return count >= its.due


@entry
def forget_ranges(attr: int, m: Memory) -> None:
    """Forgets the ranges of removed filters: of the others there are as many as remembered ones.

    The begin of a program is never another's.
    """
    its = m.attrs[attr]
    first, before, kept = its.ends + 0, its.kept + 0, 0
    for at in range(first, first + before):
        if m.program[m.ends[at].begin] & schema.GONE == 0:
            m.ends[first + kept] = m.ends[at]
            kept += 1
    if kept < before:
        its.ranges = its.ranges * kept // before
        its.kept = kept


@kernel
def without_room(begin: int, m: Memory) -> int:
    """Returns an attribute that needs room for the end of a range of a program; -1 if none does."""
    program, word = m.program, begin + 1
    end = word + (program[begin] & schema.WORDS_MASK)
    while word < end:
        attr, op = (
            program[word] & schema.ATTR_MASK,
            (program[word] >> schema.OP_SHIFT) & schema.OP_MASK,
        )
        if op == schema.OP_RANGE and m.attrs[attr].room < schema.RANGES_KEPT:
            if m.attrs[attr].kept >= m.attrs[attr].room:
                return attr
        word += constraint_words(op)
    return -1


@entry
def note_ranges(number: int, m: Memory) -> int:
    """Counts the ranges of numbers and times of a filter.

    Answers -1, less 1 if the bins of some attribute are due, less 2 if the filter has sets or
    intervals of texts, too. An attribute that needs room for the ends of more ranges is
    answered before any is counted.
    """
    program, begin = m.program, m.filters[number].begin + 0
    word, lacking = begin + 1, without_room(begin, m)
    end = word + (program[begin] & schema.WORDS_MASK)
    if lacking >= 0:
        return lacking
    due = others = 0
    while word < end:
        head = program[word]
        attr, op, domain = (
            head & schema.ATTR_MASK,
            (head >> schema.OP_SHIFT) & schema.OP_MASK,
            head >> schema.DOMAIN_SHIFT,
        )
        if op == schema.OP_RANGE:
            low, high = operand(program, word + 1), operand(program, word + 3)
            due |= keep_range(attr, domain, low, domain, high, begin, m)
        elif op == schema.OP_TEXT_RANGE or op == schema.OP_SET:
            others = 2
        word += constraint_words(op)
    return -1 - due - others


@kernel
def range_share(attr: int, domain: int, low: int, high: int, m: Memory) -> float:
    """Returns the share of an attribute's bins that a range touches; all without bins."""
    tree = m.attrs[attr].cuts
    if tree < 0:
        return 1.0
    bins = bin_of(tree, domain, high, m) - bin_of(tree, domain, low, m) + 1
    return bins / (m.trees[tree].count + 1)
