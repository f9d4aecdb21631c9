"""Tests of the infection of a hierarchy as printed."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import binom

from contrada.gossip.parameters import Parameters
from contrada.lab.analysis.printed_equations import (
    binomial,
    entities_infected,
    entity_infected,
    expected_entities,
    expected_infected,
    infected,
    reliability,
)

GROUP = Parameters()


def test_one_level() -> None:
    """Equations 6.22 and 6.23 would be of another chain."""
    state = infected(GROUP, 0.2, 1)
    assert state.n == 4  # of 4.4
    assert entity_infected(GROUP, 0.2, 1) == pytest.approx(state.mean / 4.4)
    upper = infected(GROUP, 0.2, 3)
    assert entity_infected(GROUP, 0.2, 3) == pytest.approx(1 - (1 - upper.mean / 66) ** 3, abs=1e-4)
    fixed = dataclasses.replace(GROUP, rounds=0)
    assert infected(fixed, 0.2, 1).mean == 1


def test_entities() -> None:
    """Equations 6.24 and 6.25 would not be a distribution, or 6.26 and 6.27 not its mean."""
    levels = entities_infected(GROUP, 0.2)
    assert [len(each) > 1 for each in levels] == [True] * 3
    for chances in levels:
        assert chances.sum() == pytest.approx(1)
    means = [float(chances @ np.arange(len(chances))) for chances in levels]
    product = 1.0
    for mean, level in zip(means, (3, 2, 1), strict=True):
        product *= expected_entities(GROUP, 0.2, level)
        assert mean == pytest.approx(product, rel=0.01)
    assert product == pytest.approx(expected_infected(GROUP, 0.2))
    assert reliability(GROUP, 0.2) == pytest.approx(product / (10_648 * 0.2))
    twice = entities_infected(GROUP, 0.2, counted_twice=True)
    assert twice[0].sum() == pytest.approx(1)
    assert twice[2].sum() < 0.96


def test_the_printed_form_asks_for_too_much() -> None:
    """The deviation of the thesis' equations would be reported wrongly."""
    assert reliability(GROUP, 0.2) == pytest.approx(0.80, abs=0.005)
    printed = dataclasses.replace(GROUP, bottom_redundancy=True)
    assert reliability(printed, 0.2) == pytest.approx(0.885, abs=0.005)
    assert reliability(GROUP, 1.0) == pytest.approx(0.973, abs=0.005)


@pytest.mark.parametrize(("count", "chance"), [(0, 0.5), (7, 0.0), (7, 1.0), (2_000, 0.3)])
def test_binomial(count: int, chance: float) -> None:
    """Audiences would be of other sizes."""
    expected = binom.pmf(np.arange(count + 1), count, chance)
    assert binomial(count, chance) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("loss", "crashes"), [(0.0, 0.3), (0.3, 0.0), (0.1, 0.2)])
def test_loss_and_crashes_slow_a_level_down(loss: float, crashes: float) -> None:
    """The chain would ignore losses, with rounds that consider them."""
    group = Parameters(branching=30, levels=1, redundancy=1, rounds=3, loss=loss, crashes=crashes)
    q = 1 - 2 * 0.5 / (15 - 1) * (1 - loss) * (1 - crashes)
    chances = [0.0, 1.0, *[0.0] * 14]
    for _ in range(3):
        after = [0.0] * 16
        for j, weight in enumerate(chances):
            for k in range(j, 16):
                ways = math.comb(15 - j, k - j)
                after[k] += weight * ways * (1 - q**j) ** (k - j) * q ** (j * (15 - k))
        chances = after
    mean = sum(k * chance for k, chance in enumerate(chances))
    assert infected(group, 0.5, 1).mean == pytest.approx(mean)
    assert entity_infected(group, 0.5, 1) == pytest.approx(mean / 15)
