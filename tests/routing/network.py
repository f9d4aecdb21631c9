"""A small network of routers with ordered links, and its invariants.

The network is settled when no message is in flight. A seeded generator chooses the next link to
move.
"""

import random
from collections import Counter, deque
from collections.abc import Collection, Iterable
from typing import Final

from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    Client,
    Deliver,
    DeliverQuestion,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Message,
    Neighbour,
    NotifyClient,
    Reason,
    Received,
    Refused,
    Role,
    Send,
)

Edges = list[tuple[int, int, bool]]
"""Pairs of brokers; the first is the parent of the second, or they are peers (False)."""

Delivery = tuple[str, str, str]
"""A client, the identity of its subscription, the id of a notification.

Or its source, and the identity of a query.
"""

TREES: Final = ("hierarchical", "acyclic", "hybrid")
MESHES: Final = ("general", "mixed")
SHARED: Final = {"shared": "general", "shared mixed": "mixed", "shared loops": "looped mesh"}
"""Meshes whose servers share one tree or two, and the shapes of their links."""

LOOPED: Final = ("looped", "looped mesh")

TOLD_BETWEEN = 5
"""Events per check of the invariants of the receiving router; those of all receivers are checked
when no message is in flight."""

ROLES: Final = {True: (Role.CHILD, Role.PARENT), False: (Role.PEER, Role.PEER)}


def tree(chance: random.Random, brokers: int, shape: str) -> Edges:
    """A random tree: of parents and children, of peers, or of peers that are roots of trees."""
    order = list(range(brokers))
    chance.shuffle(order)
    edges: Edges = []
    for place, broker in enumerate(order[1:], start=1):
        above = chance.randrange(place)
        is_parent = {"hierarchical": True, "acyclic": False}.get(shape, chance.random() < 0.5)
        edges.append((order[above], broker, is_parent))
    return edges


