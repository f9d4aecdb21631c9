"""`SqliteStore`: a store in one SQLite file.

SQLite comes with Python, is one file, and survives a crash at any time; WAL allows reads during
writes. A transaction costs one fsync. The tables are those of `TableStore`.

Pages of deleted records are used again. Of those beyond `FREE_PAGES_MAX`, each write returns some
to the disk. Files of earlier versions, without `auto_vacuum`, keep theirs.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from contrada.delivery.store import OWN_LOGS, sum_of
from contrada.errors import StoreDamagedError, StoreError, StoreFullError
from contrada.service.security.secret_files import OWNER_ALONE
from contrada.service.stores.table_store import (
    NO_ROOM,
    VERSION,
    StoreSpace,
    Tables,
    TableStore,
    WriteGroup,
    check_version,
)

FREE_PAGES_MAX: Final = 1024
"""Free pages of a file, of 4 KiB. Beyond it: writes return the others to the disk."""

RETURNED_PAGES: Final = 512
"""Pages that a write returns to the disk at most, so that it stays short."""

_ROWS_AT_ONCE: Final = 64

_SCHEMA: Final = f"""
PRAGMA auto_vacuum = INCREMENTAL;
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


class SqliteStore(TableStore):
    """See `TableStore`."""

    def __init__(self, path: str | Path) -> None:
        """Opens the file, or creates it. Raises StoreError: no store, in use, cannot be opened."""
        super().__init__(str(path))
        self.path = Path(path)
        # A file has one lock, under all its links; and `:memory:` is a file here, too.
        file = self.path.resolve()
        with _errors(self.path), ExitStack() as stack:
            # A database of its own that stays locked: a second broker on one store would ruin it,
            # and the store itself cannot be locked, since reading has a connection of its own.
            beside = file.with_name(f"{file.name}.lock")
            stack.enter_context(_opened(beside)).execute("BEGIN EXCLUSIVE")
            changes = file.with_name(f"{file.name}-wal")
            if _size(file) == 0 and _size(changes):  # SQLite would delete them.
                raise StoreError(
                    f"{self.path}: it is empty, but {changes.name} has its last changes: restore a "
                    f"backup, or remove {changes.name} to begin a new store"
                )
            self._db = stack.enter_context(_opened(file))
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            is_new = not self._db.execute("SELECT 1 FROM sqlite_schema").fetchone()
            check_version(self.path, version, 0 if is_new else VERSION)
            if is_new:  # Before the first write, since `auto_vacuum` is fixed then.
                self._db.executescript(_SCHEMA)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # an fsync for each transaction
            self._reader = stack.enter_context(_opened(file))
            unreadable: dict[str, str] = {}
            self._load(_log_rows(self._db, unreadable), _note_rows(self._db, unreadable))
            self.damaged |= unreadable
            self._undeletable: set[int] = set()  # logs with a damaged page
            self._closing = Event()
            self._checking = Thread(target=self._check, args=(file,), daemon=True)
            stack.callback(self._checking.join)
            stack.callback(self._closing.set)
            self._checking.start()
            self._connections = stack.pop_all()

    def _check(self, file: Path) -> None:
        """Reads all pages of the file, and notes their faults. Runs in a thread."""
        with _opened(file) as db:
            # SQLite asks after so many instructions whether it shall stop: within milliseconds.
            db.set_progress_handler(self._closing.is_set, 10_000)
            found = _page_faults(db, "quick_check(10)")
        if found and not self._closing.is_set():
            self.note_fault(str(self.path), found)

    def _asked(
        self, columns: str, number: int, first: int, end: int, most: int | None = None
    ) -> list[Any]:
        where = "WHERE log = ? AND position >= ? AND position < ? ORDER BY position LIMIT ?"
        with _errors(self.path):
            asked = number, first, end, -1 if most is None else most
            return self._reader.execute(f"SELECT {columns} FROM records {where}", asked).fetchall()

    @property
    def space(self) -> StoreSpace | None:
        """See `TableStore.space`. Cost: some 10 µs."""
        try:
            return _space_of(self._reader, self.path)
        except (sqlite3.Error, OSError):  # A damaged or closed file; writing reports it.
            return None

    def _write(self, group: WriteGroup) -> None:
        try:
            self._write_group(group)
        except StoreDamagedError as error:
            # SQLite writes on beside a damaged page; rows that cannot be deleted stay there, behind
            # the heads of their logs.
            deleted = {*group.truncated, *group.dropped} - self._undeletable
            if not deleted:
                self.note_fault("a write", error.reason)
                raise
            self._undeletable |= deleted
            self._write(group)
            self.note_fault("acknowledged records that cannot be deleted", error.reason)

    def _write_group(self, group: WriteGroup) -> None:
        db = self._db
        with _errors(self.path), db:
            db.execute("BEGIN IMMEDIATE")
            _insert(db, "records (log, position, before, time_us, data, sum)", group.rows)
            deleted = "DELETE FROM records WHERE log = ?"
            for each in group.truncated.items():
                if each[0] not in self._undeletable:
                    db.execute(f"{deleted} AND position < ?", each)
            for number in group.dropped:
                if number in self._undeletable:  # Its number is taken, while its rows are there.
                    name = f"{OWN_LOGS}damaged-{number}"
                    for (head,) in db.execute("SELECT head FROM logs WHERE id = ?", (number,)):
                        renamed = name, sum_of(name, head), number
                        db.execute("UPDATE logs SET name = ?, sum = ? WHERE id = ?", renamed)
                    continue
                db.execute(deleted, (number,))
                db.execute("DELETE FROM logs WHERE id = ?", (number,))
            # Replacing a row would also write the page of the index of names.
            changed = "ON CONFLICT (id) DO UPDATE SET head = excluded.head, sum = excluded.sum"
            _insert(db, "logs (id, name, head, sum)", group.head_rows(), changed)
            if gone := group.notes_gone():
                db.executemany("DELETE FROM notes WHERE name = ?", gone)
            changed = "ON CONFLICT (name) DO UPDATE SET value = excluded.value, sum = excluded.sum"
            _insert(db, "notes (name, value, sum)", group.note_rows(), changed)
            surplus = 0 if self.faults else _pragma(db, "freelist_count") - FREE_PAGES_MAX
            for _ in range(min(surplus, RETURNED_PAGES)):
                db.execute("PRAGMA incremental_vacuum(1)")  # Python steps a pragma only once.


