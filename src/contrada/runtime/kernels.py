"""Loads the compiled kernels of matching beside the work of a service.

Loading takes a second or more. A thread does it once per process, and matching goes on in plain
Python meanwhile. The thread is no daemon: a process that ends waits for it.
"""

import logging
import threading

from contrada.matching.kernels import jit

_log = logging.getLogger("contrada.runtime")
_started = threading.Event()


def load_beside() -> None:
    """Starts loading the compiled kernels, where nobody has."""
    if not _started.is_set():
        _started.set()
        threading.Thread(target=_load, name="contrada-kernels").start()


def _load() -> None:
    try:
        jit.compiled()
    except Exception:  # noqa: BLE001  whatever it is, the service goes on in plain Python
        _log.exception("the compiled kernels cannot be loaded; matching stays plain")
