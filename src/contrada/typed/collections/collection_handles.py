"""How consumers join a collection, and those that are called.

Source: EPFL 2503 §4.3.1, §4.7.2.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar, cast

from contrada.delivery.durable_log import Retention
from contrada.errors import CannotSubscribeError
from contrada.service import DurableOptions, Interest, Service
from contrada.typed.collections.collection_space import Arrival, ElementRule
from contrada.typed.collections.element_reader import ElementReader, Readable
from contrada.typed.handles import Handle, ThreadPolicy

T = TypeVar("T")

OnError: TypeAlias = Callable[[Exception, T], Awaitable[object] | object]


@dataclass(slots=True, eq=False)
class CollectionMembership(Generic[T]):
    """How one consumer joins a collection: its condition, its name, and its retention.

    Without a name `subscribed` gives the subscription. With `replays` it begins with all kept
    elements. `arrived` is called with each arrival for it.
    """

    owner: object
    service: Service
    subscribed: Callable[[ElementRule[T], DurableOptions], Readable[T]]
    asked: ElementRule[T]
    arrived: Callable[[Sequence[Arrival[T]]], None]
    durable: str = ""
    retention: Retention | None = None
    replays: bool = False
    is_set: bool = False
    is_queue: bool = False

    def reader(self, *, acknowledges: bool) -> ElementReader[T]:
        """What the consumer reads, not in force yet."""
        options: DurableOptions = {"auto_acknowledge": acknowledges}
        if self.durable:
            options["durable"] = self.durable
            if self.retention is not None:
                options["retention"] = self.retention
            if self.replays:
                options["from_position"] = 1
            held: Readable[T] = durable_subscription(self.service, self.asked, options)
        else:
            held = self.subscribed(self.asked, options)
        return ElementReader(held, self.arrived, is_set=self.is_set, acknowledges=acknowledges)

    def subscribe(self, *_: object, durable: str = "", **__: object) -> ElementReader[T]:
        """What a handle reads: it asks as if this were the service."""
        membership = replace(self, durable=durable) if durable else self
        return membership.reader(acknowledges=False)


class ElementHandle(Handle[T]):
    """A subscriber of a collection; see `Handle`. It asks for what its collection promises."""

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
        """Raises CannotSubscribeError: it is for what its collection was asked."""
        raise CannotSubscribeError("a collection's subscriber is not updated; ask for another one")


def durable_subscription(
    service: Service, asked: ElementRule[T], options: DurableOptions
) -> Readable[T]:
    """A standing subscription to what is asked for; raises as `Service.subscribe`."""
    subject: Interest[tuple[Arrival[T], ...]] = asked
    return service.subscribe(subject, **options)
