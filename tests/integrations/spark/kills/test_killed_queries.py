"""Streams on a cluster whose workers, executors and driver are killed."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from contrada.connections import connect_sync
from contrada.matching.index import Index
from contrada.model import Notification
from contrada.model.codec import to_msgpack
from tests.integrations.spark.connector.test_stream_reader import numbers
from tests.integrations.spark.kills import killed_queries
from tests.integrations.spark.kills.killed_queries import BATCHES, ROWS, SLACK_US, TRIPS, WISHES
from tests.integrations.spark.test_cluster import cluster
from tests.integrations.spark.transforms.sequences import (
    PATTERNS,
    SCHEMA,
    expected,
    made,
    notification_of,
)
from tests.integrations.spark.transforms.test_killed_streams import written
from tests.net.processes import serving

MADE = made(12, BATCHES, ROWS)


def prepare(folder: Path, source: str, to: str) -> None:
    """Writes files of rows and of notifications, and creates the logs."""
    (folder / "killed").mkdir()
    for name in ("rows", "packed"):
        (folder / name).mkdir()
    for number, rows in enumerate(MADE):
        places = pa.array(range(number * ROWS, (number + 1) * ROWS))
        table = pa.Table.from_pylist(rows, SCHEMA).append_column("place", places)
        pq.write_table(table, folder / "rows" / f"{number}.parquet")
        packed = pa.array([to_msgpack(Notification({"n": n})) for n in places.to_pylist()])
        table = pa.table({"n": places, "notification": packed})
        pq.write_table(table, folder / "packed" / f"{number}.parquet")
    with connect_sync(to) as service, service.subscribe("n any", durable="copy"):
        pass
    with connect_sync(source) as service:
        with service.subscribe("n any", durable="log"):
            pass
        items = [{"n": n, "t": f"t{n}"} for n in range(BATCHES * ROWS)]
        service.publish_batch(items, delivery="certified")


def run(said: Path, *arguments: str) -> int:
    """Runs the streams until they end or are killed; returns the status."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, killed_queries.__file__, *arguments]
    with said.open("a") as file:
        return subprocess.run(
            command, env=environment, check=False, stdout=file, stderr=file
        ).returncode


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("killed", ["worker", "executor", "driver"])
def test_kills_lose_and_double_nothing(spark: SparkSession, tmp_path: Path, killed: str) -> None:
    """Exactly once would hold only without failures, or only on one machine."""
    said = tmp_path / "said"
    with (
        serving("--port", "0", "--store", str(tmp_path / "from.db")) as (_, source),
        serving("--port", "0", "--store", str(tmp_path / "to.db")) as (_, to),
        cluster() as (_, master),
    ):
        prepare(tmp_path, source, to)
        deaths = len(TRIPS) if killed == "driver" else 0
        for _ in range(deaths):
            assert run(said, master, str(tmp_path), source, to, killed) == -signal.SIGKILL, said
        assert run(said, master, str(tmp_path), source, to, killed) == 0, said.read_text()
        assert {each.name for each in (tmp_path / "killed").iterdir()} == {*TRIPS}
        assert sorted(numbers(to, "copy")) == [*range(BATCHES * ROWS)]
    assert matched(spark, tmp_path) == keys()
    notifications = [list(map(notification_of, rows)) for rows in MADE]
    results, _ = expected(PATTERNS, notifications, SLACK_US)
    assert [written(tmp_path, number) for number in range(BATCHES)] == results
    found = spark.read.parquet(str(tmp_path / "read")).collect()
    assert sorted(tuple(row) for row in found) == [(n, f"t{n}") for n in range(BATCHES * ROWS)]


def matched(spark: SparkSession, folder: Path) -> list[Any]:
    """Returns the keys of each row in the output, in the order of the rows."""
    found = spark.read.parquet(str(folder / "matched")).orderBy("place").collect()
    assert Counter(row["place"] for row in found) == Counter(range(BATCHES * ROWS))
    return [row["subscriptions"] for row in found]


def keys() -> list[list[str]]:
    """Returns the keys that the embedded engine finds."""
    index: Index[str] = Index()
    for key, wish in WISHES.items():
        index.add(key, wish)
    order = list(WISHES).index
    return [
        sorted(index.match(notification_of(row).attributes), key=order)
        for rows in MADE
        for row in rows
    ]
