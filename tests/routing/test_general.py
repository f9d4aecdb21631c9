"""Networks with cycles: no losses and no duplicates, whatever links and servers do."""

from collections import Counter, deque
from typing import Final

import pytest

from contrada.model import Advertisement, Envelope, Filter, Notification
from contrada.model.algebra.sets import between
from contrada.routing.interest_forwarder import EVERYTHING
from contrada.routing.links.shortest_paths import ConfirmedLink, subtree_next_hops, weights_of
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    AckLinks,
    Advertise,
    AnnounceLinks,
    Client,
    Deliver,
    Effect,
    Event,
    LinkState,
    LinkUp,
    Neighbour,
    Publish,
    Reason,
    Received,
    Refused,
    Role,
    Send,
    Subscribe,
    Unsubscribe,
)
from tests.routing.network import LOOPED, MESHES, SHARED, TRANSIENT, Edges, Network
from tests.routing.test_router import World, deliveries, same_as_fresh, withdraw_all

FORWARDING: Final = (Strategy.SUBSCRIPTIONS, Strategy.ADVERTISEMENTS)


class FailingWorld(World):
    """A world with failing links and servers."""

    def __init__(self, seed: int, shape: str, strategy: Strategy, *, covering: bool = True) -> None:
        super().__init__(seed, shape, strategy, covering=covering)
        self.all_edges = list(self.edges)
        self.up = set(range(self.brokers))

    def fail(self) -> None:
        """A link or a server fails or is restored."""
        kind = self.chance.random()
        down = [
            each for each in self.all_edges if each not in self.edges and self.up >= {*each[:2]}
        ]
        if kind < 0.4 and self.edges:
            self.cut(self.chance.choice(self.edges))
        elif kind < 0.7 and down:
            self.join(self.chance.choice(down))
        elif kind < 0.85 and self.up:
            self.crash(self.chance.choice(sorted(self.up)))
        elif len(self.up) < self.brokers:
            self.up.add(self.chance.choice(sorted(set(range(self.brokers)) - self.up)))

    def cut(self, edge: tuple[int, int, bool]) -> None:
        """Takes a link down."""
        self.edges.remove(edge)
        self.network.cut(*edge[:2])

    def join(self, edge: tuple[int, int, bool]) -> None:
        """Brings a link up."""
        self.edges.append(edge)
        self.network.link(*edge)

    def crash(self, broker: int) -> None:
        """Stops a server with its clients."""
        self.up.discard(broker)
        self.edges = [each for each in self.edges if broker not in each[:2]]
        self.network.crash(broker)
        for table in (self.subscriptions, self.offers):
            for key in [key for key in table if key[0] == broker]:
                del table[key]

    def repair(self) -> None:
        """Restores all initial links and servers."""
        self.up = set(range(self.brokers))
        for edge in self.all_edges:
            if edge not in self.edges:
                self.join(edge)

    def joined(self, broker: int) -> set[int]:
        """Returns the reachable servers of one."""
        found, waiting = {broker}, [broker]
        while waiting:
            here = waiting.pop()
            for a, b, _ in self.edges:
                if here in (a, b) and not {a, b} <= found:
                    waiting += {a, b} - found
                    found |= {a, b}
        return found

    def delivers(self, times: int) -> None:
        """Each publication is delivered once to all reachable subscribers, in a settled network."""
        for _ in range(times):
            published = self.publish()
            self.network.settle()
            if published is None:
                continue
            reached = self.joined(self.published_at)
            wishes = {key: each for key, each in self.subscriptions.items() if key[0] in reached}
            assert self.network.taken() == deliveries(wishes, published[0])


@pytest.mark.quick_every(15)
@pytest.mark.parametrize("covering", [True, False])
@pytest.mark.parametrize("strategy", FORWARDING)
@pytest.mark.parametrize("shape", [*MESHES, *LOOPED, *SHARED])
@pytest.mark.parametrize("seed", range(2))
def test_links_and_servers_change(
    seed: int, shape: str, strategy: Strategy, covering: bool
) -> None:
    """A part of the network would stay cut off, get duplicates, or keep unneeded tables."""
    world = FailingWorld(seed, shape, strategy, covering=covering)
    for _ in range(10):
        for _ in range(world.chance.randint(1, 3)):
            world.fail()
            world.change()
            for _ in range(world.chance.randrange(20)):
                world.network.step()
            world.publish()
        world.network.settle(TRANSIENT)
        assert all(count == 1 for count in world.network.taken().values())
        world.delivers(3)
    same_as_fresh(world)
    world.repair()
    world.network.settle(TRANSIENT)
    world.delivers(3)
    same_as_fresh(world)
    withdraw_all(world)


