"""A query that copies a log of one broker into another, and ends itself by kill -9 at a stage.

Arguments: the addresses of both, the checkpoint, and the stage:

    row N      all processes of the query die when row N comes
    commit     … when a batch is published, and before Spark has committed it
    worker N   the worker dies that has row N, once; Spark tries its task again
    end        none dies
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from contrada.integrations.spark.connector.connector_options import Options
from contrada.integrations.spark.connector.data_source import ContradaSource
from contrada.integrations.spark.connector.frame_writers import StreamWriter
from contrada.integrations.spark.spark_session import configure

BATCH_ROWS = 400
_GROUP = "COPYING_GROUP"


def end_all() -> None:
    """Kill -9 of driver and JVM, which are one group of processes, and of this worker's group."""
    os.killpg(int(os.environ[_GROUP]), signal.SIGKILL)
    os.killpg(os.getpgid(0), signal.SIGKILL)


class _Ending(StreamWriter):
    def commit(self, messages: Any, *_: Any) -> None:
        end_all()


class EndingSource(ContradaSource):
    """Dies when a batch is published."""

    @classmethod
    def name(cls) -> str:
        return "ending"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        return _Ending(Options.of(self.options), schema)


def main(address: str, to: str, checkpoint: str, stage: str, row: str = "") -> None:
    """Runs the query to its end, unless it ends itself."""
    flag = Path(checkpoint) / "worker-died"

    def trip(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if row and int(row) in batch.column("@position").to_pylist():
                if stage == "row":
                    end_all()
                elif not flag.exists():
                    flag.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    os.environ[_GROUP] = str(os.getpgid(0))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = configure(SparkSession.builder.master("local[2,4]")).config("spark.ui.enabled", False)
    fast_start = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    builder = builder.config("spark.driver.extraJavaOptions", fast_start)
    # So that earlier rows are published before the next row.
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 50)
    spark = builder.getOrCreate()
    spark.dataSource.register(EndingSource)
    read = spark.readStream.format("contrada").options(address=address, durable="log")
    frame = read.options(max_rows=str(BATCH_ROWS), partitions="2").load()
    frame = frame.mapInArrow(trip, frame.schema)
    write = frame.writeStream.format("ending" if stage == "commit" else "contrada")
    write = write.options(address=to, delivery="certified", query="copying")
    write = write.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    write.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
