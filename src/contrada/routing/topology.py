"""`Topology`: a server's links, and which way subscriptions, advertisements and notifications go.

Each link has a role, and three rules on roles give every architecture of the paper that has no
cycles:

| what | goes to a parent | to a peer | to a child |
|---|---|---|---|
| subscriptions | yes | yes; with advertisement forwarding those that meet what it advertised | no |
| advertisements | yes | yes | no |
| notifications | all | those it subscribed to | those it subscribed to |

and nothing goes back to where it alone comes from. A server is a client of its parent, which sees
all and sends only what was subscribed. To the peers of a server, its parent is one who wants
everything and may publish everything: the router holds that as the parent's subscription and
advertisement. So the peers of a server, and all below them, reach its parent through it. Hence a
hierarchy is made of parents and children alone, an acyclic peer-to-peer network of peers alone, and
in a hybrid any peer may be the root of a hierarchy or the child of another network.

Source: PODC 2000 §4 (hierarchical client/server, acyclic peer-to-peer, hybrids).
"""

from collections.abc import Collection, Iterator, Set
from typing import Final

from contrada.routing.messages import Neighbour, Origin, Role

NEIGHBOURS_MAX: Final = 1_024
"""Links of one server."""

HOPS_MAX: Final = 255
"""Links that a notification may come over."""


class Topology:
    """The links of one server. Invariant: at most one of them leads to a parent."""

    def __init__(self) -> None:
        self._roles: dict[Neighbour, Role] = {}
        self._ways: frozenset[Neighbour] = frozenset()

    def add(self, neighbour: Neighbour, role: Role) -> None:
        """Adds a link that is not there."""
        self._roles[neighbour] = role
        self._choose_ways()

    def remove(self, neighbour: Neighbour) -> None:
        """Takes a link away."""
        del self._roles[neighbour]
        self._choose_ways()

    def _choose_ways(self) -> None:
        up_or_across = (each for each, role in self._roles.items() if role is not Role.CHILD)
        self._ways = frozenset(up_or_across)

    def role(self, neighbour: Neighbour) -> Role | None:
        """What a neighbour is; None where there is no link."""
        return self._roles.get(neighbour)

    @property
    def parent(self) -> Neighbour | None:
        """The server of which this one is a client."""
        return next((each for each, role in self._roles.items() if role is Role.PARENT), None)

    def ways(self, origins: Collection[Origin]) -> Set[Neighbour]:
        """Where goes what these origins ask for: everywhere but down, and not to itself alone.

        Source: PODC 2000 §4: neighbours less those on no spanning tree of a subscriber.
        """
        if len(origins) == 1:
            return self._ways.difference(origins)
        return self._ways if origins else frozenset()

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(self._roles)

    def __len__(self) -> int:
        return len(self._roles)

    def __contains__(self, neighbour: object) -> bool:
        return neighbour in self._roles
