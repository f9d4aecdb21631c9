"""The embedded service beside event emitters of Python: one process, one loop, no wire.

A notification is a mapping of six attributes, filtered by content. The peers have no filters: their
one handler tests the same two attributes in Python. A call of a handler is all that an emitter
does; it has no queue, and no reader in a task of its own.
"""

import asyncio
import importlib.util
from collections.abc import Callable
from time import process_time
from typing import Any, Final, TypeAlias

import contrada as ct
from bench.harness import Figure, Measurement, figure
from bench.trips import BATCH, UNWANTED, WANTED, items

PER_SAMPLE: Final = 10_000
SAMPLES: Final = 7

Items: TypeAlias = list[dict[str, Any]]
Emit: TypeAlias = Callable[[dict[str, Any]], object]


def _handler(venue: str) -> tuple[Emit, list[int]]:
    """Returns a handler with the filter in it, and the numbers that it has read."""
    found: list[int] = []

    def handle(item: dict[str, Any]) -> None:
        if item["venue"] == venue and item["price"] < 100:
            found.append(item["n"])

    return handle, found


def _pyee(venue: str) -> tuple[Emit, list[int]]:
    from pyee import EventEmitter

    emitter, (handle, found) = EventEmitter(), _handler(venue)
    emitter.on("market", handle)
    return lambda item: emitter.emit("market", item), found


def _blinker(venue: str) -> tuple[Emit, list[int]]:
    from blinker import Signal

    signal, (handle, found) = Signal(), _handler(venue)
    signal.connect(handle, weak=False)
    return signal.send, found


PEERS: Final = {"pyee": _pyee, "blinker": _blinker}


def _seconds_of_peer(emit: Emit, some: Items) -> float:
    begun = process_time()
    for item in some:
        emit(item)
    return (process_time() - begun) / len(some)


async def _seconds(service: Any, events: Any, some: Items, batch: int) -> float:
    """Returns processor seconds of a notification that is published, and read if `events` is."""

    async def read() -> None:
        for item in some:
            assert (await anext(events))["n"] == item["n"]

    begun = process_time()
    reading = None if events is None else asyncio.create_task(read())
    if batch == 1:
        for item in some:
            await service.publish(item)
    else:
        for start in range(0, len(some), batch):
            await service.publish_batch(some[start : start + batch])
    if reading is not None:
        await reading
    return (process_time() - begun) / len(some)


async def _in_turns(wanted: bool, batch: int) -> dict[str, list[float]]:
    """Returns the samples of Contrada and of each installed peer, after one round of warm-up."""
    venue = "NYSE" if wanted else "LSE"
    peers = {name: made(venue) for name, made in PEERS.items() if importlib.util.find_spec(name)}
    samples: dict[str, list[float]] = {name: [] for name in ("contrada", *peers)}
    async with ct.connect() as service:
        events = service.subscribe(WANTED if wanted else UNWANTED)
        await events.open()
        for number in range(1 + SAMPLES):
            some = items(PER_SAMPLE, number * PER_SAMPLE)
            own = await _seconds(service, events if wanted else None, some, batch)
            samples["contrada"].append(own)
            for name, (emit, found) in peers.items():
                found.clear()
                samples[name].append(_seconds_of_peer(emit, some))
                assert len(found) == (len(some) if wanted else 0)
    return {name: of_one[1:] for name, of_one in samples.items()}


def embedded(
    name: str, workload: str, at_most: float, *, wanted: bool = True, batch: int = 1
) -> Figure:
    """Returns the figure of seconds beside those of the emitters."""

    @figure(name=f"embedded/{name}", unit="us", workload=workload, at_most=at_most)
    def measured() -> Measurement:
        samples = asyncio.run(_in_turns(wanted, batch))
        return measured.beside(samples.pop("contrada"), samples)

    return measured


no_match = embedded("no-match", "publish, one subscription that does not match", 4, wanted=False)
one_reader = embedded(
    "one-reader", "publish, one subscription that matches, read by `anext`; peers: by a handler", 8
)
in_batches = embedded(
    "batch", f"the same, published in batches of {BATCH}; peers have no batches", 3, batch=BATCH
)
