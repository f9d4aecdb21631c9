"""Kernels that read encoded filters, and assign many filters at once.

`read_filters` compiles the encodings of `model.codec.to_msgpack` without an object per filter, as
long as each constraint is one interval outside text, or one text, of a known attribute. It decides
nothing else: every other encoding, valid or not, is left to the codec.

`choose_values` and `assign_chosen` assign new filters to their cheapest values, as
`update.hang_at_value` does one by one. All constants are counted before the first choice, and
buckets get rooms of the right size.
"""

from contrada.matching.kernels import schema, scratch, update
from contrada.matching.kernels.bucket_lookup import note_ranges, without_room
from contrada.matching.kernels.evaluate import put_operand
from contrada.matching.kernels.memory import bytes_at, double_bits, entry, kernel
from contrada.matching.kernels.schema import Bytes, Ints, Memory, RowNumbers
from contrada.matching.kernels.text_store import count_uses, put_text
from contrada.model.domains.values import TIME_MAX_US, TIME_MIN_US

UNPLAIN = -1
"""The answer for an encoding that the codec must read."""
NEED_ROOM = -2
"""The answer if an array has no room for the next filter."""

HEAD: Bytes = b"\x93\x01\xa6filter"
CONSTRAINTS_MAX = 15
"""Constraints of a filter that is read here: those of a short map."""
WORDS_MAX = 1 + 5 * CONSTRAINTS_MAX
BYTES_MAX = 4_096
"""Bytes of a filter that is read here."""
INFINITY_KEY = 0x7FF0000000000000
EXACT_BITS = 0x4340000000000000
"""The bits of 2^53."""
CHOSEN = scratch.INT32_MIN
"""The entry of a filter whose bucket is chosen, and has no entry for it yet."""

FILTERS, PROGRAM, TEXTS, TEXT_COUNT, EQUAL, LINKS = 0, 1, 2, 3, 4, 5
UNUSED_BYTES, ATTR = 6, 7
"""The numbers in `used`: used rows; bytes of texts that are unused more; and an attribute that
needs room for the ends of ranges, or -1."""


# --- one filter -----------------------------------------------------------------------------------


@kernel
def cut_at(data: Bytes, pos: int) -> tuple[int, int, int, int]:
    """Returns a cut: (domain, kind of its comparable, the comparable or its length, next position).

    The kind is as in `header`; -1 at the beginning of a domain. The position is UNPLAIN for another
    form.
    """
    size = len(data)
    if pos + 2 > size or data[pos + 1] > scratch.TEXT:
        return 0, -1, 0, UNPLAIN
    lead, domain = data[pos] + 0, data[pos + 1] + 0
    if lead == 0x91:
        return domain, -1, 0, pos + 2
    if lead != 0x92 or pos + 2 == size:
        return 0, -1, 0, UNPLAIN
    lead = data[pos + 2] + 0
    kind, number, after = scratch.header(data, pos + 2)
    if kind == 4:
        if lead < 0xC4 or lead > 0xC6 or number > size - after:  # texts are bytes
            return 0, -1, 0, UNPLAIN
        after += number
    return domain, kind, number, after


@kernel
def key_of_cut(domain: int, kind: int, number: int) -> tuple[int, bool]:
    """Returns the key after a cut with a comparable, and whether it is a valid one, and exact."""
    if domain == scratch.TIME:
        return number, kind == 2 and number > TIME_MIN_US and number <= TIME_MAX_US
    if domain == scratch.BOOL:
        return 1, kind == 1 and number == 1
    if domain != scratch.NUMBER:
        return 0, False
    if kind == 2:
        if number <= -scratch.EXACT_MAX or number >= scratch.EXACT_MAX:
            return 0, False
        return scratch.ordered(double_bits(number)), True
    return scratch.ordered(number), kind == 3 and number & 0x7FFFFFFFFFFFFFFF < EXACT_BITS


@kernel
def first_key(domain: int) -> int:
    """Returns the lowest key of a domain outside text."""
    if domain == scratch.NUMBER:
        return -INFINITY_KEY
    return TIME_MIN_US if domain == scratch.TIME else 0


@kernel
def last_key(domain: int) -> int:
    """Returns the highest key of a domain outside text."""
    if domain == scratch.NUMBER:
        return INFINITY_KEY
    if domain == scratch.TIME:
        return TIME_MAX_US
    return 1 if domain == scratch.BOOL else 0


@kernel
def read_text(
    data: Bytes, start: int, length: int, end: int, attr: int, at: int, used: Ints, m: Memory
) -> int:
    """Writes the constraint of a text, if the end of its interval is the next text; the next word.

    `end` is the position of that text, which has one byte more.
    """
    for i in range(length):
        if data[start + i] != data[end + i]:
            return UNPLAIN
    if data[end + length] != 0:
        return UNPLAIN
    ref = put_text(data, start, length, used[TEXTS], m)
    if ref >> schema.TEXT_SHIFT == used[TEXTS] + schema.USES_BYTES:
        used[TEXTS] += schema.USES_BYTES + length
        used[TEXT_COUNT] += 1
    m.program[at] = (
        attr | (schema.OP_TEXT << schema.OP_SHIFT) | (scratch.TEXT << schema.DOMAIN_SHIFT)
    )
    put_operand(m.program, at + 1, ref)
    return at + 3


