"""`CollectionMembership`: the settings of one consumer; `ElementHandle`, its push form, and
`Consumer`, its pull form, which requests the next element, and may wait for it.

Source: EPFL 2503 §4.2.4 (pull), §4.3.1, §4.4.2 (extraction order), §4.7.2 (removal).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from contrada.delivery.retention import Retention
from contrada.errors import CannotSubscribeError, ServiceClosedError
from contrada.service import (
    DurableOptions,
    DurableRecord,
    Interest,
    Service,
    SubscriptionStatistics,
)
from contrada.service.async_resource import AsyncResource
from contrada.service.subjects import OnError
from contrada.typed.collections.collection_space import Arrival, ElementRule
from contrada.typed.collections.element_reader import CollectionLimits, ElementReader, Readable
from contrada.typed.handles import Handle, ThreadPolicy

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class CollectionMembership(Generic[T]):
    """The condition, the name and the retention of one consumer of a collection.

    Without a name `subscribed` makes the subscription. With `replays` it begins with all retained
    elements. `arrived` is called with each arrival.
    """

    owner: object
    service: Service
    subscribed: Callable[[ElementRule[T], DurableOptions], Readable[T]]
    rule: ElementRule[T]
    arrived: Callable[[Sequence[Arrival[T]]], None]
    limits: CollectionLimits
    durable: str = ""
    retention: Retention | None = None
    replays: bool = False
    is_set: bool = False
    is_queue: bool = False

    def reader(self, *, acknowledges: bool) -> ElementReader[T]:
        """Returns the consumer's reader, not yet open."""
        options: DurableOptions = {"auto_acknowledge": acknowledges}
        if self.durable:
            options["durable"] = self.durable
            if self.retention is not None:
                options["retention"] = self.retention
            if self.replays:
                options["from_position"] = 1
            held: Readable[T] = durable_subscription(self.service, self.rule, options)
        else:
            held = self.subscribed(self.rule, options)
        recent_max = self.limits.recent_max if self.is_set else None
        return ElementReader(held, self.arrived, recent_max=recent_max, acknowledges=acknowledges)

    def subscribe(self, *_: object, durable: str = "", **__: object) -> ElementReader[T]:
        """Returns the reader of a handle, which calls this in the place of a service."""
        membership = replace(self, durable=durable) if durable else self
        return membership.reader(acknowledges=False)


class ElementHandle(Handle[T]):
    """A subscriber of a collection, with the guarantees of the collection; see `Handle`."""

    def __init__(
        self,
        membership: CollectionMembership[T],
        subject: Any,
        handler: Callable[[T], Awaitable[object] | object],
        threads: ThreadPolicy | None = None,
        on_error: OnError[T] | None = None,
    ) -> None:
        self.membership = membership
        service = cast(Service, membership)
        super().__init__(service, subject, handler, threads=threads, on_error=on_error)

    async def update(self, where: object) -> None:
        """Raises CannotSubscribeError: its condition is fixed."""
        raise CannotSubscribeError("a collection's subscriber is not updated; ask for another one")


class Consumer(AsyncResource, AsyncIterator[T], Generic[T]):
    """Pulls elements; use it inside `async with`, and iterate it there, or call `get`.

    An element is acknowledged at the request for the next one, the last when `async with` ends
    without an error; or by `acknowledge`. Unacknowledged elements are delivered again: to a named
    consumer, or to another consumer that removes.

    `last_first` gives the newest waiting element, among the first `stack_max`.
    """

    def __init__(self, membership: CollectionMembership[T], *, last_first: bool = False) -> None:
        self.membership = membership
        self._stack: list[DurableRecord[T]] | None = [] if last_first else None
        self._reader = membership.reader(acknowledges=not last_first)
        self._last: DurableRecord[T] | None = None

    @property
    def durable(self) -> str:
        """The name of its durable subscription; "" for one that ends with the consumer."""
        return self.membership.durable

    async def open(self) -> None:
        """Joins: later added elements arrive. Raises as `Subscription.open`."""
        await self._reader.open()

    async def get(self, timeout_s: float | None = None) -> T:
        """Returns the next element, within so many seconds; None waits without limit.

        Raises TimeoutError without an element, ServiceClosedError after the consumer or the service
        was closed, and the error of a failed subscription.
        """
        stack = self._stack
        if stack is None:
            return (await self._reader.next(timeout_s)).item
        await self._acknowledge_last()
        if not stack:
            stack.append(await self._reader.next(timeout_s))
        while len(stack) < self.membership.limits.stack_max:
            try:
                stack.append(await self._reader.next(0))
            except (TimeoutError, ServiceClosedError):
                break
        self._last = stack.pop()
        return self._last.item

    async def poll(self) -> T | None:
        """Returns the next element if one is here, else None. Raises as `get`."""
        try:
            return await self.get(0)
        except TimeoutError:
            return None

    async def __anext__(self) -> T:
        if self._stack is None:  # A timeout would cost.
            return (await anext(self._reader)).item
        try:
            return await self.get()
        except ServiceClosedError:
            raise StopAsyncIteration from None

    async def acknowledge(self) -> None:
        """Acknowledges all returned elements; returns when that is on stable storage."""
        if self._stack is None:
            await self._reader.acknowledge_all()
        await self._acknowledge_last()

    async def nack(self) -> None:
        """Returns the last, unacknowledged element to the queue, for any reader."""
        if self._stack is None:
            await self._reader.nack_all()
        elif self._last is not None:
            gone, self._last = self._last.position, None
            self._stack = [each for each in self._stack if each.position != gone or not gone]
            await self._reader.nack(gone)

    async def aclose(self) -> None:
        """Leaves; unacknowledged elements are delivered again. Idempotent."""
        await self._reader.aclose()

    async def __aexit__(self, kind: object = None, *_: object) -> None:
        if kind is not None:
            await self.aclose()
            return
        await self._acknowledge_last()
        await self._reader.finish()

    def statistics(self) -> SubscriptionStatistics:
        """Returns counts of elements returned, queued and dropped, by reason."""
        found = self._reader.statistics()
        waiting = len(self._stack or ())
        delivered, queued = found.delivered - waiting, found.queued + waiting
        return replace(found, delivered=delivered, queued=queued)

    async def _acknowledge_last(self) -> None:
        last, self._last = self._last, None
        if last is not None and last.position:
            await self._reader.acknowledge(last.position)


def durable_subscription(
    service: Service, rule: ElementRule[T], options: DurableOptions
) -> Readable[T]:
    """Returns a durable subscription by a rule; raises the errors of `Service.subscribe`."""
    subject: Interest[tuple[Arrival[T], ...]] = rule
    return service.subscribe(subject, **options)
