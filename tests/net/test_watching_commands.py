"""The commands that look at brokers: `contrada top`, `doctor` and `inspect`."""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import termios
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from contrada.cli import broker_findings
from contrada.cli.broker_findings import DISK_FREE_MIN
from contrada.cli.top import _rate
from contrada.connections import connect_sync
from contrada.errors import ServiceError, StoreFullError
from contrada.model import Filter, FilterSet, Notification
from contrada.net.broker.broker import STATISTICS_NAMES_MAX, Broker
from contrada.net.broker.inspector import INSPECTED_MAX
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.frames import VERSION
from contrada.net.wire.payload_codec import encode_content
from contrada.routing.assembly.held_patterns import AHEAD
from contrada.service.clock import wall_clock_us
from contrada.service.dispatcher import EXPIRED_ON_ARRIVAL
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.service_limits import ServiceLimits
from contrada.service.stores.sqlite_store import SqliteStore
from tests.asynchronous import on_loop, until
from tests.commands import here
from tests.net.conftest import CONTRADA
from tests.net.networks import network
from tests.net.processes import WAIT_S, contrada, publish_until, reading, serving
from tests.postgres import Server, needs_postgres

NOWHERE = "contrada://127.0.0.1:1"
QUEUE_MAX = ServiceLimits().queue_notifications_max


@pytest.mark.slow
def test_top_tells_rates_of_several_brokers() -> None:
    """An operator could not see which broker or link is busy."""
    with (
        serving("--name", "north", "--port", "0") as (_, north),
        serving("--name", "south", "--port", "0", "--neighbour", north) as (_, south),
        reading("a = 1", south) as subscriber,
    ):
        publish_until(subscriber, north, 1)
        command = [*CONTRADA, "top", north, south, NOWHERE, "--json", "--interval", "0.5"]
        with (
            connect_sync(north) as service,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as top,
        ):
            assert top.stdout is not None
            seen: dict[str, Any] = {}
            while not (seen.get(north) and seen.get(south)):
                service.publish({"a": 1})
                told = json.loads(top.stdout.readline())
                if told["address"] == NOWHERE:
                    assert "connection refused" in told["error"]
                elif told["published_per_s"] or told["matched_per_s"]:
                    seen[told["address"]] = told
            top.send_signal(signal.SIGINT)
            assert top.wait(WAIT_S) == 130
    assert seen[north]["published_per_s"] > 0 < seen[north]["link_sent_per_s"]["south"]
    assert seen[south]["published_per_s"] == 0 < seen[south]["matched_per_s"]
    assert seen[north]["links"] == seen[south]["links"] == 1
    assert set(seen[south]["link_waiting"]) == {"north"}


def test_a_new_entry_has_no_rate_yet() -> None:
    """All that a subscription has ever lost would be shown as lost just now."""
    before, now = {"a/1": 5}, {"a/1": 7, "b/1": 1_000}
    assert _rate(now, before, 2.0, is_partial=True) == {"a/1": 1.0, "b/1": 0.0}
    assert _rate(now, before, 2.0) == {"a/1": 1.0, "b/1": 500.0}


def test_top_ends_after_so_many_pictures(broker_address: str) -> None:
    """A script would run for ever, or not learn that no broker is there."""
    run = here("top", broker_address, "--count", "2", "--interval", "0.1")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("published/s") == 2
    assert broker_address in run.stdout
    away = here("top", NOWHERE, "--count", "1", "--interval", "0.1")
    assert away.returncode == 1
    assert "connection refused" in away.stdout
    assert here("top", "nonsense://").returncode == 2


@pytest.mark.slow
def test_top_is_drawn_anew_on_a_terminal(broker_address: str) -> None:
    """A person would see one table below the other."""
    outer, inner = pty.openpty()
    command = [*CONTRADA, "top", broker_address, "--count", "2", "--interval", "0.1"]
    run = subprocess.run(command, stdout=inner, stderr=subprocess.PIPE, check=False)
    os.close(inner)
    shown = os.read(outer, 2**16).decode()
    os.close(outer)
    assert (run.returncode, run.stderr) == (0, b"")
    assert "\x1b[1A" in shown


