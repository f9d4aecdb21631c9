"""Whether what a filter asks for holds for the notification in the scratch.

Texts, operators on text, sets, and whole programs of constraints. See `kernels` for how these
functions are written and run.
"""

from typing import Any

from contrada.matching.jit import kernel, part
from contrada.matching.tables import (
    ATOM_CONTAINS,
    ATOM_CONTAINS_NOCASE,
    ATOM_EQUAL_NOCASE,
    ATOM_SUFFIX,
    ATOM_SUFFIX_NOCASE,
    ATTR_MASK,
    COUNT,
    DOMAIN_SHIFT,
    EPOCH,
    FIRST,
    OP_POINT,
    OP_RANGE,
    OP_SHIFT,
    OP_TEXT,
    OP_TEXT_RANGE,
    SET_ABSENT,
    SET_ATTR,
    SET_START,
    TEXT_SHIFT,
    V_DOMAIN,
    V_FOLDED,
    V_FOLDED_LENGTH,
    V_HIGH,
    V_LENGTH,
    V_LOW,
    V_START,
    WORDS_MASK,
    X_ATOM,
    X_EVERY,
    X_MAYBE,
    X_NOT,
    X_PIECES,
)

reading = part("reading")
TEXT = reading.TEXT
MAYBE = 2


@kernel
def same_text(store: Any, ref: Any, text: Any, start: Any, length: Any) -> Any:
    """Whether a text of the store equals a text of the notification."""
    if ref & 0xFFFFFF != length:
        return False
    at = ref >> TEXT_SHIFT
    for i in range(length):
        if store.texts[at + i] != text[start + i]:
            return False
    return True


@kernel
def is_at(store: Any, ref: Any, text: Any, start: Any) -> Any:
    """Whether a text of the store stands at a place, which has room for it."""
    at = ref >> TEXT_SHIFT
    for i in range(ref & 0xFFFFFF):
        if store.texts[at + i] != text[start + i]:
            return False
    return True


@kernel
def is_before(store: Any, ref: Any, text: Any, start: Any, length: Any) -> Any:
    """Whether a text of the store comes before the notification's, or equals it."""
    at, size = ref >> TEXT_SHIFT, ref & 0xFFFFFF
    for i in range(min(size, length)):
        a, b = store.texts[at + i], text[start + i]
        if a != b:
            return a < b
    return size <= length


@kernel
def in_text_range(store: Any, first: Any, before: Any, text: Any, start: Any, length: Any) -> Any:
    """Whether the notification's text lies in a half-open interval."""
    if not is_before(store, first, text, start, length):
        return False
    return before < 0 or not is_before(store, before, text, start, length)


@kernel
def contains_text(store: Any, ref: Any, text: Any, start: Any, length: Any) -> Any:
    """Whether the notification's text contains a text of the store."""
    size = ref & 0xFFFFFF
    if size == 0:
        return True
    lead = store.texts[ref >> TEXT_SHIFT]
    for at in range(start, start + length - size + 1):
        if text[at] == lead and is_at(store, ref, text, at):
            return True
    return False


@kernel
def atom_holds(kind: Any, ref: Any, store: Any, scratch: Any, row: Any) -> Any:
    """Whether an operator on text accepts a value."""
    values, text = scratch.values, scratch.text
    size = ref & 0xFFFFFF
    if kind == ATOM_SUFFIX or kind == ATOM_CONTAINS:
        start, length = values[row, V_START], values[row, V_LENGTH]
    else:
        start, length = values[row, V_FOLDED], values[row, V_FOLDED_LENGTH]
    if size > length:
        return False
    if kind == ATOM_CONTAINS or kind == ATOM_CONTAINS_NOCASE:
        return contains_text(store, ref, text, start, length)
    if kind == ATOM_EQUAL_NOCASE and size != length:
        return False
    if kind == ATOM_SUFFIX or kind == ATOM_SUFFIX_NOCASE:
        return is_at(store, ref, text, start + length - size)
    return is_at(store, ref, text, start)


