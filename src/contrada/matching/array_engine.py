"""`ArrayEngine`: filters in flat arrays, matched by compiled kernels.

It maps keys to slots, and slots to the filters of a segment (see `segment`). `maintain` renews the
segment in bounded pieces: if much of it is unused, a second segment is filled beside the first,
with places chosen by the statistics, and replaces it when it is complete. A match that checked many
filters reassigns some of them (see `assignment`). Matching continues meanwhile and is always exact.
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from contrada.errors import ContradaError
from contrada.matching import index_file, packed
from contrada.matching.assignment import Drift
from contrada.matching.index_limits import IndexLimits
from contrada.matching.kernels.match import match
from contrada.matching.kernels.schema import UNREADABLE
from contrada.matching.key_table import KeyTable
from contrada.matching.segment import IndexSegment
from contrada.model import Envelope, Filter, FilterSet, Notification, Product
from contrada.model.algebra.nested_objects import values_of
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.algebra.product import ENVELOPE_SETS
from contrada.model.algebra.value_set import answer_exhausted
from contrada.model.codec import pack_asked
from contrada.model.languages.work_budget import Exhausted, Unbounded, Uncollected, budget, spend
from contrada.model.native import NATIVE

UNITS_PER_UPDATE: Final = 4
"""Units of maintenance with each filter that is added or removed."""

UNITS_PER_MATCH: Final = 1
"""Keys that a match, or a batch, moves during a renewal."""

ENCODINGS_AT_ONCE: Final = 4_096
"""Encoded filters that are joined in memory, and read by one call."""

FEW_KEYS: Final = 16
"""Keys up to which a test of their hulls costs more than it saves."""

MEMBERS_KEPT_MAX: Final = 1_024
"""Keys up to which filters are also kept as they are. Beyond it: they are decoded when needed."""

VERIFY_STEPS: Final = 20
"""Steps of work to evaluate a filter by the model, without its operators."""

K = TypeVar("K", bound=Hashable)

found_keys: Final[Callable[..., Any] | None] = getattr(NATIVE, "found_keys", None)
"""Packs a plain mapping, matches it and lists the keys by one call; see native/source.py."""

FoundKeys: TypeAlias = tuple["array[int]", Any]
"""The keys of notification i of a batch are `keys[offsets[i] : offsets[i + 1]]`: an array of
integers of 64 bits, or a list of objects."""


class ArrayEngine(Generic[K]):
    """Keys with their filters, in arrays."""

    def __init__(self, limits: IndexLimits = IndexLimits()) -> None:
        self._segment = IndexSegment()
        self._segment.arrays.counters.due[0] = limits.matches_between
        self._next: IndexSegment | None = None
        self._last: IndexSegment | None = None
        self._cursor = self._system_names = 0
        self._drift = Drift(limits)
        self._in_batch = self._is_doubted = False
        self._slots: KeyTable[K] = KeyTable()
        self._members: dict[K, tuple[Filter, ...]] | None = {}
        self._named: Any = None
        self.envelope: tuple[str, ...] = ()

    # --- keys ---------------------------------------------------------------------------------

    def add(self, key: K, members: tuple[Filter, ...]) -> None:
        """Replaces the filters of a key. Raises LimitError, and changes nothing then."""
        with Uncollected(), Unbounded():
            try:
                self._add(key, members)
            finally:  # Parts of refused filters are unused now.
                self._tidy_up(UNITS_PER_UPDATE)

    def _add(self, key: K, members: tuple[Filter, ...]) -> None:
        programs = self._segment.compiler.programs(members)
        beside = [] if self._next is None else self._next.compiler.programs(members)
        slot = self._take_slot(key)
        self._segment.add(slot, members, programs)
        if self._next is not None:
            self._next.add(slot, members, beside)
        if self._members is not None:
            # Equal ones are one filter of the segment; to compare them here would decide languages.
            is_one = len(members) == 1
            self._members[key] = members if is_one else tuple(self._segment.filters_of(slot))
            if len(self._members) > MEMBERS_KEPT_MAX:
                self._members = None
        if self._segment.compiler.system_names != self._system_names:
            self._find_system_names()

    def add_encoded(self, keys: Sequence[K], encodings: Any) -> None:
        """See `Index.add_encoded`."""
        with Uncollected(), Unbounded():
            since, self._members = self._segment.arrays.used["filters"], None
            try:
                for begin in range(0, len(keys), ENCODINGS_AT_ONCE):
                    end, segment = begin + ENCODINGS_AT_ONCE, self._segment
                    self._add_some(keys[begin:end], encodings[begin:end])
                    if self._segment is not segment:  # A renewal has ended: all have places.
                        since = self._segment.arrays.used["filters"]
            finally:
                self._segment.assignment.assign_since(since)
                self._find_system_names()
            self._tidy_up(UNITS_PER_UPDATE * len(keys))

    def _add_some(self, keys: Sequence[K], encodings: Any) -> None:
        """Adds encoded filters, most without places yet."""
        rows, encoding_of = _rows_of(encodings)
        are_new = len(set(keys)) == len(keys) and not any(map(self.__contains__, keys))
        if not are_new or self._next is not None:
            for row, key in enumerate(keys):
                self._add(key, packed.filters_from(encoding_of(row)))
                self._tidy_up(UNITS_PER_UPDATE)
            return
        slots, row = array("q", [self._take_slot(key) for key in keys]), 0
        try:
            while (row := self._segment.read(rows, slots, row)) < len(slots):
                members = packed.filters_from(encoding_of(row))
                self._segment.add(slots[row], members, self._segment.compiler.programs(members))
                row += 1
        except ContradaError:
            for slot in slots[row:]:
                self._slots.free_slot(slot)
            raise

    def _take_slot(self, key: K) -> int:
        """Returns the slot of a key, without its former filters."""
        slot = self._slots.find(key)
        if slot >= 0:
            self._remove_filters(slot)
            return slot
        slot = self._slots.take(key, slot)
        if self._slots.keys is not self._named:
            self._name_keys()
        return slot

    def remove(self, key: K) -> None:
        """Removes a key and its filters; an unknown key is no error."""
        with Uncollected(), Unbounded():
            slot = self._slots.find(key)
            if slot >= 0:
                if self._members is not None:
                    del self._members[key]
                self._remove_filters(slot)
                self._slots.free_slot(slot)
                self._tidy_up(UNITS_PER_UPDATE)

    def _tidy_up(self, units: int) -> None:
        """Does an update's share of maintenance, and begins a renewal if it is due."""
        if (self._next or self._last) is None and self._segment.is_worn:
            self.begin_renewal()
        self._maintain(units)

    def _remove_filters(self, slot: int) -> None:
        self._segment.remove(slot)
        if self._next is not None:
            self._next.remove(slot)

    def _find_system_names(self) -> None:
        compiler = self._segment.compiler
        self._system_names = compiler.system_names
        self.envelope = tuple(name for name in ENVELOPE_SETS if name in compiler.attrs)

    def _name_keys(self) -> None:
        """Passes the keys to kernels, if they are integers."""
        self._named = self._slots.keys
        for segment in (self._segment, self._next):
            if segment is not None:
                segment.name_keys(self._slots.keys)

    def members(self, key: K) -> tuple[Filter, ...]:
        """Returns the filters of a key. KeyError for an unknown one."""
        if self._members is not None:
            return self._members[key]
        with Uncollected():  # A finalizer may remove the key, or another one.
            slot = self._slots.find(key)
            if slot < 0:
                raise KeyError(key)
            return tuple(self._segment.filters_of(slot))

    def near(self, product: Product | FilterSet, *, inside: bool) -> list[K]:
        """Returns the keys with a filter that may meet a product, or lie inside it."""
        if self._members is not None and len(self._members) <= FEW_KEYS:
            return list(self._members)
        if isinstance(product, FilterSet):
            return list(self)
        with Uncollected():  # A finalizer may free the arrays.
            segment = self._segment
            possible = segment.touching(product, inside=inside)
            if inside:
                return self._slots.keys_at(segment.slots_within(segment.empty().union(possible)))
            return self._slots.keys_at(segment.slots_of(possible))

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: object) -> bool:
        return self._slots.find(key) >= 0

    def __iter__(self) -> Iterator[K]:
        with Uncollected():  # A finalizer may remove some.
            return iter(self._slots.keys_at(list(self._slots)))

    # --- matching -----------------------------------------------------------------------------

    def match(self, given: packed.Given | bytes, envelope: Envelope = UNSTAMPED) -> list[K]:
        """See `Index.match` and `Index.match_span`."""
        if (self._next or self._last) is not None and not self._in_batch:
            self.maintain(UNITS_PER_MATCH)
        # First: a collection of cycles may run code that frees the arrays, or updates the keys.
        found: list[Any] = []
        work, span = budget(), given.span if type(given) is Notification else given
        segment, answer = self._segment, None
        if found_keys is not None and not (self._system_names or self._is_doubted):
            arrays, attrs, keys = segment.arrays, segment.compiler.attrs, self._slots.keys
            left = 0 if work is None else arrays.lend(work)
            try:
                answer = found_keys(found, span, attrs, keys, arrays.memory)
            finally:
                if work is not None:
                    arrays.charge(work, left)
            if type(answer) is list:  # As mostly.
                return answer
        if answer is None or answer < 0:  # Code of the caller may run here, too.
            message = self._message(given, envelope)
            with Uncollected():  # That code may match, too, before the keys are listed.
                arrays = self._segment.arrays
                answer = arrays.bounded(work, match, message) if answer is None else answer
                while answer < 0 and answer >> 2 != UNREADABLE:
                    arrays.grow_for(answer >> 2)
                    answer = arrays.bounded(work, match, message)
                found = arrays.out[: max(0, answer >> 2)].tolist()
                self._is_doubted = bool(arrays.counters.doubted[0])  # Mostly the next is, too.
                if found and answer & 1:
                    if self._is_doubted:
                        is_inexact = bool(arrays.counters.inexact[0])
                        found = self._verified(found, self._exactly(given, envelope), is_inexact)
                    else:
                        found = self._slots.keys_at(found)
            if answer < 0:
                rewritten = packed.reencode(self._exactly(given, envelope))
                assert rewritten.span != message, "the encoding is readable"
                return self.match(rewritten)
        if answer & 2:
            self._improve()
        return found

    def _improve(self) -> None:
        """Moves some filters to better places, where that is due."""
        with Uncollected(), Unbounded():
            self._drift.improve(self._segment.assignment)

    def _exactly(self, given: packed.Given | bytes, envelope: Envelope) -> Notification:
        """Returns the full notification, for filters that need the model."""
        return packed.to_notification(given, envelope, self._segment.compiler.attrs)

    def _message(self, given: packed.Given | bytes, envelope: Envelope) -> bytes:
        """Returns the attributes as msgpack, with those of the envelope that filters ask for."""
        if isinstance(given, bytes):
            message = given
        elif type(given) is dict or not isinstance(given, Notification):  # An abstract class: slow.
            message = _packed(given, self._segment.compiler.attrs, self._system_names)
        else:
            message, envelope = given.span, given.envelope
        return packed.with_envelope(message, envelope, self.envelope) if self.envelope else message

    def _verified(self, found: list[int], notification: Notification, inexact: bool) -> list[K]:
        """Returns the keys of found filters; evaluates inexact ones on the values themselves."""
        known: dict[int, bool] = {}
        slots: dict[int, None] = {}
        for each in found:
            if each >= 0:
                slots[each] = None
            elif self._may_hold(-1 - each, notification, inexact, known):
                slots.update(dict.fromkeys(self._segment.slots(-1 - each)))
        return self._slots.keys_at(list(slots))

    def _may_hold(
        self, number: int, notification: Notification, inexact: bool, known: dict[int, bool]
    ) -> bool:
        """As `_holds`; yes, counted, without work left."""
        try:
            spend(VERIFY_STEPS)
            return self._holds(number, notification, inexact, known)
        except Exhausted as exhausted:
            return answer_exhausted(exhausted, "holds", answer=True)

    def _holds(
        self, number: int, notification: Notification, inexact: bool, known: dict[int, bool]
    ) -> bool:
        """Whether a filter holds; a set with an opaque operator is evaluated once per notification.

        An unregistered operator meets everything.
        """
        opaque = self._segment.opaque.get(number)
        if opaque is None or inexact:
            member = self._segment.filter(number)
            if not member.unknown():
                return member.matches(notification)
            opaque = opaque or []
        for each in opaque:
            if each not in known:
                value_set = self._segment.compiler.opaque_sets[each]
                attr = self._segment.arrays.sets_by_row.attr[each]
                name = self._segment.compiler.names[attr]
                keys = notification.keys_of(name)
                spend(len(keys))
                known[each] = bool(value_set.unknown()) or any(map(value_set.holds, keys))
            if not known[each]:
                return False
        return True

    # --- batches ------------------------------------------------------------------------------

    def match_spans(self, spans: Any, envelope_of: Callable[[int], Envelope]) -> FoundKeys:
        """Matches spans of msgpack: a list of bytes, or an Arrow column."""
        is_column = hasattr(spans, "to_pylist")
        if not self.envelope and is_column:
            from contrada.matching.record_batches import span_in, spans_at

            return self._matched(spans_at(spans), lambda row: self.match(span_in(spans, row)))
        if not self.envelope:
            return self._matched(packed.spans_of(spans), lambda row: self.match(spans[row]))
        if is_column:
            from contrada.matching.record_batches import spans_in

            spans = spans_in(spans)
        together = [
            packed.with_envelope(span, envelope_of(row), self.envelope)
            for row, span in enumerate(spans)
        ]
        return self._matched(
            packed.spans_of(together), lambda row: self.match(spans[row], envelope_of(row))
        )

    def match_each(self, notifications: Iterable[packed.Given | bytes]) -> FoundKeys:
        """Matches notifications, mappings or spans."""
        if isinstance(notifications, packed.Bundle) and not self.envelope:
            bundle = notifications
            return self._matched(bundle.spans(), lambda row: self.match(bundle[row]))
        given = list(notifications)
        spans = [self._message(each, UNSTAMPED) for each in given]
        return self._matched(packed.spans_of(spans), lambda row: self.match(given[row]))

    def all_match(self, key: K, bundle: packed.Bundle, steps_max: int) -> bool:
        """See `Index.all_match`."""
        if self.envelope:
            return False
        spans = bundle.spans()
        with Uncollected():  # A finalizer may free the arrays.
            members = array("q", self._segment.numbers(self._slots.find(key)))
            return self._segment.arrays.all_hold(spans.address, spans.starts, members, steps_max)

    def match_table(self, table: Any) -> FoundKeys:
        """Matches the rows of an Arrow table, in columns where kernels have their types."""
        from contrada.matching import record_batches as batches

        batches.check_columns(table)
        attrs = self._segment.compiler.attrs
        columns = None if self.envelope else batches.columns_of(table, attrs)
        if columns is None:
            return self.match_each(batches.rows_of(batches.select_columns(table, attrs)))
        row_at = batches.row_of(table, attrs)
        return self._matched(columns, lambda row: self.match(row_at(row)))

    def _matched(self, rows: Any, alone: Callable[[int], list[K]]) -> FoundKeys:
        """Matches a batch by one call; `alone` matches a row that needs the model."""
        slots = self._slots
        of_row: Any = alone if slots.are_int else lambda row: [*map(slots.find, alone(row))]
        was_in_batch, self._in_batch = self._in_batch, True
        try:
            with Uncollected():  # A finalizer may replace the keys, or match between two kernels.
                offsets, found = packed.match_rows(self._segment.arrays, rows, of_row)
                keys: Any = found if slots.are_int else [slots.keys[slot] for slot in found]
        finally:
            self._in_batch = was_in_batch
        self._improve()
        if (self._next or self._last) is not None:
            self.maintain(UNITS_PER_MATCH)
        return offsets, keys

    # --- upkeep -------------------------------------------------------------------------------

    def maintain(self, units: int = 64) -> bool:
        """Does a bounded part of maintenance; returns whether more is left.

        A unit is one key, or one filter that is moved to new bins. Nothing is done during a batch:
        an operator that updates the index must not free arrays in use.
        """
        if self._next is self._last is None and not self._segment.assignment.moving:
            return False  # As mostly: between updates.
        with Uncollected(), Unbounded():
            return self._maintain(units)

    def _maintain(self, units: int) -> bool:
        if self._in_batch:
            return False
        if self._last is not None and self._last.dissolve(units):
            return True
        self._last = None
        if self._next is None:
            assignment = self._segment.assignment
            return bool(assignment.moving) and assignment.move(units)
        end = min(self._cursor + units, self._slots.used)
        for slot in range(self._cursor, end):
            if self._segment.knows(slot) and not self._next.knows(slot):
                members = self._segment.filters_of(slot)
                self._next.add(slot, members, self._next.compiler.programs(members))
        self._cursor = end
        if end == self._slots.used:
            self._last, self._segment, self._next = self._segment, self._next, None
            self._segment.forget_statistics()
            self._find_system_names()
        return True

    def begin_renewal(self) -> None:
        """Starts a second segment, which `maintain` then fills in parts."""
        with Uncollected():
            self._next = IndexSegment(self._segment)
            self._name_keys()
            self._cursor = 0

    def save(self, path: Path) -> None:
        """See `Index.save`."""
        with Uncollected():
            index_file.save(path, self._segment, self._slots)

    @classmethod
    def load(cls, path: Path) -> "ArrayEngine[Any]":
        """See `Index.load`."""
        engine: ArrayEngine[Any] = cls()
        engine._segment, engine._slots = index_file.load(path)
        engine._members = None
        engine._name_keys()
        engine._find_system_names()
        return engine

    def sizes(self) -> dict[str, Any]:
        """Returns figures for `IndexStatistics`."""
        counters = self._segment.arrays.counters
        seen = {"notifications": counters.matched[0], "candidates": counters.candidates[0]}
        return self._segment.sizes() | seen | {"renewing": self._next is not None}

    def validate(self) -> None:
        """Checks the invariants; the AssertionError names the broken one. Cost: all filters."""
        self._slots.validate()
        self._segment.validate(list(self._slots))


