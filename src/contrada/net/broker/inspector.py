"""Inspection of a broker: its filters and advertisements, and the route of a notification.

Nothing is changed by it. Filters and advertisements are sent as text, for people to read.
"""

from collections.abc import Generator, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from contrada.errors import shortened
from contrada.model import Notification
from contrada.model.languages.work_budget import Work
from contrada.net.broker.fair_scheduler import REQUEST_WORK_MAX
from contrada.net.wire.inspection import HeldLink, HeldText, Inspection
from contrada.routing.router import Router
from contrada.routing.router_messages import Client, Party
from contrada.routing.tables.next_hop_cache import ITSELF

INSPECTED_MAX: Final = 100
"""Links, clients, filters, advertisements, and filters that match, each, that a broker tells when
it is inspected. Beyond it: the first of them are told, and how many there are."""

INSPECTED_PARTIES_MAX: Final = 20
"""Clients and neighbours that are listed for each filter or offer. Beyond it: the first of them are
told."""


def inspect_router(
    router: Router, clients: Mapping[str, int], notification: Notification | None
) -> Generator[None, None, Inspection]:
    """Looks at a router, in turns: one for each filter. `clients` has their subscriptions.

    Work as that of a request; beyond it a filter that is not decided counts as matching.
    """
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
    # Taken before others have their turns: tables change then.
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
    """Products as texts. Printing one costs as much as reading it did when it was subscribed."""
    texts: list[HeldText] = []
    for product, parties in held:
        texts.append(HeldText(shortened(str(product)), parties))
        yield
    return texts
