"""`judge`, `judge_delivery`: the oracle of a run, for deliveries and for delivery guarantees.

docs/simulation.md has *must*, *may* and *once* of deliveries. By *may*, nothing is delivered after
an unsubscription was acknowledged. The filter itself decides a match, never an index.

For delivery guarantees, over the records of a run:

*Lost*: an accepted notification is read, by the end of the world, from every matching durable
subscription that all servers knew at the time of publishing. Losses that the class permits are
excused: reliable after a crash of its access point or a sequencer, or of the owner of a
subscription in memory; certified if one of these lost its disk. And every loss, once the
publications exceed the subscription's room, unless it refuses publishers. *Double*: a log has a
notification once, and an acknowledged record never returns. Excused if an access point lost its
disk, with the numbers of its publishers. *Spurious*: a log has only matching notifications, and no
refused ones. *FIFO*, *causal*, *total*: the order of each log, in which it is also read. *Replay*:
a replayed log has the same records at the same positions.

Source: EPFL 2503 §5.2.2.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from math import inf
from textwrap import indent
from typing import TypeAlias

from contrada.delivery.retention import OnFull
from contrada.lab.simulation.run_records import (
    Change,
    Delivered,
    DeliveryHistory,
    DurableSpan,
    InterestSpan,
    ObservedNetwork,
    PublishedRecord,
    Sent,
)
from contrada.lab.simulation.simulated_network import name_of
from contrada.lab.simulation.simulated_readers import end_us
from contrada.lab.simulation.sites import SiteGraph, distances, graph_of
from contrada.routing.links.shortest_paths import rank_of, tree_of
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Role, Subscribe

PathCheck: TypeAlias = Callable[[int, int, int, int], bool]
"""Whether the path between two servers held from one order to another."""

_LinesBetween: TypeAlias = Callable[[int, int], tuple[list[int], list[int]]]

_RootPath: TypeAlias = list[tuple[int, float]]
"""The servers from one to the root, each with its distance from the root."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The violated rule, in one word, the case, and the story of the `identities` concerned."""

    what: str
    case: str
    identities: tuple[str, ...] = ()
    story: str = ""

    def __str__(self) -> str:
        case = f"{self.what}: {self.case}"
        return f"{case}\n{indent(self.story, '  ')}" if self.story else case


@dataclass(slots=True)
class Outcome:
    """The result of a world: its violations, and the size of the check.

    `must` and `delivered` count pairs of notification and subscription, `overlapping` publications
    with control messages in flight; `matches_must` and `matches` count the required and the
    delivered matches of patterns.
    """

    violations: list[Violation] = field(default_factory=list)
    must: int = 0
    delivered: int = 0
    published: int = 0
    overlapping: int = 0
    handled: int = 0
    matches_must: int = 0
    matches: int = 0


def judge(network: ObservedNetwork) -> Outcome:
    """Compares the deliveries with the required and the permitted ones."""
    history = network.history
    found = Outcome(handled=len(history.handled))
    published = {each.notification.envelope.id: each for each in history.published}
    by_identity: dict[tuple[str, int, str], list[InterestSpan]] = defaultdict(list)
    for held in history.subscriptions:
        by_identity[held.client, held.broker, held.message.identity].append(held)
    given: set[tuple[str, int, str, str]] = set()
    taken: set[tuple[str, str]] = set()
    for delivered in history.delivered:
        if delivered.is_taken == ((delivered.client, delivered.id) in taken):
            found.violations.append(Violation("taken wrongly", f"{delivered}", (delivered.id,)))
        taken.add((delivered.client, delivered.id))
        for identity in delivered.subscriptions:
            found.delivered += 1
            key = (delivered.client, delivered.broker, identity)
            if (*key, delivered.id) in given:
                found.violations.append(Violation("twice", f"{delivered}", (delivered.id,)))
            given.add((*key, delivered.id))
            fault = _fault(published[delivered.id], delivered, by_identity[key])
            if fault is not None:
                concerned = delivered.id, f"{delivered.client}/{identity}"
                case = f"{identity} in {delivered}"
                found.violations.append(Violation(fault, case, concerned))
    hold = unchanged(network)
    for each in history.published:
        found.published += 1
        found.overlapping += each.overlaps
        for held in _must(network, hold, each):
            found.must += 1
            key = (held.client, held.broker, held.message.identity)
            if (*key, each.notification.envelope.id) not in given:
                sent = f"{each.notification.envelope.id} of {each.client} at {each.broker}"
                asked = f"{held.message.identity} of {held.client} at {held.broker}"
                lost = each.notification.envelope.id, f"{held.client}/{held.message.identity}"
                found.violations.append(Violation("lost", f"{sent} for {asked}", lost))
    return found


