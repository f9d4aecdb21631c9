"""`SharedTree`: connected, and equal on all servers after any changes."""

import random
from collections import defaultdict

import pytest

from contrada.routing.links.shortest_paths import SharedTree, rank_of, tree_of

Links = dict[tuple[str, str], int]


class Mesh:
    """Changing links, and the tree of a number over them."""

    def __init__(self, number: int, links: Links) -> None:
        self.costs: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self.tree = SharedTree(number, self.costs)
        self.links: Links = {}
        for (a, b), cost in links.items():
            self.join(a, b, cost)

    def join(self, a: str, b: str, cost: int) -> None:
        """Adds a link."""
        self.links[a, b] = cost
        self.costs[a][b] = self.costs[b][a] = cost
        self.tree.add_link(a, b)

    def part(self, a: str, b: str) -> None:
        """Removes a link."""
        del self.links[a, b], self.costs[a][b], self.costs[b][a]
        self.tree.remove_link(a, b)

    def edges(self) -> set[frozenset[str]]:
        """Returns the links of the tree, on which both ends agree."""
        near = {server: self.tree.neighbours_of(server) for server in self.costs}
        edges = {frozenset((a, b)) for a in near for b in near[a]}
        assert all(a in near[b] for a in near for b in near[a])
        return edges


def parts(edges: set[frozenset[str]], servers: set[str]) -> set[frozenset[str]]:
    """Returns the connected parts."""
    found = {server: {server} for server in servers}
    for a, b in map(tuple, edges):
        if found[a] is not found[b]:
            found[a] |= found[b]
            for each in found[b]:
                found[each] = found[a]
    return {frozenset(each) for each in found.values()}


@pytest.mark.parametrize("seed", range(20))
def test_it_depends_on_the_links_alone(seed: int) -> None:
    """Two servers that learned links in different orders would use different trees."""
    chance = random.Random(seed)
    servers = [f"s{each}" for each in range(chance.randint(2, 14))]
    mesh = Mesh(seed % 3, {})
    for _ in range(60):
        a, b = sorted(chance.sample(servers, 2))
        if (a, b) in mesh.links:
            mesh.part(a, b)
        else:
            mesh.join(a, b, chance.randint(1, 4))
        mesh.tree.validate()
        edges = mesh.edges()
        links = {frozenset(each) for each in mesh.links}
        known = set(mesh.costs)
        assert edges <= links
        assert parts(edges, known) == parts(links, known), "it joins what links join"
        assert len(edges) == len(known) - len(parts(links, known)), "and closes no loop"
    again = list(mesh.links.items())
    chance.shuffle(again)
    other = Mesh(seed % 3, dict(again))
    assert other.edges() == mesh.edges()


def test_it_has_the_shortest_paths_from_the_least_server() -> None:
    """Notifications would take detours."""
    servers = sorted("abcdef", key=lambda each: rank_of(each, "0"))
    root, near, far, *_ = servers
    short = {(root, near): 1, (near, far): 1}
    assert Mesh(0, {**short, (root, far): 3}).edges() == {frozenset(each) for each in short}
    assert frozenset((root, far)) in Mesh(0, {**short, (root, far): 1}).edges()


def test_of_two_paths_of_one_length_the_lesser_neighbour_leads() -> None:
    """Servers would choose by the order of link states."""
    servers = sorted("abcd", key=lambda each: rank_of(each, "0"))
    root, last = servers[0], servers[3]
    one, other = sorted(servers[1:3])
    links = {(root, one): 1, (root, other): 1, (one, last): 1, (other, last): 1}
    for order in (list(links), list(links)[::-1]):
        mesh = Mesh(0, dict.fromkeys(order, 1))
        assert mesh.tree.neighbours_of(last) == {one}


def test_a_broken_tree_is_mended_where_links_are_left() -> None:
    """A part of the network would be cut off despite its links."""
    mesh = Mesh(0, {("a", "b"): 1, ("b", "c"): 1, ("c", "d"): 1, ("a", "d"): 1})
    for edge in list(mesh.edges()):
        a, b = sorted(edge)
        mesh.part(a, b)
        assert mesh.edges() == {frozenset(each) for each in mesh.links}
        mesh.join(a, b, 1)


def test_trees_of_other_numbers_have_other_roots() -> None:
    """All trees would share one root."""
    roots = {min("abcdefgh", key=lambda each: rank_of(each, str(number))) for number in range(8)}
    assert len(roots) > 3


def test_sources_are_spread_over_the_trees() -> None:
    """One tree would carry everything."""
    counts = [0] * 4
    for each in range(400):
        counts[int(tree_of(f"server {each}", 4))] += 1
    assert min(counts) > 60


def test_a_server_without_links_is_near_nobody() -> None:
    """A newly started server would fail."""
    mesh = Mesh(0, {("a", "b"): 1})
    assert mesh.tree.neighbours_of("x") == frozenset()
    mesh.part("a", "b")
    assert mesh.tree.neighbours_of("a") == frozenset()
