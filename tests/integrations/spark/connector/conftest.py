"""A broker process for each test, which survives the kills of Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada.connections import connect_sync
from contrada.model import Notification, to_msgpack
from tests.net.processes import serving

Fill: TypeAlias = Callable[..., None]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker in a process of its own, with a store."""
    with serving("--port", "0", "--store", str(tmp_path / "store.db")) as (_, address):
        yield address


@pytest.fixture
def fill(address: str) -> Fill:
    """Publishes into a durable subscription that it creates."""

    def publish(items: list[Any], durable: str = "log", filters: str = "n any") -> None:
        with connect_sync(address) as service:
            with service.subscribe(filters, durable=durable):
                pass
            service.publish_batch(items, delivery="certified")

    return publish


def packed(spark: SparkSession, rows: list[dict[str, Any]], partitions: int = 1) -> DataFrame:
    """Returns a frame of packed notifications."""
    data = [(at, bytes(to_msgpack(Notification(each)))) for at, each in enumerate(rows)]
    frame = spark.createDataFrame(data, "at INT, notification BINARY")
    # By hash: ranges are drawn by lot, so that rows would be in other partitions the next time.
    return frame.repartition(partitions, "at").sortWithinPartitions("at")
