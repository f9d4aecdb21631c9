"""`NATIVE`: the compiled module of all kernels, or None where they run interpreted.

The build compiles it ahead of time (see `hatch_build.py`). Without it everything works, some
hundred times slower; a warning says so once.
"""

import importlib
import logging
import os
from typing import Any, Final

from contrada.matching.kernels.schema import layouts

_log = logging.getLogger("contrada.matching")

INTERPRETED_VARIABLE: Final = "CONTRADA_INTERPRETED"
"""This environment variable, unless empty or 0, keeps everything interpreted."""


def _load() -> Any:
    if os.environ.get(INTERPRETED_VARIABLE, "0") not in ("", "0"):
        return None
    try:
        native = importlib.import_module("contrada._native")
    except ImportError:
        reason = "is not built"
    else:
        if layouts() == native.LAYOUTS:
            return native
        reason = "was built from other sources"
    _log.warning(
        "contrada._native %(reason)s: matching is interpreted, and slow. "
        "Install a C compiler and contrada again, or a wheel that has it.",
        {"reason": reason},
    )
    return None


NATIVE: Final = _load()