@pytest.mark.quick_every(15)
@pytest.mark.parametrize("strategy", FORWARDING)
@pytest.mark.parametrize("shape", [*MESHES, *LOOPED, *SHARED])
@pytest.mark.parametrize("seed", range(2))
def test_any_single_failure_loses_nothing_afterwards(
    seed: int, shape: str, strategy: Strategy
) -> None:
    """A redundant link or server would not help after a failure."""
    world = FailingWorld(3_000 + seed, shape, strategy)
    for _ in range(12):
        world.change()
    world.network.settle(TRANSIENT)
    for edge in world.all_edges:
        world.cut(edge)
        world.network.settle(TRANSIENT)
        world.network.taken()
        world.delivers(2)
        world.join(edge)
        world.network.settle(TRANSIENT)
        world.delivers(1)
    for broker in range(world.brokers):
        world.crash(broker)
        world.change()
        world.network.settle(TRANSIENT)
        world.network.taken()
        world.delivers(2)
        world.repair()
        world.network.settle(TRANSIENT)
        world.delivers(1)
    same_as_fresh(world)


def diameter(edges: Edges, servers: set[int]) -> int:
    """Returns the links of the longest of all shortest paths between these servers."""
    longest = 0
    for start in servers:
        steps, waiting = {start: 0}, deque([start])
        while waiting:
            here = waiting.popleft()
            for a, b, _ in edges:
                there = b if here == a else a
                if here in (a, b) and there not in steps:
                    steps[there] = steps[here] + 1
                    waiting.append(there)
        longest = max(longest, *steps.values())
    return longest


@pytest.mark.quick_first
@pytest.mark.parametrize("strategy", FORWARDING)
@pytest.mark.parametrize("seed", range(6))
def test_convergence_is_bounded(seed: int, strategy: Strategy) -> None:
    """The end of losses after a failure would be unknown."""
    world = FailingWorld(4_000 + seed, "general", strategy)
    trees = 1 if strategy is Strategy.SUBSCRIPTIONS else 2
    for _ in range(15):
        world.change()
    world.network.settle(TRANSIENT)

    def rounds() -> int:
        count = 0
        while world.network.round():
            count += 1
        return count - 1  # The last only acknowledges the others.

    for edge in world.all_edges:
        world.cut(edge)
        assert rounds() <= (1 + trees) * diameter(world.edges, world.up)
        world.join(edge)
        assert rounds() <= (1 + trees) * diameter(world.edges, world.up) + 2
    for broker in range(world.brokers):
        world.crash(broker)
        assert rounds() <= (1 + trees) * diameter(world.edges, world.up)
        world.repair()
        assert rounds() <= (1 + trees) * diameter(world.edges, world.up) + 2


WIDE: Final = Filter("a > 0")
ANN, BOB = Client("ann"), Client("bob")
ONE: Final = Notification({"a": 1}, envelope=Envelope(id="one", publisher="p"))


def ring(brokers: int, *, general: bool, strategy: Strategy = Strategy.SUBSCRIPTIONS) -> Network:
    """Peers in a ring, of which each knows all links."""
    edges = [(each, (each + 1) % brokers, False) for each in range(brokers)]
    network = Network(brokers, edges, strategy, named=True, general=general)
    network.settle(TRANSIENT)
    return network


def test_a_loop_in_a_topology_declared_acyclic_is_not_used() -> None:
    """Notifications would loop up to the hop limit."""
    network = ring(5, general=False)
    used = [router.statistics().links_used for router in network.routers]
    assert sorted(used) == [1, 1, 2, 2, 2]
    refused = [router.statistics().refused.get(Reason.LOOP, 0) for router in network.routers]
    assert sum(refused) >= 2
    for broker in range(5):
        network.say(broker, "c", Subscribe("1", WIDE))
    network.settle()
    network.say(2, "p", Publish((ONE,)))
    network.settle()
    assert network.taken() == Counter({("c", "1", "one"): 5})
    assert network.sent["Publish"] == 4


