"""Kernels that read lines of JSON: objects of scalars, one on each line.

A line is read by the rules of JSON, except for fallback rows: escapes, nested objects and arrays,
integers that may be beyond 64 bits, and decimals that may be beyond doubles. The kernels find the
positions of values; their meaning is decided elsewhere.

Each line ends with LF, which no text, number or blank contains: so nothing beyond it is read as a
part. Bytes are handled eight at once, so eight more must be readable behind the last line.

Most lines are alike. The last bytes before a value of a name (its *lead*: the comma or the brace,
the name, the colon and the blanks), and the name that followed, are kept. If the same bytes occur
there again they are read in the same way without a further check.
"""

from contrada.matching.kernels.memory import (
    are_same,
    array_entry,
    digits_at,
    double_bits,
    kernel,
    plain_bytes,
    put_bytes,
)
from contrada.matching.kernels.schema import Bytes, Doubles, Flags, Grid, Ints

QUOTE, COMMA, MINUS, POINT, ZERO, NINE, COLON = 0x22, 0x2C, 0x2D, 0x2E, 0x30, 0x39, 0x3A
OPEN, CLOSE = 0x7B, 0x7D

DIGITS_MAX = 18
"""This many digits are always an integer of 64 bits."""

NUMBER_BYTES_MAX = 64
"""A decimal of this many bytes, with an exponent of two digits, is always a finite double."""

LEAD_BYTES_MAX = 56
"""Bytes of a kept lead."""

LEAD_BYTES = 64
"""The room of each lead, with the bytes that can be read behind it."""

NONE, OTHER, BOOL, INT, FLOAT, TEXT, HARD = range(7)
"""The kind of a value: OTHER is null, or a value for the fallback; a HARD number needs more than
one operation on doubles."""

EXACT_MAX, POWER_MAX = 2**53, 22
"""Integers and powers of ten up to these are exact doubles."""

POWERS: Doubles = [float(f"1e{power}") for power in range(POWER_MAX + 1)]

DAY_US = 86_400_000_000

NO_TIME = -(2**63)

TENTHS: Ints = [10 ** (6 - digits) for digits in range(7)]
"""Microseconds of the last of `n` digits behind the point of a second."""

NOT_KEPT, REFUSED = -1, -2
"""In place of a column: of a name that is not needed, and of one that no attribute can have."""


@kernel
def past_blanks(data: Bytes, at: int) -> int:
    """Returns the position of the next byte that is not blank."""
    while data[at] == 0x20 or data[at] == 0x09:
        at += 1
    return at


@kernel
def past_text(data: Bytes, at: int) -> int:
    """Returns the end of a text after its quote; -1 if it has an escape, or no end."""
    step = plain_bytes(data, at)
    at += step
    while step == 8:
        step = plain_bytes(data, at)
        at += step
    return at + 1 if data[at] == QUOTE else -1


@kernel
def past_digits(data: Bytes, at: int) -> int:
    """Returns the position of the next byte that is not a digit."""
    step = digits_at(data, at)
    at += step
    while step == 8:
        step = digits_at(data, at)
        at += step
    return at


@kernel
def past_number(data: Bytes, begin: int) -> int:
    """Returns the end of a number; -1 if it is none, or may be too large."""
    at = begin + 1 if data[begin] == MINUS else begin
    whole = past_digits(data, at)
    if whole == at or (data[at] == ZERO and whole > at + 1):
        return -1
    is_integer, digits, at = True, whole - at, whole
    if data[at] == POINT:
        end = past_digits(data, at + 1)
        if end == at + 1:
            return -1
        is_integer, at = False, end
    if data[at] | 0x20 == 0x65:
        at += 1
        if data[at] == 0x2B or data[at] == MINUS:
            at += 1
        end = past_digits(data, at)
        if end == at or end > at + 2:
            return -1
        is_integer, at = False, end
    if (is_integer and digits > DIGITS_MAX) or at - begin > NUMBER_BYTES_MAX:
        return -1
    return at


@kernel
def past_word(data: Bytes, at: int) -> int:
    """Returns the end of `true`, `false` or `null`; -1 without one."""
    if data[at] <= 0x20 or data[at + 1] <= 0x20 or data[at + 2] <= 0x20:
        return -1
    first, second, third, fourth = data[at], data[at + 1], data[at + 2], data[at + 3]
    if first == 0x74 and second == 0x72 and third == 0x75 and fourth == 0x65:
        return at + 4
    if first == 0x6E and second == 0x75 and third == 0x6C and fourth == 0x6C:
        return at + 4
    is_false = first == 0x66 and second == 0x61 and third == 0x6C and fourth == 0x73
    return at + 5 if is_false and data[at + 4] == 0x65 else -1


