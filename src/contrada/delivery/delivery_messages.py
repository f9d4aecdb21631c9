"""What servers say to one another so that delivery can be promised.

A server's *life* is a number that it keeps as long as its memory lasts: as long as its store or,
without a store, from start to end. Of two lives the later one is higher. Its *boot* counts its
starts within a life. Standing subscriptions are *announced* to all servers. Content travels in
*parcels*. A parcel has one *address* for each server that is to take it.
"""

from typing import TypeAlias

import msgspec

from contrada.delivery.durable_log import Retention
from contrada.model import Notification, Selection
from contrada.routing.delegation import RouterMessage
from contrada.routing.router_messages import Label


class DurableEntry(msgspec.Struct, frozen=True, array_like=True):
    """A standing subscription as all servers know it. `is_full`: its publishers are refused."""

    name: Label
    filters: Selection
    is_full: bool = False


class AnnounceOwner(RouterMessage, frozen=True, tag="announce"):
    """The standing subscriptions of a server, flooded: all, or the changes of one version.

    A number without a subscription has ended. `has_store`: certified notifications survive its
    crashes. `sequences`: the server remembers every sequence that it ever was asked to order.
    """

    owner: Label
    incarnation: int
    boot: int
    version: int
    is_whole: bool
    changes: tuple[tuple[int, DurableEntry | None], ...]
    has_store: bool = False
    sequences: bool = False


class Destination(msgspec.Struct, frozen=True, array_like=True):
    """A server that is to take a parcel, in which of its lives, and the place in the stream to it.

    `ids` are the subscriptions there for which a notification is.
    """

    owner: Label
    incarnation: int
    before: int
    number: int
    ids: tuple[int, ...] = ()


class CausalRow(msgspec.Struct, frozen=True, array_like=True):
    """By home, the last number that a server had sent to it and that was not acknowledged.

    Of two rows of one server the one with the later (life, boot, count) is newer and replaces the
    other: a home that it names no longer has acknowledged all.
    """

    server: Label
    incarnation: int
    boot: int
    count: int
    numbers: tuple[tuple[str, int, int], ...]  # the home, its life, the number


Context: TypeAlias = tuple[CausalRow, ...]
"""The rows of what must have arrived before a parcel with this context is delivered."""


class Sequenced(RouterMessage, frozen=True, tag="sequenced"):
    """A server gives the order of a sequence from now on, flooded; the higher epoch holds.

    What gets its place from it comes after the context: what those before it have published.
    """

    sequence: Label
    epoch: int
    server: Label
    context: Context = ()


class Notice(msgspec.Struct, frozen=True, array_like=True, tag="notice"):
    """A notification for the subscriptions that its address names."""

    notification: Notification


class ToSequence(msgspec.Struct, frozen=True, array_like=True, tag="to sequence"):
    """A notification for who gives the order of its sequence, to be published by it.

    `epoch` is the one in which that is the receiver, as far as the sender knows.
    """

    notification: Notification
    epoch: int


class Returned(msgspec.Struct, frozen=True, array_like=True, tag="returned"):
    """What was to get its place in a sequence that the sender has passed on; who has it since.

    `asked` is the epoch for which it was sent, `epoch` that of the server which has the sequence.
    """

    notification: Notification
    asked: int
    epoch: int
    server: str


class Resumed(msgspec.Struct, frozen=True, array_like=True, tag="resumed"):
    """The sender has restarted; what had a lower number and was not sent again will not come."""


class AskPast(msgspec.Struct, frozen=True, array_like=True, tag="ask past"):
    """What must others know who get what a publisher publishes, having left the receiver?

    `visit` tells from others the visit at the sender for which this is asked.
    """

    publisher: Label
    visit: int


class Past(msgspec.Struct, frozen=True, array_like=True, tag="past"):
    """The answer: a publisher's highest number that was accepted, and the numbers that failed.

    Up to `untold` it is unknown which numbers failed. The parcel's context holds the causal
    predecessors.
    """

    publisher: Label
    visit: int
    sequence: int
    failed: tuple[int, ...] = ()
    unknown_to: int = 0


class ReadLog(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """A client of a server asks to read a subscription, which begins where it does not stand.

    What is None is not said: filters and retention may be any then, and it has to stand already.
    """

    name: str
    consumer: Label
    filters: Selection | None = None
    retention: Retention | None = None
    is_durable: bool = True
    position: int | None = None
    time_us: int | None = None


class OpenLog(msgspec.Struct, frozen=True, array_like=True, tag="open"):
    """A client of the sender reads a subscription; again from a position or time, if said."""

    name: str
    consumer: str
    position: int | None = None
    time_us: int | None = None


class Grant(msgspec.Struct, frozen=True, array_like=True, tag="grant"):
    """A consumer may have so many more records."""

    name: str
    consumer: str
    credit: int


class Ack(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """A consumer is done with the positions from each first to before each end."""

    name: str
    consumer: str
    intervals: tuple[tuple[int, int], ...]


class Nack(msgspec.Struct, frozen=True, array_like=True, tag="give back"):
    """A consumer lets records come again."""

    name: str
    consumer: str
    positions: tuple[int, ...]


class CloseLog(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """A consumer is gone; `ends`: and the subscription is to end.

    `seen`: the unacknowledged positions that it had read; None where it may have read all.
    """

    name: str
    consumer: str
    ends: bool = False
    seen: tuple[int, ...] | None = None


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a log has at a position; None and a reason where it was damaged; how often it came."""

    position: int
    time_us: int
    notification: Notification | None
    attempt: int = 1
    reason: str = ""


class Records(msgspec.Struct, frozen=True, array_like=True, tag="records"):
    """What a consumer gets."""

    name: str
    consumer: str
    records: tuple[LogEntry, ...]


class Closed(msgspec.Struct, frozen=True, array_like=True, tag="closed"):
    """A consumer gets nothing more, and why; `again`: it may begin anew, as another consumer."""

    name: str
    consumer: str
    reason: str
    again: bool = False


Consuming: TypeAlias = OpenLog | Grant | Ack | Nack | CloseLog
Payload: TypeAlias = (
    Notice | ToSequence | Returned | Resumed | AskPast | Past | Consuming | Records | Closed
)


class Shipment(msgspec.Struct, frozen=True, array_like=True):
    """Something that is to arrive once at each address."""

    to: tuple[Destination, ...]
    body: Payload
    context: Context = ()


class Transfer(RouterMessage, frozen=True, tag="carry"):
    """Parcels of a server on their way, in order; `hops` counts the links."""

    source: Label
    incarnation: int
    boot: int
    shipments: tuple[Shipment, ...]
    hops: int = 0


class StreamAck(RouterMessage, frozen=True, tag="taken"):
    """A home has taken all up to a number of the stream from a source, on its way there."""

    owner: Label
    incarnation: int
    source: Label
    source_incarnation: int
    number: int
    context: Context = ()
    hops: int = 0


DeliveryMessage: TypeAlias = AnnounceOwner | Sequenced | Transfer | StreamAck
