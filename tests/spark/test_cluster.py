"""Spark's own master and workers, as a user starts them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.asynchronous import TEST_S_MAX
from tests.own_operators import CONTRADA

WORKERS = 2

PLACES = """
import sys
from contrada.spark.session import spark_session

def places(batches):
    import os, pyarrow, contrada
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"at": [os.getppid()]})

with spark_session(master=sys.argv[1]) as session:
    rows = session.range(0, 4, 1, 4).mapInArrow(places, "at long").collect()
    print(session.sparkContext.master, len({row["at"] for row in rows}))
"""


@contextmanager
def cluster() -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The command, and the address that it prints."""
    command = [*CONTRADA, "spark", "up", "--workers", str(WORKERS), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.slow
def test_a_cluster_starts_works_and_stops() -> None:
    """What holds in one process may not hold where workers are apart."""
    with cluster() as (process, master):
        done = subprocess.run(
            [sys.executable, "-c", PLACES, master],
            capture_output=True,
            text=True,
            timeout=TEST_S_MAX,
            check=False,
        )
        assert done.stdout == f"{master} {WORKERS}\n", done.stderr
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=TEST_S_MAX)
    assert (process.returncode, said) == (0, "")
