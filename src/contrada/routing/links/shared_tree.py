"""`SharedTree`: one tree over a mesh that every server computes alike.

Each server has a *rank*: the root of its tree, the distance to it, and the neighbour on the path.
It is the least possible one: the server itself as root, or a neighbour's rank plus the link to that
neighbour. Roots are ordered by a hash of their names and the number of the tree, so that several
trees of one mesh mostly have different roots. So in each connected part all servers select the
least root, by shortest paths; of two paths of one length, the one through the neighbour with the
lesser name. The tree depends on the links alone, not on their order of arrival.

A new link can only lower ranks; the lower ranks spread from its ends. A lost link affects only the
servers with a path over it. These begin anew, each as its own root, and the ranks of the servers
around them spread in.

    neighbours_of(s): the next server on the path of s, and the servers with a path through s

Invariant: every rank is the least that the links allow.

Source: PODC 2000 §4 (general peer-to-peer: spanning trees); sharing them among all sources is this
project's.
"""

import heapq
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

Costs: TypeAlias = Mapping[str, Mapping[str, int]]
"""For each server its neighbours in the mesh, and the costs of the links to them."""


def rank_of(server: str, label: str) -> tuple[int, str]:
    """Returns the order of a server among the possible roots of a tree: the least one wins."""
    return _hash_text(f"{label} {server}"), server


def tree_of(source: str, trees: int) -> str:
    """Returns the label of the tree for messages that enter a mesh at a server."""
    return str(_hash_text(source) % trees)


def _hash_text(text: str) -> int:
    """Returns a number that spreads similar texts, the same on all machines."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


class _TreeRank(NamedTuple):
    """A place in the tree; less is better. A root has no neighbour on its path."""

    root: tuple[int, str]
    distance: int
    through: str


class SharedTree:
    """The tree of a number, over links that its owner holds and reports."""

    def __init__(self, number: int, costs: Costs) -> None:
        self.label = str(number)
        self._costs = costs
        self._ranks: dict[str, _TreeRank] = {}

    def add_link(self, a: str, b: str) -> None:
        """Adds a link that `costs` has already. Cost: the servers with changed ranks."""
        for end in (a, b):
            if end not in self._ranks:
                self._ranks[end] = self._as_root(end)
        self._spread([self._rank_through(a, b), self._rank_through(b, a)])

    def remove_link(self, a: str, b: str) -> None:
        """Removes a link that `costs` has no longer.

        Cost: the servers with a path over it. They are all on one side of the link. There are none
        if it was not in the tree.
        """
        places = self._ranks
        below = [end for end, other in ((a, b), (b, a)) if places[end].through == other]
        for server in below:  # The list grows during the loop.
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
                del places[end]  # No ranks of unlinked servers.

    def neighbours_of(self, server: str) -> frozenset[str]:
        """Returns the neighbours of a server in the tree."""
        place = self._ranks.get(server)
        if place is None:
            return frozenset()
        return frozenset([*self._children(server), *([place.through] if place.through else ())])

    def _as_root(self, server: str) -> _TreeRank:
        return _TreeRank(rank_of(server, self.label), 0, "")

    def _rank_through(self, server: str, other: str) -> tuple[_TreeRank, str]:
        """Returns the rank that another server would have through this one."""
        place = self._ranks[server]
        distance = place.distance + self._costs[server][other]
        return _TreeRank(place.root, distance, server), other

    def _children(self, server: str) -> list[str]:
        places = self._ranks
        return [each for each in self._costs[server] if places[each].through == server]

    def _spread(self, better: Iterable[tuple[_TreeRank, str]]) -> None:
        """Applies better ranks, and spreads their consequences to the neighbours."""
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
        """Checks the invariant; AssertionError names the server. Cost: all links."""
        assert self._ranks.keys() == {each for each in self._costs if self._costs[each]}
        for server, place in self._ranks.items():
            others = (self._rank_through(each, server)[0] for each in self._costs[server])
            assert place == min([self._as_root(server), *others]), f"{server} has another place"