@pytest.mark.slow
def test_keys_change_the_picture_on_a_terminal(broker_address: str) -> None:
    """A person could not sort or pause, or would be left with a terminal without echo."""
    outer, inner = pty.openpty()
    before = termios.tcgetattr(inner)
    command = [*CONTRADA, "top", broker_address, NOWHERE, "--interval", "0.1"]
    with (
        subprocess.Popen(command, stdin=inner, stdout=inner, stderr=subprocess.PIPE) as top,
        ExitStack() as stack,
    ):
        stack.callback(top.kill)
        screen = Screen(outer)
        for keys, expected in (
            ("", "connection refused"),
            ("s", "sort: published/s, descending"),
            ("b", f"b broker: {broker_address}"),
            ("/no such", "names: no such_"),
            ("\x1b[A\r", "names: no such "),  # An arrow key, which is no Esc and no letters.
            ("p", "p PAUSED"),
        ):
            os.write(outer, keys.encode())
            screen.wait_for(expected)
        os.write(outer, b"q")
        assert top.wait(WAIT_S) == 0
        assert top.stderr is not None
        assert top.stderr.read() == b""
    assert termios.tcgetattr(inner) == before
    os.close(inner)
    os.close(outer)


class Screen:
    """The output of a terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self._text = terminal, ""

    def wait_for(self, expected: str) -> None:
        """Returns when a text is shown that was not shown before the last one that was awaited."""
        end_s = time.monotonic() + WAIT_S  # It is drawn anew all the time.
        while expected not in self._text:
            assert time.monotonic() < end_s, self._text[-2_000:]
            assert select.select([self._terminal], [], [], WAIT_S)[0], self._text[-2_000:]
            self._text += os.read(self._terminal, 2**16).decode(errors="replace")
        self._text = self._text.partition(expected)[2]


@on_loop
async def test_statistics_name_slow_subscribers() -> None:
    """An operator would not learn which subscribers are slow, or get a list of millions."""
    async with (
        Broker(port=0) as broker,
        TcpService(broker.address) as service,
        TcpService(broker.address, publish_wait_s=0) as publisher,
    ):
        for number in range(STATISTICS_NAMES_MAX + 5):
            await service.subscribe(f"a = {number}").open()
        slow = service.subscribe("text any", queue_max=2)
        await slow.open()
        await publisher.publish_batch({"text": "x"} for _ in range(2 * QUEUE_MAX))
        counts = await publisher.broker_statistics()
        (name,) = counts["subscription_waiting"]
        assert name.endswith(f"/{slow.identity}")
        assert counts["subscription_waiting"][name] > 0 < counts["subscription_dropped"][name]
        assert counts["link_sent"] == {}
        await slow.unsubscribe()
        assert (await publisher.broker_statistics())["subscription_waiting"] == {}


@on_loop
async def test_statistics_tell_of_so_many_links() -> None:
    """The answer of a broker in the middle of a star would grow without a bound."""
    links = STATISTICS_NAMES_MAX + 2
    async with network(links + 1, [(0, n) for n in range(1, links + 1)]) as brokers:
        counts = brokers[0].statistics()
        assert counts.links == links
        await until(lambda: brokers.is_at_rest)
    assert len(counts.link_sent) == STATISTICS_NAMES_MAX


def findings(*arguments: str) -> tuple[int, list[dict[str, str]]]:
    """Returns the status of `contrada doctor`, and its findings, on a machine of any speed."""
    run = contrada("doctor", *arguments, "--json")
    assert run.stderr == ""
    found = [json.loads(line) for line in run.stdout.splitlines()]
    for each in found:
        if each["found"].startswith("speaks protocol"):  # A busy machine answers slowly.
            each["level"] = "ok"
    return run.returncode, found


@pytest.mark.slow
def test_doctor_finds_a_broker_well() -> None:
    """A person would look for a fault where there is none."""
    with serving("--port", "0") as (_, address):
        status, found = findings(address)
        assert status == 0
        assert {each["level"] for each in found if each["what"] == address} == {"ok"}
        assert {"python", "kernels"} <= {each["what"] for each in found}
        plain = contrada("doctor", address)
    assert plain.returncode == 0
    assert f"ok       {address}: speaks protocol {VERSION}; hello after" in plain.stdout


@on_loop
async def test_doctor_explains_counters() -> None:
    """A user would see losses without a remedy."""
    async with (
        Broker(port=0) as broker,
        TcpService(broker.address) as service,
        TcpService(broker.address, publish_wait_s=0) as publisher,
    ):
        await service.subscribe("text any", queue_max=2).open()
        await publisher.publish_batch({"text": "x"} for _ in range(2 * QUEUE_MAX))
        broker.refused["not contrada"] += 2
        broker.dropped[NOT_PERMITTED] += 1
        status, found = await asyncio.to_thread(findings, broker.address)
    assert status == 0
    told = {each["found"].partition(" ")[2]: each for each in found if each["level"] == "warning"}
    assert "contrada top" in told["dropped: queue full"]["todo"]
    assert "serve -v" in told["refused: not contrada"]["todo"]
    assert "without permission" in told["dropped: not permitted"]["todo"]


@on_loop
async def test_doctor_names_a_full_disk(tmp_path: Path) -> None:
    """A person would look for a fault of peers while certified publications fail."""
    async with (
        Broker(port=0, store=tmp_path / "events.db") as broker,
        TcpService(broker.address) as service,
        service.subscribe("a any", durable="log"),
    ):
        await service.publish({"a": 1}, delivery="certified")
        assert {"used bytes", "free bytes"} <= broker.statistics().store.keys()
        store = broker.logs.host.store
        assert isinstance(store, SqliteStore)
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreFullError):
            await service.publish({"a": "x" * 100_000}, delivery="certified")
        status, found = await asyncio.to_thread(findings, broker.address)
        (fault,) = (each for each in found if each["level"] == "fault")
        assert status == 1
        assert "cannot be written" in fault["found"]
        assert "no room is left" in fault["found"]
        assert fault["todo"].startswith("make room on the disk")
        (refused,) = (each for each in found if "refused" in each["found"])
        assert refused["found"] == "1 refused: StoreFullError"
        assert refused["todo"].startswith("its store did not take them")
        store._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
        await service.publish({"a": 2}, delivery="certified")
        assert not broker.statistics().store_failures


@on_loop
async def test_doctor_names_a_log_that_is_stuck(tmp_path: Path) -> None:
    """Readers would wait for ever, without an error anywhere."""
    async with (
        Broker(port=0, store=tmp_path / "events.db") as broker,
        TcpService(broker.address) as service,
    ):
        async with service.subscribe("a any", durable="log"):
            await service.publish({"a": 1}, delivery="certified")
        store = broker.logs.host.store
        assert isinstance(store, SqliteStore)
        store._reader.close()
        async with service.subscribe("a any", durable="log"):
            await until(lambda: bool(broker.statistics().stuck_logs))
            status, found = await asyncio.to_thread(findings, broker.address)
    assert status == 1
    (fault,) = (each for each in found if each["level"] == "fault")
    assert fault["found"].startswith("a log cannot be read, and its readers wait: 'log': ")
    assert "contrada store check" in fault["todo"]


@pytest.mark.slow
@needs_postgres
def test_doctor_names_a_log_whose_database_is_away() -> None:
    """A person would look for a fault of readers; or records would stay unread afterwards."""
    server = Server()
    try:
        with (
            serving("--port", "0", "--store", server.url()) as (_, address),
            connect_sync(address) as service,
        ):
            with service.subscribe("n any", durable="log"):
                pass
            for n in range(300):
                service.publish({"n": n}, delivery="certified")
            server.kill()
            with service.subscribe("n any", durable="log") as events:
                status, found = findings(address)
                while status == 0:  # Until the broker has tried to read it.
                    status, found = findings(address)
                (fault,) = (each for each in found if each["level"] == "fault")
                assert fault["found"].startswith(
                    "a log cannot be read, and its readers wait: 'log'"
                )
                assert "once the store answers" in fault["todo"]
                server.start()
                assert [events.next(WAIT_S)["n"] for _ in range(300)] == list(range(300))
            assert findings(address)[0] == 0
    finally:
        server.remove()


@pytest.mark.parametrize("ahead_s", [3_600, -3_600])
@on_loop
async def test_doctor_names_another_clock(ahead_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notifications would expire on arrival, without a hint at the reason."""
    monkeypatch.setattr(
        "contrada.net.broker.broker.wall_clock_us", lambda: wall_clock_us() + ahead_s * 1_000_000
    )
    async with Broker(port=0) as broker:
        broker.dropped[EXPIRED_ON_ARRIVAL] += 1
        broker.dropped[AHEAD] += 1
        status, found = await asyncio.to_thread(findings, broker.address)
    (fault,) = (each for each in found if each["level"] == "fault")
    assert status == 1
    side = "ahead of" if ahead_s > 0 else "behind"
    assert f"s {side} that of this machine" in fault["found"]
    assert "NTP" in fault["todo"]
    dropped = [each["todo"] for each in found if " dropped: " in each["found"]]
    assert len(dropped) == 2
    assert all("synchronize" in each for each in dropped)


