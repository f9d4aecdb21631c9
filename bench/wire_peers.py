"""Messaging systems that carry the same load: one publisher, one server, one subscriber.

Each of the three is a process of its own, on loopback. The subscriber tells the publisher by a pipe
how many it has, so that at most `OUTSTANDING` are on their way with every system. All but Contrada
carry JSON, encoded and decoded in Python, and select by a subject or topic only. A system whose
server or client library is not installed is left out.

`python -m bench.wire_peers publish|subscribe NAME ADDRESS ...` is what the two ends run.
"""

import asyncio
import importlib.util
import itertools
import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, Final

OUTSTANDING: Final = 5_000
TOLD_EVERY: Final = 250
PER_SECOND: Final = 1_000
PER_CONNECTION: Final = 10_000
WARM: Final = 50_000
"""What is not measured, so that everything is loaded, compiled and connected."""
CHUNK: Final = 250
TOPIC: Final = "market"
FILTER: Final = 'symbol = "S7" and price < 1000'
_COUNT: Final = 8

Item = dict[str, Any]


def item(number: int) -> Item:
    """Of six attributes and about 200 bytes; it says when it was made."""
    return {
        "kind": "finance/exchanges/stock/trade",
        "symbol": "S7",
        "price": 100.0 + number % 100,
        "venue": "the exchange of the north, main floor" + "." * 40,
        "number": number,
        "sent": time.monotonic(),
    }


class Window:
    """How many the publisher may be ahead, as the subscriber tells."""

    chunk = CHUNK
    """How many are published in one go."""

    def __init__(self, pipe: int, warm: int) -> None:
        self._pipe = pipe
        self._taken = 0
        self._warm = warm
        self.began: dict[str, float] = {}
        os.set_blocking(pipe, False)

    def room(self, sent: int) -> int:
        """How many more may be sent now."""
        if sent == self._warm:
            self.began = _spent()
        try:
            while told := os.read(self._pipe, 4096):
                self._taken = int.from_bytes(told[-_COUNT:], "little")
        except BlockingIOError:
            pass
        return OUTSTANDING - (sent - self._taken)

    def wait(self, sent: int) -> None:
        """Until a chunk may be sent; blocks."""
        while self.room(sent) < self.chunk:
            select.select([self._pipe], [], [])

    async def ready(self, sent: int) -> None:
        """Until a chunk may be sent."""
        loop = asyncio.get_running_loop()
        while self.room(sent) < self.chunk:
            told = loop.create_future()
            loop.add_reader(self._pipe, _tell, told)
            await told
            loop.remove_reader(self._pipe)


class Pace(Window):
    """One by one, at `PER_SECOND`."""

    chunk = 1

    def __init__(self, pipe: int, warm: int) -> None:
        super().__init__(pipe, warm)
        self._began_s = time.monotonic()

    def _left_s(self, sent: int) -> float:
        self.room(sent)
        return max(0.0, self._began_s + sent / PER_SECOND - time.monotonic())

    def wait(self, sent: int) -> None:
        """Until it is time for the next."""
        time.sleep(self._left_s(sent))

    async def ready(self, sent: int) -> None:
        """Until it is time for the next."""
        await asyncio.sleep(self._left_s(sent))


@dataclass
class Taken:
    """What the subscriber has; tells it to the publisher, and knows when it has all."""

    pipe: int
    warm: int
    expected: int
    server: int
    done: Callable[[], object]
    count: int = 0
    began: dict[str, float] = field(default_factory=dict)
    delays_s: list[float] = field(default_factory=list)

    def take(self, found: Any) -> None:
        """One more, of which it looks at three attributes."""
        assert found["number"] == self.count and found["symbol"] == "S7"  # noqa: PT018
        self.delays_s.append(time.monotonic() - found["sent"])
        self.count += 1
        if self.count == self.warm:
            self.delays_s.clear()
            self.began = _spent(self.server)
        if self.count % TOLD_EVERY == 0:
            os.write(self.pipe, self.count.to_bytes(_COUNT, "little"))
        if self.count == self.expected:
            self.done()


