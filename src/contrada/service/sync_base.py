"""`SyncResource` and its kin: what the classes of `sync` share, which are generated.

`make sync` derives `sync` from the asynchronous interface. Methods that wait in the caller's thread
for something other than a result are written here by hand: `next`, `handle`, `publish_batch`.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from contrada.errors import ServiceClosedError, ServiceError
from contrada.renamed_modules import former_method
from contrada.service.async_resource import AsyncResource
from contrada.service.callbacks import checked_concurrency
from contrada.service.interface import ConnectionState, DurableSubscription, Service, Subscription
from contrada.service.loop_guards import (
    check_items,
    checked_timeout,
    in_batches,
    next_of,
    tell_published,
)
from contrada.service.query_interface import Advertisements, Answers
from contrada.service.service_thread import ServiceThread
from contrada.service.subjects import Handler, Item, OnError

T = TypeVar("T")
H = TypeVar("H", bound=AsyncResource)
P = TypeVar("P")
S = TypeVar("S", bound=Subscription[Any] | DurableSubscription[Any] | Advertisements | Answers[Any])
W = TypeVar("W", bound=Subscription[Any] | DurableSubscription[Any])

BATCH_READ: Final = 1_024
"""Items of a batch that are read before they are published together. Beyond it: they wait for the
service to take these."""


class SyncServiceBase(ServiceThread):
    """The methods of `SyncService` that read iterables on the caller's thread."""

    _service: Service

    def __init__(self, service: Service) -> None:
        """`service` must not be open yet; from now on it belongs to this object."""
        super().__init__(service)

    def publish_batch(self, items: Iterable[Item], *, delivery: str | None = None) -> int:
        """Publishes many items, in order; returns their number. See `Service.publish_batch`.

        The caller's thread reads the iterable, some items at a time: an iterable that waits for its
        next item holds up no other thread.
        """
        count = 0
        try:
            check_items(items)
            # A list or tuple waits for nothing, so it is published as a whole.
            is_there = isinstance(items, list | tuple)
            for batch in (items,) if is_there else in_batches(items, BATCH_READ):
                try:
                    count += self.run(self._service.publish_batch(batch, delivery=delivery))
                except Exception as error:
                    count += getattr(error, "published", None) or 0
                    raise
        except Exception as error:
            tell_published(error, count)
            raise
        return count

    def connection_states(self, *, timeout_s: float | None = None) -> Iterator[ConnectionState]:
        """The state of the connection now, then each change, until the service is closed.

        Iteration ends when nothing changes for `timeout_s`; None waits without end.
        """
        checked_timeout(timeout_s)
        states = self.ask(self._service.connection_states)

        def each() -> Iterator[ConnectionState]:
            with contextlib.suppress(TimeoutError, ServiceClosedError):
                while True:
                    yield self.run(next_of(states, timeout_s))

        return each()


class SyncHeld(Generic[P]):
    """A part of a service, with its methods on the service's loop."""

    def __init__(self, service: ServiceThread, held: P) -> None:
        self._service, self._held = service, held


