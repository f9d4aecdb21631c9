"""A bound that several queues share: admission, and waking."""

import asyncio

from contrada.service.subscription_queue import Budget, SubscriptionQueue
from tests.asynchronous import on_loop, until


@on_loop
async def test_queues_share_their_bytes() -> None:
    """Many small queues together would fill the memory."""
    changes: list[int] = []
    budget = Budget(10, changes.append)
    one: SubscriptionQueue[int] = SubscriptionQueue(budget=budget)
    other: SubscriptionQueue[int] = SubscriptionQueue(budget=budget)
    assert one.offer_all([(0, 6, None)])
    assert not other.offer_all([(1, 6, None)]), "also where the queue itself is empty"
    assert other.offer_all([(2, 4, None)])
    one.take()
    assert other.offer_all([(3, 6, None)])
    assert len(other.discard()) == 2
    assert budget.held_bytes == 0
    assert changes == [6, 4, -6, 6, -10]


@on_loop
async def test_room_in_one_queue_lets_publishers_of_another_go_on() -> None:
    """A publisher would wait its whole time, and lose a notification in spite of room."""
    budget = Budget(100)
    full: SubscriptionQueue[int] = SubscriptionQueue(budget=budget)
    empty: SubscriptionQueue[int] = SubscriptionQueue(budget=budget)
    for number in range(10):
        assert full.offer_all([(number, 10, None)])
    waiting = [asyncio.create_task(empty.put((number, 30, None), 60.0)) for number in range(2)]
    await asyncio.sleep(0)
    for _ in range(2):
        full.take()
    await asyncio.sleep(0)
    assert len(empty) == 0, "there is room, but not enough for an entry of this size"
    full.take()
    await until(lambda: len(empty) == 1)
    assert not waiting[1].done()
    full.discard()
    assert await asyncio.gather(*waiting) == [True, True]


@on_loop
async def test_a_queue_that_was_given_up_takes_part_again() -> None:
    """An empty queue would stay stalled, since nothing is ever taken from it."""
    budget = Budget(10)
    full: SubscriptionQueue[int] = SubscriptionQueue(budget=budget)
    empty: SubscriptionQueue[int] = SubscriptionQueue(budget=budget)
    assert full.offer_all([(0, 10, None)])
    assert not await empty.put((1, 10, None), 0.01)
    full.take()
    waiting = asyncio.create_task(empty.put((2, 10, None), 60.0))
    assert await waiting
