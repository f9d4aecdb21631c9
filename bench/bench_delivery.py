"""Stores: how many records a second, written with an fsync for each group, and read; and services.

Time is of the clock, since what is waited for is the disk. Each sample has a file of its own.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import contrada as ct
from bench.harness import Measurement, figure
from contrada.runtime.sqlite import SqliteStore

SAMPLES: Final = 5
GROUPS: Final = 100
PUBLISHERS: Final = 100
CERTIFIED: Final = 20_000
RECORDS: Final = [n.to_bytes(2, "big") * 100 for n in range(1_000)]


@contextmanager
def filled() -> Iterator[tuple[SqliteStore, float]]:
    """A store with all groups, and how many records a second went in."""
    with TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "store.db")
        begun = perf_counter()
        for number in range(GROUPS):
            store.append("log", RECORDS, number)
            store.sync()
        yield store, GROUPS * len(RECORDS) / (perf_counter() - begun)
        store.close()


@figure(
    name="delivery/store-append",
    unit="/s",
    workload="records of 200 bytes to the SQLite store, an fsync per 1,000",
    at_least=60_000.0,
)
def append() -> Measurement:
    samples = []
    for _ in range(SAMPLES):
        with filled() as (_, rate):
            samples.append(rate)
    return Measurement(samples)


@figure(
    name="delivery/store-read",
    unit="/s",
    workload="the same read in thousands, each record's sum checked",
    at_least=200_000.0,
)
def read() -> Measurement:
    samples = []
    with filled() as (store, _):
        for _ in range(SAMPLES):
            begun = perf_counter()
            position = 1
            while entries := store.read("log", position, 1_000):
                position = entries[-1].position + 1
            assert position == GROUPS * len(RECORDS) + 1
            samples.append((position - 1) / (perf_counter() - begun))
    return Measurement(samples)


async def certified(batch: int, *, reads: bool) -> float:
    """Certified publications a second, by many at the same time; they are read at last, or not."""
    with TemporaryDirectory() as folder:
        async with ct.connect(store=Path(folder) / "store.db") as service:
            async with service.subscribe("n >= 0", durable="s"):
                pass

            async def publish(first: int) -> None:
                for begin in range(first, CERTIFIED, PUBLISHERS * batch):
                    items = [{"n": n, "text": "x" * 100} for n in range(begin, begin + batch)]
                    if batch == 1:
                        await service.publish(items[0], delivery="certified")
                    else:
                        await service.publish_batch(items, delivery="certified")

            begun = perf_counter()
            if not reads:
                firsts = range(0, PUBLISHERS * batch, batch)
                await asyncio.gather(*map(publish, firsts))
                return CERTIFIED / (perf_counter() - begun)
            await service.publish_batch(({"n": n} for n in range(CERTIFIED)), delivery="certified")
            begun = perf_counter()
            async with service.subscribe(durable="s") as events:
                for _ in range(CERTIFIED):
                    await anext(events)
            return CERTIFIED / (perf_counter() - begun)


def sampled(batch: int, *, reads: bool = False) -> Measurement:
    """As many samples as of a store, each with a file of its own."""
    return Measurement([asyncio.run(certified(batch, reads=reads)) for _ in range(SAMPLES)])


@figure(
    name="delivery/embedded-certified",
    unit="/s",
    workload="certified, by 100 publishers at a time to one durable subscription, fsync per group",
    at_least=2_000.0,
)
def embedded_certified() -> Measurement:
    return sampled(1)


@figure(
    name="delivery/embedded-certified-batch",
    unit="/s",
    workload="the same, each publisher in batches of 100",
    at_least=4_000.0,
)
def embedded_certified_batch() -> Measurement:
    return sampled(100)


@figure(
    name="delivery/embedded-durable",
    unit="/s",
    workload="reading them by one reader, each acknowledged when the next is asked for",
    at_least=4_000.0,
)
def embedded_durable() -> Measurement:
    return sampled(100, reads=True)
