"""What is sent to workers, so that one without this package can say so.

Functions within functions are sent as they are, not by their names.
"""

from collections.abc import Callable
from typing import Any


def in_worker(name: str) -> Callable[[], Any]:
    """What gives, in a worker, a module of this room by its name."""

    def imported():  # type: ignore[no-untyped-def]
        from importlib import import_module

        try:
            return import_module(f"contrada.spark.transforms.{name}")
        except ImportError as error:
            import os
            import sys

            where = f"the worker on {os.uname().nodename} ({sys.executable})"
            raise RuntimeError(
                f"{where} cannot import contrada ({error}): install contrada[spark,fast] there"
            ) from None

    return imported
