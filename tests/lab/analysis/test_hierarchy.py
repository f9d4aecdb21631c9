"""Tests of sizes, interests and rounds of levels."""

import pytest

from contrada.errors import InvalidValueError
from contrada.gossip.addresses import AddressSpace
from contrada.gossip.parameters import Parameters
from contrada.gossip.rounds import pittel
from contrada.lab.analysis.hierarchy import (
    broadcast_rounds,
    delegate_interest,
    known,
    level_interest,
    level_rounds,
    represented,
    tastes,
    total_rounds,
    total_rounds_from_delegates,
)

FIGURE_6_5 = {
    1: ["3", "17", "19", "115", "116", "119", "124", "223"],
    2: ["41", "73", "88", "98", "110"],
    3: ["3", "18", "56", "178"],
    4: ["3", "18", "128"],
}
"""The lines of the tables of figure 6.5, of a participant 128.178.73.x with R = 3."""


def test_the_view_of_figure_6_5() -> None:
    """A view would count lines as delegates, or delegates once."""
    assert known([len(FIGURE_6_5[level]) for level in (1, 2, 3, 4)], 3) == 8 + 3 * (5 + 4 + 3)
    group = Parameters(branching=22, levels=3, redundancy=3)
    assert known([22, 22, 22], 3) == group.view_size == 154
    assert known([7], 3) == 7


def test_addresses() -> None:
    """An impossible address would be accepted."""
    space = AddressSpace.regular(4, 256)
    assert space.size == 2**32
    assert AddressSpace.regular(11, 16).size == 2**44
    assert space.holds((128, 178, 73, 3))
    assert not space.holds((128, 178, 73, 256))
    assert not space.holds((128, -1, 73, 3))
    assert not space.holds((128, 178, 73))


def test_delegates_represent_their_subsystem() -> None:
    """A delegate's interest would not be that of its subsystem."""
    assert represented([[3, 4], [5, 0]]) == 12
    assert delegate_interest([0.1, 1.0], 2).tolist() == pytest.approx([0.19, 1.0])
    group = Parameters(branching=22, levels=3)
    assert level_interest(group, 0.01, 1) == pytest.approx(0.01)
    assert level_interest(group, 0.01, 2) == pytest.approx(1 - 0.99**22)
    assert level_interest(group, 0.01, 3) == pytest.approx(1 - 0.99**484)
    assert level_interest(Parameters(branching=2, levels=60, redundancy=1), 1e-18, 60) > 0.4
    with pytest.raises(InvalidValueError):
        level_interest(group, 0.01, 4)


def test_correlated_neighbours() -> None:
    """Too many delegates would count as interested in correlated subsystems."""
    pairs = Parameters(branching=2, levels=3, redundancy=1)
    share = sum(weight * each for weight, each in tastes(0.3, 0.6))
    assert share == pytest.approx(0.3)
    both = sum(weight * each**2 for weight, each in tastes(0.3, 0.6))
    assert (both - 0.09) / (0.3 * 0.7) == pytest.approx(0.36)
    assert level_interest(pairs, 0.3, 2, 0.6) == pytest.approx(2 * 0.3 - both)
    assert level_interest(pairs, 0.3, 3, 0.6) == pytest.approx(1 - (1 - 2 * 0.3 + both) ** 2)
    assert level_interest(pairs, 0.3, 2, 1.0) == pytest.approx(0.3)
    assert level_interest(pairs, 0.3, 1, 0.6) == pytest.approx(0.3)


def test_rounds_of_levels_add_up() -> None:
    """Equations 6.20 and 6.21 would not be those of the levels."""
    group = Parameters(branching=10, levels=4, redundancy=3, fanout=3, loss=0.05, crashes=0.01)
    rounds = [level_rounds(group, 0.2, level) for level in (1, 2, 3, 4)]
    assert total_rounds(group, 0.2) == pytest.approx(sum(rounds))
    saved = float(pittel(3, 3, loss=0.05, crashes=0.01))
    assert total_rounds_from_delegates(group, 0.2) == pytest.approx(sum(rounds) - 3 * saved)


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 6, 12])
def test_depth_does_not_change_the_rounds_of_a_broadcast(levels: int) -> None:
    """Equation 6.28 would not hold: T'_tot = T(n, F) for p₁ = 1, whatever l."""
    branching = round(4096 ** (1 / levels))
    group = Parameters(branching=branching, levels=levels, redundancy=2, fanout=3, loss=0.1)
    assert group.participants == 4096
    assert total_rounds_from_delegates(group, 1.0) == pytest.approx(broadcast_rounds(group))
    if levels > 1:
        assert total_rounds(group, 1.0) > broadcast_rounds(group)
