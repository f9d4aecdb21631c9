"""Ten thousand subscribers at one broker, each with a connection; some of them asleep."""

import asyncio
import gc
import resource
import socket
import statistics
import subprocess
import sys
import tracemalloc
from typing import cast

import pytest

import contrada as ct
from bench.crowd import CREDIT, HELLO, Crowd, Process, allow_files, broker, crowd
from contrada.connections import connect
from contrada.model import codec
from contrada.net.broker.broker import Broker
from contrada.net.client.tcp_service import TcpService
from contrada.net.wire.frames import Hello, Request, encode
from contrada.net.wire.message_codec import encode_message
from contrada.routing.router_messages import Subscribe
from tests.asynchronous import TEST_S_MAX, on_loop, until
from tests.net.test_broker import RawClient

MAIN = "from contrada.cli import main; main()"
COUNTS = [5_000, 5_000]
EACH = 2
ROUNDS = 3
SLEEPERS = 4
FILLING = 30_000
"""Notifications that fill the queues of sleepers, and the buffers of the system for them."""

NAMES = 100
WARM = 200
MANY = 2_000
SUBSCRIPTION_BYTES = 1_450
"""Bytes of the objects of a subscription."""

AS_WITHOUT = 1.5
"""How many times as much of the processor the same may take beside sleepers."""


def service_at(address: str) -> TcpService:
    """A client."""
    return cast(TcpService, connect(address))


async def publish_round(process: Process, of: Crowd, number: int) -> float:
    """Publishes `EACH` notifications for each subscriber; returns the broker's processor time."""
    before_s = process.cpu_s
    of.ask()
    async with service_at(process.address) as service:
        for k in range(number * EACH, (number + 1) * EACH):
            await service.publish_batch({"to": to, "k": k} for to in range(sum(COUNTS)))
        assert await asyncio.to_thread(of.wrong) == [0] * len(COUNTS)
        assert (await service.broker_statistics())["connections"] >= sum(COUNTS)
    return process.cpu_s - before_s


def sleeper(port: int) -> socket.socket:
    """Returns a client that subscribes like a hundred others, and to much more, and never reads."""
    sock = socket.create_connection(("127.0.0.1", port))
    asked = Subscribe("1", ct.FilterSet("to < 100 or filling any"))
    sock.sendall(HELLO + encode(Request(2, encode_message(asked), CREDIT)))
    return sock


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_clients_get_their_own_beside_idle_ones() -> None:
    """A crowd would not be served, or one that stops reading would harm all others."""
    try:
        allow_files(sum(COUNTS))
    except OSError as error:
        pytest.skip(str(error))
    with broker() as process, crowd(process.port, COUNTS, EACH) as of:
        alone = [asyncio.run(publish_round(process, of, n)) for n in range(ROUNDS)]
        sleepers = [sleeper(process.port) for _ in range(SLEEPERS)]
        asyncio.run(fill(process))
        beside = [asyncio.run(publish_round(process, of, ROUNDS + n)) for n in range(ROUNDS)]
        for each in sleepers:
            each.close()
    assert statistics.median(beside) < AS_WITHOUT * statistics.median(alone), (alone, beside)


async def fill(process: Process) -> None:
    """Fills the queues of the sleepers; publishers wait for them once."""
    async with service_at(process.address) as service:
        await service.publish_batch({"filling": "x" * 400, "n": n} for n in range(FILLING))
        counts = await service.broker_statistics()
        assert counts["dropped"]["queue full"] > 0, "the sleepers have taken it all"


@pytest.mark.slow
def test_a_broker_allows_as_many_files_as_the_system_does() -> None:
    """With the usual soft limit a broker would take a thousand clients, and no more."""
    few = "import resource; r = resource; n = r.RLIMIT_NOFILE; hard = r.getrlimit(n)[1]; "
    few += "r.setrlimit(n, (256, hard)); "
    with broker("-c", few + MAIN, "serve", "--port", "0", "--store", "memory:") as process:
        found = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_broker_reports_the_limit_of_open_files() -> None:
    """Nobody would know why it takes no more clients."""
    few = "import resource; r = resource; r.setrlimit(r.RLIMIT_NOFILE, (256, 256)); "
    command = [
        sys.executable,
        "-c",
        few + MAIN,
        "serve",
        "--port",
        "0",
        "--store",
        "memory:",
        "--until-input-ends",
    ]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TEST_S_MAX,
        check=True,
    )
    assert "the system allows 256 open files" in done.stderr
    assert "connections_max" in done.stderr


@pytest.mark.slow
def test_a_subscription_takes_little_of_a_broker() -> None:
    """A broker would hold fewer subscriptions in the memory that it has."""

    async def taken() -> float:
        async with Broker(port=0) as one:
            client = await RawClient.to(one, Hello("client"))
            await client.hears()
            said = [*map(asking, range(WARM + MANY))]
            await ask(client, said[:WARM])  # Then objects of the first use, and names, exist.
            tracemalloc.start()
            try:
                await ask(client, said[WARM:])
                codec._other_set.cache_clear()  # It is bounded, and full where many ask.
                gc.collect()
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            await client.leave()
            return held / MANY

    assert asyncio.run(taken()) < SUBSCRIPTION_BYTES


def asking(number: int) -> bytes:
    """Asks for a filter of a name that recurs, and of a bound that does not."""
    filters = ct.FilterSet(f'symbol = "S{number % NAMES}" and price >= {number / 7}')
    return encode(Request(number, encode_message(Subscribe(str(number), filters)), CREDIT))


async def ask(client: RawClient, said: list[bytes]) -> None:
    """Until each is in force."""
    for each in said:
        client.write(each)
        reply = await client.hears()
        assert not getattr(reply, "code", ""), reply


@on_loop
async def test_a_broker_accepts_many_clients_at_once() -> None:
    """One of a thousand reconnecting clients would wait for seconds."""
    allow_files(2_000)
    async with Broker(port=0) as one:
        assert one._server is not None
        port = one._server.sockets[0].getsockname()[1]
        found = [socket.socket() for _ in range(500)]
        for each in found:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        # The loop has had no turn: connected clients wait, all others try again in a second.
        for each in found:
            each.getpeername()
        await until(lambda: one.statistics().connections == len(found))
        for each in found:
            each.close()
