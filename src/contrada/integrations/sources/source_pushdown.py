"""Which rows a database is asked for: all that may answer, and not many more.

A condition is pushed to the database where it is proved to let through every row that answers; all
rows that come are decided exactly again. So what is pushed may be wider, and never narrower:

    attribute                 pushed
    a column                  intervals of values that it can hold; NULL, where absent answers
    a shape of text           nothing but that there is a value
    no column                 FALSE, unless absent answers, or values have attributes of their own

*SQLite* has types of values, not of columns: what a column can hold follows from its affinity, and
comparing converts by it. A column of affinity TEXT holds texts and blobs, one of NUMERIC or INTEGER
or REAL numbers, and texts that spell none; one of BLOB anything, and nothing is converted. NULL,
numbers, texts and blobs follow in this order, so one comparison with '' tells texts and blobs from
numbers, and one with x'' blobs from texts: blobs are texts of the model, and are decided after.
Order of texts is asked for in the collation BINARY; single values in the column's own, which has an
index, and takes more for equal but never less.

Values in columns of views and of virtual tables need not keep to affinities: all are asked for.

*PostgreSQL* has types of columns. Order of texts is asked for in the collation "C". Its NaN is
above all numbers. A number is pushed to a column of doubles as a double that it equals; to one of
integers any integer, and doubles below 2^53, where comparing is exact. Columns of other types
(numeric, real, date, arrays, JSON …) are asked for presence only: what their values become
compares otherwise.

Source: CU-CS-948-03 §4 (query application).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from contrada.integrations.dialects.sql.sql_writer import (
    FALSE,
    TRUE,
    Clause,
    ColumnKind,
    quote,
    where,
)
from contrada.model import Filter, ValueSet
from contrada.model.algebra.value_set import PRESENT, of_cuts
from contrada.model.domains import line
from contrada.model.domains.values import (
    ABSENT_KEY,
    BOOL,
    NAN_KEY,
    NUMBER,
    TEXT,
    TIME,
    datetime_of,
    is_system_name,
)
from contrada.service.query.source_query import SourceQuery

TABLE_BATCH_ROWS: Final = 1_000
"""Rows of a table that are held at once. Beyond it: the next are asked for when these are read."""

PUSHED_CHARACTERS_MAX: Final = 50_000
"""Characters of a condition that is pushed to a database. Beyond it: all rows are asked for, and
decided here."""

PUSHED_VALUES_MAX: Final = 1_000
"""Values in a condition that is pushed to a database. Beyond it: all rows are asked for, and
decided here."""

EXACT_BELOW: Final = 2**53
"""Below this an integer and a double are compared exactly by any database."""


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column, what its type is called, whether its values may be objects, or of other types."""

    name: str
    type: str
    has_objects: bool = False
    is_typed: bool = True


Pushed: TypeAlias = Callable[[SqlColumn, ValueSet], Clause]
"""The condition on a column for values that are present; TRUE where nothing is known."""


def condition(question: SourceQuery, columns: Mapping[str, SqlColumn], pushed: Pushed) -> Clause:
    """The condition on rows, with `?` for each parameter."""
    found = [
        _all([_side(n, v, columns, pushed) for n, v in each.sets.items()])
        for each in question.filters
    ]
    whole = _any(found)
    if len(whole.text) > PUSHED_CHARACTERS_MAX or len(whole.parameters) > PUSHED_VALUES_MAX:
        return TRUE
    return whole


def _side(name: str, values: ValueSet, columns: Mapping[str, SqlColumn], pushed: Pushed) -> Clause:
    """What is asked of one attribute."""
    if is_system_name(name):
        return TRUE
    column = columns.get(name)
    is_absent_good = values.holds(ABSENT_KEY)
    if column is None:
        may_be_inside = any(
            each.has_objects and name.startswith(f"{each.name}.") for each in columns.values()
        )
        return TRUE if is_absent_good or may_be_inside else FALSE
    if column.has_objects or not column.is_typed:
        return TRUE
    present = values & PRESENT
    if present == PRESENT:
        there = Clause(f"{quote(name)} IS NOT NULL")
    elif present.text is not None:
        # Operators on text that are no intervals: the rest of the line, and all texts.
        there = pushed(column, of_cuts(line.union(present.line, line.ALL_TEXT)))
    else:
        there = pushed(column, present)
    if not is_absent_good:
        return there
    return TRUE if there == TRUE else _any([Clause(f"{quote(name)} IS NULL"), there])


# --- SQLite -----------------------------------------------------------------------------------

_SPELLS_NUMBER: Final = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def affinity_of(declared: str) -> str:
    """The affinity of a column by its declared type, by the rules that SQLite states."""
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
    """Whether 0 and 1 in a column of SQLite are truth values, since it is declared so."""
    return "BOOL" in declared.upper()


