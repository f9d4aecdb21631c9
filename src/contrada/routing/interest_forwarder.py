"""`InterestForwarder`: forwards subscriptions, advertisements and descriptions.

    client or neighbour ==> Subscribe ==> table ==> poset (==> merging)
                                                      ==> Subscribe to the next hops that lack it

`Strategy` decides what every peer receives. With advertisement forwarding subscriptions reach only
peers with matching advertisements. A parent receives both. Descriptions of data are forwarded with
every strategy but flooding.

Invariants: the tables hold exactly the registrations of each party; each neighbour holds exactly
the filters that the poset forwards to it, merged with `merging`. A filter that becomes uncovered is
sent before its covering filter is withdrawn, so that no notification is missed in between.

Source: PODC 2000 §4 (subscription forwarding, advertisement forwarding).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from contrada.errors import UnsatisfiableFilterError
from contrada.model import Filter, Product, Selection
from contrada.model.algebra.product import product_meets
from contrada.model.languages.decision import safe_answers
from contrada.model.languages.work_budget import Exhausted, Work, spend
from contrada.routing import router_messages as messages
from contrada.routing.due_nodes import DueNodes
from contrada.routing.links.topology import Topology
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    Client,
    Neighbour,
    NextHop,
    Offer,
    Party,
    Reason,
    RefusedError,
    Role,
)
from contrada.routing.tables.covering_index import FilterCoveringIndex, OfferCoveringIndex
from contrada.routing.tables.filter_merger import FilterMerger
from contrada.routing.tables.interest_table import COMPARED_PER_STEP, InterestTable
from contrada.routing.tables.poset import ForwardingChange, Node, Poset, entry_work, form_of

EVERYTHING: Final = Filter({})

REROUTING_WORK_MAX: Final = 100_000
"""Steps of work of an event to compare filters with the advertisements of neighbours. Beyond it:
the next filters are forwarded as if they met one, counted in `decision.safe_answers`."""

_MEETING_WORK: Final = 2
"""Steps of work to compare a filter with an advertisement."""

_FEW_OFFERS: Final = 16
"""Advertisements of a source that are compared with a filter before all are looked up: often one of
these meets it."""

_IMPLIED: Final = ""
"""The identity of a parent's implied registrations: it receives and may publish everything."""

_NONE: Final[frozenset[NextHop]] = frozenset()

_NO_CHANGE: Final[Mapping[Node[Filter], Topology]] = MappingProxyType({})

P = TypeVar("P", bound=Product)

_OfferSource: TypeAlias = Neighbour | NextHop
"""Where advertisements are from: a neighbour, in a shared tree a next hop."""


class Strategy(StrEnum):
    """The registrations that are forwarded to all peers. Source: PODC 2000 §4."""

    SUBSCRIPTIONS = "subscription forwarding"
    ADVERTISEMENTS = "advertisement forwarding"
    FLOODING = "flooding"


@dataclass(frozen=True, slots=True)
class ForwardedAt:
    """The filters that a next hop must know, and those sent to it; covering saves the others."""

    next_hop: NextHop
    wanted: int
    sent: int


