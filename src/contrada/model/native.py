"""`NATIVE`: the compiled module, `contrada._native`, or None where its sources run interpreted.

The build compiles it ahead of time (see `hatch_build.py`). Without it everything works, some
hundred times slower; a warning says so once. The same holds for a module that was built from other
sources, as in a checkout after a pull: its constants, and what its functions take, may be others.
"""

import hashlib
import importlib
import os
from pathlib import Path
from typing import Any, Final

INTERPRETED_VARIABLE: Final = "CONTRADA_INTERPRETED"
"""This environment variable, unless empty or 0, keeps everything interpreted."""


def warn_interpreted(reason: str) -> None:
    """Logs why the sources run interpreted, and the remedy."""
    import logging  # It takes a tenth of the time of `import contrada`, and is seldom needed.

    logging.getLogger("contrada").warning(
        "contrada._native %(reason)s: matching is interpreted, and slow. "
        "Install a C compiler and contrada again, or a wheel that has it.",
        {"reason": reason},
    )


def source_digest() -> str:
    """Returns a hash of the compiled sources; empty where only bytecode is there. Cost: 0.5 ms."""
    package = Path(__file__).parents[1]
    kernels = sorted((package / "matching" / "kernels").glob("*.py"))
    texts = [
        each.read_bytes() for each in (*kernels, *sorted(package.glob("model/algebra/plain_*.py")))
    ]
    return hashlib.sha256(b"\0".join(texts)).hexdigest() if texts else ""


def load_native() -> Any:
    """Returns the compiled module, or None and logs the reason."""
    if os.environ.get(INTERPRETED_VARIABLE, "0") not in ("", "0"):
        return None
    try:
        native: Any = importlib.import_module("contrada._native")
    except ImportError:
        warn_interpreted("is not built")
        return None
    if source_digest() in (getattr(native, "SOURCES", None), ""):
        return native
    warn_interpreted("was built from other sources")
    return None


NATIVE: Final = load_native()
