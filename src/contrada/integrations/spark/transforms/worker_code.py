"""`import_in_worker` and `sent`: functions for workers, which report a worker without this package.

cloudpickle sends inner functions by value, not by name.
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
"""Cached tasks of each kind in a worker; a new base makes a new one. Beyond it: the least recently
used one is decoded again."""


def import_in_worker(name: str) -> Callable[[], Any]:
    """Returns a function that imports a module of this room in a worker."""
    missing = _missing_package()

    def imported():  # type: ignore[no-untyped-def]
        from importlib import import_module

        try:
            import_module("contrada.integrations.spark.transforms.worker_code").freeze_modules()
            return import_module(f"contrada.integrations.spark.transforms.{name}")
        except ImportError as error:
            raise missing(error) from None

    return imported


def for_worker(work: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function for workers that unpickles this one when called. It reports a worker
    without this package, and one without Numba if this process has it.
    """
    packed, is_compiled, missing = cloudpickle.dumps(work), not jit.is_pure(), _missing_package()

    def run(*given):  # type: ignore[no-untyped-def]
        from pickle import loads

        try:
            from contrada.integrations.spark.transforms.worker_code import (
                check_compiled,
                freeze_modules,
            )

            freeze_modules()
            unpacked = loads(packed)
        except ImportError as error:
            raise missing(error) from None
        check_compiled(is_compiled)
        return unpacked(*given)

    return run


def freeze_modules() -> None:
    """Excludes loaded modules from garbage collection, after new ones were loaded. Spark makes a
    worker collect after each task, and compiled kernels have some 200,000 permanent objects:
    scanning them costs a task 80 ms of its core.
    """
    global _settled
    if len(sys.modules) > _settled:
        gc.freeze()
        _settled = len(sys.modules)


_settled = 0


def check_compiled(is_compiled: bool) -> None:
    """Raises MissingRequirementError in a worker without Numba, if the driver has it."""
    if is_compiled and jit.is_pure():
        where = f"this worker ({os.uname().nodename})"
        remedy = "there, too: pip install 'contrada[fast]'; or set CONTRADA_PURE=1 for the driver"
        raise MissingRequirementError(f"Numba, for compiled matching at {where}", remedy)


def _missing_package() -> Callable[[ImportError], RuntimeError]:
    """Returns the error of a worker that cannot import this package."""

    def missing(error):  # type: ignore[no-untyped-def]
        import os
        import sys

        where = f"the worker on {os.uname().nodename} ({sys.executable})"
        text = f"{where} cannot import contrada ({error}): install contrada[spark,fast] there"
        return RuntimeError(text)

    return missing
