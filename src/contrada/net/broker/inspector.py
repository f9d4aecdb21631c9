"""Inspection of a broker: filters and advertisements, the route of a notification, the forest of
filters in parts, and pages of all client filters.

    page_from [0, 0]  ==>  durable subscriptions, by their numbers, each with its name
                           other filters of clients, by the numbers of filters
    [first numbers after the page]  ==>  the next page

Numbers are assigned in order, and never again in one run of a broker, so it keeps no state between
two pages. A durable subscription or filter that exists from the first request to the last answer is
exported exactly once. One that changes meanwhile may be missing or doubled. Filters of neighbours
and patterns are not exported.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import structs

from contrada.errors import shortened
from contrada.model import Filter, Notification
from contrada.net.broker.broker_limits import BrokerLimits
from contrada.net.broker.broker_logs import BrokerLogs
from contrada.net.broker.fair_scheduler import request_work
from contrada.net.broker.link import Link
from contrada.net.wire.frames import InspectReply, InspectRequest
from contrada.net.wire.inspection import (
    FilterPage,
    ForestPosition,
    HeldFilters,
    HeldLink,
    HeldStep,
    HeldText,
    Inspection,
    LinkArrival,
    Position,
    software_version,
)
from contrada.net.wire.payload_codec import encode_content, notifications_from
from contrada.routing.interest_forwarder import ForwardedAt
from contrada.routing.router import Router
from contrada.routing.router_messages import Adjacency, Client, Neighbour, NextHop, Party, Reason
from contrada.routing.tables.next_hop_cache import ITSELF
from contrada.routing.tables.poset import Node
from contrada.service.dispatcher import Dispatcher
from contrada.service.security.permits import Permit
from contrada.service.story_reader import read_story

INSPECTED_MAX: Final = 100
"""Links, clients, filters, advertisements and matching filters in an inspection, each. Beyond it:
the first ones, and the total."""

INSPECTED_PARTIES_MAX: Final = 20
"""Clients and neighbours listed for each filter or offer. Beyond it: the first ones."""


FOREST_MAX: Final = 100
"""Filters in a part of a forest. Beyond it: the next part has the rest."""

FOREST_NUMBERS_MAX: Final = 10_000
"""Numbers of filters that one turn searches for roots. Beyond it: the next turn goes on."""

_Draft: TypeAlias = tuple[Any, HeldText]
"""A product, and its description without its text, which costs as much as decoding it."""


class Inspected(NamedTuple):
    """The parts of a broker, its subscriptions by client, its links, and the asking user."""

    dispatcher: Dispatcher
    logs: BrokerLogs
    clients: Mapping[str, int]
    links: Iterable[Link]
    permit: Permit | None


Inspect: TypeAlias = Callable[[InspectRequest, Permit | None], Generator[None, None, InspectReply]]
"""Answers a request of a user, in turns. Raises ContradaError."""


def answer_inspection(
    request: InspectRequest, broker: Inspected, limits: BrokerLimits
) -> Generator[None, None, InspectReply]:
    """Returns the answer to a request, in turns. Raises LimitError, and errors of its content."""
    router, page = broker.dispatcher.router, None
    held = Inspection(router.name, {}, [], {}, [], [])
    if request.page_from is not None:
        page = yield from filter_page(router, broker.logs, request.page_from, limits)
    elif request.forest_from is not None:
        held = yield from _forest(router, request.forest_from)
    elif request.story:
        story = yield from read_story(broker.dispatcher, request.story)
        held = structs.replace(held, story=story)
    else:
        held = yield from _inspect_state(broker)
        if request.notification:
            with request_work():
                (notification,) = notifications_from([request.notification])
            held = yield from _with_route(held, broker, notification, request.arrival)
    return InspectReply(request.number, held, page)


def _inspect_state(broker: Inspected) -> Generator[None, None, Inspection]:
    """Returns the inspection without a route, in turns."""
    router, clients = broker.dispatcher.router, broker.clients
    queue_count, queues = yield from broker.logs.first_queues()
    links = router.links()
    held = router.statistics()
    counts = {
        "links": len(links),
        "clients": len(clients),
        "filters": held.filters.nodes,
        "advertisements": held.offers.nodes,
        "matching": 0,
        "neighbours": 0,
        "queues": queue_count,
    }
    known = _held_links(broker, links[:INSPECTED_MAX])
    # Copied before other connections have turns, since the tables change then.
    filters = [_draft(*each) for each in islice(router.subscriptions(), INSPECTED_MAX)]
    offers = [_draft(*each) for each in islice(router.advertisements(), INSPECTED_MAX)]
    return Inspection(
        router.name,
        counts,
        known,
        dict(islice(clients.items(), INSPECTED_MAX)),
        (yield from _to_texts(filters)),
        (yield from _to_texts(offers)),
        queues=queues,
        strategy=str(router.strategy),
        version=software_version(),
    )


def _held_links(
    broker: Inspected, links: Sequence[tuple[Adjacency, Reason | None]]
) -> list[HeldLink]:
    addresses = {each.name: each.address for each in broker.links}
    known: dict[str, list[ForwardedAt]] = {}
    for each in broker.dispatcher.router.forwarding.forwarded_at():
        known.setdefault(each.next_hop.neighbour.name, []).append(each)
    held: list[HeldLink] = []
    for link, unused in links:
        trees = known.get(link.name, [])
        owners = [each.next_hop.owner for each in trees[:INSPECTED_PARTIES_MAX]]
        wanted, sent = sum(each.wanted for each in trees), sum(each.sent for each in trees)
        state = link.name, str(link.role), link.cost, "" if unused is None else str(unused)
        held.append(HeldLink(*state, addresses.get(link.name, ""), wanted, sent, owners))
    return held


def _with_route(
    held: Inspection, broker: Inspected, notification: Notification, arrival: LinkArrival | None
) -> Generator[None, None, Inspection]:
    """Returns the inspection with the route of a notification; undecided filters count as matching.

    Rights are checked as for a real one: those of the neighbours at this end of their links, and
    those of the user.
    """
    origin, source = (Neighbour(arrival[0]), arrival[1]) if arrival else (None, "")
    links = {each.name: each for each in broker.links}
    with request_work():
        decision = broker.dispatcher.router.decide_route(notification, origin, source)
    # Copied, as above.
    matching = [_draft_of(each) for each in decision.matching[:INSPECTED_MAX]]
    delivering = sum(
        isinstance(party, Client) for node in decision.matching for party in node.subscribers
    )
    steps: list[HeldStep] = []
    for each in sorted(decision.links, key=lambda it: bool(it.reason)):
        name, permit, reason = each.neighbour.name, None, each.reason
        if name in links:
            permit = links[name].connection.permit
        if not reason and permit is not None and permit.unreadable([notification]):
            reason = f"{permit.principal.name!r}, the user of this neighbour, may not read it"
        steps.append(
            HeldStep(name, each.source, reason, (yield from _refused(permit, notification)))
        )
        yield
    stopped = "" if decision.refusal is None else str(decision.refusal)
    if origin is not None and not stopped:
        stopped = next((each.refuses for each in steps if each.name == origin.name), "")
    onward = [each.name for each in steps if not each.reason]
    counts = {"matching": len(decision.matching), "neighbours": len(onward)}
    return structs.replace(
        held,
        counts=held.counts | counts | {"delivering": delivering},
        matching=(yield from _to_texts(matching)),
        neighbours=onward[:INSPECTED_MAX],
        steps=sorted(steps, key=lambda it: bool(it.reason))[:INSPECTED_MAX],
        stopped=stopped,
        not_yours="" if origin else (yield from _refused(broker.permit, notification)),
    )


def _refused(permit: Permit | None, notification: Notification) -> Generator[None, None, str]:
    """Returns why a user may not publish a notification; empty where they may."""
    if permit is None or not (yield from permit.unpublishable([notification])):
        return ""
    return str(permit.why_unpublishable(notification))


def _forest(router: Router, begin: ForestPosition) -> Generator[None, None, Inspection]:
    """Returns a part of a forest, in turns: a long search for roots, and each text."""
    name, owner, above, following = begin
    next_hop = NextHop(Neighbour(name), owner) if name else None
    count = FOREST_NUMBERS_MAX if above < 0 else FOREST_MAX
    poset = router.forwarding.subscriptions.poset
    nodes: list[Node[Filter]] = []
    while following >= 0 and len(nodes) < FOREST_MAX:
        following, found = poset.forest_since(next_hop, above, following, count)
        nodes += found
        yield
    if len(nodes) > FOREST_MAX:
        following = nodes[FOREST_MAX].number
    parts = [_draft_of(each, next_hop) for each in nodes[:FOREST_MAX]]
    texts = yield from _to_texts(parts)
    return Inspection(router.name, {}, [], {}, texts, [], following=following)


def _draft(product: Any, parties: Iterable[Party]) -> _Draft:
    names = [_name_of(each) for each in islice(parties, INSPECTED_PARTIES_MAX)]
    return product, HeldText("", names)


def _draft_of(node: Node[Filter], next_hop: NextHop | None = None) -> _Draft:
    product, held = _draft(node.product, node.subscribers)
    forwarded = sorted({each.neighbour.name for each in node.wanted})[:INSPECTED_PARTIES_MAX]
    below = 0 if next_hop is None else len(node.below.get(next_hop, ()))
    return product, structs.replace(held, number=node.number, forwarded=forwarded, below=below)


def _name_of(party: Party) -> str:
    if not isinstance(party, Client):
        return f"neighbour {party.neighbour.name}"
    return "a pattern" if party.name == ITSELF.name else f"client {party.name}"


def _to_texts(drafts: list[_Draft]) -> Generator[None, None, list[HeldText]]:
    """Returns products as texts. Printing one costs as much as decoding it."""
    texts: list[HeldText] = []
    for product, held in drafts:
        texts.append(structs.replace(held, text=shortened(str(product))))
        yield
    return texts


class _PageDraft:
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
