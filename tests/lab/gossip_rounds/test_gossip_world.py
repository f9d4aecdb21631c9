"""Groups of real participants: views become correct again in time, and events reach their audience.

Views are compared with the true group, line by line: delegates, counts and interests.
"""

import dataclasses
import random
from itertools import product
from typing import Any

import pytest

from contrada.gossip.addresses import LogicalAddress, address_text, distance
from contrada.gossip.condensation import Accuracy, encode_interests
from contrada.gossip.gossip_messages import (
    AgedLine,
    AskJoin,
    Contact,
    Gossip,
    JoinGroup,
    MessageReceived,
    SendGossip,
    Update,
    ViewLine,
)
from contrada.gossip.group_policy import GroupPolicy, convergence_rounds, silence_rounds
from contrada.gossip.parameters import Parameters
from contrada.gossip.views import DelegateChoice
from contrada.model import Envelope, FilterSet, Notification
from tests.lab.gossip_rounds.gossip_world import START_US, GossipWorld

GROUP = Parameters(levels=3, branching=6, redundancy=2, fanout=2, loss=0.05)
WANTS, OTHER = FilterSet("a = 1"), FilterSet("a = 2")
BOUND = convergence_rounds(GROUP)


def event(number: int = 1, **attributes: Any) -> Notification:
    envelope = Envelope(id=f"{number}", publisher="p")
    return Notification({"a": 1, **attributes}, body=b"whole", envelope=envelope)


def populated(
    seed: int, count: int = 100, group: Parameters = GROUP, **options: Any
) -> GossipWorld:
    """Returns a settled group at random addresses, half of it interested in the event."""
    world = GossipWorld(group, seed, **options)
    rng = random.Random(seed)
    numbers = rng.sample(range(world.space.size), count)
    world.settle({world.space.of_number(n): rng.choice((WANTS, OTHER)) for n in numbers})
    world.rounds(5)
    assert world.faults() == []
    return world


def delegates(world: GossipWorld) -> set[LogicalAddress]:
    """Returns the delegates of a subsystem in any view."""
    return {
        known.contact.address
        for address in world.addresses
        for table in world.participant(address).membership.view.tables[1:]
        for known in table.known()
    }


def is_right(world: GossipWorld) -> bool:
    return not world.faults()


def right_within(world: GossipWorld, rounds: int) -> bool:
    """Whether all views become correct in so many rounds."""
    return world.rounds_until(lambda: is_right(world), rounds) < rounds


# --- membership ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_newcomers_join_through_anybody(seed: int) -> None:
    """A group would not form, or a view exceed R a (l - 1) + a."""
    rng = random.Random(seed)
    world = GossipWorld(GROUP, seed)
    addresses = list(product(range(6), repeat=3))
    rng.shuffle(addresses)
    there = addresses[:120]
    world.join(there[0], WANTS)
    for number, address in enumerate(there[1:], start=1):
        world.join(address, rng.choice((WANTS, OTHER)), rng.choice(there[:number]))
        world.rounds(1)
    assert right_within(world, BOUND)
    for address in world.addresses:
        assert world.participant(address).statistics().known < GROUP.view_size < 120
    world.rounds(20)
    assert is_right(world)


def test_every_step_leaves_views_as_they_must_be() -> None:
    """A view would contain invalid lines during changes of the group."""
    rng = random.Random(3)
    world = GossipWorld(Parameters(levels=2, branching=8, redundancy=2, loss=0.1), 3, checks=True)
    world.join((0, 0), WANTS)
    for number in range(1, 50):
        there = world.addresses
        address = (rng.randrange(8), rng.randrange(8))
        if address not in there:
            world.join(address, rng.choice((WANTS, OTHER)), rng.choice(there), (0, 0))
        elif len(there) > 5 and address != (0, 0):
            rng.choice((world.leave, world.crash))(address)
        world.rounds(2)
        publisher = world.participant(rng.choice(world.addresses))
        if publisher.membership.is_in:
            world.multicast(publisher.membership.contact.address, event(number))
    assert right_within(world, BOUND)


