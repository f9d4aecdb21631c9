"""Guards: the constraints that an entry carries with it, asked before the filter's program.

An entry has two, of the filter's constraints besides the one that the filter hangs on. Most
candidates end at a guard, and where bucket and guards are the whole filter, most matches are
decided there, without a look at the filter itself, which lies elsewhere in memory.

A guard never says no to what its constraint would let pass. It says that the constraint holds only
where 32 bits are enough to know. `kernels` asks them, and says how these functions are run.
"""

from typing import Any

from contrada.matching.jit import kernel, part
from contrada.matching.tables import (
    ATTR_MASK,
    BEGIN,
    DECIDED_ALONE,
    DECIDED_HERE,
    DOMAIN_SHIFT,
    GUARD,
    GUARD_DOMAIN_SHIFT,
    GUARD_HASH,
    GUARD_KIND_SHIFT,
    GUARD_NONE,
    GUARD_SET,
    KEY_HERE,
    OP_POINT,
    OP_RANGE,
    OP_SET,
    OP_SHIFT,
    OP_TEXT,
    OP_TEXT_RANGE,
    SECOND,
    SET_GUARD,
    TEXT_SHIFT,
    VERIFY,
    WORDS_MASK,
)

reading = part("reading")
finished = reading.finished
text_hash = reading.text_hash
INT32_MIN = reading.INT32_MIN
INT32_MAX = reading.INT32_MAX
NO_DOMAIN = 7
"""In a guard that only asks for the attribute to be there."""
HUNG_RANK = 8
"""The rank of the constraint that the filter hangs on: after all others."""


@kernel
def rank(op: Any) -> Any:
    """The operators in order, the most selective first."""
    if op == OP_POINT:
        return 0
    if op == OP_TEXT:
        return 1
    if op == OP_RANGE:
        return 2
    return 3 if op == OP_SET else 4


@kernel
def put_guard(entry: Any, at: Any, word: Any, store: Any) -> Any:
    """Writes the guard of a constraint, which begins at a word of the program, into an entry."""
    entries, program = store.entries, store.program
    head = program[word]
    attr, op, domain = head & ATTR_MASK, (head >> OP_SHIFT) & 0xFF, head >> DOMAIN_SHIFT
    asked, low, high = attr | (domain << GUARD_DOMAIN_SHIFT), 0, 0
    if op == OP_SET:
        row = program[word + 1]
        asked = store.sets_by_row[row, SET_GUARD] + 0
        low = store.sets_by_row[row, SET_GUARD + 1] + 0
        high = store.sets_by_row[row, SET_GUARD + 2] + 0
    elif op == OP_TEXT:
        ref = program[word + 1]
        length = ref & ((1 << TEXT_SHIFT) - 1)
        low = high = finished(text_hash(store.texts, ref >> TEXT_SHIFT, length))
        asked |= GUARD_HASH << GUARD_KIND_SHIFT
    elif op == OP_TEXT_RANGE:
        asked, low, high = attr | (NO_DOMAIN << GUARD_DOMAIN_SHIFT), INT32_MIN, INT32_MAX
    else:
        low = program[word + 1] >> 32
        high = program[word + (2 if op == OP_RANGE else 1)] >> 32
    entries[entry, at] = asked
    entries[entry, at + 1] = low
    entries[entry, at + 2] = high


@kernel
def is_clear(asked: Any) -> Any:
    """Whether a guard mostly decides by itself."""
    kind = (asked >> GUARD_KIND_SHIFT) & 7
    return kind != GUARD_HASH and kind != GUARD_SET


@kernel
def put_guards(entry: Any, number: Any, hung: Any, by_value: Any, alone: Any, store: Any) -> Any:
    """Writes the guards of a filter's entry; the first says whether both of them decide.

    `hung` is the attribute that the filter hangs on, or -1; `by_value` is not 0 where its
    bucket's value is all that the constraint on it asks for; `alone` where it has no other entry.
    """
    entries, program = store.entries, store.program
    begin = store.filters[number, BEGIN]
    word, end = begin + 1, begin + 1 + (program[begin] & WORDS_MASK)
    first = second = -1
    first_rank = second_rank = HUNG_RANK + 1
    count = 0
    while word < end:
        op = (program[word] >> OP_SHIFT) & 0xFF
        is_hung = program[word] & ATTR_MASK == hung
        if not (is_hung and by_value != 0):
            count += 1
            its = HUNG_RANK if is_hung else rank(op)
            if its < first_rank:
                second, second_rank = first, first_rank
                first, first_rank = word, its
            elif its < second_rank:
                second, second_rank = word, its
        word += 3 if op == OP_RANGE or op == OP_TEXT_RANGE else 2
    for at in (GUARD, SECOND):
        entries[entry, at] = GUARD_NONE << GUARD_KIND_SHIFT
        entries[entry, at + 1] = 0
        entries[entry, at + 2] = 0
    if first >= 0:
        put_guard(entry, GUARD, first, store)
    if second >= 0:
        put_guard(entry, SECOND, second, store)
    if count <= 2 and program[begin] & VERIFY == 0:
        decided = DECIDED_HERE if by_value != 0 else DECIDED_ALONE
        if alone != 0 and is_clear(entries[entry, GUARD]) and is_clear(entries[entry, SECOND]):
            decided |= KEY_HERE
        entries[entry, GUARD] |= decided
