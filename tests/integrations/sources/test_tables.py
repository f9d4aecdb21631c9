"""Holds tables as sources: answers of SQLite and PostgreSQL equal those of filtering all rows."""

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contrada.errors import ContradaError, InputError, InvalidNameError, ServiceError
from contrada.integrations.sources import source_pushdown
from contrada.integrations.sources.source_pushdown import (
    SqlColumn,
    affinity_of,
    condition,
    pushed_to_sqlite,
)
from contrada.integrations.sources.table_source import TableSource
from contrada.model import Advertisement, Filter, ValueSet
from contrada.model.algebra.relations import meets
from contrada.service.query import source as descriptions
from contrada.service.query.source_query import SourceQuery
from tests.integrations.sources.rows import (
    BOUNDS,
    DOUBLES,
    INTEGERS,
    NUMBERS,
    ODD_NAMES,
    TEXTS,
    TIMES,
    counted,
    is_described,
    misanswered,
    questions,
)
from tests.postgres import needs_postgres, shared_server
from tests.strategies import more

BLOBS: Final = (b"", b"a", b"\xff", b"5")
ANYTHING: Final = (None, *NUMBERS, math.inf, *TEXTS, *BLOBS)
TYPES: Final = ("INTEGER", "REAL", "TEXT", "", "DATE", "BOOLEAN", "TEXT COLLATE NOCASE")
COLUMNS: Final = tuple(f"c{n}" for n in range(len(TYPES)))

sqlite_rows: Final = st.lists(st.tuples(*(st.sampled_from(ANYTHING) for _ in TYPES)), max_size=6)


def sqlite_source(rows: list[tuple[Any, ...]], **options: Any) -> tuple[TableSource, Any]:
    """A table of SQLite in memory with columns of all types, as a source; and its connection."""
    name = f"file:m{next(_NUMBERS)}?mode=memory&cache=shared"
    holding = sqlite3.connect(name, uri=True)
    declared = ", ".join(f"{n} {t}" for n, t in zip(COLUMNS, TYPES, strict=True))
    holding.execute(f"CREATE TABLE t ({declared})")
    holding.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(TYPES))})", rows)
    holding.execute("CREATE INDEX i ON t (c1)")
    holding.commit()
    return TableSource(lambda: sqlite3.connect(name, uri=True), "t", **options), holding


_NUMBERS: Final = count()


@given(sqlite_rows, questions((*COLUMNS, "other")))
@example([(1,) * 7, (None,) * 7], SourceQuery("c5 = true"))
@example([("a", "a", b"a", b"a", "a", "a", b"a")], SourceQuery("c2 = 'a' and c3 = 'a'"))
@example([("2020-01-02",) * 7], SourceQuery("c4 >= '2020' and c4 < '2021'"))
@example([("12a", "!x", "5", 5, "!x", 1, "A")], SourceQuery("c4 < '123' and c6 < 'a'"))
def test_sqlite_answers_as_all_rows_filtered(rows: list[Any], asked: SourceQuery) -> None:
    """A row would be left out by a condition that is narrower than the question."""
    source, holding = sqlite_source(rows)
    with closing(holding):
        every = list(source.answer(SourceQuery(Filter({}))))
        assert len(every) == len(rows)
        expected = [item for item in every if asked.answers(item)]
        assert counted(source.answer(asked)) == counted(expected)
        offer = source.describe(0)
        assert is_described(offer, every)
        if expected:
            assert meets(offer, asked.filters)


