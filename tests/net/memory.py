"""What a broker holds, table by table, and whether memory stays as it is."""

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
"""What Python takes of the system at a time (`ARENA_BITS` of its obmalloc.c)."""


def tables(broker: Broker) -> Table:
    """The size of each table in which something is held for whoever is connected.

    What is durable stays, and so do the subscriptions of the logs that keep it.
    """
    dispatcher = broker.dispatcher
    router = dispatcher._router
    router.validate()
    keeper = Client(broker.logs.client.name)
    asked = [party for party, _, _ in router._subscriptions.registrations if party != keeper]
    patterns = router.statistics().patterns
    return {
        "connections": len(broker._connections),
        "guests": len(broker._sessions),
        "links": len(broker.neighbours) + len(dispatcher._links),
        "clients of the exchange": len(dispatcher._routes),
        "routes": sum(len(of) for name, of in dispatcher._routes.items() if name != keeper.name),
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
    """What a process has of the memory. It is read as a whole, not guessed from a counter."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} tells of no memory")


def slope(samples: Sequence[float]) -> float:
    """By how much it rises from one to the next: the median of all pairs (Theil and Sen)."""
    pairs = combinations(enumerate(samples), 2)
    return statistics.median((b - a) / (n - m) for (m, a), (n, b) in pairs)


def is_flat(samples: Sequence[float]) -> bool:
    """Whether what is measured at the same phase of a load stays, once it is warm.

    The second half is looked at. It grows where it rises by more than `NOISE` times what half of
    the samples are off their line by, and by more than one arena, the least that Python asks the
    system for.
    """
    half = list(samples[len(samples) // 2 :])
    if len(half) < 3:
        return True
    by = slope(half)
    line = [value - by * at for at, value in enumerate(half)]
    middle = statistics.median(line)
    off = statistics.median(abs(each - middle) for each in line)
    return by * (len(half) - 1) <= max(NOISE * off, ARENA_KB)
