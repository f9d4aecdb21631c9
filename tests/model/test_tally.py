"""Counts are complete under concurrency."""

import sys
import threading

from contrada.model.languages.atoms import Tally

COUNTS = 20_000


def test_threads_that_count_at_once_lose_nothing() -> None:
    """Statistics would be too low."""
    tally = Tally()
    threads = [threading.Thread(target=count_up, args=(tally,)) for _ in range(4)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval_s)
    assert tally == {"covers": 4 * COUNTS}


def count_up(tally: Tally) -> None:
    """The work of each thread."""
    for _ in range(COUNTS):
        tally.add("covers")
