"""`PostgresStore`: a store in a schema of a PostgreSQL database, for servers with backups.

The tables are those of `TableStore`, with names as bytes, independent of the encoding of the
database, and one more row:

    contrada_store   version; epoch: counts openings; written: counts groups

One process writes; others may `follow` it. It holds an advisory lock, which the server releases
when the connection breaks. So a new connection checks whether another process has opened the store
meanwhile, and whether the group without an answer to its commit was written. Each transaction
checks, too.

Invariant: a process of an earlier epoch writes nothing, and no group is written twice.
"""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import blake2b
from itertools import count
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from contrada.delivery.store import StoreChanges, StoredRecord
from contrada.errors import (
    LeaseError,
    MissingRequirementError,
    StoreDamagedError,
    StoreError,
    StoreFullError,
)
from contrada.service.stores.table_store import (
    NO_ROOM,
    VERSION,
    StoreSpace,
    Tables,
    TableStore,
    WriteGroup,
    check_version,
)

try:
    import psycopg
    from psycopg import errors, sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError:
    _REMEDY: Final = "pip install 'contrada[postgres]' 'psycopg[binary]', which brings libpq along"
    raise MissingRequirementError("psycopg", _REMEDY) from None

SCHEMA: Final = "contrada"
"""The schema of a store whose URL has no `?schema=`."""

SCHEMA_BYTES_MAX: Final = 63
"""Bytes of the name of a schema in UTF-8, as PostgreSQL has it. Beyond it: StoreError."""

DATABASE_WAIT_S: Final = 5
"""Seconds that connecting to a database waits. Beyond it: StoreError; it is tried again."""

SILENCE_S: Final = 30
"""Seconds of silence of a database while it is read, or over TCP. Beyond it: the connection counts
as broken, StoreError; it is tried again."""

LOCK_WAIT_S: Final = 1
"""Seconds that opening a store waits for another process with its lock. Beyond it: StoreError."""


@contextmanager
def store_errors(place: str) -> Iterator[None]:
    """Turns errors of psycopg into StoreError."""
    try:
        yield
    except errors.DiskFull as error:
        raise StoreFullError(f"{place}: {NO_ROOM} ({error})") from error
    except (errors.DataCorrupted, errors.IndexCorrupted) as error:
        raise StoreDamagedError(f"{place}: {error}") from error
    except psycopg.Error as error:
        raise StoreError(f"{place}: {error}") from error


PostgresConnection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_TABLES: Final = f"""
CREATE TABLE contrada_store (
    version BIGINT NOT NULL, epoch BIGINT NOT NULL, written BIGINT NOT NULL
);
INSERT INTO contrada_store VALUES ({VERSION}, 0, 0);
CREATE TABLE logs (
    id BIGINT PRIMARY KEY, name BYTEA NOT NULL, head BYTEA NOT NULL, sum BIGINT NOT NULL
);
CREATE TABLE records (
    log BIGINT, position BIGINT, before BIGINT NOT NULL, time_us BIGINT NOT NULL,
    data BYTEA NOT NULL, sum BIGINT NOT NULL,
    PRIMARY KEY (log, position)
);
CREATE TABLE notes (name BYTEA NOT NULL, value BYTEA NOT NULL, sum BIGINT NOT NULL);
-- A name may be longer than what an index takes.
CREATE UNIQUE INDEX ON notes (sha256(name));
"""

_SAID: Final = {
    "connect_timeout": DATABASE_WAIT_S,
    "keepalives_idle": SILENCE_S // 3,
    "keepalives_interval": SILENCE_S // 3,
    "keepalives_count": 2,
    "tcp_user_timeout": SILENCE_S * 1_000,
    "application_name": "contrada",
    "client_encoding": "utf8",
}
"""Default properties of a connection."""

_SETTINGS: Final = f"""
SET synchronous_commit = on;
SET tcp_keepalives_idle = {SILENCE_S // 3};
SET tcp_keepalives_interval = {SILENCE_S // 3};
SET tcp_keepalives_count = 2;
"""

_FOLLOWS: Final = f"""
SET default_transaction_read_only = on; SET statement_timeout = '{SILENCE_S}s'
""".encode()
_LEADS: Final = b"RESET default_transaction_read_only; RESET statement_timeout"

