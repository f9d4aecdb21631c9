"""The index of subscriptions in new processes: memory, many filters at once, the first match."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from bench.bench_matching import MILLION
from bench.harness import Figure, Measurement, figure

REPOSITORY: Final = Path(__file__).resolve().parents[1]

_RESIDENT: Final = """
import ctypes, gc, itertools
from time import process_time
from bench import matching_workloads as workloads
from contrada.matching.index import Index
from contrada.model.codec import to_msgpack

def kept(field):
    text = open("/proc/self/status").read()
    return 1024 * int(next(line for line in text.splitlines() if line.startswith(field)).split()[1])

def settle():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
"""
"""The common part of the programs below: the memory of their process."""

_MEMORY: Final = """
workload = workloads.three_constraints({size})
index = Index()
index.match({{}})
for each in zip(range(1_000), workload.filters()): pass
settle()
before = kept("VmRSS")
for number, each in enumerate(workload.filters()):
    index.add(number, each)
peak = kept("VmHWM")
settle()
print((kept("VmRSS") - before) / {size}, (peak - before) / {size})
"""


def output_of(code: str) -> tuple[list[float], float]:
    """The numbers that a new Python prints, and the CPU seconds that it took."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    after = os.times()
    taken = after.children_user + after.children_system
    taken -= before.children_user + before.children_system
    return [float(each) for each in done.stdout.split()], taken


@cache
def memory() -> tuple[float, float]:
    """Bytes per filter that a million filters keep, and at the peak of adding them."""
    (kept, peak), _ = output_of(_RESIDENT + _MEMORY.format(size=MILLION))
    return kept, peak


@figure(
    name="matching/memory",
    unit="bytes",
    workload="resident memory per filter of three constraints, of 1,000,000 with integer keys",
    at_most=250.0,
)
def memory_kept() -> Measurement:
    return Measurement([memory()[0]])


@figure(
    name="matching/memory-peak",
    unit="bytes",
    workload="the same at the peak of adding them",
    at_most=500.0,
)
def memory_at_peak() -> Measurement:
    return Measurement([memory()[1]])


_ENCODED: Final = """
stream = map(to_msgpack, workloads.three_constraints({size}).filters())
index = Index()
index.match({{}})
encodings = list(itertools.islice(stream, {at_once}))
Index().add_encoded(range(1_000), encodings[:1_000])  # The memory of its code is not the index's.
settle()
before, seconds, done = kept("VmRSS"), 0.0, 0
while done < {size}:  # The encodings of a call are there before it, and at the end.
    encodings = encodings if done == 0 else list(itertools.islice(stream, {at_once}))
    began = process_time()
    index.add_encoded(range(done, done + len(encodings)), encodings)
    seconds += process_time() - began
    done += len(encodings)
settle()
kept_bytes = kept("VmRSS")
given = workloads.three_constraints({size}).notifications
for each in given[:1_000]:
    index.match(each)
began = process_time()
for each in given[1_000:]:
    index.match(each)
match_s = (process_time() - began) / len(given[1_000:])
print(seconds, (kept_bytes - before) / {size}, kept_bytes / 2**20, match_s)
"""
TEN_MILLION: Final = 10_000_000


@cache
def encoded(size: int, at_once: int) -> list[float]:
    """Seconds of adding encoded filters, bytes of each, megabytes of the process, seconds of a
    match after that.
    """
    return output_of(_RESIDENT + _ENCODED.format(size=size, at_once=at_once))[0]


def of_encoded(
    name: str, unit: str, workload: str, at_most: float | None, place: int, size: int, at_once: int
) -> Figure:
    """Returns the figure of one of the numbers of `encoded`."""

    @figure(name=f"matching/{name}", unit=unit, workload=workload, at_most=at_most)
    def measured() -> Measurement:
        return Measurement([encoded(size, at_once)[place]])

    return measured


encoded_million = of_encoded(
    "encoded-million",
    "s",
    "one call that adds 1,000,000 encoded filters of three constraints",
    *(15.0, 0, MILLION, MILLION),
)
encoded_memory = of_encoded(
    "encoded-memory",
    "bytes",
    "resident memory per filter after that",
    *(150.0, 1, MILLION, MILLION),
)
encoded_ten_million = of_encoded(
    "encoded-ten-million",
    "s",
    "10,000,000 encoded filters of three constraints, by 100,000",
    *(180.0, 0, TEN_MILLION, 100_000),
)
encoded_ten_million_memory = of_encoded(
    "encoded-ten-million-memory",
    "MB",
    "resident memory of the process with these",
    *(2_000.0, 2, TEN_MILLION, 100_000),
)
ten_million = of_encoded(
    "ten-million",
    "us",
    "a match among these; 10 attributes, ~7 matches",
    *(None, 3, TEN_MILLION, 100_000),
)


_FIRST: Final = """
from contrada.matching.index import Index
from contrada.model import Filter
index = Index()
index.add("key", Filter({"price": 1}))
assert index.match({"price": 1}) == ["key"]
"""


@figure(
    name="matching/first-match",
    unit="s",
    workload="from a new process to its first match, caches warm, CPU time",
    at_most=1.0,
)
def first_match() -> Measurement:
    output_of(_FIRST)
    return Measurement([output_of(_FIRST)[1] for _ in range(5)])
