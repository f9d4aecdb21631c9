"""Kernels that write columns as msgpack, and join byte strings.

Byte strings are in sequence in `data`; string i begins at `starts[i]` and ends before `starts[i +
1]`. Rows are written piece by piece, a name and a value: each kernel writes one piece of every row
at its position in `at`, and advances that. The bytes of a piece are counted beforehand, in `sizes`,
and so are the present pieces, in `pieces`.
"""

from contrada.matching.kernels.memory import array_entry, kernel
from contrada.matching.kernels.schema import Bytes, Ints

NOTHING, BOOL, INT, FLOAT, TIME, TEXT = range(6)
"""The kind of a row's value in a piece. A number is an int64: itself, the bits of a double, or
microseconds since 1970."""


@kernel
def int_size(number: int) -> int:
    """Returns bytes of an integer: the fewest that msgpack has for it."""
    if number >= 0:
        small = 1 if number < 0x80 else 2 if number < 0x100 else 3 if number < 0x10000 else 5
        return small if number < 0x100000000 else 9
    small = 1 if number >= -0x20 else 2 if number >= -0x80 else 3 if number >= -0x8000 else 5
    return small if number >= -0x80000000 else 9


@kernel
def put_big(out: Bytes, at: int, number: int, size: int) -> int:
    """Writes the low bytes of a number, the highest first; returns their end."""
    for place in range(size):
        out[at + place] = (number >> (8 * (size - 1 - place))) & 0xFF
    return at + size


@kernel
def put_headed(out: Bytes, at: int, first: int, number: int, size: int) -> int:
    """Writes a byte, and then the low bytes of a number; returns their end."""
    out[at] = first
    return put_big(out, at + 1, number, size)


@kernel
def put_int(out: Bytes, at: int, number: int) -> int:
    """Writes an integer; returns its end."""
    size = int_size(number)
    if size == 1:
        return put_big(out, at, number, 1)
    # 2, 3, 5 and 9 bytes are uint8 to uint64 from 0xcc on, int8 to int64 from 0xd0 on.
    first = 0xCC if number >= 0 else 0xD0
    step = 0 if size == 2 else 1 if size == 3 else 2 if size == 5 else 3
    return put_headed(out, at, first + step, number, size - 1)


@kernel
def time_size(time_us: int) -> int:
    """Returns bytes of a time: 32, 64 or 96 bits of it, and its header."""
    seconds = time_us // 1_000_000
    if seconds < 0 or seconds >> 34:
        return 15
    return 6 if seconds < 0x100000000 and seconds * 1_000_000 == time_us else 10


@kernel
def put_time(out: Bytes, at: int, time_us: int) -> int:
    """Writes a time; returns its end."""
    size, seconds = time_size(time_us), time_us // 1_000_000
    nanoseconds = (time_us - seconds * 1_000_000) * 1000
    if size == 6:
        return put_big(out, put_headed(out, at, 0xD6, 0xFF, 1), seconds, 4)
    if size == 10:
        at = put_headed(out, at, 0xD7, 0xFF, 1)
        at = put_big(out, at, (nanoseconds << 2) | (seconds >> 32), 4)
        return put_big(out, at, seconds, 4)
    at = put_big(out, put_headed(out, at, 0xC7, 0x0CFF, 2), nanoseconds, 4)
    return put_big(out, at, seconds, 8)


@kernel
def put_text(out: Bytes, at: int, data: Bytes, begin: int, end: int) -> int:
    """Copies bytes; returns their end."""
    for place in range(end - begin):
        out[at + place] = data[begin + place]
    return at + end - begin


@kernel
def head_size(length: int) -> int:
    """Returns bytes of the header of a text."""
    return 1 if length < 32 else 2 if length < 0x100 else 3 if length < 0x10000 else 5


@kernel
def hashed(data: Bytes, begin: int, end: int) -> int:
    """Returns a hash of 32 bits, the same in every process (FNV-1a, its high bits mixed in)."""
    value = 2166136261
    for at in range(begin, end):
        value = ((value ^ int(data[at])) * 16777619) & 0xFFFFFFFF
    return value ^ (value >> 15)


@kernel
def is_same(data: Bytes, begin: int, end: int, other: int, other_end: int) -> bool:
    """Whether two byte strings are the same."""
    if end - begin != other_end - other:
        return False
    for at in range(end - begin):
        if data[begin + at] != data[other + at]:
            return False
    return True


