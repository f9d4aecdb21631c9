"""The cost of users and TLS for a broker: the same trips with and without, in turns of one run."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import tomlkit
import trustme

import contrada as ct
from bench.harness import Measurement, figure
from bench.trips import BATCH
from contrada.net.broker.users import UserSettings
from contrada.net.wire.tls import Tls
from contrada.net.wire.tokens import new_token
from contrada.service import Service

PRINCIPALS = 1_000
NOTIFICATIONS = 50_000
ROUNDS = 25
"""A round's time by the clock varies by a tenth: three processes share the machine."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Trip:
    """A broker, a publishing process, and a reader here."""

    broker: "subprocess.Popen[str]"
    publisher: "subprocess.Popen[str]"
    service: Service
    events: Any

    async def seconds(self) -> tuple[float, float]:
        """Of one round per notification: of the clock, and of the broker's processor."""
        assert self.publisher.stdin is not None
        assert self.publisher.stdout is not None
        begun, begun_cpu = perf_counter(), cpu_s(self.broker.pid)
        self.publisher.stdin.write(f"{NOTIFICATIONS}\n")
        self.publisher.stdin.flush()
        for _ in range(NOTIFICATIONS):
            await anext(self.events)
        spent = perf_counter() - begun, cpu_s(self.broker.pid) - begun_cpu
        assert self.publisher.stdout.readline() == "published\n"
        assert not self.events.statistics().dropped
        return spent[0] / NOTIFICATIONS, spent[1] / NOTIFICATIONS


def cpu_s(pid: int) -> float:
    """Seconds of the processor that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


@contextmanager
def process(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """One that ends with this."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, *words], stdin=pipe, stdout=pipe, text=True) as made:
        try:
            yield made
        finally:
            made.terminate()


def trip(
    stack: ExitStack, connections: int, flags: Sequence[str], access: Sequence[str], tls: object
) -> Trip:
    serve = ["-m", "contrada", "serve", "--port", "0", "--store", "memory:", *flags]
    broker = stack.enter_context(process(*serve))
    assert broker.stdout is not None
    address = broker.stdout.readline().strip()
    words = ["-m", "bench.guarded", address, str(connections), *access]
    publisher = stack.enter_context(process(*words))
    assert publisher.stdout is not None
    assert publisher.stdout.readline() == "connected\n"
    token = Path(access[0]).read_text("utf-8").split()[-1] if access and access[0] else ""
    service = ct.connect(address, token=token, tls=tls, reconnect=False)  # type: ignore[arg-type]
    return Trip(broker, publisher, service, service.subscribe("n >= 0"))


async def compared(trips: Sequence[Trip], what: int) -> list[list[float]]:
    """The rounds of each, in turns, each first in every other one; two rounds warm it."""
    for each in trips:
        await each.service.open()
        await each.events.open()
        for _ in range(2):
            await each.seconds()
    samples: list[list[float]] = [[] for _ in trips]
    turns = list(zip(trips, samples, strict=True))
    for _ in range(ROUNDS):
        for each, mine in turns:
            mine.append((await each.seconds())[what])
        turns.reverse()
    for each in trips:
        await each.service.aclose()
    return samples


def users(folder: Path) -> tuple[str, str]:
    """Files of PRINCIPALS users with publish filters of their own and one reader; of tokens."""
    names = [f"user{number}" for number in range(PRINCIPALS)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(new_token, [*names, "reader"]))
    publish = "symbol prefix 'S' and price > {}"
    settings = {
        name: UserSettings(token=record, publish=publish.format(-1 - number))
        for number, (name, (_, record)) in enumerate(zip(names, made, strict=False))
    }
    settings["reader"] = UserSettings(token=made[-1][1], subscribe="n any")
    file, tokens = folder / "users.toml", folder / "tokens"
    file.write_text(tomlkit.dumps({"users": msgspec.to_builtins(settings)}), "utf-8")
    tokens.write_text("\n".join(token for token, _ in made), "utf-8")
    return str(file), str(tokens)


def with_users(what: int) -> Measurement:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        file, tokens = users(Path(name))
        both = [
            trip(stack, PRINCIPALS, ["--users", file], [tokens], None),
            trip(stack, PRINCIPALS, [], [], None),
        ]
        guarded, free = asyncio.run(compared(both, what))
    if what:
        return Measurement(guarded, "without users", free)
    return Measurement([b / a for a, b in zip(guarded, free, strict=True)])


WORKLOAD = (
    f"{PRINCIPALS:,} connections, each of a user with a publish filter of its own, publish "
    f"batches of {BATCH} in turn; one other user reads all; in turns with a broker without users"
)


@figure(
    name="security/throughput",
    unit="of that without users",
    workload=WORKLOAD,
    at_least=0.95,
    counts="clock",
)
def throughput() -> Measurement:
    return with_users(0)


@figure(name="security/broker", unit="us", workload=f"processor of the broker: {WORKLOAD}")
def broker_cpu() -> Measurement:
    return with_users(1)


@figure(
    name="security/tls",
    unit="of that without TLS",
    workload=f"one connection publishes batches of {BATCH}, one reads all; over TLS, and without",
    at_least=0.6,
    counts="clock",
)
def over_tls() -> Measurement:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        authority = trustme.CA()
        trusted, shown = Path(name) / "authority.pem", Path(name) / "broker.pem"
        authority.cert_pem.write_to_path(str(trusted))
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(shown))
        flags, access = ["--tls-certificate", str(shown)], ["", str(trusted)]
        tls = Tls(authority=trusted).client_context()
        both = [trip(stack, 1, flags, access, tls), trip(stack, 1, [], [], None)]
        secret, plain = asyncio.run(compared(both, 0))
    return Measurement([b / a for a, b in zip(secret, plain, strict=True)])
