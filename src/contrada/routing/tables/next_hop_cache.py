"""`NextHopCache`: the next hops of notifications, by the filters that they match.

Many notifications match the same filters, so the next hops are cached until a subscription changes.
Invariant: cached next hops equal computed ones.

Source: PODC 2000 §4 (a notification is sent to the subscribers that it matches).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from contrada.model import Filter
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Client, NextHop
from contrada.routing.tables.poset import Node

ITSELF: Final = Client("@patterns")
"""The client under which this server subscribes to the segments of its patterns."""


@dataclass(frozen=True, slots=True)
class NextHops:
    """The recipients of a notification.

    `clients` in the order of their names, each with the identities of its subscriptions;
    `next_hops` over links; `parts`: the segments of patterns, in the order of their numbers, that
    this server assembles itself.
    """

    clients: Sequence[tuple[Client, tuple[str, ...]]] = ()
    next_hops: Sequence[NextHop] = ()
    parts: Sequence[int] = ()
    delivery_count: int = 0
    """The number of subscriptions of clients."""


NOBODY: Final = NextHops()


class NextHopCache:
    """Next hops by the numbers of filters; `node_of` returns the node of a number."""

    def __init__(
        self, node_of: Callable[[int], Node[Filter]], limits: RouterLimits = RouterLimits()
    ) -> None:
        self._limits = limits
        self._node_of = node_of
        self._cached: dict[tuple[int, ...], NextHops] = {}

    def find(self, numbers: list[int]) -> NextHops:
        """Returns the next hops for these filters. Cost: one lookup, or all subscribers."""
        key = (*numbers,)
        found = self._cached.get(key)
        if found is None:
            found = self._compute(key)
            size = len(key) + found.delivery_count
            if size <= self._limits.cached_filters_max:
                if len(self._cached) >= self._limits.cached_next_hops_max:
                    self._cached.clear()
                self._cached[key] = found
        return found

    def clear(self) -> None:
        """Empties the cache, since subscriptions may have changed."""
        self._cached.clear()

    def _compute(self, numbers: Sequence[int]) -> NextHops:
        """Computes next hops, by names and identities: the objects are slow to hash."""
        node_of = self._node_of
        next_hops: dict[int, NextHop] = {}
        clients: dict[str, tuple[Client, list[str]]] = {}
        for number in numbers:
            for party, identities in node_of(number).subscribers.items():
                if isinstance(party, NextHop):
                    next_hops[id(party)] = party
                elif party.name in clients:
                    clients[party.name][1].extend(identities)
                else:
                    clients[party.name] = party, [*identities]
        _, parts = clients.pop(ITSELF.name, (ITSELF, []))
        asked = [(each, (*sorted({*names}),)) for _, (each, names) in sorted(clients.items())]
        pairs = sum(len(names) for _, names in asked)
        return NextHops(asked, (*next_hops.values(),), (*sorted(map(int, parts)),), pairs)

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: the cache."""
        assert len(self._cached) <= self._limits.cached_next_hops_max, "too many answers are kept"
        for numbers, interest in self._cached.items():
            assert interest == self._compute(numbers), "an answer is kept too long"
