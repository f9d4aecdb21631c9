"""Any service for code that does not await: it runs on an event loop in a thread of its own.

The caller's thread only waits for results, so Ctrl-C reaches it at once. Everything here may be
called from several threads; each call costs a hand-over between threads, some tens of
microseconds, so publish in batches where it matters.
"""

import asyncio
import contextlib
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Final, Generic, Self, TypeVar, Unpack, overload

from contrada.errors import ServiceClosedError, ServiceError
from contrada.model import Envelope, Filter, FilterSet, Notification, Pattern
from contrada.model.algebra.notification import Body
from contrada.patterns import Match
from contrada.routing.messages import Offer
from contrada.runtime.calling import (
    check_items,
    checked_timeout,
    in_batches,
    next_of,
    tell_published,
)
from contrada.runtime.handling import checked_concurrency
from contrada.service import (
    Advertisements,
    ConnectionState,
    EnvelopePredicate,
    Interest,
    Item,
    Kept,
    MatchInterest,
    OfferChange,
    Offered,
    Offering,
    Predicate,
    Service,
    ServiceStatistics,
    StandingOptions,
    StandingSubscription,
    Subject,
    Subscription,
    SubscriptionStatistics,
    WhenFull,
)

T = TypeVar("T")
R = TypeVar("R")
H = TypeVar("H", bound=contextlib.AbstractAsyncContextManager[Any])
S = TypeVar("S", bound=Subscription[Any] | StandingSubscription[Any] | Advertisements)

BATCH_READ: Final = 1_024
"""Items of a batch that are read before they are published together. Beyond it: they wait for the
service to take these."""

THREAD_WAIT_S: Final = 10.0
"""How long closing waits for what still runs to end, and then for the loop's thread. Beyond it:
ServiceError, and they are left behind."""


