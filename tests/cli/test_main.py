"""The command as a whole: help, lazy commands, and errors."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from contrada.cli import COMMANDS, main
from contrada.cli.lazy_group import LazyGroup
from contrada.errors import AddressError, ConnectionFailedError


def test_help_lists_every_command_and_imports_none() -> None:
    """Help would start Spark, or fail without it."""
    code = (
        "import sys\nfrom contrada.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith(('contrada.cli.', 'pyspark'))))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name, (_, summary) in COMMANDS.items():
        assert name in run.stdout
        assert summary in run.stdout
    assert (
        run.stdout.splitlines()[-1]
        == "['contrada.cli.lazy_group', 'contrada.cli.option_variables']"
    )


@pytest.mark.parametrize("name", ["gossip", "key", "queue", "simulate", "spark", "store", "user"])
def test_summaries_of_commands_are_whole(name: str) -> None:
    """The list of a group's commands would end in the middle of a sentence."""
    listed = CliRunner().invoke(main, [name, "--help"]).output.partition("\nCommands:\n")[2]
    assert listed
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


@pytest.mark.parametrize("name", ["serve", "pub", "sub"])
def test_each_command_explains_itself_with_examples(name: str) -> None:
    """A person could not find out how to use it."""
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert f"\n  contrada {name}" in result.output, "examples keep their lines"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sub", "price <"], "line 1, column 8: found the end of the text, expected"),
        (["sub", "price < 1 and price > 2"], "no notification can match"),
        (["sub", "a = 1 -> b = 1"], "a pattern is subscribed as an object"),
        (["sub", "a = 1", "--to", "localhost"], "address 'localhost': expected contrada://"),
        (["pub", "price", "--to", "contrada://x"], "found 'price', expected NAME=VALUE"),
        (["pub", '{"a": 1}'], "expected NAME=VALUE; `pub --json -` reads lines of JSON"),
        (["pub", "@id=1"], "reserved"),
        (["sub", "a wobbles 1"], "wobbles"),
        (["sub", "a = 1", "--extension", "nowhere"], "expected module:Class"),
        (["serve", "--extension", "nowhere:X"], "cannot be imported"),
        (["serve", "--host", "a..b"], "address 'a..b': expected"),
        (["pub", "a=1", "--publisher", "\udcff"], "publisher '\\udcff': expected"),
        (["pub", "a=1", "--to", "contrada://.."], "address 'contrada://..': expected contrada://"),
        (["match", "a = 1", "x.csv"], "Path 'a = 1' does not exist; expected first a file with"),
        (["serve", "--port", "x"], "'x' is not a valid integer range (see: "),
        (["pub"], "give NAME=VALUE, --json, --csv or --log, one of them (see: "),
        (["pub", "a=1", "--json", "x"], "one of them"),
        (["nothing"], "No such command 'nothing' (see: "),
        (["mtach"], "No such command 'mtach'. Did you mean 'match'? (see: "),
        (["queue", "shwo"], "No such command 'shwo'. Did you mean 'show'? (see: "),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    """A person would see a traceback, and a script would not see that it failed."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("contrada: error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


HELP_WITHOUT_EXTRAS = """
import sys
from contrada.cli.lazy_group import EXTRAS
others = ("datasketches", "h11", "httpcore", "psycopg", "xmlschema")
sys.modules.update(dict.fromkeys([*EXTRAS, *others]))
import click
from click.testing import CliRunner
from contrada.cli import main

def show(command, *names):
    result = CliRunner().invoke(main, [*names, "--help"])
    print(len(names), end=" ")
    assert result.exit_code == 0, (names, result.output)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            show(command.get_command(context, name), *names, name)

show(main)
"""


def test_help_needs_no_extra() -> None:
    """A newcomer could not read about a command before its libraries are installed."""
    run = subprocess.run(
        [sys.executable, "-c", HELP_WITHOUT_EXTRAS], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.split().count("1") == len(COMMANDS)


def test_a_group_without_a_command_shows_its_help() -> None:
    """A newcomer would get an error for an answer."""
    result = CliRunner().invoke(main, ["pipeline"])
    assert result.exit_code == 2
    assert "Commands:" in result.output


def group_of(fail: Callable[[], None]) -> click.Group:
    @click.group(cls=LazyGroup, commands_by_name={})
    def group() -> None:
        pass

    @group.command()
    def run() -> None:
        fail()

    return group


def raising(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (AddressError("x", "y"), 2, "contrada: error: address 'x': expected y\n"),
        (ConnectionFailedError("x", "gone"), 1, "contrada: error: x: gone\n"),
        (OSError(28, "No space left", "out"), 1, "contrada: error: out: No space left\n"),
        (BrokenPipeError(), 0, ""),
        (KeyboardInterrupt(), 130, ""),
        (
            ModuleNotFoundError("no", name="pyspark.sql"),
            2,
            "contrada: error: run needs pyspark; install it with: pip install 'contrada[spark]'\n",
        ),
    ],
)
def test_each_kind_of_end_has_its_status(error: BaseException, status: int, line: str) -> None:
    """A script could not tell bad input from an absent broker, or from Ctrl-C."""
    result = CliRunner().invoke(group_of(raising(error)), ["run"])
    assert (result.exit_code, result.stderr) == (status, line)


def test_a_command_that_cannot_be_imported_says_what_to_install(tmp_path: Path) -> None:
    """A missing extra would be a traceback, and cost the other commands too."""
    (tmp_path / "lacking.py").write_text("import nycflights13_absent\n", "utf-8")
    group = LazyGroup(commands_by_name={"lacking": ("lacking:run", "Lacks something.")})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        patch.setattr("contrada.cli.lazy_group.EXTRAS", {"nycflights13_absent": "examples"})
        result = CliRunner().invoke(group, ["lacking"])
    assert result.exit_code == 2
    assert "pip install 'contrada[examples]'" in result.stderr
