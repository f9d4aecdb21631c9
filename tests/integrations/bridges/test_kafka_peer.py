"""What only Kafka has: keys and partitions, offsets of a group, and a library with threads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, Message

from contrada.connections import connect
from contrada.errors import (
    ConnectionFailedError,
    InvalidValueError,
    NoPlaceError,
    PeerLostError,
    ServiceError,
)
from contrada.integrations.bridges.bridge_peer import BridgeLimits, PeerSettings
from contrada.integrations.bridges.kafka_peer import (
    KAFKA_RECORD_BYTES_MAX,
    KafkaPeer,
    check_topic,
    headers_of,
    key_of,
    record_from,
    refusal_of,
)
from contrada.integrations.bridges.record_translation import (
    PeerRecord,
    RecordTranslation,
    TextTemplate,
)
from contrada.model import Notification
from contrada.net.wire.tls import Tls
from tests.asynchronous import on_loop, until
from tests.integrations.bridges.systems import HOST, IN, OUT, Kafka, needs
from tests.integrations.bridges.test_bridge import bridged, content, kept, running, some
from tests.net.test_tls import Authority

REAL = pytest.mark.parametrize("kind", [needs(Kafka)])


def settings(system: Kafka, sources: list[str], limits: BridgeLimits) -> PeerSettings:
    """Returns the settings of a peer."""
    return PeerSettings(system.form.parse(system.address), "b", sources, limits=limits)


def test_a_record_becomes_a_notification() -> None:
    """A filter on a key would match nothing; or a header could forge the topic."""
    headers: Any = [
        ("Content-Type", b"i/p"),
        ("a", b"x"),
        ("a", b"\xff"),
        ("n", None),
        ("topic", b"f"),
    ]
    message = Message(
        topic="t",
        partition=2,
        offset=7,
        key=b"k",
        value=b"x",
        headers=headers,
        timestamp=(1, 1_000),
    )
    found = RecordTranslation("kafka", "k", TextTemplate("t")).notification_of(record_from(message))
    assert (found.body, found.content_type) == (b"x", "i/p")
    assert dict(found) == {
        "topic": "t",
        "contrada.origin": "k",
        "kafka.partition": 2,
        "kafka.offset": 7,
        "kafka.key": "k",
        "kafka.time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "a": ("x", b"\xff"),
        "n": None,
    }


@pytest.mark.parametrize("time_ms", [1_764_000_000_000_000, 2**62])
def test_a_time_beyond_the_calendar_is_left_out(time_ms: int) -> None:
    """A producer that stamps microseconds would end the bridge, after each start again."""
    message = Message(topic="t", partition=0, offset=1, value=b"x", timestamp=(1, time_ms))
    assert record_from(message).facts == {"partition": 0, "offset": 1}


def test_a_notification_becomes_a_record() -> None:
    """Records of one key would lie in several partitions, in any order."""
    of = Notification({"n": 7, "l": ["x", "y"]}, body=b"!", content_type="i/p")
    keyed = RecordTranslation("kafka", "k", TextTemplate("t"), key=TextTemplate("{n}"))
    found = keyed.record_of(of)
    assert key_of(found) == "7"
    assert sorted(headers_of(found)) == [
        ("content-type", "i/p"),
        ("contrada.id", ""),
        ("contrada.publisher", ""),
        ("l", "x"),
        ("l", "y"),
        ("n", "7"),
    ]
    plain = RecordTranslation("kafka", "k", TextTemplate("t"))
    assert key_of(plain.record_of(Notification({"kafka.key": b"\xff"}))) == b"\xff"
    assert key_of(plain.record_of(Notification({"a": 1}))) is None
    with pytest.raises(InvalidValueError, match="one value of it, found 2"):
        key_of(plain.record_of(Notification({"kafka.key": ["a", "b"]})))


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "ä", "a\n", "x" * 250])
def test_malformed_topics_are_refused(topic: str) -> None:
    """The server would refuse the record, after a wait for a topic that cannot be."""
    with pytest.raises(InvalidValueError, match="no topic of Kafka"):
        check_topic(topic)
    check_topic("a.b_c-D9")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, NoPlaceError),
        (KafkaError._UNKNOWN_TOPIC, NoPlaceError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NoPlaceError),
        (KafkaError.MSG_SIZE_TOO_LARGE, ServiceError),
        (KafkaError._MSG_TIMED_OUT, type(None)),
    ],
)
def test_only_faults_of_a_record_refuse_it(code: int, kind: type[object]) -> None:
    """A wrong permission would lose all notifications, or a large one would block all others."""
    assert type(refusal_of(KafkaError(code), "t")) is kind


@REAL
@pytest.mark.slow
@on_loop
async def test_keys_choose_partitions_and_refused_records_do_not_block_others(
    kind: type[Kafka], tmp_path: Path
) -> None:
    """Records of one key would change their order; or a large one would block all."""
    async with running(kind, tmp_path) as system:
        peer = system.peer(settings(system, [OUT], BridgeLimits()))
        await peer.open()
        keys = [{"key": f"k{n % 3}"} for n in range(30)]
        records = [PeerRecord(topic=OUT, payload=b"x", facts=facts) for facts in keys]
        large = PeerRecord(topic=OUT, payload=bytes(KAFKA_RECORD_BYTES_MAX + 1))
        *answers, last, bad = await peer.send([*records, large, PeerRecord(topic="a b")])
        assert answers == [None] * 30
        assert "too large" in str(last)
        assert "no topic of Kafka" in str(bad)
        found: list[PeerRecord] = []
        while len(found) < 30:
            found += await peer.receive()
        partitions = {(each.facts["key"], each.facts["partition"]) for each in found}
        assert len(partitions) == 3
        await peer.aclose()


@REAL
@pytest.mark.slow
@on_loop
async def test_uncommitted_records_are_received_again(kind: type[Kafka], tmp_path: Path) -> None:
    """The records that a bridge had received when it crashed would be lost."""
    async with running(kind, tmp_path) as system:
        for n in range(6):
            await system.publish(b"%d" % n, {})
        limits = BridgeLimits(bridge_batch_max=2)
        numbers: list[bytes] = []
        for source in (IN, "^i.$"):  # A name, and a pattern.
            peer = system.peer(settings(system, [source], limits))
            await peer.open()
            first = await peer.receive()
            rest: list[PeerRecord] = []
            while not rest or rest[-1].payload != b"5":
                rest += await peer.receive()
            await peer.acknowledge(first)
            numbers += [each.payload for each in (*first, *rest)]
            await peer.aclose()
        assert numbers[:6] == [b"%d" % n for n in range(6)]
        assert numbers[6:] == numbers[-len(numbers[6:]) :]
        assert numbers[6] in (b"1", b"2")  # After the first batch, which has one or two.


@REAL
@pytest.mark.slow
@on_loop
async def test_a_server_that_hangs_loses_nothing(
    kind: type[Kafka], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A bridge would wait for ever, or would drop what it was sending."""
    async with (
        running(kind, tmp_path) as system,
        kept(tmp_path) as broker,
        connect(broker.address) as desk,
        connect(broker.address) as service,
        bridged(system, service, limits=BridgeLimits(bridge_wait_s=1.0)) as bridge,
    ):
        await desk.publish({"out": 1}, delivery="certified")
        await until(lambda: bridge.counts["out"] == 1)
        system.pause()
        await desk.publish({"out": 2}, delivery="certified")
        await until(lambda: f"{system.address}: " in caplog.text)
        system.resume()
        await until(lambda: bridge.counts["out"] == 2)
        assert [content(system, each)["out"] for each in await some(system, 2)][-1] == 2