def test_sqlite_describes_the_range_of_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description would be narrower than a column of several types."""
    values = (None, *NUMBERS, *TEXTS, *BLOBS)
    for limit in (0, 3, 1000):
        monkeypatch.setattr(descriptions, "DESCRIBED_VALUES_MAX", limit)
        source, holding = sqlite_source([(value,) * len(TYPES) for value in values])
        with closing(holding):
            every = list(source.answer(SourceQuery(Filter({}))))
            offer = source.describe(0)
            assert isinstance(offer, Advertisement)
            assert is_described(offer, every)
            assert not meets(offer, Filter("other any"))
            assert meets(offer, Filter("c0 = 7")) == (limit < 1000)


def test_sqlite_compares_as_the_model() -> None:
    """Some value in some column would be compared otherwise, and its row be left out."""
    source, holding = sqlite_source([(value,) * len(TYPES) for value in ANYTHING])
    with closing(holding):
        assert misanswered(source, COLUMNS, (*BOUNDS[::4], *ANYTHING[1::2])) == []


def test_sqlite_uses_its_index(tmp_path: Path) -> None:
    """A query for few rows would read all of them."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (price REAL, symbol TEXT, day DATE)")
        for name in ("price", "symbol", "day"):
            db.execute(f"CREATE INDEX of_{name} ON t ({name})")
        columns = [("price", "REAL"), ("symbol", "TEXT"), ("day", "DATE")]
        known = {name: SqlColumn(name, kind) for name, kind in columns}
        for text in (
            "price < 5",
            "price > 5",
            "symbol = 'DIS'",
            "symbol prefix 'D'",
            "symbol in ('DIS', 'IBM') and price any",
            "day >= '2020-01-01' and day < '2020-02-01'",
            "price < 1 or symbol = 'IBM'",
        ):
            where = condition(SourceQuery(text), known, pushed_to_sqlite)
            plan = f"EXPLAIN QUERY PLAN SELECT * FROM t WHERE {where.text}"
            told = " ".join(row[-1] for row in db.execute(plan, where.parameters))
            if " OR " in where.text and sqlite3.sqlite_version_info >= (3, 50):
                continue  # It scans alternatives that have a collation.
            assert "SEARCH" in told, (text, where.text, told)
            assert "SCAN" not in told, (text, where.text, told)


def test_views_are_asked_for_all(tmp_path: Path) -> None:
    """A column of a view has a type that its values need not have: rows would be left out."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE t (a TEXT); CREATE TABLE u (a INTEGER);"
            "INSERT INTO t VALUES ('5'); INSERT INTO u VALUES (5);"
            "CREATE VIEW v AS SELECT a FROM t UNION ALL SELECT a FROM u;"
            "CREATE VIEW w AS SELECT a FROM u UNION ALL SELECT a FROM t;"
        )
    for view in ("v", "w"):
        source = TableSource(path, view)
        for value in (5, "5"):
            found = [item["a"] for item in source.answer(SourceQuery(Filter({"a": value})))]
            assert found == [value]
            assert meets(source.describe(0), Filter({"a": value}))


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_are_only_names(name: str, tmp_path: Path) -> None:
    """A column or a table would be read as part of a condition."""
    path = tmp_path / "data.db"
    table = f"t{name}"
    quoted = '"' + name.replace('"', '""') + '"'
    quoted_table = '"' + table.replace('"', '""') + '"'
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE {quoted_table} ({quoted}, x)")
        db.executemany(f"INSERT INTO {quoted_table} VALUES (?, ?)", [(1, 2), ("y", None)])
        db.commit()
    source = TableSource(path, table)
    asked = SourceQuery(Filter({name: 1}))
    assert [dict(item) for item in source.answer(asked)] == [{name: 1, "x": 2}]
    assert meets(source.describe(0), Filter({name: "y"}))
    assert not meets(source.describe(0), Filter({name: "z"}))


INJECTIONS: Final = (
    "' OR '1'='1",
    "'; DROP TABLE t; --",
    '" OR ""="',
    "x' UNION SELECT * FROM secret --",
    "\\'; DROP TABLE t; --",
    "%s",
    "?",
    "%(a)s",
    "$1",
)


@pytest.mark.parametrize("value", INJECTIONS)
def test_values_are_only_values(value: str, tmp_path: Path) -> None:
    """A value in a question would be read as part of a condition."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE t (a TEXT); CREATE TABLE secret (a TEXT);")
        db.executemany("INSERT INTO t VALUES (?)", [("plain",), (value,)])
        db.execute("INSERT INTO secret VALUES ('secret')")
        db.commit()
    source = TableSource(path, "t")
    for asked in (Filter({"a": value}), Filter({"a": ValueSet.parse("any") & _not(value)})):
        found = [item["a"] for item in source.answer(SourceQuery(asked))]
        assert found == [each for each in ("plain", value) if asked.matches({"a": each})]
    with pytest.raises(InputError):
        list(TableSource(path, value).answer(SourceQuery("a any")))
    with pytest.raises((InputError, InvalidNameError)):
        list(TableSource(path, "t", [value]).answer(SourceQuery("a any")))
    assert len(list(source.answer(SourceQuery("a any")))) == 2


