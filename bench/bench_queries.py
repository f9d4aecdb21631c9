"""Queries: the time until they reach the matching sources, and the number of messages.

All brokers of a figure are in one process, with real connections between them and to their clients,
so a figure is the work of all of them together.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import contrada as ct
from bench.crowd import allow_files
from bench.harness import Measurement, figure
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.wire.address import parse_address

BROKERS: Final = 20
SOURCES: Final = 1_000
ASKED: Final = 60
"""Questions that are timed, after as many to warm up."""
OFFERS: Final = 10_000
CLIENTS: Final = 10
AT_ONCE: Final = 64
BATCH: Final = 1_000
KINDS: Final = 250
"""Values of `kind` that sources have: each is that of SOURCES / KINDS sources."""


@asynccontextmanager
async def network() -> AsyncIterator[list[Broker]]:
    """Brokers in a random tree of peers."""
    chance = random.Random(18)
    brokers: list[Broker] = []
    async with AsyncExitStack() as stack:
        for number in range(BROKERS):
            above = [chance.choice(brokers)] if brokers else []
            wanted = tuple(WantedLink(parse_address(each.address)) for each in above)
            membership = Membership(f"b{number}", neighbours=wanted)
            brokers.append(Broker(port=0, network=membership))
            await stack.enter_async_context(brokers[-1])
        while any(each.dispatcher.router.statistics().servers < BROKERS for each in brokers):
            await asyncio.sleep(0.01)
        yield brokers


def items_of(source: int) -> list[dict[str, Any]]:
    """The items of a source: three quotes of its kind."""
    return [
        {"kind": f"k{source % KINDS}", "price": float(source + n), "at": source} for n in range(3)
    ]


async def offer_all(stack: AsyncExitStack, brokers: Sequence[Broker], *, is_told: bool) -> None:
    """Sources at all brokers, each a client; all servers know them when this returns.

    Without descriptions each may have anything, as where questions are flooded.
    """
    for number in range(SOURCES):
        service = await stack.enter_async_context(ct.connect(brokers[number % BROKERS].address))
        told = f"kind = 'k{number % KINDS}' and price between {number} and {number + 3}"
        source = service.offer(
            told if is_told else ct.Filter({}), ct.RecordSource(items_of(number)), name=f"s{number}"
        )
        await stack.enter_async_context(source)
    await at_rest(brokers)


async def at_rest(brokers: Sequence[Broker]) -> None:
    """Returns when brokers have exchanged no message for a while."""
    last: list[Counter[str]] = []
    while True:
        now = [Counter(each.dispatcher.router.statistics().received) for each in brokers]
        if now == last:
            return
        last = now
        await asyncio.sleep(0.3)


def messages(brokers: Sequence[Broker]) -> int:
    """The messages of queries so far: between brokers, to sources, and from sources."""
    known = [each.dispatcher.router.statistics() for each in brokers]
    kinds = ("Ask", "Answer", "More", "Cancel")
    return sum(each.delivered + sum(each.received.get(k, 0) for k in kinds) for each in known)


async def asked_all(*, is_told: bool) -> tuple[list[float], float]:
    """Seconds of each question, and messages of one on the average."""
    async with network() as brokers, AsyncExitStack() as stack:
        await offer_all(stack, brokers, is_told=is_told)
        asker = await stack.enter_async_context(ct.connect(brokers[0].address))
        chance, seconds, before = random.Random(3), [], 0
        for turn in range(2 * ASKED):
            if turn == ASKED:
                before = messages(brokers)
            kind = chance.randrange(KINDS)
            begin = time.perf_counter()
            answers = asker.query(f"kind = 'k{kind}'", timeout_s=30)
            found = [each async for each in answers]
            seconds.append(time.perf_counter() - begin)
            expected = {f"s{number}" for number in range(kind, SOURCES, KINDS)}
            asked = {each.name for each in answers.reports}
            if len(found) != 12 or (asked != expected if is_told else len(asked) < SOURCES):
                raise AssertionError(f"asked for {kind}: {answers.reports}")
        return seconds[ASKED:], (messages(brokers) - before) / ASKED


@figure(
    name="query/selective",
    unit="ms",
    workload="1,000 sources behind 20 brokers: a question that meets four of them, all answers",
    at_most=20,
    counts="clock",
)
def selective() -> Measurement:
    """It reaches exactly the sources that it meets."""
    allow_files(2 * SOURCES)
    seconds, _ = asyncio.run(asked_all(is_told=True))
    return Measurement(seconds)


@figure(
    name="query/messages",
    unit="times",
    workload="the same: messages where all sources are asked, for each of those that may know",
    at_least=20,
    counts="number",
)
def against_flooding() -> Measurement:
    """All messages of a question are counted: between brokers, to sources, and their answers."""
    allow_files(2 * SOURCES)
    _, told = asyncio.run(asked_all(is_told=True))
    _, flooded = asyncio.run(asked_all(is_told=False))
    return Measurement([flooded / told])


async def rates() -> list[float]:
    """Questions in a second through one broker, several under way at a time."""
    async with Broker(port=0) as broker, AsyncExitStack() as stack:
        services = [
            await stack.enter_async_context(ct.connect(broker.address)) for _ in range(CLIENTS)
        ]
        offers = []
        for number in range(OFFERS):
            items = [{"key": number, "price": 1.5}]
            held = services[number % CLIENTS].offer(
                f"key = {number} and price > {number % 7}", ct.RecordSource(items)
            )
            offers.append(stack.enter_async_context(held))
        await asyncio.gather(*offers)
        asker = await stack.enter_async_context(ct.connect(broker.address))
        limit = asyncio.Semaphore(AT_ONCE)

        async def ask(number: int) -> None:
            async with limit:
                answers = asker.query(f"key = {number}", timeout_s=60)
                async for _ in answers:
                    pass
                if len(answers.reports) != 1:
                    raise AssertionError(f"{number}: {answers.reports}")

        samples = []
        for sample in range(4):
            begin = time.perf_counter()
            await asyncio.gather(*(ask(sample * BATCH + n) for n in range(BATCH)))
            samples.append(BATCH / (time.perf_counter() - begin))
        return samples[1:]


@figure(
    name="query/rate",
    unit="/s",
    workload="questions through one broker with 10,000 sources, each meets one; with its clients",
    at_least=1_000,
    counts="clock",
)
def rate() -> Measurement:
    """Broker, sources and asker share one processor."""
    return Measurement(asyncio.run(rates()))
