"""What only streams of Redis have: fields, and the list of delivered entries of a consumer."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contrada.errors import AddressError, InvalidValueError, PeerLostError
from contrada.integrations.bridges.bridge_peer import BridgeLimits, PeerSettings
from contrada.integrations.bridges.record_translation import (
    PeerRecord,
    RecordTranslation,
    TextTemplate,
)
from contrada.integrations.bridges.redis_peer import REDIS_ADDRESS, RedisPeer, _record, fields_of
from contrada.model import Notification
from tests.asynchronous import on_loop
from tests.integrations.bridges.systems import IN, OUT, RedisStreams, needs
from tests.integrations.bridges.test_bridge import running

TRANSLATION = RecordTranslation("redis", "redis", TextTemplate("out"), has_fields=True)


@pytest.mark.parametrize(
    ("fields", "attributes"),
    [
        ({b"a": b"61.5", b"b": b"true", b"c": b"x"}, {"a": 61.5, "b": True, "c": "x"}),
        ({b"a": b"007", b"b": b"", b"c": b"\xff"}, {"a": "007", "b": "", "c": b"\xff"}),
        ({b"topic": b"x", b"redis.id": b"1", b"contrada.origin": b"y"}, {}),
    ],
)
def test_fields_become_attributes(fields: dict[bytes, bytes], attributes: dict[str, Any]) -> None:
    """A filter on a price would match nothing; or a field could forge the origin of an entry."""
    found = dict(TRANSLATION.notification_of(_record("in", "1-0", fields)))
    own = {"topic": "in", "contrada.origin": "redis", "redis.id": "1-0"}
    assert found == own | attributes


def test_attributes_become_fields() -> None:
    """One of several values would be lost, or a body."""
    of = Notification({"l": [1, 2], "s": "x", "n": 7}, body=b"\xff", content_type="i/p")
    fields = fields_of(TRANSLATION.record_of(of))
    assert fields == {
        "contrada.id": "",
        "contrada.publisher": "",
        "l": "[1,2]",
        "s": "x",
        "n": "7",
        "contrada.body": b"\xff",
        "contrada.content_type": "i/p",
    }
    with pytest.raises(InvalidValueError, match="name of a stream"):
        fields_of(PeerRecord(topic=""))


def test_a_dead_letter_keeps_its_fields() -> None:
    """Digits of a long number would be lost, and bytes be a text; nobody could send it again."""
    fields = {b"n": b"12345678901234567890.50", b"b": b"\xff", b"\xfe": b"1", b"contrada.x": b"y"}
    read = _record("in", "1-0", fields)
    dead = replace(read, topic="dead", headers=(*read.headers, ("contrada.reason", "no")))
    assert fields_of(dead) == fields | {b"contrada.reason": "no"} | {b"contrada.x": "y"}


def test_the_path_of_an_address_is_the_number_of_a_database() -> None:
    """A bridge would read streams of another database."""
    with pytest.raises(AddressError, match="of the database"):
        RedisPeer(PeerSettings(REDIS_ADDRESS.parse("redis://a/b"), "b"))


@pytest.mark.parametrize(("wait_s", "block_ms"), [(10.0, 2_000), (1.0, 500), (0.0001, 1)])
def test_a_quiet_stream_is_no_lost_connection(wait_s: float, block_ms: int) -> None:
    """With less than two seconds for an answer, each silence would end the connection."""
    waits = list[int]()

    async def xreadgroup(*_: object, block: int, **__: object) -> object:
        waits.append(block)
        return [[b"in", [(b"1-0", {b"a": b"1"})]]]

    limits = BridgeLimits(bridge_wait_s=wait_s)
    peer: Any = RedisPeer(
        PeerSettings(REDIS_ADDRESS.parse("redis://a"), "b", ["in"], limits=limits)
    )
    peer._client = SimpleNamespace(xreadgroup=xreadgroup)
    on_loop(peer.receive)()
    assert waits == [block_ms]


@pytest.mark.parametrize("kind", [needs(RedisStreams)])
@pytest.mark.slow
@on_loop
async def test_unacknowledged_entries_are_received_first(
    kind: type[RedisStreams], tmp_path: Path
) -> None:
    """The entries that a bridge had received when it crashed would be lost, or come last."""
    async with running(kind, tmp_path) as system:
        limits = BridgeLimits(bridge_batch_max=2)
        settings = PeerSettings(system.form.parse(system.address), "b", [IN], limits=limits)
        for n in range(6):
            await system.publish(b'{"n": %d}' % n, {})
        numbers: list[str] = []
        for _ in range(2):  # Each ends after two batches, and acknowledges the first.
            peer = system.peer(settings)
            await peer.open()
            batches = [await peer.receive() for _ in range(2)]
            await peer.acknowledge(batches[0])
            numbers += [each.token[1] for batch in batches for each in batch]
            await peer.aclose()
        assert len(numbers) == 8
        assert numbers[4:6] == numbers[2:4]
        assert len(set(numbers)) == 6


@pytest.mark.parametrize("kind", [needs(RedisStreams)])
@pytest.mark.slow
@on_loop
async def test_an_entry_that_was_deleted_is_left_out(
    kind: type[RedisStreams], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty notification would be published for it after a crash of the bridge."""
    async with running(kind, tmp_path) as system:
        assert isinstance(system, RedisStreams)
        limits = BridgeLimits(bridge_batch_max=2)
        settings = PeerSettings(system.form.parse(system.address), "b", [IN], limits=limits)
        for n in range(7):
            await system.publish(b'{"n": %d}' % n, {})
        first, again = system.peer(settings), system.peer(settings)
        await first.open()
        places = [each.token[1] for _ in range(3) for each in await first.receive()]
        await first.aclose()
        await system.client.xdel(IN, *places[:3], places[5])  # A batch, and half of two others.
        await again.open()
        found = [each.token[1] for _ in range(3) for each in await again.receive()]
        assert found[:2] == [places[3], places[4]]
        assert len(found) == 3
        pending = await system.client.xpending(IN, "b")
        assert pending["pending"] == 3
        assert "2 entries of 'in' were deleted before" in caplog.text.replace(repr(IN), "'in'")
        await again.aclose()


