"""The inner loops of matching, over flat arrays only.

Every function here and in `reading` works on the arrays of `tables.Store` and
`tables.Scratch`, element by element, with integers alone. The text of both modules is loaded
as it is, on memory views, where nothing is compiled, and once more compiled by Numba, on the
arrays; both give the same answers. Integers stay within 64 bits by construction: hashes have
31 or 32 bits and are multiplied by at most 26.

`match` loads a notification, lists the buckets that it comes by, and checks the filters there.
"""

from typing import Any

from contrada.matching.jit import kernel, part, prefetch
from contrada.matching.tables import (
    ATOM_CONTAINS,
    ATOM_CONTAINS_NOCASE,
    ATOM_EQUAL_NOCASE,
    ATOM_SUFFIX,
    ATOM_SUFFIX_NOCASE,
    ATTR_MASK,
    BEGIN,
    BEGIN_HERE,
    BUCKETS,
    CANDIDATES,
    COUNT,
    DECIDED_ALONE,
    DECIDED_HERE,
    DOMAIN_SHIFT,
    DOUBTED,
    EPOCH,
    FILTER,
    FIRST,
    GRAMS,
    GUARD,
    GUARD_ATTR,
    GUARD_DOMAIN_SHIFT,
    GUARD_HASH,
    GUARD_KIND_SHIFT,
    GUARD_NONE,
    GUARD_RANGE,
    GUARD_SET,
    HASH,
    HIGHEST,
    HITS,
    INEXACT,
    INT_KEYS,
    KEY,
    KEYED,
    LENGTH,
    LOOKED,
    LOWEST,
    NEED_OUT,
    NEXT,
    NOCASE,
    OF_ATTR,
    OF_DOMAIN,
    OF_HIGH,
    OF_LOW,
    OK,
    ONLY_DOMAIN,
    OP_POINT,
    OP_RANGE,
    OP_SHIFT,
    OP_TEXT,
    OP_TEXT_RANGE,
    OUT,
    PENDING,
    PIVOTS,
    POOL_ALIVE,
    POOL_ATTR,
    POOL_COUNT,
    POOL_FILTERS,
    POOL_WORDS,
    POOLS,
    PREFIXES,
    PRESENCE,
    PRESENT,
    SECOND,
    SEEN,
    SEEN_ALL,
    SET_ABSENT,
    SEVERAL,
    START,
    SUFFIXES,
    TEXT_HIGHEST,
    TEXT_LOWEST,
    TEXT_SHIFT,
    TREE,
    V_ATTR,
    V_DOMAIN,
    V_FOLDED,
    V_FOLDED_LENGTH,
    V_HIGH,
    V_LENGTH,
    V_LOW,
    V_START,
    VALUE,
    VERIFY,
    WORD_BITS,
    WORDS_MASK,
    X_ATOM,
    X_EVERY,
    X_MAYBE,
    X_NOT,
    X_PIECES,
)

reading = part("reading")
finished = reading.finished
mixed = reading.mixed
place_hash = reading.place_hash
point_hash = reading.point_hash
text_hash = reading.text_hash

HALF = 0x80000000
MASK, PRIME, SEED = reading.MASK, reading.PRIME, reading.SEED
KIND_TEXT, KIND_PREFIX, KIND_SUFFIX = reading.KIND_TEXT, reading.KIND_PREFIX, reading.KIND_SUFFIX
KIND_GRAM, KIND_TEXT_NOCASE = reading.KIND_GRAM, reading.KIND_TEXT_NOCASE
NAN, NUMBER, TEXT = reading.NAN, reading.NUMBER, reading.TEXT
MAYBE = 2
ENTRIES_AT_ONCE = 128
"""Entries of a bucket that are looked at before those that may match are checked."""
PREFETCHED_ENTRIES = 32
"""Entries of a bucket that are asked for ahead, two a line of memory; then the processor knows."""
PREFETCHED_LINES = 4
"""Lines of memory of a program that are asked for ahead: eight ranges and a little more."""
LENGTHS_MAX = 62
"""Prefixes and suffixes are looked up by at most so many bytes; the check sees all of them."""


