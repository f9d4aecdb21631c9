"""Four streams on a cluster with kills: `MASTER FOLDER FROM TO KILLED`.

    FOLDER/rows ─► match ────────────► FOLDER/matched         killed at a row of the second batch
    FOLDER/in ───► detect_stream ────► FOLDER/out             … before, and in another batch after
    FROM (log) ──► format("contrada") ► FOLDER/read               its steps are followed
    FOLDER/packed ► format("contrada") ► TO                   … when some of a batch is published

`KILLED` is `worker`, all Python workers of the executor that has the row; `executor`, its JVM; or
`driver`, this process and its JVM. Each is killed once; a file in FOLDER/killed records it.
Restarted streams resume.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from contrada.integrations.spark import Base, detect_stream, match
from contrada.integrations.spark.spark_session import spark_session
from tests.integrations.spark.transforms.sequences import PATTERNS

ROWS: Final = 600
"""Rows of a batch."""

BATCHES: Final = 3
SLACK_US: Final = 2
WISHES: Final = {
    **{f"over {n}": f"level > {n}" for n in range(-2, 4)},
    **{f"code {n}": f"code = {n}" for n in (1, 2, -1, -200, 2**40)},
    **{f"at {host}": f"host = '{host}' and is_up exists" for host in "abc"},
    "nocase": "host = nocase 'A'",
    "no code": "code absent",
    "everything": "everything",
}
TRIPS: Final = ("match", "steps", "matches", "read", "write")


def killing(folder: Path, killed: str) -> Callable[[DataFrame, str, str, int], DataFrame]:
    """Returns a frame that kills at the first occurrence of a value in a column."""
    driver: tuple[int, ...] = ()
    if killed == "driver":
        assert SparkContext._gateway is not None
        driver = (SparkContext._gateway.proc.pid, os.getpid())

    def tripping(frame: DataFrame, name: str, column: str, value: int) -> DataFrame:
        flag = folder / "killed" / name

        def trip(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if value in batch.column(column).to_pylist() and not flag.exists():
                    flag.touch()
                    die(killed, driver)
                yield batch

        return frame.mapInArrow(trip, frame.schema)

    return tripping


def die(killed: str, driver: tuple[int, ...]) -> None:
    """Kills with -9, this Python worker last."""
    daemon = os.getppid()
    executor = parent(daemon)
    said = Path(f"/proc/{executor}/cmdline").read_text()
    assert "CoarseGrainedExecutorBackend" in said, said
    if killed == "executor":
        os.kill(executor, signal.SIGKILL)
    for each in driver:
        os.kill(each, signal.SIGKILL)
    workers = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    for each in workers:
        if each != os.getpid() and parent(each) == daemon:
            os.kill(each, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def parent(process: int) -> int:
    """Returns the parent of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def main(master: str, folder: str, source: str, to: str, killed: str) -> None:
    """Runs the streams one after the other."""
    with spark_session(master=master) as session:
        # So that earlier rows are forwarded before the next row.
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        run(session, Path(folder), source, to, killed)


def run(session: SparkSession, folder: Path, source: str, to: str, killed: str) -> None:
    """Runs the streams."""
    tripping = killing(folder, killed)

    def files(name: str) -> DataFrame:
        schema = session.read.parquet(str(folder / name)).schema
        frame = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return frame.parquet(str(folder / name))

    def into(frame: DataFrame, form: str, name: str, **options: str) -> None:
        write = frame.writeStream.format(form).options(**options)
        write = write.option("checkpointLocation", str(folder / f"{name}.checkpoint"))
        write.trigger(availableNow=True).start().awaitTermination()

    base = Base(WISHES, folder=folder / "bases")
    # As if executors did not see the folder: each of them, new ones too, gets the files from Spark.
    base.saved = msgspec.structs.replace(base.ship(session), folder=str(folder / "unseen"))
    at = ROWS + 400
    matched = files("rows").transform(match(base, drop=["place"]))
    matched = tripping(matched, "match", "place", at)
    into(matched, "parquet", "matched", path=str(folder / "matched"))

    def sink(matches: DataFrame, batch: int) -> None:
        path = str(folder / "out" / f"batch={batch}")
        tripping(matches, "matches", "batch", 2).write.mode("overwrite").parquet(path)

    steps = tripping(files("rows"), "steps", "place", at)
    checkpoint = str(folder / "detection")
    writer = detect_stream(
        steps, PATTERNS, checkpoint=checkpoint, sink=sink, slack_us=SLACK_US, drop=["place"]
    )
    writer.trigger(availableNow=True).start().awaitTermination()

    read = session.readStream.format("contrada").options(address=source, durable="log")
    read = read.options(max_rows=str(ROWS), partitions="2").schema("n BIGINT, t STRING")
    into(tripping(read.load(), "read", "n", at), "parquet", "read", path=str(folder / "read"))

    packed = tripping(files("packed"), "write", "n", at).select("notification")
    into(packed, "contrada", "write", address=to, delivery="certified", query="kills")


if __name__ == "__main__":
    main(*sys.argv[1:])
