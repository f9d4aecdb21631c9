"""What every service offers: publish, subscribe, and a count of what was lost.

Invariants that every service keeps:
- nothing is delivered after `Subscription.unsubscribe` has returned;
- closing a service ends the iteration of its subscriptions, after what they still hold;
- best effort never means silent: what is dropped is counted, by reason.

Source: PODC 2000 §2 (the interface of an event notification service).
"""

from abc import abstractmethod
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, field
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from contrada.model import Envelope, Filter, FilterSet, Notification, Pattern
from contrada.model.algebra.attributes import Values
from contrada.model.algebra.notification import Body
from contrada.patterns import Match
from contrada.service.advertisements import Advertisements, Offering
from contrada.service.async_resource import AsyncResource, former_method
from contrada.service.query_interface import (
    Answers,
    Computed,
    ComputeOptions,
    Description,
    Queryable,
    QueryOptions,
    SourceLike,
    SourceOffer,
)
from contrada.service.subjects import (
    EnvelopePredicate,
    Interest,
    Item,
    MatchInterest,
    Offered,
    Predicate,
    Subscribable,
)

if TYPE_CHECKING:  # It loads what only promises of delivery need.
    from contrada.delivery.delivery_server import DeliveryStatistics
    from contrada.delivery.durable_log import Retention

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """Counts of one subscription's notifications, at one moment.

    `delivered` were handed to the subscriber, `queued` wait for it here, `dropped` counts the lost
    ones by reason, as "expired". An expired notification counts as queued until a reader comes or
    its room is needed. `failed` raised in a handler.

    `reconnects` counts how often the subscription was resumed after its connection was lost.
    Notifications published meanwhile, or on their way, did not come. Nobody knows how many these
    are, so `dropped` does not count them.
    """

    delivered: int
    queued: int
    dropped: Mapping[str, int]
    failed: int = 0
    reconnects: int = 0


@dataclass(frozen=True, slots=True)
class ServiceStatistics:
    """Counts of a service up to one moment, seen from this access point.

    `published` counts notifications, `matched` pairs of a notification and a subscription
    (None where only the far end knows), `dropped` the lost pairs by reason; those "expired on
    arrival" were never matched, so there it counts notifications. `delivery` has the counts of
    delivery above best effort; None where nothing above it was asked for.

    Of the whole process, not of this access point alone: `safe_answers` counts questions of the
    algebra that had to be answered safely, by the question; `operator_failures` how often an
    operator of an extension raised or answered what it must not, by the operator.

    Of an embedded service with neighbours `link_sent` and `link_waiting` tell of each link that is
    up how many notifications went over it, and wait for it, by the name of the neighbour.
    """

    published: int
    subscriptions: int
    matched: int | None
    dropped: Mapping[str, int]
    safe_answers: Mapping[str, int]
    operator_failures: Mapping[str, int]
    delivery: "DeliveryStatistics | None" = None
    link_sent: Mapping[str, int] = field(default_factory=dict)
    link_waiting: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """The state of a service's connection to its broker, from one moment on.

    `state` is one of
    - "new": it is not opened yet;
    - "connected" to the broker at `address`, every subscription in force there;
    - "lost", the connection to `address`, for a `reason`;
    - "trying" to reach `address` in `wait_s` seconds, the `attempt`-th time since then; `reason` is
      why it is not connected yet;
    - "closed": nothing follows. With a `reason` where it was given up, else by its owner.

    An embedded service is always connected, without an address. Where it has neighbours, each state
    is that of its link to the neighbour at `address`; a link is tried again for ever.
    """

    state: Literal["new", "connected", "lost", "trying", "closed"]
    address: str = ""
    reason: str = ""
    attempt: int = 0
    wait_s: float = 0.0


