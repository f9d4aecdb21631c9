"""`load_beside`: loads the compiled kernels of matching while a service works.

Loading takes a second or more. A thread does it once per process, and plain Python matches
meanwhile. The thread is no daemon: a process that ends waits for it.
"""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from contrada.matching.kernels import jit

TURN_S: Final = 0.000_2
"""Seconds for which a thread keeps the interpreter while kernels are loaded (Python: 0.005)."""

_log = logging.getLogger("contrada.service")
_started = threading.Event()


def load_beside() -> None:
    """Starts loading the compiled kernels, unless that was started before."""
    if not _started.is_set():
        _started.set()
        threading.Thread(target=_load, name="contrada-kernels").start()


@contextmanager
def _short_turns() -> Iterator[None]:
    # Loading is thousands of short calls into LLVM, and each gives the interpreter away. Beside a
    # loop that is never idle the thread would wait a turn for each, and load for half a minute.
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _load() -> None:
    try:
        with _short_turns():
            jit.compiled()
    except Exception:  # noqa: BLE001  whatever it is, the service goes on in plain Python
        _log.exception("the compiled kernels cannot be loaded; matching stays plain")
