"""`Outbox`: the outgoing streams of a server, and the log of its certified shipments.

A posted shipment gets a number in the stream to each of its owners, and is held until all of them
have acknowledged it. A certified shipment is also held in a log of the store, the *spool*: one
record, even for many owners. An unacknowledged shipment is sent again, with increasing intervals,
and at once when the route to its owner has changed.

    post       ==> streams ==> shipments to send         spool: 5 6 7 8 9
    acknowledge <== owner      fully acknowledged records       6 for A and C, 8 for C ...
                               are truncated

After a restart the streams continue with the shipments of the spool, above all reserved numbers.

Invariant: a posted shipment is held for each owner until that owner has acknowledged it, or has
lost its memory.

Source: EPFL 2503 §5.2.2 (reliable and certified obvents).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from contrada.delivery.store import OWN_LOGS, LogRecord, Notes, Store, encoder, unpack
from contrada.delivery.streams import Outgoing
from contrada.errors import CannotPublishError, StoreError
from contrada.model import Notification

SPOOL: Final = f"{OWN_LOGS}spool"
"""The log of certified shipments."""

RESERVED: Final = 10_000
"""Numbers of a stream that are reserved at once."""

RESEND_US: Final = 200_000
"""Microseconds until an unacknowledged shipment is sent again; twice as long each time."""

RESEND_US_MAX: Final = 10_000_000
"""The longest of these times. Beyond it: it does not grow."""

SHIPMENT_BYTES: Final = 300
"""The size of a shipment besides the bytes of its notification."""

READ_AT_ONCE: Final = 1_000
"""Records of the spool per read."""


class _Posted(NamedTuple):
    """A held shipment, for all its owners."""

    shipment: Shipment
    spooled: int  # the position in the spool, or 0


@dataclass(slots=True)
class _OwnerStream:
    incarnation: int
    outgoing: Outgoing[_Posted]
    reserved: int = 0  # numbers before it may be given out
    since: int = 1  # numbers before it were given up
    wait_us: int = RESEND_US
    again_to: int = 0  # last number resent, while more are due; else 0


class Posting(NamedTuple):
    """A body to post, with the subscriptions of each owner."""

    body: Payload
    owners: Mapping[str, Sequence[int]]
    context: Context = ()


class Outbox:
    """The streams from a server to the owners that it knows."""

    def __init__(
        self, name: str, store: Store | None, limits: DeliveryLimits = DeliveryLimits()
    ) -> None:
        self._limits, self.name = limits, name
        self.lost = 0
        self._store = store
        self._notes = Notes(store)
        self._streams: dict[str, _OwnerStream] = {}
        # Times of the next resending, of the few owners that have not taken everything.
        self._due_us: dict[str, int] = {}
        # Positions of the spool, each with the number of owners that have not acknowledged.
        self._open: dict[int, int] = {}
        self._routes = {name: name}
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
        # No position before `_first` is open.
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
            # Shipments of earlier incarnations, and those dropped by `forget`, are over.
            if of.incarnation == address.incarnation and of.since <= address.number:
                posted = _Posted(shipment, position)
                of.outgoing.restore(address.number, posted, _size(shipment.body))
                self._due_us[address.owner] = 0
                self._open[position] = self._open.get(position, 0) + 1

    # --- posting ------------------------------------------------------------------------------

    def resume(self, owners: Iterable[str]) -> list[Shipment]:
        """Returns the shipments to send after a restart: no owner waits for lost numbers."""
        # An empty shipment: its predecessor's number shows the owner that those between are lost.
        begun = [owner for owner in owners if self._streams[owner].outgoing.next > 1]
        return self.post([Posting(Resumed(), {owner: ()}) for owner in begun], 0, spools=False)

    def check_room(self, owners: Iterable[str]) -> None:
        """Raises CannotPublishError if the stream to an owner is full."""
        for owner in owners:
            of = self._streams.get(owner)
            if of is not None and not of.outgoing.has_room():
                reason = f"server {owner!r} has not taken its shipments from this one"
                held = of.outgoing.held, of.outgoing.held_bytes
                raise CannotPublishError("", *held, reason=reason)

    def learn_start(self, owner: str, incarnation: int) -> None:
        """Learns an owner's incarnation. Shipments for an earlier one are lost with its memory."""
        of = self._streams.get(owner)
        if of is None or of.incarnation < incarnation:
            anew = Outgoing[_Posted](self._base, self._base - 1, self._limits)
            self._streams[owner] = _OwnerStream(incarnation, anew)
            self._due_us.pop(owner, None)
            if of is not None:
                self.lost += of.outgoing.held
                self._free(of.outgoing.rest())

    def reopen(self, owner: str, now_us: int) -> list[Shipment]:
        """Returns the shipments to send to an owner that was restored from a copy.

        Unacknowledged shipments are sent at once. Lost ones are not waited for.
        """
        of = self._streams[owner]
        of.outgoing.reopen()
        shipments = self.post([Posting(Resumed(), {owner: ()})], now_us, spools=False)
        self._due_us[owner], of.wait_us = now_us, RESEND_US
        return shipments

    def forget(self, owner: str) -> None:
        """Drops the shipments for an owner that will never be back."""
        of = self._streams.get(owner)
        if of is not None:
            self.lost += of.outgoing.held
            # If it does return, new shipments must have new numbers.
            since = of.outgoing.next
            anew = Outgoing[_Posted](since, since - 1, self._limits)
            reserved = max(of.reserved, since)
            self._streams[owner] = _OwnerStream(of.incarnation, anew, reserved, since)
            self._due_us.pop(owner, None)
            self._note(owner)
            self._free(of.outgoing.rest())

    def post(self, postings: Sequence[Posting], now_us: int, *, spools: bool) -> list[Shipment]:
        """Numbers and holds bodies. Returns the shipments to send. Each owner must be known."""
        shipments: list[Shipment] = []
        places: dict[str, list[int]] = {}  # of the shipments for each owner
        for body, owners, context in postings:
            to = []
            for owner, ids in owners.items():
                of, earlier = self._streams[owner], places.setdefault(owner, [])
                number = of.outgoing.next + len(earlier)
                before = number - 1 if earlier else of.outgoing.last
                to.append(Destination(owner, of.incarnation, before, number, tuple(ids)))
                earlier.append(len(shipments))
            shipments.append(Shipment(tuple(to), body, context))
        # The spool is written first: if that fails, the streams have not changed.
        spooled = 0
        if spools and self._store is not None:
            encoded = [encoder.encode(each) for each in shipments]
            spooled = self._store.append(SPOOL, encoded, now_us)
            for position, shipment in enumerate(shipments, spooled):
                self._open[position] = len(shipment.to)
        posted = [_Posted(it, spooled + at if spooled else 0) for at, it in enumerate(shipments)]
        sizes = [_size(each.body) for each in shipments]
        for owner, its in places.items():
            of = self._streams[owner]
            of.outgoing.send([posted[at] for at in its], sum(sizes[at] for at in its))
            self._due_us.setdefault(owner, now_us + of.wait_us)
            if of.outgoing.next > of.reserved:  # Shipments leave only after this is synced.
                of.reserved = of.outgoing.next + RESERVED
                self._note(owner)
        return shipments

    def _note(self, owner: str) -> None:
        of = self._streams[owner]
        self._notes.put("out", owner, (of.incarnation, of.reserved, of.since))

    # --- acknowledgements ---------------------------------------------------------------------

    def acknowledge(self, owner: str, incarnation: int, taken: int, now_us: int) -> bool:
        """Releases shipments up to a number; whether there were any. Raises ProtocolError."""
        of = self._streams.get(owner)
        if of is None or of.incarnation != incarnation:
            return False
        freed = of.outgoing.acknowledge(taken)
        if not freed:
            return False
        self._free(freed)
        of.wait_us = RESEND_US
        next_us = now_us + RESEND_US
        if of.again_to and taken >= of.again_to:
            of.again_to, next_us = 0, now_us  # The rest follows at once.
        self._due_us.pop(owner, None)
        if of.outgoing.held:
            self._due_us[owner] = next_us
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
            except StoreError:  # It is truncated with the next release.
                return
            self._truncated = self._first

    # --- sending again ------------------------------------------------------------------------

    @property
    def due_us(self) -> int | None:
        """The time of the next resending."""
        return min(self._due_us.values(), default=None)

    def change_routes(self, routes: Mapping[str, str], now_us: int) -> None:
        """Sets the next servers towards all owners; a changed route makes its shipments due."""
        for owner, of in self._streams.items():
            if of.outgoing.held and owner in routes and routes[owner] != self._routes.get(owner):
                self._due_us[owner], of.wait_us = now_us, RESEND_US
        self._routes = {**routes, self.name: self.name}

    def resend_due(self, now_us: int) -> list[Shipment]:
        """Returns the shipments to send again now."""
        shipments: list[Shipment] = []
        for owner in [owner for owner, due_us in self._due_us.items() if due_us <= now_us]:
            if owner not in self._routes:
                del self._due_us[owner]  # A new route makes it due: see `change_routes`.
                continue
            of = self._streams[owner]
            self._due_us[owner] = now_us + of.wait_us
            of.wait_us = min(2 * of.wait_us, RESEND_US_MAX)
            for run in of.outgoing.again(self._limits.resend_max):
                last = run.before
                for number, (it, _) in enumerate(run.items, run.first):
                    ids = next(each.ids for each in it.to if each.owner == owner)
                    to = Destination(owner, of.incarnation, last, number, ids)
                    shipments.append(Shipment((to,), it.body, it.context))
                    last = number
                of.again_to = last if of.outgoing.held > self._limits.resend_max else 0
        return shipments

    # --- inspection ---------------------------------------------------------------------------

    def row(self, more: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
        """Returns, for each owner, the last unacknowledged number, with the owner's incarnation.

        `more` counts shipments that are about to be posted.
        """
        row = []
        for owner, of in self._streams.items():
            if of.outgoing.held or owner in more:
                last = of.outgoing.next + more[owner] - 1 if owner in more else of.outgoing.last
                row.append((owner, of.incarnation, last))
        return tuple(row)

    def stream_state(self, owner: str) -> tuple[int, int, int]:
        """Returns an owner's incarnation, the last number sent, and the last one taken."""
        of = self._streams.get(owner)
        return (0, 0, 0) if of is None else (of.incarnation, of.outgoing.last, of.outgoing.taken)

    def holds(self, owner: str) -> bool:
        """Whether shipments for an owner are held."""
        of = self._streams.get(owner)
        return of is not None and of.outgoing.held > 0

    @property
    def held(self) -> int:
        """The held shipments; a shipment counts once for each of its owners."""
        return sum(of.outgoing.held for of in self._streams.values())

    @property
    def unacknowledged(self) -> int:
        """The held shipments for other owners that are reachable."""
        routes = self._routes.keys() - {self.name}
        return sum(of.outgoing.held for owner, of in self._streams.items() if owner in routes)

    @property
    def held_bytes(self) -> int:
        """The bytes of the held shipments."""
        return sum(of.outgoing.held_bytes for of in self._streams.values())

    @property
    def resent(self) -> int:
        """The number of shipments sent again."""
        return sum(of.outgoing.resent for of in self._streams.values())

    @property
    def spooled(self) -> int:
        """The records of the spool that some owner has not taken."""
        return len(self._open)


def _size(body: Payload) -> int:
    if isinstance(body, Notice | ToSequence):
        return SHIPMENT_BYTES + _bytes(body.notification)
    if isinstance(body, Records):
        found = [each.notification for each in body.records if each.notification is not None]
        return SHIPMENT_BYTES * (1 + len(found)) + sum(map(_bytes, found))
    return SHIPMENT_BYTES


def _bytes(notification: Notification) -> int:
    return len(notification.span) + len(notification.body)


_decoder: Final = msgspec.msgpack.Decoder(Shipment, dec_hook=unpack)
