"""`Sites`: connected networks, and links that fit each shape."""

import pytest

from contrada.errors import InputError
from contrada.lab.simulation.sites import Sites, distances, sites_of
from contrada.lab.simulation.worlds import SHAPES

NETWORKS = [("random", 30), ("transit-stub", 30), ("random", 1), ("sndlib/germany50", 0)]


@pytest.mark.parametrize(("network", "count"), NETWORKS)
def test_every_shape_reaches_every_site(network: str, count: int) -> None:
    """Parties would be cut off, and a kind of network would look cheap."""
    pytest.importorskip("topohub")
    sites = sites_of(network, count, seed=3)
    assert sites == sites_of(network, count, seed=3)
    assert sites.count == (count or 50)
    for shape in SHAPES:
        links = sites.links(shape)
        graph: dict[int, dict[int, float]] = {site: {} for site in range(sites.count)}
        for a, b, _ in links:
            assert (min(a, b), max(a, b)) in sites.lengths
            graph[a][b] = graph[b][a] = 1
        if shape == "central":
            assert not links
            continue
        assert len(distances(graph, 0)) == sites.count
        assert len({(min(a, b), max(a, b)) for a, b, _ in links}) == len(links)
        parents = [b for _, b, is_parent in links if is_parent]
        assert len(set(parents)) == len(parents), "a server has one parent"
        if shape in ("hierarchical", "acyclic"):
            assert len(links) == sites.count - 1
            assert len(parents) == (len(links) if shape == "hierarchical" else 0)
        if shape == "general":
            assert len(links) == len(sites.lengths)


def test_distances_follow_shortest_paths() -> None:
    """Costs would be those of detours."""
    sites = Sites(4, {(0, 1): 1.0, (1, 2): 1.0, (0, 2): 5.0, (2, 3): 1.0})
    assert list(sites.distances(0).values()) == [0.0, 1.0, 2.0, 3.0]
    assert sites.middle() == 1
    assert sites.links("acyclic") == [(1, 0, False), (1, 2, False), (2, 3, False)]
    assert sites.links("hybrid") == [(1, 2, False), (1, 0, True), (2, 3, True)]


@pytest.mark.parametrize("key", ["sndlib/nowhere", "../sndlib/germany50", "", "Random"])
def test_a_network_that_is_not_there_is_refused(key: str) -> None:
    """A slip of the pen would be an exception, or a file outside of the package."""
    pytest.importorskip("topohub")
    with pytest.raises(InputError, match="topohub"):
        sites_of(key, 5, seed=0)
