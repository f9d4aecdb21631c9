"""The load of `bench.wire_peers`: notifications, pacing, and the measuring of processes.

Publisher, server and subscriber are each a process of its own, on loopback. The subscriber reports
its count to the publisher by a pipe, so that at most `OUTSTANDING` are in flight with every system.
Processor time is counted in all three processes, after `WARM` notifications.
"""

import asyncio
import importlib.util
import json
import os
import random
import select
import shutil
import socket
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

OUTSTANDING: Final = 5_000
REPORTED_EVERY: Final = 250
PER_SECOND: Final = 1_000
WARM: Final = 50_000
"""Notifications before the measured ones, so that everything is loaded and connected."""
WARM_CONFIRMED: Final = 500
CHUNK: Final = 100
TOPIC: Final = "market"
PORTS: Final = (20_000, 32_000)
_COUNT: Final = 8

Item: TypeAlias = dict[str, Any]
Publish: TypeAlias = Callable[[Item], Awaitable[object]]
Read: TypeAlias = Callable[[], Awaitable[None]]


def item(number: int) -> Item:
    """Returns a notification of six attributes and about 200 bytes, with its time of creation."""
    return {
        "kind": "finance/exchanges/stock/trade",
        "symbol": "S7",
        "price": 100.0 + number % 100,
        "venue": "the exchange of the north, main floor" + "." * 40,
        "number": number,
        "sent": time.monotonic(),
    }


def run_client(client: Coroutine[Any, Any, None]) -> None:
    """Runs a client on the event loop of uvloop where it is installed."""
    factory = None
    if importlib.util.find_spec("uvloop") is not None:
        from uvloop import new_event_loop  # type: ignore[import-not-found, unused-ignore]

        factory = new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(client)


class Window:
    """The number of notifications that the publisher may be ahead of its slowest subscriber."""

    chunk = CHUNK
    """Notifications that are published together."""

    def __init__(self, pipes: Sequence[int], warm: int) -> None:
        self._taken = dict.fromkeys(pipes, 0)
        self._warm = warm
        self.began: dict[str, float] = {}
        for pipe in pipes:
            os.set_blocking(pipe, False)

    def room(self, sent: int) -> int:
        """Returns how many more may be sent now."""
        if sent == self._warm:
            self.began = spent()
        for pipe in self._taken:
            try:
                while report := os.read(pipe, 4096):
                    self._taken[pipe] = int.from_bytes(report[-_COUNT:], "little")
            except BlockingIOError:
                pass
        return OUTSTANDING - (sent - min(self._taken.values()))

    def wait(self, sent: int) -> None:
        """Blocks until a chunk may be sent."""
        while self.room(sent) < self.chunk:
            select.select([self._slowest()], [], [])

    async def ready(self, sent: int) -> None:
        """Waits until a chunk may be sent."""
        loop = asyncio.get_running_loop()
        while self.room(sent) < self.chunk:
            reported, slowest = asyncio.Event(), self._slowest()
            loop.add_reader(slowest, reported.set)
            await reported.wait()
            loop.remove_reader(slowest)

    def _slowest(self) -> int:
        """Returns the pipe of the subscriber that has reported the least."""
        return min(self._taken, key=self._taken.__getitem__)


class Pace(Window):
    """One notification at a time, `PER_SECOND`."""

    chunk = 1

    def __init__(self, pipes: Sequence[int], warm: int) -> None:
        super().__init__(pipes, warm)
        self._began_s = time.monotonic()

    def _left_s(self, sent: int) -> float:
        self.room(sent)
        return max(0.0, self._began_s + sent / PER_SECOND - time.monotonic())

    def wait(self, sent: int) -> None:
        """Blocks until the time of the next."""
        time.sleep(self._left_s(sent))

    async def ready(self, sent: int) -> None:
        """Waits until the time of the next."""
        await asyncio.sleep(self._left_s(sent))


@dataclass
class Taken:
    """The subscriber's count, which it reports to the publisher, and its delays."""

    pipe: int
    warm: int
    expected: int
    server: int
    done: Callable[[], object]
    count: int = 0
    began: dict[str, float] = field(default_factory=dict)
    delays_s: list[float] = field(default_factory=list)

    def take(self, found: Any) -> None:
        """Counts one more, and reads three of its attributes."""
        assert found["number"] == self.count and found["symbol"] == "S7"  # noqa: PT018
        self.delays_s.append(time.monotonic() - found["sent"])
        self.count += 1
        if self.count == self.warm:
            self.delays_s.clear()
            self.began = spent(self.server)
        if self.count % REPORTED_EVERY == 0:
            os.write(self.pipe, self.count.to_bytes(_COUNT, "little"))
        if self.count == self.expected:
            self.done()


