"""Kernels that match: they check the filters in the buckets of a notification.

`match` loads one notification, lists its buckets, and outputs the keys of the matching filters.
"""

from contrada.matching.kernels import schema
from contrada.matching.kernels.bucket_lookup import bin_of, collect
from contrada.matching.kernels.evaluate import program_holds, set_holds
from contrada.matching.kernels.memory import bytes_at, entry, kernel, prefetch
from contrada.matching.kernels.schema import Bytes, Ints, Memory
from contrada.matching.kernels.scratch import NAN, NUMBER, TEXT, load

ENTRIES_AT_ONCE = 128
"""Entries of a bucket that are examined before those that may match are checked."""
PREFETCHED_ENTRIES = 32
"""Entries of a bucket that are prefetched; then the processor does it by itself."""
ENTRY_MASK = 0x7FFFFFFF
"""Shows the compiler that the number of an entry is not negative."""
PREFETCHED_LINES = 4
"""Cache lines of a program that are prefetched: eight ranges and a little more."""


@kernel
def hull_of(guard: int) -> int:
    """Returns the row in `hulls` that a guard is compared with.

    A choice between two fields would be a branch in the compiled code.
    """
    return 2 * (guard & schema.GUARD_ATTR) + ((guard >> schema.GUARD_KIND_SHIFT) & 1)


@kernel
def may_pass(guard: int, low: int, high: int, m: Memory) -> int:
    """Whether a guard of an entry leaves a match possible, as far as a comparison can decide.

    One expression without short cuts: there is no branch that the processor could mispredict.
    """
    kind, hull = (guard >> schema.GUARD_KIND_SHIFT) & 7, m.hulls[hull_of(guard)]
    return ((low <= hull.highest) & (hull.lowest <= high)) | (kind > schema.GUARD_HASH)


@kernel
def asked_of(guard: int, m: Memory) -> tuple[int, int, int, int]:
    """The subject of a guard: the upper half of the one value of its attribute, or its hash.

    And whether the guard is none; a range; another value than one: the last two only if the
    attribute has one value, of the guard's domain.
    """
    kind, domain = (guard >> schema.GUARD_KIND_SHIFT) & 7, (guard >> schema.GUARD_DOMAIN_SHIFT) & 7
    has = m.state[guard & schema.GUARD_ATTR]
    is_only = (has.epoch == m.counters[0].epoch) & (has.only_domain == domain)
    value = m.hulls[hull_of(guard)].lowest
    is_range, is_other = (
        is_only & (kind == schema.GUARD_RANGE),
        is_only & (kind >= schema.GUARD_OTHER),
    )
    return value, kind == schema.GUARD_NONE, is_range, is_other


@kernel
def is_sure(low: int, high: int, value: int, is_none: int, is_range: int, is_other: int) -> int:
    """Whether the subject of a guard shows that its constraint holds, if the value is exact.

    One expression without short cuts, as in `may_pass`.
    """
    return is_none | (is_range & (low < value) & (value < high)) | (is_other & (low != value))


@kernel
def guarded(guard: int, low: int, high: int, m: Memory) -> int:
    """The result of a guard of an entry that may pass: 0 no, 1 perhaps, 2 its constraint holds."""
    kind = (guard >> schema.GUARD_KIND_SHIFT) & 7
    if kind == schema.GUARD_SET:
        holds = set_holds(low, m)
        return 2 if holds == 1 else holds >> 1
    value, is_none, is_range, is_other = asked_of(guard, m)
    if is_sure(low, high, value, is_none, is_range, is_other):
        return 2
    if kind < schema.GUARD_OTHER or is_other:
        return 1  # the halves of the keys are equal: only the whole keys decide
    has, domain = m.state[guard & schema.GUARD_ATTR], (guard >> schema.GUARD_DOMAIN_SHIFT) & 7
    if has.epoch != m.counters[0].epoch:
        return 0
    # several values, or NaN, which is not what `!=` excludes
    only = has.only_domain
    return 1 if only == 0 or (only == NAN and domain == NUMBER) else 0


@kernel
def put_keys(key: int, at: int, chained: int, m: Memory) -> tuple[int, int]:
    """Outputs the KEY of a filter: a slot; or a chain of them, to be followed later.

    `at` and `chained` are the numbers of each before; returns those after. Since a branch would be
    unpredictable, both are written and one of them counts: there must be room for two.
    """
    out = m.out
    out[at] = key
    out[len(out) - 1 - chained] = -2 - key
    prefetch(m.keys, key)
    prefetch(m.links, -2 - key)
    return at + (key >= 0), chained + (key < 0)


