"""The parties by subscriptions with filters in Python and handlers.

Source: EPFL 2503 §5.3.7.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import contrada as ct
from examples.stock_trade.obvents import Bought, MarketPrice, SpotPrice, StockMarket, StockQuote
from examples.stock_trade.parties import Bank, Broker, Market


@asynccontextmanager
async def trading(
    service: ct.Service, market: Market, bank: Bank, broker: Broker, cheap: float
) -> AsyncIterator[None]:
    """Subscribes all parties while it is open."""
    async with AsyncExitStack() as stack:

        async def buy(quote: StockQuote) -> None:
            async with ct.Proxy(service, quote.market, StockMarket) as seller:
                await broker.on_quote(quote, seller)

        name = broker.name
        for handle in (
            ct.Handle(service, SpotPrice, market.on_request),
            ct.Handle(service, MarketPrice, bank.on_request),
            ct.Handle(service, StockQuote, bank.on_quote),
            ct.Handle(service, StockQuote, buy, lambda q: q.cheaper(cheap) and "soft" in q.company),
            ct.Handle(service, Bought, broker.on_bought, lambda b: b.buyer == name),
        ):
            await stack.enter_async_context(handle)
        yield