def _not(value: str) -> ValueSet:
    return ~ValueSet.parse("= 'plain'") if value == "plain" else Filter({"a": value}).sets["a"]


def test_a_database_is_only_read(tmp_path: Path) -> None:
    """A source would change its data, or create a missing file."""
    path = tmp_path / "data.db"
    source = TableSource(path, "t")
    with pytest.raises(InputError, match=r"^data\.db: unable to open"):
        list(source.answer(SourceQuery("a any")))
    assert not path.exists()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (a)")
    connections = []

    def connect() -> sqlite3.Connection:
        connections.append(sqlite3.connect(path))
        return connections[-1]

    rows = TableSource(connect, "t").answer(SourceQuery("a any"))
    assert connections == []
    assert list(rows) == []
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections[0].execute("SELECT 1")
    left = TableSource(connect, "t").answer(SourceQuery(Filter({})))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO t VALUES (1)")
    assert next(left)["a"] == 1
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connections[1].execute("DELETE FROM t")
    left.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections[1].execute("SELECT 1")


def test_faults_are_reported(tmp_path: Path) -> None:
    """The owner of a table would not learn of a fault, or only far away."""
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute('CREATE TABLE t (a, "@id")')
    for table in ("", "a\0", ("a", "b", "c"), (), 3):
        with pytest.raises((ServiceError, TypeError)):
            TableSource(path, table)  # type: ignore[arg-type]
    for place in ("mysql://user:secret@host/db", "sqlite://x"):  # pragma: allowlist secret
        with pytest.raises(ServiceError) as caught:
            TableSource(place, "t")
        assert "secret" not in str(caught.value)
    with pytest.raises(ServiceError, match="expected a connection"):
        list(TableSource(lambda: 3, "t").answer(SourceQuery("a any")))
    with pytest.raises(InputError, match="no column 'b'; it has a"):
        list(TableSource(path, "t", ["b"]).answer(SourceQuery("a any")))
    with pytest.raises(InvalidNameError):
        list(TableSource(path, "t").answer(SourceQuery("a any")))
    assert (
        list(TableSource(f"sqlite:///{path}", ("main", "t"), ["a"]).answer(SourceQuery("a any")))
        == []
    )
    with pytest.raises(InputError, match="zone"):
        TableSource(path, "t", zone="Mars")


def test_a_long_condition_is_decided_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database would refuse a question with many values."""
    monkeypatch.setattr(source_pushdown, "PUSHED_VALUES_MAX", 3)
    known = {"a": SqlColumn("a", "TEXT")}
    short = condition(SourceQuery("a in ('x', 'y')"), known, pushed_to_sqlite)
    assert short.parameters == ("x", "y")
    long = condition(SourceQuery("a in ('x', 'y', 'z', 'w')"), known, pushed_to_sqlite)
    assert long.text == "1 = 1"


@pytest.mark.parametrize(
    ("declared", "affinity"),
    [
        ("BIGINT", "INTEGER"),
        ("FLOATING POINT", "INTEGER"),
        ("VARCHAR(5)", "TEXT"),
        ("DOUBLE", "REAL"),
        ("", "BLOB"),
        ("BLOB", "BLOB"),
        ("STRING", "NUMERIC"),
        ("DECIMAL(1)", "NUMERIC"),
    ],
)
def test_affinities(declared: str, affinity: str) -> None:
    """The values of a column would be assumed against SQLite's own rules."""
    assert affinity_of(declared) == affinity


# --- PostgreSQL -------------------------------------------------------------------------------

