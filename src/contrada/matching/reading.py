"""Notifications into flat arrays: the first half of the kernels.

A notification comes as msgpack bytes, a map of names to values. `load` finds the attributes
that filters ask for, and brings their values into the scratch as integers and text; the rest is
skipped. Hashes are made here, too. See `kernels` for how these functions are written and run.
"""

from typing import Any

import numpy as np

from contrada.matching.jit import double_bits, kernel
from contrada.matching.tables import (
    COUNT,
    EPOCH,
    FIRST,
    HIGHEST,
    INEXACT,
    LOWEST,
    NAME,
    NEED_TEXT,
    NEED_VALUES,
    NOCASE,
    OK,
    ONLY_DOMAIN,
    PRESENT,
    TEXT_HIGHEST,
    TEXT_LOWEST,
    TEXT_SHIFT,
    TEXT_USED,
    UNREADABLE,
    V_ATTR,
    V_DOMAIN,
    V_FOLDED,
    V_FOLDED_LENGTH,
    V_HIGH,
    V_LENGTH,
    V_LOW,
    V_START,
    VALUES,
)
from contrada.model.languages import casefold

FOLD_FROM = np.array(sorted(casefold.TABLE), dtype=np.int64)
FOLD_TO = np.array([casefold.TABLE[code] for code in sorted(casefold.TABLE)], dtype=np.int64)

MASK = 0xFFFFFFFF
PRIME = 16777619
SEED = 2166136261
NULL, BOOL, NAN, NUMBER, TIME, TEXT = 1, 2, 3, 4, 5, 6
KIND_POINT, KIND_TEXT, KIND_PREFIX, KIND_SUFFIX, KIND_GRAM = 1, 2, 3, 5, 7
KIND_TEXT_NOCASE = 9
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
EXACT_MAX = 2**53


@kernel
def mixed(h: Any, x: Any) -> Any:
    """A hash and 32 more bits."""
    return ((h ^ (x & MASK)) * PRIME) & MASK


@kernel
def finished(h: Any) -> Any:
    """A hash of 31 bits whose low bits depend on all of them."""
    h = h ^ (h >> 15)
    h = (h * 0x2C1B3C7) & MASK
    return (h ^ (h >> 13)) & INT32_MAX


@kernel
def place_hash(attr: Any, kind: Any, h: Any) -> Any:
    """The hash of a place: an attribute, a kind of place, the hash of a value."""
    return finished(mixed(mixed(mixed(SEED, attr), kind), h))


@kernel
def point_hash(attr: Any, domain: Any, key: Any) -> Any:
    """The hash of the place of a value outside text."""
    return place_hash(attr, KIND_POINT, mixed(mixed(mixed(SEED, domain), key), key >> 32))


@kernel
def gram_bit(attr: Any, gram: Any, bits: Any) -> Any:
    """The bit of some bytes of a substring, of so many bits; quicker than the hash of a place."""
    h = ((gram ^ (attr * 0x85EBCA6B)) * 0x9E3779B1) & MASK
    return (h ^ (h >> 15)) & (bits - 1)


@kernel
def text_hash(buffer: Any, start: Any, length: Any) -> Any:
    """The hash of a text."""
    h = SEED
    for i in range(start, start + length):
        h = ((h ^ buffer[i]) * PRIME) & MASK
    return h


@kernel
def ordered(bits: Any) -> Any:
    """A double's bits as an integer in the order of doubles; both zeros are 0."""
    if bits >= 0:
        return bits
    return -(bits & 0x7FFFFFFFFFFFFFFF)


@kernel
def find_attr(store: Any, buffer: Any, start: Any, length: Any, h: Any) -> Any:
    """The row of an attribute by its name, or -1."""
    mask = len(store.names) - 1
    slot = finished(h) & mask
    while True:
        row = store.names[slot] - 1
        if row < 0:
            return -1
        ref = store.attrs[row, NAME]
        if ref & 0xFFFFFF == length:
            at = ref >> TEXT_SHIFT
            same = True
            for i in range(length):
                if store.texts[at + i] != buffer[start + i]:
                    same = False
                    break
            if same:
                return row
        slot = (slot + 1) & mask


@kernel
def big_endian(msg: Any, pos: Any, size: Any) -> Any:
    """An unsigned integer; eight bytes come out signed."""
    value = 0
    for i in range(size):
        if i == 0 and size == 8 and msg[pos] >= 128:
            value = msg[pos] - 256
        else:
            value = value * 256 + msg[pos + i]
    return value


