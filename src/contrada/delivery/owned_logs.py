"""`OwnedLogs`: the durable subscriptions that a server owns, and their consumers.

The log of a durable subscription is in the server's store and survives restarts; other logs are in
memory and end with the server. Consumers are clients of this server or of another one, each
identified by its server and its name. Records are pushed to consumers within their credit.

Invariant: a notification that was appended for a subscription is in its log or acknowledged, unless
the subscription's policy dropped it, counted.

Source: EPFL 2503 §5.3.6 (durable subscriptions), §4.7.2 (one of n).
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias

import msgspec

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.delivery_messages import (
    Ack,
    Closed,
    CloseLog,
    Consuming,
    DurableEntry,
    Extend,
    Grant,
    LogEntry,
    Nack,
    OpenLog,
    Records,
    Withdraw,
)
from contrada.delivery.durable_log import DurableLog, DurableLogStatistics, HandedRecord
from contrada.delivery.memory_store import MemoryStore
from contrada.delivery.redelivery import AttemptRow, Attempts
from contrada.delivery.retention import Retention
from contrada.delivery.store import (
    OWN_LOGS,
    READ_BYTES_MAX,
    LogRecord,
    Notes,
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
"""A range of assigned numbers; and each existing subscription among them, with its number and
whether it is durable."""


class LogTerms(NamedTuple):
    """The filters and the retention of a durable subscription, and whether it survives restarts."""

    filters: Selection
    retention: Retention
    is_durable: bool


class AppendedRecord(NamedTuple):
    """A record that was appended to a log; with a reason it is a dead letter."""

    name: str
    position: int
    record: bytes
    reason: str = ""


@dataclass(slots=True)
class _OwnedLog:
    """A durable subscription, and its consumers."""

    log: DurableLog
    entry: DurableEntry
    is_durable: bool
    readers: dict[ConsumerKey, None] = field(default_factory=dict)  # in order of their last records


class OwnedLogs:
    """The durable subscriptions of one server, by number and by name."""

    def __init__(self, store: Store | None, limits: DeliveryLimits = DeliveryLimits()) -> None:
        self._limits = limits
        self.memory_store = MemoryStore(survives=False)
        self._store = store
        self._logs: dict[int, _OwnedLog] = {}
        self._numbers: dict[str, int] = {}
        self.stuck: dict[str, str] = {}  # logs that `push` could not read: call it again
        self._touched: OrderedDict[int, None] = OrderedDict()  # their consumers may get records
        self._recent: dict[bytes, Notification] = {}  # since the last push
        self._changed: dict[int, None] = {}  # may have to be announced
        self._notes = Notes(store)
        self._alarms: list[tuple[int, int]] = []  # a heap of times and numbers, for `expire`
        self._alarm_us: dict[int, int] = {}  # the earliest of each
        self.ended: list[str] = []  # names, for the owner to take
        self.appended: list[AppendedRecord] | None = None  # for an owner that takes them
        self.next = 1
        """The number of the next subscription."""

    def unload(self, number: int) -> tuple[DurableEntry, Retention] | None:
        """Removes a subscription here that no consumer reads, and returns what it was, if any."""
        owned = self._logs.pop(number, None)
        if owned is None:
            return None
        del self._numbers[owned.entry.name]
        return owned.entry, owned.log.retention

    def load(
        self,
        number: int,
        entry: DurableEntry,
        retention: Retention,
        rows: Iterable[AttemptRow] = (),
        *,
        is_durable: bool,
    ) -> None:
        """Adds a subscription, with its log as it is in its store."""
        attempts = Attempts(entry.name, self._notes, rows) if is_durable else None
        store = self._store_of(is_durable)
        owned = DurableLog(entry.name, store, retention, self._limits, attempts)
        self._logs[number] = _OwnedLog(owned, entry, is_durable)
        self._numbers[entry.name] = number
        if retention.is_full(owned.extent, was_full=False):
            self._touch(number)

    def touch(self, name: str) -> None:
        """Has the consequences of a change to a log seen to. Raises DeliveryError."""
        self._touch(self.number_of(name))

    def _touch(self, number: int) -> None:
        self._touched[number] = self._changed[number] = None

    def _store_of(self, is_durable: bool) -> Store:
        return self._store if is_durable and self._store is not None else self.memory_store

    # --- subscriptions ------------------------------------------------------------------------

    def create(
        self, name: str, filters: Selection, retention: Retention, *, is_durable: bool
    ) -> tuple[int, DurableEntry]:
        """Creates a subscription. Returns its number and its entry.

        Raises DeliveryError: its name is in use, or there is no store; InvalidValueError.
        """
        if name in self._numbers:
            raise DeliveryError(f"there is a durable subscription {name!r} here already")
        if is_durable and self._store is None:
            raise DeliveryError(f"this server has no store, which {name!r} would need")
        number = self.next
        entry = DurableEntry(name, filters)
        self.load(number, entry, retention, is_durable=is_durable)
        self.next += 1
        # No number is reused, even of logs in memory: shipments may be in flight.
        self._notes.put("next", "subscription", self.next)
        if is_durable:
            self._notes.put("subscription", str(number), (entry, retention))
        return number, entry

    def names_to_create(self, name: str, retention: Retention, *, is_durable: bool) -> list[str]:
        """Returns the subscriptions to create for one: itself, and the one for its dead letters.

        Raises InvalidValueError for a name, DeliveryError if existing dead letters survive less
        than the subscription.
        """
        dead = retention.dead_letter
        for each in (name, dead) if dead else (name,):
            check_log_name(each)
            if is_durable and each.startswith(OWN_LOGS):
                reason = f"those that begin with {OWN_LOGS!r} are the system's"
                raise InvalidValueError(each, f"expected another name: {reason}")
        if not dead or dead not in self._numbers:
            return [name, *filter(None, [dead])]
        if is_durable and not self._logs[self._numbers[dead]].is_durable:
            raise DeliveryError(f"{dead!r} is not durable, as the dead letters of {name!r} must be")
        return [name]

    def subscriptions(self) -> dict[int, DurableEntry]:
        """Returns all subscriptions."""
        return {number: owned.entry for number, owned in self._logs.items()}

    def subscriptions_since(self, number: int, count: int) -> Since:
        """Returns a range of numbers from one on, and lazily the subscriptions with these numbers.

        A range shorter than `count` ends at the last assigned number. Cost: the numbers.
        """
        if not any(each in self._logs for each in range(number, number + count)):
            number = min((each for each in self._logs if each >= number), default=self.next)
        numbers = range(number, min(number + count, self.next))
        owned = ((each, self._logs.get(each)) for each in numbers)
        return numbers, ((each, of.entry, of.is_durable) for each, of in owned if of is not None)

    def terms(self, name: str) -> LogTerms | None:
        """Returns the terms of a subscription, or None."""
        if name not in self._numbers:
            return None
        owned = self._logs[self._numbers[name]]
        return LogTerms(owned.entry.filters, owned.log.retention, owned.is_durable)

    def readers_of(self, name: str) -> int:
        """Returns the number of its consumers, here and elsewhere; 0 without a subscription."""
        return len(self._logs[self._numbers[name]].readers) if name in self._numbers else 0

    def names(self) -> list[str]:
        """Returns the names of all subscriptions."""
        return list(self._numbers)

    def number(self, name: str) -> int | None:
        """Returns the number of a subscription, or None."""
        return self._numbers.get(name)

    def number_of(self, name: str) -> int:
        """Returns the number of a subscription. Raises DeliveryError."""
        if name not in self._numbers:
            raise DeliveryError(f"there is no durable subscription {name!r} here")
        return self._numbers[name]

    def log_of(self, name: str) -> DurableLog:
        """Returns the log of a subscription, to be read only. Raises DeliveryError."""
        return self._logs[self.number_of(name)].log

    def end(self, number: int) -> Iterator[tuple[ConsumerKey, Closed]]:
        """Ends a subscription and its log. Yields the messages for its consumers."""
        owned = self._logs.pop(number)
        del self._numbers[owned.entry.name]
        self.ended.append(owned.entry.name)
        self.stuck.pop(owned.entry.name, None)
        if not owned.log.has_ended:
            owned.log.end()
        self._notes.put("subscription", str(number), None)
        for reader in owned.readers:
            yield reader, Closed(owned.entry.name, reader[1], "the subscription has ended")

    # --- publications -------------------------------------------------------------------------

    def check_room(self, arrivals: Iterable[tuple[Iterable[int], Notification]]) -> None:
        """Raises CannotPublishError if a subscription has no room and refuses publishers."""
        for number, records in self._encode(arrivals).items():
            self._logs[number].log.check_room(records)

    def append(self, arrivals: Iterable[tuple[Iterable[int], Notification]], time_us: int) -> bool:
        """Appends all notifications to logs, or none; returns whether the stores had room.

        Raises LimitError for a large one.
        """
        records = self._encode(arrivals)
        sizes: dict[bool, int] = {}
        for number, each in records.items():
            check_records(each)
            is_durable = self._logs[number].is_durable
            sizes[is_durable] = sizes.get(is_durable, 0) + sum(map(len, each))
        for is_durable, size in sizes.items():
            if not self._store_of(is_durable).has_room(size):
                return False
        for number, each in records.items():
            append_records(self._logs[number].log, each, time_us, self.appended)
            self._touch(number)
        return True

    def _encode(
        self, arrivals: Iterable[tuple[Iterable[int], Notification]]
    ) -> dict[int, list[bytes]]:
        """Returns the records for each subscription here. Until the next push, the notifications
        of these are not decoded again.
        """
        records: dict[int, list[bytes]] = {}
        for ids, notification in arrivals:
            data = to_msgpack(notification)
            for number in ids:
                if number in self._logs:
                    self._recent[data] = notification
                    records.setdefault(number, []).append(data)
        return records

    def append_best_effort(self, number: int, notification: Notification, time_us: int) -> None:
        """Appends a best-effort notification; without room it is dropped and counted."""
        data = to_msgpack(notification)
        self._recent[data] = notification
        self._append_or_drop(number, data, time_us)

    def _append_or_drop(self, number: int, data: bytes, time_us: int, reason: str = "") -> None:
        of = self._logs[number].log
        try:
            check_records([data])
            of.check_room([data])
            has_room = of.store.has_room(len(data))
        except (CannotPublishError, LimitError):
            has_room = False
        if has_room:
            append_records(of, [data], time_us, self.appended, reason)
            self._touch(number)
        else:
            of.statistics.dropped += 1

    # --- consumers ----------------------------------------------------------------------------

    def consume(
        self, server: str, message: Consuming, now_us: int = 0
    ) -> Iterator[tuple[ConsumerKey, Closed]]:
        """Handles a consumer's message. An error closes the consumer."""
        reader = server, message.consumer
        try:
            number = self.number_of(message.name)
            owned = self._logs[number]
            if owned.log.has_ended:  # with a message that arrived together with this one
                raise DeliveryError(f"the subscription {message.name!r} has ended")
            if not isinstance(message, OpenLog | CloseLog) and reader not in owned.readers:
                raise DeliveryError(f"{message.consumer!r} does not read {message.name!r}")
            self._touch(number)
            self._do(owned, reader, message, now_us)
        except ContradaError as error:
            if message.name in self._numbers:
                self._close(self._logs[self._numbers[message.name]], reader, None, now_us)
            yield reader, Closed(message.name, message.consumer, str(error))

    def _do(self, owned: _OwnedLog, reader: ConsumerKey, message: Consuming, now_us: int) -> None:
        of, consumer = owned.log, _consumer(reader)
        match message:
            case OpenLog():
                self._close(owned, reader, None, now_us)  # from before a restart of its server
                of.open(consumer, message.holds, now_us).renews = message.renews
                owned.readers[reader] = None
                if message.position is not None or message.time_us is not None:
                    of.seek(message.position, message.time_us)
            case Grant():
                of.grant(consumer, message.credit, message.read, now_us)
            case Ack():
                of.note_active(consumer, now_us)
                of.acknowledge(message.intervals)
            case Nack():
                of.nack(consumer, message.positions, now_us, message.delay_us)
            case Extend():
                of.extend(consumer, message.positions, now_us)
            case CloseLog(ends=ends, seen=seen):
                self._close(owned, reader, seen, now_us)
                if ends:
                    of.end()

    def _close(
        self,
        owned: _OwnedLog,
        reader: ConsumerKey,
        seen: Iterable[int] | None = None,
        now_us: int = 0,
    ) -> None:
        if reader in owned.readers:
            del owned.readers[reader]
            owned.log.close(_consumer(reader), seen, now_us)

    def acknowledge(self, name: str, before: int) -> None:
        """Acknowledges all positions before one. Raises DeliveryError, InvalidValueError."""
        self.log_of(name).acknowledge([(1, before)])
        self.touch(name)

    def close_all(self, server: str, now_us: int = 0) -> None:
        """Closes all consumers at a server; their records are requeued."""
        for number, owned in self._logs.items():
            for reader in [each for each in owned.readers if each[0] == server]:
                self._close(owned, reader, None, now_us)
                self._touch(number)

    def push(
        self, has_room: Callable[[str], bool], time_us: int
    ) -> Iterator[tuple[ConsumerKey, Records]]:
        """Yields the records for consumers whose streams have room, since the last change.

        The consumers of one subscription share its records equally, and the last one served is the
        last next time. Beyond READ_BYTES_MAX the rest is due at once. Cost: the records.
        """
        held_back, left = dict[int, None](), READ_BYTES_MAX
        while self._touched and left > 0:
            number, _ = self._touched.popitem(last=False)  # Else one log could always be first.
            owned = self._logs.get(number)
            if owned is None or owned.log.has_ended:
                continue
            of, handed = owned.log, dict[ConsumerKey, list[HandedRecord]]()
            unused = Counter[ConsumerKey]()
            wanting = [each for each in owned.readers if of.can_take(_consumer(each))]
            ready = [each for each in wanting if has_room(each[0])]
            if len(ready) < len(wanting):
                held_back[number] = None
            while ready and of.available and left > 0:
                share = -(-of.available // len(ready))
                for reader in ready:
                    found = of.take(_consumer(reader), share, time_us, left)
                    left = of.left_bytes
                    handed.setdefault(reader, []).extend(found)
                    unused[reader] += of.unused
                ready = [it for it in ready if of.can_take(_consumer(it)) and not of.why_stuck]
            self.stuck.pop(of.name, None)
            if of.why_stuck:
                held_back[number] = None
                self.stuck[of.name] = of.why_stuck
            self._bury(owned, time_us)
            of.attempts.write()
            self._set_alarm(number, of.due_us if left > 0 else time_us)
            for reader, found in handed.items():
                if found:
                    owned.readers[reader] = owned.readers.pop(reader)
                    records = tuple(starmap(self.to_entry, found))
                    yield reader, Records(owned.entry.name, reader[1], records, unused[reader])
        self._touched |= held_back
        self._recent.clear()

    @property
    def due_us(self) -> int | None:
        """The latest time for `expire`; None if nothing waits."""
        return self._alarms[0][0] if self._alarms else None

    def _set_alarm(self, number: int, due_us: int | None) -> None:
        """Sets the time of a log, unless there is an earlier one."""
        if due_us is not None and due_us < self._alarm_us.get(number, due_us + 1):
            self._alarm_us[number] = due_us
            heappush(self._alarms, (due_us, number))

    def expire(self, now_us: int) -> Iterator[tuple[ConsumerKey, Withdraw]]:
        """Requeues records that are due; yields messages about prefetched ones. Cost: the logs."""
        while self._alarms and self._alarms[0][0] <= now_us:
            due_us, number = heappop(self._alarms)
            if self._alarm_us.get(number) != due_us:
                continue  # It has an earlier one, or had it.
            del self._alarm_us[number]
            owned = self._logs.get(number)
            if owned is None or owned.log.has_ended:
                continue
            self._touch(number)
            yield from _withdrawals(owned, owned.log.expire(now_us))

    def release(self, name: str, now_us: int) -> Iterator[tuple[ConsumerKey, Withdraw]]:
        """Requeues the records that the readers of a subscription hold; yields as `expire`."""
        self.touch(name)
        owned = self._logs[self.number_of(name)]
        return _withdrawals(owned, owned.log.expire(now_us, is_early=True))

    def to_entry(self, entry: StoredRecord, attempt: int) -> LogEntry:
        """Returns a record of a log as it is sent, or a damaged one with its reason."""
        if isinstance(entry, LogRecord):
            notification: Any = self._recent.get(entry.data) or from_msgpack(entry.data)
            return LogEntry(entry.position, entry.time_us, notification, attempt)
        return LogEntry(entry.position, 0, None, attempt, entry.reason)

    def _bury(self, owned: _OwnedLog, time_us: int) -> None:
        """Appends dead records to the subscription for dead letters.

        They are lost if it has ended, refuses them, or has no room in its store. They count as dead
        in their own subscription, and as dropped in the one for dead letters.
        """
        dead, owned.log.buried = owned.log.buried, []
        number = self._numbers.get(owned.log.retention.dead_letter)
        if number is not None:
            for data in dead:
                self._append_or_drop(number, data, time_us, f"of {owned.entry.name}")

    def changes(self) -> Iterator[tuple[int, DurableEntry | None]]:
        """Yields the subscriptions that are full now, are full no longer, or have ended."""
        changed, self._changed = self._changed, {}
        for number in changed:
            owned = self._logs.get(number)
            if owned is None:
                continue
            if owned.log.has_ended:
                yield number, None
                continue
            was_full = owned.entry.is_full
            if owned.log.retention.is_full(owned.log.extent, was_full=was_full) != was_full:
                owned.entry = msgspec.structs.replace(owned.entry, is_full=not was_full)
                yield number, owned.entry

    # --- inspection ---------------------------------------------------------------------------

    def statistics(self) -> dict[str, DurableLogStatistics]:
        """Returns the counters of each subscription since the server started."""
        return {owned.entry.name: owned.log.statistics for owned in self._logs.values()}

    def validate(self) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all records."""
        for owned in self._logs.values():
            owned.log.validate()


def append_records(
    of: DurableLog,
    records: Sequence[bytes],
    time_us: int,
    appended: list[AppendedRecord] | None,
    reason: str = "",
) -> None:
    """Appends records to a log, and tells their positions where that is asked for."""
    first = 0 if appended is None else of.extent.next
    of.append(records, time_us)
    if appended is not None:
        positions = range(first, of.extent.next)
        # By `OnFull` the first ones may not have been appended.
        kept = records[len(records) - len(positions) :]
        for position, record in zip(positions, kept, strict=True):
            appended.append(AppendedRecord(of.name, position, record, reason))


def _withdrawals(
    owned: _OwnedLog, taken: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[ConsumerKey, Withdraw]]:
    for reader in owned.readers:
        if (positions := taken.get(_consumer(reader))) is not None:
            yield reader, Withdraw(owned.entry.name, reader[1], positions)


def _consumer(reader: ConsumerKey) -> str:
    return "/".join(reader)
