"""`asked_by`: whose advertisements a question meets.

All advertisements are looked at, covered ones too, since each who advertised is asked. The index
compares what is advertised; what an advertisement does not name its source does not have, which
the index knows nothing of, so that the algebra decides on what it finds.

Source: CU-CS-948-03 §4 and §5 (query intersection); PODC 2000 §4 for the ways.
"""

from collections.abc import Sequence

from contrada.model import Query
from contrada.model.algebra.product import product_meets
from contrada.routing.messages import Client, Offer, Way
from contrada.routing.tables.asked import AskedTable


def asked_by(
    offers: AskedTable[Offer], query: Query
) -> tuple[Sequence[tuple[Client, tuple[str, ...]]], set[Way]]:
    """The clients that advertised what a question meets, by name, each with the identities.

    And on which ways more of it was advertised. Cost: a look at every advertisement on the arrays,
    and the algebra for those that it may meet.
    """
    clients: dict[Client, list[str]] = {}
    ways: set[Way] = set()
    for node in map(offers.poset.node, offers.index.meeting(query)):
        if product_meets(node.product, query):
            for party, identities in node.subscribers.items():
                if isinstance(party, Way):
                    ways.add(party)
                else:
                    clients.setdefault(party, []).extend(identities)
    return [(each, (*sorted(names),)) for each, names in sorted(clients.items())], ways
