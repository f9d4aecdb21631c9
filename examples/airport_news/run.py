"""News of airports: a feed is polled twice, and each desk gets the entries about its airport.

    python -m examples.airport_news                      # in this process
    python -m examples.airport_news contrada://HOST      # at a broker

An entry names several airports, so its notification has generated names for all but the first. A
desk subscribes to its airport under any of them, and gets the original names from the naming
service. The deliveries are compared with a plain loop over the entries.

Source: Erenkrantz 2001 §6.4, §6.5, §8 (a feed as a source of events).
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import contrada as ct
from contrada.integrations.feeds import (
    FeedPoller,
    FeedStates,
    Names,
    NamingService,
    Receiver,
    Sender,
)
from contrada.integrations.files import ReadOptions

AIRPORTS: Final = ("JFK", "LGA", "EWR", "BOS", "ORD")
AIRPORT: Final = "feed.entry.airport"
NAMES: Final = (AIRPORT, f"{AIRPORT}~1_2", f"{AIRPORT}~1_3")
"""The names of an entry's airports: three at most, and it is the first entry of its feed."""

DESKS: Final = ("JFK", "BOS")
FIRST: Final = 60
LATER: Final = 6
"""New entries of the second poll; every tenth of the first ones has changed."""

NEWS_WAIT_S: Final = 10.0
"""Seconds of silence after which a desk stops waiting."""


class News(NamedTuple):
    """An entry of the feed."""

    number: int
    version: int
    airports: tuple[str, ...]

    @property
    def title(self) -> str:
        """Its title."""
        return f"Delays, bulletin {self.number}.{self.version}"

    def to_xml(self) -> str:
        """Returns the entry's element."""
        airports = "".join(f"<airport>{each}</airport>" for each in self.airports)
        updated = f"2013-02-08T{self.number % 24:02}:0{self.version}:00Z"
        return (
            f"<entry><id>urn:news:{self.number}</id><title>{self.title}</title>"
            f"<updated>{updated}</updated>{airports}</entry>"
        )


def news(number: int, version: int = 0) -> News:
    """Returns bulletins; some are about three airports."""
    count = 1 + number % 3
    airports = tuple(AIRPORTS[(number + each) % len(AIRPORTS)] for each in range(count))
    return News(number, version, airports)


def polls() -> tuple[list[News], list[News]]:
    """Returns the entries at the first and at the second poll."""
    first = [news(number) for number in range(FIRST)]
    kept = [news(each.number, int(each.number % 10 == 0)) for each in first[1:]]
    return first, [news(number) for number in range(FIRST, FIRST + LATER)] + kept


def feed_of(entries: list[News]) -> str:
    """Returns the feed with these entries."""
    written = "".join(each.to_xml() for each in entries)
    return f'<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:news</id>{written}</feed>'


@dataclass(frozen=True)
class Followed:
    """The deliveries of each desk, and the numbers of new, changed and unchanged entries."""

    received: Counter[tuple[str, str, frozenset[str]]]
    counts: tuple[tuple[int, int, int], ...]


def expected() -> Followed:
    """Computes the same by a loop over the entries."""
    first, second = polls()
    told = set(first) | set(second)
    received: Counter[tuple[str, str, frozenset[str]]] = Counter(
        (str(desk), each.title, frozenset(each.airports))
        for desk in DESKS
        for each in told
        if desk in each.airports
    )
    both = len(set(first) & set(second))
    changed = len(second) - LATER - both
    return Followed(received, ((FIRST, 0, 0), (LATER, changed, both)))


async def follow(service: ct.Service) -> tuple[Followed, Followed]:
    """Returns the actual and the expected result."""
    wanted = expected()
    names = Names(service)
    received: Counter[tuple[str, str, frozenset[str]]] = Counter()
    async with NamingService(service), AsyncExitStack() as running:
        reading = []
        for desk in DESKS:
            asked = f"`{AIRPORT}*` = '{desk}'"
            receiver = Receiver(service, asked, names=names, patterns=NAMES)
            await running.enter_async_context(receiver)
            due = sum(count for (at, _, _), count in wanted.received.items() if at == desk)
            reading.append(read(desk, receiver, due, received))
        counts = await poll_twice(Sender(service, names))
        await asyncio.gather(*reading)
    return Followed(received, counts), wanted


async def read(
    desk: str, receiver: Receiver, due: int, received: Counter[tuple[str, str, frozenset[str]]]
) -> None:
    """Reads the deliveries of a desk until the expected number."""
    with suppress(TimeoutError):
        for _ in range(due):
            found = await receiver.next(NEWS_WAIT_S)
            airports = found[AIRPORT]
            several = airports if isinstance(airports, tuple) else (airports,)
            received[desk, str(found["feed.entry.title"]), frozenset(map(str, several))] += 1


async def poll_twice(sender: Sender) -> tuple[tuple[int, int, int], ...]:
    """Polls the feed and sends new and changed entries; a second run continues after the first."""
    counts = []
    with TemporaryDirectory() as folder:
        path, states = Path(folder, "news.atom"), Path(folder, "news.state")
        for entries in polls():
            path.write_text(feed_of(entries))
            poller = FeedPoller(
                [str(path)], ReadOptions(strategy="daemon"), states=FeedStates(states)
            )
            async for poll in poller.polls():
                await sender.send(poll.records)
                counts.append((poll.new, poll.changed, poll.unchanged))
    return tuple(counts)
