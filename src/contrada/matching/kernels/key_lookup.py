"""Kernels of the hash table of integer keys, and of their slots (see `matching.key_table`)."""

from contrada.matching.kernels.memory import entry, kernel
from contrada.matching.kernels.schema import HASH_BITS, Ints, RowNumbers
from contrada.matching.kernels.scratch import FIXED_SEED, finished, mixed


@kernel
def key_hash(key: int) -> int:
    """Returns the hash of an integer key."""
    return finished(mixed(FIXED_SEED, mixed(FIXED_SEED, 0, key), key >> HASH_BITS))


@entry
def find_key(key: int, keys: Ints, slots: RowNumbers) -> int:
    """Returns the slot of an integer key, or -1 - the free place of the hash table."""
    mask = len(slots) - 1
    place = key_hash(key) & mask
    while True:
        slot = slots[place] - 1
        if slot < 0:
            return -1 - place
        if keys[slot] == key:
            return slot
        place = (place + 1) & mask


@entry
def drop_key(key: int, keys: Ints, slots: RowNumbers) -> None:
    """Takes a key out of the hash table; those behind it move up, so that all are found."""
    mask = len(slots) - 1
    hole = key_hash(key) & mask
    while keys[slots[hole] - 1] != key:
        hole = (hole + 1) & mask
    place = hole
    while True:
        place = (place + 1) & mask
        if slots[place] == 0:
            break
        # It may move up to the hole unless the place that it wants lies behind it, in the circle.
        wanted = key_hash(keys[slots[place] - 1]) & mask
        if (place - wanted) & mask >= (place - hole) & mask:
            slots[hole] = slots[place]
            hole = place
    slots[hole] = 0


@entry
def rehash_keys(first: int, end: int, slots: RowNumbers, keys: Ints, old: RowNumbers) -> None:
    """Enters the keys of some slots into a hash table: those that the old one has, each once."""
    for slot in range(first, end):
        if find_key(keys[slot], keys, old) == slot:
            place = find_key(keys[slot], keys, slots)
            if place < 0:
                slots[-1 - place] = slot + 1
