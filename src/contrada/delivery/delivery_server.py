"""`DeliveryServer`: the state machine of a server's delivery guarantees.

It is pure, like the router, which handles best effort, and has the same neighbours. A notification
of a higher class is addressed by its access point (see `access_point`), held there (`outbox`) until
each owner has taken it (`inbox`) and appended it to its logs (`owned_logs`). docs/delivery.md shows
its path. Its owner carries out the effects in order, once all earlier changes are on stable storage
(`Store.seal`), and calls `tick` at `due_us`.

Invariants: an accepted notification is held here or was taken by all addressed owners. Each owner
takes it once, in the order of the stream, and after its causal predecessors if the class guarantees
that. The one exception, an owner that has lost its memory, is counted.

Source: EPFL 2503 §5.2.2 (delivery semantics), §5.3.6 (durable subscriptions).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from contrada.delivery.access_point import AccessPoint, Confirmed, Failed, PublishRequest
from contrada.delivery.consumers import Consumers, HandRecords
from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    AnnounceOwner,
    Consuming,
    DeliveryMessage,
    Sequenced,
    Shipment,
    StreamAck,
    Transfer,
)
from contrada.delivery.durable_log import DurableLogStatistics
from contrada.delivery.durable_state import DurableState
from contrada.delivery.durable_table import LogOwner
from contrada.delivery.inbox import ArrivedShipment, Inbox
from contrada.delivery.orders import Causality, Sequences
from contrada.delivery.outbox import Outbox
from contrada.delivery.retention import OnFull, Retention
from contrada.delivery.shipment_handler import ShipmentHandler
from contrada.delivery.store import RESTORED_GAP, Store
from contrada.delivery.transit import SendMessage, Transit
from contrada.errors import DeliveryError, InvalidValueError, LimitError, ProtocolError
from contrada.model import FilterSet, Notification, Selection
from contrada.routing.router_messages import Neighbour

RETRY_US: Final = 100_000
"""Microseconds after which a shipment is retried that met a full store or stream."""

SERVER_NAME_CHARS_MAX: Final = 255
"""Characters of a server's name. Beyond it: InvalidValueError."""


DeliveryEffect: TypeAlias = SendMessage | Confirmed | Failed | HandRecords


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    """Counters of a delivery server.

    `held` counts shipments for each owner that has not taken them, `spooled` those on stable
    storage, `early` those that wait for their turn, `waiting` waiting publications. `resent` were
    sent again, `repeated` arrived again, `duplicates` were published again, `failed` not accepted.
    Dropped: `stranded` without a route, `dropped` without room or from another start (both are sent
    again), `refused` are invalid, `lost` were for an owner that has lost its memory, or damaged in
    the spool. `damaged` records of the logs were reported to readers and passed over, `stuck` logs
    cannot be read now.
    """

    owners: int
    standing: int
    left_out: int
    held: int
    held_bytes: int
    spooled: int
    early: int
    waiting: int
    resent: int
    repeated: int
    duplicates: int
    failed: int
    stranded: int
    dropped: int
    refused: int
    lost: int
    damaged: int
    stuck: int
    logs: Mapping[str, DurableLogStatistics]


_RETENTION: Final = Retention()
_DEAD_LETTERS: Final = Retention(on_full=OnFull.DROP_OLDEST)


