"""`FilterMerger`: fewer filters are sent, and deliveries stay the same."""

import random
from collections import Counter
from collections.abc import Iterable, Set
from typing import Any, Final

import pytest

from contrada.model import Advertisement, Filter, FilterSet, Notification
from contrada.model.algebra.product import product_covers
from contrada.model.algebra.value_set import ValueSet
from contrada.model.languages.atoms import Atom
from contrada.model.languages.language import Literal
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    Advertise,
    Client,
    LinkUp,
    Message,
    Neighbour,
    NextHop,
    Offer,
    Publish,
    Received,
    Role,
    Send,
    Subscribe,
    Unsubscribe,
)
from contrada.routing.tables import filter_merger as module
from contrada.routing.tables.covering_index import FilterCoveringIndex
from contrada.routing.tables.filter_merger import (
    ATOM_SIZE,
    MERGED_SIZE_MAX,
    FilterMerger,
    FilterMergerStatistics,
)
from contrada.routing.tables.poset import Node, Poset
from tests.routing import test_router
from tests.routing.network import MESHES, TRANSIENT, TREES, Network
from tests.routing.test_poset import random_filter
from tests.routing.test_router import World, deliveries, withdraw_all

ME: Final = Client("me")
L, M = Neighbour("L"), Neighbour("M")
WAYS: Final = (NextHop(L), NextHop(M), NextHop(M, "home"))

STRATEGIES: Final = (Strategy.SUBSCRIPTIONS, Strategy.ADVERTISEMENTS)


# --- networks -------------------------------------------------------------------------------------


class MergingNetwork(Network):
    """A network whose routers merge."""

    def _new(self, number: int) -> Router:
        return Router(
            self._strategy,
            name=f"{number}" if self._named else "",
            general=self._general,
            merging=True,
        )


class MergingWorld(World):
    """A world of merging routers, otherwise the same."""

    def fresh(self) -> Network:
        network = MergingNetwork(
            self.brokers,
            self.edges,
            self.strategy,
            seed=self.brokers,
            named=self.named,
            general=self.general,
        )
        network.settle(TRANSIENT)
        return network


def mergeable(chance: random.Random) -> Filter:
    """Returns filters that can often be merged: points and spans of the attributes of
    `World.publish`.
    """
    low = chance.randrange(12)
    parts = [chance.choice((f"a = {low}", f"a = {low}", f"a between {low} and {low + 2}"))]
    parts += [f"b = '{chance.choice(('x', 'xx', 'yx'))}'"] if chance.random() < 0.6 else []
    parts += ["c = true"] if chance.random() < 0.2 else []
    return Filter(" and ".join(parts))


KINDS: Final = [
    pytest.param(seed, shape, strategy, id=f"{seed}-{shape}-{strategy.name}")
    for shape in TREES + MESHES
    for strategy in STRATEGIES
    for seed in range(2)
]


