"""`Disjunct`: one alternative of a query, as it travels; an item must meet one of them.

A disjunct has a set for each attribute, and groups of attributes that must have equal values: a
variable that appears in several attributes. Only an item itself shows whether values are equal, so
routing uses the sets alone, narrowed by the groups, and a source decides exactly.

Source: CU-CS-948-03 §4 (application and intersection) and §9 (variables, its future work).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from contrada.errors import InvalidFilterError, LimitError
from contrada.model import Notification, Query, ValueSet
from contrada.model.algebra.value_set import EVERYTHING, PRESENT, intersection
from contrada.model.domains.values import ABSENT_KEY, check_name

SAME_NAMES_MAX: Final = 256
"""Attributes of a disjunct that must be equal to others. Beyond it: LimitError."""


class Disjunct(msgspec.Struct, frozen=True, array_like=True):
    """A set for each attribute, and groups of attributes whose values must be equal.

    `alternative` makes one in normal form: groups have no attribute in common, and all attributes
    of one have the same set, without *absent*.
    """

    query: Query
    same: tuple[tuple[str, ...], ...] = ()

    def matches(self, item: Notification) -> bool:
        """Whether an item meets this disjunct. Exact.

        An item with several values of an attribute is matched as by filters: it matches if some
        choice of one value per attribute does. Values are equal as in the model: 5 = 5.0, NaN is
        NaN, and values of two domains are never equal. Raises UnknownOperatorError for an operator
        that is not registered.
        """
        sets = self.query.sides
        for name, values in sets.items():
            if not any(map(values.holds, item.keys_of(name))):
                return False
        for group in self.same:
            common = set.intersection(*(set(item.keys_of(name)) for name in group))
            for name in group:
                common = {key for key in common if sets.get(name, EVERYTHING).holds(key)}
            if not common - {ABSENT_KEY}:
                return False
        return True


def alternative(sets: Mapping[str, ValueSet], same: Iterable[Iterable[str]] = ()) -> Disjunct:
    """Returns the disjunct of these sets and equal attributes, in normal form.

    Groups that share an attribute are united; all attributes of a group get the intersection of
    their sets, which is exact for each by itself; a group of one requires any value. Raises
    LimitError beyond SAME_NAMES_MAX, InvalidNameError and InvalidFilterError. Cost: linear.
    """
    narrowed = dict(sets)
    groups = []
    for group in _merge_groups(same) if same else ():
        values = intersection([PRESENT, *(sets[name] for name in group if name in sets)])
        narrowed |= dict.fromkeys(group, values)
        if len(group) > 1:
            groups.append(tuple(sorted(group)))
    return Disjunct(Query.of_sets(narrowed), tuple(sorted(groups)))


def _merge_groups(same: Iterable[Iterable[str]]) -> list[set[str]]:
    """Returns the groups, united if they share an attribute. Raises as `alternative`."""
    joined: list[set[str]] = []
    count = 0
    for each in same:
        if isinstance(each, str):
            raise InvalidFilterError("same", (each,), "expected the names of attributes")
        group = {check_name(name) for name in each}
        count += len(group)
        if count > SAME_NAMES_MAX:
            raise LimitError("SAME_NAMES_MAX", SAME_NAMES_MAX)
        apart = [other for other in joined if other.isdisjoint(group)]
        joined = [*apart, group.union(*(other for other in joined if other not in apart))]
    return [group for group in joined if group]
