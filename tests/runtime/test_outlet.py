"""The bounded queue: what fits, who waits, who loses, in which order."""

import asyncio

import pytest

from contrada.runtime.outlet import Outlet
from tests.asynchronous import on_loop


@on_loop
async def test_it_is_bounded_in_entries_and_bytes() -> None:
    """A reader that stopped would fill the memory."""
    few: Outlet[int] = Outlet(notifications_max=2)
    assert [few.offer(n, 1) for n in range(3)] == [True, True, False]
    light: Outlet[int] = Outlet(bytes_max=10)
    assert [light.offer(n, 6) for n in range(2)] == [True, False]
    assert light.take() == (0, 6)
    assert light.offer(2, 1000), "one large entry passes through an empty queue"


@on_loop
async def test_a_publisher_waits_for_a_slow_reader() -> None:
    """A fast publisher would lose notifications of a healthy subscriber."""
    outlet: Outlet[int] = Outlet(notifications_max=4)

    async def publish() -> list[bool]:
        return [await outlet.put(n, 1, 10.0) for n in range(50)]

    publisher = asyncio.create_task(publish())
    got: list[int] = []
    while len(got) < 50:
        await outlet.arrival()
        got.append(outlet.take()[0])
    assert got == list(range(50))
    assert all(await publisher)


@on_loop
async def test_a_stalled_reader_delays_once() -> None:
    """A dead subscriber would slow down every publication for ever."""
    outlet: Outlet[int] = Outlet(notifications_max=1)
    assert outlet.offer(0, 1)
    loop = asyncio.get_running_loop()
    assert not await outlet.put(1, 1, 0.05)
    began = loop.time()
    assert not await outlet.put(2, 1, 20.0)
    assert loop.time() - began < 5.0
    outlet.take()
    assert await outlet.put(3, 1, 0.0), "a reader that reads again gets notifications again"


@on_loop
async def test_without_a_wait_the_newest_is_dropped() -> None:
    """A publisher that asked not to wait would wait, or the oldest would be lost."""
    outlet: Outlet[int] = Outlet(notifications_max=1)
    assert await outlet.put(0, 1, 0.0)
    assert not await outlet.put(1, 1, 0.0)
    assert outlet.take() == (0, 1)


@on_loop
async def test_who_waits_is_served_in_order() -> None:
    """Notifications of one publisher could overtake one another."""
    outlet: Outlet[int] = Outlet(notifications_max=1)
    assert outlet.offer(0, 1)
    waiting = [asyncio.create_task(outlet.put(n, 1, 10.0)) for n in (1, 2, 3)]
    await asyncio.sleep(0)
    got = [outlet.take()[0]]
    assert not outlet.offer(4, 1), "who comes later does not overtake those in line"
    for _ in waiting:
        await outlet.arrival()
        got.append(outlet.take()[0])
    assert got == [0, 1, 2, 3]
    assert await asyncio.gather(*waiting) == [True, True, True]


@on_loop
async def test_finishing_lets_waiting_publishers_go() -> None:
    """An unsubscribe would leave publishers waiting."""
    outlet: Outlet[int] = Outlet(notifications_max=1)
    assert outlet.offer(0, 1)
    waiting = asyncio.create_task(outlet.put(1, 1, 20.0))
    await asyncio.sleep(0)
    assert outlet.discard() == 1
    assert not await waiting
    assert len(outlet) == 0


@on_loop
async def test_finishing_keeps_what_is_held() -> None:
    """Closing a service would lose what a subscriber has not read yet."""
    outlet: Outlet[int] = Outlet()
    assert outlet.offer(0, 1)
    outlet.finish()
    await outlet.arrival()
    assert outlet.take() == (0, 1)
    await outlet.arrival()
    assert not outlet.offer(1, 1)


@on_loop
async def test_a_cancelled_publisher_leaves_the_line() -> None:
    """Those behind a publisher that gave up would wait for ever."""
    outlet: Outlet[int] = Outlet(notifications_max=1)
    assert outlet.offer(0, 1)
    first = asyncio.create_task(outlet.put(1, 1, 20.0))
    second = asyncio.create_task(outlet.put(2, 1, 20.0))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    outlet.take()
    assert await second
    assert outlet.take() == (2, 1)
    assert outlet.offer(3, 1)