class DeliveryServer:
    """The delivery guarantees of one server. Each method returns the effects, in order.

    `incarnation` identifies this start if the store does not know the server yet; a later
    incarnation is higher, so the time is suitable. `is_new`: no server of this name existed before,
    so this one may be the first sequencer. `sequencer` is the network's first sequencer, the same
    at all servers. `state` is that of the store, if it was read before.
    """

    def __init__(
        self,
        name: str,
        *,
        incarnation: int,
        store: Store | None = None,
        sequencer: str = "",
        is_new: bool = True,
        limits: DeliveryLimits = DeliveryLimits(),
        state: DurableState | None = None,
    ) -> None:
        if not 0 < len(name) <= SERVER_NAME_CHARS_MAX:
            reason = f"expected a server's name of 1 to {SERVER_NAME_CHARS_MAX} characters"
            raise InvalidValueError(name, reason)
        self.name = name
        state = state or DurableState(name, store, limits)
        notes, self._table, self.logs = state.notes, state.table, state.logs
        own = self._table.own
        own.incarnation, own.sequences = incarnation, is_new
        for _, (its_incarnation, boot, sequences) in notes.of("life", tuple[int, int, bool]):
            own.incarnation, own.boot, own.sequences = its_incarnation, boot + 1, sequences
        notes.put("life", "", (own.incarnation, own.boot, own.sequences))
        self._outbox = Outbox(name, store, limits)
        self._inbox = Inbox(name, own.incarnation, notes, limits)
        self._sequences = Sequences(sequencer or name, notes, limits)
        self._causality = Causality(name, notes, limits)
        self._transit = Transit(name)
        self._access = AccessPoint(
            name,
            store,
            self._transit,
            self._table,
            self._outbox,
            self._inbox,
            self.logs,
            self._sequences,
            self._causality,
            limits,
        )
        self.consumers = Consumers(name, self._table, self.logs, self._access)
        self._handler = ShipmentHandler(
            name, self.logs, self._access, self._causality, self.consumers
        )
        self._to_acknowledge: dict[str, None] = {}
        self._retry_us: int | None = None
        for each, known in self._table.owners.items():
            self._learn_start(each, known)
        self._access.shipments += self._outbox.resume(self._table.owners)

    def _learn_start(self, name: str, owner: LogOwner) -> None:
        self._outbox.learn_start(name, owner.incarnation)
        self._inbox.learn_start(name, owner.incarnation, owner.boot)

    # --- publishers ---------------------------------------------------------------------------

    def publish(
        self, token: int, publisher: str, notifications: Sequence[Notification], now_us: int
    ) -> list[DeliveryEffect]:
        """Publishes notifications of one class above best effort.

        `Confirmed` or `Failed` follows with the same token, at once or within `wait_us`.
        """
        return self.publish_all([(token, publisher, notifications)], now_us)

    def publish_all(
        self, publications: Sequence[PublishRequest], now_us: int
    ) -> list[DeliveryEffect]:
        """Publishes as `publish`, one after the other; see `AccessPoint.publish_all`."""
        self._access.publish_all(publications, now_us)
        return self._settle(now_us)

    @property
    def incarnation(self) -> int:
        """This server's incarnation. A publisher reports it to its later servers."""
        return self._table.own.incarnation

    def connect_publisher(
        self, publisher: str, past: Mapping[str, int], now_us: int
    ) -> list[DeliveryEffect]:
        """Connects a publisher. Its publications wait until its earlier servers have reported its
        past.

        `past`: its servers since one of its publications was last confirmed, each with the last
        `incarnation` that the publisher learned. Raises LimitError.
        """
        self._access.pasts.await_past(publisher, past, now_us)
        return self._settle(now_us)

    def pass_sequence(self, sequence: str, server: str, now_us: int) -> list[DeliveryEffect]:
        """Hands a sequence over to another server.

        Raises DeliveryError: this is not its sequencer, or the other cannot be it; LimitError.
        """
        self._access.pass_sequence(sequence, server)
        return self._settle(now_us)

    # --- subscribers --------------------------------------------------------------------------

    def create_subscription(
        self,
        name: str,
        filters: Selection,
        now_us: int,
        retention: Retention = _RETENTION,
        *,
        is_durable: bool = False,
    ) -> list[DeliveryEffect]:
        """Creates a durable subscription with its log here. One with `is_durable` survives
        restarts.

        The subscription of its dead letters is created too, if it does not exist: without filters,
        and dropping its oldest records when full. Raises DeliveryError: a name is in use here or
        elsewhere, or there is no store; InvalidValueError for a name; LimitError.
        """
        names = self.logs.names_to_create(name, retention, is_durable=is_durable)
        for each in names:
            found = self._table.owner_of(each)
            if found is not None:
                at = found[0]
                raise DeliveryError(f"there is a durable subscription {each!r} at {at!r} already")
        self._table.check_room(len(names))
        self._create(name, filters, retention, is_durable=is_durable)
        for each in names[1:]:
            self._create(each, FilterSet(()), _DEAD_LETTERS, is_durable=is_durable)
        return self._settle(now_us)

    def _create(
        self, name: str, filters: Selection, retention: Retention, *, is_durable: bool
    ) -> None:
        number, entry = self.logs.create(name, filters, retention, is_durable=is_durable)
        try:
            self._transit.flood(self._table.change(number, entry))
        except LimitError:
            list(self.logs.end(number))
            raise

    def append(
        self, name: str, notifications: Iterable[Notification], now_us: int
    ) -> list[DeliveryEffect]:
        """Appends best-effort notifications to the log of a subscription here.

        Without room they are dropped and counted, as best effort may be. Raises DeliveryError.
        """
        number = self.logs.number_of(name)
        for each in notifications:
            self.logs.append_best_effort(number, each, now_us)
        return self._settle(now_us)

    def consume(self, client: str, message: Consuming, now_us: int) -> list[DeliveryEffect]:
        """Handles the message of a client here to a subscription anywhere.

        Records arrive as `HandRecords`; an error closes the consumer, with its reason.
        """
        self.consumers.consume(client, message, now_us)
        return self._settle(now_us)

    def acknowledge(self, name: str, before: int, now_us: int) -> list[DeliveryEffect]:
        """Acknowledges all records of a log here before a position. Raises as `OwnedLogs`."""
        self.logs.acknowledge(name, before)
        return self._settle(now_us)

    def settle_logs(self, names: Iterable[str], now_us: int) -> list[DeliveryEffect]:
        """Applies the consequences of changes to logs here. Raises DeliveryError."""
        for each in names:
            self.logs.touch(each)
        return self._settle(now_us)

    def release_records(self, name: str, now_us: int) -> list[DeliveryEffect]:
        """Takes all records of a subscription here from its readers. Raises DeliveryError."""
        for reader, message in self.logs.release(name, now_us):
            self.consumers.deliver(reader, message, now_us)
        return self._settle(now_us)

    # --- neighbours ---------------------------------------------------------------------------

    def link_up(self, neighbour: Neighbour, now_us: int) -> list[DeliveryEffect]:
        """Adds a link and announces all durable subscriptions to the neighbour.

        Call it before `change_routes` with routes over it: the announcements must arrive first.
        """
        moved = self._sequences.announcements(self._access.known_context())
        self._transit.link_up(neighbour, [*self._table.announcements(), *moved])
        return self._settle(now_us)

    def link_down(self, neighbour: Neighbour, now_us: int) -> list[DeliveryEffect]:
        """Removes a link. Shipments in flight are sent again when due, or on another route."""
        self._transit.link_down(neighbour)
        return self._settle(now_us)

    def change_routes(self, routes: Mapping[str, str], now_us: int) -> list[DeliveryEffect]:
        """Sets the next servers towards all reachable servers."""
        self._transit.routes = routes
        self._access.recheck_waiting()
        self._outbox.change_routes(routes, now_us)
        self._send_shipments(self._outbox.resend_due(now_us))
        return self._settle(now_us)

    def receive(
        self, neighbour: Neighbour, message: DeliveryMessage, now_us: int
    ) -> list[DeliveryEffect]:
        """Handles the message of a neighbour."""
        match message:
            case AnnounceOwner():
                self._learn_owner(neighbour, message, now_us)
            case Sequenced():
                self._access.learn_sequencer(message)
            case Transfer():
                arrivals = _shipments_for(self.name, message.shipments)
                if arrivals and message.source != self.name:
                    self._inbox.receive(message.source, message.incarnation, message.boot, arrivals)
                    self._to_acknowledge[message.source] = None
                self._transit.forward(message)
            case StreamAck():
                self._receive_ack(message, now_us)
        return self._settle(now_us)

    def forget(self, server: str, now_us: int) -> list[DeliveryEffect]:
        """Drops a server that will never be back, with its held shipments, counted."""
        if server != self.name and server in self._table.owners:
            self._table.forget(server)
            for each in (self._outbox, self._inbox, self._causality, self._access):
                each.forget(server)
            self.consumers.close_server(server, f"server {server!r} will not be back", now_us)
        return self._settle(now_us)

    def _learn_owner(self, neighbour: Neighbour, message: AnnounceOwner, now_us: int) -> None:
        before = self._table.owners.get(message.owner)
        start = (0, 0) if before is None else (before.incarnation, before.boot)
        if not self._table.learn(message):
            return
        self._transit.flood(message, but=neighbour)
        owner = self._table.owners[message.owner]
        self._learn_start(message.owner, owner)
        if start != (owner.incarnation, owner.boot):
            reason = f"server {message.owner!r} has restarted"
            self.consumers.close_server(message.owner, reason, now_us, again=True)
        if start[0] == owner.incarnation and owner.boot - start[1] >= RESTORED_GAP:
            # It was restored from a copy.
            self._access.shipments += self._outbox.reopen(message.owner, now_us)
        self._access.pasts.forget(message.owner, owner.incarnation)
        self._access.recheck_waiting()

    # --- shipments ----------------------------------------------------------------------------

    def _send_shipments(self, shipments: Sequence[Shipment]) -> None:
        """Sends shipments of this server along their routes."""
        if shipments:
            own, arrivals = self._table.own, _shipments_for(self.name, shipments)
            # In the order of all others.
            self._inbox.receive(self.name, own.incarnation, own.boot, arrivals)
            self._transit.forward(Transfer(self.name, own.incarnation, own.boot, tuple(shipments)))

    def _receive_ack(self, message: StreamAck, now_us: int) -> None:
        if message.source != self.name:
            self._transit.forward_ack(message)
        elif message.source_incarnation == self._table.own.incarnation:
            self._causality.merge(message.context)
            try:
                if self._outbox.acknowledge(
                    message.owner, message.incarnation, message.number, now_us
                ):
                    self._access.recheck_waiting()
            except ProtocolError:
                self._handler.refused += 1

    # --- time, acknowledgements and effects ---------------------------------------------------

    def tick(self, now_us: int) -> list[DeliveryEffect]:
        """Resends, retries and fails what is due."""
        self._send_shipments(self._outbox.resend_due(now_us))
        for reader, message in self.logs.expire(now_us):
            self.consumers.deliver(reader, message, now_us)
        return self._settle(now_us)

    @property
    def due_us(self) -> int | None:
        """The latest time for `tick`; None if nothing waits."""
        times = (self._outbox.due_us, self._access.due_us, self.logs.due_us, self._retry_us)
        return min((each for each in times if each is not None), default=None)

    def _settle(self, now_us: int) -> list[DeliveryEffect]:
        """Applies all consequences of the last change. Returns the effects, in order."""
        own, is_stuck = self._table.own, False

        def use(source: str, turn: Sequence[ArrivedShipment]) -> int:
            nonlocal is_stuck
            count = self._handler.use(source, turn, now_us)
            is_stuck |= count < len(turn)
            return count

        while True:  # Each step may enable another one.
            self._access.publish_waiting(now_us)
            shipments, self._access.shipments = self._access.shipments, []
            self._send_shipments(shipments)
            changed = self._inbox.use_ready(use)
            for reader, records in self.logs.push(self.consumers.has_room, now_us):
                self.consumers.deliver(reader, records, now_us)
            is_stuck |= bool(self.logs.stuck)
            for number, entry in self.logs.changes():
                if entry is None:
                    for reader, closed in self.logs.end(number):
                        self.consumers.deliver(reader, closed, now_us)
                self._transit.flood(self._table.change(number, entry))
            for source in changed:
                self._to_acknowledge[source] = None
            if self.name in changed:
                taken = self._inbox.taken(self.name)[1]
                if self._outbox.acknowledge(self.name, own.incarnation, taken, now_us):
                    self._access.recheck_waiting()
            if not self._access.shipments and not changed:
                break
        self._retry_us = now_us + RETRY_US if is_stuck else None
        for source in self._to_acknowledge:
            if source != self.name:
                self._send_ack(source)
        self._to_acknowledge.clear()
        effects: list[DeliveryEffect] = [*self._transit.outgoing, *self.consumers.outgoing]
        effects += self._access.outcomes
        self._transit.outgoing, self.consumers.outgoing, self._access.outcomes = [], [], []
        return effects

    def _send_ack(self, source: str) -> None:
        # The row shows the sender where its notifications for a sequence are in flight.
        may_order = self._sequences.moved or self.name == self._sequences.first
        context = (self._access.row({}),) if may_order else ()
        taken = self._inbox.taken(source)
        self._transit.forward_ack(StreamAck(self.name, self.incarnation, source, *taken, context))

    # --- looking ------------------------------------------------------------------------------

    def subscriptions(self) -> dict[str, str]:
        """Returns the names of all known durable subscriptions, and their owners."""
        owners = self._table.owners.items()
        return {each.name: name for name, owner in owners for each in owner.entries.values()}

    def sequence_of(self, publisher: str) -> int:
        """Returns a publisher's highest accepted or waiting number: its next is higher."""
        return self._access.sequence_of(publisher)

    def match_ahead(self, notifications: Sequence[Notification]) -> None:
        """Matches the next publication, so that its cost can be bounded."""
        self._table.match(notifications)

    def find(self, name: str) -> tuple[str, int, Selection] | None:
        """Returns the owner, number and filters of a durable subscription, or None."""
        found = self._table.owner_of(name)
        if found is None:
            return None
        owner, number = found
        return owner, number, self._table.owners[owner].entries[number].filters

    def owners_of(self, name: str) -> list[str]:
        """See `DurableTable.owners_of`."""
        return self._table.owners_of(name)

    @property
    def unacknowledged(self) -> int:
        """The shipments that other reachable owners have not acknowledged."""
        return self._outbox.unacknowledged

    def statistics(self) -> DeliveryStatistics:
        """Returns a frozen view of the counters."""
        logs = self.logs.statistics()
        return DeliveryStatistics(
            owners=len(self._table.owners),
            standing=len(self._table),
            left_out=self._table.left_out + self._sequences.left_out,
            held=self._outbox.held,
            held_bytes=self._outbox.held_bytes,
            spooled=self._outbox.spooled,
            early=self._inbox.waiting,
            waiting=self._access.waiting,
            resent=self._outbox.resent,
            repeated=self._inbox.repeated,
            duplicates=self._access.duplicates,
            failed=self._access.failed,
            stranded=self._transit.stranded,
            dropped=self._inbox.dropped,
            refused=self._handler.refused,
            lost=self._outbox.lost,
            damaged=sum(each.damaged for each in logs.values()),
            stuck=len(self.logs.stuck),
            logs=logs,
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all tables."""
        self._table.validate()
        self.logs.validate()
        assert self._table.own.entries == self.logs.subscriptions(), "the announced logs differ"


def _shipments_for(name: str, shipments: Sequence[Shipment]) -> list[ArrivedShipment]:
    """Returns the shipments for a server, each with its destination."""
    return [
        (each, shipment) for shipment in shipments for each in shipment.to if each.owner == name
    ]
