"""Pure functions of many cases, spread over processes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from multiprocessing import get_context
from typing import TypeVar

C = TypeVar("C")
R = TypeVar("R")


def in_processes(function: Callable[[C], R], cases: Sequence[C], jobs: int) -> Iterator[R]:
    """The result of each case, as they are done; one job is this process, in order.

    Only what runs is handed out, so that whoever ends early waits for that alone.
    """
    if jobs == 1:
        yield from map(function, cases)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: set[Future[R]] = set()
        for case in cases:
            running.add(pool.submit(function, case))
            if len(running) == jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for each in done:
                    yield each.result()
        for each in as_completed(running):
            yield each.result()
