"""A client as its broker sees it: its subscriptions and its publications.

Each subscription has a queue of its own (see `service.subscription_queue`). What leaves it is
limited by the credit that the client grants as its subscriber reads, so a client always reads its
socket, holds a bounded amount, and a subscription that nobody reads holds up no other one. The
publications of one publisher are worked off in order; each is answered when all of it is in the
queues.
"""

import logging
from collections.abc import Generator, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final, Protocol

from msgspec import Raw
from msgspec.structs import replace

from contrada.delivery.backlog import QueueEntry
from contrada.delivery.delivery_class import BEST_EFFORT
from contrada.errors import (
    ContradaError,
    FrameError,
    LimitError,
    NotPermittedError,
    UnsatisfiableFilterError,
    shortened,
)
from contrada.matching.packed import Bundle
from contrada.model import Notification
from contrada.model.codec import notification_from_msgpack
from contrada.model.languages.work_budget import Work
from contrada.net.broker.durable_session import DurableSession
from contrada.net.broker.fair_scheduler import REQUEST_WORK_MAX, TURN_S
from contrada.net.broker.ingress_queue import FEWER, IngressQueue, UndecidedNotification
from contrada.net.broker.inspector import inspected
from contrada.net.broker.latencies import Latencies
from contrada.net.broker.server_connection import ConnectionHost, ServerConnection
from contrada.net.broker.session_offers import SessionOffers
from contrada.net.broker.session_queries import SessionQueries
from contrada.net.wire.durable_messages import refusal
from contrada.net.wire.frames import (
    AboutQuestions,
    Credit,
    CutOff,
    Delivery,
    Frame,
    InspectReply,
    InspectRequest,
    LogRequest,
    MatchDelivery,
    Reply,
    Request,
    StatisticsReply,
    StatisticsRequest,
)
from contrada.net.wire.inspection import Inspection
from contrada.net.wire.message_codec import PackedSubscribe, unpacked
from contrada.net.wire.payload_codec import encoding_of, notifications_from, packed_match
from contrada.net.wire.subscription_pages import filter_page
from contrada.routing.delegation import SubscribePattern, UnsubscribePattern
from contrada.routing.router_messages import Ask, Describe, Publish, Undescribe, Unsubscribe
from contrada.service import trace_spans
from contrada.service.dispatcher import Route
from contrada.service.loop_guards import checked_when_full
from contrada.service.queued_subscription import TOO_SLOW
from contrada.service.security.permits import Permit
from contrada.service.security.principals import NOT_PERMITTED
from contrada.service.subscription_queue import BLOCK, ENTRY_BYTES, Passed, SubscriptionQueue

SUBSCRIPTIONS_PER_CLIENT_MAX: Final = 10_000
"""Subscriptions of a connection. Beyond it: it is refused, the connection stays."""

PATTERNS_PER_CLIENT_MAX: Final = 100
"""Subscriptions to patterns of a connection. Beyond it: it is refused, the connection stays."""

DELIVER_NOTIFICATIONS_MAX: Final = 512
"""Notifications in a Delivery. Beyond it: the next takes the rest."""

DELIVER_BYTES_MAX: Final = 256 * 1024
"""Bytes of notifications after which a Delivery takes no more. Beyond it: the next
takes the rest."""

FILTERS_PER_TURN: Final = 64
"""Filters of a subscription that are entered in one go. Beyond it: the other connections get a
turn."""

FILTER_BYTES_PER_TURN: Final = 8 * 1024
"""Bytes of undecided filters, after which no more are entered in one go. Beyond it: the other
connections get a turn."""

CREDIT_MAX: Final = 2**40
"""Bytes of credit of a subscription. Beyond it: it is cut to this."""

_LOG: Final = logging.getLogger(__name__)


