"""A network that a file describes: started by one command, changed while it runs, partly killed."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from contrada.connections import connect_sync
from contrada.errors import ConnectionFailedError
from contrada.service.sync import SyncService
from tests.commands import here
from tests.net.conftest import CONTRADA
from tests.net.processes import WAIT_S, Process, contrada, serving
from tests.net.test_neighbours import free_ports

EXAMPLE = Path(__file__).parents[2] / "examples" / "networks" / "seven.toml"
NAMES = ("oslo", "riga", "kyiv", "rome", "bern", "lyon", "cork")


@pytest.fixture
def seven(tmp_path: Path) -> Path:
    """The network of the example, at ports that are free."""
    ports = iter(free_ports(len(NAMES)))
    text = re.sub(r"port = \d+", lambda _: f"port = {next(ports)}", EXAMPLE.read_text("utf-8"))
    path = tmp_path / "seven.toml"
    path.write_text(text, "utf-8")
    return path


@contextmanager
def running(file: Path, count: int = len(NAMES)) -> Iterator[tuple[Process, dict[str, str]]]:
    """`contrada network up`, and the address of each broker. It is ended with the test."""
    command = [*CONTRADA, "network", "up", str(file)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process, dict(process.stdout.readline().split() for _ in range(count))
        finally:
            for _ in range(2):  # The second one kills.
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)
            process.communicate(timeout=WAIT_S)


def is_delivered(publisher: SyncService, address: str, value: int) -> bool:
    """Returns whether a publication at one reaches another, once it is subscribed everywhere."""
    with connect_sync(address) as subscriber, subscriber.subscribe(f"a = {value}") as events:
        for _ in range(5_000):
            publisher.publish({"a": value})
            try:
                return events.next(0.02)["a"] == value
            except TimeoutError:
                continue
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_one_command_starts_and_stops_a_network(
    seven: Path, number: signal.Signals, status: int
) -> None:
    """Seven terminals would be needed to try out a network, or brokers stay behind."""
    with running(seven) as (process, addresses):
        assert sorted(addresses) == sorted(NAMES)
        with connect_sync(addresses["oslo"]) as publisher:
            assert is_delivered(publisher, addresses["bern"], 1)
        process.send_signal(number)
        out, errors = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out) == (status, "")
        ends = re.findall(r"^(\w+) \| \d+ connections", errors, re.MULTILINE)
        assert ends == list(reversed(NAMES))
    for each in addresses.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(each.rpartition(":")[2])))


@pytest.mark.slow
def test_a_broker_that_ends_by_itself_ends_the_command(seven: Path) -> None:
    """A network would be taken for whole that is not, or its rest stay behind."""
    with running(seven) as (process, addresses):
        (killed,) = subprocess.run(
            ["pgrep", "-P", str(process.pid), "-f", "rome"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        subprocess.run(["kill", "-KILL", killed], check=True)
        _, errors = process.communicate(timeout=WAIT_S)
        assert process.returncode == 1
        assert "contrada: error: rome ended by itself: SIGKILL" in errors
        ends = re.findall(r"^(\w+) \| \d+ connections", errors, re.MULTILINE)
        assert sorted(ends) == sorted(set(NAMES) - {"rome"})
        assert len(addresses) == len(NAMES)


@pytest.mark.slow
def test_brokers_end_with_a_command_that_is_killed(tmp_path: Path) -> None:
    """They would hold their ports, unseen, and the network could not be started again."""
    ports = free_ports(2)
    path = tmp_path / "two.toml"
    path.write_text("".join(f"[brokers.b{each}]\nport = {each}\n" for each in ports), "utf-8")
    with running(path, 2) as (process, addresses), ExitStack() as stack:
        services = [
            stack.enter_context(connect_sync(each, reconnect=False)) for each in addresses.values()
        ]
        waiting = [stack.enter_context(each.subscribe("a any")) for each in services]
        process.kill()
        for each in waiting:
            with pytest.raises(ConnectionFailedError, match="the broker stops"):
                each.next(WAIT_S)
    with running(path, 2) as (_, again):
        assert again == addresses


@pytest.mark.slow
def test_a_broker_that_cannot_start_gives_the_reason(tmp_path: Path) -> None:
    """A person would see a network that ends, and no reason."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        path = tmp_path / "one.toml"
        path.write_text(f"[brokers.oslo]\nport = {other.getsockname()[1]}\n", "utf-8")
        result = contrada("network", "up", str(path))
    assert result.returncode == 1
    assert re.search(r"^oslo \| contrada: error: .*cannot listen: ", result.stderr, re.MULTILINE)
    assert "oslo ended by itself: status 1" in result.stderr


