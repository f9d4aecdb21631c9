"""The cost of publishing and reading, measured inside the processes.

`python -m bench.trips TRIP` prints one JSON object: seconds of the processor and bytes by name.
It uses only public names: `contrada.connect`, `contrada.Index` and the command.

Invariants: everything that is published arrives, once and in order, and nothing is dropped, or the
trip fails. The cost of reading includes an attribute of each notification. Figures are
taken after the kernels are loaded; those of the first thousand are separate.
"""

import asyncio
import json
import resource
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import process_time, thread_time
from typing import Any, Final, Self

import contrada as ct

BATCH: Final = 100
COLD: Final = 1_000
PER_ROUND: Final = 10_000
ROUNDS: Final = 5
WARM_ROUNDS: Final = 20
FILTERS: Final = 10_000
NEAR_MISSES: Final = 10
OPENED_TOGETHER: Final = 100
SUBSCRIPTIONS: Final = 100_000
KIB: Final = 1024

WANTED: Final = "venue = 'NYSE' and price < 100"
UNWANTED: Final = "venue = 'LSE' and price < 100"
"""A filter that matches no item."""


def items(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Mappings of six attributes, about 200 bytes as a notification; all are wanted."""
    symbols = FILTERS // NEAR_MISSES
    return [
        {
            "n": n,
            "symbol": f"S{n % symbols:05d}",
            "venue": "NYSE",
            "price": (n % 800) / 8,
            "volume": 100 * (n % 97),
            "note": f"{'opened and traded through all of the morning':.<64}{n:08d}",
        }
        for n in range(first, first + count)
    ]


def other_filter(number: int) -> str:
    """A filter that asks for a symbol that is traded, at a price that it never has."""
    symbol, band = divmod(number, NEAR_MISSES)
    return f"symbol = 'S{symbol:05d}' and price >= {100 + band} and price < {101 + band}"


@dataclass(frozen=True, slots=True)
class Used:
    """Processor time and memory that this process has used so far."""

    cpu_s: float
    loop_s: float
    resident_bytes: int
    peak_bytes: int

    @classmethod
    def now(cls) -> Self:
        """The present usage; `loop_s` is of this thread alone."""
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return cls(
            cpu_s=process_time(),
            loop_s=thread_time(),
            resident_bytes=pages * resource.getpagesize(),
            peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
        )


async def read(events: Any, first: int, count: int) -> None:
    """Read so many notifications; they bear the numbers from `first` on."""
    expected = first
    async for event in events:
        assert event["n"] == expected
        expected += 1
        if expected == first + count:
            break
    assert expected == first + count


# ------------------------------------------------------------------------------ in one process


async def _one_by_one(service: Any, some: list[dict[str, Any]]) -> None:
    for item in some:
        await service.publish(item)


async def _in_batches(service: Any, some: list[dict[str, Any]]) -> None:
    for start in range(0, len(some), BATCH):
        assert await service.publish_batch(some[start : start + BATCH]) == BATCH


async def _together(service: Any, some: list[dict[str, Any]]) -> None:
    for start in range(0, len(some), BATCH):
        await asyncio.gather(*map(service.publish, some[start : start + BATCH]))


async def embedded() -> dict[str, float]:
    """Publishing to the one subscriber of the embedded service, and its reading."""
    async with ct.connect() as service, service.subscribe(WANTED) as events:
        published = 0

        async def run(publish: Callable[..., Any], count: int) -> tuple[float, float]:
            """Seconds of the process, and of its loop alone, per notification."""
            nonlocal published
            some = items(count, published)
            begun, begun_loop = process_time(), thread_time()
            reading = asyncio.create_task(read(events, published, count))
            await publish(service, some)
            await reading
            published += count
            return (process_time() - begun) / count, (thread_time() - begun_loop) / count

        _, cold_s = await run(_one_by_one, COLD)
        for _ in range(WARM_ROUNDS):
            await run(_in_batches, COLD)
        single = [(await run(_one_by_one, PER_ROUND))[0] for _ in range(ROUNDS)]
        batched = [(await run(_in_batches, PER_ROUND))[0] for _ in range(ROUNDS)]
        assert not events.statistics().dropped
        assert service.statistics().published == service.statistics().matched == published
        await events.update(UNWANTED)
        unmatched = []
        for _ in range(ROUNDS):
            some = items(PER_ROUND)
            begun = process_time()
            await _one_by_one(service, some)
            unmatched.append((process_time() - begun) / PER_ROUND)
        assert service.statistics().matched == published
    return {
        "unmatched_s": statistics.median(unmatched),
        "cold_s": cold_s,
        "publish_s": statistics.median(single),
        "publish_batch_s": statistics.median(batched),
    }


async def subscriptions() -> dict[str, float]:
    """Very many subscriptions of the embedded service, each to a symbol of its own."""
    async with ct.connect() as service:
        before = Used.now()
        held = []
        for number in range(SUBSCRIPTIONS):
            held.append(service.subscribe(f"symbol = 'S{number:05d}' and price < 100"))
            await held[-1].open()
        after = Used.now()
        wanted = range(0, SUBSCRIPTIONS, SUBSCRIPTIONS // BATCH)
        for number in wanted:
            await service.publish({"symbol": f"S{number:05d}", "price": 99.5})
            assert (await anext(held[number]))["price"] == 99.5
        counts = service.statistics()
        assert (counts.subscriptions, counts.matched) == (SUBSCRIPTIONS, len(wanted))
    return {
        "open_s": after.cpu_s - before.cpu_s,
        "bytes": after.resident_bytes - before.resident_bytes,
        "peak_bytes": after.peak_bytes,
    }


# ------------------------------------------------------------------- a broker and its clients


def broker_role() -> None:
    """`contrada serve`, which prints its usage at each SIGUSR1."""
    from contrada.cli import main as command

    signal.signal(signal.SIGUSR1, lambda *_: _say(_as_record(Used.now())))
    sys.argv = ["contrada", "serve", "--port", "0"]
    command()


async def subscriber_role(address: str) -> None:
    """Installs all filters, then reads the number that its driver announces."""
    async with ct.connect(address) as service:
        texts = [other_filter(number) for number in range(1, FILTERS)] + [WANTED]
        held: list[Any] = []
        orders = _orders()
        for start, together in zip(range(0, FILTERS, FILTERS // 2), orders, strict=False):
            some = texts[start : start + FILTERS // 2]
            begun = process_time()
            held += await _subscribed(service, some, together)
            _say({"cpu_s": process_time() - begun})
        wanted = held[-1]
        first = 0
        for count in orders:
            begun = process_time()
            _say({})
            await read(wanted, first, count)
            first += count
            _say({"cpu_s": process_time() - begun})
        assert wanted.statistics().delivered == first
        for each in held:
            counts = each.statistics()
            assert not counts.queued
            assert not counts.dropped
            assert each is wanted or not counts.delivered


async def _subscribed(service: Any, texts: list[str], together: int) -> list[Any]:
    """Subscriptions in force, put there one after another or so many at a time."""
    held = []
    for start in range(0, len(texts), together):
        some = [service.subscribe(text) for text in texts[start : start + together]]
        if together == 1:
            await some[0].open()
        else:
            await asyncio.gather(*(each.open() for each in some))
        held += some
    return held


async def publisher_role(address: str, manner: str) -> None:
    """Publishes the requested number, in batches, together or one by one."""
    publish = {"batches": _in_batches, "together": _together, "singly": _one_by_one}[manner]
    async with ct.connect(address) as service:
        first = 0
        for count in _orders():
            some = items(count, first)
            begun = process_time()
            await publish(service, some)
            _say({"cpu_s": process_time() - begun})
            first += count
        assert service.statistics().published == first
        assert not service.statistics().dropped


def _say(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)


def _as_record(used: Used) -> dict[str, Any]:
    return {name: getattr(used, name) for name in Used.__slots__}


def _orders() -> Iterator[int]:
    """The next number, from the driver; blocks, since there is no other work meanwhile."""
    for line in iter(sys.stdin.readline, ""):
        yield int(line)


class Role:
    """A process of this trip, seen from its driver."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def order(self, count: int) -> None:
        """Sends it the next number."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()

    def line(self) -> str:
        """Returns its next line. Raises RuntimeError when it has ended instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"ended without an answer: {self.process.args!r}")
        return line

    def answer(self) -> dict[str, Any]:
        """Returns the next record that it prints."""
        found: dict[str, Any] = json.loads(self.line())
        return found

    def used(self) -> Used:
        """The usage of a broker so far."""
        self.process.send_signal(signal.SIGUSR1)
        return Used(**self.answer())


