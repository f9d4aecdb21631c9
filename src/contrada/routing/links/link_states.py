"""`LinkStates`: the link states of all servers, and so the links of the network.

Every server numbers its link states and floods each over all its links. A server that receives a
newer state keeps and forwards it; a new neighbour receives all states. So every server knows the
links of all reachable servers, after one delay per link on the path.

- Of two states with one number, sent before and after a restart, the one with the greater links
  wins. A server that receives another state of itself continues from its number.
- A link counts if both ends name it, with roles that fit; its cost is the larger one named.
- States of unreachable servers are kept, since such a server may return without a new state. They
  are dropped first if there are too many.

Invariants: a server's own state is the newest known of it; states name each neighbour once.

Source: PODC 2000 §4 (general peer-to-peer: special algorithms choose the best paths).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from contrada.errors import LimitError
from contrada.routing import router_messages as messages
from contrada.routing.links.shortest_paths import ConfirmedLink, Graph
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Adjacency, LinkState, Reason, RefusedError, Role

LINKS_MAX: Final = 1_024
"""Links of a link state. Beyond it: refused, counted."""

COST_MAX: Final = 1_000_000
"""The cost of a link; the least is 1. Beyond it: refused, counted."""

NUMBER_MAX: Final = 2**62
"""Number of a link state; own names are outbid below half. Beyond it: refused, counted."""

RENEWALS_MAX: Final = 16
"""Foreign states under a server's own name that it outbids while its links stay. After a restart a
few old states are in flight; if one returns after each bid, another server has the name. Beyond it:
refused, counted."""

OPPOSITE: Final = {Role.PEER: Role.PEER, Role.PARENT: Role.CHILD, Role.CHILD: Role.PARENT}


class LinkStates:
    """The newest link state of each server, and the links that both ends name."""

    def __init__(
        self,
        name: str,
        *,
        general: bool = False,
        trees: int = 0,
        limits: RouterLimits = RouterLimits(),
    ) -> None:
        self.name = name
        self._limits = limits
        self.graph = Graph(general=general, trees=trees)
        self._states: dict[str, LinkState] = {name: LinkState(name, 0, ())}
        self._links: dict[str, Mapping[str, Adjacency]] = {name: {}}
        self._renewals = 0
        self.changes = 0

    @property
    def own(self) -> LinkState:
        """The link state of this server."""
        return self._states[self.name]

    def announce(self, links: Iterable[Adjacency]) -> LinkState:
        """Sets the links of this server. Returns its new state."""
        self._renewals = 0
        return self._keep(LinkState(self.name, self.own.number + 1, tuple(sorted(links))))

    def check(self, state: LinkState) -> None:
        """Refuses an invalid state. An old state is valid, and changes nothing."""
        if not self._is_newer(state):
            return
        if not _is_valid(state):
            raise RefusedError(Reason.WRONG_LINK_STATE)
        if state.origin == self.name:
            if self._renewals >= RENEWALS_MAX or state.number >= NUMBER_MAX // 2:
                raise RefusedError(Reason.NAME_IN_USE)
        elif self._limit_exceeded_by(state) is not None:
            for origin in self._states.keys() - self._reachable().keys():
                for edge in self._edges_of(origin):
                    self.graph.remove(edge)
                del self._states[origin], self._links[origin]
            error = self._limit_exceeded_by(state)
            if error is not None:
                raise RefusedError(Reason.FULL, error)

    def _limit_exceeded_by(self, state: LinkState) -> LimitError | None:
        """Returns the limit that another server's state would exceed."""
        servers = len(self._links) + (state.origin not in self._links)
        limits = self._limits
        if servers > limits.servers_max:
            return LimitError("servers_max", limits.servers_max, servers)
        known = self._links.get(state.origin, ())
        named = sum(map(len, self._links.values()))
        links = named + len(state.links) - len(known) - len(self._links[self.name])
        if links > limits.known_links_max:
            return LimitError("known_links_max", limits.known_links_max, links)
        return None

    def learn(self, state: LinkState) -> LinkState | None:
        """Takes a state. Returns the state to flood: it, or this server's own again; else None."""
        if not self._is_newer(state):
            return None
        if state.origin != self.name:
            return self._keep(state)
        # A state of this server from before a restart: a higher number replaces it everywhere.
        self._renewals += 1
        return self._keep(LinkState(self.name, state.number + 1, self.own.links))

    def _is_newer(self, state: LinkState) -> bool:
        known = self._states.get(state.origin)
        return known is None or (known.number, known.links) < (state.number, state.links)

    def _keep(self, state: LinkState) -> LinkState:
        before = self._edges_of(state.origin)
        self._states[state.origin] = state
        self._links[state.origin] = {link.name: link for link in state.links}
        after = self._edges_of(state.origin)
        if before != after:
            self.changes += 1
            for edge in set(before).difference(after):
                self.graph.remove(edge)
            for edge in set(after).difference(before):
                self.graph.add(edge)
        return state

    def _edges_of(self, server: str) -> list[ConfirmedLink]:
        edges: list[ConfirmedLink] = []
        for link in self._links.get(server, {}).values():
            back = self._links.get(link.name, {}).get(server)
            if back is None or back.role is not OPPOSITE[link.role]:
                continue
            cost = max(link.cost, back.cost)
            if server < link.name:
                edges.append(ConfirmedLink(server, link.name, link.role, cost))
            else:
                edges.append(ConfirmedLink(link.name, server, back.role, cost))
        return edges

    def _reachable(self) -> Mapping[str, None]:
        found, waiting = {self.name: None}, [self.name]
        while waiting:
            for edge in self._edges_of(waiting.pop()):
                for end in {edge.a, edge.b} - found.keys():
                    found[end] = None
                    waiting.append(end)
        return found

    def __iter__(self) -> Iterator[LinkState]:
        """Yields all states, each after that of a neighbour, so that a receiver can reach it."""
        return map(self._states.__getitem__, {**self._reachable(), **self._states})

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, server: object) -> bool:
        return server in self._states

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all link states."""
        assert self._states.keys() == self._links.keys(), "a state is without its links"
        assert len(self._states) <= self._limits.servers_max, "too many servers are known"
        for origin, state in self._states.items():
            assert origin == state.origin, "a state is misplaced"
            assert _is_valid(state), f"{state} makes no sense"
        edges = {edge for server in self._states for edge in self._edges_of(server)}
        assert edges == set(self.graph), "links are held that are not named, or the reverse"
        self.graph.validate()


def _is_valid(state: LinkState) -> bool:
    names = [link.name for link in state.links]
    return (
        all(0 < len(name) <= messages.LABEL_CHARS_MAX for name in (state.origin, *names))
        and 0 <= state.number < NUMBER_MAX
        and len(names) <= LINKS_MAX
        and state.origin not in names
        and all(a < b for a, b in pairwise(names))
        and all(1 <= link.cost <= COST_MAX for link in state.links)
    )