class Subscription(AsyncResource, AsyncIterator[T_co]):
    """A standing request for notifications; iterate it inside its own `async with`.

    It is in force from the moment `async with` (or `open`) has returned until `unsubscribe`.
    """

    @property
    @abstractmethod
    def filters(self) -> Filter | FilterSet:
        """What is asked for."""

    @abstractmethod
    async def unsubscribe(self) -> None:
        """End it. Nothing is delivered afterwards; what still waited is dropped and counted."""

    @abstractmethod
    async def update(
        self,
        subject: Subscribable | Predicate[Any],
        where: Subscribable | Predicate[Any] | None = None,
    ) -> None:
        """Ask for something else, without a gap; `subject` and `where` as in `Service.subscribe`.

        A predicate alone narrows what was subscribed, in place of what narrowed it before.

        What matches both the old and the new filters is delivered once and in order, whenever it
        is published. After this has returned the new ones are in force as after `open`, and
        nothing is delivered that matches the old ones alone: what waited of that is passed over.
        Until then something of both may come. A refusal leaves the old ones in force. Whoever is
        cancelled does not know which are; `filters` says so once it is decided.

        What is given stays of one type: a class of obvents is narrowed by `where`, not replaced by
        another one, and a pattern is not updated. Cost: a match of each notification that is read
        afterwards. Raises as `Service.subscribe` and `open`; over TCP also ConnectionFailedError
        where no connection is there for a while. If it was lost meanwhile, the new ones are taken
        up on the next.
        """

    @abstractmethod
    def statistics(self) -> SubscriptionStatistics:
        """What was delivered and dropped so far."""

    @abstractmethod
    async def __anext__(self) -> T_co:
        """The next object; ends when unsubscribed or when the service is closed."""

    @abstractmethod
    async def next(self, timeout_s: float | None = None) -> T_co:
        """The next object, within so many seconds; None waits without end.

        Raises TimeoutError when nothing came, ServiceClosedError when it has ended, ServiceError
        for what is no timeout.
        """

    @abstractmethod
    async def handle(
        self,
        function: Callable[[T_co], Awaitable[object] | object],
        *,
        concurrency: int = 1,
        on_error: Callable[[Exception, T_co], Awaitable[object] | object] | None = None,
    ) -> None:
        """Call a function with each object, until the subscription ends; in place of iterating it.

        What an `async` function does is awaited, `concurrency` at a time, begun in the order in
        which they came. A plain function is called on the event loop, so it should be short.
        What one raises ends nothing: it is counted as `failed`, logged, and handed to `on_error`
        with the object. Returns when those that have begun are done; who is cancelled cancels
        them. Raises ConnectionFailedError as iterating does, ServiceError for what is no number
        of calls.
        """

    async def _end(self) -> None:
        await self.unsubscribe()


WhenFull: TypeAlias = Literal["block", "drop-oldest", "drop-newest", "disconnect"]
"""What becomes of a notification for which a subscription has no room, because it is read too
slowly.

`block`: its publisher waits, a bounded time; then the newest is dropped. The others never wait:
`drop-oldest` drops what has waited longest, `drop-newest` what comes, and `disconnect` ends the
subscription, whose iteration raises TooSlowError after what it holds. Where priorities differ, the
lowest is dropped first. All that is dropped is counted.
"""


class QueueOptions(TypedDict, total=False):
    """Options of the queue of a subscription.

    The queue of a client of a broker is at the client. Notifications beyond its bounds wait in the
    broker's queue for the subscription, where `when_full` decides.
    """

    when_full: WhenFull
    """What becomes of a notification that finds no room; "block" by default."""
    queue_max: int
    """Notifications in the queue; `ServiceLimits.queue_notifications_max` by default."""
    queue_bytes: int
    """Bytes in the queue; `ServiceLimits.queue_bytes_max` by default, at a client
    `ClientLimits.credit_bytes`."""


class DurableOptions(TypedDict, total=False):
    """What makes a subscription a standing one, and how it is kept and read.

    One of the first two: `durable`, its name in the store, where it stays until
    `Service.unsubscribe`, whoever reads; or `reliable=True`, in memory, until the end of its
    `async with`.
    """

    durable: str
    reliable: bool
    retention: "Retention"
    """What is kept, and what happens when there is no room; given when the subscription begins."""
    from_position: int
    """Read again from this position. Retention says how many acknowledged records are still there.

    DeliveryError while other readers have records that they have not acknowledged.
    """
    from_time: datetime | int
    """Read again from this time: one with a zone, or UTC microseconds since 1970."""
    auto_acknowledge: bool
    """True, if not said: see `DurableSubscription`."""
    prefetch: int
    """Records that the reader holds before they are read; `ServiceLimits.prefetch_max` by default.
    """


