"""`ClientSession`: the broker side of one client: its subscriptions and publications.

Each subscription has a queue of its own (see `service.subscription_queue`). Its deliveries are
limited by credit, which the client grants as its subscriber reads. So a client always reads its
socket and holds a bounded amount, and an idle subscriber delays no other one. The publications of a
client are processed in order; each is answered when all its notifications are in the queues.
"""

from collections.abc import Callable, Generator, Iterator

from msgspec.structs import replace

from contrada.delivery.delivery_class import BEST_EFFORT
from contrada.errors import ContradaError, FrameError, LimitError, NotPermittedError, QuotaError
from contrada.matching.packed import Bundle
from contrada.model import Notification
from contrada.net.broker.durable_session import DurableSession
from contrada.net.broker.fair_scheduler import TURN_S, request_work
from contrada.net.broker.filter_entry import FilterEntry
from contrada.net.broker.ingress_queue import IngressQueue
from contrada.net.broker.inspector import Inspect
from contrada.net.broker.latencies import Latencies
from contrada.net.broker.server_connection import ServerConnection
from contrada.net.broker.session_offers import SessionOffers
from contrada.net.broker.session_queries import SessionQueries
from contrada.net.broker.session_queue import CREDIT_MAX, MatchQueue, SessionQueue
from contrada.net.broker.user_usage import LossBudget
from contrada.net.wire import frames
from contrada.net.wire.durable_messages import refusal
from contrada.net.wire.frames import Frame
from contrada.net.wire.message_codec import (
    PackedPublish,
    PackedSubscribe,
    is_subscription,
    read_request,
)
from contrada.net.wire.payload_codec import notifications_from, published_bundle, published_in_parts
from contrada.routing.delegation import SubscribePattern, UnsubscribePattern
from contrada.routing.router_messages import (
    Ask,
    Describe,
    Notifications,
    Publish,
    Undescribe,
    Unsubscribe,
)
from contrada.service.dispatch_routes import Route
from contrada.service.queued_subscription import TOO_SLOW
from contrada.service.security.permits import Permit
from contrada.service.security.principals import NOT_PERMITTED, OVER_QUOTA
from contrada.service.subscription_queue import ENTRY_BYTES, Passed


