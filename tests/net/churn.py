"""Clients that connect, use everything, and leave at full speed, at two linked brokers.

Each simulated client connects, subscribes, updates, publishes, advertises, follows, watches a
pattern, reads a durable log, ends some of that, and leaves in order, or by a reset in the middle.
After each wave the tables of the brokers must be as before, and memory, always measured in this
phase, must not grow (`tests.net.memory`).

`python -m tests.net.churn SECONDS` runs two brokers as processes, and prints their tables after
each wave.
"""

import asyncio
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import contrada as ct
from contrada.connections import connect
from contrada.errors import ContradaError
from contrada.net.client.tcp_service import TcpService
from contrada.service import WhenFull
from tests.net.memory import is_flat, rss_kb, slope
from tests.own_operators import CONTRADA

LIVES_AT_ONCE: Final = 24
LIVES_PER_WAVE: Final = 600
WARM_WAVES: Final = 8
"""Waves before memory is measured: it rises until then, however long they take."""

MEASURED_WAVES: Final = 12
"""Waves that are measured at least, also beyond the given time."""

LOGS: Final = ("one", "two", "three")
"""Names of durable subscriptions, which several lives read, one after the other."""

REST_S_MAX: Final = 60.0
"""Seconds until brokers have processed the rest of a wave."""

READ_S: Final = 0.05
"""Seconds that a client waits for something to read; there may be nothing."""

EXPECTED: Final = (ContradaError, ConnectionError, StopAsyncIteration, TimeoutError)
"""The errors of a client with a reset connection, or with a log that another client reads."""

PATTERN: Final = ct.Pattern("every k any -> k any by k")


class Life:
    """One client; `chance` decides all that it does.

    Many publish under one name, one after the other: of a name the last number is known for long.
    """

    def __init__(self, addresses: Sequence[str], publisher: str, chance: random.Random) -> None:
        self._addresses, self._publisher, self._chance = addresses, publisher, chance

    async def live(self) -> None:
        """Runs one client from its connection to its end."""
        with suppress(*EXPECTED):
            address = self._chance.choice(self._addresses)
            client = TcpService(address, publisher=self._publisher, reconnect=False)
            async with client as service:
                doing = [
                    *(self._read, self._read_and_update, self._publish, self._offer),
                    *(self._watch, self._log, self._follow),
                ]
                self._chance.shuffle(doing)
                for each in doing[: self._chance.randrange(1, len(doing))]:
                    await each(service)
                if self._chance.random() < 0.3:
                    reset(service)

    def _filter(self) -> str:
        k = self._chance.randrange(50)
        shapes = ("k = {}", "k < {}", "k = {} and n >= 2", "k > {} and text prefix 'te'")
        return self._chance.choice(shapes).format(k)

    async def _read(self, service: TcpService) -> None:
        events = await service.subscribe(self._filter(), when_full=self._when_full())
        await self._publish(service)
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_S):
                await anext(events)
        if self._chance.random() < 0.5:
            await events.unsubscribe()

    def _when_full(self) -> WhenFull:
        return self._chance.choice(("block", "drop-oldest", "drop-newest", "disconnect"))

    async def _read_and_update(self, service: TcpService) -> None:
        events = await service.subscribe(self._filter())
        for _ in range(3):
            await events.update(self._filter())

    async def _publish(self, service: TcpService) -> None:
        chance = self._chance
        items = [{"k": chance.randrange(50), "n": n, "text": "text"} for n in range(20)]
        await service.publish_batch(items)
        await service.publish({"k": 1, "log": chance.choice(LOGS)}, delivery="reliable")
        if chance.random() < 0.1:
            reset(service)

    async def _offer(self, service: TcpService) -> None:
        offer = await service.advertise(ct.Advertisement(self._filter()))
        if self._chance.random() < 0.5:
            await offer.unadvertise()

    async def _follow(self, service: TcpService) -> None:
        async with service.advertisements() as offers, service.advertise(self._filter()):
            await anext(offers)

    async def _watch(self, service: TcpService) -> None:
        async with service.subscribe(PATTERN):
            await self._publish(service)

    async def _log(self, service: TcpService) -> None:
        name = self._chance.choice(LOGS)
        async with service.subscribe(f"log = '{name}'", durable=name) as kept:
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_S):
                    async for each in kept:
                        await kept.acknowledge(each.position)


