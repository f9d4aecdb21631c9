"""`judge_delivery`: a checker for each delivery guarantee, over the records of a run.

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
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from contrada.delivery.durable_log import OnFull
from contrada.lab.simulation.delivery_history import DeliveryHistory, DurableSpan, Sent
from contrada.lab.simulation.oracle import Violation


@dataclass(slots=True)
class DeliveryVerdict:
    """The pairs of notification and subscription that had to be delivered, and that were."""

    must: int = 0
    read: int = 0


def judge_delivery(delivery: DeliveryHistory, kept: DeliveryVerdict) -> Iterator[Violation]:
    """Yields all violations."""
    logs = {name: dict[int, str]() for name in delivery.subscriptions}
    for (_, name), read in delivery.reads.items():
        for position, id_ in read.records.items():
            if logs[name].setdefault(position, id_) != id_:
                yield Violation("replay", f"{name} gives {id_} at {position}, gave another")
    sent = delivery.sent
    in_order = {name: [sent[of[at]] for at in sorted(of)] for name, of in logs.items()}
    kept.read += sum(map(len, in_order.values()))
    for double in delivery.doubles:
        yield Violation("double", double)
    yield from _lost(delivery, in_order, kept)
    for name, log in in_order.items():
        yield from _check_contents(delivery, delivery.subscriptions[name], log)
        yield from _out_of_order(name, log)
    yield from _not_total(in_order)


def _lost(
    delivery: DeliveryHistory, logs: dict[str, list[Sent]], kept: DeliveryVerdict
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
            kept.must += 1
            if sent.id not in there[name]:
                yield Violation("lost", f"{sent.id} of {sent.client} for {name}: {sent.guarantee}")


def _may_overflow(delivery: DeliveryHistory, subscription: DurableSpan) -> bool:
    """Whether records may have been dropped, or the subscription ended, for lack of room."""
    if subscription.retention.on_full is OnFull.REFUSE:
        return False
    matches, all_sent = subscription.filters.matches, delivery.sent.values()
    published = sum(len(sent.brokers) for sent in all_sent if matches(sent.notification))
    return published > subscription.retention.records_max


def _is_excused(delivery: DeliveryHistory, sent: Sent, subscription: DurableSpan) -> bool:
    """Whether a subscription may lack an accepted notification."""
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
            yield Violation("double", case)
        seen.add(sent.id)
        if not subscription.filters.matches(sent.notification):
            yield Violation("no match", case)
        if sent.error is not None:
            yield Violation("refused", f"{case}: {sent.error}")


def _out_of_order(name: str, log: list[Sent]) -> Iterator[Violation]:
    last: defaultdict[str, int] = defaultdict(int)
    place = {sent.id: at for at, sent in enumerate(log)}
    causal = {sent.id for sent in log if sent.guarantee.is_causal}
    for at, sent in enumerate(log):
        if sent.guarantee.is_fifo:
            if sent.sequence < last[sent.client]:
                yield Violation("FIFO", f"{sent.id} of {sent.client} comes late in {name}")
            last[sent.client] = max(last[sent.client], sent.sequence)
        if sent.guarantee.is_causal:
            late = [each for each in sent.past & causal if place[each] > at]
            if late:
                yield Violation("causal", f"{sent.id} comes before {late} in {name}")


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
