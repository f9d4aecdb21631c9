"""`Shard` and `merged`: the work of a worker to find covered and mergeable filters of a base.

Filters travel as *forms*: short bytes, equal for filters with equal sets. Forms are encoded and
decoded ten times as fast as the filters' encoding; they are never stored.

A coverer of f matches every notification that f matches. So two examples of f, one at the lower
ends of its sets and one at the upper ends, are matched against an index of filters, a whole batch
at once. Only filters that match both, hardly more than the coverers, are tested for covering f.

A coverer of f constrains only attributes of f, and contains f's example at each of them. So a
filter is *filed* once, under one of its attributes: under its values there if they are few, else
under the attribute itself. It is *looked up* under each of its attributes, by its example there and
by the attribute itself. These *places* are hashed to shards.

All workers agree on which of two filters is dropped. There is one total order of all filters. A
filter drops another that it covers in two cases: it is earlier in that order, or the other one is
proved not to cover it. Such steps never form a cycle, so one of several equal filters remains.

Source: PODC 2000 §4 (exploiting commonalities); perfect merging is this project's.
"""

import marshal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from contrada.errors import LimitError
from contrada.matching.access_predicates import tree_key
from contrada.matching.index import Index
from contrada.model import Filter, ValueSet
from contrada.model.algebra.attributes import span_of
from contrada.model.algebra.product import ENVELOPE_SETS, example_of, product_covers
from contrada.model.algebra.relations import witness
from contrada.model.algebra.simplification import single_values
from contrada.model.algebra.value_set import of_cuts, union
from contrada.model.codec import SET_PARTS_MAX, from_msgpack, to_msgpack
from contrada.model.domains import line
from contrada.model.domains.values import ABSENT, NUMBER, TEXT, TIME, Key, predecessor, value_of
from contrada.model.languages import decision
from contrada.model.languages.language import size_of

CUTS_MERGED_MAX: Final = SET_PARTS_MAX // 2
"""Cuts of a merged value set. Beyond it: the filters stay unmerged."""

TEXTS_MERGED_MAX: Final = 8
"""Parts of a merged expression on text. Beyond it: the filters stay unmerged."""

FILTERS_KEPT_MAX: Final = 4_096
"""Cached filters of a worker. Beyond it: the least recently used one is decoded again."""

LOOKED_UP_MAX: Final = 1_000
"""Filters whose examples are matched at once. Beyond it: they are matched in portions."""

PROBED_MAX: Final = 2_000
"""Filters of a part that are probed for covered ones. Beyond it: a sample of this size."""

_PROBED_SHARE: Final = 1 / 8
"""The covered share of a probe from which on looking up all filters pays."""

_FILED_FIRST: Final = 250
"""Filters that are filed before others are looked up among them."""

PLACES_KEPT_MAX: Final = 16_384
"""Cached places. Beyond it: the least recently used one is computed again."""

_MARSHAL_VERSION: Final = 2
"""The last version that encodes equal values as equal bytes."""

_DOMAIN: Final = 2**64
"""An upper bound of the keys of a domain."""

FilterSets: TypeAlias = Mapping[str, ValueSet]
FilterForm: TypeAlias = bytes


def form_of(sets: FilterSets) -> FilterForm:
    """Returns the form of sets, which are sorted by name. Cost: some microseconds."""
    parts = [(name, of.line if of.text is None else to_msgpack(of)) for name, of in sets.items()]
    return marshal.dumps(parts, _MARSHAL_VERSION)


def sets_of(form: FilterForm) -> dict[str, ValueSet]:
    """Returns the sets of a form that `form_of` made in the same run."""
    return {name: _set_of(encoded) for name, encoded in marshal.loads(form)}


def _set_of(encoded: Any) -> ValueSet:
    if isinstance(encoded, tuple):
        return of_cuts(encoded)
    read = from_msgpack(encoded)
    assert isinstance(read, ValueSet)
    return read


@lru_cache(maxsize=FILTERS_KEPT_MAX)
def filter_of(form: FilterForm) -> Filter:
    """Returns the filter of a form."""
    return Filter.of_sets(sets_of(form))


# --- merging --------------------------------------------------------------------------------------