class System(ABC):
    """A system to measure."""

    name: str
    modules: tuple[str, ...] = ()
    program: str = ""

    def is_installed(self) -> bool:
        """Whether it can be measured here."""
        return all(map(importlib.util.find_spec, self.modules)) and (
            not self.program or shutil.which(self.program) is not None
        )

    @abstractmethod
    def _command(self, port: int, folder: str) -> list[str]:
        """What starts the server at a port; it is ready when somebody listens there."""

    @abstractmethod
    def _publish(self, port: int, total: int, window: Window) -> None:
        """Publish so many, as fast as the window allows."""

    @abstractmethod
    def _subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        """Call `taken.take` with each, decoded, until it is done; `ready` once it is in force."""

    @contextmanager
    def server(self) -> Iterator[tuple[int, int, int]]:
        """A server for a while: the ports of publisher and subscriber, and its process."""
        with (
            TemporaryDirectory() as folder,
            _running(lambda port: self._command(port, folder)) as (port, process),
        ):
            yield port, port, process


@contextmanager
def _running(command: Callable[[int], list[str]]) -> Iterator[tuple[int, int]]:
    """A process for a while that listens at a port: the port, and its number."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command(port), stdout=quiet, stderr=quiet) as process:
        try:
            _wait_for(port)
            yield port, process.pid
        finally:
            process.terminate()


class Contrada(System):
    """Contrada, with a content filter, and perhaps many others that do not match."""

    def __init__(self, others: int = 0) -> None:
        self.name = f"contrada among {others:,}" if others else "contrada"
        self._others = others

    def _command(self, port: int, folder: str) -> list[str]:
        return [sys.executable, "-m", "contrada", "serve", "--port", str(port)]

    def _publish(self, port: int, total: int, window: Window) -> None:
        from contrada import connect

        async def run() -> None:
            async with connect(f"contrada://127.0.0.1:{port}") as service:
                tasks: set[asyncio.Task[int]] = set()
                if window.chunk == 1:
                    for number in range(total):
                        await window.ready(number)
                        await service.publish(item(number))
                    return
                for begin in range(0, total, window.chunk):
                    await window.ready(begin)
                    items = [item(number) for number in range(begin, begin + window.chunk)]
                    tasks.add(task := asyncio.create_task(service.publish_batch(items)))
                    task.add_done_callback(tasks.discard)
                    await asyncio.sleep(0)
                await asyncio.gather(*tasks)

        asyncio.run(run())

    def _subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        from contrada import connect

        async def run() -> None:
            async with AsyncExitStack() as stack:
                services = [
                    await stack.enter_async_context(connect(f"contrada://127.0.0.1:{port}"))
                    for _ in range(1 + self._others // PER_CONNECTION)
                ]
                for number in range(self._others):
                    service = services[number // PER_CONNECTION]
                    await service.subscribe(f'symbol = "N{number}"').open()
                events = await stack.enter_async_context(services[-1].subscribe(FILTER))
                done = asyncio.Event()
                taken.done = done.set
                ready()
                await self._read(events, taken, done)

        asyncio.run(run())

    async def _read(self, events: Any, taken: Taken, done: asyncio.Event) -> None:
        """With a handler."""
        task = asyncio.create_task(events.handle(taken.take))
        await done.wait()
        task.cancel()


class ContradaLoop(Contrada):
    """Contrada, read by `async for`."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "contrada, async for"

    async def _read(self, events: Any, taken: Taken, done: asyncio.Event) -> None:
        async for each in events:
            taken.take(each)
            if done.is_set():
                break


