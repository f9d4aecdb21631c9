"""`QueueRequest`: requests about the queues of one server, and their answers.

A *queue* is the unacknowledged part of the log of a durable subscription. An answer has a bounded
number of queues or records, and names the beginning of the next one. Nothing is handed out.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from contrada.delivery.delivery_messages import LogEntry

QUEUES_AT_ONCE: Final = 100
"""Queues of an answer. Beyond it: the next answer has them."""

PEEKED_MAX: Final = 100
"""Records of an answer to `PeekQueue`. Beyond it: the next answer has them."""

STEP_BYTES_MAX: Final = 1024 * 1024
"""Bytes of an answer, or moved in a step; one record may be larger. Beyond it: the next one."""


class QueueState(msgspec.Struct, frozen=True):
    """The queue of a durable subscription at one moment.

    `unread` records are handed to no reader, `delayed` ones of these wait for their next attempt;
    `handed` ones are at `readers`. `oldest_us` is the arrival of the oldest of all, in microseconds
    since 1970, or 0. `attempts` is the highest of a record. `dead` and `damaged` count records
    since the start of the server; dead ones move to `dead_letter`. `stuck` is the reason why the
    log cannot be read now.
    """

    name: str
    unread: int
    handed: int
    delayed: int
    oldest_us: int
    bytes: int
    readers: int
    attempts: int
    dead: int
    damaged: int
    dead_letter: str = ""
    stuck: str = ""


class AskQueue(msgspec.Struct, frozen=True, array_like=True, tag="ask queue"):
    """Asks for the `QueueState` of a durable subscription."""

    name: str


class AskQueues(msgspec.Struct, frozen=True, array_like=True, tag="ask queues"):
    """Asks for a `QueuePage`, from the first name after this one."""

    after: str = ""


class QueuePage(msgspec.Struct, frozen=True):
    """Queues in the order of their names; `next` is for `AskQueues`, or empty at the end."""

    queues: list[QueueState]
    next: str = ""


class PeekQueue(msgspec.Struct, frozen=True, array_like=True, tag="peek queue"):
    """Asks for unacknowledged records from a position on, as `PeekedEntries`."""

    name: str
    first: int = 0
    count: int = PEEKED_MAX


class PeekedEntries(msgspec.Struct, frozen=True, array_like=True):
    """Records with their attempts so far; `next` is the position of the next one, or 0."""

    entries: tuple[LogEntry, ...]
    next: int = 0


class PurgeQueue(msgspec.Struct, frozen=True, array_like=True, tag="purge queue"):
    """Acknowledges the records from one position to before another, also those of readers.

    `before` 0 means the records that are there now. `number` is that of the subscription, or 0.
    """

    name: str
    number: int = 0
    first: int = 0
    before: int = 0


class RedriveQueue(msgspec.Struct, frozen=True, array_like=True, tag="redrive queue"):
    """Moves dead letters back to the subscription `to`; those that a reader has stay.

    `to` is empty where only one subscription has its dead letters there. The rest is as in
    `PurgeQueue`.
    """

    name: str
    number: int = 0
    first: int = 0
    before: int = 0
    to: str = ""


class ReleaseQueue(msgspec.Struct, frozen=True, array_like=True, tag="release queue"):
    """Takes all records from the readers of a queue; they are handed out again, to any reader."""

    name: str


class QueueStep(msgspec.Struct, frozen=True, array_like=True):
    """The number of purged, moved or released records, and the fields of the next request.

    `first` is 0 after the last step.
    """

    count: int
    number: int
    first: int
    before: int
    to: str = ""


QueueChange: TypeAlias = PurgeQueue | RedriveQueue | ReleaseQueue
QueueRequest: TypeAlias = AskQueue | AskQueues | PeekQueue | QueueChange

ANSWERS: Final[Mapping[type, type]] = {
    AskQueue: QueueState,
    AskQueues: QueuePage,
    PeekQueue: PeekedEntries,
    PurgeQueue: QueueStep,
    RedriveQueue: QueueStep,
    ReleaseQueue: QueueStep,
}
"""The class of the answer to each request."""