def test_a_refused_link_replaces_a_lost_one() -> None:
    """A redundant link would be useless in an acyclic topology."""
    network = ring(4, general=False)
    network.say(0, "c", Subscribe("1", WIDE))
    network.settle()
    for number in range(4):
        a, b = number, (number + 1) % 4
        network.cut(a, b)
        network.settle(TRANSIENT)
        for broker in range(4):
            name = f"{number}{broker}"
            network.say(broker, "p", Publish((Notification({"a": 1}, envelope=Envelope(id=name)),)))
        network.settle()
        assert sum(network.taken().values()) == 4
        network.link(a, b, False)
        network.settle(TRANSIENT)


def test_messages_over_a_refused_link_have_no_effect() -> None:
    """A faulty neighbour would close a refused cycle."""
    network = ring(3, general=False)
    broker = next(each for each in range(3) if network.routers[each].statistics().links_used == 1)
    router = network.routers[broker]
    (refused,) = [
        Neighbour(f"{each}")
        for each in range(3)
        if each != broker and network.routers[each].statistics().links_used == 1
    ]
    router.handle(Received(ANN, Subscribe("1", WIDE)), 0)
    event = Received(refused, Publish((ONE,)))
    assert router.handle(event, 0) == [Refused(event, Reason.LOOP)]
    assert router.handle(Received(refused, Subscribe("9", Filter("b = 1"))), 0) == []
    router.validate()
    effects = router.handle(Received(BOB, Publish((ONE,))), 0)
    assert [type(each).__name__ for each in effects] == ["Deliver"]


def test_links_to_parents_close_no_cycle() -> None:
    """Each of three servers would be the client of another, and messages loop."""
    edges = [(0, 1, True), (1, 2, True), (2, 0, True)]
    network = Network(3, edges, named=True)
    network.settle(TRANSIENT)
    assert sorted(router.statistics().links_used for router in network.routers) == [1, 1, 2]
    for broker in range(3):
        network.say(broker, "c", Subscribe("1", WIDE))
        network.settle()
    network.say(0, "p", Publish((ONE,)))
    network.settle()
    assert network.taken() == Counter({("c", "1", "one"): 3})


def test_a_link_is_not_used_until_the_other_end_names_it() -> None:
    """Messages would be lost at an end that does not know the link, or knows another role."""
    router = Router(name="a")
    router.handle(LinkUp(Neighbour("b"), Role.PEER), 0)
    assert router.handle(Received(ANN, Subscribe("1", WIDE)), 0) == []
    statistics = router.statistics()
    assert (statistics.neighbours, statistics.links_used, statistics.servers) == (1, 0, 1)
    event = Received(Neighbour("b"), Publish((ONE,)))
    assert router.handle(event, 0) == [Refused(event, Reason.UNCONFIRMED)]


def test_two_servers_of_one_name_do_not_harm_the_others() -> None:
    """The network would be flooded until one of them stops, or others be cut off."""
    edges = [(0, 1, False), (1, 2, False), (2, 3, False)]
    network = Network(4, named=True, general=True)
    network.routers[3] = Router(name="0", general=True)
    for a, b, _ in edges[:2]:
        network.link(a, b, False)
    network.settle(TRANSIENT)
    network.links[2, 3], network.links[3, 2] = deque(), deque()
    network.tell(2, LinkUp(Neighbour("3"), Role.PEER))
    network.tell(3, LinkUp(Neighbour("2"), Role.PEER))
    network.settle({Reason.NAME_IN_USE, *TRANSIENT})
    network.say(1, "c", Subscribe("1", WIDE))
    network.settle()
    network.say(2, "p", Publish((ONE,)))
    network.settle()
    assert network.taken() == Counter({("c", "1", "one"): 1})


def test_a_server_that_restarts_is_believed() -> None:
    """A link state after a restart would count as older than one before it."""
    network = ring(4, general=True)
    for _ in range(5):
        network.cut(0, 1)
        network.link(0, 1, False)
        network.settle(TRANSIENT)
    network.crash(0)
    network.settle(TRANSIENT)
    network.say(0, "c", Subscribe("1", WIDE))
    network.link(3, 0, False)
    network.settle(TRANSIENT)
    network.say(1, "p", Publish((ONE,)))
    network.settle()
    assert network.taken() == Counter({("c", "1", "one"): 1})


