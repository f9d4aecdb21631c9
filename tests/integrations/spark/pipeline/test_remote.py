"""Runs through Spark Connect, in processes of their own."""

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from contrada.connections import connect_sync
from tests.integrations.spark.pipeline.test_pipeline_stream import (
    DESCRIPTION as DESCRIPTION_OF_STREAM,
)
from tests.net.processes import serving

PROGRAM = """
import sys
from pathlib import Path
from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
from contrada.integrations.spark.pipeline.pipeline_run import run_pipeline
from contrada.integrations.spark.spark_session import spark_session

told = []
with spark_session(remote="local[1]") as session:
    session.conf.set("spark.sql.shuffle.partitions", "1")
    pipeline = read_pipeline(Path(sys.argv[1]))
    run_pipeline(session, pipeline, on_progress=lambda *how_far: told.append(how_far))
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
from contrada.integrations.spark.spark_session import run_interruptibly, spark_session

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
    run_interruptibly(work)
except KeyboardInterrupt:
    left = [each.name for each in threading.enumerate() if each.name == "pipeline"]
    print("ended", left)
"""


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs a program in a process of its own, with Spark behind Connect."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **paths},
    )


@pytest.mark.long
def test_an_interrupt_cancels_jobs_at_a_server() -> None:
    """Ctrl-C would wait for hours for an unwanted job."""
    pytest.importorskip("grpc")
    done = run(INTERRUPTED)
    assert (done.returncode, done.stdout) == (0, "ended []\n"), done.stderr


@pytest.mark.long
def test_a_run_through_connect(tmp_path: Path) -> None:
    """`--remote` would need features of a local Spark."""
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


STREAM = """
import os, sys, threading
from pathlib import Path
from contrada.errors import EngineError
from contrada.integrations.spark.pipeline.pipeline_description import read_pipeline
from contrada.integrations.spark.pipeline.pipeline_stream import run_stream
from contrada.integrations.spark.spark_session import spark_session
from tests.integrations.spark.pipeline.test_pipeline_stream import give, matched, rows_in

folder = Path(sys.argv[1])
os.chdir(folder)
give(folder, "a", {"n": 1, "key": "x"}, {"n": 2, "key": "x"}, {"n": 0, "key": "x"}, "{")

def run(session, text="", **options):
    Path("p.toml").write_text(text + Path("described").read_text())
    return run_stream(session, read_pipeline(Path("p.toml")), publish=sys.argv[2], **options)

with spark_session(remote="local[1]") as session:
    session.conf.set("spark.sql.shuffle.partitions", "1")
    first = run(session)
    print(first.batches, first.matches, first.patterns, first.sources[0].bad)
    Path("subs").write_text("low: n < 2\\nhigh: n >= 5\\n")
    give(folder, "b", {"n": 1, "key": "y"}, {"n": 7, "key": "y"}, {"n": 2, "key": "y"})
    give(folder, "c", "[")
    bad = Path("out/quarantine")
    bad.rename("kept")
    bad.write_text("")
    try:
        run(session)
    except Exception as error:
        print(str(error).count("FileExistsError") > 0)
    bad.unlink()
    Path("kept").rename(bad)
    stop = threading.Event()
    told = lambda what, *_: "batch 2," in what and stop.set()
    last = run(session, "trigger = '1 s'", on_progress=told, stop=stop)
    print(last.batches, last.matches, last.patterns, last.sources[0].bad, last.published)
    print(matched(folder), len(rows_in(folder, "patterns")), len(last.versions))
"""


@pytest.mark.long
def test_a_stream_through_connect(tmp_path: Path) -> None:
    """Micro-batches run beside the server, without the state of this process."""
    pytest.importorskip("grpc")
    (tmp_path / "in").mkdir()
    (tmp_path / "subs").write_text("low: n < 2\n")
    (tmp_path / "described").write_text(DESCRIPTION_OF_STREAM)
    with (
        serving("--port", "0", "--store", str(tmp_path / "log.db")) as (_, address),
        connect_sync(address) as service,
        service.subscribe("n >= 0") as subscription,
    ):
        done = run(STREAM, str(tmp_path), address)
        assert done.returncode == 0, done.stderr
        taken = [*islice(subscription, 4)]
    assert done.stdout.splitlines() == [
        "1 {'low': 2} {'rise': 1} 1",
        "True",
        "3 {'low': 3, 'high': 1} {'rise': 1} 2 4",
        "[(0, 'low', 0, 1), (0, 'low', 1, 1), (1, 'high', 7, 2), (1, 'low', 1, 2)] 1 2",
    ]
    assert sorted(str(each["n"]) for each in taken) == ["0", "1", "1", "7"]
