"""Kernels that load a notification into the scratch.

The input is msgpack, a map of names to values (`load`), or a row of columns (`load_row`). The
values of attributes that filters name are stored in the scratch as integers and text; the rest is
skipped. Hashes are made here, too.
"""

from contrada.matching.kernels import schema
from contrada.matching.kernels.memory import bytes_at, double_bits, entry, kernel, number_at
from contrada.matching.kernels.schema import Bytes, ColumnRow, ColumnRows, Ints, Memory
from contrada.model.domains.values import TIME_MAX_US, TIME_MIN_US
from contrada.model.languages import casefold

FOLD_FROM: Ints = sorted(casefold.TABLE)
FOLD_TO: Ints = [casefold.TABLE[code] for code in FOLD_FROM]

MASK = (1 << schema.HASH_BITS) - 1
FIXED_SEED = (16777619 << schema.HASH_BITS) | 2166136261
"""For values that no client chooses."""
NULL, BOOL, NAN, NUMBER, TIME, TEXT = 1, 2, 3, 4, 5, 6
KIND_POINT, KIND_TEXT, KIND_PREFIX, KIND_SUFFIX, KIND_GRAM = 1, 2, 3, 5, 7
KIND_TEXT_NOCASE = 9
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
HEADER_BYTES: Bytes = bytes.fromhex(
    "010101010203050f0101010902030509020305090101060a0102030503050305"
)
"""Of the headers from 0xC0 to 0xDF; of a time, if it can be one."""
EXACT_MAX = 2**53
BOOLEAN, INT8, INT16, INT32, INT64 = (
    schema.KINDS[f] for f in ("bool", "int8", "int16", "int32", "int64")
)
UINT16, UINT32, FLOAT, DOUBLE = (schema.KINDS[f] for f in ("uint16", "uint32", "float", "double"))
TIMESTAMP, STRING = schema.KINDS["time"], schema.KINDS["string"]


@entry
def mixed(seed: int, h: int, x: int) -> int:
    """Returns a hash and 32 more bits.

    The product's upper half is mixed into the lower one. Without that, equal hashes could be made
    that hardly depend on the seed: the lowest bits of a product depend on the lowest bits alone.
    """
    product = (h ^ (x & MASK)) * ((seed >> schema.HASH_BITS) | 1)
    return (product ^ (product >> schema.HASH_BITS)) & MASK


@kernel
def finished(h: int) -> int:
    """Returns a hash of 31 bits whose low bits depend on all of them."""
    h = h ^ (h >> 15)
    h = (h * 0x2C1B3C7) & MASK
    return (h ^ (h >> 13)) & INT32_MAX


@entry
def place_hash(seed: int, attr: int, kind: int, h: int) -> int:
    """Returns the hash of a place: an attribute, a kind of place, the hash of a value."""
    return finished(mixed(seed, mixed(seed, mixed(seed, seed & MASK, attr), kind), h))


@entry
def point_hash(seed: int, attr: int, domain: int, key: int) -> int:
    """Returns the hash of the place of a value outside text."""
    h = mixed(seed, mixed(seed, mixed(seed, seed & MASK, domain), key), key >> schema.HASH_BITS)
    return place_hash(seed, attr, KIND_POINT, h)


@entry
def gram_bit(attr: int, gram: int, bits: int) -> int:
    """The bit of some bytes of a substring among `bits`; quicker than the hash of a place."""
    h = ((gram ^ (attr * 0x85EBCA6B)) * 0x9E3779B1) & MASK
    return (h ^ (h >> 15)) & (bits - 1)


@kernel
def text_hash(seed: int, buffer: Bytes, start: int, length: int) -> int:
    """Returns the hash of a text.

    Four bytes at a time, since each multiplication waits for the one before it. Of the length, too:
    else zeros before the last few bytes would make no difference.
    """
    h = mixed(seed, seed & MASK, length)
    whole = start + (length & ~3)
    for i in range(start, whole, 4):
        word = (buffer[i] << 24) | (buffer[i + 1] << 16) | (buffer[i + 2] << 8) | buffer[i + 3]
        h = mixed(seed, h, word)
    if length & 3:
        word = 0
        for i in range(whole, start + length):
            word = (word << 8) | buffer[i]
        h = mixed(seed, h, word)
    return h


