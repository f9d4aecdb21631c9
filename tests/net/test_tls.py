"""TLS for clients and links; both sides report errors as sentences, if they can know them."""

import asyncio
import contextlib
import re
import signal
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from contrada.connections import connect, connect_sync
from contrada.errors import ConnectionFailedError, InputError, ServiceError
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.address import parse_address
from contrada.net.wire.tls import TLS_FAULT, Tls
from tests.asynchronous import on_loop, until
from tests.net.processes import WAIT_S, contrada, serving

HOST = "127.0.0.1"
PAST, FUTURE, LATER = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2900, 2901))


class Authority:
    """A certificate authority, and its files."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self._folder = folder
        self.path = self._path()
        self._authority.cert_pem.write_to_path(str(self.path))

    def tls(
        self,
        *hosts: str,
        require: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Tls:
        """Returns the files of a side with a certificate of this authority, which it trusts."""
        hosts = hosts or (HOST,)
        issued = self._authority.issue_cert(*hosts, not_before=since, not_after=until)
        path = self._path()
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return Tls(path, authority=self.path, require_certificate=require)

    def _path(self) -> Path:
        return self._folder / f"{len(list(self._folder.iterdir()))}.pem"

    def trusting(self) -> ssl.SSLContext:
        """Returns a client's context."""
        return Tls(authority=self.path).client_context()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def as_plain(address: str) -> str:
    return address.replace("contradas://", "contrada://")


def as_tls(address: str) -> str:
    return address.replace("contrada://", "contradas://")


@on_loop
async def test_clients_and_links_speak_tls(authority: Authority) -> None:
    """A man in the middle could read publications."""
    tls = authority.tls()
    async with Broker(port=0, network=Membership("a"), tls=tls) as first:
        assert first.address.startswith("contradas://127.0.0.1:")
        wanted = (WantedLink(parse_address(first.address)),)
        network = Membership("b", neighbours=wanted)
        async with (
            Broker(port=0, network=network, tls=tls) as second,
            connect(first.address, tls=authority.trusting()) as publisher,
            connect(second.address, tls=authority.trusting()) as subscriber,
            subscriber.subscribe("a any") as events,
        ):
            await until(lambda: first.dispatcher.router.statistics().filters.nodes == 1)
            count = 5_000  # More than one write.
            await publisher.publish_batch({"a": each, "b": "x" * 500} for each in range(count))
            assert [(await anext(events))["a"] for _ in range(count)] == list(range(count))


async def _said_to(address: str, tls: ssl.SSLContext | None) -> str:
    with pytest.raises(ConnectionFailedError) as failed:
        async with connect(address, tls=tls):
            pass
    assert "_ssl.c" not in str(failed.value)
    return failed.value.reason


@on_loop
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda authority: authority.tls(), "is not trusted (self-signed certificate in"),
        (lambda authority: authority.tls(until=PAST), "has expired"),
        (lambda authority: authority.tls("desk.example"), "is for another host (IP address mis"),
    ],
)
async def test_a_broker_that_is_not_the_right_one_is_refused(
    make: Callable[[Authority], Tls], said: str, authority: Authority, tmp_path: Path
) -> None:
    """Any host could pose as a broker; or an error would not have the reason."""
    trusts = Authority(tmp_path) if "trusted" in said else authority
    async with Broker(port=0, tls=make(authority)) as broker:
        found = await _said_to(broker.address, trusts.trusting())
        assert said in found
        if trusts is not authority:
            assert "--tls-authority" in found


@on_loop
async def test_without_an_authority_those_of_the_system_are_trusted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker with a certificate of its own could be reached, or one of the public not."""
    async with Broker(port=0, tls=authority.tls()) as broker:
        assert "is not trusted" in await _said_to(broker.address, None)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
        async with connect(broker.address) as service:
            await service.publish({"a": 1})


@on_loop
async def test_plain_and_tls_ends_get_a_clear_error(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A person would look for the fault in the network."""
    caplog.set_level("INFO", "contrada")
    async with Broker(port=0, tls=authority.tls()) as safe, Broker(port=0) as plain:
        assert "wants TLS, as with contradas://" in await _said_to(as_plain(safe.address), None)
        assert safe.refused == {TLS_FAULT: 1}
        assert "is refused: the other side does not speak TLS" in caplog.text
        said = await _said_to(as_tls(plain.address), authority.trusting())
        assert "does not speak TLS: contradas:// does" in said
        assert plain.refused == {"not contrada": 1}
        assert "it speaks TLS, as with contradas://" in caplog.text


def _is_said(expected: re.Pattern[str], caplog: pytest.LogCaptureFixture) -> bool:
    return expected.search(caplog.text) is not None


