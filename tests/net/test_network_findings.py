"""`contrada doctor --network`: all brokers of a network, and their links."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from contrada.cli.broker_findings import _versions, one_sided_links
from contrada.net.client.network_inspection import SeenBroker
from contrada.net.wire.inspection import HeldLink, Inspection
from tests.asynchronous import on_loop, until
from tests.commands import here
from tests.net.networks import network
from tests.net.processes import contrada, serving
from tests.net.test_watching_commands import findings


def warnings_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the warnings, except that the core is interpreted, for want of a compiler."""
    return [each for each in found if each["level"] == "warning" and each["what"] != "kernels"]


def seen(name: str, *neighbours: str, version: str = "1") -> SeenBroker:
    """A broker that has answered, with these links."""
    links = [HeldLink(each, "peer", 1) for each in neighbours]
    held = Inspection(name, {"links": len(links)}, links, {}, [], [], version=version)
    return SeenBroker(name, held=held, is_asked=True)


def test_a_link_of_one_side_is_a_fault() -> None:
    """Notifications would vanish at a broker that its neighbour does not know."""
    brokers = {each.name: each for each in (seen("a", "b", "c", "d"), seen("b"), seen("d", "a"))}
    brokers["c"] = SeenBroker("c", reason="it is away")
    (fault,) = one_sided_links(brokers)
    assert (fault.level, fault.what) == ("fault", "link a to b")
    assert fault.found == "'a' has a link to 'b', which has none to 'a'"


def test_a_broker_that_sends_a_part_of_its_links_is_no_fault() -> None:
    """The middle of a large star would be reported for each of its leaves."""
    middle = seen("b")
    assert middle.held is not None
    middle.held.counts["links"] = 101
    assert not [*one_sided_links({"a": seen("a", "b"), "b": middle})]


def test_several_versions_are_named() -> None:
    """An upgrade that missed a broker would stay unnoticed."""
    brokers = {"a": seen("a"), "b": seen("b", version=""), "c": seen("c")}
    (warning,) = _versions("n", brokers)
    assert warning.found == "versions differ: 1: a, c; an earlier version: b"
    assert not [*_versions("n", {"a": seen("a"), "c": seen("c")})]


@on_loop
async def test_all_brokers_of_a_network_are_checked() -> None:
    """An operator would have to know the addresses of all brokers, and miss one."""
    async with network(3, ((0, 1), (1, 2))) as brokers:
        await until(lambda: brokers.is_at_rest)
        brokers[2].refused["not contrada"] += 1
        status, found = await asyncio.to_thread(findings, brokers[0].address, "--network")
        names = [each.dispatcher.router.name for each in brokers]
        whats = [f"{name} at {of.address}" for name, of in zip(names, brokers, strict=True)]
    assert status == 0
    assert {each["what"] for each in found} >= {*whats}
    # Other counts are those of this process, also of other tests.
    refusals = [(each["what"], each["found"]) for each in found if "refused" in each["found"]]
    assert refusals == [(whats[2], "1 refused: not contrada")]
    assert found[-1]["found"] == f"3 brokers: {', '.join(map(repr, names))}"
    assert "versions" not in found[-1]["found"]


@pytest.mark.slow
def test_a_broker_that_stands_still_is_a_fault() -> None:
    """A network with a silent broker would be called well."""
    with (
        serving("--name", "north", "--port", "0") as (_, north),
        serving("--name", "south", "--port", "0", "--neighbour", north) as (stopped, south),
    ):
        status, found = findings(north, "--network")
        while "2 brokers" not in found[-1]["found"]:
            status, found = findings(north, "--network")
        assert status == 0
        stopped.send_signal(signal.SIGSTOP)
        try:
            status, found = findings(north, "--network")
        finally:
            stopped.send_signal(signal.SIGCONT)
    assert status == 1
    (fault,) = (each for each in found if each["level"] == "fault")
    assert fault["what"] == f"south at {south}"
    assert fault["found"].startswith("no answer") or "did not answer" in fault["found"]


@pytest.mark.slow
def test_brokers_are_checked_with_the_rights_of_the_user(tmp_path: Path) -> None:
    """A user would be shown the counters of a broker that does not permit it, or no reason."""
    users, token = tmp_path / "users.toml", tmp_path / "desk.token"
    given = ("--users", str(users), "--token-file", str(token), "--link")
    assert contrada("user", "add", "desk", *given).returncode == 0
    options = ("--port", "0", "--token-file", str(token))
    with (
        serving("--name", "north", "--port", "0") as (_, north),
        serving("--name", "south", "--users", str(users), "--neighbour", north, *options),
    ):
        status, found = findings(north, "--network", "--token-file", str(token))
        while "2 brokers" not in found[-1]["found"]:
            status, found = findings(north, "--network", "--token-file", str(token))
    assert status == 0
    (warning,) = warnings_of(found)
    assert warning["what"].startswith("south at contrada://")
    assert "'desk' may not inspect this broker" in warning["found"]


def test_a_network_needs_an_address() -> None:
    """The option would be ignored without a word."""
    done = here("doctor", "--network")
    assert done.returncode == 2
    assert "--network is for the ADDRESS of a broker" in done.stderr


def test_a_first_broker_that_does_not_answer_has_its_remedy() -> None:
    """A person would get an error in place of the advice."""
    done = here("doctor", "contrada://127.0.0.1:1", "--network", "--json")
    found = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, found["level"]) == (1, "fault")
    assert "contrada serve" in found["todo"]


@pytest.mark.parametrize(
    ("name", "near"),
    [("CONTRADA_SERVE_PROT", "CONTRADA_SERVE_PORT"), ("CONTRADA_QUEUE_LIST_JSN", "LIST_JSON?")],
)
def test_a_variable_of_no_option_is_named(
    name: str, near: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelled setting of a container would be ignored without a word."""
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CONTRADA_BRIDGE_PASSWORD", "x")
    monkeypatch.setenv("CONTRADA_SERVE_HTTP", "8080")
    done = here("doctor", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    (warning,) = warnings_of(found)
    assert (done.returncode, warning["what"]) == (0, name)
    assert near in warning["todo"]
