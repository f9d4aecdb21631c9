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

That is one tree per server. A large mesh shares a few trees instead, see `SharedTree`.

Source: PODC 2000 §4 (general peer-to-peer; NST(f), the spanning tree rooted at a subscriber).
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from hashlib import blake2b
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

import msgspec

from contrada.routing.router_messages import Role

Weights: TypeAlias = Mapping[str, Mapping[str, int]]
"""The weight of the link between two servers."""

_COST_AND_NAMES: Final = attrgetter("cost", "a", "b")


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
    """One tree over a mesh that every server computes alike, whatever the order of its links.

    The *rank* of a server is the root of its tree, the distance to it, and the neighbour on the
    path: the least of the server itself as root, and of each neighbour's rank plus the link to that
    neighbour. Roots are ordered by a hash of their names and the number of the tree, so that
    several trees of one mesh mostly have different roots. A new link can only lower ranks, which
    spread from its ends. A lost link affects only the servers with a path over it: each begins as
    its own root, and the ranks around them spread in.

    Invariant: every rank is the least that the links allow.

    Source: PODC 2000 §4 (spanning trees); sharing them among all sources is this project's.
    """

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
        """Removes a link that `costs` has no longer. Cost: the servers with a path over it."""
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
        place = self._ranks[server]
        distance = place.distance + self._costs[server][other]
        return _TreeRank(place.root, distance, server), other

    def _children(self, server: str) -> list[str]:
        places = self._ranks
        return [each for each in self._costs[server] if places[each].through == server]

    def _spread(self, better: Iterable[tuple[_TreeRank, str]]) -> None:
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


class ConfirmedLink(msgspec.Struct, frozen=True, gc=False):
    """A link that both ends name; a < b. `role` is the role of b for a."""

    a: str
    b: str
    role: Role
    cost: int


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
        if edge.role is not Role.PEER:
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
        if edge.role is not Role.PEER:
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
    """Returns the used links; `general`: with all between peers. `roots` unites their ends."""
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
