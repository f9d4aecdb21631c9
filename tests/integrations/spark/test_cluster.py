"""Spark's own master and workers, started by `contrada spark up`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.asynchronous import TEST_S_MAX
from tests.integrations.spark import everywhere
from tests.net.processes import serving
from tests.own_operators import CONTRADA

WORKERS = 2


@contextmanager
def cluster() -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Yields the process of the command, and the address that it prints."""
    command = [*CONTRADA, "spark", "up", "--workers", str(WORKERS), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)


def elsewhere(where: str, folder: Path, *arguments: str) -> list[str]:
    """Returns the output of `everywhere` in another session."""
    done = subprocess.run(
        [sys.executable, everywhere.__file__, where, str(folder), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_a_cluster_starts_works_and_stops(spark: SparkSession, tmp_path: Path) -> None:
    """Results of one process may differ from those of separate workers."""
    names = ("match", "route", "detect")
    known = everywhere.results(spark, tmp_path, "", names)
    with cluster() as (process, master):
        processes, found = elsewhere(master, tmp_path, "", *names)
        assert int(processes) == WORKERS
        assert json.loads(found) == known
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=TEST_S_MAX)
    assert (process.returncode, said) == (0, "")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_cluster_and_connect_give_the_same_results(spark: SparkSession, tmp_path: Path) -> None:
    """A transform or the connector would depend on workers beside the driver."""
    with ExitStack() as stack:

        def address(name: str) -> str:
            return stack.enter_context(serving("--port", "0", "--store", str(tmp_path / name)))[1]

        known = everywhere.results(spark, tmp_path, address("one.db"))
        assert all(known.values())
        _, master = stack.enter_context(cluster())
        for where in (master, "connect"):
            *_, found = elsewhere(where, tmp_path, address(f"{where[:5]}.db"))
            assert json.loads(found) == known