@dataclass(frozen=True, slots=True)
class DurableRecord(Generic[T]):
    """A record of a durable subscription. `item` is the notification, or the reader's object of it.

    `position` is its place in the log, `time_us` its arrival there in UTC microseconds since 1970,
    and `attempt` counts its deliveries since the service was opened, this one included.

    A record reads like its item, so that one loop serves plain and durable subscriptions:
    `record["price"]` and `record.envelope` for a notification, `record.price` for an obvent. Type
    checkers know the access to notifications; for an obvent use `record.item.price`.
    """

    item: T
    position: int
    time_us: int
    attempt: int

    @property
    def envelope(self: "DurableRecord[Notification]") -> Envelope:
        """The envelope of the notification."""
        return self.item.envelope

    def __getitem__(self: "DurableRecord[Notification]", name: str) -> Values:
        return self.item[name]

    def __contains__(self: "DurableRecord[Notification]", name: object) -> bool:
        return name in self.item

    def __iter__(self: "DurableRecord[Notification]") -> Iterator[str]:
        return iter(self.item)

    def number(self: "DurableRecord[Notification]", name: str) -> float:
        """See `Notification.number`."""
        return self.item.number(name)

    def text(self: "DurableRecord[Notification]", name: str) -> str:
        """See `Notification.text`."""
        return self.item.text(name)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "item" or name.startswith("__"):
                raise AttributeError(name)
            return getattr(self.item, name)