def cluster_of(sets: FilterSets, *, first: bool) -> int:
    """Returns a number that filters share if they agree in their names and in their first or last
    set. Two filters that differ in one set share one of the two numbers, or have no other set.
    """
    names = list(sets)
    kept = names[:1] if first else names[-1:]
    encoded = [names, form_of({name: sets[name] for name in kept}) if len(names) > 1 else b""]
    return _hash(marshal.dumps(encoded, _MARSHAL_VERSION))


ClusterMember: TypeAlias = tuple[Any, dict[str, ValueSet]]
"""The least key of merged filters, and their sets."""


def merge(members: list[ClusterMember]) -> list[ClusterMember]:
    """Returns fewer filters with the same union: filters that agree in all sets but one become one.

    Merges attribute by attribute, until nothing merges. Text operators that are no intervals are
    united only if they are few: decisions on thousands would take seconds.
    """
    while True:
        count = len(members)
        for name in sorted({name for _, sets in members for name in sets}):
            members = _merge_along(name, members)
        if len(members) == count:
            return members


def _merge_along(name: str, members: list[ClusterMember]) -> list[ClusterMember]:
    groups: dict[Any, list[ClusterMember]] = {}
    found: list[ClusterMember] = []
    for member in members:
        sets = member[1]
        if name in sets:
            rest = tuple([(other, of.form()) for other, of in sets.items() if other != name])
            groups.setdefault(rest, []).append(member)
        else:
            found.append(member)
    for group in groups.values():
        for some in _uniteable_groups(name, group):
            if len(some) == 1 or sum(len(sets[name].line) for _, sets in some) > CUTS_MERGED_MAX:
                found += some
                continue
            key, sets = min(each[0] for each in some), dict(some[0][1])
            sets[name] = union(each[1][name] for each in some)
            found.append((key, dict(Filter.of_sets(sets).sides)))
    return found


def _uniteable_groups(name: str, group: list[ClusterMember]) -> list[list[ClusterMember]]:
    """Returns the group; with too much text, its intervals, and each other filter alone."""
    texts = [text for _, sets in group if (text := sets[name].text) is not None]
    if not texts or sum(map(size_of, texts)) <= TEXTS_MERGED_MAX:
        return [group]
    intervals = [each for each in group if each[1][name].text is None]
    others = [[each] for each in group if each[1][name].text is not None]
    return [intervals, *others] if intervals else others


# --- places ---------------------------------------------------------------------------------------

ANYWHERE: Final = 0
"""The place of a filter without attributes, which covers all."""


def own_places(sets: FilterSets) -> Iterator[list[int]]:
    """Yields the possible places of a filter: for each attribute with few values, these values."""
    for name, of in sets.items():
        values = single_values(of)
        if values:
            yield [_place(name, value) for value in values]


def filing_places(sets: FilterSets, shares: Mapping[int, float]) -> list[int]:
    """Returns the places of a filter with the fewest others, as far as `shares` knows."""
    own = list(own_places(sets))
    if own:
        return min(own, key=lambda each: (sum(shares.get(at, 0.0) for at in each), len(each)))
    ranges = [_place(name) for name in sets]
    return [min(ranges, key=lambda place: shares.get(place, 0.0))] if ranges else [ANYWHERE]


def lookup_places(sets: FilterSets) -> list[int]:
    """Returns the places of all possible coverers of a filter; empty without an example."""
    places = [ANYWHERE]
    for name, of in sets.items():
        key = of.some_key(readable=False)
        if key is None:
            return []
        places += [_place(name), _place(name, key)]
    return places


def count_places(forms: Iterable[FilterForm]) -> Counter[int]:
    """Counts the filters that could be filed under each place, including ranges."""
    counts: Counter[int] = Counter()
    for form in forms:
        sets = sets_of(form)
        counts.update([place for places in own_places(sets) for place in places])
        counts.update([_place(name) for name in sets])
    return counts


@lru_cache(maxsize=PLACES_KEPT_MAX)
def _place(name: str, key: Key | None = None) -> int:
    return _hash(marshal.dumps((name, key), _MARSHAL_VERSION))


def _hash(what: bytes) -> int:
    return int.from_bytes(blake2b(what, digest_size=8).digest(), "big", signed=True)


# --- order and examples ---------------------------------------------------------------------------


