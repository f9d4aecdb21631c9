"""`contrada spark`: a cluster of Spark on this machine."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from contrada.cli import shared_options as options
from contrada.cli.processes import Processes
from contrada.integrations.spark import class_archive, cluster, spark_session

SPARK_END_WAIT_S: Final = 15.0
"""Seconds for a master or worker to end. Beyond it: it is killed."""

WORKERS_MAX: Final = 64
"""Workers of a cluster on one machine. Beyond it: refused."""


@click.group()
def spark() -> None:
    """Run a cluster of Spark on this machine, for trials and tests."""


@spark.command()
@click.option("--workers", type=click.IntRange(1, WORKERS_MAX), default=2)
@click.option("--cores", type=options.COUNT, default=1, help="Cores of each worker.")
@click.option("--memory", default="1g", help="Memory of each worker, such as 512m or 2g.")
@options.typed("--port", options.PORT, None, "Port of the master; 0 chooses a free one.", 7077)
@options.flag("-v --verbose", "Show the logs of master and workers.")
def up(workers: int, cores: int, memory: str, port: int, verbose: bool) -> None:
    """Start Spark's own master and workers here. Ctrl-C or SIGTERM stops them.

    Prints the address of the master when all workers are ready. They also end when this command is
    killed. Jobs on them use the interpreter and the packages of the pipeline.

    \b
    contrada spark up --workers 2
    contrada pipeline run operations.toml --master spark://127.0.0.1:7077
    """  # noqa: D301 - click reads the escape
    spark_session.check_requirements()
    with TemporaryDirectory(prefix="contrada-spark-") as folder:
        os.environ.update(cluster.environment(Path(folder)))
        started = _Cluster(Path(folder), workers, cores, memory, is_shown=verbose)
        commands = [("master", cluster.master_command(port))]
        status = asyncio.run(started.processes.run(commands))
    raise click.exceptions.Exit(status)


@spark.command()
def prepare() -> None:
    """Make sessions of Spark start faster on this machine.

    Starts one session, and stores its loaded classes in your cache folder, some 150 MB. Pipelines
    use them from then on. Repeat it after a change of Java or PySpark. Prints the Java options that
    other sessions may use as spark.driver.extraJavaOptions.
    """
    spark_session.check_requirements()
    class_archive.write_archive()
    click.echo(spark_session.archive_options())


class _Cluster:
    """Starts workers when the master listens, and prints its address when all are ready."""

    def __init__(
        self, folder: Path, workers: int, cores: int, memory: str, *, is_shown: bool
    ) -> None:
        self.processes = Processes(SPARK_END_WAIT_S, self._hear)
        self._folder, self._offers = folder, (cores, memory)
        self._waited_for = {f"worker-{number}" for number in range(1, workers + 1)}
        self._is_shown = is_shown
        self._master = ""
        self._work: set[asyncio.Task[None]] = set()

    def _hear(self, name: str, line: str) -> None:
        is_fault = (" ERROR " in line or line.startswith("Error")) and "SIGNAL TERM" not in line
        if self._is_shown or is_fault:
            self.processes.print_line(f"{name} | {line}", err=True)
        if name == "master" and (found := cluster.MASTER_AT.search(line)):
            self._master = found[1]
            for each in sorted(self._waited_for):
                command = cluster.worker_command(self._master, *self._offers, self._folder / each)
                self._work.add(asyncio.create_task(self.processes.start(each, command)))
        elif cluster.REGISTERED in line and name in self._waited_for:
            self._waited_for.discard(name)
            if not self._waited_for:
                self.processes.print_line(self._master, err=False)