@kernel
def same_text(store: Any, ref: Any, text: Any, start: Any, length: Any) -> Any:
    """Whether a text of the store equals a text of the notification."""
    if ref & 0xFFFFFF != length:
        return False
    at = ref >> TEXT_SHIFT
    for i in range(length):
        if store.texts[at + i] != text[start + i]:
            return False
    return True


@kernel
def is_at(store: Any, ref: Any, text: Any, start: Any) -> Any:
    """Whether a text of the store stands at a place, which has room for it."""
    at = ref >> TEXT_SHIFT
    for i in range(ref & 0xFFFFFF):
        if store.texts[at + i] != text[start + i]:
            return False
    return True


@kernel
def is_before(store: Any, ref: Any, text: Any, start: Any, length: Any) -> Any:
    """Whether a text of the store comes before the notification's, or equals it."""
    at, size = ref >> TEXT_SHIFT, ref & 0xFFFFFF
    for i in range(min(size, length)):
        a, b = store.texts[at + i], text[start + i]
        if a != b:
            return a < b
    return size <= length


@kernel
def in_text_range(store: Any, first: Any, before: Any, text: Any, start: Any, length: Any) -> Any:
    """Whether the notification's text lies in a half-open interval."""
    if not is_before(store, first, text, start, length):
        return False
    return before < 0 or not is_before(store, before, text, start, length)


@kernel
def contains_text(store: Any, ref: Any, text: Any, start: Any, length: Any) -> Any:
    """Whether the notification's text contains a text of the store."""
    size = ref & 0xFFFFFF
    if size == 0:
        return True
    lead = store.texts[ref >> TEXT_SHIFT]
    for at in range(start, start + length - size + 1):
        if text[at] == lead and is_at(store, ref, text, at):
            return True
    return False


@kernel
def atom_holds(kind: Any, ref: Any, store: Any, scratch: Any, row: Any) -> Any:
    """Whether an operator on text accepts a value."""
    values, text = scratch.values, scratch.text
    size = ref & 0xFFFFFF
    if kind == ATOM_SUFFIX or kind == ATOM_CONTAINS:
        start, length = values[row, V_START], values[row, V_LENGTH]
    else:
        start, length = values[row, V_FOLDED], values[row, V_FOLDED_LENGTH]
    if size > length:
        return False
    if kind == ATOM_CONTAINS or kind == ATOM_CONTAINS_NOCASE:
        return contains_text(store, ref, text, start, length)
    if kind == ATOM_EQUAL_NOCASE and size != length:
        return False
    if kind == ATOM_SUFFIX or kind == ATOM_SUFFIX_NOCASE:
        return is_at(store, ref, text, start + length - size)
    return is_at(store, ref, text, start)


@kernel
def expression_holds(at: Any, end: Any, store: Any, scratch: Any, row: Any) -> Any:
    """The value of an expression on text: 0, 1, or MAYBE where only the model can tell."""
    sets, stack, values = store.sets, scratch.stack, scratch.values
    top = 0
    while at < end:
        op = sets[at]
        if op == X_ATOM:
            stack[top] = 1 if atom_holds(sets[at + 1], sets[at + 2], store, scratch, row) else 0
            top += 1
            at += 3
        elif op == X_PIECES:
            count = sets[at + 1]
            stack[top] = 0
            for i in range(count):
                first, before = sets[at + 2 + 2 * i], sets[at + 3 + 2 * i]
                start, length = values[row, V_START], values[row, V_LENGTH]
                if in_text_range(store, first, before, scratch.text, start, length):
                    stack[top] = 1
                    break
            top += 1
            at += 2 + 2 * count
        elif op == X_NOT:
            if stack[top - 1] != MAYBE:
                stack[top - 1] = 1 - stack[top - 1]
            at += 1
        elif op == X_MAYBE:
            stack[top] = MAYBE
            top += 1
            at += 1
        else:
            top = joined(op == X_EVERY, sets[at + 1], stack, top)
            at += 2
    return stack[0]


@kernel
def joined(is_every: Any, count: Any, stack: Any, top: Any) -> Any:
    """Replaces the top values by their conjunction or disjunction."""
    top -= count
    decisive = 0 if is_every else 1
    result = 1 - decisive
    for i in range(top, top + count):
        if stack[i] == decisive:
            result = decisive
        elif stack[i] == MAYBE and result != decisive:
            result = MAYBE
    stack[top] = result
    return top + 1


