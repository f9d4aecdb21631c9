"""`TableStore`: the part of a store that is the same for every database.

Changes are collected in memory until `sync` writes them in one transaction: so an append never
waits for the disk, and a group costs little more than a single record. `sync` may run in a thread
of its own during appends and reads. The heads of logs, and the notes, are in memory, too.

    logs      a row per log: its head, acknowledged positions, and a sum over these
    records   by log and position: time, bytes of all records before, sum, data
    notes     by name, each with a sum
"""

import logging
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from operator import itemgetter
from threading import Lock
from typing import Any, Final, TypeAlias

import msgspec

from contrada.delivery import store as stored
from contrada.delivery.store import Positions
from contrada.errors import StoreDamagedError, StoreError, StoreFullError

WAITING_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of unwritten records. Beyond it: StoreFullError until `sync` has written some."""

NO_ROOM: Final = "no room is left"
"""In the message of each StoreFullError of a database."""

VERSION: Final = 1
"""The version of the tables. A store of another version is refused."""

_LOG: Final = logging.getLogger(__name__)

_position_of: Final = itemgetter(1)

TableRow: TypeAlias = tuple[int, int, int, int, bytes, int]
"""A log's number, and of a record: position, bytes before it, time, data, sum."""


def check_version(place: object, found: int, expected: int = VERSION) -> None:
    """Refuses tables that may have another meaning. Raises StoreError with the version found."""
    if found != expected:
        other = f"version {found}, of another release or program" if found else "another database"
        raise StoreError(f"{place}: no store of version {VERSION}: found {other}")


@dataclass(frozen=True, slots=True)
class StoreSpace:
    """The bytes of a store: in use, free in its file, and free on its disk (None: unknown)."""

    used_bytes: int
    free_bytes: int = 0
    disk_free_bytes: int | None = None


@dataclass(frozen=True)
class Tables:
    """The tables of a store at one moment, as rows.

    Of a log: number, name, head, sum; of a note: name, value, sum. `records` gives those of a log
    from a position to before another, in order: position, time, data, sum. `all_records` gives each
    as log, position, time, bytes before it, sum, data. Both raise StoreDamagedError. `place` has no
    secret. `faults` are those found by the database itself, `unreadable` the rows that are missing
    in `logs` and `notes`, by place.
    """

    place: str
    logs: list[tuple[int, str, bytes, int]]
    notes: list[tuple[str, bytes, int]]
    records: Callable[[int, int, int], Iterator[stored.StoredRow]]
    all_records: Callable[[], Iterator[tuple[int, int, int, int, int, bytes]]]
    space: StoreSpace
    faults: Callable[[], dict[str, str]] = dict
    """Cost: a pass over the whole database."""
    unreadable: Mapping[str, str] = field(default_factory=dict)


class TableLog(stored.LogHead):
    """A log's head, its number in the tables, and its unwritten rows."""

    __slots__ = ("name", "number", "rows")

    def __init__(self, name: str, number: int) -> None:
        super().__init__(name)
        self.name, self.number = name, number
        self.rows: list[TableRow] = []

    def packed(self) -> bytes:
        """The encoding of the head."""
        head = self.first, self.next, self.time_us, self.total, self.truncated
        left_out = (self.left_out,) if self.left_out else ()
        return msgspec.msgpack.encode((*head, list(self.acknowledged), *left_out))

    def unpack(self, head: bytes) -> None:
        """Restores an encoded head."""
        *numbers, acknowledged, left_out = [*msgspec.msgpack.decode(head), ()][:7]
        self.first, self.next, self.time_us, self.total, self.truncated = numbers
        self.acknowledged = Positions((first, end) for first, end in acknowledged)
        self.left_out = tuple((first, end) for first, end in left_out)

    def waiting(self, first: int, end: int) -> list[TableRow]:
        """The unwritten rows from a position to before another."""
        begin, behind = (bisect_left(self.rows, each, key=_position_of) for each in (first, end))
        return self.rows[begin:behind]