@asynccontextmanager
async def tls_proxy(system: Kafka, tls: Tls) -> AsyncIterator[int]:
    """Puts TLS in front of a cluster, which has none; gives the port."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client may reset its connection; each end closes the other, however it ends.
        with suppress(OSError), closing(writer):
            while data := await reader.read(65_536):
                writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain_reader, plain_writer = await asyncio.open_connection(HOST, system.port)
        await asyncio.gather(copy(reader, plain_writer), copy(plain_reader, writer))

    context = tls.server_context(lambda _: None)
    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@REAL
@pytest.mark.slow
@on_loop
async def test_tls_is_spoken_and_never_left_out(kind: type[Kafka], tmp_path: Path) -> None:
    """Any host on the network path could read the password, or say that there is no TLS."""
    (tmp_path / "keys").mkdir()
    authority = Authority(tmp_path / "keys")
    trusting = Tls(authority=authority.path)
    async with running(kind, tmp_path) as system, tls_proxy(system, authority.tls()) as secure:
        for port, tls, reason in (
            (secure, trusting, None),
            (secure, Tls(), "SSL handshake failed|certificate verify failed"),
            (system.port, trusting, "SSL handshake failed|timed out|Disconnected"),
        ):
            place = system.form.parse(f"kafkas://{HOST}:{port}")
            peer = system.peer(PeerSettings(place, "b", [IN], tls, BridgeLimits(bridge_wait_s=3.0)))
            if reason is None:
                await peer.open()
            else:
                with pytest.raises(ConnectionFailedError, match=reason):
                    await peer.open()
            await peer.aclose()


@REAL
@pytest.mark.slow
@on_loop
async def test_missing_topics_and_servers_are_reported(kind: type[Kafka], tmp_path: Path) -> None:
    """A person would wait for records that never come; or the end of a bridge would hang."""
    async with running(kind, tmp_path) as system:
        peer = system.peer(settings(system, ["nowhere"], BridgeLimits()))
        with pytest.raises(ConnectionFailedError, match="no topic of Kafka has the name 'nowhere'"):
            await peer.open()
        await peer.aclose()
        peer = system.peer(settings(system, [IN], BridgeLimits()))
        await peer.open()
        system.kill()
        with pytest.raises(PeerLostError):
            await peer.receive()
        async with asyncio.timeout(5):
            await peer.aclose()
        with pytest.raises(ConnectionFailedError, match="no server listens there"):
            await peer.open()
        assert isinstance(peer, KafkaPeer)
        threads = [thread for each in peer._threads for thread in each._threads]
        assert threads
        await peer.aclose()
        await until(lambda: not any(each.is_alive() for each in threads))
