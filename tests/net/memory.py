"""The tables of a broker, and whether memory grows."""

import asyncio
import statistics
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Final, TypeAlias

from contrada.net.broker.broker import Broker
from contrada.routing.router_messages import Client

Table: TypeAlias = dict[str, int]

NOISE: Final = 3.0
"""How many times as much as it is off its line memory may rise along it."""

ARENA_KB: Final = 1024
"""The unit in which Python takes memory from the system (`ARENA_BITS` of its obmalloc.c)."""


def tables(broker: Broker) -> Table:
    """Returns the size of each table with state of connections.

    Durable state stays, and so do the subscriptions of its logs.
    """
    dispatcher = broker.dispatcher
    router = dispatcher.router
    router.validate()
    keeper = Client(broker.logs.client.name)
    asked = [party for party, _, _ in router._subscriptions.registrations if party != keeper]
    patterns = router.statistics().patterns
    return {
        "connections": len(broker._connections),
        "guests": len(broker._sessions),
        "links": len(broker.neighbours) + len(dispatcher._links),
        "clients of the exchange": len(dispatcher.routes),
        "routes": sum(len(of) for name, of in dispatcher.routes.items() if name != keeper.name),
        "subscriptions": len(asked),
        "advertisements": len(router._offers.registrations),
        "patterns": patterns.patterns + patterns.delegated,
        "runs": patterns.runs + patterns.waiting,
        "on offer": len(dispatcher.on_offer),
        "followers": len(dispatcher.followers),
        "bytes": broker._held_bytes,
        "work": len(broker._work),
        "due": len(broker.rounds._due),
        "readers": len(broker.logs._readers),
        "publishers": len(broker.logs._publishers),
        "ferries": len(broker.logs._channels),
        "tasks": len(asyncio.all_tasks()),
    }


def rss_kb(pid: int | str = "self") -> int:
    """Returns the resident memory of a process, read as a whole, not from a counter."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} tells of no memory")


def slope(samples: Sequence[float]) -> float:
    """By how much it rises from one to the next: the median of all pairs (Theil and Sen)."""
    pairs = combinations(enumerate(samples), 2)
    return statistics.median((b - a) / (n - m) for (m, a), (n, b) in pairs)


def is_flat(samples: Sequence[float]) -> bool:
    """Returns whether samples of the same phase of a load are constant, after warming up.

    The third and the fourth quarter are examined, of three samples each at least: memory grows
    where it rises in both. In one of them it may rise by a step, such as an arena more.
    """
    at, middle = len(samples) // 2, len(samples) * 3 // 4
    parts = samples[at:middle], samples[middle:]
    return not all(len(part) > 2 and _rises(part) for part in parts)


def _rises(samples: Sequence[float]) -> bool:
    """Whether it rises by more than `NOISE` times the median deviation from its line, and by more
    than one arena, the least that Python takes from the system.
    """
    by = slope(samples)
    line = [value - by * at for at, value in enumerate(samples)]
    middle = statistics.median(line)
    off = statistics.median(abs(each - middle) for each in line)
    return by * (len(samples) - 1) > max(NOISE * off, ARENA_KB)