class InterestForwarder:
    """The tables of one server. Each method returns the messages to send, in order."""

    def __init__(
        self,
        topology: Topology,
        strategy: Strategy,
        *,
        covering: bool,
        merging: bool,
        limits: RouterLimits = RouterLimits(),
    ) -> None:
        self.floods = strategy is Strategy.FLOODING
        self.uses_advertisements = strategy is Strategy.ADVERTISEMENTS
        covers = [FilterCoveringIndex(), OfferCoveringIndex(), OfferCoveringIndex()]
        filters, offers, descriptions = covers if covering else (None, None, None)
        self.subscriptions: InterestTable[Filter] = InterestTable(
            filters, Reason.UNKNOWN_SUBSCRIPTION, limits
        )
        self.offers: InterestTable[Offer] = InterestTable(
            offers, Reason.UNKNOWN_ADVERTISEMENT, limits
        )
        self.descriptions: InterestTable[Offer] = InterestTable(
            descriptions, Reason.UNKNOWN_SOURCE, limits
        )
        self.tables: tuple[InterestTable[Any], ...]
        self.tables = self.subscriptions, self.offers, self.descriptions
        self.merging = FilterMerger() if merging else None
        self._wanted: dict[NextHop, int] = {}
        self._sent: dict[NextHop, int] = {}
        self.changed_offers: list[Node[Offer]] | None = None
        """The changed advertisements, if the router reports offers."""
        self._reported_offers: set[Hashable] = set()
        self._has_guessed = False  # Filters may be forwarded that match no advertisement.
        self._topology = topology
        # Advertisements first: they decide the next hops of subscriptions.
        self._due = DueNodes((self.offers, self.descriptions, self.subscriptions))
        self._rerouted_per_turn = limits.rerouted_per_turn

    # --- subscriptions ------------------------------------------------------------------------

    def subscribe(self, party: Party, identity: str, filters: Selection) -> list[messages.Effect]:
        """Registers a subscription. Raises RefusedError."""
        spend(entry_work(filters.filters))
        return self.add_filters(party, identity, filters)

    def add_filters(self, party: Party, identity: str, filters: Selection) -> list[messages.Effect]:
        """As `subscribe`, without charging work: the caller has charged it."""
        distinct: Iterable[Filter] = filters.filters
        if len(filters.filters) > 1:
            distinct = {form_of(each): each for each in distinct}.values()
        wanted = [each for each in distinct if not each.is_empty]
        if not wanted:
            raise RefusedError(Reason.UNSATISFIABLE, UnsatisfiableFilterError(filters))
        return self._route_filters(self.subscriptions.register(party, identity, wanted))

    def subscribe_each(
        self, client: Client, filters: Mapping[str, Filter]
    ) -> list[messages.Effect]:
        """Registers a new subscription to one filter for each identity, all or none.

        Raises RefusedError.
        """
        spend(entry_work(filters.values()))  # First: it must not stop halfway.
        if self.uses_advertisements:  # Each alone has the budget to be compared with all.
            spend(_MEETING_WORK * len(filters) * len(self.offers.poset))
        for each in filters.values():
            if each.is_empty:
                raise RefusedError(Reason.UNSATISFIABLE, UnsatisfiableFilterError(each))
        nodes = self.subscriptions.register_each(client, filters)
        return self._route_filters(dict.fromkeys(nodes))

    def unsubscribe(self, party: Party, identity: str) -> list[messages.Effect]:
        """Withdraws a subscription. Raises RefusedError."""
        return self._route_filters(self.subscriptions.withdraw(party, identity))

    def _route_filters(
        self,
        nodes: Iterable[Node[Filter]],
        before: Mapping[Node[Filter], Topology | None] = _NO_CHANGE,
    ) -> list[messages.Effect]:
        """Routes nodes. Over the next hops `before`, a node is forwarded as advertised."""
        with Work("REROUTING_WORK_MAX", REROUTING_WORK_MAX) as work:
            wanted = {node: self._next_hops(node, before.get(node)) for node in nodes}
            self._has_guessed |= not work.steps_left()
        return self._forward_filters(wanted)

    def _forward_filters(
        self, wanted: Mapping[Node[Filter], Set[NextHop]]
    ) -> list[messages.Effect]:
        for node, next_hops in wanted.items():
            before: Set[NextHop] = node.forwarded
            if node.above:
                before = node.wanted
            if node in self.subscriptions.poset.leaving:  # It was wanted nowhere.
                before = _NONE
            if next_hops != before:  # Without links both are empty.
                _count(self._wanted, next_hops - before, 1)
                _count(self._wanted, before - next_hops, -1)
        changes = self.subscriptions.update(wanted)
        if self.merging is not None:
            changes = self.merging.update(changes)
        for change in changes:
            _count(self._sent, (change.next_hop,), 1 if change.begins else -1)
        return self._to_messages(changes, messages.Subscribe, messages.Unsubscribe)

    def _next_hops(self, node: Node[Filter], before: Topology | None = None) -> Set[NextHop]:
        if self.floods:
            return _NONE
        parties = node.subscribers.keys()
        next_hops = self._topology.next_hops(parties)
        if not self.uses_advertisements:
            return next_hops
        known = _NONE if before is None else before.next_hops(parties)
        # In one order in all processes: beyond a budget, the remaining sources count as met.
        sources = {each: self._source_of(each) for each in sorted(next_hops - known)}
        able = self._sources_met(dict.fromkeys(sources.values()), node.product)
        met = {next_hop for next_hop, source in sources.items() if source in able}
        return met | (next_hops & known & node.wanted)

    def _source_of(self, next_hop: NextHop) -> _OfferSource:
        """In a shared tree, notifications travel the same tree as their filters."""
        return next_hop if self._topology.shared else next_hop.neighbour

    def _sources_met(self, sources: Iterable[_OfferSource], of: Filter) -> set[_OfferSource]:
        """Returns sources with an advertisement that a filter meets; more beyond a budget."""
        met: set[_OfferSource] = set()
        many: set[_OfferSource] = set()
        offers, next_hops_of = self.offers, self.offers.registrations.next_hops
        for source in sources:
            parties = [source] if isinstance(source, NextHop) else next_hops_of(source)
            nodes = chain.from_iterable(map(offers.nodes, parties))
            if any(_may_meet(each, of) for each in islice(nodes, _FEW_OFFERS)):
                met.add(source)
            elif next(nodes, None) is not None:
                many.add(source)
        if many:
            with suppress(Exhausted):  # Then the first of them counts as met.
                spend(len(offers.poset) // COMPARED_PER_STEP)
            for node in map(offers.poset.node, offers.index.may_meet(of)):
                parties = [each for each in node.subscribers if isinstance(each, NextHop)]
                found = many.intersection(map(self._source_of, parties))
                if found and _may_meet(node, of):
                    met |= found
                    many -= found
                    if not many:
                        break
        return met

    def forwarded_at(self) -> list[ForwardedAt]:
        """Returns the counts of filters for each next hop, in order. Cost: the next hops."""
        wanted, sent = self._wanted, self._sent
        return [ForwardedAt(each, wanted[each], sent.get(each, 0)) for each in sorted(wanted)]

    def covering(self, party: Party, identity: str) -> Iterator[tuple[NextHop, Filter]]:
        """Yields the next hops that lack a filter of a subscription, each with a covering one."""
        for node in self.subscriptions.nodes_of(party, identity) or ():
            for next_hop, above in node.above.items():
                yield next_hop, above.product

    # --- advertisements -----------------------------------------------------------------------

    def advertise(self, party: Party, identity: str, offer: Offer) -> list[messages.Effect]:
        """Registers an advertisement. Raises RefusedError."""
        spend(entry_work([offer]))
        if offer.is_empty:
            raise RefusedError(Reason.UNSATISFIABLE, UnsatisfiableFilterError(offer))
        nodes = self.offers.register(party, identity, (offer,))
        return self._route_offers(nodes) + self._reroute_filters(party, nodes, begins=True)

    def unadvertise(self, party: Party, identity: str) -> list[messages.Effect]:
        """Withdraws an advertisement. Raises RefusedError."""
        nodes = self.offers.withdraw(party, identity)
        return self._route_offers(nodes) + self._reroute_filters(party, nodes, begins=False)

    def _route_offers(self, nodes: Iterable[Node[Offer]]) -> list[messages.Effect]:
        """As `_route_filters`. Only advertisement forwarding forwards advertisements."""
        if self.changed_offers is not None:
            nodes = list(nodes)
            self.changed_offers += nodes
        next_hops = self._topology.next_hops_of_offers
        is_forwarded = self.uses_advertisements
        changes = self.offers.update(
            {node: next_hops(node.subscribers.keys() if is_forwarded else ()) for node in nodes}
        )
        return self._to_messages(changes, messages.Advertise, messages.Unadvertise)

    def offer_changes(self) -> list[messages.Effect]:
        """Returns the offers that have appeared or disappeared since the last call."""
        changed, reported = self.changed_offers, self._reported_offers
        if not changed:
            return []
        changes: list[messages.Effect] = []
        for form, offer in {form_of(node.product): node.product for node in changed}.items():
            is_on_offer = self.is_offered_below(self.offers.poset.subscribers(offer))
            if is_on_offer != (form in reported):
                changes.append(messages.OfferChanged(offer, is_on_offer))
                reported.symmetric_difference_update((form,))
        changed.clear()
        return changes

    def is_offered_below(self, parties: Iterable[Party]) -> bool:
        """Whether one of the active parties is not this server's parent."""
        above = self._topology.parent
        return any(
            self._topology.is_active(party)
            and not (isinstance(party, NextHop) and party.neighbour == above)
            for party in parties
        )

    def _reroute_filters(
        self, party: Party, offers: Iterable[Node[Offer]], *, begins: bool
    ) -> list[messages.Effect]:
        """Forwards the filters that new advertisements of a neighbour meet, and only those."""
        if isinstance(party, Client) or not self.uses_advertisements:
            return []
        source, index, nodes = self._source_of(party), self.subscriptions.index, {}
        with Work("REROUTING_WORK_MAX", REROUTING_WORK_MAX) as work:
            for offer in offers:
                for node in map(self.subscriptions.poset.node, index.may_meet(offer.product)):
                    next_hops = self._topology.next_hops(node.subscribers.keys())
                    over = {each for each in next_hops if self._source_of(each) == source}
                    over = over - node.wanted if begins else over & node.wanted
                    if not over or not _may_meet(offer, node.product):
                        continue
                    if begins:
                        nodes[node] = node.wanted | over
                    elif not self._sources_met([source], node.product):
                        nodes[node] = node.wanted - over
            self._has_guessed |= not work.steps_left()
        return self._forward_filters(dict(sorted(nodes.items())))

    # --- descriptions of data -----------------------------------------------------------------

    def describe(
        self, party: Party, identity: str, offers: Iterable[Offer]
    ) -> list[messages.Effect]:
        """Replaces the descriptions of a party. Raises RefusedError; then they remain."""
        given = list(offers)
        spend(entry_work(given))
        described = {form_of(each): each for each in given if not each.is_empty}
        if not described:
            raise RefusedError(Reason.UNSATISFIABLE)
        self.descriptions.check_room(len(described))
        is_known = self.descriptions.nodes_of(party, identity) is not None
        before = self.descriptions.withdraw(party, identity) if is_known else ()
        try:
            nodes = self.descriptions.register(party, identity, described.values())
        except RefusedError:
            if before:  # They are in the index, so it is not too full for them.
                self.descriptions.register(party, identity, [each.product for each in before])
            raise
        return self._route_descriptions(dict.fromkeys((*nodes, *before)))

    def undescribe(self, party: Party, identity: str) -> list[messages.Effect]:
        """Withdraws descriptions. Raises RefusedError."""
        return self._route_descriptions(self.descriptions.withdraw(party, identity))

    def _route_descriptions(self, nodes: Iterable[Node[Offer]]) -> list[messages.Effect]:
        next_hops = self._topology.next_hops_of_offers
        changes = self.descriptions.update(
            {node: next_hops(() if self.floods else node.subscribers.keys()) for node in nodes}
        )
        return self._to_messages(changes, _describe_message, messages.Undescribe)

    def remove_client(self, client: Client) -> list[messages.Effect]:
        """Withdraws all registrations of a client."""
        effects = self._route_filters(dict.fromkeys(self.subscriptions.withdraw_all(client)))
        effects += self._route_offers(dict.fromkeys(self.offers.withdraw_all(client)))
        withdrawn = dict.fromkeys(self.descriptions.withdraw_all(client))
        return effects + self._route_descriptions(withdrawn)

    # --- links --------------------------------------------------------------------------------

    def link_up(self, neighbour: Neighbour, link: messages.Adjacency) -> list[messages.Effect]:
        """Adds a link and sends its filters; a parent receives and offers everything.

        Where it `is_withdrawing` a former link, it routes all that is due first, at once.
        """
        self._topology.check(link)
        for table in self.tables:
            table.check_room()
        effects: list[messages.Effect] = []
        while self.is_withdrawing(neighbour):
            effects += self.continue_rerouting()
        effects += [*self._topology.add(link), *self.reroute()]
        if link.role is Role.PARENT:
            parent = NextHop(neighbour)
            effects += self.subscribe(parent, _IMPLIED, EVERYTHING)
            effects += self.advertise(parent, _IMPLIED, EVERYTHING)
            effects += self.describe(parent, _IMPLIED, (EVERYTHING,))
        return effects

    def link_down(self, neighbour: Neighbour) -> list[messages.Effect]:
        """Removes a link and all registrations behind it."""
        if neighbour not in self._topology:
            raise RefusedError(Reason.UNKNOWN_NEIGHBOUR)
        effects = self._topology.remove(neighbour)
        self._due.lose(neighbour)
        next_hops = sorted(self.next_hops_of(neighbour))  # In one order in all processes.
        withdrawn = [
            [node for each in next_hops for node in table.withdraw_all(each)]
            for table in self._due.tables
        ]
        return [*effects, *self.reroute(withdrawn)]

    def reroute(
        self, withdrawn: Iterable[Iterable[Node[Any]]] = ((), (), ())
    ) -> list[messages.Effect]:
        """Routes these nodes of each table, and others with changed next hops, the first at once.

        Cost: a microsecond for each node of the tables, and as of `continue_rerouting`.
        """
        before = copy(self._topology)  # Its next hops stay: choosing replaces them.
        owners = self._topology.choose_next_hops()
        effects: list[messages.Effect] = [
            messages.Refused(self._topology.link_up(each), Reason.LOOP)
            for each in sorted(self._topology.looped - before.looped)
        ]
        for table, nodes in zip(self._due.tables, withdrawn, strict=True):
            moved = _nodes_of_owners(table.poset, owners, self._topology.owner_of)
            self._due.add(table, chain(nodes, moved), before)
        return effects + self.continue_rerouting()

    @property
    def is_rerouting(self) -> bool:
        """Whether nodes are due or leaving, so that `continue_rerouting` has work."""
        return bool(self._due) or any(each.poset.leaving for each in self.tables)

    def is_withdrawing(self, neighbour: Neighbour) -> bool:
        """Whether nodes that are due may be forwarded over a former link to a neighbour."""
        return neighbour in self._due.lost

    def continue_rerouting(self) -> list[messages.Effect]:
        """Routes `rerouted_per_turn` of the nodes that are due, and parts of those that leave."""
        due = self._due
        offers, described, filters = (
            taken or dict(table.poset.leaving)
            for taken, table in zip(due.take(self._rerouted_per_turn), due.tables, strict=True)
        )
        effects = self._route_offers(offers)
        effects += self._route_descriptions(described)
        effects += self._route_filters(filters, filters)
        return [*effects, *due.finish()]

    def acknowledge(self, neighbour: Neighbour) -> list[messages.Send]:
        """Acknowledges link states, after the registrations over the link that they change."""
        return self._due.hold(messages.Send(neighbour, messages.AckLinks()))

    def next_hops_of(self, neighbour: Neighbour) -> set[NextHop]:
        """Returns the next hops with registrations of a neighbour: one for each owner."""
        held = (each.registrations.next_hops(neighbour) for each in self.tables)
        return set(chain.from_iterable(held))

    def _to_messages(
        self,
        changes: Iterable[ForwardingChange[Any]],
        begin: Callable[[str, Any, str], messages.Message],
        end: Callable[[str, str], messages.Message],
    ) -> list[messages.Effect]:
        """Returns the messages of changes, without those for links that are down."""
        effects: list[messages.Effect] = []
        for change in changes:
            neighbour, owner = change.next_hop.neighbour, change.next_hop.owner
            if neighbour in self._topology:
                message = end(change.identity, owner)
                if change.begins:
                    message = begin(change.identity, change.product, owner)
                effects.append(messages.Send(neighbour, message))
        return effects

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all tables."""
        self._due.validate()
        for table in self.tables:
            table.validate(self._due)
        for node in self.subscriptions.poset:
            if node in self._due:
                continue
            needed = self._next_hops(node)
            is_more = self._has_guessed or node in self.subscriptions.poset.leaving
            is_right = needed <= node.wanted if is_more else needed == node.wanted
            assert is_right, f"{node.product} is wanted elsewhere"
        nodes = self.subscriptions.poset
        held = (node.wanted for node in nodes if node not in nodes.leaving)
        wanted = Counter(chain.from_iterable(held))
        assert wanted == self._wanted, "the counts of wanted filters differ"
        if self.merging is None:
            forwarded = (node.forwarded for node in self.subscriptions.poset)
            sent = Counter(chain.from_iterable(forwarded))
            assert sent == self._sent, "the counts of sent filters differ"
        if self.merging is not None:
            self.merging.validate()
            roots = {
                (next_hop, node.identity)
                for node in self.subscriptions.poset
                for next_hop in node.forwarded
            }
            assert self.merging.roots() == roots, "the merged filters are not the forwarded ones"


def _nodes_of_owners(
    poset: Poset[P], owners: Set[str] | None, owner_of: Callable[[Party], str]
) -> Iterable[Node[P]]:
    """Returns the nodes with a subscriber of one of these owners; None means any owner."""
    if owners is None:
        return poset
    if not owners:
        return ()
    return (node for node in poset if not owners.isdisjoint(map(owner_of, node.subscribers)))


def _may_meet(offer: Node[Offer], of: Filter) -> bool:
    """Whether an advertisement meets a filter. Beyond a budget it may."""
    try:
        spend(_MEETING_WORK)
        return product_meets(offer.product, of)
    except Exhausted as exhausted:  # Never passed on: routing must not stop halfway.
        safe_answers.add(f"meets: {exhausted.work.limit}")
        return True


def _count(counts: dict[NextHop, int], next_hops: Iterable[NextHop], change: int) -> None:
    """Counts, and keeps no next hop without a count: owners come and go."""
    for each in next_hops:
        count = counts.pop(each, 0) + change
        if count:
            counts[each] = count


def _describe_message(identity: str, offer: Offer, owner: str) -> messages.Describe:
    return messages.Describe(identity, (offer,), owner)
