"""Streams from and to brokers, also after kills of their processes."""

import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contrada.connections import connect_sync
from contrada.integrations.spark.spark_versions import ReadMaxRows
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.durable_messages import LogState
from contrada.service.sync import SyncService
from tests.integrations.spark.connector import copying
from tests.integrations.spark.connector.conftest import Fill
from tests.net.processes import serving

pytestmark = pytest.mark.spark


def log(address: str, name: str) -> LogState:
    held = TcpService(address)

    async def ask() -> LogState:
        return await held.delivery().log(name)

    with SyncService(held) as service:
        return service.run(ask())


def numbers(address: str, name: str) -> list[Any]:
    """Returns the numbers in a log, in order."""
    state = log(address, name)
    with connect_sync(address) as service, service.subscribe(durable=name) as events:
        return [each.item["n"] for each in islice(events, state.next - state.undone)]


def run(spark: SparkSession, address: str, folder: Path, **options: str) -> list[int]:
    """Reads the present records into files; returns the content of all files."""
    read = spark.readStream.format("contrada").options(address=address, durable="log", **options)
    write = read.schema("n BIGINT").load().writeStream.format("parquet")
    write = write.option("path", str(folder / "out")).trigger(availableNow=True)
    write.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    found = spark.read.parquet(str(folder / "out")).collect()
    return sorted(row["n"] for row in found)


def test_a_stream_acknowledges_committed_records(
    spark: SparkSession, address: str, fill: Fill, tmp_path: Path
) -> None:
    """A log would never shrink, or lose uncommitted records."""
    most = {"max_rows": "300"} if ReadMaxRows else {}
    fill([{"n": n} for n in range(1000)])
    assert run(spark, address, tmp_path, **most) == [*range(1000)]
    # Before Spark 4.2 the next batch acknowledges the last one.
    assert log(address, "log").undone == (1001 if most else 1)
    fill([{"n": n} for n in range(1000, 1100)])
    assert run(spark, address, tmp_path, **most) == [*range(1100)]
    assert log(address, "log").undone == (1101 if most else 1001)


@pytest.mark.skipif(ReadMaxRows is not None, reason="Spark bounds batches")
def test_a_bound_without_an_effect_is_refused(
    spark: SparkSession, address: str, fill: Fill, tmp_path: Path
) -> None:
    """A batch would have any size in silence."""
    fill([{"n": 1}])
    with pytest.raises(Exception, match=r"max_rows needs Spark 4\.2"):
        run(spark, address, tmp_path, max_rows="300")


def test_a_recreated_log_is_refused(
    spark: SparkSession, address: str, fill: Fill, tmp_path: Path
) -> None:
    """Old positions would skip new records."""
    fill([{"n": n} for n in range(10)])
    run(spark, address, tmp_path)
    with connect_sync(address) as service:
        service.unsubscribe("log")
    fill([{"n": n} for n in range(10)])
    with pytest.raises(Exception, match="has ended, and another one has its name"):
        run(spark, address, tmp_path)


def copying_process(said: Path, address: str, to: str, checkpoint: Path, *stage: str) -> int:
    """Runs the query in a process; returns its status, with its output in a file."""
    command = [sys.executable, copying.__file__, address, to, str(checkpoint), *stage]
    with (
        said.open("w") as file,
        subprocess.Popen(command, start_new_session=True, stdout=file, stderr=file) as process,
    ):
        return process.wait()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_by_kills_at_each_stage(
    address: str, fill: Fill, tmp_path: Path
) -> None:
    """Exactly once would hold only without failures."""
    rows = 5 * copying.BATCH_ROWS
    fill([{"n": n} for n in range(rows)])
    stages = [
        ("row", str(copying.BATCH_ROWS - 10)),  # In the middle of a batch, some of it published.
        ("commit",),
        ("row", str(copying.BATCH_ROWS + 1)),  # A batch is committed, the next one planned.
        ("worker", str(2 * copying.BATCH_ROWS + 150)),
    ]
    checkpoint, said = tmp_path / "checkpoint", tmp_path / "said"
    with serving("--port", "0", "--store", str(tmp_path / "to.db")) as (_, to):
        with connect_sync(to) as service, service.subscribe("n any", durable="copy"):
            pass
        for stage in stages:
            ended = copying_process(said, address, to, checkpoint, *stage)
            assert ended == (0 if stage[0] == "worker" else -signal.SIGKILL), said.read_text()
        assert (checkpoint / "worker-died").exists()
        assert sorted(numbers(to, "copy")) == [*range(rows)]
