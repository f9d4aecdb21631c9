"""Matching in frames: shares of the floor, peers in plain Spark SQL, and the memory of workers.

Rows have ten attributes, two of them texts; a filter constrains one text and the ranges of two
numbers, so that about 6.5 of 100,000 match. The floor is an identity `mapInArrow` over the same
file, measured alternately. Keys are integers unless stated.
"""

import atexit
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from bench.harness import Measurement, figure
from bench.java import bench_session
from contrada.integrations.spark import Base, match
from contrada.model import Filter
from contrada.model.algebra import sets

ROWS: Final = 1_000_000
FILES: Final = 4
VALUES: Final = 1_000
"""Distinct texts of an attribute, and the bound of numbers."""

SHARE_OF_RANGE: Final = 0.255
TEXTS: Final = ("symbol", "venue")
NUMBERS: Final = tuple(f"size{n}" for n in range(4)) + tuple(f"price{n}" for n in range(4))
PAIRS: Final = 5
SLOW_ROWS: Final = 20_000
"""Rows for plain Spark SQL, which is slow."""


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="contrada-bench-"))


@cache
def _session() -> SparkSession:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(bench_session())


@cache
def _rows() -> DataFrame:
    """Returns the rows, in files."""
    folder = _folder() / "rows"
    folder.mkdir()
    chance = np.random.default_rng(1)
    for number in range(FILES):
        count = ROWS // FILES
        columns = {
            name: pa.array([f"v{n}" for n in chance.integers(0, VALUES, count)]) for name in TEXTS
        }
        for name in NUMBERS:
            whole = name.startswith("size")
            drawn = chance.integers(0, VALUES, count) if whole else chance.random(count) * VALUES
            columns[name] = pa.array(drawn)
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return _session().read.parquet(str(folder))


Conjunction = tuple[str, str, dict[str, tuple[float, float]]]
"""An attribute, its text, and ranges of others."""


def _conjunctions(size: int) -> Iterator[Conjunction]:
    chance = random.Random(2)
    for _ in range(size):
        ranges = {}
        for name in chance.sample(NUMBERS, 2):
            low = chance.random() * VALUES * (1 - SHARE_OF_RANGE)
            ranges[name] = (low, low + VALUES * SHARE_OF_RANGE)
        yield chance.choice(TEXTS), f"v{chance.randrange(VALUES)}", ranges


@cache
def _base(size: int, *, texts: bool = False) -> Base:
    filters = (
        Filter({name: sets.eq(text)} | {n: sets.between(*ends) for n, ends in ranges.items()})
        for name, text, ranges in _conjunctions(size)
    )
    keyed: dict[Any, Filter] = {
        f"subscription {n}" if texts else n: f for n, f in enumerate(filters)
    }
    return Base(keyed, folder=_folder())


def _identity(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _taken(frame: DataFrame) -> float:
    """Returns the seconds to compute all rows."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _share(base: Base) -> Measurement:
    """Returns rows per second, as a share of the floor of the same pair."""
    rows = _rows()
    floor, matched = rows.mapInArrow(_identity, rows.schema), rows.transform(match(base))
    for frame in (floor, matched):
        _taken(frame)
    return Measurement([_taken(floor) / _taken(matched) for _ in range(PAIRS)])


@figure(
    name="spark/match-1k",
    unit="of the floor",
    workload="1,000 filters, rows from Parquet",
    at_least=0.85,
    counts="clock",
)
def one_thousand() -> Measurement:
    """A share of the floor."""
    return _share(_base(1_000))


@figure(
    name="spark/match-100k",
    unit="of the floor",
    workload="100,000 filters, 6.5 matches of a row",
    at_least=0.65,
    counts="clock",
)
def one_hundred_thousand() -> Measurement:
    """A share of the floor."""
    return _share(_base(100_000))


@figure(
    name="spark/match-100k-texts",
    unit="of the floor",
    workload="the same, with texts as keys",
    counts="clock",
)
def texts_as_keys() -> Measurement:
    """The cost of returning texts, the larger part of the output."""
    return _share(_base(100_000, texts=True))


@figure(
    name="spark/match-1m",
    unit="of the floor",
    workload="1,000,000 filters, 65 matches of a row",
    at_least=0.2,
    counts="clock",
)
def one_million() -> Measurement:
    """A share of the floor."""
    return _share(_base(1_000_000))


def _times_faster(
    base: Base,
    peer: Callable[[DataFrame], DataFrame],
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Measurement:
    """Returns the ratio of rows in the same time to a peer with fewer rows."""
    every = _rows()
    few = every.limit(SLOW_ROWS).localCheckpoint()
    matched, by_peer = every.transform(match(base)), peer(few)
    _taken(matched)
    samples = []
    for _ in range(PAIRS // 2 + 1):
        of_row = _taken(matched) / ROWS
        with around():
            samples.append(_taken(by_peer) / SLOW_ROWS / of_row)
    return Measurement(samples)


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Spark SQL without generated code: compiling 1,000 predicates exceeds its memory."""
    names = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: _session().conf.get(name) or "" for name in names}
    for name, value in names.items():
        _session().conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            _session().conf.set(name, value)


