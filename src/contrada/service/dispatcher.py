"""`Dispatcher`: a router with the queues of its clients' subscriptions and of its links.

The embedded service and the broker have one each: a server of the network. It passes messages of
clients and neighbours to the `Router` as events, and fills queues with the notifications and
matches that the router delivers or forwards, one for each subscription and link. The other messages
to a neighbour are sent at once.

A subscription may consist of parts, each a subscription of the router under a name that only the
dispatcher knows. It is in force when all parts are entered, and until the first is withdrawn.

Invariant: the parts named in `routes` are in force; all subscriptions of clients in the
router are parts of routes.

Source: PODC 2000 §2 (clients and their access point).
"""

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import structs

from contrada.delivery.backlog import QueueEntry
from contrada.errors import ContradaError, LimitError, ServiceError, UnknownOperatorError
from contrada.model import Filter
from contrada.model.languages.atoms import failures
from contrada.model.languages.decision import safe_answers
from contrada.routing import router_messages as messages
from contrada.routing.delegation import SubscribePattern, UnsubscribePattern
from contrada.routing.router import Router
from contrada.routing.router_messages import Notifications
from contrada.routing.tables.poset import form_of
from contrada.service.clock import Deadlines, monotonic_us, wall_clock_us
from contrada.service.dispatch_routes import (
    LINK_DOWN,
    Carried,
    LinkRoute,
    Pending,
    Route,
    Turn,
    Waited,
    first_turn,
)
from contrada.service.interface import ServiceStatistics
from contrada.service.service_limits import ServiceLimits
from contrada.service.subscription_queue import (
    QUEUE_FULL,
    SubscriptionQueue,
    entries_of,
    size_of_all,
)
from contrada.service.transition_log import Entered, TransitionLog, WatchedRouter

P = TypeVar("P")

UPKEEP_UNITS: Final = 8
"""Units of the router's upkeep for each subscription that ends."""

UPKEEP_UNITS_OF_NOTIFICATION: Final = 2
"""Units of upkeep with each notification, so that the index adapts to the publications."""

NOTIFICATIONS_PER_UPKEEP: Final = 16
"""Notifications with a common upkeep: the call costs more than a unit."""

WAITS_PER_TURN: Final = 256
"""Full queues that a publisher begins to wait for in one go. Beyond it: other tasks get a turn."""

DUPLICATE: Final = "duplicate"
"""Reason of a drop: the notification was published before."""

EXPIRED_ON_ARRIVAL: Final = "expired on arrival"
"""Reason of a drop: the time to live was over before the match."""


Listener: TypeAlias = Callable[[messages.DeliverQuestion | messages.NotifyClient], None]
"""Called with each query for a client's sources, and each answer to its own."""

_Unfinished: TypeAlias = tuple[list[Pending[Any]], list[messages.Refused]]
"""Entries without room, and refusals."""

_FilledQueues: TypeAlias = dict[Route[Any] | LinkRoute, list[Sequence[QueueEntry[Any]]]]
"""The runs of entries for each queue."""


