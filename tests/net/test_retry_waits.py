"""The waits of a client between attempts to reconnect, and what ends them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from contrada.connections import connect
from contrada.net.broker.broker import Broker
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.client.client_limits import ClientLimits
from contrada.net.client.tcp_service import TcpService
from contrada.service import Service
from contrada.service.backoff import Backoff, BackoffLimits
from tests.asynchronous import on_loop
from tests.net.test_reconnection import begun, cut, lose, reached

HURRIED = ClientLimits(retry_s_max=0.01, backoff=BackoffLimits(first_s=1_000.0, longest_s=1_000.0))
"""Attempts that nothing hurries do not come within a test."""

CALLS: dict[str, Callable[[Service], Awaitable[object]]] = {
    "publication": lambda service: service.publish({"n": 1}),
    "certified": lambda service: service.publish({"n": 1}, delivery="certified"),
    "batch": lambda service: service.publish_batch([{"n": 1}]),
    "subscription": lambda service: service.subscribe("n any").open(),
    "reader": lambda service: service.subscribe("n any", durable="log").open(),
    "statistics": lambda service: service.broker_statistics(),  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("call", CALLS)
@on_loop
async def test_a_call_ends_the_wait_for_the_next_attempt(call: str, tmp_path: Path) -> None:
    """Publishers would fail beside a broker that listens again."""
    store = tmp_path / "events.db"
    broker = Broker(port=0, store=store)
    await broker.start()
    address = broker.address
    async with TcpService(address, limits=HURRIED) as service:
        states = service.connection_states()
        await cut(broker)
        assert (await reached(states, "trying")).wait_s >= 500, "nothing needs the connection"
        broker = await begun(address, store)
        await CALLS[call](service)
        assert (await reached(states, "connected")).address == address
    await broker.stop()


@pytest.mark.parametrize("options", [{}, {"durable": "log"}], ids=["plain", "durable"])
@on_loop
async def test_after_many_losses_a_reader_waits_no_longer(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """Each loss would double the wait of a reader with unread records, up to half a minute."""
    async with (
        Broker(port=0, store=tmp_path / "events.db") as broker,
        TcpService(broker.address, limits=HURRIED) as service,
        service.subscribe("n any", **options) as events,
        connect(broker.address) as publisher,
    ):
        states = service.connection_states()
        for number in range(50):
            lose(service)
            assert (await reached(states, "trying")).wait_s <= HURRIED.retry_s_max
            await reached(states, "connected")
            await publisher.publish({"n": number}, delivery="certified" if options else None)
            got: Any = await anext(events)
            assert (got.item if options else got)["n"] == number


@on_loop
async def test_attempts_of_a_waiting_call_have_a_rate() -> None:
    """All clients of a broker that is away would try it without a pause."""
    broker = Broker(port=0)
    await broker.start()
    async with TcpService(broker.address, limits=HURRIED) as service:
        states = service.connection_states()
        await cut(broker)
        await reached(states, "trying")
        calls = [asyncio.create_task(service.publish({"n": n})) for n in range(100)]
        waits = [(await reached(states, "trying")).wait_s for _ in range(10)]
        assert all(HURRIED.retry_s_max / 2 <= wait_s <= HURRIED.retry_s_max for wait_s in waits)
        for each in calls:
            each.cancel()
        while (await reached(states, "trying")).wait_s < 500:
            pass  # No call waits any more, so there is no attempt either.


def test_the_bounds_of_waits_agree() -> None:
    """A publication would fail before the next attempt, or a reader wait longer than documented."""
    usual = ClientLimits()
    assert usual.retry_s_max <= 2 < usual.disconnected_wait_s


def test_after_many_losses_a_link_waits_no_longer_than_a_reader() -> None:
    """Readers behind another broker would wait for half a minute, beside brokers that listen."""
    backoff = Backoff(BrokerLimits().backoff)
    assert max(backoff.next_s() for _ in range(100)) <= ClientLimits().retry_s_max
