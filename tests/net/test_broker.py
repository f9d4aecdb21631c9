"""A broker with peers that break the protocol, and clients with a stopped broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from unittest import mock

import msgspec
import pytest

from contrada.connections import connect
from contrada.errors import ConnectionFailedError, LimitError, ServiceError
from contrada.matching.packed import BUNDLE_MIN
from contrada.model import Envelope, Filter, Notification
from contrada.model.codec import notification_from_msgpack, to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.client_session import ClientSession
from contrada.net.broker.ingress_queue import IngressQueue
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.address import parse_address
from contrada.net.wire.frames import (
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    HELLO_BYTES_MAX,
    Credit,
    Delivery,
    Failure,
    Frame,
    FrameReader,
    Hello,
    Reply,
    Request,
    encode,
)
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX
from contrada.service.clock import wall_clock_us
from contrada.service.dispatcher import EXPIRED_ON_ARRIVAL
from contrada.service.subscription_queue import ENTRY_BYTES, EXPIRED
from tests.asynchronous import on_loop, until
from tests.net.requests import delivery, frames_in, publish, subscribe, unsubscribe
from tests.operators import register_failing


class RawClient:
    """A connection that sends anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._got: list[Frame] = []

    @classmethod
    async def to(cls, broker: Broker, *frames: Frame) -> "RawClient":
        address = parse_address(broker.address)
        client = cls(*await asyncio.open_connection(address.host, address.port))
        client.say(*frames)
        return client

    def say(self, *frames: Frame) -> None:
        self.write(b"".join(map(encode, frames)))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def hears(self) -> Frame:
        while not self._got:
            data = await self._reader.read(65536)
            assert data, "the broker has closed"
            self._frames.feed(data)
            self._got = frames_in(self._frames)
        return self._got.pop(0)

    async def is_closed(self) -> bool:
        ended = await self._reader.read(65536) == b""
        await self.leave()
        return ended

    async def leave(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not contrada"),
        (b"ct\x63" + encode(Hello("client"))[3:], "version"),
        (b"ct\x02\x01" + (FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "oversized"),
        (b"ct\x02\x01\x00\x00\x00\x02\xc1\xc1", "malformed"),
        (encode(publish(1, 0, [])), "no hello"),
        (encode(Hello("client")) + encode(delivery(1, 0, [])), "unexpected"),
    ],
)
@on_loop
async def test_a_misbehaving_connection_is_closed_with_a_reason_and_counted(
    data: bytes, code: str
) -> None:
    """One bad peer would disturb the others, or not learn the fault."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.subscribe("a = 1") as events,
    ):
        client = await RawClient.to(broker)
        client.write(data)
        heard = await client.hears()
        while isinstance(heard, Hello):
            heard = await client.hears()
        assert isinstance(heard, Failure)
        assert heard.code == code
        assert await client.is_closed()
        assert broker.statistics().refused == {code: 1}
        await service.publish({"a": 1})
        assert (await anext(events))["a"] == 1


@on_loop
async def test_bytes_are_forwarded_unchanged() -> None:
    """Fields that a broker does not know would be lost."""
    data = to_msgpack(Notification({"a": [1, 2.5, "x"]}, body=b"b", content_type="t"))
    async with Broker(port=0) as broker:
        client = await RawClient.to(
            broker,
            Hello("client"),
            subscribe(2, 9, to_msgpack(Filter("a = 1")), 10_000),
            publish(3, 0, [data]),
        )
        heard = [await client.hears() for _ in range(4)]
        assert isinstance(heard[0], Hello)
        assert heard[1] == Reply(2)
        assert delivery(9, 0, [data]) in heard
        assert Reply(3) in heard
        await client.leave()


@on_loop
async def test_no_more_is_delivered_than_was_granted() -> None:
    """A client that reads slowly would be sent more than it can hold."""
    data = to_msgpack(Notification({"a": 1}, body=bytes(1000)))
    async with Broker(port=0) as broker:
        client = await RawClient.to(
            broker,
            Hello("client"),
            subscribe(2, 9, to_msgpack(Filter("a = 1")), 1),
            publish(3, 0, [data] * 10),
        )
        heard = [await client.hears() for _ in range(4)]
        assert [each for each in heard if isinstance(each, Delivery)] == [delivery(9, 0, [data])]
        client.say(unsubscribe(4, 9))
        assert await client.hears() == Reply(4)
        assert broker.statistics().dropped == {"unsubscribed": 9}
        await client.leave()


SUBSCRIBE = subscribe(2, 9, to_msgpack(Filter("a = 1")), 100)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (publish(5, 0, [b"\xc1"]), "EncodingError"),
        (publish(5, 0, [to_msgpack(Filter("a = 1"))]), "EncodingError"),
        (publish(5, 0, [bytes(CONTENT_BYTES_MAX + 1)]), "LimitError"),
        (subscribe(5, 10, b"\xc1", 100), "EncodingError"),
        (subscribe(5, 10, to_msgpack(Notification({"a": 1})), 100), "unsupported"),
        (subscribe(5, 9, b"\xc1", 100), "EncodingError"),
        (subscribe(5, 9, to_msgpack(Filter("a > 1 and a < 1")), 0), "UnsatisfiableFilterError"),
        (unsubscribe(5, 77), "unknown"),
    ],
)
@on_loop
async def test_a_bad_request_is_refused_and_the_connection_stays(frame: Frame, code: str) -> None:
    """One bad request would cost a client all its subscriptions."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"), SUBSCRIBE, frame)
        heard = [await client.hears() for _ in range(3)]
        refused = heard[2]
        assert isinstance(refused, Reply)
        assert (refused.number, refused.code) == (5, code)
        assert broker.statistics().refused == {code: 1}
        assert broker.statistics().published == 0
        client.say(publish(6, 0, [to_msgpack(Notification({"a": 1}))]))
        assert {type(each) for each in [await client.hears(), await client.hears()]} == {
            Reply,
            Delivery,
        }
        await client.leave()


