"""The two desks of the demo, their subscriptions and their deliveries.

For the broker each subscriber is a program of its own: it has its own connection and filter, and
keeps its deliveries in order of arrival.
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
    """Any event of a stock."""

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
class Interest:
    """The subscription of a desk: a filter's text, or a type."""

    desk: str
    name: str
    subject: str | type[StockQuote]

    @property
    def filters(self) -> Filter | FilterSet:
        """Returns the filters of the subscription."""
        return filters_of(self.subject)

    @property
    def shown(self) -> str:
        """Returns the subscription as text for people."""
        if isinstance(self.subject, str):
            return self.subject
        return f"the type {type_name_of(self.subject)}"

    def handed(self, notification: Notification) -> object:
        """Returns the delivered item: the notification, or an object of the type."""
        reader = reader_of(self.subject)
        return notification if reader is None else reader(notification)


INTERESTS = (
    Interest(
        "operations", "long delays at JFK", "kind = 'flight' and origin = 'JFK' and dep_delay > 120"
    ),
    Interest(
        "operations", "JetBlue cancelled", "kind = 'flight' and carrier = 'B6' and dep_time absent"
    ),
    Interest("operations", "gusts above 40 mph", "bulletin.observation.wind_gust > 40"),
    Interest("trading", "falling AAPL or GOOG", "change < -5 and symbol in ('AAPL', 'GOOG')"),
    Interest("trading", "typed StockQuote", StockQuote),
)


def check_covered(interest: Interest, published: NamedFilters) -> None:
    """Refuses a subscription that the pipeline does not serve.

    The pipeline publishes the matches of its subscriptions. The algebra decides, before anything
    runs, whether these cover the filter. Residues of rules count for nothing.
    """
    filters = [each for each in published.values() if not isinstance(each, Rule)]
    if not FilterSet(filters).covers(interest.filters):
        reason = f"{interest.filters} is not covered by the pipeline's subscriptions"
        raise InputError(f"subscriber {interest.name!r}", reason)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivered item, its event time, and its arrival (seconds, monotonic clock)."""

    item: Any
    arrived_s: float

    @property
    def happened(self) -> datetime:
        """The time of the event itself."""
        if isinstance(self.item, StockQuote):
            return self.item.date
        return event_time(self.item)


def event_time(notification: Notification) -> datetime:
    """Returns the time of an event, from its envelope."""
    return datetime_of(notification.envelope.at_us)


@dataclass(slots=True)
class Inbox:
    """The deliveries of one subscriber so far; `failure` is the reason of its end.

    `show` is called for each delivery.
    """

    interest: Interest
    show: Callable[[], None]
    deliveries: list[Delivery] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    failure: ContradaError | None = None

    @property
    def items(self) -> list[Any]:
        """Returns the delivered items, in order."""
        return [delivery.item for delivery in self.deliveries]

    @property
    def span_s(self) -> float:
        """Seconds from the first delivery to the last."""
        return (
            self.deliveries[-1].arrived_s - self.deliveries[0].arrived_s if self.deliveries else 0.0
        )


@asynccontextmanager
async def listening(
    interest: Interest, service: Service, show: Callable[[], None] = lambda: None
) -> AsyncIterator[Inbox]:
    """A running subscriber: subscribed on entering, unsubscribed on leaving."""
    inbox = Inbox(interest, show)
    async with service.subscribe(interest.subject) as events:

        async def read() -> None:
            try:
                async for item in events:
                    inbox.deliveries.append(Delivery(item, monotonic()))
                    inbox.show()
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
    """Waits until every inbox holds its total, and then for `quiet_s` of silence.

    The silence shows that no extra delivery follows. Ends after `wait_s` without a delivery. Raises
    the failure of a subscriber that has lost its connection.
    """
    held, changed_s = -1, monotonic()
    while True:
        for inbox in inboxes:
            if inbox.failure is not None:
                raise inbox.failure
        received = sum(len(inbox.deliveries) for inbox in inboxes)
        if received != held:
            held, changed_s = received, monotonic()
        complete = all(len(inbox.deliveries) >= totals[inbox.interest.name] for inbox in inboxes)
        if monotonic() - changed_s > (quiet_s if complete else wait_s):
            return
        await asyncio.sleep(quiet_s / 10)
