"""Whether and when kernels are compiled. What they are is told in `memory`.

Loading them takes about a second, so that an index begins without them (see `index`).
"""

import hashlib
import importlib
import importlib.util
import logging
import os
from functools import cache
from pathlib import Path
from typing import Final

_log = logging.getLogger("contrada.matching")

PURE_VARIABLE: Final = "CONTRADA_PURE"
"""Set to anything but empty or 0, this environment variable keeps everything uncompiled."""

KERNELS: Final = ("reading", "holding", "seeking", "checking", "updating", "passing")
"""The modules of kernels."""

_SOURCES: Final = ("jit", "schema", "memory", "native", "writing", "walking", *KERNELS)

_state: dict[str, bool] = {}


@cache
def is_pure() -> bool:
    """Whether kernels are never compiled here."""
    told = (os.environ.get(name, "0") for name in (PURE_VARIABLE, "NUMBA_DISABLE_JIT"))
    return any(each not in ("", "0") for each in told) or not importlib.util.find_spec("numba")


def is_loaded() -> bool:
    """Whether kernels are loaded, or never will be."""
    return "loaded" in _state or is_pure()


def loaded() -> bool:
    """Whether compiled kernels are loaded."""
    return "loaded" in _state


def compiled() -> bool:
    """Loads compiled kernels on the first call; whether they are there.

    False also while another thread is loading them. Cost of the first call in a process: less than
    a second from Numba's cache on disk; up to a minute where they were never compiled on this
    machine.
    """
    if not is_pure() and not _state:
        _state["loading"] = True
        if not is_cached():
            _log.warning("compiling the matching kernels, once on this machine: up to a minute")
        for name in KERNELS:
            importlib.import_module(f"contrada.matching.kernels.{name}")
        _state["loaded"] = True
        if not is_cached():
            cache_folder().mkdir(parents=True, exist_ok=True)
            _mark().touch()
    return loaded()


def is_cached() -> bool:
    """Whether compiled kernels of this text are on disk."""
    return not is_pure() and _mark().exists()


def _mark() -> Path:
    """What says that the folder has all kernels: it is there as soon as one is compiled."""
    return cache_folder() / "whole"


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
