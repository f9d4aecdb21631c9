"""`contrada gossip`: keys, errors with remedies, and a bridge."""

import json
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from contrada.cli import main
from contrada.gossip.udp import GroupKey
from tests.asynchronous import TEST_S_MAX
from tests.gossip.udp.test_worlds import participant, place_of, printed, started
from tests.net.processes import contrada, serving


def asked(*arguments: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, ["gossip", *arguments])


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    GroupKey.new().write(path)
    return path


def test_a_key_is_made(tmp_path: Path) -> None:
    """A group could not begin, or a key be lost."""
    path = tmp_path / "made"
    assert asked("key", str(path)).exit_code == 0
    assert GroupKey.of_text(asked("key").stdout) != GroupKey.of_file(path)
    again = asked("key", str(path))
    assert (again.exit_code, "there already" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("join", "127.0.0.1:1x"), "expected HOST:PORT"),
        (("join", "127.0.0.1:9", "--redundancy", "90"), "more than branching a = 64"),
        (("join", "127.0.0.1:9", "--address", "1.x"), "digits joined by dots"),
        (("join", "127.0.0.1:9", "--address", "1.2.22"), "a digit below each of 64.64.64.64"),
        (("join", "127.0.0.1:9", "--address", "ip", "--levels", "3"), "l is 6"),
        (("join", "127.0.0.1:9", "--protocol", "pmcast", "--levels", "2"), "pmcast has one"),
        (("join", "127.0.0.1:9", "--subscribe", "price <"), "column 8"),
        (("start", "--at", "0.0.0.0"), "others reach this"),
        (("start", "--count", "3"), "--subscribe FILTER"),
        (("bridge", "--group", "127.0.0.1:9"), "--to-broker FILTER, or both"),
    ],
)
def test_gossip_errors_are_one_line(arguments: tuple[str, ...], said: str, key: Path) -> None:
    """A user would not know the expected value."""
    ended = asked(*arguments, "--key", str(key))
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_group_nobody_answers_is_reported(key: Path) -> None:
    """A newcomer would wait for ever, or without a hint at the cause."""
    ended = asked("join", "127.0.0.1:9", "--key", str(key), "--wait", "0.2")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "are key, protocol and parameters the same" in ended.stderr
    missing = asked("join", "127.0.0.1:9", "--key", "nowhere")
    assert "contrada gossip key FILE" in missing.stderr


@pytest.mark.slow
def test_a_bridge_joins_a_broker_and_a_group(key: Path) -> None:
    """Events would not reach the other side."""
    with (
        serving("--port", "0") as (_, broker),
        participant("start", "--at", "127.0.0.1:0", "--subscribe", "price any", key=key) as (
            first,
            place,
        ),
    ):
        ways = ["--to-group", "price any", "--to-broker", "price any"]
        with participant("bridge", "--broker", broker, "--group", place, *ways, key=key):
            lines = "".join(f'{{"price": 2, "number": {each}}}\n' for each in range(5))
            sent = contrada("pub", "--json", "-", "--to", broker, text=lines)
            assert sent.returncode == 0
            assert printed(first, 2)


@pytest.mark.slow
def test_a_participant_shows_its_group_in_a_console(key: Path) -> None:
    """Nobody could see the tree of a running group, which only its participants know."""
    with started("start", "--at", "127.0.0.1:0", "--http", "0", key=key) as process:
        assert process.stderr is not None
        page, _, name = process.stderr.readline().removeprefix("console at ").partition("#")
        place = place_of(process)
        with urllib.request.urlopen(f"{page}groups", timeout=TEST_S_MAX) as answer:
            (group,) = json.load(answer)["groups"]
    assert (name, group["place"], group["participants"]) == ("gossip\n", place, 1)


def test_every_command_has_help() -> None:
    """A user would have to read the code for the arguments."""
    for name in ("key", "start", "join", "bridge"):
        shown = asked(name, "--help")
        assert shown.exit_code == 0
        assert "Usage: " in shown.stdout
