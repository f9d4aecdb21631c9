"""`make_script`, `weave`: scripts from seeds, and costs of links and patterns added to them.

A script is a row of bursts. In a burst clients subscribe, advertise, withdraw and publish faster
than messages travel, so that notifications meet control messages in flight; between some bursts the
network rests, so that some notifications must be delivered. The faults of a world are: none; a
transport that loses, repeats and reorders; failing links and servers; moving clients; or all of
these.

Half of the worlds with a mesh have links of different costs. In more than half of all worlds
clients subscribe to patterns, between the other steps. During a rest of such a world they subscribe
to some, too; when these have settled, clients publish within their advertisements, and then the
time advances. So some matches are required, besides those that are only permitted.

Some advertisements then have a value of their own, so that its notifications have few sources:
parts of one pattern have several sources, some consecutive parts the same.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace

from contrada.delivery.retention import OnFull
from contrada.lab.simulation import script_steps as steps
from contrada.lab.simulation.simulated_line import SILENCE_US, Faults
from contrada.model import Advertisement, Notification
from contrada.model.algebra.product import product_covers

WORLD_BROKERS_MAX: Final = 50
"""Servers of a made world. Beyond it: no made world has more."""

REST_US: Final = 3_000_000
"""The length of a rest of the network."""

CALM: Final = Faults(late_us=5_000)  # Messages sent together do not arrive together.
ROUGH: Final = Faults(loss=0.1, duplication=0.1, late_us=30_000)

TTLS_US: Final = (2_000, 20_000, 200_000, 2_000_000, 20_000_000)
"""From less than the delay of a link to more than a rest of a made world."""

WOVEN_COST_MAX: Final = 5
"""Cost of a link of a made world. Beyond it: no link of a made world costs more."""

OWN: Final = range(20, 22)
"""Values that are advertised singly, and unknown to the maker."""

SETTLED_US: Final = 800_000
"""The part of a rest after which most networks have settled."""

JUMP_US_MAX: Final = 20_000_000
"""The longest jump of a clock of a made world. Beyond it: no clock jumps farther."""

FAULTS: Final[tuple[tuple[steps.FaultName, steps.FaultName], ...]] = (
    *(("kill", "start"), ("end", "start"), ("pause", "go on"), ("cut", "mend")),
)
"""Faults of a member, each with its end."""

Links = list[tuple[int, int, bool]]
"""Pairs of servers; the first is the parent of the second, or they are peers (False)."""


def make_script(seed: int, kind: steps.Kind, brokers_max: int = WORLD_BROKERS_MAX) -> steps.Script:
    """Returns the script of a seed."""
    return add_deadlines(_Maker(seed, kind, brokers_max).script())


def add_deadlines(script: steps.Script) -> steps.Script:
    """Returns a script with times to live, priorities and pauses; half of all stay without.

    A random generator of its own keeps the rest of a script the same.
    """
    chance = random.Random(f"haste {script.seed} {script.kind.name}")
    if chance.random() < 0.5:
        return script
    clients = sorted({step.client for step in script.steps if isinstance(step, steps.PublishStep)})
    made: list[steps.Step] = []
    for each in script.steps:
        step = each
        if isinstance(step, steps.PublishStep):
            ttl_us = chance.choice((None, *TTLS_US))
            step = replace(step, ttl_us=ttl_us, priority=chance.choice((0, 4, 4, 7, 9)))
        made.append(step)
        if clients and chance.random() < 0.3:
            turn = chance.choice((steps.Pause, steps.Pause, steps.Pause, steps.Pause, steps.Resume))
            made.append(turn(step.at_us, chance.choice(clients)))
    return script.with_steps(made)


def links_of(shape: steps.NetworkShape, brokers: int, chance: random.Random) -> Links:
    """A random connected network of a shape: trees whose servers have few neighbours."""
    if shape == "central":
        return []
    peers = brokers if shape != "hybrid" else max(1, brokers // 2)
    links: Links = []
    for broker in range(1, brokers):
        is_child = shape == "hierarchical" or broker >= peers
        links.append((chance.randrange(max(0, broker - 8), broker), broker, is_child))
    if shape in ("general", "hybrid"):
        there = {link[:2] for link in links}
        for _ in range(max(1, peers // 2) if peers > 2 else 0):
            a, b = sorted(chance.sample(range(peers), 2))
            if (a, b) not in there:
                there.add((a, b))
                links.append((a, b, False))
    return links


class _Maker:
    """Makes a script step by step, with a record of the clients' registrations."""

    def __init__(self, seed: int, kind: steps.Kind, brokers_max: int) -> None:
        self._seed, self._kind = seed, kind
        self._chance = random.Random(f"{seed} {kind.name}")
        self._now_us = 0
        self._steps: list[steps.Step] = []
        self._numbered = 0
        size = self._chance.random() ** 3  # Most networks are small: they show most faults.
        least = 3 if kind.reliable else 2  # Between two servers nothing overtakes.
        grown = least + round(size * (brokers_max - least))
        self._brokers = 1 if kind.shape == "central" else grown
        self._links = links_of(kind.shape, self._brokers, self._chance)
        self._clients = [f"c{each}" for each in range(2 + self._brokers)]
        self._subscriptions: list[tuple[str, str]] = []
        self._offers: dict[tuple[str, str], Advertisement | None] = {}
        self._repairs: list[steps.Step] = []
        self._servers: dict[str, int] = {}  # of clients
        self._last_publisher = self._clients[0]  # above best effort
        self._is_rough = self._chance.random() < 0.5
        self._fails = self._chance.random() < 0.5 or kind.standby
        self._moves = self._chance.random() < 0.5
        self._durable: list[tuple[str, str]] = []
        chosen = range(1, self._brokers) if kind.reliable else ()
        self._storeless = tuple(each for each in chosen if self._chance.random() < 0.1)

    def script(self) -> steps.Script:
        for a, b, is_parent in self._links:
            delay_us = self._chance.choice((1_000, 5_000, 20_000, self._chance.randrange(50_000)))
            self._steps.append(steps.Connect(0, a, b, is_parent, 1 + delay_us))
        self._rest()
        for client in self._clients:
            self._connect(client, self._chance.randrange(self._brokers))
        for _ in range(3 + self._brokers // 5):
            self._subscribe()
            self._subscribe()
            self._advertise()
            if self._kind.reliable:
                self._subscribe_durably()
        for _ in range(self._chance.randint(3, 8)):
            if self._chance.random() < 0.7:
                self._rest()
            self._burst()
        faults, made = ROUGH if self._is_rough else CALM, tuple(self._steps)
        return steps.Script(self._seed, self._kind, self._brokers, faults, made, self._storeless)

    def _rest(self) -> None:
        self._now_us += REST_US

    def _burst(self) -> None:
        weights: dict[Callable[[], None], float] = {
            self._publish: 6.0,
            self._subscribe: 3.0,
            self._unsubscribe: 3.0,
            self._advertise: 1.5,
            self._unadvertise: 1.5,
            self._move: 2.0 * self._moves,
            (self._fail_member if self._kind.standby else self._fail): 2.0 * self._fails,
        }
        if self._kind.reliable:
            weights |= {self._publish_reliably: 9.0, self._subscribe_durably: 1.0}
            weights |= {self._read: 1.0, self._end: 0.2, self._pass: 0.5}
            weights |= {self._fill: 0.3 * self._fails}
        pace_us = self._chance.choice((1_000, 5_000, 30_000))
        for _ in range(self._chance.randint(8, 30)):
            self._now_us += self._chance.randrange(2 * pace_us)
            self._chance.choices([*weights], [*weights.values()])[0]()
        is_left = self._chance.random() < 0.5  # Some faults stay during a rest.
        while self._repairs and not is_left:
            self._now_us += self._chance.randrange(SILENCE_US)
            self._repair()

    # --- clients ------------------------------------------------------------------------------

    def _add(self, kind: Callable[..., steps.Step], *given: Any) -> None:
        self._steps.append(kind(self._now_us, *given))

    def _connect(self, client: str, broker: int) -> None:
        self._servers[client] = broker
        self._add(steps.Move, client, broker)

    def _named(self, letter: str) -> str:
        self._numbered += 1
        return f"{letter}{self._numbered}"

    def _subscribe(self) -> None:
        key = self._chance.choice(self._clients), self._named("s")
        self._subscriptions.append(key)
        count = self._chance.choice((1, 1, 1, 2))
        filters = " or ".join(random_filter(self._chance) for _ in range(count))
        self._add(steps.AddFilter, *key, filters)

    def _unsubscribe(self) -> None:
        if self._subscriptions:
            key = self._subscriptions.pop(self._chance.randrange(len(self._subscriptions)))
            self._add(steps.DropFilter, *key)

    def _advertise(self) -> None:
        key = self._chance.choice(self._clients), self._named("a")
        is_open = self._chance.random() < 0.1
        text = "a any" if is_open else random_offer(self._chance)
        self._offers[key] = None if is_open else steps.advertisement_of(text)
        self._add(steps.AddOffer, *key, text, is_open)

    def _unadvertise(self) -> None:
        if self._offers:
            key = self._chance.choice(list(self._offers))
            del self._offers[key]
            self._add(steps.DropOffer, *key)

    def _publish(self) -> None:
        """Publishes, mostly within the client's advertisements."""
        values = random_values(self._chance)
        able = [
            client
            for (client, _), offer in self._offers.items()
            if offer is None or is_offered(offer, tuple(values.items()))
        ]
        if able or self._chance.random() < 0.5:
            client = self._chance.choice(able or self._clients)
            self._add(steps.PublishStep, client, self._named("n"), values)

    # --- more than best effort ----------------------------------------------------------------

    def _publish_reliably(self) -> None:
        """Publishes reliably or certified, with an order or none; often by a reader."""
        words = [self._chance.choice(("reliable", "certified"))]
        words += self._chance.choice(((), (), ("fifo",), ("causal",)))
        words += self._chance.choice(((), (), ("total:t",), ("total:u",)))
        readers = [client for client, _ in self._durable]
        self._last_publisher = self._chance.choice(
            readers if self._chance.random() < 0.6 else self._clients
        )
        values, delivery = random_values(self._chance), " ".join(words)
        id_ = self._named("p")
        publisher = self._last_publisher
        step = steps.PublishStep(self._now_us, publisher, id_, values, delivery=delivery)
        self._steps.append(step)

    def _subscribe_durably(self) -> None:
        key = self._chance.choice(self._clients), self._named("d")
        self._durable.append(key)
        is_durable = self._chance.random() < 0.7
        on_full = self._chance.choice((OnFull.REFUSE, *OnFull))
        records_max = 1_000_000 if on_full is OnFull.REFUSE else self._chance.choice((3, 30))
        if self._chance.random() < 0.1:
            records_max = 5
        replay_max = self._chance.choice((0, 100))
        filters = random_filter(self._chance)
        kept = is_durable, records_max, on_full, replay_max
        self._add(steps.OpenDurable, *key, filters, *kept)

    def _read(self) -> None:
        if self._durable:
            client, name = self._chance.choice(self._durable)
            if self._chance.random() < 0.3:
                client = self._chance.choice(self._clients)
            kind = self._chance.choice((steps.AttachReader, steps.DetachReader))
            self._add(kind, client, name)

    def _end(self) -> None:
        if self._durable:
            self._add(steps.EndDurable, *self._chance.choice(self._durable))

    def _pass(self) -> None:
        broker, sequence = self._chance.randrange(self._brokers), self._chance.choice("tu")
        self._add(steps.PassSequence, broker, sequence)

    def _fill(self) -> None:
        broker = self._any_broker()
        self._break(steps.FillDisk(self._now_us, broker), steps.FreeDisk(0, broker))

    def _move(self) -> None:
        client = self._chance.choice(self._clients)
        if self._chance.random() < 0.9:
            self._connect(client, self._chance.randrange(self._brokers))
            return
        self._add(steps.Leave, client)
        self._connect(client, self._chance.randrange(self._brokers))
        self._subscriptions = [key for key in self._subscriptions if key[0] != client]
        self._offers = {key: offer for key, offer in self._offers.items() if key[0] != client}

    # --- failures -----------------------------------------------------------------------------

    def _any_broker(self) -> int:
        """Returns a server; in worlds with guarantees often that of the last publisher."""
        if self._kind.reliable and self._chance.random() < 0.5:
            return self._servers[self._last_publisher]
        return self._chance.randrange(self._brokers)

    def _fail(self) -> None:
        if self._repairs and self._chance.random() < 0.5:
            self._repair()
            return
        kind = self._chance.random()
        if kind < 0.4 and self._links:
            a, b, _ = self._chance.choice(self._links)
            self._break(steps.CutLine(self._now_us, a, b), steps.MendLine(0, a, b))
        elif kind < 0.8:
            broker = self._any_broker()
            keeps_store = self._chance.random() < (0.85 if self._kind.reliable else 0.5)
            self._break(steps.Crash(self._now_us, broker, keeps_store), steps.Restart(0, broker))
        else:
            side = set(self._chance.sample(range(self._brokers), self._brokers // 2))
            for a, b, _ in self._links:
                if (a in side) != (b in side):
                    self._break(steps.CutLine(self._now_us, a, b), steps.MendLine(0, a, b))
        if self._kind.reliable and self._chance.random() < 0.3:
            self._pass()
        self._now_us += self._chance.choice((0, 0, SILENCE_US // 2, 2 * SILENCE_US))

    def _fail_member(self) -> None:
        """A member of a group fails, or the database; some seconds may pass."""
        chance, member = self._chance, self._chance.randrange(steps.MEMBERS)
        if self._repairs and chance.random() < 0.4:
            self._repair()
        elif chance.random() < 0.2:
            also_lease = self._moves and chance.random() < 0.5  # In half of the worlds.
            by_us = chance.randrange(-JUMP_US_MAX, JUMP_US_MAX)
            self._add(steps.JumpClock, member, by_us, also_lease)
        else:
            begun, ended = chance.choice(FAULTS)
            failing: Sequence[int | None] = (chance.choice((None, None, member)),)
            if begun == "cut" and chance.random() < 0.3:
                failing = range(steps.MEMBERS)  # The database is away.
            for each in failing:
                fault, repair = (steps.MemberFault(self._now_us, it, each) for it in (begun, ended))
                self._break(fault, repair)
        self._now_us += chance.choice((0, 0, 500_000, 2_000_000, 4_000_000, 5_000_000))

    def _break(self, fault: steps.Step, repair: steps.Step) -> None:
        self._steps.append(fault)
        self._repairs.append(repair)

    def _repair(self) -> None:
        repair = self._repairs.pop(self._chance.randrange(len(self._repairs)))
        self._steps.append(replace(repair, at_us=self._now_us))
        if isinstance(repair, steps.Restart):
            for client in self._chance.sample(self._clients, len(self._clients) // 2):
                self._connect(client, repair.broker)


@lru_cache(maxsize=65_536)  # Made offers and values are few.
def is_offered(offer: Advertisement, values: tuple[tuple[str, Any], ...]) -> bool:
    """Whether an advertisement covers a notification of these values."""
    return product_covers(offer, Notification(dict(values)))


def random_filter(chance: random.Random) -> str:
    """Returns filters that often cover one another, are equal, or can be merged."""
    parts = []
    if chance.random() < 0.8:
        low = chance.randrange(8)
        parts.append(f"a between {low} and {low + chance.randrange(6)}")
    if chance.random() < 0.5:
        parts.append(chance.choice(("b any", "b prefix 'x'", "b suffix 'x'", "b = 'xx'")))
    if chance.random() < 0.2 or not parts:
        parts.append("c = true")
    text = " and ".join(parts)
    assert not steps.filter_of(text).is_empty
    return text


def random_offer(chance: random.Random) -> str:
    """Returns advertisements that often cover one another and leave values out."""
    low = chance.randrange(8)
    parts = [f"a between {low} and {low + chance.randrange(8)}"]
    parts += [chance.choice(("b any", "b prefix 'x'"))] if chance.random() < 0.8 else []
    parts += ["c any"] if chance.random() < 0.5 else []
    return " and ".join(parts)


def random_values(chance: random.Random) -> dict[str, int | float | str | bool | None]:
    """Returns the values of a notification."""
    values: dict[str, int | float | str | bool | None] = {"a": chance.randrange(13)}
    values |= {"b": chance.choice(("x", "xx", "yx"))} if chance.random() < 0.7 else {}
    values |= {"c": True} if chance.random() < 0.3 else {}
    return values


# --- costs and patterns ---------------------------------------------------------------------------


def weave(script: steps.Script) -> steps.Script:
    """Returns a made script with these additions: a pure function."""
    chance = random.Random(f"{script.seed} {script.kind.name} woven")
    made = list(script.steps)
    if script.kind.shape in ("general", "hybrid") and chance.random() < 0.5:
        made = [
            replace(step, cost=chance.randint(1, WOVEN_COST_MAX))
            if isinstance(step, steps.Connect)
            else step
            for step in made
        ]
    if chance.random() < 0.6:
        made = list(_Weaver(chance, made).woven())
    return script.with_steps(made)


class _Weaver:
    """Adds patterns to steps, with a record of the clients' advertisements."""

    def __init__(self, chance: random.Random, made: list[steps.Step]) -> None:
        self._chance = chance
        self._steps = made
        self._clients = sorted({step.client for step in made if hasattr(step, "client")})
        self._offers: dict[tuple[str, str], Advertisement | None] = {}
        self._patterns: list[tuple[str, str]] = []
        self._numbered = 0

    def woven(self) -> Iterator[steps.Step]:
        """Returns the steps with the additions."""
        last_us = self._steps[-1].at_us
        ends = [*(step.at_us for step in self._steps[1:]), last_us + REST_US]
        for step, end_us in zip(self._steps, ends, strict=True):
            yield step
            self._learn(step)
            amid: Iterable[steps.Step] = ()
            if end_us - step.at_us >= REST_US:
                amid = self._rest(step.at_us)
            elif self._offers and self._chance.random() < 0.06:
                amid = self._anything(step.at_us)
            for each in amid:
                self._learn(each)
                yield each

    def _learn(self, step: steps.Step) -> None:
        match step:
            case steps.AddOffer(_, client, identity, offer, is_open):
                self._offers[client, identity] = None if is_open else steps.advertisement_of(offer)
            case steps.DropOffer(_, client, identity):
                self._offers.pop((client, identity), None)
            case steps.Leave(_, client):
                self._offers = {key: it for key, it in self._offers.items() if key[0] != client}
                self._patterns = [key for key in self._patterns if key[0] != client]

    def _rest(self, begun_us: int) -> Iterator[steps.Step]:
        """Subscribes to patterns, withdraws some, and publishes after they have settled."""
        chance, now_us = self._chance, begun_us + SETTLED_US
        if not self._offers:
            return
        for _ in range(chance.randint(0, 2)):
            yield self._offer(now_us)
            yield self._subscribe(now_us)
        yield from self._anything(now_us)
        now_us += SETTLED_US
        pace_us = chance.choice((1, 1_000, 20_000, 100_000))
        for _ in range(chance.randint(6, 12)):
            now_us += chance.randrange(pace_us)
            yield self._publish(now_us)
        yield steps.AdvanceTime(begun_us + REST_US - 200_000)

    def _anything(self, now_us: int) -> Iterator[steps.Step]:
        own = [key for key in self._offers if key[1].startswith("o")]
        draw = self._chance.random()
        if draw < 0.2:
            yield steps.AdvanceTime(now_us)
        elif draw < 0.4:
            yield self._offer(now_us)
        elif draw < 0.6 and own:
            yield steps.DropOffer(now_us, *self._chance.choice(own))
        elif draw < 0.8 and self._patterns:
            key = self._patterns.pop(self._chance.randrange(len(self._patterns)))
            yield steps.DropPattern(now_us, *key)
        else:
            yield self._subscribe(now_us)

    def _offer(self, now_us: int) -> steps.Step:
        self._numbered += 1
        client, value = self._chance.choice(self._clients), self._chance.choice(OWN)
        offer = f"a = {value} and b any and c any"
        return steps.AddOffer(now_us, client, f"o{self._numbered}", offer)

    def _subscribe(self, now_us: int) -> steps.Step:
        self._numbered += 1
        self._patterns.append((self._chance.choice(self._clients), f"p{self._numbered}"))
        return steps.AddPattern(now_us, *self._patterns[-1], random_pattern(self._chance))

    def _publish(self, now_us: int) -> steps.Step:
        """Returns a publication within its client's advertisements, if there are any."""
        self._numbered += 1
        tried = [random_values(self._chance) for _ in range(4)]
        if self._chance.random() < 0.6:
            tried = [values | {"a": self._chance.choice(OWN)} for values in tried]
        able = [
            (client, values)
            for values in tried
            for (client, _), offer in self._offers.items()
            if offer is None or is_offered(offer, tuple(values.items()))
        ]
        client, values = self._chance.choice(able or [(self._clients[0], tried[0])])
        return steps.PublishStep(now_us, client, f"m{self._numbered}", values)


def random_pattern(chance: random.Random) -> str:
    """Returns patterns over the attributes of made filters."""
    size = chance.choice((2, 3, 3, 4))
    if chance.random() < 0.6:
        parts = [f"a = {chance.choice(OWN)}" for _ in range(size)]
    else:
        wide = "a any", "a < 8", "a > 4", "b any", "b prefix 'x'"
        parts = [chance.choice((*wide, random_filter(chance))) for _ in range(size)]
    by = chance.choice(("", "", "", " by b", " by @publisher"))
    within = chance.choice(("", "", " within 20 ms", " within 200 ms", " within 1 s"))
    every = chance.choice(("", "every "))
    text = every + " -> ".join(parts) + by + within
    assert not steps.pattern_of(text).is_empty
    return text
