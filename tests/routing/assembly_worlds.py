"""Seeded worlds of patterns in a network, compared with one central matcher.

A world is a small network in virtual time: links of different delay that keep order, publishers
with changing advertisements, quiet servers, and clients with patterns. Timestamps are coarse and
skewed, so that many are equal and few arrive in order; the slack is the least one without late
notifications: twice the skew, the grain, and the longest path.

    python -m tests.routing.assembly_worlds COUNT FIRST      seeds from FIRST on, in two processes
"""

import heapq
import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from contrada.model import Advertisement, Envelope, Filter, Notification, Pattern, Value
from contrada.patterns import Match
from contrada.patterns.pattern_engine import PatternMatcher
from contrada.patterns.reorder_buffer import order_of
from contrada.patterns.runs import DEFAULT_LIMITS, PatternLimits
from contrada.routing.assembly.split_pattern import Span, SplitPattern
from contrada.routing.delegation import (
    AskWatermark,
    DelegationPhase,
    ReportMatches,
    SubscribePattern,
    UnsubscribePattern,
)
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    Advertise,
    Client,
    Deliver,
    DeliverMatch,
    Effect,
    Event,
    LinkDown,
    LinkUp,
    Message,
    Neighbour,
    Publish,
    Received,
    Refused,
    Send,
    TimePassed,
    Unadvertise,
)
from contrada.routing.tables.next_hop_cache import ITSELF
from tests.routing.network import MESHES, ROLES, Edges, mesh, tree

SHAPES: Final = ("acyclic", "acyclic", "hierarchical", "hybrid", "general", "mixed")
KINDS: Final = "abcd"
HOSTS: Final[tuple[object, ...]] = (None, 1, 1.0, 2, 2, "x", [1, 2], ["x", 1.0])
BY: Final = ((), (), ("host",), ("host",), ("@publisher",))
WITHIN_US: Final = (None, None, 5, 20, 60, 200)


class Server:
    """A router, with its effects."""

    def __init__(self, name: int, network: "Network", router: Router) -> None:
        self.name = name
        self.router = router
        self.assembler = router._assembler
        self.segments = self.assembler._segments
        self._network = network

    def tell(self, event: Event) -> None:
        """Handles an event."""
        self._do(self.router.handle(event, self._network.now_us))
        self._network.checked(self)

    def hand_back(self, chance: random.Random) -> None:
        """Has a neighbour recall one of its patterns."""
        delegates = [
            (each.requester, each.identity)
            for each in self.assembler._split.values()
            if isinstance(each.requester, Neighbour)
        ]
        if delegates:
            self._do(self.router._perform(self.assembler.hand_back(*chance.choice(delegates))))

    def delegated(self, client: str) -> list[Span]:
        """The delegates of a client's pattern, by place."""
        known = self.assembler.by_origin[Client(client)]["it"]
        segments = known.segments.values() if isinstance(known, SplitPattern) else ()
        return sorted(each.span for each in segments if each.phase is DelegationPhase.DELEGATED)

    def is_settled(self) -> bool:
        """Whether no part of a pattern is being handed over."""
        gathers = any(each.gathers for each in self.assembler._split.values())
        return not gathers and all(
            each.phase is DelegationPhase.DELEGATED for each in self.segments
        )

    def _do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    self._network.send(self.name, to, message)
                case DeliverMatch(client, match):
                    self._network.given[client.name].append(match)
                case Refused():
                    self._network.refused.append(effect)
                case Deliver():
                    raise AssertionError(f"nobody asked for {effect}")


