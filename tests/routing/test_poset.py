"""`Poset`: forwarding equals the paper's formula, after all changes."""

import random
from collections.abc import Callable, Mapping, Set
from itertools import combinations
from typing import Final

import pytest

from contrada.errors import LimitError
from contrada.model import Filter, FilterSet, Product
from contrada.model.algebra.product import product_covers
from contrada.model.algebra.sets import gt
from contrada.model.algebra.value_set import of_cuts
from contrada.model.domains.values import NUMBER, plain_number
from contrada.model.languages import decision
from contrada.routing.router_messages import Client, Neighbour, NextHop
from contrada.routing.tables import poset
from contrada.routing.tables.covering_index import Example, FilterCoveringIndex
from contrada.routing.tables.poset import Node, Poset, PosetStatistics, entry_work, form_of

WAYS: Final = tuple(NextHop(Neighbour(name)) for name in "LMN")
ME: Final = Client("me")

Wanted = dict[Filter, Set[NextHop]]


def fwds(wanted: Wanted, product: Filter) -> Set[NextHop]:
    """The paper's formula, over all pairs."""
    covering = (
        next_hops
        for other, next_hops in wanted.items()
        if other != product and product_covers(other, product)
    )
    return frozenset(wanted[product]).difference(*covering)


def random_filter(chance: random.Random) -> Filter:
    """Filters over two attributes that often cover one another, or are equal."""
    parts = []
    if chance.random() < 0.8:
        low = chance.randrange(6)
        parts.append(f"a between {low} and {low + chance.randrange(6)}")
    if chance.random() < 0.5:
        parts.append(chance.choice(("b any", "b prefix 'x'", "b suffix 'x'", "b = 'xx'")))
    if chance.random() < 0.2:
        parts.append("c = true")
    return Filter(" and ".join(parts)) if parts else Filter({})


class World:
    """A poset, its wanted products, and the tables of the neighbours."""

    def __init__(self, *, covering: bool = True) -> None:
        self.poset: Poset[Filter] = Poset(FilterCoveringIndex() if covering else None)
        self.wanted: Wanted = {}
        self.nodes: dict[Filter, Node[Filter]] = {}
        self.tables: dict[NextHop, set[int]] = {next_hop: set() for next_hop in WAYS}
        self.products: dict[int, Filter] = {}

    def want(self, wanted: Wanted) -> None:
        """Sets the next hops of products; without any one is removed."""
        nodes: dict[Node[Filter], Set[NextHop]] = {}
        for product, next_hops in wanted.items():
            node = self.nodes.get(product) or self.poset.add_subscriber(product, ME, "1")
            self.nodes[product] = node
            self.products[node.number] = product
            nodes[node] = next_hops
            self.wanted[product] = next_hops
            if not next_hops:
                self.poset.remove_subscriber(node, ME, "1")
                del self.wanted[product], self.nodes[product]
        for each in self.poset.leaving:
            nodes.setdefault(each, frozenset())
        self.apply(nodes)

    def apply(self, nodes: Mapping[Node[Filter], Set[NextHop]]) -> None:
        """Applies changes at the neighbours, in order; none may miss a needed product meanwhile."""
        needed = {
            next_hop: [
                p
                for p, next_hops in self.wanted.items()
                if next_hop in next_hops and self.told(next_hop, p)
            ]
            for next_hop in WAYS
        }
        for change in self.poset.update(nodes):
            table = self.tables[change.next_hop]
            assert (int(change.identity) in table) != change.begins, "told twice"
            (table.add if change.begins else table.remove)(int(change.identity))
            assert all(self.told(change.next_hop, product) for product in needed[change.next_hop])
        self.poset.validate()

    def told(self, next_hop: NextHop, product: Filter) -> bool:
        """Whether a neighbour knows a product, or one that covers it."""
        return FilterSet([self.products[n] for n in self.tables[next_hop]]).covers(product)


@pytest.mark.quick_every(5)
@pytest.mark.parametrize("seed", range(25))
def test_it_is_the_formula(seed: int) -> None:
    """A wanted product would not be forwarded, or a covered one would be."""
    chance = random.Random(seed)
    world = World()
    for _ in range(60):
        batch: Wanted = {}
        for _ in range(chance.choice((1, 1, 1, 3))):
            gone = world.wanted and chance.random() < 0.45
            product = chance.choice(list(world.wanted)) if gone else random_filter(chance)
            next_hops = (
                () if gone and chance.random() < 0.8 else chance.sample(WAYS, chance.randint(1, 3))
            )
            batch[product] = frozenset(next_hops)
        world.want(batch)
        for product in world.wanted:
            assert world.poset.fwds(product) == fwds(world.wanted, product)
    world.want(dict.fromkeys(world.wanted, frozenset()))
    assert len(world.poset) == 0
    assert world.tables == {next_hop: set() for next_hop in WAYS}


