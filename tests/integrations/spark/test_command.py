"""`contrada pipeline run` with a broker and a subscriber, and in processes that are interrupted.

Commands run in this process, on its Spark session. Only tests that interrupt a process or kill Java
start a process, and so a Java, of their own: these are slow.
"""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from contrada.connections import connect_sync
from contrada.integrations.spark.pipeline import match_publisher, pipeline_description
from contrada.integrations.spark.pipeline.pipeline_description import (
    Pipeline,
    PipelineLimits,
    read_pipeline,
)
from contrada.model import Notification
from contrada.net.broker.broker import Broker
from tests.asynchronous import TEST_S_MAX
from tests.commands import here
from tests.own_operators import CONTRADA

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


@pytest.fixture
def session_of_tests(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process use the session of the tests."""

    def session(*_: object, **__: object) -> nullcontext[SparkSession]:
        spark.createDataFrame([], "n int")  # Makes it the active session of the command's thread.
        return nullcontext(spark)

    monkeypatch.setattr("contrada.cli.pipeline.spark_session", session)


@pytest.mark.usefixtures("session_of_tests")
def test_matches_are_published_once(
    broker: str, description: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber would receive a notification once for each match, or never."""
    monkeypatch.chdir(tmp_path)  # `out` is relative to it.
    command = ["pipeline", "run", str(description), "--publish", broker]
    with connect_sync(broker) as service, service.subscribe("n > 9") as events:
        run = here(*command, "--set", "out=other", "--json", "--cores", "1")
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


class MortalBroker:
    """A broker without a store, on a thread, that stops after the first job of a publication."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._started.wait()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with Broker("127.0.0.1", 0) as broker:
            self.address = broker.address
            self._started.set()
            await self._stop.wait()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()


@pytest.mark.usefixtures("session_of_tests")
def test_the_rest_is_published_after_a_broker_was_lost(
    broker: str, description: Path, tmp_path: Path
) -> None:
    """The published count would be unknown, and a resumed run would publish everything twice."""
    text = description.read_text()
    description.write_text(f'delivery = "reliable"\n{text}')  # The mortal broker has no store.
    command = ["pipeline", "run", str(description), "--cores", "1", "--json"]
    mortal = MortalBroker()

    def limited(*arguments: Any) -> Pipeline:
        limits = PipelineLimits(published_at_once=20, broker_away_s=1.0)
        return replace(read_pipeline(*arguments), limits=limits)

    save_state = match_publisher._MatchPublisher._save_state

    def saved(publisher: match_publisher._MatchPublisher) -> None:
        save_state(publisher)
        if any(publisher.state.sources.values()):
            mortal.stop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_description, "read_pipeline", limited)
        patch.setattr(match_publisher._MatchPublisher, "_save_state", saved)
        run = here(*command, "--publish", mortal.address)
    assert (run.returncode, run.stdout) == (1, "")
    last_line = run.stderr.splitlines()[-1]
    assert "at least 20 of 60 notifications of rows are published; " in last_line
    assert "--resume publishes the rest" in last_line
    with connect_sync(broker) as service, service.subscribe("n exists") as events:
        run = here(*command, "--resume", "--publish", broker)
        assert (run.returncode, run.stdout) == (0, '{"published":{"rows":40}}\n'), run.stderr
        assert [events.next(timeout_s=20)["n"] for _ in range(40)] == list(range(20, 60))
    (file,) = tmp_path.rglob("out/published.json")
    state = json.loads(file.read_text())
    assert (state["address"], state["sources"]) == (broker, {"rows": 60})


@pytest.mark.usefixtures("session_of_tests")
def test_likely_mistakes_are_reported(description: Path, tmp_path: Path) -> None:
    """A typing error would look like a run without matches."""
    text = description.read_text()
    description.write_text(
        text.replace("{ at =", '{ ta = "text", at =')
        + '[[source]]\nname = "worse"\nformat = "json"\npaths = ["b.json"]\n'
        + '[[source]]\nname = "none"\nformat = "xml"\nentries = "x"\npaths = ["c.xml"]\n'
    )
    (tmp_path / "b.json").write_text("{\n[\n")
    (tmp_path / "c.xml").write_text("<a/>")
    run = here("pipeline", "run", str(description), "--cores", "1")
    assert run.returncode == 3, run.stderr
    assert run.stderr.splitlines()[-3:] == [
        "contrada: error: rows: no record has 'ta', which an option names",
        "contrada: error: worse: all 2 records are bad",
        "contrada: error: none: found no record",
    ]
    assert "found 1 cells, expected 2" in run.stdout
    assert f"matches and quarantine: {tmp_path / 'out'}\n" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["starting", "matching", "stopping"])
def test_ctrl_c_ends_a_run_cleanly(description: Path, tmp_path: Path, stage: str) -> None:
    """An interrupted run would leave a traceback, half an output, or a running Java."""
    slow = tmp_path / "slow.py"
    slow.write_text(INTERRUPTED[stage])
    command = [sys.executable, str(slow), "pipeline", "run", str(description), "--cores", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_S_MAX)
    assert run.returncode == 130, run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
    assert (tmp_path / "out" / "matches").exists() == (stage == "stopping")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["between calls", "in a call", "in an unread call"])
def test_the_end_of_java_is_reported_on_one_line(
    description: Path, tmp_path: Path, when: str
) -> None:
    """A lack of memory would look like a fault of another library."""
    dying = tmp_path / "dying.py"
    dying.write_text(DYING % DEATHS[when])
    command = [sys.executable, str(dying), "pipeline", "run", str(description), "--cores", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TEST_S_MAX)
    last_line = run.stderr.splitlines()[-1]
    assert (run.returncode, run.stdout) == (1, "")
    assert last_line == "contrada: error: Spark ended the run: its Java process has ended"
    assert "Traceback" not in run.stderr


DYING = """
import os, signal
from pyspark import SparkContext
from contrada.integrations.spark.pipeline import pipeline_run
check = pipeline_run.check_pipeline
def killed(session, pipeline, address):
    %s
    return check(session, pipeline, address)
pipeline_run.check_pipeline = killed
from contrada.cli import main
main()
"""

DEATHS = {
    "between calls": """os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
    SparkContext._gateway.proc.wait()""",
    "in a call": "SparkContext._jvm.java.lang.Runtime.getRuntime().halt(1)",
    "in an unread call": """os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)
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
    session = get(self)
    print("started all the same", flush=True)
    return session
SparkSession.Builder.getOrCreate = interrupted
from contrada.cli import main
main()
""",
    "matching": """
import os, signal
from contrada.integrations.spark.pipeline import pipeline_results, pipeline_run
pipeline_run.ShortRun = pipeline_run.SparkRun  # It counts in jobs of Spark.
count = pipeline_results.counts_of
def interrupted(frame, sources, subscriptions):
    def endless(batches, parent=os.getpid()):
        import os, signal, threading
        os.kill(parent, signal.SIGINT)
        threading.Event().wait()
        yield from batches
    return count(frame.mapInArrow(endless, frame.schema), sources, subscriptions)
pipeline_results.counts_of = interrupted
from contrada.cli import main
main()
""",
    "stopping": """
import os, signal, threading
from pyspark import SparkContext
from contrada.integrations.spark import spark_session
cancel, cancelled, stop = spark_session._cancel_jobs, threading.Event(), SparkContext.stop
def watched():
    cancel()
    cancelled.set()
spark_session._cancel_jobs = watched
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
