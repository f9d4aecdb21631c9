"""The columns of a frame as attributes: refused ones by name, odd values as everywhere."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everyone gives it

from contrada.errors import InputError, LimitError
from contrada.integrations.files import ReadOptions
from contrada.integrations.files.packed_records import binary_of
from contrada.integrations.spark import match
from contrada.integrations.spark.transforms.frames import CONVERTED, WideRows, frame_of
from contrada.integrations.spark.transforms.notification_transform import RowBuilder
from contrada.matching.arrow_pack import blobs_of

SCHEMA = """
    `at place` struct<code: string, `x.y`: struct<depth: float>>, tags array<string>,
    sizes array<decimal(10, 2)>, held map<string, double>, price decimal(10, 2), day date,
    local timestamp_ntz, raw string
"""

WISHES = {
    "code": "`at place.code` = 'JFK'",
    "depth": "`at place.x.y.depth` = 0.5",
    "no depth": "`at place.x.y.depth` absent",
    "tag": "tags = 'a' ",
    "no tag": "tags absent",
    "sizes": "sizes > 2 and tags any",
    "held": "held.a >= 1",
    "price": "price = 1.1",
    "whole": "price = 3",
    "day": "day = @2013-01-01T05:00:00Z",
    "local": "local < @2013-01-01T00:00:00Z",
    "raw": "raw prefix x'ff'",
    "parsed": "parsed.deep.b = 2 and parsed.a any",
    "parsed list": "parsed.list = 'x'",
}


def rows() -> list[tuple[Any, ...]]:
    """Rows, of which the last one is bad: no double has the digits of a price."""
    place = Row(code="JFK", **{"x.y": Row(depth=0.5)})
    sizes = [Decimal("1.50"), Decimal("2.50")]
    day, local = date(2013, 1, 1), datetime(2012, 12, 31, 18, 59, 59)  # noqa: DTZ001 - without a zone
    return [
        (place, ["b", "a"], sizes, {"a": 1.0}, Decimal("1.10"), day, local, "{}"),
        (None, [], None, {}, Decimal("3.00"), None, None, '{"a": null, "deep": {"b": 2}}'),
        (Row(code=None, **{"x.y": None}), None, None, None, None, None, None, '{"list": ["x"]}'),
    ]


EXPECTED = [
    ["code", "depth", "tag", "sizes", "held", "price", "day", "local", "raw"],
    ["no depth", "no tag", "whole", "raw", "parsed"],
    ["no depth", "no tag", "raw", "parsed list"],
]


def test_nested_and_converted_columns(spark: SparkSession) -> None:
    """Members, lists, maps, variants, decimals or local times would have another meaning."""
    frame = spark.createDataFrame(rows(), SCHEMA)
    frame = frame.withColumn("parsed", F.parse_json("raw")).withColumn(
        "raw", F.concat(F.unhex(F.lit("ff")).cast("string"), "raw")
    )
    found = (
        frame.transform(match(WISHES, zone="America/New_York")).select("subscriptions").collect()
    )
    assert [row[0] for row in found] == EXPECTED


def test_a_row_with_an_impossible_value_is_null(spark: SparkSession) -> None:
    """A bad row would end the run, or be matched."""
    texts = ["1", "0.1", "12345678901234567890.123456789", None]
    frame = spark.createDataFrame([(each,) for each in texts], "text string").select(
        F.col("text").cast("decimal(38, 9)").alias("number"),
        F.array(F.col("text").cast("decimal(38, 9)")).alias("numbers"),
    )
    for name in ("number", "numbers"):
        found = frame.transform(match({"any": f"{name} any", "one": f"{name} = 1"})).collect()
        assert [row["subscriptions"] for row in found] == [["any", "one"], ["any"], None, []]


def test_skipped_local_times_are_bad(spark: SparkSession) -> None:
    """A skipped hour would be read as the next one."""
    frame = spark.sql("select timestamp_ntz '2013-03-10 02:30:00' as at")
    found = frame.transform(match({"any": "at any"}, zone="America/New_York")).collect()
    assert found[0]["subscriptions"] is None


def test_dates_at_the_ends_of_time_are_bad() -> None:
    """A date in the year 1 or 10,000 would end the run."""
    at = pa.array([-719_162, 0, 2_932_897], pa.int32()).cast(pa.date32())
    rows = WideRows(["at"], [CONVERTED], [at], "Europe/Rome")
    assert rows.bad.tolist() == [True, False, True]
    told = RowBuilder("wide", ReadOptions(zone="Europe/Rome"), ("at",), (CONVERTED,))
    made = told.build(pa.record_batch({"0": at}))
    assert made.notifications.is_valid().to_pylist() == [False, True, False]
    assert "out of range" in made.reasons[0].as_py()
    assert "out of range" in made.reasons[2].as_py()


def test_more_than_a_column_of_arrow_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values beyond its size would be read from wrong offsets."""
    monkeypatch.setattr("contrada.integrations.files.packed_records.COLUMN_BYTES_MAX", 9)
    assert binary_of(blobs_of([b"12345", b"6789"])).to_pylist() == [b"12345", b"6789"]
    with pytest.raises(LimitError, match="COLUMN_BYTES_MAX"):
        binary_of(blobs_of([b"12345", b"67890"]))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("a binary", "column 'a': binary is no value of an attribute"),
        ("a interval day to second", "column 'a': interval day to second is no value"),
        ("a date", "column 'a': date is no moment; give the zone"),
        ("a timestamp_ntz", "column 'a': timestamp_ntz is no moment"),
        ("a map<int, string>", "column 'a': the keys of a map must be text"),
        ("`@time` timestamp", "column '@time': "),
        ("a struct<b: int>, `a.b` int", "column 'a.b': found another column of this name"),
    ],
)
def test_columns_that_are_no_attributes_are_refused(
    spark: SparkSession, schema: str, said: str
) -> None:
    """A run would fail in a worker, or ignore them."""
    frame = spark.createDataFrame([], schema)
    with pytest.raises(InputError, match=said):
        frame_of(frame).select(None)
    assert frame_of(frame, drop=["a", "a.b", "@time"]).select(None) == []


def test_columns_outside_filters_are_not_checked(spark: SparkSession) -> None:
    """Other columns would be refused, or sent to workers."""
    frame = spark.createDataFrame([(b"x", 1)], "a binary, b int")
    assert frame.transform(match({"b": "b = 1"})).collect()[0]["subscriptions"] == ["b"]
    assert [each.name for each in frame_of(frame).select(["b"])] == ["b"]


def test_zones_are_checked(spark: SparkSession) -> None:
    """An unknown zone would fail in each row."""
    with pytest.raises(InputError, match="expected a zone"):
        frame_of(spark.createDataFrame([], "a date"), zone="Rome")


def test_attributes_may_come_from_nothing(spark: SparkSession) -> None:
    """A frame without the columns in filters would have no rows."""
    frame = spark.createDataFrame([(1,), (2,)], "a int")
    found = frame.transform(match({"none": "b absent", "some": "b any"}, way="index")).collect()
    assert [row["subscriptions"] for row in found] == [["none"], ["none"]]
