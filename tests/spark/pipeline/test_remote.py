"""A run through Spark Connect, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

PROGRAM = """
import sys
from pathlib import Path
from contrada.spark.pipeline.description import read_pipeline
from contrada.spark.pipeline.run import run_pipeline
from contrada.spark.session import spark_session

told = []
with spark_session(remote="local[1]") as session:
    session.conf.set("spark.sql.shuffle.partitions", "1")
    pipeline = read_pipeline(Path(sys.argv[1]))
    run_pipeline(session, pipeline, told=lambda *how_far: told.append(how_far))
assert told
"""

DESCRIPTION = """
subscriptions = "subs"
output = "out"
[[source]]
name = "rows"
format = "csv"
paths = ["a.csv"]
types = { at = "epoch" }
time = "at"
[[pattern]]
name = "rise"
pattern = "n = 1 -> n = 2"
[[table]]
path = "table"
"""


INTERRUPTED = """
import os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell may have had it ignored.
from contrada.spark.session import interruptible, spark_session

interrupted = threading.Event()

def interrupt(stages, **_):
    if any(each.num_completed_tasks for each in stages or ()) and not interrupted.is_set():
        interrupted.set()
        os.kill(os.getpid(), signal.SIGINT)

def work(stop):
    with spark_session(remote="local[1]") as session:
        session.registerProgressHandler(interrupt)
        session.range(0, 10, 1, 2).mapInArrow(half, "id long").collect()

def half(batches):
    import threading

    for batch in batches:
        if batch.column(0)[0].as_py():
            threading.Event().wait()  # For ever.
        yield batch

try:
    interruptible(work)
except KeyboardInterrupt:
    left = [each.name for each in threading.enumerate() if each.name == "pipeline"]
    print("ended", left)
"""


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A program in a process of its own, where Spark is behind Connect."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **paths},
    )


@pytest.mark.long
def test_an_interrupt_ends_what_runs_at_a_server() -> None:
    """Ctrl-C would wait for hours for a job that nobody wants any more."""
    pytest.importorskip("grpc")
    done = run(INTERRUPTED)
    assert (done.returncode, done.stdout) == (0, "ended []\n"), done.stderr


@pytest.mark.long
def test_a_run_through_connect(tmp_path: Path) -> None:
    """`--remote` would need what only a Spark of one's own has."""
    pytest.importorskip("grpc")
    (tmp_path / "a.csv").write_text("n,at\n1,1\n2,2\nbad\n")
    (tmp_path / "subs").write_text("low: n < 2\n")
    (tmp_path / "p.toml").write_text(DESCRIPTION)
    done = run(PROGRAM, str(tmp_path / "p.toml"))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["matches"], report["patterns"]) == ({"low": 1}, {"rise": 1})
    assert report["sources"][0]["bad"] == 1
    for place in ("out/matches", "out/patterns", "table"):
        assert pq.read_table(tmp_path / place).num_rows == 1