@on_loop
async def test_a_client_may_not_speak_for_a_server() -> None:
    """A client could forge messages from links, or from another server."""
    data = to_msgpack(Notification({"a": 1}))
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"))
        assert isinstance(await client.hears(), Hello)
        for number, (hops, source, version) in enumerate([(300, "", 1), (0, "x", 1), (0, "", 9)]):
            fields = ["publish", [data], hops, source, version]
            client.say(Request(number, msgspec.Raw(msgspec.msgpack.encode(fields))))
            reply = await client.hears()
            assert isinstance(reply, Reply)
            assert (reply.number, reply.code) == (number, "ServiceError")
        assert broker.statistics().matched == 0
        await client.leave()


@on_loop
async def test_a_request_publishes_at_best_effort_only() -> None:
    """A publisher would rely on a guarantee without effect."""
    stamp = Envelope("1", "p", 1, 0)
    sure = msgspec.structs.replace(stamp, delivery="reliable")
    items = [to_msgpack(Notification({"a": 1}, envelope=each)) for each in (stamp, sure)]
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"))
        assert isinstance(await client.hears(), Hello)
        for number, sent in enumerate((items, items * BUNDLE_MIN)):
            client.say(publish(number, 0, sent))
            reply = await client.hears()
            assert isinstance(reply, Reply)
            assert (reply.number, reply.code) == (number, "unsupported")
            assert "'reliable'" in reply.reason
        assert broker.statistics().matched == 0
        client.say(publish(9, 0, items[:1]))
        assert await client.hears() == Reply(9)
        await client.leave()


@on_loop
async def test_a_batch_with_a_bad_notification_is_refused_whole() -> None:
    """A publisher would not know which part of its batch was published."""
    good = to_msgpack(Notification({"a": 1}))
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"), publish(3, 0, [good, b"\xc1", good]))
        await client.hears()
        refused = await client.hears()
        assert isinstance(refused, Reply)
        assert refused.code == "EncodingError"
        assert broker.statistics().published == 0
        await client.leave()


