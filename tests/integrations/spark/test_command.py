"""`contrada pipeline run` as a user starts it, with a broker and a subscriber."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from contrada.connections import connect_sync
from contrada.model import Notification
from tests.asynchronous import TEST_S_MAX

CONTRADA = (sys.executable, "-c", "from contrada_command import main; main()")

DESCRIPTION = """
subscriptions = "subs"
output = "{out}"
[parameters]
out = "out"
[[source]]
name = "rows"
format = "csv"
paths = ["a.csv"]
types = { at = "time" }
time = "at"
type_marks = ["Row"]
"""

ROWS = "n,at\n" + "".join(f"{n},2013-01-01T05:00:{n:02}Z\n" for n in range(60)) + "bad\n"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker in a process of its own, with its store in the test's folder."""
    command = [*CONTRADA, "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)


@pytest.fixture
def description(tmp_path: Path) -> Path:
    """Sixty rows and a bad one; two subscriptions that overlap."""
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "subs").write_text("low: n < 40\nodd: n >= 20\n")
    path = tmp_path / "p.toml"
    path.write_text(DESCRIPTION)
    return path


def test_matches_are_published_once(broker: str, description: Path, tmp_path: Path) -> None:
    """Else a subscriber would get a notification as often as others asked for it, or never."""
    command = [*CONTRADA, "pipeline", "run", str(description), "--publish", broker]
    command += ["--set", "out=other", "--json", "--cores", "1"]
    with connect_sync(broker) as service, service.subscribe("n > 9") as events:
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        found = [events.next(timeout_s=20) for _ in range(50)]
    assert [each["n"] for each in found] == list(range(10, 60))
    first = found[0]
    assert isinstance(first, Notification)
    assert first["@is.Row"] is True
    assert first.envelope.time_us == 1_357_016_410_000_000
    summary = json.loads(run.stdout)
    (source,) = summary["sources"]
    assert (source["read"], source["bad"], source["matched"]) == (60, 1, 60)
    assert source["published"] == summary["published"] == 60
    assert summary["matches"] == {"low": 40, "odd": 40}
    assert pq.read_table(tmp_path / "other" / "matches").num_rows == 80
    assert pq.read_table(tmp_path / "other" / "quarantine").num_rows == 1


def test_what_a_broker_that_dies_left_is_published_later(
    broker: str, description: Path, tmp_path: Path
) -> None:
    """Else one would not know what subscribers have, and everything would come twice."""
    text = description.read_text()
    description.write_text(f'delivery = "reliable"\n{text}')  # That broker has no store.
    dying = tmp_path / "dying.py"
    dying.write_text(WITHOUT_BROKER)
    command = ["pipeline", "run", str(description), "--cores", "1", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, str(dying), *command], capture_output=True, text=True, env=environment
    )
    assert (run.returncode, run.stdout) == (1, "")
    said = run.stderr.splitlines()[-1]
    assert "at least 20 of 60 notifications of rows are published; " in said
    assert "--resume publishes the rest" in said
    with connect_sync(broker) as service, service.subscribe("n exists") as events:
        run = subprocess.run(
            [*CONTRADA, *command, "--resume", "--publish", broker], capture_output=True, text=True
        )
        assert (run.returncode, run.stdout) == (0, '{"published":{"rows":40}}\n'), run.stderr
        assert [events.next(timeout_s=20)["n"] for _ in range(40)] == list(range(20, 60))
    (kept,) = tmp_path.rglob("out/published.json")
    told = json.loads(kept.read_text())
    assert (told["address"], told["sources"]) == (broker, {"rows": 60})


WITHOUT_BROKER = """
import asyncio, sys, threading
from contrada.net import Broker
from contrada.integrations.spark.pipeline import publishing

publishing.PUBLISHED_AT_ONCE, publishing.BROKER_AWAY_S = 20, 1.0
keep, started = publishing._MatchPublisher._keep, threading.Event()

async def serve():
    global loop, stop, address
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    async with Broker("127.0.0.1", 0) as broker:
        address = broker.address
        started.set()
        await stop.wait()

thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
thread.start()
started.wait()

def kept(publisher):
    keep(publisher)
    if publisher.state.sources and thread.is_alive():
        loop.call_soon_threadsafe(stop.set)
        thread.join()

publishing._MatchPublisher._keep = kept
sys.argv += ["--publish", address]
from contrada.cli import main
main()
"""