class _SessionQueue(SubscriptionQueue[Passed]):
    """The queue of one subscription of a client, and the credit that is left."""

    __slots__ = ("_guest", "credit", "route")

    route: Route[Passed]

    def __init__(self, session: "ClientSession", request: Request) -> None:
        """Raises ServiceError."""
        asked: Any = request.when_full
        when_full = checked_when_full(asked) if asked else BLOCK
        super().__init__(budget=session.peer.budget, when_full=when_full)
        self.credit = min(max(request.credit, 0), CREDIT_MAX)
        self._guest = session

    def _append(self, entries: Sequence[QueueEntry[Passed]], size: int, is_plain: bool) -> None:
        super()._append(entries, size, is_plain)
        self._guest.peer.mark_ready(self)

    def cut_off(self) -> None:
        """Its client gets no more of this subscription."""
        self._guest.cut_off(self)

    def next_frame(self) -> Delivery | MatchDelivery | None:
        """As much as credit and the limits of a frame allow, or None."""
        most = min(self.credit, DELIVER_BYTES_MAX)
        batch, size = self.take_batch(DELIVER_NOTIFICATIONS_MAX, most)
        if not batch:
            return None
        self.credit -= size
        return self._frame_of(batch)

    def _frame_of(self, batch: Sequence[Any]) -> Delivery | MatchDelivery:
        packed = list(map(encoding_of, batch))
        self._guest.latencies.observe(packed[0])
        is_undecided = UndecidedNotification in map(type, packed)
        if is_undecided:
            packed = [bytes(each) for each in packed if self._may_go([each])]
        route = self.route
        if trace_spans.is_on:
            node = self._guest.peer.broker.dispatcher.router.name
            trace_spans.passed("deliver", node, route.client.name, packed)
        return Delivery(route.identity, route.dropped, packed, is_undecided, route.expired)

    def _may_go(self, packed: Sequence[bytes]) -> bool:
        """Whether what it is told of together may be read, also where that was not decided."""
        permit = self._guest.peer.permit
        if permit is None or UndecidedNotification not in map(type, packed):
            return True
        if not permit.unreadable([*map(notification_from_msgpack, packed)]):
            return True
        self._guest.peer.broker.dropped[NOT_PERMITTED] += len(packed)
        self.credit += sum(ENTRY_BYTES + len(each) for each in packed)
        return False


class _MatchFeed(_SessionQueue):
    """The queue of one subscription to a pattern."""

    __slots__ = ()

    def _frame_of(self, batch: Sequence[Any]) -> Delivery | MatchDelivery:
        is_undecided = any(
            type(each.packed) is UndecidedNotification
            for match in batch
            for each in match.notifications
        )
        if is_undecided:
            batch = [it for it in batch if self._may_go([*map(encoding_of, it.notifications)])]
        route = self.route
        matches = [*map(packed_match, batch)]
        self._guest.latencies.observe(matches[0][1][0])
        return MatchDelivery(route.identity, route.dropped, matches, is_undecided, route.expired)


class SessionHost(ConnectionHost, Protocol):
    """What clients need of their broker."""

    latencies: Latencies

    def counts(self) -> dict[str, int | dict[str, int]]:
        """What the broker did so far: its statistics by name."""
        ...

    def clients(self) -> dict[str, int]:
        """How many subscriptions each of its clients has."""
        ...


