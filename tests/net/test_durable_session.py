"""Durable requests of any client: errors are reported, and all is bounded."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import contrada as ct
from contrada.connections import connect
from contrada.delivery.delivery_messages import (
    Ack,
    CloseLog,
    ForReader,
    Grant,
    Nack,
    ReadLog,
    Records,
)
from contrada.delivery.durable_log import OUT_MAX
from contrada.delivery.store import READ_BYTES_MAX
from contrada.errors import LimitError
from contrada.model import FilterSet, to_msgpack
from contrada.net.broker import reader_queue
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.wire.durable_messages import Publications, PublisherHello, encode_durable
from contrada.net.wire.frames import Failure, Hello, LogReply, LogRequest, Reply, Request
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX
from tests.asynchronous import on_loop, until
from tests.homes import CERTIFIED, numbers, records
from tests.net.test_broker import RawClient

HELLO = Hello("client")
ALL = FilterSet("n any")


def notification(n: int, **envelope: Any) -> bytes:
    made = {"id": f"p.{n}", "publisher": "p", "sequence": n, "time_us": 1, "delivery": "reliable"}
    return to_msgpack(ct.Notification({"n": n}, envelope=ct.Envelope(**{**made, **envelope})))


def publications(*each: bytes) -> msgspec.Raw:
    return encode_durable(Publications(list(each)))


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        (msgspec.Raw(b"\x91\xa3bad"), "EncodingError", "cannot read a message"),
        (msgspec.Raw(b"\x01"), "EncodingError", "cannot read a message"),
        (encode_durable(["read", "s", "r", b"no filters"]), "EncodingError", "cannot read msgpack"),
        (
            encode_durable(["read", "s", "r", notification(1)]),
            "EncodingError",
            "expected a selection",
        ),
        (encode_durable(["read", "s", "r", 7]), "EncodingError", "expected bytes of a selection"),
        (encode_durable(ReadLog("s", "r", ALL)), "DeliveryError", "'s': this broker has no store"),
        (encode_durable(ReadLog("s", "r" * 256, ALL)), "EncodingError", "length <= 255"),
        (encode_durable(ReadLog("", "r", ALL, None, False)), "InvalidValueError", "1 to 255"),
        (encode_durable(ReadLog("s", "r")), "DeliveryError", "no durable subscription 's'"),
        (
            encode_durable(ReadLog("s", "r", FilterSet([f"n = {n}" for n in range(1_001)]))),
            "LimitError",
            "durable_filters_max = 1000",
        ),
        (encode_durable(Grant("s", "r", 1)), "DeliveryError", "'r' does not read 's'"),
        (encode_durable(Ack("in memory", "x", ((1, 2),))), "DeliveryError", "does not read"),
        (
            encode_durable(Ack("in memory", "here", ((0, 2),))),
            "InvalidValueError",
            "positions from 1",
        ),
        (
            encode_durable(Ack("in memory", "here", ((3, 2),))),
            "InvalidValueError",
            "positions from 1",
        ),
        (encode_durable(Nack("in memory", "here", (1,) * (OUT_MAX + 1))), "LimitError", "OUT_MAX"),
        (encode_durable(ReadLog("in memory", "here", ALL, None, False)), "DeliveryError", "reads"),
        (
            encode_durable(CloseLog("s", "", ends=True)),
            "DeliveryError",
            "no durable subscription 's'",
        ),
        (publications(), "InvalidValueError", "expected notifications to publish"),
        (publications(b"x"), "EncodingError", "cannot read msgpack"),
        (
            publications(notification(1), notification(2, publisher="q")),
            "InvalidValueError",
            "of one publisher",
        ),
        (
            publications(notification(1), notification(2, delivery="reliable fifo")),
            "InvalidValueError",
            "of one class",
        ),
        (publications(notification(1, delivery="best-effort")), "InvalidValueError", "one class"),
        (publications(notification(1, delivery="surely")), "InvalidValueError", "'surely'"),
        (publications(notification(1, delivery="certified")), "CannotPublishError", "no store"),
    ],
)
@on_loop
async def test_an_error_is_reported_and_the_connection_stays(
    message: msgspec.Raw, code: str, words: str
) -> None:
    """A client would be cut off, or wait for ever, or harm others."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, HELLO)
        assert isinstance(await client.hears(), Hello)
        begin = encode_durable(ReadLog("in memory", "here", ALL, None, False))
        client.say(LogRequest(1, begin), LogRequest(2, message), LogRequest(3, _good()))
        answers: dict[int, LogReply] = {}
        while len(answers) < 3:
            found = await client.hears()
            assert isinstance(found, LogReply)
            answers[found.number] = found
        assert (answers[1].code, answers[3].code) == ("", "")
        assert answers[2].code == code
        assert words in answers[2].reason
        await client.leave()