def test_with_flooding_everything_goes_everywhere_once() -> None:
    """The strategies would have no baseline."""
    network = ring(6, general=True, strategy=Strategy.FLOODING)
    before = network.sent.copy()
    network.say(4, "c", Subscribe("1", WIDE))
    network.say(0, "p", Publish((Notification({"a": 0}, envelope=Envelope(id="zero")),)))
    network.say(0, "p", Publish((ONE,)))
    network.settle()
    assert network.sent - before == Counter({"Publish": 10})
    assert network.taken() == Counter({("c", "1", "one"): 1})


def test_of_several_paths_the_cheapest_is_taken() -> None:
    """A slow link would be preferred to a faster detour."""
    routers = {name: Router(name=name, general=True) for name in "abc"}
    costs = {("a", "b"): 5, ("b", "c"): 2, ("a", "c"): 2}
    waiting: deque[tuple[str, Received]] = deque()

    def tell(name: str, event: LinkUp | Received) -> None:
        for effect in routers[name].handle(event, 0):
            if isinstance(effect, Send):
                waiting.append((effect.to.name, Received(Neighbour(name), effect.message)))

    for (a, b), cost in costs.items():
        tell(a, LinkUp(Neighbour(b), Role.PEER, cost))
        tell(b, LinkUp(Neighbour(a), Role.PEER, cost))
    while waiting:
        tell(*waiting.popleft())
    tell("b", Received(ANN, Subscribe("1", WIDE)))
    while waiting:
        tell(*waiting.popleft())
    assert routers["a"].handle(Received(BOB, Publish((ONE,))), 0) == [
        Send(Neighbour("c"), Publish((ONE,), 1, "a"))
    ]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Received(Neighbour("1"), Subscribe("1", WIDE)), Reason.WRONG_OWNER),
        (Received(Neighbour("1"), Subscribe("1", WIDE, "h" * 256)), Reason.WRONG_OWNER),
        (Received(Neighbour("1"), Unsubscribe("1", "x")), Reason.UNKNOWN_SUBSCRIPTION),
        (Received(Neighbour("1"), Subscribe("1", WIDE, "0")), Reason.LOOP),
        (Received(Neighbour("1"), Publish((ONE,), 1, "0")), Reason.LOOP),
        (Received(Neighbour("1"), Publish((ONE,), 1)), Reason.WRONG_OWNER),
        (Received(Neighbour("1"), Publish((Notification({}),), 1, "1")), Reason.NO_IDENTITY),
        (Received(ANN, Publish((Notification({}),))), Reason.NO_IDENTITY),
        (Received(ANN, Publish((ONE,), 0, "1")), Reason.WRONG_OWNER),
        (Received(ANN, Subscribe("1", WIDE, "1")), Reason.WRONG_OWNER),
        (Received(ANN, Subscribe("i" * 256, WIDE)), Reason.TOO_LONG),
        (Received(ANN, AnnounceLinks((LinkState("9", 1, ()),))), Reason.WRONG_LINK_STATE),
        (
            Received(Neighbour("1"), AnnounceLinks((LinkState("9", -1, ()),))),
            Reason.WRONG_LINK_STATE,
        ),
        (Received(Neighbour("1"), AnnounceLinks((), version=2)), Reason.VERSION),
        (Received(ANN, AckLinks()), Reason.WRONG_LINK_STATE),
        (Received(Neighbour("1"), AckLinks()), Reason.WRONG_LINK_STATE),
        (Received(Neighbour("x"), AckLinks()), Reason.UNKNOWN_NEIGHBOUR),
        (
            Received(Neighbour("x"), AnnounceLinks((LinkState("9", 1, ()),))),
            Reason.UNKNOWN_NEIGHBOUR,
        ),
        (LinkUp(Neighbour("0"), Role.PEER), Reason.OWN_NAME),
        (LinkUp(Neighbour("n" * 256), Role.PEER), Reason.TOO_LONG),
        (LinkUp(Neighbour("5"), Role.PEER, 0), Reason.WRONG_LINK_STATE),
    ],
)
def test_what_makes_no_sense_is_refused(event: Event, reason: Reason) -> None:
    """A faulty neighbour could damage tables unseen."""
    router = ring(4, general=True).routers[0]
    before = router.statistics()
    effects = [each for each in router.handle(event, -1) if not _is_reply(each)]
    assert effects == [Refused(event, reason)]
    router.validate()
    after = router.statistics()
    assert after.refused[reason] == before.refused.get(reason, 0) + 1
    assert (after.filters, after.servers) == (before.filters, before.servers)


