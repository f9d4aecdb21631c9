"""Clients and links over WebSocket behave like those over TCP, within the same bounds."""

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed, InvalidStatus

from contrada.connections import connect
from contrada.errors import ConnectionFailedError
from contrada.model import Filter, Notification
from contrada.model.codec import to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.wire.address import parse_address
from contrada.net.wire.connection import CLIENT, LivenessLimits
from contrada.net.wire.frames import Hello, encode
from contrada.net.wire.websocket import CARRIED_AT_ONCE_BYTES, CARRIED_BYTES_MAX
from tests.asynchronous import on_loop, until
from tests.integrations.http.carried import HOST, http_port
from tests.net.conftest import CONTRADA
from tests.net.requests import subscribe
from tests.net.test_tls import Authority


@on_loop
async def test_publications_over_websocket_are_delivered() -> None:
    """A client behind an HTTP proxy would receive no events, or only parts of large ones."""
    async with (
        Broker(port=0) as broker,
        http_port(broker) as port,
        connect(port.address) as publisher,
        connect(port.address.removesuffix("/contrada")) as subscriber,
        subscriber.subscribe("a >= 0") as events,
    ):
        sent = [{"a": n, "b": "x" * (n * n)} for n in range(600)]
        assert len(str(sent)) > 100 * CARRIED_AT_ONCE_BYTES
        publishing = asyncio.create_task(publisher.publish_batch(sent))
        assert [dict(await anext(events)) for _ in sent] == sent
        await publishing
        assert not broker.statistics().refused
    assert broker.statistics().connections_total == 2


@on_loop
async def test_clients_speak_tls_beneath_websocket(tmp_path: Path) -> None:
    """Any host on the network path could read the events."""
    authority = Authority(tmp_path)
    async with Broker(port=0) as broker, http_port(broker, tls=authority.tls()) as port:
        with pytest.raises(ConnectionFailedError, match="is not trusted"):
            await connect(port.address).open()
        trusting = authority.trusting()
        async with connect(port.address, tls=trusting) as client, client.subscribe("a any") as each:
            await client.publish({"a": 1})
            assert (await anext(each))["a"] == 1


@on_loop
async def test_links_over_websocket_are_made_again() -> None:
    """A network through a proxy would be split for ever by the first fault."""
    async with AsyncExitStack() as stack:
        north = await stack.enter_async_context(Broker(port=0, network=Membership("north")))
        port = await stack.enter_async_context(http_port(north))
        wanted = (WantedLink(parse_address(port.address)),)
        network = Membership("south", neighbours=wanted)
        south = await stack.enter_async_context(Broker(port=0, network=network))
        publisher = await stack.enter_async_context(connect(north.address))
        subscriber = await stack.enter_async_context(connect(south.address))
        events = await stack.enter_async_context(subscriber.subscribe("a >= 0"))
        for _ in range(2):
            await until(lambda: north.dispatcher.router.statistics().filters.nodes == 1)
            sent = [{"a": n, "b": "x" * 1_000} for n in range(3_000)]
            await publisher.publish_batch(sent)
            assert [dict(await anext(events)) for _ in sent] == sent
            (link,) = north.neighbours
            link.connection.abort()
            await link.connection.ended
            await until(lambda: len(south.neighbours) == 0)


@pytest.mark.slow
@on_loop
async def test_commands_accept_websocket_addresses() -> None:
    """Only programs could use WebSocket."""
    async with Broker(port=0, network=Membership("north")) as north, http_port(north) as port:
        serve = (*CONTRADA, "serve", "--name", "south", "--port", "0", "--store", "memory:")
        broker = await asyncio.create_subprocess_exec(
            *serve, "--neighbour", port.address, stdout=PIPE, stderr=PIPE
        )
        assert broker.stdout is not None
        to = (await broker.stdout.readline()).decode().strip()
        reader = await asyncio.create_subprocess_exec(
            *CONTRADA,
            "sub",
            "a = 1",
            "--to",
            port.address,
            "--count",
            "1",
            stdout=PIPE,
            stderr=PIPE,
        )
        try:
            await until(lambda: len(north.neighbours) == 1 and len(north.clients()) == 1)
            await until(lambda: north.dispatcher.router.statistics().filters.nodes == 1)
            async with connect(to) as publisher:
                while reader.returncode is None:  # Until the subscription has arrived there.
                    await publisher.publish({"a": 1})
                    await asyncio.sleep(0.01)
            assert (await reader.communicate())[0].strip().endswith(b"a=1")
        finally:
            for each in (broker, reader):
                if each.returncode is None:
                    each.kill()
                await each.communicate()


@on_loop
async def test_an_address_without_a_broker_is_reported() -> None:
    """A person would look for the fault in the network."""
    async with Broker(port=0) as broker, http_port(broker) as port:
        for other in (
            f"contrada+ws://{HOST}:{port.number}/elsewhere",
            broker.address.replace("contrada://", "contrada+ws://"),
        ):
            with pytest.raises(ConnectionFailedError, match="no broker takes WebSocket there"):
                await connect(other).open()
    with pytest.raises(ConnectionFailedError, match="connection refused"):
        await connect(port.address).open()


