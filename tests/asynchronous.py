"""Run an async test function on an event loop of its own, with an end."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

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
