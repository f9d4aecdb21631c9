"""What is sent to workers, so that one without this package can say so.

Functions within functions are sent as they are, not by their names.
"""

import gc
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from pyspark import cloudpickle

from contrada.errors import MissingRequirementError
from contrada.matching.kernels import jit

SHIPPED_KEPT_MAX: Final = 16
"""Tasks that a worker keeps unpacked, of each kind; a new base makes a new one. Beyond it: the one
that was not done for the longest is unpacked anew."""


def in_worker(name: str) -> Callable[[], Any]:
    """What gives, in a worker, a module of this room by its name."""
    lacking = _lacking()

    def imported():  # type: ignore[no-untyped-def]
        from importlib import import_module

        try:
            import_module("contrada.integrations.spark.transforms.worker_code").settle()
            return import_module(f"contrada.integrations.spark.transforms.{name}")
        except ImportError as error:
            raise lacking(error) from None

    return imported


def sent(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for workers: it is unpickled there when it is called.

    One that lacks this package then says so, and one without Numba where this process has it.
    """
    packed, is_compiled, lacking = cloudpickle.dumps(work), not jit.is_pure(), _lacking()

    def run(*given):  # type: ignore[no-untyped-def]
        from pickle import loads

        try:
            from contrada.integrations.spark.transforms.worker_code import check_compiled, settle

            settle()
            unpacked = loads(packed)
        except ImportError as error:
            raise lacking(error) from None
        check_compiled(is_compiled)
        return unpacked(*given)

    return run


def settle() -> None:
    """Keeps the garbage collector away from modules, where new ones were loaded.

    Spark has a worker collect after each task, and compiled kernels come with some 200,000 objects
    that never go: to look at them costs a task 80 ms of its core.
    """
    global _settled
    if len(sys.modules) > _settled:
        gc.freeze()
        _settled = len(sys.modules)


_settled = 0


def check_compiled(is_compiled: bool) -> None:
    """Raises MissingRequirementError in a worker without Numba of a driver that has it."""
    if is_compiled and jit.is_pure():
        where = f"this worker ({os.uname().nodename})"
        remedy = "there, too: pip install 'contrada[fast]'; or set CONTRADA_PURE=1 for the driver"
        raise MissingRequirementError(f"Numba, for compiled matching at {where}", remedy)


def _lacking() -> Callable[[ImportError], RuntimeError]:
    """What a worker says that cannot import this package."""

    def lacking(error):  # type: ignore[no-untyped-def]
        import os
        import sys

        where = f"the worker on {os.uname().nodename} ({sys.executable})"
        said = f"{where} cannot import contrada ({error}): install contrada[spark,fast] there"
        return RuntimeError(said)

    return lacking
