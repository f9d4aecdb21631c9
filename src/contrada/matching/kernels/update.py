"""Kernels of updates: equal filters, buckets, guards, hash tables.

*Guards* are constraints in an entry, tested before the filter's program. An entry has two, of the
filter's constraints besides the one of its bucket. Most candidates fail at a guard, and if bucket
and guards are the whole filter, most matches are decided there, without an access to the filter
itself, which is elsewhere in memory. A guard never fails a value that its constraint accepts. It
shows that the constraint holds only if 32 bits suffice for that.
"""

from contrada.matching.kernels import schema
from contrada.matching.kernels.bucket_lookup import (
    count,
    find_bucket,
    presence_of,
    range_share,
    share,
    unseen_value,
)
from contrada.matching.kernels.evaluate import constraint_words, operand, put_operand
from contrada.matching.kernels.memory import array_entry, entry, kernel
from contrada.matching.kernels.schema import Ints, Memory, RowNumbers
from contrada.matching.kernels.scratch import (
    INT32_MAX,
    KIND_TEXT,
    MASK,
    finished,
    mixed,
    place_hash,
    point_hash,
    text_hash,
)

HUNG_RANK = 8
"""The rank of the constraint of the filter's bucket: after all others."""


@kernel
def words_hash(seed: int, words: RowNumbers, first: int, count: int) -> int:
    """Returns the hash of the words of a program."""
    h = seed & MASK
    for i in range(first, first + count):
        h = mixed(seed, h, words[i])
    return finished(h)


@entry
def put_program(words: Ints, begin: int, m: Memory) -> int:
    """Writes constraints, each a head and its operands, behind a word; returns the words' number.

    There must be room for twice as many words.
    """
    program, word, i = m.program, begin + 1, 0
    while i < len(words):
        op = (words[i] >> schema.OP_SHIFT) & schema.OP_MASK
        program[word] = words[i]
        put_operand(program, word + 1, words[i + 1])
        if op == schema.OP_RANGE or op == schema.OP_TEXT_RANGE:
            put_operand(program, word + 3, words[i + 2])
            word += 2
            i += 1
        word += 3
        i += 2
    return word - begin - 1


@entry
def enter(begin: int, count: int, number: int, is_wider: bool, m: Memory) -> int:
    """Returns the filter with the program that was written there; `number` for a new one.

    A filter that is wider than its program is equal to none. A number below 0 adds nothing.
    """
    program, filters, equal = m.program, m.filters, m.equal
    mask = len(equal) - 1
    slot = words_hash(m.seed[0], program, begin + 1, count) & mask
    while equal[slot] != 0 and not is_wider:
        known = equal[slot] - 1
        at = filters[known].begin
        # A removed one remains in the table, so that those behind it are found, but equals none.
        if program[at] & (schema.WORDS_MASK | schema.GONE | schema.WIDER) == count:
            for i in range(1, count + 1):
                if program[at + i] != program[begin + i]:
                    break
            else:
                return known
        slot = (slot + 1) & mask
    if number < 0:
        return number
    program[begin] = count
    its = filters[number]
    its.begin, its.key, its.place, its.at = begin, -1, -1, 0
    if not is_wider:
        equal[slot] = number + 1
    return number


@kernel
def bucket_for(h: int, m: Memory, used: int) -> int:
    """Returns the bucket of a place; a new one, row `used`, if there is none yet."""
    mask = len(m.slots) - 1
    slot = h & mask
    while True:
        bucket = m.slots[slot] - 1
        if bucket < 0:
            m.slots[slot] = used + 1
            m.buckets[used].hash = h
            return used
        if m.buckets[bucket].hash == h:
            return bucket
        slot = (slot + 1) & mask


@kernel
def is_of(bucket: int, attr: int, domain: int, of: int, m: Memory) -> bool:
    """Whether a bucket is that of one value alone, and this the value: its key, or its text."""
    buckets = m.buckets
    if buckets[bucket].of_attr != attr or buckets[bucket].of_domain != domain:
        return False
    low, high = buckets[bucket].of_low + 0, buckets[bucket].of_high + 0
    return (high << 32) | (low & MASK) == of


