"""Tests of the refined analysis."""

import pytest

from contrada.errors import InvalidValueError
from contrada.gossip.parameters import Parameters
from contrada.lab.analysis.refined_equations import expectation, reliability


def test_a_group_of_two() -> None:
    """The smallest case would differ from a calculation by hand."""
    pair = Parameters(branching=2, levels=1, fanout=1, redundancy=1, rounds=2, loss=0.5)
    # It is the publisher, or is reached in two rounds.
    assert reliability(pair, 1.0) == pytest.approx(0.5 + 0.5 * 0.75)
    # If the publisher is not interested it gossips all the same.
    assert reliability(pair, 0.3) == pytest.approx(0.5 + 0.5 * 0.75)
    nobody = Parameters(branching=2, levels=1, fanout=1, redundancy=1, rounds=0)
    assert reliability(nobody, 0.5) == pytest.approx(0.5)


def test_all_are_reached_where_nothing_is_lost() -> None:
    """Dropped probabilities would show."""
    all_at_once = Parameters(branching=4, levels=3, redundancy=2, fanout=20, rounds=2)
    for interest in (0.1, 0.5, 1.0):
        assert reliability(all_at_once, interest) == pytest.approx(1, abs=1e-5)


def test_levels_multiply() -> None:
    """The failing level of a multicast would be unknown."""
    expected = expectation(Parameters(redundancy=1), 0.3)
    assert [each.level for each in expected.levels] == [3, 2, 1]
    product = 1.0
    for each in expected.levels:
        assert 0 < each.reached < 1
        product *= each.reached
    assert product == pytest.approx(expected.reliability)
    assert expected.rounds == pytest.approx(sum(each.rounds for each in expected.levels))


@pytest.mark.slow
def test_more_of_anything_reaches_more() -> None:
    """A parameter would work the other way round."""
    base = reliability(Parameters(), 0.15)
    assert reliability(Parameters(rounds=12), 0.15) > base
    assert reliability(Parameters(audience=10), 0.15) > base
    assert reliability(Parameters(bottom_redundancy=True), 0.15) > base
    fixed = Parameters(rounds=6)
    assert reliability(fixed, 0.15) < reliability(Parameters(rounds=6, fanout=3), 0.15)
    assert reliability(fixed, 0.15) > reliability(Parameters(rounds=6, loss=0.3), 0.15)


def test_no_interest_is_refused() -> None:
    """A share of zero would be divided by."""
    with pytest.raises(InvalidValueError):
        expectation(Parameters(), 0.0)
