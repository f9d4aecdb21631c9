"""Rows of a CSV file counted by predicate, beside the engines of analysis: DuckDB and Polars.

The flights of `bench_records`, from the file to the number of rows that each predicate matches.
The peers read only the columns that they need, on one thread. For five predicates they evaluate
each one in a single pass; for 1,000 they join rows and predicates by the equal text, which is
faster there than 1,000 expressions.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, Final

from bench.bench_records import PREDICATES, SAMPLES, SQL, TYPES, flights
from bench.harness import Measurement, figure
from contrada.integrations.files import Matcher, ReadOptions
from contrada.integrations.files.record_matcher import MatchedRecord
from contrada.model import parse

os.environ.setdefault("POLARS_MAX_THREADS", "1")

MANY: Final = 1_000
DESTINATIONS: Final = ("ATL", "BOS", "CLT", "DCA", "FLL", "LAX", "MCO", "MIA", "ORD", "SFO", "IAH")

_SQL: Final = [sql.replace("startswith", "starts_with") for sql in SQL.values()]

Range = tuple[str, int, int]
"""A destination, and the bounds of the delay of a departure."""

Counts = Mapping[int, int]
"""The number of matched rows by predicate; without the predicates that match none."""


def ranges() -> Iterator[Range]:
    """Yields the 1,000 predicates."""
    chance = random.Random(1)
    for _ in range(MANY):
        low = chance.randrange(-20, 200)
        yield chance.choice(DESTINATIONS), low, low + chance.randrange(1, 40)


def by_contrada(predicates: Sequence[str]) -> Callable[[Path], Counts]:
    """Returns the count by `Matcher`, as `contrada match` does it."""
    options = ReadOptions(types=TYPES, absent=frozenset({"NA"}))

    def count(path: Path) -> Counts:
        matcher = Matcher([parse(text) for text in predicates], options, 0)  # type: ignore[misc]
        matcher.packs = True
        found: Counter[int] = Counter()
        for outcomes in matcher.file(path, "csv", path.name):
            if outcomes.packed is not None:
                for positions in outcomes.packed.positions:
                    found.update(positions)
            for each in outcomes.records:
                assert isinstance(each, MatchedRecord), each
                found.update(each.positions)
        return found

    return count


def duckdb_query(query: str, path: Path) -> Sequence[Any]:
    """Returns the rows of a query on one thread; `{}` is the table."""
    import duckdb

    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        table = f"read_csv('{path}', nullstr = 'NA')"
        return connection.execute(query.format(table)).fetchall()


def duckdb_five(path: Path) -> Counts:
    """Returns the counts of the five predicates."""
    counts = ", ".join(f"count(*) FILTER (WHERE {sql})" for sql in _SQL)
    (row,) = duckdb_query(f"SELECT {counts} FROM {{}}", path)
    return dict(enumerate(row))


def duckdb_many(path: Path) -> Counts:
    """Returns the counts of the 1,000 predicates."""
    values = ", ".join(f"({n}, '{dest}', {a}, {b})" for n, (dest, a, b) in enumerate(ranges()))
    wanted = f"(VALUES {values}) wanted(n, dest, low, high)"
    join = "USING (dest) WHERE dep_delay BETWEEN low AND high"
    return dict(duckdb_query(f"SELECT n, count(*) FROM {{}} JOIN {wanted} {join} GROUP BY n", path))


def polars_five(path: Path) -> Counts:
    """Returns the counts of the five predicates."""
    import polars as pl

    predicates = [
        (pl.col("origin") == "JFK") & (pl.col("dep_delay") > 120),
        (pl.col("carrier") == "B6") & pl.col("dep_time").is_null(),
        pl.col("dest").is_in(["SFO", "LAX", "SEA"]) & (pl.col("arr_delay") > 90),
        pl.col("tailnum").str.starts_with("N14")
        & (pl.col("month") == 2)
        & (pl.col("distance") > 1000),
        (pl.col("hour") < 6) & (pl.col("dep_delay") > 30),
    ]
    columns = [each.sum().alias(str(n)) for n, each in enumerate(predicates)]
    row = pl.scan_csv(path, null_values="NA").select(columns).collect().row(0)
    return dict(enumerate(row))


def polars_many(path: Path) -> Counts:
    """Returns the counts of the 1,000 predicates."""
    import polars as pl

    rows = [(n, *each) for n, each in enumerate(ranges())]
    wanted = pl.LazyFrame(rows, ["n", "dest", "low", "high"], orient="row")
    joined = pl.scan_csv(path, null_values="NA").select("dest", "dep_delay").join(wanted, on="dest")
    held = joined.filter(pl.col("dep_delay").is_between("low", "high"))
    return dict(held.group_by("n").len().collect().iter_rows())


def beside(
    count: Callable[[Path], Counts], peers: Mapping[str, Callable[[Path], Counts]]
) -> tuple[list[float], dict[str, list[float]]]:
    """Returns the processor seconds per row. Raises AssertionError where counts differ."""
    ways = {"contrada": count} | {n: c for n, c in peers.items() if find_spec(n) is not None}
    samples: dict[str, list[float]] = {name: [] for name in ways}
    with flights() as folder:
        path = folder / "flights.csv"
        rows = path.read_bytes().count(b"\n") - 1
        expected = {n: found for n, found in count(path).items() if found}
        for _ in range(SAMPLES):
            for name, way in ways.items():
                begin = process_time()
                found = way(path)
                samples[name].append((process_time() - begin) / rows)
                assert {n: each for n, each in found.items() if each} == expected, name
    return samples.pop("contrada"), samples


@figure(
    name="tables/csv-5",
    unit="us",
    workload="a row of flights.csv (19 columns), counted by five predicates",
)
def five() -> Measurement:
    peers = {"duckdb": duckdb_five, "polars": polars_five}
    return five.beside(*beside(by_contrada(list(PREDICATES.values())), peers))


@figure(
    name="tables/csv-1k",
    unit="us",
    workload="the same by 1,000 predicates of an equal text and a range",
)
def many() -> Measurement:
    texts = [f"dest = '{d}' and dep_delay >= {a} and dep_delay <= {b}" for d, a, b in ranges()]
    peers = {"duckdb": duckdb_many, "polars": polars_many}
    return many.beside(*beside(by_contrada(texts), peers))
