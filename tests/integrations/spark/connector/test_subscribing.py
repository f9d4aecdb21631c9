"""Subscriptions and patterns in batch, and pushed Spark filters."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import datasource as D  # noqa: N812 - beside `functions as F`
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.connections import connect_sync
from contrada.integrations.spark.spark_session import PUSHDOWN

pytestmark = pytest.mark.spark


@contextmanager
def publishing(address: str) -> Iterator[None]:
    """Publishes items 0 to 9 repeatedly."""
    done = threading.Event()

    def run() -> None:
        with connect_sync(address) as service:
            while not done.wait(0.05):
                service.publish_batch([{"n": n, "t": f"t{n}"} for n in range(10)])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def read(spark: SparkSession, address: str, **options: Any) -> Any:
    return spark.read.format("contrada").options(address=address, **options)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_filters_of_spark_become_the_subscription(
    spark: SparkSession, address: str, enabled: str
) -> None:
    """Brokers would send rows that Spark drops."""
    spark.conf.set(PUSHDOWN, enabled)
    try:
        wide = read(spark, address, filter="n >= 2", count=30).schema("n BIGINT, t STRING").load()
        narrow = wide.where((F.col("n") > 4) & F.col("t").isin("t5", "t7", "t1"))
        with publishing(address):
            found = [row["n"] for row in narrow.collect()]
    finally:
        spark.conf.set(PUSHDOWN, "true")
    assert set(found) == {5, 7}
    # All 30 pass where the broker knows the filter; else it is asked of 30 of eight kinds.
    is_pushing = enabled == "true" and hasattr(D, "Filter")  # Spark 4.0 pushes none.
    assert (len(found) == 30) == is_pushing


def test_a_pattern_is_read_for_a_while(spark: SparkSession, address: str) -> None:
    """Patterns could not be read into frames."""
    pattern = "n = 1 -> n = 2"
    with publishing(address):
        rows = read(spark, address, pattern=pattern, count=3).load().collect()
    assert len(rows) == 3
    assert all(len(row["notifications"]) == 2 for row in rows)


def test_a_read_ends_after_its_seconds(spark: SparkSession, address: str) -> None:
    """A read of a quiet subscription would never end."""
    assert read(spark, address, filter="n = 1", seconds=0.2).load().count() == 0
