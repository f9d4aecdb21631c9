"""Collections of obvents that are everywhere and asynchronous.

    quotes = StrongSet(service, StockQuote)
    await quotes.add(StockQuote("Telco", 80.0))
    async with quotes.contains(print, lambda quote: quote.price < 100): ...
    async with quotes.get() as consumer: quote = await consumer.get(timeout_s=5)
    async with quotes.remove() as consumer: quote = await consumer.get()

Source: EPFL 2503 chapter 4.
"""

from contrada.collections.collection import (
    Collection,
    CollectionStatistics,
    Subscriber,
)
from contrada.collections.consumers import Consumer
from contrada.collections.joining import ElementHandle
from contrada.collections.kinds import (
    CausalBag,
    CausalSet,
    FIFOBag,
    FIFOSet,
    PersistentBag,
    PersistentSet,
    SortedBag,
    SortedSet,
    StrongBag,
    StrongSet,
    WeakBag,
    WeakSet,
)
from contrada.collections.qualities import Quality
from contrada.collections.spaces import Arrival, Asked
from contrada.collections.subjects import Subject
from contrada.collections.supplying import Supply
from contrada.collections.together import Together

__all__ = [
    "Arrival",
    "Asked",
    "CausalBag",
    "CausalSet",
    "Collection",
    "CollectionStatistics",
    "Consumer",
    "ElementHandle",
    "FIFOBag",
    "FIFOSet",
    "PersistentBag",
    "PersistentSet",
    "Quality",
    "SortedBag",
    "SortedSet",
    "StrongBag",
    "StrongSet",
    "Subject",
    "Subscriber",
    "Supply",
    "Together",
    "WeakBag",
    "WeakSet",
]
