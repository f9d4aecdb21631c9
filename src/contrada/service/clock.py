"""The clocks of services, and `Deadlines`: a timer of the event loop."""

import asyncio
import time
from collections.abc import Callable


def wall_clock_us() -> int:
    """The clock of this machine, in UTC microseconds since 1970; it may be put back."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    """The monotonic clock, in microseconds."""
    return time.monotonic_ns() // 1000


class Deadlines:
    """A timer for the next deadline, `due_us` by the clock `now_us`; `expire` removes it."""

    def __init__(
        self,
        due_us: Callable[[], int | None],
        expire: Callable[[], None],
        now_us: Callable[[], int] = monotonic_us,
    ) -> None:
        self._due_us, self._expire, self._now_us = due_us, expire, now_us
        self._timer: asyncio.TimerHandle | None = None
        self._until_us = 0

    def look(self) -> None:
        """Checks for an earlier deadline."""
        due_us = self._due_us()
        if due_us is None or (self._timer is not None and self._until_us <= due_us):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._until_us = due_us
        wait_s = max(0, due_us - self._now_us()) / 1e6
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._passed)

    def cancel(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _passed(self) -> None:
        self._timer = None
        try:
            self._expire()
        finally:
            self.look()
