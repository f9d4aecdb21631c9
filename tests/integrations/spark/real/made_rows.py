"""Generated rows, matched or followed: `TASK ROWS FOLDER`.

`TASK` is a number of filters, `detect`, or `run`, a pipeline run over Parquet. Workers generate
rows from their numbers, the same in each process. The output has digests of all results, and the
peak memory of the driver, its JVM and a Python worker.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.integrations.spark import Base, detect, match
from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from contrada.integrations.spark.spark_session import spark_session
from contrada.model import Filter
from contrada.model.algebra import sets

VALUES: Final = 1_000
"""Distinct texts of an attribute, and the bound of numbers."""

SHARE_OF_RANGE: Final = 0.25
BUCKET_ROWS: Final = 100_000
HOSTS: Final = 10_000
TIME_US: Final = 1_700_000_000_000_000
STEP_US: Final = 1_000
HIGH: Final = 94
LOW: Final = 6
PATTERNS: Final = {
    "fell": f"level >= {HIGH} -> level < {LOW} by host within 30 min",
    "rose twice": f"every level < {LOW} -> level = {HIGH} -> level > {HIGH} by host within 1 h",
    "a site": f"site = 'north' and level = 0 -> site = 'south' and level = {HIGH} within 2 s",
}

RUN_FILTERS: Final = 1_000
RUN: Final = """
subscriptions = "subs"
output = "out"
[[source]]
name = "quotes"
format = "parquet"
paths = ["in"]
"""

Makes = Callable[[Any], pa.RecordBatch]


def mixed(rows: Any, salt: int) -> Any:
    """Returns a pseudo-random 64-bit number for each row (the finisher of SplitMix64)."""
    with np.errstate(over="ignore"):
        found = rows.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(salt)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return found ^ (found >> np.uint64(31))


def below(rows: Any, salt: int, values: int) -> Any:
    """Returns a number below `values` for each row."""
    return (mixed(rows, salt) % np.uint64(values)).astype(np.int64)


_TEXTS: Final = pa.array([f"v{n}" for n in range(VALUES)])
_NAMES: Final = pa.array([f"host-{n}" for n in range(HOSTS)])
_SITES: Final = pa.array(["north", "south"])

QUOTES: Final = "row bigint, symbol string, venue string, size bigint, price double"
EVENTS: Final = "row bigint, host string, site string, level bigint, time timestamp"


def quotes(rows: Any) -> pa.RecordBatch:
    """Returns rows for filters."""
    columns = {
        "row": pa.array(rows),
        "symbol": _TEXTS.take(pa.array(below(rows, 1, VALUES))),
        "venue": _TEXTS.take(pa.array(below(rows, 2, VALUES))),
        "size": pa.array(below(rows, 3, VALUES)),
        "price": pa.array(below(rows, 4, 2**53) / 2**53 * VALUES),
    }
    return pa.RecordBatch.from_pydict(columns)


def events(rows: Any) -> pa.RecordBatch:
    """Returns rows for patterns, with ascending times."""
    columns = {
        "row": pa.array(rows),
        "host": _NAMES.take(pa.array(below(rows, 5, HOSTS))),
        "site": _SITES.take(pa.array(below(rows, 6, 2))),
        "level": pa.array(below(rows, 7, 100)),
        "time": pa.array(TIME_US + rows * STEP_US, pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)


def filters(count: int) -> dict[int, Filter]:
    """Filters of one equality and two ranges, of which `count / 16,000` match a row."""
    chance = np.random.default_rng(2)
    texts = chance.integers(0, VALUES, count).tolist()
    lows = (chance.random((count, 2)) * VALUES * (1 - SHARE_OF_RANGE)).tolist()
    wide = VALUES * SHARE_OF_RANGE
    return {
        n: Filter(
            {
                "symbol" if n % 2 else "venue": sets.eq(f"v{texts[n]}"),
                "size": sets.between(lows[n][0], lows[n][0] + wide),
                "price": sets.between(lows[n][1], lows[n][1] + wide),
            }
        )
        for n in range(count)
    }


def pair_digests(rows: Any, counts: Any, keys: Any) -> Iterator[tuple[int, int, int]]:
    """Returns the number of pairs, and the sum of their digests, for each bucket of rows."""
    of_row = np.repeat(rows, counts)
    found = mixed(of_row * np.int64(2**20) + keys, 9) >> np.uint64(24)
    buckets = of_row // BUCKET_ROWS
    for bucket in np.unique(buckets).tolist():
        some = found[buckets == bucket]
        yield bucket, len(some), int(some.sum())


def match_digest(pattern: str, by: dict[str, Any], run: Iterable[bytes]) -> int:
    """Returns a number for a match."""
    return crc32(b"".join([pattern.encode(), json.dumps(by).encode(), *run]))


def _made(make: Makes) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (make(batch.column(0).to_numpy()) for batch in batches)

    return made


def _pairs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        keys = batch.column("subscriptions")
        counts = np.diff(keys.offsets.to_numpy())
        told = pair_digests(batch.column("row").to_numpy(), counts, keys.flatten().to_numpy())
        yield _digests([[str(bucket), *of] for bucket, *of in told])


def _told_pairs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows, keys = (column.to_numpy() for column in batch.columns)
        told = pair_digests(rows, np.ones(len(rows), dtype=np.int64), keys)
        yield _digests([[str(bucket), *of] for bucket, *of in told])


def _matches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sums: Counter[str] = Counter()
        for row in batch.to_pylist():
            by = json.loads(row["by"])
            sums[row["pattern"]] += match_digest(row["pattern"], by, row["notifications"])
        counts = Counter(batch.column("pattern").to_pylist())
        yield _digests([[name, counts[name], sums[name]] for name in counts])


DIGESTS: Final = "part string, found bigint, sum bigint"


def _digests(told: list[list[Any]]) -> pa.RecordBatch:
    types = {"part": pa.string(), "found": pa.int64(), "sum": pa.int64()}
    rows = [dict(zip(types, each, strict=True)) for each in told]
    return pa.RecordBatch.from_pylist(rows, pa.schema(types))


def _run(frame: DataFrame, folder: Path) -> DataFrame:
    """Returns the digests of the output of a pipeline run."""
    frame.write.mode("overwrite").parquet(str(folder / "in"))
    asked = filters(RUN_FILTERS).items()
    (folder / "subs").write_text("".join(f"{key}: {each}\n" for key, each in asked))
    (folder / "p.toml").write_text(RUN)
    run_pipeline(frame.sparkSession, read_pipeline(folder / "p.toml"))
    matches = frame.sparkSession.read.parquet(str(folder / "out" / "matches"))
    row = "cast(get_json_object(attributes, '$.row') as bigint) as row"
    told = matches.selectExpr(row, "cast(subscription as bigint) as key")
    return told.mapInArrow(_told_pairs, DIGESTS)


def found(session: SparkSession, what: str, rows: int, folder: Path) -> DataFrame:
    """Returns the digests of the results by part."""
    numbers = session.range(0, rows, 1, 8)
    if what == "detect":
        session.conf.set("spark.sql.shuffle.partitions", 1)  # So that one worker has all of it.
        frame = numbers.mapInArrow(_made(events), EVENTS)
        return frame.transform(detect(PATTERNS)).mapInArrow(_matches, DIGESTS)
    if what == "run":
        return _run(numbers.mapInArrow(_made(quotes), QUOTES), folder)
    base = Base(filters(int(what)), folder=folder)
    frame = numbers.mapInArrow(_made(quotes), QUOTES)
    return frame.transform(match(base, drop=["row"])).mapInArrow(_pairs, DIGESTS)


def most_memory(process: int | str) -> int:
    """Returns the peak memory of a process, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024


def _workers() -> list[int]:
    """Returns the Python workers below this process."""
    parents = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal() and (each / "stat").exists():
            told = (each / "stat").read_text().rpartition(")")[2].split()
            parents[int(each.name)] = int(told[1])
    below_this = {os.getpid()}
    while more := {child for child, of in parents.items() if of in below_this} - below_this:
        below_this |= more
    is_worker = "pyspark.daemon"
    return [n for n in below_this if is_worker in Path(f"/proc/{n}/cmdline").read_text()]


def main(what: str, rows: str, folder: str) -> None:
    """Prints digests by part, and memory by process."""
    with spark_session(2, "made") as session:
        told = found(session, what, int(rows), Path(folder)).groupBy("part")
        sums = told.agg(F.sum("found"), F.sum("sum")).collect()
        assert SparkContext._gateway is not None
        memory = {
            "driver": most_memory("self"),
            "java": most_memory(SparkContext._gateway.proc.pid),
            "worker": max(map(most_memory, _workers())),
        }
    digests = {row[0]: [row[1], row[2]] for row in sums}
    print(json.dumps({"digests": digests, "memory": memory}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