def reset(service: TcpService) -> None:
    """Ends a connection by a reset, as a kill of its process may."""
    wire = service.reconnection._wire
    if wire is not None and wire._transport is not None:
        raw: socket.socket = wire._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.abort()


async def wave(addresses: Sequence[str], seed: int, count: int = LIVES_PER_WAVE) -> None:
    """Runs a wave of clients, some at a time, and then ends the durable subscriptions."""
    chance = random.Random(seed)
    left = iter(range(count))

    async def live_on(publisher: str) -> None:
        for _ in left:
            await Life(addresses, publisher, random.Random(chance.random())).live()

    async with asyncio.TaskGroup() as tasks:
        for each in range(LIVES_AT_ONCE):
            tasks.create_task(live_on(f"desk {each}"))
    for address in addresses:
        async with connect(address) as service:
            for name in LOGS:
                with suppress(ContradaError):  # It was made at the other broker, or nowhere.
                    await service.unsubscribe(name)


async def seen(address: str) -> dict[str, Any]:
    """Returns the tables of a broker, without counters."""
    async with TcpService(address) as service:
        told = await service.broker_statistics()
        held = await service.inspection()
    delivery = {each: told["delivery"].get(each, 0) for each in ("standing", "held", "early")}
    names = ("connections", "links", "subscriptions", "held_bytes")
    return {name: told[name] for name in names} | delivery | dict(held.counts)


async def at_rest(look: Callable[[], Awaitable[Any]], before: Any) -> None:
    """Waits until the tables are as before. AssertionError has the difference."""
    until_s = time.monotonic() + REST_S_MAX
    while (now := await look()) != before:
        assert time.monotonic() < until_s, f"there is left {now}, and was {before}"
        await asyncio.sleep(0.05)


@contextmanager
def two_brokers(folder: Path) -> Iterator[list[tuple[int, str]]]:
    """The processes of two brokers that are linked, and their addresses."""
    with ExitStack() as stack:
        found: list[tuple[int, str]] = []
        for name in ("a", "b"):
            links = [f"--neighbour={address}" for _, address in found]
            store = ("--store", str(folder / f"{name}.db"))
            command = [*CONTRADA, "serve", "--port", "0", "--name", name, *store, *links]
            broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(broker.wait)
            stack.callback(broker.terminate)
            assert broker.stdout is not None
            found.append((broker.pid, broker.stdout.readline().strip()))
        yield found


async def churn(seconds: float, brokers: Sequence[tuple[int, str]]) -> list[list[int]]:
    """Waves for so long; the memory of each broker after each of those that are measured, in KB."""
    addresses = [address for _, address in brokers]

    async def look() -> Any:
        return [await seen(each) for each in addresses]

    await wave(addresses, 0)
    await asyncio.sleep(1)
    before = await look()
    began_s = time.monotonic()
    memory: list[list[int]] = [[] for _ in brokers]
    number = 0
    while time.monotonic() - began_s < seconds or number < WARM_WAVES + MEASURED_WAVES:
        number += 1
        await wave(addresses, number)
        await at_rest(look, before)
        held = [rss_kb(pid) for pid, _ in brokers]
        if number > WARM_WAVES:
            for samples, each in zip(memory, held, strict=True):
                samples.append(each)
        lives, used_s = number * LIVES_PER_WAVE, time.monotonic() - began_s
        print(f"{used_s:.0f} s, {lives} lives, {held} KB", flush=True)  # noqa: T201 - a command
    for samples in memory:
        later = samples[len(samples) // 2 :]
        rise = f"{slope(later):+.1f} KB a wave over the last {len(later)} waves"
        print(rise, flush=True)  # noqa: T201 - a command
    return memory


def main(seconds: float) -> None:
    """Runs it, and fails where memory grows."""
    with TemporaryDirectory() as folder, two_brokers(Path(folder)) as brokers:
        memory = asyncio.run(churn(seconds, brokers))
    if not all(map(is_flat, memory)):
        sys.exit("memory grows")


if __name__ == "__main__":
    main(float(sys.argv[1]))
