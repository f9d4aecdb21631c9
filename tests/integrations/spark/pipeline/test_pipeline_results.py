"""Counts of outcomes, without Spark, and how results are written by Spark."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from contrada.integrations.spark.pipeline.pipeline_results import (
    PipelineSummary,
    SourceCounts,
    sum_rows,
    write_parquet,
    write_report,
)

STEPS_PER_ROW_MAX = 20
"""Executed Python lines per row of counts."""


def steps_of(rows: list[tuple[object, ...]], most: int) -> dict[str, SourceCounts]:
    """Sums rows. Raises AssertionError beyond a number of executed Python lines."""
    done = 0

    def traced(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal done
        done += event == "line"
        assert done <= most, f"more than {most} lines for {len(rows)} rows"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        return sum_rows(rows, ["one", "two"])
    finally:
        sys.settrace(before)


def test_counts_are_summed_once_for_each_position() -> None:
    """A run with 20,000 matching subscriptions would count for minutes at its end."""
    rows: list[tuple[object, ...]] = [("one", at, None, None, 2, 1) for at in range(20_000)]
    rows += [("one", None, 7, 1, 0, 0), ("two", None, 3, None, 0, 0)]
    found = steps_of(rows, STEPS_PER_ROW_MAX * len(rows))
    assert found["two"] == SourceCounts(3)
    assert found["one"] == SourceCounts(7, 1, 20_000, dict.fromkeys(range(20_000), 2))


def test_counts_of_positions_end_with_their_version() -> None:
    """Totals of a stream would add the counts of different subscriptions."""
    both = SourceCounts(1, 2, 1, {0: 1}, {"bad": 2}) + SourceCounts(3, 1, 2, {0: 2}, {"bad": 1})
    assert both == SourceCounts(4, 3, 3, {}, {"bad": 3})


def test_a_report_has_no_empty_stages(tmp_path: Path) -> None:
    """A heading with an empty table would look like a fault of the report."""
    stages: dict[str, float]
    for stages in ({}, {"match": 1.5}):
        write_report(PipelineSummary((), {}, 0, 0.0, 1.0, "out", stages=stages), tmp_path)
        page = (tmp_path / "report.html").read_text()
        assert ("<h2>Stages</h2>" in page) == bool(stages)


def test_values_that_differ_are_written_without_dictionaries(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Java would gather each notification in a dictionary first: a quarter of the writing."""
    rows = spark.range(0, 100, 1, 1).selectExpr(
        "'same' AS source",
        "repeat('a', 99) AS attributes",
        "binary(repeat('n', 99)) AS notification",
    )
    write_parquet(rows, str(tmp_path / "rows"))
    (file,) = (tmp_path / "rows").glob("*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    assert [each.has_dictionary_page for each in columns] == [True, False, False]


def test_rows_of_types_are_written_without_a_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    """A job more would sort all matches, although tasks have the rows of few sources."""
    tracker = spark.sparkContext.statusTracker()
    rows = spark.range(0, 9, 1, 3).selectExpr("id", "'t' AS type", "'d' AS date")
    stages = []
    for partitions in (("type",), ("date", "type")):
        spark.sparkContext.setJobGroup(partitions[0], "")
        write_parquet(rows, str(tmp_path / partitions[0]), *partitions)
        jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(partitions[0]))
        stages.append(sum(len(each.stageIds) for each in jobs if each is not None))
    spark.sparkContext.setJobGroup("", "")
    assert stages[0] == 1
    assert stages[1] > 1
