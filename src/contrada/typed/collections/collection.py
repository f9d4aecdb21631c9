"""`Collection`: the operations of all collections of obvents, in each delivery class.

`add` publishes an element; a query for the elements subscribes. A collection object *holds* the
last elements that it received inside its own `async with`; a persistent collection begins with
those that it held when it was closed. So `contains` of a value covers the elements seen here.

Source: EPFL 2503 §4.2, §4.3, §4.4.3 (the last k are buffered), §4.7.
"""

import asyncio
import inspect
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar, cast, overload

from contrada.delivery.retention import Retention
from contrada.errors import ServiceError
from contrada.model import Envelope, Filter
from contrada.service import DurableOptions, Interest, Offering, Predicate, Service, Subscribable
from contrada.service.async_resource import AsyncResource
from contrada.service.subjects import OnError
from contrada.typed.collections.collection_handles import (
    CollectionMembership,
    Consumer,
    ElementHandle,
)
from contrada.typed.collections.collection_space import (
    Arrival,
    CollectionSpace,
    ElementRule,
    Quality,
    check_promises,
    delivery_of,
    with_implied,
)
from contrada.typed.collections.element_reader import CollectionLimits, Readable
from contrada.typed.collections.subject_path import Subject
from contrada.typed.collections.together import Together
from contrada.typed.handles import ThreadPolicy, policy_for

_LIMITS: Final = CollectionLimits()
_LOG: Final = logging.getLogger("contrada.typed")

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Subscriber(Protocol[T_contra]):
    """An object that is called with elements."""

    def notify(self, obvent: T_contra, /) -> Awaitable[object] | object:
        """Handles an element."""
        ...


Called: TypeAlias = Callable[[T], Awaitable[object] | object] | Subscriber[T]
"""A function, or an object with `notify`; the result of an `async` one is awaited."""

Producer: TypeAlias = Callable[[], Awaitable[T | None] | T | None]
"""Returns an obvent when it is polled, or None if it has none."""

Where: TypeAlias = Subscribable | Predicate[T] | None
"""A filter, its text, a condition, or a predicate over elements."""


@dataclass(frozen=True, slots=True)
class CollectionStatistics:
    """Counts of a collection's elements, at one moment.

    `added` were published here and `held` are held now; `forgotten` were held, and evicted.
    `dropped` counts elements that did not reach the collection, by reason, duplicates included.
    """

    added: int
    held: int
    forgotten: int
    dropped: Mapping[str, int]


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
        self._changing = asyncio.Lock()

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
        """Holds the elements of a membership, or of the one before. Raises CannotSubscribeError."""
        async with self._changing:
            if self._view is None:
                view = ElementHandle(membership, None, _ignore, ThreadPolicy.single())
                await view.activate()
                self._view = view

    async def aclose(self) -> None:
        """Holds nothing any more."""
        async with self._changing:  # Elements that are about to be held are held no more then.
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


async def _ignore(_: object) -> None:
    """It was held when it arrived."""


