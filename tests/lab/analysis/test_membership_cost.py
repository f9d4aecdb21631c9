"""Tests of the cost of membership."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from contrada.errors import InvalidValueError
from contrada.gossip.parameters import Parameters
from contrada.lab.analysis import membership_cost

GROUPS = [
    Parameters(branching=22, levels=3, redundancy=3),
    Parameters(branching=10, levels=6, redundancy=4),
    Parameters(branching=9, levels=2, redundancy=9),
]


def view(n: float, levels: float, redundancy: int) -> float:
    """Equation 6.18 for any number of levels."""
    return float(n ** (1 / levels) * (redundancy * (levels - 1) + 1))


def test_slopes_are_derivatives() -> None:
    """The effect of more levels on views would have the wrong sign."""
    n, step = 10_000.0, 1e-5
    for levels in (1.5, 3.0, 8.0):
        change = (n ** (1 / (levels + step)) - n ** (1 / (levels - step))) / (2 * step)
        assert membership_cost.branching_slope(n, levels) == pytest.approx(change, rel=1e-6)
        change = (view(n, levels + step, 3) - view(n, levels - step, 3)) / (2 * step)
        assert membership_cost.view_slope(n, levels, 3) == pytest.approx(change, rel=1e-6)
        # As printed it is that of R l n^(1/l).
        printed = [3 * each * n ** (1 / each) for each in (levels - step, levels + step)]
        change = (printed[1] - printed[0]) / (2 * step)
        assert membership_cost.view_slope_printed(n, levels, 3) == pytest.approx(change, rel=1e-6)
        around = [membership_cost.view_slope_printed(n, levels + each, 3) for each in (-step, step)]
        bend = (around[1] - around[0]) / (2 * step)
        assert membership_cost.view_curvature(n, levels, 3) == pytest.approx(bend, rel=1e-6)


def test_the_smallest_view() -> None:
    """A hierarchy would be made too deep."""
    n = 10_000
    assert membership_cost.view_slope_printed(n, math.log(n), 3) == pytest.approx(0, abs=1e-9)
    assert membership_cost.view_curvature(n, math.log(n), 3) == pytest.approx(
        3 * math.e / math.log(n)
    )
    assert membership_cost.smallest_view_levels(n, 1) == pytest.approx(math.log(n))
    best = float(membership_cost.smallest_view_levels(n, 3))
    assert membership_cost.view_slope(n, best, 3) == pytest.approx(0, abs=1e-9)
    assert view(n, best, 3) < min(view(n, best - 0.1, 3), view(n, best + 0.1, 3))
    assert membership_cost.smallest_view_levels(8, 4) == 1
    assert membership_cost.is_below_smallest(Parameters(branching=3, levels=5))
    assert not membership_cost.is_below_smallest(Parameters(branching=2, levels=5, redundancy=2))


@pytest.mark.parametrize("group", [*GROUPS, Parameters(branching=30, levels=1)])
def test_all_participants_have_a_level(group: Parameters) -> None:
    """Equation 6.33 would count some twice, or not at all."""
    assert membership_cost.participants_of_level(group).sum() == group.participants
    # Those of level i or more are the delegates of all subsystems of level i - 1.
    counts = membership_cost.participants_of_level(group)
    for level in range(2, group.levels + 1):
        subsystems = group.branching ** (group.levels - level + 1)
        assert counts[level - 1 :].sum() == group.redundancy * subsystems


@pytest.mark.parametrize("group", GROUPS)
def test_updates_after_a_failure(group: Parameters) -> None:
    """Equation 6.35 would not be the sum that it closes."""
    assert membership_cost.knowing(group).tolist()[0] == group.branching - 1
    assert membership_cost.mean_updates(group) == pytest.approx(
        membership_cost.mean_updates_closed(group)
    )


@pytest.mark.parametrize("group", GROUPS)
def test_the_mean_level(group: Parameters) -> None:
    """Equation 6.36 would be taken as printed, which is below 0."""
    levels = np.arange(1, group.levels + 1)
    counts = membership_cost.participants_of_level(group)
    assert membership_cost.mean_level(group) == pytest.approx(counts @ levels / group.participants)
    a, redundancy = group.branching, group.redundancy
    area = redundancy * a * quad(lambda i: i * a**-i, 1, group.levels)[0]
    assert membership_cost.mean_level_integral(group) == pytest.approx(area)
    assert (
        membership_cost.mean_level_printed(group) < 0 < membership_cost.mean_level_integral(group)
    )


def test_a_chain_of_one_has_no_logarithm() -> None:
    """A division by zero would return NaN."""
    with pytest.raises(InvalidValueError):
        membership_cost.mean_level_printed(Parameters(branching=1, redundancy=1))
