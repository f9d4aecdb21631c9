"""A store in one SQLite file.

What is done waits in memory until `sync` writes it in one transaction, with one fsync: so whoever
appends never waits for the disk, and a group costs little more than a single record. `sync` may run
in a thread of its own while others append and read. SQLite was chosen since it is in Python, one
file, and made to survive a crash at any time; WAL lets read while it writes.

    logs      a row per log: its head, what is acknowledged, and a sum over these
    records   by log and position: time, bytes of all records before, sum, data
    notes     by name, each with a sum
"""

import sqlite3
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeAlias

import msgspec

from contrada.delivery.positions import Positions
from contrada.delivery.store import (
    Entry,
    Extent,
    Head,
    Stored,
    check_log_name,
    check_note_name,
    check_records,
    entries_of,
)
from contrada.errors import StoreError, StoreFullError

WAITING_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of records of a store that wait to be written. Beyond it: StoreFullError until `sync` has
written some."""

VERSION: Final = 1
"""The version of the file. A store of another one is refused."""

_SCHEMA: Final = f"""
BEGIN;
PRAGMA user_version = {VERSION};
CREATE TABLE logs (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, head BLOB, sum INTEGER);
CREATE TABLE records (
    log INTEGER, position INTEGER, time_us INTEGER, before INTEGER, sum INTEGER, data BLOB,
    PRIMARY KEY (log, position)
) WITHOUT ROWID;
CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB, sum INTEGER) WITHOUT ROWID;
COMMIT;
"""

_Row: TypeAlias = tuple[int, int, int, int, bytes, int]
"""A log's number, and of a record: position, bytes before it, time, data, sum."""


class _FileLog(Head):
    """A log's head, its number in the file, and the rows that are not in the file yet."""

    __slots__ = ("number", "rows")

    def __init__(self, name: str, number: int) -> None:
        super().__init__(name)
        self.number = number
        self.rows: list[_Row] = []

    def packed(self) -> bytes:
        """All of the head that is written down."""
        head = self.first, self.next, self.time_us, self.total, self.truncated
        return msgspec.msgpack.encode((*head, list(self.acknowledged)))

    def unpack(self, head: bytes) -> None:
        """Becomes the head that was."""
        *numbers, acknowledged = msgspec.msgpack.decode(head)
        self.first, self.next, self.time_us, self.total, self.truncated = numbers
        self.acknowledged = Positions((first, end) for first, end in acknowledged)

    def waiting(self, first: int, end: int) -> list[_Row]:
        """Of the rows that are not in the file yet, those from a position to before another."""
        if not self.rows:
            return []
        begin = self.rows[0][1]
        return self.rows[max(0, first - begin) : max(0, end - begin)]


class _Writes:
    """What the next transaction writes."""

    def __init__(self) -> None:
        self.rows: list[_Row] = []
        self.heads: dict[str, _FileLog] = {}
        self.truncated: dict[int, int] = {}  # the logs' numbers, and before which position
        self.dropped: list[int] = []
        self.notes: dict[str, bytes | None] = {}
        self.bytes = 0


