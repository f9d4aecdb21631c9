"""`Questions`: whose advertisements a question meets.

All advertisements are held here, covered ones too, since each who advertised is asked. The index
compares what is advertised; what an advertisement does not name its source does not have, which
the index knows nothing of, so that the algebra decides on what it finds.

Source: CU-CS-948-03 §4 and §5 (query intersection); PODC 2000 §4 for the ways.
"""

from collections.abc import Callable, Sequence

from contrada.matching import Index
from contrada.model import Filter, Query
from contrada.model.algebra.product import product_meets
from contrada.routing.messages import Client, Offer, Way
from contrada.routing.tables.poset import Node


class Questions:
    """Advertisements by number; `node_of` gives the advertisement of a number."""

    def __init__(self, index: Index[int], node_of: Callable[[int], Node[Offer]]) -> None:
        self._index = index
        self._node_of = node_of

    def __len__(self) -> int:
        return len(self._index)

    def add(self, node: Node[Offer]) -> None:
        """Enters an advertisement. Raises LimitError, changing nothing."""
        self._index.add(node.number, Filter.of_sets(node.product.sides))

    def remove(self, node: Node[Offer]) -> None:
        """Takes out an advertisement that is there."""
        self._index.remove(node.number)

    def of(self, query: Query) -> tuple[Sequence[tuple[Client, tuple[str, ...]]], set[Way]]:
        """The clients that advertised what a question meets, by name, each with the identities.

        And on which ways more of it was advertised. Cost: a look at every advertisement on the
        arrays, and the algebra for those that it may meet.
        """
        clients: dict[Client, list[str]] = {}
        ways: set[Way] = set()
        for node in map(self._node_of, self._index.meeting(query)):
            if product_meets(node.product, query):
                for party, identities in node.subscribers.items():
                    if isinstance(party, Way):
                        ways.add(party)
                    else:
                        clients.setdefault(party, []).extend(identities)
        return [(each, (*sorted(names),)) for each, names in sorted(clients.items())], ways

    def maintain(self, units: int) -> bool:
        """Does a bounded piece of upkeep; whether more is waiting."""
        return self._index.maintain(units)

    def validate(self) -> None:
        """Checks the invariants; AssertionError says which is broken. Cost: all of them."""
        self._index.validate()
