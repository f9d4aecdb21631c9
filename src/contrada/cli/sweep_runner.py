"""Sweeps of simulations over all cores: on Spark if it is installed, else in processes."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from contrada.errors import MissingRequirementError

if TYPE_CHECKING:
    from contrada.integrations.spark.sweeps import Sweep

P = TypeVar("P")
R = TypeVar("R")


def wants_spark(engine: str) -> bool:
    """Whether the engine auto, spark or embedded means Spark on this machine.

    Raises MissingRequirementError if Spark is requested and not installed.
    """
    if engine == "embedded":
        return False
    try:
        from contrada.integrations.spark.spark_session import check_requirements

        check_requirements()
    except MissingRequirementError:
        if engine == "spark":
            raise
        return False
    return True


def sweep_spread(
    chosen: Sequence[P], sweep: "Sweep[P, R]", cores: int, take: Callable[[R], None]
) -> None:
    """Runs plans on Spark; `take` gets each result. An interrupt ends it."""
    from contrada.integrations.spark.spark_session import run_interruptibly, spark_session
    from contrada.integrations.spark.sweeps import sweep_on_spark

    def work(stop: threading.Event) -> None:
        with spark_session(cores) as session:
            for result in sweep_on_spark(session, chosen, sweep):
                if stop.is_set():
                    return
                take(result)

    run_interruptibly(work)
