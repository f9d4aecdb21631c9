"""`TcpService`: a service at a broker, over a TCP connection.

A lost connection is made again (`net/client/reconnection.py`), and every subscription is restored
with its identity. An unanswered best-effort publication fails with ConnectionFailedError: it is
never sent twice. Durable traffic continues (`net/client/durable_client.py`). New operations wait
for the connection.
"""

import asyncio
import itertools
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from contrada.delivery.delivery_class import delivery_class
from contrada.errors import (
    ContradaError,
    NotPermittedError,
    QuotaError,
    ServiceClosedError,
    ServiceError,
)
from contrada.model import Envelope, Notification
from contrada.model.languages.atoms import failures
from contrada.model.languages.decision import safe_answers
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.reconnection import Reconnection
from contrada.net.client.remote_offers import RemoteOfferBoard
from contrada.net.client.tcp_subscription import TcpSubscription, await_resumed
from contrada.net.wire import frames
from contrada.net.wire.address import Address, is_loopback, parse_addresses
from contrada.net.wire.endpoint import TCP, ConnectOptions
from contrada.net.wire.frames import Frame, InspectRequest, Reply, Request
from contrada.net.wire.inspection import (
    ForestPosition,
    HeldFilters,
    Inspection,
    LinkArrival,
    Position,
)
from contrada.net.wire.message_codec import encode_publish
from contrada.net.wire.payload_codec import (
    CONTENT_BYTES_MAX,
    as_notification,
    check_content,
    encode_content,
    encoding_of,
)
from contrada.net.wire.tokens import present_token, publisher_under
from contrada.service import (
    ConnectionState,
    Item,
    ServiceStatistics,
    dissemination_of,
    is_above_best_effort,
    notification_of,
    publication_of,
    reading_of,
    trace_spans,
    with_delivery,
)
from contrada.service.base_service import BaseService, BatchSorter
from contrada.service.connection_states import ConnectionStates
from contrada.service.envelope_factory import EnvelopeFactory, of_one, runs_of, with_identity
from contrada.service.loop_guards import batches_of, checked_timeout, checked_wait, tell_published
from contrada.service.security.signatures import Signer
from contrada.service.service_limits import ServiceLimits
from contrada.service.story import Story
from contrada.service.subjects import PublishOptions
from contrada.service.subscription_queue import PUBLISH_WAIT_S, QUEUE_FULL, QueueSettings

if TYPE_CHECKING:  # Loaded at the first durable operation, or query.
    from contrada.net.client.durable_client import DurableClient
    from contrada.net.client.remote_queries import RemoteQueryClient


class Batch:
    """The notifications of one frame, and its answer."""

    __slots__ = ("_error", "_is_settled", "notifications", "size", "waiting")

    def __init__(self) -> None:
        self.notifications: list[bytes] = []
        self.size = 0
        self._error: ContradaError | None = None
        self._is_settled = False
        self.waiting: list[asyncio.Future[None]] = []

    def answer(self) -> "asyncio.Future[None]":
        """Returns the answer to one caller: if they are cancelled, the others still wait."""
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        if self._is_settled:
            self.settle(self._error)
        return answer

    def settle(self, error: ContradaError | None) -> None:
        """Passes the answer, or the error, to all callers, also later ones."""
        self._error, self._is_settled = error, True
        for answer in self.waiting:
            if answer.done():
                continue
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error.copy())
        self.waiting.clear()


