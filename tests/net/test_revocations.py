"""Revocation lists: a revoked certificate is refused, also after the connection has begun."""

import asyncio
import signal
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from contrada.connections import connect, connect_sync
from contrada.errors import ConnectionFailedError, InputError, ServiceError
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.wire.address import parse_address
from contrada.net.wire.connection import CLIENT
from contrada.net.wire.frames import Hello, encode
from contrada.net.wire.tls import TLS_FAULT, RevocationLists, Tls
from contrada.service.security.principals import NOT_PERMITTED
from tests.asynchronous import on_loop, until
from tests.net.processes import WAIT_S, serving
from tests.net.test_tls import HOST, Authority

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class RevokingAuthority(Authority):
    """An authority that publishes a revocation list, each newer than the last."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.crl = folder / "authority.crl"
        self._number = 0
        self.publish()

    def publish(self, *revoked: Tls, ends: datetime | None = None) -> Path:
        """Writes a list with the certificates of these sides."""
        pem = self._authority.private_key_pem.bytes()
        builder = x509.CertificateRevocationListBuilder(
            x509.load_pem_x509_certificate(self._authority.cert_pem.bytes()).subject,
            LONG_AGO + timedelta(seconds=self._number),
            ends or datetime.now(UTC) + timedelta(days=1),
        )
        self._number += 1
        for each in revoked:
            shown = x509.load_pem_x509_certificate(Path(str(each.certificate)).read_bytes())
            one = x509.RevokedCertificateBuilder(shown.serial_number, LONG_AGO)
            builder = builder.add_revoked_certificate(one.build())
        signed = builder.sign(load_pem_private_key(pem, None), SHA256())  # type: ignore[arg-type]
        self.crl.write_bytes(signed.public_bytes(Encoding.PEM))
        return self.crl

    def broker(self) -> Tls:
        """Returns the files of a broker that requires certificates, and checks the list."""
        own = self.tls()
        return Tls(own.certificate, None, self.path, require_certificate=True, crl=self.crl)


@pytest.fixture
def authority(tmp_path: Path) -> RevokingAuthority:
    return RevokingAuthority(tmp_path)


async def refusal(address: str, tls: Tls) -> str:
    with pytest.raises(ConnectionFailedError) as failed:
        async with connect(address, tls=tls.client_context(), reconnect=False):
            pass
    return failed.value.reason


@on_loop
async def test_a_revoked_certificate_is_refused(
    authority: RevokingAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    """A stolen certificate would be good until it expires."""
    caplog.set_level("INFO", "contrada")
    good, stolen = authority.tls(), authority.tls()
    authority.publish(stolen)
    async with Broker(port=0, tls=authority.broker()) as broker:
        assert "the certificate of this side is revoked" in await refusal(broker.address, stolen)
        assert "is refused: the certificate of the other side is revoked" in caplog.text
        assert broker.refused == {TLS_FAULT: 1}
        async with connect(broker.address, tls=good.client_context()) as service:
            await service.publish({"a": 1})


@on_loop
async def test_a_new_list_ends_the_connections_that_it_revokes(
    authority: RevokingAuthority,
) -> None:
    """The owner of a stolen certificate would stay; or a new list would disturb the others."""
    good, stolen = authority.tls(), authority.tls()
    own = authority.broker()
    async with (
        Broker(port=0, tls=own) as broker,
        connect(broker.address, tls=good.client_context(), reconnect=False) as service,
        connect(broker.address, tls=stolen.client_context(), reconnect=False) as thief,
    ):
        authority.publish(stolen)
        broker.reload_tls(own)
        await until(lambda: thief.connection.state == "closed")
        assert "is revoked" in thief.connection.reason
        await service.publish({"a": 1})
        assert "is revoked" in await refusal(broker.address, stolen)
        authority.crl.write_text("no list")
        with pytest.raises(InputError, match="expected revocation lists in PEM"):
            broker.reload_tls(own)
        assert "is revoked" in await refusal(broker.address, stolen)


@on_loop
async def test_a_resumed_session_is_checked(authority: RevokingAuthority) -> None:
    """A thief could resume a TLS session from before: OpenSSL checks no certificate then."""
    stolen, own = authority.tls(), authority.broker()
    context = stolen.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with Broker(port=0, tls=own) as broker:
        place = (HOST, parse_address(broker.address).port)

        def say_hello(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
            with (
                socket.create_connection(place, WAIT_S) as sock,
                context.wrap_socket(sock, server_hostname=HOST, session=session) as tls,
            ):
                assert tls.session_reused is (session is not None)
                tls.sendall(encode(Hello(CLIENT)))
                return tls.recv(4_096), tls.session

        answer, session = await asyncio.to_thread(say_hello, None)
        assert b"contrada" in answer
        await until(lambda: not broker._connections)
        authority.publish(stolen)
        broker.reload_tls(own)
        answer, _ = await asyncio.to_thread(say_hello, session)
        assert b"is revoked" in answer
        assert broker.refused == {NOT_PERMITTED: 1}


@on_loop
async def test_a_broker_refuses_a_neighbour_with_a_revoked_certificate(
    authority: RevokingAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    """A stolen certificate of a broker would receive what is published."""
    caplog.set_level("INFO", "contrada")
    stolen, own = authority.tls(), authority.broker()
    async with Broker(port=0, network=Membership("a"), tls=stolen) as thief:
        network = Membership("b", neighbours=(WantedLink(parse_address(thief.address)),))
        async with Broker(port=0, network=network, tls=own) as broker:
            await until(lambda: len(broker.neighbours) == 1)
            authority.publish(stolen)
            broker.reload_tls(own)
            await until(lambda: not len(broker.neighbours))
            said = "the certificate of the other side is revoked"
            await until(lambda: "is away" in caplog.text and caplog.text.count(said) > 1)


@on_loop
async def test_without_a_valid_list_nobody_is_admitted(
    authority: RevokingAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever keeps new lists from a broker could use a stolen certificate."""
    caplog.set_level("INFO", "contrada")
    own = authority.broker()
    authority.publish(ends=LONG_AGO + timedelta(hours=1))
    async with Broker(port=0, tls=own) as broker:
        assert caplog.text.count("the list of OU=Testing CA") == 1
        assert "has expired, so its certificates are refused" in caplog.text
        await refusal(broker.address, authority.tls())
        assert "do not decide about the other side: CRL has expired" in caplog.text