@contextmanager
def read_sqlite(path: Path) -> Iterator[Tables]:
    """The content of a store's file at one moment; it may be in use. Raises StoreError."""
    if not path.is_file():
        raise StoreError(f"{path}: there is no store")
    with _errors(path), ExitStack() as stack:
        db = stack.enter_context(_opened(path))
        db.execute("PRAGMA query_only = ON")
        db.execute("BEGIN")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        check_version(path, version)
        of_log = "WHERE log = ? AND position >= ? AND position < ? ORDER BY position"

        def rows(columns: str, where: str = "", asked: tuple[int, ...] = ()) -> Iterator[Any]:
            with _errors(path):
                yield from db.execute(f"SELECT {columns} FROM records {where}", asked)

        def faults() -> dict[str, str]:
            found = _page_faults(db, "integrity_check(10)")
            return {str(path): found} if found else {}

        unreadable: dict[str, str] = {}
        yield Tables(
            str(path),
            _log_rows(db, unreadable),
            _note_rows(db, unreadable),
            lambda *asked: rows("position, time_us, data, sum", of_log, asked),
            lambda: rows("log, position, time_us, before, sum, data"),
            _space_of(db, path),
            faults,
            unreadable,
        )


def _log_rows(db: sqlite3.Connection, unreadable: dict[str, str]) -> list[Any]:
    """The rows of the logs. Names those on a damaged page, which the index of names still has."""
    found = _rows_around(db, "id, name, head, sum FROM logs ORDER BY id", "logs", unreadable)
    if "logs" in unreadable:
        names = _rows_around(db, "name FROM logs ORDER BY name", "names of logs", unreadable)
        lost = {name for (name,) in names}.difference(name for _, name, *_ in found)
        unreadable |= dict.fromkeys(sorted(lost), "the log's head cannot be read")
    return found


