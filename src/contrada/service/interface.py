"""`Service`, `Subscription` and `DurableSubscription`: the interface of every service.

Invariants:
- nothing is delivered after `Subscription.unsubscribe` has returned;
- closing a service ends the iteration of its subscriptions, after their queued notifications;
- losses at best effort are counted, by reason.

Source: PODC 2000 §2 (the interface of an event notification service).
"""

from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, Unpack, overload

from contrada.model import Envelope, Filter, FilterSet, Notification, Pattern
from contrada.model.algebra.html_display import html_table
from contrada.patterns import Match
from contrada.renamed_modules import former_method
from contrada.service.async_resource import AsyncResource
from contrada.service.query_interface import (
    QUESTION_WAIT_S,
    Advertisements,
    Answers,
    Computed,
    ComputeOptions,
    Description,
    Offering,
    Queryable,
    QueryOptions,
    Replier,
    SourceLike,
    SourceOffer,
)
from contrada.service.queues import Queues
from contrada.service.story import Story
from contrada.service.subjects import (
    DurableOptions,
    DurableRecord,
    EnvelopePredicate,
    Handler,
    Interest,
    Item,
    MatchInterest,
    Offered,
    OnError,
    Predicate,
    PublishOptions,
    QueueOptions,
    Subscribable,
    WhenFull,
)

if TYPE_CHECKING:  # It loads modules that only durable delivery needs.
    from contrada.delivery.delivery_server import DeliveryStatistics

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """Counts of one subscription's notifications, at one moment.

    `delivered` were handed to the subscriber, `queued` are in its queue here, `dropped` were lost,
    by reason, as "expired", and `failed` raised in a handler. An expired notification counts as
    queued until it is read or its room is needed.

    `reconnects` counts how often the subscription was resumed on a new connection. Notifications in
    between were lost; their number is unknown, so `dropped` does not count them.
    """

    delivered: int
    queued: int
    dropped: Mapping[str, int]
    failed: int = 0
    reconnects: int = 0


def _html_of(subscription: "Subscription[Any] | DurableSubscription[Any]") -> str:
    """Shows the filters and the counts of a subscription in a notebook."""
    counts = subscription.statistics()
    rows = [("delivered", counts.delivered), ("queued", counts.queued), ("failed", counts.failed)]
    rows += [(f"dropped: {reason}", count) for reason, count in counts.dropped.items()]
    return html_table(("count", ""), rows, subscription.filters)


@dataclass(frozen=True, slots=True)
class ServiceStatistics:
    """Counts of a service up to one moment, at this access point.

    `published` counts notifications, `matched` pairs of a notification and a subscription (None at
    a client of a broker), and `dropped` the lost pairs by reason; "expired on arrival" counts
    notifications. `delivery` has the counts of delivery above best effort; None before its first
    use.

    Two counts are of the whole process: `safe_answers` counts conservative answers of the algebra,
    by question, and `operator_failures` faults of extension operators, by operator.

    `link_sent` and `link_waiting` count the notifications sent over each link of an embedded
    service with neighbours, and those queued for it, by the neighbour's name.
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
    - "new": not opened yet;
    - "connected" to the broker at `address`, with all subscriptions in force;
    - "lost", the connection to `address`, for a `reason`;
    - "trying" to reach `address` in `wait_s` seconds, as attempt number `attempt`; `reason` tells
      why the last one failed;
    - "closed", the last state; with a `reason` where reconnecting was given up.

    An embedded service is connected, without an address. With neighbours, each state is that of the
    link to the neighbour at `address`; links are restored for ever.
    """

    state: Literal["new", "connected", "lost", "trying", "closed"]
    address: str = ""
    reason: str = ""
    attempt: int = 0
    wait_s: float = 0.0


