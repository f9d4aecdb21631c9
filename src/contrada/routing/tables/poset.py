"""`Poset`: the subscriptions of a server, or its advertisements, ordered by covering.

A *node* is one product with its subscribers and its wanted next hops: neighbours, in a general
topology each with an owner. It is forwarded to each of these next hops, except where a forwarded
product covers it:

    fwds(f) = wanted(f) - union of wanted(f') over all other f' that cover f

which is the paper's definition; the topology decides `wanted`. For each next hop the nodes form a
forest instead of the paper's full diagram. Its roots are forwarded, and every other node is the
child of a node that covers it. A new product is compared only with the roots (see
`covering_index`). When a root is removed, its children are attached to one another where one covers
another; each remaining one searches for another root or becomes one.

    wanted at next hop w:  price > 0              forwarded
                      |- price > 10               not: a child
                      |  `- price > 10, sym = A   not
                      `- price > 5                not

An update that would compare or withdraw too many products leaves some of them forwarded, though
covered. A product without subscribers that has too many children is *leaving*: it stays forwarded,
gets no more children, and each further update sends some of them in its place.

Invariants: a child of a next hop has a parent that is wanted at the next hop and covers it, without
cycles (only a root gets children, or a node that has just lost its root); the covering index holds
the forwarded nodes; every node but a leaving one has subscribers between two updates. Beyond the
limits of the algebra, and if the covering index is full, more is forwarded than needed, never less.

Source: PODC 2000 §4 (the poset, fwds, cases 1 to 3).
"""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from contrada.errors import LimitError
from contrada.model import Product
from contrada.model.algebra.product import example_of, product_covers
from contrada.model.languages.decision import safe_answers
from contrada.routing.router_messages import NextHop, Party
from contrada.routing.tables.covering_index import CoveringIndex

P = TypeVar("P", bound=Product)


_EMPTY: Final[dict[Any, Any]] = {}
"""Shared by all nodes without children or parents. Never filled."""


Identities: TypeAlias = tuple[str] | dict[str, None]
"""The identities of one party: mostly one, and then a dictionary would be large."""


COVERING_WORK_MAX: Final = 50_000
"""Steps of work of an update to compare products in vain and withdraw covered ones; as many to send
those that a withdrawn one covered. Beyond it: they stay forwarded, or it is leaving; counted."""

_COMPARED_WORK: Final = 2
"""Steps of work to compare two products."""

_REPLACED_WORK: Final = 25
"""Steps of work to forward a product in place of another."""

_FILTER_WORK: Final = 20
"""Steps of work to enter a filter, or an advertisement."""

_SIDE_WORK: Final = 10
"""And for each attribute that it names."""


@dataclass(slots=True, eq=False)
class Node(Generic[P]):
    """A registered product.

    `identities` holds the identities of each party. Mostly there is one identity: then `identities`
    is that identity alone, and `single_subscriber` its party, since dictionaries are large.
    `forwarded`: the next hops that receive the product. `above`: at each other wanted next hop, the
    covering node. `below`: its children at each next hop.
    """

    number: int
    product: P
    single_subscriber: Party | None
    identities: str | dict[Party, Identities]
    forwarded: frozenset[NextHop] = frozenset()
    above: "dict[NextHop, Node[P]]" = field(default_factory=lambda: _EMPTY)
    below: "dict[NextHop, dict[Node[P], None]]" = field(default_factory=lambda: _EMPTY)

    @property
    def identity(self) -> str:
        """The identity under which it is forwarded."""
        return str(self.number)

    @property
    def subscribers(self) -> dict[Party, Identities]:
        """The identities of each party."""
        asked = self.identities
        if isinstance(asked, dict):
            return asked
        assert self.single_subscriber is not None, "one identity is that of one party"
        return {self.single_subscriber: (asked,)}

    def mutable_subscribers(self) -> dict[Party, Identities]:
        """Returns the subscribers as a dictionary that may be changed."""
        subscribers = self.identities = self.subscribers
        self.single_subscriber = None
        return subscribers

    @property
    def is_deserted(self) -> bool:
        """Whether it has no subscribers."""
        return self.identities == _EMPTY

    @property
    def wanted(self) -> Set[NextHop]:
        """The next hops that must know the product, or a covering one."""
        return self.forwarded | self.above.keys()

    def __lt__(self, other: "Node[P]") -> bool:
        return self.number < other.number


@dataclass(frozen=True, slots=True)
class ForwardingChange(Generic[P]):
    """The forwarding of a product to a next hop begins or ends."""

    next_hop: NextHop
    identity: str
    product: P
    begins: bool