@entry
def hash_of_text(seed: int, text: bytes) -> int:
    """Returns the hash of a whole text."""
    return text_hash(seed, text, 0, len(text))


@entry
def hash_of_part(seed: int, part: bytes) -> int:
    """Returns the hash of the beginning of a text, or of its end read backwards.

    Byte by byte, as `ask_by_text` computes it for all parts that filters may name.
    """
    h = seed & MASK
    for i in range(len(part)):
        h = mixed(seed, h, part[i])
    return h


@kernel
def ordered(bits: int) -> int:
    """Returns a double's bits as an integer in the order of doubles; both zeros are 0."""
    if bits >= 0:
        return bits
    return -(bits & 0x7FFFFFFFFFFFFFFF)


@kernel
def find_attr(m: Memory, buffer: Bytes, start: int, length: int, h: int) -> int:
    """Returns the row of an attribute by its name, or -1."""
    mask = len(m.names) - 1
    slot = finished(h) & mask
    while True:
        row = m.names[slot] - 1
        if row < 0:
            return -1
        ref = m.attrs[row].name
        if m.attrs[row].hash == h and ref & schema.LENGTH_MASK == length:
            at = ref >> schema.TEXT_SHIFT
            for i in range(length):
                if m.texts[at + i] != buffer[start + i]:
                    break
            else:
                return row
        slot = (slot + 1) & mask


@kernel
def big_endian(msg: Bytes, pos: int, size: int) -> int:
    """Returns an unsigned integer; eight bytes give a signed one."""
    value = 0
    for i in range(size):
        if i == 0 and size == 8 and msg[pos] >= 128:
            value = msg[pos] - 256
        else:
            value = value * 256 + msg[pos + i]
    return value


@kernel
def header(msg: Bytes, pos: int) -> tuple[int, int, int]:
    """Returns the header at a position of a msgpack text: (kind, number or length, next position).

    Kinds: 0 nil, 1 bool, 2 integer, 3 double, 4 text, 5 array, 6 map, 7 time, 8 unsigned too large,
    9 anything else, also a truncated header. A time is rounded to microseconds as in the decoder.
    """
    b = msg[pos]
    if b <= 0x7F:
        return 2, b + 0, pos + 1
    if b >= 0xE0:
        return 2, b - 256, pos + 1
    if b <= 0x8F:
        return 6, b - 0x80, pos + 1
    if b <= 0x9F:
        return 5, b - 0x90, pos + 1
    if b <= 0xBF:
        return 4, b - 0xA0, pos + 1
    if b == 0xC0:
        return 0, 0, pos + 1
    if b == 0xC2 or b == 0xC3:
        return 1, b - 0xC2, pos + 1
    if pos + HEADER_BYTES[b - 0xC0] > len(msg):
        return 9, 0, pos
    if b == 0xCB:
        return 3, big_endian(msg, pos + 1, 8), pos + 9
    if 0xCC <= b <= 0xCF:
        size = 1 << (b - 0xCC)
        value = big_endian(msg, pos + 1, size)
        return (8 if value < 0 else 2), value, pos + 1 + size
    if 0xD0 <= b <= 0xD3:
        size = 1 << (b - 0xD0)
        value = big_endian(msg, pos + 1, size)
        if size < 8 and value >= (1 << (8 * size - 1)):
            value -= 1 << (8 * size)
        return 2, value, pos + 1 + size
    if 0xD9 <= b <= 0xDB or 0xC4 <= b <= 0xC6:
        size = 1 << ((b - 0xD9) if b >= 0xD9 else (b - 0xC4))
        return 4, big_endian(msg, pos + 1, size), pos + 1 + size
    if b == 0xDC or b == 0xDD:
        size = 2 if b == 0xDC else 4
        return 5, big_endian(msg, pos + 1, size), pos + 1 + size
    if b == 0xDE or b == 0xDF:
        size = 2 if b == 0xDE else 4
        return 6, big_endian(msg, pos + 1, size), pos + 1 + size
    if b == 0xD6 and msg[pos + 1] == 0xFF:
        return 7, big_endian(msg, pos + 2, 4) * 1000000, pos + 6
    if b == 0xD7 and msg[pos + 1] == 0xFF:
        high = big_endian(msg, pos + 2, 4)
        seconds = (high & 3) * 4294967296 + big_endian(msg, pos + 6, 4)
        return 7, seconds * 1000000 + ((high >> 2) + 500) // 1000, pos + 10
    if b == 0xC7 and msg[pos + 1] == 12 and msg[pos + 2] == 0xFF:
        nanoseconds = big_endian(msg, pos + 3, 4)
        return 7, big_endian(msg, pos + 7, 8) * 1000000 + (nanoseconds + 500) // 1000, pos + 15
    return 9, 0, pos