def _good() -> msgspec.Raw:
    return publications(notification(9))


@on_loop
async def test_too_many_requests_ahead_end_the_connection() -> None:
    """A client that does not wait for answers would fill the memory."""
    async with Broker(port=0, limits=BrokerLimits(durable_requests_max=3)) as broker:
        client = await RawClient.to(broker, HELLO)
        arrive = encode_durable(PublisherHello("p", "i"))
        client.say(*(LogRequest(n + 1, arrive) for n in range(5)))
        heard = [await client.hears() for _ in range(2)]
        assert isinstance(heard[-1], Failure)
        assert "durable_requests_max = 3" in heard[-1].reason
        await client.leave()


@on_loop
async def test_accepted_publications_are_never_refused() -> None:
    """A publisher faster than slow subscribers would get a refusal for accepted notifications."""
    # Nothing is matched on receipt, so accepted notifications wait.
    limits = BrokerLimits(immediate_notifications_max=-1, pending_bytes_max=3_000)
    async with Broker(port=0, limits=limits) as broker:
        slow = await RawClient.to(broker, HELLO)
        message = msgspec.Raw(msgspec.msgpack.encode(["subscribe", "1", to_msgpack(ALL)]))
        slow.say(Request(1, message))
        assert [type(await slow.hears()) for _ in range(2)] == [Hello, Reply]
        client = await RawClient.to(broker, HELLO)
        many = [LogRequest(n, publications(notification(n)), wait_ms=60_000) for n in range(1, 12)]
        client.say(*many)
        heard = await client.hears()
        while not isinstance(heard, Failure):
            assert not (isinstance(heard, LogReply) and heard.code)
            heard = await client.hears()
        assert "pending_bytes_max = 3000" in heard.reason
        await client.leave()
        await slow.leave()


@on_loop
async def test_publications_that_arrive_together_count_together() -> None:
    """A client could have the broker hold many times its bound, by one write."""
    async with Broker(port=0, limits=BrokerLimits(pending_bytes_max=3_000)) as broker:
        client = await RawClient.to(broker, HELLO)
        assert isinstance(await client.hears(), Hello)
        client.say(*(LogRequest(n, publications(notification(n))) for n in range(1, 60)))
        heard = await client.hears()
        assert isinstance(heard, Failure)
        assert heard.code == "too many requests"  # The ingress queue would refuse accepted ones.
        assert "pending_bytes_max = 3000" in heard.reason
        await client.leave()


@on_loop
async def test_publications_that_arrive_together_are_one_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would cost its own step and sync; or a faulty one would refuse those beside it."""
    async with (
        Broker(port=0, store=tmp_path / "s.db") as broker,
        connect(broker.address) as service,
    ):
        subscription = await service.subscribe("n any", durable="s")
        client = await RawClient.to(broker, HELLO)
        assert isinstance(await client.hears(), Hello)
        server, steps = broker.logs.host.server, list[int]()
        publish_all = server.publish_all

        def counted(requests: Any, now_us: int) -> Any:
            steps.append(len(requests))
            return publish_all(requests, now_us)

        monkeypatch.setattr(server, "publish_all", counted)
        many = [publications(notification(n, delivery=CERTIFIED)) for n in range(1, 9)]
        many[3] = publications(b"x")
        client.say(*(LogRequest(n, each) for n, each in enumerate(many, start=1)))
        heard = [await client.hears() for _ in many]
        codes = {each.number: each.code for each in heard if isinstance(each, LogReply)}
        assert codes == {n: "EncodingError" if n == 4 else "" for n in range(1, 9)}
        assert steps == [3, 4]
        assert await numbers(subscription, 7) == [1, 2, 3, 5, 6, 7, 8]
        await client.leave()
        await subscription.aclose()


@on_loop
async def test_a_neighbour_that_gives_no_records_does_no_harm() -> None:
    """It would stop all durable traffic of its broker."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, HELLO)
        client.say(LogRequest(1, encode_durable(ReadLog("s", "r", ALL, None, False))))
        assert [type(await client.hears()) for _ in range(2)] == [Hello, LogReply]
        (reader,) = broker.logs.host.readers.values()
        reader.receive(Records("s", "r", ()))
        await client.leave()


