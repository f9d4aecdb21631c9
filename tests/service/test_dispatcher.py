"""An exchange hands a notification to all that asked for it, and waits for all at once."""

import asyncio
import itertools
from typing import Any
from unittest import mock

import pytest

from contrada.errors import LimitError, UnknownOperatorError, UnsatisfiableFilterError
from contrada.matching import Index
from contrada.model import Envelope, Filter, FilterSet, Notification, Pattern, ValueSet
from contrada.model.domains.line import EMPTY
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from contrada.patterns import Match
from contrada.routing.delegation import SubscribePattern
from contrada.routing.router import Router
from contrada.routing.router_messages import SUBSCRIPTION_FILTERS_MAX, Client, Publish, Subscribe
from contrada.service.dispatcher import (
    NOTIFICATIONS_PER_UPKEEP,
    UPKEEP_UNITS,
    UPKEEP_UNITS_OF_NOTIFICATION,
    Exchange,
    Pending,
    Route,
)
from contrada.service.subscription_queue import ENTRY_BYTES, Outlet, size_of
from tests.asynchronous import on_loop, until

NOTIFICATION = Notification({"a": 1})
PUBLISHED = Publish((NOTIFICATION,))
ENTRY = (NOTIFICATION, size_of(NOTIFICATION))
_numbers = itertools.count(1)


def subscribe(
    exchange: Exchange, client: Client, filters: Filter | FilterSet, outlet: Outlet[Any]
) -> Route[Any]:
    """A subscription under an identity of its own."""
    return exchange.subscribe(client, Subscribe(str(next(_numbers)), filters), outlet)


FAR = Filter.of_sets({"a": ValueSet(EMPTY, Literal(Atom("elsewhere", b"x"), True))})
"""A filter with an operator that nobody has registered here."""

LONG_S = 60.0
"""Longer than a test may take."""


def full_outlets(exchange: Exchange, count: int) -> list[Outlet[Notification]]:
    """Outlets of subscriptions that hold all they can."""
    outlets: list[Outlet[Notification]] = [Outlet(notifications_max=1) for _ in range(count)]
    client = exchange.client()
    for outlet in outlets:
        subscribe(exchange, client, Filter("a = 1"), outlet)
    assert exchange.publish(client, PUBLISHED, 0) == []
    return outlets


@on_loop
async def test_dead_readers_do_not_hold_up_the_others() -> None:
    """A publisher would wait for each dead reader in turn: minutes for one publication."""
    exchange: Exchange = Exchange()
    full_outlets(exchange, 4)
    pending = exchange.publish(exchange.client(), PUBLISHED, 0)
    *dead, slow = (each.route.outlet for each in pending)
    waiting = asyncio.create_task(exchange.wait(pending, LONG_S))
    await asyncio.sleep(0)
    assert slow.take() == ENTRY
    await until(lambda: len(slow) == 1)
    assert slow.take() == ENTRY
    assert not waiting.done()
    for outlet in dead:
        outlet.take()
    assert await waiting == 0


def route_of(pending: Pending[Notification]) -> Route[Notification]:
    """The subscription for which something has no room."""
    assert isinstance(pending.route, Route)
    return pending.route


@on_loop
async def test_what_dead_readers_lost_is_counted_for_each() -> None:
    """Losses of several subscriptions at once would be counted as one."""
    exchange: Exchange = Exchange()
    full_outlets(exchange, 3)
    pending = exchange.publish(exchange.client(), PUBLISHED, 0)
    exchange.unsubscribe(route_of(pending[0]))
    assert await exchange.wait(pending, 0.01) == 2
    assert [route_of(each).dropped for each in pending] == [0, 1, 1]
    assert exchange.statistics().dropped == {"queue full": 2}


@pytest.mark.parametrize("count", [1, 2])
@on_loop
async def test_what_a_publisher_no_longer_waits_for_is_counted(count: int) -> None:
    """A publication that is cancelled would be lost to slow readers in silence."""
    exchange: Exchange = Exchange()
    full_outlets(exchange, count)
    pending = exchange.publish(exchange.client(), PUBLISHED, 0)
    waiting = asyncio.create_task(exchange.wait(pending, LONG_S))
    for _ in range(2):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [route_of(each).dropped for each in pending] == [1] * count
    assert exchange.statistics().dropped == {"queue full": count}


def test_a_subscription_in_parts_is_in_force_when_all_are_there() -> None:
    """Half of a subscription would be served, or what two parts match come twice."""
    exchange: Exchange = Exchange()
    client = exchange.client()
    outlet: Outlet[Notification] = Outlet()
    route = exchange.prepare(client, "1", outlet)
    for part in ("a = 1", "a < 5 or b = 1"):
        exchange.enter(route, Subscribe("1", FilterSet(part)))
        assert exchange.publish(client, PUBLISHED, 0) == []
        assert len(outlet) == exchange.statistics().subscriptions == 0
    exchange.begin(route)
    other = subscribe(exchange, client, Filter("a = 1"), Outlet())
    exchange.publish(client, PUBLISHED, 0)
    assert len(outlet) == len(other.outlet) == 1
    assert exchange.statistics().matched == exchange.statistics().subscriptions == 2
    exchange.end(route)
    exchange.end(route)
    assert exchange.statistics().subscriptions == 1
    exchange.publish(client, PUBLISHED, 0)
    assert len(outlet) == 1, "nothing is handed over while its parts leave"
    assert [exchange.withdraw(route) for _ in range(3)] == [True, False, False]
    exchange.leave(client)
    exchange._router.validate()
    assert exchange._router.statistics().subscriptions.entries == 0


