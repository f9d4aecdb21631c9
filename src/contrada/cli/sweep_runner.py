"""Sweeps of simulations over all cores: on Spark if it is installed, else in processes."""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import click

from contrada.cli import shared_options as options
from contrada.errors import MissingRequirementError

P = TypeVar("P")
R = TypeVar("R")

engine_options: Final = options.joined(
    options.typed(
        "--engine",
        click.Choice(("auto", "spark", "embedded")),
        None,
        "Where to run; auto: on Spark if it is installed.",
        "auto",
    ),
    options.typed(
        "--jobs", options.COUNT, None, "Processes, or cores of Spark.", os.cpu_count() or 1
    ),
)


def explain_columns(title: str, columns: dict[str, str], width: int) -> str:
    """Returns the explanation of the columns of a table, for the end of the help."""
    lines = (f"  {name:{width}}  {meaning}" for name, meaning in columns.items())
    return "\n".join(("\b", f"{title}:", *lines))


def sweep_results(
    chosen: Sequence[P],
    in_processes: Callable[[Sequence[P], int], Iterable[R]],
    engine: str,
    jobs: int,
    advance: Callable[[], None],
) -> list[R]:
    """Runs plans until an interrupt; returns the results. Raises MissingRequirementError."""
    results: list[R] = []

    def take(result: R) -> None:
        results.append(result)
        advance()

    if not _wants_spark(engine):
        for each in in_processes(chosen, jobs):
            take(each)
        return results
    from contrada.integrations.spark.spark_session import run_interruptibly, spark_session
    from contrada.integrations.spark.sweeps import GOSSIPS, OVERLAYS, sweep_on_spark

    sweep = OVERLAYS if isinstance(chosen[0], OVERLAYS.plan) else GOSSIPS

    def work(stop: threading.Event) -> None:
        with spark_session(jobs) as session:
            for each in sweep_on_spark(session, chosen, sweep):  # type: ignore[misc]
                if stop.is_set():
                    return
                take(each)

    run_interruptibly(work)
    return results


def _wants_spark(engine: str) -> bool:
    """Whether the engine auto, spark or embedded means Spark on this machine."""
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
