"""Messages between delivery servers.

A server's *incarnation* is a number that it keeps as long as its memory lasts: as long as its store
or, without a store, from start to end. A later incarnation is higher. Its *boot* counts its starts
within an incarnation. Durable subscriptions are *announced* to all servers. Contents travel in
*shipments*. A shipment has one *destination* for each server that must take it.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from contrada.delivery.retention import Retention
from contrada.model import Notification, Selection
from contrada.routing.delegation import RouterMessage
from contrada.routing.router_messages import Label

DELAY_US_MAX: Final = 366 * 86_400 * 1_000_000
"""Microseconds that a record waits at most before it is handed out again. Beyond it:
InvalidValueError."""


class DurableEntry(msgspec.Struct, frozen=True, array_like=True):
    """A durable subscription as announced. `is_full`: its publishers are refused."""

    name: Label
    filters: Selection
    is_full: bool = False


class AnnounceOwner(RouterMessage, frozen=True, tag="announce"):
    """The durable subscriptions of a server, flooded: all, or the changes of one version.

    A number without a subscription has ended. `has_store`: certified notifications survive its
    crashes. `sequences`: the server remembers every sequence that it ever ordered.
    """

    owner: Label
    incarnation: int
    boot: int
    version: int
    is_whole: bool
    changes: tuple[tuple[int, DurableEntry | None], ...]
    has_store: bool = False
    sequences: bool = False

    @property
    def age(self) -> tuple[int, int, int]:
        """The incarnation, boot and version."""
        return self.incarnation, self.boot, self.version


class Destination(msgspec.Struct, frozen=True, array_like=True):
    """The server that must take a shipment, its incarnation, and the place in the stream to it.

    `ids` are the matching subscriptions there.
    """

    owner: Label
    incarnation: int
    before: int
    number: int
    ids: tuple[int, ...] = ()


class CausalRow(msgspec.Struct, frozen=True, array_like=True):
    """By owner, the last number that a server has sent and that was not acknowledged.

    Of two rows of one server the one with the later (incarnation, boot, count) replaces the other:
    an owner that it no longer names has acknowledged all.
    """

    server: Label
    incarnation: int
    boot: int
    count: int
    numbers: tuple[tuple[str, int, int], ...]  # the owner, its incarnation, the number


Context: TypeAlias = tuple[CausalRow, ...]
"""The rows of the shipments that must arrive before a shipment with this context."""


class Sequenced(RouterMessage, frozen=True, tag="sequenced"):
    """A server is the sequencer from now on, flooded; the higher epoch wins.

    Its notifications follow the context: the publications of the earlier sequencers.
    """

    sequence: Label
    epoch: int
    server: Label
    context: Context = ()


class Notice(msgspec.Struct, frozen=True, array_like=True, tag="notice"):
    """A notification for the subscriptions of its destination."""

    notification: Notification


class ToSequence(msgspec.Struct, frozen=True, array_like=True, tag="to sequence"):
    """A notification for the sequencer, which publishes it.

    `epoch`: the one in which the receiver is the sequencer, as far as the sender knows.
    """

    notification: Notification
    epoch: int


class Returned(msgspec.Struct, frozen=True, array_like=True, tag="returned"):
    """A notification for a sequence that the sender has handed over.

    `asked` is the epoch for which it was sent, `epoch` that of `server`, the sequencer.
    """

    notification: Notification
    asked: int
    epoch: int
    server: str


class Resumed(msgspec.Struct, frozen=True, array_like=True, tag="resumed"):
    """The sender has restarted; lower numbers that were not sent again are lost."""


class AskPast(msgspec.Struct, frozen=True, array_like=True, tag="ask past"):
    """A question about a publisher that has left the receiver: its past.

    `visit` identifies the publisher's connection at the sender.
    """

    publisher: Label
    visit: int


class Past(msgspec.Struct, frozen=True, array_like=True, tag="past"):
    """The answer: a publisher's highest accepted number, and the failed numbers.

    Up to `unknown_to` the failed numbers are unknown. The shipment's context holds the causal
    predecessors.
    """

    publisher: Label
    visit: int
    sequence: int
    failed: tuple[int, ...] = ()
    unknown_to: int = 0


class ReadLog(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """A client's request to read a subscription, which is created if it does not exist.

    None means any: for filters and retention, the subscription must exist then. `holds` are the
    records that the reader has from before its connection was lost.
    """

    name: str
    consumer: Label
    filters: Selection | None = None
    retention: Retention | None = None
    is_durable: bool = True
    position: int | None = None
    time_us: int | None = None
    holds: tuple[int, ...] = ()


class _OfConsumer(msgspec.Struct, frozen=True, array_like=True):
    """The root of what a consumer and its subscription, of this name, tell each other."""

    name: str
    consumer: str


class OpenLog(_OfConsumer, frozen=True, tag="open"):
    """A client of the sender reads a subscription; from a position or time, if given.

    `holds` as in `ReadLog`. `renews`: it grants `unused` credit anew; earlier versions do not.
    """

    position: int | None = None
    time_us: int | None = None
    holds: tuple[int, ...] = ()
    renews: bool = False


class Grant(_OfConsumer, frozen=True, tag="grant"):
    """A consumer accepts `credit` more records, and has read so many since it was opened."""

    credit: int
    read: int = 0


class Ack(_OfConsumer, frozen=True, tag="done"):
    """A consumer acknowledges the positions from each first to before each end."""

    intervals: tuple[tuple[int, int], ...]


class Nack(_OfConsumer, frozen=True, tag="give back"):
    """A consumer returns records, to be handed out again: after a delay, or by the retention."""

    positions: tuple[int, ...]
    delay_us: Annotated[int, msgspec.Meta(ge=0, le=DELAY_US_MAX)] | None = None


class Extend(_OfConsumer, frozen=True, tag="extend"):
    """A consumer works on records, of which the time-out begins anew; without positions, on all."""

    positions: tuple[int, ...] = ()


class CloseLog(_OfConsumer, frozen=True, tag="close"):
    """A consumer leaves; `ends`: and the subscription ends.

    `seen`: the unacknowledged positions that it has read; None if it may have read all.
    """

    ends: bool = False
    seen: tuple[int, ...] | None = None


class LogEntry(msgspec.Struct, frozen=True, array_like=True):
    """A record of a log with its attempt number; None and a reason if it is damaged."""

    position: int
    time_us: int
    notification: Notification | None
    attempt: int = 1
    reason: str = ""


class Records(_OfConsumer, frozen=True, tag="records"):
    """Records for a consumer. `unused` credit is void, to be granted anew, if they are large."""

    records: tuple[LogEntry, ...]
    unused: int = 0


class Closed(_OfConsumer, frozen=True, tag="closed"):
    """The end of a consumer, with the reason; `again`: it may open anew, as another consumer."""

    reason: str
    again: bool = False


class Withdraw(_OfConsumer, frozen=True, tag="withdraw"):
    """Prefetched records were taken from a consumer, which gets none until it sends a `Grant`."""

    positions: tuple[int, ...]


Consuming: TypeAlias = OpenLog | Grant | Ack | Nack | Extend | CloseLog
ForReader: TypeAlias = Records | Withdraw | Closed
Payload: TypeAlias = (
    Notice | ToSequence | Returned | Resumed | AskPast | Past | Consuming | ForReader
)


class Shipment(msgspec.Struct, frozen=True, array_like=True):
    """A body that must arrive once at each destination."""

    to: tuple[Destination, ...]
    body: Payload
    context: Context = ()


class Transfer(RouterMessage, frozen=True, tag="carry"):
    """Shipments of a server in flight, in order; `hops` counts the links."""

    source: Label
    incarnation: int
    boot: int
    shipments: tuple[Shipment, ...]
    hops: int = 0


class StreamAck(RouterMessage, frozen=True, tag="taken"):
    """An owner has taken all of the stream from a source up to a number."""

    owner: Label
    incarnation: int
    source: Label
    source_incarnation: int
    number: int
    context: Context = ()
    hops: int = 0


DeliveryMessage: TypeAlias = AnnounceOwner | Sequenced | Transfer | StreamAck