class Dispatcher:
    """Has a router match publications, and fills the queues of the subscriptions."""

    def __init__(
        self, router: Router | None = None, limits: ServiceLimits = ServiceLimits()
    ) -> None:
        """`router` must be new; without one it is a server of no network."""
        self.limits = limits
        bounds = limits.transitions_max, limits.transition_bytes_max
        self.transitions = TransitionLog(*bounds) if all(bounds) else None
        """The recent events, for stories."""
        self.router = router or new_router()
        """To be read only: its events go through the dispatcher."""
        log = self.transitions
        self._events = self.router if log is None else WatchedRouter(self.router, log)
        self._links: dict[messages.Neighbour, LinkRoute] = {}
        self.routes: dict[str, dict[str, Route[Any]]] = {}
        """The parts in force of each client, by name, with their routes; to be read only."""
        self._names = itertools.count(1)
        self._subscriptions = self._patterns = 0
        self._published = self._since_upkeep = self._matched = 0
        self._dropped: Counter[str] = Counter()
        self._slow: dict[messages.Client, None] = {}
        self._is_turn_due = False
        self.on_due: Callable[[int], None] | None = None
        """Called with `due_us` when patterns wait for a time to pass."""
        self._listeners: dict[str, Listener] = {}
        self._deadlines = Deadlines(lambda: self.router.question_due_us, self._expire_questions)
        self.on_offer: dict[Hashable, messages.Offer] = {}
        """The advertisements on offer, by their form."""
        self.followers: dict[Callable[[messages.Offer, bool], None], None] = {}
        """Called with each advertisement that changes, and whether it is on offer."""

    def client(self) -> messages.Client:
        """A new client."""
        client = messages.Client(str(next(self._names)))
        self.routes[client.name] = {}
        return client

    def leave(self, client: messages.Client) -> None:
        """Ends the subscriptions of a client that is gone."""
        for route in dict.fromkeys(self.routes[client.name].values()):
            self.unsubscribe(route)
        del self.routes[client.name]
        if self._listeners.pop(client.name, None) is not None and self.router.knows(client):
            self._carry_out(self._events.handle(messages.ClientGone(client), wall_clock_us()))
            self._reroute()

    def subscribe(
        self,
        client: messages.Client,
        request: messages.Subscribe | SubscribePattern,
        queue: SubscriptionQueue[P],
    ) -> Route[P]:
        """Puts a subscription in force. Raises as `prepare` and `enter`."""
        is_pattern = isinstance(request, SubscribePattern)
        route = self.prepare(client, request.identity, queue, is_pattern=is_pattern)
        self.enter(route, request)
        self.begin(route)
        return route

    def prepare(
        self,
        client: messages.Client,
        identity: str,
        queue: SubscriptionQueue[P],
        *,
        is_pattern: bool = False,
    ) -> Route[P]:
        """A route without parts. Raises LimitError."""
        if self._subscriptions >= self.limits.subscriptions_max:
            raise LimitError("subscriptions_max", self.limits.subscriptions_max)
        if len(identity) > messages.LABEL_CHARS_MAX:
            raise LimitError("LABEL_CHARS_MAX", messages.LABEL_CHARS_MAX, len(identity))
        parts = is_pattern, self._dropped, self._slow, self.transitions
        route = Route(client, identity, queue, *parts)
        queue.keeper = route
        return route

    def enter(self, route: Route[Any], request: messages.Subscribe | SubscribePattern) -> None:
        """Adds a part to a route; nothing is delivered for it until `begin`.

        Raises LimitError, UnknownOperatorError, UnsatisfiableFilterError, without a change.
        """
        name = str(next(self._names))
        if isinstance(request, messages.Subscribe):
            for operator in request.filters.unknown():
                raise UnknownOperatorError(operator)
        if self.transitions is not None:
            self.transitions.note(Entered(route.client.name, route.identity, name))
        self.request(route.client, structs.replace(request, identity=name))
        route.names += (name,)

    def enter_each(self, routes: Sequence[Route[Any]], filters: Sequence[Filter]) -> bool:
        """As `enter` of one filter for each route of a client, in one step.

        Returns False, unchanged, where one may be refused. Not for stories, which record each.
        """
        is_full = self._subscriptions + len(routes) > self.limits.subscriptions_max
        if is_full or any(map(Filter.unknown, filters)):
            return False
        named = {str(next(self._names)): each for each in filters}
        effects = self.router.subscribe_each(routes[0].client, named)
        if effects is None:
            return False
        self._carry_out(effects)
        for name, route in zip(named, routes, strict=True):
            route.names = (name,)
        return True

    def replace(self, route: Route[Any], draft: Route[Any]) -> None:
        """Exchanges the parts of a route and its draft at once, without a gap.

        The former parts are out of force then, and to be withdrawn.
        """
        known = self.routes[route.client.name]
        for name in route.names:
            del known[name]
        route.names, draft.names = draft.names, route.names
        known.update(dict.fromkeys(route.names, route))

    def begin(self, route: Route[Any]) -> None:
        """Puts a route in force, once all its parts are entered."""
        self.routes[route.client.name].update(dict.fromkeys(route.names, route))
        route.is_in_force = True
        self._subscriptions += 1
        self._patterns += route.is_pattern

    @property
    def due_us(self) -> int | None:
        """The time that must pass before patterns can continue; None if none waits."""
        # Patterns that are assembled for a neighbour wait for the time in the neighbour's request.
        return self.router.due_us if self._patterns else None

    def pass_time(self, time_us: int) -> list[Pending[Any]]:
        """Tells patterns that no earlier notification will be published."""
        return self._carry_out(self._events.handle(messages.TimePassed(time_us), time_us))[0]

    def unsubscribe(self, route: Route[Any]) -> None:
        """Withdraws a subscription; a second call does nothing. Waiting publishers continue."""
        self.end(route)
        while self.withdraw(route):
            pass

    def end(self, route: Route[Any]) -> None:
        """Stops deliveries for a route, twice without effect. Its parts are to be withdrawn."""
        if route.is_in_force:
            route.is_in_force = False
            for name in route.names:
                del self.routes[route.client.name][name]
            self._subscriptions -= 1
            self._patterns -= route.is_pattern
        route.queue.finish()

    def withdraw(self, route: Route[Any]) -> bool:
        """Withdraws one part of a route that is not in force; returns whether there are more."""
        if route.names:
            withdrawal = UnsubscribePattern if route.is_pattern else messages.Unsubscribe
            name, route.names = route.names[-1], route.names[:-1]
            self.request(route.client, withdrawal(name))
            self.router.maintain(UPKEEP_UNITS)  # In pieces: all at once would block the loop.
        return bool(route.names)

    def publish(
        self, client: messages.Client, message: messages.Publish, now_us: int
    ) -> list[Pending[Any]]:
        """As `take`, but raises the error of a refused notification."""
        pending, error = self.take(client, message, now_us)
        if error is not None:
            raise error
        return pending

    def take(
        self,
        origin: messages.Origin,
        message: messages.Publish,
        now_us: int,
        later: list[Turn] | None = None,
    ) -> tuple[list[Pending[Any]], ContradaError | None]:
        """Matches and delivers at once; returns the entries without room, matches of patterns
        included.

        Deliveries beyond those of one turn are added to `later`, if it is given, for `wait`. The
        caller awaits that before its next notification, which keeps the order. The second result is
        the error of the first refusal. A client's duplicate is dropped without an error; a
        neighbour's link gets its refusals. Cost: one match for each notification, and little for
        each entry of a queue.
        """
        effects = self._events.publish(origin, message, now_us)
        count = len(message.notifications)
        self._since_upkeep += count
        if self._since_upkeep >= NOTIFICATIONS_PER_UPKEEP:
            self.router.maintain(self._since_upkeep * UPKEEP_UNITS_OF_NOTIFICATION)
            self._since_upkeep = 0
        has_work = effects or self._patterns
        pending, refused = self._carry_out(effects, later) if has_work else ([], [])
        if type(origin) is messages.Neighbour:
            for each in refused:
                self._links[origin].refuse(each)
            return pending, None
        self._published += count
        if not refused:  # As mostly.
            return pending, None
        faults = [each for each in refused if each.reason is not messages.Reason.DUPLICATE]
        self._dropped[DUPLICATE] += len(refused) - len(faults)
        return pending, _error_of(faults[0]) if faults else None

    def _carry_out(
        self, effects: Sequence[messages.Effect], later: list[Turn] | None = None
    ) -> _Unfinished:
        """Carries out effects; returns entries without room, and refusals; `later` as in `take`."""
        first = effects[0] if len(effects) == 1 and not self._patterns else None
        if type(first) is messages.Deliver and len(first.subscriptions) == 1:  # As mostly.
            pending: list[Pending[Any]] = []
            found = first.notifications
            only = self.routes.get(first.client.name, {}).get(first.subscriptions[0])
            if only is not None and only.queue.take_whole(found):
                self._matched += len(found)
            elif only is not None:
                self._offer(only, entries_of(found), pending)
            return pending, []
        if later is not None:
            effects = first_turn(effects, later, self.routes, self.limits.deliveries_per_turn)
        # A queue is filled once for a batch, also if other subscriptions match in between.
        filled: _FilledQueues = {}
        refused: list[messages.Refused] = []
        for effect in effects:
            if isinstance(effect, messages.Deliver):
                known = self.routes.get(effect.client.name, {})  # None of a client that left.
                _add_entries(filled, map(known.get, effect.subscriptions), effect.notifications)
            elif isinstance(effect, messages.Send):
                _add_message(filled, self._links[effect.to], effect.message)
            elif isinstance(effect, messages.DeliverMatch):
                _add_match(filled, self.routes[effect.client.name], effect)
            elif isinstance(effect, messages.PatternEnded):
                _end_pattern(self.routes[effect.client.name].get(effect.subscription))
            elif isinstance(effect, messages.Refused):
                refused.append(effect)
            elif isinstance(effect, messages.OfferChanged):
                _report(effect, self.on_offer, self.followers)
            else:
                self._listeners[effect.client.name](effect)
        if self._patterns and self.on_due is not None and (due_us := self.due_us) is not None:
            self.on_due(due_us)
        return self._fill(filled) if filled else [], refused

    def _fill(self, filled: _FilledQueues) -> list[Pending[Any]]:
        """Fills queues; returns the entries that must wait for room."""
        pending: list[Pending[Any]] = []
        for place, runs in filled.items():  # Mostly one run, which needs no copy.
            run = runs[0] if len(runs) == 1 else [*itertools.chain.from_iterable(runs)]
            self._offer(place, run, pending)
        return pending

    def _offer(
        self,
        place: Route[Any] | LinkRoute,
        run: Sequence[QueueEntry[Any]],
        pending: list[Pending[Any]],
    ) -> None:
        """Fills one queue; adds the entries that must wait for room to `pending`."""
        if place.queue.finished:
            if isinstance(place, LinkRoute):
                place.note_lost(LINK_DOWN, run)
            return
        self._matched += len(run) if isinstance(place, Route) else 0
        taken = place.queue.offer_all(run)
        if taken < len(run):
            pending.append(Pending(place, run[taken:]))

    # --- neighbours ---------------------------------------------------------------------------

    def link_up(
        self,
        event: messages.LinkUp,
        queue: SubscriptionQueue[Carried],
        say: Callable[[messages.Message], None],
        refuse: Callable[[messages.Refused], None],
    ) -> LinkRoute:
        """Adds the link to a neighbour. Raises ServiceError, LimitError on a refusal."""
        link = LinkRoute(event.neighbour, queue, say, refuse, self._dropped, self.transitions)
        queue.keeper = link
        self._links[event.neighbour] = link
        _, refused = self._carry_out(self._events.handle(event, wall_clock_us()))
        for each in refused:
            if each.event == event and each.reason is not messages.Reason.LOOP:
                del self._links[event.neighbour]
                raise _error_of(each)
            refuse(each)  # A link that closes a loop is kept, unused.
        self._reroute()
        return link

    def link_down(self, link: LinkRoute) -> None:
        """Removes a link; a second call does nothing."""
        if link.is_in_force:
            link.close()
            link.is_in_force = False
            effects = self._events.handle(messages.LinkDown(link.neighbour), wall_clock_us())
            del self._links[link.neighbour]
            _count_lost(self._carry_out(effects)[0])
            self._reroute()

    def _reroute(self) -> None:
        """Has the router route registrations anew, some in each turn of the loop."""
        if self.router.is_rerouting and not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._pass_turn)

    def _pass_turn(self) -> None:
        self._is_turn_due = False
        self._carry_out(self._events.handle(messages.TurnPassed(), wall_clock_us()))
        self._reroute()

    def receive(self, link: LinkRoute, message: messages.Message) -> list[Pending[Any]]:
        """Handles any message of a neighbour but Publish. Returns matches without room."""
        pending, refused = self._pass_on(link.neighbour, message)
        self.router.maintain(UPKEEP_UNITS)
        if isinstance(message, messages.Ask):
            self._deadlines.look()
        for each in refused:
            link.refuse(each)
        return pending

    def request(self, client: messages.Client, message: messages.Message) -> None:
        """Passes any other request of a client to the router, and its effects to neighbours.

        Raises the error of a refusal: LimitError, UnsatisfiableFilterError, ServiceError. Messages
        about a query, from a client that listens, are never refused.
        """
        pending, refused = self._pass_on(client, message)
        _count_lost(pending)
        if refused:
            raise _error_of(refused[0])

    def _pass_on(self, origin: messages.Origin, message: messages.Message) -> _Unfinished:
        event = messages.Received(origin, message)
        done = self._carry_out(self._events.handle(event, _now_us_for(message)))
        if not isinstance(message, messages.QuestionMessage):
            self._reroute()
        return done

    # --- questions ----------------------------------------------------------------------------

    def listen(self, client: messages.Client, tell: Listener) -> None:
        """Reports queries to a client's sources, and answers to its own, to the client."""
        self._listeners[client.name] = tell

    def ask(self, client: messages.Client, question: messages.Ask) -> None:
        """Sends a query to the sources with a description that it meets, here and over links.

        The client must listen. Raises LimitError, UnsatisfiableFilterError, ServiceError.
        """
        self.request(client, question)
        self.router.maintain_descriptions(4 * UPKEEP_UNITS)  # The query looks at all of them.
        self._deadlines.look()

    def _expire_questions(self) -> None:
        self._carry_out(self.router.handle(messages.DeadlinePassed(), monotonic_us()))

    async def wait(
        self, unfinished: Sequence[Pending[Any] | Turn], wait_s: float, until_s: float = inf
    ) -> Waited:
        """Delivers what is left, waiting for room.

        All are waited for concurrently, so that many dead readers delay no more than one. See
        `SubscriptionQueue.put` for `until_s`.
        """
        if len(unfinished) == 1 and isinstance(only := unfinished[0], Pending):  # It needs no task.
            is_held_up = only.route.queue.is_held_up
            return Waited(await _put(only, wait_s, until_s), is_held_up)
        tasks: list[asyncio.Task[int]] = []
        rest, is_held_up = deque(unfinished), False
        try:
            async with asyncio.TaskGroup() as group:
                while rest:
                    if isinstance(rest[0], list):
                        await asyncio.sleep(0)  # So that earlier entries of its queues are in line.
                    each = rest.popleft()
                    if isinstance(each, list):
                        # There they are counted if cancelled.
                        rest.extendleft(reversed(self._fill(_queues_of(each))))
                        continue
                    is_held_up = is_held_up or each.route.queue.is_held_up
                    tasks.append(group.create_task(_put(each, wait_s, until_s)))
                    if len(tasks) % WAITS_PER_TURN == 0:
                        await asyncio.sleep(0)
        finally:
            for each in rest:  # It was cancelled.
                _count_lost(self._fill(_queues_of(each)) if isinstance(each, list) else [each])
        return Waited(sum(task.result() for task in tasks), is_held_up)

    def statistics(self) -> ServiceStatistics:
        """The counts so far."""
        dropped = self._dropped + Counter(self.router.pattern_statistics().dropped)
        dropped[EXPIRED_ON_ARRIVAL] = self.router.expired
        counts = self._published, self._subscriptions, self._matched
        return ServiceStatistics(*counts, dict(+dropped), dict(safe_answers), dict(failures))


