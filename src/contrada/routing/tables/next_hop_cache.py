"""`NextHopCache`: who wants a notification, by the filters that it matches.

Many notifications match the same filters, so an answer is kept until a subscription changes: the
owner says `clear` then. Matching itself is not kept.

Invariant: what is kept is what would be found anew. At most `NEXT_HOPS_MAX` answers are kept, each
of at most `NEXT_HOPS_SIZE_MAX` filters and identities.

Source: PODC 2000 §4 (a notification goes to those whose subscriptions it matches).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from contrada.model import Filter
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Client, NextHop
from contrada.routing.tables.poset import Node

ITSELF: Final = Client("@patterns")
"""Who is subscribed here to the parts of patterns that this server assembles."""


@dataclass(frozen=True, slots=True)
class NextHops:
    """Who wants a notification.

    `clients` in the order of their names, each with the identities of its subscriptions; `ways` on
    which it is wanted; `parts` of patterns, in the order of their numbers, for which this server
    wants it itself.
    """

    clients: Sequence[tuple[Client, tuple[str, ...]]] = ()
    next_hops: Sequence[NextHop] = ()
    parts: Sequence[int] = ()
    delivery_count: int = 0
    """How many subscriptions of clients these are."""


NOBODY: Final = NextHops()


class NextHopCache:
    """Answers by the numbers of filters; `node_of` gives the filter of a number."""

    def __init__(
        self, node_of: Callable[[int], Node[Filter]], limits: RouterLimits = RouterLimits()
    ) -> None:
        self._limits = limits
        self._node_of = node_of
        self._cached: dict[tuple[int, ...], NextHops] = {}

    def find(self, numbers: list[int]) -> NextHops:
        """Who asked for one of these filters. Cost: one look-up, or all who did."""
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
        """Subscriptions may be others now."""
        self._cached.clear()

    def _compute(self, numbers: Sequence[int]) -> NextHops:
        """Clients go by their names here, and a way, which is one object, by its identity.

        Both are slow to hash.
        """
        if not numbers:
            return NOBODY
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
        """Checks the invariants; AssertionError says which is broken. Cost: all that is kept."""
        assert len(self._cached) <= self._limits.cached_next_hops_max, "too many answers are kept"
        for numbers, interest in self._cached.items():
            assert interest == self._compute(numbers), "an answer is kept too long"
