"""`run`: a world: a script is run, everything is repaired, and the network must equal a fresh one.

docs/simulation.md has the checks at the end. Tables are compared per line as sets of notifications;
with advertisement forwarding, of those that are advertised over the line. Violations have stories
(`story_in_world`): a run has one order of all events, so the transitions need no merge.
"""

import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Final

import msgspec

from contrada.delivery.retention import Retention
from contrada.lab.simulation import script_steps as steps
from contrada.lab.simulation.oracle import Outcome, Violation, judge, judge_delivery
from contrada.lab.simulation.pattern_oracle import judge_matches
from contrada.lab.simulation.simulated_delivery import (
    DeliveryEvent,
    SimulatedDelivery,
    with_redelivery,
)
from contrada.lab.simulation.simulated_network import SLACK_US, SimulatedNetwork, name_of
from contrada.lab.simulation.simulated_readers import check_reads
from contrada.lab.simulation.simulated_standby import SimulatedStandby
from contrada.model import Envelope, Filter, FilterSet, Notification
from contrada.model.algebra.relations import covers
from contrada.routing.delegation import SubscribePattern
from contrada.routing.router import Router, Strategy
from contrada.routing.router_limits import RouterLimits
from contrada.routing.router_messages import (
    Advertise,
    LinkDown,
    LinkUp,
    Neighbour,
    Offer,
    Reason,
    Received,
    Role,
    Subscribe,
)
from contrada.service.story import Story, StoryStep, Transition
from contrada.service.story_reader import StoryReader

VALIDATED_BROKERS_MAX: Final = 12
"""Servers of a network with checked invariants. Beyond it: only their messages are checked."""

REROUTED: Final = (500, 1, 3)
"""Registrations that are routed anew in one turn, in different worlds."""

PROBES_MAX: Final = 12
"""Notifications published again after the repairs. Beyond it: the last ones."""

STORIES_MAX: Final = 3
"""Violations of a world with a story. Beyond it: the others have none."""

STORY_LINES_MAX: Final = 100
"""Transitions in the story of a violation. Beyond it: the last ones."""

EXPECTED_REFUSALS: Final = frozenset({Reason.DUPLICATE})
"""Permitted refusals of a correct network: paths change while copies travel."""


def run(script: steps.Script) -> Outcome:
    """Runs a script and its end. A pure function."""
    network = network_of(script)
    try:
        broken = list(_run(script, network))
        outcome = judge(network)
        if network.delivery is not None:
            outcome.violations += judge_delivery(network.delivery, outcome)
        judge_matches(network, outcome)
    except Exception as error:  # noqa: BLE001 - worlds look for any error of a router
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.name} line {place.lineno}"
        return Outcome([Violation("raises", f"{type(error).__name__} {error} in {where}")])
    outcome.violations += [
        Violation("refuses", f"{effect.reason}: {effect.event} at {broker}")
        for broker, effect in network.history.refused
        if effect.reason not in EXPECTED_REFUSALS
    ]
    published = (each.notification.envelope for each in network.history.published)
    envelopes = {envelope.id: envelope for envelope in published}
    reads = check_reads(network.readers.noted, envelopes)
    outcome.violations += [Violation(what, case) for what, case in reads]
    outcome.violations = with_stories([*outcome.violations, *broken], network)
    return outcome


def network_of(script: steps.Script) -> SimulatedNetwork:
    """Returns the servers of a script, before its first step."""
    return SimulatedNetwork(
        script.kind,
        script.brokers,
        faults=script.faults,
        seed=script.seed,
        records=True,
        validates=script.brokers <= VALIDATED_BROKERS_MAX,
        storeless=script.storeless,
        router_limits=RouterLimits(rerouted_per_turn=REROUTED[script.seed % len(REROUTED)]),
    )


def _run(script: steps.Script, network: SimulatedNetwork) -> Iterator[Violation]:
    for step in script.steps:
        network.schedule.run(step.at_us)
        do(network, step)
    for step in script.steps:
        if isinstance(step, steps.Connect) and (line := network.line(step.a, step.b)) is not None:
            line.mend()
    for broker in range(script.brokers):
        network.restart(broker)
    if network.delivery is not None:
        network.delivery.repair()
    network.schedule.run()
    if network.delivery is not None:
        network.delivery.audit(network.schedule.run)
    network.readers.resume_all()
    fresh = _fresh(script)
    empty = _holdings(fresh)
    yield from _compare_tables(fresh, network)
    _probe(script, network)
    # All publications are older than the slack then.
    network.schedule.run(network.schedule.now_us + SLACK_US + 1)
    network.advance_time()
    network.schedule.run()
    yield from _find_leftovers(empty, network)