@kernel
def set_holds_value(at: Any, store: Any, scratch: Any, row: Any) -> Any:
    """Whether a set holds one value: 0, 1 or MAYBE."""
    sets, values = store.sets, scratch.values
    count = sets[at + 1]
    domain = values[row, V_DOMAIN]
    end = at + 2 + 3 * count
    if domain != TEXT:
        for i in range(at + 2, end, 3):
            if sets[i] == domain and sets[i + 1] <= values[row, V_HIGH]:
                if values[row, V_LOW] <= sets[i + 2]:
                    return 1
        return 0
    if sets[end] == 0:
        return 0
    return expression_holds(end + 1, end + 1 + sets[end], store, scratch, row)


@kernel
def set_holds(number: Any, store: Any, scratch: Any) -> Any:
    """Whether a set holds one of its attribute's values, or its absence: computed once."""
    epoch = scratch.counters[EPOCH]
    seen = scratch.set_seen[number]
    if seen >> 2 == epoch:
        return seen & 3
    at, attr = store.set_starts[number, 0], store.set_starts[number, 1]
    result = 0
    if scratch.state[attr, 0] != epoch or scratch.state[attr, COUNT] == 0:
        result = store.sets[at] & SET_ABSENT
    else:
        first = scratch.state[attr, FIRST]
        for row in range(first, first + scratch.state[attr, COUNT]):
            holds = set_holds_value(at, store, scratch, row)
            if holds == 1:
                result = 1
                break
            if holds == MAYBE:
                result = MAYBE
    scratch.set_seen[number] = epoch * 4 + result
    return result


@kernel
def value_in(op: Any, domain: Any, at: Any, store: Any, scratch: Any, row: Any) -> Any:
    """Whether a simple constraint holds for one value."""
    values, program = scratch.values, store.program
    if values[row, V_DOMAIN] != domain:
        return False
    if op == OP_POINT:
        key = program[at]
        return values[row, V_LOW] <= key and key <= values[row, V_HIGH]
    if op == OP_RANGE:
        return values[row, V_LOW] <= program[at + 1] and program[at] <= values[row, V_HIGH]
    start, length = values[row, V_START], values[row, V_LENGTH]
    if op == OP_TEXT:
        return same_text(store, program[at], scratch.text, start, length)
    return in_text_range(store, program[at], program[at + 1], scratch.text, start, length)


@kernel
def program_holds(begin: Any, store: Any, scratch: Any) -> Any:
    """Whether a filter matches what is in the scratch, opaque operators and doubts apart."""
    program, state = store.program, scratch.state
    epoch = scratch.counters[EPOCH]
    at = begin + 1
    end = at + (program[begin] & WORDS_MASK)
    while at < end:
        word = program[at]
        attr = word & ATTR_MASK
        op = (word >> OP_SHIFT) & 0xFF
        at += 1
        if op > OP_TEXT_RANGE:
            if set_holds(program[at], store, scratch) == 0:
                return False
            at += 1
            continue
        if state[attr, 0] != epoch:
            return False
        first = state[attr, FIRST]
        found = False
        for row in range(first, first + state[attr, COUNT]):
            if value_in(op, word >> DOMAIN_SHIFT, at, store, scratch, row):
                found = True
                break
        if not found:
            return False
        at += 1 if op == OP_POINT or op == OP_TEXT else 2
    return True


@kernel
def put_out(number: Any, verify: Any, scratch: Any) -> Any:
    """Puts out a filter that matches, or is to be verified."""
    counters, out = scratch.counters, scratch.out
    at = counters[OUT]
    if at >= len(out):
        return NEED_OUT
    counters[OUT] = at + 1
    if verify:
        counters[DOUBTED] += 1
        out[at] = -1 - number
    else:
        out[at] = number
    return OK


@kernel
def name_slots(store: Any, scratch: Any) -> Any:
    """Turns the filters that were put out into slots of keys. Those to be verified stay."""
    counters, out = scratch.counters, scratch.out
    for i in range(counters[OUT]):
        if out[i] < 0:
            continue
        key = store.filters[out[i], KEY]
        if key < -1:
            link = -2 - key
            key = store.links[link, VALUE]
            link = store.links[link, NEXT]
            while link >= 0:
                if counters[OUT] >= len(out):
                    return NEED_OUT
                out[counters[OUT]] = store.links[link, VALUE]
                counters[OUT] += 1
                link = store.links[link, NEXT]
        out[i] = key
    return OK