@pytest.mark.slow
def test_a_mesh_routes_around_a_killed_broker(seven: Path) -> None:
    """The example would not do as it claims."""
    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(serving("--config", str(seven), "--name", name))
            for name in NAMES
        }
        publisher = stack.enter_context(connect_sync(brokers["kyiv"][1]))
        assert is_delivered(publisher, brokers["cork"][1], 1)
        for number, killed in enumerate(("oslo", "lyon")):
            broker, _ = brokers.pop(killed)
            broker.send_signal(signal.SIGKILL)
            broker.wait(WAIT_S)
            to = ("cork", "bern")[number]
            assert is_delivered(publisher, brokers[to][1], 2 + number)


def test_a_file_is_checked_without_starting(tmp_path: Path) -> None:
    """A slip would be found when the old network is stopped already."""
    result = here("doctor", "--config", str(EXAMPLE))
    assert result.returncode == 0
    assert result.stdout.count("would listen at") == 7
    path = tmp_path / "bad.toml"
    path.write_text(EXAMPLE.read_text("utf-8").replace('"kyiv", "oslo"', '"kiev"'), "utf-8")
    wrong = "brokers.rome: neighbours[0]: address 'kiev'"
    result = here("doctor", "--config", str(path))
    assert result.returncode == 1
    assert f"{path}: {wrong}" in result.stdout
    result = here("network", "up", str(path))
    assert result.returncode == 2
    assert f"{path}: {wrong}" in result.stderr


@pytest.mark.slow
def test_a_file_is_read_again(tmp_path: Path) -> None:
    """A change would require a stop of the network, with losses of its clients."""
    path = tmp_path / "contrada.toml"
    with ExitStack() as stack:
        _, first = stack.enter_context(serving("--port", "0", "--name", "a"))
        _, second = stack.enter_context(serving("--port", "0", "--name", "b"))

        def write(text: str) -> None:
            path.write_text(f'name = "c"\nlog = {{ level = "info" }}\n{text}', "utf-8")

        def said(expected: str) -> str:
            for line in broker.stderr or ():
                if expected in line:
                    return line
            raise AssertionError(expected)

        write(f'port = 0\nneighbours = ["{first}"]')
        broker, address = stack.enter_context(serving("--config", str(path)))
        service = stack.enter_context(connect_sync(address, reconnect=False))
        at_first = stack.enter_context(connect_sync(first))
        at_second = stack.enter_context(connect_sync(second))
        assert is_delivered(at_first, address, 1)
        write("prot = 1")
        broker.send_signal(signal.SIGHUP)
        assert "found the key prot (did you mean port?), expected one of: " in said(
            "nothing is changed"
        )
        assert is_delivered(at_first, address, 2)
        write(f'port = 7\nneighbours = ["{second}"]')
        broker.send_signal(signal.SIGHUP)
        assert "port cannot change while a broker runs: it stays 0, not 7" in said("WARNING")
        said("read ")
        assert is_delivered(at_second, address, 3)
        with service.subscribe("a any") as events:
            service.publish({"a": 4})
            assert events.next(WAIT_S)["a"] == 4
        assert service.connection.state == "connected"


@pytest.mark.slow
def test_a_network_is_changed_while_it_runs(tmp_path: Path) -> None:
    """An operator would have to find and signal each broker."""
    ports = free_ports(2)
    path = tmp_path / "two.toml"
    apart = "".join(f"[brokers.b{each}]\nport = {each}\n" for each in ports)
    path.write_text(apart, "utf-8")
    with running(path, 2) as (process, addresses):
        path.write_text(f'{apart}neighbours = ["b{ports[0]}"]\n', "utf-8")
        process.send_signal(signal.SIGHUP)
        first, second = addresses.values()
        with connect_sync(first) as publisher:
            assert is_delivered(publisher, second, 1)
