"""A small network of routers with links that keep order, and what must hold of it.

The network is settled when no message is on its way. Which link moves next is drawn from a seed.
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

Or its source, and the identity of a question.
"""

TREES: Final = ("hierarchical", "acyclic", "hybrid")
MESHES: Final = ("general", "mixed")
SHARED: Final = {"shared": "general", "shared mixed": "mixed", "shared loops": "looped mesh"}
"""Meshes whose servers share one tree or two, and the shapes of their links."""

LOOPED: Final = ("looped", "looped mesh")

TOLD_BETWEEN = 5
"""Of so many events one is followed by a look at the invariants of the router that got it; those of
all that got one are looked at when nothing is on its way."""

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


def looped(chance: random.Random, brokers: int, shape: str) -> Edges:
    """A network to which links are added that close loops where none may be.

    These are links between peers of a tree, or in a mesh one more server that is a parent.
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
        return looped(chance, brokers, shape)
    return (mesh if shape in MESHES else tree)(chance, brokers, shape)


TRANSIENT: Final = {Reason.DUPLICATE, Reason.LOOP, Reason.UNCONFIRMED}
"""Why servers refuse what comes while they do not know the same links yet."""


class Network:
    """Routers, the links between them with what is on its way, and what clients were given."""

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
        """A link comes up at both ends."""
        self.links[a, b], self.links[b, a] = deque(), deque()
        role_of_b, role_of_a = ROLES[is_parent]
        self.tell(a, LinkUp(Neighbour(f"{b}"), role_of_b))
        self.tell(b, LinkUp(Neighbour(f"{a}"), role_of_a))

    def cut(self, a: int, b: int) -> None:
        """A link goes down at both ends, with what is on its way."""
        del self.links[a, b], self.links[b, a]
        self.tell(a, LinkDown(Neighbour(f"{b}")))
        self.tell(b, LinkDown(Neighbour(f"{a}")))

    def crash(self, broker: int) -> None:
        """A server fails, with its links and all that it knew."""
        self.routers[broker] = self._new(broker)
        for a, b in [link for link in self.links if broker == link[0]]:
            del self.links[a, b], self.links[b, a]
            self.tell(b, LinkDown(Neighbour(f"{a}")))

    def say(self, broker: int, client: str, message: Message) -> None:
        """A client's message reaches its server."""
        self.tell(broker, Received(Client(client), message))

    def tell(self, broker: int, event: Event) -> None:
        """An event reaches a router; what it asks for is done."""
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
        """Moves one message over one link; whether there was one."""
        waiting = sorted(link for link, messages in self.links.items() if messages)
        if not waiting:
            return False
        a, b = self._chance.choice(waiting)
        self.tell(b, Received(Neighbour(f"{a}"), self.links[a, b].popleft()))
        return True

    def settle(self, allowed: Collection[Reason] = ()) -> None:
        """Moves messages until none is on its way. Nothing may be refused but for these reasons."""
        while self.step():
            pass
        for broker in self._to_validate:
            self.routers[broker].validate()
        self._to_validate.clear()
        refused = [each for each in self.refused if each.reason not in allowed]
        assert not refused, refused[0]
        self.refused.clear()

    def round(self) -> bool:
        """One delay passes: what is on its way arrives; whether there was something."""
        waiting = [(link, len(messages)) for link, messages in self.links.items() if messages]
        for (a, b), count in waiting:
            for _ in range(count):
                self.tell(b, Received(Neighbour(f"{a}"), self.links[a, b].popleft()))
        return bool(waiting)

    def taken(self) -> Counter[Delivery]:
        """What clients were given since this was asked last."""
        given, self.given = self.given, Counter()
        return given
