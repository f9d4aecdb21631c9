"""Kernels that evaluate filters on the notification in the scratch.

They handle texts, operators on text, sets, and whole programs of constraints. See `memory` for the
form of these functions.
"""

from contrada.matching.kernels import schema
from contrada.matching.kernels.memory import kernel
from contrada.matching.kernels.schema import Bytes, Ints, Memory, RowNumbers
from contrada.matching.kernels.scratch import TEXT

MAYBE = 2
LOWER_HALF = (1 << 32) - 1
STEP_WORK = 16
"""Bytes that are compared in a step of an expression."""


@kernel
def operand(program: RowNumbers, word: int) -> int:
    """Returns the operand of 64 bits at a word of a program."""
    return (program[word + 1] << 32) | (program[word] & LOWER_HALF)


@kernel
def constraint_words(op: int) -> int:
    """Returns the words of a constraint: its head, and one or two operands."""
    return 5 if op == schema.OP_RANGE or op == schema.OP_TEXT_RANGE else 3


@kernel
def put_operand(program: RowNumbers, word: int, number: int) -> None:
    """Writes an operand at a word of a program."""
    # The lower half as a signed number, without a comparison.
    program[word] = (number & LOWER_HALF) - ((number << 1) & (1 << 32))
    program[word + 1] = number >> 32


@kernel
def is_at(m: Memory, ref: int, text: Bytes, start: int) -> bool:
    """Whether a text of the store is at a position, which has room for it."""
    at = ref >> schema.TEXT_SHIFT
    for i in range(ref & schema.LENGTH_MASK):
        if m.texts[at + i] != text[start + i]:
            return False
    return True


@kernel
def same_text(m: Memory, ref: int, text: Bytes, start: int, length: int) -> bool:
    """Whether a text of the store equals a text of the notification."""
    return ref & schema.LENGTH_MASK == length and is_at(m, ref, text, start)


@kernel
def is_before(m: Memory, ref: int, text: Bytes, start: int, length: int) -> bool:
    """Whether a text of the store is less than the notification's, or equal."""
    at, size = ref >> schema.TEXT_SHIFT, ref & schema.LENGTH_MASK
    for i in range(min(size, length)):
        a, b = m.texts[at + i], text[start + i]
        if a != b:
            return a < b
    return size <= length


@kernel
def in_text_range(m: Memory, first: int, before: int, text: Bytes, start: int, length: int) -> bool:
    """Whether the notification's text lies in a half-open interval."""
    if not is_before(m, first, text, start, length):
        return False
    return before < 0 or not is_before(m, before, text, start, length)


@kernel
def contains_text(m: Memory, ref: int, text: Bytes, start: int, length: int) -> int:
    """Whether the notification's text contains a text of the store: 0, 1 or MAYBE."""
    size, of = ref & schema.LENGTH_MASK, ref >> schema.TEXT_SHIFT
    if size == 0:
        return 1
    texts, counters = m.texts, m.counters[0]
    lead = texts[of]
    work = counters.work - length
    found = 0
    for at in range(start, start + length - size + 1):
        if text[at] == lead:
            i = 1
            while i < size and texts[of + i] == text[at + i]:
                i += 1
            if i == size:
                found = 1
                break
            # A text that is made for it is nearly there at each place.
            work -= i
            if work < 0:
                found = MAYBE
                break
    counters.work = work
    return found


@kernel
def atom_holds(kind: int, ref: int, m: Memory, row: int) -> int:
    """Whether an operator on text accepts a value: 0, 1 or MAYBE."""
    values, text = m.values, m.text
    size = ref & schema.LENGTH_MASK
    if kind == schema.ATOM_SUFFIX or kind == schema.ATOM_CONTAINS:
        start, length = values[row].start, values[row].length
    else:
        start, length = values[row].folded, values[row].folded_length
    if size > length:
        return 0
    if kind == schema.ATOM_CONTAINS or kind == schema.ATOM_CONTAINS_NOCASE:
        return contains_text(m, ref, text, start, length)
    if kind == schema.ATOM_EQUAL_NOCASE and size != length:
        return 0
    m.counters[0].work -= size
    if kind == schema.ATOM_SUFFIX or kind == schema.ATOM_SUFFIX_NOCASE:
        return 1 if is_at(m, ref, text, start + length - size) else 0
    return 1 if is_at(m, ref, text, start) else 0