_HORIZON: Final = "SELECT txid_snapshot_xmin(txid_current_snapshot()) % 4294967296"
_SINCE: Final = "WHERE age(xmin) <= (SELECT age(%s::text::xid))"
"""Rows of transactions that had not ended at an earlier moment, and maybe others."""

_READS: Final = f"SET statement_timeout = '{SILENCE_S}s'".encode()
"""The event loop waits for reads, a thread for writes."""


class PostgresStore(TableStore):
    """See `TableStore`. A read of records outside of memory costs a round trip to the server."""

    def __init__(self, url: str, *, opens: bool = True) -> None:
        """Opens `postgresql://user@host/database?schema=name`, or creates the schema.

        The rest of the URL is as for libpq. With `opens=False` that is left to `open`, and until
        then the store may be followed. Raises StoreError: the schema holds something else, is in
        use, the database cannot be reached, or the server does not write commits to the disk.
        """
        self._conninfo, self._schema, place = url_parts(url)
        super().__init__(place)
        self._follower: PostgresConnection | None = None
        self._horizon: tuple[int] | None = None
        self.check_lease: Callable[[], None] | None = None
        self.epoch, self._written = 0, -1
        self._is_open = False
        if opens:
            self.open()

    def open(self) -> StoreChanges:
        """Opens the store to write. Returns what has changed since it was followed.

        Raises StoreError as the constructor.
        """
        with store_errors(self.place), ExitStack() as stack:
            # Connections change when they break.
            self._db = self._leading_connection()
            self._follower = None
            stack.callback(lambda: self._db.close())
            self._lock(self._db)
            self._make()
            version, epoch, written = self._found(self._db)
            check_version(self.place, version)
            if self._db.execute("SHOW fsync").fetchone() == ("off",):
                raise StoreError(f"{self.place}: its server has fsync off, so a crash loses all")
            self.epoch, self._written = epoch + 1, written
            self._db.execute("UPDATE contrada_store SET epoch = %s", (self.epoch,))
            self._reader = self._opened(_READS)
            stack.callback(lambda: self._reader.close())
            changes = self._read_changes(self._db)
            self._connections, self._is_open = stack.pop_all(), True
        return changes

    # --- following ----------------------------------------------------------------------------

    def follow(self) -> StoreChanges:
        """Reads what the process that writes has changed since the last call; all at the first.

        The connection is read-only. Raises StoreError, and the next call returns the changes. Cost:
        a scan of the heads and notes in the database, and the changes. May run in a thread.
        """
        with store_errors(self.place):
            if self._follower is None or self._follower.closed:
                # Another server may have other numbers of transactions and groups.
                self._horizon, self._written = None, -1
                self._follower = self._opened(_FOLLOWS)
            if self._follower.execute("SELECT to_regclass('contrada_store')").fetchone() == (None,):
                return StoreChanges((), ())
            version, epoch, written = self._found(self._follower)
            check_version(self.place, version)
            if (epoch, written) == (self.epoch, self._written):
                return StoreChanges((), ())
            changes = self._read_changes(self._follower)
            self.epoch, self._written = epoch, written
            return changes

    def _leading_connection(self) -> PostgresConnection:
        """Returns the connection that followed, if it lives: it knows what it has read."""
        if self._follower is not None:
            try:
                self._follower.execute(_LEADS)
            except psycopg.OperationalError:
                self._follower.close()
            else:
                return self._follower
        self._horizon = None
        return self._opened()

    def _read_changes(self, db: PostgresConnection) -> StoreChanges:
        """Loads the rows of a snapshot that may have changed since the one before."""
        if self.damaged:  # A row that is sound again may be as it was before.
            self.damaged.clear()
            self._horizon = None
        since = self._horizon
        where = "" if since is None else _SINCE
        with db.transaction():
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            horizon = db.execute(_HORIZON).fetchone()
            logs, notes = (
                db.execute(f"SELECT * FROM {table} {where}".encode(), since, binary=True).fetchall()
                for table in ("logs", "notes")
            )
            log_rows = [(id, _text(name), *rest) for id, name, *rest in logs]
            note_rows = [(_text(name), *rest) for name, *rest in notes]
            logs_gone = self._gone(db, "logs", {*self._logs, *(row[1] for row in log_rows)})
            notes_gone = self._gone(db, "notes", {*self._notes, *(row[0] for row in note_rows)})
        for log in logs_gone:
            del self._logs[log]
        for note in notes_gone:
            del self._notes[note]
        changed, self._horizon = self._load(log_rows, note_rows), horizon
        return StoreChanges([*changed.logs, *logs_gone], [*changed.notes, *notes_gone])

    def _gone(self, db: PostgresConnection, table: str, names: set[str]) -> set[str]:
        """Returns the names that a table has no longer, which mostly its count shows."""
        if db.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (len(names),):
            return set()
        found = db.execute(f"SELECT name FROM {table}".encode(), binary=True)
        return names.difference(_text(name) for (name,) in found)

    def append(self, log: str, records: Sequence[bytes], time_us: int) -> int:
        """See `Store.append`. Raises StoreError before the store is open."""
        if not self._is_open:
            raise StoreError(f"{self.place}: it is not open, so {log!r} cannot be written")
        return super().append(log, records, time_us)

    def close(self) -> None:
        """See `TableStore.close`; also while it is followed."""
        if self._follower is not None:
            self._follower.close()
        if self._is_open:
            self._is_open = False
            super().close()

    # --- connections --------------------------------------------------------------------------

    def _opened(self, settings: bytes = b"") -> PostgresConnection:
        return open_connection(self._conninfo, self._schema, settings)

    def _lock(self, db: PostgresConnection) -> None:
        key = lock_key(self._schema)
        try:
            with db.transaction():
                db.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_S * 1_000}".encode())
                db.execute("SELECT pg_advisory_lock(%s)", (key,))
        except errors.LockNotAvailable as error:
            reason = "it is in use, here or by another process; each needs its own"
            raise StoreError(f"{self.place}: {reason}") from error

    def _make(self) -> None:
        """Creates the tables if the schema is missing, or empty."""
        found = self._db.execute("SELECT oid FROM pg_namespace WHERE nspname = %s", (self._schema,))
        schema = found.fetchone()
        if schema is not None:
            query = "SELECT relname FROM pg_class WHERE relnamespace = %s"
            names = {name for (name,) in self._db.execute(query, schema)}
            if names and "contrada_store" not in names:
                raise StoreError(f"{self.place}: no store of version {VERSION}")
            if names:
                return
        with self._db.transaction():
            if schema is None:
                self._db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self._schema)))
            self._db.execute(_TABLES)

    def _found(self, db: PostgresConnection) -> tuple[int, int, int]:
        """The version, the epoch, and the number of written groups."""
        found = db.execute("SELECT version, epoch, written FROM contrada_store").fetchall()
        if len(found) != 1:
            raise StoreError(f"{self.place}: contrada_store: expected one row, not {len(found)}")
        return found[0]

    def fill(self, tables: Tables) -> None:
        """Writes all rows of another store, in one transaction."""
        filled = {
            "logs (id, name, head, sum)": [(n, name.encode(), *r) for n, name, *r in tables.logs],
            "notes (name, value, sum)": [(name.encode(), *rest) for name, *rest in tables.notes],
            "records (log, position, time_us, before, sum, data)": tables.all_records(),
        }
        with self._db.transaction(), self._db.cursor() as cursor:
            for columns, rows in filled.items():
                with cursor.copy(f"COPY {columns} FROM STDIN".encode()) as copy:
                    for row in rows:
                        copy.write_row(row)

    # --- records ------------------------------------------------------------------------------

    def read(self, log: str, first: int, count: int) -> list[StoredRecord]:
        """See `Store.read`. Raises LeaseError after the end of a lease."""
        if self.check_lease is not None:
            self.check_lease()
        return super().read(log, first, count)

    def _asked(
        self, columns: str, number: int, first: int, end: int, most: int | None = None
    ) -> list[Any]:
        where = "WHERE log = %s AND position >= %s AND position < %s ORDER BY position LIMIT %s"
        query, asked = f"SELECT {columns} FROM records {where}".encode(), (number, first, end, most)
        with store_errors(self.place):
            try:
                return self._reader.execute(query, asked, binary=True).fetchall()
            except psycopg.OperationalError:
                if not self._reader.closed:
                    raise
            # It may have broken long ago, and its server be there again.
            if self.check_lease is not None:
                self.check_lease()
            self._reader.close()
            self._reader = self._opened(_READS)
            return self._reader.execute(query, asked, binary=True).fetchall()

    def interrupt(self) -> None:
        """Breaks the connections, so that calls in other threads fail now with StoreError."""
        for each in self._db, self._reader:
            # Closing libpq's connection would free it while another thread uses it.
            with (
                suppress(psycopg.Error, OSError),
                socket.socket(fileno=os.dup(each.fileno())) as own,
            ):
                own.shutdown(socket.SHUT_RDWR)

    def _bring(self) -> None:
        """See `TableStore`. Raises LeaseError after the end of a lease, also without a group.

        Else a leader that was paused would still hand out the records that it has read before.
        """
        if self.check_lease is not None:
            self.check_lease()
        super()._bring()

    def _write(self, group: WriteGroup) -> None:
        try:
            self._write_once(group)
        except (StoreFullError, StoreDamagedError):
            raise
        except StoreError as error:
            if self.check_lease is None:
                raise
            raise LeaseError(error.reason) from error  # It is written later, or never here.

    def _write_once(self, group: WriteGroup) -> None:
        with store_errors(self.place):
            if self._db.closed and self._is_written_after_all():
                return
            with self._db.transaction():
                found = self.epoch, self._written
                where = "WHERE epoch = %s AND written = %s"
                done = self._db.execute(
                    f"UPDATE contrada_store SET written = written + 1 {where}".encode(), found
                )
                if done.rowcount == 1:
                    self._fill(group)
            if done.rowcount != 1:
                self._db.close()  # When it is tried again it is found out why.
                raise StoreError(f"{self.place}: it has changed meanwhile")
            self._written += 1

    def _is_written_after_all(self) -> bool:
        """Reconnects; returns whether the group without an answer to its commit was written."""
        self._db.close()
        with ExitStack() as stack:
            db = stack.enter_context(closing(self._opened()))
            self._lock(db)
            _, epoch, written = self._found(db)
            if epoch != self.epoch or written not in (self._written, self._written + 1):
                raise StoreError(
                    f"{self.place}: another process has opened it since, or its server was restored"
                    " to an earlier state: pending writes are lost"
                )
            stack.pop_all()
        self._db = db
        is_written = written > self._written
        self._written = written
        return is_written

    def _fill(self, group: WriteGroup) -> None:
        db = self._db
        if group.rows:
            columns = "(log, position, before, time_us, data, sum)"
            copying = f"COPY records {columns} FROM STDIN (FORMAT BINARY)".encode()
            with db.cursor() as cursor, cursor.copy(copying) as copy:
                copy.set_types(["int8", "int8", "int8", "int8", "bytea", "int8"])
                for row in group.rows:
                    copy.write_row(row)
        with db.pipeline(), db.cursor() as cursor:
            cursor.executemany(
                "DELETE FROM records WHERE log = %s AND position < %s", group.truncated.items()
            )
            if group.dropped:
                cursor.execute("DELETE FROM records WHERE log = ANY(%s)", (group.dropped,))
                cursor.execute("DELETE FROM logs WHERE id = ANY(%s)", (group.dropped,))
            heads = [(id, name.encode(), *rest) for id, name, *rest in group.head_rows()]
            cursor.executemany(
                "INSERT INTO logs VALUES (%s, %s, %b, %s) ON CONFLICT (id)"
                " DO UPDATE SET head = EXCLUDED.head, sum = EXCLUDED.sum",
                heads,
            )
            gone = [(name.encode(),) for (name,) in group.notes_gone()]
            cursor.executemany("DELETE FROM notes WHERE sha256(name) = sha256(%s)", gone)
            notes = [(name.encode(), *rest) for name, *rest in group.note_rows()]
            cursor.executemany(
                "INSERT INTO notes VALUES (%s, %b, %s) ON CONFLICT (sha256(name))"
                " DO UPDATE SET value = EXCLUDED.value, sum = EXCLUDED.sum",
                notes,
            )


