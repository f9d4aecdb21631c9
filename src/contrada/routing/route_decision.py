"""`decide_route`: where a server would send a notification, and why not over the other links.

It asks the same tables and the same topology as the forwarding of a real notification, but delivers
nothing, and admits no identity. A path through the network is followed by one decision per server,
each with the neighbour and the source of the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from contrada.model import Filter, Notification
from contrada.model.algebra.product import product_covers
from contrada.routing.admission import Admission
from contrada.routing.interest_forwarder import InterestForwarder
from contrada.routing.links.topology import Topology
from contrada.routing.router_messages import Client, Neighbour, Publish, Reason, RefusedError
from contrada.routing.tables.next_hop_cache import ITSELF, NextHopCache
from contrada.routing.tables.poset import Node

ARRIVED_THERE: Final = "it arrived over this link"
NO_INTEREST: Final = "no matching subscription is known from there"
OTHER_PATH: Final = "its path to the subscriptions there is another one"


@dataclass(frozen=True, slots=True)
class LinkDecision:
    """The decision about one link: forwarded with a `source`, unless there is a reason against."""

    neighbour: Neighbour
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class RouteDecision:
    """The matching filters, the decision for each link, and why the server would refuse it."""

    matching: Sequence[Node[Filter]]
    links: Sequence[LinkDecision]
    refusal: Reason | None = None


def decide_route(
    topology: Topology,
    admission: Admission,
    forwarding: InterestForwarder,
    next_hops: NextHopCache,
    notification: Notification,
    origin: Neighbour | None,
    source: str,
) -> RouteDecision:
    """Returns the decision for a notification of a client, or one that arrives from a neighbour.

    Cost: one match, its subscribers, and the links. Raises LimitError.
    """
    numbers = forwarding.subscriptions.index.match(notification)
    matching = sorted(map(forwarding.subscriptions.poset.node, numbers))
    wanting = next_hops.find(numbers).next_hops
    onward = {*topology.next_neighbours(ITSELF, source, None if forwarding.floods else wanting)}
    interested = {each.neighbour for each in wanting}
    links: list[LinkDecision] = []
    for neighbour in sorted(topology):
        reason = ""
        if neighbour == origin:
            reason = ARRIVED_THERE
        elif neighbour not in onward:
            refusal = topology.refusal(neighbour)
            is_wanted = forwarding.floods or neighbour in interested
            reason = str(refusal or (OTHER_PATH if is_wanted else NO_INTEREST))
        links.append(LinkDecision(neighbour, topology.source_over(neighbour, source), reason))
    refusal = _refusal(admission, forwarding, notification, origin, source)
    return RouteDecision(matching, links, refusal)


def _refusal(
    admission: Admission,
    forwarding: InterestForwarder,
    notification: Notification,
    origin: Neighbour | None,
    source: str,
) -> Reason | None:
    if origin is not None:
        try:
            admission.check_forwarded(origin, Publish((notification,), source=source))
        except RefusedError as refused:
            return refused.reason
        return None
    if not forwarding.uses_advertisements:
        return None
    # Its publisher must have advertised it: here any client of this server is the publisher.
    offers = map(forwarding.offers.poset.node, forwarding.offers.index.match(notification))
    for node in offers:
        is_of_client = any(isinstance(each, Client) for each in node.subscribers)
        if is_of_client and product_covers(node.product, notification):
            return None
    return Reason.NOT_ADVERTISED
