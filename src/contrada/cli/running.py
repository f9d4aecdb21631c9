"""How commands run what awaits: Ctrl-C ends them at once."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, Final, NoReturn, TypeVar

from contrada.cli.lazy import EXIT_INTERRUPTED
from contrada.errors import ConnectionFailedError
from contrada.service import Service

T = TypeVar("T")

END_WAIT_S: Final = 1.0
"""How long a command may take to end in order after Ctrl-C, such as to say goodbye to a broker.
Beyond it: it ends as it is, as with the second Ctrl-C."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. Raises KeyboardInterrupt where Ctrl-C ended it."""

    async def interruptible() -> T:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        assert task is not None

        def interrupt() -> None:
            if task.cancelling():
                os._exit(EXIT_INTERRUPTED)
            task.cancel()
            loop.call_later(END_WAIT_S, os._exit, EXIT_INTERRUPTED)

        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGINT, interrupt)
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def lost(service: Service) -> NoReturn:
    """Waits until a broker is gone. Raises ConnectionFailedError."""
    async for state in service.connection_states():
        if state.state == "closed":
            raise ConnectionFailedError(state.address, state.reason)
    raise ConnectionFailedError(service.connection.address, "the service was closed")


async def first_of(*works: Coroutine[Any, Any, Any]) -> None:
    """Does all at once until one has ended, and ends the others. Raises what that one raises."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
    for each in done:
        each.result()
