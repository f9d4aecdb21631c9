"""`TableSource`: a table, or a view, of SQLite or PostgreSQL as a source.

A query becomes a condition with parameters, as far as `source_pushdown` allows, and each accepted
row is checked exactly again. Names in a condition are quoted by the rules of SQL, and values are
parameters. The database is only read, by one connection for each answer. It is opened for the first
row and closed after the last, or with its reader.

Each query reads the columns and their types from the database.
"""

import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial, reduce
from itertools import product
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from contrada.errors import InputError, MissingRequirementError, ServiceError
from contrada.integrations.dialects.sql.sql_writer import Clause, quote
from contrada.integrations.files.time_formats import zone_of
from contrada.integrations.sources import source_pushdown as pushdown
from contrada.integrations.sources.source_rows import errors_at, items_of
from contrada.model import Notification, ValueSet
from contrada.model.algebra.value_set import NOTHING, of_keys
from contrada.model.domains.values import BOOL, NUMBER, check_user_name, key_of
from contrada.routing.router_messages import Offer
from contrada.service.query import source as descriptions
from contrada.service.query.source_query import SourceQuery
from contrada.service.subjects import Offered

_KINDS_OF_TABLES: Final = """
SELECT type FROM pragma_table_list
WHERE name = :name COLLATE NOCASE AND (:schema IS NULL OR schema = :schema COLLATE NOCASE)
"""

_TRUTHS: Final = {0: False, 1: True}