@entry
def place_bucket(
    h: int, attr: int, unseen: float, domain: int, of: int, used: int, m: Memory, seen_in: Memory
) -> int:
    """The bucket of a place of an attribute, row `used` for a new one: its number times four.

    Plus 1 if it is that of the place's value; plus 2 if a value shares its hash with another place.

    A place of a value has a domain, and the key or the reference to the text. A new bucket gets a
    share `unseen` of the visits of all time: it must not look unvisited. The arrays `seen_in`
    have the visits.
    """
    buckets, is_value = m.buckets, domain != 0
    expected = share(h, attr, unseen, seen_in)
    bucket = bucket_for(h, m, used)
    m.attrs[attr].by_value |= is_value  # Also where the bucket is that of another attribute.
    if bucket == used:
        buckets[bucket].hits = int(m.attrs[attr].seen * expected)
        if is_value:
            buckets[bucket].of_attr = attr
            buckets[bucket].of_domain = domain
            # The lower half as a signed number, without a comparison.
            buckets[bucket].of_low = (of & MASK) - ((of << 1) & (1 << 32))
            buckets[bucket].of_high = of >> 32
    if is_value and is_of(bucket, attr, domain, of, m):
        return 4 * bucket + 1
    if not is_value and buckets[bucket].of_domain == 0:
        return 4 * bucket
    buckets[bucket].of_domain = 0  # two places have one hash, so either leads here
    return 4 * bucket + 2


@kernel
def rank(op: int) -> int:
    """Returns the operators in order, the most selective first."""
    if op == schema.OP_POINT:
        return 0
    if op == schema.OP_TEXT:
        return 1
    if op == schema.OP_RANGE:
        return 2
    return 3 if op == schema.OP_SET else 4


@kernel
def commonness(attr: int, m: Memory) -> int:
    """Returns how often notifications had an attribute, and filters ranges of it.

    The rarer it is, the more candidates a guard on it rejects.
    """
    return m.attrs[attr].seen + m.attrs[attr].ranges


@kernel
def guard_of(word: int, m: Memory) -> tuple[int, int, int]:
    """Returns the guard of a constraint at a word of the program; none at -1."""
    if word < 0:
        return schema.GUARD_NONE << schema.GUARD_KIND_SHIFT, 0, 0
    program = m.program
    head = program[word]
    attr, op, domain = (
        head & schema.ATTR_MASK,
        (head >> schema.OP_SHIFT) & schema.OP_MASK,
        head >> schema.DOMAIN_SHIFT,
    )
    asked = attr | (domain << schema.GUARD_DOMAIN_SHIFT)
    if op == schema.OP_SET:
        row = operand(program, word + 1)
        asked = m.sets_by_row[row].guard + 0
        low = m.sets_by_row[row].low + 0
        high = m.sets_by_row[row].high + 0
    elif op == schema.OP_TEXT:
        ref = operand(program, word + 1)
        h = text_hash(m.seed[0], m.texts, ref >> schema.TEXT_SHIFT, ref & schema.LENGTH_MASK)
        low = high = finished(h)
        asked |= schema.GUARD_HASH << schema.GUARD_KIND_SHIFT
    elif op == schema.OP_TEXT_RANGE:
        low, high = 0, INT32_MAX  # the hash of any text
        asked |= schema.GUARD_HASH << schema.GUARD_KIND_SHIFT
    else:
        low = program[word + 2] + 0
        high = program[word + (4 if op == schema.OP_RANGE else 2)] + 0
    return asked, low, high


@kernel
def is_clear(asked: int) -> bool:
    """Whether a guard mostly decides by itself."""
    kind = (asked >> schema.GUARD_KIND_SHIFT) & 7
    return kind != schema.GUARD_HASH and kind != schema.GUARD_SET


