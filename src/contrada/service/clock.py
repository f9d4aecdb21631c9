"""Clocks of services, and `Deadlines`, a timer for the next of several deadlines."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from contrada.routing.router_messages import Ask, Message


def wall_clock_us() -> int:
    """The clock of this machine, in UTC microseconds since 1970; it may be put back."""
    return time.time_ns() // 1000


_AHEAD_US: Final = wall_clock_us() - time.monotonic_ns() // 1000


def steady_clock_us() -> int:
    """The wall clock, without any change of its setting since this module was loaded."""
    return _AHEAD_US + time.monotonic_ns() // 1000


class Deadlines:
    """A timer for the next deadline, `due_us` by the steady clock; `expire` removes past ones."""

    def __init__(self, due_us: Callable[[], int | None], expire: Callable[[], None]) -> None:
        self._due_us = due_us
        self._expire = expire
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
        wait_s = max(0, due_us - steady_clock_us()) / 1e6
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._passed)

    def _passed(self) -> None:
        self._timer = None
        try:
            self._expire()
        finally:
            self.look()


def now_us_for(message: Message | None = None) -> int:
    """The time of an event for a router: for queries the steady clock, otherwise the wall clock.

    So deadlines do not jump when the clock is set.
    """
    return steady_clock_us() if message is None or isinstance(message, Ask) else wall_clock_us()