@on_loop
async def test_links_report_missing_tls(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator would not learn why a link is down."""
    caplog.set_level("INFO", "contrada")
    stranger = Authority(tmp_path)
    async with (
        Broker(port=0, network=Membership("a"), tls=authority.tls()) as safe,
        Broker(port=0, network=Membership("b")) as plain,
    ):
        for address, tls, said in (
            (as_plain(safe.address), None, "wants TLS, as with contradas://"),
            (as_tls(plain.address), authority.tls(), "does not speak TLS"),
            (safe.address, stranger.tls(), "is not trusted"),
        ):
            network = Membership("c", neighbours=(WantedLink(parse_address(address)),))
            expected = re.compile(f"neighbour {re.escape(address)} is away .*{said}")
            async with Broker(port=0, network=network, tls=tls):
                await until(partial(_is_said, expected, caplog))


@on_loop
async def test_a_client_certificate_may_be_required(authority: Authority, tmp_path: Path) -> None:
    """Any machine that knows the address could join a network, or not learn the reason of its
    refusal.
    """
    own, stranger = authority.tls(), Authority(tmp_path).tls()
    required = authority.tls(require=True)
    async with Broker(port=0, network=Membership("a"), tls=required) as broker:
        forged = Tls(stranger.certificate, authority=authority.path)
        late, early = authority.tls(until=PAST), authority.tls(since=FUTURE, until=LATER)
        for tls, said in (
            (Tls(authority=authority.path), "the other side asks for a certificate of this one"),
            (forged, "the other side does not trust the certificate of this one"),
            (late, "the certificate of this side has expired"),
            (early, "the other side does not take the certificate of this one"),
        ):
            assert (
                await _said_to(broker.address, tls.client_context())
                == f"the connection broke: {said}"
            )
        assert broker.refused == {TLS_FAULT: 4}
        network = Membership("b", neighbours=(WantedLink(parse_address(broker.address)),))
        async with (
            Broker(port=0, network=network, tls=own),
            connect(broker.address, tls=own.client_context()) as service,
        ):
            await service.publish({"a": 1})
            await until(lambda: len(broker.neighbours) == 1)


@on_loop
async def test_a_refused_certificate_ends_the_connection(
    authority: Authority, tmp_path: Path
) -> None:
    """The broker would hold any further bytes until the time-out."""
    forged = Tls(Authority(tmp_path).tls().certificate, authority=authority.path)
    async with Broker(port=0, tls=authority.tls(require=True)) as broker:
        place = (HOST, parse_address(broker.address).port)

        def say_much() -> int:
            """Never reads, so that it does not hear why it is refused."""
            sent, block = 0, b"x" * 65_536
            with (
                socket.create_connection(place, WAIT_S) as sock,
                forged.client_context().wrap_socket(sock, server_hostname=HOST) as tls,
                contextlib.suppress(ConnectionError, ssl.SSLEOFError),
            ):
                while sent < 64 * 2**20:
                    tls.sendall(block)
                    sent += len(block)
            return sent

        sent = await asyncio.to_thread(say_much)
        assert sent < 16 * 2**20, "the two systems hold less"
        assert broker.refused == {TLS_FAULT: 1}


@on_loop
async def test_a_client_connects_again_over_tls(authority: Authority) -> None:
    """A service would be lost with its first connection."""
    async with (
        Broker(port=0, tls=authority.tls()) as broker,
        connect(broker.address, tls=authority.trusting()) as service,
        service.subscribe("a any") as events,
    ):
        for number in range(3):
            await service.publish({"a": number})
            assert (await anext(events))["a"] == number
            lost = set(broker._connections)
            for peer in lost:
                peer.abort()
            # Until it is connected again: earlier publications fail with the connection.
            await until(partial(_came_again, broker, lost))


def _came_again(broker: Broker, lost: set[ServerConnection]) -> bool:
    return bool(broker._connections) and lost.isdisjoint(broker._connections)


@on_loop
async def test_a_renewed_certificate_is_shown(authority: Authority, tmp_path: Path) -> None:
    """A broker would have to be stopped before its certificate expires."""
    old, new = authority.tls(until=PAST), authority.tls()
    async with Broker(port=0, tls=old) as broker:
        assert "expired" in await _said_to(broker.address, authority.trusting())
        bad = tmp_path / "bad.pem"
        bad.write_text("no key")
        with pytest.raises(InputError, match="expected a certificate and its key"):
            broker.reload_tls(Tls(bad))
        assert "expired" in await _said_to(broker.address, authority.trusting())
        broker.reload_tls(new)
        async with connect(broker.address, tls=authority.trusting()):
            pass


def test_a_certificate_that_others_refuse_by_the_clock_is_found_out(
    authority: Authority, tmp_path: Path
) -> None:
    """A broker would look well here, and nobody reach it."""
    for tls in (Tls(), authority.tls(), authority.tls("desk.example", require=True)):
        assert tls.why_out_of_date() == ""
    for tls, said in (
        (authority.tls(until=PAST), "has expired"),
        (authority.tls(since=FUTURE, until=LATER), "is not valid yet (is the clock right?)"),
    ):
        assert tls.why_out_of_date() == f"{tls.certificate} {said}"
    with pytest.raises(InputError, match="No such file"):
        Tls(tmp_path / "none.pem").why_out_of_date()


@pytest.mark.slow
def test_a_broker_reports_its_expired_certificate(authority: Authority, tmp_path: Path) -> None:
    """It would start without a word; and give up one that is in force for one that is not."""
    good, bad = authority.tls(), authority.tls(until=PAST)
    path = tmp_path / "broker.toml"
    said = 'port = 0\nlog = {{ level = "info" }}\ntls = {{ certificate = "{}" }}\n'

    def heard(process: Any, what: str) -> None:
        while what not in (line := process.stderr.readline()):
            assert line, "it has ended"

    path.write_text(said.format(bad.certificate), "utf-8")
    checked = contrada("doctor", "--config", str(path))
    assert checked.returncode == 1
    assert f"{bad.certificate} has expired" in checked.stdout
    with serving("--config", str(path)) as (process, address):
        heard(process, f"{bad.certificate} has expired: clients and neighbours will refuse it")
        path.write_text(said.format(good.certificate), "utf-8")
        process.send_signal(signal.SIGHUP)
        heard(process, f"read {path} again")
        with connect_sync(address, tls=authority.trusting()):
            path.write_text(said.format(bad.certificate), "utf-8")
            process.send_signal(signal.SIGHUP)
            heard(process, f"{bad.certificate} has expired: the one that is shown stays")
            heard(process, f"read {path} again")  # The rest is in force, also exclusions.
        with connect_sync(address, tls=authority.trusting()):
            pass


def test_files_that_are_no_certificates_are_named(authority: Authority, tmp_path: Path) -> None:
    """A broker would not start, and nobody know which file is at fault."""
    good, other = authority.tls(), authority.tls()
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    encrypted = tmp_path / "encrypted.pem"
    key = load_pem_private_key(Path(str(good.certificate)).read_bytes(), None)
    secret = BestAvailableEncryption(b"secret")
    encrypted.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, secret))
    for tls, said in (
        (Tls(tmp_path / "none.pem"), "none.pem: No such file"),
        (Tls(good.certificate, tmp_path / "none.key"), "none.key: No such file"),
        (Tls(bad), "bad.pem: expected a certificate and its key, in PEM"),
        (Tls(good.certificate, other.certificate), "is not that of the certificate"),
        (Tls(good.certificate, encrypted), "encrypted.pem: the key is encrypted"),
        (Tls(authority=bad), "bad.pem: expected the certificates of trusted authorities"),
        (Tls(authority=tmp_path / "none.pem"), "none.pem: No such file"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            tls.client_context()


def test_invalid_tls_settings_are_refused(authority: Authority) -> None:
    """A broker would ask nobody for a certificate, or take everybody's."""
    with pytest.raises(ServiceError, match="needs one itself: add a certificate"):
        Tls(require_certificate=True)
    with pytest.raises(ServiceError, match="needs their authority"):
        Tls(authority.path, require_certificate=True)
    context = ssl.create_default_context()
    for address in (None, "contrada://127.0.0.1"):
        with pytest.raises(ServiceError, match=r"tls (and token are|is) for"):
            connect(address, tls=context)


@on_loop
async def test_a_silent_tls_client_delays_nobody(authority: Authority) -> None:
    """One stranger could keep a broker from serving or ending."""
    async with Broker(port=0, tls=authority.tls()) as broker:
        port = parse_address(broker.address).port
        _, writer = await asyncio.open_connection(HOST, port)
        async with connect(broker.address, tls=authority.trusting()) as service:
            await service.publish({"a": 1})
        await broker.stop()
        writer.close()


@pytest.mark.slow
def test_commands_speak_tls(authority: Authority) -> None:
    """TLS could be had from Python only."""
    files = authority.tls(require=True)
    own = ["--tls-certificate", str(files.certificate), "--tls-authority", str(files.authority)]
    with serving("--port", "0", *own, "--tls-require-certificate") as (_, address):
        assert address.startswith("contradas://")
        with (
            connect_sync(address, tls=files.client_context()) as service,
            service.subscribe("a any") as events,
        ):
            assert contrada("pub", "--to", address, *own, "a=1").returncode == 0
            assert events.next(WAIT_S)["a"] == 1
        refused = contrada("pub", "--to", address, "--tls-authority", str(files.authority), "a=1")
        assert refused.returncode == 1
        assert "the other side asks for a certificate of this one" in refused.stderr
        for command in (
            ("stats", address),
            ("top", address, "--count", "1", "--interval", "0.1"),
            ("inspect", address),
            ("doctor", address),
            ("adv", "--follow", "--timeout", "0.1", "--to", address),
            ("sub", "a any", "--timeout", "0.1", "--to", address),
        ):
            spoken = contrada(*command, *own)
            assert (spoken.returncode, spoken.stderr) == (0, ""), command
    refused = contrada("serve", "--tls-key", str(files.certificate))
    assert refused.returncode == 2
    assert f"{files.certificate}: a key of TLS needs its certificate" in refused.stderr