@pytest.mark.quick_every(5)
@pytest.mark.parametrize("seed", range(25))
def test_little_work_costs_no_product(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour would miss a product of an update with too much work, or keep it for ever."""
    chance = random.Random(seed)
    world = World()
    for _ in range(60):
        monkeypatch.setattr(poset, "COVERING_WORK_MAX", chance.choice((0, 2, 25, 50, 50_000)))
        batch: Wanted = {}
        for _ in range(chance.choice((0, 1, 1, 4))):
            gone = world.wanted and chance.random() < 0.5
            product = chance.choice(list(world.wanted)) if gone else random_filter(chance)
            batch[product] = frozenset(chance.sample(WAYS, chance.randint(0 if gone else 1, 3)))
        world.want(batch)
    monkeypatch.setattr(poset, "COVERING_WORK_MAX", 50)
    world.want(dict.fromkeys(world.wanted, frozenset()))
    for _ in range(100):
        world.want({})
    assert len(world.poset) == len(world.poset.leaving) == 0
    assert world.tables == {next_hop: set() for next_hop in WAYS}


def test_few_products_are_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide filter, or its end, would hold a server that forwards many narrow ones."""
    monkeypatch.setattr(poset, "COVERING_WORK_MAX", 260)
    front, left = Poset[Filter](FilterCoveringIndex()), frozenset(WAYS[:1])
    narrow = [front.add_subscriber(Filter({"a": number}), ME, "1") for number in range(40)]
    front.update(dict.fromkeys(narrow, left))
    wide = front.add_subscriber(Filter("a any"), ME, "1")
    assert len(front.update({wide: left})) == 11
    sent = [each for each in narrow if each.forwarded]
    assert len(sent) == 30
    front.update(dict.fromkeys(sent, frozenset()))
    front.update(dict.fromkeys(sent, left))
    assert not any(each.forwarded for each in narrow)
    front.remove_subscriber(wide, ME, "1")
    counts = [len(front.update({wide: frozenset()}))]
    while front.leaving:
        front.validate()
        counts.append(len(front.update(dict.fromkeys(front.leaving, frozenset()))))
    assert counts == [10, 10, 10, 11]
    assert all(each.forwarded for each in narrow)
    front.validate()


def test_few_products_are_compared_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A narrow filter among many that meet it would hold a server; its covering one comes last."""
    front, left = Poset[Filter](FilterCoveringIndex()), frozenset(WAYS[:1])
    meeting = [Filter(f"b <= 5 and b != -{number}") for number in range(1, 5)]
    nodes = [front.add_subscriber(each, ME, "1") for each in (*meeting, Filter("b > 0"))]
    front.update(dict.fromkeys(nodes, left))
    narrow = [Filter(f"a = {number} and b between 5 and 6") for number in range(3)]
    outer, inner, last = (front.add_subscriber(each, ME, "1") for each in narrow)
    monkeypatch.setattr(poset, "COVERING_WORK_MAX", 7)
    decision.safe_answers.clear()
    front.update({outer: left})
    assert outer.forwarded == left
    assert decision.safe_answers == {"covers: COVERING_WORK_MAX": 1}
    monkeypatch.setattr(poset, "COVERING_WORK_MAX", 8)
    front.update({inner: left})
    assert not inner.forwarded
    wide, below = (front.add_subscriber(Filter(each), ME, "1") for each in ("c any", "c = 1"))
    front.update({wide: left, below: left})
    front.remove_subscriber(wide, ME, "1")
    front.update({wide: frozenset(), last: left})
    assert [*front.leaving] == [wide]  # Its end has used its work up, not that of the new one.
    assert not last.forwarded
    front.validate()


def test_without_covering_all_is_forwarded() -> None:
    """The savings of covering would be measured against themselves."""
    world = World(covering=False)
    next_hops = frozenset(WAYS)
    world.want(
        {
            Filter("a > 0"): next_hops,
            Filter("a > 1"): next_hops,
            Filter("a = 2"): frozenset(WAYS[:1]),
        }
    )
    assert [len(world.tables[next_hop]) for next_hop in WAYS] == [3, 2, 2]
    world.want({Filter("a > 0"): frozenset()})
    assert [len(world.tables[next_hop]) for next_hop in WAYS] == [2, 1, 1]


def case_1(world: World) -> None:
    world.want({Filter("a > 5"): frozenset(WAYS)})
    assert world.poset.fwds(Filter("a > 5")) == set()


def case_2(world: World) -> None:
    node = world.poset.add_subscriber(Filter("a > 0"), Client("other"), "7")
    world.apply({node: frozenset(WAYS)})
    assert world.poset.subscribers(Filter("a > 0")) == {ME, Client("other")}
    assert len(world.poset) == 1


def case_3(world: World) -> None:
    world.want({Filter("a > -5"): frozenset(WAYS[:2])})
    assert world.poset.fwds(Filter("a > -5")) == set(WAYS[:2])
    assert world.poset.fwds(Filter("a > 0")) == set(WAYS[2:])


@pytest.mark.parametrize("case", [case_1, case_2, case_3])
def test_a_new_subscription(case: Callable[[World], None]) -> None:
    """One of the paper's three cases of a new subscription would be another."""
    world = World()
    world.want({Filter("a > 0"): frozenset(WAYS)})
    case(world)
    world.poset.validate()


def test_a_withdrawn_wide_filter_brings_the_narrower_back() -> None:
    """A narrower subscription would get nothing after the wider one is withdrawn."""
    world = World()
    next_hops = frozenset(WAYS[:1])
    for text in ("a > 3", "a > 2", "a > 1 and b any", "a > 0", "a > 7"):
        world.want({Filter(text): next_hops})
    assert {str(world.products[n]) for n in world.tables[WAYS[0]]} == {str(Filter("a > 0"))}
    world.want({Filter("a > 0"): frozenset()})
    assert {world.products[n] for n in world.tables[WAYS[0]]} == {
        Filter("a > 2"),
        Filter("a > 1 and b any"),
    }


class FullIndex(FilterCoveringIndex):
    """An index that refuses filters on `b`."""

    def add(self, number: int, product: Product, example: Example | None) -> None:
        if "b" in product.sides:
            raise LimitError("ATTRS_MAX", 0)
        super().add(number, product, example)


def test_products_beyond_the_index_are_forwarded() -> None:
    """A full index would lose a subscription, or leave the tables half changed."""
    world = World()
    world.poset = Poset(FullIndex())
    next_hops = frozenset(WAYS)
    world.want({Filter("b > 0"): next_hops})
    world.want({Filter("b > 1"): next_hops, Filter("a > 0"): next_hops, Filter("a > 1"): next_hops})
    assert [len(world.tables[next_hop]) for next_hop in WAYS] == [3, 3, 3]
    assert world.poset.statistics() == PosetStatistics(nodes=4, forwarded=3, unfiled=2)
    world.want({Filter({}): next_hops})
    world.want(dict.fromkeys(world.wanted, frozenset()))
    assert world.poset.statistics() == PosetStatistics(nodes=0, forwarded=0)


@pytest.mark.slow
def test_a_chain_is_withdrawn_from_its_wide_end() -> None:
    """Each removal would let all others search for a root again."""
    world = World()
    next_hops = frozenset(WAYS[:1])
    chain = [Filter({"a": gt(low)}) for low in range(200)]
    for product in chain:
        world.want({product: next_hops})
    covering = FilterCoveringIndex.covering
    asked: list[Filter] = []

    def counted(front: FilterCoveringIndex, product: Filter, example: Example | None) -> list[int]:
        asked.append(product)
        return covering(front, product, example)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterCoveringIndex, "covering", counted)
        for product in chain:
            world.want({product: frozenset()})
    assert len(asked) <= len(chain)
    assert len(world.poset) == 0