class Subscription(AsyncResource, AsyncIterator[T_co]):
    """A subscription to notifications; iterate it inside its own `async with`.

    It is in force from the moment `async with` (or `open`) has returned until `unsubscribe`.
    """

    @property
    @abstractmethod
    def filters(self) -> Filter | FilterSet:
        """The filters of which a notification matches one."""

    @abstractmethod
    async def unsubscribe(self) -> None:
        """Ends it. Nothing is delivered afterwards; queued notifications are dropped, counted."""

    @overload
    async def update(
        self, subject: Subscribable | type[Any], where: Subscribable | Predicate[T_co] | None = None
    ) -> None: ...

    @overload
    async def update(
        self, subject: Subscribable | type[Any], where: EnvelopePredicate[T_co]
    ) -> None: ...

    @overload
    async def update(self, subject: Predicate[T_co]) -> None: ...

    @overload
    async def update(self, subject: EnvelopePredicate[T_co]) -> None: ...

    @abstractmethod
    async def update(self, subject: Any, where: Any = None) -> None:
        """Replaces the filters without a gap; `subject` and `where` as in `Service.subscribe`.

        A predicate alone replaces the `where` of the present subject. The type of the objects
        stays: `where` narrows a class of obvents, and a pattern cannot be updated.

        A notification that matches both the old and the new filters is delivered once, in order.
        After the return, the new filters are in force as after `open`, and queued notifications
        that match only the old ones are skipped. A refusal leaves the old filters in force. After a
        cancellation `filters` shows the result. Cost: a match of each later notification. Raises as
        `Service.subscribe` and `open`; over TCP also ConnectionFailedError while disconnected for
        long. After a loss of the connection meanwhile, the next one gets the new filters.
        """

    @abstractmethod
    def statistics(self) -> SubscriptionStatistics:
        """The counts so far."""

    def _repr_html_(self) -> str:
        return _html_of(self)

    @abstractmethod
    async def __anext__(self) -> T_co:
        """The next object; ends when unsubscribed or when the service is closed."""

    @abstractmethod
    async def next(self, timeout_s: float | None = None) -> T_co:
        """The next object, within so many seconds; None waits without end.

        Raises TimeoutError when nothing arrived, ServiceClosedError when the subscription has
        ended, ServiceError for an invalid timeout.
        """

    @abstractmethod
    async def handle(
        self,
        function: Handler[T_co],
        *,
        concurrency: int = 1,
        on_error: OnError[T_co] | None = None,
    ) -> None:
        """Calls a function with each object, until the subscription ends.

        `async` calls run concurrently, up to `concurrency`, and start in the order of arrival. A
        plain function runs on the event loop, so it should be short. An exception ends nothing: it
        is counted as `failed`, logged, and passed to `on_error` with the object. Returns after the
        last call; a cancellation cancels the calls. Raises ConnectionFailedError as iterating does,
        ServiceError for an invalid `concurrency`.
        """

    async def aclose(self) -> None:
        """Ends it, as `unsubscribe`."""
        await self.unsubscribe()


