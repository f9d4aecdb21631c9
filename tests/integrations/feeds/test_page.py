"""Holds docs/feeds.md: its examples print the text below them, and its commands exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from contrada.cli import main

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "feeds.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ contrada (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("code", "output"), EXAMPLES, ids=["documents", "feeds"])
def test_examples_print_the_shown_output(code: str, output: str, tmp_path: Path) -> None:
    """The first example that a reader runs would fail, or print other text."""
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.stderr, run.stdout) == ("", output)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_the_options_that_are_shown(command: str) -> None:
    """The page would show an option that does not exist."""
    words = shlex.split(command, comments=True)
    depth = 2 if words[0] == "xml" else 1
    usage = CliRunner().invoke(main, [*words[:depth], "--help"])
    assert usage.exit_code == 0
    for word in words[depth:]:
        assert not word.startswith("--") or word in usage.stdout
