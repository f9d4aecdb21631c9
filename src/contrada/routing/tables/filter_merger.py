"""`FilterMerger`: replaces forwarded filters by fewer ones that match the same notifications.

The poset forwards its *roots* to a next hop. Roots that differ in the set of one attribute only
form a *group*, sent as one filter: `sym = A and price > 10` and `sym = B and price > 10` become
`sym in (A, B) and price > 10`. That is exact also if an attribute has several values, of which one
must be in the set. Of an advertisement all values must be in it, so these are not merged. A root
that fits several groups joins the largest with room. When members leave, the rest is merged anew.
Merging saves table entries and costs messages: a root that joins or leaves a group is a
subscription and a withdrawal.

Invariants: of any two groups that could be one the union is larger than `MERGED_SIZE_MAX`; a
neighbour knows one filter of each group, its union; a new filter is sent before the one that it
replaces is withdrawn, each under an identity of its own. The groups depend on the order of events;
the notifications that they match together do not.

Source: PODC 2000 §4 (exploiting commonalities); perfect merging is this project's.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from contrada.model import Filter
from contrada.model.algebra.boxes import Form, form
from contrada.model.algebra.value_set import ValueSet, union
from contrada.model.languages.language import NESTING_MAX, Language, Literal, Pieces, depth
from contrada.routing.router_messages import NextHop
from contrada.routing.tables.poset import ForwardingChange

MERGED_SIZE_MAX: Final = 64
"""Intervals of the attribute along which roots are merged, before the union, an operator on text
counted as 16; hence members of a group. Beyond it: the next root forms a group of its own."""

ATOM_SIZE: Final = 16
"""The size of an operator on text that is no interval: decisions about many take long."""

_MergeKey: TypeAlias = tuple[str, Form]
"""An attribute, and the other sets."""


_FilterChange: TypeAlias = ForwardingChange[Filter]


@dataclass(frozen=True, slots=True)
class FilterMergerStatistics:
    """The numbers of roots, of sent filters, and of those that merge several roots."""

    roots: int = 0
    sent: int = 0
    merged: int = 0


@dataclass(slots=True, eq=False)
class _MergedRoots:
    """A group of roots that are sent as one filter.

    `name`: the attribute along which several are merged. `sizes_by_key`: the keys under which other
    roots find the group, each with the size of the united set there. `identity` and `product`: the
    filter that the neighbour knows.
    """

    number: int
    members: dict[str, Filter] = field(default_factory=dict)
    name: str = ""
    sizes_by_key: dict[_MergeKey, int] = field(default_factory=dict)
    identity: str = ""
    product: Filter | None = None

    def merge(self) -> Filter | None:
        first = next(iter(self.members.values()), None)
        if first is None or len(self.members) == 1:
            return first
        name = self.name
        sides = union(member.sides[name] for member in self.members.values())
        return Filter.of_sets({**first.sides, name: sides})

    def size(self, name: str) -> int:
        """Returns the size of an attribute's set before the union."""
        return sum(_size(member.sides[name]) for member in self.members.values())

    def keys(self) -> Iterator[tuple[_MergeKey, int]]:
        """Yields the keys under which the group can be joined, each with the united set's size."""
        first = next(iter(self.members.values()))
        for name in (self.name,) if len(self.members) > 1 else first.sides:
            size = self.size(name)
            if size < MERGED_SIZE_MAX:
                others = form({each: side for each, side in first.sides.items() if each != name})
                yield (name, others), size


