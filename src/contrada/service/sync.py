"""Any service for code that does not await: it runs on an event loop in a thread of its own.

The caller's thread only waits for results, so Ctrl-C reaches it at once. Everything here may be
called from several threads; each call costs a hand-over between threads, some tens of
microseconds, so publish in batches where it matters.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar, Unpack, overload

from contrada.errors import ServiceClosedError
from contrada.model import Envelope, Notification, Pattern
from contrada.model.algebra.notification import Body
from contrada.patterns import Match
from contrada.service.interface import (
    ConnectionState,
    DurableOptions,
    DurableSubscription,
    ServiceStatistics,
    WhenFull,
)
from contrada.service.loop_guards import (
    check_items,
    checked_timeout,
    in_batches,
    next_of,
    tell_published,
)
from contrada.service.query_interface import (
    Computed,
    ComputeOptions,
    Description,
    Queryable,
    QueryOptions,
    SourceLike,
)
from contrada.service.service_thread import ServiceThread
from contrada.service.subjects import (
    EnvelopePredicate,
    Interest,
    Item,
    MatchInterest,
    Offered,
    Predicate,
    Subscribable,
)
from contrada.service.sync_subscriptions import (
    SyncAdvertisements,
    SyncAnswers,
    SyncDurableSubscription,
    SyncOffering,
    SyncSource,
    SyncSubscription,
)

T = TypeVar("T")

BATCH_READ: Final = 1_024
"""Items of a batch that are read before they are published together. Beyond it: they wait for the
service to take these."""


class SyncService(ServiceThread):
    """A blocking face of a service; use it inside `with`."""

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

        The iterable is read on the caller's thread, some items at a time: an iterable that waits
        for its next item holds up no other thread.
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
    ) -> SyncSubscription[T]: ...

    @overload
    def subscribe(
        self,
        subject: Pattern,
        where: None = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> SyncSubscription[Match[Pattern]]: ...

    @overload
    def subscribe(  # type: ignore[overload-overlap]
        self,
        subject: Interest[T],
        where: Subscribable | Predicate[T] | None = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> SyncSubscription[T]: ...

    @overload
    def subscribe(
        self,
        subject: type[T],
        where: Subscribable | Predicate[T] | None = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> SyncSubscription[T]: ...

    @overload
    def subscribe(
        self,
        subject: Interest[T] | type[T],
        where: EnvelopePredicate[T],
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> SyncSubscription[T]: ...

    @overload
    def subscribe(  # type: ignore[overload-overlap]
        self,
        subject: Subscribable,
        where: Subscribable | None = None,
        *,
        timeout_s: float | None = None,
        when_full: WhenFull = "block",
    ) -> SyncSubscription[Notification]: ...

    @overload
    def subscribe(  # type: ignore[overload-overlap]
        self,
        subject: Interest[T],
        where: Subscribable | Predicate[T] | None = None,
        *,
        timeout_s: float | None = None,
        **standing: Unpack[DurableOptions],
    ) -> SyncDurableSubscription[T]: ...

    @overload
    def subscribe(
        self,
        subject: Subscribable | None = None,
        where: Subscribable | None = None,
        *,
        timeout_s: float | None = None,
        **standing: Unpack[DurableOptions],
    ) -> SyncDurableSubscription[Notification]: ...

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
        if isinstance(held, DurableSubscription):
            return SyncDurableSubscription(self, held, timeout_s)
        return SyncSubscription(self, held, timeout_s)

    def unsubscribe(self, durable: str) -> None:
        """End a durable subscription; see `Service.unsubscribe`."""
        self.run(self._service.unsubscribe(durable))

    def advertise(self, offered: Offered) -> SyncOffering:
        """An advertisement, in force inside `with`; see `Service.advertise`."""
        return SyncOffering(self, self._service.advertise(offered))

    def advertisements(self, *, timeout_s: float | None = None) -> SyncAdvertisements:
        """What is on offer, as it changes; use it inside `with` and iterate it.

        Iteration ends when nothing has changed for `timeout_s`; None waits without end.
        """
        return SyncAdvertisements(self, self._service.advertisements(), timeout_s)

    def offer(
        self, description: Description | None, source: SourceLike, *, name: str = ""
    ) -> SyncSource:
        """A source that answers questions, in force inside `with`; see `Service.offer`."""
        return SyncSource(self, self._service.offer(description, source, name=name))

    @overload
    def query(  # type: ignore[overload-overlap]
        self, subject: Interest[T], where: Any = None, **options: Unpack[QueryOptions]
    ) -> SyncAnswers[T]: ...

    @overload
    def query(
        self, subject: type[T], where: Any = None, **options: Unpack[QueryOptions]
    ) -> SyncAnswers[T]: ...

    @overload
    def query(
        self,
        subject: Queryable,
        where: Subscribable | None = None,
        **options: Unpack[QueryOptions],
    ) -> SyncAnswers[Notification]: ...

    def query(self, subject: Any, where: Any = None, **options: Any) -> Any:
        """Ask all sources that may have an answer; iterate it; see `Service.query`."""
        asked: Any = self.ask(lambda: self._service.query(subject, where, **options))
        return SyncAnswers(self, asked, None)

    def compute(
        self,
        aggregates: Computed | Iterable[Computed],
        subject: Any,
        where: Any = None,
        **options: Unpack[ComputeOptions],
    ) -> SyncAnswers[dict[str, Any]]:
        """Ask for what is computed of all answers; see `Service.compute`."""
        asked = self.ask(lambda: self._service.compute(aggregates, subject, where, **options))
        return SyncAnswers(self, asked, None)

    def statistics(self) -> ServiceStatistics:
        """What was published, matched and dropped so far."""
        return self.ask(self._service.statistics)

    @property
    def connection(self) -> ConnectionState:
        """How it is connected at this moment."""
        return self._service.connection

    def connection_states(self, *, timeout_s: float | None = None) -> Iterator[ConnectionState]:
        """The state of the connection now, then each change, until the service is closed.

        Iteration ends when nothing has changed for `timeout_s`; None waits without end.
        """
        checked_timeout(timeout_s)
        states = self.ask(self._service.connection_states)

        def each() -> Iterator[ConnectionState]:
            with contextlib.suppress(TimeoutError, ServiceClosedError):
                while True:
                    yield self.run(next_of(states, timeout_s))

        return each()