def gone(world: GossipWorld, who: str) -> list[LogicalAddress]:
    there = world.addresses
    rng = random.Random(5)
    if who == "a share of all":
        return rng.sample(there, 10)
    if who == "all delegates of two subsystems":
        top = world.participant(there[0]).membership.view.tables[-1].live()
        return [each.address for held in (top[0], top[-1]) for each in held.line.delegates]
    return [each for each in there if each[0] == there[0][0]]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["crash", "leave"])
@pytest.mark.parametrize(
    "who", ["a share of all", "all delegates of two subsystems", "all of a subsystem"]
)
def test_lost_participants_are_forgotten_in_time(how: str, who: str) -> None:
    """Views would name lost participants, or fewer than R live delegates, longer than stated."""
    for seed in (1, 2):
        world = populated(seed)
        for address in gone(world, who):
            getattr(world, how)(address)
        assert not is_right(world)
        assert right_within(world, BOUND)
        for _ in range(2 * silence_rounds(GROUP, 1)):
            world.rounds(1)
            assert is_right(world), "nobody comes back by an old line"


@pytest.mark.slow
def test_neighbours_may_be_pinged_before_they_are_given_up() -> None:
    """A crashed participant would be probed forever, or a quiet one dropped."""
    world = populated(3, conduct=GroupPolicy(pings_bottom=True))
    probes: list[str] = []

    def look(_: str, sent: SendGossip) -> bool:
        probes.append(type(sent.message).__name__)
        return True

    world.tap(look)
    for address in gone(world, "a share of all"):
        world.crash(address)
    assert right_within(world, BOUND)
    assert probes.count("Probe") > 0
    del probes[:]
    world.rounds(20)
    assert probes.count("Probe") == 0


@pytest.mark.slow
def test_two_founders_of_a_subsystem_find_each_other() -> None:
    """Each would believe to be alone there forever."""
    world = GossipWorld(GROUP, 4, checks=True)
    world.join((0, 0, 0), WANTS)
    world.join((1, 1, 1), WANTS, (0, 0, 0))
    world.rounds(10)
    for address in ((3, 3, 1), (3, 3, 2), (3, 4, 1)):
        world.join(address, OTHER, (0, 0, 0))
    assert right_within(world, BOUND)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [20, 150])
def test_a_partitioned_group_reunites(rounds: int) -> None:
    """Each half would forget the other, and stay separate forever."""
    world = populated(1, count=60, checks=True)
    is_parted = True

    def half(place: str) -> int:
        return sum(map(int, place.split("."))) % 2

    world.tap(lambda place, sent: not is_parted or half(place) == half(sent.place))
    world.rounds(rounds)
    assert len(world.faults()) > 100
    is_parted = False
    assert right_within(world, BOUND)


@pytest.mark.slow
def test_two_groups_that_meet_become_one() -> None:
    """Separately founded groups could only unite by leaving one."""
    world, rng = GossipWorld(GROUP, 1, checks=True), random.Random(1)
    there = [world.space.of_number(n) for n in rng.sample(range(216), 50)]
    for group in (there[:25], there[25:]):
        world.join(group[0], WANTS)
        for address in group[1:]:
            world.join(address, rng.choice((WANTS, OTHER)), group[0])
            world.rounds(1)
    world.rounds(BOUND)
    assert not is_right(world)
    world.deliver(there[3], JoinGroup((address_text(there[30]),)))
    assert right_within(world, BOUND)
    identity = world.multicast(there[0], event())
    world.rounds(40)
    assert reached(world, identity) > 0.8


@pytest.mark.slow
def test_a_long_sleeper_restores_no_lost_participants() -> None:
    """Its old lines would restore lost participants in all views forever."""
    world = populated(3, count=40)
    sleeper = world.addresses[10]
    lines = world.participant(sleeper).membership.view.aged_lines(1)
    for address in [sleeper, *(each for each in world.addresses[::8] if each != sleeper)]:
        world.crash(address)
    world.rounds(150)
    assert is_right(world)
    world.join(sleeper, WANTS, world.addresses[0])
    world.rounds(10)
    for told in world.addresses:
        shared = tuple(line for line in lines if line.level >= distance(told, sleeper))
        if told != sleeper:
            slept = Update(Contact(sleeper, address_text(sleeper)), shared)
            world.deliver(told, MessageReceived(address_text(sleeper), slept))
    assert not is_right(world)
    assert right_within(world, BOUND)