@kernel
def skipped(msg: Bytes, pos: int) -> int:
    """Returns the position after one value of any kind; -1 if it cannot be read."""
    pending = 1
    while pending > 0:
        if pos >= len(msg):
            return schema.UNREADABLE
        kind, number, pos = header(msg, pos)
        pending -= 1
        if kind == 4:
            pos += number
        elif kind == 5:
            pending += number
        elif kind == 6:
            pending += 2 * number
        elif kind == 9:
            return schema.UNREADABLE
    return pos


@entry
def empty_hulls(first: int, end: int, m: Memory) -> None:
    """Empties the hulls of the attributes from one row to before another."""
    for i in range(2 * first, 2 * end):
        m.hulls[i].lowest, m.hulls[i].highest = INT32_MAX, INT32_MIN


@kernel
def begin(m: Memory) -> None:
    """Prepares the scratch for another notification."""
    counters = m.counters[0]
    for i in range(counters.present):
        empty_hulls(m.present[i], m.present[i] + 1, m)
    counters.epoch += 1
    counters.values = 0
    counters.present = 0
    counters.text = 0
    counters.inexact = 0


@kernel
def load(msg: Bytes, m: Memory) -> int:
    """Loads a notification's values into the scratch. Answers OK, NEED_… or UNREADABLE.

    Truncated bytes, or those that are no msgpack, are never read beyond their end.
    """
    if m.counters[0].epoch >= schema.EPOCHS_MAX:
        return schema.NEED_STAMPS
    begin(m)
    end = len(msg)
    if end == 0:
        return schema.UNREADABLE
    kind, pairs, pos = header(msg, 0)
    if kind != 6:
        return schema.UNREADABLE
    for _ in range(pairs):
        if pos >= end:
            return schema.UNREADABLE
        lead = msg[pos]
        kind, length = 4, lead - 0xA0
        pos += 1
        if lead < 0xA0 or lead > 0xBF:  # seldom
            kind, length, pos = header(msg, pos - 1)
        if kind != 4 or (lead >= 0xC4 and lead <= 0xC6) or length > end - pos:
            return schema.UNREADABLE  # the name is no text
        attr = find_attr(m, msg, pos, length, text_hash(m.seed[0], msg, pos, length))
        pos += length
        if attr < 0:
            pos = skipped(msg, pos)
        else:
            pos = load_values(msg, pos, attr, m)
        if pos < 0:
            return pos
    return schema.OK if pos <= end else schema.UNREADABLE


@kernel
def load_values(msg: Bytes, pos: int, attr: int, m: Memory) -> int:
    """Loads one attribute's value or values; the position after them, or the status."""
    if pos >= len(msg):
        return schema.UNREADABLE
    kind, number, after = header(msg, pos)
    count = 1
    if kind == 5:
        count = number
        pos = after
    if m.state[attr].epoch == m.counters[0].epoch:
        return schema.UNREADABLE  # two names that are written alike
    begin_attr(attr, m)
    for _ in range(count):
        if pos >= len(msg):
            return schema.UNREADABLE
        kind, number, after = header(msg, pos)
        status = load_value(msg, kind, number, after, attr, m)
        if status != schema.OK:
            return status
        pos = after + number if kind == 4 else after
    return pos


@kernel
def begin_attr(attr: int, m: Memory) -> None:
    """Makes an attribute's state the current one, without values."""
    state, counters = m.state, m.counters[0]
    state[attr].epoch = counters.epoch
    state[attr].first = counters.values
    state[attr].count = 0
    state[attr].only_domain = 0


@kernel
def load_value(msg: Bytes, kind: int, number: int, start: int, attr: int, m: Memory) -> int:
    """Adds one value to an attribute."""
    if kind == 4:
        if number > len(msg) - start:
            return schema.UNREADABLE
        return add_text(msg, start, number, attr, m)
    if kind == 2:
        return add_integer(number, attr, m)
    if kind == 3:
        if number & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000:
            return add_key(NAN, 0, 0, attr, m)
        low = ordered(number)
        return add_key(NUMBER, low, low, attr, m)
    if kind == 0:
        return add_key(NULL, 0, 0, attr, m)
    if kind == 1:
        return add_key(BOOL, number, number, attr, m)
    if kind == 7:
        return add_key(TIME, number, number, attr, m)
    return schema.UNREADABLE