class ClientSession:
    """The state of one client."""

    def __init__(
        self,
        connection: ServerConnection,
        latencies: Latencies,
        counts: Callable[[], dict[str, int | dict[str, int]]],
        inspect: Inspect,
    ) -> None:
        """`counts` are the statistics of the broker, `inspect` answers its inspections."""
        self.connection, self.latencies = connection, latencies
        self._broker, self._counts, self._answer_inspection = connection.broker, counts, inspect
        self._dispatcher = connection.broker.dispatcher
        self._client = self._dispatcher.client()
        self._queues: dict[str, SessionQueue] = {}
        usage, per_s = connection.usage, connection.broker.limits.losses_per_s_max
        self.losses = usage.losses if usage else LossBudget(per_s, connection.clock)
        """Those of the user, or of the connection where the broker has no users."""
        self._entry = FilterEntry(connection, self._dispatcher)
        self._offers = SessionOffers(connection, self._client)
        self._leaving: list[Route[Passed]] = []
        # Apart from `_leaving`, whose last entry may be a route that is being entered.
        self._cut: list[Route[Passed]] = []
        self._has_left = False
        self._durable: DurableSession | None = None
        self._queries: SessionQueries | None = None
        self._refusals: dict[int, NotPermittedError] = {}
        self._ingress = IngressQueue(
            self._client, self._broker, answer=self._answer, end=connection.end, usage=usage
        )

    @property
    def held_bytes(self) -> int:
        """Bytes of publications in the ingress queues."""
        return self._ingress.held_bytes + (self._durable.held_bytes if self._durable else 0)

    def waiting(self) -> Iterator[tuple[str, int, int]]:
        """Yields the name, queue length and losses of each subscription."""
        for queue in self._queues.values():
            route = queue.route
            yield f"{route.client.name}/{route.identity}", len(queue), route.dropped

    def handle(self, frame: Frame) -> Generator[None] | None:
        """Handles a frame; a returned generator has the remaining steps, one for each turn."""
        match frame:
            case frames.FewPublished():
                size = ENTRY_BYTES * len(frame.notifications) + frame.size
                self._enqueue(frame, Publish(frame.notifications), size)
            case frames.Request():
                if is_subscription(frame.message):
                    return self._handle_subscriptions(frame)
                return self._handle_request(frame)
            case frames.LogRequest():
                return self._handle_durable(frame)
            case frames.Credit():
                self._add_credit(frame)
            case frames.AboutQuestions():
                return self._query_session().handle_frame(frame)
            case frames.StatisticsRequest():
                self._send_statistics(frame.number)
            case frames.InspectRequest():
                return self._inspect(frame)
        return None

    def _query_session(self) -> SessionQueries:
        if self._queries is None:
            self._queries = SessionQueries(self.connection, self._client)
        return self._queries

    def _handle_durable(self, request: frames.LogRequest) -> Generator[None] | None:
        if self._durable is None:
            try:
                self._durable = DurableSession(self.connection, self._client, self._broker.logs)
            except ContradaError as error:  # Its store cannot be opened.
                self._broker.refused[type(error).__name__] += 1
                self.connection.send(refusal(request.number, error))
                return None
        return self._durable.handle(request)

    def _send_statistics(self, number: int) -> None:
        try:
            if self.connection.permit is not None:
                self.connection.permit.check_inspect()
            self.connection.send(frames.StatisticsReply(number, self._counts()))
        except ContradaError as error:
            self._refuse(number, error)

    def _inspect(self, request: frames.InspectRequest) -> Generator[None]:
        permit = self.connection.permit
        try:
            if permit is not None:
                permit.check_inspect()
            self.connection.send((yield from self._answer_inspection(request, permit)))
        except ContradaError as error:
            self._refuse(request.number, error)

    @property
    def client(self) -> str:
        """The name of the client at the dispatcher."""
        return self._client.name

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions."""
        return len(self._queues)

    @property
    def held_subscriptions(self) -> int:
        """The number of subscriptions, and of durable ones that are read."""
        entering = sum(each.identity not in self._queues for each in self._leaving)
        return len(self._queues) + entering + (self._durable.readers if self._durable else 0)

    def _handle_request(self, request: frames.Request) -> Generator[None]:
        """Handles a request in steps; other connections may have a turn at each `yield`."""
        try:
            with request_work():
                bundle = published_bundle(request.message)
                message = read_request(request.message) if bundle is None else Publish(bundle)
            if isinstance(message, Publish | PackedPublish):
                yield from self._publish(request, message)
            elif isinstance(message, Unsubscribe | UnsubscribePattern):
                yield from self._unsubscribe(request, message.identity)
            elif self.connection.is_gone:
                return  # The connection ended while this request waited for its turn.
            elif isinstance(message, PackedSubscribe):
                yield from self._subscribe(request, message)
            elif isinstance(message, SubscribePattern):
                self._subscribe_pattern(request, message)
            elif isinstance(message, Describe | Undescribe | Ask):
                self._query_session().handle(request.number, message)
            else:
                self._offers.handle(request.number, message)
        except ContradaError as error:
            if self.connection.is_closed:
                raise  # The fault has ended the whole connection.
            self._refuse(request.number, error)

    def _handle_subscriptions(self, request: frames.Request) -> Generator[None] | None:
        """Handles a subscription, and those received behind it, in one step where possible."""
        received = self._entry.received_behind(request)
        return None if self._subscribe_each(received) else self._handle_singly(received)

    def _handle_singly(self, requests: list[frames.Request]) -> Generator[None]:
        """Handles subscriptions one after the other, each in a turn with its own answer."""
        for each in requests:
            yield  # Also before the first: the step that was refused had a whole budget.
            yield from self._handle_request(each)

    def _subscribe_each(self, requests: list[frames.Request]) -> bool:
        """Puts new subscriptions to one filter each in force, and answers them.

        Returns False, unchanged, where one is of another kind or refused, or stories record each.
        """
        if self.connection.is_gone or self._dispatcher.transitions is not None:
            return False
        try:
            self._check_room(len(requests))
            filters = self._entry.filters_of(requests, self._queues.keys())
            if filters is None:
                return False
            queues = [SessionQueue(self, each) for each in requests]
            for identity, queue in zip(filters, queues, strict=True):
                queue.route = self._dispatcher.prepare(self._client, identity, queue)
            if not self._entry.enter_each([each.route for each in queues], [*filters.values()]):
                return False
        except ContradaError:  # It is raised again for the one that it concerns.
            return False
        for request, queue in zip(requests, queues, strict=True):
            self._dispatcher.begin(queue.route)
            self._queues[queue.route.identity] = queue
            self.connection.send(frames.Reply(request.number))
        return True

    def _publish(self, request: frames.Request, given: Publish | PackedPublish) -> Generator[None]:
        permit, count = self.connection.permit, len(given.notifications)
        if permit is not None and permit.publishes_nothing and count:
            with request_work():  # The others are not worth the work.
                if isinstance(given, PackedPublish):
                    given = given.with_decoded(notifications_from(given.notifications[:1]))
                first = given.notifications[0]
            raise self._refusal(permit, first, [*range(count)])
        if isinstance(given, PackedPublish):
            read_in_parts = published_in_parts(given.notifications, request_work)
            given = given.with_decoded((yield from read_in_parts))
        if permit is not None:
            given = yield from self._keep_permitted(permit, request.number, given)
        _check_best_effort(given.notifications)
        self._enqueue(request, given)

    def _subscribe(self, request: frames.Request, message: PackedSubscribe) -> Generator[None]:
        if message.identity in self._queues:
            route = self._queues[message.identity].route
            if route.is_pattern:
                raise FrameError("repeated", f"subscription {message.identity} is to a pattern")
            yield from self._update(request, route, message)
            return
        self._check_room()
        queue = SessionQueue(self, request)
        queue.route = self._dispatcher.prepare(self._client, message.identity, queue)
        yield from self._enter(queue.route, message)
        self._leaving.pop()
        self._dispatcher.begin(queue.route)
        self._queues[message.identity] = queue
        self.connection.send(frames.Reply(request.number))

    def _check_room(self, count: int = 1) -> None:
        most = self._broker.limits.subscriptions_per_client_max
        if len(self._queues) + count > most:
            raise LimitError("subscriptions_per_client_max", most)
        if self.connection.usage is not None:
            self.connection.usage.check_subscription(count=count)

    def _subscribe_pattern(self, request: frames.Request, message: SubscribePattern) -> None:
        """Adds a pattern subscription."""
        if message.identity in self._queues:
            raise FrameError("repeated", f"subscription {message.identity} is in force already")
        patterns_max = self._broker.limits.patterns_per_client_max
        if sum(each.route.is_pattern for each in self._queues.values()) >= patterns_max:
            raise LimitError("patterns_per_client_max", patterns_max)
        self._check_room()
        if (permit := self.connection.permit) is not None:
            with request_work():
                message = replace(message, pattern=permit.allow_pattern(message.pattern))
        queue = MatchQueue(self, request)
        with request_work():
            queue.route = self._dispatcher.subscribe(self._client, message, queue)
        self._queues[message.identity] = queue
        self.connection.send(frames.Reply(request.number))

    def _update(
        self, request: frames.Request, route: Route[Passed], message: PackedSubscribe
    ) -> Generator[None]:
        """Replaces the filters of a subscription; the old ones are withdrawn afterwards."""
        draft = route.draft()
        yield from self._enter(draft, message)
        if not route.is_in_force:  # It was cut off meanwhile.
            while self._withdraw_some(self._leaving):
                yield
            raise _not_in_force(message.identity)
        self._dispatcher.replace(route, draft)
        self.connection.send(frames.Reply(request.number))
        while self._withdraw_some(self._leaving):
            yield

    def _enter(self, route: Route[Passed], message: PackedSubscribe) -> Generator[None]:
        """Enters the filters of a route, and withdraws it where one of them is refused."""
        self._leaving.append(route)
        try:
            yield from self._entry.enter_parts(route, message)
        except ContradaError:
            while self._withdraw_some(self._leaving):
                yield
            raise

    def _unsubscribe(self, request: frames.Request, identity: str) -> Generator[None]:
        queue = self._queues.pop(identity, None)
        if queue is None:
            raise _not_in_force(identity)
        self.connection.forget_feed(queue)
        self._end_queue(queue, "unsubscribed")
        self._leaving.append(queue.route)
        while self._withdraw_some(self._leaving):
            yield
        route = queue.route
        self.connection.send(frames.Reply(request.number, route.dropped, expired=route.expired))

    def cut_off(self, queue: SessionQueue) -> None:
        """Ends a subscription that does not keep up; its filters are withdrawn in turns."""
        route = queue.route
        del self._queues[route.identity]
        self.connection.forget_feed(queue)
        lost = self._end_queue(queue, TOO_SLOW)
        self._cut.append(route)
        dropped = route.dropped + lost
        self.connection.send(frames.CutOff(route.identity, dropped, route.expired, route.ended))
        self.connection.write()
        self.connection.soon(self._withdraw_cut_off)

    def _withdraw_cut_off(self) -> None:
        until_s = self.connection.clock() + TURN_S
        while self._withdraw_some(self._cut):
            if self.connection.clock() >= until_s:
                self.connection.soon(self._withdraw_cut_off)
                break

    def withdraw_all(self) -> None:
        """Drops the queues of the client at once, and withdraws its subscriptions in turns."""
        self._offers.end()
        if self._queries is not None:
            self._queries.end()
        for queue in self._queues.values():
            self._end_queue(queue, "connection ended")
            self._leaving.append(queue.route)
        self._queues.clear()
        if self._ingress.has_rate:  # They would wait in memory for nobody, one connection's each.
            self._broker.dropped[OVER_QUOTA] += self._ingress.forget()
        if self._durable is not None:
            self._durable.withdraw_all()
        self._withdraw_more()

    def forget(self) -> None:
        """Drops the publications of the client that are not processed yet."""
        self._ingress.forget()
        if self._durable is not None:
            self._durable.forget()

    def _withdraw_more(self) -> None:
        clock = self.connection.clock
        until_s = clock() + TURN_S
        while is_more := (
            self._withdraw_some(self._leaving)
            or self._withdraw_some(self._cut)
            or self._offers.withdraw_some()
        ):
            if clock() >= until_s:
                break
        if is_more:
            self.connection.soon(self._withdraw_more)
        elif self.connection.is_gone and not self._has_left:
            self._has_left = True
            self._dispatcher.leave(self._client)

    def _end_queue(self, queue: SessionQueue, reason: str) -> int:
        """Ends the deliveries of a subscription. Returns the number of lost notifications."""
        self._dispatcher.end(queue.route)
        lost = queue.route.note_dropped(reason, queue.discard())
        self._broker.dropped[reason] += lost
        return lost

    def _withdraw_some(self, leaving: list[Route[Passed]]) -> bool:
        """Withdraws a part of the last leaving subscription. Returns whether there is more."""
        if leaving and not self._dispatcher.withdraw(leaving[-1]):
            leaving.pop()
        return bool(leaving)

    def _add_credit(self, frame: frames.Credit) -> None:
        queue = self._queues.get(frame.subscription)
        if queue is None:
            return  # The client sent it before it had the answer to its unsubscribe.
        queue.credit = min(queue.credit + max(frame.credit, 0), CREDIT_MAX)
        if queue:
            self.connection.mark_ready(queue)

    def _enqueue(
        self, request: frames.Request | frames.FewPublished, message: Publish, size: int = 0
    ) -> None:
        if self._broker.is_stopping:
            return  # Left unanswered: after the goodbye its client counts it as unknown.
        try:
            self._ingress.add(request.number, request.wait_ms, message, size)
        except FrameError as error:
            self.connection.fail(error)
            raise

    def _keep_permitted(
        self, permit: Permit, number: int, message: Publish
    ) -> Generator[None, None, Publish]:
        """Returns the permitted part of a publication. Raises NotPermittedError where none is."""
        refused = yield from permit.unpublishable(message.notifications)
        if not refused:
            return message
        error = self._refusal(permit, message.notifications[refused[0]], refused)
        if (transitions := self._dispatcher.transitions) is not None:
            found = [message.notifications[at] for at in error.refused]
            transitions.refuse(self._client, str(error), found)
        if len(refused) == len(message.notifications):
            raise error
        self._refusals[number] = error
        left = set(range(len(message.notifications))).difference(refused)
        kept = tuple(message.notifications[at] for at in sorted(left))
        return replace(message, notifications=kept)

    def _refusal(
        self, permit: Permit, first: Notification, refused: list[int]
    ) -> NotPermittedError:
        """Counts refused notifications. Returns their error, with the reason of the first."""
        error = permit.why_unpublishable(first)
        error.refused = tuple(refused)
        self._broker.dropped[NOT_PERMITTED] += len(refused)
        return error

    def _answer(self, number: int, answer: int | ContradaError) -> None:
        """Answers a publication: with the number of dropped pairs, or with its refusal."""
        if self._refusals:
            answer = self._refusals.pop(number, answer)
        if isinstance(answer, ContradaError):
            self._refuse(number, answer)
        else:
            self.connection.send(frames.Reply(number, answer))
        self.connection.write()

    def _refuse(self, number: int, error: ContradaError) -> None:
        code = error.code if isinstance(error, FrameError) else type(error).__name__
        reason = self.connection.count_refused(code, error)
        refused = [*error.refused] if isinstance(error, NotPermittedError) else []
        later_s = error.retry_in_s if isinstance(error, QuotaError) else 0
        self.connection.send(frames.Reply(number, 0, code, reason, 0, refused, later_s))


def _not_in_force(identity: str) -> FrameError:
    return FrameError("unknown", f"subscription {identity} is not in force")


def _check_best_effort(notifications: Notifications) -> None:
    """Raises FrameError for a notification of another delivery class."""
    if type(notifications) is Bundle:  # It is best effort.
        return
    for each in notifications:
        if (delivery := each.envelope.delivery) != BEST_EFFORT:
            reason = f"a Request publishes at {BEST_EFFORT}; {delivery!r} wants a LogRequest"
            raise FrameError("unsupported", reason)
