"""`SqliteTables`: queries to a table of SQLite.

Each value of SQLite has its own type, whatever its column declares; texts that are not UTF-8 are
bytes, as blobs are. In a column declared BOOLEAN 0 and 1 are truth values.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

from contrada.integrations.dialects.sql.sql_writer import Clause, quote
from contrada.integrations.sources.source_pushdown import (
    TABLE_BATCH_ROWS,
    Pushed,
    SqlColumn,
    is_boolean,
    place_of,
    pushed_to_sqlite,
)
from contrada.model import ValueSet
from contrada.model.algebra.value_set import NOTHING, of_keys
from contrada.model.domains.values import BOOL, NUMBER, key_of
from contrada.service.query.source_description import DESCRIBED_VALUES_MAX, within

_KINDS_OF_TABLES: Final = """
SELECT type FROM pragma_table_list
WHERE name = ?1 COLLATE NOCASE AND (?2 IS NULL OR schema = ?2 COLLATE NOCASE)
"""

_TRUTHS: Final = {0: False, 1: True}


class SqliteTables:
    """A read-only connection to SQLite. Another thread may close it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = _text
        connection.row_factory = None
        connection.execute("PRAGMA query_only = ON")
        if not connection.in_transaction:
            connection.execute("BEGIN")
        self.connection = connection
        self.pushed: Pushed = pushed_to_sqlite

    @classmethod
    def of_file(cls, path: str | Path) -> "SqliteTables":
        """Opens an existing file."""
        uri = f"{Path(path).absolute().as_uri()}?mode=ro"
        return cls(sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None))

    def columns(self, table: Sequence[str]) -> list[SqlColumn]:
        """See `Database`. Hidden columns of a virtual table are omitted."""
        query = "SELECT name, type FROM pragma_table_xinfo(?1, ?2) WHERE hidden <> 1 ORDER BY cid"
        schema = table[-2] if len(table) > 1 else None
        place = table[-1], schema
        kinds = self.connection.execute(_KINDS_OF_TABLES, place)
        is_typed = all(kind == "table" for (kind,) in kinds)
        rows = self.connection.execute(query, place)
        return [SqlColumn(_named(name), kind, is_typed=is_typed) for name, kind in rows]

    def rows(
        self, table: Sequence[str], columns: Sequence[SqlColumn], where: Clause
    ) -> Iterator[Sequence[Any]]:
        """See `Database`."""
        truths = [at for at, each in enumerate(columns) if is_boolean(each.type)]
        names = ", ".join(quote(each.name) for each in columns)
        text = f"SELECT {names} FROM {place_of(table)} WHERE {where.text}"
        cursor = self.connection.execute(text, where.parameters)
        while batch := cursor.fetchmany(TABLE_BATCH_ROWS):
            if truths:
                batch = [_with_truths(row, truths) for row in batch]
            yield from batch

    def described(self, table: Sequence[str], column: SqlColumn, _: object) -> ValueSet:
        """Returns the values of a column if they are few, else the range of each type."""
        name, place = quote(column.name), place_of(table)
        there = f"FROM {place} WHERE {name} IS NOT NULL"
        query = f"SELECT DISTINCT {name} COLLATE BINARY {there} LIMIT {DESCRIBED_VALUES_MAX + 1}"
        values = self.connection.execute(query).fetchall()
        if len(values) <= DESCRIBED_VALUES_MAX:
            return self._with_truths_of(column, of_keys([key_of(value) for (value,) in values]))
        kind = f"CASE typeof({name}) WHEN 'real' THEN 'integer' ELSE typeof({name}) END"
        ends = f"min({name} COLLATE BINARY), max({name} COLLATE BINARY)"
        found = self.connection.execute(f"SELECT {ends} {there} GROUP BY {kind}").fetchall()
        sets = [within(key_of(low), key_of(high)) for low, high in found]
        return self._with_truths_of(column, reduce(ValueSet.__or__, sets, NOTHING))

    def _with_truths_of(self, column: SqlColumn, values: ValueSet) -> ValueSet:
        """Adds truth values, if the numbers for them may occur."""
        if not is_boolean(column.type):
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


def _with_truths(row: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    changed = list(row)
    for at in places:
        if type(row[at]) is int:
            changed[at] = _TRUTHS.get(row[at], row[at])
    return changed