class PublishWindow:
    """The publications of a client, in frames, few of them unanswered.

    Callers of one turn of the event loop share a frame. A caller waits for the answer to its frame,
    and the broker answers when all its notifications are in the queues of their subscribers. So a
    fast publisher is slowed to the slowest healthy subscriber.

    Invariant: notifications are sent in the order in which they were added.
    """

    def __init__(
        self, send: Callable[[Request], None], wait_ms: int, limits: ClientLimits = ClientLimits()
    ) -> None:
        """`send` sends a frame at once."""
        self._send = send
        self._wait_ms, self._limits = wait_ms, limits
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Batch] = deque()
        self._unanswered: dict[int, Batch] = {}
        self._request = 0
        self._flush_due = self._sent_one = False

    def add(self, encodings: Sequence[bytes], placed: dict[Batch, int]) -> None:
        """Queues notifications; they are sent in this turn of the loop, or when the window
        allows.

        `placed` counts the notifications by batch. Raises LimitError for an oversized one; those
        before it are sent.
        """
        sizes = [*map(len, encodings)]
        if max(sizes, default=0) > CONTENT_BYTES_MAX:
            bad = next(at for at, size in enumerate(sizes) if size > CONTENT_BYTES_MAX)
            self.add(encodings[:bad], placed)
            check_content(encodings[bad])
        limits, done = self._limits, 0
        while done < len(encodings):
            batch = self._open_batch()
            room = limits.publish_notifications_max - len(batch.notifications)
            sums = [*itertools.accumulate(sizes[done : done + room])]
            # Up to the one that fills the batch.
            count = min(bisect_left(sums, limits.publish_bytes_max - batch.size) + 1, len(sums))
            batch.notifications += encodings[done : done + count]
            batch.size += sums[count - 1]
            placed[batch] = placed.get(batch, 0) + count
            done += count

    def add_one(self, encoding: bytes) -> "asyncio.Future[None]":
        """Queues one notification as `add`. Returns the answer.

        A publisher that awaits each answer before the next publication has frames of one
        notification: it is sent now, without another turn of the loop.
        """
        if len(encoding) > CONTENT_BYTES_MAX:
            check_content(encoding)
        is_lone = self._sent_one and not self._unanswered and not self._waiting
        batch = Batch() if is_lone else self._open_batch()
        batch.notifications.append(encoding)
        batch.size += len(encoding)
        answer = batch.answer()
        if is_lone:
            self._send_batch(batch)
        return answer

    def _open_batch(self) -> Batch:
        """Returns the last batch, or a new one if it is full; it is sent in this turn."""
        limits = self._limits
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)
        if self._waiting:
            batch = self._waiting[-1]
            if (
                len(batch.notifications) < limits.publish_notifications_max
                and batch.size < limits.publish_bytes_max
            ):
                return batch
        batch = Batch()
        self._waiting.append(batch)
        return batch

    def on_answer(self, number: int, error: ContradaError | None) -> bool:
        """Resolves a publication. Returns False where no publication has the number."""
        batch = self._unanswered.pop(number, None)
        if batch is None:
            return False
        batch.settle(error)
        if self._waiting:
            self._flush()
        return True

    def fail(self, unanswered: ContradaError, unsent: ContradaError) -> None:
        """Fails all frames, queued ones too: none is sent after a caller knows of the loss."""
        for batch in self._unanswered.values():
            batch.settle(unanswered)
        for batch in self._waiting:
            batch.settle(unsent)
        self._unanswered.clear()
        self._waiting.clear()

    def _flush(self) -> None:
        self._flush_due = False
        while self._waiting and len(self._unanswered) < self._limits.publish_frames_max:
            self._send_batch(self._waiting.popleft())

    def _send_batch(self, batch: Batch) -> None:
        self._request += 1
        # Requests to publish are odd, all others even, so their numbers differ.
        request = 2 * self._request + 1
        self._unanswered[request] = batch
        self._sent_one = len(batch.notifications) == 1
        message = encode_publish(batch.notifications)
        self._send(Request(request, message, wait_ms=self._wait_ms))


def reach_with(options: ConnectOptions) -> "Callable[[Address], TcpService]":
    """Returns a function that connects to a broker with the token and certificates of a client."""

    def reach(address: Address) -> TcpService:
        tls = options.tls if address.is_tls else None
        return TcpService(address, reconnect=False, options=replace(options, tls=tls))

    return reach


