"""`PostgresTables`: queries to a table of PostgreSQL.

This module needs `psycopg`, and is imported only for such a table.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from contrada.integrations.dialects.sql.sql_writer import Clause, quote
from contrada.integrations.sources import source_pushdown as pushdown
from contrada.integrations.sources.source_rows import key_in
from contrada.model import ValueSet
from contrada.model.algebra.value_set import EVERYTHING, NOTHING, of_keys
from contrada.model.domains.values import NAN
from contrada.service.query.source import DESCRIBED_VALUES_MAX, within
from contrada.service.stores.postgres_store import conninfo_of

_TEXTS: Final = frozenset(("text", "varchar"))
_RANGED: Final = _TEXTS | {
    *("int2", "int4", "int8", "float4", "float8", "numeric"),
    *("timestamptz", "timestamp", "date"),
}
"""Types with the order of attribute values, so least and greatest values bound all."""

_COUNTED: Final = _RANGED | {"bool", "bpchar", "uuid"}
_OBJECTS: Final = frozenset(("json", "jsonb"))

_CATALOG: Final = """
SELECT a.attname::text, t.typname::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class PostgresTables:
    """A read-only connection to PostgreSQL, in one transaction."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self.connection = connection
        self.pushed: pushdown.Pushed = pushdown.pushed_to_postgres
        if connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            connection.autocommit = False
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    @classmethod
    def of_url(cls, url: str) -> "PostgresTables":
        """Opens a database by its libpq URL. One that is gone holds its thread for a time only."""
        return cls(psycopg.connect(conninfo_of(url)))

    def columns(self, table: Sequence[str]) -> list[pushdown.SqlColumn]:
        """See `Database`. The order of texts in other encodings than UTF-8 is unknown."""
        encoding = self.connection.info.parameter_status("server_encoding")
        unknown = frozenset() if encoding == "UTF8" else _TEXTS
        rows = self._asked(_CATALOG, (pushdown.place_of(table),))
        return [
            pushdown.SqlColumn(name, "" if kind in unknown else kind, has_objects=kind in _OBJECTS)
            for name, kind in rows
        ]

    def rows(
        self, table: Sequence[str], columns: Sequence[pushdown.SqlColumn], where: Clause
    ) -> Iterator[Sequence[Any]]:
        """See `Database`. A server-side cursor holds the remaining rows."""
        names = ", ".join(quote(each.name) for each in columns)
        text = f"SELECT {names} FROM {pushdown.place_of(table)} WHERE {where.text}"
        row_factory = psycopg.rows.tuple_row
        with self.connection.cursor(name="contrada", row_factory=row_factory) as cursor:
            cursor.itersize = pushdown.TABLE_BATCH_ROWS
            yield from cursor.execute(_with_places(text), where.parameters)

    def described(self, table: Sequence[str], column: pushdown.SqlColumn, zone: Any) -> ValueSet:
        """Returns a column's values if few, else their range; everything without a known order."""
        if column.type not in _COUNTED:
            return EVERYTHING
        name = quote(column.name) + (' COLLATE "C"' if column.type in _TEXTS else "")
        there = f"FROM {pushdown.place_of(table)} WHERE {quote(column.name)} IS NOT NULL"
        query = f"SELECT DISTINCT {name} {there} LIMIT {DESCRIBED_VALUES_MAX + 1}"
        found = self._asked(_with_places(query), ())
        if len(found) <= DESCRIBED_VALUES_MAX:
            return of_keys([key_in(value, zone) for (value,) in found])
        if column.type not in _RANGED:
            return EVERYTHING
        [(low, high)] = self._asked(_with_places(f"SELECT min({name}), max({name}) {there}"), ())
        if low is None:
            return NOTHING  # All rows may be deleted meanwhile if the connection is not ours.
        first, last = key_in(low, zone), key_in(high, zone)
        if NAN in (first[0], last[0]):
            return EVERYTHING  # NaN sorts above all numbers there, and hides the greatest number.
        return within(first, last)

    def _asked(self, text: str, parameters: Sequence[Any]) -> list[Sequence[Any]]:
        with self.connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            return list(cursor.execute(text, parameters).fetchall())


_PIECE: Final = re.compile(r"""("(?:[^"]|"")*")|('(?:[^']|'')*')|\?|%""")


def _with_places(text: str) -> str:
    """Returns the text with psycopg's placeholders; a `?` in names and texts stays."""
    return _PIECE.sub(lambda each: "%s" if each[0] == "?" else each[0].replace("%", "%%"), text)