@kernel
def past_value(data: Bytes, at: int) -> int:
    """Returns the end of a scalar; -1 for a value that is not read here."""
    first = data[at]
    if first == QUOTE:
        return past_text(data, at + 1)
    if first == MINUS or ZERO <= first <= NINE:
        return past_number(data, at)
    return past_word(data, at)


@kernel
def place_of(
    data: Bytes, begin: int, end: int, table: Ints, name_starts: Ints, names: Bytes
) -> int:
    """Returns the number of a name; below 0 it gives the place of the table for a new one."""
    found = 0
    for at in range(begin, end):
        found = (found * 31 + data[at]) & 0x7FFFFFFF
    mask = len(table) - 1
    place = found & mask
    while table[place] >= 0:
        name = table[place]
        first = name_starts[name]
        size = name_starts[name + 1] - first
        if size == end - begin and are_same(data, begin, names, first, size):
            return name
        place = (place + 1) & mask
    return -1 - place


@kernel
def past_lead(
    data: Bytes,
    begin: int,
    before: int,
    table: Ints,
    name_starts: Ints,
    names: Bytes,
    lead: Bytes,
    lead_sizes: Ints,
    following: Ints,
    state: Ints,
) -> tuple[int, int]:
    """Returns the name behind a brace or a comma, and the position of its value: kept as a lead.

    -1 as the name for a fallback row, -2 for a name that is not in the table, and -3 at the end of
    an empty object.
    """
    at = past_blanks(data, begin + 1)
    if data[at] == CLOSE and data[begin] == OPEN:
        return -3, at
    end = past_text(data, at + 1) if data[at] == QUOTE else -1
    if end < 0:
        return -1, at
    name = place_of(data, at + 1, end - 1, table, name_starts, names)
    if name < 0:
        state[0], state[1], state[2] = at + 1, end - 1, -1 - name
        return -2, at
    at = past_blanks(data, end)
    if data[at] != COLON:
        return -1, at
    at = past_blanks(data, at + 1)
    if at - begin <= LEAD_BYTES_MAX:
        # Of leads that differ the last one is kept: lines that are alike follow each other.
        lead_sizes[name] = at - begin
        following[before] = name
        put_bytes(data, begin, lead, name * LEAD_BYTES, at - begin)
    return name, at


@array_entry
def scan(
    data: Bytes,
    ends: Ints,
    line: int,
    table: Ints,
    name_starts: Ints,
    names: Bytes,
    lead: Bytes,
    lead_sizes: Ints,
    following: Ints,
    column_of: Ints,
    seen: Ints,
    begins: Grid,
    lasts: Grid,
    is_doubtful: Flags,
    state: Ints,
) -> int:
    """Stores the positions of the values of columns in lines, from one on, and marks fallback rows.

    Returns the line after the last one read. If there are more, it has a name that is not in the
    table yet: `state` has its begin and end, and its place. The leads, `seen` and the last number
    of `state` are kept from one call to the next.
    """
    while line < len(ends):
        at = ends[line - 1] + 1 if line else 0
        # Lines are numbered over all calls, so that `seen` need not be emptied for each.
        state[3] += 1
        number = state[3]
        is_good, before = data[at] == OPEN, len(lead_sizes) - 1
        while is_good and data[at] != CLOSE:
            name = following[before]
            size = lead_sizes[name]
            if size and are_same(data, at, lead, name * LEAD_BYTES, size):
                at += size
            else:
                name, at = past_lead(
                    data, at, before, table, name_starts, names, lead, lead_sizes, following, state
                )
                if name == -2:
                    return line
                if name < 0:
                    is_good = name == -3
                    break
            end = past_value(data, at)
            column = column_of[name]
            # A name that is repeated in a line makes a fallback row, too.
            if end < 0 or seen[name] == number or column == REFUSED:
                is_good = False
                break
            seen[name] = number
            if column >= 0:
                begins[column, line] = at
                lasts[column, line] = end
            before, at = name, past_blanks(data, end)
            is_good = data[at] == COMMA or data[at] == CLOSE
        is_doubtful[line] = not is_good or past_blanks(data, at + 1) != ends[line]
        line += 1
    return line


