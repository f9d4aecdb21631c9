"""`Graph` and shortest paths: the used links of a network, and the paths between its servers.

**Loops.** In an acyclic topology the used links are a spanning forest, and in every topology the
links to parents close no cycle. Links are considered in order: those between peers first, then the
cheaper ones, then by name. A link that would close a cycle is left out. Servers that know the same
links leave out the same ones.

**Shortest paths.** The weight of a path is the sum of its links' costs, then a sum of powers of
two, one for each link by its place in order: two paths never weigh the same, and their order does
not depend on other links. So there is one shortest path between two servers, the same from both
ends, and parts of it are shortest. Hence the trees of all sources and owners agree:

    the tree of s, along which its notifications reach h, and the tree of h, along which its
    subscriptions reach s, join s and h by the same path

and a server needs to know only for which servers each neighbour's path leads through it.

That is one tree per server. A large mesh shares a few trees instead, see `shared_tree`.

Source: PODC 2000 §4 (general peer-to-peer; NST(f), the spanning tree rooted at a subscriber).
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from contrada.routing.links.shared_tree import SharedTree
from contrada.routing.router_messages import Role

Weights: TypeAlias = Mapping[str, Mapping[str, int]]
"""The weight of the link between two servers."""

_COST_AND_NAMES: Final = attrgetter("cost", "a", "b")


class ConfirmedLink(msgspec.Struct, frozen=True, gc=False):
    """A link that both ends name; a < b. `role` is the role of b for a."""

    a: str
    b: str
    role: Role
    cost: int

    @property
    def is_between_peers(self) -> bool:
        """Whether it is part of a mesh."""
        return self.role is Role.PEER


class Graph:
    """The links of a network, and the used ones.

    A new link that joins two separate parts is used, and changes nothing for the other links. So is
    a new link in a mesh without links to parents. After any other change the used links are
    computed anew, when they are read. `trees`: the number of trees that all servers share over the
    links between peers.
    """

    def __init__(self, *, general: bool, trees: int = 0) -> None:
        self._is_general = general
        self._edges: dict[tuple[str, str], ConfirmedLink] = {}
        self._roots: dict[str, str] = {}
        self._used: set[ConfirmedLink] | None = set()
        self._parents = 0
        self._costs: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self.trees = [SharedTree(number, self._costs) for number in range(trees)]

    def add(self, edge: ConfirmedLink) -> None:
        """Adds a link between two servers that have none."""
        self._edges[edge.a, edge.b] = edge
        if not edge.is_between_peers:
            self._parents += 1
        elif self.trees:
            self._costs[edge.a][edge.b] = self._costs[edge.b][edge.a] = edge.cost
            for tree in self.trees:
                tree.add_link(edge.a, edge.b)
        if self._used is None:
            return
        if _join(self._roots, edge) or (self._is_general and not self._parents):
            self._used.add(edge)
        else:
            self._used = None

    def remove(self, edge: ConfirmedLink) -> None:
        """Removes a link."""
        del self._edges[edge.a, edge.b]
        self._used = None
        if not edge.is_between_peers:
            self._parents -= 1
        elif self.trees:
            del self._costs[edge.a][edge.b], self._costs[edge.b][edge.a]
            for tree in self.trees:
                tree.remove_link(edge.a, edge.b)
            for end in (edge.a, edge.b):
                if not self._costs[end]:
                    del self._costs[end]

    def edge(self, a: str, b: str) -> ConfirmedLink | None:
        """The link between two servers, or None."""
        return self._edges.get((a, b) if a < b else (b, a))

    @property
    def used(self) -> Set[ConfirmedLink]:
        """The used links. Cost: none if links only joined separate parts."""
        if self._used is None:
            self._roots = {}
            self._used = used_edges(self, self._roots, general=self._is_general)
        return self._used

    def __iter__(self) -> Iterator[ConfirmedLink]:
        return iter(self._edges.values())

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all links."""
        assert all(self.edge(each.b, each.a) is each for each in self), "a link is misplaced"
        assert self.used == used_edges(self, {}, general=self._is_general), "others would be used"
        for tree in self.trees:
            tree.validate()