class ClientSession:
    """What one client asks for."""

    def __init__(self, peer: ServerConnection, broker: SessionHost) -> None:
        self.peer = peer
        self.latencies = broker.latencies
        self._broker = broker
        self._exchange = peer.broker.dispatcher
        self._client = self._exchange.client()
        self._feeds: dict[str, _SessionQueue] = {}
        self._offers = SessionOffers(peer, self._exchange, self._client)
        self._leaving: list[Route[Passed]] = []
        # Routes cut off. Apart from `_leaving`, whose last entry may be a route that is being
        # entered.
        self._cut: list[Route[Passed]] = []
        self._has_left = False
        self._logs: DurableSession | None = None
        self._questions: SessionQueries | None = None
        self._refusals: dict[int, NotPermittedError] = {}
        self._accepted = IngressQueue(
            self._exchange, self._client, self._broker, answer=self._answer, end=peer.end
        )

    @property
    def held_bytes(self) -> int:
        """What waits to be worked off."""
        return self._accepted.held_bytes + (self._logs.held_bytes if self._logs else 0)

    def waiting(self) -> Iterator[tuple[str, int, int]]:
        """Of each subscription by client and identity: how many wait for it, and how many it lost.

        Cost: the number of subscriptions.
        """
        for feed in self._feeds.values():
            route = feed.route
            yield f"{route.client.name}/{route.identity}", len(feed), route.dropped

    def handle(self, frame: Frame) -> Generator[None] | None:
        """Does what a frame asks for; what is given is still to be done, in turns."""
        match frame:
            case Request():
                return self._asked(frame)
            case LogRequest():
                return self._promised(frame)
            case Credit():
                self._grant(frame)
            case AboutQuestions():
                return self._questioned().told(frame)
            case StatisticsRequest():
                self._tell_counts(frame.number)
            case InspectRequest():
                return self._inspect(frame)
        return None

    def _questioned(self) -> SessionQueries:
        if self._questions is None:
            self._questions = SessionQueries(self.peer, self._exchange, self._client)
        return self._questions

    def _promised(self, request: LogRequest) -> Generator[None] | None:
        if self._logs is None:
            try:
                self._logs = DurableSession(self.peer, self._client, self._broker.logs)
            except ContradaError as error:  # Its store cannot be opened.
                self._broker.refused[type(error).__name__] += 1
                self.peer.send(refusal(request.number, error))
                return None
        return self._logs.handle(request)

    def _tell_counts(self, number: int) -> None:
        try:
            if self.peer.permit is not None:
                self.peer.permit.check_inspect()
            self.peer.send(StatisticsReply(number, self._broker.counts()))
        except ContradaError as error:
            self._refuse(number, error)

    def _inspect(self, request: InspectRequest) -> Generator[None]:
        router = self._exchange.router
        try:
            if self.peer.permit is not None:
                self.peer.permit.check_inspect()
            if request.page_from is not None:
                page = yield from filter_page(router, self._broker.logs, request.page_from)
                nothing = Inspection(router.name, {}, [], {}, [], [])
                self.peer.send(InspectReply(request.number, nothing, page))
                return
            notification = None
            if request.notification:
                with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
                    (notification,) = notifications_from([request.notification])
            held = yield from inspected(router, self._broker.clients(), notification)
            self.peer.send(InspectReply(request.number, held))
        except ContradaError as error:
            self._refuse(request.number, error)

    @property
    def client(self) -> str:
        """What the exchange calls it."""
        return self._client.name

    @property
    def subscriptions(self) -> int:
        """How many it has."""
        return len(self._feeds)

    def _asked(self, request: Request) -> Generator[None]:
        """Carries out a request; where it yields the others may have a turn."""
        try:
            with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
                message = unpacked(request.message)
            if isinstance(message, Publish):
                if self.peer.permit is not None:
                    message = yield from self._permitted(self.peer.permit, request.number, message)
                self._accept(request, message)
            elif isinstance(message, Unsubscribe | UnsubscribePattern):
                yield from self._unsubscribe(request, message.identity)
            elif self.peer.is_gone:
                return  # It has ended while this waited for its turn.
            elif isinstance(message, PackedSubscribe):
                yield from self._subscribe(request, message)
            elif isinstance(message, SubscribePattern):
                self._watch(request, message)
            elif isinstance(message, Describe | Undescribe | Ask):
                self._questioned().asked(request.number, message)
            else:
                self._offers.asked(request.number, message)
        except ContradaError as error:
            if self.peer.is_closed:
                raise  # It was the fault of the whole connection.
            self._refuse(request.number, error)

    def _subscribe(self, request: Request, message: PackedSubscribe) -> Generator[None]:
        if message.identity in self._feeds:
            route = self._feeds[message.identity].route
            if route.is_pattern:
                raise FrameError("repeated", f"subscription {message.identity} is to a pattern")
            yield from self._update(request, route, message)
            return
        if len(self._feeds) >= SUBSCRIPTIONS_PER_CLIENT_MAX:
            raise LimitError("SUBSCRIPTIONS_PER_CLIENT_MAX", SUBSCRIPTIONS_PER_CLIENT_MAX)
        feed = _SessionQueue(self, request)
        feed.route = self._exchange.prepare(self._client, message.identity, feed)
        yield from self._enter(feed.route, message)
        self._leaving.pop()
        self._exchange.begin(feed.route)
        self._feeds[message.identity] = feed
        self.peer.send(Reply(request.number))

    def _watch(self, request: Request, message: SubscribePattern) -> None:
        """Puts a subscription to a pattern in force."""
        if message.identity in self._feeds:
            raise FrameError("repeated", f"subscription {message.identity} is in force already")
        if sum(each.route.is_pattern for each in self._feeds.values()) >= PATTERNS_PER_CLIENT_MAX:
            raise LimitError("PATTERNS_PER_CLIENT_MAX", PATTERNS_PER_CLIENT_MAX)
        if len(self._feeds) >= SUBSCRIPTIONS_PER_CLIENT_MAX:
            raise LimitError("SUBSCRIPTIONS_PER_CLIENT_MAX", SUBSCRIPTIONS_PER_CLIENT_MAX)
        if (permit := self.peer.permit) is not None:
            with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
                message = replace(message, pattern=permit.watched(message.pattern))
        feed = _MatchFeed(self, request)
        with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
            feed.route = self._exchange.subscribe(self._client, message, feed)
        self._feeds[message.identity] = feed
        self.peer.send(Reply(request.number))

    def _update(
        self, request: Request, route: Route[Passed], message: PackedSubscribe
    ) -> Generator[None]:
        """A subscription asks for something else; what it asked for before leaves afterwards."""
        draft = self._exchange.draft(route)
        yield from self._enter(draft, message)
        if not route.is_in_force:  # It was cut off meanwhile.
            while self._withdraw_some(self._leaving):
                yield
            raise _not_in_force(message.identity)
        self._exchange.replace(route, draft)
        self.peer.send(Reply(request.number))
        while self._withdraw_some(self._leaving):
            yield

    def _enter(self, route: Route[Passed], message: PackedSubscribe) -> Generator[None]:
        """Enters the filters of a route that is to leave again, should not all be taken."""
        self._leaving.append(route)
        try:
            yield from self._enter_parts(route, message)
        except ContradaError:
            while self._withdraw_some(self._leaving):
                yield
            raise

    def _enter_parts(self, route: Route[Passed], message: PackedSubscribe) -> Generator[None]:
        """Enters the filters of a subscription, in parts."""
        members = message.members()
        done, size = 0, FILTERS_PER_TURN
        nothing: UnsatisfiableFilterError | NotPermittedError | None = None
        while done < len(members):
            part = _up_to(FILTER_BYTES_PER_TURN, members[done : done + size])
            permit = self.peer.permit  # It may have changed since the last turn.
            try:
                with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
                    asked = message.part(part)
                    if permit is not None:
                        asked = replace(asked, filters=permit.subscribed(asked.filters))
                    self._exchange.enter(route, asked)
                _LOG.debug(
                    "client %(peer)s subscribed to %(filters)s",
                    {"peer": self.peer.name, "filters": asked.filters},
                )
            except UnsatisfiableFilterError as error:
                nothing = error  # Others may be satisfiable.
            except NotPermittedError as error:
                if permit is not None and not permit.principal.narrows:
                    raise
                nothing = error  # Others may be permitted.
            except LimitError as error:
                if error.limit != "REQUEST_WORK_MAX" or len(part) == 1:
                    raise
                size = max(1, len(part) // FEWER)
                part = []
            done += len(part)
            if done < len(members):
                yield
        if nothing is not None and not route.names:
            raise nothing

    def _unsubscribe(self, request: Request, identity: str) -> Generator[None]:
        feed = self._feeds.pop(identity, None)
        if feed is None:
            raise _not_in_force(identity)
        self.peer.forget_feed(feed)
        self._end_feed(feed, "unsubscribed")
        self._leaving.append(feed.route)
        while self._withdraw_some(self._leaving):
            yield
        route = feed.route
        self.peer.send(Reply(request.number, route.dropped, expired=route.expired))

    def cut_off(self, feed: _SessionQueue) -> None:
        """Ends a subscription that does not keep up; it is taken out in turns."""
        route = feed.route
        del self._feeds[route.identity]
        self.peer.forget_feed(feed)
        lost = self._end_feed(feed, TOO_SLOW)
        self._cut.append(route)
        self.peer.send(CutOff(route.identity, route.dropped + lost, route.expired))
        self.peer.write()
        self.peer.soon(self._withdraw_cut_off)

    def _withdraw_cut_off(self) -> None:
        until_s = self.peer.clock() + TURN_S
        while self._withdraw_some(self._cut):
            if self.peer.clock() >= until_s:
                self.peer.soon(self._withdraw_cut_off)
                break

    def withdraw_all(self) -> None:
        """Forgets at once what waits for the client, and takes out all it asked for in turns."""
        self._offers.end()
        if self._questions is not None:
            self._questions.end()
        for feed in self._feeds.values():
            self._end_feed(feed, "connection ended")
            self._leaving.append(feed.route)
        self._feeds.clear()
        if self._logs is not None:
            self._logs.withdraw_all()
        self._withdraw_more()

    def forget(self) -> None:
        """Forgets at once what the client has published and is not worked off."""
        self._accepted.forget()
        if self._logs is not None:
            self._logs.forget()

    def _withdraw_more(self) -> None:
        clock = self.peer.clock
        until_s = clock() + TURN_S
        while is_more := (
            self._withdraw_some(self._leaving)
            or self._withdraw_some(self._cut)
            or self._offers.withdraw_some()
        ):
            if clock() >= until_s:
                break
        if is_more:
            self.peer.soon(self._withdraw_more)
        elif self.peer.is_gone and not self._has_left:
            self._has_left = True
            self._exchange.leave(self._client)

    def _end_feed(self, feed: _SessionQueue, reason: str) -> int:
        """Deliver nothing more of a subscription, which is still to be taken out.

        How many waited for it and are lost.
        """
        self._exchange.end(feed.route)
        lost = feed.discard()
        self._broker.dropped[reason] += lost
        return lost

    def _withdraw_some(self, leaving: list[Route[Passed]]) -> bool:
        """Takes out a part of the last of the subscriptions that leave; whether there is more."""
        if leaving and not self._exchange.withdraw(leaving[-1]):
            leaving.pop()
        return bool(leaving)

    def _grant(self, frame: Credit) -> None:
        feed = self._feeds.get(frame.subscription)
        if feed is None:
            return  # It was sent before the client had the answer to its unsubscribe.
        feed.credit = min(feed.credit + max(frame.credit, 0), CREDIT_MAX)
        if feed:
            self.peer.mark_ready(feed)

    def _accept(self, request: Request, message: Publish) -> None:
        if self._broker.is_stopping:
            return  # Unanswered: after the goodbye its client counts it as unknown.
        if not isinstance(message.notifications, Bundle):  # What is in one is best effort.
            _check_best_effort(message.notifications)
        try:
            self._accepted.add(request.number, request.wait_ms, message)
        except FrameError as error:
            self.peer.fail(error)
            raise

    def _permitted(
        self, permit: Permit, number: int, message: Publish
    ) -> Generator[None, None, Publish]:
        """What may be published of it; what is refused costs the others nothing.

        Raises NotPermittedError where that is all of it.
        """
        refused = yield from permit.unpublishable(message.notifications)
        if not refused:
            return message
        error = permit.why_unpublishable(message.notifications[refused[0]])
        error.refused = tuple(refused)
        self._broker.dropped[NOT_PERMITTED] += len(refused)
        if len(refused) == len(message.notifications):
            raise error
        self._refusals[number] = error
        left = set(range(len(message.notifications))).difference(refused)
        kept = tuple(message.notifications[at] for at in sorted(left))
        return replace(message, notifications=kept)

    def _answer(self, number: int, answer: int | ContradaError) -> None:
        """What is published was worked off: so many were dropped, or it was refused."""
        if self._refusals:
            answer = self._refusals.pop(number, answer)
        if isinstance(answer, ContradaError):
            self._refuse(number, answer)
        else:
            self.peer.send(Reply(number, answer))
        self.peer.write()

    def _refuse(self, number: int, error: ContradaError) -> None:
        code = error.code if isinstance(error, FrameError) else type(error).__name__
        self._broker.refused[code] += 1
        reason = shortened(str(error))
        _LOG.info(
            "client %(peer)s of %(user)s is refused a request: %(reason)s",
            {"peer": self.peer.name, "user": self.peer.user, "code": code, "reason": reason},
        )
        refused = [*error.refused] if isinstance(error, NotPermittedError) else []
        self.peer.send(Reply(number, code=code, reason=reason, refused=refused))


def _not_in_force(identity: str) -> FrameError:
    return FrameError("unknown", f"subscription {identity} is not in force")


def _check_best_effort(notifications: Sequence[Notification]) -> None:
    """Raises FrameError for what a Request would carry without its promise."""
    for each in notifications:
        delivery = each.envelope.delivery
        if delivery != BEST_EFFORT:
            reason = f"a Request publishes at {BEST_EFFORT}; {delivery!r} wants a LogRequest"
            raise FrameError("unsupported", reason)


def _up_to(bytes_max: int, members: list[Raw]) -> list[Raw]:
    """The first of these, ended by one that reaches a limit."""
    sizes = accumulate(map(len, members))
    return members[: 1 + sum(1 for _ in takewhile(bytes_max.__gt__, sizes))]
