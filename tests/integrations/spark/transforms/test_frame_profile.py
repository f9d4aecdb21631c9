"""`profile` of wide and packed frames, and its advertisement."""

import math
from datetime import UTC, datetime
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada.integrations.spark import profile
from contrada.integrations.spark.transforms.frame_profile import advertisement_of
from contrada.model import Notification, to_msgpack
from contrada.model.algebra.relations import covers
from contrada.model.domains.values import key_of

pytestmark = pytest.mark.skipif(
    pyspark.__version__.startswith("4.0."), reason="Spark 4.0 has no approx_top_k"
)

AT = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = "symbol string, price double, size bigint, open boolean, at timestamp, tags array<string>"

ROWS: list[tuple[Any, ...]] = [
    (f"S{n % 3}", n / 4, 2**60 + n, n % 2 == 0, AT, ["a", f"t{n}"] if n % 10 == 0 else None)
    for n in range(100)
] + [(None, math.nan, None, None, None, [])]


def attributes(row: tuple[Any, ...]) -> dict[str, Any]:
    """Returns a row as the attributes of a notification."""
    names = [part.split(" ")[0] for part in SCHEMA.split(", ")]
    return {name: each for name, each in zip(names, row, strict=True) if each is not None}


@pytest.fixture(scope="module")
def wide(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA)


@pytest.fixture(scope="module")
def packed(spark: SparkSession) -> DataFrame:
    """Returns the same rows packed, with a bad one."""
    made = [(bytearray(to_msgpack(Notification(attributes(row)))),) for row in ROWS]
    return spark.createDataFrame([*made, (bytearray(b"?"),)], "notification binary")


@pytest.mark.parametrize("kind", ["wide", "packed"])
def test_counts_ends_and_frequent_values(kind: str, request: pytest.FixtureRequest) -> None:
    """Wide and packed frames would have different profiles, also with arrays."""
    frame = request.getfixturevalue(kind)
    rows = {(row.attribute, row.domain): row for row in frame.transform(profile).collect()}
    assert {each: row["values"] for each, row in rows.items()} == {
        ("symbol", "text"): 100,
        ("price", "number"): 100,
        ("price", "nan"): 1,
        ("size", "number"): 100,
        ("open", "bool"): 100,
        ("at", "time"): 100,
        ("tags", "text"): 20,
    }
    price, symbol = rows["price", "number"], rows["symbol", "text"]
    assert (price.least, price.greatest) == (0.0, 24.75)
    assert price.quantiles_about[10] == pytest.approx(12.25, abs=0.5)
    assert price.distinct_about == pytest.approx(100, rel=0.15)
    assert price.share == pytest.approx(100 / 101)
    assert (symbol["first"], symbol["last"], symbol.distinct_about) == ("S0", "S2", 3)
    assert tuple(symbol.frequent_about[0]) == ("S0", 34)
    assert symbol.equality_about == pytest.approx(100 / 101 / 3)


def test_its_advertisement_covers_every_notification(wide: DataFrame) -> None:
    """Integers beyond the precision of doubles would be uncovered, or ranges too wide."""
    found = advertisement_of(profile(wide))
    for row in ROWS:
        assert covers(found, Notification(attributes(row))), row
    for odd in ({"symbol": "S3"}, {"price": 25.0}, {"other": 1}, {"open": 1}):
        assert not covers(found, Notification(odd)), odd


def test_not_a_number_is_one_value(spark: SparkSession) -> None:
    """A frame with NaN could not be profiled: Spark refuses to divide by no distinct values."""
    frame = spark.createDataFrame([(float("nan"),), (1.0,)], "value DOUBLE")
    nan, _ = profile(frame).collect()
    assert (nan["domain"], nan["values"], nan["distinct_about"]) == ("nan", 1, 1)
    assert nan["equality_about"] == 0.5
    assert advertisement_of(profile(frame)).sides["value"].holds(key_of(float("nan")))


def test_nested_values_are_attributes(spark: SparkSession) -> None:
    """A frame with a map, a variant or an array of structs could not be profiled."""
    frame = spark.sql(
        "select map('a', 1, 'b', 2) as m, parse_json('{\"x\": {\"y\": \"z\"}}') as v, "
        "array(named_struct('n', 1)) as lost, 5 as plain"
    )
    rows = {row.attribute: (row.domain, row["values"]) for row in profile(frame).collect()}
    number = ("number", 1)
    assert rows == {"m.a": number, "m.b": number, "v.x.y": ("text", 1), "plain": number}
