"""`StepIndex`: the places of patterns that the notifications of a batch match.

Equal filters are matched once, by an index; the result is given as *steps*: pairs of a pattern's
number and a set of places, a bit for each.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from contrada.matching import Index
from contrada.matching.arrow_pack import blobs_of, starts_of
from contrada.model import Filter, Notification, Pattern
from contrada.model.codec import notification_from_msgpack, to_msgpack
from contrada.model.domains.values import value_of
from contrada.patterns.array_runs import StepRows, expand_items
from contrada.patterns.pattern_engine import check_pattern
from contrada.patterns.reorder_buffer import order_of
from contrada.patterns.runs import By, Group, RunBudget, groups_of

_encode: Final = msgspec.msgpack.Encoder().encode


class StepIndex:
    """The filters of numbered patterns. Raises InvalidFilterError, UnknownOperatorError."""

    def __init__(self, patterns: Sequence[Pattern], *, compiled: bool | None = None) -> None:
        self.by = tuple(dict.fromkeys(each.by for each in patterns))
        """The distinct `by` of all patterns."""
        self.index: Index[int] = Index(compiled=compiled)
        numbers: dict[Filter, int] = {}
        places: list[list[tuple[int, int]]] = []
        for number, pattern in enumerate(patterns):
            check_pattern(pattern)
            for place, part in enumerate(pattern.filters):
                if numbers.setdefault(part, len(places)) == len(places):
                    places.append([])
                    self.index.add(numbers[part], part)
                places[numbers[part]].append((number, place))
        self._filters = tuple(numbers)
        self._begins = starts_of([len(each) for each in places])
        self._places = np.array([pair for each in places for pair in each], dtype=np.int64)
        self._by = np.array([self.by.index(each.by) for each in patterns], dtype=np.int64)
        self._count = len(patterns)

    @property
    def asked(self) -> frozenset[str]:
        """The attributes that filters or `by` name, the envelope's among them."""
        filters = (name for part in self._filters for name in part.sets)
        return frozenset((*filters, *(name for by in self.by for name in by)))

    def rows_of(self, notifications: Sequence[Notification], budget: RunBudget) -> list[StepRows]:
        """Returns the rows for each of `by`. Cost: some microseconds for each that matches."""
        found = []
        each_by = self.steps(*self.index.match_batch(notifications))
        for by, (rows, begins, steps) in zip(self.by, each_by, strict=True):
            names: list[bytes] = []
            taken: list[int] = []
            for place, row in enumerate(rows.tolist()):
                if budget.admits(notifications[row]):
                    groups = groups_of(notifications[row], by, budget)
                    names += [group_name(by, group) for group in groups]
                    taken += [place] * len(groups)
            places = np.array(taken, dtype=np.int64)
            of = [notifications[row] for row in rows[places].tolist()]
            times = np.array([each.envelope.at_us for each in of], dtype=np.int64)
            starts, items = expand_items(begins, places)
            packed = blobs_of([to_msgpack(each) for each in of])
            found.append(StepRows(times, blobs_of(names), starts, steps[items], packed))
        return found

    def steps(self, offsets: Any, filters: Any) -> list[tuple[Any, Any, Any]]:
        """Returns for each of `by` the matching rows, the beginnings of their steps, and the steps.

        The result of the index is given: the filters of row i are `filters[offsets[i] : offsets[i +
        1]]`. Cost: some tens of nanoseconds for each matching place.
        """
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        begins, places = expand_items(self._begins, filters)
        rows = np.repeat(rows, np.diff(begins))
        patterns, bits = self._places[places, 0], np.left_shift(1, self._places[places, 1])
        both = rows * self._count + patterns
        if (both[1:] <= both[:-1]).any():
            order = np.argsort(both, kind="stable")
            both, bits = both[order], bits[order]
        firsts = np.flatnonzero(np.append(True, both[1:] != both[:-1])[: len(both)])
        if len(firsts):
            bits, both = np.bitwise_or.reduceat(bits, firsts), both[firsts]
        rows, patterns = both // self._count, both % self._count
        steps = np.stack([patterns, bits], axis=1)
        by = self._by[patterns]
        return [_of_rows(rows[by == number], steps[by == number]) for number in range(len(self.by))]


def _of_rows(rows: Any, steps: Any) -> tuple[Any, Any, Any]:
    """Returns the distinct rows, the beginnings of their steps, and the steps."""
    firsts = np.flatnonzero(np.append(True, rows[1:] != rows[:-1])[: len(rows)])
    return rows[firsts], np.append(firsts, len(rows)), steps


def group_name(by: By, group: Group) -> bytes:
    """Encodes a group: the values of `by` as one map of msgpack, the same for equal values."""
    return _encode(dict(zip(by, map(value_of, group), strict=True)))


def packed_order(packed: bytes) -> tuple[Any, ...]:
    """Returns the sort key of a notification among those of its time. Raises EncodingError."""
    return order_of(notification_from_msgpack(packed))[1:]