@kernel
def follow_chains(m: Memory) -> int:
    """Outputs the keys of chains: the first of each, then the second of each, and so on.

    So the processor waits for the rows of many chains together.
    """
    counters, out, links = m.counters[0], m.out, m.links
    end, count = len(out) - 1, counters.chained
    while count > 0:
        left, at = 0, counters.out
        if at + 2 * count > end:
            return schema.NEED_OUT
        for i in range(count):
            link = out[end - i]
            slot, after = links[link].value, links[link].next
            out[at + i] = slot
            out[end - left] = after
            prefetch(m.keys, slot)
            prefetch(links, after)
            left += after >= 0
        counters.out = at + count
        count = left
    return schema.OK


@kernel
def put_if_holds(number: int, begin: int, m: Memory) -> int:
    """Outputs a filter if its program, which begins there, holds; or must be verified."""
    counters = m.counters[0]
    if not program_holds(begin, m):
        return schema.OK
    at, chained = counters.out, counters.chained
    if at + chained + 2 > len(m.out):
        return schema.NEED_OUT
    # Without work left, a filter that holds may be unchecked.
    if counters.inexact != 0 or counters.work < 0 or m.program[begin] & schema.VERIFY != 0:
        m.out[at] = -1 - number
        counters.out = at + 1
        counters.doubted += 1
    else:
        at, chained = put_keys(m.filters[number].key, at, chained, m)
        counters.out, counters.chained = at, chained
    return schema.OK


@kernel
def look_through(m: Memory) -> int:
    """Checks every filter in the listed buckets, and outputs the matching ones.

    Entries that may match are stored first, up to the room, and checked then: so most of the work
    has no branches. The stored number is twice the entry, plus 1 if the bucket is a value's.
    """
    counters, pending = m.counters[0], m.pending
    waiting = 0
    for n in range(counters.buckets):
        bucket, by_value = m.bucket_list[n] >> 1, m.bucket_list[n] & 1
        length = m.buckets[bucket].length
        counters.looked += length
        first = m.buckets[bucket].start
        end = first + length
        while first < end:
            if waiting > schema.PENDING - ENTRIES_AT_ONCE:
                if check(waiting, m) != schema.OK:
                    return schema.NEED_OUT
                waiting = 0
            last = min(end, first + ENTRIES_AT_ONCE)
            for i in range(first, last):
                # Written down in any case, and kept by counting it: a guess would mostly be wrong.
                pending[waiting] = 2 * i + by_value
                its = m.entries[i]
                waiting += may_pass(its.guard, its.low, its.high, m)
            first = last
    return check(waiting, m)


@kernel
def is_decided(guard: int, by_value: int) -> bool:
    """Whether guards that hold are all of the filter, in a bucket of this kind."""
    return guard & (schema.DECIDED_ALONE | by_value * schema.DECIDED_HERE) != 0


@kernel
def key_of(i: int, m: Memory) -> int:
    """Returns the key of an entry's filter."""
    its = m.entries[i]
    return its.here if its.guard & schema.KEY_HERE else m.filters[its.filter].key


@kernel
def check(waiting: int, m: Memory) -> int:
    """Checks the stored entries: by comparisons, which mostly suffice; the rest after that.

    First all second guards, at which most fail: to drop these takes no branch that the processor
    could mispredict. Filters of one bucket often test the same attribute first, which is read once.
    """
    counters, entries, pending = m.counters[0], m.entries, m.pending
    is_exact = counters.inexact == 0  # else a value's half may be that of the double beside it
    at, chained, left, undecided, last = counters.out, counters.chained, 0, 0, -1
    if at + chained + waiting + 2 > len(m.out):
        return schema.NEED_OUT
    for n in range(waiting):
        each = pending[n]
        i = (each >> 1) & ENTRY_MASK
        pending[left] = each  # packed towards the front, where all has been read
        second, may = entries[i].second, 1
        if (second >> schema.GUARD_KIND_SHIFT) & 7 != schema.GUARD_NONE:
            may = may_pass(second, entries[i].second_low, entries[i].second_high, m)
        left += may
    value, is_none, is_range, is_other = asked_of(0, m)
    for n in range(left):
        each = pending[n]
        i = (each >> 1) & ENTRY_MASK
        guard, second = entries[i].guard, entries[i].second
        if guard != last:
            last = guard
            value, is_none, is_range, is_other = asked_of(guard, m)
        sure = int(is_exact & is_decided(guard, each & 1))
        sure &= is_sure(entries[i].low, entries[i].high, value, is_none, is_range, is_other)
        if (second >> schema.GUARD_KIND_SHIFT) & 7 != schema.GUARD_NONE:
            low, high = entries[i].second_low, entries[i].second_high
            other, no_guard, in_range, is_not = asked_of(second, m)
            sure &= is_sure(low, high, other, no_guard, in_range, is_not)
        if sure:
            at, chained = put_keys(key_of(i, m), at, chained, m)
        else:
            pending[undecided] = each
            undecided += 1
    counters.candidates += left
    counters.out, counters.chained = at, chained
    for n in range(undecided):
        i = (pending[n] >> 1) & ENTRY_MASK
        if not entries[i].guard & schema.KEY_HERE:
            prefetch(m.program, entries[i].here)
    for n in range(undecided):
        if check_whole(pending[n], m) != schema.OK:
            return schema.NEED_OUT
    return schema.OK


