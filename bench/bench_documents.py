"""Entries of a large document, read in pieces, beside `xml.etree.ElementTree.iterparse` alone.

The document is an index of the alerts of the US National Weather Service (377 entries, 660 kB) of
the shared data, its entries repeated until it has 200 MB. The measured program makes
notifications of them, with inferred types; the peer only parses, and releases each entry.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final
from xml.etree import ElementTree

from bench.harness import Measurement, figure
from contrada.integrations.files import ReadOptions, Record, Renderer
from tests.shared_data import shared_data

SAMPLES: Final = 3
DOCUMENT_BYTES: Final = 200 * 10**6
FEED: Final = "nws_cap_atom_2015-06-29T1735.xml"

# Not `ru_maxrss`: that begins with what the process had that started this one.
_MEASURED: Final = """
import sys
from pathlib import Path
from contrada.integrations.files import ReadOptions, Renderer
with open(sys.argv[1], "rb") as stream:
    for each in Renderer(ReadOptions(strategy="split", entries="entry")).render(stream):
        pass
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


@contextmanager
def large_feed() -> Iterator[tuple[Path, int]]:
    """The document, and how many entries it has."""
    data = shared_data("xml_feeds", FEED).read_bytes()
    begin = data.index(b"<entry>")
    end = data.rindex(b"</entry>") + len(b"</entry>")
    entries = data[begin:end] + b"\n"
    times = DOCUMENT_BYTES // len(entries) + 1
    with TemporaryDirectory() as name:
        path = Path(name) / "large.xml"
        with path.open("wb") as stream:
            stream.write(data[:begin])
            for _ in range(times):
                stream.write(entries)
            stream.write(data[end:])
        yield path, times * entries.count(b"<entry>")


def split_s(path: Path, entries: int) -> float:
    """The processor's time for notifications of all entries."""
    begin = process_time()
    with path.open("rb") as stream:
        found = Renderer(ReadOptions(strategy="split", entries="entry")).render(stream)
        count = sum(isinstance(each, Record) for each in found)
    spent = process_time() - begin
    if count != entries:
        raise ValueError(f"expected {entries} notifications, found {count}")
    return spent


def parsed_s(path: Path, entries: int) -> float:
    """The processor's time for `iterparse` alone."""
    begin = process_time()
    count = 0
    with path.open("rb") as stream:
        for _, element in ElementTree.iterparse(stream):
            if element.tag.endswith("}entry"):
                count += 1
                element.clear()
    if count != entries:
        raise ValueError(f"expected {entries} entries, found {count}")
    return process_time() - begin


def _pairs() -> list[tuple[float, float, float]]:
    """For each sample megabytes, and the two times."""
    with large_feed() as (path, entries):
        size = path.stat().st_size / 10**6
        return [(size, split_s(path, entries), parsed_s(path, entries)) for _ in range(SAMPLES)]


@figure(
    name="xml/split",
    unit="MB/s",
    workload="notifications of the entries of a feed of 200 MB, read in pieces, on one core",
    at_least=25,
)
def split_speed() -> Measurement:
    pairs = _pairs()
    return Measurement(
        [size / own for size, own, _ in pairs],
        "xml.etree iterparse alone",
        [size / other for size, _, other in pairs],
    )


@figure(
    name="xml/split_beside_iterparse",
    unit="times",
    workload="the same: the processor's time, in times of what xml.etree's iterparse takes alone",
    at_most=2.5,
)
def split_ratio() -> Measurement:
    return Measurement([own / other for _, own, other in _pairs()])


@figure(
    name="xml/split_memory",
    unit="MB",
    workload="the same: the most memory of a process that does nothing else",
    at_most=150,
)
def split_memory() -> Measurement:
    with large_feed() as (path, _):
        command = [sys.executable, "-c", _MEASURED, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Measurement([int(done.stdout) * 1024 / 10**6])
