"""The files of deploy: they name existing options, and a rolling restart loses nothing."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

import click
import pytest

from contrada import connect
from contrada.cli.broker_settings import BrokerSettings, settings_of, settings_of_network
from contrada.cli.serve import serve
from contrada.errors import ConnectionFailedError, ContradaError
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.wire.address import parse_address
from deploy import rolling_restart
from deploy.rolling_restart import roll
from tests.asynchronous import on_loop
from tests.net.processes import serving
from tests.net.test_neighbours import free_ports
from tests.own_operators import CONTRADA

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT = (DEPLOY / "contrada.service").read_text("utf-8")
CONTAINER = (DEPLOY / "Containerfile").read_text("utf-8")

OPTIONS = {each for of in serve.params if isinstance(of, click.Option) for each in of.opts}


def test_the_settings_can_be_read(tmp_path: Path) -> None:
    """A service would not start after the documented installation."""
    text = (DEPLOY / "broker.toml").read_text("utf-8")
    file = tmp_path / "broker.toml"
    file.write_text(text.replace("/var/lib/contrada", str(tmp_path)))
    settings = settings_of(file, {})
    assert settings.host == "127.0.0.1"
    assert settings.log.json


def test_commands_have_only_options_that_there_are() -> None:
    """A unit or a container would end at once, with an error of usage."""
    assert set(re.findall(r"^ExecStart=.*", UNIT, re.MULTILINE)[0].split()) & OPTIONS == {
        "--config",
        "--json",
    }
    used = set(re.findall(r'"(--[\w-]+)"', CONTAINER.partition('CMD ["--host"')[2])) | {"--host"}
    assert used == {
        *("--host", "--port", "--http", "--users", "--tls-certificate", "--store", "--json")
    }
    assert used <= OPTIONS
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", CONTAINER, re.MULTILINE)
    for place in " ".join(copied).split():
        assert (DEPLOY.parent / place).exists(), place
    pyproject = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))
    (extras,) = re.findall(r'"\./build\[([^]]*)\]"', CONTAINER)
    assert {*extras.split(",")} <= pyproject["project"]["optional-dependencies"].keys()
    assert int(re.findall(r"LimitNOFILE=(\d+)", UNIT)[0]) > BrokerLimits().connections_max


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit_for_right_and_safe(tmp_path: Path) -> None:
    """A setting with a slip is silently ignored by systemd."""
    file = tmp_path / "contrada.service"
    file.write_text(UNIT.replace("/usr/local/bin/contrada", sys.executable))
    for command in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        run = subprocess.run(
            ["systemd-analyze", *command, str(file)], capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert "Unknown" not in run.stderr


@pytest.mark.slow
def test_a_manager_is_told_when_it_is_ready_and_when_it_ends(tmp_path: Path) -> None:
    """Dependent services would begin before the broker takes connections, or never."""
    place = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(place)
        heard.settimeout(30)
        command = [*CONTRADA, "serve", "--port", "0", "--store", "memory:"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, "NOTIFY_SOCKET": place}
        ) as broker:
            try:
                assert heard.recv(100) == b"READY=1"
                broker.send_signal(signal.SIGTERM)
                assert heard.recv(100) == b"STOPPING=1"
                assert broker.wait(30) == 0
            finally:
                broker.kill()


class Running:
    """Brokers of a file, as processes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.processes: dict[str, Process] = {}

    async def start(self, name: str) -> None:
        """Returns when it is ready."""
        command = [*CONTRADA, "serve", "--config", str(self.file), "--name", name]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        self.processes[name] = process
        assert process.stdout is not None
        assert await process.stdout.readline()

    async def restart(self, name: str, _: BrokerSettings) -> None:
        """Restarts it like a service manager."""
        process = self.processes[name]
        process.terminate()
        await process.communicate()
        assert process.returncode == 0
        await self.start(name)

    async def kill(self) -> None:
        """Ends all."""
        for process in self.processes.values():
            if process.returncode is None:
                process.kill()
                await process.communicate()


