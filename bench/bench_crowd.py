"""The cost of many clients for a broker: memory and rate of connections and of subscriptions.

All is over TCP, at a broker in a process of its own, with its resident memory. Clients send the
bytes of their requests as fast as the broker reads them.
"""

import socket
import threading
import time
from contextlib import ExitStack, closing
from functools import cache
from typing import Final, NamedTuple

import contrada as ct
from bench.crowd import HELLO, Process, allow_files, broker
from bench.harness import Measurement, figure
from contrada.net.wire.frames import FrameReader, Request, encode
from contrada.net.wire.message_codec import encode_message
from contrada.routing.router_messages import Subscribe

IDLE: Final = 5_000
WARM: Final = 200
"""Connections before the measurement, so that objects of the first use exist."""
LOADING_S: Final = 5.0
"""A broker loads its kernels beside its work when it starts."""
CLIENTS: Final = 20
OF_EACH: Final = 10_000
SAMPLES: Final = 3

BARE: Final = """
import asyncio
class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)
async def serve():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0, backlog=1024)
    print("bare://127.0.0.1:%d" % server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
asyncio.run(serve())
"""
"""The memory of asyncio for a connection."""


def greeted(port: int) -> socket.socket:
    """A client after the hellos of both sides."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(HELLO)
    sock.recv(4096)
    return sock


def per_connection(*command: str) -> float:
    """Kilobytes of each of many connections that do nothing."""
    with broker(*command) as process, ExitStack() as stack:
        time.sleep(LOADING_S)
        for _ in range(WARM):
            stack.enter_context(closing(greeted(process.port)))
        before = process.rss_bytes
        for _ in range(IDLE):
            stack.enter_context(closing(greeted(process.port)))
        return (process.rss_bytes - before) / IDLE / 1024


class Subscribed(NamedTuple):
    """Kilobytes of each subscription, and subscriptions a second."""

    kilobytes: float
    per_second: float


def requests(client: int) -> bytes:
    """All that one client asks for: distinct filters of two constraints."""
    said = [HELLO]
    for number in range(OF_EACH):
        unique = client * OF_EACH + number
        asked = ct.FilterSet(f'symbol = "S{unique % 5_000}" and price >= {unique / 100}')
        said.append(encode(Request(number, encode_message(Subscribe(str(number), asked)), 65_536)))
    return b"".join(said)


def subscribe_all(process: Process, said: bytes, stack: ExitStack) -> None:
    """One client asks for all that, and waits until all is in force."""
    sock = stack.enter_context(closing(socket.create_connection(("127.0.0.1", process.port))))
    sending = threading.Thread(target=sock.sendall, args=(said,))
    sending.start()
    reader, answers = FrameReader(), 0
    while answers <= OF_EACH:
        reader.feed(sock.recv(2**20))
        for frame in iter(reader.next, None):
            assert not getattr(frame, "code", ""), frame
            answers += 1
    sending.join()


@cache
def subscribed() -> list[Subscribed]:
    """Some brokers, each with all subscriptions of several clients at a time."""
    said = [requests(client) for client in range(CLIENTS)]
    found = []
    for _ in range(SAMPLES):
        with broker() as process, ExitStack() as stack:
            time.sleep(LOADING_S)
            before, began_s = process.rss_bytes, time.perf_counter()
            half = CLIENTS // 2
            for first in range(half):  # Two at a time.
                both = [
                    threading.Thread(target=subscribe_all, args=(process, each, stack))
                    for each in (said[first], said[first + half])
                ]
                for each in both:
                    each.start()
                for each in both:
                    each.join()
            took_s = time.perf_counter() - began_s
            count = CLIENTS * OF_EACH
            grown = process.rss_bytes - before
            found.append(Subscribed(grown / count / 1024, count / took_s))
    return found


@figure(
    name="crowd/connection",
    unit="KB",
    workload=f"a broker's memory for each of {IDLE:,} idle connections; asyncio: one that echoes",
    at_most=10,
)
def connection() -> Measurement:
    allow_files(IDLE + WARM)
    pairs = [(per_connection(), per_connection("-c", BARE)) for _ in range(SAMPLES)]
    own, bare = zip(*pairs, strict=True)
    return Measurement(own, "asyncio alone", bare)


@figure(
    name="crowd/subscription",
    unit="KB",
    workload=f"a broker's memory for each of {CLIENTS * OF_EACH:,} filters of two constraints",
    at_most=1.5,
)
def subscription() -> Measurement:
    return Measurement([each.kilobytes for each in subscribed()])


@figure(
    name="crowd/subscribing",
    unit="subscriptions/s",
    workload=f"{CLIENTS * OF_EACH:,} put in force over TCP, two clients at a time",
    at_least=10_000,
    counts="clock",
)
def subscribing() -> Measurement:
    return Measurement([each.per_second for each in subscribed()])
