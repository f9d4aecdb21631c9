"""`Router`: the routing state machine of one server.

It dispatches each event to one of its parts and counts the effects:

    Publish                     ==> `NotificationForwarder`: index ==> clients, links, patterns
    Subscribe, Advertise,
    Describe, link states       ==> `InterestForwarder`: tables ==> messages to neighbours
    queries and answers         ==> `QueryRouter`: descriptions ==> sources, links, and back
    patterns                    ==> `Assembler`: split, delegate, assemble

With advertisement forwarding, a notification that its client did not advertise is refused. The
server subscribes to the segments of patterns as one of its own clients, `ITSELF`. A named server
accepts each notification once, by publisher and identity, and refuses one without an identity.

Invariant: a refused event leaves the state unchanged.

Source: PODC 2000 §4 (subscription forwarding, advertisement forwarding, downstream replication).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from contrada.errors import InvalidValueError
from contrada.model import Advertisement, Filter, FilterSet, Notification
from contrada.model.domains.values import TIME_MIN_US
from contrada.model.languages.work_budget import spend
from contrada.patterns.runs import DEFAULT_LIMITS, PatternLimits
from contrada.routing import router_messages as messages
from contrada.routing.admission import Admission
from contrada.routing.assembly.assembler import Assembler
from contrada.routing.assembly.held_patterns import (
    CLOCK_AHEAD_MAX_US,
    AssemblerStatistics,
    SourceMap,
)
from contrada.routing.assembly.split_pattern import Action, SubscribeSegment, UnsubscribeSegment
from contrada.routing.delegation import PatternMessage, SubscribePattern
from contrada.routing.interest_forwarder import InterestForwarder, Strategy
from contrada.routing.links.topology import TREES_MAX, Topology
from contrada.routing.notification_forwarder import NotificationForwarder
from contrada.routing.query_router import QueryRouter
from contrada.routing.route_decision import RouteDecision, decide_route
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    Client,
    Neighbour,
    NextHop,
    Offer,
    Origin,
    Party,
    Publish,
    Reason,
    RefusedError,
)
from contrada.routing.tables.filter_merger import FilterMergerStatistics
from contrada.routing.tables.interest_table import RegistrationStatistics
from contrada.routing.tables.next_hop_cache import ITSELF
from contrada.routing.tables.poset import PosetStatistics, entry_work

__all__ = ["Router", "RouterStatistics", "Strategy"]


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    """Counters and table sizes of a router.

    `received` and `sent` count messages by kind, `delivered` notifications handed to clients,
    `refused` events by reason, `expired` notifications after their time to live. `sources` are
    descriptions of data, `questions` open queries. `links_used` of the links to `neighbours` are in
    use. `servers` are known by link states, this one included.
    """

    neighbours: int
    links_used: int
    servers: int
    subscriptions: RegistrationStatistics
    advertisements: RegistrationStatistics
    filters: PosetStatistics
    offers: PosetStatistics
    sources: PosetStatistics
    questions: int
    merging: FilterMergerStatistics
    received: Mapping[str, int]
    sent: Mapping[str, int]
    patterns: AssemblerStatistics
    delivered: int
    refused: Mapping[Reason, int]
    expired: int


class Router:
    """Routing of one server: `handle` takes an event and returns the effects.

    Args:
        strategy: the same on all servers of a network.
        name: the name of this server to its neighbours. Without one, the server exchanges no link
            states, so its network must have no cycles.
        general: links between peers may close cycles.
        trees: with `general`, the number of trees that all servers share. With 0 each notification
            follows the shortest paths, and every server forwards subscriptions for every other.
        covering: False forwards every filter, to measure the savings of covering.
        merging: merges forwarded filters when the result is exact; needs covering.
        slack_us: the delay of a notification that patterns tolerate; the same on all servers.
        ahead_max_us: patterns ignore timestamps further ahead of the clock.
        tells_offers: effects include changes of the offers here.
        limits: the bounds of its tables; `pattern_limits`: those of pattern matching.
    """

    def __init__(
        self,
        strategy: Strategy = Strategy.SUBSCRIPTIONS,
        *,
        name: str = "",
        general: bool = False,
        trees: int = 0,
        covering: bool = True,
        merging: bool = False,
        slack_us: int = 0,
        ahead_max_us: int = CLOCK_AHEAD_MAX_US,
        pattern_limits: PatternLimits = DEFAULT_LIMITS,
        tells_offers: bool = False,
        limits: RouterLimits = RouterLimits(),
    ) -> None:
        if general and not name:
            raise InvalidValueError(name, "name: in a general topology a server has one")
        if not 0 <= trees <= (TREES_MAX if general else 0):
            expected = f"trees: 0 to TREES_MAX = {TREES_MAX}, and 0 where no topology is general"
            raise InvalidValueError(trees, expected)
        if merging and not covering:
            raise InvalidValueError(merging, "merging: needs covering, whose roots are merged")
        self.name, self.strategy = name, strategy
        self._topology = Topology(name, general=general, trees=trees, limits=limits)
        self._admission = Admission(name, self._topology, limits)
        self.forwarding = self._forwarding = InterestForwarder(
            self._topology, strategy, covering=covering, merging=merging, limits=limits
        )
        """The tables, which others only read."""
        self._subscriptions, self._offers = self._forwarding.subscriptions, self._forwarding.offers
        if tells_offers:
            self._forwarding.changed_offers = []
        source_map = SourceMap(
            self._topology, self._offers.poset if self._forwarding.uses_advertisements else None
        )
        self._slack_us = slack_us
        self._assembler = Assembler(
            source_map, slack_us=slack_us, ahead_max_us=ahead_max_us, limits=pattern_limits
        )
        self._notifications = NotificationForwarder(
            self._topology, self._admission, self._forwarding, self._assembler, limits
        )
        self._queries = QueryRouter(name, self._topology, self._admission, self._forwarding, limits)
        self._next_hops = self._notifications.next_hops
        self._passed_us = TIME_MIN_US
        self._received: Counter[type[messages.Message]] = Counter()
        self._sent: Counter[str] = Counter()
        self._refused: Counter[Reason] = Counter()
        self._delivered = 0

    def handle(self, event: messages.Event, now_us: int) -> list[messages.Effect]:
        """Returns the effects of an event, in order. `now_us` is the wall clock.

        Expired notifications are dropped and counted. Patterns ignore a timestamp more than
        `ahead_max_us` ahead of the clock. Nothing else uses the wall clock, since it may jump.
        Queries, and `DeadlinePassed`, carry the time of a monotonic clock. Cost: one match and its
        results for a notification; some lookups for a subscription.
        """
        try:
            if isinstance(event, messages.Received):
                origin, message = event.origin, event.message
                if isinstance(message, Publish):
                    return self.publish(origin, message, now_us)
                if isinstance(message, messages.QuestionMessage):
                    effects = self._handle_query(origin, message, now_us)
                else:
                    self._assembler.begin_turn(now_us)
                    self._admission.check(origin, message)
                    self._next_hops.clear()
                    effects = self._handle_message(origin, message)
                    effects += self._forwarding.offer_changes()
                self._received[type(message)] += 1
            else:
                self._assembler.begin_turn(now_us)
                self._next_hops.clear()
                effects = self._handle(event, now_us) + self._forwarding.offer_changes()
        except RefusedError as refusal:
            self._refused[refusal.reason] += 1
            return [messages.Refused(event, refusal.reason, refusal.error)]
        return self._counted(effects) if effects else effects

    def subscribe_each(
        self, client: Client, filters: Mapping[str, Filter]
    ) -> list[messages.Effect] | None:
        """As `handle` of a received `Subscribe` for each new identity, all in one step.

        Returns None where one of them would be refused; then nothing has changed.
        """
        self._next_hops.clear()
        try:
            effects = self._forwarding.subscribe_each(client, filters)
        except RefusedError:  # Each is handled alone then, which counts those refused.
            return None
        self._received[messages.Subscribe] += len(filters)
        return self._counted(effects)

    def publish(self, origin: Origin, message: Publish, now_us: int) -> list[messages.Effect]:
        """As `handle` of a received publication, the most frequent event, without its object."""
        try:
            effects, actions = self._notifications.publish(origin, message, now_us)
        except RefusedError as refusal:
            self._refused[refusal.reason] += 1
            event = messages.Received(origin, message)
            return [messages.Refused(event, refusal.reason, refusal.error)]
        if actions:
            effects += self._perform(actions)
        return self._counted(effects) if effects else effects

    def _counted(self, effects: list[messages.Effect]) -> list[messages.Effect]:
        for effect in effects:
            if isinstance(effect, messages.Deliver):
                self._delivered += len(effect.notifications)
            elif isinstance(effect, messages.Send):
                self._sent[type(effect.message).__name__] += _size(effect.message)
            elif isinstance(effect, messages.DeliverMatch | messages.DeliverQuestion):
                self._delivered += 1
            elif isinstance(effect, messages.Refused):
                self._refused[effect.reason] += 1
        return effects

    def _handle(
        self,
        event: messages.LinkUp
        | messages.LinkDown
        | messages.ClientGone
        | messages.TimePassed
        | messages.DeadlinePassed
        | messages.TurnPassed,
        now_us: int,
    ) -> list[messages.Effect]:
        match event:
            case messages.LinkUp(neighbour, role, cost):
                link = messages.Adjacency(neighbour.name, role, cost)
                effects = self._forwarding.link_up(neighbour, link)
                return effects + self._perform(self._assembler.replan())
            case messages.LinkDown(neighbour):
                effects = self._forwarding.link_down(neighbour)
                effects += self._perform(self._assembler.link_down(neighbour))
                effects += self._perform(self._assembler.replan())
                return effects + self._queries.remove_origin(neighbour)
            case messages.ClientGone(client):
                if client.name == ITSELF.name or not self.knows(client):
                    raise RefusedError(Reason.UNKNOWN_CLIENT)
                effects = self._forwarding.remove_client(client)
                effects += self._perform(self._assembler.forget(client))
                effects += self._perform(self._assembler.replan())
                return effects + self._queries.remove_origin(client)
            case messages.TimePassed(time_us):
                latest_us = now_us + self._assembler.ahead_max_us
                if not self._passed_us <= time_us <= latest_us:
                    raise RefusedError(Reason.CLOCK_JUMPED)
                self._passed_us = time_us
                return self._perform(self._assembler.pass_time(time_us))
            case messages.DeadlinePassed():
                return self._queries.expire(now_us)
            case messages.TurnPassed():
                return self._forwarding.continue_rerouting()

    def _handle_query(
        self, origin: Origin, message: messages.QuestionMessage, now_us: int
    ) -> list[messages.Effect]:
        if isinstance(message, messages.Ask):
            return self._queries.ask(origin, message, now_us)
        self._admission.check_reply(origin, message)
        match message:
            case messages.Answer():
                return self._queries.answer(origin, message)
            case messages.More():
                return self._queries.more(origin, message)
            case messages.Cancel():
                return self._queries.cancel(origin, message)

    def _handle_message(
        self, origin: Origin, message: messages.StateMessage
    ) -> list[messages.Effect]:
        if not isinstance(message, messages.OwnerMessage):
            if isinstance(message, messages.AnnounceLinks | messages.AckLinks):
                return self._learn_links(origin, message)
            return self._handle_pattern(origin, message)
        # The one object in the tables: `NextHopCache` compares next hops by identity.
        party: Party = (
            origin
            if isinstance(origin, Client)
            else self._subscriptions.registrations.next_hop(origin, message.owner)
        )
        match message:
            case messages.Subscribe(identity, filters):
                if isinstance(origin, Client) and self._assembler.knows(origin, identity):
                    raise RefusedError(Reason.IDENTITY_IN_USE)
                return self._forwarding.subscribe(party, identity, filters)
            case messages.Unsubscribe(identity):
                return self._forwarding.unsubscribe(party, identity)
            case messages.Advertise(identity, offer):
                assert isinstance(offer, Advertisement | Filter), "neither of the two forms"
                effects = self._forwarding.advertise(party, identity, offer)
                return effects + self._perform(self._assembler.replan(offer))
            case messages.Unadvertise(identity):
                known = self._offers.nodes_of(party, identity) or ()
                effects = self._forwarding.unadvertise(party, identity)
                for node in known:
                    effects += self._perform(self._assembler.replan(node.product))
                return effects
            case messages.Describe(identity, offers):
                described = [it for it in offers if isinstance(it, Advertisement | Filter)]
                assert len(described) == len(offers), "neither of the two forms"
                return self._forwarding.describe(party, identity, described)
            case messages.Undescribe(identity):
                return self._forwarding.undescribe(party, identity)

    def _learn_links(
        self, origin: Origin, message: messages.AnnounceLinks | messages.AckLinks
    ) -> list[messages.Effect]:
        if isinstance(origin, Client):
            raise RefusedError(Reason.WRONG_LINK_STATE)
        if isinstance(message, messages.AckLinks):
            return [*self._topology.continue_announcing(origin)]
        sends, refused = self._topology.learn(origin, message.states)
        event = messages.Received(origin, message)
        effects: list[messages.Effect] = [*sends]
        effects += [messages.Refused(event, each.reason, each.error) for each in refused]
        if self._topology.has_changed:
            effects += self._forwarding.reroute()
            effects += self._perform(self._assembler.replan())
        return effects + self._forwarding.acknowledge(origin)

    # --- patterns -----------------------------------------------------------------------------

    def _handle_pattern(self, origin: Origin, message: PatternMessage) -> list[messages.Effect]:
        if (
            isinstance(message, SubscribePattern)
            and isinstance(origin, Client)
            and self._subscriptions.registrations.get(origin, message.identity) is not None
        ):
            raise RefusedError(Reason.IDENTITY_IN_USE)
        if isinstance(message, SubscribePattern):
            filters = message.pattern.filters
            hash(filters)  # Patterns share filters. First: it must not stop halfway.
            spend(entry_work(filters))
        return self._perform(self._assembler.receive(origin, message))

    def _perform(self, actions: Iterable[Action]) -> list[messages.Effect]:
        """Performs actions of the assembler. A segment that does not fit a table is counted."""
        effects: list[messages.Effect] = []
        for action in actions:
            match action:
                case SubscribeSegment(number, part):
                    try:
                        effects += self._forwarding.add_filters(ITSELF, str(number), part)
                    except RefusedError as refusal:
                        self._refused[refusal.reason] += 1
                case UnsubscribeSegment(number):
                    if self._subscriptions.registrations.get(ITSELF, str(number)) is not None:
                        effects += self._forwarding.unsubscribe(ITSELF, str(number))
                case _:
                    effects.append(action)
        return effects

    # --- inspection ---------------------------------------------------------------------------

    def filters_of(self, origin: Origin | NextHop) -> FilterSet:
        """Returns the subscriptions of a client or neighbour, or of one next hop."""
        return FilterSet(self._subscriptions.products_of(origin))

    def offers_of(self, origin: Origin | NextHop) -> list[Offer]:
        """Returns the advertisements of a client or neighbour, or of one next hop."""
        return self._offers.products_of(origin)

    def knows(self, client: Client) -> bool:
        """Whether a client has registrations or open queries here."""
        held = any(client in each.registrations for each in self._forwarding.tables)
        return held or client in self._assembler or client in self._queries

    def links(self) -> list[tuple[messages.Adjacency, Reason | None]]:
        """Returns the links by name, each with the reason for its disuse, or None."""
        return self._topology.links()

    def subscriptions(self) -> Iterator[tuple[Filter, Iterable[Party]]]:
        """Yields each filter once, with its subscribers; lazily."""
        return ((node.product, node.subscribers) for node in self._subscriptions.poset)

    def subscriptions_since(
        self, number: int, count: int
    ) -> tuple[range, Iterator[tuple[int, Filter, Iterable[Party]]]]:
        """As `subscriptions`, of a range of numbers, with the numbers; see `Poset.since`."""
        numbers, nodes = self._subscriptions.poset.since(number, count)
        return numbers, ((node.number, node.product, node.subscribers) for node in nodes)

    def advertisements(self) -> Iterator[tuple[Offer, Iterable[Party]]]:
        """Yields each advertisement once, with its parties; lazily."""
        return ((node.product, node.subscribers) for node in self._offers.poset)

    def decide_route(
        self, notification: Notification, origin: Neighbour | None = None, source: str = ""
    ) -> RouteDecision:
        """Returns where a notification would be sent, without publishing; see `decide_route`."""
        tables = self._topology, self._admission, self._forwarding, self._next_hops
        return decide_route(*tables, notification, origin, source)

    @property
    def due_us(self) -> int | None:
        """The time after which waiting patterns continue; None if no pattern waits."""
        due_us = self._assembler.due_us
        return None if due_us is None else due_us + self._slack_us

    @property
    def is_rerouting(self) -> bool:
        """Whether registrations wait for `TurnPassed`, after links changed or a wide one ended."""
        return self._forwarding.is_rerouting

    def is_withdrawing(self, neighbour: Neighbour) -> bool:
        """Whether `LinkUp` of a neighbour would first route all registrations, in one turn."""
        return self._forwarding.is_withdrawing(neighbour)

    @property
    def question_due_us(self) -> int | None:
        """The time of the next `DeadlinePassed`; None if no query is open."""
        return self._queries.due_us

    @property
    def expired(self) -> int:
        """The number of notifications after their time to live."""
        return self._notifications.expired

    def pattern_statistics(self) -> AssemblerStatistics:
        """Returns counters of the patterns. Cost: their number."""
        return self._assembler.statistics()

    def routes(self) -> Mapping[str, str]:
        """Returns the next server towards each reachable one; empty without link states."""
        return self._topology.routes()

    def maintain(self, units: int = 64) -> bool:
        """Does a bounded part of the indexes' maintenance. Returns whether more is left."""
        waiting = [each.maintain(units) for each in self._forwarding.tables]
        return any(waiting)

    def maintain_descriptions(self, units: int) -> None:
        """Does a bounded piece of upkeep of the index that queries use."""
        self._forwarding.descriptions.index.maintain(units)

    def statistics(self) -> RouterStatistics:
        """Returns a frozen view of the counters."""
        links, merging = self._topology, self._forwarding.merging
        received = {kind.__name__: count for kind, count in self._received.items()}
        if self._notifications.admitted:
            received[messages.Publish.__name__] = self._notifications.admitted
        return RouterStatistics(
            neighbours=len(links),
            links_used=links.used,
            servers=links.servers,
            subscriptions=self._subscriptions.registrations.statistics(),
            advertisements=self._offers.registrations.statistics(),
            filters=self._subscriptions.poset.statistics(),
            offers=self._offers.poset.statistics(),
            sources=self._forwarding.descriptions.poset.statistics(),
            questions=len(self._queries),
            merging=FilterMergerStatistics() if merging is None else merging.statistics(),
            patterns=self._assembler.statistics(),
            received=MappingProxyType(received),
            sent=MappingProxyType(dict(self._sent)),
            delivered=self._delivered,
            refused=MappingProxyType(dict(self._refused)),
            expired=self.expired,
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all tables."""
        self._topology.validate()
        self._forwarding.validate()
        self._assembler.validate()
        self._next_hops.validate()
        self._queries.validate()


def _size(message: messages.Message) -> int:
    return len(message.notifications) if isinstance(message, messages.Publish) else 1
