"""Sweeps on Spark give the numbers of the embedded sweep."""

from pyspark.sql import SparkSession

from contrada.simulation.overlay import plans, sweep
from contrada.spark.sweeps import sweep_on_spark


def test_spark_gives_the_same_numbers(spark: SparkSession) -> None:
    """What a sweep says would depend on where it ran."""
    chosen = plans("random", 4, (3, 9), objects=2, notifications=1, seed=1)
    chosen = [plan for plan in chosen if plan.kind.shape in ("acyclic", "general")]
    here = {cost.plan: cost for cost in sweep(chosen, jobs=1)}
    there = {cost.plan: cost for cost in sweep_on_spark(spark, chosen)}
    assert len(here) == len(chosen) > 8
    assert there == here
