"""Tests of the refined analysis against the simulation."""

import numpy as np
import pytest

from contrada.gossip.parameters import Parameters
from contrada.lab.analysis import printed_equations, refined_equations
from contrada.lab.analysis.hierarchy import level_interest
from contrada.lab.gossip_rounds.gossip_runs import GossipPlan, disseminate

WITHIN = 0.02


def simulated(group: Parameters, interest: float, runs: int) -> tuple[float, float]:
    """The mean reliability, and its standard error."""
    plans = [GossipPlan(group, interest, 11, run) for run in range(runs)]
    found = np.array([disseminate(plan).reliability for plan in plans])
    return float(found.mean()), float(found.std() / np.sqrt(runs))


@pytest.mark.slow
@pytest.mark.parametrize("interest", [0.1, 0.2, 0.4, 0.7, 1.0])
@pytest.mark.parametrize(
    "group",
    [
        Parameters(),
        Parameters(fanout=5),
        Parameters(redundancy=1),
        Parameters(loss=0.1, crashes=0.05),
        Parameters(audience=10),
        Parameters(rounds=5),
        Parameters(branching=10, levels=4),
        Parameters(branching=100, levels=2),
    ],
)
def test_the_refined_analysis_is_the_simulation(group: Parameters, interest: float) -> None:
    """The analysis would exceed the reliability of figure 6.6, at 10,000 participants."""
    mean, error = simulated(group, interest, 25)
    assert refined_equations.reliability(group, interest) == pytest.approx(mean, rel=WITHIN)
    assert error < WITHIN / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "interest"),
    [
        (Parameters(branching=100), 0.2),
        (Parameters(branching=1_000, levels=2), 0.2),
        (Parameters(branching=100_000, levels=1, redundancy=1, rounds=14), 0.9),
    ],
)
def test_the_approximation_for_more_is_near(group: Parameters, interest: float) -> None:
    """Beyond the exact range the analysis would be wrong unnoticed."""
    mean, error = simulated(group, interest, 10)
    assert refined_equations.reliability(group, interest) == pytest.approx(mean, rel=0.005)
    assert error < 0.003


def test_delegates_carry_the_event_down() -> None:
    """The infected delegates of the level above would be ignored, or count twice."""
    group = Parameters(branching=10, levels=4, redundancy=9, fanout=1, rounds=3)
    mean, error = simulated(group, 0.8, 400)
    assert refined_equations.reliability(group, 0.8) == pytest.approx(mean, rel=0.02)
    assert error < 0.005 * mean


@pytest.mark.parametrize("interest", [0.2, 1.0])
def test_a_single_delegate_may_be_down(interest: float) -> None:
    """With R = 1 a delegate would count as a running participant."""
    group = Parameters(branching=10, redundancy=1, crashes=0.2)
    mean, error = simulated(group, interest, 400)
    assert error < 0.01
    assert refined_equations.reliability(group, interest) == pytest.approx(mean, abs=4 * error)


def test_small_audiences_too() -> None:
    """Figure 6.8 would show another fall than the simulation."""
    for interest in (0.01, 0.03, 0.06):
        mean, error = simulated(Parameters(), interest, 60)
        assert abs(refined_equations.reliability(Parameters(), interest) - mean) < 4 * error


@pytest.mark.parametrize("correlation", [0.5, 0.95])
def test_correlated_interests(correlation: float) -> None:
    """Analysis and simulation would use different correlations."""
    group, interest = Parameters(), 0.1
    plans = [GossipPlan(group, interest, 11, run, correlation=correlation) for run in range(100)]
    outcomes = [disseminate(plan) for plan in plans]
    expected = refined_equations.expectation(group, interest, correlation)
    found = sum(each.reached for each in outcomes) / sum(each.interested for each in outcomes)
    assert expected.reliability == pytest.approx(found, rel=0.01)
    # Of some correlation the few suffer that want what their neighbours do not.
    alone = refined_equations.reliability(group, interest)
    assert (expected.reliability > alone + 0.02) == (correlation > 0.9)
    assert (expected.reliability < alone - 0.02) == (correlation < 0.9)
    wanted = np.mean([each.levels[1].wanted for each in outcomes]) / 22**2
    assert level_interest(group, interest, 2, correlation) == pytest.approx(wanted, rel=0.05)


@pytest.mark.slow
def test_rounds_are_those_of_the_simulation() -> None:
    """The analysis would expect other rounds than the simulation runs."""
    group = Parameters(levels=1, branching=2_000)
    taken = [disseminate(GossipPlan(group, 0.5, 11, run)).rounds for run in range(20)]
    assert refined_equations.expectation(group, 0.5).rounds == pytest.approx(
        np.mean(taken), abs=0.5
    )


def test_the_printed_analysis_is_not() -> None:
    """The stated deviation of the thesis would not exist."""
    mean, _ = simulated(Parameters(), 0.2, 20)
    assert mean == pytest.approx(0.977, abs=0.005)
    assert printed_equations.reliability(Parameters(), 0.2) < mean - 0.15
    factor, _ = simulated(Parameters(bottom_redundancy=True), 0.2, 20)
    assert factor == pytest.approx(0.9995, abs=0.0005)
