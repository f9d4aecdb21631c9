"""An index on each engine: the plain one, and the arrays with kernels uncompiled and compiled.

Also the modules of matching in both kinds, with helpers for tests of kernels.
"""

import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import contrada as ct
from contrada.matching.array_engine import ArrayEngine
from contrada.matching.index_limits import IndexLimits
from contrada.matching.kernels import jit
from contrada.matching.kernels.schema import NEED_TEXT, NEED_VALUES

needs_numba = pytest.mark.skipif(jit.is_pure(), reason="numba is not installed")
COMPILED = [
    pytest.param(False, id="uncompiled"),
    pytest.param(True, id="compiled", marks=needs_numba),
]
"""The arrays."""

NEEDS_ROOM = (NEED_TEXT, NEED_VALUES)
"""The answers of loading kernels that ask for a larger array of the scratch."""

ENGINES = [pytest.param(None, id="plain"), *COMPILED]


def module(name: str, compiled: bool = False) -> Any:
    """A module of matching, with kernels compiled or as plain Python.

    In plain Python every access to memory is checked.
    """
    full = f"contrada.matching.{name}"
    return importlib.import_module(full) if compiled else _CHECKED[full]


def load_kernels() -> bool:
    """Loads compiled kernels, as `jit.compiled`; waits where another thread is loading them."""
    while not jit.compiled() and not jit.is_pure():
        threading.Event().wait(0.01)  # Whichever thread it is; the test's own limit bounds it.
    return jit.loaded()


def inner(compiled: bool) -> Any:
    """The entries to kernels that only kernels call."""
    return importlib.import_module(_INNER) if compiled else _CHECKED[_INNER]


_INNER = "tests.matching.inner"


def _without_compiler() -> dict[str, Any]:
    """The modules of matching, loaded once more beside those that are there."""

    def of_matching() -> list[str]:
        return [name for name in sys.modules if name.startswith(("contrada.matching", _INNER))]

    compiled = {name: sys.modules.pop(name) for name in of_matching()}
    package = ct.matching
    try:
        with mock.patch.dict(os.environ, {jit.PURE_VARIABLE: "1"}):
            importlib.import_module("contrada.matching.array_engine")
            importlib.import_module("contrada.matching.kernels.batch_validate")
            importlib.import_module(_INNER)
            return {name: sys.modules.pop(name) for name in of_matching()}
    finally:
        sys.modules.update(compiled)
        ct.matching = package


_CHECKED = _without_compiler()


def new_index(compiled: bool | None, limits: IndexLimits = IndexLimits()) -> ct.Index[Any]:
    """An empty index on the plain engine (None), or on arrays, compiled or not."""
    if compiled is None or compiled:
        return ct.Index(compiled=bool(compiled), limits=limits)
    return ct.Index[Any](compiled=False)._over(module("array_engine").ArrayEngine(limits))


def loaded_index(path: Path, compiled: bool | None) -> ct.Index[Any]:
    """A saved index on one of the engines."""
    if compiled is None or compiled:
        return ct.Index.load(path, compiled=bool(compiled))
    return ct.Index[Any](compiled=False)._over(module("array_engine").ArrayEngine.load(path))


def naive(subscriptions: Any, notification: Any) -> list[Any]:
    """The keys with a matching filter, found by testing every filter."""
    return sorted(key for key, each in subscriptions.items() if each.matches(notification))


def arrays_of(index: ct.Index[Any]) -> ArrayEngine[Any]:
    """The arrays of an index that is on them."""
    assert type(index._engine).__name__ == "ArrayEngine"
    return index._engine  # type: ignore[return-value]


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
