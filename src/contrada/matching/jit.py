"""Compiled kernels where Numba is installed, plain ones everywhere.

`kernels.py` is one text. Imported as it is, its functions are plain Python and run on memory
views. `compiled()` loads the same text once more with every function compiled by Numba (cached
on disk, without the global lock while it runs) and gives entries that take one array of
addresses instead of two dozen arrays, which costs 0.2 µs instead of 3.
"""

import hashlib
import importlib
import importlib.util
import logging
import os
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

_log = logging.getLogger("contrada.matching")

_F = TypeVar("_F", bound=Callable[..., Any])

PURE_VARIABLE: Final = "CONTRADA_PURE"
"""Set to anything but empty or 0, this environment variable keeps everything uncompiled."""

_HERE: Final = "contrada.matching."
_loaded: dict[str, ModuleType | None] = {}
_compiled_parts: dict[str, ModuleType] = {}
_decorators: list[Callable[[Any], Any]] = []


def kernel(function: _F) -> _F:
    """Marks a function of the kernels; compiled where its module is loaded for that."""
    return _decorators[-1](function) if _decorators else function


def part(name: str) -> ModuleType:
    """Another module of kernels: compiled for one that is being compiled, else as it is."""
    if _decorators:
        return _compiled_parts[name]
    return importlib.import_module(f"{_HERE}{name}")


def double_bits(number: Any) -> Any:
    """The bits of the double nearest to a number, as a signed integer."""
    return struct.unpack("<q", struct.pack("<d", number))[0]


def prefetch(array: Any, row: Any) -> Any:
    """Tells the processor that a row of an array is wanted soon. Only compiled code does so."""


def compiled() -> ModuleType | None:
    """Entries to the compiled kernels, loaded on the first call; None where Numba is missing.

    None also while another thread is loading them. Cost of the first call in a process: about
    a second from Numba's cache on disk; up to a minute where the kernels were never compiled on
    this machine.
    """
    if "kernels" not in _loaded:
        if _decorators:
            return None
        _loaded["kernels"] = None if _is_pure() else _load()
    return _loaded["kernels"]


def is_loaded() -> bool:
    """Whether `compiled` has been called and answers at once."""
    return "kernels" in _loaded


def loaded() -> ModuleType | None:
    """What `compiled` answers, where it answers at once; else None."""
    return _loaded.get("kernels")


def is_cached() -> bool:
    """Whether compiled kernels of this text are on disk."""
    return not _is_pure() and cache_folder().exists()


def _is_pure() -> bool:
    if os.environ.get(PURE_VARIABLE, "0") not in ("", "0"):
        return True
    return not _has_numba()


@cache
def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


@cache
def cache_folder() -> Path:
    """Where compiled kernels are kept: a folder for just this text of them.

    Numba looks at the file of a function alone, and not at what is compiled into it from
    other files, so that kernels of another text must not meet these.
    """
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((here / f"{name}.py").read_bytes())
    base = here / "__pycache__"
    if not os.access(base if base.exists() else here, os.W_OK):
        base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "contrada"
    return base / f"kernels-{digest.hexdigest()[:16]}"


_PARTS: Final = ("reading", "holding", "seeking", "kernels", "guards", "values", "updating")
_SOURCES: Final = ("jit", "native", "tables", *_PARTS)


def _load() -> ModuleType:
    """The kernels' text once more, every function compiled into those that call it."""
    import numba
    import numpy as np

    if not cache_folder().exists():
        _log.warning("compiling the matching kernels, once on this machine: up to a minute")
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder())
    compiler = numba.njit(cache=True, nogil=True, forceinline=True)

    @compiler
    def bits(number: Any) -> Any:
        return np.float64(number).view(np.int64)

    of_machine = {"double_bits": bits, "prefetch": _prefetching()}
    plain = {name: globals()[name] for name in of_machine}
    globals().update(of_machine)
    _decorators.append(compiler)
    try:
        for name in _PARTS:
            _compiled_parts[name] = _loaded_again(name)
        native = importlib.import_module(f"{_HERE}native")
        native.exercise()
    finally:
        _decorators.pop()
        globals().update(plain)
        config.CACHE_DIR = before
    return native


def _prefetching() -> Any:
    """`prefetch` as the processor's own instruction, inside compiled code."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic
    from numba.np import arrayobj

    of_numba: Any = arrayobj, cgutils
    arrays, code = of_numba

    def prefetch(typing_context: Any, array: Any, row: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            held = arrays.make_array(array)(context, builder, value=arguments[0])
            stride = code.unpack_tuple(builder, held.strides)[0]
            wanted = context.cast(builder, arguments[1], row, types.intp)
            start = builder.ptrtoint(held.data, stride.type)
            address = builder.add(start, builder.mul(wanted, stride))
            flag = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag])
            function = code.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
            read, keep, data = flag(0), flag(3), flag(1)
            builder.call(function, [builder.inttoptr(address, cgutils.voidptr_t), read, keep, data])
            return context.get_dummy_value()

        return types.none(array, row), generate

    return intrinsic(prefetch)


def _loaded_again(name: str) -> ModuleType:
    full = f"{_HERE}compiled_{name}"
    spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module
