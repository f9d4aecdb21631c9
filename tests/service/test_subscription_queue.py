"""The bounded queue: room, waiting, drops, and order."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from contrada.delivery.backlog import QueueEntry, Transmission
from contrada.service import WhenFull
from contrada.service.subscription_queue import EXPIRED, QUEUE_FULL, Budget, SubscriptionQueue
from tests.asynchronous import on_loop

URGENT = Transmission(9)
IDLE = Transmission(0)


class Losses:
    """The drops that a queue reports."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def note_lost(self, reason: str, entries: Sequence[QueueEntry[Any]]) -> None:
        self.told.append((reason, len(entries), sum(size for _, size, _ in entries)))


class Clock:
    """A clock that is constant until it is set."""

    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> int:
        return self.now_us


def taken(queue: SubscriptionQueue[int]) -> list[int]:
    """The entries that can be read now, one at most."""
    entry = queue.take()
    return [] if entry is None else [entry[0]]


@on_loop
async def test_it_is_bounded_in_entries_and_bytes() -> None:
    """A reader that stopped would fill the memory."""
    few: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=2)
    assert [few.offer_all([(n, 1, None)]) for n in range(3)] == [1, 1, 0]
    light: SubscriptionQueue[int] = SubscriptionQueue(bytes_max=10)
    assert [light.offer_all([(n, 6, None)]) for n in range(2)] == [1, 0]
    assert light.take() == (0, 6)
    assert light.offer_all([(2, 1000, None)]), "one large entry passes through an empty queue"


@on_loop
async def test_a_publisher_waits_for_a_slow_reader() -> None:
    """A fast publisher would lose notifications of a healthy subscriber."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=4)

    async def publish() -> list[bool]:
        return [await queue.put((n, 1, None), 10.0) for n in range(50)]

    publisher = asyncio.create_task(publish())
    got: list[int] = []
    while len(got) < 50:
        await queue.arrival()
        got += taken(queue)
    assert got == list(range(50))
    assert all(await publisher)


@on_loop
async def test_a_stalled_reader_delays_once() -> None:
    """A dead subscriber would slow down every publication for ever."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=1)
    assert queue.offer_all([(0, 1, None)])
    loop = asyncio.get_running_loop()
    assert not await queue.put((1, 1, None), 0.05)
    began = loop.time()
    assert not await queue.put((2, 1, None), 20.0)
    assert loop.time() - began < 5.0
    queue.take()
    assert await queue.put((3, 1, None), 0.0), "a reader that reads again gets notifications again"


@on_loop
async def test_without_a_wait_the_newest_is_dropped() -> None:
    """A publisher that asked not to wait would wait, or the oldest would be lost."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=1)
    assert await queue.put((0, 1, None), 0.0)
    assert not await queue.put((1, 1, None), 0.0)
    assert queue.take() == (0, 1)


@on_loop
async def test_who_waits_is_served_in_order() -> None:
    """Notifications of one publisher could overtake one another."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=1)
    assert queue.offer_all([(0, 1, None)])
    waiting = [asyncio.create_task(queue.put((n, 1, None), 10.0)) for n in (1, 2, 3)]
    await asyncio.sleep(0)
    got = taken(queue)
    assert not queue.offer_all([(4, 1, None)]), "who comes later does not overtake those in line"
    for _ in waiting:
        await queue.arrival()
        got += taken(queue)
    assert got == [0, 1, 2, 3]
    assert await asyncio.gather(*waiting) == [True, True, True]


@on_loop
async def test_finishing_lets_waiting_publishers_go() -> None:
    """An unsubscribe would leave publishers waiting."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=1)
    assert queue.offer_all([(0, 1, None)])
    waiting = asyncio.create_task(queue.put((1, 1, None), 20.0))
    await asyncio.sleep(0)
    assert queue.discard() == [(0, 1, None)]
    assert not await waiting
    assert len(queue) == 0


@on_loop
async def test_finishing_keeps_what_is_held() -> None:
    """Closing a service would lose what a subscriber has not read yet."""
    queue: SubscriptionQueue[int] = SubscriptionQueue()
    assert queue.offer_all([(0, 1, None)])
    queue.finish()
    await queue.arrival()
    assert queue.take() == (0, 1)
    await queue.arrival()
    assert not queue.offer_all([(1, 1, None)])


@on_loop
async def test_a_cancelled_publisher_leaves_the_line() -> None:
    """Publishers behind one that gave up would wait for ever."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=1)
    assert queue.offer_all([(0, 1, None)])
    first = asyncio.create_task(queue.put((1, 1, None), 20.0))
    second = asyncio.create_task(queue.put((2, 1, None), 20.0))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    queue.take()
    assert await second
    assert queue.take() == (2, 1)
    assert queue.offer_all([(3, 1, None)])