class ContradaLine(Contrada):
    """Contrada, through two brokers: the publisher is at one, the subscriber at the other."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "contrada, two brokers"

    @contextmanager
    def server(self) -> Iterator[tuple[int, int, int]]:
        """The brokers for a while."""
        north = [*self._command(0, "")[:-2], "--name", "north", "--port"]
        with _running(lambda port: [*north, str(port)]) as (first, process):
            to = f"contrada://127.0.0.1:{first}"
            south = [*north[:-2], "south", "--neighbour", to, "--port"]
            with _running(lambda port: [*south, str(port)]) as (second, _):
                yield first, second, process


class Nats(System):
    """nats-server and nats-py."""

    name = "nats"
    modules = ("nats",)
    program = "nats-server"

    def _command(self, port: int, folder: str) -> list[str]:
        return ["nats-server", "--addr", "127.0.0.1", "--port", str(port)]

    def _publish(self, port: int, total: int, window: Window) -> None:
        import nats

        async def run() -> None:
            client = await nats.connect(f"nats://127.0.0.1:{port}")
            for begin in range(0, total, window.chunk):
                await window.ready(begin)
                for number in range(begin, begin + window.chunk):
                    await client.publish(TOPIC, json.dumps(item(number)).encode())
            await client.flush()
            await window.ready(total)
            await client.close()

        asyncio.run(run())

    def _subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        import nats

        async def run() -> None:
            client = await nats.connect(f"nats://127.0.0.1:{port}")
            done = asyncio.Event()
            taken.done = done.set

            async def take(message: Any) -> None:
                taken.take(json.loads(message.data))

            await client.subscribe(TOPIC, cb=take, pending_msgs_limit=-1, pending_bytes_limit=-1)
            await client.flush()
            ready()
            await done.wait()
            await client.close()

        asyncio.run(run())


class Mosquitto(System):
    """mosquitto and paho."""

    name = "mosquitto"
    modules = ("paho",)
    program = "mosquitto"

    def _command(self, port: int, folder: str) -> list[str]:
        with open(f"{folder}/it.conf", "w", encoding="utf-8") as file:
            file.write(
                f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"
                "set_tcp_nodelay true\n"
            )
        return ["mosquitto", "-c", file.name]

    def _client(self) -> Any:
        from paho.mqtt import client, enums

        return client.Client(enums.CallbackAPIVersion.VERSION2)

    def _publish(self, port: int, total: int, window: Window) -> None:
        client = self._client()
        client.connect("127.0.0.1", port)
        client.loop_start()
        for begin in range(0, total, window.chunk):
            window.wait(begin)
            for number in range(begin, begin + window.chunk):
                client.publish(TOPIC, json.dumps(item(number)).encode())
        window.wait(total)
        client.loop_stop()

    def _subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        client = self._client()
        taken.done = client.disconnect
        client.on_message = lambda _c, _u, message: taken.take(json.loads(message.payload))
        client.on_subscribe = lambda *_: ready()
        client.on_connect = lambda *_: client.subscribe(TOPIC)
        client.connect("127.0.0.1", port)
        client.loop_forever()


class Redis(System):
    """redis-server and redis-py, publishing in pipelines."""

    name = "redis"
    modules = ("redis",)
    program = "redis-server"

    def _command(self, port: int, folder: str) -> list[str]:
        return ["redis-server", "--port", str(port), "--save", "", "--dir", folder]

    def _publish(self, port: int, total: int, window: Window) -> None:
        import redis

        client = redis.Redis(port=port)
        for begin in range(0, total, window.chunk):
            window.wait(begin)
            pipeline = client.pipeline(transaction=False)
            for number in range(begin, begin + window.chunk):
                pipeline.publish(TOPIC, json.dumps(item(number)).encode())
            pipeline.execute()

    def _subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        import redis

        client: Any = redis.Redis(port=port)
        messages = client.pubsub(ignore_subscribe_messages=False)
        messages.subscribe(TOPIC)
        ended: list[bool] = []
        taken.done = lambda: ended.append(True)
        for message in messages.listen():
            if message["type"] == "subscribe":
                ready()
                continue
            taken.take(json.loads(message["data"]))
            if ended:
                break


class Zenoh(System):
    """A router of zenoh, and its clients."""

    name = "zenoh"
    modules = ("zenoh",)

    def _command(self, port: int, folder: str) -> list[str]:
        program = (
            "import time, zenoh; config = zenoh.Config();"
            "config.insert_json5('mode', '\"router\"');"
            f"config.insert_json5('listen/endpoints', '[\"tcp/127.0.0.1:{port}\"]');"
            "config.insert_json5('scouting/multicast/enabled', 'false');"
            "session = zenoh.open(config); time.sleep(1e6)"
        )
        return [sys.executable, "-c", program]

    def _session(self, port: int) -> Any:
        import zenoh

        config = zenoh.Config()
        config.insert_json5("mode", '"client"')
        config.insert_json5("connect/endpoints", f'["tcp/127.0.0.1:{port}"]')
        config.insert_json5("scouting/multicast/enabled", "false")
        return zenoh.open(config)

    def _publish(self, port: int, total: int, window: Window) -> None:
        import zenoh

        session = self._session(port)
        publisher = session.declare_publisher(
            TOPIC, congestion_control=zenoh.CongestionControl.BLOCK
        )
        for begin in range(0, total, window.chunk):
            window.wait(begin)
            for number in range(begin, begin + window.chunk):
                publisher.put(json.dumps(item(number)).encode())
        window.wait(total)
        session.close()

    def _subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        session = self._session(port)
        done = threading.Event()
        taken.done = done.set

        def take(sample: Any) -> None:
            taken.take(json.loads(sample.payload.to_bytes()))

        session.declare_subscriber(TOPIC, take)
        ready()
        done.wait()
        session.close()


PEERS: Final = (Nats(), Mosquitto(), Redis(), Zenoh())
SYSTEMS: Final[dict[str, System]] = {
    each.name: each
    for each in (
        Contrada(),
        ContradaLoop(),
        ContradaLine(),
        Contrada(1_000),
        Contrada(100_000),
        *PEERS,
    )
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run: notifications a second, the processor's seconds for each in each process, and how
    long half of them took at most from publisher to subscriber.
    """

    per_second: float
    publisher_s: float
    server_s: float
    subscriber_s: float
    delay_s: float