class WriteGroup:
    """The content of a transaction."""

    def __init__(self) -> None:
        self.rows: list[TableRow] = []
        self.heads: dict[str, TableLog] = {}
        self.sealed: list[tuple[int, str, bytes]] = []  # these heads as they were at the end
        self.truncated: dict[int, int] = {}  # the logs' numbers, and before which position
        self.appended: dict[int, int] = {}  # rows by log, with those truncated before the end
        self.dropped: list[int] = []
        self.notes: dict[str, bytes | None] = {}
        self.bytes = 0

    def head_rows(self) -> list[tuple[int, str, bytes, int]]:
        """The rows of the logs: number, name, head, sum."""
        return [
            (number, name, head, stored.sum_of(name, head)) for number, name, head in self.sealed
        ]

    def note_rows(self) -> list[tuple[str, bytes, int]]:
        """The rows of the notes that are set."""
        notes = self.notes.items()
        return [
            (name, value, stored.sum_of(name, value)) for name, value in notes if value is not None
        ]

    def notes_gone(self) -> list[tuple[str]]:
        """The names of the deleted notes, each as a row."""
        return [(name,) for name, value in self.notes.items() if value is None]


class TableStore(ABC):
    """See `Store`. Opening costs a read of each log's head, and of no records.

    `damaged` has the unreadable logs and notes, each with the reason. They are not changed; reading
    one raises StoreError. Other faults are in `faults`, by place: records on a damaged page are
    `Damaged`, and what cannot be deleted stays. `place` names the store in messages.
    """

    _connections: ExitStack

    def __init__(self, place: str) -> None:
        self.place = place
        self.damaged: dict[str, str] = {}
        self.faults: dict[str, str] = {}
        self._logs: dict[str, TableLog] = {}
        self._notes: dict[str, bytes] = {}
        self._last = 0  # the highest number of a log
        self._group = WriteGroup()
        self._waiting_bytes = 0  # of groups that are open or sealed
        self._sealed: deque[WriteGroup] = deque()
        self._changing, self._syncing = Lock(), Lock()

    # --- the database -------------------------------------------------------------------------

    @property
    def space(self) -> StoreSpace | None:
        """As of the last write; None where the database does not tell it, or not cheaply."""
        return None

    @abstractmethod
    def _asked(
        self, columns: str, number: int, first: int, end: int, most: int | None = None
    ) -> list[Any]:
        """Of a log's records in the tables, from one position to before another, in order."""

    @abstractmethod
    def _write(self, group: WriteGroup) -> None:
        """Writes a group in one transaction.

        Raises StoreError unless all of it is on stable storage.
        """

    def _load(
        self, logs: Iterable[Sequence[Any]], notes: Iterable[Sequence[Any]]
    ) -> stored.StoreChanges:
        """Loads rows of the logs and notes. Returns the names of those that differ from before."""
        changed_logs, changed_notes = list[str](), list[str]()
        for number, name, head, summed in logs:
            self._last = max(self._last, number)
            if not stored.check_sum(name, head, summed):
                self.damaged[name] = "the log's head has another checksum"
                continue
            before = self._logs.get(name)
            if before is None or (before.number, before.packed()) != (number, head):
                self._logs[name] = TableLog(name, number)
                self._logs[name].unpack(head)
                changed_logs.append(name)
        for name, value, summed in notes:
            if not stored.check_sum(name, value, summed):
                self.damaged[name] = "the note has another checksum"
            elif self._notes.get(name) != value:
                self._notes[name] = value
                changed_notes.append(name)
        self._numbers = count(self._last + 1)
        return stored.StoreChanges(changed_logs, changed_notes)

    # --- logs and notes -----------------------------------------------------------------------

    def append(self, log: str, records: Sequence[bytes], time_us: int) -> int:
        stored.check_records(records)
        size = sum(map(len, records))
        with self._changing:
            if not self.has_room(size):
                raise StoreFullError(f"{self.place}: too much waits to be written")
            of = self._known(log)
            if of is None:
                stored.check_log_name(log)
                of = self._logs[log] = TableLog(log, next(self._numbers))
            first, number = of.next, of.number
            rows = [
                (number, position, before, time, data, summed)
                for (position, time, data, summed), before in of.append(records, time_us)
            ]
            of.rows += rows
            self._group.rows += rows
            self._group.bytes += size
            self._group.appended[number] = self._group.appended.get(number, 0) + len(records)
            self._waiting_bytes += size
            self._group.heads[log] = of
        return first

    def read(self, log: str, first: int, count: int) -> list[stored.StoredRecord]:
        with self._changing:
            of = self._known(log)
            if of is None:
                return []
            first = max(first, of.first)
            end = min(first + count, of.next)
            waiting = of.waiting(first, end)
        found: list[stored.StoredRow] = []
        unreadable: dict[int, str] = {}
        in_tables = waiting[0][1] if waiting else end
        if end - first > 1 and of.extent.held_bytes > stored.READ_BYTES_MAX:
            end = self._end_of_read(of, first, in_tables, waiting, end)
            in_tables, waiting = min(in_tables, end), [row for row in waiting if row[1] < end]
        if first < in_tables:
            asked = partial(self._asked, "position, time_us, data, sum", of.number)
            found = readable_rows(asked, first, in_tables, unreadable)
        found += [(row[1], row[3], row[4], row[5]) for row in waiting]
        entries = stored.entries_of(of, first, end, found)
        if not unreadable:
            return entries
        first, last = min(unreadable), max(unreadable)
        self.note_fault(f"{log}, {first} to {last}", unreadable[first])
        lost = {at: stored.Damaged(at, why) for at, why in unreadable.items()}
        return [lost.get(each.position, each) for each in entries]

    def _end_of_read(
        self, of: TableLog, first: int, in_tables: int, waiting: Sequence[TableRow], end: int
    ) -> int:
        held = of.extent
        most = 1 + held.records * stored.READ_BYTES_MAX // held.held_bytes  # if all are as large

        def befores() -> Iterator[tuple[int, int]]:
            at = first
            while at < in_tables:
                rows = self._asked("position, before", of.number, at, in_tables, most)
                yield from rows
                at = rows[-1][0] + 1 if len(rows) == most else in_tables
            yield from (row[1:3] for row in waiting)

        try:
            return stored.end_of_read(befores(), end)
        except StoreDamagedError:
            return first + 1

    def note_fault(self, where: str, why: str) -> None:
        """Notes a fault of the database, and logs it once."""
        if where not in self.faults:
            self.faults[where] = why
            said = {"path": self.place, "record": where, "reason": why}
            _LOG.error("the store %(path)s is damaged: %(record)s: %(reason)s", said)

    def _known(self, name: str) -> TableLog | None:
        if name in self.damaged:
            raise StoreError(f"{self.place}, {name!r}: {self.damaged[name]}")
        return self._logs.get(name)

    def acknowledge(self, log: str, intervals: Iterable[tuple[int, int]]) -> None:
        with self._changing:
            of = self._known(log)
            if of is not None:
                of.acknowledge(intervals)
                self._group.heads[log] = of

    def acknowledged(self, log: str) -> list[tuple[int, int]]:
        of = self._known(log)
        return [] if of is None else list(of.acknowledged)

    def leave_out(self, log: str, count: int) -> None:
        with self._changing:
            of = self._known(log)
            if of is not None:
                of.leave_out(count)
                self._group.heads[log] = of

    def position_at(self, log: str, time_us: int) -> int:
        """See `Store.position_at`. Cost: a search by halves."""
        of = self._known(log)
        if of is None:
            return 1
        low, high = of.first, of.next
        while low < high:
            middle = (low + high) // 2
            position, time = self._first_row(of, middle, high)
            if time < time_us:
                low = min(position + 1, high)
            else:
                high = middle
        return of.extent.first_kept(low)

    def _first_row(self, of: TableLog, first: int, end: int) -> tuple[int, int]:
        """Position and time of the first row from a position on; or behind the last."""
        with self._changing:
            waiting = of.waiting(first, end)
        in_tables = waiting[0][1] if waiting else end
        for at in range(first, in_tables):
            try:
                found = self._asked("position, time_us", of.number, at, in_tables, 1)
            except StoreDamagedError:  # The next one may be on another page.
                continue
            if found:
                return found[0]  # type: ignore[no-any-return]
            break
        return (waiting[0][1], waiting[0][3]) if waiting else (end, of.time_us + 1)

    def truncate(self, log: str, before: int) -> None:
        of = self._known(log)
        if of is None or before <= of.first:
            return
        before = min(before, of.next)
        with self._changing:
            waiting = next(iter(of.waiting(before, of.next)), None)
        in_tables = of.next if waiting is None else waiting[1]
        truncated = of.total if waiting is None else waiting[2]
        try:
            if before < in_tables and (
                found := self._asked("before", of.number, before, in_tables, 1)
            ):
                truncated = found[0][0]
        except StoreDamagedError:  # It counts more bytes than it holds, until a later truncation.
            truncated = of.truncated
        with self._changing:
            of.truncate(before, truncated)
            self._group.heads[log] = of
            self._group.truncated[of.number] = before

    def drop(self, log: str) -> None:
        with self._changing:
            of = self._logs.pop(log, None)
            if of is not None:
                self._group.heads.pop(log, None)
                self._group.dropped.append(of.number)

    def extent(self, log: str) -> stored.Extent | None:
        of = self._known(log)
        return None if of is None else of.extent

    def logs(self) -> list[str]:
        """See `Store.logs`; without damaged ones."""
        return list(self._logs)

    def note(self, name: str, value: bytes | None) -> None:
        stored.check_note_name(name)
        with self._changing:
            if value is None:
                self._notes.pop(name, None)
            else:
                self._notes[name] = value
            self._group.notes[name] = value

    def notes(self) -> Mapping[str, bytes]:
        return self._notes

    def has_room(self, size: int) -> bool:
        return self._waiting_bytes + size <= WAITING_BYTES_MAX

    def seal(self) -> Callable[[], None]:
        """See `Store.seal`. A failed group is tried again with the next one."""
        with self._changing:
            group = self._group
            if group.heads or group.dropped or group.notes:
                group.sealed = [(of.number, name, of.packed()) for name, of in group.heads.items()]
                if gone := group.truncated:  # Such as shipments that were taken at once.
                    group.rows = [row for row in group.rows if row[1] >= gone.get(row[0], 0)]
                self._sealed.append(group)
                self._group = WriteGroup()
        return self._bring

    def sync(self) -> None:
        """See `Store.sync`. May run in a thread beside the other calls."""
        self.seal()()

    def _bring(self) -> None:
        """Writes all sealed groups, in order."""
        with self._syncing:
            while self._sealed:
                group = self._sealed[0]
                self._write(group)
                self._sealed.popleft()
                with self._changing:
                    self._waiting_bytes -= group.bytes
                    for of in group.heads.values():
                        del of.rows[: group.appended.get(of.number, 0)]

    def close(self) -> None:
        """Writes the rest and closes the database, also if writing raises StoreError."""
        with self._connections:
            self.sync()


def readable_rows(
    asked: Callable[[int, int], Iterable[stored.StoredRow]],
    first: int,
    end: int,
    unreadable: dict[int, str],
) -> list[stored.StoredRow]:
    """Returns the rows of a log from a position to before another, around damaged pages.

    `asked` returns those between two positions, or raises StoreDamagedError. The positions that
    cannot be read are added to `unreadable`, with the reason. Cost: two queries for each of them.
    """
    try:
        return [*asked(first, end)]
    except StoreDamagedError as error:
        if end - first == 1:
            unreadable[first] = f"it cannot be read: {error}"
            return []
    middle = (first + end) // 2
    halves = (first, middle), (middle, end)
    return [row for half in halves for row in readable_rows(asked, *half, unreadable)]
