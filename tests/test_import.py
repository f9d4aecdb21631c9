"""Holds the package's front: its names, and that importing it loads nothing that can wait."""

import importlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

import contrada
import contrada as ct
from contrada import renamed_modules

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


def test_former_names_still_work() -> None:
    """A program written for the former names would end at its first import."""
    with pytest.warns(DeprecationWarning, match=r"contrada\.in_ is contrada\.ops\.in_ now") as seen:
        assert ct.in_(1, 2) == ct.ops.in_(1, 2)
    assert [each.filename for each in seen] == [__file__]
    for old, new in renamed_modules.RENAMED.items():
        sys.modules.pop(f"contrada.{old}", None)
        with pytest.warns(DeprecationWarning, match=f"contrada.{old} is contrada"):
            found = importlib.import_module(f"contrada.{old}")
        assert found is sys.modules[f"contrada.{new}".rstrip(".")]


def test_a_stale_folder_does_not_hide_the_new_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an upgrade in place, a left-over `records/__pycache__` would be an empty package."""
    (tmp_path / "records").mkdir()
    monkeypatch.setattr(contrada, "__path__", [str(tmp_path), *contrada.__path__])
    monkeypatch.delitem(sys.modules, "contrada.records", raising=False)
    with pytest.warns(DeprecationWarning, match=r"contrada\.records is contrada"):
        found = importlib.import_module("contrada.records")
    assert found is sys.modules["contrada.integrations.files"]


@pytest.mark.parametrize("package", renamed_modules.RENAMED_NAMES)
def test_former_names_of_packages_still_work(package: str) -> None:
    """A program that imports `Broker` from `contrada.net` would end there."""
    if package == "contrada.integrations.http":
        pytest.importorskip("starlette")
    module = importlib.import_module(package)
    for name, place in renamed_modules.RENAMED_NAMES[package].items():
        owner, _, now = f"contrada.{place}".rpartition(".")
        with pytest.warns(
            DeprecationWarning, match=f"{package}.{name} is {owner}.{now} now"
        ) as seen:
            assert getattr(module, name) is getattr(importlib.import_module(owner), now)
        assert [each.filename for each in seen] == [__file__]
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_name'"):
        _ = module.no_name
