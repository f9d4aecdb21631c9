"""`DurableSession`: the broker side of one client's durable traffic.

    LogRequest ==> charged work, in turns ==> delivery server ==> disk ==> LogReply
                                                    `==> ordinary subscriptions, best effort

It publishes the client's reliable and certified notifications and streams log records to its
readers by a `ReaderQueue` each.
"""

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import msgspec

from contrada.delivery.delivery_messages import (
    Ack,
    CloseLog,
    Consuming,
    Extend,
    Grant,
    Nack,
    ReadLog,
)
from contrada.delivery.durable_log import OUT_MAX
from contrada.delivery.owned_queues import local_number
from contrada.delivery.queue_messages import QueueRequest
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
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.fair_scheduler import request_work
from contrada.net.broker.ingress_queue import IngressQueue
from contrada.net.broker.log_batches import log_state, read_record_batch
from contrada.net.broker.queue_session import answer_queue_request, check_names, log_queue_change
from contrada.net.broker.reader_queue import ReaderQueue
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
from contrada.net.wire.frames import LogReply, LogRequest
from contrada.net.wire.payload_codec import (
    DECODED_BYTES_PER_TURN,
    decode_in_parts,
    notifications_from,
)
from contrada.routing.router_messages import Client, Publish
from contrada.service.security.permits import Permit
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.subscription_queue import size_of

READ_WORK_MAX: Final = 200_000
"""Steps to decode a durable request and to enter a subscription. Beyond it: the request is
refused."""

PUBLISHED_TOGETHER_MAX: Final = 256
"""Publications of a client that are published in one step. Beyond it: they are the next step."""

_NONE: Final = encode_durable(0)


@dataclass(slots=True, eq=False)
class _PendingPublication:
    """An unanswered publication, in parts where all of it was too much work."""

    number: int
    wait_ms: int
    size: int
    notifications: tuple[Notification, ...]
    open: int = 1
    fresh: list[Notification] = field(default_factory=list)
    error: ContradaError | None = None
    accepted: int = 0
    due_s: float = 0.0
    """The time of the answer, by the clock of the loop, for a user with a rate."""

    def learn(
        self,
        notifications: Sequence[Notification],
        outcome: "asyncio.Future[Sequence[Notification]]",
    ) -> None:
        error = None if outcome.cancelled() else outcome.exception()
        if isinstance(error, ContradaError):
            self.error = self.error or error
        elif not outcome.cancelled():
            self.fresh += outcome.result()
            self.accepted += len(notifications)