@pytest.mark.slow
def test_a_restart_that_cannot_be_is_told_in_a_line(tmp_path: Path) -> None:
    """A person would get a traceback; or the broker of this machine be taken for another one's."""
    file = tmp_path / "network.toml"
    cases = (
        (["/nonexistent {name}"], "/nonexistent oslo: No such file"),
        (["./restart.sh {nme}"], "'nme'; expected a command with {name}, {host} and {port}"),
        (["echo 'unbalanced"], "No closing quotation"),
        (["true", "--at", "riga=riga.example"], "--at riga: there are the brokers oslo"),
        (["true", "--at", "oslo=0.0.0.0"], "say --at oslo=HOST, by which it is reached"),
        (["true", "--at", "oslo"], "expected NAME=HOST"),
    )
    with serving("--port", "0") as (_, address):
        file.write_text(f"[brokers.oslo]\nport = {parse_address(address).port}\n")
        for options, said in cases:
            command = [sys.executable, str(DEPLOY / "rolling_restart.py"), str(file), *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode in (1, 2)
            assert said in done.stderr
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("before", "after", "missing"),
    [
        ({"began_us": 1, "links": 2}, {"began_us": 5, "links": 2}, ""),
        ({"began_us": 1, "links": 2}, {"began_us": 5, "links": 3}, ""),
        ({"links": 2}, {"began_us": 5, "links": 2}, ""),
        ({"began_us": 1, "links": 2}, {"began_us": 5, "links": 1}, "it has 1 links, and had 2"),
        ({"began_us": 1, "links": 2}, {"began_us": 1, "links": 2}, "did not restart it"),
        ({"links": 2}, {"links": 2}, "did not restart it"),
        ({"began_us": 1, "links": 2}, ContradaError("no answer"), "no answer"),
    ],
)
@on_loop
async def test_a_broker_is_back_when_it_began_anew_with_its_links(
    before: dict[str, int],
    after: dict[str, int] | ContradaError,
    missing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next one would end while this one is absent: two at once."""

    async def asked(_: BrokerSettings) -> dict[str, int]:
        if isinstance(after, ContradaError):
            raise after
        return after

    monkeypatch.setattr(rolling_restart, "asked", asked)
    found = await rolling_restart.what_is_missing(BrokerSettings(), before)
    assert (missing in found) if missing else not found


@pytest.mark.slow
@on_loop
async def test_a_broker_is_waited_for_until_it_began_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command without effect would be taken for a restart, and an upgrade for done."""
    (port,) = free_ports(1)
    file = tmp_path / "network.toml"
    file.write_text(f"[brokers.oslo]\nport = {port}\n")
    brokers = settings_of_network(file)
    running = Running(file)
    restarting: list[asyncio.Task[None]] = []

    async def restart_soon(name: str, settings: BrokerSettings) -> None:
        restarting.append(asyncio.create_task(running.restart(name, settings)))

    async def do_nothing(_: str, __: BrokerSettings) -> None:
        pass

    async def stop(name: str, _: BrokerSettings) -> None:
        running.processes[name].terminate()
        await running.processes[name].wait()

    try:
        await running.start("oslo")
        assert await roll(brokers, restart_soon) == {}
        await asyncio.gather(*restarting)
        monkeypatch.setattr(rolling_restart, "BACK_WAIT_S", 0.5)
        with pytest.raises(ContradaError, match=r"oslo did not .* the command did not restart it"):
            await roll(brokers, do_nothing)
        with pytest.raises(ContradaError, match=r"oslo did not come back in 0\.5 s: .* refused"):
            await roll(brokers, stop)
    finally:
        await running.kill()


@pytest.mark.slow
@on_loop
async def test_a_rolling_restart_loses_nothing_that_is_certified(tmp_path: Path) -> None:
    """An upgrade of a network would lose certified notifications, or double or reorder them."""
    ports = dict(zip(("oslo", "riga", "bern"), free_ports(3), strict=True))
    neighbours = {"oslo": "[]", "riga": '["oslo"]', "bern": '["riga"]'}
    file = tmp_path / "network.toml"
    for name, port in ports.items():
        with file.open("a") as written:
            written.write(f'[brokers.{name}]\nport = {port}\nstore = "{name}.db"\n')
            written.write(f"neighbours = {neighbours[name]}\n")
    brokers = settings_of_network(file)
    running = Running(file)
    got: list[int] = []
    best: list[int] = []
    confirmed: list[int] = []
    restarted = asyncio.Event()
    try:
        for name in brokers:
            await running.start(name)
        async with (
            connect(str(brokers["bern"].address)) as reader,
            connect(str(brokers["oslo"].address), publisher="p") as publisher,
            connect(str(brokers["riga"].address)) as other,
        ):

            async def read() -> None:
                async with reader.subscribe("n >= 0", durable="d") as subscription:
                    async for kept in subscription:
                        got.append(int(str(kept.item["n"])))  # noqa: PERF401 - it is looked at

            async def read_others() -> None:
                async with other.subscribe("b >= 0") as subscription:
                    async for item in subscription:
                        best.append(int(str(item["b"])))  # noqa: PERF401 - the same

            async def load() -> None:
                number = 0
                while not restarted.is_set() or number < 50:
                    await publisher.publish({"n": number}, delivery="certified fifo")
                    confirmed.append(number)
                    with suppress(ConnectionFailedError):  # At best effort nobody asks again.
                        await publisher.publish({"b": number})
                    number += 1

            reading = [asyncio.create_task(read()), asyncio.create_task(read_others())]
            loading = asyncio.create_task(load())
            async with asyncio.timeout(60):
                while len(got) < 10:
                    assert not loading.done(), loading.exception()
                    await asyncio.sleep(0.01)
                lost = await roll(brokers, running.restart)
                restarted.set()
                await loading
                while got[-1] != confirmed[-1]:
                    await asyncio.sleep(0.01)
            for each in reading:
                each.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        begun = got[0]
        assert got == [*range(begun, confirmed[-1] + 1)], "all, once, in order"
        assert best == sorted(set(best)), "at most once"
        assert len(best) > 20
        assert all(count > 0 for count in lost.values())
    finally:
        await running.kill()
