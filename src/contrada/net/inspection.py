"""What a broker tells of what it holds, to who may ask, and where a notification would go.

Nothing is changed by that. Filters and advertisements are told as texts, since people read them.
"""

from collections.abc import Generator, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from contrada.errors import shortened
from contrada.model import Notification
from contrada.model.languages.work import Work
from contrada.net.turns import REQUEST_WORK_MAX
from contrada.routing.messages import Client, Party
from contrada.routing.router import Router
from contrada.routing.tables.next_hops import ITSELF

INSPECTED_MAX: Final = 100
"""Links, clients, filters, advertisements, and filters that match, each, that a broker tells when
it is inspected. Beyond it: the first of them are told, and how many there are."""

INSPECTED_PARTIES_MAX: Final = 20
"""Clients and neighbours that are listed for each filter or offer. Beyond it: the first of them are
told."""


class HeldLink(msgspec.Struct, frozen=True):
    """A link to a neighbour; `unused` says why the link is not used; empty where it is."""

    name: str
    role: str
    cost: int
    unused: str = ""


class HeldText(msgspec.Struct, frozen=True):
    """A filter or an advertisement, as text, maybe cut, and who asked for it or offered it."""

    text: str
    parties: list[str]


class Inspection(msgspec.Struct, frozen=True):
    """What a broker holds, the first of each, and in `counts` how many there are.

    `clients` has the number of subscriptions of each. Where a notification was asked about,
    `matching` are the filters that match it, and `neighbours` those to which it would go.
    """

    name: str
    counts: dict[str, int]
    links: list[HeldLink]
    clients: dict[str, int]
    filters: list[HeldText]
    advertisements: list[HeldText]
    matching: list[HeldText] = []
    neighbours: list[str] = []


def inspected(
    router: Router, clients: Mapping[str, int], notification: Notification | None
) -> Generator[None, None, Inspection]:
    """Looks at a router, in turns: one for each filter. `clients` has their subscriptions.

    Work as that of a request; beyond it a filter that is not decided counts as matching.
    """
    matching: list[tuple[Any, Iterable[Party]]] = []
    onward: list[str] = []
    if notification is not None:
        with Work("REQUEST_WORK_MAX", REQUEST_WORK_MAX):
            matching, neighbours = router.interested(notification)
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
    filters = _first(router.asked())
    offers = _first(router.offered())
    found = _first(matching)
    return Inspection(
        router.name,
        counts,
        [
            HeldLink(link.name, str(link.role), link.cost, "" if why is None else str(why))
            for link, why in links[:INSPECTED_MAX]
        ],
        dict(islice(clients.items(), INSPECTED_MAX)),
        (yield from _told(filters)),
        (yield from _told(offers)),
        (yield from _told(found)),
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


def _told(held: list[tuple[Any, list[str]]]) -> Generator[None, None, list[HeldText]]:
    """Products as texts. Printing one costs as much as reading it did when it was subscribed."""
    told: list[HeldText] = []
    for product, parties in held:
        told.append(HeldText(shortened(str(product)), parties))
        yield
    return told
