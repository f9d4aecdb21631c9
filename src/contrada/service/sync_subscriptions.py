"""Blocking faces of what is in force at a service that has a thread of its own."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, Self, TypeVar

from contrada.errors import ServiceClosedError, ServiceError
from contrada.model import Filter, FilterSet
from contrada.routing.router_messages import Offer, SourceReport
from contrada.service.advertisements import Advertisements, OfferChange, Offering
from contrada.service.callbacks import checked_concurrency
from contrada.service.interface import (
    DurableRecord,
    DurableSubscription,
    Subscription,
    SubscriptionStatistics,
)
from contrada.service.loop_guards import checked_timeout, next_of
from contrada.service.query_interface import Answers, SourceOffer
from contrada.service.service_thread import ServiceThread
from contrada.service.subjects import Predicate, Subscribable

T = TypeVar("T")
H = TypeVar("H", bound=contextlib.AbstractAsyncContextManager[Any])
S = TypeVar("S", bound=Subscription[Any] | DurableSubscription[Any] | Advertisements | Answers[Any])


class _Sync(Generic[H]):
    """A blocking face of what is in force on the service's loop."""

    def __init__(self, service: ServiceThread, held: H) -> None:
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


class _SyncIterator(_Sync[S], Generic[S, T]):
    """A blocking face of what is iterated, too."""

    def __init__(self, service: ServiceThread, held: S, timeout_s: float | None) -> None:
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


class SyncSubscription(_SyncIterator[Subscription[T], T]):
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
        self,
        subject: Subscribable | Predicate[Any],
        where: Subscribable | Predicate[Any] | None = None,
    ) -> None:
        """Ask for something else, without a gap; see `Subscription.update`."""
        self._service.run(self._held.update(subject, where))

    def unsubscribe(self) -> None:
        """End it; nothing is delivered afterwards."""
        self._end()

    def statistics(self) -> SubscriptionStatistics:
        """What was delivered and dropped so far."""
        return self._service.ask(self._held.statistics)


class SyncDurableSubscription(_SyncIterator[DurableSubscription[T], DurableRecord[T]]):
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
        """These are done with; see `DurableSubscription.acknowledge`."""
        self._service.run(self._held.acknowledge(*positions, up_to=up_to))

    def nack(self, *positions: int) -> None:
        """These come again; see `DurableSubscription.nack`."""
        self._service.run(self._held.nack(*positions))

    def close(self) -> None:
        """Read no longer; see `DurableSubscription.aclose`. Twice is once."""
        with contextlib.suppress(ServiceClosedError):  # A closed service has ended it already.
            self._service.run(self._held.aclose())

    def statistics(self) -> SubscriptionStatistics:
        """What this reader got."""
        return self._service.ask(self._held.statistics)


class SyncOffering(_Sync[Offering]):
    """A blocking face of an advertisement; use it inside `with`."""

    @property
    def offer(self) -> Offer:
        """What may be published."""
        return self._held.offer

    def unadvertise(self) -> None:
        """Withdraw it."""
        self._end()


class SyncAdvertisements(_SyncIterator[Advertisements, OfferChange]):
    """A blocking face of what is on offer; use it inside `with` and iterate it."""

    @property
    def current(self) -> tuple[Offer, ...]:
        """What is on offer at this moment."""
        return self._service.ask(lambda: self._held.current)


class SyncSource(_Sync[SourceOffer]):
    """A blocking face of a source that may be asked; use it inside `with`."""

    @property
    def name(self) -> str:
        """What the source is called."""
        return self._held.name

    @property
    def described(self) -> tuple[Offer, ...]:
        """What it is asked about."""
        return self._service.ask(lambda: self._held.described)

    def describe(self, description: Any = None) -> None:
        """Describe it otherwise; see `SourceOffer.describe`."""
        self._service.run(self._held.describe(description))

    def withdraw(self) -> None:
        """It is not asked any more."""
        self._end()


class SyncAnswers(_SyncIterator[Answers[T], T]):
    """A blocking face of a question; iterate it, inside `with` or without."""

    def _require_entered(self) -> None:
        """It asks when it is read first."""

    @property
    def reports(self) -> tuple[SourceReport, ...]:
        """The reports, so far, of the sources that were asked."""
        return self._service.ask(lambda: self._held.reports)

    @property
    def is_complete(self) -> bool:
        """Whether all that was asked has ended, and none of it failed or was cut short."""
        return self._service.ask(lambda: self._held.is_complete)

    def close(self) -> None:
        """Wait for no more answers. Twice is once."""
        self._end()