def _rows_of(encodings: Any) -> tuple[packed.PackedBatch, Callable[[int], bytes]]:
    """Returns encodings of a list or an Arrow column for kernels, and a function for each."""
    if hasattr(encodings, "to_pylist"):
        from contrada.matching.record_batches import span_in, spans_at

        return spans_at(encodings), partial(span_in, encodings)
    return packed.spans_of(encodings), encodings.__getitem__


def _packed(attributes: Mapping[str, Any], asked: dict[str, int], system_names: int) -> bytes:
    """Encodes the attributes of a mapping; checks them if the encoder is too tolerant.

    `asked` are the attributes that filters name, with this number of the system's names.
    """
    if pack_asked is not None and type(attributes) is dict and not system_names:
        span = pack_asked(attributes, asked)
        if span is not None:
            return span
    values = values_of(attributes)
    if _PLAIN.issuperset(map(type, values)) or _are_plain(values):
        try:
            return packed.encode(
                packed.select_attributes(attributes, asked) if system_names else attributes
            )
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError):
            pass
    return Notification(packed.select_attributes(attributes, asked)).span


_PLAIN: Final = frozenset((str, int, float, bool, bytes, type(None)))
_SEVERAL: Final = frozenset((list, tuple))


def _are_plain(values: Iterable[Any]) -> bool:
    """Whether the encoder knows the types of values; others it would encode as text."""
    return all(
        type(each) in _PLAIN or (type(each) in _SEVERAL and _PLAIN.issuperset(map(type, each)))
        for each in values
    )