def rank_of(sets: FilterSets) -> float:
    """Returns a measure of a filter's narrowness: no coverer has a higher one, except for rounding
    and text. Filters with low ranks drop others early; only time depends on it.
    """
    total = 0.0
    for of in sets.values():
        measure = 0 if of.text is None else _DOMAIN // 2
        for start, end in line.pieces(of.line):
            measure += (7 * _DOMAIN if end is None else _position(end)) - _position(start)
        total += 7.0 - measure / _DOMAIN
    return total


def _position(cut: line.Cut) -> int:
    domain, key = tree_key(cut)
    return domain * _DOMAIN + key + _DOMAIN // 2


def examples_of(sets: FilterSets) -> tuple[bytes | None, bytes | None]:
    """Returns the spans of two matching notifications: the lowest, and the highest if it differs.
    Both are None for filters of the envelope, or without a known example: see `Shard.look_up`.
    """
    example = None if ENVELOPE_SETS.keys() & sets.keys() else example_of(sets)
    if example is None:
        return None, None
    present = {name: key for name, key in example.items() if key[0] != ABSENT}
    low = {name: value_of(key) for name, key in present.items()}
    high = {name: value_of(_last_key(sets[name], key)) for name, key in present.items()}
    try:
        first, last = span_of(low), span_of(high)
    except LimitError:
        return None, None
    return first, last if last != first else None


def _last_key(of: ValueSet, other: Key) -> Key:
    """Returns the last number or time of a set, if it has one; else another of its keys."""
    cuts = of.line
    if of.text is not None or len(cuts) & 1 or not cuts or len(cuts[-1]) == 1:
        return other
    domain, end = cuts[-1]
    if domain == TEXT or other[0] == ABSENT:
        return other
    before = predecessor(end) if domain == NUMBER else end - 1 if domain == TIME else None  # type: ignore[arg-type,operator]
    return other if before is None else (domain, before)


# --- looking up -----------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """A filter with a coverer. `by` None: undecided, so the filter stays."""

    form: FilterForm
    by: FilterForm | None


class Examples(NamedTuple):
    """Filters with their ranks, and their examples as Arrow columns: see `examples_of`."""

    forms: list[FilterForm]
    ranks: list[float]
    lows: Any
    highs: Any

    @classmethod
    def of(cls, forms: Iterable[FilterForm]) -> "Examples":
        """Returns the examples of filters, sorted by rank and form."""
        rows = []
        for form in forms:
            sets = sets_of(form)
            rows.append((rank_of(sets), form, *examples_of(sets)))
        rows.sort(key=lambda row: row[:2])
        ranks, ordered, lows, highs = zip(*rows, strict=True) if rows else ((),) * 4
        arrays = (pa.array(each, pa.binary()) for each in (lows, highs))
        return cls(list(ordered), list(ranks), *arrays)

    def part(self, begin: int, count: int) -> "Examples":
        """Returns `count` of them from `begin` on, or the rest."""
        end = begin + count
        lows, highs = (each.slice(begin, count) for each in (self.lows, self.highs))
        return Examples(self.forms[begin:end], self.ranks[begin:end], lows, highs)


_DROPPED: Final = -1
_ELSEWHERE: Final = -2
"""The numbers of a filter that was covered on arrival, and of one that is not filed."""


