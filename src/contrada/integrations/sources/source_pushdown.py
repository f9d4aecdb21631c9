"""Conditions that are pushed to a database: they accept all rows that may match, and few others.

All accepted rows are checked exactly again, so a condition may be wider than the query, and never
narrower:

    attribute                 pushed
    a column                  intervals of values that it can hold; NULL if absence matches
    a shape of text           presence of a value
    no column                 FALSE, unless absence matches, or values have attributes of their own

*SQLite* has types of values, not of columns: a column's affinity determines its possible values,
and comparisons convert by it. A column of affinity TEXT holds texts and blobs, one of NUMERIC,
INTEGER or REAL numbers, and texts that are no numbers; one of BLOB anything, without conversion.
NULL, numbers, texts and blobs follow in this order, so one comparison with '' separates texts and
blobs from numbers, and one with x'' blobs from texts; blobs are texts in the model. Order of texts
uses the collation BINARY; single values use the column's own, which has an index, and accepts more.
Columns of views and of virtual tables may ignore affinities: all values are accepted.

*PostgreSQL* has types of columns. Order of texts uses the collation "C". Its NaN is above all
numbers. A number is pushed to a column of doubles as an equal double; to one of integers any
integer, and doubles below 2^53, which compare exactly. Columns of other types (numeric, real, date,
arrays, JSON …) have a condition on presence only: their values compare differently.

Source: CU-CS-948-03 §4 (query application).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from contrada.integrations.dialects.sql import sql_writer as sql
from contrada.integrations.dialects.sql.sql_writer import FALSE, TRUE, Clause, quote
from contrada.model import Filter, ValueSet
from contrada.model.algebra.value_set import PRESENT, of_cuts
from contrada.model.domains import line
from contrada.model.domains import values as domains
from contrada.service.query.source_query import SourceQuery

TABLE_BATCH_ROWS: Final = 1_000
"""Rows of a table in memory at once. Beyond it: the next are fetched when these are consumed."""

PUSHED_CHARACTERS_MAX: Final = 50_000
"""Characters of a condition pushed to a database. Beyond it: all rows are checked here."""

PUSHED_VALUES_MAX: Final = 1_000
"""Values in a condition pushed to a database. Beyond it: all rows are checked here."""

EXACT_BELOW: Final = 2**53
"""Below this any database compares an integer and a double exactly."""


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column: its type, and whether its values may be objects, or of other types."""

    name: str
    type: Any
    has_objects: bool = False
    is_typed: bool = True


Pushed: TypeAlias = Callable[[SqlColumn, ValueSet], Clause]
"""Gives the condition on present values of a column; TRUE if nothing is known."""


def condition(question: SourceQuery, columns: Mapping[str, SqlColumn], pushed: Pushed) -> Clause:
    """Returns the condition on rows, with `?` for each parameter."""
    found = [
        sql.all_of([_side(n, v, columns, pushed) for n, v in each.sets.items()])
        for each in question.filters
    ]
    whole = sql.any_of(found)
    if len(whole.text) > PUSHED_CHARACTERS_MAX or len(whole.parameters) > PUSHED_VALUES_MAX:
        return TRUE
    return whole


def _side(name: str, values: ValueSet, columns: Mapping[str, SqlColumn], pushed: Pushed) -> Clause:
    column = column_of(name, values, columns)
    if isinstance(column, bool):
        return TRUE if column else FALSE
    present = values & PRESENT
    if present == PRESENT:
        there = Clause(f"{quote(name)} IS NOT NULL")
    elif present.text is not None:
        # Operators on text that are no intervals: the rest of the line, and all texts.
        there = pushed(column, of_cuts(line.union(present.line, line.ALL_TEXT)))
    else:
        there = pushed(column, present)
    if not values.holds(domains.ABSENT_KEY):
        return there
    return TRUE if there == TRUE else sql.any_of([Clause(f"{quote(name)} IS NULL"), there])


def column_of(name: str, values: ValueSet, columns: Mapping[str, SqlColumn]) -> SqlColumn | bool:
    """Returns the column for the condition on an attribute; without one, whether rows may match."""
    if domains.is_system_name(name):
        return True
    column = columns.get(name)
    if column is not None:
        return column.has_objects or not column.is_typed or column
    return values.holds(domains.ABSENT_KEY) or any(
        each.has_objects and name.startswith(f"{each.name}.") for each in columns.values()
    )


def place_of(table: Sequence[str]) -> str:
    """Returns the quoted name of a table."""
    return ".".join(map(quote, table))


