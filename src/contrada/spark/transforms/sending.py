"""What is sent to workers, so that one without this package can say so.

Functions within functions are sent as they are, not by their names.
"""

import gc
import os
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from pyspark import cloudpickle

from contrada.errors import MissingRequirementError
from contrada.matching.kernels import jit


def in_worker(name: str) -> Callable[[], Any]:
    """What gives, in a worker, a module of this room by its name."""
    lacking = _lacking()

    def imported():  # type: ignore[no-untyped-def]
        from importlib import import_module

        try:
            found = import_module(f"contrada.spark.transforms.{name}")
        except ImportError as error:
            raise lacking(error) from None
        import_module("contrada.spark.transforms.sending").begin_task()
        return found

    return imported


def sent(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for workers: it is unpickled there when it is called.

    One that lacks this package then says so, and one without Numba where this process has it.
    """
    packed, is_compiled, lacking = cloudpickle.dumps(work), not jit.is_pure(), _lacking()

    def run(*given):  # type: ignore[no-untyped-def]
        from pickle import loads

        try:
            from contrada.spark.transforms.sending import begin_task, check_compiled

            unpacked = loads(packed)
        except ImportError as error:
            raise lacking(error) from None
        check_compiled(is_compiled)
        begin_task()
        return unpacked(*given)

    return run


def begin_task() -> None:
    """Notes that a task begins in this worker.

    Spark's workers collect garbage behind each task, which takes 60 ms where all modules are
    loaded that matching needs. What the first task has left is there for good: it is looked at no
    more.
    """
    if next(_tasks) == 2:
        gc.freeze()


_tasks: Final = count(1)


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
