"""`InterestTable`: the registered filters of clients and neighbours, and their forwarding.

    party, identity ==> registrations: the nodes of each party, so that exactly these are withdrawn
                        poset:  the nodes, each product once, and the next hops of each
                        index:  the nodes by number, for notifications and for other products

One table holds the subscriptions of a server, another its advertisements, a third descriptions.

Invariant: all three hold the same nodes; a node without subscribers is removed at `update`, or
leaving (see `poset`).

Source: PODC 2000 §4 (a poset of subscriptions, one of advertisements).
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar

from contrada.errors import LimitError
from contrada.matching.index import Index
from contrada.model import Product
from contrada.routing import router_messages as messages
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import Neighbour, NextHop, Party, Reason, RefusedError
from contrada.routing.tables.covering_index import CoveringIndex, indexed
from contrada.routing.tables.poset import ForwardingChange, Node, Poset, form_of

COMPARED_PER_STEP: Final = 100
"""Products of a table that its index compares with another in a step of work."""

P = TypeVar("P", bound=Product)
E = TypeVar("E")

Nodes: TypeAlias = tuple[Node[P], ...]
"""The nodes of one identity: one per distinct product."""

_HeldNodes: TypeAlias = Node[P] | Nodes[P]
"""The nodes of one identity as the registrations hold them: a single node without a tuple."""

_NO_ENTRIES: Final[Mapping[str, object]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RegistrationStatistics:
    """The numbers of parties and of their entries."""

    parties: int
    entries: int


class Registrations(Generic[E]):
    """The entries of every client and neighbour, by identity.

    The poset holds only the distinct filters, and one filter there may stand for many
    subscriptions. This table keeps those of each party, so that exactly these can be withdrawn.

    Invariants: a party in the table has at least one entry; `len` is the number of all entries.

    Source: PODC 2000 §4; taken literally, it forgets a neighbour's narrower filters.
    """

    def __init__(self, limits: RouterLimits = RouterLimits()) -> None:
        self._limits = limits
        self._entries: dict[Party, dict[str, E]] = {}
        self._next_hops: dict[Neighbour, dict[str, NextHop]] = {}
        self._count = 0

    def add(self, party: Party, identity: str, entry: E) -> None:
        """Adds a new entry, for which there is room."""
        entries = self._entries.get(party)
        if entries is None:
            entries = self._entries[party] = {}
            if isinstance(party, NextHop):
                self._next_hops.setdefault(party.neighbour, {})[party.owner] = party
        assert identity not in entries, f"{party} {identity} is entered already"
        entries[identity] = entry
        self._count += 1

    def check_room(self, count: int = 1) -> None:
        """Refuses so many more entries if they do not fit into the table."""
        messages.check_limit(self._limits, "registrations_max", self._count + count)

    def get(self, party: Party, identity: str) -> E | None:
        """Returns an entry, or None."""
        return self.entries_of(party).get(identity)

    def remove(self, party: Party, identity: str) -> E | None:
        """Removes and returns an entry, or None."""
        entries = self._entries.get(party)
        if entries is None or identity not in entries:
            return None
        entry = entries.pop(identity)
        if not entries:
            self._remove_party(party)
        self._count -= 1
        return entry

    def remove_all(self, party: Party) -> Mapping[str, E]:
        """Removes and returns all entries of a party."""
        entries = self._entries.get(party, {})
        if entries:
            self._remove_party(party)
        self._count -= len(entries)
        return entries

    def _remove_party(self, party: Party) -> None:
        del self._entries[party]
        if isinstance(party, NextHop):
            next_hops = self._next_hops[party.neighbour]
            del next_hops[party.owner]
            if not next_hops:
                del self._next_hops[party.neighbour]

    def next_hops(self, neighbour: Neighbour) -> Collection[NextHop]:
        """Returns the next hops of a neighbour that have entries."""
        return self._next_hops.get(neighbour, {}).values()

    def next_hop(self, neighbour: Neighbour, owner: str) -> NextHop:
        """Returns the next hop of a neighbour and owner: the object in the table, if any."""
        return self._next_hops.get(neighbour, {}).get(owner) or NextHop(neighbour, owner)

    def entries_of(self, party: Party) -> Mapping[str, E]:
        """The entries of a party by identity."""
        return self._entries.get(party, _NO_ENTRIES)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[Party, str, E]]:
        for party, entries in self._entries.items():
            for identity, entry in entries.items():
                yield party, identity, entry

    def __len__(self) -> int:
        return self._count

    def __contains__(self, party: object) -> bool:
        return party in self._entries

    def statistics(self) -> RegistrationStatistics:
        """Returns a frozen view of the counters."""
        return RegistrationStatistics(len(self._entries), self._count)

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one."""
        assert all(self._entries.values()), "a party without entries is held"
        next_hops = {next_hop for each in self._next_hops.values() for next_hop in each.values()}
        assert all(self._next_hops.values()), "a neighbour without entries is held"
        assert next_hops == {each for each in self._entries if isinstance(each, NextHop)}, (
            "a way is lost"
        )
        assert self._count == sum(map(len, self._entries.values())), "the count is wrong"