@kernel
def drop_repeated(scratch: Any) -> Any:
    """Leaves each slot of a key once in what was put out."""
    counters, out, seen = scratch.counters, scratch.out, scratch.key_seen
    kept = 0
    for i in range(counters[OUT]):
        slot = out[i]
        if slot < 0 or seen[slot] != counters[EPOCH]:
            if slot >= 0:
                seen[slot] = counters[EPOCH]
            out[kept] = slot
            kept += 1
    counters[OUT] = kept


@kernel
def name_keys(store: Any, scratch: Any) -> Any:
    """Turns what was put out into keys, where they are integers, else into slots of keys.

    Last and all at once, so that the processor waits for many places of memory together.
    """
    counters, out = scratch.counters, scratch.out
    counters[KEYED] = 0
    status = name_slots(store, scratch)
    if status != OK:
        return status
    if counters[SEVERAL] != 0:
        drop_repeated(scratch)
    if counters[INT_KEYS] != 0 and counters[DOUBTED] == 0:
        for i in range(counters[OUT]):
            out[i] = store.keys[out[i]]
        counters[KEYED] = 1
    return OK


@kernel
def note(bucket: Any, by_value: Any, store: Any, scratch: Any) -> Any:
    """Puts a bucket on the list of those to look through, once."""
    counters = scratch.counters
    if scratch.bucket_seen[bucket] != counters[EPOCH]:
        scratch.bucket_seen[bucket] = counters[EPOCH]
        start = store.buckets[bucket, START]
        for i in range(start, start + min(store.buckets[bucket, LENGTH], PREFETCHED_ENTRIES), 2):
            prefetch(store.entries, i)
        scratch.bucket_list[counters[BUCKETS]] = 2 * bucket + by_value
        counters[BUCKETS] += 1


@kernel
def may_pass(i: Any, at: Any, store: Any, scratch: Any) -> Any:
    """Whether a guard of an entry leaves a match possible, as far as a comparison can tell.

    One expression without short cuts: there is nothing that the processor could guess wrong.
    """
    state, entries = scratch.state, store.entries
    guard = entries[i, at]
    kind = (guard >> GUARD_KIND_SHIFT) & 7
    attr = guard & GUARD_ATTR
    lowest = LOWEST + 2 * (kind & 1)  # of a range, or of the hash of a text
    is_there = state[attr, 0] == scratch.counters[EPOCH]
    reaches = entries[i, at + 1] <= state[attr, lowest + 1]
    begins = state[attr, lowest] <= entries[i, at + 2]
    return (is_there & reaches & begins) | (kind > GUARD_HASH)


@kernel
def guarded(i: Any, at: Any, store: Any, scratch: Any) -> Any:
    """What a guard of an entry that may pass says: 0 no, 1 perhaps, 2 its constraint holds."""
    state, entries = scratch.state, store.entries
    guard = entries[i, at]
    kind = (guard >> GUARD_KIND_SHIFT) & 7
    if kind == GUARD_NONE:
        return 2
    if kind == GUARD_HASH:
        return 1
    low, attr = entries[i, at + 1], guard & GUARD_ATTR
    if kind == GUARD_SET:
        holds = set_holds(low, store, scratch)
        return 2 if holds == 1 else holds >> 1
    only, domain = state[attr, ONLY_DOMAIN], (guard >> GUARD_DOMAIN_SHIFT) & 7
    lowest, highest = state[attr, LOWEST], state[attr, HIGHEST]
    if kind == GUARD_RANGE:
        return 2 if only == domain and low < lowest and highest < entries[i, at + 2] else 1
    if state[attr, 0] != scratch.counters[EPOCH]:
        return 0
    if only != domain:  # several values, or NaN, which is not what `!=` excludes
        return 1 if only == 0 or (only == NAN and domain == NUMBER) else 0
    if domain == TEXT:
        lowest, highest = state[attr, TEXT_LOWEST], state[attr, TEXT_HIGHEST]
    return 1 if lowest <= low and low <= highest else 2


