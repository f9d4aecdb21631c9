"""Operators of extensions in a pipeline: workers load them, too."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.own_operators import EXTENSION, write_module

DESCRIPTION = """
subscriptions = "subs"
output = "out"
[[source]]
name = "rows"
format = "csv"
paths = ["a.csv"]
"""


WITH_A_PATH = "import sys; sys.path.append('mine'); from contrada_command import main; main()"


@pytest.mark.slow  # The paths of workers are fixed when a session starts.
def test_workers_load_the_extensions_of_the_driver(tmp_path: Path) -> None:
    """A task would fail without the operator."""
    (tmp_path / "mine").mkdir()
    write_module(tmp_path / "mine")  # Only the driver's own path leads there.
    (tmp_path / "subs").write_text("long: name longer '3'\n", "utf-8")
    (tmp_path / "a.csv").write_text("name\nabc\nabcd\n", "utf-8")
    (tmp_path / "p.toml").write_text(DESCRIPTION, "utf-8")
    command = [sys.executable, "-c", WITH_A_PATH, "pipeline", "run", "p.toml", "--json"]
    options = ("--cores", "1", "--extension", EXTENSION)
    run = subprocess.run(
        [*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["matches"] == {"long": 1}
