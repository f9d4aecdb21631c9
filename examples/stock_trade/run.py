"""A month of trading, compared with a plain loop over the quotes.

    python -m examples.stock_trade                      # in this process
    python -m examples.stock_trade contrada://HOST      # at a broker
    python -m examples.stock_trade --collections        # by collections, not by handles

Source: EPFL 2503 §4.6, §5.3.7.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import date
from typing import Final

import contrada as ct
from examples.stock_trade.handles import trading
from examples.stock_trade.obvents import MarketPrice, StockMarket
from examples.stock_trade.parties import Bank, Broker, Market
from examples.stock_trade.quotes import Close, closes

FIRST: Final = date(2012, 1, 3)
LAST: Final = date(2012, 12, 31)
CHEAP: Final = 27.0
"""The broker buys cheaper stocks at once, of companies with this text in their names."""

Style = Callable[[ct.Service, Market, Bank, Broker, float], AbstractAsyncContextManager[None]]


@dataclass(frozen=True)
class Outcome:
    """The broker's stocks at the end, by company and price; and the number of expired requests."""

    bought: Counter[tuple[str, float, date]]
    expired: int


def requests(buyer: str) -> list[MarketPrice]:
    """Returns the broker's requests to the bank."""
    wanted = (
        ("Apple", 430.0, date(2012, 3, 31)),
        ("Apple", 400.0, date(2012, 2, 1)),
        ("Google", 560.0, date(2012, 12, 31)),
        ("IBM", 186.0, date(2012, 12, 31)),
        ("Facebook", 18.0, date(2012, 8, 31)),
    )
    return [MarketPrice(name, price, 50, FIRST, buyer, until) for name, price, until in wanted]


def expected(quotes: list[Close], buyer: str) -> Outcome:
    """Computes the same by a loop over the quotes."""
    bought: Counter[tuple[str, float, date]] = Counter()
    expired = 0
    for close in quotes:
        if close.price < CHEAP and "soft" in close.company:
            bought[close.company, close.price, close.day] += 1
    for request in requests(buyer):
        days = (it for it in quotes if it.company == request.company and it.day <= request.until)
        found = next((it for it in days if it.price <= request.price), None)
        if found is None:
            expired += 1
        else:
            bought[found.company, found.price, found.day] += 1
    return Outcome(bought, expired)


async def trade(service: ct.Service, style: Style = trading) -> tuple[Outcome, Outcome]:
    """Returns the actual and the expected result."""
    quotes = closes(FIRST, LAST)
    market, bank, broker = Market(service.publish), Bank(service.publish), Broker("Hill & Co")
    wanted = expected(quotes, broker.name)
    async with (
        style(service, market, bank, broker, CHEAP),
        ct.Export(service, market, StockMarket) as reference,
    ):
        for request in requests(broker.name):
            await service.publish(request)
        await bank.kept.reached(len(requests(broker.name)))
        due = 0
        for close in quotes:
            await market.quote(close, reference)
            # What is bought of it is bought before the next quote: the latest price counts.
            due += wanted.bought[close.company, close.price, close.day]
            await broker.told.reached(due)
        await bank.seen.reached(len(quotes))
    bought = Counter((it.company, it.price, it.day) for it in broker.bought)
    return Outcome(bought, len(bank.expired)), wanted
