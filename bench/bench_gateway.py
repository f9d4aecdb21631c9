"""The HTTP port of a broker process: the rate of published events, and the cost of streams.

Figures of the same load at peers: see `bench.http_peers`.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from typing import Final

from bench.crowd import Process, allow_files
from bench.harness import Figure, Measurement, figure
from bench.http_peers import SERVERS, HttpRun, loaded

CONNECTIONS: Final = 4
EVENTS: Final = 20_000
SAMPLES: Final = 5
STREAMS: Final = 1_000
WARM: Final = 100
LOADING_S: Final = 8.0
"""Seconds in which a starting broker loads its kernels."""

SERVE: Final = (
    "-c",
    "from contrada.cli import main; main()",
    "serve",
    "--port=0",
    "--http=0",
    "--store=memory:",
)


@contextmanager
def gateway() -> Iterator[Process]:
    """Yields a broker process with an HTTP port."""
    with subprocess.Popen(
        [sys.executable, *SERVE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            address = process.stdout.readline().strip()
            time.sleep(LOADING_S)
            yield Process(process.pid, address)
        finally:
            process.terminate()


def ingest(batch: int) -> Measurement:
    """Events per second, in batches over kept connections."""
    numbers = map(str, (CONNECTIONS, batch, EVENTS))
    with (
        gateway() as process,
        subprocess.Popen(
            [sys.executable, "-m", "bench.http_sender", str(process.port), *numbers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as sender,
    ):
        assert sender.stdin is not None
        assert sender.stdout is not None
        sender.stdout.readline()
        took_s = []
        for _ in range(1 + SAMPLES):
            sender.stdin.write("\n")
            sender.stdin.flush()
            took_s.append(float(sender.stdout.readline()))
        sender.stdin.close()
    return Measurement([EVENTS / each for each in took_s[1:]])


@figure(
    name="http/ingest batches of 100",
    unit="events/s",
    workload="CloudEvents of 240 bytes by POST in batches of 100 over 4 kept connections",
    at_least=30_000,
    counts="clock",
)
def ingest_hundreds() -> Measurement:
    return ingest(100)


@figure(
    name="http/ingest batches of 500",
    unit="events/s",
    workload="the same in batches of 500",
    at_least=30_000,
    counts="clock",
)
def ingest_five_hundreds() -> Measurement:
    return ingest(500)


def streaming(port: int, number: int) -> socket.socket:
    """Returns a client with an event stream that has begun."""
    sock = socket.create_connection(("127.0.0.1", port))
    path = f"/subscribe?filter=data.to+%3D+{number}+and+data.price+%3E+3"
    sock.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: */*\r\n\r\n".encode())
    answer = b""
    while b"retry:" not in answer:
        answer += sock.recv(4096)
    return sock


@figure(
    name="http/idle event stream",
    unit="KB",
    workload="memory of the broker for each of 1,000 idle event streams with a filter of their own",
    at_most=60,
)
def idle_streams() -> Measurement:
    allow_files(STREAMS + WARM)
    samples = []
    for _ in range(3):
        with gateway() as process, ExitStack() as stack:
            for number in range(WARM):
                stack.enter_context(closing(streaming(process.port, number)))
            before = process.rss_bytes
            for number in range(WARM, WARM + STREAMS):
                stack.enter_context(closing(streaming(process.port, number)))
            samples.append((process.rss_bytes - before) / STREAMS / 1024)
    return Measurement(samples)


CARRIED: Final = {1: 4_000, 100: 40_000}
"""Events of a run, by the number of events in a request."""


@cache
def carried(batch: int) -> dict[str, list[HttpRun]]:
    """Runs the load in turns at all installed servers with such batches, once more to warm up."""
    servers = [each for each in SERVERS if each.is_installed()]
    runs: dict[str, list[HttpRun]] = {
        each.name: [] for each in servers if batch == 1 or each.has_batches
    }
    with ExitStack() as stack:
        loads = {
            each.name: stack.enter_context(loaded(each)) for each in servers if each.name in runs
        }
        for _ in range(1 + SAMPLES):
            for name, load in loads.items():
                runs[name].append(load.run(CARRIED[batch], batch))
    return {name: of[1:] for name, of in runs.items()}


def beside_peers(name: str, batch: int, number: str, unit: str, workload: str) -> Figure:
    """Returns the figure of a number of `HttpRun`."""

    @figure(
        name=f"http/{name}",
        unit=unit,
        workload=workload,
        counts="clock" if number == "per_second" else None,
    )
    def measured() -> Measurement:
        samples = {
            each: [getattr(one, number) for one in some] for each, some in carried(batch).items()
        }
        return measured.beside(samples.pop("contrada"), samples)

    return measured


SINGLE: Final = (
    "CloudEvents of 260 bytes, one in a POST, over 4 kept connections, read by one stream of"
    " server-sent events"
)

single = beside_peers("event single", 1, "server_s", "us", f"server, for an event: {SINGLE}")
single_rate = beside_peers("event single-rate", 1, "per_second", "events/s", f"the same: {SINGLE}")
hundred = beside_peers(
    "event batch", 100, "server_s", "us", "server, for an event: the same, 100 in a POST"
)
hundred_rate = beside_peers(
    "event batch-rate", 100, "per_second", "events/s", "the same, 100 in a POST"
)
