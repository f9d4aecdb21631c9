"""Handlers: functions that are called with what a subscription gives, in place of a loop."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from contrada.errors import ServiceError
from contrada.runtime.calling import running_loop

T = TypeVar("T")

HANDLER_TURN_S: Final = 0.005
"""Seconds of calls in a row of a handler that is a plain function. Beyond it: others on the event
loop have their turn."""

_CALLS_PER_LOOK: Final = 64

HANDLERS_MAX: Final = 1_000
"""Calls of one subscription's handler at a time. Beyond it: ServiceError."""


async def handle_all(
    items: AsyncIterator[T],
    function: Callable[[T], Awaitable[object] | object],
    concurrency: int,
    failed: Callable[[Exception, T], Awaitable[None]],
) -> None:
    """Call a function with each item, so many at a time; see `Subscription.handle`.

    An item is taken only when its call can begin. `failed` is told what a call raised. Raises
    what the items raise, once the calls that have begun are done, and ServiceError.
    """
    most = checked_concurrency(concurrency)
    calls: set[asyncio.Task[None]] = set()

    async def finish(result: Awaitable[object], item: T) -> None:
        try:
            await result
        except Exception as error:  # noqa: BLE001 - the subscriber's own code
            await failed(error, item)

    clock = running_loop().time
    began_s, plain = clock(), 0
    try:
        async for item in items:
            try:
                result = function(item)
            except Exception as error:  # noqa: BLE001 - the subscriber's own code
                await failed(error, item)
                continue
            if result is None or not inspect.isawaitable(result):
                plain += 1
                if plain % _CALLS_PER_LOOK == 0 and clock() - began_s >= HANDLER_TURN_S:
                    await asyncio.sleep(0)
                    began_s = clock()
                continue
            task = asyncio.create_task(finish(result, item))
            calls.add(task)
            task.add_done_callback(calls.discard)
            while len(calls) >= most:
                await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        for task in calls:
            task.cancel()
        raise
    finally:
        await asyncio.gather(*calls, return_exceptions=True)


async def called(function: Callable[..., Awaitable[object] | object], *arguments: object) -> None:
    """Call a function, and await what it gives where that can be awaited."""
    result = function(*arguments)
    if inspect.isawaitable(result):
        await result


def checked_concurrency(concurrency: int) -> int:
    """The number of calls itself where it is allowed. Raises ServiceError."""
    given: object = concurrency
    if not isinstance(given, int) or not 1 <= given <= HANDLERS_MAX:
        raise ServiceError(f"concurrency = {concurrency!r}: expected 1 to {HANDLERS_MAX} calls")
    return concurrency
