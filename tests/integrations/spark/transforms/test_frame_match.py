"""Matching in frames: every way gives the results of `Index.match`, also for odd values."""

import math
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contrada import Envelope, Index, Notification, to_msgpack
from contrada.errors import InputError
from contrada.integrations.dialects import cesql
from contrada.integrations.spark import Base, match, plan, route
from contrada.integrations.spark.spark_versions import arrow_udf
from contrada.integrations.spark.transforms import frame_match

WISHES = {
    "cheap": "price < 100 and symbol = 'DIS'",
    "any price": "price exists",
    "no price": "price absent",
    "past": "size > 9007199254740992",
    "exactly": "size = 9007199254740993",
    "nan": "price != 3",
    "zero": "price = 0",
    "prefix": "symbol prefix 'D'",
    "suffix": "symbol suffix 'S'",
    "nocase": "symbol = nocase 'dis'",
    "late": "at >= @2013-01-01T05:00:00Z",
    "either": "flag = true or size < 0",
    "text number": "size = '5'",
    "everything": "everything",
    "unstamped": "@time < @1980-01-01T00:00:00Z",
}

SCHEMA = "symbol string, price double, size bigint, flag boolean, at timestamp"

ROWS: list[tuple[Any, ...]] = [
    ("DIS", 99.5, 5, True, datetime(2013, 1, 1, 5, tzinfo=UTC)),
    ("dis", -0.0, 2**53 + 1, False, datetime(2013, 1, 1, 4, 59, 59, 999999, tzinfo=UTC)),
    ("", math.nan, 2**53, None, None),
    (None, None, None, None, None),
    ("D\u00e9S", math.inf, -1, True, datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("XS", 3.0, 2**63 - 1, None, datetime(1, 1, 2, tzinfo=UTC)),
]


def keys_by_index(rows: list[dict[str, Any]], wishes: dict[str, Any] = WISHES) -> list[list[str]]:
    """Returns the index's matches of each row, in the order of the filters."""
    index: Index[str] = Index()
    for key, wish in wishes.items():
        index.add(key, wish)
    order = list(wishes)
    return [sorted(index.match(row), key=order.index) for row in rows]


def attributes(rows: list[tuple[Any, ...]] = ROWS) -> list[dict[str, Any]]:
    """Returns the rows as attributes: NULL is absent."""
    names = [each.split()[0] for each in SCHEMA.split(", ")]
    return [
        {n: value for n, value in zip(names, row, strict=True) if value is not None} for row in rows
    ]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """The base of all filters."""
    return Base(WISHES, folder=tmp_path_factory.mktemp("bases"))


@pytest.mark.parametrize("whole_columns", [0, 100])
def test_the_keys_of_a_wide_frame_are_those_of_an_index(
    spark: SparkSession, base: Base, whole_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns would be read differently: NaN, -0.0, above 2^53, NULL, times, bytes."""
    monkeypatch.setattr(frame_match, "JOIN_COLUMNS", whole_columns)
    monkeypatch.setattr(frame_match, "ONE_WAY", 0)
    frame = spark.createDataFrame(ROWS, SCHEMA)
    assert plan(frame, base).is_whole == bool(whole_columns or arrow_udf is None)
    found = frame.transform(match(base)).collect()
    assert [row["subscriptions"] for row in found] == keys_by_index(attributes())
    assert [repr(row[:4]) for row in found] == [repr(row[:4]) for row in frame.collect()]


@pytest.mark.parametrize("whole_columns", [0, 100])
def test_a_row_for_each_pair(
    spark: SparkSession, base: Base, whole_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair would be lost or duplicated, or columns dropped."""
    monkeypatch.setattr(frame_match, "JOIN_COLUMNS", whole_columns)
    monkeypatch.setattr(frame_match, "ONE_WAY", 0)
    frame = spark.createDataFrame(ROWS, SCHEMA).transform(route(base))
    if not whole_columns and arrow_udf is not None:
        said = frame._jdf.queryExecution().executedPlan().toString()
        assert said.count("ArrowEvalPython") == 1, "a batch would be matched twice"
    expected = [
        (row[0], row[2], key)
        for row, keys in zip(ROWS, keys_by_index(attributes()), strict=True)
        for key in keys
    ]
    found = frame.select("symbol", "size", "subscription").collect()
    assert [tuple(row) for row in found] == expected


def test_packed_notifications(spark: SparkSession, tmp_path: Path) -> None:
    """Envelope and type marks would be ignored, or a broken one end the run."""
    wishes: dict[str, Any] = {
        "late": "@time > @2013-01-01T00:00:00Z",
        "by a": "@publisher = 'a'",
        "marked": "@is.Flight any",
        "size": "size > 1",
        "sum": cesql.read("size + 0 = 3"),
    }
    stamped = Envelope(id="1", publisher="a", time_us=1_400_000_000_000_000)
    given = [
        Notification({"size": 3}, envelope=stamped),
        Notification({"size": 3}),
        Notification.with_marks({"size": [1, 2], "text": "x" * 300}, ["Flight"]),
    ]
    frame = spark.createDataFrame(
        [(n, each) for n, each in enumerate([*map(to_msgpack, given), b"x", None])],
        "place int, notification binary",
    )
    index: Index[str] = Index()
    for key, wish in wishes.items():
        index.add(key, wish)
    expected = [sorted(index.match(each), key=list(wishes).index) for each in given]
    found = frame.transform(match(Base(wishes, folder=tmp_path))).collect()
    assert [row["subscriptions"] for row in found] == [*expected, None, None]
    assert plan(frame, Base(wishes, folder=tmp_path)).columns == ("notification",)


def test_packed_notifications_that_are_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Similar notifications are read by one call, which could read wrong bytes."""
    envelopes = [Envelope(f"{n}", "a", n, 1_400_000_000_000_000 + n) for n in range(8)]
    rows = [
        (to_msgpack(Notification({"size": n, "text": "é" * n}, envelope=each)),)
        for n, each in enumerate(envelopes)
    ]
    frame = spark.createDataFrame(rows, "notification binary").coalesce(1)
    asked = {"size": "size >= 6", "text": "text = 'éé'"}
    late = {**asked, "late": "@time >= @2014-05-13T16:53:20.000006Z"}
    for wishes, last in ((asked, ["size"]), (late, ["size", "late"])):
        found = frame.transform(match(Base(wishes, folder=tmp_path))).collect()
        assert [row["subscriptions"] for row in found] == [
            *([], [], ["text"], [], [], []),
            *(last, last),
        ]


def test_a_stream_is_matched_as_its_batches(
    spark: SparkSession, base: Base, tmp_path: Path
) -> None:
    """Results of tables would not hold for streams."""
    spark.createDataFrame(ROWS, SCHEMA).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in"))
    query = (
        stream.transform(route(base))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "at"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).groupBy("subscription").count().collect()
    expected = Counter(key for keys in keys_by_index(attributes()) for key in keys)
    assert {row["subscription"]: row["count"] for row in found} == expected


def test_a_plan_has_a_way_and_a_reason(spark: SparkSession, base: Base) -> None:
    """The reason of a slow run could not be found."""
    frame = spark.createDataFrame(ROWS, SCHEMA)
    few = plan(frame, {"cheap": "price < 100 and symbol = 'DIS'"})
    assert str(few) == (
        "1 subscriptions by predicates: they are few, and each equals a Spark predicate; "
        "asked for: symbol, price"
    )
    assert plan(frame, base).why == "no Spark predicate equals 'nocase' on these columns"
    many = plan(frame, {f"{n}": f"size = {n}" for n in range(frame_match.PREDICATES_MAX + 1)})
    assert str(many) == (
        "17 subscriptions by index: more than 16 of them; asked for: size; rows go to workers whole"
    )


def test_an_unknown_way_is_refused(spark: SparkSession, base: Base) -> None:
    """A typing error would select an arbitrary way."""
    frame = spark.createDataFrame(ROWS, SCHEMA)
    with pytest.raises(InputError, match="way: found 'foo', expected one of: predicates, index"):
        frame.transform(match(base, way="foo"))  # type: ignore[arg-type]


def test_an_existing_column_of_keys_is_replaced(spark: SparkSession, base: Base) -> None:
    """It would be an attribute, or exist twice."""
    frame = spark.createDataFrame(ROWS, SCHEMA)
    once = frame.transform(match(base))
    again = once.transform(match(base))
    assert again.columns == once.columns
    assert again.select("subscriptions").collect() == once.select("subscriptions").collect()
