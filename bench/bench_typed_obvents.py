"""Obvents through the embedded service: published, matched, restored for a subscriber."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any

import contrada as ct
from bench.harness import Measurement, figure

PER_SAMPLE = 2_000
SAMPLES = 15


@dataclass
class Listed(ct.Obvent, name="bench.Listed"):
    """A listed security."""

    company: str


@dataclass
class Priced(Listed, name="bench.Priced"):
    """Six fields, two types."""

    price: float
    amount: int
    id: int
    market: str
    open: bool


QUOTE = Priced("Telco Mobiles", 80.0, 100, 12_373, "NYSE", True)
PLAIN = {
    "company": "Telco Mobiles",
    "price": 80.0,
    "amount": 100,
    "id": 12_373,
    "market": "NYSE",
    "open": True,
}


async def seconds_each(subject: Any, item: Any) -> float:
    """Seconds for one obvent, published and read by one subscriber."""
    async with ct.connect() as service, service.subscribe(subject) as events:

        async def read() -> None:
            for _ in range(PER_SAMPLE):
                await anext(events)

        reading = asyncio.create_task(read())
        began = process_time()
        for _ in range(PER_SAMPLE):
            await service.publish(item)
        await reading
        return (process_time() - began) / PER_SAMPLE


def alternately(subject: Callable[[], float], peer: Callable[[], float]) -> Measurement:
    """Both in turn, after one round of warm-up."""
    subject(), peer()
    pairs = [(subject(), peer()) for _ in range(SAMPLES)]
    ours, others = zip(*pairs, strict=True)
    return Measurement(ours, "a notification of the same six attributes", others)


@figure(
    name="typed/obvent",
    unit="us",
    at_most=12,
    workload="publish an obvent of six fields, embedded; one typed subscriber reads it",
)
def obvent() -> Measurement:
    return alternately(
        lambda: asyncio.run(seconds_each(Priced, QUOTE)),
        lambda: asyncio.run(seconds_each("price any", PLAIN)),
    )