def _is_reply(effect: Effect) -> bool:
    """Whether a message acknowledges link states."""
    return isinstance(effect, Send) and effect.message == AckLinks()


def test_a_repeated_notification_is_refused() -> None:
    """While paths change it would be delivered twice, or loop."""
    router = ring(4, general=True).routers[0]
    router.handle(Received(ANN, Subscribe("1", WIDE)), 0)
    first, again = (Received(Neighbour(each), Publish((ONE,), 1, "2")) for each in "13")
    assert router.handle(first, 10**15) == [Deliver(ANN, ("1",), (ONE,))]
    assert router.handle(again, 0) == [Refused(again, Reason.DUPLICATE)]


@pytest.mark.parametrize("general", [True, False])
def test_a_notification_without_identity_is_refused(general: bool) -> None:
    """Without an identity it would be delivered twice while links change."""
    router = ring(3, general=general).routers[0]
    event = Received(ANN, Publish((Notification({"a": 1}),)))
    assert router.handle(event, 0) == [Refused(event, Reason.NO_IDENTITY)]


def test_a_server_without_a_name_takes_no_link_states() -> None:
    """It would forward link states that it cannot use."""
    router = Router()
    router.handle(LinkUp(Neighbour("1"), Role.PEER), 0)
    event = Received(Neighbour("1"), AnnounceLinks((LinkState("1", 1, ()),)))
    assert router.handle(event, 0) == [Refused(event, Reason.WRONG_LINK_STATE)]
    assert router.statistics().links_used == 1


def test_changes_of_offers_are_reported() -> None:
    """A client could not see the advertisements, or would see those implied by a parent."""
    edges = [(0, 1, False), (1, 2, True), (3, 1, True)]
    network = Network(4, edges, Strategy.ADVERTISEMENTS, named=True, general=True)
    network.settle(TRANSIENT)
    offers = [Advertisement(f"a{each} any") for each in range(4)]
    for broker, offer in enumerate(offers):
        network.say(broker, "p", Advertise("1", offer))
    network.settle()
    offered = []
    for router in network.routers:
        listed, is_offered = router.advertisements(), router.forwarding.is_offered_below
        offered.append({offer for offer, parties in listed if is_offered(parties)})
    assert offered == [{offers[0], EVERYTHING}, {*offers[:3]}, {offers[2]}, {*offers}]


@pytest.mark.parametrize("seed", range(6))
def test_a_notification_takes_the_shortest_paths_and_no_other_link(seed: int) -> None:
    """It would be sent to servers without a path to a subscriber."""
    world = FailingWorld(5_000 + seed, "general", Strategy.SUBSCRIPTIONS)
    network = world.network
    weights = weights_of(
        ConfirmedLink(f"{a}", f"{b}", Role.PEER, 1) for a, b, _ in sorted_edges(world.edges)
    )
    for number in range(20):
        filters = Filter({"a": between(number % 7, number % 7 + number % 3)})
        network.say(world.chance.randrange(world.brokers), "c", Subscribe(f"{number}", filters))
    network.settle()
    for number in range(20):
        source, before = world.chance.randrange(world.brokers), network.sent["Publish"]
        notification = Notification({"a": number % 9}, envelope=Envelope(id=f"{number}"))
        owners = {
            each
            for each, router in enumerate(network.routers)
            if router.filters_of(Client("c")).matches(notification)
        }
        links = {
            (here, step)
            for here in range(world.brokers)
            for owner, step in subtree_next_hops(weights, f"{source}", f"{here}").items()
            if int(owner) in owners
        }
        network.say(source, "p", Publish((notification,)))
        network.settle()
        assert network.sent["Publish"] - before == len(links)


def sorted_edges(edges: Edges) -> Edges:
    """Returns the same links, each with the lesser name first."""
    return [(min(a, b), max(a, b), is_parent) for a, b, is_parent in edges]