@on_loop
async def test_a_reader_that_reads_nothing_is_sent_little(tmp_path: Path) -> None:
    """One that stops reading would fill the memory with its log."""
    size, count = 50_000, 300
    async with (
        Broker(port=0, store=tmp_path / "s.db") as broker,
        connect(broker.address) as service,
    ):
        await (await service.subscribe("n any", durable="s")).aclose()
        big = [ct.Notification({"n": n}, body=bytes(size)) for n in range(count)]
        await service.publish_batch(big, delivery=CERTIFIED)
        client = await RawClient.to(broker, HELLO)
        grant = encode_durable(Grant("s", "r", OUT_MAX))
        client.say(LogRequest(1, encode_durable(ReadLog("s", "r"))), LogRequest(0, grant))
        server = broker.logs.host.server
        await until(lambda: server.statistics().logs["s"].handed > 0)
        await service.publish({"n": -1}, delivery=CERTIFIED)
        held = max(each.held_bytes for each in broker._connections)
        assert held <= 2 * reader_queue.AHEAD_BYTES
        assert server.statistics().logs["s"].handed <= 5 * reader_queue.AHEAD_BYTES / size
        await client.leave()
        async with service.subscribe(durable="s") as events:
            assert await numbers(events, count + 1) == [*range(count), -1]
        assert broker.statistics().held_bytes == 0


@on_loop
async def test_large_records_behind_small_ones_stay_in_their_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many would wait in the memory of a broker as it asked for by the sizes of the small."""
    size, count, most = 600_000, 20, 0
    receive = reader_queue.ReaderQueue.receive

    def noted_receive(queue: reader_queue.ReaderQueue, message: ForReader) -> None:
        nonlocal most
        receive(queue, message)
        most = max(most, queue._connection.budget.held_bytes)

    monkeypatch.setattr(reader_queue.ReaderQueue, "receive", noted_receive)
    async with (
        Broker(port=0, store=tmp_path / "s.db") as broker,
        connect(broker.address) as service,
    ):
        await (await service.subscribe("n any", durable="s")).aclose()
        await service.publish_batch([{"n": n} for n in range(600)], delivery=CERTIFIED)
        for n in range(count):
            big = ct.Notification({"n": n}, body=bytes(size))
            await service.publish(big, delivery=CERTIFIED)
        async with service.subscribe(durable="s", prefetch=OUT_MAX) as events:
            assert await numbers(events, 600) == [*range(600)]
            for n in range(count):
                assert (await events.next(10)).item["n"] == n
        assert size < most <= READ_BYTES_MAX + 2 * size


@on_loop
async def test_costly_publications_are_published_singly_or_refused() -> None:
    """One subscription would stop a broker for as long as it likes."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.subscribe(r"t matches 'a[ab]{6}c' and n any", reliable=True) as events,
    ):
        items = [{"n": n, "t": "ab" * 2_000 + "aaaaaaac"} for n in range(4)]
        broker.limits = BrokerLimits(batch_work_max=1)
        await service.publish_batch(items, delivery="reliable")
        assert await numbers(events, 4) == [0, 1, 2, 3]
        broker.limits = BrokerLimits(batch_work_max=1, notification_work_max=1)
        with pytest.raises(LimitError, match="NOTIFICATION_WORK_MAX") as found:
            await service.publish_batch(items, delivery="reliable")
        assert found.value.published == 0
        await service.publish({"m": 1}, delivery="reliable")


@on_loop
async def test_a_record_too_large_for_a_frame_is_reported(tmp_path: Path) -> None:
    """A reader would be cut off by it, again and again."""
    path = tmp_path / "s.db"
    async with ct.connect(store=path) as service:
        await service.subscribe("n any", durable="s")
        large = ct.Notification({"n": 1}, body=bytes(CONTENT_BYTES_MAX))
        await service.publish(large, delivery=CERTIFIED)
        await service.publish({"n": 2}, delivery=CERTIFIED)
    async with (
        Broker(port=0, store=path) as broker,
        connect(broker.address) as client,
        client.subscribe(durable="s") as events,
    ):
        (found,) = await records(events, 1)
        assert found.item["n"] == 2
        assert events.statistics().dropped == {"damaged": 1}
        with pytest.raises(LimitError, match="CONTENT_BYTES_MAX"):
            await client.publish(large, delivery=CERTIFIED)
