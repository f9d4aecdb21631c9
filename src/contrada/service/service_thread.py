"""`ServiceThread`: a service on an event loop in a thread of its own, for code that does not await.

The caller's thread only waits for results, so Ctrl-C reaches it at once. Everything here may be
called from several threads.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, Self, TypeVar

from contrada.errors import ServiceClosedError, ServiceError
from contrada.service.interface import Service

T = TypeVar("T")
R = TypeVar("R")

THREAD_WAIT_S: Final = 10.0
"""How long closing waits for what still runs to end, and then for the loop's thread. Beyond it:
ServiceError, and they are left behind."""


class ServiceThread:
    """A service and its thread; use it inside `with`."""

    def __init__(self, service: Service) -> None:
        """`service` must not be open yet; from now on it belongs to this object."""
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        self._has_stopped = threading.Event()

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise ServiceError("this service is in use already")
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="contrada-service", daemon=True
        )
        self._thread.start()
        try:
            self.run(self._service.open())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the service and its thread. Twice is once. What is queued can still be read.

        In a forked process nothing is done, since neither runs there. Raises ServiceError where
        they do not end in time; they are left behind then.
        """
        if self._loop is not None and not self.is_forked:
            try:
                self.run(self._service.aclose())
            finally:
                self._stop()

    @property
    def is_forked(self) -> bool:
        """Whether this process is another than the one in which the service was opened."""
        return self._process not in (0, os.getpid())

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the service's loop and wait for its result."""
        if self.is_forked:  # Asked first: another thread may have held the lock.
            work.close()
            raise ServiceError(
                "this process was forked from the one in which the service was opened, and has "
                "none of its threads; connect anew here"
            )
        if threading.current_thread() is self._thread:
            work.close()
            raise ServiceError("called on the service's own thread, which cannot wait for itself")
        with self._lock:
            if self._loop is None:
                work.close()
                closed = (
                    "the service is closed" if self._process else "use the service inside `with`"
                )
                raise ServiceClosedError(closed)
            future: Future[R] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ServiceClosedError("the service is closed") from None
        except BaseException:
            future.cancel()  # The caller was interrupted; a finished future ignores this.
            raise

    def ask(self, question: Callable[[], R]) -> R:
        """Ask something where nothing changes meanwhile: on the service's thread while it runs."""

        async def answer() -> R:
            return question()

        if self._loop is None or threading.current_thread() is self._thread:
            return question()
        try:
            return self.run(answer())
        except ServiceClosedError:  # It was closed meanwhile.
            return question()

    def left_in(self, held: AsyncIterator[T]) -> T:
        """The next of what waits once the service is closed: at its own time, on this thread.

        Raises ServiceClosedError where nothing waits, or the service is not closed.
        """
        if self._loop is None and self._process and not self.is_forked:
            self._has_stopped.wait()  # The loop's thread reads as well, until it ends.
            with self._lock:
                try:
                    _one_of(held).send(None)  # A queued item needs no waiting, so no loop.
                except StopIteration as found:
                    return found.value  # type: ignore[no-any-return]
                except StopAsyncIteration:
                    pass
        raise ServiceClosedError("it has ended")

    def _stop(self) -> None:
        with self._lock:  # What was begun before this is on the loop, and cancelled below.
            loop, thread = self._loop, self._thread
            self._loop = None
        if loop is None or thread is None:
            return
        try:
            self._stop_thread(loop, thread)
        finally:
            self._has_stopped.set()

    def _stop_thread(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        late: str | None = None
        try:
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(THREAD_WAIT_S)
        except TimeoutError:
            late = "what runs on its event loop"
        loop.call_soon_threadsafe(loop.stop)
        thread.join(THREAD_WAIT_S)
        if thread.is_alive():
            late = "its thread"
        else:
            loop.close()
        if late is not None:
            raise ServiceError(
                f"{late} did not end within THREAD_WAIT_S = {THREAD_WAIT_S:g} s and is left behind"
            )


async def _one_of(held: AsyncIterator[T]) -> T:
    return await anext(held)


async def _cancel_others() -> None:
    """Cancel what still runs on this loop and wait until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
