"""Tests of the expected rounds."""

import math

import numpy as np
import pytest

from contrada.errors import InvalidValueError
from contrada.gossip.parameters import Approximation, Parameters
from contrada.gossip.rounds import (
    ROUNDS_MAX,
    bailey,
    exchanges_digests,
    expected_rounds,
    pittel,
    recursion,
    tuned_audience,
)


def test_pittel_is_the_equation() -> None:
    """Participants would forget an event too early, or keep it too long."""
    n, fanout = 10_000, 3
    both = math.log(n, fanout + 1) + math.log(n) / fanout  # equation 6.4 on its left side
    assert pittel(n, fanout) == pytest.approx(both)
    reached = fanout * 0.9 * 0.8
    lossy = math.log(n) * (1 / reached + 1 / math.log(reached + 1)) + 2
    assert pittel(n, fanout, loss=0.1, crashes=0.2, constant=2) == pytest.approx(lossy)
    assert pittel([0, 1, 2], 2).tolist()[:2] == [0, 0]
    assert pittel(5, 0) == math.inf


def test_fewer_interested_take_longer_until_they_are_very_few() -> None:
    """Figure 6.9 would have another shape."""
    shares = np.arange(1, 101) / 100
    rounds = pittel(100 * shares, 2 * shares)
    top = int(rounds.argmax())
    assert rounds[0] == 0
    assert 0 < top < 10
    assert (np.diff(rounds[top:]) < 0).all()


@pytest.mark.parametrize("approximation", Approximation)
def test_each_audience_gets_its_rounds(approximation: Approximation) -> None:
    """A level would be left before its audience is reached, or never."""
    group = Parameters(approximation=approximation, loss=0.05, crashes=0.01)
    for level in (1, 2, 3):
        size = group.members(level)
        table = [expected_rounds(group, level, size, hits) for hits in range(size + 1)]
        assert table[0] == 0
        assert min(table[2:]) > 0
        assert table[-1] < 20
    if approximation is Approximation.PITTEL:
        expected = pittel(66, 2, loss=0.05, crashes=0.01)
        assert expected_rounds(group, 2, 66, 66) == math.ceil(float(expected))


def test_fixed_rounds_are_taken() -> None:
    """T could not be fixed, as the first two protocols have it."""
    group = Parameters(rounds=7)
    assert [expected_rounds(group, 1, 5, hits) for hits in range(6)] == [0, 7, 7, 7, 7, 7]


def test_the_lowest_level_of_figure_6_6_counts_delegates() -> None:
    """Line 27 as printed could not be compared with equation 6.17."""
    printed, plain = Parameters(bottom_redundancy=True), Parameters()
    assert expected_rounds(printed, 1, 22, 5) == math.ceil(float(pittel(15, 10 / 22)))
    assert expected_rounds(plain, 1, 22, 5) == math.ceil(float(pittel(5, 10 / 22)))
    assert expected_rounds(printed, 2, 66, 5) == expected_rounds(plain, 2, 66, 5)


def test_hits_are_within_the_view() -> None:
    """A view that counts wrongly would be believed."""
    with pytest.raises(InvalidValueError):
        expected_rounds(Parameters(), 1, 22, 23)


def test_other_approximations_reach_their_target() -> None:
    """They would end before the target share is infected."""
    p = 2 / 999
    rounds = recursion(1_000, p, 0.99)
    infected = 1.0
    for _ in range(rounds - 1):
        infected += (1_000 - infected) * (1 - (1 - p) ** infected)
    assert infected < 990 <= infected + (1_000 - infected) * (1 - (1 - p) ** infected)
    # The logistic curve through 1 at time 0.
    t = float(bailey(1_000, 2, 0.99))
    assert 1_000 / (1 + 999 * math.exp(-2 * t * 1_000 / 999)) == pytest.approx(990)
    assert t < rounds
    assert recursion(10, 0, 0.9) == ROUNDS_MAX


def test_a_small_audience_is_filled_up() -> None:
    """Few interested participants would be given up too early, or uninterested ones would get
    events.
    """
    views = [[0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [1, 0, 0, 0, 1]]
    tuned = tuned_audience(views, 3).astype(int).tolist()
    assert tuned == [[1, 1, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [1, 1, 1, 0, 1]]
    assert tuned_audience(views, 0).astype(int).tolist() == views
    assert tuned_audience([True, False], 9).tolist() == [True, True]


def test_digests_are_for_small_audiences() -> None:
    """All would exchange digests, or none."""
    group = Parameters(digest=4)
    assert [exchanges_digests(group, hits) for hits in (0, 1, 3, 4)] == [False, True, True, False]
    assert not exchanges_digests(Parameters(), 1)