@pytest.mark.quick_every(8)
@pytest.mark.parametrize(("seed", "shape", "strategy"), KINDS)
def test_merging_changes_no_delivery(
    seed: int, shape: str, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged filters would match more or less; tables would keep removed ones, or lack some.

    The same messages are sent to a merging network and to another one.
    """
    monkeypatch.setattr(test_router, "random_filter", mergeable)
    if seed % 2:
        monkeypatch.setattr(module, "MERGED_SIZE_MAX", 3)  # Groups that are soon full.
    merging = MergingWorld(7_000 + seed, shape, strategy, covering=True)
    plain = World(7_000 + seed, shape, strategy, covering=True)
    merged = 0
    for _ in range(6):
        for world in (merging, plain):
            for _ in range(world.chance.randint(1, 6)):
                world.change()
                subscribe(world)
                for _ in range(world.chance.randrange(4)):
                    world.network.step()
            world.network.settle()
        merged += sum(each.statistics().merging.merged for each in merging.network.routers)
        assert_same_tables(merging, merging.network, plain.network)
        for _ in range(3):
            given = []
            for world in (merging, plain):
                published = world.publish()
                world.network.settle()
                expected = (
                    Counter()
                    if published is None
                    else deliveries(world.subscriptions, published[0])
                )
                assert world.network.taken() == expected
                given.append(expected)
            assert given[0] == given[1]
    assert merged > 0, "nothing was merged"
    assert_same_tables(merging, merging.network, refill(merging))
    withdraw_all(merging)


def subscribe(world: World) -> None:
    """Subscribes a client to two filters that may be merged."""
    client = f"{world.chance.choice('rs')}"
    broker = world.chance.randrange(world.brokers)
    key = (broker, f"{broker}{client}", f"{client}{world.chance.randrange(1_000_000)}")
    wished = FilterSet([mergeable(world.chance), mergeable(world.chance)])
    if key not in world.subscriptions:
        world.subscriptions[key] = wished
        world.network.say(*key[:2], Subscribe(key[2], wished))


def refill(world: World) -> Network:
    """Returns a fresh network with only the remaining registrations."""
    fresh = world.fresh()
    messages_to_neighbour: list[tuple[int, str, Message]] = [
        *((*key[:2], Subscribe(key[2], filters)) for key, filters in world.subscriptions.items()),
        *((*key[:2], Advertise(key[2], offer)) for key, offer in world.offers.items()),
    ]
    world.chance.shuffle(messages_to_neighbour)
    for each in messages_to_neighbour:
        fresh.say(*each)
    fresh.settle()
    return fresh


def assert_same_tables(world: World, one: Network, other: Network) -> None:
    """Compares filters by link and owner, within the advertisements there."""
    for a, b in one.links:
        here, there = one.routers[a], other.routers[a]
        next_hops = {
            *here._forwarding.next_hops_of(Neighbour(f"{b}")),
            *there._forwarding.next_hops_of(Neighbour(f"{b}")),
        }
        for next_hop in sorted(next_hops):
            filters, again = here.filters_of(next_hop), there.filters_of(next_hop)
            if world.strategy is Strategy.ADVERTISEMENTS and (b, a, True) not in parents(world):
                advertised = other.routers[b].offers_of(Neighbour(f"{a}"))
                filters, again = restrict(filters, advertised), restrict(again, advertised)
            assert filters == again, f"{a} holds other filters of {next_hop}"


def parents(world: World) -> Set[tuple[int, int, bool]]:
    """Returns the links to a parent, the child first: advertisements prune nothing there."""
    return {(child, parent, True) for parent, child, is_parent in world.edges if is_parent}


def restrict(filters: FilterSet, offers: Iterable[Offer]) -> FilterSet:
    """Returns the part of filters within advertisements."""
    names = {name for each in (*filters.filters, *offers) for name in each.sets}
    return FilterSet(
        Filter.of_sets({name: each.set_of(name) & offer.set_of(name) for name in names})
        for each in filters.filters
        for offer in offers
    )


# --- one server -----------------------------------------------------------------------------------


class MergedNeighbours:
    """A poset with merging, and the filters that each neighbour knows at each moment."""

    def __init__(self) -> None:
        self.poset: Poset[Filter] = Poset(FilterCoveringIndex())
        self.merging = FilterMerger()
        self.wanted: dict[Filter, Set[NextHop]] = {}
        self.nodes: dict[Filter, Node[Filter]] = {}
        self.tables: dict[NextHop, dict[str, Filter]] = {next_hop: {} for next_hop in WAYS}
        self.messages = 0

    def want(self, wanted: dict[Filter, Set[NextHop]]) -> None:
        """Sets the next hops of filters; without any they are removed. No neighbour may miss
        one.
        """
        nodes: dict[Node[Filter], Set[NextHop]] = {}
        before = dict(self.wanted)
        for product, next_hops in wanted.items():
            node = self.nodes.get(product) or self.poset.add_subscriber(product, ME, "1")
            self.nodes[product] = node
            nodes[node] = next_hops
            self.wanted[product] = next_hops
            if not next_hops:
                self.poset.remove_subscriber(node, ME, "1")
                del self.wanted[product], self.nodes[product]
        staying = {
            p: next_hops & before.get(p, frozenset()) for p, next_hops in self.wanted.items()
        }
        for each in self.merging.update(self.poset.update(nodes)):
            self.messages += 1
            table = self.tables[each.next_hop]
            assert (each.identity in table) != each.begins, "told twice"
            if each.begins:
                table[each.identity] = each.product
            else:
                assert table.pop(each.identity) == each.product
            known = FilterSet(table.values())
            assert known.covers(
                FilterSet(p for p, next_hops in staying.items() if each.next_hop in next_hops)
            )
        self.poset.validate()
        self.merging.validate()

    def sent(self, next_hop: NextHop = WAYS[0]) -> list[Filter]:
        """Returns the filters of a neighbour."""
        return list(self.tables[next_hop].values())


@pytest.mark.quick_every(8)
@pytest.mark.parametrize("seed", range(30))
def test_a_neighbour_knows_exactly_the_wanted_filters(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During changes a neighbour would miss filters, or hold unneeded ones."""
    monkeypatch.setattr(module, "MERGED_SIZE_MAX", (2, 4, MERGED_SIZE_MAX)[seed % 3])
    chance = random.Random(seed)
    neighbours = MergedNeighbours()
    for _ in range(50):
        batch: dict[Filter, Set[NextHop]] = {}
        for _ in range(chance.choice((1, 1, 1, 4))):
            made = mergeable if chance.random() < 0.8 else random_filter
            withdrawals = neighbours.wanted and chance.random() < 0.45
            product = chance.choice(list(neighbours.wanted)) if withdrawals else made(chance)
            batch[product] = frozenset(
                ()
                if withdrawals and chance.random() < 0.8
                else chance.sample(WAYS, chance.randint(1, 3))
            )
        neighbours.want(batch)
        for next_hop in WAYS:
            wanted = FilterSet(
                each for each, next_hops in neighbours.wanted.items() if next_hop in next_hops
            )
            assert FilterSet(neighbours.sent(next_hop)) == wanted
    neighbours.want(dict.fromkeys(neighbours.wanted, frozenset()))
    assert neighbours.tables == {next_hop: {} for next_hop in WAYS}
    assert neighbours.merging.statistics() == FilterMergerStatistics()


def filters(*texts: str) -> dict[Filter, Set[NextHop]]:
    """Returns filters for one next hop."""
    return {Filter(text): frozenset(WAYS[:1]) for text in texts}


def withdrawals(*texts: str) -> dict[Filter, Set[NextHop]]:
    """Returns filters without next hops."""
    return {Filter(text): frozenset() for text in texts}


def test_roots_that_differ_in_one_attribute_are_joined() -> None:
    """Neighbours would hold one filter per symbol, or one that matches too much."""
    neighbours = MergedNeighbours()
    neighbours.want(filters("s = 'A' and p > 1", "s = 'B' and p > 1", "s = 'C' and p > 2", "q > 1"))
    assert neighbours.sent() == [
        Filter("s in ('A', 'B') and p > 1"),
        Filter("s = 'C' and p > 2"),
        Filter("q > 1"),
    ]
    assert neighbours.messages == 3, "what comes together is told together"
    assert neighbours.merging.statistics() == FilterMergerStatistics(roots=4, sent=3, merged=1)


def test_a_group_shrinks_as_its_members_go() -> None:
    """A neighbour would continue to send unneeded notifications."""
    neighbours = MergedNeighbours()
    neighbours.want(filters("s = 'A'", "s = 'B'", "s = 'C'"))
    neighbours.want(withdrawals("s = 'B'"))
    assert neighbours.sent() == [Filter("s in ('A', 'C')")]
    neighbours.want(withdrawals("s = 'A'"))
    assert neighbours.sent() == [Filter("s = 'C'")]
    neighbours.want(withdrawals("s = 'C'"))
    assert neighbours.sent() == []


def test_a_redundant_member_is_not_sent() -> None:
    """Neighbours would receive redundant filters."""
    neighbours = MergedNeighbours()
    neighbours.want(filters("a between 1 and 4", "a between 3 and 8"))
    assert neighbours.sent() == [Filter("a between 1 and 8")]
    neighbours.messages = 0
    neighbours.want(filters("a between 2 and 6"))
    neighbours.want(withdrawals("a between 2 and 6"))
    assert neighbours.messages == 0


def test_a_full_union_drops_its_attribute() -> None:
    """Two halves of a line would not become the filter without the attribute."""
    neighbours = MergedNeighbours()
    neighbours.want(filters("a any and b = 1", "a absent and b = 1"))
    assert neighbours.sent() == [Filter("b = 1")]


def test_a_root_is_in_one_group_the_largest() -> None:
    """A filter would be sent twice, or make a second group where the first has room."""
    neighbours = MergedNeighbours()
    neighbours.want(filters("s = 'A' and p = 1", "s = 'B' and p = 1", "s = 'C' and p = 2"))
    neighbours.want(filters("s = 'C' and p = 1"))
    assert sorted(map(str, neighbours.sent())) == sorted(
        map(str, (Filter("s in ('A', 'B', 'C') and p = 1"), Filter("s = 'C' and p = 2")))
    )


@pytest.mark.slow
def test_groups_are_bounded_and_join_again_when_they_shrink() -> None:
    """A filter would grow without limit; or many small groups would remain after removals."""
    neighbours = MergedNeighbours()
    texts = [f"a = {2 * number}" for number in range(3 * MERGED_SIZE_MAX)]
    for text in texts[:-10]:
        neighbours.want(filters(text))
    neighbours.want(filters(*texts[-10:]))
    assert [len(each.sets["a"].line) for each in neighbours.sent()] == [2 * MERGED_SIZE_MAX] * 3
    for number, text in enumerate(texts):
        if number % 6:
            neighbours.want(withdrawals(text))
    assert len(neighbours.sent()) == 1


def test_groups_that_would_be_too_large_together_stay_apart() -> None:
    """Two shrunken groups would join and exceed the limit."""
    neighbours = MergedNeighbours()
    texts = [f"a = {2 * number}" for number in range(2 * MERGED_SIZE_MAX)]
    neighbours.want(filters(*texts))
    assert len(neighbours.sent()) == 2
    left = MERGED_SIZE_MAX // 2 + 1
    neighbours.want(withdrawals(*texts[left:MERGED_SIZE_MAX], *texts[MERGED_SIZE_MAX + left :]))
    assert len(neighbours.sent()) == 2
    neighbours.want(withdrawals(texts[0]))
    assert len(neighbours.sent()) == 2
    neighbours.want(filters("a = -1"))
    assert sorted(len(each.sets["a"].line) // 2 for each in neighbours.sent()) == [
        left - 1,
        left + 1,
    ]
    neighbours.want(withdrawals("a = -1", texts[1]))
    assert len(neighbours.sent()) == 1


def test_operators_on_text_count_for_more() -> None:
    """Decisions about merged filters would cost more than merging saves."""
    neighbours = MergedNeighbours()
    for number in range(2 * MERGED_SIZE_MAX // ATOM_SIZE):
        neighbours.want(filters(f"a suffix '.{number}'"))
    assert len(neighbours.sent()) == 2


@pytest.mark.parametrize(("count", "sent"), [(16, 1), (17, 2)])
def test_texts_beside_operators_count_singly(count: int, sent: int) -> None:
    """Merged filters would be larger than their limit, or stay apart for nothing."""
    neighbours = MergedNeighbours()
    texts = ", ".join(f"'{number}'" for number in range(count))
    neighbours.want(filters(*(f"a (suffix '{end}' | in ({texts}))" for end in ".,")))
    assert len(neighbours.sent()) == sent


def test_unknown_operators_are_not_merged() -> None:
    """An unknown operator would exclude known ones from covering."""
    neighbours = MergedNeighbours()
    strange = Filter.of_sets({"a": ValueSet((), Literal(Atom("nobody's", b"x"), positive=True))})
    neighbours.want({strange: frozenset(WAYS[:1]), **filters("a = 1", "a = 2")})
    assert len(neighbours.sent()) == 2


def test_new_filters_precede_withdrawals() -> None:
    """A neighbour would miss an existing subscription for a moment."""
    router = Router(merging=True)
    router.handle(LinkUp(L, Role.PEER), 0)
    (first,) = messages_to_neighbour(router, ME, Subscribe("1", Filter("a = 1")))
    new, old = messages_to_neighbour(router, ME, Subscribe("2", Filter("a = 3")))
    assert (new.filters, old) == (Filter("a in (1, 3)"), Unsubscribe(first.identity))
    less, more = messages_to_neighbour(router, ME, Unsubscribe("1"))
    assert (less.filters, more) == (Filter("a = 3"), Unsubscribe(new.identity))
    assert router.statistics().merging == FilterMergerStatistics(roots=1, sent=1, merged=0)


def messages_to_neighbour(router: Router, client: Client, message: Message) -> list[Any]:
    """Returns a router's messages to its neighbour L about a message."""
    effects = router.handle(Received(client, message), 0)
    router.validate()
    return [each.message for each in effects if isinstance(each, Send) and each.to == L]


def test_several_values_match_a_merged_filter_as_its_members() -> None:
    """A notification with two values of an attribute would be sent in vain, or be missed."""
    network = MergingNetwork(2, [(0, 1, False)])
    network.say(1, "ann", Subscribe("1", Filter("a = 1 and b = 1")))
    network.say(1, "ann", Subscribe("2", Filter("a = 2 and b = 1")))
    network.settle()
    assert len(network.routers[0].filters_of(Neighbour("1"))) == 1
    for values, expected in (([1, 5], 1), ([1, 2], 2), ([5, 6], 0)):
        network.say(0, "bob", Publish((Notification({"a": values, "b": 1}),)))
        network.settle()
        assert network.taken().total() == expected


def test_advertisements_are_not_merged() -> None:
    """One that was merged would cover a notification that none of its members covers."""
    one, two = Advertisement("a = 1"), Advertisement("a = 2")
    router = Router(Strategy.ADVERTISEMENTS, merging=True)
    router.handle(LinkUp(L, Role.PEER), 0)
    (first,) = messages_to_neighbour(router, ME, Advertise("1", one))
    (second,) = messages_to_neighbour(router, ME, Advertise("2", two))
    assert (first.offer, second.offer) == (one, two)
    both = Notification({"a": [1, 2]})
    assert product_covers(Advertisement("a in (1, 2)"), both)
    assert not product_covers(one, both)
    assert not product_covers(two, both)