@kernel
def check_whole(each: int, m: Memory) -> int:
    """Checks an entry by all of its guards, and else by its program."""
    counters = m.counters[0]
    i = (each >> 1) & ENTRY_MASK
    its = m.entries[i]
    guard, number = its.guard, its.filter
    first = guarded(guard, its.low, its.high, m)
    second = guarded(its.second, its.second_low, its.second_high, m)
    if first == 0 or second == 0:
        return schema.OK
    if first & second == 2 and counters.inexact == 0 and is_decided(guard, each & 1):
        at, chained = counters.out, counters.chained
        if at + chained + 2 > len(m.out):
            return schema.NEED_OUT
        at, chained = put_keys(key_of(i, m), at, chained, m)
        counters.out, counters.chained = at, chained
        return schema.OK
    begin = m.filters[number].begin if guard & schema.KEY_HERE else its.here
    return put_if_holds(number, begin, m)


@kernel
def pool_row(pool: int, i: int, which: int, m: Memory) -> int:
    """Returns the beginning of a row of bits of a pool's attribute."""
    begin = m.pool_attrs[schema.POOL_ATTRS * pool + i].begin
    return begin + which * m.pools[pool].words


@kernel
def conjoin_attr(pool: int, i: int, m: Memory) -> None:
    """Keeps the filters of a pool that the notification's values of an attribute allow."""
    bits, found, state = m.bits, m.conjunction, m.state
    words = m.pools[pool].words
    attr = m.pool_attrs[schema.POOL_ATTRS * pool + i].attr
    if state[attr].epoch != m.counters[0].epoch or state[attr].count == 0:
        begin = pool_row(pool, i, schema.PIVOTS + 1, m)
        for w in range(words):
            found[w] &= bits[begin + w]
        return
    if state[attr].count > 1 or state[attr].only_domain == TEXT:
        return  # all remain: each is checked afterwards, so a row may only exclude failing filters
    row = state[attr].first
    tree = m.pool_attrs[schema.POOL_ATTRS * pool + i].tree
    domain = m.values[row].domain
    if m.values[row].low != m.values[row].high:
        return
    begin = pool_row(pool, i, bin_of(tree, domain, m.values[row].low, m), m)
    for w in range(words):
        found[w] &= bits[begin + w]


@kernel
def pooled(pool: int, m: Memory) -> int:
    """Lists the programs of the filters of a pool that its bitmaps leave; returns their number.

    `pending` gets two numbers for each: the filter, and the position.
    """
    bits, found, pending = m.bits, m.conjunction, m.pending
    alive = m.pools[pool].alive
    for w in range(m.pools[pool].words):
        found[w] = bits[alive + w]
    for i in range(m.pools[pool].attrs):
        conjoin_attr(pool, i, m)
    count = 0
    for w in range(m.pools[pool].words):
        word = found[w]
        at = m.pools[pool].filters + w * schema.WORD_BITS
        while word != 0:
            if word & 0xFF == 0:  # few bits are left, mostly far apart
                word >>= 8
                at += 8
                continue
            if word & 1:
                pending[2 * count] = bits[at]
                prefetch(m.filters, bits[at])
                count += 1
            word >>= 1
            at += 1
    for n in range(count):
        begin = m.filters[pending[2 * n]].begin
        pending[2 * n + 1] = begin
        for line in range(PREFETCHED_LINES):
            prefetch(m.program, begin + 16 * line)
    return count