class Network:
    """Servers and links in virtual time."""

    def __init__(
        self,
        servers: int,
        delays: dict[tuple[int, int], int],
        *,
        strategy: Strategy = Strategy.ADVERTISEMENTS,
        general: bool = False,
        slack_us: int = 0,
        limits: PatternLimits = DEFAULT_LIMITS,
        chance: random.Random | None = None,
        validate: bool = False,
    ) -> None:
        self.now_us = 0
        self.servers = [
            Server(
                n,
                self,
                Router(
                    strategy,
                    name=str(n) if general else "",
                    general=general,
                    slack_us=slack_us,
                    pattern_limits=limits,
                ),
            )
            for n in range(servers)
        ]
        self.refused: list[Refused] = []
        self.given: dict[str, list[Match[str]]] = {}
        self.sent: Counter[str] = Counter()
        self._delays = delays
        self._chance = chance
        self._validate = validate
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._free_us: dict[tuple[int, int], int] = {}
        self._epoch: dict[tuple[int, int], int] = {}
        self._changing = self._flying = 0

    def link(self, edges: Edges) -> None:
        """Brings links up."""
        for a, b, is_parent in edges:
            role_of_b, role_of_a = ROLES[is_parent]
            self.servers[a].tell(LinkUp(Neighbour(str(b)), role_of_b))
            self.servers[b].tell(LinkUp(Neighbour(str(a)), role_of_a))

    def cut(self, a: int, b: int) -> None:
        """Takes a link down, with the messages in flight."""
        self._epoch[a, b] = self._epoch[b, a] = self._epoch.get((a, b), 0) + 1
        self.servers[a].tell(LinkDown(Neighbour(str(b))))
        self.servers[b].tell(LinkDown(Neighbour(str(a))))

    def at(self, time_us: int, do: Callable[[], None]) -> None:
        """Arranges an action."""
        heapq.heappush(self._queue, (time_us, next(self._count), do))

    def send(self, a: int, to: Neighbour, message: Message) -> None:
        """Sends over a link, in order; each message may need less than the link's delay."""
        b = int(to.name)
        delay_us = self._delays[min(a, b), max(a, b)]
        if self._chance is not None and delay_us:
            delay_us -= self._chance.randrange(delay_us // 2 + 1)
        arrival_us = max(self._free_us.get((a, b), 0), self.now_us + delay_us)
        self._free_us[a, b] = arrival_us
        self.sent[type(message).__name__] += 1
        changes = not isinstance(message, Publish | ReportMatches | AskWatermark)
        self._changing += changes
        self._flying += 1
        epoch = self._epoch.get((a, b), 0)

        def arrive() -> None:
            self._changing -= changes
            self._flying -= 1
            if self._epoch.get((a, b), 0) == epoch:
                self.servers[b].tell(Received(Neighbour(str(a)), message))

        self.at(arrival_us, arrive)

    def say(self, server: int, client: str, message: Message) -> None:
        """Sends a client's message to its server."""
        self.given.setdefault(client, [])
        self.servers[server].tell(Received(Client(client), message))

    def step(self) -> bool:
        """Runs the next action. Returns whether there was one."""
        if not self._queue:
            return False
        self.now_us, _, do = heapq.heappop(self._queue)
        do()
        return True

    def settle(self) -> None:
        """Runs all actions."""
        while self.step():
            pass
        assert self.is_settled(), "a segment never came to rest"

    def is_settled(self) -> bool:
        """Whether no subscription, advertisement or hand-over is in flight."""
        return not self._changing and all(each.is_settled() for each in self.servers)

    def is_quiet(self) -> bool:
        """Whether no message is in flight."""
        return not self._flying and self.is_settled()

    def checked(self, server: Server) -> None:
        """Checks a server's invariants, if requested."""
        if self._validate:
            server.router.validate()


@dataclass
class Publisher:
    """A client that publishes within its settled advertisements."""

    server: int
    name: str
    kinds: str = ""
    number: int = 0
    is_new: bool = True
    events: list[Notification] = field(default_factory=list)

    @property
    def numbers(self) -> bool:
        """Whether it numbers its publications."""
        return self.name != "p0"


class World:
    """Random publishers, patterns and changes; the same seed gives the same world."""

    def __init__(self, seed: int, *, validate: bool = False) -> None:
        chance = self.chance = random.Random(seed)
        self.brokers = chance.randint(2, 6)
        shape = chance.choice(SHAPES)
        self.is_general = shape in MESHES
        self.edges = mesh(chance, self.brokers, shape) if self.is_general else self._tree(shape)
        self.is_busy = chance.random() < 0.5
        delays_us = (5, 20, 30) if self.is_busy else (0, 1, 3, 10, 30)
        self.delays = {(min(a, b), max(a, b)): chance.choice(delays_us) for a, b, _ in self.edges}
        self.skew_us = chance.choice((0, 0, 2, 10))
        self.grain_us = chance.choice((1, 1, 5))
        slack_us = 2 * self.skew_us + self.grain_us - 1 + self._longest_way_us()
        strategy = Strategy.SUBSCRIPTIONS if chance.random() < 0.05 else Strategy.ADVERTISEMENTS
        self.network = Network(
            self.brokers,
            self.delays,
            strategy=strategy,
            general=self.is_general,
            slack_us=slack_us,
            chance=chance,
            validate=validate,
        )
        self.network.link(self.edges)
        self.network.settle()
        self.publishers = [
            Publisher(chance.randrange(self.brokers), f"p{n}") for n in range(chance.randint(2, 5))
        ]
        self.patterns: dict[str, tuple[int, Pattern]] = {}
        self.seen: dict[str, list[Notification]] = {}
        self.left: set[str] = set()
        self.matched_until: dict[str, int] = {}
        self.joining = 0
        self.delegated = 0
        self._identities = itertools.count()

    def _tree(self, shape: str) -> Edges:
        """A random tree, or a line."""
        if self.chance.random() < 0.6:
            return tree(self.chance, self.brokers, shape)
        return [(a, a + 1, shape == "hierarchical") for a in range(self.brokers - 1)]

    def _longest_way_us(self) -> int:
        """Returns the longest path between two servers, by delay; an upper bound in a mesh."""
        if self.is_general:
            return sum(self.delays.values())
        far = {(a, a): 0 for a in range(self.brokers)}
        for (a, b), delay_us in self.delays.items():
            far[a, b] = far[b, a] = delay_us
        for via, a, b in itertools.product(range(self.brokers), repeat=3):
            if (a, via) in far and (via, b) in far:
                way_us = far[a, via] + far[via, b]
                far[a, b] = min(far.get((a, b), way_us), way_us)
        return max(far.values())

    # --- events -------------------------------------------------------------------------------

    def advertise(self, publisher: Publisher) -> None:
        """Changes a publisher's advertisement; it is silent until that has settled."""
        network = self.network
        old = publisher.number
        publisher.kinds = "".join(self.chance.sample(KINDS, self.chance.choice((1, 1, 2, 2, 3))))
        publisher.number = next(self._identities) + 1
        publisher.is_new = True
        kinds = ", ".join(f"'{kind}'" for kind in publisher.kinds)
        offer = Advertisement(f"kind in ({kinds}) and host any and level any")
        network.say(publisher.server, publisher.name, Advertise(str(publisher.number), offer))
        if old:
            network.say(publisher.server, publisher.name, Unadvertise(str(old)))

    def withdraw(self, publisher: Publisher) -> None:
        """Withdraws a publisher's advertisement."""
        if publisher.number:
            message = Unadvertise(str(publisher.number))
            self.network.say(publisher.server, publisher.name, message)
        publisher.kinds, publisher.number = "", 0

    def subscribe(self) -> None:
        """Subscribes a new client to a pattern."""
        chance, number = self.chance, len(self.patterns)
        parts = []
        for _ in range(chance.choice((2, 2, 3, 3, 4, 5))):
            kinds = chance.sample(KINDS, chance.choice((1, 1, 1, 2)))
            level = chance.choice(("", "", " and level > 1", " and level < 3"))
            parts.append(Filter("kind in (" + ", ".join(f"'{k}'" for k in kinds) + ")" + level))
        pattern = Pattern(
            parts,
            by=chance.choice(BY),
            within_us=chance.choice(WITHIN_US),
            every=chance.random() < 0.4,
        )
        server = chance.choice((0, chance.randrange(self.brokers)))
        name = f"c{number}"
        self.patterns[name] = server, pattern
        self.seen[name] = []
        self.network.say(server, name, SubscribePattern("it", pattern))

    def publish(self) -> None:
        """Publishes within a settled advertisement."""
        if self.joining and not self._has_joined():
            return
        if self.network.is_settled():
            for publisher in self.publishers:
                publisher.is_new = False
        ready = [each for each in self.publishers if each.kinds and not each.is_new]
        if not ready:
            return
        chance, publisher = self.chance, self.chance.choice(ready)
        attributes: dict[str, object] = {
            "kind": chance.choice(publisher.kinds),
            "level": chance.randrange(4),
        }
        host = chance.choice(HOSTS)
        if host is not None:
            attributes["host"] = host
        time_us = self.network.now_us + 1_000 + chance.randint(-self.skew_us, self.skew_us)
        time_us -= time_us % self.grain_us
        number = len(publisher.events)
        envelope = Envelope(
            id=f"{publisher.name}.{number}",
            publisher=publisher.name,
            # Not all number their publications.
            sequence=number if publisher.numbers else 0,
            time_us=time_us,
        )
        notification = Notification(attributes, envelope=envelope)
        publisher.events.append(notification)
        for name in sorted(self.patterns.keys() - self.left):
            self.seen[name].append(notification)
        self.network.say(publisher.server, publisher.name, Publish((notification,)))

    def _has_joined(self) -> bool:
        """Subscribes a late client on a quiet network; publishers wait for it."""
        if self.network.is_quiet():
            if self.joining == 2:
                self.subscribe()
            self.joining -= 1
        return not self.joining

    def leave(self) -> None:
        """A client withdraws its pattern."""
        names = sorted(self.patterns.keys() - self.left)
        if len(names) > 1:
            name = self.chance.choice(names)
            self.left.add(name)
            self.network.say(self.patterns[name][0], name, UnsubscribePattern("it"))
            self.matched_until[name] = len(self.network.given[name])

    def happen(self) -> None:
        """Performs a random action: most often a publication."""
        draw = self.chance.random()
        if draw < (0.82 if self.is_busy else 0.9):
            self.publish()
        elif draw < 0.94:
            self.advertise(self.chance.choice(self.publishers))
        elif draw < 0.96:
            self.withdraw(self.chance.choice(self.publishers))
        elif draw < 0.98:
            self.chance.choice(self.network.servers).hand_back(self.chance)
        elif draw < 0.99:
            self.joining = self.joining or 2
        else:
            self.leave()

    def run(self) -> None:
        """Runs the world until every pattern has seen the end."""
        chance, network = self.chance, self.network
        beginning: list[Callable[[], None]] = [
            *(partial(self.advertise, each) for each in self.publishers),
            *(self.subscribe for _ in range(chance.randint(1, 3))),
        ]
        chance.shuffle(beginning)
        for do in beginning:
            do()
            while chance.random() < 0.5 and network.step():
                pass
        network.settle()
        pause_us = chance.choice((1, 2) if self.is_busy else (1, 3, 10, 40))
        time_us = network.now_us
        for _ in range(chance.randint(40, 90) if self.is_busy else chance.randint(20, 50)):
            time_us += chance.randrange(pause_us + 1)
            network.at(time_us, self.happen)
        network.settle()
        self.delegated = sum(
            bool(network.servers[server].delegated(name))
            for name, (server, _) in self.patterns.items()
            if name not in self.left
        )
        for server, _ in self.patterns.values():
            network.servers[server].tell(TimePassed(network.now_us + 1_000_000))
            network.settle()

    # --- the checks ---------------------------------------------------------------------------

    def check(self) -> int:
        """Compares with a central matcher. Returns the number of matches."""
        count = 0
        for name, (_, pattern) in self.patterns.items():
            should, given = central(pattern, self.seen[name]), self.network.given[name]
            count += len(should)
            if name in self.left:
                assert not Counter(map(text_of, given)) - Counter(map(text_of, should)), pattern
                assert len(given) == self.matched_until[name], f"after its end: {pattern}"
                continue
            assert sorted(map(text_of, given)) == sorted(map(text_of, should)), f"{pattern}"
            ends = [order_of(match.notifications[-1]) for match in given]
            assert ends == sorted(ends), f"matches out of order: {pattern}"
        assert not self.network.refused, self.network.refused[0]
        for each in self.network.servers:
            statistics = each.assembler.statistics()
            assert not statistics.dropped, f"{each.name} lost something: {statistics}"
            each.router.validate()
        return count

    def end(self) -> None:
        """Withdraws everything; all tables must be empty."""
        for name in sorted(self.patterns.keys() - self.left):
            self.network.say(self.patterns[name][0], name, UnsubscribePattern("it"))
        for publisher in self.publishers:
            self.withdraw(publisher)
        self.network.settle()
        for each in self.network.servers:
            assert not len(each.assembler)
            left = each.assembler.statistics()
            assert (left.delegated, left.filters, left.runs, left.waiting) == (0, 0, 0, 0)
            assert not each.router.filters_of(ITSELF).filters
            each.router.validate()


def central(pattern: Pattern, notifications: Iterable[Notification]) -> list[Match[str]]:
    """Returns the matches of one matcher with all notifications in order."""
    matcher: PatternMatcher[str] = PatternMatcher()
    matcher.add("it", pattern)
    found = []
    for notification in sorted(notifications, key=order_of):
        found += matcher.push(notification)
    return found + matcher.flush()


def text_of(match: Match[str]) -> tuple[str, tuple[str, ...]]:
    """A match as its group and the ids of its notifications."""
    by: tuple[Value, ...] = match.by
    return repr(by), tuple(each.envelope.id for each in match.notifications)


def run_world(seed: int, *, validate: bool = False) -> tuple[int, int]:
    """Runs a world. Returns the numbers of matches and of delegated patterns."""
    world = World(seed, validate=validate)
    try:
        world.run()
        matches = world.check()
        world.end()
    except AssertionError as error:
        raise AssertionError(f"world {seed}: {error}") from error
    return matches, world.delegated


def main(count: int, first: int = 0) -> int:
    """Runs many worlds in two processes; prints their totals, or the failed one."""
    totals: Counter[str] = Counter()
    with ProcessPoolExecutor(2) as pool:
        results = pool.map(run_world, range(first, first + count), chunksize=50)
        for done, result in enumerate(results, start=1):
            totals.update(dict(zip(("matches", "delegated"), result, strict=True)))
            if done % 500 == 0 or done == count:
                sys.stderr.write(f"{done} worlds, {dict(totals)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:] or ["10000"])))