@kernel
def number_of(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the kind of a number at a position, and its bits; HARD for the fallback.

    Up to 2^53 integers are doubles, and up to 22 powers of ten are: one division or product of
    these is the nearest double.
    """
    is_negative = data[at] == MINUS
    at += 1 if is_negative else 0
    found, digits, power, is_integer = 0, 0, 0, True
    while at < end and data[at] | 0x20 != 0x65:
        if data[at] == POINT:
            is_integer = False
        else:
            digits += 1
            if digits > DIGITS_MAX:
                return HARD, 0
            found = 10 * found + data[at] - ZERO
            power -= 0 if is_integer else 1
        at += 1
    if is_integer and at == end:
        return INT, -found if is_negative else found
    if at < end:
        at += 1
        is_below = data[at] == MINUS
        exponent = 0
        for place in range(at, end):  # a sign is below the digits, and passed over
            if data[place] >= ZERO:
                exponent = 10 * exponent + data[place] - ZERO
        power += -exponent if is_below else exponent
    if found > EXACT_MAX or not -POWER_MAX <= power <= POWER_MAX:
        return HARD, 0
    number = found / POWERS[-power] if power < 0 else float(found) * POWERS[power]
    return FLOAT, double_bits(-number if is_negative else number)


@array_entry
def values_of(data: Bytes, begins: Ints, lasts: Ints, kinds: Bytes, values: Ints) -> int:
    """Returns the values at some positions: the kind of each, and its bits unless it is text.

    Returns the kinds that occur, as bits.
    """
    found = 0
    for row in range(len(begins)):
        begin, kind, bits = begins[row], NONE, 0
        first = data[begin] if begin >= 0 else 0
        if first == QUOTE:
            kind = TEXT
        elif first == 0x6E:
            kind = OTHER
        elif first == 0x74 or first == 0x66:
            kind, bits = BOOL, 1 if first == 0x74 else 0
        elif begin >= 0:
            kind, bits = number_of(data, begin, lasts[row])
        kinds[row], values[row] = kind, bits
        found |= 1 << kind
    return found


@kernel
def digits_of(data: Bytes, at: int, count: int) -> int:
    """The number of `count` digits, -1 if there are other bytes among them; no LF is passed."""
    found = 0
    for place in range(at, at + count):
        digit = data[place] - ZERO
        if digit < 0 or digit > 9:
            return -1
        found = 10 * found + digit
    return found


@kernel
def day_of(data: Bytes, at: int) -> int:
    """Returns the days from 1970 to a date, `2013-01-31`; NO_TIME without one."""
    year = digits_of(data, at, 4)
    if year < 1 or data[at + 4] != MINUS:
        return NO_TIME
    month = digits_of(data, at + 5, 2)
    if month < 1 or month > 12 or data[at + 7] != MINUS:
        return NO_TIME
    day = digits_of(data, at + 8, 2)
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = 30 + (month + month // 8) % 2 if month != 2 else 29 if is_leap else 28
    if day < 1 or day > days:
        return NO_TIME
    # Years begin in March, so that a leap day is the last of one.
    since = year - 1 if month <= 2 else year
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * since + since // 4 - since // 100 + since // 400 + of_year - 719_468


@kernel
def time_of(data: Bytes, at: int, end: int, has_zone: bool) -> int:
    """Returns the microseconds from 1970 to a time in UTC, `2013-01-31T05:00:00.5Z`; else NO_TIME.

    NO_TIME means that only the rule of a time can decide. A date is its midnight, unless a source
    has another zone for it.
    """
    day = day_of(data, at) if end - at >= 10 else NO_TIME
    if day == NO_TIME or end - at == 10:
        return NO_TIME if day == NO_TIME or has_zone else day * DAY_US
    sign = data[at + 10]
    if end - at < 17 or (sign != 0x54 and sign != 0x20) or data[end - 1] != 0x5A:
        return NO_TIME
    hour, minute, second = digits_of(data, at + 11, 2), digits_of(data, at + 14, 2), 0
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or data[at + 13] != COLON:
        return NO_TIME
    found, at, end = (60 * hour + minute) * 60_000_000, at + 16, end - 1
    if at < end:
        second = digits_of(data, at + 1, 2) if end - at >= 3 else -1
        if data[at] != COLON or second < 0 or second > 59:
            return NO_TIME
        found, at = found + 1_000_000 * second, at + 3
    if at < end:
        count = end - at - 1
        parts = digits_of(data, at + 1, count) if 1 <= count <= 6 else -1
        if data[at] != POINT or parts < 0:
            return NO_TIME
        found += parts * TENTHS[count]
    return day * DAY_US + found


@array_entry
def times_of(
    data: Bytes, begins: Ints, lasts: Ints, quote_bytes: int, has_zone: bool, values: Ints
) -> bool:
    """The times at some positions in quotes of `quote_bytes` bytes; whether there are no others.

    `has_zone`: whether a date is a day of another zone than UTC.
    """
    for row in range(len(begins)):
        begin, end = begins[row] + quote_bytes, lasts[row] - quote_bytes
        values[row] = 0
        if begins[row] >= 0:
            if quote_bytes and data[begin - 1] != QUOTE:
                return False
            values[row] = time_of(data, begin, end, has_zone)
            if values[row] == NO_TIME:
                return False
    return True


@array_entry
def put_spans(data: Bytes, begins: Ints, lasts: Ints, starts: Ints, out: Bytes) -> None:
    """Copies spans in sequence; `out` has eight bytes more."""
    for row in range(len(begins)):
        put_bytes(data, begins[row], out, starts[row], lasts[row] - begins[row])