def mesh(chance: random.Random, brokers: int, shape: str) -> Edges:
    """A random connected graph of peers; mixed, some of it below: children, and a parent."""
    below = range(brokers * 2 // 3, brokers) if shape == "mixed" else range(0)
    peers = [each for each in range(brokers) if each not in below]
    edges = [
        (peers[chance.randrange(place)], each, False)
        for place, each in enumerate(peers[1:], start=1)
    ]
    others = [(a, b, False) for a in peers for b in peers if a < b]
    edges += [each for each in others if each not in edges and chance.random() < 0.35]
    if below:
        edges += [(chance.choice(peers), each, True) for each in below[1:]]
        edges.append((below[0], chance.choice(peers), True))
    return edges


def with_loops(chance: random.Random, brokers: int, shape: str) -> Edges:
    """Returns a network with additional links that close forbidden loops.

    These are links between peers of a tree, or in a mesh one more server as a parent.
    """
    if shape == "looped mesh":
        edges = mesh(chance, brokers, "mixed")
        children = {child for _, child, is_parent in edges if is_parent}
        above, below = chance.choice(sorted(children)), chance.randrange(brokers)
        if below in children | {above} or any({above, below} == {*each[:2]} for each in edges):
            return edges
        return [*edges, (above, below, True)]
    edges = tree(chance, brokers, "hybrid")
    for _ in range(brokers // 2):
        a, b = chance.sample(range(brokers), 2)
        if not any({a, b} == {*each[:2]} for each in edges):
            edges.append((a, b, False))
    return edges


def edges_of(chance: random.Random, brokers: int, shape: str) -> Edges:
    """The links of a random network of a shape."""
    shape = SHARED.get(shape, shape)
    if shape in LOOPED:
        return with_loops(chance, brokers, shape)
    return (mesh if shape in MESHES else tree)(chance, brokers, shape)


TRANSIENT: Final = {Reason.DUPLICATE, Reason.LOOP, Reason.UNCONFIRMED}
"""Permitted refusals while servers know different links."""


class Network:
    """Routers, the links between them with their messages, and the deliveries of clients."""

    def __init__(
        self,
        brokers: int,
        edges: Edges = [],  # noqa: B006  never changed
        strategy: Strategy = Strategy.SUBSCRIPTIONS,
        *,
        covering: bool = True,
        seed: int = 0,
        named: bool = False,
        general: bool = False,
        trees: int = 0,
    ) -> None:
        self._trees = trees
        self._strategy, self._covering = strategy, covering
        self._named, self._general = named, general
        self.routers = [self._new(number) for number in range(brokers)]
        self.links: dict[tuple[int, int], deque[Message]] = {}
        self.given: Counter[Delivery] = Counter()
        self.refused: list[Refused] = []
        self.asked: list[tuple[int, DeliverQuestion]] = []
        self.told: list[tuple[int, NotifyClient]] = []
        self.sent: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._told = 0
        self._to_validate = set(range(brokers))
        for edge in edges:
            self.link(*edge)

    def _new(self, number: int) -> Router:
        return Router(
            self._strategy,
            name=f"{number}" if self._named else "",
            general=self._general,
            trees=self._trees,
            covering=self._covering,
        )

    def link(self, a: int, b: int, is_parent: bool) -> None:
        """Brings a link up at both ends."""
        self.links[a, b], self.links[b, a] = deque(), deque()
        role_of_b, role_of_a = ROLES[is_parent]
        self.tell(a, LinkUp(Neighbour(f"{b}"), role_of_b))
        self.tell(b, LinkUp(Neighbour(f"{a}"), role_of_a))

    def cut(self, a: int, b: int) -> None:
        """Takes a link down at both ends, with its messages."""
        del self.links[a, b], self.links[b, a]
        self.tell(a, LinkDown(Neighbour(f"{b}")))
        self.tell(b, LinkDown(Neighbour(f"{a}")))

    def crash(self, broker: int) -> None:
        """Stops a server, with its links and all its tables."""
        self.routers[broker] = self._new(broker)
        for a, b in [link for link in self.links if broker == link[0]]:
            del self.links[a, b], self.links[b, a]
            self.tell(b, LinkDown(Neighbour(f"{a}")))

    def say(self, broker: int, client: str, message: Message) -> None:
        """Sends a client's message to its server."""
        self.tell(broker, Received(Client(client), message))

    def tell(self, broker: int, event: Event) -> None:
        """Hands an event to a router, and performs the effects."""
        effects = self.routers[broker].handle(event, 0)
        self._told += 1
        self._to_validate.add(broker)
        if self._told % TOLD_BETWEEN == 0:
            self.routers[broker].validate()
            self._to_validate.discard(broker)
        self._do(broker, effects)

    def _do(self, broker: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    self.sent[type(message).__name__] += 1
                    self.links[broker, int(to.name)].append(message)
                case Deliver(client, subscriptions, notifications):
                    for identity in subscriptions:
                        for each in notifications:
                            self.given[client.name, identity, each.envelope.id] += 1
                case DeliverQuestion(client, sources, question):
                    for identity in sources:
                        self.given[client.name, identity, question.identity] += 1
                    self.asked.append((broker, effect))
                case NotifyClient():
                    self.told.append((broker, effect))
                case Refused():
                    self.refused.append(effect)

    def step(self) -> bool:
        """Moves one message over one link. Returns whether there was one."""
        waiting = sorted(link for link, messages in self.links.items() if messages)
        if not waiting:
            return False
        a, b = self._chance.choice(waiting)
        self.tell(b, Received(Neighbour(f"{a}"), self.links[a, b].popleft()))
        return True

    def settle(self, allowed: Collection[Reason] = ()) -> None:
        """Moves all messages. Only these refusals are permitted."""
        while self.step():
            pass
        for broker in self._to_validate:
            self.routers[broker].validate()
        self._to_validate.clear()
        refused = [each for each in self.refused if each.reason not in allowed]
        assert not refused, refused[0]
        self.refused.clear()

    def round(self) -> bool:
        """Moves all messages in flight once. Returns whether there were any."""
        waiting = [(link, len(messages)) for link, messages in self.links.items() if messages]
        for (a, b), count in waiting:
            for _ in range(count):
                self.tell(b, Received(Neighbour(f"{a}"), self.links[a, b].popleft()))
        return bool(waiting)

    def taken(self) -> Counter[Delivery]:
        """Returns the deliveries since the last call."""
        given, self.given = self.given, Counter()
        return given