def test_what_is_not_as_it_was_meant_is_said(description: Path, tmp_path: Path) -> None:
    """Else a slip of the pen would look like a run in which nothing matched."""
    text = description.read_text()
    description.write_text(
        text.replace("{ at =", '{ ta = "text", at =')
        + '[[source]]\nname = "worse"\nformat = "json"\npaths = ["b.json"]\n'
        + '[[source]]\nname = "none"\nformat = "xml"\nentries = "x"\npaths = ["c.xml"]\n'
    )
    (tmp_path / "b.json").write_text("{\n[\n")
    (tmp_path / "c.xml").write_text("<a/>")
    command = [*CONTRADA, "pipeline", "run", str(description), "--cores", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 3, run.stderr
    assert run.stderr.splitlines()[-3:] == [
        "contrada: error: rows: no record has 'ta', which an option names",
        "contrada: error: worse: all 2 records are bad",
        "contrada: error: none: found no record",
    ]
    assert "found 1 cells, expected 2" in run.stdout
    assert f"matches and quarantine: {tmp_path / 'out'}\n" in run.stdout


@pytest.mark.parametrize("begun", ["starting", "matching", "stopping"])
def test_ctrl_c_ends_it_cleanly(description: Path, tmp_path: Path, begun: str) -> None:
    """Else an interrupted run would leave a traceback, half an output, or a Java running."""
    slow = tmp_path / "slow.py"
    slow.write_text(INTERRUPTED[begun])
    command = [sys.executable, str(slow), "pipeline", "run", str(description), "--cores", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_S_MAX)
    assert run.returncode == 130, run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
    assert (tmp_path / "out" / "matches").exists() == (begun == "stopping")


@pytest.mark.parametrize("when", ["between calls", "in a call", "in a call that it did not read"])
def test_a_java_that_dies_is_one_line(description: Path, tmp_path: Path, when: str) -> None:
    """Else a lack of memory would show as a traceback of another library."""
    dying = tmp_path / "dying.py"
    dying.write_text(DYING % DEATHS[when])
    command = [sys.executable, str(dying), "pipeline", "run", str(description), "--cores", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_S_MAX)
    said = run.stderr.splitlines()[-1]
    assert (run.returncode, run.stdout) == (1, "")
    assert said == "contrada: error: Spark ended the run: its Java process has ended"
    assert "Traceback" not in run.stderr


DYING = """
import os, signal
from pyspark import SparkContext
from contrada.integrations.spark.pipeline import run
count = run.counts_of
def killed(frame, sources, subscriptions):
    %s
    return count(frame, sources, subscriptions)
run.counts_of = killed
from contrada.cli import main
main()
"""

DEATHS = {
    "between calls": """os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    SparkContext._gateway.proc.wait()""",
    "in a call": "SparkContext._jvm.java.lang.Runtime.getRuntime().halt(1)",
    "in a call that it did not read": """os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    SparkContext._gateway.proc.wait()
    from py4j import clientserver, protocol
    def reset(connection, command):
        what = "Error while sending or receiving"
        raise protocol.Py4JNetworkError(what, ConnectionResetError(), protocol.ERROR_ON_RECEIVE)
    clientserver.ClientServerConnection.send_command = reset""",
}

# The signal comes at a known point: as the session begins to start, from within a job, and when
# the Java side has just stopped.
INTERRUPTED = {
    "starting": """
import os, signal, threading
from pyspark.sql import SparkSession
get = SparkSession.Builder.getOrCreate
def interrupted(self):
    os.kill(os.getpid(), signal.SIGINT)
    return get(self)
SparkSession.Builder.getOrCreate = interrupted
from contrada.cli import main
main()
""",
    "matching": """
import os, signal
from contrada.integrations.spark.pipeline import run
count = run.counts_of
def interrupted(frame, sources, subscriptions):
    def endless(batches, parent=os.getpid()):
        import os, signal, threading
        os.kill(parent, signal.SIGINT)
        threading.Event().wait()
        yield from batches
    return count(frame.mapInArrow(endless, frame.schema), sources, subscriptions)
run.counts_of = interrupted
from contrada.cli import main
main()
""",
    "stopping": """
import os, signal, threading
from pyspark import SparkContext
from contrada.integrations.spark import session
cancel, cancelled, stop = session._cancel_jobs, threading.Event(), SparkContext.stop
def watched():
    cancel()
    cancelled.set()
session._cancel_jobs = watched
def interrupted(self):
    self._jsc.stop()
    os.kill(os.getpid(), signal.SIGINT)
    cancelled.wait(60)
    stop(self)
SparkContext.stop = interrupted
from contrada.cli import main
main()
""",
}