class Collection(AsyncResource, Generic[T]):
    """The elements of a type, of a subject, or of a type under a subject.

    Classes derive from it and from one another. A class promises what its bases promise, with its
    own `promises`: `class Registrations(PersistentSet[T], CausalSet[T])`. A class of your own may
    override `admit`, `subscribed` and `retention`.

    Source: EPFL 2503 figures 4.4, 4.7 and 4.25.
    """

    promises: ClassVar[frozenset[Quality]] = frozenset()
    """The guarantees that it requires of its type."""

    is_set: ClassVar[bool] = False
    """Whether a consumer skips notifications that it received before."""

    retention: ClassVar[Retention | None] = None
    """The retention for named consumers and queues; None is the service's own."""

    def __init_subclass__(cls, *, promises: Iterable[str] = (), **options: Any) -> None:
        super().__init_subclass__(**options)
        inherited = (base.promises for base in cls.__mro__[1:] if issubclass(base, Collection))
        cls.promises = with_implied(map(Quality, promises)).union(*inherited)

    @overload
    def __init__(
        self,
        service: Service,
        of: type[T],
        *,
        subject: Subject | str | None = None,
        name: str = "",
        holds: int = 1_000,
        limits: CollectionLimits = _LIMITS,
    ) -> None: ...

    @overload
    def __init__(
        self,
        service: Service,
        of: Interest[T],
        *,
        name: str = "",
        holds: int = 1_000,
        limits: CollectionLimits = _LIMITS,
    ) -> None: ...

    def __init__(
        self,
        service: Service,
        of: type[T] | Interest[T],
        *,
        subject: Subject | str | None = None,
        name: str = "",
        holds: int = 1_000,
        limits: CollectionLimits = _LIMITS,
    ) -> None:
        """`of` is a class of obvents, or a subject, with notifications as elements.

        `name` identifies a persistent collection over restarts; it holds the last `holds` elements.
        Raises InvalidObventError if it promises more than the delivery of its type; ServiceError.
        """
        self.service = service
        self.space: CollectionSpace[T] = CollectionSpace(of, subject)
        self.delivery = self.space.delivery or delivery_of(self.promises)
        check_promises(type(self).__name__, self.promises, self.space.name, self.delivery)
        if bool(name) != self.is_persistent:
            reason = "needs a name" if self.is_persistent else "has no name: it is not persistent"
            raise ServiceError(f"a {type(self).__name__} {reason}")
        given: object = name
        if not isinstance(given, str) or "/" in given:  # The separator of a consumer's name.
            raise ServiceError(f"name = {name!r}: expected text without a slash")
        self.name = name
        self._held: HeldElements[T] = HeldElements(holds)
        self.limits = limits
        self._arrivals: dict[int, Arrival[T]] = {}  # by the identity of their objects
        self._added = 0

    @property
    def is_persistent(self) -> bool:
        """Whether it outlives its process."""
        return Quality.CERTIFIED in self.promises

    # --- hooks of subclasses ------------------------------------------------------------------

    def admit(self, obvent: T) -> T:
        """Returns the object to publish for an added one. Raises an error to refuse it."""
        return obvent

    @abstractmethod
    def subscribed(self, rule: ElementRule[T], options: DurableOptions) -> Readable[T]:
        """Returns a subscription for a consumer without a name; `options` are for a durable one."""

    # --- adding -------------------------------------------------------------------------------

    async def add(self, obvent: T, /) -> Envelope:
        """Publishes an obvent, with the guarantees of its type; raises the errors of
        `Service.publish`.

        Raises InvalidObventError for an object of another type, InvalidValueError for a subject
        pattern.
        """
        made = self.space.notification_of(self.admit(obvent), self.delivery)
        stamped = await self.service.publish(made)
        self._added += 1
        return stamped

    async def add_all(self, obvents: Iterable[T], /) -> Envelope:
        """Publishes several obvents as one: each consumer gets all parts that it matches, or none.

        A subscriber without a collection gets them as `Together`. All have the same delivery class.
        Raises the errors of `add`, and LimitError beyond TOGETHER_MAX.

        Source: EPFL 2503 §7.
        """
        parts = [self.space.notification_of(self.admit(it), self.delivery) for it in obvents]
        stamped = await self.service.publish(Together(tuple(parts)))
        self._added += len(parts)
        return stamped

    def supply(self, producer: Producer[T]) -> "Supply[T]":
        """Returns a supply that polls a producer at times or on demand; see `Supply`."""
        return Supply(self, producer)

    @property
    def offered(self) -> Filter:
        """The advertisement of single elements added here."""
        return self.space.offered

    # --- all of n -----------------------------------------------------------------------------

    @overload
    def contains(self, value: T, /) -> bool: ...

    @overload
    def contains(
        self,
        subscriber: Called[T],
        where: Where[T] = None,
        /,
        *,
        name: str = "",
        threads: ThreadPolicy | None = None,
        on_error: OnError[T] | None = None,
    ) -> ElementHandle[T]: ...

    def contains(self, value: Any, where: Where[T] = None, /, **options: Any) -> Any:
        """Whether it holds a value; or a handle that calls a subscriber with elements.

        A value is held if an equal element is, or one with the same encoding; cost: all held
        elements. Raises ServiceError outside `async with`, or if the subscription for the elements
        has failed.

        A subscriber is called from the activation of its handle on, with elements added from then
        on; see `Handle`, also for `threads` and `on_error`. In a persistent collection a subscriber
        needs a `name`, under which it continues when it is activated again.
        """
        if self.space.accepts(value):
            return self._is_held(value)
        return self._handle(self._membership(where, options.pop("name", "")), value, **options)

    def __contains__(self, value: object) -> bool:
        return self.space.accepts(value) and self._is_held(cast(T, value))

    def contains_all(self, values: "Iterable[T] | Collection[T]", /) -> bool:
        """Whether it holds all these values, or all elements that another collection holds."""
        wanted = values.held if isinstance(values, Collection) else values
        return all(each in self for each in wanted)

    @property
    def held(self) -> tuple[T, ...]:
        """The held elements, in order of arrival. Raises the errors of `contains` of a value."""
        return tuple(each.obvent for each in self._held.arrivals)

    def get(
        self, where: Where[T] = None, /, *, name: str = "", last_first: bool = False
    ) -> Consumer[T]:
        """Returns a consumer that pulls; each consumer gets all elements that it matches.

        `name` as in `contains`. `last_first` gives the newest waiting element; ServiceError in a
        collection with an order.
        """
        return self._consumer(self._membership(where, name), last_first)

    async def __aiter__(self) -> AsyncIterator[T]:
        """Iterates over all elements from the first step on, until the service is closed."""
        async with self.get() as consumer:
            async for each in consumer:
                yield each

    def arrival_of(self, obvent: T) -> Arrival[T] | None:
        """Returns the arrival of this very object at a consumer here: its publisher and subject.

        None for other objects, or after `arrivals_max` later arrivals.
        """
        # Known objects are kept alive, so no other has this identity.
        return self._arrivals.get(id(obvent))

    # --- one of n -----------------------------------------------------------------------------

    @overload
    def remove(
        self, *, where: Where[T] = None, queue: str = "", last_first: bool = False
    ) -> Consumer[T]: ...

    @overload
    def remove(
        self,
        subscriber: Called[T],
        /,
        *,
        where: Where[T] = None,
        queue: str = "",
        threads: ThreadPolicy | None = None,
        on_error: OnError[T] | None = None,
    ) -> ElementHandle[T]: ...

    def remove(
        self,
        subscriber: Any = None,
        *,
        where: Where[T] = None,
        queue: str = "",
        last_first: bool = False,
        **options: Any,
    ) -> Any:
        """Returns a consumer that shares elements with others: each goes to one, by push or by
        pull.

        All consumers of one queue share it, in any process. Without a name the queue is that of the
        type and subject. Another condition is another queue, which needs a name. Unacknowledged
        elements of a closed consumer go to another consumer; elements added while there is none
        wait. The first consumer creates the queue in the store, where it remains until
        `Service.unsubscribe(queue)`. Raises ServiceError.

        Source: EPFL 2503 §4.7.2, figure 4.25.
        """
        if where is not None and not queue:
            raise ServiceError("another condition is another queue: give queue='name'")
        membership = self._new_membership(where, self._remember)
        membership.durable, membership.is_queue = queue or f"queue of {self.space.name}", True
        if subscriber is None:
            return self._consumer(membership, last_first)
        if last_first:
            raise ServiceError("last_first is for consumers that pull")
        return self._handle(membership, subscriber, **options)

    # --- elements -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Holds elements from now on. Raises CannotSubscribeError. Idempotent."""
        membership = self._new_membership(None, self._held.hold)
        if self.is_persistent:
            membership.durable, membership.replays = self.name, True
            membership.retention = Retention(replay_max=self._held.most)
        await self._held.open(membership)

    async def aclose(self) -> None:
        """Holds nothing any more. Consumers are not affected."""
        await self._held.aclose()

    async def clear(self, consumer: Consumer[T] | ElementHandle[T] | None = None, /) -> None:
        """Forgets all held elements; or ends a consumer for good.

        The durable subscription of a named consumer ends with it; a queue remains. Raises
        DeliveryError if it had none, ServiceError for a consumer of another collection.
        """
        if consumer is not None:
            await self._leave(consumer)
            return
        if self.is_persistent and self._held.is_open:
            await self.aclose()
            await self.service.unsubscribe(self.name)
            await self.open()
        self._held.clear()

    def statistics(self) -> CollectionStatistics:
        """Returns counts of elements added, held, and dropped before they could be held."""
        held = self._held
        return CollectionStatistics(self._added, len(held), held.forgotten, held.dropped)

    def _is_held(self, value: T) -> bool:
        arrivals = self._held.arrivals
        bare = self.space.bare
        if any(each.obvent == value for each in arrivals):
            return True
        made = bare(self.space.notification_of(value, self.delivery, under=False))
        return any(bare(each.notification) == made for each in arrivals)

    # --- consumers ----------------------------------------------------------------------------

    def _membership(self, where: Where[T], name: str) -> CollectionMembership[T]:
        if bool(name) != self.is_persistent:
            reason = "needs a name" if self.is_persistent else "has no name"
            raise ServiceError(f"a consumer of a {type(self).__name__} {reason}")
        membership = self._new_membership(where, self._remember)
        membership.durable = f"{self.name}/{name}" if name else ""
        return membership

    def _new_membership(
        self, where: Where[T], arrived: Callable[[Sequence[Arrival[T]]], None]
    ) -> CollectionMembership[T]:
        source = self.service, self.subscribed, self.space.rule(where)
        made = CollectionMembership(self, *source, arrived, self.limits)
        made.retention, made.is_set = self.retention, self.is_set
        return made

    def _consumer(self, membership: CollectionMembership[T], last_first: bool) -> Consumer[T]:
        if last_first and self.is_ordered:
            raise ServiceError(f"its elements have an order, {self.delivery!r}: no last_first")
        return Consumer(membership, last_first=last_first)

    def _handle(
        self,
        membership: CollectionMembership[T],
        subscriber: Any,
        threads: ThreadPolicy | None = None,
        on_error: OnError[T] | None = None,
    ) -> ElementHandle[T]:
        handler = getattr(subscriber, "notify", subscriber)
        if not callable(handler):
            reason = f"{subscriber!r} is no element, no function, and has no notify()"
            raise ServiceError(reason)
        threads = policy_for(self.delivery, threads)
        return ElementHandle(membership, self.space.cls, handler, threads, on_error)

    @property
    def is_ordered(self) -> bool:
        """Whether it promises an order."""
        return bool(self.promises & {Quality.FIFO, Quality.TOTAL})

    def _remember(self, arrivals: Sequence[Arrival[T]]) -> None:
        for each in arrivals:
            if len(self._arrivals) >= self.limits.arrivals_max:
                del self._arrivals[next(iter(self._arrivals))]
            self._arrivals[id(each.obvent)] = each

    async def _leave(self, consumer: Consumer[T] | ElementHandle[T]) -> None:
        membership = consumer.membership
        if membership.owner is not self:
            raise ServiceError("it is a consumer of another collection")
        if isinstance(consumer, Consumer):
            await consumer.aclose()
        elif consumer.is_active:
            await consumer.deactivate()
        if membership.durable and not membership.is_queue:
            await self.service.unsubscribe(membership.durable)


