"""`Index`: the keys with filters that match a notification.

The filters are in flat arrays, which compiled kernels match (see `array_engine`). The residues of
rules are functions, evaluated on the matches of their filters.

Source: PODC 2000 §5 (the cost of matching).
"""

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, TypeVar
from warnings import warn

from contrada.errors import EncodingError
from contrada.matching.array_engine import ArrayEngine, FoundKeys
from contrada.matching.index_limits import IndexLimits
from contrada.matching.kernels.memory import numbers
from contrada.matching.packed import EMPTY_SPAN, Bundle, Given, to_whole_notification
from contrada.model import Envelope, Filter, FilterSet, Notification, Product, Selection
from contrada.model.algebra.filter import Selects, selection
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.algebra.product import product_meets
from contrada.model.algebra.relations import covers, witness
from contrada.model.native import NATIVE
from contrada.model.rule import Rule, residue_accepts

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """The contents and the counters of an index.

    `filters` are distinct in arrays; `everywhere` is the number of those that every notification is
    checked against; `pooled` the number matched by bitmaps; `candidates` the number that the last
    notification was checked against; `bytes` is the memory of the arrays; `is_compiled` whether
    kernels are compiled here.
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


class Index(Mapping[K, Filter | FilterSet]):
    """Keys with their filters. `match` returns the keys with a filter that matches.

    It can be read as a mapping. It can be pickled, which takes as long as adding all filters anew;
    `save` writes a file that can be mapped.

    An index is used by one thread at a time.
    """

    def __init__(
        self, *, compiled: bool | None = None, limits: IndexLimits = IndexLimits()
    ) -> None:
        """`compiled` has no effect: kernels are compiled when contrada is installed."""
        if compiled is not None:
            warn("Index(compiled=…) has no effect any more", DeprecationWarning, stacklevel=2)
        self._engine: ArrayEngine[K] = ArrayEngine(limits)
        self._residues: Residues[K] = Residues()

    # --- keys ---------------------------------------------------------------------------------

    def add(self, key: K, subscription: Selects | Rule) -> None:
        """Gives a key its filter or filters, in place of its former ones.

        A text or a mapping is parsed as a filter. The key of another dialect's rule matches as the
        rule does: its residue is evaluated on the matches of its filters, some microseconds each.

        Raises InvalidFilterError for an object that is no filter, TypeError for an invalid key,
        LimitError for a filter that is too large; it then changes nothing. Cost: some microseconds
        per constraint.
        """
        hash(key)
        holds = None
        if isinstance(subscription, Rule):
            holds, subscription = subscription.residue_holds, subscription.filters
        members = selection(subscription).filters
        self._engine.add(key, members)
        self._residues.put(key, holds)

    def add_encoded(self, keys: Iterable[K], encodings: Sequence[bytes] | Any) -> None:
        """Gives each key the filter, or filter set, of an encoding: as `add` of many.

        The encodings are those of `to_msgpack`, in a list or an Arrow column of binary values, one
        for each key. Some microseconds each: compiled code reads them, and assigns the filters when
        all are there. Filters with sets other than intervals and texts take as long as with `add`.

        Raises EncodingError or LimitError for an invalid one, InvalidFilterError for an encoding of
        something else, and then adds those before it; ValueError for another number of keys.
        """
        listed = keys if isinstance(keys, list | range) else list(keys)
        if len(listed) != len(encodings):
            raise ValueError(f"{len(listed)} keys for {len(encodings)} filters")
        self._engine.add_encoded(listed, encodings)
        if self._residues.of:
            for key in listed:
                self._residues.put(key, None)

    def remove(self, key: K) -> None:
        """Removes a key and its filters; an unknown key is no error."""
        self._residues.put(key, None)
        self._engine.remove(key)

    def clear(self) -> None:
        """Removes all keys."""
        for key in list(self):
            self.remove(key)

    def __getitem__(self, key: K) -> Filter | FilterSet:
        """Returns the filter or filter set of a key, without a residue, or raises KeyError."""
        members = self._engine.members(key)
        return members[0] if len(members) == 1 else FilterSet(members)

    def __iter__(self) -> Iterator[K]:
        return iter(self._engine)

    def __len__(self) -> int:
        return len(self._engine)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<Index of {len(self)} keys>"

    def __reduce__(self) -> tuple[object, ...]:
        self._check_residues()
        return _rebuilt, (list(self.items()),)

    def __contains__(self, key: object) -> bool:
        return key in self._engine

    # --- matching -----------------------------------------------------------------------------

    def match(self, notification: Given) -> list[K]:
        """Returns the keys with a filter that matches the notification, each once, unordered.

        Of a mapping, an unstamped notification, only attributes that filters name are checked.
        Cost: near the size of the answer; see docs/matching.md.
        """
        found = self._engine.match(notification)
        return self._residues.filter_keys(found, notification) if self._residues.of else found

    def match_span(self, span: bytes, envelope: Envelope = UNSTAMPED) -> list[K]:
        """As `match`, of one span of msgpack: a map of checked attributes and type marks.

        The envelope has `@id`, `@publisher` and `@time`. Invalid bytes raise EncodingError or
        InvalidNotificationError, as far as they are read.
        """
        found = self._engine.match(span, envelope)
        return self._residues.filter_keys(found, span, envelope) if self._residues.of else found

    def match_spans(
        self, spans: Sequence[bytes] | Any, envelope_of: Callable[[int], Envelope] | None = None
    ) -> tuple[Any, Any]:
        """As `match_batch`, of spans of msgpack: a list, or an Arrow column of binary values.

        NULL is a notification without attributes. `envelope_of` returns the envelope of a span by
        its number; it is called only if `asks_for_envelopes`. Raises TypeError for another column.
        """
        of = envelope_of or (lambda _: UNSTAMPED)
        return self._as_arrays(
            self._engine.match_spans(spans, of),
            lambda row: to_whole_notification(_span_at(spans, row), of(row)),
        )

    @property
    def asks_for_envelopes(self) -> bool:
        """Whether some filter names `@id`, `@publisher` or `@time`."""
        return bool(self._engine.envelope)

    def match_runs(self, notifications: Sequence[Notification]) -> Iterator[tuple[list[K], int]]:
        """Yields the keys for several notifications, and the number of those with the same."""
        if len(notifications) <= 1 or self._residues.of:
            for each in notifications:
                yield self.match(each), 1
            return
        offsets, keys = self._engine.match_each(notifications)
        count, width = len(notifications), offsets[1]
        even = array("q", range(0, width * count + 1, width)) if width else numbers(count + 1)
        if offsets == even and keys == keys[:width] * count:
            yield list(keys[:width]), count  # As of most batches, in a third of the time.
            return
        bounds = pairwise(offsets)
        begin, end = next(bounds)
        before, count = keys[begin:end], 1
        for begin, end in bounds:
            found = keys[begin:end]
            if found == before:
                count += 1
            else:
                yield list(before), count
                before, count = found, 1
        yield list(before), count

    def match_batch(self, notifications: Iterable[Given | bytes] | Any) -> tuple[Any, Any]:
        """Returns the keys for each of many notifications: (offsets, keys), two arrays of NumPy.

        The keys of notification i are `keys[offsets[i] : offsets[i + 1]]`; integers of 64 bits as
        long as all keys are. An Arrow table is a batch of rows, with NULL as absent; its columns
        are matched in place. An Arrow column of binary values, and bytes among notifications, are
        spans as in `match_spans`. Raises InvalidNotificationError for a column with an invalid
        value, and for two columns of one name.
        """
        if hasattr(notifications, "column_names"):
            from contrada.matching.record_batches import row_of

            found = self._engine.match_table(notifications)
            row = row_of(notifications, notifications.column_names)
            return self._as_arrays(found, lambda number: to_whole_notification(row(number)))
        if hasattr(notifications, "to_pylist"):
            return self.match_spans(notifications)
        listed = notifications if isinstance(notifications, Bundle) else list(notifications)
        return self._as_arrays(
            self._engine.match_each(listed), lambda row: to_whole_notification(listed[row])
        )

    def _as_arrays(
        self, found: FoundKeys, notification_of: Callable[[int], Notification]
    ) -> tuple[Any, Any]:
        """Returns the results of a batch as NumPy's, without those that a residue refuses."""
        from contrada.matching.record_batches import as_integers, objects_at

        offsets, keys = found
        arrays = (
            as_integers(offsets),
            objects_at(keys, range(len(keys))) if isinstance(keys, list) else as_integers(keys),
        )
        return (
            self._residues.filter_batch(*arrays, notification_of) if self._residues.of else arrays
        )

    def all_match(self, key: K, bundle: Bundle, steps_max: int) -> bool:
        """Whether a key matches each of a bundle. No also if one call of a kernel cannot decide it.

        It cannot in more than `steps_max` steps of work. Cost: that of the key's filters, one after
        the other; no other filter is checked.
        """
        if key in self._residues.of:
            return False
        return self._engine.all_match(key, bundle, steps_max)

    # --- relations ----------------------------------------------------------------------------

    def covering(self, product: Filter) -> list[K]:
        """Returns the keys with a filter, or union of filters, that covers the filter.

        Exact within the limits of the algebra; a rule with a residue counts as covering nothing.
        Cost: one match, and the candidates.
        """
        example = witness(product)
        keys = self._engine if example is None else self.match(example)
        # It is unknown if the residue covers the filter: no is the safe answer.
        decided = [key for key in keys if key not in self._residues.of]
        return [key for key in decided if covers(self[key], product)]

    def covered(self, product: Filter | FilterSet) -> list[K]:
        """Returns the keys with a filter, or union of filters, that the filter covers.

        Exact within the limits of the algebra. Cost: a test of every filter, and the candidates.
        """
        near = self._engine.near(product, inside=True)
        return [key for key in near if covers(product, self[key])]

    def meeting(self, product: Product) -> list[K]:
        """Returns the keys with a filter that meets a filter, an advertisement or a query.

        Exact within the limits of the algebra. Cost: that of `may_meet`, and the candidates.
        """
        of, met = self._engine.members, []
        for key in self.may_meet(product):
            for each in of(key):
                if product_meets(each, product):
                    met.append(key)
                    break
        return met

    def may_meet(self, product: Product) -> list[K]:
        """Returns the keys of `meeting`, and others that no single value or interval excludes.

        Cost: a test of every filter, some tens of nanoseconds each.
        """
        return self._engine.near(product, inside=False)

    # --- upkeep -------------------------------------------------------------------------------

    def maintain(self, units: int = 64) -> bool:
        """Does a bounded part of maintenance, about a key a unit; returns whether more is left."""
        return self._engine.maintain(units)

    def renew(self) -> None:
        """Does at once what `maintain` does in parts: new places, and no unused memory."""
        self.begin_renewal()
        while self.maintain(4096):
            pass

    def begin_renewal(self) -> None:
        """Begins to choose all places anew; `maintain` continues."""
        self._engine.begin_renewal()

    def save(self, path: str | Path) -> None:
        """Writes the index to a file for `load`. Replaces a file of that name.

        Raises EncodingError for keys that are not None, bool, int, float, str, bytes, or tuples of
        these, and for rules with a residue.
        """
        self._check_residues()
        self._engine.save(Path(path))

    def _check_residues(self) -> None:
        """Raises EncodingError: a residue is a function, which has no encoding."""
        if self._residues.of:
            reason = f"{len(self._residues.of)} rules have a residue, which has no encoding"
            raise EncodingError("the index", reason, writing=True)

    @classmethod
    def load(cls, path: str | Path, *, compiled: bool | None = None) -> "Index[Any]":
        """Returns the saved index. Its arrays are mapped: processes share unchanged pages.

        `compiled` has no effect. Raises EncodingError for another file or version, OSError if it
        cannot be read.
        """
        index: Index[Any] = cls(compiled=compiled)
        index._engine = ArrayEngine.load(Path(path))
        return index

    def statistics(self) -> IndexStatistics:
        """Returns the contents and the counters of the index."""
        return IndexStatistics(
            keys=len(self), is_compiled=NATIVE is not None, **self._engine.sizes()
        )

    def validate(self) -> None:
        """Checks the invariants; the AssertionError names the broken one. Cost: all filters."""
        self._engine.validate()


