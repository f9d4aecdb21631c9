"""`Outbox`: the streams from this server to all homes, and the log of what must survive a crash.

What is posted is numbered in the stream of each home that it is for, and held until all of these
have taken it. What is certified is held in a log of the store, too, the *spool*: one record, be it
for many homes. What is not taken in time is sent again, at first soon, then more seldom; and at once
when the way to its home has become another one.

    post ==> streams ==> parcels to be sent              spool: 5 6 7 8 9
    taken  <== home      what all have taken leaves             6 for A and C, 8 for C ...

After a restart the streams go on with what the spool holds, under numbers behind all that were given
out: these are reserved in thousands, so that few are written down.

Invariant: what was posted is held for each home until that has taken it, or has lost its memory.

Source: EPFL 2503 §5.2.2 (reliable and certified obvents).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from contrada.delivery.messages import Address, Body, Context, Notice, Parcel, ToSequence
from contrada.delivery.store import OWN_LOGS, LogRecord, Store
from contrada.delivery.streams import Outgoing, Run
from contrada.errors import CannotPublishError
from contrada.model import from_msgpack, to_msgpack

SPOOL: Final = f"{OWN_LOGS}spool"
"""The log of what is certified."""

RESERVED: Final = 10_000
"""Numbers of a stream that are reserved at once."""

AGAIN_US: Final = 200_000
"""How long a home may take to take something before it is sent again; twice as long each time."""

AGAIN_US_MAX: Final = 10_000_000
"""The longest of these times."""

AGAIN_MAX: Final = 1_000
"""Parcels that are sent again at one time. Beyond it: the rest waits."""

PARCEL_BYTES: Final = 300
"""What a parcel counts for beside the bytes of its notification."""

READ_AT_ONCE: Final = 1_000
"""Records of the spool that are read in one step."""


class _Posted(NamedTuple):
    """A parcel as it is held for one home."""

    body: Body
    context: Context
    ids: tuple[int, ...]
    spooled: int  # the position in the spool, or 0


@dataclass(slots=True)
class _To:
    """The stream to a home in one of its lives."""

    life: int
    outgoing: Outgoing[_Posted]
    reserved: int = 0  # numbers before it may be given out
    wait_us: int = AGAIN_US
    due_us: int | None = None
    way: str | None = ""  # the next server, None while there is no way, empty: never looked at


class Posting(NamedTuple):
    """Something to be posted: for which subscriptions of which homes."""

    body: Body
    homes: Mapping[str, Sequence[int]]
    context: Context = ()


class Outbox:
    """What a server sends. `lives` knows the life of each home."""

    def __init__(self, name: str, store: Store | None) -> None:
        self.name = name
        self.lost = 0
        self._store = store
        self._streams: dict[str, _To] = {}
        self._open: dict[int, int] = {}  # positions of the spool, and how many homes each waits for
        self._truncated = 1
        if store is not None:
            self._restore(store)

    def _restore(self, store: Store) -> None:
        for note, value in store.notes().items():
            if note.startswith("out/"):
                life, reserved = msgspec.msgpack.decode(value, type=tuple[int, int])
                self._streams[note[4:]] = _To(life, Outgoing(reserved), reserved)
        extent = store.extent(SPOOL)
        position = self._truncated = 1 if extent is None else extent.first
        while entries := store.read(SPOOL, position, READ_AT_ONCE):
            for entry in entries:
                if isinstance(entry, LogRecord):
                    self._put_back(entry.position, _decoder.decode(entry.data))
                else:
                    self.lost += 1
            position = entries[-1].position + 1

    def _put_back(self, position: int, parcel: Parcel) -> None:
        for address in parcel.to:
            of = self._streams[address.home]
            if of.life == address.life:
                posted = _Posted(parcel.body, parcel.context, address.ids, position)
                of.outgoing.restore(address.number, posted, _size(parcel.body))
                of.due_us = 0
                self._open[position] = self._open.get(position, 0) + 1

    # --- posting ------------------------------------------------------------------------------

    def check_room(self, homes: Mapping[str, Any]) -> None:
        """Raises CannotPublishError where a home has not taken too much already."""
        for home in homes:
            of = self._streams.get(home)
            if of is not None and not of.outgoing.has_room():
                reason = f"server {home!r} has not taken what this one has for it"
                held = of.outgoing.held, of.outgoing.held_bytes
                raise CannotPublishError("", *held, reason=reason)

    def meet(self, home: str, life: int) -> None:
        """A home has this life. What it had not taken in an earlier one is lost with its memory."""
        of = self._streams.get(home)
        if of is None or of.life < life:
            self._streams[home] = _To(life, Outgoing())
            if of is not None:
                self.lost += of.outgoing.held
                self._free(of.outgoing.rest())

    def forget(self, home: str) -> None:
        """A home will never take anything."""
        of = self._streams.pop(home, None)
        if of is not None:
            self.lost += of.outgoing.held
            self._free(of.outgoing.rest())
            if self._store is not None:
                self._store.note(f"out/{home}", None)

    def post(self, postings: Sequence[Posting], now_us: int, *, spools: bool) -> list[Parcel]:
        """Numbers and holds what is to arrive; the parcels to send. Each home was met before."""
        runs: dict[str, tuple[_To, int, int]] = {}  # the stream, and the numbers before and next
        for home in dict.fromkeys(home for posting in postings for home in posting.homes):
            of = self._streams[home]
            runs[home] = of, of.outgoing.last, of.outgoing.next
        parcels = []
        for posting in postings:
            to = []
            for home, ids in posting.homes.items():
                of, before, number = runs[home]
                to.append(Address(home, of.life, before, number, tuple(ids)))
                runs[home] = of, number, number + 1
            parcels.append(Parcel(tuple(to), posting.body, posting.context))
        spooled = self._spool(parcels, now_us) if spools and self._store is not None else 0
        held: dict[str, list[_Posted]] = {}
        sizes: dict[str, int] = {}
        for at, parcel in enumerate(parcels):
            size = _size(parcel.body)
            for address in parcel.to:
                position = spooled + at if spooled else 0
                posted = _Posted(parcel.body, parcel.context, address.ids, position)
                held.setdefault(address.home, []).append(posted)
                sizes[address.home] = sizes.get(address.home, 0) + size
        for home, items in held.items():
            self._hold(home, items, sizes[home], now_us)
        return parcels

    def _hold(self, home: str, items: list[_Posted], size: int, now_us: int) -> None:
        of = self._streams[home]
        of.outgoing.send(items, size)
        if of.due_us is None:
            of.due_us = now_us + of.wait_us
        if of.outgoing.next > of.reserved and self._store is not None:
            of.reserved = of.outgoing.next + RESERVED
            self._store.note(f"out/{home}", msgspec.msgpack.encode((of.life, of.reserved)))

    def _spool(self, parcels: Sequence[Parcel], now_us: int) -> int:
        """Writes parcels down; the position of the first. Raises StoreError: none is."""
        assert self._store is not None
        first = self._store.append(SPOOL, [encoder.encode(each) for each in parcels], now_us)
        for position, parcel in enumerate(parcels, first):
            self._open[position] = len(parcel.to)
        return first

    # --- what homes say -----------------------------------------------------------------------

    def acknowledge(self, home: str, life: int, taken: int, now_us: int) -> bool:
        """A home has taken all up to a number; whether that was news. Raises ProtocolError."""
        of = self._streams.get(home)
        if of is None or of.life != life:
            return False
        freed = of.outgoing.acknowledge(taken)
        if not freed:
            return False
        self._free(freed)
        of.wait_us = AGAIN_US
        of.due_us = now_us + of.wait_us if of.outgoing.held else None
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
        before = next(iter(self._open), 0 if extent is None else extent.next)
        if before - self._truncated >= READ_AT_ONCE or (before and not self._open):
            self._store.truncate(SPOOL, before)
            self._truncated = before

    # --- sending again ------------------------------------------------------------------------

    @property
    def due_us(self) -> int | None:
        """When something is to be sent again."""
        return min(
            (of.due_us for of in self._streams.values() if of.due_us is not None), default=None
        )

    def again(self, ways: Mapping[str, str], now_us: int) -> list[Parcel]:
        """What is to be sent again now: it was not taken in time, or has another way now.

        `ways` has the next server on the way to each that can be reached.
        """
        parcels: list[Parcel] = []
        for home, of in self._streams.items():
            way = ways.get(home)
            has_changed, of.way = way is not None and of.way not in ("", way), way
            if not of.outgoing.held:
                continue
            if has_changed or (of.due_us is not None and of.due_us <= now_us):
                of.wait_us = AGAIN_US if has_changed else min(2 * of.wait_us, AGAIN_US_MAX)
                of.due_us = now_us + of.wait_us if way is not None else None
                if way is not None:
                    for run in of.outgoing.again(AGAIN_MAX):
                        parcels += _parcels(home, of.life, run)
        return parcels

    # --- looking ------------------------------------------------------------------------------

    def row(self, more: Mapping[str, int]) -> tuple[tuple[str, int, int], ...]:
        """To each other home the last number that was sent and not taken yet, with the home's life.

        As it will be when so many more have been sent to some.
        """
        return tuple(
            (home, of.life, of.outgoing.next + more[home] - 1 if home in more else of.outgoing.last)
            for home, of in self._streams.items()
            if home != self.name and (of.outgoing.held or home in more)
        )

    def sent(self, home: str) -> tuple[int, int, int]:
        """A home's life, the last number sent to it, and the last one that it has taken."""
        of = self._streams.get(home)
        return (0, 0, 0) if of is None else (of.life, of.outgoing.last, of.outgoing.taken)

    @property
    def held(self) -> int:
        """Parcels that are held, each for each of its homes."""
        return sum(of.outgoing.held for of in self._streams.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of these."""
        return sum(of.outgoing.held_bytes for of in self._streams.values())

    @property
    def resent(self) -> int:
        """Parcels that were sent again."""
        return sum(of.outgoing.resent for of in self._streams.values())

    @property
    def spooled(self) -> int:
        """Records of the spool that some home has not taken."""
        return len(self._open)


def _parcels(home: str, life: int, run: Run[_Posted]) -> Iterator[Parcel]:
    before = run.before
    for number, posted in enumerate(run.items, run.first):
        yield Parcel(
            (Address(home, life, before, number, posted.ids),), posted.body, posted.context
        )
        before = number


def _size(body: Body) -> int:
    if isinstance(body, Notice | ToSequence):
        return PARCEL_BYTES + len(body.notification.span) + len(body.notification.body)
    return PARCEL_BYTES


def unpack(expected: type, data: Any) -> Any:
    """What a value of the model was packed from."""
    thing = from_msgpack(data)
    if not isinstance(thing, expected):
        raise TypeError(f"expected {expected.__name__}, found {type(thing).__name__}")
    return thing


encoder: Final = msgspec.msgpack.Encoder(enc_hook=to_msgpack)
_decoder: Final = msgspec.msgpack.Decoder(Parcel, dec_hook=unpack)
