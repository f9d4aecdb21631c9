"""A client in the broker's own process, and the latencies that brokers count."""

import time

import pytest

from contrada.errors import ServiceError
from contrada.integrations.http.token_services import local_service
from contrada.model import Notification
from contrada.model.algebra.notification import Envelope
from contrada.model.codec import published_us, to_msgpack
from contrada.net.broker.broker import Broker
from contrada.net.broker.latencies import BEYOND, Latencies
from tests.asynchronous import on_loop, until


@on_loop
async def test_a_local_service_is_a_client_like_any_other() -> None:
    """A component beside a broker would need a port, or an interface of its own."""
    async with Broker(port=0) as broker:
        async with local_service(broker) as near, near.subscribe("a > 1") as events:
            await near.publish_batch([{"a": n} for n in range(10)])
            assert [(await anext(events))["a"] for _ in range(8)] == [*range(2, 10)]
            counts = await near.broker_statistics()
            assert counts["connections"] == 1
        await until(lambda: broker.statistics().connections == 0)


@on_loop
async def test_a_lost_connection_is_made_again() -> None:
    """Streams of a gateway would end with each connection that its broker cuts."""
    async with (
        Broker(port=0) as broker,
        local_service(broker) as near,
        near.subscribe("a > 1") as events,
    ):
        for peer in list(broker._connections):
            peer.abort()
        await until(lambda: events.statistics().reconnects == 1)
        await until(lambda: near.connection.state == "connected")
        await near.publish({"a": 5})
        assert (await anext(events))["a"] == 5


@on_loop
async def test_credit_bounds_the_queue_of_a_client() -> None:
    """A thousand slow readers of a gateway would each hold megabytes there."""
    async with (
        Broker(port=0) as broker,
        local_service(broker, credit_bytes=20_000) as near,
        near.subscribe("a >= 0", when_full="drop-newest") as events,
    ):
        await near.publish_batch({"a": n, "b": "x" * 1_000} for n in range(200))
        await until(lambda: broker.statistics().held_bytes > 100_000)
        assert 5 <= events.statistics().queued <= 20
        assert [(await anext(events))["a"] for _ in range(200)] == [*range(200)]


@on_loop
async def test_deliveries_are_counted_by_age() -> None:
    """An operator would not see that a broker is slow."""
    async with Broker(port=0) as broker, local_service(broker) as near:
        async with near.subscribe("a >= 0") as events:
            long_ago_us = time.time_ns() // 1000 - 3_000_000
            await near.publish(Notification({"a": 0}, envelope=Envelope(time_us=long_ago_us)))
            await anext(events)
            await near.publish({"a": 1})
            await anext(events)
        latency_us = broker.statistics().latency_us
        assert latency_us["10000000"] == 1
        assert sum(latency_us.values()) == 2
        assert broker.statistics().latency_sum_us >= 3_000_000


@pytest.mark.parametrize(
    "notification",
    [
        Notification({"a": 1}, envelope=Envelope("i", "p", 1, 1_700_000_000_000_000)),
        Notification({"a": 1}, body=b"x" * 40, envelope=Envelope("i", "p", 1, 17)),
        Notification({}, envelope=Envelope("i", "p", 1, -5, priority=2)),
        Notification({"a": "b"}, body=b"{}", content_type="application/json"),
    ],
)
def test_the_time_of_packed_notifications(notification: Notification) -> None:
    """Latencies would be measured from another time than that of the envelope."""
    assert published_us(bytes(to_msgpack(notification))) == notification.envelope.at_us


def test_latencies_by_bounds() -> None:
    """A histogram would have observations in the wrong buckets, or would miss the slowest."""
    found = Latencies()
    for time_us in (0, 250_000_000_000_000_000):
        found.observe(time_us)
    assert found.counts() == {**dict.fromkeys(found.counts(), 0), BEYOND: 1, "100": 1}
    assert found.sum_us > 10**15


@on_loop
async def test_a_stopped_broker_refuses_local_services() -> None:
    """Opening one would hang."""
    broker = Broker(port=0)
    async with broker:
        pass
    with pytest.raises(ServiceError):
        async with local_service(broker, reconnect=False):
            pass
