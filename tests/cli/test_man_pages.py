"""The manual pages and completions that a wheel has."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contrada.cli import COMMANDS
from contrada.cli.man_pages import shared_files, write_shared_files
from tests.own_operators import CONTRADA

FILES = dict(shared_files("1.2.3"))


def test_each_command_has_a_page_with_its_options_and_subcommands() -> None:
    """`man contrada-serve` would find nothing, or lack the options that an operator looks for."""
    assert {path for path in FILES if path.startswith("man/")} == {
        *(f"man/man1/contrada-{name}.1" for name in COMMANDS),
        "man/man1/contrada.1",
    }
    serve, user = (FILES[f"man/man1/contrada-{name}.1"] for name in ("serve", "user"))
    assert r"\fB\-\-tls\-certificate PEM\fR" in serve
    assert "[env var: CONTRADA_SERVE_TLS_CERTIFICATE]" in serve
    assert "[env var: CONTRADA_SERVE_PORT; default: 7655; 0<=x<=65535]" in serve
    assert '.SH "CONTRADA USER ADD"' in user
    assert "130\nended by Ctrl" in FILES["man/man1/contrada.1"]
    assert '"contrada 1.2.3"' in serve


def test_examples_keep_their_lines() -> None:
    """Commands of an example would be joined to a paragraph, and could not be copied."""
    serve = FILES["man/man1/contrada-serve.1"]
    (examples, *_) = re.findall(r"^\.nf\n(.*?)^\.fi$", serve, re.MULTILINE | re.DOTALL)
    assert examples.startswith("contrada serve\ncontrada serve \\-\\-host 0.0.0.0")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_pages_are_valid(tmp_path: Path) -> None:
    """A line with a dot at its start would vanish, or a letter be shown as another one."""
    write_shared_files(tmp_path, "1.2.3")
    for page in sorted(tmp_path.rglob("*.1")):
        command = ["groff", "-man", "-Tutf8", "-ww", "-z", str(page)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == "", page.name


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    """A tab would complete nothing, or start all libraries for it."""
    program = tmp_path / "contrada"
    program.write_text(f'#!/bin/sh\nexec {" ".join(CONTRADA)} "$@"\n', "utf-8")
    program.chmod(0o755)
    write_shared_files(tmp_path, "1.2.3")
    found = []
    for words in ("contrada ser", "contrada serve --tls-c", "contrada queue pu"):
        number = len(words.split()) - 1
        script = (
            f"source {tmp_path}/bash-completion/completions/contrada\n"
            f"COMP_WORDS=({words}) COMP_CWORD={number}\n"
            '_contrada_completion contrada; echo "${COMPREPLY[@]}"'
        )
        path = (
            f"{tmp_path}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
        done = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PATH": path},
        )
        found.append(done.stdout.split())
    assert found == [["serve"], ["--tls-certificate", "--tls-crl"], ["purge"]]
