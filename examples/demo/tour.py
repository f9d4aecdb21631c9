"""`tour`: what subscribers can ask for in a network of brokers, on real quotes.

A client of the broker `riga` publishes the quotes of a year, in their order; subscribers at `bern`
have a filter, a Python function over objects, a pattern, and a rule of Sigma. A client of `oslo`
answers questions about the same quotes. Then certified notifications are published at `riga`, which
is killed after half of them and started again. Plain loops over the quotes say what is right.

`steady_rate` measures a publisher and a subscriber once both have warmed up.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import contrada as ct
from contrada.integrations.dialects import sigma
from examples.demo.desks import StockQuote
from examples.demo.network import DemoNetwork
from examples.demo.processes import DemoError

YEAR: Final = "2008"
CERTIFIED: Final = 200
"""Certified notifications; the broker of their publisher is killed after half of them."""

EARLY: Final = -1
"""The number of orders before the first one."""

WAIT_S: Final = 20.0
"""Seconds that no step exceeds. Beyond it: the step is wrong."""

WARM_S: Final = 0.5
MEASURED_S: Final = 1.5
BATCH: Final = 200
AHEAD_MAX: Final = 2_000
"""Notifications that are published before their delivery: enough for the network, too few to be
dropped."""

RULE: Final = """
title: Heavy trading in IBM
logsource: {category: quotes}
detection:
  selection: {symbol: IBM, volume|gte: 12000000}
  condition: selection
"""

PATTERN: Final = (
    "symbol = 'AAPL' and change < -5 -> symbol = 'GOOG' and change < -5 by date within 1 h"
)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the tour: what was asked for, and the items that were expected and received."""

    name: str
    asked: str
    expected: int
    received: int
    is_right: bool


def read_quotes(path: Path, year: str = YEAR) -> list[StockQuote]:
    """Returns the quotes of a year, by date and symbol."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    chosen = [row for row in rows if row["date"].startswith(year)]
    chosen.sort(key=lambda row: (row["date"], row["symbol"]))
    return [
        StockQuote(**{**row, "date": datetime.fromisoformat(row["date"]).replace(tzinfo=UTC)})
        for row in chosen
    ]


async def tour(network: DemoNetwork, quotes: Sequence[StockQuote]) -> list[Step]:
    """Runs all steps."""
    return [*await subscribe(network, quotes), await ask(network, quotes), await survive(network)]


async def subscribe(network: DemoNetwork, quotes: Sequence[StockQuote]) -> list[Step]:
    """Publishes the quotes at one broker, for four kinds of subscriptions at another one."""
    (rule,) = sigma.read_rules(RULE)
    text = "symbol = 'AAPL' and change < -5"
    fallen = {q.date for q in quotes if q.symbol == "AAPL" and (q.change or 0) < -5}
    both = [q for q in quotes if q.symbol == "GOOG" and (q.change or 0) < -5 and q.date in fallen]
    dear = [q for q in quotes if q.symbol == "GOOG" and q.close > 600]
    heavy = [q for q in quotes if q.symbol == "IBM" and q.volume >= 12_000_000]
    async with (
        ct.connect(network.address("bern")) as reader,
        ct.connect(network.address("riga")) as publisher,
        AsyncExitStack() as stack,
    ):

        async def begin(*subject: Any) -> Any:
            return await stack.enter_async_context(reader.subscribe(*subject))

        by_filter = await begin(text)
        by_function = await begin(StockQuote, lambda q: q.symbol == "GOOG" and q.close > 600)
        by_pattern = await begin(ct.Pattern(PATTERN))
        by_rule = await begin(rule)
        await _arrived(publisher, await begin("arrived any"), {"arrived": 1}, "best-effort")
        for quote in quotes:
            await publisher.publish(quote)
        found = [
            await _received(by_filter, len(fallen)),
            await _received(by_function, len(dear)),
            await _received(by_pattern, len(both)),
            await _received(by_rule, len(heavy)),
        ]
    filtered, objects, matches, alerts = found
    return [
        _step("a filter", text, fallen, [each["date"] for each in filtered]),
        _step("a typed function", 'q.symbol == "GOOG" and q.close > 600', dear, objects),
        _step(
            "a pattern",
            PATTERN,
            [quote.date for quote in both],
            [match.notifications[1]["date"] for match in matches],
        ),
        _step(
            "a rule of Sigma",
            str(rule.name),
            [quote.date for quote in heavy],
            [each["date"] for each in alerts],
        ),
    ]


def _step(name: str, asked: str, due: Collection[object], got: Collection[object]) -> Step:
    """Compares the items that are due, in any order, with those received."""
    return Step(name, asked, len(due), len(got), sorted(map(str, due)) == sorted(map(str, got)))


async def ask(network: DemoNetwork, quotes: Sequence[StockQuote]) -> Step:
    """Asks a source at another broker, which computes over its own data."""
    rows = [{"symbol": quote.symbol, "close": quote.close} for quote in quotes]
    due: dict[Any, Any] = {}
    for quote in quotes:
        due[quote.symbol] = max(quote.close, due.get(quote.symbol, 0.0))
    async with (
        ct.connect(network.address("oslo")) as owner,
        ct.connect(network.address("bern")) as asker,
        owner.offer("symbol any and close > 0", ct.RecordSource(rows), name="market"),
    ):
        got: dict[Any, Any] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while got != due:  # The offer reaches the other brokers first.
                    totals = asker.compute("max(close)", "symbol any", by="symbol")
                    got = {each["symbol"]: each["max(close)"] async for each in totals}
    return Step("a question", "max(close) by symbol", len(due), len(got), got == due)


async def survive(network: DemoNetwork) -> Step:
    """Kills the publisher's broker amid certified notifications; each has to arrive once."""
    async with (
        ct.connect(network.address("bern")) as reader,
        ct.connect(network.address("riga"), publisher="desk") as publisher,
        reader.subscribe("order exists", durable="orders") as orders,
    ):
        await _arrived(publisher, orders, {"order": EARLY}, "certified fifo")
        half = asyncio.Event()

        async def publish() -> None:
            for number in range(CERTIFIED):
                await publisher.publish({"order": number}, delivery="certified fifo")
                if number == CERTIFIED // 2:
                    half.set()

        with suppress(TimeoutError):
            async with asyncio.timeout(3 * WAIT_S), asyncio.TaskGroup() as tasks:
                tasks.create_task(publish())
                await half.wait()
                await network.kill("riga")
                await network.start("riga")
        found = await _received((it async for it in orders if it.item["order"] != EARLY), CERTIFIED)
        got = [each.item["order"] for each in found]
    asked = "certified orders; their broker is killed after half of them"
    return Step("a killed broker", asked, CERTIFIED, len(got), got == [*range(CERTIFIED)])