class SqliteTables:
    """A read-only connection to SQLite, which another thread may close. Each value has its own
    type, whatever its column declares; texts that are not UTF-8 are bytes. In a column declared
    BOOLEAN 0 and 1 are truth values.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = _text
        connection.row_factory = None
        connection.execute("PRAGMA query_only = ON")
        if not connection.in_transaction:
            connection.execute("BEGIN")
        self.connection = connection
        self.pushed: pushdown.Pushed = pushdown.pushed_to_sqlite

    @classmethod
    def of_file(cls, path: str | Path) -> "SqliteTables":
        """Opens an existing file."""
        uri = f"{Path(path).absolute().as_uri()}?mode=ro"
        with errors_at(Path(path).name, _is_of_database):
            db = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
        return cls(db)

    def columns(self, table: Sequence[str]) -> list[pushdown.SqlColumn]:
        """See `Database`. Hidden columns of a virtual table are omitted."""
        columns = "pragma_table_xinfo(:name, :schema)"
        query = f"SELECT name, type FROM {columns} WHERE hidden <> 1 ORDER BY cid"
        place = {"name": table[-1], "schema": table[-2] if len(table) > 1 else None}
        kinds = self.connection.execute(_KINDS_OF_TABLES, place)
        is_typed = all(kind == "table" for (kind,) in kinds)
        rows = self.connection.execute(query, place)
        return [pushdown.SqlColumn(_named(name), kind, is_typed=is_typed) for name, kind in rows]

    def rows(
        self, table: Sequence[str], columns: Sequence[pushdown.SqlColumn], where: Clause
    ) -> Iterator[Sequence[Any]]:
        truths = [at for at, each in enumerate(columns) if pushdown.is_boolean(each.type)]
        names = ", ".join(quote(each.name) for each in columns)
        text = f"SELECT {names} FROM {pushdown.place_of(table)} WHERE {where.text}"
        cursor = self.connection.execute(text, where.parameters)
        while batch := cursor.fetchmany(pushdown.TABLE_BATCH_ROWS):
            if truths:
                batch = [list(row) for row in batch]
                for row, at in product(batch, truths):
                    if type(row[at]) is int:
                        row[at] = _TRUTHS.get(row[at], row[at])
            yield from batch

    def described(self, table: Sequence[str], column: pushdown.SqlColumn, _: object) -> ValueSet:
        """Returns the values of a column if they are few, else the range of each type."""
        name, place = quote(column.name), pushdown.place_of(table)
        there = f"FROM {place} WHERE {name} IS NOT NULL"
        most = descriptions.DESCRIBED_VALUES_MAX
        query = f"SELECT DISTINCT {name} COLLATE BINARY {there} LIMIT {most + 1}"
        values = self.connection.execute(query).fetchall()
        if len(values) <= most:
            return self._with_truths_of(column, of_keys([key_of(value) for (value,) in values]))
        kind = f"CASE typeof({name}) WHEN 'real' THEN 'integer' ELSE typeof({name}) END"
        ends = f"min({name} COLLATE BINARY), max({name} COLLATE BINARY)"
        found = self.connection.execute(f"SELECT {ends} {there} GROUP BY {kind}").fetchall()
        sets = [descriptions.within(key_of(low), key_of(high)) for low, high in found]
        return self._with_truths_of(column, reduce(ValueSet.__or__, sets, NOTHING))

    def _with_truths_of(self, column: pushdown.SqlColumn, values: ValueSet) -> ValueSet:
        """Adds truth values, if the numbers for them may occur."""
        if not pushdown.is_boolean(column.type):
            return values
        found = [truth for number, truth in _TRUTHS.items() if values.holds((NUMBER, number))]
        return values | of_keys([(BOOL, truth) for truth in found])


def _named(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")


def _text(given: bytes) -> str | bytes:
    try:
        return given.decode()
    except UnicodeDecodeError:
        return given


class Database(Protocol):
    """A connection to a database of some kind."""

    connection: Any
    pushed: pushdown.Pushed

    def columns(self, table: Sequence[str]) -> list[pushdown.SqlColumn]:
        """Returns the columns of a table; an empty list if there is no such table."""

    def rows(
        self, table: Sequence[str], columns: Sequence[pushdown.SqlColumn], where: Clause
    ) -> Iterator[Sequence[Any]]:
        """Yields the rows for which a condition holds, in batches."""

    def described(self, table: Sequence[str], column: pushdown.SqlColumn, zone: Any) -> ValueSet:
        """Returns the values of a column."""


DatabaseConnector: TypeAlias = Callable[[], Any]


class TableSource(descriptions.DescribedSource):
    """A table of SQLite or PostgreSQL, each row an item.

    `connect` is the path of a SQLite file, a URL (`sqlite:///path`, `postgresql://…` as in libpq),
    or a function that opens a connection of `sqlite3` or `psycopg`, which is closed here. `table`
    is a name, or the names of a schema and a table. All columns are attributes, or those in
    `columns`. `zone` is the zone of times without one.

    `description` advertises the items; by default it is computed from the table, at most every
    `fresh_s` seconds: the range of each column, and its values if they are few.

    Raises ServiceError, InvalidNameError for an invalid table; errors of the database while it is
    queried become InputError.
    """

    def __init__(
        self,
        connect: str | Path | DatabaseConnector,
        table: str | Sequence[str],
        columns: Sequence[str] | None = None,
        *,
        zone: str | None = None,
        description: Offered | None = None,
        fresh_s: float = descriptions.FRESH_S,
    ) -> None:
        self._open = opener_of(connect)
        self._table = (table,) if isinstance(table, str) else tuple(table)
        if not 1 <= len(self._table) <= 2 or not all(map(_is_name, self._table)):
            raise ServiceError(f"table = {table!r}: expected a name, or a schema and a name")
        self._names = None if columns is None else tuple(map(check_user_name, columns))
        self._zone = zone
        if zone is not None:
            zone_of(zone)
        super().__init__(description, fresh_s)

    @property
    def place(self) -> str:
        """The place of a fault in errors."""
        return f"table {'.'.join(self._table)}"

    def answer(self, question: SourceQuery) -> Generator[Notification, None, None]:
        """See `DataSource`. Cost: a connection, and some microseconds for each accepted row."""
        with self._opened() as database:
            columns = self._columns(database)
            where = pushdown.condition(
                question, {each.name: each for each in columns}, database.pushed
            )
            rows = database.rows(self._table, columns, where)
            names = [each.name for each in columns]
            items = items_of(self.place, names, rows, self._zone)
            yield from filter(question.answers, items)

    def _describe(self) -> Offer:
        """Derives the description. Cost: some passes over the table."""
        with self._opened() as database:
            columns = self._columns(database)
            sets = {
                each.name: database.described(self._table, each, self._zone) for each in columns
            }
            is_whole = not any(each.has_objects for each in columns)
            return descriptions.description_of_columns(sets, is_whole=is_whole)

    @contextmanager
    def _opened(self) -> Iterator[Database]:
        """Opens a connection; its errors are raised with the place."""
        with errors_at(self.place, _is_of_database):
            database = self._open()
            with closing(database.connection):
                yield database

    def _columns(self, database: Database) -> list[pushdown.SqlColumn]:
        """Returns the columns that are attributes. Raises InputError for a missing one."""
        there = {each.name: each for each in database.columns(self._table)}
        if not there:
            raise InputError(self.place, "there is no such table, or it has no columns")
        names = list(there) if self._names is None else self._names
        for name in names:
            check_user_name(name)
            if name not in there:
                reason = f"there is no column {name!r}; it has {', '.join(there)}"
                raise InputError(self.place, reason)
        return [there[name] for name in names]


def _is_name(given: object) -> bool:
    return isinstance(given, str) and given != "" and "\0" not in given


def _is_of_database(error: Exception) -> bool:
    """Whether a driver raised it. Errors about values and connections have many types."""
    module = type(error).__module__
    return isinstance(error, sqlite3.Error) or module.partition(".")[0] == "psycopg"


def opener_of(connect: str | Path | DatabaseConnector) -> Callable[[], Database]:
    """Returns a function that opens the database. Raises ServiceError, MissingRequirementError."""
    if callable(connect):
        return partial(_known, connect)
    if isinstance(connect, Path) or "://" not in connect:
        return partial(SqliteTables.of_file, connect)
    scheme, _, place = connect.partition("://")
    if scheme == "sqlite" and place.startswith("/"):
        return partial(SqliteTables.of_file, place[1:])
    if scheme in ("postgresql", "postgres"):
        return partial(_postgres().of_url, connect)
    expected = "a path, sqlite:///path, postgresql://…, or a function that connects"
    raise ServiceError(f"cannot connect to {scheme}://…: expected {expected}")


def _known(connect: DatabaseConnector) -> Database:
    connection = connect()
    if isinstance(connection, sqlite3.Connection):
        return SqliteTables(connection)
    if type(connection).__module__.partition(".")[0] == "psycopg":
        return _postgres()(connection)  # type: ignore[no-any-return]
    if hasattr(connection, "close"):
        connection.close()
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise ServiceError(f"cannot ask a {kind}: expected a connection of sqlite3 or psycopg")


def _postgres() -> Any:
    try:
        from contrada.integrations.sources.postgres_tables import PostgresTables
    except ImportError:
        remedy = "pip install 'contrada[postgres]' 'psycopg[binary]', which brings libpq along"
        raise MissingRequirementError("psycopg", remedy) from None
    return PostgresTables
