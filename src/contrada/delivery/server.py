"""`DeliveryServer`: what a server does beside routing so that delivery can be promised.

It is a pure state machine, like the router, and has the same neighbours. Best effort stays with the
router. What is promised more is addressed by its access point to the homes of what it matches (see
`access`), and held there until each home has taken it into its logs (see `outbox`, `inbox`,
`logs`). Servers in between hold nothing: they pass parcels on by the ways that link states give. So
their crashes cost time only; what was lost with a link is sent again, by the way that there is
then.

    publisher         access point              between        home                reader
    publish  =======> match, number, hold
                      (sync)
             <======= Accepted      Carry ====> ====>          take, log
                                                               (sync)
                      gives it up  <==== Taken <====                     Records ==>
                                                               done    <== Done

Who owns it carries out the effects in order, once what was done before is on stable storage
(`Store.seal`), and calls `tick` when `due_us` has come.

Invariants: what was accepted is held here or taken by all homes that it was addressed to; each home
takes it once, in the order of the stream, and after what causally precedes it where that is
promised. What does not hold then is counted: a home that has lost its memory.

Source: EPFL 2503 §5.2.2 (delivery semantics), §5.3.6 (durable subscriptions).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from contrada.delivery.access import Accepted, AccessPoint, Failed
from contrada.delivery.causality import Causality
from contrada.delivery.classes import delivery_class
from contrada.delivery.consumers import Consumers, Give
from contrada.delivery.durable import DurableStatistics, Retention
from contrada.delivery.inbox import Inbox
from contrada.delivery.logs import Logs
from contrada.delivery.messages import (
    Address,
    Announce,
    AskPast,
    Carry,
    Closed,
    Consuming,
    DeliveryMessage,
    Notice,
    Parcel,
    PassSequence,
    Past,
    Records,
    Returned,
    Sequenced,
    Taken,
    ToSequence,
)
from contrada.delivery.notes import Notes
from contrada.delivery.outbox import Outbox
from contrada.delivery.sequences import Sequences
from contrada.delivery.standing import Home, StandingTable
from contrada.delivery.store import Store
from contrada.delivery.transit import Tell, Transit
from contrada.errors import (
    CannotPublishError,
    DeliveryError,
    InvalidValueError,
    ProtocolError,
    StoreError,
)
from contrada.model import Notification, Selection
from contrada.routing.messages import Neighbour

RETRY_US: Final = 100_000
"""After how long something is taken that could not be, since a store or a stream was full."""

SERVER_NAME_CHARS_MAX: Final = 255
"""Characters of a server's name. Beyond it: InvalidValueError."""


DeliveryEffect: TypeAlias = Tell | Accepted | Failed | Give


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    """What a server holds so that delivery can be promised, and what it did.

    `held` counts parcels for each home that has not taken them, `spooled` those on stable storage,
    `early` those that came and wait for their turn, `waiting` publications that wait. `resent` were
    sent again, `repeated` came again, `duplicates` were published again, `failed` were not
    accepted. Dropped: `stranded` had no way, `dropped` found no room or were of an earlier life
    (both are sent again), `lost` were held for a home that has lost its memory, or damaged in the
    spool.
    """

    homes: int
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
    lost: int
    logs: Mapping[str, DurableStatistics]


_RETENTION: Final = Retention()