@pytest.mark.slow
def test_a_wrong_time_keeps_no_dead_participant() -> None:
    """One participant could make all others doubt their clocks, so that no line ages."""
    world = populated(9)
    liar = world.addresses[0]
    far = ViewLine(liar[0], START_US + 2**52, encode_interests([]), 0, ())
    lie = Update(Contact(liar, address_text(liar)), (AgedLine(3, 0, far),) * 100)
    for address in gone(world, "a share of all"):
        if address != liar:
            world.crash(address)
    for _ in range(BOUND):
        for told in world.addresses:
            if told != liar:
                world.deliver(told, MessageReceived(address_text(liar), lie))
        world.rounds(1)
    assert is_right(world)


@pytest.mark.slow
def test_views_with_more_lines_than_a_digest_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines beyond the first would never be refreshed, and count as dead."""
    for module in ("gossip_messages", "line_exchange", "group_policy"):
        monkeypatch.setattr(f"contrada.gossip.{module}.LINES_SENT_MAX", 10)
    group = Parameters(levels=1, branching=40, redundancy=2, fanout=3)
    world = GossipWorld(group, 3)
    world.settle({(n,): WANTS for n in range(40)})
    world.want((39,), OTHER)
    world.crash((20,))
    assert right_within(world, convergence_rounds(group))
    for _ in range(2 * silence_rounds(group, 1)):
        world.rounds(1)
        assert len(world.faults()) <= 3, "of 39 views"


@pytest.mark.slow
def test_an_address_is_unique_and_survives_a_restart() -> None:
    """Two participants would share an address; or a restarted one be excluded by its old line."""
    world = populated(5)
    address, other = world.addresses[3], world.addresses[50]
    spot = Contact(address, "elsewhere")
    line = ViewLine(address[-1], START_US, encode_interests([]), 1, (spot,))
    asked = next(each for each in world.addresses if each[:2] == address[:2] and each != address)
    (effect,) = world.deliver(asked, MessageReceived("elsewhere", AskJoin(spot, line)))
    assert isinstance(effect, SendGossip)
    assert type(effect.message).__name__ == "TurnAway"
    world.crash(address)
    world.rounds(3)
    world.join(address, WANTS, other)
    assert right_within(world, BOUND)


@pytest.mark.slow
def test_a_newcomer_without_answers_waits() -> None:
    """It would consider itself the group, or ask without a pause."""
    world = GossipWorld(GROUP, 6)
    world.join((0, 0, 0), WANTS, (1, 1, 1))
    world.rounds(30)
    assert not world.participant((0, 0, 0)).membership.is_in
    assert world.messages < 30
    world.join((1, 1, 1), WANTS)
    assert right_within(world, BOUND)


@pytest.mark.slow
def test_interests_that_change_are_known_above() -> None:
    """Events would follow outdated interests."""
    world = populated(7, group=dataclasses.replace(GROUP, digest=9))
    last = world.addresses[-1]
    assert last not in delegates(world)
    world.want(last, FilterSet("a = 3"))
    assert right_within(world, BOUND)
    identities = [world.multicast(world.addresses[n], event_of(3, n)) for n in range(20)]
    world.rounds(40)
    given = [world.given(identity) for identity in identities]
    assert set(map(frozenset, given)) <= {frozenset(), frozenset({last})}
    assert sum(map(len, given)) > 15


def event_of(value: int, number: int) -> Notification:
    return Notification({"a": value}, envelope=Envelope(id=f"{number}", publisher="p"))


@pytest.mark.slow
@pytest.mark.parametrize("by_us", [3_600_000_000, -3_600_000_000, 40_000_000])
def test_clocks_that_jump_change_nothing(by_us: int) -> None:
    """A participant with a reset clock would count as dead, or consider all others dead."""
    world = populated(8, count=80)
    world.rounds(15)
    jumped = [world.addresses[0], world.addresses[30], world.addresses[60]]
    for address in jumped:
        world.jump_clock(address, by_us)
    wrong = 0
    for _ in range(60):
        world.rounds(1)
        wrong += len(world.faults())
    assert wrong <= 60, "of 4800 views"
    for address in jumped:
        world.jump_clock(address, -by_us)
    world.rounds(BOUND)
    assert is_right(world)


@pytest.mark.slow
def test_false_lines_have_little_effect() -> None:
    """One participant could remove others from all views, or insert strangers."""
    world = populated(9, checks=True)
    victim = next(a for a in world.addresses if sum(b[:2] == a[:2] for b in world.addresses) > 2)
    liar = next(a for a in world.addresses if a[:2] == victim[:2] and a != victim)
    told = next(a for a in world.addresses if a[:2] == victim[:2] and a not in (liar, victim))
    me = Contact(liar, address_text(liar))
    for ahead in (1_000_000, 59_000_000, 2**52):
        for line, level in (
            (ViewLine(victim[-1], world.now_us + ahead, encode_interests([]), 0, ()), 1),
            (ViewLine(victim[0], world.now_us + ahead, encode_interests([]), 0, ()), 3),
            (ViewLine(victim[0], world.now_us + ahead, b"", 7, (me, me)), 3),
        ):
            lie = Update(me, (AgedLine(level, 0, line),))
            world.deliver(told, MessageReceived(me.place, lie))
    assert right_within(world, BOUND)


@pytest.mark.slow
@pytest.mark.parametrize(
    "conduct",
    [
        GroupPolicy(delegates=DelegateChoice.INTEREST),
        GroupPolicy(accuracies=(Accuracy.ATTRIBUTES, Accuracy.TYPES)),
    ],
    ids=["delegates by interest", "coarser above"],
)
def test_whatever_the_conduct_views_converge(conduct: GroupPolicy) -> None:
    """Participants would disagree on delegates, or on a subsystem's interests."""
    world = populated(10, conduct=conduct)
    for address in gone(world, "a share of all"):
        world.crash(address)
    assert right_within(world, BOUND)
    identity = world.multicast(world.addresses[5], event())
    world.rounds(40)
    assert reached(world, identity) > 0.8