def do(network: SimulatedNetwork, step: steps.Step) -> None:  # noqa: C901 - one line for each kind of step
    """Performs a step, if possible."""
    match step:
        case steps.Connect(_, a, b, is_parent, delay_us, cost):
            if network.line(a, b) is None:
                network.connect(a, b, is_parent=is_parent, delay_us=delay_us, cost=cost)
        case steps.CutLine(_, a, b):
            if (line := network.line(a, b)) is not None:
                line.cut()
        case steps.MendLine(_, a, b):
            if (line := network.line(a, b)) is not None:
                line.mend()
        case steps.Crash(_, broker, keeps_store):
            network.crash(broker, keeps_store=keeps_store)
        case steps.Restart(_, broker):
            network.restart(broker)
        case steps.Move(_, client, broker):
            network.move(client, broker)
        case steps.Leave(_, client):
            network.leave(client)
        case steps.AddFilter(_, client, identity, filters):
            network.ask(client, Subscribe(identity, steps.filters_of(filters)))
        case steps.DropFilter(_, client, identity):
            network.withdraw(client, Subscribe, identity)
        case steps.AddOffer(_, client, identity, offer, is_open):
            network.ask(client, Advertise(identity, steps.offer_of(offer, is_open=is_open)))
        case steps.DropOffer(_, client, identity):
            network.withdraw(client, Advertise, identity)
        case steps.PublishStep(_, client, id_, values, ttl_us, priority, delivery):
            envelope = Envelope(id=id_, ttl_us=ttl_us, priority=priority, delivery=delivery)
            network.publish(client, Notification(values, envelope=envelope))
        case steps.Pause(_, client):
            network.readers.pause(client)
        case steps.Resume(_, client):
            network.readers.resume(client)
        case steps.AddPattern(_, client, identity, pattern):
            network.ask(client, SubscribePattern(identity, steps.pattern_of(pattern)))
        case steps.DropPattern(_, client, identity):
            network.withdraw(client, SubscribePattern, identity)
        case steps.AdvanceTime():
            network.advance_time()
        case _ if network.delivery is not None:
            _do_delivery(network.delivery, step)


def _do_delivery(delivery: SimulatedDelivery, step: steps.Step) -> None:
    match step:
        case steps.OpenDurable(
            _, client, name, filters, is_durable, records_max, on_full, replay_max
        ):
            retention = Retention(records_max, on_full=on_full, replay_max=replay_max)
            retention = with_redelivery(name, retention)
            delivery.create_subscription(
                client, name, steps.filters_of(filters), retention, is_durable=is_durable
            )
        case steps.AttachReader(_, client, name):
            delivery.attach(client, name)
        case steps.DetachReader(_, client, name):
            delivery.detach(client, name)
        case steps.EndDurable(_, client, name):
            delivery.end(client, name)
        case steps.PassSequence(_, broker, sequence):
            delivery.pass_sequence(sequence, broker)
        case steps.FillDisk(_, broker):
            delivery.fill(broker, is_full=True)
        case steps.FreeDisk(_, broker):
            delivery.fill(broker, is_full=False)
        case _ if isinstance(delivery, SimulatedStandby):
            _do_standby(delivery, step)


def _do_standby(group: SimulatedStandby, step: steps.Step) -> None:
    match step:
        case steps.MemberFault(_, fault, member):
            group.fail(fault, member)
        case steps.JumpClock(_, member, by_us, also_lease):
            group.jump(member, by_us, also_lease=also_lease)


# --- the end of a world ---------------------------------------------------------------------------


def _compare_tables(fresh: SimulatedNetwork, network: SimulatedNetwork) -> Iterator[Violation]:
    """Compares the tables with those of a network with the remaining registrations alone."""
    for held in network.held():
        if fresh.where(held.client) != held.broker:
            fresh.move(held.client, held.broker)
        fresh.ask(held.client, held.message)
    fresh.schedule.run()
    for a, b in network.ends:
        for here, there in ((a, b), (b, a)):
            if fault := _differ(network, fresh, here, there):
                yield Violation("tables", f"{here} holds other {fault} of {there}")


def _fresh(script: steps.Script) -> SimulatedNetwork:
    """Returns servers with the same lines, without any subscription or advertisement."""
    fresh = SimulatedNetwork(
        msgspec.structs.replace(script.kind, reliable=False, standby=False), script.brokers
    )
    for step in script.steps:
        if isinstance(step, steps.Connect) and fresh.line(step.a, step.b) is None:
            do(fresh, step)
            fresh.schedule.run()  # One after another: the fewest messages.
    return fresh


def _running(network: SimulatedNetwork, broker: int) -> Router:
    router = network.routers[broker]
    assert router is not None, "all servers run at the end"
    return router