@on_loop
async def test_a_lost_client_leaves_nothing_behind() -> None:
    """Subscriptions of lost clients would fill the broker."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"), SUBSCRIBE)
        await until(lambda: broker.statistics().subscriptions == 1)
        await client.leave()
        await until(lambda: broker.statistics().connections == 0)
        assert broker.statistics().subscriptions == 0


@on_loop
async def test_subscriptions_of_a_client_are_bounded() -> None:
    """One client could fill the broker."""
    async with (
        Broker(port=0, limits=BrokerLimits(subscriptions_per_client_max=1)) as broker,
        connect(broker.address) as service,
        service.subscribe("a = 1"),
    ):
        with pytest.raises(ServiceError, match="subscriptions_per_client_max"):
            await service.subscribe("a = 1").open()


def a_kilobyte() -> bytes:
    """Returns a notification that matches the filters here."""
    return to_msgpack(Notification({"a": 1}, body=bytes(1000)))


@on_loop
async def test_notifications_queued_for_a_client_are_bounded_over_its_subscriptions() -> None:
    """One client with many subscriptions could fill the broker."""
    data = a_kilobyte()
    a_few = 5 * (ENTRY_BYTES + len(data))
    async with Broker(port=0, limits=BrokerLimits(client_bytes_max=a_few)) as broker:
        asked = [subscribe(2 * n, n, to_msgpack(Filter("a = 1")), 0) for n in range(1, 4)]
        client = await RawClient.to(broker, Hello("client"), *asked, publish(9, 0, [data] * 2))
        heard = [await client.hears() for _ in range(5)]
        assert heard[-1] == Reply(9, 1)
        assert broker.statistics().held_bytes == a_few
        assert broker.statistics().dropped == {"queue full": 1}
        # A publisher that waits for room continues when the client reads; but nobody waits
        # again for the queue that was given up.
        client.say(publish(11, 60_000, [data]))
        await until(lambda: broker.statistics().published == 3)
        client.say(*(Credit(str(n), 10 * a_few) for n in range(1, 4)))
        while not isinstance(answer := await client.hears(), Reply):
            pass
        assert answer == Reply(11)
        assert broker.statistics().dropped == {"queue full": 2}, "its oldest made way"
        await client.leave()


@on_loop
async def test_a_broker_that_holds_too_much_ends_the_heaviest_client() -> None:
    """A few clients that do not read could end the broker, or starve all others."""
    data = a_kilobyte()
    async with (
        Broker(port=0, limits=BrokerLimits(broker_bytes_max=20 * len(data))) as broker,
        connect(broker.address) as service,
        service.subscribe("a = 1") as events,
    ):
        heavy = await RawClient.to(
            broker, Hello("client"), subscribe(2, 9, to_msgpack(Filter("a = 1")), 0)
        )
        heard = [await heavy.hears() for _ in range(2)]
        for _ in range(40):
            await service.publish({"a": 1}, body=bytes(1000))
            assert (await anext(events))["a"] == 1
        heard = [await heavy.hears()]
        assert isinstance(heard[0], Failure)
        assert heard[0].code == "overloaded"
        assert await heavy.is_closed()
        assert broker.statistics().refused == {"overloaded": 1}
        assert broker.statistics().held_bytes == 0
        assert broker.statistics().dropped["connection ended"] > 0


def unfinished(size: int) -> bytes:
    """Returns the first part of a large frame."""
    return encode(publish(3, 0, [bytes(4 * size)]))[:size]


@on_loop
async def test_unfinished_frames_are_held_too() -> None:
    """Clients that finish nothing could fill the broker's memory unseen."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"), SUBSCRIBE)
        client.write(data := unfinished(10**6))
        await until(lambda: broker.statistics().held_bytes == len(data))
        client.write(encode(publish(3, 0, [bytes(4 * 10**6)]))[len(data) :])
        await until(lambda: broker.statistics().held_bytes == 0)
        endings: list[Callable[[ServerConnection], None]] = [
            lambda its_end: its_end.close("done"),
            lambda its_end: its_end.evict(),
            lambda its_end: its_end.abort(),
        ]
        for end in endings:
            other = await RawClient.to(broker, Hello("client"))
            other.write(data)
            await until(lambda: broker.statistics().held_bytes == len(data))
            end(next(each for each in broker._connections if each.held_bytes))
            await until(lambda: broker.statistics().held_bytes == 0)
            await other.leave()
        await client.leave()


