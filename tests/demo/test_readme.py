"""What the README shows is true: its code runs, its commands work, its places exist."""

import ast
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import contrada as ct
from contrada.cli.broker_settings import settings_of_network
from examples.demo.sources import FIRST_DAY, write_sources

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text("utf-8")
SOURCE = REPOSITORY / "src" / "contrada"
WAIT_S = 60.0

PYTHON_AND_OUTPUT = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", README, re.DOTALL)
FILTERS = re.search(r"```filters\n(.*?)```", README, re.DOTALL)
CONSOLE = "\n".join(re.findall(r"```console\n(.*?)```", README, re.DOTALL)).replace("\\\n", " ")
PLACES = re.findall(r"`((?:[a-z]+/)*[a-z_]+\.(?:py|lark))(?::([\w.]+))?`", README)


def commands(beginning: str) -> list[list[str]]:
    """The arguments of the commands that the README shows, those that begin in a certain way."""
    shown = [line[2:] for line in CONSOLE.splitlines() if line.startswith("$ " + beginning)]
    assert shown, beginning
    return [shlex.split(line, comments=True) for line in shown]


@contextmanager
def started(command: list[str], folder: Path = REPOSITORY) -> Iterator["subprocess.Popen[str]"]:
    """A command of the README at work, with the `contrada` that stands beside the interpreter."""
    program = Path(sys.executable).with_name(command[0])
    pipe = subprocess.PIPE
    with subprocess.Popen([program, *command[1:]], stdout=pipe, text=True, cwd=folder) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


@pytest.mark.quick_every(4)
@pytest.mark.parametrize(
    ("code", "output"),
    PYTHON_AND_OUTPUT,
    ids=[
        *("process", "nested", "kept", "connected", "types", "patterns", "questions"),
        *("algebra", "explain"),
    ],
)
def test_python_blocks_print_what_is_shown(code: str, output: str, tmp_path: Path) -> None:
    """The first thing that a newcomer tries would fail, or print something else."""
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    command = [sys.executable, str(script)]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert (run.stderr, run.stdout) == ("", output)


def test_every_python_block_is_run() -> None:
    """A block without its output would escape the test above."""
    assert README.count("```python") == len(PYTHON_AND_OUTPUT)


def test_the_first_example_is_short() -> None:
    """The embedded example would not be one that is read at a glance."""
    assert len(PYTHON_AND_OUTPUT[0][0].splitlines()) <= 20


def test_filters_shown_are_filters() -> None:
    """The syntax on one screen would not be the syntax."""
    assert FILTERS is not None
    for line in FILTERS.group(1).splitlines():
        parsed = ct.parse(re.split(r"\s+#", line)[0])
        assert ct.parse(str(parsed)) == parsed
    pattern = re.search(r"Patterns: `(.*?)`", README)
    assert pattern is not None
    assert isinstance(ct.parse(pattern.group(1)), ct.Pattern)


@pytest.mark.slow
def test_commands_over_tcp_work_together(tmp_path: Path) -> None:
    """The second thing that a newcomer tries would fail."""
    (serve, *_), (subscribe,), (publish, *_) = map(
        commands, ("contrada serve", "contrada sub", "contrada pub")
    )
    shown = re.search(r"The subscriber prints `(.*?)`", README)
    assert shown is not None
    with started([*serve, "--port", "0"], tmp_path) as broker:
        assert broker.stdout is not None
        address = broker.stdout.readline().strip()
        with started([*subscribe, "--to", address, "--count", "1"]) as subscriber:
            # Whoever publishes cannot know when the other terminal is ready: until it has ended.
            while subscriber.poll() is None:
                with started([*publish, "--to", address]) as publisher:
                    publisher.wait(WAIT_S)
            assert subscriber.stdout is not None
            assert json.loads(subscriber.stdout.read()) == json.loads(shown.group(1))


@pytest.mark.slow
def test_brokers_make_a_network_as_it_says(tmp_path: Path) -> None:
    """Whoever starts a second broker would have two that know nothing of one another."""
    _, north, south, *_ = commands("contrada serve")
    with started([*north, "--port", "0"], tmp_path) as first:
        assert first.stdout is not None
        address = first.stdout.readline().strip()
        with started([*south[:-1], address, "--port", "0"], tmp_path) as second:
            assert second.stdout is not None
            here = second.stdout.readline().strip()
            subscribe = [*commands("contrada sub")[0], "--to", here, "--count", "1"]
            with started(subscribe) as subscriber:
                while subscriber.poll() is None:
                    with started([*commands("contrada pub")[0], "--to", address]) as publisher:
                        publisher.wait(WAIT_S)
                assert subscriber.wait(WAIT_S) == 0


def test_networks_of_files_are_described_as_it_says(tmp_path: Path) -> None:
    """The first network that a newcomer starts, or writes, would be refused."""
    (up,) = commands("contrada network up")
    _, _, _, of_many, *_ = commands("contrada serve")
    assert of_many[3] == up[-1]
    assert of_many[-1] in settings_of_network(REPOSITORY / up[-1])
    block = re.search(r"```toml\n(.*?)```", README, re.DOTALL)
    assert block is not None
    path = tmp_path / "network.toml"
    path.write_text(block.group(1), "utf-8")
    assert list(settings_of_network(path)) == ["oslo", "riga"]


@pytest.mark.slow
def test_match_commands_work(tmp_path: Path) -> None:
    """The commands on files would fail, or find nothing."""
    sources = tmp_path / "sources"
    write_sources(sources, FIRST_DAY, FIRST_DAY)
    for command in commands("contrada match"):
        arguments = [
            str(path)
            for argument in command
            for path in (
                sorted(tmp_path.glob(argument.removeprefix("out/")))
                if argument.startswith("out/")
                else [argument]
            )
        ]
        with started(arguments) as process:
            assert process.stdout is not None
            assert "long delays at JFK" in process.stdout.read() or "--count" not in command
            assert process.wait(WAIT_S) == 0


@pytest.mark.slow
def test_translate_commands_work() -> None:
    """The rules shown would not be translated, or not be refused."""
    for command in commands("contrada translate"):
        program = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
        run = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert run.returncode == 2, "one of the rules is refused on purpose"
        assert "long delays at JFK" in run.stdout


def test_pipeline_commands_name_what_is_there() -> None:
    """The README would send a reader to a file that is not there, or to an unknown option."""
    for command in commands("contrada pipeline run"):
        assert (REPOSITORY / command[3]).is_file()
        assert set(command[4::2]) <= {"--publish"}


@pytest.mark.parametrize(("path", "name"), sorted(set(PLACES)))
def test_places_named_exist(path: str, name: str) -> None:
    """A reader would look for what has moved."""
    assert (SOURCE / path).is_file()
    if name:
        outer, _, inner = name.partition(".")
        body = ast.parse((SOURCE / path).read_text("utf-8")).body
        found = next(node for node in body if getattr(node, "name", None) == outer)
        assert not inner or inner in [
            getattr(node, "name", None) for node in getattr(found, "body", ())
        ]
