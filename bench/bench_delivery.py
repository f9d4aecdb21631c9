"""Stores: how many records a second, written with an fsync for each group, and read.

Time is of the clock, since what is waited for is the disk. Each sample has a file of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from bench.harness import Measurement, figure
from contrada.runtime.sqlite import SqliteStore

SAMPLES: Final = 5
GROUPS: Final = 100
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
