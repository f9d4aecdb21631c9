"""`sweep_on_spark`: sweeps of simulations on Spark, one run per row.

A run is a pure function of its plan, so the results equal those of the embedded sweep.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from contrada.integrations.spark.transforms.worker_code import for_worker
from contrada.lab.gossip_rounds.gossip_runs import GossipOutcome, GossipPlan, disseminate
from contrada.lab.simulation.overlay_cost import Cost, Plan, measure
from contrada.lab.simulation.worlds import WorldPlan, WorldResult, run_world

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Sweep(Generic[P, R]):
    """A kind of runs: the function, and the types of its plans and results. `round_runs` are the
    runs per core in one job; progress is reported between jobs.
    """

    run: Callable[[P], R]
    plan: type[P]
    result: type[R]
    round_runs: int


OVERLAYS: Final = Sweep(measure, Plan, Cost, 8)
"""Networks of servers."""

GOSSIPS: Final = Sweep(disseminate, GossipPlan, GossipOutcome, 200)
"""Gossiping groups: a run takes milliseconds."""

WORLDS: Final = Sweep(run_world, WorldPlan, WorldResult, 32)
"""Worlds with faults: a run takes a tenth of a second to some seconds."""

SWEEPS: Final[dict[Callable[[Any], Any], Sweep[Any, Any]]] = {
    each.run: each for each in (OVERLAYS, GOSSIPS, WORLDS)
}
"""All sweeps by their function."""


def sweep_on_spark(session: SparkSession, chosen: Iterable[P], sweep: Sweep[P, R]) -> Iterator[R]:
    """Runs plans in consecutive jobs; yields results as they are done."""
    cores = session.sparkContext.defaultParallelism
    size, remaining = sweep.round_runs * cores, iter(chosen)
    while plans := [msgspec.json.encode(plan).decode() for plan in islice(remaining, size)]:
        frame = session.createDataFrame(list(enumerate(plans)), "place int, plan string")
        even = frame.repartitionByRange(max(1, min(len(plans), 8 * cores)), "place")
        work = for_worker(partial(_run_plans, sweep), needs_kernels=False)
        results = even.select("plan").mapInArrow(work, "result string")
        for row in results.collect():
            yield msgspec.json.decode(row["result"], type=sweep.result)


def _run_plans(
    sweep: Sweep[Any, Any], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        plans = (msgspec.json.decode(each, type=sweep.plan) for each in batch.column(0).to_pylist())
        results = [msgspec.json.encode(sweep.run(plan)).decode() for plan in plans]
        yield pa.RecordBatch.from_arrays([pa.array(results, pa.string())], ["result"])