@on_loop
async def test_the_largest_unfinished_sender_is_ended_beyond_the_limit() -> None:
    """A few clients that finish nothing could end the broker."""
    async with (
        Broker(port=0, limits=BrokerLimits(broker_bytes_max=10**6)) as broker,
        connect(broker.address) as service,
        service.subscribe("a = 1") as events,
    ):
        clients = [await RawClient.to(broker, Hello("client")) for _ in range(3)]
        for client, size in zip(clients, (200_000, 300_000, 500_001), strict=True):
            assert isinstance(await client.hears(), Hello)
            client.write(unfinished(size))
        failure = await clients[2].hears()
        assert isinstance(failure, Failure)
        assert failure.code == "overloaded"
        assert broker.statistics().held_bytes == 500_000
        await service.publish({"a": 1})
        assert (await anext(events))["a"] == 1
        for client in clients:
            await client.leave()


@on_loop
async def test_strangers_may_send_little() -> None:
    """Sixteen megabytes of each stranger would be held before its identification."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker)
        client.write(unfinished(HELLO_BYTES_MAX)[:HEADER_BYTES])
        failure = await client.hears()
        assert isinstance(failure, Failure)
        assert failure.code == "oversized"
        assert "HELLO_BYTES_MAX" in failure.reason
        assert await client.is_closed()


@on_loop
async def test_publications_ahead_of_a_client_are_bounded_in_bytes() -> None:
    """Sixteen large frames of each client would wait in the broker."""
    async with Broker(port=0, limits=BrokerLimits(pending_bytes_max=3000)) as broker:
        client = await RawClient.to(broker, Hello("client"), publish(3, 0, [a_kilobyte()] * 2))
        assert isinstance(await client.hears(), Hello)
        failure = await client.hears()
        assert isinstance(failure, Failure)
        assert "pending_bytes_max" in failure.reason
        await client.leave()


@pytest.mark.parametrize("fields", [[], ["s" * 200_000], ["", 1, "later" * 40_000]])
@on_loop
async def test_queued_publications_do_not_keep_their_frame(fields: list[object]) -> None:
    """Each client could make a broker hold hundreds of megabytes that nobody counts."""
    data = to_msgpack(Notification({"a": 1}))
    asked = msgspec.msgpack.encode(["publish", [data], 0, *fields])
    async with Broker(port=0) as broker:
        client = await RawClient.to(broker, Hello("client"), SUBSCRIBE)
        await until(lambda: broker.statistics().subscriptions == 1)
        (its_end,) = broker._connections
        talk = its_end._handler
        assert isinstance(talk, ClientSession)
        feed = next(iter(talk._queues.values()))
        feed._bounds = feed._bounds._replace(notifications=1)  # Later ones wait for room.
        client.say(*[Request(n, msgspec.Raw(asked), 0, 60_000) for n in range(6)])
        if fields and fields[0]:
            replies = [await client.hears() for _ in range(8)][2:]
            assert {each.code for each in replies} == {"EncodingError"}  # type: ignore[attr-defined]
        else:
            await until(lambda: len(talk._ingress._waiting) >= 3)
            await until(lambda: not its_end._turn_due)
            assert broker.statistics().held_bytes <= 6 * (ENTRY_BYTES + len(data))
            parts = [part for each in talk._ingress._waiting for part in each]
            assert not any(isinstance(part, Request) for part in parts), "it refers to its frame"
        await client.leave()


@on_loop
async def test_stopping_ends_publications_under_way() -> None:
    """A broker would work on after its end."""
    many = [to_msgpack(Notification({"a": 1}))] * 10_000
    async with Broker(port=0) as broker:
        asked = [publish(number, 0, many) for number in range(BrokerLimits().publishes_pending_max)]
        client = await RawClient.to(broker, Hello("client"), *asked)
        await until(lambda: broker.statistics().published > 0)
        await client.leave()
        await until(lambda: broker.statistics().connections == 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert 0 < broker.statistics().published < len(asked) * len(many)
    assert broker.statistics().held_bytes == 0


@on_loop
async def test_a_connection_that_was_ended_is_cut_when_nobody_reads_it() -> None:
    """Clients that never read would keep their connections for ever."""
    async with Broker(port=0) as broker:
        client = await RawClient.to(
            broker, Hello("client"), subscribe(2, 9, to_msgpack(Filter("a = 1")), 2**40)
        )
        await until(lambda: broker.statistics().subscriptions == 1)
        (its_end,) = broker._connections
        async with connect(broker.address) as service:
            for _ in range(5):  # More than fits into the buffers of its connection.
                await service.publish({"a": 1}, body=bytes(4_000_000))
        await until(lambda: broker.statistics().connections == 1)
        its_end.evict()
        its_end.tick()
        await until(lambda: broker.statistics().connections == 0)
        await client.leave()


@on_loop
async def test_a_fault_of_the_broker_is_logged_there(caplog: pytest.LogCaptureFixture) -> None:
    """Only a stranger would learn of it, and more than concerns him."""
    async with Broker(port=0) as broker:
        with mock.patch.object(broker.dispatcher, "take", side_effect=ZeroDivisionError("secret")):
            client = await RawClient.to(broker, Hello("client"), publish(3, 0, [a_kilobyte()]))
            assert isinstance(await client.hears(), Hello)
            failure = await client.hears()
            await client.leave()
        assert isinstance(failure, Failure)
        assert "ZeroDivisionError" in failure.reason
        assert "secret" not in failure.reason
        assert broker.statistics().refused == {"internal": 1}
        assert broker.statistics().held_bytes == 0
    (record,) = caplog.records
    assert record.name == "contrada.net.broker.ingress_queue"
    assert "secret" in caplog.text


@on_loop
async def test_failing_operators_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could see why a subscription gets nothing."""
    register_failing(monkeypatch)
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.subscribe("a fails 'x'"),
    ):
        await service.publish({"a": "x"})
        assert broker.statistics().operator_failures["fails"] >= 1
        assert service.statistics().operator_failures["fails"] >= 1, "both are in this process"