def pushed_to_sqlite(column: SqlColumn, values: ValueSet) -> Clause:
    """See the module."""
    affinity = affinity_of(column.type)
    name = quote(column.name)
    parts = []
    if affinity != "TEXT":
        parts.append(_of_kind(column.name, values, NUMBER, sqlite=True))
    if is_boolean(column.type):
        parts.append(_of_kind(column.name, values, BOOL, sqlite=True))
    texts = _domain(values, TEXT)
    if not texts.is_empty:
        found = _texts(column.name, texts, collation="BINARY", sqlite=True)
        if affinity not in ("TEXT", "BLOB") and any(map(_spells_number, found.parameters)):
            found = Clause(f"{name} >= ''")  # It would be compared as the number.
        parts += [found, Clause(f"{name} >= x''")]
    return _any(parts)


def _spells_number(parameter: Any) -> bool:
    return isinstance(parameter, str) and _SPELLS_NUMBER.fullmatch(parameter) is not None


# --- PostgreSQL -------------------------------------------------------------------------------

_POSTGRES: Final[Mapping[str, int]] = {
    "bool": BOOL,
    "int2": NUMBER,
    "int4": NUMBER,
    "int8": NUMBER,
    "float8": NUMBER,
    "text": TEXT,
    "varchar": TEXT,
    "timestamptz": TIME,
}


def pushed_to_postgres(column: SqlColumn, values: ValueSet) -> Clause:
    """See the module."""
    tag = _POSTGRES.get(column.type)
    if tag is None:
        return Clause(f"{quote(column.name)} IS NOT NULL")
    if tag == TEXT:
        texts = _domain(values, TEXT)
        found = _texts(column.name, texts, collation="C", sqlite=False)
        is_sayable = not any("\0" in str(each) for each in found.parameters)
        return found if is_sayable else Clause(f"{quote(column.name)} IS NOT NULL")
    found = _of_kind(column.name, values, tag, sqlite=False)
    if tag == TIME:
        return Clause(found.text, tuple(map(datetime_of, found.parameters)))  # type: ignore[arg-type]
    if tag != NUMBER:
        return found
    parameters = [_number(each, column.type) for each in found.parameters]
    if None in parameters:
        return Clause(f"{quote(column.name)} IS NOT NULL")
    found = Clause(found.text, tuple(parameters))  # type: ignore[arg-type]
    if column.type == "float8" and values.holds(NAN_KEY):
        return _any([found, Clause(f"{quote(column.name)} = 'NaN'")])
    return found


def _number(given: Any, kind: str) -> int | float | None:
    """A number that is compared exactly with a column's; None for one that may not be."""
    if kind == "float8":
        held = float(given)
        return held if held == given else None
    if type(given) is int or abs(given) < EXACT_BELOW:
        return given  # type: ignore[no-any-return]
    return None


# --- both -------------------------------------------------------------------------------------


def _domain(values: ValueSet, tag: int) -> ValueSet:
    """The values of one domain."""
    return values & of_cuts(line.domain(tag))


_KINDS: Final[Mapping[int, ColumnKind]] = {
    BOOL: "boolean",
    NUMBER: "number",
    TEXT: "text",
    TIME: "time",
}


def _of_kind(name: str, values: ValueSet, tag: int, *, sqlite: bool, collation: str = "") -> Clause:
    """The condition on a column that holds one domain."""
    inside = _domain(values, tag)
    if inside.is_empty:
        return FALSE
    return where(Filter({name: inside}), {name: _KINDS[tag]}, sqlite=sqlite, collation=collation)


def _texts(name: str, texts: ValueSet, *, collation: str, sqlite: bool) -> Clause:
    """Intervals of text in a collation that orders as the model; single values in the column's."""
    if texts.is_empty:
        return FALSE
    cuts = texts.line
    if all(line.single(cuts[at : at + 2]) for at in range(0, len(cuts), 2)):
        collation = ""
    return _of_kind(name, texts, TEXT, sqlite=sqlite, collation=collation)


def _all(parts: list[Clause]) -> Clause:
    """All of the conditions."""
    held = [part for part in parts if part != TRUE]
    if FALSE in held:
        return FALSE
    return _joined(" AND ", held) if held else TRUE


def _any(parts: list[Clause]) -> Clause:
    """One of the conditions."""
    held = [part for part in parts if part != FALSE]
    if TRUE in held:
        return TRUE
    return _joined(" OR ", held) if held else FALSE


def _joined(word: str, parts: list[Clause]) -> Clause:
    if len(parts) == 1:
        return parts[0]
    text = word.join(f"({part.text})" for part in parts)
    return Clause(text, tuple(value for part in parts for value in part.parameters))
