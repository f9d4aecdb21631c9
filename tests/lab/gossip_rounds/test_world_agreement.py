"""Real participants in step and rounds over arrays reach the same shares, within statistical
bounds.

Each case is 10 worlds with 10 events each, with a new audience for each event, against 500 runs of
the same plan. The means differ by at most 4 standard errors, which are those of the worlds' means,
since events of one world share messages: by chance one case in ten thousand would fail, and seeds
are fixed. For plain hpmcast and pmcast the distributions are compared too, by Kolmogorov and
Smirnov, at the same level.
"""

import random
from bisect import bisect_right
from dataclasses import replace
from math import log, sqrt
from statistics import fmean, stdev

import pytest

from contrada.gossip.addresses import AddressSpace
from contrada.gossip.group_policy import GroupPolicy
from contrada.gossip.hpmcast import Hpmcast, Pmcast, Rfpbcast
from contrada.gossip.parameters import Parameters
from contrada.lab.gossip_rounds.gossip_runs import GossipPlan, GossipProtocol, disseminate
from contrada.model import Envelope, Filter, FilterSet, Notification
from tests.lab.gossip_rounds.gossip_world import GossipWorld

WORLDS, EVENTS, RUNS = 10, 10, 500

PROTOCOLS: dict[GossipProtocol, type[Hpmcast]] = {
    GossipProtocol.HPMCAST: Hpmcast,
    GossipProtocol.PMCAST: Pmcast,
    GossipProtocol.RFPBCAST: Rfpbcast,
}


def conduct_of(plan: GossipPlan) -> GroupPolicy:
    return GroupPolicy(
        is_static=True,
        skips_first=plan.skip_first,
        broadcasts=plan.broadcast,
        floods_bottom=plan.flood_bottom,
    )


def world_of(plan: GossipPlan, seed: int) -> tuple[list[float], list[int]]:
    """Returns, for each event of one world, the reached share of the interested, and bystanders."""
    rng = random.Random(seed)
    group = replace(plan.hierarchy, digest=plan.hierarchy.digest or 0)
    space = AddressSpace.regular(group.levels, group.branching)
    addresses = [space.of_number(number) for number in range(space.size)]
    wanted = {
        address: {n for n in range(EVENTS) if rng.random() < plan.interest} for address in addresses
    }
    protocol, conduct = PROTOCOLS[plan.protocol], conduct_of(plan)
    world = GossipWorld(group, seed, protocol=protocol, conduct=conduct, in_step=True)
    world.settle(
        {a: FilterSet([Filter({"e": sorted(of)})] if of else []) for a, of in wanted.items()}
    )
    publishers = [rng.choice(addresses) for _ in range(EVENTS)]
    for address in addresses:
        if address not in publishers and rng.random() < group.crashes:
            world.crash(address)
    identities = [
        world.multicast(at, Notification({"e": n}, envelope=Envelope(id=f"{n}", publisher="p")))
        for n, at in enumerate(publishers)
    ]
    world.rounds(36)
    up, shares, bystanders = set(world.addresses), [], []
    for number, identity in enumerate(identities):
        interested = {address for address in up if number in wanted[address]}
        infected = world.infected(identity)
        assert world.given(identity) == infected & interested
        shares.append(len(infected & interested) / len(interested) if interested else 1.0)
        bystanders.append(len(infected - interested))
    return shares, bystanders


def errors_apart(groups: list[list[float]], others: list[float]) -> float:
    """Returns the distance of the means of worlds and of runs, in standard errors."""
    means = [fmean(each) for each in groups]
    error = (stdev(means) ** 2 / len(means) + stdev(others) ** 2 / len(others)) ** 0.5
    return float((fmean(means) - fmean(others)) / error)


def furthest(one: list[float], other: list[float]) -> float:
    """Returns the largest distance of two distributions: the statistic of Kolmogorov and
    Smirnov.
    """
    a, b = sorted(one), sorted(other)
    return max(abs(bisect_right(a, at) / len(a) - bisect_right(b, at) / len(b)) for at in a + b)


TREE = Parameters(levels=3, branching=5, redundancy=2, fanout=2, loss=0.1)
FLAT = Parameters(levels=1, branching=120, redundancy=1, fanout=2, loss=0.1)
CASES = {
    "hpmcast": GossipPlan(TREE, 0.3, 1),
    "small audience": GossipPlan(TREE, 0.05, 2),
    "crashes": GossipPlan(Parameters(levels=2, branching=12, redundancy=3, crashes=0.1), 0.4, 3),
    "threshold": GossipPlan(Parameters(levels=3, branching=5, redundancy=2, audience=4), 0.05, 4),
    "digests": GossipPlan(
        Parameters(levels=3, branching=5, redundancy=2, loss=0.1, digest=6), 0.1, 5
    ),
    "broadcast": GossipPlan(TREE, 0.3, 6, broadcast=True),
    "flooded bottom": GossipPlan(TREE, 0.3, 7, flood_bottom=True),
    "first skipped": GossipPlan(TREE, 0.05, 8, skip_first=True),
    "pmcast": GossipPlan(FLAT, 0.3, 9, protocol=GossipProtocol.PMCAST),
    "rfpbcast": GossipPlan(
        Parameters(levels=1, branching=120, redundancy=1, rounds=5, loss=0.1),
        *(0.3, 10),
        protocol=GossipProtocol.RFPBCAST,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_participants_and_arrays_agree(name: str) -> None:
    """One of the two would implement another protocol."""
    plan = CASES[name]
    worlds = [world_of(plan, 100 * plan.seed + number) for number in range(WORLDS)]
    runs = [
        disseminate(
            GossipPlan(**{f: getattr(plan, f) for f in plan.__struct_fields__} | {"run": n})
        )
        for n in range(RUNS)
    ]
    shares = [each.reliability for each in runs]
    assert abs(errors_apart([each for each, _ in worlds], shares)) < 4
    bystanders = [[float(n) for n in each] for _, each in worlds]
    assert abs(errors_apart(bystanders, [float(each.bystanders) for each in runs])) < 4
    if name in ("hpmcast", "pmcast"):
        pooled = [share for each, _ in worlds for share in each]
        bound = sqrt(-log(1e-4 / 2) / 2 * (1 / len(pooled) + 1 / len(shares)))
        assert furthest(pooled, shares) < bound
