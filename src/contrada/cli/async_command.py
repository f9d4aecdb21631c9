"""`run` and the options of asynchronous commands; Ctrl-C ends them at once."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar

import click

from contrada.cli.lazy_group import EXIT_INTERRUPTED
from contrada.errors import ConnectionFailedError
from contrada.service import Service

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

END_WAIT_S: Final = 1.0
"""Seconds for an orderly end after Ctrl-C, such as closing a connection. Beyond it: the process
ends at once, as at the second Ctrl-C.
"""


def run(work: Coroutine[Any, Any, T], *, is_endless: bool = False) -> T:
    """Runs a coroutine to its end. Raises KeyboardInterrupt if Ctrl-C ended it.

    SIGTERM ends an `is_endless` coroutine in the same way, with status 0, for supervisors of
    services.
    """
    statuses = {signal.SIGINT: EXIT_INTERRUPTED} | ({signal.SIGTERM: 0} if is_endless else {})
    before = {number: signal.getsignal(number) for number in statuses}
    ended_by: list[int] = []
    ends: list[threading.Timer] = []

    async def interruptible() -> T:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert task is not None

        def interrupt(number: int, _: object) -> None:
            if ended_by:
                os._exit(statuses[signal.Signals(number)])
            ended_by.append(number)
            loop.call_soon_threadsafe(task.cancel)
            # Not by the loop, which a long computation without an await would block.
            end = threading.Timer(END_WAIT_S, os._exit, (statuses[signal.Signals(number)],))
            end.daemon = True
            end.start()
            ends.append(end)

        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                # The loop would run its own handlers only when nothing else runs there.
                signal.signal(number, interrupt)
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        if signal.SIGTERM in ended_by:
            raise click.exceptions.Exit(0) from None
        raise KeyboardInterrupt from None
    finally:
        for each in ends:
            each.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


async def lost(service: Service) -> NoReturn:
    """Waits until the broker's connection is lost. Raises ConnectionFailedError."""
    async for state in service.connection_states():
        if state.state == "closed":
            raise ConnectionFailedError(state.address, state.reason)
    raise ConnectionFailedError(service.connection.address, "the service was closed")
