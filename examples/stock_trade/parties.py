"""The market, a broker and a bank, independent of their kind of subscription.

None of them knows another: they share the types of `obvents` and a service. Their reactions to
events are here; `handles` and `collections` subscribe them.

Source: EPFL 2503 §4.6.1.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import date

import contrada as ct
from examples.stock_trade.obvents import (
    Bought,
    MarketPrice,
    SpotPrice,
    StockMarket,
    StockQuote,
    StockRequest,
)
from examples.stock_trade.quotes import Close

Publish = Callable[[ct.Obvent], Awaitable[object]]


class Tally:
    """A counter of a party's actions, which others can wait for."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Condition()

    async def add(self) -> None:
        """Counts one more."""
        async with self._changed:
            self.count += 1
            self._changed.notify_all()

    async def reached(self, count: int) -> None:
        """Returns when the counter is reached."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.count >= count)


class Market:
    """Publishes quotes, and sells at once at the price of a day."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._prices: dict[tuple[str, date], float] = {}
        self._latest: dict[str, Close] = {}

    async def quote(self, close: Close, reference: ct.Reference[StockMarket]) -> None:
        """Publishes a company's price on a day, with a reference to the market."""
        self._prices[close.company, close.day] = close.price
        self._latest[close.company] = close
        await self._publish(StockQuote(close.company, close.price, 100, close.day, reference))

    async def on_request(self, request: SpotPrice) -> None:
        """Sells at the price of that day."""
        price = self._prices[request.company, request.day]
        await self._publish(
            Bought(request.company, price, request.amount, request.day, request.buyer)
        )

    async def buy(self, company: str, price: float, amount: int, buyer: str) -> bool:
        """Sells to the caller of a quote's reference: the latest price counts."""
        latest = self._latest[company]
        if latest.price > price:
            return False
        await self._publish(Bought(company, price, amount, latest.day, buyer))
        return True


@dataclass
class Bank:
    """Keeps the requests of brokers, and asks the market when the price is reached."""

    publish: Publish
    wanted: list[MarketPrice] = field(default_factory=list)
    expired: list[MarketPrice] = field(default_factory=list)
    kept: Tally = field(default_factory=Tally)
    seen: Tally = field(default_factory=Tally)

    async def on_request(self, request: StockRequest) -> None:
        """Keeps a request; spot requests are the market's."""
        if isinstance(request, MarketPrice):
            self.wanted.append(request)
            await self.kept.add()

    async def on_quote(self, quote: StockQuote) -> None:
        """Requests the affordable ones, and forgets the expired ones."""
        for request in list(self.wanted):
            if quote.day > request.until:
                self.wanted.remove(request)
                self.expired.append(request)
            elif quote.company == request.company and quote.price <= request.price:
                self.wanted.remove(request)
                spot = SpotPrice(
                    quote.company, quote.price, request.amount, quote.day, request.buyer
                )
                await self.publish(spot)
        await self.seen.add()


@dataclass
class Broker:
    """Buys cheap stocks, and is notified of its purchases."""

    name: str
    bought: list[Bought] = field(default_factory=list)
    told: Tally = field(default_factory=Tally)

    async def on_quote(self, quote: StockQuote, market: StockMarket) -> None:
        """Buys from the quote's market."""
        await market.buy(quote.company, quote.price, 10, self.name)

    async def on_bought(self, bought: Bought) -> None:
        """Notes a purchase."""
        self.bought.append(bought)
        await self.told.add()