class InterestTable(Generic[P]):
    """The filters. `covering` finds forwarded filters that cover one; None: no covering."""

    def __init__(
        self,
        covering: CoveringIndex | None,
        unknown: Reason = Reason.UNKNOWN_SUBSCRIPTION,
        limits: RouterLimits = RouterLimits(),
    ) -> None:
        """`unknown` is the reason of refusals to withdraw what was not registered."""
        self._unknown = unknown
        self._limits = limits
        self.index: Index[int] = Index()
        self.registrations: Registrations[_HeldNodes[P]] = Registrations(limits)
        self.poset: Poset[P] = Poset(covering)
        self._covering = covering

    def check_room(self, size: int = 1) -> None:
        """Refuses `size` more products if a table is full."""
        messages.check_limit(self._limits, "filters_per_subscription_max", size)
        self.registrations.check_room()
        messages.check_limit(self._limits, "filters_max", self.poset.registration_count + size)

    def register(self, party: Party, identity: str, products: Iterable[P]) -> Nodes[P]:
        """Registers distinct products. Returns their nodes, to be routed, or none if they are
        registered.

        Raises RefusedError if the identity has other products, or a table is full; then nothing has
        changed. Cost: some microseconds per constraint.
        """
        wanted = list(products)
        known = self.nodes_of(party, identity)
        if known is not None:
            if {form_of(node.product) for node in known} == set(map(form_of, wanted)):
                return ()
            raise RefusedError(Reason.IDENTITY_IN_USE)
        self.check_room(len(wanted))
        nodes = self._enter(party, [(identity, each) for each in wanted])
        self.registrations.add(party, identity, nodes[0] if len(nodes) == 1 else tuple(nodes))
        return tuple(nodes)

    def register_each(self, party: Party, products: Mapping[str, P]) -> list[Node[P]]:
        """Registers one product for each of several new identities; the nodes are in their order.

        Raises RefusedError if an identity is known, or a table is full; then nothing has changed.
        """
        if not self.registrations.entries_of(party).keys().isdisjoint(products):
            raise RefusedError(Reason.IDENTITY_IN_USE)
        count = len(products)
        self.registrations.check_room(count)
        messages.check_limit(self._limits, "filters_max", self.poset.registration_count + count)
        nodes = self._enter(party, [*products.items()])
        for identity, node in zip(products, nodes, strict=True):
            self.registrations.add(party, identity, node)
        return nodes

    def _enter(self, party: Party, entries: list[tuple[str, P]]) -> list[Node[P]]:
        """Enters products into the poset and the index. Raises RefusedError, changing nothing."""
        nodes: list[Node[P]] = []
        known = len(self.poset)
        try:
            for identity, product in entries:
                nodes.append(self.poset.add_subscriber(product, party, identity))
                if len(self.poset) > known:
                    self.index.add(nodes[-1].number, indexed(product))
                    known += 1
        except LimitError as error:
            for node, (identity, _) in zip(nodes, entries, strict=False):
                self.poset.remove_subscriber(node, party, identity)
            # Only new nodes are removed. Those of others stay, also if they are leaving or due.
            self._update({node: node.wanted for node in nodes if not node.wanted})
            raise RefusedError(Reason.FULL, error) from None
        return nodes

    def nodes_of(self, party: Party, identity: str) -> Nodes[P] | None:
        """Returns the nodes of a party's identity, or None."""
        held = self.registrations.get(party, identity)
        return None if held is None else _all(held)

    def nodes(self, party: Party) -> Iterator[Node[P]]:
        """Yields the nodes of a party, one identity after the other."""
        for held in self.registrations.entries_of(party).values():
            yield from _all(held)

    def withdraw(self, party: Party, identity: str) -> Nodes[P]:
        """Withdraws an identity. Returns the nodes to route anew. Raises RefusedError."""
        held = self.registrations.remove(party, identity)
        if held is None:
            raise RefusedError(self._unknown)
        nodes = _all(held)
        for node in nodes:
            self.poset.remove_subscriber(node, party, identity)
        return nodes

    def withdraw_all(self, party: Party) -> list[Node[P]]:
        """Withdraws all identities of a party. Returns the nodes to route anew."""
        left: list[Node[P]] = []
        for identity, held in self.registrations.remove_all(party).items():
            for node in _all(held):
                self.poset.remove_subscriber(node, party, identity)
                left.append(node)
        return left

    def update(self, wanted: Mapping[Node[P], Set[NextHop]]) -> list[ForwardingChange[P]]:
        """As `Poset.update`, with the leaving nodes: returns the changes to forward."""
        if not wanted:
            return []
        leaving = self.poset.leaving
        if leaving:  # Last: their children may be wanted elsewhere.
            wanted = dict(wanted)
            for node in leaving:
                wanted[node] = wanted.pop(node, frozenset())
        return self._update(wanted)

    def _update(self, wanted: Mapping[Node[P], Set[NextHop]]) -> list[ForwardingChange[P]]:
        changes = self.poset.update(wanted)
        for node in wanted:
            if node.is_deserted and node not in self.poset.leaving:
                self.index.remove(node.number)
        return changes

    def products_of(self, origin: Party | Neighbour) -> list[P]:
        """Returns the distinct products of a client, a neighbour, or one next hop."""
        registrations = self.registrations
        parties = registrations.next_hops(origin) if isinstance(origin, Neighbour) else (origin,)
        nodes = dict.fromkeys(node for party in parties for node in self.nodes(party))
        return [node.product for node in nodes]

    def maintain(self, units: int) -> bool:
        """Does a bounded part of the indexes' maintenance. Returns whether more is left."""
        is_waiting = self._covering is not None and self._covering.maintain(units)
        return self.index.maintain(units) or is_waiting

    def validate(self, due: Container[Node[P]] = ()) -> None:
        """Checks the invariants; AssertionError names the broken one. See `Poset.validate`."""
        self.registrations.validate()
        self.poset.validate(due)
        self.index.validate()
        assert len(self.index) == len(self.poset), "the index holds other products"
        assert all(node.number in self.index for node in self.poset), "a product is not found"
        asked = sum(len(_all(held)) for _, _, held in self.registrations)
        assert self.poset.registration_count == asked, "the poset holds unregistered products"


def _all(held: _HeldNodes[P]) -> Nodes[P]:
    return held if isinstance(held, tuple) else (held,)
