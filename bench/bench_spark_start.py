"""The start on Spark: from the start of Python to the first match, in a new process."""

import os
import subprocess
import sys
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from bench.harness import Measurement, figure

SAMPLES: Final = 5

FIRST_MATCH: Final = """
from contrada.integrations.spark import match
from contrada.integrations.spark.spark_session import spark_session

with spark_session(2) as session:
    frame = session.createDataFrame([(1, "a"), (2, "b")], "n int, s string")
    found = frame.transform(match({"x": "n > 1 and s prefix 'b'"}, way="index")).collect()
    assert [row.subscriptions for row in found] == [[], ["x"]]
    print("matched", flush=True)
"""


def seconds(caches: str) -> float:
    """Returns the seconds until the first match, without the end of the session."""
    begin = perf_counter()
    environment = {**os.environ, "XDG_CACHE_HOME": caches}
    with subprocess.Popen(
        [sys.executable, "-c", FIRST_MATCH], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"matched\n"
        return perf_counter() - begin


@figure(
    name="spark/start",
    unit="s",
    workload="a session and the first match of two rows, behind `contrada spark prepare`",
    at_most=6.0,
    counts="clock",
)
def start() -> Measurement:
    with TemporaryDirectory() as prepared, TemporaryDirectory() as bare:
        command = [sys.executable, "-m", "contrada", "spark", "prepare"]
        subprocess.run(command, check=True, env={**os.environ, "XDG_CACHE_HOME": prepared})
        pairs = [(seconds(prepared), seconds(bare)) for _ in range(SAMPLES)]
    return Measurement([a for a, _ in pairs], "without it", [b for _, b in pairs])