class SqliteStore:
    """See `Store`. Opening costs a look at each log's head, none at its records.

    `damaged` has the logs and notes that cannot be read, and why; they are left as they are, and
    asking for one raises StoreError.
    """

    def __init__(self, path: str | Path) -> None:
        """Opens the file, or makes it. Raises StoreError: no store, in use, cannot be opened."""
        self.path = Path(path)
        # A file has one lock, by whatever links it is named; and `:memory:` is a file here, too.
        place = self.path.resolve()
        self.damaged: dict[str, str] = {}
        self._logs: dict[str, _FileLog] = {}
        self._notes: dict[str, bytes] = {}
        self._writes = _Writes()
        self._waiting_bytes = 0  # of groups that are open or sealed
        self._sealed: deque[tuple[_Writes, list[tuple[int, str, bytes]]]] = deque()
        self._changing, self._syncing = Lock(), Lock()
        with _errors(self.path), ExitStack() as stack:
            # A database of its own that stays locked: a second broker on one store would ruin it,
            # and the store itself cannot be locked, since reading has a connection of its own.
            beside = place.with_name(f"{place.name}.lock")
            stack.enter_context(_opened(beside)).execute("BEGIN EXCLUSIVE")
            self._db = stack.enter_context(_opened(place))
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            is_new = not self._db.execute("SELECT 1 FROM sqlite_schema").fetchone()
            if version != (0 if is_new else VERSION):
                raise StoreError(f"{self.path}: no store of version {VERSION}")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # an fsync for each transaction
            if is_new:
                self._db.executescript(_SCHEMA)
            self._reader = stack.enter_context(_opened(place))
            self._load()
            self._connections = stack.pop_all()

    def _load(self) -> None:
        for number, name, head, summed in self._db.execute("SELECT * FROM logs"):
            if _is_whole(name, head, summed):
                self._logs[name] = _FileLog(name, number)
                self._logs[name].unpack(head)
            else:
                self.damaged[name] = "the log's head has another checksum"
        for name, value, summed in self._db.execute("SELECT * FROM notes"):
            if _is_whole(name, value, summed):
                self._notes[name] = value
            else:
                self.damaged[name] = "the note has another checksum"
        (last,) = self._db.execute("SELECT max(id) FROM logs").fetchone()
        self._numbers = count((last or 0) + 1)

    def append(self, log: str, records: Sequence[bytes], time_us: int) -> int:
        """See `Store.append`."""
        check_records(records)
        size = sum(map(len, records))
        with self._changing:
            if not self.has_room(size):
                raise StoreFullError(f"{self.path}: too much waits to be written")
            of = self._logs.get(log) or self._new(log)
            first, number = of.next, of.number
            for (position, time, data, summed), before in of.append(records, time_us):
                of.rows.append((number, position, before, time, data, summed))
            self._writes.rows += of.rows[len(of.rows) - len(records) :]
            self._writes.bytes += size
            self._waiting_bytes += size
            self._writes.heads[log] = of
        return first

    def _new(self, name: str) -> _FileLog:
        check_log_name(name)
        if name in self.damaged:
            raise StoreError(f"{self.path}, {name!r}: {self.damaged[name]}")
        self._logs[name] = of = _FileLog(name, next(self._numbers))
        return of

    def read(self, log: str, first: int, count: int) -> list[Entry]:
        """See `Store.read`."""
        with self._changing:
            of = self._known(log)
            if of is None:
                return []
            first = max(first, of.first)
            end = min(first + count, of.next)
            waiting = of.waiting(first, end)
        found: list[Stored] = []
        in_file = waiting[0][1] if waiting else end
        if first < in_file:
            asked = "position, time_us, data, sum FROM records"
            found = self._asked(asked, of.number, first, in_file)
        found += [(row[1], row[3], row[4], row[5]) for row in waiting]
        return entries_of(of.seed, first, end, found)

    def _asked(self, what: str, number: int, first: int, end: int, most: int = -1) -> list[Any]:
        """Rows of a log in the file, from one position to before another, in order."""
        where = "WHERE log = ? AND position >= ? AND position < ? ORDER BY position LIMIT ?"
        with _errors(self.path):
            asked = number, first, end, most
            return self._reader.execute(f"SELECT {what} {where}", asked).fetchall()

    def _known(self, name: str) -> _FileLog | None:
        if name in self.damaged:
            raise StoreError(f"{self.path}, {name!r}: {self.damaged[name]}")
        return self._logs.get(name)

    def acknowledge(self, log: str, intervals: Iterable[tuple[int, int]]) -> None:
        """See `Store.acknowledge`."""
        with self._changing:
            of = self._known(log)
            if of is not None:
                of.acknowledge(intervals)
                self._writes.heads[log] = of

    def acknowledged(self, log: str) -> list[tuple[int, int]]:
        """See `Store.acknowledged`."""
        of = self._known(log)
        return [] if of is None else list(of.acknowledged)

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
        return low

    def _first_row(self, of: _FileLog, first: int, end: int) -> tuple[int, int]:
        """Position and time of the first row from a position on; or behind the last."""
        with self._changing:
            waiting = of.waiting(first, end)
        in_file = waiting[0][1] if waiting else end
        if first < in_file:
            found = self._asked("position, time_us FROM records", of.number, first, in_file, 1)
            if found:
                return found[0]  # type: ignore[no-any-return]
        return (waiting[0][1], waiting[0][3]) if waiting else (end, of.time_us + 1)

    def truncate(self, log: str, before: int) -> None:
        """See `Store.truncate`."""
        of = self._known(log)
        if of is None or before <= of.first:
            return
        before = min(before, of.next)
        with self._changing:
            waiting = of.waiting(before, before + 1)
        if before == of.next:
            truncated = of.total
        elif waiting:
            truncated = waiting[0][2]
        else:
            found = self._asked("before FROM records", of.number, before, of.next, 1)
            truncated = found[0][0] if found else of.total
        with self._changing:
            of.truncate(before, truncated)
            self._writes.heads[log] = of
            self._writes.truncated[of.number] = before

    def drop(self, log: str) -> None:
        """See `Store.drop`."""
        with self._changing:
            of = self._logs.pop(log, None)
            if of is not None:
                self._writes.heads.pop(log, None)
                self._writes.dropped.append(of.number)

    def extent(self, log: str) -> Extent | None:
        """See `Store.extent`."""
        of = self._known(log)
        return None if of is None else of.extent

    def logs(self) -> list[str]:
        """See `Store.logs`; without those that are damaged."""
        return list(self._logs)

    def note(self, name: str, value: bytes | None) -> None:
        """See `Store.note`."""
        check_note_name(name)
        with self._changing:
            if value is None:
                self._notes.pop(name, None)
            else:
                self._notes[name] = value
            self._writes.notes[name] = value

    def notes(self) -> Mapping[str, bytes]:
        """See `Store.notes`."""
        return self._notes

    def has_room(self, size: int) -> bool:
        """See `Store.has_room`."""
        return self._waiting_bytes + size <= WAITING_BYTES_MAX

    def seal(self) -> Callable[[], None]:
        """See `Store.seal`. What cannot be written is tried again with the next group."""
        with self._changing:
            group = self._writes
            if group.heads or group.dropped or group.notes:
                heads = [(of.number, name, of.packed()) for name, of in group.heads.items()]
                self._sealed.append((group, heads))
                self._writes = _Writes()
        return self._bring

    def sync(self) -> None:
        """See `Store.sync`. May run in a thread beside the other calls."""
        self.seal()()

    def _bring(self) -> None:
        """Writes all groups that are sealed, in order."""
        with self._syncing:
            while self._sealed:
                group, heads = self._sealed[0]
                self._write(group, heads)
                self._sealed.popleft()
                self._waiting_bytes -= group.bytes
                written = Counter(row[0] for row in group.rows)
                with self._changing:
                    for of in group.heads.values():
                        del of.rows[: written[of.number]]

    def _write(self, group: _Writes, heads: list[tuple[int, str, bytes]]) -> None:
        db = self._db
        with _errors(self.path), db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(
                "INSERT INTO records (log, position, before, time_us, data, sum)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                group.rows,
            )
            db.executemany(
                "DELETE FROM records WHERE log = ? AND position < ?", group.truncated.items()
            )
            for number in group.dropped:
                db.execute("DELETE FROM records WHERE log = ?", (number,))
                db.execute("DELETE FROM logs WHERE id = ?", (number,))
            db.executemany(
                "INSERT OR REPLACE INTO logs (id, name, head, sum) VALUES (?, ?, ?, ?)",
                [(number, name, head, _sum(name, head)) for number, name, head in heads],
            )
            for name, value in group.notes.items():
                if value is None:
                    db.execute("DELETE FROM notes WHERE name = ?", (name,))
                else:
                    row = name, value, _sum(name, value)
                    db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", row)

    def backup(self, path: str | Path) -> None:
        """Writes what is in the file to another one, while this one is in use.

        What was not synced is not in it. Raises StoreError, also where there is a file already.
        """
        with _errors(Path(path)):
            self._reader.execute("VACUUM INTO ?", (str(path),))

    def close(self) -> None:
        """Writes what waits, and closes the file; also where writing raises StoreError."""
        with self._connections:
            self.sync()


def _opened(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0))


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turns errors of SQLite into those of a store."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            raise StoreFullError(f"{path}: no room is left ({error})") from error
        if name.startswith("SQLITE_BUSY"):
            raise StoreError(f"{path}: it is in use, here or by another process") from error
        raise StoreError(f"{path}: {error}") from error


def _sum(name: str, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(name.encode()))


def _is_whole(name: Any, value: Any, summed: Any) -> bool:
    return isinstance(name, str) and isinstance(value, bytes) and _sum(name, value) == summed