@kernel
def header(msg: Any, pos: Any) -> Any:
    """What stands at a place of a msgpack text: (kind, number or length, next place).

    Kinds: 0 nil, 1 bool, 2 integer, 3 double, 4 text, 5 array, 6 map, 7 time, 8 unsigned too
    large, 9 anything else.
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
        return 7, seconds * 1000000 + (high >> 2) // 1000, pos + 10
    if b == 0xC7 and msg[pos + 1] == 12 and msg[pos + 2] == 0xFF:
        nanoseconds = big_endian(msg, pos + 3, 4)
        return 7, big_endian(msg, pos + 7, 8) * 1000000 + nanoseconds // 1000, pos + 15
    return 9, 0, pos


@kernel
def skipped(msg: Any, pos: Any) -> Any:
    """The place after one value, whatever it is; -1 where it cannot be read."""
    pending = 1
    while pending > 0:
        if pos >= len(msg):
            return UNREADABLE
        kind, number, pos = header(msg, pos)
        pending -= 1
        if kind == 4:
            pos += number
        elif kind == 5:
            pending += number
        elif kind == 6:
            pending += 2 * number
        elif kind == 9:
            return UNREADABLE
    return pos


@kernel
def begin(scratch: Any) -> Any:
    """Makes the scratch ready for another notification."""
    counters = scratch.counters
    counters[EPOCH] += 1
    counters[VALUES] = 0
    counters[PRESENT] = 0
    counters[TEXT_USED] = 0
    counters[INEXACT] = 0


@kernel
def load(msg: Any, store: Any, scratch: Any) -> Any:
    """Brings a notification's values into the scratch. Answers OK, NEED_… or UNREADABLE.

    Bytes that are cut off, or no msgpack, are never read beyond their end by more than a header.
    """
    begin(scratch)
    end = len(msg)
    if end == 0:
        return UNREADABLE
    kind, pairs, pos = header(msg, 0)
    if kind != 6:
        return UNREADABLE
    for _ in range(pairs):
        if pos >= end:
            return UNREADABLE
        lead = msg[pos]
        kind, length, pos = header(msg, pos)
        if kind != 4 or (lead >= 0xC4 and lead <= 0xC6) or length > end - pos:
            return UNREADABLE  # the name is no text
        attr = find_attr(store, msg, pos, length, text_hash(msg, pos, length))
        pos += length
        if attr < 0:
            pos = skipped(msg, pos)
        else:
            pos = load_values(msg, pos, attr, store, scratch)
        if pos < 0:
            return pos
    return OK if pos <= end else UNREADABLE


@kernel
def load_values(msg: Any, pos: Any, attr: Any, store: Any, scratch: Any) -> Any:
    """Loads one attribute's value or values; the place after them, or what is needed."""
    kind, number, after = header(msg, pos)
    count = 1
    if kind == 5:
        count = number
        pos = after
    if scratch.state[attr, 0] == scratch.counters[EPOCH]:
        return UNREADABLE  # two names that are written alike
    begin_attr(attr, scratch)
    for _ in range(count):
        if pos >= len(msg):
            return UNREADABLE
        kind, number, after = header(msg, pos)
        status = load_value(msg, kind, number, after, attr, store, scratch)
        if status != OK:
            return status
        pos = after + number if kind == 4 else after
    return pos


@kernel
def begin_attr(attr: Any, scratch: Any) -> Any:
    """Makes an attribute's state the current one, without values."""
    state, counters = scratch.state, scratch.counters
    state[attr, 0] = counters[EPOCH]
    state[attr, FIRST] = counters[VALUES]
    state[attr, COUNT] = 0
    state[attr, LOWEST] = INT32_MAX
    state[attr, HIGHEST] = INT32_MIN
    state[attr, TEXT_LOWEST] = INT32_MAX
    state[attr, TEXT_HIGHEST] = INT32_MIN
    state[attr, ONLY_DOMAIN] = 0


@kernel
def load_value(
    msg: Any, kind: Any, number: Any, start: Any, attr: Any, store: Any, scratch: Any
) -> Any:
    """Adds one value to an attribute."""
    if kind == 4:
        if number > len(msg) - start:
            return UNREADABLE
        return add_text(msg, start, number, attr, store, scratch)
    if kind == 2:
        low = ordered(double_bits(number))
        if -EXACT_MAX <= number <= EXACT_MAX:
            return add_key(NUMBER, low, low, attr, scratch)
        return add_large(number, low, attr, scratch)
    if kind == 3:
        if number & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000:
            return add_key(NAN, 0, 0, attr, scratch)
        low = ordered(number)
        return add_key(NUMBER, low, low, attr, scratch)
    if kind == 0:
        return add_key(NULL, 0, 0, attr, scratch)
    if kind == 1:
        return add_key(BOOL, number, number, attr, scratch)
    if kind == 7:
        return add_key(TIME, number, number, attr, scratch)
    return UNREADABLE


