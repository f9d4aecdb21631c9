"""Networks of routers deliver matching notifications once, after all changes."""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Final

import pytest

from contrada.model import Advertisement, Envelope, Filter, FilterSet, Notification
from contrada.model.algebra.product import product_covers
from contrada.routing.router import Strategy
from contrada.routing.router_messages import (
    Advertise,
    Client,
    ClientGone,
    Neighbour,
    NextHop,
    Offer,
    Publish,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from tests.routing.network import (
    LOOPED,
    MESHES,
    SHARED,
    TRANSIENT,
    TREES,
    Delivery,
    Network,
    edges_of,
)
from tests.routing.test_poset import random_filter

SHAPES: Final = (*TREES, *MESHES, *SHARED)

Key = tuple[int, str, str]
"""A broker, a client of it, and an identity."""


def random_offer(chance: random.Random) -> Offer:
    """Returns advertisements that often cover one another and leave values out."""
    if chance.random() < 0.1:
        return Filter({})
    low = chance.randrange(8)
    parts = [f"a between {low} and {low + chance.randrange(6)}"]
    parts += [chance.choice(("b any", "b prefix 'x'"))] if chance.random() < 0.7 else []
    parts += ["c any"] if chance.random() < 0.4 else []
    return Advertisement(" and ".join(parts))


class World:
    """A network with clients, and their registrations."""

    def __init__(self, seed: int, shape: str, strategy: Strategy, *, covering: bool) -> None:
        self.chance = random.Random(seed)
        self.general = shape in ("looped mesh", *MESHES, *SHARED)
        self.trees = 1 + seed % 2 if shape in SHARED else 0
        self.brokers = self.chance.randint(*((2, 7) if shape in TREES else (3, 9)))
        self.edges = edges_of(self.chance, self.brokers, shape)
        self.named = self.general or shape in LOOPED or self.chance.random() < 0.5
        self.published_at = 0
        self.strategy, self.covering = strategy, covering
        self.network = self.fresh()
        self.subscriptions: dict[Key, FilterSet] = {}
        self.offers: dict[Key, Offer] = {}
        self._numbered = 0

    def fresh(self) -> Network:
        """Returns a network of this world without registrations."""
        network = Network(
            self.brokers,
            self.edges,
            self.strategy,
            covering=self.covering,
            seed=self.brokers,
            named=self.named,
            general=self.general,
            trees=self.trees,
        )
        network.settle(TRANSIENT)
        return network

    def _new_key(self) -> Key:
        self._numbered += 1
        broker = self.chance.randrange(self.brokers)
        return broker, f"{broker}{self.chance.choice('pq')}", f"{self._numbered}"

    def change(self) -> None:
        """A client subscribes or advertises, withdraws, or disconnects."""
        kind = self.chance.random()
        if kind < 0.3 or not (self.subscriptions and self.offers):
            key = self._new_key()
            count = self.chance.choice((1, 1, 2))
            self.subscriptions[key] = FilterSet([random_filter(self.chance) for _ in range(count)])
            self.network.say(*key[:2], Subscribe(key[2], self.subscriptions[key]))
            key = self._new_key()
            self.offers[key] = random_offer(self.chance)
            self.network.say(*key[:2], Advertise(key[2], self.offers[key]))
        elif kind < 0.65:
            key = self.chance.choice(list(self.subscriptions))
            del self.subscriptions[key]
            self.network.say(*key[:2], Unsubscribe(key[2]))
        elif kind < 0.95:
            key = self.chance.choice(list(self.offers))
            del self.offers[key]
            self.network.say(*key[:2], Unadvertise(key[2]))
        else:
            broker, client, _ = self.chance.choice(list(self.subscriptions))
            self.network.tell(broker, ClientGone(Client(client)))
            for table in (self.subscriptions, self.offers):
                for key in [key for key in table if key[1] == client]:
                    del table[key]

    def publish(self) -> tuple[Notification, list[Key]] | None:
        """Publishes, within its client's advertisements if needed. Returns the keys of the
        subscriptions.
        """
        self._numbered += 1
        values: dict[str, object] = {"a": self.chance.randrange(12)}
        values |= {"b": self.chance.choice(("x", "xx", "yx"))} if self.chance.random() < 0.7 else {}
        values |= {"c": True} if self.chance.random() < 0.3 else {}
        notification = Notification(values, envelope=Envelope(id=f"n{self._numbered}"))
        key = self._new_key()
        able: list[Key] = []
        if self.strategy is Strategy.ADVERTISEMENTS:
            able = [k for k, offer in self.offers.items() if product_covers(offer, notification)]
            if not able:
                return None
            key = self.chance.choice(able)
            able = [k for k in able if k[1] == key[1]]
        self.published_at = key[0]
        self.network.say(key[0], key[1], Publish((notification,)))
        return notification, able

    def tables(self, network: Network) -> dict[tuple[int, NextHop], tuple[FilterSet, list[Offer]]]:
        """Returns the tables of each router by next hop."""
        return {
            (a, next_hop): (
                network.routers[a].filters_of(next_hop),
                network.routers[a].offers_of(next_hop),
            )
            for a, b in network.links
            for next_hop in sorted(network.routers[a]._forwarding.next_hops_of(Neighbour(f"{b}")))
        }


def deliveries(
    subscriptions: Mapping[Key, FilterSet], notification: Notification
) -> Counter[Delivery]:
    """Returns the required deliveries of these subscriptions."""
    return Counter(
        (client, identity, notification.envelope.id)
        for (_, client, identity), filters in subscriptions.items()
        if filters.matches(notification)
    )


WORLDS: Final = [
    pytest.param(seed, shape, strategy, covering, id=f"{seed}-{shape}-{strategy.name}-{covering}")
    for shape in SHAPES
    for strategy in Strategy
    for covering in ((True,) if strategy is Strategy.FLOODING else (True, False))
    for seed in range(4 if shape in TREES and strategy is not Strategy.FLOODING else 2)
]


@pytest.mark.quick_every(12)
@pytest.mark.parametrize(("seed", "shape", "strategy", "covering"), WORLDS)
def test_matching_notifications_are_delivered_once(
    seed: int, shape: str, strategy: Strategy, covering: bool
) -> None:
    """A notification would be lost, doubled, or delivered in vain."""
    world = World(seed, shape, strategy, covering=covering)
    for _ in range(12):
        for _ in range(world.chance.randint(1, 4)):
            world.change()
            for _ in range(world.chance.randrange(6)):
                world.network.step()
        world.network.settle()
        for _ in range(4):
            published = world.publish()
            world.network.settle()
            expected = (
                Counter() if published is None else deliveries(world.subscriptions, published[0])
            )
            assert world.network.taken() == expected
    same_as_fresh(world)
    withdraw_all(world)


def same_as_fresh(world: World) -> None:
    """Compares the tables with those of a network with only the remaining registrations."""
    fresh = world.fresh()
    said: list[tuple[Key, Subscribe | Advertise]] = [
        *((key, Subscribe(key[2], filters)) for key, filters in world.subscriptions.items()),
        *((key, Advertise(key[2], offer)) for key, offer in world.offers.items()),
    ]
    world.chance.shuffle(said)
    for (broker, client, _), message in said:
        fresh.say(broker, client, message)
    fresh.settle()
    tables, others = world.tables(world.network), world.tables(fresh)
    assert tables.keys() == others.keys()
    for link, (filters, offers) in tables.items():
        assert filters == others[link][0], f"link {link}"
        assert all(any(product_covers(o, each) for o in others[link][1]) for each in offers)
        assert all(any(product_covers(o, each) for o in offers) for each in others[link][1])


def withdraw_all(world: World) -> None:
    """Withdraws everything; all tables must be empty."""
    for broker, client, identity in list(world.subscriptions):
        world.network.say(broker, client, Unsubscribe(identity))
    for broker, client, identity in list(world.offers):
        world.network.say(broker, client, Unadvertise(identity))
    world.network.settle()
    fresh = world.fresh()
    fresh.settle()
    untouched = [router.statistics() for router in fresh.routers]
    for router, before in zip(world.network.routers, untouched, strict=True):
        held = router.statistics()
        assert (held.subscriptions, held.advertisements) == (
            before.subscriptions,
            before.advertisements,
        )
        assert (held.filters, held.offers) == (before.filters, before.offers)


@pytest.mark.quick_every(12)
@pytest.mark.parametrize(("seed", "shape", "strategy", "covering"), WORLDS)
def test_nothing_is_lost_while_others_change(
    seed: int, shape: str, strategy: Strategy, covering: bool
) -> None:
    """A lasting subscription would miss publications while others are withdrawn."""
    world = World(1_000 + seed, shape, strategy, covering=covering)
    for _ in range(12):
        world.network.settle()
        settled, settled_offers = dict(world.subscriptions), set(world.offers)
        ever = dict(settled)
        published: list[tuple[Notification, bool]] = []
        for _ in range(world.chance.randint(2, 10)):
            world.change()
            ever |= world.subscriptions
            for _ in range(world.chance.randrange(4)):
                world.network.step()
            if (sent := world.publish()) is not None:
                is_settled = not settled_offers.isdisjoint(sent[1])
                published.append((sent[0], strategy is Strategy.SUBSCRIPTIONS or is_settled))
        world.network.settle()
        given = world.network.taken()
        staying = {key: each for key, each in settled.items() if key in world.subscriptions}
        must = [deliveries(staying, each) for each, is_settled in published if is_settled]
        may = [deliveries(ever, each) for each, _ in published]
        assert sum(must, Counter()) <= given <= sum(may, Counter())


@pytest.mark.quick_every(12)
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize("seed", range(4))
def test_links_fail_and_return(seed: int, shape: str, strategy: Strategy) -> None:
    """After a failure a part of the network would stay cut off, or keep unneeded tables."""
    world = World(2_000 + seed, shape, strategy, covering=True)
    network = world.network
    for _ in range(8):
        for _ in range(4):
            world.change()
            network.step()
        edge = world.chance.choice(world.edges)
        network.cut(*edge[:2])
        network.settle()
        for _ in range(3):
            world.change()
        network.settle()
        network.link(*edge)
        world.change()
        network.settle()
        for _ in range(4):
            published = world.publish()
            network.settle()
            expected = (
                Counter() if published is None else deliveries(world.subscriptions, published[0])
            )
            assert network.taken() == expected
    same_as_fresh(world)
    withdraw_all(world)
