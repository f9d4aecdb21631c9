"""`Handle`: a subscription to a type, with a function that is called with each obvent.

A handle of a reliable type has a durable subscription until it is deactivated; with an identifier,
until the subscription is ended by that name, so it outlives this process. An `async` handler is
called on the event loop, any other on threads of the handle, within the limits of a thread policy.

Source: EPFL 2503 §5.3.2, §5.3.5, §5.3.6, figure 5.6.
"""

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Self, TypeVar

from contrada.delivery.delivery_class import delivery_class
from contrada.errors import (
    CannotSubscribeError,
    CannotUnsubscribeError,
    ContradaError,
    InvalidObventError,
    ServiceError,
)
from contrada.service import (
    DurableRecord,
    DurableSubscription,
    Interest,
    Predicate,
    Service,
    Subscribable,
    Subscription,
    SubscriptionStatistics,
)
from contrada.service.callbacks import HandlerCalls, called, checked_concurrency
from contrada.service.subjects import Handler, OnError
from contrada.service.sync import SyncService
from contrada.typed.obvent_type import type_of
from contrada.typed.qos import NOTHING, Qos

T = TypeVar("T")

_LOG: Final = logging.getLogger("contrada.service")

# The handle of the running call. A call must not wait for the end of its own handle.
_current: Final[contextvars.ContextVar["Handle[Any] | None"]] = contextvars.ContextVar(
    "handle", default=None
)

# Pairs of handles: a call of the first waits for the end of the second. Calls run on several
# threads, hence the lock.
_waits: Final[list[tuple["Handle[Any]", "Handle[Any]"]]] = []
_waits_lock: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class ThreadPolicy:
    """The number of obvents that a handler processes concurrently.

    `most` limits all calls, `each_class` limits those of each class to one. `waiting_max` limits
    the obvents that wait for another one of their class; beyond it, the handle takes no more.

    Source: EPFL 2503 §5.3.5.
    """

    most: int
    each_class: bool = False
    waiting_max: int = 256

    def __post_init__(self) -> None:
        checked_concurrency(self.most)

    @classmethod
    def single(cls) -> "ThreadPolicy":
        """One obvent at a time, in the order of delivery."""
        return cls(1)

    @classmethod
    def multi(cls, most: int = 16) -> "ThreadPolicy":
        """At most this many at a time, begun in the order of delivery."""
        return cls(most)

    @classmethod
    def one_per_class(cls, most: int = 16, *, waiting_max: int = 256) -> "ThreadPolicy":
        """At most this many at a time, and of each class one, in order."""
        return cls(most, each_class=True, waiting_max=waiting_max)


def policy_for(delivery: str, threads: ThreadPolicy | None) -> ThreadPolicy:
    """Returns the policy for a delivery class. Raises ServiceError if it would lose the order."""
    if not delivery_class(delivery).is_ordered:
        return threads or ThreadPolicy.multi()
    single = ThreadPolicy.single()
    if threads not in (None, single):
        reason = f"its obvents are {delivery}: only ThreadPolicy.single() keeps their order"
        raise ServiceError(reason)
    return single