@dataclass(frozen=True, slots=True)
class PosetStatistics:
    """The numbers of nodes, of forwarded ones, and of those that exceed the covering index."""

    nodes: int
    forwarded: int
    unfiled: int = 0


class Poset(Generic[P]):
    """Products with their subscribers and next hops. Without `covering` all are forwarded."""

    def __init__(self, front: CoveringIndex | None) -> None:
        self._covering = front
        self._nodes: dict[_ProductForm, Node[P]] = {}
        self._by_number: dict[int, Node[P]] = {}
        self._numbered = 0
        self._unfiled: set[int] = set()
        self._work_left = 0
        self.leaving: dict[Node[P], None] = {}
        self.registration_count = 0

    # --- subscribers --------------------------------------------------------------------------

    def add_subscriber(self, product: P, subscriber: Party, identity: str) -> Node[P]:
        """Adds a subscriber. Returns the node. Nothing is forwarded until `update`."""
        new = Node(self._numbered, product, subscriber, identity)
        node = self._nodes.setdefault(_ProductForm(product), new)
        if node is new:
            self._numbered += 1
            self._by_number[node.number] = node
            self.registration_count += 1
            return node
        subscribers = node.mutable_subscribers()
        identities = subscribers.get(subscriber, ())
        assert identity not in identities, f"{subscriber} {identity} has this product already"
        self.registration_count += 1
        if not identities:
            subscribers[subscriber] = (identity,)
        elif isinstance(identities, dict):
            identities[identity] = None
        else:
            subscribers[subscriber] = dict.fromkeys((*identities, identity))
        return node

    def remove_subscriber(self, node: Node[P], subscriber: Party, identity: str) -> None:
        """Removes a subscriber. A node without subscribers is removed at `update`."""
        subscribers = node.mutable_subscribers()
        identities = subscribers[subscriber]
        self.registration_count -= 1
        if len(identities) == 1:
            del subscribers[subscriber]
        elif isinstance(identities, dict):
            del identities[identity]

    def subscribers(self, product: P) -> Set[Party]:
        """Returns the parties with this product. Source: PODC 2000 §4, `subscribers(f)`."""
        node = self._nodes.get(_ProductForm(product))
        return node.subscribers.keys() if node is not None else frozenset()

    def fwds(self, product: P) -> Set[NextHop]:
        """Returns the next hops that receive it. Source: PODC 2000 §4, `fwds(f)`."""
        node = self._nodes.get(_ProductForm(product))
        return node.forwarded if node is not None else frozenset()

    def node(self, number: int) -> Node[P]:
        """Returns the node of a number. Raises KeyError."""
        return self._by_number[number]

    def holds(self, node: Node[P]) -> bool:
        """Whether a node has not been removed."""
        return self._by_number.get(node.number) is node

    def since(self, number: int, count: int) -> tuple[range, Iterator[Node[P]]]:
        """Returns a range of numbers, up to the last one, and lazily the nodes with these."""
        numbers = range(number, min(number + count, self._numbered))
        return numbers, filter(None, map(self._by_number.get, numbers))

    def forest_since(
        self, next_hop: NextHop | None, above: int, number: int, count: int
    ) -> tuple[int, list[Node[P]]]:
        """Returns nodes of the forest at a next hop, in order of numbers, and the next number.

        They are the roots among `count` numbers from this one on, or the first `count` children of
        the node `above`, if it is not negative; without a next hop all nodes. The next number is -1
        after the last node. Cost: `count`, or the children.
        """
        if next_hop is None or above < 0:
            numbers, nodes = self.since(number, count)
            following = numbers.stop if numbers.stop < self._numbered else -1
            return following, [it for it in nodes if next_hop is None or next_hop in it.forwarded]
        parent = self._by_number.get(above)
        below = () if parent is None else parent.below.get(next_hop, ())
        children = nsmallest(count + 1, (each for each in below if each.number >= number))
        return (children[count].number if len(children) > count else -1), children[:count]

    def __iter__(self) -> Iterator[Node[P]]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    # --- forwarding ---------------------------------------------------------------------------

    def update(self, wanted: Mapping[Node[P], Set[NextHop]]) -> list[ForwardingChange[P]]:
        """Sets the wanted next hops of nodes. Returns the forwarding changes.

        New forwarding precedes withdrawals, so that nothing is missed meanwhile. A node without
        subscribers must be wanted nowhere, and is removed, unless it is leaving. Cost: a few
        lookups per node, and as many for each child of a removed root, up to COVERING_WORK_MAX.
        """
        for node in wanted.keys() & self.leaving.keys() if self.leaving else ():
            del self.leaving[node]
        self._work_left = COVERING_WORK_MAX
        before: dict[Node[P], frozenset[NextHop]] = {}
        entering: dict[Node[P], set[NextHop]] = {}
        # Most nodes have no next hops; on a server without links none has.
        moving = {
            node: next_hops
            for node, next_hops in wanted.items()
            if next_hops or node.above or node.forwarded
        }
        for node, next_hops in moving.items():
            # A child of a root that was just removed is wanted too, though it has no parent.
            # Sorted: a seeded world is the same with each seed of Python's hashes.
            for next_hop in sorted((node.wanted | entering.get(node, set())) - next_hops):
                self._remove_from(node, next_hop, entering, before)
        for node, next_hops in moving.items():
            entering[node] = set(next_hops - node.wanted)
        self._work_left = COVERING_WORK_MAX
        # Products with fewer attributes cover more: added first, they keep the rest from being
        # roots for a moment.
        for node in sorted(entering, key=lambda node: (len(node.product.sides), node.number)):
            if entering[node]:
                self._add_to(node, entering[node], before)
        for node in wanted:
            if node.is_deserted and node.wanted:
                self.leaving[node] = None
            elif node.is_deserted:
                del self._nodes[_ProductForm(node.product)], self._by_number[node.number]
        return _changes(before) if before else []

    def _remove_from(
        self,
        node: Node[P],
        next_hop: NextHop,
        orphans: dict[Node[P], set[NextHop]],
        before: dict[Node[P], frozenset[NextHop]],
    ) -> None:
        """Removes a node from the forest of a next hop; its children move up, or become orphans."""
        above = node.above.get(next_hop)
        if above is not None:
            below = node.below.pop(next_hop, {})
            del node.above[next_hop], above.below[next_hop][node]
            if not above.below[next_hop]:
                del above.below[next_hop]
            for child in below:
                _attach(child, above, next_hop)
            return
        children = list(node.below.get(next_hop, ()))
        may_stay = children and node.is_deserted and next_hop in node.forwarded
        if may_stay and self._is_too_much(len(children) * _REPLACED_WORK):
            self.leaving[node] = None
            del children[max(0, self._work_left // _REPLACED_WORK + len(children)) :]
            for child in children:
                del node.below[next_hop][child]
        else:
            node.below.pop(next_hop, None)
            if next_hop in node.forwarded:
                before.setdefault(node, node.forwarded)
                node.forwarded -= {next_hop}
                self._remove_root(node)
        for child in children:
            del child.above[next_hop]
        for child in _pair_by_covering(children, next_hop):
            orphans.setdefault(child, set()).add(next_hop)

    def _add_to(
        self, node: Node[P], next_hops: set[NextHop], before: dict[Node[P], frozenset[NextHop]]
    ) -> None:
        """Attaches a node below covering roots; at a next hop without one it becomes a root."""
        front = self._covering
        example = None if front is None else example_of(node.product.sides)
        if front is not None:
            self._attach_below(node, next_hops, front.covering(node.product, example))
        if not next_hops:
            return
        before.setdefault(node, node.forwarded)
        is_new = not node.forwarded
        node.forwarded |= next_hops
        if front is None:
            return
        for number in front.covered(node.product):
            root = self._by_number[number]
            shared = next_hops & root.forwarded
            if not shared or root is node:
                continue
            is_sent = bool(shared & before.get(root, root.forwarded))
            if self._is_too_much(_REPLACED_WORK if is_sent else _COMPARED_WORK):
                break
            if product_covers(node.product, root.product):
                before.setdefault(root, root.forwarded)
                root.forwarded -= shared
                for next_hop in shared:
                    _attach(root, node, next_hop)
                self._remove_root(root)
        if is_new:
            try:
                front.add(node.number, node.product, example)
            except LimitError:
                self._unfiled.add(node.number)

    def _attach_below(self, node: Node[P], next_hops: set[NextHop], numbers: Iterable[int]) -> None:
        """Attaches a node below covering roots, and removes these next hops from the set."""
        for root in map(self._by_number.__getitem__, numbers):
            shared = next_hops & root.forwarded
            if not shared or root is node or root in self.leaving:
                continue
            if product_covers(root.product, node.product):
                for next_hop in shared:
                    _attach(node, root, next_hop)
                next_hops -= shared
                if not next_hops:
                    return
            elif self._is_too_much(_COMPARED_WORK):
                return

    def _is_too_much(self, steps: int) -> bool:
        """Counts steps of work, and returns whether this update has done too many."""
        self._work_left -= steps
        if self._work_left < 0:
            safe_answers.add("covers: COVERING_WORK_MAX")
        return self._work_left < 0

    def _remove_root(self, node: Node[P]) -> None:
        """Removes a node from the covering index once it is forwarded nowhere."""
        if node.forwarded or self._covering is None:
            return
        if node.number in self._unfiled:
            self._unfiled.remove(node.number)
        else:
            self._covering.remove(node.number)

    # --- upkeep -------------------------------------------------------------------------------

    def statistics(self) -> PosetStatistics:
        """Returns a frozen view of the counters."""
        forwarded = sum(bool(node.forwarded) for node in self)
        return PosetStatistics(len(self), forwarded, len(self._unfiled))

    def validate(self, due: Container[Node[P]] = ()) -> None:
        """Checks the invariants; AssertionError names the broken one. Cost: all nodes.

        Nodes that are `due` for an update may be without subscribers.
        """
        assert len(self._nodes) == len(self._by_number), "a node is held twice"
        asked = sum(len(each) for node in self for each in node.subscribers.values())
        assert asked == self.registration_count, "the count is wrong"
        for node in self:
            is_known = node in due or node.is_deserted == (node in self.leaving)
            assert is_known, f"{node.product} has no subscribers, or is leaving with some"
            assert not node.forwarded & node.above.keys(), f"{node.product} is covered, and sent"
            for next_hop, above in node.above.items():
                assert node in above.below[next_hop], f"{node.product} is no child of its parent"
                assert next_hop in above.wanted, f"{node.product} has an unwanted parent"
                is_covered = product_covers(above.product, node.product)
                assert is_covered, "a parent does not cover its child"
                _check_path_to_root(node, next_hop)
            for next_hop, below in node.below.items():
                assert below, "an empty branch is held"
                assert all(it.above[next_hop] is node for it in below), "a branch is misplaced"
        if self._covering is not None:
            self._covering.validate()


def form_of(product: Product) -> Hashable:
    """Returns a key of products that are written alike. Cost: linear, no decision."""
    sides = product.sides
    return type(product), *sides, *[side.form() for side in sides.values()]


class _ProductForm(msgspec.Struct, gc=False, eq=False):
    """A product with the equality of its form. A form is as large as a product, so none is stored.

    No product refers back to it, so the garbage collector need not track it.
    """

    product: Product

    def __hash__(self) -> int:
        return hash(form_of(self.product))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ProductForm) and form_of(self.product) == form_of(other.product)


def _attach(node: Node[P], above: Node[P], next_hop: NextHop) -> None:
    if node.above is _EMPTY:
        node.above = {}
    if above.below is _EMPTY:
        above.below = {}
    node.above[next_hop] = above
    above.below.setdefault(next_hop, {})[node] = None


def _check_path_to_root(node: Node[P], next_hop: NextHop) -> None:
    seen = {node}
    while next_hop in node.above:
        node = node.above[next_hop]
        assert node not in seen, "a cycle of nodes that cover one another"
        seen.add(node)
    assert next_hop in node.forwarded, f"{node.product} covers others and is not sent"


def _pair_by_covering(nodes: list[Node[P]], next_hop: NextHop) -> list[Node[P]]:
    """Attaches nodes below one another by covering, as a pairing heap does. Returns the others.

    So few nodes search for another root, even if each filter covers the next. The first pass joins
    neighbours, the second joins the results from the end.
    """
    firsts: list[Node[P]] = []
    for a, b in zip(nodes[::2], nodes[1::2], strict=False):
        firsts += _attach_covered(a, b, next_hop)
    firsts += nodes[len(nodes) & ~1 :]
    left: list[Node[P]] = []
    for node in reversed(firsts):
        left += _attach_covered(left.pop(), node, next_hop) if left else [node]
    return left


def _attach_covered(a: Node[P], b: Node[P], next_hop: NextHop) -> list[Node[P]]:
    """Attaches one node below the other if it covers it. Returns the nodes without a parent."""
    if product_covers(a.product, b.product):
        _attach(b, a, next_hop)
        return [a]
    if product_covers(b.product, a.product):
        _attach(a, b, next_hop)
        return [b]
    return [a, b]


def _changes(before: Mapping[Node[P], frozenset[NextHop]]) -> list[ForwardingChange[P]]:
    nodes = sorted(before)
    begins = [(node, node.forwarded - before[node], True) for node in nodes]
    ends = [(node, before[node] - node.forwarded, False) for node in nodes]
    return [
        ForwardingChange(next_hop, node.identity, node.product, is_begun)
        for node, next_hops, is_begun in begins + ends
        for next_hop in sorted(next_hops)
    ]


def entry_work(products: Iterable[Product]) -> int:
    """Steps of work to enter these."""
    total = 0
    for each in products:
        total += _FILTER_WORK + len(each.sides) * _SIDE_WORK
    return total
