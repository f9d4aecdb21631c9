"""`ElementReader`: one consumer's reader of a subscription; it returns single obvents.

A set's reader skips duplicates. Invariant: obvents published together are acknowledged together,
when the consumer has processed all of them. Until then all of them are delivered again.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from contrada.errors import ServiceError
from contrada.model import Filter, FilterSet
from contrada.service import (
    DurableRecord,
    DurableSubscription,
    Subscription,
    SubscriptionStatistics,
)
from contrada.typed.collections.collection_space import Arrival

T = TypeVar("T")

DUPLICATE: Final = "duplicate"
"""The reason for which a set skips a notification that its consumer has received."""

Readable: TypeAlias = (
    Subscription[tuple[Arrival[T], ...]] | DurableSubscription[tuple[Arrival[T], ...]]
)
"""A subscription to arrivals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionLimits:
    """Limits of a `Collection`."""

    recent_max: int = 10_000
    """Notifications that a consumer of a set remembers. Beyond it: the oldest are forgotten, and
    their duplicates delivered."""

    stack_max: int = 1_000
    """Elements among which `last_first` takes the newest. Beyond it: later ones wait."""

    arrivals_max: int = 1_000
    """Elements with a known arrival. Beyond it: the arrival of the oldest is forgotten."""


@dataclass(slots=True)
class _Unacknowledged:
    """A delivered record: publisher and id of its notification, and the number of unprocessed
    parts.
    """

    identity: tuple[str, str]
    left: int


class ElementReader(DurableSubscription[T]):
    """The elements of a subscription; those of an ordinary one have the position 0.

    `arrived` is called with the arrivals of each notification before the first is returned. A set
    skips duplicates of the last `recent_max` notifications; None is for a bag. With
    `acknowledges` the subscription acknowledges by itself, at the request for the next record.
    """

    def __init__(
        self,
        held: Readable[T],
        arrived: Callable[[Sequence[Arrival[T]]], None],
        *,
        acknowledges: bool,
        recent_max: int | None,
    ) -> None:
        self._held = held
        self._arrived = arrived
        self._recent: dict[tuple[str, str], None] = {}
        self._recent_max = recent_max
        self._auto_acknowledges = acknowledges
        self._parts: deque[DurableRecord[T]] = deque()
        self._open: dict[int, _Unacknowledged] = {}
        self._delivered = 0
        self._dropped: Counter[str] = Counter()

    @property
    def name(self) -> str:
        return self._held.name if isinstance(self._held, DurableSubscription) else ""

    @property
    def filters(self) -> Filter | FilterSet:
        return self._held.filters

    async def open(self) -> None:
        await self._held.open()

    async def aclose(self) -> None:
        if isinstance(self._held, DurableSubscription):
            await self._held.aclose()
        else:
            await self._held.unsubscribe()

    async def finish(self) -> None:
        """Stops reading; all returned records are processed."""
        if self._parts:  # The last record is not processed completely.
            await self.aclose()
        else:
            await self._held.__aexit__(None, None, None)

    async def __anext__(self) -> DurableRecord[T]:
        while not self._parts:
            await self._acknowledge(self._take(await anext(self._held)))
        return self._next()

    async def next(self, timeout_s: float | None = None) -> DurableRecord[T]:
        """Returns the next record; a duplicate restarts the timeout. See `Subscription.next`."""
        while not self._parts:
            await self._acknowledge(self._take(await self._held.next(timeout_s)))
        return self._next()

    def _next(self) -> DurableRecord[T]:
        self._delivered += 1
        return self._parts.popleft()

    def _take(
        self, got: DurableRecord[tuple[Arrival[T], ...]] | tuple[Arrival[T], ...]
    ) -> Sequence[int]:
        """Queues the parts of a record. Returns the positions to acknowledge now."""
        if isinstance(got, DurableRecord):
            position, time_us, attempt, arrivals = got.position, got.time_us, got.attempt, got.item
        else:
            position, time_us, attempt, arrivals = 0, 0, 1, got
        envelope = arrivals[0].notification.envelope
        identity = envelope.publisher, envelope.id
        if not self._is_new(identity):
            self._dropped[DUPLICATE] += 1
            # One still in process came again after its time-out: a crash must not lose it.
            is_done = position and position not in self._open
            return (position,) if is_done and not self._auto_acknowledges else ()
        if position:
            if self._auto_acknowledges:
                self._open.clear()  # The subscription has acknowledged the earlier records.
            self._open[position] = _Unacknowledged(identity, len(arrivals))
        self._arrived(arrivals)
        for each in arrivals:
            self._parts.append(DurableRecord(each.obvent, position, time_us, attempt))
        return ()

    def _is_new(self, identity: tuple[str, str]) -> bool:
        recent, most = self._recent, self._recent_max
        if most is None or not identity[1]:
            return True
        if identity in recent:
            return False
        if len(recent) >= most:
            del recent[next(iter(recent))]
        recent[identity] = None
        return True

    async def acknowledge(self, *positions: int, up_to: int | None = None) -> None:
        """Acknowledges one part of each of these positions, and everything up to a position."""
        done = [each for each in self._open if up_to is not None and each <= up_to]
        for position in positions:
            out = self._open.get(position)
            if out is not None:
                out.left -= 1
                if out.left <= 0 and position not in done:
                    done.append(position)
        await self._acknowledge(done)

    async def acknowledge_all(self) -> None:
        """Acknowledges all returned records, except those with parts that are still queued."""
        open_ = {each.position for each in self._parts}
        await self._acknowledge([each for each in self._open if each not in open_])

    async def _acknowledge(self, positions: Sequence[int]) -> None:
        for each in positions:
            self._open.pop(each, None)
        if positions and isinstance(self._held, DurableSubscription):
            await self._held.acknowledge(*positions)

    async def nack(self, *positions: int, delay_s: float | None = None) -> None:
        """Returns these to the queue for any reader, with all parts published together."""
        returned = [each for each in dict.fromkeys(positions) if each in self._open]
        for each in returned:
            self._recent.pop(self._open.pop(each).identity, None)
        gone = set(returned)
        self._parts = deque(each for each in self._parts if each.position not in gone)
        if returned and isinstance(self._held, DurableSubscription):
            await self._held.nack(*returned, delay_s=delay_s)

    async def extend(self, *positions: int) -> None:
        if isinstance(self._held, DurableSubscription):
            await self._held.extend(*positions)

    async def handle(self, *_: object, **__: object) -> None:
        """Raises ServiceError: the collection's own subscribers have handlers."""
        raise ServiceError("iterate the reader of a collection: it calls no handlers")

    async def nack_all(self) -> None:
        """Returns all unacknowledged records to the queue."""
        await self.nack(*self._open)

    def statistics(self) -> SubscriptionStatistics:
        """Returns the counts of this consumer; `dropped` includes duplicates."""
        found = self._held.statistics()
        queued, dropped = found.queued + len(self._parts), {**found.dropped, **self._dropped}
        return replace(found, delivered=self._delivered, queued=queued, dropped=dropped)
