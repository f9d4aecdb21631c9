"""`HeldElements`: the last elements that a collection received.

Source: EPFL 2503 §4.3.1 (a collection contains elements), §4.4.3 (the last k are buffered).
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from contrada.errors import ServiceError
from contrada.typed.collections.collection_handles import CollectionMembership, ElementHandle
from contrada.typed.collections.collection_space import Arrival
from contrada.typed.handles import ThreadPolicy

T = TypeVar("T")


class HeldElements(Generic[T]):
    """The last `most` elements received while it is open."""

    def __init__(self, most: int) -> None:
        given: object = most
        if type(given) is not int or given < 1:
            raise ServiceError(f"holds = {most!r}: expected a number of elements from 1")
        self.most = most
        self.forgotten = 0
        self._held: deque[Arrival[T]] = deque()
        self._view: ElementHandle[T] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has a subscription, active or failed."""
        return self._view is not None

    @property
    def arrivals(self) -> Sequence[Arrival[T]]:
        """The held elements. Raises ServiceError without an active subscription."""
        if self._view is None:
            raise ServiceError("a collection holds elements inside its own `async with` only")
        if not self._view.is_active:
            raise ServiceError("it holds nothing: the subscription for its elements has ended")
        return self._held

    def __len__(self) -> int:
        return len(self._held)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Counts of elements that did not arrive, by reason."""
        return {} if self._view is None else self._view.statistics().dropped

    async def open(self, membership: CollectionMembership[T]) -> None:
        """Holds the elements of a membership. Raises CannotSubscribeError."""
        view: ElementHandle[T] = ElementHandle(membership, None, _held, ThreadPolicy.single())
        await view.activate()
        self._view = view

    async def aclose(self) -> None:
        """Holds nothing any more."""
        view, self._view = self._view, None
        self.clear()
        if view is not None and view.is_active:
            await view.deactivate()

    def clear(self) -> None:
        """Forgets the held elements."""
        self._held.clear()

    def hold(self, arrivals: Sequence[Arrival[T]]) -> None:
        """Adds elements that arrived together."""
        for each in arrivals:
            if len(self._held) >= self.most:
                self._held.popleft()
                self.forgotten += 1
            self._held.append(each)


class Arrivals(Generic[T]):
    """The last arrivals, by the identity of their objects."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[int, Arrival[T]] = {}

    def remember(self, arrivals: Sequence[Arrival[T]]) -> None:
        """Adds arrivals."""
        for each in arrivals:
            if len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[id(each.obvent)] = each

    def of(self, obvent: T) -> Arrival[T] | None:
        """Returns the arrival of this object."""
        return self._known.get(id(obvent))  # Known objects are kept alive, so no other has this id.


async def _held(_: object) -> None:
    """It was held when it arrived."""