def run(system: System, total: int, role: str = "publish") -> Run:
    """Take a load from end to end, as fast as it goes, or at a pace."""
    told, telling = os.pipe()
    warm = WARM if role == "publish" else PER_SECOND
    with system.server() as (port, other, server):
        subscriber = _end("subscribe", system, other, [warm, total, server], telling)
        assert subscriber.stdout is not None
        if subscriber.stdout.readline() != "ready\n":
            raise RuntimeError(f"{system.name}: no subscriber; see what it says above")
        publisher = _end(role, system, port, [warm, total, 0], told)
        sent, got = (
            json.loads(each.communicate(timeout=600)[0]) for each in (publisher, subscriber)
        )
    for each in (told, telling):
        os.close(each)
    return Run(
        total / got["clock"],
        sent["own"] / total,
        got["server"] / total,
        got["own"] / total,
        got["delay_s"],
    )


def _end(
    role: str, system: System, port: int, counts: list[int], pipe: int
) -> "subprocess.Popen[str]":
    """A publisher or a subscriber, in a process of its own."""
    about = [role, system.name, str(port), *map(str, counts), str(pipe)]
    command = [sys.executable, "-m", "bench.wire_peers", *about]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[pipe])


def _tell(told: "asyncio.Future[None]") -> None:
    if not told.done():
        told.set_result(None)


def _wait_for(port: int) -> None:
    for _ in itertools.count():
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return


def _spent(server: int = 0) -> dict[str, float]:
    """Seconds so far: of the clock, of this process, and of the server."""
    return {
        "clock": time.monotonic(),
        "own": time.process_time(),
        "server": _cpu_s(server) if server else 0.0,
    }


def _cpu_s(process: int) -> float:
    with open(f"/proc/{process}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(role: str, name: str, port: str, warm: str, total: str, server: str, pipe: str) -> None:
    """One end of a run; prints one line of JSON when it is done."""
    system, count = SYSTEMS[name], int(warm) + int(total)
    report: dict[str, float] = {}
    if role == "subscribe":
        taken = Taken(int(pipe), int(warm), count, int(server), lambda: None)
        system._subscribe(int(port), taken, lambda: print("ready", flush=True))
        began, report["delay_s"] = taken.began, statistics.median(taken.delays_s)
    else:
        window = (Pace if role == "pace" else Window)(int(pipe), int(warm))
        system._publish(int(port), count, window)
        began = window.began
    ended = _spent(int(server))
    print(json.dumps(report | {each: ended[each] - began[each] for each in ended}))


if __name__ == "__main__":
    main(*sys.argv[1:])
