"""Limits of a service: as its owner, and as each subscriber sets them."""

from typing import Any

import pytest

from contrada.errors import ServiceError, TooSlowError
from contrada.net.client.tcp_service import TcpService
from contrada.service import DurableRecord
from contrada.service.durable_reader import DurableReader
from contrada.service.embedded_service import EmbeddedService
from tests.asynchronous import on_loop, until
from tests.service.ways import known_durable, service_of


@on_loop
async def test_a_subscriber_sets_the_size_of_its_queue() -> None:
    """A display of the latest value would hold ten thousand old ones."""
    async with (
        EmbeddedService() as service,
        service.subscribe("n any", queue_max=2, when_full="drop-oldest") as latest,
        service.subscribe("n any", queue_bytes=3_000, when_full="disconnect") as few,
    ):
        await service.publish_batch([{"n": n} for n in range(10)])
        assert [(await latest.next(5))["n"] for _ in range(2)] == [8, 9]
        assert latest.statistics().dropped == {"queue full": 8}
        held = few.statistics().queued
        assert 0 < held < 6
        assert [(await few.next(5))["n"] for _ in range(held)] == [*range(held)]
        with pytest.raises(TooSlowError):
            await few.next(5)


@on_loop
async def test_every_service_delivers_through_a_small_queue(name: str) -> None:
    """A subscriber at a broker would get nothing, or all at once, whatever it asked for."""
    async with (
        service_of(name) as service,
        service.subscribe("n any", queue_max=2) as few,
        service.subscribe("n any", queue_bytes=2_000) as small,
    ):
        await service.publish({"n": 0})
        assert (await few.next(20))["n"] == (await small.next(20))["n"] == 0
        if isinstance(service, TcpService):
            await service.publish_batch([{"n": n} for n in range(1, 100)])
            await until(lambda: few.statistics().queued > 0)
            assert few.statistics().queued <= 3
            assert small.statistics().queued <= 5
            for events in (few, small):
                assert [(await events.next(20))["n"] for _ in range(99)] == [*range(1, 100)]


@on_loop
async def test_a_reader_sets_its_prefetch(name: str) -> None:
    """One of several readers would hold records that the others could work on."""
    async with (
        service_of(name) as service,
        service.subscribe("n any", reliable=True, prefetch=2) as records,
    ):
        assert isinstance(records, DurableReader)
        await known_durable(service, 1)
        for n in range(10):
            await service.publish({"n": n}, delivery="reliable")
        await until(lambda: records.statistics().queued == 2)
        found: list[DurableRecord[Any]] = [await records.next(20) for _ in range(10)]
        assert [each["n"] for each in found] == [*range(10)]


@pytest.mark.parametrize("option", ["queue_max", "queue_bytes", "prefetch"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_what_is_no_size_is_refused(option: str, wrong: Any) -> None:
    """A queue would hold nothing, or fail at its first notification."""
    durable = {"reliable": True} if option == "prefetch" else {}
    with pytest.raises(ServiceError, match=f"{option} = .*: expected a number from 1"):
        EmbeddedService().subscribe("n any", **{option: wrong}, **durable)


def test_a_durable_subscription_has_no_queue() -> None:
    """A bound would be accepted and do nothing."""
    options: dict[str, Any] = {"queue_max": 2, "reliable": True}
    with pytest.raises(ServiceError, match=r"leave out .*queue_max"):
        EmbeddedService().subscribe("n any", **options)
