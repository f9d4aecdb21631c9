"""`ServiceThread`: a service on an event loop in a thread of its own, for code without `await`.

The caller's thread only waits for results, so Ctrl-C reaches it at once. Several threads may call
the same service.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, Self, TypeVar
from weakref import WeakSet

from contrada.errors import ServiceClosedError, ServiceError
from contrada.service.async_resource import AsyncResource
from contrada.service.service_limits import ServiceLimits

T = TypeVar("T")
R = TypeVar("R")


class ServiceThread:
    """A service and its thread, opened by `with`, by `open`, or at first use.

    A service that is still open when the interpreter exits is closed then.
    """

    def __init__(self, service: AsyncResource) -> None:
        """`service`, or a broker, must not be open yet; from now on it belongs to this object."""
        self._service = service
        limits: ServiceLimits = getattr(service, "service_limits", ServiceLimits())
        self._wait_s = limits.thread_wait_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        self._has_stopped = threading.Event()

    def open(self) -> Self:
        """Starts the thread and opens the service; a second call does nothing.

        Raises as `Service.open`, and ServiceClosedError once it was closed.
        """
        with self._lock:
            if self._process:
                if self._loop is None:
                    raise ServiceClosedError("the service is closed")
                return self
            self._loop = asyncio.new_event_loop()
            self._process = os.getpid()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="contrada-service", daemon=True
            )
            self._thread.start()
            try:
                opening = asyncio.run_coroutine_threadsafe(self._service.open(), self._loop)
                self._result_of(opening)
            except BaseException:
                self._stop()
                self._process = 0  # The next use tries again.
                raise
        _OPEN.add(self)
        return self

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise ServiceError("this service is in use already")
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the service and ends its thread; queued objects can still be read.

        A second call does nothing, nor does a call in a forked process, where neither runs. Raises
        ServiceError where they do not end in time; they are left behind then.
        """
        _OPEN.discard(self)
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
        try:
            future = self._begun(work)
        except BaseException:
            work.close()
            raise
        return self._result_of(future)

    def _begun(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        if self.is_forked:  # Asked first: another thread may have held the lock.
            raise ServiceError(
                "this process was forked from the one in which the service was opened, and has "
                "none of its threads; connect anew here"
            )
        if threading.current_thread() is self._thread:
            raise ServiceError("called on the service's own thread, which cannot wait for itself")
        if not self._process:
            self.open()
        with self._lock:
            if self._loop is None:
                raise ServiceClosedError("the service is closed")
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _result_of(self, future: Future[R]) -> R:
        try:
            return future.result()
        except CancelledError:
            raise ServiceClosedError("the service is closed") from None
        except BaseException:
            future.cancel()  # The caller was interrupted; a finished future ignores this.
            raise

    def ask(self, function: Callable[[], R]) -> R:
        """Calls a function that reads state of the service: on its thread while that runs."""

        async def called() -> R:
            return function()

        if self._loop is None or threading.current_thread() is self._thread:
            return function()
        try:
            return self.run(called())
        except ServiceClosedError:  # It was closed meanwhile.
            return function()

    def left_in(self, held: AsyncIterator[T]) -> T:
        """The next queued object after the service was closed, read on the caller's thread.

        Raises ServiceClosedError where the queue is empty, or the service is not closed.
        """
        if self._loop is None and self._process and not self.is_forked:
            self._has_stopped.wait()  # The loop's thread reads as well, until it ends.
            with self._lock:
                try:
                    # A queued item needs no waiting, so no loop.
                    anext(held).__await__().send(None)
                except StopIteration as found:
                    return found.value  # type: ignore[no-any-return]
                except StopAsyncIteration:
                    pass
        raise ServiceClosedError("it has ended")

    def _stop(self) -> None:
        with self._lock:  # Calls that began before are on the loop, and cancelled below.
            loop, thread = self._loop, self._thread
            self._loop = None
        if loop is None or thread is None:
            return
        late = ""
        try:
            asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(self._wait_s)
        except TimeoutError:
            late = "a task on its event loop"
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(self._wait_s)
            self._has_stopped.set()
        if thread.is_alive():
            late = "its thread"
        else:
            loop.close()
        if late:
            raise ServiceError(
                f"{late} did not end within thread_wait_s = {self._wait_s:g} s and is left behind"
            )


async def _cancel_others() -> None:
    """Cancels all other tasks of this loop and waits until they have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


_OPEN: Final[WeakSet[ServiceThread]] = WeakSet()


def open_loops() -> list[asyncio.AbstractEventLoop]:
    """Returns the event loops of the threads that are open in this process."""
    loops = [each._loop for each in list(_OPEN) if not each.is_forked]
    return [loop for loop in loops if loop is not None]


@atexit.register
def _close_all() -> None:
    """Closes the services that are still open, so that nothing accepted is lost at exit."""
    for each in list(_OPEN):
        each.close()
