"""The jobs of a step are its own: in name, in progress, and when it is cancelled."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contrada.integrations.spark.pipeline.job_progress import no_progress, watch_jobs

GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


@pytest.mark.parametrize("group", [(None, None, None), ("mine", "my jobs", "false")])
def test_the_group_of_the_caller_is_restored(
    spark: SparkSession, group: tuple[str | None, ...]
) -> None:
    """Jobs of a notebook after a run would have the run's name, and be cancelled as its jobs."""
    context = spark.sparkContext
    for name, value in zip(GROUP, group, strict=True):
        context.setLocalProperty(name, value)  # type: ignore[arg-type]
    try:
        with watch_jobs(spark, "match", no_progress):
            assert context.getLocalProperty(GROUP[1]) == "contrada pipeline: match"
        assert tuple(map(context.getLocalProperty, GROUP)) == group
    finally:
        for name in GROUP:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def _reader(pipe: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A task that ends once a named pipe was opened and closed by a writer, who waits for it."""

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        with open(pipe) as stream:
            stream.read()
        yield from batches

    return read


def test_a_failed_step_cancels_no_job_of_others(spark: SparkSession, tmp_path: Path) -> None:
    """A notebook's own jobs would end with a pipeline that fails in the same session."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    rows = spark.range(3, numPartitions=1).mapInArrow(_reader(str(pipe)), "id long")
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(rows.collect)
        with pipe.open("w"), pytest.raises(RuntimeError), watch_jobs(spark, "match", no_progress):
            raise RuntimeError
        assert len(others.result()) == 3


def test_progress_counts_only_own_jobs(spark: SparkSession, tmp_path: Path) -> None:
    """A second run would begin with the finished tasks of the first, and ask for each of them."""
    for step in range(2):
        pipe, is_reported = tmp_path / f"pipe{step}", threading.Event()
        os.mkfifo(pipe)
        found: set[tuple[str, int, int]] = set()

        def listen(
            *report: Any, found: set[Any] = found, is_reported: threading.Event = is_reported
        ) -> None:
            found.add(report)
            is_reported.set()

        def release(pipe: Path = pipe, is_reported: threading.Event = is_reported) -> None:
            with pipe.open("w"):
                is_reported.clear()
                is_reported.wait()

        rows = spark.range(3, numPartitions=1).mapInArrow(_reader(str(pipe)), "id long")
        with ThreadPoolExecutor(1) as pool:
            released = pool.submit(release)
            with watch_jobs(spark, "match", listen):
                assert len(rows.collect()) == 3
            released.result()
        assert ("match", 0, 1) in found
        assert all(every <= 1 for _, _, every in found)