def _by_predicates(rows: DataFrame) -> DataFrame:
    """Returns the keys by a predicate for each filter."""
    held = []
    for key, (name, text, ranges) in enumerate(_conjunctions(1_000)):
        predicate = F.col(name) == text
        for ranged, (low, high) in ranges.items():
            predicate &= F.col(ranged).between(low, high)
        held.append(F.when(predicate, F.lit(key)))
    return rows.withColumn("subscriptions", F.array_compact(F.array(*held)))


@figure(
    name="spark/match-sql",
    unit="times",
    workload="1,000 filters, beside a generated predicate for each",
    at_least=20,
    counts="clock",
)
def beside_predicates() -> Measurement:
    """Plain Spark SQL as the peer."""
    return _times_faster(_base(1_000), _by_predicates, _uncompiled)


def _by_join(rows: DataFrame) -> DataFrame:
    """Returns the keys by joins on equal values, and counts of satisfied constraints."""
    session = _session()
    conjunctions = list(enumerate(_conjunctions(100_000)))
    exact = session.createDataFrame(
        pa.table(
            {
                "key": [key for key, _ in conjunctions],
                "name": [name for _, (name, _, _) in conjunctions],
                "text": [text for _, (_, text, _) in conjunctions],
            }
        )
    )
    of_key = [
        (key, name, *ends) for key, (_, _, ranges) in conjunctions for name, ends in ranges.items()
    ]
    keys, names, lows, highs = zip(*of_key, strict=True)
    ranged = session.createDataFrame(
        pa.table({"key": keys, "name": names, "low": lows, "high": highs})
    )
    numbered = rows.withColumn("row", F.monotonically_increasing_id())
    texts = numbered.unpivot("row", list(TEXTS), "name", "text")
    numbers = numbered.select("row", *(F.col(n).cast("double").alias(n) for n in NUMBERS)).unpivot(
        "row", list(NUMBERS), "name", "number"
    )
    led = texts.join(exact, ["name", "text"]).select("row", "key").join(ranged, "key")
    held = led.join(numbers, ["row", "name"]).where("number between low and high")
    return (
        held.groupBy("row", "key")
        .count()
        .where("count = 2")
        .groupBy("row")
        .agg(F.collect_list("key"))
    )


@figure(
    name="spark/match-join",
    unit="times",
    workload="100,000 filters, beside equi-joins of inverted constraints, and counting",
    at_least=20,
    counts="clock",
)
def beside_join() -> Measurement:
    """The fastest plain Spark SQL as the peer."""
    return _times_faster(_base(100_000), _by_join)


def _worker_bytes() -> int:
    """Returns the private memory of the largest worker."""
    gateway = _session().sparkContext._gateway
    assert gateway is not None
    java = gateway.proc.pid
    held = {java}
    found = [0]
    parents = {pid: _parent(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
    while more := {pid for pid, parent in parents.items() if parent in held} - held:
        held |= more
    for pid in held - {java}:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        found.append(sum(int(each.split()[1]) for each in lines if each.startswith("Private_")))
    return max(found) * 1024


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:  # it has ended
        return 0


@figure(
    name="spark/worker-growth",
    unit="times",
    workload="what a worker holds after 1,000,000 rows and after 5,000,000, 100,000 filters",
    at_most=1.1,
)
def memory_of_workers() -> Measurement:
    """Constant in the number of rows."""
    matched = _rows().transform(match(_base(100_000)))
    _taken(matched)
    before = _worker_bytes()
    for _ in range(4):
        _taken(matched)
    return Measurement([_worker_bytes() / before])
