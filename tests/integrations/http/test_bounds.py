"""Slow, oversized and malformed requests are refused in bounded time and memory."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from starlette.responses import Response

from contrada.integrations.http import (
    Gateway,
    GatewayLimits,
    event_ingest,
    gateway,
    request_filters,
)
from contrada.integrations.http.http_port import BoundedConnection
from contrada.integrations.http.request_filters import PARSED_AT_ONCE_CHARACTERS
from contrada.model import FilterSet, Notification
from tests.asynchronous import on_loop, until
from tests.integrations.http.conftest import Served, event, serving
from tests.integrations.http.test_tokens import known

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(it: Served) -> Stream:
    host, _, number = it.gateway.address.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(number))


async def answered(stream: Stream, data: bytes = b"") -> bytes:
    """Returns all bytes of the answer until the connection is closed."""
    reader, writer = stream
    writer.write(data)
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        await left(writer)


async def left(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@on_loop
async def test_a_dripping_head_is_cut() -> None:
    """Slow loris: a few bytes now and then would hold a connection for ever."""
    async with serving(limits=GatewayLimits(head_wait_s=0.2)) as it:
        for begin in (b"", b"GET / HTTP/1.1\r\nhost: localhost\r\n"):
            reader, writer = await connected(it)
            writer.write(begin)

            async def drip(writer: asyncio.StreamWriter = writer, begin: bytes = begin) -> None:
                while begin:
                    writer.write(b"x")
                    await asyncio.sleep(0.01)

            dripping = asyncio.ensure_future(drip())
            # The system discards the answer where bytes arrive that nobody reads.
            assert (await answered((reader, writer)))[:12] in (b"", b"HTTP/1.1 408")
            dripping.cancel()
        await until(lambda: it.gateway._port.connections == 0)


@on_loop
async def test_a_second_head_is_timed_too() -> None:
    """After one good request a client could drip for ever."""
    async with serving(limits=GatewayLimits(head_wait_s=0.2)) as it:
        stream = await connected(it)
        stream[1].write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert (await stream[0].readuntil(b'"ok"}')).startswith(b"HTTP/1.1 200")

        async def drip() -> None:
            stream[1].write(b"GET /")
            while True:
                stream[1].write(b"x")
                await asyncio.sleep(0.01)

        dripping = asyncio.ensure_future(drip())
        assert (await answered(stream))[:12] in (b"", b"HTTP/1.1 408")
        dripping.cancel()


@pytest.mark.parametrize(("begin", "reason"), [(b"", b""), (b"GET / HT", b"HTTP/1.1 408")])
def test_a_late_head_is_ended_with_its_reason(begin: bytes, reason: bytes) -> None:
    """A client would not learn why its connection was closed; or read an answer to nothing."""

    @on_loop
    async def ask() -> None:
        async with serving(limits=GatewayLimits(head_wait_s=0.01)) as it:
            assert (await answered(await connected(it), begin))[:12] == reason

    ask()


@on_loop
async def test_a_client_that_sends_no_more_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that ends its sending side behind a request, as `nc -N` does, would get nothing."""
    is_asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer_late(*_: Any) -> Response:
        is_asked.set()
        await go_on.wait()
        return Response("late")

    monkeypatch.setattr(Gateway, "_healthz", answer_late)
    async with serving() as it:
        reader, writer = await connected(it)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await is_asked.wait()
        (connection,) = it.gateway._port.held
        writer.write_eof()
        await until(lambda: connection._is_ending)
        go_on.set()
        found = await reader.read()
        await left(writer)
        assert found.startswith(b"HTTP/1.1 200")
        assert found.endswith(b"late")
        await until(lambda: it.gateway._port.connections == 0)


