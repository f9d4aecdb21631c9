"""The oracle: which deliveries a run must have made, which it may have, and each only once.

*Must*: the filter matches; the subscription, and the advertisement that it needs, were there at a
moment before the publishing at which nothing but notifications was on its way (so they had settled
everywhere), and stay until the last copy of the notification is off its way, which is before its
time to live is over; and no link on any shortest way from the publisher to the subscriber changed
in between.

*May*: the filter matches, and the subscription is in force when the notification is delivered. (So
nothing is delivered after an unsubscription was acknowledged.)

*Once*: a server gives a notification to a client at most once for a subscription, and the client
takes it once at most. A client that moves may be given a notification again by another server; its
session ignores it. Whether a filter matches is asked of the filter itself, never of an index.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from contrada.lab.simulation.path_history import Hold, unchanged
from contrada.lab.simulation.run_records import Delivered, Held, Observed, PublishedRecord
from contrada.lab.simulation.timeliness import end_us
from contrada.routing.router import Strategy
from contrada.routing.router_messages import Subscribe


@dataclass(frozen=True, slots=True)
class Violation:
    """What does not hold, in one word, and in which case."""

    what: str
    case: str

    def __str__(self) -> str:
        return f"{self.what}: {self.case}"


@dataclass(slots=True)
class Outcome:
    """What came of a world: what does not hold, and how much was looked at.

    `must` and `delivered` count pairs of notification and wish, `overlapping` what was published
    while control messages were on their way; `matches_must` and `matches` count the matches of
    patterns, those that must be delivered and all that were.
    """

    violations: list[Violation] = field(default_factory=list)
    must: int = 0
    delivered: int = 0
    published: int = 0
    overlapping: int = 0
    handled: int = 0
    matches_must: int = 0
    matches: int = 0


def judge(network: Observed) -> Outcome:
    """Holds what was delivered against what must be and may be."""
    history = network.history
    found = Outcome(handled=len(history.handled))
    published = {each.notification.envelope.id: each for each in history.published}
    by_identity: dict[tuple[str, int, str], list[Held]] = defaultdict(list)
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
                found.violations.append(Violation("lost", _told(each, held)))
    return found


def _fault(published: PublishedRecord, delivered: Delivered, wishes: Iterable[Held]) -> str | None:
    """Why a delivery for a subscription may not be."""
    in_force = [each for each in wishes if each.is_held(delivered.order, delivered.order)]
    if not in_force:
        return "nobody asks"
    if not any(_matches(each, published) for each in in_force):
        return "no match"
    return None


def _matches(held: Held, published: PublishedRecord) -> bool:
    assert isinstance(held.message, Subscribe)
    return any(each.matches(published.notification) for each in held.message.filters.filters)


def _told(published: PublishedRecord, held: Held) -> str:
    return (
        f"{published.notification.envelope.id} of {published.client} at {published.broker} "
        f"for {held.message.identity} of {held.client} at {held.broker}"
    )


def _must(network: Observed, hold: Hold, published: PublishedRecord) -> Iterator[Held]:
    """The subscriptions for which a notification must be delivered."""
    end = published.cause.ended
    if end is None or published.cause.ended_us >= end_us(published.notification.envelope):
        return
    if network.kind.strategy is Strategy.ADVERTISEMENTS and not any(
        stays(each, published.settled, end) for each in published.offers
    ):
        return
    for held in network.history.subscriptions:
        if (
            stays(held, published.settled, end)
            and _matches(held, published)
            and hold(published.broker, held.broker, published.settled, end)
        ):
            yield held


def stays(held: Held, begin: int, end: int) -> bool:
    """Whether it was in force at an order, and until after another one."""
    return held.begun <= begin and (held.ended is None or held.ended > end)