def _report(
    change: messages.OfferChanged,
    on_offer: dict[Hashable, messages.Offer],
    followers: Iterable[Callable[[messages.Offer, bool], None]],
) -> None:
    form = form_of(change.offer)
    if change.is_on_offer:
        on_offer[form] = change.offer
    else:
        del on_offer[form]
    for follow in list(followers):
        follow(change.offer, change.is_on_offer)


def _end_pattern(route: Route[Any] | None) -> None:
    if route is not None:
        route.end_pattern()


def _now_us_for(message: messages.Message) -> int:
    """The time of a message for the router.

    Messages about queries have the monotonic clock, so that deadlines do not jump when the clock is
    set; the others the wall clock.
    """
    clock = time.monotonic_ns if isinstance(message, messages.QuestionMessage) else time.time_ns
    return clock() // 1000


def _add_message(filled: _FilledQueues, link: LinkRoute, message: messages.Message) -> None:
    """Adds the notifications of a message for a neighbour; sends any other one."""
    if isinstance(message, messages.Publish):
        hops, source = message.hops, message.source
        entries = [
            (Carried(each, hops, source), size, transmission)
            for each, size, transmission in entries_of(message.notifications)
        ]
        filled.setdefault(link, []).append(entries)
    else:
        link.say(message)


def _add_match(
    filled: _FilledQueues, routes: Mapping[str, Route[Any]], effect: messages.DeliverMatch
) -> None:
    """Adds a match for the subscription to its pattern, if that is in force."""
    watching = routes.get(effect.match.key)
    if watching is not None:
        size = size_of_all(effect.match.notifications)
        filled.setdefault(watching, []).append([(effect.match, size, None)])