def _fault(
    published: PublishedRecord, delivered: Delivered, subscriptions: Iterable[InterestSpan]
) -> str | None:
    in_force = [each for each in subscriptions if each.is_held(delivered.order, delivered.order)]
    if not in_force:
        return "nobody asks"
    if not any(_matches(each, published) for each in in_force):
        return "no match"
    return None


def _matches(held: InterestSpan, published: PublishedRecord) -> bool:
    assert isinstance(held.message, Subscribe)
    return any(each.matches(published.notification) for each in held.message.filters.filters)


def _must(
    network: ObservedNetwork, hold: PathCheck, published: PublishedRecord
) -> Iterator[InterestSpan]:
    end = published.cause.ended
    if end is None or published.cause.ended_us >= end_us(published.notification.envelope):
        return
    if network.kind.strategy is Strategy.ADVERTISEMENTS and not any(
        stays(each, published.settled, end) for each in published.offers
    ):
        return
    for held in network.history.subscriptions:
        is_settled = stays(held, published.settled, end) and _matches(held, published)
        if is_settled and hold(published.broker, held.broker, published.settled, end):
            yield held


def stays(held: InterestSpan, begin: int, end: int) -> bool:
    """Whether it was in force at an order, and until after another one."""
    return held.begun <= begin and (held.ended is None or held.ended > end)


# --- paths ----------------------------------------------------------------------------------------


def unchanged(network: ObservedNetwork) -> PathCheck:
    """Returns the `PathCheck` of a network: by its paths or by its shared trees.

    Lines count that were up at some time in between, at one end at least, since servers may still
    believe in them. *Unsteady* lines are those that changed, or were up at one end only.
    """
    changes: dict[int, list[Change]] = defaultdict(list)
    for change in network.history.changes:
        changes[change.line].append(change)

    @cache
    def lines(begin: int, end: int) -> tuple[list[int], list[int]]:
        """The lines that count, and the unsteady ones among them."""
        counting, unsteady = [], []
        for line, of_line in changes.items():
            up: set[int] = set()
            for change in of_line:
                if change.order <= begin:
                    (up.add if change.is_up else up.discard)(change.end)
            has_changed = any(begin < change.order <= end for change in of_line)
            if has_changed or up:
                counting.append(line)
            if has_changed or len(up) == 1:
                unsteady.append(line)
        return counting, unsteady

    return (_unchanged_trees if network.kind.trees else _unchanged_paths)(network, lines)


def _unchanged_paths(network: ObservedNetwork, lines: _LinesBetween) -> PathCheck:
    """By the shortest paths: no line on one of them is unsteady."""

    @cache
    def graph(begin: int, end: int) -> SiteGraph:
        counting, _ = lines(begin, end)
        return graph_of((*network.ends[line], network.costs[line]) for line in counting)

    @cache
    def links_from(start: int, begin: int, end: int) -> dict[int, float]:
        return distances(graph(begin, end), start)

    def hold(a: int, b: int, begin: int, end: int) -> bool:
        from_a, from_b = links_from(a, begin, end), links_from(b, begin, end)
        return b in from_a and not any(
            from_a.get(u, inf) + network.costs[line] + from_b.get(v, inf) == from_a[b]
            for line in lines(begin, end)[1]
            for u, v in (network.ends[line], network.ends[line][::-1])
        )

    return hold


