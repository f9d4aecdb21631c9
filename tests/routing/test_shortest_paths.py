"""Used links and shortest paths, compared with an enumeration of all paths."""

import itertools
import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contrada.routing.links.shortest_paths import (
    ConfirmedLink,
    Graph,
    distances,
    downstream_neighbours,
    subtree_next_hops,
    used_edges,
    weights_of,
)
from contrada.routing.router_messages import Role


def random_edges(seed: int, *, trees: bool = False) -> tuple[list[str], list[ConfirmedLink]]:
    """A random graph, not always connected, in which many paths cost the same."""
    chance = random.Random(seed)
    names = [f"{each}" for each in range(chance.randint(2, 8))]
    roles = (Role.PEER, Role.PEER, Role.PARENT) if trees else (Role.PEER,)
    edges = [
        ConfirmedLink(a, b, chance.choice(roles), chance.randint(1, 2))
        for a, b in itertools.combinations(names, 2)
        if chance.random() < 0.5
    ]
    chance.shuffle(edges)
    return names, edges


def simple_paths(
    edges: list[ConfirmedLink], start: str
) -> dict[str, list[tuple[ConfirmedLink, ...]]]:
    """Returns all paths from a server without repetitions, by their ends."""
    found: dict[str, list[tuple[ConfirmedLink, ...]]] = {start: [()]}

    def go_on(here: str, path: tuple[ConfirmedLink, ...], seen: frozenset[str]) -> None:
        for edge in edges:
            there = {edge.a: edge.b, edge.b: edge.a}.get(here)
            if there is not None and there not in seen:
                found.setdefault(there, []).append((*path, edge))
                go_on(there, (*path, edge), seen | {there})

    go_on(start, (), frozenset({start}))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_no_two_paths_weigh_the_same(seed: int) -> None:
    """Two servers would choose two paths, and a notification arrive twice or not at all."""
    names, edges = random_edges(seed)
    weights = weights_of(edges)
    for start in names:
        known = distances(weights, start)
        for end, paths in simple_paths(edges, start).items():
            weighed = sorted(sum(weights[each.a][each.b] for each in path) for path in paths)
            assert len(set(weighed)) == len(weighed)
            assert known[end] == weighed[0] == distances(weights, end)[start]
            cheapest = min(sum(each.cost for each in path) for path in paths)
            assert known[end] >> len(edges) == cheapest


@pytest.mark.parametrize("seed", range(60))
def test_a_neighbour_is_below_where_its_path_leads_through_here(seed: int) -> None:
    """A subscription would not spread along its owner's tree."""
    names, edges = random_edges(seed)
    weights = weights_of(edges)
    known = {name: distances(weights, name) for name in names}
    for here in names:
        below = downstream_neighbours(weights, here)
        assert below.keys() == known[here].keys()
        for server, neighbours in below.items():
            expected = {
                each
                for each, weight in weights.get(here, {}).items()
                if each != server and known[each][server] == weight + known[here][server]
            }
            assert neighbours == expected


@pytest.mark.parametrize("seed", range(40))
def test_subtrees_follow_the_paths_from_a_source(seed: int) -> None:
    """A notification would leave its tree, or miss a part of it."""
    names, edges = random_edges(seed)
    weights = weights_of(edges)
    for source in names:
        shortest: dict[str, list[str]] = {}
        for end, paths in simple_paths(edges, source).items():
            best = min(paths, key=lambda path: sum(weights[e.a][e.b] for e in path))
            shortest[end] = [source]
            for edge in best:
                shortest[end].append(edge.b if edge.a == shortest[end][-1] else edge.a)
        for here in names:
            assert subtree_next_hops(weights, source, here) == {
                end: path[path.index(here) + 1]
                for end, path in shortest.items()
                if here in path[:-1]
            }


@pytest.mark.parametrize("seed", range(30))
def test_other_links_do_not_turn_the_scales(seed: int) -> None:
    """An unrelated new link would change the paths of subscriptions."""
    names, edges = random_edges(seed)
    more = [*edges, ConfirmedLink("x", "y", Role.PEER, 1), ConfirmedLink("y", "z", Role.PEER, 1)]
    assert {name: downstream_neighbours(weights_of(edges), name) for name in names if edges} == {
        name: downstream_neighbours(weights_of(more), name) for name in names if edges
    }


@pytest.mark.parametrize("general", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_links_that_are_used_close_no_cycle(seed: int, general: bool) -> None:
    """A message would loop, or a part of the network be cut off."""
    _, edges = random_edges(seed, trees=True)
    used = used_edges(edges, {}, general=general)
    assert used == used_edges(list(reversed(edges)), {}, general=general)
    if general:
        assert {each for each in edges if each.role is Role.PEER} <= used
    else:
        peers = {each for each in used if each.role is Role.PEER}
        assert peers == used_edges([e for e in edges if e.role is Role.PEER], {}, general=False)
    for edge in edges:
        rest = [each for each in used if each != edge]
        is_joined = edge.b in distances(weights_of(rest), edge.a)
        free = general and edge.role is Role.PEER
        assert free or is_joined != (edge in used)


PAIRS: Final = list(itertools.combinations("abcde", 2))
EDGES: Final = st.builds(
    lambda pair, role, cost: ConfirmedLink(pair[0], pair[1], role, cost),
    st.sampled_from(PAIRS),
    st.sampled_from((Role.PEER, Role.PARENT)),
    st.integers(1, 2),
)


@given(st.lists(EDGES, max_size=30), st.booleans(), st.booleans())
def test_used_links_do_not_depend_on_the_order_of_changes(
    steps: list[ConfirmedLink], general: bool, is_always_asked: bool
) -> None:
    """Servers that learned the links in another order would use others."""
    graph = Graph(general=general)
    held: dict[tuple[str, str], ConfirmedLink] = {}
    for each in steps:
        known = held.pop((each.a, each.b), None)
        if known is not None:
            graph.remove(known)
        if known is None or known.cost != each.cost:
            graph.add(each)
            held[each.a, each.b] = each
        if is_always_asked:
            assert graph.used == used_edges(held.values(), {}, general=general)
    assert set(graph) == set(held.values())
    assert graph.used == used_edges(held.values(), {}, general=general)
    assert all(graph.edge(b, a) == held.get((a, b)) == graph.edge(a, b) for a, b in PAIRS)
    graph.validate()
