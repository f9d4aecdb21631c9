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
from bench.trips import BATCH, WANTED, items

PER_SAMPLE: Final = 10_000
SAMPLES: Final = 7
UNWANTED: Final = "venue = 'LSE' and price < 100"

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


def beside(subject: Figure, *, wanted: bool, batch: int = 1) -> Measurement:
    """Returns the seconds of Contrada beside those of the emitters."""
    peers = asyncio.run(_in_turns(wanted, batch))
    own = peers.pop("contrada")
    if not peers:
        return Measurement(own)
    best, *others = subject.best(peers)
    return Measurement(own, best, peers[best], {name: peers[name] for name in others})


@figure(
    name="embedded/no-match",
    unit="us",
    workload="publish, one subscription that does not match",
    at_most=4,
)
def no_match() -> Measurement:
    return beside(no_match, wanted=False)


@figure(
    name="embedded/one-reader",
    unit="us",
    workload="publish, one subscription that matches, read by `anext`; peers: by a handler",
    at_most=8,
)
def one_reader() -> Measurement:
    return beside(one_reader, wanted=True)


@figure(
    name="embedded/batch",
    unit="us",
    workload=f"the same, published in batches of {BATCH}; peers have no batches",
    at_most=3,
)
def batch() -> Measurement:
    return beside(batch, wanted=True, batch=BATCH)
