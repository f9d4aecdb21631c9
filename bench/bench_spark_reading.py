"""Reading text files on Spark: shares of the floor, and peers in plain Spark SQL.

The flights of `bench_records`, as CSV and as JSON lines, and 1,000 filters with 6.5 matches per 100
rows: an aircraft, and ranges of months and of days. The floor is an identity `mapInArrow` over the
lines of the same file. All is processor time, measured alternately. For Parquet, 1,000 ranges of
months and of days match each row 20 times, so each row is an outcome with all its matches.
"""

import atexit
import random
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from bench.bench_records import PEER_ROWS, TYPES, flights, processor_s
from bench.bench_spark_matching import _identity, _uncompiled
from bench.harness import Measurement, figure
from bench.java import bench_session
from contrada.integrations.files import ReadOptions
from contrada.integrations.spark import Base
from contrada.integrations.spark.pipeline.pipeline_description import Source
from contrada.integrations.spark.pipeline.source_outcomes import outcomes
from contrada.model import Filter
from contrada.model.algebra import sets

FILTERS: Final = 1_000
PAIRS: Final = 5
ROWS: Final = 336_776
RANGED: Final = {"month": (12, 6), "day": (31, 16)}
"""The values of an attribute, and the number of them in a filter."""

CSV_SCHEMA: Final = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, air_time int, distance int, hour int, minute int, time_hour timestamp"
)
OFTEN: Final = {"month": (12, 3), "day": (31, 3)}
"""The same for filters that match often."""

JSON_SCHEMA: Final = CSV_SCHEMA.replace(" int", " double")


@cache
def _stack() -> ExitStack:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack


@cache
def _folder() -> Path:
    return _stack().enter_context(flights())


@cache
def _session() -> SparkSession:
    return _stack().enter_context(bench_session())


