"""A bounded sample of `exactness`; `make exact` compares everything."""

import random

import pytest

from contrada.model.languages import decision
from tests.model import exactness
from tests.model.exactness import Findings, compare_membership, run_filters, run_sets, run_singles


@pytest.fixture
def found() -> Findings:
    """Findings, with no safe answers counted before."""
    decision.safe_answers.clear()
    return Findings()


def assert_exact(found: Findings) -> None:
    """No difference, and no answer that was only safe."""
    assert found.differences == []
    assert decision.safe_answers.total() == 0


@pytest.mark.slow
def test_membership_is_what_the_operators_mean(found: Findings) -> None:
    """A constraint would hold a value that its definition does not, or the other way round."""
    compare_membership(random.Random(1).sample(exactness.mixed_terms(), 200), found)
    assert_exact(found)


@pytest.mark.quick_first
@pytest.mark.parametrize("count", [2_000, 6_000])
def test_single_constraints_are_decided_exactly(found: Findings, count: int) -> None:
    """Covers or meets of two constraints would be wrong, or right without a witness."""
    chance = random.Random(count)
    terms = chance.sample(exactness.all_terms(), 150)
    pairs = [(chance.randrange(150), chance.randrange(150)) for _ in range(count)]
    run_singles(terms, pairs, found)
    assert_exact(found)


@pytest.mark.slow
def test_combinations_of_constraints_are_decided_exactly(found: Findings) -> None:
    """Covers or meets of Boolean combinations on one attribute would be wrong."""
    chance = random.Random(3)
    run_sets(chance.sample(exactness.mixed_terms(), 200), 5_000, chance, found)
    assert_exact(found)


@pytest.mark.slow
def test_filters_and_unions_are_decided_exactly(found: Findings) -> None:
    """Covers or meets of filters over two attributes, or of unions of them, would be wrong."""
    chance = random.Random(4)
    run_filters(chance.sample(exactness.mixed_terms(), 200), 4_000, chance, found)
    assert_exact(found)
    assert found.counts["union covers True"] > 20
