"""Inspection of a broker: its filters and advertisements, the route of a notification, and pages of
all client filters.

    page_from [0, 0]  ==>  durable subscriptions, by their numbers, each with its name
                           other filters of clients, by the numbers of filters
    [first numbers after the page]  ==>  the next page

Numbers are assigned in order, and never again in one run of a broker, so it keeps no state between
two pages. A durable subscription or filter that exists from the first request to the last answer is
exported exactly once. One that changes meanwhile may be missing or doubled. Filters of neighbours
and patterns are not exported.
"""

from collections.abc import Generator, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from contrada.errors import shortened
from contrada.model import Filter, Notification
from contrada.model.languages.work_budget import Work
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.fair_scheduler import REQUEST_WORK_MAX
from contrada.net.wire.inspection import (
    FilterPage,
    HeldFilters,
    HeldLink,
    HeldText,
    Inspection,
    Position,
)
from contrada.net.wire.payload_codec import encode_content
from contrada.routing.router import Router
from contrada.routing.router_messages import Client, Party
from contrada.routing.tables.next_hop_cache import ITSELF

INSPECTED_MAX: Final = 100
"""Links, clients, filters, advertisements and matching filters in an inspection, each. Beyond it:
the first ones, and the total."""

INSPECTED_PARTIES_MAX: Final = 20
"""Clients and neighbours listed for each filter or offer. Beyond it: the first ones."""


def inspect_router(
    router: Router, clients: Mapping[str, int], notification: Notification | None
) -> Generator[None, None, Inspection]:
    """Returns the inspection of a router, in turns; undecided filters count as matching."""
    matching: list[tuple[Any, Iterable[Party]]] = []
    onward: list[str] = []
    if notification is not None:
        with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
            matching, neighbours = router.recipients_of(notification)
        onward = [each.name for each in neighbours]
    links = router.links()
    held = router.statistics()
    counts = {
        "links": len(links),
        "clients": len(clients),
        "filters": held.filters.nodes,
        "advertisements": held.offers.nodes,
        "matching": len(matching),
        "neighbours": len(onward),
    }
    # Copied before other connections have turns, since the tables change then.
    filters = _first(router.subscriptions())
    offers = _first(router.advertisements())
    found = _first(matching)
    return Inspection(
        router.name,
        counts,
        [
            HeldLink(link.name, str(link.role), link.cost, "" if why is None else str(why))
            for link, why in links[:INSPECTED_MAX]
        ],
        dict(islice(clients.items(), INSPECTED_MAX)),
        (yield from _to_texts(filters)),
        (yield from _to_texts(offers)),
        (yield from _to_texts(found)),
        onward[:INSPECTED_MAX],
    )


def _first(held: Iterable[tuple[Any, Iterable[Party]]]) -> list[tuple[Any, list[str]]]:
    return [
        (product, [_name_of(each) for each in islice(parties, INSPECTED_PARTIES_MAX)])
        for product, parties in islice(held, INSPECTED_MAX)
    ]


def _name_of(party: Party) -> str:
    if not isinstance(party, Client):
        return f"neighbour {party.neighbour.name}"
    return "a pattern" if party.name == ITSELF.name else f"client {party.name}"


def _to_texts(held: list[tuple[Any, list[str]]]) -> Generator[None, None, list[HeldText]]:
    """Returns products as texts. Printing one costs as much as decoding it."""
    texts: list[HeldText] = []
    for product, parties in held:
        texts.append(HeldText(shortened(str(product)), parties))
        yield
    return texts


class _PageDraft:
    """A page under construction."""

    def __init__(self, limits: BrokerLimits) -> None:
        self._limits = limits
        self.held: list[HeldFilters] = []
        self._filters = self._bytes = 0

    def add(self, name: str, filters: Iterable[Filter]) -> Generator[None]:
        """Adds encoded filters, one for each turn: each may cost as much as decoding it."""
        packed: list[bytes] = []
        for each in filters:
            packed.append(encode_content(each))
            yield
        if packed:
            self.held.append((name, packed))
        self._filters += len(packed)
        self._bytes += len(name) + sum(map(len, packed))

    @property
    def is_full(self) -> bool:
        """Whether the page is full."""
        limits = self._limits
        return self._filters >= limits.page_filters_max or self._bytes >= limits.page_bytes_max


def filter_page(
    router: Router, logs: BrokerLogs, begin: Position, limits: BrokerLimits = BrokerLimits()
) -> Generator[None, None, FilterPage]:
    """Returns a page, in turns of one filter each. Raises LimitError for a large filter."""
    draft = _PageDraft(limits)
    first, second = begin
    numbers, durables = logs.standing_since(first, limits.page_numbers_max)
    for number, each, is_durable in durables:
        yield from draft.add(each.name if is_durable else "", each.filters.filters)
        if draft.is_full:
            return FilterPage(draft.held, (number + 1, second))
    first = max(first, numbers.stop)
    if len(numbers) == limits.page_numbers_max:
        return FilterPage(draft.held, (first, second))
    numbers, asked = router.subscriptions_since(second, limits.page_numbers_max)
    for number, wanted, parties in asked:
        clients = {each for each in parties if isinstance(each, Client)}
        if clients - {ITSELF, logs.client}:  # Not only durable ones, and parts of patterns.
            yield from draft.add("", (wanted,))
        if draft.is_full:
            return FilterPage(draft.held, (first, number + 1))
    is_last = len(numbers) < limits.page_numbers_max
    return FilterPage(draft.held, None if is_last else (first, numbers.stop))