class BlockingService:
    """A blocking face of a service; use it inside `with`."""

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

        In a process that was forked meanwhile nothing is done, since nothing of it runs there.
        Raises ServiceError where they do not end in time; they are left behind then.
        """
        if self._loop is not None and not self.is_forked:
            try:
                self.run(self._service.aclose())
            finally:
                self._stop()

    def publish(
        self,
        item: Item,
        *,
        body: Body = b"",
        content_type: str = "",
        ttl_s: float | None = None,
        priority: int | None = None,
        delivery: str | None = None,
    ) -> Envelope:
        """Publish one notification; see `Service.publish`."""
        return self.run(
            self._service.publish(
                item,
                body=body,
                content_type=content_type,
                ttl_s=ttl_s,
                priority=priority,
                delivery=delivery,
            )
        )

    def publish_batch(self, items: Iterable[Item], *, delivery: str | None = None) -> int:
        """Publish many, in order; see `Service.publish_batch`.

        The iterable is read on the caller's thread, some items at a time: one that waits for what
        comes by and by holds up no other thread.
        """
        count = 0
        try:
            check_items(items)
            # A list or tuple waits for nothing, and goes as a whole.
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

    @overload
    def subscribe(
        self,
        subject: MatchInterest[T],
        where: None = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> "BlockingSubscription[T]": ...

    @overload
    def subscribe(
        self,
        subject: Pattern,
        where: None = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> "BlockingSubscription[Match[Pattern]]": ...

    @overload
    def subscribe(  # type: ignore[overload-overlap]
        self,
        subject: Interest[T],
        where: Subject | Predicate[T] | None = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> "BlockingSubscription[T]": ...

    @overload
    def subscribe(
        self,
        subject: type[T],
        where: Subject | Predicate[T] | None = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> "BlockingSubscription[T]": ...

    @overload
    def subscribe(
        self,
        subject: Interest[T] | type[T],
        where: EnvelopePredicate[T],
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> "BlockingSubscription[T]": ...

    @overload
    def subscribe(  # type: ignore[overload-overlap]
        self,
        subject: Subject,
        where: Subject | None = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> "BlockingSubscription[Notification]": ...

    @overload
    def subscribe(  # type: ignore[overload-overlap]
        self,
        subject: Interest[T],
        where: Subject | Predicate[T] | None = None,
        *,
        timeout_s: float | None = None,
        **standing: Unpack[StandingOptions],
    ) -> "BlockingStandingSubscription[T]": ...

    @overload
    def subscribe(
        self,
        subject: Subject | None = None,
        where: Subject | None = None,
        *,
        timeout_s: float | None = None,
        **standing: Unpack[StandingOptions],
    ) -> "BlockingStandingSubscription[Notification]": ...

    def subscribe(
        self,
        subject: Any = None,
        where: Any = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
        **standing: Any,
    ) -> Any:
        """A subscription; use it inside `with` and iterate it; see `Service.subscribe`.

        Iteration ends when nothing came for `timeout_s`; None waits without end.
        """
        held: Any = self._service.subscribe(subject, where, when_full=when_full, **standing)
        if isinstance(held, StandingSubscription):
            return BlockingStandingSubscription(self, held, timeout_s)
        return BlockingSubscription(self, held, timeout_s)

    def unsubscribe(self, durable: str) -> None:
        """End a durable subscription; see `Service.unsubscribe`."""
        self.run(self._service.unsubscribe(durable))

    def advertise(self, offered: Offered) -> "BlockingOffering":
        """An advertisement, in force inside `with`; see `Service.advertise`."""
        return BlockingOffering(self, self._service.advertise(offered))

    def advertisements(self, *, timeout_s: float | None = None) -> "BlockingAdvertisements":
        """What is on offer, as it changes; use it inside `with` and iterate it.

        Iteration ends when nothing has changed for `timeout_s`; None waits without end.
        """
        return BlockingAdvertisements(self, self._service.advertisements(), timeout_s)

    def statistics(self) -> ServiceStatistics:
        """What was published, matched and dropped so far."""
        return self.ask(self._service.statistics)

    @property
    def connection(self) -> ConnectionState:
        """How it is connected at this moment."""
        return self._service.connection

    def connection_states(self, *, timeout_s: float | None = None) -> Iterator[ConnectionState]:
        """How it is connected at this moment, then each change, until it is closed.

        Iteration ends when nothing has changed for `timeout_s`; None waits without end.
        """
        checked_timeout(timeout_s)
        states = self.ask(self._service.connection_states)

        def each() -> Iterator[ConnectionState]:
            with contextlib.suppress(TimeoutError, ServiceClosedError):
                while True:
                    yield self.run(next_of(states, timeout_s))

        return each()

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
                    _one_of(held).send(None)  # It waits for nothing, so it needs no loop.
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


class _Blocking(Generic[H]):
    """A blocking face of what is in force on the service's loop."""

    def __init__(self, service: BlockingService, held: H) -> None:
        self._service = service
        self._held = held

    def __enter__(self) -> Self:
        self._service.run(self._held.__aenter__())
        return self

    def __exit__(self, *raised: Any) -> None:
        self._end(*raised)

    def _end(self, *raised: Any) -> None:
        if self._service.is_forked:
            return
        with contextlib.suppress(ServiceClosedError):  # A closed service has ended it already.
            self._service.run(self._held.__aexit__(*(raised or (None, None, None))))


class _BlockingIterator(_Blocking[S], Generic[S, T]):
    """A blocking face of what is iterated, too."""

    def __init__(self, service: BlockingService, held: S, timeout_s: float | None) -> None:
        super().__init__(service, held)
        self._timeout_s = checked_timeout(timeout_s)
        self._is_entered = False
        self._is_ended = False

    def __enter__(self) -> Self:
        super().__enter__()
        self._is_entered = True
        return self

    def _end(self, *raised: Any) -> None:
        self._is_ended = True
        super()._end(*raised)

    def next(self, timeout_s: float | None = None) -> T:
        """The next object.

        Raises TimeoutError when nothing came for `timeout_s`, ServiceClosedError when it has
        ended, ServiceError for what is no timeout, and outside of its `with`.
        """
        self._require_entered()
        try:
            found: T = self._service.run(next_of(self._held, timeout_s))
        except ServiceClosedError:
            if self._is_ended:
                raise
            found = self._service.left_in(self._held)
        return found

    def _require_entered(self) -> None:
        if not self._is_entered:
            raise ServiceError("read from a subscription inside its own `with`")

    def __iter__(self) -> Iterator[T]:
        while True:
            try:
                found = self.next(self._timeout_s)
            except (TimeoutError, ServiceClosedError):
                return
            yield found


