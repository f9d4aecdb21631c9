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
    BEGIN,
    BEGIN_HERE,
    BUCKETS,
    CANDIDATES,
    COUNT,
    DECIDED_ALONE,
    DECIDED_HERE,
    DOUBTED,
    EPOCH,
    FILTER,
    FIRST,
    GUARD,
    GUARD_ATTR,
    GUARD_DOMAIN_SHIFT,
    GUARD_HASH,
    GUARD_KIND_SHIFT,
    GUARD_NONE,
    GUARD_RANGE,
    GUARD_SET,
    HIGHEST,
    HITS,
    INEXACT,
    INT_KEYS,
    KEY,
    KEYED,
    LENGTH,
    LOOKED,
    LOWEST,
    MATCHED,
    NEED_OUT,
    NEXT,
    OK,
    ONLY_DOMAIN,
    OUT,
    PENDING,
    PIVOTS,
    POOL_ALIVE,
    POOL_ATTR,
    POOL_COUNT,
    POOL_FILTERS,
    POOL_WORDS,
    POOLS,
    PRESENT,
    SECOND,
    SEEN_ALL,
    SEVERAL,
    START,
    TEXT_HIGHEST,
    TEXT_LOWEST,
    V_DOMAIN,
    V_HIGH,
    V_LOW,
    VALUE,
    VALUES,
    VERIFY,
    WORD_BITS,
)

reading = part("reading")
holding = part("holding")
seeking = part("seeking")
program_holds = holding.program_holds
set_holds = holding.set_holds
bin_of = seeking.bin_of
collect = seeking.collect
NAN = reading.NAN
NUMBER = reading.NUMBER
TEXT = reading.TEXT
ENTRIES_AT_ONCE = 128
"""Entries of a bucket that are looked at before those that may match are checked."""
PREFETCHED_LINES = 4
"""Lines of memory of a program that are asked for ahead: eight ranges and a little more."""


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
        if counters[INEXACT] != 0:
            decided = 0
        elif pending[n] & 1:
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
    # A filter that hangs in several places is met once, unless an attribute has several values.
    if counters[SEVERAL] != 0 or counters[VALUES] > counters[PRESENT] or counters[INEXACT] != 0:
        drop_repeated(scratch)
    if counters[INT_KEYS] != 0 and counters[DOUBTED] == 0:
        for i in range(counters[OUT]):
            out[i] = store.keys[out[i]]
        counters[KEYED] = 1
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
    counters[MATCHED] += 1
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
