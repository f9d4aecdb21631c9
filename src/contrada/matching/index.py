"""`Index`: which keys' filters match a notification.

The index maps keys to slots, and slots to the filters of a generation (see `generation`), which
are matched by kernels on flat arrays. A match that had to look at many filters hangs some of them
elsewhere (see `drift`). `maintain` renews the generation in bounded pieces: when
much of it is unused, a second generation is filled beside the first, all places chosen anew by
what was seen, and takes over when it holds everything. `renew` does so at once. Matching goes on
meanwhile and is always exact.

Source: PODC 2000 §5 (the cost of matching).
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np

from contrada.matching import jit, saving
from contrada.matching.arrays import grow_for
from contrada.matching.batches import (
    Columns,
    Spans,
    asked_for,
    check_columns,
    columns_of,
    match_rows,
    notification_of,
    row_of,
    rows_of,
    span_in,
    spans_at,
    spans_in,
    spans_of,
    with_envelope,
)
from contrada.matching.drift import Drift
from contrada.matching.generation import Generation
from contrada.matching.relating import touching
from contrada.matching.slots import Slots
from contrada.matching.tables import (
    CANDIDATES,
    DOUBTED,
    INEXACT,
    KEYED,
    LOOKED,
    MATCHED,
    OUT,
    SET_ATTR,
    UNREADABLE,
)
from contrada.model import (
    Envelope,
    Filter,
    FilterSet,
    Notification,
    Product,
    Selection,
    Value,
)
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.algebra.product import ENVELOPE_SETS, product_meets
from contrada.model.algebra.relations import covers, witness

K = TypeVar("K", bound=Hashable)

Given: TypeAlias = Notification | Mapping[str, Value | Iterable[Value]]
"""What is matched: a notification, or the attributes of one that is not stamped."""

WORK_PLAIN_MAX: Final = 200_000
"""Steps of matching in plain Python, where compiled kernels are cached. About as long as loading
them takes. A notification counts for some, each entry looked at for one. Beyond it: the kernels
are loaded."""

WORK_UNCACHED_MAX: Final = 8_000_000
"""The same steps, where the kernels must be compiled first, once per machine. Beyond it: they are
compiled."""

_WORK_PER_NOTIFICATION: Final = 30

UNITS_PER_UPDATE: Final = 4
"""Keys of a renewal that is under way for which an update pays."""

UNITS_PER_MATCH: Final = 1
"""The same of a match, or of a batch."""

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

    Matching begins in plain Python. Where Numba is installed, compiled kernels take over where
    they are loaded already, or as soon as so much was matched that it pays. Then `load` is called,
    once; by default it loads them, which takes about a second from a cache on disk, and up to a
    minute once per machine. A service gives a `load` that does so beside its work; until they are
    there plain Python goes on. `compiled=True` loads at once, `compiled=False` never; the answers
    are the same.

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
        self._last: Generation | None = None
        self._cursor = 0
        self._drift = Drift()
        self._in_batch = False
        self._slots: Slots[K] = Slots()
        self._named: Any = None
        self._envelope: tuple[str, ...] = ()
        self._system_names = 0
        self._plain = compiled is not False

    # --- keys ---------------------------------------------------------------------------------

    def add(self, key: K, subscription: Selection) -> None:
        """Gives a key its filter or filters, instead of those it had.

        Raises TypeError for what is no filter or cannot be a key, LimitError for what is too
        large; then the key keeps what it had. Cost: some microseconds per constraint.
        """
        hash(key)
        if self._plain and jit.is_loaded():
            self._use_compiled()
        if not isinstance(subscription, Selection):
            raise TypeError(f"an index takes a Filter or a FilterSet, not {subscription!r}")
        members = subscription.filters
        programs = self._generation.compiler.programs(members)
        beside = [] if self._next is None else self._next.compiler.programs(members)
        found = self._slots.find(key)
        if found >= 0:
            self._remove(found)
            found = self._slots.find(key)
        slot = self._slots.take(key, found)
        if self._slots.keys is not self._named:
            self._name_keys()
        self._generation.add(slot, members, programs)
        if self._next is not None:
            self._next.add(slot, members, beside)
        if self._generation.compiler.system_names != self._system_names:
            self._find_system_names()
        self._tidy_up()

    def remove(self, key: K) -> None:
        """Takes a key and its filters away; a key that is not there is no error."""
        slot = self._slots.find(key)
        if slot >= 0:
            self._remove(slot)
            self._tidy_up()

    def _tidy_up(self) -> None:
        """What an update pays for a renewal, where that is under way or time."""
        if (self._next or self._last) is not None or self._generation.is_worn:
            self.maintain(UNITS_PER_UPDATE)

    def _remove(self, slot: int) -> None:
        self._generation.remove(slot)
        if self._next is not None:
            self._next.remove(slot)
        self._slots.give_back(slot)

    def _find_system_names(self) -> None:
        """Looks which names that begin with `@` filters ask for."""
        compiler = self._generation.compiler
        self._system_names = compiler.system_names
        self._envelope = tuple(name for name in ENVELOPE_SETS if name in compiler.attrs)

    def _name_keys(self) -> None:
        """Lets kernels put out keys, where these are integers."""
        self._named = self._slots.keys
        for generation in (self._generation, self._next):
            if generation is not None:
                generation.name_keys(self._slots.keys, self._slots.used)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        return self._slots.find(key) >= 0

    def _compile_in_time(self) -> None:
        """Goes over to compiled kernels once they are there, or pay."""
        if self._load is not None and self._compiling_pays():
            load, self._load = self._load, None
            load()
        if jit.is_loaded():
            self._use_compiled()

    def _use_compiled(self) -> None:
        self._plain = False
        self._slots.use_compiled()
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

    def match(self, notification: Given) -> list[K]:
        """The keys with a filter that matches the notification, each once, in no order.

        A mapping is taken as the attributes of a notification that is not stamped yet; only what
        filters ask for is looked at, and names that begin with `@` are passed over.
        Cost: near the size of the answer; see docs/matching.md.
        """
        if self._plain:
            self._compile_in_time()
        return self._found(self._message(notification), notification, UNSTAMPED)

    def match_span(self, span: bytes, envelope: Envelope = UNSTAMPED) -> list[K]:
        """As `match`, of one span of msgpack: a map of attributes, checked as a notification's are.

        Names that begin with `@` stand in it only as type marks; `@id`, `@publisher` and `@time`
        are the envelope's. What filters ask for is not checked again; where bytes turn out to be no
        such map, EncodingError or InvalidNotificationError is raised.
        """
        if self._plain:
            self._compile_in_time()
        message = with_envelope(span, envelope, self._envelope) if self._envelope else span
        return self._found(message, span, envelope)

    def match_spans(
        self, spans: Sequence[bytes] | Any, envelope_of: Callable[[int], Envelope] | None = None
    ) -> tuple[Any, Any]:
        """As `match_batch`, of spans of msgpack: a list, or an Arrow column of binary values.

        NULL is a notification without attributes. `envelope_of` gives the envelope of a span by its
        number and is called only where `asks_for_envelopes`; without it no span is stamped.
        Errors: as `match_span`, and TypeError for another column. Cost: one call of compiled code,
        where matching is compiled.
        """
        if self._plain:
            self._compile_in_time()
        is_column = hasattr(spans, "to_pylist")
        if not self._envelope:
            if not is_column:
                return self._matched_rows(spans_of(spans), lambda row: self.match_span(spans[row]))
            return self._matched_rows(
                spans_at(spans), lambda row: self.match_span(span_in(spans, row))
            )
        listed, of = spans_in(spans) if is_column else spans, envelope_of or _unstamped
        messages = [with_envelope(span, of(i), self._envelope) for i, span in enumerate(listed)]
        return self._matched_rows(
            spans_of(messages), lambda row: self.match_span(listed[row], of(row))
        )

    @property
    def asks_for_envelopes(self) -> bool:
        """Whether some filter asks for `@id`, `@publisher` or `@time`."""
        return bool(self._envelope)

    def _found(self, message: bytes, given: Given | bytes, envelope: Envelope) -> list[K]:
        """The keys for an encoded notification, and what it was given as."""
        if (self._next or self._last) is not None and not self._in_batch:
            self.maintain(UNITS_PER_MATCH)
        arrays = self._generation.arrays
        status = arrays.match(message)
        while status < 0:
            if status == UNREADABLE:
                assert not isinstance(given, Notification), "a notification is readable"
                return self.match(self._exactly(given, envelope))
            grow_for(arrays, status)
            status = arrays.match(message)
        counters = arrays.views["counters"]
        if counters[MATCHED] >= self._drift.due:
            self._drift.mend(self._generation)
        count = counters[OUT]
        if count == 0:
            return []
        out = arrays.of["out"][:count]
        if counters[KEYED]:
            return out.tolist()  # type: ignore[no-any-return]
        if counters[DOUBTED]:
            return self._verified(out.tolist(), self._exactly(given, envelope))
        return self._slots.keys[out].tolist()  # type: ignore[no-any-return]

    def _exactly(self, given: Given | bytes, envelope: Envelope) -> Notification:
        """The notification itself, for what only the model can tell."""
        if isinstance(given, Notification):
            return given
        if isinstance(given, bytes):
            return notification_of(given, envelope)
        return Notification(self._asked_for(given))

    def _message(self, notification: Given | bytes) -> bytes:
        """The attributes as msgpack, with those of the envelope that filters ask for."""
        attributes: Any = notification
        envelope = UNSTAMPED
        if isinstance(notification, bytes):
            message = notification
        elif isinstance(notification, Notification):
            message, envelope = notification.span, notification.envelope
        elif not _are_plain(attributes.values()):
            message = Notification(self._asked_for(notification)).span
        else:
            if self._system_names or not self._generation.arrays.is_compiled:
                attributes = self._asked_for(notification)
            try:
                message = _encode(attributes)
            except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
                message = Notification(self._asked_for(notification)).span
        if self._envelope:
            return with_envelope(message, envelope, self._envelope)
        return message

    def _asked_for(
        self, attributes: Mapping[str, Value | Iterable[Value]]
    ) -> dict[str, Value | Iterable[Value]]:
        """Those attributes of a mapping that filters ask for and that a mapping may have."""
        asked = self._generation.compiler.attrs
        return {n: v for n, v in attributes.items() if n in asked and n[:1] != "@"}

    def _verified(self, found: list[int], notification: Notification) -> list[K]:
        """The keys of what was found, and of the filters that hold on the values themselves."""
        inexact = bool(self._generation.arrays.of["counters"][INEXACT])
        known: dict[int, bool] = {}
        slots: dict[int, None] = {}
        for each in found:
            if each >= 0:
                slots[each] = None
            elif self._holds(-1 - each, notification, inexact, known):
                slots.update(dict.fromkeys(self._generation.slots(-1 - each)))
        return self._keys_at(list(slots))

    def _keys_at(self, slots: list[int]) -> list[K]:
        return self._slots.keys[slots].tolist()  # type: ignore[no-any-return]

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
                    int(self._generation.arrays.of["sets_by_row"][each, SET_ATTR])
                ]
                known[each] = bool(value_set.unknown()) or any(
                    value_set.holds(key) for key in notification.keys_of(name)
                )
            if not known[each]:
                return False
        return True

    def match_each(self, notifications: Sequence[Notification]) -> list[list[K]]:
        """The keys for each of several notifications, matched by one call."""
        if len(notifications) == 1:
            return [self.match(notifications[0])]
        offsets, keys = self.match_batch(notifications)
        bounds, found = offsets.tolist(), keys.tolist()
        return [found[begin:end] for begin, end in pairwise(bounds)]

    def match_batch(self, notifications: Iterable[Given | bytes] | Any) -> tuple[Any, Any]:
        """The keys for each of many notifications: (offsets, keys), two arrays.

        The keys of notification i are `keys[offsets[i] : offsets[i + 1]]`; integers of 64 bits as
        long as all keys are. An Arrow table is a batch of rows, where NULL is absent; its columns
        are matched as they are. An Arrow column of binary values, and bytes among notifications,
        are spans as in `match_spans`. Raises InvalidNotificationError for a column with a value
        that none can have, and for two columns of one name.
        """
        if hasattr(notifications, "column_names"):
            return self._matched_table(notifications)
        if hasattr(notifications, "to_pylist"):
            return self.match_spans(notifications)
        if self._plain:
            self._compile_in_time()
        given = list(notifications)
        messages = list(map(self._message, given))
        return self._matched_rows(
            spans_of(messages), lambda row: self._found(messages[row], given[row], UNSTAMPED)
        )

    def _matched_table(self, table: Any) -> tuple[Any, Any]:
        if self._plain:
            self._compile_in_time()
        check_columns(table)
        columns = None if self._envelope else columns_of(table, self._generation.compiler.attrs)
        if columns is None or not self._generation.arrays.is_compiled:
            return self.match_batch(rows_of(asked_for(table, self._generation.compiler.attrs)))
        row_at = row_of(table, self._generation.compiler.attrs)
        return self._matched_rows(columns, lambda row: self.match(row_at(row)))

    def _matched_rows(
        self, rows: Columns | Spans, alone: Callable[[int], list[K]]
    ) -> tuple[Any, Any]:
        """A batch matched by one call; `alone` matches a row of which only the model can tell."""
        if not self._generation.arrays.is_compiled:
            return self._joined(map(alone, range(rows.rows)))
        slots = self._slots
        of_row: Any = alone if slots.are_int else lambda row: [*map(slots.find, alone(row))]
        self._in_batch = True  # the arrays must stay
        try:
            offsets, found = match_rows(self._generation.arrays, rows, of_row)
        finally:
            self._in_batch = False
        self._drift.mend(self._generation)
        if (self._next or self._last) is not None:
            self.maintain(UNITS_PER_MATCH)
        return offsets, found if slots.are_int else slots.keys[found]

    def _joined(self, rows: Iterable[list[K]]) -> tuple[Any, Any]:
        offsets: list[int] = [0]
        keys: list[K] = []
        for found in rows:
            keys += found
            offsets.append(len(keys))
        kind = np.int64 if self._slots.are_int else object
        array = np.fromiter(keys, dtype=kind, count=len(keys))
        return np.array(offsets, dtype=np.int64), array

    # --- relations ----------------------------------------------------------------------------

    def covering(self, product: Filter) -> list[K]:
        """The keys whose filter, or union of filters, covers the filter.

        Exact within the limits of the algebra. Cost: one match, and the candidates.
        """
        example = witness(product)
        keys = self._keys_at(list(self._slots)) if example is None else self.match(example)
        return [key for key in keys if covers(self.subscription(key), product)]

    def covered(self, product: Filter | FilterSet) -> list[K]:
        """The keys whose filter, or union of filters, the filter covers.

        Exact within the limits of the algebra. Cost: a look at every filter, and the candidates.
        """
        slots: Iterable[int] = self._slots
        if not isinstance(product, FilterSet):
            possible = set(touching(self._generation, product, inside=True))
            slots = self._generation.slots_within(possible | self._generation.empty())
        covered = [slot for slot in slots if covers(product, self._subscription(slot))]
        return self._keys_at(covered)

    def meeting(self, product: Product) -> list[K]:
        """The keys whose filter meets a filter, an advertisement or a query.

        Exact within the limits of the algebra. Cost: a look at every filter, and the candidates.
        """
        slots: dict[int, None] = {}
        for number in touching(self._generation, product, inside=False):
            if product_meets(self._generation.filter(number), product):
                slots.update(dict.fromkeys(self._generation.slots(number)))
        return self._keys_at(list(slots))

    def subscription(self, key: K) -> Filter | FilterSet:
        """The filter, or filter set, of a key. KeyError where there is none."""
        slot = self._slots.find(key)
        if slot < 0:
            raise KeyError(key)
        return self._subscription(slot)

    def _subscription(self, slot: int) -> Filter | FilterSet:
        members = self._generation.filters_of(slot)
        return members[0] if len(members) == 1 else FilterSet(members)

    # --- upkeep -------------------------------------------------------------------------------

    def maintain(self, units: int = 64) -> bool:
        """Does a bounded piece of upkeep; whether more is waiting.

        A unit is one key: some tens of microseconds for a key with one filter.
        """
        if self._last is not None and self._last.dissolve(units):
            return True
        self._last = None
        if self._next is None:
            if not self._generation.is_worn:
                return False
            self.begin_renewal()
        assert self._next is not None
        end = min(self._cursor + units, self._slots.used)
        for slot in range(self._cursor, end):
            if self._generation.knows(slot) and not self._next.knows(slot):
                members = self._generation.filters_of(slot)
                self._next.add(slot, members, self._next.compiler.programs(members))
        self._cursor = end
        if end == self._slots.used:
            self._last, self._generation, self._next = self._generation, self._next, None
            self._generation.forget_statistics()
            self._find_system_names()
        return True

    def renew(self) -> None:
        """Chooses all places anew, by what was seen meanwhile, and frees what is unused.

        An index does so by itself, in pieces, when it is time.
        """
        self.begin_renewal()
        while self.maintain(4096):
            pass

    def begin_renewal(self) -> None:
        """Starts a second generation, which `maintain` then fills piece by piece."""
        self._next = Generation(self._generation)
        if self._generation.arrays.is_compiled:
            self._next.arrays.use_compiled()
        self._name_keys()
        self._cursor = 0

    def save(self, path: str | Path) -> None:
        """Writes the index to a file that `load` maps. A file of that name is replaced.

        Raises EncodingError for keys that are not None, bool, int, float, str, bytes, or tuples
        of these.
        """
        saving.save(Path(path), self._generation, self._slots)

    @classmethod
    def load(cls, path: str | Path, *, compiled: bool | None = None) -> "Index[Any]":
        """The index that was saved. Its arrays are mapped: processes share what none changes.

        Raises EncodingError for another file or version, OSError where it cannot be read.
        """
        index: Index[Any] = cls(compiled=compiled)
        index._generation, index._slots = saving.load(Path(path))
        index._name_keys()
        index._find_system_names()
        return index

    def statistics(self) -> IndexStatistics:
        """A frozen view of what the index holds and did."""
        counters = self._generation.arrays.of["counters"]
        return IndexStatistics(
            keys=len(self._slots),
            notifications=int(counters[MATCHED]),
            candidates=int(counters[CANDIDATES]),
            is_compiled=self._generation.arrays.is_compiled,
            renewing=self._next is not None,
            **self._generation.sizes(),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all filters."""
        self._slots.validate()
        self._generation.validate(list(self._slots))


_PLAIN: Final = frozenset((str, int, float, bool, bytes, type(None)))
_SEVERAL: Final = frozenset((list, tuple))


def _are_plain(values: Iterable[Any]) -> bool:
    """Whether the encoder knows what all values are; it would take others for text."""
    if _PLAIN.issuperset(map(type, values)):
        return True
    return all(
        type(each) in _PLAIN or (type(each) in _SEVERAL and _PLAIN.issuperset(map(type, each)))
        for each in values
    )


def _unstamped(_: int) -> Envelope:
    return UNSTAMPED