@pytest.mark.slow
def test_an_audience_of_one_needs_digests_or_a_threshold() -> None:
    """A missed participant would count as reached: Pittel's asymptote has no round for one.

    By default participants exchange digests, so that it is reached.
    """
    given = []
    plain = dataclasses.replace(GROUP, digest=0)
    for group in (plain, dataclasses.replace(plain, audience=3), GROUP):
        world = GossipWorld(group, 17, conduct=GroupPolicy(is_static=True))
        last = (5, 5, 5)
        world.settle({a: WANTS if a == last else OTHER for a in product(range(6), repeat=3)})
        identities = [world.multicast((n % 6, 1, 1), event(n)) for n in range(20)]
        world.rounds(40)
        given.append(sum(len(world.given(identity)) for identity in identities))
    assert given[0] == 0
    assert given[1] > 10
    assert given[2] >= 18


# --- dissemination ------------------------------------------------------------------------------


def reached(world: GossipWorld, identity: tuple[str, str]) -> float:
    """The share of the interested that was handed an event."""
    wanting = {address for address, filters in world.interests.items() if filters is WANTS}
    given = world.given(identity)
    assert given <= wanting, "nobody is given what it does not want"
    return len(given) / len(wanting)


@pytest.mark.slow
def test_the_interested_are_reached_and_others_only_as_delegates() -> None:
    """Events would be lost, or reach uninterested participants."""
    shares = []
    for seed in range(3):
        world = populated(seed, count=150)
        stand_for = delegates(world)
        publisher = world.addresses[seed]
        identity = world.multicast(publisher, event())
        world.rounds(60)
        shares.append(reached(world, identity))
        assert world.infected(identity) - world.given(identity) <= stand_for | {publisher}
        assert all(not world.participant(a).dissemination.buffers for a in world.addresses)
    assert sum(shares) / 3 > 0.85


