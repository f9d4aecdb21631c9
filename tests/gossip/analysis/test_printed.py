"""Tests of the infection of a hierarchy as printed."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binom

from contrada.gossip.analysis.printed import (
    binomial,
    entities_infected,
    entity_infected,
    expected_entities,
    expected_infected,
    infected,
    reliability,
)
from contrada.gossip.parameters import Parameters

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
    """What the thesis' equations give would not be what is told of them."""
    assert reliability(GROUP, 0.2) == pytest.approx(0.80, abs=0.005)
    printed = dataclasses.replace(GROUP, bottom_redundancy=True)
    assert reliability(printed, 0.2) == pytest.approx(0.885, abs=0.005)
    assert reliability(GROUP, 1.0) == pytest.approx(0.973, abs=0.005)


@pytest.mark.parametrize(("count", "chance"), [(0, 0.5), (7, 0.0), (7, 1.0), (2_000, 0.3)])
def test_binomial(count: int, chance: float) -> None:
    """Audiences would be of other sizes."""
    expected = binom.pmf(np.arange(count + 1), count, chance)
    assert binomial(count, chance) == pytest.approx(expected, abs=1e-12)
