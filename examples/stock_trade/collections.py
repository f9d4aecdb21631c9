"""The parties by collections, with conditions of the filter library.

Source: EPFL 2503 §4.6.2, §4.6.3, figures 4.22 and 4.23.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import contrada as ct
from contrada.typed.collections import FIFOSet, StrongSet
from contrada.typed.conditions import Contains, Equals, Invoke
from examples.stock_trade.obvents import Bought, MarketPrice, SpotPrice, StockMarket, StockQuote
from examples.stock_trade.parties import Bank, Broker, Market


@asynccontextmanager
async def trading(
    service: ct.Service, market: Market, bank: Bank, broker: Broker, cheap: float
) -> AsyncIterator[None]:
    """Subscribes all parties while it is open."""

    async def buy(quote: StockQuote) -> None:
        async with ct.Proxy(service, quote.market, StockMarket) as seller:
            await broker.on_quote(quote, seller)

    quotes = FIFOSet(service, StockQuote)
    pattern = Contains("company", "soft") & Equals(Invoke("cheaper", (cheap,)), True)
    async with AsyncExitStack() as stack:
        for handle in (
            StrongSet(service, SpotPrice).contains(market.on_request),
            StrongSet(service, MarketPrice).contains(bank.on_request),
            quotes.contains(bank.on_quote),
            quotes.contains(buy, pattern),
            StrongSet(service, Bought).contains(broker.on_bought, Equals("buyer", broker.name)),
        ):
            await stack.enter_async_context(handle)
        yield
