"""The types of subscriptions, publications and advertisements, and their options.

Subjects are protocols: a class that satisfies one need not know this package.

Source: PODC 2000 §2; EPFL 2503 §3.3, §3.4.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    runtime_checkable,
)

import msgspec

from contrada.model import Advertisement, Envelope, Filter, FilterSet, Notification
from contrada.model.algebra.attributes import Values
from contrada.model.algebra.notification import Body
from contrada.model.rule import Rule
from contrada.patterns import Match

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@runtime_checkable
class SelectsFilters(Protocol):
    """A subject: an object with filters."""

    def to_filters(self) -> Filter | FilterSet:
        """The filters, of which a notification must match one."""
        ...


@runtime_checkable
class Interest(SelectsFilters, Protocol[T_co]):
    """A subject with objects of its own, for example a class of obvents."""

    def from_notification(self, notification: Notification) -> T_co:
        """The subscriber's object of a notification. Raises a ContradaError if there is none."""
        ...


@runtime_checkable
class Narrowable(SelectsFilters, Protocol):
    """A subject that checks the filters that narrow it."""

    def check_where(self, where: Filter | FilterSet) -> Filter | FilterSet:
        """Returns the filters as they narrow it.

        Raises a ContradaError for a filter that makes no sense for it.
        """
        ...


@runtime_checkable
class Liftable(SelectsFilters, Protocol):
    """A subject that a predicate over its objects can narrow."""

    def lift(self, predicate: Callable[[Any], object]) -> Rule:
        """A rule of filters that cover a predicate, with the rest as its residue.

        Raises a ContradaError for an invalid predicate.
        """
        ...


@runtime_checkable
class MatchInterest(Protocol[T_co]):
    """A pattern with objects of its own, for each match."""

    def from_match(self, match: Match[Any]) -> T_co:
        """The subscriber's object of a match. Raises a ContradaError when it cannot be made."""
        ...


class Publishable(Protocol):
    """An object that can be published."""

    def to_notification(self) -> Notification:
        """The notification to publish, without a stamped envelope."""
        ...


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


class _AttrsClass(Protocol):
    __attrs_attrs__: ClassVar[Any]


class _Model(Protocol):
    __pydantic_fields__: ClassVar[dict[str, Any]]


Declared: TypeAlias = _Dataclass | _AttrsClass | _Model | msgspec.Struct
"""An object of a class with declared fields. That of an obvent class is published with its type,
another one as the mapping of its fields: type checkers cannot see a decorator of a class."""


class PublishOptions(TypedDict, total=False):
    """Options of a publication. The last three take precedence over a given envelope."""

    body: Body
    """The body of a mapping; a mapping as the body becomes JSON."""
    content_type: str
    ttl_s: float | None
    """Time to live, from this access point's stamp to the reader's clock. At best effort only."""
    priority: int | None
    """0 (lowest) to 9: orders the queues. At best effort only."""
    delivery: str | None
    """The delivery class, as "certified": see `delivery.delivery_class`."""


Item: TypeAlias = Notification | Mapping[str, Any] | Publishable | Declared
"""An item of `publish`."""

Subscribable: TypeAlias = Filter | FilterSet | str | Mapping[str, Any] | SelectsFilters | Rule
"""A subject of `subscribe`. The residue of a rule of another dialect is evaluated at the
subscriber, for each notification that its filters match."""

Predicate: TypeAlias = Callable[[T], object]
"""A predicate over the objects of a subject. An exception counts as no, and is counted."""

EnvelopePredicate: TypeAlias = Callable[[T, Envelope], object]
"""A predicate with two parameters is given the envelope, too."""

Handler: TypeAlias = Callable[[T], Awaitable[object] | object]
"""A function that is called with each object of a subscription."""

OnError: TypeAlias = Callable[[Exception, T], Awaitable[object] | object]
"""A function that is called with each exception of a handler, and its object."""

Offered: TypeAlias = Advertisement | Filter | str | Mapping[str, Any] | SelectsFilters
"""A subject of `advertise`: text and mapping are an `Advertisement`; a filter, or an object with
one such as a class of obvents, allows any further attributes."""


if TYPE_CHECKING:  # Loaded with the first durable subscription.
    from contrada.delivery.retention import Retention


WhenFull: TypeAlias = Literal["block", "drop-oldest", "drop-newest", "disconnect"]
"""The behaviour of a full queue of a slow subscriber.

`block`: the publisher waits, a bounded time; then the newest is dropped, at a broker the oldest
until the reader has caught up. The others never wait:
`drop-oldest` and `drop-newest` drop the oldest or the newest notification, and `disconnect` ends
the subscription: its iteration raises TooSlowError after the queued notifications. Lower priorities
are dropped first. Drops are counted.
"""


class QueueOptions(TypedDict, total=False):
    """Options of the queue of a subscription.

    The queue of a client of a broker is at the client. Notifications beyond its bounds wait in the
    broker's queue for the subscription, where `when_full` decides.
    """

    when_full: WhenFull
    """The behaviour of a full queue; "block" by default."""
    queue_max: int
    """Notifications in the queue; `ServiceLimits.queue_notifications_max` by default."""
    queue_bytes: int
    """Bytes in the queue; `ServiceLimits.queue_bytes_max` by default, at a client
    `ClientLimits.credit_bytes`."""


class DurableOptions(TypedDict, total=False):
    """Options of a durable subscription.

    One of the first two is required: `durable`, its name in the store, where it exists until
    `Service.unsubscribe`; or `reliable=True`, in memory, until the end of its `async with`.
    """

    durable: str
    reliable: bool
    retention: "Retention"
    """The bounds of the log, and the behaviour beyond them; set when the subscription is made."""
    from_position: int
    """Position from which the log is read again; `Retention` bounds the acknowledged records.

    DeliveryError while other readers hold unacknowledged records.
    """
    from_time: datetime | int
    """Time from which the log is read again: with a zone, or UTC microseconds since 1970."""
    auto_acknowledge: bool
    """True by default: see `DurableSubscription`."""
    prefetch: int
    """Records that the reader holds before they are read; `ServiceLimits.prefetch_max` by default.
    """


@dataclass(frozen=True, slots=True)
class DurableRecord(Generic[T]):
    """A record of a durable subscription. `item` is the notification, or the reader's object of it.

    `position` is its place in the log, `time_us` its arrival there in UTC microseconds since 1970,
    and `attempt` counts the readers that got it, this one included.

    A record is what a plain subscription gives, with a position. It reads and is published like its
    item, so that one loop serves plain and durable subscriptions: `record["price"]` and
    `record.envelope` for a notification, `record.price` for an obvent. Type checkers know the
    access to notifications; for an obvent use `record.item.price`.
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
