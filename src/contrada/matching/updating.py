"""The kernels of updates: equal filters, buckets, hash tables; and a look at every filter.

See `kernels` for how these functions are written and run.
"""

from typing import Any

from contrada.matching.jit import kernel, part
from contrada.matching.tables import (
    AT,
    ATTR_MASK,
    BEFORE,
    BEGIN,
    CAPACITY,
    DOMAIN_SHIFT,
    ENTRY_COLUMNS,
    FILTER,
    GONE,
    GUARD,
    HASH,
    HERE,
    HITS,
    KEY,
    KEY_HERE,
    LENGTH,
    NAME,
    NEXT,
    OF_ATTR,
    OF_DOMAIN,
    OF_HIGH,
    OF_LOW,
    OP_POINT,
    OP_RANGE,
    OP_SET,
    OP_SHIFT,
    OP_TEXT,
    OP_TEXT_RANGE,
    PLACE,
    SEEN,
    START,
    TEXT_SHIFT,
    VALUE,
    WIDER,
    WORDS_MASK,
)

reading = part("reading")
put_guards = part("guards").put_guards
values = part("values")
cheapest_value = values.cheapest_value
share = values.share
unseen_value = values.unseen_value
find_bucket = part("seeking").find_bucket
finished = reading.finished
mixed = reading.mixed
text_hash = reading.text_hash
MASK = reading.MASK
SEED = reading.SEED
BY_VALUE = 2
ALONE = 1


@kernel
def enter(words: Any, count: Any, number: Any, begin: Any, is_wider: Any, store: Any) -> Any:
    """The filter with this program; or where there is none `number`, which is written, to be it.

    A filter that is wider than its program is equal to none. A number below 0 is not written.
    """
    program, filters, equal = store.program, store.filters, store.equal
    h = SEED
    for i in range(count):
        h = mixed(mixed(h, words[i]), words[i] >> 32)
    mask = len(equal) - 1
    slot = finished(h) & mask
    while equal[slot] != 0 and not is_wider:
        known = equal[slot] - 1
        at = filters[known, BEGIN]
        same = program[at] & (WORDS_MASK | GONE | WIDER) == count
        if same:
            for i in range(count):
                if program[at + 1 + i] != words[i]:
                    same = False
                    break
        if same:
            return known
        slot = (slot + 1) & mask
    if number < 0:
        return number
    program[begin] = count
    for i in range(count):
        program[begin + 1 + i] = words[i]
    filters[number, BEGIN] = begin
    filters[number, KEY] = -1
    filters[number, PLACE] = -1
    filters[number, AT] = 0
    if not is_wider:
        equal[slot] = number + 1
    return number


@kernel
def bucket_for(h: Any, store: Any, used: Any) -> Any:
    """The bucket of a place; a new one, row `used`, where there is none yet."""
    mask = len(store.slots) - 1
    slot = h & mask
    while True:
        bucket = store.slots[slot] - 1
        if bucket < 0:
            store.slots[slot] = used + 1
            store.buckets[used, HASH] = h
            return used
        if store.buckets[bucket, HASH] == h:
            return bucket
        slot = (slot + 1) & mask


@kernel
def is_of(bucket: Any, attr: Any, domain: Any, operand: Any, store: Any) -> Any:
    """Whether a bucket is that of one value alone, and this the value: its key, or its text."""
    buckets = store.buckets
    if buckets[bucket, OF_ATTR] != attr or buckets[bucket, OF_DOMAIN] != domain:
        return False
    low, high = buckets[bucket, OF_LOW] + 0, buckets[bucket, OF_HIGH] + 0
    return (high << 32) | (low & MASK) == operand


@kernel
def place_bucket(
    h: Any,
    attr: Any,
    unseen: Any,
    domain: Any,
    operand: Any,
    store: Any,
    statistics: Any,
    used: Any,
) -> Any:
    """The bucket of a place of an attribute, row `used` where there is none yet: its number times
    four; plus 1 where it is that of the place's value; plus 2 where it ceased to be another's.

    A place of a value has a domain, and the key or the reference to the text. A new bucket begins
    as if it had been there all the time, `unseen` a share of it: what is new must not look
    unvisited.
    """
    buckets = store.buckets
    expected = share(h, attr, unseen, statistics)
    bucket = bucket_for(h, store, used)
    if bucket == used:
        buckets[bucket, HITS] = int(store.attrs[attr, SEEN] * expected)
        if domain != 0:
            buckets[bucket, OF_ATTR] = attr
            buckets[bucket, OF_DOMAIN] = domain
            buckets[bucket, OF_LOW] = (operand & MASK) - ((operand << 1) & (1 << 32))
            buckets[bucket, OF_HIGH] = operand >> 32
    if domain != 0 and is_of(bucket, attr, domain, operand, store):
        return 4 * bucket + 1
    if buckets[bucket, OF_DOMAIN] == 0:
        return 4 * bucket
    buckets[bucket, OF_DOMAIN] = 0  # two places have one hash, so either leads here
    return 4 * bucket + 2


