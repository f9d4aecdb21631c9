"""`judge`: the oracle of a run: required deliveries, permitted deliveries, and no duplicates.

*Must*: the filter matches; the subscription, and the advertisement that it needs, existed at a
moment before the publishing with no control message in flight (so they had settled everywhere), and
remain until the last copy of the notification has arrived, within its time to live; and no link on
any shortest path from the publisher to the subscriber changed in between.

*May*: the filter matches, and the subscription is in force at the delivery. (So nothing is
delivered after an unsubscription was acknowledged.)

*Once*: a server hands a notification to a client at most once for a subscription, and the client
takes it once at most. A client that moves may receive a notification again from another server; its
session ignores it. The filter itself decides a match, never an index.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from contrada.lab.simulation.path_history import PathCheck, unchanged
from contrada.lab.simulation.run_records import (
    Delivered,
    InterestSpan,
    ObservedNetwork,
    PublishedRecord,
)
from contrada.lab.simulation.timeliness import end_us
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Subscribe


@dataclass(frozen=True, slots=True)
class Violation:
    """The violated rule, in one word, and the case."""

    what: str
    case: str

    def __str__(self) -> str:
        return f"{self.what}: {self.case}"


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
            found.violations.append(Violation("taken wrongly", f"{delivered}"))
        taken.add((delivered.client, delivered.id))
        for identity in delivered.subscriptions:
            found.delivered += 1
            key = (delivered.client, delivered.broker, identity)
            if (*key, delivered.id) in given:
                found.violations.append(Violation("twice", f"{delivered}"))
            given.add((*key, delivered.id))
            fault = _fault(published[delivered.id], delivered, by_identity[key])
            if fault is not None:
                found.violations.append(Violation(fault, f"{identity} in {delivered}"))
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
                found.violations.append(Violation("lost", f"{sent} for {asked}"))
    return found


def _fault(
    published: PublishedRecord, delivered: Delivered, subscriptions: Iterable[InterestSpan]
) -> str | None:
    """Returns why a delivery for a subscription is wrong, or None."""
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
