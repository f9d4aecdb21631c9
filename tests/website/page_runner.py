"""`PageRunner` executes the blocks of a page in order, as a reader would.

A block with `title="NAME"` is a file, unless its title begins with `terminal`. A `python` block
runs, and the `text` block behind it is its output. A `console` block has commands after `$ `, each
with its output; `^C` interrupts the command of the terminal. `…` stands for any text within a line,
and on a line of its own for any lines. Only in a titled terminal does a command run on, and a later
block of that terminal may show more of its output.

Commands see a network of their own, so each page may use the default ports.
"""

import codecs
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.words import REPOSITORY

WAIT_S: Final = 60.0

RUN_PROGRAM: Final = "python example.py 2> errors.txt || cat errors.txt"
"""The output of a program is its standard output: Spark writes a log beside it."""

_BLOCK: Final = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Returns the blocks of a page in order."""
    return [Block(*found) for found in _BLOCK.findall(page.read_text("utf-8"))]


class PageRunner:
    """Runs the blocks of a page in a folder; a context, which ends all commands at its end."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self._terminals: dict[str, Command] = {}
        self._commands: list[Command] = []

    def __enter__(self) -> "PageRunner":
        if shutil.which("unshare") is None or shutil.which("ip") is None:
            pytest.skip("commands of pages need a network of their own: unshare and ip")
        script = "ip link set lo up && echo up && exec sleep infinity"
        self._network = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE
        )
        assert self._network.stdout is not None
        if self._network.stdout.readline() != b"up\n":  # Not root, or in a container.
            self._network.communicate()
            pytest.skip("commands of pages need a network of their own: none may be made here")
        return self

    def __exit__(self, *_: object) -> None:
        for command in reversed(self._commands):
            command.kill()
        self._network.kill()
        self._network.communicate()

    def run(self) -> None:
        """Runs all blocks. Raises AssertionError if a block has another output than shown."""
        blocks = blocks_of(self.page)
        assert blocks, self.page
        for at, block in enumerate(blocks):
            if block.title and not block.title.startswith("terminal"):
                path = self.folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, "utf-8")
            elif block.language == "console":
                self._run_console(block)
            elif block.language == "python":
                following = blocks[at + 1] if at + 1 < len(blocks) else Block("", "", "")
                assert following.language == "text", "a program without its output"
                (self.folder / "example.py").write_text(block.text, "utf-8")
                self._finished(RUN_PROGRAM, following.text)
            elif block.language == "text":
                assert blocks[at - 1].language == "python", f"no command prints: {block.text}"
            else:
                assert block.language == "filters", f"nothing runs this block: {block}"

    def prefix(self) -> list[str]:
        """Returns the words before a command that run it in the network of the page."""
        return ["nsenter", "--target", str(self._network.pid), "--net", "--"]

    def start(self, shell: str) -> "Command":
        """Starts a command of a shell in the folder and the network of the page."""
        words = [*self.prefix(), "bash", "-c", shell]
        self._commands.append(Command(words, **self._options()))
        return self._commands[-1]

    def _options(self) -> dict[str, Any]:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        paths = os.pathsep.join((str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")))
        environment = {**os.environ, "PATH": path, "PYTHONPATH": paths}
        environment |= {"COLUMNS": "100", "PYTHONUNBUFFERED": "1"}
        return {"cwd": self.folder, "env": environment, "stdin": subprocess.DEVNULL}

    def _run_console(self, block: Block) -> None:
        for shell, output in _transcript(block.text):
            if shell == "" and block.title:
                self._terminals[block.title].expect(output)
            elif shell == "^C":
                self._terminals.pop(block.title).interrupt()
            elif block.title:
                before = self._subscriptions() if output == "" else 0
                self._terminals[block.title] = command = self.start(shell)
                command.expect(output)
                while output == "" and self._subscriptions() == before:
                    assert command.is_running(), f"$ {shell}\nended without an output"
            else:
                self._finished(shell, output)

    def _subscriptions(self) -> int:
        """Returns the count at the page's broker: a subscriber shows no output when it is ready."""
        statistics = subprocess.run(
            [*self.prefix(), sys.executable, "-m", "contrada", "stats", "--json"],
            **self._options(),
            stdout=subprocess.PIPE,
            check=True,
        )
        return int(json.loads(statistics.stdout)["subscriptions"])

    def _finished(self, shell: str, output: str) -> None:
        command = self.start(shell)
        command.expect(output, is_all=True)


class Command:
    """A running command, and its output that no block has shown yet."""

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        self._shown = words[-1]
        self._output = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._process = subprocess.Popen(words, start_new_session=True, **options)

    def is_running(self) -> bool:
        """Whether the command has not ended."""
        return self._process.poll() is None

    def expect(self, output: str, *, is_all: bool = False) -> None:
        """Waits for output, which is the whole rest if `is_all`. Raises AssertionError."""
        expected = pattern_of(output)
        end = time.monotonic() + WAIT_S
        ended = False
        while not ended and (is_all or not expected.match(self._output)):
            ended = not self._read(end)
        found = expected.fullmatch(self._output) if is_all else expected.match(self._output)
        assert found, f"$ {self._shown}\nprinted:\n{self._output}\ninstead of:\n{output}"
        self._output = self._output[found.end() :]

    def interrupt(self) -> None:
        """Presses Ctrl-C, and waits for the end."""
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.communicate(timeout=WAIT_S)

    def kill(self) -> None:
        """Ends the command and its children."""
        if self.is_running():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _read(self, end: float) -> bool:
        """Reads more output; False at its end. Raises AssertionError after the time."""
        stream = self._process.stdout
        assert stream is not None
        ready, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"$ {self._shown}\nprinted only:\n{self._output}"
        data = os.read(stream.fileno(), 65_536)
        self._output += self._decoder.decode(data)
        if not data and self._output[-1:] not in ("", "\n"):
            self._output += "\n"  # As a terminal shows it.
        return bool(data)


def pattern_of(output: str) -> re.Pattern[str]:
    """Returns the pattern of an output: blanks at the ends of lines count for nothing."""
    lines = (
        r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*?") + r"\s*\n"
        for line in output.splitlines()
    )
    return re.compile("".join(lines))


def _transcript(text: str) -> Iterator[tuple[str, str]]:
    """Returns the commands of a console block with their outputs; without a command, output."""
    command, output = "", ""
    lines = iter(text.replace("\\\n", " ").splitlines(keepends=True))
    for line in lines:
        if line.startswith(("$ ", "^C")):
            if command or output:
                yield command, output
            command, output = line.removeprefix("$ ").strip(), ""
        else:
            output += line
    yield command, output
