"""`KeyTable`: keys by small numbers, their slots, as kernels use them.

As long as all keys are integers of 64 bits they are in one array, with a hash table of their slots:
no work for the garbage collector, and a fifth of the memory of a dictionary. With the first other
key all become objects, in an array of objects and a dictionary.

Invariant, checked by `validate`: a key's slot leads to the key, and the free slots to none.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import numpy as np

from contrada.matching.index_arrays import grow_array
from contrada.matching.kernels.update import drop_key, find_key, rehash_keys

K = TypeVar("K", bound=Hashable)

_FIRST_INT: Final = -(2**63)
_LAST_INT: Final = 2**63 - 1


class KeyTable(Generic[K]):
    """The slots of keys. `keys` is the array of the keys by slot: of integers, or of objects."""

    def __init__(self) -> None:
        self.keys: Any = np.zeros(8, dtype=np.int64)
        self.are_int = True
        self.used = 0
        self._free: list[int] = []
        self._slots: dict[K, int] = {}
        self._hashed: Any = np.zeros(16, dtype=np.int32)

    def find(self, key: object) -> int:
        """Returns the slot of a key, or a number below 0, for `take`."""
        if not self.are_int:
            return self._slots.get(key, -1)  # type: ignore[arg-type]
        number = _as_int(key)
        return -1 if number is None else int(find_key(number, self.keys, self._hashed))

    def take(self, key: K, found: int) -> int:
        """Returns a slot for a new key: `found` is the last result of `find`, with no change since.

        Raises TypeError for an invalid key.
        """
        hash(key)
        if self.are_int and (type(key) is not int or _as_int(key) is None):
            self._become_objects(list(self))
        hashed = self._hashed
        if self._free:
            slot = self._free.pop()
        else:
            slot = self.used
            self.used += 1
            self.reserve(self.used)
        self._put(key, slot, found if hashed is self._hashed else None)
        return slot

    def _put(self, key: K, slot: int, found: int | None = None) -> None:
        """Gives a key a slot; `found` is the result of `find_key`."""
        if self.are_int:
            place = find_key(key, self.keys, self._hashed) if found is None else found
            self._hashed.data[-1 - place] = slot + 1
        else:
            self._slots[key] = slot
        self.keys[slot] = key

    def free_slot(self, slot: int) -> None:
        """Frees the slot of a key."""
        if self.are_int:
            drop_key(int(self.keys[slot]), self.keys, self._hashed)
        else:
            del self._slots[self.keys[slot]]
            self.keys[slot] = None
        self._free.append(slot)

    def __len__(self) -> int:
        return self.used - len(self._free)

    def __iter__(self) -> Iterator[int]:
        """Iterates over the slots of all keys."""
        free = set(self._free)
        return (slot for slot in range(self.used) if slot not in free)

    def reserve(self, slots: int) -> None:
        """Makes room for this many slots."""
        if slots > len(self.keys):
            self.keys = grow_array(self.keys, slots)
            if not self.are_int:
                self.keys[slots - 1 :] = None
        if self.are_int and 3 * slots > 2 * len(self._hashed):
            old, size = self._hashed, len(self._hashed)
            while 3 * slots > 2 * size:
                size *= 2
            self._hashed = np.zeros(size, dtype=np.int32)
            rehash_keys(old, self.keys, self._hashed)

    def by_slot(self) -> list[Any]:
        """Returns the key of each slot; None at free ones."""
        found: list[Any] = self.keys[: self.used].tolist()
        for slot in self._free:
            found[slot] = None
        return found

    @property
    def free(self) -> list[int]:
        """The free slots."""
        return self._free

    @classmethod
    def of(cls, keys: list[K], free: list[int]) -> "KeyTable[K]":
        """Returns the slots of `by_slot` and `free`."""
        slots: KeyTable[K] = cls()
        slots.used, slots._free = len(keys), list(free)
        slots.reserve(slots.used)
        taken = list(slots)
        if not all(type(keys[slot]) is int and _as_int(keys[slot]) is not None for slot in taken):
            slots._become_objects([])
        for slot in taken:
            slots._put(keys[slot], slot)
        return slots

    def validate(self) -> None:
        """Checks the invariant. Cost: all keys."""
        for slot in self:
            assert self.find(self.keys[slot]) == slot, f"slot {slot} is not that of its key"
        hashed = int(np.count_nonzero(self._hashed)) if self.are_int else len(self._slots)
        assert hashed == len(self), f"{hashed} keys are to be found, {len(self)} are there"

    def _become_objects(self, slots: Iterable[int]) -> None:
        keys = np.empty(max(8, self.used), dtype=object)
        for slot in slots:
            keys[slot] = key = int(self.keys[slot])
            self._slots[key] = slot  # type: ignore[index]
        self.keys, self.are_int = keys, False
        self._hashed = np.zeros(1, dtype=np.int32)


def _as_int(key: object) -> int | None:
    """Returns the integer of 64 bits that a key equals, as 1.0 and True equal 1, or None."""
    number: int
    if type(key) is int:
        number = key
    else:
        try:
            number = int(key)  # type: ignore[call-overload]
        except (TypeError, ValueError, OverflowError):
            return None
        if number != key:
            return None
    return number if _FIRST_INT <= number <= _LAST_INT else None
