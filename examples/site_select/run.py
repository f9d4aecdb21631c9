"""Commands and questions to sites, compared with a loop over all sites and flights.

    python -m examples.site_select                      # in this process
    python -m examples.site_select contrada://HOST      # at a broker

Only the sites that a bit set selects receive an order; acknowledgements and answers are counted and
summed on their way back, where paths join.

Source: CU-CS-946-03 §6.1; CU-CS-948-03 §8 (Site-Select, and the aggregation of its responses).
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import contrada as ct
from contrada.routing.aggregation import AggregateKind
from examples.site_select.sites import BUSY_TRAIT, HIGH, WEST, Flight, Site, airlines, bits, load

COUNT: Final = ct.Aggregate(AggregateKind.COUNT)
FLIGHTS: Final = ct.Aggregate(AggregateKind.SUM, "flights")
LATEST: Final = ct.Aggregate(AggregateKind.MAX, "arr_delay")
LATE: Final = 120
STORM: Final = (8, 9)
WAIT_S: Final = 60.0
"""Seconds that no step exceeds."""


@dataclass(frozen=True)
class Outcome:
    """The orders of each site, their results, and the days held at each site at the end."""

    results: dict[str, list[dict[str, Any]]]
    asked: dict[str, frozenset[str]]
    held: frozenset[tuple[str, int]]


def orders(carriers: Sequence[str]) -> dict[str, tuple[list[ct.Aggregate], str, str]]:
    """Returns the orders: aggregates, a question and a grouping each."""
    two = airlines(carriers, "AA", "DL")
    return {
        "hold": (
            [COUNT, FLIGHTS],
            f"site set>= {_text(WEST | BUSY_TRAIT)} and command = 'hold' and day in {STORM}",
            "",
        ),
        "release": (
            [FLIGHTS],
            f"site set~ {_text(two)} and site set>= {_text(WEST)} and command = 'release'"
            " and day = 9",
            "airport",
        ),
        "late": (
            [COUNT, LATEST],
            f"site set<= {_text(~(WEST | HIGH) & 0xFFFFFF)} and arr_delay > {LATE}",
            "carrier",
        ),
    }


async def select(
    asker: ct.Service,
    hosts: Sequence[ct.Service],
    settled: Callable[[], Awaitable[object]] | None = None,
) -> tuple[Outcome, Outcome]:
    """Returns the actual and the expected results. The sites are distributed over the hosts.

    `settled` returns when all servers know the descriptions of the sites.
    """
    sites, carriers = load()
    wanted = expected(sites, carriers)
    results: dict[str, list[dict[str, Any]]] = {}
    asked: dict[str, frozenset[str]] = {}
    async with AsyncExitStack() as running:
        for number, site in enumerate(sites):
            host = hosts[number % len(hosts)]
            await running.enter_async_context(host.offer(site.description, site, name=site.name))
        if settled is not None:
            await settled()
        for order, (aggregates, question, by) in orders(carriers).items():
            answers = asker.compute(aggregates, question, by=by, timeout_s=WAIT_S)
            results[order] = [each async for each in answers]
            if not answers.is_complete:
                raise SystemExit(f"{order}: {answers.reports}")
            asked[order] = frozenset(each.name for each in answers.reports)
    held = frozenset((site.name, day) for site in sites for day in site.held)
    return Outcome(results, asked, held), wanted


def expected(sites: Sequence[Site], carriers: Sequence[str]) -> Outcome:
    """Computes the same by loops over all sites and flights, with integers for bit sets."""
    two, slow = airlines(carriers, "AA", "DL"), WEST | HIGH
    far = [site for site in sites if site.traits & WEST and site.traits & BUSY_TRAIT]
    freed = [site for site in sites if site.traits & two and site.traits & WEST]
    low = [site for site in sites if not site.traits & slow]
    held = {(site.name, day) for site in far for day in STORM if _flights(site, day)}
    released = {site.name: _flights(site, 9) for site in freed if _flights(site, 9)}
    late: dict[str, list[Flight]] = {}
    for flight in (each for site in low for each in site.flights):
        if flight.arr_delay is not None and flight.arr_delay > LATE:
            late.setdefault(flight.carrier, []).append(flight)
    results: dict[str, list[dict[str, Any]]] = {
        "hold": [
            {
                "count": len(held),
                "sum(flights)": sum(_flights(site, day) for site in far for day in STORM),
            }
        ],
        "release": [
            {"airport": name, "sum(flights)": count} for name, count in sorted(released.items())
        ],
        "late": [
            {
                "carrier": carrier,
                "count": len(several),
                "max(arr_delay)": max(each.arr_delay or 0 for each in several),
            }
            for carrier, several in sorted(late.items())
        ],
    }
    asked = {
        order: frozenset(site.name for site in several)
        for order, several in (("hold", far), ("release", freed), ("late", low))
    }
    return Outcome(results, asked, frozenset(held - {(name, 9) for name in released}))


def _flights(site: Site, day: int) -> int:
    return sum(each.day == day for each in site.flights)


def _text(traits: int) -> str:
    """Returns a bit set in the syntax of filters."""
    return f'x"{bits(traits).hex()}"'
