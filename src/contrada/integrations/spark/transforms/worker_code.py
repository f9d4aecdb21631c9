"""`for_worker`: functions for workers, which report a worker without this package or kernels."""

import gc
import os
import pickle
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from pyspark import cloudpickle

from contrada.errors import MissingRequirementError
from contrada.model.native import INTERPRETED_VARIABLE, NATIVE

SHIPPED_KEPT_MAX: Final = 16
"""Cached functions in a worker. Beyond it: the least recently used one is decoded again."""


def for_worker(work: Callable[..., Any], *, needs_kernels: bool = True) -> Callable[..., Any]:
    """Returns a function for workers that unpickles this one when called. It reports a worker
    without this package, and with `needs_kernels` one without the kernels of this process.
    """
    packed, is_compiled = cloudpickle.dumps(work), needs_kernels and NATIVE is not None

    def run(*given):  # type: ignore[no-untyped-def]
        # cloudpickle sends this inner function by value, the names of this module by reference.
        try:
            from contrada.integrations.spark.transforms import worker_code

            worker_code.freeze_modules()
            unpacked = worker_code.unpickle(packed)
        except ImportError as error:
            where = f"the worker on {os.uname().nodename} ({sys.executable})"
            text = f"{where} cannot import contrada ({error}): install 'contrada[spark]' there"
            raise RuntimeError(text) from None
        except (AttributeError, TypeError) as error:
            where = f"the worker on {os.uname().nodename} ({sys.executable})"
            text = f"{where} has another version of contrada than the driver ({error})"
            raise RuntimeError(text) from None
        worker_code.check_compiled(is_compiled)
        return unpacked(*given)

    return run


@lru_cache(SHIPPED_KEPT_MAX)
def unpickle(packed: bytes) -> Callable[..., Any]:
    """Returns a shipped function, cached in this worker."""
    work: Callable[..., Any] = pickle.loads(packed)
    return work


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
    """Raises MissingRequirementError where only the driver has compiled kernels."""
    if is_compiled and NATIVE is None:
        where = f"this worker ({os.uname().nodename})"
        remedy = f"there, too: a wheel of contrada; or set {INTERPRETED_VARIABLE}=1 for the driver"
        raise MissingRequirementError(f"compiled matching at {where}", remedy)