def _count_lost(pending: Iterable[Pending[Any]]) -> None:
    """Counts pending matches as lost: no publisher waits for their room."""
    for route, entries in pending:
        route.note_lost(QUEUE_FULL, entries)


def new_router(**options: Any) -> Router:
    """A router that reports changes on offer."""
    return Router(tells_offers=True, **options)


async def _put(waiting: Pending[Any], wait_s: float, until_s: float) -> int:
    """Delivers the entries of one route, or counts them as lost, also after a cancellation."""
    route, left = waiting.route, deque(waiting.entries)
    lost: list[QueueEntry[Any]] = []
    try:
        while left:
            if not await route.queue.put(left[0], wait_s, until_s):
                lost.append(left[0])
            left.popleft()
    finally:
        lost += left  # It was cancelled.
        if not route.is_in_force and isinstance(route, Route):
            lost.clear()  # Nobody waits for it any more.
        if lost:
            route.note_lost(QUEUE_FULL, lost)
    return len(lost)


def _add_entries(
    filled: _FilledQueues, routes: Iterable[Route[Any] | None], notifications: Notifications
) -> None:
    """Adds the entries of a delivery for each of its routes that is in force."""
    entries = entries_of(notifications)
    for route in routes:  # None where it is not in force.
        if route is not None:
            runs = filled.setdefault(route, [])
            if not runs or runs[-1] is not entries:  # Not those of another part.
                runs.append(entries)


def _queues_of(turn: Turn) -> _FilledQueues:
    """The queues of a later turn, with their entries."""
    filled: _FilledQueues = {}
    for routes, notifications in turn:
        _add_entries(filled, routes, notifications)
    return filled


def _error_of(refused: messages.Refused) -> ContradaError:
    return refused.error or ServiceError(f"the router refused it: {refused.reason}")
