"""What only AMQP has: queues and exchanges, properties, returned messages and channels."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiormq")

from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from contrada.errors import ConnectionFailedError, InvalidValueError, PeerLostError
from contrada.integrations.bridges.amqp_peer import AMQP_ADDRESS, AmqpPeer, _record, properties_of
from contrada.integrations.bridges.bridge_peer import BridgeLimits, BridgePeer, PeerSettings
from contrada.integrations.bridges.record_translation import (
    PeerRecord,
    RecordTranslation,
    TextTemplate,
)
from contrada.model import Notification
from tests.asynchronous import on_loop
from tests.integrations.bridges.systems import IN, OUT, RabbitMq, needs
from tests.integrations.bridges.test_bridge import running

TRANSLATION = RecordTranslation("amqp", "amqp", TextTemplate("{topic}"))
REAL = pytest.mark.parametrize("kind", [needs(RabbitMq)])


def received(**properties: Any) -> PeerRecord:
    """Returns the record of a message with these properties."""
    header = ContentHeader(properties=Basic.Properties(**properties), body_size=1)
    delivery = Basic.Deliver("c", 7, False, "bus", "a.b")
    unused: Any = None
    return _record("q", DeliveredMessage(delivery, header, b"x", unused))


def test_properties_and_headers_become_attributes() -> None:
    """A filter on a number in a header would match nothing; or a header could forge an origin."""
    table = {
        "n": 7,
        "price": Decimal("1.5"),
        "tags": ["x", "y"],
        "x-death": [{"queue": "q", "count": 1}],
        "amqp.queue": "forged",
        "contrada.origin": "forged",
    }
    record = received(
        headers=table, content_type="i/p", message_type="t", reply_to="r", content_encoding="gzip"
    )
    found = TRANSLATION.notification_of(record)
    assert (found.body, found.content_type, record.token) == (b"x", "i/p", 7)
    assert dict(found) == {
        "topic": "a.b",
        "contrada.origin": "amqp",
        "amqp.exchange": "bus",
        "amqp.queue": "q",
        "amqp.type": "t",
        "amqp.reply_to": "r",
        "amqp.content_encoding": "gzip",
        "n": 7,
        "price": 1.5,
        "tags": ("x", "y"),
        "x-death": '{"queue":"q","count":1}',
    }


def test_attributes_become_properties_and_headers() -> None:
    """One of several values would be lost, or a request could not be answered."""
    of = Notification(
        {"topic": "t", "amqp.correlation_id": "c", "l": ["x", "y"], "n": 7},
        body=b"\xff",
        content_type="i/p",
    )
    found = properties_of(TRANSLATION.record_of(of), 1000)
    assert (found.content_type, found.correlation_id, found.delivery_mode) == ("i/p", "c", 2)
    own = {"contrada.id": "", "contrada.publisher": ""}
    assert found.headers == own | {"l": ["x", "y"], "n": "7"}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (PeerRecord(topic="ä" * 128), "routing keys of at most 255 bytes"),
        (PeerRecord(topic="t", headers=(("n" * 129, "x"),)), "headers of at most 128 bytes"),
        (PeerRecord(topic="t", headers=(("n", "x" * 1000),)), "takes 1000 bytes of headers"),
        (PeerRecord(topic="t", facts={"type": ("a", "b")}), "one value of it, found 2"),
        (PeerRecord(topic="t", facts={"reply_to": "x" * 256}), "cannot hold its properties"),
    ],
    ids=["key", "name", "size", "several", "property"],
)
def test_records_that_amqp_cannot_hold_are_refused(record: PeerRecord, reason: str) -> None:
    """The server would end the connection at each attempt, and the bridge would relay nothing; or
    the library would cut a name.
    """
    with pytest.raises(InvalidValueError, match=reason):
        properties_of(record, 1000)


async def exhaust(peer: BridgePeer) -> None:
    """Receives until the end."""
    while True:
        await peer.receive()


@pytest.mark.parametrize("source", ["", "/key"])
def test_malformed_sources_are_refused(source: str) -> None:
    """A bridge would consume from a queue that nobody meant."""
    with pytest.raises(InvalidValueError, match="expected QUEUE or EXCHANGE/BINDING-KEY"):
        AmqpPeer(PeerSettings(AMQP_ADDRESS.parse("amqp://a"), "b", [source]))


@REAL
@pytest.mark.slow
@on_loop
async def test_refused_messages_do_not_block_others(kind: type[RabbitMq], tmp_path: Path) -> None:
    """A message that no queue takes would count as sent; or a large one would end the channel again
    and again.
    """
    async with running(kind, tmp_path) as system:
        place = system.form.parse(system.address)
        peer = system.peer(PeerSettings(place, "b", exchange=system.exchange))
        await peer.open()
        records = [
            PeerRecord(topic=topic, payload=payload)
            for topic, payload in (
                (OUT, b"1"),
                ("nowhere", b"x"),
                (OUT, b"x" * 300_000),
                ("x" * 256, b"x"),
                (OUT, b"2"),
            )
        ]
        answers = await peer.send(records)
        assert "no queue takes messages with the key 'nowhere'" in str(answers[1])
        assert "max size" in str(answers[2])
        assert "255 bytes" in str(answers[3])
        assert (answers[0], answers[4]) == (None, None)
        # The end of the channel may have hidden the confirmation of the first.
        payloads = [each.payload for each in await system.seen()]
        assert [*dict.fromkeys(payloads)] == [b"1", b"2"]
        # A dead letter is for a queue, which is not bound to the exchange.
        system.channel.queue_declare("plain", durable=True)
        dead = PeerRecord(topic="plain", token=1)
        lost, kept = await peer.send([PeerRecord(topic="plain"), dead])
        assert "no queue takes" in str(lost)
        assert kept is None
        assert len(await system.seen("plain")) == 1
        await peer.aclose()


@REAL
@pytest.mark.slow
@on_loop
async def test_a_queue_is_read_again_from_the_first_unacknowledged_message(
    kind: type[RabbitMq], tmp_path: Path
) -> None:
    """The messages that a bridge had received when it crashed would be lost; or a bridge would hold
    the whole queue in its memory.
    """
    async with running(kind, tmp_path) as system:
        limits = BridgeLimits(bridge_queued_max=4, bridge_batch_max=2)
        settings = PeerSettings(system.form.parse(system.address), "b", [OUT], limits=limits)
        for n in range(9):
            await system.publish(b"%d" % n, {}, OUT)
        peer = system.peer(settings)
        await peer.open()
        found: list[PeerRecord] = []
        while len(found) < 4:
            found += await peer.receive()
        assert [each.payload for each in found] == [b"0", b"1", b"2", b"3"]
        assert len(await system.seen()) == 5  # The server keeps the others.
        await peer.acknowledge(found[:2])
        await peer.aclose()
        peer = system.peer(settings)
        await peer.open()
        assert (await peer.receive())[0].payload == b"2"
        system.channel.queue_delete(OUT)
        with pytest.raises(PeerLostError, match="has ended the consumption"):
            await exhaust(peer)
        await peer.aclose()


@REAL
@pytest.mark.slow
@on_loop
async def test_missing_queues_exchanges_and_hosts_are_reported(
    kind: type[RabbitMq], tmp_path: Path
) -> None:
    """A person would wait for messages that never come."""
    async with running(kind, tmp_path) as system:
        place = system.form.parse(system.address)
        for settings, reason in (
            (PeerSettings(place, "b", ["nowhere"]), "no queue 'nowhere' in vhost '/'"),
            (PeerSettings(place, "b", [f"nowhere/{IN}"]), "no exchange 'nowhere' in vhost '/'"),
            (PeerSettings(place, "b", exchange="nowhere"), "no exchange 'nowhere' in vhost '/'"),
            (
                PeerSettings(system.form.parse(f"{system.address}/a%2Fb"), "b"),
                "no virtual host of this name",
            ),
        ):
            peer = system.peer(settings)
            with pytest.raises(ConnectionFailedError, match=reason):
                await peer.open()
            await peer.aclose()