PG_COLUMNS: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "b": ("boolean", (True, False)),
    "i": ("bigint", INTEGERS),
    "j": ("integer", (0, 1, -1, 2**31 - 1)),
    "d": ("double precision", (*DOUBLES, math.nan)),
    "r": ("real", (0.5, 0.1, math.nan, math.inf)),
    "t": ("text", TEXTS),
    "v": ("varchar(20)", TEXTS),
    "c": ("char(3)", ("a", "ab", "")),
    "w": ("timestamptz", TIMES),
    "n": ("numeric", (Decimal("0.1"), Decimal("1" * 30), Decimal("0.12345678901234567890123"), 5)),
    "y": ("date", (date(2020, 1, 1), date(1999, 12, 31))),
    "k": ("jsonb", ('{"x": 1, "y": [1, 2]}', "5", '"a"', '{"x": {"z": "b"}}')),
    "l": ("integer[]", ([1, 2], [], [None, 3])),
    "u": ("uuid", (UUID(int=0), UUID(int=2**128 - 1))),
    "a%b?": ("text", ("?", "%s", "'")),
}
PG_NAMES: Final = (*PG_COLUMNS, "k.x", "k.x.z", "other")

pg_rows: Final = st.lists(
    st.tuples(*(st.sampled_from((None, *each)) for _, each in PG_COLUMNS.values())),
    min_size=3,
    max_size=6,
)


def all_values() -> list[tuple[Any, ...]]:
    """Rows with each value of each column once."""
    most = max(len(each) for _, each in PG_COLUMNS.values())
    return [
        tuple(each[n] if n < len(each) else None for _, each in PG_COLUMNS.values())
        for n in range(most)
    ]


def conninfo() -> str:
    """The URL of the shared server, as libpq has it."""
    return shared_server().url().partition("?schema=")[0]


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    """A connection with an empty table of many types."""
    import psycopg  # Needs the system's libpq, which a server brings along.
    from psycopg import sql

    with psycopg.connect(conninfo(), autocommit=True) as db:
        db.execute("CREATE SCHEMA IF NOT EXISTS query_tests")
        db.execute("DROP TABLE IF EXISTS query_tests.t")
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, (kind, _) in PG_COLUMNS.items()
        )
        db.execute(sql.SQL("CREATE TABLE query_tests.t ({})").format(columns))
        yield db


def fill(db: Any, rows: list[Any]) -> TableSource:
    """The table with these rows, as a source."""
    from psycopg import sql

    db.execute("TRUNCATE query_tests.t")
    if rows:
        places = sql.SQL(", ").join([sql.Placeholder()] * len(PG_COLUMNS))
        with db.cursor() as cursor:
            cursor.executemany(
                sql.SQL("INSERT INTO query_tests.t VALUES ({})").format(places), rows
            )
    return TableSource(conninfo(), ("query_tests", "t"))


@pytest.mark.slow
@needs_postgres
@more(0.15)
@given(data=st.data())
def test_postgres_answers_as_all_rows_filtered(postgres: Any, data: st.DataObject) -> None:
    """A row would be left out by a condition that is narrower than the question."""
    rows = data.draw(pg_rows)
    source = fill(postgres, rows)
    every = list(source.answer(SourceQuery(Filter({}))))
    assert len(every) == len(rows)
    offer = source.describe(0)
    assert is_described(offer, every)
    for _ in range(5):
        asked = data.draw(questions(PG_NAMES))
        expected = [item for item in every if asked.answers(item)]
        assert counted(source.answer(asked)) == counted(expected)
        if expected:
            assert meets(offer, asked.filters)


@pytest.mark.slow
@needs_postgres
def test_postgres_compares_as_the_model(postgres: Any) -> None:
    """Some value in some column would be compared otherwise, and its row be left out."""
    source = fill(postgres, all_values())
    names = set(PG_COLUMNS) - {"i", "d", "t", "v"}
    assert misanswered(source, ("i", "d"), (2**53 + 1, 2**63 - 1, 0.5, 2.0**63, math.nan)) == []
    assert misanswered(source, ("t",), TEXTS[::5]) == []
    assert misanswered(source, names, (0.1, "a", TIMES[1])) == []