@on_loop
async def test_a_body_that_is_cut_off_ends_its_request() -> None:
    """Its bytes would be held for as long as a body may take."""
    async with serving() as it:
        _, writer = await connected(it)
        writer.write(POSTED + b"content-length: 100\r\n\r\n{")
        await until(lambda: it.gateway._bodies.held_bytes == 1)
        writer.write_eof()
        await until(lambda: it.gateway._port.connections == it.gateway._bodies.held_bytes == 0)
        writer.close()


@on_loop
async def test_a_stopping_port_sends_the_rest_of_its_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that is slower than the loop would get a part of the answer."""
    size = 60_000  # As much as a transport takes before its writer waits.
    whole = GatewayLimits(sent_bytes_max=4_096)

    async def answer_much(*_: Any) -> Response:
        return Response(b"x" * size)

    monkeypatch.setattr(Gateway, "_healthz", answer_much)
    async with serving(limits=whole) as it:
        host, _, number = it.gateway.address.removeprefix("http://").partition(":")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect((host, int(number)))
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await until(lambda: unsent(it) > 0)
            stopping = asyncio.create_task(it.gateway.stop())
            await until(lambda: all(each._transport.is_closing() for each in open_ones(it)))
            found = await asyncio.to_thread(client.makefile("rb").read)
            await stopping
        assert found.count(b"x") == size


def open_ones(it: Served) -> list[BoundedConnection]:
    return [*it.gateway._port.held]


def unsent(it: Served) -> int:
    """Returns the bytes that wait in the transports."""
    return sum(each._transport.get_write_buffer_size() for each in open_ones(it))


@on_loop
async def test_pipelined_requests_are_answered() -> None:
    """A client that does not wait for answers would be cut off."""
    async with serving() as it:
        body = json.dumps(event(1)).encode()
        head = b"POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n" % len(body)
        post = head + b"content-type: application/cloudevents+json\r\n\r\n" + body
        get = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        said = post + get + post + get + post
        for cut in (len(post) + 9, len(post) + len(get) + 9, 2 * len(post) + len(get) - 5):
            stream = await connected(it)
            stream[1].write(said[:cut])
            await stream[0].readuntil(b"}")
            closing = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            found = await answered(stream, said[cut:] + closing)
            assert found.count(b"HTTP/1.1 20") == 5
        assert it.broker.statistics().published == 9


@on_loop
async def test_an_unread_body_ends_its_connection() -> None:
    """The body could drip for ever behind the answer."""
    async with serving() as it:
        stream = await connected(it)
        head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nxx"
        assert (await answered(stream, head)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "rest", [b"content-length: 5\r\n\r\nabcde", b"x-a: " + b"a" * 20_000 + b"\r\n\r\n"]
)
def test_a_malformed_upgrade_is_answered(rest: bytes) -> None:
    """The connection would stay open for any time without an answer."""
    asked = b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"

    @on_loop
    async def ask() -> None:
        async with serving() as it:
            stream = await connected(it)
            head = b"GET /ws HTTP/1.1\r\nhost: localhost\r\n" + asked
            assert (await answered(stream, head + rest)).startswith(b"HTTP/1.1 400")
            await until(lambda: it.gateway._port.connections == 0)

    ask()


@pytest.mark.parametrize("count", [1, 16])
def test_a_client_that_reads_no_answers_is_cut(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection would stay open for any time, and many of them would exhaust the port."""
    monkeypatch.setattr(gateway, "json_answer", lambda _: Response(b"x" * 400_000))

    @on_loop
    async def ask() -> None:
        async with serving(
            limits=GatewayLimits(head_wait_s=0.1, unsent_wait_s=0.1, sent_bytes_max=4_096)
        ) as it:
            host, _, number = it.gateway.address.removeprefix("http://").partition(":")
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                client.connect((host, int(number)))
                client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * count)
                await until(lambda: it.gateway._port.connections == 1)
                await until(lambda: it.gateway._port.connections == 0)

    ask()


