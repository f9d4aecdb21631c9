"""Counts of outcomes, without Spark."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from contrada.integrations.spark.pipeline.pipeline_results import (
    PipelineSummary,
    SourceCounts,
    sum_rows,
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