async def _arrived(
    publisher: ct.Service, events: AsyncIterator[Any], item: dict[str, int], delivery: str
) -> None:
    """Publishes an item until a subscription gets it, so its broker is known at the publisher's.

    Raises DemoError if it does not.
    """

    async def publish() -> None:
        while True:
            await publisher.publish(item, delivery=delivery)
            await asyncio.sleep(0.02)

    publishing = asyncio.create_task(publish())
    try:
        await asyncio.wait_for(anext(events), WAIT_S)
    except TimeoutError:
        raise DemoError(f"{item} was not delivered within {WAIT_S:g} s") from None
    finally:
        publishing.cancel()
        await asyncio.wait((publishing,))


async def _received(events: AsyncIterator[Any], count: int) -> list[Any]:
    """Returns so many items, and any further one that arrives within a moment."""
    found: list[Any] = []
    try:
        while True:
            async with asyncio.timeout(WAIT_S if len(found) < count else 0.2):
                found.append(await anext(events))
    except TimeoutError:
        return found


async def steady_rate(address: str) -> float:
    """Returns the notifications per second from a publisher to a subscriber, both warm."""
    received = 0
    async with (
        ct.connect(address) as publisher,
        ct.connect(address) as reader,
        reader.subscribe("rate exists") as events,
    ):

        async def read() -> None:
            nonlocal received
            async for _ in events:
                received += 1

        reading = asyncio.create_task(read())
        batch = [{"rate": number, "symbol": "DIS"} for number in range(BATCH)]
        sent = 0

        async def publish_for(seconds: float) -> None:
            nonlocal sent
            end = perf_counter() + seconds
            while perf_counter() < end:
                await publisher.publish_batch(batch)
                sent += BATCH
                while sent - received > AHEAD_MAX and perf_counter() < end:
                    await asyncio.sleep(0.001)

        await publish_for(WARM_S)
        before, began = received, perf_counter()
        await publish_for(MEASURED_S)
        rate = (received - before) / (perf_counter() - began)
        reading.cancel()
        await asyncio.wait((reading,))
    return rate
