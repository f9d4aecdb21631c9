"""`DeliveryServer`: what a server does beside routing so that delivery can be promised.

It is a pure state machine, like the router, and has the same neighbours. Best effort stays with the
router. What is promised more is addressed by its access point to the homes of what it matches (see
`access`), and held there until each home has taken it into its logs (see `outbox`, `inbox`, `logs`).
Servers in between hold nothing: they pass parcels on by the ways that link states give. So their
crashes cost time only; what was lost with a link is sent again, by the way that there is then.

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
from typing import Final, NamedTuple, TypeAlias

import msgspec

from contrada.delivery.access import Accepted, AccessPoint, Failed
from contrada.delivery.causality import Causality
from contrada.delivery.durable import DurableStatistics, Retention
from contrada.delivery.inbox import Inbox
from contrada.delivery.logs import Logs, Reader, Terms
from contrada.delivery.messages import (
    Address,
    Announce,
    AskPast,
    Carry,
    Closed,
    CloseLog,
    Consuming,
    DeliveryMessage,
    Notice,
    OpenLog,
    Parcel,
    PassSequence,
    Past,
    Records,
    Row,
    Sequenced,
    Standing,
    Taken,
    ToSequence,
)
from contrada.delivery.outbox import Outbox, encoder, unpack
from contrada.delivery.sequences import Sequences
from contrada.delivery.standing import Home, StandingTable
from contrada.delivery.store import Store
from contrada.errors import (
    CannotPublishError,
    DeliveryError,
    InvalidValueError,
    ProtocolError,
    StoreError,
)
from contrada.model import Notification, Selection
from contrada.routing.links.topology import HOPS_MAX
from contrada.routing.messages import Neighbour

RETRY_US: Final = 100_000
"""After how long something is taken that could not be, since a store or a stream was full."""

SERVER_NAME_CHARS_MAX: Final = 255
"""Characters of a server's name. Beyond it: InvalidValueError."""


class Give(NamedTuple):
    """Hand records to a client of this server that reads a log, or tell it that it does no longer."""

    client: str
    said: Records | Closed


class Tell(NamedTuple):
    """Send a message to a neighbour."""

    to: Neighbour
    message: DeliveryMessage


DeliveryEffect: TypeAlias = Tell | Accepted | Failed | Give


