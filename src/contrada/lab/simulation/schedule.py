"""`Schedule`: virtual time. Actions run in order of time, then of arrangement.

Invariants: time never decreases; two runs that arrange the same do the same in the same order.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from contrada.errors import LimitError

ACTIONS_MAX: Final = 20_000_000
"""Actions of one simulated run. Beyond it: it ends with LimitError."""


class Schedule:
    """The actions, by time in microseconds."""

    def __init__(self) -> None:
        self.now_us = 0
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._arranged = 0

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Arranges an action after a delay."""
        assert delay_us >= 0, f"{delay_us} µs is in the past"
        if self._arranged >= ACTIONS_MAX:
            raise LimitError("ACTIONS_MAX", ACTIONS_MAX)
        heappush(self._waiting, (self.now_us + delay_us, self._arranged, action))
        self._arranged += 1

    def run(self, until_us: int | None = None) -> None:
        """Runs the actions until a time, which is then the present one, or until none is left."""
        waiting = self._waiting
        while waiting and (until_us is None or waiting[0][0] <= until_us):
            self.now_us, _, action = heappop(waiting)
            action()
        if until_us is not None:
            self.now_us = max(self.now_us, until_us)
