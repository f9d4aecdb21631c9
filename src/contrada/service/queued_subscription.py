"""`QueuedSubscription`: a subscription that reads from a queue.

The dispatcher of an embedded service fills the queue, or the broker of a client. A subclass puts
the subscription in force and withdraws it.
"""

import asyncio
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any, Final, TypeVar, cast

from contrada.errors import ContradaError, NotVerifiedError, ServiceClosedError, ServiceError
from contrada.model import Filter, FilterSet, Notification
from contrada.service.dispatch_routes import Route
from contrada.service.interface import Subscription, SubscriptionStatistics
from contrada.service.loop_guards import check_loop, next_of, running_loop
from contrada.service.requests import filters_of, is_predicate, narrowing_of, reader_of, residue_of
from contrada.service.subjects import Handler, OnError, Subscribable
from contrada.service.subscription_queue import EXPIRED, QUEUE_FULL, SubscriptionQueue

_LOG: Final = logging.getLogger("contrada.service")

T = TypeVar("T")

UNREADABLE: Final = "unreadable"
"""Reason of a drop: the subscriber's type cannot hold it."""

TOO_SLOW: Final = "cut off"
"""Reason of a drop: it was queued when its subscription was cut off as too slow."""

UNSUBSCRIBED: Final = "unsubscribed"
"""Reason of a drop: it was queued when its subscription ended."""


