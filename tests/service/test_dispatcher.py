"""An exchange hands a notification to all that asked for it, and waits for all at once."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest

from contrada.errors import LimitError, UnknownOperatorError, UnsatisfiableFilterError
from contrada.matching.index import Index
from contrada.model import Envelope, Filter, FilterSet, Notification, Pattern, ValueSet
from contrada.model.domains.line import EMPTY
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from contrada.patterns import Match
from contrada.routing.delegation import SubscribePattern
from contrada.routing.router import Router
from contrada.routing.router_messages import SUBSCRIPTION_FILTERS_MAX, Client, Publish, Subscribe
from contrada.service.clock import Deadlines
from contrada.service.dispatch_routes import Pending, Route, Turn
from contrada.service.dispatcher import (
    NOTIFICATIONS_PER_UPKEEP,
    UPKEEP_UNITS,
    UPKEEP_UNITS_OF_NOTIFICATION,
    WAITS_PER_TURN,
    Dispatcher,
)
from contrada.service.service_limits import ServiceLimits
from contrada.service.subscription_queue import ENTRY_BYTES, SubscriptionQueue, size_of
from tests.asynchronous import on_loop, until

NOTIFICATION = Notification({"a": 1})
PUBLISHED = Publish((NOTIFICATION,))
ENTRY = (NOTIFICATION, size_of(NOTIFICATION))
_numbers = itertools.count(1)


def subscribe(
    dispatcher: Dispatcher,
    client: Client,
    filters: Filter | FilterSet,
    queue: SubscriptionQueue[Any],
) -> Route[Any]:
    """A subscription under an identity of its own."""
    return dispatcher.subscribe(client, Subscribe(str(next(_numbers)), filters), queue)


FAR = Filter.of_sets({"a": ValueSet(EMPTY, Literal(Atom("elsewhere", b"x"), True))})
"""A filter with an unregistered operator."""

LONG_S = 60.0
"""Longer than a test may take."""


def full_outlets(dispatcher: Dispatcher, count: int) -> list[SubscriptionQueue[Notification]]:
    """Outlets of subscriptions that hold all they can."""
    queues: list[SubscriptionQueue[Notification]] = [
        SubscriptionQueue(notifications_max=1) for _ in range(count)
    ]
    client = dispatcher.client()
    for queue in queues:
        subscribe(dispatcher, client, Filter("a = 1"), queue)
    assert dispatcher.publish(client, PUBLISHED, 0) == []
    return queues


@on_loop
async def test_dead_readers_do_not_hold_up_the_others() -> None:
    """A publisher would wait for each dead reader in turn: minutes for one publication."""
    dispatcher: Dispatcher = Dispatcher()
    full_outlets(dispatcher, 4)
    pending = dispatcher.publish(dispatcher.client(), PUBLISHED, 0)
    *dead, slow = (each.route.queue for each in pending)
    waiting = asyncio.create_task(dispatcher.wait(pending, LONG_S))
    await asyncio.sleep(0)
    assert slow.take() == ENTRY
    await until(lambda: len(slow) == 1)
    assert slow.take() == ENTRY
    assert not waiting.done()
    for queue in dead:
        queue.take()
    assert (await waiting).lost == 0


@on_loop
async def test_many_deliveries_are_queued_in_turns() -> None:
    """One publication to very many subscriptions would stop the loop for all others."""
    dispatcher = Dispatcher(limits=ServiceLimits(deliveries_per_turn=10))
    queues: list[SubscriptionQueue[Notification]] = [SubscriptionQueue() for _ in range(99)]
    clients = [dispatcher.client() for _ in range(3)]
    for client, queue in zip(itertools.cycle(clients), queues, strict=False):
        subscribe(dispatcher, client, Filter("a = 1"), queue)
    batch = Publish(tuple(Notification({"a": 1, "n": n}) for n in range(2)))
    later: list[Turn] = []
    pending, _ = dispatcher.take(clients[0], batch, 0, later)
    queued = sum(map(len, queues))
    assert (pending, queued <= 10) == ([], True)
    waiting = asyncio.create_task(dispatcher.wait(later, LONG_S))
    turns = 0
    while not waiting.done():
        await asyncio.sleep(0)
        before, queued = queued, sum(map(len, queues))
        assert queued - before <= 10
        turns += queued > before
    assert (await waiting).lost == 0
    assert turns >= 2 * len(queues) / 10 - 1
    for queue in queues:
        assert [each["n"] for each in queue.take_batch(9, 2**20)[0]] == [0, 1]
    assert dispatcher.statistics().matched == 2 * len(queues)


@on_loop
async def test_a_queue_without_room_keeps_its_order_over_turns() -> None:
    """What waits for room would be overtaken by the deliveries of a later turn."""
    dispatcher = Dispatcher(limits=ServiceLimits(deliveries_per_turn=1))
    (full,) = full_outlets(dispatcher, 1)
    other: SubscriptionQueue[Notification] = SubscriptionQueue()
    publisher = dispatcher.client()
    subscribe(dispatcher, publisher, Filter("b = 2"), other)
    batch = Publish((Notification({"a": 1, "n": 1}), Notification({"a": 1, "b": 2, "n": 2})))
    later: list[Turn] = []
    pending, _ = dispatcher.take(publisher, batch, 0, later)
    assert pending
    assert later
    assert full.take() == ENTRY
    waiting = asyncio.create_task(dispatcher.wait([*pending, *later], LONG_S))
    for number in (1, 2):
        await until(lambda: len(full) == 1)
        taken = full.take()
        assert taken is not None
        assert taken[0]["n"] == number
    assert (await waiting).lost == 0
    assert len(other) == 1


@on_loop
async def test_a_route_is_in_one_turn_with_all_its_parts() -> None:
    """A notification would be delivered again in each turn with parts of a subscription; and never
    where the parts are replaced before the turn, though old and new ones match it.
    """
    dispatcher: Dispatcher = Dispatcher(limits=ServiceLimits(deliveries_per_turn=2))
    client = dispatcher.client()
    queues: list[SubscriptionQueue[Notification]] = [SubscriptionQueue() for _ in range(3)]
    routes = [dispatcher.prepare(client, str(n), queue) for n, queue in enumerate(queues)]
    for filters in ("a = 1", "a > 0", "a < 2"):
        for route in routes:
            dispatcher.enter(route, Subscribe(route.identity, FilterSet(filters)))
    for route in routes:
        dispatcher.begin(route)
    later: list[Turn] = []
    pending, _ = dispatcher.take(client, PUBLISHED, 0, later)
    assert sum(map(len, queues)) < len(queues)
    for route in routes:
        draft = route.draft()
        dispatcher.enter(draft, Subscribe(route.identity, FilterSet("a = 1")))
        dispatcher.replace(route, draft)
    assert (await dispatcher.wait([*pending, *later], LONG_S)).lost == 0
    assert [*map(len, queues)] == [1] * len(queues)


@pytest.mark.parametrize("is_cancelled", [False, True])
@on_loop
async def test_deliveries_of_later_turns_are_made_or_counted(is_cancelled: bool) -> None:
    """A client that leaves would end the publication of others; a stop would lose uncounted."""
    dispatcher = Dispatcher(limits=ServiceLimits(deliveries_per_turn=1))
    full_outlets(dispatcher, 3)
    gone, stays, publisher = (dispatcher.client() for _ in range(3))
    queues: list[SubscriptionQueue[Notification]] = [SubscriptionQueue() for _ in range(2)]
    for client, queue in zip((gone, stays), queues, strict=True):
        subscribe(dispatcher, client, Filter("a = 1"), queue)
    later: list[Turn] = []
    pending, _ = dispatcher.take(publisher, PUBLISHED, 0, later)
    dispatcher.leave(gone)
    waiting = asyncio.create_task(dispatcher.wait([*pending, *later], 0.01))
    if is_cancelled:
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    else:
        assert (await waiting).lost == 3
    assert [*map(len, queues)] == [0, 1]
    assert dispatcher.statistics().dropped == {"queue full": 3}


async def wait_cancelled(dispatcher: Dispatcher, unfinished: Sequence[Pending[Any] | Turn]) -> None:
    """Waits for readers, and is cancelled at the second turn of the loop."""
    waiting = asyncio.create_task(dispatcher.wait(unfinished, LONG_S))
    for _ in range(2):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@on_loop
async def test_many_of_a_later_turn_are_counted_where_their_wait_is_cancelled() -> None:
    """Those for which no task was begun would be lost uncounted."""
    dispatcher: Dispatcher = Dispatcher(limits=ServiceLimits(deliveries_per_turn=1_000))
    count = 2 * WAITS_PER_TURN + 1
    full_outlets(dispatcher, count)
    batch = tuple(Notification({"a": 1, "n": n}) for n in range(2))
    later: list[Turn] = []
    pending, _ = dispatcher.take(dispatcher.client(), Publish(batch), 0, later)
    assert not pending
    await wait_cancelled(dispatcher, later)
    assert dispatcher.statistics().dropped == {"queue full": 2 * count}


def route_of(pending: Pending[Notification]) -> Route[Notification]:
    """The subscription for which something has no room."""
    assert isinstance(pending.route, Route)
    return pending.route


@on_loop
async def test_what_dead_readers_lost_is_counted_for_each() -> None:
    """Losses of several subscriptions at once would be counted as one."""
    dispatcher: Dispatcher = Dispatcher()
    full_outlets(dispatcher, 3)
    pending = dispatcher.publish(dispatcher.client(), PUBLISHED, 0)
    dispatcher.unsubscribe(route_of(pending[0]))
    assert (await dispatcher.wait(pending, 0.01)).lost == 2
    assert [route_of(each).dropped for each in pending] == [0, 1, 1]
    assert dispatcher.statistics().dropped == {"queue full": 2}


@pytest.mark.parametrize("count", [1, 2])
@on_loop
async def test_what_a_publisher_no_longer_waits_for_is_counted(count: int) -> None:
    """A publication that is cancelled would be lost to slow readers in silence."""
    dispatcher: Dispatcher = Dispatcher()
    full_outlets(dispatcher, count)
    pending = dispatcher.publish(dispatcher.client(), PUBLISHED, 0)
    await wait_cancelled(dispatcher, pending)
    assert [route_of(each).dropped for each in pending] == [1] * count
    assert dispatcher.statistics().dropped == {"queue full": count}


def test_a_subscription_in_parts_is_in_force_when_all_are_there() -> None:
    """Half of a subscription would be served, or matches of two parts be delivered twice."""
    dispatcher: Dispatcher = Dispatcher()
    client = dispatcher.client()
    queue: SubscriptionQueue[Notification] = SubscriptionQueue()
    route = dispatcher.prepare(client, "1", queue)
    for part in ("a = 1", "a < 5 or b = 1"):
        dispatcher.enter(route, Subscribe("1", FilterSet(part)))
        assert dispatcher.publish(client, PUBLISHED, 0) == []
        assert len(queue) == dispatcher.statistics().subscriptions == 0
    dispatcher.begin(route)
    other = subscribe(dispatcher, client, Filter("a = 1"), SubscriptionQueue())
    dispatcher.publish(client, PUBLISHED, 0)
    assert len(queue) == len(other.queue) == 1
    assert dispatcher.statistics().matched == dispatcher.statistics().subscriptions == 2
    dispatcher.end(route)
    dispatcher.end(route)
    assert dispatcher.statistics().subscriptions == 1
    dispatcher.publish(client, PUBLISHED, 0)
    assert len(queue) == 1, "nothing is handed over while its parts leave"
    assert [dispatcher.withdraw(route) for _ in range(3)] == [True, False, False]
    dispatcher.leave(client)
    dispatcher.router.validate()
    assert dispatcher.router.statistics().subscriptions.entries == 0


@on_loop
async def test_a_publisher_goes_on_when_the_one_it_waits_for_leaves() -> None:
    """It would wait for room in a queue without a reader."""
    dispatcher: Dispatcher = Dispatcher()
    full_outlets(dispatcher, 1)
    pending = dispatcher.publish(dispatcher.client(), PUBLISHED, 0)
    waiting = asyncio.create_task(dispatcher.wait(pending, LONG_S))
    await asyncio.sleep(0)
    dispatcher.unsubscribe(route_of(pending[0]))
    assert (await waiting).lost == 0


def test_matches_count_with_the_bodies_of_their_notifications() -> None:
    """A queue of matches could hold any number of bytes."""
    dispatcher: Dispatcher = Dispatcher()
    client = dispatcher.client()
    queue: SubscriptionQueue[Match[str]] = SubscriptionQueue(bytes_max=3 * (ENTRY_BYTES + 100))
    dispatcher.subscribe(client, SubscribePattern("1", Pattern("a = 1 -> b = 1")), queue)
    pending = [
        dispatcher.publish(
            client, Publish((Notification({name: 1}, body=b"x" * 100, envelope=at),)), 0
        )
        for at, name in zip((Envelope(time_us=n) for n in range(5)), "ababc", strict=True)
    ]
    assert len(queue) == 1
    assert [len(each) for each in pending] == [0, 0, 0, 0, 1]


def test_what_clients_hold_is_what_the_router_holds() -> None:
    """A second table of subscriptions could differ from the router's."""
    dispatcher: Dispatcher = Dispatcher()
    ann, bob = dispatcher.client(), dispatcher.client()
    routes = [
        subscribe(dispatcher, each, Filter("a = 1"), SubscriptionQueue())
        for each in (ann, bob, ann)
    ]
    assert dispatcher.publish(ann, PUBLISHED, 0) == []
    assert [len(route.queue) for route in routes] == [1, 1, 1]
    assert dispatcher.statistics().matched == 3
    dispatcher.unsubscribe(routes[0])
    dispatcher.unsubscribe(routes[0])
    dispatcher.publish(ann, PUBLISHED, 0)
    assert [len(route.queue) for route in routes] == [1, 2, 2]
    for route in routes:
        dispatcher.unsubscribe(route)
    held = dispatcher.router.statistics()
    assert (held.subscriptions.entries, held.filters.nodes) == (0, 0)


