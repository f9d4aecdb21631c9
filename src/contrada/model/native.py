"""`NATIVE`: the compiled module, `contrada._native`, or None where its sources run interpreted.

The build compiles it ahead of time (see `hatch_build.py`). Without it everything works, some
hundred times slower; a warning says so once.
"""

import importlib
import logging
import os
from typing import Any, Final

_log = logging.getLogger("contrada")

INTERPRETED_VARIABLE: Final = "CONTRADA_INTERPRETED"
"""This environment variable, unless empty or 0, keeps everything interpreted."""


def warn_interpreted(reason: str) -> None:
    """Logs why the sources run interpreted, and the remedy."""
    _log.warning(
        "contrada._native %(reason)s: matching is interpreted, and slow. "
        "Install a C compiler and contrada again, or a wheel that has it.",
        {"reason": reason},
    )


def _load() -> Any:
    if os.environ.get(INTERPRETED_VARIABLE, "0") not in ("", "0"):
        return None
    try:
        return importlib.import_module("contrada._native")
    except ImportError:
        warn_interpreted("is not built")
        return None


NATIVE: Final = _load()