@kernel
def expression_holds(at: int, end: int, m: Memory, row: int) -> int:
    """Returns the value of an expression on text: 0, 1, or MAYBE if it needs the model.

    It is also MAYBE without work left: the model then decides how much to check.
    """
    sets, stack, values, counters = m.sets, m.stack, m.values, m.counters[0]
    top = 0
    while at < end:
        if counters.work < 0:
            return MAYBE
        op = sets[at]
        counters.work -= STEP_WORK
        if op == schema.X_ATOM:
            stack[top] = atom_holds(sets[at + 1], sets[at + 2], m, row)
            top += 1
            at += 3
        elif op == schema.X_PIECES:
            count = sets[at + 1]
            counters.work -= STEP_WORK * count
            stack[top] = 0
            for i in range(count):
                first, before = sets[at + 2 + 2 * i], sets[at + 3 + 2 * i]
                start, length = values[row].start, values[row].length
                if in_text_range(m, first, before, m.text, start, length):
                    stack[top] = 1
                    break
            top += 1
            at += 2 + 2 * count
        elif op == schema.X_NOT:
            if stack[top - 1] != MAYBE:
                stack[top - 1] = 1 - stack[top - 1]
            at += 1
        elif op == schema.X_MAYBE:
            stack[top] = MAYBE
            top += 1
            at += 1
        else:
            top = joined(op == schema.X_EVERY, sets[at + 1], stack, top)
            at += 2
    return stack[0]


@kernel
def joined(is_every: bool, count: int, stack: Ints, top: int) -> int:
    """Replaces the top values by their conjunction or disjunction."""
    top -= count
    decisive = 0 if is_every else 1
    result = 1 - decisive
    for i in range(top, top + count):
        if stack[i] == decisive:
            result = decisive
        elif stack[i] == MAYBE and result != decisive:
            result = MAYBE
    stack[top] = result
    return top + 1


@kernel
def set_holds_value(at: int, m: Memory, row: int) -> int:
    """Whether a set holds one value: 0, 1 or MAYBE."""
    sets, values = m.sets, m.values
    count = sets[at + 1]
    domain = values[row].domain
    end = at + 2 + 3 * count
    if domain != TEXT:
        for i in range(at + 2, end, 3):
            if sets[i] == domain and sets[i + 1] <= values[row].high:
                if values[row].low <= sets[i + 2]:
                    return 1
        return 0
    if sets[end] == 0:
        return 0
    return expression_holds(end + 1, end + 1 + sets[end], m, row)


@kernel
def set_holds(number: int, m: Memory) -> int:
    """Whether a set holds one of its attribute's values, or its absence: computed once."""
    epoch = m.counters[0].epoch
    # Many filters share a set: the answer is kept, with the number of its notification.
    seen = m.set_seen[number]
    if seen >> 2 == epoch:
        return seen & 3
    at, attr = m.sets_by_row[number].start, m.sets_by_row[number].attr
    result = 0
    if m.state[attr].epoch != epoch or m.state[attr].count == 0:
        result = m.sets[at] & schema.SET_ABSENT
    else:
        first = m.state[attr].first
        for row in range(first, first + m.state[attr].count):
            holds = set_holds_value(at, m, row)
            if holds == 1:
                result = 1
                break
            if holds == MAYBE:  # another value may still hold
                result = MAYBE
    m.set_seen[number] = epoch * 4 + result
    return result


@kernel
def value_in(op: int, domain: int, at: int, m: Memory, row: int) -> int:
    """Whether a simple constraint holds for one value."""
    values, program = m.values, m.program
    if values[row].domain != domain:
        return False
    if op == schema.OP_POINT:
        key = operand(program, at)
        return values[row].low <= key and key <= values[row].high
    if op == schema.OP_RANGE:
        is_below = values[row].low <= operand(program, at + 2)
        return is_below and operand(program, at) <= values[row].high
    start, length = values[row].start, values[row].length
    if op == schema.OP_TEXT:
        return same_text(m, operand(program, at), m.text, start, length)
    first, before = operand(program, at), operand(program, at + 2)
    return in_text_range(m, first, before, m.text, start, length)


@kernel
def program_holds(begin: int, m: Memory) -> bool:
    """Whether a filter matches the notification in the scratch, opaque operators and MAYBE
    apart.
    """
    program, state = m.program, m.state
    epoch = m.counters[0].epoch
    at = begin + 1
    end = at + (program[begin] & schema.WORDS_MASK)
    while at < end:
        word = program[at]
        attr = word & schema.ATTR_MASK
        op = (word >> schema.OP_SHIFT) & schema.OP_MASK
        at += 1
        if op > schema.OP_TEXT_RANGE:
            if set_holds(operand(program, at), m) == 0:
                return False
            at += 2
            continue
        if state[attr].epoch != epoch:
            return False
        first = state[attr].first
        for row in range(first, first + state[attr].count):
            if value_in(op, word >> schema.DOMAIN_SHIFT, at, m, row):
                break
        else:
            return False
        at += 2 if op == schema.OP_POINT or op == schema.OP_TEXT else 4
    return True
