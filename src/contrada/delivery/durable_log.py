"""`DurableLog`: the log of a durable subscription, with its consumers and acknowledgements.

Each record is handed to one *consumer*, a client that reads. It is handed out again, with its
attempt number, if the consumer nacks it, or leaves without acknowledging it. A consumer prefetches
records, and reads them in the order in which they were handed out.

    dropped  | acknowledged | handed out, requeued, acknowledged | not handed out yet
             first                                               cursor              next

Invariant: each kept record before the cursor is in exactly one of three states: acknowledged,
handed out to one consumer, or requeued. A crash loses consumers and attempt numbers. So a record
may be handed out again, and none is lost.

An attempt counts for each record that a consumer is known to have read. Where that is none of those
that it holds, it counts for the first of them, which may be the one that killed its reader.

Source: EPFL 2503 §5.3.6 (subscriptions that outlive their process), §4.7.2 (one of n).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from sys import maxsize
from typing import Final, NamedTuple

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.store import Damaged, Extent, LogRecord, Positions, Store, StoredRecord
from contrada.errors import CannotPublishError, DeliveryError, InvalidValueError, StoreError

RECORDS_MAX: Final = 1_000_000
"""Records of a durable subscription by default. Beyond it: `OnFull`."""

BYTES_MAX: Final = 2**30
"""Bytes of these records. Beyond it: `OnFull`."""

OUT_MAX: Final = 10_000
"""Positions of one message of a consumer. Beyond it: LimitError."""

READ_AT_ONCE: Final = 1_000
"""Records per read of the store."""

REOPEN_SHARE: Final = 7 / 8
"""A full subscription accepts publications again below this share of its room."""


class OnFull(StrEnum):
    """The behaviour of a durable subscription without room for a publication."""

    REFUSE = "refuse"
    """CannotPublishError to the publisher: no subscription gets the notification."""
    DROP_OLDEST = "drop-oldest"
    """The oldest records are dropped, acknowledged or not, and counted."""
    END = "end"
    """The subscription ends, with its log."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The room and the replay of a durable subscription. Raises InvalidValueError.

    `replay_max` acknowledged records are kept for replay. A record that `attempts_max` readers got
    is dead: it moves to the subscription `dead_letter`, or is dropped without one; 0 means
    unlimited.
    """

    records_max: int = RECORDS_MAX
    bytes_max: int = BYTES_MAX
    on_full: OnFull = OnFull.REFUSE
    replay_max: int = 0
    attempts_max: int = 0
    dead_letter: str = ""

    def __post_init__(self) -> None:
        lowest = {"records_max": 1, "bytes_max": 1, "replay_max": 0, "attempts_max": 0}
        for name, least in lowest.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise InvalidValueError(value, f"{name}: expected a whole number from {least}")
        if self.on_full not in tuple(OnFull):
            raise InvalidValueError(self.on_full, f"on_full: expected {' or '.join(OnFull)}")
        if not isinstance(self.dead_letter, str):
            raise InvalidValueError(self.dead_letter, "dead_letter: expected a name")
        object.__setattr__(self, "on_full", OnFull(self.on_full))


class HandedRecord(NamedTuple):
    """A record handed to a consumer, with its attempt number; or a damaged one."""

    entry: LogRecord | Damaged
    attempt: int


@dataclass(slots=True)
class DurableLogStatistics:
    """Counters of a durable subscription since its server started.

    `unread` counts failed reads of the store, which are retried.
    """

    appended: int = 0
    handed: int = 0
    again: int = 0
    acknowledged: int = 0
    dropped: int = 0
    dead: int = 0
    damaged: int = 0
    unread: int = 0


@dataclass(slots=True)
class _ConsumerState:
    """The credit of a consumer, and its records: read ones, and those that it may have prefetched.

    `sent` has the place of each in the sequence of all records that were handed to the consumer,
    `counted` the one of them with an attempt.
    """

    credit: int = 0
    handed: int = 0
    sent: dict[int, int] = field(default_factory=dict)
    read: dict[int, None] = field(default_factory=dict)
    counted: int | None = None

    @property
    def held(self) -> set[int]:
        """All positions."""
        return {*self.sent, *self.read}

    def __len__(self) -> int:
        return len(self.sent) + len(self.read)

    def discard(self, position: int) -> None:
        """Removes a record."""
        if self.sent.pop(position, None) is None:
            self.read.pop(position, None)
        if position == self.counted:
            self.counted = None


class DurableLog:
    """One durable subscription; its log in the store has its name.

    Changes are on stable storage after the store's next `sync`; only then the owner answers
    publishers and consumers.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        retention: Retention,
        limits: DeliveryLimits = DeliveryLimits(),
    ) -> None:
        """Continues an existing log: unacknowledged records are handed out again."""
        if retention.dead_letter == name:
            raise InvalidValueError(name, "a subscription cannot be its own dead letter")
        self.name, self._limits, self.retention = name, limits, retention
        self.statistics = DurableLogStatistics()
        self.has_ended = False
        self.why_stuck = ""  # the last `take` could not read all
        self.buried: list[bytes] = []  # dead records of the last `take`s, for the owner
        self.store = store
        if store.extent(name) is None:
            store.append(name, (), 0)
        self._done = Positions(store.acknowledged(name))
        self._cursor = self._done.first_without(self.extent.first)
        self._replays_to = self._cursor  # before it, acknowledged records are handed out, too
        self._requeued: list[int] = []  # a heap
        self._attempts: Counter[int] = Counter()
        self._consumers: dict[str, _ConsumerState] = {}
        self._holders: dict[int, _ConsumerState] = {}  # of each record

    @property
    def extent(self) -> Extent:
        """The contents of the log."""
        extent = self.store.extent(self.name)
        return Extent(1, 1, 0) if extent is None else extent

    # --- publishers ---------------------------------------------------------------------------

    def check_room(self, records: Sequence[bytes]) -> None:
        """Raises CannotPublishError for records without room, with `OnFull.REFUSE`."""
        extent, keep = self.extent, self.retention
        too_many = len(records) > keep.records_max or sum(map(len, records)) > keep.bytes_max
        refuses = keep.on_full is OnFull.REFUSE
        if too_many or (refuses and max(self._excess(records)) > 0):
            raise CannotPublishError(self.name, extent.records, extent.held_bytes)

    def is_full(self, *, was_full: bool = False) -> bool:
        """Whether publishers are refused; after that, until there is ample room again."""
        extent, keep = self.extent, self.retention
        part = REOPEN_SHARE if was_full else 1
        return keep.on_full is OnFull.REFUSE and (
            extent.records >= keep.records_max * part or extent.held_bytes >= keep.bytes_max * part
        )

    def _make_room(self, records: Sequence[bytes]) -> Sequence[bytes]:
        """Makes room by `OnFull`. Returns the records that fit."""
        if max(self._excess(records)) <= 0:
            return records
        if self.retention.on_full is OnFull.END:
            self.end()
        elif self.retention.on_full is OnFull.DROP_OLDEST:
            kept = self._newest(records)
            self.statistics.dropped += len(records) - len(kept)
            over, over_bytes = self._excess(kept)
            if over > 0 or over_bytes > 0:
                try:
                    self._drop_oldest(max(over, 0), max(over_bytes, 0))
                except StoreError:  # It holds more than it should until the next is appended.
                    self.statistics.unread += 1
            return kept
        return records

    def _newest(self, records: Sequence[bytes]) -> Sequence[bytes]:
        """Returns the last records that fit an empty log."""
        room = self.retention.bytes_max
        kept: list[bytes] = []
        for data in reversed([each for each in records if len(each) <= room]):
            room -= len(data)
            if room < 0 or len(kept) >= self.retention.records_max:
                break
            kept.append(data)
        return kept[::-1]

    def _excess(self, records: Sequence[bytes]) -> tuple[int, int]:
        """Returns by how many records and bytes the limits would be exceeded."""
        extent, keep = self.extent, self.retention
        count = extent.records + len(records)
        size = extent.held_bytes + sum(map(len, records))
        return count - keep.records_max, size - keep.bytes_max

    def append(self, records: Sequence[bytes], time_us: int) -> None:
        """Appends records; by `OnFull` the oldest are dropped, or the subscription ends.

        With `OnFull.REFUSE`, publications that were accepted before the news of a full log are
        appended all the same. Raises StoreError: none of them is appended.
        """
        kept = () if self.has_ended else self._make_room(records)
        if kept and not self.has_ended:
            self.store.append(self.name, kept, time_us)
            self.statistics.appended += len(kept)

    def end(self) -> None:
        """Ends the subscription and drops its log."""
        extent = self.extent
        done = sum(end - first for first, end in self._done)
        self.statistics.dropped += extent.next - extent.first - done
        self.has_ended = True
        self.store.drop(self.name)
        self._consumers.clear()
        self._holders.clear()

    def _drop_oldest(self, count: int, size: int) -> None:
        """Drops the first records: at least `count`, and of at least `size` bytes."""
        extent = self.extent
        first = extent.first_kept(extent.first)
        before, dropped = first + count, 0
        while size > 0 or first < before:
            first = extent.first_kept(first)
            entries = self.store.read(self.name, first, READ_AT_ONCE)
            if not entries:  # the bytes of damaged ones are not known
                break
            for entry in entries:
                if size <= 0 and entry.position >= before:
                    before = entry.position
                    break
                size -= len(entry.data) if isinstance(entry, LogRecord) else 0
                first = entry.position + 1
                before = max(before, first)
                dropped += entry.position not in self._done
        self._truncate(before)
        self.statistics.dropped += dropped

    # --- consumers ----------------------------------------------------------------------------

    def open(self, consumer: str, holds: Iterable[int] = ()) -> None:
        """Adds a consumer, which gets records once it has credit. Raises DeliveryError.

        `holds`: the records that its client has read, before its connection was lost. It holds
        those that no other consumer has, without another attempt.
        """
        if self.has_ended:
            raise DeliveryError(f"the durable subscription {self.name!r} has ended")
        if consumer in self._consumers:
            raise DeliveryError(f"{consumer!r} reads {self.name!r} already")
        most = self._limits.consumers_max
        if len(self._consumers) >= most:
            raise DeliveryError(f"{self.name!r} has consumers_max = {most} consumers")
        of = self._consumers[consumer] = _ConsumerState()
        held = {each for each in holds if each not in self._done}.intersection(self._requeued)
        if held:
            self._requeued = sorted(each for each in self._requeued if each not in held)
        for each in sorted(held):
            self._attempts[each] = max(self._attempts[each], 1)
            of.read[each], self._holders[each] = None, of

    def close(self, consumer: str, seen: Iterable[int] | None = None) -> None:
        """Removes a consumer and requeues its records.

        `seen`: the records that it has read, which alone count as attempts. None: it is lost.
        """
        of = self._consumers.pop(consumer, None)
        if of is None:  # The subscription has ended.
            return
        if seen is not None:
            counted = of.held.intersection(seen)
            was = of.held.intersection((*of.read, of.counted))
            self._attempts.update(counted - was)
            self._attempts.subtract(was - counted)
        self._requeue(of.held)

    def grant(self, consumer: str, credit: int, read: int = 0) -> None:
        """Adds to a consumer's credit.

        `read`: the records that it has read, of all that were handed to it.
        """
        of = self._consumers[consumer]
        of.credit += credit
        read = min(read, of.handed)  # It may repeat the count of an earlier opening.
        while of.sent and (first := next(iter(of.sent.items())))[1] < read:
            position = first[0]
            self._attempts[position] += position != of.counted
            of.discard(position)
            of.read[position] = None

    def _count_first(self, of: _ConsumerState) -> None:
        """Counts an attempt for the first record of a consumer, if it may be reading that."""
        first = None if of.read else next(iter(of.sent), None)
        if first is not None and first != of.counted:
            of.counted = first
            self._attempts[first] += 1

    def seek(self, position: int | None = None, time_us: int | None = None) -> int:
        """Moves back to a position or a time. Returns the position.

        All records from there on are handed out, acknowledged ones included: a replay. To skip
        records, acknowledge them. Raises DeliveryError while a consumer has records, since it could
        not distinguish them from the replayed ones, InvalidValueError for a position that was not
        handed out yet.
        """
        if self._holders:
            raise DeliveryError(
                f"{self.name!r} cannot be read again yet: its readers have {len(self._holders)} "
                "records that they have not acknowledged; try again once they have, or have left"
            )
        if time_us is not None:
            position = min(self.store.position_at(self.name, time_us), self._cursor)
        if position is None or not 0 < position <= self._cursor:
            reason = f"expected a position from 1 to {self._cursor}, the next to be handed out"
            raise InvalidValueError(position, reason)
        self._replays_to = max(self._replays_to, self._cursor)
        self._cursor = max(position, self.extent.first)
        self._requeued = sorted(each for each in self._requeued if each < self._cursor)
        return self._cursor

    def take(self, consumer: str, count: int = maxsize) -> list[HandedRecord]:
        """Returns the next records of a consumer, within its credit; requeued ones first.

        At most `count`. A damaged record is handed out once, and counts as acknowledged. Dead
        records are added to `buried`. `why_stuck` reports a failed read. Cost: the records.
        """
        of = self._consumers[consumer]
        handed: list[HandedRecord] = []
        room = self._limits.records_unacknowledged_max - len(of)
        count, self.why_stuck = min(count, of.credit, room), ""
        try:  # It reads before any change, so that an error of the store loses nothing.
            while self._requeued and len(handed) < count:
                position = self._requeued[0]
                is_due = position >= self.extent.first and position not in self._done
                entries = self.store.read(self.name, position, 1) if is_due else []
                heappop(self._requeued)
                handed += self._hand_out(of, entries)
            while len(handed) < count:
                if self._cursor >= self._replays_to:
                    self._cursor = self._done.first_without(self._cursor)
                self._cursor = self.extent.first_kept(self._cursor)
                most = min(count - len(handed), READ_AT_ONCE)
                entries = self.store.read(self.name, self._cursor, most)
                if not entries:
                    break
                self._cursor = entries[-1].position + 1
                handed += self._hand_out(of, entries)
        except StoreError as error:
            self.why_stuck = error.reason
            self.statistics.unread += 1
        of.credit -= len(handed)
        self.statistics.handed += len(handed)
        self._count_first(of)
        return handed

    def entries(self, first: int, count: int, *, is_again: bool) -> list[StoredRecord]:
        """Returns up to `count` entries from a position on, without handing them out.

        Without the acknowledged ones, unless `is_again`. Raises DeliveryError for dropped ones,
        StoreError.
        """
        if first < self.extent.first:
            gone = f"records before position {self.extent.first} were acknowledged or dropped"
            raise DeliveryError(f"{self.name!r}: {gone}, so reading cannot begin at {first}")
        entries = self.store.read(self.name, first, count)
        if is_again or not self._done:
            return entries
        return [each for each in entries if each.position not in self._done]

    @property
    def first_unacknowledged(self) -> int:
        """The first position that is not acknowledged."""
        return self._done.first_without(self.extent.first)

    @property
    def available(self) -> int:
        """The most records that may be taken now."""
        extent = self.extent
        return len(self._requeued) + min(extent.next - self._cursor, extent.records)

    def can_take(self, consumer: str) -> bool:
        """Whether a consumer may get records now."""
        of = self._consumers[consumer]
        return of.credit > 0 and len(of) < self._limits.records_unacknowledged_max

    def _hand_out(
        self, of: _ConsumerState, entries: Iterable[StoredRecord]
    ) -> Iterator[HandedRecord]:
        """Records the holder of entries; skips acknowledged and dead ones."""
        for entry in entries:
            position = entry.position
            if position in self._done and position >= self._replays_to:
                continue
            attempt = self._attempts[position] + 1
            if isinstance(entry, Damaged):
                self.statistics.damaged += 1
                self._acknowledge([(position, position + 1)])
            elif 0 < self.retention.attempts_max < attempt:
                self.buried.append(entry.data)
                self.statistics.dead += 1
                self._acknowledge([(position, position + 1)])
                continue
            elif position not in self._done:
                of.sent[position], self._holders[position] = of.handed, of
            of.handed += 1
            self.statistics.again += attempt > 1
            yield HandedRecord(entry, attempt)

    def acknowledge(self, intervals: Iterable[tuple[int, int]]) -> None:
        """Acknowledges the positions from each first to before each end.

        They may have been handed out before a restart. Raises InvalidValueError for positions not
        appended yet, LimitError as `Store`.
        """
        intervals, end_of_all = list(intervals), self.extent.next
        for each in intervals:
            if each[1] > end_of_all:
                reason = f"expected positions before {end_of_all}, which are there"
                raise InvalidValueError(each, reason)
        self._acknowledge(intervals)

    def _acknowledge(self, intervals: list[tuple[int, int]]) -> None:
        extent = self.extent
        self.store.acknowledge(self.name, intervals)
        for first, end in intervals:
            self.statistics.acknowledged += self._done.add(max(first, extent.first), end)
            self._release(first, end)
        before = extent.before(self._done.first_without(extent.first), self.retention.replay_max)
        if before > extent.first:
            try:
                self._truncate(before)
            except StoreError:  # It is dropped with the next acknowledgement.
                self.statistics.unread += 1

    def nack(self, consumer: str, positions: Iterable[int]) -> None:
        """Requeues records of a consumer, for any consumer."""
        of = self._consumers[consumer]
        returned = of.held.intersection(positions)
        self._attempts.update(returned.difference(of.read, (of.counted,)))  # It has read them.
        self._requeue(returned)
        self._count_first(of)

    def _requeue(self, positions: Iterable[int]) -> None:
        for position in positions:
            self._holders.pop(position).discard(position)
            heappush(self._requeued, position)

    def _release(self, first: int, end: int) -> None:
        """Takes positions from their holders."""
        known = len(self._holders) + len(self._attempts)
        among = range(first, end) if end - first < known else [*self._holders, *self._attempts]
        holders: dict[int, _ConsumerState] = {}
        for position in among:
            if first <= position < end:
                self._attempts.pop(position, None)
                of = self._holders.pop(position, None)
                if of is not None:
                    of.discard(position)
                    holders[id(of)] = of
        for of in holders.values():
            self._count_first(of)

    def _truncate(self, before: int) -> None:
        first = self.extent.first
        self.store.truncate(self.name, before)
        self._release(first, before)
        self._done.forget(before)
        self._cursor = max(self._cursor, before)

    def validate(self) -> None:
        """Checks the invariant; AssertionError names the fault. Cost: all records."""
        extent = self.extent
        assert extent.first <= self._cursor <= extent.next
        assert list(self._done) == self.store.acknowledged(self.name)
        again = {each for each in self._requeued if each not in self._done and each >= extent.first}
        held = [each for of in self._consumers.values() for each in (*of.sent, *of.read)]
        assert sorted(held) == sorted(self._holders), "a record has two holders, or none"
        assert not again.intersection(held), "a record is held and comes again"
        done = {each for each in range(extent.first, self._cursor) if each in self._done}
        assert not done.intersection(held), "an acknowledged record is held"
        kept = done.union(again, held)
        assert kept == set(range(extent.first, self._cursor)), "a record is lost, or too early"
