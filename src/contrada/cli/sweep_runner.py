"""Sweeps of simulations over all cores: on Spark if it is installed, else in processes."""

import os
import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import click

from contrada.cli import shared_options as options
from contrada.errors import MissingRequirementError
from contrada.lab.simulation.process_pool import in_processes

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
    run: Callable[[P], R], chosen: Iterable[P], engine: str, jobs: int, advance: Callable[[], None]
) -> list[R]:
    """Runs plans until an interrupt; returns the results. Raises MissingRequirementError."""
    results: list[R] = []

    def take(result: R) -> None:
        results.append(result)
        advance()

    sweep_each(run, chosen, engine, jobs, take)
    return results


def sweep_each(
    run: Callable[[P], R],
    chosen: Iterable[P],
    engine: str,
    jobs: int,
    take: Callable[[R], None],
    master: str | None = None,
) -> None:
    """Runs plans until an interrupt, and calls `take` with each result, as completed. Spark knows
    the functions of `sweeps.SWEEPS`; without a `master` it is on this machine. Raises
    MissingRequirementError.
    """
    if not _wants_spark(engine):
        for each in in_processes(run, chosen, jobs):
            take(each)
        return
    from contrada.integrations.spark.spark_session import (
        check_form,
        run_interruptibly,
        spark_session,
    )
    from contrada.integrations.spark.sweeps import SWEEPS, sweep_on_spark

    check_form(master, None)

    def work(stop: threading.Event) -> None:
        with spark_session(jobs, master=master) as session:
            for each in sweep_on_spark(session, chosen, SWEEPS[run]):
                if stop.is_set():
                    return
                take(each)

    run_interruptibly(work)


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
