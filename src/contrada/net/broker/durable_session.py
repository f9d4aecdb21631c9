"""`DurableSession`: the broker side of one client's durable traffic.

    LogRequest ==> charged work, in turns ==> delivery server ==> disk ==> LogReply
                                                    `==> ordinary subscriptions, best effort

It publishes the client's reliable and certified notifications and streams log records to its
readers. Each reader has a send queue. Reader credit is forwarded to the delivery server in small
portions, so the queue stays short.
"""

import asyncio
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from contrada.delivery.delivery_messages import (
    Ack,
    Closed,
    CloseLog,
    Consuming,
    Extend,
    ForReader,
    Grant,
    LogEntry,
    Nack,
    ReadLog,
    Records,
    Withdraw,
)
from contrada.delivery.durable_log import OUT_MAX
from contrada.errors import (
    ContradaError,
    DeliveryError,
    FrameError,
    InvalidValueError,
    LimitError,
    StoreError,
)
from contrada.model import FilterSet, Notification
from contrada.model.languages.work_budget import Work
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.ingress_queue import IngressQueue
from contrada.net.broker.log_batches import local_number, log_state, read_record_batch
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.wire.durable_messages import (
    Acknowledge,
    AskLog,
    AskRecordBatch,
    Publications,
    PublisherHello,
    PublisherState,
    ReaderState,
    decode_log_request,
    encode_durable,
    refusal,
)
from contrada.net.wire.frames import LogDelivery, LogReply, LogRequest
from contrada.net.wire.payload_codec import CONTENT_BYTES_MAX, notifications_from
from contrada.routing.router_messages import Client, Publish
from contrada.service.durable_reader import IN_MEMORY
from contrada.service.security.permits import Permit
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.subscription_queue import ENTRY_BYTES, size_of

READ_WORK_MAX: Final = 200_000
"""Steps to decode a durable request and to enter a subscription. Beyond it: the request is
refused."""

AHEAD_BYTES: Final = 1024 * 1024
"""Bytes of records requested at once for a reader, estimated from the last ones. Beyond it: they
stay in the log."""

AHEAD_RECORDS_MAX: Final = 256
"""Records requested at once for a reader. Beyond it: they stay in the log."""

_AHEAD_AT_FIRST: Final = 32
_FRAME_BYTES: Final = 256 * 1024
_FRAME_RECORDS: Final = 512


