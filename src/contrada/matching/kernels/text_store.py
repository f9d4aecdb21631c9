"""Kernels of the store of texts: each name and constant once, with the number of its uses."""

from contrada.matching.kernels.evaluate import operand, same_text
from contrada.matching.kernels.memory import entry, kernel
from contrada.matching.kernels.schema import (
    LENGTH_MASK,
    OP_MASK,
    OP_RANGE,
    OP_SHIFT,
    OP_TEXT,
    OP_TEXT_RANGE,
    TEXT_SHIFT,
    UNUSED,
    USES_BYTES,
    WORDS_MASK,
    Bytes,
    Ints,
    Memory,
)
from contrada.matching.kernels.scratch import finished, text_hash


@kernel
def text_slot(slots: Ints, text: Bytes, start: int, length: int, m: Memory) -> int:
    """Returns the slot of a text in a hash table; the free one for it if it is not stored."""
    mask = len(slots) - 1
    slot = finished(text_hash(m.seed[0], text, start, length)) & mask
    while slots[slot] != 0 and not same_text(m, slots[slot], text, start, length):
        slot = (slot + 1) & mask
    return slot


@entry
def find_text(text: bytes, m: Memory) -> int:
    """Returns the reference to a text, or -1 if it is not stored."""
    ref = m.text_slots[text_slot(m.text_slots, text, 0, len(text), m)]
    return ref if ref > 0 else -1


@entry
def put_text(text: bytes, start: int, length: int, used: int, m: Memory) -> int:
    """Returns the reference to a text; a new one is stored behind the `used` bytes.

    There must be room for it, for its uses, and in the hash table.
    """
    slot = text_slot(m.text_slots, text, start, length, m)
    if m.text_slots[slot] == 0:
        at = used + USES_BYTES
        for i in range(length):
            m.texts[at + i] = text[start + i]
        m.text_slots[slot] = (at << TEXT_SHIFT) + length
    return m.text_slots[slot]


@entry
def enter_text(ref: int, slots: Ints, m: Memory) -> None:
    """Enters a text into a hash table, once."""
    slots[text_slot(slots, m.texts, ref >> TEXT_SHIFT, ref & LENGTH_MASK, m)] = ref


@entry
def rehash_texts(first: int, end: int, slots: Ints, m: Memory) -> None:
    """Enters the texts in some slots of the hash table into another one."""
    for i in range(first, end):
        if m.text_slots[i] != 0:
            enter_text(m.text_slots[i], slots, m)


@kernel
def count_use(ref: int, change: int, m: Memory) -> int:
    """Counts one use of a text more or less; returns the bytes that are unused afterwards more."""
    at = (ref >> TEXT_SHIFT) - USES_BYTES
    uses = 0
    for i in range(USES_BYTES):
        uses |= m.texts[at + i] << (8 * i)
    more, uses = 0, uses + change
    if uses == 0:
        more, uses = ref & LENGTH_MASK, UNUSED
    elif uses & UNUSED != 0:
        more, uses = -(ref & LENGTH_MASK), uses - UNUSED
    for i in range(USES_BYTES):
        m.texts[at + i] = (uses >> (8 * i)) & 0xFF
    return more


@entry
def count_uses(number: int, change: int, m: Memory) -> int:
    """Counts one filter more or less with its texts; returns by how many bytes more are unused."""
    program, word = m.program, m.filters[number].begin + 1
    end, unused = word + (program[word - 1] & WORDS_MASK), 0
    while word < end:
        op = (program[word] >> OP_SHIFT) & OP_MASK
        if op == OP_TEXT or op == OP_TEXT_RANGE:
            unused += count_use(operand(program, word + 1), change, m)
        if op == OP_TEXT_RANGE and operand(program, word + 3) >= 0:
            unused += count_use(operand(program, word + 3), change, m)
        word += 5 if op == OP_RANGE or op == OP_TEXT_RANGE else 3
    return unused
