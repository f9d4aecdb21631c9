"""`SimulatedNetwork`: servers, the lines between them, and clients, in virtual time.

Messages between a client and its server take no time, and requests are acknowledged at once.
Servers communicate over lines (see `simulated_line`). All events are recorded in a `History`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from msgspec.structs import replace

from contrada.delivery.delivery_class import BEST_EFFORT
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    AnnounceOwner,
    DeliveryMessage,
    Sequenced,
    StreamAck,
    Transfer,
)
from contrada.lab.simulation.run_records import (
    Cause,
    Change,
    Delivered,
    Handled,
    History,
    InterestSpan,
    Matched,
    PublishedRecord,
)
from contrada.lab.simulation.schedule import Schedule
from contrada.lab.simulation.script_steps import BROKERS_MAX, Kind
from contrada.lab.simulation.simulated_delivery import SimulatedDelivery
from contrada.lab.simulation.simulated_line import Faults, Line
from contrada.lab.simulation.simulated_readers import Readers
from contrada.lab.simulation.simulated_standby import SimulatedStandby
from contrada.model import Notification
from contrada.model.algebra.product import product_covers
from contrada.routing.delegation import SubscribePattern, UnsubscribePattern
from contrada.routing.duplicates import Duplicates
from contrada.routing.router import Router, Strategy
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    Advertise,
    Client,
    ClientGone,
    Deliver,
    DeliverMatch,
    Event,
    LinkDown,
    LinkUp,
    Message,
    Neighbour,
    Publish,
    Received,
    Refused,
    Role,
    Send,
    Subscribe,
    TimePassed,
    TurnPassed,
    Unadvertise,
    Unsubscribe,
)
from contrada.service.transition_log import covered_filters

TURN_US: Final = 200
"""Microseconds of a turn in which a server routes registrations anew."""

MAINTAIN_EVERY: Final = 16
"""Events after which a server does maintenance, and with `validates` is checked."""

_GONE: Final = {
    Subscribe: Unsubscribe,
    Advertise: Unadvertise,
    SubscribePattern: UnsubscribePattern,
}
"""The withdrawal of each request."""

_ROLES: Final = {True: (Role.CHILD, Role.PARENT), False: (Role.PEER, Role.PEER)}


SLACK_US: Final = 100_000
"""The delay of a notification that patterns tolerate."""

ClientInterest: TypeAlias = Subscribe | Advertise | SubscribePattern
"""A subscription or advertisement of a client, until the client withdraws it."""

_InterestKey: TypeAlias = tuple[type[ClientInterest], str]
"""The kind of a request, and its identity."""


@dataclass(slots=True)
class _ClientState:
    """A client: its server, its subscriptions and advertisements, and those of them in force."""

    broker: int | None = None
    asked: dict[_InterestKey, ClientInterest] = field(default_factory=dict)
    held: dict[_InterestKey, InterestSpan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _SentMessage:
    message: Message | DeliveryMessage
    cause: Cause


class SimulatedNetwork:
    """Servers of a kind; lines and clients are added later."""

    def __init__(
        self,
        kind: Kind,
        brokers: int,
        *,
        faults: Faults | None = None,
        seed: int = 0,
        records: bool = False,
        validates: bool = False,
        storeless: Iterable[int] = (),
        router_limits: RouterLimits = RouterLimits(),
        delivery_limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        self._router_limits = router_limits
        self.kind = kind
        self.schedule = Schedule()
        self.history = History()
        self.readers = Readers(self.schedule)
        self.traffic: Counter[tuple[int, str]] = Counter()
        self.ends: list[tuple[int, int]] = []
        self.lines: list[Line[_SentMessage]] = []
        self.routers: list[Router | None] = [
            router_of(kind, each, router_limits) for each in range(brokers)
        ]
        self._roles: list[tuple[Role, Role]] = []
        self.costs: list[int] = []
        self._line_to: dict[tuple[int, int], tuple[int, int]] = {}
        self._customers: dict[str, _ClientState] = {}
        # A client remembers its notifications by name, at any server.
        self._received: defaultdict[str, Duplicates] = defaultdict(Duplicates)
        self._faults, self._seed = faults, seed
        self._records, self._validates = records, validates
        self._order = 0
        self._open = 0
        self._settled = 0
        self._rerouting: set[Router] = set()  # with a turn to come
        self.delivery: SimulatedDelivery | None = None
        if kind.standby:
            self.delivery = SimulatedStandby(
                self.schedule, self._send_delivery, seed, delivery_limits
            )
        elif kind.reliable:
            self.delivery = SimulatedDelivery(
                brokers, self.schedule, self._send_delivery, seed, storeless, delivery_limits
            )

    # --- links and servers --------------------------------------------------------------------

    def connect(self, a: int, b: int, *, is_parent: bool, delay_us: int, cost: int = 1) -> None:
        """Adds a line between two servers that have none, and begins its session."""
        number = len(self.lines)
        self.ends.append((a, b))
        self._roles.append(_ROLES[is_parent])
        self.costs.append(cost)
        self._line_to[a, b], self._line_to[b, a] = (number, 0), (number, 1)
        seed = (self._seed * BROKERS_MAX + a) * BROKERS_MAX + b
        line = Line(number, self.schedule, self, delay_us, faults=self._faults, seed=seed)
        self.lines.append(line)
        line.begin()

    def line(self, a: int, b: int) -> Line[_SentMessage] | None:
        """The line between two servers, or None."""
        found = self._line_to.get((a, b))
        return None if found is None else self.lines[found[0]]

    def role(self, a: int, b: int) -> Role:
        """The role of the second of two linked servers for the first."""
        number, end = self._line_to[a, b]
        return self._roles[number][end]

    def crash(self, broker: int, *, keeps_store: bool) -> None:
        """Crashes a server. Its clients stay with it if it keeps its store."""
        if self.routers[broker] is None:
            return
        self.routers[broker] = None
        if self.delivery is not None:
            self.delivery.crash(broker, keeps_store=keeps_store)
        self._order += 1
        for number, end in self._lines_of(broker):
            self.history.changes.append(Change(self._order, number, end, is_up=False))
            self.lines[number].crash(end)
        for customer in self._customers.values():
            if customer.broker == broker:
                self._end_all(customer)
                customer.broker = broker if keeps_store else None

    def restart(self, broker: int) -> None:
        """Restarts a server with its store."""
        if self.routers[broker] is not None:
            return
        self.routers[broker] = router_of(self.kind, broker, self._router_limits)
        for number, end in self._lines_of(broker):
            self.lines[number].restart(end)
        for name, customer in self._customers.items():
            if customer.broker == broker:
                self._repeat_interests(name, customer)
        if self.delivery is not None:
            self.delivery.restart(broker)

    def _lines_of(self, broker: int) -> list[tuple[int, int]]:
        return [found for (a, _), found in self._line_to.items() if a == broker]

    # --- clients ------------------------------------------------------------------------------

    def move(self, client: str, broker: int) -> None:
        """Connects a client to a running server, and disconnects it from the one before."""
        if self.routers[broker] is None:
            return
        self._disconnect(client)
        customer = self._customers.setdefault(client, _ClientState())
        customer.broker = broker
        self._repeat_interests(client, customer)
        if self.delivery is not None:
            self.delivery.move(client, broker)

    def leave(self, client: str) -> None:
        """Removes a client with all its registrations."""
        self._disconnect(client)
        if self._customers.pop(client, None) is not None:
            self.readers.forget(client)
        if self.delivery is not None:
            self.delivery.leave(client)

    def _disconnect(self, client: str) -> None:
        customer = self._customers.get(client)
        if customer is None or customer.broker is None:
            return
        if self.routers[customer.broker] is not None and customer.held:
            with self._cause() as cause:
                self._handle(customer.broker, ClientGone(Client(client)), cause)
        self._end_all(customer)
        customer.broker = None

    def _repeat_interests(self, client: str, customer: _ClientState) -> None:
        for message in sorted(customer.asked.values(), key=_is_subscription):
            self._send_interest(client, customer, message)

    def _end_all(self, customer: _ClientState) -> None:
        for held in customer.held.values():
            held.ended = self._order
        customer.held.clear()

    def _connected(self, client: str) -> _ClientState | None:
        customer = self._customers.get(client)
        if customer is None or customer.broker is None or self.routers[customer.broker] is None:
            return None
        return customer

    def ask(self, client: str, message: ClientInterest) -> None:
        """Subscribes or advertises for a client, under a new identity."""
        key = type(message), message.identity
        if (customer := self._connected(client)) and key not in customer.asked:
            customer.asked[key] = message
            self._send_interest(client, customer, message)

    def _send_interest(self, client: str, customer: _ClientState, message: ClientInterest) -> None:
        assert customer.broker is not None
        held = InterestSpan(client, customer.broker, message, self._order + 1)
        customer.held[type(message), message.identity] = held
        if isinstance(message, Subscribe):
            self.history.subscriptions.append(held)
        elif isinstance(message, SubscribePattern):
            self.history.patterns.append(held)
        self._request(client, customer.broker, message)

    def withdraw(self, client: str, kind: type[ClientInterest], identity: str) -> None:
        """Withdraws a registration of a client; it is acknowledged on return."""
        if (customer := self._connected(client)) and customer.asked.pop((kind, identity), None):
            held = customer.held.pop((kind, identity))
            self._request(client, held.broker, _GONE[kind](identity))
            held.ended = self._order

    def _request(self, client: str, broker: int, message: Message) -> None:
        with self._cause() as cause:
            self._handle(broker, Received(Client(client), message), cause)

    def publish(self, client: str, notification: Notification) -> bool:
        """Publishes for a client, unless it lacks an advertisement. Returns whether it did."""
        customer = self._connected(client)
        if customer is None:
            return False
        broker = customer.broker
        assert broker is not None
        if notification.envelope.delivery != BEST_EFFORT:
            assert self.delivery is not None, "a world of another kind has best effort only"
            self.delivery.publish(client, notification.envelope.id, notification)
            return True
        offers = tuple(
            held
            for held in customer.held.values()
            if isinstance(held.message, Advertise)
            and product_covers(held.message.offer, notification)
        )
        if not offers and self.kind.strategy is Strategy.ADVERTISEMENTS:
            return False
        envelope = replace(notification.envelope, publisher=client, time_us=self.schedule.now_us)
        stamped = notification.with_envelope(envelope)
        settled = self._settled if self._open else self._order
        with self._cause(is_control=False) as cause:
            overlaps = self._open > 0
            moment = cause.begun, settled, overlaps, offers, cause
            self.history.published.append(PublishedRecord(stamped, client, broker, *moment))
            self._handle(broker, Received(Client(client), Publish((stamped,))), cause)
        return True

    def clients(self) -> list[str]:
        """Returns the connected clients."""
        return [name for name, each in self._customers.items() if each.broker is not None]

    def where(self, client: str) -> int | None:
        """Returns the server of a client."""
        customer = self._customers.get(client)
        return None if customer is None else customer.broker

    def held(self) -> list[InterestSpan]:
        """Returns the registrations in force: the advertisements, then the subscriptions."""
        held = [held for each in self._customers.values() for held in each.held.values()]
        return sorted(held, key=lambda each: _is_subscription(each.message))

    def advance_time(self) -> None:
        """Announces the time to all running servers."""
        for broker, router in enumerate(self.routers):
            if router is not None:
                with self._cause(is_control=False) as cause:
                    self._handle(broker, TimePassed(self.schedule.now_us), cause)
        self.history.time_advances.append((self._order, self.schedule.now_us))

    # --- events -------------------------------------------------------------------------------

    @contextmanager
    def _cause(self, *, is_control: bool = True) -> Iterator[Cause]:
        self._order += 1
        if is_control:
            if not self._open:
                self._settled = self._order - 1
            self._open += 1
        cause = Cause(is_control, self._order)
        self.history.causes.append(cause)
        yield cause
        self._end_one(cause)

    def _end_one(self, cause: Cause) -> None:
        """Counts a message of a cause as no longer in flight."""
        cause.in_flight -= 1
        if not cause.in_flight:
            cause.ended, cause.ended_us = self._order, self.schedule.now_us
            self._open -= cause.is_control

    def _handle(self, broker: int, event: Event, cause: Cause) -> None:
        router = self.routers[broker]
        assert router is not None, "a server that has crashed handles nothing"
        self._order += 1
        effects = router.handle(event, self.schedule.now_us)
        if self._records:
            done = (*effects, *covered_filters(router, event))
            handled = Handled(self._order, self.schedule.now_us, broker, event, done)
            self.history.handled.append(handled)
        for effect in effects:
            match effect:
                case Send(to, message):
                    number, end = self._line_to[broker, int(to.name)]
                    self.traffic[number, type(message).__name__] += 1
                    cause.in_flight += 1
                    self.lines[number].send(end, _SentMessage(message, cause))
                case Deliver():
                    self._note_delivered(broker, effect)
                case DeliverMatch(client, match):
                    self.history.matched.append(Matched(self._order, client.name, broker, match))
                case Refused():
                    self.history.refused.append((broker, effect))
        if router.is_rerouting and router not in self._rerouting:
            self._rerouting.add(router)
            cause.in_flight += 1
            self.schedule.after(TURN_US, partial(self._pass_turn, broker, router, cause))
        if self._order % MAINTAIN_EVERY == 0:
            router.maintain()
            if self._validates:
                router.validate()
                if self.delivery is not None:
                    self.delivery.check()
        if self.delivery is not None:
            self.delivery.change_routes(broker, router.routes())

    def _pass_turn(self, broker: int, router: Router, cause: Cause) -> None:
        self._rerouting.remove(router)
        if self.routers[broker] is router:  # It has not crashed.
            self._handle(broker, TurnPassed(), cause)
        self._end_one(cause)

    def _note_delivered(self, broker: int, effect: Deliver) -> None:
        name = effect.client.name
        for notification in effect.notifications:
            envelope = notification.envelope
            is_taken = self._received[name].is_new(envelope.publisher, envelope.id)
            what = effect.subscriptions, envelope.id, is_taken
            delivered = Delivered(self._order, name, broker, *what, self.schedule.now_us)
            self.history.delivered.append(delivered)
            if is_taken:
                self.readers.give(name, envelope)

    def _send_delivery(self, broker: int, to: str, message: DeliveryMessage) -> None:
        found = self._line_to.get((broker, int(to)))
        if found is None:
            return
        number, end = found
        self.traffic[number, type(message).__name__] += 1
        with self._cause(is_control=False) as cause:
            cause.in_flight += 1
            self.lines[number].send(end, _SentMessage(message, cause))

    # --- events of lines ----------------------------------------------------------------------

    def line_up(self, line: int, end: int) -> None:
        """A session has begun at an end."""
        role = self._roles[line][end]
        self._change(line, end, partial(LinkUp, role=role, cost=self.costs[line]), is_up=True)

    def line_down(self, line: int, end: int) -> None:
        """An end has closed its session."""
        self._change(line, end, LinkDown, is_up=False)

    def _change(
        self, line: int, end: int, event: Callable[[Neighbour], Event], *, is_up: bool
    ) -> None:
        broker, neighbour = self.ends[line][end], Neighbour(name_of(self.ends[line][1 - end]))
        if self.delivery is not None:  # before it learns routes over the link
            self.delivery.change_link(broker, neighbour, is_up=is_up)
        with self._cause() as cause:
            self.history.changes.append(Change(cause.begun, line, end, is_up))
            self._handle(broker, event(neighbour), cause)

    def take(self, line: int, end: int, message: _SentMessage) -> None:
        """A message has arrived at an end."""
        neighbour = Neighbour(name_of(self.ends[line][1 - end]))
        body = message.message
        if isinstance(body, AnnounceOwner | Sequenced | Transfer | StreamAck):
            assert self.delivery is not None, "only delivery servers send this"
            self.delivery.receive(self.ends[line][end], neighbour, body)
        else:
            if isinstance(body, Publish):
                message.cause.arrived_us = self.schedule.now_us
            self._handle(self.ends[line][end], Received(neighbour, body), message.cause)
        self._end_one(message.cause)

    def lose(self, line: int, message: _SentMessage) -> None:
        """A message is lost."""
        self.history.lost += 1
        self._order += 1
        self._end_one(message.cause)


def _is_subscription(message: ClientInterest) -> bool:
    return not isinstance(message, Advertise)


def name_of(broker: int) -> str:
    """The name of a server for other servers."""
    return str(broker)


def router_of(kind: Kind, broker: int, limits: RouterLimits = RouterLimits()) -> Router:
    """Returns a server of a kind."""
    return Router(
        kind.strategy,
        name=name_of(broker),
        general=kind.shape in ("general", "hybrid"),
        trees=kind.trees,
        covering=kind.covering,
        merging=kind.merging,
        slack_us=SLACK_US,
        limits=limits,
    )
