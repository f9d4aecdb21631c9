"""The jobs of a step have its name, and later jobs of the thread do not."""

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
            assert context.getLocalProperty(GROUP[0]) == "match"
        assert tuple(map(context.getLocalProperty, GROUP)) == group
    finally:
        for name in GROUP:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]
