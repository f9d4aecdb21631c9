"""`stock_exchange` and `show`: the pages of the console with content, for tests and pictures."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, Literal

import contrada as ct
from contrada.integrations.asyncapi import asyncapi_of
from contrada.integrations.http.token_services import local_service
from contrada.net.broker.broker import Broker
from contrada.net.broker.neighbours import Membership, WantedLink
from contrada.net.wire.address import parse_address
from tests.asynchronous import until
from tests.gossip.udp.groups import group_of
from tests.integrations.http.conftest import Served, serving
from tests.net.networks import are_linked

QUOTES: Final = 240
"""Quotes that the receiver shows."""

SHOWN: Final = "main > div:not([hidden])"
"""Selects the page that is shown; others may go on, hidden."""


@ct.obvent(name="desk.Trade")
@dataclass(frozen=True)
class Trade:
    """A trade at an exchange."""

    symbol: str
    price: float
    venues: tuple[Literal["NYSE", "LSE"], ...] = ()
    limit: float | None = None


_SUBSCRIPTIONS: Final = (
    "price any",
    "price < 200",
    'symbol = "DIS" and price < 150',
    'symbol = "DIS" and price < 100',
    'venue prefix "NY"',
    'venue = "NYSE" and volume >= 1000',
)


def quotes(count: int) -> list[dict[str, Any]]:
    """Returns quotes of three shares, whose prices walk at random; the same ones each time."""
    random, prices, made = Random(4), {"DIS": 98.0, "IBM": 141.0, "KO": 61.0}, []
    for number in range(count):
        symbol = [*prices][number % 3]
        prices[symbol] = round(prices[symbol] * random.uniform(0.985, 1.0155), 2)
        volume, venue = 100 * random.randint(1, 40), random.choice(["NYSE", "NASDAQ", "LSE"])
        made.append({"symbol": symbol, "price": prices[symbol], "volume": volume, "venue": venue})
    return made


@asynccontextmanager
async def stock_exchange(store: Path) -> AsyncIterator[Served]:
    """Serves the first of three brokers, with subscribers, sources, queues, and a gossip group."""
    async with (
        group_of([(0, 0), (0, 1), (1, 2), (3, 3)]) as nodes,
        serving(store, network=Membership("london"), groups=nodes[:1]) as it,
        _broker("oslo", it.broker) as oslo,
        _broker("tokyo", oslo) as tokyo,
        AsyncExitStack() as opened,
    ):
        await until(lambda: are_linked([it.broker, oslo, tokyo], 2))
        far = await opened.enter_async_context(local_service(tokyo))
        for text in _SUBSCRIPTIONS:
            await opened.enter_async_context(far.subscribe(text))
        await opened.enter_async_context(it.service.subscribe("price < 100"))
        await opened.enter_async_context(nodes[1].subscribe("price < 100"))
        for symbol in ("DIS", "IBM", "KO"):
            rows = [each for each in quotes(90) if each["symbol"] == symbol]
            source = far.offer(None, ct.RecordSource(rows), name=f"quotes/{symbol}")
            await opened.enter_async_context(source)
        await _fill_queues(it)
        yield it


def _broker(name: str, neighbour: Broker) -> Broker:
    link = WantedLink(parse_address(neighbour.address))
    return Broker(port=0, network=Membership(name, neighbours=(link,)))


async def _fill_queues(it: Served) -> None:
    retention = ct.Retention(attempts_max=1, dead_letter="orders.dead")
    for name, kept in (("orders", retention), ("audit", ct.Retention())):
        async with it.service.subscribe("price any", durable=name, retention=kept):
            pass
    for each in quotes(30):
        await it.service.publish(each, delivery="certified")
    async with it.service.subscribe(durable="orders", auto_acknowledge=False) as events:
        await events.nack(*[(await events.next(20)).position for _ in range(6)])
        while (await it.service.queues.state("orders")).dead < 6:
            pass


async def pages_of(page: Any) -> list[str]:
    """Returns the names of the console's pages, which its navigation lists."""
    links = page.get_by_role("navigation").get_by_role("link")
    await links.first.wait_for()
    return [str(await each.get_attribute("href"))[1:] for each in await links.all()]


