"""`simplify`: fewer filters that match the same notifications.

First, filters that agree in all attributes but one are merged, attribute by attribute, until
nothing merges. Then each filter that another one covers is dropped. Both preserve the union
exactly.

A filter that covers another holds each of its points. So each filter is indexed under one of its
attributes, by the values of its set or by its hull, the smallest interval around it. A filter is
compared only with those whose values or hull hold a sample point of it.

Source: PODC 2000 §4 (exploiting commonalities); perfect merging is this project's.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from contrada.errors import LimitError
from contrada.model.algebra import boxes
from contrada.model.algebra.filter import Filter, FilterSet, Selection, Selects
from contrada.model.algebra.hulls import folded_place, hull
from contrada.model.algebra.product import product_covers
from contrada.model.algebra.value_set import ValueSet
from contrada.model.domains import line
from contrada.model.domains.line import Cut
from contrada.model.domains.values import TEXT, Key
from contrada.model.languages import decision
from contrada.model.languages.work_budget import Work, spend

SIMPLIFY_WORK_MAX: Final = 2_000_000
"""Steps, of about 1 µs, to merge filters, and to drop covered ones. Beyond it: the rest remains."""

POINTS_FILED_MAX: Final = 16
"""Values of an attribute by which a filter is indexed. Beyond it: by the hull of its set."""

_COMPARISON_WORK: Final = 2  # Steps to compare two filters that differ
_END: Final[Cut] = (TEXT + 1,)


def simplify(filters: str | Selection | Iterable[Selects]) -> FilterSet:
    """Returns a union of the same notifications without covered or mergeable members.

    Two members agree in an attribute if their sets have the same form. Cost: a few passes over the
    filters, and the comparisons with possible coverers; exact within the limits of `decision` and
    `SIMPLIFY_WORK_MAX`, beyond them a redundant member may remain.
    """
    members = [member for member in FilterSet(filters).filters if not member.is_empty]
    try:
        with Work("SIMPLIFY_WORK_MAX", SIMPLIFY_WORK_MAX):
            merged = boxes.merge_boxes(member.sets for member in members)
            members = [Filter.of_sets(sets) for sets in merged]
    except LimitError:
        decision.safe_answers.add("simplify: SIMPLIFY_WORK_MAX")
    files = _Files(members)
    kept = dict(enumerate(members))
    try:
        with Work("SIMPLIFY_WORK_MAX", SIMPLIFY_WORK_MAX):
            for number, member in enumerate(members):
                for other in files.possible_coverers(member):
                    spend(_COMPARISON_WORK)
                    if other != number and other in kept and product_covers(kept[other], member):
                        del kept[number]
                        break
    except LimitError:
        decision.safe_answers.add("simplify: SIMPLIFY_WORK_MAX")
    return FilterSet(kept.values())


class _Files:
    """Filters by an attribute and its values, or hull; these hold all points of covered filters."""

    def __init__(self, members: list[Filter]) -> None:
        self._by_value: dict[tuple[str, Key], list[int]] = {}
        self._hulls: dict[str, list[tuple[Cut, Cut, int]]] = {}
        self._anywhere: list[int] = []
        common = Counter(name for member in members for name in member.sets)
        for number, member in enumerate(members):
            if not member.sets:
                self._anywhere.append(number)
                continue
            found = ((name, single_values(each)) for name, each in member.sets.items())
            name, keys = next((each for each in found if each[1]), ("", None))
            for key in keys or ():
                self._by_value.setdefault((name, key), []).append(number)
            if not keys:
                name = min(member.sets, key=common.__getitem__)
                around = hull(member.sets[name])
                end = _END if len(around) & 1 else around[-1]
                self._hulls.setdefault(name, []).append((around[0], end, number))
        self._ranges = {name: _HullTable(hulls) for name, hulls in self._hulls.items()}

    def possible_coverers(self, member: Filter) -> Iterator[int]:
        """Yields every filter that can cover this one, and some that cannot."""
        yield from self._anywhere
        for name, value_set in member.sets.items():
            sample = value_set.some_key(readable=False)
            if sample is None:
                yield from (number for _, _, number in self._hulls.get(name, ()))
                continue
            yield from self._by_value.get((name, sample), ())
            ranges = self._ranges.get(name)
            if ranges is not None:
                yield from ranges.around(folded_place(sample))


class _HullTable:
    """Hulls, searched by a point."""

    def __init__(self, hulls: list[tuple[Cut, Cut, int]]) -> None:
        import numpy as np  # takes longer to load than all of the model

        self._cuts = sorted({cut for start, end, _ in hulls for cut in (start, end)})
        self._starts = np.array([bisect_left(self._cuts, start) for start, _, _ in hulls])
        self._ends = np.array([bisect_left(self._cuts, end) for _, end, _ in hulls])
        self._numbers = np.array([number for _, _, number in hulls])

    def around(self, key: Key) -> list[int]:
        rank = bisect_right(self._cuts, key) - 1
        holding = (self._starts <= rank) & (rank < self._ends)
        return self._numbers[holding].tolist()  # type: ignore[no-any-return]


def single_values(of: ValueSet) -> list[Key] | None:
    """Returns the values of a set that has only a few single ones, else None."""
    if of.text is not None or len(of.line) & 1 or len(of.line) > 2 * POINTS_FILED_MAX:
        return None
    keys = [line.single((start, end)) for start, end in line.pieces(of.line) if end is not None]
    return None if None in keys else keys  # type: ignore[return-value]