class BlockingSubscription(_BlockingIterator[Subscription[T], T]):
    """A blocking face of a subscription; use it inside `with` and iterate it."""

    @property
    def filters(self) -> Filter | FilterSet:
        """What is asked for."""
        return self._held.filters

    def handle(
        self,
        function: Callable[[T], Awaitable[object] | object],
        *,
        concurrency: int = 1,
        on_error: Callable[[Exception, T], Awaitable[object] | object] | None = None,
    ) -> None:
        """Call a function with each object until it ends; see `Subscription.handle`.

        Plain functions are called on threads of their own, as many as `concurrency`, so that they
        may wait, and use this service; `async` ones on the service's event loop. Where the service
        is closed what still waits can be read by `next`.
        """
        self._require_entered()
        with contextlib.suppress(ServiceClosedError):  # It was closed meanwhile.
            self._service.run(self._handled(function, checked_concurrency(concurrency), on_error))

    async def _handled(
        self,
        function: Callable[[T], Awaitable[object] | object],
        concurrency: int,
        on_error: Callable[[Exception, T], Awaitable[object] | object] | None,
    ) -> None:
        # Only where it is used: Python does not load it once the main thread has ended.
        from concurrent.futures import ThreadPoolExecutor

        loop = asyncio.get_running_loop()
        threads = ThreadPoolExecutor(concurrency, "contrada-handler")

        def on_thread(function: Callable[..., object]) -> Callable[..., object]:
            if inspect.iscoroutinefunction(function):
                return function
            return lambda *arguments: loop.run_in_executor(threads, function, *arguments)

        try:
            await self._held.handle(
                on_thread(function),
                concurrency=concurrency,
                on_error=None if on_error is None else on_thread(on_error),
            )
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    def update(
        self, subject: Subject | Predicate[Any], where: Subject | Predicate[Any] | None = None
    ) -> None:
        """Ask for something else, without a gap; see `Subscription.update`."""
        self._service.run(self._held.update(subject, where))

    def unsubscribe(self) -> None:
        """End it; nothing is delivered afterwards."""
        self._end()

    def statistics(self) -> SubscriptionStatistics:
        """What was delivered and dropped so far."""
        return self._service.ask(self._held.statistics)


class BlockingStandingSubscription(_BlockingIterator[StandingSubscription[T], Kept[T]]):
    """A blocking face of a standing subscription; use it inside `with` and iterate it."""

    @property
    def name(self) -> str:
        """The name of the subscription."""
        return self._held.name

    @property
    def filters(self) -> Filter | FilterSet:
        """What is asked for."""
        return self._held.filters

    def acknowledge(self, *positions: int, up_to: int | None = None) -> None:
        """These are done with; see `StandingSubscription.acknowledge`."""
        self._service.run(self._held.acknowledge(*positions, up_to=up_to))

    def give_back(self, *positions: int) -> None:
        """These come again; see `StandingSubscription.give_back`."""
        self._service.run(self._held.give_back(*positions))

    def close(self) -> None:
        """Read no longer; see `StandingSubscription.aclose`. Twice is once."""
        with contextlib.suppress(ServiceClosedError):  # A closed service has ended it already.
            self._service.run(self._held.aclose())

    def statistics(self) -> SubscriptionStatistics:
        """What this reader got."""
        return self._service.ask(self._held.statistics)


class BlockingOffering(_Blocking[Offering]):
    """A blocking face of an advertisement; use it inside `with`."""

    @property
    def offer(self) -> Offer:
        """What may be published."""
        return self._held.offer

    def unadvertise(self) -> None:
        """Withdraw it."""
        self._end()


class BlockingAdvertisements(_BlockingIterator[Advertisements, OfferChange]):
    """A blocking face of what is on offer; use it inside `with` and iterate it."""

    @property
    def current(self) -> tuple[Offer, ...]:
        """What is on offer at this moment."""
        return self._service.ask(lambda: self._held.current)


async def _one_of(held: AsyncIterator[T]) -> T:
    return await anext(held)


async def _cancel_others() -> None:
    """Cancel what still runs on this loop and wait until it has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
