"""`unchanged`: whether the path between two servers existed, unchanged, between two moments.

Lines count that were up at some time in between, at one end at least, since servers may still
believe in them. *Unsteady* lines are those that changed, or were up at one end only.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from math import inf
from typing import TypeAlias

from contrada.lab.simulation.run_records import Change, ObservedNetwork
from contrada.lab.simulation.simulated_network import name_of
from contrada.lab.simulation.sites import SiteGraph, distances
from contrada.routing.links.shortest_paths import rank_of, tree_of
from contrada.routing.router_messages import Role

PathCheck: TypeAlias = Callable[[int, int, int, int], bool]
"""Whether the path between two servers held from one order to another."""

_RootPath: TypeAlias = list[tuple[int, float]]
"""The servers from one to the root, each with its distance from the root."""


def unchanged(network: ObservedNetwork) -> PathCheck:
    """Returns the `Hold` of a network: by its paths or by its shared trees."""
    changes: dict[int, list[Change]] = defaultdict(list)
    for change in network.history.changes:
        changes[change.line].append(change)

    @cache
    def lines(begin: int, end: int) -> tuple[list[int], list[int]]:
        """The lines that count, and the unsteady ones among them."""
        counting, unsteady = [], []
        for line, of_line in changes.items():
            up: set[int] = set()
            for change in of_line:
                if change.order <= begin:
                    (up.add if change.is_up else up.discard)(change.end)
            has_changed = any(begin < change.order <= end for change in of_line)
            if has_changed or up:
                counting.append(line)
            if has_changed or len(up) == 1:
                unsteady.append(line)
        return counting, unsteady

    return (_unchanged_trees if network.kind.trees else _unchanged_paths)(network, lines)


_LinesBetween: TypeAlias = Callable[[int, int], tuple[list[int], list[int]]]


def _unchanged_paths(network: ObservedNetwork, lines: _LinesBetween) -> PathCheck:
    """By the shortest paths: no line on one of them is unsteady."""

    @cache
    def graph(begin: int, end: int) -> SiteGraph:
        found: dict[int, dict[int, float]] = defaultdict(dict)
        for line in lines(begin, end)[0]:
            a, b = network.ends[line]
            found[a][b] = found[b][a] = network.costs[line]
        return found

    @cache
    def links_from(start: int, begin: int, end: int) -> dict[int, float]:
        return distances(graph(begin, end), start)

    def hold(a: int, b: int, begin: int, end: int) -> bool:
        from_a, from_b = links_from(a, begin, end), links_from(b, begin, end)
        return b in from_a and not any(
            from_a.get(u, inf) + network.costs[line] + from_b.get(v, inf) == from_a[b]
            for line in lines(begin, end)[1]
            for u, v in (network.ends[line], network.ends[line][::-1])
        )

    return hold


class _UpLines:
    """Some lines: parents by child, and the mesh."""

    def __init__(self, network: ObservedNetwork, lines: list[int]) -> None:
        self._parents: dict[int, int] = {}
        mesh: dict[int, dict[int, float]] = defaultdict(dict)
        for line in lines:
            a, b = network.ends[line]
            if network.role(a, b) is Role.PEER:
                mesh[a][b] = mesh[b][a] = network.costs[line]
            else:
                self._parents[b] = a
        self._mesh: SiteGraph = mesh
        self.chain = cache(self._chain)
        self._places = cache(self._find_places)

    def entry(self, server: int) -> int:
        """Returns the server of entry to the mesh: the topmost above a server."""
        while server in self._parents:
            server = self._parents[server]
        return server

    def _chain(self, server: int, label: str) -> _RootPath:
        chain: _RootPath = []
        while server in self._parents:
            chain.append((server, 0))
            server = self._parents[server]
        far = self._places(server, label)
        chain.append((server, far.get(server, 0)))
        while chain[-1][1]:
            links = self._mesh[server].items()
            ahead = [each for each, length in links if far[each] + length == far[server]]
            server = min(ahead, key=name_of)
            chain.append((server, far[server]))
        return chain

    def _find_places(self, server: int, label: str) -> dict[int, float]:
        """Returns the distances from the root of a server's part of the mesh."""
        part = distances(self._mesh, server)
        return distances(self._mesh, min(part, key=lambda each: rank_of(name_of(each), label)))


def _unchanged_trees(network: ObservedNetwork, lines: _LinesBetween) -> PathCheck:
    """By the shared trees.

    A server's rank in such a tree is the least that the links allow, so more links lower it, or
    leave it. The ranks are computed twice: over all lines that count, and over the steady ones. If
    a server and all servers between it and the root have the same ranks both times, they had them
    at every moment between.
    """

    @cache
    def bounds(begin: int, end: int) -> tuple[_UpLines, _UpLines]:
        counting, unsteady = lines(begin, end)
        steady = [line for line in counting if line not in unsteady]
        return _UpLines(network, counting), _UpLines(network, steady)

    def hold(a: int, b: int, begin: int, end: int) -> bool:
        most, least = bounds(begin, end)
        label = tree_of(name_of(most.entry(a)), network.kind.trees)
        chains = [most.chain(each, label) for each in (a, b)]
        is_joined = chains[0][-1] == chains[1][-1]
        return is_joined and chains == [least.chain(each, label) for each in (a, b)]

    return hold