class DeliveryServer:
    """One server's part in keeping promises. Each method gives what is to be done, in order.

    `life` tells this start from others where the store does not know the server yet; a later one is
    higher, so the time will do. `is_new` says that no server of this name was there before: it may
    be the first sequencer. `sequencer` names the first sequencer of the network, the same at all.
    """

    def __init__(
        self,
        name: str,
        *,
        life: int,
        store: Store | None = None,
        sequencer: str = "",
        is_new: bool = True,
    ) -> None:
        if not 0 < len(name) <= SERVER_NAME_CHARS_MAX:
            reason = f"expected a server's name of 1 to {SERVER_NAME_CHARS_MAX} characters"
            raise InvalidValueError(name, reason)
        self.name = name
        self._store = store
        notes = Notes(store)
        own = Home(life, 0, 0, store is not None, is_new)
        for _, (its_life, boot, sequences) in notes.of("life", tuple[int, int, bool]):
            own = Home(its_life, boot + 1, 0, True, sequences)
        notes.put("life", "", (own.life, own.boot, own.sequences))
        self._table = StandingTable(name, own, notes)
        self._logs = Logs(store)
        self._outbox = Outbox(name, store)
        self._inbox = Inbox(name, own.life, notes)
        self._sequences = Sequences(sequencer or name, notes)
        self._causality = Causality(name, notes)
        self._access = AccessPoint(
            *(name, store, self._table, self._outbox, self._inbox, self._logs),
            *(self._sequences, self._causality),
        )
        self._transit = Transit(name)
        self._consumers = Consumers(name, self._table, self._logs, self._access)
        self._to_acknowledge: dict[str, None] = {}
        self._retry_us: int | None = None
        for number, standing in self._logs.standing().items():
            self._table.change(number, standing)
        for each, known in self._table.homes.items():
            self._meet(each, known)

    def _meet(self, name: str, home: Home) -> None:
        self._outbox.meet(name, home.life)
        self._inbox.meet(name, home.life, home.boot)

    # --- publishers ---------------------------------------------------------------------------

    def publish(
        self, token: int, publisher: str, notifications: Sequence[Notification], now_us: int
    ) -> list[DeliveryEffect]:
        """A client publishes what is more than best effort, all of one class.

        `Accepted` or `Failed` says what became of it, by its token; at once, or within `WAIT_US`.
        """
        self._access.publish(token, publisher, notifications, now_us)
        return self._settle(now_us)

    @property
    def life(self) -> int:
        """What a publisher is told that connects here, so that it can say it to another server."""
        return self._table.own.life

    def arrive(self, publisher: str, server: str, life: int, now_us: int) -> list[DeliveryEffect]:
        """A publisher comes from another server, where it published before, in this life of it.

        What it publishes here waits until that server has said what others must know.
        """
        if server != self.name:
            self._ask_past(publisher, server, life, now_us)
        return self._settle(now_us)

    def _ask_past(self, publisher: str, server: str, life: int, now_us: int) -> None:
        """Asks a server what a publisher did there; nothing is left of an earlier life."""
        self._access.await_past(publisher, server, life)
        home = self._table.homes.get(server)
        if home is not None:
            self._access.forget_past(server, home.life)
            self._access.ask_past(publisher, now_us)

    def pass_sequence(self, sequence: str, server: str, now_us: int) -> list[DeliveryEffect]:
        """Another server gives the order of a sequence from now on.

        Raises DeliveryError: this is not its sequencer, or that one cannot be.
        """
        epoch, where = self._sequences.where(sequence)
        home = self._table.homes.get(server)
        if where != self.name or not self._table.own.sequences:
            raise DeliveryError(f"server {where!r} gives the order of {sequence!r}, not this one")
        if home is None or not home.sequences or (self._store is not None and not home.has_store):
            raise DeliveryError(f"server {server!r} cannot give the order of {sequence!r}")
        if server != self.name:
            context = self._access.context()
            self._access.send(
                server,
                PassSequence(sequence, epoch + 1),
                now_us,
                context,
                spools=self._store is not None,
            )
            self._move(Sequenced(sequence, epoch + 1, server))
        return self._settle(now_us)

    def _move(self, said: Sequenced) -> None:
        """A sequence has another sequencer; all are told."""
        self._sequences.move(said.sequence, said.epoch, said.server)
        self._transit.flood(said)
        self._access.look_again()

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

        Raises DeliveryError: the name is in use, here or as far as known elsewhere, or there is no
        store; LimitError.
        """
        found = self._table.home_of(name)
        if found is not None:
            raise DeliveryError(
                f"there is a standing subscription {name!r} at {found[0]!r} already"
            )
        number, standing = self._logs.stand(name, filters, retention, is_durable=is_durable)
        self._transit.flood(self._table.change(number, standing))
        return self._settle(now_us)

    def keep(
        self, name: str, notifications: Iterable[Notification], now_us: int
    ) -> list[DeliveryEffect]:
        """Takes into the log of a subscription here what came for it at best effort.

        What finds no room in the store is lost, as best effort may be. Raises DeliveryError.
        """
        number = self._logs.number_of(name)
        for each in notifications:
            self._logs.append([number], each, now_us)
        return self._settle(now_us)

    def consume(self, client: str, said: Consuming, now_us: int) -> list[DeliveryEffect]:
        """A client here says something as the consumer of a subscription, wherever its log is.

        Records come as `Give`; what cannot be done closes it, and says why.
        """
        self._consumers.consume(client, said, now_us)
        return self._settle(now_us)

    # --- neighbours ---------------------------------------------------------------------------

    def link_up(self, neighbour: Neighbour, now_us: int) -> list[DeliveryEffect]:
        """There is a link; the neighbour is told all that stands anywhere."""
        self._transit.link_up(neighbour, [*self._table.tell(), *self._sequences.tell()])
        return self._settle(now_us)

    def link_down(self, neighbour: Neighbour, now_us: int) -> list[DeliveryEffect]:
        """A link is gone. What was on its way is sent again when it is due, or has another way."""
        self._transit.link_down(neighbour)
        return self._settle(now_us)

    def change_ways(self, ways: Mapping[str, str], now_us: int) -> list[DeliveryEffect]:
        """From now on these are the next servers on the ways to all that can be reached."""
        self._transit.ways = self._access.ways = ways
        self._access.look_again()
        self._dispatch(self._outbox.again(ways, now_us))
        return self._settle(now_us)

    def receive(
        self, neighbour: Neighbour, message: DeliveryMessage, now_us: int
    ) -> list[DeliveryEffect]:
        """A message has come from a neighbour."""
        match message:
            case Announce():
                self._learn(neighbour, message, now_us)
            case Sequenced():
                if self._sequences.learn(message):
                    self._move(message)
            case Carry():
                self._carry(message)
            case Taken():
                self._acknowledged(message, now_us)
        return self._settle(now_us)

    def forget(self, server: str, now_us: int) -> list[DeliveryEffect]:
        """A server will never be back; what is held for it is given up here, and counted."""
        home = self._table.homes.get(server)
        if server != self.name and home is not None:
            self._outbox.forget(server)
            self._table.forget(server)
        return self._settle(now_us)

    def _learn(self, neighbour: Neighbour, said: Announce, now_us: int) -> None:
        before = self._table.homes.get(said.home)
        start = (0, 0) if before is None else (before.life, before.boot)
        if not self._table.learn(said):
            return
        self._transit.flood(said, but=neighbour)
        home = self._table.homes[said.home]
        self._meet(said.home, home)
        if start != (home.life, home.boot):
            self._consumers.restarted(said.home)
        self._access.forget_past(said.home, home.life)
        self._access.look_again()

    # --- parcels ------------------------------------------------------------------------------

    def _carry(self, message: Carry) -> None:
        """Takes what is for this server, and passes on what is for others."""
        mine = False
        for parcel in message.parcels:
            for address in parcel.to:
                if address.home == self.name:
                    mine = True
                    self._inbox.meet(message.source, message.life, message.boot)
                    self._inbox.put(message.source, message.life, address, parcel)
        if mine:
            self._to_acknowledge[message.source] = None
        self._transit.carry(message)

    def _dispatch(self, parcels: Sequence[Parcel]) -> None:
        """Sends parcels of this server on their ways."""
        own = self._table.own
        for parcel in parcels:
            for address in parcel.to:
                if address.home == self.name:
                    self._inbox.put(self.name, own.life, address, parcel)
        if parcels:
            self._transit.carry(Carry(self.name, own.life, own.boot, tuple(parcels)))

    def _acknowledged(self, message: Taken, now_us: int) -> None:
        if message.source != self.name:
            self._transit.acknowledge(message)
        elif message.source_life == self._table.own.life:
            self._causality.merge(message.context)
            try:
                if self._outbox.acknowledge(message.home, message.life, message.number, now_us):
                    self._access.look_again()
            except ProtocolError:
                self._transit.stranded += 1

    def _use(self, source: str, address: Address, parcel: Parcel, now_us: int) -> bool:
        """Does what a parcel is for, whose turn it is; False where it cannot be done now."""
        body = parcel.body
        self._causality.merge(parcel.context)
        try:
            match body:
                case Notice(notification):
                    if not self._logs.append(address.ids, notification, now_us):
                        return False
                case ToSequence(notification):
                    self._sequence(source, notification, now_us, carries=bool(parcel.context))
                case Returned(notification, epoch, server):
                    sequence = delivery_class(notification.envelope.delivery).sequence
                    if epoch > self._sequences.where(sequence)[0]:
                        self._move(Sequenced(sequence, epoch, server))
                    return self._access.returned(source, notification, now_us)
                case PassSequence(sequence, epoch):
                    self._move(Sequenced(sequence, epoch, self.name))
                case AskPast(publisher):
                    past = self._access.past_of(publisher)
                    if past is not None:
                        self._access.send(source, past, now_us, self._access.context())
                case Past(publisher, last, elsewhere, its_life):
                    self._access.meet(publisher, source, last)
                    if elsewhere not in ("", self.name):
                        self._ask_past(publisher, elsewhere, its_life, now_us)
                case Records() | Closed():
                    self._consumers.given(source, body, now_us)
                case _:
                    self._consumers.serve(source, body, now_us)
        except (CannotPublishError, StoreError):
            return False
        return True

    def _sequence(
        self, source: str, notification: Notification, now_us: int, *, carries: bool
    ) -> None:
        """Gives a notification its place in a sequence; or returns it, where that was passed on."""
        promised = delivery_class(notification.envelope.delivery)
        epoch, server = self._sequences.where(promised.sequence)
        if server == self.name:
            self._access.sequence([notification], now_us, carries=carries)
        else:
            back = Returned(notification, epoch, server)
            self._access.send(source, back, now_us, spools=promised.is_certified)

    # --- what follows -------------------------------------------------------------------------

    def tick(self, now_us: int) -> list[DeliveryEffect]:
        """Time has passed: what is due is sent again, tried again, or given up."""
        due_us = self._outbox.due_us
        if due_us is not None and due_us <= now_us:
            self._dispatch(self._outbox.again(self._transit.ways, now_us))
        return self._settle(now_us)

    @property
    def due_us(self) -> int | None:
        """When `tick` is to be called at the latest; None while nothing waits."""
        times = (self._outbox.due_us, self._access.due_us, self._retry_us)
        return min((each for each in times if each is not None), default=None)

    def _settle(self, now_us: int) -> list[DeliveryEffect]:
        """Does all that follows from what has happened; the effects, in order."""
        own, is_stuck = self._table.own, False

        def use(source: str, address: Address, parcel: Parcel) -> bool:
            nonlocal is_stuck
            is_used = self._use(source, address, parcel, now_us)
            is_stuck |= not is_used
            return is_used

        while True:
            self._access.go_on(now_us)
            self._post()
            changed = self._inbox.take(use)
            for number, standing in self._logs.changes():
                if standing is None:
                    for reader, closed in self._logs.end(number):
                        self._consumers.give(reader, closed, now_us)
                self._transit.flood(self._table.change(number, standing))
            for reader, records in self._logs.push():
                self._consumers.give(reader, records, now_us)
            for source in changed:
                self._to_acknowledge[source] = None
            if self.name in changed:
                taken = self._inbox.taken(self.name)[1]
                if self._outbox.acknowledge(self.name, own.life, taken, now_us):
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
        parcels, self._access.parcels = self._access.parcels, []
        self._dispatch(parcels)
        return bool(parcels)

    def _say_taken(self, source: str) -> None:
        life, number = self._inbox.taken(source)
        # Who sent something for a sequence learns by this where it is on its way now.
        may_order = self._sequences.have_moved or self.name == self._sequences.first
        context = (self._access.row({}),) if may_order else ()
        own = self._table.own
        self._transit.acknowledge(Taken(self.name, own.life, source, life, number, context))

    # --- looking ------------------------------------------------------------------------------

    def standing(self) -> dict[str, str]:
        """The names of all standing subscriptions that are known, and their homes."""
        return {
            standing.name: name
            for name, home in self._table.homes.items()
            for standing in home.standing.values()
        }

    def statistics(self) -> DeliveryStatistics:
        """A frozen view of what is held and was done."""
        outbox, inbox, access = self._outbox, self._inbox, self._access
        return DeliveryStatistics(
            homes=len(self._table.homes),
            standing=len(self._table),
            left_out=self._table.left_out + self._sequences.left_out,
            held=outbox.held,
            held_bytes=outbox.held_bytes,
            spooled=outbox.spooled,
            early=inbox.waiting,
            waiting=access.waiting,
            resent=outbox.resent,
            repeated=inbox.repeated,
            duplicates=access.duplicates,
            failed=access.failed,
            stranded=self._transit.stranded,
            dropped=inbox.dropped,
            lost=outbox.lost,
            logs=self._logs.statistics(),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all that is held."""
        self._table.validate()
        self._logs.validate()
        assert self._table.own.standing == self._logs.standing(), "others know of other logs"
