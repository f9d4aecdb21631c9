"""An exchange hands a notification to all that asked for it, and waits for all at once."""

import asyncio

from contrada.model import Filter, Notification
from contrada.runtime.exchange import Exchange
from contrada.runtime.outlet import Outlet
from tests.asynchronous import on_loop, until

NOTIFICATION = Notification({"a": 1})
LONG_S = 60.0
"""Longer than a test may take."""


def full_outlets(exchange: Exchange[int], count: int) -> list[Outlet[int]]:
    """Outlets of subscriptions that hold all they can."""
    outlets: list[Outlet[int]] = [Outlet(notifications_max=1) for _ in range(count)]
    for outlet in outlets:
        exchange.add(Filter("a = 1"), outlet)
    assert exchange.offer(NOTIFICATION, 0, 1) == []
    return outlets


@on_loop
async def test_dead_readers_do_not_hold_up_the_others() -> None:
    """A publisher would wait for each dead reader in turn: minutes for one publication."""
    exchange: Exchange[int] = Exchange()
    full_outlets(exchange, 4)
    routes = exchange.offer(NOTIFICATION, 1, 1)
    *dead, slow = (route.outlet for route in routes)
    waiting = asyncio.create_task(exchange.wait(routes, 1, 1, LONG_S))
    await asyncio.sleep(0)
    assert slow.take() == (0, 1)
    await until(lambda: len(slow) == 1)
    assert slow.take() == (1, 1)
    assert not waiting.done()
    for outlet in dead:
        outlet.take()
    assert await waiting == 0


@on_loop
async def test_what_dead_readers_lost_is_counted_for_each() -> None:
    """Losses of several subscriptions at once would be counted as one."""
    exchange: Exchange[int] = Exchange()
    full_outlets(exchange, 3)
    routes = exchange.offer(NOTIFICATION, 1, 1)
    exchange.remove(routes[0])
    assert await exchange.wait(routes, 1, 1, 0.01) == 2
    assert [route.dropped for route in routes] == [0, 1, 1]
    assert exchange.statistics().dropped == {"queue full": 2}
