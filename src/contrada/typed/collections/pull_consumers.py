"""Consumers that pull: they ask for the next element, and wait for it or not.

Source: EPFL 2503 §4.2.4 (pull), §4.4.2 (extraction order), §4.7.2 (removal).
"""

from collections.abc import AsyncIterator
from typing import Final, Generic, Protocol, TypeVar

from contrada.errors import ServiceClosedError
from contrada.service import DurableRecord, SubscriptionStatistics
from contrada.service.async_resource import AsyncResource
from contrada.typed.collections.element_reader import ElementReader

T = TypeVar("T")

STACK_MAX: Final = 1_000
"""Elements among which a consumer takes the last. Beyond it: later ones stay where they wait, until
there is room."""


class Membership(Protocol[T]):
    """How a consumer joins its collection."""

    durable: str

    def reader(self, *, acknowledges: bool) -> ElementReader[T]:
        """What it reads, not in force yet."""
        ...


class Consumer(AsyncResource, AsyncIterator[T], Generic[T]):
    """Pulls elements; use it inside `async with`, and iterate it there, or call `get`.

    What it got is done with when it asks for the next one, and the last when `async with` ends
    without an error; or by `acknowledge`. What is not done with when it goes comes again: to it,
    where it has a name, and to another consumer where it removes.

    `last_first` gives the last of those that wait, among the first STACK_MAX.
    """

    def __init__(self, membership: Membership[T], *, last_first: bool = False) -> None:
        self.membership = membership
        self._stack: list[DurableRecord[T]] | None = [] if last_first else None
        self._reader = membership.reader(acknowledges=not last_first)
        self._last: DurableRecord[T] | None = None

    @property
    def durable(self) -> str:
        """The name of the durable subscription that it reads; "" where the subscription ends with
        it.
        """
        return self.membership.durable

    async def open(self) -> None:
        """Join: elements added after this has returned come. Raises as `Subscription.open`."""
        await self._reader.open()

    async def get(self, timeout_s: float | None = None) -> T:
        """The next element, within so many seconds; None waits without end.

        Raises TimeoutError when none came, ServiceClosedError when this or the service is closed,
        and what a subscription that has failed raises.
        """
        stack = self._stack
        if stack is None:
            return (await self._reader.next(timeout_s)).item
        await self._acknowledge_last()
        if not stack:
            stack.append(await self._reader.next(timeout_s))
        while len(stack) < STACK_MAX:
            try:
                stack.append(await self._reader.next(0))
            except (TimeoutError, ServiceClosedError):
                break
        self._last = stack.pop()
        return self._last.item

    async def poll(self) -> T | None:
        """The next element if one is here, else None. Raises as `get`, but no TimeoutError."""
        try:
            return await self.get(0)
        except TimeoutError:
            return None

    async def __anext__(self) -> T:
        if self._stack is None:  # Nothing is timed, which costs.
            return (await anext(self._reader)).item
        try:
            return await self.get()
        except ServiceClosedError:
            raise StopAsyncIteration from None

    async def acknowledge(self) -> None:
        """All that it got is done with; returns when that is on stable storage."""
        if self._stack is None:
            await self._reader.acknowledge_all()
        await self._acknowledge_last()

    async def nack(self) -> None:
        """What it got last and is not done with comes again, to whoever reads next."""
        if self._stack is None:
            await self._reader.nack_all()
        elif self._last is not None:
            gone, self._last = self._last.position, None
            self._stack = [each for each in self._stack if each.position != gone or not gone]
            await self._reader.nack(gone)

    async def aclose(self) -> None:
        """Leave; what is not acknowledged comes again. Twice is once."""
        await self._reader.aclose()

    async def __aexit__(self, kind: object = None, *_: object) -> None:
        if kind is not None:
            await self.aclose()
            return
        await self._acknowledge_last()
        await self._reader.finish()

    async def _end(self) -> None:
        await self.aclose()

    def statistics(self) -> SubscriptionStatistics:
        """Counts of elements that it got, that wait, and that were lost, by reason."""
        found = self._reader.statistics()
        waiting = len(self._stack or ())
        return SubscriptionStatistics(
            found.delivered - waiting,
            found.queued + waiting,
            found.dropped,
            found.failed,
            found.reconnects,
        )

    async def _acknowledge_last(self) -> None:
        last, self._last = self._last, None
        if last is not None and last.position:
            await self._reader.acknowledge(last.position)
