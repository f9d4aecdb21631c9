"""`SourceMap`: the neighbours that may send notifications for the parts of a pattern.

With advertisement forwarding these are the neighbours (and clients) with advertisements that meet a
part. A requester covers its own side itself. In a hierarchy advertisements travel upward only, and
so do all notifications: a server knows nothing of advertisements elsewhere, and its parent sees
everything. So the parent counts as a source of every part, even of one that is fully advertised
below, since others may have advertised it too. Thus a pattern moves up to the root whole, and from
there down along the children's advertisements; a child's pattern may also match notifications from
that child.

With subscription forwarding and with flooding sources are unknown: nothing is delegated.

Source: PODC 2000 §4 (sequences are assembled according to the advertised paths).
"""

from collections.abc import Iterable

from contrada.model import Filter
from contrada.model.algebra.product import product_meets
from contrada.routing.links.topology import Topology
from contrada.routing.router_messages import Client, Neighbour, Offer, Origin, Role
from contrada.routing.tables.poset import Node


class SourceMap:
    """Sources of parts. `offered`: all advertisements; None if servers exchange none."""

    def __init__(self, topology: Topology, offered: Iterable[Node[Offer]] | None) -> None:
        self._topology = topology
        self._offered = offered

    @property
    def is_known(self) -> bool:
        """Whether advertisements show the sources; else nothing is delegated."""
        return self._offered is not None

    def sources(self, part: Filter, requester: Origin) -> frozenset[Neighbour | None]:
        """Returns the sources of a part; None means clients. Cost: all advertisements."""
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