@on_loop
async def test_a_backlog_leaves_by_priority() -> None:
    """An urgent notification would wait behind others, or equal ones would lose their order."""
    queue: SubscriptionQueue[int] = SubscriptionQueue()
    queue.offer_all([(0, 1, None), (1, 1, None)])
    queue.offer_all([(2, 1, IDLE)])
    assert await queue.put((3, 1, URGENT), 0.0)
    queue.offer_all([(4, 1, None), (5, 1, URGENT)])
    assert taken(queue) == [3]
    assert queue.take_batch(4, 100) == ([5, 0, 1, 4], 4)
    assert taken(queue) == [2]
    assert taken(queue) == []
    queue.offer_all([(6, 1, None), (7, 1, None)])
    assert queue.take_batch(9, 9) == ([6, 7], 2), "an empty one is a plain queue again"


@on_loop
async def test_what_expires_is_never_taken_and_is_told() -> None:
    """A reader would act on an expired notification, or its drop would not be counted."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(clock=(clock := Clock()))
    queue.keeper = losses = Losses()
    queue.offer_all([(0, 1, None), (1, 2, Transmission(4, 10)), (2, 4, Transmission(9, 11))])
    clock.now_us = 10
    assert queue.take_batch(1, 100) == ([2], 4)
    assert losses.told == [(EXPIRED, 1, 2)]
    queue.offer_all([(3, 8, Transmission(4, 10))])
    assert losses.told[1:] == [(EXPIRED, 1, 8)], "it was too late when it came"
    queue.offer_all([(4, 16, Transmission(9, 12))])
    clock.now_us = 12
    assert (taken(queue), taken(queue), len(queue)) == ([0], [], 0)
    assert losses.told[2:] == [(EXPIRED, 1, 16)]


@on_loop
async def test_what_expires_takes_no_room() -> None:
    """Expired entries would take the room of new ones, without a reader."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=2, clock=(clock := Clock()))
    queue.keeper = losses = Losses()
    queue.offer_all([(0, 1, Transmission(4, 10)), (1, 1, None)])
    assert not queue.offer_all([(2, 1, None)])
    clock.now_us = 10
    assert queue.offer_all([(3, 1, None)])
    assert queue.take_batch(9, 9) == ([1, 3], 2)
    assert losses.told == [(EXPIRED, 1, 1)]


@on_loop
async def test_who_waits_for_room_waits_no_longer_than_it_is_good() -> None:
    """A publisher would wait in vain, or the next one would not wait because of it."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=1, clock=Clock())
    queue.keeper = losses = Losses()
    assert queue.offer_all([(0, 1, None)])
    async with asyncio.timeout(10):
        assert await queue.put((1, 1, Transmission(4, 20_000)), 60.0)
    assert losses.told == [(EXPIRED, 1, 1)], "not for want of room"
    waiting = asyncio.create_task(queue.put((2, 1, None), 60.0))
    await asyncio.sleep(0)
    assert taken(queue) == [0]
    assert await waiting, "nobody has waited in vain yet"


@on_loop
async def test_what_matters_least_makes_way_newest_first() -> None:
    """An alarm would be dropped at a dead reader with a queue of unimportant entries."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=4)
    queue.keeper = losses = Losses()
    queue.offer_all([(0, 1, IDLE), (1, 2, None), (2, 4, IDLE), (3, 8, None)])
    assert not await queue.put((4, 1, IDLE), 0.0), "nothing makes way for its like"
    assert await queue.put((5, 1, None), 0.0)
    assert await queue.put((6, 1, URGENT), 0.0)
    assert await queue.put((7, 1, URGENT), 0.0)
    assert not await queue.put((8, 1, None), 0.0)
    assert losses.told == [(QUEUE_FULL, 1, 4), (QUEUE_FULL, 1, 1), (QUEUE_FULL, 1, 1)]
    assert queue.take_batch(9, 99) == ([6, 7, 1, 3], 12)


