"""Holds the package's front: its names, and that importing it loads nothing that can wait."""

import json
import subprocess
import sys
from importlib.metadata import version
from typing import Final

import pytest

import contrada

WAITING: Final = {"asyncio", "importlib.metadata", "lark", "lxml", "numba", "numpy"}

PROBE: Final = """
import sys, json
import contrada
print(json.dumps([sorted(sys.modules), dir(contrada)]))
"""


def test_importing_loads_nothing_that_can_wait() -> None:
    """Every command and every short script would wait for unused modules."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=True)
    loaded, names = json.loads(done.stdout)
    assert WAITING & set(loaded) == set()
    assert set(contrada.__all__) <= set(names)


EMBEDDED: Final = """
import sys, asyncio
sys.modules["ssl"] = None  # asyncio imports it where it is there.
import contrada as ct

async def main():
    async with ct.connect() as service, service.subscribe("price > 1") as prices:
        await service.publish({"price": 2})
        assert (await prices.next())["price"] == 2

asyncio.run(main())
print("\\n".join(sys.modules))
"""

MODULES_EMBEDDED_MAX: Final = 150


def test_an_embedded_service_loads_nothing_of_the_broker() -> None:
    """Each program with an embedded service would load sockets, TLS and numpy for nothing."""
    done = subprocess.run([sys.executable, "-c", EMBEDDED], capture_output=True, check=True)
    loaded = done.stdout.decode().split()
    assert {"lxml", "numpy", "contrada.net"} & set(loaded) == set()
    assert sum(name.split(".")[0] == "contrada" for name in loaded) <= MODULES_EMBEDDED_MAX


CALLS_MAX_RATIO: Final = 3.3
"""Of the calls of asyncio and msgspec alone: unlike seconds, the same on a busy machine."""

COUNTED: Final = """
import sys
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(count)
%s
sys.setprofile(None)
print(calls)
"""


def calls_of(code: str) -> int:
    """The number of calls of functions in a process that runs code."""
    command = [sys.executable, "-c", COUNTED % code]
    return int(subprocess.run(command, capture_output=True, check=True).stdout.split()[-1])


def test_an_embedded_service_opens_with_little_work() -> None:
    """Each script and test with an embedded service would begin later."""
    assert calls_of(EMBEDDED) <= CALLS_MAX_RATIO * calls_of("import asyncio, msgspec")


def test_the_pipeline_on_spark_waits_for_spark() -> None:
    """A program that only reads a description of a pipeline would need PySpark and Java."""
    probe = (
        "import sys, contrada.integrations.spark;"
        "print({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True)
    assert done.stdout.strip() == b"set()"
    import contrada.integrations.spark

    assert [
        name
        for name in contrada.integrations.spark.__all__
        if not hasattr(contrada.integrations.spark, name)
    ] == []


def test_every_public_name_is_there() -> None:
    """A name that is imported when first used would be promised and not be found."""
    assert [name for name in contrada.__all__ if not hasattr(contrada, name)] == []
    assert len(set(contrada.__all__)) == len(contrada.__all__)


def test_the_front_shows_what_is_public_and_its_version() -> None:
    """A person who looks for a name would find internal tools."""
    names = dir(contrada)
    assert {name for name in names if name[:2] != "__"} == set(contrada.__all__)
    assert contrada.__version__ == version("contrada")


def test_an_unknown_name_is_an_attribute_error() -> None:
    """`hasattr` and tools that look for optional names would end with another error."""
    with pytest.raises(AttributeError, match="module 'contrada' has no attribute 'no_name'"):
        _ = contrada.no_name
