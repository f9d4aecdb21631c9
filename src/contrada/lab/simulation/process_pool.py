"""`in_processes`: a pure function of many cases, spread over processes."""

import gc
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from multiprocessing import get_context
from typing import Final, TypeVar

C = TypeVar("C")
R = TypeVar("R")


COLLECT_AFTER: Final = 50_000
"""Objects after which a process collects garbage: a run keeps most of its objects to its end."""


def in_processes(function: Callable[[C], R], cases: Iterable[C], jobs: int) -> Iterator[R]:
    """Yields the result of each case, as completed; one job is this process, in order.

    Only as many cases are submitted as run, so an early end need not wait for the others.
    """
    if jobs == 1:
        yield from map(function, cases)
        return
    spawn = get_context("spawn")
    with ProcessPoolExecutor(jobs, spawn, _begin) as pool:
        running: set[Future[R]] = set()
        for case in cases:
            running.add(pool.submit(function, case))
            if len(running) == jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        for each in as_completed(running):
            yield each.result()


def _begin() -> None:
    gc.set_threshold(COLLECT_AFTER)
    # Ctrl-C reaches all processes: these end at once, and only the first reports it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
