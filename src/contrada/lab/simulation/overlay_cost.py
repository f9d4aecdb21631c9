"""`measure`: the cost of a network of servers: messages times the length of the links they cross.

The workload is that of SIENA's own studies, see docs/simulation.md: objects of interest publish in
a topic, and interested parties subscribe to one, popular ones more often than others. All messages
of a phase arrive before the next one begins, so every kind of network delivers the same, and only
the cost differs.

`saved`: the savings of covering and merging for a set of subscriptions, at one server. Its clients
subscribe one after another, and it forwards the necessary filters to one neighbour. A filter costs
the neighbour memory, and a check for each notification; a message costs the link. Deliveries are
the same: only the messages differ.

Source: PODC 2000 §4 (a server forwards the most general filters), §5 (simulation studies of
architectures and processing strategies); merging is this project's.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from contrada.lab.simulation.run_records import Delivered
from contrada.lab.simulation.script_steps import Kind
from contrada.lab.simulation.simulated_network import SimulatedNetwork
from contrada.lab.simulation.sites import sites_of
from contrada.lab.simulation.worlds import SAVINGS, kinds
from contrada.model import Advertisement, Envelope, Filter, FilterSet, Notification, Value
from contrada.model.algebra.sets import between, eq, ge
from contrada.routing.router import Router, Strategy
from contrada.routing.router_messages import (
    Advertise,
    Client,
    LinkUp,
    Neighbour,
    Received,
    Role,
    Send,
    Subscribe,
    Unsubscribe,
)

PARTIES_MAX: Final = 100_000
"""Interested parties of one simulated run. Beyond it: the run is refused."""

OBJECTS_MAX: Final = 10_000
"""Objects of interest of one simulated run. Beyond it: the run is refused."""

LEVELS: Final = 10
"""A notification has a level below this; a party subscribes from a lowest or to a single one."""

TOPICS: Final = 20
"""Topics of the objects; the k-th is subscribed in proportion to 1/k."""

PAUSE_US: Final = 1_000
"""Mean time between two actions of a phase."""

COST_PER_LENGTH: Final = 1_000
"""Cost of a link per length, as a whole number, and its delay in microseconds. So the travel time
of a notification measures its path."""

_IDENTITY: Final = "it"
"""The identity of the one subscription, or advertisement, of a client."""


class Plan(msgspec.Struct, frozen=True):
    """One run: a network of servers of a kind, and its clients."""

    kind: Kind
    network: str
    sites: int
    parties: int
    objects: int
    notifications: int
    seed: int


class Cost(msgspec.Struct, frozen=True):
    """The cost of a run in lengths; `path` is a notification's mean path, tables count filters."""

    plan: Plan
    published: int
    delivered: int
    per_notification: float
    per_subscription: float
    per_advertisement: float
    link_states: float
    table_mean: float
    table_max: int
    path: float

    @property
    def total(self) -> float:
        """All costs of the run but those of link states."""
        plan = self.plan
        return (
            self.per_notification * self.published
            + self.per_subscription * plan.parties
            + self.per_advertisement * plan.objects
        )


def plans(
    network: str, sites: int, parties: Sequence[int], *, objects: int, notifications: int, seed: int
) -> list[Plan]:
    """Returns a sweep: each kind of network once, with each number of parties.

    A single server neither forwards nor covers, and flooding forwards no subscriptions.
    """
    return [
        Plan(kind, network, sites, count, objects, notifications, seed)
        for kind in kinds()
        if not kind.reliable and not (kind.strategy is Strategy.FLOODING and kind.covering)
        for count in parties
        if kind.shape != "central"
        or (kind.strategy is Strategy.SUBSCRIPTIONS and not kind.covering)
    ]


def measure(plan: Plan) -> Cost:
    """Runs a plan. A pure function; cost: some seconds for thousands of parties."""
    return _PlanRun(plan).measure()