@on_loop
async def test_nothing_makes_way_in_vain() -> None:
    """Many small entries would be lost for a large one, which is lost as well."""
    budget = Budget(20)
    queue: SubscriptionQueue[int] = SubscriptionQueue(bytes_max=12, budget=budget)
    queue.offer_all([(n, 2, None) for n in range(5)])
    assert not await queue.put((5, 13, URGENT), 0.0), "even an empty queue would be too small"
    assert len(queue) == 5
    assert await queue.put((6, 5, URGENT), 0.0)
    assert queue.take_batch(9, 99) == ([6, 0, 1, 2], 11)
    assert budget.held_bytes == 0
    other: SubscriptionQueue[int] = SubscriptionQueue(budget=budget)
    assert other.offer_all([(0, 15, None)])
    assert queue.offer_all([(7, 5, None)])
    assert not await queue.put((8, 6, URGENT), 0.0), "what others hold does not make way"
    assert await queue.put((9, 5, URGENT), 0.0)
    assert taken(queue) == [9]


def full(
    *entries: tuple[int, int, Transmission | None], when_full: WhenFull
) -> SubscriptionQueue[int]:
    """A queue with room for three, filled with these by one call."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(notifications_max=3, when_full=when_full)
    losses = Losses()
    queue.keeper = losses
    assert queue.offer_all(entries) == len(entries)
    assert sum(count for _, count, _ in losses.told) == max(0, len(entries) - 3)
    return queue


@pytest.mark.parametrize(
    ("when_full", "held"), [("drop-oldest", [2, 3, 4]), ("drop-newest", [0, 1, 2])]
)
def test_nobody_waits_where_something_is_dropped(when_full: WhenFull, held: list[int]) -> None:
    """A publisher would wait for a reader with drops, or the wrong half would be lost."""
    queue = full(*((n, 1, None) for n in range(5)), when_full=when_full)
    assert [taken(queue)[0] for _ in range(3)] == held
    assert queue.held_bytes == 0


def test_the_oldest_of_the_lowest_makes_way_for_its_like() -> None:
    """An urgent notification would be dropped for a less urgent one, or the newest of several."""
    low, high = Transmission(1), Transmission(8)
    entries = [(0, 1, low), (1, 1, high), (2, 1, low), (3, 1, low), (4, 1, high), (5, 1, IDLE)]
    queue = full(*entries, when_full="drop-oldest")
    assert [taken(queue)[0] for _ in range(3)] == [1, 4, 3]


def test_what_is_urgent_makes_way_for_nothing_lower_where_the_newest_is_dropped() -> None:
    """Priorities would count only where publishers wait."""
    queue = full((0, 1, None), (1, 1, None), (2, 1, None), (3, 1, URGENT), when_full="drop-newest")
    assert [taken(queue)[0] for _ in range(3)] == [3, 0, 1]


def test_one_too_large_for_all_the_room_drops_no_other() -> None:
    """One large notification would empty a queue, and be dropped all the same."""
    queue: SubscriptionQueue[int] = SubscriptionQueue(bytes_max=10, when_full="drop-oldest")
    assert queue.offer_all([(0, 4, None), (1, 4, None), (2, 11, None), (3, 4, None)]) == 4
    assert [taken(queue)[0] for _ in range(2)] == [1, 3]


def test_who_is_cut_off_keeps_what_is_held() -> None:
    """Entries from before a gap would be lost, or others delivered after it."""
    queue = full(*((n, 1, None) for n in range(5)), when_full="disconnect")
    assert queue.finished
    assert queue.offer_all([(9, 1, None)]) == 0
    assert [taken(queue) for _ in range(4)] == [[0], [1], [2], []]


@on_loop
async def test_a_queue_that_is_full_for_its_budget_stays_behind_when_it_drops() -> None:
    """Each publisher in line would wait again, for each of thousands of queues of one client."""
    budget = Budget(10_000)
    assert SubscriptionQueue[str](budget=budget).offer_all([("other", 9_000, None)])
    queue = SubscriptionQueue[str](budget=budget, when_full="drop-oldest")
    for name in ("first", "second"):
        assert await queue.put((name, 600, None), 0.0)
    queue.fall_behind()
    for name in ("third", "fourth"):
        assert await queue.put((name, 600, None), 1e9)
    assert queue.take() == ("fourth", 600)
