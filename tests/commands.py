"""Commands that run in this process: what they say and how they end, and no second interpreter."""

import io
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout

from contrada.cli import main
from contrada.model.native import INTERPRETED_VARIABLE


def here(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command, with a text as its standard input; as `subprocess.run` would.

    A process of its own shows more only where it is interrupted, or has a terminal.
    """
    out, errors, before, status = io.StringIO(), io.StringIO(), sys.stdin, 0
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as given:
        given.write(text)
        given.seek(0)
        sys.stdin = given
        try:
            with redirect_stdout(out), redirect_stderr(errors):
                main(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            sys.stdin = before
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())


def bare_environment(path: str = "") -> dict[str, str]:
    """Returns the variables of a command that finds programs in `path` only, and no Java.

    An interpreted core stays as silent as in the tests' own process.
    """
    kept = {name: os.environ[name] for name in (INTERPRETED_VARIABLE,) if name in os.environ}
    return {"PATH": path, **kept}
