"""`Outbox`: the streams from this server to all homes, and the log of what must survive a crash.

A posted parcel gets a number in the stream to each of its homes, and is held until all of these
have acknowledged it. A certified parcel is held in a log of the store, too, the *spool*: one
record, even for many homes. A parcel that is not acknowledged in time is sent again, at first soon,
then more seldom. It is sent again at once when the route to its home has changed.

    post ==> streams ==> parcels to be sent              spool: 5 6 7 8 9
    taken  <== home      what all have taken leaves             6 for A and C, 8 for C ...

After a restart the streams go on with the parcels of the spool, under numbers above all that were
given out. Many numbers are reserved at once, so that reservations are seldom written down.

Invariant: a posted parcel is held for each home until that home has acknowledged it, or has lost
its memory.

Source: EPFL 2503 §5.2.2 (reliable and certified obvents).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    Context,
    Destination,
    Notice,
    Payload,
    Records,
    Resumed,
    Shipment,
    ToSequence,
)
from contrada.delivery.notes import Notes, encoder, unpack
from contrada.delivery.store import OWN_LOGS, LogRecord, Store
from contrada.delivery.streams import NumberedRun, Outgoing
from contrada.errors import CannotPublishError, StoreError
from contrada.model import Notification

SPOOL: Final = f"{OWN_LOGS}spool"
"""The log of what is certified."""

RESERVED: Final = 10_000
"""Numbers of a stream that are reserved at once."""

AGAIN_US: Final = 200_000
"""How long a home may take to take something before it is sent again; twice as long each time."""

AGAIN_US_MAX: Final = 10_000_000
"""The longest of these times. Beyond it: it does not grow."""

SHIPMENT_BYTES: Final = 300
"""What a parcel counts for beside the bytes of its notification."""

READ_AT_ONCE: Final = 1_000
"""Records of the spool that are read in one step."""


class _Posted(NamedTuple):
    """A parcel as it is held, for all its homes."""

    shipment: Shipment
    spooled: int  # the position in the spool, or 0


@dataclass(slots=True)
class _OwnerStream:
    """The stream to a home in one of its lives."""

    incarnation: int
    outgoing: Outgoing[_Posted]
    reserved: int = 0  # numbers before it may be given out
    since: int = 1  # numbers before it were given up
    wait_us: int = AGAIN_US
    due_us: int | None = None
    again_to: int = 0  # last number resent, while more are to be resent; else 0


@dataclass(slots=True)
class _Draft:
    """Of the parcels being posted, those for one home, with the numbers that they get."""

    incarnation: int
    before: int
    number: int
    items: list[_Posted] = field(default_factory=list)
    size: int = 0


class Posting(NamedTuple):
    """Something to be posted: for which subscriptions of which homes."""

    body: Payload
    owners: Mapping[str, Sequence[int]]
    context: Context = ()


class Outbox:
    """The streams from a server to the homes that it has met."""

    def __init__(
        self, name: str, store: Store | None, limits: DeliveryLimits = DeliveryLimits()
    ) -> None:
        self._limits = limits
        self.name = name
        self.lost = 0
        self._store = store
        self._notes = Notes(store)
        self._streams: dict[str, _OwnerStream] = {}
        self._open: dict[int, int] = {}  # positions of the spool, and how many homes each waits for
        self._routes = {name: name}
        self._first = 1  # no position before it is open
        self._truncated = 1
        self._base = next((number for _, number in self._notes.of("first", int)), 1)
        if store is not None:
            self._restore(store)

    def _restore(self, store: Store) -> None:
        for owner, (incarnation, reserved, since) in self._notes.of("out", tuple[int, int, int]):
            # Numbers below `reserved` may have been given out before the crash.
            self._streams[owner] = _OwnerStream(
                incarnation, Outgoing(reserved, since - 1, self._limits), reserved, since
            )
        extent = store.extent(SPOOL)
        position = self._first = self._truncated = 1 if extent is None else extent.first
        while entries := store.read(SPOOL, position, READ_AT_ONCE):
            for entry in entries:
                if isinstance(entry, LogRecord):
                    self._restore_shipment(entry.position, _decoder.decode(entry.data))
                else:
                    self.lost += 1
            position = entries[-1].position + 1

    def _restore_shipment(self, position: int, shipment: Shipment) -> None:
        for address in shipment.to:
            of = self._streams[address.owner]
            # Parcels for an earlier life of the home, and those given up by `forget`, are over.
            if of.incarnation == address.incarnation and of.since <= address.number:
                posted = _Posted(shipment, position)
                of.outgoing.restore(address.number, posted, _size(shipment.body))
                of.due_us = 0
                self._open[position] = self._open.get(position, 0) + 1

    # --- posting ------------------------------------------------------------------------------

    def resume(self, owners: Iterable[str]) -> list[Shipment]:
        """After a restart: lets no home wait for what was lost with it; the parcels to send."""
        # An empty parcel: by the number before its own a home learns that those between are lost.
        begun = [owner for owner in owners if self._streams[owner].outgoing.next > 1]
        return self.post([Posting(Resumed(), {owner: ()}) for owner in begun], 0, spools=False)

    def check_room(self, owners: Iterable[str]) -> None:
        """Raises CannotPublishError where a home has not taken too much already."""
        for owner in owners:
            of = self._streams.get(owner)
            if of is not None and not of.outgoing.has_room():
                reason = f"server {owner!r} has not taken what this one has for it"
                held = of.outgoing.held, of.outgoing.held_bytes
                raise CannotPublishError("", *held, reason=reason)

    def learn_start(self, owner: str, incarnation: int) -> None:
        """A home has this life. What it had not taken in an earlier one is lost with its memory."""
        of = self._streams.get(owner)
        if of is None or of.incarnation < incarnation:
            self._streams[owner] = _OwnerStream(
                incarnation, Outgoing(self._base, self._base - 1, self._limits)
            )
            if of is not None:
                self.lost += of.outgoing.held
                self._free(of.outgoing.rest())

    def reopen(self, owner: str, now_us: int) -> list[Shipment]:
        """A home was restored, and may lack what it had taken; the parcels to send.

        What it has not said to have taken comes at once. Nothing waits for what it lacks now.
        """
        of = self._streams[owner]
        of.outgoing.reopen()
        shipments = self.post([Posting(Resumed(), {owner: ()})], now_us, spools=False)
        of.due_us, of.wait_us = now_us, AGAIN_US
        return shipments

    def forget(self, owner: str) -> None:
        """A home will never take anything."""
        of = self._streams.get(owner)
        if of is not None:
            self.lost += of.outgoing.held
            # Should it be back all the same, what is new must have new numbers.
            since = of.outgoing.next
            self._streams[owner] = _OwnerStream(
                of.incarnation,
                Outgoing(since, since - 1, self._limits),
                max(of.reserved, since),
                since,
            )
            self._note(owner)
            self._free(of.outgoing.rest())

    def post(self, postings: Sequence[Posting], now_us: int, *, spools: bool) -> list[Shipment]:
        """Numbers and holds what is to arrive; the parcels to send. Each home was met before."""
        drafts = {
            owner: _Draft(of.incarnation, of.outgoing.last, of.outgoing.next)
            for owner in {owner: None for posting in postings for owner in posting.owners}
            for of in (self._streams[owner],)
        }
        shipments = []
        for body, owners, context in postings:
            to = []
            for owner, ids in owners.items():
                of = drafts[owner]
                to.append(Destination(owner, of.incarnation, of.before, of.number, tuple(ids)))
                of.before = of.number
                of.number += 1
            shipments.append(Shipment(tuple(to), body, context))
        # The spool comes first: where it fails, the streams have not changed.
        spooled = self._spool(shipments, now_us) if spools and self._store is not None else 0
        for at, shipment in enumerate(shipments):
            posted = _Posted(shipment, spooled + at if spooled else 0)
            size = _size(shipment.body)
            for address in shipment.to:
                of = drafts[address.owner]
                of.items.append(posted)
                of.size += size
        for owner, of in drafts.items():
            self._hold(owner, of.items, of.size, now_us)
        return shipments

    def _hold(self, owner: str, items: list[_Posted], size: int, now_us: int) -> None:
        of = self._streams[owner]
        of.outgoing.send(items, size)
        if of.due_us is None:
            of.due_us = now_us + of.wait_us
        if of.outgoing.next > of.reserved:  # Parcels leave only after this is synced.
            of.reserved = of.outgoing.next + RESERVED
            self._note(owner)

    def _note(self, owner: str) -> None:
        of = self._streams[owner]
        self._notes.put("out", owner, (of.incarnation, of.reserved, of.since))

    def _spool(self, shipments: Sequence[Shipment], now_us: int) -> int:
        """Writes parcels down; the position of the first. Raises StoreError: none is."""
        assert self._store is not None
        first = self._store.append(SPOOL, [encoder.encode(each) for each in shipments], now_us)
        for position, shipment in enumerate(shipments, first):
            self._open[position] = len(shipment.to)
        return first

    # --- what homes say -----------------------------------------------------------------------

    def acknowledge(self, owner: str, incarnation: int, taken: int, now_us: int) -> bool:
        """A home has taken all up to a number; whether that was news. Raises ProtocolError."""
        of = self._streams.get(owner)
        if of is None or of.incarnation != incarnation:
            return False
        freed = of.outgoing.acknowledge(taken)
        if not freed:
            return False
        self._free(freed)
        of.wait_us = AGAIN_US
        of.due_us = now_us + of.wait_us if of.outgoing.held else None
        if of.again_to and of.outgoing.held and taken >= of.again_to:
            of.due_us = now_us  # What was not sent again with that follows at once.
        if taken >= of.again_to:
            of.again_to = 0
        return True

    def _free(self, items: Sequence[_Posted] | Iterator[_Posted]) -> None:
        for item in items:
            if item.spooled:
                self._open[item.spooled] -= 1
                if not self._open[item.spooled]:
                    del self._open[item.spooled]
        if self._store is None:
            return
        extent = self._store.extent(SPOOL)
        while extent is not None and self._first < extent.next and self._first not in self._open:
            self._first += 1
        # Truncated in pieces, since each costs a write; all at once when nothing is held any more.
        if self._first - self._truncated >= (READ_AT_ONCE if self._open else 1):
            try:
                self._store.truncate(SPOOL, self._first)
            except StoreError:  # It goes with what is let go of next.
                return
            self._truncated = self._first

    # --- sending again ------------------------------------------------------------------------

    @property
    def due_us(self) -> int | None:
        """When something is to be sent again."""
        return min(
            (of.due_us for of in self._streams.values() if of.due_us is not None), default=None
        )

    def change_routes(self, routes: Mapping[str, str], now_us: int) -> None:
        """These are the next servers on the ways to all; where one is another, all is due now."""
        for owner, of in self._streams.items():
            if of.outgoing.held and owner in routes and routes[owner] != self._routes.get(owner):
                of.due_us, of.wait_us = now_us, AGAIN_US
        self._routes = {**routes, self.name: self.name}

    def resend_due(self, now_us: int) -> list[Shipment]:
        """What is to be sent again now, since it was not taken in time."""
        shipments: list[Shipment] = []
        for owner, of in self._streams.items():
            if of.due_us is None or of.due_us > now_us:
                continue
            if owner not in self._routes:
                of.due_us = None  # A new route makes it due: see `change_ways`.
                continue
            of.due_us, of.wait_us = now_us + of.wait_us, min(2 * of.wait_us, AGAIN_US_MAX)
            for run in of.outgoing.again(self._limits.resend_max):
                shipments += _shipments_of(owner, of.incarnation, run)
                last = run.first + len(run.items) - 1
                of.again_to = last if of.outgoing.held > self._limits.resend_max else 0
        return shipments

    # --- looking ------------------------------------------------------------------------------

    def row(self, more: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
        """To each home the last number that was sent and not taken yet, with the home's life.

        As it will be when so many more have been sent to some.
        """
        return tuple(
            (
                owner,
                of.incarnation,
                of.outgoing.next + more[owner] - 1 if owner in more else of.outgoing.last,
            )
            for owner, of in self._streams.items()
            if of.outgoing.held or owner in more
        )

    def stream_state(self, owner: str) -> tuple[int, int, int]:
        """A home's life, the last number sent to it, and the last one that it has taken."""
        of = self._streams.get(owner)
        return (0, 0, 0) if of is None else (of.incarnation, of.outgoing.last, of.outgoing.taken)

    @property
    def held(self) -> int:
        """Parcels that are held; a parcel counts once for each of its homes."""
        return sum(of.outgoing.held for of in self._streams.values())

    @property
    def unacknowledged(self) -> int:
        """Held parcels for other homes that can be reached now."""
        routes = self._routes.keys() - {self.name}
        return sum(of.outgoing.held for owner, of in self._streams.items() if owner in routes)

    @property
    def held_bytes(self) -> int:
        """Bytes of the held parcels."""
        return sum(of.outgoing.held_bytes for of in self._streams.values())

    @property
    def resent(self) -> int:
        """Parcels that were sent again."""
        return sum(of.outgoing.resent for of in self._streams.values())

    @property
    def spooled(self) -> int:
        """Records of the spool that some home has not taken."""
        return len(self._open)


def _shipments_of(owner: str, incarnation: int, run: NumberedRun[_Posted]) -> Iterator[Shipment]:
    before = run.before
    for number, (shipment, _) in enumerate(run.items, run.first):
        ids = next(each.ids for each in shipment.to if each.owner == owner)
        yield Shipment(
            (Destination(owner, incarnation, before, number, ids),), shipment.body, shipment.context
        )
        before = number


def _size(body: Payload) -> int:
    if isinstance(body, Notice | ToSequence):
        return SHIPMENT_BYTES + _bytes(body.notification)
    if isinstance(body, Records):
        found = (each.notification for each in body.records)
        return sum(
            (SHIPMENT_BYTES + _bytes(each) for each in found if each is not None), SHIPMENT_BYTES
        )
    return SHIPMENT_BYTES


def _bytes(notification: Notification) -> int:
    return len(notification.span) + len(notification.body)


_decoder: Final = msgspec.msgpack.Decoder(Shipment, dec_hook=unpack)
