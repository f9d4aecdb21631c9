"""Pure functions of many cases, spread over processes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

C = TypeVar("C")
R = TypeVar("R")


def in_processes(function: Callable[[C], R], cases: Sequence[C], jobs: int) -> Iterator[R]:
    """The result of each case, as they are done; one job is this process, in order.

    Whoever ends early cancels what has not begun.
    """
    if jobs == 1:
        yield from map(function, cases)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(function, case) for case in cases]
        try:
            for each in as_completed(waiting):
                yield each.result()
        finally:
            for each in waiting:
                each.cancel()
