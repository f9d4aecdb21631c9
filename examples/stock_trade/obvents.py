"""The events of the parties: quotes, requests to buy, and purchases.

Source: EPFL 2503 §4.6.1, figures 4.21 to 4.23.
"""

from dataclasses import dataclass
from datetime import date
from typing import Protocol, final

import contrada as ct


class StockMarket(Protocol):
    """The remote interface of the market, which quotes carry."""

    async def buy(self, company: str, price: float, amount: int, buyer: str) -> bool:
        """Buys at this price, if the market still sells at it."""
        ...


@dataclass(frozen=True)
class StockObvent(ct.Obvent, name="stocks.StockObvent"):
    """Any event of a company's stock, on a day."""

    company: str
    price: float
    amount: int
    day: date

    @final
    def cheaper(self, than: float) -> bool:
        """No subtype overrides it, so a filter may call it and still be forwarded."""
        return self.price < than


@dataclass(frozen=True)
class StockQuote(ct.FIFOOrder, StockObvent, name="stocks.StockQuote"):
    """An offer at this price. A buyer may call the market, or publish a request."""

    market: ct.Reference[StockMarket]


@dataclass(frozen=True)
class StockRequest(ct.Reliable, StockObvent, name="stocks.StockRequest"):
    """A request to buy."""

    buyer: str


@dataclass(frozen=True)
class SpotPrice(StockRequest, name="stocks.SpotPrice"):
    """At once, at the price of this day."""


@dataclass(frozen=True)
class MarketPrice(StockRequest, name="stocks.MarketPrice"):
    """On the first day at or below `price`, and not after `until`."""

    until: date


@dataclass(frozen=True)
class Bought(ct.Reliable, StockObvent, name="stocks.Bought"):
    """A purchase."""

    buyer: str