def _conjunctions() -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Returns an aircraft, and ranges of other attributes, for each filter."""
    chance = random.Random(3)
    lines = (_folder() / "flights.csv").read_text().splitlines()[1:]
    aircraft = sorted({line.split(",")[11] for line in lines} - {"NA"})
    for _ in range(FILTERS):
        ranges = {}
        for name, (values, asked) in RANGED.items():
            low = chance.randint(1, values - asked + 1)
            ranges[name] = (low, low + asked - 1)
        yield chance.choice(aircraft), ranges


@cache
def _base() -> Base:
    filters = (
        Filter({"tailnum": sets.eq(text)} | {n: sets.between(*ends) for n, ends in ranges.items()})
        for text, ranges in _conjunctions()
    )
    return Base(dict(enumerate(filters)), folder=_folder() / "bases")


def _outcomes(kind: str) -> DataFrame:
    absent = frozenset({"NA"} if kind == "csv" else ())
    reading = ReadOptions(types=TYPES, absent=absent, time="time_hour")
    path = str(_folder() / f"flights.{kind}")
    return outcomes(_session(), Source("flights", kind, (), reading, (path,)), _base())


def _spent(frame: DataFrame) -> float:
    """Returns the processor time to compute all rows."""
    began = processor_s()
    frame.write.format("noop").mode("overwrite").save()
    return processor_s() - began


def _share(kind: str) -> Measurement:
    lines = _session().read.text(str(_folder() / f"flights.{kind}"))
    floor = lines.mapInArrow(_identity, lines.schema)
    shares = []
    for _ in range(PAIRS + 2):  # The first ones until everything is loaded and compiled.
        began = processor_s()
        found = _outcomes(kind)  # To look at the file beforehand counts too.
        listed = processor_s() - began
        shares.append(_spent(floor) / (listed + _spent(found)))
    return Measurement(shares[2:])


def _rate(kind: str) -> Measurement:
    """Returns rows per second by the clock, beside those of the floor."""
    lines = _session().read.text(str(_folder() / f"flights.{kind}"))
    floor = lines.mapInArrow(_identity, lines.schema)
    rates: list[list[float]] = [[], []]
    for _ in range(PAIRS + 2):  # The first ones until everything is loaded and compiled.
        for mine, is_floor in zip(rates, (False, True), strict=True):
            began = perf_counter()
            rows = floor if is_floor else _outcomes(kind)  # Which looks at the file.
            rows.write.format("noop").mode("overwrite").save()
            mine.append(ROWS / (perf_counter() - began))
    return Measurement(rates[0][2:], "unchanged", rates[1][2:])


def _beside_sql(kind: str) -> Measurement:
    """Returns the ratio of rows in the same time to plain Spark SQL with fewer rows."""
    first = str(_folder() / f"first.{kind}")
    reader = _session().read
    rows = (
        reader.csv(first, schema=CSV_SCHEMA, header=True, nullValue="NA")
        if kind == "csv"
        else reader.json(first, schema=JSON_SCHEMA)
    )
    held = []
    for key, (aircraft, ranges) in enumerate(_conjunctions()):
        predicate = F.col("tailnum") == aircraft
        for name, (low, high) in ranges.items():
            predicate &= F.col(name).between(low, high)
        held.append(F.when(predicate, F.lit(key)))
    keyed = rows.withColumn("subscriptions", F.array_compact(F.array(*held)))
    matched = keyed.where("size(subscriptions) > 0")
    times = []
    for _ in range(3):
        of_row = _spent(_outcomes(kind)) / ROWS
        with _uncompiled():
            times.append(_spent(matched) / PEER_ROWS / of_row)
    return Measurement(times[1:])


@figure(
    name="spark/read-csv",
    unit="of the floor",
    workload="336,776 flights as CSV, 1,000 filters, 6.5 matches per 100 rows",
    at_least=0.85,
)
def rows_of_csv() -> Measurement:
    """A share of the floor."""
    return _share("csv")


@figure(
    name="spark/read-json",
    unit="of the floor",
    workload="the same flights as lines of JSON",
    at_least=0.85,
)
def lines_of_json() -> Measurement:
    """A share of the floor."""
    return _share("json")


RATE_MIN: Final = 0.85 * 332_000
"""Rows per second: those of the floor when the readers were designed."""


@figure(
    name="spark/rate-csv",
    unit="rows/s",
    workload="the same CSV, by the clock; beside its lines through Python unchanged",
    at_least=RATE_MIN,
    counts="clock",
)
def rate_of_csv() -> Measurement:
    """Rows per second by the clock."""
    return _rate("csv")


@figure(
    name="spark/rate-json",
    unit="rows/s",
    workload="the same lines of JSON, by the clock; beside them through Python unchanged",
    at_least=RATE_MIN,
    counts="clock",
)
def rate_of_json() -> Measurement:
    """Rows per second by the clock."""
    return _rate("json")


def _often_asked() -> Base:
    chance = random.Random(4)
    asked = {}
    for key in range(FILTERS):
        lows = {name: chance.randint(1, most - size + 1) for name, (most, size) in OFTEN.items()}
        asked[key] = Filter(
            {name: sets.between(low, low + OFTEN[name][1] - 1) for name, low in lows.items()}
        )
    return Base(asked, folder=_folder() / "bases")


@figure(
    name="spark/pipeline-parquet",
    unit="of the floor",
    workload="336,776 flights as Parquet, 20 matches of a row, all told",
    at_least=0.15,
)
def outcomes_of_parquet() -> Measurement:
    """A share of the floor."""
    path = str(_folder() / "flights.parquet")
    csv = str(_folder() / "flights.csv")
    flights = _session().read.csv(csv, schema=CSV_SCHEMA, header=True, nullValue="NA")
    flights.write.mode("overwrite").parquet(path)
    rows = _session().read.parquet(path)
    floor = rows.mapInArrow(_identity, rows.schema)
    source = Source("flights", "parquet", (), ReadOptions(time="time_hour"), (path,))
    found = outcomes(_session(), source, _often_asked())
    pairs = [(_spent(floor), _spent(found)) for _ in range(PAIRS + 2)]
    return Measurement([before / after for before, after in pairs[2:]])


@figure(
    name="spark/read-csv-sql",
    unit="times",
    workload="CSV, beside a generated predicate for each filter",
    at_least=1,
)
def csv_beside_predicates() -> Measurement:
    """Plain Spark SQL as the peer."""
    return _beside_sql("csv")


@figure(
    name="spark/read-json-sql",
    unit="times",
    workload="lines of JSON, beside a generated predicate for each filter",
    at_least=1,
)
def json_beside_predicates() -> Measurement:
    """Plain Spark SQL as the peer."""
    return _beside_sql("json")
