"""`Logs`: the standing subscriptions at home here, and who reads them.

A durable subscription has its log in the server's store and comes back with it; another one has it
in memory and ends with the server. Consumers are clients of this server or of another one, each
known by its server and its name. What they get is pushed to them within their credit.

Invariant: what was taken in for a subscription is in its log or acknowledged, unless the policy of
the subscription gave it up, counted.

Source: EPFL 2503 §5.3.6 (durable subscriptions), §4.7.2 (one of n).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from contrada.delivery.durable import DurableStatistics, DurableSubscription, Handed, Retention
from contrada.delivery.memory import MemoryStore
from contrada.delivery.messages import (
    Closed,
    CloseLog,
    Consuming,
    Done,
    GiveBack,
    Grant,
    OpenLog,
    Record,
    Records,
    Standing,
)
from contrada.delivery.store import OWN_LOGS, LogRecord, Store
from contrada.errors import CannotPublishError, ContradaError, DeliveryError, InvalidValueError
from contrada.model import FilterSet, Notification, Selection, from_msgpack, to_msgpack

Reader: TypeAlias = tuple[str, str]
"""A consumer: its server and its name."""


class Terms(NamedTuple):
    """What a standing subscription asks for, what it keeps, and whether it survives restarts."""

    filters: Selection
    retention: Retention
    is_durable: bool


@dataclass(slots=True)
class _Kept:
    """A standing subscription at home, and its consumers."""

    subscription: DurableSubscription
    standing: Standing
    readers: dict[Reader, None]


class Logs:
    """The standing subscriptions of one server, by number and by name."""

    def __init__(self, store: Store | None) -> None:
        self.volatile = MemoryStore()
        self._store = store
        self._kept: dict[int, _Kept] = {}
        self._numbers: dict[str, int] = {}
        self._next = 1
        self._touched: dict[int, None] = {}
        for note, value in (store.notes() if store is not None else {}).items():
            if note.startswith("subscription/"):
                self._restore(int(note[13:]), value)
            elif note == "subscriptions":
                self._next = msgspec.msgpack.decode(value, type=int)

    def _restore(self, number: int, value: bytes) -> None:
        name, filters, retention = msgspec.msgpack.decode(value, type=tuple[str, bytes, Retention])
        selection = from_msgpack(filters)
        assert isinstance(selection, Selection)
        self._keep(number, Standing(name, selection), retention, self._store)

    def _keep(
        self, number: int, standing: Standing, retention: Retention, store: Store | None
    ) -> None:
        kept = DurableSubscription(standing.name, store or self.volatile, retention)
        self._kept[number] = _Kept(kept, standing, {})
        self._numbers[standing.name] = number

    # --- subscriptions ------------------------------------------------------------------------

    def stand(
        self, name: str, filters: Selection, retention: Retention, *, is_durable: bool
    ) -> tuple[int, Standing]:
        """A subscription stands here from now on. Raises DeliveryError: its name is in use."""
        if name in self._numbers:
            raise DeliveryError(f"there is a standing subscription {name!r} here already")
        if is_durable and self._store is None:
            raise DeliveryError(f"this server has no store, which {name!r} would need")
        if is_durable:
            _check_log(name)
            _check_log(retention.dead_letter)
        number, self._next = self._next, self._next + 1
        standing = Standing(name, filters)
        self._keep(number, standing, retention, self._store if is_durable else None)
        if self._store is not None:
            # Also of what does not survive no number is given again: parcels may be on their way.
            self._store.note("subscriptions", msgspec.msgpack.encode(self._next))
        if self._store is not None and is_durable:
            value = msgspec.msgpack.encode(
                (name, to_msgpack(FilterSet(filters.filters)), retention)
            )
            self._store.note(f"subscription/{number}", value)
        return number, standing

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def standing(self) -> dict[int, Standing]:
        """All that stands here."""
        return {number: kept.standing for number, kept in self._kept.items()}

    def terms(self, name: str) -> Terms | None:
        """What a subscription here stands for; None where there is none."""
        if name not in self._numbers:
            return None
        kept = self._kept[self._numbers[name]]
        is_durable = kept.subscription.store is not self.volatile
        return Terms(kept.standing.filters, kept.subscription.retention, is_durable)

    def number_of(self, name: str) -> int:
        """The number of a subscription. Raises DeliveryError: there is none."""
        if name not in self._numbers:
            raise DeliveryError(f"there is no standing subscription {name!r} here")
        return self._numbers[name]

    def end(self, number: int) -> Iterator[tuple[Reader, Closed]]:
        """A subscription ends, with its log; what its consumers are told."""
        kept = self._kept.pop(number)
        del self._numbers[kept.standing.name]
        if not kept.subscription.has_ended:
            kept.subscription.end()
        if self._store is not None:
            self._store.note(f"subscription/{number}", None)
        for reader in kept.readers:
            yield reader, Closed(kept.standing.name, reader[1], "the subscription has ended")

    # --- what is published --------------------------------------------------------------------

    def check_room(self, ids: Mapping[int, Sequence[Notification]]) -> None:
        """Raises CannotPublishError where a subscription has no room and refuses publishers."""
        for number, notifications in ids.items():
            if number in self._kept:
                self._kept[number].subscription.check_room(
                    [_packed(each) for each in notifications]
                )

    def append(self, ids: Iterable[int], notification: Notification, time_us: int) -> bool:
        """Keeps a notification for subscriptions; whether the stores had room, else nothing is."""
        data = _packed(notification)
        logs = [(number, self._kept[number]) for number in ids if number in self._kept]
        stores = [kept.subscription.store for _, kept in logs]
        if not all(store.has_room(len(data) * len(logs)) for store in stores):
            return False
        for number, kept in logs:
            kept.subscription.make_room([data])
            kept.subscription.append([data], time_us)
            self._touched[number] = None
        return True

    def keep(self, number: int, notification: Notification, time_us: int) -> None:
        """Keeps what came at best effort; where there is no room it is dropped, counted."""
        of = self._kept[number].subscription
        try:
            of.check_room([_packed(notification)])
            is_kept = self.append([number], notification, time_us)
        except CannotPublishError:
            is_kept = False
        of.statistics.dropped += not is_kept

    # --- consumers ----------------------------------------------------------------------------

    def consume(self, server: str, said: Consuming) -> Iterator[tuple[Reader, Closed]]:
        """Does what a consumer says. What cannot be done closes it."""
        reader = server, said.consumer
        try:
            number = self.number_of(said.name)
            kept = self._kept[number]
            if not isinstance(said, OpenLog) and reader not in kept.readers:
                raise DeliveryError(f"{said.consumer!r} does not read {said.name!r}")
            self._touched[number] = None
            self._do(kept, reader, said)
        except ContradaError as error:
            if said.name in self._numbers:
                self._close(self._kept[self._numbers[said.name]], reader)
            yield reader, Closed(said.name, said.consumer, str(error))

    def _do(self, kept: _Kept, reader: Reader, said: Consuming) -> None:
        of, consumer = kept.subscription, _consumer(reader)
        match said:
            case OpenLog():
                of.open(consumer)
                kept.readers[reader] = None
                if said.position is not None or said.time_us is not None:
                    of.seek(said.position, said.time_us)
            case Grant():
                of.grant(consumer, said.credit)
            case Done():
                of.acknowledge(said.intervals)
            case GiveBack():
                of.give_back(consumer, said.positions)
            case CloseLog():
                self._close(kept, reader)

    def _close(self, kept: _Kept, reader: Reader) -> None:
        if reader in kept.readers:
            del kept.readers[reader]
            kept.subscription.close(_consumer(reader))

    def close_all(self, server: str) -> None:
        """All consumers at a server are gone; what they had comes again."""
        for number, kept in self._kept.items():
            for reader in [each for each in kept.readers if each[0] == server]:
                self._close(kept, reader)
                self._touched[number] = None

    def push(self) -> Iterator[tuple[Reader, Records]]:
        """What consumers get now, since something changed. Cost: what they get."""
        touched, self._touched = self._touched, {}
        for number in touched:
            kept = self._kept.get(number)
            for reader in list(kept.readers) if kept is not None else ():
                assert kept is not None
                handed = kept.subscription.take(_consumer(reader))
                if handed:
                    yield reader, Records(*_of(kept, reader), tuple(map(_record, handed)))

    def changes(self) -> Iterator[tuple[int, Standing | None]]:
        """Which subscriptions refuse publishers now, or do no longer, or ended by their policy."""
        for number, kept in list(self._kept.items()):
            if kept.subscription.has_ended:
                yield number, None
                continue
            was_full = kept.standing.is_full
            if kept.subscription.is_full(was_full=was_full) != was_full:
                kept.standing = msgspec.structs.replace(kept.standing, is_full=not was_full)
                yield number, kept.standing

    # --- looking ------------------------------------------------------------------------------

    def statistics(self) -> dict[str, DurableStatistics]:
        """Of each subscription what happened since the server started."""
        return {kept.standing.name: kept.subscription.statistics for kept in self._kept.values()}

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all that is kept."""
        for kept in self._kept.values():
            kept.subscription.validate()


def _check_log(name: str) -> None:
    """Refuses a name for a log of a subscription that a server may have for its own."""
    if name.startswith(OWN_LOGS):
        raise InvalidValueError(
            name, f"names of logs that begin with {OWN_LOGS!r} are the system's"
        )


def _consumer(reader: Reader) -> str:
    return "/".join(reader)


def _of(kept: _Kept, reader: Reader) -> tuple[str, str]:
    return kept.standing.name, reader[1]


def _packed(notification: Notification) -> bytes:
    return notification.packed or to_msgpack(notification)


def _record(handed: Handed) -> Record:
    entry, attempt = handed
    if isinstance(entry, LogRecord):
        notification: Any = from_msgpack(entry.data)
        return Record(entry.position, entry.time_us, notification, attempt)
    return Record(entry.position, 0, None, attempt, entry.reason)