def _differ(
    network: SimulatedNetwork, fresh: SimulatedNetwork, here: int, there: int
) -> str | None:
    """Returns the kind of a neighbour's registrations that differ from a fresh network, or None."""
    neighbour = Neighbour(name_of(there))
    one, other = (_running(each, here) for each in (network, fresh))
    offers, others = one.offers_of(neighbour), other.offers_of(neighbour)
    for some, more in ((offers, others), (others, offers)):
        if not all(any(covers(wide, each) for wide in more) for each in some):
            return "advertisements"
    filters, again = one.filters_of(neighbour), other.filters_of(neighbour)
    # A child sends its parent all subscriptions, for any advertisements above.
    is_told = network.kind.strategy is Strategy.ADVERTISEMENTS
    if is_told and network.role(there, here) is not Role.PARENT:
        advertised = _running(fresh, there).offers_of(Neighbour(name_of(here)))
        filters, again = _within(filters, advertised), _within(again, advertised)
    return None if covers(filters, again) and covers(again, filters) else "subscriptions"


def _within(filters: FilterSet, offers: Iterable[Offer]) -> FilterSet:
    """Returns the part of filters within the offers; attributes that none names are left out."""
    names = {name for each in (*filters.filters, *offers) for name in each.sets}
    return FilterSet(
        Filter.of_sets({name: each.set_of(name) & offer.set_of(name) for name in names})
        for each in filters.filters
        for offer in offers
    )


def _probe(script: steps.Script, network: SimulatedNetwork) -> None:
    """Publishes some notifications again, from everywhere, for the oracle."""
    published = [step for step in script.steps if isinstance(step, steps.PublishStep)]
    clients = network.clients()
    for number, step in enumerate(published[-PROBES_MAX:]):
        envelope = Envelope(id=f"probe {number}")
        for turn in range(len(clients)):
            client = clients[(number + turn) % len(clients)]
            if network.publish(client, Notification(step.values, envelope=envelope)):
                break
        network.schedule.run()


def _find_leftovers(
    empty: Sequence[tuple[object, ...]], network: SimulatedNetwork
) -> Iterator[Violation]:
    """Yields tables that are not empty after all withdrawals, apart from link states."""
    for held in reversed(network.held()):
        network.withdraw(held.client, type(held.message), held.message.identity)
    network.schedule.run()
    for broker, (here, there) in enumerate(zip(_holdings(network), empty, strict=True)):
        if here != there:
            yield Violation("left over", f"{broker} holds {here}, not {there}")


_HOLDINGS: Final = attrgetter(
    *("neighbours", "subscriptions", "advertisements", "filters", "offers", "merging"),
    *("patterns.patterns", "patterns.delegated", "patterns.filters", "patterns.runs"),
    "patterns.waiting",
)


def _holdings(network: SimulatedNetwork) -> list[tuple[object, ...]]:
    servers = range(len(network.routers))
    return [_HOLDINGS(_running(network, each).statistics()) for each in servers]


# --- stories --------------------------------------------------------------------------------------


def with_stories(violations: Sequence[Violation], network: SimulatedNetwork) -> list[Violation]:
    """Returns the violations, the first ones with their story."""
    told: list[Violation] = []
    for each in violations:
        if each.identities and len(told) < STORIES_MAX:
            each = replace(each, story=str(story_in_world(network, each.identities)))
        told.append(each)
    return told


def story_in_world(network: SimulatedNetwork, names: Sequence[str]) -> Story:
    """Returns the story at all servers, in the order of the run. Cost: all events."""
    readers: dict[int, StoryReader] = {}
    found: list[Transition] = []
    events = sorted(_events(network), key=itemgetter(0))
    for number, (at_us, broker, origin, message, effects) in enumerate(events):
        reader = readers.setdefault(broker, StoryReader(name_of(broker), names))
        for each in reader.read(number, at_us, origin, message, effects):
            if each.step == StoryStep.FORWARDED and each.name:
                there = int(each.to)
                reader_there = readers.setdefault(there, StoryReader(each.to, names))
                reader_there.names.add(f"{each.broker}/{each.name}")
            found.append(each)
    return Story(" and ".join(names), found[-STORY_LINES_MAX:])


def _events(network: SimulatedNetwork) -> Iterator[DeliveryEvent]:
    for each in network.history.handled:
        event, place = each.event, (each.at_us, each.broker)
        if isinstance(event, Received):
            yield *place, event.origin, event.message, each.effects
        else:
            origin = event.neighbour if isinstance(event, LinkUp | LinkDown) else None
            yield *place, origin, event, each.effects
    if network.delivery is not None:
        yield from network.delivery.events
