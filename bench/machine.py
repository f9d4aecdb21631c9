"""The conditions of a run: the machine, and the versions of Contrada and of its peers."""

import importlib.metadata
import os
import platform
import re
import sqlite3
import subprocess
from pathlib import Path
from time import process_time
from typing import Final

from bench.http_peers import faye_version
from bench.wire_load import find_program

PEERS: Final[dict[str, tuple[str, ...]]] = {
    "blinker": ("blinker",),
    "duckdb": ("duckdb",),
    "event-ruler": ("event-ruler",),
    "faye": ("faye", "Node.js"),
    "mosquitto": ("mosquitto", "gmqtt", "orjson"),
    "nats": ("nats-server", "nats-py", "orjson"),
    "nchan": ("nginx", "nchan"),
    "plain Spark SQL": ("pyspark",),
    "polars": ("polars",),
    "pyee": ("pyee",),
    "redis": ("redis-server", "redis", "hiredis", "orjson"),
    "sqlite": ("SQLite",),
    "zen-engine": ("zen-engine",),
    "zenoh": ("eclipse-zenoh", "orjson"),
}
"""The other systems by their names in figures, with their programs and packages. A comparison by
another name is a baseline: a part of Contrada's own work, or the same without an option."""

OWN: Final = ("contrada", "msgspec", "uvloop", "numpy", "pyarrow")

_VERSION: Final = re.compile(r"\d+(\.\d+)+")
_COMMANDS: Final = {
    "mosquitto": ("mosquitto", "-h"),
    "nats-server": ("nats-server", "--version"),
    "nchan": ("dpkg-query", "--show", "--showformat", "${Version}", "libnginx-mod-nchan"),
    "nginx": ("nginx", "-v"),
    "Node.js": ("node", "--version"),
    "redis-server": ("redis-server", "--version"),
}
"""Commands that print the version of a program."""


def versions(names: tuple[str, ...]) -> str:
    """Returns the names of programs and packages with their versions; absent ones are so named."""
    return ", ".join(f"{name} {_version(name)}" for name in names)


def conditions() -> dict[str, str]:
    """Returns the machine, its load and the versions of Contrada and Python, by headings."""
    load = os.getloadavg()[0]
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{_memory_gb():.0f} GB",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Contrada": f"{versions(OWN)}; revision {revision()}",
        "load of the machine before": f"{load:.1f} processes",
        "loop of Python before": f"{_loop_s():.2g} s of processor time",
    }


def revision() -> str:
    """Returns the commit of this tree, marked where the tree differs from it."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _version(name: str) -> str:
    if name == "SQLite":
        return sqlite3.sqlite_version
    if name == "faye":
        return faye_version() or "absent"
    if name in _COMMANDS:
        program, *options = _COMMANDS[name]
        path = find_program(program)
        if path is None:
            return "absent"
        done = subprocess.run([path, *options], capture_output=True, text=True, check=False)
        found = _VERSION.search(done.stdout + done.stderr)
        return found.group() if found else "of unknown version"
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _loop_s() -> float:
    """Returns the seconds that ten million squares took: how fast this machine is for Python."""
    began_s = process_time()
    sum(number * number for number in range(10_000_000))
    return process_time() - began_s


def _memory_gb() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
