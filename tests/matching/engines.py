"""An index on each engine: the plain one, and the arrays with kernels uncompiled and compiled."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import contrada as ct
from contrada.matching.arrayed import ArrayEngine
from contrada.matching.kernels import jit

needs_numba = pytest.mark.skipif(not jit.compiled(), reason="numba is not installed")
COMPILED = [
    pytest.param(False, id="uncompiled"),
    pytest.param(True, id="compiled", marks=needs_numba),
]
"""The arrays."""

ENGINES = [pytest.param(None, id="plain"), *COMPILED]


def module(name: str, compiled: bool = False) -> Any:
    """A module of matching, with kernels compiled or as plain Python.

    In plain Python every access to memory is checked.
    """
    full = f"contrada.matching.{name}"
    return importlib.import_module(full) if compiled else _CHECKED[full]


def _without_compiler() -> dict[str, Any]:
    """The modules of matching, loaded once more beside those that are there."""

    def of_matching() -> list[str]:
        return [name for name in sys.modules if name.startswith("contrada.matching")]

    compiled = {name: sys.modules.pop(name) for name in of_matching()}
    package = ct.matching
    try:
        with mock.patch.dict(os.environ, {jit.PURE_VARIABLE: "1"}):
            importlib.import_module("contrada.matching.arrayed")
            return {name: sys.modules.pop(name) for name in of_matching()}
    finally:
        sys.modules.update(compiled)
        ct.matching = package


_CHECKED = _without_compiler()


def new_index(compiled: bool | None) -> ct.Index[Any]:
    """An empty index on the plain engine (None), or on arrays, compiled or not."""
    if compiled is None or compiled:
        return ct.Index(compiled=bool(compiled))
    return ct.Index[Any](compiled=False)._over(module("arrayed").ArrayEngine())


def loaded_index(path: Path, compiled: bool | None) -> ct.Index[Any]:
    """A saved index on one of the engines."""
    if compiled is None or compiled:
        return ct.Index.load(path, compiled=bool(compiled))
    return ct.Index[Any](compiled=False)._over(module("arrayed").ArrayEngine.load(path))


def arrays_of(index: ct.Index[Any]) -> ArrayEngine[Any]:
    """The arrays of an index that is on them."""
    assert type(index._engine).__name__ == "ArrayEngine"
    return index._engine  # type: ignore[return-value]
