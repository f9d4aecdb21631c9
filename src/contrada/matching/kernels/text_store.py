"""Kernels of the store of texts: each name and constant once, with the number of its uses."""

from contrada.matching.kernels import schema
from contrada.matching.kernels.evaluate import constraint_words, operand, same_text
from contrada.matching.kernels.memory import entry, kernel
from contrada.matching.kernels.schema import Bytes, Ints, Memory
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
        at = used + schema.USES_BYTES
        for i in range(length):
            m.texts[at + i] = text[start + i]
        m.text_slots[slot] = (at << schema.TEXT_SHIFT) + length
    return m.text_slots[slot]


@entry
def enter_text(ref: int, slots: Ints, m: Memory) -> None:
    """Enters a text into a hash table, once."""
    slots[text_slot(slots, m.texts, ref >> schema.TEXT_SHIFT, ref & schema.LENGTH_MASK, m)] = ref


@entry
def rehash_texts(first: int, end: int, slots: Ints, m: Memory) -> None:
    """Enters the texts in some slots of the hash table into another one."""
    for i in range(first, end):
        if m.text_slots[i] != 0:
            enter_text(m.text_slots[i], slots, m)


@kernel
def count_use(ref: int, change: int, m: Memory) -> int:
    """Counts one use of a text more or less; returns the bytes that are unused afterwards more."""
    at, size = (
        (ref >> schema.TEXT_SHIFT) - schema.USES_BYTES,
        schema.USES_BYTES + (ref & schema.LENGTH_MASK),
    )
    uses = 0
    for i in range(schema.USES_BYTES):
        uses |= m.texts[at + i] << (8 * i)
    more, uses = 0, uses + change
    if uses == 0:
        more, uses = size, schema.UNUSED
    elif uses & schema.UNUSED != 0:
        more, uses = -size, uses - schema.UNUSED
    for i in range(schema.USES_BYTES):
        m.texts[at + i] = (uses >> (8 * i)) & 0xFF
    return more


@entry
def count_uses(number: int, change: int, m: Memory) -> int:
    """Counts one filter more or less with its texts, names too; returns the bytes unused more."""
    program, word = m.program, m.filters[number].begin + 1
    end, unused = word + (program[word - 1] & schema.WORDS_MASK), 0
    while word < end:
        op = (program[word] >> schema.OP_SHIFT) & schema.OP_MASK
        unused += count_use(m.attrs[program[word] & schema.ATTR_MASK].name, change, m)
        if op == schema.OP_TEXT or op == schema.OP_TEXT_RANGE:
            unused += count_use(operand(program, word + 1), change, m)
        if op == schema.OP_TEXT_RANGE and operand(program, word + 3) >= 0:
            unused += count_use(operand(program, word + 3), change, m)
        word += constraint_words(op)
    return unused