@kernel
def look_through(store: Any, scratch: Any) -> Any:
    """Checks every filter in the buckets on the list, and puts out those that match.

    Entries that may match are written down first, up to as many as there is room, and checked
    then: so most of the work has no branches.
    """
    counters, pending = scratch.counters, scratch.pending
    waiting = 0
    for n in range(counters[BUCKETS]):
        bucket, by_value = scratch.bucket_list[n] >> 1, scratch.bucket_list[n] & 1
        length = store.buckets[bucket, LENGTH]
        store.buckets[bucket, HITS] += 1
        counters[LOOKED] += length
        first = store.buckets[bucket, START]
        end = first + length
        while first < end:
            if waiting > PENDING - ENTRIES_AT_ONCE:
                if check(waiting, store, scratch) != OK:
                    return NEED_OUT
                waiting = 0
            last = min(end, first + ENTRIES_AT_ONCE)
            for i in range(first, last):
                pending[waiting] = 2 * i + by_value
                waiting += may_pass(i, GUARD, store, scratch)
            first = last
    return check(waiting, store, scratch)


@kernel
def check(waiting: Any, store: Any, scratch: Any) -> Any:
    """Checks the entries written down, by their second guards first."""
    counters, entries, pending = scratch.counters, store.entries, scratch.pending
    left = 0
    for n in range(waiting):
        each = pending[n]
        pending[left] = each
        left += may_pass(each >> 1, SECOND, store, scratch)
    counters[CANDIDATES] += left
    for n in range(left):
        i = pending[n] >> 1
        first, second = guarded(i, GUARD, store, scratch), guarded(i, SECOND, store, scratch)
        if first == 0 or second == 0:
            continue
        decided = DECIDED_ALONE
        if pending[n] & 1 and counters[INEXACT] == 0:
            decided = DECIDED_ALONE | DECIDED_HERE
        verify = False
        if first & second != 2 or entries[i, GUARD] & decided == 0:
            begin = entries[i, BEGIN_HERE]
            if not program_holds(begin, store, scratch):
                continue
            verify = counters[INEXACT] != 0 or store.program[begin] & VERIFY != 0
        if put_out(entries[i, FILTER], verify, scratch) != OK:
            return NEED_OUT
    return OK


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
def probe(h: Any, store: Any, scratch: Any) -> Any:
    """Notes the bucket of a place, where there is one."""
    bucket = find_bucket(store, h)
    if bucket >= 0:
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
    """Probes every run of as many bytes as filters ask for."""
    text = scratch.text
    for size in range(1, 5):
        if (grams >> size) & 1:
            gram = 0
            keep = MASK >> (32 - 8 * size)
            for i in range(length):
                gram = ((gram << 8) | text[start + i]) & keep
                if i + 1 >= size:
                    h = mixed(mixed(SEED, gram), size)
                    probe(place_hash(attr, KIND_GRAM + case, h), store, scratch)


@kernel
def is_of(bucket: Any, attr: Any, domain: Any, low: Any, high: Any, store: Any) -> Any:
    """Whether a bucket is that of a value, and not of another one with the same hash."""
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
    if bucket >= 0:
        low = (key & MASK) - ((key & HALF) << 1)
        by_value = is_of(bucket, attr, domain, low, key >> 32, store)
        note(bucket, 1 if by_value else 0, store, scratch)


@kernel
def probe_whole_text(row: Any, store: Any, scratch: Any) -> Any:
    """Notes the bucket of a whole text."""
    values = scratch.values
    attr = values[row, V_ATTR]
    bucket = find_bucket(store, place_hash(attr, KIND_TEXT, values[row, V_LOW]))
    if bucket >= 0:
        by_value = store.buckets[bucket, OF_ATTR] == attr
        if by_value and store.buckets[bucket, OF_DOMAIN] == TEXT:
            low, high = store.buckets[bucket, OF_LOW] + 0, store.buckets[bucket, OF_HIGH] + 0
            ref = (high << 32) | (low & MASK)
            start, length = values[row, V_START], values[row, V_LENGTH]
            by_value = same_text(store, ref, scratch.text, start, length)
        else:
            by_value = False
        note(bucket, 1 if by_value else 0, store, scratch)


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


