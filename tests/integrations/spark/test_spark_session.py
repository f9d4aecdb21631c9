"""Waits of the session are bounded; no test here starts Spark."""

import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.retries import DefaultPolicy, Retrying

from contrada.errors import EngineError, MissingRequirementError
from contrada.integrations.spark import spark_session


def test_work_that_ignores_an_interrupt_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C would wait for ever for a hanging task."""
    monkeypatch.setattr(spark_session, "INTERRUPT_WAIT_S", 0.05)
    monkeypatch.setattr(spark_session, "CANCEL_S", 0.01)
    may_end = threading.Event()

    def work(stop: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        may_end.wait()

    with pytest.raises(KeyboardInterrupt):
        spark_session.run_interruptibly(work)
    may_end.set()
    assert "left behind" in caplog.text


@pytest.mark.parametrize("is_endless", [False, True])
def test_an_interrupt_terminates_the_java_of_a_starting_session(
    monkeypatch: pytest.MonkeyPatch, is_endless: bool
) -> None:
    """Ctrl-C would wait for Spark's start and end; or a stream show the end of Java as an error."""
    java = Mock()
    java.proc.terminate.side_effect = (has_ended := threading.Event()).set
    monkeypatch.setattr(SparkContext, "_gateway", java)
    monkeypatch.setattr(spark_session, "_starting", is_starting := threading.Event())

    def work(stop: threading.Event) -> None:
        is_starting.set()
        os.kill(os.getpid(), signal.SIGINT)
        assert has_ended.wait(20)
        is_starting.clear()
        raise EngineError("its Java process has ended")

    with pytest.raises(KeyboardInterrupt):
        spark_session.run_interruptibly(work, is_endless=is_endless)
    assert has_ended.is_set()


def test_a_java_that_does_not_answer_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A command would hang before its start."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nexec tail -f /dev/null\n", "utf-8")
    java.chmod(0o755)
    monkeypatch.setattr(spark_session, "JAVA_WAIT_S", 0.05)
    monkeypatch.setattr(spark_session, "_java", lambda: str(java))
    with pytest.raises(MissingRequirementError, match="Java 17"):
        spark_session.check_requirements()


PLACES = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n    ^^^\n'


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            f"An exception was thrown from the Python worker:\n{PLACES}ValueError: one\ntwo\n",
            "ValueError: one two",
        ),
        (
            f"{PLACES}KeyError: 1\n\nDuring handling of the above exception, another exception "
            f"occurred:\n\n{PLACES}ValueError: two\n",
            "ValueError: two",
        ),
        (
            f"[STREAM_FAILED] Query [id = 1] terminated with exception: {PLACES}ValueError: one\n"
            " SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: 1\n\n"
            "Logical Plan:\n+- ~StreamingExecutionRelation FileStreamSource[file:/a], [id#4L]\n",
            "ValueError: one",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted: "
            f"org.apache.spark.api.python.PythonException: {PLACES}ValueError: one\n\n"
            "\tat org.apache.spark.A.b(A.scala:1)\n\nDriver stacktrace: SQLSTATE: XXKST\n",
            "ValueError: one",
        ),
        (
            "[STREAM_FAILED] Job aborted: java.lang.RuntimeException: it was not found.\n"
            "\tat org.apache.spark.A.b(A.scala:1)\n\nDriver stacktrace: SQLSTATE: XXKST\n"
            "=== Streaming Query ===\nIdentifier: 1\n",
            "[STREAM_FAILED] Job aborted: java.lang.RuntimeException: it was not found.",
        ),
        (
            "An error occurred.\n: java.io.IOException: one\nCaused by: java.io.B: two\n",
            "java.io.B: two",
        ),
        (
            ": org.apache.spark.E: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file "
            "file:///in/a%20b.parquet.  SQLSTATE: KD001\nCaused by: t.T: Socket is closed.\n",
            "file:///in/a%20b.parquet: t.T: Socket is closed.",
        ),
        (
            ": [F.F] Encountered error while reading file file:///in/a.parquet. It does not exist."
            "\nCaused by: java.io.E: File file:/in/a.parquet does not exist\n",
            "java.io.E: File file:/in/a.parquet does not exist",
        ),
        ("", "it gave no reason"),
        (
            "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = UNAVAILABLE\n"
            '\tdetails = "failed to connect"\n\tdebug_error_string = "UNAVAILABLE"\n>',
            "failed to connect",
        ),
    ],
)
def test_the_most_specific_line_of_an_error(said: str, line: str) -> None:
    """The user would see a line of a plan, or a secondary error."""
    assert spark_session.cause_of(said) == line


def test_workers_are_those_of_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """`detect` would not find pyarrow in an environment that is not activated."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    spark_session.configure(SparkSession.Builder())
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "./env/bin/python")
    spark_session.configure(SparkSession.Builder())
    assert os.environ["PYSPARK_PYTHON"] == "./env/bin/python"


def test_java_options_are_appended() -> None:
    """A proxy setting would replace the logging and the class archive."""
    own = {"spark.driver.extraJavaOptions": "-Xa", "spark.ui.enabled": "false"}
    given = {"spark.driver.extraJavaOptions": "-Xb", "spark.ui.enabled": "true", "spark.a": "b"}
    together = {"spark.driver.extraJavaOptions": "-Xa -Xb"}
    assert spark_session._merge_settings(own, given) == {**given, **together}
    assert spark_session._merge_settings({}, given) == given


class _Patient(DefaultPolicy):
    """Spark's retry policy for any error."""

    def can_retry(self, e: BaseException) -> bool:
        return True


def test_calls_to_a_lost_server_end_soon() -> None:
    """A command with a dead server would take ten minutes to end."""
    policy = _Patient()
    client = SimpleNamespace(get_retry_policies=lambda: [policy])
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        spark_session._bound_retries(SimpleNamespace(client=client))  # type: ignore[arg-type]

    def call() -> None:
        for attempt in Retrying(policy, wait):
            with attempt:
                raise ConnectionError

    with pytest.warns(UserWarning, match="EXCEEDED"), pytest.raises(ConnectionError):
        call()
    assert len(waits) == spark_session.STOP_RETRIES_MAX


def test_short_sessions_are_compiled_quickly() -> None:
    """A pipeline of 1,000 rows would take a fifth more processor time."""
    key = "spark.driver.extraJavaOptions"
    short, long = (
        spark_session._settings(2, None, "", is_short=is_short)[key] for is_short in (True, False)
    )
    assert "-XX:TieredStopAtLevel=1 " in short
    assert "-XX:TieredStopAtLevel=1 " not in long
    assert long.endswith(short.partition("-XX:+UseSerialGC")[2])
