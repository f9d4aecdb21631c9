"""`DurableLog`: the log of a durable subscription, with its consumers and acknowledgements.

Each record is handed to one *consumer*, a client that reads. It is handed out again, with its
attempt number, if the consumer nacks it, or leaves without acknowledging it. A consumer prefetches
records, and reads them in the order in which they were handed out.

    dropped  | acknowledged | handed out, requeued, acknowledged | not handed out yet
             first                                               cursor              next

Invariant: each kept record before the cursor is in exactly one of three states: acknowledged,
handed out to one consumer, or requeued, perhaps with a delay. A crash loses the consumers, and
`Attempts` has what survives. So a record may be handed out again, and none is lost.

An attempt counts for each record that a consumer is known to have read. Where that is none of those
that it holds, it counts for the first of them, which may be the one that killed its reader.

Source: EPFL 2503 §5.3.6 (subscriptions that outlive their process), §4.7.2 (one of n).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, starmap
from sys import maxsize
from typing import Final, NamedTuple

from contrada.delivery.delivery_limits import DeliveryLimits
from contrada.delivery.redelivery import Attempts, HeldRecords, RequeuedRecords
from contrada.delivery.retention import EMPTY, OnFull, Retention
from contrada.delivery.store import Damaged, Extent, LogRecord, Positions, Store, StoredRecord
from contrada.errors import CannotPublishError, DeliveryError, InvalidValueError, StoreError

OUT_MAX: Final = 10_000
"""Positions of one message of a consumer. Beyond it: LimitError."""


class HandedRecord(NamedTuple):
    """A record handed to a consumer, with its attempt number; or a damaged one."""

    entry: LogRecord | Damaged
    attempt: int


@dataclass(slots=True)
class DurableLogStatistics:
    """Counters of a durable subscription since its server started.

    `overdue` records were taken from readers after their time-out. `unread` counts failed reads of
    the store, which are retried.
    """

    appended: int = 0
    handed: int = 0
    again: int = 0
    acknowledged: int = 0
    dropped: int = 0
    dead: int = 0
    damaged: int = 0
    overdue: int = 0
    unread: int = 0


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
        attempts: Attempts | None = None,
    ) -> None:
        """Continues an existing log: unacknowledged records are handed out again.

        `attempts` are those that survived; without, they are in memory.
        """
        if retention.dead_letter == name:
            raise InvalidValueError(name, "a subscription cannot be its own dead letter")
        self.name, self._limits, self.retention = name, limits, retention
        self.statistics = DurableLogStatistics()
        self.has_ended = False
        self.why_stuck, self.left_bytes, self.unused = "", 0, 0  # of the last `take`
        self.buried: list[bytes] = []  # dead records, for the owner
        self.store = store
        if store.extent(name) is None:
            store.append(name, (), 0)
        self.done = Positions(store.acknowledged(name))
        self._cursor = self.done.first_without(self.extent.first)
        self._replays_to = self._cursor  # before it, acknowledged records are handed out, too
        self.attempts = Attempts() if attempts is None else attempts
        self.requeued = RequeuedRecords(self.attempts)
        self._consumers: dict[str, HeldRecords] = {}
        self.holders: dict[int, HeldRecords] = {}  # of each record

    @property
    def extent(self) -> Extent:
        """The contents of the log."""
        extent = self.store.extent(self.name)
        return Extent(1, 1, 0) if extent is None else extent

    # --- publishers ---------------------------------------------------------------------------

    def check_room(self, records: Sequence[bytes]) -> None:
        """Raises CannotPublishError for records without room, with `OnFull.REFUSE`."""
        extent, keep = self.extent, self.retention
        if keep.excess(records, extent if keep.on_full is OnFull.REFUSE else EMPTY):
            raise CannotPublishError(self.name, extent.records, extent.held_bytes)

    def _make_room(self, records: Sequence[bytes]) -> Sequence[bytes]:
        """Makes room by `OnFull`. Returns the records that fit."""
        keep = self.retention
        if keep.on_full is OnFull.REFUSE or not keep.excess(records, self.extent):
            return records
        if keep.on_full is OnFull.END:
            self.end()
        elif keep.on_full is OnFull.DROP_OLDEST:
            kept = keep.newest(records)
            self.statistics.dropped += len(records) - len(kept)
            if over := keep.excess(kept, self.extent):
                try:
                    self._drop_oldest(*over)
                except StoreError:  # It holds more than it should until the next is appended.
                    self.statistics.unread += 1
            return kept
        return records

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
        self.statistics.dropped += extent.next - extent.first - self.done.count_from(0)
        self.has_ended = True
        self.store.drop(self.name)
        self.attempts.end()
        self._consumers.clear()
        self.holders.clear()

    def _drop_oldest(self, count: int, size: int) -> None:
        """Drops the first records: at least `count`, and of at least `size` bytes."""
        before, dropped = _oldest(self.store, self.name, self.done, count, size)
        self._truncate(before)
        self.statistics.dropped += dropped

    # --- consumers ----------------------------------------------------------------------------

    def open(self, consumer: str, holds: Iterable[int] = (), now_us: int = 0) -> HeldRecords:
        """Adds and returns a consumer, which gets records once it has credit. Raises DeliveryError.

        `holds`: the records that its client has read, before its connection was lost. It holds
        those that no other consumer has, without another attempt. Cost: the requeued records.
        """
        if self.has_ended:
            raise DeliveryError(f"the durable subscription {self.name!r} has ended")
        if consumer in self._consumers:
            raise DeliveryError(f"{consumer!r} reads {self.name!r} already")
        if len(self._consumers) >= (most := self._limits.consumers_max):
            raise DeliveryError(f"{self.name!r} has consumers_max = {most} consumers")
        of = self._consumers[consumer] = HeldRecords(self.attempts, active_us=now_us)
        wanted = {each for each in holds if each not in self.done}
        if wanted:
            self._requeue_earlier(max(wanted))
            for each in sorted(self.requeued.take_back(wanted)):
                of.adopt(each, now_us)
                self.holders[each] = of
        return of

    def _requeue_earlier(self, last: int) -> None:
        """Requeues the records up to a position that were handed out before a restart.

        At most as many as the consumer may have, so that a wrong position costs little.
        """
        last = min(last, self.extent.next - 1)
        for _ in range(self._limits.records_unacknowledged_max):
            position = self.extent.first_kept(self.done.first_without(self._cursor))
            if position > last or self._cursor < self._replays_to:
                break
            self.requeued.add(position, self.attempts.due_us(position))
            self._cursor = position + 1

    def close(self, consumer: str, seen: Iterable[int] | None = None, now_us: int = 0) -> None:
        """Removes a consumer and requeues its records.

        `seen`: the records that it has read, which alone count as attempts. None: it is lost.
        """
        of = self._consumers.pop(consumer, None)
        if of is None:  # The subscription has ended.
            return
        if seen is not None:
            of.count_alone(of.own(seen))
        self._requeue(of.held, now_us)

    def grant(self, consumer: str, credit: int, read: int = 0, now_us: int = 0) -> None:
        """Adds to a consumer's credit.

        `read`: the records that it has read, of all that were handed to it.
        """
        of = self._consumers[consumer]
        of.credit += credit
        self.note_active(consumer, now_us)
        read = min(read, of.handed)  # It may repeat the count of an earlier opening.
        while of.sent and (first := next(iter(of.sent.items())))[1] < read:
            of.note_read(first[0], now_us)

    def note_active(self, consumer: str, now_us: int) -> None:
        """Notes that a consumer reads: from now on it has time for its prefetched records."""
        of = self._consumers[consumer]
        of.active_us, of.is_idle = now_us, False

    def extend(self, consumer: str, positions: Iterable[int], now_us: int) -> None:
        """Begins the time-out of records anew that a consumer reads; without positions, of all."""
        of = self._consumers[consumer]
        self.note_active(consumer, now_us)
        for each in sorted(of.own(positions or of.read)):
            of.note_read(each, now_us)

    def seek(self, position: int | None = None, time_us: int | None = None) -> int:
        """Moves back to a position or a time. Returns the position.

        All records from there on are handed out, acknowledged ones included: a replay. To skip
        records, acknowledge them. Raises DeliveryError while a consumer has such records, since it
        could not distinguish them from the replayed ones, InvalidValueError for a position that was
        not handed out yet.
        """
        if time_us is not None:
            position = min(self.store.position_at(self.name, time_us), self._cursor)
        if position is None or not 0 < position <= self._cursor:
            reason = f"expected a position from 1 to {self._cursor}, the next to be handed out"
            raise InvalidValueError(position, reason)
        if count := sum(each >= position for each in self.holders):
            raise DeliveryError(
                f"{self.name!r} cannot be read again yet: its readers have {count} records that "
                "they have not acknowledged; try again once they have, or have left"
            )
        self._replays_to = max(self._replays_to, self._cursor)
        self._cursor = max(position, self.extent.first)
        self.requeued.forget(self._cursor)
        return self._cursor

    def take(
        self, consumer: str, count: int = maxsize, now_us: int = 0, bytes_max: int = maxsize
    ) -> list[HandedRecord]:
        """Returns the next records of a consumer, within its credit; requeued ones first.

        At most `count`, until no `left_bytes` of `bytes_max` are left: then `unused` credit is void
        if it renews that. A damaged one is handed out once, and counts as acknowledged. Dead ones
        are added to `buried`. `why_stuck` reports a failed read. Cost: the records.
        """
        of = self._consumers[consumer]
        handed: list[HandedRecord] = []
        room = self._limits.records_unacknowledged_max - len(of)
        count, self.why_stuck, self.left_bytes = min(count, of.credit, room), "", bytes_max
        try:  # It reads before any change, so that an error of the store loses nothing.
            while self.requeued and len(handed) < count and self.left_bytes > 0:
                position = self.requeued.first
                is_due = position >= self.extent.first and position not in self.done
                entries = self.store.read(self.name, position, 1) if is_due else []
                self.requeued.pop()
                handed += self._hand_out(of, entries, now_us)
            while len(handed) < count and self.left_bytes > 0:
                if self._cursor >= self._replays_to:
                    self._cursor = self.done.first_without(self._cursor)
                self._cursor = self.extent.first_kept(self._cursor)
                entries = self.store.read(self.name, self._cursor, count - len(handed))
                if not entries:
                    break
                self._cursor = entries[-1].position + 1
                handed += self._hand_out(of, entries, now_us)
        except StoreError as error:
            self.why_stuck = error.reason
            self.statistics.unread += 1
        self.unused = of.credit - len(handed) if of.renews and handed and self.left_bytes < 1 else 0
        of.credit -= len(handed) + self.unused
        self.statistics.handed += len(handed)
        of.count_first()
        return handed

    @property
    def first_unacknowledged(self) -> int:
        """The first position that is not acknowledged."""
        return self.done.first_without(self.extent.first)

    @property
    def available(self) -> int:
        """The most records that may be taken now."""
        extent = self.extent
        return len(self.requeued) + min(extent.next - self._cursor, extent.records)

    def can_take(self, consumer: str) -> bool:
        """Whether a consumer may get records now."""
        of = self._consumers[consumer]
        room = self._limits.records_unacknowledged_max
        return of.credit > 0 and not of.is_idle and len(of) < room

    def _hand_out(
        self, of: HeldRecords, entries: Iterable[StoredRecord], now_us: int
    ) -> Iterator[HandedRecord]:
        """Records the holder of entries; skips acknowledged, dead and delayed ones."""
        for entry in entries:
            position = entry.position
            self.left_bytes -= len(entry.data) if isinstance(entry, LogRecord) else 0
            if position in self.done and position >= self._replays_to:
                continue
            # From before a restart; a clock before 1970 is below 0, the time of no delay.
            if 0 != (due_us := self.attempts.due_us(position)) > now_us:
                self.requeued.add(position, due_us)
                continue
            self.attempts.delay(position, 0)
            attempt = self.attempts[position] + 1
            if isinstance(entry, Damaged):
                self.statistics.damaged += 1
                self._acknowledge([(position, position + 1)])
            elif self._is_dead(position):
                self._bury(entry)
                continue
            elif position not in self.done:
                if not of:
                    of.active_us = now_us
                of.sent[position], self.holders[position] = of.handed, of
            of.handed += 1
            self.statistics.again += attempt > 1
            yield HandedRecord(entry, attempt)

    def _is_dead(self, position: int) -> bool:
        return 0 < self.retention.attempts_max <= self.attempts[position]

    def _bury(self, record: LogRecord) -> None:
        self.buried.append(record.data)
        self.statistics.dead += 1
        self._acknowledge([(record.position, record.position + 1)])

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
        self._acknowledge([*Positions(intervals)])  # Each position is looked at once.

    def _acknowledge(self, intervals: list[tuple[int, int]]) -> None:
        extent = self.extent
        self.store.acknowledge(self.name, intervals)
        for first, end in intervals:
            self.statistics.acknowledged += self.done.add(max(first, extent.first), end)
        self._release(intervals)
        before = extent.before(self.done.first_without(extent.first), self.retention.replay_max)
        if before > extent.first:
            try:
                self._truncate(before)
            except StoreError:  # It is dropped with the next acknowledgement.
                self.statistics.unread += 1

    def nack(
        self, consumer: str, positions: Iterable[int], now_us: int = 0, delay_us: int | None = None
    ) -> None:
        """Requeues records of a consumer, for any consumer, after a delay or by the retention."""
        of = self._consumers[consumer]
        self.note_active(consumer, now_us)
        for each in (returned := of.own(positions)):
            of.note_read(each, now_us)
        self._requeue(returned, now_us, delay_us)
        of.count_first()

    def _requeue(self, positions: Iterable[int], now_us: int, delay_us: int | None = None) -> None:
        for position in positions:
            self.holders.pop(position).discard(position)
            wait_us = delay_us
            if wait_us is None:
                wait_us = self.retention.backoff_us(self.attempts[position])
            self.requeued.add(position, now_us + wait_us if wait_us else 0)

    # --- time ---------------------------------------------------------------------------------

    @property
    def due_us(self) -> int | None:
        """The latest time for `expire`; None if nothing waits. Cost: the consumers."""
        times = [self.requeued.due_us]
        if time_out_us := self.retention.acknowledge_us:
            times += [of.due_us(time_out_us) for of in self._consumers.values()]
        return min((each for each in times if each is not None), default=None)

    def expire(self, now_us: int, *, is_early: bool = False) -> dict[str, tuple[int, ...]]:
        """Requeues the records whose delay or whose reader's time has passed.

        Returns, for each consumer that was silent for so long, the prefetched records that are
        taken from it. It is handed no others until it reads. Records whose last attempt timed out
        are dead. `is_early`: no reader has time left, and none is dead.
        """
        self.requeued.expire(now_us)
        taken: dict[str, tuple[int, ...]] = {}
        time_out_us = self.retention.acknowledge_us
        if not (time_out_us or is_early):
            return taken
        for consumer, of in self._consumers.items():
            sent = tuple(of.sent)
            overdue = of.overdue(maxsize if is_early else now_us - time_out_us)
            if overdue and of.is_idle:
                taken[consumer] = sent
            self._requeue(overdue, now_us)
            of.count_first()
            if not is_early:
                self.statistics.overdue += len(overdue)
                # While all readers hang, none would take the dead ones.
                for record in _readable(self.store, self.name, filter(self._is_dead, overdue)):
                    self._bury(record)
        return taken

    def _release(self, intervals: list[tuple[int, int]]) -> None:
        """Forgets the holders and attempts of records. Cost: these, or all that have any."""
        among: Iterable[int] = chain.from_iterable(starmap(range, intervals))
        if sum(end - first for first, end in intervals) > len(self.holders) + len(self.attempts):
            gone = Positions(intervals)
            among = [each for each in (*self.holders, *self.attempts) if each in gone]
        holders: set[HeldRecords] = set()
        for position in among:
            self.attempts.forget(position)
            of = self.holders.pop(position, None)
            if of is not None:
                of.discard(position)
                holders.add(of)
        for of in holders:
            of.count_first()

    def _truncate(self, before: int) -> None:
        first = self.extent.first
        self.store.truncate(self.name, before)
        self._release([(first, before)])
        self.done.forget(before)
        self._cursor = max(self._cursor, before)

    def validate(self) -> None:
        """Checks the invariant; AssertionError names the fault. Cost: all records."""
        extent = self.extent
        assert extent.first <= self._cursor <= extent.next
        assert list(self.done) == self.store.acknowledged(self.name)
        again = {each for each in self.requeued if each not in self.done and each >= extent.first}
        held = [each for of in self._consumers.values() for each in (*of.sent, *of.read)]
        assert sorted(held) == sorted(self.holders), "a record has two holders, or none"
        assert not again.intersection(held), "a held record is handed out again"
        done = {each for each in range(extent.first, self._cursor) if each in self.done}
        assert not done.intersection(held), "an acknowledged record is held"
        kept = done.union(again, held)
        assert kept == set(range(extent.first, self._cursor)), "a record is lost, or too early"


def _oldest(store: Store, name: str, done: Positions, count: int, size: int) -> tuple[int, int]:
    """Returns the position after the first `count` records or more, of `size` bytes or more.

    The second number is how many of them are not in `done`. Raises StoreError.
    """
    extent = store.extent(name) or Extent(1, 1, 0)
    first = extent.first_kept(extent.first)
    before, dropped, most = first + count, 0, 1
    while size > 0 or first < before:
        first = extent.first_kept(first)
        entries = store.read(name, first, max(before - first, most))
        most *= 2  # The number of records with so many bytes is not known.
        if not entries:  # the bytes of damaged ones are not known
            break
        for entry in entries:
            if size <= 0 and entry.position >= before:
                return entry.position, dropped
            size -= len(entry.data) if isinstance(entry, LogRecord) else 0
            first = entry.position + 1
            before = max(before, first)
            dropped += entry.position not in done
    return before, dropped


def _readable(store: Store, name: str, positions: Iterable[int]) -> list[LogRecord]:
    """Returns the records at positions that can be read now; a later `take` sees to the others."""
    found: list[StoredRecord] = []
    with suppress(StoreError):
        for each in positions:
            found += store.read(name, each, 1)
    return [each for each in found if isinstance(each, LogRecord)]