@on_loop
async def test_a_publisher_goes_on_when_the_one_it_waits_for_leaves() -> None:
    """It would wait for room in a queue that nobody will ever read."""
    exchange: Exchange = Exchange()
    full_outlets(exchange, 1)
    pending = exchange.publish(exchange.client(), PUBLISHED, 0)
    waiting = asyncio.create_task(exchange.wait(pending, LONG_S))
    await asyncio.sleep(0)
    exchange.unsubscribe(route_of(pending[0]))
    assert await waiting == 0


def test_matches_count_with_the_bodies_of_their_notifications() -> None:
    """A queue of matches could hold any number of bytes."""
    exchange: Exchange = Exchange()
    client = exchange.client()
    outlet: Outlet[Match[str]] = Outlet(bytes_max=3 * (ENTRY_BYTES + 100))
    exchange.subscribe(client, SubscribePattern("1", Pattern("a = 1 -> b = 1")), outlet)
    pending = [
        exchange.publish(
            client,
            Publish((Notification({name: 1}, body=b"x" * 100, envelope=at),)),
            0,
        )
        for at, name in zip((Envelope(time_us=n) for n in range(5)), "ababc", strict=True)
    ]
    assert len(outlet) == 1
    assert [len(each) for each in pending] == [0, 0, 0, 0, 1]


def test_what_clients_hold_is_what_the_router_holds() -> None:
    """A second table of subscriptions could come to differ from the router's."""
    exchange: Exchange = Exchange()
    ann, bob = exchange.client(), exchange.client()
    routes = [subscribe(exchange, each, Filter("a = 1"), Outlet()) for each in (ann, bob, ann)]
    assert exchange.publish(ann, PUBLISHED, 0) == []
    assert [len(route.outlet) for route in routes] == [1, 1, 1]
    assert exchange.statistics().matched == 3
    exchange.unsubscribe(routes[0])
    exchange.unsubscribe(routes[0])
    exchange.publish(ann, PUBLISHED, 0)
    assert [len(route.outlet) for route in routes] == [1, 2, 2]
    for route in routes:
        exchange.unsubscribe(route)
    held = exchange._router.statistics()
    assert (held.subscriptions.entries, held.filters.nodes) == (0, 0)


def test_a_refusal_tells_the_limit_and_the_value() -> None:
    """A user would not know what to change."""
    exchange: Exchange = Exchange()
    client = exchange.client()
    many = FilterSet([Filter({"a": n}) for n in range(SUBSCRIPTION_FILTERS_MAX + 1)])
    with pytest.raises(LimitError) as limit:
        subscribe(exchange, client, many, Outlet())
    assert (limit.value.limit, limit.value.size) == (
        "SUBSCRIPTION_FILTERS_MAX",
        SUBSCRIPTION_FILTERS_MAX + 1,
    )
    nothing = Filter("a > 1 and a < 1")
    with pytest.raises(UnsatisfiableFilterError) as unsatisfiable:
        subscribe(exchange, client, nothing, Outlet())
    assert unsatisfiable.value.filter is nothing
    with pytest.raises(UnknownOperatorError, match="elsewhere"):
        subscribe(exchange, client, FAR, Outlet())
    with (
        mock.patch.object(Index, "add", side_effect=LimitError("ATTRS_MAX", 5, 6)),
        pytest.raises(LimitError, match="ATTRS_MAX"),
    ):
        subscribe(exchange, client, Filter("a = 1"), Outlet())
    assert exchange.statistics().subscriptions == 0
    exchange._router.validate()


def test_upkeep_is_bounded_and_goes_on() -> None:
    """What unsubscribing leaves behind would stay for ever, or be cleared at once."""
    exchange: Exchange = Exchange()
    client = exchange.client()
    with mock.patch.object(Router, "maintain") as maintain:
        exchange.unsubscribe(subscribe(exchange, client, Filter("a = 1"), Outlet()))
        assert maintain.call_args_list == [mock.call(UPKEEP_UNITS)]
        for _ in range(2 * NOTIFICATIONS_PER_UPKEEP):
            exchange.publish(client, PUBLISHED, 0)
    units = NOTIFICATIONS_PER_UPKEEP * UPKEEP_UNITS_OF_NOTIFICATION
    assert maintain.call_args_list[1:] == [mock.call(units)] * 2


@on_loop
async def test_a_batch_fills_each_outlet_in_order_as_far_as_it_goes() -> None:
    """What was matched by others in between would change the order, or a full queue lose more."""
    exchange = Exchange()
    client = exchange.client()
    every: Outlet[Notification] = Outlet(notifications_max=3)
    odd: Outlet[Notification] = Outlet()
    subscribe(exchange, client, Filter("n exists"), every)
    subscribe(exchange, client, Filter("odd = true"), odd)
    batch = tuple(Notification({"n": n, "odd": n % 2 == 1}) for n in range(5))
    pending = exchange.publish(client, Publish(batch), 0)
    assert [each.route.outlet for each in pending] == [every]
    assert [n["n"] for n in odd.take_batch(9, 10**9)[0]] == [1, 3]
    assert await exchange.wait(pending, 0) == 2
    assert [n["n"] for n in every.take_batch(9, 10**9)[0]] == [0, 1, 2]
    assert exchange.statistics().dropped == {"queue full": 2}
    assert exchange.statistics().matched == 7