# --- SQLite -----------------------------------------------------------------------------------

_SPELLS_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def affinity_of(declared: str) -> str:
    """Returns the affinity of a column by its declared type, by the rules of SQLite."""
    upper = declared.upper()
    for words, affinity in _AFFINITIES:
        if any(word in upper for word in words):
            return affinity
    return "NUMERIC" if upper else "BLOB"


_AFFINITIES: Final = (
    (("INT",), "INTEGER"),
    (("CHAR", "CLOB", "TEXT"), "TEXT"),
    (("BLOB",), "BLOB"),
    (("REAL", "FLOA", "DOUB"), "REAL"),
)


def is_boolean(declared: str) -> bool:
    """Whether 0 and 1 in a column of SQLite are truth values by its declared type."""
    return "BOOL" in declared.upper()


def pushed_to_sqlite(column: SqlColumn, values: ValueSet) -> Clause:
    """See the module."""
    affinity, name = affinity_of(column.type), quote(column.name)
    parts = []
    if affinity != "TEXT":
        parts.append(_of_kind(column.name, values, domains.NUMBER, sqlite=True))
    if is_boolean(column.type):
        parts.append(_of_kind(column.name, values, domains.BOOL, sqlite=True))
    texts = _domain(values, domains.TEXT)
    if not texts.is_empty:
        found = _texts(column.name, texts, collation="BINARY", sqlite=True)
        if affinity not in ("TEXT", "BLOB") and any(
            isinstance(each, str) and _SPELLS_NUMBER.fullmatch(each) for each in found.parameters
        ):
            found = Clause(f"{name} >= ''")  # It would be compared as the number.
        parts += [found, Clause(f"{name} >= x''")]
    return sql.any_of(parts)


# --- PostgreSQL -------------------------------------------------------------------------------

_POSTGRES: Final[Mapping[str, int]] = {
    "bool": domains.BOOL,
    **dict.fromkeys(("int2", "int4", "int8", "float8"), domains.NUMBER),
    **dict.fromkeys(("text", "varchar"), domains.TEXT),
    "timestamptz": domains.TIME,
}


def pushed_to_postgres(column: SqlColumn, values: ValueSet) -> Clause:
    """See the module."""
    tag = _POSTGRES.get(column.type)
    name, any_value = quote(column.name), Clause(f"{quote(column.name)} IS NOT NULL")
    if tag is None:
        return any_value
    if tag == domains.TEXT:
        found = _texts(column.name, _domain(values, domains.TEXT), collation="C", sqlite=False)
        return any_value if any("\0" in str(each) for each in found.parameters) else found
    found = _of_kind(column.name, values, tag, sqlite=False)
    if tag == domains.TIME:
        return Clause(found.text, tuple(map(domains.datetime_of, found.parameters)))  # type: ignore[arg-type]
    if tag != domains.NUMBER:
        return found
    parameters = [_number(each, column.type) for each in found.parameters]
    if None in parameters:
        return any_value
    found = Clause(found.text, tuple(parameters))  # type: ignore[arg-type]
    if column.type == "float8" and values.holds(domains.NAN_KEY):
        return sql.any_of([found, Clause(f"{name} = 'NaN'")])
    return found


def _number(given: Any, kind: str) -> int | float | None:
    """Returns a number that compares exactly with a column's; None if there is none."""
    if kind == "float8":
        held = float(given)
        return held if held == given else None
    if type(given) is int or abs(given) < EXACT_BELOW:
        return given  # type: ignore[no-any-return]
    return None


# --- both -------------------------------------------------------------------------------------


def _domain(values: ValueSet, tag: int) -> ValueSet:
    return values & of_cuts(line.domain(tag))


def _of_kind(name: str, values: ValueSet, tag: int, *, sqlite: bool, collation: str = "") -> Clause:
    inside = _domain(values, tag)
    if inside.is_empty:
        return FALSE
    return sql.where(
        Filter({name: inside}), {name: sql.KINDS[tag]}, sqlite=sqlite, collation=collation
    )


def _texts(name: str, texts: ValueSet, *, collation: str, sqlite: bool) -> Clause:
    """Returns intervals of text, by the model's order; single values in the column's collation."""
    cuts = texts.line
    if all(line.single(cuts[at : at + 2]) for at in range(0, len(cuts), 2)):
        collation = ""
    return _of_kind(name, texts, domains.TEXT, sqlite=sqlite, collation=collation)