class TcpService(BaseService):
    """An access point at a broker."""

    _offers: RemoteOfferBoard

    def __init__(
        self,
        address: str | Sequence[str] | Address,
        *,
        publisher: str | Signer | None = None,
        publish_wait_s: float = PUBLISH_WAIT_S,
        reconnect: bool = True,
        reconnect_wait_s: float | None = None,
        on_connection: Callable[[ConnectionState], object] | None = None,
        options: ConnectOptions = TCP,
        limits: ClientLimits = ClientLimits(),
        service_limits: ServiceLimits = ServiceLimits(),
    ) -> None:
        """`publish_wait_s`: the wait for a full queue. Raises AddressError, ServiceError."""
        super().__init__(service_limits)
        self.limits = limits
        self._states = ConnectionStates(on_connection)
        give_up_after_s = checked_timeout(reconnect_wait_s, "reconnect_wait_s") if reconnect else 0
        # Without `publisher`, the name is that of the token.
        name = publisher or publisher_under(present_token(options.token))
        self._stamp = EnvelopeFactory(name)
        self._stamp.stays = bool(publisher)
        self.reconnection = Reconnection(
            *(parse_addresses(address), self, self._states, give_up_after_s, options),
            self._stamp.go_below,
            limits,
        )
        self.now_us = self._stamp.now_us
        self._wait_ms = round(checked_wait(publish_wait_s) * 1000)
        self._publishing: PublishWindow | None = None
        self.in_force: dict[str, TcpSubscription] = {}
        self.numbers: Iterator[int] = itertools.count(1)
        self._offers = RemoteOfferBoard(self.reconnection)
        self._published = 0
        self._dropped: Counter[str] = Counter()
        self._durable: DurableClient | None = None
        self._queries: RemoteQueryClient | None = None

    async def open(self) -> None:
        """Connects. Raises ConnectionFailedError when no broker answers."""
        if self.connection.state == "new":
            self._publishing = PublishWindow(self.reconnection.send_now, self._wait_ms, self.limits)
        await self.reconnection.open()

    async def aclose(self) -> None:
        self.reconnection.check_loop()
        for subscription in list(self.in_force.values()):
            subscription.end()
        self.in_force.clear()
        self._offers.end()
        if self._queries is not None:
            await self._queries.aclose()
        if self._durable is not None:
            self._durable.end()
            await self._durable.settle()
        await self.reconnection.aclose()
        if self._durable is not None:
            self._durable.give_up(ServiceClosedError("the service is closed"))

    async def publish(self, item: Item, **options: Unpack[PublishOptions]) -> Envelope:
        if not options and self.reconnection.is_up and not trace_spans.is_on:
            self.reconnection.check()
            made = of_one(item, self._stamp.pack_dicts)
            if made:
                assert self._publishing is not None, "it was opened"
                answer = self._publishing.add_one(made[0])
                envelope = self._stamp.last_envelope()  # While the broker gets the bytes.
                await answer
                self._published += 1
                return envelope
        notification = publication_of(item, options)
        if trace_spans.is_on:
            notification = trace_spans.trace_publication(notification)
        if (elsewhere := dissemination_of(item)) is not None:
            return await self._publish_elsewhere(elsewhere, notification, options.get("delivery"))
        if is_above_best_effort((notification,)) and _is_reliable(notification):
            (stamped,) = await self.delivery().publish([with_identity(notification)])
            return stamped.envelope
        if not self.reconnection.is_up:
            await self.reconnection.ready()
        (stamped,) = self._stamp.stamped((notification,), self._stamp.now_us())
        await self._send_all((encode_content(stamped),))
        return stamped.envelope

    async def publish_batch(
        self, items: Iterable[Item] | AsyncIterable[Item], *, delivery: str | None = None
    ) -> int:
        taken = 0
        unsettled: dict[Batch, int] = {}

        def encode(item: Item) -> Notification:
            notification = with_delivery(notification_of(item), delivery or "")
            return self._stamp.best_effort(notification)

        encoder = trace_spans.trace_maker(self._stamp.packed if delivery is None else encode)
        sorting = BatchSorter(self._publish_elsewhere, encoder)

        async def settle(batch: Batch) -> int:
            size = unsettled.pop(batch)
            await self._wait_answered(batch, size)
            return size

        try:
            try:
                async for every in batches_of(
                    *(items, self.limits.publish_notifications_max, sorting.made),
                    None if delivery or trace_spans.is_on else self._stamp.pack_dicts,
                ):
                    made = await sorting.own(every, delivery)
                    taken += len(every) - len(made)
                    looked_at = [each for each in made if not isinstance(each, bytes)]
                    if is_above_best_effort(looked_at):
                        while unsettled:  # So that all are published in order.
                            taken += await settle(next(iter(unsettled)))
                        taken += await self._publish_runs([*map(as_notification, made)])
                        continue
                    encodings: Any = [*map(encoding_of, made)] if looked_at else made
                    if not self.reconnection.is_up:
                        await self.reconnection.ready()
                    self._send(encodings, unsettled)
                    while len(unsettled) > 2 * self.limits.publish_frames_max:
                        taken += await settle(next(iter(unsettled)))
            except asyncio.CancelledError:
                unsettled.clear()  # It is published, but no caller waits.
                raise
            finally:
                # All is encoded. Thousands of items that wait for answers would cost a sixth of a
                # fast publisher's time in Python's garbage collector.
                items = ()
                # Also when an item is invalid: those before it are published.
                for batch in list(unsettled):
                    taken += await settle(batch)
        except Exception as error:
            tell_published(error, taken + (getattr(error, "published", None) or 0))
            raise
        return taken

    async def _publish_runs(self, notifications: Sequence[Notification]) -> int:
        taken = 0
        for run in runs_of(notifications):
            try:
                if _is_reliable(run[0]):
                    await self.delivery().publish(run)
                else:
                    await self.reconnection.ready()
                    stamped = self._stamp.stamped(run, self._stamp.now_us())
                    await self._send_all([*map(encode_content, stamped)])
            except ContradaError as error:
                error.published = taken + (error.published or 0)
                raise
            taken += len(run)
        return taken

    def _new_subscription(self, subject: Any, where: Any, queue: QueueSettings) -> TcpSubscription:
        return TcpSubscription(self, *reading_of(subject, where), settings=queue)

    async def unsubscribe(self, durable: str) -> None:
        await self.delivery().unsubscribe(durable)

    def delivery(self) -> "DurableClient":
        self.reconnection.check()
        if self._durable is None:
            from contrada.net.client.durable_client import DurableClient

            self._durable = DurableClient(
                self.reconnection, self._stamp, self._wait_ms, self.limits
            )
        return self._durable

    def name_of_request(self) -> str:
        return self.delivery().name_of_request()

    def _query_client(self) -> "RemoteQueryClient":
        if self._queries is None:
            from contrada.net.client.remote_queries import RemoteQueryClient

            self._queries = RemoteQueryClient(self.reconnection, self._stamp, self.service_limits)
        return self._queries

    def statistics(self) -> ServiceStatistics:
        dropped = Counter(self._dropped)
        if self._durable is not None:
            dropped[QUEUE_FULL] += self._durable.dropped
        return ServiceStatistics(
            self._published + (self._durable.published if self._durable is not None else 0),
            len(self.in_force),
            None,
            dict(+dropped),
            dict(safe_answers),
            dict(failures),
        )

    def _send(self, encodings: Sequence[bytes], placed: dict[Batch, int]) -> None:
        """Queues stamped notifications; counts them by batch."""
        self.reconnection.check()
        assert self._publishing is not None, "it was opened"
        self._publishing.add(encodings, placed)

    async def _send_all(self, encodings: Sequence[bytes]) -> None:
        """Sends stamped notifications, and waits for the answers."""
        placed: dict[Batch, int] = {}
        self._send(encodings, placed)
        for batch, count in placed.items():
            await self._wait_answered(batch, count)

    async def _wait_answered(self, batch: Batch, count: int) -> None:
        await batch.answer()
        self._published += count

    async def broker_statistics(self) -> dict[str, Any]:
        """Returns the fields of the broker's `BrokerStatistics` by name."""
        await self.reconnection.ready()
        answer = await self.reconnection.call(frames.StatisticsRequest)
        return answer.statistics  # type: ignore[no-any-return]

    async def inspection(
        self,
        notification: bytes = b"",
        *,
        arrival: LinkArrival | None = None,
        forest_from: ForestPosition | None = None,
        story: Sequence[str] = (),
    ) -> Inspection:
        """Returns the inspection, with the route of a notification that a client publishes, or that
        arrives over a link; or a part of the forest of filters; or the transitions of a story.
        Raises ServiceError.
        """
        await self.reconnection.ready()
        asking = partial(
            frames.InspectRequest,
            notification=notification,
            arrival=arrival,
            forest_from=forest_from,
            story=tuple(story),
        )
        return (await self.reconnection.call(asking)).held  # type: ignore[no-any-return]

    async def story(self, identity: str) -> Story:
        from contrada.net.client.network_inspection import NetworkInspection

        await self.reconnection.ready()
        is_local = is_loopback(self.reconnection.address.host)
        reach = reach_with(self.reconnection.options)
        return await NetworkInspection(self, reach, is_local=is_local).story(identity)

    def on_frame(self, frame: Frame) -> None:
        """Handles a frame."""
        # Each class that a frame is not would cost a `case` a fifth of a microsecond.
        if type(frame) is frames.Delivery or type(frame) is frames.MatchDelivery:
            if subscription := self.in_force.get(frame.subscription):
                subscription.on_delivery(frame)
            return
        if type(frame) is Reply:
            self._on_reply(frame)
            return
        match frame:
            case frames.CutOff():
                if cut := self.in_force.pop(frame.subscription, None):
                    cut.on_cut_off(frame)
            case frames.Offers():
                self._offers.on_offers(frame)
            case frames.QuestionDelivery() | frames.AboutQuestions():
                self._query_client().on_frame(frame)
            case frames.LogReply() if self._durable is not None:
                self._durable.on_reply(frame)
            case frames.LogDelivery() if self._durable is not None:
                self._durable.on_delivery(frame)
            case frames.StatisticsReply() | frames.InspectReply():
                self.reconnection.answer(frame.number, frame)

    def _on_reply(self, frame: Reply) -> None:
        error = _refusal_of(frame, self.reconnection.address) if frame.code else None
        if self._publishing is not None and self._publishing.on_answer(frame.number, error):
            if frame.dropped:
                self._dropped[QUEUE_FULL] += frame.dropped
            return
        self.reconnection.answer(frame.number, frame, error)

    def on_lost(self, unanswered: ServiceError, unsent: ServiceError) -> None:
        """Fails all open publications, queries and durable requests."""
        if self._publishing is not None:
            self._publishing.fail(unanswered, unsent)
        if self._queries is not None:
            self._queries.lost("the connection to the broker was lost")
        if self._durable is not None:
            self._durable.on_lost(unsent)

    async def resume(self) -> None:
        """Restores all subscriptions at the broker of the new connection."""
        # All at once, so that no unsubscribe is sent in between.
        asked = [each.request_again(each.reset()) for each in self.in_force.values()]
        await self._offers.resume()
        if self._queries is not None:
            await self._queries.resume()
        await await_resumed(self.in_force, asked)
        if self._durable is not None:
            await self._durable.resume()

    @property
    def needs_connection(self) -> bool:
        """Whether subscriptions or durable requests wait for a connection."""
        durable = self._durable
        return bool(self.in_force) or (durable is not None and durable.needs_connection)

    def on_given_up(self, failure: ServiceError) -> None:
        """Ends all iterations after their queues: there will be no connection."""
        for subscription in list(self.in_force.values()):
            subscription.end(failure)
        self._offers.end(failure)
        if self._durable is not None:
            self._durable.give_up(failure)