class System(ABC):
    """A messaging system: its server's command, and its clients."""

    name: str
    modules: tuple[str, ...] = ()
    program: str = ""

    def is_installed(self) -> bool:
        """Whether it can be measured here."""
        return all(map(importlib.util.find_spec, self.modules)) and (
            not self.program or find_program(self.program) is not None
        )

    @abstractmethod
    def command(self, port: int, folder: str) -> list[str]:
        """Returns the command of a server, which is ready when it listens at the port."""

    @abstractmethod
    def publish(self, port: int, total: int, window: Window) -> None:
        """Publishes so many, as fast as the window allows."""

    @abstractmethod
    def subscribe(self, port: int, taken: Taken, ready: Callable[[], None]) -> None:
        """Calls `taken.take` with each, decoded, until it is done; `ready` once it is in force."""

    def subscribe_many(self, port: int, count: int, ready: Callable[[], None]) -> None:
        """Calls `ready` once connected, then puts so many subscriptions of one symbol in force."""
        raise NotImplementedError(f"{self.name} has no measurement of many subscriptions")

    def durable_command(self, port: int, folder: str) -> list[str]:
        """Returns the command of a server that confirms only what it has synced to the disk."""
        raise NotImplementedError(f"{self.name} confirms no publication that is on the disk")

    def confirmed(self, port: int) -> AbstractAsyncContextManager[Publish]:
        """Yields a function that publishes one notification and waits for its confirmation."""
        raise NotImplementedError(f"{self.name} confirms no publication that is on the disk")

    def stored(self, port: int, count: int) -> AbstractAsyncContextManager[Read]:
        """Yields, once so many are on the disk, a function that reads them all.

        The reader acknowledges all of them, in hundreds or by the client library's own rule.
        """
        raise NotImplementedError(f"{self.name} keeps no publications on the disk")

    @contextmanager
    def server(self, *, durable: bool = False) -> Iterator[tuple[int, int, int]]:
        """Runs a server; yields the ports of publisher and subscriber, and its process."""
        command = self.durable_command if durable else self.command
        with (
            TemporaryDirectory() as folder,
            running(lambda port: command(port, folder)) as (port, process),
        ):
            yield port, port, process


def find_program(name: str) -> str | None:
    """Returns the path of a server's program, first among those of this Python's packages."""
    beside = Path(sys.executable).parent
    return shutil.which(name, path=str(beside)) or shutil.which(name)


@contextmanager
def running(command: Callable[[int], list[str]]) -> Iterator[tuple[int, int]]:
    """Runs a process that listens at a port; yields the port, and the number of the process."""
    port = _free_port()
    first, *words = command(port)
    quiet = subprocess.DEVNULL
    program = [find_program(first) or first, *words]
    with subprocess.Popen(program, stdout=quiet, stderr=quiet) as process:
        try:
            _wait_for(port, process)
            yield port, process.pid
        finally:
            process.terminate()


@dataclass(frozen=True, slots=True)
class Run:
    """One run: deliveries per second, processor seconds of each process for a delivery, and the
    median delay from publisher to subscriber.
    """

    per_second: float
    publisher_s: float
    server_s: float
    subscriber_s: float
    delay_s: float

    @property
    def sum_s(self) -> float:
        """Processor seconds of all three processes."""
        return self.publisher_s + self.server_s + self.subscriber_s


def run(system: System, total: int, role: str = "publish", readers: int = 1) -> Run:
    """Runs a load from end to end, without pauses or at a given rate.

    Each of the readers is a process that gets all notifications. The rate and the processor time
    count a notification once for each of them.
    """
    pipes = [os.pipe() for _ in range(readers)]
    warm = WARM // readers if role == "publish" else PER_SECOND
    counts = [warm, total]
    with system.server() as (port, other, server):
        subscribers = [
            _client("subscribe", system, other, [*counts, server], reporting)
            for _, reporting in pipes
        ]
        for each in subscribers:
            assert each.stdout is not None
            if each.stdout.readline() != "ready\n":
                raise RuntimeError(f"{system.name}: its subscriber failed, for the reason above")
        publisher = _client(role, system, port, [*counts, 0], *(reports for reports, _ in pipes))
        sent, *got = map(_report, (publisher, *subscribers))
    for pipe in chain.from_iterable(pipes):
        os.close(pipe)
    deliveries = total * readers
    return Run(
        deliveries / max(each["clock"] for each in got),
        sent["own"] / deliveries,
        max(each["server"] for each in got) / deliveries,
        sum(each["own"] for each in got) / deliveries,
        statistics.median(each["delay_s"] for each in got),
    )


