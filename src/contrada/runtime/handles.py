"""Handles: a subscription to a type with the function that is called with what comes.

    handle = ct.Handle(service, StockQuote, bought, lambda q: q.price < 100)
    await handle.activate()
    ...
    await handle.deactivate()

A handle is activated and deactivated as often as one likes, also by its own handler. What is
promised of the type is what its subscription asks for: one to a reliable type stands until it is
deactivated, one that is activated with an identifier until it is ended by that name, whatever
happens to this process.

A thread policy says how many calls there are at a time. An `async` handler is called on the event
loop, any other on threads of its own. Ordered obvents are handled one at a time.

Source: EPFL 2503 §5.3.2, §5.3.5, §5.3.6, figure 5.6.
"""

import asyncio
import contextlib
import contextvars
import inspect
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from contrada.delivery.classes import delivery_class
from contrada.errors import (
    CannotSubscribeError,
    CannotUnsubscribeError,
    ContradaError,
    InvalidObventError,
    ServiceError,
)
from contrada.runtime.blocking import BlockingService
from contrada.service import (
    Interest,
    Kept,
    Predicate,
    Service,
    StandingSubscription,
    Subject,
    Subscription,
    SubscriptionStatistics,
)
from contrada.typed.publishing import type_of
from contrada.typed.qos import NOTHING, Qos

T = TypeVar("T")

Handler = Callable[[T], Awaitable[object] | object]

CALLS_MAX: Final = 1_000
"""Calls of one handle's handler at a time. Beyond it: ServiceError."""

HANDLER_WAITING_MAX: Final = 256
"""Obvents of classes whose handler is busy that one handle has taken. Beyond it: it takes no more
until one is done."""

_LOG: Final = logging.getLogger("contrada.runtime")

# The handle in one of whose calls this runs: that one does not wait for its own end.
_within: Final[contextvars.ContextVar[object]] = contextvars.ContextVar("handle", default=None)


@dataclass(frozen=True, slots=True)
class ThreadPolicy:
    """How many obvents a handler processes at a time: `most`, and `each_class` one at a time.

    Source: EPFL 2503 §5.3.5.
    """

    most: int
    each_class: bool = False

    def __post_init__(self) -> None:
        given: object = self.most
        if type(given) is not int or not 1 <= given <= CALLS_MAX:
            raise ServiceError(f"{self.most!r} calls at a time: expected 1 to {CALLS_MAX}")

    @classmethod
    def single(cls) -> "ThreadPolicy":
        """One obvent at a time, in the order in which they come."""
        return cls(1)

    @classmethod
    def multi(cls, most: int = 16) -> "ThreadPolicy":
        """So many at a time, begun in the order in which they come."""
        return cls(most)

    @classmethod
    def one_per_class(cls, most: int = 16) -> "ThreadPolicy":
        """So many at a time, of each class one, in order."""
        return cls(most, each_class=True)


