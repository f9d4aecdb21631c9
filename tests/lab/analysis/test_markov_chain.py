"""Tests of the spread in one group."""

import math
from itertools import combinations, islice

import numpy as np
import pytest
from scipy.stats import binom

from contrada.errors import InvalidValueError, LimitError
from contrada.lab.analysis import markov_chain
from contrada.lab.analysis.markov_chain import (
    CHAIN_MAX,
    first_transitions,
    reach,
    settled,
    spread,
    spreading,
    transitions,
)


def test_reach_is_the_equation() -> None:
    """Gossip would spread faster or slower than it does."""
    assert reach(101, 3) == pytest.approx(0.03)
    assert reach(101, 3, loss=0.1, crashes=0.2) == pytest.approx(0.03 * 0.9 * 0.8)
    assert reach(20.2, 0.6) == pytest.approx(0.6 / 19.2)
    assert reach(3, 9) == 1
    assert reach(1, 2) == reach(0.5, 2) == 0


@pytest.mark.parametrize(("n", "p", "outsiders"), [(1, 0.5, 0), (30, 0.07, 0), (30, 0.2, 3)])
def test_transitions_are_binomial(n: int, p: float, outsiders: int) -> None:
    """Equation 6.2 would be taken as printed, with j - (n - k) in place of j (n - k)."""
    table = transitions(n, p, outsiders)
    for j in range(n + 1):
        expected = binom.pmf(np.arange(n - j + 1), n - j, 1 - (1 - p) ** (j + outsiders))
        assert table[j, j:] == pytest.approx(expected, abs=1e-13)
        assert (table[j, :j] == 0).all()
    assert table.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("p", [0.0, 0.02, 0.4, 1.0])
@pytest.mark.parametrize("outsiders", [0, 2])
def test_a_spread_is_the_power_of_the_chain(p: float, outsiders: int) -> None:
    """Dropped tails, or the assembly of rows, would change the distribution."""
    n = 60
    state = np.eye(1, n + 1, 2)[0]
    for each in islice(spreading(n, p, infected=2, outsiders=outsiders), 8):
        assert each.chances == pytest.approx(state, abs=1e-12)
        assert each.chances.sum() == pytest.approx(1, abs=1e-12)
        assert each.mean == pytest.approx(state @ np.arange(n + 1))
        assert each.at_least(0.5) == pytest.approx(state[30:].sum(), abs=1e-12)
        state = state @ transitions(n, p, outsiders)


@pytest.mark.slow
def test_chances_add_up_for_ten_thousand() -> None:
    """The largest exact group would lose probability."""
    last = spread(CHAIN_MAX, reach(CHAIN_MAX, 2), 15)
    assert last.chances.sum() == pytest.approx(1, abs=1e-9)
    assert 0.999 < last.mean / CHAIN_MAX < 1


@pytest.mark.quick_first
@pytest.mark.parametrize("fanout", [0.2, 2.0])
def test_means_agree_with_the_chain(fanout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group beyond the limit would have other results than one below it."""
    n = 3_000
    p, rounds = reach(n, fanout), 12 if fanout > 1 else 60
    exact = list(islice(spreading(n, p), rounds))
    monkeypatch.setattr(markov_chain, "CHAIN_MAX", 1_000)
    monkeypatch.setattr(markov_chain, "_EXACT_TO", 500)
    rough = list(islice(spreading(n, p), rounds))
    assert len(rough[-1].infected) > len(exact[-1].infected)  # it is another way
    for one, other in zip(exact, rough, strict=True):
        assert other.mean == pytest.approx(one.mean, rel=2e-3)
        assert other.at_least(0.5) == pytest.approx(one.at_least(0.5), abs=0.02)
        assert other.chances.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.slow
def test_a_large_group_is_calculated() -> None:
    """Ten million would take all memory, or factorials that are lost in rounding."""
    large = spread(10**7, reach(10**7, 3), 17)
    assert large.chances.sum() == pytest.approx(1, abs=1e-9)
    assert 0.9 < large.mean / 10**7 < 1
    with pytest.raises(LimitError):
        transitions(CHAIN_MAX + 1, 0.1)
    with pytest.raises(LimitError):
        settled(CHAIN_MAX + 1, 0.1)


def test_rounds_until_all_are_infected() -> None:
    """Pittel's asymptote could not be checked."""
    # One other, reached with a chance of 1/4 in each round.
    assert settled(2, 0.25) == pytest.approx(4)
    assert settled(1, 0.0) == 0
    assert settled(2, 0.0) == math.inf
    assert settled(50, 0.05, share=0.5) < settled(50, 0.05)


def test_impossible_chains_are_refused() -> None:
    """A distribution would be meaningless."""
    with pytest.raises(InvalidValueError):
        spread(5, 0.1, 1, infected=6)
    with pytest.raises(InvalidValueError):
        spread(5, 1.1, 1)


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_first_transitions_are_choices(loss: float) -> None:
    """Distinct choices would be calculated as independent ones."""
    n, size, fanout = 4, 6, 2
    # One infected of 4, an outsider of the other 2, each choosing two of the five others.
    ends = np.zeros(n + 1)
    for one in combinations([1, 2, 3, 4, 5], fanout):  # 0 is infected, 4 and 5 are no audience
        for other in combinations([0, 1, 2, 3, 5], fanout):
            for kept in range(16):
                sent = [*one, *other]
                got = {
                    dest for place, dest in enumerate(sent) if kept >> place & 1 and 0 < dest < 4
                }
                lost = 4 - kept.bit_count()
                ends[1 + len(got)] += 0.01 * (1 - loss) ** (4 - lost) * loss**lost
    table = first_transitions(n, size, fanout, loss=loss, outsiders=1)
    assert table[1] == pytest.approx(ends)
    assert table.sum(axis=1) == pytest.approx(1)
    once = spread(n, 0.1, 1, outsiders=1, first=table)
    assert once.chances == pytest.approx(ends)
