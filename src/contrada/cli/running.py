"""How commands run what awaits: Ctrl-C ends them at once."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from contrada.cli.lazy import EXIT_INTERRUPTED

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
