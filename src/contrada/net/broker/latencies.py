"""`Latencies`: a histogram of the time that notifications take to a broker's clients.

Each Delivery frame is one observation: the age of its oldest notification, from the publisher's
timestamp until it leaves the broker.
"""

from bisect import bisect_left
from time import time_ns
from typing import Final

LATENCY_BOUNDS_US: Final = (
    *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000),
    *(500_000, 1_000_000, 2_500_000, 10_000_000),
)
BEYOND: Final = "inf"
"""The name of the last bucket, for longer latencies."""

_NAMES: Final = (*map(str, LATENCY_BOUNDS_US), BEYOND)


class Latencies:
    """The histogram of one broker."""

    __slots__ = ("_counts", "sum_us")

    def __init__(self) -> None:
        self._counts = [0] * len(_NAMES)
        self.sum_us = 0

    def observe(self, published_us: int) -> None:
        """Counts a frame by the time of its oldest notification; one of the future took no time."""
        age_us = time_ns() // 1000 - published_us
        if age_us < 0:
            age_us = 0
        self._counts[bisect_left(LATENCY_BOUNDS_US, age_us)] += 1
        self.sum_us += age_us

    def counts(self) -> dict[str, int]:
        """Returns the counts by upper bound."""
        return dict(zip(_NAMES, self._counts, strict=True))