@on_loop
async def test_a_client_follows_no_redirect() -> None:
    """Its token would be sent to any host that the server, or a proxy, names."""

    async def send_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {other}\r\n\r\n".encode())
        writer.close()

    sending = await asyncio.start_server(send_on, HOST, 0)
    number = sending.sockets[0].getsockname()[1]
    async with Broker(port=0) as broker, http_port(broker) as port, sending:
        other = port.url.replace(HOST, "localhost")
        with pytest.raises(ConnectionFailedError, match="cannot follow cross-origin redirect"):
            await connect(f"contrada+ws://{HOST}:{number}").open()
        assert broker.statistics().connections_total == 0


@on_loop
async def test_pages_of_a_browser_are_refused() -> None:
    """Any page that a person visits could connect to the broker on their machine."""
    async with Broker(port=0) as broker, http_port(broker) as port:
        with pytest.raises(InvalidStatus, match="HTTP 403"):
            await connect_websocket(port.url, origin="https://example.org", proxy=None)  # type: ignore[arg-type]
    assert broker.statistics().connections_total == 0


HELLO = encode(Hello(CLIENT))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"x" * (CARRIED_BYTES_MAX + 1), 1009),
        (b"x" * (2 * CARRIED_BYTES_MAX + 1), 1009),
        ("text", 1003),
    ],
    ids=["too big", "too big for the server", "text"],
)
@on_loop
async def test_malformed_messages_end_the_connection(message: bytes | str, code: int) -> None:
    """One message would take any amount of memory."""
    async with Broker(port=0) as broker, http_port(broker) as port:
        async with connect_websocket(port.url, proxy=None) as there:
            await there.send(HELLO)
            await there.recv()
            with suppress(ConnectionClosed):  # It may be closed before all of it is sent.
                await there.send(message)
            with pytest.raises(ConnectionClosed):
                await there.recv()
            assert there.close_code == code
        await until(lambda: broker.statistics().connections == 0)


@on_loop
async def test_a_websocket_without_a_hello_is_closed() -> None:
    """Silent connections, or endless first messages, would fill the broker."""
    limits = BrokerLimits(liveness=LivenessLimits(hello_wait_s=0.1), broker_tick_s=0.02)
    async with Broker(port=0, limits=limits) as broker, http_port(broker) as port:
        async with connect_websocket(port.url, proxy=None) as there:

            async def slow() -> None:
                async def pieces() -> AsyncIterator[bytes]:
                    while True:
                        yield HELLO[:1]
                        await asyncio.sleep(0.01)

                await there.send(pieces())

            sending = asyncio.create_task(slow())
            assert b"no hello" in await there.recv(decode=False)
            with pytest.raises(ConnectionClosed):
                await there.recv()
            with pytest.raises(ConnectionClosed):
                await sending
        await until(lambda: broker.statistics().connections == 0)
    assert broker.statistics().refused == {"no hello": 1}


@on_loop
async def test_a_websocket_that_does_not_read_delays_nobody() -> None:
    """Its queue would grow without end, and its socket would stay open after the close."""
    async with Broker(port=0) as broker, http_port(broker, unsent_wait_s=0.05) as port:
        there = await silent(port.url)
        await until(lambda: broker.statistics().subscriptions == 1)
        (peer,) = broker._sessions
        async with connect(broker.address) as publisher:
            while not peer.is_write_paused:
                # In bodies, since an interpreted index takes long to hash texts.
                await publisher.publish_batch([Notification({}, body=bytes(10_000))] * 100)
        assert peer.unwritten_bytes <= 2 * broker.limits.write_buffer_bytes
        unread = there.recv_messages
        assert len(unread.frames) <= 3  # It is the library that has stopped to read.
        peer.abort()
        await peer.ended
        await until(lambda: broker.statistics().connections == 0)
        await until(lambda: not port.server.connections)
        there.transport.abort()
        await there.wait_closed()


async def silent(url: str) -> ClientConnection:
    """Opens a client that subscribes to everything and never reads."""
    there = await connect_websocket(
        url, max_queue=1, ping_interval=None, proxy=None, compression=None, max_size=2**24
    )
    asked = subscribe(1, "s", to_msgpack(Filter({})), credit=2**40)
    await there.send(HELLO + encode(asked))
    return there


@on_loop
async def test_a_stopping_broker_sends_its_reason_over_websocket() -> None:
    """Clients would report a fault of the network."""
    async with (
        Broker(port=0) as broker,
        http_port(broker) as port,
        connect(port.address, reconnect=False) as client,
    ):
        await broker.stop()
        await until(lambda: client.connection.state == "closed")
        assert client.connection.reason == "the broker stops"