class Residues(Generic[K]):
    """The residues of rules, evaluated on the matches of their filters.

    A rule of another dialect may require more than filters can. The index finds it by its filters,
    which cover it, and its residue then decides, on the whole notification. An error counts as no;
    see `rule.residue_accepts`. A key without a residue is decided by its filters.
    """

    def __init__(self) -> None:
        self.of: dict[K, Callable[[Notification], bool]] = {}
        """Tested before each match: mostly empty."""

    def put(self, key: K, holds: Callable[[Notification], bool] | None) -> None:
        """Sets or removes the residue of a key."""
        if holds is None:
            self.of.pop(key, None)
        else:
            self.of[key] = holds

    def filter_keys(
        self, keys: list[K], given: Given | bytes, envelope: Envelope = UNSTAMPED
    ) -> list[K]:
        """Returns those of the keys with a residue that holds, or without one."""
        of = self.of
        if of.keys().isdisjoint(keys):
            return keys
        notification = to_whole_notification(given, envelope)
        return [key for key in keys if key not in of or residue_accepts(of[key], notification)]

    def filter_batch(
        self, offsets: Any, keys: Any, notification_of: Callable[[int], Notification]
    ) -> tuple[Any, Any]:
        """As `filter_keys`, of several notifications: their remaining keys and the offsets."""
        import numpy as np

        of, listed, bounds = self.of, keys.tolist(), offsets.tolist()
        kept = np.ones(len(listed), dtype=bool)
        for row, (begin, end) in enumerate(pairwise(bounds)):
            asked = [place for place in range(begin, end) if listed[place] in of]
            if asked:
                notification = notification_of(row)
                for place in asked:
                    kept[place] = residue_accepts(of[listed[place]], notification)
        before = np.concatenate((np.zeros(1, dtype=offsets.dtype), np.cumsum(kept)))
        return before[offsets].astype(offsets.dtype), keys[kept]


def _span_at(spans: Any, row: int) -> bytes:
    span = spans[row]
    plain = span.as_py() if hasattr(span, "as_py") else span
    return EMPTY_SPAN if plain is None else bytes(plain)


def _rebuilt(items: "list[tuple[K, Selection]]") -> Index[K]:
    index: Index[K] = Index()
    for key, subscription in items:
        index.add(key, subscription)
    return index