class Supply(AsyncResource, Generic[T]):
    """A producer that is polled for obvents. Inside `async with` its obvents are advertised.

    `failed` counts the polls of `run` that raised.
    """

    def __init__(self, adding: Collection[T], producer: Producer[T]) -> None:
        self.failed = 0
        self._adding = adding
        self._producer = producer
        self._offering: Offering | None = None

    async def open(self) -> None:
        """Advertises the production. Raises the errors of `Service.advertise`."""
        if self._offering is None:
            self._offering = self._adding.service.advertise(self._adding.offered)
        await self._offering.open()

    async def pull(self) -> Envelope | None:
        """Polls the producer once, and publishes the result. Raises its errors, and `add`'s."""
        given = self._producer()
        obvent: T | None = await given if inspect.isawaitable(given) else given
        return None if obvent is None else await self._adding.add(obvent)

    async def run(
        self, ticks: AsyncIterable[object], on_error: Callable[[Exception], object] | None = None
    ) -> None:
        """Pulls at each tick. Failures are counted and reported, and end nothing."""
        async for _ in ticks:
            try:
                await self.pull()
            except Exception as error:  # noqa: BLE001 - the producer's own code, or one publication
                self.failed += 1
                if on_error is not None:
                    on_error(error)
                else:
                    _LOG.warning("a producer failed: %(reason)r", {"reason": error})

    async def aclose(self) -> None:
        """Withdraws the advertisement."""
        offering, self._offering = self._offering, None
        if offering is not None:
            await offering.unadvertise()
