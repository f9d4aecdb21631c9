"""`SimulatedDelivery`: the part of a simulated network above best effort.

Each server has a `DeliveryServer` beside its router, and most have a disk (`MemoryStore`). The
effects of a server are performed once its disk has the changes, a moment later; a crash in between
loses them, or a part of them. Clients publish with numbers of their own, and repeat unanswered
publications when they reconnect; they read durable subscriptions from any server, acknowledge at
once or late, and identify records by position.

All records for `judge_delivery` are kept, see `run_records`.
"""

import dataclasses
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from zlib import crc32

from msgspec.structs import replace

from contrada.delivery import delivery_messages as messages
from contrada.delivery.access_point import Confirmed, Failed
from contrada.delivery.consumers import HandRecords
from contrada.delivery.delivery_class import delivery_class
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_server import DeliveryEffect, DeliveryServer
from contrada.delivery.durable_state import DurableState
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.retention import Retention
from contrada.delivery.transit import SendMessage
from contrada.errors import CannotPublishError, ContradaError
from contrada.lab.simulation.run_records import DeliveryHistory, DurableSpan, LogReading, Sent
from contrada.lab.simulation.schedule import Schedule
from contrada.model import Notification, Selection
from contrada.routing.router_messages import Client, Neighbour, Origin
from contrada.service.transition_log import Accepting

SYNC_US: Final = 2_000
"""The duration of a sync."""

SEQUENCER: Final = "0"
"""The first sequencer of every world."""

CREDIT: Final = 5
"""Records that a client accepts before it has read them."""

ACKNOWLEDGE_S: Final = 1.0
"""The time-out of acknowledgements of every second durable subscription."""

NACK_CHANCE: Final = 0.1
"""The chance that a client returns a record that it gets, with a delay or without."""

REOPENED_MAX: Final = 50
"""Attempts of an idle client to open a subscription. Beyond it: it gives up."""


DeliveryEvent: TypeAlias = tuple[int, int, Origin | None, Any, Sequence[Any]]
"""The time and the server of an event, its origin, its message, and effects."""


@dataclass(slots=True, eq=False)
class RunningServer:
    """A running server, and the effects that wait for its disk."""

    machine: DeliveryServer
    store: MemoryStore | None
    waiting: deque[tuple[Callable[[], None], list[DeliveryEffect]]] = field(default_factory=deque)
    tick_us: int | None = None
    routes: Mapping[str, str] | None = None


def with_redelivery(name: str, retention: Retention) -> Retention:
    """Returns a retention with a back-off, and for each second subscription with a time-out."""
    time_out_s = ACKNOWLEDGE_S if crc32(name.encode()) % 2 else 0.0
    return dataclasses.replace(retention, backoff_s=0.01, acknowledge_s=time_out_s)


Act = Callable[[DeliveryServer, int], list[DeliveryEffect]]
"""Something that a server does at a time by its clock."""

SendOver = Callable[[int, str, messages.DeliveryMessage], None]
"""Sends a server's message over the line to a neighbour."""