def test_a_refusal_tells_the_limit_and_the_value() -> None:
    """The error would not explain the remedy."""
    dispatcher: Dispatcher = Dispatcher()
    client = dispatcher.client()
    many = FilterSet([Filter({"a": n}) for n in range(SUBSCRIPTION_FILTERS_MAX + 1)])
    with pytest.raises(LimitError) as limit:
        subscribe(dispatcher, client, many, SubscriptionQueue())
    assert (limit.value.limit, limit.value.size) == (
        "filters_per_subscription_max",
        SUBSCRIPTION_FILTERS_MAX + 1,
    )
    nothing = Filter("a > 1 and a < 1")
    with pytest.raises(UnsatisfiableFilterError) as unsatisfiable:
        subscribe(dispatcher, client, nothing, SubscriptionQueue())
    assert unsatisfiable.value.filter is nothing
    with pytest.raises(UnknownOperatorError, match="elsewhere"):
        subscribe(dispatcher, client, FAR, SubscriptionQueue())
    with (
        mock.patch.object(Index, "add", side_effect=LimitError("ATTRS_MAX", 5, 6)),
        pytest.raises(LimitError, match="ATTRS_MAX"),
    ):
        subscribe(dispatcher, client, Filter("a = 1"), SubscriptionQueue())
    assert dispatcher.statistics().subscriptions == 0
    dispatcher.router.validate()