@on_loop
async def test_connections_are_bounded() -> None:
    """Clients could fill the broker."""
    async with (
        Broker(port=0, limits=BrokerLimits(connections_max=1)) as broker,
        connect(broker.address),
    ):
        with pytest.raises(ConnectionFailedError, match="as many connections as it may"):
            await connect(broker.address).open()
        assert broker.statistics().refused == {"full": 1}


@on_loop
async def test_a_client_reports_the_loss_of_its_broker_everywhere() -> None:
    """A client would wait for ever for a stopped broker."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address, reconnect=False) as service,
        service.subscribe("a = 1") as events,
    ):
        await service.publish({"a": 1})
        await until(lambda: events.statistics().queued == 1)
        await broker.stop()
        assert (await anext(events))["a"] == 1, "what is held is delivered first"
        with pytest.raises(ConnectionFailedError, match="the broker stops"):
            await anext(events)
        with pytest.raises(ConnectionFailedError):
            await service.publish({"a": 1})
        with pytest.raises(ConnectionFailedError):
            await service.subscribe("a = 1").open()


async def _answering(hello: bytes, answer: bytes = b"") -> tuple[asyncio.Server, str]:
    """A server that is no broker: it answers a hello and a subscription with bytes of its own."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hello)
        frames = FrameReader()
        while data := await reader.read(65536):
            frames.feed(data)
            if any(isinstance(frame, Request) for frame in frames_in(frames)):
                writer.write(answer)
            elif not answer:
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"contrada://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", encode(Hello("client"))]
)
@on_loop
async def test_a_server_of_another_protocol_is_detected(data: bytes) -> None:
    """A client would wait, or fail obscurely, at a server of another kind."""
    server, address = await _answering(data)
    async with server:
        with pytest.raises(ConnectionFailedError, match="broker"):
            await connect(address).open()


