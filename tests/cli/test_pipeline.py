"""`contrada pipeline` where it must end before Spark starts."""

import json
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from contrada.cli import main
from contrada.cli import pipeline as cli_pipeline
from contrada.integrations.spark import spark_session
from tests.commands import bare_environment

DESCRIPTION = """
subscriptions = "subs"
output = "out"
[[source]]
name = "a"
format = "csv"
paths = ["a.csv"]
"""


needs_pyspark = pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")


@pytest.fixture
def description(tmp_path: Path) -> Path:
    """A small, valid pipeline."""
    (tmp_path / "subs").write_text("one: a = 1")
    (tmp_path / "a.csv").write_text("a\n1\n")
    path = tmp_path / "p.toml"
    path.write_text(DESCRIPTION)
    return path


def contrada(*arguments: str, prelude: str = "", path: str = "") -> tuple[int, str, str]:
    """Status, output and errors of the command in a process of its own."""
    code = f"import sys\n{prelude}\nfrom contrada.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=bare_environment(path),
    )
    return run.returncode, run.stdout, run.stderr


@needs_pyspark
@pytest.mark.slow
def test_without_java(description: Path) -> None:
    """A missing Java would show as a stack trace of another library."""
    command = ("pipeline", "run", str(description), "--engine", "spark")
    status, output, errors = contrada(*command)
    assert (status, output) == (2, "")
    assert errors.startswith("contrada: error: Java is missing: install a Java of at least 17")
    assert errors.count("\n") == 1


@needs_pyspark
@pytest.mark.slow
def test_small_local_files_need_no_java(description: Path) -> None:
    """A small run would wait for a JVM, or not say that it has none."""
    status, output, errors = contrada("pipeline", "run", str(description), "--json")
    assert (status, json.loads(output)["matches"]) == (0, {"one": 1}), errors
    assert errors == "small local files: run without Spark (--engine spark for Spark)\n"


def test_without_pyspark(description: Path) -> None:
    """A user of the smallest installation would not know the extra to install."""
    status, _, errors = contrada(
        "pipeline", "run", str(description), prelude="sys.modules['pyspark'] = None"
    )
    assert status == 2
    assert "pip install 'contrada[spark]'" in errors
    assert errors.count("\n") == 1


@needs_pyspark
def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, description: Path) -> None:
    """Spark would fail to start, without a reason."""
    monkeypatch.setattr(spark_session, "_java", lambda: "/usr/bin/java")
    monkeypatch.setattr(spark_session, "_java_major", lambda java: 11)
    command = ["pipeline", "run", str(description), "--engine", "spark"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "Java 17 (found /usr/bin/java, 11) is missing" in result.stderr


@needs_pyspark
@pytest.mark.parametrize(
    ("arguments", "old", "new", "message"),
    [
        (
            (),
            "output",
            "outptu",
            "found the key outptu (did you mean output?), expected one of: subscriptions, output",
        ),
        ((), '"a.csv"', '"b.csv"', "found no file for"),
        ((), "[[source]]", "[[source]", "p.toml:4:"),
        (("--set", "out"), "", "", "expected NAME=VALUE"),
    ],
)
def test_bad_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    description: Path,
    arguments: tuple[str, ...],
    old: str,
    new: str,
    message: str,
) -> None:
    """The user would wait for Spark before the error of a slip of the pen."""
    monkeypatch.setattr("contrada.cli.pipeline.check_requirements", lambda **_: None)
    description.write_text(DESCRIPTION.replace(old, new) if old else DESCRIPTION)
    result = CliRunner().invoke(main, ["pipeline", "run", str(description), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@needs_pyspark
def test_ctrl_c_while_a_master_is_silent(
    description: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C reaches the main thread alone: it would wait for the end of the attempt."""
    threads = []

    def is_silent(*_: object) -> None:
        threads.append(threading.current_thread())
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_pipeline, "check_requirements", lambda **_: None)
    monkeypatch.setattr(socket, "create_connection", is_silent)
    command = ["pipeline", "run", str(description), "--master", "spark://127.0.0.1:1"]
    assert CliRunner().invoke(main, command).exit_code == 130
    assert threads == [threading.main_thread()]
