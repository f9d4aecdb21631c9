"""An index on compiled and on interpreted kernels; the modules of matching in both kinds.

Also helpers for tests of kernels.
"""

import importlib
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from filelock import FileLock

import contrada as ct
import hatch_build
from contrada.matching.array_engine import ArrayEngine
from contrada.matching.index_limits import IndexLimits
from contrada.matching.kernels.schema import NEED_TEXT, NEED_VALUES
from contrada.model.native import INTERPRETED_VARIABLE, NATIVE

ROOT = Path(__file__).parents[2]

needs_native = pytest.mark.skipif(NATIVE is None, reason="contrada._native is not built")
COMPILED = [
    pytest.param(False, id="uncompiled"),
    pytest.param(True, id="compiled", marks=needs_native),
]
"""The kernels interpreted, with every access to memory checked, and compiled."""

COMPILED_INNER = [
    pytest.param(False, id="uncompiled"),
    pytest.param(True, id="compiled", marks=(needs_native, pytest.mark.slow)),
]
"""The same for tests of inner kernels, which are compiled for tests alone, once."""

NEEDS_ROOM = (NEED_TEXT, NEED_VALUES)
"""The answers of loading kernels that ask for a larger array of the scratch."""


def module(name: str, compiled: bool = False) -> Any:
    """A module of matching, with kernels compiled or as plain Python.

    In plain Python every access to memory is checked.
    """
    full = f"contrada.matching.{name}"
    return importlib.import_module(full) if compiled else _INTERPRETED[full]


def inner(compiled: bool) -> Any:
    """The entries to kernels that only kernels call."""
    return compiled_kernels(_INNER) if compiled else _INTERPRETED[_INNER]


_INNER = "tests.matching.inner"
_TWICE = ("contrada.matching", "contrada.model.native", _INNER)


@cache
def compiled_kernels(name: str) -> Any:
    """The entries of a module of tests, compiled with all kernels of contrada.

    Compiled once for the same sources, in build/: most of a minute.
    """
    lock = ROOT / "build" / "native" / f"{name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        file = hatch_build.compiled_native(ROOT, name)
    spec = importlib.util.spec_from_file_location("_native", file)
    assert spec is not None
    assert spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    prefix = f"{name.rpartition('.')[2]}_"
    entries = {each.removeprefix(prefix): getattr(native, each) for each in dir(native)}
    return SimpleNamespace(**entries)


def _interpreted() -> dict[str, Any]:
    """The modules of matching, loaded once more beside those that are there."""

    def of_matching() -> list[str]:
        return [name for name in sys.modules if name.startswith(_TWICE)]

    compiled = {name: sys.modules.pop(name) for name in of_matching()}
    package = ct.matching
    try:
        with mock.patch.dict(os.environ, {INTERPRETED_VARIABLE: "1"}):
            importlib.import_module("contrada.matching.index")
            importlib.import_module("contrada.matching.arrow_pack")
            importlib.import_module("contrada.matching.record_batches")
            for name in ("json_scanner", "csv_scanner", "pattern_runs", "gossip_rounds"):
                importlib.import_module(f"contrada.matching.kernels.{name}")
            importlib.import_module(_INNER)
            return {name: sys.modules.pop(name) for name in of_matching()}
    finally:
        sys.modules.update(compiled)
        ct.matching = package


_INTERPRETED = _interpreted()


def new_index(compiled: bool, limits: IndexLimits = IndexLimits()) -> ct.Index[Any]:
    """An empty index."""
    return module("index", compiled).Index(limits=limits)  # type: ignore[no-any-return]


def block_index(compiled: bool) -> ct.Index[Any]:
    """An empty index that matches also small batches in blocks."""
    index = new_index(compiled)
    arrays_of(index)._segment.arrays.counters.block_shared_min[0] = 0
    return index


def loaded_index(path: Path, compiled: bool) -> ct.Index[Any]:
    """A saved index."""
    return module("index", compiled).Index.load(path)  # type: ignore[no-any-return]


def naive(subscriptions: Any, notification: Any) -> list[Any]:
    """The keys with a matching filter, found by testing every filter."""
    return sorted(key for key, each in subscriptions.items() if each.matches(notification))


def arrays_of(index: ct.Index[Any]) -> ArrayEngine[Any]:
    """The arrays of an index."""
    return index._engine


def generation_of(filters: Any, compiled: bool) -> Any:
    """A segment with these filters, each for the slot of its number."""
    segment = module("segment", compiled).IndexSegment()
    for slot, each in enumerate(filters):
        segment.add(slot, (each,), segment.compiler.programs((each,)))
    return segment


def loaded(segment: Any, span: bytes, compiled: bool) -> int:
    """Loads a span into the scratch of a segment; returns the answer with enough room."""
    memory = segment.arrays.memory
    while (status := inner(compiled).load_span(span, memory)) in NEEDS_ROOM:
        segment.arrays.grow_for(status)
    return int(status)


def table(arrays: Any, name: str) -> Any:
    """An array of the memory as NumPy's: a view, with the fields of its rows."""
    rows = arrays.of[name]
    numbers = np.frombuffer(rows.numbers, dtype=rows.layout.code)
    kind = [(field, rows.layout.code) for field in rows.layout.fields]
    return numbers.view(kind) if kind else numbers
