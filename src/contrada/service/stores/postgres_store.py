"""`PostgresStore`: a store in a schema of a PostgreSQL database, for servers with backups.

The tables are those of `TableStore`, with names as bytes, independent of the encoding of the
database, and one more row:

    contrada_store   version; epoch: counts openings; written: counts groups

One process writes. It holds an advisory lock, which the server releases when the connection breaks.
So a new connection checks whether another process has opened the store meanwhile, and whether the
group without an answer to its commit was written. Each transaction checks, too.

Invariant: a process of an earlier epoch writes nothing, and no group is written twice.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from hashlib import blake2b
from itertools import count
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from contrada.errors import MissingRequirementError, StoreDamagedError, StoreError, StoreFullError
from contrada.service.stores.table_store import (
    NO_ROOM,
    VERSION,
    StoreSpace,
    Tables,
    TableStore,
    WriteGroup,
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
def _store_errors(place: str) -> Iterator[None]:
    """Turns errors of psycopg into those of a store."""
    try:
        yield
    except errors.DiskFull as error:
        raise StoreFullError(f"{place}: {NO_ROOM} ({error})") from error
    except (errors.DataCorrupted, errors.IndexCorrupted) as error:
        raise StoreDamagedError(f"{place}: {error}") from error
    except psycopg.Error as error:
        raise StoreError(f"{place}: {error}") from error


_PostgresConnection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

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

_READS: Final = f"SET statement_timeout = '{SILENCE_S}s'".encode()
"""The event loop waits for reads, a thread for writes."""


class PostgresStore(TableStore):
    """See `TableStore`. A read of records outside of memory costs a round trip to the server."""

    def __init__(self, url: str) -> None:
        """Opens `postgresql://user@host/database?schema=name`, or creates the schema.

        The rest of the URL is as for libpq. Raises StoreError: the schema holds something else, is
        in use, the database cannot be reached, or the server does not write commits to the disk.
        """
        self._conninfo, self._schema, place = _parts(url)
        super().__init__(place)
        with _store_errors(self.place), ExitStack() as stack:
            # Connections change when they break.
            self._db = self._opened()
            stack.callback(lambda: self._db.close())
            self._lock(self._db)
            self._make()
            version, epoch, written = self._found(self._db)
            if version != VERSION:
                raise StoreError(f"{place}: no store of version {VERSION}")
            if self._db.execute("SHOW fsync").fetchone() == ("off",):
                raise StoreError(f"{place}: its server has fsync off, so a crash loses all")
            self._epoch, self._written = epoch + 1, written
            self._db.execute("UPDATE contrada_store SET epoch = %s", (self._epoch,))
            self._reader = self._opened(_READS)
            stack.callback(lambda: self._reader.close())
            self._load(
                [(id, _text(name), *rest) for id, name, *rest in self._rows("logs")],
                [(_text(name), *rest) for name, *rest in self._rows("notes")],
            )
            self._connections = stack.pop_all()

    # --- connections --------------------------------------------------------------------------

    def _opened(self, settings: bytes = b"") -> _PostgresConnection:
        """A connection that commits each statement, and finds the tables."""
        with ExitStack() as stack:
            db = stack.enter_context(closing(psycopg.connect(self._conninfo, autocommit=True)))
            db.execute(_SETTINGS.encode() + settings)
            db.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(self._schema)))
            stack.pop_all()
        return db

    def _lock(self, db: _PostgresConnection) -> None:
        """Locks the store for as long as the connection lives."""
        name = f"contrada store {self._schema}".encode()
        key = int.from_bytes(blake2b(name, digest_size=8).digest(), "big", signed=True)
        try:
            with db.transaction():
                db.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_S * 1_000}".encode())
                db.execute("SELECT pg_advisory_lock(%s)", (key,))
        except errors.LockNotAvailable as error:
            raise StoreError(f"{self.place}: it is in use, here or by another process") from error

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

    def _found(self, db: _PostgresConnection) -> tuple[int, int, int]:
        """The version, the epoch, and the number of written groups."""
        found = db.execute("SELECT version, epoch, written FROM contrada_store").fetchall()
        if len(found) != 1:
            raise StoreError(f"{self.place}: contrada_store: expected one row, not {len(found)}")
        return found[0]

    def _rows(self, table: str) -> list[tuple[Any, ...]]:
        query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        return self._db.execute(query, binary=True).fetchall()

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

    def _asked(
        self, columns: str, number: int, first: int, end: int, most: int | None = None
    ) -> list[Any]:
        where = "WHERE log = %s AND position >= %s AND position < %s ORDER BY position LIMIT %s"
        query, asked = f"SELECT {columns} FROM records {where}".encode(), (number, first, end, most)
        with _store_errors(self.place):
            try:
                return self._reader.execute(query, asked, binary=True).fetchall()
            except psycopg.OperationalError:
                if not self._reader.closed:
                    raise
            # It may have broken long ago, and its server be there again.
            self._reader.close()
            self._reader = self._opened(_READS)
            return self._reader.execute(query, asked, binary=True).fetchall()

    def _write(self, group: WriteGroup) -> None:
        with _store_errors(self.place):
            if self._db.closed and self._is_written_after_all():
                return
            with self._db.transaction():
                found = self._epoch, self._written
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
            if epoch != self._epoch or written not in (self._written, self._written + 1):
                raise StoreError(
                    f"{self.place}: another process has opened it since, or its server went back to"
                    " an earlier state: what is not written yet never will be"
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


@contextmanager
def read_postgres(url: str) -> Iterator[Tables]:
    """The content of a store's schema at one moment; it may be in use. Raises StoreError."""
    conninfo, schema, place = _parts(url)
    with _store_errors(place), closing(psycopg.connect(conninfo)) as db:
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

        numbers, of_log = count(), "WHERE log = %s AND position >= %s ORDER BY position"
        tables = ("logs", "records", "notes")
        sizes = [next(rows("SELECT pg_total_relation_size(%s)", (name,))) for name in tables]
        logs = rows("SELECT id, name, head, sum FROM logs")
        notes = rows("SELECT name, value, sum FROM notes")
        yield Tables(
            place,
            [(number, _text(name), bytes(head), summed) for number, name, head, summed in logs],
            [(_text(name), bytes(value), summed) for name, value, summed in notes],
            lambda number, first: rows(
                f"SELECT position, time_us, data, sum FROM records {of_log}", (number, first)
            ),
            lambda: rows("SELECT log, position, time_us, before, sum, data FROM records"),
            StoreSpace(sum(size for (size,) in sizes)),
        )


def write_postgres(url: str, tables: Tables) -> str:
    """Fills an empty store, or creates one, in one transaction; its place. Raises StoreError."""
    with closing(PostgresStore(url)) as store:
        if store.logs() or store.notes() or store.damaged:
            raise StoreError(f"{store.place}: there is a store already; it is not written over")
        with _store_errors(store.place):
            store.fill(tables)
        return store.place


def _text(name: Any) -> str:
    return bytes(name).decode(errors="replace")


def _parts(url: str) -> tuple[str, str, str]:
    """The part for libpq, the schema, and the URL without secrets, for messages.

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
        found = conninfo_to_dict(f"{begin}?{rest}")
    except psycopg.Error as error:
        reason = str(error).strip()
        for secret in filter(None, (url, begin, password)):
            reason = reason.replace(secret, "…")
        raise StoreError(f"{place}: {reason}") from None
    return make_conninfo(**{**_SAID, **found}), schema, place  # type: ignore[arg-type]
