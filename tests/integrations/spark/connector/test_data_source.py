"""Frames from and to brokers, through a real session and a broker process."""

from itertools import islice
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.connections import connect_sync
from contrada.model import from_msgpack
from tests.integrations.spark.connector.conftest import Fill, packed

pytestmark = pytest.mark.spark


def test_a_durable_subscription_is_read_unchanged(
    spark: SparkSession, address: str, fill: Fill
) -> None:
    """A frame would differ from the log."""
    items = [{"n": n, "name": f"item {n}"} for n in range(1000)]
    fill(items)
    frame = spark.read.format("contrada").option("address", address).option("durable", "log")
    rows = frame.option("partitions", 3).load().orderBy("`@position`").collect()
    assert [row["@position"] for row in rows] == [*range(1, 1001)]
    found: list[Any] = [from_msgpack(bytes(row["notification"])) for row in rows]
    assert [dict(each.attributes) for each in found] == items
    assert [row["@id"] for row in rows] == [each.envelope.id for each in found]
    assert {row["@delivery"] for row in rows} == {"certified"}
    # Nothing is acknowledged by reading: it is there again.
    assert frame.load().count() == 1000


def test_wide_columns_have_the_values_that_fit(
    spark: SparkSession, address: str, fill: Fill
) -> None:
    """A value would be rounded, cut or converted silently."""
    items: list[dict[str, Any]] = [
        {"n": 1, "x": 2, "t": "a", "b": True},
        {"n": 2.0, "x": 0.5, "t": "é"},
        {"n": 2.5, "x": 2**53 + 1, "t": 7, "b": None},
        {"n": (1, 2), "x": float("nan"), "t": ("a", "b")},
    ]
    fill(items)
    reader = spark.read.format("contrada").option("address", address).option("durable", "log")
    wide = reader.schema("n BIGINT, x DOUBLE, t STRING, b BOOLEAN, `@position` BIGINT").load()
    rows = [tuple(row) for row in wide.orderBy("`@position`").collect()]
    assert rows[:3] == [(1, 2.0, "a", True, 1), (2, 0.5, "é", None, 2), (None, None, None, None, 3)]
    assert rows[3][0] is None
    assert rows[3][1] != rows[3][1]
    assert rows[3][2] is None
    several = reader.schema("t ARRAY<STRING>, n ARRAY<DOUBLE>, `@position` BIGINT").load()
    found = several.orderBy("`@position`").collect()
    assert [row["t"] for row in found] == [["a"], ["é"], None, ["a", "b"]]
    assert [row["n"] for row in found] == [[1.0], [2.0], [2.5], [1.0, 2.0]]


def test_a_repeated_write_is_published_once(spark: SparkSession, address: str, fill: Fill) -> None:
    """A repeated job would publish twice."""
    fill([])
    frame = packed(spark, [{"n": n} for n in range(2000)], partitions=2)
    writer = frame.write.format("contrada").mode("append").option("address", address)
    writer = writer.option("delivery", "certified").option("query", "job").option("batch", 3)
    writer.save()
    writer.save()
    read = spark.read.format("contrada").option("address", address).option("durable", "log")
    wide = read.schema("n BIGINT, `@publisher` STRING").load()
    assert sorted(row["n"] for row in wide.collect()) == [*range(2000)]
    assert {row["@publisher"] for row in wide.collect()} == {"job/0/0", "job/1/0"}


def test_other_rows_under_the_numbers_of_earlier_ones_are_refused(
    spark: SparkSession, address: str, fill: Fill
) -> None:
    """New rows would be dropped as duplicates."""
    fill([])
    options = {"address": address, "query": "job", "batch": "0"}
    first = packed(spark, [{"n": n} for n in range(100)])
    first.write.format("contrada").mode("append").options(**options).save()
    other = packed(spark, [{"n": n} for n in reversed(range(100))])
    with pytest.raises(Exception, match="is another one than when it was published before"):
        other.write.format("contrada").mode("append").options(**options).save()
    longer = packed(spark, [{"n": n} for n in range(150)])
    longer.write.format("contrada").mode("append").options(**options).save()
    with connect_sync(address) as service, service.subscribe(durable="log") as events:
        assert [each.item["n"] for each in islice(events, 150)] == [*range(150)]


@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({}, "MISSING_OPTION"),
        ({"address": "a", "durabel": "x"}, "UNKNOWN_OPTION"),
        ({"address": "a", "count": "-1"}, "INVALID_OPTION"),
        ({"Address": "a", "DURABLE": "d", "Pattern": "n = 1 -> n = 2"}, "CONFLICTING_OPTIONS"),
    ],
)
def test_errors_have_classes(spark: SparkSession, options: dict[str, str], condition: str) -> None:
    """A program would have to compare sentences; or names of options would tell case apart."""
    with pytest.raises(Exception, match=rf"FormatError: \[CONTRADA_{condition}\] "):
        spark.read.format("contrada").options(**options).load().collect()


def test_options_are_checked(spark: SparkSession, address: str) -> None:
    """A misspelt option would be ignored."""
    read = spark.read.format("contrada")
    with pytest.raises(Exception, match="names the broker"):
        read.load().collect()
    with pytest.raises(Exception, match="unknown option durabel"):
        spark.read.format("contrada").options(address=address, durabel="x").load().collect()
    with pytest.raises(Exception, match="bound the read"):
        spark.read.format("contrada").options(address=address).load().collect()
    with pytest.raises(Exception, match="no durable subscription 'none'"):
        spark.read.format("contrada").options(address=address, durable="none").load().collect()
    durable = {"address": address, "durable": "d", "filter": "a > 1"}
    with pytest.raises(Exception, match="expected BOOLEAN, BYTE"):
        spark.read.format("contrada").options(**durable).schema("a DECIMAL(10, 2)").load().collect()
    assert read.options(**durable).load().where(F.col("`@position`") > 1).count() == 0
