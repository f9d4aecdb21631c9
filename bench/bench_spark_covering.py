"""Reducing a base on Spark: the time for a million filters, and the memory of workers.

Three different bases: ranges, hardly any of them covered; mixed constraints, most of them covered
by a few; and comparisons, most of them mergeable. The peer is `simplify`, in one process, on a part
of the base.
"""

import atexit
import time
from contextlib import ExitStack
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from bench.harness import Measurement, figure
from bench.java import bench_session
from bench.matching_workloads import Workload, compared, mixed, three_constraints
from contrada.integrations.spark import covering
from contrada.model.algebra.simplification import simplify
from contrada.model.codec import to_msgpack

FILTERS: Final = 1_000_000
SIMPLIFIED: Final = 10_000
"""Filters for `simplify`."""

ROW_GROUP: Final = 50_000


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="contrada-bench-"))


@cache
def _session() -> SparkSession:
    stack = ExitStack()
    atexit.register(stack.close)
    session = stack.enter_context(bench_session())
    session.range(2).mapInArrow(lambda batches: batches, "id bigint").count()
    return session


def _base(name: str, workload: Workload) -> DataFrame:
    """Returns the packed filters, in a file."""
    path = _folder() / f"{name}.parquet"
    schema = pa.schema([("key", pa.int64()), ("filter", pa.binary())])
    filters, begin = workload.filters(), 0
    with pq.ParquetWriter(path, schema) as writer:
        while packed := [to_msgpack(each) for each in islice(filters, ROW_GROUP)]:
            keys = pa.array(range(begin, begin + len(packed)), pa.int64())
            writer.write_table(pa.table([keys, pa.array(packed)], schema=schema))
            begin += len(packed)
    return _session().read.parquet(str(path))


def _taken(name: str, workload: Workload) -> Measurement:
    frame = _base(name, workload)
    began = time.perf_counter()
    covering(frame).write.format("noop").mode("overwrite").save()
    return Measurement([time.perf_counter() - began])


@figure(
    name="spark/covering.ranges",
    unit="s",
    workload="1,000,000 filters of one equality and two ranges, hardly any covered; two cores",
    at_most=300,
    counts="clock",
)
def ranges() -> Measurement:
    return _taken("ranges", three_constraints(FILTERS))


@figure(
    name="spark/covering.mixed",
    unit="s",
    workload="1,000,000 filters of 1 to 9 mixed constraints, most of them covered; two cores",
    at_most=300,
    counts="clock",
)
def mixed_constraints() -> Measurement:
    return _taken("mixed", mixed(FILTERS))


@figure(
    name="spark/covering.comparisons",
    unit="s",
    workload="1,000,000 filters of an equality and a comparison, all but some merged; two cores",
    at_most=300,
    counts="clock",
)
def comparisons() -> Measurement:
    return _taken("comparisons", compared(FILTERS, "<"))


@figure(
    name="spark/covering.simplify",
    unit="ms",
    workload="10,000 filters of one equality and two ranges by simplify, in one process",
    counts="clock",
)
def simplified() -> Measurement:
    filters = list(islice(three_constraints(FILTERS).filters(), SIMPLIFIED))
    began = time.perf_counter()
    simplify(filters)
    return Measurement([time.perf_counter() - began])