@kernel
def read_interval(
    data: Bytes, pos: int, attr: int, at: int, used: Ints, m: Memory
) -> tuple[int, int]:
    """Writes the constraint of a set of one interval; (next position or UNPLAIN, next word)."""
    if pos + 2 > len(data) or data[pos] != 0x92 or data[pos + 1] != 0x92:
        return UNPLAIN, at
    domain, kind, number, middle = cut_at(data, pos + 2)
    if middle < 0:
        return UNPLAIN, at
    end_domain, end_kind, end, after = cut_at(data, middle)
    if after < 0 or after >= len(data) or data[after] != 0xC0:
        return UNPLAIN, at
    if domain == scratch.TEXT:
        is_text = kind == 4 and end_kind == 4 and end_domain == scratch.TEXT and number > 0
        if not is_text or end != number + 1:
            return UNPLAIN, at
        at = read_text(data, middle - number, number, after - end, attr, at, used, m)
        return (after + 1 if at > 0 else UNPLAIN), at
    low, high = first_key(domain), last_key(domain)
    is_valid = domain > 0 and (end_kind < 0) == (end_domain == domain + 1)
    if kind >= 0:
        low, is_lowest = key_of_cut(domain, kind, number)
        is_valid = is_valid and is_lowest
    if end_kind >= 0:
        high, is_highest = key_of_cut(domain, end_kind, end)
        is_valid = is_valid and is_highest and end_domain == domain
        high -= 1
    if not is_valid or low > high:
        return UNPLAIN, at
    put_operand(m.program, at + 1, low)
    if low < high:
        put_operand(m.program, at + 3, high)
    op = schema.OP_POINT if low == high else schema.OP_RANGE
    m.program[at] = attr | (op << schema.OP_SHIFT) | (domain << schema.DOMAIN_SHIFT)
    return after + 1, at + (3 if low == high else 5)


@kernel
def is_before(data: Bytes, first: int, size: int, other: int, length: int) -> bool:
    """Whether one name is less than another: names are in order, each once."""
    for i in range(min(size, length)):
        if data[first + i] != data[other + i]:
            return data[first + i] < data[other + i]
    return size < length


@kernel
def read_filter(data: Bytes, used: Ints, m: Memory) -> int:
    """Writes the program of an encoded filter behind the used words; their number, or UNPLAIN."""
    size, pos = len(data), len(HEAD) + 1
    if size < pos or size > BYTES_MAX or data[pos - 1] & 0xF0 != 0x80:
        return UNPLAIN
    for i in range(len(HEAD)):
        if data[i] != HEAD[i]:
            return UNPLAIN
    at, before, before_size = used[PROGRAM] + 1, 0, 0
    for _ in range(data[pos - 1] & 0xF):
        if pos + 2 > size:
            return UNPLAIN
        length = data[pos] - 0xA0
        pos += 1
        if length == 0xD9 - 0xA0:
            length = data[pos] + 0
            pos += 1
        elif length > 31:
            return UNPLAIN
        # The system's names have sets of their own.
        if length < 1 or length >= size - pos or data[pos] == 0x40:
            return UNPLAIN
        if not is_before(data, before, before_size, pos, length):
            return UNPLAIN
        attr = scratch.find_attr(
            m, data, pos, length, scratch.text_hash(m.seed[0], data, pos, length)
        )
        if attr < 0:
            return UNPLAIN
        before, before_size = pos, length
        pos, at = read_interval(data, pos + length, attr, at, used, m)
        if pos < 0:
            return UNPLAIN
    return at - used[PROGRAM] - 1 if pos == size else UNPLAIN


# --- many filters ---------------------------------------------------------------------------------


@kernel
def has_room(used: Ints, m: Memory) -> bool:
    """Whether every array has room for one more filter."""
    return (
        used[FILTERS] < len(m.filters)
        and used[PROGRAM] + WORDS_MAX <= len(m.program)
        and used[TEXTS] + BYTES_MAX + schema.USES_BYTES * CONSTRAINTS_MAX <= len(m.texts)
        and 4 * (used[TEXT_COUNT] + CONSTRAINTS_MAX) <= 3 * len(m.text_slots)
        and 4 * (used[EQUAL] + 1) <= 3 * len(m.equal)
        and used[LINKS] + 2 <= len(m.links)
    )