def test_doctor_names_a_disk_that_is_nearly_full() -> None:
    """A broker would stop to confirm without a warning before."""
    counts = {"store": {"disk free bytes": DISK_FREE_MIN - 1}}
    assert [each.level for each in broker_findings._store("here", counts)] == ["warning"]
    counts["store"]["disk free bytes"] = DISK_FREE_MIN
    assert not [*broker_findings._store("here", counts)]


@pytest.mark.slow
def test_doctor_names_the_required_user(tmp_path: Path) -> None:
    """A person would look for a firewall where a token is missing."""
    users = tmp_path / "users.toml"
    one = "--subscribe", "a any", "--token-file", str(tmp_path / "desk.token")
    assert contrada("user", "add", "desk", "--users", str(users), *one).returncode == 0
    with serving("--port", "0", "--users", str(users)) as (_, address):
        status, found = findings(address)
        assert (status, found[-1]["level"]) == (1, "fault")
        assert "--token-file" in found[-1]["todo"]
        status, found = findings(address, "--token-file", str(tmp_path / "desk.token"))
        assert (status, found[-1]["level"]) == (0, "warning")
        assert found[-1]["found"] == (
            "its counters are not shown: 'desk' may not inspect this broker; "
            "users with `inspect` may"
        )
        assert "--inspect" in found[-1]["todo"]
        status, found = findings(address.replace("contrada://", "contradas://"))
        assert (status, "certificates" in found[-1]["todo"]) == (1, True)
    status, found = findings(address)
    assert (status, "firewall" in found[-1]["todo"]) == (1, True)


