"""`DeliveryServer`: what a server does beside routing to promise delivery.

It is a pure state machine, like the router, and has the same neighbours. Best effort stays with the
router. A notification of a higher class is addressed by its access point to the homes of the
subscriptions that it matches (see `access`). The access point holds it until each home has taken it
into its logs (see `outbox`, `inbox`, `logs`). Servers in between hold nothing: they pass parcels on
along the routes that link states give. So their crashes cost only time: a parcel lost with a link
is sent again, by the route that there is then.

    publisher         access point              between        home                reader
    publish  =======> match, number, hold
                      (sync)
             <======= Confirmed     Carry ====> ====>          take, log
                                                               (sync)
                      gives it up  <==== Taken <====                     Records ==>
                                                               done    <== Done

Its owner carries out the effects in order, once everything done before is on stable storage
(`Store.seal`), and calls `tick` when `due_us` has come.

Invariants: an accepted notification is held here or taken by all homes that it was addressed to.
Each home takes it once, in the order of the stream, and after its causal predecessors where that is
promised. The one exception, a home that has lost its memory, is counted.

Source: EPFL 2503 §5.2.2 (delivery semantics), §5.3.6 (durable subscriptions).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from contrada.delivery.access_point import AccessPoint, Confirmed, Failed
from contrada.delivery.causality import Causality
from contrada.delivery.consumers import Consumers, HandRecords
from contrada.delivery.delivery_messages import (
    AnnounceOwner,
    Consuming,
    DeliveryMessage,
    Sequenced,
    Shipment,
    StreamAck,
    Transfer,
)
from contrada.delivery.durable_log import DurableLogStatistics, OnFull, Retention
from contrada.delivery.durable_table import DurableTable, LogOwner
from contrada.delivery.inbox import ArrivedParcel, Inbox
from contrada.delivery.notes import Notes
from contrada.delivery.outbox import Outbox
from contrada.delivery.owned_logs import LogTerms, OwnedLogs, Since
from contrada.delivery.sequences import Sequences
from contrada.delivery.shipment_handler import ShipmentHandler
from contrada.delivery.store import Store, StoredRecord
from contrada.delivery.store_renewal import RESTORED_GAP
from contrada.delivery.transit import SendMessage, Transit
from contrada.errors import DeliveryError, InvalidValueError, LimitError, ProtocolError
from contrada.model import FilterSet, Notification, Selection
from contrada.routing.router_messages import Neighbour

RETRY_US: Final = 100_000
"""After how long something is taken that could not be, since a store or a stream was full."""

SERVER_NAME_CHARS_MAX: Final = 255
"""Characters of a server's name. Beyond it: InvalidValueError."""


