"""The oracle: what a run must have delivered, what it may have, and that it did each once.

*Must*: the filter matches; the subscription, and the advertisement that it needs, were there at a
moment before the publishing at which nothing but notifications was on its way (so they had settled
everywhere), and stay until the last copy of the notification is off its way; and no link on any
shortest way from the publisher to the subscriber changed in between.

*May*: the filter matches, and the subscription is in force when the notification is delivered. (So
nothing is delivered after an unsubscription was acknowledged.)

*Once*: a server gives a notification to a client at most once for a subscription, and the client
takes it once at most. One that moves may be given again by another server what it has; its session
does not take it. Whether a filter matches is asked of the filter itself, never of an index.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from contrada.model import FilterSet
from contrada.routing.router import Strategy
from contrada.simulation.network import Network
from contrada.simulation.records import Change, Delivered, Held, Published

Graph: TypeAlias = Mapping[int, Mapping[int, int]]
"""For each server its neighbours, and the line to each."""

_FAR: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Violation:
    """What does not hold, in one word, and in which case."""

    what: str
    case: str

    def __str__(self) -> str:
        return f"{self.what}: {self.case}"


@dataclass(slots=True)
class Judgement:
    """What an oracle found; `must`, `delivered` and `may` count pairs of notification and wish."""

    violations: list[Violation]
    must: int = 0
    delivered: int = 0
    published: int = 0
    overlapping: int = 0


def judge(network: Network) -> Judgement:
    """Holds what was delivered against what must be and may be."""
    history = network.history
    judgement = Judgement([])
    published = {each.notification.envelope.id: each for each in history.published}
    by_identity: dict[tuple[str, int, str], list[Held]] = defaultdict(list)
    for held in history.wishes:
        by_identity[held.client, held.broker, held.identity].append(held)
    given: set[tuple[str, int, str, str]] = set()
    taken: set[tuple[str, str]] = set()
    for delivered in history.delivered:
        if delivered.is_taken == ((delivered.client, delivered.id) in taken):
            judgement.violations.append(Violation("taken wrongly", f"{delivered}"))
        taken.add((delivered.client, delivered.id))
        for identity in delivered.subscriptions:
            judgement.delivered += 1
            key = (delivered.client, delivered.broker, identity)
            if (*key, delivered.id) in given:
                judgement.violations.append(Violation("twice", f"{delivered}"))
            given.add((*key, delivered.id))
            fault = _fault(published[delivered.id], delivered, by_identity[key])
            if fault is not None:
                judgement.violations.append(Violation(fault, f"{identity} in {delivered}"))
    ways = _Ways(network)
    for each in history.published:
        judgement.published += 1
        judgement.overlapping += each.overlaps
        for held in _must(network, ways, each):
            judgement.must += 1
            key = (held.client, held.broker, held.identity)
            if (*key, each.notification.envelope.id) not in given:
                judgement.violations.append(Violation("lost", _told(each, held)))
    return judgement


def _fault(published: Published, delivered: Delivered, wishes: Iterable[Held]) -> str | None:
    """Why a delivery for a subscription may not be."""
    in_force = [each for each in wishes if each.is_held(delivered.order, delivered.order)]
    if not in_force:
        return "nobody asks"
    if not any(_matches(each, published) for each in in_force):
        return "no match"
    return None


def _matches(held: Held, published: Published) -> bool:
    assert isinstance(held.product, FilterSet)
    return any(each.matches(published.notification) for each in held.product.filters)


def _told(published: Published, held: Held) -> str:
    return (
        f"{published.notification.envelope.id} of {published.client} at {published.broker} "
        f"for {held.identity} of {held.client} at {held.broker}"
    )


def _must(network: Network, ways: "_Ways", published: Published) -> Iterator[Held]:
    """The subscriptions for which a notification must be delivered."""
    end = published.cause.ended
    if end is None:
        return
    if network.kind.strategy is Strategy.ADVERTISEMENTS and not any(
        _stays(each, published.settled, end) for each in published.offers
    ):
        return
    for held in network.history.wishes:
        if (
            _stays(held, published.settled, end)
            and _matches(held, published)
            and ways.hold(published.broker, held.broker, published.settled, end)
        ):
            yield held


def _stays(held: Held, begin: int, end: int) -> bool:
    return held.begun <= begin and (held.ended is None or held.ended > end)


class _Ways:
    """Which ways between servers were there, and stayed."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._changes: dict[int, list[Change]] = defaultdict(list)
        for change in network.history.changes:
            self._changes[change.line].append(change)
        self._known: dict[tuple[int, int], tuple[Graph, frozenset[int]]] = {}
        self._distances: dict[tuple[int, int, int], dict[int, int]] = {}

    def hold(self, a: int, b: int, begin: int, end: int) -> bool:
        """Whether no line on a shortest way between two servers changed, and there is a way.

        All lines count that were up at some time in between, at one end at least, since servers may
        still believe in them.
        """
        graph, unsteady = self._state(begin, end)
        from_a, from_b = self._from(graph, a, begin, end), self._from(graph, b, begin, end)
        length = from_a.get(b)
        if length is None:
            return False
        for line in unsteady:
            x, y = self._network.ends[line]
            for u, v in ((x, y), (y, x)):
                if from_a.get(u, _FAR) + 1 + from_b.get(v, _FAR) == length:
                    return False
        return True

    def _state(self, begin: int, end: int) -> tuple[Graph, frozenset[int]]:
        known = self._known.get((begin, end))
        if known is None:
            known = self._known[begin, end] = self._state_anew(begin, end)
        return known

    def _state_anew(self, begin: int, end: int) -> tuple[Graph, frozenset[int]]:
        graph: dict[int, dict[int, int]] = defaultdict(dict)
        unsteady: set[int] = set()
        for line, changes in self._changes.items():
            up: set[int] = set()
            changed = False
            for change in changes:
                if change.order <= begin:
                    (up.add if change.is_up else up.discard)(change.end)
                elif change.order <= end:
                    changed = True
            if changed or len(up) == 1:
                unsteady.add(line)
            if changed or up:
                a, b = self._network.ends[line]
                graph[a][b] = graph[b][a] = line
        return graph, frozenset(unsteady)

    def _from(self, graph: Graph, start: int, begin: int, end: int) -> dict[int, int]:
        key = (start, begin, end)
        if key not in self._distances:
            self._distances[key] = distances(graph, start)
        return self._distances[key]


def distances(graph: Mapping[int, Iterable[int]], start: int) -> dict[int, int]:
    """How many links away all servers are that can be reached."""
    found = {start: 0}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        for there in graph.get(here, ()):
            if there not in found:
                found[there] = found[here] + 1
                waiting.append(there)
    return found