class _UpLines:
    """Some lines: parents by child, and the mesh."""

    def __init__(self, network: ObservedNetwork, lines: list[int]) -> None:
        self._parents: dict[int, int] = {}
        mesh: list[tuple[int, int, float]] = []
        for line in lines:
            a, b = network.ends[line]
            if network.role(a, b) is Role.PEER:
                mesh.append((a, b, network.costs[line]))
            else:
                self._parents[b] = a
        self._mesh = graph_of(mesh)
        self.chain = cache(self._chain)
        self._places = cache(self._find_places)

    def entry(self, server: int) -> int:
        """Returns the server of entry to the mesh: the topmost above a server."""
        while server in self._parents:
            server = self._parents[server]
        return server

    def _chain(self, server: int, label: str) -> _RootPath:
        chain: _RootPath = []
        while server in self._parents:
            chain.append((server, 0))
            server = self._parents[server]
        far = self._places(server, label)
        chain.append((server, far.get(server, 0)))
        while chain[-1][1]:
            links = self._mesh[server].items()
            ahead = [each for each, length in links if far[each] + length == far[server]]
            server = min(ahead, key=name_of)
            chain.append((server, far[server]))
        return chain

    def _find_places(self, server: int, label: str) -> dict[int, float]:
        """Returns the distances from the root of a server's part of the mesh."""
        part = distances(self._mesh, server)
        return distances(self._mesh, min(part, key=lambda each: rank_of(name_of(each), label)))


def _unchanged_trees(network: ObservedNetwork, lines: _LinesBetween) -> PathCheck:
    """By the shared trees.

    A server's rank in such a tree is the least that the links allow, so more links lower it, or
    leave it. The ranks are computed twice: over all lines that count, and over the steady ones. If
    a server and all servers between it and the root have the same ranks both times, they had them
    at every moment between.
    """

    @cache
    def bounds(begin: int, end: int) -> tuple[_UpLines, _UpLines]:
        counting, unsteady = lines(begin, end)
        steady = [line for line in counting if line not in unsteady]
        return _UpLines(network, counting), _UpLines(network, steady)

    def hold(a: int, b: int, begin: int, end: int) -> bool:
        most, least = bounds(begin, end)
        label = tree_of(name_of(most.entry(a)), network.kind.trees)
        chains = [most.chain(each, label) for each in (a, b)]
        is_joined = chains[0][-1] == chains[1][-1]
        return is_joined and chains == [least.chain(each, label) for each in (a, b)]

    return hold


# --- delivery guarantees --------------------------------------------------------------------------


def judge_delivery(delivery: DeliveryHistory, outcome: Outcome) -> Iterator[Violation]:
    """Yields all violations of the guarantees, and counts the publications and pairs."""
    logs = {name: dict[int, str]() for name in delivery.subscriptions}
    for (_, name), read in delivery.reads.items():
        for position, id_ in read.records.items():
            if logs[name].setdefault(position, id_) != id_:
                yield Violation("replay", f"{name} gives {id_} at {position}, gave another", (id_,))
    sent = delivery.sent
    in_order = {name: [sent[of[at]] for at in sorted(of)] for name, of in logs.items()}
    outcome.published += len(sent)
    outcome.delivered += sum(map(len, in_order.values()))
    yield from (Violation(what, case) for what, case in delivery.faults)
    yield from _lost(delivery, in_order, outcome)
    for name, log in in_order.items():
        yield from _check_contents(delivery, delivery.subscriptions[name], log)
        yield from _out_of_order(name, log)
    yield from _not_total(in_order)


