"""`CollectionMembership`: the settings of one consumer; and `ElementHandle`, its push form.

Source: EPFL 2503 §4.3.1, §4.7.2.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from contrada.delivery.retention import Retention
from contrada.errors import CannotSubscribeError
from contrada.service import DurableOptions, Interest, Service
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


def durable_subscription(
    service: Service, rule: ElementRule[T], options: DurableOptions
) -> Readable[T]:
    """Returns a durable subscription by a rule; raises the errors of `Service.subscribe`."""
    subject: Interest[tuple[Arrival[T], ...]] = rule
    return service.subscribe(subject, **options)