DeliveryEffect: TypeAlias = SendMessage | Confirmed | Failed | HandRecords


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    """What a server holds to promise delivery, and what it did.

    `held` counts parcels for each home that has not taken them, `spooled` those on stable storage,
    `early` those that came and wait for their turn, `waiting` publications that wait. `resent` were
    sent again, `repeated` came again, `duplicates` were published again, `failed` not accepted.
    Dropped: `stranded` had no way, `dropped` no room or came from another start (both are sent
    again), `refused` never could be used, `lost` were held for a home that has lost its memory, or
    damaged in the spool.
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
    logs: Mapping[str, DurableLogStatistics]


_RETENTION: Final = Retention()
_DEAD_LETTERS: Final = Retention(on_full=OnFull.DROP_OLDEST)


class DeliveryServer:
    """One server's part in keeping promises. Each method gives what is to be done, in order.

    `incarnation` identifies this start where the store does not know the server yet; a later life
    is higher, so the time will do. `is_new`: no server of this name existed before, so this one may
    be the first sequencer. `sequencer` is the network's first sequencer, the same at all servers.
    """

    def __init__(
        self,
        name: str,
        *,
        incarnation: int,
        store: Store | None = None,
        sequencer: str = "",
        is_new: bool = True,
    ) -> None:
        if not 0 < len(name) <= SERVER_NAME_CHARS_MAX:
            reason = f"expected a server's name of 1 to {SERVER_NAME_CHARS_MAX} characters"
            raise InvalidValueError(name, reason)
        self.name = name
        notes = Notes(store)
        own = LogOwner(incarnation, 0, 0, store is not None, is_new)
        for _, (its_life, boot, sequences) in notes.of("life", tuple[int, int, bool]):
            own = LogOwner(its_life, boot + 1, 0, True, sequences)
        notes.put("life", "", (own.incarnation, own.boot, own.sequences))
        self._table = DurableTable(name, own, notes)
        self._logs = OwnedLogs(store)
        self._outbox = Outbox(name, store)
        self._inbox = Inbox(name, own.incarnation, notes)
        self._sequences = Sequences(sequencer or name, notes)
        self._causality = Causality(name, notes)
        self._transit = Transit(name)
        self._access = AccessPoint(
            name,
            store,
            self._transit,
            self._table,
            self._outbox,
            self._inbox,
            self._logs,
            self._sequences,
            self._causality,
        )
        self._consumers = Consumers(name, self._table, self._logs, self._access)
        self._handler = ShipmentHandler(
            name, self._logs, self._access, self._causality, self._consumers
        )
        self._to_acknowledge: dict[str, None] = {}
        self._retry_us: int | None = None
        for number, standing in self._logs.standing().items():
            self._table.change(number, standing)
        for each, known in self._table.owners.items():
            self._meet(each, known)
        self._access.shipments += self._outbox.resume(self._table.owners)

    def _meet(self, name: str, owner: LogOwner) -> None:
        self._outbox.meet(name, owner.incarnation)
        self._inbox.meet(name, owner.incarnation, owner.boot)

    # --- publishers ---------------------------------------------------------------------------

    def publish(
        self, token: int, publisher: str, notifications: Sequence[Notification], now_us: int
    ) -> list[DeliveryEffect]:
        """A client publishes what is more than best effort, all of one class.

        `Confirmed` or `Failed` says what became of it, by its token; at once, or within `WAIT_US`.
        """
        self._access.publish(token, publisher, notifications, now_us)
        return self._settle(now_us)

    @property
    def incarnation(self) -> int:
        """This server's life. A publisher learns it here, and tells it to its later servers."""
        return self._table.own.incarnation

    def arrive(self, publisher: str, past: Mapping[str, int], now_us: int) -> list[DeliveryEffect]:
        """A publisher comes. Its publications wait until its other servers have told its past.

        `past`: the servers at which it was since one of its publications was confirmed, each with
        the last `incarnation` that it told the publisher. Raises LimitError.
        """
        self._access.await_past(publisher, past, now_us)
        return self._settle(now_us)

    def pass_sequence(self, sequence: str, server: str, now_us: int) -> list[DeliveryEffect]:
        """Another server gives the order of a sequence from now on.

        Raises DeliveryError: this is not its sequencer, or the other cannot be it; LimitError.
        """
        self._access.pass_sequence(sequence, server)
        return self._settle(now_us)

    # --- subscribers --------------------------------------------------------------------------

    def stand(
        self,
        name: str,
        filters: Selection,
        now_us: int,
        retention: Retention = _RETENTION,
        *,
        is_durable: bool = False,
    ) -> list[DeliveryEffect]:
        """A standing subscription begins, with its log here. A durable one survives restarts.

        So does the one for its dead letters, if that is not here: without filters, and giving up
        its oldest records where it is full. Raises DeliveryError: a name is in use, here or as far
        as known elsewhere, or there is no store; InvalidValueError for a name; LimitError.
        """
        names = self._logs.names_of(name, retention, is_durable=is_durable)
        for each in names:
            found = self._table.home_of(each)
            if found is not None:
                at = found[0]
                raise DeliveryError(f"there is a standing subscription {each!r} at {at!r} already")
        self._table.check_room(len(names))
        self._begin(name, filters, retention, is_durable=is_durable)
        for each in names[1:]:
            self._begin(each, FilterSet(()), _DEAD_LETTERS, is_durable=is_durable)
        return self._settle(now_us)

    def _begin(
        self, name: str, filters: Selection, retention: Retention, *, is_durable: bool
    ) -> None:
        number, standing = self._logs.stand(name, filters, retention, is_durable=is_durable)
        try:
            self._transit.flood(self._table.change(number, standing))
        except LimitError:
            list(self._logs.end(number))
            raise

    def keep(
        self, name: str, notifications: Iterable[Notification], now_us: int
    ) -> list[DeliveryEffect]:
        """Takes into the log of a subscription here what came for it at best effort.

        What finds no room is dropped and counted, as best effort may be. Raises DeliveryError.
        """
        number = self._logs.number_of(name)
        for each in notifications:
            self._logs.keep(number, each, now_us)
        return self._settle(now_us)

    def consume(self, client: str, said: Consuming, now_us: int) -> list[DeliveryEffect]:
        """A client here says something as the consumer of a subscription, wherever its log is.

        Records come as `HandRecords`; what cannot be done closes it, and says why.
        """
        self._consumers.consume(client, said, now_us)
        return self._settle(now_us)

    def acknowledge(self, name: str, before: int, now_us: int) -> list[DeliveryEffect]:
        """All of a log here before a position is done with. Raises DeliveryError and others."""
        self._logs.acknowledge(name, before)
        return self._settle(now_us)

    # --- neighbours ---------------------------------------------------------------------------

    def link_up(self, neighbour: Neighbour, now_us: int) -> list[DeliveryEffect]:
        """There is a link; the neighbour is told all that stands anywhere.

        To be called before `change_ways` with ways over it: what is then sent must find the
        neighbour with that knowledge.
        """
        moved = self._sequences.tell(self._access.known_context())
        self._transit.link_up(neighbour, [*self._table.tell(), *moved])
        return self._settle(now_us)

    def link_down(self, neighbour: Neighbour, now_us: int) -> list[DeliveryEffect]:
        """A link is gone. What was on its way is sent again when it is due, or has another way."""
        self._transit.link_down(neighbour)
        return self._settle(now_us)

    def change_ways(self, ways: Mapping[str, str], now_us: int) -> list[DeliveryEffect]:
        """From now on these are the next servers on the ways to all that can be reached."""
        self._transit.ways = ways
        self._access.look_again()
        self._outbox.change_ways(ways, now_us)
        self._dispatch(self._outbox.again(now_us))
        return self._settle(now_us)

    def receive(
        self, neighbour: Neighbour, message: DeliveryMessage, now_us: int
    ) -> list[DeliveryEffect]:
        """A message has come from a neighbour."""
        match message:
            case AnnounceOwner():
                self._learn(neighbour, message, now_us)
            case Sequenced():
                self._access.move(message)
            case Transfer():
                self._carry(message)
            case StreamAck():
                self._acknowledged(message, now_us)
        return self._settle(now_us)

    def forget(self, server: str, now_us: int) -> list[DeliveryEffect]:
        """A server will never be back; what is held for it is given up here, and counted."""
        if server != self.name and server in self._table.owners:
            self._table.forget(server)
            for each in (self._outbox, self._inbox, self._causality, self._access):
                each.forget(server)
            self._consumers.gone(server, f"server {server!r} will not be back")
        return self._settle(now_us)

    def _learn(self, neighbour: Neighbour, said: AnnounceOwner, now_us: int) -> None:
        before = self._table.owners.get(said.owner)
        start = (0, 0) if before is None else (before.incarnation, before.boot)
        if not self._table.learn(said):
            return
        self._transit.flood(said, but=neighbour)
        owner = self._table.owners[said.owner]
        self._meet(said.owner, owner)
        if start != (owner.incarnation, owner.boot):
            self._consumers.gone(said.owner, f"server {said.owner!r} has restarted", again=True)
        if (
            start[0] == owner.incarnation and owner.boot - start[1] >= RESTORED_GAP
        ):  # a restored copy
            self._access.shipments += self._outbox.reopen(said.owner, now_us)
        self._access.forget_past(said.owner, owner.incarnation)
        self._access.look_again()

    # --- parcels ------------------------------------------------------------------------------

    def _carry(self, message: Transfer) -> None:
        """Takes the parcels for this server, and passes on those for others."""
        arrivals = _addressed(self.name, message.shipments)
        if arrivals and message.source != self.name:
            self._inbox.put(message.source, message.incarnation, message.boot, arrivals)
            self._to_acknowledge[message.source] = None
        self._transit.carry(message)

    def _dispatch(self, shipments: Sequence[Shipment]) -> None:
        """Sends parcels of this server on their ways."""
        if shipments:
            own, arrivals = self._table.own, _addressed(self.name, shipments)
            self._inbox.put(
                self.name, own.incarnation, own.boot, arrivals
            )  # in the order of all others
            self._transit.carry(Transfer(self.name, own.incarnation, own.boot, tuple(shipments)))

    def _acknowledged(self, message: StreamAck, now_us: int) -> None:
        if message.source != self.name:
            self._transit.acknowledge(message)
        elif message.source_incarnation == self._table.own.incarnation:
            self._causality.merge(message.context)
            try:
                if self._outbox.acknowledge(
                    message.owner, message.incarnation, message.number, now_us
                ):
                    self._access.look_again()
            except ProtocolError:
                self._handler.refused += 1

    # --- what follows -------------------------------------------------------------------------

    def tick(self, now_us: int) -> list[DeliveryEffect]:
        """Time has passed: what is due is sent again, tried again, or given up."""
        self._dispatch(self._outbox.again(now_us))
        return self._settle(now_us)

    @property
    def due_us(self) -> int | None:
        """When `tick` is to be called at the latest; None while nothing waits."""
        times = (self._outbox.due_us, self._access.due_us, self._retry_us)
        return min((each for each in times if each is not None), default=None)

    def _settle(self, now_us: int) -> list[DeliveryEffect]:
        """Does all that follows from what has happened; the effects, in order."""
        own, is_stuck = self._table.own, False

        def use(source: str, turn: Sequence[ArrivedParcel]) -> int:
            nonlocal is_stuck
            count = self._handler.use(source, turn, now_us)
            is_stuck |= count < len(turn)
            return count

        while True:  # Each step may enable another one: until nothing was posted or taken.
            self._access.go_on(now_us)
            self._post()
            changed = self._inbox.take(use)
            for reader, records in self._logs.push(self._consumers.has_room, now_us):
                self._consumers.give(reader, records, now_us)
            is_stuck |= self._logs.is_stuck
            for number, standing in self._logs.changes():
                if standing is None:
                    for reader, closed in self._logs.end(number):
                        self._consumers.give(reader, closed, now_us)
                self._transit.flood(self._table.change(number, standing))
            for source in changed:
                self._to_acknowledge[source] = None
            if self.name in changed:
                taken = self._inbox.taken(self.name)[1]
                if self._outbox.acknowledge(self.name, own.incarnation, taken, now_us):
                    self._access.look_again()
            if not self._post() and not changed:
                break
        self._retry_us = now_us + RETRY_US if is_stuck else None
        for source in self._to_acknowledge:
            if source != self.name:
                self._say_taken(source)
        self._to_acknowledge.clear()
        told, given, outcomes = self._transit.tells, self._consumers.gives, self._access.outcomes
        self._transit.tells, self._consumers.gives, self._access.outcomes = [], [], []
        return [*told, *given, *outcomes]

    def _post(self) -> bool:
        """Sends what was posted; whether anything was."""
        shipments, self._access.shipments = self._access.shipments, []
        self._dispatch(shipments)
        return bool(shipments)

    def _say_taken(self, source: str) -> None:
        # Who sent something for a sequence learns by this where it is on its way now.
        may_order = self._sequences.have_moved or self.name == self._sequences.first
        context = (self._access.row({}),) if may_order else ()
        taken = self._inbox.taken(source)
        self._transit.acknowledge(StreamAck(self.name, self.incarnation, source, *taken, context))

    # --- looking ------------------------------------------------------------------------------

    def standing(self) -> dict[str, str]:
        """The names of all standing subscriptions that are known, and their homes."""
        return {
            standing.name: name
            for name, owner in self._table.owners.items()
            for standing in owner.standing.values()
        }

    def standing_since(self, number: int, count: int) -> Since:
        """Those at home here, in order of their numbers; see `OwnedLogs.since`."""
        return self._logs.since(number, count)

    def terms(self, name: str) -> LogTerms | None:
        """What a standing subscription at home here stands for; None where there is none."""
        return self._logs.terms(name)

    def positions(self, name: str, time_us: int | None = None) -> tuple[int, int, int, int]:
        """Positions of a log here; see `OwnedLogs.positions`."""
        return self._logs.positions(name, time_us)

    def entries(self, name: str, first: int, count: int, *, is_again: bool) -> list[StoredRecord]:
        """Entries of a log here; see `OwnedLogs.entries`."""
        return self._logs.entries(name, first, count, is_again=is_again)

    def kept_from(self, name: str, position: int) -> int:
        """The lowest position of a log here from this one on that may be a record's."""
        return self._logs.kept_from(name, position)

    def ended(self) -> list[str]:
        """The names of those that stood here and have ended since this was asked, by whoever."""
        names, self._logs.ended = self._logs.ended, []
        return names

    def sequence_of(self, publisher: str) -> int:
        """The highest number of a publisher that was accepted or waits: its next is higher."""
        return self._access.sequence_of(publisher)

    def matching(self, notifications: Sequence[Notification]) -> None:
        """Matches what is published next, and does nothing: what it costs may so be bounded."""
        self._table.match(notifications)

    def known(self, name: str) -> tuple[str, int, Selection] | None:
        """The home of a standing subscription, its number there, and its filters, as known here."""
        found = self._table.home_of(name)
        if found is None:
            return None
        owner, number = found
        return owner, number, self._table.owners[owner].standing[number].filters

    def is_read(self, name: str) -> bool:
        """Whether a subscription that is at home here has a consumer, here or elsewhere."""
        return self._logs.is_read(name)

    @property
    def due(self) -> int:
        """Parcels that other homes have not acknowledged, though there is a route to them."""
        return self._outbox.due

    def statistics(self) -> DeliveryStatistics:
        """A frozen view of what is held and was done."""
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
            logs=self._logs.statistics(),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all that is held."""
        self._table.validate()
        self._logs.validate()
        assert self._table.own.standing == self._logs.standing(), "others know of other logs"


def _addressed(name: str, shipments: Sequence[Shipment]) -> list[ArrivedParcel]:
    """The parcels for a server, each with the address there."""
    return [
        (each, shipment) for shipment in shipments for each in shipment.to if each.owner == name
    ]
