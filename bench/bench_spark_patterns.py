"""Patterns over streams on Spark: micro-batches of files, by host, with exact recovery.

A row has a host, a level, a time and three more columns; 29% of the rows match a step of the
pattern. Rows per second are those of four batches of 500,000 rows, from the trigger to the commit,
after a small warm-up batch. A batch is two files, one for each core. Peers: an identity
`mapInArrow` over the same batches, the floor of Python; and `transformWithState` on one of them.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Measurement, figure
from bench.java import bench_session

BATCHES: Final = 4
ROWS: Final = 500_000
FILES: Final = 2
WARM_UP: Final = 20_000
PATTERN: Final = "level > 80 -> level < 10 by host within 10 s"
STATE_STORE: Final = (
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
)


def write(folder: Path, keys: int) -> None:
    """Writes the files of a small batch, and of the others; all times differ."""
    folder.mkdir()
    chance = np.random.default_rng(1)
    time_us = 1_700_000_000_000_000
    names = pa.array([f"host-{number}" for number in range(keys)])
    for number, rows in enumerate([WARM_UP, *[ROWS] * BATCHES]):
        times = time_us + np.cumsum(chance.integers(1, 20, rows))
        time_us = int(times[-1])
        columns = {
            "host": names.take(pa.array(chance.integers(0, keys, rows))),
            "level": chance.integers(0, 100, rows),
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "load": chance.random(rows),
            "site": pa.array(["north", "south"]).take(pa.array(chance.integers(0, 2, rows))),
            "ok": pa.array(chance.random(rows) < 0.5),
        }
        table, part = pa.table(columns), rows // FILES
        for file in range(FILES):
            pq.write_table(table.slice(file * part, part), folder / f"{number}-{file}.parquet")


def rates(session: Any, folder: Path, batches: int, start: Callable[[Any], Any]) -> list[float]:
    """Returns rows per second of each batch after the warm-up."""
    reader = session.readStream.schema(session.read.parquet(str(folder)).schema)
    frame = reader.option("maxFilesPerTrigger", FILES).parquet(f"{folder}/[0-{batches}]-*.parquet")
    query = start(frame).trigger(availableNow=True).start()
    query.awaitTermination()
    told = [each for each in query.recentProgress if each.numInputRows][1:]
    return [each.numInputRows / (each.batchDuration / 1000) for each in told]


def identity(frame: Any) -> Any:
    """The floor: all rows through Python and back."""

    def same(batches: Iterable[Any]) -> Iterator[Any]:
        yield from batches

    return frame.mapInArrow(same, frame.schema)


def noop(matches: Any, _batch: int) -> None:
    """Drops all matches."""
    matches.write.format("noop").mode("overwrite").save()


def measured(keys: int, peer: str) -> Measurement:
    """Returns the median rows per second of the batches, beside a peer."""
    from bench.spark_peers import two_steps
    from contrada.integrations.spark.transforms.detection import detect_stream

    with tempfile.TemporaryDirectory() as name, bench_session() as session:
        session.conf.set(*STATE_STORE)
        folder = Path(name)
        write(folder / "in", keys)
        own = rates(
            session,
            folder / "in",
            BATCHES,
            lambda frame: detect_stream(frame, PATTERN, checkpoint=str(folder / "own"), sink=noop),
        )
        of, batches = (identity, BATCHES) if peer == "identity" else (two_steps, 1)
        other = rates(
            session,
            folder / "in",
            batches,
            lambda frame: (
                of(frame)
                .writeStream.foreachBatch(noop)
                .option("checkpointLocation", str(folder / "peer"))
            ),
        )
    assert len(own) == BATCHES, "each batch has its files"
    return Measurement([float(np.median(own))], peer, [float(np.median(other))])


@figure(
    name="spark/patterns/10",
    unit="rows/s",
    workload="2M rows in 4 batches, two steps by 10 hosts, beside transformWithState",
    at_least=350_000,
    counts="clock",
)
def ten() -> Measurement:
    return measured(10, "transformWithState")


@figure(
    name="spark/patterns/1,000",
    unit="rows/s",
    workload="the same by 1,000 hosts",
    at_least=350_000,
    counts="clock",
)
def thousand() -> Measurement:
    return measured(1_000, "transformWithState")


@figure(
    name="spark/patterns/100,000",
    unit="rows/s",
    workload="the same by 100,000 hosts",
    at_least=350_000,
    counts="clock",
)
def hundred_thousand() -> Measurement:
    return measured(100_000, "transformWithState")


@figure(
    name="spark/patterns/floor",
    unit="rows/s",
    workload="the same by 1,000 hosts, beside an identity mapInArrow",
    counts="clock",
)
def floor() -> Measurement:
    return measured(1_000, "identity")