@kernel
def put_link(value: int, head: int, used: Ints, m: Memory) -> int:
    """Puts a number before a chain, which may have no rows yet; returns its row."""
    row, after = used[LINKS], -2 - head if head < -1 else -1
    used[LINKS] += 1
    its = m.links[row]
    its.value, its.next, its.before = value, after, -1
    if after >= 0:
        m.links[after].before = row
    return row


@kernel
def link_key(number: int, slot: int, used: Ints, m: Memory) -> None:
    """Gives a filter one more key's slot, as its first."""
    head = m.filters[number].key + 0
    if head >= 0:  # the slot that was alone gets a row, too
        row = put_link(head, -1, used, m)
        m.owned_links[head] = row
        head = -2 - row
    if head != -1:
        row = put_link(slot, head, used, m)
        m.owned_links[slot] = row
        m.filters[number].key = -2 - row
        update.show_key(number, m)
    else:
        m.filters[number].key = slot
    m.owned[slot] = number + 1


@entry
def read_filters(
    data: int, starts: Ints, slots: Ints, row: int, used: Ints, m: Memory
) -> tuple[int, int]:
    """Adds the filters that are encoded at `starts`, from one on; (status, the next one).

    They are not assigned yet. `slots` are those of their keys, which have no filters.
    """
    while row < len(slots):
        used[ATTR] = -1
        if not has_room(used, m):
            return NEED_ROOM, row
        start, begin = starts[row], used[PROGRAM]
        count = read_filter(bytes_at(data + start, starts[row + 1] - start), used, m)
        if count < 0:
            return UNPLAIN, row
        m.program[begin] = count
        used[ATTR] = without_room(begin, m)
        if used[ATTR] >= 0:
            return NEED_ROOM, row
        fresh = used[FILTERS]
        number = update.enter(begin, count, fresh, False, m)
        key = m.filters[number].key + 0
        if key >= 0 and m.owned[key] != number + 1:
            return UNPLAIN, row  # the filter of a key with several
        if number == fresh:
            used[FILTERS] += 1
            used[PROGRAM] += count + 1
            used[EQUAL] += 1
            used[UNUSED_BYTES] += count_uses(number, 1, m)
            note_ranges(number, m)
        link_key(number, slots[row], used, m)
        row += 1
    return schema.OK, row


@kernel
def is_unassigned(number: int, m: Memory) -> bool:
    """Whether a filter has no place, and was not removed."""
    its = m.filters[number]
    return its.place == -1 and its.at == 0 and m.program[its.begin] & schema.GONE == 0


@entry
def next_unassigned(number: int, end: int, m: Memory) -> int:
    """Returns the first filter without a place from a number on; the end if all have places."""
    while number < end and not is_unassigned(number, m):
        number += 1
    return number


@entry
def count_constants(first: int, end: int, m: Memory) -> None:
    """Counts the constants of some filters, for the first choice among their values."""
    for number in range(first, end):
        update.cheapest_value(number, m, m)


@entry
def choose_values(number: int, end: int, used: int, more: RowNumbers, m: Memory) -> tuple[int, int]:
    """Chooses the bucket of each unassigned filter, and counts in `more` the filters of each.

    (next filter, used buckets): it ends early without room for one more bucket. A filter without a
    settled value is left out, as in `update.hang_at_value`.
    """
    while number < end:
        if used >= len(m.buckets) or used >= len(more) or 4 * used + 4 > 3 * len(m.slots):
            break
        if is_unassigned(number, m):
            word, h, _, settled = update.cheapest_value(number, m, m)
            bucket = update.value_bucket(number, word, h, used, m, m) if settled else -1
            if bucket >= 0:
                used += bucket == used
                more[bucket] += 1
                m.filters[number].place, m.filters[number].at = bucket, CHOSEN
        number += 1
    return number, used


@entry
def entries_needed(more: RowNumbers, buckets: int, m: Memory) -> int:
    """Returns the most entries of new rooms, for so many more filters in each bucket."""
    needed = 0
    for bucket in range(buckets):
        length = m.buckets[bucket].length + more[bucket]
        if length > m.buckets[bucket].capacity:
            needed += 2 * length if m.buckets[bucket].length > 0 else length
    return needed


@entry
def assign_chosen(
    first: int, end: int, more: RowNumbers, buckets: int, used: int, m: Memory
) -> int:
    """Puts filters into their chosen buckets; returns the used entries. See `entries_needed`."""
    for bucket in range(buckets):
        length = m.buckets[bucket].length + more[bucket]
        if length > m.buckets[bucket].capacity:
            if m.buckets[bucket].length > 0:  # It will grow again.
                used = update.make_room(bucket, length, m, used)
            else:
                update.move_bucket(bucket, used, length, m)
                used += length
    for number in range(first, end):
        its = m.filters[number]
        if its.at == CHOSEN:
            bucket = its.place + 0
            its.at = m.buckets[bucket].length
            update.hang(bucket, number, m.buckets[bucket].of_attr, True, True, used, m)
    return used
