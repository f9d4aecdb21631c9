"""Tests of whole runs of a gossiping group."""

import dataclasses

import numpy as np
import pytest

from contrada.errors import InvalidValueError, LimitError
from contrada.gossip.parameters import Approximation, Parameters
from contrada.lab.gossip_rounds.gossip_runs import (
    GOSSIPERS_MAX,
    GossipPlan,
    GossipProtocol,
    _DisseminationRun,
    disseminate,
)
from contrada.lab.simulation.process_pool import in_processes
from tests.lab.gossip_rounds.literal import reliability, view_of

SMALL = Parameters(branching=6, levels=3, redundancy=2)


def test_views_of_the_literal_are_those_of_the_thesis() -> None:
    """The reference would use another hierarchy than figure 6.4."""
    assert view_of(SMALL, 215, 1) == [210, 211, 212, 213, 214, 215]
    assert view_of(SMALL, 215, 2)[:4] == [180, 181, 186, 187]
    assert view_of(SMALL, 215, 3) == [part * 36 + each for part in range(6) for each in (0, 6)]


@pytest.mark.parametrize("group", [SMALL, Parameters(branching=4, levels=4, redundancy=3)])
def test_groups_are_views(group: Parameters) -> None:
    """The gossiping members of a group would not know one another."""
    run = _DisseminationRun(GossipPlan(group, 0.5, 1))
    everybody = np.arange(group.participants)
    for level in range(1, group.levels + 1):
        width, delegates = group.branching ** (level - 1), group.redundancy if level > 1 else 1
        groups = run._of_level(everybody, width, delegates)  # type: ignore[arg-type]
        for participant in everybody.tolist():
            mine = groups[participant // (width * group.branching)]
            assert mine.reshape(-1).tolist() == view_of(group, participant, level)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "interest"),
    [
        (SMALL, 0.5),
        (SMALL, 0.15),
        (dataclasses.replace(SMALL, loss=0.1, crashes=0.1, fanout=3), 0.6),
        (Parameters(branching=60, levels=1), 0.3),
        (Parameters(branching=9, levels=2, redundancy=9), 0.2),
    ],
)
def test_groups_are_figure_6_6(group: Parameters, interest: float) -> None:
    """The simulation would be of another protocol."""
    count = 250
    literal = np.array([reliability(group, interest, seed) for seed in range(count)])
    plans = [GossipPlan(group, interest, 1, run) for run in range(4 * count)]
    runs = np.array([disseminate(plan).reliability for plan in plans])
    # Five standard errors of the difference of the means: one in 1.7 million goes wrong.
    error = np.sqrt(literal.var() / count + runs.var() / len(runs))
    assert abs(literal.mean() - runs.mean()) < 5 * error
    assert 0 < error < 0.02


@pytest.mark.slow
def test_processes_give_the_same() -> None:
    """A sweep would depend on how many processes it has."""
    plans = [GossipPlan(SMALL, 0.5, 7, run) for run in range(6)]
    alone = list(in_processes(disseminate, plans, 1))
    together = {each.plan: each for each in in_processes(disseminate, plans, 2)}
    assert [together[plan] for plan in plans] == alone
    assert len({each.messages for each in alone}) > 3


def test_only_delegates_are_reached_uninterested() -> None:
    """The uninterested would be burdened."""
    plans = [GossipPlan(Parameters(), 0.1, 2, run) for run in range(5)]
    delegates = 22 * 22 * 3
    assert all(0 < disseminate(plan).bystanders < delegates for plan in plans)
    flat = disseminate(GossipPlan(Parameters(), 0.1, 2, protocol=GossipProtocol.PMCAST))
    assert flat.bystanders <= 1  # the publisher
    everybody = disseminate(GossipPlan(Parameters(), 0.1, 2, broadcast=True))
    assert everybody.reached + everybody.bystanders > 0.99 * 10_648
    assert everybody.interested == flat.interested


def test_levels_add_up() -> None:
    """Rounds and messages of levels would not be those of the run."""
    outcome = disseminate(GossipPlan(Parameters(), 0.5, 4))
    assert [each.level for each in outcome.levels] == [3, 2, 1]
    assert sum(each.messages for each in outcome.levels) == outcome.messages
    assert outcome.levels[-1].reached == outcome.reached
    assert outcome.last <= outcome.rounds <= sum(each.rounds for each in outcome.levels)
    assert all(0 < each.reached <= each.wanted for each in outcome.levels)


def test_tuning_reaches_small_audiences() -> None:
    """D, digests, or a flood at the bottom would not correct the asymptote."""

    def mean(**options: object) -> float:
        parameters = Parameters(**options.pop("group", {}))  # type: ignore[arg-type]
        plans = [GossipPlan(parameters, 0.05, 5, run, **options) for run in range(20)]  # type: ignore[arg-type]
        return float(np.mean([disseminate(plan).reliability for plan in plans]))

    plain_mean = mean()
    assert plain_mean < 0.75
    assert mean(group={"audience": 10}) > 0.95
    assert mean(group={"digest": 10}) > 0.95
    assert mean(flood_bottom=True) > 0.97
    assert mean(group={"approximation": Approximation.RECURSION}) > plain_mean


def test_a_reliable_top_reaches_every_subsystem() -> None:
    """One message lost at the top would isolate whole subsystems."""
    group = Parameters(redundancy=1, loss=0.4, rounds=3)
    plans = [GossipPlan(group, 0.5, 6, run, reliable_top=True) for run in range(5)]
    tops = [disseminate(plan).levels[0] for plan in plans]
    assert all(top.wanted == top.reached == 22 and top.rounds == 1 for top in tops)
    assert disseminate(GossipPlan(group, 0.5, 6)).levels[0].reached < 22


def test_the_first_level_is_skipped_when_it_is_the_publishers() -> None:
    """Top delegates would gossip events of one subsystem."""
    plans = [GossipPlan(SMALL, 0.01, 8, run, skip_first=True) for run in range(300)]
    skipped = [each for each in map(disseminate, plans) if each.levels[0].rounds == 0]
    own = [each for each in skipped if each.levels[0].wanted == 1 and each.interested]
    assert own
    assert all(each.levels[0].messages == 0 for each in own)
    again = [disseminate(GossipPlan(SMALL, 0.01, 8, each.plan.run)) for each in own]
    assert any(each.levels[0].messages for each in again)


def test_an_impossible_plan_is_refused() -> None:
    """A run would fill the memory, or have no participants."""
    with pytest.raises(LimitError):
        GossipPlan(Parameters(branching=GOSSIPERS_MAX + 1, levels=1), 0.5, 1)
    with pytest.raises(InvalidValueError):
        GossipPlan(Parameters(), 0.0, 1)


def test_the_publisher_does_not_crash() -> None:
    """An event would be lost with its publisher."""
    group = Parameters(branching=1, levels=1, redundancy=1, crashes=0.9)
    for run in range(20):
        outcome = disseminate(GossipPlan(group, 1.0, 3, run))
        assert (outcome.interested, outcome.reached) == (1, 1)


def test_a_digest_needs_all_of_its_three_messages() -> None:
    """Small audiences would seem better informed than they are."""
    group = Parameters(branching=2, levels=1, redundancy=1, rounds=0, loss=0.4, digest=3)
    outcomes = [disseminate(GossipPlan(group, 1.0, 3, run)) for run in range(2_000)]
    told = sum(each.reached - 1 for each in outcomes) / len(outcomes)
    assert told == pytest.approx(0.6**3, abs=0.04)
