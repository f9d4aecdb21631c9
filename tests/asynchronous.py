"""Run an async test function on an event loop of its own, with an end."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

TEST_S_MAX = 120.0
"""A test that waits for longer than this waits for something that never comes."""


def on_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """The test as an ordinary function, so that pytest and its fixtures see no difference."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(TEST_S_MAX):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop turns until something holds."""
    while not condition():
        await asyncio.sleep(0.001)


def skip(seconds: float) -> None:
    """Advances the clock of the running loop, so that timers are due which would be later."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer when nothing else is to be done."""

    _ready: Any
    _scheduled: Any
    _now_s = 0.0

    def time(self) -> float:
        return self._now_s

    def _run_once(self) -> None:
        timers = [each.when() for each in self._scheduled if not each.cancelled()]
        if timers and not self._ready:
            self._now_s = max(self._now_s, min(timers))
        super()._run_once()  # type: ignore[misc]


def on_jumping_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The test as an ordinary function, which waits for no clock: its own work takes no time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