@kernel
def power(size: Any) -> Any:
    """Which power of two a number is."""
    found = 0
    while size > 1:
        size >>= 1
        found += 1
    return found


@kernel
def make_room(bucket: Any, store: Any, used: Any) -> Any:
    """Moves a full bucket to twice the room. The number of entries used afterwards.

    A room that another bucket left is taken before a fresh one.
    """
    buckets, entries, rooms = store.buckets, store.entries, store.rooms
    length = buckets[bucket, LENGTH]
    capacity = max(2 * length, 1)
    old, free = buckets[bucket, START], rooms[power(capacity)]
    if free > 0:
        start = free - 1
        rooms[power(capacity)] = entries[start, FILTER]
    else:
        start = used
        used += capacity
    for i in range(length):
        for column in range(ENTRY_COLUMNS):
            entries[start + i, column] = entries[old + i, column]
    if length > 0:
        entries[old, FILTER] = rooms[power(length)]
        rooms[power(length)] = old + 1
    buckets[bucket, START] = start
    buckets[bucket, CAPACITY] = capacity
    return used


@kernel
def hang(bucket: Any, number: Any, hung: Any, flags: Any, store: Any, used: Any) -> Any:
    """Puts a filter into a bucket, as its last entry. The number of entries used afterwards.

    For `hung` and the flags see `guards.put_guards`.
    """
    buckets, entries = store.buckets, store.entries
    length = buckets[bucket, LENGTH]
    if length == buckets[bucket, CAPACITY]:
        used = make_room(bucket, store, used)
    at = buckets[bucket, START] + length
    entries[at, FILTER] = number
    put_guards(at, number, hung, flags & BY_VALUE, flags & ALONE, store)
    here = KEY if entries[at, GUARD] & KEY_HERE else BEGIN
    entries[at, HERE] = store.filters[number, here]
    buckets[bucket, LENGTH] = length + 1
    return used


@kernel
def hang_at_value(
    number: Any, seen: Any, store: Any, statistics: Any, entries_used: Any, buckets_used: Any
) -> Any:
    """Hangs a filter at its cheapest value, where that is settled and its bucket no other's.

    (entries, buckets) used afterwards; (-1, -1) where it does not hang yet, because that is not so
    or there is no room.
    """
    word, h, _, settled = cheapest_value(number, seen, store, statistics)
    if not settled or buckets_used >= len(store.buckets) or 2 * buckets_used + 2 > len(store.slots):
        return -1, -1
    word += store.filters[number, BEGIN] + 1
    head, operand = store.program[word], store.program[word + 1]
    attr, domain = head & ATTR_MASK, head >> DOMAIN_SHIFT
    bucket = find_bucket(store, h)
    length = 0
    if bucket >= 0:
        if not is_of(bucket, attr, domain, operand, store):
            return -1, -1
        length = store.buckets[bucket, LENGTH] + 0
    if entries_used + 2 * length + 1 > len(store.entries):
        return -1, -1
    if bucket < 0:
        unseen = unseen_value(attr, statistics)
        place_bucket(h, attr, unseen, domain, operand, store, statistics, buckets_used)
        bucket = buckets_used
        buckets_used += 1
    store.filters[number, PLACE] = bucket
    store.filters[number, AT] = length
    used = hang(bucket, number, attr, BY_VALUE + ALONE, store, entries_used)
    return used, buckets_used


@kernel
def unhang(bucket: Any, number: Any, at: Any, store: Any) -> Any:
    """Takes a filter out of a bucket; the last entry takes its place. Whether it was there.

    `at` is which entry it is.
    """
    buckets, entries, filters, links = store.buckets, store.entries, store.filters, store.links
    start = buckets[bucket, START]
    last = buckets[bucket, LENGTH] - 1
    if at > last or entries[start + at, FILTER] != number:
        return 0
    for column in range(ENTRY_COLUMNS):
        entries[start + at, column] = entries[start + last, column]
    moved = entries[start + at, FILTER]
    if filters[moved, PLACE] >= 0:
        filters[moved, AT] = at
    else:
        link = -2 - filters[moved, PLACE]
        while link >= 0:
            if links[link, VALUE] == bucket:
                links[link, BEFORE] = at
            link = links[link, NEXT]
    buckets[bucket, LENGTH] = last
    return 1


@kernel
def key_hash(key: Any) -> Any:
    """The hash of an integer key."""
    return finished(mixed(mixed(SEED, key), key >> 32))


@kernel
def find_key(key: Any, keys: Any, slots: Any) -> Any:
    """The slot of an integer key, or -1 - the free place of the hash table."""
    mask = len(slots) - 1
    place = key_hash(key) & mask
    while True:
        slot = slots[place] - 1
        if slot < 0:
            return -1 - place
        if keys[slot] == key:
            return slot
        place = (place + 1) & mask