@pytest.mark.quick_first
@needs_postgres
@pytest.mark.parametrize("limit", [0, 2, 1000])
def test_postgres_describes_the_range_of_many_values(
    postgres: Any, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A description would be narrower than a column."""
    monkeypatch.setattr("contrada.integrations.sources.postgres_tables.DESCRIBED_VALUES_MAX", limit)
    source = fill(postgres, all_values())
    every = list(source.answer(SourceQuery(Filter({}))))
    assert is_described(source.describe(0), every)
    without = TableSource(conninfo(), ("query_tests", "t"), ["i", "t", "w", "j"])
    offer = without.describe(0)
    assert isinstance(offer, Advertisement)
    assert not meets(offer, Filter("other any"))
    assert not meets(offer, Filter("j < -1"))


@pytest.mark.quick_every(4)
@needs_postgres
@pytest.mark.parametrize("value", INJECTIONS)
def test_values_are_only_values_in_postgres(postgres: Any, value: str) -> None:
    """A value in a question would be read as part of a condition."""
    row = dict.fromkeys(PG_COLUMNS)
    rows = [tuple({**row, "t": each}.values()) for each in ("plain", value)]
    source = fill(postgres, rows)
    assert [item["t"] for item in source.answer(SourceQuery(Filter({"t": value})))] == [value]
    assert [item["t"] for item in source.answer(SourceQuery(Filter({"t": "plain"})))] == ["plain"]
    with pytest.raises(InputError):
        list(TableSource(conninfo(), value).answer(SourceQuery("t any")))
    with pytest.raises(InputError):
        list(TableSource(conninfo(), ("query_tests", "t"), [value]).answer(SourceQuery("t any")))
    assert postgres.execute("SELECT count(*) FROM query_tests.t").fetchone() == (2,)


@needs_postgres
def test_postgres_is_only_read_and_closed(postgres: Any) -> None:
    """A source would write, leave connections open, or hold all rows at once."""
    import psycopg

    fill(postgres, [])
    postgres.execute("INSERT INTO query_tests.t (i) SELECT generate_series(1, 5000)")
    connections = []

    def connect() -> Any:
        connections.append(psycopg.connect(conninfo()))
        return connections[-1]

    source = TableSource(connect, ("query_tests", "t"))
    found = source.answer(SourceQuery("i > 10"))
    assert next(found)["i"] == 11
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        connections[0].execute("DELETE FROM query_tests.t")
    found.close()
    assert connections[0].closed
    assert sum(1 for _ in source.answer(SourceQuery("i > 10"))) == 4990
    assert all(each.closed for each in connections)


@needs_postgres
def test_postgres_values(postgres: Any) -> None:
    """An attribute would have another value than elsewhere."""
    postgres.execute("DROP TABLE IF EXISTS query_tests.odd")
    postgres.execute("CREATE TABLE query_tests.odd (a timestamp, b interval, c time, d numeric)")
    postgres.execute(
        "INSERT INTO query_tests.odd VALUES ('2020-07-01 12:00', '1 minute', '10:00', 0.25)"
    )
    where = ("query_tests", "odd")
    (found,) = TableSource(conninfo(), where, zone="Europe/Rome").answer(SourceQuery("d = 0.25"))
    assert dict(found) == {
        "a": datetime(2020, 7, 1, 10, tzinfo=UTC),
        "b": timedelta(minutes=1) // timedelta(microseconds=1),
        "c": time(10).isoformat(),
        "d": 0.25,
    }
    with pytest.raises(InputError, match="zone"):
        list(TableSource(conninfo(), where).answer(SourceQuery("d any")))
    with pytest.raises(ContradaError):
        list(TableSource(conninfo(), "odd").answer(SourceQuery("d any")))


@needs_postgres
def test_a_database_that_is_gone_is_noticed() -> None:
    """Each query would hold one of the threads of all sources, for hours."""
    from contrada.integrations.sources.postgres_tables import PostgresTables

    for url, idle_s in ((conninfo(), "10"), (f"{conninfo()}?keepalives_idle=77", "77")):
        with closing(PostgresTables.of_url(url).connection) as db:
            found = db.info.get_parameters()
        assert found["keepalives_idle"] == idle_s
        assert found["tcp_user_timeout"] == "30000"
