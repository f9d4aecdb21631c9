"""Pure functions of many cases, spread over processes."""

import gc
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from multiprocessing import get_context
from typing import Final, TypeVar

C = TypeVar("C")
R = TypeVar("R")


COLLECT_AFTER: Final = 50_000
"""Objects after which a process looks for garbage: a run keeps most of what it makes to its end."""


def in_processes(function: Callable[[C], R], cases: Sequence[C], jobs: int) -> Iterator[R]:
    """The result of each case, as they are done; one job is this process, in order.

    Only what runs is handed out, so that whoever ends early waits for that alone.
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
    """What each process does first."""
    gc.set_threshold(COLLECT_AFTER)
    # Ctrl-C goes to all of a terminal: these end at once, and leave the word to the first.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
