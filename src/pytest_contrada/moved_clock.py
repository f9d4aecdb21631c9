"""`MovedClock`: the clock that services and event loops of a process read, moved by a test.

Services read the time by `time.time_ns` and `time.monotonic_ns`, and wait by timers of asyncio.
This clock adds the same span to all three, so stamps, expiry, delays, back-off and time-outs agree.
Time still passes by itself, too.
"""

import asyncio
import time
from collections.abc import Iterator
from threading import Event
from typing import Final, Self

from contrada.errors import InvalidValueError
from contrada.service.service_thread import open_loops

ADVANCE_S_MAX: Final = 7 * 86_400.0
"""Seconds of one move of the clock. Beyond it: InvalidValueError."""

STEP_S: Final = 1.0
"""Seconds that the clock is moved at once. Brokers and clients check each other in between, or
would take one another for silent."""

TURNS: Final = 4
"""Turns of each event loop between steps: a timer, its message, and the answer."""

TURN_WAIT_S: Final = 10.0
"""Wait for the turn of an event loop. Beyond it: TimeoutError."""


class MovedClock:
    """A clock that is moved inside its `with`; it never moves back there.

    It moves the event loops of asyncio (not uvloop) and the blocking services of this process. Code
    that reads the time elsewhere, such as the rates of a broker's users, sees the real clock.
    """

    def __init__(self) -> None:
        self._moved_s = 0.0

    @property
    def moved_s(self) -> float:
        """The seconds by which the clock was moved so far."""
        return self._moved_s

    def advance(self, seconds: float) -> None:
        """Moves the clock, and returns when loops in other threads have run their due timers.

        A loop that runs in this thread does so when it gets its next turn: use `sleep` there.
        Cost: an hour takes less than a second of CPU with a broker and a client. Raises
        InvalidValueError, and TimeoutError when a loop is blocked.
        """
        for _ in self._steps(seconds):
            pass

    async def sleep(self, seconds: float) -> None:
        """Moves the clock while the running event loop takes its turns, as `asyncio.sleep` would.

        Raises as `advance`.
        """
        for _ in self._steps(seconds):
            for _ in range(TURNS):
                await asyncio.sleep(0)

    def _steps(self, seconds: float) -> Iterator[None]:
        given: object = seconds
        if not (isinstance(given, int | float) and 0 <= seconds <= ADVANCE_S_MAX):
            raise InvalidValueError(seconds, f"expected seconds from 0 to {ADVANCE_S_MAX:g}")
        until_s = self._moved_s + seconds
        while True:
            # Also before the first step: a request that was just sent began before it.
            for _ in range(TURNS):
                for loop in open_loops():
                    _await_turn(loop)
            yield
            if self._moved_s >= until_s:
                return
            self._moved_s = min(until_s, self._moved_s + STEP_S)

    def __enter__(self) -> Self:
        loop_time, wall_ns, monotonic_ns = self._real = (
            asyncio.BaseEventLoop.time,
            time.time_ns,
            time.monotonic_ns,
        )

        def moved_time(self: asyncio.BaseEventLoop) -> float:
            return loop_time(self) + clock._moved_s

        clock = self
        asyncio.BaseEventLoop.time = moved_time  # type: ignore[method-assign]
        time.time_ns = lambda: wall_ns() + round(self._moved_s * 1e9)
        time.monotonic_ns = lambda: monotonic_ns() + round(self._moved_s * 1e9)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.BaseEventLoop.time, time.time_ns, time.monotonic_ns = (  # type: ignore[method-assign]
            self._real
        )


def _await_turn(loop: asyncio.AbstractEventLoop) -> None:
    """Returns when a loop of another thread has run the timers that are due."""
    has_run = Event()
    try:
        # A due timer is called in the turn after the one that wakes the loop.
        loop.call_soon_threadsafe(loop.call_soon, has_run.set)
    except RuntimeError:  # It was closed meanwhile.
        return
    if not has_run.wait(TURN_WAIT_S):
        raise TimeoutError(f"an event loop took no turn within {TURN_WAIT_S:g} s: it is blocked")