class Handle(Generic[T]):
    """A subscription that is activated and deactivated, any number of times."""

    def __init__(
        self,
        service: Service,
        subject: Interest[T] | type[T],
        handler: Handler[T],
        where: Subject | Predicate[T] | None = None,
        *,
        threads: ThreadPolicy | None = None,
        on_error: Callable[[Exception, T], Awaitable[object] | object] | None = None,
    ) -> None:
        """Raises ServiceError for a policy that would give up the order of the type, and for a
        service that blocks.
        """
        given: object = service
        # A collection gives what asks as if it were a service.
        if isinstance(given, BlockingService):
            raise ServiceError(
                "a handle is of a service of `connect`; one of `connect_sync` has "
                "`subscription.handle(function)`"
            )
        self.qos = _qos_of(subject)
        is_ordered = delivery_class(self.qos.delivery).is_ordered
        if threads is not None and is_ordered and threads != ThreadPolicy.single():
            reason = (
                f"its obvents are {self.qos.delivery}: only ThreadPolicy.single() keeps their order"
            )
            raise ServiceError(reason)
        self.threads = threads or (ThreadPolicy.single() if is_ordered else ThreadPolicy.multi())
        self._service = service
        self._subject = subject
        self._where = where
        self._handler = handler
        self._on_error = on_error
        self._subscription: Subscription[T] | StandingSubscription[T] | None = None
        self._runner: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_activating = False
        self._handled = 0
        self._failed = 0

    @property
    def is_active(self) -> bool:
        """Whether obvents come."""
        runner = self._runner
        return self._subscription is not None and runner is not None and not runner.done()

    async def activate(self, durable_id: str | None = None) -> None:
        """Let obvents come, from when this has returned.

        With an identifier the subscription outlives its deactivation, and this process: what comes
        meanwhile is there when it is activated with the same one. Raises CannotSubscribeError,
        also where it is active already.

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
        except ContradaError as error:
            raise CannotSubscribeError(str(error)) from error
        finally:
            self._is_activating = False
        self._subscription = held
        self._loop = asyncio.get_running_loop()
        pool = None
        if not _is_async(self._handler):
            pool = ThreadPoolExecutor(self.threads.most, "contrada-handler")
        self._runner = self._loop.create_task(self._run(held, pool))

    def deactivate(self) -> Awaitable[None]:
        """Let none come any more; begun at once, also where nobody awaits it.

        Awaited it returns when no call of the handler runs any more, but the one that asks. On a
        thread, as a handler may have one, it returns when it is done. Raises CannotUnsubscribeError
        where it is not active.
        """
        runner, loop = self._runner, self._loop
        if self._subscription is None or runner is None or loop is None:
            raise CannotUnsubscribeError("it is not active")
        self._subscription = None
        is_on_loop, is_within = _running_loop() is loop, _within.get() is self
        if is_on_loop:
            runner.cancel()
        else:
            loop.call_soon_threadsafe(runner.cancel)
        if is_within:
            return _Done()
        if is_on_loop:
            return asyncio.ensure_future(_ended(runner))
        asyncio.run_coroutine_threadsafe(_ended(runner), loop).result()
        return _Done()

    async def __aenter__(self) -> Self:
        if not self.is_active:
            await self.activate()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._subscription is not None:
            await self.deactivate()

    async def update(self, where: Subject | Predicate[T] | None) -> None:
        """Narrow it by something else, without a gap; see `Subscription.update`.

        Raises CannotSubscribeError for a standing one: it stands for what it was activated with.
        """
        held = self._subscription
        if isinstance(held, StandingSubscription):
            raise CannotSubscribeError("what stands is not updated; deactivate it, and end it")
        if held is not None:
            await held.update(self._subject, where)
        self._where = where

    def statistics(self) -> SubscriptionStatistics:
        """What was delivered and dropped since it was activated; `failed` of all of its time."""
        if self._subscription is None:
            return SubscriptionStatistics(self._handled, 0, {}, self._failed)
        found = self._subscription.statistics()
        return SubscriptionStatistics(
            found.delivered, found.queued, found.dropped, self._failed, found.reconnects
        )

    async def _run(self, held: Any, pool: ThreadPoolExecutor | None) -> None:
        """Calls the handler with all that comes, until it is deactivated: that cancels this."""
        calls = _Calls(self.threads)
        try:
            async for each in held:
                item, position = (each.item, each.position) if isinstance(each, Kept) else (each, 0)
                await calls.begin(type(item), self._call(held, pool, item, position))
        except asyncio.CancelledError:
            if self._subscription is held:
                raise  # Somebody else cancels it: the end of the event loop.
        except ContradaError as error:
            _LOG.warning("%s: its handle is active no longer: %s", self._subject, error)
            raise
        finally:
            await calls.finished()
            if isinstance(held, StandingSubscription):
                await held.aclose()
            else:
                await held.unsubscribe()
            if pool is not None:
                pool.shutdown(wait=False)

    async def _call(
        self, held: Any, pool: ThreadPoolExecutor | None, item: T, position: int
    ) -> None:
        token = _within.set(self)
        try:
            await _called(pool, self._handler, item)
            self._handled += 1
        except (Exception, asyncio.CancelledError) as error:  # the subscriber's own code
            if _is_cancelled():
                raise  # The event loop ends, and this is not handled: where it is kept it comes.
            await self._fail(pool, error, item)
        finally:
            _within.reset(token)
        if position:  # What was handled does not come again; what is not said in time does.
            with contextlib.suppress(ServiceError):
                await held.acknowledge(position)

    async def _fail(self, pool: ThreadPoolExecutor | None, error: BaseException, item: T) -> None:
        self._failed += 1
        kind = type(item).__name__
        _LOG.warning("the handler of %s raised: %r", kind, error)
        if self._on_error is None:
            return
        try:
            await _called(pool, self._on_error, error, item)
        except (Exception, asyncio.CancelledError) as further:  # the subscriber's own code
            if _is_cancelled():
                raise
            _LOG.warning("on_error of the handler of %s raised: %r", kind, further)


class _Calls:
    """Calls of a handler, as many at a time as its policy says."""

    def __init__(self, policy: ThreadPolicy) -> None:
        self._policy = policy
        self._running: set[asyncio.Task[None]] = set()
        self._waiting: dict[type, deque[Coroutine[Any, Any, None]]] = {}
        self._held: Counter[str] = Counter()
        self._changed = asyncio.Event()

    async def begin(self, kind: type, call: Coroutine[Any, Any, None]) -> None:
        """Begin a call, or let it wait for its class; returns when there is room for another."""
        if self._policy.each_class:
            if kind in self._waiting:
                self._waiting[kind].append(call)
                self._held["waiting"] += 1
            else:
                self._waiting[kind] = deque([call])
                self._start(self._in_turn(kind))
        else:
            self._start(call)
        while (
            len(self._running) >= self._policy.most or self._held["waiting"] >= HANDLER_WAITING_MAX
        ):
            self._changed.clear()
            await self._changed.wait()

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._changed.set()

    async def _in_turn(self, kind: type) -> None:
        """All of one class, one after the other."""
        waiting = self._waiting[kind]
        first = True
        while waiting:
            call = waiting.popleft()
            if not first:
                self._held["waiting"] -= 1
                self._changed.set()
            first = False
            await call
        del self._waiting[kind]

    async def finished(self) -> None:
        """All that have begun are done."""
        current = asyncio.current_task()
        while running := [each for each in self._running if each is not current]:
            await asyncio.wait(running)


async def _called(
    pool: ThreadPoolExecutor | None, function: Callable[..., Any], *arguments: Any
) -> None:
    if pool is None or _is_async(function):
        result = function(*arguments)
    else:
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        result = loop.run_in_executor(pool, context.run, function, *arguments)
    if inspect.isawaitable(result):
        await result


def _is_cancelled() -> bool:
    """Whether the task that runs is cancelled, and not only something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _ended(runner: asyncio.Task[None]) -> None:
    """Waits until a handle's calls are done, and its subscription is closed."""
    await asyncio.wait([runner])
    error = None if runner.cancelled() else runner.exception()
    if error is not None:
        raise CannotUnsubscribeError(str(error)) from error


class _Done:
    """What is done already, or by itself, to be awaited."""

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
    """What is promised of the objects of a subject; nothing where that is no type of obvents."""
    if not isinstance(subject, type):
        return NOTHING
    try:
        return type_of(subject).qos
    except InvalidObventError:
        return NOTHING