@pytest.mark.slow
def test_doctor_finds_faults(tmp_path: Path) -> None:
    """A script would continue without a broker, or with a file that serve refuses."""
    status, found = findings(NOWHERE)
    assert (status, found[-1]["level"], found[-1]["what"]) == (1, "fault", NOWHERE)
    assert found[-1]["found"].startswith("connection refused")
    path = tmp_path / "broker.toml"
    for text, level, said in (
        ('port = 7702\nname = "a"\nneighbours = ["contrada://127.0.0.1:7701"]\n', "ok", ":7702"),
        ("prot = 7702\n", "fault", "prot"),
        ('tls = { certificate = "none.pem" }\n', "fault", "none.pem"),
        ('store = "none/kept.db"\n', "fault", "there is no folder"),
        ('extensions = ["no_such_module:Class"]\n', "fault", "no_such_module"),
        ('[brokers.a]\nport = 7701\n[brokers.b]\nneighbours = ["c"]\n', "fault", "neighbours"),
    ):
        path.write_text(text, "utf-8")
        status, found = findings("--config", str(path))
        assert (status, found[-1]["level"]) == (level == "fault", level), text
        assert said in found[-1]["found"], text


def inspected(address: str, *options: str) -> dict[str, Any]:
    """Returns the output of `contrada inspect`."""
    run = contrada("inspect", address, "--json", *options)
    assert (run.returncode, run.stderr) == (0, "")
    told: dict[str, Any] = json.loads(run.stdout)
    return told


