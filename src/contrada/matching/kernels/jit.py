"""The compilation of kernels: if and when. `memory` defines them.

Loading them takes about a second, so an index begins without them (see `index`).
"""

import hashlib
import importlib
import importlib.util
import logging
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Final

_log = logging.getLogger("contrada.matching")

PURE_VARIABLE: Final = "CONTRADA_PURE"
"""This environment variable, unless empty or 0, keeps everything uncompiled."""

KERNELS: Final = ("scratch", "evaluate", "bucket_lookup", "match", "update", "batch_validate")
"""The modules of kernels of an index."""

COLUMN_KERNELS: Final = ("msgpack_writer", "json_scanner", "csv_scanner")
"""The modules of kernels that write columns and read lines; loaded at their first use."""

_SOURCES: Final = ("jit", "schema", "memory", "native", *COLUMN_KERNELS, *KERNELS)
_WHOLE: Final = "whole"

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
    """Loads compiled kernels on the first call; returns whether they are loaded.

    False also while another thread is loading them. Cost of the first call in a process: less than
    a second from Numba's cache on disk; up to a minute if they were never compiled on this machine.
    """
    if not is_pure() and not _state:
        _state["loading"] = True
        if not is_cached():
            _log.warning("compiling the matching kernels, once on this machine: up to a minute")
        _load(KERNELS)
        _state["loaded"] = True
        if not is_cached():
            cache_folder().mkdir(parents=True, exist_ok=True)
            _mark().touch()
    return loaded()


def compile_all() -> None:
    """Compiles the kernels that are not yet compiled on this machine, for an installation.

    Cost: most of a minute.
    """
    if compiled():
        _load(COLUMN_KERNELS)


def _load(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(f"contrada.matching.kernels.{name}")


def is_cached() -> bool:
    """Whether compiled kernels of this text are on disk."""
    return not is_pure() and _mark().exists()


def _mark() -> Path:
    """The file that marks a complete folder: it exists as soon as one kernel is compiled."""
    return cache_folder() / _WHOLE


@cache
def cache_folder() -> Path:
    """Returns the folder of compiled kernels, for exactly this text of them.

    Numba checks the file of a function alone, and not other files that are compiled into it, so
    kernels of another text must have another folder. If an installation's folder is read-only, the
    user's own begins as a copy: Numba must be able to write there.
    """
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((here / f"{name}.py").read_bytes())
    base, name = here / "__pycache__", f"kernels-{digest.hexdigest()[:16]}"
    if os.access(base if base.exists() else here, os.W_OK):
        return base / name
    own = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "contrada" / name
    if (base / name / _WHOLE).exists() and not own.exists():
        _copy(base / name, own)
    return own


def _copy(installed: Path, own: Path) -> None:
    """Copies compiled kernels: all at once, even if others do so."""
    beside = own.with_name(f"{own.name}.{os.getpid()}")
    try:
        shutil.copytree(installed, beside)
        beside.rename(own)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        if not own.exists():  # Else another process was first.
            _log.warning(
                "compiled kernels cannot be kept in %(path)s: %(reason)s",
                {"path": own, "reason": error},
            )