class _ReaderQueue:
    """The send queue of one reader, and its remaining credit."""

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
        self._bytes = 0
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
            self._append(message, ENTRY_BYTES)
        elif message.records:
            permit = self._connection.permit
            size = 0
            for each in message.records:
                sent = _sendable(each, permit)
                item = sent.notification
                size += self._append(sent, ENTRY_BYTES if item is None else size_of(item))
            count = len(message.records)
            self._asked = max(0, self._asked - count)
            self._portion = min(max(AHEAD_BYTES * count // size, 1), AHEAD_RECORDS_MAX)
        self._connection.mark_ready(self)

    def _append(self, each: LogEntry | Withdraw | Closed, size: int) -> int:
        self._waiting.append((each, size))
        self._hold(size)
        return size

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._connection.budget.change(size)

    def end(self, failure: ContradaError | None = None) -> None:
        """Does nothing: the connection ends with the broker."""

    @property
    def newest(self) -> int:
        """Unknown here."""
        return 0

    @property
    def holds(self) -> tuple[int, ...]:
        """Unknown here."""
        return ()

    def restart(self) -> None:
        """Does nothing: the log is in this process."""

    def grant(self, credit: int, read: int) -> None:
        """Adds credit for records. The client has read so many of those that were sent."""
        self._granted = min(self._granted + max(credit, 0), OUT_MAX)
        is_news, self._read = read > self._read, max(read, self._read)
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
            self._hold(-each_size)
            size += each_size
            if other is not None:
                break
        self._ask()
        return LogDelivery(encode_durable(other or Records(name, self._label, tuple(records))))

    def discard(self) -> None:
        """Drops the queue."""
        self._waiting.clear()
        self._hold(-self._bytes)


def _sendable(record: LogEntry, permit: Permit | None) -> LogEntry:
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


@dataclass(slots=True, eq=False)
class _PendingPublication:
    """An unanswered publication, in parts where all of it was too much work."""

    number: int
    wait_ms: int
    size: int
    open: int = 1
    fresh: list[Notification] = field(default_factory=list)
    error: ContradaError | None = None
    accepted: int = 0


class DurableSession:
    """The durable traffic of one client."""

    def __init__(self, connection: ServerConnection, client: Client, logs: BrokerLogs) -> None:
        self._connection, self._client, self._logs = connection, client, logs
        self._host = logs.host
        self._readers: dict[str, _ReaderQueue] = {}
        self._reads = 0
        self._batches: set[int] = set()  # requests for record batches without an answer
        self._publishers: dict[str, None] = {}
        self._unanswered = 0
        self._held = 0
        self._answers: list[tuple[int, msgspec.Raw]] = []
        self._answering: asyncio.Task[None] | None = None
        self._ingress = IngressQueue(
            client,
            connection.broker,
            frames_max=self._limits.durable_requests_max,
            answer=self._answer_publication,
            end=connection.end,
        )

    @property
    def _limits(self) -> BrokerLimits:
        return self._connection.broker.limits

    @property
    def held_bytes(self) -> int:
        """Bytes of publications that are pending or in the ingress queue."""
        return self._held + self._ingress.held_bytes

    def handle(self, request: LogRequest) -> Generator[None]:
        """Handles a request in steps; other connections may have a turn at each `yield`."""
        if self._unanswered >= (most := self._limits.durable_requests_max):
            raise self._overload(f"more than durable_requests_max = {most} unanswered")
        self._unanswered += 1
        published: tuple[Notification, ...] = ()
        try:
            with Work("READ_WORK_MAX", READ_WORK_MAX):
                message = decode_log_request(request.message)
                if isinstance(message, Publications):
                    published = notifications_from(message.notifications)
            if isinstance(message, Publications):
                yield from self._publish(request, published)
            elif isinstance(message, AskRecordBatch):
                yield from self._read_batch(request.number, message)
            elif not self._connection.is_gone:
                self._handle_message(request.number, message)
        except ContradaError as error:
            if self._connection.is_closed:
                raise  # The fault has ended the whole connection.
            self._refuse(request.number, error)

    def _overload(self, reason: str) -> FrameError:
        error = FrameError("too many requests", reason)
        self._connection.fail(error)
        return error

    def _handle_message(self, number: int, message: Any) -> None:
        self._check_names(message)
        match message:
            case PublisherHello():
                self._add_publisher(number, message)
            case ReadLog():
                self._read(number, message)
            case CloseLog(consumer="", ends=True):
                self._host.end(message.name)
                self._logs.cancel_expiry(message.name)
                self._answer(number)
            case CloseLog():
                self._close_reader(message)
                self._answer(number)
            case AskLog():
                self._answer(number, encode_durable(log_state(self._host.server, message)))
            case Acknowledge():
                local_number(self._host.server, message.name, message.number)
                self._host.acknowledge(message.name, message.before)
                self._answer(number)
            case _:
                self._consume(message)
                self._answer(number)

    def _check_names(self, message: Any) -> None:
        """Raises NotPermittedError for names of other users; names in memory are secret."""
        permit = self._connection.permit
        if permit is None:
            return
        if isinstance(message, PublisherHello):
            permit.check_publisher(message.publisher)
            return
        names = [message.name]
        if isinstance(message, ReadLog) and message.retention and message.retention.dead_letter:
            names.append(message.retention.dead_letter)
        for each in names:
            if not each.startswith(f"{IN_MEMORY}-"):
                permit.check_durable(each)

    # --- publishing ---------------------------------------------------------------------------

    def _add_publisher(self, number: int, message: PublisherHello) -> None:
        is_new = message.publisher not in self._publishers
        if is_new and len(self._publishers) >= (most := self._limits.publishers_per_client_max):
            raise LimitError("publishers_per_client_max", most)
        self._logs.admit(message.publisher, message.instance, self)
        self._publishers[message.publisher] = None
        server = self._host.server
        self._host.arrive(message.publisher, message.past)
        known = PublisherState(
            server.name, server.incarnation, server.sequence_of(message.publisher)
        )
        self._answer(number, encode_durable(known))

    def _publish(
        self, request: LogRequest, notifications: tuple[Notification, ...]
    ) -> Generator[None]:
        """Publishes all notifications at once, or one by one where that is too much work."""
        if not notifications:
            raise InvalidValueError((), "expected notifications to publish")
        if len({each.envelope.publisher for each in notifications}) > 1:
            raise InvalidValueError("publishers", "expected notifications of one publisher")
        self._logs.check(notifications[0].envelope.delivery)
        permit = self._connection.permit
        refused = (yield from permit.unpublishable(notifications)) if permit else []
        if permit is not None and refused:
            self._connection.broker.dropped[NOT_PERMITTED] += len(refused)
            raise permit.why_unpublishable(notifications[refused[0]])
        size = sum(map(size_of, notifications))
        if self.held_bytes + size > (most := self._limits.pending_bytes_max):
            limit = f"pending_bytes_max = {most}"
            raise self._overload(f"more than {limit} bytes unanswered")
        pending = _PendingPublication(request.number, request.wait_ms, size)
        self._hold(size)
        try:
            with Work("BATCH_WORK_MAX", self._limits.batch_work_max, is_strict=True):
                self._host.server.match_ahead(notifications)
        except LimitError as error:
            if error.limit != "BATCH_WORK_MAX":
                pending.error = error
            else:
                yield from self._publish_singly(pending, notifications)
        else:
            self._store(pending, notifications)
        finally:
            self._close_part(pending)

    def _publish_singly(
        self, pending: _PendingPublication, notifications: Sequence[Notification]
    ) -> Generator[None]:
        for each in notifications:
            yield
            if pending.error is not None:
                return
            try:
                most = self._limits.notification_work_max
                with Work("NOTIFICATION_WORK_MAX", most, is_strict=True):
                    self._host.server.match_ahead((each,))
            except LimitError as error:
                pending.error = error
            else:
                self._store(pending, (each,))

    def _store(self, pending: _PendingPublication, notifications: Sequence[Notification]) -> None:
        pending.open += 1
        outcome = self._host.publish(notifications)

        def known(outcome: "asyncio.Future[Sequence[Notification]]") -> None:
            error = None if outcome.cancelled() else outcome.exception()
            if isinstance(error, ContradaError):
                pending.error = pending.error or error
            elif not outcome.cancelled():
                pending.fresh += outcome.result()
                pending.accepted += len(notifications)
            self._close_part(pending)

        if outcome.done():
            known(outcome)
        else:
            outcome.add_done_callback(known)

    def _close_part(self, pending: _PendingPublication) -> None:
        """Counts a finished part; after the last, ordinary subscriptions get the notifications."""
        pending.open -= 1
        if pending.open:
            return
        self._hold(-pending.size)
        if pending.fresh:
            self._ingress.add(pending, pending.wait_ms, Publish(tuple(pending.fresh)))
        else:
            self._answer_publication(pending, 0)

    def _answer_publication(
        self, pending: _PendingPublication, answer: int | ContradaError
    ) -> None:
        if pending.error is not None:
            pending.error.published = pending.accepted
            self._refuse(pending.number, pending.error)
            self._connection.write()
        else:  # It is accepted, also where ordinary subscriptions could not afford it.
            self._answer(pending.number, encode_durable(answer if isinstance(answer, int) else 0))

    def _hold(self, size: int) -> None:
        self._held += size
        self._connection.broker.hold(size)

    # --- reading ------------------------------------------------------------------------------

    def _read(self, number: int, message: ReadLog) -> None:
        label = message.consumer
        if label in self._readers:
            if not self._readers[label].is_closed:
                raise DeliveryError(
                    f"{label!r} reads {self._readers[label].request.name!r} already"
                )
            self._close_reader(CloseLog(message.name, label))
        if len(self._readers) >= (most := self._limits.readers_per_client_max):
            raise LimitError("readers_per_client_max", most)
        if len(message.holds) > OUT_MAX:
            raise LimitError("OUT_MAX", OUT_MAX, len(message.holds))
        filters = message.filters
        most = self._limits.durable_filters_max
        if filters is not None and len(filters.filters) > most:
            raise LimitError("durable_filters_max", most, len(filters.filters))
        if self._connection.permit is not None and filters is not None:
            with Work("READ_WORK_MAX", READ_WORK_MAX):
                granted = self._connection.permit.allow_filters(filters)
            message = msgspec.structs.replace(message, filters=FilterSet(granted))
        self._logs.claim(self._reader_key(label), self.yield_reader)
        self._reads += 1
        # A name of this run: records of the run before may still be in flight to the old name.
        consumer = f"{self._connection.broker.instance}.{self._client.name}.{self._reads}"
        asked = msgspec.structs.replace(message, consumer=consumer)
        reader = self._readers[label] = _ReaderQueue(self._connection, self._logs, asked, label)
        try:
            with Work("READ_WORK_MAX", READ_WORK_MAX):
                filters = self._host.begin(reader, asked)
        except BaseException:
            del self._readers[label]
            self._logs.disclaim(self._reader_key(label), self.yield_reader)
            raise
        self._logs.cancel_expiry(message.name)
        known = self._host.server.find(message.name)
        owner, at = known[:2] if known is not None else ("", 0)
        self._answer(number, encode_durable(ReaderState(filters, owner, at)))

    def _read_batch(self, number: int, message: AskRecordBatch) -> Generator[None]:
        if len(self._batches) >= (most := self._limits.record_batches_max):
            raise LimitError("record_batches_max", most)
        self._check_names(message)
        batch = yield from read_record_batch(
            self._host.server, message, self._limits.record_batch_bytes_max, self._connection.permit
        )
        if number:
            self._batches.add(number)
        self._answer(number, encode_durable(batch))

    def _consume(self, message: Grant | Ack | Nack | Extend) -> None:
        reader = self._readers.get(message.consumer)
        if reader is None or reader.request.name != message.name:
            raise DeliveryError(f"{message.consumer!r} does not read {message.name!r}")
        if isinstance(message, Grant):
            reader.grant(message.credit, message.read)
            return
        many = message.intervals if isinstance(message, Ack) else message.positions
        if len(many) > OUT_MAX:
            raise LimitError("OUT_MAX", OUT_MAX, len(many))
        if isinstance(message, Ack) and not all(0 < a < b for a, b in message.intervals):
            raise InvalidValueError(message.intervals[0], "expected intervals of positions from 1")
        translated: Consuming = msgspec.structs.replace(message, consumer=reader.request.consumer)
        self._host.consume(reader.request.consumer, translated)

    def _close_reader(self, message: CloseLog) -> None:
        reader = self._readers.pop(message.consumer, None)
        if reader is None:
            return  # It was closed, or never opened.
        self._discard_reader(reader)
        self._logs.disclaim(self._reader_key(message.consumer), self.yield_reader)
        name, ends = reader.request.name, message.ends and not reader.request.is_durable
        seen = None if message.seen is None else message.seen[:OUT_MAX]
        self._host.leave(CloseLog(name, reader.request.consumer, ends, seen))

    def _reader_key(self, label: str) -> str:
        """Returns the reader's key at the broker, which no other user can claim."""
        principal = self._connection.principal
        return label if principal is None else f"{principal.name}/{label}"

    def yield_reader(self, claimed: str) -> None:
        """Closes a reader that is on another connection now: this connection is dead."""
        label = claimed.removeprefix(self._reader_key(""))
        self._close_reader(CloseLog(self._readers[label].request.name, label))

    def _discard_reader(self, reader: _ReaderQueue) -> None:
        self._connection.forget_feed(reader)
        reader.discard()

    def withdraw_all(self) -> None:
        """Ends all readers and publishers; unacknowledged records are delivered again."""
        for label, reader in self._readers.items():
            self._discard_reader(reader)
            self._logs.disclaim(self._reader_key(label), self.yield_reader)
            self._host.leave(CloseLog(reader.request.name, reader.request.consumer))
            if not reader.request.is_durable:
                self._logs.start_expiry(reader.request.name)
        self._readers.clear()
        for each in self._publishers:
            self._logs.dismiss(each, self)
        self._publishers.clear()

    def forget(self) -> None:
        """Drops the notifications that wait for ordinary subscriptions."""
        self._ingress.forget()

    # --- answers ------------------------------------------------------------------------------

    def _answer(self, number: int, result: msgspec.Raw = msgspec.Raw(b"\xc0")) -> None:  # noqa: B008
        """Answers a request after its effects are on stable storage."""
        if not number:
            self._unanswered -= 1
            return
        self._answers.append((number, result))
        if self._answering is None:
            self._answering = self._connection.broker.start_work(self._answer_all())

    async def _answer_all(self) -> None:
        try:
            while self._answers:
                answers, self._answers = self._answers, []
                failure: StoreError | None = None
                try:
                    await self._host.committed()
                except StoreError as error:
                    failure = error
                for number, result in answers:
                    self._batches.discard(number)
                    if failure is not None:
                        self._refuse(number, failure)
                        continue
                    self._unanswered -= 1
                    self._connection.send(LogReply(number, result))
                self._connection.write()
        finally:
            self._answering = None

    def _refuse(self, number: int, error: ContradaError) -> None:
        self._unanswered -= 1
        self._connection.count_refused(type(error).__name__, error)
        if number:
            self._connection.send(refusal(number, error))
