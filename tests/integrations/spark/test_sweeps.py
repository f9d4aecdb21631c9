"""Sweeps on Spark give the results of the embedded sweep."""

from pyspark.sql import SparkSession

from contrada.gossip.parameters import Parameters
from contrada.integrations.spark.sweeps import GOSSIPS, OVERLAYS, sweep_on_spark
from contrada.lab.gossip_rounds.gossip_runs import GossipPlan, GossipProtocol, disseminate_all
from contrada.lab.simulation.overlay_cost import plans, sweep


def test_spark_gives_the_same_numbers(spark: SparkSession) -> None:
    """The results of a sweep would depend on its platform."""
    chosen = plans("random", 4, (3, 9), objects=2, notifications=1, seed=1)
    chosen = [plan for plan in chosen if plan.kind.shape in ("acyclic", "general")]
    here = {cost.plan: cost for cost in sweep(chosen, jobs=1)}
    there = {cost.plan: cost for cost in sweep_on_spark(spark, chosen, OVERLAYS)}
    assert len(here) == len(chosen) > 8
    assert there == here


def test_gossip_on_spark_is_gossip_here(spark: SparkSession) -> None:
    """The results of a simulated group would depend on its platform."""
    group = Parameters(branching=6, redundancy=2, loss=0.1, crashes=0.05)
    chosen = [GossipPlan(group, share, 3, run) for share in (0.2, 1.0) for run in range(10)]
    chosen.append(GossipPlan(group, 0.5, 3, protocol=GossipProtocol.RFPBCAST))
    here = list(disseminate_all(chosen, jobs=1))
    assert list(sweep_on_spark(spark, chosen, GOSSIPS)) == here
    assert len({each.messages for each in here}) > 10