@kernel
def add_large(number: Any, nearest: Any, attr: Any, scratch: Any) -> Any:
    """An integer that a double may miss: between two neighbouring doubles, to be verified."""
    scratch.counters[INEXACT] = 1
    return add_key(NUMBER, nearest - 1, nearest + 1, attr, scratch)


@kernel
def add_key(domain: Any, low: Any, high: Any, attr: Any, scratch: Any) -> Any:
    """Adds a value outside text."""
    counters, values, state = scratch.counters, scratch.values, scratch.state
    row = counters[VALUES]
    if row >= len(values):
        return NEED_VALUES
    counters[VALUES] = row + 1
    values[row, V_ATTR] = attr
    values[row, V_DOMAIN] = domain
    values[row, V_LOW] = low
    values[row, V_HIGH] = high
    counted(attr, scratch)
    if low >> 32 < state[attr, LOWEST]:
        state[attr, LOWEST] = low >> 32
    if high >> 32 > state[attr, HIGHEST]:
        state[attr, HIGHEST] = high >> 32
    return OK


@kernel
def counted(attr: Any, scratch: Any) -> Any:
    """One more value of an attribute; the first makes it present."""
    state, counters = scratch.state, scratch.counters
    if state[attr, COUNT] == 0:
        scratch.present[counters[PRESENT]] = attr
        counters[PRESENT] += 1
        state[attr, ONLY_DOMAIN] = scratch.values[counters[VALUES] - 1, V_DOMAIN]
    else:
        state[attr, ONLY_DOMAIN] = 0
    state[attr, COUNT] += 1


@kernel
def add_text(msg: Any, start: Any, length: Any, attr: Any, store: Any, scratch: Any) -> Any:
    """Adds a text, with its folded form where the attribute is compared without case.

    For a text, V_LOW and V_HIGH hold its hash.
    """
    counters, values, state, text = scratch.counters, scratch.values, scratch.state, scratch.text
    row = counters[VALUES]
    if row >= len(values):
        return NEED_VALUES
    used = counters[TEXT_USED]
    fold = store.attrs[attr, NOCASE] != 0
    if used + (4 * length + 8 if fold else length) > len(text):
        return NEED_TEXT
    h = SEED
    for i in range(length):
        b = msg[start + i]
        text[used + i] = b
        h = ((h ^ b) * PRIME) & MASK
    values[row, V_ATTR] = attr
    values[row, V_DOMAIN] = TEXT
    values[row, V_LOW] = h
    values[row, V_HIGH] = h
    values[row, V_START] = used
    values[row, V_LENGTH] = length
    counters[TEXT_USED] = used + length
    if fold:
        folded = folded_text(text, used, length, used + length, store)
        values[row, V_FOLDED] = used + length
        values[row, V_FOLDED_LENGTH] = folded
        counters[TEXT_USED] += folded
    counters[VALUES] = row + 1
    is_first = state[attr, TEXT_HIGHEST] == INT32_MIN
    state[attr, TEXT_LOWEST] = finished(h) if is_first else INT32_MIN
    state[attr, TEXT_HIGHEST] = finished(h) if is_first else INT32_MAX
    counted(attr, scratch)
    return OK


@kernel
def utf8_size(text: Any, at: Any, end: Any) -> Any:
    """How many bytes the character at a place has; 0 where the bytes are not UTF-8."""
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
def folded_code(code: Any) -> Any:
    """The folded code point."""
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
def folded_text(text: Any, start: Any, length: Any, to: Any, store: Any) -> Any:
    """Writes a text folded, as `model.casefold.fold` does; the number of bytes."""
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
def put_character(text: Any, out: Any, code: Any) -> Any:
    """Writes a code point as UTF-8; the place after it."""
    if code < 0x80:
        text[out] = code
        return out + 1
    size = 2 if code < 0x800 else (3 if code < 0x10000 else 4)
    for i in range(size - 1, 0, -1):
        text[out + i] = 0x80 | (code & 0x3F)
        code >>= 6
    text[out] = ((0xF00 >> size) & 0xFF) | code
    return out + size