def used_edges(
    edges: Iterable[ConfirmedLink], roots: dict[str, str], *, general: bool
) -> set[ConfirmedLink]:
    """Returns the used links of a network; `general`: all links between peers are used.

    `roots` is empty at first; afterwards it unites the servers that the used links join.
    """
    used: set[ConfirmedLink] = set()
    for edge in _sorted_links(edges):
        if _join(roots, edge) or (general and edge.role is Role.PEER):
            used.add(edge)
    return used


def _sorted_links(edges: Iterable[ConfirmedLink]) -> list[ConfirmedLink]:
    """Links between peers first, the cheaper first, then by name."""
    ordered = sorted(edges, key=_COST_AND_NAMES)
    ordered.sort(key=lambda edge: edge.role is not Role.PEER)
    return ordered


def _join(roots: dict[str, str], edge: ConfirmedLink) -> bool:
    """Joins the ends of a link. Returns whether they were separate."""
    a, b = _root(roots, edge.a), _root(roots, edge.b)
    roots[a] = b
    return a != b


def _root(roots: dict[str, str], server: str) -> str:
    """The representative of the servers that are joined to this one (union-find)."""
    while (above := roots.setdefault(server, server)) != server:
        roots[server] = roots[above]  # Halves the path, so that later walks are short.
        server = above
    return server


def weights_of(edges: Iterable[ConfirmedLink]) -> Weights:
    """Returns weights such that no two paths between two servers weigh the same."""
    ordered = _sorted_links(edges)
    weights: dict[str, dict[str, int]] = {}
    for place, edge in enumerate(ordered):
        weight = (edge.cost << len(ordered)) | (1 << place)
        weights.setdefault(edge.a, {})[edge.b] = weight
        weights.setdefault(edge.b, {})[edge.a] = weight
    return weights


def distances(
    weights: Weights, start: str, others: Mapping[str, int] | None = None, far: int = 0
) -> dict[str, int]:
    """Returns the weight of the shortest path to each reachable server.

    With `others`, only to those that are closer than `far` and their weight in `others`. Where a
    path does not weigh less, nor does what follows.
    """
    found: dict[str, int] = {}
    waiting = [(0, start)]
    while waiting:
        distance, server = heapq.heappop(waiting)
        if server in found:
            continue
        found[server] = distance
        for other, weight in weights.get(server, {}).items():
            further = distance + weight
            if other not in found and (others is None or further < far + others[other]):
                heapq.heappush(waiting, (further, other))
    return found


def downstream_neighbours(weights: Weights, here: str) -> dict[str, frozenset[str]]:
    """Returns, for each reachable server, the neighbours with a path to it through this server.

    These are the neighbours below `here` in that server's tree. Cost: the paths from here, and for
    each neighbour those of its paths that do not lead through here.
    """
    own = distances(weights, here)
    found: dict[str, set[str]] = {server: set() for server in own}
    for neighbour, weight in weights.get(here, {}).items():
        if own[neighbour] != weight:
            continue  # A shorter path than the link exists: no path begins with the link.
        for server in own.keys() - distances(weights, neighbour, own, weight).keys():
            found[server].add(neighbour)
    return {server: frozenset(neighbours) for server, neighbours in found.items()}


def first_hops(weights: Weights, own: Mapping[str, int], here: str) -> dict[str, str]:
    """Returns the first neighbour on the path to each server; `own`: the distances."""
    steps: dict[str, str] = {}
    # Nearer servers first, so that the step to the server before is known. Weights differ, so that
    # there is one such server.
    for server in sorted(own.keys() - {here}, key=own.__getitem__):
        distance = own[server]
        before = next(
            other for other, weight in weights[server].items() if own[other] + weight == distance
        )
        steps[server] = server if before == here else steps[before]
    return steps


def subtree_next_hops(weights: Weights, source: str, here: str) -> dict[str, str]:
    """Returns the next neighbours to all servers below this one in a source's tree."""
    far = distances(weights, source)
    if here not in far:
        return {}
    own = distances(weights, here)
    steps = first_hops(weights, own, here)
    return {
        server: steps[server]
        for server, distance in own.items()
        if server != here and far[here] + distance == far[server]
    }
