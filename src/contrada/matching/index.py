"""`Index`: which keys' filters match a notification.

The index maps keys to slots, and slots to the filters of a generation (see `generation`), which
are matched by kernels on flat arrays. `maintain` renews the generation in bounded pieces: when
much of it is unused, a second generation is filled beside the first, all places chosen anew by
what was seen, and takes over when it holds everything. `renew` does so at once. Matching goes on
meanwhile and is always exact.

Source: PODC 2000 §5 (the cost of matching).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np

from contrada.matching import jit, saving
from contrada.matching.arrays import grow_for
from contrada.matching.batches import columns_of, match_columns
from contrada.matching.generation import Generation
from contrada.matching.relating import touching
from contrada.matching.tables import CANDIDATES, INEXACT, LOOKED, OUT, SEEN_ALL, SIMPLE, UNREADABLE
from contrada.model import Filter, FilterSet, Notification, Product, Value
from contrada.model.product import ENVELOPE_SETS, product_meets
from contrada.model.relations import covers, witness
from contrada.model.values import TIME, datetime_of

K = TypeVar("K", bound=Hashable)

WORK_PLAIN_MAX: Final = 200_000
"""Steps of matching in plain Python before compiled kernels are loaded from their cache: about
as long as loading them takes. A notification counts for some, and each entry looked at for one."""

WORK_UNCACHED_MAX: Final = 8_000_000
"""The same where the kernels must be compiled first, once per machine."""

_WORK_PER_NOTIFICATION: Final = 30

UNUSED_WORDS_MIN: Final = 65_536
"""A generation is renewed when at least as many of its words, and half of them, are unused."""

_UNSTAMPED: Final = Notification({})

_encode: Final = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """What an index holds and did.

    `filters` are distinct; `everywhere` is how many of them every notification is checked
    against; `pooled` how many are matched by bitmaps; `candidates` is how many filters the last
    notification was checked against;
    `bytes` is the memory of the arrays.
    """

    keys: int
    filters: int
    attributes: int
    buckets: int
    everywhere: int
    pooled: int
    bytes: int
    notifications: int
    candidates: int
    is_compiled: bool
    renewing: bool


class Index(Generic[K]):
    """Keys with their filters. `match` gives the keys of which a filter matches.

    Matching begins in plain Python. Where Numba is installed, compiled kernels take over as
    soon as so much was matched that it pays. Then `load` is called, once; by default it loads
    them, which takes about a second from a cache on disk, and up to a minute once per machine.
    A service gives a `load` that does so beside its work; until they are there plain Python goes
    on. `compiled=True` loads at once, `compiled=False` never; the answers are the same.

    An index is used by one thread at a time.
    """

    def __init__(
        self, *, compiled: bool | None = None, load: Callable[[], object] = jit.compiled
    ) -> None:
        self._at_once = compiled is True
        self._load: Callable[[], object] | None = load
        self._work = 0
        self._generation = Generation()
        self._next: Generation | None = None
        self._cursor = 0
        self._slots: dict[K, int] = {}
        self._keys: Any = np.empty(8, dtype=object)
        self._numbers: list[tuple[int, ...]] = []
        self._next_numbers: dict[int, tuple[int, ...]] = {}
        self._free: list[int] = []
        self._envelope: tuple[str, ...] = ()
        self._system = False
        self._plain = compiled is not False

    # --- keys ---------------------------------------------------------------------------------

    def add(self, key: K, subscription: Filter | FilterSet) -> None:
        """Gives a key its filter or filters, instead of those it had.

        Cost: some microseconds per constraint.
        """
        if key in self._slots:
            self.remove(key)
        slot = self._slots[key] = self._slot_for(key)
        members = subscription.filters if isinstance(subscription, FilterSet) else (subscription,)
        try:
            self._numbers[slot] = self._added(self._generation, members, slot)
        except BaseException:
            self._give_back(key, slot)
            raise
        if self._next is not None:
            self._next_numbers[slot] = self._added(self._next, members, slot)
        if any(name[0] == "@" for member in members for name in member.sets):
            self._system = True
            attrs = self._generation.compiler.attrs
            self._envelope = tuple(name for name in ENVELOPE_SETS if name in attrs)

    def remove(self, key: K) -> None:
        """Takes a key and its filters away; a key that is not there is no error."""
        slot = self._slots.get(key)
        if slot is None:
            return
        for number in self._numbers[slot]:
            self._generation.remove(number, slot)
        if self._next is not None:
            for number in self._next_numbers.pop(slot, ()):
                self._next.remove(number, slot)
        self._give_back(key, slot)

    def _give_back(self, key: K, slot: int) -> None:
        del self._slots[key]
        self._keys[slot] = None
        self._numbers[slot] = ()
        self._free.append(slot)

    def _slot_for(self, key: K) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._numbers)
            self._numbers.append(())
            if slot >= len(self._keys):
                more = np.empty(2 * len(self._keys), dtype=object)
                more[: len(self._keys)] = self._keys
                self._keys = more
        for generation in (self._generation, self._next):
            if generation is not None:
                generation.arrays.reserve("key_seen", slot + 1)
        self._keys[slot] = key
        return slot

    def _added(
        self, generation: Generation, members: Iterable[Filter], slot: int
    ) -> tuple[int, ...]:
        """The numbers of a key's filters in a generation, equal ones once; all or none."""
        key = self._keys[slot]
        numbers: list[int] = []
        try:
            for member in members:
                number = generation.add(member, slot, key)
                if number in numbers:
                    generation.remove(number, slot)
                else:
                    numbers.append(number)
        except BaseException:
            for number in numbers:
                generation.remove(number, slot)
            raise
        if len(numbers) > 1:
            generation.no_longer_simple()
        return tuple(numbers)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        return key in self._slots

    def _compile_in_time(self) -> None:
        """Goes over to compiled kernels once they are there, or pay."""
        if self._load is not None and self._compiling_pays():
            load, self._load = self._load, None
            load()
        if jit.is_loaded():
            self._plain = False
            for generation in (self._generation, self._next):
                if generation is not None:
                    generation.arrays.use_compiled()

    def _compiling_pays(self) -> bool:
        """Whether as much was done in plain Python as loading would have taken."""
        self._work += _WORK_PER_NOTIFICATION + int(self._generation.arrays.of["counters"][LOOKED])
        if self._at_once or self._work >= WORK_UNCACHED_MAX:
            return True
        return self._work >= WORK_PLAIN_MAX and jit.is_cached()

    # --- matching -----------------------------------------------------------------------------

    def match(self, notification: Notification | Mapping[str, Value | Iterable[Value]]) -> list[K]:
        """The keys with a filter that matches the notification, each once, in no order.

        A mapping is taken as the attributes of a notification that is not stamped yet; only what
        filters ask for is looked at, and names that begin with `@` are passed over.
        Cost: near the size of the answer; see docs/matching.md.
        """
        if self._plain:
            self._compile_in_time()
        arrays = self._generation.arrays
        msg = self._message(notification)
        status = arrays.match(msg)
        while status < 0:
            if status == UNREADABLE:
                assert not isinstance(notification, Notification), "a notification is readable"
                return self.match(Notification(self._asked_for(notification)))
            grow_for(arrays, status)
            status = arrays.match(msg)
        counters = arrays.of["counters"]
        count = int(counters[OUT])
        if count == 0:
            return []
        out = arrays.of["out"][:count]
        if self._generation.exact or counters[INEXACT]:
            return self._verified(out.tolist(), notification)
        keys = self._generation.keys if counters[SIMPLE] else self._keys
        return keys[out].tolist()  # type: ignore[no-any-return]

    def _message(self, notification: Notification | Mapping[str, Value | Iterable[Value]]) -> bytes:
        """The attributes as msgpack, with those of the envelope that filters ask for."""
        attributes: Any = notification
        if isinstance(notification, Notification):
            attributes = notification.raw
            if not self._generation.arrays.is_compiled:
                # Plain Python pays for every name that it must read only to pass it over.
                asked = self._generation.compiler.attrs
                attributes = {name: attributes[name] for name in asked if name in attributes}
        elif self._system or not self._generation.arrays.is_compiled:
            attributes = self._asked_for(notification)
        if self._envelope:
            of = notification if isinstance(notification, Notification) else _UNSTAMPED
            attributes = {**attributes, **_envelope_of(of, self._envelope)}
        try:
            return _encode(attributes)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            if isinstance(notification, Notification):
                raise
            return self._message(Notification(self._asked_for(notification)))

    def _asked_for(
        self, attributes: Mapping[str, Value | Iterable[Value]]
    ) -> dict[str, Value | Iterable[Value]]:
        """Those attributes of a mapping that filters ask for and that a mapping may have."""
        asked = self._generation.compiler.attrs
        return {n: v for n, v in attributes.items() if n in asked and n[:1] != "@"}

    def _verified(
        self, found: list[int], given: Notification | Mapping[str, Value | Iterable[Value]]
    ) -> list[K]:
        """The keys of what was found, and of the filters that hold on the values themselves."""
        notification = given if isinstance(given, Notification) else None
        if notification is None:
            notification = Notification(self._asked_for(given))  # type: ignore[arg-type]
        inexact = bool(self._generation.arrays.of["counters"][INEXACT])
        known: dict[int, bool] = {}
        slots: dict[int, None] = {}
        simple = bool(self._generation.arrays.of["counters"][SIMPLE])
        for each in found:
            if each >= 0:
                slots.update(dict.fromkeys(self._generation.slots(each) if simple else (each,)))
            elif self._holds(-1 - each, notification, inexact, known):
                slots.update(dict.fromkeys(self._generation.slots(-1 - each)))
        return [self._keys[slot] for slot in slots]

    def _holds(
        self, number: int, notification: Notification, inexact: bool, known: dict[int, bool]
    ) -> bool:
        """Whether a filter holds; a set with an opaque operator is asked once per notification.

        An operator that nobody registered here meets everything.
        """
        opaque = self._generation.opaque.get(number)
        if opaque is None or inexact:
            member = self._generation.filter(number)
            if not member.unknown():
                return member.matches(notification)
            opaque = opaque or []
        for each in opaque:
            if each not in known:
                value_set = self._generation.compiler.opaque_sets[each]
                name = self._generation.compiler.names[
                    int(self._generation.arrays.of["set_starts"][each, 1])
                ]
                known[each] = bool(value_set.unknown()) or any(
                    value_set.holds(key) for key in notification.keys_of(name)
                )
            if not known[each]:
                return False
        return True

    def match_batch(
        self, notifications: Iterable[Notification | Mapping[str, Value | Iterable[Value]]] | Any
    ) -> tuple[Any, Any]:
        """The keys for each of many notifications: (offsets, keys), two arrays.

        The keys of notification i are `keys[offsets[i] : offsets[i + 1]]`. An Arrow table is a
        batch of rows, where NULL is absent; its columns are matched as they are.
        """
        if not hasattr(notifications, "to_pylist"):
            return self._matched_one_by_one(notifications)
        found = self._matched_columns(notifications)
        if found is not None:
            return found
        rows = notifications.to_pylist()
        return self._matched_one_by_one(
            {name: value for name, value in row.items() if value is not None} for row in rows
        )

    def _matched_one_by_one(self, notifications: Iterable[Any]) -> tuple[Any, Any]:
        offsets: list[int] = [0]
        keys: list[K] = []
        for notification in notifications:
            keys += self.match(notification)
            offsets.append(len(keys))
        array = np.empty(len(keys), dtype=object)
        array[:] = keys
        return np.array(offsets, dtype=np.int64), array

    def _matched_columns(self, table: Any) -> tuple[Any, Any] | None:
        """A table matched in columns; None where that cannot be done."""
        if self._plain:
            self._compile_in_time()
        generation = self._generation
        if not generation.arrays.is_compiled or generation.exact or self._envelope:
            return None
        columns = columns_of(table, generation.compiler.attrs)
        if columns is None:
            return None
        offsets, found = match_columns(generation.arrays, columns, table.num_rows)
        simple = generation.arrays.of["counters"][SIMPLE]
        return offsets, (generation.keys if simple else self._keys)[found]

    # --- relations ----------------------------------------------------------------------------

    def covering(self, product: Filter) -> list[K]:
        """The keys whose filter, or union of filters, covers the filter.

        Exact within the limits of the algebra. Cost: one match, and the candidates.
        """
        example = witness(product)
        keys = list(self._slots) if example is None else self.match(example)
        return [key for key in keys if covers(self.subscription(key), product)]

    def covered(self, product: Filter | FilterSet) -> list[K]:
        """The keys whose filter, or union of filters, the filter covers.

        Exact within the limits of the algebra. Cost: a look at every filter, and the candidates.
        """
        if isinstance(product, FilterSet):
            return [key for key in self._slots if product.covers(self.subscription(key))]
        possible = set(touching(self._generation, product, inside=True))
        possible |= self._generation.empty()
        return [
            key
            for key, slot in self._slots.items()
            if possible.issuperset(self._numbers[slot]) and covers(product, self.subscription(key))
        ]

    def meeting(self, product: Product) -> list[K]:
        """The keys whose filter meets a filter, an advertisement or a query.

        Exact within the limits of the algebra. Cost: a look at every filter, and the candidates.
        """
        slots: dict[int, None] = {}
        for number in touching(self._generation, product, inside=False):
            if product_meets(self._generation.filter(number), product):
                slots.update(dict.fromkeys(self._generation.slots(number)))
        return [self._keys[slot] for slot in slots]

    def subscription(self, key: K) -> Filter | FilterSet:
        """The filter, or filter set, of a key. KeyError where there is none."""
        numbers = self._numbers[self._slots[key]]
        members = [self._generation.filter(number) for number in numbers]
        return members[0] if len(members) == 1 else FilterSet(members)

    # --- upkeep -------------------------------------------------------------------------------

    def maintain(self, units: int = 64) -> bool:
        """Does a bounded piece of upkeep; whether more is waiting.

        A unit is one key: some tens of microseconds for a key with one filter.
        """
        if self._next is None:
            if not self._is_worn():
                return False
            self.begin_renewal()
        assert self._next is not None
        end = min(self._cursor + units, len(self._numbers))
        for slot in range(self._cursor, end):
            if slot not in self._next_numbers:
                members = [self._generation.filter(n) for n in self._numbers[slot]]
                self._next_numbers[slot] = self._added(self._next, members, slot)
        self._cursor = end
        if end == len(self._numbers):
            self._end_renewal()
            return False
        return True

    def renew(self) -> None:
        """Chooses all places anew, by what was seen meanwhile, and frees what is unused."""
        if self._next is None:
            self.begin_renewal()
        while self.maintain(4096):
            pass

    def _is_worn(self) -> bool:
        generation = self._generation
        unused = generation.words_unused
        return unused >= UNUSED_WORDS_MIN and 2 * unused >= generation.arrays.used["program"]

    def begin_renewal(self) -> None:
        """Starts a second generation, which `maintain` then fills piece by piece."""
        self._next = Generation(self._generation)
        self._next.arrays.reserve("key_seen", len(self._keys))
        if self._generation.arrays.is_compiled:
            self._next.arrays.use_compiled()
        self._cursor = 0
        self._next_numbers = {}

    def _end_renewal(self) -> None:
        assert self._next is not None
        for slot, numbers in self._next_numbers.items():
            self._numbers[slot] = numbers
        self._generation, self._next = self._next, None
        self._generation.forget_statistics()
        self._next_numbers = {}

    def save(self, path: str | Path) -> None:
        """Writes the index to a file that `load` maps. A file of that name is replaced.

        Raises EncodingError for keys that are not None, bool, int, float, str, bytes, or tuples
        of these.
        """
        keys = self._keys[: len(self._numbers)].tolist()
        saving.save(Path(path), self._generation, saving.Slots(keys, self._numbers, self._free))

    @classmethod
    def load(cls, path: str | Path, *, compiled: bool | None = None) -> "Index[Any]":
        """The index that was saved. Its arrays are mapped: processes share what none changes.

        Raises EncodingError for another file or version, OSError where it cannot be read.
        """
        index: Index[Any] = cls(compiled=compiled)
        generation, (keys, numbers, free) = saving.load(Path(path))
        index._generation, index._numbers, index._free = generation, numbers, free
        index._keys = np.empty(len(keys) + 8, dtype=object)
        generation.arrays.reserve("key_seen", len(keys) + 8)
        for slot in set(range(len(keys))).difference(free):
            key = index._keys[slot] = keys[slot]
            index._slots[key] = slot
            for number in numbers[slot]:
                generation.keys[number] = key
        attrs = generation.compiler.attrs
        index._system = any(name[0] == "@" for name in attrs)
        index._envelope = tuple(name for name in ENVELOPE_SETS if name in attrs)
        return index

    def statistics(self) -> IndexStatistics:
        """A frozen view of what the index holds and did."""
        counters = self._generation.arrays.of["counters"]
        return IndexStatistics(
            keys=len(self._slots),
            notifications=int(counters[SEEN_ALL]),
            candidates=int(counters[CANDIDATES]),
            is_compiled=self._generation.arrays.is_compiled,
            renewing=self._next is not None,
            **self._generation.sizes(),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all filters."""
        self._generation.validate()
        for key, slot in self._slots.items():
            assert self._keys[slot] == key, f"key {key!r} has another's slot"
            for number in self._numbers[slot]:
                assert slot in set(self._generation.slots(number)), f"key {key!r} lost a filter"


def _envelope_of(notification: Notification, names: tuple[str, ...]) -> dict[str, Value]:
    """The envelope's attributes as values."""
    found: dict[str, Value] = {}
    for name in names:
        ((domain, comparable),) = notification.keys_of(name)
        found[name] = datetime_of(comparable) if domain == TIME else comparable  # type: ignore[arg-type]
    return found
