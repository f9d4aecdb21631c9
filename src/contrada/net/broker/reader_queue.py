"""`ReaderQueue`: the send queue of one reader of a log, and its remaining credit.

Reader credit is forwarded to the delivery server in small portions, so the queue stays short.
"""

from collections import deque
from typing import Final

import msgspec

from contrada.delivery.delivery_messages import (
    Closed,
    ForReader,
    Grant,
    LogEntry,
    ReadLog,
    Records,
    Withdraw,
)
from contrada.delivery.durable_log import OUT_MAX
from contrada.errors import ContradaError
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.durable_messages import encode_durable
from contrada.net.wire.frames import LogDelivery
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX
from contrada.service.security.permits import Permit
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.subscription_queue import ENTRY_BYTES, size_of

AHEAD_BYTES: Final = 1024 * 1024
"""Bytes of records requested at once for a reader, estimated from the last ones. Beyond it: they
stay in the log."""

AHEAD_RECORDS_MAX: Final = 256
"""Records requested at once for a reader. Beyond it: they stay in the log."""

_AHEAD_AT_FIRST: Final = 32
_FRAME_BYTES: Final = 256 * 1024
_FRAME_RECORDS: Final = 512


class ReaderQueue:
    """The queue of one reader, between the delivery server and its connection.

    A `RecordReceiver`: the client keeps the state of the reader itself.
    """

    def __init__(
        self, connection: ServerConnection, logs: BrokerLogs, message: ReadLog, label: str
    ) -> None:
        self.request = message
        """The request as the delivery server has it; the client knows the reader by its label."""
        self._label = label
        self._connection, self._host = connection, logs.host
        self._waiting: deque[tuple[LogEntry | Withdraw | Closed, int]] = deque()
        self._granted = self._read = 0
        self._asked = 0  # records requested from the delivery server and not delivered
        self._portion = _AHEAD_AT_FIRST
        self._is_withdrawn = False  # until the client reads again
        self.is_closed = False
        """Whether the delivery server has closed the reader."""

    def __len__(self) -> int:
        return len(self._waiting)

    def receive(self, message: ForReader) -> None:
        """Queues a message of the log; after the close, calls are ignored."""
        if self.is_closed:
            return
        if not isinstance(message, Records):
            self.is_closed = isinstance(message, Closed)
            self._is_withdrawn |= isinstance(message, Withdraw)
            self._append(message, ENTRY_BYTES)
        elif message.records:
            permit = self._connection.permit
            size = 0
            for each in message.records:
                sent = sendable(each, permit)
                item = sent.notification
                size += self._append(sent, ENTRY_BYTES if item is None else size_of(item))
            count = len(message.records)
            self._asked = max(0, self._asked - count - message.unused)
            self._granted = min(self._granted + message.unused, OUT_MAX)
            self._portion = min(max(AHEAD_BYTES * count // size, 1), AHEAD_RECORDS_MAX)
        self._connection.mark_ready(self)

    def _append(self, each: LogEntry | Withdraw | Closed, size: int) -> int:
        self._waiting.append((each, size))
        self._connection.budget.change(size)
        return size

    def end(self, failure: ContradaError | None = None) -> None:
        """Does nothing: the connection ends with the broker."""

    def grant(self, credit: int, read: int) -> None:
        """Adds credit for records. The client has read so many of those that were sent."""
        self._granted = min(self._granted + max(credit, 0), OUT_MAX)
        # A client that had read all has no new count: its grant tells only that it reads on.
        is_news = read > self._read or self._is_withdrawn
        self._read, self._is_withdrawn = max(read, self._read), False
        self._ask(is_news=is_news)

    def _ask(self, *, is_news: bool = False) -> None:
        """Requests a portion from the delivery server once the queue is empty."""
        more = 0 if self._waiting else min(self._granted, self._portion - self._asked)
        if more > 0 or is_news:
            more = max(more, 0)
            self._granted -= more
            self._asked += more
            name, consumer = self.request.name, self.request.consumer
            self._host.consume(consumer, Grant(name, consumer, more, self._read))

    def next_frame(self) -> LogDelivery | None:
        """Returns the next frame of records, or of one other message."""
        if not self._waiting:
            return None
        name, records, size = self.request.name, list[LogEntry](), 0
        other: Withdraw | Closed | None = None
        while self._waiting and size < _FRAME_BYTES and len(records) < _FRAME_RECORDS:
            each, each_size = self._waiting[0]
            if not isinstance(each, LogEntry):
                if records:
                    break
                other = msgspec.structs.replace(each, consumer=self._label)
            elif records and size + each_size > CONTENT_BYTES_MAX:
                break
            else:
                records.append(each)
            self._waiting.popleft()
            self._connection.budget.change(-each_size)
            size += each_size
            if other is not None:
                break
        self._ask()
        return LogDelivery(encode_durable(other or Records(name, self._label, tuple(records))))

    def discard(self) -> None:
        """Drops the queue."""
        self._connection.budget.change(-sum(size for _, size in self._waiting))
        self._waiting.clear()


def sendable(record: LogEntry, permit: Permit | None) -> LogEntry:
    """Returns the record; a damaged one in place of an unreadable or oversized one."""
    item = record.notification
    if item is None:
        return record
    if permit is not None and not permit.readable((item,)):
        reason = NOT_PERMITTED
    elif len(item.packed) <= CONTENT_BYTES_MAX:
        return record
    else:
        size = len(item.packed)
        reason = f"it has {size} bytes, more than CONTENT_BYTES_MAX = {CONTENT_BYTES_MAX}"
    return LogEntry(record.position, record.time_us, None, record.attempt, reason)
