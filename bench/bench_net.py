"""The embedded service and a broker in a process of its own, end to end over loopback.

One publisher and four subscribers, each with a connection of its own, in one event loop;
each filter matches half of the notifications. A sample is one whole run.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from bench.harness import Measurement, figure
from contrada.connections import connect
from contrada.service import Service, Subscription

NOTIFICATIONS = 10_000
SUBSCRIBERS = 4
SAMPLES = 5
LATENCIES = 500

ITEMS = [
    {
        "class": "finance/exchanges/stock",
        "symbol": f"S{n % 50}",
        "price": float(n % 200),
        "venue": "NYSE",
        "n": n,
    }
    for n in range(NOTIFICATIONS)
]
WORKLOAD = (
    f"{NOTIFICATIONS:,} notifications of 5 attributes, {SUBSCRIBERS} subscribers "
    "that each get half of them"
)


@contextmanager
def broker() -> Iterator[str]:
    """The address of a broker in a process of its own."""
    command = [sys.executable, "-c", "from contrada.cli import main; main()", "serve", "--port"]
    with subprocess.Popen(
        [*command, "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


async def read(events: Subscription[object], count: int) -> None:
    for _ in range(count):
        await anext(events)


async def seconds_until_delivered(address: str | None, service: Service) -> float:
    """From the first publication until every subscriber has read all that is for it."""
    async with asyncio.TaskGroup() as tasks:
        services = [service] * SUBSCRIBERS
        if address is not None:
            services = [connect(address) for _ in range(SUBSCRIBERS)]
        subscriptions = []
        for each in services:
            await each.open()
            subscriptions.append(each.subscribe("price < 100"))
            await subscriptions[-1].open()
        start = perf_counter()
        readers = [tasks.create_task(read(s, NOTIFICATIONS // 2)) for s in subscriptions]
        await service.publish_batch(ITEMS)
        await asyncio.gather(*readers)
        seconds = perf_counter() - start
        for each, subscription in zip(services, subscriptions, strict=True):
            assert not subscription.statistics().dropped
            await subscription.unsubscribe()
            if each is not service:
                await each.aclose()
    return seconds


async def rates(address: str | None) -> list[float]:
    async with connect(address) as service:
        await seconds_until_delivered(address, service)
        return [
            NOTIFICATIONS / await seconds_until_delivered(address, service) for _ in range(SAMPLES)
        ]


async def latencies(address: str) -> list[float]:
    async with connect(address) as service, service.subscribe("n >= 0") as events:
        samples = []
        for item in ITEMS[:LATENCIES]:
            start = perf_counter()
            publishing = asyncio.create_task(service.publish(item))
            await anext(events)
            samples.append(perf_counter() - start)
            await publishing
        return samples[LATENCIES // 10 :]


@figure(
    name="net/embedded", unit="notifications/s", workload=f"embedded: {WORKLOAD}", counts="clock"
)
def embedded() -> Measurement:
    return Measurement(asyncio.run(rates(None)))


@figure(
    name="net/broker",
    unit="notifications/s",
    workload=f"one broker over TCP: {WORKLOAD}",
    counts="clock",
)
def one_broker() -> Measurement:
    with broker() as address:
        return Measurement(asyncio.run(rates(address)))


@figure(
    name="net/latency",
    unit="us",
    workload="one broker over TCP, idle: from publish to delivery, one notification at a time",
    counts="clock",
)
def latency() -> Measurement:
    with broker() as address:
        return Measurement(asyncio.run(latencies(address)))