def open_connection(conninfo: str, schema: str, settings: bytes = b"") -> PostgresConnection:
    """Returns a connection that commits each statement, and finds the tables of a schema.

    Raises psycopg.Error.
    """
    with ExitStack() as stack:
        db = stack.enter_context(closing(psycopg.connect(conninfo, autocommit=True)))
        db.execute(_SETTINGS.encode() + settings)
        db.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        stack.pop_all()
    return db


def lock_key(schema: str) -> int:
    """Returns the key of the advisory lock of the store in a schema."""
    name = f"contrada store {schema}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big", signed=True)


@contextmanager
def read_postgres(url: str) -> Iterator[Tables]:
    """The content of a store's schema at one moment; it may be in use. Raises StoreError."""
    conninfo, schema, place = url_parts(url)
    with store_errors(place), closing(psycopg.connect(conninfo)) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.read_only = True
        db.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        if db.execute("SELECT to_regclass('contrada_store')").fetchone() == (None,):
            raise StoreError(f"{place}: there is no store")
        if db.execute("SELECT version FROM contrada_store").fetchall() != [(VERSION,)]:
            raise StoreError(f"{place}: no store of version {VERSION}")

        def rows(query: str, asked: tuple[int | str, ...] = ()) -> Iterator[Any]:
            with db.cursor(f"c{next(numbers)}", binary=True) as cursor:
                yield from cursor.execute(query.encode(), asked)

        numbers = count()
        of_log = "WHERE log = %s AND position >= %s AND position < %s ORDER BY position"
        tables = ("logs", "records", "notes")
        sizes = [next(rows("SELECT pg_total_relation_size(%s)", (name,))) for name in tables]
        logs = rows("SELECT id, name, head, sum FROM logs")
        notes = rows("SELECT name, value, sum FROM notes")
        yield Tables(
            place,
            [(number, _text(name), bytes(head), summed) for number, name, head, summed in logs],
            [(_text(name), bytes(value), summed) for name, value, summed in notes],
            lambda *asked: rows(
                f"SELECT position, time_us, data, sum FROM records {of_log}", asked
            ),
            lambda: rows("SELECT log, position, time_us, before, sum, data FROM records"),
            StoreSpace(sum(size for (size,) in sizes)),
        )


