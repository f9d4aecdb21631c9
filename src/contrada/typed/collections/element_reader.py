"""How a consumer reads a subscription: obvent by obvent, for a set without duplicates.

Invariant: obvents published together are acknowledged together, once the consumer is done with all.
Until then all of them come again.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from contrada.model import Filter, FilterSet
from contrada.service import (
    DurableRecord,
    DurableSubscription,
    Subscription,
    SubscriptionStatistics,
)
from contrada.typed.collections.collection_space import Arrival

T = TypeVar("T")

RECENT_MAX: Final = 10_000
"""Identities of notifications that a consumer of a set remembers. Beyond it: the oldest are
forgotten, and a duplicate of one of these is delivered."""

DUPLICATE: Final = "duplicate"
"""Why a set passes over a notification: its consumer has had it."""

Readable: TypeAlias = (
    Subscription[tuple[Arrival[T], ...]] | DurableSubscription[tuple[Arrival[T], ...]]
)
"""What is read."""


@dataclass(slots=True)
class _Unacknowledged:
    """A record that was handed out: of which notification, and how many parts are not done."""

    identity: str
    left: int


class ElementReader(DurableSubscription[T]):
    """The elements of a subscription; those of an ordinary one have the position 0.

    `arrived` is called with the arrivals of each notification before the first is handed out.
    With `acknowledges` the subscription itself acknowledges, when the next record is asked for.
    """

    def __init__(
        self,
        held: Readable[T],
        arrived: Callable[[Sequence[Arrival[T]]], None],
        *,
        is_set: bool,
        acknowledges: bool,
    ) -> None:
        self._held = held
        self._arrived = arrived
        self._recent: dict[str, None] | None = {} if is_set else None
        self._auto_acknowledges = acknowledges
        self._parts: deque[DurableRecord[T]] = deque()
        self._open: dict[int, _Unacknowledged] = {}
        self._delivered = 0
        self._dropped: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """The name of the subscription, "" of an ordinary one."""
        return self._held.name if isinstance(self._held, DurableSubscription) else ""

    @property
    def filters(self) -> Filter | FilterSet:
        """What is asked for."""
        return self._held.filters

    async def open(self) -> None:
        """Put it in force; raises as the subscription's `open`."""
        await self._held.open()

    async def aclose(self) -> None:
        """Read no longer."""
        if isinstance(self._held, DurableSubscription):
            await self._held.aclose()
        else:
            await self._held.unsubscribe()

    async def finish(self) -> None:
        """Read no longer; all that was handed out is done with."""
        if self._parts:  # Of the last it was not: it comes again.
            await self.aclose()
        else:
            await self._held.__aexit__(None, None, None)

    async def __anext__(self) -> DurableRecord[T]:
        while not self._parts:
            if done := self._take(await anext(self._held)):
                await self._acknowledge(done)
        return self._next()

    async def next(self, timeout_s: float | None = None) -> DurableRecord[T]:
        """The next one; the time begins anew after a duplicate. See `Subscription.next`."""
        while not self._parts:
            if done := self._take(await self._held.next(timeout_s)):
                await self._acknowledge(done)
        return self._next()

    def _next(self) -> DurableRecord[T]:
        self._delivered += 1
        return self._parts.popleft()

    def _take(
        self, got: DurableRecord[tuple[Arrival[T], ...]] | tuple[Arrival[T], ...]
    ) -> Sequence[int]:
        """Has what came to be handed out; what of it is to be acknowledged now."""
        if isinstance(got, DurableRecord):
            position, time_us, attempt, arrivals = got.position, got.time_us, got.attempt, got.item
        else:
            position, time_us, attempt, arrivals = 0, 0, 1, got
        identity = arrivals[0].notification.envelope.id
        if not self._is_new(identity):
            self._dropped[DUPLICATE] += 1
            return (position,) if position and not self._auto_acknowledges else ()
        if position:
            if self._auto_acknowledges:
                self._open.clear()  # It has acknowledged what it gave before.
            self._open[position] = _Unacknowledged(identity, len(arrivals))
        self._arrived(arrivals)
        for each in arrivals:
            self._parts.append(DurableRecord(each.obvent, position, time_us, attempt))
        return ()

    def _is_new(self, identity: str) -> bool:
        recent = self._recent
        if recent is None or not identity:
            return True
        if identity in recent:
            return False
        if len(recent) >= RECENT_MAX:
            del recent[next(iter(recent))]
        recent[identity] = None
        return True

    async def acknowledge(self, *positions: int, up_to: int | None = None) -> None:
        """Acknowledges one part of each of these positions, and all up to a position."""
        done = [each for each in self._open if up_to is not None and each <= up_to]
        for position in positions:
            out = self._open.get(position)
            if out is not None:
                out.left -= 1
                if out.left <= 0 and position not in done:
                    done.append(position)
        await self._acknowledge(done)

    async def acknowledge_all(self) -> None:
        """All that was handed out is done with, but for what is between its parts."""
        open_ = {each.position for each in self._parts}
        await self._acknowledge([each for each in self._open if each not in open_])

    async def _acknowledge(self, positions: Sequence[int]) -> None:
        for each in positions:
            self._open.pop(each, None)
        if positions and isinstance(self._held, DurableSubscription):
            await self._held.acknowledge(*positions)

    async def nack(self, *positions: int) -> None:
        """Lets these come again, with all parts published together with them, to whoever reads."""
        returned = [each for each in dict.fromkeys(positions) if each in self._open]
        for each in returned:
            out = self._open.pop(each)
            if self._recent is not None:
                self._recent.pop(out.identity, None)
        gone = set(returned)
        self._parts = deque(each for each in self._parts if each.position not in gone)
        if returned and isinstance(self._held, DurableSubscription):
            await self._held.nack(*returned)

    async def nack_all(self) -> None:
        """All that is not acknowledged comes again."""
        await self.nack(*self._open)

    def statistics(self) -> SubscriptionStatistics:
        """What this consumer got; `dropped` counts duplicates, too."""
        found = self._held.statistics()
        return SubscriptionStatistics(
            self._delivered,
            found.queued + len(self._parts),
            {**found.dropped, **self._dropped},
            found.failed,
            found.reconnects,
        )
