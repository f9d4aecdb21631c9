"""`covering` on Spark against the algebra on all pairs."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from contrada.errors import InputError
from contrada.integrations.spark import covering
from contrada.integrations.spark.transforms import base_cover as module
from contrada.model import FilterSet
from contrada.model.algebra.relations import covers
from contrada.model.codec import from_msgpack, to_msgpack
from tests.integrations.spark.transforms.test_cover_worker import some_filters

BASE = {
    "a": "price < 5",
    "b": "price < 9",
    "c": "price < 9 and symbol = 'A'",
    "d": "symbol = 'B' and quantity > 3",
    "e": "symbol = 'C' and quantity > 3",
    "f": "quantity > 3 and symbol = 'B'",
    "g": "x = 1 and x = 2",
    "h": "@publisher = 'p' and z contains 'ab'",
    "i": "z contains 'a'",
    "j": "q = 1 or (q = 2 and r = 3)",
}


def test_remaining_filters_and_reasons(spark: SparkSession) -> None:
    """Covered, merged, equal or empty filters would remain, or have a wrong coverer."""
    frame = spark.createDataFrame(list(BASE.items()), "name string, asks string")
    left = frame.transform(covering)
    assert left.columns == ["name", "asks"]
    assert dict(left.collect()) == {
        "a": "price < 9",
        "d": 'quantity > 3 and symbol in ("B", "C")',
        "i": 'z contains "a"',
        "j": "q = 1 or q = 2 and r = 3",
    }
    told = {row.asks: (row.reason, row.by) for row in covering(frame, every=True).collect()}
    assert told[None] == ("empty", None)
    assert told['price < 9 and symbol = "A"'] == ("covered", "price < 9")
    assert told["price < 9"] == ("equal", "price < 9")
    assert told['quantity > 3 and symbol = "B"'][0] == "covered"
    assert told["q = 1"] == ("kept", "q = 1")


def test_on_many_it_is_exact_and_complete(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small shards, places in several shards, or integer keys would lose covered filters."""
    monkeypatch.setattr(module, "FILED_MAX", 40)
    monkeypatch.setattr(module, "MERGED_AT_ONCE_MAX", 50)
    given = dict(enumerate(some_filters(300)))
    rows = [(key, bytearray(to_msgpack(each))) for key, each in given.items()]
    frame = spark.createDataFrame(rows, "key bigint, filter binary")
    left = [from_msgpack(bytes(row.filter)) for row in covering(frame).collect()]
    assert FilterSet(left) == FilterSet(given.values())  # type: ignore[arg-type]
    members = FilterSet(left).filters  # type: ignore[arg-type]
    assert len(members) < len(given) / 2
    for one in members:
        assert not any(covers(other, one) for other in members if other is not one), one
    shown = set(map(str, members))
    told = covering(frame, every=True).collect()
    assert sorted(row.key for row in told) == sorted(given)
    for row in told:
        by = from_msgpack(bytes(row.by))
        assert covers(by, given[row.key])  # type: ignore[arg-type]
        assert str(by) in shown
        assert (row.reason == "covered") == (given[row.key] != by), row


def test_a_few_cover_the_others_wherever_they_are(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base covered by a few filters would be placed as a whole, at many times the cost."""
    placed: list[int] = []
    place = module._Steps.place

    def counted(steps: Any, frame: DataFrame, shares: Mapping[int, float]) -> DataFrame:
        placed.append(frame.count())
        return place(steps, frame, shares)

    monkeypatch.setattr(module._Steps, "place", counted)
    monkeypatch.setattr(module, "WIDEST_MAX", 3)
    monkeypatch.setattr(module, "FILED_MAX", 100)
    texts = [f"a > {n % 50} and b = {n} and c = {n}" for n in range(400)] + ["a > 3", "a > 5"]
    frame = spark.createDataFrame(list(enumerate(texts)), "key int, filter string")
    left = {row.filter for row in covering(frame).collect()}
    assert left == {"a > 3", *(text for n, text in enumerate(texts[:400]) if n % 50 < 3)}
    assert placed == [len(left)]


def test_a_filter_that_cannot_be_read_is_named(spark: SparkSession) -> None:
    """A faulty base would be refused without the key."""
    frame = spark.createDataFrame([("good", "a = 1"), ("bad", "a = =")], "key string, f string")
    with pytest.raises(Exception, match="subscription 'bad'"):
        covering(frame).collect()


def test_other_columns_are_refused(spark: SparkSession) -> None:
    """A frame with wrong columns would fail in a worker."""
    with pytest.raises(InputError, match="double"):
        covering(spark.createDataFrame([(1.0, "a = 1")], "key double, f string"))
