"""`Index`: which keys' filters match a notification.

Two engines hold the filters. The plain one (`plain`) is made of dictionaries and checks filters one
by one; the other (`arrayed`) holds them in flat arrays for compiled kernels. An index begins with
the plain one, and goes over to the arrays where Numba is installed and that pays: they are filled
in bounded pieces while the plain engine goes on matching, and take over when they hold everything.
Answers are always exact and the same.

Source: PODC 2000 §5 (the cost of matching).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from contrada.errors import EncodingError, LimitError
from contrada.matching.kernels import jit
from contrada.matching.packed import EMPTY_SPAN, Bundle, Given, whole
from contrada.matching.plain_engine import PlainEngine
from contrada.model import Envelope, Filter, FilterSet, Notification, Product, Selection
from contrada.model.algebra.filter import Selects, selection
from contrada.model.algebra.notification import UNSTAMPED
from contrada.model.algebra.product import product_meets
from contrada.model.algebra.relations import covers, witness
from contrada.model.languages.work_budget import Unbounded, spend
from contrada.model.rule import Rule, says_yes

if TYPE_CHECKING:
    from contrada.matching.array_engine import ArrayEngine

K = TypeVar("K", bound=Hashable)

WORK_PLAIN_MAX: Final = 500_000
"""Work of the plain engine, where compiled kernels are cached. About as long as loading them takes:
a notification counts for four, each filter that is checked for one, or more where it has many
attributes. Beyond it: they are loaded."""

WORK_UNCACHED_MAX: Final = 20_000_000
"""The same work, where the kernels must be compiled first, once per machine. Beyond it: they are
compiled."""

WORK_BETWEEN: Final = 1_000
"""Work of the plain engine from one look whether kernels are loaded to the next."""

_WORK_OF_ROW: Final = 30
"""Steps that a row of a table counts for beforehand."""

AT_ONCE_MAX: Final = 256
"""Keys that a service's index gives from the plain engine to the arrays at once. Beyond it: piece
by piece."""


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """What an index holds and did.

    `filters` are distinct in arrays; `everywhere` is how many of them every notification is
    checked against; `pooled` how many are matched by bitmaps; `candidates` is how many filters the
    last notification was checked against; `bytes` is the memory of the arrays, 0 where none are.
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
    """Keys with their filters. `match` gives the keys of which a filter matches.

    It is a mapping to look at: `index[key]`, `key in index`, iteration, `keys()`, `items()`. It can
    be pickled, which takes as long as to add all anew; `save` gives a file that is mapped.

    Matching begins in plain Python. Where Numba is installed, compiled kernels take over where
    they are loaded already, or as soon as so much was matched that it pays. Then `load` is called,
    once; by default it loads them, which takes about a second from a cache on disk, and up to a
    minute once per machine. A service gives a `load` that does so beside its work; until they are
    there the plain engine goes on, and `maintain` then fills the arrays piece by piece.
    `compiled=True` loads at once, `compiled=False` never; the answers are the same.

    An index is used by one thread at a time.
    """

    def __init__(
        self, *, compiled: bool | None = None, load: Callable[[], object] = jit.compiled
    ) -> None:
        self._load: Callable[[], object] | None = load
        self._in_pieces = load is not jit.compiled
        self._plain: PlainEngine[K] | None = PlainEngine()
        self._arrays: ArrayEngine[K] | None = None
        self._left: PlainEngine[K] | None = None
        self._waiting: list[K] = []
        self._asked_again_at = 0
        self._may_compile = compiled is not False
        self._engine: PlainEngine[K] | ArrayEngine[K] = self._plain
        self._residues: Residues[K] = Residues()
        if compiled:
            jit.compiled()
            self._go_over_if_loaded()

    # --- keys ---------------------------------------------------------------------------------

    def add(self, key: K, subscription: Selects | Rule) -> None:
        """Gives a key its filter or filters, instead of those it had.

        A text or a mapping may stand for a filter.

        The key of a rule of another dialect matches where the rule does: what its filters leave
        open is asked of what they match, some microseconds each.
        Raises InvalidFilterError for what is no filter, TypeError for what cannot be a key,
        LimitError for what is too large; then the key keeps what it had. Cost: some microseconds
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
        """Takes a key and its filters away; a key that is not there is no error."""
        self._residues.put(key, None)
        self._engine.remove(key)
        if self._plain is not None and self._arrays is not None:
            self._arrays.remove(key)

    def clear(self) -> None:
        """Takes all keys away."""
        for key in list(self):
            self.remove(key)

    def __getitem__(self, key: K) -> Filter | FilterSet:
        """The filter, or filter set, of a key; a rule's leave its residue open.

        KeyError where there is none.
        """
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

    # --- going over ---------------------------------------------------------------------------

    def _compile_in_time(self) -> None:
        """Goes over to the arrays once compiled kernels are there, or pay."""
        if not self._may_compile or self._plain is None or self._plain.work < self._asked_again_at:
            return
        self._asked_again_at = self._plain.work + WORK_BETWEEN
        if self._load is not None and not jit.is_loaded() and self._compiling_pays():
            load, self._load = self._load, None
            load()
        self._go_over_if_loaded()

    def _compiling_pays(self) -> bool:
        assert self._plain is not None
        work = self._plain.work
        return work >= WORK_UNCACHED_MAX or (work >= WORK_PLAIN_MAX and jit.is_cached())

    def _go_over_if_loaded(self) -> None:
        """Begins to fill arrays where kernels are loaded; ends it at once where that is short."""
        if self._arrays is not None or not jit.is_loaded():
            return
        self._may_compile = jit.loaded()
        if self._may_compile:
            from contrada.matching.array_engine import ArrayEngine

            self._begin_arrays(ArrayEngine())
            if len(self) <= AT_ONCE_MAX or not self._in_pieces:
                self._fill(len(self))

    def _begin_arrays(self, arrays: "ArrayEngine[K]") -> None:
        self._arrays, self._waiting = arrays, list(self._engine)

    def _fill(self, units: int) -> None:
        """Gives so many of the plain engine's keys to the arrays; after the last they take over."""
        assert self._plain is not None
        assert self._arrays is not None
        for _ in range(min(units, len(self._waiting))):
            key = self._waiting.pop()
            if key in self._plain and key not in self._arrays:
                try:
                    self._arrays.add(key, self._plain.members(key))
                except LimitError:  # the plain engine goes on with what they have no room for
                    self._arrays, self._waiting, self._may_compile = None, [], False
                    return
        if not self._waiting:
            self._left = self._plain if self._in_pieces else None
            self._engine, self._plain = self._arrays, None

    # --- matching -----------------------------------------------------------------------------

    def match(self, notification: Given) -> list[K]:
        """Returns the keys with a filter that matches the notification, each once, in no order.

        A mapping is taken as the attributes of a notification that is not stamped yet; only what
        filters ask for is looked at, and the system's names are passed over.
        Cost: near the size of the answer; see docs/matching.md.
        """
        if self._plain is not None:
            self._compile_in_time()
        found = self._engine.match(notification)
        return self._residues.decided(found, notification) if self._residues.of else found

    def match_span(self, span: bytes, envelope: Envelope = UNSTAMPED) -> list[K]:
        """As `match`, of one span of msgpack: a map of attributes, checked as a notification's are.

        Type marks may stand in it; `@id`, `@publisher` and `@time` are the envelope's. What filters
        ask for is not checked again; where bytes turn out to be no such map, EncodingError or
        InvalidNotificationError is raised.
        """
        if self._plain is not None:
            self._compile_in_time()
        found = self._engine.match(span, envelope)
        return self._residues.decided(found, span, envelope) if self._residues.of else found

    def match_spans(
        self, spans: Sequence[bytes] | Any, envelope_of: Callable[[int], Envelope] | None = None
    ) -> tuple[Any, Any]:
        """As `match_batch`, of spans of msgpack: a list, or an Arrow column of binary values.

        NULL is a notification without attributes. `envelope_of` gives the envelope of a span by its
        number and is called only where `asks_for_envelopes`; without it no span is stamped.
        Errors: as `match_span`, and TypeError for another column. Cost: one call of compiled code,
        where matching is compiled.
        """
        if self._plain is not None:
            self._compile_in_time()
        of = envelope_of or _unstamped
        found = self._engine.match_spans(spans, of)
        if not self._residues.of:
            return found
        return self._residues.decided_each(*found, lambda row: whole(_span_at(spans, row), of(row)))

    @property
    def asks_for_envelopes(self) -> bool:
        """Whether some filter asks for `@id`, `@publisher` or `@time`."""
        return bool(self._engine.envelope)

    def match_runs(self, notifications: Sequence[Notification]) -> Iterator[tuple[list[K], int]]:
        """The keys for several notifications, matched by one call, and for how many in a row.

        What the plain engine does for several is counted as work (see
        `model.languages.work_budget`).
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
        long as all keys are. An Arrow table is a batch of rows, where NULL is absent; its columns
        are matched as they are. An Arrow column of binary values, and bytes among notifications,
        are spans as in `match_spans`. Raises InvalidNotificationError for a column with a value
        that none can have, and for two columns of one name.
        """
        if self._plain is not None:
            # What a table costs is known before: else all of the first were matched plainly.
            self._plain.work += _WORK_OF_ROW * getattr(notifications, "num_rows", 0)
            self._compile_in_time()
        if hasattr(notifications, "column_names"):
            found = self._engine.match_table(notifications)
            if not self._residues.of:
                return found
            from contrada.matching.record_batches import row_of

            row = row_of(notifications, notifications.column_names)
            return self._residues.decided_each(*found, lambda number: whole(row(number)))
        if hasattr(notifications, "to_pylist"):
            return self.match_spans(notifications)
        if not self._residues.of:
            return self._engine.match_batch(notifications)
        listed = list(notifications)
        found = self._engine.match_batch(listed)
        return self._residues.decided_each(*found, lambda row: whole(listed[row]))

    def all_match(self, key: K, bundle: Bundle, steps_max: int) -> bool:
        """Whether a key matches each of a bundle. No also where a call of a kernel cannot tell.

        Nor can it in more steps of work than these. Cost: that of the key's filters, one after the
        other; nothing else is looked at.
        """
        if self._arrays is None or self._engine is not self._arrays or key in self._residues.of:
            return False
        return self._arrays.all_match(key, bundle, steps_max)

    # --- relations ----------------------------------------------------------------------------

    def covering(self, product: Filter) -> list[K]:
        """Returns the keys whose filter, or union of filters, covers the filter.

        Exact within the limits of the algebra; a rule with a residue is taken to cover nothing.
        Cost: one match, and the candidates.
        """
        example = witness(product)
        keys = self._engine if example is None else self.match(example)
        # What a residue says of the filter is not known: no is the safe answer.
        decided = [key for key in keys if key not in self._residues.of]
        return [key for key in decided if covers(self[key], product)]

    def covered(self, product: Filter | FilterSet) -> list[K]:
        """Returns the keys whose filter, or union of filters, the filter covers.

        Exact within the limits of the algebra. Cost: a look at every filter, and the candidates.
        """
        near = self._engine.near(product, inside=True)
        found = [key for key in near if covers(product, self[key])]
        self._compile_in_time()
        return found

    def meeting(self, product: Product) -> list[K]:
        """Returns the keys whose filter meets a filter, an advertisement or a query.

        Exact within the limits of the algebra. Cost: a look at every filter, and the candidates.
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
        """Does a bounded piece of upkeep; whether more is waiting.

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
        """Chooses all places anew, by what was seen meanwhile, and frees what is unused.

        An index does so by itself, in pieces, when it is time.
        """
        self.begin_renewal()
        while self.maintain(4096):
            pass

    def begin_renewal(self) -> None:
        """Begins to choose all places anew, where filters are in arrays; `maintain` goes on."""
        if self._plain is None and self._arrays is not None:
            self._arrays.begin_renewal()

    def save(self, path: str | Path) -> None:
        """Writes the index to a file that `load` maps. A file of that name is replaced.

        Raises EncodingError for keys that are not None, bool, int, float, str, bytes, or tuples
        of these, and for rules with a residue. Cost: from the plain engine, filling the arrays.
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
        """What decides a residue is a function, which cannot be written down."""
        if self._residues.of:
            reason = f"{len(self._residues.of)} rules leave a residue open, which no bytes hold"
            raise EncodingError("the index", reason, writing=True)

    @classmethod
    def load(cls, path: str | Path, *, compiled: bool | None = None) -> "Index[Any]":
        """Returns the index that was saved.

        Where Numba is installed its arrays are mapped: processes share what none changes. Else, or
        by `compiled=False`, its filters go to a plain engine.
        Raises EncodingError for another file or version, OSError where it cannot be read.
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
        """Returns a frozen view of what the index holds and did."""
        is_filling = self._plain is not None and self._arrays is not None
        is_renewing = self._arrays is not None and self._arrays.is_renewing
        return IndexStatistics(
            keys=len(self),
            is_compiled=self._engine.is_compiled,
            renewing=is_filling or is_renewing,
            **self._engine.sizes(),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all filters."""
        self._engine.validate()
        if self._plain is not None and self._arrays is not None:
            self._arrays.validate()
            waiting = set(self._waiting)
            lost = [key for key in self._plain if key not in self._arrays and key not in waiting]
            assert not lost, f"keys wait for nothing: {lost}"
            assert all(key in self._plain for key in self._arrays), "the arrays have keys too many"


class Residues(Generic[K]):
    """What the filters of some keys leave open, asked of what the filters match.

    A rule of another dialect may ask for more than filters can. The index finds it by its filters,
    which cover it, and its residue then decides, on the whole notification. One that raises says
    no; see `says_yes`. A key without a residue is decided by its filters.
    """

    def __init__(self) -> None:
        self.of: dict[K, Callable[[Notification], bool]] = {}
        """Looked at before each match: mostly empty."""

    def put(self, key: K, holds: Callable[[Notification], bool] | None) -> None:
        """Gives a key its residue, or none."""
        if holds is None:
            self.of.pop(key, None)
        else:
            self.of[key] = holds

    def decided(
        self, keys: list[K], given: Given | bytes, envelope: Envelope = UNSTAMPED
    ) -> list[K]:
        """Returns those of the keys whose residue holds, too."""
        of = self.of
        if of.keys().isdisjoint(keys):
            return keys
        notification = whole(given, envelope)
        return [key for key in keys if key not in of or says_yes(of[key], notification)]

    def decided_each(
        self, offsets: Any, keys: Any, notification_of: Callable[[int], Notification]
    ) -> tuple[Any, Any]:
        """As `decided`, of several notifications: those keys and their offsets are kept."""
        import numpy as np

        of, listed, bounds = self.of, keys.tolist(), offsets.tolist()
        kept = np.ones(len(listed), dtype=bool)
        for row, (begin, end) in enumerate(pairwise(bounds)):
            asked = [place for place in range(begin, end) if listed[place] in of]
            if asked:
                notification = notification_of(row)
                for place in asked:
                    kept[place] = says_yes(of[listed[place]], notification)
        before = np.concatenate((np.zeros(1, dtype=offsets.dtype), np.cumsum(kept)))
        return before[offsets].astype(offsets.dtype), keys[kept]


def _span_at(spans: Any, row: int) -> bytes:
    """Returns a span of a list or of an Arrow column, where NULL has no attributes."""
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
