"""Sweeps on Spark give the results of the embedded sweep."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from contrada.gossip.parameters import Parameters
from contrada.integrations.spark.sweeps import GOSSIPS, OVERLAYS, WORLDS, sweep_on_spark
from contrada.lab.gossip_rounds.gossip_runs import GossipPlan, GossipProtocol, disseminate
from contrada.lab.simulation.overlay_cost import measure, plans
from contrada.lab.simulation.world_results import read_results
from contrada.lab.simulation.worlds import WorldPlan, kinds, run_world
from tests.commands import here


def test_spark_gives_the_same_numbers(spark: SparkSession) -> None:
    """The results of a sweep would depend on its platform."""
    chosen = plans("random", 4, (3, 9), objects=2, notifications=1, seed=1)
    chosen = [plan for plan in chosen if plan.kind.shape in ("acyclic", "general")]
    here = {cost.plan: cost for cost in map(measure, chosen)}
    there = {cost.plan: cost for cost in sweep_on_spark(spark, chosen, OVERLAYS)}
    assert len(here) == len(chosen) > 8
    assert there == here


def test_gossip_on_spark_is_gossip_here(spark: SparkSession) -> None:
    """The results of a simulated group would depend on its platform."""
    group = Parameters(branching=6, redundancy=2, loss=0.1, crashes=0.05)
    chosen = [GossipPlan(group, share, 3, run) for share in (0.2, 1.0) for run in range(10)]
    chosen.append(GossipPlan(group, 0.5, 3, protocol=GossipProtocol.RFPBCAST))
    here = list(map(disseminate, chosen))
    assert list(sweep_on_spark(spark, chosen, GOSSIPS)) == here
    assert len({each.messages for each in here}) > 10


def test_worlds_on_spark_are_worlds_here(spark: SparkSession) -> None:
    """A world on a cluster would have another outcome, and its violation could not be repeated."""
    chosen = [
        WorldPlan(kind, seed)
        for kind in kinds("central, subscription forwarding, covering")
        for seed in range(2)
    ]
    there = {(ran.kind, ran.seed): ran.outcome for ran in sweep_on_spark(spark, chosen, WORLDS)}
    assert len(there) == len(chosen) == 6
    assert there == {(plan.kind, plan.seed): run_world(plan).outcome for plan in chosen}


@pytest.mark.slow
def test_worlds_of_spark_are_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worlds that ran on Spark would be lost, or run again in processes."""
    masters = []

    def session(*_: object, master: str | None = None) -> nullcontext[SparkSession]:
        masters.append(master)
        return nullcontext(spark)

    monkeypatch.setattr("contrada.integrations.spark.spark_session.spark_session", session)
    file = tmp_path / "worlds.jsonl"
    options = ("--only", "central, subscription forwarding, plain", "--results", str(file))
    done = here("simulate", "worlds", "--count", "3", "--master", "local[2]", *options)
    assert done.returncode == 0, done.stderr
    done = here("simulate", "worlds", "--count", "4", "--jobs", "1", *options)
    assert done.returncode == 0, done.stderr
    seeds = [ran.seed for _, ran in read_results(file)]
    assert (sorted(seeds[:3]), seeds[3:], masters) == ([0, 1, 2], [3], ["local[2]"])