class _PlanRun:
    """A network and its clients, during a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sites = sites_of(plan.network, plan.sites, plan.seed)
        self._chance = random.Random(f"{plan.seed} {plan.parties} {plan.objects}")
        self._is_central = plan.kind.shape == "central"
        self._network = SimulatedNetwork(plan.kind, 1 if self._is_central else self._sites.count)
        self._to_middle = self._sites.distances(self._sites.middle())
        self._places: dict[str, int] = {}
        self._topics: dict[str, int] = {}
        self._published: dict[str, tuple[str, int]] = {}
        self._carried: defaultdict[str, float] = defaultdict(float)
        self._lengths: list[float] = []
        for a, b, is_parent in self._sites.links(plan.kind.shape):
            length = self._sites.lengths[min(a, b), max(a, b)]
            cost = 1 + round(length * COST_PER_LENGTH)
            self._network.connect(a, b, is_parent=is_parent, delay_us=cost, cost=cost)
            self._lengths.append(length)
        self._network.schedule.run()

    def measure(self) -> Cost:
        plan, network = self._plan, self._network
        link_states = self._cost("AnnounceLinks", "AckLinks")
        objects = [f"object {each}" for each in range(plan.objects)]
        parties = [f"party {each}" for each in range(plan.parties)]
        for name in (*objects, *parties):
            self._places[name] = self._chance.randrange(self._sites.count)
            network.move(name, 0 if self._is_central else self._places[name])
        self._all(objects, self._advertise)
        self._all(parties, self._subscribe)
        held = [each.statistics().filters.nodes for each in network.routers if each is not None]
        self._all([name for name in objects for _ in range(plan.notifications)], self._publish)
        self._all(parties, lambda name: self._withdraw(name, Subscribe))
        self._all(objects, lambda name: self._withdraw(name, Advertise))
        for delivered in network.history.delivered:
            self._carry(delivered.client, "Publish")
        published = len(network.history.published)
        return Cost(
            plan,
            published,
            len(network.history.delivered),
            _ratio(self._cost("Publish"), published),
            _ratio(self._cost("Subscribe", "Unsubscribe"), plan.parties),
            _ratio(self._cost("Advertise", "Unadvertise"), plan.objects),
            round(link_states, 6),
            _ratio(sum(held), len(held)),
            max(held),
            _ratio(sum(map(self._path, network.history.delivered)), len(network.history.delivered)),
        )

    def _path(self, delivered: Delivered) -> float:
        """Returns the path of a notification, including those to and from a central server."""
        publisher, at_us = self._published[delivered.id]
        far = (delivered.at_us - at_us) / COST_PER_LENGTH
        if self._is_central:
            clients = publisher, delivered.client
            far += sum(self._to_middle[self._places[each]] for each in clients)
        return far

    def _all(self, names: list[str], act: Callable[[str], None]) -> None:
        """Lets each client act, at random times in random order; then all messages arrive."""
        schedule = self._network.schedule
        for name in self._chance.sample(names, len(names)):
            schedule.run(schedule.now_us + round(self._chance.expovariate(1 / PAUSE_US)))
            act(name)
        schedule.run()

    def _cost(self, *kinds: str) -> float:
        traffic, lengths = sorted(self._network.traffic.items()), self._lengths
        travelled = (count * lengths[line] for (line, kind), count in traffic if kind in kinds)
        return sum(travelled) + sum(self._carried[kind] for kind in kinds)

    def _carry(self, client: str, kind: str) -> None:
        """Charges a message between a client and a central server, along the shortest path.

        As between servers, advertisements are forwarded only by their strategy.
        """
        is_offer = kind in ("Advertise", "Unadvertise")
        if is_offer and self._plan.kind.strategy is not Strategy.ADVERTISEMENTS:
            return
        if self._is_central:
            self._carried[kind] += self._to_middle[self._places[client]]

    # --- behaviours ---------------------------------------------------------------------------

    def _advertise(self, name: str) -> None:
        self._topics[name] = _topic(self._chance)
        offer = Advertisement({"topic": eq(self._topics[name]), "level": between(0, LEVELS)})
        self._carry(name, "Advertise")
        self._network.ask(name, Advertise(_IDENTITY, offer))

    def _subscribe(self, name: str) -> None:
        self._carry(name, "Subscribe")
        self._network.ask(name, Subscribe(_IDENTITY, filter_of(self._chance)))

    def _withdraw(self, name: str, kind: type[Subscribe | Advertise]) -> None:
        self._carry(name, "Unsubscribe" if kind is Subscribe else "Unadvertise")
        self._network.withdraw(name, kind, _IDENTITY)

    def _publish(self, name: str) -> None:
        number = len(self._network.history.published)
        level = self._chance.randrange(LEVELS)
        values: dict[str, Value] = {"topic": self._topics[name], "level": level}
        self._carry(name, "Publish")
        self._published[f"n{number}"] = name, self._network.schedule.now_us
        self._network.publish(name, Notification(values, envelope=Envelope(id=f"n{number}")))


def filter_of(chance: random.Random) -> Filter:
    """Returns the filter of a party."""
    level = chance.randrange(LEVELS)
    levels = ge(level) if chance.random() < 0.7 else eq(level)
    return Filter({"topic": eq(_topic(chance)), "level": levels})


def _topic(chance: random.Random) -> int:
    weights = [1 / rank for rank in range(1, TOPICS + 1)]
    return chance.choices(range(TOPICS), weights)[0]


def _ratio(cost: float, count: int) -> float:
    return round(cost / count, 6) if count else 0.0


MEASURES: Final[dict[str, tuple[str, Callable[[Cost], float]]]] = {
    "notification": ("cost per notification", lambda cost: cost.per_notification),
    "subscription": ("cost per subscription", lambda cost: cost.per_subscription),
    "table": ("filters held by a server, mean", lambda cost: cost.table_mean),
    "total": ("cost in all, without link states", lambda cost: cost.total),
}
"""The charts: for each file its title and its measure."""

_DASHES: Final = {"plain": ":", "covering": "--", "merging": "-"}


def draw(costs: Sequence[Cost], folder: Path, form: str) -> list[Path]:
    """Draws a chart per measure into a folder, as `png` or `svg`. Returns the files."""
    # The library is large, and asked for only here.
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "contrada"
    folder.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[Cost]] = {}
    for cost in sorted(costs, key=lambda cost: cost.plan.parties):
        lines.setdefault(cost.plan.kind.name, []).append(cost)
    families = dict.fromkeys(cost.plan.kind.name.rpartition(", ")[0] for cost in costs)
    colours = {name: f"C{place % 10}" for place, name in enumerate(families)}
    files = []
    for name, (title, figure_of) in MEASURES.items():
        figure = Figure(figsize=(10, 6), layout="constrained")
        axes = figure.subplots()
        for kind, row in lines.items():
            family, _, saving = kind.rpartition(", ")
            parties = [cost.plan.parties for cost in row]
            (line,) = axes.plot(parties, [*map(figure_of, row)], "o", label=kind, markersize=3)
            line.set(color=colours[family], linestyle=_DASHES[saving])
        axes.set(xscale="log", yscale="symlog", xlabel="interested parties", title=title)
        figure.legend(loc="outside right upper", fontsize="x-small")
        files.append(folder / f"overlay-{name}.{form}")
        figure.savefig(files[-1], metadata={"Date": None} if form == "svg" else None)
    return files


# --- covering and merging -------------------------------------------------------------------------

_NEXT: Final = Neighbour("next")


class Saved(msgspec.Struct, frozen=True):
    """The filters at the neighbour at the end, and the messages to it, without saving and with.

    Each is a triple: plain, covering, merging. `refused` subscriptions match nothing, or exceed a
    limit.
    """

    name: str
    subscriptions: int
    refused: int
    filters: tuple[int, ...]
    messages: tuple[int, ...]


def saved(
    name: str, subscriptions: Sequence[Filter | FilterSet], told: Callable[[], None] = lambda: None
) -> Saved:
    """Forwards subscriptions in order, plain, then with covering, then with merging.

    `told` is called for each of them, three times. Cost: all subscriptions at a router; rules with
    much text take some milliseconds each.
    """
    runs = [_forward(subscriptions, told, covering, merging) for covering, merging in SAVINGS]
    filters, messages, refused = zip(*runs, strict=True)
    return Saved(name, len(subscriptions), refused[0], filters, messages)


def _forward(
    subscriptions: Sequence[Filter | FilterSet],
    told: Callable[[], None],
    covering: bool,
    merging: bool,
) -> tuple[int, int, int]:
    """(filters at the neighbour, messages to it, subscriptions refused)."""
    router = Router(covering=covering, merging=merging)
    router.handle(LinkUp(_NEXT, Role.PEER), 0)
    begun = ended = refused = 0
    for number, each in enumerate(subscriptions):
        for effect in router.handle(Received(Client(f"party {number}"), Subscribe("it", each)), 0):
            match effect:
                case Send(_, Subscribe()):
                    begun += 1
                case Send(_, Unsubscribe()):
                    ended += 1
                case _:
                    refused += 1
        told()
    return begun - ended, begun + ended, refused