@array_entry
def count_numbers(kinds: Ints, values: Ints, name_bytes: int, sizes: Ints, pieces: Ints) -> None:
    """Counts the bytes of names and numbers."""
    for row in range(len(kinds)):
        kind = kinds[row]
        if kind != NOTHING:
            size = 1 if kind == BOOL else 9
            if kind == INT:
                size = int_size(values[row])
            if kind == TIME:
                size = time_size(values[row])
            sizes[row] += name_bytes + size
            pieces[row] += 1


@array_entry
def put_numbers(kinds: Ints, values: Ints, name: Bytes, at: Ints, out: Bytes) -> None:
    """Writes names and numbers."""
    for row in range(len(kinds)):
        kind, value = kinds[row], values[row]
        if kind == NOTHING:
            continue
        place = put_text(out, at[row], name, 0, len(name))
        if kind == INT:
            place = put_int(out, place, value)
        elif kind == FLOAT:
            place = put_headed(out, place, 0xCB, value, 8)
        elif kind == TIME:
            place = put_time(out, place, value)
        else:
            place = put_big(out, place, 0xC2 + value, 1)
        at[row] = place


@array_entry
def count_texts(kinds: Ints, starts: Ints, name_bytes: int, sizes: Ints, pieces: Ints) -> None:
    """Counts the bytes of names and texts."""
    for row in range(len(kinds)):
        if kinds[row] != NOTHING:
            length = starts[row + 1] - starts[row]
            sizes[row] += name_bytes + head_size(length) + length
            pieces[row] += 1


@array_entry
def put_texts(kinds: Ints, starts: Ints, data: Bytes, name: Bytes, at: Ints, out: Bytes) -> None:
    """Writes names and texts."""
    for row in range(len(kinds)):
        if kinds[row] != NOTHING:
            begin, end = starts[row], starts[row + 1]
            place = put_text(out, at[row], name, 0, len(name))
            size = head_size(end - begin)
            if size == 1:
                place = put_big(out, place, 0xA0 | (end - begin), 1)
            else:
                first = 0xD9 if size == 2 else 0xDA if size == 3 else 0xDB
                place = put_headed(out, place, first, end - begin, size - 1)
            at[row] = put_text(out, place, data, begin, end)


@array_entry
def put_heads(head: Bytes, pieces: Ints, at: Ints, out: Bytes) -> None:
    """Writes bytes that are the same in each row, and the head of a map of its pieces."""
    for row in range(len(at)):
        place = put_text(out, at[row], head, 0, len(head))
        if pieces[row] < 16:
            at[row] = put_big(out, place, 0x80 | pieces[row], 1)
        else:
            at[row] = put_headed(out, place, 0xDE, pieces[row], 2)


@array_entry
def put_same(same: Bytes, at: Ints, out: Bytes) -> None:
    """Writes bytes that are the same in each row."""
    for row in range(len(at)):
        at[row] = put_text(out, at[row], same, 0, len(same))


@array_entry
def gather(starts: Ints, data: Bytes, rows: Ints, at: Ints, out: Bytes) -> None:
    """Copies the byte strings of some rows; the i-th to `at[i]`."""
    for i in range(len(rows)):
        put_text(out, at[i], data, starts[rows[i]], starts[rows[i] + 1])


@array_entry
def parts_of(starts: Ints, data: Bytes, count: int, found: Ints) -> None:
    """The part, of `count`, of each byte string; the same in every process."""
    for row in range(len(found)):
        found[row] = (hashed(data, starts[row], starts[row + 1]) >> 8) % count


@array_entry
def codes(starts: Ints, data: Bytes, table: Ints, firsts: Ints, found: Ints) -> int:
    """Gives equal byte strings one number, counted from 0 in the order of their first rows.

    `table` is a hash table of -1, its length a power of two; `firsts` gets the row of each number.
    Returns the number of numbers.
    """
    mask, count = len(table) - 1, 0
    for row in range(len(found)):
        begin, end = starts[row], starts[row + 1]
        place = hashed(data, begin, end) & mask
        while table[place] >= 0:
            other = starts[firsts[table[place]]]
            if is_same(data, begin, end, other, starts[firsts[table[place]] + 1]):
                break
            place = (place + 1) & mask
        if table[place] < 0:
            table[place] = count
            firsts[count] = row
            count += 1
        found[row] = table[place]
    return count