class Handle(Generic[T]):
    """A subscription that is activated and deactivated, any number of times."""

    def __init__(
        self,
        service: Service,
        subject: Interest[T] | type[T],
        handler: Handler[T],
        where: Subscribable | Predicate[T] | None = None,
        *,
        threads: ThreadPolicy | None = None,
        on_error: OnError[T] | None = None,
    ) -> None:
        """Raises ServiceError for a policy that loses the type's order, and a blocking service."""
        given: object = service
        # A collection passes its membership in the place of a service.
        if isinstance(given, SyncService):
            raise ServiceError(
                "a handle is of a service of `connect`; one of `connect_sync` has "
                "`subscription.handle(function)`"
            )
        self.qos = _qos_of(subject)
        self.threads = policy_for(self.qos.delivery, threads)
        self._service = service
        self._subject = subject
        self._where = where
        self._handler = handler
        self._on_error = on_error
        self._subscription: Subscription[T] | DurableSubscription[T] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_activating = False
        self._last: Subscription[T] | DurableSubscription[T] | None = None
        self._failed = 0

    @property
    def is_active(self) -> bool:
        """Whether obvents are handled."""
        runner = self._runner
        return self._subscription is not None and runner is not None and not runner.done()

    async def activate(self, durable_id: str | None = None) -> None:
        """Begins the delivery of obvents.

        With an identifier the subscription outlives its deactivation, and this process; obvents of
        the meantime are delivered at the next activation with the same identifier. Raises
        CannotSubscribeError, also for an active handle.

        Source: EPFL 2503 §5.3.6.
        """
        if self.is_active or self._is_activating:
            raise CannotSubscribeError("it is active already")
        options: dict[str, Any] = {}
        if durable_id is not None:
            options = {"durable": durable_id, "auto_acknowledge": False}
        elif self.qos.is_reliable:
            options = {"reliable": True, "auto_acknowledge": False}
        self._is_activating = True
        try:
            held = self._service.subscribe(self._subject, self._where, **options)
            await held.open()
            runner = await self._start(held)
        except ContradaError as error:
            raise CannotSubscribeError(str(error)) from error
        finally:
            self._is_activating = False
        self._subscription = self._last = held
        self._loop, self._runner = asyncio.get_running_loop(), runner

    async def _start(self, held: Any) -> asyncio.Task[None]:
        """Starts the task that reads a subscription, so that cancelling it closes this, too."""
        pool = None
        if not _is_async(self._handler):
            pool = ThreadPoolExecutor(self.threads.most, "contrada-handler")
        runner = asyncio.create_task(self._run(held, pool))
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            runner.cancel()
            raise
        return runner

    def deactivate(self) -> Awaitable[None]:
        """Ends the delivery of obvents, at once, even if the result is not awaited.

        Awaited, it returns when no call of the handler runs, except the caller's own. On a thread,
        such as a handler's, it returns after that. It does not wait for calls that wait for the
        caller, as when two handlers deactivate each other's handle. Raises CannotUnsubscribeError
        if it is not active.
        """
        runner, loop = self._runner, self._loop
        if self._subscription is None or runner is None or loop is None:
            raise CannotUnsubscribeError("it is not active")
        self._subscription = None
        ending = _Deactivation(self, runner)
        if _running_loop() is loop:
            runner.cancel()
            return ending
        loop.call_soon_threadsafe(runner.cancel)
        with ending.wait() as may_wait:
            if may_wait:
                asyncio.run_coroutine_threadsafe(_wait_for_end(runner), loop).result()
        return _CompletedDeactivation()

    async def __aenter__(self) -> Self:
        if not self.is_active:
            await self.activate()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._subscription is not None:
            await self.deactivate()

    async def update(self, where: Subscribable | Predicate[T] | None) -> None:
        """As `Subscription.update`. Raises CannotSubscribeError for a durable subscription."""
        held = self._subscription
        if isinstance(held, DurableSubscription):
            reason = "a durable subscription cannot be updated; deactivate it, and end it"
            raise CannotSubscribeError(reason)
        if held is not None:
            await held.update(self._subject, where)
        self._where = where

    def statistics(self) -> SubscriptionStatistics:
        """Returns the counts since the last activation; `failed` counts since the beginning."""
        if self._last is None:
            return SubscriptionStatistics(0, 0, {})
        return replace(self._last.statistics(), failed=self._failed)

    async def _run(self, held: Any, pool: ThreadPoolExecutor | None) -> None:
        threads = self.threads
        calls = HandlerCalls(threads.most)
        if threads.each_class:
            calls = _CallsByClass(threads.most, threads.waiting_max)
        try:
            async for each in held:
                is_record = isinstance(each, DurableRecord)
                item, position = (each.item, each.position) if is_record else (each, 0)
                await calls.begin(self._call(held, pool, item, position), type(item))
        except asyncio.CancelledError:
            if self._is_current(held):
                raise  # Not by deactivation: the event loop ends.
        except ContradaError as error:
            facts = {"subject": self._subject, "reason": error}
            _LOG.warning("%(subject)s: its handle is active no longer: %(reason)s", facts)
            raise
        finally:
            await calls.finished()
            if isinstance(held, DurableSubscription):
                await held.aclose()
            else:
                await held.unsubscribe()
            if pool is not None:
                pool.shutdown(wait=False)

    def _is_current(self, held: object) -> bool:
        """Whether the handle was not deactivated since this subscription began."""
        return self._subscription is held

    async def _call(
        self, held: Any, pool: ThreadPoolExecutor | None, item: T, position: int
    ) -> None:
        if not self._is_current(held):
            return  # Deactivated before its turn. A durable subscription delivers it again.
        token = _current.set(self)
        try:
            await _call_function(pool, self._handler, item)
        except (Exception, asyncio.CancelledError) as error:  # the subscriber's own code
            if _is_cancelled():
                raise  # The event loop ends. A durable subscription delivers it again.
            await self._fail(pool, error, item)
        finally:
            _current.reset(token)
        if position:  # An acknowledgement that arrives too late means another delivery.
            try:
                await held.acknowledge(position)
            except ServiceError:
                pass  # It is closed.
            except ContradaError as error:
                _LOG.warning(
                    "%(subject)s: a handled obvent was not acknowledged: %(reason)s",
                    {"subject": self._subject, "reason": error},
                )

    async def _fail(self, pool: ThreadPoolExecutor | None, error: BaseException, item: T) -> None:
        self._failed += 1
        kind = type(item).__name__
        level = logging.WARNING if self._failed == 1 else logging.DEBUG
        facts = {"kind": kind, "reason": error}
        _LOG.log(level, "the handler of %(kind)s raised: %(reason)r", facts)
        if self._on_error is None:
            return
        try:
            await _call_function(pool, self._on_error, error, item)
        except (Exception, asyncio.CancelledError) as further:  # the subscriber's own code
            if _is_cancelled():
                raise
            facts = {"kind": kind, "reason": further}
            _LOG.warning("on_error of the handler of %(kind)s raised: %(reason)r", facts)