@on_loop
async def test_a_late_body_is_refused() -> None:
    """A dripping body would hold a connection, and a connection to the broker, for ever."""
    async with serving(limits=GatewayLimits(body_wait_s=0.1)) as it:
        stream = await connected(it)
        head = b"POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"
        assert (await answered(stream, head)).startswith(b"HTTP/1.1 408")
        assert it.gateway._bodies.held_bytes == 0


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nx: " + b"y" * 500_000,
        b"GET /" + b"y" * 500_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000,
        b"GET / HTTP/1.1\r\n" + b"x" * 500_000,
        b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n",
        b"GET /" + b"y" * 40_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
def test_oversized_heads_are_refused(head: bytes) -> None:
    """A head of any size would be held and parsed."""

    @on_loop
    async def send() -> None:
        async with serving() as it:
            found = await answered(await connected(it), head)
            assert found == b"" or found.split()[1] in (b"431", b"400"), found
            await until(lambda: it.gateway._port.connections == 0)

    send()


ASKED = b"GET /subscribe?filter=everything HTTP/1.1\r\nhost: localhost\r\n"
POSTED = (
    b"POST /events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/cloudevents+json\r\n"
)


@pytest.mark.parametrize("begin", [b"0\r\nA: ", b"0\r\n", b"1;a=", b"1\r\nx\r\n0\r\nA: "])
def test_the_framing_of_a_body_is_bounded(begin: bytes) -> None:
    """An endless trailer would be copied with each of its pieces: one connection would block
    all.
    """

    @on_loop
    async def send() -> None:
        async with serving() as it:
            reader, writer = await connected(it)
            writer.write(POSTED + b"transfer-encoding: chunked\r\n\r\n")
            await until(lambda: len(it.gateway._port._running) == 1)
            writer.write(begin)
            with suppress(ConnectionError):
                for _ in range(64):
                    writer.write(b"x" * 65_536)
                    await writer.drain()
            found = await answered((reader, writer))
            assert found == b"" or found.startswith(b"HTTP/1.1 400"), found
            await until(lambda: it.gateway._port.connections == it.gateway._bodies.held_bytes == 0)

    send()


@on_loop
async def test_a_body_in_small_chunks_is_accepted() -> None:
    """A client that writes byte by byte would be refused as an attacker."""
    async with serving() as it:
        body = json.dumps(event(1, data="x" * 10_000)).encode()
        chunks = b"".join(b"1\r\n%c\r\n" % each for each in body)
        stream = await connected(it)
        closing = b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        stream[1].write(POSTED + closing)
        for begin in range(0, len(chunks), 1_000):
            stream[1].write(chunks[begin : begin + 1_000])
            await stream[1].drain()
        found = await answered(stream, b"0\r\nx-trailer: 1\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 202"), found


@pytest.mark.parametrize("body", [b"transfer-encoding: chunked", b"content-length: 1000000000"])
def test_a_stream_request_with_a_body_is_refused(body: bytes) -> None:
    """The body could last as long as the stream, without any bound."""

    @on_loop
    async def ask() -> None:
        async with serving() as it:
            found = await answered(await connected(it), ASKED + body + b"\r\n\r\n")
            assert found.startswith(b"HTTP/1.1 400"), found
            await until(lambda: it.gateway._port.connections == 0)

    ask()