class Shard:
    """Filters that are filed together; finds coverers among them. `strictly`: for filters of one
    base, where equal filters must not drop each other. Otherwise any coverer will do.
    """

    def __init__(self, *, strictly: bool) -> None:
        self._strictly = strictly
        self._index: Index[int] = Index()
        self._forms: list[FilterForm] = []
        self._ranks: list[float] = []
        self._numbers: dict[FilterForm, int] = {}
        """The number of each form; _DROPPED if it was covered on arrival."""

    def file(self, given: "Examples") -> Iterator[Verdict]:
        """Files filters in the order of ranks and forms; yields verdicts on covered ones, which are
        left out. Those that others of the same part cover are filed; `look_up` finds them later.
        """
        begin = 0
        while begin < len(given.forms):
            # Parts double in size: so each is looked up among as many filed ones.
            some = given.part(begin, max(_FILED_FIRST, len(self._forms)))
            begin += len(some.forms)
            for verdict in self.look_up(some) if self._strictly else ():
                if verdict.by is not None and verdict.form not in self._numbers:
                    self._numbers[verdict.form] = _DROPPED
                    yield verdict
            for form, rank in zip(some.forms, some.ranks, strict=True):
                if form not in self._numbers:
                    self._numbers[form] = len(self._forms)
                    self._index.add(len(self._forms), filter_of(form))
                    self._forms.append(form)
                    self._ranks.append(rank)

    def look_up(self, given: "Examples") -> Iterator[Verdict]:
        """Yields the verdicts on filters. Cost: one or two matches, and some decisions."""
        for begin in range(0, len(given.forms) if self._forms else 0, LOOKED_UP_MAX):
            some = given.part(begin, LOOKED_UP_MAX)
            for row, found in self._candidates(some.forms, some.lows, some.highs):
                verdict = self._verdict(some.forms[row], some.ranks[row], found)
                if verdict is not None:
                    yield verdict

    def _candidates(
        self, forms: list[FilterForm], lows: Any, highs: Any
    ) -> Iterator[tuple[int, list[int]]]:
        """Yields the filters that match both examples, for each row with any."""
        count = len(self._forms)
        known = np.array([self._numbers.get(form, _ELSEWHERE) for form in forms], dtype=np.int64)
        is_open = known != _DROPPED
        has_low = lows.is_valid().to_numpy(zero_copy_only=False)
        pairs = self._pairs(lows, np.flatnonzero(has_low & is_open))
        has_high = highs.is_valid().to_numpy(zero_copy_only=False) & is_open
        also = self._pairs(highs, np.flatnonzero(has_high))
        rows, numbers = pairs // count, pairs % count
        # All examples must match, and no filter is its own coverer.
        wanted = (~has_high[rows] | np.isin(pairs, also)) & (numbers != known[rows])
        rows, numbers = rows[wanted], numbers[wanted]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        for row, found in zip(rows[starts].tolist(), np.split(numbers, starts[1:]), strict=False):
            yield row, found.tolist()
        # Filters without an example in columns: the algebra makes one, which is matched alone.
        for row in np.flatnonzero(~has_low & is_open).tolist():
            example = witness(filter_of(forms[row]))
            if example is not None:
                mine = known[row]
                yield row, [each for each in self._index.match(example) if each != mine]

    def _pairs(self, examples: Any, rows: Any) -> Any:
        """Returns rows and filters that match their examples, each pair encoded as one number."""
        offsets, keys = self._index.match_spans(examples.take(rows))
        return np.repeat(rows, np.diff(offsets)) * len(self._forms) + keys.astype(np.int64)

    def _verdict(self, form: FilterForm, rank: float, found: list[int]) -> Verdict | None:
        if not found:
            return None
        of, is_open = filter_of(form), False
        for number in found:
            other = filter_of(self._forms[number])
            covers, proved = _decide(other, of)
            if (
                covers
                and self._strictly
                and (self._ranks[number], self._forms[number]) > (rank, form)
            ):
                # The other one is later in the order: it drops this one only if the reverse is
                # disproved, so that of two equal filters one is left.
                back, proved = _decide(of, other)
                covers = not back and proved
            if covers:
                return Verdict(form, self._forms[number])
            is_open |= not proved
        return Verdict(form, None) if is_open else None


def covered_by_few(few: list[FilterForm], parts: Iterable[list[FilterForm]]) -> Iterator[Verdict]:
    """Yields the filters that a few of the base cover. Skips a part if few filters of a sample are
    covered. Cost: some ten microseconds for each filter; of the sample only for a skipped part.
    """
    shard = Shard(strictly=True)
    among = {verdict.form: verdict for verdict in shard.file(Examples.of(few))}
    for forms in parts:
        some = forms[:: 1 + len(forms) // PROBED_MAX]
        covered = sum(form in among for form in some) + sum(1 for _ in _covered_by(shard, some))
        if covered < _PROBED_SHARE * len(some):
            continue
        yield from (among[form] for form in forms if form in among)
        yield from _covered_by(shard, forms)


def _covered_by(shard: Shard, forms: list[FilterForm]) -> Iterator[Verdict]:
    return (verdict for verdict in shard.look_up(Examples.of(forms)) if verdict.by is not None)


def _decide(one: Filter, other: Filter) -> tuple[bool, bool]:
    """Whether one covers the other, and whether that is proved."""
    before = decision.safe_answers.total()
    covers = product_covers(one, other)
    # A yes is always proved; a no is proved unless a conservative answer was counted.
    return covers, covers or decision.safe_answers.total() == before