@kernel
def put_guards(at: int, number: int, hung: int, by_value: int, alone: bool, m: Memory) -> None:
    """Writes the guards of a filter's entry; the first has the flag that both of them decide.

    `hung` is the attribute of the filter's bucket, or -1; `by_value` is whether its bucket's value
    is the whole constraint on it; `alone` that it has no other entry.
    """
    program = m.program
    begin = m.filters[number].begin
    word, end = begin + 1, begin + 1 + (program[begin] & schema.WORDS_MASK)
    first = second = -1
    first_rank = second_rank = (HUNG_RANK + 1) << 32
    count = 0
    while word < end:
        op, attr = (
            (program[word] >> schema.OP_SHIFT) & schema.OP_MASK,
            program[word] & schema.ATTR_MASK,
        )
        if not (attr == hung and by_value):
            count += 1
            order = ((HUNG_RANK if attr == hung else rank(op)) << 32) + commonness(attr, m)
            if order < first_rank:
                second, second_rank = first, first_rank
                first, first_rank = word, order
            elif order < second_rank:
                second, second_rank = word, order
        word += constraint_words(op)
    its = m.entries[at]
    guard, its.low, its.high = guard_of(first, m)
    its.second, its.second_low, its.second_high = guard_of(second, m)
    if count <= 2 and program[begin] & schema.VERIFY == 0:
        decided = schema.DECIDED_HERE if by_value else schema.DECIDED_ALONE
        if alone and is_clear(guard) and is_clear(its.second):
            decided |= schema.KEY_HERE
        guard |= decided
    its.guard = guard


@kernel
def power(size: int) -> int:
    """Returns the exponent of the power of two."""
    found = 0
    while size > 1:
        size >>= 1
        found += 1
    return found


@kernel
def move_bucket(bucket: int, start: int, capacity: int, m: Memory) -> None:
    """Moves a bucket to another room, and frees its own."""
    buckets, entries, rooms = m.buckets, m.entries, m.rooms
    old, size = buckets[bucket].start, power(buckets[bucket].capacity)
    for i in range(buckets[bucket].length):
        entries[start + i] = entries[old + i]
    if buckets[bucket].capacity > 0:
        # The first entry of a free room has the next free one of its size, or a little more.
        entries[old].filter = rooms[size]
        rooms[size] = old + 1
    buckets[bucket].start = start
    buckets[bucket].capacity = capacity


@kernel
def make_room(bucket: int, length: int, m: Memory, used: int) -> int:
    """Moves a bucket to a room for so many entries, a free one first; returns the entries used."""
    size = power(length - 1) + 1 if length > 1 else 0
    start = m.rooms[size] - 1
    if start >= 0:
        m.rooms[size] = m.entries[start].filter
    else:
        start = used
        used += 1 << size
    move_bucket(bucket, start, 1 << size, m)
    return used


@kernel
def leave_block(m: Memory) -> None:
    """Has the next rows of a batch matched anew: their block holds entries and keys as they were.

    An operator may update the index, and a match may reassign filters, between two rows.
    """
    m.counters[0].block_end = 0


@kernel
def needed_attr(guard: int) -> int:
    """Returns the attribute without which a guard fails, whatever else; -1 without one."""
    kind = (guard >> schema.GUARD_KIND_SHIFT) & 7
    if kind == schema.GUARD_NONE or kind == schema.GUARD_SET:
        return -1
    return guard & schema.GUARD_ATTR


@kernel
def needed_with(at: int, needed: int, is_first: int, m: Memory) -> int:
    """Returns an attribute that a new entry needs, and those before it in its bucket; -1 if none.

    The first entry chooses it. A removal changes nothing, so all of the entries that are left need
    it still.
    """
    one, other = needed_attr(m.entries[at].guard), needed_attr(m.entries[at].second)
    if is_first:
        return one if one >= 0 else other
    return needed if needed == one or needed == other else -1


@entry
def hang(
    bucket: int, number: int, hung: int, by_value: bool, alone: bool, used: int, m: Memory
) -> int:
    """Puts a filter into a bucket, as its last entry. The number of entries used afterwards.

    For `hung`, `by_value` and `alone` see `put_guards`.
    """
    buckets, entries = m.buckets, m.entries
    length = buckets[bucket].length
    if length == buckets[bucket].capacity:
        used = make_room(bucket, length + 1, m, used)
    at = buckets[bucket].start + length
    entries[at].filter = number
    put_guards(at, number, hung, by_value, alone, m)
    its = m.filters[number]
    entries[at].here = its.key if entries[at].guard & schema.KEY_HERE else its.begin
    buckets[bucket].needed = needed_with(at, buckets[bucket].needed + 0, length == 0, m)
    buckets[bucket].length = length + 1
    leave_block(m)
    return used