@dataclass(frozen=True, slots=True)
class DeliveryStatistics:
    """What a server holds so that delivery can be promised, and what it did.

    `held` counts parcels for each home that has not taken them, `spooled` those on stable storage,
    `early` those that came and wait for their turn, `waiting` publications that wait. `resent` were
    sent again, `repeated` came again, `duplicates` were published again, `failed` were not accepted.
    Dropped: `stranded` had no way, `dropped` found no room or were of an earlier life (both are sent
    again), `lost` were held for a home that has lost its memory, or damaged in the spool.
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
        known = msgspec.msgpack.decode(
            store.notes().get("life", _NO_LIFE) if store is not None else _NO_LIFE,
            type=tuple[int, int, bool],
        )
        own = Home(life, 0, 0, store is not None, is_new)
        if known[0]:
            own = Home(known[0], known[1] + 1, 0, True, known[2])
        self._note("life", (own.life, own.boot, own.sequences))
        notes = dict(store.notes()) if store is not None else {}
        rows = msgspec.msgpack.decode(notes.get("rows", b"\x90"), type=list[Row])
        moved = msgspec.msgpack.decode(
            notes.get("sequences", b"\x80"), type=dict[str, tuple[int, str]]
        )
        self._table = StandingTable(name, own)
        self._logs = Logs(store)
        self._outbox = Outbox(name, store)
        self._inbox = Inbox(name, own.life)
        self._sequences = Sequences(sequencer or name, moved)
        self._causality = Causality(rows)
        self._access = AccessPoint(
            *(name, store, self._table, self._outbox, self._logs, self._sequences, self._causality)
        )
        self._neighbours: dict[Neighbour, None] = {}
        self._ways: Mapping[str, str] = {}
        self._readers: dict[str, dict[Reader, None]] = {}  # clients here that read at other homes
        self._sends: list[DeliveryEffect] = []
        self._to_acknowledge: dict[str, None] = {}
        self._stranded = 0
        self._retry_us: int | None = None
        self._restore(notes)

    # --- memory -------------------------------------------------------------------------------

    def _restore(self, notes: Mapping[str, bytes]) -> None:
        for note, value in notes.items():
            kind, _, of = note.partition("/")
            if kind == "home" and of != self.name:
                home = msgspec.msgpack.decode(value, type=tuple[int, int, int, bool, bool])
                self._table.restore(of, Home(*home))
            elif kind == "in":
                self._inbox.restore(of, *msgspec.msgpack.decode(value, type=tuple[int, int]))
        for note, value in notes.items():
            kind, _, of = note.partition("/")
            if kind == "standing":
                number, _, name = of.partition("/")
                self._table.put_back(name, int(number), _standing_decoder.decode(value))
        for each, kept in self._logs.standing().items():
            self._table.change(each, kept)
        for name, known in self._table.homes.items():
            self._meet(name, known)

    def _note(self, name: str, value: object) -> None:
        if self._store is not None:
            packed = None if value is None else encoder.encode(value)
            self._store.note(name, packed)

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

    def arrive(self, publisher: str, server: str, now_us: int) -> list[DeliveryEffect]:
        """A publisher comes from another server, where it published before.

        What it publishes here waits until that server has said what others must know.
        """
        if server != self.name and server in self._table.homes:
            self._access.await_past(publisher)
            self._access.send(server, AskPast(publisher), now_us)
        return self._settle(now_us)

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
            self._access.send(server, PassSequence(sequence, epoch + 1), now_us, context)
            self._move(Sequenced(sequence, epoch + 1, server))
        return self._settle(now_us)

    def _move(self, said: Sequenced) -> None:
        """A sequence has another sequencer; all are told."""
        self._sequences.move(said.sequence, said.epoch, said.server)
        self._note(
            "sequences",
            {each.sequence: (each.epoch, each.server) for each in self._sequences.tell()},
        )
        self._flood(said)
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
        self._change(number, standing)
        return self._settle(now_us)

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

        Records come as `Give`; what cannot be done closes it, and says why.
        """
        reader = said.name, client
        found = self._table.home_of(said.name)
        home = next((each for each, readers in self._readers.items() if reader in readers), None)
        home = found[0] if home is None and found is not None else home
        if home is None:
            return [
                Give(client, Closed(said.name, client, "there is no such standing subscription"))
            ]
        if isinstance(said, OpenLog):
            self._readers.setdefault(home, {})[reader] = None
        elif isinstance(said, CloseLog):
            self._readers.get(home, {}).pop(reader, None)
        if home == self.name:
            self._consume(self.name, said, now_us)
        else:
            self._access.send(home, said, now_us)
        return self._settle(now_us)

    def _consume(self, server: str, said: Consuming, now_us: int) -> None:
        if isinstance(said, CloseLog) and said.ends and said.name in self._logs:
            number = self._logs.number_of(said.name)
            for reader, closed in self._logs.end(number):
                self._give(reader, closed, now_us)
            self._change(number, None)
            return
        for reader, closed in self._logs.consume(server, said):
            self._give(reader, closed, now_us)

    def _give(self, reader: Reader, said: Records | Closed, now_us: int) -> None:
        """Hands something to a consumer, wherever it is."""
        server, client = reader
        if server != self.name:
            self._access.send(server, said, now_us, self._access.known_context())
            return
        if isinstance(said, Closed):
            self._readers.get(self.name, {}).pop((said.name, client), None)
        self._sends.append(Give(client, said))

    def _change(self, number: int, standing: Standing | None) -> None:
        self._flood(self._table.change(number, standing))

    # --- neighbours ---------------------------------------------------------------------------

    def link_up(self, neighbour: Neighbour, now_us: int) -> list[DeliveryEffect]:
        """There is a link; the neighbour is told all that stands anywhere."""
        self._neighbours[neighbour] = None
        self._sends += [Tell(neighbour, said) for said in self._table.tell()]
        self._sends += [Tell(neighbour, said) for said in self._sequences.tell()]
        return self._settle(now_us)

    def link_down(self, neighbour: Neighbour, now_us: int) -> list[DeliveryEffect]:
        """A link is gone. What was on its way is sent again when it is due, or has another way."""
        self._neighbours.pop(neighbour, None)
        return self._settle(now_us)

    def change_ways(self, ways: Mapping[str, str], now_us: int) -> list[DeliveryEffect]:
        """From now on these are the next servers on the ways to all that can be reached."""
        self._ways = self._access.ways = ways
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
            for number in home.standing:
                self._note(f"standing/{number}/{server}", None)
            self._note(f"home/{server}", None)
            self._table.forget(server)
        return self._settle(now_us)

    def _learn(self, neighbour: Neighbour, said: Announce, now_us: int) -> None:
        before = self._table.homes.get(said.home)
        start = (0, 0) if before is None else (before.life, before.boot)
        held = set() if before is None else set(before.standing)
        if not self._table.learn(said):
            return
        self._flood(said, but=neighbour)
        home = self._table.homes[said.home]
        self._meet(said.home, home)
        self._note(
            f"home/{said.home}",
            (home.life, home.boot, home.version, home.has_store, home.sequences),
        )
        for number in {each for each, _ in said.changes} | (held - home.standing.keys()):
            self._note(f"standing/{number}/{said.home}", home.standing.get(number))
        if start != (home.life, home.boot):
            self._restarted(said.home)
        self._access.look_again()

    def _restarted(self, home: str) -> None:
        """A server knows its clients no longer, nor who read there from here."""
        self._logs.close_all(home)
        for name, client in self._readers.pop(home, ()):
            self._sends.append(Give(client, Closed(name, client, f"server {home!r} has restarted")))

    def _flood(self, said: Announce | Sequenced, but: Neighbour | None = None) -> None:
        self._sends += [Tell(each, said) for each in self._neighbours if each != but]

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
        self._pass_on(message)

    def _dispatch(self, parcels: Sequence[Parcel]) -> None:
        """Sends parcels of this server on their ways."""
        own = self._table.own
        for parcel in parcels:
            for address in parcel.to:
                if address.home == self.name:
                    self._inbox.put(self.name, own.life, address, parcel)
        if parcels:
            self._pass_on(Carry(self.name, own.life, own.boot, tuple(parcels)))

    def _pass_on(self, message: Carry) -> None:
        by_way: dict[str, list[Parcel]] = {}
        for parcel in message.parcels:
            ways: dict[str, list[Address]] = {}
            for address in parcel.to:
                if address.home != self.name:
                    way = self._ways.get(address.home)
                    if way is None or message.hops >= HOPS_MAX:
                        self._stranded += 1
                    else:
                        ways.setdefault(way, []).append(address)
            for way, to in ways.items():
                by_way.setdefault(way, []).append(Parcel(tuple(to), parcel.body, parcel.context))
        for way, parcels in by_way.items():
            carry = msgspec.structs.replace(message, parcels=tuple(parcels), hops=message.hops + 1)
            self._sends.append(Tell(Neighbour(way), carry))

    def _acknowledged(self, message: Taken, now_us: int) -> None:
        if message.source != self.name:
            self._send_towards(
                message.source, msgspec.structs.replace(message, hops=message.hops + 1)
            )
        elif message.source_life == self._table.own.life:
            self._merge(message.context)
            try:
                if self._outbox.acknowledge(message.home, message.life, message.number, now_us):
                    self._access.look_again()
            except ProtocolError:
                self._stranded += 1

    def _send_towards(self, server: str, message: Taken) -> None:
        way = self._ways.get(server)
        if way is None or message.hops >= HOPS_MAX:
            self._stranded += 1
        else:
            self._sends.append(Tell(Neighbour(way), message))

    def _use(self, source: str, address: Address, parcel: Parcel, now_us: int) -> bool:
        """Does what a parcel is for, whose turn it is; False where it cannot be done now."""
        body = parcel.body
        try:
            match body:
                case Notice(notification):
                    if not self._logs.append(address.ids, notification, now_us):
                        return False
                case ToSequence(notification):
                    self._access.sequence([notification], now_us, carries=bool(parcel.context))
                case PassSequence(sequence, epoch):
                    self._move(Sequenced(sequence, epoch, self.name))
                case AskPast(publisher):
                    past = Past(publisher, self._access.sequence_of(publisher))
                    self._access.send(source, past, now_us, self._access.context())
                case Past(publisher, last):
                    self._merge(parcel.context)
                    self._access.meet(publisher, last)
                case Records() | Closed():
                    self._merge(parcel.context)
                    self._given(source, body)
                case _:
                    self._consume(source, body, now_us)
        except (CannotPublishError, StoreError):
            return False
        self._merge(parcel.context)
        return True

    def _given(self, home: str, said: Records | Closed) -> None:
        """Something has come for a client here that reads elsewhere."""
        readers = self._readers.get(home, {})
        if (said.name, said.consumer) in readers:
            if isinstance(said, Closed):
                del readers[said.name, said.consumer]
            self._sends.append(Give(said.consumer, said))

    def _merge(self, context: tuple[Row, ...]) -> None:
        if context and self._causality.merge(context, self.name):
            self._note("rows", list(self._causality))

    # --- what follows -------------------------------------------------------------------------

    def tick(self, now_us: int) -> list[DeliveryEffect]:
        """Time has passed: what is due is sent again, tried again, or given up."""
        due_us = self._outbox.due_us
        if due_us is not None and due_us <= now_us:
            self._dispatch(self._outbox.again(self._ways, now_us))
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
                        self._give(reader, closed, now_us)
                self._change(number, standing)
            for reader, records in self._logs.push():
                self._give(reader, records, now_us)
            for source in changed:
                self._note(f"in/{source}", self._inbox.taken(source))
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
        effects, self._sends = self._sends, []
        effects += self._access.outcomes
        self._access.outcomes = []
        return effects

    def _post(self) -> bool:
        """Sends what was posted; whether anything was."""
        parcels, self._access.parcels = self._access.parcels, []
        self._dispatch(parcels)
        return bool(parcels)

    def _say_taken(self, source: str) -> None:
        life, number = self._inbox.taken(source)
        # Who sent to a sequencer that has moved learns by this what must arrive at the next one.
        context = (self._access.row({}),) if self._sequences.have_moved else ()
        own = self._table.own
        self._send_towards(source, Taken(self.name, own.life, source, life, number, context))

    # --- looking ------------------------------------------------------------------------------

    def standing(self) -> dict[str, str]:
        """The names of all standing subscriptions that are known, and their homes."""
        return {
            standing.name: name
            for name, home in self._table.homes.items()
            for standing in home.standing.values()
        }

    def terms(self, name: str) -> Terms | None:
        """What a standing subscription at home here stands for; None where there is none."""
        return self._logs.terms(name)

    def sequence_of(self, publisher: str) -> int:
        """The highest number that was accepted of a publisher, or 0: its next one is higher."""
        return self._access.sequence_of(publisher)

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
            stranded=self._stranded,
            dropped=inbox.dropped,
            lost=outbox.lost,
            logs=self._logs.statistics(),
        )

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all that is held."""
        self._table.validate()
        self._logs.validate()
        assert self._table.own.standing == self._logs.standing(), "others know of other logs"


_NO_LIFE: Final = msgspec.msgpack.encode((0, 0, True))
_standing_decoder: Final = msgspec.msgpack.Decoder(Standing, dec_hook=unpack)
