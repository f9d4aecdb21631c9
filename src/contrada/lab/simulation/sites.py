"""`Sites` and the links between them: generated networks, and real ones of the package `topohub`.

A site has a server. A shape selects the links that its servers use: all of them (general), a
spanning tree (acyclic, and hierarchical, rooted at the middle), or all between sites that have
several links, with the rest as their children (hybrid). The cost of a link is its length.
"""

import importlib.resources
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from math import hypot
from typing import Final, TypeAlias

import msgspec

from contrada.errors import InputError, MissingRequirementError
from contrada.lab.simulation.script_maker import Links
from contrada.lab.simulation.script_steps import BROKERS_MAX, NetworkShape

GENERATED: Final = ("random", "transit-stub")
"""Generated networks."""

STUB_SITES: Final = 4
"""Sites behind each transit site, in a transit-stub network."""

Lengths = dict[tuple[int, int], float]
"""For each link, lower site first, its length."""


SiteGraph: TypeAlias = Mapping[int, Mapping[int, float]]
"""The neighbours of each site, or server, with the distances."""


def graph_of(links: Iterable[tuple[int, int, float]]) -> SiteGraph:
    """Returns the graph of links: two sites, or servers, and their distance."""
    graph: dict[int, dict[int, float]] = defaultdict(dict)
    for a, b, length in links:
        graph[a][b] = graph[b][a] = length
    return graph


def distances(graph: SiteGraph, start: int) -> dict[int, float]:
    """Returns the distances of all reachable sites, along the shortest paths."""
    found: dict[int, float] = {}
    waiting = [(0.0, start)]
    while waiting:
        distance, here = heappop(waiting)
        if here not in found:
            found[here] = distance
            for there, length in graph.get(here, {}).items():
                heappush(waiting, (distance + length, there))
    return found


@dataclass(frozen=True, slots=True)
class Sites:
    """A connected network of sites, with the lengths of its links."""

    count: int
    lengths: Lengths

    def distances(self, start: int) -> dict[int, float]:
        """Returns the distances of all sites from one."""
        return distances(graph_of((a, b, far) for (a, b), far in self.lengths.items()), start)

    def middle(self) -> int:
        """Returns the site with the least sum of distances."""
        return min(range(self.count), key=lambda site: (sum(self.distances(site).values()), site))

    def links(self, shape: NetworkShape) -> Links:
        """Returns the links that servers of a shape use."""
        if shape == "central":
            return []
        if shape == "general":
            return [(a, b, False) for a, b in sorted(self.lengths)]
        tree = self._tree()
        if shape != "hybrid":
            return [(a, b, shape == "hierarchical") for a, b in tree]
        inner = {a for a, _ in tree}
        mesh = [(a, b, False) for a, b in sorted(self.lengths) if a in inner and b in inner]
        return [*mesh, *((a, b, True) for a, b in tree if b not in inner)]

    def _tree(self) -> list[tuple[int, int]]:
        """Returns shortest paths from the middle: pairs of a site and one behind it."""
        distances = self.distances(self.middle())
        above: dict[int, int] = {}
        for (a, b), length in sorted(self.lengths.items()):
            for here, there in ((a, b), (b, a)):
                if distances[here] + length == distances[there]:
                    above.setdefault(there, here)
        return sorted(((above[each], each) for each in above), key=lambda link: distances[link[1]])


def sites_of(network: str, count: int, seed: int) -> Sites:
    """Returns a generated network of so many sites, or a real one by its key in topohub."""
    if network not in GENERATED:
        return _real(network)
    chance = random.Random(f"{network} {count} {seed}")
    return _random(count, chance) if network == "random" else _transit_stub(count, chance)


def _random(count: int, chance: random.Random) -> Sites:
    """Points in a square, each linked to the nearest before it, and half as many short links."""
    places = [(chance.random(), chance.random()) for _ in range(count)]
    lengths: Lengths = {}
    for site in range(1, count):
        _link(lengths, places, site, min(range(site), key=lambda each: _far(places, site, each)))
    others = [(a, b) for a in range(count) for b in range(a + 1, count) if (a, b) not in lengths]
    for a, b in sorted(others, key=lambda pair: _far(places, *pair))[: count // 2]:
        _link(lengths, places, a, b)
    return Sites(count, lengths)


def _transit_stub(count: int, chance: random.Random) -> Sites:
    """A backbone of few sites, and stubs of sites behind each of them, as of the Internet."""
    transit = max(1, count // (STUB_SITES + 1))
    backbone = _random(transit, chance)
    lengths = {link: 10 * length for link, length in backbone.lengths.items()}
    for site in range(transit, count):
        above = (site - transit) % transit
        stub = [each for each in range(transit, site) if (each - transit) % transit == above]
        near = chance.choice([above, *stub])
        lengths[min(near, site), max(near, site)] = 0.1 + chance.random()
    return Sites(count, lengths)


def _far(places: list[tuple[float, float]], a: int, b: int) -> float:
    (x, y), (v, w) = places[a], places[b]
    return hypot(x - v, y - w)


def _link(lengths: Lengths, places: list[tuple[float, float]], a: int, b: int) -> None:
    lengths[min(a, b), max(a, b)] = 0.01 + _far(places, a, b)


class _TopohubNode(msgspec.Struct):
    id: int


class _TopohubEdge(msgspec.Struct):
    source: int
    target: int
    dist: float = 1.0


class _TopohubNetwork(msgspec.Struct):
    nodes: list[_TopohubNode]
    edges: list[_TopohubEdge]


def _real(key: str) -> Sites:
    """Returns the largest connected part of a topohub network, with lengths in kilometres."""
    try:
        folder = importlib.resources.files("topohub") / "data"
    except ModuleNotFoundError:
        remedy = "install the extra: pip install 'contrada[simulation]'"
        raise MissingRequirementError("topohub", remedy) from None
    if not all(part.replace("-", "").replace("_", "").isalnum() for part in key.split("/")):
        raise InputError(key, "expected a key of topohub such as sndlib/germany50")
    try:
        found = msgspec.json.decode((folder / f"{key}.json").read_bytes(), type=_TopohubNetwork)
    except OSError:
        known = f"{' and '.join(GENERATED)} are made, others are keys of topohub: sndlib/germany50"
        raise InputError(key, f"no such network; {known}") from None
    lengths = {
        (min(each.source, each.target), max(each.source, each.target)): max(each.dist, 1.0)
        for each in found.edges
        if each.source != each.target
    }
    return _largest((node.id for node in found.nodes), lengths, key)


def _largest(nodes: Iterable[int], lengths: Lengths, key: str) -> Sites:
    linked = graph_of((a, b, far) for (a, b), far in lengths.items())
    graph = {node: linked.get(node, {}) for node in nodes}
    largest: list[int] = []
    while graph:
        part = distances(graph, min(graph))
        largest = max(largest, sorted(part), key=len)
        graph = {node: near for node, near in graph.items() if node not in part}
    if len(largest) > BROKERS_MAX:
        raise InputError(key, f"{len(largest)} sites, more than BROKERS_MAX = {BROKERS_MAX}")
    number = {node: place for place, node in enumerate(largest)}
    kept = {(number[a], number[b]): far for (a, b), far in lengths.items() if a in number}
    return Sites(len(largest), kept)