@on_loop
async def test_pipelined_requests_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Any number of requests would be held behind a stream, whose answer never ends; and the end of
    such a connection would never be seen.
    """
    async with serving(limits=GatewayLimits(stream_quiet_s=0.01)) as it:
        reader, writer = await connected(it)
        writer.write(ASKED + b"\r\n")
        await reader.readuntil(b"retry:")
        (connection,) = it.gateway._port.held
        sending = asyncio.create_task(send_endlessly(writer))
        await until(lambda: (connection._bytes_behind or 0) > GatewayLimits().head_bytes_max)
        await until(lambda: writer.transport.get_write_buffer_size() > 0)  # The kernel's are full.
        assert (connection._bytes_behind or 0) < 2**20
        assert b"HTTP/1.1" not in await reader.read(2**16)  # It would be within the stream.
        sending.cancel()
        writer.transport.abort()
        await until(lambda: it.gateway._port.connections == 0)
        await until(lambda: it.gateway.counts.streams == 0)
        assert "socket.send()" not in caplog.text


@on_loop
async def test_requests_behind_answered_ones_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer would have more requests read than it takes away, without end."""
    unread: list[int] = []

    async def answer(*_: Any) -> Response:
        (connection,) = it.gateway._port.held
        unread.append(len(connection._protocol.conn.trailing_data[0]))
        return Response("found")

    monkeypatch.setattr(Gateway, "_healthz", answer)
    async with serving() as it:
        reader, writer = await connected(it)
        sending = asyncio.create_task(
            send_endlessly(writer, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        )
        while len(unread) < 100:
            assert await reader.read(2**16)
        sending.cancel()
        writer.transport.abort()
    assert max(unread) > GatewayLimits().head_bytes_max
    assert max(unread) < 2**20


@on_loop
async def test_the_rest_of_a_pipelined_body_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading would never go on, since it was stopped for the many bytes of the first part."""
    is_asked = asyncio.Event()

    async def answer_late(*_: Any) -> Response:
        is_asked.set()
        (connection,) = it.gateway._port.held
        await until(lambda: (connection._bytes_behind or 0) > limits.head_bytes_max)
        return Response("late")

    monkeypatch.setattr(Gateway, "_healthz", answer_late)
    limits = GatewayLimits(head_bytes_max=1_000)
    body = json.dumps(event(1, data={"text": "x" * 20_000})).encode()
    head = (
        b"POST /events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: application/cloudevents+json\r\ncontent-length: %d\r\n\r\n" % len(body)
    )
    async with serving(limits=limits) as it:
        reader, writer = await connected(it)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nPOST")
        await is_asked.wait()
        writer.write(head.removeprefix(b"POST") + body[:10_000])
        assert await reader.readuntil(b"late")
        found = await answered((reader, writer), body[10_000:])
        assert found.startswith(b"HTTP/1.1 202")


async def send_endlessly(
    writer: asyncio.StreamWriter, request: bytes = b"GET / HTTP/1.1\r\n\r\n"
) -> None:
    """Sends requests as fast as they are read."""
    while True:
        writer.write(request * 1_000)
        await writer.drain()


@pytest.mark.parametrize("behind", [b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", b"\x00" * 100])
def test_a_stream_ends_with_its_connection_despite_pipelined_bytes(behind: bytes) -> None:
    """Its subscription would stay in force for ever, and each event would be written to a closed
    connection; or an answer to the bytes would be within the stream.
    """

    @on_loop
    async def send() -> None:
        async with serving() as it:
            reader, writer = await connected(it)
            writer.write(ASKED + b"\r\n")
            await reader.readuntil(b"retry:")
            (connection,) = it.gateway._port.held
            writer.write(behind * 2)
            await until(lambda: connection._bytes_behind is not None)
            await it.service.publish({"n": 1})
            assert b"HTTP/1.1" not in await reader.readuntil(b"}")
            await left(writer)
            await until(lambda: it.gateway._port.connections == 0)
            await until(lambda: it.gateway.counts.streams == 0)
            await until(lambda: it.broker.statistics().subscriptions == 0)

    send()


@on_loop
async def test_a_head_in_pieces_counts_once() -> None:
    """The same head would be accepted or refused depending on its packets."""
    async with serving() as it:
        stream = await connected(it)
        head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        for name in (b"a", b"b", b"c"):
            head += name + b": " + b"x" * 9_000 + b"\r\n"
        for begin in range(0, len(head), 4_000):
            stream[1].write(head[begin : begin + 4_000])
            await stream[1].drain()
            await asyncio.sleep(0)
        assert (await answered(stream, b"\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"ct\x02\x01\x00\x00\x00\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
        b"POST /events HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /events HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /events HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"POST /events HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n",
        b"\x00" * 100,
    ],
    ids=map(str, range(11)),
)
def test_garbage_is_refused(garbage: bytes) -> None:
    """Garbage would be parsed as a request, or block its connection."""

    @on_loop
    async def send() -> None:
        async with serving() as it:
            found = await answered(await connected(it), garbage)
            assert found.startswith(b"HTTP/1.1 400"), found

    send()


@on_loop
async def test_oversized_bodies_are_refused() -> None:
    """A body of any size would be held, with or without a declared length."""
    async with serving() as it:
        head = b"POST /events HTTP/1.1\r\nhost: localhost\r\n"
        said = b"content-length: 999999999999\r\n\r\n"
        assert (await answered(await connected(it), head + said)).startswith(b"HTTP/1.1 413")
        reader, writer = await connected(it)
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
        try:
            for _ in range(100):
                writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
                await writer.drain()
            found = await answered((reader, writer))
        except ConnectionError:
            found = b""
            await left(writer)
        assert found == b"" or found.startswith(b"HTTP/1.1 413")
        await until(lambda: it.gateway._port.connections == it.gateway._bodies.held_bytes == 0)


@on_loop
async def test_all_bodies_together_are_bounded() -> None:
    """Many clients with slow bodies would exhaust the memory."""
    async with serving(limits=GatewayLimits(http_bodies_bytes_max=100_000)) as it:
        head = b"POST /events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        head += b"content-length: 90001\r\n\r\n"
        first = await connected(it)
        first[1].write(head + b"x" * 90_000)
        await until(lambda: it.gateway._bodies.held_bytes == 90_000)
        found = await answered(await connected(it), head + b"x" * 90_001)
        assert found.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in found.lower()
        await left(first[1])
        await until(lambda: it.gateway._bodies.held_bytes == 0)


@pytest.mark.parametrize(
    "path",
    ["/events", "/subscriptions", "/console/trials", "/console/questions", "/console/figures"],
)
def test_a_body_without_a_known_token_is_not_read(path: str) -> None:
    """Strangers could fill the room of all bodies, and events of users would be refused."""

    @on_loop
    async def send() -> None:
        users, _, tokens = known()
        async with serving(users=users, token=tokens["root"]) as it:
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90001\r\n\r\n"
            found = await answered(await connected(it), head.encode())
            assert found.startswith(b"HTTP/1.1 401")

    send()


@on_loop
async def test_connections_are_bounded() -> None:
    """One client could exhaust the file descriptors of the broker."""
    async with serving(limits=GatewayLimits(http_connections_max=3)) as it:
        there = [await connected(it) for _ in range(3)]
        await until(lambda: it.gateway._port.connections == 3)
        assert (await answered(await connected(it))).startswith(b"HTTP/1.1 503")
        for _, writer in there:
            await left(writer)
        await until(lambda: it.gateway._port.connections == 0)
        assert (await it.http.get("/healthz")).status_code == 200


@on_loop
async def test_tokens_are_bounded() -> None:
    """Each invented token would hold a connection to the broker."""
    async with serving(limits=GatewayLimits(gateway_tokens_max=3)) as it:

        def ask(number: int, path: str = "/metrics", **options: Any) -> Any:
            shown = {"authorization": f"Bearer user{number}.x"}
            return it.http.stream("GET", path, headers=shown, **options)

        for number in range(8):
            async with ask(number) as answer:
                assert answer.status_code == 200
        assert len(it.gateway._accesses) == 3
        held = {"params": {"filter": "a > 1"}}
        async with ask(1, "/subscribe", **held), ask(2, "/subscribe", **held):
            async with ask(3, "/subscribe", **held), ask(4) as full:
                assert full.status_code == 503
            async with ask(4) as answer:
                assert answer.status_code == 200
        await until(lambda: it.broker.statistics().connections <= 4)


@on_loop
async def test_unused_connections_to_the_broker_are_closed() -> None:
    """Each token that was ever shown would keep its connection."""
    async with serving(limits=GatewayLimits(gateway_idle_s=0.01)) as it:
        assert (await it.http.get("/metrics")).status_code == 200
        await until(lambda: len(it.gateway._accesses) == 0)
        await until(lambda: it.broker.statistics().connections == 1)


@on_loop
async def test_costly_filters_are_refused() -> None:
    """One request would block all others."""
    async with serving() as it:
        text = " or ".join(f"a{n} matches '(x+x+)+y{n}'" for n in range(400))
        answer = await it.http.get("/subscribe", params={"filter": text})
        assert answer.status_code == 400


@pytest.mark.parametrize(("blanks", "dialect"), [(PARSED_AT_ONCE_CHARACTERS, ""), (0, "falco")])
@on_loop
async def test_other_requests_are_answered_while_a_long_filter_is_parsed(
    blanks: int, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule of some kilobytes takes half a second to parse, and one in a dialect may take as long
    for a line: the whole broker would stop for that time.
    """
    begun, is_answered, was_held_up = threading.Event(), threading.Event(), list[bool]()

    def parse(text: str, dialect: str) -> FilterSet:
        begun.set()
        was_held_up.append(not is_answered.wait(20))
        return FilterSet(text)

    monkeypatch.setattr(request_filters, "_parse", parse)
    async with serving() as it:
        given = {"filter": "a = 1" + " " * blanks} | ({"dialect": dialect} if dialect else {})
        stream = it.http.stream("GET", "/subscribe", params=given)
        opening = asyncio.ensure_future(stream.__aenter__())
        await until(begun.is_set)
        assert (await it.http.get("/healthz")).status_code == 200
        is_answered.set()
        assert (await opening).status_code == 200
        await stream.__aexit__(None, None, None)
    assert was_held_up == [False]


@on_loop
async def test_deep_and_wide_events_are_refused() -> None:
    """Decoding one would exhaust the stack, or take minutes."""
    async with serving() as it:
        headers = {"content-type": "application/cloudevents+json"}
        plain = json.dumps(event(0))[:-1]
        deep = plain + ', "data": ' + "[" * 100_000 + "]" * 100_000 + "}"
        wide = plain + "".join(f', "x{n}": "y"' for n in range(5_000)) + "}"
        for body in (deep, wide, plain + ', "data": ' + "9" * 100_000 + "}"):
            answer = await it.http.post("/events", content=body, headers=headers)
            assert answer.status_code == 400, answer.text
        # Each name below the long one would be a copy of it: 20 GB.
        below = dict.fromkeys(map(str, range(20_000)), 0)
        long = json.dumps(event(0, data={"a" * 1_000_000: below, "b": 1}))
        async with asyncio.timeout(5):
            answer = await it.http.post("/events", content=long, headers=headers)
        assert answer.status_code == 202, answer.text


@on_loop
async def test_other_requests_are_answered_while_a_large_body_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A body of 4 MiB with 150,000 objects takes 0.7 s, in which the broker would stop."""
    begun, is_answered, was_held_up = threading.Event(), threading.Event(), list[bool]()
    decode = event_ingest.notifications_in

    def decode_slowly(*given: Any) -> Iterator[Notification]:
        begun.set()
        was_held_up.append(not is_answered.wait(20))
        yield from decode(*given)

    monkeypatch.setattr(event_ingest, "notifications_in", decode_slowly)
    async with serving() as it:
        large = event(data="x" * event_ingest.DECODED_AT_ONCE_BYTES)
        posting = asyncio.ensure_future(
            it.http.post("/events", json=large, headers={"content-type": event_ingest.STRUCTURED})
        )
        await until(begun.is_set)
        assert (await it.http.get("/healthz")).status_code == 200
        is_answered.set()
        assert (await posting).status_code == 202
    assert was_held_up == [False]
