"""Transports other than TCP: selected at one place on each side."""

import asyncio
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from contrada.connections import connect
from contrada.net.broker import neighbours
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.client import reconnection
from contrada.net.wire.address import Address
from contrada.net.wire.connection import BROKER, CLIENT
from contrada.net.wire.endpoint import ClientWire
from contrada.net.wire.frames import Hello, Ping, Pong, encode
from tests.asynchronous import on_loop, until


@on_loop
async def test_clients_and_links_go_over_sockets_of_unix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A carrier for servers behind HTTP would have to be built into clients, links and brokers."""

    async def dial(end: asyncio.Protocol, to: Address, _: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: end, str(tmp_path / to.host))

    for module in (neighbours, reconnection):
        monkeypatch.setattr(module, "dial", dial)
    north = Broker(port=0, network=Membership("north"))
    wanted = (WantedLink(Address("north")),)
    south = Broker(port=0, network=Membership("south", neighbours=wanted))
    async with AsyncExitStack() as stack:
        for broker in (north, south):
            server = await asyncio.get_running_loop().create_unix_server(
                broker.accept, str(tmp_path / broker.neighbours.network.name)
            )
            stack.callback(server.close)
            await stack.enter_async_context(broker)
        await until(lambda: len(north.neighbours) == len(south.neighbours) == 1)
        publisher = await stack.enter_async_context(connect("contrada://north"))
        subscriber = await stack.enter_async_context(connect("contrada://south"))
        events = await stack.enter_async_context(subscriber.subscribe("a >= 0"))
        await until(lambda: north.dispatcher.router.statistics().filters.nodes == 1)
        await publisher.publish_batch({"a": n, "b": "x" * 1_000} for n in range(1_000))
        assert [(await anext(events))["a"] for _ in range(1_000)] == [*range(1_000)]


class _Prompt(asyncio.Transport):
    """A transport with an answer of the other side to each write, before it returns."""

    def __init__(self, end: asyncio.Protocol, *answers: bytes) -> None:
        super().__init__()
        self.end, self.answers, self.written = end, [*answers], list[bytes]()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))
        if self.answers:
            self.end.data_received(self.answers.pop(0))

    def is_closing(self) -> bool:
        return False


@on_loop
async def test_an_answer_within_a_write_sends_no_frame_twice() -> None:
    """A transport within one process would repeat each frame: it is written before it is taken."""
    end = ClientWire(Hello(CLIENT), lambda _: None, lambda _: None)
    carrier = _Prompt(end, encode(Hello(BROKER)) + encode(Ping(7)), encode(Ping(8)))
    end.connection_made(carrier)
    assert carrier.written == [encode(Hello(CLIENT)), encode(Pong(7)), encode(Pong(8))]
    end.connection_lost(None)
