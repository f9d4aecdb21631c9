"""`OwnedLogs`: the standing subscriptions whose home this server is, and their consumers.

A durable subscription has its log in the server's store and comes back with it; another one has it
in memory and ends with the server. Consumers are clients of this server or of another one, each
known by its server and its name. Records are pushed to consumers within their credit.

Invariant: a notification taken in for a subscription is in its log or acknowledged, unless the
subscription's policy gave it up, counted.

Source: EPFL 2503 §5.3.6 (durable subscriptions), §4.7.2 (one of n).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    Ack,
    Closed,
    CloseLog,
    Consuming,
    DurableEntry,
    Grant,
    LogEntry,
    Nack,
    OpenLog,
    Records,
)
from contrada.delivery.durable_log import (
    DurableLog,
    DurableLogStatistics,
    Handed,
    Retention,
)
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.notes import Notes
from contrada.delivery.store import (
    OWN_LOGS,
    LogRecord,
    Store,
    StoredRecord,
    check_log_name,
    check_records,
)
from contrada.errors import (
    CannotPublishError,
    ContradaError,
    DeliveryError,
    InvalidValueError,
    LimitError,
)
from contrada.model import Notification, Selection, from_msgpack, to_msgpack

ConsumerKey: TypeAlias = tuple[str, str]
"""A consumer: its server and its name."""


Since: TypeAlias = tuple[range, Iterator[tuple[int, DurableEntry, bool]]]
"""A range of numbers that were given to subscriptions; and each of these subscriptions that still
stands, with its number and whether it is durable."""


class LogTerms(NamedTuple):
    """What a standing subscription asks for, what it keeps, and whether it survives restarts."""

    filters: Selection
    retention: Retention
    is_durable: bool


@dataclass(slots=True)
class _OwnedLog:
    """A standing subscription at home, and its consumers."""

    log: DurableLog
    entry: DurableEntry
    is_durable: bool
    readers: dict[ConsumerKey, None] = field(
        default_factory=dict
    )  # who had something last comes last


class OwnedLogs:
    """The standing subscriptions of one server, by number and by name."""

    def __init__(self, store: Store | None, limits: DeliveryLimits = DeliveryLimits()) -> None:
        self._limits = limits
        self.memory_store = MemoryStore(survives=False)
        self._store = store
        self._logs: dict[int, _OwnedLog] = {}
        self._numbers: dict[str, int] = {}
        self.is_stuck = False  # `push` could not read all: it is to be called again
        self._touched: dict[int, None] = {}  # their consumers may get something
        self._recent: dict[bytes, Notification] = {}  # what was appended since the last push
        self._changed: dict[int, None] = {}  # others may have to know them otherwise
        self._notes = Notes(store)
        for number, (entry, retention) in self._notes.of(
            "subscription", tuple[DurableEntry, Retention]
        ):
            self._add(int(number), entry, retention, is_durable=True)
        self.ended: list[str] = []  # and nobody has looked yet
        self._next = next((number for _, number in self._notes.of("next", int)), 1)

    def _add(
        self, number: int, entry: DurableEntry, retention: Retention, *, is_durable: bool
    ) -> None:
        kept = DurableLog(entry.name, self._store_of(is_durable), retention, self._limits)
        self._logs[number] = _OwnedLog(kept, entry, is_durable)
        self._numbers[entry.name] = number
        self._touch(number)

    def _touch(self, number: int) -> None:
        self._touched[number] = self._changed[number] = None

    def _store_of(self, is_durable: bool) -> Store:
        return self._store if is_durable and self._store is not None else self.memory_store

    # --- subscriptions ------------------------------------------------------------------------

    def create(
        self, name: str, filters: Selection, retention: Retention, *, is_durable: bool
    ) -> tuple[int, DurableEntry]:
        """A subscription stands here from now on.

        Raises DeliveryError: its name is in use, or there is no store; InvalidValueError.
        """
        if name in self._numbers:
            raise DeliveryError(f"there is a standing subscription {name!r} here already")
        if is_durable and self._store is None:
            raise DeliveryError(f"this server has no store, which {name!r} would need")
        number = self._next
        entry = DurableEntry(name, filters)
        self._add(number, entry, retention, is_durable=is_durable)
        self._next += 1
        # Also of what does not survive no number is given again: parcels may be on their way.
        self._notes.put("next", "subscription", self._next)
        if is_durable:
            self._notes.put("subscription", str(number), (entry, retention))
        return number, entry

    def names_to_create(self, name: str, retention: Retention, *, is_durable: bool) -> list[str]:
        """Which subscriptions must begin for one: itself, and the one for its dead letters.

        Raises InvalidValueError for a name, DeliveryError where one that is here would lose in a
        crash what the other keeps.
        """
        dead = retention.dead_letter
        for each in (name, dead) if dead else (name,):
            check_log_name(each)
            if is_durable and each.startswith(OWN_LOGS):
                reason = (
                    f"expected another name: those that begin with {OWN_LOGS!r} are the system's"
                )
                raise InvalidValueError(each, reason)
        if not dead or dead not in self._numbers:
            return [name, *filter(None, [dead])]
        if is_durable and not self._logs[self._numbers[dead]].is_durable:
            raise DeliveryError(f"{dead!r} is not durable, as the dead letters of {name!r} must be")
        return [name]

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def subscriptions(self) -> dict[int, DurableEntry]:
        """All that stands here."""
        return {number: kept.entry for number, kept in self._logs.items()}

    def subscriptions_since(self, number: int, count: int) -> Since:
        """What stands here under so many numbers from one on, lazily, and these numbers.

        They are given in order, each once; fewer than asked for are all that were given so far.
        Cost: the numbers.
        """
        if not any(each in self._logs for each in range(number, number + count)):
            number = min((each for each in self._logs if each >= number), default=self._next)
        numbers = range(number, min(number + count, self._next))
        kept = ((each, self._logs.get(each)) for each in numbers)
        return numbers, ((each, of.entry, of.is_durable) for each, of in kept if of is not None)

    def terms(self, name: str) -> LogTerms | None:
        """What a subscription here stands for; None where there is none."""
        if name not in self._numbers:
            return None
        kept = self._logs[self._numbers[name]]
        is_durable = kept.log.store is not self.memory_store
        return LogTerms(kept.entry.filters, kept.log.retention, is_durable)

    def has_reader(self, name: str) -> bool:
        """Whether a subscription here has a consumer."""
        return name in self._numbers and bool(self._logs[self._numbers[name]].readers)

    def number_of(self, name: str) -> int:
        """The number of a subscription. Raises DeliveryError: there is none."""
        if name not in self._numbers:
            raise DeliveryError(f"there is no standing subscription {name!r} here")
        return self._numbers[name]

    def end(self, number: int) -> Iterator[tuple[ConsumerKey, Closed]]:
        """A subscription ends, with its log; what its consumers are told."""
        kept = self._logs.pop(number)
        del self._numbers[kept.entry.name]
        self.ended.append(kept.entry.name)
        if not kept.log.has_ended:
            kept.log.end()
        self._notes.put("subscription", str(number), None)
        for reader in kept.readers:
            yield reader, Closed(kept.entry.name, reader[1], "the subscription has ended")

    # --- what is published --------------------------------------------------------------------

    def check_room(self, arrivals: Iterable[tuple[Iterable[int], Notification]]) -> None:
        """Raises CannotPublishError where a subscription has no room and refuses publishers."""
        records: dict[int, list[bytes]] = {}
        for ids, notification in arrivals:
            for number in ids:
                if number in self._logs:
                    records.setdefault(number, []).append(_packed(notification))
        for number, each in records.items():
            self._logs[number].log.check_room(each)

    def append(self, arrivals: Iterable[tuple[Iterable[int], Notification]], time_us: int) -> bool:
        """Keeps notifications, each for subscriptions; whether the stores had room, else none is.

        Raises LimitError for one that is too large: none is kept.
        """
        records: dict[int, list[bytes]] = {}
        for ids, notification in arrivals:
            data = _packed(notification)
            check_records([data])
            for number in ids:
                if number in self._logs:
                    self._recent[data] = notification
                    records.setdefault(number, []).append(data)
        sizes: dict[bool, int] = {}
        for number, each in records.items():
            is_durable = self._logs[number].is_durable
            sizes[is_durable] = sizes.get(is_durable, 0) + sum(map(len, each))
        if not all(self._store_of(kind).has_room(size) for kind, size in sizes.items()):
            return False
        for number, each in records.items():
            self._logs[number].log.append(each, time_us)
            self._touch(number)
        return True

    def append_best_effort(self, number: int, notification: Notification, time_us: int) -> None:
        """Keeps a notification of best effort; where there is no room, drops and counts it."""
        of = self._logs[number].log
        try:
            of.check_room([_packed(notification)])
            is_kept = self.append([((number,), notification)], time_us)
        except (CannotPublishError, LimitError):
            is_kept = False
        of.statistics.dropped += not is_kept

    # --- consumers ----------------------------------------------------------------------------

    def consume(self, server: str, message: Consuming) -> Iterator[tuple[ConsumerKey, Closed]]:
        """Does what a consumer says. What cannot be done closes it."""
        reader = server, message.consumer
        try:
            number = self.number_of(message.name)
            kept = self._logs[number]
            if kept.log.has_ended:  # with something that came together with this
                raise DeliveryError(f"the subscription {message.name!r} has ended")
            if not isinstance(message, OpenLog | CloseLog) and reader not in kept.readers:
                raise DeliveryError(f"{message.consumer!r} does not read {message.name!r}")
            self._touch(number)
            self._do(kept, reader, message)
        except ContradaError as error:
            if message.name in self._numbers:
                self._close(self._logs[self._numbers[message.name]], reader)
            yield reader, Closed(message.name, message.consumer, str(error))

    def _do(self, kept: _OwnedLog, reader: ConsumerKey, message: Consuming) -> None:
        of, consumer = kept.log, _consumer(reader)
        match message:
            case OpenLog():
                self._close(kept, reader)  # what its server said before a restart
                of.open(consumer)
                kept.readers[reader] = None
                if message.position is not None or message.time_us is not None:
                    of.seek(message.position, message.time_us)
            case Grant():
                of.grant(consumer, message.credit)
            case Ack():
                of.acknowledge(message.intervals)
            case Nack():
                of.nack(consumer, message.positions)
            case CloseLog(ends=ends, seen=seen):
                self._close(kept, reader, seen)
                if ends:
                    of.end()

    def _close(
        self, kept: _OwnedLog, reader: ConsumerKey, seen: Iterable[int] | None = None
    ) -> None:
        if reader in kept.readers:
            del kept.readers[reader]
            kept.log.close(_consumer(reader), seen)

    def positions(self, name: str, time_us: int | None = None) -> tuple[int, int, int, int]:
        """Of a log here the first position, the first not acknowledged, the next, and a time's.

        Raises DeliveryError: there is none; StoreError.
        """
        of = self._logs[self.number_of(name)].log
        at = 0 if time_us is None else of.store.position_at(name, time_us)
        return of.extent.first, of.first_unacknowledged, of.extent.next, at

    def entries(self, name: str, first: int, count: int, *, is_again: bool) -> list[StoredRecord]:
        """Up to so many entries of a log here, whoever has them; `is_again`: acknowledged, too.

        Raises DeliveryError for what is not kept any more, StoreError.
        """
        return self._logs[self.number_of(name)].log.entries(first, count, is_again=is_again)

    def first_kept(self, name: str, position: int) -> int:
        """The lowest position of a log here from this one on that may be a record's."""
        return self._logs[self.number_of(name)].log.extent.first_kept(position)

    def acknowledge(self, name: str, before: int) -> None:
        """All before a position is done with. Raises DeliveryError, InvalidValueError."""
        number = self.number_of(name)
        of = self._logs[number].log
        of.acknowledge([(1, before)] if before > 1 else [])
        self._touch(number)

    def close_all(self, server: str) -> None:
        """All consumers at a server are gone; what they had comes again."""
        for number, kept in self._logs.items():
            for reader in [each for each in kept.readers if each[0] == server]:
                self._close(kept, reader)
                self._touch(number)

    def push(
        self, has_room: Callable[[str], bool], time_us: int
    ) -> Iterator[tuple[ConsumerKey, Records]]:
        """What consumers get now, since something changed, and the servers they are at have room.

        Those of one subscription share what there is: each gets as much as the others, and who got
        something is the last next time. Cost: what they get.
        """
        held_back: dict[int, None] = {}
        self.is_stuck = False
        while self._touched:
            number, _ = self._touched.popitem()
            kept = self._logs.get(number)
            if kept is None or kept.log.has_ended:
                continue
            of, handed = kept.log, dict[ConsumerKey, list[Handed]]()
            wanting = [each for each in kept.readers if of.can_take(_consumer(each))]
            ready = [each for each in wanting if has_room(each[0])]
            if len(ready) < len(wanting):
                held_back[number] = None
            while ready and of.available:
                share = -(-of.available // len(ready))
                for reader in ready:
                    handed.setdefault(reader, []).extend(of.take(_consumer(reader), share))
                ready = [each for each in ready if of.can_take(_consumer(each)) and not of.is_stuck]
            if of.is_stuck:
                held_back[number] = None
                self.is_stuck = True
            self._bury(kept, time_us)
            for reader, found in handed.items():
                if found:
                    kept.readers[reader] = kept.readers.pop(reader)
                    yield reader, Records(*_of(kept, reader), tuple(map(self._record, found)))
        self._touched = held_back
        self._recent.clear()

    def _record(self, handed: Handed) -> LogEntry:
        entry, attempt = handed
        if isinstance(entry, LogRecord):
            notification: Any = self._recent.get(entry.data) or from_msgpack(entry.data)
            return LogEntry(entry.position, entry.time_us, notification, attempt)
        return LogEntry(entry.position, 0, None, attempt, entry.reason)

    def _bury(self, kept: _OwnedLog, time_us: int) -> None:
        """Hands dead records to the subscription for dead letters.

        If that has ended, refuses them, or has no room in its store, they are lost. They count as
        dead in their own subscription, and as dropped in the one for dead letters.
        """
        dead, kept.log.buried = kept.log.buried, []
        number = self._numbers.get(kept.log.retention.dead_letter)
        if not dead or number is None:
            return
        of = self._logs[number].log
        has_room = of.store.has_room(sum(map(len, dead)))
        for data in dead:
            try:
                of.check_room([data])
            except CannotPublishError:
                is_kept = False
            else:
                is_kept = has_room
            if is_kept:
                of.append([data], time_us)
                self._touch(number)
            else:
                of.statistics.dropped += 1

    def changes(self) -> Iterator[tuple[int, DurableEntry | None]]:
        """Which subscriptions refuse publishers now, or do no longer, or have ended."""
        changed, self._changed = self._changed, {}
        for number in changed:
            kept = self._logs.get(number)
            if kept is None:
                continue
            if kept.log.has_ended:
                yield number, None
                continue
            was_full = kept.entry.is_full
            if kept.log.is_full(was_full=was_full) != was_full:
                kept.entry = msgspec.structs.replace(kept.entry, is_full=not was_full)
                yield number, kept.entry

    # --- looking ------------------------------------------------------------------------------

    def statistics(self) -> dict[str, DurableLogStatistics]:
        """Of each subscription what happened since the server started."""
        return {kept.entry.name: kept.log.statistics for kept in self._logs.values()}

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all that is kept."""
        for kept in self._logs.values():
            kept.log.validate()


def _consumer(reader: ConsumerKey) -> str:
    return "/".join(reader)


def _of(kept: _OwnedLog, reader: ConsumerKey) -> tuple[str, str]:
    return kept.entry.name, reader[1]


def _packed(notification: Notification) -> bytes:
    return notification.packed or to_msgpack(notification)