@kernel
def add_integer(number: int, attr: int, m: Memory) -> int:
    """Adds an integer. One that is no double is between two of them, to be verified."""
    nearest = ordered(double_bits(number))
    if -EXACT_MAX <= number <= EXACT_MAX:
        return add_key(NUMBER, nearest, nearest, attr, m)
    m.counters[0].inexact = 1
    return add_key(NUMBER, nearest - 1, nearest + 1, attr, m)


@kernel
def add_key(domain: int, low: int, high: int, attr: int, m: Memory) -> int:
    """Adds a value outside text."""
    counters, values, hull = m.counters[0], m.values, m.hulls[2 * attr]
    row = counters.values
    if row >= len(values):
        return schema.NEED_VALUES
    counters.values = row + 1
    values[row].attr = attr
    values[row].domain = domain
    values[row].low = low
    values[row].high = high
    counted(attr, m)
    hull.lowest = min(hull.lowest, low >> 32)
    hull.highest = max(hull.highest, high >> 32)
    return schema.OK


@kernel
def counted(attr: int, m: Memory) -> None:
    """Counts one more value of an attribute; the first makes it present."""
    state, counters = m.state, m.counters[0]
    if state[attr].count == 0:
        m.present[counters.present] = attr
        counters.present += 1
        state[attr].only_domain = m.values[counters.values - 1].domain
    else:
        state[attr].only_domain = 0
    state[attr].count += 1


@kernel
def add_text(msg: Bytes, start: int, length: int, attr: int, m: Memory) -> int:
    """Adds a text, also folded where case does not matter; V_LOW and V_HIGH hold its hash."""
    counters, values, text, hull = m.counters[0], m.values, m.text, m.hulls[2 * attr + 1]
    row = counters.values
    if row >= len(values):
        return schema.NEED_VALUES
    used = counters.text
    fold = m.attrs[attr].nocase != 0
    # Folding makes two bytes three at most, and single bytes stay single.
    if used + (4 * length + 8 if fold else length) > len(text):
        return schema.NEED_TEXT
    for i in range(length):
        text[used + i] = msg[start + i]
    h = text_hash(m.seed[0], text, used, length)
    values[row].attr = attr
    values[row].domain = TEXT
    values[row].low = h
    values[row].high = h
    values[row].start = used
    values[row].length = length
    counters.text = used + length
    if fold:
        folded = folded_text(text, used, length, used + length)
        values[row].folded = used + length
        values[row].folded_length = folded
        counters.text += folded
    counters.values = row + 1
    # A guard tests one hash: several texts have no interval of hashes, so all may pass.
    is_first = hull.highest == INT32_MIN
    hull.lowest = finished(h) if is_first else INT32_MIN
    hull.highest = finished(h) if is_first else INT32_MAX
    counted(attr, m)
    return schema.OK


@kernel
def utf8_size(text: Bytes, at: int, end: int) -> int:
    """Returns the number of bytes of the character at a position; 0 if they are not UTF-8."""
    b = text[at]
    if 0xC2 <= b <= 0xDF:
        size = 2
    elif 0xE0 <= b <= 0xEF:
        size = 3
    elif 0xF0 <= b <= 0xF4:
        size = 4
    else:
        return 0
    if at + size > end:
        return 0
    for i in range(1, size):
        if text[at + i] & 0xC0 != 0x80:
            return 0
    c = text[at + 1]
    if (b == 0xE0 and c < 0xA0) or (b == 0xED and c > 0x9F):
        return 0
    if (b == 0xF0 and c < 0x90) or (b == 0xF4 and c > 0x8F):
        return 0
    return size


@kernel
def folded_code(code: int) -> int:
    """Returns the folded code point."""
    low, high = 0, len(FOLD_FROM)
    while low < high:
        middle = (low + high) >> 1
        if FOLD_FROM[middle] < code:
            low = middle + 1
        else:
            high = middle
    if low < len(FOLD_FROM) and FOLD_FROM[low] == code:
        return FOLD_TO[low] + 0
    return code