def _refusal_of(frame: Reply, address: Address) -> ServiceError:
    refused = f"{address} refused: {frame.reason}"
    if frame.code == NotPermittedError.__name__:
        return NotPermittedError(refused, frame.refused)
    if frame.code == QuotaError.__name__:
        return QuotaError(refused, frame.retry_in_s)
    return ServiceError(refused)


def _is_reliable(notification: Notification) -> bool:
    """Returns whether a delivery class is above best effort. Raises InvalidValueError."""
    return delivery_class(notification.envelope.delivery).is_reliable


async def read_subscriptions(service: TcpService) -> list[HeldFilters]:
    """Returns all filters: those that do not change meanwhile exactly once.

    Raises ServiceError where the broker refuses, or has no such pages; ConnectionFailedError where
    the connection is lost, since another broker has other numbers. Cost: a round trip for each
    page; all filters are in memory.
    """
    requests, address = service.reconnection, service.connection.address
    await requests.ready()
    held: list[HeldFilters] = []
    begin: Position | None = (0, 0)
    while begin is not None:
        page = (await requests.call(partial(InspectRequest, page_from=begin))).page
        if page is None:
            raise ServiceError(
                f"{address} is of an earlier version, which does not list whole filters"
            )
        if page.following is not None and not begin < page.following:
            raise ServiceError(f"{address}: {page.following} follows the page from {begin}")
        held += page.held
        begin = page.following
    return held