class DurableSession:
    """The durable traffic of one client."""

    def __init__(self, connection: ServerConnection, client: Client, logs: BrokerLogs) -> None:
        self._connection, self._client, self._logs = connection, client, logs
        self._broker, self._host = connection.broker, logs.host
        self._readers: dict[str, ReaderQueue] = {}
        self._reads = 0
        self._batches: set[int] = set()  # requests for record batches without an answer
        self._publishers: dict[str, None] = {}
        self._unanswered = 0
        self._held = 0
        self._ingress = IngressQueue(
            client,
            self._broker,
            frames_max=self._broker.limits.durable_requests_max,
            answer=self._answer_publications,
            end=connection.end,
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of publications that are pending or in the ingress queue."""
        return self._held + self._ingress.held_bytes

    @property
    def readers(self) -> int:
        """The number of durable subscriptions that are read."""
        return len(self._readers)

    def handle(self, request: LogRequest) -> Generator[None]:
        """Handles a request in steps; other connections may have a turn at each `yield`.

        Publications that were received together are published together, in order.
        """
        run: list[_PendingPublication] = []
        run_bytes = decoded_bytes = 0
        following: LogRequest | None = request
        while following is not None:
            request, following = following, None
            if self._unanswered >= (most := self._broker.limits.durable_requests_max):
                raise self._overload(f"more than durable_requests_max = {most} unanswered")
            self._unanswered += 1
            try:
                with Work("READ_WORK_MAX", READ_WORK_MAX):
                    message = decode_log_request(request.message)
                if isinstance(message, Publications):
                    run.append((yield from self._admit(request, message.notifications, run_bytes)))
                    run_bytes += run[-1].size
                    decoded_bytes += len(request.message)
                    if decoded_bytes >= DECODED_BYTES_PER_TURN:
                        decoded_bytes = 0
                        yield
                    if len(run) < PUBLISHED_TOGETHER_MAX and self._unanswered < most:
                        following = self._connection.next_of(LogRequest)
                    continue
                earlier, run, run_bytes = run, [], 0
                yield from self._publish(earlier)
                if isinstance(message, AskRecordBatch):
                    yield from self._read_batch(request.number, message)
                elif isinstance(message, QueueRequest):
                    turns = answer_queue_request(self._connection, self._host, message)
                    self._answer(request.number, encode_durable((yield from turns)))
                elif not self._connection.is_gone:
                    self._handle_message(request.number, message)
            except ContradaError as error:
                earlier, run, run_bytes = run, [], 0
                yield from self._publish(earlier)
                if self._connection.is_closed:
                    raise  # The fault has ended the whole connection.
                self._refuse(request.number, error)
        yield from self._publish(run)

    def _overload(self, reason: str) -> FrameError:
        error = FrameError("too many requests", reason)
        self._connection.fail(error)
        return error

    def _handle_message(self, number: int, message: Any) -> None:
        check_names(self._connection.permit, message)
        match message:
            case PublisherHello():
                self._add_publisher(number, message)
            case ReadLog():
                self._read(number, message)
            case CloseLog(consumer="", ends=True):
                self._host.end(message.name)
                self._logs.cancel_expiry(message.name)
                log_queue_change(self._connection, message, 0)
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

    # --- publishing ---------------------------------------------------------------------------

    def _add_publisher(self, number: int, message: PublisherHello) -> None:
        most = self._broker.limits.publishers_per_client_max
        if message.publisher not in self._publishers and len(self._publishers) >= most:
            raise LimitError("publishers_per_client_max", most)
        self._logs.admit(message.publisher, message.instance, self)
        self._publishers[message.publisher] = None
        server = self._host.server
        self._host.arrive(message.publisher, message.past)
        known = PublisherState(
            server.name, server.incarnation, server.sequence_of(message.publisher)
        )
        self._answer(number, encode_durable(known))

    def _admit(
        self, request: LogRequest, encodings: list[bytes], run_bytes: int
    ) -> Generator[None, None, _PendingPublication]:
        """Returns a publication that may be published after a run of so many bytes."""
        if not encodings:
            raise InvalidValueError((), "expected notifications to publish")
        permit = self._connection.permit
        if permit is not None and permit.publishes_nothing:  # The others are not worth the work.
            with request_work():
                first = notifications_from(encodings[:1])
            raise self._refusal(permit, first[0], len(encodings))
        notifications = yield from decode_in_parts(encodings, request_work)
        if len({each.envelope.publisher for each in notifications}) > 1:
            raise InvalidValueError("publishers", "expected notifications of one publisher")
        self._logs.check(notifications[0].envelope.delivery)
        refused = (yield from permit.unpublishable(notifications)) if permit else []
        if permit is not None and refused:
            error = self._refusal(permit, notifications[refused[0]], len(refused))
            if (transitions := self._broker.dispatcher.transitions) is not None:
                forbidden = (notifications[at] for at in refused)
                transitions.refuse(self._client, str(error), forbidden)
            raise error
        size = sum(map(size_of, notifications))
        if self.held_bytes + run_bytes + size > (most := self._broker.limits.pending_bytes_max):
            limit = f"pending_bytes_max = {most}"
            raise self._overload(f"more than {limit} bytes unanswered")
        usage = self._connection.usage
        wait_s = usage.charge(len(notifications), size) if usage is not None else 0.0
        due_s = self._connection.clock() + wait_s if wait_s else 0.0
        return _PendingPublication(
            request.number, request.wait_ms, size, notifications, due_s=due_s
        )

    def _refusal(self, permit: Permit, first: Notification, count: int) -> ContradaError:
        """Counts refused notifications. Returns the error of the first."""
        self._broker.dropped[NOT_PERMITTED] += count
        return permit.why_unpublishable(first)

    def _publish(self, run: Sequence[_PendingPublication]) -> Generator[None]:
        """Publishes a run at once, or one by one where that is too much work."""
        if not run:
            return
        self._hold(sum([each.size for each in run]))
        try:
            yield from self._match_and_store(run)
        finally:
            self._close_parts(run)

    def _match_and_store(self, run: Sequence[_PendingPublication]) -> Generator[None]:
        try:
            whole = [it for each in run for it in each.notifications]
            with Work("BATCH_WORK_MAX", self._broker.limits.batch_work_max, is_strict=True):
                self._host.server.match_ahead(whole)
        except LimitError as error:
            if len(run) > 1:
                for each in run:
                    yield from self._match_and_store([each])
            elif error.limit != "BATCH_WORK_MAX":
                run[0].error = error
            else:
                yield from self._publish_singly(run[0])
        else:
            self._store([(each, each.notifications) for each in run])

    def _publish_singly(self, pending: _PendingPublication) -> Generator[None]:
        for each in pending.notifications:
            yield
            if pending.error is not None:
                return
            try:
                most = self._broker.limits.notification_work_max
                with Work("NOTIFICATION_WORK_MAX", most, is_strict=True):
                    self._host.server.match_ahead((each,))
            except LimitError as error:
                pending.error = error
            else:
                self._store([(pending, (each,))])

    def _store(self, parts: Sequence[tuple[_PendingPublication, tuple[Notification, ...]]]) -> None:
        outcomes = self._host.publish([notifications for _, notifications in parts])
        for (pending, notifications), outcome in zip(parts, outcomes, strict=True):
            if outcome.done():
                pending.learn(notifications, outcome)
            else:
                pending.open += 1
                outcome.add_done_callback(partial(self._learn, pending, notifications))

    def _learn(
        self,
        pending: _PendingPublication,
        notifications: Sequence[Notification],
        outcome: "asyncio.Future[Sequence[Notification]]",
    ) -> None:
        pending.learn(notifications, outcome)
        self._close_parts([pending])

    def _close_parts(self, run: Sequence[_PendingPublication]) -> None:
        """Counts a finished part of each; ordinary subscriptions get what has no open part."""
        for each in run:
            each.open -= 1
        closed = [each for each in run if not each.open]
        self._hold(-sum([each.size for each in closed]))
        for wait_ms, same in groupby(closed, key=attrgetter("wait_ms")):
            together = tuple(same)
            fresh = tuple([it for each in together for it in each.fresh])
            if fresh:
                self._ingress.add(together, wait_ms, Publish(fresh))
            else:
                self._answer_publications(together, 0)

    def _answer_publications(
        self, run: Sequence[_PendingPublication], answer: int | ContradaError
    ) -> None:
        """Answers a run; the first accepted one with the dropped pairs of all."""
        due_s = max([each.due_s for each in run])
        if due_s and due_s > self._connection.clock():  # Its publisher waits, no other request.
            loop = asyncio.get_running_loop()
            loop.call_at(due_s, self._answer_publications, run, answer)
            return
        # It is accepted, also where ordinary subscriptions could not afford it.
        dropped = answer if isinstance(answer, int) else 0
        for pending in run:
            if pending.error is not None:
                pending.error.published = pending.accepted
                self._refuse(pending.number, pending.error)
                self._connection.write()
            else:
                self._answer(pending.number, encode_durable(dropped) if dropped else _NONE)
                dropped = 0

    def _hold(self, size: int) -> None:
        self._held += size
        self._broker.hold(size)

    # --- reading ------------------------------------------------------------------------------

    def _read(self, number: int, message: ReadLog) -> None:
        label = message.consumer
        if label in self._readers:
            if not self._readers[label].is_closed:
                raise DeliveryError(
                    f"{label!r} reads {self._readers[label].request.name!r} already"
                )
            self._close_reader(CloseLog(message.name, label))
        if len(self._readers) >= (most := self._broker.limits.readers_per_client_max):
            raise LimitError("readers_per_client_max", most)
        if len(message.holds) > OUT_MAX:
            raise LimitError("OUT_MAX", OUT_MAX, len(message.holds))
        filters = message.filters
        usage, principal = self._connection.usage, self._connection.principal
        if usage is not None and principal is not None:
            usage.check_subscription(message.name)
            message = usage.admit_log(principal, self._host.server, message)
        most = self._broker.limits.durable_filters_max
        if filters is not None and len(filters.filters) > most:
            raise LimitError("durable_filters_max", most, len(filters.filters))
        if self._connection.permit is not None and filters is not None:
            with Work("READ_WORK_MAX", READ_WORK_MAX):
                granted = self._connection.permit.allow_filters(filters)
            message = msgspec.structs.replace(message, filters=FilterSet(granted))
        self._logs.claim(self._reader_key(label), self.yield_reader)
        self._reads += 1
        # A name of this run: records of the run before may still be in flight to the old name.
        consumer = f"{self._broker.instance}.{self._client.name}.{self._reads}"
        asked = msgspec.structs.replace(message, consumer=consumer)
        reader = self._readers[label] = ReaderQueue(self._connection, self._logs, asked, label)
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
        limits = self._broker.limits
        if len(self._batches) >= (most := limits.record_batches_max):
            raise LimitError("record_batches_max", most)
        check_names(self._connection.permit, message)
        batch = yield from read_record_batch(
            self._host.server, message, limits.record_batch_bytes_max, self._connection.permit
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
        if not (ends or reader.request.is_durable):
            self._logs.start_expiry(name, self._connection.usage)

    def _reader_key(self, label: str) -> str:
        """Returns the reader's key at the broker, which no other user can claim."""
        principal = self._connection.principal
        return label if principal is None else f"{principal.name}/{label}"

    def yield_reader(self, claimed: str) -> None:
        """Closes a reader that is on another connection now: this connection is dead."""
        label = claimed.removeprefix(self._reader_key(""))
        self._close_reader(CloseLog(self._readers[label].request.name, label))

    def _discard_reader(self, reader: ReaderQueue) -> None:
        self._connection.forget_feed(reader)
        reader.discard()

    def withdraw_all(self) -> None:
        """Ends all readers and publishers; unacknowledged records are delivered again."""
        for label, reader in self._readers.items():
            self._discard_reader(reader)
            self._logs.disclaim(self._reader_key(label), self.yield_reader)
            self._host.leave(CloseLog(reader.request.name, reader.request.consumer))
            if not reader.request.is_durable:
                self._logs.start_expiry(reader.request.name, self._connection.usage)
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
        self._host.groups.when_committed(self._send_answers, (number, result))

    def _send_answers(
        self, answers: Sequence[tuple[int, msgspec.Raw]], failure: StoreError | None
    ) -> None:
        for number, result in answers:
            self._batches.discard(number)
            if failure is not None:
                self._refuse(number, failure)
                continue
            self._unanswered -= 1
            self._connection.send(LogReply(number, result))
        self._connection.write()

    def _refuse(self, number: int, error: ContradaError) -> None:
        self._unanswered -= 1
        self._connection.count_refused(type(error).__name__, error)
        if number:
            self._connection.send(refusal(number, error))