OPTIONS: dict[str, tuple[GroupPolicy, dict[str, Any]]] = {
    "bytes": (GroupPolicy(), {"as_bytes": True}),
    "broadcast": (GroupPolicy(broadcasts=True), {}),
    "flooded bottom": (GroupPolicy(floods_bottom=True), {}),
    "reliable top": (GroupPolicy(reliable_top=True), {}),
    "announced": (GroupPolicy(announces=True), {"as_bytes": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_all_options_reach_the_interested(name: str) -> None:
    """An option would lose events, or hand over parts of them."""
    conduct, options = OPTIONS[name]
    world = populated(11, count=150, conduct=conduct, **options)
    identities = [world.multicast(world.addresses[n], event(n)) for n in range(10)]
    world.rounds(60)
    assert sum(reached(world, identity) for identity in identities) / 10 > 0.8


def test_announced_events_are_handed_over_whole() -> None:
    """A subscriber would get only the attributes of the filters above."""
    world = populated(12, conduct=GroupPolicy(announces=True))
    given: list[Notification] = []
    told: list[Notification] = []

    def look(_: str, sent: SendGossip) -> bool:
        if isinstance(sent.message, Gossip):
            for rumour in sent.message.rumours:
                (given if rumour.names is None else told).append(rumour.event)
                assert rumour.names is None or rumour.level > 1
        return True

    world.tap(look)
    for number in range(10):
        world.multicast(world.addresses[number], event(number, b="long", c=7))
    world.rounds(60)
    shares = [reached(world, ("p", f"{number}")) for number in range(10)]
    assert sum(shares) / 10 > 0.8
    assert given
    assert told
    assert all(dict(each) == dict(event(1, b="long", c=7)) for each in given)
    assert {each.body for each in given} == {b"whole"}
    assert {tuple(each) for each in told} == {("a",)}
    assert {each.body for each in told} == {b""}


@pytest.mark.slow
def test_a_surer_protocol_at_the_top_tells_all_delegates() -> None:
    """A running delegate of an interested subsystem would be left out."""
    group = Parameters(levels=2, branching=8, redundancy=2, fanout=1, loss=0.3)
    for sure in (False, True):
        world = populated(13, 60, group, conduct=GroupPolicy(reliable_top=sure, is_static=True))
        tops = {known.contact.address for known in top_of(world) if known.filters.matches(event())}
        missed = 0
        for number in range(8):
            identity = world.multicast(world.addresses[number], event(number))
            world.rounds(40)
            missed += len(tops - world.infected(identity))
        assert (missed == 0) == sure


def top_of(world: GossipWorld) -> list[Any]:
    return world.participant(world.addresses[0]).membership.view.tables[-1].known()


@pytest.mark.slow
def test_digests_reach_small_audiences() -> None:
    """Of a few interested participants some would miss an event that neighbours have."""
    shares = []
    for digest in (0, 9):
        group = Parameters(levels=2, branching=8, redundancy=2, fanout=2, loss=0.1, digest=digest)
        world = GossipWorld(group, 14, conduct=GroupPolicy(is_static=True))
        few = {world.space.of_number(n): WANTS if n % 7 == 0 else OTHER for n in range(64)}
        world.settle(few)
        identities = [world.multicast((n % 8, 3), event(n)) for n in range(30)]
        world.rounds(40)
        shares.append(sum(reached(world, identity) for identity in identities) / 30)
    assert shares[0] < 0.85 < 0.95 < shares[1]


@pytest.mark.slow
def test_a_run_is_a_function_of_its_seed() -> None:
    """A failure could not be repeated; or bytes would differ from objects."""
    runs = []
    for as_bytes in (False, False, True):
        world = populated(15, as_bytes=as_bytes)
        identity = world.multicast(world.addresses[0], event())
        world.rounds(25)
        runs.append((world.messages, world.infected(identity), world.faults()))
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.slow
def test_nobody_multicasts_before_it_is_in() -> None:
    """An event would be published to nobody, without an error."""
    world = GossipWorld(GROUP, 16)
    world.join((0, 0, 0), WANTS, (1, 1, 1))
    world.multicast((0, 0, 0), event())
    effects = world.deliver(
        (0, 0, 0), MessageReceived("1.1.1", Gossip(Contact((1, 1, 1), "1.1.1")))
    )
    assert effects == []
    assert world.participant((0, 0, 0)).statistics().refused == {"not in a group": 2}
