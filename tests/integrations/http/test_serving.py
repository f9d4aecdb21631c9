"""`contrada serve --http` with curl as its client, and the examples of docs/http.md."""

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from contrada.cli.broker_settings import BrokerSettings, HttpSettings, settings_of
from contrada.connections import connect
from contrada.errors import AddressError, ServiceError
from contrada.service import Service, Subscription
from tests.asynchronous import TEST_S_MAX, on_loop, until
from tests.net.conftest import CONTRADA

PAGE = Path(__file__).resolve().parents[3] / "docs" / "http.md"


@contextmanager
def serving(*options: str, cwd: Path) -> Iterator[tuple[str, str]]:
    """Yields the addresses of a broker and of its HTTP port."""
    command = [*CONTRADA, "serve", "--port", "0", "--http", "0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=TEST_S_MAX)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors, errors


def curl(*options: str) -> str:
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "30", *options], capture_output=True, text=True, check=True
    )
    return done.stdout


def examples() -> list[list[str]]:
    """Returns the curl commands of the page, split as by a shell."""
    blocks = re.findall(r"(?:^    .*\n)+", PAGE.read_text("utf-8"), re.MULTILINE)
    texts = [text for block in blocks for text in re.split(r"\n(?=    curl )", block)]
    return [
        shlex.split(text.replace("\\\n", " "))[1:]
        for text in texts
        if text.startswith("    curl ") and "/queues/" not in text  # Those need users.
    ]


@pytest.mark.slow
def test_the_examples_of_the_page(tmp_path: Path) -> None:
    """A reader of the page would see other results."""
    with serving("--store", "events.db", cwd=tmp_path) as (_, address):

        def at(options: list[str]) -> list[str]:
            return [each.replace("http://127.0.0.1:8080", address) for each in options]

        one, batch, stream, cesql, durable, again, sink, listed, ended = map(at, examples())
        streams = [
            subprocess.Popen(["curl", "-sS", *each], stdout=subprocess.PIPE, text=True)
            for each in (stream, cesql, durable)
        ]
        for each in streams:
            assert each.stdout is not None
            assert each.stdout.readline() == "retry: 2000\n"
        assert '{"published":1}' in curl(*one)
        assert "202 Accepted" in curl(*batch)
        for each, count in zip(streams, (3, 3, 3), strict=True):
            assert each.stdout is not None
            found: list[str] = []
            while len(found) < count:
                line = each.stdout.readline()
                if line.startswith("data: "):
                    found.append(json.loads(line[6:])["id"])
            assert found == ["17", "18", "19"]
            each.kill()
            each.communicate()
        after = [option.replace("ID: 42", "ID: 2") for option in again]
        with subprocess.Popen(
            ["curl", "-sS", *after], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(4)]
            assert lines[2] == "id: 3\n"
            assert '"id":"19"' in lines[3]
            process.kill()
        created = curl(*sink)
        assert "201 Created" in created
        (kept,) = json.loads(curl(*listed))
        assert kept["sink"] == "https://example.com/events"
        assert (tmp_path / "events.db.sinks.json").exists()
        curl(*(each.replace("ID", kept["id"]) for each in ended))
        assert json.loads(curl(*listed)) == []
        assert "contrada_published_total 3.0" in curl(f"{address}/metrics")


@pytest.mark.slow
def test_https_with_the_certificate_of_the_broker(tmp_path: Path) -> None:
    """Tokens would cross the network unencrypted."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "broker.pem")
    )
    options = ("--store", "memory:", "--tls-certificate", "broker.pem")
    with serving(*options, cwd=tmp_path) as (_, address):
        assert address.startswith("https://")
        answer = curl("--cacert", str(tmp_path / "ca.pem"), f"{address}/healthz")
        assert json.loads(answer) == {"status": "ok"}


def test_the_default_host_is_loopback() -> None:
    """The port would be open to the network by default."""
    assert HttpSettings("8080").place() == ("127.0.0.1", 8080)
    assert HttpSettings("0.0.0.0:80").place() == ("0.0.0.0", 80)
    assert HttpSettings("[::1]:80").place() == ("::1", 80)
    for text in ("x", "1:2:x", "99999", "host:", "-1"):
        with pytest.raises(AddressError):
            settings_of(None, {"http": {"listen": text}})


def test_other_hosts_need_authentication() -> None:
    """A broker on loopback would be open to all by its HTTP port."""
    told: dict[str, Any] = {"http": {"listen": "0.0.0.0:80"}}
    with pytest.raises(ServiceError, match=r"at 0\.0\.0\.0 other machines"):
        settings_of(None, told)
    assert settings_of(None, {**told, "anyone": True}).http.listen == "0.0.0.0:80"
    assert settings_of(None, {**told, "users": "users.toml"}).users == "users.toml"


def test_the_file_of_subscriptions_to_sinks() -> None:
    """Two brokers would share a file, or a database address would be used as a file name."""
    kept = {
        None: "contrada.db.sinks.json",
        "/a/b.db": "/a/b.db.sinks.json",
        "postgresql://u@h/d": "contrada.sinks.json",
    }
    for store, file in kept.items():
        assert BrokerSettings(store=store).sinks_file() == Path(file)
    assert BrokerSettings(store="memory:").sinks_file() is None


def test_a_missing_extra_is_reported_on_one_line() -> None:
    """A user without the extra would see a traceback."""
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "from contrada_command import main; sys.argv[1:] = "
        "['serve', '--port', '0', '--store', 'memory:', '--http', '0']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TEST_S_MAX
    )
    assert done.returncode != 0
    (line,) = done.stderr.strip().splitlines()
    assert "pip install 'contrada[http]'" in line


@pytest.mark.slow
@on_loop
async def test_clients_and_links_connect_to_the_http_port(tmp_path: Path) -> None:
    """A program behind an HTTP proxy could be no client and no neighbour."""
    options = ("--store", "memory:")
    with serving(*options, "--name", "a", cwd=tmp_path) as (direct, http):
        way = http.replace("http://", "contrada+ws://")
        linked = ("--name", "b", "--neighbour", way, *options)
        with serving(*linked, cwd=tmp_path) as (other, _):
            async with (
                connect(way) as here,
                connect(other) as there,
                connect(direct) as publisher,
                here.subscribe("a any") as by_client,
                there.subscribe("a any") as by_link,
            ):
                await until(lambda: publish_reaches(publisher, by_link))
                assert (await by_client.next(TEST_S_MAX))["a"] == 1


def publish_reaches(publisher: Service, events: Subscription[Any]) -> bool:
    """Whether a repeated publication is delivered."""
    asyncio.ensure_future(publisher.publish({"a": 1}))  # noqa: RUF006 - the next steps await it
    return bool(events.statistics().queued)
