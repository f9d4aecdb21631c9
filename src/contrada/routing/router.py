"""`Router`: a server of the network, as a pure state machine.

It keeps who asked for what under which identity (`ledger`), what is to be forwarded of it
(`poset`), and its links (`topology`), and matches notifications against all it was asked for.

    client or neighbour ==> Subscribe ==> ledger ==> poset (==> merging)
                                                           ==> Subscribe to the ways that lack it
                        ==> Publish   ==> index  ==> Deliver, and one copy per link with interest

Two strategies. With subscription forwarding, subscriptions go to every peer. With advertisement
forwarding, advertisements do, and a subscription goes only to peers that advertised what it may
match; a notification that its client did not advertise is refused. To a parent both always go. For
comparison a third: with flooding, notifications go to every server, and nothing else goes anywhere.

Patterns are split and assembled by the `assembler`; to what it assembles, the server is subscribed
as one of its own clients, `ITSELF`.

A server that has a name takes each notification once, by its publisher and identity. One without an
identity is refused there, since it could come twice while links change.

Who wants what the same filters match is kept from one notification to the next, until anything but
a notification comes.

Invariants: what is held of an origin is what it asked for and did not withdraw; what a neighbour
was told is what the poset forwards to it; what is refused leaves the state unharmed. What becomes
uncovered is sent before what covered it is withdrawn, so that nothing is missed in between.

Source: PODC 2000 §4 (subscription forwarding, advertisement forwarding, downstream replication).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from contrada.errors import (
    InvalidValueError,
    LimitError,
    UnknownOperatorError,
    UnsatisfiableFilterError,
)
from contrada.matching import Index
from contrada.model import Advertisement, Filter, FilterSet, Notification, Product, Selection
from contrada.model.algebra.product import product_covers, product_meets
from contrada.model.domains.values import TIME_MIN_US
from contrada.patterns.runs import DEFAULT_LIMITS, PatternLimits
from contrada.routing.admission import Admission, Request
from contrada.routing.assembly.assembler import Assembler
from contrada.routing.assembly.held import CLOCK_AHEAD_MAX_US, AssemblerStatistics
from contrada.routing.assembly.outlook import RouterOutlook
from contrada.routing.assembly.segments import Action, Matched, Say, Unwant, Want
from contrada.routing.delegation import (
    PatternMessage,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.links.topology import Topology
from contrada.routing.messages import (
    FILTERS_MAX,
    SUBSCRIPTION_FILTERS_MAX,
    Adjacency,
    Advertise,
    Ask,
    Client,
    ClientGone,
    Deliver,
    DeliverMatch,
    DeliverQuestion,
    Effect,
    Event,
    LinkDown,
    LinkState,
    LinkUp,
    Message,
    Neighbour,
    Offer,
    Origin,
    Party,
    Publish,
    Reason,
    Received,
    Refused,
    Role,
    Send,
    Subscribe,
    TimePassed,
    Unadvertise,
    Unsubscribe,
    Way,
)
from contrada.routing.refusals import RefusedError
from contrada.routing.tables.front import FilterFront, MakeIndex, OfferFront
from contrada.routing.tables.ledger import Ledger, LedgerStatistics
from contrada.routing.tables.merging import Merged, Merging, MergingStatistics
from contrada.routing.tables.next_hops import ITSELF, NOBODY, NextHopCache, NextHops
from contrada.routing.tables.poset import ForwardingChange, Node, Poset, PosetStatistics
from contrada.routing.tables.questions import Questions

EVERYTHING: Final = Filter({})

_IMPLIED: Final = ""
"""The identity under which a parent wants everything and may publish everything."""


class Strategy(StrEnum):
    """What is told to all peers. Source: PODC 2000 §4."""

    SUBSCRIPTIONS = "subscription forwarding"
    ADVERTISEMENTS = "advertisement forwarding"
    FLOODING = "flooding"


Wishes: TypeAlias = tuple[Node[Filter], ...]
"""The nodes of a subscription: one per distinct filter."""


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    """What a router holds, and what it did.

    `received` and `sent` count messages by kind, `delivered` notifications handed to clients,
    `refused` events by reason. Of the links to `neighbours`, `links_used` are used; `servers` are
    known, with this one, where link states are told.
    """

    neighbours: int
    links_used: int
    servers: int
    subscriptions: LedgerStatistics
    advertisements: LedgerStatistics
    filters: PosetStatistics
    offers: PosetStatistics
    merging: MergingStatistics
    received: Mapping[str, int]
    sent: Mapping[str, int]
    patterns: AssemblerStatistics
    delivered: int
    refused: Mapping[Reason, int]


P = TypeVar("P", bound=Product)

Travelling = TypeVar("Travelling", Publish, Ask)
"""What travels through the network and is handed to clients."""


class Router:
    """One server's routing: `handle` takes an event and gives what is to be done.

    All servers of a network follow the same strategy. `name` is what this server's neighbours call
    it. `general` says that links between peers may close cycles. `covering=False` forwards
    everything, to measure what covering saves. `merging=True` joins what is forwarded where that is
    exact: fewer filters at the neighbours, for more messages; it needs covering. `index` makes the
    indexes in which filters are looked up. A server without a name tells no link states: its
    network has no cycles. `slack_us` is how much later than a larger timestamp a notification may
    come where patterns are assembled; all servers of a network have the same.
    """

    def __init__(
        self,
        strategy: Strategy = Strategy.SUBSCRIPTIONS,
        *,
        name: str = "",
        general: bool = False,
        covering: bool = True,
        merging: bool = False,
        index: MakeIndex = Index,
        slack_us: int = 0,
        pattern_limits: PatternLimits = DEFAULT_LIMITS,
    ) -> None:
        if general and not name:
            raise InvalidValueError(name, "name: in a general topology a server has one")
        if merging and not covering:
            raise InvalidValueError(merging, "merging: needs covering, whose roots are merged")
        self.name = name
        self._floods = strategy is Strategy.FLOODING
        self._is_told = strategy is Strategy.ADVERTISEMENTS
        self._is_general = general
        self._topology = Topology(name, general=general)
        self._admission = Admission(name, self._topology)
        self._wishes: Ledger[Wishes] = Ledger()
        self._offers: Ledger[Node[Offer]] = Ledger()
        self._filter_front = FilterFront(index) if covering else None
        self._offer_front = OfferFront(index) if covering else None
        self._filters: Poset[Filter] = Poset(self._filter_front)
        self._offered: Poset[Offer] = Poset(self._offer_front)
        self._merging = Merging() if merging else None
        self._index = index()
        self._interests = NextHopCache(self._filters.node)
        self._questions = Questions(index(), self._offered.node)
        outlook = RouterOutlook(self._topology, self._offered if self._is_told else None)
        self._assembler = Assembler(outlook, slack_us=slack_us, limits=pattern_limits)
        self._passed_us = TIME_MIN_US
        self._received: Counter[type[Message]] = Counter()
        self._sent: Counter[str] = Counter()
        self._refused: Counter[Reason] = Counter()
        self._delivered = 0

    def handle(self, event: Event, now_us: int) -> list[Effect]:
        """What is to be done about an event, in this order; `now_us` is what the clock says.

        No pattern believes a timestamp that is more than `CLOCK_AHEAD_MAX_US` ahead of the clock;
        else the clock, which may jump, is not looked at.
        Cost: of a notification one match and what it finds; of a subscription some lookups.
        """
        self._assembler.clock_us = now_us
        try:
            if isinstance(event, Received):  # By far the most; the others are told apart below.
                origin, message = event.origin, event.message
                if isinstance(message, Publish):
                    effects = self._publish(origin, message)
                elif isinstance(message, Ask):
                    effects = self._ask(origin, message)
                    self._received[Ask] += 1
                else:
                    self._admission.check(origin, message)
                    self._interests.clear()
                    effects = self._handle_message(origin, message)
                    self._received[type(message)] += 1
            else:
                self._interests.clear()
                effects = self._handle(event)
        except RefusedError as refusal:
            self._refused[refusal.reason] += 1
            return [Refused(event, refusal.reason, refusal.error)]
        for effect in effects:
            if isinstance(effect, Deliver):
                self._delivered += len(effect.notifications)
            elif isinstance(effect, Send):
                self._sent[type(effect.message).__name__] += _size(effect.message)
            elif isinstance(effect, DeliverMatch | DeliverQuestion):
                self._delivered += 1
            else:
                self._refused[effect.reason] += 1
        return effects

    def _handle(self, event: LinkUp | LinkDown | ClientGone | TimePassed) -> list[Effect]:
        match event:
            case LinkUp(neighbour, role, cost):
                effects = self._link_up(neighbour, Adjacency(neighbour.name, role, cost))
                return effects + self._do(self._assembler.renew())
            case LinkDown(neighbour):
                effects = self._link_down(neighbour)
                effects += self._do(self._assembler.link_down(neighbour))
                return effects + self._do(self._assembler.renew())
            case ClientGone(client):
                return self._client_gone(client)
            case TimePassed(time_us):
                return self._pass_time(time_us)

    def _pass_time(self, time_us: int) -> list[Effect]:
        if not self._passed_us <= time_us <= self._assembler.clock_us + CLOCK_AHEAD_MAX_US:
            raise RefusedError(Reason.CLOCK_JUMPED)
        self._passed_us = time_us
        return self._do(self._assembler.learn(time_us))

    def _client_gone(self, client: Client) -> list[Effect]:
        holders = (self._wishes, self._offers, self._assembler)
        if client.name == ITSELF.name or not any(client in each for each in holders):
            raise RefusedError(Reason.UNKNOWN_CLIENT)
        nodes = dict.fromkeys(self._leave_filters(client))
        effects = self._route_filters(nodes)
        effects += self._route_offers(dict.fromkeys(self._leave_offers(client)))
        effects += self._do(self._assembler.forget(client))
        return effects + self._do(self._assembler.renew())

    def _handle_message(self, origin: Origin, message: Request) -> list[Effect]:
        if isinstance(message, LinkState):
            return self._learn(origin, message)
        if isinstance(message, PatternMessage):
            return self._handle_pattern(origin, message)
        party: Party = (
            origin if isinstance(origin, Client) else self._wishes.way(origin, message.home)
        )
        match message:
            case Subscribe(identity, filters):
                return self._subscribe(party, identity, filters)
            case Unsubscribe(identity):
                wishes = self._wishes.remove(party, identity)
                if wishes is None:
                    raise RefusedError(Reason.UNKNOWN_SUBSCRIPTION)
                for node in wishes:
                    self._filters.leave(node, party, identity)
                return self._route_filters(wishes)
            case Advertise(identity, offer):
                assert isinstance(offer, Advertisement | Filter), "nothing else can be offered"
                effects = self._advertise(party, identity, offer)
                return effects + self._do(self._assembler.renew(offer))
            case Unadvertise(identity):
                offered = self._offers.remove(party, identity)
                if offered is None:
                    raise RefusedError(Reason.UNKNOWN_ADVERTISEMENT)
                self._offered.leave(offered, party, identity)
                effects = self._route_offers([offered]) + self._reroute_filters(party, [offered])
                return effects + self._do(self._assembler.renew(offered.product))

    # --- notifications ------------------------------------------------------------------------

    def _publish(self, origin: Origin, message: Publish) -> list[Effect]:
        """Delivers notifications, and sends one copy over each link where they are wanted.

        What a client gets in a row for the same subscriptions is one effect, and what goes over
        a link is one message, so that a batch costs little more than its matching.
        """
        self._admission.check_travelling(origin, message)
        effects: list[Effect] = []
        admitted = self._admitted(origin, message, effects)
        if admitted:
            self._received[Publish] += len(admitted)
        onward: dict[Neighbour, list[Notification]] = {}
        actions: list[Action] = []
        for interest, batch in self._wanted(admitted):
            effects += [
                Deliver(client, identities, batch) for client, identities in interest.clients
            ]
            if interest.ways or self._floods:
                ways = None if self._floods else interest.ways
                for neighbour in self._onward(origin, message.source, ways):
                    onward.setdefault(neighbour, []).extend(batch)
            if interest.parts:
                for each in batch:
                    actions += self._assembler.push(each, origin, interest.parts)
            else:
                actions += self._assembler.learn_all([each.envelope.time_us for each in batch])
        for neighbour in sorted(onward):
            copies = tuple(onward[neighbour])
            effects.append(self._passed_on(neighbour, replace(message, notifications=copies)))
        return effects + self._do(actions) if actions else effects

    def _admitted(
        self, origin: Origin, message: Publish, effects: list[Effect]
    ) -> Sequence[Notification]:
        """The notifications that may be published; the others are refused one by one."""
        publisher = origin if self._is_told and isinstance(origin, Client) else None
        if publisher is None and not self.name:
            return message.notifications
        admitted = []
        for each in message.notifications:
            try:
                if publisher is not None:
                    self._check_advertised(publisher, each)
                self._admission.take_once(Publish, each.envelope.publisher, each.envelope.id)
            except RefusedError as refusal:
                event = Received(origin, replace(message, notifications=(each,)))
                effects.append(Refused(event, refusal.reason, refusal.error))
            else:
                admitted.append(each)
        return admitted

    def _wanted(
        self, notifications: Sequence[Notification]
    ) -> Iterator[tuple[NextHops, tuple[Notification, ...]]]:
        """Who wants the notifications, in order; those in a row that the same want come together.

        NextHopCache are kept, so that the same is mostly the very same object.
        """
        interest, begin = NOBODY, 0
        for end, numbers in enumerate(self._index.match_each(notifications)):
            found = self._interests.of(numbers) if numbers else NOBODY
            if found is not interest:
                if end > begin:
                    yield interest, tuple(notifications[begin:end])
                interest, begin = found, end
        if len(notifications) > begin:
            yield interest, tuple(notifications[begin:])

    def _onward(
        self, origin: Origin, source: str, wanting: Iterable[Way] | None
    ) -> list[Neighbour]:
        """The neighbours to which goes what is wanted on these ways; None for all ways."""
        ways = self._topology.onward(source or self.name)
        if wanting is not None:
            ways = ways.intersection(wanting)
        neighbours = {way.neighbour for way in ways}
        if isinstance(origin, Neighbour):
            neighbours.discard(origin)
        return sorted(neighbours)

    def _passed_on(self, neighbour: Neighbour, message: Travelling) -> Send:
        """What travels, over one more link; in a mesh it says where it entered that."""
        source = message.source or self.name
        labelled = self._is_general and self._topology.is_in_mesh(neighbour)
        source = source if labelled else ""
        return Send(neighbour, replace(message, hops=message.hops + 1, source=source))

    def _check_advertised(self, client: Client, notification: Notification) -> None:
        offers = self._offers.of(client).values()
        if not any(product_covers(node.product, notification) for node in offers):
            raise RefusedError(Reason.NOT_ADVERTISED)

    # --- questions ----------------------------------------------------------------------------

    def _ask(self, origin: Origin, message: Ask) -> list[Effect]:
        """Hands a question to those whose advertisements it meets, and sends it on to the others.

        Where advertisements are not forwarded, it goes to every server.
        """
        self._admission.check_question(origin, message)
        self._admission.take_once(Ask, message.asker, message.identity)
        clients, ways = self._questions.of(message.query)
        asked = [DeliverQuestion(client, names, message) for client, names in clients]
        onward = self._onward(origin, message.source, ways if self._is_told else None)
        return [*asked, *(self._passed_on(each, message) for each in onward)]

    # --- subscriptions ------------------------------------------------------------------------

    def _subscribe(self, party: Party, identity: str, filters: Selection) -> list[Effect]:
        members = dict.fromkeys(filters.filters)
        wanted = [member for member in members if not member.is_empty]
        if not wanted:
            raise RefusedError(Reason.UNSATISFIABLE, UnsatisfiableFilterError(filters))
        known = self._wishes.get(party, identity)
        if known is not None:
            if {node.product for node in known} == set(wanted):
                return []
            raise RefusedError(Reason.IDENTITY_IN_USE)
        if isinstance(party, Client) and self._assembler.knows(party, identity):
            raise RefusedError(Reason.IDENTITY_IN_USE)
        _check_limit("SUBSCRIPTION_FILTERS_MAX", SUBSCRIPTION_FILTERS_MAX, len(wanted))
        self._wishes.check_room()
        _check_limit("FILTERS_MAX", FILTERS_MAX, self._filters.asked + len(wanted))
        nodes = self._join_all(wanted, party, identity)
        self._wishes.add(party, identity, nodes)
        return self._route_filters(nodes)

    def _join_all(self, wanted: list[Filter], party: Party, identity: str) -> Wishes:
        """The nodes of filters; all are joined or, where an index is full, none."""
        nodes: list[Node[Filter]] = []
        try:
            for product in wanted:
                nodes.append(self._filters.join(product, party, identity))
                if len(self._index) < len(self._filters):  # It is a new one.
                    self._index.add(nodes[-1].number, product)
        except LimitError as error:
            for node in nodes:
                self._filters.leave(node, party, identity)
            self._route_filters(nodes)
            raise RefusedError(Reason.FULL, error) from None
        return tuple(nodes)

    def _route_filters(self, nodes: Iterable[Node[Filter]]) -> list[Effect]:
        """Forwards what is new on a way, then withdraws what need not be there any longer."""
        wanted = {node: self._ways(node) for node in nodes}
        changes = self._filters.update(wanted)
        told: Sequence[ForwardingChange[Filter] | Merged] = changes
        if self._merging is not None:
            told = self._merging.update(changes)
        for node in wanted:
            if not node.subscribers:
                self._index.remove(node.number)
        return self._tell(told, Subscribe, Unsubscribe)

    def _tell(
        self,
        told: Iterable[ForwardingChange[Any] | Merged],
        begin: Callable[[str, Any, str], Message],
        end: Callable[[str, str], Message],
    ) -> list[Effect]:
        """Sends on each way what begins there and what ends; a link that is gone needs nothing."""
        effects: list[Effect] = []
        for change in told:
            identity, way = change.identity, change.way
            if way.neighbour in self._topology:
                message = (
                    begin(identity, change.product, way.home)
                    if change.begins
                    else end(identity, way.home)
                )
                effects.append(Send(way.neighbour, message))
        return effects

    def _ways(self, node: Node[Filter]) -> Set[Way]:
        """Where a filter is wanted."""
        if self._floods:
            return frozenset()
        ways = self._topology.ways(node.subscribers.keys())
        if not self._is_told:
            return ways
        neighbours = {way.neighbour for way in ways}
        able = {each for each in neighbours if self._may_come(each, node)}
        return {way for way in ways if way.neighbour in able}

    def _may_come(self, neighbour: Neighbour, node: Node[Filter]) -> bool:
        """Whether a neighbour has advertised what a filter may match; of a parent all may come."""
        return self._topology.role(neighbour) is Role.PARENT or any(
            product_meets(offer.product, node.product)
            for way in self._offers.ways(neighbour)
            for offer in self._offers.of(way).values()
        )

    # --- patterns -----------------------------------------------------------------------------

    def _handle_pattern(self, origin: Origin, message: PatternMessage) -> list[Effect]:
        if isinstance(origin, Client):
            return self._do(self._asked_by_client(origin, message))
        actions = self._assembler.receive(origin, message)
        if actions is None:
            raise RefusedError(Reason.WRONG_PATTERN)
        return self._do(actions)

    def _asked_by_client(self, client: Client, message: PatternMessage) -> list[Action]:
        """A client asks for a pattern, or withdraws it."""
        identity = message.identity
        if isinstance(message, UnsubscribePattern):
            if not self._assembler.knows(client, identity):
                raise RefusedError(Reason.UNKNOWN_SUBSCRIPTION)
            return self._assembler.unsubscribe(client, identity)
        if not isinstance(message, SubscribePattern):
            raise RefusedError(Reason.WRONG_PATTERN)
        if message.pattern.is_empty:
            raise RefusedError(Reason.UNSATISFIABLE, UnsatisfiableFilterError(message.pattern))
        known = self._assembler.pattern(client, identity)
        if known == message.pattern:
            return []
        if known is not None or self._wishes.get(client, identity) is not None:
            raise RefusedError(Reason.IDENTITY_IN_USE)
        try:
            return self._assembler.subscribe(client, identity, message.pattern)
        except LimitError as error:
            raise RefusedError(Reason.FULL, error) from None
        except UnknownOperatorError as error:
            raise RefusedError(Reason.UNKNOWN_OPERATOR, error) from None

    def _do(self, actions: Iterable[Action]) -> list[Effect]:
        """Does what the assembler asks for. A part that a full table cannot take is counted."""
        effects: list[Effect] = []
        for action in actions:
            match action:
                case Want(number, part):
                    try:
                        effects += self._subscribe(ITSELF, str(number), part)
                    except RefusedError as refusal:
                        self._refused[refusal.reason] += 1
                case Unwant(number):
                    wishes = self._wishes.remove(ITSELF, str(number)) or ()
                    for node in wishes:
                        self._filters.leave(node, ITSELF, str(number))
                    effects += self._route_filters(wishes)
                case Say(to, said):
                    effects.append(Send(to, said))
                case Matched(client, match):
                    effects.append(DeliverMatch(client, match))
        return effects

    # --- advertisements -----------------------------------------------------------------------

    def _advertise(self, party: Party, identity: str, offer: Offer) -> list[Effect]:
        if offer.is_empty:
            raise RefusedError(Reason.UNSATISFIABLE, UnsatisfiableFilterError(offer))
        known = self._offers.get(party, identity)
        if known is not None:
            if known.product == offer:
                return []
            raise RefusedError(Reason.IDENTITY_IN_USE)
        self._offers.check_room()
        node = self._offered.join(offer, party, identity)
        if len(self._questions) < len(self._offered):  # It is a new one.
            try:
                self._questions.add(node)
            except LimitError as error:
                self._offered.leave(node, party, identity)
                self._offered.update({node: frozenset()})
                raise RefusedError(Reason.FULL, error) from None
        self._offers.add(party, identity, node)
        return self._route_offers([node]) + self._reroute_filters(party, [node])

    def _route_offers(self, nodes: Iterable[Node[Offer]]) -> list[Effect]:
        """As `_route_filters`. Nothing depends on advertisements where subscriptions go to all."""
        ways = self._topology.ways
        wanted = {node: ways(node.subscribers.keys() if self._is_told else ()) for node in nodes}
        changes = self._offered.update(wanted)
        for node in wanted:
            if not node.subscribers:
                self._questions.remove(node)
        return self._tell(changes, Advertise, Unadvertise)

    def _reroute_filters(self, party: Party, offers: Iterable[Node[Offer]]) -> list[Effect]:
        """Sends to a neighbour the filters that its advertisements call for, and only those."""
        if isinstance(party, Client) or not self._is_told:
            return []
        numbers = {number for each in offers for number in self._index.meeting(each.product)}
        return self._route_filters(self._filters.node(number) for number in sorted(numbers))

    # --- links --------------------------------------------------------------------------------

    def _link_up(self, neighbour: Neighbour, link: Adjacency) -> list[Effect]:
        """Tells a new neighbour what it has to know; a parent wants all and may publish all."""
        self._topology.check(link)
        self._wishes.check_room()
        self._offers.check_room()
        _check_limit("FILTERS_MAX", FILTERS_MAX, self._filters.asked + 1)
        told: list[Effect] = [*self._topology.add(link), *self._renew_ways()]
        if link.role is Role.PARENT:
            parent = Way(neighbour)
            told += self._subscribe(parent, _IMPLIED, EVERYTHING)
            told += self._advertise(parent, _IMPLIED, EVERYTHING)
        return told

    def _link_down(self, neighbour: Neighbour) -> list[Effect]:
        """Forgets all that came over a link; the others are told what that changes."""
        if neighbour not in self._topology:
            raise RefusedError(Reason.UNKNOWN_NEIGHBOUR)
        told = self._topology.remove(neighbour)
        filters: list[Node[Filter]] = []
        offers: list[Node[Offer]] = []
        for way in {*self._wishes.ways(neighbour), *self._offers.ways(neighbour)}:
            filters += self._leave_filters(way)
            offers += self._leave_offers(way)
        return [*told, *self._renew_ways(filters, offers)]

    def _learn(self, origin: Origin, state: LinkState) -> list[Effect]:
        """Passes a link state on, and goes by it."""
        if isinstance(origin, Client):
            raise RefusedError(Reason.WRONG_LINK_STATE)
        effects: list[Effect] = [*self._topology.learn(origin, state)]
        if self._topology.is_due:
            effects += self._renew_ways()
            effects += self._do(self._assembler.renew())
        return effects

    def _renew_ways(
        self, filters: Iterable[Node[Filter]] = (), offers: Iterable[Node[Offer]] = ()
    ) -> list[Effect]:
        """After a change of links: routes these, and all else that goes other ways now."""
        before = self._topology.looped
        homes = self._topology.choose_ways()
        told: list[Effect] = [
            Refused(self._topology.link_up(each), Reason.LOOP)
            for each in sorted(self._topology.looped - before)
        ]
        told += self._route_offers(dict.fromkeys([*offers, *self._at_home(self._offered, homes)]))
        told += self._route_filters(dict.fromkeys([*filters, *self._at_home(self._filters, homes)]))
        return told

    def _at_home(self, poset: Poset[P], homes: Set[str] | None) -> list[Node[P]]:
        """What somebody asked for who is at home at one of these servers, or at any."""
        if homes is None:
            return list(poset)
        if not homes:
            return []
        home_of = self._topology.home_of
        return [node for node in poset if not homes.isdisjoint(map(home_of, node.subscribers))]

    def _leave_filters(self, party: Party) -> list[Node[Filter]]:
        """Takes a party off all that it subscribed to; what that was, not yet routed."""
        left = self._wishes.remove_all(party)
        for identity, nodes in left.items():
            for node in nodes:
                self._filters.leave(node, party, identity)
        return [node for nodes in left.values() for node in nodes]

    def _leave_offers(self, party: Party) -> list[Node[Offer]]:
        """Takes a party off all that it advertised; what that was, not yet routed."""
        left = self._offers.remove_all(party)
        for identity, node in left.items():
            self._offered.leave(node, party, identity)
        return list(left.values())

    # --- what others may see ------------------------------------------------------------------

    def filters_of(self, origin: Origin | Way) -> FilterSet:
        """What a client or neighbour is subscribed to here; or what on one way alone is."""
        entries = [
            each for party in self._parties(origin) for each in self._wishes.of(party).values()
        ]
        return FilterSet(dict.fromkeys(node.product for nodes in entries for node in nodes))

    def offers_of(self, origin: Origin | Way) -> list[Offer]:
        """What a client or neighbour has advertised here; or what came on one way alone."""
        entries = [
            each for party in self._parties(origin) for each in self._offers.of(party).values()
        ]
        return list(dict.fromkeys(node.product for node in entries))

    def _parties(self, origin: Origin | Way) -> Iterable[Party]:
        return self.ways_of(origin) if isinstance(origin, Neighbour) else [origin]

    def ways_of(self, neighbour: Neighbour) -> list[Way]:
        """The ways on which a neighbour asks for something or offers it: one for each home."""
        return sorted({*self._wishes.ways(neighbour), *self._offers.ways(neighbour)})

    def offers(self) -> list[Offer]:
        """What is on offer here: what clients, children and peers have advertised.

        A parent passes on no advertisements: of what is published above nothing is known.
        """
        above = self._topology.parent
        parent = None if above is None else Way(above)
        return [
            node.product
            for node in self._offered
            if any(
                self._topology.is_active(party) and party != parent for party in node.subscribers
            )
        ]

    def is_on_offer(self, offer: Offer) -> bool:
        """Whether exactly this is among the `offers`. Cost: one look-up, and who advertised it."""
        above = self._topology.parent
        return any(
            self._topology.is_active(party)
            and not (isinstance(party, Way) and party.neighbour == above)
            for party in self._offered.subscribers(offer)
        )

    @property
    def due_us(self) -> int | None:
        """What waits for a time later than this, and than the slack; None where nothing does."""
        return self._assembler.due_us

    def pattern_statistics(self) -> AssemblerStatistics:
        """What is held of patterns, and what was lost of them. Cost: the number of patterns."""
        return self._assembler.statistics()

    def maintain(self, units: int = 64) -> bool:
        """Does a bounded piece of upkeep of the indexes; whether more is waiting."""
        looked_up = (self._filter_front, self._offer_front, self._questions)
        waiting = [each.maintain(units) for each in looked_up if each is not None]
        return self._index.maintain(units) or any(waiting)

    def statistics(self) -> RouterStatistics:
        """A frozen view of what the router holds and did."""
        links = self._topology.statistics()
        return RouterStatistics(
            neighbours=links.links,
            links_used=links.used,
            servers=links.servers,
            subscriptions=self._wishes.statistics(),
            advertisements=self._offers.statistics(),
            filters=self._filters.statistics(),
            offers=self._offered.statistics(),
            merging=MergingStatistics() if self._merging is None else self._merging.statistics(),
            patterns=self._assembler.statistics(),
            received=MappingProxyType({k.__name__: n for k, n in self._received.items()}),
            sent=MappingProxyType(dict(self._sent)),
            delivered=self._delivered,
            refused=MappingProxyType(dict(self._refused)),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all that is held."""
        self._topology.validate()
        self._wishes.validate()
        self._offers.validate()
        self._filters.validate()
        self._offered.validate()
        self._index.validate()
        self._assembler.validate()
        self._questions.validate()
        assert len(self._questions) == len(self._offered), "other advertisements are asked"
        assert len(self._index) == len(self._filters), "the index holds other filters"
        assert all(node.number in self._index for node in self._filters), "a filter is not found"
        asked = sum(len(wishes) for _, _, wishes in self._wishes)
        held = self._filters.asked, self._offered.asked
        assert held == (asked, len(self._offers)), "the poset holds what nobody asked for"
        self._interests.validate()
        for node in self._filters:
            assert node.wanted == self._ways(node), f"{node.product} is wanted elsewhere"
        if self._merging is not None:
            self._merging.validate()
            roots = {(way, node.number) for node in self._filters for way in node.forwarded}
            assert self._merging.roots() == roots, "what is merged is not what is forwarded"


def _size(message: Message) -> int:
    """How often a message is counted: of notifications that travel together, each."""
    return len(message.notifications) if isinstance(message, Publish) else 1


def _check_limit(name: str, maximum: int, size: int) -> None:
    """Refuses what is more than a limit allows."""
    if size > maximum:
        raise RefusedError(Reason.FULL, LimitError(name, maximum, size))
