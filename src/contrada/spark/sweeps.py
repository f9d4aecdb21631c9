"""Sweeps of simulations on Spark: one run per row, so that runs go wherever there are cores.

A run is a pure function of its plan, so the numbers are those of the embedded sweep.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from contrada.simulation.overlay import Cost, Plan, measure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROUND_RUNS: Final = 8
"""Runs per core in one job; between jobs it is told how far the sweep is."""


def sweep_on_spark(session: SparkSession, chosen: Sequence[Plan]) -> Iterator[Cost]:
    """Runs plans, a job after the other, as they are done."""
    cores = session.sparkContext.defaultParallelism
    size = ROUND_RUNS * cores
    for start in range(0, len(chosen), size):
        costs = costs_of(plans_frame(session, chosen[start : start + size], cores))
        for row in costs.collect():
            yield msgspec.json.decode(row["cost"], type=Cost)


def plans_frame(session: SparkSession, chosen: Sequence[Plan], parts: int) -> "DataFrame":
    """A row per plan, each plan as JSON, dealt out in turn."""
    rows = [(place, msgspec.json.encode(plan).decode()) for place, plan in enumerate(chosen)]
    frame = session.createDataFrame(rows, "place int, plan string")
    return frame.repartitionByRange(max(1, min(len(rows), parts * ROUND_RUNS)), "place")


def costs_of(plans: "DataFrame") -> "DataFrame":
    """A frame with a column `plan` to one with a column `cost`: one run per row."""
    return plans.select("plan").mapInArrow(_measured, "cost string")


def _measured(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        costs = [
            msgspec.json.encode(measure(msgspec.json.decode(plan, type=Plan))).decode()
            for plan in batch.column(0).to_pylist()
        ]
        yield pa.RecordBatch.from_arrays([pa.array(costs, pa.string())], ["cost"])
