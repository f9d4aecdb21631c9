"""The embedded service alone; tests of all services are in tests/service."""

import asyncio

import pytest

import contrada as ct
from contrada.errors import LimitError, ServiceError
from contrada.service.embedded_service import PUBLISHES_PER_TURN, EmbeddedService
from contrada.service.service_limits import CoreLimits, ServiceLimits
from tests.asynchronous import on_loop
from tests.operators import register_failing

SMALL = CoreLimits(service=ServiceLimits(queue_notifications_max=100))


@on_loop
async def test_a_publisher_and_a_reader_in_one_loop_lose_nothing() -> None:
    """A fast publisher would overrun a subscriber in its own event loop."""
    total = 1_100
    async with EmbeddedService(limits=SMALL) as service, service.subscribe("n >= 0") as events:

        async def publish() -> None:
            await service.publish_batch({"n": n} for n in range(total))
            await service.aclose()

        publisher = asyncio.create_task(publish())
        got = []
        async for n in events:
            got.append(n["n"])
            await asyncio.sleep(0)  # One for each turn: far slower than its publisher.
        assert got == list(range(total))
        await publisher
        assert events.statistics().dropped == {}


@on_loop
async def test_a_publisher_gives_others_their_turn() -> None:
    """No other task of its event loop would run while it publishes."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with EmbeddedService() as service:
        counting = asyncio.create_task(count())
        for _ in range(PUBLISHES_PER_TURN):
            await service.publish({"a": 1})
        assert turns == 1
        await service.publish_batch([{"a": 1}] * (3 * PUBLISHES_PER_TURN))
        assert turns == 4
        counting.cancel()


@on_loop
async def test_losses_are_counted_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Best effort would mean silent."""
    extra = 10
    total = SMALL.service.queue_notifications_max + extra
    async with (
        EmbeddedService(publish_wait_s=0, limits=SMALL) as service,
        service.subscribe("n >= 0") as events,
    ):
        assert await service.publish_batch({"n": n} for n in range(total)) == total
        assert events.statistics().dropped == {"queue full": extra}
        assert service.statistics().dropped == {"queue full": extra}
        assert service.statistics().matched == total
        assert (await anext(events))["n"] == 0, "the newest are dropped, not the oldest"
    assert [each.getMessage() for each in caplog.records] == [
        "subscription 1 of client 1 does not keep up: further notifications are dropped"
    ]


@on_loop
async def test_losses_are_logged_once_for_a_client(caplog: pytest.LogCaptureFixture) -> None:
    """A client with 10,000 subscriptions would write as many lines at once, and hold the loop."""
    total = SMALL.service.queue_notifications_max + 1
    async with (
        EmbeddedService(publish_wait_s=0, limits=SMALL) as service,
        service.subscribe("n >= 0"),
        service.subscribe("n any"),
    ):
        await service.publish_batch({"n": n} for n in range(total))
        assert service.statistics().dropped == {"queue full": 2}
    assert len(caplog.records) == 1


@on_loop
async def test_what_makes_way_for_what_is_urgent_is_counted() -> None:
    """An alarm would be dropped at a dead reader, or its victim be lost uncounted."""
    total = SMALL.service.queue_notifications_max
    async with (
        EmbeddedService(publish_wait_s=0, limits=SMALL) as service,
        service.subscribe("n >= 0") as events,
    ):
        await service.publish_batch({"n": n} for n in range(total))
        await service.publish({"n": total}, priority=9)
        await service.publish({"n": total + 1}, priority=3)
        assert events.statistics().dropped == {"queue full": 2}
        assert service.statistics().dropped == {"queue full": 2}
        assert [(await anext(events))["n"] for _ in range(3)] == [total, 0, 1]
        assert events.statistics().queued == total - 3


@on_loop
async def test_subscriptions_are_bounded() -> None:
    """Subscribers could fill the memory."""
    one = CoreLimits(service=ServiceLimits(subscriptions_max=1))
    async with EmbeddedService(limits=one) as service, service.subscribe("a = 1"):
        with pytest.raises(LimitError, match="subscriptions_max"):
            await service.subscribe("a = 1").open()
        with pytest.raises(LimitError, match="subscriptions_max"):
            await service.subscribe(ct.Pattern("a = 1 -> b = 1")).open()


@on_loop
async def test_failing_operators_and_safe_answers_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A silent subscription, or a wide route, would have no explanation."""
    register_failing(monkeypatch)
    async with EmbeddedService() as service, service.subscribe("a fails 'x'"):
        await service.publish({"a": "x"})
        ct.covers(ct.Filter("a fails 'x'"), ct.Filter("a fails 'y'"))
        counts = service.statistics()
    assert (counts.published, counts.matched) == (1, 0)
    assert counts.operator_failures["fails"] >= 1
    assert counts.safe_answers["covers"] == 1


@pytest.mark.parametrize("wait_s", [-1.0, 61.0, float("nan")])
def test_the_wait_is_bounded(wait_s: float) -> None:
    """A publisher could wait for ever."""
    with pytest.raises(ServiceError, match="publish_wait_s"):
        EmbeddedService(publish_wait_s=wait_s)