@entry
def cheapest_value(number: int, m: Memory, seen_in: Memory) -> tuple[int, int, float, int]:
    """(word, hash, cost, settled) of the value that the fewest notifications reach.

    All its values are counted. The word is the position of its constraint behind the header, -1
    without a constraint of a single value. The cost is the share of all notifications that reach
    it. It is settled if no other constraint costs less: all are ranges, and their bins are visited
    more.
    """
    program, seed = m.program, m.seed[0]
    begin = m.filters[number].begin + 1
    end = begin + (program[begin - 1] & schema.WORDS_MASK)
    found, its_hash, lowest = -1, 0, 2.0
    least = 2.0
    only_ranges = True
    word = begin
    while word < end:
        head = program[word]
        attr, op = head & schema.ATTR_MASK, (head >> schema.OP_SHIFT) & schema.OP_MASK
        if op == schema.OP_POINT or op == schema.OP_TEXT:
            of = operand(program, word + 1)
            if op == schema.OP_POINT:
                h = point_hash(seed, attr, head >> schema.DOMAIN_SHIFT, of)
            else:
                h = text_hash(seed, m.texts, of >> schema.TEXT_SHIFT, of & schema.LENGTH_MASK)
                h = place_hash(seed, attr, KIND_TEXT, h)
            count(m.attrs[attr].sketch, h, m)
            its_share = share(h, attr, unseen_value(attr, seen_in), seen_in)
            cost = presence_of(attr, m) * min(its_share, 1.0)
            if found < 0 or cost < lowest:
                found, its_hash, lowest = word - begin, h, cost
        elif op == schema.OP_RANGE:
            low, high = operand(program, word + 1), operand(program, word + 3)
            bins = range_share(attr, head >> schema.DOMAIN_SHIFT, low, high, m)
            least = min(least, presence_of(attr, m) * bins)
        else:
            only_ranges = False
        word += constraint_words(op)
    settled = only_ranges and found >= 0 and lowest <= least
    return found, its_hash, lowest, settled


@kernel
def value_bucket(number: int, word: int, h: int, used: int, m: Memory, seen_in: Memory) -> int:
    """Returns the bucket of a filter's value, row `used` for a new one; -1 if others lead there.

    The word and the hash are those of `cheapest_value`.
    """
    word += m.filters[number].begin + 1
    head, of = m.program[word], operand(m.program, word + 1)
    attr, domain = head & schema.ATTR_MASK, head >> schema.DOMAIN_SHIFT
    bucket = find_bucket(m, h)
    if bucket >= 0:
        return bucket if is_of(bucket, attr, domain, of, m) else -1
    place_bucket(h, attr, unseen_value(attr, seen_in), domain, of, used, m, seen_in)
    return used


@entry
def hang_at_value(
    number: int, entries_used: int, buckets_used: int, m: Memory, seen_in: Memory
) -> tuple[int, int, tuple[int, int, float, int]]:
    """Assigns a filter to its cheapest value, if that is settled and its bucket no other's.

    (entries, buckets) used afterwards, and its cheapest value, as in `cheapest_value`; (-1, -1) if
    it is not assigned yet, because that is not so or there is no room.
    """
    cheapest = cheapest_value(number, m, seen_in)
    word, h, _, settled = cheapest
    if not settled or buckets_used >= len(m.buckets) or 4 * buckets_used + 4 > 3 * len(m.slots):
        return -1, -1, cheapest
    bucket = find_bucket(m, h)
    length = m.buckets[bucket].length + 0 if bucket >= 0 else 0
    if entries_used + 2 * length + 1 > len(m.entries):  # to which a full bucket would move
        return -1, -1, cheapest
    bucket = value_bucket(number, word, h, buckets_used, m, seen_in)
    if bucket < 0:
        return -1, -1, cheapest
    m.filters[number].place = bucket
    m.filters[number].at = length
    used = hang(bucket, number, m.buckets[bucket].of_attr, True, True, entries_used, m)
    return used, buckets_used + (bucket == buckets_used), cheapest