def test_filters_of_numbers_of_one_hash_are_found_at_once() -> None:
    """A stranger could make each lookup pass over all filters: some thousands take seconds."""
    of_one_hash = [plain_number(2.0 ** (61 * n)) for n in range(-6, 7)]
    lines = [tuple((NUMBER, n) for n in each) for each in combinations(of_one_hash, 4)]
    assert len(set(map(hash, lines))) == 1
    filters = [Filter.of_sets({"a": of_cuts(each)}) for each in lines]
    assert len({hash(form_of(each)) for each in filters}) == len(filters)


def test_nodes_are_listed_in_pages() -> None:
    """An operator would see a filter twice, or not at all, or those of another link."""
    world = World()
    left, right, _ = WAYS
    wide, *narrow = (Filter(f"a between 0 and {end}") for end in (9, 1, 2, 3))
    world.want({wide: {left}, Filter("b any"): {right}})
    world.want({each: {left} for each in narrow})

    def pages(next_hop: NextHop | None, above: int, count: int) -> list[list[int]]:
        found, at = [], 0
        while at >= 0:
            at, nodes = world.poset.forest_since(next_hop, above, at, count)
            found.append([each.number for each in nodes])
        return found

    assert pages(None, -1, 2) == [[0, 1], [2, 3], [4]]
    assert pages(None, -1, 5) == [[0, 1, 2, 3, 4]]
    assert pages(left, -1, 3) == [[0], []]
    assert pages(right, -1, 9) == [[1]]
    children = sorted(each.number for each in world.poset.node(0).below[left])
    assert pages(left, 0, 1) == [[each] for each in children]
    assert pages(left, 0, 9) == [children]
    assert pages(left, 77, 9) == [[]]
    assert world.poset.subscribers(wide) == {ME}
    assert world.poset.subscribers(Filter("c any")) == frozenset()
    assert world.poset.fwds(wide) == {left}
    assert world.poset.fwds(Filter("c any")) == frozenset()


def test_the_work_to_enter_filters_is_that_of_each_and_of_its_sides() -> None:
    """A request with many constraints would be accepted, and hold the server's loop."""
    assert entry_work([]) == 0
    assert entry_work([Filter("a = 1")]) == 30
    assert entry_work([Filter("a = 1 and b > 2 and c any"), Filter({})]) == 50 + 20