class DurableSubscription(AsyncResource, AsyncIterator[DurableRecord[T]]):
    """A reader of a durable subscription; iterate it inside its own `async with`.

    A log keeps matching notifications until they are acknowledged. Several readers, each with a
    `subscribe` of its own, share the log: each notification goes to one of them. Records that a
    reader did not acknowledge are delivered again after it was closed, or calls `nack`.

    With `auto_acknowledge`, reading the next record acknowledges the last one, and so does the end
    of `async with` without an error. Otherwise call `acknowledge`.

    A record that the reader's type cannot hold counts as unreadable, and is acknowledged with the
    next later readable one. A reader that can read nothing acknowledges none: up to
    `ServiceLimits.unreadable_max` are delivered again. A damaged record is counted, and lost.
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
        """Acknowledges these positions, and all that this reader holds up to `up_to`.

        Returns when that is on stable storage. Positions that it no longer holds are ignored.
        Raises InvalidValueError for a position that it was not given, StoreError,
        ServiceClosedError.
        """

    @abstractmethod
    async def nack(self, *positions: int, delay_s: float | None = None) -> None:
        """Has these records delivered again, to any reader, after `delay_s` seconds.

        None means the delay of the `Retention`. Raises as `acknowledge`, and InvalidValueError for
        a delay. After a loss of the connection it is repeated on the next one, as an
        acknowledgement is.
        """

    @abstractmethod
    async def extend(self, *positions: int) -> None:
        """Begins the time-out of these records anew, or of all that this reader holds.

        Call it during long work: see `Retention.acknowledge_s`. Without a connection it does
        nothing. Raises InvalidValueError for a position that it was not given, ServiceClosedError.
        """

    @abstractmethod
    async def handle(
        self,
        function: Handler[DurableRecord[T]],
        *,
        concurrency: int = 1,
        on_error: OnError[DurableRecord[T]] | None = None,
    ) -> None:
        """Calls a function with each record, until the reader ends; see `Subscription.handle`.

        With `auto_acknowledge`, a record is acknowledged when its call has returned; after an
        exception it is returned, as by `nack`. A record with an `attempt` above 1 is handled alone:
        it may have killed its reader. Raises DeliveryError as iterating does, ServiceError.
        """

    if not TYPE_CHECKING:
        __getattr__ = former_method

    @abstractmethod
    async def aclose(self) -> None:
        """Stops reading. The subscription stays, unless it is in memory."""

    @abstractmethod
    def statistics(self) -> SubscriptionStatistics:
        """The counts of this reader; `Service.statistics` has those of the log."""

    def _repr_html_(self) -> str:
        return _html_of(self)

    @abstractmethod
    async def __anext__(self) -> DurableRecord[T]:
        """The next record; ends when the reader or the service is closed.

        Raises DeliveryError when the subscription has ended.
        """

    @abstractmethod
    async def next(self, timeout_s: float | None = None) -> DurableRecord[T]:
        """The next record, within so many seconds; see `Subscription.next`."""


class Disseminates(Protocol):
    """A dissemination of obvents, as `contrada.gossip.udp.GossipNode`.

    The program that registers it opens and closes it.
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
        """Starts or connects it. Raises ConnectionFailedError when the broker cannot be reached."""

    @abstractmethod
    async def aclose(self) -> None:
        """Closes it; iterations of its subscriptions end after their queued notifications."""

    @abstractmethod
    async def publish(self, item: Item, **options: Unpack[PublishOptions]) -> Envelope:
        """Publishes one notification and returns its stamped envelope.

        Returns when the service has accepted it, and for certified delivery when it is on stable
        storage; waits a bounded time for subscribers with full queues. Above best effort, a
        notification whose publisher and sequence number were published before is a duplicate:
        counted, not published. Raises InvalidNotificationError, InvalidObventError,
        ServiceClosedError, ServiceError for an invalid time to live or priority; above best effort
        InvalidValueError, CannotPublishError, and StoreError: it may still be delivered. Over TCP
        it waits a bounded time for a lost connection, then raises ConnectionFailedError. So does
        one in flight at the loss; `may_be_published` tells the two apart. Above best effort, one in
        flight is sent again instead, as the same.
        """

    @abstractmethod
    async def publish_batch(
        self, items: Iterable[Item] | AsyncIterable[Item], *, delivery: str | None = None
    ) -> int:
        """Publishes many, in order, at the least cost each; returns their number.

        An invalid item ends it with an error, as a lost connection does; the items before are
        published. A note and the attribute `published` of the error tell their number.
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
        subject: Interest[T] | type[T],
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
        """A subscription to a filter, a text, a mapping, or an object with `to_filters()`.

        `where` narrows it: another subject, or a predicate over the objects of a type. The part of
        a predicate that the algebra can express becomes filters; the rest is evaluated here.
        `QueueOptions` bound the queue. The subscription is in force only inside `async with`.

        A subscription to a `Pattern` gives matches. A match is delivered when time has passed its
        last notification, or an embedded service is closed; a broker delivers it a second later. A
        notification more than a second later than a successor takes part in no match.

        `DurableOptions` make it durable: each notification above best effort is delivered once, and
        kept until it is acknowledged. An existing durable subscription is resumed, with or without
        its filters. Raises ParseError, InvalidFilterError, UnsatisfiableFilterError, ServiceError.
        """

    @property
    @abstractmethod
    def queues(self) -> Queues:
        """The queues of durable subscriptions: their counts and records, purge and redrive."""

    @abstractmethod
    async def unsubscribe(self, durable: str) -> None:
        """Ends a durable subscription and deletes its log. Raises DeliveryError."""

    @abstractmethod
    def advertise(self, offered: Offered) -> Offering:
        """An advertisement of this service's publications, in force inside `async with`.

        A network that forwards advertisements refuses notifications that are not advertised; others
        accept all. A client's advertisement ends with its connection, and is restored on the next
        one. Raises ParseError, InvalidFilterError, UnsatisfiableFilterError, ServiceError; `open`
        also LimitError, ConnectionFailedError.
        """

    @abstractmethod
    def advertisements(self) -> Advertisements:
        """The advertisements in this process or at the client's broker, with changes.

        In a network that forwards advertisements these include those of other servers that links
        forward: not those covered by another on the same way, nor those made above a broker.
        Otherwise they are those of this broker's clients.
        """

    @abstractmethod
    def offer(
        self, description: Description | None, source: SourceLike, *, name: str = ""
    ) -> SourceOffer:
        """A source that answers queries, in force inside `async with`.

        `description` is a filter, its text, an advertisement, an object with `to_filters()`, or a
        list of alternatives; queries that meet none are not passed to the source. It may be wider
        than the data; with None the source describes itself. `source` has `answer(query)`, or is a
        function of the query. It returns items as for `publish`, in an asynchronous iterable, or a
        plain one, which is iterated on a thread. Items that do not answer are removed here. `name`
        is reported to the query's client; by default it is random. Raises ParseError,
        InvalidFilterError, UnsatisfiableFilterError, ServiceError; `open` also LimitError,
        ConnectionFailedError.
        """

    @overload
    def query(  # type: ignore[overload-overlap]
        self,
        subject: Interest[T] | type[T],
        where: Subscribable | Predicate[T] | None = None,
        **options: Unpack[QueryOptions],
    ) -> Answers[T]: ...

    @overload
    def query(
        self,
        subject: Interest[T] | type[T],
        where: EnvelopePredicate[T],
        **options: Unpack[QueryOptions],
    ) -> Answers[T]: ...

    @overload
    def query(
        self, subject: Queryable, where: Subscribable | None = None, **options: Unpack[QueryOptions]
    ) -> Answers[Notification]: ...

    @abstractmethod
    def query(self, subject: Any, where: Any = None, **options: Any) -> Any:
        """Queries all sources that may have an answer, once.

            async for book in service.query("author = 'John Steinbeck' and edition < 2"):
                print(book["title"], book.envelope.publisher)

        Subject and answers are as for `subscribe`; the publisher of an answer is its source's name.
        A text may have variables: `origin = $x and dest = $x` requires equal values. See
        `QueryOptions`. Raises ParseError, InvalidFilterError, UnsatisfiableFilterError,
        ServiceError; opening it or its first iteration also LimitError, ConnectionFailedError.
        """

    @abstractmethod
    def compute(
        self,
        aggregates: Computed | Iterable[Computed],
        subject: Any,
        where: Any = None,
        **options: Unpack[ComputeOptions],
    ) -> Answers[dict[str, Any]]:
        """Queries as `query`, for aggregates of all answers, combined on the way.

            async for group in service.compute("sum(price)", "price > 0", by="symbol"):
                print(group["symbol"], group["sum(price)"])

        The aggregates are `count`, `count(a)`, `sum(a)`, `mean(a)`, `min(a)`, `max(a)`,
        `distinct(a)` (estimated), `top 3(a)`, `bottom 3(a)` of an attribute a: one or a list.
        Gives one mapping for each value of `by`, in order, or a single one. Raises as `query`, and
        InvalidCombinationError.
        """

    @abstractmethod
    async def request(
        self, item: Mapping[str, Any], *, timeout_s: float = QUESTION_WAIT_S
    ) -> Notification:
        """Sends a request to one replier, and returns its reply.

            price = await service.request({"service": "price", "symbol": "DIS"})

        It is a query for the attributes of the item, with one answer; `reply` has the other side.
        The reply has the attributes of the request, too. Of several repliers the first reply
        counts, though all may work. Raises RemoteCallError at once where nobody replies to such
        requests, or a replier failed; TimeoutError; InvalidValueError for an item without
        attributes, or with several values of one; and as `query`.
        """

    @abstractmethod
    def reply(self, subject: Subscribable, function: Replier, *, name: str = "") -> SourceOffer:
        """A replier to the requests that match a filter, in force inside `async with`.

            async with service.reply("service = 'price' and symbol exists", price_of): ...

        The function gets each request as a notification, and returns a mapping or another item, or
        None for no reply; it may be `async`, and runs on a thread otherwise, as a plain source: the
        end of the process cuts it off. An exception fails the request, with its text. Raises as
        `offer`.
        """

    @abstractmethod
    def register_dissemination(self, name: str, dissemination: Disseminates) -> None:
        """Registers a dissemination under the name by which classes of obvents choose it.

        Obvents of a class with `dissemination = name`, of the type `Disseminated`, are published
        there and not here. Later subscriptions are entered there, too, narrowed to such obvents;
        patterns and durable subscriptions are not. ServiceError for publishing or subscribing a
        class whose dissemination is not registered, and for a name that is taken.
        """

    @abstractmethod
    async def story(self, identity: str) -> Story:
        """The history of a notification (its id), a subscription, or a durable one (its name).

            print(await service.story(envelope.id))

        A client's broker and the others of its network are asked, each with the rights of this
        client, which needs `inspect`. An embedded service tells its own transitions, if
        `ServiceLimits.transitions_max` has it remember them. Without any the story is empty, and
        names its gaps. Raises ConnectionFailedError, ServiceError.
        """

    @abstractmethod
    def statistics(self) -> ServiceStatistics:
        """The counts so far."""

    @property
    @abstractmethod
    def connection(self) -> ConnectionState:
        """The state of the connection now."""

    @abstractmethod
    def connection_states(self) -> AsyncIterator[ConnectionState]:
        """The state of the connection now, then each change; ends after "closed"."""