class _CallsByClass(HandlerCalls):
    """Calls of a handler, of each class one at a time, in order."""

    def __init__(self, most: int, waiting_max: int) -> None:
        super().__init__(most)
        self._waiting_max = waiting_max
        self._waiting: dict[type, deque[Coroutine[Any, Any, None]]] = {}
        self._queued = 0  # Calls that wait for another one of their class.

    async def begin(self, call: Coroutine[Any, Any, None], kind: type = object) -> None:
        if kind in self._waiting:
            self._waiting[kind].append(call)
            self._queued += 1
        else:
            self._waiting[kind] = deque()
            self._start(self._in_turn(kind, call))
        await self._room()

    @property
    def _is_full(self) -> bool:
        return super()._is_full or self._queued >= self._waiting_max

    async def _in_turn(self, kind: type, call: Coroutine[Any, Any, None]) -> None:
        waiting = self._waiting[kind]
        await call
        while waiting:
            self._queued -= 1
            self._changed.set()
            await waiting.popleft()
        del self._waiting[kind]


async def _call_function(
    pool: ThreadPoolExecutor | None, function: Callable[..., Any], *arguments: Any
) -> None:
    """As `called`, but on a thread of the pool for a blocking function."""
    if pool is not None and not _is_async(function):
        run = contextvars.copy_context().run
        loop = asyncio.get_running_loop()
        function, arguments = loop.run_in_executor, (pool, run, function, *arguments)
    await called(function, *arguments)


def _is_cancelled() -> bool:
    """Whether the running task is cancelled, not only something that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _wait_for_end(runner: asyncio.Task[None]) -> None:
    """Waits until a handle's calls have returned, and its subscription is closed."""
    await asyncio.wait([runner])
    error = None if runner.cancelled() else runner.exception()
    if error is not None:
        raise CannotUnsubscribeError(str(error)) from error


class _Deactivation:
    """The end of a handle's calls, to be awaited."""

    def __init__(self, handle: Handle[Any], runner: asyncio.Task[None]) -> None:
        self._handle = handle
        self._runner = runner

    def __await__(self) -> Generator[Any, None, None]:
        with self.wait() as may_wait:
            if may_wait:
                yield from _wait_for_end(self._runner).__await__()

    @contextlib.contextmanager
    def wait(self) -> Generator[bool, None, None]:
        """Whether the running call may wait for this end without a deadlock.

        While it waits, the pair of handles is in `_waits`.
        """
        caller = _current.get()
        if caller is None:
            yield True
            return
        with _waits_lock:
            may_wait = not _waits_for(self._handle, caller)
            if may_wait:
                _waits.append((caller, self._handle))
        try:
            yield may_wait
        finally:
            if may_wait:
                with _waits_lock:
                    _waits.remove((caller, self._handle))


def _waits_for(handle: Handle[Any], other: Handle[Any]) -> bool:
    """Whether a handle is the other one, or waits for its end, directly or through others."""
    reached = [handle]
    for each in reached:
        reached += [it for by, it in _waits if by is each and it not in reached]
    return other in reached


class _CompletedDeactivation:
    """An end in the past, to be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    )


def _qos_of(subject: Any) -> Qos:
    """Returns the guarantees of a subject; the weakest for a subject that is no obvent type."""
    if not isinstance(subject, type):
        return NOTHING
    try:
        return type_of(subject).qos
    except InvalidObventError:
        return NOTHING
