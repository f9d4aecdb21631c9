"""An index on each engine: the plain one, and the arrays with kernels uncompiled and compiled."""

from pathlib import Path
from typing import Any

import pytest

import contrada as ct
from contrada.matching import jit
from contrada.matching.arrayed import ArrayEngine

needs_numba = pytest.mark.skipif(jit.compiled() is None, reason="numba is not installed")
COMPILED = [
    pytest.param(False, id="uncompiled"),
    pytest.param(True, id="compiled", marks=needs_numba),
]
"""The arrays."""

ENGINES = [pytest.param(None, id="plain"), *COMPILED]


def new_index(compiled: bool | None) -> ct.Index[Any]:
    """An empty index on the plain engine (None), or on arrays, compiled or not."""
    if compiled is None or compiled:
        return ct.Index(compiled=bool(compiled))
    return ct.Index[Any](compiled=False)._over(ArrayEngine(native=False))


def loaded_index(path: Path, compiled: bool | None) -> ct.Index[Any]:
    """A saved index on one of the engines."""
    if compiled is None or compiled:
        return ct.Index.load(path, compiled=bool(compiled))
    return ct.Index[Any](compiled=False)._over(ArrayEngine.load(path, native=False))


def arrays_of(index: ct.Index[Any]) -> ArrayEngine[Any]:
    """The arrays of an index that is on them."""
    assert isinstance(index._engine, ArrayEngine)
    return index._engine
