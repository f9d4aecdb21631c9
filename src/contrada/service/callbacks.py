"""`HandlerCalls` and `handle_all`: handlers that are called with each object of a subscription."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any, Final, TypeVar

from contrada.errors import ServiceError
from contrada.service import trace_spans
from contrada.service.subjects import Handler, OnError

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)

HANDLER_TURN_S: Final = 0.005
"""Seconds of consecutive calls of a plain handler. Beyond it: other tasks get a turn."""

_CALLS_PER_LOOK: Final = 64

HANDLERS_MAX: Final = 1_000
"""Concurrent calls of one handler. Beyond it: ServiceError."""


class HandlerCalls:
    """The concurrent calls of a handler, up to a number. Raises ServiceError."""

    def __init__(self, most: int) -> None:
        self._most = checked_concurrency(most)
        self._running: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    async def begin(self, call: Coroutine[Any, Any, None], kind: type = object) -> None:
        """Starts a call for an object of a kind; returns when there is room for another."""
        self._start(call)
        await self._room()

    def cancel(self) -> None:
        """Cancels all calls."""
        for task in self._running:
            task.cancel()

    async def finished(self) -> None:
        """Returns when all calls are done; a cancellation cancels them."""
        await asyncio.gather(*self._running, return_exceptions=True)

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._changed.set()

    @property
    def _is_full(self) -> bool:
        return len(self._running) >= self._most

    async def _room(self) -> None:
        while self._is_full:
            self._changed.clear()
            await self._changed.wait()


async def handle_all(
    items: AsyncIterator[T],
    function: Handler[T],
    concurrency: int,
    failed: Callable[[Exception, T], Awaitable[None]],
    finished: Callable[[T], None] = lambda _: None,
    is_alone: Callable[[T], bool] = lambda _: False,
) -> None:
    """Calls a function with each item, up to `concurrency` at a time; see `Subscription.handle`.

    An item is read only when its call can begin. `failed` is called with each exception, `finished`
    after each call without one. Items that are alone are called without others at the same time.
    Raises the errors of the iteration, after the running calls, and ServiceError.
    """
    calls = HandlerCalls(concurrency)
    if trace_spans.is_on:
        function = trace_spans.trace_handler(function)

    async def finish(result: Awaitable[object], item: T) -> None:
        try:
            await result
        except Exception as error:  # noqa: BLE001 - the subscriber's own code
            await failed(error, item)
        else:
            finished(item)

    began_s, plain = monotonic(), 0
    try:
        async for item in items:
            if lone := is_alone(item):
                await calls.finished()
            try:
                result = function(item)
            except Exception as error:  # noqa: BLE001 - the subscriber's own code
                await failed(error, item)
                continue
            if result is None or not inspect.isawaitable(result):
                finished(item)
                plain += 1
                if plain % _CALLS_PER_LOOK == 0 and monotonic() - began_s >= HANDLER_TURN_S:
                    await asyncio.sleep(0)
                    began_s = monotonic()
                continue
            await calls.begin(finish(result, item))
            if lone:
                await calls.finished()
    except asyncio.CancelledError:
        calls.cancel()
        raise
    finally:
        await calls.finished()


async def called(function: Callable[..., Awaitable[object] | object], *arguments: object) -> None:
    """Calls a function, and awaits its result if that is awaitable."""
    result = function(*arguments)
    if inspect.isawaitable(result):
        await result


async def tell_error(on_error: OnError[T], error: Exception, item: T, of: object) -> None:
    """Calls `on_error` of a handler; an exception of its own is logged."""
    try:
        await called(on_error, error, item)
    except Exception as further:  # noqa: BLE001 - the subscriber's own code
        said = {"subject": of, "reason": further}
        _LOG.warning("on_error of a handler of %(subject)s raised: %(reason)r", said)


def checked_concurrency(concurrency: int) -> int:
    """The concurrency itself, if it is valid. Raises ServiceError."""
    given: object = concurrency
    if type(given) is not int or not 1 <= given <= HANDLERS_MAX:
        raise ServiceError(f"concurrency = {concurrency!r}: expected 1 to {HANDLERS_MAX} calls")
    return concurrency
