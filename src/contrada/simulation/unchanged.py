"""`unchanged_trees`: whether the way between two servers held, along trees that all share.

A server's place in such a tree is the least that the links allow, so more links make it less, or
leave it. Where a server and all between it and the root have one place over all lines that were up
at some time, and the same over those that were up all the time, they had it at every moment
between.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from contrada.routing.links.shared import rank_of, tree_of
from contrada.routing.messages import Role
from contrada.simulation.network import Network, name_of
from contrada.simulation.records import Change
from contrada.simulation.sites import Graph, distances

Hold: TypeAlias = Callable[[int, int, int, int], bool]
"""Whether the ways between two servers held from one order to another."""

_Chain: TypeAlias = list[tuple[int, float]]
"""Servers from one to the root, and how far it is from each."""


class _UpLines:
    """Lines that were up at some time, or all the time: parents by child, and the mesh."""

    def __init__(self, network: Network, lines: list[int]) -> None:
        self._parents: dict[int, int] = {}
        mesh: dict[int, dict[int, float]] = defaultdict(dict)
        for line in lines:
            a, b = network.ends[line]
            if network.role(a, b) is Role.PEER:
                mesh[a][b] = mesh[b][a] = network.costs[line]
            else:
                self._parents[b] = a
        self._mesh: Graph = mesh
        self.chain = cache(self._chain)
        self._places = cache(self._find_places)

    def entry(self, server: int) -> int:
        """The server by which the mesh is entered from one: the topmost above it."""
        while server in self._parents:
            server = self._parents[server]
        return server

    def _chain(self, server: int, label: str) -> _Chain:
        chain: _Chain = []
        while server in self._parents:
            chain.append((server, 0))
            server = self._parents[server]
        far = self._places(server, label)
        chain.append((server, far.get(server, 0)))
        while chain[-1][1]:
            ahead = [
                each
                for each, length in self._mesh[server].items()
                if far[each] + length == far[server]
            ]
            server = min(ahead, key=name_of)
            chain.append((server, far[server]))
        return chain

    def _find_places(self, server: int, label: str) -> dict[int, float]:
        """How far all are from the root of the part of a mesh in which a server is."""
        part = distances(self._mesh, server)
        return distances(self._mesh, min(part, key=lambda each: rank_of(name_of(each), label)))


def unchanged_trees(network: Network) -> Hold:
    """Whether there is a way between two servers along their tree, the same all the time."""
    changes: dict[int, list[Change]] = defaultdict(list)
    for change in network.history.changes:
        changes[change.line].append(change)

    @cache
    def lines(begin: int, end: int) -> tuple[_UpLines, _UpLines]:
        """The lines that were up at some time, at one end at least; and those up all the time."""
        some, steady = [], []
        for line, of_line in changes.items():
            up: set[int] = set()
            for change in of_line:
                if change.order <= begin:
                    (up.add if change.is_up else up.discard)(change.end)
            has_changed = any(begin < change.order <= end for change in of_line)
            if has_changed or up:
                some.append(line)
            if not has_changed and len(up) == 2:
                steady.append(line)
        return _UpLines(network, some), _UpLines(network, steady)

    def hold(a: int, b: int, begin: int, end: int) -> bool:
        some, steady = lines(begin, end)
        label = tree_of(name_of(some.entry(a)), network.kind.trees)
        chains = [some.chain(each, label) for each in (a, b)]
        is_joined = chains[0][-1] == chains[1][-1]
        return is_joined and chains == [steady.chain(each, label) for each in (a, b)]

    return hold
