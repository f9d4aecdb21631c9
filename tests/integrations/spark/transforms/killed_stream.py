"""A stream of patterns into Parquet that kills itself at a named point: `FOLDER [BATCH:POINT]`."""

import os
import signal
import sys
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import DataFrame

from contrada.integrations.spark.spark_session import spark_session
from contrada.integrations.spark.transforms.detection import detect_stream
from tests.integrations.spark.transforms.sequences import PATTERNS

SLACK_US = 2


def main(folder: Path, killed_at: str) -> None:
    """Processes the present files, each a batch, and dies at the given point."""

    def reach(batch: int, point: str) -> None:
        if killed_at == f"{batch}:{point}":
            assert SparkContext._gateway is not None
            os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def sink(matches: DataFrame, batch: int) -> None:
        reach(batch, "begun")
        if killed_at == f"{batch}:partly":
            matches.take(1)  # State of one part or more is written, output is not.
            reach(batch, "partly")
        matches.write.mode("overwrite").parquet(f"{folder}/out/batch={batch}")
        reach(batch, "written")

    with spark_session(2, "killed") as spark:
        files = f"{folder}/in"
        frame = spark.readStream.schema(spark.read.parquet(files).schema)
        stream = frame.option("maxFilesPerTrigger", 1).parquet(files)
        checkpoint = f"{folder}/checkpoint"
        writer = detect_stream(
            stream, PATTERNS, checkpoint=checkpoint, sink=sink, slack_us=SLACK_US
        )
        writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
