"""Delivery servers in one process and virtual time: links break, servers crash."""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from contrada.delivery.access_point import Confirmed, Failed
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    Ack,
    AnnounceOwner,
    Closed,
    CloseLog,
    Consuming,
    DeliveryMessage,
    Grant,
    OpenLog,
    Records,
    Sequenced,
)
from contrada.delivery.delivery_server import DeliveryEffect, DeliveryServer
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.transit import SendMessage
from contrada.model import Envelope, FilterSet, Notification
from contrada.model.syntax import parse_filter_set
from contrada.routing.router_messages import Neighbour

CREDIT = 1_000


def notice(i: int, delivery: str, publisher: str = "", sequence: int = 0) -> Notification:
    """A notification with a number, of a delivery class."""
    envelope = Envelope(
        id=f"{publisher}{i}", publisher=publisher, sequence=sequence, time_us=5, delivery=delivery
    )
    return Notification({"i": i}, envelope=envelope)


def all_of(text: str = "i >= 0") -> FilterSet:
    """Returns filters for all notifications of `notice`, or for a text."""
    return parse_filter_set(text)


class DeliveryNetwork:
    """Servers with ordered links; effects follow the sync of the store.

    `stores` names the servers with a store. With `acks`, clients acknowledge records at once.
    """

    def __init__(
        self,
        names: str,
        links: str,
        stores: str = "",
        *,
        seed: int = 0,
        acks: bool = True,
        sequencer: str = "",
        limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        self.limits = limits
        self.now_us = 1_000_000
        self.rng = Random(seed)
        self.acks = acks
        self.dying = 0.0  # the chance of a crash between a change and its sync
        self.sequencer = sequencer or names[0]
        self.stores = {name: MemoryStore() for name in stores}
        self.known: set[str] = set()
        self.links: set[tuple[str, str]] = set()
        self.wires: dict[tuple[str, str], deque[DeliveryMessage]] = defaultdict(deque)
        self.servers: dict[str, DeliveryServer] = {}
        self.outcomes: dict[int, Confirmed | Failed] = {}
        self.got: dict[str, list[int]] = defaultdict(list)  # by client, the numbers of notices
        self.attempts: dict[str, list[int]] = defaultdict(list)
        self.closed: list[Closed] = []
        self.positions: dict[str, list[int]] = defaultdict(list)
        self._token = 0
        for name in names:
            self.start(name)
        for link in links.split():
            self.mend(link[0], link[1])

    # --- events -------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Starts, or restarts, a server with its store or without."""
        self.now_us += 1
        self.servers[name] = DeliveryServer(
            name,
            incarnation=self.now_us,
            store=self.stores.get(name),
            sequencer=self.sequencer,
            is_new=name not in self.known,
            limits=self.limits,
        )
        self.known.add(name)

    def incarnation(self, name: str) -> int:
        """The incarnation of a server as a client remembers it; 1 if it does not run."""
        return self.servers[name].incarnation if name in self.servers else 1

    def crash(self, name: str, survived: int = 0) -> None:
        """Stops a server, with the messages on its links and unsynced changes."""
        for other in sorted(b for a, b in self.links if a == name):
            self.cut(name, other)
        del self.servers[name]
        if name in self.stores:
            self.stores[name].crash(survived)

    def mend(self, a: str, b: str) -> None:
        """Adds a link between two servers."""
        self.links |= {(a, b), (b, a)}
        for one, other in ((a, b), (b, a)):
            self.do(one, self.servers[one].link_up(Neighbour(other), self.now_us))
        self.find_ways()

    def cut(self, a: str, b: str) -> None:
        """Breaks the link between two servers, with its messages."""
        self.links -= {(a, b), (b, a)}
        for one, other in ((a, b), (b, a)):
            self.wires[one, other].clear()
            self.do(one, self.servers[one].link_down(Neighbour(other), self.now_us))
        self.find_ways()

    def lose_shipments(self, a: str, b: str) -> None:
        """Drops the messages in flight between two servers silently, apart from flooded ones."""
        wire = self.wires[a, b]
        self.wires[a, b] = deque(
            each for each in wire if isinstance(each, AnnounceOwner | Sequenced)
        )

    def arrive(self, name: str, publisher: str, past: Mapping[str, int]) -> None:
        """Connects a publisher with its past at other servers."""
        self.do(name, self.servers[name].connect_publisher(publisher, past, self.now_us))

    def bring(self, a: str, b: str) -> None:
        """Delivers the messages in flight from one server to a neighbour, and no others."""
        while self.wires[a, b]:
            message = self.wires[a, b].popleft()
            self.now_us += 1
            self.do(b, self.servers[b].receive(Neighbour(a), message, self.now_us))

    def find_ways(self) -> None:
        """Updates the routes of all servers."""
        for name, server in self.servers.items():
            routes: dict[str, str] = {}
            found = deque((b, b) for a, b in sorted(self.links) if a == name)
            while found:
                at, first = found.popleft()
                if at not in routes and at != name:
                    routes[at] = first
                    found += [(b, first) for a, b in sorted(self.links) if a == at]
            self.do(name, server.change_routes(routes, self.now_us))

    def do(self, name: str, effects: Sequence[DeliveryEffect]) -> None:
        """Performs effects, once earlier changes are on stable storage."""
        if name in self.stores:
            self.stores[name].sync()
        for effect in effects:
            match effect:
                case SendMessage(to, message):
                    if (name, to.name) in self.links:
                        self.wires[name, to.name].append(message)
                case HandRecords(client, Records() as message):
                    self.hand(name, client, message)
                case HandRecords(client, Closed() as message):
                    self.closed.append(message)
                case Confirmed(token) | Failed(token):
                    assert token not in self.outcomes, "answered twice"
                    self.outcomes[token] = effect

    def hand(self, name: str, client: str, message: Records) -> None:
        """Hands records to a client, which acknowledges them."""
        for record in message.records:
            assert record.notification is not None
            self.got[client].append(int(str(record.notification["i"])))
            self.attempts[client].append(record.attempt)
            self.positions[client].append(record.position)
        if self.acks:
            done = tuple((each.position, each.position + 1) for each in message.records)
            self.say(name, client, Ack(message.name, client, done))
            self.say(name, client, Grant(message.name, client, len(done) + message.unused))

    def step(self) -> bool:
        """Delivers one message of a random link. Returns whether there was one."""
        busy = [each for each, wire in sorted(self.wires.items()) if wire]
        if not busy:
            return False
        a, b = self.rng.choice(busy)
        message = self.wires[a, b].popleft()
        self.now_us += 1
        effects = self.servers[b].receive(Neighbour(a), message, self.now_us)
        if self.rng.random() < self.dying:
            self.crash(b, self.rng.randrange(2))
        else:
            self.do(b, effects)
        return True

    def tick(self) -> bool:
        """Advances the time to the next deadline. Returns whether there is one."""
        due = [(each.due_us, name) for name, each in self.servers.items()]
        times = sorted((at, name) for at, name in due if at is not None)
        if not times:
            return False
        self.now_us = max(self.now_us, times[0][0])
        self.do(times[0][1], self.servers[times[0][1]].tick(self.now_us))
        return True

    def run(self, ticks: int = 0) -> None:
        """Delivers all messages, and then so many deadlines."""
        while self.step() or (ticks > 0 and self.tick()):
            ticks -= not any(self.wires.values())

    # --- clients ------------------------------------------------------------------------------

    def publish(self, at: str, notifications: Iterable[Notification], publisher: str = "") -> int:
        """Publishes at a server. Returns the token."""
        self._token += 1
        token, self.now_us = self._token, self.now_us + 1
        listed = list(notifications)
        self.do(at, self.servers[at].publish(token, publisher, listed, self.now_us))
        return token

    def say(self, at: str, client: str, message: Consuming) -> None:
        """Sends a consumer's message."""
        self.do(at, self.servers[at].consume(client, message, self.now_us))

    def read(self, at: str, client: str, name: str, credit: int = CREDIT) -> None:
        """Opens a subscription for a client."""
        self.say(at, client, OpenLog(name, client, renews=True))
        self.say(at, client, Grant(name, client, credit))

    def close(self, at: str, client: str, name: str) -> None:
        """Closes a consumer."""
        self.say(at, client, CloseLog(name, client))

    def stand(self, at: str, name: str, text: str = "i >= 0", *, is_durable: bool = False) -> None:
        """Creates a durable subscription, and announces it to all reachable servers."""
        server = self.servers[at]
        self.do(
            at, server.create_subscription(name, all_of(text), self.now_us, is_durable=is_durable)
        )

    def was_accepted(self, token: int) -> bool:
        """Whether a publication was accepted; asserts that it was answered."""
        return isinstance(self.outcomes[token], Confirmed)

    def validate(self) -> None:
        """Checks the invariants of each server."""
        for server in self.servers.values():
            server.validate()