class SyncResource(SyncHeld[H]):
    """A resource of a service, in force inside `with`, or from `open` to `close`."""

    def __init__(self, service: ServiceThread, held: H, timeout_s: float | None = None) -> None:
        super().__init__(service, held)
        self._timeout_s = checked_timeout(timeout_s)
        self._is_open = False
        self._is_closed = False

    if not TYPE_CHECKING:
        __getattr__ = former_method

    def open(self) -> Self:
        """Puts it in force, and returns it. A second call does nothing."""
        self._service.run(self._held.__aenter__())
        self._is_open = True
        return self

    def close(self) -> None:
        """Ends it; a second call does nothing."""
        self._finish(self._held.aclose)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *raised: Any) -> None:
        self._finish(partial(self._held.__aexit__, *raised))

    def _finish(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._is_closed = True
        if self._service.is_forked:
            return
        with contextlib.suppress(ServiceClosedError):  # A closed service has ended it already.
            self._service.run(end())


class SyncIterator(SyncResource[S], Generic[S, T]):
    """A resource that is iterated, too.

    Iteration ends when nothing arrives for `timeout_s`; None waits without end.
    """

    _opens_at_first_read = False

    def next(self, timeout_s: float | None = None) -> T:
        """The next object.

        Raises TimeoutError when nothing arrives within `timeout_s`, ServiceClosedError when it has
        ended, ServiceError for an invalid timeout, and before it is opened.
        """
        self._require_open()
        try:
            found: T = self._service.run(next_of(self._held, timeout_s))
        except ServiceClosedError:
            if self._is_closed:
                raise
            found = self._service.left_in(self._held)
        return found

    def _require_open(self) -> None:
        if not self._is_open and not self._opens_at_first_read:
            raise ServiceError("read from a subscription inside its own `with`, or after `open()`")

    def __iter__(self) -> Iterator[T]:
        while True:
            try:
                found = self.next(self._timeout_s)
            except (TimeoutError, ServiceClosedError):
                return
            yield found


class BackgroundHandler:
    """A handler that runs until its subscription ends, or until `stop`."""

    def __init__(self, service: ServiceThread, task: "asyncio.Task[None]") -> None:
        self._service, self._task = service, task

    @property
    def is_running(self) -> bool:
        """Whether objects are still handled."""
        return not self._task.done()

    def stop(self) -> None:
        """Cancels it, and returns when no call runs on the event loop; twice is once."""

        async def cancelled() -> None:
            self._task.cancel()
            await asyncio.wait([self._task])

        with contextlib.suppress(ServiceClosedError):
            self._service.run(cancelled())

    def join(self, timeout_s: float | None = None) -> None:
        """Waits until the subscription ends. Raises TimeoutError, and as `handle`."""

        async def joined() -> None:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._task)

        with contextlib.suppress(ServiceClosedError):
            self._service.run(joined())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class SyncHandled(SyncIterator[W, T], Generic[W, T]):
    """A subscription whose objects can be handled by a function."""

    def _repr_html_(self) -> str:
        return self._service.ask(self._held._repr_html_)

    def handle(
        self, function: Handler[T], *, concurrency: int = 1, on_error: OnError[T] | None = None
    ) -> None:
        """Calls a function with each object until it ends; see `Subscription.handle`.

        Plain functions are called on threads of their own, as many as `concurrency`, so that they
        may wait, and use this service; `async` ones on the service's event loop. After the service
        was closed, `next` reads the objects that are still queued.
        """
        self._require_open()
        with contextlib.suppress(ServiceClosedError):  # It was closed meanwhile.
            self._service.run(self._handled(function, checked_concurrency(concurrency), on_error))

    def handle_in_background(
        self, function: Handler[T], *, concurrency: int = 1, on_error: OnError[T] | None = None
    ) -> BackgroundHandler:
        """As `handle`, but returns at once; the result stops it. Opens the subscription."""
        if not self._is_open:
            self.open()
        work = self._handled(function, checked_concurrency(concurrency), on_error)

        async def started() -> "asyncio.Task[None]":
            return asyncio.ensure_future(work)

        return BackgroundHandler(self._service, self._service.run(started()))

    async def _handled(
        self, function: Handler[T], concurrency: int, on_error: OnError[T] | None
    ) -> None:
        # Imported here: Python cannot load it once the main thread has ended.
        from concurrent.futures import ThreadPoolExecutor

        loop = asyncio.get_running_loop()
        threads = ThreadPoolExecutor(concurrency, "contrada-handler")

        def on_thread(function: Callable[..., object]) -> Callable[..., object]:
            if inspect.iscoroutinefunction(function):
                return function
            return lambda *arguments: loop.run_in_executor(threads, function, *arguments)

        try:
            failed = None if on_error is None else on_thread(on_error)
            await self._held.handle(on_thread(function), concurrency=concurrency, on_error=failed)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