class FilterMerger:
    """The groups of all next hops, and the filters that the neighbours know."""

    def __init__(self) -> None:
        self._groups_by_hop: defaultdict[NextHop, _Groups] = defaultdict(_Groups)
        self._numbered = 0

    def update(self, changes: Iterable[_FilterChange]) -> list[_FilterChange]:
        """Takes the beginnings and ends of roots. Returns the changes to send, beginnings first."""
        touched: dict[NextHop, _Groups] = {}
        # Ends first: they make room in full groups.
        for change in sorted(changes, key=lambda each: each.begins):
            groups = touched[change.next_hop] = self._groups_by_hop[change.next_hop]
            if change.begins:
                groups.add(change.identity, change.product)
            else:
                groups.remove(change.identity)
        begin: list[_FilterChange] = []
        end: list[_FilterChange] = []
        for next_hop, groups in sorted(touched.items(), key=lambda each: each[0]):
            for group in groups.settle():
                product = group.merge()
                if _form(product) == _form(group.product):
                    continue
                if group.product is not None:
                    end.append(ForwardingChange(next_hop, group.identity, group.product, False))
                if product is not None:
                    self._numbered += 1
                    group.identity = str(self._numbered)
                    begin.append(ForwardingChange(next_hop, group.identity, product, True))
                group.product = product
            if not groups:
                del self._groups_by_hop[next_hop]
        return begin + end

    def roots(self) -> set[tuple[NextHop, str]]:
        """Returns the grouped roots, each by its next hop and identity."""
        return {
            (next_hop, root)
            for next_hop, groups in self._groups_by_hop.items()
            for root in groups.group_of
        }

    def statistics(self) -> FilterMergerStatistics:
        """Returns a frozen view of the counters."""
        groups = [group for groups in self._groups_by_hop.values() for group in groups]
        several = sum(len(group.members) > 1 for group in groups)
        roots = sum(len(group.members) for group in groups)
        return FilterMergerStatistics(roots, len(groups), several)

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all groups."""
        identities = [
            (next_hop, group.identity)
            for next_hop, all_ in self._groups_by_hop.items()
            for group in all_
        ]
        assert len(identities) == len(set(identities)), "an identity names two filters"
        for groups in self._groups_by_hop.values():
            assert groups, "a way without roots is held"
            groups.validate()


class _Groups:
    """The groups of one next hop. Changes take effect at `settle`."""

    def __init__(self) -> None:
        self.group_of: dict[str, _MergedRoots] = {}
        self._groups: dict[int, _MergedRoots] = {}
        self._numbered = 0
        self._files: dict[_MergeKey, list[tuple[int, int]]] = {}
        self._touched: dict[int, _MergedRoots] = {}

    def add(self, root: str, product: Filter) -> None:
        group = _MergedRoots(self._numbered, {root: product})
        self._numbered += 1
        self.group_of[root] = group
        self._groups[group.number] = self._touched[group.number] = group

    def remove(self, root: str) -> None:
        group = self.group_of.pop(root)
        del group.members[root]
        self._unfile(group)
        self._touched[group.number] = group

    def settle(self) -> list[_MergedRoots]:
        """Merges groups. Returns the possibly changed ones, in order."""
        for _, group in sorted(self._touched.items()):
            self._place(group)  # This may touch others.
        touched = [group for _, group in sorted(self._touched.items())]
        self._touched = {}
        return touched

    def _place(self, group: _MergedRoots) -> None:
        """Joins a group to the largest one with room: no other has room for both. Files it."""
        if not group.members:
            del self._groups[group.number]
            return
        keys = dict(group.keys())
        partner = self._find_partner(keys)
        if partner is not None:
            name, other = partner
            self._unfile(other)
            other.members |= group.members
            other.name = name
            for root in group.members:
                self.group_of[root] = other
            group.members = {}
            del self._groups[group.number]
            self._touched[other.number] = other
            group, keys = other, dict(other.keys())
        for key, size in keys.items():
            insort(self._files.setdefault(key, []), (size, group.number))
        group.sizes_by_key = keys

    def _find_partner(self, keys: Mapping[_MergeKey, int]) -> tuple[str, _MergedRoots] | None:
        """Returns the largest group with room, and the attribute to merge along."""
        found: list[tuple[int, str, int]] = []
        for key, size in keys.items():
            file = self._files.get(key, [])
            place = bisect_right(file, (MERGED_SIZE_MAX - size + 1, -1))
            if place:
                found.append((file[place - 1][0], key[0], file[place - 1][1]))
        if not found:
            return None
        _, name, number = max(found)
        return name, self._groups[number]

    def _unfile(self, group: _MergedRoots) -> None:
        for key, size in group.sizes_by_key.items():
            file = self._files[key]
            del file[bisect_left(file, (size, group.number))]
            if not file:
                del self._files[key]
        group.sizes_by_key = {}

    def __iter__(self) -> Iterator[_MergedRoots]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def validate(self) -> None:
        assert not self._touched, "a change is not settled"
        members = {root: group for group in self for root in group.members}
        assert members == self.group_of, "a root is in another group, or two"
        assert sum(len(group.members) for group in self) == len(members), "a root is in two groups"
        filed = {(key, size, it.number) for it in self for key, size in it.sizes_by_key.items()}
        held = {(key, *place) for key, file in self._files.items() for place in file}
        assert filed == held, "a group is misfiled"
        for file in self._files.values():
            assert file == sorted(file), "groups are out of order"
            smallest = [size for size, _ in file[:2]]
            assert len(smallest) < 2 or sum(smallest) > MERGED_SIZE_MAX, "two groups could be one"
        for group in self:
            assert group.sizes_by_key == dict(group.keys()), "a group is filed by an old size"
            assert group.members, "a group without members is held"
            is_small = len(group.members) == 1 or group.size(group.name) <= MERGED_SIZE_MAX
            assert is_small, "a group is too large"
            assert _form(group.merge()) == _form(group.product), "a neighbour knows another filter"


def _form(product: Filter | None) -> Form | None:
    return None if product is None else form(product.sides)


def _size(side: ValueSet) -> int:
    """Returns the intervals and operators of a set; the maximum if it cannot be united."""
    if side.text is None:
        return (len(side.line) + 1) // 2
    if depth(side.text) >= NESTING_MAX or side.unknown():
        return MERGED_SIZE_MAX
    return (len(side.line) + 1) // 2 + _text_size(side.text)


def _text_size(text: Language) -> int:
    if isinstance(text, Pieces):
        return (len(text.cuts) + 1) // 2
    if isinstance(text, Literal):
        return ATOM_SIZE
    return sum(map(_text_size, text.parts))