@pytest.mark.slow
def test_inspect_explains_the_route_of_a_notification() -> None:
    """A user could not find the broker that does not forward a notification."""
    with (
        serving("--name", "north", "--port", "0") as (_, north),
        serving("--name", "south", "--port", "0", "--neighbour", north) as (_, south),
        reading("a = 1", south) as subscriber,
    ):
        publish_until(subscriber, north, 1)
        at_north, at_south = (
            inspected(each, "--notification", '{"a": 1, "b": "x"}') for each in (north, south)
        )
        (link,) = at_north["links"]
        named = ("name", "role", "cost", "unused")
        assert [link[each] for each in named] == ["south", "peer", 1, ""]
        assert at_north["neighbours"] == ["south"]
        (matching,) = at_north["matching"]
        assert (matching["text"], matching["parties"]) == ("a = 1", ["neighbour south"])
        assert at_south["neighbours"] == []
        (found,) = at_south["matching"]
        (client,) = found["parties"]
        assert at_south["clients"][client.removeprefix("client ")] == 1
        nowhere = inspected(north, "--notification", '{"a": 2}')
        assert (nowhere["matching"], nowhere["neighbours"]) == ([], [])
        assert [each["text"] for each in nowhere["filters"]] == ["a = 1"]
        plain = contrada("inspect", north, "--notification", '{"a": 2}')
        assert plain.stdout == "no filter matches it: nobody gets it\n"
        plain = contrada("inspect", south, "--notification", '{"a": "1", "b": "x"}', "--why")
        assert plain.stdout.splitlines()[1:] == [
            "does not match: a = 1",
            '  fails: `a = 1`: "1" is a text, expected a number; 1 would match',
        ]
        told = inspected(south, "--notification", '{"A": 1}', "--why")["why"]
        assert told == ["does not match: a = 1\n  fails: `a = 1`: 'a' is absent, there is 'A'"]
        assert inspected(south, "--notification", '{"a": 1}', "--why")["why"] == []
        assert contrada("inspect", south, "--why").returncode == 2
        plain = contrada("inspect", north, "--notification", '{"a": 1}')
        assert plain.stdout.startswith("it goes to south, and matches 1 filter\n")
        plain = contrada("inspect", south)
        assert "a = 1" in plain.stdout
        assert inspected(north)["counts"]["links"] == 1


@pytest.mark.slow
@on_loop
async def test_answers_of_a_broker_about_itself_are_bounded() -> None:
    """One inspection of a large broker would return, and make it hold, all of its filters as
    text.
    """
    async with Broker(port=0) as broker, TcpService(broker.address) as service:
        names = ", ".join(f"'{number}'" for number in range(1_000))
        wanted = FilterSet(
            [Filter(f"a > {-n} and b in ({names})") for n in range(2 * INSPECTED_MAX)]
        )
        async with service.subscribe(wanted), service.advertise("a any"):
            held = await service.inspection(encode_content(Notification({"a": 1, "b": "7"})))
        counts = held.counts
        assert counts["filters"] == counts["matching"] == 2 * INSPECTED_MAX
        assert counts["advertisements"] == len(held.advertisements) == 1
        assert len(held.matching) == INSPECTED_MAX
        assert len(held.filters) == INSPECTED_MAX
        (name,) = held.clients
        assert {each.parties[0] for each in held.filters} == {f"client {name}"}
        assert max(len(each.text) for each in held.filters) < 1_000
        assert held.clients == {name: 1}
        with pytest.raises(ServiceError, match="refused"):
            await service.inspection(b"nonsense")
        await service.broker_statistics()  # The connection stays.
        assert broker.statistics().refused == {"EncodingError": 1}


@pytest.mark.slow
def test_inspect_refuses_invalid_notifications(broker_address: str) -> None:
    """A slip would look like a notification that nobody wants."""
    for text in ("{", "[1]", '{"": 1}'):
        run = contrada("inspect", broker_address, "--notification", text)
        assert run.returncode == 2
        assert run.stderr.startswith("contrada: error: --notification:1")
    assert contrada("inspect", NOWHERE).returncode == 1


@pytest.mark.slow
def test_a_log_reader_explains_missing_records() -> None:
    """A person would wait for a broker that is away, or refuses him, and not know it."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with serving("--port", "0") as (broker, address):
        command = [*CONTRADA, "sub", "a any", "--durable", "d", "--json", "--to", address]
        with subprocess.Popen(command, **pipes) as reader:  # type: ignore[call-overload]
            try:
                publish_until(reader, address, 1)
                broker.kill()
                said = reader.stderr.readline()
                reader.send_signal(signal.SIGINT)
                reader.communicate(timeout=WAIT_S)
            finally:
                reader.kill()
    assert said.startswith("not connected, trying again: ")
    assert reader.returncode == 130