@pytest.mark.parametrize("kind", [needs(RedisStreams)])
@pytest.mark.slow
@on_loop
async def test_a_key_that_is_no_stream_does_not_block_others(
    kind: type[RedisStreams], tmp_path: Path
) -> None:
    """One wrong name would end the connection again and again."""
    async with running(kind, tmp_path) as system:
        peer = system.peer(PeerSettings(system.form.parse(system.address), "b"))
        await peer.open()
        assert isinstance(system, RedisStreams)
        await system.client.set("text", "x")
        answers = await peer.send([PeerRecord(topic=each, payload=b"x") for each in ("text", OUT)])
        assert "WRONGTYPE" in str(answers[0])
        assert answers[1] is None
        assert len(await system.seen()) == 1
        await peer.aclose()


@pytest.mark.parametrize("kind", [needs(RedisStreams)])
@pytest.mark.slow
@on_loop
async def test_a_server_that_takes_no_writes_for_now_loses_none(
    kind: type[RedisStreams], tmp_path: Path
) -> None:
    """A full disk, or a missing replica, would count as a refusal of each entry for itself."""
    async with running(kind, tmp_path) as system:
        peer = system.peer(PeerSettings(system.form.parse(system.address), "b"))
        await peer.open()
        assert isinstance(system, RedisStreams)
        await system.client.config_set("min-replicas-to-write", 1)
        with pytest.raises(PeerLostError, match="NOREPLICAS"):
            await peer.send([PeerRecord(topic=OUT, payload=b"x")])
        await system.client.config_set("min-replicas-to-write", 0)
        assert await peer.send([PeerRecord(topic=OUT, payload=b"x")]) == [None]
        await peer.aclose()
