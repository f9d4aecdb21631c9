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
    BUCKETS,
    CANDIDATES,
    CHAINED,
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
    GUARD_OTHER,
    GUARD_RANGE,
    GUARD_SET,
    HERE,
    HIGH,
    HITS,
    INEXACT,
    INT_KEYS,
    KEY,
    KEY_HERE,
    KEYED,
    LENGTH,
    LOOKED,
    LOW,
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
ENTRY_MASK = 0x7FFFFFFF
"""Says to the compiler that the number of an entry is not negative."""
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
def asked_of(guard: Any, scratch: Any) -> Any:
    """What a guard looks at: the upper half of the one value of its attribute, or its hash.

    And whether the guard is none; a range; another value than one: the last two only where the
    attribute has one value, of the guard's domain.
    """
    state = scratch.state
    kind = (guard >> GUARD_KIND_SHIFT) & 7
    attr, domain = guard & GUARD_ATTR, (guard >> GUARD_DOMAIN_SHIFT) & 7
    is_there = state[attr, 0] == scratch.counters[EPOCH]
    is_only = is_there & (state[attr, ONLY_DOMAIN] == domain)
    value = state[attr, LOWEST + 2 * (kind & 1)]
    is_range, is_other = is_only & (kind == GUARD_RANGE), is_only & (kind >= GUARD_OTHER)
    return value, kind == GUARD_NONE, is_range, is_other


@kernel
def is_sure(low: Any, high: Any, value: Any, is_none: Any, is_range: Any, is_other: Any) -> Any:
    """Whether what a guard looks at tells that its constraint holds, if the value is exact.

    One expression without short cuts, as in `may_pass`.
    """
    return is_none | (is_range & (low < value) & (value < high)) | (is_other & (low != value))


@kernel
def guarded(i: Any, at: Any, store: Any, scratch: Any) -> Any:
    """What a guard of an entry that may pass says: 0 no, 1 perhaps, 2 its constraint holds."""
    state, entries = scratch.state, store.entries
    guard, low, high = entries[i, at], entries[i, at + 1], entries[i, at + 2]
    kind = (guard >> GUARD_KIND_SHIFT) & 7
    if kind == GUARD_SET:
        holds = set_holds(low, store, scratch)
        return 2 if holds == 1 else holds >> 1
    value, is_none, is_range, is_other = asked_of(guard, scratch)
    if is_sure(low, high, value, is_none, is_range, is_other):
        return 2
    if kind < GUARD_OTHER or is_other:
        return 1
    attr, domain = guard & GUARD_ATTR, (guard >> GUARD_DOMAIN_SHIFT) & 7
    if state[attr, 0] != scratch.counters[EPOCH]:
        return 0
    # several values, or NaN, which is not what `!=` excludes
    only = state[attr, ONLY_DOMAIN]
    return 1 if only == 0 or (only == NAN and domain == NUMBER) else 0


@kernel
def put_keys(key: Any, at: Any, chained: Any, store: Any, scratch: Any) -> Any:
    """Puts out what KEY of a filter says: a slot; or a chain of them, to be followed later.

    `at` and `chained` are how many of each were put out before; answers how many are now. Whether
    it is one or the other nobody can guess, so both are written and one of them counts: there must
    be room for two.
    """
    out = scratch.out
    out[at] = key
    out[len(out) - 1 - chained] = -2 - key
    prefetch(store.keys, key)
    prefetch(store.links, -2 - key)
    return at + (key >= 0), chained + (key < 0)


@kernel
def follow_chains(store: Any, scratch: Any) -> Any:
    """Puts out the keys of chains: the first of each, then the second of each, and so on.

    So the processor waits for the rows of many chains together.
    """
    counters, out, links = scratch.counters, scratch.out, store.links
    end, count = len(out) - 1, counters[CHAINED]
    while count > 0:
        left, at = 0, counters[OUT]
        if at + 2 * count > end:
            return NEED_OUT
        for i in range(count):
            link = out[end - i]
            slot, after = links[link, VALUE], links[link, NEXT]
            out[at + i] = slot
            out[end - left] = after
            prefetch(store.keys, slot)
            prefetch(links, after)
            left += after >= 0
        counters[OUT] = at + count
        count = left
    return OK


@kernel
def put_if_holds(number: Any, begin: Any, store: Any, scratch: Any) -> Any:
    """Puts out a filter whose program, which begins there, holds; or that is to be verified."""
    counters = scratch.counters
    if not program_holds(begin, store, scratch):
        return OK
    at, chained = counters[OUT], counters[CHAINED]
    if at + chained + 2 > len(scratch.out):
        return NEED_OUT
    if counters[INEXACT] != 0 or store.program[begin] & VERIFY != 0:
        scratch.out[at] = -1 - number
        counters[OUT] = at + 1
        counters[DOUBTED] += 1
    else:
        at, chained = put_keys(store.filters[number, KEY], at, chained, store, scratch)
        counters[OUT], counters[CHAINED] = at, chained
    return OK