class DurableSubscription(AsyncResource, AsyncIterator[DurableRecord[T]]):
    """A reader of a standing subscription; iterate it inside its own `async with`.

    Matching notifications are kept in a log until they are acknowledged. Several readers may share
    one subscription, each with a `subscribe` of its own: each notification goes to one of them.
    Unacknowledged notifications of a reader come again, to whoever reads then, once the reader is
    closed or gives them back.

    With `auto_acknowledge` a notification is acknowledged when the next one is asked for, and the
    last one when `async with` ends without an error. Else `acknowledge` has to be called.

    A notification that the reader's type cannot hold counts as unreadable, and is acknowledged with
    the next later one that is acknowledged. A reader that can read nothing acknowledges none: up to
    UNREADABLE_MAX of them come again. A record damaged on the disk is counted, and lost.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the subscription."""

    @property
    @abstractmethod
    def filters(self) -> Filter | FilterSet:
        """Its filters. Raises ServiceError before it is opened, if none were given."""

    @abstractmethod
    async def acknowledge(self, *positions: int, up_to: int | None = None) -> None:
        """Acknowledge these positions, and all that this reader has up to `up_to`.

        Returns when that is on stable storage. Positions that it no longer has are passed over.
        Raises InvalidValueError for a position that it did not get, StoreError, ServiceClosedError.
        """

    @abstractmethod
    async def nack(self, *positions: int) -> None:
        """Let these records come again, to whoever reads next. Raises as `acknowledge`."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self, former_method(self, name, {"give_back": "nack"}))

    @abstractmethod
    async def aclose(self) -> None:
        """Read no longer; the subscription stands on, unless it is one in memory."""

    @abstractmethod
    def statistics(self) -> SubscriptionStatistics:
        """What this reader got. `Service.statistics` has what is kept."""

    @abstractmethod
    async def __anext__(self) -> DurableRecord[T]:
        """The next one; ends when the reader or the service is closed.

        Raises DeliveryError when the subscription has ended.
        """

    @abstractmethod
    async def next(self, timeout_s: float | None = None) -> DurableRecord[T]:
        """The next one, within so many seconds; see `Subscription.next`."""

    async def _end(self) -> None:
        await self.aclose()


class Disseminates(Protocol):
    """What carries obvents of classes that choose it, as `contrada.gossip.udp.GossipNode` does.

    Who registers it opens and closes it.
    """

    async def publish(self, item: Item, /) -> Envelope:
        """Publish one notification, at best effort."""
        ...

    def subscribe(
        self, subject: Any, where: Any = None, /, *, when_full: WhenFull = ...
    ) -> Subscription[Notification]:
        """A subscription to filters, in force inside `async with`."""
        ...


class Service(AsyncResource):
    """An access point of a publish/subscribe service; use it inside `async with`."""

    @abstractmethod
    async def open(self) -> None:
        """Start or connect it. Raises ConnectionFailedError when it cannot be reached."""

    @abstractmethod
    async def aclose(self) -> None:
        """End it in order; iterations of its subscriptions end after what they hold."""

    @abstractmethod
    async def publish(
        self,
        item: Item,
        *,
        body: Body = b"",
        content_type: str = "",
        ttl_s: float | None = None,
        priority: int | None = None,
        delivery: str | None = None,
    ) -> Envelope:
        """Publish one notification and return the envelope it was stamped with.

        `body` belongs to a mapping; a mapping given as the body stands there as JSON. `ttl_s` is
        for how long it may be read, from the stamp of this access point on and by the reader's
        clock; `priority` 0 (lowest) to 9 says what leaves first where several wait for a reader;
        both act on best effort only. `delivery` is what is promised, for example "certified" (see
        `delivery.delivery_class`). Where they are None the envelope's own count.

        Returns when the service has taken it, what is certified when it is on stable storage;
        waits, a bounded time, for subscribers whose queues are full. Fields of the envelope that
        the caller has filled are kept. What is promised, and has a publisher and a sequence number
        not above that publisher's highest, is a duplicate: counted, and not published again.
        Raises InvalidNotificationError, InvalidObventError, ServiceClosedError, ServiceError for
        what is no time to live or priority; of what is promised InvalidValueError,
        CannotPublishError, and StoreError: then it may come to be published. Over TCP it waits a
        bounded time for a connection that was lost, then raises ConnectionFailedError; so does what
        was on its way when it was lost, and `may_be_published` tells the two apart. What is
        promised and was on its way waits instead, and is asked for again as the same.
        """

    @abstractmethod
    async def publish_batch(
        self, items: Iterable[Item] | AsyncIterable[Item], *, delivery: str | None = None
    ) -> int:
        """Publish many, in order, at the least cost each; returns how many.

        An invalid item ends it with its error, as a lost connection does; those before it are
        published. The error says how many were taken for sure, in a note and as `published`.
        """

    @overload
    def subscribe(
        self, subject: MatchInterest[T], where: None = None, **queue: Unpack[QueueOptions]
    ) -> Subscription[T]: ...

    @overload
    def subscribe(
        self, subject: Pattern, where: None = None, **queue: Unpack[QueueOptions]
    ) -> Subscription[Match[Pattern]]: ...

    @overload
    def subscribe(  # type: ignore[overload-overlap]
        self,
        subject: Interest[T],
        where: Subscribable | Predicate[T] | None = None,
        **queue: Unpack[QueueOptions],
    ) -> Subscription[T]: ...

    @overload
    def subscribe(
        self,
        subject: type[T],
        where: Subscribable | Predicate[T] | None = None,
        **queue: Unpack[QueueOptions],
    ) -> Subscription[T]: ...

    @overload
    def subscribe(
        self,
        subject: Interest[T] | type[T],
        where: EnvelopePredicate[T],
        **queue: Unpack[QueueOptions],
    ) -> Subscription[T]: ...

    @overload
    def subscribe(  # type: ignore[overload-overlap]
        self,
        subject: Subscribable,
        where: Subscribable | None = None,
        **queue: Unpack[QueueOptions],
    ) -> Subscription[Notification]: ...

    @overload
    def subscribe(  # type: ignore[overload-overlap]
        self,
        subject: Interest[T],
        where: Subscribable | Predicate[T] | None = None,
        **durable: Unpack[DurableOptions],
    ) -> DurableSubscription[T]: ...

    @overload
    def subscribe(
        self,
        subject: Subscribable | None = None,
        where: Subscribable | None = None,
        **durable: Unpack[DurableOptions],
    ) -> DurableSubscription[Notification]: ...

    @abstractmethod
    def subscribe(self, subject: Any = None, where: Any = None, **options: Any) -> Any:
        """A subscription to a filter, a text, a mapping, or what offers `to_filters()`.

        A subscription to a `Pattern` gives its matches. A match is handed over when time has passed
        its last notification, or an embedded service is closed. A broker goes by its own clock:
        there a match comes a second later. A notification that comes more than a second after a
        later one takes part in no match, nor does one with a time of long ago. `where` narrows it
        further: another subject, or a predicate over the objects of a type. The part of a predicate
        that the algebra can express becomes filters; the rest stays here, and is called with an
        object of its own. `QueueOptions` bound its queue and say what is dropped when that is full.
        The subscription is in force only inside `async with`.

        `DurableOptions` make it a standing one: a notification above best effort comes to it once,
        and is kept until it is acknowledged. A durable one that exists already is read on, whether
        its filters are given again or not. Raises ParseError, InvalidFilterError,
        UnsatisfiableFilterError, ServiceError.
        """

    @abstractmethod
    async def unsubscribe(self, durable: str) -> None:
        """End a durable subscription and delete its log. Raises DeliveryError."""

    @abstractmethod
    def advertise(self, offered: Offered) -> Offering:
        """An advertisement of what this service will publish, in force inside `async with`.

        It tells others what to expect. In a network that forwards advertisements only advertised
        notifications may be published; elsewhere all may. A client's advertisement ends with its
        connection, and is made again with the next one. Raises ParseError, InvalidFilterError,
        UnsatisfiableFilterError, ServiceError; `open` also LimitError, ConnectionFailedError.
        """

    @abstractmethod
    def advertisements(self) -> Advertisements:
        """The advertisements on offer in this process or at the client's broker, with changes.

        In a network that forwards advertisements these include the ones of other servers, as far as
        they come over links: not those that another covers on the same way, nor those made above a
        broker. Else they are the advertisements of this broker's clients.
        """

    @abstractmethod
    def offer(
        self, description: Description | None, source: SourceLike, *, name: str = ""
    ) -> SourceOffer:
        """A source that answers questions, in force inside `async with`.

        `description` is a filter, its text, an advertisement, something with `to_filters()`, or a
        list of these, of which each is enough: a question that meets none of them does not come. It
        may be wider than the data; where it is None the source describes itself. `source` has
        `answer(question)`, or is a function of the question: it gives items as `publish` takes
        them, by iterating, plainly (on a thread, not to hold up the event loop) or asynchronously.
        What does not answer the question is left out here. `name` is told to who asks; without one
        it has one of chance. Raises ParseError, InvalidFilterError, UnsatisfiableFilterError,
        ServiceError; `open` also LimitError, ConnectionFailedError.
        """

    @overload
    def query(  # type: ignore[overload-overlap]
        self, subject: Interest[T], where: Any = None, **options: Unpack[QueryOptions]
    ) -> Answers[T]: ...

    @overload
    def query(
        self, subject: type[T], where: Any = None, **options: Unpack[QueryOptions]
    ) -> Answers[T]: ...

    @overload
    def query(
        self,
        subject: Queryable,
        where: Subscribable | None = None,
        **options: Unpack[QueryOptions],
    ) -> Answers[Notification]: ...

    @abstractmethod
    def query(self, subject: Any, where: Any = None, **options: Any) -> Any:
        """Ask all sources that may have an answer, once.

            async for book in service.query("author = 'John Steinbeck' and edition < 2"):
                print(book["title"], book.envelope.publisher)

        What is asked is said as in `subscribe`, and answers come as what it gives; the publisher of
        an answer is the name of its source. A text may have variables: `origin = $x and dest = $x`
        asks for equal values. See `QueryOptions`.
        Raises ParseError, InvalidFilterError, UnsatisfiableFilterError, ServiceError; when it is
        opened, or first iterated, also LimitError, ConnectionFailedError.
        """

    @abstractmethod
    def compute(
        self,
        aggregates: Computed | Iterable[Computed],
        subject: Any,
        where: Any = None,
        **options: Unpack[ComputeOptions],
    ) -> Answers[dict[str, Any]]:
        """Ask as `query`, for what is computed of all answers: it is combined on its way.

            async for group in service.compute("sum(price)", "price > 0", by="symbol"):
                print(group["symbol"], group["sum(price)"])

        What can be computed: `count`, `count(a)`, `sum(a)`, `mean(a)`, `min(a)`, `max(a)`,
        `distinct(a)` (estimated), `top 3(a)`, `bottom 3(a)` of an attribute a, one or a list.
        Gives one mapping for each value of `by`, in order, or a single one. Raises as `query`, and
        InvalidCombinationError.
        """

    @abstractmethod
    def register_dissemination(self, name: str, dissemination: Disseminates) -> None:
        """What a name stands for, by which classes of obvents choose how they travel.

        Obvents of a class with `dissemination = name`, of the type `Disseminated`, are published
        there and not here; what is subscribed from now on, of whatever type, is entered there too,
        narrowed to such obvents. Patterns and standing subscriptions are not. Who publishes or
        subscribes a class whose dissemination is not registered gets ServiceError. Raises
        ServiceError for a name that is taken.
        """

    @abstractmethod
    def statistics(self) -> ServiceStatistics:
        """What was published, matched and dropped so far."""

    @property
    @abstractmethod
    def connection(self) -> ConnectionState:
        """How it is connected at this moment."""

    @abstractmethod
    def connection_states(self) -> AsyncIterator[ConnectionState]:
        """The state of the connection now, then each change; ends after "closed"."""

    async def _end(self) -> None:
        await self.aclose()