def _note_rows(db: sqlite3.Connection, unreadable: dict[str, str]) -> list[Any]:
    return _rows_around(db, "name, value, sum FROM notes ORDER BY name", "notes", unreadable)


def _rows_around(
    db: sqlite3.Connection, ordered: str, what: str, unreadable: dict[str, str]
) -> list[Any]:
    """The rows of an ordered query before and behind damaged pages, which are `unreadable`."""
    found: list[Any] = []
    for query in (f"SELECT {ordered}", f"SELECT {ordered} DESC"):
        try:
            for row in db.execute(query):
                found.append(row)  # noqa: PERF402 - it keeps those before an error
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            unreadable[what] = f"some cannot be read: {error}"
        else:
            break
    return found


def write_sqlite(path: Path, tables: Tables) -> None:
    """Creates a file with the rows of a store. Raises StoreError."""
    with _errors(path), _opened(path) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(_SCHEMA)
        db.execute("BEGIN")
        db.executemany("INSERT INTO logs (id, name, head, sum) VALUES (?, ?, ?, ?)", tables.logs)
        db.executemany("INSERT INTO notes VALUES (?, ?, ?)", tables.notes)
        columns = "log, position, time_us, before, sum, data"
        db.executemany(
            f"INSERT INTO records ({columns}) VALUES (?, ?, ?, ?, ?, ?)", tables.all_records()
        )
        db.execute("COMMIT")


def _insert(
    db: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]], on_conflict: str = ""
) -> None:
    """Inserts rows into a table, given with its columns, by few statements.

    Between two statements this thread waits for the interpreter, which the loop may hold for
    milliseconds. The numbers of rows are powers of two, so that prepared statements are found
    again.
    """
    at = 0
    while at < len(rows):
        count = min(1 << (len(rows) - at).bit_length() - 1, _ROWS_AT_ONCE)
        statement = _insertion(table, len(rows[0]), count, on_conflict)
        db.execute(statement, [*chain.from_iterable(rows[at : at + count])])
        at += count


@lru_cache(maxsize=32)  # Three tables, and powers of two up to `_ROWS_AT_ONCE`.
def _insertion(table: str, columns: int, rows: int, on_conflict: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"INSERT INTO {table} VALUES {', '.join([row] * rows)} {on_conflict}"


def _page_faults(db: sqlite3.Connection, check: str) -> str:
    """Returns the faults of the pages of a file, found by a check of SQLite; empty: none."""
    try:
        found = [said for (said,) in db.execute(f"PRAGMA {check}")]
    except sqlite3.Error as error:
        found = [str(error)]
    return "" if found == ["ok"] else "; ".join(found).replace("\n", "; ")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    (value,) = db.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _space_of(db: sqlite3.Connection, path: Path) -> StoreSpace:
    size, pages, free = (
        _pragma(db, name) for name in ("page_size", "page_count", "freelist_count")
    )
    return StoreSpace((pages - free) * size, free * size, shutil.disk_usage(path).free)


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _opened(path: Path) -> closing[sqlite3.Connection]:
    """A connection to a file, which is created for its owner alone if it is missing.

    SQLite gives its files beside it, such as the journal, the same mode.
    """
    with suppress(OSError):  # The file exists, or SQLite will raise the reason.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ALONE))
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    db.text_factory = partial(str, encoding="utf-8", errors="replace")  # A checksum finds damage.
    return closing(db)


def _is_damage(error: sqlite3.Error) -> bool:
    name = getattr(error, "sqlite_errorname", "")
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            raise StoreFullError(f"{path}: {NO_ROOM} ({error})") from error
        if _is_damage(error):
            raise StoreDamagedError(f"{path}: {error}") from error
        if name.startswith("SQLITE_BUSY"):
            reason = "it is in use, here or by another process; each needs its own"
            raise StoreError(f"{path}: {reason}") from error
        raise StoreError(f"{path}: {error}") from error
