"""What the parties tell one another: quotes, requests to buy, and what was bought.

Source: EPFL 2503 §4.6.1, figures 4.21 to 4.23.
"""

from dataclasses import dataclass
from datetime import date
from typing import Protocol, final

import contrada as ct


class StockMarket(Protocol):
    """What is called where a quote comes from."""

    async def buy(self, company: str, price: float, amount: int, buyer: str) -> bool:
        """Buy at this price, if the market still sells at it."""
        ...


@dataclass(frozen=True)
class StockObvent(ct.Obvent, name="stocks.StockObvent"):
    """Whatever happens to a company's stock, on a day."""

    company: str
    price: float
    amount: int
    day: date

    @final
    def cheaper(self, than: float) -> bool:
        """No subtype changes it, so that filters may call it and travel all the same."""
        return self.price < than


@dataclass(frozen=True)
class StockQuote(ct.FIFOOrder, StockObvent, name="stocks.StockQuote"):
    """So much is on sale, at this price. Who wants it may call the market, or publish a request."""

    market: ct.Reference[StockMarket]


@dataclass(frozen=True)
class StockRequest(ct.Reliable, StockObvent, name="stocks.StockRequest"):
    """Somebody wants to buy."""

    buyer: str


@dataclass(frozen=True)
class SpotPrice(StockRequest, name="stocks.SpotPrice"):
    """At once, at the price of this day."""


@dataclass(frozen=True)
class MarketPrice(StockRequest, name="stocks.MarketPrice"):
    """On the first day on which it costs at most `price`, and not after `until`."""

    until: date


@dataclass(frozen=True)
class Bought(ct.Reliable, StockObvent, name="stocks.Bought"):
    """Somebody has bought."""

    buyer: str
