"""`SharedTree`: one tree over a mesh that every server computes alike.

Each server has a *place*: the root of its tree, how far that is, and the neighbour through which.
The place is the least possible one: the server itself as root, or a neighbour's place and the link
to that neighbour. Names give roots their order, mixed with the number of the tree, so that several
trees of one mesh have different roots, mostly. So in each connected part all servers come to the
least root, by shortest paths; of two paths of one length by the one through the neighbour with the
lesser name. The tree depends on the links alone, not on the order in which they came.

A new link can only lower places; the lower places spread from its ends. A lost link concerns only
the servers whose path went through it. These begin anew, each as its own root, and the places of
the servers around them spread in.

    near(s): the neighbour through which s goes, and those who go through s

Invariant: every place is the least that the links allow.

Source: PODC 2000 §4 (general peer-to-peer: spanning trees); that all sources share them is this
project's.
"""

import heapq
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

Costs: TypeAlias = Mapping[str, Mapping[str, int]]
"""For each server its neighbours in the mesh, and the costs of the links to them."""


def rank_of(server: str, label: str) -> tuple[int, str]:
    """The order of servers by which one becomes the root of a tree: the least."""
    return _hash_text(f"{label} {server}"), server


def tree_of(source: str, trees: int) -> str:
    """The label of the tree, of so many, along which goes all that enters a mesh at a server."""
    return str(_hash_text(source) % trees)


def _hash_text(text: str) -> int:
    """A number by which texts that look alike are far apart, the same everywhere."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


class _TreeRank(NamedTuple):
    """Less is better. A root goes through nobody."""

    root: tuple[int, str]
    distance: int
    through: str


class SharedTree:
    """The tree of a number, over links that its owner holds, and tells of when they change."""

    def __init__(self, number: int, costs: Costs) -> None:
        self.label = str(number)
        self._costs = costs
        self._ranks: dict[str, _TreeRank] = {}

    def add_link(self, a: str, b: str) -> None:
        """There is a link now, which `costs` has. Cost: the servers whose places change."""
        for end in (a, b):
            if end not in self._ranks:
                self._ranks[end] = self._as_root(end)
        self._spread([self._rank_through(a, b), self._rank_through(b, a)])

    def remove_link(self, a: str, b: str) -> None:
        """The link between two servers is gone, from `costs`, too.

        Cost: the servers that went through it. Those are all on one side of the link. There are
        none where it was not in the tree.
        """
        places = self._ranks
        below = [end for end, other in ((a, b), (b, a)) if places[end].through == other]
        for server in below:  # It grows while it is gone through.
            below += self._children(server)
        for server in below:
            places[server] = self._as_root(server)
        cut = set(below)
        self._spread(
            # Servers that kept their places offer them to those cut off; those offer new ones.
            [
                self._rank_through(each, s)
                for s in below
                for each in self._costs[s]
                if each not in cut
            ]
            + [self._rank_through(s, each) for s in below for each in self._costs[s] if each in cut]
        )
        for end in (a, b):
            if not self._costs[end]:
                del places[end]  # A server that is gone is not remembered.

    def neighbours_of(self, server: str) -> frozenset[str]:
        """The neighbours of a server in the tree."""
        place = self._ranks.get(server)
        if place is None:
            return frozenset()
        return frozenset([*self._children(server), *([place.through] if place.through else ())])

    def _as_root(self, server: str) -> _TreeRank:
        return _TreeRank(rank_of(server, self.label), 0, "")

    def _rank_through(self, server: str, other: str) -> tuple[_TreeRank, str]:
        """The place that another server would have through this one."""
        place = self._ranks[server]
        distance = place.distance + self._costs[server][other]
        return _TreeRank(place.root, distance, server), other

    def _children(self, server: str) -> list[str]:
        places = self._ranks
        return [each for each in self._costs[server] if places[each].through == server]

    def _spread(self, better: Iterable[tuple[_TreeRank, str]]) -> None:
        """Servers take these places where they are better; their neighbours what comes of it."""
        # The least place first, as in Dijkstra's algorithm, so that a server seldom changes twice.
        waiting = [*better]
        heapq.heapify(waiting)
        while waiting:
            place, server = heapq.heappop(waiting)
            if place < self._ranks[server]:
                self._ranks[server] = place
                for other in self._costs[server]:
                    subtree_next_hops = self._rank_through(server, other)
                    if subtree_next_hops[0] < self._ranks[other]:
                        heapq.heappush(waiting, subtree_next_hops)

    def validate(self) -> None:
        """Checks the invariant; AssertionError says where it is broken. Cost: all links."""
        assert self._ranks.keys() == {each for each in self._costs if self._costs[each]}
        for server, place in self._ranks.items():
            others = (self._rank_through(each, server)[0] for each in self._costs[server])
            assert place == min([self._as_root(server), *others]), f"{server} has another place"
