"""The two desks of the demo, what they ask for, and what they were given.

Each subscriber is a program of its own as far as the broker can tell: it has its own connection
and its own filter, and it keeps what it is handed, in the order in which it came.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any

from contrada.errors import ContradaError, InputError
from contrada.integrations.spark.pipeline.pipeline_subscriptions import NamedFilters
from contrada.model import Filter, FilterSet, Notification
from contrada.model.domains.values import datetime_of
from contrada.model.rule import Rule
from contrada.service import Service, filters_of, reader_of
from contrada.typed import Obvent, type_name_of


@dataclass(frozen=True)
class StockObvent(Obvent, name="StockObvent"):
    """Anything that happens to a stock."""

    symbol: str
    date: datetime


@dataclass(frozen=True)
class StockQuote(StockObvent, name="StockQuote"):
    """A day's prices in dollars; `change` is since the day before, unknown on the first day."""

    open: float
    high: float
    low: float
    close: float
    adj_close: float
    volume: int
    change: float | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What one subscriber of a desk asks the broker for: a filter's text, or a type."""

    desk: str
    name: str
    subject: str | type[StockQuote]

    @property
    def filters(self) -> Filter | FilterSet:
        """The filters that the broker is asked for."""
        return filters_of(self.subject)

    @property
    def shown(self) -> str:
        """What is asked for, as a person writes it."""
        if isinstance(self.subject, str):
            return self.subject
        return f"the type {type_name_of(self.subject)}"

    def handed(self, notification: Notification) -> object:
        """What the subscriber is handed for a notification: itself, or an object of the type."""
        reader = reader_of(self.subject)
        return notification if reader is None else reader(notification)


WISHES = (
    Wish(
        "operations", "long delays at JFK", "kind = 'flight' and origin = 'JFK' and dep_delay > 120"
    ),
    Wish(
        "operations", "JetBlue cancelled", "kind = 'flight' and carrier = 'B6' and dep_time absent"
    ),
    Wish("operations", "gusts above 40 mph", "bulletin.observation.wind_gust > 40"),
    Wish("trading", "falling AAPL or GOOG", "change < -5 and symbol in ('AAPL', 'GOOG')"),
    Wish("trading", "typed StockQuote", StockQuote),
)


def check_covered(wish: Wish, published: NamedFilters) -> None:
    """Refuse a wish that the pipeline does not serve.

    The pipeline publishes what matches one of its subscriptions. Whether that is all that a
    filter can ask for is decided by the algebra, before anything runs. What rules of other dialects
    leave open it does not know: they count for nothing.
    """
    filters = [each for each in published.values() if not isinstance(each, Rule)]
    if not FilterSet(filters).covers(wish.filters):
        reason = f"{wish.filters} is not covered by the pipeline's subscriptions"
        raise InputError(f"subscriber {wish.name!r}", reason)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was handed over, when it happened, and when it arrived (seconds, monotonic clock)."""

    item: Any
    arrived_s: float

    @property
    def happened(self) -> datetime:
        """The time of the event itself."""
        if isinstance(self.item, StockQuote):
            return self.item.date
        return event_time(self.item)


def event_time(notification: Notification) -> datetime:
    """When an event happened, as its envelope says."""
    return datetime_of(notification.envelope.at_us)


@dataclass(slots=True)
class Inbox:
    """What one subscriber was given so far; `failure` says why nothing more will come.

    `told` is called for each delivery.
    """

    wish: Wish
    told: Callable[[], None]
    deliveries: list[Delivery] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    failure: ContradaError | None = None

    @property
    def items(self) -> list[Any]:
        """What was handed over, in order."""
        return [delivery.item for delivery in self.deliveries]

    @property
    def span_s(self) -> float:
        """From the first delivery to the last."""
        return (
            self.deliveries[-1].arrived_s - self.deliveries[0].arrived_s if self.deliveries else 0.0
        )


@asynccontextmanager
async def listening(
    wish: Wish, service: Service, told: Callable[[], None] = lambda: None
) -> AsyncIterator[Inbox]:
    """A subscriber at work: subscribed on entering, unsubscribed on leaving."""
    inbox = Inbox(wish, told)
    async with service.subscribe(wish.subject) as events:

        async def read() -> None:
            try:
                async for item in events:
                    inbox.deliveries.append(Delivery(item, monotonic()))
                    inbox.told()
            except ContradaError as error:
                inbox.failure = error

        reader = asyncio.create_task(read())
        try:
            yield inbox
        finally:
            reader.cancel()
            await asyncio.wait([reader])
            inbox.dropped = dict(events.statistics().dropped)


async def settled(
    inboxes: Sequence[Inbox], totals: Mapping[str, int], *, quiet_s: float, wait_s: float
) -> None:
    """Wait until every inbox holds its total and then nothing came for `quiet_s`.

    The quiet shows what should not have come. Gives up when nothing came for `wait_s`. Raises
    the failure of a subscriber that has lost its connection.
    """
    held, changed_s = -1, monotonic()
    while True:
        for inbox in inboxes:
            if inbox.failure is not None:
                raise inbox.failure
        came = sum(len(inbox.deliveries) for inbox in inboxes)
        if came != held:
            held, changed_s = came, monotonic()
        complete = all(len(inbox.deliveries) >= totals[inbox.wish.name] for inbox in inboxes)
        if monotonic() - changed_s > (quiet_s if complete else wait_s):
            return
        await asyncio.sleep(quiet_s / 10)
