"""Kernels that compare every filter with a box: those that may meet it, or lie in it.

A row of a box is an attribute; a domain, or 0 for any value; the lowest and the highest key in it,
for a single text both the reference to it, or -1; and whether the attribute may be absent, too. In
a `closed` box every attribute without a row is absent.
"""

from contrada.matching.kernels import schema
from contrada.matching.kernels.evaluate import constraint_words, operand
from contrada.matching.kernels.memory import entry, kernel
from contrada.matching.kernels.schema import Ints, Memory
from contrada.matching.kernels.scratch import TEXT


@kernel
def set_touches(number: int, box: Ints, row: int, closed: bool, m: Memory) -> bool:
    """Whether a set may meet a row of a box, or, behind the last row, what the box allows."""
    sets, at = m.sets, m.sets_by_row[number].start
    may_be_absent = sets[at] & schema.SET_ABSENT
    if 5 * row == len(box):
        return not closed or may_be_absent != 0
    domain, low, high = box[5 * row + 1], box[5 * row + 2], box[5 * row + 3]
    if domain == 0 or box[5 * row + 4] & may_be_absent != 0:
        return True
    end = at + 2 + 3 * sets[at + 1]
    if domain != TEXT:
        for i in range(at + 2, end, 3):
            if sets[i] == domain and sets[i + 1] <= high and low <= sets[i + 2]:
                return True
        return False
    if sets[at] & schema.SET_TEXTS == 0:
        return True
    for i in range(end + 3, end + 1 + sets[end], 2):
        if sets[i] == low:
            return True
    return False


@kernel
def touches(number: int, box: Ints, closed: bool, inside: bool, m: Memory) -> bool:
    """Whether a filter may meet a box, or, with `inside`, may lie in it."""
    program, rows = m.program, len(box) // 5
    at = m.filters[number].begin + 1
    head = program[at - 1]
    if head & schema.GONE:
        return False
    end = at + (head & schema.WORDS_MASK)
    named = 0
    while at < end:
        word = program[at]
        op = (word >> schema.OP_SHIFT) & schema.OP_MASK
        row = 0
        while row < rows and box[5 * row] != word & schema.ATTR_MASK:
            row += 1
        named += row < rows
        if op == schema.OP_SET:
            # Of a filter that the model verifies: an unknown operator meets everything.
            if head & schema.VERIFY == 0:
                if not set_touches(operand(program, at + 1), box, row, closed, m):
                    return False
        elif row == rows:
            if closed:
                return False
        elif box[5 * row + 1] != 0:
            if box[5 * row + 1] != word >> schema.DOMAIN_SHIFT:
                return False
            if op == schema.OP_POINT or op == schema.OP_RANGE:
                low = operand(program, at + 1)
                high = operand(program, at + 3) if op == schema.OP_RANGE else low
                if low > box[5 * row + 3] or high < box[5 * row + 2]:
                    return False
                # Two keys are nothing: an end that no double equals is kept one key wider.
                if inside and (low + 2 < box[5 * row + 2] or high - 2 > box[5 * row + 3]):
                    return False
            elif op == schema.OP_TEXT and operand(program, at + 1) != box[5 * row + 2]:
                return False
        at += constraint_words(op)
    return not inside or named == rows


@entry
def touching(
    box: Ints, closed: bool, inside: bool, first: int, found: Ints, used: int, m: Memory
) -> int:
    """Lists filters that touch a box, up to the room; the last place gets the next filter."""
    count = 0
    number = first
    while number < used and count < len(found) - 1:
        if touches(number, box, closed, inside, m):
            found[count] = number
            count += 1
        number += 1
    found[len(found) - 1] = number
    return count
