"""The index of subscriptions by the number of its filters, beside the other engines.

The filters are two equalities, as every engine understands them, and one of them matches. Each
engine gets the same notifications in turns with the index, up to the number of filters that it can
hold. Figures of ten million filters are those of `bench.bench_matching_memory`.
"""

import gc
from collections.abc import Sequence
from typing import Any, Final

from bench import matching_peers as peers
from bench import matching_workloads as workloads
from bench.bench_matching import MILLION, SAMPLES, WARM_UP, index_of, seconds_each, seconds_of_some
from bench.harness import Figure, Measurement, figure

ENGINES: Final[dict[str, Any]] = {
    "zen": peers.ZenEngine,
    "event_ruler": peers.EventRuler,
    "sqlite3": peers.Sqlite,
}
"""The other engines by the modules that they need."""

HELD_MAX: Final[dict[Any, int]] = {peers.Sqlite: MILLION}
ONE_BY_ONE_MAX: Final = 10_000
"""Filters that an engine can hold: those that test one rule after another take milliseconds."""


def engines_for(size: int) -> list[Any]:
    """Returns the installed engines that can hold so many filters."""
    return [
        engine
        for module, engine in ENGINES.items()
        if peers.is_there(module) and size <= HELD_MAX.get(engine, ONE_BY_ONE_MAX)
    ]


def part(notifications: Sequence[Any], number: int) -> Sequence[Any]:
    """Returns the notifications from the begin of one of `SAMPLES` parts."""
    return notifications[number * len(notifications) // SAMPLES :]


def of_size(size: int) -> Figure:
    """Returns the figure of a match among so many filters."""

    @figure(
        name=f"matching/size-{size:,}",
        unit="us",
        workload=f"{size:,} filters of two equalities; 4 attributes, 1 match",
    )
    def measured() -> Measurement:
        workload = workloads.equalities(size)
        index = index_of(workload)
        others = [engine(workload.conjunctions()) for engine in engines_for(size)]
        warm, given = workload.notifications[:WARM_UP], workload.notifications[WARM_UP:]
        for notification in warm:
            index.match(notification)
        for notification in warm[:3]:
            expected = sorted(index.match(notification))
            for other in others:
                # Engines give the numbers of rules as they were written: as integers or texts.
                assert sorted(map(int, other.match(notification))) == expected, other.name
        own: list[float] = []
        of_others: dict[str, list[float]] = {each.name: [] for each in others}
        gc.collect()
        gc.disable()
        try:
            for number in range(SAMPLES):
                own.append(seconds_each(index.match, given))
                for other in others:
                    seconds = seconds_of_some(other.match, part(given, number))
                    of_others[other.name].append(seconds)
        finally:
            gc.enable()
        return measured.beside(own, of_others)

    return measured


SIZES: Final = (100, 1_000, 10_000, 100_000, MILLION)

globals().update({f"size_{size}": of_size(size) for size in SIZES})