def run_alone(system: System, total: int, role: str, together: int) -> Run:
    """Runs a client without another: of publications on the disk, or of many subscriptions."""
    with system.server(durable=role in ("confirm", "read")) as (port, _, server):
        client = _client(role, system, port, [together, total, server])
        spent_s = _report(client)
    rate = total / spent_s["clock"]
    return Run(rate, spent_s["own"] / total, spent_s["server"] / total, 0.0, 0.0)


def _client(
    role: str, system: System, port: int, counts: list[int], *pipes: int
) -> "subprocess.Popen[str]":
    """Starts a client in a process of its own."""
    words = [role, system.name, str(port), *map(str, counts), *map(str, pipes)]
    command = [sys.executable, "-m", "bench.wire_peers", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=pipes)


def _report(client: "subprocess.Popen[str]") -> dict[str, float]:
    found: dict[str, float] = json.loads(client.communicate(timeout=600)[0])
    return found


def _free_port() -> int:
    """Returns a port of no other listener, outside the range that the system gives to others."""
    while True:
        port = random.randrange(*PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    raise RuntimeError(f"ended before it listened: {process.args!r}")


def spent(server: int = 0) -> dict[str, float]:
    """Returns seconds so far: of the clock, of this process, and of the server."""
    return {
        "clock": time.monotonic(),
        "own": time.process_time(),
        "server": _cpu_s(server) if server else 0.0,
    }


def _cpu_s(process: int) -> float:
    """Returns the processor seconds of all threads of a process, finished ones too, in ns steps.

    Linux derives the clock of a process from its number: see clock_getcpuclockid(3).
    """
    return time.clock_gettime(~process << 3 | 2)


def publish_or_subscribe(
    system: System, role: str, counts: list[int], port: int, pipes: list[int]
) -> None:
    """Runs one end of `run`; prints one line of JSON when it is done."""
    warm, total, server = counts
    report: dict[str, float] = {}
    if role == "subscribe":
        (pipe,) = pipes
        taken = Taken(pipe, warm, warm + total, server, lambda: None)
        system.subscribe(port, taken, lambda: print("ready", flush=True))
        began, report["delay_s"] = taken.began, statistics.median(taken.delays_s)
    else:
        window = (Pace if role == "pace" else Window)(pipes, warm)
        system.publish(port, warm + total, window)
        began = window.began
    _print_spent(began, server, report)


def run_client_alone(system: System, role: str, counts: list[int], port: int) -> None:
    """Runs the client of `run_alone`; prints one line of JSON when it is done."""
    together, total, server = counts
    if role == "confirm":
        run_client(_confirm(system, port, total, together, server))
    elif role == "read":
        run_client(_read(system, port, total, server))
    else:
        began: dict[str, float] = {}
        system.subscribe_many(port, total, lambda: began.update(spent(server)))
        _print_spent(began, server, {})


async def _confirm(system: System, port: int, total: int, together: int, server: int) -> None:
    """Publishes by so many tasks, each of which waits for the confirmation of its last."""
    async with system.confirmed(port) as publish:

        async def publish_from(first: int, end: int) -> None:
            for number in range(first, end, together):
                await publish(item(number))

        async def publish_all(end: int) -> None:
            await asyncio.gather(*(publish_from(first, end) for first in range(together)))

        await publish_all(WARM_CONFIRMED)
        began = spent(server)
        await publish_all(total)
        _print_spent(began, server, {})


async def _read(system: System, port: int, total: int, server: int) -> None:
    """Reads and acknowledges so many that are on the disk."""
    async with system.stored(port, total) as read:
        began = spent(server)
        await read()
        _print_spent(began, server, {})


def _print_spent(began: dict[str, float], server: int, report: dict[str, float]) -> None:
    ended = spent(server)
    print(json.dumps(report | {each: ended[each] - began[each] for each in ended}))
