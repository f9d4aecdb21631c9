"""`Router`: a server of the network, as a pure state machine.

It keeps who asked for what under which identity (`ledger`), what is to be forwarded of it
(`poset`), and its links (`topology`), and matches notifications against all it was asked for.

    client or neighbour ==> Subscribe ==> ledger ==> poset ==> Subscribe to the ways that lack it
                        ==> Publish   ==> index  ==> Deliver, and one copy per link with interest

Two strategies. With subscription forwarding, subscriptions go to every peer. With advertisement
forwarding, advertisements do, and a subscription goes only to peers that advertised what it may
match; a notification that its client did not advertise is refused. To a parent both always go.

Invariants: what is held of an origin is what it asked for and did not withdraw; what a neighbour
was told is what the poset forwards to it; what is refused leaves the state unharmed. What becomes
uncovered is sent before what covered it is withdrawn, so that nothing is missed in between.

Source: PODC 2000 §4 (subscription forwarding, advertisement forwarding, downstream replication).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from contrada.errors import LimitError
from contrada.matching import Index
from contrada.model import Filter, FilterSet, Notification
from contrada.model.product import product_covers, product_meets
from contrada.routing.front import FilterFront, MakeIndex, OfferFront
from contrada.routing.ledger import LEDGER_ENTRIES_MAX, Ledger, LedgerStatistics
from contrada.routing.messages import (
    VERSION,
    Advertise,
    Client,
    ClientGone,
    Deliver,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Message,
    Neighbour,
    Offer,
    Origin,
    Publish,
    Reason,
    Received,
    Refused,
    Role,
    Send,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from contrada.routing.poset import Node, Poset, PosetStatistics
from contrada.routing.topology import HOPS_MAX, NEIGHBOURS_MAX, Topology

SUBSCRIPTION_FILTERS_MAX: Final = 10_000
"""Filters of one subscription."""

EVERYTHING: Final = Filter({})

_IMPLIED: Final = ""
"""The identity under which a parent wants everything and may publish everything."""


class Strategy(StrEnum):
    """What is told to all peers. Source: PODC 2000 §4."""

    SUBSCRIPTIONS = "subscription forwarding"
    ADVERTISEMENTS = "advertisement forwarding"


Wishes: TypeAlias = tuple[Node[Filter], ...]
"""The nodes of a subscription: one per distinct filter."""


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    """What a router holds, and what it did.

    `received` and `sent` count messages by kind, `delivered` notifications handed to clients,
    `refused` events by reason.
    """

    neighbours: int
    subscriptions: LedgerStatistics
    advertisements: LedgerStatistics
    filters: PosetStatistics
    offers: PosetStatistics
    received: Mapping[str, int]
    sent: Mapping[str, int]
    delivered: int
    refused: Mapping[Reason, int]


class _RefusedError(Exception):
    """An event that changes nothing; caught in `handle`."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Router:
    """One server's routing: `handle` takes an event and gives what is to be done.

    All servers of a network follow the same strategy. `name` is what this server's neighbours call
    it. `general` says that links between peers may close cycles. `covering=False` forwards
    everything, to measure what covering saves. `index` makes the indexes in which filters are
    looked up.
    """

    def __init__(
        self,
        strategy: Strategy = Strategy.SUBSCRIPTIONS,
        *,
        name: str = "",
        general: bool = False,
        covering: bool = True,
        index: MakeIndex = Index,
    ) -> None:
        assert name or not general, "in a general topology a server has a name"
        self.strategy = strategy
        self.name = name
        self._is_general = general
        self._topology = Topology()
        self._wishes: Ledger[Wishes] = Ledger()
        self._offers: Ledger[Node[Offer]] = Ledger()
        self._filter_front = FilterFront(index) if covering else None
        self._offer_front = OfferFront(index) if covering else None
        self._filters: Poset[Filter] = Poset(self._filter_front)
        self._offered: Poset[Offer] = Poset(self._offer_front)
        self._index = index()
        self._received: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()
        self._refused: Counter[Reason] = Counter()
        self._delivered = 0

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        """What is to be done about an event, in this order. The time is not looked at yet.

        Cost: of a notification one match and what it finds; of a subscription some lookups.
        """
        try:
            effects = self._handle(event)
        except _RefusedError as refusal:
            self._refused[refusal.reason] += 1
            return [Refused(event, refusal.reason)]
        for effect in effects:
            if isinstance(effect, Send):
                self._sent[type(effect.message).__name__] += 1
            else:
                self._delivered += isinstance(effect, Deliver)
        return effects

    def _handle(self, event: Event) -> list[Effect]:
        match event:
            case Received(origin, message):
                self._check(origin, message)
                effects = self._handle_message(origin, message)
                self._received[type(message).__name__] += 1
                return effects
            case LinkUp(neighbour, role):
                return self._link_up(neighbour, role)
            case LinkDown(neighbour):
                return self._link_down(neighbour)
            case ClientGone(client):
                if client not in self._wishes and client not in self._offers:
                    raise _RefusedError(Reason.UNKNOWN_CLIENT)
                return self._forget(client)

    def _check(self, origin: Origin, message: Message) -> None:
        """Refuses what may not come from there."""
        if message.version != VERSION:
            raise _RefusedError(Reason.VERSION)
        if isinstance(origin, Neighbour):
            role = self._topology.role(origin)
            if role is None:
                raise _RefusedError(Reason.UNKNOWN_NEIGHBOUR)
            if role is Role.PARENT and not isinstance(message, Publish):
                raise _RefusedError(Reason.NOT_DUE)

    def _handle_message(self, origin: Origin, message: Message) -> list[Effect]:
        match message:
            case Publish():
                return self._publish(origin, message)
            case Subscribe(identity, filters):
                return self._subscribe(origin, identity, filters)
            case Unsubscribe(identity):
                wishes = self._wishes.remove(origin, identity)
                if wishes is None:
                    raise _RefusedError(Reason.UNKNOWN_SUBSCRIPTION)
                return self._drop_wishes(origin, {identity: wishes})
            case Advertise(identity, offer):
                return self._advertise(origin, identity, offer)
            case Unadvertise(identity):
                node = self._offers.remove(origin, identity)
                if node is None:
                    raise _RefusedError(Reason.UNKNOWN_ADVERTISEMENT)
                return self._drop_offers(origin, {identity: node})

    # --- notifications ------------------------------------------------------------------------

    def _publish(self, origin: Origin, message: Publish) -> list[Effect]:
        """Delivers a notification, and sends one copy over each link where it is wanted."""
        notification = message.notification
        if message.hops >= HOPS_MAX:
            raise _RefusedError(Reason.TOO_MANY_HOPS)
        if isinstance(origin, Client) and not self._is_advertised(origin, notification):
            raise _RefusedError(Reason.NOT_ADVERTISED)
        clients: dict[Client, set[str]] = {}
        neighbours: set[Neighbour] = set()
        for number in self._index.match(notification):
            for subscriber, identities in self._filters.node(number).subscribers.items():
                if isinstance(subscriber, Neighbour):
                    neighbours.add(subscriber)
                else:
                    clients.setdefault(subscriber, set()).update(identities)
        if isinstance(origin, Neighbour):
            neighbours.discard(origin)
        onward = Publish(notification, message.hops + 1)
        return [
            *(
                Deliver(each, tuple(sorted(clients[each])), notification)
                for each in sorted(clients)
            ),
            *(Send(each, onward) for each in sorted(neighbours)),
        ]

    def _is_advertised(self, client: Client, notification: Notification) -> bool:
        if self.strategy is Strategy.SUBSCRIPTIONS:
            return True
        offers = self._offers.of(client).values()
        return any(product_covers(node.product, notification) for node in offers)

    # --- subscriptions ------------------------------------------------------------------------

    def _subscribe(
        self, origin: Origin, identity: str, filters: Filter | FilterSet
    ) -> list[Effect]:
        members = dict.fromkeys(filters.filters if isinstance(filters, FilterSet) else (filters,))
        wanted = [member for member in members if not member.is_empty]
        if not wanted:
            raise _RefusedError(Reason.UNSATISFIABLE)
        known = self._wishes.get(origin, identity)
        if known is not None:
            if {node.product for node in known} == set(wanted):
                return []
            raise _RefusedError(Reason.IDENTITY_IN_USE)
        if len(wanted) > SUBSCRIPTION_FILTERS_MAX or _is_full(self._wishes):
            raise _RefusedError(Reason.FULL)
        nodes = self._join_all(wanted, origin, identity)
        self._wishes.add(origin, identity, nodes)
        return self._route_filters(nodes)

    def _join_all(self, wanted: list[Filter], origin: Origin, identity: str) -> Wishes:
        """The nodes of filters; all are joined or, where an index is full, none."""
        nodes: list[Node[Filter]] = []
        try:
            for product in wanted:
                nodes.append(self._filters.join(product, origin, identity))
                if nodes[-1].number not in self._index:
                    self._index.add(nodes[-1].number, product)
        except LimitError:
            for node in nodes:
                self._filters.leave(node, origin, identity)
            self._route_filters(nodes)
            raise _RefusedError(Reason.FULL) from None
        return tuple(nodes)

    def _drop_wishes(self, origin: Origin, dropped: Mapping[str, Wishes]) -> list[Effect]:
        """Takes an origin off the filters of its subscriptions."""
        nodes: dict[Node[Filter], None] = {}
        for identity, wishes in dropped.items():
            for node in wishes:
                self._filters.leave(node, origin, identity)
                nodes[node] = None
        return self._route_filters(nodes)

    def _route_filters(self, nodes: Iterable[Node[Filter]]) -> list[Effect]:
        """Forwards what is new on a way, then withdraws what need not be there any longer."""
        wanted = {node: self._ways(node) for node in nodes}
        effects: list[Effect] = []
        for change in self._filters.update(wanted):
            identity = str(change.node.number)
            if change.begins:
                message: Message = Subscribe(identity, change.node.product)
            else:
                message = Unsubscribe(identity)
            if change.way in self._topology:
                effects.append(Send(change.way, message))
        for node in wanted:
            if not node.subscribers:
                self._index.remove(node.number)
        return effects

    def _ways(self, node: Node[Filter]) -> Set[Neighbour]:
        """Where a filter is wanted."""
        ways = self._topology.ways(node.subscribers.keys())
        if self.strategy is Strategy.SUBSCRIPTIONS:
            return ways
        return {way for way in ways if self._may_come(way, node)}

    def _may_come(self, way: Neighbour, node: Node[Filter]) -> bool:
        """Whether a neighbour has advertised what a filter may match; of a parent all may come."""
        return self._topology.role(way) is Role.PARENT or any(
            product_meets(offer.product, node.product) for offer in self._offers.of(way).values()
        )

    # --- advertisements -----------------------------------------------------------------------

    def _advertise(self, origin: Origin, identity: str, offer: Offer) -> list[Effect]:
        if offer.is_empty:
            raise _RefusedError(Reason.UNSATISFIABLE)
        known = self._offers.get(origin, identity)
        if known is not None:
            if known.product == offer:
                return []
            raise _RefusedError(Reason.IDENTITY_IN_USE)
        if _is_full(self._offers):
            raise _RefusedError(Reason.FULL)
        node = self._offered.join(offer, origin, identity)
        self._offers.add(origin, identity, node)
        return self._route_offers([node]) + self._reroute_filters(origin, [node])

    def _drop_offers(self, origin: Origin, dropped: Mapping[str, Node[Offer]]) -> list[Effect]:
        """Takes an origin off its advertisements."""
        for identity, node in dropped.items():
            self._offered.leave(node, origin, identity)
        nodes = list(dict.fromkeys(dropped.values()))
        return self._route_offers(nodes) + self._reroute_filters(origin, nodes)

    def _route_offers(self, nodes: Iterable[Node[Offer]]) -> list[Effect]:
        """As `_route_filters`. Nothing depends on advertisements where subscriptions go to all."""
        is_told = self.strategy is Strategy.ADVERTISEMENTS
        ways = self._topology.ways
        wanted = {node: ways(node.subscribers.keys() if is_told else ()) for node in nodes}
        effects: list[Effect] = []
        for change in self._offered.update(wanted):
            identity = str(change.node.number)
            if change.begins:
                message: Message = Advertise(identity, change.node.product)
            else:
                message = Unadvertise(identity)
            if change.way in self._topology:
                effects.append(Send(change.way, message))
        return effects

    def _reroute_filters(self, origin: Origin, offers: Iterable[Node[Offer]]) -> list[Effect]:
        """Sends to a neighbour the filters that its advertisements call for, and only those."""
        if isinstance(origin, Client) or self.strategy is Strategy.SUBSCRIPTIONS:
            return []
        numbers = {number for each in offers for number in self._index.meeting(each.product)}
        return self._route_filters(self._filters.node(number) for number in sorted(numbers))

    # --- links --------------------------------------------------------------------------------

    def _link_up(self, neighbour: Neighbour, role: Role) -> list[Effect]:
        """Tells a new neighbour what it has to know; a parent wants all and may publish all."""
        if neighbour in self._topology:
            raise _RefusedError(Reason.KNOWN_NEIGHBOUR)
        if role is Role.PARENT and self._topology.parent is not None:
            raise _RefusedError(Reason.SECOND_PARENT)
        if len(self._topology) >= NEIGHBOURS_MAX or _is_full(self._wishes, self._offers):
            raise _RefusedError(Reason.FULL)
        self._topology.add(neighbour, role)
        effects: list[Effect] = []
        if role is Role.PARENT:
            effects += self._subscribe(neighbour, _IMPLIED, EVERYTHING)
            effects += self._advertise(neighbour, _IMPLIED, EVERYTHING)
        return effects + self._route_all()

    def _link_down(self, neighbour: Neighbour) -> list[Effect]:
        """Forgets all that came over a link; the others are told what that changes."""
        if neighbour not in self._topology:
            raise _RefusedError(Reason.UNKNOWN_NEIGHBOUR)
        self._topology.remove(neighbour)
        return self._forget(neighbour) + self._route_all()

    def _route_all(self) -> list[Effect]:
        return self._route_offers(list(self._offered)) + self._route_filters(list(self._filters))

    def _forget(self, origin: Origin) -> list[Effect]:
        """Withdraws all that an origin asked for."""
        wishes, offers = self._wishes.remove_all(origin), self._offers.remove_all(origin)
        return self._drop_wishes(origin, wishes) + self._drop_offers(origin, offers)

    # --- what others may see ------------------------------------------------------------------

    def filters_of(self, origin: Origin) -> FilterSet:
        """What a client or neighbour is subscribed to here."""
        wishes = self._wishes.of(origin).values()
        return FilterSet(dict.fromkeys(node.product for nodes in wishes for node in nodes))

    def offers_of(self, origin: Origin) -> list[Offer]:
        """What a client or neighbour has advertised here."""
        return list(dict.fromkeys(node.product for node in self._offers.of(origin).values()))

    def maintain(self, units: int = 64) -> bool:
        """Does a bounded piece of upkeep of the indexes; whether more is waiting."""
        fronts = (self._filter_front, self._offer_front)
        waiting = [each.maintain(units) for each in fronts if each is not None]
        return self._index.maintain(units) or any(waiting)

    def statistics(self) -> RouterStatistics:
        """A frozen view of what the router holds and did."""
        return RouterStatistics(
            neighbours=len(self._topology),
            subscriptions=self._wishes.statistics(),
            advertisements=self._offers.statistics(),
            filters=self._filters.statistics(),
            offers=self._offered.statistics(),
            received=MappingProxyType(dict(self._received)),
            sent=MappingProxyType(dict(self._sent)),
            delivered=self._delivered,
            refused=MappingProxyType(dict(self._refused)),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all that is held."""
        self._wishes.validate()
        self._offers.validate()
        self._filters.validate()
        self._offered.validate()
        self._index.validate()
        assert len(self._index) == len(self._filters), "the index holds other filters"
        assert all(node.number in self._index for node in self._filters), "a filter is not found"
        asked = sum(len(wishes) for _, _, wishes in self._wishes)
        held = _identities(self._filters), _identities(self._offered)
        assert held == (asked, len(self._offers)), "the poset holds what nobody asked for"
        for node in self._filters:
            assert node.wanted == self._ways(node), f"{node.product} is wanted elsewhere"


def _is_full(*ledgers: Ledger[Any]) -> bool:
    return any(len(ledger) >= LEDGER_ENTRIES_MAX for ledger in ledgers)


def _identities(poset: Poset[Any]) -> int:
    """How many identities stand behind the nodes of a poset."""
    return sum(len(each) for node in poset for each in node.subscribers.values())
