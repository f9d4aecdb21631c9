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
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Final

OUTSTANDING: Final = 5_000
TOLD_EVERY: Final = 250
CHUNK: Final = 250
TOPIC: Final = "market"
FILTER: Final = 'symbol = "S7" and price < 1000'
_COUNT: Final = 8

Item = dict[str, Any]


def item(number: int) -> Item:
    """Of six attributes and about 200 bytes."""
    return {
        "kind": "finance/exchanges/stock/trade",
        "symbol": "S7",
        "price": 100.0 + number % 100,
        "venue": "the exchange of the north, main floor" + "." * 40,
        "number": number,
        "sent": 0.0,
    }


class Window:
    """How many the publisher may be ahead, as the subscriber tells."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._taken = 0
        os.set_blocking(pipe, False)

    def room(self, sent: int) -> int:
        """How many more may be sent now."""
        try:
            while told := os.read(self._pipe, 4096):
                self._taken = int.from_bytes(told[-_COUNT:], "little")
        except BlockingIOError:
            pass
        return OUTSTANDING - (sent - self._taken)

    def wait(self, sent: int) -> None:
        """Until a chunk may be sent; blocks."""
        while self.room(sent) < CHUNK:
            select.select([self._pipe], [], [])

    async def ready(self, sent: int) -> None:
        """Until a chunk may be sent."""
        loop = asyncio.get_running_loop()
        while self.room(sent) < CHUNK:
            told = loop.create_future()
            loop.add_reader(self._pipe, _tell, told)
            await told
            loop.remove_reader(self._pipe)


@dataclass
class Taken:
    """What the subscriber has; tells it to the publisher, and knows when it has all."""

    pipe: int
    expected: int
    done: Callable[[], object]
    count: int = 0

    def take(self, found: Any) -> None:
        """One more, of which it looks at two attributes."""
        assert found["number"] == self.count and found["symbol"] == "S7"  # noqa: PT018
        self.count += 1
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
    def server(self) -> Iterator[tuple[int, int]]:
        """A server for a while: its port and its process."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with (
            TemporaryDirectory() as folder,
            subprocess.Popen(
                self._command(port, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as process,
        ):
            try:
                _wait_for(port)
                yield port, process.pid
            finally:
                process.terminate()


class Contrada(System):
    """Contrada, with a content filter."""

    name = "contrada"

    def _command(self, port: int, folder: str) -> list[str]:
        return [sys.executable, "-m", "contrada", "serve", "--port", str(port)]

    def _publish(self, port: int, total: int, window: Window) -> None:
        from contrada import connect

        async def run() -> None:
            async with connect(f"contrada://127.0.0.1:{port}") as service:
                tasks: set[asyncio.Task[int]] = set()
                for begin in range(0, total, CHUNK):
                    await window.ready(begin)
                    items = [item(number) for number in range(begin, begin + CHUNK)]
                    tasks.add(task := asyncio.create_task(service.publish_batch(items)))
                    task.add_done_callback(tasks.discard)
                    await asyncio.sleep(0)
                await asyncio.gather(*tasks)

        asyncio.run(run())

    def _subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        from contrada import connect

        async def run() -> None:
            async with (
                connect(f"contrada://127.0.0.1:{port}") as service,
                AsyncExitStack() as stack,
            ):
                events = await stack.enter_async_context(service.subscribe(FILTER))
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

    name = "contrada, async for"

    async def _read(self, events: Any, taken: Taken, done: asyncio.Event) -> None:
        async for each in events:
            taken.take(each)
            if done.is_set():
                break


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
            for begin in range(0, total, CHUNK):
                await window.ready(begin)
                for number in range(begin, begin + CHUNK):
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
        for begin in range(0, total, CHUNK):
            window.wait(begin)
            for number in range(begin, begin + CHUNK):
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
        for begin in range(0, total, CHUNK):
            window.wait(begin)
            pipeline = client.pipeline(transaction=False)
            for number in range(begin, begin + CHUNK):
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
        for begin in range(0, total, CHUNK):
            window.wait(begin)
            for number in range(begin, begin + CHUNK):
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


SYSTEMS: Final[dict[str, System]] = {
    each.name: each for each in (Contrada(), ContradaLoop(), Nats(), Mosquitto(), Redis(), Zenoh())
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run: notifications a second, and the processor's time for each in each process."""

    per_second: float
    publisher_us: float
    server_us: float
    subscriber_us: float


def run(system: System, total: int) -> Run:
    """Take a load from end to end."""
    told, telling = os.pipe()
    with system.server() as (port, server):
        end = [sys.executable, "-m", "bench.wire_peers"]
        about = [system.name, str(port), str(total)]
        subscriber = subprocess.Popen(
            [*end, "subscribe", *about, str(telling)],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[telling],
        )
        assert subscriber.stdout is not None
        assert subscriber.stdout.readline() == "ready\n"
        before_s = _cpu_s(server)
        publisher = subprocess.Popen(
            [*end, "publish", *about, str(told)],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[told],
        )
        reports = [json.loads(each.communicate(timeout=300)[0]) for each in (publisher, subscriber)]
        spent_s = _cpu_s(server) - before_s
    for each in (told, telling):
        os.close(each)
    began, ended = reports[0]["began_s"], reports[1]["ended_s"]
    return Run(
        total / (ended - began),
        1e6 * reports[0]["cpu_s"] / total,
        1e6 * spent_s / total,
        1e6 * reports[1]["cpu_s"] / total,
    )


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


def _cpu_s(process: int) -> float:
    with open(f"/proc/{process}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(role: str, name: str, port: str, total: str, pipe: str) -> None:
    """One end of a run; prints one line of JSON when it is done."""
    system, count = SYSTEMS[name], int(total)
    spent_s = 0.0
    if role == "publish":
        began_s, spent_s = time.monotonic(), time.process_time()
        system._publish(int(port), count, Window(int(pipe)))
    else:
        began_s = 0.0

        def ready() -> None:
            nonlocal spent_s
            spent_s = time.process_time()
            print("ready", flush=True)

        taken = Taken(int(pipe), count, lambda: None)
        system._subscribe(int(port), taken, ready)
    print(
        json.dumps(
            {
                "began_s": began_s,
                "ended_s": time.monotonic(),
                "cpu_s": time.process_time() - spent_s,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