@kernel
def look_through(store: Any, scratch: Any) -> Any:
    """Checks every filter in the buckets on the list, and puts out those that match.

    Entries that may match are written down first, up to as many as there is room, and checked
    then: so most of the work has no branches. Written down is twice the entry, and 1 where the
    bucket is a value's.
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
def is_decided(guard: Any, by_value: Any) -> Any:
    """Whether guards that hold are all of the filter, in a bucket that it hangs in like this."""
    return guard & (DECIDED_ALONE | by_value * DECIDED_HERE) != 0


@kernel
def key_of(i: Any, store: Any) -> Any:
    """KEY of an entry's filter."""
    entries = store.entries
    return (
        entries[i, HERE] if entries[i, GUARD] & KEY_HERE else store.filters[entries[i, FILTER], KEY]
    )


@kernel
def check(waiting: Any, store: Any, scratch: Any) -> Any:
    """Checks the entries written down: by comparisons, which mostly suffice; the rest after that.

    Filters of one bucket often ask the same of the same attribute, so that is found out once.
    """
    counters, entries, pending = scratch.counters, store.entries, scratch.pending
    is_exact = counters[INEXACT] == 0
    at, chained, left, undecided, last = counters[OUT], counters[CHAINED], 0, 0, -1
    if at + chained + waiting + 2 > len(scratch.out):
        return NEED_OUT
    value, is_none, is_range, is_other = asked_of(0, scratch)
    for n in range(waiting):
        each = pending[n]
        i = (each >> 1) & ENTRY_MASK
        guard, second = entries[i, GUARD], entries[i, SECOND]
        if guard != last:
            last = guard
            value, is_none, is_range, is_other = asked_of(guard, scratch)
        may = True
        sure = is_exact & is_decided(guard, each & 1)
        sure &= is_sure(entries[i, LOW], entries[i, HIGH], value, is_none, is_range, is_other)
        if (second >> GUARD_KIND_SHIFT) & 7 != GUARD_NONE:
            low, high = entries[i, SECOND + 1], entries[i, SECOND + 2]
            sure &= is_sure(low, high, *asked_of(second, scratch))
            may = may_pass(i, SECOND, store, scratch)
        left += may
        if sure:
            at, chained = put_keys(key_of(i, store), at, chained, store, scratch)
        else:
            pending[undecided] = each
            undecided += may
    counters[CANDIDATES] += left
    counters[OUT], counters[CHAINED] = at, chained
    for n in range(undecided):
        i = (pending[n] >> 1) & ENTRY_MASK
        if not entries[i, GUARD] & KEY_HERE:
            prefetch(store.program, entries[i, HERE])
    for n in range(undecided):
        if check_whole(pending[n], store, scratch) != OK:
            return NEED_OUT
    return OK


@kernel
def check_whole(each: Any, store: Any, scratch: Any) -> Any:
    """Checks an entry by all that its guards can say, and else by its program."""
    counters, entries = scratch.counters, store.entries
    i = (each >> 1) & ENTRY_MASK
    first, second = guarded(i, GUARD, store, scratch), guarded(i, SECOND, store, scratch)
    if first == 0 or second == 0:
        return OK
    guard, number = entries[i, GUARD], entries[i, FILTER]
    if first & second == 2 and counters[INEXACT] == 0 and is_decided(guard, each & 1):
        at, chained = counters[OUT], counters[CHAINED]
        if at + chained + 2 > len(scratch.out):
            return NEED_OUT
        at, chained = put_keys(key_of(i, store), at, chained, store, scratch)
        counters[OUT], counters[CHAINED] = at, chained
        return OK
    begin = store.filters[number, BEGIN] if guard & KEY_HERE else entries[i, HERE]
    return put_if_holds(number, begin, store, scratch)


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
        if put_if_holds(pending[2 * n], pending[2 * n + 1], store, scratch) != OK:
            return NEED_OUT
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
def name_keys(store: Any, scratch: Any) -> None:
    """Leaves each slot once, and turns slots into keys where these are integers.

    Last and all at once, so that the processor waits for many places of memory together.
    """
    counters, out = scratch.counters, scratch.out
    counters[KEYED] = 0
    # A filter that hangs in several places is met once, unless an attribute has several values.
    if counters[SEVERAL] != 0 or counters[VALUES] > counters[PRESENT] or counters[INEXACT] != 0:
        drop_repeated(scratch)
    if counters[INT_KEYS] != 0 and counters[DOUBTED] == 0:
        for i in range(counters[OUT]):
            out[i] = store.keys[out[i]]
        counters[KEYED] = 1


@kernel
def seek(store: Any, scratch: Any) -> Any:
    """Lists the buckets that a notification comes by, which memory begins to bring meanwhile."""
    counters = scratch.counters
    counters[OUT] = 0
    counters[CANDIDATES] = 0
    counters[LOOKED] = 0
    counters[DOUBTED] = 0
    counters[CHAINED] = 0
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
    if status == OK:
        status = follow_chains(store, scratch)
    if status == OK:
        name_keys(store, scratch)
    return status


@kernel
def match(msg: Any, store: Any, scratch: Any) -> Any:
    """Loads a notification and finds its keys."""
    status = reading.load(msg, store, scratch)
    if status != OK:
        return status
    seek(store, scratch)
    return find(store, scratch)