@kernel
def pool_row(pool: Any, i: Any, which: Any, store: Any) -> Any:
    """Where a row of bits of a pool's attribute begins."""
    begin = store.pools[pool, POOL_ATTR + 3 * i + 2]
    return begin + which * store.pools[pool, POOL_WORDS]


@kernel
def conjoin_attr(pool: Any, i: Any, store: Any, scratch: Any) -> Any:
    """Keeps the filters of a pool that what the notification has of an attribute leaves."""
    bits, found, state = store.bits, scratch.conjunction, scratch.state
    words = store.pools[pool, POOL_WORDS]
    attr = store.pools[pool, POOL_ATTR + 3 * i]
    if state[attr, 0] != scratch.counters[EPOCH] or state[attr, COUNT] == 0:
        begin = pool_row(pool, i, PIVOTS + 1, store)
        for w in range(words):
            found[w] &= bits[begin + w]
        return
    if state[attr, COUNT] > 1 or state[attr, ONLY_DOMAIN] == TEXT:
        return
    row = state[attr, FIRST]
    tree = store.pools[pool, POOL_ATTR + 3 * i + 1]
    domain = scratch.values[row, V_DOMAIN]
    if scratch.values[row, V_LOW] != scratch.values[row, V_HIGH]:
        return
    begin = pool_row(pool, i, bin_of(tree, domain, scratch.values[row, V_LOW], store), store)
    for w in range(words):
        found[w] &= bits[begin + w]


@kernel
def pooled(pool: Any, store: Any, scratch: Any) -> Any:
    """Lists where the programs begin of the filters of a pool that its bitmaps leave; how many.

    `pending` gets two numbers for each: the filter, and the place.
    """
    bits, found, pending = store.bits, scratch.conjunction, scratch.pending
    alive = store.pools[pool, POOL_ALIVE]
    for w in range(store.pools[pool, POOL_WORDS]):
        found[w] = bits[alive + w]
    for i in range(store.pools[pool, POOL_COUNT]):
        conjoin_attr(pool, i, store, scratch)
    count = 0
    for w in range(store.pools[pool, POOL_WORDS]):
        word = found[w]
        at = store.pools[pool, POOL_FILTERS] + w * WORD_BITS
        while word != 0:
            if word & 0xFF == 0:
                word >>= 8
                at += 8
                continue
            if word & 1:
                pending[2 * count] = bits[at]
                prefetch(store.filters, bits[at])
                count += 1
            word >>= 1
            at += 1
    for n in range(count):
        begin = store.filters[pending[2 * n], BEGIN]
        pending[2 * n + 1] = begin
        for line in range(PREFETCHED_LINES):
            prefetch(store.program, begin + 8 * line)
    return count


@kernel
def look_through_pool(pool: Any, store: Any, scratch: Any) -> Any:
    """Checks the filters of a pool that its bitmaps leave, and puts out those that match."""
    counters, pending = scratch.counters, scratch.pending
    for n in range(pooled(pool, store, scratch)):
        counters[CANDIDATES] += 1
        begin = pending[2 * n + 1]
        if program_holds(begin, store, scratch):
            verify = counters[INEXACT] != 0 or store.program[begin] & VERIFY != 0
            if put_out(pending[2 * n], verify, scratch) != OK:
                return NEED_OUT
    return OK


@kernel
def seek(store: Any, scratch: Any) -> Any:
    """Lists the buckets that a notification comes by, which memory begins to bring meanwhile."""
    counters = scratch.counters
    counters[OUT] = 0
    counters[CANDIDATES] = 0
    counters[LOOKED] = 0
    counters[DOUBTED] = 0
    counters[SEEN_ALL] += 1
    collect(store, scratch)


@kernel
def find(store: Any, scratch: Any) -> Any:
    """Puts out keys, or their slots, of all filters that match what was loaded and sought.

    Answers OK or NEED_OUT.
    """
    status = look_through(store, scratch)
    for pool in range(scratch.counters[POOLS]):
        if status == OK:
            status = look_through_pool(pool, store, scratch)
    return status if status != OK else name_keys(store, scratch)


@kernel
def match(msg: Any, store: Any, scratch: Any) -> Any:
    """Loads a notification and finds its keys."""
    status = reading.load(msg, store, scratch)
    if status != OK:
        return status
    seek(store, scratch)
    return find(store, scratch)