def test_upkeep_is_bounded_and_goes_on() -> None:
    """Parts of ended subscriptions would stay for ever, or be cleared at once."""
    dispatcher: Dispatcher = Dispatcher()
    client = dispatcher.client()
    with mock.patch.object(Router, "maintain") as maintain:
        dispatcher.unsubscribe(subscribe(dispatcher, client, Filter("a = 1"), SubscriptionQueue()))
        assert maintain.call_args_list == [mock.call(UPKEEP_UNITS)]
        for _ in range(2 * NOTIFICATIONS_PER_UPKEEP):
            dispatcher.publish(client, PUBLISHED, 0)
    units = NOTIFICATIONS_PER_UPKEEP * UPKEEP_UNITS_OF_NOTIFICATION
    assert maintain.call_args_list[1:] == [mock.call(units)] * 2


@on_loop
async def test_a_batch_fills_each_outlet_in_order_as_far_as_it_goes() -> None:
    """Matches of others in between would change the order, or a full queue lose more."""
    dispatcher = Dispatcher()
    client = dispatcher.client()
    every: SubscriptionQueue[Notification] = SubscriptionQueue(notifications_max=3)
    odd: SubscriptionQueue[Notification] = SubscriptionQueue()
    subscribe(dispatcher, client, Filter("n exists"), every)
    subscribe(dispatcher, client, Filter("odd = true"), odd)
    batch = tuple(Notification({"n": n, "odd": n % 2 == 1}) for n in range(5))
    pending = dispatcher.publish(client, Publish(batch), 0)
    assert [each.route.queue for each in pending] == [every]
    assert [n["n"] for n in odd.take_batch(9, 10**9)[0]] == [1, 3]
    assert (await dispatcher.wait(pending, 0)).lost == 2
    assert [n["n"] for n in every.take_batch(9, 10**9)[0]] == [0, 1, 2]
    assert dispatcher.statistics().dropped == {"queue full": 2}
    assert dispatcher.statistics().matched == 7


@on_loop
async def test_the_next_deadline_is_kept_though_the_last_one_raised() -> None:
    """One error would let all questions that are under way wait for ever."""
    due = [time.monotonic_ns() // 1000 + each for each in (0, 1_000, 2_000)]
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(str(context["exception"]))
    )

    def expire() -> None:
        due.pop(0)
        if len(due) == 2:
            raise ValueError("the first")

    deadlines = Deadlines(lambda: due[0] if due else None, expire)
    deadlines.look()
    await until(lambda: not due)
    assert told == ["the first"]


@on_loop
async def test_an_earlier_deadline_goes_before_one_that_is_waited_for() -> None:
    """A short question would end as late as a long one that was asked before it."""
    due = [time.monotonic_ns() // 1000 + 3_600_000_000]
    passed: list[int] = []
    deadlines = Deadlines(lambda: min(due, default=None), lambda: passed.append(due.pop()))
    deadlines.look()
    due.append(time.monotonic_ns() // 1000)
    deadlines.look()
    await until(lambda: bool(passed))
    assert len(due) == 1
