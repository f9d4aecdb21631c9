"""Queries on Spark frames: the exact answers, and frames as sources."""

import pickle
from datetime import UTC, datetime
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import contrada as ct
from contrada.errors import InputError
from contrada.integrations.spark import FrameSource, answer
from contrada.service.query.source_query import SourceQuery
from tests.asynchronous import on_loop

ROWS: list[tuple[Any, ...]] = [
    ("JFK", "BOS", 100, 1.5, datetime(2026, 1, 1, tzinfo=UTC)),
    ("JFK", "JFK", 200, float("nan"), None),
    ("LGA", None, 300, 2.5, datetime(2026, 1, 2, tzinfo=UTC)),
    (None, None, 2**53 + 1, -0.0, None),
    ("BOS", "BOS", -1, float("inf"), None),
]
SCHEMA = "origin STRING, dest STRING, number BIGINT, value DOUBLE, at TIMESTAMP"
QUESTIONS = [
    "origin = 'JFK'",
    "origin = $x and dest = $x",
    "origin = $x and dest = $x and number > 0",
    "origin = $x and dest = $x or number = 300",
    "value = nan or value = 0",
    "number > 9007199254740992",
    "at < @2026-01-02T00:00:00Z",
    "dest absent and origin any",
    "origin suffix 'K' and not (dest = 'BOS')",
    "origin = 'nowhere'",
]


@pytest.fixture
def frame(spark: SparkSession) -> Any:
    """The rows as a frame."""
    return spark.createDataFrame(ROWS, SCHEMA).repartition(2)


def expected(question: str) -> list[int]:
    """Returns the numbers of the answering rows, one by one."""
    names = ("origin", "dest", "number", "value", "at")
    asked = SourceQuery(question)
    items = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in ROWS
    ]
    return sorted(each["number"] for each in items if asked.answers(each))


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_rows_that_answer_are_those_that_match(frame: Any, question: str) -> None:
    """A frame would give other answers than the same rows in memory."""
    found = frame.transform(answer(question))
    assert found.columns == frame.columns
    assert sorted(row["number"] for row in found.collect()) == expected(question)


def test_a_query_is_pushed_to_the_files(frame: Any, tmp_path: Any) -> None:
    """All rows would be read for a query with few answers."""
    frame.write.parquet(str(tmp_path / "rows"))
    stored = frame.sparkSession.read.parquet(str(tmp_path / "rows"))
    found = stored.transform(answer("number > 150 and origin = 'JFK'"))
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [" in plan
    assert "GreaterThanOrEqual(number,151)" in plan or "GreaterThan(number,150)" in plan
    assert [row["number"] for row in found.collect()] == [200]


def test_a_column_that_is_no_attribute_is_refused(spark: SparkSession) -> None:
    """A query would be answered as if the attribute were absent."""
    odd = spark.sql("SELECT INTERVAL 1 DAY AS pause")
    with pytest.raises(InputError, match="pause"):
        odd.transform(answer("pause any"))


def test_a_query_is_pickled_for_workers() -> None:
    """Workers would decide another query."""
    asked = SourceQuery("a = $x and b = $x")
    again = pickle.loads(pickle.dumps(asked))
    assert again == asked
    assert again.answers({"a": 1, "b": 1.0})
    assert not again.answers({"a": 1, "b": 2})


@pytest.mark.skipif(pyspark.__version__.startswith("4.0."), reason="it is profiled")
@on_loop
async def test_a_frame_is_a_source(frame: Any) -> None:
    """An archive could be queried only by a program of its own."""
    source = FrameSource(frame, zone="UTC")
    async with ct.connect() as service, service.offer(None, source, name="archive"):
        answers = service.query("origin = $x and dest = $x", timeout_s=60)
        assert {each["number"] async for each in answers} == {-1, 200}
        assert answers.is_complete
        (total,) = [it async for it in service.compute("sum(number)", "number < 250", timeout_s=60)]
        assert total == {"sum(number)": 299}
        nobody = service.query("number > 10 and colour = 'red'", timeout_s=60)
        assert [each async for each in nobody] == []
        assert nobody.reports == (), "it has no colours"