class QueuedSubscription(Subscription[T]):
    """Reads entries from its queue and gives its reader's objects of them.

    Without a reader it gives the entries. An entry that fails the residue is skipped, and not
    counted. After an update the residue includes the filters, since queued entries may match only
    the former ones.
    """

    def __init__(
        self,
        filters: Filter | FilterSet,
        queue: SubscriptionQueue[Any],
        reader: Callable[[Any], T] | None,
        residue: Callable[[Any], bool] | None = None,
    ) -> None:
        self._filters = filters
        self._next: Filter | FilterSet | None = None
        self._updating: asyncio.Task[None] | None = None
        self.queue, self._reader, self._residue = queue, reader, residue
        self._opened = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changing = asyncio.Lock()  # Held to open, update and unsubscribe.
        self._failure: ContradaError | None = None
        self._read_bytes = 0
        self._report_bytes: float = inf
        """Bytes read after which `_report` is called."""
        self._delivered = 0
        self._failed = 0
        self._reconnects = 0
        self._dropped: Counter[str] | None = None

    @property
    def filters(self) -> Filter | FilterSet:
        return self._filters

    async def open(self) -> None:
        async with self._changing:
            if self.queue.finished:
                raise ServiceClosedError("this subscription has ended; subscribe anew")
            if not self._opened:
                self._loop = running_loop()
                await self._enter()
                self._opened = True

    async def update(self, subject: Any, where: Any = None) -> None:
        if where is None and is_predicate(subject):
            # The reader is a method of the present subject.
            present: Any = getattr(self._reader, "__self__", None)
            subject, where = present, subject
        subject, where = cast(Subscribable, subject), narrowing_of(subject, where)
        if reader_of(subject) != self._reader:
            raise ServiceError(
                "an update asks for other notifications, not for other objects; subscribe anew"
            )
        filters, residue = filters_of(subject, where), residue_of(subject, where)
        if self._opened:
            check_loop(self._loop)
        # A cancelled caller does not stop it: half way, the filters in force would be unknown.
        update = asyncio.create_task(self._update(filters, residue))
        try:
            await asyncio.shield(update)
        except asyncio.CancelledError:
            if update.cancelled():
                raise ServiceClosedError("this subscription has ended meanwhile") from None
            raise

    async def _update(
        self, filters: Filter | FilterSet, residue: Callable[[Any], bool] | None
    ) -> None:
        async with self._changing:
            if self.queue.finished:
                raise ServiceClosedError("this subscription has ended; subscribe anew")
            if not self._opened:
                self._filters, self._residue = filters, residue
                return
            before = self._residue
            old, new = _holding(self._filters, before), _holding(filters, residue)
            self._updating = asyncio.current_task()
            self._next, self._residue = filters, lambda item: old(item) or new(item)
            try:
                await self._replace()
            except BaseException:
                self._residue = before
                raise
            else:
                self._filters, self._residue = filters, new
            finally:
                self._updating = self._next = None

    async def unsubscribe(self) -> None:
        if self._opened:
            check_loop(self._loop)
        left = self.queue.discard()
        self.count_dropped(UNSUBSCRIBED, len(left))
        if isinstance(self.queue.keeper, Route):
            self.queue.keeper.note_dropped(UNSUBSCRIBED, left)
        if self._updating is not None:
            self._updating.cancel()
        async with self._changing:  # Filters that are being put in force are withdrawn then.
            if self._opened:
                self._opened = False
                await self._leave()

    def statistics(self) -> SubscriptionStatistics:
        full, expired = self._lost_before()
        dropped = dict(self._dropped or ())
        for reason, count in ((QUEUE_FULL, full), (EXPIRED, expired)):
            if count:
                dropped[reason] = dropped.get(reason, 0) + count
        return SubscriptionStatistics(
            self._delivered, len(self.queue), dropped, self._failed, self._reconnects
        )

    def count_dropped(self, reason: str, count: int) -> None:
        """Counts notifications that did not reach the subscriber."""
        if count:
            if self._dropped is None:
                self._dropped = Counter()
            self._dropped[reason] += count

    def end(self, failure: ContradaError | None = None) -> None:
        """Ends the iteration after the queued entries, with the failure if any."""
        if not self.queue.finished:
            self._failure = failure
            self.queue.finish()

    def is_asked(self, found: Notification) -> bool:
        """Whether a filter matches a notification that was not decided elsewhere."""
        return any(each.matches(found) for each in (self._filters, self._next) if each is not None)

    async def __anext__(self) -> T:
        queue, reader = self.queue, self._reader
        while True:
            while (taken := queue.take()) is not None:
                item, size = taken
                self._read_bytes += size  # As in `_taken`, without a call.
                if self._read_bytes >= self._report_bytes:
                    self._report(1)
                residue = self._residue  # It may have been updated since this waits.
                if reader is residue is None:  # As mostly, in two thirds of the time.
                    self._delivered += 1
                    return item  # type: ignore[no-any-return]
                try:
                    if residue is not None and not residue(item):
                        continue
                    if reader is not None:
                        item = reader(item)
                except Exception as error:  # noqa: BLE001 - the subscriber's own code
                    reason = why_dropped(error)
                    is_first = not (self._dropped and self._dropped[reason])
                    self.count_dropped(reason, 1)
                    told = "a notification for %(filters)s is unreadable: %(reason)r"
                    self._tell(is_first, told, error)
                    continue
                self._delivered += 1
                found: T = item
                return found
            if queue.finished:
                if self._failure is not None:
                    raise self._failure.copy()
                raise StopAsyncIteration
            if not self._opened:
                raise ServiceError("iterate a subscription inside its own `async with`")
            check_loop(self._loop)
            await queue.arrival()

    def take_queued(self, count_max: int) -> list[T]:
        """Returns queued notifications at once; none where a reader or a residue is asked first."""
        if self._reader is not None or self._residue is not None:
            return []
        batch, size = self.queue.take_batch(count_max, self.queue.held_bytes)
        self._taken(size, len(batch))
        self._delivered += len(batch)
        return batch

    async def next(self, timeout_s: float | None = None) -> T:
        return await next_of(self, timeout_s)

    async def handle(
        self, function: Handler[T], *, concurrency: int = 1, on_error: OnError[T] | None = None
    ) -> None:
        from contrada.service.callbacks import handle_all, tell_error

        async def failed(error: Exception, item: T) -> None:
            self._failed += 1
            self._tell(self._failed == 1, "a handler of %(filters)s raised: %(reason)r", error)
            if on_error is not None:
                await tell_error(on_error, error, item, self.filters)

        await handle_all(self, function, concurrency, failed)

    def _tell(self, is_first: bool, what: str, error: Exception) -> None:
        """Logs an exception of the subscriber's code; after the first one for debugging only."""
        level = logging.WARNING if is_first else logging.DEBUG
        trace = None if isinstance(error, ContradaError) else error
        _LOG.log(level, what, {"filters": self.filters, "reason": error}, exc_info=trace)

    @abstractmethod
    async def _enter(self) -> None:
        """Puts it in force at the service."""

    @abstractmethod
    async def _replace(self) -> None:
        """Replaces its filters at the service; after a refusal the former ones stay."""

    @abstractmethod
    async def _leave(self) -> None:
        """Withdraws it at the service."""

    def _taken(self, size: int, count: int = 1) -> None:
        """Counts that so many entries, of this size together, have left the queue."""
        self._read_bytes += size
        if self._read_bytes >= self._report_bytes:
            self._report(count)

    def _report(self, count: int) -> None:
        """Called when so many entries have left, and `_report_bytes` with those before."""

    def _lost_before(self) -> tuple[int, int]:
        """The numbers of notifications without room, and expired, that were counted elsewhere."""
        return 0, 0


def why_dropped(error: Exception) -> str:
    """The reason of a drop for an exception of a reader."""
    return error.reason if isinstance(error, NotVerifiedError) else UNREADABLE


def _holding(
    filters: Filter | FilterSet, residue: Callable[[Any], bool] | None
) -> Callable[[Any], bool]:
    if residue is None:
        return filters.matches
    return lambda item: filters.matches(item) and residue(item)
