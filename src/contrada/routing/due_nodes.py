"""`DueNodes`: the registrations that are routed anew, in turns, after links have changed.

    links change ==> nodes with other next hops ==> due ==> some in each turn ==> messages
                                                     `==> none left: the replies that waited

A neighbour takes our acknowledgement of link states as a sign that our subscriptions have arrived.
So it is sent after them.

Invariants: a due node is routed as before, so it may be forwarded over a link that is down; such a
link must not come up again until nothing is due. Nothing waits where nothing is due.

Source: PODC 2000 §4 (general peer-to-peer), in pieces.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from contrada.model import Product
from contrada.routing.links.topology import Topology
from contrada.routing.router_messages import Neighbour, Send
from contrada.routing.tables.interest_table import InterestTable
from contrada.routing.tables.poset import Node

P = TypeVar("P", bound=Product)

DueSince: TypeAlias = dict[Node[Any], Topology | None]
"""The links before the change that made a node due; None after several changes, between which an
advertisement may have changed over a link that was not used."""


class DueNodes:
    """The due nodes of each table."""

    def __init__(self, tables: Sequence[InterestTable[Any]]) -> None:
        """The nodes of the first table are routed first."""
        self._due: dict[InterestTable[Any], DueSince] = {each: {} for each in tables}
        self._replies: list[Send] = []
        self.lost: set[Neighbour] = set()
        """The former neighbours to which due nodes may be forwarded."""

    def __bool__(self) -> bool:
        return any(self._due.values())

    def __contains__(self, node: object) -> bool:
        return any(node in each for each in self._due.values())

    @property
    def tables(self) -> Iterable[InterestTable[Any]]:
        """The tables, in order."""
        return self._due.keys()

    def add(self, table: InterestTable[P], nodes: Iterable[Node[P]], before: Topology) -> None:
        """Adds nodes of a table, after a change of the links `before`."""
        due = self._due[table]
        for node in nodes:
            if due.setdefault(node, before) is not before:
                due[node] = None

    def take(self, count: int) -> list[DueSince]:
        """Removes and returns nodes of each table, so many in all."""
        taken: list[DueSince] = []
        for table, due in self._due.items():
            some = [*islice(due, count)]
            count -= len(some)
            since = {each: due.pop(each) for each in some}
            # A subscription of the same filter may have ended the node since.
            taken.append({node: it for node, it in since.items() if table.poset.holds(node)})
        return taken

    def lose(self, neighbour: Neighbour) -> None:
        """Notes that a link is down; replies over it are dropped."""
        self.lost.add(neighbour)
        self._replies = [each for each in self._replies if each.to != neighbour]

    def hold(self, reply: Send) -> list[Send]:
        """Returns a reply that may be sent now; holds it while nodes are due."""
        if not self:
            return [reply]
        self._replies.append(reply)
        return []

    def finish(self) -> list[Send]:
        """Returns the replies that waited, if nothing is due."""
        if self:
            return []
        replies, self._replies = self._replies, []
        self.lost.clear()
        return replies

    def validate(self) -> None:
        """Checks the invariant; AssertionError names it."""
        assert self or not (self._replies or self.lost), "replies wait for nothing"