@kernel
def folded_text(text: Bytes, start: int, length: int, to: int) -> int:
    """Writes a text folded, as `model.languages.casefold.fold` does; the number of bytes."""
    high = 0
    for i in range(length):
        b = text[start + i]
        high |= b
        text[to + i] = b + (((b >= 65) & (b <= 90)) << 5)
    if high < 0x80:  # the usual case, without branches
        return length
    at, end, out = start, start + length, to
    while at < end:
        b = text[at]
        size = 0 if b < 0x80 else utf8_size(text, at, end)
        if size == 0:
            text[out] = b + 32 if 65 <= b <= 90 else b
            at += 1
            out += 1
            continue
        code = b & (0x7F >> size)
        for i in range(1, size):
            code = (code << 6) | (text[at + i] & 0x3F)
        out = put_character(text, out, folded_code(code))
        at += size
    return out - to


@kernel
def put_character(text: Bytes, out: int, code: int) -> int:
    """Writes a code point as UTF-8; the position after it."""
    if code < 0x80:
        text[out] = code
        return out + 1
    size = 2 if code < 0x800 else (3 if code < 0x10000 else 4)
    for i in range(size - 1, 0, -1):
        text[out + i] = 0x80 | (code & 0x3F)
        code >>= 6
    text[out] = ((0xF00 >> size) & 0xFF) | code
    return out + size


# --- columns ------------------------------------------------------------------------------------


@kernel
def bit_at(address: int, row: int) -> int:
    """Returns a bit of memory, by its number."""
    return (number_at(address, row >> 3, "B") >> (row & 7)) & 1


@kernel
def integer_at(kind: int, address: int, row: int) -> int:
    """Returns a value of a column that is an integer in memory."""
    if kind == INT64 or kind == TIMESTAMP:
        return number_at(address, row, "q")
    if kind == INT32:
        return number_at(address, row, "i")
    if kind == INT16:
        return number_at(address, row, "h")
    if kind == INT8:
        return number_at(address, row, "b")
    if kind == UINT32:
        return number_at(address, row, "I")
    if kind == UINT16:
        return number_at(address, row, "H")
    return number_at(address, row, "B")


@kernel
def load_cell(column: ColumnRow, row: int, m: Memory) -> int:
    """Adds a value of a column, as `load_value` does."""
    kind, attr, data = column.kind, column.attr, column.data
    if kind >= STRING:
        if kind == STRING:
            start, end = number_at(data, row, "i"), number_at(data, row + 1, "i")
        else:
            start, end = number_at(data, row, "q"), number_at(data, row + 1, "q")
        return add_text(bytes_at(column.text, end), start, end - start, attr, m)
    if kind == BOOLEAN:
        bit = bit_at(data, row)
        return add_key(BOOL, bit, bit, attr, m)
    if kind == FLOAT or kind == DOUBLE:
        if kind == FLOAT:
            number = number_at(data, row, "f")
        else:
            number = number_at(data, row, "d")
        if number != number:
            return add_key(NAN, 0, 0, attr, m)
        key = ordered(double_bits(number))
        return add_key(NUMBER, key, key, attr, m)
    integer = integer_at(kind, data, row)
    if kind == TIMESTAMP:
        if integer < TIME_MIN_US or integer > TIME_MAX_US:
            return schema.UNREADABLE
        return add_key(TIME, integer, integer, attr, m)
    return add_integer(integer, attr, m)


@kernel
def list_cells(columns: ColumnRows, row: int, cells: Ints) -> int:
    """Lists the columns in which a row is not NULL; their number. Without branches, as most are."""
    count = 0
    for i in range(len(columns)):
        cells[count] = i  # and written over by the next one, if this is NULL
        valid = columns[i].valid
        count += 1 if valid == 0 else bit_at(valid, columns[i].offset + row)
    return count


@kernel
def load_row(columns: ColumnRows, row: int, cells: Ints, m: Memory) -> int:
    """Loads a row of columns into the scratch, as `load` does with a notification."""
    if m.counters[0].epoch >= schema.EPOCHS_MAX:
        return schema.NEED_STAMPS
    begin(m)
    for n in range(list_cells(columns, row, cells)):
        column = columns[cells[n]]
        begin_attr(column.attr, m)
        status = load_cell(column, column.offset + row, m)
        if status != schema.OK:
            return status
    return schema.OK