async def show(it: Served, page: Any, name: str) -> None:
    """Opens a page of the console, and uses it until it shows something."""
    link = page.get_by_role("navigation").locator(f'[href="#{name}"]')
    await link.click()
    await link.and_(page.locator("[aria-current=page]")).wait_for()
    shown = page.locator(SHOWN)
    if name == "playground":
        await shown.get_by_text("1 of 3 match").wait_for()
    elif name == "receiver":
        await _receive(it, shown)
    elif name == "sender":
        await shown.get_by_text("backslash.story.0.title").wait_for()
        await shown.get_by_text("Document of a receiver").click()
    elif name == "queues":
        await shown.get_by_role("button", name="orders.dead").click()
        await shown.get_by_text('"symbol":"DIS"').first.wait_for()
    elif name == "questions":
        await shown.get_by_role("textbox", name="Question").fill("price < 150")
        await shown.get_by_label("Aggregates").fill("count, mean(price), max(price)")
        await shown.get_by_label("By").fill("symbol")
        await shown.get_by_role("button", name="Ask").click()
        await shown.get_by_text("Complete: all 3 sources").wait_for()
    elif name == "network":
        await shown.get_by_role("row", name="tokyo answers").wait_for()
        await shown.get_by_role("textbox", name="Notification").fill(
            '{"symbol": "DIS", "price": 98}'
        )
        await shown.get_by_text("delivered at london, tokyo").wait_for()
        await shown.get_by_role("treeitem").first.wait_for()
    elif name == "gossip":
        await shown.get_by_role("combobox", name="Figure").select_option("6.10")
        await shown.get_by_label("Branching a").fill("6")
        await shown.get_by_label("Runs").fill("2")
        await shown.get_by_role("button", name="Simulate").click()
        await shown.get_by_text("8 of 8 points").wait_for()
    elif name == "application":
        document = json.dumps(asyncapi_of(desk(), title="Trading desk")).encode()
        await open_document(shown, document)
        await shown.get_by_role("region", name="Operation cheap").wait_for()


async def open_document(shown: Any, document: bytes) -> None:
    """Opens a document on the page of applications."""
    file = {"name": "desk.json", "mimeType": "application/json", "buffer": document}
    await shown.get_by_label("Document").set_input_files(file)


def desk() -> ct.App:
    """Returns an app with a handler of a class, a handler of notifications, and a replier."""
    app = ct.App("contrada://broker.example:7655")

    @app.subscriber("price < 100", durable="cheap")
    async def cheap(event: Trade) -> None:
        """Buys cheap shares."""

    @app.subscriber("alarm exists or price > 1000")
    async def odd(event: ct.Notification) -> None:
        """Reports what no desk buys."""

    @app.replier("service = 'price' and symbol exists")
    async def price_of(request: ct.Notification) -> dict[str, float]:
        """Replies with the last price of a symbol."""
        return {"price": 61.5}

    return app


async def _receive(it: Served, shown: Any) -> None:
    seen = it.gateway.counts.delivered
    for text in ('symbol = "DIS"', "price < 150"):
        await shown.get_by_role("textbox", name="Filter", exact=True).fill(text)
        await shown.get_by_role("button", name="Subscribe", exact=True).click()
    await until(lambda: it.gateway.counts.streams == 2)
    made = quotes(QUOTES)
    want = sum((each["symbol"] == "DIS") + (each["price"] < 150) for each in made)
    for each in made:
        await it.service.publish(each)
    await until(lambda: it.gateway.counts.delivered == seen + want)
    first, second = await shown.get_by_role("region").all()
    await first.get_by_label("Attribute").fill("price")
    await second.get_by_label("Attribute").fill("symbol")
    await second.get_by_role("listitem").get_by_role("button").first.click()