@on_loop
async def test_a_broker_that_ignores_the_credit_is_left() -> None:
    """A faulty broker could fill the memory of its clients."""
    one = to_msgpack(Notification({"a": 1}))
    flood = delivery(1, 0, [one] * (ClientLimits().credit_bytes // ENTRY_BYTES + 2))
    server, address = await _answering(encode(Hello("broker")), encode(Reply(2)) + encode(flood))
    async with server, connect(address, reconnect=False) as service:
        events = service.subscribe("a = 1")
        await events.open()
        with pytest.raises(ConnectionFailedError, match="more than it was granted"):
            assert not [event async for event in events if event["a"] != 1]
        assert events.statistics().delivered == ClientLimits().credit_bytes // ENTRY_BYTES + 1


@on_loop
async def test_unreadable_notifications_are_counted() -> None:
    """A faulty broker would end an iteration, or its notifications be lost in silence."""
    mixed = delivery(1, 0, [b"", to_msgpack(Notification({"a": 1})), b"\xc1"])
    server, address = await _answering(encode(Hello("broker")), encode(Reply(2)) + encode(mixed))
    async with server, connect(address) as service:
        events = service.subscribe("a = 1")
        await events.open()
        assert (await anext(events))["a"] == 1
        assert events.statistics().dropped == {"unreadable": 2}


@on_loop
async def test_a_taken_port_is_one_clear_error() -> None:
    """Starting a second broker would end in a traceback."""
    async with Broker(port=0) as broker:
        with pytest.raises(ConnectionFailedError, match="cannot listen: another program listens"):
            await Broker(port=parse_address(broker.address).port).start()
    with pytest.raises(ConnectionFailedError, match=r"cannot listen: .*port must be"):
        await Broker(port=99_999).start()


@on_loop
async def test_too_large_a_notification_is_refused_by_the_client() -> None:
    """A frame would be sent that ends the connection."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        with pytest.raises(LimitError, match="CONTENT_BYTES_MAX"):
            await service.publish({"a": 1}, body=bytes(CONTENT_BYTES_MAX))
        await service.publish({"a": 1})


@on_loop
async def test_the_largest_notifications_go_through() -> None:
    """Deliveries within the limits would end the connection as beyond the credit."""
    large = bytes(CONTENT_BYTES_MAX - 1000)
    bodies = [bytes(1000), bytes(ClientLimits().credit_bytes - 5000), large, large, b""]
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.subscribe("a = 1") as events,
    ):
        for body in bodies:
            await service.publish({"a": 1}, body=body)
        await until(lambda: events.statistics().queued == 3)
        got = [len((await anext(events)).body) for _ in bodies]
        assert got == [len(body) for body in bodies]
        assert events.statistics().dropped == {}


@on_loop
async def test_a_subscription_that_ends_while_it_opens_leaves_nothing_behind() -> None:
    """The broker would fill a queue without a reader, and delay its publishers."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        events = service.subscribe("a = 1")
        opening = asyncio.create_task(events.open())
        await asyncio.sleep(0)
        await events.unsubscribe()
        await opening
        assert broker.statistics().subscriptions == service.statistics().subscriptions == 0


@on_loop
async def test_a_subscription_that_is_opened_twice_at_once_is_in_force_once() -> None:
    """Each notification would be doubled, and one of the two subscriptions never end."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        events = service.subscribe("a = 1")
        await asyncio.gather(events.open(), events.open())
        assert broker.statistics().subscriptions == 1
        await events.unsubscribe()
        assert broker.statistics().subscriptions == 0


@on_loop
async def test_notifications_in_flight_at_unsubscription_are_counted() -> None:
    """Notifications would be lost in silence between a broker and its client."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        connect(broker.address) as publisher,
    ):
        events = service.subscribe("n exists")
        await events.open()
        publishing = asyncio.create_task(publisher.publish_batch({"n": n} for n in range(3000)))
        await until(lambda: events.statistics().queued > 0)
        await events.unsubscribe()
        await publishing
        counts = broker.statistics()
        dropped = events.statistics().dropped["unsubscribed"]
        assert dropped + counts.dropped.get("unsubscribed", 0) == counts.matched
        assert [n async for n in events] == []


@on_loop
async def test_a_batch_that_is_cancelled_ends_at_once() -> None:
    """A time limit on publishing would not hold: a dead reader could keep it a minute longer."""

    async def stuck(_: ServerConnection) -> None:
        await asyncio.Event().wait()

    async def items() -> AsyncIterator[dict[str, int]]:
        yield {"a": 1}
        taken.set()
        await asyncio.Event().wait()

    taken = asyncio.Event()
    limits = BrokerLimits(immediate_notifications_max=-1, handover_wait_s=0.01)
    with mock.patch.object(IngressQueue, "_work", stuck):
        async with Broker(port=0, limits=limits) as broker, connect(broker.address) as service:
            publishing = asyncio.create_task(service.publish_batch(items()))
            await taken.wait()
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
            assert service.statistics().published == 0


@on_loop
async def test_connecting_again_at_once_is_not_spoilt_by_the_first_attempt() -> None:
    """A client that tries again would be connected, and yet fail at all that it does."""
    async with Broker(port=0) as broker:
        protocols: list[Callable[[], asyncio.Protocol]] = [
            asyncio.Protocol,
            lambda: ServerConnection(broker),
        ]
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: protocols.pop(0)(), "127.0.0.1", 0)
        address = f"contrada://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        service = TcpService(address, limits=ClientLimits(connect_wait_s=0.05))
        with pytest.raises(ConnectionFailedError, match="no answer"):
            await service.open()
        async with service:
            await service.publish({"a": 1})
        assert broker.statistics().published == 1
        server.close()