@kernel
def drop_key(key: Any, keys: Any, slots: Any) -> Any:
    """Takes a key out of the hash table; those behind it move up, so that all are found."""
    mask = len(slots) - 1
    hole = key_hash(key) & mask
    while keys[slots[hole] - 1] != key:
        hole = (hole + 1) & mask
    place = hole
    while True:
        place = (place + 1) & mask
        if slots[place] == 0:
            break
        wanted = key_hash(keys[slots[place] - 1]) & mask
        if (place - wanted) & mask >= (place - hole) & mask:
            slots[hole] = slots[place]
            hole = place
    slots[hole] = 0


@kernel
def rehash_keys(old: Any, keys: Any, slots: Any) -> Any:
    """Fills a hash table of keys from a smaller one."""
    for place in range(len(old)):
        if old[place] > 0:
            slots[-1 - find_key(keys[old[place] - 1], keys, slots)] = old[place]


@kernel
def rehash_buckets(store: Any, used: Any) -> Any:
    """Fills the hash table of buckets anew. Buckets without a hash have -1."""
    mask = len(store.slots) - 1
    for bucket in range(used):
        h = store.buckets[bucket, HASH]
        if h >= 0:
            slot = h & mask
            while store.slots[slot] != 0:
                slot = (slot + 1) & mask
            store.slots[slot] = bucket + 1


@kernel
def rehash_filters(store: Any, used: Any) -> Any:
    """Fills the hash table of filters anew, without those that are gone or wider."""
    mask = len(store.equal) - 1
    for number in range(used):
        at = store.filters[number, BEGIN]
        if at < 0 or store.program[at] & (GONE | WIDER):
            continue
        h = SEED
        for i in range(store.program[at] & WORDS_MASK):
            word = store.program[at + 1 + i]
            h = mixed(mixed(h, word), word >> 32)
        slot = finished(h) & mask
        while store.equal[slot] != 0:
            slot = (slot + 1) & mask
        store.equal[slot] = number + 1


@kernel
def enter_name(row: Any, store: Any) -> Any:
    """Enters an attribute into the hash table; a row without a name is left out."""
    ref = store.attrs[row, NAME]
    if ref & 0xFFFFFF == 0:
        return
    mask = len(store.names) - 1
    h = text_hash(store.texts, ref >> TEXT_SHIFT, ref & 0xFFFFFF)
    slot = finished(h) & mask
    while store.names[slot] != 0:
        slot = (slot + 1) & mask
    store.names[slot] = row + 1


@kernel
def rehash_names(store: Any, used: Any) -> Any:
    """Fills the hash table of attributes anew."""
    for row in range(used):
        enter_name(row, store)


@kernel
def touches(number: Any, box: Any, rows: Any, closed: Any, inside: Any, store: Any) -> Any:
    """Whether a filter may meet a box, or, asked for `inside`, may lie in it.

    A row of the box is (attribute, domain or 0 for any, lowest key, highest key); for a single text
    both are the reference to it, or -1. In a `closed` box every attribute that it does not name is
    absent.
    """
    program = store.program
    at = store.filters[number, BEGIN] + 1
    head = program[at - 1]
    if head & GONE:
        return False
    end = at + (head & WORDS_MASK)
    named = 0
    while at < end:
        word = program[at]
        op = (word >> OP_SHIFT) & 0xFF
        row = 0
        while row < rows and box[4 * row] != word & ATTR_MASK:
            row += 1
        if row == rows:
            if closed and op != OP_SET:
                return False
        else:
            named += 1
            domain = box[4 * row + 1]
            if domain != 0 and op != OP_SET:
                if domain != word >> DOMAIN_SHIFT:
                    return False
                if op == OP_POINT or op == OP_RANGE:
                    low = program[at + 1]
                    high = program[at + 2] if op == OP_RANGE else low
                    if low > box[4 * row + 3] or high < box[4 * row + 2]:
                        return False
                    # Two keys are nothing: an end that no double equals is kept one key wider.
                    if inside and (low + 2 < box[4 * row + 2] or high - 2 > box[4 * row + 3]):
                        return False
                elif op == OP_TEXT and program[at + 1] != box[4 * row + 2]:
                    return False
        at += 3 if op == OP_RANGE or op == OP_TEXT_RANGE else 2
    return not inside or named == rows


@kernel
def touching(
    box: Any, rows: Any, closed: Any, inside: Any, first: Any, found: Any, used: Any, store: Any
) -> Any:
    """Writes down, from a filter on, those that touch a box; how many, at most the room.

    The last place of `found` gets the filter to go on from.
    """
    count = 0
    number = first
    while number < used and count < len(found) - 1:
        if touches(number, box, rows, closed, inside, store):
            found[count] = number
            count += 1
        number += 1
    found[len(found) - 1] = number
    return count
