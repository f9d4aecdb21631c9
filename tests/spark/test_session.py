"""Waits of the session have an end; none of this starts Spark."""

import os
import signal
import threading
from pathlib import Path

import pytest

from contrada.errors import MissingRequirementError
from contrada.spark import session


def test_what_does_not_end_when_interrupted_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C would wait for ever for a task that hangs."""
    monkeypatch.setattr(session, "INTERRUPT_WAIT_S", 0.05)
    monkeypatch.setattr(session, "CANCEL_S", 0.01)
    may_end = threading.Event()

    def work(stop: threading.Event) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        may_end.wait()

    with pytest.raises(KeyboardInterrupt):
        session.interruptible(work)
    may_end.set()
    assert "left behind" in caplog.text


def test_a_java_that_does_not_answer_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A command would hang before it has begun."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nexec tail -f /dev/null\n", "utf-8")
    java.chmod(0o755)
    monkeypatch.setattr(session, "JAVA_WAIT_S", 0.05)
    monkeypatch.setattr(session, "_java", lambda: str(java))
    with pytest.raises(MissingRequirementError, match="Java 17"):
        session.check_requirements()
