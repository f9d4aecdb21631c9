"""`SourceMap`: from where the parts of a pattern can come, as a router knows it.

With advertisement forwarding a part comes from the neighbours (and clients) that have advertised
what it meets; one who asks for a pattern wants what comes from elsewhere, for its own side it asks
itself. In a hierarchy advertisements go up only, and so do all notifications: a server knows
nothing of what is advertised elsewhere, its parent sees all. So every part counts as coming from
the parent, also one that is wholly advertised below, since others may have advertised it too. Thus
a pattern goes up to the root whole, and from there down by what the children advertised; what a
child asks for may come from that child as well.

With subscription forwarding and with flooding nothing is known: nothing is delegated.

Source: PODC 2000 §4 (sequences are assembled according to the advertised paths).
"""

from collections.abc import Iterable

from contrada.model import Filter
from contrada.model.algebra.product import product_meets
from contrada.routing.links.topology import Topology
from contrada.routing.router_messages import Client, Neighbour, Offer, Origin, Role
from contrada.routing.tables.poset import Node


class SourceMap:
    """Sources of parts, by the links and the advertisements of one router.

    `offered`: all advertisements; None where servers exchange none.
    """

    def __init__(self, topology: Topology, offered: Iterable[Node[Offer]] | None) -> None:
        self._topology = topology
        self._offered = offered

    @property
    def is_known(self) -> bool:
        """Whether advertisements tell where notifications come from; else nothing is delegated."""
        return self._offered is not None

    def sources(self, part: Filter, requester: Origin) -> frozenset[Neighbour | None]:
        """From where a part can come; None stands for clients. Cost: all advertisements."""
        if self._offered is None:
            return frozenset()
        topology = self._topology
        parent = topology.parent
        if parent is not None and requester != parent:
            return frozenset() if topology.refusal(parent) else frozenset([parent])
        found: set[Neighbour | None] = set()
        for node in self._offered:
            if not product_meets(node.product, part):
                continue
            for party in node.subscribers:
                if isinstance(party, Client):
                    found.add(None)
                elif topology.is_active(party) and self.counts(party.neighbour, requester):
                    found.add(party.neighbour)
        return frozenset(found)

    def counts(self, origin: Origin, requester: Origin) -> bool:
        """Whether notifications from an origin count for patterns of a requester."""
        if isinstance(requester, Client) or origin != requester:
            return True
        return self._topology.role(requester) is Role.CHILD