@on_loop
async def test_a_cancelled_subscription_leaves_nothing() -> None:
    """The broker would fill a queue without a reader."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        opening = asyncio.create_task(service.subscribe("a = 1").open())
        await asyncio.sleep(0)
        opening.cancel()
        await service.publish({"a": 1})  # Its answer follows all earlier frames.
        assert broker.statistics().subscriptions == 0


@on_loop
async def test_a_request_under_way_fails_when_the_connection_breaks() -> None:
    """A subscriber in this moment would wait for ever."""

    def break_off(session: ClientSession, _: object) -> bool:
        session.connection.abort()
        return True

    with mock.patch.object(ClientSession, "_subscribe_each", break_off):
        async with Broker(port=0) as broker, connect(broker.address) as service:
            with pytest.raises(ConnectionFailedError):
                await service.subscribe("a = 1").open()


@on_loop
async def test_publications_ahead_of_a_client_are_bounded_in_frames() -> None:
    """A client that does not wait for answers would fill the memory with empty frames."""

    async def stuck(_: ServerConnection) -> None:
        await asyncio.Event().wait()

    limits = BrokerLimits(immediate_notifications_max=-1)
    with mock.patch.object(IngressQueue, "_work", stuck):
        async with Broker(port=0, limits=limits) as broker:
            frames = (publish(n, 0, []) for n in range(limits.publishes_pending_max + 1))
            raw = await RawClient.to(broker, Hello("client"), *frames)
            assert isinstance(await raw.hears(), Hello)
            heard = await raw.hears()
            assert isinstance(heard, Failure)
            assert heard.code == "too many publishes"
            await raw.leave()


@on_loop
async def test_the_queue_of_a_broker_respects_priority_and_lifetime() -> None:
    """A returning reader would get expired notifications, or not know its losses."""
    async with Broker(port=0) as broker, connect(broker.address) as service:
        client = await RawClient.to(broker)
        client.say(Hello("client"), subscribe(2, 1, to_msgpack(Filter("a >= 0")), 0))
        assert isinstance(await client.hears(), Hello)
        assert await client.hears() == Reply(2)
        short = await service.publish({"a": 0}, ttl_s=1, priority=9)
        for number, priority in ((1, 0), (2, 7)):
            await service.publish({"a": number}, priority=priority)
        await service.publish(Notification({"a": 3}, envelope=Envelope(time_us=5, ttl_us=5)))
        await until(lambda: wall_clock_us() > (short.expires_us or 0))
        client.say(Credit("1", 10**6))
        frame = await client.hears()
        assert isinstance(frame, Delivery)
        assert [notification_from_msgpack(each)["a"] for each in frame.notifications] == [2, 1]
        assert (frame.dropped, frame.expired) == (0, 1)
        assert broker.statistics().dropped == {EXPIRED: 1, EXPIRED_ON_ARRIVAL: 1}
        client.say(unsubscribe(4, 1))
        assert await client.hears() == Reply(4, expired=1)
        await client.leave()


@pytest.mark.slow
@on_loop
async def test_notifications_expired_at_a_client_return_credit() -> None:
    """A client that was away for long would never be sent anything again."""
    async with (
        Broker(port=0) as broker,
        connect(broker.address) as service,
        service.subscribe("a >= 0") as events,
    ):
        large = b"x" * (ClientLimits().credit_bytes // 2)
        one = await service.publish({"a": 0}, body=large, ttl_s=2)
        two = await service.publish({"a": 1}, body=large, ttl_s=2)
        await until(lambda: events.statistics().queued == 2)
        ends = max(each.expires_us or 0 for each in (one, two))
        await service.publish({"a": 2}, body=large)
        await until(lambda: wall_clock_us() > ends + 1_000)
        assert (await events.next(10))["a"] == 2
        assert events.statistics().dropped == {EXPIRED: 2}