def test_malformed_lists_are_refused(authority: RevokingAuthority, tmp_path: Path) -> None:
    """A broker would start without its list; or trust an authority from the file of a list."""
    bad = tmp_path / "bad.crl"
    own = authority.tls()
    for content in (b"", b"no list", b"\xff", authority.path.read_bytes()):
        bad.write_bytes(content + (authority.crl.read_bytes() if b"CERT" in content else b""))
        with pytest.raises(InputError, match="expected revocation lists in PEM"):
            Broker(port=0, tls=Tls(own.certificate, None, authority.path, crl=bad))
    with pytest.raises(InputError, match="No such file"):
        RevocationLists(tmp_path / "none.crl")
    with pytest.raises(ServiceError, match="add the authority"):
        Tls(own.certificate, crl=authority.crl)


def test_the_list_of_another_authority_revokes_nothing(tmp_path: Path) -> None:
    """A serial number is unique for its authority only."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = RevokingAuthority(tmp_path / "a"), RevokingAuthority(tmp_path / "b")
    mine = one.tls()
    der = ssl.PEM_cert_to_DER_cert(
        "-----BEGIN CERTIFICATE-----"
        + Path(str(mine.certificate)).read_text().split("-----BEGIN CERTIFICATE-----")[1]
    )
    both = tmp_path / "both.crl"
    both.write_bytes(other.publish(mine).read_bytes() + one.crl.read_bytes())
    assert not RevocationLists(both).has(der)
    both.write_bytes(other.crl.read_bytes() + one.publish(mine).read_bytes())
    assert RevocationLists(both).has(der)


@pytest.mark.slow
def test_a_broker_process_reads_the_list_again(authority: RevokingAuthority) -> None:
    """The flag would have no effect, or a revocation would need a restart."""
    own, stolen = authority.broker(), authority.tls()
    flags = ["--tls-certificate", str(own.certificate), "--tls-authority", str(own.authority)]
    flags += ["--tls-require-certificate", "--tls-crl", str(own.crl), "-v"]
    with serving("--port", "0", *flags) as (process, address):
        with connect_sync(address, tls=stolen.client_context()) as service:
            service.publish({"a": 1})
        authority.publish(stolen)
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        while "again" not in (line := process.stderr.readline()):
            assert line, "it has ended"
        with (
            pytest.raises(ConnectionFailedError, match="is revoked"),
            connect_sync(address, tls=stolen.client_context()),
        ):
            pass