@kernel
def look_through_pool(pool: int, m: Memory) -> int:
    """Checks the filters of a pool that its bitmaps leave, and outputs the matching ones."""
    counters, pending = m.counters[0], m.pending
    for n in range(pooled(pool, m)):
        counters.candidates += 1
        if put_if_holds(pending[2 * n], pending[2 * n + 1], m) != schema.OK:
            return schema.NEED_OUT
    return schema.OK


@kernel
def drop_repeated(m: Memory) -> None:
    """Removes repeated slots of keys from the output."""
    counters, out, seen = m.counters[0], m.out, m.key_seen
    kept = 0
    for i in range(counters.out):
        slot = out[i]
        if slot < 0 or seen[slot] != counters.epoch:
            if slot >= 0:
                seen[slot] = counters.epoch
            out[kept] = slot
            kept += 1
    counters.out = kept


@kernel
def name_keys(may_repeat: int, m: Memory) -> None:
    """Removes repeated slots, and converts slots to keys if these are integers.

    Last and all at once, so that the processor waits for many cache lines together.
    """
    counters, out = m.counters[0], m.out
    if may_repeat:
        drop_repeated(m)
    if counters.int_keys != 0 and counters.doubted == 0:
        for i in range(counters.out):
            out[i] = m.keys[out[i]]


@kernel
def drop_unneeded(m: Memory) -> None:
    """Counts the visits of the listed buckets, drops those whose filters all need an attribute that
    is absent, and prefetches the entries of the others.
    """
    counters, listed, kept = m.counters[0], m.bucket_list, 0
    for n in range(counters.buckets):
        each = listed[n] + 0
        its = m.buckets[each >> 1]
        its.hits += 1
        # Written in any case, as in `look_through`.
        is_kept = (its.needed < 0) | (m.state[max(its.needed, 0)].epoch == counters.epoch)
        listed[kept] = each
        kept += is_kept
        # Most have few entries: a loop would end unpredictably.
        prefetch(m.entries, its.start)
        prefetch(m.entries, its.start + 2)
        for i in range(4, is_kept * min(its.length, PREFETCHED_ENTRIES), 2):
            prefetch(m.entries, its.start + i)
    counters.buckets = kept


@kernel
def seek(m: Memory) -> None:
    """Lists the buckets of a notification that have to be checked, and prefetches them."""
    counters = m.counters[0]
    counters.out = 0
    counters.candidates = 0
    counters.looked = 0
    counters.doubted = 0
    counters.chained = 0
    counters.seen += 1
    counters.matched += 1
    collect(m)
    drop_unneeded(m)


@kernel
def find(m: Memory) -> int:
    """Outputs the keys, or their slots, of all matching filters. Answers OK or NEED_OUT."""
    status = look_through(m)
    for pool in range(m.counters[0].pools):
        if status == schema.OK:
            status = look_through_pool(pool, m)
    if status == schema.OK:
        status = follow_chains(m)
    if status == schema.OK:
        # A filter that hangs in several places is met once, unless an attribute has several values.
        counters = m.counters[0]
        has_several = (counters.values > counters.present) | (counters.inexact != 0)
        name_keys((counters.several == schema.REPEATS) | has_several, m)
    return status


@kernel
def match_span(msg: Bytes, m: Memory) -> int:
    """Loads a notification and outputs its keys. Answers OK, NEED_… or UNREADABLE."""
    status = load(msg, m)
    if status == schema.OK:
        seek(m)
        status = find(m)
    return status


@entry
def match(msg: bytes, m: Memory) -> int:
    """Loads a notification and finds its keys. Answers four times the number of outputs.

    Plus 1 if these are not keys yet, plus 2 if drift is due; or four times NEED_… or UNREADABLE,
    plus 1.
    """
    counters = m.counters[0]
    status = match_span(msg, m)
    if status != schema.OK:
        return 4 * status + 1
    is_keyed = (counters.int_keys != 0) & (counters.doubted == 0)
    return 4 * counters.out + (not is_keyed) + 2 * (counters.matched >= counters.due)


@entry
def all_hold(data: int, starts: Ints, numbers: Ints, m: Memory) -> bool:
    """Whether each of the spans at `starts` matches one of these filters.

    No also if that needs more room of an array, more work than allowed, or the model.
    """
    counters = m.counters[0]
    for row in range(len(starts) - 1):
        start = starts[row]
        if load(bytes_at(data + start, starts[row + 1] - start), m) != schema.OK:
            return False
        for i in range(len(numbers)):
            begin = m.filters[numbers[i]].begin
            if m.program[begin] & schema.VERIFY == 0 and program_holds(begin, m):
                break
        else:
            return False
        if counters.inexact != 0 or counters.work < 0:
            return False
    return True