class SimulatedDelivery(DeliveryHistory):
    """The delivery servers of a network, with a disk unless in `storeless`, and their clients."""

    def __init__(
        self,
        brokers: int,
        schedule: Schedule,
        send_over: SendOver,
        seed: int,
        storeless: Iterable[int],
        limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        super().__init__(sequencers={int(SEQUENCER)})
        self._limits = limits
        self._schedule, self._send_over = schedule, send_over
        self._chance = random.Random(seed)
        self._order = 0
        self.events: list[DeliveryEvent] = []
        self._is_over = False
        self._clients: dict[str, int] = {}  # the server of each
        self._incarnations: defaultdict[str, dict[str, int]] = defaultdict(dict)  # of servers
        self._unanswered: defaultdict[str, dict[str, Sent]] = defaultdict(dict)
        self._sequences: dict[str, int] = defaultdict(int)
        self._subscribed: defaultdict[str, dict[str, None]] = defaultdict(dict)  # by reader
        self._tokens: dict[int, tuple[Sent, int]] = {}  # and the connection, see `_connected`
        self._connected: defaultdict[str, int] = defaultdict(int)
        storeless = set(storeless)
        self._disks = [None if each in storeless else MemoryStore() for each in range(brokers)]
        self.servers: list[RunningServer | None] = [None] * brokers
        for broker in range(brokers):
            self._start(broker, is_new=True)

    # --- servers ------------------------------------------------------------------------------

    def crash(self, broker: int, *, keeps_store: bool) -> None:
        """Crashes a server; a part of the unsynced changes may survive with its disk."""
        self._order += 1
        store = self._disks[broker]
        survives = keeps_store and store is not None
        if store is not None and survives:
            store.crash(self._chance.randint(0, store.unsynced))
            store.is_full = False
        elif store is not None:
            self._disks[broker] = MemoryStore()
        self.servers[broker] = None
        self.crashes.append((self._order, broker, survives))
        self.forget_acknowledged(broker, self._schedule.now_us - SYNC_US)
        for (_, name), read in self.reads.items():  # The readers do not know of the crash yet.
            read.is_stale |= self.subscriptions[name].broker == broker
        for client in [each for each, where in self._clients.items() if where == broker]:
            for name in self._subscribed[client]:
                self.reads[client, name].is_open = False
            if not keeps_store:
                del self._clients[client]
        for subscription in self.subscriptions.values():
            if subscription.broker == broker and not (subscription.is_durable and survives):
                subscription.is_lost = True

    def restart(self, broker: int) -> None:
        """Restarts a server with its disk."""
        self._start(broker, is_new=False)
        for client in [each for each, where in self._clients.items() if where == broker]:
            self.move(client, broker)

    def _start(self, broker: int, *, is_new: bool, state: DurableState | None = None) -> None:
        store = self._disks[broker]
        incarnation = 1 + self._schedule.now_us
        options: dict[str, Any] = {"sequencer": SEQUENCER, "limits": self._limits, "state": state}
        machine = DeliveryServer(
            self._name_of(broker), incarnation=incarnation, store=store, is_new=is_new, **options
        )
        self.servers[broker] = RunningServer(machine, store)
        self.do(broker, [])

    def _name_of(self, broker: int) -> str:
        return str(broker)

    def _now_us(self, broker: int) -> int:
        return self._schedule.now_us

    def repair(self) -> None:
        """Repairs all faults that outlast the script."""
        for broker in range(len(self.servers)):
            self.fill(broker, is_full=False)

    def fill(self, broker: int, *, is_full: bool) -> None:
        """Fills the disk of a server, or frees room."""
        store = self._disks[broker]
        if store is not None:
            store.is_full = is_full

    def change_link(self, broker: int, neighbour: Neighbour, *, is_up: bool) -> None:
        """Begins or ends a session with a neighbour."""
        self._at(broker, lambda of, now: (of.link_up if is_up else of.link_down)(neighbour, now))

    def change_routes(self, broker: int, ways: Mapping[str, str]) -> None:
        """Sets the routes of the router."""
        server = self.servers[broker]
        if server is None or ways is server.routes:
            return
        server.routes = ways
        self._at(broker, lambda of, now_us: of.change_routes(ways, now_us))

    def receive(self, broker: int, neighbour: Neighbour, message: messages.DeliveryMessage) -> None:
        """Handles a message."""
        self.events.append((self._schedule.now_us, broker, neighbour, message, ()))
        self._at(broker, lambda of, now_us: of.receive(neighbour, message, now_us))

    def _at(self, broker: int, act: Act) -> None:
        server = self.servers[broker]
        if server is not None:
            self.do(broker, act(server.machine, self._now_us(broker)))

    def do(self, broker: int, effects: list[DeliveryEffect]) -> None:
        """Performs effects once the disk has all earlier changes."""
        server = self.servers[broker]
        assert server is not None, "a server that has crashed does nothing"
        self.events += _events_of(self._schedule.now_us, broker, server.machine, effects)
        if server.store is None:
            self._perform(broker, effects)
        else:
            server.waiting.append((server.store.seal(), effects))
            self._schedule.after(SYNC_US, lambda: self._on_sync(broker, server))
        due_us = server.machine.due_us
        if due_us is not None and (server.tick_us is None or due_us < server.tick_us):
            server.tick_us = due_us
            delay_us = max(0, due_us - self._now_us(broker))
            self._schedule.after(delay_us, lambda: self._tick(broker, server, due_us))

    def _on_sync(self, broker: int, server: RunningServer) -> None:
        if server is self.servers[broker]:
            bring, effects = server.waiting.popleft()
            bring()
            self._perform(broker, effects)

    def _tick(self, broker: int, server: RunningServer, due_us: int) -> None:
        if server is self.servers[broker] and server.tick_us == due_us:
            server.tick_us = None
            self._at(broker, DeliveryServer.tick)

    def _perform(self, broker: int, effects: Iterable[DeliveryEffect]) -> None:
        for effect in effects:
            match effect:
                case SendMessage(to, message):
                    self._send_over(broker, to.name, message)
                case Confirmed(token):
                    self._answer(broker, token, None)
                case Failed(token, error):
                    self._answer(broker, token, error)
                case HandRecords(client, message):
                    self._deliver(broker, client, message)

    def check(self) -> None:
        """Checks the invariants of all running servers."""
        for server in self.servers:
            if server is not None:
                server.machine.validate()

    # --- clients ------------------------------------------------------------------------------

    def move(self, client: str, broker: int) -> None:
        """Connects a client to a server: it repeats unanswered publications, and reads."""
        self.leave(client)
        self._clients[client] = broker
        self._connected[client] += 1
        server = self.servers[broker]
        if server is not None:
            before_it = self._incarnations[client]
            self._at(broker, lambda of, now_us: of.connect_publisher(client, before_it, now_us))
            known = {self._name_of(broker): server.machine.incarnation}
            self._incarnations[client] = {**self._incarnations[client], **known}
        for sent in list(self._unanswered[client].values()):
            self._publish_at(sent, broker)
        for name in self._subscribed[client]:
            self._open(client, name)

    def leave(self, client: str) -> None:
        """Disconnects a client, which keeps its state."""
        broker = self._clients.pop(client, None)
        if broker is None:
            return
        for name in self._subscribed[client]:
            read = self.reads[client, name]
            if read.is_open:
                read.is_open = False
                self._consume(broker, messages.CloseLog(name, read.consumer(client)))

    def publish(self, client: str, id_: str, notification: Notification) -> None:
        """Publishes above best effort; an unconnected client does so later."""
        guarantee = delivery_class(notification.envelope.delivery)
        self._sequences[client] += 1
        sequence = self._sequences[client]
        now_us = self._schedule.now_us
        envelope = replace(
            notification.envelope, publisher=client, sequence=sequence, time_us=now_us
        )
        sent = Sent(id_, notification.with_envelope(envelope), guarantee, client, sequence)
        self.note_sent(sent)
        self._unanswered[client][id_] = sent
        broker = self._clients.get(client)
        if broker is not None:
            self._publish_at(sent, broker)

    def _publish_at(self, sent: Sent, broker: int) -> None:
        server = self.servers[broker]
        if server is None:
            return
        self._order += 1
        known = self._known_to_all(sent)
        # A repetition may be addressed as the first time, or anew.
        sent.known = known if not sent.brokers else sent.known & known
        sent.order = sent.order or self._order
        sent.brokers.append(broker)
        token = len(self._tokens)
        self._tokens[token] = sent, self._connected[sent.client]
        given = token, sent.client, [sent.notification]
        accepting = Client(sent.client), Accepting(token, [sent.notification])
        self.events.append((self._schedule.now_us, broker, *accepting, ()))
        self._at(broker, lambda of, now_us: of.publish(*given, now_us))

    def _known_to_all(self, sent: Sent) -> frozenset[str]:
        """Returns the matching durable subscriptions that all running servers know."""
        known = [set(each.machine.subscriptions()) for each in self.servers if each is not None]
        names = set.intersection(*known) if known else set()
        return frozenset(
            name for name in names if self.subscriptions[name].filters.matches(sent.notification)
        )

    def _answer(self, broker: int, token: int, error: ContradaError | None) -> None:
        sent, connected = self._tokens[token]
        if self._clients.get(sent.client) != broker or connected != self._connected[sent.client]:
            return  # It has moved, and repeats it there.
        if self._unanswered[sent.client].pop(sent.id, None) is not None:
            sent.is_accepted = error is None
            if error is None:  # So this server knows its past.
                here = self._name_of(broker)
                self._incarnations[sent.client] = {here: self._incarnations[sent.client][here]}
            is_certain = not (isinstance(error, CannotPublishError) and error.may_be_published)
            sent.error = error if is_certain else None

    # --- reading ------------------------------------------------------------------------------

    def create_subscription(
        self, client: str, name: str, filters: Selection, retention: Retention, *, is_durable: bool
    ) -> None:
        """Creates a client's durable subscription at its server."""
        broker = self._clients.get(client)
        server = None if broker is None else self.servers[broker]
        if broker is None or server is None or name in self.subscriptions:
            return
        is_durable = is_durable and server.store is not None
        now_us = self._now_us(broker)
        try:
            effects = server.machine.create_subscription(
                name, filters, now_us, retention, is_durable=is_durable
            )
        except ContradaError:
            return  # Its disk is full.
        self.subscriptions[name] = DurableSpan(name, filters, broker, is_durable, retention)
        self.do(broker, effects)
        self.attach(client, name)

    def attach(self, client: str, name: str) -> None:
        """Lets a client read a durable subscription from now on, at any server."""
        if name in self.subscriptions and name not in self._subscribed[client]:
            self._subscribed[client][name] = None
            self._open(client, name)

    def detach(self, client: str, name: str) -> None:
        """Stops a client's reading, with its unacknowledged records."""
        if name in self._subscribed[client]:
            del self._subscribed[client][name]
            read = self.reads[client, name]
            broker = self._clients.get(client)
            if read.is_open and broker is not None:
                self._consume(broker, messages.CloseLog(name, read.consumer(client)))
            read.is_open = False

    def end(self, client: str, name: str) -> None:
        """Ends a durable subscription that a client reads."""
        broker = self._clients.get(client)
        read = self.reads.get((client, name))
        if broker is None or self.servers[broker] is None or read is None or not read.is_open:
            return
        self.subscriptions[name].has_ended = True
        del self._subscribed[client][name]
        read.is_open = False
        self._consume(broker, messages.CloseLog(name, read.consumer(client), ends=True))

    def _open(self, client: str, name: str, position: int | None = None) -> None:
        broker = self._clients.get(client)
        read = self.reads[client, name]
        if broker is None or self.servers[broker] is None or self.subscriptions[name].is_lost:
            return
        read.is_open, read.is_stale = True, False
        read.late.clear()
        read.taken = 0
        read.opened += 1
        self._consume(broker, messages.OpenLog(name, read.consumer(client), position, renews=True))
        self._consume(broker, messages.Grant(name, read.consumer(client), CREDIT))

    def _consume(self, broker: int, message: messages.Consuming) -> None:
        self.events.append((self._schedule.now_us, broker, None, message, ()))
        self._at(broker, lambda of, now_us: of.consume(message.consumer, message, now_us))

    def _deliver(self, broker: int, consumer: str, message: messages.ForReader) -> None:
        client = consumer.partition("/")[0]
        read = self.reads[client, message.name]
        is_here = self._clients.get(client) == broker
        if not (is_here and read.is_open and consumer == read.consumer(client)):
            return
        if isinstance(message, messages.Closed):
            read.is_open = False
            read.refused += 1
            if read.refused < REOPENED_MAX:
                again_us = self._chance.randrange(50_000, 500_000)
                self._schedule.after(again_us, lambda: self._reopen(client, message.name))
            return
        read.refused = 0
        if isinstance(message, messages.Withdraw):  # It has read all that it was sent.
            self._consume(broker, messages.Grant(message.name, consumer, 0, read.taken))
            return
        is_replay = client == "replayer" and self.subscriptions[message.name].replays
        for record in message.records:
            notification = record.notification
            assert notification is not None, "no disk of these worlds damages anything"
            id_ = notification.envelope.id
            self.note_read(client, message.name, record.position, id_, is_replay=is_replay)
            if not is_replay:
                self.note_attempt(message.name, record.position, record.attempt)
            read.late[record.position] = self._schedule.now_us
        count = len(message.records)
        read.taken += count
        credit = count + message.unused
        self._consume(broker, messages.Grant(message.name, consumer, credit, read.taken))
        if not self._is_over and self._chance.random() < NACK_CHANCE:
            position, delay_us = self._chance.choice([*read.late]), None
            if self._chance.random() < 0.5:
                delay_us = self._chance.randrange(200_000)
            del read.late[position]
            self._consume(broker, messages.Nack(message.name, consumer, (position,), delay_us))
        if read.late and (self._is_over or self._chance.random() < 0.7):
            self._acknowledge(broker, client, message.name, read)

    def _reopen(self, client: str, name: str) -> None:
        if name in self._subscribed[client] and not self.reads[client, name].is_open:
            self._open(client, name)

    def _acknowledge(self, broker: int, client: str, name: str, read: LogReading) -> None:
        intervals = tuple((position, position + 1) for position in read.late)
        now_us, of = self._schedule.now_us, self.subscriptions[name]
        time_out_us = of.retention.acknowledge_us
        for position, since_us in () if read.is_stale else read.late.items():
            # Another reader may have got it meanwhile, or gets it before the owner knows.
            if not time_out_us or (of.broker == broker and now_us < since_us + time_out_us):
                self.acknowledged[name][position] = now_us, broker
        read.late.clear()
        self._consume(broker, messages.Ack(name, read.consumer(client), intervals))

    def pass_sequence(self, sequence: str, broker: int) -> None:
        """Hands a sequence over to another server, if possible."""
        for at, server in enumerate(self.servers):
            if server is not None:
                try:
                    to, now_us = self._name_of(broker), self._now_us(at)
                    effects = server.machine.pass_sequence(sequence, to, now_us)
                except ContradaError:
                    continue  # It is not the sequencer, or the other cannot be it.
                self.sequencers.add(broker)
                self.do(at, effects)
                return

    # --- the end ------------------------------------------------------------------------------

    def audit(self, run: Callable[[], None]) -> None:
        """Reads and acknowledges all remaining records after the repairs, then replays the logs."""
        self._is_over = True
        for client, broker in [*self._clients.items()]:
            self.move(client, broker)  # Unanswered publications are repeated.
        run()
        for client in list(self._clients):
            for name in list(self._subscribed[client]):
                self.detach(client, name)
        run()
        spans = self.subscriptions.values()
        alive = [each.name for each in spans if not (each.has_ended or each.is_lost)]
        for auditor, position in (("auditor", None), ("replayer", 1)):
            broker = self._chance.randrange(len(self.servers))
            self.move(auditor, broker)
            for name in alive:
                self._subscribed[auditor][name] = None
                is_replay = position is not None and self.subscriptions[name].replays
                self._open(auditor, name, position if is_replay else None)
            run()
            for name in alive:
                self.detach(auditor, name)
            run()


def _events_of(
    now_us: int, broker: int, machine: DeliveryServer, effects: list[DeliveryEffect]
) -> Iterator[DeliveryEvent]:
    """Yields the records that were appended since the last effects, then the effects."""
    appended, machine.logs.appended = machine.logs.appended, []
    for each in appended or ():
        yield now_us, broker, None, each, ()
    if effects:
        yield now_us, broker, None, None, effects
