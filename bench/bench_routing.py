"""Routing: the poset, one notification at a full router, and setting up a large network.

Filters have three constraints: a topic (zipf), an interval of levels and a lowest price. The
network is a random tree of 200 brokers with links that only delay; 500 of its 20,000 subscriptions
cover all others, and a covered one is still forwarded towards its coverer. A sample of
setting up is a whole network, from its first link to its last message; the kernels of the indexes
are loaded before it. A mesh has sites at random, and half as many links more than a tree. Long
measurements use time of the processor, so that other processes do not count.
"""

import random
from functools import cache
from time import process_time
from typing import Final

from bench.harness import Measurement, figure
from contrada.lab.simulation.script_steps import Kind, NetworkShape
from contrada.lab.simulation.simulated_network import SimulatedNetwork
from contrada.lab.simulation.sites import sites_of
from contrada.model import Envelope, Filter, Notification
from contrada.model.algebra.sets import between, eq, ge
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    Client,
    LinkUp,
    Neighbour,
    NextHop,
    Publish,
    Received,
    Role,
    Subscribe,
)
from contrada.routing.tables.covering_index import FilterCoveringIndex
from contrada.routing.tables.poset import Node, Poset

FILTERS: Final = 100_000
TOPICS: Final = 10_000
PER_SAMPLE: Final = 5_000
LINKS: Final = 8
NOTIFICATIONS: Final = 2_000
BROKERS: Final = 200
SUBSCRIPTIONS: Final = 20_000
MAXIMAL: Final = 500
DELAY_US: Final = 1_000
MESH: Final = 80
MESH_SUBSCRIPTIONS: Final = 200
WAYS: Final = frozenset({NextHop(Neighbour("next"))})


def filters(count: int, seed: int = 1) -> list[Filter]:
    """Filters of three constraints that often cover one another."""
    chance = random.Random(seed)
    topics = chance.choices(range(TOPICS), [1 / rank for rank in range(1, TOPICS + 1)], k=count)
    made = []
    for topic in topics:
        low = chance.randrange(100)
        levels = between(low, low + chance.randrange(1, 30))
        made.append(Filter({"topic": eq(topic), "level": levels, "price": ge(chance.random())}))
    return made


def notifications(count: int) -> list[Notification]:
    """A notification that such filters match."""
    chance = random.Random(2)
    topics = chance.choices(range(TOPICS), [1 / rank for rank in range(1, TOPICS + 1)], k=count)
    return [
        Notification(
            {"topic": topic, "level": chance.randrange(130), "price": chance.random()},
            envelope=Envelope(id=f"n{number}"),
        )
        for number, topic in enumerate(topics)
    ]


def _filled() -> tuple[Poset[Filter], dict[Filter, Node[Filter]], list[float]]:
    """A poset of all filters, and the filters added per second, per sample."""
    poset: Poset[Filter] = Poset(FilterCoveringIndex())
    nodes: dict[Filter, Node[Filter]] = {}
    rates = []
    every = filters(FILTERS)
    for start in range(0, FILTERS, PER_SAMPLE):
        some = every[start : start + PER_SAMPLE]
        begun = process_time()
        for number, each in enumerate(some, start):
            node = nodes[each] = poset.add_subscriber(each, Client("c"), f"{number}")
            poset.update({node: WAYS})
        rates.append(len(some) / (process_time() - begun))
    return poset, nodes, rates


@figure(
    name="routing/poset-insert",
    unit="1/s",
    workload="100,000 zipf filters of 3 constraints into a poset, one by one",
    at_least=10_000,
)
def poset_insert() -> Measurement:
    return Measurement(_filled()[2])


@figure(
    name="routing/poset-remove",
    unit="1/s",
    workload="the same filters out again, in random order",
    at_least=5_000,
)
def poset_remove() -> Measurement:
    poset, nodes, _ = _filled()
    waiting = list(nodes.values())
    random.Random(3).shuffle(waiting)
    rates = []
    for start in range(0, len(waiting), PER_SAMPLE):
        some = waiting[start : start + PER_SAMPLE]
        begun = process_time()
        for node in some:
            for identity in list(node.subscribers[Client("c")]):
                poset.remove_subscriber(node, Client("c"), identity)
            poset.update({node: frozenset()})
        rates.append(len(some) / (process_time() - begun))
    assert not len(poset), "all filters must be gone"
    return Measurement(rates)


@figure(
    name="routing/notification",
    unit="us",
    workload="one notification at a router with 100,000 remote filters on 8 links",
    at_most=60,
)
def notification() -> Measurement:
    router = Router(Strategy.SUBSCRIPTIONS, name="here")
    links = [Neighbour(f"n{number}") for number in range(LINKS)]
    for link in links:
        router.handle(LinkUp(link, Role.PEER), 0)
    for number, each in enumerate(filters(FILTERS)):
        router.handle(Received(links[number % LINKS], Subscribe(f"{number}", each)), 0)
    while router.maintain(10_000):
        pass
    samples = []
    for published in notifications(NOTIFICATIONS):
        event = Received(Client("c"), Publish((published,)))
        begun = process_time()
        router.handle(event, 0)
        samples.append(process_time() - begun)
    return Measurement(samples)


