"""README.md and the pages of its examples: code and commands work."""

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
WAIT_S = 60.0
README_WORDS_MAX = 1500

PAGES = {
    name: (REPOSITORY / name).read_text("utf-8")
    for name in (
        "README.md",
        *(
            f"docs/{page}.md"
            for page in ("applications", "brokers", "files", "filters", "tutorial")
        ),
    )
}
PYTHON_AND_OUTPUT = [
    (name, *block)
    for name, page in PAGES.items()
    for block in re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", page, re.DOTALL)
]
FILTERS = re.search(r"```filters\n(.*?)```", PAGES["docs/filters.md"], re.DOTALL)


def commands(page: str, beginning: str) -> list[list[str]]:
    """The arguments of a page's example commands with a certain beginning."""
    blocks = re.findall(r"```console\n(.*?)```", PAGES[page], re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    shown = [line[2:] for line in lines if line.startswith("$ " + beginning)]
    assert shown, beginning
    return [shlex.split(line, comments=True) for line in shown]


@contextmanager
def started(command: list[str], folder: Path = REPOSITORY) -> Iterator["subprocess.Popen[str]"]:
    """Runs an example command with the `contrada` beside the interpreter."""
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
    [(code, output) for _, code, output in PYTHON_AND_OUTPUT],
    ids=[f"{name}-{n}" for n, (name, *_) in enumerate(PYTHON_AND_OUTPUT)],
)
def test_python_blocks_print_the_output_shown(code: str, output: str, tmp_path: Path) -> None:
    """A newcomer's first program would fail, or print something else."""
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    command = [sys.executable, str(script)]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert (run.stderr, run.stdout) == ("", output)


def test_every_python_block_is_run() -> None:
    """A block without its output would escape the test above."""
    blocks = sum(page.count("```python") for page in PAGES.values())
    assert blocks == len(PYTHON_AND_OUTPUT)


def test_the_readme_is_short() -> None:
    """A newcomer would read reference pages before the first ten lines of code."""
    assert len(PAGES["README.md"].split()) <= README_WORDS_MAX
    name, first, _ = PYTHON_AND_OUTPUT[0]
    assert name == "README.md"
    assert len(first.splitlines()) <= 10


def test_the_index_leads_to_every_page() -> None:
    """A reader would not find a page that exists."""
    index = (REPOSITORY / "docs" / "index.md").read_text("utf-8")
    pages = {path.name for path in (REPOSITORY / "docs").glob("*.md")} - {"index.md"}
    assert pages - set(re.findall(r"\]\(([\w.]+)\)", index)) == set()


def test_filters_shown_are_filters() -> None:
    """The page of the syntax would show texts that the parser refuses."""
    assert FILTERS is not None
    for line in FILTERS.group(1).splitlines():
        parsed = ct.parse(re.split(r"\s+#", line)[0])
        assert ct.parse(str(parsed)) == parsed
    pattern = re.search(r"Patterns: `(.*?)`", PAGES["docs/filters.md"])
    assert pattern is not None
    assert isinstance(ct.parse(pattern.group(1)), ct.Pattern)


@pytest.mark.slow
def test_commands_over_tcp_work_together(tmp_path: Path) -> None:
    """A newcomer's first broker would not connect a subscriber and a publisher."""
    serve, subscribe, publish = (
        commands("README.md", f"contrada {name}")[0] for name in ("serve", "sub", "pub")
    )
    shown = re.search(r"The subscriber prints `(.*?)`", PAGES["README.md"])
    assert shown is not None
    with started([*serve, "--port", "0"], tmp_path) as broker:
        assert broker.stdout is not None
        address = broker.stdout.readline().strip()
        with started([*subscribe, "--to", address, "--count", "1"]) as subscriber:
            # The publisher cannot know when the subscriber is ready: it repeats until that ends.
            while subscriber.poll() is None:
                with started([*publish, "--to", address]) as publisher:
                    publisher.wait(WAIT_S)
            assert subscriber.stdout is not None
            assert json.loads(subscriber.stdout.read()) == json.loads(shown.group(1))


@pytest.mark.slow
def test_two_brokers_make_a_network(tmp_path: Path) -> None:
    """The second broker of the page would not be linked to the first one."""
    page = "docs/brokers.md"
    _, north, south, *_ = commands(page, "contrada serve")
    with started([*north, "--port", "0"], tmp_path) as first:
        assert first.stdout is not None
        address = first.stdout.readline().strip()
        with started([*south[:-1], address, "--port", "0"], tmp_path) as second:
            assert second.stdout is not None
            here = second.stdout.readline().strip()
            subscribe = [*commands(page, "contrada sub")[0], "--to", here, "--count", "1"]
            with started(subscribe) as subscriber:
                while subscriber.poll() is None:
                    publish = [*commands(page, "contrada pub")[0], "--to", address]
                    with started(publish) as publisher:
                        publisher.wait(WAIT_S)
                assert subscriber.wait(WAIT_S) == 0


def test_network_files_of_the_page_are_valid(tmp_path: Path) -> None:
    """A newcomer's first network file would be refused."""
    page = "docs/brokers.md"
    (up,) = commands(page, "contrada network up")
    _, _, _, of_many, *_ = commands(page, "contrada serve")
    assert of_many[3] == up[-1]
    assert of_many[-1] in settings_of_network(REPOSITORY / up[-1])
    block = re.search(r"```toml\n(.*?)```", PAGES[page], re.DOTALL)
    assert block is not None
    path = tmp_path / "network.toml"
    path.write_text(block.group(1), "utf-8")
    assert list(settings_of_network(path)) == ["oslo", "riga"]


@pytest.mark.slow
def test_match_commands_work(tmp_path: Path) -> None:
    """The commands on files would fail, or find nothing."""
    sources = tmp_path / "sources"
    write_sources(sources, FIRST_DAY, FIRST_DAY)
    for command in commands("docs/files.md", "contrada match"):
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
    for command in commands("docs/files.md", "contrada translate"):
        program = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
        run = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert run.returncode == 2, "one of the rules is refused on purpose"
        assert "long delays at JFK" in run.stdout


def test_pipeline_commands_name_existing_files() -> None:
    """The page would name a missing file or an unknown option."""
    for command in commands("docs/files.md", "contrada pipeline run"):
        assert (REPOSITORY / command[3]).is_file()
        assert set(command[4::2]) <= {"--publish"}
