"""Kernels that read lines of JSON: objects of scalars, one on each line.

A line is taken as JSON says, but for what is left to others: escapes, objects and arrays within,
integers that may be beyond 64 bits, and decimals that may be beyond doubles. What is read are the
places of values; nobody looks at their meaning here.

Each line ends with LF, which stands in no text, number or blank: so nothing is read beyond it.
"""

from typing import Any

from contrada.matching.kernels.memory import kernel

QUOTE, COMMA, MINUS, POINT, ZERO, NINE, COLON = 0x22, 0x2C, 0x2D, 0x2E, 0x30, 0x39, 0x3A
BACKSLASH, OPEN, CLOSE = 0x5C, 0x7B, 0x7D

DIGITS_MAX = 18
"""So many digits are an integer of 64 bits, whatever they are."""

NUMBER_BYTES_MAX = 64
"""Of so many bytes, and with an exponent of two digits, a decimal is a finite double."""

NOT_KEPT, REFUSED = -1, -2
"""In place of a column: of a name that nobody asks for, and of one that no attribute can have."""


@kernel
def past_blanks(data: Any, at: Any) -> Any:
    """Where something else than a blank stands."""
    while data[at] == 0x20 or data[at] == 0x09:
        at += 1
    return at


@kernel
def past_text(data: Any, at: Any) -> Any:
    """Where a text ends, whose quote stands before; -1 where it has an escape, or no end."""
    while data[at] != QUOTE:
        if data[at] < 0x20 or data[at] == BACKSLASH:
            return -1
        at += 1
    return at + 1


@kernel
def past_digits(data: Any, at: Any) -> Any:
    """Where no digit stands any more."""
    while ZERO <= data[at] <= NINE:
        at += 1
    return at


@kernel
def past_number(data: Any, begin: Any) -> Any:
    """Where a number ends; -1 where it is none, or may be too large."""
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
    if data[at] == 0x65 or data[at] == 0x45:
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
def past_word(data: Any, at: Any) -> Any:
    """Where `true`, `false` or `null` ends; -1 where none of these stands."""
    first, second, third = data[at], 0, 0
    if first > 0x20:
        second = data[at + 1]
    if second > 0x20:
        third = data[at + 2]
    if third <= 0x20:
        return -1
    fourth = data[at + 3]
    if first == 0x74 and second == 0x72 and third == 0x75 and fourth == 0x65:
        return at + 4
    if first == 0x6E and second == 0x75 and third == 0x6C and fourth == 0x6C:
        return at + 4
    is_false = first == 0x66 and second == 0x61 and third == 0x6C and fourth == 0x73
    return at + 5 if is_false and data[at + 4] == 0x65 else -1


@kernel
def past_value(data: Any, at: Any) -> Any:
    """Where a scalar ends; -1 where there is none that is read here."""
    if data[at] == QUOTE:
        return past_text(data, at + 1)
    if data[at] == MINUS or ZERO <= data[at] <= NINE:
        return past_number(data, at)
    return past_word(data, at)


@kernel
def place_of(data: Any, begin: Any, end: Any, table: Any, name_starts: Any, names: Any) -> Any:
    """The number of a name; what is below 0 tells that it is to be put at a place of the table."""
    found = 0
    for at in range(begin, end):
        found = (found * 31 + int(data[at])) & 0x7FFFFFFF
    mask = len(table) - 1
    place = found & mask
    while table[place] >= 0:
        name = table[place]
        first = name_starts[name]
        if name_starts[name + 1] - first == end - begin:
            same = True
            for step in range(end - begin):
                if names[first + step] != data[begin + step]:
                    same = False
                    break
            if same:
                return name
        place = (place + 1) & mask
    return -1 - place


@kernel
def past_members(
    data: Any, at: Any, line: Any, known: Any, column_of: Any, seen: Any, spans: Any, state: Any
) -> Any:
    """Where an object ends whose first member stands there, with its values noted.

    -1 where the line is doubtful; -2 where a name stands that is not in the table.
    """
    table, name_starts, names = known
    begins, lasts = spans
    while data[at] == QUOTE:
        end = past_text(data, at + 1)
        if end < 0:
            return -1
        name = place_of(data, at + 1, end - 1, table, name_starts, names)
        if name < 0:
            state[0], state[1], state[2] = at + 1, end - 1, -1 - name
            return -2
        if seen[name] == state[3] or column_of[name] == REFUSED:
            return -1
        seen[name] = state[3]
        at = past_blanks(data, end)
        if data[at] != COLON:
            return -1
        at = past_blanks(data, at + 1)
        end = past_value(data, at)
        if end < 0:
            return -1
        if column_of[name] >= 0:
            begins[column_of[name], line] = at
            lasts[column_of[name], line] = end
        at = past_blanks(data, end)
        if data[at] == CLOSE:
            return at + 1
        if data[at] != COMMA:
            return -1
        at = past_blanks(data, at + 1)
    return -1


@kernel
def scan(
    data: Any,
    ends: Any,
    line: Any,
    known: Any,
    column_of: Any,
    seen: Any,
    spans: Any,
    is_doubtful: Any,
    state: Any,
) -> Any:
    """Notes where the values of columns stand in lines, from one on, and which lines are doubtful.

    Gives the line that it ended before. Where that is not the last one, a name stands there that is
    not in the table yet: `state` has its begin and end, and its place. `seen` and the last number
    of `state` are kept from one call to the next.
    """
    while line < len(ends):
        at = ends[line - 1] + 1 if line else 0
        state[3] += 1
        is_good = data[at] == OPEN
        if is_good:
            at = past_blanks(data, at + 1)
            if data[at] == CLOSE:
                at += 1
            else:
                at = past_members(data, at, line, known, column_of, seen, spans, state)
                if at == -2:
                    return line
                is_good = at >= 0
        is_doubtful[line] = not is_good or past_blanks(data, at) != ends[line]
        line += 1
    return line


@kernel
def put_spans(data: Any, begins: Any, lasts: Any, starts: Any, out: Any) -> None:
    """Copies what stands at some places, one behind another."""
    for row in range(len(begins)):
        at = starts[row]
        for place in range(begins[row], lasts[row]):
            out[at] = data[place]
            at += 1