def _set_up(order: str) -> Measurement:
    """Seconds from the first link until nothing is on its way."""
    chance = random.Random(4)
    begun = process_time()
    network = SimulatedNetwork(Kind("acyclic", Strategy.SUBSCRIPTIONS), BROKERS)
    for broker in range(1, BROKERS):
        above = chance.randrange(broker)
        network.connect(above, broker, is_parent=False, delay_us=DELAY_US)
    network.schedule.run()
    wanted = _covered(chance)
    if order == "random":
        chance.shuffle(wanted)
    for number, each in enumerate(wanted):
        client = f"c{number}"
        network.move(client, number % BROKERS)
        network.ask(client, Subscribe("it", each))
        if order == "random" or number == MAXIMAL - 1:
            network.schedule.run()
    network.schedule.run()
    seconds = process_time() - begun
    told = sum(count for (_, kind), count in network.traffic.items() if kind == "Subscribe")
    assert told >= MAXIMAL * (BROKERS - 1), "what is maximal must have come to every broker"
    return Measurement([seconds])


def _covered(chance: random.Random) -> list[Filter]:
    """The maximal filters, then those that they cover."""
    made = [Filter({"topic": eq(topic)}) for topic in range(MAXIMAL)]
    for _ in range(SUBSCRIPTIONS - MAXIMAL):
        low = chance.randrange(100)
        levels = between(low, low + chance.randrange(1, 30))
        topic = eq(chance.randrange(MAXIMAL))
        made.append(Filter({"topic": topic, "level": levels, "price": ge(chance.random())}))
    return made


@figure(
    name="routing/set-up",
    unit="s",
    workload="200 brokers, 20,000 subscriptions, the 500 maximal ones first",
    at_most=60,
)
def set_up() -> Measurement:
    return _set_up("maximal first")


@figure(name="routing/set-up-random", unit="s", workload="the same subscriptions in random order")
def set_up_random() -> Measurement:
    return _set_up("random")


def _linked(shape: NetworkShape, brokers: int, trees: int) -> tuple[SimulatedNetwork, float]:
    """A network that has begun, with all its links, and the seconds from the first of them."""
    sites = sites_of("random", brokers, seed=1)
    begun = process_time()
    network = SimulatedNetwork(Kind(shape, Strategy.SUBSCRIPTIONS, trees=trees), brokers)
    for a, b, is_parent in sites.links(shape):
        network.connect(a, b, is_parent=is_parent, delay_us=DELAY_US)
    network.schedule.run()
    seconds = process_time() - begun
    known = {each.statistics().servers for each in network.routers if each is not None}
    assert known == {brokers}, "every server knows all"
    return network, seconds


@figure(
    name="routing/mesh-start",
    unit="s",
    workload="200 brokers with 299 links, one shared tree, until all know all links",
    at_most=15,
)
def mesh_start() -> Measurement:
    return Measurement([_linked("general", BROKERS, 1)[1] for _ in range(3)])


@figure(
    name="routing/mesh-start-large",
    unit="s",
    workload="the same with 1,000 brokers and 1,499 links",
    at_most=120,
)
def mesh_start_large() -> Measurement:
    return Measurement([_linked("general", 1_000, 1)[1]])


@cache  # A function of its arguments: counts, not times.
def _costs(shape: NetworkShape, trees: int) -> tuple[float, float]:
    """Messages for a subscription, and entries that a server holds."""
    network, _ = _linked(shape, MESH, trees)
    chance = random.Random(5)
    pairs = [(topic, level) for topic in range(20) for level in range(100)]
    for number, (topic, level) in enumerate(chance.sample(pairs, MESH_SUBSCRIPTIONS)):
        network.move(f"c{number}", chance.randrange(MESH))
        wanted = Filter({"topic": eq(topic), "level": ge(level)})
        network.ask(f"c{number}", Subscribe("it", wanted))
        network.schedule.run()
    kinds = ("Subscribe", "Unsubscribe")
    messages = sum(count for (_, kind), count in network.traffic.items() if kind in kinds)
    entries = [each.statistics().subscriptions.entries for each in network.routers if each]
    return messages / MESH_SUBSCRIPTIONS, sum(entries) / len(entries)


def _against_acyclic(which: int, trees: int) -> Measurement:
    return Measurement([_costs("general", trees)[which]], "acyclic", [_costs("acyclic", 0)[which]])


@figure(
    name="routing/mesh-messages",
    unit="messages",
    workload="80 brokers with 119 links, one shared tree: of each of 200 subscriptions",
)
def mesh_messages() -> Measurement:
    return _against_acyclic(0, 1)


@figure(name="routing/mesh-entries", unit="entries", workload="the same: held by a server")
def mesh_entries() -> Measurement:
    return _against_acyclic(1, 1)


@figure(
    name="routing/mesh-messages-shortest-paths",
    unit="messages",
    workload="the same where each server has a tree of its own",
)
def mesh_messages_shortest() -> Measurement:
    return _against_acyclic(0, 0)
