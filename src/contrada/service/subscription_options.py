"""`QueueOptions` and `DurableOptions`, the options of `subscribe`, and `DurableRecord`."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

from contrada.model import Envelope, Notification
from contrada.model.algebra.attributes import Values

if TYPE_CHECKING:  # Loaded with the first durable subscription.
    from contrada.delivery.durable_log import Retention

T = TypeVar("T")

WhenFull: TypeAlias = Literal["block", "drop-oldest", "drop-newest", "disconnect"]
"""The behaviour of a full queue of a slow subscriber.

`block`: the publisher waits, a bounded time; then the newest is dropped. The others never wait:
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