@entry
def show_key(number: int, m: Memory) -> None:
    """Updates the entry of a filter after a change of its keys: it may show them."""
    its = m.filters[number]
    leave_block(m)
    if its.place >= 0 and its.at >= 0:
        entry = m.buckets[its.place].start + its.at
        if m.entries[entry].guard & schema.KEY_HERE:
            m.entries[entry].here = its.key


@entry
def unhang(bucket: int, number: int, at: int, m: Memory) -> bool:
    """Removes entry `at` of a bucket, whose last entry takes its place. Whether it was there.

    An empty bucket leaves its room to others.
    """
    buckets, entries, filters, links = m.buckets, m.entries, m.filters, m.links
    start = buckets[bucket].start
    last = buckets[bucket].length - 1
    if at > last or entries[start + at].filter != number:
        return False
    entries[start + at] = entries[start + last]
    moved = entries[start + at].filter
    if filters[moved].place >= 0:
        filters[moved].at = at
    else:
        link = -2 - filters[moved].place
        while link >= 0:
            if links[link].value == bucket:
                links[link].before = at
            link = links[link].next
    buckets[bucket].length = last
    if last == 0:
        move_bucket(bucket, 0, 0, m)
    leave_block(m)
    return True


@entry
def rehash_buckets(first: int, end: int, slots: RowNumbers, m: Memory) -> None:
    """Enters some buckets into a hash table. Buckets without a hash have -1."""
    mask = len(slots) - 1
    for bucket in range(first, end):
        h = m.buckets[bucket].hash
        if h >= 0:
            slot = h & mask
            while slots[slot] != 0:
                slot = (slot + 1) & mask
            slots[slot] = bucket + 1


@entry
def rehash_filters(first: int, end: int, equal: RowNumbers, m: Memory) -> None:
    """Enters some filters into a hash table, without removed or wider ones."""
    mask = len(equal) - 1
    for number in range(first, end):
        at = m.filters[number].begin
        if at < 0 or m.program[at] & (schema.GONE | schema.WIDER):
            continue
        slot = words_hash(m.seed[0], m.program, at + 1, m.program[at] & schema.WORDS_MASK) & mask
        while equal[slot] != 0:
            slot = (slot + 1) & mask
        equal[slot] = number + 1


@entry
def enter_names(first: int, end: int, m: Memory) -> None:
    """Enters the attributes from one row to before another into the hash table, if named."""
    mask = len(m.names) - 1
    for row in range(first, end):
        ref = m.attrs[row].name
        if ref & schema.LENGTH_MASK != 0:
            h = text_hash(m.seed[0], m.texts, ref >> schema.TEXT_SHIFT, ref & schema.LENGTH_MASK)
            m.attrs[row].hash = h
            slot = finished(h) & mask
            while m.names[slot] != 0:
                slot = (slot + 1) & mask
            m.names[slot] = row + 1


# --- stamps, statistics and pools -----------------------------------------------------------------


@array_entry
def fade(attrs: int, buckets: int, m: Memory) -> None:
    """Halves the statistics of used rows, so that later notifications count more."""
    m.counters[0].seen >>= 1
    for row in range(attrs):
        m.attrs[row].seen >>= 1
    for row in range(buckets):
        m.buckets[row].hits >>= 1


@array_entry
def clear_stamps(attrs: int, buckets: int, keys: int, sets: int, m: Memory) -> None:
    """Restarts the numbers of notifications in used rows."""
    m.counters[0].epoch = 0
    for row in range(attrs):
        m.state[row].epoch = 0
    for row in range(buckets):
        m.buckets[row].stamp = 0
    for row in range(keys):
        m.key_seen[row] = 0
    for row in range(sets):
        m.set_seen[row] = 0


@entry
def put_pool_bit(pool: int, i: int, word: int, mask: int, first: int, last: int, m: Memory) -> None:
    """Sets a filter's bit in the rows from `first` to `last` of a pool's attribute alone."""
    begin, words = m.pool_attrs[schema.POOL_ATTRS * pool + i].begin, m.pools[pool].words
    for row in range(schema.PIVOTS + 2):
        at = begin + row * words + word
        if first <= row <= last:
            m.bits[at] |= mask
        else:
            m.bits[at] &= ~mask