def _lost(
    delivery: DeliveryHistory, logs: dict[str, list[Sent]], outcome: Outcome
) -> Iterator[Violation]:
    there = {name: {sent.id for sent in log} for name, log in logs.items()}
    spans = delivery.subscriptions
    overflown = {name for name, span in spans.items() if _may_overflow(delivery, span)}
    for sent in delivery.sent.values():
        if not sent.is_accepted:
            continue
        for name in sent.known:
            subscription = delivery.subscriptions[name]
            if name in overflown or _is_excused(delivery, sent, subscription):
                continue
            outcome.must += 1
            if sent.id not in there[name]:
                case = f"{sent.id} of {sent.client} for {name}: {sent.guarantee}"
                yield Violation("lost", case, (sent.id,))


def _may_overflow(delivery: DeliveryHistory, subscription: DurableSpan) -> bool:
    """Whether records may have been dropped, or the subscription ended, for lack of room."""
    if subscription.retention.on_full is OnFull.REFUSE:
        return False
    matches, all_sent = subscription.filters.matches, delivery.sent.values()
    published = sum(len(sent.brokers) for sent in all_sent if matches(sent.notification))
    return published > subscription.retention.records_max


def _is_excused(delivery: DeliveryHistory, sent: Sent, subscription: DurableSpan) -> bool:
    if subscription.has_ended or subscription.is_lost:
        return True
    for order, broker, disk_survived in delivery.crashes:
        if sent.guarantee.sequence and broker in delivery.sequencers and not disk_survived:
            return True
        if order < sent.order:
            continue
        if sent.guarantee.is_certified and disk_survived:
            continue
        if broker in sent.brokers or (sent.guarantee.sequence and broker in delivery.sequencers):
            return True
    return False


def _check_contents(
    delivery: DeliveryHistory, subscription: DurableSpan, log: list[Sent]
) -> Iterator[Violation]:
    seen: set[str] = set()
    # The servers that lost their disk, with the numbers of publishers.
    lost = {broker for _, broker, disk_survived in delivery.crashes if not disk_survived}
    for sent in log:
        case = f"{sent.id} of {sent.client} in {subscription.name}"
        if sent.id in seen and lost.isdisjoint(sent.brokers):
            yield Violation("double", case, (sent.id,))
        seen.add(sent.id)
        if not subscription.filters.matches(sent.notification):
            yield Violation("no match", case, (sent.id,))
        if sent.error is not None:
            yield Violation("refused", f"{case}: {sent.error}", (sent.id,))


def _out_of_order(name: str, log: list[Sent]) -> Iterator[Violation]:
    last: defaultdict[str, int] = defaultdict(int)
    place = {sent.id: at for at, sent in enumerate(log)}
    causal = {sent.id for sent in log if sent.guarantee.is_causal}
    for at, sent in enumerate(log):
        if sent.guarantee.is_fifo:
            if sent.sequence < last[sent.client]:
                case = f"{sent.id} of {sent.client} comes late in {name}"
                yield Violation("FIFO", case, (sent.id,))
            last[sent.client] = max(last[sent.client], sent.sequence)
        if sent.guarantee.is_causal:
            late = [each for each in sent.past & causal if place[each] > at]
            if late:
                yield Violation("causal", f"{sent.id} comes before {late} in {name}", (sent.id,))


def _not_total(logs: dict[str, list[Sent]]) -> Iterator[Violation]:
    """Yields cycles of all logs: without one, a common order exists."""
    sequences: defaultdict[str, TopologicalSorter[str]] = defaultdict(TopologicalSorter)
    for log in logs.values():
        before: dict[str, str] = {}
        for sent in log:
            sequence = sent.guarantee.sequence
            if sequence:
                sequences[sequence].add(sent.id, *filter(None, [before.get(sequence)]))
                before[sequence] = sent.id
    for sequence, order in sequences.items():
        try:
            order.prepare()
        except CycleError as error:
            yield Violation("total", f"in {sequence} there is a circle: {error.args[1]}")