@kernel
def expression_holds(at: Any, end: Any, store: Any, scratch: Any, row: Any) -> Any:
    """The value of an expression on text: 0, 1, or MAYBE where only the model can tell."""
    sets, stack, values = store.sets, scratch.stack, scratch.values
    top = 0
    while at < end:
        op = sets[at]
        if op == X_ATOM:
            stack[top] = 1 if atom_holds(sets[at + 1], sets[at + 2], store, scratch, row) else 0
            top += 1
            at += 3
        elif op == X_PIECES:
            count = sets[at + 1]
            stack[top] = 0
            for i in range(count):
                first, before = sets[at + 2 + 2 * i], sets[at + 3 + 2 * i]
                start, length = values[row, V_START], values[row, V_LENGTH]
                if in_text_range(store, first, before, scratch.text, start, length):
                    stack[top] = 1
                    break
            top += 1
            at += 2 + 2 * count
        elif op == X_NOT:
            if stack[top - 1] != MAYBE:
                stack[top - 1] = 1 - stack[top - 1]
            at += 1
        elif op == X_MAYBE:
            stack[top] = MAYBE
            top += 1
            at += 1
        else:
            top = joined(op == X_EVERY, sets[at + 1], stack, top)
            at += 2
    return stack[0]


@kernel
def joined(is_every: Any, count: Any, stack: Any, top: Any) -> Any:
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
def set_holds_value(at: Any, store: Any, scratch: Any, row: Any) -> Any:
    """Whether a set holds one value: 0, 1 or MAYBE."""
    sets, values = store.sets, scratch.values
    count = sets[at + 1]
    domain = values[row, V_DOMAIN]
    end = at + 2 + 3 * count
    if domain != TEXT:
        for i in range(at + 2, end, 3):
            if sets[i] == domain and sets[i + 1] <= values[row, V_HIGH]:
                if values[row, V_LOW] <= sets[i + 2]:
                    return 1
        return 0
    if sets[end] == 0:
        return 0
    return expression_holds(end + 1, end + 1 + sets[end], store, scratch, row)


@kernel
def set_holds(number: Any, store: Any, scratch: Any) -> Any:
    """Whether a set holds one of its attribute's values, or its absence: computed once."""
    epoch = scratch.counters[EPOCH]
    seen = scratch.set_seen[number]
    if seen >> 2 == epoch:
        return seen & 3
    at, attr = store.sets_by_row[number, SET_START], store.sets_by_row[number, SET_ATTR]
    result = 0
    if scratch.state[attr, 0] != epoch or scratch.state[attr, COUNT] == 0:
        result = store.sets[at] & SET_ABSENT
    else:
        first = scratch.state[attr, FIRST]
        for row in range(first, first + scratch.state[attr, COUNT]):
            holds = set_holds_value(at, store, scratch, row)
            if holds == 1:
                result = 1
                break
            if holds == MAYBE:
                result = MAYBE
    scratch.set_seen[number] = epoch * 4 + result
    return result


@kernel
def value_in(op: Any, domain: Any, at: Any, store: Any, scratch: Any, row: Any) -> Any:
    """Whether a simple constraint holds for one value."""
    values, program = scratch.values, store.program
    if values[row, V_DOMAIN] != domain:
        return False
    if op == OP_POINT:
        key = program[at]
        return values[row, V_LOW] <= key and key <= values[row, V_HIGH]
    if op == OP_RANGE:
        return values[row, V_LOW] <= program[at + 1] and program[at] <= values[row, V_HIGH]
    start, length = values[row, V_START], values[row, V_LENGTH]
    if op == OP_TEXT:
        return same_text(store, program[at], scratch.text, start, length)
    return in_text_range(store, program[at], program[at + 1], scratch.text, start, length)


@kernel
def program_holds(begin: Any, store: Any, scratch: Any) -> Any:
    """Whether a filter matches what is in the scratch, opaque operators and doubts apart."""
    program, state = store.program, scratch.state
    epoch = scratch.counters[EPOCH]
    at = begin + 1
    end = at + (program[begin] & WORDS_MASK)
    while at < end:
        word = program[at]
        attr = word & ATTR_MASK
        op = (word >> OP_SHIFT) & 0xFF
        at += 1
        if op > OP_TEXT_RANGE:
            if set_holds(program[at], store, scratch) == 0:
                return False
            at += 1
            continue
        if state[attr, 0] != epoch:
            return False
        first = state[attr, FIRST]
        found = False
        for row in range(first, first + state[attr, COUNT]):
            if value_in(op, word >> DOMAIN_SHIFT, at, store, scratch, row):
                found = True
                break
        if not found:
            return False
        at += 1 if op == OP_POINT or op == OP_TEXT else 2
    return True
