"""`KeyTable`: keys by small numbers, their slots, as kernels use them.

As long as all keys are integers of 64 bits they are in one array, with a hash table of their slots:
no work for the garbage collector, and a fifth of the memory of a dictionary. With the first other
key all become objects, in a list and a dictionary.

Invariant, checked by `validate`: a key's slot leads to the key, and the free slots to none.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

from contrada.matching.index_arrays import grown
from contrada.matching.kernels.key_lookup import drop_key, find_key, rehash_keys
from contrada.matching.kernels.memory import Rows
from contrada.matching.kernels.schema import ARRAYS, Layout
from contrada.matching.table_growth import TableGrowth

K = TypeVar("K", bound=Hashable)

_SLOT: Final = Layout("i")
_FIRST_INT: Final = -(2**63)
_LAST_INT: Final = 2**63 - 1


class KeyTable(Generic[K]):
    """The slots of keys. `keys` has the keys by slot: `Rows` of integers, or a list of objects."""

    def __init__(self) -> None:
        self.keys: Any = Rows.zeros(ARRAYS["keys"], 8)
        self.are_int = True
        self.used = 0
        self.free: list[int] = []
        self._slots: dict[K, int] = {}
        self._hashed = Rows.zeros(_SLOT, 16)
        self._growth = TableGrowth()

    def find(self, key: object) -> int:
        """Returns the slot of a key, or a number below 0, for `take`."""
        if not self.are_int:
            return self._slots.get(key, -1)  # type: ignore[arg-type]
        number = key if type(key) is int else _as_int(key)
        if number is None or not _FIRST_INT <= number <= _LAST_INT:
            return -1
        return find_key(number, self.keys.numbers, self._hashed.numbers)

    def take(self, key: K, found: int) -> int:
        """Returns a slot for a new key; `found` is the last result of `find`. Raises TypeError."""
        hash(key)
        if self.are_int and not _fits(key):
            self._become_objects(list(self))
        hashed = self._hashed
        if self.free:
            slot = self.free.pop()
        else:
            slot = self.used
            self.used += 1
            self.reserve(self.used)
        self._put(key, slot, found if hashed is self._hashed else None)
        return slot

    def _put(self, key: K, slot: int, found: int | None = None) -> None:
        """Gives a key a slot; `found` is the result of `find_key`."""
        if self.are_int:
            hashed, number = self._hashed.numbers, int(key)  # type: ignore[call-overload]
            place = find_key(number, self.keys.numbers, hashed) if found is None else found
            hashed[-1 - place] = slot + 1
            self.keys.numbers[slot] = number
            self._growth.put(slot, self._fill)
        else:
            self._slots[key] = slot
            self.keys[slot] = key

    def free_slot(self, slot: int) -> None:
        """Frees the slot of a key."""
        if self.are_int:
            keys, larger = self.keys.numbers, self._growth.larger
            drop_key(keys[slot], keys, self._hashed.numbers)
            if larger is not None and slot < self._growth.filled:
                drop_key(keys[slot], keys, larger.numbers)
        else:
            key, self.keys[slot] = self.keys[slot], None
            del self._slots[key]  # It may be finalized after the last line.
        self.free.append(slot)

    def __len__(self) -> int:
        return self.used - len(self.free)

    def __iter__(self) -> Iterator[int]:
        free = set(self.free)
        return (slot for slot in range(self.used) if slot not in free)

    def reserve(self, slots: int) -> None:
        """Makes room for this many slots, one of them a new one."""
        if not self.are_int:
            self.keys += [None] * (slots - len(self.keys))
            return
        if slots > self.keys.size:
            self.keys = grown(self.keys, slots)
        if self._growth.larger is not None or 2 * slots > self._hashed.size:
            self._hashed = self._growth.grown(self._hashed, slots - 1, slots, slots, self._fill)

    def _fill(self, first: int, end: int, table: Any) -> None:
        rehash_keys(first, end, table, self.keys.numbers, self._hashed.numbers)

    def keys_at(self, slots: Iterable[int]) -> list[K]:
        """Returns the keys of these slots."""
        keys = self.keys.numbers if self.are_int else self.keys
        return [keys[slot] for slot in slots]

    def by_slot(self) -> list[Any]:
        """Returns the key of each slot; None at free ones."""
        keys = self.keys.numbers if self.are_int else self.keys
        found = list(keys[: self.used])
        for slot in self.free:
            found[slot] = None
        return found

    @classmethod
    def of(cls, keys: list[K], free: list[int]) -> "KeyTable[K]":
        """Returns the slots of `by_slot` and `free`."""
        slots: KeyTable[K] = cls()
        slots.used, slots.free = len(keys), list(free)
        slots.reserve(slots.used)
        taken = list(slots)
        if not all(_fits(keys[slot]) for slot in taken):
            slots._become_objects([])
        for slot in taken:
            slots._put(keys[slot], slot)
        return slots

    def validate(self) -> None:
        """Checks the invariant. Cost: all keys."""
        keys = self.by_slot()
        for slot in self:
            assert self.find(keys[slot]) == slot, f"slot {slot} is not that of its key"
        hashed = sum(map(bool, self._hashed.numbers)) if self.are_int else len(self._slots)
        assert hashed == len(self), f"{hashed} keys are to be found, {len(self)} are there"

    def _become_objects(self, slots: Iterable[int]) -> None:
        keys: list[Any] = [None] * max(8, self.used)
        for slot in slots:
            keys[slot] = key = self.keys.numbers[slot]
            self._slots[key] = slot
        self.keys, self.are_int = keys, False
        self._hashed, self._growth = Rows.zeros(_SLOT, 1), TableGrowth()


def _as_int(key: object) -> int | None:
    """Returns the integer that a key of another type equals, as 1.0 and True equal 1, or None."""
    try:
        number: int = int(key)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number == key else None


def _fits(key: object) -> bool:
    return type(key) is int and _FIRST_INT <= key <= _LAST_INT
