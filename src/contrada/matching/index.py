"""`Index`: the keys with filters that match a notification.

Two engines hold the filters. The plain one (`plain_engine`) uses dictionaries and checks filters
one by one; the other (`array_engine`) has flat arrays for compiled kernels. An index begins with
the plain one, and moves to the arrays if Numba is installed and that pays: the arrays are filled in
bounded parts while the plain engine continues to match, and replace it when they are complete. The
answers are always exact and the same.

Source: PODC 2000 §5 (the cost of matching).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from contrada.errors import EncodingError, LimitError
from contrada.matching.index_limits import IndexLimits
from contrada.matching.kernels import jit
from contrada.matching.packed import EMPTY_SPAN, Bundle, Given, to_whole_notification
from contrada.matching.plain_engine import PlainEngine
from contrada.model import Envelope, Filter, FilterSet, Notification, Product, Selection
from contrada.model.algebra.filter import Selects, selection
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.algebra.product import product_meets
from contrada.model.algebra.relations import covers, witness
from contrada.model.languages.work_budget import Unbounded, spend
from contrada.model.rule import Rule, residue_accepts

if TYPE_CHECKING:
    from contrada.matching.array_engine import ArrayEngine

K = TypeVar("K", bound=Hashable)

_WORK_OF_ROW: Final = 30
"""Steps of work that are counted in advance for a row of a table."""

AT_ONCE_MAX: Final = 256
"""Keys that a service's index moves from the plain engine to the arrays at once. Beyond it: in
parts."""


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """The contents and the counters of an index.

    `filters` are distinct in arrays; `everywhere` is the number of those that every notification is
    checked against; `pooled` the number matched by bitmaps; `candidates` the number that the last
    notification was checked against; `bytes` is the memory of the arrays, 0 without them.
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

    Matching begins in plain Python. If Numba is installed, `load` is called once, as soon as that
    pays; by default it loads compiled kernels, in about a second from a cache on disk, and up to a
    minute once per machine. A service passes a `load` that works in the background; `maintain` then
    fills the arrays in parts. `compiled=True` loads at once, `compiled=False` never.

    An index is used by one thread at a time.
    """

    def __init__(
        self,
        *,
        compiled: bool | None = None,
        load: Callable[[], object] = jit.compiled,
        limits: IndexLimits = IndexLimits(),
    ) -> None:
        self._limits = limits
        self._load: Callable[[], object] | None = load
        self._in_pieces = load is not jit.compiled
        self._plain: PlainEngine[K] | None = PlainEngine()
        self._arrays: ArrayEngine[K] | None = None
        self._left: PlainEngine[K] | None = None
        self._waiting: list[K] = []
        self._next_test_at = 0
        self._may_compile = compiled is not False
        self._engine: PlainEngine[K] | ArrayEngine[K] = self._plain
        self._residues: Residues[K] = Residues()
        if compiled:
            jit.compiled()
            self._go_over_if_loaded()

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
        if self._plain is not None and self._may_compile:
            self._go_over_if_loaded()
        with Unbounded():
            if self._plain is not None and self._arrays is not None:
                self._arrays.add(key, members)  # which may refuse it
            self._engine.add(key, members)
        self._residues.put(key, holds)

    def remove(self, key: K) -> None:
        """Removes a key and its filters; an unknown key is no error."""
        self._residues.put(key, None)
        self._engine.remove(key)
        if self._plain is not None and self._arrays is not None:
            self._arrays.remove(key)

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
        return _rebuilt, (None if self._may_compile else False, list(self.items()))

    def __contains__(self, key: object) -> bool:
        return key in self._engine

    # --- the move to arrays ---------------------------------------------------------------------

    def _compile_in_time(self) -> None:
        """Moves to the arrays once compiled kernels are loaded, or pay."""
        if not self._may_compile or self._plain is None or self._plain.work < self._next_test_at:
            return
        self._next_test_at = self._plain.work + self._limits.work_between
        if self._load is not None and not jit.is_loaded() and self._compiling_pays():
            load, self._load = self._load, None
            load()
        self._go_over_if_loaded()

    def _compiling_pays(self) -> bool:
        assert self._plain is not None
        work, limits = self._plain.work, self._limits
        return work >= limits.work_uncached_max or (
            work >= limits.work_plain_max and jit.is_cached()
        )

    def _go_over_if_loaded(self) -> None:
        """Begins to fill arrays if kernels are loaded; completes a short move at once."""
        if self._arrays is not None or not jit.is_loaded():
            return
        self._may_compile = jit.loaded()
        if self._may_compile:
            from contrada.matching.array_engine import ArrayEngine

            self._begin_arrays(ArrayEngine(self._limits))
            if len(self) <= AT_ONCE_MAX or not self._in_pieces:
                self._fill(len(self))

    def _begin_arrays(self, arrays: "ArrayEngine[K]") -> None:
        self._arrays, self._waiting = arrays, list(self._engine)

    def _fill(self, units: int) -> None:
        """Moves up to `units` keys to the arrays, which replace the plain engine after the last."""
        assert self._plain is not None
        assert self._arrays is not None
        for _ in range(min(units, len(self._waiting))):
            key = self._waiting.pop()
            if key in self._plain and key not in self._arrays:
                try:
                    self._arrays.add(key, self._plain.members(key))
                except LimitError:  # too large for the arrays: the plain engine continues
                    self._arrays, self._waiting, self._may_compile = None, [], False
                    return
        if not self._waiting:
            self._left = self._plain if self._in_pieces else None
            self._engine, self._plain = self._arrays, None

    # --- matching -----------------------------------------------------------------------------

    def match(self, notification: Given) -> list[K]:
        """Returns the keys with a filter that matches the notification, each once, unordered.

        Of a mapping, an unstamped notification, only attributes that filters name are checked.
        Cost: near the size of the answer; see docs/matching.md.
        """
        if self._plain is not None:
            self._compile_in_time()
        found = self._engine.match(notification)
        return self._residues.filter_keys(found, notification) if self._residues.of else found

    def match_span(self, span: bytes, envelope: Envelope = UNSTAMPED) -> list[K]:
        """As `match`, of one span of msgpack: a map of checked attributes and type marks.

        The envelope has `@id`, `@publisher` and `@time`. Invalid bytes raise EncodingError or
        InvalidNotificationError, as far as they are read.
        """
        if self._plain is not None:
            self._compile_in_time()
        found = self._engine.match(span, envelope)
        return self._residues.filter_keys(found, span, envelope) if self._residues.of else found

    def match_spans(
        self, spans: Sequence[bytes] | Any, envelope_of: Callable[[int], Envelope] | None = None
    ) -> tuple[Any, Any]:
        """As `match_batch`, of spans of msgpack: a list, or an Arrow column of binary values.

        NULL is a notification without attributes. `envelope_of` returns the envelope of a span by
        its number; it is called only if `asks_for_envelopes`. Raises TypeError for another column.
        """
        if self._plain is not None:
            self._compile_in_time()
        of = envelope_of or _unstamped
        found = self._engine.match_spans(spans, of)
        if not self._residues.of:
            return found
        return self._residues.filter_batch(
            *found, lambda row: to_whole_notification(_span_at(spans, row), of(row))
        )

    @property
    def asks_for_envelopes(self) -> bool:
        """Whether some filter names `@id`, `@publisher` or `@time`."""
        return bool(self._engine.envelope)

    def match_runs(self, notifications: Sequence[Notification]) -> Iterator[tuple[list[K], int]]:
        """Returns the keys for several notifications, and the number of those with the same.

        The plain engine's work on several is counted (see `model.languages.work_budget`).
        """
        if len(notifications) <= 1:
            for each in notifications:
                yield self.match(each), 1
            return
        if self._plain is not None:
            for each in notifications:
                yield self._match_counted(each), 1
            return
        from contrada.matching.record_batches import runs_of

        offsets, keys = self.match_batch(notifications)
        bounds, found = offsets.tolist(), keys.tolist()
        for begin, end in pairwise(runs_of(offsets, keys)):
            yield found[bounds[begin] : bounds[begin + 1]], end - begin

    def _match_counted(self, notification: Notification) -> list[K]:
        plain = self._plain
        before = 0 if plain is None else plain.work
        found = self.match(notification)
        if plain is not None:
            spend(plain.work - before)
        return found

    def match_batch(self, notifications: Iterable[Given | bytes] | Any) -> tuple[Any, Any]:
        """Returns the keys for each of many notifications: (offsets, keys), two arrays.

        The keys of notification i are `keys[offsets[i] : offsets[i + 1]]`; integers of 64 bits as
        long as all keys are. An Arrow table is a batch of rows, with NULL as absent; its columns
        are matched in place. An Arrow column of binary values, and bytes among notifications, are
        spans as in `match_spans`. Raises InvalidNotificationError for a column with an invalid
        value, and for two columns of one name.
        """
        if self._plain is not None:
            # The cost of a table is known in advance; without it all of the first would be plain.
            self._plain.work += _WORK_OF_ROW * getattr(notifications, "num_rows", 0)
            self._compile_in_time()
        if hasattr(notifications, "column_names"):
            found = self._engine.match_table(notifications)
            if not self._residues.of:
                return found
            from contrada.matching.record_batches import row_of

            row = row_of(notifications, notifications.column_names)
            return self._residues.filter_batch(
                *found, lambda number: to_whole_notification(row(number))
            )
        if hasattr(notifications, "to_pylist"):
            return self.match_spans(notifications)
        if not self._residues.of:
            return self._engine.match_batch(notifications)
        listed = list(notifications)
        found = self._engine.match_batch(listed)
        return self._residues.filter_batch(*found, lambda row: to_whole_notification(listed[row]))

    def all_match(self, key: K, bundle: Bundle, steps_max: int) -> bool:
        """Whether a key matches each of a bundle. No also if one call of a kernel cannot decide it.

        It cannot in more than `steps_max` steps of work. Cost: that of the key's filters, one after
        the other; no other filter is checked.
        """
        if self._arrays is None or self._engine is not self._arrays or key in self._residues.of:
            return False
        return self._arrays.all_match(key, bundle, steps_max)

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
        found = [key for key in near if covers(product, self[key])]
        self._compile_in_time()
        return found

    def meeting(self, product: Product) -> list[K]:
        """Returns the keys with a filter that meets a filter, an advertisement or a query.

        Exact within the limits of the algebra. Cost: a test of every filter, and the candidates.
        """
        near, of = self._engine.near(product, inside=False), self._engine.members
        met = []
        for key in near:
            for each in of(key):
                if product_meets(each, product):
                    met.append(key)
                    break
        self._compile_in_time()
        return met

    # --- upkeep -------------------------------------------------------------------------------

    def maintain(self, units: int = 64) -> bool:
        """Does a bounded part of maintenance; returns whether more is left.

        A unit is one key: some tens of microseconds for a key with one filter.
        """
        if self._plain is not None:
            if self._arrays is None:
                return False
            self._fill(units)
            return True
        if self._left is not None:
            if self._left.dissolve(units):
                return True
            self._left = None
        assert self._arrays is not None
        return self._arrays.maintain(units)

    def renew(self) -> None:
        """Does at once what `maintain` does in parts: new places, and no unused memory."""
        self.begin_renewal()
        while self.maintain(4096):
            pass

    def begin_renewal(self) -> None:
        """Begins to choose all places anew, if filters are in arrays; `maintain` continues."""
        if self._plain is None and self._arrays is not None:
            self._arrays.begin_renewal()

    def save(self, path: str | Path) -> None:
        """Writes the index to a file for `load`. Replaces a file of that name.

        Raises EncodingError for keys that are not None, bool, int, float, str, bytes, or tuples of
        these, and for rules with a residue. Cost: from the plain engine, filling the arrays.
        """
        self._check_residues()
        arrays = self._arrays
        if self._plain is not None or arrays is None:
            from contrada.matching.array_engine import ArrayEngine

            arrays = ArrayEngine()
            for key in self._engine:
                arrays.add(key, self._engine.members(key))
        arrays.save(Path(path))

    def _check_residues(self) -> None:
        """Raises EncodingError: a residue is a function, which has no encoding."""
        if self._residues.of:
            reason = f"{len(self._residues.of)} rules have a residue, which has no encoding"
            raise EncodingError("the index", reason, writing=True)

    @classmethod
    def load(cls, path: str | Path, *, compiled: bool | None = None) -> "Index[Any]":
        """Returns the saved index.

        With Numba its arrays are mapped: processes share unchanged pages. Else, or by
        `compiled=False`, its filters are in a plain engine. Raises EncodingError for another file
        or version, OSError if it cannot be read.
        """
        from contrada.matching.array_engine import ArrayEngine

        arrays: ArrayEngine[Any] = ArrayEngine.load(Path(path))
        index: Index[Any] = cls(compiled=compiled)
        if compiled is not False and jit.compiled():
            return index._over(arrays)
        for key in arrays:
            index._engine.add(key, arrays.members(key))
        return index

    def _over(self, arrays: "ArrayEngine[K]") -> "Index[K]":
        """Returns the index, with these arrays."""
        self._plain, self._arrays, self._engine = None, arrays, arrays
        return self

    def statistics(self) -> IndexStatistics:
        """Returns the contents and the counters of the index."""
        is_filling = self._plain is not None and self._arrays is not None
        is_renewing = self._arrays is not None and self._arrays.is_renewing
        return IndexStatistics(
            keys=len(self),
            is_compiled=self._engine.is_compiled,
            renewing=is_filling or is_renewing,
            **self._engine.sizes(),
        )

    def validate(self) -> None:
        """Checks the invariants; the AssertionError names the broken one. Cost: all filters."""
        self._engine.validate()
        if self._plain is not None and self._arrays is not None:
            self._arrays.validate()
            waiting = set(self._waiting)
            lost = [key for key in self._plain if key not in self._arrays and key not in waiting]
            assert not lost, f"keys wait for nothing: {lost}"
            assert all(key in self._plain for key in self._arrays), "the arrays have keys too many"


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
    """Returns a span of a list or of an Arrow column; NULL has no attributes."""
    span = spans[row]
    plain = span.as_py() if hasattr(span, "as_py") else span
    return EMPTY_SPAN if plain is None else bytes(plain)


def _rebuilt(compiled: bool | None, items: "list[tuple[K, Selection]]") -> Index[K]:
    index: Index[K] = Index(compiled=compiled)
    for key, subscription in items:
        index.add(key, subscription)
    return index


def _unstamped(_: int) -> Envelope:
    return UNSTAMPED