def write_postgres(url: str, tables: Tables) -> str:
    """Fills an empty store, or creates one, in one transaction; its place. Raises StoreError."""
    with closing(PostgresStore(url)) as store:
        if store.logs() or store.notes() or store.damaged:
            raise StoreError(f"{store.place}: there is a store already; it is not written over")
        with store_errors(store.place):
            store.fill(tables)
        return store.place


def _text(name: Any) -> str:
    return bytes(name).decode(errors="replace")


def url_parts(url: str) -> tuple[str, str, str]:
    """Returns the part for libpq, the schema, and the URL without secrets, for messages.

    Raises StoreError for an invalid URL.
    """
    begin, _, query = url.partition("?")
    said = [each.partition("=") for each in query.split("&") if each]
    schemas = [unquote(value) for name, _, value in said if name == "schema"]
    schema = schemas[-1] if schemas else SCHEMA
    scheme, _, whole = begin.partition("://")
    who, at, where = whole.rpartition("@")
    user, _, password = who.partition(":")
    place = f"{scheme}://{user}{at}{where}?schema={schema}"
    if not 0 < len(schema.encode()) <= SCHEMA_BYTES_MAX:
        raise StoreError(f"{place}: expected a schema of 1 to {SCHEMA_BYTES_MAX} bytes")
    rest = "&".join(name + sign + value for name, sign, value in said if name != "schema")
    try:
        return conninfo_of(f"{begin}?{rest}"), schema, place
    except psycopg.Error as error:
        reason = str(error).strip()
        for secret in filter(None, (url, begin, password)):
            reason = reason.replace(secret, "…")
        raise StoreError(f"{place}: {reason}") from None


def conninfo_of(url: str) -> str:
    """Returns the properties of a connection, with our time-outs unless the URL has its own.

    Raises psycopg.Error for an invalid URL.
    """
    return make_conninfo(**{**_SAID, **conninfo_to_dict(url)})  # type: ignore[arg-type]
