"""`contrada adv` as a user starts it."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.commands import here
from tests.net.processes import WAIT_S, contrada, serving
from tests.own_operators import CONTRADA


@contextmanager
def advertising(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [*CONTRADA, "adv", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.mark.slow
def test_an_advertisement_lasts_until_ctrl_c() -> None:
    """Nobody could list the offers of a network, or advertise for another program."""
    with (
        serving("--port", "0") as (_, address),
        advertising("--follow", "--json", "--to", address) as follower,
        advertising("what = 'alarm'", "n any", "--to", address) as publisher,
    ):
        assert {line_of(publisher) for _ in range(2)} == {'+ what = "alarm"', "+ n any"}
        found = [json.loads(line_of(follower)) for _ in range(2)]
        assert {each["offer"] for each in found} == {'what = "alarm"', "n any"}
        assert all(each["is_on_offer"] and not each["is_open"] for each in found)
        listed = contrada("adv", "--follow", "--timeout", "0.2", "--to", address)
        assert (listed.returncode, listed.stderr) == (0, "")
        assert sorted(listed.stdout.splitlines()) == ["+ n any", '+ what = "alarm"']
        publisher.send_signal(signal.SIGINT)
        assert publisher.communicate(timeout=WAIT_S) == ("", "")
        assert publisher.returncode == 130
        gone = [json.loads(line_of(follower)) for _ in range(2)]
        assert {each["offer"] for each in gone if not each["is_on_offer"]} == {
            'what = "alarm"',
            "n any",
        }


@pytest.mark.slow
@pytest.mark.parametrize("options", [["a any"], ["--follow"]])
def test_a_lost_broker_is_reported_and_tried_again(options: list[str]) -> None:
    """A command would end, or wait in silence, while its broker restarts."""
    with (
        serving("--port", "0") as (broker, address),
        advertising("a any", "--to", address) as publisher,
        advertising(*options, "--to", address) as process,
    ):
        assert line_of(publisher) == line_of(process) == "+ a any"
        broker.kill()
        assert process.stderr is not None
        assert process.stderr.readline().startswith("not connected, trying again: ")


@pytest.mark.slow
def test_with_advertisements_nothing_else_is_published() -> None:
    """A network with advertisement forwarding would not enforce it."""
    with (
        serving("--port", "0", "--advertisements") as (_, address),
        advertising("a any", "--to", address) as publisher,
    ):
        assert line_of(publisher) == "+ a any"
        refused = contrada("pub", "b=1", "--to", address)
        assert refused.returncode == 2
        assert "not advertised" in refused.stderr


@pytest.mark.quick_first
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give a filter to advertise, or --follow"),
        (["a any", "--timeout", "3"], "--timeout needs --follow"),
        (["a >"], "expected a value"),
    ],
)
def test_invalid_advertisements_are_refused(options: list[str], said: str) -> None:
    """A user would not know how to correct it."""
    refused = here("adv", *options)
    assert refused.returncode == 2
    assert said in refused.stderr