@contextmanager
def role(*words: str) -> Iterator[Role]:
    """A process that plays a role, until its input ends; it must end well."""
    command = [sys.executable, "-m", "bench.trips", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Role(process)
        except BaseException:
            process.kill()
            raise
        assert process.stdin is not None
        process.stdin.close()
        if words == ("broker",):
            process.terminate()
        assert process.wait(60) == 0


def over_tcp(manner: str) -> dict[str, float]:
    """A broker with 10,000 filters of which one matches, its publisher and its subscriber."""
    with role("broker") as broker:
        address = broker.line()
        bare = broker.used()
        with (
            role("subscriber", address) as subscriber,
            role("publisher", address, manner) as publisher,
        ):

            def install(together: int) -> tuple[float, float]:
                """Seconds per subscription of the client and of the broker."""
                before = broker.used()
                subscriber.order(together)
                client_s = subscriber.answer()["cpu_s"]
                broker_s = broker.used().cpu_s - before.cpu_s
                return client_s / (FILTERS // 2), broker_s / (FILTERS // 2)

            single, together = install(1), install(OPENED_TOGETHER)
            full = broker.used()

            def run(count: int) -> dict[str, float]:
                """Seconds of each process per notification."""
                before = broker.used()
                subscriber.order(count)
                subscriber.answer()
                publisher.order(count)
                spent = [publisher.answer()["cpu_s"], subscriber.answer()["cpu_s"]]
                after = broker.used()
                spent += [after.cpu_s - before.cpu_s, after.loop_s - before.loop_s]
                names = ("publisher_s", "subscriber_s", "broker_s", "loop_s")
                return {name: seconds / count for name, seconds in zip(names, spent, strict=True)}

            cold = run(COLD)
            for _ in range(WARM_ROUNDS):
                run(COLD)

            run(PER_ROUND)
            rounds = [run(PER_ROUND) for _ in range(ROUNDS)]
    measured = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    return {
        **measured,
        "cold_s": cold["loop_s"],
        "subscribe_s": single[0],
        "install_s": single[1],
        "subscribe_together_s": together[0],
        "install_together_s": together[1],
        "install_bytes": (full.resident_bytes - bare.resident_bytes) / FILTERS,
    }


def main() -> None:
    """Play the role or make the trip that the command line names."""
    match sys.argv[1:]:
        case ["broker"]:
            broker_role()
        case ["subscriber", address]:
            asyncio.run(subscriber_role(address))
        case ["publisher", address, manner]:
            asyncio.run(publisher_role(address, manner))
        case ["embedded"]:
            _say(asyncio.run(embedded()))
        case ["subscriptions"]:
            _say(asyncio.run(subscriptions()))
        case ["tcp"]:
            _say(over_tcp("batches"))
        case ["tcp", "together" | "singly" as manner]:
            _say(over_tcp(manner))
        case other:
            raise SystemExit(f"unknown trip: {' '.join(other)}")


if __name__ == "__main__":
    main()
